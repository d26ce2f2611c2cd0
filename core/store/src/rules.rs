//! Rules of a placement plan. By object and range of segments, they say which Data a store must not
//! store, and which it must keep.

use crate::holdings::SegmentRange;
use alloc::collections::BinaryHeap;
use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::ops::Range;
use thiserror::Error;
use weir_wire::{Name, NameView};

/// Most rules of one plan.
pub(crate) const RULES_MAX: usize = 4096;
/// All rules together must leave this part of the store unpinned: one in this many bytes.
const SPARE_SHARE: u64 = 16;
/// Objects whose matching prefixes are cached.
const RECENT: usize = 16;

/// What the store does with matching Data.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug)]
pub enum Retention {
    /// New Data is not stored, in memory or on disk. Data that is stored already is evicted like
    /// any other.
    Refuse,
    /// The Data is stored as if no rule existed.
    Admit,
    /// The Data stays in memory while the rule is in force, up to `bytes_max` bytes. Data beyond
    /// that is stored as if no rule existed.
    Keep {
        /// Bytes as [`StoreConfig::capacity_bytes`](crate::StoreConfig) counts them.
        bytes_max: u64,
    },
}

/// What the store does with some segments of the objects below a prefix.
///
/// If several rules match, the one with the longest prefix applies; of these, the one with the
/// shortest range. Data without a segment number matches only rules for all segments.
#[derive(Clone, Eq, PartialEq, Debug)]
pub struct Rule {
    /// The object's name without the segment number, or a prefix of it.
    pub prefix: Name,
    pub segments: SegmentRange,
    pub retention: Retention,
}

/// A plan for a store. It replaces the rules of every older plan.
#[derive(Clone, Eq, PartialEq, Debug, Default)]
pub struct Rules {
    /// A plan with a higher number replaces one with a lower number.
    pub generation: u64,
    pub rules: Vec<Rule>,
}

/// Why a store rejects rules. The old rules stay in force.
#[derive(Clone, Eq, PartialEq, Debug, Error)]
pub enum RulesError {
    /// The plan is older than the one in force, or has the same number and differs.
    #[error("plan {offered} is not newer than plan {present}, which is in force")]
    Outdated { offered: u64, present: u64 },
    /// More than 4096 rules.
    #[error("{0} rules exceed the limit of {RULES_MAX}")]
    TooMany(usize),
    /// Together the rules would pin more than the store may.
    #[error("the rules keep {bytes} bytes together; the store allows {bytes_max}")]
    KeepTooMuch { bytes: u64, bytes_max: u64 },
    /// The first segment of a range is greater than the last one.
    #[error("a rule for {0} has a range whose first segment is greater than its last")]
    EmptyRange(Name),
    /// Two rules with the same prefix have overlapping ranges of the same length.
    #[error("two rules for {0} have overlapping ranges of the same length")]
    Ambiguous(Name),
}

impl Rules {
    /// Whether a store of this capacity can apply the rules.
    ///
    /// # Errors
    /// Says why it cannot.
    pub fn check(&self, capacity_bytes: u64) -> Result<(), RulesError> {
        if self.rules.len() > RULES_MAX {
            return Err(RulesError::TooMany(self.rules.len()));
        }
        let (bytes, bytes_max) = (self.kept_bytes(), keep_bytes_max(capacity_bytes));
        if bytes > bytes_max {
            return Err(RulesError::KeepTooMuch { bytes, bytes_max });
        }
        let is_empty = |rule: &&Rule| rule.segments.first > rule.segments.last;
        if let Some(rule) = self.rules.iter().find(is_empty) {
            return Err(RulesError::EmptyRange(rule.prefix.clone()));
        }
        self.check_overlaps()
    }

    /// The most bytes that the rules keep together.
    pub fn kept_bytes(&self) -> u64 {
        let kept = self.rules.iter().map(|rule| match rule.retention {
            Retention::Keep { bytes_max } => bytes_max,
            Retention::Refuse | Retention::Admit => 0,
        });
        kept.fold(0, u64::saturating_add)
    }

    fn check_overlaps(&self) -> Result<(), RulesError> {
        let order = |rule: &&Rule| (len(rule.segments), rule.segments.first);
        let mut rules: Vec<&Rule> = self.rules.iter().collect();
        rules.sort_by(|one, other| {
            let prefixes = one.prefix.value().cmp(other.prefix.value());
            prefixes.then_with(|| order(one).cmp(&order(other)))
        });
        let overlap = rules.windows(2).find(|pair| {
            let [one, other] = [pair[0], pair[1]];
            one.prefix == other.prefix
                && len(one.segments) == len(other.segments)
                && other.segments.first <= one.segments.last
        });
        overlap.map_or(Ok(()), |pair| Err(RulesError::Ambiguous(pair[0].prefix.clone())))
    }
}

/// The most bytes that rules may keep in a store of this capacity.
pub fn keep_bytes_max(capacity_bytes: u64) -> u64 {
    capacity_bytes - capacity_bytes / SPARE_SHARE
}

/// The number of segments in a range, less one, so that a full range does not overflow.
fn len(range: SegmentRange) -> u64 {
    range.last.saturating_sub(range.first)
}

/// Splits the ranges of the rules of one prefix into disjoint ranges with one rule each, and
/// appends them in order. Where rules overlap, the shortest range applies.
///
/// A sweep over the bounds: a heap holds the rules whose range has begun, the shortest on top.
fn push_rule_ranges(rules: &[Rule], of_one: &[u32], pieces: &mut Vec<RuleRange>) {
    let range = |at: u32| rules[at as usize].segments;
    let mut bounds: Vec<u64> = of_one
        .iter()
        .flat_map(|&at| [Some(range(at).first), range(at).last.checked_add(1)])
        .flatten()
        .collect();
    bounds.sort_unstable();
    bounds.dedup();
    // `of_one` is sorted by the first segment, in the order in which the ranges begin.
    let mut begin = of_one.iter().copied().peekable();
    // A rule whose range has ended stays in the heap until it reaches the top.
    let mut active = BinaryHeap::new();
    for (at, &first) in bounds.iter().enumerate() {
        while let Some(rule) = begin.next_if(|&rule| range(rule).first == first) {
            active.push(Reverse((len(range(rule)), rule)));
        }
        while active.peek().is_some_and(|Reverse((_, rule))| range(*rule).last < first) {
            active.pop();
        }
        let last = bounds.get(at + 1).map_or(u64::MAX, |next| next - 1);
        if let Some(&Reverse((_, rule))) = active.peek() {
            pieces.push(RuleRange { segments: SegmentRange { first, last }, rule });
        }
    }
}

/// The rules in force, arranged for fast lookups.
pub(crate) struct ActiveRules {
    pub(crate) rules: Rules,
    prefixes: Vec<RulePrefix>,
    /// The disjoint ranges of each prefix, one prefix after another.
    ranges: Vec<RuleRange>,
    /// Bytes that each rule pins now.
    pub(crate) pinned_bytes: Vec<u64>,
    /// The matching prefixes of recently used objects, by object hash modulo the length.
    recent: Vec<CachedPrefixes>,
}

struct RulePrefix {
    /// The number of any of its rules, which holds the name of the prefix.
    rule: u32,
    /// The rule for all segments, if there is one.
    rule_for_all: Option<u32>,
    ranges: Range<u32>,
}

/// Consecutive segments with the same rule.
struct RuleRange {
    segments: SegmentRange,
    rule: u32,
}

/// The prefixes of one object that have rules, longest first.
#[derive(Clone)]
struct CachedPrefixes {
    object: u64,
    is_vacant: bool,
    prefixes: Vec<u32>,
}

impl ActiveRules {
    pub(crate) fn new(rules: Rules) -> Self {
        let kept_bytes = vec![0; rules.rules.len()];
        let nothing = CachedPrefixes { object: 0, is_vacant: true, prefixes: Vec::new() };
        let recent = vec![nothing; RECENT];
        let (mut prefixes, mut pieces) = (Vec::new(), Vec::new());
        let rule = |at: u32| &rules.rules[at as usize];
        let mut order: Vec<u32> = (0..rules.rules.len() as u32).collect();
        order.sort_by_key(|&at| (rule(at).prefix.value(), rule(at).segments.first));
        for of_one in order.chunk_by(|&one, &other| rule(one).prefix == rule(other).prefix) {
            let from = pieces.len() as u32;
            push_rule_ranges(&rules.rules, of_one, &mut pieces);
            let is_of_all = |at: &u32| len(rule(*at).segments) == u64::MAX;
            prefixes.push(RulePrefix {
                rule: of_one[0],
                rule_for_all: of_one.iter().copied().find(is_of_all),
                ranges: from..pieces.len() as u32,
            });
        }
        Self { rules, prefixes, ranges: pieces, pinned_bytes: kept_bytes, recent }
    }

    /// The rule for a segment of the object whose name has the hash `object`.
    #[inline]
    pub(crate) fn rule_for_segment<'a>(
        &mut self,
        object: u64,
        name: impl FnOnce() -> NameView<'a>,
        segment: u64,
    ) -> Option<u32> {
        let at = object as usize % RECENT;
        if self.recent[at].is_vacant || self.recent[at].object != object {
            self.cache_prefixes(at, object, name());
        }
        self.recent[at].prefixes.iter().find_map(|&prefix| self.rule_in_prefix(prefix, segment))
    }

    #[inline]
    fn rule_in_prefix(&self, prefix: u32, segment: u64) -> Option<u32> {
        let Range { start, end } = self.prefixes[prefix as usize].ranges;
        let pieces = &self.ranges[start as usize..end as usize];
        let at = pieces.partition_point(|piece| piece.segments.last < segment);
        pieces.get(at).filter(|piece| piece.segments.first <= segment).map(|piece| piece.rule)
    }

    /// The rule for Data without a segment number.
    pub(crate) fn rule_for_unsegmented(&self, name: NameView<'_>) -> Option<u32> {
        self.matching_prefixes(name).find_map(|prefix| self.prefixes[prefix as usize].rule_for_all)
    }

    #[cold]
    fn cache_prefixes(&mut self, at: usize, object: u64, name: NameView<'_>) {
        let mut prefixes = core::mem::take(&mut self.recent[at].prefixes);
        prefixes.clear();
        prefixes.extend(self.matching_prefixes(name));
        self.recent[at] = CachedPrefixes { object, is_vacant: false, prefixes };
    }

    /// The prefixes of the name that have rules, longest first.
    fn matching_prefixes(&self, name: NameView<'_>) -> impl Iterator<Item = u32> {
        let value = |prefix: &RulePrefix| self.rules.rules[prefix.rule as usize].prefix.value();
        (0..=name.component_count()).rev().filter_map(move |components| {
            let wanted = name.prefix(components);
            let found = self.prefixes.binary_search_by(|other| value(other).cmp(wanted.value()));
            found.ok().map(|at| at as u32)
        })
    }

    /// The prefixes of rules that keep Data. A prefix below another one is left out.
    pub(crate) fn kept_prefixes(&self) -> Vec<Name> {
        let keeps = |rule: &&Rule| matches!(rule.retention, Retention::Keep { .. });
        let rules = self.rules.rules.iter().filter(keeps);
        let mut prefixes: Vec<&Name> = rules.map(|rule| &rule.prefix).collect();
        // In this order, a name is directly followed by the names below it.
        prefixes.sort_unstable_by_key(|prefix| prefix.value());
        prefixes.dedup_by(|below, above| above.as_view().is_prefix_of(below.as_view()));
        prefixes.into_iter().cloned().collect()
    }

    /// Whether the rule may pin another `bytes` bytes.
    pub(crate) fn has_room(&self, rule: u32, bytes: u64) -> bool {
        match self.rules.rules[rule as usize].retention {
            Retention::Keep { bytes_max } => self.pinned_bytes[rule as usize] + bytes <= bytes_max,
            Retention::Refuse | Retention::Admit => false,
        }
    }

    pub(crate) fn retention(&self, rule: u32) -> Retention {
        self.rules.rules[rule as usize].retention
    }
}

#[cfg(test)]
mod tests;
