//! Solves the Markov chain of all queues at once (paper nb-cache, section IV-C) as a sparse system.
//!
//! The paper compares every pair of states to find the transitions between them. Here the
//! transitions into a state follow from its queue lengths, in O(N) for each state, and no matrix is
//! stored.

use super::{Model, NQueueError, QueueSolution, Solution};

/// Limits of the iteration.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ChainOptions {
    /// Limit on the states to allocate; each takes 16 bytes.
    pub states_max: usize,
    /// Residual at which the iteration ends: the largest difference between the flow into a state
    /// and the flow out of it, relative to the flow out. If rounding prevents this, up to 20 times
    /// as much is accepted.
    pub residual_max: f64,
    /// Limit on the sweeps for each number of queues.
    pub sweeps_max: usize,
}

impl Default for ChainOptions {
    fn default() -> Self {
        Self { states_max: 20_000_000, residual_max: 5e-15, sweeps_max: 20_000 }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct ChainSolution {
    pub solution: Solution,
    pub states: usize,
    pub sweeps: usize,
    /// Residual reached, as defined in [`ChainOptions::residual_max`].
    pub residual: f64,
}

/// Solves the balance equations of all `(threshold + 1)^queues` states (paper nb-cache, Eq. 13).
///
/// 1. Later queues never affect earlier ones, so the first n queues form their own chain. Chains of
///    1, 2, .. N queues are solved in turn.
/// 2. Each chain starts from the previous solution, with a last queue that is independent of the
///    others.
/// 3. Gauss-Seidel sweeps in alternating order update each state from the flow into it.
/// 4. After each sweep, the levels of the last queue get weights that balance the flow between
///    adjacent levels. This removes the error that sweeps alone reduce slowly.
/// 5. The iteration ends when the residual is small enough.
///
/// Giving the states of the first n - 1 queues their known sums as well does not converge from four
/// queues on.
pub fn chain(model: &Model, options: &ChainOptions) -> Result<ChainSolution, NQueueError> {
    let base = model.threshold + 1;
    let states = u32::try_from(model.queues)
        .ok()
        .and_then(|queues| base.checked_pow(queues))
        .filter(|states| *states <= options.states_max)
        .ok_or_else(|| too_many(model, options.states_max))?;
    let mut prefix = vec![1.0];
    let mut queues = Vec::with_capacity(model.queues);
    let (mut sweeps, mut residual) = (0, 0.0);
    let mut full = 1.0;
    for _ in 0..model.queues {
        let mut level = ChainLevel::new(model, &prefix, full);
        (sweeps, residual) = level.solve(options)?;
        let marginal = level.marginal();
        let blocking = match full {
            0.0 => 0.0,
            _ => level.shares.last().copied().unwrap_or(0.0) / full,
        };
        let packets = marginal.iter().enumerate().map(|(count, share)| count as f64 * share);
        queues.push(QueueSolution {
            mean_packets: packets.sum(),
            utilisation: marginal[1..].iter().sum(),
            blocking,
        });
        prefix = level.shares;
        full = prefix.last().copied().unwrap_or(0.0);
    }
    // In the last state, all queues are full.
    let solution = Solution { loss: full, ..Solution::from_queues(queues) };
    Ok(ChainSolution { solution, states, sweeps, residual })
}

fn too_many(model: &Model, states_max: usize) -> NQueueError {
    let base = model.threshold + 1;
    let states = u32::try_from(model.queues)
        .ok()
        .and_then(|queues| (base as u128).checked_pow(queues))
        .map_or_else(
            || format!("about 1e{:.0}", model.queues as f64 * (base as f64).log10()),
            |states| states.to_string(),
        );
    NQueueError::States {
        queues: model.queues,
        threshold: model.threshold,
        threshold_and_one: base,
        states,
        states_max,
    }
}

/// The chain of the first n queues, given that of the first n - 1.
///
/// The digits of a state's number to base K + 1 are the queue lengths, with the last queue highest.
/// The states of one length of the last queue are therefore contiguous.
struct ChainLevel {
    load: f64,
    threshold: usize,
    /// Number of states of the queues before.
    size: usize,
    /// Probabilities of the states.
    shares: Vec<f64>,
    /// Difference in number between states that differ by one packet in each queue.
    strides: Vec<usize>,
}

/// The lengths of all queues of a state, incremented and decremented with its number.
struct QueueLengths {
    values: Vec<usize>,
    threshold: usize,
}

impl QueueLengths {
    fn up(&mut self) {
        for value in &mut self.values {
            if *value < self.threshold {
                *value += 1;
                return;
            }
            *value = 0;
        }
    }

    fn down(&mut self) {
        for value in &mut self.values {
            if *value > 0 {
                *value -= 1;
                return;
            }
            *value = self.threshold;
        }
    }
}

impl ChainLevel {
    /// Starts with a last queue that depends only on how often the others are all full.
    fn new(model: &Model, prefix: &[f64], full: f64) -> Self {
        let (threshold, load) = (model.threshold, model.load);
        let rise = (load * full).min(1e6);
        let mut weights = vec![1.0];
        for _ in 0..threshold {
            weights.push(weights[weights.len() - 1] * rise.min(1.0));
        }
        let sum: f64 = weights.iter().sum();
        let shares = weights
            .iter()
            .flat_map(|weight| prefix.iter().map(move |share| share * weight / sum))
            .collect();
        let mut strides = vec![1];
        while strides[strides.len() - 1] < prefix.len() {
            strides.push(strides[strides.len() - 1] * (threshold + 1));
        }
        Self { load, threshold, size: prefix.len(), shares, strides }
    }

    /// Sweeps until the residual is reached. Returns the number of sweeps and the residual.
    fn solve(&mut self, options: &ChainOptions) -> Result<(usize, f64), NQueueError> {
        let mut residual = f64::INFINITY;
        let mut stalled = 0;
        for sweep in 1..=options.sweeps_max {
            self.sweep(sweep % 2 == 0);
            self.balance_last_queue();
            // The residual costs as much as a sweep, so large chains compute it after every fourth
            // one.
            if sweep % 4 != 0 && self.shares.len() > 1000 {
                continue;
            }
            let now = self.residual();
            stalled = if now < 0.9 * residual { 0 } else { stalled + 1 };
            residual = residual.min(now);
            // Ten residuals without progress mean that rounding prevents a smaller one.
            let rounded = stalled >= 10 && residual <= 20.0 * options.residual_max;
            if now <= options.residual_max || rounded {
                return Ok((sweep, now));
            }
        }
        Err(NQueueError::Convergence {
            sweeps: options.sweeps_max,
            residual,
            wanted: options.residual_max,
        })
    }

    /// The flow into a state and the rate out of it, by the paper's four kinds of transition.
    #[inline]
    fn flows(&self, state: usize, lengths: &[usize]) -> (f64, f64) {
        let (mut into, mut out) = (0.0, 0.0);
        // While all queues before are full, an arrival may have entered this one (lambda-in).
        let mut open = true;
        for (length, stride) in lengths.iter().zip(&self.strides) {
            if *length > 0 {
                out += 1.0;
                if open {
                    into += self.load * self.shares[state - stride];
                }
            }
            if *length < self.threshold {
                into += self.shares[state + stride];
                if open {
                    out += self.load;
                    open = false;
                }
            }
        }
        (into, out)
    }

    /// One Gauss-Seidel sweep in ascending or descending order.
    fn sweep(&mut self, falling: bool) {
        let count = self.shares.len();
        let start = if falling { self.threshold } else { 0 };
        let values = vec![start; self.strides.len()];
        let mut lengths = QueueLengths { values, threshold: self.threshold };
        for at in 0..count {
            let state = if falling { count - 1 - at } else { at };
            let (into, out) = self.flows(state, &lengths.values);
            if out > 0.0 {
                self.shares[state] = into / out;
            }
            if falling { lengths.down() } else { lengths.up() }
        }
    }

    /// Weights the levels of the last queue so that the flow up from each level equals the flow
    /// back. The flow up consists of arrivals that find all other queues full.
    fn balance_last_queue(&mut self) {
        let size = self.size;
        let (mut weight, mut sum) = (1.0, 0.0);
        let mut scales = Vec::with_capacity(self.threshold + 1);
        for level in self.shares.chunks_exact(size) {
            let share: f64 = level.iter().sum();
            scales.push(if share > 0.0 { weight / share } else { 0.0 });
            sum += weight;
            let full = if share > 0.0 { level[size - 1] / share } else { 0.0 };
            weight *= self.load * full;
        }
        for (level, scale) in self.shares.chunks_exact_mut(size).zip(scales) {
            level.iter_mut().for_each(|share| *share *= scale / sum);
        }
    }

    /// The largest error of any state's balance equation, relative to the flow through the state.
    fn residual(&self) -> f64 {
        /// Numbers below this lose digits.
        const TINY: f64 = 1e-290;
        let values = vec![0; self.strides.len()];
        let mut lengths = QueueLengths { values, threshold: self.threshold };
        let mut most = 0.0_f64;
        for (state, share) in self.shares.iter().enumerate() {
            let (into, out) = self.flows(state, &lengths.values);
            if *share > TINY {
                most = most.max((into / (out * share) - 1.0).abs());
            }
            lengths.up();
        }
        most
    }

    /// Probabilities of the last queue's lengths.
    fn marginal(&self) -> Vec<f64> {
        self.shares.chunks_exact(self.size).map(|level| level.iter().sum()).collect()
    }
}
