use super::*;
use alloc::vec::Vec;
use weir_wire::{Data, Interest, Name};

const KEY: HashKey = HashKey::new([5, 6]);

fn shard(uri: &str, count: u16) -> u16 {
    let name: Name = uri.parse().unwrap();
    shard_of_name(&KEY, name.as_view(), count)
}

#[test]
fn name_digest_and_data_share_a_shard() {
    let digest = "ab".repeat(32);
    for name in ["/", "/a", "/a/b", "/a/b/seg=5", "/a/seg=70000", "/a/v=1/seg=9/x", "/seg=1"] {
        for count in 1..9 {
            let parsed: Name = name.parse().unwrap();
            let expected = shard(name, count);
            let header = LpHeader::default();
            let interest = Interest::new(parsed.clone()).can_be_prefix(true).nonce(1).encode();
            assert_eq!(shard_of_packet(&KEY, &header, &interest, count), Some(expected));
            let data = Data::new(parsed.clone()).content("x").encode_with_digest();
            assert_eq!(shard_of_packet(&KEY, &header, &data, count), Some(expected));
            let name = if name == "/" { "" } else { name };
            let full = alloc::format!("{name}/sha256digest={digest}");
            assert_eq!(shard(&full, count), expected);
            // Data may itself have such a name, and an Interest may have its digest.
            assert_eq!(shard(&alloc::format!("{full}/sha256digest={digest}"), count), expected);
        }
    }
}

#[test]
fn ranges_are_spread_over_shards() {
    let shards: Vec<u16> =
        (0..64 * 64).map(|segment| shard(&alloc::format!("/one/v=1/seg={segment}"), 4)).collect();
    assert!(shards.chunks(64).all(|range| range.iter().all(|shard| *shard == range[0])));
    for shard in 0..4 {
        let ranges = shards.chunks(64).filter(|range| range[0] == shard).count();
        assert!((8..=26).contains(&ranges), "{ranges} of 64 ranges in shard {shard}");
    }
}

#[test]
fn malformed_packet_has_no_shard() {
    let header = LpHeader::default();
    let interest = [5, 8, 7, 6, 8, 1, b'a', 8, 1, b'b'];
    assert!(shard_of_packet(&KEY, &header, &interest, 4).is_some());
    for cut in 0..interest.len() {
        assert!(shard_of_packet(&KEY, &header, &interest[..cut], 4).is_none());
    }
    assert!(shard_of_packet(&KEY, &header, &[6, 2, 7, 0], 4).is_some());
    for octets in [&[5, 4, 8, 2, 1, 1][..], &[5, 255, 255], &[6, 4, 7, 2, 8, 3], &[6, 2, 7, 1]] {
        assert!(shard_of_packet(&KEY, &header, octets, 4).is_none());
    }
}

#[test]
fn only_own_tokens_name_a_shard() {
    for count in [2, 3, 4, 7, 8, 64] {
        for shard in 0..count {
            for token in [
                token_of_shard(shard, count),
                secret_token(shard, count, 0, false),
                secret_token(shard, count, u64::MAX, false),
                secret_token(shard, count, u64::MAX, true),
            ] {
                assert_eq!(shard_of_token(&token, count), Some(shard), "{shard} of {count}");
            }
        }
        let prefix = token_of_shard(name_routed_shard(count), count);
        assert_eq!(shard_of_token(&prefix, count), None, "by name, of {count}");
    }
    for stranger in [&[][..], &[0], &[0, 0, 0, 1], &[0; 8], &[0; 32]] {
        let token = match stranger {
            [] => PitToken::default(),
            octets => PitToken::new(octets).unwrap(),
        };
        assert_eq!(shard_of_token(&token, 4), None);
    }
}

#[test]
fn tokens_have_documented_length_and_secret() {
    for (count, secret_bits) in [(1, 48), (2, 46), (4, 45), (64, 41)] {
        let token = |secret| secret_token(0, count, secret, false);
        assert_eq!(token(0).as_slice().len(), 6);
        for bit in 0..64 {
            let is_secret = token(0) != token(1 << bit);
            assert_eq!(is_secret, bit < secret_bits, "bit {bit} of {count} shards");
            assert_ne!(secret_token(0, count, 0, true), secret_token(0, count, 1 << bit, true));
        }
        assert_eq!(secret_token(0, count, 0, true).as_slice().len(), 12);
    }
}
