use std::io;
use std::net::SocketAddr;

use weir_netem::{ConfigError, LinkConfig};

/// How a link is emulated.
#[derive(Clone, Debug, PartialEq)]
pub struct EmulatorConfig {
    pub a_to_b: LinkConfig,
    pub b_to_a: LinkConfig,
    /// What all draws follow from. Arrival times are the machine's, so that a seed fixes which of
    /// the frames are lost, not when they come.
    pub seed: u64,
    /// Time before a frame is due from which the thread spins instead of sleeping: more is more
    /// precise and takes more processor time, up to a whole core.
    pub spin_ns: u64,
    /// Octets under way in one direction, at most; beyond, frames are dropped and counted. Bounds
    /// memory where delay and rate do not.
    pub in_flight_bytes_max: usize,
}

/// The two UDP ports that a link is between.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct UdpEnds {
    /// Address of the emulator that side a sends to. Port 0 takes any.
    pub a: SocketAddr,
    /// Address of the emulator that side b sends to. Port 0 takes any.
    pub b: SocketAddr,
    /// Who is at side a; `None` takes whoever sends to `a` first.
    pub peer_a: Option<SocketAddr>,
    /// Who is at side b; `None` takes whoever sends to `b` first.
    pub peer_b: Option<SocketAddr>,
}

impl UdpEnds {
    /// Peers are learnt.
    pub(crate) fn new(a: SocketAddr, b: SocketAddr) -> Self {
        Self { a, b, peer_a: None, peer_b: None }
    }
}

/// Late wake-ups are tens of microseconds, which is below what most experiments notice.
pub(crate) const SPIN_NS_DEFAULT: u64 = 0;
const IN_FLIGHT_BYTES_MAX_DEFAULT: usize = 256 << 20;

impl EmulatorConfig {
    /// Both directions alike, seed 1.
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
    /// A link that cannot be.
    #[error("the link from {direction}: {source}")]
    Config {
        /// "a to b" or "b to a".
        direction: &'static str,
        source: ConfigError,
    },
    /// A port cannot be had.
    #[error("cannot bind UDP {address}: {source}")]
    Bind { address: SocketAddr, source: io::Error },
    /// A peer of another family than the port it is to be reached from.
    #[error("{peer} cannot be reached from {port}: one is IPv4 and the other IPv6")]
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
