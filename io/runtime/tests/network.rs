//! Remote peers: UDP and TCP, faces created by command and by configuration.

use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use weir_io_fixture::TEST_TIMEOUT;
use weir_io_fixture::router::{
    Peer, ReceivedPacket, TestRouter, content_of, data, interest, name, name_of, response_of,
    run_in_network_namespace,
};
use weir_link::{LinkCounters, LinkDrop};
use weir_manage::commands::Command;
use weir_manage::{ControlParameters, FacePersistency};
use weir_runtime::{Listener, StaticFace};
use weir_wire::{LpFraming, LpHeader, LpView, NackReason};

fn create_face(uri: &str, persistency: FacePersistency) -> ControlParameters {
    ControlParameters {
        uri: Some(uri.into()),
        face_persistency: Some(persistency),
        ..ControlParameters::default()
    }
}

#[test]
fn unknown_udp_peer_gets_face_and_data() {
    let router = TestRouter::start();
    let mut producer = router.unix();
    producer.register("/p");
    let consumer = router.udp();
    consumer.send(&interest("/p/1"));
    assert_eq!(name_of(&producer.receive().interest()), "/p/1");
    producer.send(&data("/p/1", &[7; 8000]));
    assert_eq!(content_of(&consumer.receive().data()), [7; 8000]);
    let snapshot = router.snapshot();
    let face = snapshot.faces.iter().find(|face| face.uri.starts_with("udp4://")).unwrap();
    assert_eq!(face.uri, format!("udp4://{}", consumer.socket.local_addr().unwrap()));
    assert_eq!((face.counters.in_interests, face.counters.out_data), (1, 1));
    assert!(face.expires_in_ns.unwrap() > 590_000_000_000);
}

/// A peer that sends to two addresses of a host has two faces there. Each answers from the address
/// that the peer sent to, with one worker thread and with several.
#[test]
fn udp_answers_from_requested_address() {
    for threads in [1, 3] {
        let router = TestRouter::start_with(|config| {
            config.threads = threads;
            let address = (Ipv4Addr::UNSPECIFIED, 0).into();
            config.listeners.retain(|listener| !matches!(listener, Listener::Udp { .. }));
            config.listeners.push(Listener::Udp {
                format: weir_face::UdpFormat::Ndn,
                address,
                required: true,
            });
        });
        let port = router.address("udp4").port();
        let mut producer = router.unix();
        producer.register("/p");
        let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
        peer.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
        for round in 0..2 {
            for last in [2, 3, 4] {
                let asked = (Ipv4Addr::new(127, 0, 0, last), port);
                let uri = format!("/p/{round}/{last}");
                peer.send_to(&interest(&uri), asked).unwrap();
                producer.receive().interest();
                producer.send(&data(&uri, &[last; 5000]));
                let mut datagram = [0; 9000];
                let (len, from) = peer.recv_from(&mut datagram).unwrap();
                assert_eq!(from, asked.into());
                assert_eq!(
                    content_of(&ReceivedPacket::of_frame(&datagram[..len]).data()),
                    [last; 5000]
                );
            }
        }
        let snapshot = router.snapshot();
        let mut locals: Vec<&str> = snapshot
            .faces
            .iter()
            .filter(|face| face.uri == format!("udp4://{}", peer.local_addr().unwrap()))
            .map(|face| face.local_uri.as_str())
            .collect();
        locals.sort_unstable();
        assert_eq!(locals, [2, 3, 4].map(|last| format!("udp4://127.0.0.{last}:{port}")));
    }
}

#[test]
fn udp_faces_send_from_route_address() {
    if !run_in_network_namespace("udp_faces_among_networks") {
        eprintln!("NOT tested with two networks: no network namespace can be made");
    }
}

#[test]
#[ignore = "udp_faces_send_from_route_address runs it in a network namespace"]
fn udp_faces_among_networks() {
    let router = TestRouter::start_with(|config| {
        config.listeners.retain(|listener| !matches!(listener, Listener::Udp { .. }));
        for address in ["10.1.0.1:6363", "10.2.0.1:6363"] {
            let address = address.parse().unwrap();
            config.listeners.push(Listener::Udp {
                format: weir_face::UdpFormat::Ndn,
                address,
                required: true,
            });
        }
    });
    let mut local = router.unix();
    for (network, source) in [(2, "10.2.0.1:6363"), (1, "10.1.0.1:6363")] {
        let peer = UdpSocket::bind((Ipv4Addr::new(10, network, 0, 9), 0)).unwrap();
        peer.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
        let uri = format!("udp4://{}", peer.local_addr().unwrap());
        let made = local
            .command(Command::FacesCreate, &create_face(&uri, FacePersistency::Persistent))
            .body
            .unwrap();
        assert_eq!(made.local_uri, Some(format!("udp4://{source}")));
        let prefix = format!("/network/{network}");
        let route = ControlParameters {
            name: Some(name(&prefix)),
            face_id: made.face_id,
            ..ControlParameters::default()
        };
        assert_eq!(local.command(Command::RibRegister, &route).code, 200);
        local.send(&interest(&prefix));
        let (_, from) = peer.recv_from(&mut [0; 9000]).unwrap();
        assert_eq!(from, source.parse().unwrap());
    }
}

/// NFD's clients send the largest number for `mtu auto`.
#[test]
fn mtu_auto_is_the_default() {
    let router = TestRouter::start();
    let mut peer = router.unix();
    // 192.0.2.0/24 is reserved for documentation: nothing is sent there.
    let create = ControlParameters {
        mtu: Some(weir_manage::MTU_AUTO),
        ..create_face("udp4://192.0.2.1:6363", FacePersistency::Persistent)
    };
    let made = peer.command(Command::FacesCreate, &create).body.unwrap();
    assert_eq!(made.mtu, Some(1420));
    for (asked, mtu) in [(600, 600), (9000, 8800), (weir_manage::MTU_AUTO, 1420)] {
        let update = ControlParameters {
            face_id: made.face_id,
            mtu: Some(asked),
            ..ControlParameters::default()
        };
        let updated = peer.command(Command::FacesUpdate, &update).body.unwrap();
        assert_eq!(updated.mtu, Some(mtu));
    }
}

/// ndnd's documents create faces with `udp://HOST`. The name service may be slow, so the router
/// answers other commands meanwhile.
#[test]
fn command_may_create_face_to_host_name() {
    let router = TestRouter::start();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut peer = router.unix();
    let mut create = |uri: &str| {
        peer.command(Command::FacesCreate, &create_face(uri, FacePersistency::Permanent))
    };
    let made = create(&format!("udp://127.0.0.1:{port}"));
    assert_eq!(made.code, 200, "{made:?}");
    let made = made.body.unwrap();
    assert_eq!(made.uri, Some(format!("udp4://127.0.0.1:{port}")));
    assert_eq!(made.face_persistency, Some(FacePersistency::Permanent));
    let exists = create(&format!("udp4://localhost:{port}"));
    assert_eq!((exists.code, exists.body.unwrap().face_id), (409, made.face_id));
    let made = create(&format!("tcp4://localhost:{port}"));
    assert_eq!(made.code, 200, "{made:?}");
    assert_eq!(made.body.unwrap().uri, Some(format!("tcp4://127.0.0.1:{port}")));
    for (uri, code) in [
        ("udp://224.0.23.170:56363", 406),
        ("udp://0.0.0.0:6363", 406),
        ("udp4://[::1]:6363", 406),
        ("tcp://", 406),
    ] {
        let refused = create(uri);
        assert_eq!(refused.code, code, "{uri}: {refused:?}");
    }
}

#[test]
fn link_local_peers_need_an_interface() {
    let router = TestRouter::start();
    let mut peer = router.unix();
    let mut create =
        |uri| peer.command(Command::FacesCreate, &create_face(uri, FacePersistency::Persistent));
    let refused = create("udp6://[fe80::1]:6363");
    assert_eq!(refused.code, 406);
    assert!(refused.text.contains("[fe80::1%eth0]"), "{refused:?}");
    for uri in ["udp6://[fe80::1%lo]:6363", "udp6://[fe80::2%25lo]:6363"] {
        let made = create(uri);
        assert_eq!(made.code, 200, "{made:?}");
        assert_eq!(made.body.unwrap().uri.unwrap(), uri.replace("%25", "%"));
    }
}

/// Runs the ignored test `name` with its own /etc/hosts, `WEIR_TEST_HOSTS`.
fn runs_with_hosts(name: &str) -> bool {
    let hosts = tempfile::NamedTempFile::new().unwrap();
    let script = "mount --bind \"$WEIR_TEST_HOSTS\" /etc/hosts && exec \"$0\" \"$@\"";
    let mut unshare = std::process::Command::new("unshare");
    unshare.args(["--user", "--map-root-user", "--mount", "sh", "-c", script]);
    unshare.arg(std::env::current_exe().unwrap()).args(["--ignored", "--exact", name]);
    let Ok(output) = unshare.env("WEIR_TEST_HOSTS", hosts.path()).output() else { return false };
    let text = String::from_utf8_lossy(&output.stdout);
    if !text.contains("running 1 test") {
        return false;
    }
    assert!(output.status.success(), "{text}");
    true
}

#[test]
fn configured_udp_faces_follow_their_host() {
    if !runs_with_hosts("udp_faces_follow_hosts") {
        eprintln!("NOT tested with host names that change: no mount namespace can be made");
    }
}

#[test]
#[ignore = "configured_udp_faces_follow_their_host runs it with /etc/hosts of its own"]
fn udp_faces_follow_hosts() {
    let set_hosts = |addresses: &[&str]| {
        let lines = addresses.iter().map(|address| format!("{address} moving.test\n"));
        std::fs::write("/etc/hosts", lines.collect::<String>()).unwrap();
    };
    for threads in [1, 4] {
        let first = UdpSocket::bind("127.0.0.2:0").unwrap();
        let port = first.local_addr().unwrap().port();
        let second = UdpSocket::bind(("127.0.0.3", port)).unwrap();
        let third = UdpSocket::bind(("127.0.0.4", port)).unwrap();
        set_hosts(&["127.0.0.2"]);
        let router = TestRouter::start_with(|config| {
            config.threads = threads;
            config.static_faces = vec![StaticFace {
                uri: format!("udp://moving.test:{port}"),
                routes: vec![(name("/a"), 0)],
                ..StaticFace::default()
            }];
        });
        let leads_to = |socket: &UdpSocket| {
            let uri = format!("udp4://{}", socket.local_addr().unwrap());
            let begun = std::time::Instant::now();
            while !router.snapshot().faces.iter().any(|face| face.uri == uri) {
                assert!(begun.elapsed() < Duration::from_secs(100), "no face to {uri}");
                std::thread::sleep(Duration::from_millis(20));
            }
            router.snapshot().faces.iter().find(|face| face.uri == uri).unwrap().id
        };
        let mut consumer = router.unix();
        let mut exchange = |socket: &UdpSocket, uri: &str| {
            socket.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
            consumer.send(&interest(uri));
            let mut octets = [0; 9000];
            loop {
                let (len, from) = socket.recv_from(&mut octets).unwrap();
                let ReceivedPacket::Interest { header, wire } =
                    ReceivedPacket::of_frame(&octets[..len])
                else {
                    panic!("an Interest was due")
                };
                // Or a probe, which gets no answer.
                if name_of(&wire) == uri {
                    let header = LpHeader { pit_token: header.pit_token, ..LpHeader::default() };
                    let answer = header.encode(&LpFraming::BARE, &[], Some(&data(uri, b"here")));
                    socket.send_to(&answer, from).unwrap();
                    break;
                }
            }
            assert_eq!(content_of(&consumer.receive().data()), b"here");
        };
        let face = leads_to(&first);
        router.wait_until("the route", |snapshot| snapshot.router.fib_entries >= 1);
        exchange(&first, "/a/1");
        // The host name changes, and the peer is silent.
        set_hosts(&["127.0.0.3"]);
        assert_eq!(leads_to(&second), face, "the same face, with its routes");
        exchange(&second, "/a/2");
        // Of two addresses, the one in use refuses.
        set_hosts(&["127.0.0.3", "127.0.0.4"]);
        drop(second);
        assert_eq!(leads_to(&third), face);
        exchange(&third, "/a/3");
        router.stop();
    }
}

#[test]
fn small_mtu_fragments_data() {
    let near = TestRouter::start();
    let far = TestRouter::start_with(|config| config.face_defaults.udp_mtu = Some(500));
    let mut producer = far.unix();
    producer.register("/far");
    let mut consumer = near.unix();
    let uri = format!("udp4://{}", far.address("udp4"));
    let parameters = create_face(&uri, FacePersistency::Persistent);
    let response = consumer.command(Command::FacesCreate, &parameters);
    assert_eq!(response.code, 200, "{response:?}");
    let face = response.body.unwrap().face_id.unwrap();
    let route = ControlParameters {
        name: Some(name("/far")),
        face_id: Some(face),
        ..ControlParameters::default()
    };
    assert_eq!(consumer.command(Command::RibRegister, &route).code, 200);
    consumer.send(&interest("/far/1"));
    producer.receive().interest();
    let content: Vec<u8> = (0..8000).map(|i| i as u8).collect();
    producer.send(&data("/far/1", &content));
    assert_eq!(content_of(&consumer.receive().data()), content);
    let snapshot = near.snapshot();
    let udp = snapshot.faces.iter().find(|found| found.id == face).unwrap();
    assert_eq!(udp.counters.reassembled, 1);
    assert!(udp.counters.in_frames > 16, "{udp:#?}");
}

#[test]
fn tcp_peers_consume_and_produce() {
    let router = TestRouter::start();
    let mut producer = router.tcp();
    // Loopback TCP has local scope, so it has access to management.
    producer.register("/t");
    let mut consumer = router.tcp();
    for i in 0..3 {
        let uri = format!("/t/{i}");
        consumer.send(&interest(&uri));
        assert_eq!(name_of(&producer.receive().interest()), uri);
        producer.send(&data(&uri, uri.as_bytes()));
        assert_eq!(content_of(&consumer.receive().data()), uri.as_bytes());
    }
}

#[test]
fn localhost_is_closed_to_udp() {
    let router = TestRouter::start();
    let peer = router.udp();
    peer.socket.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    let parameters =
        ControlParameters { name: Some(name("/evil")), ..ControlParameters::default() };
    peer.send(&weir_io_fixture::router::command_interest(Command::RibRegister, &parameters));
    assert!(peer.socket.recv(&mut [0; 9000]).is_err(), "no answer at all");
    router.wait_until("a scope drop", |snapshot| {
        snapshot.router.drops[weir_forward::DropReason::Scope as usize] == 1
    });
}

#[test]
fn creates_updates_destroys_faces() {
    let router = TestRouter::start();
    let mut peer = router.unix();
    let parameters = create_face("udp4://127.0.0.1:9", FacePersistency::Persistent);
    let made = peer.command(Command::FacesCreate, &parameters);
    assert_eq!(made.code, 200, "{made:?}");
    let face = made.body.unwrap().face_id;
    let again = peer.command(Command::FacesCreate, &parameters);
    assert_eq!((again.code, again.body.unwrap().face_id), (409, face));

    let update = ControlParameters {
        face_id: face,
        face_persistency: Some(FacePersistency::Permanent),
        ..ControlParameters::default()
    };
    assert_eq!(peer.command(Command::FacesUpdate, &update).code, 200);
    let destroy = ControlParameters { face_id: face, ..ControlParameters::default() };
    assert_eq!(peer.command(Command::FacesDestroy, &destroy).code, 200);
    assert_eq!(peer.command(Command::FacesUpdate, &update).code, 404);
    assert_eq!(router.snapshot().faces.len(), 1);
}

#[test]
fn absent_tcp_peer_is_504() {
    let router = TestRouter::start();
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut peer = router.unix();
    let parameters = create_face(&format!("tcp4://{closed}"), FacePersistency::Persistent);
    let response = peer.command(Command::FacesCreate, &parameters);
    assert_eq!(response.code, 504, "{response:?}");
}

#[test]
fn permanent_tcp_face_reconnects() {
    let router = TestRouter::start();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let uri = format!("tcp4://{}", listener.local_addr().unwrap());
    let mut peer = router.unix();
    let parameters = create_face(&uri, FacePersistency::Permanent);
    peer.send(&weir_io_fixture::router::command_interest(Command::FacesCreate, &parameters));
    let (first, _) = listener.accept().unwrap();
    let face = response_of(&peer.receive().data()).body.unwrap().face_id;
    let route = ControlParameters {
        name: Some(name("/far")),
        face_id: face,
        ..ControlParameters::default()
    };
    assert_eq!(peer.command(Command::RibRegister, &route).code, 200);
    drop(first);
    let id = face.unwrap();
    router.wait_until("the face is down", |snapshot| {
        snapshot.faces.iter().any(|face| face.id == id && !face.up)
    });
    let (second, _) = listener.accept().unwrap();
    let mut far = Peer::new(second);
    router.wait_until("the face is up", |snapshot| {
        snapshot.faces.iter().any(|face| face.id == id && face.up)
    });
    peer.send(&interest("/far/x"));
    assert_eq!(name_of(&far.receive().interest()), "/far/x");
}

/// Two links between two machines; one of them has a face to each address of the other.
#[test]
fn static_faces_join_two_routers() {
    let far = TestRouter::start();
    let mut producer = far.unix();
    producer.register("/far");
    for scheme in ["udp4", "tcp4"] {
        let address = far.address(scheme);
        let near = TestRouter::start_with(|config| {
            config.static_faces = vec![StaticFace {
                uri: format!("{}://localhost:{}", &scheme[..3], address.port()),
                permanent: true,
                routes: vec![(name("/"), 0)],
                ..StaticFace::default()
            }];
        });
        near.wait_until("the face is there", |snapshot| {
            !snapshot.faces.is_empty() && snapshot.router.fib_entries >= 3
        });
        let mut consumer = near.unix();
        let uri = format!("/far/{scheme}");
        consumer.send(&interest(&uri));
        producer.receive().interest();
        producer.send(&data(&uri, b"across"));
        assert_eq!(content_of(&consumer.receive().data()), b"across");
        // The far router answers only names for which it has a route.
        consumer.send(&interest("/elsewhere"));
        assert_eq!(consumer.receive().nack(), NackReason::NoRoute);
    }
}

/// Two routers with reliable faces, and a neighbour on a plain socket that loses packets.
#[test]
fn lost_frames_are_sent_again() {
    let far = TestRouter::start_with(|config| {
        config.face_defaults.reliability = true;
        config.face_defaults.udp_mtu = Some(1420);
    });
    let mut producer = far.unix();
    producer.register("/far");
    let deaf = UdpSocket::bind("127.0.0.1:0").unwrap();
    deaf.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    let neighbours = [(far.address("udp4"), "/far"), (deaf.local_addr().unwrap(), "/deaf")];
    let near = TestRouter::start_with(|config| {
        let faces = neighbours.iter().map(|(address, prefix)| StaticFace {
            uri: format!("udp4://{address}"),
            permanent: true,
            mtu: Some(1420),
            reliability: Some(true),
            routes: vec![(name(prefix), 0)],
            ..StaticFace::default()
        });
        config.static_faces = faces.collect();
    });
    near.wait_until("the faces are there", |snapshot| {
        snapshot.faces.len() == 2 && snapshot.router.fib_entries >= 4
    });
    let mut consumer = near.unix();
    consumer.send(&interest("/far/1"));
    producer.receive().interest();
    producer.send(&data("/far/1", &[7; 8000]));
    assert_eq!(content_of(&consumer.receive().data()), [7; 8000]);
    // The Interest, and the fragments of the Data.
    near.wait_until("the far router acknowledges", |snapshot| {
        snapshot.faces.iter().any(|face| face.counters.acknowledged == 1)
    });
    far.wait_until("the near router acknowledges", |snapshot| {
        snapshot.faces.iter().any(|face| face.counters.acknowledged == 6)
    });

    consumer.send(&interest("/deaf/1"));
    let mut datagram = [0; 2000];
    let mut frame = || {
        let (len, from) = deaf.recv_from(&mut datagram).unwrap();
        (LpView::decode(&datagram[..len]).unwrap().framing, from)
    };
    let ((first, _), (second, router)) = (frame(), frame());
    assert_eq!(first.sequence, second.sequence);
    assert_eq!((first.tx_sequence, second.tx_sequence), (Some(0), Some(1)));
    let framing = LpFraming { sequence: Some(8), tx_sequence: Some(9), ..LpFraming::BARE };
    // The acknowledgements of everything that may have been sent by now.
    let answer = data("/deaf/1", b"heard");
    let answer = LpHeader::default().encode(&framing, &[1, 2, 3], Some(&answer));
    deaf.send_to(&answer, router).unwrap();
    deaf.send_to(&answer, router).unwrap();
    assert_eq!(content_of(&consumer.receive().data()), b"heard");
    loop {
        let len = deaf.recv(&mut datagram).unwrap();
        let idle = LpView::decode(&datagram[..len]).unwrap();
        if idle.fragment.is_none() {
            assert!(idle.acks().all(|ack| ack == 9));
            break;
        }
    }
    near.wait_until("it is acknowledged, and a duplicate dropped", |snapshot| {
        let mut counters = snapshot.faces.iter().map(|face| &face.counters);
        let duplicates = |it: &LinkCounters| it.drops[LinkDrop::SequenceDuplicate];
        counters.any(|it| (it.acknowledged, duplicates(it)) == (1, 1))
    });
}

/// Sends an Interest, or receives packets.
type Consumer<'a> = &'a mut dyn FnMut(Option<&str>) -> Option<ReceivedPacket>;

/// Of 20 Interests at once, 11 request what fits into the consumer's queue (at first, 8192 bytes
/// are expected for each), 5 may wait, and 4 are refused.
fn exceed_face_quota(kind: &str, consumer: Consumer<'_>, producer: &mut Peer<UnixStream>) {
    let names: Vec<String> = (0..20).map(|number| format!("/p/{kind}/{number}")).collect();
    for name in &names {
        consumer(Some(name));
    }
    let mut asked = Vec::new();
    for answered in [0..11, 11..16] {
        for _ in answered.clone() {
            asked.push(name_of(&producer.receive().interest()));
        }
        for name in &names[answered] {
            producer.send(&data(name, b"x"));
        }
    }
    assert_eq!(asked, names[..16], "{kind}");
    for _ in 16..20 {
        assert_eq!(consumer(None).unwrap().nack(), NackReason::Congestion, "{kind}");
    }
    for _ in 0..16 {
        consumer(None).unwrap().data();
    }
}

#[test]
fn shaping_holds_interests_for_queue() {
    let shaping = "fisp capacity=100000 gamma=1 held_max=5";
    let router = TestRouter::start_with(|config| {
        config.face_defaults.shaping = shaping.parse().unwrap();
    });
    let mut producer = router.unix();
    producer.register("/p");
    let (mut unix, mut tcp, udp) = (router.unix(), router.tcp(), router.udp());
    let unix: Consumer<'_> = &mut |name| match name {
        Some(name) => (unix.send(&interest(name)), None).1,
        None => Some(unix.receive()),
    };
    let tcp: Consumer<'_> = &mut |name| match name {
        Some(name) => (tcp.send(&interest(name)), None).1,
        None => Some(tcp.receive()),
    };
    let udp: Consumer<'_> = &mut |name| match name {
        Some(name) => (udp.send(&interest(name)), None).1,
        None => Some(udp.receive()),
    };
    for (kind, consumer) in [("unix", unix), ("tcp", tcp), ("udp", udp)] {
        exceed_face_quota(kind, consumer, &mut producer);
    }
    let faces = router.snapshot().faces;
    let sum = |count: fn(&LinkCounters) -> u64| {
        faces.iter().map(|face| count(&face.counters)).sum::<u64>()
    };
    assert_eq!(sum(|counters| counters.interests_held), 15);
    assert_eq!(sum(|counters| counters.interests_released), 15);
    assert_eq!(sum(|counters| counters.drops[LinkDrop::ShapingFull]), 12);
}

#[test]
fn idle_udp_faces_close() {
    let router = TestRouter::start_with(|config| {
        config.face_defaults.idle_timeout = Duration::from_millis(100);
    });
    let peer = router.udp();
    peer.send(&interest("/a"));
    assert_eq!(peer.receive().nack(), NackReason::NoRoute);
    assert_eq!(router.snapshot().faces.len(), 1);
    router.wait_until("the face is closed", |snapshot| snapshot.faces.is_empty());
    // Its next packet creates another face.
    peer.send(&interest("/a"));
    assert_eq!(peer.receive().nack(), NackReason::NoRoute);
}

#[test]
fn incoming_face_needs_local_fields() {
    let router = TestRouter::start();
    let (mut producer, mut consumer) = (router.unix(), router.unix());
    producer.register("/a");
    consumer.send(&interest("/a/1"));
    let ReceivedPacket::Interest { header, .. } = producer.receive() else { panic!("an Interest") };
    assert_eq!(header.incoming_face, None);
    let update =
        ControlParameters { flags: Some(1), mask: Some(1), ..ControlParameters::default() };
    let response = producer.command(Command::FacesUpdate, &update);
    assert_eq!(response.code, 200, "{response:?}");
    consumer.send(&interest("/a/2"));
    let frame = producer.try_frame().unwrap().unwrap();
    assert!(LpView::decode(&frame).unwrap().header.incoming_face.is_some());
}
