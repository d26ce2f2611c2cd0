use alloc::string::ToString;
use alloc::vec;

use proptest::prelude::*;

use super::*;
use crate::{DigestSigner, sign_data};
use weir_wire::{Data, PACKET_SIZE_MAX};

fn digests(count: usize) -> Vec<Digest> {
    (0..count).map(|i| crate::sha256(&[&i.to_be_bytes()])).collect()
}

const FLAT: ManifestShape = ManifestShape { digests_per_part: DIGESTS_PER_PART as u16, levels: 1 };

fn shape(digests_per_part: u16, levels: u8) -> ManifestShape {
    ManifestShape { digests_per_part, levels }
}

#[test]
fn every_segment_of_an_object_is_listed() {
    let listed = digests(2 * DIGESTS_PER_PART + 3);
    let mut manifest = DigestManifest::new(FLAT, 1000);
    assert_eq!(manifest.digest_of(0, 0), DigestLookup::Unknown);
    for (part, content) in encode_parts(&listed, FLAT, 1).enumerate() {
        manifest.add_part(PartId::leaf(part as u64), &content).unwrap();
    }
    for (segment, digest) in listed.iter().enumerate() {
        assert_eq!(manifest.digest_of(0, segment as u64), DigestLookup::Found(*digest));
    }
    assert_eq!(manifest.digest_of(0, listed.len() as u64), DigestLookup::Absent);
    assert_eq!(manifest.digest_of(0, u64::MAX), DigestLookup::Unknown);
}

#[test]
fn second_level_lists_first_level() {
    let (shape, segments) = (shape(3, 2), digests(13));
    let leaves: Vec<_> = encode_parts(&segments, shape, 1).collect();
    let of_leaves: Vec<Digest> = leaves.iter().map(|leaf| crate::sha256(&[leaf])).collect();
    let tops: Vec<_> = encode_parts(&of_leaves, shape, 2).collect();
    assert_eq!((leaves.len(), tops.len()), (5, 2));
    let mut manifest = DigestManifest::new(shape, 13);
    // In any order.
    for (number, leaf) in leaves.iter().enumerate().rev() {
        manifest.add_part(PartId::leaf(number as u64), leaf).unwrap();
    }
    assert_eq!(manifest.digest_of(1, 3), DigestLookup::Unknown);
    for (number, top) in tops.iter().enumerate() {
        manifest.add_part(PartId { level: 2, number: number as u64 }, top).unwrap();
    }
    for (number, digest) in of_leaves.iter().enumerate() {
        assert_eq!(manifest.digest_of(1, number as u64), DigestLookup::Found(*digest));
    }
    assert_eq!(
        (manifest.digest_of(1, 5), manifest.digest_of(0, 13)),
        (DigestLookup::Absent, DigestLookup::Absent)
    );
    assert_eq!(manifest.digest_of(0, 12), DigestLookup::Found(segments[12]));
    // A part of one level is not accepted for another, nor one of a flat manifest.
    let flat = &mut DigestManifest::new(ManifestShape { levels: 1, ..shape }, 13);
    assert_eq!(flat.add_part(PartId::leaf(0), &leaves[0]), Err(ManifestError::Inconsistent));
    let top = manifest.add_part(PartId { level: 2, number: 0 }, &leaves[0]);
    assert_eq!(top, Err(ManifestError::Inconsistent));
}

#[test]
fn full_part_fits_into_a_packet() {
    let mut versioned = Name::new();
    versioned.append_generic(&[b'n'; 400]).append_version(u64::MAX);
    let content = encode_parts(&digests(DIGESTS_PER_PART), FLAT, 1).next().unwrap();
    let name = part_name(versioned.as_view(), PartId { level: 2, number: u64::MAX });
    let wire = sign_data(&Data::new(name).content(content), &DigestSigner).unwrap();
    // An RSA signature has 224 octets more than a digest. The rest is for the KeyLocator.
    assert!(wire.len() + 224 + 120 <= PACKET_SIZE_MAX, "{}", wire.len());
}

#[test]
fn part_names_follow_the_versioned_name() {
    let versioned: Name = "/a/v=1".parse().unwrap();
    let name = |level| part_name(versioned.as_view(), PartId { level, number: 2 }).to_string();
    assert_eq!(name(1), "/a/v=1/32=manifest/seg=2");
    assert_eq!(name(2), "/a/v=1/32=manifest/seq=2/seg=2");
}

/// The octets are those of the module's table, one by one.
#[test]
fn part_has_documented_octets() {
    let part = ManifestPart { shape: shape(3, 2), level: 1, first: 300, digests: &[[7; 32]] };
    let stated = [135, 1, 1, 129, 1, 3, 137, 1, 2, 139, 1, 1, 131, 2, 1, 44, 133, 32];
    assert_eq!(part.encode(), [&stated[..], &[7; 32]].concat());
    let mut full = ManifestPart { shape: FLAT, level: 1, first: 0, digests: &[[7; 32]; 248] };
    assert_eq!(full.encode().len(), 7955);
    full.first = u64::MAX;
    assert_eq!(full.encode().len(), 7962);
}

#[test]
fn inconsistent_parts_are_refused() {
    let part = |digests_per_part, first, digests: &[Digest]| {
        ManifestPart { shape: shape(digests_per_part, 1), level: 1, first, digests }.encode()
    };
    let two = digests(2);
    let mut manifest = DigestManifest::new(shape(2, 1), 10);
    let mut add = |number, content: &[u8]| manifest.add_part(PartId::leaf(number), content);
    assert_eq!(add(0, &part(2, 2, &two)), Err(ManifestError::Inconsistent));
    assert_eq!(add(5, &part(2, 10, &two)), Err(ManifestError::TooLarge));
    assert_eq!(add(u64::MAX, &part(2, 0, &two)), Err(ManifestError::TooLarge));
    assert_eq!(add(1, &part(2, 2, &two)), Ok(()));
    assert_eq!(add(0, &part(3, 0, &two)), Err(ManifestError::Inconsistent));
    assert_eq!(add(4, &part(2, 8, &two)), Ok(()));
}

#[test]
fn malformed_parts_are_refused() {
    let two = digests(2);
    let good = ManifestPart { shape: shape(2, 1), level: 1, first: 0, digests: &two }.encode();
    assert!(ManifestPart::decode(&good).is_ok());
    for cut in 0..good.len() {
        assert_eq!(ManifestPart::decode(&good[..cut]), Err(ManifestError::Malformed), "{cut}");
    }
    let with_tail = |tail: &[u8]| [&good[..], tail].concat();
    let tailed = with_tail(&[130, 0]);
    assert!(ManifestPart::decode(&tailed).is_ok(), "an even element is skipped");
    assert_eq!(ManifestPart::decode(&with_tail(&[141, 0])), Err(ManifestError::Malformed));
    let too_many = DIGESTS_PER_PART_MAX as u16 + 1;
    for (per_part, levels, level, count) in
        [(1, 1, 1, 2), (2, 1, 1, 0), (0, 1, 1, 1), (too_many, 1, 1, 1), (2, 3, 1, 1), (2, 1, 2, 1)]
    {
        let digests = digests(count);
        let part =
            ManifestPart { shape: shape(per_part, levels), level, first: 0, digests: &digests };
        assert_eq!(ManifestPart::decode(&part.encode()), Err(ManifestError::Malformed));
    }
    let mut other = good.clone();
    other[2] = 2;
    assert_eq!(ManifestPart::decode(&other), Err(ManifestError::Algorithm(2)));
    let ragged = [&good[..15], &[133, 33][..], &[0; 33]].concat();
    assert_eq!(ManifestPart::decode(&ragged), Err(ManifestError::Malformed));
}

proptest! {
    #[test]
    fn decodes_what_it_encodes(
        per_part in 1..=DIGESTS_PER_PART_MAX,
        levels in 1..=LEVELS_MAX,
        first: u64,
        fill: u8,
    ) {
        let digests = vec![[fill; 32]; per_part];
        let shape = shape(per_part as u16, levels);
        let part = ManifestPart { shape, level: levels, first, digests: &digests };
        let content = part.encode();
        prop_assert_eq!(ManifestPart::decode(&content), Ok(part));
    }

    #[test]
    fn random_content_causes_no_panic(content: Vec<u8>, level in 1..=LEVELS_MAX, number: u64) {
        let mut manifest = DigestManifest::new(FLAT, 1 << 20);
        let _ = manifest.add_part(PartId { level, number }, &content);
        let _ = manifest.digest_of(level - 1, number);
    }
}
