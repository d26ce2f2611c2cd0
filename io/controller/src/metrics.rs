//! Metrics of the controller, as text for Prometheus.

use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Metric, Registry};
use weir_base::units::saturating_i64;
use weir_control::LimitKind;

/// A kind of request, and its result.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct RequestLabels {
    pub(crate) method: &'static str,
    pub(crate) route: String,
    pub(crate) status: u16,
}

/// A kind of limit.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LimitLabels {
    limit: String,
}

/// Names and help texts.
type Names = [(&'static str, &'static str)];

/// The gauges. [`Values::gauges`] has their values in this order.
const GAUGES: [(&str, &str); 9] = [
    ("routers", "Routers that report to this controller"),
    ("routers_with_problems", "Routers that could not set up a part of their configuration"),
    ("links", "Links between these routers; each direction counts"),
    ("files", "Registered files"),
    ("plans", "Plans in force: files that are divided between routers"),
    ("waiting_requests", "Requests of routers that wait for a new configuration"),
    ("journal_records", "Plans, routers and audit lines that wait to be written to the database"),
    ("database_garbled_rows", "Database rows that cannot be read and are skipped"),
    ("database_up", "1 if the last write to the database succeeded, else 0"),
];

/// The counters. [`Values::counters`] has their values in this order.
const COUNTERS: [(&str, &str); 4] = [
    ("lost_routers", "Routers that stopped reporting, each time that one did"),
    ("journal_lost_records", "Records dropped because too many waited for the database"),
    ("journal_refused_records", "Records that the database refused and that are not in it"),
    ("evicted_connections", "Connections without a token that were closed to make room for others"),
];

/// What a scrape reports that is counted elsewhere.
#[derive(Debug, Default)]
pub(crate) struct Values {
    pub(crate) gauges: [u64; GAUGES.len()],
    pub(crate) counters: [u64; COUNTERS.len()],
    pub(crate) over_limit: Vec<(LimitKind, u64)>,
}

pub(crate) struct Metrics {
    pub(crate) requests: Family<RequestLabels, Counter>,
    pub(crate) decision_seconds: Histogram,
    over_limit: Family<LimitLabels, Counter>,
    gauges: Vec<Gauge>,
    counters: Vec<Counter>,
    registry: Mutex<Registry>,
}

fn register<M: Metric + Clone + Default>(registry: &mut Registry, names: &Names) -> Vec<M> {
    let metrics = names.iter().map(|&(name, help)| {
        let metric = M::default();
        registry.register(name, help, metric.clone());
        metric
    });
    metrics.collect()
}

impl Default for Metrics {
    fn default() -> Self {
        let mut root = weir_metrics::new_registry();
        let registry = root.sub_registry_with_prefix("weir_controller");
        let requests = Family::<RequestLabels, Counter>::default();
        let help = "HTTP requests, by method, route and status";
        registry.register("requests", help, requests.clone());
        // 50 us to 1.6 s.
        let decision_seconds = Histogram::new(exponential_buckets(50e-6, 2.0, 16));
        let help = "Time to decide where a router gets a file that it lacks";
        registry.register("decision_seconds", help, decision_seconds.clone());
        let over_limit = Family::<LimitLabels, Counter>::default();
        let help = "Holdings, reports and requests of routers that exceeded a limit and were \
                    ignored, by limit";
        registry.register("over_limit", help, over_limit.clone());
        let gauges = register(registry, &GAUGES);
        let counters = register(registry, &COUNTERS);
        Self { requests, decision_seconds, over_limit, gauges, counters, registry: root.into() }
    }
}

impl Metrics {
    /// All metrics in OpenMetrics.
    pub(crate) fn text(&self, values: &Values) -> String {
        for (limit, count) in &values.over_limit {
            let labels = LimitLabels { limit: limit.to_string() };
            raise(&self.over_limit.get_or_create(&labels), *count);
        }
        for (gauge, value) in self.gauges.iter().zip(values.gauges) {
            gauge.set(saturating_i64(value));
        }
        for (counter, value) in self.counters.iter().zip(values.counters) {
            raise(counter, value);
        }
        let registry = self.registry.lock().unwrap_or_else(PoisonError::into_inner);
        weir_metrics::encode(&registry)
    }
}

/// Raises a counter to a value that is counted elsewhere. Two scrapes at once may come in any
/// order.
fn raise(counter: &Counter, value: u64) {
    counter.inner().fetch_max(value, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reference_lists_the_controllers_metrics() {
        let metrics = Metrics::default();
        let labels = RequestLabels { method: "GET", route: "/v1/routers".to_owned(), status: 200 };
        metrics.requests.get_or_create(&labels).inc();
        let values = Values {
            over_limit: vec![(LimitKind::Name, 3)],
            counters: [4, 0, 0, 0],
            ..Values::default()
        };
        let text = metrics.text(&values);
        assert!(text.contains("weir_controller_over_limit_total{limit=\"name\"} 3"), "{text}");
        assert!(text.contains("weir_controller_lost_routers_total 4"), "{text}");
        weir_metrics::reference::check("controller", &text, &["process_", "weir_build_info"]);
    }
}
