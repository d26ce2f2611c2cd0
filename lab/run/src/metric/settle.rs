//! How much of a run's beginning is no part of its lasting state: MSER-5 (K. P. White, "An
//! effective truncation heuristic for bias reduction in simulation output", Simulation 69(6),
//! 1997).

use serde::{Deserialize, Serialize};

const BATCH: usize = 5;
/// Batches that say something.
const BATCHES_MIN: usize = 20;

/// What was found of a run whose warm-up is `Auto`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct WarmUpEstimate {
    /// What was left out at the start, s.
    pub warm_up_s: f64,
    /// Whether what is left has no trend that more of it would go on with: in overload times grow
    /// to the end, and their mean is one of the run's length.
    pub is_settled: bool,
}

/// The start of the lasting state, ns: the one that makes the standard error of the mean of what
/// follows least, among those in the first half. `samples` are round-trip times by when they were
/// asked for.
pub(super) fn start_ns(mut samples: Vec<(u64, f64)>) -> (u64, bool) {
    samples.sort_by_key(|(asked_ns, _)| *asked_ns);
    let batches: Vec<(u64, f64)> = samples
        .chunks_exact(BATCH)
        .map(|batch| (batch[0].0, batch.iter().map(|(_, rtt)| rtt).sum::<f64>() / BATCH as f64))
        .collect();
    if batches.len() < BATCHES_MIN {
        return (0, false);
    }
    // Sums from the end, as differences from the last batch: they stay small.
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
    // The best place at the very edge of what was looked at: later ones would be better still.
    let is_settled = best < batches.len() / 2 - batches.len() / 50;
    (if best == 0 { 0 } else { batches[best].0 }, is_settled)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Noise around `level(i)` for 10,000 Interests, one a microsecond.
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
