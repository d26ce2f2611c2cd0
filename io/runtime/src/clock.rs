//! Converts the system's monotonic clock to the core's [`Instant`].

use std::time::Duration;

use weir_base::Instant;

/// Maps `std::time::Instant` to the core's [`Instant`]: nanoseconds since the router started, the
/// same on all its threads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    epoch: std::time::Instant,
}

impl Clock {
    pub(crate) fn start() -> Self {
        Self { epoch: std::time::Instant::now() }
    }

    pub(crate) fn now(&self) -> Instant {
        Instant::from_ns(self.epoch.elapsed().as_nanos() as u64)
    }
}

/// Time to sleep until `deadline`, rounded up to milliseconds, the unit of `epoll_wait`. Rounding
/// down would wake the thread early and make it spin. `None` if there is no deadline.
pub(crate) fn sleep_until(now: Instant, deadline: Instant) -> Option<Duration> {
    if deadline == Instant::FAR_FUTURE {
        return None;
    }
    Some(Duration::from_millis(deadline.ns_since(now).div_ceil(1_000_000)))
}
