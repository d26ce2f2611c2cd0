use serde::{Deserialize, Serialize};
use weir_base::Rng;
use weir_base::units::Period;

use crate::config::{ConfigError, either};
use crate::random;

/// The service time of a job.
///
/// In a file: `{ constant = { time = "213us" } }`, or `{ exponential = { mean = "4700/s" } }` with
/// a time or a rate, or `{ histogram = { bins = [[100000, 0.9], [2000000, 0.1]] } }` with
/// nanoseconds and weights. The keys `ns` and `mean_ns` take integers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", try_from = "ServiceTable")]
pub enum ServiceTime {
    /// A fixed time.
    Constant { ns: u64 },
    /// Exponentially distributed, rounded down to whole nanoseconds.
    Exponential { mean_ns: u64 },
    /// A measured distribution: times with weights. The weights need not sum to 1.
    Histogram {
        /// Time in nanoseconds, and weight.
        bins: Vec<(u64, f64)>,
    },
}

impl Default for ServiceTime {
    fn default() -> Self {
        Self::Constant { ns: 0 }
    }
}

impl ServiceTime {
    /// Draws a time in nanoseconds. A histogram is searched from its start; a
    /// [`Server`](crate::Server) draws faster if there are many bins.
    pub fn sample(&self, rng: &mut Rng) -> u64 {
        match self {
            Self::Constant { ns } => *ns,
            Self::Exponential { mean_ns } => exponential(*mean_ns, rng),
            Self::Histogram { bins } => {
                let total: f64 = bins.iter().map(|&(_, weight)| weight).sum();
                let point = rng.unit() * total;
                let mut sum = 0.0;
                let reached = bins.iter().find(|&&(_, weight)| {
                    sum += weight;
                    point < sum
                });
                reached.or(bins.last()).map_or(0, |&(ns, _)| ns)
            }
        }
    }

    /// Whether it is always 0.
    pub fn is_zero(&self) -> bool {
        matches!(self, Self::Constant { ns: 0 })
    }

    pub fn mean_ns(&self) -> f64 {
        match self {
            Self::Constant { ns } => *ns as f64,
            Self::Exponential { mean_ns } => *mean_ns as f64,
            Self::Histogram { bins } => {
                let total: f64 = bins.iter().map(|&(_, weight)| weight).sum();
                let weighted: f64 = bins.iter().map(|&(ns, weight)| ns as f64 * weight).sum();
                if total > 0.0 { weighted / total } else { 0.0 }
            }
        }
    }

    /// Checks a service time built in code, as reading a file does.
    ///
    /// # Errors
    /// A histogram without a positive weight, or with one that is negative or not a number.
    pub fn check(&self) -> Result<(), ConfigError> {
        let Self::Histogram { bins } = self else { return Ok(()) };
        let is_good = bins.iter().all(|&(_, weight)| weight >= 0.0 && weight.is_finite());
        let total: f64 = bins.iter().map(|&(_, weight)| weight).sum();
        if is_good && total > 0.0 && total.is_finite() {
            Ok(())
        } else {
            Err(ConfigError::Histogram)
        }
    }
}

fn exponential(mean_ns: u64, rng: &mut Rng) -> u64 {
    // The cast saturates.
    (random::exponential(rng) * mean_ns as f64) as u64
}

/// A [`ServiceTime`] prepared for many draws. Equal draws give equal times.
#[derive(Clone, Debug)]
pub(crate) enum Sampler {
    Constant { ns: u64 },
    Exponential { mean_ns: u64 },
    Histogram { times_ns: Vec<u64>, sums: Vec<f64> },
}

impl Sampler {
    pub(crate) fn new(service: &ServiceTime) -> Self {
        match service {
            ServiceTime::Constant { ns } => Self::Constant { ns: *ns },
            ServiceTime::Exponential { mean_ns } => Self::Exponential { mean_ns: *mean_ns },
            ServiceTime::Histogram { bins } => {
                let mut sum = 0.0;
                let sums = bins.iter().map(|&(_, weight)| {
                    sum += weight;
                    sum
                });
                Self::Histogram {
                    sums: sums.collect(),
                    times_ns: bins.iter().map(|&(ns, _)| ns).collect(),
                }
            }
        }
    }

    pub(crate) fn sample(&self, rng: &mut Rng) -> u64 {
        match self {
            Self::Constant { ns } => *ns,
            Self::Exponential { mean_ns } => exponential(*mean_ns, rng),
            Self::Histogram { times_ns, sums } => {
                let Some(&total) = sums.last() else { return 0 };
                let point = rng.unit() * total;
                let index = sums.partition_point(|&sum| sum <= point);
                times_ns[index.min(times_ns.len() - 1)]
            }
        }
    }
}

/// [`ServiceTime`] as written in files.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum ServiceTable {
    Constant { time: Option<Period>, ns: Option<u64> },
    Exponential { mean: Option<Period>, mean_ns: Option<u64> },
    Histogram { bins: Vec<(u64, f64)> },
}

impl TryFrom<ServiceTable> for ServiceTime {
    type Error = ConfigError;

    fn try_from(table: ServiceTable) -> Result<Self, ConfigError> {
        let missing = |text| ConfigError::Missing { text, example: "213us" };
        let service = match table {
            ServiceTable::Constant { time, ns } => {
                let ns = either(("time", time), ("ns", ns), |time| time.ns)?;
                Self::Constant { ns: ns.ok_or(missing("time"))? }
            }
            ServiceTable::Exponential { mean, mean_ns } => {
                let ns = either(("mean", mean), ("mean_ns", mean_ns), |time| time.ns)?;
                Self::Exponential { mean_ns: ns.ok_or(missing("mean"))? }
            }
            ServiceTable::Histogram { bins } => Self::Histogram { bins },
        };
        service.check()?;
        Ok(service)
    }
}

#[cfg(test)]
mod tests;
