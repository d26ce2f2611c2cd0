//! Counters of the controller, as text for Prometheus.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use weir_control::LimitKind;

/// A kind of request and how it ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct RequestLabels {
    pub(crate) method: String,
    pub(crate) route: String,
    pub(crate) status: u16,
}

/// What something that a router says or asks is too much for.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BoundLabels {
    bound: String,
}

/// What is counted.
pub(crate) struct Metrics {
    pub(crate) requests: Family<RequestLabels, Counter>,
    pub(crate) decision_seconds: Histogram,
    bounded: Family<BoundLabels, Gauge>,
    gauges: Vec<Gauge>,
    registry: Mutex<Registry>,
}

/// Gauges with their texts; [`Metrics::text`] takes their values in this order.
const GAUGES: [(&str, &str); 11] = [
    ("routers", "Routers that have reported lately"),
    ("links", "Faces from one of them to another"),
    ("files", "Files that producers have registered"),
    ("plans", "Plans in force"),
    ("waiting_requests", "Requests that wait for a configuration to change"),
    ("journal_records", "Plans and lines of the audit that wait for the database"),
    ("journal_lost_records", "Those that were lost because the database was away for too long"),
    ("journal_refused_records", "Those that the database refused by themselves, and that it lacks"),
    ("database_garbled_rows", "Rows of the database that could not be read, and are passed over"),
    ("database_up", "Whether the database took what it was given last"),
    (
        "displaced_connections",
        "Connections without a token that were closed for others, since the start",
    ),
];

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("weir_controller");
        let requests = Family::<RequestLabels, Counter>::default();
        registry.register("requests", "Requests by route and status", requests.clone());
        // 50 us to 1.6 s.
        let decision_seconds = Histogram::new(exponential_buckets(50e-6, 2.0, 16));
        let text = "Time to decide about an object that a router lacks";
        registry.register("decision_seconds", text, decision_seconds.clone());
        let bounded = Family::<BoundLabels, Gauge>::default();
        let text = "What routers say that is not taken, and questions that do not count as \
                    demand, since the start, by bound";
        registry.register("beyond_bounds", text, bounded.clone());
        let gauges = GAUGES.map(|(name, text)| {
            let gauge = Gauge::default();
            registry.register(name, text, gauge.clone());
            gauge
        });
        let (gauges, registry) = (gauges.into(), Mutex::new(registry));
        Self { requests, decision_seconds, bounded, gauges, registry }
    }
}

impl Metrics {
    /// All of it.
    pub(crate) fn text(
        &self,
        values: [u64; GAUGES.len()],
        bounded: &[(LimitKind, u64)],
    ) -> Result<String, fmt::Error> {
        for (bound, count) in bounded {
            let labels = BoundLabels { bound: bound.to_string() };
            self.bounded.get_or_create(&labels).set(i64::try_from(*count).unwrap_or(i64::MAX));
        }
        for (gauge, value) in self.gauges.iter().zip(values) {
            gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
        }
        let registry = self.registry.lock().unwrap_or_else(PoisonError::into_inner);
        let mut text = String::new();
        encode(&mut text, &registry)?;
        Ok(text)
    }
}
