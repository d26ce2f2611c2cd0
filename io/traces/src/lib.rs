//! Sends spans of `tracing` to an OpenTelemetry collector, by OTLP over HTTP.
//!
//! [`Exporter::start`] reads the environment variables of OpenTelemetry. Without an endpoint there
//! is no exporter. [`Exporter::layer`] belongs into the subscriber of the program, and
//! [`Exporter::finish`] sends what waits.

mod client;
mod delivery;
mod settings;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry::propagation::TextMapPropagator;
use opentelemetry::trace::TracerProvider;
use opentelemetry_otlp::{SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::resource::EnvResourceDetector;
use opentelemetry_sdk::trace::{BatchSpanProcessor, SdkTracerProvider};
use tracing::{Metadata, Span, Subscriber};
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::FilterFn;
use tracing_subscriber::registry::LookupSpan;

pub use self::delivery::Undelivered;
pub use self::settings::SettingsError;

use self::client::CollectorClient;
use self::delivery::{CountingExporter, CountingProcessor, Delivery};
use self::settings::{Environment, Settings};

/// How long [`Exporter::finish`] waits for the collector.
const FINISH_TIMEOUT: Duration = Duration::from_millis(1500);

/// The span of another program that started this one, in the format of W3C Trace Context.
const TRACE_PARENT: &str = "TRACEPARENT";
const TRACE_STATE: &str = "TRACESTATE";

/// Sends spans in the background.
pub struct Exporter {
    provider: SdkTracerProvider,
    delivery: Arc<Delivery>,
}

impl Exporter {
    /// Starts an exporter for `service`, such as `weir-get`, of this `version`. `None` unless
    /// `environment` names a collector. It has the values of environment variables.
    ///
    /// # Errors
    /// A variable has a value that cannot be used.
    pub fn start(
        service: &str,
        version: &str,
        environment: Environment<'_>,
    ) -> Result<Option<Self>, SettingsError> {
        let Some(settings) = Settings::read(environment)? else { return Ok(None) };
        let delivery = Arc::new(Delivery::new(settings.endpoint.clone()));
        let client = CollectorClient::new(&settings, delivery.clone())?;
        let exporter = SpanExporter::builder()
            .with_http()
            .with_http_client(client)
            .with_endpoint(&settings.endpoint)
            .with_timeout(settings.timeout)
            .build()
            .map_err(|error| SettingsError::Exporter(delivery.message_of(&error)))?;
        let exporter = CountingExporter::new(exporter, delivery.clone());
        let processor = BatchSpanProcessor::builder(exporter).build();
        let provider = SdkTracerProvider::builder()
            .with_resource(resource(service, version, environment))
            .with_span_processor(CountingProcessor::new(processor, delivery.clone()))
            .build();
        Ok(Some(Self { provider, delivery }))
    }

    /// Passes the spans of Weir's crates to this exporter.
    pub fn layer<S>(&self) -> Box<dyn Layer<S> + Send + Sync>
    where
        S: Subscriber + for<'a> LookupSpan<'a> + Send + Sync,
    {
        let layer = tracing_opentelemetry::layer()
            .with_tracer(self.provider.tracer("weir"))
            .with_location(false)
            .with_threads(false)
            .with_target(false)
            .with_tracked_inactivity(false)
            .with_context_activation(false);
        Box::new(layer.with_filter(FilterFn::new(is_span_of_weir)))
    }

    /// Sends what waits, for at most 1.5 s.
    ///
    /// # Errors
    /// The collector has not received all spans.
    pub fn finish(self) -> Result<(), Undelivered> {
        let is_finished = self.provider.shutdown_with_timeout(FINISH_TIMEOUT).is_ok();
        self.delivery.check(is_finished)
    }
}

fn is_span_of_weir(metadata: &Metadata<'_>) -> bool {
    let target = metadata.target();
    let is_of_weir = target
        .strip_prefix("weir")
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('_') || rest.starts_with("::"));
    metadata.is_span() && is_of_weir
}

/// What all spans share. The user's attributes replace ours.
fn resource(service: &str, version: &str, environment: Environment<'_>) -> Resource {
    let of_program = [
        KeyValue::new("service.version", version.to_owned()),
        KeyValue::new("process.pid", i64::from(std::process::id())),
    ];
    let of_host = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let of_host = of_host.map(|name| KeyValue::new("host.name", name.trim().to_owned()));
    let mut builder = Resource::builder_empty()
        .with_service_name(service.to_owned())
        .with_attributes(of_program.into_iter().chain(of_host))
        .with_detector(Box::new(EnvResourceDetector::new()));
    if let Some(name) = environment("OTEL_SERVICE_NAME").filter(|name| !name.is_empty()) {
        builder = builder.with_service_name(name);
    }
    builder.build()
}

/// Makes `span` a child of the span that `TRACEPARENT` names, if it does. Workflow engines set it
/// for the programs that they start. Call it before the span has children.
pub fn adopt_parent_of_environment(span: &Span) {
    let carrier: HashMap<String, String> = [TRACE_PARENT, TRACE_STATE]
        .into_iter()
        .filter_map(|name| Some((name.to_lowercase(), std::env::var(name).ok()?)))
        .collect();
    if carrier.contains_key("traceparent") {
        // Fails if no exporter receives the span. An invalid value has no effect.
        let _ = span.set_parent(TraceContextPropagator::new().extract(&carrier));
    }
}
