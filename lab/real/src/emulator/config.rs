use std::io;
use std::net::SocketAddr;

use weir_netem::{ConfigError, LinkConfig};

/// The configuration of an emulated link.
#[derive(Clone, Debug, PartialEq)]
pub struct EmulatorConfig {
    pub a_to_b: LinkConfig,
    pub b_to_a: LinkConfig,
    /// Seed of all random numbers. Arrival times come from the machine, so a seed determines which
    /// frames are lost, but not when frames arrive.
    pub seed: u64,
    /// Time before a frame is due at which the thread starts to spin. A larger value is more
    /// precise and uses more processor time, up to a whole core.
    pub spin_ns: u64,
    /// Limit on the bytes in flight in one direction. Frames beyond it are dropped and counted. It
    /// bounds memory use if delay and rate do not.
    pub in_flight_bytes_max: usize,
}

/// The two UDP ports of a link.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct UdpEnds {
    /// Address of the emulator for side a. Port 0 selects any free port.
    pub a: SocketAddr,
    /// Address of the emulator for side b. Port 0 selects any free port.
    pub b: SocketAddr,
    /// Address of side a; `None` accepts the first sender to `a`.
    pub peer_a: Option<SocketAddr>,
    /// Address of side b; `None` accepts the first sender to `b`.
    pub peer_b: Option<SocketAddr>,
}

impl UdpEnds {
    /// Both peers are learned.
    pub(crate) fn new(a: SocketAddr, b: SocketAddr) -> Self {
        Self { a, b, peer_a: None, peer_b: None }
    }
}

/// Late wake-ups take tens of microseconds, which most experiments do not notice.
pub(crate) const SPIN_NS_DEFAULT: u64 = 0;
const IN_FLIGHT_BYTES_MAX_DEFAULT: usize = 256 << 20;

impl EmulatorConfig {
    /// Both directions equal, with seed 1.
    pub fn symmetric(link: LinkConfig) -> Self {
        Self {
            a_to_b: link.clone(),
            b_to_a: link,
            seed: 1,
            spin_ns: SPIN_NS_DEFAULT,
            in_flight_bytes_max: IN_FLIGHT_BYTES_MAX_DEFAULT,
        }
    }
}

/// Why an emulator cannot run.
#[derive(Debug, thiserror::Error)]
pub enum EmulatorError {
    /// An invalid link.
    #[error("the link from {direction}: {source}")]
    Config {
        /// "a to b" or "b to a".
        direction: &'static str,
        source: ConfigError,
    },
    /// A port cannot be bound.
    #[error("cannot bind UDP {address}: {source}")]
    Bind { address: SocketAddr, source: io::Error },
    /// The peer has another address family than the port.
    #[error("{peer} is not reachable from {port}: one is IPv4 and the other IPv6")]
    Family {
        /// The emulator's address.
        port: SocketAddr,
        peer: SocketAddr,
    },
    #[error("{port} failed: {source}")]
    Port { port: String, source: io::Error },
    #[error("cannot wait for ports: {0}")]
    Wait(#[source] io::Error),
}
