use super::stats::LatenessStats;

/// Buckets of one power of two: values are known to 1 part in 32.
const STEPS: usize = 32;
const STEPS_LOG2: u32 = STEPS.trailing_zeros();
/// Up to 2^40 ns, 18 minutes.
const BUCKETS: usize = (40 - STEPS_LOG2 as usize + 1) * STEPS;

/// Counts of times in buckets whose width grows with the time; recording allocates nothing.
#[derive(Clone, Debug)]
pub(crate) struct Histogram {
    counts: Vec<u64>,
    total: u64,
    max_ns: u64,
}

impl Histogram {
    pub(crate) fn new() -> Self {
        Self { counts: vec![0; BUCKETS], total: 0, max_ns: 0 }
    }

    #[inline]
    pub(crate) fn record(&mut self, ns: u64) {
        self.counts[bucket(ns)] += 1;
        self.total += 1;
        self.max_ns = self.max_ns.max(ns);
    }

    /// The upper end of the bucket that holds the value of that rank, but never above the maximum.
    fn quantile(&self, share: f64) -> u64 {
        let rank = (self.total as f64 * share).ceil() as u64;
        let mut seen = 0;
        for (index, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank.max(1) {
                return bucket_end_ns(index).min(self.max_ns);
            }
        }
        self.max_ns
    }

    pub(crate) fn stats(&self) -> LatenessStats {
        if self.total == 0 {
            return LatenessStats::default();
        }
        LatenessStats {
            p50_ns: self.quantile(0.5),
            p90_ns: self.quantile(0.9),
            p99_ns: self.quantile(0.99),
            p999_ns: self.quantile(0.999),
            max_ns: self.max_ns,
        }
    }
}

/// Below 2 * STEPS each value has its own bucket; above, each power of two has STEPS of them.
fn bucket(ns: u64) -> usize {
    if ns < STEPS as u64 {
        return ns as usize;
    }
    let shift = ns.ilog2() - STEPS_LOG2;
    let index = (shift as usize) * STEPS + (ns >> shift) as usize;
    index.min(BUCKETS - 1)
}

/// The largest value of a bucket.
fn bucket_end_ns(index: usize) -> u64 {
    if index < 2 * STEPS {
        return index as u64;
    }
    let shift = index / STEPS - 1;
    let first = ((index % STEPS + STEPS) as u64) << shift;
    first + (1 << shift) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_contiguous_and_hold_their_ends() {
        for index in 0..BUCKETS - 1 {
            let end_ns = bucket_end_ns(index);
            assert_eq!(bucket(end_ns), index, "end {end_ns}");
            assert_eq!(bucket(end_ns + 1), index + 1, "after {end_ns}");
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn quantiles_are_within_one_part_in_32() {
        let mut histogram = Histogram::new();
        for value in 1..=100_000u64 {
            histogram.record(value * 10);
        }
        let stats = histogram.stats();
        for (measured, exact) in [
            (stats.p50_ns, 500_000u64),
            (stats.p90_ns, 900_000),
            (stats.p99_ns, 990_000),
            (stats.p999_ns, 999_000),
        ] {
            assert!(measured >= exact && measured <= exact + exact / 31, "{measured} {exact}");
        }
        assert_eq!(stats.max_ns, 1_000_000);
        assert_eq!(Histogram::new().stats(), LatenessStats::default());
    }
}
