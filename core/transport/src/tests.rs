//! A fetcher and a catalog joined by a channel that loses, delays, reorders, marks and refuses.

extern crate std;

use alloc::collections::{BTreeMap, BinaryHeap};
use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Reverse;

use weir_base::{Instant, NS_PER_MS, NS_PER_S, NS_PER_US, Packet, Rng};
use weir_security::manifest::{self, DigestCheck, DigestManifest};
use weir_security::{DigestSigner, Signer, sha256};
use weir_wire::{
    Component, Data, DataView, InterestView, LpHeader, NackReason, Name, SignatureInfo,
};

use crate::{
    Answer, Catalog, Controller, FetchConfig, FetchError, FetchEvent, FetchInput, FetchOutbox,
    FetchStats, Fetcher, Metadata, Part, SegmentSet, SegmentTemplate, Target,
};

const DIGESTS_PER_PART: usize = 20;

/// An object with its metadata and, perhaps, its manifest.
struct Producer {
    catalog: Catalog,
    template: SegmentTemplate,
    content: Vec<u8>,
    segment_size: usize,
    signatures: Vec<Vec<u8>>,
}

impl Producer {
    fn new(content: Vec<u8>, segment_size: usize, has_manifest: bool) -> Self {
        let versioned = versioned();
        let segments = content.len().div_ceil(segment_size).max(1);
        let last = segments as u64 - 1;
        let info = SignatureInfo::new(0);
        let template = SegmentTemplate::new(versioned.as_view(), 10_000, last, &info);
        let mut catalog = Catalog::new();
        catalog.add_object(versioned.as_view(), segments as u64);
        let mut scratch = Vec::new();
        let (mut signatures, mut digests) = (Vec::new(), Vec::new());
        for segment in 0..segments {
            let content = chunk(&content, segment_size, segment as u64);
            let seal = template.seal(segment as u64, content, &DigestSigner, &mut scratch).unwrap();
            signatures.push(seal.signature);
            digests.push(seal.digest);
        }
        if has_manifest {
            for (part, content) in manifest::encode_parts(&digests, DIGESTS_PER_PART).enumerate() {
                let name = manifest::part_name(versioned.as_view(), part as u64);
                catalog.add_packet(signed(name, content)).unwrap();
            }
        }
        let metadata = Metadata {
            last_segment: Some(last),
            digests_per_part: has_manifest.then_some(DIGESTS_PER_PART as u64),
            ..Metadata::new(versioned)
        };
        let mut name = object();
        name.append_keyword(b"metadata").append_version(1).append_segment(0);
        catalog.add_packet(signed(name, metadata.encode())).unwrap();
        Self { catalog, template, content, segment_size, signatures }
    }

    fn answer(&mut self, interest: &InterestView<'_>) -> Option<Packet> {
        match self.catalog.answer(interest) {
            Answer::Packet(packet) => Some(packet),
            Answer::Segment { segment, .. } => {
                let content = chunk(&self.content, self.segment_size, segment);
                let signature = &self.signatures[segment as usize];
                let mut packet = vec![0; 8800];
                let frame = self.template.write(segment, content.len(), signature, &mut packet);
                packet[frame.content.clone()].copy_from_slice(content);
                packet.truncate(frame.len);
                Some(packet.into())
            }
            Answer::Unknown => None,
        }
    }
}

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
    /// What the producer does not answer is refused by the router.
    no_route: bool,
}

struct Outcome {
    content: Vec<u8>,
    stats: FetchStats,
    took: Instant,
    result: Result<(), FetchError>,
    is_stored: bool,
}

struct Simulation<'a> {
    producer: Option<&'a mut Producer>,
    channel: Channel,
    rng: Rng,
    fetcher: Fetcher,
    now: Instant,
    link_free_at: Instant,
    sequence: u64,
    arrivals: BinaryHeap<Reverse<(Instant, u64)>>,
    packets: BTreeMap<u64, (LpHeader, Packet)>,
    segments: BTreeMap<u64, Vec<u8>>,
    manifest: DigestManifest,
    uses_manifest: bool,
    held: Vec<(u64, [u8; 32])>,
    is_stored: bool,
}

impl<'a> Simulation<'a> {
    fn new(
        producer: Option<&'a mut Producer>,
        channel: Channel,
        target: Target,
        config: FetchConfig,
        seed: u64,
    ) -> Self {
        Self {
            producer,
            channel,
            rng: Rng::from_seed(seed ^ 0x5eed),
            fetcher: Fetcher::new(target, config, seed, Instant::ZERO),
            now: Instant::ZERO,
            link_free_at: Instant::ZERO,
            sequence: 0,
            arrivals: BinaryHeap::new(),
            packets: BTreeMap::new(),
            segments: BTreeMap::new(),
            manifest: DigestManifest::new(1 << 20),
            uses_manifest: false,
            held: Vec::new(),
            is_stored: false,
        }
    }

    fn chance(&mut self, per_thousand: u32) -> bool {
        self.rng.below(1000) < per_thousand
    }

    /// The Interest reaches the producer at once; what comes back is delayed for both ways.
    fn interest(&mut self, wire: &[u8]) {
        if self.chance(self.channel.lost) {
            return;
        }
        let jitter = u64::from(self.rng.below((self.channel.jitter_ns / 1000) as u32 + 1)) * 1000;
        let mut at = self.now.plus_ns(self.channel.delay_ns + jitter);
        if self.chance(self.channel.nacked) {
            let reason = match self.rng.below(3) {
                0 => NackReason::Duplicate,
                1 => NackReason::NoRoute,
                _ => NackReason::Congestion,
            };
            let header = LpHeader { nack: Some(reason), ..LpHeader::default() };
            return self.arrive(at, header, wire.into());
        }
        let interest = InterestView::decode(wire).unwrap();
        assert!(interest.nonce.is_some());
        let answer = match &mut self.producer {
            Some(producer) => producer.answer(&interest),
            None => None,
        };
        let Some(packet) = answer else {
            if self.channel.no_route {
                let nack = Some(NackReason::NoRoute);
                self.arrive(at, LpHeader { nack, ..LpHeader::default() }, wire.into());
            }
            return;
        };
        if self.channel.data_ns > 0 {
            let start = self.link_free_at.max(at);
            if start.ns_since(at) > self.channel.queue_max * self.channel.data_ns {
                return;
            }
            self.link_free_at = start.plus_ns(self.channel.data_ns);
            at = self.link_free_at;
        }
        if self.chance(self.channel.lost) {
            return;
        }
        let congestion_mark = u64::from(self.chance(self.channel.marked));
        let header = LpHeader { congestion_mark, ..LpHeader::default() };
        self.arrive(at, header, packet);
    }

    fn arrive(&mut self, at: Instant, header: LpHeader, packet: Packet) {
        self.sequence += 1;
        self.arrivals.push(Reverse((at, self.sequence)));
        self.packets.insert(self.sequence, (header, packet));
    }

    fn check(&mut self, segment: u64, digest: [u8; 32]) {
        match self.manifest.check(segment, &digest) {
            DigestCheck::Match => {}
            DigestCheck::Mismatch => panic!("segment {segment} is not the one listed"),
            DigestCheck::Unknown => self.held.push((segment, digest)),
        }
    }

    fn deliver(&mut self, part: Part, packet: &Packet) {
        let data = DataView::decode(packet).unwrap();
        match part {
            Part::Metadata => {}
            Part::Manifest(number) => {
                self.manifest.add_part(number, data.content).unwrap();
                for (segment, digest) in core::mem::take(&mut self.held) {
                    self.check(segment, digest);
                }
            }
            Part::Segment(segment) => {
                self.check(segment, sha256(&[packet]));
                let previous = self.segments.insert(segment, data.content.to_vec());
                assert!(previous.is_none(), "segment {segment} came twice");
            }
        }
    }

    fn run(mut self, have: &SegmentSet) -> Outcome {
        let mut inputs = Vec::new();
        let mut out = FetchOutbox::default();
        let mut idle = 0;
        let result = loop {
            self.fetcher.handle(self.now, &mut inputs, &mut out);
            let interests: Vec<Vec<u8>> = out.interests.iter().map(<[u8]>::to_vec).collect();
            out.interests.clear();
            for interest in interests {
                self.interest(&interest);
            }
            for delivery in core::mem::take(&mut out.deliveries) {
                self.deliver(delivery.part, &delivery.packet);
                inputs.push(FetchInput::Consumed(1));
            }
            let mut ended = None;
            for event in out.events.drain(..) {
                match event {
                    FetchEvent::Found { is_stored, .. } => {
                        self.is_stored = is_stored;
                        inputs.push(FetchInput::Start { have: have.clone() });
                    }
                    FetchEvent::Manifest { digests_per_part } => {
                        self.uses_manifest = digests_per_part.is_some();
                    }
                    FetchEvent::LastSegment(_) => {}
                    FetchEvent::Done => ended = Some(Ok(())),
                    FetchEvent::Failed(error) => ended = Some(Err(error)),
                }
            }
            if let Some(result) = ended {
                assert!(self.fetcher.is_over());
                break result;
            }
            if !inputs.is_empty() {
                continue;
            }
            let wakeup = self.fetcher.next_wakeup().unwrap_or(Instant::FAR_FUTURE);
            let arrival = self.arrivals.peek().map_or(Instant::FAR_FUTURE, |next| next.0.0);
            let next = wakeup.min(arrival);
            idle = if next > self.now { 0 } else { idle + 1 };
            assert!(idle < 1000, "no progress: {:?}", self.fetcher);
            assert!(next < Instant::from_ns(3600 * NS_PER_S), "stuck: {:?}", self.fetcher);
            self.now = self.now.max(next);
            while let Some(&Reverse((at, sequence))) = self.arrivals.peek()
                && at <= self.now
            {
                self.arrivals.pop();
                let (header, packet) = self.packets.remove(&sequence).unwrap();
                inputs.push(FetchInput::Packet { header, packet });
            }
        };
        if result.is_ok() && self.uses_manifest {
            assert!(self.held.is_empty(), "unchecked: {:?}", self.held);
        }
        Outcome {
            content: self.segments.into_values().flatten().collect(),
            stats: self.fetcher.stats(),
            took: self.now,
            result,
            is_stored: self.is_stored,
        }
    }
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
    no_route: false,
};

fn random_case(seed: u64) -> (Outcome, Vec<u8>) {
    let mut rng = Rng::from_seed(seed);
    let segment_size = 1 + rng.below(200) as usize;
    let len = rng.below(60_000) as usize;
    let content = random_octets(&mut rng, len);
    let has_manifest = rng.below(2) == 0;
    let mut producer = Producer::new(content.clone(), segment_size, has_manifest);
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
        no_route: rng.below(2) == 0,
    };
    let config = FetchConfig {
        controller: Controller::ALL[seed as usize % 3],
        window_max: 1 + rng.below(1000),
        unconsumed_max: 1 + rng.below(1000),
        retries_max: 100,
        ..FetchConfig::default()
    };
    let target = match rng.below(3) {
        0 => Target::Version { versioned: versioned() },
        1 => Target::Prefix { name: object() },
        _ => latest(),
    };
    let simulation = Simulation::new(Some(&mut producer), channel, target, config, seed);
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

fn fetch(size: usize, channel: Channel, config: FetchConfig) -> Outcome {
    let content = random_octets(&mut Rng::from_seed(1), size);
    let mut producer = Producer::new(content.clone(), 100, true);
    let outcome =
        Simulation::new(Some(&mut producer), channel, latest(), config, 1).run(&SegmentSet::new());
    assert_eq!(outcome.result, Ok(()));
    assert!(outcome.content == content);
    outcome
}

#[test]
fn a_clean_channel_needs_one_interest_a_packet() {
    let outcome = fetch(100_000, CLEAN, FetchConfig::default());
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
    let config =
        FetchConfig { controller: Controller::Fixed, window: Some(50), ..FetchConfig::default() };
    let outcome = fetch(300_000, channel, config);
    assert!(outcome.stats.losses >= 10, "{:?}", outcome.stats);
    assert!(outcome.stats.timeouts <= 2, "{:?}", outcome.stats);
    // 63 windows of 10 ms, and little more; each timeout would be 200 ms.
    assert!(outcome.took < Instant::from_ns(1500 * NS_PER_MS), "{:?}", outcome.took);
}

#[test]
fn reordering_is_learnt() {
    let channel = Channel { jitter_ns: 30 * NS_PER_MS, ..CLEAN };
    let outcome = fetch(300_000, channel, FetchConfig::default());
    assert!(outcome.stats.retransmissions < 150, "{:?}", outcome.stats);
}

#[test]
fn a_bottleneck_is_filled_without_many_losses() {
    for controller in [Controller::Cubic, Controller::Aimd] {
        // 10 segments a millisecond, a queue of 100, a base of 10 ms: the path holds 200.
        let channel = Channel { data_ns: 100 * NS_PER_US, queue_max: 100, ..CLEAN };
        let config = FetchConfig { controller, ..FetchConfig::default() };
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
    let config = FetchConfig::default();
    let outcome = Simulation::new(None, CLEAN, latest(), config, 1).run(&SegmentSet::new());
    let mut name = object();
    assert_eq!(outcome.result, Err(FetchError::Unanswered(name.clone())));
    assert!(outcome.took <= Instant::from_ns(14 * NS_PER_S), "{:?}", outcome.took);

    // Without a route, for as long as a producer may take to come up.
    let config = FetchConfig::default();
    let absent = Channel { no_route: true, ..CLEAN };
    let outcome = Simulation::new(None, absent, latest(), config, 1).run(&SegmentSet::new());
    assert_eq!(outcome.result, Err(FetchError::NoRoute(name.clone())));
    let waited = 2500 * NS_PER_MS..=3500 * NS_PER_MS;
    assert!(waited.contains(&outcome.took.as_ns()), "{:?}", outcome.took);

    let refusing = Channel { nacked: 1000, ..CLEAN };
    let target = Target::Version { versioned: name.append_version(42).clone() };
    for seed in 0..20 {
        let config = FetchConfig::default();
        let outcome = Simulation::new(None, refusing.clone(), target.clone(), config, seed)
            .run(&SegmentSet::new());
        assert!(outcome.result.is_err());
        assert!(outcome.took <= Instant::from_ns(14 * NS_PER_S), "{:?}", outcome.took);
    }
}

#[test]
fn what_is_there_is_not_fetched_again() {
    let content = random_octets(&mut Rng::from_seed(1), 10_000);
    let mut producer = Producer::new(content, 100, true);
    let mut have = SegmentSet::new();
    for segment in (0..40).chain(60..80) {
        have.insert(segment);
    }
    for (target, extra) in [(latest(), 1), (Target::Version { versioned: versioned() }, 2)] {
        let outcome =
            Simulation::new(Some(&mut producer), CLEAN, target, FetchConfig::default(), 1)
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
    let mut producer = Producer::new(content.clone(), 100, true);
    let mut simulation = Simulation::new(None, CLEAN, latest(), FetchConfig::default(), 1);
    // Nobody answers for the seven seconds in which the fetcher asks for fresh metadata.
    let mut inputs = Vec::new();
    let mut out = FetchOutbox::default();
    while simulation.now < Instant::from_ns(10 * NS_PER_S) {
        simulation.fetcher.handle(simulation.now, &mut inputs, &mut out);
        for wire in out.interests.iter() {
            assert!(InterestView::decode(wire).unwrap().must_be_fresh);
        }
        out.interests.clear();
        simulation.now = simulation.fetcher.next_wakeup().unwrap();
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
    let mut fetcher =
        Fetcher::new(Target::Prefix { name: object() }, FetchConfig::default(), 1, Instant::ZERO);
    let mut inputs = Vec::new();
    let mut out = FetchOutbox::default();
    fetcher.handle(Instant::ZERO, &mut inputs, &mut out);
    for _ in 0..2 {
        assert_eq!(out.interests.len(), 1);
        let interest = InterestView::decode(out.interests.iter().next().unwrap()).unwrap();
        assert_eq!(interest.name, object().as_view());
        out.interests.clear();
        let header = LpHeader::default();
        inputs.push(FetchInput::Packet { header, packet: packet.clone() });
        if out.deliveries.is_empty() {
            inputs.push(FetchInput::Start { have: SegmentSet::new() });
        }
        fetcher.handle(Instant::ZERO, &mut inputs, &mut out);
    }
    assert!(fetcher.is_over());
    assert_eq!(out.deliveries.len(), 1);
    assert_eq!(out.deliveries[0].part, Part::Segment(0));
}

#[test]
fn metadata_of_something_else_is_refused() {
    let other = Metadata::new("/elsewhere/54=%01".parse().unwrap());
    let mut name = object();
    name.append_keyword(b"metadata").append_version(1).append_segment(0);
    for (content, wanted) in [
        (other.encode(), "names /elsewhere"),
        (vec![1, 2, 3], "malformed"),
        (Metadata::new(object()).encode(), "names no version"),
    ] {
        let mut fetcher = Fetcher::new(latest(), FetchConfig::default(), 1, Instant::ZERO);
        let mut out = FetchOutbox::default();
        fetcher.handle(Instant::ZERO, &mut Vec::new(), &mut out);
        let packet = signed(name.clone(), content);
        let mut inputs = vec![FetchInput::Packet { header: LpHeader::default(), packet }];
        fetcher.handle(Instant::ZERO, &mut inputs, &mut out);
        let Some(FetchEvent::Failed(error)) = out.events.last() else { panic!("{out:?}") };
        let text = std::format!("{error}");
        assert!(text.contains(wanted), "{text}");
    }
}

#[test]
fn garbage_is_counted_and_nothing_more() {
    let mut rng = Rng::from_seed(5);
    let mut fetcher = Fetcher::new(latest(), FetchConfig::default(), 1, Instant::ZERO);
    let mut out = FetchOutbox::default();
    for i in 0..1000 {
        let len = rng.below(200) as usize;
        let packet = random_octets(&mut rng, len).into();
        let nack = (i % 2 == 0).then_some(NackReason::NoRoute);
        let header = LpHeader { nack, ..LpHeader::default() };
        let mut inputs = vec![FetchInput::Packet { header, packet }];
        fetcher.handle(Instant::ZERO, &mut inputs, &mut out);
    }
    assert_eq!(fetcher.stats().malformed, 1000);
    assert!(out.deliveries.is_empty() && out.events.is_empty());
}
