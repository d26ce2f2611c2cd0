//! Metrics of the front, as text for Prometheus.

use std::sync::{Mutex, PoisonError};

use http::StatusCode;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Metric, Registry};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StatusLabels {
    status: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SourceLabels {
    source: &'static str,
}

pub(super) struct Metrics {
    responses: Family<StatusLabels, Counter>,
    heads: Family<SourceLabels, Counter>,
    bytes: Counter,
    broken: Counter,
    refused: Counter,
    pub(super) connections: Gauge,
    memory: Gauge,
    names: Gauge,
    registry: Mutex<Registry>,
}

impl Metrics {
    pub(super) fn new() -> Self {
        let mut registry = weir_metrics::new_registry();
        let all = registry.sub_registry_with_prefix("weir_gateway");
        let heads = "Heads of responses, by where they came from: memory, store, network or origin";
        Self {
            responses: add(all, "responses", "HTTP responses, by status"),
            heads: add(all, "heads", heads),
            bytes: add(all, "sent_body_bytes", "Bytes of response bodies sent"),
            broken: add(
                all,
                "broken_responses",
                "Responses that ended before their body was complete",
            ),
            refused: add(
                all,
                "refused_connections",
                "Connections closed because there were too many",
            ),
            connections: add(all, "connections", "Open connections of HTTP clients"),
            memory: add(
                all,
                "memory_bytes",
                "Memory of parts of bodies, including space for those that are received ahead",
            ),
            names: add(all, "known_names", "Names whose response heads are in memory"),
            registry: Mutex::new(registry),
        }
    }

    pub(super) fn on_response(&self, status: StatusCode, bytes: u64, is_broken: bool) {
        self.responses.get_or_create(&StatusLabels { status: status.as_u16() }).inc();
        self.bytes.inc_by(bytes);
        self.broken.inc_by(u64::from(is_broken));
    }

    pub(super) fn on_head(&self, source: &'static str) {
        self.heads.get_or_create(&SourceLabels { source }).inc();
    }

    pub(super) fn on_refused_connection(&self) {
        self.refused.inc();
    }

    pub(super) fn text(&self, memory_bytes: u64, names: usize) -> String {
        self.memory.set(memory_bytes as i64);
        self.names.set(names as i64);
        weir_metrics::encode(&self.registry.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Registers a metric.
fn add<M: Metric + Clone + Default>(registry: &mut Registry, name: &str, help: &str) -> M {
    let metric = M::default();
    registry.register(name, help, metric.clone());
    metric
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reference_lists_the_gateways_metrics() {
        let metrics = Metrics::new();
        metrics.on_response(StatusCode::OK, 7, false);
        metrics.on_head("memory");
        let text = metrics.text(5, 2);
        assert!(text.contains("weir_gateway_sent_body_bytes_total 7"), "{text}");
        weir_metrics::reference::check("gateway", &text, &["process_", "weir_build_info"]);
    }
}
