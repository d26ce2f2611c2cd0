//! Waits before a request to the controller is retried.

use std::time::Duration;

use weir_base::{Backoff, NS_PER_MS, NS_PER_S, Rng};

const FIRST_NS: u64 = 250 * NS_PER_MS;
const MAX_NS: u64 = 30 * NS_PER_S;
/// The longest wait that a controller may request.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(300);

/// Exponential waits with jitter, so that not all routers return to a controller at once.
#[derive(Debug)]
pub(crate) struct RetryWaits {
    failures: u32,
    backoff: Backoff,
    rng: Rng,
}

impl RetryWaits {
    pub(crate) fn new(seed: u64) -> Self {
        Self { failures: 0, backoff: Backoff::new(FIRST_NS, MAX_NS), rng: Rng::from_seed(seed) }
    }

    /// Sets the maximum wait. Only the controller itself can request a longer one.
    pub(crate) fn set_max(&mut self, max: Duration) {
        let max_ns = u64::try_from(max.as_nanos()).unwrap_or(u64::MAX);
        self.backoff = Backoff::new(FIRST_NS, max_ns.min(MAX_NS));
    }

    /// The wait after a failure. `requested` is the minimum wait that the controller requests.
    pub(crate) fn next(&mut self, requested: Option<Duration>) -> Duration {
        self.failures = self.failures.saturating_add(1);
        let wait = Duration::from_nanos(self.backoff.jittered_ns(self.failures, &mut self.rng));
        requested.map_or(wait, |requested| wait.max(requested.min(RETRY_AFTER_MAX)))
    }

    /// Call it after a success. Returns whether there was a failure before.
    pub(crate) fn reset(&mut self) -> bool {
        std::mem::take(&mut self.failures) > 0
    }

    /// Whether the last failure was the first in a row.
    pub(crate) fn is_first(&self) -> bool {
        self.failures == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_stay_within_limits() {
        let mut waits = RetryWaits::new(1);
        for (bound_ms, longest_ms) in [(5000, 5000), (0, 250), (3_600_000, 30_000)] {
            waits.set_max(Duration::from_millis(bound_ms));
            let longest = Duration::from_millis(longest_ms);
            let all: Vec<Duration> = (0..100).map(|_| waits.next(None)).collect();
            assert!(all.iter().all(|wait| *wait <= longest), "{bound_ms}: {all:?}");
            assert!(all.iter().any(|wait| *wait > longest * 3 / 4), "{bound_ms}: {all:?}");
        }
        let minute = Duration::from_secs(60);
        assert_eq!(waits.next(Some(minute)), minute);
        assert_eq!(waits.next(Some(minute * 60)), RETRY_AFTER_MAX);
        assert!(waits.reset() && !waits.reset());
        assert!(waits.next(None) <= Duration::from_nanos(FIRST_NS));
    }

    /// A router that starts shortly before its controller must not wait long.
    #[test]
    fn first_retries_are_quick() {
        for seed in 0..1000 {
            let mut waits = RetryWaits::new(seed);
            let first: Duration = (0..3).map(|_| waits.next(None)).sum();
            assert!(first < Duration::from_secs(2), "{seed}: {first:?}");
        }
    }
}
