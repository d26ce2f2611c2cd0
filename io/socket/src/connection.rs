//! The socket to the router, of any kind, with its link.

use std::io;
use std::time::Duration;

use mio::{Interest, Registry, Token};
use weir_base::{Instant, Packet, Pool};
use weir_face::{FaceUri, RecvStatus, SendStatus, Socket};
use weir_link::Link;

/// How long a TCP connection may take to be made.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Bound on what waits to be sent. A producer stops reading Interests long before.
const QUEUE_BYTES_MAX: u64 = 64 << 20;

/// One connection to a router.
pub(crate) struct Connection {
    socket: Socket,
    pub(crate) link: Link,
}

impl Connection {
    pub(crate) fn open(uri: &FaceUri) -> io::Result<Self> {
        let socket = Socket::connect(uri, CONNECT_TIMEOUT)?;
        let mut config = socket.link_config();
        config.egress.queue_bytes_max = QUEUE_BYTES_MAX;
        // Applications do not mark: a standing queue here only says that the router is the slower
        // one.
        config.egress.marking.is_on = false;
        config.codec.partial_bytes_max = 16 << 20;
        config.codec.keep_incoming_face = true;
        config.codec.sequence_start = random_u64()?;
        Ok(Self { socket, link: Link::new(config) })
    }

    /// Whether the router is on this host, so that `/localhost` names reach it.
    pub(crate) fn is_local(&self) -> bool {
        self.socket.is_local()
    }

    pub(crate) fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        let interests = Interest::READABLE | Interest::WRITABLE;
        registry.register(&mut self.socket, token, interests)
    }

    /// Appends what one read brings.
    pub(crate) fn recv(
        &mut self,
        pool: &mut Pool,
        frames: &mut Vec<Packet>,
    ) -> io::Result<RecvStatus> {
        self.socket.recv(pool, frames)
    }

    /// Sends what the link has queued, as far as the socket takes it.
    pub(crate) fn flush(&mut self) -> io::Result<SendStatus> {
        self.socket.send(&mut self.link)
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
