#![doc = include_str!("../README.md")]

mod access;
mod descriptor;
mod gather;
mod inherited;
mod interfaces;
mod kinds;
mod limits;
mod listen;
mod locate;
mod mmsg;
mod multicast;
mod padding;
mod reach;
mod shared;
mod socket;
mod standard_output;
mod status;
mod steering;
mod stream;
mod tun;
mod udp;
mod udp_format;
mod udp_path;
mod udp_peer;
mod untrusted_file;
mod uri;
mod websocket;

pub use access::{PeerCredentials, UnixAccess};
pub use inherited::{Inherited, InheritedSockets};
pub use interfaces::{InterfaceWatch, NetworkInterface};
pub use kinds::{Accepted, Connected, Listener, Socket};
pub use limits::raise_file_limit;
pub use listen::{BindError, TcpListener, UnixListener};
pub use locate::{ClientTransportError, Origin, TransportChoice, client_transport};
pub use shared::SharedMemory;
pub use standard_output::standard_output_was_closed;
pub use status::{RecvStatus, SendStatus, WebSocketError};
pub use steering::steered_to;
pub use stream::StreamSocket;
pub use udp::{Datagram, FramesSent, UdpCounters, UdpOptions, UdpPort, udp_mtu_default};
pub use udp_format::UdpFormat;
pub use udp_path::{LocalAddress, UdpPath, source_toward, udp_local_toward};
pub use udp_peer::UdpPeer;
pub use uri::{FaceUri, FaceUriError, ResolveError};
pub use websocket::{
    CertificateFiles, Handshake, ServerCertificate, TlsFileError, TlsTrust, WebSocketListener,
    certificate_problem,
};

/// Milliseconds since the Unix epoch, by the system's clock.
pub fn unix_time_ms() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
