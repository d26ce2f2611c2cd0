//! The configuration of a controller, and errors at its start.

use std::io;
use std::net::SocketAddr;
use std::num::NonZeroU32;

use weir_control::ControllerConfig;
use weir_http::{TlsError, TlsFiles};

use crate::clock::WallClock;
use crate::database::{DatabaseError, DatabaseLocation};
use crate::journal::RowsKept;

/// The configuration of a [`Server`](crate::Server).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The address to listen on. Without TLS it must be a loopback address.
    pub listen: SocketAddr,
    pub database: DatabaseLocation,
    /// Maximum size of an SQLite database file in bytes.
    pub database_bytes_max: Option<u64>,
    /// Certificate and key. Without them tokens are sent unencrypted.
    pub tls: Option<TlsFiles>,
    /// Whether it may listen beyond loopback without TLS.
    pub insecure: bool,
    pub threads: usize,
    /// Maximum size of a request's body in bytes.
    pub body_bytes_max: usize,
    /// Maximum number of simultaneous connections.
    pub connections_max: usize,
    /// Maximum rate of requests with one token, per second; also the maximum burst.
    pub requests_per_second_max: NonZeroU32,
    /// How many old rows the database keeps.
    pub rows_kept: RowsKept,
    pub controller: ControllerConfig,
    /// The clock for audit times and for the expiry of tokens.
    pub wall_clock: WallClock,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 8636)),
            database: DatabaseLocation::File("weir-controller.db".into()),
            database_bytes_max: None,
            tls: None,
            insecure: false,
            threads: 2,
            body_bytes_max: 8 << 20,
            connections_max: 4096,
            requests_per_second_max: NonZeroU32::new(1000).unwrap_or(NonZeroU32::MIN),
            rows_kept: RowsKept { audit: 1_000_000, plans: 100_000 },
            controller: ControllerConfig::default(),
            wall_clock: WallClock::default(),
        }
    }
}

/// Why a controller does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Tokens would be sent unencrypted.
    #[error(
        "{0} is reachable from other machines, and tokens must not be sent unencrypted; set \
         tls_certificate and tls_key, or insecure = true if the network is trusted"
    )]
    NoTls(SocketAddr),
    #[error("cannot listen on {address}: {error}")]
    Listen { address: SocketAddr, error: io::Error },
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error("{place}: {error}")]
    Database { place: DatabaseLocation, error: DatabaseError },
    #[error("cannot start threads: {0}")]
    Threads(io::Error),
}
