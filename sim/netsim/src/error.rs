//! What can go wrong in a run.

use std::fmt;

/// Which kind of promise a run broke. Each has an exit code of its own in the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ViolationKind {
    /// Something that must always hold did not: a bound, one Data for one Interest, an empty PIT.
    Invariant,
    /// A consumer with unfinished work made no progress although nothing excused it.
    Liveness,
    /// A consumer was given other octets than were produced, or others than its twin.
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

/// A run broke a promise and stopped there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind} violated at {at_ns} ns at node `{node}` (seed {seed}): {what}")]
pub struct Violation {
    pub kind: ViolationKind,
    pub what: String,
    /// When, ns from the start of the run.
    pub at_ns: u64,
    pub node: String,
    /// The seed with which it happens again.
    pub seed: u64,
    /// What happened in the network just before, oldest first, one line each.
    pub last_events: Vec<String>,
}
