//! Traces of this program for an OpenTelemetry collector: feature `otlp`. The environment names the
//! collector; without one, nothing is sent. docs/monitoring/traces.md lists the spans.

#[cfg(not(feature = "otlp"))]
mod disabled;
#[cfg(feature = "otlp")]
mod enabled;

#[cfg(not(feature = "otlp"))]
pub(crate) use disabled::Traces;
#[cfg(feature = "otlp")]
pub(crate) use enabled::Traces;

/// A part of a subscriber: it takes spans or logs.
pub(crate) type TraceLayer =
    Box<dyn tracing_subscriber::Layer<tracing_subscriber::Registry> + Send + Sync>;
