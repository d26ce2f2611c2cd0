//! Tests of sequences, readers and windows, step by step.

extern crate std;

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use weir_base::{Instant, NS_PER_MS, NS_PER_S, RttConfig};
use weir_security::{DigestVerifier, Verifier};
use weir_wire::{Component, Data, InterestView, LpHeader, NackReason, Name};

use super::path::Path;
use super::*;
use crate::congestion::{
    Allowance, Congestion, CongestionControl, Controller, LossDetection, Marks, PathRules, Sample,
    Timeout,
};

mod discovery;
mod holdings;
mod labels;
mod paths;
mod probe;
mod rules;
mod streams;

const PATH: PathId = PathId(3);

/// A consumer with its inputs and outputs.
struct Fixture {
    consumer: Consumer,
    inputs: Vec<ConsumerInput>,
    out: ConsumerOutbox,
    now: Instant,
    /// The Interests of the last step, and their paths.
    requested: Vec<Vec<u8>>,
    out_paths: Vec<PathId>,
}

impl Fixture {
    fn new(target: Target, config: ConsumerConfig) -> Self {
        let consumer = Consumer::new(target, config, 1, Instant::ZERO);
        let inputs = vec![ConsumerInput::AddPath { path: PATH, window: None, is_local: false }];
        let (out, now, asked) = (ConsumerOutbox::default(), Instant::ZERO, Vec::new());
        let mut fixture =
            Self { consumer, inputs, out, now, requested: asked, out_paths: Vec::new() };
        fixture.step();
        fixture
    }

    /// Hands over the inputs. Returns the names requested.
    fn step(&mut self) -> Vec<Name> {
        self.consumer.handle(self.now, &mut self.inputs, &mut self.out);
        self.consumer.assert_consistent();
        self.requested = self.out.interests.iter().map(|(_, wire)| wire.to_vec()).collect();
        self.out_paths = self.out.interests.iter().map(|(path, _)| path).collect();
        self.out.interests.clear();
        let names = self.requested.iter().map(|wire| InterestView::decode(wire).unwrap().name);
        names.map(|name| name.to_name()).collect()
    }

    /// The single Interest of the last step.
    fn last_interest(&self) -> InterestView<'_> {
        assert_eq!(self.requested.len(), 1);
        InterestView::decode(&self.requested[0]).unwrap()
    }

    fn nack(&mut self, interest: &[u8], reason: NackReason) -> Vec<Name> {
        let header = LpHeader { nack: Some(reason), ..LpHeader::default() };
        self.input(ConsumerInput::Packet { path: PATH, header, packet: interest.into() })
    }

    fn input(&mut self, input: ConsumerInput) -> Vec<Name> {
        self.inputs.push(input);
        self.step()
    }

    fn append(&mut self, range: u64, name: &str, segments: Option<Range<u64>>) -> Vec<Name> {
        let range = RangeId(range);
        self.input(ConsumerInput::Append { range, name: name.parse().unwrap(), segments })
    }

    fn data(&mut self, name: &Name) -> Vec<Name> {
        self.data_with(name, &[1, 2, 3])
    }

    fn data_with(&mut self, name: &Name, content: &[u8]) -> Vec<Name> {
        let packet = Data::new(name.clone()).content(content).encode_with_digest().into();
        self.input(ConsumerInput::Packet { path: PATH, header: LpHeader::default(), packet })
    }

    /// Gives the same verdict on all pending verifications.
    fn verify(&mut self, is_good: bool) -> Vec<Name> {
        for op in self.out.verify.drain(..) {
            let bad = || Verdict::Bad { reason: "as you like it".into(), digest: None };
            let verdict = if is_good { Verdict::Good } else { bad() };
            self.inputs.push(ConsumerInput::Verified { op: op.op, verdict });
        }
        self.step()
    }

    fn events(&mut self) -> Vec<std::string::String> {
        self.out.events.drain(..).map(|event| std::format!("{event:?}")).collect()
    }
}

fn sequence(window: u32) -> Fixture {
    let config = ConsumerConfig {
        controller: Controller::FIXED,
        window: Some(window),
        verification: Verification::ByDriver,
        trace: true,
        ..ConsumerConfig::default()
    };
    Fixture::new(Target::Sequence, config)
}

fn digest_verifier() -> Arc<dyn Verifier> {
    Arc::new(DigestVerifier)
}

fn segment(name: &str, number: u64) -> Name {
    let mut name: Name = name.parse().unwrap();
    name.append_segment(number).clone()
}

#[test]
fn sequence_shares_one_window() {
    let mut fixture = sequence(4);
    assert_eq!(fixture.events(), ["NeedsMore"]);
    assert_eq!(fixture.append(7, "/a", Some(5..8)).len(), 3);
    assert_eq!(fixture.events(), ["NeedsMore"]);
    assert_eq!(fixture.append(8, "/b", Some(0..2)), [segment("/b", 0)]);
    assert!(fixture.events().is_empty(), "the window is full");
    assert_eq!(fixture.data(&segment("/a", 6)), [segment("/b", 1)]);
    for number in [5, 7] {
        fixture.data(&segment("/a", number));
    }
    assert_eq!(fixture.events(), ["NeedsMore"]);
    fixture.verify(true);
    assert_eq!(fixture.events(), ["RangeDone { range: RangeId(7) }"]);
    fixture.input(ConsumerInput::Close);
    fixture.data(&segment("/b", 0));
    fixture.data(&segment("/b", 1));
    fixture.verify(true);
    assert_eq!(fixture.events(), ["RangeDone { range: RangeId(8) }", "Done"]);
    assert!(fixture.consumer.has_ended());
}

#[test]
fn data_answers_all_segments_of_its_name() {
    let mut fixture = sequence(8);
    assert_eq!(fixture.append(1, "/a", Some(3..4)), [segment("/a", 3)]);
    assert_eq!(fixture.append(2, "/a", Some(3..4)), [segment("/a", 3)]);
    assert_eq!(fixture.append(3, "/a", None), ["/a".parse().unwrap()]);
    fixture.out.trace.clear();
    fixture.data(&segment("/a", 3));
    assert_eq!(fixture.out.verify.len(), 2);
    let answered: Vec<u64> = fixture.out.trace.iter().map(|event| event.range.0).collect();
    assert_eq!(answered.len(), 2);
    assert!(answered.contains(&1) && answered.contains(&2));
    fixture.data(&"/a".parse().unwrap());
    fixture.events();
    fixture.verify(true);
    assert_eq!(fixture.events().len(), 3);
    fixture.data(&segment("/a", 3));
    assert_eq!(fixture.consumer.stats().unwanted, 1);
}

/// Regression: unrequested segments of a failed range were skipped one by one, which took minutes
/// for a hundred million of them.
#[test]
fn cancelled_range_leaves_no_state() {
    let mut fixture = sequence(100);
    fixture.append(1, "/a", Some(0..1 << 60));
    fixture.append(2, "/b", Some(5..7));
    fixture.append(3, "/c", None);
    let mut asked: Vec<Name> = Vec::new();
    while asked.iter().all(|name| name.as_view().first().unwrap().value == b"a") {
        fixture.now = fixture.consumer.next_wakeup().unwrap();
        asked = fixture.step();
    }
    assert_eq!(asked, [segment("/b", 5), segment("/b", 6), "/c".parse().unwrap()]);
    asked.iter().for_each(|name| drop(fixture.data(name)));
    fixture.verify(true);
    let events = fixture.events();
    let count_of = |kind| events.iter().filter(|event| event.starts_with(kind)).count();
    assert_eq!((count_of("RangeFailed"), count_of("RangeDone")), (1, 2), "{events:?}");
}

#[test]
fn cancelled_range_leaves_other_ranges() {
    let mut fixture = sequence(3);
    fixture.append(1, "/a", Some(0..100));
    fixture.append(2, "/b", Some(0..2));
    fixture.data(&segment("/a", 1));
    fixture.events();
    // Every copy is bad.
    for _ in 0..4 {
        fixture.verify(false);
        fixture.now = fixture.now.plus_ns(NS_PER_MS);
        fixture.data(&segment("/a", 1));
    }
    let asked = fixture.verify(false);
    assert_eq!(asked, [segment("/b", 0), segment("/b", 1)]);
    let events = fixture.events();
    assert!(events.iter().any(|event| event.starts_with("RangeFailed")), "{events:?}");
    fixture.data(&segment("/a", 2));
    assert!(fixture.out.verify.is_empty(), "it is not wanted any more");
    fixture.data(&segment("/b", 0));
    fixture.data(&segment("/b", 1));
    fixture.input(ConsumerInput::Close);
    fixture.verify(true);
    let events = fixture.events();
    assert!(events.contains(&"RangeDone { range: RangeId(2) }".into()), "{events:?}");
    assert!(fixture.consumer.has_ended(), "{events:?}");
}

#[test]
fn unreliable_consumer_skips_lost_segments() {
    let config = ConsumerConfig {
        controller: Controller::FIXED,
        window: Some(10),
        verification: Verification::Off,
        is_reliable: false,
        ..ConsumerConfig::default()
    };
    let versioned: Name = "/live".parse().unwrap();
    let target = Target::Range { versioned, segments: 5..15 };
    let mut fixture = Fixture::new(target, ConsumerConfig { look_for_manifest: false, ..config });
    let (have, reader) = (SegmentSet::new(), ReaderMode::InOrder);
    fixture.inputs.push(ConsumerInput::Read { segments: 100 });
    assert_eq!(fixture.input(ConsumerInput::Start { have, reader }).len(), 10);
    for number in (5..15).filter(|number| *number != 8) {
        fixture.data(&segment("/live", number));
    }
    assert_eq!(fixture.out.deliveries.len(), 3, "the rest waits for 8");
    fixture.now = fixture.now.plus_ns(10 * NS_PER_S);
    assert!(fixture.step().is_empty(), "it is requested once");
    let numbers: Vec<PacketId> = fixture.out.deliveries.iter().map(|segment| segment.id).collect();
    let expected: Vec<PacketId> =
        (5..15).filter(|number| *number != 8).map(PacketId::Segment).collect();
    assert_eq!(numbers, expected);
    assert!(fixture.consumer.has_ended());
}

#[test]
fn reader_limits_waiting_segments() {
    let config = ConsumerConfig {
        controller: Controller::FIXED,
        window: Some(100),
        verification: Verification::ByDriver,
        look_for_manifest: false,
        reader_segments_max: 10,
        ..ConsumerConfig::default()
    };
    let versioned: Name = "/a".parse().unwrap();
    let mut fixture = Fixture::new(Target::Range { versioned, segments: 0..u64::MAX }, config);
    let (have, reader) = (SegmentSet::new(), ReaderMode::InOrder);
    let mut asked = fixture.input(ConsumerInput::Start { have, reader });
    let mut delivered = 0;
    for round in 0..20 {
        assert_eq!(asked.len(), if round == 0 { 10 } else { 4 });
        for name in asked.iter().rev() {
            assert!(fixture.data(name).is_empty());
        }
        assert!(fixture.verify(true).is_empty(), "the reader has not taken any");
        asked = fixture.input(ConsumerInput::Read { segments: 4 });
        for delivery in fixture.out.deliveries.drain(..) {
            assert_eq!(delivery.id, PacketId::Segment(delivered));
            assert!(delivery.is_verified);
            delivered += 1;
        }
        assert_eq!(delivered, 4 * (round + 1));
    }
}

#[test]
fn requests_only_wanted_segments() {
    let versioned: Name = "/a/54=%01".parse().unwrap();
    for (segments, expected) in [(7..12, 7..12), (17..99, 17..20), (20..99, 0..0), (5..5, 0..0)] {
        let metadata = Metadata {
            last_segment: Some(19),
            segment_size: Some(3),
            ..Metadata::new(versioned.clone())
        };
        let config =
            ConsumerConfig { verification: Verification::ByDriver, ..ConsumerConfig::default() };
        let mut fixture = Fixture::new(Target::KnownMetadata { metadata }, config);
        assert!(fixture.requested.is_empty(), "the version is known");
        fixture.inputs.push(ConsumerInput::Narrow { segments });
        fixture.inputs.push(ConsumerInput::Read { segments: 100 });
        let (have, reader) = (SegmentSet::new(), ReaderMode::InOrder);
        let mut asked = fixture.input(ConsumerInput::Start { have, reader });
        let mut all = Vec::new();
        while !asked.is_empty() {
            all.extend(asked.iter().cloned());
            let more: Vec<Name> = asked.iter().flat_map(|name| fixture.data(name)).collect();
            asked = more.into_iter().chain(fixture.verify(true)).collect();
        }
        let wanted: Vec<Name> = expected.map(|at| segment("/a/54=%01", at)).collect();
        assert_eq!(all, wanted);
        assert_eq!(fixture.out.deliveries.len(), wanted.len());
        assert!(fixture.consumer.has_ended());
        assert!(fixture.consumer.received().is_empty(), "it is not the object");
    }
}

#[test]
fn counts_marks_by_round() {
    /// Keeps the last sample of each round.
    struct Counts(Arc<std::sync::Mutex<RecordedCalls>>);

    #[derive(Default)]
    struct RecordedCalls {
        rounds: BTreeMap<u64, (u32, u32)>,
        meanings: Vec<(bool, bool)>,
    }

    impl CongestionControl for Counts {
        fn on_data(&mut self, sample: &Sample) {
            let round = sample.round;
            let mut seen = self.0.lock().unwrap();
            seen.rounds.insert(round.number, (round.answers, round.marks));
            if sample.mark.is_set() {
                seen.meanings.push((sample.mark.is_sparse(), sample.mark.is_proportional()));
            }
        }

        fn on_congestion(&mut self, _now: Instant, _cause: Congestion) {}

        fn on_timeout(&mut self, _now: Instant) {}

        fn allowance(&self) -> Allowance {
            Allowance::window(4.0)
        }
    }

    let seen = Arc::default();
    let mut fixture = sequence(1);
    fixture.input(ConsumerInput::RemovePath { path: PATH });
    let control = Box::new(Counts(Arc::clone(&seen)));
    fixture.consumer.transfer.scoreboard.push_path(Path::new(PATH, RttConfig::default(), control));
    fixture.append(1, "/a", Some(0..12));
    for number in 0..12 {
        fixture.now = fixture.now.plus_ns(NS_PER_MS);
        // Marks of NFD, proportional marks, both, and unknown ones.
        let congestion_mark = if number % 3 == 0 { [1, 2, 3, 8][number as usize / 3] } else { 0 };
        let header = LpHeader { congestion_mark, ..LpHeader::default() };
        let packet = Data::new(segment("/a", number)).encode_with_digest().into();
        fixture.input(ConsumerInput::Packet { path: PATH, header, packet });
    }
    let RecordedCalls { rounds, meanings } = &*seen.lock().unwrap();
    assert_eq!(rounds.values().copied().collect::<Vec<_>>(), [(4, 2), (4, 1), (4, 1)]);
    assert_eq!(meanings[..], [(true, false), (false, true), (true, true), (true, false)]);
}

#[test]
fn rerequests_missing_part_of_chunk() {
    let config = ConsumerConfig {
        controller: Controller::FIXED,
        window: Some(1),
        verification: Verification::Off,
        chunk_segments: 70,
        ..ConsumerConfig::default()
    };
    let mut fixture = Fixture::new(Target::Sequence, config);
    let chunk = |range: Range<u64>| range.map(|number| segment("/a", number)).collect::<Vec<_>>();
    assert_eq!(fixture.append(1, "/a", Some(0..100)), chunk(0..70));
    for number in (0..70).filter(|number| ![3, 64, 69].contains(number)) {
        assert!(fixture.data(&segment("/a", number)).is_empty());
    }
    assert_eq!(fixture.consumer.stats().outstanding, 3);
    fixture.now = fixture.consumer.next_wakeup().unwrap();
    let missing = [3, 64, 69].map(|number| segment("/a", number));
    assert_eq!(fixture.step(), missing);
    assert_eq!(fixture.consumer.stats().retransmissions, 3);
    assert!(fixture.data(&missing[2]).is_empty());
    assert!(fixture.data(&missing[0]).is_empty());
    // The last chunk has the remaining segments.
    assert_eq!(fixture.data(&missing[1]), chunk(70..100));
    fixture.consumer.assert_consistent();
}

/// Every Data is marked. The window is halved once a round trip, which grows with the queue, or
/// once per configured interval (paper nb-cache, V-C.4: 50 ms).
#[test]
fn halves_window_once_per_interval() {
    let decreases = |decrease_interval_ns| {
        let config = ConsumerConfig {
            controller: Controller::AIMD,
            window: Some(64),
            verification: Verification::Off,
            decrease_interval_ns,
            ..ConsumerConfig::default()
        };
        let mut fixture = Fixture::new(Target::Sequence, config);
        fixture.append(1, "/a", Some(0..64));
        for number in 0..60 {
            fixture.now = fixture.now.plus_ns(NS_PER_MS);
            let header = LpHeader { congestion_mark: 1, ..LpHeader::default() };
            let packet = Data::new(segment("/a", number)).encode_with_digest().into();
            fixture.input(ConsumerInput::Packet { path: PATH, header, packet });
        }
        fixture.consumer.stats().decreases
    };
    assert_eq!(decreases(None), 1, "all were sent in one round trip");
    assert_eq!(decreases(Some(50 * NS_PER_MS)), 2, "after 1 and 51 ms");
    assert_eq!(decreases(Some(20 * NS_PER_MS)), 3, "after 1, 21 and 41 ms");
}

/// The interval also applies to timeouts, and to those of Interests sent since the last decrease.
#[test]
fn resets_window_once_per_interval() {
    let decreases = |decrease_interval_ns| {
        let config = ConsumerConfig {
            controller: Controller::AIMD,
            window: Some(4),
            verification: Verification::Off,
            decrease_interval_ns,
            ..ConsumerConfig::default()
        };
        let mut fixture = Fixture::new(Target::Sequence, config);
        fixture.append(1, "/a", Some(0..4));
        // Sent at 0, 1, 3 and 7 s, after the timeout doubled to 1, 2, 4 s; then every 4 s, the
        // lifetime.
        while fixture.now < Instant::from_ns(16 * NS_PER_S) {
            fixture.now = fixture.consumer.next_wakeup().unwrap();
            fixture.step();
        }
        fixture.consumer.stats().decreases
    };
    let by_round = decreases(None);
    let by_interval = decreases(Some(9 * NS_PER_S));
    assert!(by_round > 3, "{by_round}");
    assert_eq!(by_interval, 2, "the first, and after 9 s");
}

/// Answers that overtake others by far are no losses where only lifetimes count.
#[test]
fn interest_may_wait_for_its_lifetime() {
    let sent_again = |waits_for_lifetime| {
        let config = ConsumerConfig {
            controller: Controller::FIXED,
            window: Some(10),
            verification: Verification::Off,
            waits_for_lifetime,
            ..ConsumerConfig::default()
        };
        let mut fixture = Fixture::new(Target::Sequence, config);
        fixture.append(1, "/a", Some(0..10));
        for number in 1..10 {
            fixture.now = fixture.now.plus_ns(NS_PER_MS);
            fixture.data(&segment("/a", number));
        }
        fixture.now = Instant::from_ns(3_999 * NS_PER_MS);
        let early = fixture.step().len();
        fixture.now = Instant::from_ns(4_000 * NS_PER_MS);
        (early, fixture.step().len())
    };
    assert_eq!(sent_again(false).0, 1);
    assert_eq!(sent_again(true), (0, 1), "after 4 s");
}

/// Two thirds of the content is in a near store. The rest waits in a queue behind it that grows to
/// a hundred times the near round trip. No Interest may be declared lost.
#[test]
fn near_store_causes_no_false_losses() {
    let config = ConsumerConfig {
        controller: Controller::FIXED,
        window: Some(256),
        verification: Verification::Off,
        ..ConsumerConfig::default()
    };
    let mut fixture = Fixture::new(Target::Sequence, config);
    let mut answers = BTreeMap::new();
    let mut behind = Instant::ZERO;
    let mut asked = fixture.append(1, "/a", Some(0..20_000));
    loop {
        for name in asked {
            let number = name.as_view().last().unwrap().as_segment().unwrap();
            let at = if number % 3 != 0 {
                fixture.now.plus_ns(NS_PER_MS)
            } else {
                behind = behind.max(fixture.now.plus_ns(4 * NS_PER_MS)).plus_ns(NS_PER_MS / 2);
                behind
            };
            answers.insert((at, number), name);
        }
        let Some(((at, _), name)) = answers.pop_first() else { break };
        fixture.now = at;
        asked = fixture.data(&name);
    }
    let stats = fixture.consumer.stats();
    assert_eq!((stats.delivered, stats.retransmissions), (20_000, 0), "{stats:?}");
}

/// A forged last segment number neither shortens the object, nor makes segments that were received
/// be requested and delivered again.
#[test]
fn forged_last_segment_does_not_end_fetch() {
    let config = ConsumerConfig {
        controller: Controller::FIXED,
        window: Some(6),
        verification: Verification::ByDriver,
        look_for_manifest: false,
        ..ConsumerConfig::default()
    };
    let mut fixture = Fixture::new(Target::Version { versioned: "/a".parse().unwrap() }, config);
    let start = ConsumerInput::Start { have: SegmentSet::new(), reader: ReaderMode::InOrder };
    assert_eq!(fixture.input(start).len(), 6);
    fixture.input(ConsumerInput::Read { segments: 100 });
    for number in 2..6 {
        fixture.data(&segment("/a", number));
    }
    let forged = Data::new(segment("/a", 1)).final_block_id(Component::segment(1));
    let packet = forged.encode_with_digest().into();
    fixture.input(ConsumerInput::Packet { path: PATH, header: LpHeader::default(), packet });
    let last = fixture.out.verify.pop().unwrap();
    let verdict = Verdict::Bad { reason: "forged".into(), digest: None };
    let asked = fixture.input(ConsumerInput::Verified { op: last.op, verdict });
    assert_eq!(asked[0], segment("/a", 1));
    assert!((2..6).all(|number| !asked.contains(&segment("/a", number))), "{asked:?}");
    fixture.data(&segment("/a", 0));
    fixture.data(&segment("/a", 1));
    for number in 6..9 {
        fixture.data(&segment("/a", number));
    }
    let end = Data::new(segment("/a", 9)).final_block_id(Component::segment(9));
    let packet = end.encode_with_digest().into();
    fixture.input(ConsumerInput::Packet { path: PATH, header: LpHeader::default(), packet });
    fixture.verify(true);
    let parts: Vec<PacketId> = fixture.out.deliveries.iter().map(|delivery| delivery.id).collect();
    assert_eq!(parts, (0..10).map(PacketId::Segment).collect::<Vec<_>>());
    assert_eq!(fixture.events().last().unwrap(), "Done");
}

/// Requests are limited by the reader's buffer. A chunk larger than the buffer is requested alone.
#[test]
fn reader_limits_chunks() {
    let asked = |chunk_segments, reader_segments_max| {
        let config = ConsumerConfig {
            chunk_segments,
            reader_segments_max,
            controller: Controller::FIXED,
            window: Some(10),
            verification: Verification::Off,
            ..ConsumerConfig::default()
        };
        Fixture::new(Target::Sequence, config).append(1, "/a", Some(0..5000)).len()
    };
    assert_eq!(asked(32, 100), 96);
    assert_eq!(asked(1000, 100), 1000);
}

/// A reader pauses for longer than all retries of an object without known end. Then the producer
/// stops responding. The pause does not count: every segment is still sent three times.
#[test]
fn paused_reader_keeps_all_retries() {
    let config = ConsumerConfig {
        controller: Controller::FIXED,
        window: Some(4),
        reader_segments_max: 4,
        verification: Verification::Off,
        retries_max: 2,
        lifetime_ms: 500,
        ..ConsumerConfig::default()
    };
    let mut fixture = Fixture::new(Target::Version { versioned: "/a".parse().unwrap() }, config);
    let start = ConsumerInput::Start { have: SegmentSet::new(), reader: ReaderMode::InOrder };
    let asked = fixture.input(start);
    assert_eq!(asked.len(), 4);
    assert!(asked.iter().all(|name| fixture.data(name).is_empty()), "the reader has no room");
    fixture.now = fixture.now.plus_ns(100 * NS_PER_S);
    let mut sent = fixture.input(ConsumerInput::Read { segments: 4 }).len();
    while !fixture.consumer.has_ended() {
        fixture.now = fixture.consumer.next_wakeup().unwrap();
        sent += fixture.step().len();
    }
    assert_eq!(sent, 3 * 4);
    let took_ms = fixture.now.ns_since(Instant::from_ns(100 * NS_PER_S)) / NS_PER_MS;
    assert!((500..=1500).contains(&took_ms), "{took_ms}");
}
