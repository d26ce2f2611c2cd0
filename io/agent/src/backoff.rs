//! How long to wait before something is tried again.

use std::time::Duration;

use weir_base::Rng;

const FIRST: Duration = Duration::from_millis(500);
const LONGEST: Duration = Duration::from_secs(30);

/// Waits that double, of which the half is drawn, so that the routers of a controller that comes
/// back do not all come at once.
#[derive(Debug)]
pub(crate) struct Backoff {
    failures: u32,
    rng: Rng,
}

impl Backoff {
    pub(crate) fn new(seed: u64) -> Self {
        Self { failures: 0, rng: Rng::from_seed(seed) }
    }

    /// After a failure; `least` is what the other side asks for.
    pub(crate) fn next(&mut self, least: Option<Duration>) -> Duration {
        let whole = FIRST.saturating_mul(1 << self.failures.min(10)).min(LONGEST);
        self.failures += 1;
        let drawn = whole / 2 + (whole / 2).mul_f64(self.rng.unit());
        least.map_or(drawn, |least| drawn.max(least.min(LONGEST * 10)))
    }

    /// After a success; whether there was a failure before.
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
    fn waits_double_and_are_drawn() {
        let (mut one, mut other) = (Backoff::new(1), Backoff::new(2));
        let mut differ = 0;
        for at in 0..20 {
            let (first, second) = (one.next(None), other.next(None));
            let whole = FIRST.saturating_mul(1 << at.min(10)).min(LONGEST);
            assert!((whole / 2..=whole).contains(&first), "{at}: {first:?}");
            differ += u32::from(first != second);
        }
        assert!(differ > 10);
        assert!(one.reset() && !one.reset());
        assert!(one.next(None) <= FIRST);
        assert_eq!(one.next(Some(Duration::from_secs(60))), Duration::from_secs(60));
    }
}
