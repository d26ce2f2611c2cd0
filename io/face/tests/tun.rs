//! Packets of the kernel on a TUN device, good and bad. Each test runs in a network namespace with
//! two devices.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::Command;
use std::time::Duration;

use mio::{Events, Interest, Poll, Token};
use weir_base::{Instant, Packet, Pool};
use weir_face::{FaceUri, RecvStatus, Socket};
use weir_io_fixture::TEST_TIMEOUT;
use weir_io_fixture::router::{run_with_tun_devices, wait_until_running};
use weir_link::{Link, LinkDrop, Received};
use weir_wire::{Data, LpHeader, Name};

/// Maximum number of packets of one read.
const PACKETS_PER_READ: usize = 64;

const HEADER_BYTES: usize = 60;

fn ip(arguments: &str) {
    let status = Command::new("ip").args(arguments.split_whitespace()).status().unwrap();
    assert!(status.success(), "ip {arguments}");
}

fn open(uri: &str) -> io::Result<Socket> {
    Socket::connect(&uri.parse::<FaceUri>().unwrap(), TEST_TIMEOUT)
}

fn refusal(uri: &str) -> String {
    open(uri).expect_err("no device").to_string()
}

/// An hICN Interest for 2001:db8:7::1 with this suffix.
fn interest(suffix: u32) -> Vec<u8> {
    let mut packet = vec![0; HEADER_BYTES];
    packet[..8].copy_from_slice(&[0x60, 0, 0, 0, 0, 20, 6, 9]);
    packet[8..14].copy_from_slice(&[0x20, 1, 0x0D, 0xB8, 0, 9]);
    packet[24..30].copy_from_slice(&[0x20, 1, 0x0D, 0xB8, 0, 7]);
    packet[39] = 1;
    packet[40..44].copy_from_slice(&[0x80, 0, 0, 0x80]);
    packet[44..48].copy_from_slice(&suffix.to_be_bytes());
    packet[52..54].copy_from_slice(&[0x50, 2]);
    packet[58..60].copy_from_slice(&1000_u16.to_be_bytes());
    packet
}

fn changed(at: usize, octets: &[u8]) -> Vec<u8> {
    let mut packet = interest(0);
    packet[at..at + octets.len()].copy_from_slice(octets);
    packet
}

/// An Interest with these octets behind its header.
fn extended(flags: u8, octets: &[u8]) -> Vec<u8> {
    let mut packet = changed(53, &[flags]);
    packet.extend_from_slice(octets);
    let len = (packet.len() - 40) as u16;
    packet[4..6].copy_from_slice(&len.to_be_bytes());
    packet
}

/// Sends packets of any content to a device, as the kernel would.
struct KernelSide(OwnedFd);

impl KernelSide {
    fn of(device: &str) -> Self {
        // Before, the device drops packets.
        wait_until_running(device);
        let index = nix::net::if_::if_nametoindex(device).unwrap();
        let protocol = (libc::ETH_P_IPV6 as u16).to_be();
        // SAFETY: no pointers.
        let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW, i32::from(protocol)) };
        assert!(fd >= 0, "{}", io::Error::last_os_error());
        // SAFETY: a new descriptor, which nothing else owns.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        // SAFETY: a plain C structure for which zeros are valid.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = protocol;
        address.sll_ifindex = index as i32;
        let len = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        // SAFETY: pointer and length describe the address, which outlives the call.
        let result = unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), len) };
        assert_eq!(result, 0, "{}", io::Error::last_os_error());
        Self(fd)
    }

    fn send(&self, packet: &[u8]) {
        // SAFETY: pointer and length describe the packet, which outlives the call.
        let sent =
            unsafe { libc::send(self.0.as_raw_fd(), packet.as_ptr().cast(), packet.len(), 0) };
        assert_eq!(sent, packet.len() as isize, "{}", io::Error::last_os_error());
    }
}

/// A face with its link.
struct Face {
    socket: Socket,
    link: Link,
    poll: Poll,
    pool: Pool,
}

impl Face {
    fn open(uri: &str) -> Self {
        let mut socket = open(uri).unwrap();
        let link = Link::new(socket.link_config());
        let poll = Poll::new().unwrap();
        poll.registry().register(&mut socket, Token(0), Interest::READABLE).unwrap();
        Self { socket, link, poll, pool: Pool::new(1 << 20) }
    }

    /// Reads until the device is empty. Waits until there is something to read.
    fn read(&mut self) -> io::Result<Vec<Received>> {
        let (mut frames, mut packets) = (Vec::new(), Vec::new());
        loop {
            let status = self.socket.recv(&mut self.pool, &mut frames)?;
            assert!(frames.len() <= PACKETS_PER_READ, "{}", frames.len());
            for frame in frames.drain(..) {
                packets.push(self.link.receive(Instant::ZERO, frame, &mut self.pool));
            }
            match status {
                RecvStatus::More => {}
                RecvStatus::Drained if !packets.is_empty() => return Ok(packets),
                RecvStatus::Drained => self.wait(),
                other => panic!("{other:?}"),
            }
        }
    }

    fn wait(&mut self) {
        let mut events = Events::with_capacity(8);
        self.poll.poll(&mut events, Some(TEST_TIMEOUT)).unwrap();
        assert!(!events.is_empty(), "nothing arrives");
    }

    fn send(&mut self, tlv: &[u8], header: LpHeader) -> io::Result<()> {
        let packet = self.pool.copy(tlv);
        self.link.enqueue(Instant::ZERO, header, packet).unwrap();
        self.socket.send(&mut self.link).map(|_| ())
    }

    /// The next packet that the link accepts. The kernel's own packets are dropped.
    fn packet(&mut self) -> (LpHeader, Packet) {
        loop {
            for received in self.read().unwrap() {
                if let Received::Packet { header, packet } = received {
                    return (header, packet);
                }
            }
        }
    }
}

#[test]
fn kernel_routes_packets() {
    run_with_tun_devices("packets_cross_two_devices");
}

#[test]
#[ignore = "kernel_routes_packets runs it with TUN devices"]
fn packets_cross_two_devices() {
    ip("-6 route add 2001:db8:7::/48 dev hicn1");
    ip("-6 route add 2001:db8:1::/64 dev hicn0");
    let mut near = Face::open("hicn+tun://hicn0/2001:db8:1::");
    let mut far = Face::open("hicn+tun://hicn1");
    wait_until_running("hicn0");
    wait_until_running("hicn1");
    let name: Name = "/32=hicn/8=%20%01/8=%0D%B8/8=%00%07/8=%00%00/8=%00%00/8=%00%00/8=%00%00/\
                      8=%00%01/50=%05"
        .parse()
        .unwrap();
    let asked = weir_wire::Interest::new(name.clone()).must_be_fresh(true).hop_limit(9).encode();
    near.send(&asked, LpHeader::default()).unwrap();
    let (header, packet) = far.packet();
    let view = weir_wire::InterestView::decode(&packet).unwrap();
    assert_eq!((view.name, view.hop_limit), (name.as_view(), Some(8)));
    let data = Data::new(name).content(vec![7; 1000]).encode_with_digest();
    // The token of the Interest is the locator that the Data returns to.
    far.send(&data, LpHeader { pit_token: header.pit_token, ..LpHeader::default() }).unwrap();
    assert_eq!(near.packet().1[..], data);
}

#[test]
fn many_packets_are_read_in_batches() {
    run_with_tun_devices("packets_keep_their_order");
}

#[test]
#[ignore = "many_packets_are_read_in_batches runs it with TUN devices"]
fn packets_keep_their_order() {
    let mut face = Face::open("hicn+tun://hicn0");
    let kernel = KernelSide::of("hicn0");
    for suffix in 0..200 {
        kernel.send(&interest(suffix));
    }
    let mut names = Vec::new();
    while names.len() < 200 {
        for received in face.read().unwrap() {
            if let Received::Packet { packet, .. } = received {
                names.push(weir_wire::InterestView::decode(&packet).unwrap().name.to_name());
            }
        }
    }
    let suffixes = names.iter().map(|name| name.as_view().last().unwrap().as_number().unwrap());
    assert!(suffixes.eq(0..200));
}

#[test]
fn bad_packets_of_the_kernel_are_counted() {
    run_with_tun_devices("bad_packets_have_reasons");
}

#[test]
#[ignore = "bad_packets_of_the_kernel_are_counted runs it with TUN devices"]
fn bad_packets_have_reasons() {
    ip("link set hicn0 mtu 65535");
    let mut face = Face::open("hicn+tun://hicn0");
    assert_eq!(face.link.config().codec.mtu, 65_535);
    let kernel = KernelSide::of("hicn0");
    const AH: u8 = 0x12;
    for (packet, reason) in [
        (interest(0)[..39].to_vec(), LinkDrop::HicnTruncated),
        (vec![0x60], LinkDrop::HicnTruncated),
        (interest(0)[..59].to_vec(), LinkDrop::HicnLength),
        (changed(4, &[0, 19]), LinkDrop::HicnLength),
        (changed(0, &[0x45]), LinkDrop::HicnVersion),
        (changed(0, &[0x90]), LinkDrop::HicnVersion),
        (changed(6, &[0]), LinkDrop::HicnExtensionHeader),
        (changed(6, &[44]), LinkDrop::HicnFragment),
        (changed(6, &[58]), LinkDrop::HicnIcmp),
        (changed(6, &[17]), LinkDrop::HicnNotTcp),
        (changed(40, &[0xC0, 0, 0, 80]), LinkDrop::HicnPorts),
        (changed(52, &[0x60]), LinkDrop::HicnTcpOptions),
        // An authentication header of 255 words.
        (extended(AH, &[0, 255, 0, 0]), LinkDrop::HicnAh),
        (extended(AH, &[]), LinkDrop::HicnAh),
        (extended(0x02, &[7; 65_000]), LinkDrop::HicnTooLarge),
        // Just above what one slot of the block holds.
        (extended(0x02, &[7; 9 * 1024]), LinkDrop::HicnTooLarge),
    ] {
        let before = face.link.counters().drops[reason];
        kernel.send(&packet);
        while face.link.counters().drops[reason] == before {
            let received = face.read().unwrap();
            assert!(!received.iter().any(|it| matches!(it, Received::Packet { .. })), "{reason}");
        }
    }
    kernel.send(&interest(1));
    face.packet();
}

#[test]
fn devices_are_refused_with_reasons() {
    run_with_tun_devices("each_refusal_has_a_reason");
}

#[test]
#[ignore = "devices_are_refused_with_reasons runs it with TUN devices"]
fn each_refusal_has_a_reason() {
    ip("tuntap add dev tap0 mode tap");
    ip("tuntap add dev down0 mode tun");
    for (device, text) in [
        ("none0", "there is no network device none0; an administrator can create it with"),
        ("lo", "lo is not a TUN device"),
        ("tap0", "tap0 is not a TUN device"),
        ("down0", "down0 is down; an administrator must run `ip link set down0 up`"),
    ] {
        let why = refusal(&format!("hicn+tun://{device}"));
        assert!(why.contains(text), "{why}");
    }
    let mut face = Face::open("hicn+tun://hicn0/2001:db8:1::");
    assert!(refusal("hicn+tun://hicn0").contains("is in use"));
    let name: Name = "/32=hicn/8=%20%01/8=%0D%B8/8=%00%07/8=%00%00/8=%00%00/8=%00%00/8=%00%00/\
                      8=%00%01/50=%05"
        .parse()
        .unwrap();
    let asked = weir_wire::Interest::new(name).must_be_fresh(true).encode();
    ip("link set hicn0 down");
    let why = face.send(&asked, LpHeader::default()).unwrap_err().to_string();
    assert!(why.contains("hicn0 is down"), "{why}");
    ip("link set hicn0 up");
    face.socket.send(&mut face.link).unwrap();
    assert!(face.link.is_egress_empty());
    // A face that only reads learns that its device is removed.
    while face.socket.recv(&mut face.pool, &mut Vec::new()).unwrap() != RecvStatus::Drained {}
    ip("link del hicn0");
    let why = loop {
        face.wait();
        if let Err(error) = face.socket.recv(&mut face.pool, &mut Vec::new()) {
            break error.to_string();
        }
    };
    assert!(why.contains("hicn0 was removed"), "{why}");
    let why = face.send(&asked, LpHeader::default()).unwrap_err().to_string();
    assert!(why.contains("hicn0 was removed"), "{why}");
}

/// The owner of a device may open it without any capability.
#[test]
fn owner_opens_its_device() {
    run_with_tun_devices("owner_needs_no_capability");
}

#[test]
#[ignore = "owner_opens_its_device runs it with TUN devices"]
fn owner_needs_no_capability() {
    ip("tuntap add dev own0 mode tun user 0");
    ip("link set own0 up");
    let capabilities = ["--bounding-set=-all", "--inh-caps=-all"];
    let mut child = Command::new("setpriv");
    child.args(capabilities).arg(std::env::current_exe().unwrap());
    let output = child.args(["--ignored", "--exact", "opens_without_capability"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
#[ignore = "owner_needs_no_capability runs it without capabilities"]
fn opens_without_capability() {
    // Only an administrator can change the device.
    let changed = Command::new("ip").args(["link", "set", "own0", "down"]).output().unwrap();
    assert!(!changed.status.success(), "{changed:?}");
    let mut face = Face::open("hicn+tun://own0");
    face.poll.poll(&mut Events::with_capacity(1), Some(Duration::ZERO)).unwrap();
    drop(face);
}
