//! Estimates the warm-up of a run with MSER-5 (K. P. White, "An effective truncation heuristic for
//! bias reduction in simulation output", Simulation 69(6), 1997).
//!
//! 1. Sort the round-trip times by request time, and average each group of five.
//! 2. For each possible cut in the first half, compute the standard error of the mean of what
//!    follows.
//! 3. Choose the cut with the smallest error.
//!
//! A cut at the end of the first half means that the run has not settled: later cuts would be
//! better still.

use serde::{Deserialize, Serialize};

const BATCH: usize = 5;
/// Minimum number of batches for an estimate.
const BATCHES_MIN: usize = 20;

/// The warm-up estimated for a run with `warm_up = "auto"`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct WarmUpEstimate {
    /// Time excluded at the start, s.
    pub warm_up_s: f64,
    /// Whether the samples after the warm-up have no trend. In overload, times grow until the end,
    /// and their mean depends on the length of the run.
    pub is_settled: bool,
}

/// The end of the warm-up in ns, and whether the run settled. `samples` are round-trip times by
/// request time.
pub(super) fn start_ns(mut samples: Vec<(u64, f64)>) -> (u64, bool) {
    samples.sort_by_key(|(asked_ns, _)| *asked_ns);
    let batches: Vec<(u64, f64)> = samples
        .chunks_exact(BATCH)
        .map(|batch| (batch[0].0, batch.iter().map(|(_, rtt)| rtt).sum::<f64>() / BATCH as f64))
        .collect();
    if batches.len() < BATCHES_MIN {
        return (0, false);
    }
    // One pass from the end tries every cut. Differences from the last batch keep the sums small.
    let origin = batches[batches.len() - 1].1;
    let (mut sum, mut squares) = (0.0, 0.0);
    let (mut best, mut least) = (0, f64::INFINITY);
    for (at, (_, mean)) in batches.iter().enumerate().rev() {
        let difference = mean - origin;
        sum += difference;
        squares += difference * difference;
        let count = (batches.len() - at) as f64;
        let error = (squares - sum * sum / count) / (count * count);
        if at <= batches.len() / 2 && error <= least {
            (best, least) = (at, error);
        }
    }
    // A best cut at the edge of the range means that later cuts would be better still.
    let is_settled = best < batches.len() / 2 - batches.len() / 50;
    (if best == 0 { 0 } else { batches[best].0 }, is_settled)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Noise around `level(i)` for 10,000 Interests, one per microsecond.
    fn run(level: impl Fn(f64) -> f64) -> (u64, bool) {
        let mut rng = weir_base::Rng::from_seed(7);
        let sample = |i: u32| {
            let noise = f64::from(rng.next_u32()) / f64::from(u32::MAX);
            (u64::from(i) * 1_000, level(f64::from(i)) + noise)
        };
        start_ns((0..10_000).map(sample).collect())
    }

    #[test]
    fn higher_start_is_cut_off() {
        let (start, is_settled) = run(|i| if i < 2_000.0 { 20.0 - i / 100.0 } else { 0.0 });
        assert!((1_800_000..2_200_000).contains(&start), "{start}");
        assert!(is_settled);
    }

    #[test]
    fn steady_run_has_no_warm_up() {
        let (start, is_settled) = run(|_| 1.0);
        assert!(start < 2_500_000, "{start}");
        assert!(is_settled);
    }

    #[test]
    fn overload_does_not_settle() {
        let (_, is_settled) = run(|i| i / 100.0);
        assert!(!is_settled);
        assert_eq!(start_ns(vec![(1, 1.0); 50]), (0, false), "too few to tell");
    }
}
