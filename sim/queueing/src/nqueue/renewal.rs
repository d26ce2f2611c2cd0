//! Solves one queue after another: exact for any number of queues, in polynomial time.
//!
//! When a packet overflows from queue i, all queues up to i are full, and the future depends only
//! on this. The overflows therefore form a renewal stream, and queue i + 1 is a GI/M/1/K queue. The
//! method works in these steps:
//!
//! 1. The first queue's stream is Poisson.
//! 2. From the stream's Laplace-Stieltjes transform A(s), compute the fraction of arrivals that
//!    find 0 to K packets in the queue ([`stage`]). This gives blocking, length and utilisation.
//! 3. Compute the transform of the overflow stream, by a recursion over the levels of the queue.
//! 4. Represent that transform by samples on a vertical line in the right half-plane ([`line`]).
//!    Cauchy's integral gives its values and derivatives to the right of the line.
//! 5. Continue with the next queue.
//!
//! The whole computation runs twice, with two resolutions. Their difference is the error estimate.
//! `nqueue.md` of this crate has the derivation and the error bound.

mod line;
mod stage;

use super::{Model, NQueueError, QueueSolution, Solution};
use line::SampleLine;
use stage::OverflowStream;

/// Limit on the threshold: the tables grow with it.
pub(crate) const RENEWAL_THRESHOLD_MAX: usize = 1024;

/// Spacing of the samples, in the hyperbolic parameter of the line.
const STEP: f64 = 0.1;
/// Spacing of the coarser computation, relative to the finer one.
const COARSER: f64 = 1.25;
/// Largest difference allowed between the two computations in any figure: absolute for figures
/// below 1, relative above.
const DIFFERENCE_MAX: f64 = 1e-8;
/// How often the spacing is refined until the computations agree.
const REFINEMENTS: usize = 3;

/// A solution and its error estimate.
#[derive(Clone, Debug, PartialEq)]
pub struct RenewalSolution {
    pub solution: Solution,
    /// The largest difference of any figure from a computation with samples a quarter further apart
    /// (relative for figures above 1). The error of that computation is at least ten times as
    /// large, so this exceeds the error of `solution` up to rounding (about 1e-13). It is 0 if
    /// nothing arrives.
    pub error_estimate: f64,
    /// Number of samples of each stream.
    pub samples: usize,
}

/// Solves `model` queue by queue, in O(N (S^2 K + S K^2)) steps for N queues of K packets and S
/// samples (about 75).
///
/// # Errors
///
/// [`NQueueError::RenewalThreshold`] above `RENEWAL_THRESHOLD_MAX`; [`NQueueError::Accuracy`] if
/// two resolutions differ by more than 1e-8, or if served and lost packets do not add up to the
/// arrivals within that.
pub fn renewal(model: &Model) -> Result<RenewalSolution, NQueueError> {
    if model.threshold > RENEWAL_THRESHOLD_MAX {
        return Err(NQueueError::RenewalThreshold {
            threshold: model.threshold,
            most: RENEWAL_THRESHOLD_MAX,
        });
    }
    if model.load == 0.0 {
        let idle = QueueSolution { mean_packets: 0.0, utilisation: 0.0, blocking: 0.0 };
        let solution = Solution::from_queues(vec![idle; model.queues]);
        return Ok(RenewalSolution { solution, error_estimate: 0.0, samples: 0 });
    }
    let mut step = STEP;
    let (mut coarse, _) = solve(model, step * COARSER);
    for refinement in 0..=REFINEMENTS {
        let (solution, samples) = solve(model, step);
        let error_estimate = solution.relative_distance(&coarse);
        let error_estimate = error_estimate.max(violation(model, &solution));
        if error_estimate <= DIFFERENCE_MAX {
            let solution = within_range(model, solution);
            return Ok(RenewalSolution { solution, error_estimate, samples });
        }
        if refinement == REFINEMENTS {
            return Err(NQueueError::Accuracy { estimate: error_estimate, wanted: DIFFERENCE_MAX });
        }
        step /= COARSER;
        // The solution is the coarser one of the next comparison.
        coarse = solution;
    }
    unreachable!("the last refinement returns")
}

/// The solution with samples `step` apart, and the number of samples.
fn solve(model: &Model, step: f64) -> (Solution, usize) {
    let line = SampleLine::new(model, step);
    let mut stage = OverflowStream::first(&line, model);
    let mut rate = model.load;
    let mut queues = Vec::with_capacity(model.queues);
    for index in 0..model.queues {
        let arrivals = stage.at_arrivals();
        // A queue rises from n to n + 1 as often as it falls back. The fraction of time with n + 1
        // packets, times the service rate of 1, is the rate of arrivals that find n.
        let levels = || arrivals.iter().take(model.threshold).enumerate();
        let mean_packets = levels().map(|(level, share)| (level + 1) as f64 * rate * share).sum();
        // `rate * (1 - blocking)` is equal, but cancels under high load.
        let utilisation = levels().map(|(_, share)| rate * share).sum::<f64>();
        let blocking = arrivals[model.threshold];
        queues.push(QueueSolution { mean_packets, utilisation, blocking });
        rate *= blocking;
        if index + 1 < model.queues {
            stage.advance(&arrivals);
        }
    }
    (Solution::from_queues(queues), line.samples())
}

/// How far a solution violates the rules of every method: flow in equals flow out, and every value
/// is in range. 0 for an exact solution.
fn violation(model: &Model, solution: &Solution) -> f64 {
    let out = solution.throughput() + model.load * solution.loss;
    let unbalanced = (out - model.load).abs() / model.load.max(1.0);
    let beyond = |value: f64, most: f64| (-value).max(value - most).max(0.0);
    let most = model.threshold as f64;
    solution.queues.iter().fold(unbalanced, |worst, queue| {
        let packets = beyond(queue.mean_packets, most) / most;
        worst.max(beyond(queue.blocking, 1.0)).max(beyond(queue.utilisation, 1.0)).max(packets)
    })
}

/// Clamps figures that rounding moved out of range.
fn within_range(model: &Model, solution: Solution) -> Solution {
    let most = model.threshold as f64;
    let queues = solution.queues.into_iter().map(|queue| QueueSolution {
        mean_packets: queue.mean_packets.clamp(0.0, most),
        utilisation: queue.utilisation.clamp(0.0, 1.0),
        blocking: queue.blocking.clamp(0.0, 1.0),
    });
    Solution::from_queues(queues.collect())
}
