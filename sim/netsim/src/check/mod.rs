//! What must hold in every run. Each promise is a small module of its own; the engine asks them
//! all, always.

pub(crate) mod answers;
pub(crate) mod bounds;
pub(crate) mod disk;
pub(crate) mod liveness;
pub(crate) mod octets;
pub(crate) mod recent;

use crate::error::ViolationKind;

/// A promise that was broken, before time, seed and history are added.
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
