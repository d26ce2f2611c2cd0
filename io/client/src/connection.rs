//! The socket to a router, of any kind, with its link.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use nix::poll::PollFlags;
use nix::time::{ClockId, clock_gettime};
use weir_base::{Instant, NS_PER_S, Packet, Pool};
use weir_face::{FaceUri, RecvStatus, SendStatus, Socket, UdpFormat, UdpPeer, UdpPort};
use weir_link::{Link, LinkConfig, RunsConfig};

/// Time limit for a TCP connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Upper bound of bytes that wait to be sent. A producer stops reading Interests long before.
const QUEUE_BYTES_MAX: u64 = 64 << 20;

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
        Self::new(
            Socket::Udp(Box::new(UdpPeer::at(port, UdpFormat::Ndn, peer))),
            LinkConfig::datagram(mtu),
        )
    }

    fn new(socket: Socket, mut config: LinkConfig) -> io::Result<Self> {
        config.egress.queue_bytes_max = QUEUE_BYTES_MAX;
        // Applications do not mark: a standing queue here only means that the router is slower.
        config.egress.marking.is_on = false;
        config.codec.partial_bytes_max = 16 << 20;
        config.codec.keep_incoming_face = true;
        // Run Interests save nothing over streams (docs/measurements.md).
        config.codec.runs = match socket {
            Socket::Udp(_) => RunsConfig::Initiate,
            _ => RunsConfig::Accept,
        };
        config.codec.sequence_start = random_u64()?;
        Ok(Self { socket, link: Link::new(config) })
    }

    /// Whether the router is on this host, so that `/localhost` names reach it.
    pub(crate) fn is_local(&self) -> bool {
        self.socket.is_local()
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

    /// Appends the frames of one read.
    pub(crate) fn recv(
        &mut self,
        pool: &mut Pool,
        frames: &mut Vec<Packet>,
    ) -> io::Result<RecvStatus> {
        self.socket.recv(pool, frames)
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
