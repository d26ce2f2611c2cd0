//! The main path: programs of one machine, over the Unix socket.

use std::os::unix::net::UnixStream;

use weir_base::FaceId;
use weir_io_fixture::TEST_TIMEOUT;
use weir_io_fixture::router::{
    ReceivedPacket, TestRouter, command_interest, config, content_of, data, interest, name,
    name_of, response_of,
};
use weir_manage::commands::Command;
use weir_manage::{ControlParameters, Element, FaceStatus};
use weir_runtime::{Runtime, Snapshot, StartError, UnsolicitedPolicy};
use weir_wire::{Interest, InterestView, LpFraming, LpHeader, LpView, NackReason, PitToken};

#[test]
fn data_returns_and_is_cached() {
    let router = TestRouter::start();
    let (mut producer, mut consumer) = (router.unix(), router.unix());
    producer.register("/movies");

    consumer.send(&interest("/movies/one"));
    let asked = producer.receive().interest();
    assert_eq!(name_of(&asked), "/movies/one");
    producer.send(&data("/movies/one", b"first"));
    assert_eq!(content_of(&consumer.receive().data()), b"first");

    // The producer receives no second Interest.
    consumer.send(&interest("/movies/one"));
    assert_eq!(content_of(&consumer.receive().data()), b"first");
    consumer.send(&interest("/movies/two"));
    assert_eq!(name_of(&producer.receive().interest()), "/movies/two");

    let snapshot = router.snapshot();
    assert_eq!(snapshot.router.store.hits, 1);
    assert_eq!(snapshot.faces.len(), 2);
    assert!(snapshot.faces[1].counters.in_interests >= 3, "{snapshot:#?}");
    router.stop();
}

/// Regression: a busy control thread handled the command of a face before it knew the face. It
/// answered 200, and the route had no effect. Without the fix, this fails every time if the control
/// thread sleeps for 3 ms between its events and its messages.
#[test]
fn burst_of_new_faces_gets_routes() {
    let router = TestRouter::start();
    let mut consumer = router.unix();
    for round in 0..20 {
        let prefixes: Vec<String> = (0..32).map(|number| format!("/r{round}/p{number}")).collect();
        let begin = |prefix: &String| {
            let mut peer = router.unix();
            let parameters =
                ControlParameters { name: Some(name(prefix)), ..ControlParameters::default() };
            peer.send(&command_interest(Command::RibRegister, &parameters));
            peer
        };
        let mut producers: Vec<_> = prefixes.iter().map(begin).collect();
        for (prefix, producer) in prefixes.iter().zip(&mut producers) {
            assert_eq!(response_of(&producer.receive().data()).code, 200);
            consumer.send(&interest(prefix));
            assert_eq!(name_of(&producer.receive().interest()), *prefix);
        }
    }
}

#[test]
fn unsolicited_data_is_stored_if_configured() {
    for (policy, is_stored) in
        [(UnsolicitedPolicy::DropAll, false), (UnsolicitedPolicy::AdmitLocal, true)]
    {
        let router = TestRouter::start_with(|config| config.unsolicited = policy);
        let (mut producer, mut consumer) = (router.unix(), router.unix());
        producer.send(&data("/pushed", b"early"));
        router.wait_until("the Data came", |snapshot| {
            snapshot.faces.iter().any(|face| face.counters.in_data == 1)
        });
        consumer.send(&interest("/pushed"));
        match consumer.receive() {
            ReceivedPacket::Data { wire, .. } if is_stored => {
                assert_eq!(content_of(&wire), b"early")
            }
            ReceivedPacket::Nack { .. } if !is_stored => {}
            other => panic!("{policy:?}: {other:?}"),
        }
    }
}

#[test]
fn producer_region_hints_are_removed() {
    for threads in [1, 2] {
        let router = TestRouter::start_with(|config| {
            config.threads = threads;
            config.producer_regions = vec![name("/net/x/here")];
        });
        let (mut producer, mut consumer) = (router.unix(), router.unix());
        producer.register("/a");
        for number in 0..8 {
            let asked = Interest::new(name(&format!("/a/{number}")))
                .nonce(number)
                .forwarding_hint(vec![name("/net/x")])
                .encode();
            consumer.send(&asked);
            let wire = producer.receive().interest();
            assert_eq!(name_of(&wire), format!("/a/{number}"));
            assert!(InterestView::decode(&wire).unwrap().forwarding_hint.is_empty());
        }
    }
}

#[test]
fn no_route_is_answered_with_a_nack() {
    let router = TestRouter::start();
    let mut consumer = router.unix();
    let sent = interest("/unrouted/some/name");
    consumer.send(&sent);
    assert_eq!(consumer.receive().nack(), NackReason::NoRoute);
}

#[test]
fn pit_token_returns_with_data() {
    let router = TestRouter::start();
    let (mut producer, mut consumer) = (router.unix(), router.unix());
    producer.register("/a");
    for token in [&b"first"[..], &b"a longer token of 32 octets 12345"[..32]] {
        let header = LpHeader { pit_token: PitToken::new(token).unwrap(), ..LpHeader::default() };
        let packet = interest("/a/b");
        let mut prefix = [0; weir_wire::LP_PREFIX_MAX];
        let prefix_len = header.encode_prefix(&LpFraming::BARE, packet.len(), &mut prefix);
        consumer.send(&[&prefix[..prefix_len], &packet].concat());
        if token == b"first" {
            producer.receive().interest();
            producer.send(&data("/a/b", b"x"));
        }
        let frame = consumer.try_frame().unwrap().unwrap();
        let view = LpView::decode(&frame).unwrap();
        assert_eq!(view.header.pit_token.as_slice(), token);
    }
}

#[test]
fn datasets_list_faces_and_routes() {
    let router = TestRouter::start();
    let mut peer = router.unix();
    peer.register("/a/b");
    let ask = |uri: &str| {
        Interest::new(name(uri)).can_be_prefix(true).must_be_fresh(true).nonce(77).encode()
    };
    peer.send(&ask("/localhost/nfd/faces/list"));
    let faces = FaceStatus::decode_all(&content_of(&peer.receive().data())).unwrap();
    assert_eq!(faces.len(), 4);
    let reserved = [
        (FaceId::INTERNAL, "internal://"),
        (FaceId::CONTENT_STORE, "contentstore://"),
        (FaceId::NULL, "null://"),
    ];
    for (face, (id, uri)) in faces.iter().zip(reserved) {
        assert_eq!((face.info.face_id, &*face.info.uri), (id, uri));
    }
    assert!(faces.iter().all(|face| face.info.mtu == Some(8800)), "{faces:?}");
    // What is still on its way is not counted.
    assert!(faces[0].counters.out_interests >= 2 && faces[0].counters.in_data >= 1, "{faces:?}");
    assert!(faces[3].info.uri.starts_with("fd://"), "{faces:?}");
    assert_eq!(faces[3].info.local_uri, format!("unix://{}", router.path.display()));
    assert!(faces[3].counters.in_interests >= 2);

    peer.send(&ask("/localhost/nfd/fib/list"));
    let fib = weir_manage::FibEntry::decode_all(&content_of(&peer.receive().data())).unwrap();
    assert!(fib.iter().any(|entry| entry.name == name("/a/b")), "{fib:?}");

    peer.send(&ask("/localhost/nfd/cs/info"));
    let store = weir_manage::CsInfo::decode(&content_of(&peer.receive().data())).unwrap();
    assert_eq!(store.capacity_bytes, Some(16 << 20));
}

#[test]
fn null_face_drops_interests() {
    let router = TestRouter::start();
    let mut peer = router.unix();
    let hole = ControlParameters {
        name: Some(name("/hole")),
        face_id: Some(FaceId::NULL),
        ..ControlParameters::default()
    };
    assert_eq!(peer.command(Command::RibRegister, &hole).code, 200);
    peer.send(&interest("/hole/x"));
    peer.send(&interest("/other"));
    let ReceivedPacket::Nack { wire, .. } = peer.receive() else { panic!("not a Nack") };
    assert_eq!(name_of(&wire), "/other", "the null face sends no Nack");
    let dropped = |snapshot: &Snapshot| snapshot.runtime_drops.contains(&("null-face", 1));
    router.wait_until("the Interest is counted", dropped);
}

#[test]
fn closed_face_loses_its_routes() {
    let router = TestRouter::start();
    let mut producer = router.unix();
    producer.register("/gone");
    drop(producer);
    router.wait_until("the face is closed", |snapshot| snapshot.faces.is_empty());
    let mut consumer = router.unix();
    consumer.send(&interest("/gone/x"));
    assert_eq!(consumer.receive().nack(), NackReason::NoRoute);
}

#[test]
fn erasing_the_store() {
    let router = TestRouter::start();
    let (mut producer, mut consumer) = (router.unix(), router.unix());
    producer.register("/a");
    consumer.send(&interest("/a/1"));
    producer.receive().interest();
    producer.send(&data("/a/1", b"x"));
    consumer.receive().data();
    let parameters = ControlParameters { name: Some(name("/a")), ..Default::default() };
    let response = consumer.command(Command::CsErase, &parameters);
    assert_eq!((response.code, response.body.unwrap().count), (200, Some(1)));
    consumer.send(&interest("/a/1"));
    assert_eq!(name_of(&producer.receive().interest()), "/a/1");
}

#[test]
fn clean_stop_removes_socket() {
    let router = TestRouter::start();
    let mut peer = router.unix();
    peer.register("/a");
    let path = router.path.clone();
    let directory = tempfile::tempdir().unwrap();
    assert!(path.exists());
    router.stop();
    assert!(!path.exists());
    assert!(peer.try_frame().unwrap().is_none(), "the face is closed");
    drop(directory);
}

#[test]
fn two_routers_do_not_share_a_socket() {
    let router = TestRouter::start();
    let error = Runtime::start(config(router.path.clone())).unwrap_err();
    assert!(matches!(error, StartError::Unix(_)), "{error}");
    assert!(error.to_string().contains("--unix"), "{error}");
    // The first router is not affected.
    router.unix().register("/still/here");
}

#[test]
fn a_taken_port_is_named_with_the_next_step() {
    let router = TestRouter::start();
    let directory = tempfile::tempdir().unwrap();
    for scheme in ["udp4", "tcp4"] {
        let address = router.address(scheme);
        let mut config = config(directory.path().join("other.sock"));
        config.listeners = vec![match scheme {
            "udp4" => weir_runtime::Listener::Udp {
                format: weir_face::UdpFormat::Ndn,
                address,
                required: false,
            },
            _ => weir_runtime::Listener::Tcp { address, required: false },
        }];
        let error = Runtime::start(config).unwrap_err().to_string();
        assert!(error.contains(&address.to_string()), "{error}");
        assert!(error.contains(&format!("--{}", &scheme[..3])), "{error}");
    }
}

#[test]
fn a_killed_routers_socket_is_taken_over() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("nfd.sock");
    // What a killed router leaves behind: a socket file without a listener.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    let handle = Runtime::start(config(path.clone())).unwrap();
    let socket = UnixStream::connect(&path).unwrap();
    socket.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    weir_io_fixture::router::Peer::new(socket).register("/a");
    handle.stop().unwrap();
    assert!(!path.exists());
}
