//! The discipline `interest-rate`: its rate, its bounds, and waiting Interests.

use proptest::prelude::*;
use weir_base::{Instant, NS_PER_MS, Packet};
use weir_link::{Link, LinkConfig, LinkDrop};
use weir_wire::tlv;

use super::{START, data, limited, offer, sent};

/// An Interest identified by one byte of content.
fn numbered(number: u8) -> Packet {
    Packet::from(&[tlv::INTEREST as u8, 1, number][..])
}

#[test]
fn excess_interests_wait_and_keep_order() {
    let mut link = limited("interest-rate interests_per_s=100 burst=3");
    let at = |ms: u64| START.plus_ns(ms * NS_PER_MS);
    for number in 0..6 {
        offer(&mut link, at(0), numbered(number)).unwrap();
    }
    assert_eq!(link.counters().out_interests, 6);
    assert_eq!(link.queue_bytes(), 18);
    assert_eq!(sent(&mut link), [0, 1, 2].map(numbered), "the burst");
    assert_eq!(link.next_wakeup(), Some(at(10)));
    offer(&mut link, at(5), data(10)).unwrap();
    assert_eq!(sent(&mut link), [data(10)], "Data does not wait");
    link.poll(at(9));
    assert!(link.is_egress_empty());
    link.poll(at(10));
    assert_eq!(sent(&mut link), [numbered(3)]);
    // Polled late, it sends what has become due and no more.
    link.poll(at(35));
    assert_eq!(sent(&mut link), [4, 5].map(numbered));
    assert_eq!((link.next_wakeup(), link.queue_bytes()), (None, 0));
    offer(&mut link, at(36), numbered(6)).unwrap();
    assert_eq!(link.next_wakeup(), Some(at(40)));
    link.poll(at(40));
    assert_eq!(sent(&mut link), [numbered(6)]);
    assert_eq!(link.counters().drops.total(), 0);
}

#[test]
fn held_interests_are_bounded_and_flushed() {
    let mut link = limited("interest-rate interests_per_s=1 burst=1 held_max=2");
    for number in 0..3 {
        offer(&mut link, START, numbered(number)).unwrap();
    }
    assert_eq!(offer(&mut link, START, numbered(3)), Err(LinkDrop::InterestRate));
    assert_eq!(link.counters().drops[LinkDrop::InterestRate], 1);
    link.discard_all();
    assert_eq!(link.counters().drops[LinkDrop::SocketRefused], 3);
    assert_eq!((link.queue_bytes(), link.next_wakeup()), (0, None));

    let mut full = limited("interest-rate interests_per_s=1 burst=1");
    let mut config = full.config().clone();
    config.egress.queue_bytes_max = 500;
    full.set_config(config);
    let taken = (0..9).filter(|&number| offer(&mut full, START, numbered(number)).is_ok()).count();
    assert_eq!(taken, 5, "the byte limit covers held packets too");
    assert_eq!(full.counters().drops[LinkDrop::QueueFull], 4);
}

#[test]
fn discipline_change_releases_held_interests() {
    let mut link = limited("interest-rate interests_per_s=1 burst=1");
    for number in 0..3 {
        offer(&mut link, START, numbered(number)).unwrap();
    }
    link.set_config(LinkConfig::stream());
    assert_eq!(sent(&mut link), [0, 1, 2].map(numbered));
    assert_eq!(link.next_wakeup(), None);
}

#[test]
fn low_memory_drops_held_interests_first() {
    let mut link = limited("interest-rate interests_per_s=1 burst=2 held_max=100");
    for number in 0..52 {
        offer(&mut link, START, numbered(number)).unwrap();
    }
    assert_eq!(link.frames().len(), 2);
    let all = link.egress_memory_bytes();
    link.shed_egress(all / 2, true);
    assert!(link.egress_memory_bytes() <= all / 2);
    assert_eq!(link.frames().len(), 2);
    link.shed_egress(0, true);
    assert_eq!((link.frames().len(), link.next_wakeup()), (1, None));
    link.shed_egress(0, false);
    assert_eq!(link.counters().drops[LinkDrop::EgressMemory], 52);
}

proptest! {
    /// Compares with a directly written bucket: in any time span, no more Interests leave than the
    /// burst plus the rate. None is lost, and they keep their order.
    #[test]
    fn the_rate_holds_over_every_span(
        gaps_us in prop::collection::vec(0u64..4000, 1..120),
        interests_per_s in 1u64..3000,
        burst in 1u64..9,
    ) {
        let text = format!("interest-rate interests_per_s={interests_per_s} burst={burst}");
        let mut link = limited(&text);
        let (mut now, mut outgoing) = (START, Vec::new());
        let gaps = gaps_us.len();
        let note = |link: &mut Link, now: Instant, outgoing: &mut Vec<(u64, u8)>| {
            outgoing.extend(sent(link).iter().map(|packet| (now.as_ns(), packet[2])));
        };
        for (number, gap_us) in gaps_us.into_iter().enumerate() {
            let arrives = now.plus_ns(gap_us * 1000);
            while let Some(due) = link.next_wakeup().filter(|&due| due <= arrives) {
                link.poll(due);
                note(&mut link, due, &mut outgoing);
            }
            now = arrives;
            offer(&mut link, now, numbered(number as u8)).unwrap();
            note(&mut link, now, &mut outgoing);
        }
        while let Some(due) = link.next_wakeup() {
            link.poll(due);
            note(&mut link, due, &mut outgoing);
        }
        let order: Vec<u8> = outgoing.iter().map(|&(_, number)| number).collect();
        prop_assert_eq!(order, (0..gaps as u8).collect::<Vec<u8>>());
        let interval_ns = 1_000_000_000 / interests_per_s;
        for from in 0..outgoing.len() {
            for to in from..outgoing.len() {
                let span_ns = outgoing[to].0 - outgoing[from].0;
                let count = (to - from + 1) as u64;
                prop_assert!(count <= burst + span_ns / interval_ns);
            }
        }
    }
}
