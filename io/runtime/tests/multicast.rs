//! Multicast faces of routers on two connected network devices, in a network namespace.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::process::Command as Program;

use socket2::{Domain, InterfaceIndexOrAddress, Socket, Type};
use weir_io_fixture::TEST_TIMEOUT;
use weir_io_fixture::router::{
    ReceivedPacket, TestRouter, content_of, data, interest, name, run_with_connected_devices,
};
use weir_manage::commands::Command;
use weir_manage::{ControlParameters, Element, FacePersistency, FaceStatus, face_flags};
use weir_runtime::{FaceSnapshot, MulticastConfig, Snapshot};
use weir_wire::Interest;
use weir_wire::lp::{LpFraming, LpHeader, PitToken};

const GROUP: Ipv4Addr = Ipv4Addr::new(224, 0, 23, 170);
const PORT: u16 = 56363;

/// A router with multicast faces on these devices, or on all.
fn router(devices: Option<&[&str]>, threads: usize) -> TestRouter {
    let devices = devices.map(|names| names.iter().map(ToString::to_string).collect());
    let router = TestRouter::start_with(|config| {
        config.threads = threads;
        config.multicast = MulticastConfig { devices, has_ipv4: true, has_ipv6: true };
    });
    router.wait_until("multicast faces", |snapshot| !groups(snapshot).is_empty());
    router
}

fn groups(snapshot: &Snapshot) -> Vec<&FaceSnapshot> {
    snapshot.faces.iter().filter(|face| is_group(&face.uri)).collect()
}

fn is_group(uri: &str) -> bool {
    uri == "udp4://224.0.23.170:56363" || uri.starts_with("udp6://[ff02::1234%")
}

/// The face with this local address.
fn face(router: &TestRouter, local: &str) -> FaceSnapshot {
    let snapshot = router.snapshot();
    let mut faces = snapshot.faces.iter().filter(|face| face.local_uri == local);
    faces.next().cloned().unwrap_or_else(|| panic!("{local}: {snapshot:#?}"))
}

fn register(router: &TestRouter, prefix: &str, local: &str) {
    let parameters = ControlParameters {
        name: Some(name(prefix)),
        face_id: Some(face(router, local).id),
        ..ControlParameters::default()
    };
    command(router, Command::RibRegister, &parameters);
}

/// Another node of the segment, at the device `right`.
fn node() -> UdpSocket {
    let right = Ipv4Addr::new(10, 0, 0, 2);
    let index = nix::net::if_::if_nametoindex("right").unwrap();
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, None).unwrap();
    socket.set_reuse_address(true).unwrap();
    socket.set_multicast_all_v4(false).unwrap();
    socket.join_multicast_v4_n(&GROUP, &InterfaceIndexOrAddress::Index(index)).unwrap();
    socket.set_multicast_if_v4(&right).unwrap();
    socket.set_multicast_loop_v4(false).unwrap();
    socket.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    socket.bind(&SocketAddr::from((GROUP, PORT)).into()).unwrap();
    socket.into()
}

fn send(node: &UdpSocket, frame: &[u8]) {
    node.send_to(frame, (GROUP, PORT)).unwrap();
}

fn receive(node: &UdpSocket) -> ReceivedPacket {
    let mut datagram = vec![0; 65536];
    let len = node.recv(&mut datagram).unwrap();
    ReceivedPacket::of_frame(&datagram[..len])
}

fn ip(arguments: &str) {
    let status = Program::new("ip").args(arguments.split_whitespace()).status().unwrap();
    assert!(status.success(), "ip {arguments}");
}

#[test]
fn routers_meet_on_a_segment() {
    run_with_connected_devices("data_crosses_the_segment");
    run_with_connected_devices("several_nodes_share_a_face");
    run_with_connected_devices("faces_follow_the_devices");
    run_with_connected_devices("commands_respect_groups");
    run_with_connected_devices("client_discovers_hub");
}

#[test]
#[ignore = "routers_meet_on_a_segment runs it with network devices"]
fn data_crosses_the_segment() {
    let (near, far) = (router(Some(&["left"]), 1), router(Some(&["right"]), 3));
    for router in [&near, &far] {
        router.wait_until("both address families", |snapshot| groups(snapshot).len() == 2);
    }
    let mut producer = far.unix();
    producer.register("/p");
    for (number, local) in
        ["udp4://10.0.0.1:56363", "udp6://[fe80::1%left]:56363"].into_iter().enumerate()
    {
        let prefix = format!("/p/{number}");
        register(&near, &prefix, local);
        let mut consumer = near.unix();
        for (segment, len) in [0, 1000, 8000].into_iter().enumerate() {
            let uri = format!("{prefix}/{segment}");
            consumer.send(&interest(&uri));
            let asked = producer.receive().interest();
            assert_eq!(weir_io_fixture::router::name_of(&asked), uri);
            producer.send(&data(&uri, &vec![7; len]));
            assert_eq!(content_of(&consumer.receive().data()).len(), len);
        }
        let counters = face(&near, local).counters;
        assert_eq!((counters.out_interests, counters.in_data), (3, 3), "{local}");
    }
    // The same in the other direction, where Data finds one of three worker threads by its name.
    let mut producer = near.unix();
    producer.register("/q");
    register(&far, "/q", "udp4://10.0.0.2:56363");
    let mut consumer = far.unix();
    for segment in 0..20 {
        let uri = format!("/q/{segment}");
        consumer.send(&interest(&uri));
        producer.receive().interest();
        producer.send(&data(&uri, b"x"));
        consumer.receive().data();
    }
    near.stop();
    far.stop();
}

#[test]
#[ignore = "routers_meet_on_a_segment runs it with network devices"]
fn several_nodes_share_a_face() {
    let (router, node) = (router(Some(&["left"]), 2), node());
    register(&router, "/s", "udp4://10.0.0.1:56363");
    let mut consumer = router.unix();
    for number in 0..5 {
        let uri = format!("/s/{number}");
        consumer.send(&interest(&uri));
        // No tokens, no offers of runs.
        match receive(&node) {
            ReceivedPacket::Interest { header, .. } => {
                assert_eq!(header.pit_token, PitToken::EMPTY)
            }
            other => panic!("{other:?}"),
        }
        // Another node had asked too, and gets its token back.
        let pit_token = PitToken::new(&[number; 6]).unwrap();
        let header = LpHeader { pit_token, ..LpHeader::default() };
        let answer = data(&uri, b"answer");
        send(&node, &header.encode(&LpFraming::BARE, &[], Some(&answer)));
        assert_eq!(content_of(&consumer.receive().data()), b"answer");
        // The answer of a third node comes too late.
        send(&node, &data(&uri, b"late"));
    }
    // The router does not say that it has no answer. Data from its store goes to the segment.
    send(&node, &interest("/unknown"));
    send(&node, &interest("/s/99"));
    send(&node, b"GET / HTTP/1.1\r\n\r\n");
    send(&node, &interest("/s/4"));
    assert_eq!(content_of(&receive(&node).data()), b"answer");
    let face = face(&router, "udp4://10.0.0.1:56363");
    assert_eq!((face.counters.out_nacks, face.counters.out_interests), (0, 5));
    router.stop();
}

#[test]
#[ignore = "routers_meet_on_a_segment runs it with network devices"]
fn faces_follow_the_devices() {
    let router = router(None, 1);
    let wait = |what: &str, expected: &[&str]| {
        router.wait_until(what, |snapshot| {
            let mut locals: Vec<_> =
                groups(snapshot).iter().map(|face| face.local_uri.as_str()).collect();
            locals.sort_unstable();
            locals == expected
        });
    };
    let left = ["udp4://10.0.0.1:56363", "udp6://[fe80::1%left]:56363"];
    let right = ["udp4://10.0.0.2:56363", "udp6://[fe80::2%right]:56363"];
    let all = [left[0], right[0], left[1], right[1]];
    wait("all devices", &all);
    let first = face(&router, left[0]).id;
    ip("addr del 10.0.0.2/24 dev right");
    wait("an address is removed", &[left[0], left[1], right[1]]);
    ip("addr add 10.0.0.7/24 dev right");
    wait("a new address", &[left[0], "udp4://10.0.0.7:56363", left[1], right[1]]);
    assert_eq!(face(&router, left[0]).id, first, "other faces stay");
    ip("link set right down");
    wait("a device is down", &left);
    ip("link del right");
    wait("no device is left", &[]);
    ip("link add left type veth peer name right");
    ip("addr add 10.0.0.1/24 dev left");
    ip("link set left addrgenmode none up");
    wait("a device returns", &left[..1]);
    router.stop();
}

#[test]
#[ignore = "routers_meet_on_a_segment runs it with network devices"]
fn commands_respect_groups() {
    let router = router(Some(&["left", "absent"]), 1);
    router.wait_until("both address families", |snapshot| groups(snapshot).len() == 2);
    let known = face(&router, "udp4://10.0.0.1:56363");
    let mut client = router.unix();
    let uri =
        |uri: &str| ControlParameters { uri: Some(uri.into()), ..ControlParameters::default() };
    for (remote, code) in [
        ("udp4://224.0.23.170:56363", 406),
        ("udp4://224.0.0.9:6363", 406),
        ("udp://224.0.0.9", 406),
    ] {
        let response = client.command(Command::FacesCreate, &uri(remote));
        assert_eq!(response.code, code, "{response:?}");
    }
    let of_face = ControlParameters { face_id: Some(known.id), ..ControlParameters::default() };
    let bit = Some(face_flags::LP_RELIABILITY);
    for refused in [
        ControlParameters { flags: bit, mask: bit, ..of_face.clone() },
        ControlParameters { face_persistency: Some(FacePersistency::OnDemand), ..of_face.clone() },
    ] {
        let response = client.command(Command::FacesUpdate, &refused);
        assert_eq!(response.code, 409, "{response:?}");
    }
    let marking = Some(face_flags::CONGESTION_MARKING);
    let accepted = ControlParameters { flags: Some(0), mask: marking, ..of_face.clone() };
    assert_eq!(client.command(Command::FacesUpdate, &accepted).code, 200);
    // The drops of a closed face still count.
    send(&node(), &[6; 40_000]);
    let is_counted = |snapshot: &Snapshot| snapshot.runtime_drops.contains(&("udp-truncated", 1));
    router.wait_until("a datagram is too long", is_counted);
    // A closed face stays closed as long as its device does not change.
    assert_eq!(client.command(Command::FacesDestroy, &of_face).code, 200);
    router.wait_until("the face closes", |snapshot| groups(snapshot).len() == 1);
    ip("addr add 10.0.0.9/24 dev left");
    ip("link add absent type veth peer name other");
    ip("addr add 10.0.1.1/24 dev absent");
    ip("link set absent addrgenmode none up");
    let has_face = |snapshot: &Snapshot, local: &str| {
        snapshot.faces.iter().any(|face| face.local_uri == local)
    };
    router.wait_until("the router has listed the devices again", |snapshot| {
        has_face(snapshot, "udp4://10.0.1.1:56363")
    });
    let snapshot = router.snapshot();
    assert!(!has_face(&snapshot, "udp4://10.0.0.1:56363"));
    assert!(is_counted(&snapshot));
    router.stop();
}

const HUB: &str = "/localhop/ndn-autoconf/hub";
/// The TLV type of the hub's address in its Data.
const URI: u8 = 0x72;

/// The steps of `ndn-autoconfig` of NFD (fe044ce, `multicast-discovery.cpp`, `procedure.cpp`), on a
/// client and a hub.
#[test]
#[ignore = "routers_meet_on_a_segment runs it with network devices"]
fn client_discovers_hub() {
    let (client, hub) = (router(Some(&["left"]), 2), router(Some(&["right"]), 1));
    for router in [&client, &hub] {
        router.wait_until("both address families", |snapshot| groups(snapshot).len() == 2);
    }
    let mut server = hub.unix();
    server.register(HUB);
    prepare_discovery(&client);
    // The hub's program answers. The Interest arrives there over both faces.
    let mut consumer = client.unix();
    let asked = Interest::new(name(HUB)).can_be_prefix(true).must_be_fresh(true).nonce(7);
    consumer.send(&asked.lifetime_ms(4000).encode());
    server.receive().interest();
    let uri = format!("udp4://127.0.0.1:{}", hub.address("udp4").port());
    let content = [&[URI, uri.len() as u8], uri.as_bytes()].concat();
    server.send(&data(&format!("{HUB}/v=1"), &content));
    let content = content_of(&consumer.receive().data());
    assert_eq!(std::str::from_utf8(&content[2..]).unwrap(), uri);

    // A face to the hub, and the routes to it.
    let created = command(
        &client,
        Command::FacesCreate,
        &ControlParameters { uri: Some(uri), ..ControlParameters::default() },
    );
    for prefix in ["/", "/localhop/nfd"] {
        let route = ControlParameters {
            name: Some(name(prefix)),
            face_id: created.face_id,
            origin: Some(66),
            cost: Some(100),
            ..ControlParameters::default()
        };
        command(&client, Command::RibRegister, &route);
    }
    server.register("/service");
    consumer.send(&interest("/service/1"));
    server.receive().interest();
    server.send(&data("/service/1", b"served"));
    assert_eq!(content_of(&consumer.receive().data()), b"served");
    client.stop();
    hub.stop();
}

/// Adds routes for the hub's name to all multi-access faces, and sets the multicast strategy.
fn prepare_discovery(client: &TestRouter) {
    // LinkType multi-access (134) in a FaceQueryFilter (150).
    let mut query = name("/localhost/nfd/faces/query");
    query.append_generic(&[150, 3, 134, 1, 1]);
    let mut program = client.unix();
    program.send(&Interest::new(query).can_be_prefix(true).must_be_fresh(true).encode());
    let faces = FaceStatus::decode_all(&content_of(&program.receive().data())).unwrap();
    assert_eq!(faces.len(), 2);
    let hub = ControlParameters { name: Some(name(HUB)), ..ControlParameters::default() };
    for FaceStatus { info, .. } in &faces {
        assert!(is_group(&info.uri), "{info:?}");
        assert_eq!(info.link_type, weir_manage::LinkType::MultiAccess);
        assert_eq!((info.scope, info.mtu), (weir_manage::FaceScope::NonLocal, Some(8800)));
        assert_eq!(info.persistency, FacePersistency::Permanent);
        let route = ControlParameters {
            face_id: Some(info.face_id),
            cost: Some(1),
            expiration_period_ms: Some(30_000),
            ..hub.clone()
        };
        command(client, Command::RibRegister, &route);
    }
    let strategy = Some(name("/localhost/nfd/strategy/multicast"));
    command(client, Command::StrategyChoiceSet, &ControlParameters { strategy, ..hub });
}

/// Sends a command that must succeed, and returns the effective values.
fn command(
    router: &TestRouter,
    command: Command,
    parameters: &ControlParameters,
) -> ControlParameters {
    let response = router.unix().command(command, parameters);
    assert_eq!(response.code, 200, "{response:?}");
    response.body.map(|body| *body).unwrap_or_default()
}
