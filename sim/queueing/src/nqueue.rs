//! Queues that bypass to each other: the N-queue model (paper nb-cache, section IV).
//!
//! Packets arrive as a Poisson stream and enter the first queue that holds fewer packets than the
//! threshold; when all are full the packet is lost. Every queue has one server with exponential
//! service. A queue's packets include the one in service.
//!
//! Three methods give the same [`Solution`]: [`chain()`] solves the Markov chain of all queues,
//! [`renewal()`] takes one queue after the other and is exact for any number of them, and
//! [`simulate()`] counts events. `docs/models/nqueue.md` derives them.

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

/// The most queues that a model may have.
pub(crate) const QUEUES_MAX: usize = 100_000;

/// The highest threshold of a queue.
pub(crate) const THRESHOLD_MAX: usize = 100_000;

/// An N-queue bypass model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Model {
    queues: usize,
    threshold: usize,
    load: f64,
}

/// What a model predicts.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Solution {
    /// The share of all packets that find every queue full.
    pub loss: f64,
    /// Mean number of packets in the system, those in service included (paper nb-cache, Eq. 8).
    pub packets: f64,
    /// Mean share of servers that are busy (paper nb-cache, Eq. 9 and 10, for any N).
    pub utilisation: f64,
    /// The queues in order of priority.
    pub queues: Vec<QueueSolution>,
}

/// What a model predicts of one queue.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct QueueSolution {
    /// Mean number of packets, the one in service included.
    pub mean_packets: f64,
    /// The share of time in which its server is busy.
    pub utilisation: f64,
    /// The share of the packets offered to this queue that find it full and go on to the next.
    pub blocking: f64,
}

/// Why a model was not solved.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum NQueueError {
    /// No queues, or too many.
    #[error("a model of {0} queues: give 1 to {QUEUES_MAX}")]
    Queues(usize),
    /// No room in a queue, or too much.
    #[error("a threshold of {0} packets: give 1 to {THRESHOLD_MAX}")]
    Threshold(usize),
    /// A load that is negative or no number.
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
        /// Values that a queue's length takes.
        threshold_and_one: usize,
        /// States of the chain, in words.
        states: String,
        /// The most that were allowed.
        states_max: usize,
    },
    /// The iteration did not reach its residual.
    #[error(
        "no convergence after {sweeps} sweeps (residual {residual:.1e}, asked for {wanted:.1e}): \
         allow more sweeps or use the renewal method"
    )]
    Convergence {
        sweeps: usize,
        residual: f64,
        /// Residual asked for.
        wanted: f64,
    },
    /// The threshold is beyond what the renewal method handles in memory.
    #[error(
        "a threshold of {threshold} packets: the renewal method takes at most {most}; use the \
         simulation"
    )]
    RenewalThreshold { threshold: usize, most: usize },
    /// Two resolutions of the renewal method disagree.
    #[error(
        "the renewal method is only good to {estimate:.1e} for this model (wanted {wanted:.1e}); \
         use the chain or the simulation"
    )]
    Accuracy {
        /// Difference of the two resolutions.
        estimate: f64,
        /// The largest difference allowed.
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
    /// `queues` queues of at most `threshold` packets each; `load` is the arrival rate of the whole
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

    /// The most packets in a queue, the one in service included: K, the paper's m - 1.
    pub fn threshold(&self) -> usize {
        self.threshold
    }

    /// Arrival rate over service rate, over the whole system.
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
    /// From the queues; the loss is the product of their blockings.
    fn from_queues(queues: Vec<QueueSolution>) -> Self {
        let mean = queues.iter().map(|queue| queue.utilisation).sum::<f64>() / queues.len() as f64;
        Self {
            loss: queues.iter().map(|queue| queue.blocking).product(),
            packets: queues.iter().map(|queue| queue.mean_packets).sum(),
            utilisation: mean,
            queues,
        }
    }

    /// Packets served, in packets per mean service time: all servers together.
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
        // Something that is no number must not pass for none.
        let most = |most: f64, (one, two): (f64, f64)| {
            let next = measure(one, two);
            if next.is_nan() || next > most { next } else { most }
        };
        whole.into_iter().chain(queues).fold(0.0, most)
    }
}
