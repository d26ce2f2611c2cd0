//! A consumer and a catalog joined by a channel that loses, delays, reorders, marks and refuses.

extern crate std;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, BinaryHeap};
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Reverse;

use weir_base::{Instant, NS_PER_MS, NS_PER_S, NS_PER_US, Packet, Rng};
use weir_security::manifest::{PartId, Shape};
use weir_security::{DigestSigner, DigestVerifier, Signer, Verifier, manifest, sha256};
use weir_wire::{
    Component, Data, DataView, InterestView, LpHeader, NackReason, Name, SignatureInfo,
};

use crate::consumer::path::Path;
use crate::consumer::schedule::{Next, Schedule};
use crate::{
    Answer, Catalog, Consumer, ConsumerConfig, ConsumerError, ConsumerEvent, ConsumerInput,
    ConsumerOutbox, ConsumerStats, Controller, Metadata, Part, PathId, PathSchedule, ReaderMode,
    SegmentSet, SegmentTemplate, Source, Target, Unit, Verdict, VerifyOp,
};

mod holes;
mod leads;
mod producer;

use self::producer::Producer;

const FLAT: Shape = Shape { digests_per_part: 20, levels: 1 };
/// Controllers of random cases: a new controller must not change what happens in each.
const CONTROLLERS: [Controller; 3] = [Controller::Cubic, Controller::Aimd, Controller::Fixed];

fn object() -> Name {
    "/test/object".parse().unwrap()
}

fn versioned() -> Name {
    let mut name = object();
    name.append_version(42);
    name
}

fn signed(name: Name, content: Vec<u8>) -> Packet {
    let data = Data::new(name).content(content).final_block_id(Component::segment(0));
    data.encode_signed(&SignatureInfo::new(0), |portions| DigestSigner.sign(portions).unwrap())
        .into()
}

/// Parts of the highest level are signed; those below are listed above.
fn manifest_parts(segments: &[[u8; 32]], shape: Shape) -> Vec<Packet> {
    let (mut packets, mut digests) = (Vec::new(), segments.to_vec());
    for level in 1..=shape.levels {
        let parts = (0..).zip(manifest::encode_parts(&digests, shape, level));
        let parts = parts.map(|(number, content)| {
            let name = manifest::part_name(versioned().as_view(), PartId { level, number });
            match level == shape.levels {
                true => signed(name, content),
                false => unsigned(name, content),
            }
        });
        let parts: Vec<Packet> = parts.collect();
        digests = parts.iter().map(|part| sha256(&[part])).collect();
        packets.extend(parts);
    }
    packets
}

fn unsigned(name: Name, content: Vec<u8>) -> Packet {
    Data::new(name).content(content).encode_signed(&SignatureInfo::new(200), |_| vec![]).into()
}

fn chunk(content: &[u8], size: usize, segment: u64) -> &[u8] {
    let start = segment as usize * size;
    &content[start..content.len().min(start + size)]
}

/// What the channel does to packets.
#[derive(Clone, Debug)]
struct Channel {
    delay_ns: u64,
    jitter_ns: u64,
    /// Per thousand, of each packet in each direction.
    lost: u32,
    marked: u32,
    nacked: u32,
    /// Time to serialize one Data; they queue.
    data_ns: u64,
    /// Data that wait at most.
    queue_max: u64,
    /// What nobody has is refused for want of a route: by the first router, or by one that lies
    /// behind this face of it.
    no_route: Option<Option<u64>>,
    /// The router refuses everything for want of a route.
    refuses: bool,
    /// Per thousand Data that come with an octet changed.
    damaged: u32,
}

/// Something that reaches the consumer later.
enum Arrival {
    Packet(PathId, LpHeader, Packet),
    Verified(VerifyOp),
    Removed(PathId),
    /// The path comes back, as a new one.
    Added(PathId),
    /// From now on this is what the path does to packets.
    Changed(PathId, Channel),
}

struct Outcome {
    content: Vec<u8>,
    stats: ConsumerStats,
    took: Instant,
    result: Result<(), ConsumerError>,
    is_stored: bool,
    /// Interests sent by path.
    sent: BTreeMap<PathId, u64>,
    /// Segments verified, and those handed to the reader.
    have: SegmentSet,
    read: Vec<u64>,
}

struct Simulation<'a> {
    producer: Option<&'a mut Producer>,
    /// What the consumer is told first.
    inputs: Vec<ConsumerInput>,
    /// By the number of the path.
    channels: Vec<Channel>,
    rng: Rng,
    consumer: Consumer,
    now: Instant,
    link_free_at: Vec<Instant>,
    sequence: u64,
    arrivals: BinaryHeap<Reverse<(Instant, u64)>>,
    arriving: BTreeMap<u64, Arrival>,
    segments: BTreeMap<u64, Vec<u8>>,
    /// How long a verification takes.
    verify_ns: u64,
    is_stored: bool,
    /// Interests sent by path.
    sent: BTreeMap<PathId, u64>,
    reader: ReaderMode,
    /// Segments handed to the reader.
    read: Vec<u64>,
}

impl<'a> Simulation<'a> {
    fn new(
        producer: Option<&'a mut Producer>,
        channel: Channel,
        target: Target,
        config: ConsumerConfig,
        seed: u64,
    ) -> Self {
        let consumer = Consumer::new(target, config, seed, Instant::ZERO);
        Self::with_paths(producer, vec![channel], consumer, seed)
    }

    /// A simulation with one path for each channel.
    fn with_paths(
        producer: Option<&'a mut Producer>,
        channels: Vec<Channel>,
        consumer: Consumer,
        seed: u64,
    ) -> Self {
        let paths = 0..channels.len() as u16;
        let inputs = paths
            .map(|path| ConsumerInput::AddPath {
                path: PathId(path),
                window: None,
                is_local: false,
            })
            .collect();
        Self {
            producer,
            inputs,
            link_free_at: vec![Instant::ZERO; channels.len()],
            channels,
            rng: Rng::from_seed(seed ^ 0x5eed),
            consumer,
            now: Instant::ZERO,
            sequence: 0,
            arrivals: BinaryHeap::new(),
            arriving: BTreeMap::new(),
            segments: BTreeMap::new(),
            verify_ns: 0,
            is_stored: false,
            sent: BTreeMap::new(),
            reader: ReaderMode::None,
            read: Vec::new(),
        }
    }

    fn chance(&mut self, per_thousand: u32) -> bool {
        self.rng.below(1000) < per_thousand
    }

    /// The Interest reaches the producer at once; what comes back is delayed for both ways.
    fn interest(&mut self, path: PathId, wire: &[u8]) {
        *self.sent.entry(path).or_default() += 1;
        let channel = self.channels[usize::from(path.0)].clone();
        if self.chance(channel.lost) {
            return;
        }
        let jitter = u64::from(self.rng.below((channel.jitter_ns / 1000) as u32 + 1)) * 1000;
        let mut at = self.now.plus_ns(channel.delay_ns + jitter);
        if channel.refuses || self.chance(channel.nacked) {
            let reason = match self.rng.below(3) {
                _ if channel.refuses => NackReason::NoRoute,
                0 => NackReason::Duplicate,
                1 => NackReason::NoRoute,
                _ => NackReason::Congestion,
            };
            let header = LpHeader { nack: Some(reason), ..LpHeader::default() };
            return self.arrive(at, Arrival::Packet(path, header, wire.into()));
        }
        let interest = InterestView::decode(wire).unwrap();
        assert!(interest.nonce.is_some());
        let answer = match &mut self.producer {
            Some(producer) if producer.is_absent(&interest, self.now) => None,
            Some(producer) => producer.answer(&interest),
            None => None,
        };
        let Some(mut packet) = answer else {
            if let Some(incoming_face) = channel.no_route {
                let nack = Some(NackReason::NoRoute);
                let header = LpHeader { nack, incoming_face, ..LpHeader::default() };
                self.arrive(at, Arrival::Packet(path, header, wire.into()));
            }
            return;
        };
        if channel.data_ns > 0 {
            let free_at = &mut self.link_free_at[usize::from(path.0)];
            let start = (*free_at).max(at);
            if start.ns_since(at) > channel.queue_max * channel.data_ns {
                return;
            }
            *free_at = start.plus_ns(channel.data_ns);
            at = *free_at;
        }
        if self.chance(channel.lost) {
            return;
        }
        let is_metadata = interest.can_be_prefix;
        if self.chance(channel.damaged) && !is_metadata {
            // The signature is the last element.
            let mut octets = packet.to_vec();
            *octets.last_mut().unwrap() ^= 1;
            packet = octets.into();
        }
        let congestion_mark = u64::from(self.chance(channel.marked));
        let header = LpHeader { congestion_mark, ..LpHeader::default() };
        self.arrive(at, Arrival::Packet(path, header, packet));
    }

    fn arrive(&mut self, at: Instant, arrival: Arrival) {
        self.sequence += 1;
        self.arrivals.push(Reverse((at, self.sequence)));
        self.arriving.insert(self.sequence, arrival);
    }

    /// The driver's thread has verified a packet and keeps its content.
    fn verified(&mut self, op: &VerifyOp) -> Verdict {
        let data = DataView::decode(&op.packet).unwrap();
        let verdict = op.check.run(&data);
        if let (Verdict::Good, Part::Unit(unit)) = (&verdict, op.part) {
            let previous = self.segments.insert(unit.chunk, data.content.to_vec());
            assert!(previous.is_none(), "{unit:?} came twice");
        }
        verdict
    }

    /// What has arrived by now, but for what comes by paths that are no more.
    fn take_arrivals(&mut self, removed: &mut Vec<PathId>, inputs: &mut Vec<ConsumerInput>) {
        while let Some(&Reverse((at, sequence))) = self.arrivals.peek()
            && at <= self.now
        {
            self.arrivals.pop();
            inputs.push(match self.arriving.remove(&sequence).unwrap() {
                Arrival::Packet(path, ..) if removed.contains(&path) => continue,
                Arrival::Packet(path, header, packet) => {
                    ConsumerInput::Packet { path, header, packet }
                }
                Arrival::Verified(op) => {
                    ConsumerInput::Verified { op: op.op, verdict: self.verified(&op) }
                }
                Arrival::Removed(path) => {
                    removed.push(path);
                    ConsumerInput::RemovePath { path }
                }
                Arrival::Added(path) => {
                    removed.retain(|&other| other != path);
                    ConsumerInput::AddPath { path, window: None, is_local: false }
                }
                Arrival::Changed(path, channel) => {
                    self.channels[usize::from(path.0)] = channel;
                    continue;
                }
            });
        }
    }

    fn run(mut self, have: &SegmentSet) -> Outcome {
        let mut inputs = core::mem::take(&mut self.inputs);
        let mut out = ConsumerOutbox::default();
        let (mut idle, mut steps) = (0, 0);
        let mut removed = Vec::new();
        let result = loop {
            self.consumer.handle(self.now, &mut inputs, &mut out);
            // What waits for an answer that does not come makes long lists.
            steps += 1;
            if steps < 10_000 || steps % 64 == 0 {
                self.consumer.assert_consistent();
            }
            let interests: Vec<(PathId, Vec<u8>)> =
                out.interests.iter().map(|(path, wire)| (path, wire.to_vec())).collect();
            out.interests.clear();
            for (path, interest) in interests {
                self.interest(path, &interest);
            }
            for op in core::mem::take(&mut out.verify) {
                self.arrive(self.now.plus_ns(self.verify_ns), Arrival::Verified(op));
            }
            for delivery in out.deliveries.drain(..) {
                let Part::Unit(unit) = delivery.part else { panic!("{delivery:?}") };
                self.read.push(unit.chunk);
                inputs.push(ConsumerInput::Read { units: 1 });
            }
            let mut ended = None;
            for event in out.events.drain(..) {
                match event {
                    ConsumerEvent::Found { is_stored, .. } => {
                        self.is_stored = is_stored;
                        let reader = self.reader;
                        inputs.push(ConsumerInput::Start { have: have.clone(), reader });
                        inputs.push(ConsumerInput::Read { units: 10 });
                    }
                    ConsumerEvent::NeedKey { key, .. } => {
                        inputs.push(ConsumerInput::Key { key, verifier: Ok(digest_verifier()) });
                    }
                    ConsumerEvent::Done => ended = Some(Ok(())),
                    ConsumerEvent::Failed(error) => ended = Some(Err(error)),
                    _ => {}
                }
            }
            if let Some(result) = ended {
                assert!(self.consumer.is_over());
                break result;
            }
            if !inputs.is_empty() {
                continue;
            }
            let wakeup = self.consumer.next_wakeup().unwrap_or(Instant::FAR_FUTURE);
            let arrival = self.arrivals.peek().map_or(Instant::FAR_FUTURE, |next| next.0.0);
            let next = wakeup.min(arrival);
            idle = if next > self.now { 0 } else { idle + 1 };
            assert!(idle < 1000, "no progress: {:?}", self.consumer);
            assert!(next < Instant::from_ns(3600 * NS_PER_S), "stuck: {:?}", self.consumer);
            self.now = self.now.max(next);
            self.take_arrivals(&mut removed, &mut inputs);
        };
        self.outcome(result)
    }

    fn outcome(self, result: Result<(), ConsumerError>) -> Outcome {
        let mut have = SegmentSet::new();
        self.segments.keys().for_each(|&segment| {
            have.insert(segment);
        });
        Outcome {
            have,
            read: self.read,
            content: self.segments.into_values().flatten().collect(),
            stats: self.consumer.stats(),
            sent: self.sent,
            took: self.now,
            result,
            is_stored: self.is_stored,
        }
    }
}

pub(crate) fn digest_verifier() -> Arc<dyn Verifier> {
    Arc::new(DigestVerifier)
}

fn random_octets(rng: &mut Rng, len: usize) -> Vec<u8> {
    let mut octets = vec![0; len];
    rng.fill(&mut octets);
    octets
}

fn latest() -> Target {
    Target::Latest { object: object(), allow_stored: true }
}

const CLEAN: Channel = Channel {
    delay_ns: 10 * NS_PER_MS,
    jitter_ns: 0,
    lost: 0,
    marked: 0,
    nacked: 0,
    data_ns: 0,
    queue_max: 0,
    no_route: None,
    refuses: false,
    damaged: 0,
};

/// Takes the paths in turn.
struct InTurn(usize);

impl Schedule for InTurn {
    fn choose(&mut self, paths: &[Path], _next: Next, now: Instant) -> Option<usize> {
        let turns = (0..paths.len()).map(|step| (self.0 + step) % paths.len());
        let chosen = turns.into_iter().find(|&at| paths[at].may_send(now))?;
        self.0 = chosen + 1;
        Some(chosen)
    }
}

/// Fetches over several paths in turn; the path of each number in `removed` goes at that time.
fn over_paths(
    channels: Vec<Channel>,
    removed: &[(PathId, u64)],
    config: ConsumerConfig,
    seed: u64,
) -> Outcome {
    let content = random_octets(&mut Rng::from_seed(seed), 60_000);
    let mut producer = Producer::new(content.clone(), 100, seed.is_multiple_of(2).then_some(FLAT));
    let schedule = Box::new(InTurn(0));
    let consumer = Consumer::with_schedule(latest(), config, seed, Instant::ZERO, schedule);
    let mut simulation = Simulation::with_paths(Some(&mut producer), channels, consumer, seed);
    for &(path, at_ns) in removed {
        simulation.arrive(Instant::from_ns(at_ns), Arrival::Removed(path));
    }
    let outcome = simulation.run(&SegmentSet::new());
    assert_eq!(outcome.result, Ok(()), "seed {seed}");
    assert!(outcome.content == content, "seed {seed}");
    outcome
}

#[test]
fn two_paths_share_the_work() {
    let outcome = over_paths(vec![CLEAN, CLEAN], &[], ConsumerConfig::default(), 1);
    assert_eq!(outcome.stats.retransmissions, 0, "{:?}", outcome.stats);
    let (one, other) = (outcome.sent[&PathId(0)], outcome.sent[&PathId(1)]);
    assert!(one.abs_diff(other) <= 2, "{one} {other}");
}

/// Content of 100 octets in each segment.
const SEGMENTS: usize = 30_000;
/// 40 and 80 Mbit/s of packets of 1000 octets, with queues of 20 ms.
const SLOW: Channel = Channel { data_ns: 200 * NS_PER_US, queue_max: 100, ..CLEAN };
const FAST: Channel = Channel { data_ns: 100 * NS_PER_US, queue_max: 200, ..CLEAN };

/// Fetches over all paths at once; what befalls them when is in `mishaps`.
fn in_parallel(
    channels: &[Channel],
    mishaps: impl IntoIterator<Item = (u64, Arrival)>,
    config: ConsumerConfig,
) -> Outcome {
    let content = vec![7; 100 * SEGMENTS];
    let mut producer = Producer::new(content, 100, None);
    let config = ConsumerConfig { schedule: PathSchedule::Parallel, ..config };
    let consumer = Consumer::new(latest(), config, 1, Instant::ZERO);
    let channels = channels.to_vec();
    let mut simulation = Simulation::with_paths(Some(&mut producer), channels, consumer, 1);
    for (at_ms, mishap) in mishaps {
        simulation.arrive(Instant::from_ns(at_ms * NS_PER_MS), mishap);
    }
    let outcome = simulation.run(&SegmentSet::new());
    assert_eq!(outcome.result, Ok(()));
    assert_eq!(outcome.content.len(), 100 * SEGMENTS);
    outcome
}

/// The part of what the paths can carry, given as segments in all the time that it took, that was
/// used.
fn used(outcome: &Outcome, capacity: impl Fn(f64) -> f64) -> f64 {
    SEGMENTS as f64 / capacity(outcome.took.as_ns() as f64 / 1e9)
}

#[test]
fn two_paths_in_parallel_carry_what_both_can() {
    let outcome = in_parallel(&[SLOW, FAST], [], ConsumerConfig::default());
    let share = used(&outcome, |seconds| 15_000.0 * seconds);
    assert!(share > 0.97, "{share} {:?}", outcome.stats);
}

/// Nothing tells that the fast path is dead; it comes back after half a second.
#[test]
fn a_path_that_dies_does_not_hold_the_others_up() {
    let dead = Channel { lost: 1000, ..FAST };
    let mishaps =
        [(1000, Arrival::Changed(PathId(1), dead)), (1500, Arrival::Changed(PathId(1), FAST))];
    let outcome = in_parallel(&[SLOW, FAST], mishaps, ConsumerConfig::default());
    // Timeouts of 200 and 400 ms pass; it is tried in vain at 1.4 s, and with success at 1.8 s.
    let share = used(&outcome, |seconds| 15_000.0 * seconds - 0.8 * 10_000.0);
    assert!(share > 0.93, "{share} {:?}", outcome.stats);

    let mishaps = [(1000, Arrival::Removed(PathId(1))), (2000, Arrival::Added(PathId(1)))];
    let outcome = in_parallel(&[SLOW, FAST], mishaps, ConsumerConfig::default());
    let share = used(&outcome, |seconds| 15_000.0 * seconds - 10_000.0);
    // It begins anew.
    assert!(share > 0.95, "{share} {:?}", outcome.stats);
}

/// Whichever path it is that has no route from the start, the other carries all that it can.
#[test]
fn a_path_without_a_route_does_not_hold_the_others_up() {
    let refusing = Channel { refuses: true, ..CLEAN };
    for channels in [[refusing.clone(), FAST], [FAST, refusing]] {
        let outcome = in_parallel(&channels, [], ConsumerConfig::default());
        let share = used(&outcome, |seconds| 10_000.0 * seconds);
        assert!(share > 0.95, "{share} {:?}", outcome.stats);
        // It is tried once in a second, before that some more.
        assert!(outcome.stats.nacks < 100, "{:?}", outcome.stats);
    }
}

#[test]
fn a_path_that_never_answers_does_not_hold_the_others_up() {
    let silent = Channel { lost: 1000, ..CLEAN };
    for channels in [[silent.clone(), FAST], [FAST, silent]] {
        let outcome = in_parallel(&channels, [], ConsumerConfig::default());
        // The name of the version may be asked for there first, for a second.
        let share = used(&outcome, |seconds| 10_000.0 * (seconds - 1.0).max(0.1));
        assert!(share > 0.95, "{share} {:?}", outcome.stats);
    }
}

#[test]
fn what_no_path_has_a_route_to_fails() {
    let refusing = Channel { refuses: true, ..CLEAN };
    for channels in [vec![refusing.clone()], vec![refusing; 3]] {
        let count = channels.len() as u64;
        let target = Target::Version { versioned: versioned() };
        let config =
            ConsumerConfig { schedule: PathSchedule::Parallel, ..ConsumerConfig::default() };
        let consumer = Consumer::new(target, config, 1, Instant::ZERO);
        let outcome = Simulation::with_paths(None, channels, consumer, 1).run(&SegmentSet::new());
        assert!(matches!(outcome.result, Err(ConsumerError::NoRoute(_))), "{:?}", outcome.result);
        assert_eq!(outcome.sent.len() as u64, count, "each has been asked");
    }
}

#[test]
fn a_path_that_halves_is_used_for_what_it_can() {
    let half = Channel { data_ns: 2 * FAST.data_ns, queue_max: 100, ..FAST };
    let mishaps = [(1000, Arrival::Changed(PathId(1), half))];
    let outcome = in_parallel(&[SLOW, FAST], mishaps, ConsumerConfig::default());
    let share = used(&outcome, |seconds| 10_000.0 * seconds + 5_000.0);
    assert!(share > 0.97, "{share} {:?}", outcome.stats);
}

#[test]
fn what_is_in_flight_on_a_path_that_goes_is_asked_for_on_another() {
    let window = ConsumerConfig {
        controller: Controller::Fixed,
        window: Some(20),
        ..ConsumerConfig::default()
    };
    let at_ns = 55 * NS_PER_MS;
    let outcome = over_paths(vec![CLEAN, CLEAN], &[(PathId(1), at_ns)], window.clone(), 1);
    assert!((1..=20).contains(&outcome.stats.retransmissions), "{:?}", outcome.stats);
    assert_eq!((outcome.stats.timeouts, outcome.stats.decreases), (0, 0));
    // The only path goes before the first answer; the other one stands by.
    let outcome = over_paths(vec![CLEAN, CLEAN], &[(PathId(0), NS_PER_MS)], window, 1);
    assert_eq!(outcome.sent[&PathId(0)], 1);
}

#[test]
fn a_slow_path_is_not_taken_for_a_lossy_one() {
    let slow = Channel { delay_ns: 200 * NS_PER_MS, ..CLEAN };
    let outcome = over_paths(vec![CLEAN, slow], &[], ConsumerConfig::default(), 1);
    assert_eq!(outcome.stats.losses, 0, "{:?}", outcome.stats);
    assert_eq!(outcome.stats.timeouts, 0, "{:?}", outcome.stats);
}

#[test]
fn a_path_that_loses_shrinks_its_own_window_alone() {
    let lossy = Channel { lost: 100, ..CLEAN };
    let outcome = over_paths(vec![CLEAN, lossy], &[], ConsumerConfig::default(), 1);
    let (clean, lossy) = (outcome.sent[&PathId(0)], outcome.sent[&PathId(1)]);
    assert!(lossy > 20 && clean > 2 * lossy, "{clean} {lossy}");
}

/// Every unit comes once, whatever two paths do; in-flight counts and windows are held against the
/// slots after every step.
#[test]
fn two_random_paths_deliver_every_unit_once() {
    for seed in 0..60 {
        let mut rng = Rng::from_seed(seed);
        let mut channel = || Channel {
            delay_ns: u64::from(1 + rng.below(100)) * NS_PER_MS,
            jitter_ns: u64::from(rng.below(50)) * NS_PER_MS,
            lost: rng.below(100),
            marked: rng.below(20),
            nacked: rng.below(20),
            data_ns: u64::from(rng.below(200)) * NS_PER_US,
            queue_max: 1 + u64::from(rng.below(500)),
            no_route: None,
            refuses: false,
            damaged: rng.below(10),
        };
        let channels = vec![channel(), channel()];
        let config = ConsumerConfig {
            controller: CONTROLLERS[seed as usize % CONTROLLERS.len()],
            window_max: 1 + rng.below(1000),
            reader_units_max: 1 + rng.below(1000),
            retries_max: 100,
            chunk_units: CHUNKS[seed as usize % CHUNKS.len()],
            ..ConsumerConfig::default()
        };
        let gone = (PathId(rng.below(2) as u16), u64::from(rng.below(2000)) * NS_PER_MS);
        let removed = if seed % 3 == 0 { vec![gone] } else { Vec::new() };
        over_paths(channels, &removed, config, seed);
    }
}

/// Units of a chunk, in random cases.
const CHUNKS: [u32; 5] = [1, 1, 3, 32, 100];

fn random_case(seed: u64) -> (Outcome, Vec<u8>) {
    let mut rng = Rng::from_seed(seed);
    let segment_size = 1 + rng.below(200) as usize;
    let len = rng.below(60_000) as usize;
    let content = random_octets(&mut rng, len);
    let levels = 1 + (seed / 2 % 2) as u8;
    let manifest = (rng.below(2) == 0).then_some(Shape { levels, ..FLAT });
    let mut producer = Producer::new(content.clone(), segment_size, manifest);
    let delay_ns =
        u64::from(1 + rng.below(100)) * if rng.below(2) == 0 { NS_PER_US } else { NS_PER_MS };
    let channel = Channel {
        delay_ns,
        jitter_ns: delay_ns * u64::from(rng.below(4)),
        lost: rng.below(100),
        marked: rng.below(20),
        nacked: rng.below(20),
        data_ns: u64::from(rng.below(200)) * NS_PER_US,
        queue_max: 1 + u64::from(rng.below(500)),
        no_route: (rng.below(2) == 0).then_some(None),
        refuses: false,
        damaged: rng.below(10),
    };
    let config = ConsumerConfig {
        controller: CONTROLLERS[seed as usize % CONTROLLERS.len()],
        window_max: 1 + rng.below(1000),
        reader_units_max: 1 + rng.below(1000),
        retries_max: 100,
        chunk_units: CHUNKS[seed as usize % CHUNKS.len()],
        ..ConsumerConfig::default()
    };
    let target = match rng.below(3) {
        0 => Target::Version { versioned: versioned() },
        1 => Target::Prefix { name: object() },
        _ => latest(),
    };
    let mut simulation = Simulation::new(Some(&mut producer), channel, target, config, seed);
    simulation.verify_ns = u64::from(rng.below(3)) * NS_PER_MS;
    (simulation.run(&SegmentSet::new()), content)
}

#[test]
fn every_object_is_delivered_identical_whatever_the_channel_does() {
    for seed in 0..200 {
        let (outcome, content) = random_case(seed);
        assert_eq!(outcome.result, Ok(()), "seed {seed}");
        assert!(outcome.content == content, "seed {seed}");
    }
}

#[test]
fn one_seed_has_one_result() {
    for seed in [3, 77, 140] {
        let (one, other) = (random_case(seed).0, random_case(seed).0);
        assert_eq!(one.took, other.took, "seed {seed}");
        assert_eq!(
            std::format!("{:?}", one.stats),
            std::format!("{:?}", other.stats),
            "seed {seed}"
        );
    }
}

fn fetch(size: usize, channel: Channel, config: ConsumerConfig) -> Outcome {
    let content = random_octets(&mut Rng::from_seed(1), size);
    let mut producer = Producer::new(content.clone(), 100, Some(FLAT));
    let outcome =
        Simulation::new(Some(&mut producer), channel, latest(), config, 1).run(&SegmentSet::new());
    assert_eq!(outcome.result, Ok(()));
    assert!(outcome.content == content);
    outcome
}

#[test]
fn a_clean_channel_needs_one_interest_a_packet() {
    let outcome = fetch(100_000, CLEAN, ConsumerConfig::default());
    // 1000 segments, 50 manifest parts, the metadata.
    assert_eq!(outcome.stats.interests, 1051);
    assert_eq!(outcome.stats.retransmissions, 0);
    assert_eq!(outcome.stats.rtt_min_ns, Some(10 * NS_PER_MS));
    // Slow start from 10: discovery and seven round trips.
    assert!(outcome.took <= Instant::from_ns(90 * NS_PER_MS), "{:?}", outcome.took);
}

#[test]
fn single_losses_do_not_wait_for_the_timeout() {
    let channel = Channel { lost: 5, ..CLEAN };
    let config = ConsumerConfig {
        controller: Controller::Fixed,
        window: Some(50),
        ..ConsumerConfig::default()
    };
    let outcome = fetch(300_000, channel, config);
    assert!(outcome.stats.losses >= 10, "{:?}", outcome.stats);
    assert!(outcome.stats.timeouts <= 2, "{:?}", outcome.stats);
    // 63 windows of 10 ms, and little more; each timeout would be 200 ms.
    assert!(outcome.took < Instant::from_ns(1500 * NS_PER_MS), "{:?}", outcome.took);
}

#[test]
fn reordering_is_learnt() {
    let channel = Channel { jitter_ns: 30 * NS_PER_MS, ..CLEAN };
    let outcome = fetch(300_000, channel, ConsumerConfig::default());
    assert!(outcome.stats.retransmissions < 150, "{:?}", outcome.stats);
}

#[test]
fn a_bottleneck_is_filled_without_many_losses() {
    for controller in [Controller::Cubic, Controller::Aimd] {
        // 10 segments a millisecond, a queue of 100, a base of 10 ms: the path holds 200.
        let channel = Channel { data_ns: 100 * NS_PER_US, queue_max: 100, ..CLEAN };
        let config = ConsumerConfig { controller, ..ConsumerConfig::default() };
        let outcome = fetch(2_000_000, channel, config);
        // 20 000 segments and 1000 parts take 2.1 s at best.
        assert!(
            outcome.took < Instant::from_ns(2700 * NS_PER_MS),
            "{controller}: {:?}",
            outcome.took
        );
        let stats = outcome.stats;
        assert!(stats.retransmissions < 800, "{controller}: {stats:?}");
    }
}

#[test]
fn nobody_there_is_said_in_time() {
    let config = ConsumerConfig::default();
    let outcome = Simulation::new(None, CLEAN, latest(), config, 1).run(&SegmentSet::new());
    let mut name = object();
    assert_eq!(outcome.result, Err(ConsumerError::Unanswered(name.clone())));
    assert!(outcome.took <= Instant::from_ns(14 * NS_PER_S), "{:?}", outcome.took);

    // Without a route at the first router, at once; behind it, for as long as a producer may take
    // to come up again.
    for (no_route, error, waited_ms) in [
        (Some(None), ConsumerError::NoRoute(name.clone()), 10..=100),
        (Some(Some(258)), ConsumerError::NoRouteBeyond(name.clone()), 2500..=3500),
    ] {
        let config = ConsumerConfig::default();
        let absent = Channel { no_route, ..CLEAN };
        let outcome = Simulation::new(None, absent, latest(), config, 1).run(&SegmentSet::new());
        assert_eq!(outcome.result, Err(error));
        let took_ms = outcome.took.as_ns() / NS_PER_MS;
        assert!(waited_ms.contains(&took_ms), "{took_ms}");
    }

    let refusing = Channel { nacked: 1000, ..CLEAN };
    let target = Target::Version { versioned: name.append_version(42).clone() };
    for seed in 0..20 {
        let config = ConsumerConfig::default();
        let outcome = Simulation::new(None, refusing.clone(), target.clone(), config, seed)
            .run(&SegmentSet::new());
        assert!(outcome.result.is_err());
        assert!(outcome.took <= Instant::from_ns(14 * NS_PER_S), "{:?}", outcome.took);
    }
}

#[test]
fn what_is_there_is_not_fetched_again() {
    let content = random_octets(&mut Rng::from_seed(1), 10_000);
    let mut producer = Producer::new(content, 100, Some(FLAT));
    let mut have = SegmentSet::new();
    for segment in (0..40).chain(60..80) {
        have.insert(segment);
    }
    for (target, extra) in [(latest(), 1), (Target::Version { versioned: versioned() }, 2)] {
        let outcome =
            Simulation::new(Some(&mut producer), CLEAN, target, ConsumerConfig::default(), 1)
                .run(&have);
        assert_eq!(outcome.result, Ok(()));
        assert_eq!(outcome.content.len(), 4000);
        // 40 segments and the two parts that list them; a version alone costs a look at segment 0
        // and part 0.
        assert_eq!(outcome.stats.interests, 42 + extra);
    }
}

/// Drops what would need a fresh answer.
#[test]
fn a_store_answers_when_the_producer_does_not() {
    let content = random_octets(&mut Rng::from_seed(1), 10_000);
    let mut producer = Producer::new(content.clone(), 100, Some(FLAT));
    let mut simulation = Simulation::new(None, CLEAN, latest(), ConsumerConfig::default(), 1);
    // Nobody answers for the seven seconds in which the consumer asks for fresh metadata.
    let mut inputs = core::mem::take(&mut simulation.inputs);
    let mut out = ConsumerOutbox::default();
    while simulation.now < Instant::from_ns(10 * NS_PER_S) {
        simulation.consumer.handle(simulation.now, &mut inputs, &mut out);
        for (_, wire) in out.interests.iter() {
            assert!(InterestView::decode(wire).unwrap().must_be_fresh);
        }
        out.interests.clear();
        simulation.now = simulation.consumer.next_wakeup().unwrap();
    }
    simulation.producer = Some(&mut producer);
    let outcome = simulation.run(&SegmentSet::new());
    assert_eq!(outcome.result, Ok(()));
    assert!(outcome.is_stored);
    assert!(outcome.content == content);
}

#[test]
fn one_data_may_be_the_whole_object() {
    let packet = signed(object(), b"all of it".to_vec());
    let mut consumer = Consumer::new(
        Target::Prefix { name: object() },
        ConsumerConfig::default(),
        1,
        Instant::ZERO,
    );
    let path = PathId(0);
    let mut inputs = vec![ConsumerInput::AddPath { path, window: None, is_local: false }];
    let mut out = ConsumerOutbox::default();
    consumer.handle(Instant::ZERO, &mut inputs, &mut out);
    for round in 0..2 {
        assert_eq!(out.interests.len(), 1);
        let interest = InterestView::decode(out.interests.iter().next().unwrap().1).unwrap();
        assert_eq!(interest.name, object().as_view());
        out.interests.clear();
        let header = LpHeader::default();
        inputs.push(ConsumerInput::Packet { path, header, packet: packet.clone() });
        if round == 0 {
            inputs.push(ConsumerInput::Start { have: SegmentSet::new(), reader: ReaderMode::None });
        }
        consumer.handle(Instant::ZERO, &mut inputs, &mut out);
    }
    let Some(ConsumerEvent::NeedKey { key, .. }) = out.events.pop() else { panic!("{out:?}") };
    inputs.push(ConsumerInput::Key { key, verifier: Ok(digest_verifier()) });
    consumer.handle(Instant::ZERO, &mut inputs, &mut out);
    let op = out.verify.pop().unwrap();
    assert_eq!((op.part, out.verify.len()), (Part::Unit(Unit::segment(0)), 0));
    inputs.push(ConsumerInput::Verified { op: op.op, verdict: Verdict::Good });
    consumer.handle(Instant::ZERO, &mut inputs, &mut out);
    assert!(consumer.is_over());
}

#[test]
fn garbage_is_counted_and_nothing_more() {
    let mut rng = Rng::from_seed(5);
    let mut consumer = Consumer::new(latest(), ConsumerConfig::default(), 1, Instant::ZERO);
    let mut out = ConsumerOutbox::default();
    for i in 0..1000 {
        let len = rng.below(200) as usize;
        let packet = random_octets(&mut rng, len).into();
        let nack = (i % 2 == 0).then_some(NackReason::NoRoute);
        let header = LpHeader { nack, ..LpHeader::default() };
        let mut inputs = vec![ConsumerInput::Packet { path: PathId(0), header, packet }];
        consumer.handle(Instant::ZERO, &mut inputs, &mut out);
    }
    assert_eq!(consumer.stats().malformed, 1000);
    assert!(out.deliveries.is_empty() && out.events.is_empty());
}
