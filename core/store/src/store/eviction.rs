//! Chooses the entry to evict: by policy, except for entries that rules pin.

use super::memory::Memory;
use super::query::NameHashes;
use crate::config::EvictionPolicy;
use crate::disk::segment_at_end;
use crate::entry::{EVICT_FIRST, Entry, List, NONE, PINNED, PolicyLinks};
use crate::policy::{IncomingData, Policy};
use crate::rules::{ActiveRules, Retention, Rules, RulesError};
use alloc::boxed::Box;
use weir_base::Slab;
use weir_wire::NameView;

/// Data that one call of [`Store::evict_first`](crate::Store::evict_first) has marked.
#[derive(Copy, Clone, Eq, PartialEq, Debug, Default)]
pub struct MarkedBatch {
    /// Packets that were newly marked.
    pub packets: u64,
    /// Where the next batch starts; `None` after the last one.
    pub next: Option<MarkCursor>,
}

/// The position between two batches: the entry that was visited last.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub struct MarkCursor {
    index: u32,
    /// The keyed hash of the entry's name.
    hash: u64,
}

impl MarkCursor {
    fn is_valid(&self, memory: &Memory) -> bool {
        memory.entries.get(self.index).is_some_and(|entry| entry.hash == self.hash)
    }
}

/// Each entry of the store is in exactly one list: one of the policy's, the list of pinned entries,
/// or that of entries to evict first. The lists use links inside the entries.
pub(super) struct Eviction {
    policy: Policy,
    /// The rules in force, if a plan was ever set.
    active_rules: Option<Box<ActiveRules>>,
    /// Entries that rules pin. They are in no list of the policy.
    pinned: List<PolicyLinks>,
    pinned_bytes: u64,
    /// Entries that a command wants evicted before any other. They are in no list of the policy.
    first: List<PolicyLinks>,
}

impl Eviction {
    pub(super) fn new(kind: EvictionPolicy) -> Self {
        Self {
            policy: Policy::new(kind),
            active_rules: None,
            pinned: List::EMPTY,
            pinned_bytes: 0,
            first: List::EMPTY,
        }
    }

    /// Changes the policy. The new policy receives the entries in the order in which the old one
    /// would evict them, so the most valuable ones come last.
    pub(super) fn set_policy(&mut self, entries: &mut Slab<Entry>, kind: EvictionPolicy) {
        let mut policy = Policy::new(kind);
        while let Some(index) = self.policy.take_victim(entries, IncomingData::NONE) {
            policy.on_insert(entries, index);
        }
        self.policy = policy;
    }

    /// See [`Store::set_rules`](crate::Store::set_rules).
    pub(super) fn set_rules(
        &mut self,
        memory: &mut Memory,
        rules: Rules,
        capacity_bytes: u64,
        hash: impl Fn(NameView<'_>) -> u64,
    ) -> Result<(), RulesError> {
        if let Some(present) = self.rules() {
            if *present == rules {
                return Ok(());
            }
            if rules.generation <= present.generation {
                let (offered, present) = (rules.generation, present.generation);
                return Err(RulesError::Outdated { offered, present });
            }
        }
        rules.check(capacity_bytes)?;
        // Unpin first: the entries refer to the old rules by number.
        self.unpin_all(&mut memory.entries);
        let ruling = Box::new(ActiveRules::new(rules));
        let prefixes = ruling.kept_prefixes();
        self.active_rules = Some(ruling);
        for prefix in prefixes {
            self.pin_below(memory, prefix.as_view(), hash(prefix.as_view()));
        }
        Ok(())
    }

    /// The rules in force, if a plan was ever set.
    pub(super) fn rules(&self) -> Option<&Rules> {
        Some(&self.active_rules.as_ref()?.rules)
    }

    /// Bytes that all rules pin together.
    #[inline]
    pub(super) fn pinned_bytes(&self) -> u64 {
        self.pinned_bytes
    }

    #[inline(always)]
    pub(super) fn rule_for(&mut self, name: NameView<'_>, hashes: NameHashes) -> Option<u32> {
        let ruling = self.active_rules.as_mut()?;
        match (segment_at_end(name.value()), hashes.parent) {
            (Some(segment), Some(object)) => {
                ruling.rule_for_segment(object, || name.parent(), segment)
            }
            _ => ruling.rule_for_unsegmented(name),
        }
    }

    /// Whether a rule forbids storing new Data.
    #[inline]
    pub(super) fn refuses(&self, rule: Option<u32>) -> bool {
        let (Some(rule), Some(ruling)) = (rule, &self.active_rules) else { return false };
        ruling.retention(rule) == Retention::Refuse
    }

    /// Adds a new entry: pins it if its rule has space left, else passes it to the policy.
    #[inline(always)]
    pub(super) fn on_insert(&mut self, entries: &mut Slab<Entry>, index: u32, rule: Option<u32>) {
        match rule {
            Some(rule) if self.can_pin(rule, &entries[index]) => {
                self.policy.on_insert_skipped();
                self.pin(entries, rule, index);
            }
            _ => self.policy.on_insert(entries, index),
        }
    }

    #[inline]
    pub(super) fn on_hit(&mut self, entries: &mut Slab<Entry>, index: u32) {
        if entries[index].flags & (PINNED | EVICT_FIRST) == 0 {
            self.policy.on_hit(entries, index);
        }
    }

    /// Removes an entry from its list for a reason other than lack of memory, such as an erasure.
    #[inline]
    pub(super) fn on_remove(&mut self, entries: &mut Slab<Entry>, index: u32) {
        match entries[index].flags & (PINNED | EVICT_FIRST) {
            0 => self.policy.on_remove(entries, index),
            PINNED => self.unpin(entries, index),
            _ => {
                self.first.unlink(entries, index);
                entries[index].flags &= !EVICT_FIRST;
            }
        }
    }

    /// See [`Store::evict_first`](crate::Store::evict_first).
    pub(super) fn evict_first(
        &mut self,
        memory: &mut Memory,
        prefix: NameView<'_>,
        hash: u64,
        from: Option<MarkCursor>,
        visits_max: u32,
    ) -> MarkedBatch {
        let mut batch = MarkedBatch::default();
        if from.is_none()
            && let Some(index) = memory.find(hash, prefix.value())
        {
            batch.packets += u64::from(self.mark_first(&mut memory.entries, index));
        }
        let Some(top) = memory.node_of(prefix, hash) else { return batch };
        // The last visited entry may be gone. Then the walk starts again. Little of it is repeated:
        // eviction takes marked entries in the order of the walk, so those before it are gone, too.
        let last = from.filter(|from| from.is_valid(memory));
        let mut next = match last {
            Some(last) => memory.next_below(top, last.index),
            None => memory.first_below(top),
        };
        let mut visits = 0;
        while let Some(index) = next {
            visits += 1;
            next = memory.next_below(top, index);
            if memory.entries[index].is_below(prefix) {
                batch.packets += u64::from(self.mark_first(&mut memory.entries, index));
            }
            if visits >= visits_max && next.is_some() {
                batch.next = Some(MarkCursor { index, hash: memory.entries[index].hash });
                break;
            }
        }
        batch
    }

    fn mark_first(&mut self, entries: &mut Slab<Entry>, index: u32) -> bool {
        if entries[index].flags & (PINNED | EVICT_FIRST) != 0 {
            return false;
        }
        self.policy.on_remove(entries, index);
        entries[index].flags |= EVICT_FIRST;
        self.first.push_back(entries, index);
        true
    }

    #[cold]
    fn take_first(&mut self, entries: &mut Slab<Entry>) -> Option<u32> {
        let index = Some(self.first.head()).filter(|&index| index != NONE)?;
        self.first.unlink(entries, index);
        Some(index)
    }

    /// Notes that a node of the prefix tree now belongs to a new object.
    #[inline]
    pub(super) fn on_new_object(&mut self, node: u32) {
        self.policy.on_new_object(node);
    }

    /// Removes and returns the next entry to evict: first those that a command has marked. A pinned
    /// entry is evicted only if no other is left, for instance after the store has shrunk.
    #[inline(always)]
    pub(super) fn take_victim(
        &mut self,
        entries: &mut Slab<Entry>,
        incoming: IncomingData<'_>,
    ) -> Option<u32> {
        if !self.first.is_empty() {
            return self.take_first(entries);
        }
        let victim = self.policy.take_victim(entries, incoming);
        victim.or_else(|| self.take_pinned(entries))
    }

    /// The entries that are likely to be evicted next, for prefetching. `NONE` fills the array.
    #[inline]
    pub(super) fn candidates(&self) -> [u32; 2] {
        self.policy.candidates()
    }

    /// Prefetches the memory that the policy will read to insert a name with this hash.
    #[inline]
    pub(super) fn prefetch(&self, hash: u64) {
        self.policy.prefetch(hash);
    }

    /// Pins the entries below a prefix that the rules keep, until their limits are reached.
    fn pin_below(&mut self, memory: &mut Memory, prefix: NameView<'_>, hash: u64) {
        let Some(top) = memory.node_of(prefix, hash) else { return };
        let mut next = memory.first_below(top);
        while let Some(index) = next {
            next = memory.next_below(top, index);
            let entry = &memory.entries[index];
            if entry.flags & PINNED != 0 || !entry.is_below(prefix) {
                continue;
            }
            let Ok(name) = NameView::from_value(entry.name_value()) else { continue };
            let (whole, parent) = (entry.hash, memory.parent_hash(entry));
            let hashes = NameHashes { whole, parent, grandparent: None };
            let Some(rule) = self.rule_for(name, hashes) else { continue };
            if self.can_pin(rule, entry) {
                self.on_remove(&mut memory.entries, index);
                self.pin(&mut memory.entries, rule, index);
            }
        }
    }

    fn can_pin(&self, rule: u32, entry: &Entry) -> bool {
        self.active_rules.as_ref().is_some_and(|ruling| ruling.has_room(rule, entry.memory_bytes()))
    }

    /// Pins an entry that is in no list. `policy_state` then holds the number of the rule.
    fn pin(&mut self, entries: &mut Slab<Entry>, rule: u32, index: u32) {
        let Some(ruling) = &mut self.active_rules else { return };
        let entry = &mut entries[index];
        entry.flags |= PINNED;
        entry.policy_state = rule;
        ruling.pinned_bytes[rule as usize] += entry.memory_bytes();
        self.pinned_bytes += entry.memory_bytes();
        self.pinned.push_back(entries, index);
    }

    /// Unpins an entry. It is then in no list; the caller must remove it or pass it to the policy.
    fn unpin(&mut self, entries: &mut Slab<Entry>, index: u32) {
        let Some(ruling) = &mut self.active_rules else { return };
        self.pinned.unlink(entries, index);
        let entry = &mut entries[index];
        entry.flags &= !PINNED;
        ruling.pinned_bytes[entry.policy_state as usize] -= entry.memory_bytes();
        self.pinned_bytes -= entry.memory_bytes();
    }

    /// Passes all pinned entries to the policy.
    fn unpin_all(&mut self, entries: &mut Slab<Entry>) {
        while let Some(index) = self.take_pinned(entries) {
            self.policy.on_insert(entries, index);
        }
    }

    #[cold]
    fn take_pinned(&mut self, entries: &mut Slab<Entry>) -> Option<u32> {
        let index = Some(self.pinned.head()).filter(|&index| index != NONE)?;
        self.unpin(entries, index);
        Some(index)
    }

    #[cfg(test)]
    pub(super) fn pinned_bytes_by_rule(&self) -> &[u64] {
        self.active_rules.as_ref().map_or(&[], |ruling| &ruling.pinned_bytes)
    }

    /// Asserts that sums and flags are consistent.
    #[cfg(test)]
    pub(super) fn check(&self, entries: &Slab<Entry>) {
        assert!(self.policy.is_settled());
        let kept_by_rule = self.pinned_bytes_by_rule();
        let mut kept = alloc::vec![0; kept_by_rule.len()];
        for (_, entry) in entries.iter().filter(|(_, entry)| entry.flags & PINNED != 0) {
            kept[entry.policy_state as usize] += entry.memory_bytes();
        }
        assert_eq!(kept, kept_by_rule);
        assert_eq!(kept.iter().sum::<u64>(), self.pinned_bytes);
        let bounds = self.active_rules.iter().flat_map(|ruling| ruling.rules.rules.iter());
        for (rule, kept) in bounds.zip(kept) {
            let Retention::Keep { bytes_max } = rule.retention else { continue };
            assert!(kept <= bytes_max);
        }
    }
}

#[cfg(test)]
mod tests;
