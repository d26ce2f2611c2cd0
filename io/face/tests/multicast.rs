//! Multicast sockets on two connected network devices, in a network namespace.

use std::net::{Ipv4Addr, UdpSocket};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant as Clock};

use mio::{Events, Interest, Poll, Token};
use socket2::{Domain, Type};
use weir_base::{Instant, Packet, Pool};
use weir_face::{FaceUri, InterfaceWatch, NetworkInterface, Socket};
use weir_io_fixture::TEST_TIMEOUT;
use weir_io_fixture::router::run_with_connected_devices;
use weir_link::{Link, LinkDrop, Received};
use weir_wire::{Data, LpHeader, Name, PACKET_SIZE_MAX};

const GROUP: Ipv4Addr = Ipv4Addr::new(224, 0, 23, 170);
const PORT: u16 = 56363;

/// The devices of this host that can multicast: name, address.
fn interfaces() -> Vec<NetworkInterface> {
    NetworkInterface::multicast_capable().unwrap()
}

/// A face on a device.
struct Face {
    socket: Socket,
    link: Link,
    pool: Pool,
}

impl Face {
    fn open(device: &str, is_ipv6: bool) -> Self {
        let is_wanted = |interface: &NetworkInterface| {
            interface.device == device && interface.address.is_ipv6() == is_ipv6
        };
        let interface = interfaces().into_iter().find(is_wanted).unwrap();
        let socket = Socket::multicast(&interface).unwrap();
        let link = Link::new(socket.link_config());
        Self { socket, link, pool: Pool::new(1 << 20) }
    }

    fn send(&mut self, packet: &[u8]) {
        let packet = self.pool.copy(packet);
        self.link.enqueue(Instant::ZERO, LpHeader::default(), packet).unwrap();
        self.socket.send(&mut self.link).unwrap();
    }

    /// The only frame that arrives next.
    fn frame(&mut self) -> Packet {
        let mut frames = Vec::new();
        let end = Clock::now() + TEST_TIMEOUT;
        while frames.is_empty() && Clock::now() < end {
            self.socket.recv(&mut self.pool, &mut frames).unwrap();
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(frames.len(), 1);
        frames.remove(0)
    }

    fn packet(&mut self) -> Received {
        let frame = self.frame();
        self.link.receive(Instant::ZERO, frame, &mut self.pool)
    }
}

fn data(len: usize) -> Vec<u8> {
    let name: Name = "/a/b".parse().unwrap();
    Data::new(name).content(vec![7; len]).encode_with_digest()
}

/// A plain socket with this source that sends through the device with address `through`.
fn sender(source: (Ipv4Addr, u16), through: Ipv4Addr) -> UdpSocket {
    let socket = socket2::Socket::new(Domain::IPV4, Type::DGRAM, None).unwrap();
    socket.set_reuse_address(true).unwrap();
    socket.set_multicast_if_v4(&through).unwrap();
    socket.set_multicast_loop_v4(false).unwrap();
    let source: std::net::SocketAddr = source.into();
    socket.bind(&source.into()).unwrap();
    socket.into()
}

const LEFT: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const RIGHT: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

#[test]
fn sockets_reach_the_link() {
    run_with_connected_devices("each_device_hears_its_link");
    run_with_connected_devices("own_datagrams_are_ignored");
    run_with_connected_devices("bad_datagrams_are_counted");
    run_with_connected_devices("changes_of_devices_are_reported");
}

#[test]
#[ignore = "sockets_reach_the_link runs it with network devices"]
fn each_device_hears_its_link() {
    let names: Vec<(String, String)> = interfaces()
        .into_iter()
        .map(|interface| (interface.device, interface.address.to_string()))
        .collect();
    let expected = |device: &str, address: &str| (device.to_owned(), address.to_owned());
    for (device, address) in
        [("left", "10.0.0.1"), ("left", "fe80::1"), ("right", "10.0.0.2"), ("right", "fe80::2")]
    {
        assert!(names.contains(&expected(device, address)), "{names:?}");
    }
    assert_eq!(names.len(), 4, "loopback has no face");
    for is_ipv6 in [false, true] {
        let (mut left, mut right) = (Face::open("left", is_ipv6), Face::open("right", is_ipv6));
        // The largest packet travels as IP fragments.
        let longest = PACKET_SIZE_MAX - data(8000).len() + 8000;
        for len in [10, 1000, longest] {
            left.send(&data(len));
            assert!(matches!(right.packet(), Received::Packet { .. }));
            right.send(&data(len));
            assert!(matches!(left.packet(), Received::Packet { .. }));
        }
        assert_eq!(data(longest).len(), PACKET_SIZE_MAX);
        // A device does not hear its own datagrams, or those of the other family: `left` sends
        // first, and still the first frame is that of `right`.
        let mut others = [Face::open("left", !is_ipv6), Face::open("right", !is_ipv6)];
        for face in &mut others {
            face.send(&data(30));
        }
        left.send(&data(40));
        right.send(&data(50));
        assert_eq!(left.frame()[..], data(50));
        assert_eq!(right.frame()[..], data(40));
    }
    let left = Face::open("left", false).socket;
    assert_eq!(left.remote_uri().to_string(), "udp4://224.0.23.170:56363");
    assert_eq!(left.local_uri().to_string(), "udp4://10.0.0.1:56363");
    let left = Face::open("left", true).socket;
    assert_eq!(left.remote_uri().to_string(), "udp6://[ff02::1234%left]:56363");
    assert_eq!(left.local_uri().to_string(), "udp6://[fe80::1%left]:56363");
}

#[test]
#[ignore = "sockets_reach_the_link runs it with network devices"]
fn own_datagrams_are_ignored() {
    let mut left = Face::open("left", false);
    // A bridge returns what `left` has sent.
    let bridge = sender((LEFT, PORT), RIGHT);
    bridge.send_to(&data(10), (GROUP, PORT)).unwrap();
    // Another program of this host sends to the link, and so to itself only by a bridge.
    let other = sender((LEFT, 0), RIGHT);
    other.send_to(&data(20), (GROUP, PORT)).unwrap();
    assert_eq!(left.frame()[..], data(20));
    // Datagrams to the address of the device are not for the group.
    other.send_to(&data(30), (LEFT, PORT)).unwrap();
    other.send_to(&data(40), (GROUP, PORT)).unwrap();
    assert_eq!(left.frame()[..], data(40));
}

#[test]
#[ignore = "sockets_reach_the_link runs it with network devices"]
fn bad_datagrams_are_counted() {
    let mut left = Face::open("left", false);
    let other = sender((RIGHT, 0), RIGHT);
    let send = |octets: &[u8]| {
        other.send_to(octets, (GROUP, PORT)).unwrap();
    };
    // The second of three fragments (NDNLPv2: Sequence, FragIndex, FragCount, Fragment).
    let fragment =
        vec![0x64, 20, 0x51, 8, 0, 0, 0, 0, 0, 0, 0, 1, 0x52, 1, 1, 0x53, 1, 3, 0x50, 2, 6, 0];
    for (octets, reason) in [
        (b"GET / HTTP/1.1\r\n\r\n".to_vec(), None),
        (vec![0; 60], None),
        (fragment, Some(LinkDrop::ReassemblyOff)),
    ] {
        send(&octets);
        match (left.packet(), reason) {
            (Received::Drop(found), Some(reason)) => assert_eq!(found, reason),
            (Received::Drop(_), None) => {}
            (other, _) => panic!("{other:?}"),
        }
    }
    // Longer than any packet: counted by the socket.
    send(&vec![6; 40_000]);
    send(&data(10));
    assert!(matches!(left.packet(), Received::Packet { .. }));
    assert_eq!(left.socket.udp_counters().unwrap().truncated, 1);
    send(&[]);
    send(&data(20));
    assert_eq!(left.frame()[..], data(20));
}

#[test]
#[ignore = "sockets_reach_the_link runs it with network devices"]
fn changes_of_devices_are_reported() {
    let mut watch = InterfaceWatch::open().unwrap();
    let mut poll = Poll::new().unwrap();
    poll.registry().register(&mut watch, Token(0), Interest::READABLE).unwrap();
    let mut events = Events::with_capacity(8);
    for arguments in ["addr del 10.0.0.2/24 dev right", "link set left down", "link del left"] {
        watch.discard();
        let status = Command::new("ip").args(arguments.split(' ')).status().unwrap();
        assert!(status.success(), "ip {arguments}");
        poll.poll(&mut events, Some(TEST_TIMEOUT)).unwrap();
        assert!(!events.is_empty(), "ip {arguments}");
    }
    assert_eq!(interfaces(), []);
    let gone = NetworkInterface { device: "left".into(), index: 4711, address: LEFT.into() };
    assert!(Socket::multicast(&gone).is_err());
    assert!("udp4://224.0.23.170:56363".parse::<FaceUri>().unwrap().is_multicast());
}
