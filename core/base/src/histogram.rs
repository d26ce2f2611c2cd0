//! Histograms of values.

use crate::counters::Merge;

/// Counts values, such as times in nanoseconds, in buckets that widen with the value. `PARTS`
/// buckets divide each power of two; `PARTS` must be a power of two itself. The last of the
/// `BUCKETS` also counts all larger values. A histogram allocates nothing.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Histogram<const PARTS: usize, const BUCKETS: usize> {
    counts: [u64; BUCKETS],
    sum: u64,
    max: u64,
}

/// Buckets needed for values up to `u64::MAX` with `parts` buckets for each power of two.
pub const fn bucket_count(parts: usize) -> usize {
    (u64::BITS - parts.ilog2() + 1) as usize * parts
}

impl<const PARTS: usize, const BUCKETS: usize> Default for Histogram<PARTS, BUCKETS> {
    fn default() -> Self {
        const { assert!(PARTS.is_power_of_two() && BUCKETS > 0) };
        Self { counts: [0; BUCKETS], sum: 0, max: 0 }
    }
}

impl<const PARTS: usize, const BUCKETS: usize> Histogram<PARTS, BUCKETS> {
    #[inline]
    pub fn record(&mut self, value: u64) {
        self.counts[Self::bucket_of(value)] += 1;
        self.sum = self.sum.saturating_add(value);
        self.max = self.max.max(value);
    }

    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The sum of all values, at most `u64::MAX`.
    pub fn sum(&self) -> u64 {
        self.sum
    }

    /// The largest value; 0 if there is none.
    pub fn max(&self) -> u64 {
        self.max
    }

    /// The value that `share` (0 to 1) of all values do not exceed. It is rounded up to the end of
    /// its bucket but never above the largest value. `None` if there are no values.
    pub fn quantile(&self, share: f64) -> Option<u64> {
        // Casts round down. A fractional rank is rounded up.
        let exact = self.count() as f64 * share.clamp(0.0, 1.0);
        let rank = (exact as u64 + u64::from(exact as u64 as f64 != exact)).max(1);
        let mut seen = 0;
        self.buckets().find_map(|(end, count)| {
            seen += count;
            (seen >= rank).then(|| end.min(self.max))
        })
    }

    /// The largest value of each bucket and its count, in ascending order; `u64::MAX` for the last.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let ends = (0..BUCKETS - 1).map(Self::bucket_end).chain([u64::MAX]);
        ends.zip(self.counts)
    }

    #[inline]
    fn bucket_of(value: u64) -> usize {
        if value < PARTS as u64 {
            return (value as usize).min(BUCKETS - 1);
        }
        let shift = value.ilog2() - PARTS.ilog2();
        (shift as usize * PARTS + (value >> shift) as usize).min(BUCKETS - 1)
    }

    fn bucket_end(index: usize) -> u64 {
        if index < 2 * PARTS {
            return index as u64;
        }
        let shift = index / PARTS - 1;
        let first = ((index % PARTS + PARTS) as u64) << shift;
        first + ((1 << shift) - 1)
    }
}

impl<const PARTS: usize, const BUCKETS: usize> Merge for Histogram<PARTS, BUCKETS> {
    fn merge(&mut self, other: &Self) {
        self.counts.merge(&other.counts);
        self.sum = self.sum.saturating_add(other.sum);
        self.max = self.max.max(other.max);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Powers = Histogram<1, 12>;
    type Fine = Histogram<32, { bucket_count(32) }>;

    #[test]
    fn buckets_are_contiguous_and_hold_their_ends() {
        for index in 0..bucket_count(32) - 1 {
            let end = Fine::bucket_end(index);
            assert_eq!(Fine::bucket_of(end), index, "end {end}");
            assert_eq!(Fine::bucket_of(end + 1), index + 1, "after {end}");
        }
        assert_eq!(Fine::bucket_of(u64::MAX), bucket_count(32) - 1);
        assert_eq!(Fine::bucket_end(bucket_count(32) - 1), u64::MAX);
        for (value, bucket) in [(0, 0), (1, 1), (2, 2), (3, 2), (4, 3), (1023, 10), (1024, 11)] {
            assert_eq!(Powers::bucket_of(value), bucket, "{value}");
        }
        assert_eq!(Powers::bucket_of(u64::MAX), 11, "the last takes what is larger");
    }

    #[test]
    fn quantiles_are_within_one_bucket() {
        let mut histogram = Fine::default();
        assert_eq!((histogram.quantile(0.5), histogram.max()), (None, 0));
        for value in 1..=100_000 {
            histogram.record(value * 10);
        }
        for (share, exact) in [(0.5, 500_000), (0.9, 900_000), (0.999, 999_000)] {
            let measured = histogram.quantile(share).unwrap();
            assert!(measured >= exact && measured <= exact + exact / 31, "{measured} {exact}");
        }
        assert_eq!(histogram.quantile(1.0), Some(1_000_000));
        assert_eq!((histogram.count(), histogram.max()), (100_000, 1_000_000));
    }

    #[test]
    fn parts_add_up() {
        let (mut one, mut other, mut all) = <(Powers, Powers, Powers)>::default();
        for value in 0..3000 {
            if value % 3 == 0 {
                one.record(value)
            } else {
                other.record(value)
            }
            all.record(value);
        }
        one.merge(&other);
        assert_eq!(one, all);
        assert_eq!(all.sum(), 2999 * 3000 / 2);
        assert_eq!(all.buckets().map(|(_, count)| count).sum::<u64>(), all.count());
    }
}
