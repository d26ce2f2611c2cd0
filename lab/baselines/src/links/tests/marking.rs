//! The marking policies `rem` and `step`.

use weir_base::{Instant, NS_PER_MS, Packet};
use weir_link::{Link, LinkConfig, MarkingPolicy};
use weir_wire::{Interest, LpHeader, LpView, PitToken};

use super::super::MARKERS;
use super::{START, data, sent};

fn read(text: &str) -> MarkingPolicy {
    MarkingPolicy::read(text, MARKERS).unwrap()
}

/// The mark of a packet that had `mark` before it was enqueued.
fn mark_after(link: &mut Link, now: Instant, packet: Packet, mark: u64) -> u64 {
    let header = LpHeader { congestion_mark: mark, ..LpHeader::default() };
    link.enqueue(now, header, packet).unwrap();
    let frame = sent(link).pop().unwrap();
    LpView::decode(&frame).unwrap().header.congestion_mark
}

/// Decision 0016.
#[test]
fn marks_are_in_proportion_and_on_data_alone() {
    let at = |ms: u64| START.plus_ns(ms * NS_PER_MS);
    for text in ["rem mu=1", "step"] {
        let mut config = LinkConfig::stream();
        config.egress.marking.policy = read(text);
        config.egress.marking.capacity_bytes = 100_000;
        let mut link = Link::new(config);
        link.set_socket_backlog(80_000);
        // With a queue of 80,000 bytes that grows by 100 bytes per 10 ms, both policies mark.
        let warm: Vec<u64> =
            (0..20).map(|step| mark_after(&mut link, at(step * 10), data(100), 0)).collect();
        assert_eq!(warm.iter().max(), Some(&2), "{text}");
        let set = warm.iter().filter(|&&mark| mark > 0).count() as u64;
        assert_eq!(link.counters().marks_set, set);
        assert_eq!(mark_after(&mut link, at(5000), data(100), 3), 3);
        assert_eq!(link.counters().marks_set, set, "the packet already had the mark");
        assert_eq!(mark_after(&mut link, at(9000), data(100), 1), 3);
        let interest = Packet::from(Interest::new("/a".parse().unwrap()).encode());
        assert_eq!(mark_after(&mut link, at(12_000), interest, 0), 0);
    }
}

/// No packet waits longer than a millisecond, with any headers.
#[test]
fn burst_is_not_marked_early() {
    for policy in ["step", "step target=60s"] {
        let token = LpHeader { pit_token: PitToken::new(&[7; 16]).unwrap(), ..LpHeader::default() };
        for header in [LpHeader::default(), token] {
            let mut config = LinkConfig::datagram(1400);
            config.egress.marking.policy = read(policy);
            let mut link = Link::new(config);
            for half_ms in 0..40 {
                let now = START.plus_ns(half_ms * NS_PER_MS / 2);
                // Fragments have headers too.
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
    assert_eq!(
        MarkingPolicy::read("red", MARKERS).unwrap_err().to_string(),
        "unknown marking policy `red`; choose one of nfd, codel, rem, step"
    );
    for (name, option) in [
        ("rem", "q_min=many"),
        ("rem", "mu=0"),
        ("rem", "p_max=1.5"),
        ("rem", "P=1"),
        ("step", "interval=1s"),
    ] {
        let error = MarkingPolicy::read(&format!("{name} {option}"), MARKERS).unwrap_err();
        let expected = format!(
            "invalid option `{option}` of the marking policy `{name}`: there is no such option, or \
             it cannot have this value"
        );
        assert_eq!(error.to_string(), expected);
    }
}

/// Contradictory options are rejected with both names and values. This holds in either order, and
/// also if one of them follows from the queue.
#[test]
fn contradictory_options_are_rejected() {
    let contradiction = |text: &str, capacity_bytes: Option<u64>| {
        let policy = MarkingPolicy::read(text, MARKERS);
        let checked = policy.and_then(|policy| policy.check(capacity_bytes));
        checked.map_err(|error| error.to_string())
    };
    let expected = "invalid marking policy `rem`: q_min=450kB and q_max=150kB contradict each \
                    other: `q_min` must be below `q_max`";
    assert_eq!(contradiction("rem q_min=450KB q_max=150KB", None), Err(expected.into()));
    assert_eq!(contradiction("rem q_max=150KB q_min=450KB", None), Err(expected.into()));
    // A tenth and three tenths of the queue.
    let queue = Some(1_000_000);
    assert_eq!(contradiction("rem q_max=110KB", queue), Ok(()));
    let problem = contradiction("rem q_max=90KB", queue).unwrap_err();
    assert!(problem.contains("q_min=100kB and q_max=90kB"), "{problem}");
    let problem = contradiction("rem q_min=400KB", queue).unwrap_err();
    assert!(problem.contains("q_min=400kB and q_max=300kB"), "{problem}");
}
