//! Properties of the codec: an encoded packet decodes to itself, and no input causes a panic.

#[path = "../../../fuzz/checks.rs"]
mod checks;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use weir_wire::{
    Component, Data, DataView, Interest, InterestView, KeyLocator, LpFraming, LpHeader, LpView,
    NackReason, Name, NameHead, PacketView, PitToken, SignatureInfo, ValidityPeriod, tlv,
};

fn component() -> impl Strategy<Value = Component> {
    prop_oneof![
        4 => vec(any::<u8>(), 0..20).prop_map(|value| Component::generic(&value)),
        1 => vec(any::<u8>(), 250..260).prop_map(|value| Component::generic(&value)),
        1 => "[.]{0,5}".prop_map(|text| Component::generic(text.as_bytes())),
        2 => any::<u64>().prop_map(Component::segment),
        1 => any::<u64>().prop_map(Component::version),
        1 => any::<u32>().prop_map(|number| Component::sequence(number.into())),
        1 => any::<[u8; 32]>().prop_map(Component::implicit_digest),
        2 => (3..=u16::MAX, vec(any::<u8>(), 0..9))
            .prop_map(|(typ, value)| Component::new(typ, &value).expect("a type from 3")),
    ]
}

fn name(components: std::ops::Range<usize>) -> impl Strategy<Value = Name> {
    vec(component(), components).prop_map(|components| components.into_iter().collect())
}

prop_compose! {
    fn interest()(
        name in name(1..8),
        can_be_prefix in any::<bool>(),
        must_be_fresh in any::<bool>(),
        forwarding_hint in vec(name(0..4), 0..3),
        nonce in option::of(any::<u32>()),
        lifetime_ms in option::of(any::<u64>()),
        hop_limit in option::of(any::<u8>()),
        application_parameters in option::of(vec(any::<u8>(), 0..300)),
    ) -> Interest {
        Interest {
            name, can_be_prefix, must_be_fresh, forwarding_hint, nonce, lifetime_ms, hop_limit,
            application_parameters,
        }
    }
}

prop_compose! {
    fn data()(
        name in name(0..8),
        content_type in any::<u64>(),
        freshness_ms in any::<u64>(),
        final_block_id in option::of(component()),
        content in vec(any::<u8>(), 0..1000),
    ) -> Data {
        Data { name, content_type, freshness_ms, final_block_id, content }
    }
}

fn key_locator() -> impl Strategy<Value = KeyLocator> {
    prop_oneof![
        name(0..5).prop_map(KeyLocator::Name),
        vec(any::<u8>(), 0..40).prop_map(KeyLocator::Digest),
    ]
}

prop_compose! {
    fn signature_info()(
        signature_type in any::<u64>(),
        key_locator in option::of(key_locator()),
        nonce in option::of(vec(any::<u8>(), 1..20)),
        time_ms in option::of(any::<u64>()),
        seq_num in option::of(any::<u64>()),
        period in option::of((0..253_402_300_800_i64, -62_167_219_200_i64..253_402_300_800)),
        with_extension in any::<bool>(),
    ) -> SignatureInfo {
        let mut extension = tlv::Writer::new();
        if with_extension {
            extension.tlv(tlv::ADDITIONAL_DESCRIPTION, b"text");
        }
        let validity_period = period.map(|(not_before_unix_s, not_after_unix_s)| {
            ValidityPeriod { not_before_unix_s, not_after_unix_s }
        });
        SignatureInfo {
            signature_type, key_locator, nonce, time_ms, seq_num, validity_period,
            extensions: extension.into_vec(),
        }
    }
}

prop_compose! {
    fn header()(
        sequence in any::<u64>(),
        frag in option::of((0..400_u64, 1..400_u64)),
        pit_token in vec(any::<u8>(), 0..=32),
        nack in option::of(prop_oneof![
            Just(NackReason::None),
            Just(NackReason::Congestion),
            Just(NackReason::Duplicate),
            Just(NackReason::NoRoute),
            (151..=u64::MAX).prop_map(NackReason::Other),
        ]),
        incoming_face in option::of(any::<u64>()),
        next_hop_face in option::of(any::<u64>()),
        no_cache in any::<bool>(),
        congestion_mark in prop_oneof![Just(0), Just(1), any::<u64>()],
        tx_sequence in option::of(any::<u64>()),
        non_discovery in any::<bool>(),
    ) -> (LpFraming, LpHeader) {
        let (frag_index, more) = frag.unwrap_or((0, 1));
        let sequence = frag.map(|_| sequence);
        let frag_count = frag_index + more;
        let header = LpHeader {
            pit_token: PitToken::new(&pit_token).expect("at most 32 octets"),
            nack,
            incoming_face, next_hop_face, no_cache, congestion_mark, non_discovery,
        };
        (LpFraming { sequence, frag_index, frag_count, tx_sequence }, header)
    }
}

/// A sequence of TLVs that resembles a packet more than random octets do.
fn near_packet() -> impl Strategy<Value = Vec<u8>> {
    let typ = prop_oneof![
        8 => prop::sample::select(vec![
            7_u32, 33, 18, 30, 10, 12, 34, 36, 44, 46, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29,
            38, 40, 42, 253, 80, 81, 82, 83, 98, 800, 801, 812, 820, 821, 832, 836, 840, 844,
        ]),
        1 => any::<u32>(),
    ];
    let leaf = vec(any::<u8>(), 0..10).prop_map(|value| (8, value));
    let element = leaf.prop_recursive(4, 64, 8, move |inner| {
        (typ.clone(), vec(inner, 0..8)).prop_map(|(typ, children)| (typ, encode_all(&children)))
    });
    (prop::sample::select(vec![5_u32, 6, 100]), vec(element, 0..8))
        .prop_map(|(typ, children)| encode_all(&[(typ, encode_all(&children))]))
}

fn encode_all(elements: &[(u32, Vec<u8>)]) -> Vec<u8> {
    let mut writer = tlv::Writer::new();
    for (typ, value) in elements {
        writer.tlv(*typ, value);
    }
    writer.into_vec()
}

/// Valid packets, to be damaged.
fn encoded() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        interest().prop_map(|interest| interest.encode()),
        (interest(), signature_info()).prop_map(|(interest, info)| {
            interest.encode_signed(&info, |portions| portions.concat())
        }),
        (data(), signature_info()).prop_map(|(data, info)| data.encode_signed(&info, |_| vec![7])),
        (header(), interest()).prop_map(|((framing, header), interest)| {
            header.encode(&framing, &[1, 2], Some(&interest.encode()))
        }),
    ]
}

fn check_all(octets: &[u8]) {
    checks::run("interest", octets);
    checks::run("data", octets);
    checks::run("lp", octets);
    checks::run("name", octets);
    checks::run("name_uri", octets);
    checks::run("frame", octets);
}

/// Packets whose names often share all but the last component, some of them damaged.
fn related_packets() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let packet = (0..3_usize, option::of(component()), any::<bool>(), any::<bool>(), 0..20_usize);
    (vec(name(1..5), 3), vec(packet, 1..12)).prop_map(|(objects, packets)| {
        type Packet = (usize, Option<Component>, bool, bool, usize);
        let encode = |(object, last, is_data, has_parameters, cut): Packet| {
            let mut name: Name = objects[object].clone();
            if let Some(last) = last {
                name.push(&last);
            }
            let mut wire = match is_data {
                true => Data::new(name).encode_with_digest(),
                false if has_parameters => Interest::new(name).application_parameters([1]).encode(),
                false => Interest::new(name).encode(),
            };
            if cut == 0 {
                wire.pop();
            }
            wire
        };
        packets.into_iter().map(encode).collect()
    })
}

proptest! {
    #[test]
    fn a_packet_decodes_alike_after_any_other(packets in related_packets()) {
        let mut head = NameHead::NONE;
        let mut before: Option<Vec<u8>> = None;
        for wire in &packets {
            let alone = PacketView::decode(wire);
            let after = PacketView::decode_after(wire, &mut head);
            prop_assert_eq!(format!("{alone:?}"), format!("{after:?}"));
            let Ok(view) = after else {
                head = NameHead::NONE;
                before = None;
                continue;
            };
            prop_assert_eq!(view.name().component_count(), view.name().components().count());
            let parent = view.name().parent();
            prop_assert!(head.value().is_empty() || head.value() == parent.value());
            if head.is_repeated() {
                prop_assert_eq!(before.as_deref(), Some(parent.value()));
            }
            before = Some(parent.value().to_vec());
        }
    }

    #[test]
    fn a_short_token_is_the_token(octets in vec(any::<u8>(), 0..=32)) {
        let token = PitToken::new(&octets).expect("at most 32 octets");
        let short = token.to_short().map(PitToken::from);
        prop_assert_eq!(short, (octets.len() <= 12).then_some(token));
    }

    #[test]
    fn an_interest_decodes_to_itself(interest in interest()) {
        let wire = interest.encode();
        let view = InterestView::decode(&wire).expect("an encoded Interest decodes");
        let mut decoded = view.to_interest();
        if interest.application_parameters.is_some() {
            prop_assert!(decoded.name.pop().is_some_and(|c| c.as_view().is_parameters_digest()));
        }
        prop_assert_eq!(decoded, interest);
        prop_assert_eq!(view.to_interest().encode(), wire.clone());
        checks::run("interest", &wire);
    }

    #[test]
    fn a_signed_interest_decodes_to_itself(interest in interest(), info in signature_info()) {
        let mut signed = Vec::new();
        let wire = interest.encode_signed(&info, |portions| {
            signed = portions.concat();
            vec![1, 2, 3]
        });
        let view = InterestView::decode(&wire).expect("an encoded Interest decodes");
        let signature = view.signature().expect("a signature");
        prop_assert_eq!(signature.signed_portion().concat(), signed);
        prop_assert_eq!(signature.value, &[1, 2, 3]);
        let info = SignatureInfo { validity_period: None, ..info };
        prop_assert_eq!(signature.info().to_signature_info(), info);
        checks::run("interest", &wire);
        let digest = interest.encode_with_digest(&signature.info().to_signature_info());
        let view = InterestView::decode(&digest).expect("an encoded Interest decodes");
        prop_assert_eq!(view.signature().expect("a signature").check_digest(), Ok(()));
    }

    #[test]
    fn a_data_decodes_to_itself(data in data(), info in signature_info()) {
        let mut signed = Vec::new();
        let wire = data.encode_signed(&info, |portions| {
            signed = portions.concat();
            vec![4, 5]
        });
        let view = DataView::decode(&wire).expect("an encoded Data decodes");
        prop_assert_eq!(view.to_data(), data.clone());
        prop_assert_eq!(view.signature_info().to_signature_info(), info);
        prop_assert_eq!(view.signed_portion(), signed);
        checks::run("data", &wire);
        let wire = data.encode_with_digest();
        prop_assert_eq!(DataView::decode(&wire).expect("a Data").check_digest(), Ok(()));
    }

    #[test]
    fn a_link_header_decodes_to_itself(
        (framing, header) in header(),
        acks in vec(any::<u64>(), 0..4),
        interest in interest(),
    ) {
        let fragment = interest.encode();
        let wire = header.encode(&framing, &acks, Some(&fragment));
        let view = LpView::decode(&wire).expect("an encoded LpPacket decodes");
        prop_assert_eq!((view.framing, &view.header), (framing, &header));
        prop_assert_eq!(view.acks().collect::<Vec<_>>(), acks);
        prop_assert_eq!(view.fragment, Some(&fragment[..]));
        prop_assert_eq!(header.is_plain(), header == LpHeader::default());
        checks::run("lp", &wire);
    }

    #[test]
    fn names_order_like_components(a in name(0..5), b in name(0..5)) {
        let key = |name: &Name| -> Vec<(u16, usize, Vec<u8>)> {
            let components = name.as_view();
            components.components().map(|c| (c.typ, c.value.len(), c.value.to_vec())).collect()
        };
        prop_assert_eq!(a.cmp(&b), key(&a).cmp(&key(&b)));
        prop_assert_eq!(a.as_view().is_prefix_of(b.as_view()), key(&b).starts_with(&key(&a)));
    }

    #[test]
    fn a_name_survives_its_uri(name in name(0..6)) {
        checks::run("name", name.value());
        prop_assert_eq!(name.to_string().parse::<Name>(), Ok(name));
    }

    #[test]
    fn any_text_parses_without_panic(text in "(ndn:)?/?[a-z0-9.%=/A-F~\\-]{0,60}") {
        checks::run("name_uri", text.as_bytes());
    }

    #[test]
    fn random_bytes_do_not_panic(octets in vec(any::<u8>(), 0..100)) {
        check_all(&octets);
    }

    #[test]
    fn near_packets_do_not_panic(octets in near_packet()) {
        check_all(&octets);
    }

    #[test]
    fn damaged_packets_do_not_panic(
        octets in encoded(),
        damage in vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        cut in option::of(any::<prop::sample::Index>()),
    ) {
        let mut octets = octets;
        for (position, octet) in damage {
            let at = position.index(octets.len());
            octets[at] = octet;
        }
        if let Some(cut) = cut {
            octets.truncate(cut.index(octets.len()));
        }
        check_all(&octets);
    }
}
