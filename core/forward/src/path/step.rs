//! The stages of an Interest as values, for drivers in which Interests wait between stages.

use crate::content::decision::ForwardingAction;

/// The next stage of an Interest, with the decisions of earlier stages.
#[derive(Clone, Debug)]
pub enum InterestStep {
    /// Check of face, HopLimit, scope and nonce.
    Arrival,
    /// Lookup in the content store.
    Store,
    /// Creation of a PIT entry, or aggregation with an existing one.
    Pit(ForwardingAction),
    /// Longest prefix match in the FIB, strategy, egress.
    Fib(ForwardingAction),
}
