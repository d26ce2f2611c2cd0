//! Limits what neighbours may cause in one second.

use weir_base::{Instant, NS_PER_S};

/// Counts events in one second.
#[derive(Debug)]
pub(crate) struct RateLimit {
    per_second_max: u32,
    second: u64,
    count: u32,
}

impl RateLimit {
    pub(crate) fn new(per_second_max: u32) -> Self {
        Self { per_second_max, second: 0, count: 0 }
    }

    /// Counts an event. Returns whether it may be handled.
    pub(crate) fn try_acquire(&mut self, now: Instant) -> bool {
        let second = now.as_ns() / NS_PER_S;
        if self.second != second {
            (self.second, self.count) = (second, 0);
        }
        self.count = self.count.saturating_add(1);
        self.count <= self.per_second_max
    }
}
