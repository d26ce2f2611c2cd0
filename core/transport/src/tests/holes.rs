//! Segments that get no answer: what is fetched all the same, what is reported, and when.

use core::ops::Range;

use super::paths::SLOW;
use super::*;
use crate::{GiveUp, MissingSegments, PathSchedule};

/// Segments of 100 octets in the objects of these tests.
const COUNT: u64 = 5000;
/// A router on the same machine.
const LOCAL: Channel = Channel { delay_ns: 200 * NS_PER_US, ..CLEAN };
/// Longest that a fetch may go on after the last segment came, at defaults, and for what leads
/// to it: two lifetimes until the first hole is noticed, a few rounds.
const PATIENCE_NS: u64 = 60 * NS_PER_S;

struct Holes {
    absent: Vec<Range<u64>>,
    absent_parts: Vec<PartId>,
    until: Instant,
    manifest: Option<Shape>,
    channels: Vec<Channel>,
    reader: ReaderMode,
    config: ConsumerConfig,
    have: SegmentSet,
}

impl Default for Holes {
    fn default() -> Self {
        Self {
            absent: vec![],
            absent_parts: vec![],
            until: Instant::FAR_FUTURE,
            manifest: None,
            channels: vec![LOCAL],
            reader: ReaderMode::None,
            config: ConsumerConfig::default(),
            have: SegmentSet::new(),
        }
    }
}

impl Holes {
    fn at(absent: impl IntoIterator<Item = Range<u64>>) -> Self {
        Self { absent: absent.into_iter().collect(), ..Self::default() }
    }

    fn one(absent: Range<u64>) -> Self {
        Self::at(core::iter::once(absent))
    }

    fn count(&self) -> u64 {
        self.absent.iter().map(|range| range.end - range.start).sum()
    }

    fn run(&self) -> Outcome {
        self.run_with([])
    }

    /// With what happens to paths, and after how many milliseconds.
    fn run_with(&self, mishaps: impl IntoIterator<Item = (u64, Arrival)>) -> Outcome {
        let content = random_octets(&mut Rng::from_seed(1), COUNT as usize * 100);
        let mut producer = Producer::new(content, 100, self.manifest);
        producer.absent = self.absent.iter().cloned().flatten().collect();
        producer.absent_parts = self.absent_parts.iter().copied().collect();
        producer.absent_until = self.until;
        let mut config = self.config.clone();
        if self.channels.len() > 1 {
            config.schedule = PathSchedule::Parallel;
        }
        let consumer = Consumer::new(latest(), config, 1, Instant::ZERO);
        let channels = self.channels.clone();
        let mut simulation = Simulation::with_paths(Some(&mut producer), channels, consumer, 1);
        simulation.reader = self.reader;
        for (at_ms, mishap) in mishaps {
            simulation.arrive(Instant::from_ns(at_ms * NS_PER_MS), mishap);
        }
        simulation.run(&self.have)
    }

    /// Everything but the hole is there, and the error names it.
    fn check(&self) -> Outcome {
        let outcome = self.run();
        let missing = incomplete(&outcome);
        assert_eq!((missing.segments, missing.missing), (COUNT, self.count()), "{missing}");
        assert_eq!(missing.ranges, self.absent.len() as u64, "{missing}");
        let named = self.absent.len().min(8);
        assert_eq!(missing.first_ranges, self.absent[..named], "{missing}");
        assert_eq!(outcome.have.len(), COUNT - self.count() - self.have.len());
        assert!(self.absent.iter().cloned().flatten().all(|at| !outcome.have.contains(at)));
        outcome
    }
}

fn incomplete(outcome: &Outcome) -> &MissingSegments {
    match &outcome.result {
        Err(ConsumerError::Incomplete(missing)) => missing,
        other => panic!("{other:?} after {:?}, {:?}", outcome.took, outcome.stats),
    }
}

/// Ends within the patience after the time that fetching the rest takes.
fn assert_ends_by(outcome: &Outcome, more_ns: u64) {
    let ends = Instant::from_ns(PATIENCE_NS + more_ns);
    assert!(outcome.took <= ends, "{:?} {:?}", outcome.took, outcome.stats);
}

#[test]
fn fetches_what_lies_behind_a_hole() {
    for hole in [50..450, 0..400, COUNT - 400..COUNT, 2000..2001, 1000..4900] {
        let outcome = Holes::one(hole).check();
        assert_ends_by(&outcome, 20 * NS_PER_S);
    }
}

#[test]
fn fetches_what_lies_between_many_holes() {
    let long = (0..20).map(|at| at * 250 + 10..at * 250 + 30);
    let outcome = Holes::at(long).check();
    assert_ends_by(&outcome, 30 * NS_PER_S);
    let short = (0..400).map(|at| at * 12 + 5..at * 12 + 6);
    let outcome = Holes::at(short).check();
    assert_ends_by(&outcome, 30 * NS_PER_S);
}

#[test]
fn ends_soon_where_there_is_no_route() {
    let channels = vec![Channel { no_route: Some(None), ..LOCAL }];
    let holes = Holes { channels, ..Holes::at([50..450, 3000..3010]) };
    let outcome = holes.check();
    assert_eq!(incomplete(&outcome).reason, GiveUp::NoRoute);
    assert!(outcome.took <= Instant::from_ns(15 * NS_PER_S), "{:?}", outcome.took);
}

#[test]
fn gives_up_soon_where_everything_is_refused() {
    let channels = vec![Channel { no_route: Some(None), ..LOCAL }];
    let outcome = Holes { channels: channels.clone(), ..Holes::one(0..COUNT) }.run();
    let first = versioned().append_segment(0).clone();
    assert_eq!(outcome.result, Err(ConsumerError::NoRoute(first)));
    assert!(outcome.took <= Instant::from_ns(8 * NS_PER_S), "{:?}", outcome.took);
    let reader = ReaderMode::InOrder;
    let outcome = Holes { channels, reader, ..Holes::one(1000..COUNT) }.run();
    assert_eq!(incomplete(&outcome).reason, GiveUp::NoRoute);
    assert!(outcome.read.iter().copied().eq(0..1000));
    assert!(outcome.took <= Instant::from_ns(8 * NS_PER_S), "{:?}", outcome.took);
}

#[test]
fn a_second_fetch_asks_for_what_is_missing() {
    let holes = Holes::at([50..450, 3000..3010]);
    let have = holes.check().have;
    // The producer is still down.
    let outcome = Holes { have: have.clone(), ..Holes::at([50..450, 3000..3010]) }.run();
    assert_eq!(incomplete(&outcome).missing, 410);
    assert_ends_by(&outcome, 10 * NS_PER_S);
    let outcome = Holes { have, ..Holes::default() }.run();
    assert_eq!(outcome.result, Ok(()));
    assert_eq!((outcome.have.len(), outcome.stats.interests), (410, 411));
}

/// However short the patience is, there is time to look behind the hole.
#[test]
fn few_retries_are_enough_to_find_the_rest() {
    for (retries_max, lifetime_ms) in [(0, 1000), (1, 4000), (3, 1000)] {
        let config = ConsumerConfig { retries_max, lifetime_ms, ..ConsumerConfig::default() };
        for hole in [0..400, 50..450] {
            let outcome = Holes { config: config.clone(), ..Holes::one(hole) }.check();
            assert!(outcome.took <= Instant::from_ns(40 * NS_PER_S), "{:?}", outcome.took);
        }
    }
}

#[test]
fn takes_the_hole_from_a_producer_that_comes_back() {
    let until = Instant::from_ns(40 * NS_PER_S);
    let holes = Holes { until, ..Holes::at([50..450, 3000..3010, 3100..4900]) };
    let outcome = holes.run();
    assert_eq!(outcome.result, Ok(()));
    assert_eq!(outcome.have.len(), COUNT);
    assert!(outcome.took <= until.plus_ns(10 * NS_PER_S), "{:?}", outcome.took);
}

#[test]
fn segments_without_manifest_part_are_missing() {
    for shape in [FLAT, Shape { digests_per_part: 20, levels: 2 }] {
        let mut holes = Holes { manifest: Some(shape), ..Holes::default() };
        holes.absent_parts = vec![PartId::leaf(7), PartId::leaf(100)];
        let outcome = holes.run();
        let missing = incomplete(&outcome);
        assert_eq!(missing.first_ranges, [140..160, 2000..2020]);
        assert_eq!((missing.missing, missing.manifest_parts), (40, 2));
        assert_eq!(outcome.have.len(), COUNT - 40);
        assert_ends_by(&outcome, 20 * NS_PER_S);
    }
    // A part of the second level stands for all below it.
    let shape = Shape { digests_per_part: 20, levels: 2 };
    let mut holes = Holes { manifest: Some(shape), ..Holes::default() };
    holes.absent_parts = vec![PartId { level: 2, number: 3 }];
    let outcome = holes.run();
    let missing = incomplete(&outcome);
    assert_eq!((&missing.first_ranges[0], missing.ranges), (&(1200..1600), 1));
    assert_eq!(outcome.have.len(), COUNT - 400);
    assert_ends_by(&outcome, 20 * NS_PER_S);
}

#[test]
fn fetches_behind_holes_with_a_manifest() {
    for levels in [1, 2] {
        let shape = Shape { digests_per_part: 20, levels };
        let mut holes = Holes { manifest: Some(shape), ..Holes::at([50..450, 3005..3017]) };
        let outcome = holes.check();
        assert_ends_by(&outcome, 20 * NS_PER_S);
        // The parts that list the hole are missing with it.
        holes.absent_parts = (3..22).map(PartId::leaf).collect();
        holes.absent = vec![60..440, 3005..3017];
        let outcome = holes.check();
        assert_eq!(incomplete(&outcome).manifest_parts, 19);
        assert_ends_by(&outcome, 20 * NS_PER_S);
        holes.until = Instant::from_ns(30 * NS_PER_S);
        assert_eq!(holes.run().result, Ok(()));
    }
}

#[test]
fn a_reader_in_order_gets_all_before_the_hole() {
    for reader_segments_max in [8192, 64] {
        let config = ConsumerConfig { reader_segments_max, ..ConsumerConfig::default() };
        let reader = ReaderMode::InOrder;
        let mut holes = Holes { reader, config, ..Holes::one(1000..1200) };
        let outcome = holes.run();
        incomplete(&outcome);
        assert!(outcome.read.iter().copied().eq(0..1000));
        assert_ends_by(&outcome, 20 * NS_PER_S);
        holes.until = Instant::from_ns(40 * NS_PER_S);
        let outcome = holes.run();
        assert_eq!(outcome.result, Ok(()));
        assert!(outcome.read.iter().copied().eq(0..COUNT));
    }
}

#[test]
fn two_paths_fetch_behind_a_hole() {
    let channels = vec![LOCAL, Channel { delay_ns: 10 * NS_PER_MS, ..CLEAN }];
    let outcome = Holes { channels, ..Holes::at([50..450, 3000..3010]) }.check();
    assert_ends_by(&outcome, 30 * NS_PER_S);
}

/// Loss and slow answers are no holes: everything comes, and no segment is set aside for long.
#[test]
fn loss_and_slowness_are_no_holes() {
    for reader in [ReaderMode::None, ReaderMode::InOrder] {
        let lossy = Channel { lost: 50, ..CLEAN };
        let outcome = Holes { reader, channels: vec![lossy], ..Holes::default() }.run();
        assert_eq!(outcome.result, Ok(()));
        let slow = Channel { delay_ns: 3 * NS_PER_S, lost: 20, ..CLEAN };
        let outcome = Holes { reader, channels: vec![slow], ..Holes::default() }.run();
        assert_eq!(outcome.result, Ok(()));
        // An outage of 30 s is none either.
        let outage = Arrival::Changed(PathId(0), Channel { lost: 1000, ..CLEAN });
        let holes = Holes { reader, channels: vec![SLOW], ..Holes::default() };
        let outcome = holes.run_with([(500, outage), (30_500, Arrival::Changed(PathId(0), SLOW))]);
        assert_eq!(outcome.result, Ok(()));
        assert!(outcome.took <= Instant::from_ns(40 * NS_PER_S), "{:?}", outcome.took);
        // With a hole, too, all the others come.
        let lossy = Channel { lost: 50, ..LOCAL };
        let outcome = Holes { channels: vec![lossy], ..Holes::at([50..450, 3000..3010]) }.check();
        assert_ends_by(&outcome, 60 * NS_PER_S);
    }
}

#[test]
fn nothing_at_all_is_said_as_before() {
    let outcome = Holes::one(0..COUNT).run();
    let first = versioned().append_segment(0).clone();
    assert_eq!(outcome.result, Err(ConsumerError::Unanswered(first)));
    assert_ends_by(&outcome, 5 * NS_PER_S);
}
