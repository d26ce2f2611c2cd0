//! Sequences, readers and pacing, step by step.

extern crate std;

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use weir_base::{Instant, NS_PER_MS, NS_PER_S, RttConfig};
use weir_wire::{
    Component, CongestionMark, Data, Interest, InterestView, LpHeader, NackReason, Name,
};

use super::path::Path;
use super::*;
use crate::congestion::{
    Allowance, Congestion, CongestionControl, Controller, ControllerConstants, Marks, Overtaken,
    Rules, Sample, Timeout,
};

mod holdings;
mod probe;
mod rules;

const PATH: PathId = PathId(3);

/// A consumer, what it was told and what it did.
struct Bench {
    consumer: Consumer,
    inputs: Vec<ConsumerInput>,
    out: ConsumerOutbox,
    now: Instant,
    /// The Interests of the last step, and the paths that they left by.
    asked: Vec<Vec<u8>>,
    out_paths: Vec<PathId>,
}

impl Bench {
    fn new(target: Target, config: ConsumerConfig) -> Self {
        let consumer = Consumer::new(target, config, 1, Instant::ZERO);
        let inputs = vec![ConsumerInput::AddPath { path: PATH, window: None, is_local: false }];
        let (out, now, asked) = (ConsumerOutbox::default(), Instant::ZERO, Vec::new());
        let mut bench = Self { consumer, inputs, out, now, asked, out_paths: Vec::new() };
        bench.step();
        bench
    }

    /// Hands over the inputs. The names asked for.
    fn step(&mut self) -> Vec<Name> {
        self.consumer.handle(self.now, &mut self.inputs, &mut self.out);
        self.consumer.assert_consistent();
        self.asked = self.out.interests.iter().map(|(_, wire)| wire.to_vec()).collect();
        self.out_paths = self.out.interests.iter().map(|(path, _)| path).collect();
        self.out.interests.clear();
        let names = self.asked.iter().map(|wire| InterestView::decode(wire).unwrap().name);
        names.map(|name| name.to_name()).collect()
    }

    /// The one Interest of the last step.
    fn asked(&self) -> InterestView<'_> {
        assert_eq!(self.asked.len(), 1);
        InterestView::decode(&self.asked[0]).unwrap()
    }

    fn nack(&mut self, interest: &[u8], reason: NackReason) -> Vec<Name> {
        let header = LpHeader { nack: Some(reason), ..LpHeader::default() };
        self.tell(ConsumerInput::Packet { path: PATH, header, packet: interest.into() })
    }

    fn tell(&mut self, input: ConsumerInput) -> Vec<Name> {
        self.inputs.push(input);
        self.step()
    }

    fn append(&mut self, piece: u64, name: &str, segments: Option<Range<u64>>) -> Vec<Name> {
        let piece = PieceId(piece);
        self.tell(ConsumerInput::Append { piece, name: name.parse().unwrap(), segments })
    }

    fn data(&mut self, name: &Name) -> Vec<Name> {
        self.data_with(name, &[1, 2, 3])
    }

    fn data_with(&mut self, name: &Name, content: &[u8]) -> Vec<Name> {
        let packet = Data::new(name.clone()).content(content).encode_with_digest().into();
        self.tell(ConsumerInput::Packet { path: PATH, header: LpHeader::default(), packet })
    }

    /// Gives the same verdict on all that is to be verified.
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

fn sequence(window: u32) -> Bench {
    let config = ConsumerConfig {
        controller: Controller::Fixed,
        window: Some(window),
        verification: Verification::ByDriver,
        trace: true,
        ..ConsumerConfig::default()
    };
    Bench::new(Target::Sequence, config)
}

fn segment(name: &str, number: u64) -> Name {
    let mut name: Name = name.parse().unwrap();
    name.append_segment(number).clone()
}

#[test]
fn one_window_lies_over_all_pieces_of_a_sequence() {
    let mut bench = sequence(4);
    assert_eq!(bench.events(), ["NeedsMore"]);
    assert_eq!(bench.append(7, "/a", Some(5..8)).len(), 3);
    assert_eq!(bench.events(), ["NeedsMore"]);
    assert_eq!(bench.append(8, "/b", Some(0..2)), [segment("/b", 0)]);
    assert!(bench.events().is_empty(), "the window is full");
    assert_eq!(bench.data(&segment("/a", 6)), [segment("/b", 1)]);
    for number in [5, 7] {
        bench.data(&segment("/a", number));
    }
    assert_eq!(bench.events(), ["NeedsMore"]);
    bench.verify(true);
    assert_eq!(bench.events(), ["PieceDone { piece: PieceId(7) }"]);
    bench.tell(ConsumerInput::Close);
    bench.data(&segment("/b", 0));
    bench.data(&segment("/b", 1));
    bench.verify(true);
    assert_eq!(bench.events(), ["PieceDone { piece: PieceId(8) }", "Done"]);
    assert!(bench.consumer.is_over());
}

#[test]
fn one_data_answers_all_units_of_its_name() {
    let mut bench = sequence(8);
    assert_eq!(bench.append(1, "/a", Some(3..4)), [segment("/a", 3)]);
    assert_eq!(bench.append(2, "/a", Some(3..4)), [segment("/a", 3)]);
    assert_eq!(bench.append(3, "/a", None), ["/a".parse().unwrap()]);
    bench.out.trace.clear();
    bench.data(&segment("/a", 3));
    assert_eq!(bench.out.verify.len(), 2);
    let answered: Vec<u64> = bench.out.trace.iter().map(|event| event.piece.0).collect();
    assert_eq!(answered.len(), 2);
    assert!(answered.contains(&1) && answered.contains(&2));
    bench.data(&"/a".parse().unwrap());
    bench.events();
    bench.verify(true);
    assert_eq!(bench.events().len(), 3);
    bench.data(&segment("/a", 3));
    assert_eq!(bench.consumer.stats().unwanted, 1);
}

/// Regression: what had not been asked for of a piece that failed was passed over one by one, which
/// took minutes for a hundred million of them.
#[test]
fn of_a_piece_that_is_given_up_nothing_is_left() {
    let mut bench = sequence(100);
    bench.append(1, "/a", Some(0..1 << 60));
    bench.append(2, "/b", Some(5..7));
    bench.append(3, "/c", None);
    let mut asked: Vec<Name> = Vec::new();
    while asked.iter().all(|name| name.as_view().first().unwrap().value == b"a") {
        bench.now = bench.consumer.next_wakeup().unwrap();
        asked = bench.step();
    }
    assert_eq!(asked, [segment("/b", 5), segment("/b", 6), "/c".parse().unwrap()]);
    asked.iter().for_each(|name| drop(bench.data(name)));
    bench.verify(true);
    let events = bench.events();
    let told = |kind| events.iter().filter(|event| event.starts_with(kind)).count();
    assert_eq!((told("PieceFailed"), told("PieceDone")), (1, 2), "{events:?}");
}

#[test]
fn a_piece_that_is_given_up_leaves_the_others_alone() {
    let mut bench = sequence(3);
    bench.append(1, "/a", Some(0..100));
    bench.append(2, "/b", Some(0..2));
    bench.data(&segment("/a", 1));
    bench.events();
    // What comes is bad, again and again.
    for _ in 0..4 {
        bench.verify(false);
        bench.now = bench.now.plus_ns(NS_PER_MS);
        bench.data(&segment("/a", 1));
    }
    let asked = bench.verify(false);
    assert_eq!(asked, [segment("/b", 0), segment("/b", 1)]);
    let events = bench.events();
    assert!(events.iter().any(|event| event.starts_with("PieceFailed")), "{events:?}");
    bench.data(&segment("/a", 2));
    assert!(bench.out.verify.is_empty(), "it is not wanted any more");
    bench.data(&segment("/b", 0));
    bench.data(&segment("/b", 1));
    bench.tell(ConsumerInput::Close);
    bench.verify(true);
    let events = bench.events();
    assert!(events.contains(&"PieceDone { piece: PieceId(2) }".into()), "{events:?}");
    assert!(bench.consumer.is_over(), "{events:?}");
}

#[test]
fn an_unreliable_consumer_asks_once_and_passes_over_what_is_lost() {
    let config = ConsumerConfig {
        controller: Controller::Fixed,
        window: Some(10),
        verification: Verification::Off,
        is_reliable: false,
        ..ConsumerConfig::default()
    };
    let versioned: Name = "/live".parse().unwrap();
    let target = Target::Range { versioned, segments: 5..15 };
    let mut bench = Bench::new(target, ConsumerConfig { look_for_manifest: false, ..config });
    let (have, reader) = (SegmentSet::new(), ReaderMode::InOrder);
    bench.inputs.push(ConsumerInput::Read { units: 100 });
    assert_eq!(bench.tell(ConsumerInput::Start { have, reader }).len(), 10);
    for number in (5..15).filter(|number| *number != 8) {
        bench.data(&segment("/live", number));
    }
    assert_eq!(bench.out.deliveries.len(), 3, "the rest waits for 8");
    bench.now = bench.now.plus_ns(10 * NS_PER_S);
    assert!(bench.step().is_empty(), "it is asked for once");
    let numbers: Vec<Part> = bench.out.deliveries.iter().map(|unit| unit.part).collect();
    let expected: Vec<Part> = (5..15)
        .filter(|number| *number != 8)
        .map(|number| Part::Unit(Unit::segment(number)))
        .collect();
    assert_eq!(numbers, expected);
    assert!(bench.consumer.is_over());
}

#[test]
fn the_reader_pulls_and_what_waits_for_it_is_bounded() {
    let config = ConsumerConfig {
        controller: Controller::Fixed,
        window: Some(100),
        verification: Verification::ByDriver,
        look_for_manifest: false,
        reader_units_max: 10,
        ..ConsumerConfig::default()
    };
    let versioned: Name = "/a".parse().unwrap();
    let mut bench = Bench::new(Target::Range { versioned, segments: 0..u64::MAX }, config);
    let (have, reader) = (SegmentSet::new(), ReaderMode::InOrder);
    let mut asked = bench.tell(ConsumerInput::Start { have, reader });
    let mut delivered = 0;
    for round in 0..20 {
        assert_eq!(asked.len(), if round == 0 { 10 } else { 4 });
        for name in asked.iter().rev() {
            assert!(bench.data(name).is_empty());
        }
        assert!(bench.verify(true).is_empty(), "the reader has not taken any");
        asked = bench.tell(ConsumerInput::Read { units: 4 });
        for delivery in bench.out.deliveries.drain(..) {
            assert_eq!(delivery.part, Part::Unit(Unit::segment(delivered)));
            assert!(delivery.is_verified);
            delivered += 1;
        }
        assert_eq!(delivered, 4 * (round + 1));
    }
}

#[test]
fn of_a_known_version_only_what_is_wanted_is_asked_for() {
    let versioned: Name = "/a/54=%01".parse().unwrap();
    for (segments, expected) in [(7..12, 7..12), (17..99, 17..20), (20..99, 0..0), (5..5, 0..0)] {
        let metadata = Metadata {
            last_segment: Some(19),
            segment_size: Some(3),
            ..Metadata::new(versioned.clone())
        };
        let config =
            ConsumerConfig { verification: Verification::ByDriver, ..ConsumerConfig::default() };
        let mut bench = Bench::new(Target::Known { metadata }, config);
        assert!(bench.asked.is_empty(), "the version is known");
        bench.inputs.push(ConsumerInput::Narrow { segments });
        bench.inputs.push(ConsumerInput::Read { units: 100 });
        let (have, reader) = (SegmentSet::new(), ReaderMode::InOrder);
        let mut asked = bench.tell(ConsumerInput::Start { have, reader });
        let mut all = Vec::new();
        while !asked.is_empty() {
            all.extend(asked.iter().cloned());
            let more: Vec<Name> = asked.iter().flat_map(|name| bench.data(name)).collect();
            asked = more.into_iter().chain(bench.verify(true)).collect();
        }
        let wanted: Vec<Name> = expected.map(|at| segment("/a/54=%01", at)).collect();
        assert_eq!(all, wanted);
        assert_eq!(bench.out.deliveries.len(), wanted.len());
        assert!(bench.consumer.is_over());
        assert!(bench.consumer.have().is_empty(), "it is not the object");
    }
}

/// A controller that paces.
struct Paced;

impl CongestionControl for Paced {
    fn on_data(&mut self, _sample: &Sample) {}

    fn on_congestion(&mut self, _now: Instant, _cause: Congestion) {}

    fn on_timeout(&mut self, _now: Instant) {}

    fn allowance(&self) -> Allowance {
        // A packet of 8800 octets each 10 ms.
        Allowance { window: 5.0, pacing_bps: Some(7_040_000) }
    }
}

#[test]
fn the_pace_is_kept() {
    let mut bench = sequence(1);
    bench.tell(ConsumerInput::RemovePath { path: PATH });
    let path = Path::new(PathId(9), RttConfig::default(), Box::new(Paced));
    bench.consumer.scoreboard.push_path(path);
    assert_eq!(bench.append(1, "/a", Some(0..100)).len(), 1);
    let mut sent = 1;
    while sent < 5 {
        bench.now = bench.consumer.next_wakeup().unwrap();
        sent += bench.step().len();
        assert_eq!(bench.now, Instant::from_ns((sent as u64 - 1) * 10 * NS_PER_MS));
    }
    // Now the window is full.
    let next = bench.consumer.next_wakeup().unwrap();
    assert_eq!(next, Instant::from_ns(NS_PER_S), "the timeout of the first");
}

#[test]
fn marks_are_counted_by_round() {
    /// Keeps the last sample of each round.
    struct Counts(alloc::sync::Arc<std::sync::Mutex<Seen>>);

    #[derive(Default)]
    struct Seen {
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

    let seen = alloc::sync::Arc::default();
    let mut bench = sequence(1);
    bench.tell(ConsumerInput::RemovePath { path: PATH });
    let control = Box::new(Counts(alloc::sync::Arc::clone(&seen)));
    bench.consumer.scoreboard.push_path(Path::new(PATH, RttConfig::default(), control));
    bench.append(1, "/a", Some(0..12));
    for number in 0..12 {
        bench.now = bench.now.plus_ns(NS_PER_MS);
        // NFD's, in proportion, both, and one that nothing is known of.
        let congestion_mark = if number % 3 == 0 { [1, 2, 3, 8][number as usize / 3] } else { 0 };
        let header = LpHeader { congestion_mark, ..LpHeader::default() };
        let packet = Data::new(segment("/a", number)).encode_with_digest().into();
        bench.tell(ConsumerInput::Packet { path: PATH, header, packet });
    }
    let Seen { rounds, meanings } = &*seen.lock().unwrap();
    assert_eq!(rounds.values().copied().collect::<Vec<_>>(), [(4, 2), (4, 1), (4, 1)]);
    assert_eq!(meanings[..], [(true, false), (false, true), (true, true), (true, false)]);
}

#[test]
fn a_chunk_is_one_in_the_window_and_what_it_lacks_is_asked_for_again() {
    let config = ConsumerConfig {
        controller: Controller::Fixed,
        window: Some(1),
        verification: Verification::Off,
        chunk_units: 70,
        ..ConsumerConfig::default()
    };
    let mut bench = Bench::new(Target::Sequence, config);
    let chunk = |units: Range<u64>| units.map(|unit| segment("/a", unit)).collect::<Vec<_>>();
    assert_eq!(bench.append(1, "/a", Some(0..100)), chunk(0..70));
    for unit in (0..70).filter(|unit| ![3, 64, 69].contains(unit)) {
        assert!(bench.data(&segment("/a", unit)).is_empty());
    }
    assert_eq!(bench.consumer.stats().outstanding, 3);
    bench.now = bench.consumer.next_wakeup().unwrap();
    let missing = [3, 64, 69].map(|unit| segment("/a", unit));
    assert_eq!(bench.step(), missing);
    assert_eq!(bench.consumer.stats().retransmissions, 3);
    assert!(bench.data(&missing[2]).is_empty());
    assert!(bench.data(&missing[0]).is_empty());
    // The last chunk is what is left.
    assert_eq!(bench.data(&missing[1]), chunk(70..100));
    bench.consumer.assert_consistent();
}

/// The end that a segment tells cuts a chunk that was asked for whole; the end was a lie.
#[test]
fn a_chunk_that_is_cut_grows_again_as_another() {
    let mut board = scoreboard(8);
    let next = |board: &mut Scoreboard| {
        let (first, path) = board.next_to_send(Instant::ZERO, 100, |_| true)?;
        let units: Vec<u64> = board.open_units(first).collect();
        board.sent(first, path, 0, Instant::ZERO);
        Some(units)
    };
    board.start_at(3);
    assert_eq!(next(&mut board), Some((3..8).collect()));
    assert_eq!(next(&mut board), Some((8..16).collect()));
    let now = Instant::from_ns(NS_PER_MS);
    let answer = |_| Answer { now, path: PATH, mark: CongestionMark::NONE, packet_bytes: 1 };
    assert!([9, 13, 4].map(|unit| board.answered(unit, &answer(unit))).iter().all(|&new| new));
    board.set_limit(Some(11));
    board.assert_consistent();
    assert_eq!((board.unanswered(), board.next_index()), (4 + 2, 11));
    assert!(!board.answered(12, &answer(12)), "beyond the end");
    board.set_limit(Some(20));
    assert_eq!(next(&mut board), Some(vec![11, 12, 14, 15]));
    assert_eq!(next(&mut board), Some((16..20).collect()));
    assert_eq!(next(&mut board), None);
    for unit in [3, 5, 6, 7, 8, 10, 11, 12, 14, 15, 16, 17, 18, 19] {
        assert!(!board.is_done());
        assert!(board.answered(unit, &answer(unit)), "{unit}");
        board.assert_consistent();
    }
    assert!(board.is_done());
}

fn scoreboard(chunk_units: u32) -> Scoreboard {
    let config = ScoreboardConfig {
        lifetime_ns: NS_PER_S,
        retries_max: 1,
        asks_once: false,
        chunk_units,
        rtt: RttConfig::default(),
        controller: Controller::Fixed,
        constants: ControllerConstants::default(),
        window: WindowBounds { initial: Some(100), max: 100 },
        decrease_interval_ns: None,
        waits_for_lifetime: false,
        trace: false,
    };
    let mut board = Scoreboard::new(config, PathSchedule::Single.make());
    board.add_path(PATH, None);
    board
}

/// A Nack that comes several times is one refusal, and what is refused and comes all the same is
/// none: the rest of the chunk goes on.
#[test]
fn a_nack_that_is_repeated_refuses_one_unit() {
    let mut board = scoreboard(4);
    board.set_limit(Some(4));
    let (now, later) = (Instant::ZERO, Instant::from_ns(NS_PER_S));
    let answer = Answer { now, path: PATH, mark: CongestionMark::NONE, packet_bytes: 1 };
    let next = |board: &mut Scoreboard, now| board.next_to_send(now, 100, |_| true);
    let (first, path) = next(&mut board, now).unwrap();
    board.sent(first, path, 7, now);
    let nack = |board: &mut Scoreboard, unit: u64| {
        board.nacked(unit, None, NackReason::NoRoute, now).is_ok_and(|counts| counts)
    };
    assert!(nack(&mut board, 0));
    assert!(!(0..10).any(|_| nack(&mut board, 0)));
    assert_eq!(next(&mut board, later), None, "three are on their way");
    assert!(board.answered(0, &answer));
    assert!(nack(&mut board, 1) && nack(&mut board, 2));
    assert_eq!(next(&mut board, later), None, "one is on its way");
    assert!(nack(&mut board, 3));
    assert!(next(&mut board, later).is_some(), "all that is open is refused");
    assert_eq!(board.counters().nacks, 4);
}

/// Every Data is marked: the window is halved once a round trip, which grows with the queue that
/// the marks are about, or once in the interval that is given (paper nb-cache, V-C.4: 50 ms).
#[test]
fn a_window_is_halved_once_in_the_interval_that_is_given() {
    let decreases = |decrease_interval_ns| {
        let config = ConsumerConfig {
            controller: Controller::NbCc,
            window: Some(64),
            verification: Verification::Off,
            decrease_interval_ns,
            ..ConsumerConfig::default()
        };
        let mut bench = Bench::new(Target::Sequence, config);
        bench.append(1, "/a", Some(0..64));
        for number in 0..60 {
            bench.now = bench.now.plus_ns(NS_PER_MS);
            let header = LpHeader { congestion_mark: 1, ..LpHeader::default() };
            let packet = Data::new(segment("/a", number)).encode_with_digest().into();
            bench.tell(ConsumerInput::Packet { path: PATH, header, packet });
        }
        bench.consumer.stats().decreases
    };
    assert_eq!(decreases(None), 1, "all were sent in one round trip");
    assert_eq!(decreases(Some(50 * NS_PER_MS)), 2, "after 1 and 51 ms");
    assert_eq!(decreases(Some(20 * NS_PER_MS)), 3, "after 1, 21 and 41 ms");
}

/// The interval holds for timeouts, too: those of Interests that left since the last decrease
/// included.
#[test]
fn a_window_is_started_over_once_in_the_interval_that_is_given() {
    let decreases = |decrease_interval_ns| {
        let config = ConsumerConfig {
            controller: Controller::NbCc,
            window: Some(4),
            verification: Verification::Off,
            decrease_interval_ns,
            ..ConsumerConfig::default()
        };
        let mut bench = Bench::new(Target::Sequence, config);
        bench.append(1, "/a", Some(0..4));
        // Asked for at 0, 1, 3 and 7 s, when the timeout has doubled to 1, 2, 4 s; then each 4 s,
        // the lifetime.
        while bench.now < Instant::from_ns(16 * NS_PER_S) {
            bench.now = bench.consumer.next_wakeup().unwrap();
            bench.step();
        }
        bench.consumer.stats().decreases
    };
    let by_round = decreases(None);
    let by_interval = decreases(Some(9 * NS_PER_S));
    assert!(by_round > 3, "{by_round}");
    assert_eq!(by_interval, 2, "the first, and after 9 s");
}

/// Answers that overtake others by far are no sign of a loss where only lifetimes tell of one.
#[test]
fn an_interest_may_wait_for_its_lifetime() {
    let sent_again = |waits_for_lifetime| {
        let config = ConsumerConfig {
            controller: Controller::Fixed,
            window: Some(10),
            verification: Verification::Off,
            waits_for_lifetime,
            ..ConsumerConfig::default()
        };
        let mut bench = Bench::new(Target::Sequence, config);
        bench.append(1, "/a", Some(0..10));
        for number in 1..10 {
            bench.now = bench.now.plus_ns(NS_PER_MS);
            bench.data(&segment("/a", number));
        }
        bench.now = Instant::from_ns(3_999 * NS_PER_MS);
        let early = bench.step().len();
        bench.now = Instant::from_ns(4_000 * NS_PER_MS);
        (early, bench.step().len())
    };
    assert_eq!(sent_again(false).0, 1);
    assert_eq!(sent_again(true), (0, 1), "after 4 s");
}

/// Two thirds of the content is in a store on the way, the rest waits in a queue behind it that
/// grows to a hundred times that, and no Interest is lost.
#[test]
fn a_store_on_the_way_makes_no_losses_of_what_lies_behind() {
    let config = ConsumerConfig {
        controller: Controller::Fixed,
        window: Some(256),
        verification: Verification::Off,
        ..ConsumerConfig::default()
    };
    let mut bench = Bench::new(Target::Sequence, config);
    let mut answers = BTreeMap::new();
    let mut behind = Instant::ZERO;
    let mut asked = bench.append(1, "/a", Some(0..20_000));
    loop {
        for name in asked {
            let number = name.as_view().last().unwrap().as_segment().unwrap();
            let at = if number % 3 != 0 {
                bench.now.plus_ns(NS_PER_MS)
            } else {
                behind = behind.max(bench.now.plus_ns(4 * NS_PER_MS)).plus_ns(NS_PER_MS / 2);
                behind
            };
            answers.insert((at, number), name);
        }
        let Some(((at, _), name)) = answers.pop_first() else { break };
        bench.now = at;
        asked = bench.data(&name);
    }
    let stats = bench.consumer.stats();
    assert_eq!((stats.delivered, stats.retransmissions), (20_000, 0), "{stats:?}");
}

/// The driver does not call for nothing while a path that is not used has room.
#[test]
fn a_path_that_stands_by_wakes_no_driver() {
    let mut bench = sequence(1);
    bench.tell(ConsumerInput::AddPath { path: PathId(9), window: None, is_local: false });
    assert_eq!(bench.append(1, "/a", Some(0..9)).len(), 1);
    let wakeup = bench.consumer.next_wakeup().unwrap();
    assert_eq!(wakeup, Instant::from_ns(NS_PER_S), "the timeout of the first");
}

/// A forged segment that says that it is the last neither shortens the object nor has segments that
/// have come asked for, and handed out, a second time.
#[test]
fn a_forged_last_segment_is_no_end() {
    let config = ConsumerConfig {
        controller: Controller::Fixed,
        window: Some(6),
        verification: Verification::ByDriver,
        look_for_manifest: false,
        ..ConsumerConfig::default()
    };
    let mut bench = Bench::new(Target::Version { versioned: "/a".parse().unwrap() }, config);
    let start = ConsumerInput::Start { have: SegmentSet::new(), reader: ReaderMode::InOrder };
    assert_eq!(bench.tell(start).len(), 6);
    bench.tell(ConsumerInput::Read { units: 100 });
    for number in 2..6 {
        bench.data(&segment("/a", number));
    }
    let forged = Data::new(segment("/a", 1)).final_block_id(Component::segment(1));
    let packet = forged.encode_with_digest().into();
    bench.tell(ConsumerInput::Packet { path: PATH, header: LpHeader::default(), packet });
    let last = bench.out.verify.pop().unwrap();
    let verdict = Verdict::Bad { reason: "forged".into(), digest: None };
    let asked = bench.tell(ConsumerInput::Verified { op: last.op, verdict });
    assert_eq!(asked[0], segment("/a", 1));
    assert!((2..6).all(|number| !asked.contains(&segment("/a", number))), "{asked:?}");
    bench.data(&segment("/a", 0));
    bench.data(&segment("/a", 1));
    for number in 6..9 {
        bench.data(&segment("/a", number));
    }
    let end = Data::new(segment("/a", 9)).final_block_id(Component::segment(9));
    let packet = end.encode_with_digest().into();
    bench.tell(ConsumerInput::Packet { path: PATH, header: LpHeader::default(), packet });
    bench.verify(true);
    let parts: Vec<Part> = bench.out.deliveries.iter().map(|delivery| delivery.part).collect();
    assert_eq!(parts, (0..10).map(|n| Part::Unit(Unit::segment(n))).collect::<Vec<_>>());
    assert_eq!(bench.events().last().unwrap(), "Done");
}

/// Looks for metadata of `/a`, which has come from where it need not be fresh: from a store, for
/// there is no route.
fn asking_stores(verification: Verification) -> Bench {
    let target = Target::Latest { object: "/a".parse().unwrap(), allow_stored: true };
    let config = ConsumerConfig { verification, ..ConsumerConfig::default() };
    let mut bench = Bench::new(target, config);
    assert!(bench.asked().must_be_fresh);
    let asked = bench.asked[0].clone();
    bench.nack(&asked, NackReason::NoRoute);
    assert!(!bench.asked().must_be_fresh);
    bench
}

fn metadata_of(versioned: &str) -> Vec<u8> {
    Metadata::new(versioned.parse().unwrap()).encode()
}

/// Metadata that is malformed, of another object, forged or of a stranger says nothing of the
/// object: the right one may come, from beyond the store that has this one.
#[test]
fn bad_metadata_is_asked_for_again_and_fresh() {
    let name: Name = "/a/32=metadata/54=%01/50=%00".parse().unwrap();
    type Spoil = fn(&mut Bench, &Name);
    let spoilt: [(Spoil, &str); 4] = [
        (|bench, name| drop(bench.data(name)), "Metadata {"),
        (|bench, name| drop(bench.data_with(name, &metadata_of("/b/54=%01"))), "Elsewhere {"),
        (
            |bench, name| {
                bench.data_with(name, &metadata_of("/a/54=%01"));
                assert!(bench.asked.is_empty());
                bench.verify(false);
            },
            "Unverified {",
        ),
        (
            |bench, name| {
                bench.consumer.config.verification = Verification::Signatures;
                bench.data_with(name, &metadata_of("/a/54=%01"));
                let Some(ConsumerEvent::NeedKey { key, .. }) = bench.out.events.pop() else {
                    panic!("the signer is not known")
                };
                bench.tell(ConsumerInput::Key { key, verifier: Err("a stranger".into()) });
                bench.consumer.config.verification = Verification::ByDriver;
            },
            "Untrusted(",
        ),
    ];
    for (spoil, error) in spoilt {
        let mut bench = asking_stores(Verification::ByDriver);
        for _ in 0..4 {
            spoil(&mut bench, &name);
            assert!(bench.asked().must_be_fresh, "{error}");
        }
        bench.data_with(&name, &metadata_of("/a/54=%02"));
        bench.verify(true);
        assert!(bench.events()[0].starts_with("Found { metadata: Metadata"), "{error}");

        let mut bench = asking_stores(Verification::ByDriver);
        (0..5).for_each(|_| spoil(&mut bench, &name));
        assert!(bench.asked.is_empty(), "it is asked for a bounded number of times");
        let events = bench.events();
        assert!(events[0].starts_with(&std::format!("Failed({error}")), "{events:?}");
    }
}

/// The store's copy was refused and the producer is away: the refusal is what the user can act on.
#[test]
fn why_metadata_was_refused_is_told_when_no_other_comes() {
    let mut bench = asking_stores(Verification::ByDriver);
    let name: Name = "/a/32=metadata/54=%01/50=%00".parse().unwrap();
    bench.data_with(&name, &metadata_of("/b/54=%01"));
    while bench.out.events.is_empty() {
        match bench.asked.pop() {
            Some(asked) => bench.nack(&asked, NackReason::NoRoute),
            None => {
                bench.now = bench.consumer.next_wakeup().expect("it asks or gives up");
                bench.step()
            }
        };
    }
    let events = bench.events();
    assert!(events[0].starts_with("Failed(Elsewhere {"), "{events:?}");
}

/// A Nack of another Interest does not tell that the producer of this one is away.
#[test]
fn only_a_nack_of_what_was_asked_leads_to_the_stores() {
    let target = Target::Latest { object: "/a".parse().unwrap(), allow_stored: true };
    let mut bench = Bench::new(target, ConsumerConfig::default());
    let asked = bench.asked[0].clone();
    let nonce = bench.asked().nonce.unwrap();
    let name = bench.asked().name.to_name();
    let other = |name: &str, nonce| Interest::new(name.parse().unwrap()).nonce(nonce);
    let others = [
        other("/b", nonce),
        other("/a/32=metadata", nonce),
        other("/a/32=metadata", nonce ^ 1).can_be_prefix(true),
    ];
    for other in others {
        assert!(bench.nack(&other.encode(), NackReason::NoRoute).is_empty());
    }
    assert_eq!(bench.nack(&asked, NackReason::NoRoute), [name]);
    assert!(!bench.asked().must_be_fresh);
}

/// What was sent on a path that has gone is not taken for sent on another of the same number, whose
/// order of sending begins anew.
#[test]
fn a_path_that_comes_back_knows_nothing_of_the_earlier_one() {
    /// Keeps the places of the Interests that were answered.
    struct Orders(alloc::sync::Arc<std::sync::Mutex<Vec<(u64, u64)>>>);

    impl CongestionControl for Orders {
        fn on_data(&mut self, sample: &Sample) {
            self.0.lock().unwrap().push((sample.sent_order, sample.next_order));
        }

        fn on_congestion(&mut self, _now: Instant, _cause: Congestion) {}

        fn on_timeout(&mut self, _now: Instant) {}

        fn allowance(&self) -> Allowance {
            Allowance::window(1.0)
        }
    }

    let mut bench = sequence(4);
    assert_eq!(bench.append(1, "/a", Some(0..4)).len(), 4);
    assert!(bench.tell(ConsumerInput::RemovePath { path: PATH }).is_empty());
    let orders = alloc::sync::Arc::default();
    let control = Box::new(Orders(alloc::sync::Arc::clone(&orders)));
    bench.consumer.scoreboard.push_path(Path::new(PATH, RttConfig::default(), control));
    assert_eq!(bench.step(), [segment("/a", 0)], "the window is one");
    // The earlier path's last.
    bench.data(&segment("/a", 3));
    assert!(orders.lock().unwrap().is_empty(), "it is no answer to what was sent on this one");
    bench.data(&segment("/a", 0));
    assert_eq!(*orders.lock().unwrap(), [(0, 1)]);
}

/// With little room only the faster of two paths is used: what came by it would wait for the
/// slower one (paper chopcop, 4.2: freeze and resume).
#[test]
fn a_slow_path_is_frozen_while_the_reader_has_little_room() {
    const SLOW: PathId = PathId(9);
    let asked_of_slow = |reader_units_max| {
        let config = ConsumerConfig {
            controller: Controller::Fixed,
            window: Some(4),
            verification: Verification::Off,
            schedule: PathSchedule::Parallel,
            reader_units_max,
            ..ConsumerConfig::default()
        };
        let mut bench = Bench::new(Target::Sequence, config);
        bench.tell(ConsumerInput::AddPath { path: SLOW, window: None, is_local: false });
        let mut asked = bench.append(1, "/a", Some(0..1000));
        // The first answers tell how fast the paths are: 1 and 20 ms.
        assert_eq!(asked.len(), 8);
        let of_slow = asked.split_off(4);
        bench.now = bench.now.plus_ns(NS_PER_MS);
        for name in &asked {
            bench.data(name);
        }
        bench.now = bench.now.plus_ns(19 * NS_PER_MS);
        let mut count = 0;
        for name in &of_slow {
            let packet = Data::new(name.clone()).encode_with_digest().into();
            let header = LpHeader::default();
            bench.tell(ConsumerInput::Packet { path: SLOW, header, packet });
            count += bench.out_paths.iter().filter(|&&path| path == SLOW).count();
        }
        count
    };
    // In 20 ms the fast path brings 80.
    assert_eq!(asked_of_slow(40), 0);
    assert_eq!(asked_of_slow(400), 4);
}

#[test]
fn a_silent_path_is_tried_with_one_chunk_and_never_with_one_that_was_lost() {
    const SILENT: PathId = PathId(9);
    let config = ConsumerConfig {
        controller: Controller::Fixed,
        window: Some(4),
        verification: Verification::Off,
        schedule: PathSchedule::Parallel,
        ..ConsumerConfig::default()
    };
    let mut bench = Bench::new(Target::Sequence, config);
    bench.tell(ConsumerInput::AddPath { path: SILENT, window: None, is_local: false });
    let mut asked = bench.append(1, "/a", Some(0..10_000));
    assert_eq!(bench.out_paths.iter().filter(|&&path| path == SILENT).count(), 4);
    let mut lost = asked.split_off(4);
    let mut tries = 0;
    for _ in 0..10_000 {
        bench.now = bench.now.plus_ns(NS_PER_MS);
        let name = asked.remove(0);
        let next = bench.data(&name);
        for (name, path) in next.into_iter().zip(bench.out_paths.clone()) {
            if path == SILENT {
                assert!(!lost.contains(&name), "{name} was lost there");
                lost.push(name);
                tries += 1;
            } else {
                asked.push(name);
            }
        }
        if asked.is_empty() {
            break;
        }
    }
    assert!((2..=10).contains(&tries), "{tries}");
}

/// No more is asked for than the reader has room for; a chunk that never had room goes alone.
#[test]
fn the_reader_bounds_chunks() {
    let asked = |chunk_units, reader_units_max| {
        let config = ConsumerConfig {
            chunk_units,
            reader_units_max,
            controller: Controller::Fixed,
            window: Some(10),
            verification: Verification::Off,
            ..ConsumerConfig::default()
        };
        Bench::new(Target::Sequence, config).append(1, "/a", Some(0..5000)).len()
    };
    assert_eq!(asked(32, 100), 96);
    assert_eq!(asked(1000, 100), 1000);
}
