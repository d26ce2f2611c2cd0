use alloc::string::ToString;
use alloc::vec::Vec;

use proptest::prelude::*;
use weir_wire::{Interest, tlv};

use super::*;

fn name(uri: &str) -> Name {
    uri.parse().unwrap()
}

fn hicn(text: &str) -> NameMapping {
    text.parse().unwrap()
}

/// The encodings on the page about sockets.
#[test]
fn encodes_names_as_documented() {
    let mapping = hicn("hicn:2001:db8:1::/48");
    let object = name("/site/film");
    let digest = sha256(&[object.value()]);
    let mut octets = Vec::from(*b"\x20\x04hicn\x08\x02\x20\x01\x08\x02\x0D\xB8\x08\x02\x00\x01");
    assert_eq!(mapping.prefix(object.as_view()).value(), octets);
    for group in digest[..10].chunks(2) {
        octets.extend([8, 2]);
        octets.extend(group);
    }
    assert_eq!(mapping.version_prefix(object.as_view()).value(), octets);
    let numbered = |suffix: u32| {
        let address = Ipv6Addr::from(
            <[u8; 16]>::try_from([&[0x20, 1, 0x0D, 0xB8, 0, 1], &digest[..10]].concat()).unwrap(),
        );
        HicnName { address, suffix }.to_name()
    };
    let part = |level, number| mapping.part_name(object.as_view(), PartId { level, number });
    assert_eq!(part(1, 0), numbered(0x8000_0000));
    assert_eq!(part(1, 7), numbered(0x8000_0007));
    assert_eq!(part(2, 3), numbered(0xC000_0003));
    assert_eq!(mapping.metadata_name(object.as_view(), 9), numbered(0xFFFF_FFFF));
    assert_eq!(mapping.metadata_interest(object.as_view()), (numbered(0xFFFF_FFFF), false));
    let wire = numbered(0x8000_0007).value().to_vec();
    assert_eq!(wire[wire.len() - 6..], [0x32, 4, 0x80, 0, 0, 7]);
    assert_eq!(numbered(5).value().len(), 6 + 8 * 4 + 3);
}

#[test]
fn identity_has_the_conventions_of_ndn() {
    let (mapping, object) = (NameMapping::default(), name("/a"));
    let versioned = name("/a/v=1");
    assert_eq!(mapping.prefix(object.as_view()), object);
    assert_eq!(mapping.version_prefix(versioned.as_view()), versioned);
    assert_eq!(mapping.metadata_interest(object.as_view()), (name("/a/32=metadata"), true));
    let metadata = mapping.metadata_name(object.as_view(), 3);
    assert_eq!(metadata, name("/a/32=metadata/v=3/seg=0"));
    let part = mapping.part_name(versioned.as_view(), PartId { level: 2, number: 4 });
    assert_eq!(part, name("/a/v=1/32=manifest/seq=2/seg=4"));
    assert_eq!(mapping.part_of_number(u64::MAX), None);
    assert!(mapping.check_last(u64::MAX).is_ok());
}

#[test]
fn addresses_stand_for_themselves() {
    let mapping = hicn("hicn:2001:db8::/32");
    let address = HicnName::parse_uri("hicn:b001::1").unwrap().unwrap();
    assert!(mapping.is_direct(address.as_view()));
    assert!(!NameMapping::Identity.is_direct(address.as_view()));
    assert_eq!(mapping.version_prefix(address.as_view()), address);
    for other in [address.as_view().parent().to_name(), address.clone().append_version(1).clone()] {
        assert!(!mapping.is_direct(other.as_view()));
        let prefix = mapping.prefix(other.as_view());
        assert!(prefix.as_view().is_prefix_of(mapping.version_prefix(other.as_view()).as_view()));
    }
}

fn interest(name: &Name, element: &[u8]) -> Vec<u8> {
    let plain = Interest::new(name.clone()).nonce(1).encode();
    let mut writer = tlv::Writer::new();
    let body = tlv::read_single_of(&plain, tlv::INTEREST).unwrap();
    writer.tlv(tlv::INTEREST, &[body, element].concat());
    writer.into_vec()
}

#[test]
fn payloads_name_what_is_requested() {
    let (mapping, other) = (hicn("hicn:2001:db8::/32"), hicn("hicn:2001:db9::/32"));
    let object = name("/site/film");
    let (network, element) =
        (mapping.metadata_interest(object.as_view()).0, mapping.metadata_payload(object.as_view()));
    let read = |mapping: &NameMapping, wire: &[u8]| {
        let request = mapping.requested(&InterestView::decode(wire).unwrap());
        request.map(|it| it.map(|it| (it.name.to_name(), it.parameters.map(<[u8]>::to_vec))))
    };
    let wire = interest(&network, &element);
    assert_eq!(read(&mapping, &wire), Ok(Some((object.clone(), None))));
    assert_eq!(read(&mapping, &interest(&network, &[])), Ok(None));
    assert_eq!(read(&NameMapping::Identity, &wire), Ok(None));
    assert_eq!(read(&other, &wire), Err(FalsePayload));
    // Other parameters have another name.
    let (first, with_first) = mapping.request(object.as_view(), b"1").unwrap();
    let (second, with_second) = mapping.request(object.as_view(), b"2").unwrap();
    assert!(first != second && first != network);
    let found = read(&mapping, &interest(&second, &with_second)).unwrap().unwrap();
    assert_eq!(found, (object.clone(), Some(b"2".to_vec())));
    for (network, element) in [(&first, &with_second), (&first, &element), (&network, &with_first)]
    {
        assert_eq!(read(&mapping, &interest(network, element)), Err(FalsePayload));
    }
    assert_eq!(NameMapping::Identity.request(object.as_view(), b"1"), None);
    let mut long = object.clone();
    long.append_generic(&[b'x'; 1200]);
    let address = HicnName::parse_uri("hicn:b001::1").unwrap().unwrap();
    for name in [long, address] {
        assert!(mapping.metadata_payload(name.as_view()).is_empty());
    }
    assert!(NameMapping::Identity.metadata_payload(object.as_view()).is_empty());
}

#[test]
fn metadata_names_show_their_object() {
    let (object, another) = (name("/a"), name("/b"));
    for prefix in ["2001::/16", "2001:db8::/32", "2001:db8:7::/48", "2001:db8:7:1::/64"] {
        let mapping = hicn(&alloc::format!("hicn:{prefix}"));
        let metadata = mapping.metadata_name(object.as_view(), 0);
        assert!(is_hicn_metadata_of(metadata.as_view(), object.as_view()));
        assert!(!is_hicn_metadata_of(metadata.as_view(), another.as_view()));
        let mut segment = mapping.version_prefix(object.as_view());
        segment.append_segment(0);
        assert!(!is_hicn_metadata_of(segment.as_view(), object.as_view()));
    }
    assert!(!is_hicn_metadata_of(object.as_view(), object.as_view()));
}

#[test]
fn rejects_unmappable_names() {
    let parse = |text: &str| text.parse::<NameMapping>().unwrap_err();
    for text in ["", "hicn", "ipv6", "2001:db8::/32"] {
        assert_eq!(parse(text), MappingError::Unknown(text.into()));
    }
    // The prefix is that of any other hICN name, with the same errors.
    for text in ["hicn:", "hicn:2001:db8::/x", "hicn:x/32", "hicn:2001:db8::/16"] {
        let error = HicnPrefix::parse_uri(text).unwrap().unwrap_err();
        assert_eq!(parse(text), MappingError::Prefix(error));
    }
    for bits in [0, 20, 80, 128, 144] {
        assert_eq!(parse(&alloc::format!("hicn:::/{bits}")), MappingError::PrefixBits { bits });
    }
    assert_eq!(parse("hicn:2001:db8::"), MappingError::PrefixBits { bits: 128 });
    let mapping = hicn("hicn:2001:db8::/32");
    assert!(mapping.check_last(SEGMENTS_MAX - 1).is_ok());
    for segment in [SEGMENTS_MAX, 1 << 32, u64::MAX] {
        assert_eq!(mapping.check_last(segment), Err(MappingError::Segment(segment)));
    }
}

#[test]
fn rejects_other_names() {
    let good = HicnName { address: Ipv6Addr::LOCALHOST, suffix: 7 }.to_name();
    assert!(HicnName::from_name(good.as_view()).is_some());
    let mut longer = good.clone();
    longer.append_segment(1);
    let short = good.as_view().prefix(9).to_name();
    let mut version = good.as_view().parent().to_name();
    version.append_version(7);
    let mut outside = good.as_view().parent().to_name();
    outside.append_segment(1 << 32);
    let head = good.as_view().prefix(8).to_name();
    let typed = head.clone().append_keyword(&[0, 1]).append_segment(7).clone();
    let wide = head.clone().append_generic(&[0, 0, 1]).append_segment(7).clone();
    for other in [longer, short, version, outside, typed, wide, Name::new(), name("/a/seg=1")] {
        assert_eq!(HicnName::from_name(other.as_view()), None, "{other}");
        assert!(!is_hicn_metadata(other.as_view()));
    }
}

proptest! {
    #[test]
    fn reads_mapped_names_back(address: u128, suffix: u32) {
        let hicn = HicnName { address: address.into(), suffix };
        prop_assert_eq!(HicnName::from_name(hicn.to_name().as_view()), Some(hicn));
        prop_assert_eq!(is_hicn_metadata(hicn.to_name().as_view()), suffix == u32::MAX);
    }

    #[test]
    fn parses_displayed_prefixes(address: u128, groups in 1_u8..=4) {
        let bits = 16 * groups;
        let mapping = NameMapping::Hicn(HicnPrefix::masked(address.into(), bits));
        prop_assert_eq!(mapping.to_string().parse::<NameMapping>(), Ok(mapping));
        // Everything below an object has names below its name. Another object has another address.
        let names = [name("/a"), name("/a/v=1"), name("/b"), Name::new()];
        let prefix = mapping.prefix(names[0].as_view());
        let mut versions: Vec<Name> =
            names.iter().map(|one| mapping.version_prefix(one.as_view())).collect();
        prop_assert!(versions.iter().all(|one| prefix.as_view().is_prefix_of(one.as_view())));
        versions.sort();
        versions.dedup();
        prop_assert_eq!(versions.len(), names.len());
    }

    #[test]
    fn suffixes_distinguish_packets(
        segment in 0..SEGMENTS_MAX,
        level in 1..=LEVELS_MAX,
        number in 0..SEGMENTS_MAX - 1,
    ) {
        let mapping = hicn("hicn:2001:db8::/32");
        let part = PartId { level, number };
        let made = mapping.part_name(name("/a/v=1").as_view(), part);
        let hicn = HicnName::from_name(made.as_view()).unwrap();
        prop_assert_eq!(mapping.part_of_number(hicn.suffix.into()), Some(part));
        prop_assert_eq!(mapping.part_of_number(segment), None);
        prop_assert!(!is_hicn_metadata(made.as_view()));
    }
}
