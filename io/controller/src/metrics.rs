//! Metrics of the controller, as text for Prometheus.

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

/// A kind of request, and its result.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct RequestLabels {
    pub(crate) method: String,
    pub(crate) route: String,
    pub(crate) status: u16,
}

/// A kind of limit.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BoundLabels {
    bound: String,
}

pub(crate) struct Metrics {
    pub(crate) requests: Family<RequestLabels, Counter>,
    pub(crate) decision_seconds: Histogram,
    bounded: Family<BoundLabels, Gauge>,
    gauges: Vec<Gauge>,
    registry: Mutex<Registry>,
}

/// Names and help texts of the gauges. [`Metrics::text`] takes their values in this order.
const GAUGES: [(&str, &str); 11] = [
    ("routers", "Routers that have reported within router_timeout"),
    ("links", "Links between present routers; each direction counts"),
    ("files", "Registered files"),
    ("plans", "Plans in force"),
    ("waiting_requests", "Requests that wait for a new configuration"),
    ("journal_records", "Records (plans, routers, audit lines) that wait to be written"),
    ("journal_lost_records", "Records dropped because too many waited for the database"),
    ("journal_refused_records", "Records that the database refused and that are not in it"),
    ("database_garbled_rows", "Database rows that cannot be read and are skipped"),
    ("database_up", "1 if the last write to the database succeeded, else 0"),
    (
        "displaced_connections",
        "Connections without a token that were closed to make room for others",
    ),
];

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("weir_controller");
        let requests = Family::<RequestLabels, Counter>::default();
        registry.register("requests", "Requests by route and status", requests.clone());
        // 50 us to 1.6 s.
        let decision_seconds = Histogram::new(exponential_buckets(50e-6, 2.0, 16));
        let text = "Time to decide about an object that a router requests";
        registry.register("decision_seconds", text, decision_seconds.clone());
        let bounded = Family::<BoundLabels, Gauge>::default();
        let text = "Holdings, reports and requests of routers that exceeded a limit and \
                    were ignored, by limit";
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
    /// All metrics as text.
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
