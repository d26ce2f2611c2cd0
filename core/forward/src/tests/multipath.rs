//! multipath: segments spread over next hops.

use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::String;
use alloc::vec;

use weir_base::HashKey;

use super::*;
use crate::shard::shard_of_packet;
use crate::strategy::{Strategy, StrategyError};

const NAME: &str = "/localhost/nfd/strategy/multipath/v=1";
const A: FaceId = FaceId(300);
const B: FaceId = FaceId(301);
const C: FaceId = FaceId(302);
const HOPS: [FaceId; 3] = [A, B, C];

fn add(fixture: &mut Fixture, parameters: &str) {
    for face in HOPS {
        let (scope, link_type) = (FaceScope::NonLocal, LinkType::PointToPoint);
        let attributes = FaceAttributes { link_type, ..FaceAttributes::point_to_point(scope) };
        fixture.command(Command::AddFace { face, attributes });
    }
    fixture.route("/f", &[(A, 0), (B, 0), (C, 0)]);
    fixture.strategy("/f", &format!("{NAME}{parameters}"));
}

fn fixture(parameters: &str) -> Fixture {
    let mut fixture = Fixture::new();
    add(&mut fixture, parameters);
    fixture
}

fn segment(number: u32) -> String {
    format!("/f/v=1/seg={number}")
}

/// Requests a segment and returns the one next hop that receives the Interest.
fn ask(fixture: &mut Fixture, number: u32, nonce: u32) -> FaceId {
    let out = fixture.ask(LOCAL, &Ask::new(&segment(number), nonce));
    let [(face, PacketKind::Interest)] = sent(&out)[..] else { panic!("{number}: {out:?}") };
    face
}

/// How many of these belong to each next hop.
fn counts(faces: &[FaceId]) -> [usize; 3] {
    HOPS.map(|hop| faces.iter().filter(|&&face| face == hop).count())
}

/// A consumer with a window and a retransmission timeout, and next hops that each answer after some
/// time.
struct Load {
    fixture: Fixture,
    window: usize,
    rtt_ms: fn(FaceId, u64) -> Option<u64>,
    rto_ms: Option<u64>,
    now_ms: u64,
    next: u32,
    nonce: u32,
    /// Outstanding segments and when they were requested.
    waiting: VecDeque<(u32, u64)>,
    answers: Vec<(u64, FaceId, u32)>,
    /// When and where first transmissions were sent.
    firsts: Vec<(u64, FaceId)>,
    done: usize,
}

impl Load {
    fn new(parameters: &str, window: usize, rtt_ms: fn(FaceId, u64) -> Option<u64>) -> Self {
        Self {
            fixture: fixture(parameters),
            window,
            rtt_ms,
            rto_ms: None,
            now_ms: 0,
            next: 0,
            nonce: 0,
            waiting: VecDeque::new(),
            answers: Vec::new(),
            firsts: Vec::new(),
            done: 0,
        }
    }

    fn send(&mut self, number: u32) -> Option<FaceId> {
        self.nonce += 1;
        let out = self.fixture.ask(LOCAL, &Ask::new(&segment(number), self.nonce));
        assert!(out.len() <= 1, "only one next hop at a time: {out:?}");
        let packet = out.first()?;
        assert_eq!(kind(packet), PacketKind::Interest);
        if let Some(rtt_ms) = (self.rtt_ms)(packet.face, self.now_ms) {
            self.answers.push((self.now_ms + rtt_ms, packet.face, number));
        }
        Some(packet.face)
    }

    fn run(&mut self, ms: u64) {
        for _ in 0..ms {
            self.fixture.pass_ms(1);
            self.now_ms += 1;
            let now_ms = self.now_ms;
            let (due, later) = self.answers.iter().partition(|answer| answer.0 <= now_ms);
            self.answers = later;
            let due: Vec<(u64, FaceId, u32)> = due;
            for (_, face, number) in due {
                self.done += self.fixture.answer(face, data(&segment(number), 0)).len();
                self.waiting.retain(|waiting| waiting.0 != number);
            }
            // Without retransmissions, a segment is given up when its lifetime ends.
            let patience_ms = self.rto_ms.unwrap_or(4_001);
            while self.waiting.front().is_some_and(|front| front.1 + patience_ms <= now_ms) {
                let Some((number, _)) = self.waiting.pop_front() else { break };
                if self.rto_ms.is_some() {
                    self.send(number);
                    self.waiting.push_back((number, now_ms));
                }
            }
            while self.waiting.len() < self.window {
                let face = self.send(self.next).expect("a new Interest is forwarded");
                self.firsts.push((now_ms, face));
                self.waiting.push_back((self.next, now_ms));
                self.next += 1;
            }
        }
    }

    /// The share of a next hop in the Interests since some time.
    fn share(&self, hop: FaceId, from_ms: u64) -> f64 {
        let all: Vec<_> = self.firsts.iter().filter(|first| first.0 >= from_ms).collect();
        all.iter().filter(|first| first.1 == hop).count() as f64 / all.len() as f64
    }
}

#[test]
fn next_hops_take_turns() {
    for is_answered in [false, true] {
        let mut fixture = fixture("");
        for number in 0..999 {
            let face = ask(&mut fixture, number, number);
            assert_eq!(face, HOPS[number as usize % 3], "{number}");
            if is_answered {
                assert_eq!(fixture.answer(face, data(&segment(number), 0)).len(), 1);
            }
        }
    }
}

/// For any number of Interests in flight, with next hops that are alike.
#[test]
fn turns_follow_weights() {
    let weights = format!("/weight~{}:5/weight~{}:3/weight~{}:2", A.0, B.0, C.0);
    for window in [1, 2, 3, 5, 10, 20, 50, 1000] {
        let mut fixture = fixture(&weights);
        let (mut faces, mut under_way) = (Vec::new(), VecDeque::new());
        for number in 0..1000 {
            let face = ask(&mut fixture, number, number);
            faces.push(face);
            under_way.push_back((face, number));
            if under_way.len() >= window {
                let (face, number) = under_way.pop_front().unwrap();
                fixture.answer(face, data(&segment(number), 0));
            }
        }
        assert_eq!(counts(&faces), [500, 300, 200], "window {window}");
    }
}

#[test]
fn owned_ranges_go_to_their_owners() {
    let parts = format!("/part~{}:100-199/part~{}:0-99/part~{}:300-300", B.0, C.0, A.0);
    let mut fixture = fixture(&parts);
    let faces: Vec<_> = (0..500).map(|number| ask(&mut fixture, number, number)).collect();
    assert_eq!(counts(&faces[..100]), [0, 0, 100]);
    assert_eq!(counts(&faces[100..200]), [0, 100, 0]);
    assert_eq!(faces[300], A);
    // The other hops have fewer in flight until A has as many.
    assert_eq!(counts(&faces[200..300]), [100, 0, 0]);
    assert_eq!(counts(&faces), [166, 167, 167]);
}

#[test]
fn range_of_closed_face_goes_to_others() {
    let mut fixture = fixture(&format!("/part~{}:0-99999", B.0));
    assert_eq!(ask(&mut fixture, 0, 0), B);
    fixture.command(Command::RemoveFace { face: B });
    let faces: Vec<_> = (1..101).map(|number| ask(&mut fixture, number, number)).collect();
    assert_eq!(counts(&faces), [50, 0, 50]);
    // The Interest does not return to its ingress.
    fixture.route("/f", &[(A, 0), (LOCAL, 0)]);
    fixture.strategy("/f", &format!("{NAME}/part~{}:0-99999", LOCAL.0));
    assert_eq!(ask(&mut fixture, 200, 200), A);
}

/// A router that prefetches its own range, over a path through the routers that request from it.
#[test]
fn owners_interest_takes_cheapest_path() {
    let mut fixture = fixture(&format!("/part~{0}:0-99/weight~{0}:0", B.0));
    fixture.route("/f", &[(A, 2), (B, 0), (C, 1)]);
    let keeper_asks = |fixture: &mut Fixture, number, nonce| {
        let out = fixture.ask(B, &Ask::new(&segment(number), nonce));
        out.iter().map(|packet| packet.face).collect::<Vec<_>>()
    };
    for number in 0..9 {
        assert_eq!(keeper_asks(&mut fixture, number, number), [C]);
    }
    // The owner receives the same Interest that it has sent, and neither waits for the other.
    assert_eq!(ask(&mut fixture, 50, 50), B);
    assert_eq!(keeper_asks(&mut fixture, 50, 51), [C]);
    let answered = fixture.answer(C, data(&segment(50), 0));
    let mut answered: Vec<_> = answered.iter().map(|packet| packet.face).collect();
    answered.sort_unstable();
    assert_eq!(answered, [LOCAL, B]);
    // No other hop is left, so it gets a Nack.
    for face in [A, C] {
        fixture.command(Command::RemoveFace { face });
    }
    let out = fixture.ask(B, &Ask::new(&segment(60), 60));
    assert_eq!(sent(&out), vec![(B, PacketKind::Nack)]);
}

#[test]
fn hop_of_weight_0_gets_only_its_ranges() {
    let mut fixture = fixture(&format!("/part~{0}:0-99/weight~{0}:0/weight~{1}:0", B.0, C.0));
    let faces: Vec<_> = (0..200).map(|number| ask(&mut fixture, number, number)).collect();
    assert_eq!(counts(&faces[..100]), [0, 100, 0]);
    assert_eq!(counts(&faces[100..]), [100, 0, 0]);
    fixture.command(Command::RemoveFace { face: A });
    assert_eq!(ask(&mut fixture, 300, 300), B, "there is no other hop");
}

/// As in best-route, so that all metadata of a name comes from one hop.
#[test]
fn name_without_segment_takes_cheapest_hop() {
    let mut fixture = fixture("");
    fixture.route("/f", &[(A, 2), (B, 1), (C, 3)]);
    for (at, name) in ["/f/32=metadata", "/f/v=1", "/f/v=2", "/f/v=1/seg=1/x"].iter().enumerate() {
        let out = fixture.ask(LOCAL, &Ask::new(name, at as u32).prefix());
        assert_eq!(sent(&out), vec![(B, PacketKind::Interest)], "{name}");
    }
}

#[test]
fn late_retransmission_goes_to_another_hop() {
    let mut fixture = fixture("");
    let first = ask(&mut fixture, 0, 0);
    fixture.pass_ms(5);
    assert!(fixture.ask(LOCAL, &Ask::new(&segment(0), 1)).is_empty(), "within 10 ms");
    fixture.pass_ms(6);
    let second = ask(&mut fixture, 0, 2);
    fixture.pass_ms(15);
    assert!(fixture.ask(LOCAL, &Ask::new(&segment(0), 3)).is_empty(), "within 20 ms");
    fixture.pass_ms(6);
    let third = ask(&mut fixture, 0, 4);
    assert_eq!(counts(&[first, second, third]), [1, 1, 1]);
    fixture.pass_ms(41);
    assert_eq!(ask(&mut fixture, 0, 5), first, "asked longest ago");
    assert_eq!(fixture.drops(DropReason::Suppressed), 2);
    assert_eq!(fixture.answer(second, data(&segment(0), 0)).len(), 1);
}

#[test]
fn refused_interest_goes_to_another_hop() {
    let mut fixture = fixture("");
    let mut asked = fixture.ask(LOCAL, &Ask::new(&segment(0), 7));
    for reason in [NackReason::NoRoute, NackReason::Congestion] {
        let OutPacket { face, packet, .. } = asked.pop().unwrap();
        asked = fixture.nack(face, reason, &packet);
        assert!(matches!(sent(&asked)[..], [(next, PacketKind::Interest)] if next != face));
    }
    let OutPacket { face, packet, .. } = asked.pop().unwrap();
    let out = fixture.nack(face, NackReason::NoRoute, &packet);
    assert_eq!(sent(&out), vec![(LOCAL, PacketKind::Nack)], "none is left");
    assert_eq!(out[0].header.nack, Some(NackReason::Congestion), "the least severe");
    assert_eq!(fixture.router.stats().pit_entries, 0);
    // As in best-route.
    let out = fixture.ask(LOCAL, &Ask::new("/f/v=1", 9));
    let out = fixture.nack(out[0].face, NackReason::NoRoute, &out[0].packet);
    assert_eq!(sent(&out), vec![(LOCAL, PacketKind::Nack)]);
}

/// A next hop that the sender has chosen is never replaced.
#[test]
fn chosen_next_hop_is_not_replaced() {
    let mut fixture = fixture("");
    let header = LpHeader { next_hop_face: Some(C.0), ..LpHeader::default() };
    let out = fixture.packet(LOCAL, header, Ask::new(&segment(0), 1).wire());
    assert_eq!(sent(&out), vec![(C, PacketKind::Interest)]);
    let out = fixture.nack(C, NackReason::NoRoute, &out[0].packet);
    assert_eq!(sent(&out), vec![(LOCAL, PacketKind::Nack)]);
}

#[test]
fn hop_that_refuses_all_is_skipped() {
    let mut fixture = fixture(&format!("/part~{}:1000-2000", B.0));
    let mut to_b = 0;
    for number in 0..600 {
        let mut out = fixture.ask(LOCAL, &Ask::new(&segment(number), number));
        if out[0].face == B {
            to_b += 1;
            out = fixture.nack(B, NackReason::NoRoute, &out[0].packet);
        }
        assert_ne!(out[0].face, B);
        fixture.answer(out[0].face, data(&segment(number), 0));
    }
    assert_eq!((to_b, passed_by(&fixture)), (3, 0));
    assert_ne!(ask(&mut fixture, 1000, 1000), B, "it does not get its range either");
    assert_eq!(passed_by(&fixture), 1);
    fixture.pass_ms(1000);
    // One Interest probes whether it has recovered.
    assert_eq!(ask(&mut fixture, 1001, 1001), B);
    assert_ne!(ask(&mut fixture, 1002, 1002), B);
    fixture.answer(B, data(&segment(1001), 0));
    assert_eq!(ask(&mut fixture, 1003, 1003), B);
    assert_eq!(ask(&mut fixture, 1004, 1004), B);
}

#[test]
fn slow_hop_gets_fewer_interests() {
    let rtt_ms = |face, _| Some(if face == B { 100 } else { 10 });
    let mut load = Load::new("", 30, rtt_ms);
    load.run(3_000);
    // A third of the Interests in flight, for ten times as long.
    let share = load.share(B, 1_000);
    assert!((0.03..0.07).contains(&share), "{share}");
    assert!((0.9..1.1).contains(&(load.share(A, 1_000) / load.share(C, 1_000))));
}

/// The consumer does not retransmit: segments requested from B are lost when their lifetime ends.
#[test]
fn silent_hop_loses_its_share() {
    let rtt_ms = |face, now_ms| (face != B || now_ms < 1_000).then_some(20);
    let mut load = Load::new("", 30, rtt_ms);
    load.run(1_000);
    let before = load.share(B, 0);
    assert!((0.3..0.36).contains(&before), "{before}");
    load.run(5_000);
    let done = load.done;
    load.run(10_000);
    // One Interest at a time, for 4 s.
    let lost = load.firsts.iter().filter(|first| first.0 >= 6_000 && first.1 == B).count();
    assert!((1..=4).contains(&lost), "{lost}");
    // The others continue with the rest of the window.
    let done = load.done - done;
    assert!(done >= 29 * 10_000 / 21, "{done}");
}

/// The consumer retransmits, and other hops answer, so no lifetime ends without an answer.
#[test]
fn overtaken_hop_loses_its_share() {
    let rtt_ms = |face, now_ms| (face != B || !(1_000..9_000).contains(&now_ms)).then_some(20);
    let mut load = Load::new("", 30, rtt_ms);
    load.rto_ms = Some(200);
    load.run(9_000);
    let lost = |from_ms| {
        load.firsts
            .iter()
            .filter(|first| (from_ms..9_000).contains(&first.0) && first.1 == B)
            .count()
    };
    assert!((1..=8).contains(&lost(1_250)), "{}", lost(1_250));
    // B has recovered.
    load.run(3_000);
    let share = load.share(B, 11_000);
    assert!((0.3..0.36).contains(&share), "{share}");
}

/// A router in which B owns a range, with a known round trip to the next hop of 5 ms.
fn with_owner() -> Fixture {
    let mut fixture = fixture(&format!("/part~{}:0-999", B.0));
    for number in 0..20 {
        assert_eq!(ask(&mut fixture, number, number), B);
        fixture.pass_ms(5);
        assert_eq!(fixture.answer(B, data(&segment(number), 0)).len(), 1);
    }
    fixture
}

fn passed_by(fixture: &Fixture) -> u64 {
    fixture.router.stats().parts_passed_by
}

/// Regression: when an owner stalled for a moment, retransmissions moved all its segments to the
/// producer. After three of them, it was skipped for a second.
#[test]
fn waits_for_slow_owner() {
    let mut fixture = with_owner();
    let mut nonces = 100..;
    for number in 20..40 {
        assert_eq!(ask(&mut fixture, number, nonces.next().unwrap()), B);
    }
    for _ in 0..3 {
        fixture.pass_ms(251);
        for number in 20..40 {
            assert_eq!(ask(&mut fixture, number, nonces.next().unwrap()), B);
        }
    }
    assert_eq!(ask(&mut fixture, 40, nonces.next().unwrap()), B, "it is not skipped either");
    for number in 20..41 {
        assert_eq!(fixture.answer(B, data(&segment(number), 0)).len(), 1);
    }
    assert_eq!(passed_by(&fixture), 0);
}

/// Some answers of the owner are lost and others arrive, so it is up.
#[test]
fn retries_owner_after_lost_answers() {
    let mut fixture = with_owner();
    let mut nonce = 100;
    for number in 20..220 {
        nonce += 1;
        assert_eq!(ask(&mut fixture, number, nonce), B);
        if number % 2 == 1 {
            fixture.answer(B, data(&segment(number), 0));
            continue;
        }
        fixture.pass_ms(30);
        nonce += 1;
        assert_eq!(ask(&mut fixture, number, nonce), B);
        assert_eq!(fixture.answer(B, data(&segment(number), 0)).len(), 1);
    }
    assert_eq!(passed_by(&fixture), 0);
}

#[test]
fn skips_owner_silent_for_a_second() {
    let mut fixture = with_owner();
    for number in 20..40 {
        assert_eq!(ask(&mut fixture, number, number), B);
    }
    fixture.pass_ms(1001);
    assert_eq!(ask(&mut fixture, 40, 40), B, "no retransmission has come yet");
    fixture.pass_ms(11);
    let mut others =
        vec![ask(&mut fixture, 20, 120), ask(&mut fixture, 41, 41), ask(&mut fixture, 40, 140)];
    others.extend((21..39).map(|number| ask(&mut fixture, number, 100 + number)));
    assert_eq!(counts(&others)[1], 0, "{others:?}");
    assert_eq!(passed_by(&fixture), 21);
    for (number, face) in [20, 41, 40].into_iter().chain(21..39).zip(others) {
        assert_eq!(fixture.answer(face, data(&segment(number), 0)).len(), 1);
    }
    // Only 39 is in flight there. A second after it has ended too, one Interest probes the owner,
    // and does not wait for it again.
    fixture.pass_ms(3000);
    assert_ne!(ask(&mut fixture, 49, 49), B);
    fixture.pass_ms(1000);
    assert_eq!(ask(&mut fixture, 50, 50), B);
    assert_ne!(ask(&mut fixture, 51, 51), B);
    fixture.pass_ms(11);
    assert_ne!(ask(&mut fixture, 50, 150), B);
    // Any answer ends this.
    fixture.pass_ms(4000);
    fixture.pass_ms(1000);
    assert_eq!(ask(&mut fixture, 52, 52), B);
    fixture.answer(B, data(&segment(52), 0));
    assert_eq!([53, 54].map(|number| ask(&mut fixture, number, number)), [B, B]);
}

/// Regression: the second began with the last transmission to a dead owner. A consumer with one
/// Interest in flight, whose timeout was as long by then, tried the owner for each segment. It then
/// never had a sample to shorten its timeout.
#[test]
fn probes_dead_owner_once_a_second() {
    let mut fixture = with_owner();
    let (mut nonce, mut rto_ms, mut took_ms) = (1000, 200, 0);
    for number in 20..920 {
        let mut is_first = true;
        loop {
            nonce += 1;
            let face = ask(&mut fixture, number, nonce);
            if face != B {
                fixture.pass_ms(5);
                took_ms += 5;
                assert_eq!(fixture.answer(face, data(&segment(number), 0)).len(), 1);
                break;
            }
            fixture.pass_ms(rto_ms);
            took_ms += rto_ms;
            assert!(took_ms < 20_000, "segment {number}");
            is_first = false;
            // RFC 6298, 5.5, and not longer than the Interest's lifetime.
            rto_ms = (2 * rto_ms).min(4_000);
        }
        if is_first {
            rto_ms = 200;
        }
    }
    // The consumer waits for the owner once. Then it is probed for a fifth of a second after each
    // second.
    assert!(took_ms < 900 * 5 * 6 / 5 + 3_000, "{took_ms}");
    assert_eq!(passed_by(&fixture), 900);
}

/// The owner does not have this segment. After a second, this one alone is requested from others.
#[test]
fn asks_others_after_a_second() {
    let mut fixture = with_owner();
    assert_eq!(ask(&mut fixture, 500, 500), B);
    for number in 20..30 {
        fixture.pass_ms(100);
        assert_eq!(ask(&mut fixture, number, number), B);
        fixture.answer(B, data(&segment(number), 0));
    }
    assert_eq!(ask(&mut fixture, 500, 501), B);
    fixture.pass_ms(21);
    assert_eq!(ask(&mut fixture, 30, 30), B);
    assert_ne!(ask(&mut fixture, 500, 502), B);
    assert_eq!(ask(&mut fixture, 31, 31), B);
    assert_eq!(passed_by(&fixture), 1);
}

/// Requests a segment every quarter of a second until it arrives. The owner answers only even
/// numbers. Returns the number of retransmissions. After each quarter, the owner also answers one
/// segment of `meanwhile`.
fn fetch_even(
    fixture: &mut Fixture,
    number: u32,
    nonce: &mut u32,
    meanwhile: &mut dyn FnMut(&mut Fixture),
) -> u32 {
    for asked in 0.. {
        *nonce += 1;
        let face = ask(fixture, number, *nonce);
        if face != B || number.is_multiple_of(2) {
            fixture.pass_ms(5);
            assert_eq!(fixture.answer(face, data(&segment(number), 0)).len(), 1);
            return asked;
        }
        fixture.pass_ms(251);
        meanwhile(fixture);
    }
    unreachable!("other hops are asked in the end")
}

/// Regression: answered segments compensated for all unanswered ones, so each missing segment cost
/// a second.
#[test]
fn waits_three_times_for_partial_owner() {
    // One segment after another.
    let (mut fixture, mut nonce) = (with_owner(), 10_000);
    let asked = (20..900).map(|number| fetch_even(&mut fixture, number, &mut nonce, &mut |_| {}));
    let asked: Vec<u32> = asked.collect();
    assert_eq!(asked.iter().filter(|&&asked| asked > 1).count(), 3, "{asked:?}");

    // Other segments arrive meanwhile, so the owner is never silent.
    let (mut fixture, mut nonce, mut others) = (with_owner(), 10_000, (500..).step_by(2));
    let mut meanwhile = |fixture: &mut Fixture| {
        let number = others.next().unwrap();
        assert_eq!(ask(fixture, number, number), B);
        assert_eq!(fixture.answer(B, data(&segment(number), 0)).len(), 1);
    };
    let mut fetch = |number| fetch_even(&mut fixture, number, &mut nonce, &mut meanwhile);
    let asked: Vec<u32> = (21..61).step_by(2).map(&mut fetch).collect();
    assert_eq!(asked[..4], [4, 4, 4, 1]);
    assert!(asked[4..].iter().all(|&asked| asked == 1), "{asked:?}");
    // It is tried first all the same, and its answers compensate for that.
    let brought = (62..500).step_by(2).chain((700..800).step_by(2));
    assert!(brought.map(&mut fetch).all(|asked| asked == 0));
    assert_eq!([601, 603].map(fetch), [4, 1]);
    assert_eq!(passed_by(&fixture), 22);
}

/// An owner cannot extend the waiting time by late answers.
#[test]
fn waits_at_most_two_seconds_for_owner() {
    let mut fixture = fixture(&format!("/part~{}:0-999", B.0));
    for number in 0..20 {
        assert_eq!(ask(&mut fixture, number, number), B);
        fixture.pass_ms(3500);
        assert_eq!(fixture.answer(B, data(&segment(number), 0)).len(), 1);
    }
    assert_eq!(ask(&mut fixture, 20, 20), B);
    fixture.pass_ms(1990);
    assert_eq!(ask(&mut fixture, 20, 21), B);
    fixture.pass_ms(30);
    assert_ne!(ask(&mut fixture, 20, 22), B);
}

/// A new or recovered hop makes up for at most eight turns.
#[test]
fn new_hop_does_not_get_all_turns() {
    let mut fixture = fixture("");
    fixture.route("/f", &[(A, 0), (B, 0)]);
    let mut faces = Vec::new();
    for number in 0..400 {
        if number == 300 {
            fixture.route("/f", &[(A, 0), (B, 0), (C, 0)]);
        }
        faces.push(ask(&mut fixture, number, number));
        fixture.answer(faces[number as usize], data(&segment(number), 0));
    }
    assert_eq!(counts(&faces[300..]), [31, 30, 39]);
}

/// Turns are counted for the whole life of a router.
#[test]
fn turn_counter_wraps() {
    let mut fixture = fixture("");
    ask(&mut fixture, 0, 0);
    for measured in 0..3 {
        fixture.router.tables.measurements.find_mut(measured).unwrap().strategy_state =
            (1 << 62) - 5;
    }
    let faces: Vec<_> = (1..31).map(|number| ask(&mut fixture, number, number)).collect();
    assert_eq!(counts(&faces), [10, 10, 10]);
    assert!(fixture.router.tables.measurements.find(0).unwrap().strategy_state < 1 << 40);
}

/// Each shard counts its own turns and Interests in flight, and spreads its own segments.
#[test]
fn two_shards_spread_like_one() {
    let key = HashKey::new([3, 4]);
    let parameters = format!("/weight~{}:2/part~{}:2000-2999", A.0, C.0);
    let mut shards: Vec<Fixture> = (0..2)
        .map(|shard| {
            let config =
                RouterConfig { shard, shard_count: 2, hash_key: key, ..Default::default() };
            let mut fixture = Fixture::with_config(config);
            add(&mut fixture, &parameters);
            fixture
        })
        .collect();
    let mut one = fixture(&parameters);
    let mut faces = [Vec::new(), Vec::new()];
    let mut of_one = Vec::new();
    for number in 0..3000 {
        let wire = Ask::new(&segment(number), number).wire();
        let shard = shard_of_packet(&key, &LpHeader::default(), &wire, 2).unwrap();
        faces[usize::from(shard)]
            .push((number, ask(&mut shards[usize::from(shard)], number, number)));
        of_one.push((number, ask(&mut one, number, number)));
    }
    let spread = |faces: &[(u32, FaceId)]| {
        let (free, part): (Vec<_>, Vec<_>) = faces.iter().partition(|(number, _)| *number < 2000);
        assert!(part.iter().all(|(_, face)| *face == C));
        counts(&free.iter().map(|(_, face)| *face).collect::<Vec<_>>())
    };
    assert_eq!(spread(&of_one), [1000, 500, 500]);
    let [left, right] = [spread(&faces[0]), spread(&faces[1])];
    assert!(left.iter().chain(&right).all(|&count| count > 50), "{left:?} {right:?}");
    for hop in 0..3 {
        let sum = left[hop] + right[hop];
        assert!(sum.abs_diff([1000, 500, 500][hop]) <= 2, "{left:?} {right:?}");
    }
}

#[test]
fn parameters_are_checked() {
    let parse = |parameters: &str| {
        let name: Name = format!("{NAME}{parameters}").parse().unwrap();
        Strategy::from_name(name.as_view())
    };
    let good = "/weight~258:1000/part~259:0-7/retx-suppression-initial~20/part~258:8-8";
    let strategy = parse(good).unwrap();
    let name: Name = format!("{NAME}{good}").parse().unwrap();
    assert_eq!(*strategy.name(), name);
    assert_ne!(strategy, parse("").unwrap());
    for (bad, refused, why) in [
        ("/part~258:5-4", "part~258:5-4", "before"),
        ("/part~258:0-9/part~258:20-29/part~259:9-19", "part~259:9-19", "overlaps"),
        ("/part~258:0-9/part~259:0-9", "part~259:0-9", "overlaps"),
        ("/part~258:+1-4", "part~258:+1-4", "part~<face>"),
        ("/part~258:1", "part~258:1", "part~<face>"),
        ("/part~x:1-2", "part~x:1-2", "part~<face>"),
        ("/part~258:1-18446744073709551616", "part~258:1-18446744073709551616", "part~<face>"),
        ("/weight~258:1001", "weight~258:1001", "0 to 1000"),
        ("/weight~258", "weight~258", "weight~<face>"),
        ("/weight~258:2/weight~258:3", "weight~258:3", "already"),
        ("/colour~3", "colour~3", "no such"),
        ("/part", "part", "<key>~<value>"),
    ] {
        let Err(StrategyError::BadParameter(text, reason)) = parse(bad) else { panic!("{bad}") };
        assert_eq!(text, refused);
        assert!(reason.contains(why), "{bad}: {reason}");
    }
    let parts = |count: u32| (0..count).map(|at| format!("/part~1:{at}-{at}")).collect::<String>();
    assert!(parse(&parts(256)).is_ok());
    assert!(parse(&parts(257)).is_err());
    let weights = |count: u32| (0..count).map(|at| format!("/weight~{at}:2")).collect::<String>();
    assert!(parse(&weights(256)).is_ok());
    assert!(parse(&weights(257)).is_err());
    for other in ["best-route", "multicast", "lowest-rtt"] {
        let name = format!("/localhost/nfd/strategy/{other}/v=1/part~258:0-9");
        let name: Name = name.parse().unwrap();
        assert!(matches!(
            Strategy::from_name(name.as_view()),
            Err(StrategyError::BadParameter(..))
        ));
    }
}
