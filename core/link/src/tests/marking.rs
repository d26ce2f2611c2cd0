//! Congestion marks and the policies that set them.

use std::boxed::Box;
use std::sync::Arc;

use weir_wire::CongestionMark;

use super::*;
use crate::{Marker, MarkerKind, MarkerOptions, QueueArrival};

/// Marks every Data packet; a policy of another crate.
#[derive(Debug)]
struct Every;

impl MarkerOptions for Every {
    fn make(&self, _capacity_bytes: u64, _seed: u64) -> Box<dyn Marker> {
        Box::new(Self)
    }
}

impl Marker for Every {
    fn mark_value(&self) -> CongestionMark {
        CongestionMark::PROPORTIONAL
    }

    fn must_mark(&mut self, joining: &QueueArrival) -> bool {
        joining.is_data
    }
}

const EVERY: MarkerKind = MarkerKind { name: "every", read: |_| Ok(Arc::new(Every)) };

#[test]
fn marks_follow_queue_and_socket_backlog() {
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
    assert!(!marked(&mut link, at(1001)), "the schedule starts again");
}

/// A link with this policy and a queue of 100,000 bytes; 80,000 of them wait in the socket.
fn marking(text: &str) -> Link {
    let policy = MarkingPolicy::read(text, &[EVERY]).unwrap();
    let mut link = Link::new(with(LinkConfig::stream(), |config| {
        config.egress.marking.policy = policy;
        config.egress.marking.capacity_bytes = 100_000;
    }));
    link.set_socket_backlog(80_000);
    link
}

/// The mark of a packet that had `mark` when it was enqueued.
fn mark_after(link: &mut Link, now: Instant, packet: Packet, mark: u64) -> u64 {
    let header = LpHeader { congestion_mark: mark, ..LpHeader::default() };
    link.enqueue(now, header, packet).unwrap();
    let frame = sent(link).pop().unwrap();
    LpView::decode(&frame).unwrap().header.congestion_mark
}

#[test]
fn marks_keep_those_of_other_routers() {
    let at = |ms: u64| START.plus_ns(ms * NS_PER_MS);
    for (text, meaning) in [("every", 2), ("codel", 1)] {
        let mut link = marking(text);
        // A queue of 80,000 bytes that grows by 100 in each 10 ms is late for CoDel.
        let warm: Vec<u64> =
            (0..20).map(|step| mark_after(&mut link, at(step * 10), data(100), 0)).collect();
        assert_eq!(warm.iter().max(), Some(&meaning), "{text}");
        let set = warm.iter().filter(|&&mark| mark > 0).count() as u64;
        assert_eq!(link.counters().marks_set, set);
        assert_eq!(mark_after(&mut link, at(5000), data(100), 3), 3);
        assert_eq!(link.counters().marks_set, set, "no further mark is needed");
        assert_eq!(mark_after(&mut link, at(9000), data(100), 3 - meaning), 3);
        assert_eq!(mark_after(&mut link, at(12_000), interest(), 0), 0, "only Data is marked");
    }
    let mut off = marking("every");
    off.set_config(with(off.config().clone(), |config| config.egress.marking.is_on = false));
    assert!((0..20).all(|step| mark_after(&mut off, at(step * 10), data(100), 0) == 0));
}

/// No packet waits for longer than a millisecond, with any headers.
#[test]
fn short_burst_is_not_late() {
    for header in [LpHeader::default(), token(&[7; 16])] {
        let mut link = Link::new(with(LinkConfig::datagram(1400), |config| {
            config.egress.marking.policy = "codel target=1ms interval=1ms".parse().unwrap();
        }));
        for half_ms in 0..40 {
            let now = START.plus_ns(half_ms * NS_PER_MS / 2);
            // Fragments have headers too.
            for len in [200, 200, 4000, 200, 4000] {
                link.enqueue(now, header.clone(), data(len)).unwrap();
            }
            sent(&mut link);
        }
        assert_eq!(link.counters().marks_set, 0, "{header:?}");
    }
}

#[test]
fn marking_policies_are_chosen_by_text() {
    assert_eq!("nfd".parse(), Ok(MarkingPolicy::default()));
    let codel = CoDelOptions { target_ns: 2 * NS_PER_MS, interval_ns: 50 * NS_PER_MS };
    let codel = MarkingPolicy::CoDel(codel);
    assert_eq!("codel target=2ms interval=50ms".parse(), Ok(codel.clone()));
    assert_eq!(codel.to_string(), "codel target=2ms interval=50ms");
    let every = MarkingPolicy::read(" every  a=1 b=2 ", &[EVERY]).unwrap();
    assert_eq!((every.name(), every.to_string().as_str()), ("every", "every a=1 b=2"));
    assert_eq!(every, MarkingPolicy::read("every a=1  b=2", &[EVERY]).unwrap());
    assert_ne!(every, MarkingPolicy::read("every", &[EVERY]).unwrap());
    assert_eq!(
        "red".parse::<MarkingPolicy>().unwrap_err().to_string(),
        "unknown marking policy `red`; choose one of nfd, codel"
    );
    for (name, option) in [("nfd", "target=1ms"), ("codel", "interval=0s"), ("codel", "target=5")] {
        let error = std::format!("{name} {option}").parse::<MarkingPolicy>().unwrap_err();
        let expected = std::format!(
            "invalid option `{option}` of the marking policy `{name}`: there is no such option, or \
             it cannot have this value"
        );
        assert_eq!(error.to_string(), expected);
    }
}

#[test]
fn disciplines_are_chosen_by_text() {
    assert_eq!("fifo".parse(), Ok(DisciplineConfig::Fifo));
    assert_eq!(DisciplineConfig::Fifo.to_string(), "fifo");
    assert_eq!("paced".parse(), Ok(DisciplineConfig::Paced));
    assert_eq!(DisciplineConfig::Paced.to_string(), "paced");
    assert!("paced burst=3".parse::<DisciplineConfig>().is_err());
    assert_eq!(
        "lifo".parse::<DisciplineConfig>().unwrap_err().to_string(),
        "unknown queue discipline `lifo`; choose one of fifo, paced"
    );
    assert!("fifo burst=3".parse::<DisciplineConfig>().is_err());
}

#[test]
fn codel_target_must_not_exceed_interval() {
    let refused = |text: &str| text.parse::<MarkingPolicy>().unwrap_err().to_string();
    let problem = refused("codel target=200ms");
    assert!(problem.contains("target=200ms and interval=100ms"), "{problem}");
    assert!("codel target=200ms interval=1s".parse::<MarkingPolicy>().is_ok());
}

#[test]
fn mark_never_causes_a_drop() {
    let mut link = Link::new(LinkConfig::stream());
    link.set_socket_backlog(1 << 20);
    link.enqueue(START, LpHeader::default(), data(10)).unwrap();
    let late = START.plus_ns(200 * NS_PER_MS);
    link.enqueue(late, LpHeader::default(), data(PACKET_SIZE_MAX - 4)).unwrap();
    assert_eq!(sent(&mut link).pop().unwrap().len(), PACKET_SIZE_MAX);
    // The token is not optional, and it comes from a peer that accepts such a frame.
    link.enqueue(late, token(b"1234"), data(PACKET_SIZE_MAX - 4)).unwrap();
    assert!(sent(&mut link).pop().unwrap().len() > PACKET_SIZE_MAX);
    let small = with(LinkConfig::datagram(1420), |config| config.codec.fragmentation = false);
    let refused = Link::new(small).enqueue(START, LpHeader::default(), data(1420));
    assert_eq!(refused, Err(LinkDrop::TooLargeForMtu));
}
