//! Metrics of the front, as text for Prometheus.

use std::sync::{Mutex, PoisonError};

use http::StatusCode;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

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
        let metrics = Self {
            responses: Family::default(),
            heads: Family::default(),
            bytes: Counter::default(),
            broken: Counter::default(),
            refused: Counter::default(),
            connections: Gauge::default(),
            memory: Gauge::default(),
            names: Gauge::default(),
            registry: Mutex::new(Registry::default()),
        };
        registry.register("responses", "Responses by status", metrics.responses.clone());
        registry.register(
            "heads",
            "Heads of responses by where they came from: memory, network or origin",
            metrics.heads.clone(),
        );
        registry.register("body_bytes", "Bytes of bodies sent", metrics.bytes.clone());
        registry.register("broken", "Responses reset before their end", metrics.broken.clone());
        registry.register(
            "refused_connections",
            "Connections closed at a limit",
            metrics.refused.clone(),
        );
        registry.register("connections", "Open connections", metrics.connections.clone());
        registry.register("memory_bytes", "Verified content in memory", metrics.memory.clone());
        registry.register("names", "Names whose heads are known", metrics.names.clone());
        Self { registry: Mutex::new(registry), ..metrics }
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
