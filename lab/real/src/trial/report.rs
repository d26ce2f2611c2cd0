//! The results of a trial.

use weir_base::NS_PER_S;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct TrialReport {
    pub samples: std::collections::BTreeMap<&'static str, Vec<f64>>,
    /// Why there are no results if something is not installed or not permitted, and the remedy.
    pub missing: Option<String>,
}

impl TrialReport {
    pub(super) fn add(&mut self, measure: &'static str, sample: f64) {
        self.samples.entry(measure).or_default().push(sample);
    }

    pub(super) fn missing(why: impl Into<String>) -> Self {
        Self { missing: Some(why.into()), ..Self::default() }
    }
}

/// Jain's index: 1 is fair; the minimum is one over the number of shares.
pub(super) fn jain(shares: &[f64]) -> f64 {
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|share| share * share).sum();
    sum * sum / (shares.len() as f64 * squares)
}

/// Bits per second.
pub(super) fn rate_bps(octets: u64, took_ns: u64) -> f64 {
    octets as f64 * 8.0 * NS_PER_S as f64 / took_ns.max(1) as f64
}
