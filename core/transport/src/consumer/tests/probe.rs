//! Tests of the probe for a manifest.

use weir_security::manifest::{ManifestPart, ManifestShape, PartId, part_name};

use super::*;

const LEAF: PartId = PartId::leaf(0);
const TOP: PartId = PartId { level: 2, number: 0 };

fn shape(digests_per_part: u64, levels: u64) -> ManifestShape {
    ManifestShape::new(digests_per_part, levels).unwrap()
}

fn versioned() -> Name {
    "/a/54=%01".parse().unwrap()
}

fn part(id: PartId) -> Name {
    part_name(versioned().as_view(), id)
}

/// The Content of a part that lists three packets.
fn content(shape: ManifestShape, level: u8) -> Vec<u8> {
    ManifestPart { shape, level, first: 0, digests: &[[7; 32]; 3] }.encode()
}

/// A consumer that probes for a manifest, and trusts a signer.
fn probing() -> Fixture {
    let config = ConsumerConfig {
        controller: Controller::FIXED,
        window: Some(100),
        ..ConsumerConfig::default()
    };
    let mut fixture = Fixture::new(Target::Version { versioned: versioned() }, config);
    let start = ConsumerInput::Start { have: SegmentSet::new(), reader: ReaderMode::InOrder };
    assert_eq!(fixture.input(start), [part(LEAF), segment("/a/54=%01", 0)]);
    fixture.out.events.clear();
    fixture
}

/// A part arrives, with a verdict on its signature.
fn part_came(fixture: &mut Fixture, id: PartId, content: &[u8], is_good: bool) -> Vec<Name> {
    let mut asked = fixture.data_with(&part(id), content);
    let events = core::mem::take(&mut fixture.out.events);
    for event in events {
        match event {
            ConsumerEvent::NeedKey { key, .. } => {
                let verifier = Ok(digest_verifier());
                asked.extend(fixture.input(ConsumerInput::Key { key, verifier }));
            }
            other => fixture.out.events.push(other),
        }
    }
    if let (true, [_]) = (fixture.consumer.discovery.is_requesting(), &fixture.out.verify[..]) {
        assert_eq!(asked, [], "nothing is made of what is not verified");
        assert_eq!(fixture.events(), [""; 0]);
        asked = fixture.verify(is_good);
    }
    asked
}

fn begun(fixture: &mut Fixture) -> Option<Option<ManifestShape>> {
    fixture.out.events.drain(..).find_map(|event| match event {
        ConsumerEvent::Manifest { shape } => Some(shape),
        _ => None,
    })
}

#[test]
fn only_verified_part_sets_manifest_shape() {
    let forged = [shape(1, 1), shape(200, 1)];
    for false_shape in forged {
        let mut fixture = probing();
        assert_eq!(part_came(&mut fixture, LEAF, &content(false_shape, 1), false), [part(LEAF)]);
        assert!(!fixture.last_interest().must_be_fresh, "damage on the way is as likely");
        assert_eq!(part_came(&mut fixture, LEAF, &content(false_shape, 1), false), [part(LEAF)]);
        assert!(fixture.last_interest().must_be_fresh, "a store has a bad copy");
        let asked = part_came(&mut fixture, LEAF, &content(shape(3, 1), 1), true);
        assert_eq!(begun(&mut fixture), Some(Some(shape(3, 1))));
        assert!(!asked.contains(&part(LEAF)), "it is there: {asked:?}");
        assert_eq!(asked[..2], [segment("/a/54=%01", 0), segment("/a/54=%01", 1)]);
    }
}

#[test]
fn falls_back_to_signatures() {
    let malformed = vec![1, 2, 3];
    for spoilt in [content(shape(3, 1), 1), malformed] {
        let mut fixture = probing();
        fixture.data(&segment("/a/54=%01", 0));
        for _ in 0..4 {
            assert_eq!(part_came(&mut fixture, LEAF, &spoilt, false), [part(LEAF)]);
        }
        let asked = part_came(&mut fixture, LEAF, &spoilt, false);
        assert_eq!(begun(&mut fixture), Some(None));
        assert_eq!(asked[0], segment("/a/54=%01", 1));
    }
}

#[test]
fn higher_manifest_level_wins() {
    let two = shape(3, 2);
    let mut fixture = probing();
    assert_eq!(part_came(&mut fixture, LEAF, &content(two, 1), true), [part(TOP)]);
    let asked = part_came(&mut fixture, TOP, &content(two, 2), true);
    assert_eq!(begun(&mut fixture), Some(Some(two)));
    assert_eq!(asked[..2], [part(LEAF), segment("/a/54=%01", 0)]);

    // A leaf may lie about the level above it.
    let mut fixture = probing();
    assert_eq!(part_came(&mut fixture, LEAF, &content(two, 1), true), [part(TOP)]);
    let asked = fixture.requested[0].clone();
    fixture.data(&segment("/a/54=%01", 0));
    fixture.nack(&asked, NackReason::NoRoute);
    assert_eq!(begun(&mut fixture), Some(None));
}

/// The first segment waits this long for the probe.
#[test]
fn retries_higher_manifest_level() {
    let two = shape(3, 2);
    let mut fixture = probing();
    fixture.data(&segment("/a/54=%01", 0));
    assert_eq!(part_came(&mut fixture, LEAF, &content(two, 1), true), [part(TOP)]);
    // The first Interest is lost.
    fixture.now = fixture.consumer.next_wakeup().expect("it is requested again");
    assert_eq!(fixture.step(), [part(TOP)]);
    part_came(&mut fixture, TOP, &content(two, 2), true);
    assert_eq!(begun(&mut fixture), Some(Some(two)));
}

/// A key may have to be fetched. The wait of the first segment does not include that.
#[test]
fn waits_for_part_under_verification() {
    let mut fixture = probing();
    fixture.data(&segment("/a/54=%01", 0));
    fixture.data_with(&part(LEAF), &content(shape(3, 1), 1));
    let Some(ConsumerEvent::NeedKey { key, .. }) = fixture.out.events.pop() else {
        panic!("the signer is not known")
    };
    assert_eq!(fixture.consumer.next_wakeup(), None);
    fixture.now = Instant::from_ns(10 * NS_PER_S);
    fixture.step();
    let verifier = Ok(digest_verifier());
    fixture.input(ConsumerInput::Key { key, verifier });
    fixture.verify(true);
    assert_eq!(begun(&mut fixture), Some(Some(shape(3, 1))));
}
