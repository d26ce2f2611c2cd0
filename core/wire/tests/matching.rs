//! Which Data satisfies which Interest, framing, and PIT tokens.

use weir_wire::{
    Data, DataView, FrameError, Interest, InterestView, LP_PREFIX_MAX, LpFraming, LpHeader, LpView,
    NackReason, Name, PACKET_SIZE_MAX, PitToken, peek_frame, rewrite_interest, tlv,
};

fn satisfied(interest: &Interest, data: &[u8]) -> bool {
    let wire = interest.encode();
    let data = DataView::decode(data).expect("a Data");
    data.satisfies(&InterestView::decode(&wire).expect("an Interest"))
}

fn name(uri: &str) -> Name {
    uri.parse().expect("a name")
}

#[test]
fn data_satisfies_by_name_prefix_or_digest() {
    let data = Data::new(name("/a/b")).content(*b"x").encode_with_digest();
    let digest = DataView::decode(&data).expect("a Data").implicit_digest();
    let mut full = name("/a/b");
    full.append_implicit_digest(digest);
    let mut wrong = name("/a/b");
    wrong.append_implicit_digest([1; 32]);
    let mut elsewhere = name("/a/c");
    elsewhere.append_implicit_digest(digest);

    assert!(satisfied(&Interest::new(name("/a/b")), &data));
    assert!(satisfied(&Interest::new(name("/a/b")).must_be_fresh(true), &data));
    assert!(satisfied(&Interest::new(name("/a")).can_be_prefix(true), &data));
    assert!(satisfied(&Interest::new(name("/a/b")).can_be_prefix(true), &data));
    assert!(satisfied(&Interest::new(full), &data));
    assert!(!satisfied(&Interest::new(name("/a")), &data));
    assert!(!satisfied(&Interest::new(name("/a/b/c")).can_be_prefix(true), &data));
    assert!(!satisfied(&Interest::new(wrong), &data));
    assert!(!satisfied(&Interest::new(elsewhere), &data));
}

#[test]
fn peek_frame_splits_stream() {
    assert_eq!(peek_frame(&[]), Ok(None));
    assert_eq!(peek_frame(&[5]), Ok(None));
    assert_eq!(peek_frame(&[6, 253, 1]), Ok(None));
    assert_eq!(peek_frame(&[6, 253, 1, 0]), Ok(Some(260)));
    assert_eq!(peek_frame(&[5, 3, 1, 2, 3, 4]), Ok(Some(5)));
    assert_eq!(peek_frame(&[7, 0]), Err(FrameError::UnexpectedType(7)));
    let of = |typ: u8, total: usize| {
        let length = u16::try_from(total - 4).expect("a short length").to_be_bytes();
        peek_frame(&[typ, 253, length[0], length[1]])
    };
    assert_eq!(of(6, PACKET_SIZE_MAX), Ok(Some(PACKET_SIZE_MAX)));
    assert_eq!(of(6, PACKET_SIZE_MAX + 1), Err(FrameError::TooLong(8801)));
    assert_eq!(of(100, PACKET_SIZE_MAX + LP_PREFIX_MAX), Ok(Some(PACKET_SIZE_MAX + LP_PREFIX_MAX)));
    assert!(of(100, PACKET_SIZE_MAX + LP_PREFIX_MAX + 1).is_err());
    let huge = [5, 255, 255, 255, 255, 255, 255, 255, 255, 255];
    assert_eq!(peek_frame(&huge), Err(FrameError::TooLong(u64::MAX)));
}

#[test]
fn the_largest_header_fits_its_buffer() {
    let framing = LpFraming {
        sequence: Some(u64::MAX),
        frag_index: u64::MAX - 1,
        frag_count: u64::MAX,
        tx_sequence: Some(u64::MAX),
    };
    let header = LpHeader {
        pit_token: PitToken::new(&[9; 32]).expect("32 octets"),
        nack: Some(NackReason::Other(u64::MAX)),
        incoming_face: Some(u64::MAX),
        next_hop_face: Some(u64::MAX),
        no_cache: true,
        congestion_mark: u64::MAX,
        non_discovery: true,
    };
    let mut out = [0; LP_PREFIX_MAX];
    assert!(header.encode_prefix(&framing, u32::MAX as usize, &mut out) <= LP_PREFIX_MAX);
    assert_eq!(PitToken::new(&[0; 33]), None);
}

#[test]
fn less_severe_reason_is_smaller() {
    use NackReason::{Congestion, Duplicate, NoRoute, None, Other};
    assert_eq!(NoRoute.less_severe(Congestion), Congestion);
    assert_eq!(None.less_severe(NoRoute), NoRoute);
    assert_eq!(Duplicate.less_severe(None), Duplicate);
    assert_eq!(Other(7).less_severe(Congestion), Other(7));
}

#[test]
fn rewrite_keeps_parameters() {
    let interest = Interest::new(name("/a"))
        .forwarding_hint(vec![name("/far/away")])
        .hop_limit(9)
        .application_parameters(vec![1; 240]);
    let wire = interest.encode();
    let view = InterestView::decode(&wire).expect("an Interest");
    let mut out = [0; 400];
    let size = rewrite_interest(&view, 0xA0B0_C0D0, Some(8), true, &mut out).expect("room");
    let expected = Interest { forwarding_hint: vec![], ..interest.nonce(0xA0B0_C0D0).hop_limit(8) };
    assert_eq!(out[..size], expected.encode());
}

#[test]
fn announced_packet_round_trips_at_any_length() {
    let data = Data::new("/a/1".parse().unwrap()).content([7; 500]).encode_with_digest();
    for content in [0, 100, 250, 3000] {
        let name = "/a/32=PA/v=1/seg=0".parse().unwrap();
        let announcement = Data::new(name).content(vec![1; content]).encode_with_digest();
        let header = LpHeader { congestion_mark: 1, ..LpHeader::PLAIN };
        let wire = header.encode_announced(&LpFraming::BARE, &announcement, &data);
        let view = LpView::decode(&wire).unwrap();
        assert_eq!(view.header, header);
        assert_eq!(view.prefix_announcement, Some(&announcement[..]));
        assert_eq!(view.fragment, Some(&data[..]));
        assert_eq!(view.fields().count(), 3, "mark, announcement, fragment");
    }
}

#[test]
fn self_learning_fields_have_exact_lengths() {
    let packet = Interest::new("/a".parse().unwrap()).nonce(1).encode();
    let with_field = |field: &[u8]| {
        let mut body = tlv::Writer::new();
        body.raw(field);
        body.tlv(tlv::LP_FRAGMENT, &packet);
        let mut wire = tlv::Writer::new();
        wire.tlv(tlv::LP_PACKET, body.as_slice());
        wire.into_vec()
    };
    assert!(LpView::decode(&with_field(&[0xFD, 3, 0x4C, 0])).unwrap().header.non_discovery);
    let bad: [&[u8]; 7] = [
        // NonDiscovery is empty, and comes once.
        &[0xFD, 3, 0x4C, 1, 0],
        &[0xFD, 3, 0x4C, 0, 0xFD, 3, 0x4C, 0],
        // PrefixAnnouncement is one Data.
        &[0xFD, 3, 0x50, 0],
        &[0xFD, 3, 0x50, 2, 5, 0],
        &[0xFD, 3, 0x50, 3, 6, 0, 0],
        &[0xFD, 3, 0x50, 2, 6, 1],
        // The order of the types.
        &[0xFD, 3, 0x50, 2, 6, 0, 0xFD, 3, 0x4C, 0],
    ];
    for field in bad {
        assert!(LpView::decode(&with_field(field)).is_err(), "{field:?}");
    }
    // A length beyond the packet.
    let mut wire = with_field(&[0xFD, 3, 0x50, 2, 6, 0]);
    wire[5] = 0xF0;
    assert!(LpView::decode(&wire).is_err());
}
