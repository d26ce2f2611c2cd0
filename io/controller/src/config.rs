//! What a controller is started with, and why it is not.

use std::io;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::PathBuf;

use weir_control::ControllerConfig;

use crate::clock::WallClock;
use crate::database::{DatabaseError, DatabaseLocation};
use crate::journal::RowsKept;

/// What a [`Server`](crate::Server) is started with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Where it listens. Without TLS this is loopback.
    pub listen: SocketAddr,
    pub database: DatabaseLocation,
    /// Octets that the file of an SQLite database may take, at most.
    pub database_bytes_max: Option<u64>,
    /// Certificate and key; without them tokens travel as plain text.
    pub tls: Option<TlsFiles>,
    /// Whether it listens beyond loopback without TLS.
    pub insecure: bool,
    pub threads: usize,
    /// Octets of a request's body, at most.
    pub body_bytes_max: usize,
    /// Connections at a time, at most.
    pub connections_max: usize,
    /// Requests of one token in a second, at most; it may send as many at once.
    pub requests_per_second_max: NonZeroU32,
    /// How many old rows the database keeps.
    pub rows_kept: RowsKept,
    pub controller: ControllerConfig,
    /// What time it is for people, and for tokens that expire.
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

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// Its certificate, followed by those between it and the root.
    pub certificate: PathBuf,
    pub key: PathBuf,
    /// Certificates of authorities: who connects must have a certificate of one of them.
    pub clients: Option<PathBuf>,
}

/// Why a controller does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Tokens would travel as plain text.
    #[error(
        "{0} is beyond this machine, where tokens must not travel as plain text; set \
         tls_certificate and tls_key, or insecure = true if the network is trusted"
    )]
    NoTls(SocketAddr),
    #[error("cannot listen on {address}: {error}")]
    Listen { address: SocketAddr, error: io::Error },
    /// A file for TLS is of no use.
    #[error("{what} in {path} cannot be used: {why}")]
    Tls { what: &'static str, path: PathBuf, why: String },
    #[error("{place}: {error}")]
    Database { place: DatabaseLocation, error: DatabaseError },
    #[error("cannot start threads: {0}")]
    Threads(io::Error),
}
