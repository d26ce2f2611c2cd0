//! Round-trip time and retransmission timeout (RFC 6298).

use crate::time::{NS_PER_MS, NS_PER_S};

#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub struct RttConfig {
    /// The timeout before the first sample, in nanoseconds.
    pub initial_rto_ns: u64,
    pub rto_min_ns: u64,
    pub rto_max_ns: u64,
    /// The number of deviations by which the timeout exceeds the smoothed time (`K` in RFC 6298).
    pub deviations: u64,
}

impl Default for RttConfig {
    /// The values of ndnget: 1 s initially, 200 ms to 60 s, K = 8. RFC 6298 has K = 4 for one
    /// sample in a round trip. A consumer that samples every segment sees the deviation shrink
    /// between bursts.
    fn default() -> Self {
        Self {
            initial_rto_ns: NS_PER_S,
            rto_min_ns: 200 * NS_PER_MS,
            rto_max_ns: 60 * NS_PER_S,
            deviations: 8,
        }
    }
}

/// Smoothing of the mean (1 / alpha in RFC 6298).
const MEAN_DIVISOR: i64 = 8;
/// Smoothing of the deviation (1 / beta in RFC 6298).
const DEVIATION_DIVISOR: i64 = 4;
/// The timeout exceeds the smoothed time by at least this part of it (RFC 6298, 2.3 uses the clock
/// granularity). If round trips hardly deviate, the first queued packet would time out otherwise.
const MARGIN_DIVISOR: u64 = 4;
/// The factor by which a timeout grows each time it expires (RFC 6298, 5.5).
const BACKOFF: u64 = 2;

/// Estimates the round-trip time from samples, and derives the retransmission timeout. All times
/// are in nanoseconds.
#[derive(Clone, Debug)]
pub struct RttEstimator {
    config: RttConfig,
    smoothed_ns: i64,
    deviation_ns: i64,
    min_ns: u64,
    rto_ns: u64,
    samples: u64,
}

impl RttEstimator {
    /// An estimator without a sample.
    pub fn new(config: RttConfig) -> Self {
        Self {
            config,
            smoothed_ns: 0,
            deviation_ns: 0,
            min_ns: u64::MAX,
            rto_ns: config.initial_rto_ns,
            samples: 0,
        }
    }

    /// Takes one sample, from an Interest that was sent only once (RFC 6298, 3). `samples_per_rtt`
    /// is the expected number of samples in a round trip. Each sample weighs less by this factor,
    /// so the estimator remembers the same number of round trips for any window (as in ndn-cxx).
    #[inline]
    pub fn sample(&mut self, rtt_ns: u64, samples_per_rtt: u32) {
        let rtt = i64::try_from(rtt_ns).unwrap_or(i64::MAX / 64);
        let share = i64::from(samples_per_rtt.max(1));
        if self.samples == 0 {
            self.smoothed_ns = rtt;
            self.deviation_ns = rtt / 2;
        } else {
            let error = rtt - self.smoothed_ns;
            self.deviation_ns += (error.abs() - self.deviation_ns) / (DEVIATION_DIVISOR * share);
            self.smoothed_ns += error / (MEAN_DIVISOR * share);
        }
        self.samples += 1;
        self.min_ns = self.min_ns.min(rtt_ns);
        let deviation = self.config.deviations.saturating_mul(self.deviation_ns.unsigned_abs());
        let smoothed = self.smoothed_ns.unsigned_abs();
        self.set_rto(smoothed.saturating_add(deviation.max(smoothed / MARGIN_DIVISOR)));
    }

    /// Doubles the timeout after it has expired. The next sample computes it again.
    pub fn back_off(&mut self) {
        self.set_rto(self.rto_ns.saturating_mul(BACKOFF));
    }

    pub fn rto_ns(&self) -> u64 {
        self.rto_ns
    }

    /// The smoothed round-trip time; `None` before the first sample.
    pub fn smoothed_ns(&self) -> Option<u64> {
        (self.samples > 0).then_some(self.smoothed_ns.unsigned_abs())
    }

    /// The smallest sample so far; `None` before the first.
    pub fn min_ns(&self) -> Option<u64> {
        (self.samples > 0).then_some(self.min_ns)
    }

    fn set_rto(&mut self, rto_ns: u64) {
        self.rto_ns = rto_ns.clamp(self.config.rto_min_ns, self.config.rto_max_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_sample_sets_mean_and_half_deviation() {
        let mut rtt = RttEstimator::new(RttConfig::default());
        assert_eq!(rtt.rto_ns(), NS_PER_S);
        assert_eq!(rtt.smoothed_ns(), None);
        rtt.sample(100 * NS_PER_MS, 1);
        assert_eq!(rtt.smoothed_ns(), Some(100 * NS_PER_MS));
        assert_eq!(rtt.rto_ns(), 500 * NS_PER_MS);
    }

    #[test]
    fn second_sample_is_weighed_as_in_the_rfc() {
        let mut rtt = RttEstimator::new(RttConfig::default());
        rtt.sample(100 * NS_PER_MS, 1);
        rtt.sample(180 * NS_PER_MS, 1);
        assert_eq!(rtt.smoothed_ns(), Some(110 * NS_PER_MS));
        // deviation 50 + (80 - 50) / 4 = 57.5 ms
        assert_eq!(rtt.rto_ns(), 110 * NS_PER_MS + 8 * 57_500_000);
        assert_eq!(rtt.min_ns(), Some(100 * NS_PER_MS));
    }

    #[test]
    fn a_steady_round_trip_leaves_a_margin() {
        let mut rtt = RttEstimator::new(RttConfig::default());
        for _ in 0..100 {
            rtt.sample(400 * NS_PER_MS, 1);
        }
        assert_eq!(rtt.rto_ns(), 500 * NS_PER_MS);
    }

    #[test]
    fn many_samples_a_round_trip_count_as_one() {
        let mut one = RttEstimator::new(RttConfig::default());
        let mut many = one.clone();
        one.sample(NS_PER_MS, 1);
        many.sample(NS_PER_MS, 1);
        one.sample(9 * NS_PER_MS, 1);
        for _ in 0..100 {
            many.sample(9 * NS_PER_MS, 100);
        }
        let (one, many) = (one.smoothed_ns().unwrap(), many.smoothed_ns().unwrap());
        assert!(one.abs_diff(many) < one / 10, "{one} against {many}");
    }

    #[test]
    fn timeout_stays_within_its_bounds() {
        let mut rtt = RttEstimator::new(RttConfig::default());
        rtt.sample(1000, 1);
        assert_eq!(rtt.rto_ns(), 200 * NS_PER_MS);
        for _ in 0..20 {
            rtt.back_off();
        }
        assert_eq!(rtt.rto_ns(), 60 * NS_PER_S);
        rtt.sample(u64::MAX, 1);
        assert_eq!(rtt.rto_ns(), 60 * NS_PER_S);
    }
}
