//! The stages of an Interest as values, for drivers in which Interests wait between them.

use crate::content::decision::ForwardingAction;

/// The next stage of an Interest, with what the stages before it have decided.
#[derive(Clone, Debug)]
pub enum InterestStep {
    /// Scope, hop limit and loop check.
    Arrival,
    /// Lookup in the content store.
    Store,
    /// Insertion into the PIT, or aggregation with the entry that is there.
    Pit(ForwardingAction),
    /// Longest prefix match in the FIB, strategy, egress.
    Fib(ForwardingAction),
}
