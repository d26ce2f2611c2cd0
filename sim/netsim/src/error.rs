//! Errors of a run.

use std::fmt;

/// The kind of check that failed. Each kind has its own exit code in `weir`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ViolationKind {
    /// A bound, the one answer for each Interest, or the empty PIT at the end was violated.
    Invariant,
    /// An unfinished consumer made no progress, and no fault explains it.
    Liveness,
    /// A consumer received bytes other than those produced.
    Correctness,
}

impl fmt::Display for ViolationKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Invariant => "invariant",
            Self::Liveness => "liveness",
            Self::Correctness => "correctness",
        })
    }
}

/// A check failed, and the run ended there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind} violated at {at_ns} ns at node `{node}` (seed {seed}): {what}")]
pub struct Violation {
    pub kind: ViolationKind,
    pub what: String,
    /// Virtual time, ns from the start of the run.
    pub at_ns: u64,
    pub node: String,
    /// The seed that repeats the failure.
    pub seed: u64,
    /// The last trace lines, oldest first.
    pub last_events: Vec<String>,
}
