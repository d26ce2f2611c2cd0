//! Requests to the controller.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};
use weir_control::message::{
    Configuration, Forward, Forwarded, Refusal, Registered, RouterReport, Update, UpdateNumber,
};
use weir_wire::Name;

use crate::config::{AgentConfig, AgentError};

/// How long an answer may take, beyond what is waited for on purpose.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Octets of an answer at most.
const ANSWER_BYTES_MAX: u64 = 64 << 20;

/// The controller, as one router sees it.
#[derive(Clone, Debug)]
pub(crate) struct Rest {
    http: ureq::Agent,
    /// Of this router's resources.
    base: String,
    authorization: Option<String>,
}

/// Why a request brought nothing.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub(crate) enum RestError {
    /// The controller refuses.
    #[error("the controller refuses it ({status}): {text}")]
    Refused {
        status: u16,
        text: String,
        expected: Option<UpdateNumber>,
        /// After which it may be tried again.
        retry_after: Option<Duration>,
    },
    /// It does not answer, or what it says makes no sense.
    #[error("{0}")]
    Failed(String),
}

impl RestError {
    /// Whether the controller does not know this router, or not any more.
    pub(crate) fn is_unknown(&self) -> bool {
        matches!(self, Self::Refused { status: 404, .. })
    }

    /// Whether it is the request itself that is wrong, so that it is refused again.
    pub(crate) fn is_about_body(&self) -> bool {
        matches!(self, Self::Refused { status: 400 | 413 | 422, .. })
    }

    pub(crate) fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Refused { retry_after, .. } => *retry_after,
            Self::Failed(_) => None,
        }
    }
}

impl Rest {
    pub(crate) fn new(config: &AgentConfig) -> Result<Self, AgentError> {
        let mut builder = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .proxy(None)
            .user_agent(concat!("weir-agent/", env!("CARGO_PKG_VERSION")));
        if let Some(pem) = &config.ca_pem {
            builder = builder.tls_config(tls(pem)?);
        }
        let http = builder.build().new_agent();
        let base = format!("{}/v1/routers/{}", config.url.trim_end_matches('/'), config.name);
        let authorization = config.token.as_ref().map(|token| format!("Bearer {token}"));
        Ok(Self { http, base, authorization })
    }

    pub(crate) fn report(&self, report: &RouterReport) -> Result<Registered, RestError> {
        let request = self.http.put(&self.base);
        answer(self.send(request, report)?)
    }

    pub(crate) fn update(&self, update: &Update) -> Result<(), RestError> {
        let request = self.http.post(format!("{}/updates", self.base));
        self.send(request, update).map(drop)
    }

    pub(crate) fn forward(&self, object: &Name) -> Result<Forwarded, RestError> {
        let request = self.http.post(format!("{}/forward", self.base));
        answer(self.send(request, &Forward { object: object.clone() })?)
    }

    /// The configuration after the one of this generation; nothing if there is none within
    /// `wait_s`.
    pub(crate) fn configuration(
        &self,
        after: u64,
        wait_s: u64,
    ) -> Result<Option<Configuration>, RestError> {
        let uri = format!("{}/config?after={after}&wait={wait_s}", self.base);
        let mut request = self.http.get(uri);
        if let Some(authorization) = &self.authorization {
            request = request.header("Authorization", authorization);
        }
        let timeout = TIMEOUT + Duration::from_secs(wait_s);
        let sent = request.config().timeout_global(Some(timeout)).build().call();
        match check(sent)? {
            octets if octets.is_empty() => Ok(None),
            octets => answer(octets).map(Some),
        }
    }

    fn send(
        &self,
        mut request: ureq::RequestBuilder<ureq::typestate::WithBody>,
        body: &impl Serialize,
    ) -> Result<Vec<u8>, RestError> {
        if let Some(authorization) = &self.authorization {
            request = request.header("Authorization", authorization);
        }
        let body =
            serde_json::to_vec(body).map_err(|error| RestError::Failed(error.to_string()))?;
        let request = request.header("Content-Type", "application/json");
        check(request.config().timeout_global(Some(TIMEOUT)).build().send(body))
    }
}

fn tls(pem: &[u8]) -> Result<TlsConfig, AgentError> {
    let mut certificates: Vec<Certificate<'static>> = Vec::new();
    for item in parse_pem(pem) {
        match item {
            Ok(PemItem::Certificate(certificate)) => certificates.push(certificate),
            Ok(_) => {}
            Err(error) => return Err(AgentError::Certificates(error.to_string())),
        }
    }
    if certificates.is_empty() {
        return Err(AgentError::Certificates("there is none".into()));
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    Ok(TlsConfig::builder()
        .unversioned_rustls_crypto_provider(provider)
        .root_certs(RootCerts::new_with_certs(&certificates))
        .build())
}

/// The body of a success.
fn check(
    sent: Result<ureq::http::Response<ureq::Body>, ureq::Error>,
) -> Result<Vec<u8>, RestError> {
    let failed = |error: ureq::Error| RestError::Failed(error.to_string());
    let mut response = sent.map_err(failed)?;
    let status = response.status();
    let retry_after = response
        .headers()
        .get("Retry-After")
        .and_then(|value| value.to_str().ok()?.trim().parse().ok().map(Duration::from_secs));
    let octets =
        response.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_vec().map_err(failed)?;
    if status.is_success() {
        return Ok(octets);
    }
    let refusal = serde_json::from_slice::<Refusal>(&octets).ok();
    let (text, expected) = match refusal {
        Some(Refusal { error, expected }) => (error, expected),
        None => ("it does not say why".to_owned(), None),
    };
    Err(RestError::Refused { status: status.as_u16(), text, expected, retry_after })
}

fn answer<T: DeserializeOwned>(octets: Vec<u8>) -> Result<T, RestError> {
    serde_json::from_slice(&octets)
        .map_err(|error| RestError::Failed(format!("its answer makes no sense: {error}")))
}
