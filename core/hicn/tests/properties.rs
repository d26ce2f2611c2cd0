//! Conversion in both directions loses nothing, and no octets cause a panic.

#[path = "../../../fuzz/hicn.rs"]
mod hicn;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use weir_hicn::{
    Flags, Header, HicnError, HicnName, HicnView, Hop, InterestManifest, from_tlv, to_tlv,
};
use weir_wire::{
    Component, Data, DataView, Interest, KeyLocator, Name, SignatureInfo, signature_type, tlv,
};

const HOP: Hop = Hop { locator: std::net::Ipv6Addr::LOCALHOST, face: 256, is_marked: true };

fn hicn_name() -> impl Strategy<Value = HicnName> {
    let suffix = prop_oneof![Just(0), Just(255), Just(256), Just(65_536), any::<u32>()];
    (any::<u128>(), suffix).prop_map(|(bits, suffix)| HicnName { address: bits.into(), suffix })
}

prop_compose! {
    fn interest()(
        name in hicn_name(),
        must_be_fresh in any::<bool>(),
        nonce in any::<u32>(),
        lifetime_ms in 0..65_536_u64,
        hop_limit in any::<u8>(),
    ) -> Interest {
        Interest::new(name.to_name())
            .must_be_fresh(must_be_fresh)
            .nonce(nonce)
            .lifetime_ms(lifetime_ms)
            .hop_limit(hop_limit)
    }
}

prop_compose! {
    /// A Data with any signature but hICN's.
    fn data()(
        name in hicn_name(),
        content_type in any::<u16>(),
        freshness_ms in any::<u64>(),
        last in option::of(any::<u32>()),
        content in vec(any::<u8>(), 0..1500),
        signature_type in 0..201_u64,
        key_name in option::of(vec(any::<u8>(), 0..40)),
        time_ms in option::of(any::<u64>()),
        signature in vec(any::<u8>(), 0..300),
    ) -> Vec<u8> {
        let data = Data {
            name: name.to_name(),
            content_type: content_type.into(),
            freshness_ms,
            final_block_id: last.map(|last| Component::segment(last.into())),
            content,
        };
        let key_locator =
            key_name.map(|it| KeyLocator::Name(Name::from_iter([Component::generic(&it)])));
        let info = SignatureInfo { signature_type, key_locator, time_ms, ..Default::default() };
        data.encode_signed(&info, |_| signature)
    }
}

fn short_value() -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 0..9)
}

/// The packet after its way through an hICN packet.
fn there_and_back(packet: &[u8], nonce: u32) -> Result<Vec<u8>, HicnError> {
    let hicn = from_tlv(packet, &HOP)?;
    let view = HicnView::decode(&hicn).expect("an encoded packet decodes");
    assert!(view.header.is_marked);
    Ok(to_tlv(&view, nonce).expect("an NDN form"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn interests_survive(interest in interest()) {
        let packet = interest.encode();
        let nonce = interest.nonce.expect("a nonce");
        prop_assert_eq!(there_and_back(&packet, nonce), Ok(packet));
    }

    #[test]
    fn ndn_data_survives(packet in data()) {
        prop_assert_eq!(there_and_back(&packet, 0), Ok(packet));
    }

    #[test]
    fn hicn_packets_survive(
        name in hicn_name(),
        locator in any::<u128>(),
        flags in any::<u8>(),
        hop_limit in any::<u8>(),
        is_marked in any::<bool>(),
        path_label in any::<u8>(),
        (mantissa, scale) in (any::<u16>(), 0..16_u32),
        (algorithm, padding, words) in (0..20_u8, 0..9_u8, 0..64_u8),
        payload in vec(any::<u8>(), 0..300),
    ) {
        let mut ah = vec![0; 44 + 4 * usize::from(words)];
        ah[1..4].copy_from_slice(&[words, algorithm, padding]);
        let flags = Flags::from_octet(flags);
        if !flags.has(Flags::AH) {
            ah.clear();
        }
        let lifetime_ms = u64::from(mantissa) << scale;
        let header = Header {
            name, locator: locator.into(), flags, hop_limit, is_marked, path_label, lifetime_ms,
        };
        let head = header.encode(&[&ah, &payload]).expect("a short packet");
        hicn::check(&[&head[..], &ah, &payload].concat());
    }

    #[test]
    fn any_octets_are_handled(octets in vec(any::<u8>(), 0..400)) {
        hicn::check(&octets);
    }

    #[test]
    fn damaged_packets_are_handled(
        index in any::<prop::sample::Index>(),
        damage in vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
    ) {
        let lines: Vec<&str> = include_str!("vectors/hicn.jsonl").lines().collect();
        let record: serde_json::Value =
            serde_json::from_str(lines[index.index(lines.len())]).expect("JSON");
        let mut octets =
            hex::decode(record["hex"].as_str().expect("a text")).expect("hexadecimal");
        for (at, octet) in damage {
            let at = at.index(octets.len());
            octets[at] = octet;
        }
        hicn::check(&octets);
    }

    #[test]
    fn any_control_message_is_handled(
        kind in 0xC0..0xC6_u8,
        command in prop_oneof![Just(5), Just(8), Just(9), Just(10), Just(15), Just(23), 0..40_u8],
        rest in vec(any::<u8>(), 6),
        connection in prop_oneof![Just("SELF"), Just("7"), Just(""), Just("a longer name....")],
        fields in vec(any::<u8>(), 0..24),
        family in prop_oneof![Just([10, 64, 0, 0]), Just([1, 0, 10, 64]), any::<[u8; 4]>()],
    ) {
        let mut name = connection.as_bytes().to_vec();
        name.resize(16, 0);
        let (header, fields) = ([&[kind, command], &rest[..]].concat(), &fields[..]);
        hicn::check(&[&header, fields].concat());
        let mut address = fields.to_vec();
        address.resize(16, 0);
        hicn::check(&[&header[..], &name].concat());
        hicn::check(&[&header[..], &name, &address, &family].concat());
        hicn::check(&[&header[..], &name, &address, &family, fields].concat());
    }

    /// What a stranger may put into the place of the signature.
    #[test]
    fn any_ndn_elements_are_handled(
        name in hicn_name(),
        elements in vec((prop_oneof![7..8_u32, 20..24_u32, 1..70_u32], short_value()), 0..6),
        payload in vec(any::<u8>(), 0..50),
    ) {
        let mut writer = tlv::Writer::new();
        for (typ, value) in &elements {
            writer.tlv(*typ, value);
        }
        let octets = writer.into_vec();
        let words = octets.len().div_ceil(4);
        let mut ah = vec![0; 44];
        ah[1..4].copy_from_slice(&[words as u8, 0xFE, (4 * words - octets.len()) as u8]);
        ah.extend(&octets);
        ah.resize(44 + 4 * words, 0);
        let header = Header {
            name,
            locator: HOP.locator,
            flags: Flags::DATA.with(Flags::AH),
            hop_limit: 9,
            is_marked: false,
            path_label: 0,
            lifetime_ms: 0,
        };
        let head = header.encode(&[&ah, &payload]).expect("a short packet");
        hicn::check(&[&head[..], &ah, &payload].concat());
    }
}

#[test]
fn packets_without_an_hicn_form_are_refused() {
    let name = HicnName { address: HOP.locator, suffix: 3 };
    let refused = |packet: &[u8]| there_and_back(packet, 0).expect_err("no hICN form");
    let other = Interest::new("/a/seg=3".parse().expect("a name"));
    assert_eq!(refused(&other.encode()), HicnError::NoName);
    let interest = Interest::new(name.to_name());
    assert_eq!(refused(&interest.clone().can_be_prefix(true).encode()), HicnError::NoForm);
    let hint = vec!["/far".parse().expect("a name")];
    assert_eq!(refused(&interest.clone().forwarding_hint(hint).encode()), HicnError::NoForm);
    assert_eq!(refused(&interest.application_parameters(*b"x").encode()), HicnError::NoName);
    // A suffix in more octets than it needs would come back as another name.
    let mut long = HicnName::prefix(&HOP.locator.octets());
    long.push(&Component::new(50, &[0, 3]).expect("a component"));
    assert_eq!(refused(&Interest::new(long).encode()), HicnError::NoName);
    // The elements of a Data must fit into the place of a signature.
    let large = SignatureInfo::new(1);
    let data = Data::new(name.to_name()).encode_signed(&large, |_| vec![0; 1100]);
    assert_eq!(refused(&data), HicnError::NoForm);
    // SignatureType hICN without its fields.
    let info = SignatureInfo::new(signature_type::HICN);
    let data = Data::new(name.to_name()).encode_signed(&info, |_| vec![0; 32]);
    assert_eq!(refused(&data), HicnError::NoForm);
}

#[test]
fn payload_of_an_interest_survives_a_router() {
    let name = HicnName { address: HOP.locator, suffix: 3 };
    let header = Header {
        name,
        locator: HOP.locator,
        flags: Flags::default(),
        hop_limit: 60,
        is_marked: true,
        path_label: 0,
        lifetime_ms: 1000,
    };
    let head = header.encode(&[&[], b"payload"]).expect("a short packet");
    let packet = [&head[..], b"payload"].concat();
    let view = HicnView::decode(&packet).expect("an Interest");
    let tlv = to_tlv(&view, 5).expect("an NDN form");
    let interest = weir_wire::InterestView::decode(&tlv).expect("an Interest of NDN");
    let mut rewritten = [0; 200];
    let size = weir_wire::rewrite_interest(&interest, 6, Some(59), false, &mut rewritten);
    let again = from_tlv(&rewritten[..size.expect("room")], &HOP).expect("an hICN form");
    let back = HicnView::decode(&again).expect("an Interest");
    assert_eq!(back.payload, b"payload");
    assert_eq!(back.header, Header { hop_limit: 59, flags: back.header.flags, ..header });
}

/// A neighbour with NDN packets cannot request many packets with one Interest.
#[test]
fn interest_manifests_have_no_ndn_form() {
    let name = HicnName { address: HOP.locator, suffix: 3 };
    let mut payload = Vec::new();
    InterestManifest::encode(0..200, &mut payload);
    let element = |flags: Flags| {
        let mut writer = tlv::Writer::new();
        writer.tlv(tlv::HICN_PAYLOAD, &[&[flags.octet()], &payload[..]].concat());
        let interest = Interest::new(name.to_name()).nonce(1).encode();
        let body = tlv::read_single_of(&interest, tlv::INTEREST).expect("an Interest");
        let mut outer = tlv::Writer::new();
        outer.tlv(tlv::INTEREST, &[body, &writer.into_vec()].concat());
        outer.into_vec()
    };
    for flags in [Flags::MANIFEST, Flags::LAST, Flags::MANIFEST.with(Flags::AH)] {
        assert_eq!(from_tlv(&element(flags), &HOP), Err(HicnError::NoForm));
    }
    let packet = from_tlv(&element(Flags::default()), &HOP).expect("an hICN form");
    let mut header = HicnView::decode(&packet).map(|view| view.header).expect("an Interest");
    header.flags = header.flags.with(Flags::MANIFEST);
    let packet = [&header.encode(&[&[], &payload]).expect("a short packet")[..], &payload].concat();
    let view = HicnView::decode(&packet).expect("a manifest");
    assert_eq!(to_tlv(&view, 7), Err(HicnError::NoForm));
}

#[test]
fn implicit_digest_stays_the_same() {
    // Manifests of digests verify behind an hICN link.
    let name = HicnName { address: HOP.locator, suffix: 3 };
    let data = Data::new(name.to_name()).content(*b"x").encode_with_digest();
    let back = there_and_back(&data, 0).expect("an hICN form");
    let digest = |wire: &[u8]| DataView::decode(wire).expect("a Data").implicit_digest();
    assert_eq!(digest(&back), digest(&data));
}
