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

use crate::{
    Answer, Catalog, Consumer, ConsumerConfig, ConsumerError, ConsumerEvent, ConsumerInput,
    ConsumerOutbox, ConsumerStats, Controller, Metadata, PacketId, PathId, ReaderMode, SegmentSet,
    SegmentTemplate, Source, Target, Verdict, VerifyOp,
};

mod holes;
mod leads;
mod paths;
mod producer;
mod simulation;

use self::producer::Producer;
use self::simulation::{Arrival, CLEAN, Channel, Outcome, Simulation};

const FLAT: Shape = Shape { digests_per_part: 20, levels: 1 };
/// Controllers of random cases: a new controller must not change what happens in each.
const CONTROLLERS: [Controller; 3] = [Controller::CUBIC, Controller::AIMD, Controller::FIXED];

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

/// Segments of a chunk, in random cases.
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
        reader_segments_max: 1 + rng.below(1000),
        retries_max: 100,
        chunk_segments: CHUNKS[seed as usize % CHUNKS.len()],
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
        controller: Controller::FIXED,
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
    for controller in [Controller::CUBIC, Controller::AIMD] {
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
    assert_eq!((op.id, out.verify.len()), (PacketId::Segment(0), 0));
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
