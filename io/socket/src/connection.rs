//! The socket to the router, of any kind, with its link.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use mio::{Interest, Registry, Token};
use weir_base::{Instant, Packet, Pool};
use weir_face::{
    Datagram, FaceUri, RecvStatus, SendStatus, StreamSocket, UdpOptions, UdpPort, udp_mtu_default,
};
use weir_link::{Link, LinkConfig};

/// How long a TCP connection may take to be made.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Bound on what waits to be sent. A producer stops reading Interests long before.
const QUEUE_BYTES_MAX: u64 = 64 << 20;

enum Socket {
    Stream(StreamSocket),
    Datagram { port: UdpPort, peer: SocketAddr, arrivals: Vec<Datagram> },
}

/// One connection to a router.
pub(crate) struct Connection {
    socket: Socket,
    pub(crate) link: Link,
}

impl Connection {
    pub(crate) fn open(uri: &FaceUri) -> io::Result<Self> {
        let (socket, mut config) = match uri {
            FaceUri::Unix(path) => {
                (Socket::Stream(StreamSocket::connect_unix(path)?), LinkConfig::stream())
            }
            FaceUri::Tcp(address) => {
                let stream = StreamSocket::connect_tcp_timeout(*address, CONNECT_TIMEOUT)?;
                (Socket::Stream(stream), LinkConfig::stream())
            }
            FaceUri::Udp(peer) => {
                let any: SocketAddr = match peer {
                    SocketAddr::V4(_) => ([0, 0, 0, 0], 0).into(),
                    SocketAddr::V6(_) => ([0; 16], 0).into(),
                };
                let port = UdpPort::bind(any, &UdpOptions::default())?;
                let mut config = LinkConfig::datagram(udp_mtu_default(peer.ip()));
                config.codec.sequence_start = random_u64()?;
                (Socket::Datagram { port, peer: *peer, arrivals: Vec::new() }, config)
            }
            other => {
                let message = format!("{other} is no address to connect to");
                return Err(io::Error::new(io::ErrorKind::Unsupported, message));
            }
        };
        // Applications do not mark: a standing queue here only says that the router is the slower
        // one.
        config.egress.queue_bytes_max = QUEUE_BYTES_MAX;
        config.egress.marking.is_on = false;
        config.codec.partial_bytes_max = 16 << 20;
        config.codec.keep_incoming_face = true;
        Ok(Self { socket, link: Link::new(config) })
    }

    /// Whether the router is on this host, so that `/localhost` names reach it.
    pub(crate) fn is_local(&self) -> bool {
        match &self.socket {
            Socket::Stream(stream) => stream.is_local(),
            Socket::Datagram { .. } => false,
        }
    }

    pub(crate) fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        let interests = Interest::READABLE | Interest::WRITABLE;
        match &mut self.socket {
            Socket::Stream(stream) => registry.register(stream, token, interests),
            Socket::Datagram { port, .. } => registry.register(port, token, interests),
        }
    }

    /// Appends what one read brings.
    pub(crate) fn recv(
        &mut self,
        pool: &mut Pool,
        frames: &mut Vec<Packet>,
    ) -> io::Result<RecvStatus> {
        match &mut self.socket {
            Socket::Stream(stream) => stream.recv(pool, frames),
            Socket::Datagram { port, peer, arrivals } => {
                let status = port.recv(pool, arrivals)?;
                let ours = arrivals.drain(..).filter(|datagram| datagram.peer == *peer);
                frames.extend(ours.map(|datagram| datagram.frame));
                Ok(status)
            }
        }
    }

    /// Sends what the link has queued, as far as the socket takes it.
    pub(crate) fn flush(&mut self) -> io::Result<SendStatus> {
        match &mut self.socket {
            Socket::Stream(stream) => stream.send(&mut self.link),
            Socket::Datagram { port, peer, .. } => port.send(*peer, &mut self.link),
        }
    }
}

/// Nanoseconds since `epoch` as the core counts them.
pub(crate) fn instant_since(epoch: std::time::Instant) -> Instant {
    Instant::from_ns(u64::try_from(epoch.elapsed().as_nanos()).unwrap_or(u64::MAX))
}

/// A number nobody can guess.
pub(crate) fn random_u64() -> io::Result<u64> {
    getrandom::u64().map_err(io::Error::other)
}
