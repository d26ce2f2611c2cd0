//! Requests to the server.

use std::error::Error as _;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt};
use http::Method;
#[cfg(feature = "s3")]
use http::StatusCode;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, RequestBuilder, Url};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use weir_base::without_secrets;
use weir_wire::{NAME_COMPONENTS_MAX, NameView};

#[cfg(feature = "s3")]
use super::bucket::Bucket;
use super::response::{Body, BodyLimits, Counters, Problem, Response, without_user};
use crate::config::OriginConfig;
use crate::names;

const USER_AGENT: &str = concat!("weir-gateway/", env!("CARGO_PKG_VERSION"));
const VIA: HeaderValue = HeaderValue::from_static("1.1 weir-gateway");
/// Components of the longest names of an object's packets, below its own name.
const COMPONENTS_BELOW_OBJECT: usize = 3;
/// Request headers that no name may carry: they identify a client, frame a message, or are set
/// here.
const FORBIDDEN_HEADERS: [HeaderName; 19] = [
    header::ACCEPT_ENCODING,
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

fn client(scheme: &str, timeout: Duration) -> Result<Client, String> {
    // The second origin finds it installed.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let mut builder = Client::builder()
        .user_agent(USER_AGENT)
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy()
        .http1_only()
        .connect_timeout(timeout);
    if scheme == "http" {
        // A client that may use TLS does not start on a system without CA certificates.
        builder = builder.tls_certs_only([]);
    }
    builder.build().map_err(|error| {
        let cause = error.source().map_or_else(|| error.to_string(), ToString::to_string);
        format!(
            "the HTTP client does not start: {cause}. For https://, this system needs CA \
             certificates: on Debian, install ca-certificates, or name a file in SSL_CERT_FILE"
        )
    })
}

/// The headers that names may carry.
fn varying_headers(config: &OriginConfig) -> Result<Vec<HeaderName>, String> {
    let names = config.vary.iter().map(|text| {
        let name = text.parse().ok().filter(|name| !FORBIDDEN_HEADERS.contains(name));
        name.ok_or_else(|| {
            format!(
                "`vary` must not list `{text}`; choose headers on which the content depends and \
                 that identify no client"
            )
        })
    });
    names.collect()
}

/// Whether the packets of this object would have more components than routers forward.
pub(super) fn is_too_deep(object: NameView<'_>) -> bool {
    object.component_count() + COMPONENTS_BELOW_OBJECT > NAME_COMPONENTS_MAX
}

/// A resource of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) url: Url,
    headers: HeaderMap,
    /// How much longer than usual the server may take to answer.
    patience: Duration,
}

impl Target {
    /// Another resource that is requested in the same way.
    pub(super) fn with_url(&self, url: Url) -> Self {
        Self { url, ..self.clone() }
    }

    /// The same resource, where the server may take longer.
    pub(super) fn with_patience(&self, patience: Duration) -> Self {
        Self { patience, ..self.clone() }
    }
}

enum Server {
    Http(Client),
    #[cfg(feature = "s3")]
    Bucket(Bucket),
}

/// The server, with limits on requests.
pub(super) struct Upstream {
    /// Without a slash at its end.
    base: Url,
    prefix_components: usize,
    /// The headers that names may carry.
    vary: Vec<HeaderName>,
    server: Server,
    timeout: Duration,
    permits: Arc<Semaphore>,
    counters: Arc<Counters>,
}

impl Upstream {
    /// # Errors
    /// The URL is invalid, or the client cannot be made.
    pub(super) fn new(config: &OriginConfig) -> Result<Self, String> {
        let shown = without_secrets(&config.url);
        let base = Url::parse(config.url.trim_end_matches('/'))
            .map_err(|error| format!("`{shown}` is not a URL: {error}"))?;
        let timeout = Duration::from_nanos(config.timeout.ns);
        let server = match base.scheme() {
            _ if base.query().is_some() => return Err(format!("`{shown}` must not have a query")),
            "http" | "https" => Server::Http(client(base.scheme(), timeout)?),
            #[cfg(feature = "s3")]
            "s3" => Server::Bucket(Bucket::open(&config.url)?),
            #[cfg(not(feature = "s3"))]
            "s3" => {
                let advice = "build this program with the feature `s3`";
                return Err(format!("`{shown}` is in a bucket; {advice}"));
            }
            _ => return Err(format!("`{shown}` must begin with http://, https:// or s3://")),
        };
        Ok(Self {
            base,
            prefix_components: config.prefix.as_view().component_count(),
            vary: varying_headers(config)?,
            server,
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
        if is_too_deep(object) {
            return None;
        }
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
            if !self.vary.contains(&name) {
                return None;
            }
            headers.append(name, HeaderValue::from_str(value).ok()?);
        }
        Some(Target { url, headers, patience: Duration::ZERO })
    }

    /// The `Location` of a response for this resource: relative where it is below the server's URL,
    /// so that it holds for each host under which fronts serve it. Without user and password.
    fn location(&self, target: &Target, location: &HeaderValue) -> Option<HeaderValue> {
        let to = without_user(&target.url.join(location.to_str().ok()?).ok()?);
        let base = without_user(&self.base);
        let base = base.as_str().trim_end_matches('/');
        let is_below = to.as_str().strip_prefix(base);
        let text =
            match is_below.is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '?'])) {
                true => target.url.make_relative(&to)?,
                false => to.to_string(),
            };
        HeaderValue::from_str(&text).ok()
    }

    /// Rewrites the fields that refer to other resources of the server.
    pub(super) fn localize(&self, target: &Target, fields: &mut HeaderMap) {
        for name in [header::LOCATION, header::CONTENT_LOCATION] {
            let value = fields.get(&name).and_then(|value| self.location(target, value));
            if let Some(value) = value {
                fields.insert(name, value);
            }
        }
    }

    /// Requests a resource, or a range of it.
    pub(super) async fn get(
        &self,
        target: &Target,
        range: Option<Range<u64>>,
        conditions: HeaderMap,
    ) -> Result<Response, Problem> {
        let time = self.timeout + target.patience;
        let answer = async |permit| match &self.server {
            Server::Http(client) => {
                let mut request = client.request(Method::GET, target.url.clone());
                request = request.headers(target.headers.clone()).headers(conditions);
                if let Some(range) = range {
                    let range = format!("bytes={}-{}", range.start, range.end.saturating_sub(1));
                    request = request.header(header::RANGE, range);
                }
                self.answer_of(request, permit).await
            }
            #[cfg(feature = "s3")]
            Server::Bucket(bucket) => {
                bucket.get(&target.url, range, conditions, self.body_limits(permit)).await
            }
        };
        self.limited(time, answer).await
    }

    /// Sends a request with a body, once. The caller limits its time.
    pub(super) async fn send(
        &self,
        method: &Method,
        target: &Target,
        fields: HeaderMap,
        body: Bytes,
    ) -> Result<Response, Problem> {
        let answer = async |permit| match &self.server {
            Server::Http(client) => {
                let request = client.request(method.clone(), target.url.clone());
                let request = request.headers(target.headers.clone()).headers(fields).body(body);
                self.answer_of(request, permit).await
            }
            #[cfg(feature = "s3")]
            Server::Bucket(_) => Err(Problem::new(
                StatusCode::METHOD_NOT_ALLOWED,
                "Buckets are only read by this gateway.",
            )),
        };
        self.limited(Duration::MAX, answer).await
    }

    /// Limits a request in time, and the number of requests.
    async fn limited(
        &self,
        time: Duration,
        answer: impl AsyncFnOnce(OwnedSemaphorePermit) -> Result<Response, Problem>,
    ) -> Result<Response, Problem> {
        let permit = tokio::time::timeout(self.timeout, self.permits.clone().acquire_owned());
        let permit = permit.await.map_err(|_| Problem::busy())?.expect("never closed");
        Counters::add(&self.counters.requests, 1);
        let late = |_| Problem::timeout("The server of this content did not answer in time.");
        let result = tokio::time::timeout(time, answer(permit)).await.map_err(late).flatten();
        result.inspect_err(|_| Counters::add(&self.counters.failures, 1))
    }

    fn body_limits(&self, permit: OwnedSemaphorePermit) -> BodyLimits {
        BodyLimits { timeout: self.timeout, permit, counters: self.counters.clone() }
    }

    async fn answer_of(
        &self,
        request: RequestBuilder,
        permit: OwnedSemaphorePermit,
    ) -> Result<Response, Problem> {
        let request = request.header(header::ACCEPT_ENCODING, "identity").header(header::VIA, VIA);
        let response = request.send().await.map_err(problem_of)?;
        let (status, fields) = (response.status(), response.headers().clone());
        let length = response.content_length();
        let pieces = response.bytes_stream().map_err(problem_of).boxed();
        Ok(Response { status, fields, length, body: Body::new(pieces, self.body_limits(permit)) })
    }
}

fn problem_of(error: reqwest::Error) -> Problem {
    let problem = if error.is_timeout() {
        Problem::timeout("The server of this content did not accept a connection in time.")
    } else if error.is_connect() {
        Problem::bad_gateway("The server of this content refuses connections. Try again later.")
    } else {
        Problem::bad_gateway("The response of the server is malformed, or ended early.")
    };
    // The URL may have a password.
    let error = error.without_url();
    let (mut text, mut cause) = (error.to_string(), error.source());
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    Problem { cause: Some(text), ..problem }
}

#[cfg(test)]
mod tests {
    use weir_wire::Name;

    use super::*;

    fn upstream(url: &str) -> Upstream {
        let mut config = OriginConfig::new("/p".parse().unwrap(), url.into());
        config.vary = vec!["Accept-Language".into()];
        Upstream::new(&config).unwrap()
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
            ("http://h:1", "/p/b/32=%40accept-language%3Dde", Some("http://h:1/b")),
            ("http://h:1", "/p/b/32=%40accept%3Dtext", None),
            ("http://h:1", "/p/...../c", None),
        ] {
            assert_eq!(url(base, name).as_deref(), found, "{base} {name}");
        }
    }

    #[test]
    fn refuses_names_too_deep_for_packets() {
        let of = |components: usize| url("http://h", &format!("/p{}", "/a".repeat(components - 1)));
        assert!(of(61).is_some());
        for components in 62..=64 {
            assert_eq!(of(components), None, "{components}");
        }
    }

    #[test]
    fn refuses_headers_that_identify_clients() {
        for header in ["Cookie", "host", "a b", ""] {
            let mut config = OriginConfig::new("/p".parse().unwrap(), "http://h".into());
            config.vary = vec![header.into()];
            assert!(Upstream::new(&config).is_err_and(|error| error.contains(header)), "{header}");
        }
    }

    /// The password of the server is for the log no more than for clients.
    #[tokio::test]
    async fn problems_name_their_cause() {
        let nowhere = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let upstream = upstream(&format!("http://user:secret@{nowhere}"));
        let name: Name = "/p/a".parse().unwrap();
        let target = upstream.target(name.as_view()).unwrap();
        let problem = upstream.get(&target, None, HeaderMap::new()).await.err().unwrap();
        let cause = problem.cause.unwrap();
        assert!(cause.contains("refused") && !cause.contains("secret"), "{cause}");
        assert_eq!(without_user(&target.url).as_str(), format!("http://{nowhere}/a"));
    }

    #[test]
    fn redirects_hide_user_and_password() {
        let upstream = upstream("http://user:secret@h:1/a");
        let name: Name = "/p/b/c".parse().unwrap();
        let target = upstream.target(name.as_view()).unwrap();
        for (location, expected) in [
            ("/ab", "http://h:1/ab"),
            ("/a/d", "../d"),
            ("http://h:1/a/d", "../d"),
            ("http://user:secret@other/", "http://other/"),
        ] {
            let found = upstream.location(&target, &HeaderValue::from_static(location));
            assert_eq!(found.unwrap(), expected, "{location}");
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
        for url in ["ftp://h/", "h/a", "http://h/?x", "ftp://me:secret@h/", "http://h/?key=secret"]
        {
            let config = OriginConfig::new("/p".parse().unwrap(), url.into());
            let refused = Upstream::new(&config).err();
            assert!(refused.is_some_and(|error| !error.contains("secret")), "{url}");
        }
    }
}
