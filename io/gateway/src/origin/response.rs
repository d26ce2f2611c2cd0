//! Responses of a server, and why there is none.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use http::StatusCode;
use http::header::{self, HeaderMap};
use reqwest::Url;
use tokio::sync::OwnedSemaphorePermit;

/// Bytes of a slice of usual size.
const SLICE_BYTES_MAX: usize = 2 << 20;
/// How long a slice may take. No Interest waits for longer.
pub(super) const SLICE_TIME: Duration = Duration::from_secs(60);

/// Why there is no response that can be passed on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub(super) struct Problem {
    pub(super) status: StatusCode,
    pub(super) reason: String,
    /// What the HTTP client reported. It is for the log: it may show addresses.
    pub(super) cause: Option<String>,
    /// Whether the server changes content without changing its validator.
    pub(super) is_false_validator: bool,
}

impl Problem {
    pub(super) fn new(status: StatusCode, reason: impl Into<String>) -> Self {
        Self { status, reason: reason.into(), cause: None, is_false_validator: false }
    }

    pub(super) fn bad_gateway(reason: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_GATEWAY, reason)
    }

    /// The content has changed, but not its validator.
    pub(super) fn changed() -> Self {
        let reason = "The server changes content without changing its validator.";
        Self { is_false_validator: true, ..Self::bad_gateway(reason) }
    }

    pub(super) fn timeout(reason: &str) -> Self {
        Self::new(StatusCode::GATEWAY_TIMEOUT, reason)
    }

    pub(super) fn busy() -> Self {
        let reason = "Too many requests to the server of this content wait. Try again later.";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, reason)
    }

    /// Logs that a request for this URL has failed.
    pub(super) fn log(&self, url: &Url) {
        // A mistake of a client is no failure of the server.
        if !self.status.is_client_error() {
            let (url, cause) = (without_user(url), self.cause.as_deref());
            tracing::warn!(%url, cause, "{self}");
        }
    }
}

/// A URL as others may see it, without user and password.
pub(super) fn without_user(url: &Url) -> Url {
    let mut url = url.clone();
    // They fail for URLs without a host, which have no user.
    let _ = (url.set_username(""), url.set_password(None));
    url
}

/// What an origin has done so far.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct OriginStats {
    /// Requests sent to the server.
    pub requests: u64,
    /// Responses that confirmed a known version (304).
    pub not_modified: u64,
    /// Requests without a usable response.
    pub failures: u64,
    /// Bytes of bodies received.
    pub received_bytes: u64,
    /// Slices signed and published.
    pub slices: u64,
    /// Stale responses served because the server failed.
    pub stale: u64,
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) requests: AtomicU64,
    pub(super) not_modified: AtomicU64,
    pub(super) failures: AtomicU64,
    pub(super) received_bytes: AtomicU64,
    pub(super) slices: AtomicU64,
    pub(super) stale: AtomicU64,
}

impl Counters {
    pub(super) fn add(counter: &AtomicU64, count: u64) {
        counter.fetch_add(count, Ordering::Relaxed);
    }

    pub(super) fn snapshot(&self) -> OriginStats {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        OriginStats {
            requests: of(&self.requests),
            not_modified: of(&self.not_modified),
            failures: of(&self.failures),
            received_bytes: of(&self.received_bytes),
            slices: of(&self.slices),
            stale: of(&self.stale),
        }
    }
}

/// A response whose body is still to be received.
pub(super) struct Response {
    pub(super) status: StatusCode,
    pub(super) fields: HeaderMap,
    /// Bytes of the body, if the server states them.
    pub(super) length: Option<u64>,
    pub(super) body: Body,
}

/// A body that is being received. While it is not read, the server cannot send more.
pub(super) struct Body {
    pieces: BoxStream<'static, Result<Bytes, Problem>>,
    /// Received, but not taken yet.
    rest: Bytes,
    timeout: Duration,
    counters: Arc<Counters>,
    _permit: OwnedSemaphorePermit,
}

/// What bounds the reception of a body.
pub(super) struct BodyLimits {
    /// How long the server may take between two pieces.
    pub(super) timeout: Duration,
    pub(super) permit: OwnedSemaphorePermit,
    pub(super) counters: Arc<Counters>,
}

impl Body {
    pub(super) fn new(
        pieces: BoxStream<'static, Result<Bytes, Problem>>,
        limits: BodyLimits,
    ) -> Self {
        let BodyLimits { timeout, permit, counters } = limits;
        Self { pieces, rest: Bytes::new(), timeout, counters, _permit: permit }
    }

    /// The next bytes, exactly `max` or up to the end.
    pub(super) async fn take(&mut self, max: usize) -> Result<Bytes, Problem> {
        let slow = || Problem::timeout("The server sends the content too slowly.");
        let taken = tokio::time::timeout(SLICE_TIME, self.fill(max)).await;
        taken.map_err(|_| slow()).flatten().inspect_err(|_| {
            Counters::add(&self.counters.failures, 1);
        })
    }

    async fn fill(&mut self, max: usize) -> Result<Bytes, Problem> {
        if self.rest.len() >= max {
            return Ok(self.rest.split_to(max));
        }
        // One that is not known to be so long grows instead.
        let mut taken = BytesMut::with_capacity(max.min(SLICE_BYTES_MAX));
        taken.extend_from_slice(&self.rest);
        self.rest.clear();
        while taken.len() < max {
            let piece = tokio::time::timeout(self.timeout, self.pieces.next()).await;
            let piece = piece.map_err(|_| {
                Problem::timeout("The server stopped in the middle of the content.")
            })?;
            let Some(piece) = piece else { break };
            let mut piece = piece?;
            Counters::add(&self.counters.received_bytes, piece.len() as u64);
            let wanted = piece.len().min(max - taken.len());
            taken.extend_from_slice(&piece.split_to(wanted));
            self.rest = piece;
        }
        Ok(taken.freeze())
    }
}

/// The range in a `Content-Range` field, and the bytes of the whole content.
pub(super) fn content_range(fields: &HeaderMap) -> Option<(Range<u64>, u64)> {
    let value = fields.get(header::CONTENT_RANGE)?.to_str().ok()?;
    let (range, total) = value.strip_prefix("bytes ")?.trim().split_once('/')?;
    let (first, last) = range.split_once('-')?;
    let (first, last, total): (u64, u64, u64) =
        (first.parse().ok()?, last.parse().ok()?, total.parse().ok()?);
    (first <= last && last < total).then_some((first..last + 1, total))
}

#[cfg(test)]
mod tests {
    use http::header::HeaderValue;

    use super::*;

    #[test]
    fn reads_content_ranges() {
        for (value, found) in [
            ("bytes 0-9/20", Some((0..10, 20))),
            ("bytes 0-9/*", None),
            ("bytes */20", None),
            ("bytes 5-3/20", None),
            ("bytes 0-20/20", None),
            ("items 0-9/20", None),
        ] {
            let fields = [(header::CONTENT_RANGE, HeaderValue::from_static(value))];
            assert_eq!(content_range(&fields.into_iter().collect()), found, "{value}");
        }
    }
}
