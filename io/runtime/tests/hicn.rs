//! Faces with hICN packets over UDP.

use std::collections::BTreeSet;
use std::net::{Ipv6Addr, UdpSocket};
use std::time::Duration;

use weir_face::UdpFormat;
use weir_hicn::control::{Command, ControlMessage, ControlView, MessageKind};
use weir_hicn::{HicnName, HicnPrefix, HicnView, Hop, from_tlv, updated_label};
use weir_io_fixture::TEST_TIMEOUT;
use weir_io_fixture::router::{
    Peer, ReceivedPacket, TestRouter, content_of, name_of, run_in_network_namespace,
};
use weir_link::LinkDrop;
use weir_runtime::{Listener, PitTokenChoice, StaticFace};
use weir_wire::{Data, Interest, InterestView, Name};

/// The names that routes lead to hICN faces.
fn prefix() -> Name {
    HicnName::prefix(&[0xB0, 1])
}

fn hicn_name(suffix: u32) -> HicnName {
    HicnName { address: "b001::1".parse().unwrap(), suffix }
}

fn interest(suffix: u32) -> Vec<u8> {
    Interest::new(hicn_name(suffix).to_name()).nonce(suffix + 1).hop_limit(9).encode()
}

fn data(suffix: u32) -> Vec<u8> {
    let content = vec![suffix as u8; 1000];
    Data::new(hicn_name(suffix).to_name()).content(content).encode_with_digest()
}

/// A router that peers reach with hICN packets.
fn listening(address: &str, threads: usize) -> TestRouter {
    TestRouter::start_with(|config| {
        config.threads = threads;
        let address = address.parse().unwrap();
        config.listeners.push(Listener::Udp { format: UdpFormat::Hicn, address, required: true });
    })
}

/// A router with a route for [`prefix`] to an hICN peer.
fn with_upstream(peer: &str, pit_token: Option<PitTokenChoice>, threads: usize) -> TestRouter {
    let router = TestRouter::start_with(|config| {
        config.threads = threads;
        config.static_faces.push(StaticFace {
            uri: peer.into(),
            pit_token,
            routes: vec![(prefix(), 0)],
            ..StaticFace::default()
        });
    });
    router.wait_until("the route", |snapshot| {
        !snapshot.faces.is_empty() && snapshot.router.fib_entries >= 3
    });
    router
}

/// The packet of a peer that is not Weir.
fn packet(tlv: &[u8], locator: Ipv6Addr) -> Vec<u8> {
    from_tlv(tlv, &Hop { locator, face: 0, is_marked: false }).unwrap()
}

fn receive(socket: &UdpSocket) -> Vec<u8> {
    let mut datagram = vec![0; 65_536];
    let len = socket.recv(&mut datagram).unwrap();
    datagram.truncate(len);
    datagram
}

fn foreign_peer() -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    socket
}

#[test]
fn data_crosses_two_routers() {
    for (address, scheme, token, threads) in [
        ("127.0.0.1:0", "hicn+udp4", None, 1),
        ("127.0.0.1:0", "hicn+udp4", Some(PitTokenChoice::Short), 1),
        ("127.0.0.1:0", "hicn+udp4", None, 3),
        ("[::1]:0", "hicn+udp6", Some(PitTokenChoice::Short), 3),
    ] {
        let far = listening(address, threads);
        let uri = format!("{scheme}://{}", far.address(scheme));
        let near = with_upstream(&uri, token, threads);
        let (mut producer, mut consumer) = (far.unix(), near.unix());
        producer.register(&prefix().to_string());
        for suffix in 0..20 {
            consumer.send(&interest(suffix));
            let asked = producer.receive().interest();
            let view = InterestView::decode(&asked).unwrap();
            assert_eq!(view.name, hicn_name(suffix).to_name().as_view());
            // Both routers count as hops.
            assert_eq!(view.hop_limit, Some(7));
            producer.send(&data(suffix));
            assert_eq!(consumer.receive().data(), data(suffix));
        }
        let snapshot = near.snapshot();
        let face = snapshot.faces.iter().find(|face| face.uri == uri).unwrap();
        assert_eq!((face.counters.out_interests, face.counters.in_data), (20, 20));
        assert_eq!(face.counters.out_bytes, 20 * 60);
    }
}

#[test]
fn foreign_peer_gets_data_at_its_locator() {
    let router = listening("127.0.0.1:0", 1);
    let mut producer = router.unix();
    producer.register(&prefix().to_string());
    let peer = foreign_peer();
    peer.connect(router.address("hicn+udp4")).unwrap();
    // Neither an NDN packet nor an IPv4 packet makes a face.
    peer.send(&interest(0)).unwrap();
    peer.send(&[0x45; 60]).unwrap();
    let locator = "2001:db8:1:2:3:4:5:6".parse().unwrap();
    let mut asked = packet(&interest(1), locator);
    // hICN's programs send wrong checksums.
    asked[56] ^= 0xFF;
    peer.send(&asked).unwrap();
    assert_eq!(name_of(&producer.receive().interest()), hicn_name(1).to_name().to_string());
    producer.send(&data(1));
    let answer = receive(&peer);
    let view = HicnView::decode(&answer).unwrap();
    assert_eq!((view.header.name, view.header.locator), (hicn_name(1), locator));
    assert_eq!(view.payload, content_of(&data(1)));
    let snapshot = router.snapshot();
    let uri = format!("hicn+udp4://{}", peer.local_addr().unwrap());
    let face = snapshot.faces.iter().find(|face| face.uri == uri).unwrap();
    assert_eq!(view.header.path_label, updated_label(0, face.id.0));
    assert_eq!((face.counters.in_interests, face.counters.out_data), (1, 1));
    // From a known peer, bad packets are counted.
    peer.send(&[0x45; 60]).unwrap();
    router.wait_until("the drop is counted", |snapshot| {
        let face = snapshot.faces.iter().find(|face| face.uri == uri).unwrap();
        face.counters.drops[LinkDrop::HicnVersion] == 1
    });
}

/// hICN has no nonces, so the router makes them. Those of two peers must differ, or the Interests
/// of one would look like loops of the other's.
#[test]
fn peers_of_one_port_have_their_own_nonces() {
    const SUFFIXES: u32 = 20;
    let router = listening("127.0.0.1:0", 1);
    let mut producer = router.unix();
    producer.register(&prefix().to_string());
    let peers = [foreign_peer(), foreign_peer()];
    let locator = "2001:db8::1".parse().unwrap();
    for peer in &peers {
        peer.connect(router.address("hicn+udp4")).unwrap();
        for suffix in 0..SUFFIXES {
            peer.send(&packet(&interest(suffix), locator)).unwrap();
        }
    }
    // The router may send an Interest again for the second peer.
    let mut answered = BTreeSet::new();
    while answered.len() < SUFFIXES as usize {
        let asked = producer.receive().interest();
        let name = InterestView::decode(&asked).unwrap().name;
        let suffix = HicnName::from_name(name).unwrap().suffix;
        if answered.insert(suffix) {
            producer.send(&data(suffix));
        }
    }
    for peer in &peers {
        let mut suffixes: Vec<u32> = (0..SUFFIXES)
            .map(|_| HicnView::decode(&receive(peer)).unwrap().header.name.suffix)
            .collect();
        suffixes.sort_unstable();
        assert!(suffixes.into_iter().eq(0..SUFFIXES));
    }
}

/// Sends an Interest to a foreign upstream, which answers to a locator that `locator_of` makes of
/// that of the Interest. Returns whether the consumer gets the Data.
fn is_answered(
    (consumer, upstream): (&mut Peer<std::os::unix::net::UnixStream>, &UdpSocket),
    suffix: u32,
    locator_of: impl FnOnce(Ipv6Addr) -> Ipv6Addr,
) -> bool {
    let asked = Interest::new(hicn_name(suffix).to_name()).nonce(suffix + 1).lifetime_ms(500);
    consumer.send(&asked.encode());
    let mut datagram = [0; 100];
    let (len, from) = upstream.recv_from(&mut datagram).unwrap();
    let view = HicnView::decode(&datagram[..len]).unwrap();
    assert_eq!(view.header.name, hicn_name(suffix));
    upstream.send_to(&packet(&data(suffix), locator_of(view.header.locator)), from).unwrap();
    match consumer.receive() {
        ReceivedPacket::Data { wire, .. } => wire == data(suffix),
        ReceivedPacket::Nack { .. } => false,
        other => panic!("{other:?}"),
    }
}

#[test]
fn any_locator_answers_a_foreign_peer() {
    let upstream = foreign_peer();
    let uri = format!("hicn+udp4://{}", upstream.local_addr().unwrap());
    let router = with_upstream(&uri, None, 1);
    let mut consumer = router.unix();
    let mut ask = |suffix, locator_of: fn(Ipv6Addr) -> Ipv6Addr| {
        is_answered((&mut consumer, &upstream), suffix, locator_of)
    };
    assert!(ask(0, |locator| locator));
    // hicn-light answers with the locator of another consumer.
    assert!(ask(1, |_| "2001:db8::5".parse().unwrap()));
    // A locator with a token teaches the router nothing.
    assert!(ask(2, |locator| (locator.to_bits() | 0x0601_0203_0405_0600).into()));
    assert!(ask(3, |locator| locator));
}

#[test]
fn wrong_token_of_our_router_is_refused() {
    let upstream = foreign_peer();
    let uri = format!("hicn+udp4://{}", upstream.local_addr().unwrap());
    let router = with_upstream(&uri, Some(PitTokenChoice::Short), 1);
    let mut consumer = router.unix();
    let interest = Interest::new(hicn_name(0).to_name()).nonce(1).lifetime_ms(60_000).encode();
    assert!(is_answered((&mut consumer, &upstream), 9, |locator| locator));
    consumer.send(&interest);
    let mut datagram = [0; 100];
    let (len, from) = upstream.recv_from(&mut datagram).unwrap();
    let locator = HicnView::decode(&datagram[..len]).unwrap().header.locator;
    assert_ne!(locator.to_bits() as u64, 0);
    // The second octet of the token.
    let forged = Ipv6Addr::from(locator.to_bits() ^ 1 << 40);
    upstream.send_to(&packet(&data(0), forged), from).unwrap();
    router.wait_until("the forged Data is dropped", |snapshot| {
        let face = snapshot.faces.iter().find(|face| face.uri == uri).unwrap();
        face.counters.in_data == 2
    });
    upstream.send_to(&packet(&data(0), locator), from).unwrap();
    assert_eq!(consumer.receive().data(), data(0));
    assert_eq!(router.snapshot().router.drops[weir_forward::DropReason::Spoofed as usize], 1);
}

/// Sends a request of a program of hICN, and returns the kind of the answer.
fn request(peer: &UdpSocket, message: &[u8]) -> MessageKind {
    peer.send(message).unwrap();
    ControlView::decode(&receive(peer)).unwrap().kind
}

/// The registration of [`prefix`].
fn registration() -> Vec<u8> {
    let prefix = HicnPrefix::masked("b001::".parse().unwrap(), 16);
    ControlMessage::request(Command::ROUTE_ADD, 1).encode_route(prefix)
}

#[test]
fn programs_register_on_each_thread() {
    for (address, scheme, threads) in [
        ("127.0.0.1:0", "hicn+udp4", 1),
        ("127.0.0.1:0", "hicn+udp4", 3),
        ("[::1]:0", "hicn+udp6", 3),
    ] {
        let router = listening(address, threads);
        // Several, so that different threads own their faces.
        for suffix in 0..8 {
            let peer = UdpSocket::bind(address).unwrap();
            peer.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
            peer.connect(router.address(scheme)).unwrap();
            assert_eq!(request(&peer, &registration()), MessageKind::Ack);
            let mut consumer = router.unix();
            consumer.send(&interest(suffix));
            let received = receive(&peer);
            let view = HicnView::decode(&received).unwrap();
            assert_eq!(view.header.name, hicn_name(suffix));
            peer.send(&packet(&data(suffix), view.header.locator)).unwrap();
            let received = consumer.receive().data();
            assert_eq!(content_of(&received), content_of(&data(suffix)));
            let end = ControlMessage::request(Command::CONNECTION_REMOVE, 2).encode_connection();
            assert_eq!(request(&peer, &end), MessageKind::Ack);
            router.wait_until("its face is closed", |snapshot| {
                snapshot.faces.iter().all(|face| !face.uri.starts_with("hicn"))
            });
        }
    }
}

/// A program of hICN registers once. It may be silent as long as nothing is requested of it.
#[test]
fn silent_producers_keep_their_faces() {
    let router = TestRouter::start_with(|config| {
        config.face_defaults.idle_timeout = Duration::from_millis(50);
        let address = "127.0.0.1:0".parse().unwrap();
        config.listeners.push(Listener::Udp { format: UdpFormat::Hicn, address, required: true });
    });
    let (producer, consumer) = (foreign_peer(), foreign_peer());
    let uri_of = |peer: &UdpSocket| format!("hicn+udp4://{}", peer.local_addr().unwrap());
    for peer in [&producer, &consumer] {
        peer.connect(router.address("hicn+udp4")).unwrap();
    }
    let has_face = |snapshot: &weir_runtime::Snapshot, uri: &str| {
        snapshot.faces.iter().any(|face| face.uri == uri)
    };
    assert_eq!(request(&producer, &registration()), MessageKind::Ack);
    for _ in 0..4 {
        // The face of a peer without routes closes, later than that of the producer would.
        let list = ControlMessage::request(Command::ROUTE_LIST, 1).encode();
        assert_eq!(request(&consumer, &list), MessageKind::Response);
        router.wait_until("the consumer's face is closed", |snapshot| {
            !has_face(snapshot, &uri_of(&consumer))
        });
        assert!(has_face(&router.snapshot(), &uri_of(&producer)));
    }
    // A producer that answers nothing is dead.
    router.unix().send(&interest(1));
    assert!(HicnView::decode(&receive(&producer)).is_ok());
    router.wait_until("the producer's face is closed", |snapshot| {
        !has_face(snapshot, &uri_of(&producer))
    });
}

#[test]
fn other_hosts_cannot_register() {
    if !run_in_network_namespace("hicn_peers_of_other_hosts") {
        eprintln!("NOT tested with other hosts: no network namespace can be made");
    }
}

#[test]
#[ignore = "other_hosts_cannot_register runs it in a network namespace"]
fn hicn_peers_of_other_hosts() {
    let router = listening("10.1.0.1:0", 1);
    let peer = UdpSocket::bind("10.2.0.9:0").unwrap();
    peer.connect(router.address("hicn+udp4")).unwrap();
    // From an unknown peer it makes no face.
    peer.send(&registration()).unwrap();
    router.wait_until("it is counted", |snapshot| {
        snapshot.runtime_drops.contains(&("stranger-malformed", 1))
    });
    let mut local = router.unix();
    local.register(&prefix().to_string());
    peer.send(&packet(&interest(1), Ipv6Addr::LOCALHOST)).unwrap();
    local.receive().interest();
    peer.send(&registration()).unwrap();
    let uri = format!("hicn+udp4://{}", peer.local_addr().unwrap());
    router.wait_until("the drop is counted", |snapshot| {
        let face = snapshot.faces.iter().find(|face| face.uri == uri).unwrap();
        face.counters.drops[LinkDrop::HicnControl] == 1 && face.counters.out_bytes == 0
    });
}
