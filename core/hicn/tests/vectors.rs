//! Packets of public hICN programs (`tests/vectors/hicn.jsonl`).

use sha2::{Digest, Sha256};
use weir_hicn::manifest::{TransportManifest, TransportParameters};
use weir_hicn::{
    Algorithm, Flags, HicnError, HicnView, Hop, NativeData, from_tlv, to_tlv, updated_label,
};
use weir_wire::{DataView, InterestView};

fn vectors() -> Vec<Vec<u8>> {
    packets(include_str!("vectors/hicn.jsonl"), "")
}

/// The packets of a file whose lines contain this text.
fn packets(file: &str, text: &str) -> Vec<Vec<u8>> {
    let hex = |line| {
        let record: serde_json::Value = serde_json::from_str(line).expect("JSON");
        hex::decode(record["hex"].as_str().expect("a text")).expect("hexadecimal")
    };
    file.lines().filter(|line| line.contains(text)).map(hex).collect()
}

fn tlv(view: &HicnView<'_>) -> Vec<u8> {
    to_tlv(view, 0x0102_0304).expect("a packet with an NDN form")
}

/// The sum of all 16-bit words that TCP's checksum covers, which is all ones if it is right.
fn checksum_sum(packet: &[u8]) -> u64 {
    let mut octets = packet[8..].to_vec();
    octets.resize(octets.len().next_multiple_of(2), 0);
    let words = octets.chunks(2).map(|it| u64::from(u16::from_be_bytes([it[0], it[1]])));
    let mut sum = words.sum::<u64>() + 6 + (packet.len() - 40) as u64;
    while sum > 0xFFFF {
        sum = (sum & 0xFFFF) + (sum >> 16);
    }
    sum
}

#[test]
fn decodes_the_interest_of_hicn_ping() {
    let vectors = vectors();
    let view = HicnView::decode(&vectors[0]).expect("an Interest");
    let header = view.header;
    assert!(!header.is_data());
    assert_eq!(header.name.address.to_string(), "b001::1");
    assert_eq!(header.name.suffix, 0);
    assert_eq!(header.locator.to_string(), "::1");
    assert_eq!((header.lifetime_ms, header.hop_limit), (500, 254));
    let wire = tlv(&view);
    let interest = InterestView::decode(&wire).expect("an Interest of NDN");
    let uri = "/32=hicn/%B0%01/%00%00/%00%00/%00%00/%00%00/%00%00/%00%00/%00%01/seg=0";
    assert_eq!(interest.name.to_string(), uri);
    assert_eq!((interest.nonce, interest.lifetime_ms), (Some(0x0102_0304), Some(500)));
    assert_eq!((interest.hop_limit, interest.must_be_fresh), (Some(254), true));
    assert!(!interest.can_be_prefix);
    // Nothing is lost on the way back, and the checksum of this packet was right.
    let hop = Hop { locator: header.locator, face: 1, is_marked: false };
    let again = from_tlv(&wire, &hop).expect("an hICN form");
    assert_eq!(checksum_sum(&again), 0xFFFF);
    let without_checksum = |octets: &[u8]| [&octets[..56], &octets[58..]].concat();
    assert_eq!(without_checksum(&again), without_checksum(&vectors[0]));
}

#[test]
fn decodes_data_that_never_expires() {
    let vectors = vectors();
    let view = HicnView::decode(&vectors[1]).expect("a Data");
    assert!(view.header.is_data() && view.ah.is_none() && view.payload.is_empty());
    assert_eq!(view.header.lifetime_ms, 0xFFFF << 15);
    let wire = tlv(&view);
    let data = DataView::decode(&wire).expect("a Data of NDN");
    assert_eq!(data.freshness_ms, 0xFFFF << 15);
    assert_eq!(data.signature_info().signature_type, 9695);
    assert!(data.signature_value().is_empty());
}

/// A hop of hicn-light changes the path label like ours, and leaves the checksum wrong.
#[test]
fn path_label_and_checksum_are_updated() {
    let vectors = vectors();
    for (before, after) in [(1, 2), (3, 4)] {
        let view = HicnView::decode(&vectors[before]).expect("a Data");
        let hop = Hop { locator: view.header.locator, face: 1, is_marked: false };
        let packet = from_tlv(&tlv(&view), &hop).expect("an hICN form");
        assert_eq!(checksum_sum(&packet), 0xFFFF);
        let expected = HicnView::decode(&vectors[after]).expect("a Data").header;
        let found = HicnView::decode(&packet).expect("a Data").header;
        assert_eq!(found.path_label, expected.path_label);
        // Only the hop limit and the checksum differ from what hicn-light sent.
        let rest = |octets: &[u8]| [&octets[8..56], &octets[58..]].concat();
        assert_eq!(rest(&packet), rest(&vectors[after]));
    }
    assert_eq!(updated_label(0xC9, 1), 0x92);
    // The checksum of the producer itself is wrong.
    assert_ne!(checksum_sum(&vectors[3]), 0xFFFF);
}

#[test]
fn signed_data_keeps_its_signature() {
    let vectors = vectors();
    for wire in &vectors[3..] {
        let view = HicnView::decode(wire).expect("a signed Data");
        let ah = view.ah.expect("a signature");
        assert_eq!((ah.algorithm.number(), ah.signature().len()), (0x0D, 32));
        let packet = tlv(&view);
        let data = DataView::decode(&packet).expect("a Data of NDN");
        let native = NativeData::of(&data).expect("a native Data");
        let signed = native.signed_octets().expect("a signed Data").portions().concat();
        // The octets that the signature covers, as the vectors say.
        let mut covered = vec![0; wire.len()];
        for range in [8..24, 44..48, 60..63, 64..104, 136..wire.len()] {
            covered[range.clone()].copy_from_slice(&wire[range]);
        }
        assert_eq!(signed, covered);
    }
}

#[test]
fn decodes_a_realtime_manifest() {
    let vectors = vectors();
    let view = HicnView::decode(&vectors[5]).expect("a manifest");
    assert!(view.header.flags.has(Flags::MANIFEST));
    let manifest = TransportManifest::decode(view.payload).expect("a manifest");
    assert_eq!(manifest.address.to_string(), "b001::");
    assert_eq!(manifest.entries().len(), 0);
    assert!(!manifest.is_last);
    let TransportParameters::Realtime { timestamp_ms, production_segment, .. } =
        manifest.parameters
    else {
        panic!("a manifest of a live stream")
    };
    assert_eq!((timestamp_ms, production_segment), (0x43_401E, 123));
    let packet = tlv(&view);
    let data = DataView::decode(&packet).expect("a Data of NDN");
    assert_eq!(data.content_type, 4);
}

/// Byte streams of the public library: a manifest, then the packets that it lists.
#[test]
fn captured_manifests_list_the_digests_of_packets() {
    for (stream, final_suffix) in [("none", 7), ("hmac", 7), ("ec", 7), ("low", 6)] {
        let text = format!("\"stream\": \"{stream}\"");
        let packets = packets(include_str!("vectors/bytestream.jsonl"), &text);
        assert_eq!(packets.len(), 8);
        for (at, count, is_last) in [(0, 4, false), (5, 2, true)] {
            let view = HicnView::decode(&packets[at]).expect("a manifest");
            let manifest = TransportManifest::decode(view.payload).expect("a manifest");
            let parameters = TransportParameters::ByteStream { final_segment: final_suffix };
            assert_eq!((manifest.parameters, manifest.is_last), (parameters, is_last));
            assert_eq!(manifest.address.to_string(), "b001::1");
            assert_eq!(manifest.entries().len(), count);
            for (entry, listed) in manifest.entries().zip(&packets[at + 1..]) {
                let packet = tlv(&HicnView::decode(listed).expect("a listed packet"));
                let data = DataView::decode(&packet).expect("a Data of NDN");
                let native = NativeData::of(&data).expect("a native Data");
                assert!(native.signed_octets().is_none());
                let octets = native.stable_octets().portions().concat();
                let digest: [u8; 32] = Sha256::digest(octets).into();
                let header = HicnView::decode(listed).expect("a listed packet").header;
                assert_eq!((entry.suffix, *entry.digest), (header.name.suffix, digest));
            }
        }
    }
}

/// hICN's library sends wrong checksums, and hicn-light does not correct them.
#[test]
fn wrong_checksums_are_accepted() {
    let is_wrong = |packet: &&Vec<u8>| checksum_sum(packet) != 0xFFFF;
    let packets = packets(include_str!("vectors/bytestream.jsonl"), "\"stream\"");
    let wrong: Vec<&Vec<u8>> = packets.iter().filter(is_wrong).collect();
    assert!(!wrong.is_empty());
    for packet in wrong {
        HicnView::decode(packet).expect("a packet");
    }
}

/// Without a key, hICN's library sends an empty authentication header.
#[test]
fn empty_authentication_header_is_kept() {
    let packets = packets(include_str!("vectors/bytestream.jsonl"), "\"stream\": \"none\"");
    let view = HicnView::decode(&packets[0]).expect("a manifest");
    assert_eq!(view.ah.expect("a header").algorithm, Algorithm::NONE);
    let packet = tlv(&view);
    let native = NativeData::of(&DataView::decode(&packet).expect("a Data")).expect("a native one");
    assert!(native.signed_octets().is_none());
    let hop = Hop { locator: view.header.locator, face: 0, is_marked: false };
    let again = from_tlv(&packet, &hop).expect("an hICN form");
    assert_eq!(again[60..], packets[0][60..]);
}

#[test]
fn manifest_that_lies_is_refused() {
    use weir_hicn::manifest::ManifestError;
    let vectors = vectors();
    let payload = HicnView::decode(&vectors[5]).expect("a manifest").payload.to_vec();
    let refused = |at: usize, octet: u8| {
        let mut changed = payload.clone();
        changed[at] = octet;
        TransportManifest::decode(&changed).expect_err("a manifest that lies")
    };
    assert_eq!(refused(4, 10), ManifestError::Entries { declared: 10, found: 0 });
    assert_eq!(refused(0, 0x22), ManifestError::Type(2));
    assert_eq!(refused(0, 0xF1), ManifestError::Transport(15));
    assert_eq!(refused(2, 9), ManifestError::HashAlgorithm(9));
    assert_eq!(refused(5, 0), ManifestError::NotIpv6);
    for len in 0..payload.len() {
        assert!(TransportManifest::decode(&payload[..len]).is_err());
    }
}

#[test]
fn bad_packets_have_reasons() {
    let vectors = vectors();
    let (interest, signed) = (&vectors[0], &vectors[6]);
    let reason = |wire: &[u8], at: usize, octet: u8| {
        let mut changed = wire.to_vec();
        changed[at] = octet;
        HicnView::decode(&changed).expect_err("a bad packet")
    };
    assert_eq!(reason(interest, 0, 0x45), HicnError::Version(4));
    assert_eq!(reason(interest, 0, 0x90), HicnError::Version(9));
    assert_eq!(reason(interest, 5, 21), HicnError::Length { declared: 21, found: 20 });
    for extension in [0, 43, 50, 51, 60] {
        assert_eq!(reason(interest, 6, extension), HicnError::ExtensionHeader(extension));
    }
    assert_eq!(reason(interest, 6, 44), HicnError::Fragment);
    assert_eq!(reason(interest, 6, 58), HicnError::Icmp);
    assert_eq!(reason(interest, 6, 17), HicnError::NotTcp(17));
    let http = HicnError::Ports { from: 0x8050, to: 0x0080 };
    assert_eq!(reason(interest, 41, 0x50), http);
    assert_eq!(reason(interest, 52, 0x80), HicnError::TcpOptions(32));
    // An authentication header longer than the packet, with too much padding, or unknown.
    assert_eq!(reason(signed, 61, 255), HicnError::Ah);
    assert_eq!(reason(signed, 63, 33), HicnError::Ah);
    assert_eq!(reason(signed, 60, 6), HicnError::Ah);
    assert_eq!(reason(signed, 62, 0), HicnError::Algorithm(0));
    assert_eq!(reason(signed, 62, 200), HicnError::Algorithm(200));
    assert_eq!(reason(interest, 53, 0x12), HicnError::Ah);
    for len in 0..interest.len() {
        assert!(HicnView::decode(&interest[..len]).is_err());
    }
}

#[test]
fn interest_with_64_kib_is_refused() {
    let mut wire = vectors().swap_remove(0);
    wire.resize(40 + 65_535, 0);
    wire[4..6].copy_from_slice(&[0xFF, 0xFF]);
    let view = HicnView::decode(&wire).expect("a packet");
    assert_eq!(to_tlv(&view, 0), Err(HicnError::TooLarge));
}
