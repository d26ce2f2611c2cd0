//! Requests to the server.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, StatusCode};
use reqwest::{Client, Url};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use weir_wire::NameView;

use crate::config::OriginConfig;
use crate::names;

const USER_AGENT: &str = concat!("weir-gateway/", env!("CARGO_PKG_VERSION"));
const VIA: HeaderValue = HeaderValue::from_static("1.1 weir-gateway");
/// How long a slice may take. No Interest waits for longer.
const SLICE_TIME: Duration = Duration::from_secs(60);
/// Request headers that no name may carry: they identify a client, frame a message, or are set here.
const FORBIDDEN_HEADERS: [HeaderName; 18] = [
    header::AUTHORIZATION,
    header::COOKIE,
    header::PROXY_AUTHORIZATION,
    header::HOST,
    header::CONNECTION,
    header::CONTENT_LENGTH,
    header::TRANSFER_ENCODING,
    header::TE,
    header::TRAILER,
    header::UPGRADE,
    header::EXPECT,
    header::RANGE,
    header::IF_MATCH,
    header::IF_NONE_MATCH,
    header::IF_MODIFIED_SINCE,
    header::IF_UNMODIFIED_SINCE,
    header::IF_RANGE,
    header::VIA,
];

/// Why there is no response that can be passed on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub(super) struct Problem {
    pub(super) status: StatusCode,
    pub(super) reason: String,
    /// Whether the server changes content without changing its validator.
    pub(super) is_false_validator: bool,
}

impl Problem {
    fn new(status: StatusCode, reason: impl Into<String>) -> Self {
        Self { status, reason: reason.into(), is_false_validator: false }
    }

    pub(super) fn bad_gateway(reason: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_GATEWAY, reason)
    }

    /// The content has changed, but not its validator.
    pub(super) fn changed() -> Self {
        let reason = "The server changes content without changing its validator.";
        Self { is_false_validator: true, ..Self::bad_gateway(reason) }
    }

    fn timeout(reason: &str) -> Self {
        Self::new(StatusCode::GATEWAY_TIMEOUT, reason)
    }

    fn busy() -> Self {
        let reason = "Too many requests to the server of this content wait. Try again later.";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, reason)
    }

    fn of(error: &reqwest::Error) -> Self {
        if error.is_timeout() {
            return Self::timeout(
                "The server of this content did not accept a connection in time.",
            );
        }
        if error.is_connect() {
            return Self::bad_gateway(
                "The server of this content refuses connections. Try again later.",
            );
        }
        Self::bad_gateway("The response of the server is malformed, or ended early.")
    }
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

/// A resource of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) url: Url,
    headers: HeaderMap,
}

/// The server.
pub(super) struct Upstream {
    /// Without a slash at its end.
    base: Url,
    prefix_components: usize,
    client: Client,
    timeout: Duration,
    permits: Arc<Semaphore>,
    counters: Arc<Counters>,
}

impl Upstream {
    /// # Errors
    /// The URL is invalid, or the client cannot be made.
    pub(super) fn new(config: &OriginConfig) -> Result<Self, String> {
        let url = &config.url;
        let base = Url::parse(url.trim_end_matches('/'))
            .map_err(|error| format!("`{url}` is not a URL: {error}"))?;
        if !matches!(base.scheme(), "http" | "https") || base.query().is_some() {
            return Err(format!(
                "`{url}` must have the form http://HOST/PATH or https://HOST/PATH"
            ));
        }
        let timeout = Duration::from_nanos(config.timeout.ns);
        // The second origin finds it installed.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let client = Client::builder()
            .user_agent(USER_AGENT)
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .http1_only()
            .connect_timeout(timeout)
            .build()
            .map_err(|error| format!("the HTTP client does not start: {error}"))?;
        Ok(Self {
            base,
            prefix_components: config.prefix.as_view().component_count(),
            client,
            timeout,
            permits: Arc::new(Semaphore::new(config.requests_max.clamp(1, 1 << 16))),
            counters: Arc::default(),
        })
    }

    pub(super) fn counters(&self) -> Arc<Counters> {
        self.counters.clone()
    }

    /// The resource with the name of this object; `None` if there is none.
    pub(super) fn target(&self, object: NameView<'_>) -> Option<Target> {
        let resource = names::resource_of_name(object, self.prefix_components).ok()?;
        let has_path = object.component(self.prefix_components).is_some_and(|it| it.is_generic());
        let path = match has_path {
            true => &resource.path[..],
            // The prefix itself: the URL as it is configured.
            false => resource.path.strip_prefix('/')?,
        };
        let base = self.base.as_str();
        let url = Url::parse(&format!("{}{path}", base.trim_end_matches('/'))).ok()?;
        let mut headers = HeaderMap::new();
        for (name, value) in &resource.headers {
            let name: HeaderName = name.parse().ok()?;
            if FORBIDDEN_HEADERS.contains(&name) {
                return None;
            }
            headers.append(name, HeaderValue::from_str(value).ok()?);
        }
        Some(Target { url, headers })
    }

    /// The `Location` of a response for this resource: relative where it is below the server's URL,
    /// so that it holds for each host under which fronts serve it.
    pub(super) fn location(&self, target: &Target, location: &HeaderValue) -> Option<HeaderValue> {
        let to = target.url.join(location.to_str().ok()?).ok()?;
        let base = self.base.as_str().trim_end_matches('/');
        let is_below = to.as_str().strip_prefix(base);
        let text =
            match is_below.is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '?'])) {
                true => target.url.make_relative(&to)?,
                false => to.to_string(),
            };
        HeaderValue::from_str(&text).ok()
    }

    /// Requests a resource, or a range of it.
    pub(super) async fn get(
        &self,
        target: &Target,
        range: Option<Range<u64>>,
        conditions: HeaderMap,
    ) -> Result<Response, Problem> {
        let result = self.try_get(target, range, conditions).await;
        if result.is_err() {
            Counters::add(&self.counters.failures, 1);
        }
        result
    }

    async fn try_get(
        &self,
        target: &Target,
        range: Option<Range<u64>>,
        conditions: HeaderMap,
    ) -> Result<Response, Problem> {
        let permit = tokio::time::timeout(self.timeout, self.permits.clone().acquire_owned());
        let permit = permit.await.map_err(|_| Problem::busy())?.expect("never closed");
        let mut request = self.client.request(Method::GET, target.url.clone());
        request = request.headers(target.headers.clone()).headers(conditions);
        request = request.header(header::ACCEPT_ENCODING, "identity").header(header::VIA, VIA);
        if let Some(range) = range {
            let range = format!("bytes={}-{}", range.start, range.end.saturating_sub(1));
            request = request.header(header::RANGE, range);
        }
        Counters::add(&self.counters.requests, 1);
        let response = tokio::time::timeout(self.timeout, request.send()).await;
        let response = response
            .map_err(|_| Problem::timeout("The server of this content did not answer in time."))?
            .map_err(|error| Problem::of(&error))?;
        let (status, fields) = (response.status(), response.headers().clone());
        let length = response.content_length();
        Ok(Response {
            status,
            fields,
            length,
            body: Body {
                pieces: response.bytes_stream().boxed(),
                rest: Bytes::new(),
                timeout: self.timeout,
                counters: self.counters.clone(),
                _permit: permit,
            },
        })
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
    pieces: BoxStream<'static, reqwest::Result<Bytes>>,
    /// Received, but not taken yet.
    rest: Bytes,
    timeout: Duration,
    counters: Arc<Counters>,
    _permit: OwnedSemaphorePermit,
}

impl Body {
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
        let mut taken = BytesMut::from(&self.rest[..]);
        self.rest.clear();
        while taken.len() < max {
            let piece = tokio::time::timeout(self.timeout, self.pieces.next()).await;
            let piece = piece.map_err(|_| {
                Problem::timeout("The server stopped in the middle of the content.")
            })?;
            let Some(piece) = piece else { break };
            let mut piece = piece.map_err(|error| Problem::of(&error))?;
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
    use weir_wire::Name;

    use super::*;

    fn upstream(url: &str) -> Upstream {
        Upstream::new(&OriginConfig::new("/p".parse().unwrap(), url.into())).unwrap()
    }

    fn url(base: &str, name: &str) -> Option<String> {
        let name: Name = name.parse().unwrap();
        Some(upstream(base).target(name.as_view())?.url.to_string())
    }

    #[test]
    fn names_lead_below_url() {
        for (base, name, found) in [
            ("http://h:1/a", "/p/b/c", Some("http://h:1/a/b/c")),
            ("http://h:1/a/", "/p/b", Some("http://h:1/a/b")),
            ("http://h:1", "/p/b/...", Some("http://h:1/b/")),
            ("http://h:1/a.txt", "/p", Some("http://h:1/a.txt")),
            ("http://h:1/a", "/p/32=%3Fx=1", Some("http://h:1/a?x=1")),
            ("http://h:1", "/p/b%20c/32=%3Fx=1", Some("http://h:1/b%20c?x=1")),
            ("http://h:1", "/p/b/32=%40cookie%3D1", None),
            ("http://h:1", "/p/b/32=%40Accept-Language%3Dde", Some("http://h:1/b")),
            ("http://h:1", "/p/%2E%2E/c", None),
        ] {
            assert_eq!(url(base, name).as_deref(), found, "{base} {name}");
        }
    }

    #[test]
    fn redirects_become_relative() {
        let upstream = upstream("http://h:1/a");
        let name: Name = "/p/b/c".parse().unwrap();
        let target = upstream.target(name.as_view()).unwrap();
        for (location, expected) in [
            ("http://h:1/a/b/d", "d"),
            ("/a/x?y=1", "../x?y=1"),
            ("d", "d"),
            ("/ab", "http://h:1/ab"),
            ("https://other/x", "https://other/x"),
        ] {
            let found = upstream.location(&target, &HeaderValue::from_static(location));
            assert_eq!(found.unwrap(), expected, "{location}");
        }
    }

    #[test]
    fn refuses_other_schemes() {
        for url in ["ftp://h/", "h/a", "http://h/?x"] {
            let config = OriginConfig::new("/p".parse().unwrap(), url.into());
            assert!(Upstream::new(&config).is_err(), "{url}");
        }
    }

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
