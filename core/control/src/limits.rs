//! Limits on what one router may report or request, and events when a router exceeds one.

use weir_base::{Instant, NS_PER_S, words};

/// Which limit a report or a request of a router exceeded. The excess is ignored and counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LimitKind {
    /// Holdings: segments that the file does not have.
    BeyondFile,
    /// Holdings: more bytes than the router's store can hold, by the sizes that producers and the
    /// router reported.
    BeyondStore,
    /// Holdings: more objects than one router may report (`objects_max`).
    Objects,
    /// Holdings: more objects that no producer has registered than the controller remembers for one
    /// router (`unregistered_max`).
    Unregistered,
    /// Holdings: they would take more of the controller's memory than one router, or all routers
    /// together, may use.
    Memory,
    /// Requests that would make a new plan: more than one router may cause.
    Plans,
    /// Requests for one object: more than count as demand of one router. They are counted without
    /// an event, because the router gets its answers all the same.
    Demand,
    /// The router reports an address that another router reported earlier.
    Address,
    /// The router reports prefixes that its token does not cover.
    Prefix,
    /// Plans need more store rules on this router than it may have. Rules of the smallest files are
    /// left out; the store treats these files as without a controller.
    Rules,
    /// Another router with this name is already registered. The whole report is refused.
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

/// Minimum time between two events of one kind about one router.
const EVENT_INTERVAL_NS: u64 = 60 * NS_PER_S;

/// Limits events about one router and one [`LimitKind`] to one a minute. Occurrences in between are
/// added up, and the next event reports their sum.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct EventLimiter {
    unreported: u64,
    reported_at: Option<Instant>,
}

impl EventLimiter {
    /// Counts `count` more occurrences. Returns the sum to report if an event is due now.
    pub(crate) fn add(&mut self, now: Instant, count: u64) -> Option<u64> {
        self.unreported = self.unreported.saturating_add(count);
        self.due(now)
    }

    /// Returns the occurrences since the last event if an event is due now.
    pub(crate) fn due(&mut self, now: Instant) -> Option<u64> {
        let is_silent = self.reported_at.is_some_and(|at| now.ns_since(at) < EVENT_INTERVAL_NS);
        if is_silent || self.unreported == 0 {
            return None;
        }
        self.reported_at = Some(now);
        Some(core::mem::take(&mut self.unreported))
    }
}
