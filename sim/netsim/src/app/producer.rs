//! Producers.

use weir_base::Instant;

use super::{AppInput, AppOutbox};
use crate::workload::{ProducerPlan, WorkloadError};

/// What a producer did so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProducerStats {
    /// Interests that came.
    pub interests: u64,
    /// Data sent.
    pub answered: u64,
    /// Interests for what it does not have.
    pub unknown: u64,
    /// Packets that are no Interests.
    pub malformed: u64,
    /// Interests dropped because too many answers were due already.
    pub dropped: u64,
}

/// Answers every Interest of its naming with octets that follow from the name.
#[derive(Debug)]
pub struct Producer {
    stats: ProducerStats,
}

impl Producer {
    /// The producer of `plan`.
    ///
    /// # Errors
    /// A value of the plan is out of range.
    pub fn new(_plan: &ProducerPlan, _seed: u64) -> Result<Self, WorkloadError> {
        Ok(Self { stats: ProducerStats::default() })
    }

    /// See [`App::handle`](super::App::handle).
    pub fn handle(&mut self, _now: Instant, inputs: &mut Vec<AppInput>, _out: &mut AppOutbox) {
        inputs.clear();
    }

    /// See [`App::next_wakeup`](super::App::next_wakeup).
    pub fn next_wakeup(&self) -> Option<Instant> {
        None
    }

    /// See [`App::is_done`](super::App::is_done).
    pub fn is_done(&self) -> bool {
        true
    }

    /// Counters.
    pub fn stats(&self) -> ProducerStats {
        self.stats
    }
}
