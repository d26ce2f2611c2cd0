//! Hits, misses and served bytes by prefix, for the prefixes that the operator has chosen.
//!
//! Each prefix has a class, a small number. Each node of the prefix tree stores the class of the
//! longest chosen prefix of the Data directly below it, so counting a hit compares no names. Class
//! 0 is that of all other Data.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::cmp::Reverse;
use weir_base::{Merge, Packet};
use weir_wire::{DataView, Name, NameView};

/// Maximum number of prefixes that a store counts. While nodes of the tree still have the classes
/// of earlier prefixes, those are in use as well, and a class is one byte.
pub const COUNTED_PREFIXES_MAX: usize = 64;
/// The number of classes.
const CLASSES: usize = 1 << u8::BITS;

/// What a store has counted for one prefix.
#[derive(Copy, Clone, Eq, PartialEq, Debug, Default)]
pub struct PrefixCounts {
    /// Interests that were answered with Data below the prefix.
    pub hits: u64,
    /// Interests for names below the prefix that the store could not answer.
    pub misses: u64,
    /// Bytes of the Data.
    pub served_bytes: u64,
}

/// The counts of each chosen prefix. An Interest counts for one prefix at most, the longest.
#[derive(Clone, Eq, PartialEq, Debug, Default)]
pub struct PrefixStats(pub Vec<(Name, PrefixCounts)>);

impl Merge for PrefixStats {
    fn merge(&mut self, other: &Self) {
        for (name, counts) in &other.0 {
            match self.0.iter_mut().find(|(known, _)| known == name) {
                Some((_, sum)) => {
                    sum.hits += counts.hits;
                    sum.misses += counts.misses;
                    sum.served_bytes += counts.served_bytes;
                }
                // Not all shards have completed the change to new prefixes.
                None => self.0.push((name.clone(), *counts)),
            }
        }
    }
}

/// Whether `prefix` is a proper prefix of `name`.
fn is_below(name: NameView<'_>, prefix: &Name) -> bool {
    prefix.value().len() < name.value().len() && name.value().starts_with(prefix.value())
}

/// A prefix that the operator has chosen.
#[derive(Clone)]
struct CountedPrefix {
    name: Name,
    hash: u64,
    class: u8,
    misses: u64,
    /// Whether a later set of prefixes, which may still wait, lacks this one.
    is_removed: bool,
}

/// Counts by class, including classes that no prefix has any more.
///
/// Two arrays: the compiler would turn the two additions to one pair into a vector addition, of
/// twice as many instructions.
struct ClassCounts {
    hits: [u64; CLASSES],
    served_bytes: [u64; CLASSES],
}

pub(super) struct PrefixCounters {
    /// Longest first: the first match is the longest.
    prefixes: Vec<CountedPrefix>,
    /// The prefixes that will replace these, with their hashes.
    next: Option<Vec<(u64, Name)>>,
    counts: Box<ClassCounts>,
    /// Hits of earlier prefixes whose classes other prefixes have now.
    former_hits: u64,
}

impl PrefixCounters {
    pub(super) fn new() -> Self {
        let counts = ClassCounts { hits: [0; CLASSES], served_bytes: [0; CLASSES] };
        Self { prefixes: Vec::new(), next: None, counts: Box::new(counts), former_hits: 0 }
    }

    /// Whether no prefix is counted.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.prefixes.is_empty()
    }

    /// Counts a hit. Branch-free, since each hit in memory passes here.
    #[inline(always)]
    pub(super) fn count_hit(&mut self, class: u8, bytes: usize) {
        let counts = &mut *self.counts;
        counts.hits[usize::from(class)] += 1;
        counts.served_bytes[usize::from(class)] += bytes as u64;
    }

    /// Counts a hit with Data that has no node in the tree.
    pub(super) fn count_hit_with(&mut self, packet: &Packet) {
        let class = if self.is_empty() {
            0
        } else {
            DataView::decode(packet).map_or(0, |data| self.class_of(data.name))
        };
        self.count_hit(class, packet.len());
    }

    /// Counts bytes of an answer that was counted as a hit before its Data was known.
    pub(super) fn count_bytes(&mut self, data: NameView<'_>, bytes: u64) {
        let class = self.class_of(data);
        self.counts.served_bytes[usize::from(class)] += bytes;
    }

    /// Counts a miss of an Interest.
    pub(super) fn count_miss(&mut self, interest: NameView<'_>, can_be_prefix: bool) {
        let matches = |prefix: &&mut CountedPrefix| {
            let prefix = &prefix.name;
            is_below(interest, prefix) || can_be_prefix && prefix.as_view() == interest
        };
        if let Some(prefix) = self.prefixes.iter_mut().find(matches) {
            prefix.misses += 1;
        }
    }

    /// All hits so far, including those below no prefix or earlier prefixes.
    pub(super) fn hits(&self) -> u64 {
        self.former_hits + self.counts.hits.iter().sum::<u64>()
    }

    pub(super) fn stats(&self) -> PrefixStats {
        let row = |prefix: &CountedPrefix| {
            let class = usize::from(prefix.class);
            let counts = PrefixCounts {
                hits: self.counts.hits[class],
                misses: prefix.misses,
                served_bytes: self.counts.served_bytes[class],
            };
            (prefix.name.clone(), counts)
        };
        PrefixStats(self.prefixes.iter().filter(|prefix| !prefix.is_removed).map(row).collect())
    }

    /// The class of Data with this name: that of its longest chosen proper prefix.
    fn class_of(&self, data: NameView<'_>) -> u8 {
        let found = self.prefixes.iter().find(|prefix| is_below(data, &prefix.name));
        found.map_or(0, |prefix| prefix.class)
    }

    /// The class of Data whose proper prefixes have these hashes, longest first and without the
    /// empty prefix.
    pub(super) fn class_of_hashes(&self, mut hashes: impl Iterator<Item = u64>) -> u8 {
        let find = |hash| self.prefixes.iter().find(|prefix| prefix.hash == hash);
        hashes.find_map(find).map_or_else(|| self.root_class(), |prefix| prefix.class)
    }

    /// The class of Data below no other chosen prefix.
    pub(super) fn root_class(&self) -> u8 {
        let root = self.prefixes.iter().find(|prefix| prefix.name.is_empty());
        root.map_or(0, |prefix| prefix.class)
    }

    /// The classes of all prefixes, by the prefixes' hashes.
    pub(super) fn classes(&self) -> Vec<(u64, u8)> {
        self.prefixes.iter().map(|prefix| (prefix.hash, prefix.class)).collect()
    }

    /// Chooses at most [`COUNTED_PREFIXES_MAX`] prefixes, given with their hashes, for the next
    /// call of [`PrefixCounters::apply_next`].
    pub(super) fn set_next(&mut self, prefixes: Vec<(u64, Name)>) {
        // In all shards at once, although each calls `apply_next` in its own time. Otherwise the
        // sum over the shards would decrease.
        for prefix in &mut self.prefixes {
            prefix.is_removed |= prefixes.iter().all(|(_, name)| *name != prefix.name);
        }
        self.next = Some(prefixes);
    }

    /// Replaces the prefixes by the next ones, if there are any. Those that stay keep their class
    /// and counts; the others start at 0. No node may have a class of prefixes before the present
    /// ones.
    pub(super) fn apply_next(&mut self) -> bool {
        let Some(next) = self.next.take() else { return false };
        let old = core::mem::take(&mut self.prefixes);
        let is_free = |class: &u8| old.iter().all(|prefix| prefix.class != *class);
        let mut free = (1..=u8::MAX).filter(is_free);
        for (hash, name) in next {
            let is_it = |prefix: &&CountedPrefix| prefix.name == name && !prefix.is_removed;
            if self.prefixes.iter().any(|prefix| is_it(&prefix)) {
                continue;
            }
            let prefix = old.iter().find(is_it).cloned().unwrap_or_else(|| {
                let class = free.next().expect("more classes than two sets of prefixes");
                // Its former prefix is not counted any more.
                self.former_hits += core::mem::take(&mut self.counts.hits[usize::from(class)]);
                self.counts.served_bytes[usize::from(class)] = 0;
                CountedPrefix { name, hash, class, misses: 0, is_removed: false }
            });
            self.prefixes.push(prefix);
        }
        self.prefixes.sort_by_key(|prefix| Reverse(prefix.name.value().len()));
        true
    }
}
