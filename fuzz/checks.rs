//! Properties that must hold for any input. Shared by property tests and fuzz targets.

use weir_wire::{
    Data, DataView, DecodeError, FrameError, Interest, InterestView, LP_PREFIX_MAX, LpView, Name,
    NameView, PACKET_SIZE_MAX, UriStyle, peek_frame, rewrite_interest, tlv,
};

/// Runs the check of a fuzz target.
pub(crate) fn run(target: &str, octets: &[u8]) {
    match target {
        "interest" => interest(octets),
        "data" => data(octets),
        "lp" => lp(octets),
        "name" => name(octets),
        "name_uri" => name_uri(octets),
        "frame" => frame(octets),
        other => panic!("no check of the name {other}"),
    }
}

/// Decodes bytes as an Interest. If that succeeds, encoding and rewriting must preserve it.
fn interest(octets: &[u8]) {
    let Ok(view) = InterestView::decode(octets) else { return };
    check_name(view.name);
    let owned = view.to_interest();
    let again = encode_interest(&view, &owned);
    let decoded = InterestView::decode(&again).expect("an encoded Interest decodes");
    assert_eq!(without_digest(decoded.to_interest()), without_digest(owned));
    let info = |view: &InterestView<'_>| view.signature().map(|s| s.info().to_signature_info());
    assert_eq!(info(&decoded), info(&view));
    assert_eq!(decoded.signature().map(|s| s.value), view.signature().map(|s| s.value));
    for strip in [false, true] {
        check_rewrite(&view, None, strip);
        check_rewrite(&view, Some(7), strip);
    }
}

/// The owned form lacks elements that the decoder skipped, so the digest of the parameters may
/// differ.
fn without_digest(mut interest: Interest) -> Interest {
    let components = interest.name.as_view();
    let others = components.components().filter(|component| !component.is_parameters_digest());
    interest.name = others.map(|component| component.to_component()).collect();
    interest
}

fn encode_interest(view: &InterestView<'_>, owned: &Interest) -> Vec<u8> {
    match view.signature() {
        None => owned.encode(),
        Some(signature) => owned.encode_signed(&signature.info().to_signature_info(), |portions| {
            let signed = |portions: &[&[u8]]| portions.concat();
            // Skipped elements of the original are not in the owned form, so lengths may differ.
            assert!(signed(portions).len() <= signed(&signature.signed_portion()).len());
            signature.value.to_vec()
        }),
    }
}

fn check_rewrite(view: &InterestView<'_>, hop_limit: Option<u8>, strip: bool) {
    let nonce = 0x0102_0304;
    let mut out = vec![0; view.wire.len() + 10];
    let size = rewrite_interest(view, nonce, hop_limit, strip, &mut out).expect("there is room");
    let rewritten = InterestView::decode(&out[..size]).expect("a rewritten Interest decodes");
    let mut expected = view.to_interest();
    expected.nonce = Some(nonce);
    expected.hop_limit = expected.hop_limit.map(|old| hop_limit.unwrap_or(old));
    if strip {
        expected.forwarding_hint.clear();
    }
    assert_eq!(rewritten.to_interest(), expected);
    assert_eq!(rewritten.signed_portion(), view.signed_portion());
    let short = &mut out[..size - 1];
    assert_eq!(rewrite_interest(view, nonce, hop_limit, strip, short), None);
}

/// Decodes bytes as a Data. If that succeeds, encoding must preserve it.
fn data(octets: &[u8]) {
    let Ok(view) = DataView::decode(octets) else { return };
    check_name(view.name);
    assert!(view.signed_portion().len() < octets.len());
    let owned: Data = view.to_data();
    let info = view.signature_info().to_signature_info();
    assert_eq!(view.parent_len, view.name.parent().value().len());
    let again = owned.encode_signed(&info, |_| view.signature_value().to_vec());
    let decoded = DataView::decode(&again).expect("an encoded Data decodes");
    assert_eq!(decoded.to_data(), owned);
    assert_eq!(decoded.signature_info().to_signature_info(), info);
    assert_eq!(decoded.signature_value(), view.signature_value());
    let _ = view.check_digest();
}

/// Decodes bytes as an LpPacket. If that succeeds, encoding must preserve its header.
fn lp(octets: &[u8]) {
    let Ok(view) = LpView::decode(octets) else { return };
    if let Some(fragment) = view.fragment {
        assert_eq!(&octets[view.fragment_at..][..fragment.len()], fragment);
    }
    let acks: Vec<u64> = view.acks().collect();
    let again = view.header.encode(&view.framing, &acks, view.fragment);
    let decoded = LpView::decode(&again).expect("an encoded LpPacket decodes");
    assert_eq!((decoded.framing, &decoded.header), (view.framing, &view.header));
    assert_eq!(decoded.fragment, view.fragment);
    assert_eq!(decoded.acks().collect::<Vec<_>>(), acks);
    if let Some(fragment) = view.fragment {
        let mut prefix = [0; LP_PREFIX_MAX];
        let size = view.header.encode_prefix(&view.framing, fragment.len(), &mut prefix);
        let whole = [&prefix[..size], fragment].concat();
        assert_eq!(whole, view.header.encode(&view.framing, &[], Some(fragment)));
    }
}

/// Parses bytes as the URI of a name. If that succeeds, the printed name parses to the same name.
fn name_uri(octets: &[u8]) {
    let Ok(text) = std::str::from_utf8(octets) else { return };
    let Ok(name) = text.parse::<Name>() else { return };
    check_name(name.as_view());
    assert_eq!(NameView::decode(&name.to_tlv()).expect("a parsed name decodes"), name.as_view());
}

/// Decodes bytes as the TLV-VALUE of a Name.
fn name(octets: &[u8]) {
    let Ok(view) = NameView::from_value(octets) else { return };
    assert_eq!(view.value(), octets);
    check_name(view);
}

fn check_name(name: NameView<'_>) {
    let components: Vec<_> = name.components().collect();
    assert_eq!(components.len(), name.component_count());
    assert_eq!(components.iter().map(|c| c.wire).collect::<Vec<_>>().concat(), name.value());
    assert_eq!(components.iter().map(|c| c.to_component()).collect::<Name>(), name.to_name());
    for style in [UriStyle::Alternate, UriStyle::Numeric, UriStyle::Canonical] {
        let text = name.uri(style).to_string();
        assert_eq!(text.parse::<Name>().expect("a printed name parses"), name.to_name(), "{text}");
    }
    for count in 0..=components.len().min(4) {
        let prefix = name.prefix(count);
        assert_eq!(prefix.component_count(), count);
        assert!(prefix.is_prefix_of(name) && prefix <= name);
        assert_eq!(name.suffix(count).component_count(), components.len() - count);
        assert_eq!([prefix.value(), name.suffix(count).value()].concat(), name.value());
    }
    if let Some(last) = name.last() {
        assert_eq!(name.component(components.len() - 1), Some(last));
        assert!(name.parent() < name && !name.is_prefix_of(name.parent()));
    }
}

/// Finds the first packet of a stream.
fn frame(octets: &[u8]) {
    match peek_frame(octets) {
        Ok(Some(size)) => {
            assert!((2..=PACKET_SIZE_MAX + LP_PREFIX_MAX).contains(&size));
            if let Some(packet) = octets.get(..size) {
                let single = tlv::read_single(packet);
                assert!(matches!(single, Ok(_) | Err(DecodeError::NonShortestNumber)));
            }
            for cut in 0..octets.len().min(10) {
                let early = peek_frame(&octets[..cut]).expect("framing does not depend on the cut");
                assert!(early.is_none() || early == Some(size));
            }
        }
        Ok(None) => assert!(octets.len() < 10),
        Err(FrameError::UnexpectedType(octet)) => assert!(![5, 6, 100].contains(&octet)),
        Err(FrameError::TooLong(size)) => assert!(size > PACKET_SIZE_MAX as u64),
    }
}
