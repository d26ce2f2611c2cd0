//! The front: HTTP requests in, Interests out.
//!
//! `server` accepts connections and `request` finds the object that a URL denotes, with `heads`.
//! `response` decides which bytes of it follow (`conditions`), and `pieces` fetches them.

mod body;
mod conditions;
mod consumers;
mod errors;
mod fields;
mod heads;
mod http3;
mod listing;
mod log;
mod metrics;
mod pieces;
mod request;
mod response;
mod server;
mod tokens;
mod uploads;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use weir_http::{TlsError, tls_config};
use weir_security::trust::Trust;
use weir_socket::{Consumer, ConsumerOptions, Identity, Session, SocketError, Word};
use weir_transport::Controller;
use weir_wire::Name;

use self::consumers::Consumers;
use self::heads::Heads;
use self::metrics::Metrics;
use self::pieces::Pieces;
use self::server::Limits;
use self::tokens::Tokens;
use self::uploads::Uploads;
use crate::config::{FrontConfig, HostConfig};

/// How long requests in progress may take when the front ends.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

/// Why a front does not start.
#[derive(Debug, thiserror::Error)]
pub enum FrontError {
    #[error("cannot listen at {address}: {error}; choose another address or end the other program")]
    Listen { address: SocketAddr, error: io::Error },
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error("HTTP/3 needs TLS; configure a certificate and a key")]
    Http3WithoutTls,
    #[error("cannot start HTTP/3: {0}")]
    Http3(String),
    #[error("{path}: {reason}")]
    Tokens { path: String, reason: String },
    #[error(transparent)]
    Socket(#[from] SocketError),
}

/// What all requests share.
struct Shared {
    config: FrontConfig,
    heads: Arc<Heads>,
    uploads: Option<Uploads>,
    pieces: Arc<Pieces>,
    tokens: Option<Tokens>,
    metrics: Arc<Metrics>,
    limits: Limits,
}

/// A running front. Ends when it is dropped; [`Front::stop`] lets requests end first.
pub struct Front {
    addresses: Vec<SocketAddr>,
    status: Option<SocketAddr>,
    stop: watch::Sender<bool>,
    tasks: JoinSet<()>,
}

impl Front {
    /// Starts a front in the current runtime. When it returns, it listens. `trust_of` makes the
    /// trust for an object, and `identity` signs the bodies of uploads.
    ///
    /// # Errors
    /// An address, a file or an option cannot be used.
    pub async fn start<T: Trust + Send + 'static>(
        session: &Session,
        trust_of: impl Fn(&Name) -> T + Send + Sync + 'static,
        identity: Option<Identity>,
        mut config: FrontConfig,
    ) -> Result<Self, FrontError> {
        if config.hosts.is_empty() {
            config.hosts.push(HostConfig::default());
        }
        if config.http3 && config.tls.is_none() {
            return Err(FrontError::Http3WithoutTls);
        }
        let mut consumer = Consumer::bind(session, Name::new(), trust_of(&Name::new()));
        consumer.set_options(ConsumerOptions {
            // The origin answers slice by slice, so two slices must be requested before the first
            // arrives. CUBIC stays at about 200 Interests there, without a congestion mark. Its
            // slow start ends when round trips grow, and here they grow by the time of a slice.
            controller: Word(Controller::AIMD),
            ..ConsumerOptions::default()
        })?;
        let timeout = Duration::from_nanos(config.timeout.ns);
        let uploads = match (&config.uploads, identity) {
            (Some(prefix), Some(identity)) => {
                let (prefix, max) = (prefix.clone(), config.upload_max.bytes);
                Some(Uploads::start(session, prefix, identity, consumer.clone(), max).await?)
            }
            _ => None,
        };
        let mappings = config.hosts.iter().map(|host| (host.prefix.clone(), host.mapping));
        let consumers = Arc::new(Consumers::new(consumer, mappings.collect(), trust_of));
        let shared = Arc::new(Shared {
            heads: Arc::new(Heads::new(consumers.clone(), timeout)),
            uploads,
            pieces: Pieces::new(consumers, config.memory.bytes),
            tokens: config.tokens.as_deref().map(Tokens::read).transpose()?,
            metrics: Arc::new(Metrics::new()),
            limits: Limits::new(config.connections_max, config.connections_per_address_max),
            config,
        });
        Self::listen(shared).await
    }

    async fn listen(shared: Arc<Shared>) -> Result<Self, FrontError> {
        let (stop, stopping) = watch::channel(false);
        let (mut tasks, mut addresses) = (JoinSet::new(), Vec::new());
        let files = shared.config.tls.as_ref();
        for address in &shared.config.listen {
            let (listener, address) = bind(*address).await?;
            addresses.push(address);
            let protocols: &[&[u8]] = &[b"h2", b"http/1.1"];
            let tls = files.map(|files| tls_config(files, protocols)).transpose()?;
            let http3_port = shared.config.http3.then(|| address.port());
            let accept = server::serve(listener, tls, shared.clone(), http3_port, stopping.clone());
            tasks.spawn(accept);
            if let (true, Some(files)) = (shared.config.http3, files) {
                tasks.spawn(http3::serve(address, files, shared.clone(), stopping.clone())?);
            }
        }
        let mut status = None;
        if let Some(address) = shared.config.status {
            let (listener, address) = bind(address).await?;
            status = Some(address);
            tasks.spawn(server::serve_status(listener, shared.clone(), stopping));
        }
        Ok(Self { addresses, status, stop, tasks })
    }

    /// Where it serves HTTP.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Where it serves metrics.
    pub fn status(&self) -> Option<SocketAddr> {
        self.status
    }

    /// Stops to accept connections, and waits for requests in progress.
    pub async fn stop(mut self) {
        self.stop.send_replace(true);
        let ended = async { while self.tasks.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(SHUTDOWN_TIMEOUT, ended).await;
    }
}

async fn bind(address: SocketAddr) -> Result<(TcpListener, SocketAddr), FrontError> {
    let error = |error| FrontError::Listen { address, error };
    let listener = TcpListener::bind(address).await.map_err(error)?;
    let bound = listener.local_addr().map_err(error)?;
    Ok((listener, bound))
}
