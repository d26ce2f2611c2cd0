//! Counts spans that have ended and spans that the collector has received, and keeps why the
//! others were not delivered.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use opentelemetry::{Context, Value};
use opentelemetry_otlp::SpanExporter;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{BatchSpanProcessor, Span, SpanData, SpanProcessor};
use weir_base::without_secrets;

/// A span in which this field is `true` is not sent: it turned out to contain nothing.
const DISCARD: &str = "weir.discard";

#[derive(Debug)]
pub(crate) struct Delivery {
    /// The URL of the collector, and the same for messages.
    endpoint: String,
    shown_endpoint: String,
    ended: AtomicU64,
    /// Spans in requests that the collector has accepted, with those that it rejected.
    delivered: AtomicU64,
    rejected: AtomicU64,
    /// The latest error of a request.
    error: Mutex<Option<String>>,
    /// A failure has been logged.
    has_logged: AtomicBool,
}

impl Delivery {
    pub(crate) fn new(endpoint: String) -> Self {
        Self {
            shown_endpoint: without_secrets(&endpoint),
            endpoint,
            ended: AtomicU64::new(0),
            delivered: AtomicU64::new(0),
            rejected: AtomicU64::new(0),
            error: Mutex::default(),
            has_logged: AtomicBool::new(false),
        }
    }

    /// The text of an error. Some contain the URL.
    pub(crate) fn message_of(&self, error: &dyn fmt::Display) -> String {
        error.to_string().replace(&self.endpoint, &self.shown_endpoint)
    }

    pub(crate) fn set_error(&self, error: &dyn fmt::Display) {
        let error = self.message_of(error);
        *self.error.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
    }

    fn error(&self) -> Option<String> {
        self.error.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The collector has received a request, and rejected some of its spans.
    pub(crate) fn add_rejected(&self, spans: i64, why: String) {
        let spans = u64::try_from(spans).unwrap_or(0);
        if spans > 0 {
            self.rejected.fetch_add(spans, Ordering::Relaxed);
            self.set_error(&format!("it rejects spans: {why}"));
            self.log_failure();
        }
    }

    /// Logs the first failure. A program without a log reports it at its end.
    fn log_failure(&self) {
        if !self.has_logged.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                endpoint = self.shown_endpoint,
                error = self.error().unwrap_or_default(),
                "cannot deliver traces; check that a collector listens there for OTLP over HTTP"
            );
        }
    }

    /// Whether all spans have been delivered. `is_finished`: the exporter has tried all of them.
    pub(crate) fn check(&self, is_finished: bool) -> Result<(), Undelivered> {
        let [ended, delivered, rejected] = [&self.ended, &self.delivered, &self.rejected]
            .map(|count| count.load(Ordering::Relaxed));
        let lost = ended.saturating_sub(delivered) + rejected;
        if lost == 0 {
            return Ok(());
        }
        let why = match self.error() {
            Some(error) => error,
            None if is_finished => "too many waited; raise OTEL_BSP_MAX_QUEUE_SIZE".to_owned(),
            None => "it does not answer".to_owned(),
        };
        let endpoint = self.shown_endpoint.clone();
        Err(Undelivered { lost, ended, endpoint, why })
    }
}

/// Spans that the collector has not received.
#[derive(Debug)]
pub struct Undelivered {
    pub lost: u64,
    /// All spans, with those that were received.
    pub ended: u64,
    endpoint: String,
    why: String,
}

impl fmt::Display for Undelivered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { lost, ended, endpoint, why } = self;
        write!(
            f,
            "{lost} of {ended} spans were not delivered to {endpoint}: {why}. Check that a \
             collector accepts OTLP over HTTP there, or set OTEL_SDK_DISABLED=true"
        )
    }
}

impl std::error::Error for Undelivered {}

/// Counts spans that end, before the queue can drop them.
#[derive(Debug)]
pub(crate) struct CountingProcessor {
    inner: BatchSpanProcessor,
    delivery: Arc<Delivery>,
}

impl CountingProcessor {
    pub(crate) fn new(inner: BatchSpanProcessor, delivery: Arc<Delivery>) -> Self {
        Self { inner, delivery }
    }
}

impl SpanProcessor for CountingProcessor {
    fn on_start(&self, span: &mut Span, context: &Context) {
        self.inner.on_start(span, context);
    }

    fn on_end(&self, span: SpanData) {
        let is_discarded = span.attributes.iter().any(|attribute| {
            attribute.key.as_str() == DISCARD && attribute.value == Value::Bool(true)
        });
        if !is_discarded && span.span_context.is_sampled() {
            self.delivery.ended.fetch_add(1, Ordering::Relaxed);
            self.inner.on_end(span);
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.inner.force_flush()
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.inner.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.inner.set_resource(resource);
    }
}

/// Counts spans that the collector has received.
#[derive(Debug)]
pub(crate) struct CountingExporter {
    inner: SpanExporter,
    delivery: Arc<Delivery>,
}

impl CountingExporter {
    pub(crate) fn new(inner: SpanExporter, delivery: Arc<Delivery>) -> Self {
        Self { inner, delivery }
    }
}

impl opentelemetry_sdk::trace::SpanExporter for CountingExporter {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let spans = batch.len() as u64;
        let result = self.inner.export(batch).await;
        match result {
            Ok(()) => {
                self.delivery.delivered.fetch_add(spans, Ordering::Relaxed);
            }
            Err(_) => self.delivery.log_failure(),
        }
        result
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.inner.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.inner.set_resource(resource);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_hides_secrets_of_endpoint() {
        let url = "http://me:secret@h/v1/traces?key=secret";
        let delivery = Delivery::new(url.to_owned());
        delivery.ended.store(1, Ordering::Relaxed);
        delivery.set_error(&format!("cannot use {url}"));
        let text = delivery.check(true).unwrap_err().to_string();
        assert!(text.contains("http://***@h/v1/traces?***"), "{text}");
        assert!(text.contains("cannot use") && !text.contains("secret"), "{text}");
    }
}
