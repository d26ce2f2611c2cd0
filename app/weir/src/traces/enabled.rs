//! A build with the feature `otlp`.

use tracing::Span;
use weir_traces::{Exporter, adopt_parent_of_environment};

use super::TraceLayer;

/// Sends traces until it is finished, if the environment names a collector.
pub(crate) struct Traces(Option<Exporter>);

impl Traces {
    /// `service` is the default for `OTEL_SERVICE_NAME`. Also returns why no traces are sent, if a
    /// variable has a bad value: the command must work all the same.
    pub(crate) fn start(service: &str) -> (Self, Option<anyhow::Error>) {
        match Exporter::start(service, env!("WEIR_VERSION"), &|name| std::env::var(name).ok()) {
            Ok(exporter) => (Self(exporter), None),
            Err(error) => {
                (Self(None), Some(anyhow::Error::new(error).context("no traces are sent")))
            }
        }
    }

    /// A part of the program's subscriber.
    pub(crate) fn layer(&self) -> Option<TraceLayer> {
        self.0.as_ref().map(Exporter::layer)
    }

    /// Makes `span` a part of the trace of the program that started this one.
    pub(crate) fn adopt_parent(&self, span: &Span) {
        if self.0.is_some() {
            adopt_parent_of_environment(span);
        }
    }

    /// Sends what waits, for at most 1.5 s.
    ///
    /// # Errors
    /// The collector has not received everything.
    pub(crate) fn finish(self) -> anyhow::Result<()> {
        Ok(self.0.map_or(Ok(()), Exporter::finish)?)
    }
}
