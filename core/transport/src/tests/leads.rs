//! What leads to segments: metadata, and manifests of one level and two.

use super::*;

#[test]
fn one_signature_is_enough_for_two_levels() {
    let content = random_octets(&mut Rng::from_seed(1), 100_000);
    let shape = Shape { levels: 2, ..FLAT };
    let mut producer = Producer::new(content.clone(), 100, Some(shape));
    let config = ConsumerConfig::default();
    for (target, extra) in [(latest(), 1), (Target::Version { versioned: versioned() }, 2)] {
        let simulation = Simulation::new(Some(&mut producer), CLEAN, target, config.clone(), 1);
        let outcome = simulation.run(&SegmentSet::new());
        assert_eq!(outcome.result, Ok(()));
        assert!(outcome.content == content);
        // 1000 segments, 50 parts that list them and 3 that list these; and the metadata, or a look
        // at segment 0 and part 0.
        assert_eq!(outcome.stats.interests, 1053 + extra);
    }
}

#[test]
fn a_manifest_that_lies_ends_in_an_error() {
    let content = random_octets(&mut Rng::from_seed(1), 10_000);
    let two = Shape { levels: 2, ..FLAT };
    let listed = vec![[1; 32]; 100];
    let other = |shape: Shape, level: u8| {
        let shape_of_part = Shape { digests_per_part: 10, ..shape };
        let content = manifest::encode_parts(&listed[..1], shape_of_part, level).next().unwrap();
        signed(manifest::part_name(versioned().as_view(), PartId { level, number: 0 }), content)
    };
    let algorithm = {
        let mut content = manifest::encode_parts(&listed, FLAT, 1).next().unwrap();
        content[2] = 2;
        signed(manifest::part_name(versioned().as_view(), PartId::leaf(0)), content)
    };
    for (shape, part, wanted) in [
        (FLAT, other(FLAT, 1), "is not what its name and the metadata say"),
        (two, other(two, 2), "is not what its name and the metadata say"),
        (FLAT, algorithm, "digests of algorithm 2"),
    ] {
        let mut producer = Producer::new(content.clone(), 100, Some(shape));
        producer.false_packet = Some(part);
        let config = ConsumerConfig::default();
        let simulation = Simulation::new(Some(&mut producer), CLEAN, latest(), config, 1);
        let outcome = simulation.run(&SegmentSet::new());
        let error = std::format!("{}", outcome.result.unwrap_err());
        assert!(error.contains(wanted), "{shape:?}: {error}");
    }
    // A part that is listed can be had by its digest.
    let mut producer = Producer::new(content.clone(), 100, Some(two));
    producer.false_packet = Some(other(two, 1));
    let config = ConsumerConfig::default();
    let simulation = Simulation::new(Some(&mut producer), CLEAN, latest(), config, 1);
    let outcome = simulation.run(&SegmentSet::new());
    assert_eq!((outcome.result, outcome.content == content), (Ok(()), true));
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
        let mut consumer = Consumer::new(latest(), ConsumerConfig::default(), 1, Instant::ZERO);
        let mut out = ConsumerOutbox::default();
        consumer.handle(
            Instant::ZERO,
            &mut vec![ConsumerInput::AddPath { path: PathId(0), window: None, is_local: false }],
            &mut out,
        );
        let packet = signed(name.clone(), content);
        let mut inputs = Vec::new();
        for _ in 0..5 {
            let (header, packet) = (LpHeader::default(), packet.clone());
            inputs.push(ConsumerInput::Packet { path: PathId(0), header, packet });
            consumer.handle(Instant::ZERO, &mut inputs, &mut out);
        }
        let Some(ConsumerEvent::Failed(error)) = out.events.last() else { panic!("{out:?}") };
        let text = std::format!("{error}");
        assert!(text.contains(wanted), "{text}");
    }
}
