//! What the routers of a network count, by their metrics.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::network::http;

/// Of routers by name, each number by its metric with labels.
#[derive(Debug, Clone, Default)]
pub(crate) struct Numbers(BTreeMap<(&'static str, String), f64>);

impl Numbers {
    /// Asks a router that serves its metrics at this address.
    pub(crate) fn add(&mut self, router: &'static str, address: &str) {
        let request = format!("GET /metrics HTTP/1.1\r\nHost: {address}\r\n\r\n");
        let text = http(address, &request).expect("the router tells");
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let (metric, value) = line.rsplit_once(' ').expect("a metric and its value");
            self.0.insert((router, metric.to_owned()), value.parse().expect("a number"));
        }
    }

    /// A number of a router that has no labels.
    pub(crate) fn of(&self, router: &'static str, metric: &str) -> u64 {
        let value = self.0.get(&(router, metric.to_owned()));
        *value.unwrap_or_else(|| panic!("{router} has no {metric}")) as u64
    }

    /// What has changed since, a line each.
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
