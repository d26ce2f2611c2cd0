//! Growing objects: viewers that join at any time, over lossy links.

use std::collections::VecDeque;
use std::ops::Range;

use weir_base::{HashKey, Instant, NS_PER_MS, NS_PER_S, Packet, Rng};
use weir_netem::{LinkConfig, Loss};
use weir_plan::Fault;
use weir_transport::{
    Answer, ConsumerConfig, ConsumerError, LagPolicy, METADATA_KEYWORD, Metadata, ProducerConfig,
    ProducerInput, ReaderMode, Source, Target,
};
use weir_wire::{Component, Data, InterestView};

use super::{CLEAN, Changing, Done, Fetch, Origin, Plan, TestNetwork, object, versioned};
use crate::common::{MS, S};

/// One-way delay.
const DELAY_NS: u64 = 10 * MS;
/// A change of a growing object.
#[derive(Clone, Copy, Debug)]
enum Change {
    /// A segment is produced.
    Make { is_last: bool },
    /// The producer restarts with another version.
    Restart,
    /// From now on, the producer rejects Interests for segments.
    Refuse,
}

/// A growing object: its metadata and its newest segment.
struct Growing {
    version: u64,
    next: u64,
    last: Option<u64>,
    metadata: Packet,
    refuses: bool,
    changes: VecDeque<(Instant, Change)>,
    /// When each segment was produced.
    produced_at: Vec<Instant>,
}

impl Growing {
    fn new(version: u64) -> Self {
        let (metadata, changes) = (Packet::empty(), VecDeque::new());
        let (next, last, refuses, produced_at) = (0, None, false, vec![]);
        let mut growing = Self { version, next, last, metadata, refuses, changes, produced_at };
        growing.sign();
        growing
    }

    fn sign(&mut self) {
        let mut name = object();
        name.append_keyword(METADATA_KEYWORD).append_version(self.next).append_segment(0);
        let metadata = Metadata {
            next_segment: Some(self.next),
            last_segment: self.last,
            ..Metadata::new(versioned(self.version))
        };
        self.metadata = Data::new(name).content(metadata.encode()).encode_with_digest().into();
    }

    fn make(&mut self, is_last: bool, now: Instant) -> Packet {
        let number = self.next;
        (self.next, self.last) = (number + 1, is_last.then_some(number));
        self.produced_at.push(now);
        self.sign();
        let mut data = Data::new(versioned(self.version).append_segment(number).clone());
        if is_last {
            data = data.final_block_id(Component::segment(number));
        }
        data.content(number.to_be_bytes()).encode_with_digest().into()
    }
}

impl Source for Growing {
    fn find(&mut self, interest: &InterestView<'_>) -> Answer {
        if interest.name.last().is_some_and(|last| last.is_keyword(METADATA_KEYWORD)) {
            return Answer::Packet(self.metadata.clone());
        }
        let segment = interest.name.last().and_then(|last| last.as_segment());
        let is_ours = interest.name.parent() == versioned(self.version).as_view();
        match segment {
            Some(segment) if is_ours && segment >= self.next && !self.refuses => Answer::WhenMade,
            _ => Answer::NotFound,
        }
    }
}

impl Changing for Growing {
    fn changes(&mut self, now: Instant) -> Vec<ProducerInput> {
        let mut inputs = Vec::new();
        while let Some((_, change)) = self.changes.pop_front_if(|(at, _)| *at <= now) {
            match change {
                Change::Make { is_last } => {
                    inputs.push(ProducerInput::Put(self.make(is_last, now)));
                }
                Change::Refuse => {
                    self.refuses = true;
                    inputs.push(ProducerInput::RefuseAll);
                }
                Change::Restart => {
                    let changes = std::mem::take(&mut self.changes);
                    *self = Self { changes, ..Self::new(2) };
                }
            }
        }
        inputs
    }

    fn next_change(&self) -> Option<Instant> {
        self.changes.front().map(|(at, _)| *at)
    }
}

/// Viewers of one object, each with its own router and a link to the producer's router.
struct Broadcast {
    growing: Growing,
    links: Vec<LinkConfig>,
    viewers: Vec<Plan>,
    silent_from_ms: Option<u64>,
    config: ProducerConfig,
    seed: u64,
}

impl Broadcast {
    fn new(seed: u64) -> Self {
        let config = ProducerConfig::on_demand(HashKey::new([1, 2]), NS_PER_S);
        Self {
            growing: Growing::new(1),
            links: vec![],
            viewers: vec![],
            silent_from_ms: None,
            config: ProducerConfig { buffer_bytes: 1 << 24, ..config },
            seed,
        }
    }

    fn at_ms(&mut self, ms: u64, change: Change) {
        self.growing.changes.push_back((Instant::from_ns(ms * NS_PER_MS), change));
    }

    /// Produces segments 50 ms apart, from 2 s on.
    fn make_steadily(&mut self, count: u64, has_last: bool) {
        for at in 0..count {
            self.at_ms(2000 + 50 * at, Change::Make { is_last: has_last && at + 1 == count });
        }
    }

    /// A viewer that reads `reads` segments at first, and later only what its plan says.
    fn join(
        &mut self,
        ms: u64,
        from_newest: bool,
        reads: u32,
        config: ConsumerConfig,
    ) -> &mut Plan {
        let target = Target::Latest { object: object(), allow_stored: false };
        self.links.push(LinkConfig { delay_ns: DELAY_NS, ..CLEAN });
        self.viewers.push(Plan {
            seed: 7 + self.viewers.len() as u64,
            starts: Instant::from_ns(ms * NS_PER_MS),
            from_newest,
            reader: ReaderMode::InOrder,
            reads_first: reads,
            reads_on: false,
            ..Plan::new(target, config)
        });
        self.viewers.last_mut().expect("it was pushed")
    }

    fn run(self) -> Done {
        let mut site = TestNetwork::new(&self.links);
        site.builder.plan.seed = self.seed;
        site.produce(Origin::new(self.growing, self.config));
        if let Some(ms) = self.silent_from_ms {
            // The link to the producer follows the links of the paths.
            let link = self.links.len();
            site.builder.fault(ms * MS, Fault::LinkDown { link, for_ns: 600 * S });
        }
        for (path, plan) in self.viewers.into_iter().enumerate() {
            site.consume(plan, &[path]);
        }
        site.run()
    }
}

impl Done {
    fn growing(&self) -> &Origin<Growing> {
        self.origin()
    }

    /// The earliest time at which a viewer can have a segment.
    fn due(&self, segment: u64) -> Instant {
        self.growing().producer.source().produced_at[segment as usize].plus_ns(DELAY_NS)
    }

    fn assert_got(&self, viewer: usize, segments: Range<u64>) {
        let fetch = self.fetch(viewer);
        assert_eq!(fetch.result(), Ok(()), "{:?}", fetch.read.last());
        assert_eq!(fetch.read_segments().collect::<Vec<_>>(), segments.collect::<Vec<_>>());
        for (segment, content) in &fetch.segments {
            assert_eq!(content[..], segment.to_be_bytes());
        }
    }

    /// Each segment from `first` on arrived as soon as it was produced.
    fn assert_on_time(&self, viewer: usize, first: u64) {
        for &(segment, at) in self.fetch(viewer).read.iter().filter(|(it, _)| *it >= first) {
            assert_eq!(at, self.due(segment), "{segment}");
        }
    }
}

fn read(fetch: &Fetch) -> Vec<u64> {
    fetch.read_segments().collect()
}

#[test]
fn viewers_receive_every_segment() {
    let mut broadcast = Broadcast::new(1);
    for (ms, from_newest) in [(1000, true), (2020, true), (7020, true), (7020, false)] {
        broadcast.join(ms, from_newest, 10_000, ConsumerConfig::default());
    }
    broadcast.make_steadily(200, true);
    let done = broadcast.run();
    done.assert_got(0, 0..200);
    // The metadata takes 20 ms to arrive.
    done.assert_got(1, 0..200);
    done.assert_got(2, 100..200);
    done.assert_got(3, 0..200);
    for viewer in 0..4 {
        let stats = done.fetch(viewer).stats();
        assert_eq!((stats.losses, stats.timeouts, stats.decreases, stats.nacks), (0, 0, 0, 0));
        assert_eq!(stats.retransmissions, 0, "no Interest times out");
        assert_eq!(stats.outstanding, 0);
        done.assert_on_time(viewer, 104);
    }
}

#[test]
fn waits_through_long_breaks_with_few_interests() {
    let mut broadcast = Broadcast::new(1);
    broadcast.join(1000, true, 100, ConsumerConfig::default());
    for (ms, is_last) in [(2000, false), (2001, false), (400_000, false), (400_010, true)] {
        broadcast.at_ms(ms, Change::Make { is_last });
    }
    let done = broadcast.run();
    done.assert_got(0, 0..4);
    let stats = done.fetch(0).stats();
    assert_eq!((stats.losses, stats.timeouts, stats.decreases), (0, 0, 0));
    // Two Interests every 4 s, and one for the metadata every 8 s.
    assert_eq!(done.growing().unserved, 0, "the producer knows that more segments follow");
    let interests = done.growing().interests.len();
    assert!((200..300).contains(&interests), "{interests}");
}

#[test]
fn fast_segments_are_requested_further_ahead() {
    let mut broadcast = Broadcast::new(1);
    broadcast.join(1000, true, 100_000, ConsumerConfig::default());
    // One per millisecond: twenty in a round trip.
    for at in 0..5000 {
        broadcast.at_ms(2000 + at, Change::Make { is_last: at == 4999 });
    }
    let done = broadcast.run();
    done.assert_got(0, 0..5000);
    done.assert_on_time(0, 1000);
    assert!(done.fetch(0).stats().outstanding_max <= 64);
}

/// Regression: viewers that had seen fast segments requested further ahead than others until an
/// Interest timed out. Routers aggregate only Interests for the same segments, so the producer got
/// one Interest for each segment and kind of viewer.
#[test]
fn producer_gets_one_interest_per_segment() {
    let mut broadcast = Broadcast::new(1);
    for ms in [1000, 2500, 2815, 2990] {
        broadcast.join(ms, true, 10_000, ConsumerConfig::default());
    }
    // First one in 4 ms, then one in 200 ms.
    for at in 0..200 {
        broadcast.at_ms(2000 + 4 * at, Change::Make { is_last: false });
    }
    for at in 0..150 {
        broadcast.at_ms(3000 + 200 * at, Change::Make { is_last: at == 149 });
    }
    let done = broadcast.run();
    done.assert_got(0, 0..350);
    for segment in 330..350 {
        let name = versioned(1).append_segment(segment).clone();
        let interests = done.growing().interests.iter().filter(|(requested, _)| *requested == name);
        assert_eq!(interests.count(), 1, "{segment}");
    }
}

/// Segments produced together are requested at once, even after a long pause.
#[test]
fn bursts_of_segments_arrive_without_delay() {
    let mut broadcast = Broadcast::new(1);
    broadcast.join(1000, true, 10_000, ConsumerConfig::default());
    for at in 0..2000 {
        broadcast.at_ms(2000 + at / 10 * 100, Change::Make { is_last: at == 1999 });
    }
    let done = broadcast.run();
    done.assert_got(0, 0..2000);
    done.assert_on_time(0, 200);
}

#[test]
fn every_segment_arrives_over_lossy_links() {
    for seed in 0..200 {
        let mut broadcast = Broadcast::new(seed);
        let mut rng = Rng::from_seed(seed + 1000);
        for _ in 0..4 {
            let ms = 1000 + u64::from(rng.below(8000));
            broadcast.join(ms, rng.below(2) == 0, 100_000, ConsumerConfig::default());
        }
        for link in &mut broadcast.links {
            link.loss = Loss::Independent { probability: 0.03 };
        }
        let (count, mut ms) = (100 + u64::from(rng.below(200)), 2000);
        for at in 0..count {
            // Bursts, steady phases and long pauses.
            ms += match rng.below(20) {
                0 => u64::from(rng.below(15_000)),
                1..10 => u64::from(rng.below(100)),
                _ => 0,
            };
            broadcast.at_ms(ms, Change::Make { is_last: at + 1 == count });
        }
        let done = broadcast.run();
        for viewer in 0..4 {
            let fetch = done.fetch(viewer);
            let first = if fetch.plan.from_newest { read(fetch)[0] } else { 0 };
            done.assert_got(viewer, first..count);
        }
    }
}

#[test]
fn slow_reader_resumes_in_order_or_at_newest() {
    for behind in [LagPolicy::InOrder, LagPolicy::Skip] {
        let mut broadcast = Broadcast::new(3);
        let config = ConsumerConfig { reader_segments_max: 8, behind, ..ConsumerConfig::default() };
        // It reads nothing for 10 s, then everything.
        let reads = |ms: u64| (Instant::from_ns((12_000 + 10 * ms) * NS_PER_MS), 4);
        broadcast.join(1900, true, 8, config).reads = (0..4000).map(reads).collect();
        broadcast.make_steadily(400, true);
        let done = broadcast.run();
        let fetch = done.fetch(0);
        assert_eq!(fetch.result(), Ok(()));
        assert!(fetch.stats().outstanding_max <= 8);
        let got = read(fetch);
        assert_eq!(got.last(), Some(&399));
        if behind == LagPolicy::InOrder {
            done.assert_got(0, 0..400);
            continue;
        }
        let gaps = got.windows(2).filter(|pair| pair[1] != pair[0] + 1).count();
        assert_eq!(gaps, 1, "{got:?}");
        // Afterwards it reads the newest segment again.
        let newest = fetch.read.iter().find(|&&(it, at)| it > 100 && at <= done.due(it));
        assert!(newest.unwrap().0 < 215, "{got:?}");
    }
}

/// Twenty segments and then a change: how the viewer of a target ends.
fn ends_after(target: Option<Target>, change: Option<Change>) -> Done {
    let mut broadcast = Broadcast::new(1);
    let viewer = broadcast.join(1000, target.is_none(), 100, ConsumerConfig::default());
    viewer.target = target.unwrap_or(viewer.target.clone());
    broadcast.make_steadily(20, false);
    match change {
        Some(change) => broadcast.at_ms(4000, change),
        None => broadcast.silent_from_ms = Some(4000),
    }
    let done = broadcast.run();
    assert_eq!(read(done.fetch(0))[..20], (0..20).collect::<Vec<_>>());
    assert!(done.fetch(0).took() < Instant::from_ns(29 * NS_PER_S));
    done
}

#[test]
fn restarted_producer_ends_the_earlier_version() {
    let done = ends_after(None, Some(Change::Restart));
    let (versioned, newer) = (versioned(1), versioned(2));
    let error = ConsumerError::Superseded { versioned, newer };
    assert_eq!(done.fetch(0).result(), Err(error));
    assert_eq!(done.fetch(0).read.len(), 20);
    assert!(done.fetch(0).took() < Instant::from_ns(14 * NS_PER_S));
}

#[test]
fn reader_ends_when_producer_stops() {
    let done = ends_after(None, None);
    assert_eq!(done.fetch(0).result(), Err(ConsumerError::Unanswered(object())));
}

#[test]
fn viewer_of_a_known_version_notices_its_end() {
    let known = || {
        let metadata = Metadata { next_segment: Some(0), ..Metadata::new(versioned(1)) };
        Some(Target::KnownMetadata { metadata })
    };
    let superseded = ConsumerError::Superseded { versioned: versioned(1), newer: versioned(2) };
    for (change, expected) in [
        (None, Err(ConsumerError::Unanswered(versioned(1)))),
        (Some(Change::Restart), Err(superseded)),
        (Some(Change::Make { is_last: true }), Ok(())),
    ] {
        assert_eq!(ends_after(known(), change).fetch(0).result(), expected);
    }
}

#[test]
fn refused_future_segments_end_the_reader() {
    let mut broadcast = Broadcast::new(1);
    let config = ProducerConfig::new(HashKey::new([1, 2]));
    broadcast.config = ProducerConfig { buffer_bytes: 1 << 24, ..config };
    broadcast.join(1000, true, 100, ConsumerConfig::default());
    for at in 0..5 {
        broadcast.at_ms(500 + at, Change::Make { is_last: false });
    }
    broadcast.at_ms(1900, Change::Refuse);
    let done = broadcast.run();
    let fetch = done.fetch(0);
    assert_eq!(read(fetch), [4]);
    let stats = fetch.stats();
    assert!(stats.nacks >= 8, "{stats:?}");
    assert_eq!((stats.decreases, stats.losses, stats.timeouts), (0, 0, 0));
    let name = versioned(1).append_segment(5).clone();
    assert_eq!(fetch.result(), Err(ConsumerError::NoRoute(name)));
}
