//! Metrics of the front, as text for Prometheus.

use std::sync::{Mutex, PoisonError};

use http::StatusCode;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
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
        let mut registry = Registry::with_prefix("weir_gateway_front");
        let all = &mut registry;
        let heads = "Heads of responses by where they came from: memory, network or origin";
        Self {
            responses: add(all, "responses", "Responses by status"),
            heads: add(all, "heads", heads),
            bytes: add(all, "body_bytes", "Bytes of bodies sent"),
            broken: add(all, "broken", "Responses reset before their end"),
            refused: add(all, "refused_connections", "Connections closed at a limit"),
            connections: add(all, "connections", "Open connections"),
            memory: add(
                all,
                "memory_bytes",
                "Pieces in memory, and room for what is received ahead",
            ),
            names: add(all, "names", "Names whose heads are known"),
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
        let mut text = String::new();
        let registry = self.registry.lock().unwrap_or_else(PoisonError::into_inner);
        encode(&mut text, &registry).expect("a string has no limit");
        text
    }
}

/// Registers a metric.
fn add<M: Metric + Clone + Default>(registry: &mut Registry, name: &str, help: &str) -> M {
    let metric = M::default();
    registry.register(name, help, metric.clone());
    metric
}
