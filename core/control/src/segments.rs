//! Sets of segment numbers, as ranges.

use alloc::vec::Vec;
use core::ops::RangeInclusive;

use rangemap::RangeInclusiveSet;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A set of segment numbers. In messages: a list of `[first, last]`, both included.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Segments(RangeInclusiveSet<u64>);

/// Why ranges are no set of segments.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SegmentsError {
    /// A range ends before it begins.
    #[error("the range [{first}, {last}] ends before it begins")]
    Backward {
        /// Its first number.
        first: u64,
        /// Its last.
        last: u64,
    },
    /// A number that no file reaches.
    #[error("segment {0} is beyond the last that a file may have, {max}", max = Segments::LAST_MAX)]
    Beyond(u64),
}

impl Segments {
    /// The highest segment number. 2^48 segments of 8,000 octets are two zettabytes.
    pub const LAST_MAX: u64 = (1 << 48) - 1;

    /// The segments from `first` to `last`.
    #[must_use]
    pub fn range(first: u64, last: u64) -> Self {
        let mut segments = Self::default();
        segments.insert(first..=last);
        segments
    }

    /// Adds segments.
    pub fn insert(&mut self, range: RangeInclusive<u64>) {
        if !range.is_empty() {
            self.0.insert(range);
        }
    }

    /// Adds all of `other`.
    pub fn add(&mut self, other: &Self) {
        for (first, last) in other.ranges() {
            self.insert(first..=last);
        }
    }

    /// Takes all of `other` away.
    pub fn remove(&mut self, other: &Self) {
        for (first, last) in other.ranges() {
            self.0.remove(first..=last);
        }
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many segments there are.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.ranges().map(|(first, last)| last - first + 1).sum()
    }

    /// The ranges in order: first and last, with gaps between them.
    pub fn ranges(&self) -> impl Iterator<Item = (u64, u64)> {
        self.0.iter().map(|range| (*range.start(), *range.end()))
    }

    /// How many of the segments `first` to `last` there are.
    pub fn count_within(&self, first: u64, last: u64) -> u64 {
        let within = first..=last;
        self.0
            .overlapping(&within)
            .map(|range| last.min(*range.end()) - first.max(*range.start()) + 1)
            .sum()
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
            return Err(SegmentsError::Beyond(last));
        }
        self.insert(first..=last);
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn text_is_pairs_and_bad_pairs_are_refused() {
        let held: Segments = serde_json::from_str("[[3,4],[0,1],[5,5]]").unwrap();
        assert_eq!(serde_json::to_string(&held).unwrap(), "[[0,1],[3,5]]");
        for bad in ["[[2,1]]", "[[0,281474976710656]]", "[[0]]", "[[-1,2]]", "[0,1]"] {
            assert!(serde_json::from_str::<Segments>(bad).is_err(), "{bad}");
        }
    }
}
