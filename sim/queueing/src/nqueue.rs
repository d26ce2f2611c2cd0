//! The N-queue bypass model (paper nb-cache, section IV).
//!
//! Packets arrive as a Poisson stream. Each enters the first queue that holds fewer packets than
//! the threshold K; if all queues are full, it is lost. Each queue has one server with exponential
//! service times. A queue's length includes the packet in service. The load is the arrival rate
//! over the service rate of one server.
//!
//! | method | idea | cost |
//! |---|---|---|
//! | [`chain()`] | balance equations of all `(K + 1)^N` states (Eq. 13) | N (K + 1)^N per sweep |
//! | [`renewal()`] | solves one queue after another; exact for any N | N (S^2 K + S K^2), S ~ 75 |
//! | [`simulate()`] | counts events and gives confidence intervals | events |
//!
//! One queue is M/M/1/K: `p_n = load^n / (1 + load + ... + load^K)`. Example with K = 1 and load 1:
//! a packet finds the server busy with `p_1 = 1/2`, so half of all packets bypass the first queue.
//! With N queues of K = 1 the model is Erlang's loss system; for N = 2 and load 1, a fifth of the
//! packets is lost (`(1/2) / (1 + 1 + 1/2)`).
//!
//! All three give the same [`Solution`]. `nqueue.md` of this crate has the derivations. A method
//! must never return a solution in which served and lost packets do not add up to the arrivals.

mod chain;
mod diagram;
mod renewal;
mod simulate;

#[cfg(test)]
mod tests;

use serde::Serialize;

pub use chain::{ChainOptions, ChainSolution, chain};
pub use diagram::{Diagram, Move, MoveKind, diagram};
pub use renewal::{RenewalSolution, renewal};
pub use simulate::{SimulateOptions, Simulation, simulate};

/// Limit on the queues of a model.
pub(crate) const QUEUES_MAX: usize = 100_000;

/// Limit on the threshold of a queue.
pub(crate) const THRESHOLD_MAX: usize = 100_000;

/// An N-queue bypass model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Model {
    queues: usize,
    threshold: usize,
    load: f64,
}

/// The result for a model.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Solution {
    /// Fraction of packets that find every queue full.
    pub loss: f64,
    /// Mean number of packets in the system, those in service included (paper nb-cache, Eq. 8).
    pub packets: f64,
    /// Mean fraction of busy servers (paper nb-cache, Eq. 9 and 10, for any N).
    pub utilisation: f64,
    /// The queues in order of priority.
    pub queues: Vec<QueueSolution>,
}

/// The result for one queue.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct QueueSolution {
    /// Mean number of packets, the one in service included.
    pub mean_packets: f64,
    /// Fraction of time in which its server is busy.
    pub utilisation: f64,
    /// Fraction of the packets offered to this queue that find it full and continue to the next.
    pub blocking: f64,
}

/// Why a model was not solved.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum NQueueError {
    /// No queues, or too many.
    #[error("a model of {0} queues: give 1 to {QUEUES_MAX}")]
    Queues(usize),
    /// The threshold is 0 or too high.
    #[error("a threshold of {0} packets: give 1 to {THRESHOLD_MAX}")]
    Threshold(usize),
    /// The load is negative or not a number.
    #[error("a load of {0}: give the arrival rate over the service rate, 0 or more")]
    Load(f64),
    /// The chain has more states than allowed.
    #[error(
        "{queues} queues of {threshold} packets have {threshold_and_one}^{queues} = {states} \
         states, more than {states_max}: use the renewal method, which is exact for any number"
    )]
    States {
        queues: usize,
        threshold: usize,
        /// Number of possible lengths of a queue.
        threshold_and_one: usize,
        /// Number of states, as text.
        states: String,
        /// Limit on the states.
        states_max: usize,
    },
    /// The iteration did not reach its residual.
    #[error(
        "no convergence after {sweeps} sweeps (residual {residual:.1e}, required {wanted:.1e}): \
         allow more sweeps or use the renewal method"
    )]
    Convergence {
        sweeps: usize,
        residual: f64,
        /// Required residual.
        wanted: f64,
    },
    /// The threshold exceeds the memory of the renewal method.
    #[error(
        "a threshold of {threshold} packets: the renewal method takes at most {most}; use the \
         simulation"
    )]
    RenewalThreshold { threshold: usize, most: usize },
    /// Two resolutions of the renewal method disagree.
    #[error(
        "the renewal method is only accurate to {estimate:.1e} for this model (required \
         {wanted:.1e}); use the chain or the simulation"
    )]
    Accuracy {
        /// Difference of the two resolutions.
        estimate: f64,
        /// Largest difference allowed.
        wanted: f64,
    },
    /// Too few replications for an interval, or no events.
    #[error("{replications} replications of {arrivals} arrivals: give 2 or more of 1 or more")]
    Replications { replications: usize, arrivals: u64 },
    /// A confidence level outside 0 to 1.
    #[error("a confidence of {0}: give a number between 0 and 1, such as 0.95")]
    Confidence(f64),
}

impl Model {
    /// `queues` queues of at most `threshold` packets each. `load` is the arrival rate of the whole
    /// system over the service rate of one server.
    pub fn new(queues: usize, threshold: usize, load: f64) -> Result<Self, NQueueError> {
        if !(1..=QUEUES_MAX).contains(&queues) {
            return Err(NQueueError::Queues(queues));
        }
        if !(1..=THRESHOLD_MAX).contains(&threshold) {
            return Err(NQueueError::Threshold(threshold));
        }
        if !load.is_finite() || load < 0.0 {
            return Err(NQueueError::Load(load));
        }
        Ok(Self { queues, threshold, load })
    }

    /// Number of queues, N.
    pub fn queues(&self) -> usize {
        self.queues
    }

    /// Limit on the packets in a queue, the one in service included: K, the paper's m - 1.
    pub fn threshold(&self) -> usize {
        self.threshold
    }

    /// Arrival rate of the whole system over the service rate of one server.
    pub fn load(&self) -> f64 {
        self.load
    }

    /// The paper's name: `bypass-n*m`, or `mm1-drop-x` for one queue.
    pub fn name(&self) -> String {
        match self.queues {
            1 => format!("mm1-drop-{}", self.threshold),
            queues => format!("bypass-{queues}*{}", self.threshold + 1),
        }
    }
}

impl Solution {
    /// Combines the queues. The loss is the product of their blockings.
    fn from_queues(queues: Vec<QueueSolution>) -> Self {
        let mean = queues.iter().map(|queue| queue.utilisation).sum::<f64>() / queues.len() as f64;
        Self {
            loss: queues.iter().map(|queue| queue.blocking).product(),
            packets: queues.iter().map(|queue| queue.mean_packets).sum(),
            utilisation: mean,
            queues,
        }
    }

    /// Packets served per mean service time by all servers together.
    pub(crate) fn throughput(&self) -> f64 {
        self.queues.iter().map(|queue| queue.utilisation).sum()
    }

    /// The largest difference of any figure, relative for figures above 1.
    pub(crate) fn relative_distance(&self, other: &Self) -> f64 {
        self.distance_by(other, |one, two| (one - two).abs() / one.abs().max(1.0))
    }

    fn distance_by(&self, other: &Self, measure: impl Fn(f64, f64) -> f64) -> f64 {
        let whole = [
            (self.loss, other.loss),
            (self.packets, other.packets),
            (self.utilisation, other.utilisation),
        ];
        let queues = self.queues.iter().zip(&other.queues).flat_map(|(one, two)| {
            [
                (one.mean_packets, two.mean_packets),
                (one.utilisation, two.utilisation),
                (one.blocking, two.blocking),
            ]
        });
        // NaN must not pass as a small difference.
        let most = |most: f64, (one, two): (f64, f64)| {
            let next = measure(one, two);
            if next.is_nan() || next > most { next } else { most }
        };
        whole.into_iter().chain(queues).fold(0.0, most)
    }
}
