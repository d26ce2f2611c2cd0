//! How long to wait before something is tried again.

use std::time::Duration;

use weir_base::Rng;

const FIRST: Duration = Duration::from_millis(250);
const LONGEST: Duration = Duration::from_secs(30);

/// Waits that double, of which the half is drawn, so that the routers of a controller that comes
/// back do not all come at once.
#[derive(Debug)]
pub(crate) struct Backoff {
    failures: u32,
    longest: Duration,
    rng: Rng,
}

impl Backoff {
    pub(crate) fn new(seed: u64) -> Self {
        Self { failures: 0, longest: LONGEST, rng: Rng::from_seed(seed) }
    }

    /// From now on no wait is longer than this, as far as the other side does not ask for it.
    pub(crate) fn bound(&mut self, longest: Duration) {
        self.longest = longest.clamp(FIRST, LONGEST);
    }

    /// After a failure; `least` is what the other side asks for.
    pub(crate) fn next(&mut self, least: Option<Duration>) -> Duration {
        let whole = FIRST.saturating_mul(1 << self.failures.min(10)).min(self.longest);
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
    fn waits_are_as_short_as_they_must_be() {
        let mut backoff = Backoff::new(1);
        for (bound, longest) in [(5000, 5000), (0, 250), (3_600_000, 30_000)] {
            backoff.bound(Duration::from_millis(bound));
            let longest = Duration::from_millis(longest);
            let waits: Vec<Duration> = (0..100).map(|_| backoff.next(None)).collect();
            assert!(waits.iter().all(|wait| *wait <= longest), "{bound}: {waits:?}");
            assert!(waits.iter().any(|wait| *wait > longest * 3 / 4), "{bound}: {waits:?}");
        }
        backoff.bound(Duration::from_secs(5));
        assert_eq!(backoff.next(Some(Duration::from_secs(60))), Duration::from_secs(60));
    }

    /// A router that is started just before its controller is not left waiting.
    #[test]
    fn the_first_attempts_are_quick() {
        for seed in 0..1000 {
            let mut backoff = Backoff::new(seed);
            let first: Duration = (0..3).map(|_| backoff.next(None)).sum();
            assert!(first < Duration::from_secs(2), "{seed}: {first:?}");
        }
    }

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
