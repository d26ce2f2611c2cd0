//! Peers that misbehave, and very large numbers of peers.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};
use weir_io_fixture::wait_until;

use socket2::{Domain, Type};
use weir_face::steered_to;
use weir_io_fixture::TEST_TIMEOUT;
use weir_io_fixture::router::{Peer, TestRouter, data, interest, name, run_in_network_namespace};
use weir_link::LinkDrop;
use weir_runtime::Listener;
use weir_wire::{Interest, LpFraming, LpHeader, NackReason};

fn link_drops(router: &TestRouter, reason: LinkDrop) -> u64 {
    let snapshot = router.snapshot();
    snapshot.link_drops.iter().find(|(found, _)| *found == reason).map_or(0, |(_, n)| *n)
}

fn runtime_drops(router: &TestRouter, reason: &str) -> u64 {
    let snapshot = router.snapshot();
    snapshot.runtime_drops.iter().find(|(found, _)| *found == reason).map_or(0, |(_, n)| *n)
}

#[test]
fn stuck_peer_costs_one_bounded_queue() {
    let queue_bytes_max = 256 << 10;
    let router = TestRouter::start_with(|config| {
        config.face_defaults.queue_bytes_max = queue_bytes_max;
        config.pit_entries_max = 100_000;
        config.pit_entries_per_face_max = 100_000;
    });
    let (mut producer, mut deaf) = (router.unix(), router.unix());
    producer.register("/big");
    let content = vec![1; 8000];
    for i in 0..1000 {
        let uri = format!("/big/{i}");
        deaf.send(&interest(&uri));
        producer.receive().interest();
        producer.send(&data(&uri, &content));
    }
    router.wait_until("drops at the bound", |snapshot| {
        snapshot.link_drops.iter().any(|&(reason, n)| reason == LinkDrop::QueueFull && n > 100)
    });
    let snapshot = router.snapshot();
    let fullest = snapshot.faces.iter().map(|face| face.queue_bytes).max().unwrap();
    assert!(fullest <= queue_bytes_max as u64, "{fullest}");
    // Others are served as usual.
    let mut other = router.unix();
    other.send(&interest("/big/5"));
    other.receive().data();
    // When the peer finally reads, it gets what was queued for it.
    deaf.receive().data();
}

/// The minimum memory of one worker thread: 2 MiB of egress queues, 1 MiB of reassembly, and 1 MiB
/// of incomplete packets on connections.
const MEMORY_BYTES: u64 = 16 << 20;

#[test]
fn stuck_peers_share_one_memory_limit() {
    let router = TestRouter::start_with(|config| config.memory_bytes_max = MEMORY_BYTES);
    let mut producer = router.unix();
    producer.register("/big");
    let mut deaf: Vec<_> = (0..24).map(|_| router.unix()).collect();
    let content = vec![1; 8000];
    for i in 0..400 {
        let uri = format!("/big/{i}");
        deaf[0].send(&interest(&uri));
        producer.receive().interest();
        producer.send(&data(&uri, &content));
        for peer in &mut deaf[1..] {
            peer.send(&interest(&uri));
        }
    }
    router.wait_until("the longest queues were cut", |snapshot| {
        let waiting: u64 = snapshot.faces.iter().map(|face| face.queue_bytes).sum();
        assert!(waiting <= MEMORY_BYTES / 8, "{waiting}");
        snapshot.router.in_interests as usize >= 400 * deaf.len()
            && link_drops(&router, LinkDrop::EgressMemory) > 100
    });
    // A reading peer is served from the same store.
    let mut other = router.unix();
    for i in 0..400 {
        other.send(&interest(&format!("/big/{i}")));
        other.receive().data();
    }
    // When a stalled peer finally reads, it gets whole packets in order.
    let numbers = (0..100).map(|_| weir_io_fixture::router::name_of(&deaf[7].receive().data()));
    assert!(numbers.eq((0..100).map(|i| format!("/big/{i}"))));
    assert_eq!(runtime_drops(&router, "face-stalled"), 0);
}

#[test]
fn stuck_connection_is_closed() {
    let router = TestRouter::start_with(|config| {
        // Longer than the following steps on a busy machine.
        config.face_defaults.stall_timeout = Duration::from_secs(3);
    });
    let mut producer = router.unix();
    producer.register("/big");
    let (mut deaf, mut idle) = (router.tcp(), router.tcp());
    idle.send(&interest("/nowhere"));
    idle.receive().nack();
    let content = vec![1; 8000];
    for i in 0..2000 {
        let uri = format!("/big/{i}");
        deaf.send(&interest(&uri));
        producer.receive().interest();
        producer.send(&data(&uri, &content));
    }
    router.wait_until("it is closed", |_| runtime_drops(&router, "face-stalled") == 1);
    // A connection without queued packets may stay silent without a limit.
    idle.send(&interest("/nowhere"));
    idle.receive().nack();
    assert_eq!(router.snapshot().faces.len(), 2);
}

#[test]
fn partial_packets_share_one_memory_limit() {
    let fragment = |id: u64, index: u64, count: u64, octets: &[u8]| {
        let framing = LpFraming {
            sequence: Some(id + index),
            frag_index: index,
            frag_count: count,
            ..LpFraming::BARE
        };
        LpHeader::default().encode(&framing, &[], Some(octets))
    };
    let router = TestRouter::start_with(|config| config.memory_bytes_max = MEMORY_BYTES);
    // Each of these claims a buffer for the largest packet.
    let peers: Vec<_> = (0..40).map(|_| router.udp()).collect();
    for id in 0..10 {
        for peer in &peers {
            peer.send(&fragment(1000 * id, 0, 400, &[6; 30]));
        }
    }
    router.wait_until("the oldest packets were discarded", |_| {
        link_drops(&router, LinkDrop::ReassemblyFull) > 100
    });
    let honest = router.udp();
    let whole = interest("/a/name/in/two/fragments");
    let (first, rest) = whole.split_at(10);
    honest.send(&fragment(70, 0, 2, first));
    honest.send(&fragment(70, 1, 2, rest));
    assert_eq!(honest.receive().nack(), NackReason::NoRoute);
}

#[test]
fn partial_reads_share_one_memory_limit() {
    let router = TestRouter::start_with(|config| config.memory_bytes_max = MEMORY_BYTES);
    let packet = data("/x", &[1; 8000]);
    let mut peers: Vec<_> = (0..200).map(|_| router.tcp()).collect();
    for peer in &mut peers {
        peer.send(&packet[..8000]);
    }
    router.wait_until("some faces were evicted", |_| runtime_drops(&router, "face-displaced") > 50);
    let mut honest = router.tcp();
    let whole = interest("/a/name/in/two/pieces");
    honest.send(&whole[..10]);
    std::thread::sleep(Duration::from_millis(20));
    honest.send(&whole[10..]);
    assert_eq!(honest.receive().nack(), NackReason::NoRoute);
}

#[test]
fn stream_closes_only_on_lost_framing() {
    let router = TestRouter::start();
    let mut peer = router.unix();
    // A malformed Interest with valid framing is counted, and the face stays.
    peer.send(&[5, 2, 7, 0]);
    peer.send(&[100, 3, 80, 1, 9]);
    peer.send(&interest("/a"));
    assert_eq!(peer.receive().nack(), NackReason::NoRoute);
    let snapshot = router.snapshot();
    assert_eq!(snapshot.router.drops[weir_forward::DropReason::Malformed as usize], 1);
    assert_eq!(snapshot.router.malformed.values().sum::<u64>(), 1);

    for garbage in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[5, 253, 255, 255], &[255; 64]] {
        let mut peer = router.unix();
        peer.send(garbage);
        assert!(peer.try_frame().is_ok_and(|frame| frame.is_none()), "closed");
    }
    router.wait_until("only the first face is left", |snapshot| snapshot.faces.len() == 1);
    assert_eq!(runtime_drops(&router, "framing-lost"), 3);
}

#[test]
fn a_packet_in_single_octets_is_a_packet() {
    let router = TestRouter::start();
    let mut peer = router.unix();
    for octet in interest("/slow") {
        peer.socket.write_all(&[octet]).unwrap();
    }
    assert_eq!(peer.receive().nack(), NackReason::NoRoute);
}

#[test]
fn udp_garbage_is_counted() {
    let router = TestRouter::start();
    let peer = router.udp();
    for garbage in [&b"hello"[..], &[5, 200, 1], &[6], &[100, 2, 80], &[0; 1500]] {
        peer.send(garbage);
    }
    router.wait_until("five datagrams from a stranger", |_| {
        runtime_drops(&router, "stranger-malformed") == 5
    });
    assert!(router.snapshot().faces.is_empty(), "garbage makes no face");
    peer.send(&interest("/a"));
    assert_eq!(peer.receive().nack(), NackReason::NoRoute);
    for garbage in [&b"hello"[..], &[100, 3, 80, 1, 9]] {
        peer.send(garbage);
    }
    peer.send(&interest("/a"));
    assert_eq!(peer.receive().nack(), NackReason::NoRoute);
    assert_eq!(router.snapshot().faces.len(), 1);
    let counted =
        link_drops(&router, LinkDrop::Malformed) + link_drops(&router, LinkDrop::NotNetworkPacket);
    assert_eq!(counted, 2);
}

#[test]
fn over_a_thousand_faces() {
    let router = TestRouter::start();
    let mut producer = router.unix();
    producer.register("/n");
    let mut peers: Vec<_> = (0..1200).map(|_| router.unix()).collect();
    let udp: Vec<UdpSocket> = (0..200).map(|_| UdpSocket::bind("127.0.0.1:0").unwrap()).collect();
    for socket in &udp {
        socket.connect(router.address("udp4")).unwrap();
        socket.send(&interest("/none")).unwrap();
    }
    router.wait_until("all faces", |snapshot| snapshot.faces.len() == 1401);
    for (index, peer) in peers.iter_mut().enumerate() {
        peer.send(&interest(&format!("/n/{index}")));
    }
    for _ in 0..peers.len() {
        let asked = producer.receive().interest();
        producer.send(&data(&weir_io_fixture::router::name_of(&asked), b"x"));
    }
    for (index, peer) in peers.iter_mut().enumerate() {
        let got = peer.receive().data();
        assert_eq!(weir_io_fixture::router::name_of(&got), format!("/n/{index}"));
    }
    drop(peers);
    router.wait_until("their end", |snapshot| snapshot.faces.len() == 201);
    router.stop();
}

/// Interests with lifetimes of minutes, from very many ports of one host, below a prefix whose
/// producer is silent.
#[test]
fn pit_flood_spares_other_faces() {
    let router = TestRouter::start_with(|config| {
        config.threads = 3;
        config.pit_entries_max = 600;
    });
    let mut silent = router.unix();
    silent.register("/silent");
    let attackers: Vec<_> = (0..20).map(|_| router.udp_from([127, 0, 0, 2])).collect();
    let pit_full = weir_forward::DropReason::PitFull as usize;
    for round in 0.. {
        for (index, attacker) in attackers.iter().enumerate() {
            for number in 0..10 {
                let name = name(&format!("/silent/{round}/{index}/{number}"));
                let interest = Interest::new(name).nonce(round).lifetime_ms(600_000);
                attacker.send(&interest.encode());
            }
        }
        // Every shard has reached its limit.
        if router.snapshot().router.drops[pit_full] > 1000 {
            break;
        }
        assert!(round < 1000, "the PIT takes no end of Interests");
    }
    let (mut producer, mut local) = (router.unix(), router.unix());
    producer.register("/honest");
    let neighbour = router.udp_from([127, 0, 0, 3]);
    for number in 0..30 {
        for is_local in [true, false] {
            let uri = format!("/honest/{number}/{is_local}");
            match is_local {
                true => local.send(&interest(&uri)),
                false => neighbour.send(&interest(&uri)),
            }
            assert_eq!(weir_io_fixture::router::name_of(&producer.receive().interest()), uri);
            producer.send(&data(&uri, b"x"));
            let got = if is_local { local.receive() } else { neighbour.receive() };
            assert_eq!(weir_io_fixture::router::name_of(&got.data()), uri);
        }
    }
    let snapshot = router.snapshot();
    assert!(snapshot.router.displaced > 0);
    assert!(snapshot.router.pit_entries <= 600);
    router.stop();
}

#[test]
fn excess_faces_are_refused_and_counted() {
    let router = TestRouter::start_with(|config| config.faces.faces_max = 3);
    let kept: Vec<_> = (0..3).map(|_| router.unix()).collect();
    router.wait_until("three faces", |snapshot| snapshot.faces.len() == 3);
    let mut refused = router.unix();
    assert!(refused.try_frame().unwrap().is_none());
    assert_eq!(runtime_drops(&router, "connection-refused"), 1);
    // Local applications use no quota of remote peers.
    let unknown = router.udp();
    unknown.send(&interest("/a"));
    assert_eq!(unknown.receive().nack(), NackReason::NoRoute);
    drop(kept);
    router.wait_until("room again", |snapshot| snapshot.faces.len() == 1);
    let mut peer = router.unix();
    peer.send(&interest("/a"));
    assert_eq!(peer.receive().nack(), NackReason::NoRoute);
}

/// Sends until the router has answered once. Peers that are idle for a second can be evicted.
fn is_answered_in_the_end(router: &TestRouter, address: [u8; 4]) {
    let peer = router.udp_from(address);
    peer.socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    let deadline = Instant::now() + TEST_TIMEOUT;
    loop {
        peer.send(&interest("/a"));
        if peer.socket.recv(&mut [0; 1500]).is_ok() {
            return;
        }
        assert!(Instant::now() < deadline, "{address:?} is never answered");
    }
}

#[test]
fn host_with_many_ports_evicts_its_own_faces() {
    [1, 4].into_iter().for_each(one_host_with_many_ports);
}

fn one_host_with_many_ports(threads: usize) {
    const FLOODER: [u8; 4] = [127, 0, 0, 2];
    let router = TestRouter::start_with(|config| {
        config.threads = threads;
        config.faces.faces_max = 12;
        config.faces.per_host_max = 8;
    });
    let ports: Vec<_> = (0..40).map(|_| router.udp_from(FLOODER)).collect();
    for port in &ports {
        port.send(&interest("/a"));
    }
    router.wait_until("some refused", |_| runtime_drops(&router, "stranger-refused") > 0);
    assert!(router.snapshot().faces.len() <= 8);
    let other = router.udp_from([127, 0, 0, 3]);
    other.send(&interest("/a"));
    assert_eq!(other.receive().nack(), NackReason::NoRoute);
    let mut local = router.unix();
    local.send(&interest("/a"));
    assert_eq!(local.receive().nack(), NackReason::NoRoute);
    // The host itself is locked out only briefly.
    is_answered_in_the_end(&router, FLOODER);
    assert!(router.snapshot().faces.len() <= 10);
}

#[test]
fn full_table_evicts_idle_peers() {
    let router = TestRouter::start_with(|config| config.faces.faces_max = 4);
    let used = router.udp_from([127, 0, 1, 1]);
    let use_it = || {
        used.send(&interest("/a"));
        assert_eq!(used.receive().nack(), NackReason::NoRoute);
    };
    for host in 2..8 {
        use_it();
        use_it();
        is_answered_in_the_end(&router, [127, 0, host, 1]);
    }
    let snapshot = router.snapshot();
    assert_eq!(snapshot.faces.len(), 4);
    // If the face had been evicted, its counters would have restarted.
    let kept = snapshot.faces.iter().find(|face| face.uri.contains("//127.0.1.1:"));
    assert!(kept.is_some_and(|face| face.counters.in_interests == 12), "{snapshot:#?}");
}

/// The faces that fill the table belong to another worker thread than the new peer.
#[test]
fn threads_evict_for_each_other() {
    const THREADS: usize = 3;
    let router = TestRouter::start_with(|config| {
        config.threads = THREADS;
        config.faces.faces_max = 4;
    });
    let of_thread = |thread, host| {
        std::iter::repeat_with(|| router.udp_from([127, 0, host, 1]))
            .find(|peer| steered_to(peer.socket.local_addr().unwrap(), THREADS) == thread)
            .unwrap()
    };
    let silent: Vec<_> = (2..6).map(|host| of_thread(0, host)).collect();
    for peer in &silent {
        peer.send(&interest("/a"));
        assert_eq!(peer.receive().nack(), NackReason::NoRoute);
    }
    let peer = of_thread(2, 9);
    peer.socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    let deadline = Instant::now() + TEST_TIMEOUT;
    while {
        peer.send(&interest("/a"));
        peer.socket.recv(&mut [0; 1500]).is_err()
    } {
        assert!(Instant::now() < deadline, "it answers");
    }
    let snapshot = router.snapshot();
    assert!(snapshot.faces.len() <= 4, "{snapshot:#?}");
}

#[test]
fn metrics_count_all_attacks() {
    let router = TestRouter::start_with(|config| {
        config.metrics = Some("127.0.0.1:0".parse().unwrap());
    });
    let mut peer = router.unix();
    peer.send(&interest("/a"));
    peer.receive().nack();
    let mut http = TcpStream::connect(router.handle().metrics_address().unwrap()).unwrap();
    http.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
    let mut text = String::new();
    http.read_to_string(&mut text).unwrap();
    assert!(text.starts_with("HTTP/1.1 200"), "{text}");
    assert!(text.contains("direction=\"in\",kind=\"interest\"} 1"), "{text}");
    assert!(text.contains("weir_store_misses_total 1"), "{text}");
    // A client that does not accept OpenMetrics gets the plain text format.
    assert!(text.contains("Content-Type: text/plain; version=0.0.4"), "{text}");
    assert!(text.contains("# TYPE weir_store_misses_total counter"), "{text}");
    router.stop();
}

/// More scrapers than the limit on connections. Some request more than the buffers of both sides
/// hold, some send nothing.
#[test]
fn stalled_scrapers_block_no_other() {
    let router = TestRouter::start_with(|config| {
        config.metrics = Some("127.0.0.1:0".parse().unwrap());
    });
    let address = router.handle().metrics_address().unwrap();
    let request =
        b"GET /metrics HTTP/1.1\r\nHost: x\r\nAccept: application/openmetrics-text\r\n\r\n";
    let stuck: Vec<_> = (0..40)
        .map(|number| {
            let mut http = TcpStream::connect(address).unwrap();
            if number % 2 == 0 {
                // The server may have answered and closed the connection.
                let _ = http.write_all(&request.repeat(4000));
            }
            http
        })
        .collect();
    for _ in 0..20 {
        let mut other = TcpStream::connect(address).unwrap();
        other.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
        other.write_all(request).unwrap();
        let mut text = String::new();
        other.read_to_string(&mut text).unwrap();
        assert!(text.starts_with("HTTP/1.1 200"), "{text}");
        assert!(text.ends_with("# EOF\n"), "the whole answer: {text}");
    }
    let begun = Instant::now();
    router.stop();
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    drop(stuck);
}

#[test]
fn tcp_peers_evict_only_own_host() {
    if !run_in_network_namespace("tcp_peers_among_hosts") {
        eprintln!("NOT tested with TCP peers of other hosts: no network namespace can be made");
    }
}

#[test]
#[ignore = "tcp_peers_evict_only_own_host runs it in a network namespace"]
fn tcp_peers_among_hosts() {
    let router = TestRouter::start_with(|config| {
        config.faces.per_host_max = 8;
        let address = "10.1.0.1:0".parse().unwrap();
        config.listeners.retain(|listener| !matches!(listener, Listener::Tcp { .. }));
        config.listeners.push(Listener::Tcp { address, required: true });
    });
    let connect = |host: u8| {
        let socket = socket2::Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.bind(&SocketAddr::from(([10, 1, host, 1], 0)).into()).unwrap();
        socket.connect(&router.address("tcp4").into()).unwrap();
        socket.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
        Peer::new(TcpStream::from(socket))
    };
    let is_answered = |peer: &mut Peer<TcpStream>| {
        peer.socket.write_all(&interest("/a")).is_ok() && matches!(peer.try_frame(), Ok(Some(_)))
    };
    let many: Vec<_> = (0..40).map(|_| connect(2)).collect();
    router.wait_until("some refused", |_| runtime_drops(&router, "connection-refused") >= 32);
    assert_eq!(router.snapshot().faces.len(), 8);
    assert!(is_answered(&mut connect(3)), "another host");
    let mut local = router.unix();
    local.send(&interest("/a"));
    assert_eq!(local.receive().nack(), NackReason::NoRoute);
    // The host itself is locked out only briefly: idle faces are evicted.
    wait_until("it answers", || is_answered(&mut connect(2)));
    assert!(runtime_drops(&router, "face-displaced") > 0);
    assert!(router.snapshot().faces.len() <= 10);
    drop(many);
}

/// A flood from one peer does not starve another.
#[test]
fn a_flood_does_not_starve_others() {
    let router = TestRouter::start();
    let mut flood = router.unix();
    flood.socket.set_nonblocking(true).unwrap();
    let burst: Vec<u8> = (0..200).flat_map(|i| interest(&format!("/flood/{i}"))).collect();
    let mut quiet = router.unix();
    let end = Instant::now() + Duration::from_millis(300);
    let mut slowest = Duration::ZERO;
    let mut scratch = vec![0; 1 << 20];
    while Instant::now() < end {
        for _ in 0..4 {
            match flood.socket.write(&burst) {
                Err(error) if error.kind() != ErrorKind::WouldBlock => panic!("{error}"),
                _ => {}
            }
            let _ = flood.socket.read(&mut scratch);
        }
        let sent = Instant::now();
        quiet.send(&interest("/quiet"));
        quiet.receive().nack();
        slowest = slowest.max(sent.elapsed());
    }
    assert!(slowest < Duration::from_secs(1), "{slowest:?}");
}
