//! Peers that answer Interests that were sent to others.

use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use weir_forward::DropReason;
use weir_io_fixture::TEST_TIMEOUT;
use weir_io_fixture::router::{
    Peer, ReceivedPacket, TestRouter, content_of, data, interest, name, name_of,
};
use weir_manage::ControlParameters;
use weir_manage::commands::Command;
use weir_runtime::{PitTokenChoice, StaticFace};
use weir_wire::{Interest, LpFraming, LpHeader, LpView, PitToken};

/// A router with a UDP neighbour, `producer`, as the next hop for `/a`.
fn with_neighbour(threads: usize) -> (TestRouter, weir_io_fixture::router::UdpPeer) {
    let router = TestRouter::start_with(|config| config.threads = threads);
    let producer = router.udp_from([127, 0, 0, 2]);
    producer.send(&interest("/unknown"));
    producer.receive().nack();
    let face_id = Some(router.snapshot().faces[0].id);
    let parameters =
        ControlParameters { name: Some(name("/a")), face_id, ..ControlParameters::default() };
    assert_eq!(router.unix().command(Command::RibRegister, &parameters).code, 200);
    (router, producer)
}

/// The Interest for `uri`. Retransmissions of other Interests may precede it.
fn token_of(producer: &weir_io_fixture::router::UdpPeer, uri: &str) -> PitToken {
    loop {
        let ReceivedPacket::Interest { header, wire } = producer.receive() else {
            panic!("an Interest was due")
        };
        if weir_io_fixture::router::name_of(&wire) == uri {
            return header.pit_token;
        }
    }
}

fn with_token(pit_token: PitToken, packet: &[u8]) -> Vec<u8> {
    let header = LpHeader { pit_token, ..LpHeader::default() };
    header.encode(&LpFraming::BARE, &[], Some(packet))
}

fn drops(router: &TestRouter, reason: DropReason) -> u64 {
    router.snapshot().router.drops[reason as usize]
}

#[test]
fn unsolicited_data_is_not_forwarded_or_stored() {
    for threads in [1, 3] {
        let (router, producer) = with_neighbour(threads);
        let forger = router.udp_from([127, 0, 0, 3]);
        let mut consumer = router.unix();
        for turn in 0..20 {
            let uri = format!("/a/{turn}");
            forger.send(&interest(&uri));
            let token = token_of(&producer, &uri);
            forger.send(&data(&uri, b"forged"));
            router.wait_until("the forged Data is dropped", |snapshot| {
                snapshot.router.drops[DropReason::NotRequested as usize] == turn + 1
            });
            consumer.send(&interest(&uri));
            producer.send(&with_token(token, &data(&uri, b"right")));
            assert_eq!(weir_io_fixture::router::content_of(&consumer.receive().data()), b"right");
            assert_eq!(weir_io_fixture::router::content_of(&forger.receive().data()), b"right");
        }
        router.stop();
    }
}

/// The forger sends from the neighbour's own address, as over a network without source validation;
/// here through the neighbour's socket.
#[test]
fn forged_data_without_token_is_dropped() {
    let (router, producer) = with_neighbour(1);
    let mut consumer = router.unix();
    for turn in 0..10 {
        let uri = format!("/a/{turn}");
        consumer.send(&interest(&uri));
        let token = token_of(&producer, &uri);
        assert_eq!(token.as_slice().len(), 6);
        if turn > 0 {
            producer.send(&data(&uri, b"forged"));
            router.wait_until("the forged Data is dropped", |snapshot| {
                snapshot.router.drops[DropReason::Spoofed as usize] == turn
            });
        }
        producer.send(&with_token(token, &data(&uri, b"right")));
        assert_eq!(weir_io_fixture::router::content_of(&consumer.receive().data()), b"right");
    }
    assert_eq!(drops(&router, DropReason::NotRequested), 0);
    router.stop();
}

/// Answers one Interest like ndnd, which terminates on a PIT token that is neither empty nor six
/// bytes.
fn ndnd_answer(frame: &[u8]) -> Option<Vec<u8>> {
    let view = LpView::decode(frame).unwrap();
    // An idle packet, such as the offer of runs at the start of a connection.
    view.fragment?;
    let ReceivedPacket::Interest { header, wire } = ReceivedPacket::of_frame(frame) else {
        return None;
    };
    let len = header.pit_token.as_slice().len();
    assert!([0, 6].contains(&len), "a token of {len} bytes ends ndnd");
    Some(with_token(header.pit_token, &data(&name_of(&wire), b"ndnd")))
}

fn ndnd_over_udp(socket: &UdpSocket) {
    let mut octets = [0; 9000];
    // An empty datagram ends the neighbour.
    while let (len @ 1.., from) = socket.recv_from(&mut octets).unwrap() {
        if let Some(answer) = ndnd_answer(&octets[..len]) {
            socket.send_to(&answer, from).unwrap();
        }
    }
}

fn ndnd_over_tcp(stream: TcpStream) {
    let mut sending = stream.try_clone().unwrap();
    let mut peer = Peer::new(stream);
    while let Some(frame) = peer.try_frame().unwrap() {
        if let Some(answer) = ndnd_answer(&frame) {
            sending.write_all(&answer).unwrap();
        }
    }
}

/// A router with a static face to `uri`, and a route for `/a` over it.
fn with_face(uri: &str, threads: usize, pit_token: Option<PitTokenChoice>) -> TestRouter {
    let router = TestRouter::start_with(|config| {
        config.threads = threads;
        let routes = vec![(name("/a"), 0)];
        let uri = uri.to_owned();
        config.static_faces = vec![StaticFace { uri, pit_token, routes, ..StaticFace::default() }];
    });
    router.wait_until("the face and its route are there", |snapshot| {
        snapshot.router.fib_entries > 0 && snapshot.faces.iter().any(|face| face.uri == uri)
    });
    router
}

/// Over UDP and TCP, with one worker thread and several, for each length of the consumer's token.
#[test]
fn sends_only_tokens_ndnd_accepts() {
    for (threads, scheme) in [1, 2, 5].into_iter().flat_map(|n| [(n, "udp4"), (n, "tcp4")]) {
        let udp = UdpSocket::bind("127.0.0.2:0").unwrap();
        udp.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
        let address: SocketAddr = udp.local_addr().unwrap();
        let tcp = TcpListener::bind(address).unwrap();
        let ending = udp.try_clone().unwrap();
        let neighbour = std::thread::spawn(move || match scheme {
            "udp4" => ndnd_over_udp(&udp),
            _ => ndnd_over_tcp(tcp.accept().unwrap().0),
        });
        let router = with_face(&format!("{scheme}://{address}"), threads, None);
        let mut consumer = router.unix();
        for len in 0..=32 {
            let token = PitToken::new(&vec![7; len]).unwrap();
            consumer.send(&with_token(token, &interest(&format!("/a/{len}"))));
            let ReceivedPacket::Data { header, wire } = consumer.receive() else { panic!("{len}") };
            assert_eq!((header.pit_token, content_of(&wire)), (token, b"ndnd".to_vec()));
        }
        assert_eq!(drops(&router, DropReason::Spoofed), 0);
        router.stop();
        ending.send_to(&[], address).unwrap();
        neighbour.join().expect("it was never given a token that ends it");
    }
}

/// ndnd (31822ab) with several threads finds the thread of a CanBePrefix Interest by the token
/// alone, and reads the token from the fragment that arrives last.
#[test]
fn each_fragment_to_ndnd_has_its_token() {
    let router = TestRouter::start_with(|config| config.face_defaults.udp_mtu = Some(1420));
    let mut producer = router.unix();
    let prefix = ControlParameters { name: Some(name("/a")), ..ControlParameters::default() };
    assert_eq!(producer.command(Command::RibRegister, &prefix).code, 200);
    let ndnd = router.udp();
    let asked = Interest::new(name("/a")).can_be_prefix(true).nonce(7).encode();
    // Thread 3, and the number of a PIT entry.
    let token = PitToken::new(&[0, 3, 0, 0, 1, 0]).unwrap();
    ndnd.send(&with_token(token, &asked));
    let ReceivedPacket::Interest { header, .. } = producer.receive() else { panic!("no Interest") };
    producer.send(&with_token(header.pit_token, &data("/a/b/c", &[7; 8000])));
    let mut count = 1;
    for index in 0.. {
        let frame = ndnd.frame();
        let view = LpView::decode(&frame).unwrap();
        assert_eq!((view.framing.frag_index, view.header.pit_token), (index, token));
        count = view.framing.frag_count;
        if index + 1 == count {
            break;
        }
    }
    assert_eq!(count, 6);
    router.stop();
}

#[test]
fn tokens_are_long_or_off_where_configured() {
    for (choice, len) in [(PitTokenChoice::Long, 12), (PitTokenChoice::Off, 0)] {
        let producer = UdpSocket::bind("127.0.0.2:0").unwrap();
        producer.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let uri = format!("udp4://{}", producer.local_addr().unwrap());
        let router = with_face(&uri, 3, Some(choice));
        let mut consumer = router.unix();
        consumer.send(&interest("/a/1"));
        let mut octets = [0; 9000];
        let (read, from) = producer.recv_from(&mut octets).unwrap();
        let token = LpView::decode(&octets[..read]).unwrap().header.pit_token;
        assert_eq!(token.as_slice().len(), len, "{choice:?}");
        producer.send_to(&with_token(token, &data("/a/1", b"right")), from).unwrap();
        assert_eq!(content_of(&consumer.receive().data()), b"right");
        router.stop();
    }
}
