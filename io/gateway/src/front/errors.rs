//! Responses for requests that fail.

use http::header::{self, HeaderValue};
use http::{Response, StatusCode};
use weir_socket::SocketError;

use super::body::{Body, full};
use crate::names::PathError;

/// The methods without uploads, and with them.
pub(super) const METHODS: [&str; 2] =
    ["GET, HEAD, OPTIONS", "GET, HEAD, OPTIONS, PUT, POST, DELETE"];

/// A request that fails: its status, and a reason that says what to do.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) status: StatusCode,
    reason: String,
    /// The methods that the resource has.
    allow: Option<&'static str>,
    /// How to authenticate (RFC 6750, section 3).
    challenge: Option<&'static str>,
}

impl Failure {
    pub(super) fn new(status: StatusCode, reason: impl Into<String>) -> Self {
        Self { status, reason: reason.into(), allow: None, challenge: None }
    }

    pub(super) fn method(allow: &'static str) -> Self {
        let reason = format!("this method is not served here; use one of {allow}");
        Self { allow: Some(allow), ..Self::new(StatusCode::METHOD_NOT_ALLOWED, reason) }
    }

    pub(super) fn unauthorized(challenge: &'static str, reason: &str) -> Self {
        Self { challenge: Some(challenge), ..Self::new(StatusCode::UNAUTHORIZED, reason) }
    }

    pub(super) fn response(&self) -> Response<Body> {
        let mut response = Response::new(full(format!("{}\n", self.reason)));
        *response.status_mut() = self.status;
        let fields = response.headers_mut();
        let text = HeaderValue::from_static("text/plain; charset=utf-8");
        fields.insert(header::CONTENT_TYPE, text);
        fields.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if let Some(allow) = self.allow {
            fields.insert(header::ALLOW, HeaderValue::from_static(allow));
        }
        if let Some(challenge) = self.challenge {
            fields.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
        }
        if [StatusCode::SERVICE_UNAVAILABLE, StatusCode::TOO_MANY_REQUESTS].contains(&self.status) {
            fields.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}

impl From<PathError> for Failure {
    fn from(error: PathError) -> Self {
        let status = match error {
            PathError::TooLong => StatusCode::URI_TOO_LONG,
            PathError::Segment | PathError::Component => StatusCode::BAD_REQUEST,
        };
        Self::new(status, error.to_string())
    }
}

impl From<SocketError> for Failure {
    fn from(error: SocketError) -> Self {
        let status = match &error {
            SocketError::NotFound(_) => StatusCode::NOT_FOUND,
            SocketError::TimedOut(_) => StatusCode::GATEWAY_TIMEOUT,
            SocketError::Incomplete(missing) if !missing.has_no_route() => {
                StatusCode::GATEWAY_TIMEOUT
            }
            SocketError::NotVerified(_) | SocketError::Superseded { .. } => StatusCode::BAD_GATEWAY,
            SocketError::NoRoute(_)
            | SocketError::NoRouter(_)
            | SocketError::RouterTimedOut(_)
            | SocketError::Refused(_)
            | SocketError::Incomplete(_)
            | SocketError::Closed => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self::new(status, error.to_string())
    }
}
