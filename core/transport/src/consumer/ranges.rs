//! The ranges of a sequence: their names, and how many segments of each remain.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::ops::Range;

use weir_base::{HashKey, Table};
use weir_wire::{Name, NameView};

use super::target::{PacketId, RangeId};

/// Consecutive segments below one name, or one Data.
#[derive(Debug)]
struct WantedRange {
    id: RangeId,
    name: Vec<u8>,
    /// Index of its first segment among those of all ranges.
    first_index: u64,
    /// `None`: one Data of exactly this name.
    segments: Option<Range<u64>>,
    /// Segments that are neither verified nor skipped.
    remaining: u64,
    /// Its end has been reported.
    is_over: bool,
}

impl WantedRange {
    fn len(&self) -> u64 {
        self.segments.as_ref().map_or(1, |range| range.end.saturating_sub(range.start))
    }

    fn segment_at(&self, index: u64) -> Option<u64> {
        self.segments.as_ref().map(|range| range.start + (index - self.first_index))
    }
}

/// The ranges from the first unfinished one on.
pub(crate) struct Ranges {
    ranges: VecDeque<WantedRange>,
    /// Number of the first of them.
    base: u64,
    /// By the hash of the name; the low half of the range's number.
    by_name: Table,
    hash_key: HashKey,
    end_index: u64,
}

impl core::fmt::Debug for Ranges {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Ranges").field("len", &self.ranges.len()).finish_non_exhaustive()
    }
}

impl Ranges {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            ranges: VecDeque::new(),
            base: 0,
            by_name: Table::with_capacity(8),
            hash_key: HashKey::new([seed, !seed]),
            end_index: 0,
        }
    }

    /// One past the last index of all ranges.
    pub(crate) fn end_index(&self) -> u64 {
        self.end_index
    }

    /// Appends a range. Returns false for one without segments, which is not stored.
    pub(crate) fn append(
        &mut self,
        id: RangeId,
        name: &Name,
        segments: Option<Range<u64>>,
    ) -> bool {
        let name = name.value().to_vec();
        let mut range = WantedRange {
            id,
            name,
            first_index: self.end_index,
            segments,
            remaining: 0,
            is_over: false,
        };
        range.remaining = range.len();
        if range.remaining == 0 {
            return false;
        }
        self.end_index = self.end_index.saturating_add(range.remaining);
        let number = self.base + self.ranges.len() as u64;
        self.by_name.insert(self.hash_key.hash(&range.name), number as u32);
        self.ranges.push_back(range);
        true
    }

    fn at(&self, index: u64) -> Option<usize> {
        self.ranges.partition_point(|range| range.first_index <= index).checked_sub(1)
    }

    /// The range that contains `index`.
    ///
    /// # Panics
    /// The range has been forgotten.
    fn range(&self, index: u64) -> &WantedRange {
        let at = self.at(index).expect("only finished ranges are forgotten");
        &self.ranges[at]
    }

    pub(crate) fn packet_at(&self, index: u64) -> (RangeId, PacketId) {
        let range = self.range(index);
        (range.id, PacketId::Segment(range.segment_at(index).unwrap_or(0)))
    }

    pub(crate) fn interest_name(&self, index: u64) -> (&[u8], Option<u64>) {
        let range = self.range(index);
        (&range.name, range.segment_at(index))
    }

    /// Whether the range of segment `index` is still wanted.
    pub(crate) fn is_wanted(&self, index: u64) -> bool {
        self.at(index).is_some_and(|at| !self.ranges[at].is_over)
    }

    /// Appends the indices of the segments with this name.
    pub(crate) fn find(&self, name: &[u8], found: &mut Vec<u64>) {
        let Ok(view) = NameView::from_value(name) else { return };
        self.find_below(name, None, found);
        if let Some(segment) = view.last().and_then(|last| last.as_segment()) {
            self.find_below(view.parent().value(), Some(segment), found);
        }
    }

    fn find_below(&self, name: &[u8], segment: Option<u64>, found: &mut Vec<u64>) {
        self.by_name.for_each_candidate(self.hash_key.hash(name), |number| {
            let at = number.wrapping_sub(self.base as u32) as usize;
            let Some(range) = self.ranges.get(at).filter(|range| range.name == name) else {
                return;
            };
            match (&range.segments, segment) {
                (None, None) => found.push(range.first_index),
                (Some(segments), Some(segment)) if segments.contains(&segment) => {
                    found.push(range.first_index + (segment - segments.start));
                }
                _ => {}
            }
        });
    }

    /// A segment is verified or skipped. Returns its range if it was the last one.
    pub(crate) fn segment_done(&mut self, index: u64) -> Option<RangeId> {
        let at = self.at(index)?;
        let range = &mut self.ranges[at];
        debug_assert!(!range.is_over);
        range.remaining -= 1;
        if range.remaining > 0 {
            return None;
        }
        range.is_over = true;
        Some(range.id)
    }

    /// Cancels the range of segment `index`, unless it was cancelled before. Returns the range and
    /// its indices before `asked_end`. From there on nothing was requested, so the range is cut
    /// there, and later ranges move up.
    pub(crate) fn cancel(&mut self, index: u64, asked_end: u64) -> Option<(RangeId, Range<u64>)> {
        debug_assert!(index < asked_end);
        let at = self.at(index)?;
        let range = &mut self.ranges[at];
        if core::mem::replace(&mut range.is_over, true) {
            return None;
        }
        let (id, first) = (range.id, range.first_index);
        // Indices must stay contiguous, so cutting this range shifts all later ones.
        let end = (first + range.len()).min(asked_end);
        let cut = first + range.len() - end;
        if let Some(segments) = &mut range.segments {
            segments.end -= cut;
        }
        self.ranges.range_mut(at + 1..).for_each(|range| range.first_index -= cut);
        self.end_index -= cut;
        Some((id, first..end))
    }

    /// Forgets the leading finished ranges that lie completely before `index`.
    pub(crate) fn forget_finished(&mut self, index: u64) {
        while let Some(first) = self.ranges.front()
            && first.is_over
            && first.first_index + first.len() <= index
        {
            self.by_name.remove(self.hash_key.hash(&first.name), self.base as u32);
            self.ranges.pop_front();
            self.base += 1;
        }
    }
}
