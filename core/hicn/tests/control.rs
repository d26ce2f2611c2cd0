//! Control messages of public hICN programs, and of hicn-light.

use weir_hicn::HicnPrefix;
use weir_hicn::control::{
    Command, Connection, ControlError, ControlMessage, ControlView, ListedRoute, MessageKind,
    Request,
};

/// What hicn-ping sends as a server for `b001::/64`: ROUTE_ADD.
const ADD: &str =
    "c00801000000000053454c46000000000000000000000000b001000000000000000000000000000001000a40";
/// The end of a program of hICN's library: CONNECTION_REMOVE.
const REMOVE: &str = "c00501000000000053454c46000000000000000000000000";

fn octets(hex: &str) -> Vec<u8> {
    hex::decode(hex).unwrap()
}

fn prefix(address: &str, len: u8) -> HicnPrefix {
    HicnPrefix::masked(address.parse().unwrap(), len)
}

#[test]
fn decodes_requests_of_public_programs() {
    let wire = octets(ADD);
    let view = ControlView::decode(&wire).unwrap();
    assert_eq!((view.kind, view.count, view.sequence), (MessageKind::Request, 1, 0));
    let expected = Request::AddRoute { connection: Connection::Own, prefix: prefix("b001::", 64) };
    assert_eq!(view.request(), Ok(expected));
    assert_eq!(
        ControlMessage::request(Command::ROUTE_ADD, 0).encode_route(prefix("b001::", 64)),
        wire
    );
    let wire = octets(REMOVE);
    let view = ControlView::decode(&wire).unwrap();
    assert_eq!(view.request(), Ok(Request::RemoveConnection { connection: Connection::Own }));
    assert_eq!(ControlMessage::request(Command::CONNECTION_REMOVE, 0).encode_connection(), wire);
}

#[test]
fn answers_are_those_of_hicn_light() {
    let mut wire = octets(ADD);
    wire[4..8].copy_from_slice(&[4, 3, 2, 1]);
    let view = ControlView::decode(&wire).unwrap();
    // The answer of hicn-light to this request.
    assert_eq!(ControlMessage::answer(&view, true).encode(), octets("c208000004030201"));
    assert_eq!(ControlMessage::answer(&view, false).encode(), octets("c308000004030201"));
    let answer = octets("c208000004030201");
    let view = ControlView::decode(&answer).unwrap();
    assert_eq!((view.kind, view.sequence), (MessageKind::Ack, 0x0102_0304));
    assert_eq!(view.request(), Err(ControlError::Kind));
}

#[test]
fn decodes_the_routes_of_hicn_light() {
    let route = ListedRoute { connection: 1, prefix: prefix("b001::", 64), cost: 1 };
    let message = ControlMessage::request(Command::ROUTE_LIST, 9);
    let wire = message.encode_routes(&[route, ListedRoute { connection: 7, ..route }]);
    // One item: 16 zeros, the prefix, number and cost, family and length, then zeros.
    let item = ["00".repeat(16), "b001".to_owned(), "00".repeat(14), "0100000001000a40".into()];
    assert_eq!(wire.len(), 8 + 2 * 112);
    assert_eq!(wire[..8], octets("c10a020009000000"));
    assert_eq!(wire[8..48], octets(&item.concat()));
    let view = ControlView::decode(&wire).unwrap();
    let routes: Vec<_> = view.routes().unwrap().collect();
    assert_eq!(routes[0], Ok(route));
    assert_eq!(routes[1].unwrap().connection, 7);
    let cut = ControlView::decode(&wire[..wire.len() - 1]).unwrap();
    assert_eq!(cut.routes().err(), Some(ControlError::Length(223)));
}

#[test]
fn refuses_wrong_sizes_and_fields() {
    for (hex, size) in [(ADD, 36), (REMOVE, 16)] {
        let wire = octets(hex);
        for len in 0..wire.len() {
            let refused = ControlView::decode(&wire[..len]).and_then(|view| view.request());
            assert!(matches!(refused, Err(ControlError::Length(_) | ControlError::Kind)), "{len}");
        }
        let longer = [&wire[..], &[0]].concat();
        let view = ControlView::decode(&longer).unwrap();
        assert_eq!(view.request(), Err(ControlError::Length(size + 1)));
    }
    let changed = |at: usize, octet: u8| {
        let mut wire = octets(ADD);
        wire[at] = octet;
        ControlView::decode(&wire).and_then(|view| view.request().map(|_| ()))
    };
    assert_eq!(changed(0, 0xC5), Err(ControlError::Kind));
    assert_eq!(changed(0, 0xBF), Err(ControlError::Kind));
    assert_eq!(changed(42, 2), Err(ControlError::Family(2)));
    assert_eq!(changed(43, 129), Err(ControlError::PrefixLength(129)));
    let mut endless = octets(ADD);
    endless[8..24].fill(b'a');
    let view = ControlView::decode(&endless).unwrap();
    assert_eq!(view.request(), Err(ControlError::Connection));
}

#[test]
fn own_connections_have_two_names() {
    assert!(Connection::Own.is_own(300));
    for (text, is_own) in [("300", true), ("301", false), ("conn300", false), ("", false)] {
        assert_eq!(Connection::Other(text.as_bytes()).is_own(300), is_own, "{text}");
    }
    // ROUTE_REMOVE for connection 1: the family is where ROUTE_ADD has the cost.
    let fields = ["c009010000000000", "31", &"00".repeat(15), "b001", &"00".repeat(14), "0a400000"];
    let wire = octets(&fields.concat());
    let message = ControlMessage::request(Command::ROUTE_REMOVE, 0);
    assert_eq!(message.encode_route_of(1, prefix("b001::", 64)), wire);
    let view = ControlView::decode(&wire).unwrap();
    let Ok(Request::RemoveRoute { connection, prefix: found }) = view.request() else {
        panic!("{view:?}")
    };
    assert!(connection.is_own(1) && found == prefix("b001::", 64));
}
