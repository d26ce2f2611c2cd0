//! The origin: answers Interests below a prefix with responses of an HTTP server.
//!
//! | file | for |
//! |---|---|
//! | `interest` | what an Interest wants |
//! | `upstream` | requests to the server, with limits on time and number |
//! | `policy` | freshness (RFC 9111), validators, numbers of versions |
//! | `version` | one version of a resource, signed slice by slice |
//! | `ask` | asks the server for the head and the first bytes of a resource |
//! | `slices` | asks it for further slices; streams where it has no ranges |
//! | `service` | the table of resources, and one request at a time for each |
//!
//! Interests wait in the producer until their Data is published, so the service only decides which
//! requests the server gets. Metadata are never stored in the producer, which would answer with
//! them for ever: routers keep them for their FreshnessPeriod.

mod ask;
mod interest;
mod policy;
mod service;
mod slices;
mod upstream;
mod version;

use std::sync::Arc;

use tokio::task::JoinHandle;
use weir_base::units::{Size, Time};
use weir_socket::{Identity, Producer, ProducerOptions, Session, SocketError};

use self::ask::Context;
use self::service::Service;
use self::upstream::{Counters, Upstream};
use crate::config::OriginConfig;

pub use self::upstream::OriginStats;

/// How long an Interest may wait for the server.
const REQUEST_WAIT: Time = Time { ns: 60 * weir_base::NS_PER_S };
/// A version never changes, so stores may keep its segments for long.
const SEGMENT_FRESHNESS: Time = Time { ns: 3600 * weir_base::NS_PER_S };
/// The output buffer must hold a few slices.
const BUFFER_BYTES_MIN: u64 = 8 << 20;

/// Why an origin does not start.
#[derive(Debug, thiserror::Error)]
pub enum OriginError {
    #[error("{0}")]
    Url(String),
    #[error(transparent)]
    Socket(#[from] SocketError),
}

/// Answers Interests below a prefix with responses of an HTTP server. Dropping it ends its tasks and
/// releases the prefix.
pub struct Origin {
    task: JoinHandle<()>,
    counters: Arc<Counters>,
}

impl Origin {
    /// Binds a producer to the prefix, and begins to answer. Sends nothing to the server yet.
    ///
    /// # Errors
    /// The URL or the prefix cannot be served.
    pub async fn start(
        session: &Session,
        identity: Identity,
        config: OriginConfig,
    ) -> Result<Self, OriginError> {
        let upstream = Upstream::new(&config).map_err(OriginError::Url)?;
        let options = ProducerOptions {
            output_buffer: Size { bytes: config.buffer.bytes.max(BUFFER_BYTES_MIN) },
            reliable: !config.live,
            request_wait: REQUEST_WAIT,
            freshness: SEGMENT_FRESHNESS,
            ..ProducerOptions::default()
        };
        let publish_options = options.publish_options();
        let (owned, prefix) = (session.clone(), config.prefix.clone());
        let producer_identity = identity.clone();
        // Connecting to the router blocks.
        let bind = tokio::task::spawn_blocking(move || {
            Producer::begin_bind(&owned, prefix, producer_identity, options)
        });
        let producer = bind.await.map_err(|_| SocketError::Closed)??.await?;
        let counters = upstream.counters();
        let context = Context::new(upstream, producer, identity, publish_options, config);
        let task = tokio::spawn(Service::new(Arc::new(context)).run());
        Ok(Self { task, counters })
    }

    /// Its counters.
    pub fn stats(&self) -> OriginStats {
        self.counters.snapshot()
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.task.abort();
    }
}
