//! Sets of segment numbers.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::RangeInclusive;

use rangemap::RangeInclusiveSet;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A set of segment numbers, stored as ranges. In JSON it is a list of `[first, last]`, both
/// included.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Segments(Ranges);

/// Most sets in a controller are one range. It needs no heap memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Ranges {
    #[default]
    None,
    One(u64, u64),
    /// At least two ranges.
    Many(Box<RangeInclusiveSet<u64>>),
}

/// Why a list of ranges is not a valid set of segments.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SegmentsError {
    /// The first number is higher than the last.
    #[error("the range [{first}, {last}] is reversed: its first segment is higher than its last")]
    Backward { first: u64, last: u64 },
    /// A number is higher than any segment number.
    #[error(
        "segment {0} is higher than {max}, the highest segment number",
        max = Segments::LAST_MAX
    )]
    TooHigh(u64),
}

impl Segments {
    /// The highest segment number. A file of 2^48 segments of 8,000 bytes would have two
    /// zettabytes.
    pub const LAST_MAX: u64 = (1 << 48) - 1;

    /// The segments from `first` to `last`.
    pub fn range(first: u64, last: u64) -> Self {
        let mut segments = Self::default();
        segments.insert(first..=last);
        segments
    }

    pub fn insert(&mut self, range: RangeInclusive<u64>) {
        let (first, last) = (*range.start(), *range.end());
        if first > last {
            return;
        }
        match &mut self.0 {
            Ranges::None => self.0 = Ranges::One(first, last),
            Ranges::One(from, to)
                if first <= to.saturating_add(1) && *from <= last.saturating_add(1) =>
            {
                // The ranges overlap or are adjacent, so they merge.
                self.0 = Ranges::One(first.min(*from), last.max(*to));
            }
            Ranges::One(from, to) => {
                let both = [*from..=*to, first..=last];
                self.0 = Ranges::Many(Box::new(both.into_iter().collect()));
            }
            Ranges::Many(ranges) => {
                ranges.insert(first..=last);
                self.normalize();
            }
        }
    }

    fn remove_range(&mut self, range: RangeInclusive<u64>) {
        match &mut self.0 {
            Ranges::None => {}
            Ranges::One(from, to) if range.end() < from || *to < *range.start() => {}
            Ranges::One(from, to) => {
                // `normalize` makes the set compact again if at most one range is left.
                let mut left = RangeInclusiveSet::new();
                left.insert(*from..=*to);
                left.remove(range);
                self.0 = Ranges::Many(Box::new(left));
            }
            Ranges::Many(ranges) => ranges.remove(range),
        }
        self.normalize();
    }

    /// Replaces a set of no range or one range by the compact variant.
    fn normalize(&mut self) {
        let Ranges::Many(ranges) = &self.0 else { return };
        let mut all = ranges.iter();
        match (all.next(), all.next()) {
            (None, _) => self.0 = Ranges::None,
            (Some(one), None) => self.0 = Ranges::One(*one.start(), *one.end()),
            (Some(_), Some(_)) => {}
        }
    }

    /// Adds all segments of `other`.
    pub(crate) fn add(&mut self, other: &Self) {
        for (first, last) in other.ranges() {
            self.insert(first..=last);
        }
    }

    /// Removes all segments of `other`.
    pub(crate) fn remove(&mut self, other: &Self) {
        for (first, last) in other.ranges() {
            self.remove_range(first..=last);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        matches!(self.0, Ranges::None)
    }

    pub fn count(&self) -> u64 {
        self.ranges().map(|(first, last)| last - first + 1).sum()
    }

    pub(crate) fn ranges_count(&self) -> usize {
        match &self.0 {
            Ranges::None => 0,
            Ranges::One(..) => 1,
            Ranges::Many(ranges) => ranges.len(),
        }
    }

    /// The ranges in order, as first and last segment. Neighbouring ranges have a gap between them.
    pub fn ranges(&self) -> impl Iterator<Item = (u64, u64)> {
        let (one, many) = match &self.0 {
            Ranges::None => (None, None),
            Ranges::One(first, last) => (Some((*first, *last)), None),
            Ranges::Many(ranges) => (None, Some(ranges)),
        };
        let many = many.into_iter().flat_map(|ranges| ranges.iter());
        one.into_iter().chain(many.map(|range| (*range.start(), *range.end())))
    }

    /// How many segments from `first` to `last` are in the set.
    pub fn count_within(&self, first: u64, last: u64) -> u64 {
        let within = |(from, to): (u64, u64)| (last.min(to) + 1).saturating_sub(first.max(from));
        match &self.0 {
            Ranges::None => 0,
            Ranges::One(from, to) => within((*from, *to)),
            Ranges::Many(ranges) => {
                let range = first..=last;
                let found = ranges.overlapping(&range);
                found.map(|range| within((*range.start(), *range.end()))).sum()
            }
        }
    }

    /// How many segments of `other` are in this set.
    pub(crate) fn overlap_count(&self, other: &Self) -> u64 {
        other.ranges().map(|(first, last)| self.count_within(first, last)).sum()
    }
}

impl Serialize for Segments {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(self.ranges())
    }
}

impl<'de> Deserialize<'de> for Segments {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let pairs = Vec::<(u64, u64)>::deserialize(from)?;
        pairs.into_iter().try_fold(Self::default(), Self::with).map_err(serde::de::Error::custom)
    }
}

impl Segments {
    fn with(mut self, (first, last): (u64, u64)) -> Result<Self, SegmentsError> {
        if first > last {
            return Err(SegmentsError::Backward { first, last });
        }
        if last > Self::LAST_MAX {
            return Err(SegmentsError::TooHigh(last));
        }
        self.insert(first..=last);
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use proptest::prelude::*;

    #[test]
    fn ranges_join_and_split() {
        let mut held = Segments::range(0, 9);
        held.insert(10..=19);
        assert_eq!(held.ranges().collect::<Vec<_>>(), [(0, 19)]);
        held.remove(&Segments::range(5, 7));
        assert_eq!(held.ranges().collect::<Vec<_>>(), [(0, 4), (8, 19)]);
        assert_eq!((held.count(), held.count_within(4, 8)), (17, 2));
        held.add(&Segments::range(5, 6));
        assert_eq!(held.count(), 19);
    }

    proptest! {
        #[test]
        fn equals_a_set_of_numbers(
            steps in proptest::collection::vec((any::<bool>(), 0_u64..40, 0_u64..8), 0..30),
        ) {
            let mut set = Segments::default();
            let mut numbers = BTreeSet::new();
            for (adds, first, more) in steps {
                let range = Segments::range(first, first + more);
                if adds {
                    set.add(&range);
                    numbers.extend(first..=first + more);
                } else {
                    set.remove(&range);
                    numbers.retain(|number| !(first..=first + more).contains(number));
                }
                prop_assert_eq!(set.count(), numbers.len() as u64);
                prop_assert_eq!(set.is_empty(), numbers.is_empty());
                let listed: BTreeSet<u64> =
                    set.ranges().flat_map(|(first, last)| first..=last).collect();
                prop_assert_eq!(&listed, &numbers);
                prop_assert_eq!(set.ranges().count(), set.ranges_count());
                let within = numbers.range(5..=20).count() as u64;
                prop_assert_eq!(set.count_within(5, 20), within);
                let mut again = Segments::default();
                numbers.iter().for_each(|&number| again.insert(number..=number));
                prop_assert_eq!(&again, &set);
            }
        }
    }

    #[test]
    fn parses_pairs_and_rejects_bad_ones() {
        let held: Segments = serde_json::from_str("[[3,4],[0,1],[5,5]]").unwrap();
        assert_eq!(serde_json::to_string(&held).unwrap(), "[[0,1],[3,5]]");
        for bad in ["[[2,1]]", "[[0,281474976710656]]", "[[0]]", "[[-1,2]]", "[0,1]"] {
            assert!(serde_json::from_str::<Segments>(bad).is_err(), "{bad}");
        }
    }
}
