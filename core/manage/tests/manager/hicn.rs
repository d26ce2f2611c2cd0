//! Control messages of hicn-light from programs of this host.

use weir_base::{FaceId, Packet};
use weir_hicn::HicnPrefix;
use weir_hicn::control::{Command, ControlMessage, ControlView, MessageKind};
use weir_manage::{
    Action, FaceEventKind, FaceScope, HicnAnswer, ManagerConfig, ManagerInput, NextHopRecord,
};

use crate::harness::{Harness, face, name};

const PROGRAM: FaceId = FaceId(300);
const PREFIX: &str = "/32=hicn/%B0%01/%00%00/%00%00/%00%00";

fn harness(config: ManagerConfig) -> Harness {
    let mut harness = Harness::with_config(config);
    harness.add_face(face(PROGRAM, "hicn+udp4://127.0.0.1:50000", FaceScope::NonLocal));
    harness.drain();
    harness
}

fn prefix(len: u8) -> HicnPrefix {
    HicnPrefix::masked("b001::".parse().unwrap(), len)
}

impl Harness {
    /// Passes a message from the program's face. Afterwards the outbox has only its effects.
    fn hicn(&mut self, message: Vec<u8>) -> Option<HicnAnswer> {
        self.drain();
        self.give(ManagerInput::HicnControl { ingress: PROGRAM, message: Packet::from(message) });
        self.out.hicn_answers.pop()
    }

    fn route(&mut self, command: Command, len: u8) -> HicnAnswer {
        let message = ControlMessage::request(command, 7).encode_route(prefix(len));
        self.hicn(message).expect("an answer")
    }
}

fn kind(answer: &HicnAnswer) -> MessageKind {
    let view = ControlView::decode(&answer.message).unwrap();
    assert_eq!((answer.face, view.sequence, view.payload.len()), (PROGRAM, 7, 0));
    view.kind
}

#[test]
fn registers_and_unregisters_own_prefixes() {
    let mut harness = harness(ManagerConfig::default());
    let answer = harness.route(Command::ROUTE_ADD, 64);
    assert_eq!((kind(&answer), answer.has_routes), (MessageKind::Ack, true));
    let next_hops = vec![NextHopRecord { face_id: PROGRAM, cost: 0 }];
    assert_eq!(harness.action(), Action::SetNextHops { prefix: name(PREFIX), next_hops });
    let routes: Vec<_> =
        harness.manager.rib().iter().flat_map(|(_, routes)| routes.copied()).collect();
    let route = routes.iter().find(|route| route.face == PROGRAM).unwrap();
    // Origin 0 is an application.
    assert_eq!((route.origin, route.flags, route.expires), (0, 0, None));
    // A repetition changes nothing.
    assert_eq!(kind(&harness.route(Command::ROUTE_ADD, 64)), MessageKind::Ack);
    assert!(harness.out.actions.is_empty());
    let listed = harness.hicn(ControlMessage::request(Command::ROUTE_LIST, 7).encode()).unwrap();
    let view = ControlView::decode(&listed.message).unwrap();
    let listed: Vec<_> = view.routes().unwrap().map(Result::unwrap).collect();
    assert_eq!((listed[0].connection, listed[0].prefix), (300, prefix(64)));
    assert_eq!(listed.len(), 1);
    let answer = harness.route(Command::ROUTE_REMOVE, 64);
    assert_eq!((kind(&answer), answer.has_routes), (MessageKind::Ack, false));
    let next_hops = Vec::new();
    assert_eq!(harness.action(), Action::SetNextHops { prefix: name(PREFIX), next_hops });
}

#[test]
fn a_leaving_program_closes_its_face() {
    let mut harness = harness(ManagerConfig::default());
    harness.route(Command::ROUTE_ADD, 64);
    let message = ControlMessage::request(Command::CONNECTION_REMOVE, 7).encode_connection();
    let answer = harness.hicn(message).unwrap();
    assert!(kind(&answer) == MessageKind::Ack && answer.is_closing);
    let info = face(PROGRAM, "hicn+udp4://127.0.0.1:50000", FaceScope::NonLocal);
    harness.give(ManagerInput::FaceEvent { kind: FaceEventKind::Destroyed, info });
    let next_hops = Vec::new();
    assert_eq!(harness.action(), Action::SetNextHops { prefix: name(PREFIX), next_hops });
}

#[test]
fn other_requests_change_nothing() {
    let mut harness = harness(ManagerConfig::default());
    let mut refused = |message: Vec<u8>| {
        let answer = harness.hicn(message).expect("an answer");
        assert!(!answer.is_closing && !answer.has_routes);
        harness.assert_silent();
        kind(&answer) == MessageKind::Nack
    };
    let add = || ControlMessage::request(Command::ROUTE_ADD, 7).encode_route(prefix(64));
    let with = |at: usize, octets: &[u8]| {
        let mut message = add();
        message[at..at + octets.len()].copy_from_slice(octets);
        message
    };
    // The face of another program, a number of bits that no name has, and IPv4.
    for message in [with(8, b"301\0"), with(8, b"SELF2"), with(43, &[63]), with(42, &[2])] {
        assert!(refused(message));
    }
    let mut long = add();
    long.push(0);
    assert!(refused(long));
    // Commands of operators: CACHE_SET_STORE, CONNECTION_ADD, and an unknown one.
    for command in [11, 4, 99] {
        assert!(refused(ControlMessage::request(Command(command), 7).encode()));
    }
    let remove = ControlMessage::request(Command::CONNECTION_REMOVE, 7).encode_connection();
    assert!(refused([&remove[..8], b"300x", &[0; 12]].concat()));
    // hICN's library ends the program if these are refused.
    let mut strategy = ControlMessage::request(Command::STRATEGY_SET, 7).encode();
    strategy.resize(208, 0);
    strategy[24] = 10;
    let mut mobility = ControlMessage::request(Command::MAPME_ADD, 7).encode();
    mobility.resize(32, 0);
    for message in [strategy, mobility] {
        assert!(!refused(message));
    }
}

#[test]
fn answers_and_garbage_get_no_answer() {
    let mut harness = harness(ManagerConfig::default());
    let ignored = harness.manager.stats().ignored;
    let nack = [0xC3, 8, 0, 0, 7, 0, 0, 0];
    for message in [&nack[..], &[0xC0, 8], &[], &[0x60; 60]] {
        assert_eq!(harness.hicn(message.to_vec()), None);
    }
    // A message that was waiting when its face closed.
    let message = ControlMessage::request(Command::ROUTE_ADD, 7).encode_route(prefix(64));
    let info = face(PROGRAM, "hicn+udp4://127.0.0.1:50000", FaceScope::NonLocal);
    harness.give(ManagerInput::FaceEvent { kind: FaceEventKind::Destroyed, info });
    assert_eq!(harness.hicn(message), None);
    assert_eq!(harness.manager.stats().ignored, ignored + 5);
}

#[test]
fn signed_commands_and_full_tables_refuse() {
    let mut strict =
        harness(ManagerConfig { local_registration: false, ..ManagerConfig::default() });
    for command in [Command::ROUTE_ADD, Command::ROUTE_REMOVE] {
        assert_eq!(kind(&strict.route(command, 64)), MessageKind::Nack);
    }
    assert_eq!(strict.manager.stats().unauthorized, 2);
    let mut full = harness(ManagerConfig { routes_max: 3, ..ManagerConfig::default() });
    assert_eq!(kind(&full.route(Command::ROUTE_ADD, 64)), MessageKind::Ack);
    assert_eq!(kind(&full.route(Command::ROUTE_ADD, 128)), MessageKind::Nack);
}
