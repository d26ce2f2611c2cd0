//! The socket to a router, of any kind, with its link.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use nix::poll::PollFlags;
use nix::time::{ClockId, clock_gettime};
use weir_base::{Instant, NS_PER_S, Packet, Pool};
use weir_face::{
    FaceUri, RecvStatus, SendStatus, Socket, UdpFormat, UdpPeer, UdpPort, udp_mtu_default,
};
use weir_link::{self as link, Link, LinkConfig, PacketFormat, RunsConfig};
use weir_transport::PathId;
use weir_wire::{LpHeader, PACKET_SIZE_MAX};

/// Time limit for a TCP connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Upper bound of bytes that wait to be sent. A producer stops reading Interests long before.
const QUEUE_BYTES_MAX: u64 = 64 << 20;
/// hicn-light reads at most this many bytes of a datagram, also over loopback.
const HICN_MTU: usize = 1500;
/// Bytes by which an hICN packet is at most longer than the NDN packet: its headers have 104 bytes,
/// and replace a name of more than 40 bytes.
const HICN_EXTRA_BYTES: usize = 64;

/// Bytes of the longest NDN packet that the connection to this router can carry. hICN packets are
/// not fragmented.
pub fn packet_bytes_max(router: &FaceUri) -> usize {
    match router {
        FaceUri::HicnUdp(peer) => udp_mtu_default(peer.ip()).min(HICN_MTU) - HICN_EXTRA_BYTES,
        _ => PACKET_SIZE_MAX,
    }
}

/// A packet received from a router.
#[derive(Clone, Debug)]
pub struct ReceivedPacket {
    /// The path that it arrived on.
    pub path: PathId,
    /// Its link header. A Nack is an Interest whose header contains a reason.
    pub header: LpHeader,
    /// Exactly one Interest or Data TLV; its content is unchecked.
    pub packet: Packet,
}

/// What one read of a connection received.
pub(crate) struct Received<'a> {
    pub(crate) packets: &'a mut Vec<ReceivedPacket>,
    /// Control messages of hicn-light, for the connector.
    pub(crate) control: &'a mut Vec<Packet>,
    /// Frames before the link has decoded them. The memory is reused.
    pub(crate) frames: &'a mut Vec<Packet>,
    /// Whether any frame arrived, and how many of them could not be decoded.
    pub(crate) has_frames: bool,
    pub(crate) dropped: u64,
}

/// The socket to a router, and its link.
pub(crate) struct Connection {
    socket: Socket,
    pub(crate) link: Link,
}

impl Connection {
    pub(crate) fn open(uri: &FaceUri) -> io::Result<Self> {
        let socket = Socket::connect(uri, CONNECT_TIMEOUT)?;
        let config = socket.link_config();
        Self::new(socket, config)
    }

    /// A connection with hICN packets, and control messages of hicn-light.
    pub(crate) fn open_hicn(uri: &FaceUri) -> io::Result<Self> {
        let socket = Socket::connect(uri, CONNECT_TIMEOUT)?;
        let mut config = socket.link_config();
        if let PacketFormat::Hicn(hicn) = &mut config.codec.format {
            hicn.has_control = true;
        }
        config.codec.mtu = config.codec.mtu.min(HICN_MTU);
        Self::new(socket, config)
    }

    /// A connection to the router of this process.
    pub(crate) fn from_socket_pair(stream: UnixStream) -> io::Result<Self> {
        let socket = Socket::of_pair(stream)?;
        let mut config = socket.link_config();
        // An application with local fields may choose the face by which an Interest leaves.
        config.codec.local_fields = true;
        Self::new(socket, config)
    }

    /// A connection from a bound port, with datagrams of at most `mtu` bytes.
    pub(crate) fn from_udp_port(port: UdpPort, peer: SocketAddr, mtu: usize) -> io::Result<Self> {
        let format = UdpFormat::Ndn;
        let socket = Socket::Udp(Box::new(UdpPeer::at(port, format, peer)));
        Self::new(socket, format.link_config(mtu))
    }

    fn new(socket: Socket, mut config: LinkConfig) -> io::Result<Self> {
        config.egress.queue_bytes_max = QUEUE_BYTES_MAX;
        // Applications do not mark: a standing queue here only means that the router is slower.
        config.egress.marking.is_on = false;
        config.codec.partial_bytes_max = 16 << 20;
        config.codec.keep_incoming_face = true;
        // Run Interests save nothing over streams (benches/measurements.md).
        config.codec.runs = match (&socket, &config.codec.format) {
            (Socket::Udp(_), PacketFormat::Ndnlp) => RunsConfig::Initiate,
            // The producers of hICN's library answer only the first Interest of a manifest.
            _ => RunsConfig::Accept,
        };
        config.codec.sequence_start = random_u64()?;
        Ok(Self { socket, link: Link::new(config) })
    }

    /// Whether the router is on this host, so that `/localhost` names reach it.
    pub(crate) fn is_local(&self) -> bool {
        self.socket.is_local()
    }

    /// Whether packets travel over UDP, where a restart of the router breaks no connection.
    pub(crate) fn has_datagrams(&self) -> bool {
        matches!(self.socket, Socket::Udp(_))
    }

    /// The poll event after which a [flush](Self::flush) that was blocked may continue.
    pub(crate) fn writable_event(&self) -> PollFlags {
        if self.socket.signals_space_by_input() { PollFlags::POLLIN } else { PollFlags::POLLOUT }
    }

    /// Whether a blocked [flush](Self::flush) may continue, before any event shows it.
    pub(crate) fn is_writable_again(&self) -> bool {
        self.socket.is_writable_again()
    }

    /// Consumes the wake-up of a connection that is not read now. Otherwise each wait would end at
    /// once.
    pub(crate) fn drain_wakeup(&mut self) -> io::Result<()> {
        self.socket.discard_doorbells()
    }

    /// Reads once, and decodes what was received.
    pub(crate) fn recv_packets(
        &mut self,
        now: Instant,
        path: PathId,
        pool: &mut Pool,
        received: &mut Received<'_>,
    ) -> io::Result<RecvStatus> {
        let status = self.socket.recv(pool, received.frames)?;
        received.has_frames |= !received.frames.is_empty();
        for frame in received.frames.drain(..) {
            match self.link.receive(now, frame, pool) {
                link::Received::Packet { header, packet } => {
                    received.packets.push(ReceivedPacket { path, header, packet });
                }
                // Routes are a matter of routers, so the link is not configured for announcements.
                link::Received::Announced(data) => {
                    let link::AnnouncedData { header, packet, .. } = *data;
                    received.packets.push(ReceivedPacket { path, header, packet });
                }
                link::Received::Run => {
                    while let Some((header, packet)) = self.link.next_in_run(now, pool) {
                        received.packets.push(ReceivedPacket { path, header, packet });
                    }
                }
                link::Received::Control(message) => received.control.push(message),
                // An application's link does not shape Interests. The answer to an offer leaves
                // with the next flush.
                link::Received::Delayed | link::Received::Offer(_) => {}
                link::Received::Partial | link::Received::Idle | link::Received::Signal(_) => {}
                link::Received::Drop(_) => received.dropped += 1,
            }
        }
        Ok(status)
    }

    /// Runs the link's timers.
    pub(crate) fn run_timers(&mut self, now: Instant) {
        if self.link.next_wakeup().is_some_and(|at| at <= now) {
            self.link.poll(now);
        }
    }

    /// Sends what the link has queued, as far as the socket accepts it.
    pub(crate) fn flush(&mut self) -> io::Result<SendStatus> {
        self.socket.send(&mut self.link)
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Nanoseconds of the machine's monotonic clock, the same in every process.
pub fn monotonic_now() -> Instant {
    // Every supported system has this clock.
    let time = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("a monotonic clock");
    Instant::from_ns(time.tv_sec() as u64 * NS_PER_S + time.tv_nsec() as u64)
}

/// A number from the system's random source.
///
/// # Errors
/// The system has none.
pub fn random_u64() -> io::Result<u64> {
    getrandom::u64().map_err(io::Error::other)
}
