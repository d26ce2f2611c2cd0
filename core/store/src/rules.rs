//! What may be stored, and what is to stay, by object and range of segments.

use crate::holdings::SegmentRange;
use alloc::vec;
use alloc::vec::Vec;
use thiserror::Error;
use weir_wire::{Name, NameView};

/// Rules of one plan, at most.
pub(crate) const RULES_MAX: usize = 4096;
/// Of the store, all but this share may be kept for rules together.
const SPARE_SHARE: u64 = 16;
/// Objects whose rules are remembered.
const RECENT: usize = 16;

/// What becomes of Data.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug)]
pub enum Retention {
    /// It is not stored, in memory or on disk. What is stored already leaves as any other.
    Refuse,
    /// It is stored as if there were no rule.
    Admit,
    /// It stays in memory as long as the rule does, up to this many octets of memory. What comes
    /// beyond that is stored as if there were no rule.
    Keep {
        /// Octets as [`StoreConfig::capacity_bytes`](crate::StoreConfig) counts them.
        bytes_max: u64,
    },
}

/// What becomes of some segments of the objects below a prefix.
///
/// Of the rules whose prefix the object's name starts with and whose range has the segment, that
/// with the longest prefix holds, of these that with the shortest range. Data without a segment
/// number has the rules for all segments only.
#[derive(Clone, Eq, PartialEq, Debug)]
pub struct Rule {
    /// The object's name without the segment number, or a prefix of it.
    pub prefix: Name,
    /// The segments.
    pub segments: SegmentRange,
    /// What becomes of them.
    pub retention: Retention,
}

/// A plan for a store: all rules that hold, in place of those of an older one.
#[derive(Clone, Eq, PartialEq, Debug, Default)]
pub struct Rules {
    /// Of two plans the one with the higher number holds.
    pub generation: u64,
    /// In any order.
    pub rules: Vec<Rule>,
}

/// Why rules do not come into force. Those before stay.
#[derive(Clone, Eq, PartialEq, Debug, Error)]
pub enum RulesRefused {
    /// They are of an older plan, or differ from those of the same number.
    #[error("the plan has number {offered}, and one with number {present} is in force")]
    Outdated {
        /// Theirs.
        offered: u64,
        /// That of those in force.
        present: u64,
    },
    /// There are more than 4,096.
    #[error("there are {0} rules, and {RULES_MAX} are the most")]
    TooMany(usize),
    /// Together they would keep more than the store may.
    #[error("the rules keep {bytes} octets together, and the store may keep {bytes_max}")]
    KeepTooMuch {
        /// What they ask for.
        bytes: u64,
        /// Fifteen sixteenths of the store.
        bytes_max: u64,
    },
    /// The first segment of a range comes after its last.
    #[error("a rule for {0} has a range that ends before it begins")]
    EmptyRange(Name),
    /// Two rules of one prefix have ranges of one length that overlap.
    #[error("two rules for {0} overlap, and neither range is the shorter one")]
    Ambiguous(Name),
}

impl Rules {
    /// Whether a store of this capacity can follow them.
    ///
    /// # Errors
    /// It cannot: why.
    pub fn check(&self, capacity_bytes: u64) -> Result<(), RulesRefused> {
        if self.rules.len() > RULES_MAX {
            return Err(RulesRefused::TooMany(self.rules.len()));
        }
        let kept = self.rules.iter().map(|rule| match rule.retention {
            Retention::Keep { bytes_max } => bytes_max,
            Retention::Refuse | Retention::Admit => 0,
        });
        let bytes = kept.fold(0, u64::saturating_add);
        let bytes_max = capacity_bytes - capacity_bytes / SPARE_SHARE;
        if bytes > bytes_max {
            return Err(RulesRefused::KeepTooMuch { bytes, bytes_max });
        }
        let is_empty = |rule: &&Rule| rule.segments.first > rule.segments.last;
        if let Some(rule) = self.rules.iter().find(is_empty) {
            return Err(RulesRefused::EmptyRange(rule.prefix.clone()));
        }
        self.check_overlaps()
    }

    fn check_overlaps(&self) -> Result<(), RulesRefused> {
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
        overlap.map_or(Ok(()), |pair| Err(RulesRefused::Ambiguous(pair[0].prefix.clone())))
    }
}

/// Segments of a range, less one.
fn len(range: SegmentRange) -> u64 {
    range.last.saturating_sub(range.first)
}

/// Rules in force, ready to be asked.
pub(crate) struct Ruling {
    pub(crate) rules: Rules,
    /// The rules by prefix, those of one prefix shortest range first.
    order: Vec<u32>,
    /// Octets kept for each.
    pub(crate) kept_bytes: Vec<u64>,
    recent: Vec<Recent>,
}

/// The rules of one object, in the order in which they are asked.
#[derive(Clone)]
struct Recent {
    object: u64,
    is_vacant: bool,
    rules: Vec<u32>,
}

impl Ruling {
    pub(crate) fn new(rules: Rules) -> Self {
        let mut order: Vec<u32> = (0..rules.rules.len() as u32).collect();
        let key = |at: &u32| {
            let rule = &rules.rules[*at as usize];
            (rule.prefix.value(), len(rule.segments))
        };
        order.sort_by(|one, other| key(one).cmp(&key(other)));
        let kept_bytes = vec![0; rules.rules.len()];
        let nothing = Recent { object: 0, is_vacant: true, rules: Vec::new() };
        Self { rules, order, kept_bytes, recent: vec![nothing; RECENT] }
    }

    /// The rule for a segment of an object, whose name has this hash.
    #[inline]
    pub(crate) fn of_segment(
        &mut self,
        object: u64,
        name: impl FnOnce() -> Name,
        segment: u64,
    ) -> Option<u32> {
        let at = object as usize % RECENT;
        if self.recent[at].is_vacant || self.recent[at].object != object {
            self.look_up(at, object, name().as_view());
        }
        let rules = &self.rules.rules;
        let has = |rule: &&u32| rules[**rule as usize].segments.contains(segment);
        self.recent[at].rules.iter().find(has).copied()
    }

    /// The rule for Data that has no segment number.
    pub(crate) fn of_whole(&self, name: NameView<'_>) -> Option<u32> {
        let mut found = Vec::new();
        self.matching(name, &mut found);
        let is_for_all = |at: &u32| len(self.rules.rules[*at as usize].segments) == u64::MAX;
        found.into_iter().find(is_for_all)
    }

    #[cold]
    fn look_up(&mut self, at: usize, object: u64, name: NameView<'_>) {
        let mut rules = core::mem::take(&mut self.recent[at].rules);
        rules.clear();
        self.matching(name, &mut rules);
        self.recent[at] = Recent { object, is_vacant: false, rules };
    }

    /// Appends the rules whose prefixes the name has, the longest first.
    fn matching(&self, name: NameView<'_>, found: &mut Vec<u32>) {
        for components in (0..=name.component_count()).rev() {
            let prefix = name.prefix(components);
            let value = |at: &u32| self.rules.rules[*at as usize].prefix.value();
            let from = self.order.partition_point(|at| value(at) < prefix.value());
            let of_prefix = |at: &&u32| value(at) == prefix.value();
            found.extend(self.order[from..].iter().take_while(of_prefix));
        }
    }

    /// Whether the rule keeps what takes so many octets.
    pub(crate) fn has_room(&self, rule: u32, bytes: u64) -> bool {
        match self.rules.rules[rule as usize].retention {
            Retention::Keep { bytes_max } => self.kept_bytes[rule as usize] + bytes <= bytes_max,
            Retention::Refuse | Retention::Admit => false,
        }
    }

    pub(crate) fn retention(&self, rule: u32) -> Retention {
        self.rules.rules[rule as usize].retention
    }
}
