//! The origin: answers Interests below a prefix with responses of an HTTP server.
//!
//! | file | for |
//! |---|---|
//! | `interest` | what an Interest wants |
//! | `response` | responses of a server, and problems |
//! | `upstream`, `bucket` | requests to the server, with limits on time and number |
//! | `policy` | freshness (RFC 9111), validators, numbers of versions |
//! | `version` | one version of a resource, signed slice by slice |
//! | `context` | what all tasks share, and the publication of slices |
//! | `find` | asks the server for the head and the first bytes of a resource |
//! | `playlist`, `live` | live playlists, and waiting for what does not exist yet |
//! | `ask` | publishes the response, or why there is none |
//! | `slices` | asks it for further slices; streams where it has no ranges |
//! | `upload` | PUT, POST and DELETE by reverse pull |
//! | `service` | the table of resources, and one request at a time for each |
//!
//! Interests wait in the producer until their Data is published, so the service only decides which
//! requests the server gets. Metadata are never stored in the producer, which would answer with
//! them for ever: routers keep them for their FreshnessPeriod.

mod ask;
#[cfg(feature = "s3")]
mod bucket;
mod context;
mod find;
mod interest;
mod live;
mod playlist;
mod policy;
mod response;
mod service;
mod slices;
#[cfg(test)]
mod tests;
mod upload;
mod upstream;
mod version;

use std::sync::Arc;

use tokio::task::JoinHandle;
use weir_base::units::{Size, Time};
use weir_security::trust::Trust;
use weir_socket::{
    Consumer, ConsumerOptions, Identity, Producer, ProducerOptions, PublishError, PublishOptions,
    Session, SlicedObject, SocketError,
};
use weir_wire::Name;

use self::context::Context;
use self::response::Counters;
use self::service::Service;
use self::upload::Uploads;
use self::upstream::Upstream;
use crate::config::OriginConfig;

pub use self::response::OriginStats;

/// How long an Interest may wait for the server.
const REQUEST_WAIT: Time = Time { ns: 60 * weir_base::NS_PER_S };
/// A version never changes, so stores may keep its segments for long.
const SEGMENT_FRESHNESS: Time = Time { ns: 3600 * weir_base::NS_PER_S };
/// The output buffer must hold a few slices.
const BUFFER_BYTES_MIN: u64 = 8 << 20;

const METHODS: [&str; 3] = ["PUT", "POST", "DELETE"];

/// Why an origin does not start.
#[derive(Debug, thiserror::Error)]
pub enum OriginError {
    #[error("{0}")]
    Url(String),
    #[error("this origin does not pass on {0}; choose PUT, POST or DELETE, and trust the senders")]
    Method(String),
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// Segments do not fit into packets.
    #[error(transparent)]
    Publish(#[from] PublishError),
}

/// Answers Interests below a prefix with responses of an HTTP server. Dropping it ends its tasks
/// and releases the prefix.
pub struct Origin {
    task: JoinHandle<()>,
    counters: Arc<Counters>,
}

impl Origin {
    /// Binds a producer to the prefix, and begins to answer. Sends nothing to the server yet.
    ///
    /// # Errors
    /// The URL or the prefix cannot be served; `methods` need [`Origin::start_with_uploads`].
    pub async fn start(
        session: &Session,
        identity: Identity,
        config: OriginConfig,
    ) -> Result<Self, OriginError> {
        match config.methods.first() {
            Some(method) => Err(OriginError::Method(method.clone())),
            None => Self::start_service(session, identity, config, None).await,
        }
    }

    /// As [`Origin::start`], and passes on the uploads of trusted senders, with the methods in the
    /// configuration.
    ///
    /// # Errors
    /// As [`Origin::start`]; a method is not known.
    pub async fn start_with_uploads(
        session: &Session,
        identity: Identity,
        config: OriginConfig,
        trust: impl Trust + Send + 'static,
    ) -> Result<Self, OriginError> {
        let is_known = |method: &&String| METHODS.contains(&&method[..]);
        if let Some(method) = config.methods.iter().find(|method| !is_known(method)) {
            return Err(OriginError::Method(method.clone()));
        }
        let mut consumer = Consumer::bind(session, Name::new(), trust);
        // Only a sender that is there may have an effect.
        consumer.set_options(ConsumerOptions {
            fresh: true,
            stored: false,
            ..ConsumerOptions::default()
        })?;
        Self::start_service(session, identity, config, Some(Uploads::new(consumer))).await
    }

    async fn start_service(
        session: &Session,
        identity: Identity,
        config: OriginConfig,
        uploads: Option<Uploads>,
    ) -> Result<Self, OriginError> {
        let upstream = Upstream::new(&config).map_err(OriginError::Url)?;
        let options = ProducerOptions {
            output_buffer: Size { bytes: config.buffer.bytes.max(BUFFER_BYTES_MIN) },
            reliable: !config.live,
            request_wait: REQUEST_WAIT,
            freshness: SEGMENT_FRESHNESS,
            mapping: config.mapping,
            segment_size: config
                .segment_size
                .unwrap_or(Size { bytes: config.mapping.segment_size_default().into() }),
            ..ProducerOptions::default()
        };
        let publish_options = PublishOptions {
            packet_bytes_max: session.packet_bytes_max(),
            ..options.publish_options()
        };
        let (owned, prefix) = (session.clone(), config.prefix.clone());
        let producer_identity = identity.clone();
        // Connecting to the router blocks.
        let bind = tokio::task::spawn_blocking(move || {
            Producer::begin_bind(&owned, prefix, producer_identity, options)
        });
        let producer = bind.await.map_err(|_| SocketError::Closed)??.await?;
        // Only now, because the producer has checked that the segment size is reasonable.
        check_segments(&config.prefix, &identity, &publish_options)?;
        let counters = upstream.counters();
        let context = Context::new(upstream, producer, identity, publish_options, config);
        let task = tokio::spawn(Service::new(Arc::new(context), uploads).run());
        Ok(Self { task, counters })
    }

    /// Its counters.
    pub fn stats(&self) -> OriginStats {
        self.counters.snapshot()
    }
}

/// Checks that a signed segment fits into a packet to the router. Otherwise every response would
/// fail.
fn check_segments(
    prefix: &Name,
    identity: &Identity,
    options: &PublishOptions,
) -> Result<(), PublishError> {
    let content = vec![0; options.segment_size];
    let versioned = prefix.clone().append_version(u64::MAX).clone();
    SlicedObject::new(versioned, content.len() as u64, identity, options)?.sign(0, &content)?;
    Ok(())
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.task.abort();
    }
}
