use super::BLOCK;
use alloc::vec::Vec;

/// Segments in a row.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug)]
pub struct SegmentRange {
    /// The first of them.
    pub first: u64,
    /// The last, not before the first.
    pub last: u64,
}

impl SegmentRange {
    /// Whether a segment is among them.
    #[must_use]
    pub fn contains(&self, segment: u64) -> bool {
        (self.first..=self.last).contains(&segment)
    }
}

/// Appends the segments of a block whose bits are set. Blocks come in order.
pub(super) fn push_bits(ranges: &mut Vec<SegmentRange>, number: u64, mut bits: u64) {
    while bits != 0 {
        let from = bits.trailing_zeros();
        let len = (!(bits >> from)).trailing_zeros().min(u64::BITS - from);
        let first = number * BLOCK + u64::from(from);
        let last = first + u64::from(len) - 1;
        match ranges.last_mut() {
            Some(range) if range.last + 1 == first => range.last = last,
            _ => ranges.push(SegmentRange { first, last }),
        }
        let rest = u64::MAX.checked_shl(from + len).unwrap_or(0);
        bits &= rest;
    }
}
