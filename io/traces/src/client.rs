//! Requests to the collector.

use std::sync::Arc;

use async_trait::async_trait;
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceResponse;
use prost::Message;
use ureq::Agent;
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};

use crate::delivery::Delivery;
use crate::settings::{Settings, SettingsError};

/// Size limit of a response.
const RESPONSE_BYTES_MAX: u64 = 1 << 20;
/// How much of an error's text is reported.
const REASON_CHARS_MAX: usize = 200;

/// Sends requests on the thread of the batch processor, which may block.
#[derive(Debug)]
pub(crate) struct CollectorClient {
    http: Agent,
    delivery: Arc<Delivery>,
}

impl CollectorClient {
    pub(crate) fn new(settings: &Settings, delivery: Arc<Delivery>) -> Result<Self, SettingsError> {
        let mut builder = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .proxy(None)
            .timeout_global(Some(settings.timeout))
            .user_agent(concat!("weir-traces/", env!("CARGO_PKG_VERSION")));
        if settings.is_encrypted() {
            builder = builder.tls_config(tls(settings)?);
        }
        Ok(Self { http: builder.build().new_agent(), delivery })
    }

    fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, ureq::Error> {
        let (head, body) = request.into_parts();
        let mut response = self.http.run(Request::from_parts(head, &body[..]))?;
        let body = response.body_mut().with_config().limit(RESPONSE_BYTES_MAX).read_to_vec()?;
        let (head, _) = response.into_parts();
        Ok(Response::from_parts(head, body.into()))
    }
}

#[async_trait]
impl HttpClient for CollectorClient {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let response = self.send(request);
        match &response {
            Err(error) => self.delivery.set_error(error),
            Ok(response) if !response.status().is_success() => {
                self.delivery.set_error(&reason(response));
            }
            Ok(response) => {
                // A response that cannot be decoded does not say that spans were refused.
                let decoded = ExportTraceServiceResponse::decode(response.body().clone());
                if let Some(partial) = decoded.ok().and_then(|decoded| decoded.partial_success) {
                    self.delivery.add_rejected(partial.rejected_spans, partial.error_message);
                }
            }
        }
        Ok(response?)
    }
}

/// Why a collector refused a request: its status, and the beginning of its text.
fn reason(response: &Response<Bytes>) -> String {
    let text = String::from_utf8_lossy(response.body());
    // A body in protobuf has its text between bytes of control.
    let text: String = text.chars().filter(|c| !c.is_control()).take(REASON_CHARS_MAX).collect();
    match text.trim() {
        "" => format!("status {}", response.status()),
        text => format!("status {}: {text}", response.status()),
    }
}

fn tls(settings: &Settings) -> Result<TlsConfig, SettingsError> {
    let roots = match &settings.certificates {
        Some((name, path)) => {
            let fail = |why: String| SettingsError::Certificates {
                name: name.clone(),
                path: path.clone(),
                why,
            };
            let pem = std::fs::read(path).map_err(|error| fail(error.to_string()))?;
            let found: Vec<_> = parse_pem(&pem).filter_map(Result::ok).collect();
            let found: Vec<_> = found.into_iter().filter_map(certificate).collect();
            if found.is_empty() {
                return Err(fail("the file has no certificate in PEM".to_owned()));
            }
            found
        }
        None => {
            let found = rustls_native_certs::load_native_certs().certs;
            if found.is_empty() {
                return Err(SettingsError::NoCertificates);
            }
            found.iter().map(|found| Certificate::from_der(found).to_owned()).collect()
        }
    };
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    Ok(TlsConfig::builder()
        .unversioned_rustls_crypto_provider(provider)
        .root_certs(RootCerts::new_with_certs(&roots))
        .build())
}

fn certificate(item: PemItem<'static>) -> Option<Certificate<'static>> {
    match item {
        PemItem::Certificate(certificate) => Some(certificate),
        _ => None,
    }
}
