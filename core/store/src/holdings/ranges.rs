use super::BLOCK_SEGMENTS;
use alloc::vec::Vec;

/// Consecutive segment numbers.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug)]
pub struct SegmentRange {
    pub first: u64,
    /// The last segment, not less than the first.
    pub last: u64,
}

impl SegmentRange {
    /// Whether a segment is among them.
    pub fn contains(&self, segment: u64) -> bool {
        (self.first..=self.last).contains(&segment)
    }

    /// Merges ranges that overlap or adjoin. The result is in order.
    pub fn join(mut ranges: Vec<Self>) -> Vec<Self> {
        ranges.sort_unstable();
        let mut joined: Vec<Self> = Vec::with_capacity(ranges.len());
        for range in ranges {
            match joined.last_mut() {
                Some(last) if range.first <= last.last.saturating_add(1) => {
                    last.last = last.last.max(range.last);
                }
                _ => joined.push(range),
            }
        }
        joined
    }
}

/// Appends the segments of a block whose bits are set. Blocks must come in order.
pub(super) fn push_bits(ranges: &mut Vec<SegmentRange>, number: u64, mut bits: u64) {
    while bits != 0 {
        let from = bits.trailing_zeros();
        let len = (!(bits >> from)).trailing_zeros().min(u64::BITS - from);
        let first = number * BLOCK_SEGMENTS + u64::from(from);
        let last = first + u64::from(len) - 1;
        match ranges.last_mut() {
            Some(range) if range.last + 1 == first => range.last = last,
            _ => ranges.push(SegmentRange { first, last }),
        }
        let rest = u64::MAX.checked_shl(from + len).unwrap_or(0);
        bits &= rest;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_adjoin_or_overlap_are_one() {
        let range = |first, last| SegmentRange { first, last };
        let apart = alloc::vec![range(20, 29), range(0, 9), range(10, 22), range(40, u64::MAX)];
        assert_eq!(SegmentRange::join(apart), [range(0, 29), range(40, u64::MAX)]);
    }
}
