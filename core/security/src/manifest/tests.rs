use alloc::string::ToString;
use alloc::vec;

use proptest::prelude::*;

use super::*;
use crate::{DigestSigner, sign_data};
use weir_wire::{Data, PACKET_SIZE_MAX};

fn digests(count: usize) -> Vec<Digest> {
    (0..count).map(|i| crate::sha256(&[&i.to_be_bytes()])).collect()
}

#[test]
fn every_segment_of_an_object_is_checked() {
    let listed = digests(2 * DIGESTS_PER_PART + 3);
    let mut manifest = DigestManifest::new(1000);
    assert_eq!(manifest.check(0, &listed[0]), DigestCheck::Unknown);
    for (part, content) in encode_parts(&listed, DIGESTS_PER_PART).enumerate() {
        manifest.add_part(part as u64, &content).unwrap();
    }
    for (segment, digest) in listed.iter().enumerate() {
        assert_eq!(manifest.check(segment as u64, digest), DigestCheck::Match);
        let other = &listed[(segment + 1) % listed.len()];
        assert_eq!(manifest.check(segment as u64, other), DigestCheck::Mismatch);
    }
    let past_end = listed.len() as u64;
    assert_eq!(manifest.check(past_end, &listed[0]), DigestCheck::Mismatch);
    assert_eq!(manifest.check(u64::MAX, &listed[0]), DigestCheck::Unknown);
    assert_eq!(manifest.part_of(248), Some(1));
}

#[test]
fn a_full_part_fits_into_a_packet_under_a_long_name() {
    let mut versioned = Name::new();
    versioned.append_generic(&[b'n'; 400]).append_version(u64::MAX);
    let content = encode_parts(&digests(DIGESTS_PER_PART), DIGESTS_PER_PART).next().unwrap();
    let data = Data::new(part_name(versioned.as_view(), u64::MAX)).content(content);
    let wire = sign_data(&data, &DigestSigner).unwrap();
    // An RSA signature has 224 octets more than a digest; the rest is for the KeyLocator.
    assert!(wire.len() + 224 + 120 <= PACKET_SIZE_MAX, "{}", wire.len());
}

#[test]
fn part_names_follow_the_versioned_name() {
    let versioned: Name = "/a/v=1".parse().unwrap();
    assert_eq!(part_name(versioned.as_view(), 2).to_string(), "/a/v=1/32=manifest/seg=2");
}

#[test]
fn parts_that_do_not_fit_are_refused() {
    let part = |digests_per_part, first_segment, digests: &[Digest]| {
        ManifestPart { digests_per_part, first_segment, digests }.encode()
    };
    let two = digests(2);
    let mut manifest = DigestManifest::new(10);
    assert_eq!(manifest.add_part(0, &part(2, 2, &two)), Err(ManifestError::Inconsistent));
    assert_eq!(manifest.add_part(5, &part(2, 10, &two)), Err(ManifestError::TooLarge));
    assert_eq!(manifest.add_part(u64::MAX, &part(2, 0, &two)), Err(ManifestError::TooLarge));
    assert_eq!(manifest.add_part(1, &part(2, 2, &two)), Ok(()));
    assert_eq!(manifest.add_part(0, &part(3, 0, &two)), Err(ManifestError::Inconsistent));
    assert_eq!(manifest.add_part(4, &part(2, 8, &two)), Ok(()));
}

#[test]
fn malformed_parts_are_refused() {
    let good =
        ManifestPart { digests_per_part: 2, first_segment: 0, digests: &digests(2) }.encode();
    assert!(ManifestPart::decode(&good).is_ok());
    for cut in 0..good.len() {
        assert_eq!(ManifestPart::decode(&good[..cut]), Err(ManifestError::Malformed), "{cut}");
    }
    let with_tail = |tail: &[u8]| [&good[..], tail].concat();
    let tailed = with_tail(&[130, 0]);
    assert!(ManifestPart::decode(&tailed).is_ok(), "an even element is skipped");
    assert_eq!(ManifestPart::decode(&with_tail(&[135, 0])), Err(ManifestError::Malformed));
    for (per_part, count) in [(1, 2), (2, 0), (0, 1), (DIGESTS_PER_PART_MAX + 1, 1)] {
        let digests = digests(count);
        let part = ManifestPart { digests_per_part: per_part, first_segment: 0, digests: &digests };
        assert_eq!(ManifestPart::decode(&part.encode()), Err(ManifestError::Malformed));
    }
    let ragged = [&[129, 1, 2, 131, 1, 0, 133, 33][..], &[0; 33]].concat();
    assert_eq!(ManifestPart::decode(&ragged), Err(ManifestError::Malformed));
}

proptest! {
    #[test]
    fn decoding_returns_what_was_encoded(
        per_part in 1..=DIGESTS_PER_PART_MAX,
        first_segment: u64,
        fill: u8,
    ) {
        let digests = vec![[fill; 32]; per_part];
        let part = ManifestPart { digests_per_part: per_part, first_segment, digests: &digests };
        let content = part.encode();
        prop_assert_eq!(ManifestPart::decode(&content), Ok(part));
    }

    #[test]
    fn no_content_makes_it_panic(content: Vec<u8>, part: u64) {
        let mut manifest = DigestManifest::new(1 << 20);
        if manifest.add_part(part, &content).is_ok() {
            prop_assert!(manifest.digests_per_part > 0);
        }
    }
}
