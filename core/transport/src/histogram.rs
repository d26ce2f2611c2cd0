//! A histogram of durations with a relative error of at most one eighth, in constant memory.

/// Each power of two is divided into so many buckets, as a power of two.
const PARTS_LOG2: u32 = 3;
const BUCKETS: usize = (64 - PARTS_LOG2 as usize + 1) << PARTS_LOG2;

/// Counts durations in nanoseconds by size.
#[derive(Clone, Debug)]
pub struct Histogram {
    buckets: [u32; BUCKETS],
    count: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { buckets: [0; BUCKETS], count: 0 }
    }
}

impl Histogram {
    /// Counts one duration.
    pub fn record(&mut self, duration_ns: u64) {
        let bucket = &mut self.buckets[bucket_of(duration_ns)];
        *bucket = bucket.saturating_add(1);
        self.count += 1;
    }

    /// How many durations were counted.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The duration that `share` (0 to 1) of all are not above, rounded down to its bucket; `None`
    /// when empty.
    pub fn quantile_ns(&self, share: f64) -> Option<u64> {
        if self.count == 0 {
            return None;
        }
        let rank = (self.count as f64 * share.clamp(0.0, 1.0)) as u64;
        let mut seen = 0;
        for (index, &count) in self.buckets.iter().enumerate() {
            seen += u64::from(count);
            if seen > rank || seen == self.count {
                return Some(lower_bound(index));
            }
        }
        None
    }
}

fn bucket_of(value: u64) -> usize {
    if value < 1 << PARTS_LOG2 {
        return value as usize;
    }
    let exponent = 63 - value.leading_zeros();
    let part = (value >> (exponent - PARTS_LOG2)) as usize & ((1 << PARTS_LOG2) - 1);
    ((exponent - PARTS_LOG2 + 1) as usize) << PARTS_LOG2 | part
}

fn lower_bound(index: usize) -> u64 {
    if index < 1 << PARTS_LOG2 {
        return index as u64;
    }
    let shift = (index >> PARTS_LOG2) as u32 - 1;
    let part = (index & ((1 << PARTS_LOG2) - 1)) as u64;
    ((1 << PARTS_LOG2) | part) << shift
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_in_order_and_close() {
        let mut last = 0;
        for value in (0..20_000u64).chain([u64::MAX / 3, u64::MAX]) {
            let bucket = bucket_of(value);
            assert!(bucket >= last && bucket < BUCKETS);
            last = bucket;
            let low = lower_bound(bucket);
            assert!(low <= value && value - low <= value / 8, "{value} in the bucket of {low}");
        }
    }

    #[test]
    fn quantiles_of_a_known_set() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.quantile_ns(0.5), None);
        for value in 0..1000 {
            histogram.record(value * 1000);
        }
        let median = histogram.quantile_ns(0.5).unwrap();
        assert!((440_000..=500_000).contains(&median), "{median}");
        assert_eq!(histogram.quantile_ns(0.0), Some(0));
        assert!(histogram.quantile_ns(1.0).unwrap() >= 880_000);
        assert_eq!(histogram.count(), 1000);
    }
}
