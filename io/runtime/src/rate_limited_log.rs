//! Rate limit for repeated warnings.

use weir_base::{Instant, NS_PER_S};

/// Allows one warning a minute, with the number of events since the last one.
#[derive(Debug, Default)]
pub(crate) struct RateLimitedLog {
    count: u64,
    again_at: Option<Instant>,
}

const INTERVAL_NS: u64 = 60 * NS_PER_S;

impl RateLimitedLog {
    /// Counts an event. Returns the number of events since the last warning, if a warning is due.
    pub(crate) fn add(&mut self, now: Instant) -> Option<u64> {
        self.count += 1;
        if self.again_at.is_some_and(|at| now < at) {
            return None;
        }
        self.again_at = Some(now.plus_ns(INTERVAL_NS));
        Some(std::mem::take(&mut self.count))
    }
}
