use std::collections::VecDeque;
mod fairness;

use std::format;
use std::string::{String, ToString};
use std::vec;
use std::vec::Vec;

use proptest::prelude::*;
use weir_base::{NS_PER_S, Pool};
use weir_wire::lp::{LpFraming, LpView, NackReason, PitToken};
use weir_wire::{Interest, Name, tlv};

use super::super::config::ShapingConfig;
use super::*;
use crate::{Link, LinkConfig, Received, ShapingError};

const START: Instant = Instant::from_ns(NS_PER_S);

fn at_ms(ms: u64) -> Instant {
    START.plus_ns(ms * NS_PER_MS)
}

fn name(uri: &str) -> Name {
    uri.parse().unwrap()
}

fn asking(uri: &str) -> Packet {
    Packet::from(Interest::new(name(uri)).nonce(7).encode())
}

/// The beginning of a Data packet with this name, with about `len` bytes.
fn data(uri: &str, len: usize) -> Packet {
    let mut body = tlv::Writer::with_capacity(len);
    body.tlv(tlv::NAME, name(uri).value());
    body.tlv(tlv::CONTENT, &vec![1; len.saturating_sub(body.len() + 8)]);
    let mut packet = tlv::Writer::with_capacity(len + 8);
    packet.tlv(tlv::DATA, body.as_slice());
    Packet::from(packet.into_vec())
}

/// A face with a queue of 100,000 bytes. Shaping begins at 60,000, and all Interests are delayed
/// above 90,000.
fn shaping(options: &str) -> Link {
    shaping_by(options, 1)
}

fn shaping_by(options: &str, shaping_seed: u64) -> Link {
    let shaping = format!("fisp capacity=100000 {options}").parse().unwrap();
    Link::new(LinkConfig { shaping, shaping_seed, ..LinkConfig::stream() })
}

fn receive(link: &mut Link, now: Instant, packet: Packet) -> Received {
    link.receive(now, packet, &mut Pool::new(1 << 20))
}

fn passes(link: &mut Link, now: Instant, uri: &str) -> bool {
    match receive(link, now, asking(uri)) {
        Received::Packet { packet, .. } => {
            assert_eq!(packet[..], asking(uri)[..]);
            true
        }
        Received::Delayed => false,
        other => panic!("{other:?}"),
    }
}

fn answer(link: &mut Link, now: Instant, packet: Packet) {
    link.enqueue(now, LpHeader::default(), packet).unwrap();
}

fn drain(link: &mut Link) {
    let count = link.frames().len();
    link.frames_sent(count);
}

/// Names of the Interests released at `now`.
fn released(link: &mut Link, now: Instant) -> Vec<String> {
    link.poll(now);
    core::iter::from_fn(|| link.take_released(now))
        .map(|(_, packet)| weir_wire::InterestView::decode(&packet).unwrap().name.to_string())
        .collect()
}

#[test]
fn probability_follows_fig_3() {
    let fisp = Fisp::new(&FispConfig { capacity_bytes: 1_000_000, ..FispConfig::default() }, 0);
    for (required_bytes, probability) in
        [(600_000, 0.3), (675_000, 0.55), (750_000, 0.8), (810_000, 1.0), (900_000, 1.3)]
    {
        assert!((fisp.delay_probability(required_bytes) - probability).abs() < 1e-9);
    }
    // Random delay: a flow that fills the queue on its own, and one more Interest.
    for (queue_bytes, probability) in [(61_000, 0.333), (66_000, 0.5), (72_000, 0.7)] {
        let held = (0..1000).filter(|&seed| {
            let mut link = shaping_by("gamma=0", seed);
            assert!(passes(&mut link, START, "/a/b/c"));
            for _ in 0..queue_bytes / 1000 {
                answer(&mut link, START, data("/a/b/c", 992));
            }
            !passes(&mut link, at_ms(10), "/a/b/d")
        });
        let share = held.count() as f64 / 1000.0;
        assert!((share - probability).abs() < 0.05, "{queue_bytes} bytes: {share}");
    }
}

#[test]
fn passes_all_below_min_and_none_above_max() {
    let mut link = shaping("");
    link.set_socket_backlog(59_000);
    assert!(
        (0..100).all(|_| passes(&mut link, START, "/a/b/1")),
        "Interests for one name count once"
    );
    // Data of 8192 bytes is expected at first: 0.6 times 7 of them is 34,406 bytes more.
    let mut link = shaping("");
    link.set_socket_backlog(56_000);
    let count = (0..100).take_while(|i| passes(&mut link, START, &format!("/a/b/{i}"))).count();
    assert_eq!(count, 7, "the next one finds 90,406 bytes needed");
    assert!(!passes(&mut link, START, "/other/flow/1"), "above the maximum every flow waits");
    assert_eq!(link.counters().interests_held, 2);
}

#[test]
fn delays_flows_above_their_share() {
    let mut link = shaping("p0=1");
    assert!(passes(&mut link, START, "/heavy/flow/1"));
    for _ in 0..70 {
        answer(&mut link, START, data("/heavy/flow/1", 992));
    }
    assert!(!passes(&mut link, at_ms(10), "/heavy/flow/2"));
    // 8192 bytes each, counted with 0.6, up to the maximum.
    assert!(passes(&mut link, at_ms(10), "/light/flow/1"));
    assert!(passes(&mut link, at_ms(10), "/light/flow/2"));
    assert!(passes(&mut link, at_ms(10), "/light/flow/3"));
}

#[test]
fn average_follows_queue_in_10_ms() {
    let mut link = shaping("gamma=0 p0=1");
    assert!(passes(&mut link, START, "/a/a/1"));
    for _ in 0..70 {
        answer(&mut link, START, data("/a/a/1", 992));
    }
    assert!(passes(&mut link, at_ms(0), "/a/a/2"), "the average is still 0");
    assert!(passes(&mut link, at_ms(2), "/a/a/3"));
    assert!(!passes(&mut link, at_ms(12), "/a/a/4"));
}

/// Regression: each flush of a reliable face postponed the check of delayed Interests. A neighbour
/// with a thousand frames a second kept them waiting.
#[test]
fn set_now_does_not_postpone_release() {
    let mut link = shaping("gamma=0");
    link.set_socket_backlog(95_000);
    assert!(!passes(&mut link, START, "/a/a/0"));
    link.set_now(START.plus_ns(NS_PER_MS / 2));
    assert_eq!(link.next_wakeup(), Some(at_ms(1)));
}

#[test]
fn releases_after_interval_if_there_is_room() {
    let mut link = shaping("gamma=0");
    link.set_socket_backlog(95_000);
    for number in 0..3 {
        assert!(!passes(&mut link, START, &format!("/a/a/{number}")));
    }
    assert_eq!(link.next_wakeup(), Some(at_ms(1)));
    assert_eq!(released(&mut link, at_ms(50)), [""; 0], "no room");
    assert_eq!(link.next_wakeup(), Some(at_ms(51)));
    link.set_socket_backlog(80_000);
    assert_eq!(released(&mut link, at_ms(51)), ["/a/a/0", "/a/a/1", "/a/a/2"]);
    assert_eq!((link.next_wakeup(), link.has_delayed_interests()), (None, false));

    // Later Interests have waited less.
    link.set_socket_backlog(95_000);
    assert!(!passes(&mut link, at_ms(100), "/a/a/3"));
    assert!(!passes(&mut link, at_ms(105), "/a/a/4"));
    link.set_socket_backlog(80_000);
    assert_eq!(released(&mut link, at_ms(109)), [""; 0]);
    assert_eq!(released(&mut link, at_ms(110)), ["/a/a/3"]);
    assert!(!passes(&mut link, at_ms(111), "/a/a/5"), "not before /a/a/4");
    assert_eq!(released(&mut link, at_ms(121)), ["/a/a/4", "/a/a/5"]);
    assert_eq!((link.counters().interests_held, link.counters().interests_released), (6, 6));
}

#[test]
fn releases_all_below_release_threshold() {
    let mut link = shaping("gamma=0");
    link.set_socket_backlog(95_000);
    for number in 0..20 {
        assert!(!passes(&mut link, START, &format!("/a/a/{number}")));
    }
    link.set_socket_backlog(19_000);
    assert_eq!(released(&mut link, at_ms(1)), [""; 0], "the average is still above");
    link.set_socket_backlog(0);
    link.poll(at_ms(5));
    assert_eq!(released(&mut link, at_ms(9)).len(), 20, "though 10 ms have not passed");

    let mut link = shaping("gamma=1");
    link.set_socket_backlog(95_000);
    for number in 0..20 {
        assert!(!passes(&mut link, START, &format!("/a/a/{number}")));
    }
    link.set_socket_backlog(0);
    // 8192 bytes each, up to 90,000.
    assert_eq!(released(&mut link, at_ms(20)).len(), 11);
}

/// Paper chopcop, 3.2, fourth phase: released Interests raise Q, but not above the maximum here.
#[test]
fn release_does_not_delay_the_rest() {
    let mut link = shaping("gamma=1 interval=10s");
    link.set_socket_backlog(95_000);
    for number in 0..9 {
        assert!(!passes(&mut link, START, &format!("/a/a/{number}")));
    }
    link.set_socket_backlog(0);
    // 9 times 8192 bytes: below the maximum of 90,000.
    link.poll(at_ms(20));
    assert_eq!(released(&mut link, at_ms(40)).len(), 9);
}

#[test]
fn answers_and_expiry_make_room() {
    let mut link = shaping("gamma=1");
    let fill = |link: &mut Link, now, from: u64| {
        (from..).take_while(|i| passes(link, now, &format!("/a/a/{i}"))).count()
    };
    assert_eq!(fill(&mut link, START, 0), 11);
    // A Nack brings no Data, so less is expected of the next ones.
    let nack = LpHeader { nack: Some(NackReason::NoRoute), ..LpHeader::default() };
    link.enqueue(START, nack, asking("/a/a/0")).unwrap();
    drain(&mut link);
    let more = released(&mut link, at_ms(11)).len();
    assert_eq!(more, 1);
    for number in 1..11 {
        answer(&mut link, at_ms(12), data(&format!("/a/a/{number}"), 1000));
    }
    drain(&mut link);
    let more = fill(&mut link, at_ms(20), 100);
    assert!(more > 25, "Data is smaller than it was thought to be, but only {more} pass");
    // After half a second, other flows have the room. The flow itself has used its share, and gets
    // one Interest at a time through. After 4 s the Interests are no longer waited for.
    let mut link = shaping("gamma=1");
    assert_eq!(fill(&mut link, START, 0), 11);
    assert!(!passes(&mut link, at_ms(100), "/b/b/1") && !passes(&mut link, at_ms(100), "/a/a/12"));
    assert_eq!(released(&mut link, at_ms(499)), [""; 0]);
    assert_eq!(released(&mut link, at_ms(501)), ["/a/a/11", "/b/b/1"]);
    assert_eq!(released(&mut link, at_ms(999)), [""; 0]);
    assert_eq!(released(&mut link, at_ms(1002)), ["/a/a/12"]);
    // A third of 90,000 bytes: the other flow, and one that may appear, have the same share.
    assert_eq!(
        fill(&mut link, at_ms(4005), 100),
        2,
        "in addition to the two that are still unanswered"
    );
    // For another 4 s. Then all effects are over.
    assert_eq!(released(&mut link, at_ms(20_000)), [""; 0], "its own lifetime is over");
    assert_eq!(fill(&mut link, at_ms(20_000), 1000), 11);
}

#[test]
fn expired_interest_is_not_released() {
    let mut link = shaping("");
    link.set_socket_backlog(95_000);
    let short = Interest::new(name("/a/a/1")).lifetime_ms(100).encode();
    assert!(matches!(receive(&mut link, START, Packet::from(short)), Received::Delayed));
    assert!(!passes(&mut link, START, "/a/a/2"));
    link.set_socket_backlog(0);
    assert_eq!(released(&mut link, at_ms(100)), ["/a/a/2"]);
    assert_eq!(link.counters().drops[LinkDrop::ShapingExpired], 1);
    assert_eq!(link.counters().interests_released, 1);
}

#[test]
fn full_queue_refuses_the_largest_flow() {
    let mut link = shaping("held_max=3");
    link.set_socket_backlog(95_000);
    for number in 0..3 {
        assert!(!passes(&mut link, START, &format!("/a/a/{number}")));
    }
    let header = LpHeader { pit_token: PitToken::new(b"token").unwrap(), ..LpHeader::default() };
    let frame = Packet::from(header.encode(&LpFraming::BARE, &[], Some(&asking("/a/a/3"))));
    assert!(matches!(receive(&mut link, START, frame), Received::Delayed));
    assert!(!passes(&mut link, START, "/b/b/0"), "it replaces /a/a/2");
    let refused: Vec<_> = link
        .frames()
        .map(|frame| {
            let octets = [frame.prefix(), frame.payload()].concat();
            let view = LpView::decode(&octets).unwrap();
            let interest = weir_wire::InterestView::decode(view.fragment.unwrap()).unwrap();
            (view.header.nack, view.header.pit_token, interest.name.to_string())
        })
        .collect();
    let congestion = Some(NackReason::Congestion);
    let token = PitToken::new(b"token").unwrap();
    let expected = [
        (congestion, token, "/a/a/3".to_string()),
        (congestion, PitToken::EMPTY, "/a/a/2".to_string()),
    ];
    assert_eq!(refused, expected);
    assert_eq!(link.counters().drops[LinkDrop::ShapingFull], 2);
    assert_eq!((link.counters().interests_held, link.counters().out_nacks), (4, 2));
    drain(&mut link);
    link.set_socket_backlog(0);
    let all = released(&mut link, at_ms(20));
    assert_eq!(all, ["/a/a/0", "/b/b/0", "/a/a/1"]);
    assert_eq!(link.counters().interests_released, 3);
}

#[test]
fn management_nacks_and_data_never_wait() {
    let mut link = shaping("");
    link.set_socket_backlog(1 << 30);
    assert!(passes(&mut link, START, "/localhost/nfd/faces/list"));
    assert!(passes(&mut link, START, "/localhop/nfd/rib/register"));
    let nack = LpHeader { nack: Some(NackReason::NoRoute), ..LpHeader::default() };
    let nack = Packet::from(nack.encode(&LpFraming::BARE, &[], Some(&asking("/a/a/1"))));
    for packet in [nack, data("/a/a/1", 100)] {
        assert!(matches!(receive(&mut link, START, packet), Received::Packet { .. }));
    }
    // The forwarder counts packets that are not Interests.
    let malformed = Packet::from(&b"\x05\x02\x07\x00"[..]);
    assert!(matches!(receive(&mut link, START, malformed), Received::Packet { .. }));
    assert!(!passes(&mut link, START, "/a/a/1"));
}

#[test]
fn data_answers_by_prefix_and_digest() {
    for interest in [
        Interest::new(name("/a/a")).can_be_prefix(true),
        Interest::new(name(&format!("/a/a/v/1/sha256digest={}", "ab".repeat(32)))),
    ] {
        let mut link = shaping("gamma=1 max=0.61");
        link.set_socket_backlog(60_000);
        let packet = Packet::from(interest.encode());
        assert!(matches!(receive(&mut link, START, packet), Received::Packet { .. }));
        assert!(!passes(&mut link, START, "/b/b/1"));
        answer(&mut link, at_ms(1), data("/a/a/v/1", 900));
        drain(&mut link);
        assert_eq!(released(&mut link, at_ms(11)), ["/b/b/1"]);
    }
}

/// Interests of two flows wait, with Data of 1,000 and 8,000 bytes.
#[test]
fn release_order_is_fair_in_bytes() {
    let mut link = shaping("gamma=0");
    // A flow is remembered while one of its Interests is unanswered.
    assert!(passes(&mut link, START, "/small/x/open") && passes(&mut link, START, "/large/x/open"));
    for flow in ["small", "large"] {
        for number in 0..80 {
            let uri = format!("/{flow}/x/open{number}");
            assert!(passes(&mut link, START, &uri));
            answer(&mut link, START, data(&uri, if flow == "small" { 1000 } else { 8000 }));
            drain(&mut link);
        }
    }
    link.set_socket_backlog(95_000);
    for number in 1000..2000 {
        assert!(!passes(&mut link, START, &format!("/large/x/{number}")));
        assert!(!passes(&mut link, START, &format!("/small/x/{number}")));
    }
    link.set_socket_backlog(0);
    link.poll(at_ms(10));
    let mut asked_bytes = [0, 0];
    for _ in 0..900 {
        let (_, packet) = link.take_released(at_ms(10)).unwrap();
        let name = weir_wire::InterestView::decode(&packet).unwrap().name.to_string();
        let is_large = name.starts_with("/large");
        asked_bytes[usize::from(is_large)] += if is_large { 8000 } else { 1000 };
    }
    let [small, large] = asked_bytes;
    let most = 2 * 8800;
    assert!(small > 700_000 && i64::abs(small - large) <= most, "{asked_bytes:?}");
}

#[test]
fn number_of_flows_is_limited() {
    let shaping = "fisp capacity=1GB held_max=100".parse().unwrap();
    let ShapingConfig::Fisp(config) = shaping else { panic!("{shaping:?}") };
    let mut fisp = Fisp::new(&config, 3);
    let ask = |fisp: &mut Fisp, now, number: u32| {
        let packet = asking(&format!("/flow/{number}/1"));
        fisp.receive(now, (LpHeader::default(), packet), 0)
    };
    for number in 0..5000 {
        assert!(matches!(ask(&mut fisp, START, number), ShapingOutcome::Pass(..)));
    }
    assert_eq!(fisp.flows.count(), 1025, "1024, and one for all others");
    for number in 0..2500 {
        fisp.on_answer(&data(&format!("/flow/{number}/1"), 1000), 1000, 0);
    }
    fisp.advance(at_ms(3999), 0);
    assert_eq!(fisp.flows.count(), 1, "the overflow flow, with 2500 unanswered Interests");
    fisp.advance(at_ms(4001), 0);
    assert_eq!((fisp.flows.count(), fisp.flows.required_bytes(1000)), (1, 0));

    // More Interests wait than can be counted.
    let held = (0..70_000)
        .filter(|&number| !matches!(ask(&mut fisp, at_ms(9000), number), ShapingOutcome::Pass(..)));
    assert_eq!(held.count(), 70_000 - (1 << 16));
    assert_eq!(fisp.delayed.len(), 100);
}

#[test]
fn delayed_interests_count_as_memory() {
    let mut link = shaping("");
    link.set_socket_backlog(95_000);
    for number in 0..10 {
        assert!(!passes(&mut link, START, &format!("/a/a/{number}")));
    }
    answer(&mut link, START, data("/a/a/x", 500));
    let before = link.egress_memory_bytes();
    link.shed_egress(before - 1000, false);
    assert!(link.egress_memory_bytes() <= before - 1000 && link.frames().len() == 1);
    let dropped = link.counters().drops[LinkDrop::EgressMemory];
    assert!((1..10).contains(&dropped), "{dropped}");
    link.discard_all();
    assert_eq!((link.has_delayed_interests(), link.next_wakeup()), (false, None));
    assert_eq!(link.counters().drops[LinkDrop::SocketRefused], 11 - dropped);
}

/// The state of unanswered Interests is memory too. It is freed when they are over, and before
/// waiting packets are dropped.
#[test]
fn pending_interests_count_as_memory() {
    let mut link = shaping("capacity=1GB");
    let idle = link.egress_memory_bytes();
    let ask = |link: &mut Link, now| {
        assert!((0..5000).all(|number| passes(link, now, &format!("/a/a/{number}"))));
    };
    ask(&mut link, START);
    let pending = link.egress_memory_bytes();
    assert!(pending > idle + 5000 * 48, "{pending} bytes");
    assert!(!link.has_delayed_interests());
    link.shed_egress(pending, false);
    assert_eq!(link.egress_memory_bytes(), pending);
    answer(&mut link, START, data("/a/a/x", 500));
    link.set_socket_backlog(950_000_000);
    assert!(!passes(&mut link, START, "/b/a/1"), "it waits");
    link.shed_egress(pending / 2, false);
    assert!(link.egress_memory_bytes() <= idle + 3000 && link.frames().len() == 1);
    assert!(link.has_delayed_interests(), "no packet is dropped");
    link.set_socket_backlog(0);
    assert_eq!(released(&mut link, at_ms(10)), ["/b/a/1"]);
    link.discard_all();

    ask(&mut link, START);
    let pending = link.egress_memory_bytes();
    assert!(pending > idle + 5000 * 48, "{pending} bytes");
    link.shrink();
    assert!(link.egress_memory_bytes() > pending - 1000, "not over");
    assert!(passes(&mut link, at_ms(5000), "/a/a/1"));
    answer(&mut link, at_ms(5000), data("/a/a/1", 500));
    drain(&mut link);
    link.shrink();
    assert!(link.egress_memory_bytes() < idle + 2000, "{} bytes", link.egress_memory_bytes());
}

#[test]
fn reconfiguration_keeps_delayed_interests() {
    let mut link = shaping("");
    link.set_socket_backlog(95_000);
    for number in 0..5 {
        assert!(!passes(&mut link, START, &format!("/a/a/{number}")));
    }
    let config = link.config().clone();
    link.set_config(config.clone());
    assert_eq!(released(&mut link, at_ms(1)), [""; 0]);
    link.set_config(LinkConfig { shaping: ShapingConfig::None, ..config });
    assert_eq!(link.next_wakeup(), Some(Instant::ZERO));
    assert!(passes(&mut link, at_ms(1), "/a/a/9"));
    assert_eq!(released(&mut link, at_ms(1)).len(), 5);
    assert_eq!(link.next_wakeup(), None);
}

#[test]
fn parses_text_form() {
    assert_eq!("none".parse(), Ok(ShapingConfig::None));
    assert_eq!("fisp".parse(), Ok(ShapingConfig::Fisp(FispConfig::default())));
    let text = "fisp capacity=2MB gamma=0.5 release=0.1 min=0.4 max=0.7 p0=0.1 interval=5ms \
                held_max=9 components=1";
    let config = FispConfig {
        capacity_bytes: 2_000_000,
        gamma: 500,
        release: 100,
        min: 400,
        max: 700,
        p0: 100,
        interval_ns: 5 * NS_PER_MS,
        held_max: 9,
        components: 1,
    };
    assert_eq!(text.parse(), Ok(ShapingConfig::Fisp(config)));
    let refused = |text: &str| text.parse::<ShapingConfig>().unwrap_err();
    assert_eq!(refused("red"), ShapingError::Unknown("red".into()));
    assert_eq!(refused(""), ShapingError::Unknown("".into()));
    for option in ["gamma=x", "gamma=-1", "capacity=0", "components=0", "p0=7", "interval=5", "x"] {
        assert_eq!(refused(&format!("fisp {option}")), ShapingError::Option(option.into()));
    }
    assert_eq!(refused("none gamma=1"), ShapingError::Option("gamma=1".into()));
    for (options, problem) in [
        ("min=0.9", "min=0.9 and max=0.9 contradict each other: `min` must be below `max`"),
        ("min=0.95", "min=0.95 and max=0.9"),
        ("release=0.7", "release=0.7 and min=0.6"),
    ] {
        let error = refused(&format!("fisp {options}")).to_string();
        assert!(error.contains(problem), "{error}");
    }
}

proptest! {
    /// With any events at any time: no panic, limits hold, and no Interest is lost without a count.
    #[test]
    fn random_events_keep_invariants(
        steps in prop::collection::vec((0u8..8, 0u32..30, 0u64..6_000_000_000), 1..300),
        seed in any::<u64>(),
    ) {
        let mut link = shaping_by("held_max=20 gamma=2.5", seed);
        let (mut now, mut asked, mut went) = (START, 0, 0);
        for (what, number, gap_ns) in steps {
            let uri = format!("/{}/{}/{number}", number % 3, number % 7);
            match what {
                0..=3 => {
                    asked += 1;
                    let lifetime_ms = gap_ns % 7000;
                    let interest = Interest::new(name(&uri)).can_be_prefix(what == 1);
                    let packet = Packet::from(interest.lifetime_ms(lifetime_ms).encode());
                    let received = receive(&mut link, now, packet);
                    went += u64::from(matches!(received, Received::Packet { .. }));
                }
                4 => link.set_socket_backlog(gap_ns % 200_000),
                5 => answer(&mut link, now, data(&format!("{uri}/more"), number as usize * 300)),
                6 => answer(&mut link, now, data(&uri, number as usize * 300)),
                // Also far in the future.
                _ => now = now.plus_ns(if number == 0 { u64::MAX / 1000 } else { gap_ns }),
            }
            if number % 2 == 0 {
                went += released(&mut link, now).len() as u64;
                drain(&mut link);
            }
        }
        link.set_socket_backlog(0);
        for _ in 0..20 {
            drain(&mut link);
            now = now.plus_ns(NS_PER_S);
            went += released(&mut link, now).len() as u64;
        }
        let drops = &link.counters().drops;
        prop_assert!(!link.has_delayed_interests());
        prop_assert_eq!(
            asked,
            went + drops[LinkDrop::ShapingFull] + drops[LinkDrop::ShapingExpired]
        );
    }
}

/// An abuser that has requested refused content is expected to get Data all the same.
#[test]
fn nacks_do_not_lower_expected_data() {
    let mut link = shaping("");
    let nack = LpHeader { nack: Some(NackReason::NoRoute), ..LpHeader::default() };
    for number in 0..200 {
        let uri = format!("/a/a/no{number}");
        assert!(passes(&mut link, at_ms(number), &uri));
        link.enqueue(at_ms(number), nack.clone(), asking(&uri)).unwrap();
        assert!(passes(&mut link, at_ms(number), "/a/a/open"));
        drain(&mut link);
    }
    let passed = (0..20_000).take_while(|i| passes(&mut link, at_ms(300), &format!("/a/a/{i}")));
    let count = passed.count();
    assert!(count < 100, "{count} pass, which request {} bytes", count * 8192);
}
