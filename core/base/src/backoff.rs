//! Waits between retries.

use crate::rng::Rng;

/// Exponential back-off: `first_ns` after the first consecutive failure, twice that after the
/// second, and so on, but never more than `max_ns`.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Backoff {
    first_ns: u64,
    max_ns: u64,
}

impl Backoff {
    /// A `max_ns` below `first_ns` counts as `first_ns`.
    pub const fn new(first_ns: u64, max_ns: u64) -> Self {
        Self { first_ns, max_ns: if max_ns < first_ns { first_ns } else { max_ns } }
    }

    /// The wait after consecutive failure number `failure`, from 1, in nanoseconds.
    pub const fn delay_ns(&self, failure: u32) -> u64 {
        let doublings = failure.saturating_sub(1);
        let factor = if doublings < u64::BITS { 1 << doublings } else { u64::MAX };
        let delay_ns = self.first_ns.saturating_mul(factor);
        if delay_ns < self.max_ns { delay_ns } else { self.max_ns }
    }

    /// Like [`Self::delay_ns`] with jitter: a random time between half of the delay and all of it.
    /// So the clients of a server do not all retry at the same moment.
    pub fn jittered_ns(&self, failure: u32, rng: &mut Rng) -> u64 {
        let half_ns = self.delay_ns(failure) / 2;
        half_ns + (half_ns as f64 * rng.unit()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn delays_double_up_to_the_bound() {
        let delays = |first, max| -> Vec<u64> {
            let backoff = Backoff::new(first, max);
            (1..=9).map(|failure| backoff.delay_ns(failure)).collect()
        };
        assert_eq!(delays(1, 60), [1, 2, 4, 8, 16, 32, 60, 60, 60]);
        assert_eq!(delays(5, 60), [5, 10, 20, 40, 60, 60, 60, 60, 60]);
        assert_eq!(delays(5, 3), [5; 9]);
        assert_eq!(delays(0, 60)[8], 0);
        let wide = Backoff::new(1, u64::MAX);
        assert_eq!([0, 64, 65, u32::MAX].map(|at| wide.delay_ns(at)), [1, 1 << 63, !0, !0]);
    }

    #[test]
    fn jitter_draws_the_upper_half() {
        let (backoff, mut rng) = (Backoff::new(1000, 64_000), Rng::from_seed(1));
        for failure in 1..=10 {
            let whole = backoff.delay_ns(failure);
            let drawn: Vec<u64> =
                (0..100).map(|_| backoff.jittered_ns(failure, &mut rng)).collect();
            assert!(drawn.iter().all(|ns| (whole / 2..=whole).contains(ns)), "{drawn:?}");
            let spread = drawn.iter().max().unwrap() - drawn.iter().min().unwrap();
            assert!(spread > whole / 4, "{failure}: {spread}");
        }
    }
}
