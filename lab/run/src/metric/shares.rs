//! Compares consumers: how equal their shares are, and when the shares converge.

use std::collections::BTreeMap;

/// Sampling periods over which a rate is averaged.
const PERIODS: usize = 10;
/// Fraction of its later rate at which a consumer has converged.
const CONVERGED: f64 = 0.8;

/// Content bytes that each consumer received, in bins of time.
#[derive(Clone, Debug)]
pub(super) struct ConsumerShares {
    /// Bins of each consumer, by its node number.
    bins: BTreeMap<u32, Vec<f64>>,
    bin_ns: u64,
    started_ns: u64,
}

impl ConsumerShares {
    /// Shares of `consumers` (node, start) over a run of `bins` bins.
    pub(super) fn new(consumers: &[(u32, u64)], bins: usize, bin_ns: u64) -> Self {
        let started_ns = consumers.iter().map(|(_, start_ns)| *start_ns).max().unwrap_or(0);
        let bins = consumers.iter().map(|(node, _)| (*node, vec![0.0; bins])).collect();
        Self { bins, bin_ns, started_ns }
    }

    pub(super) fn add(&mut self, at_ns: u64, node: u32, amount: f64) {
        let bin = (at_ns / self.bin_ns) as usize;
        if let Some(sum) = self.bins.get_mut(&node).and_then(|bins| bins.get_mut(bin)) {
            *sum += amount;
        }
    }

    /// Jain's index over the bins that begin at `from_ns` or later; `None` if nothing arrived.
    pub(super) fn fairness(&self, from_ns: u64) -> Option<f64> {
        let first = from_ns.div_ceil(self.bin_ns) as usize;
        let sums = || self.bins.values().map(|bins| bins.iter().skip(first).sum::<f64>());
        let squares: f64 = sums().map(|sum| sum * sum).sum();
        let count = self.bins.len() as f64;
        (squares > 0.0).then(|| sums().sum::<f64>().powi(2) / (count * squares))
    }

    /// Seconds from the start of the last consumer until all are close to their later rates. The
    /// rest of the run if they never are, and `None` if nothing arrived.
    pub(super) fn convergence_s(&self) -> Option<f64> {
        let started = (self.started_ns / self.bin_ns) as usize;
        let ends = self.bins.values().map(|bins| {
            let half = bins.len() / 2;
            let wanted = CONVERGED * PERIODS as f64 * mean(&bins[half..]);
            let rest = bins.get(started..).unwrap_or_default();
            // The first `PERIODS` bins in a row that reach the wanted rate on average.
            let near = rest.windows(PERIODS).position(|some| some.iter().sum::<f64>() >= wanted);
            near.map_or(rest.len(), |first| first + PERIODS)
        });
        let is_any = self.bins.values().flatten().any(|amount| *amount > 0.0);
        let periods = ends.max().filter(|_| is_any)?;
        Some(periods as f64 * self.bin_ns as f64 / 1e9)
    }
}

fn mean(some: &[f64]) -> f64 {
    some.iter().sum::<f64>() / some.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    /// Two consumers over 40 s. The second starts after 10 s and grows by 1 per second up to 10.
    fn two() -> ConsumerShares {
        let mut shares = ConsumerShares::new(&[(3, 0), (5, 10 * S)], 40, S);
        for second in 0..40 {
            shares.add(second * S, 3, 10.0);
            shares.add(second * S, 5, second.saturating_sub(10).min(10) as f64);
            shares.add(second * S, 9, 1e9);
        }
        shares
    }

    #[test]
    fn equal_shares_are_fair() {
        assert_eq!(two().fairness(20 * S), Some(1.0));
        let before = two().fairness(0).unwrap();
        let (one, other) = (400.0, 245.0);
        let by_hand = (one + other) * (one + other) / (2.0 * (one * one + other * other));
        assert!((before - by_hand).abs() < 1e-12, "{before} {by_hand}");
        let mut alone = ConsumerShares::new(&[(3, 0), (5, 0)], 2, S);
        assert_eq!((alone.fairness(0), alone.convergence_s()), (None, None));
        alone.add(0, 3, 1.0);
        assert_eq!(alone.fairness(0), Some(0.5));
    }

    #[test]
    fn convergence_is_when_shares_last() {
        // Ten periods with a mean of 8: 5 to 9 and five times 10 add up to 85; one period earlier
        // it is 79.
        assert_eq!(two().convergence_s(), Some(15.0));
        let mut late = ConsumerShares::new(&[(0, 0)], 40, S);
        (21..40).for_each(|second| late.add(second * S, 0, 10.0));
        assert_eq!(late.convergence_s(), Some(29.0));
    }
}
