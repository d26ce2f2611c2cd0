//! Programs that use a router as they use hicn-light: by control messages on the port for hICN
//! packets. And our own sockets over such a port.

use std::net::{SocketAddr, UdpSocket};

use serde_json::Value;
use weir_hicn::control::{Command, ControlMessage, ControlView, MessageKind};
use weir_hicn::{HicnName, HicnPrefix, HicnView, Hop, from_tlv};
use weir_socket::{Session, SocketError};
use weir_tests::sockets::{self, content, name, producer_options, producer_with, read_all};
use weir_tests::{Host, Router, TEST_TIMEOUT, random_file, sha256_hex, wait_until};
use weir_wire::{Data, Interest};

const MAPPING: &str = "hicn:2001:db8:7::/48";

/// A router with a UDP port for hICN packets.
struct Border {
    router: Router,
    port: u16,
}

impl Border {
    fn start(host: &Host, options: &str) -> Self {
        let port = host.free_port();
        let config = format!("[faces]\nhicn_udp = [\"127.0.0.1:{port}\"]\n{options}");
        host.write("weir.toml", config.as_bytes());
        let router = Router::start_at_with(host, "border", &["--config", "weir.toml"]);
        Self { router, port }
    }

    fn uri(&self) -> String {
        format!("hicn+udp4://127.0.0.1:{}", self.port)
    }

    fn session(&self) -> Session {
        Session::connect(&self.uri().parse().unwrap()).unwrap()
    }

    fn has_route(&self) -> bool {
        self.router.weir_json(&["route", "list"]).to_string().contains("32=hicn")
    }

    /// The face to this peer, if there is one.
    fn face(&self, peer: SocketAddr) -> Option<Value> {
        let faces = self.router.weir_json(&["face", "list"]);
        let uri = format!("hicn+udp4://{peer}");
        faces.as_array().expect("faces").iter().find(|face| face["uri"] == uri.as_str()).cloned()
    }
}

/// A program of hICN's library, as far as a router sees it.
struct Program(UdpSocket);

impl Program {
    fn start(border: &Border) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
        socket.connect(("127.0.0.1", border.port)).unwrap();
        Self(socket)
    }

    fn address(&self) -> SocketAddr {
        self.0.local_addr().unwrap()
    }

    fn send(&self, octets: &[u8]) {
        self.0.send(octets).unwrap();
    }

    fn receive(&self) -> Vec<u8> {
        let mut octets = vec![0; 9000];
        let len = self.0.recv(&mut octets).expect("a datagram");
        octets.truncate(len);
        octets
    }

    /// The kind of the answer to a request.
    fn request(&self, message: &[u8]) -> MessageKind {
        self.send(message);
        let answer = self.receive();
        let (request, answer) =
            (ControlView::decode(message).unwrap(), ControlView::decode(&answer).unwrap());
        assert_eq!((answer.command, answer.sequence), (request.command, request.sequence));
        answer.kind
    }

    fn route(&self, command: Command) -> MessageKind {
        let prefix = HicnPrefix::masked("2001:db8:7::".parse().unwrap(), 48);
        self.request(&ControlMessage::request(command, 0x0102_0304).encode_route(prefix))
    }
}

fn hop(locator: &str) -> Hop {
    Hop { locator: locator.parse().unwrap(), face: 0, is_marked: false }
}

fn hicn(packet: &[u8], hop: &Hop) -> Vec<u8> {
    from_tlv(packet, hop).unwrap()
}

/// As hicn-ping's server and client do.
#[test]
fn programs_register_as_with_hicn_light() {
    let host = Host::new();
    let border = Border::start(&host, "");
    let (server, client) = (Program::start(&border), Program::start(&border));
    assert_eq!(server.route(Command::ROUTE_ADD), MessageKind::Ack);
    let asked = HicnName { address: "2001:db8:7::9".parse().unwrap(), suffix: 3 };
    let interest = Interest::new(asked.to_name()).lifetime_ms(60_000).encode();
    client.send(&hicn(&interest, &hop("2001:db8:99::5")));
    let received = server.receive();
    let view = HicnView::decode(&received).unwrap();
    assert_eq!((view.header.name, view.header.is_data()), (asked, false));
    let data = Data::new(asked.to_name()).content(b"pong".to_vec()).encode_with_digest();
    let answer = Hop { locator: view.header.locator, face: 0, is_marked: false };
    server.send(&hicn(&data, &answer));
    let received = client.receive();
    let view = HicnView::decode(&received).unwrap();
    assert_eq!((view.header.name, view.payload), (asked, &b"pong"[..]));
    assert_eq!(view.header.locator, hop("2001:db8:99::5").locator);
    // The end of a program removes its routes, and its face.
    assert!(border.has_route() && border.face(server.address()).is_some());
    let end = ControlMessage::request(Command::CONNECTION_REMOVE, 5).encode_connection();
    assert_eq!(server.request(&end), MessageKind::Ack);
    wait_until("the face is closed", || border.face(server.address()).is_none());
    assert!(!border.has_route());
    // The same program may return.
    assert_eq!(server.route(Command::ROUTE_ADD), MessageKind::Ack);
    assert!(border.has_route());
    assert_eq!(server.route(Command::ROUTE_REMOVE), MessageKind::Ack);
    assert!(!border.has_route());
    // Commands of operators are refused, and garbage is not answered.
    let clear = ControlMessage::request(Command(13), 7);
    server.send(&[0xC0]);
    server.send(&[0xC2, 8, 0, 0, 9, 0, 0, 0]);
    assert_eq!(server.request(&clear.encode()), MessageKind::Nack);
}

#[test]
fn registration_follows_the_configuration() {
    let host = Host::new();
    let border = Border::start(&host, "[management]\nlocal_registration = false\n");
    assert_eq!(Program::start(&border).route(Command::ROUTE_ADD), MessageKind::Nack);
    assert!(!border.has_route());
    let options = producer_options(&[("mapping", MAPPING)]);
    let identity = weir_socket::Identity::new(weir_security::DigestSigner);
    let session = border.session();
    let refused = weir_socket::Producer::bind_with(&session, name("/p"), identity, options);
    let error = refused.err().expect("refused");
    assert!(matches!(&error, SocketError::PrefixRefused { .. }), "{error}");
    assert!(error.to_string().contains("NACK"), "{error}");
}

/// Sockets of this process, with nothing but the router's address that selects hICN.
#[test]
fn sockets_fetch_over_hicn() {
    let host = Host::new();
    let border = Border::start(&host, "");
    let (here, there) = (border.session(), border.session());
    let options = [("mapping", MAPPING), ("segment_size", "1200")];
    let producer = producer_with(&there, "/p", &options);
    producer.publish(&name("/p/a"), content(200_000)).unwrap();
    let mut consumer = sockets::consumer(&here, "/p");
    consumer.set("mapping", MAPPING).unwrap();
    assert_eq!(read_all(&consumer, "/p/a").unwrap(), content(200_000));
    // Names of NDN cannot be registered.
    let identity = weir_socket::Identity::new(weir_security::DigestSigner);
    let refused = weir_socket::Producer::bind(&there, name("/other"), identity);
    let error = refused.err().expect("refused").to_string();
    assert!(error.contains("mapping"), "{error}");
    assert!(border.has_route());
    drop(producer);
    wait_until("the route is removed", || !border.has_route());
    let faces = || border.router.weir_json(&["face", "list"]).to_string();
    assert!(faces().contains("hicn+udp4://127.0.0.1"));
    drop((consumer, here, there));
    // Both connections say that they end.
    wait_until("the faces are closed", || !faces().contains("hicn+udp4://127.0.0.1"));
}

/// A second producer of the session keeps its route.
#[test]
fn producers_leave_one_by_one() {
    let host = Host::new();
    let border = Border::start(&host, "");
    let there = border.session();
    let other = "hicn:2001:db8:8::/48";
    let first = producer_with(&there, "/first", &[("mapping", MAPPING)]);
    let second = producer_with(&there, "/second", &[("mapping", other)]);
    second.publish(&name("/second/a"), content(1000)).unwrap();
    let routes = || border.router.weir_json(&["route", "list"]).to_string();
    let (of_first, of_second) = ("%0D%B8/%00%07", "%0D%B8/%00%08");
    assert!(routes().contains(of_first) && routes().contains(of_second), "{}", routes());
    drop(first);
    wait_until("the route is removed", || !routes().contains(of_first));
    assert!(routes().contains(of_second), "{}", routes());
    let mut consumer = sockets::consumer(&border.session(), "/second");
    consumer.set("mapping", other).unwrap();
    assert_eq!(read_all(&consumer, "/second/a").unwrap(), content(1000));
}

#[test]
fn commands_use_the_address() {
    let host = Host::new();
    let border = Border::start(&host, "");
    let expected = random_file(&host.path("source"), 300_000, 1);
    let uri = border.uri();
    let options = ["--mapping", MAPPING, "--router", &uri];
    let (_producer, _) = border.router.put_object(&[&["source", "/file"][..], &options].concat());
    assert!(border.has_route());
    border.router.weir(&[&["get", "/file", "-o", "out"][..], &options].concat()).success();
    assert_eq!(sha256_hex(&host.path("out")), expected);
    // Both sides used hICN packets alone.
    let faces = border.router.weir_json(&["face", "list"]);
    let faces = faces.as_array().unwrap().iter();
    let sum: u64 = faces
        .filter(|face| face["uri"].as_str().is_some_and(|uri| uri.starts_with("hicn")))
        .map(|face| face["in_data"].as_u64().unwrap())
        .sum();
    assert!(sum >= 250, "{sum}");
    // Management needs another address, and the error says so.
    let refused = border.router.weir(&["route", "list", "--router", &uri]).failure();
    assert!(refused.contains("does not accept commands over hicn+udp4"), "{refused}");
    let large = [&["put", "source", "/large", "--segment-size", "1400B"][..], &options].concat();
    let refused = border.router.weir(&large).failure();
    let (_, largest) = refused.split_once("do not fit into a packet: at most ").expect("a limit");
    let largest: u32 = largest.split(' ').next().unwrap().parse().expect("a number");
    // hicn-light reads packets of 1500 bytes, which also hold headers and a signature.
    assert!((1000..1400).contains(&largest), "{refused}");
    // Names of NDN do not get there.
    for command in [&["put", "source", "/file"][..], &["get", "/file"]] {
        let refused = border.router.weir(&[command, &["--router", &uri]].concat()).failure();
        assert!(refused.contains("/file is no hICN name; add --mapping"), "{refused}");
    }
}

/// A router that is reached over hICN packets reads packets of 1500 bytes.
#[test]
fn longer_packets_are_refused() {
    let host = Host::new();
    let border = Border::start(&host, "");
    let there = border.session();
    let options = [("mapping", MAPPING), ("segment_size", "1400")];
    let producer = producer_with(&there, "/p", &options);
    let published = producer.publish(&name("/p/a"), content(5000));
    assert!(matches!(published, Err(SocketError::TooLong { .. })), "{published:?}");
    let mut live = producer.publish_live(&name("/p/live")).unwrap();
    let appended = live.append(&content(1400));
    assert!(matches!(appended, Err(SocketError::TooLong { .. })), "{appended:?}");
    let uri = border.uri();
    for size in ["1400B", "8GiB"] {
        let origin = border.router.weir(&[
            "gateway",
            "origin",
            "/p=http://127.0.0.1:1",
            "--mapping",
            MAPPING,
            "--segment-size",
            size,
            "--router",
            &uri,
        ]);
        let refused = origin.failure();
        assert!(refused.contains("segment"), "{refused}");
    }
}

/// Another program has the port.
#[test]
fn port_in_use_is_named() {
    let host = Host::new();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = socket.local_addr().unwrap().port();
    host.write("weir.toml", format!("[faces]\nhicn_udp = [\"127.0.0.1:{port}\"]\n").as_bytes());
    let refused =
        host.spawn("unix:///unused", &["router", "--config", "weir.toml"]).finish().failure();
    assert!(refused.contains("choose another port (hicn_udp in [faces])"), "{refused}");
}
