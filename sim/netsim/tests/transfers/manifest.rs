//! Manifests of one and two levels, correct and false.

use weir_security::manifest::{self, ManifestShape, PartId};
use weir_transport::{ConsumerConfig, Target};

use super::object::{FLAT, Object, signed, version};
use super::{CLEAN, Done, Plan, fetch_over, latest};

fn fetch(object: Object, target: Target) -> Done {
    fetch_over(&[CLEAN], object, Plan::new(target, ConsumerConfig::default()))
}

#[test]
fn one_signature_covers_two_levels() {
    let shape = ManifestShape { levels: 2, ..FLAT };
    for (target, extra) in [(latest(), 1), (Target::Version { versioned: version() }, 2)] {
        let object = Object::random(100_000, Some(shape));
        let content = object.content.clone();
        let done = fetch(object, target);
        assert_eq!(done.fetch(0).result(), Ok(()));
        assert!(done.fetch(0).content() == content);
        // 1000 segments, 50 manifest packets that list them, and 3 that list the 50. `extra`: the
        // metadata, or one probe each of segment 0 and manifest packet 0.
        assert_eq!(done.fetch(0).stats().interests, 1053 + extra);
    }
}

#[test]
fn false_manifest_ends_in_an_error() {
    let two = ManifestShape { levels: 2, ..FLAT };
    let listed = vec![[1; 32]; 100];
    let part_name = |id| manifest::part_name(version().as_view(), id);
    let other = |shape: ManifestShape, level: u8| {
        let shape_of_part = ManifestShape { digests_per_part: 10, ..shape };
        let content = manifest::encode_parts(&listed[..1], shape_of_part, level).next().unwrap();
        signed(part_name(PartId { level, number: 0 }), content)
    };
    let algorithm = {
        let mut content = manifest::encode_parts(&listed, FLAT, 1).next().unwrap();
        content[2] = 2;
        signed(part_name(PartId::leaf(0)), content)
    };
    for (shape, part, wanted) in [
        (FLAT, other(FLAT, 1), "does not match its name or the metadata"),
        (two, other(two, 2), "does not match its name or the metadata"),
        (FLAT, algorithm, "digest algorithm 2"),
    ] {
        let mut object = Object::random(10_000, Some(shape));
        object.false_packet = Some(part);
        let error = fetch(object, latest()).fetch(0).result().unwrap_err().to_string();
        assert!(error.contains(wanted), "{shape:?}: {error}");
    }
    // A listed manifest packet can be fetched by its digest.
    let mut object = Object::random(10_000, Some(two));
    object.false_packet = Some(other(two, 1));
    let content = object.content.clone();
    let done = fetch(object, latest());
    assert_eq!(done.fetch(0).result(), Ok(()));
    assert!(done.fetch(0).content() == content);
}
