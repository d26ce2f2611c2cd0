//! HTTP requests to the controller.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use miniz_oxide::deflate::compress_to_vec_zlib;
use serde::Serialize;
use serde::de::DeserializeOwned;
use weir_base::without_secrets;
use weir_control::message::{
    Configuration, Forward, Forwarded, Refusal, Registered, RouterReport, Update, UpdateNumber,
};
use weir_wire::Name;

use crate::access::Access;
use crate::config::AgentConfig;
use crate::error::AgentError;
use crate::shared::unix_time_ms;

/// How long an answer may take, in addition to a requested wait.
const TIMEOUT: Duration = Duration::from_secs(5);
/// How long a health check may take.
const HEALTH_TIMEOUT: Duration = Duration::from_secs(2);
/// Smaller bodies are not compressed, because they fit in one packet anyway.
const DEFLATED_MIN: usize = 1000;
/// The usual level of zlib.
const LEVEL: u8 = 6;
/// Maximum size of an answer in bytes: that of a configuration with 200,000 routes.
const ANSWER_BYTES_MAX: u64 = 16 << 20;

/// How often preferred controllers, earlier in the list, are retried.
const PREFERRED_RETRY: Duration = Duration::from_secs(30);

/// The controllers that share a database, and the token for requests to them.
///
/// Requests go to the first controller that answers. Earlier ones in the list are retried from time
/// to time, so that all routers with one list return to the same controller.
#[derive(Clone, Debug)]
pub(crate) struct ControllerClient {
    http: ureq::Agent,
    /// Without a slash at the end.
    urls: Arc<[String]>,
    /// The index of the controller in use, shared by all clones.
    current: Arc<AtomicUsize>,
    /// When earlier controllers were retried last.
    retried_at: Arc<Mutex<Option<Instant>>>,
    token: Arc<Mutex<Option<String>>>,
    /// The token is read again from here when a controller refuses it.
    token_file: Option<PathBuf>,
    pub(crate) health: Arc<ControllerHealth>,
}

/// Counters of results, for metrics.
#[derive(Debug, Default)]
pub(crate) struct ControllerHealth {
    /// Whether the last request was answered.
    pub(crate) is_reachable: AtomicBool,
    pub(crate) refused: AtomicU64,
    /// Requests that no controller answered.
    pub(crate) unanswered: AtomicU64,
    /// Since when each request was answered, in milliseconds since 1970; 0 while none is.
    pub(crate) connected_ms: AtomicU64,
}

impl ControllerHealth {
    fn note<T>(&self, result: &Result<T, RestError>) {
        let is_unanswered = matches!(result, Err(RestError::Unreachable(_)));
        let was_reachable = self.is_reachable.swap(!is_unanswered, Ordering::Relaxed);
        if was_reachable == is_unanswered {
            let since_ms = if is_unanswered { 0 } else { unix_time_ms() };
            self.connected_ms.store(since_ms, Ordering::Relaxed);
        }
        match result {
            Err(RestError::Unreachable(_)) => _ = self.unanswered.fetch_add(1, Ordering::Relaxed),
            // 404 means that the controller has no report of this router yet. That does not count
            // as refused.
            Err(error) if !error.is_unknown() => _ = self.refused.fetch_add(1, Ordering::Relaxed),
            _ => {}
        }
    }
}

/// The controller's interface for one router.
#[derive(Clone, Debug)]
pub(crate) struct RouterClient {
    http: ControllerClient,
    path: String,
}

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub(crate) enum RestError {
    #[error("the controller refuses the request ({status}): {text}")]
    Refused {
        status: u16,
        text: String,
        expected: Option<UpdateNumber>,
        /// The controller's `Retry-After`.
        retry_after: Option<Duration>,
    },
    /// The controller does not answer.
    #[error("{0}")]
    Unreachable(String),
    /// The controller answers, but the answer is unusable. The request may have been carried out.
    #[error("the controller's answer cannot be used: {0}")]
    BadAnswer(String),
}

impl RestError {
    /// Whether the controller does not know this router, or no longer knows it.
    pub(crate) fn is_unknown(&self) -> bool {
        matches!(self, Self::Refused { status: 404, .. })
    }

    /// As an answer to a report: another router has this router's name.
    pub(crate) fn is_name_taken(&self) -> bool {
        matches!(self, Self::Refused { status: 409, .. })
    }

    /// Whether another controller should be tried.
    fn is_unreachable(&self) -> bool {
        matches!(self, Self::Unreachable(_) | Self::Refused { status: 502..=504, .. })
    }

    /// Whether the request itself is wrong, so that a retry would fail again.
    pub(crate) fn is_bad_request(&self) -> bool {
        matches!(self, Self::Refused { status: 400 | 413 | 422, .. })
    }

    /// Whether the same request may succeed later.
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            Self::Refused { status, .. } => matches!(status, 408 | 429 | 500..=599),
            Self::Unreachable(_) | Self::BadAnswer(_) => true,
        }
    }

    /// Whether only the answer is unusable. Other requests need not wait.
    pub(crate) fn is_bad_answer(&self) -> bool {
        matches!(self, Self::BadAnswer(_))
    }

    pub(crate) fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Refused { retry_after, .. } => *retry_after,
            Self::Unreachable(_) | Self::BadAnswer(_) => None,
        }
    }
}

impl ControllerClient {
    pub(crate) fn new(access: &Access) -> Result<Self, AgentError> {
        let tls = access.tls()?;
        let mut builder = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .proxy(None)
            .user_agent(concat!("weir-agent/", env!("CARGO_PKG_VERSION")));
        if let Some(tls) = tls {
            builder = builder.tls_config(tls);
        }
        let http = builder.build().new_agent();
        let urls = access.urls().map(|url| url.trim_end_matches('/').to_owned()).collect();
        let token = Arc::new(Mutex::new(access.token.clone()));
        let token_file = access.token_file.clone();
        let (at, tried, health) = (Arc::default(), Arc::default(), Arc::default());
        Ok(Self { http, urls, current: at, retried_at: tried, token, token_file, health })
    }

    pub(crate) fn put(&self, path: &str, body: &impl Serialize) -> Result<Vec<u8>, RestError> {
        self.send_with_token(|url| self.send(self.http.put(format!("{url}{path}")), body))
    }

    pub(crate) fn post(&self, path: &str, body: &impl Serialize) -> Result<Vec<u8>, RestError> {
        self.send_with_token(|url| self.send(self.http.post(format!("{url}{path}")), body))
    }

    /// Sends a request. If a controller refuses the token and the token file has changed, sends the
    /// request again with the new token.
    fn send_with_token<T>(
        &self,
        send: impl Fn(&str) -> Result<T, RestError>,
    ) -> Result<T, RestError> {
        let used = self.token();
        let mut result = self.send_to_any(&send);
        // 403: the file may have contained the token of another router.
        let is_refused = matches!(result, Err(RestError::Refused { status: 401 | 403, .. }));
        if is_refused && self.read_token_again(used.as_deref()) {
            result = self.send_to_any(&send);
        }
        self.health.note(&result);
        result
    }

    fn token(&self) -> Option<String> {
        self.token.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads the token file. Returns whether the token now differs from the used one.
    fn read_token_again(&self, used: Option<&str>) -> bool {
        let Some(path) = &self.token_file else { return false };
        let read = match std::fs::read_to_string(path) {
            Ok(text) => text.trim().to_owned(),
            Err(error) => {
                let path = path.display();
                tracing::warn!(
                    %path, %error,
                    "the controller refuses the token, and its file cannot be read"
                );
                return false;
            }
        };
        if read.is_empty() || read.contains(|letter: char| letter.is_control()) {
            let path = path.display();
            tracing::warn!(
                %path,
                "the controller refuses the token, and its file contains no token in one line"
            );
            return false;
        }
        let mut token = self.token.lock().unwrap_or_else(PoisonError::into_inner);
        if token.as_deref() != Some(read.as_str()) {
            tracing::info!(
                path = %path.display(),
                "the controller refuses the token; the new one from its file is used"
            );
            *token = Some(read);
        }
        token.as_deref() != used
    }

    /// Sends a request to the current controller, and to the others in turn while it is
    /// unreachable.
    fn send_to_any<T>(&self, send: impl Fn(&str) -> Result<T, RestError>) -> Result<T, RestError> {
        self.retry_preferred();
        let first = self.current.load(Ordering::Relaxed);
        let mut at = first;
        loop {
            let error = match send(&self.urls[at]) {
                Err(error) if error.is_unreachable() => error,
                answered => return answered,
            };
            // After the last controller of the list the first one follows. Each is tried once.
            let next = (at + 1) % self.urls.len();
            if next == first {
                return Err(error);
            }
            let [controller, next_controller] =
                [at, next].map(|at| without_secrets(&self.urls[at]));
            tracing::warn!(
                controller, next = next_controller, %error,
                "a controller does not answer; the next one is used"
            );
            self.current.store(next, Ordering::Relaxed);
            *self.retried_at.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
            at = next;
        }
    }

    /// Returns to an earlier controller of the list if it answers again.
    fn retry_preferred(&self) {
        let present = self.current.load(Ordering::Relaxed);
        // Release the lock before the health checks, which may take seconds.
        {
            let mut tried = self.retried_at.lock().unwrap_or_else(PoisonError::into_inner);
            let is_due = tried.is_none_or(|at| at.elapsed() >= PREFERRED_RETRY);
            if present == 0 || !is_due {
                return;
            }
            *tried = Some(Instant::now());
        }
        let is_there = |url: &&String| {
            let request = self.http.get(format!("{url}/health"));
            let answer = request.config().timeout_global(Some(HEALTH_TIMEOUT)).build().call();
            // A controller without its database (503) still decides.
            answer.is_ok_and(|answer| matches!(answer.status().as_u16(), 200 | 503))
        };
        if let Some(at) = self.urls[..present].iter().position(|url| is_there(&url)) {
            tracing::info!(
                controller = without_secrets(&self.urls[at]),
                "an earlier controller answers again and is used"
            );
            self.current.store(at, Ordering::Relaxed);
        }
    }

    pub(crate) fn delete(&self, path: &str, key: &str, value: &str) -> Result<Vec<u8>, RestError> {
        self.send_with_token(|url| {
            let request = self.http.delete(format!("{url}{path}")).query(key, value);
            body_of(self.authorized(request).config().timeout_global(Some(TIMEOUT)).build().call())
        })
    }

    /// Requests an answer that may take `wait` longer than usual.
    pub(crate) fn get<'a>(
        &self,
        path: &str,
        query: impl IntoIterator<Item = (&'a str, &'a str)> + Clone,
        wait: Duration,
    ) -> Result<Vec<u8>, RestError> {
        self.send_with_token(|url| {
            let request = self.http.get(format!("{url}{path}")).query_pairs(query.clone());
            let request = self.authorized(request);
            body_of(request.config().timeout_global(Some(TIMEOUT + wait)).build().call())
        })
    }

    fn authorized<B>(&self, request: ureq::RequestBuilder<B>) -> ureq::RequestBuilder<B> {
        match self.token() {
            Some(token) => request.header("Authorization", format!("Bearer {token}")),
            None => request,
        }
    }

    fn send(
        &self,
        request: ureq::RequestBuilder<ureq::typestate::WithBody>,
        body: &impl Serialize,
    ) -> Result<Vec<u8>, RestError> {
        let mut body =
            serde_json::to_vec(body).map_err(|error| RestError::Unreachable(error.to_string()))?;
        let mut request = self.authorized(request).header("Content-Type", "application/json");
        if body.len() >= DEFLATED_MIN {
            body = compress_to_vec_zlib(&body, LEVEL);
            request = request.header("Content-Encoding", "deflate");
        }
        body_of(request.config().timeout_global(Some(TIMEOUT)).build().send(body))
    }
}

impl RouterClient {
    pub(crate) fn new(config: &AgentConfig) -> Result<Self, AgentError> {
        let http = ControllerClient::new(&config.access)?;
        Ok(Self { http, path: format!("/v1/routers/{}", config.name) })
    }

    pub(crate) fn health(&self) -> Arc<ControllerHealth> {
        Arc::clone(&self.http.health)
    }

    pub(crate) fn report(&self, report: &RouterReport) -> Result<Registered, RestError> {
        parse_answer(self.http.put(&self.path, report)?)
    }

    pub(crate) fn update(&self, update: &Update) -> Result<(), RestError> {
        self.http.post(&format!("{}/updates", self.path), update).map(drop)
    }

    pub(crate) fn forward(&self, object: &Name) -> Result<Forwarded, RestError> {
        let body = Forward { object: object.clone() };
        parse_answer(self.http.post(&format!("{}/forward", self.path), &body)?)
    }

    /// The configuration after generation `after`; none if there is none within `wait_s` seconds.
    pub(crate) fn configuration(
        &self,
        after: u64,
        wait_s: u64,
    ) -> Result<Option<Configuration>, RestError> {
        let (path, wait) = (format!("{}/config", self.path), Duration::from_secs(wait_s));
        let (after, wait_s) = (after.to_string(), wait_s.to_string());
        let query = [("after", after.as_str()), ("wait", wait_s.as_str())];
        match self.http.get(&path, query, wait)? {
            octets if octets.is_empty() => Ok(None),
            octets => parse_answer(octets).map(Some),
        }
    }
}

/// The body of a successful answer.
fn body_of(
    sent: Result<ureq::http::Response<ureq::Body>, ureq::Error>,
) -> Result<Vec<u8>, RestError> {
    let failed = |error: ureq::Error| RestError::Unreachable(error.to_string());
    let mut response = sent.map_err(failed)?;
    let status = response.status();
    // Only the form in seconds is supported; a date is ignored.
    let retry_after = response
        .headers()
        .get("Retry-After")
        .and_then(|value| value.to_str().ok()?.trim().parse().ok().map(Duration::from_secs));
    let read = response.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_vec();
    let octets = read.map_err(|error| match error {
        ureq::Error::BodyExceedsLimit(_) => {
            RestError::BadAnswer(format!("it is larger than {ANSWER_BYTES_MAX} bytes"))
        }
        error => failed(error),
    })?;
    if status.is_success() {
        return Ok(octets);
    }
    let refusal = serde_json::from_slice::<Refusal>(&octets).ok();
    let (text, expected) = match refusal {
        Some(Refusal { error, expected }) => (error, expected),
        None => ("it gives no reason".to_owned(), None),
    };
    Err(RestError::Refused { status: status.as_u16(), text, expected, retry_after })
}

pub(crate) fn parse_answer<T: DeserializeOwned>(octets: Vec<u8>) -> Result<T, RestError> {
    serde_json::from_slice(&octets)
        .map_err(|error| RestError::BadAnswer(format!("it is not the expected JSON: {error}")))
}
