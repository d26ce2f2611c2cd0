//! Segments without an answer: what is still fetched, what is reported, and when.

use std::ops::Range;

use weir_base::{Instant, NS_PER_S};
use weir_netem::{LinkConfig, Loss};
use weir_plan::Fault;
use weir_security::manifest::{ManifestShape, PartId};
use weir_transport::{
    ConsumerConfig, ConsumerError, FailReason, MissPolicy, MissingSegments, PathSchedule,
    ReaderMode, SegmentSet,
};

use super::object::{FLAT, Object, version};
use super::reliability::PACKET_BITS;
use super::{CLEAN, Done, Fetch, Plan, TestNetwork, latest};
use crate::common::{MS, S};

/// Segments of 100 bytes in the objects of these tests.
const COUNT: u64 = 5000;
/// A router on the same machine, with a round trip of 200 us.
const LOCAL: LinkConfig = LinkConfig { delay_ns: MS / 10, ..CLEAN };
/// How long a fetch may continue after the last segment, with default settings. This covers two
/// lifetimes until the first hole is noticed, and a few rounds.
const GAP_TIMEOUT_NS: u64 = 60 * NS_PER_S;

struct Holes {
    absent: Vec<Range<u64>>,
    absent_parts: Vec<PartId>,
    until: Instant,
    manifest: Option<ManifestShape>,
    links: Vec<LinkConfig>,
    reader: ReaderMode,
    config: ConsumerConfig,
    have: SegmentSet,
    /// What happens to Interests for absent segments.
    unanswered: MissPolicy,
    /// When the first link is down, ns.
    outage: Range<u64>,
}

impl Default for Holes {
    fn default() -> Self {
        Self {
            absent: vec![],
            absent_parts: vec![],
            until: Instant::FAR_FUTURE,
            manifest: None,
            links: vec![LOCAL],
            reader: ReaderMode::None,
            config: ConsumerConfig::default(),
            have: SegmentSet::new(),
            unanswered: MissPolicy::Ignore,
            outage: 0..0,
        }
    }
}

impl Holes {
    fn at(absent: impl IntoIterator<Item = Range<u64>>) -> Self {
        Self { absent: absent.into_iter().collect(), ..Self::default() }
    }

    fn one(absent: Range<u64>) -> Self {
        Self::at(std::iter::once(absent))
    }

    fn count(&self) -> u64 {
        self.absent.iter().map(|range| range.end - range.start).sum()
    }

    fn run(&self) -> Done {
        let mut object = Object::random(COUNT as usize * 100, self.manifest);
        object.absent = self.absent.iter().cloned().flatten().collect();
        object.absent_parts = self.absent_parts.iter().copied().collect();
        object.absent_until = self.until;
        object.unanswered = self.unanswered;
        let mut config = self.config.clone();
        if self.links.len() > 1 {
            config.schedule = PathSchedule::Parallel;
        }
        let mut site = TestNetwork::new(&self.links);
        site.produce(object.origin());
        let Range { start, end } = self.outage;
        if start < end {
            site.builder.fault(start, Fault::LinkDown { link: 0, for_ns: end - start });
        }
        let plan =
            Plan { have: self.have.clone(), reader: self.reader, ..Plan::new(latest(), config) };
        let paths: Vec<usize> = (0..self.links.len()).collect();
        site.consume(plan, &paths);
        site.run()
    }

    /// Checks that everything except the hole arrived, and that the error names the hole.
    fn check(&self) -> Done {
        let done = self.run();
        let fetch = done.fetch(0);
        let missing = incomplete(fetch);
        assert_eq!((missing.segments, missing.missing), (COUNT, self.count()), "{missing}");
        assert_eq!(missing.ranges, self.absent.len() as u64, "{missing}");
        let named = self.absent.len().min(8);
        assert_eq!(missing.first_ranges, self.absent[..named], "{missing}");
        assert_eq!(fetch.have().len(), COUNT - self.count() - self.have.len());
        assert!(self.absent.iter().cloned().flatten().all(|at| !fetch.have().contains(at)));
        done
    }
}

fn incomplete(fetch: &Fetch) -> MissingSegments {
    match fetch.result() {
        Err(ConsumerError::Incomplete(missing)) => *missing,
        other => panic!("{other:?} after {:?}, {:?}", fetch.took(), fetch.stats()),
    }
}

fn assert_ends_by(fetch: &Fetch, end_ns: u64) {
    let took = fetch.took();
    assert!(took <= Instant::from_ns(end_ns), "{took:?} {:?}", fetch.stats());
}

/// The fetch ends within its patience after the time needed to fetch the rest.
fn assert_is_patient(fetch: &Fetch, more_ns: u64) {
    assert_ends_by(fetch, GAP_TIMEOUT_NS + more_ns);
}

#[test]
fn fetches_segments_behind_a_hole() {
    for hole in [50..450, 0..400, COUNT - 400..COUNT, 2000..2001, 1000..4900] {
        let done = Holes::one(hole).check();
        assert_is_patient(done.fetch(0), 20 * NS_PER_S);
    }
}

#[test]
fn fetches_segments_between_many_holes() {
    let long = (0..20).map(|at| at * 250 + 10..at * 250 + 30);
    let done = Holes::at(long).check();
    assert_is_patient(done.fetch(0), 30 * NS_PER_S);
    let short = (0..400).map(|at| at * 12 + 5..at * 12 + 6);
    let done = Holes::at(short).check();
    assert_is_patient(done.fetch(0), 30 * NS_PER_S);
}

#[test]
fn ends_soon_without_a_route() {
    let unanswered = MissPolicy::Nack;
    let holes = Holes { unanswered, ..Holes::at([50..450, 3000..3010]) };
    let done = holes.check();
    assert_eq!(incomplete(done.fetch(0)).reason, FailReason::NoRoute);
    assert_ends_by(done.fetch(0), 15 * NS_PER_S);
}

#[test]
fn ends_soon_if_all_interests_are_refused() {
    let unanswered = MissPolicy::Nack;
    let done = Holes { unanswered, ..Holes::one(0..COUNT) }.run();
    let first = version().append_segment(0).clone();
    assert_eq!(done.fetch(0).result(), Err(ConsumerError::NoRoute(first)));
    assert_ends_by(done.fetch(0), 8 * NS_PER_S);
    let reader = ReaderMode::InOrder;
    let done = Holes { unanswered, reader, ..Holes::one(1000..COUNT) }.run();
    assert_eq!(incomplete(done.fetch(0)).reason, FailReason::NoRoute);
    assert!(done.fetch(0).read_segments().eq(0..1000));
    assert_ends_by(done.fetch(0), 8 * NS_PER_S);
}

#[test]
fn second_fetch_requests_missing_segments() {
    let holes = Holes::at([50..450, 3000..3010]);
    let have = holes.check().fetch(0).have();
    // The producer is still down.
    let done = Holes { have: have.clone(), ..Holes::at([50..450, 3000..3010]) }.run();
    assert_eq!(incomplete(done.fetch(0)).missing, 410);
    assert_is_patient(done.fetch(0), 10 * NS_PER_S);
    let done = Holes { have, ..Holes::default() }.run();
    assert_eq!(done.fetch(0).result(), Ok(()));
    assert_eq!((done.fetch(0).have().len(), done.fetch(0).stats().interests), (410, 411));
}

/// Even with little patience there is time to search behind the hole.
#[test]
fn few_retries_fetch_all_segments() {
    for (retries_max, lifetime_ms) in [(1, 4000), (3, 1000)] {
        let config = ConsumerConfig { retries_max, lifetime_ms, ..ConsumerConfig::default() };
        for hole in [0..400, 50..450] {
            let done = Holes { config: config.clone(), ..Holes::one(hole) }.check();
            assert_ends_by(done.fetch(0), 40 * NS_PER_S);
        }
    }
}

/// Packets arrive one by one, and each continues the search behind the hole. The search ends when
/// its first Interest times out, so the three segments between two probes may be missing.
#[test]
fn single_try_fetches_nearly_all_segments() {
    let config = ConsumerConfig { retries_max: 0, lifetime_ms: 1000, ..ConsumerConfig::default() };
    for hole in [0..400, 50..450] {
        let done = Holes { config: config.clone(), ..Holes::one(hole.clone()) }.run();
        let missing = incomplete(done.fetch(0));
        assert!((400..=403).contains(&missing.missing), "{missing}");
        assert_eq!(missing.first_ranges[0].start, hole.start);
        assert_eq!(missing.ranges, 1, "{missing}");
        assert_ends_by(done.fetch(0), 40 * NS_PER_S);
    }
}

#[test]
fn fetches_the_hole_from_a_recovered_producer() {
    let until = Instant::from_ns(40 * NS_PER_S);
    let holes = Holes { until, ..Holes::at([50..450, 3000..3010, 3100..4900]) };
    let done = holes.run();
    assert_eq!(done.fetch(0).result(), Ok(()));
    assert_eq!(done.fetch(0).have().len(), COUNT);
    assert_ends_by(done.fetch(0), 50 * NS_PER_S);
}

#[test]
fn segments_without_manifest_part_are_missing() {
    for shape in [FLAT, ManifestShape { digests_per_part: 20, levels: 2 }] {
        let mut holes = Holes { manifest: Some(shape), ..Holes::default() };
        holes.absent_parts = vec![PartId::leaf(7), PartId::leaf(100)];
        let done = holes.run();
        let missing = incomplete(done.fetch(0));
        assert_eq!(missing.first_ranges, [140..160, 2000..2020]);
        assert_eq!((missing.missing, missing.manifest_parts), (40, 2));
        assert_eq!(done.fetch(0).have().len(), COUNT - 40);
        assert_is_patient(done.fetch(0), 20 * NS_PER_S);
    }
    // One second-level packet of the manifest covers everything below it.
    let shape = ManifestShape { digests_per_part: 20, levels: 2 };
    let mut holes = Holes { manifest: Some(shape), ..Holes::default() };
    holes.absent_parts = vec![PartId { level: 2, number: 3 }];
    let done = holes.run();
    let missing = incomplete(done.fetch(0));
    assert_eq!((&missing.first_ranges[0], missing.ranges), (&(1200..1600), 1));
    assert_eq!(done.fetch(0).have().len(), COUNT - 400);
    assert_is_patient(done.fetch(0), 20 * NS_PER_S);
}

#[test]
fn fetches_behind_holes_with_a_manifest() {
    for levels in [1, 2] {
        let shape = ManifestShape { digests_per_part: 20, levels };
        let mut holes = Holes { manifest: Some(shape), ..Holes::at([50..450, 3005..3017]) };
        let done = holes.check();
        assert_is_patient(done.fetch(0), 20 * NS_PER_S);
        // The manifest packets that list the hole are missing too.
        holes.absent_parts = (3..22).map(PartId::leaf).collect();
        holes.absent = vec![60..440, 3005..3017];
        let done = holes.check();
        assert_eq!(incomplete(done.fetch(0)).manifest_parts, 19);
        assert_is_patient(done.fetch(0), 20 * NS_PER_S);
        holes.until = Instant::from_ns(30 * NS_PER_S);
        assert_eq!(holes.run().fetch(0).result(), Ok(()));
    }
}

#[test]
fn reader_in_order_gets_all_before_the_hole() {
    for reader_segments_max in [8192, 64] {
        let config = ConsumerConfig { reader_segments_max, ..ConsumerConfig::default() };
        let reader = ReaderMode::InOrder;
        let mut holes = Holes { reader, config, ..Holes::one(1000..1200) };
        let done = holes.run();
        incomplete(done.fetch(0));
        assert!(done.fetch(0).read_segments().eq(0..1000));
        assert_is_patient(done.fetch(0), 20 * NS_PER_S);
        holes.until = Instant::from_ns(40 * NS_PER_S);
        let done = holes.run();
        assert_eq!(done.fetch(0).result(), Ok(()));
        assert!(done.fetch(0).read_segments().eq(0..COUNT));
    }
}

#[test]
fn two_paths_fetch_behind_a_hole() {
    let links = vec![LOCAL, CLEAN];
    let done = Holes { links, ..Holes::at([50..450, 3000..3010]) }.check();
    assert_is_patient(done.fetch(0), 30 * NS_PER_S);
}

fn lossy(probability: f64, link: LinkConfig) -> Vec<LinkConfig> {
    vec![LinkConfig { loss: Loss::Independent { probability }, ..link }]
}

/// Loss and slow answers are not holes: everything arrives, and no segment is set aside for long.
#[test]
fn loss_and_slowness_are_no_holes() {
    for reader in [ReaderMode::None, ReaderMode::InOrder] {
        let done = Holes { reader, links: lossy(0.05, CLEAN), ..Holes::default() }.run();
        assert_eq!(done.fetch(0).result(), Ok(()));
        let slow = LinkConfig { delay_ns: 3 * S / 2, ..CLEAN };
        let done = Holes { reader, links: lossy(0.02, slow), ..Holes::default() }.run();
        assert_eq!(done.fetch(0).result(), Ok(()));
        // An outage of 30 s is not a hole either.
        let rate_bps = Some(PACKET_BITS * 5000);
        let links = vec![LinkConfig { rate_bps, queue_packets_max: 100, ..CLEAN }];
        let outage = S / 2..S / 2 + 30 * S;
        let done = Holes { reader, links, outage, ..Holes::default() }.run();
        assert_eq!(done.fetch(0).result(), Ok(()));
        assert!(
            done.fetch(0).took() > Instant::from_ns(30 * NS_PER_S),
            "the outage was during the fetch"
        );
        assert_ends_by(done.fetch(0), 40 * NS_PER_S);
        // With a hole as well, all other segments arrive.
        let links = lossy(0.05, LOCAL);
        let done = Holes { links, ..Holes::at([50..450, 3000..3010]) }.check();
        assert_is_patient(done.fetch(0), 60 * NS_PER_S);
    }
}

#[test]
fn object_without_any_segment_is_unanswered() {
    let done = Holes::one(0..COUNT).run();
    let first = version().append_segment(0).clone();
    assert_eq!(done.fetch(0).result(), Err(ConsumerError::Unanswered(first)));
    assert_is_patient(done.fetch(0), 5 * NS_PER_S);
}
