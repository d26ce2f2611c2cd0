//! Warnings that would repeat.

use weir_base::{Instant, NS_PER_S};

/// One warning a minute, with the number of times since the one before.
#[derive(Debug, Default)]
pub(crate) struct RateLimitedLog {
    count: u64,
    again_at: Option<Instant>,
}

const INTERVAL_NS: u64 = 60 * NS_PER_S;

impl RateLimitedLog {
    /// Counts one more; when it is time to warn, how many there were since the last warning.
    pub(crate) fn add(&mut self, now: Instant) -> Option<u64> {
        self.count += 1;
        if self.again_at.is_some_and(|at| now < at) {
            return None;
        }
        self.again_at = Some(now.plus_ns(INTERVAL_NS));
        Some(std::mem::take(&mut self.count))
    }
}
