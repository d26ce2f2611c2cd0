//! What of one router does not count, for being too much.

use weir_base::{Instant, NS_PER_S, words};

/// By what something that a router says or asks does not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LimitKind {
    /// It holds segments that the file does not have.
    BeyondFile,
    /// It holds more than its store can, by the sizes that producers and the router itself told.
    BeyondStore,
    /// It holds something of more objects than one router may speak of.
    Objects,
    /// It holds something of more objects that are no files than are remembered of one router.
    Unregistered,
    /// What it tells takes more memory here than one router, or all together, may have.
    Memory,
    /// It asks for more new plans than one router may.
    Plans,
    /// It asks for an object more often than one router's questions count, where objects are placed
    /// by demand. Counted, but no event: it has its answer all the same.
    Demand,
    /// It gives an address as its own that another router gave before.
    Address,
    /// It tells of prefixes that its token does not allow.
    Prefix,
    /// Plans have more rules for its store than it may have: those of the smallest files are left
    /// out, so that it stores of them as without a controller.
    Rules,
    /// It reports by the name of a router that is there: all that it tells.
    Name,
}

words!(LimitKind {
    BeyondFile = "beyond-file",
    BeyondStore = "beyond-store",
    Objects = "objects",
    Unregistered = "unregistered",
    Memory = "memory",
    Plans = "plans",
    Demand = "demand",
    Address = "address",
    Prefix = "prefix",
    Rules = "rules",
    Name = "name",
});

/// Between two events of one kind about one router.
const EVENT_INTERVAL_NS: u64 = 60 * NS_PER_S;

/// How often something of one router did not count, and what of it was told.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct EventLimiter {
    unreported: u64,
    reported_at: Option<Instant>,
}

impl EventLimiter {
    /// It happened again. How often since it was told last, if it is to be told now.
    pub(crate) fn add(&mut self, now: Instant, count: u64) -> Option<u64> {
        self.unreported = self.unreported.saturating_add(count);
        self.due(now)
    }

    /// How often it happened since it was told last, if it is to be told now.
    pub(crate) fn due(&mut self, now: Instant) -> Option<u64> {
        let is_silent = self.reported_at.is_some_and(|at| now.ns_since(at) < EVENT_INTERVAL_NS);
        if is_silent || self.unreported == 0 {
            return None;
        }
        self.reported_at = Some(now);
        Some(core::mem::take(&mut self.unreported))
    }
}
