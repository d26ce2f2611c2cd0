//! Checks that run with every simulation.
//!
//! Each module holds one kind of check as a pure function or a small record. The engine calls them
//! at fixed points; a plan cannot switch them off. The first failure ends the run with a
//! [`Violation`](crate::Violation). It names the kind, the virtual time, the node and the seed that
//! repeats the run, and has the last 64 trace lines.
//!
//! | module | requirement | checked when |
//! |---|---|---|
//! | `answers` | at most one Data or Nack leaves for each delivered Interest | a node sends |
//! | `bounds` | tables and queues keep their limits | each sample, each 256 inputs of a shard |
//! | `disk` | disks are used within limits and lose nothing | each operation, each mark, the end |
//! | `liveness` | consumers progress, time advances | an application or a router is called |
//! | `content` | consumers accept only the bytes that were produced | an application is called |
//! | `recent` | none: it keeps the last trace lines | each trace line |
//!
//! A run ends in three steps:
//!
//! 1. Applications are no longer called, and the observer receives no more events.
//! 2. The engine runs on until no frame is in flight and no router is busy, then for one more
//!    Interest lifetime and 1 s.
//! 3. Every PIT must be empty, no disk may be busy, and each acknowledged record must be found.
//!
//! Example: a router answers `/a/1` twice. The consumer's Interest for `/a/1` reached the router's
//! end of the link once. The first Data consumes that Interest. The second Data finds none when it
//! leaves, and the run ends with an invariant violation at that time and node.
//!
//! A check must not change a run. It draws no random numbers, schedules no events, and mixes
//! nothing into the event hash. Faults relax a check only where the plan makes the failure
//! unavoidable. For example, a consumer may stall while a link is down, and a disk that loses
//! writes may lose records.

pub(crate) mod answers;
pub(crate) mod bounds;
pub(crate) mod content;
pub(crate) mod disk;
pub(crate) mod liveness;
pub(crate) mod recent;

use crate::error::ViolationKind;

/// A failed check, before the engine adds the time, the seed and the trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CheckFailure {
    pub(crate) kind: ViolationKind,
    pub(crate) node: u32,
    pub(crate) what: String,
}

impl CheckFailure {
    #[cold]
    pub(crate) fn invariant(node: u32, what: impl Into<String>) -> Self {
        Self { kind: ViolationKind::Invariant, node, what: what.into() }
    }

    #[cold]
    pub(crate) fn liveness(node: u32, what: impl Into<String>) -> Self {
        Self { kind: ViolationKind::Liveness, node, what: what.into() }
    }

    #[cold]
    pub(crate) fn correctness(node: u32, what: impl Into<String>) -> Self {
        Self { kind: ViolationKind::Correctness, node, what: what.into() }
    }
}
