//! Checks that an unfinished consumer makes progress, and that virtual time advances.

use weir_base::NS_PER_S;

/// Unanswered Interests in a row before a stall is possible.
const UNANSWERED_MIN: u32 = 64;
/// Interest lifetimes without an answer before a stall is possible.
const LIFETIMES: u64 = 10;
/// Deliveries to one consumer at one instant. More than this means that virtual time stands still.
const EVENTS_PER_INSTANT_MAX: u32 = 1 << 20;
/// Limit on consecutive calls of a router that requests the next call at once each time.
const CALLS_PER_INSTANT_MAX: u32 = 10_000;
/// Shortest time without an answer that counts as a stall.
const STALL_TIMEOUT_MIN_NS: u64 = 10 * NS_PER_S;

#[derive(Clone, Debug, Default)]
pub(crate) struct Progress {
    patience_ns: u64,
    latest_ns: u64,
    unanswered: u32,
    /// Deliveries at the instant `latest_ns`.
    at_once: u32,
}

impl Progress {
    pub(crate) fn new(lifetime_ms: u64) -> Self {
        let lifetime_ns = lifetime_ms.saturating_mul(1_000_000);
        let patience_ns = lifetime_ns.saturating_mul(LIFETIMES).max(STALL_TIMEOUT_MIN_NS);
        Self { patience_ns, latest_ns: 0, unanswered: 0, at_once: 0 }
    }

    /// Records that a Data (even a late one) or a Nack reached the consumer.
    #[inline]
    pub(crate) fn on_delivery(&mut self, now_ns: u64) -> Result<(), String> {
        self.at_once = if now_ns == self.latest_ns { self.at_once + 1 } else { 0 };
        self.latest_ns = now_ns;
        self.unanswered = 0;
        if self.at_once <= EVENTS_PER_INSTANT_MAX {
            return Ok(());
        }
        Err(format!(
            "virtual time stands still: the consumer received {EVENTS_PER_INSTANT_MAX} packets at \
             one instant, because answers take no time or its window has no limit; give its link a \
             rate or the router's store a service time"
        ))
    }

    /// Records that the consumer sent an Interest. The time up to `excused_until_ns` does not count
    /// as a stall, because a fault may have lost the answers.
    #[inline]
    pub(crate) fn on_interest(&mut self, now_ns: u64, excused_until_ns: u64) -> Result<(), String> {
        self.unanswered += 1;
        if self.unanswered == 1 && self.latest_ns != now_ns {
            self.latest_ns = now_ns;
            self.at_once = 0;
        }
        let since_ns = self.latest_ns.max(excused_until_ns);
        if self.unanswered < UNANSWERED_MIN || now_ns <= since_ns.saturating_add(self.patience_ns) {
            return Ok(());
        }
        Err(format!(
            "the consumer sent {} Interests in {} ms and received no answer",
            self.unanswered,
            (now_ns - self.latest_ns) / 1_000_000
        ))
    }
}

/// Checks that a consumer with work left has a wake-up time.
pub(crate) fn check_wakeup(is_done: bool, has_wakeup: bool) -> Result<(), String> {
    if is_done || has_wakeup {
        return Ok(());
    }
    Err("the application is not done but has no wake-up time".into())
}

/// Checks that a shard stops requesting immediate calls. A shard may split its work over several
/// calls, so only a long series of them is an error. `count` is the length of the series.
pub(crate) fn check_quiescence(count: u32) -> Result<(), String> {
    if count <= CALLS_PER_INSTANT_MAX {
        return Ok(());
    }
    Err(format!(
        "the router was called {CALLS_PER_INSTANT_MAX} times in a row and still requests another \
         call at once"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn detects_stalls_outside_faults() {
        let mut progress = Progress::new(1000);
        for second in 0..64 {
            assert_eq!(progress.on_interest(second * NS_PER_S / 10, 0), Ok(()));
        }
        assert!(progress.on_interest(11 * NS_PER_S, 0).unwrap_err().contains("65 Interests"));
        assert_eq!(progress.on_interest(11 * NS_PER_S, 5 * NS_PER_S), Ok(()), "a fault excuses");
        progress.on_delivery(11 * NS_PER_S).unwrap();
        assert_eq!(progress.on_interest(30 * NS_PER_S, 0), Ok(()));
    }

    #[test]
    fn rare_interests_are_no_stall() {
        let mut progress = Progress::new(1000);
        for minute in 0..60 {
            assert_eq!(progress.on_interest(minute * 60 * NS_PER_S, 0), Ok(()));
            progress.on_delivery(minute * 60 * NS_PER_S + 1).unwrap();
        }
    }

    #[test]
    fn detects_time_that_stands_still() {
        let mut progress = Progress::new(1000);
        let mut ask = |now_ns| {
            progress.on_interest(now_ns, 0).unwrap();
            progress.on_delivery(now_ns)
        };
        for _ in 0..EVENTS_PER_INSTANT_MAX {
            ask(5).unwrap();
        }
        for now_ns in 6..u64::from(EVENTS_PER_INSTANT_MAX) + 20 {
            ask(now_ns).unwrap();
        }
        let mut last = Ok(());
        for _ in 0..EVENTS_PER_INSTANT_MAX + 2 {
            last = ask(NS_PER_S);
        }
        assert!(last.unwrap_err().contains("stands still"));
    }

    #[test]
    fn detects_router_that_never_settles() {
        assert_eq!(check_quiescence(CALLS_PER_INSTANT_MAX), Ok(()));
        assert!(check_quiescence(CALLS_PER_INSTANT_MAX + 1).unwrap_err().contains("at once"));
    }

    #[test]
    fn detects_unfinished_app_without_wakeup() {
        assert!(check_wakeup(false, false).is_err());
        assert_eq!(check_wakeup(true, false), Ok(()));
        assert_eq!(check_wakeup(false, true), Ok(()));
    }
}
