//! Consumers.

use weir_base::Instant;

use super::{AppInput, AppOutbox};
use crate::event::EventKind;
use crate::workload::{ConsumerPlan, WorkloadError};

/// What a consumer did so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConsumerStats {
    /// Interests sent.
    pub interests: u64,
    /// Interests answered with the right octets.
    pub answered: u64,
    /// Interests not answered within their lifetime.
    pub timed_out: u64,
    /// Interests refused.
    pub nacked: u64,
    /// Data with wrong octets.
    pub damaged: u64,
    /// Data that nobody waited for: too late, or a second time.
    pub unwanted: u64,
    /// Packets that could not be decoded.
    pub malformed: u64,
    /// Objects complete.
    pub objects_completed: u64,
    /// Objects given up.
    pub objects_failed: u64,
}

/// Asks for what its plan says, and checks every octet that it gets.
#[derive(Debug)]
pub struct Consumer {
    stats: ConsumerStats,
}

impl Consumer {
    /// The consumer of `plan`. It sends nothing from `duration_ns` on and only waits for what is
    /// outstanding then.
    ///
    /// # Errors
    /// A value of the plan is out of range.
    pub fn new(_plan: &ConsumerPlan, _duration_ns: u64, _seed: u64) -> Result<Self, WorkloadError> {
        Ok(Self { stats: ConsumerStats::default() })
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

    /// See [`App::sample`](super::App::sample).
    pub fn sample(&self) -> Option<EventKind> {
        None
    }

    /// Counters.
    pub fn stats(&self) -> ConsumerStats {
        self.stats
    }
}
