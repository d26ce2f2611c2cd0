//! Sets of segment numbers.

use alloc::vec::Vec;
use core::ops::Range;

/// A set of segment numbers: a bitmap that grows to its largest member.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SegmentSet {
    words: Vec<u64>,
    len: u64,
}

impl SegmentSet {
    pub const fn new() -> Self {
        Self { words: Vec::new(), len: 0 }
    }

    /// The set whose members are the bits of `words`, lowest first.
    pub fn from_words(words: Vec<u64>) -> Self {
        let len = words.iter().map(|word| u64::from(word.count_ones())).sum();
        Self { words, len }
    }

    /// The bits, lowest first.
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    /// Adds a segment. Returns false if it was already a member.
    pub fn insert(&mut self, segment: u64) -> bool {
        let (word, bit) = ((segment / 64) as usize, segment % 64);
        if word >= self.words.len() {
            self.words.resize(word + 1, 0);
        }
        let is_new = self.words[word] & (1 << bit) == 0;
        self.words[word] |= 1 << bit;
        self.len += u64::from(is_new);
        is_new
    }

    pub fn contains(&self, segment: u64) -> bool {
        usize::try_from(segment / 64)
            .ok()
            .and_then(|word| self.words.get(word))
            .is_some_and(|word| word & (1 << (segment % 64)) != 0)
    }

    /// Whether all of `first..end` are members.
    pub(crate) fn contains_all(&self, first: u64, end: u64) -> bool {
        (first..end).all(|segment| self.contains(segment))
    }

    /// The members, lowest first.
    pub fn iter(&self) -> impl Iterator<Item = u64> + '_ {
        self.words.iter().zip(0_u64..).flat_map(|(&word, index)| {
            (0..64).filter(move |bit| word & (1 << bit) != 0).map(move |bit| index * 64 + bit)
        })
    }

    /// The members as ranges, lowest first.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        let bits = self.words.len() as u64 * 64;
        let mut from = 0;
        core::iter::from_fn(move || {
            let start = self.next_with(from, true).filter(|&start| start < bits)?;
            from = self.next_with(start, false).unwrap_or(bits);
            Some(start..from)
        })
    }

    /// The first segment from `from` on, within the bitmap, that is a member, or that is not.
    fn next_with(&self, from: u64, is_member: bool) -> Option<u64> {
        let (first, bit) = ((from / 64) as usize, from % 64);
        let words = self.words.get(first..)?.iter().zip(first as u64..);
        words.enumerate().find_map(|(at, (&word, number))| {
            let word = if is_member { word } else { !word };
            let word = if at == 0 { word & (u64::MAX << bit) } else { word };
            (word != 0).then(|| number * 64 + u64::from(word.trailing_zeros()))
        })
    }

    pub fn len(&self) -> u64 {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contains_inserted_segments() {
        let mut set = SegmentSet::new();
        assert!(set.insert(0) && set.insert(63) && set.insert(64) && set.insert(1000));
        assert!(!set.insert(64));
        assert_eq!(set.len(), 4);
        assert_eq!(set.iter().collect::<Vec<_>>(), [0, 63, 64, 1000]);
        for segment in 0..2000 {
            assert_eq!(set.contains(segment), [0, 63, 64, 1000].contains(&segment), "{segment}");
        }
        assert!(set.contains_all(63, 65) && !set.contains_all(63, 66) && set.contains_all(5, 5));
        assert!(!set.contains(u64::MAX));
        assert_eq!(SegmentSet::from_words(set.words().to_vec()), set);
        assert_eq!(set.ranges().collect::<Vec<_>>(), [0..1, 63..65, 1000..1001]);
        (128..256).for_each(|segment| assert!(set.insert(segment)));
        assert_eq!(set.ranges().collect::<Vec<_>>(), [0..1, 63..65, 128..256, 1000..1001]);
        assert_eq!(SegmentSet::new().ranges().count(), 0);
    }
}
