//! Errors of starting and stopping a router.

use std::io;
use std::net::SocketAddr;

use weir_face::{BindError, UdpFormat};

/// Why a router cannot start. Nothing is left behind: no socket file, no thread.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The configuration contradicts itself.
    #[error("{0}")]
    Config(String),
    /// The Unix socket cannot be created, or another router uses it.
    #[error("{error}{remedy}", error = .0, remedy = unix_remedy(.0))]
    Unix(#[from] BindError),
    /// A UDP or TCP address is in use, or does not belong to this host.
    #[error("cannot listen on {scheme}://{address}: {source}; {}", listen_remedy(scheme, source))]
    Listen {
        /// `udp`, `hicn+udp`, `tcp`, `ws` or `wss`.
        scheme: &'static str,
        address: SocketAddr,
        source: io::Error,
    },
    /// A certificate or key for TLS cannot be used.
    #[error("{0}; correct the options of [faces] that begin with `tls_`")]
    Tls(#[from] weir_face::TlsFileError),
    /// A disk of the content store cannot be used. The error says what to do.
    #[error("{0}")]
    Disk(#[from] weir_disk::OpenError),
    /// The engine of a disk cannot be started.
    #[error("{0}")]
    DiskStart(#[from] weir_disk::StartError),
    /// The disks did not respond while they were being opened.
    #[error(
        "the disks of the content store did not respond within {seconds} s ({paths}); check \
         whether the devices or mounts behind them hang, or start without them"
    )]
    DisksHang { seconds: u64, paths: String },
    /// The address of `/metrics` is in use, or does not belong to this host.
    #[error("cannot serve metrics on {address}: {reason}; choose another [metrics] address")]
    Metrics { address: SocketAddr, reason: String },
    /// The same, and the metrics are off: the address until now cannot be used again.
    #[error(
        "cannot serve metrics on {address}: {reason}; {old} cannot be used again ({lost}), so the \
         router serves no metrics now"
    )]
    MetricsLost { address: SocketAddr, reason: String, old: SocketAddr, lost: String },
    /// The system refuses a thread, an event queue or a signal handler.
    #[error("cannot set up {what}: {source}")]
    System {
        /// What could not be set up.
        what: &'static str,
        source: io::Error,
    },
}

impl StartError {
    pub(crate) fn metrics(address: SocketAddr, error: &io::Error) -> Self {
        Self::Metrics { address, reason: error.to_string() }
    }
}

fn unix_remedy(error: &BindError) -> &'static str {
    match error {
        BindError::Io { .. } => "; choose a path where you may make files (--unix PATH)",
        // These errors include a remedy.
        _ => "",
    }
}

fn listen_remedy(scheme: &str, source: &io::Error) -> String {
    let option = match scheme {
        _ if scheme == UdpFormat::Hicn.scheme() => "hicn_udp in [faces]".to_owned(),
        "ws" => "--websocket ADDR:PORT".to_owned(),
        "wss" => "websocket_tls in [faces]".to_owned(),
        _ => format!("--{scheme} ADDR:PORT"),
    };
    match source.kind() {
        io::ErrorKind::AddrInUse => format!(
            "another program, perhaps another router, has this port; stop it, or choose another \
             port ({option})"
        ),
        io::ErrorKind::PermissionDenied => {
            format!("ports below 1024 need privileges; choose another ({option})")
        }
        _ => format!("choose an address of this machine ({option})"),
    }
}

/// Why a router did not stop cleanly.
#[derive(Debug, thiserror::Error)]
pub enum StopError {
    /// A thread of the router panicked.
    #[error("the router's {thread} thread failed; please report the panic message above")]
    Panicked { thread: String },
}
