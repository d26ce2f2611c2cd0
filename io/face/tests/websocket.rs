//! WebSocket faces over loopback, with the complete client of tungstenite and with raw bytes at the
//! other end.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant as Clock};

use proptest::collection;
use proptest::prelude::*;
use tungstenite::protocol::frame::coding::CloseCode;
use tungstenite::{Message, WebSocket};
use weir_base::{Packet, Pool};
use weir_face::{
    Accepted, FaceUri, Listener, RecvStatus, SendStatus, Socket, WebSocketError, WebSocketListener,
};
use weir_io_fixture::TEST_TIMEOUT;
use weir_io_fixture::face::{data, link_with, octets_of, packets_of};
use weir_link::{Link, LinkConfig};

#[path = "../../../fuzz/websocket.rs"]
mod script;

const REQUEST: &str = "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: keep-alive, Upgrade\r\n\
                       Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                       Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

fn listen(ip: impl Into<std::net::IpAddr>) -> (Listener, SocketAddr) {
    let listener = WebSocketListener::bind(SocketAddr::new(ip.into(), 0)).unwrap();
    let address = listener.local_uri().socket_addr().unwrap();
    (Listener::WebSocket(listener), address)
}

/// Accepts a connection, and waits for its request and the answer, or for the refusal.
fn accept(listener: &Listener) -> std::io::Result<Socket> {
    let until = Clock::now() + TEST_TIMEOUT;
    let mut handshake = loop {
        assert!(Clock::now() < until, "no connection came");
        match listener.accept().unwrap() {
            Some(Accepted::Handshake(handshake)) => break handshake,
            None => std::thread::sleep(Duration::from_millis(1)),
            Some(other) => panic!("{other:?}"),
        }
    };
    while !handshake.read()? {
        assert!(Clock::now() < until, "no request came");
        std::thread::sleep(Duration::from_millis(1));
    }
    Socket::of_handshake(handshake)
}

/// A face of a router, and a raw connection after the handshake.
fn raw_pair() -> (TcpStream, Socket) {
    let (listener, address) = listen(Ipv4Addr::LOCALHOST);
    let mut raw = TcpStream::connect(address).unwrap();
    raw.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    raw.write_all(REQUEST.as_bytes()).unwrap();
    let face = accept(&listener).unwrap();
    assert!(read_head(&mut raw).starts_with("HTTP/1.1 101 "));
    (raw, face)
}

fn read_head(raw: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut octet = [0];
        raw.read_exact(&mut octet).unwrap();
        head.push(octet[0]);
    }
    String::from_utf8(head).unwrap()
}

/// A face of a router, and tungstenite's client at the other end.
fn client_pair() -> (WebSocket<TcpStream>, Socket) {
    let (listener, address) = listen(Ipv4Addr::LOCALHOST);
    let connect = move || {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
        tungstenite::client(format!("ws://{address}/"), stream).unwrap().0
    };
    let client = std::thread::spawn(connect);
    let face = accept(&listener).unwrap();
    (client.join().unwrap(), face)
}

/// A router's client, and the face that it gets.
fn router_pair(ip: impl Into<std::net::IpAddr>) -> (Socket, Socket) {
    let (listener, address) = listen(ip);
    let connect =
        move || Socket::connect(&FaceUri::WebSocket(address), Duration::from_secs(5)).unwrap();
    let client = std::thread::spawn(connect);
    let face = accept(&listener).unwrap();
    (client.join().unwrap(), face)
}

/// Receives until a read does not end with Drained or More, or `count` frames have arrived.
fn receive(face: &mut Socket, count: usize) -> (Vec<Packet>, RecvStatus) {
    let (mut pool, mut frames) = (Pool::new(4 << 20), Vec::new());
    let until = Clock::now() + TEST_TIMEOUT;
    loop {
        let status = face.recv(&mut pool, &mut frames).unwrap();
        if frames.len() >= count || !matches!(status, RecvStatus::Drained | RecvStatus::More) {
            return (frames, status);
        }
        assert!(Clock::now() < until, "{} of {count} frames came", frames.len());
    }
}

fn end_of(face: &mut Socket) -> RecvStatus {
    receive(face, usize::MAX).1
}

fn pump(from: &mut Socket, link: &mut Link, to: &mut Socket) -> Vec<Packet> {
    let (mut pool, mut frames) = (Pool::new(4 << 20), Vec::new());
    let count = link.frames().len();
    while frames.len() < count {
        let sent = from.send(link).unwrap();
        assert!(sent == SendStatus::WouldBlock || link.is_egress_empty());
        to.recv(&mut pool, &mut frames).unwrap();
    }
    frames
}

#[test]
fn packets_of_all_sizes_cross_both_ways() {
    let packets: Vec<Packet> =
        (0..2000).map(|index| data(2 + (index * index * 37) % 8700, index)).collect();
    let mut config = LinkConfig::stream();
    config.egress.queue_bytes_max = 64 << 20;
    for ip in [std::net::IpAddr::from(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()] {
        let (mut near, mut far) = router_pair(ip);
        let mut link = link_with(&packets, config.clone());
        assert!(packets_of(pump(&mut near, &mut link, &mut far)) == packets);
        assert_eq!(link.counters().out_frames, 2000);
        let mut link = link_with(&packets, config.clone());
        assert!(packets_of(pump(&mut far, &mut link, &mut near)) == packets);
        assert_eq!((near.held_bytes(), far.held_bytes()), (0, 0), "idle faces hold no memory");
    }
}

#[test]
fn uris_are_those_of_nfd() {
    let (near, far) = router_pair(Ipv4Addr::LOCALHOST);
    assert_eq!((near.remote_uri(), near.local_uri()), (far.local_uri(), far.remote_uri()));
    let [remote, local] = [far.remote_uri(), far.local_uri()].map(|uri| uri.to_string());
    assert!(remote.starts_with("wsclient://127.0.0.1:"), "{remote}");
    assert!(local.starts_with("ws://127.0.0.1:"), "{local}");
    assert_eq!(remote.parse::<FaceUri>().unwrap(), far.remote_uri());
    assert!(near.is_local() && far.is_local());
}

#[test]
fn exchanges_packets_with_another_implementation() {
    let (mut client, mut face) = client_pair();
    let packets = [data(2, 0), data(300, 1), data(8800, 2)];
    for packet in &packets {
        client.send(Message::binary(packet.to_vec())).unwrap();
    }
    assert_eq!(receive(&mut face, 3).0, packets);
    let mut link = link_with(&packets, LinkConfig::stream());
    let frames: Vec<_> = link.frames().map(|one| [one.prefix(), one.payload()].concat()).collect();
    assert_eq!(face.send(&mut link).unwrap(), SendStatus::Drained);
    for frame in frames {
        assert_eq!(client.read().unwrap(), Message::binary(frame));
    }
}

#[test]
fn answers_ping_without_traffic() {
    let (mut client, mut face) = client_pair();
    client.send(Message::Ping("are you there".into())).unwrap();
    let until = Clock::now() + TEST_TIMEOUT;
    let mut pool = Pool::new(1 << 20);
    client.get_ref().set_nonblocking(true).unwrap();
    let pong = loop {
        assert!(Clock::now() < until, "no answer");
        assert_eq!(face.recv(&mut pool, &mut Vec::new()).unwrap(), RecvStatus::Drained);
        if let Ok(message) = client.read() {
            break message;
        }
    };
    assert_eq!(pong, Message::Pong("are you there".into()));
}

/// A peer that sends pings and reads nothing gets the answer to the last one, between two packets.
#[test]
fn full_socket_keeps_one_pong() {
    let (mut client, mut face) = client_pair();
    let packets: Vec<Packet> = (0..2000).map(|index| data(8000, index)).collect();
    let mut config = LinkConfig::stream();
    config.egress.queue_bytes_max = 64 << 20;
    let mut link = link_with(&packets, config);
    let expected = octets_of(&link).len();
    assert_eq!(face.send(&mut link).unwrap(), SendStatus::WouldBlock);
    for number in 0..100 {
        client.send(Message::Ping(format!("{number}").into())).unwrap();
    }
    let mut pool = Pool::new(1 << 20);
    std::thread::sleep(Duration::from_millis(50));
    face.recv(&mut pool, &mut Vec::new()).unwrap();
    assert!(face.held_bytes() < 20_000, "at most one frame waits outside of the queue");
    let read = std::thread::spawn(move || {
        let (mut octets, mut pongs) = (0, Vec::new());
        while octets < expected || pongs.is_empty() {
            match client.read().unwrap() {
                Message::Binary(payload) => octets += payload.len(),
                Message::Pong(payload) => pongs.push(payload),
                other => panic!("{other:?}"),
            }
        }
        (octets, pongs)
    });
    while !read.is_finished() {
        face.send(&mut link).unwrap();
    }
    let (octets, pongs) = read.join().unwrap();
    assert_eq!((octets, pongs.len(), &pongs[0][..]), (expected, 1, &b"99"[..]));
}

#[test]
fn close_is_answered_and_ends_the_face() {
    let (mut client, mut face) = client_pair();
    client.send(Message::binary(data(40, 1).to_vec())).unwrap();
    client.close(None).unwrap();
    assert_eq!(receive(&mut face, usize::MAX), (vec![data(40, 1)], RecvStatus::Closed));
    assert_eq!(client.read().unwrap(), Message::Close(None));
}

#[test]
fn dropped_face_says_goodbye() {
    let (mut client, face) = client_pair();
    drop(face);
    match client.read().unwrap() {
        Message::Close(Some(frame)) => assert_eq!(frame.code, CloseCode::Away),
        other => panic!("{other:?}"),
    }
}

#[test]
fn broken_peers_get_the_reason() {
    let cases: [(&[u8], WebSocketError, CloseCode); 4] = [
        (&[0x82, 1, 0], WebSocketError::Unmasked, CloseCode::Protocol),
        (&[0x81, 0x81, 0, 0, 0, 0, b'x'], WebSocketError::Text, CloseCode::Unsupported),
        (&[0x82, 0xfe, 0xff, 0xff, 0, 0, 0, 0], WebSocketError::TooLong, CloseCode::Size),
        (&[0x80, 0x81, 0, 0, 0, 0, b'x'], WebSocketError::Fragment, CloseCode::Protocol),
    ];
    for (sent, error, code) in cases {
        let (mut raw, mut face) = raw_pair();
        raw.write_all(sent).unwrap();
        assert_eq!(end_of(&mut face), RecvStatus::WebSocketBroken(error));
        drop(face);
        let mut octets = Vec::new();
        raw.read_to_end(&mut octets).unwrap();
        let reason = error.to_string();
        assert_eq!(octets[..2], [0x88, reason.len() as u8 + 2], "{error}");
        assert_eq!(octets[2..4], u16::from(code).to_be_bytes());
        assert_eq!(octets[4..], *reason.as_bytes());
    }
}

#[test]
fn packet_in_segment_of_request_is_kept() {
    let (listener, address) = listen(Ipv4Addr::LOCALHOST);
    let mut raw = TcpStream::connect(address).unwrap();
    let frame = [&[0x82, 0x82, 0, 0, 0, 0][..], &data(2, 0)].concat();
    raw.write_all(&[REQUEST.as_bytes(), &frame].concat()).unwrap();
    let mut face = accept(&listener).unwrap();
    assert_eq!(receive(&mut face, 1).0, [data(2, 0)]);
}

#[test]
fn request_may_arrive_byte_by_byte() {
    let (listener, address) = listen(Ipv4Addr::LOCALHOST);
    let mut raw = TcpStream::connect(address).unwrap();
    raw.set_nodelay(true).unwrap();
    let Some(Accepted::Handshake(mut handshake)) = listener.accept().unwrap() else {
        panic!("a connection waits")
    };
    for octet in REQUEST.bytes() {
        assert!(!handshake.read().unwrap());
        raw.write_all(&[octet]).unwrap();
    }
    let until = Clock::now() + TEST_TIMEOUT;
    while !handshake.read().unwrap() {
        assert!(Clock::now() < until);
    }
    Socket::of_handshake(handshake).unwrap();
    assert!(read_head(&mut raw).contains("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
}

#[test]
fn refuses_requests_without_upgrade() {
    let version = REQUEST.replace("Version: 13", "Version: 8");
    let key = REQUEST.replace("Sec-WebSocket-Key", "X-Key");
    let post = REQUEST.replace("GET", "POST");
    for request in ["GET / HTTP/1.1\r\nHost: x\r\n\r\n", "\0\0\r\n\r\n", &version, &key, &post] {
        let (listener, address) = listen(Ipv4Addr::LOCALHOST);
        let mut raw = TcpStream::connect(address).unwrap();
        raw.write_all(request.as_bytes()).unwrap();
        assert!(accept(&listener).is_err(), "{request}");
        let mut answer = String::new();
        raw.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 426 ") && answer.contains("NDNLPv2"), "{answer}");
    }
}

#[test]
fn refuses_long_request() {
    let (listener, address) = listen(Ipv4Addr::LOCALHOST);
    let mut raw = TcpStream::connect(address).unwrap();
    let request = format!("GET / HTTP/1.1\r\nCookie: {}\r\n", "x".repeat(10_000));
    raw.write_all(request.as_bytes()).unwrap();
    let error = accept(&listener).unwrap_err();
    assert!(error.to_string().contains("8192"), "{error}");
}

/// What a client of a router finds at the other end of a TCP connection.
fn connect_to(answer: &'static str) -> std::io::Error {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let uri = FaceUri::WebSocket(listener.local_addr().unwrap());
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let request = read_head(&mut stream);
        assert!(request.starts_with("GET / HTTP/1.1\r\nHost: 127.0.0.1:"), "{request}");
        stream.write_all(answer.as_bytes()).unwrap();
        stream
    });
    let error = Socket::connect(&uri, Duration::from_millis(300)).unwrap_err();
    drop(server.join().unwrap());
    error
}

#[test]
fn client_explains_what_it_found() {
    let error = connect_to("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
    assert!(error.to_string().contains("404"), "{error}");
    let error = connect_to("SSH-2.0-OpenSSH_9.2\r\n\r\n");
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidData, "{error}");
    let error = connect_to("");
    assert_eq!(error.kind(), std::io::ErrorKind::TimedOut, "{error}");
}

/// Bytes of a script: frames that are almost right, between arbitrary ones.
fn any_frames() -> impl Strategy<Value = Vec<u8>> {
    let octets = |len| collection::vec(any::<u8>(), len);
    let first = prop::sample::select(vec![0x82, 0x02, 0x00, 0x80, 0x89, 0x8a, 0x88, 0x81, 0xc2]);
    let frame = (first, octets(0..126)).prop_map(|(first, payload)| {
        [&[first, 0x80 | payload.len() as u8, 0, 0, 0, 0], &payload[..]].concat()
    });
    let part = prop_oneof![9 => frame, 1 => octets(0..20)];
    (any::<u8>(), collection::vec(part, 0..8))
        .prop_map(|(first, parts)| [vec![first], parts.concat()].concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn survives_hostile_peers(script in any_frames()) {
        script::check(&script);
    }
}
