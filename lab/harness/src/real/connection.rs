//! An application's socket to its router, with its link; waits with the precision of the kernel's
//! timers instead of epoll's milliseconds.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;
use weir_base::{Instant, Packet, Pool};
use weir_face::{Datagram, FaceUri, RecvStatus, SendStatus, StreamSocket, UdpOptions, UdpPort};
use weir_link::{Link, LinkConfig, LinkDrop, Received};
use weir_plan::app::AppInput;
use weir_wire::LpHeader;

/// How long a TCP connection may take to be made.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Bound on what waits to be sent.
const QUEUE_BYTES_MAX: u64 = 64 << 20;
/// An application that has so much to send reads no more until some of it has gone.
const QUEUE_BYTES_HIGH: u64 = 4 << 20;

enum Socket {
    Stream(StreamSocket),
    Datagram { port: UdpPort, peer: SocketAddr, arrivals: Vec<Datagram> },
}

/// One connection.
pub(super) struct Connection {
    socket: Socket,
    link: Link,
    frames: Vec<Packet>,
    is_blocked: bool,
}

/// What a wait ended with.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ready {
    /// The coordinator has something to say, or is gone.
    pub(super) control: bool,
    /// Packets wait.
    pub(super) readable: bool,
}

/// Binds the UDP port of an application, before its peer is known.
pub(super) fn bind_udp() -> io::Result<UdpPort> {
    UdpPort::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), &UdpOptions::default())
}

impl Connection {
    /// Connects to `uri`; `port` is what [`bind_udp`] gave, for UDP.
    pub(super) fn open(uri: &FaceUri, port: Option<UdpPort>, mtu: usize) -> io::Result<Self> {
        let (socket, mut config) = match (uri, port) {
            (FaceUri::Unix(path), _) => {
                (Socket::Stream(StreamSocket::connect_unix(path)?), LinkConfig::stream())
            }
            (FaceUri::Tcp(address), _) => {
                let stream = StreamSocket::connect_tcp_timeout(*address, CONNECT_TIMEOUT)?;
                (Socket::Stream(stream), LinkConfig::stream())
            }
            (FaceUri::Udp(peer), Some(port)) => {
                let socket = Socket::Datagram { port, peer: *peer, arrivals: Vec::new() };
                (socket, LinkConfig::datagram(mtu))
            }
            (other, _) => {
                let message = format!("{other} is no address to connect to");
                return Err(io::Error::new(io::ErrorKind::Unsupported, message));
            }
        };
        config.egress.queue_bytes_max = QUEUE_BYTES_MAX;
        config.egress.marking.is_on = false;
        config.codec.partial_bytes_max = 16 << 20;
        Ok(Self { socket, link: Link::new(config), frames: Vec::new(), is_blocked: false })
    }

    /// Waits until packets can be read, at most `timeout_ns`, and tells whether some can.
    pub(super) fn wait_alone(&self, timeout_ns: u64) -> io::Result<bool> {
        self.poll(None, Some(timeout_ns)).map(|ready| ready.readable)
    }

    /// Waits until packets can be read (or sent, if some wait to be), `control` is readable, or
    /// `timeout_ns` is over.
    pub(super) fn wait(
        &self,
        control: BorrowedFd<'_>,
        timeout_ns: Option<u64>,
    ) -> io::Result<Ready> {
        self.poll(Some(control), timeout_ns)
    }

    fn poll(&self, control: Option<BorrowedFd<'_>>, timeout_ns: Option<u64>) -> io::Result<Ready> {
        let mut wanted = PollFlags::empty();
        wanted.set(PollFlags::POLLIN, self.wants_packets());
        wanted.set(PollFlags::POLLOUT, self.is_blocked);
        let socket = match &self.socket {
            Socket::Stream(stream) => stream.as_fd(),
            Socket::Datagram { port, .. } => port.as_fd(),
        };
        let control = control.unwrap_or(socket);
        let mut watched = [PollFd::new(socket, wanted), PollFd::new(control, PollFlags::POLLIN)];
        let watched = if control.as_raw_fd() == socket.as_raw_fd() {
            &mut watched[..1]
        } else {
            &mut watched[..]
        };
        let timeout = timeout_ns.map(|ns| TimeSpec::from_duration(Duration::from_nanos(ns)));
        match ppoll(watched, timeout, None) {
            Ok(_) => {}
            Err(nix::errno::Errno::EINTR) => return Ok(Ready::default()),
            Err(error) => return Err(error.into()),
        }
        let is_set = |at: usize, flags: PollFlags| {
            let found = watched.get(at).and_then(PollFd::revents);
            found.is_some_and(|found| found.intersects(flags))
        };
        let broken = PollFlags::POLLERR | PollFlags::POLLHUP;
        Ok(Ready {
            control: is_set(1, PollFlags::POLLIN | broken),
            readable: is_set(0, PollFlags::POLLIN | broken),
        })
    }

    fn wants_packets(&self) -> bool {
        self.link.queue_bytes() < QUEUE_BYTES_HIGH
    }

    /// Appends the packets of one read and tells whether there may be more.
    pub(super) fn receive(
        &mut self,
        now: impl FnOnce() -> Instant,
        pool: &mut Pool,
        inputs: &mut Vec<AppInput>,
    ) -> io::Result<bool> {
        if !self.wants_packets() {
            return Ok(false);
        }
        let status = match &mut self.socket {
            Socket::Stream(stream) => stream.recv(pool, &mut self.frames)?,
            Socket::Datagram { port, peer, arrivals } => {
                let status = port.recv(pool, arrivals)?;
                let ours = arrivals.drain(..).filter(|datagram| datagram.peer == *peer);
                self.frames.extend(ours.map(|datagram| datagram.frame));
                status
            }
        };
        let now = now();
        for frame in self.frames.drain(..) {
            if let Received::Packet { header, packet } = self.link.receive(now, frame, pool) {
                inputs.push(AppInput { header, packet });
            }
        }
        let lost = |what: String| Err(io::Error::new(io::ErrorKind::ConnectionReset, what));
        match status {
            RecvStatus::Drained => Ok(false),
            RecvStatus::More => Ok(true),
            RecvStatus::Closed => lost("the router closed the connection".into()),
            RecvStatus::FramingLost(error) => lost(format!("what answers is no router: {error}")),
        }
    }

    /// Queues a packet.
    pub(super) fn enqueue(
        &mut self,
        now: Instant,
        header: LpHeader,
        packet: Packet,
    ) -> Result<(), LinkDrop> {
        self.link.enqueue(now, header, packet)
    }

    /// Sends what is queued, as far as the socket takes it.
    pub(super) fn flush(&mut self, pool: &mut Pool) -> io::Result<()> {
        if self.link.is_egress_empty() {
            return Ok(());
        }
        let status = match &mut self.socket {
            Socket::Stream(stream) => stream.send(&mut self.link)?,
            Socket::Datagram { port, peer, .. } => port.send(*peer, &mut self.link)?,
        };
        self.is_blocked = status == SendStatus::WouldBlock;
        if self.is_blocked {
            self.link.detach_small_frames(pool);
        }
        Ok(())
    }

    /// When [`Connection::handle_timeout`] should be called.
    pub(super) fn next_wakeup(&self) -> Option<Instant> {
        self.link.next_wakeup()
    }

    pub(super) fn handle_timeout(&mut self, now: Instant) {
        self.link.poll(now);
    }

    /// Packets that the queue refused.
    pub(super) fn dropped(&self) -> u64 {
        self.link.counters().drops.total()
    }
}
