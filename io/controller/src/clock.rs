//! What time it is: for decisions a clock that only goes forward, for people the one on the wall.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant as StdInstant, SystemTime, UNIX_EPOCH};

use weir_base::Instant;

/// It is asked several times a second. What is longer between two questions is not reckoned: the
/// program or its machine stood still, and routers that reported meanwhile could not be heard.
const STEP_MAX: Duration = Duration::from_secs(1);

/// The clock of decisions, which counts from the start of the program while that runs.
pub(crate) struct Clock {
    /// When it was asked last, and what it said then.
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
        let (before, said) = *last;
        let said = said + now.saturating_duration_since(before).min(STEP_MAX);
        *last = (now.max(before), said);
        Instant::from_ns(u64::try_from(said.as_nanos()).unwrap_or(u64::MAX))
    }
}

/// Milliseconds since 1970. Wrong where the machine's clock is: only expiry of tokens and texts for
/// people depend on it.
pub(crate) fn wall_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_in_which_the_program_stood_still_is_not_reckoned() {
        let begin = StdInstant::now();
        let clock = Clock { last: Mutex::new((begin, Duration::ZERO)) };
        let at = |ms| clock.at(begin + Duration::from_millis(ms)).as_ns() / 1_000_000;
        assert_eq!((at(200), at(400)), (200, 400));
        assert_eq!((at(3_600_400), at(3_600_600)), (1400, 1600));
        // It never goes back.
        assert_eq!((at(100), at(3_600_700)), (1600, 1700));
    }
}
