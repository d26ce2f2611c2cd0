//! UDP ports over loopback, with and without offload and multi-message calls.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant as Clock};

use weir_base::{Instant, Packet, Pool};
use weir_face::{
    Datagram, FramesSent, LocalAddress, RecvStatus, SendStatus, UdpOptions, UdpPath, UdpPort,
    source_toward, steered_to, udp_local_toward, udp_mtu_default,
};
use weir_io_fixture::face::{data, link_with, packets_of};
use weir_link::{Link, LinkConfig, LinkDrop};
use weir_wire::lp::{LpHeader, PitToken};

const ANY_V4: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
const ANY_V6: SocketAddr = SocketAddr::new(std::net::IpAddr::V6(Ipv6Addr::LOCALHOST), 0);

fn all_options() -> Vec<UdpOptions> {
    let mut all = Vec::new();
    for (offload, batch) in [(true, true), (true, false), (false, true), (false, false)] {
        all.push(UdpOptions { offload, batch, ..UdpOptions::default() });
    }
    all
}

fn receive(port: &mut UdpPort, pool: &mut Pool, count: usize) -> Vec<Datagram> {
    let mut datagrams = Vec::new();
    let end = Clock::now() + Duration::from_secs(10);
    while datagrams.len() < count {
        assert!(Clock::now() < end, "{} of {count} came; {port:?}", datagrams.len());
        port.recv(pool, &mut datagrams).unwrap();
    }
    datagrams
}

fn frames(datagrams: Vec<Datagram>) -> Vec<Packet> {
    datagrams.into_iter().map(|datagram| datagram.frame).collect()
}

/// Runs of equal sizes, single datagrams, and mixed sizes: everything arrives unchanged and in
/// order.
#[test]
fn every_mode_delivers_datagrams() {
    let equal = |len| (0..300).map(|index| data(len, index)).collect::<Vec<_>>();
    let mixed: Vec<Packet> =
        (0..300).map(|index| data(2 + (index * index * 37) % 8700, index)).collect();
    for sending in all_options() {
        for receiving in all_options() {
            for packets in [equal(40), equal(1400), equal(8000), mixed.clone()] {
                for any in addresses() {
                    let mut near = UdpPort::bind(any, &sending).unwrap();
                    let mut far = UdpPort::bind(any, &receiving).unwrap();
                    let arrived = exchange(&mut near, &mut far, &packets, 8800);
                    assert!(
                        arrived.iter().all(|datagram| datagram.path.remote == near.local_addr())
                    );
                    assert!(packets_of(frames(arrived)) == packets, "{sending:?} {receiving:?}");
                    assert_eq!(far.counters().receive_overflows, 0);
                }
            }
        }
    }
}

/// Loopback addresses of the families that this machine has.
fn addresses() -> impl Iterator<Item = SocketAddr> {
    [ANY_V4, ANY_V6].into_iter().filter(|any| UdpSocket::bind(any).is_ok())
}

/// Sends all packets, at a time as many as the smallest usual receive buffer holds.
fn exchange(
    near: &mut UdpPort,
    far: &mut UdpPort,
    packets: &[Packet],
    mtu: usize,
) -> Vec<Datagram> {
    let mut pool = Pool::new(8 << 20);
    let largest = packets.iter().map(|packet| packet.len()).max().unwrap();
    let mut arrived = Vec::new();
    for chunk in packets.chunks((90_000 / largest).min(100)) {
        let mut link = link_with(chunk, LinkConfig::datagram(mtu));
        let count = link.frames().len();
        assert_eq!(near.send(far.local_addr().into(), &mut link).unwrap(), SendStatus::Drained);
        arrived.extend(receive(far, &mut pool, count));
    }
    arrived
}

/// ECDSA signatures have 70 to 72 bytes. Without padding, such Data would rarely form runs.
#[test]
fn pads_similar_datagrams() {
    let lengths = |packets: &[Packet], token: &[u8], offload| -> Vec<usize> {
        let far = UdpSocket::bind(ANY_V4).unwrap();
        far.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let options = UdpOptions { offload, ..UdpOptions::default() };
        let mut near = UdpPort::bind(ANY_V4, &options).unwrap();
        let mut link = link_with_tokens(packets, token);
        let sent = near.send(far.local_addr().unwrap().into(), &mut link).unwrap();
        assert_eq!(sent, SendStatus::Drained);
        let mut octets = [0; 9000];
        let datagrams: Vec<Packet> = (0..packets.len())
            .map(|_| {
                let len = far.recv(&mut octets).unwrap();
                Packet::from(&octets[..len])
            })
            .collect();
        let lengths = datagrams.iter().map(|datagram| datagram.len()).collect();
        assert!(packets_of(datagrams) == packets);
        lengths
    };
    let packets: Vec<Packet> = (0..10).map(|index| data(4000 + index % 3, index)).collect();
    let header = 4 + 2 + 5 + 4;
    let as_they_are = [4000, 4001, 4002].map(|len| len + header);
    assert_eq!(lengths(&packets, b"token", false)[..3], as_they_are);
    assert_eq!(lengths(&packets, b"", true)[..3], [4000, 4001, 4002]);
    let padded = lengths(&packets, b"token", true);
    // If the system does not support runs, padding is of no use.
    assert!(padded == [4002 + header + 4; 10] || padded[..3] == as_they_are, "{padded:?}");
}

/// More frames than one call considers, and more than one call accepts.
#[test]
fn delivers_many_padded_datagrams() {
    let packets: Vec<Packet> = (0..900).map(|index| data(600 + index * 5 % 7, index)).collect();
    let mut near = UdpPort::bind(ANY_V4, &UdpOptions::default()).unwrap();
    let mut far = UdpPort::bind(ANY_V4, &UdpOptions::default()).unwrap();
    let mut link = link_with_tokens(&packets, b"token");
    assert_eq!(near.send(far.local_addr().into(), &mut link).unwrap(), SendStatus::Drained);
    let arrived = receive(&mut far, &mut Pool::new(8 << 20), packets.len());
    assert!(packets_of(frames(arrived)) == packets);
}

fn link_with_tokens(packets: &[Packet], token: &[u8]) -> Link {
    let mut config = LinkConfig::datagram(8800);
    config.egress.queue_bytes_max = 8 << 20;
    let mut link = Link::new(config);
    for packet in packets {
        let pit_token = PitToken::new(token).unwrap();
        let header = LpHeader { pit_token, ..LpHeader::default() };
        link.enqueue(Instant::ZERO, header, packet.clone()).unwrap();
    }
    link
}

#[test]
fn fragments_cross_and_are_put_together() {
    let packets: Vec<Packet> = (0..100).map(|index| data(8000, index)).collect();
    let mut near = UdpPort::bind(ANY_V4, &UdpOptions::default()).unwrap();
    let mut far = UdpPort::bind(ANY_V4, &UdpOptions::default()).unwrap();
    let arrived = exchange(&mut near, &mut far, &packets, 1420);
    assert!(arrived.len() >= 600);
    assert!(arrived.iter().all(|datagram| datagram.frame.len() <= 1420));
    assert!(packets_of(frames(arrived)) == packets);
}

#[test]
fn distinguishes_peers_of_one_port() {
    let mut pool = Pool::new(1 << 20);
    let mut port = UdpPort::bind(ANY_V4, &UdpOptions::default()).unwrap();
    let clients: Vec<UdpSocket> = (0..3).map(|_| UdpSocket::bind(ANY_V4).unwrap()).collect();
    port.add_peer(clients[0].local_addr().unwrap().into(), 300);
    port.add_peer(clients[1].local_addr().unwrap().into(), 301);
    for (index, client) in clients.iter().enumerate() {
        client.send_to(&data(50, index), port.local_addr()).unwrap();
    }
    let arrived = receive(&mut port, &mut pool, 3);
    let keys: Vec<_> = arrived.iter().map(|datagram| datagram.key).collect();
    assert_eq!(keys, [Some(300), Some(301), None]);
    for (index, datagram) in arrived.iter().enumerate() {
        assert_eq!(datagram.path.remote, clients[index].local_addr().unwrap());
        assert_eq!(datagram.frame, data(50, index));
        let mut link = link_with(&[data(60, index)], LinkConfig::datagram(1420));
        port.send(datagram.path, &mut link).unwrap();
        let (mut octets, from) = ([0; 2000], port.local_addr());
        let (len, sender) = clients[index].recv_from(&mut octets).unwrap();
        assert_eq!(sender, from);
        assert_eq!(packets_of(vec![Packet::from(&octets[..len])]), [data(60, index)]);
    }
    port.remove_peer(clients[0].local_addr().unwrap().into());
    assert_eq!(port.peer_key(clients[0].local_addr().unwrap().into()), None);
    clients[0].send_to(&data(50, 0), port.local_addr()).unwrap();
    assert_eq!(receive(&mut port, &mut pool, 1)[0].key, None);
}

#[test]
fn survives_garbage_and_oversized_datagrams() {
    let mut pool = Pool::new(1 << 20);
    for options in all_options() {
        let mut port = UdpPort::bind(ANY_V4, &options).unwrap();
        let client = UdpSocket::bind(ANY_V4).unwrap();
        client.connect(port.local_addr()).unwrap();
        for octets in [&[0xa5; 9000][..], &[], &[0; 65_507], &[0xff]] {
            client.send(octets).unwrap();
        }
        client.send(&data(50, 1)).unwrap();
        let mut arrived = Vec::new();
        while arrived.last() != Some(&data(50, 1)) {
            arrived.extend(frames(receive(&mut port, &mut pool, 1)));
        }
        let mut link = Link::new(LinkConfig::datagram(8800));
        for frame in arrived {
            link.receive(weir_base::Instant::ZERO, frame, &mut pool);
        }
        assert_eq!(link.counters().in_data, 1);
        assert!(link.counters().drops[LinkDrop::Malformed] >= 2);
    }
}

#[test]
fn unreachable_peer_does_not_close_port() {
    let mut pool = Pool::new(1 << 20);
    let mut port = UdpPort::bind(ANY_V4, &UdpOptions::default()).unwrap();
    let gone = UdpSocket::bind(ANY_V4).unwrap().local_addr().unwrap();
    let mut datagrams = Vec::new();
    for index in 0..20 {
        let mut link = link_with(&[data(50, index)], LinkConfig::datagram(1420));
        assert_eq!(port.send(gone.into(), &mut link).unwrap(), SendStatus::Drained);
        assert_eq!(port.recv(&mut pool, &mut datagrams).unwrap(), RecvStatus::Drained);
    }
    let client = UdpSocket::bind(ANY_V4).unwrap();
    client.send_to(&data(50, 7), port.local_addr()).unwrap();
    assert_eq!(receive(&mut port, &mut pool, 1)[0].frame, data(50, 7));
}

#[test]
fn refused_datagrams_are_dropped_and_counted() {
    for options in all_options() {
        let mut port = UdpPort::bind(ANY_V4, &options).unwrap();
        // The system does not send to other addresses from a loopback address.
        let nowhere: SocketAddr = ([192, 0, 2, 1], 6363).into();
        let packets: Vec<Packet> = (0..40).map(|index| data(100, index)).collect();
        let mut link = link_with(&packets, LinkConfig::datagram(1420));
        assert_eq!(port.send(nowhere.into(), &mut link).unwrap(), SendStatus::Drained);
        assert_eq!(link.counters().drops[LinkDrop::SocketRefused], 40);
        assert_eq!(port.counters().send_errors, 40);
        assert_eq!(link.counters().out_frames, 0);
    }
}

#[test]
fn a_full_receive_buffer_is_counted() {
    let options = UdpOptions { receive_buffer_bytes: 64 * 1024, ..UdpOptions::default() };
    let mut far = UdpPort::bind(ANY_V4, &options).unwrap();
    let mut near = UdpPort::bind(ANY_V4, &UdpOptions::default()).unwrap();
    let packets: Vec<Packet> = (0..500).map(|index| data(1400, index)).collect();
    let mut link = link_with(&packets, LinkConfig::datagram(1420));
    near.send(far.local_addr().into(), &mut link).unwrap();
    let mut pool = Pool::new(1 << 20);
    let mut datagrams = Vec::new();
    while far.recv(&mut pool, &mut datagrams).unwrap() == RecvStatus::More {}
    // The kernel reports the count with the next datagram that it accepts.
    let mut link = link_with(&[data(50, 0)], LinkConfig::datagram(1420));
    near.send(far.local_addr().into(), &mut link).unwrap();
    receive(&mut far, &mut pool, 1);
    assert!(datagrams.len() < 500);
    assert!(far.counters().receive_overflows > 0, "{far:?}");
}

#[test]
fn the_receive_buffer_is_large() {
    let port = UdpPort::bind(ANY_V4, &UdpOptions::default()).unwrap();
    let granted = port.receive_buffer_bytes().unwrap();
    let limit = std::fs::read_to_string("/proc/sys/net/core/rmem_max").unwrap();
    let limit: usize = limit.trim().parse().unwrap();
    assert!(granted >= limit.min(8 << 20), "{granted} of {limit}");
}

#[test]
fn local_addresses_are_those_the_peer_sees() {
    let peer = ([127, 0, 0, 1], 6363).into();
    let local = udp_local_toward(([0, 0, 0, 0], 7000).into(), peer);
    assert_eq!(local, ([127, 0, 0, 1], 7000).into());
    let bound = ([192, 0, 2, 1], 7000).into();
    assert_eq!(udp_local_toward(bound, peer), bound);
    assert_eq!(udp_mtu_default(Ipv6Addr::LOCALHOST.into()), 8800);
    assert_eq!(udp_mtu_default(Ipv4Addr::new(192, 0, 2, 1).into()), 1420);
}

/// Without a link: each frame is a datagram of its own, and refused frames are reported.
#[test]
fn every_mode_sends_frames_without_link() {
    let packets: Vec<Packet> = (0..90).map(|index| data(2 + (index / 9) * 131, index)).collect();
    for sending in all_options() {
        let mut near = UdpPort::bind(ANY_V4, &sending).unwrap();
        let mut far = UdpPort::bind(ANY_V4, &UdpOptions::default()).unwrap();
        let sent = near.send_frames(far.local_addr().into(), &packets).unwrap();
        assert_eq!(sent, FramesSent { done: 90, refused: 0, refused_bytes: 0 });
        let arrived = receive(&mut far, &mut Pool::new(1 << 20), packets.len());
        assert!(frames(arrived) == packets, "{sending:?}");
        let too_long = [Packet::from(vec![6; 65_535]), data(40, 1)];
        let sent = near.send_frames(far.local_addr().into(), &too_long).unwrap();
        assert_eq!(sent, FramesSent { done: 2, refused: 1, refused_bytes: 65_535 });
        assert_eq!(near.counters().send_errors, 1);
    }
}

#[test]
fn timestamps_are_optional() {
    let options = UdpOptions { timestamps: true, ..UdpOptions::default() };
    let mut stamping = UdpPort::bind(ANY_V4, &options).unwrap();
    let mut plain = UdpPort::bind(ANY_V4, &UdpOptions::default()).unwrap();
    let client = UdpSocket::bind(ANY_V4).unwrap();
    let mut pool = Pool::new(1 << 20);
    for index in 0..3 {
        client.send_to(&data(50, index), stamping.local_addr()).unwrap();
        client.send_to(&data(50, index), plain.local_addr()).unwrap();
    }
    let arrived = receive(&mut stamping, &mut pool, 3);
    let times: Vec<u64> = arrived.iter().map(|d| d.received_unix_ns.unwrap()).collect();
    assert!(times.is_sorted(), "{times:?}");
    assert!(times[0] / 1_000_000 <= weir_face::unix_time_ms(), "{times:?}");
    let arrived = receive(&mut plain, &mut pool, 3);
    assert!(arrived.iter().all(|datagram| datagram.received_unix_ns.is_none()));
}

/// A port bound to all addresses answers each peer from the address that the peer sent to. A
/// connected client accepts no other source.
#[test]
fn answers_from_requested_address() {
    let packets: Vec<Packet> = (0..60).map(|index| data(900, index)).collect();
    for options in all_options() {
        let all: SocketAddr = (Ipv4Addr::UNSPECIFIED, 0).into();
        let mut port = UdpPort::bind(all, &options).unwrap();
        let client = UdpSocket::bind(ANY_V4).unwrap();
        client.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        for (key, asked) in [(2, [127, 0, 0, 2]), (3, [127, 0, 0, 3])] {
            client.connect((Ipv4Addr::from(asked), port.local_addr().port())).unwrap();
            client.send(&data(50, 1)).unwrap();
            let arrived = receive(&mut port, &mut Pool::new(1 << 20), 1);
            let local = LocalAddress { ip: asked.into(), interface: 0 };
            let path = UdpPath { remote: client.local_addr().unwrap(), local: Some(local) };
            assert_eq!((arrived[0].path, arrived[0].key), (path, None));
            port.add_peer(path, key);
            client.send(&data(50, 2)).unwrap();
            let arrived = receive(&mut port, &mut Pool::new(1 << 20), 1);
            assert_eq!(arrived[0].key, Some(key), "each address has a peer of its own");
            let mut link = link_with(&packets, LinkConfig::datagram(1420));
            assert_eq!(port.send(path, &mut link).unwrap(), SendStatus::Drained);
            let sent = port.send_frames(path, &packets[..3]).unwrap();
            assert_eq!(sent.done, 3);
            let mut octets = [0; 2000];
            let mut next = || {
                let len = client.recv(&mut octets).unwrap();
                Packet::from(&octets[..len])
            };
            let arrived: Vec<Packet> = (0..packets.len()).map(|_| next()).collect();
            assert!(packets_of(arrived) == packets, "{options:?}");
            assert!([next(), next(), next()] == packets[..3], "{options:?}");
        }
    }
}

#[test]
fn ipv6_ports_report_destination_address() {
    if addresses().count() < 2 {
        return;
    }
    let all: SocketAddr = (Ipv6Addr::UNSPECIFIED, 0).into();
    let mut port = UdpPort::bind(all, &UdpOptions::default()).unwrap();
    let client = UdpSocket::bind(ANY_V6).unwrap();
    client.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    client.connect((Ipv6Addr::LOCALHOST, port.local_addr().port())).unwrap();
    client.send(&data(50, 1)).unwrap();
    let path = receive(&mut port, &mut Pool::new(1 << 20), 1)[0].path;
    let local = LocalAddress { ip: Ipv6Addr::LOCALHOST.into(), interface: 0 };
    assert_eq!(path.local, Some(local));
    let mut link = link_with(&[data(50, 2), data(50, 3)], LinkConfig::datagram(1420));
    assert_eq!(port.send(path, &mut link).unwrap(), SendStatus::Drained);
    let mut octets = [0; 100];
    let mut next = || {
        let len = client.recv(&mut octets).unwrap();
        Packet::from(&octets[..len])
    };
    assert!(packets_of(vec![next(), next()]) == [data(50, 2), data(50, 3)]);
}

/// A peer whose local address the system chooses is found by datagrams to that address. Datagrams
/// to another address belong to another peer.
#[test]
fn routed_peer_is_known_at_route_address() {
    let all: SocketAddr = (Ipv4Addr::UNSPECIFIED, 0).into();
    let mut port = UdpPort::bind(all, &UdpOptions::default()).unwrap();
    let peer = UdpSocket::bind(ANY_V4).unwrap();
    let remote = peer.local_addr().unwrap();
    assert_eq!(source_toward(remote).unwrap().ip, Ipv4Addr::LOCALHOST);
    port.add_peer(remote.into(), 7);
    assert_eq!(port.peer_key(remote.into()), Some(7));
    let at = port.local_addr().port();
    for (asked, key) in [([127, 0, 0, 1], Some(7)), ([127, 0, 0, 2], None)] {
        peer.send_to(&data(50, 1), (Ipv4Addr::from(asked), at)).unwrap();
        assert_eq!(receive(&mut port, &mut Pool::new(1 << 20), 1)[0].key, key);
    }
    port.remove_peer(remote.into());
    assert_eq!(port.peer_key(remote.into()), None);
    peer.send_to(&data(50, 1), (Ipv4Addr::LOCALHOST, at)).unwrap();
    assert_eq!(receive(&mut port, &mut Pool::new(1 << 20), 1)[0].key, None);
}

/// Threads that share a port must agree with the kernel on the owner of each peer.
#[test]
fn datagrams_reach_the_selected_socket() {
    let addresses = addresses().flat_map(|any| [(any, 1), (any, 2), (any, 5)]);
    for (address, count) in addresses {
        let options = UdpOptions::default();
        let (mut ports, shared) = UdpPort::bind_all(address, count, &options).unwrap();
        shared.unwrap();
        assert_eq!(ports.len(), count);
        let at = ports[0].local_addr();
        assert!(ports.iter().all(|port| port.local_addr() == at));
        let mut expected = vec![Vec::new(); count];
        for _ in 0..100 {
            let peer = UdpSocket::bind(address).unwrap();
            peer.send_to(&data(100, 0), at).unwrap();
            let peer = peer.local_addr().unwrap();
            expected[steered_to(peer, count)].push(peer);
        }
        assert!(expected.iter().all(|peers| !peers.is_empty()), "{expected:?}");
        for (port, mut expected) in ports.iter_mut().zip(expected) {
            let arrived = receive(port, &mut Pool::new(1 << 20), expected.len());
            let mut peers: Vec<SocketAddr> = arrived.iter().map(|one| one.path.remote).collect();
            peers.sort_unstable();
            expected.sort_unstable();
            assert_eq!(peers, expected);
        }
    }
}

/// Otherwise, two routers at one port would each get some of the peers.
#[test]
fn port_sharing_excludes_other_routers() {
    let (ports, _) = UdpPort::bind_all(ANY_V4, 2, &UdpOptions::default()).unwrap();
    let at = ports[0].local_addr();
    let second = UdpPort::bind_all(at, 2, &UdpOptions::default());
    assert_eq!(second.unwrap_err().kind(), std::io::ErrorKind::AddrInUse);
}
