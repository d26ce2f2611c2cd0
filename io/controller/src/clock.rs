//! What time it is: for decisions a clock that only goes forward, for people the one on the wall.

use std::time::{Instant as StdInstant, SystemTime, UNIX_EPOCH};

use weir_base::Instant;

/// The clock of decisions, which counts from the start of the program.
pub(crate) struct Clock {
    start: StdInstant,
}

impl Clock {
    pub(crate) fn start() -> Self {
        Self { start: StdInstant::now() }
    }

    pub(crate) fn now(&self) -> Instant {
        Instant::from_ns(u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }
}

/// Milliseconds since 1970. Wrong where the machine's clock is: only expiry of tokens and texts for
/// people depend on it.
pub(crate) fn wall_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
