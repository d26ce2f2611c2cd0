//! Clocks: a monotonic one for decisions, and the wall clock for people and expiry.

use std::fmt;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant as StdInstant, SystemTime, UNIX_EPOCH};

use weir_base::Instant;

/// The clock is read several times a second. A longer gap counts as this long: the program or the
/// machine was suspended, and routers could not report in that time.
const STEP_MAX: Duration = Duration::from_secs(1);

/// The clock for decisions. It counts from the start of the program, while the program runs.
pub(crate) struct Clock {
    /// When it was read last, and the time it showed.
    last: Mutex<(StdInstant, Duration)>,
}

impl Clock {
    pub(crate) fn start() -> Self {
        Self { last: Mutex::new((StdInstant::now(), Duration::ZERO)) }
    }

    pub(crate) fn now(&self) -> Instant {
        self.at(StdInstant::now())
    }

    fn at(&self, now: StdInstant) -> Instant {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let (before, elapsed) = *last;
        let elapsed = elapsed + now.saturating_duration_since(before).min(STEP_MAX);
        *last = (now.max(before), elapsed);
        Instant::from_ns(u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX))
    }
}

/// The system's wall clock. A wrong clock affects only the expiry of tokens and displayed times.
/// No other decision depends on it, or on times that another clock has written.
#[derive(Clone, Debug, Default)]
pub struct WallClock {
    /// Its offset from the system clock, for tests with a wrong clock.
    ahead_ms: Arc<AtomicI64>,
}

/// A clock with an offset in milliseconds that can change at any time.
impl From<Arc<AtomicI64>> for WallClock {
    fn from(ahead_ms: Arc<AtomicI64>) -> Self {
        Self { ahead_ms }
    }
}

impl WallClock {
    /// Milliseconds since 1970; 0 before that.
    pub(crate) fn now_ms(&self) -> u64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let machine_ms = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
        machine_ms.saturating_add_signed(self.ahead_ms.load(Ordering::Relaxed))
    }
}

impl PartialEq for WallClock {
    fn eq(&self, other: &Self) -> bool {
        let ahead_ms = |clock: &Self| clock.ahead_ms.load(Ordering::Relaxed);
        ahead_ms(self) == ahead_ms(other)
    }
}

impl Eq for WallClock {}

/// A wall time in milliseconds since 1970, to display.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct WallTime(pub(crate) u64);

impl fmt::Display for WallTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// Seconds until the end of the year 9999, the last year that can be formatted.
        const LAST_S: u64 = 253_402_300_799;
        let time = UNIX_EPOCH + Duration::from_secs((self.0 / 1000).min(LAST_S));
        f.write_str(&httpdate::fmt_http_date(time))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_skips_suspended_time() {
        let begin = StdInstant::now();
        let clock = Clock { last: Mutex::new((begin, Duration::ZERO)) };
        let at = |ms| clock.at(begin + Duration::from_millis(ms)).as_ns() / 1_000_000;
        assert_eq!((at(200), at(400)), (200, 400));
        assert_eq!((at(3_600_400), at(3_600_600)), (1400, 1600));
        // It never runs backwards.
        assert_eq!((at(100), at(3_600_700)), (1600, 1700));
    }

    #[test]
    fn accepts_any_wall_clock_error() {
        let ahead_ms = Arc::<AtomicI64>::default();
        let (clock, machine) = (WallClock::from(ahead_ms.clone()), WallClock::default());
        let years_ms = 40 * 366 * 24 * 3600 * 1000;
        ahead_ms.store(years_ms, Ordering::Relaxed);
        assert!(clock.now_ms() - machine.now_ms() > 40 * 365 * 24 * 3600 * 1000);
        ahead_ms.store(-2 * years_ms, Ordering::Relaxed);
        assert_eq!((clock.now_ms(), clock == machine), (0, false));
        ahead_ms.store(i64::MAX, Ordering::Relaxed);
        for at_ms in [clock.now_ms(), u64::MAX] {
            assert_eq!(WallTime(at_ms).to_string(), "Fri, 31 Dec 9999 23:59:59 GMT");
        }
        assert_eq!(WallTime(1_000_000_000_000).to_string(), "Sun, 09 Sep 2001 01:46:40 GMT");
    }
}
