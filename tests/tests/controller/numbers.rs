//! The metrics of the routers of a network.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::network::http;

/// Values by router name and by metric with labels.
#[derive(Debug, Clone, Default)]
pub(crate) struct Numbers(BTreeMap<(&'static str, String), f64>);

impl Numbers {
    /// Reads the metrics of a router at this address.
    pub(crate) fn add(&mut self, router: &'static str, address: &str) {
        let request = format!("GET /metrics HTTP/1.1\r\nHost: {address}\r\n\r\n");
        let text = http(address, &request).expect("the router answers");
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let (metric, value) = line.rsplit_once(' ').expect("a metric and its value");
            self.0.insert((router, metric.to_owned()), value.parse().expect("a number"));
        }
    }

    /// The value of a metric without labels.
    pub(crate) fn of(&self, router: &'static str, metric: &str) -> u64 {
        let value = self.0.get(&(router, metric.to_owned()));
        *value.unwrap_or_else(|| panic!("{router} has no {metric}")) as u64
    }

    /// Interests that a router has sent to a remote address, over all its faces.
    pub(crate) fn interests_to(&self, router: &'static str, remote: &str) -> u64 {
        let remote = format!("remote=\"{remote}\"");
        let labels =
            ["weir_face_packets_total{", &remote, "direction=\"out\"", "kind=\"interest\""];
        let is_meant = |metric: &str| labels.iter().all(|label| metric.contains(label));
        let numbers = self.0.iter().filter(|(key, _)| key.0 == router && is_meant(&key.1));
        numbers.map(|(_, &number)| number as u64).sum()
    }

    /// The values that changed since `before`, one per line.
    pub(crate) fn since(&self, before: &Self) -> String {
        let mut text = String::new();
        for (key, now) in &self.0 {
            let was = before.0.get(key).copied().unwrap_or(0.0);
            if *now != was && !key.1.contains("_bucket{") {
                let _ = writeln!(text, "{} {}: {was} -> {now}", key.0, key.1);
            }
        }
        text
    }
}
