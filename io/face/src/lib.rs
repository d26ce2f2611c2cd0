#![doc = include_str!("../README.md")]

mod gather;
mod limits;
mod listen;
mod locate;
mod mmsg;
mod socket;
mod stream;
mod udp;
mod uri;

use weir_wire::FrameError;

pub use limits::raise_file_limit;
pub use listen::{BindError, TcpListener, UnixListener};
pub use locate::{
    ClientTransportError, Origin, TransportChoice, client_transport, client_transport_from,
    unix_path_candidates,
};
pub use stream::StreamSocket;
pub use udp::{
    Datagram, FramesSent, UdpCounters, UdpOptions, UdpPort, udp_local_toward, udp_mtu_default,
};
pub use uri::{FaceUri, FaceUriError, NDN_PORT, ResolveError};

/// Milliseconds since the Unix epoch, by the system's clock.
pub fn unix_time_ms() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// How a call of `recv` ended. Frames appended before that are good in every case.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum RecvStatus {
    /// The socket is empty; wait for readiness.
    Drained,
    /// The call took its share and there may be more: call again before waiting for readiness.
    More,
    /// The peer closed the connection.
    Closed,
    /// No further packet can be found in the stream: close this face.
    FramingLost(FrameError),
}

/// How a call of `send` ended.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum SendStatus {
    /// The queue is empty.
    Drained,
    /// The socket takes no more for now; wait until it is writable.
    WouldBlock,
}
