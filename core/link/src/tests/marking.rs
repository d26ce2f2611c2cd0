//! Congestion marks and the policies that set them.

use super::*;

#[test]
fn marks_are_set_by_the_queue_and_the_sockets_backlog() {
    let mut link = Link::new(LinkConfig::stream());
    let at = |ms: u64| START.plus_ns(ms * NS_PER_MS);
    let marked = |link: &mut Link, now| {
        link.enqueue(now, LpHeader::default(), data(100)).unwrap();
        let frame = sent(link).pop().unwrap();
        LpView::decode(&frame).unwrap().header.congestion_mark == 1
    };
    assert!(!marked(&mut link, at(0)));
    link.set_socket_backlog(65_537);
    assert!(!marked(&mut link, at(10)), "the interval begins");
    assert!(!marked(&mut link, at(109)));
    assert!(marked(&mut link, at(110)));
    assert!(!marked(&mut link, at(180)));
    assert!(marked(&mut link, at(181)), "100 ms / sqrt(2) later");
    assert_eq!(link.counters().marks_set, 2);
    link.set_socket_backlog(65_536);
    assert!(!marked(&mut link, at(1000)));
    link.set_socket_backlog(65_537);
    assert!(!marked(&mut link, at(1001)), "it all begins anew");
}

/// A link that marks so, with a queue of 100,000 octets of which 80,000 wait in the socket.
fn marking(text: &str) -> Link {
    let policy = text.parse().unwrap();
    let mut link = Link::new(with(LinkConfig::stream(), |config| {
        config.egress.marking.policy = policy;
        config.egress.marking.capacity_bytes = 100_000;
    }));
    link.set_socket_backlog(80_000);
    link
}

/// The marks of a packet that bore `mark` when it was enqueued.
fn mark_after(link: &mut Link, now: Instant, packet: Packet, mark: u64) -> u64 {
    let header = LpHeader { congestion_mark: mark, ..LpHeader::default() };
    link.enqueue(now, header, packet).unwrap();
    let frame = sent(link).pop().unwrap();
    LpView::decode(&frame).unwrap().header.congestion_mark
}

#[test]
fn marks_say_what_they_mean_and_leave_those_of_others() {
    let at = |ms: u64| START.plus_ns(ms * NS_PER_MS);
    for (text, meaning) in [("rem mu=1", 2), ("step", 2), ("codel", 1)] {
        let mut link = marking(text);
        // A queue of 80,000 octets to which 100 join in each 10 ms is late for any of them.
        let warm: Vec<u64> =
            (0..20).map(|step| mark_after(&mut link, at(step * 10), data(100), 0)).collect();
        assert_eq!(warm.iter().max(), Some(&meaning), "{text}");
        let set = warm.iter().filter(|&&mark| mark > 0).count() as u64;
        assert_eq!(link.counters().marks_set, set);
        assert_eq!(mark_after(&mut link, at(5000), data(100), 3), 3);
        assert_eq!(link.counters().marks_set, set, "all was said before");
        assert_eq!(mark_after(&mut link, at(9000), data(100), 3 - meaning), 3);
        assert_eq!(mark_after(&mut link, at(12_000), interest(), 0), 0, "Data alone are marked");
    }
    let mut off = marking("step");
    off.set_config(with(off.config().clone(), |config| config.egress.marking.is_on = false));
    assert!((0..20).all(|step| mark_after(&mut off, at(step * 10), data(100), 0) == 0));
}

/// Nothing waits for longer than a millisecond, whatever headers packets have.
#[test]
fn a_burst_is_not_late_before_its_time() {
    for policy in ["step", "step target=60s", "codel target=1ms interval=1ms"] {
        for header in [LpHeader::default(), token(&[7; 16])] {
            let mut link = Link::new(with(LinkConfig::datagram(1400), |config| {
                config.egress.marking.policy = policy.parse().unwrap();
            }));
            for half_ms in 0..40 {
                let now = START.plus_ns(half_ms * NS_PER_MS / 2);
                // Fragments have headers, too.
                for len in [200, 200, 4000, 200, 4000] {
                    link.enqueue(now, header.clone(), data(len)).unwrap();
                }
                sent(&mut link);
            }
            assert_eq!(link.counters().marks_set, 0, "{policy} {header:?}");
        }
    }
}

#[test]
fn marking_policies_are_chosen_by_text() {
    let rem = RemOptions {
        q_min_bytes: Some(150_000),
        q_max_bytes: Some(450_000),
        p_max_millionths: 10_000,
        mu_millionths: 250_000,
    };
    let text = "rem q_min=150KB  q_max=450000 p_max=1% mu=0.25";
    assert_eq!(text.parse(), Ok(MarkingPolicy::Rem(rem)));
    assert_eq!("rem".parse(), Ok(MarkingPolicy::Rem(RemOptions::default())));
    assert_eq!("nfd".parse(), Ok(MarkingPolicy::default()));
    let codel = CoDelOptions { target_ns: 2 * NS_PER_MS, interval_ns: 50 * NS_PER_MS };
    assert_eq!("codel target=2ms interval=50ms".parse(), Ok(MarkingPolicy::CoDel(codel)));
    assert_eq!(
        "red".parse::<MarkingPolicy>().unwrap_err().to_string(),
        "there is no marking policy `red`; choose one of nfd, rem, codel, step"
    );
    for (name, option) in [
        ("nfd", "target=1ms"),
        ("rem", "q_min=many"),
        ("rem", "mu=0"),
        ("rem", "p_max=1.5"),
        ("rem", "P=1"),
        ("codel", "interval=0s"),
        ("codel", "target=5"),
        ("step", "interval=1s"),
    ] {
        let error = std::format!("{name} {option}").parse::<MarkingPolicy>().unwrap_err();
        let name = name.split(' ').next().unwrap();
        let expected = std::format!(
            "`{option}` is no option of the marking policy `{name}`, or cannot have this value"
        );
        assert_eq!(error.to_string(), expected);
    }
}

/// What contradicts itself is refused by both names and values, whatever the order, and with what
/// follows from the queue where one is left out.
#[test]
fn options_that_contradict_each_other_are_refused() {
    let contradiction = |text: &str, capacity_bytes: Option<u64>| {
        let checked = text.parse::<MarkingPolicy>().and_then(|policy| policy.check(capacity_bytes));
        checked.map_err(|error| error.to_string())
    };
    let expected = "the marking policy `rem` cannot be so: it has q_min=450kB and q_max=150kB: \
                    `q_min` must be below `q_max`; lower it, or raise the other";
    assert_eq!(contradiction("rem q_min=450KB q_max=150KB", None), Err(expected.into()));
    assert_eq!(contradiction("rem q_max=150KB q_min=450KB", None), Err(expected.into()));
    let problem = contradiction("codel target=200ms", None).unwrap_err();
    assert!(problem.contains("target=200ms and interval=100ms"), "{problem}");
    assert_eq!(contradiction("codel target=200ms interval=1s", None), Ok(()));
    // A tenth and three tenths of the queue.
    let queue = Some(1_000_000);
    assert_eq!(contradiction("rem q_max=110KB", queue), Ok(()));
    let problem = contradiction("rem q_max=90KB", queue).unwrap_err();
    assert!(problem.contains("q_min=100kB and q_max=90kB"), "{problem}");
    let problem = contradiction("rem q_min=400KB", queue).unwrap_err();
    assert!(problem.contains("q_min=400kB and q_max=300kB"), "{problem}");
}

#[test]
fn a_mark_never_costs_a_packet_that_fits_without_it() {
    let mut link = Link::new(LinkConfig::stream());
    link.set_socket_backlog(1 << 20);
    link.enqueue(START, LpHeader::default(), data(10)).unwrap();
    let late = START.plus_ns(200 * NS_PER_MS);
    link.enqueue(late, LpHeader::default(), data(PACKET_SIZE_MAX - 4)).unwrap();
    assert_eq!(sent(&mut link).pop().unwrap().len(), PACKET_SIZE_MAX);
    // The token is no mere advice, and comes from a peer that can take such a frame.
    link.enqueue(late, token(b"1234"), data(PACKET_SIZE_MAX - 4)).unwrap();
    assert!(sent(&mut link).pop().unwrap().len() > PACKET_SIZE_MAX);
    let small = with(LinkConfig::datagram(1420), |config| config.codec.fragmentation = false);
    let refused = Link::new(small).enqueue(START, LpHeader::default(), data(1420));
    assert_eq!(refused, Err(LinkDrop::TooLargeForMtu));
}
