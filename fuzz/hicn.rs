//! What must hold for any octets from an hICN peer. Shared by property tests and the fuzz target.

use weir_hicn::control::{Connection, ControlMessage, ControlView, Request};
use weir_hicn::manifest::TransportManifest;
use weir_hicn::{
    Algorithm, Flags, HicnView, Hop, InterestManifest, NativeData, SUFFIXES_MAX, from_tlv, to_tlv,
    updated_label,
};
use weir_wire::{InterestView, PacketView};

const FACE: u64 = 0x15A;

/// Decodes octets as an hICN packet. What decodes as an NDN packet as well is converted back, and
/// must be the same packet.
pub(crate) fn check(octets: &[u8]) {
    check_control(octets);
    let Ok(view) = HicnView::decode(octets) else { return };
    if let Ok(manifest) = TransportManifest::decode(view.payload) {
        assert!(manifest.entries().count() <= view.payload.len() / 36);
    }
    if view.is_interest_manifest()
        && let Ok(manifest) = InterestManifest::decode(view.payload)
    {
        assert!((1..=SUFFIXES_MAX).contains(&manifest.suffixes().count()));
        for suffix in manifest.suffixes() {
            let interest = to_tlv(&view.for_suffix(suffix), 7).expect("a short Interest");
            InterestView::decode(&interest).expect("an Interest");
        }
    }
    let Ok(tlv) = to_tlv(&view, 7) else { return };
    // A stranger's elements in the authentication header may be anything.
    let packet = match PacketView::decode(&tlv) {
        Ok(packet) => packet,
        Err(error) => {
            let is_foreign = view.ah.is_none_or(|ah| ah.algorithm.number() <= 18);
            assert!(!is_foreign, "an hICN packet became an invalid NDN packet: {error}");
            return;
        }
    };
    let header = view.header;
    let hop = Hop { locator: header.locator, face: FACE, is_marked: header.is_marked };
    let again = from_tlv(&tlv, &hop).expect("a converted packet converts back");
    let back = HicnView::decode(&again).expect("an encoded packet decodes");
    let mut expected = header;
    match packet {
        PacketView::Data(data) => {
            if let Some(native) = NativeData::of(&data) {
                expected.path_label = updated_label(header.path_label, FACE);
                let is_signed = view.ah.is_some_and(|ah| ah.algorithm != Algorithm::NONE);
                assert_eq!(native.signed_octets().is_some(), is_signed);
            } else {
                // The elements of the packet decide, not the header.
                expected.path_label = updated_label(0, FACE);
                expected.lifetime_ms = back.header.lifetime_ms;
                let others = back.header.flags.octet() & Flags::LAST.octet();
                expected.flags = Flags::from_octet(Flags::DATA.with(Flags::AH).octet() | others);
            }
            expected.hop_limit = back.header.hop_limit;
            let stale = Flags::STALE.octet();
            expected.flags = Flags::from_octet(expected.flags.octet() & !stale);
        }
        PacketView::Interest(_) => {
            expected.path_label = 0;
            let last = Flags::LAST.octet();
            expected.flags = Flags::from_octet(expected.flags.octet() & !last);
        }
    }
    expected.flags = expected.flags.with_if(Flags::from_octet(2), true);
    assert_eq!(back.header, expected);
    assert_eq!(back.payload, view.payload);
    if let (Some(before), Some(after)) = (view.ah, back.ah)
        && before.algorithm.number() <= 18
    {
        assert_eq!(after, before);
    }
    // Only the path label of a native Data may differ now.
    let tlv_again = to_tlv(&back, 7).expect("it converts once more");
    let is_native = header.is_data() && view.ah.is_none_or(|ah| ah.algorithm.number() <= 18);
    if !is_native || header.path_label == back.header.path_label {
        assert_eq!(tlv_again, tlv);
    }
}

/// Decodes octets as a control message of hicn-light. A request of an application is encoded again,
/// and must be the same request.
fn check_control(octets: &[u8]) {
    let Ok(view) = ControlView::decode(octets) else { return };
    assert!(ControlView::is_control(octets) && HicnView::decode(octets).is_err());
    if let Ok(routes) = view.routes() {
        assert_eq!(routes.count(), usize::from(view.count));
    }
    let Ok(request) = view.request() else { return };
    let message = ControlMessage::request(view.command, view.sequence);
    let again = match request {
        Request::AddRoute { connection: Connection::Own, prefix }
        | Request::RemoveRoute { connection: Connection::Own, prefix } => {
            message.encode_route(prefix)
        }
        Request::RemoveConnection { connection: Connection::Own } => message.encode_connection(),
        Request::ListRoutes => message.encode(),
        _ => return,
    };
    let view = ControlView::decode(&again).expect("an encoded message decodes");
    assert_eq!((view.sequence, view.request()), (message.sequence, Ok(request)));
}
