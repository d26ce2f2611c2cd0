//! The store under rules.

use super::{NameHashes, Store};
use crate::disk::segment_at_end;
use crate::entry::{KEPT, NONE};
use crate::rules::{Retention, Rules, RulesRefused, Ruling};
use alloc::boxed::Box;
use weir_wire::NameView;

impl Store {
    /// Puts rules into force, in place of those of an older plan. `hash` is the keyed hash of a
    /// prefix.
    ///
    /// What is stored and is to be kept is kept from now on, what was kept and is not to be any
    /// more stays as any other Data. Takes one look at each Data below the prefixes of rules that
    /// keep.
    ///
    /// # Errors
    /// The rules do not come into force, and those before stay.
    pub fn set_rules(
        &mut self,
        rules: Rules,
        hash: impl Fn(NameView<'_>) -> u64,
    ) -> Result<(), RulesRefused> {
        let present = self.rules().map_or(0, |rules| rules.generation);
        let is_same = self.rules().is_some_and(|present| *present == rules);
        if is_same {
            return Ok(());
        }
        if rules.generation <= present && self.ruling.is_some() {
            return Err(RulesRefused::Outdated { offered: rules.generation, present });
        }
        rules.check(self.config.capacity_bytes)?;
        self.release_all();
        let ruling = Box::new(Ruling::new(rules));
        let prefixes = ruling.prefixes_kept();
        self.ruling = Some(ruling);
        for prefix in prefixes {
            self.keep_below(prefix.as_view(), hash(prefix.as_view()));
        }
        Ok(())
    }

    /// The rules in force, if there ever were some.
    pub fn rules(&self) -> Option<&Rules> {
        Some(&self.ruling.as_ref()?.rules)
    }

    /// Octets of memory that are kept for each of the rules in force.
    pub fn kept_bytes(&self) -> &[u64] {
        self.ruling.as_ref().map_or(&[], |ruling| &ruling.kept_bytes)
    }

    /// Nothing is kept any more.
    fn release_all(&mut self) {
        while self.kept.head() != NONE {
            let index = self.kept.head();
            self.release(index);
            self.policy.on_insert(&mut self.entries, index);
        }
    }

    /// Keeps what the rules say of what is stored below a prefix.
    fn keep_below(&mut self, prefix: NameView<'_>, hash: u64) {
        let top = if prefix.is_empty() { Some(self.tree.root()) } else { self.tree.find(hash) };
        let Some(top) = top else { return };
        let mut next = self.tree.first(top);
        while let Some(index) = next {
            next = self.tree.after(&self.entries, index, top);
            let entry = &self.entries[index];
            if entry.flags & KEPT != 0 || !entry.is_below(prefix) {
                continue;
            }
            let Ok(name) = NameView::from_value(entry.name_value()) else { continue };
            let name = name.to_name();
            let (whole, parent) = (entry.hash, self.tree.hash(entry.node));
            let hashes = NameHashes { whole, parent, grandparent: None };
            let rule = self.rule_for(name.as_view(), hashes);
            if rule.is_some_and(|rule| self.may_keep(rule, index)) {
                self.policy.on_remove(&mut self.entries, index);
                self.keep(rule.unwrap_or(NONE), index);
            }
        }
    }

    /// The rule for Data of a name.
    #[inline(always)]
    pub(super) fn rule_for(&mut self, name: NameView<'_>, hashes: NameHashes) -> Option<u32> {
        let ruling = self.ruling.as_mut()?;
        match (segment_at_end(name.value()), hashes.parent) {
            (Some(segment), Some(object)) => ruling.of_segment(object, || name.parent(), segment),
            _ => ruling.of_whole(name),
        }
    }

    /// Whether Data that is not stored must not be. Counted if so.
    #[inline]
    pub(super) fn is_refused(&mut self, rule: Option<u32>) -> bool {
        let (Some(rule), Some(ruling)) = (rule, &self.ruling) else { return false };
        let is_refused = ruling.retention(rule) == Retention::Refuse;
        self.stats.refusals += u64::from(is_refused);
        is_refused
    }

    fn may_keep(&self, rule: u32, index: u32) -> bool {
        let bytes = self.entries[index].bytes();
        self.ruling.as_ref().is_some_and(|ruling| ruling.has_room(rule, bytes))
    }

    /// Takes a new entry in, which is kept or goes by the policy.
    #[inline(always)]
    pub(super) fn take_in(&mut self, index: u32, rule: Option<u32>) {
        match rule {
            Some(rule) if self.may_keep(rule, index) => {
                self.policy.on_passed_by();
                self.keep(rule, index);
            }
            _ => self.policy.on_insert(&mut self.entries, index),
        }
    }

    /// Keeps an entry that the policy does not know.
    fn keep(&mut self, rule: u32, index: u32) {
        let Self { ruling: Some(ruling), entries, kept, stats, .. } = self else { return };
        let entry = &mut entries[index];
        entry.flags |= KEPT;
        entry.mark = rule;
        ruling.kept_bytes[rule as usize] += entry.bytes();
        stats.kept_bytes += entry.bytes();
        kept.push_back(entries, index);
    }

    /// Keeps an entry no longer. The policy does not know it.
    fn release(&mut self, index: u32) {
        let Self { ruling: Some(ruling), entries, kept, stats, .. } = self else { return };
        kept.unlink(entries, index);
        let entry = &mut entries[index];
        entry.flags &= !KEPT;
        ruling.kept_bytes[entry.mark as usize] -= entry.bytes();
        stats.kept_bytes -= entry.bytes();
    }

    /// An entry is used.
    #[inline]
    pub(super) fn use_entry(&mut self, index: u32) {
        if self.entries[index].flags & KEPT == 0 {
            self.policy.on_hit(&mut self.entries, index);
        }
    }

    /// An entry leaves for another reason than room.
    #[inline]
    pub(super) fn take_out(&mut self, index: u32) {
        match self.entries[index].flags & KEPT {
            0 => self.policy.on_remove(&mut self.entries, index),
            _ => self.release(index),
        }
    }

    /// What is kept gives way if there is nothing else, as when the store has become smaller.
    #[cold]
    pub(super) fn take_kept(&mut self) -> Option<u32> {
        let index = Some(self.kept.head()).filter(|&index| index != NONE)?;
        self.release(index);
        Some(index)
    }

    #[cfg(test)]
    pub(crate) fn check_kept(&self) {
        let mut kept = alloc::vec![0; self.kept_bytes().len()];
        for (_, entry) in self.entries.iter().filter(|(_, entry)| entry.flags & KEPT != 0) {
            kept[entry.mark as usize] += entry.bytes();
        }
        assert_eq!(kept, self.kept_bytes());
        assert_eq!(kept.iter().sum::<u64>(), self.stats.kept_bytes);
        let bounds = self.ruling.iter().flat_map(|ruling| ruling.rules.rules.iter());
        for (rule, kept) in bounds.zip(kept) {
            let Retention::Keep { bytes_max } = rule.retention else { continue };
            assert!(kept <= bytes_max);
        }
    }
}

#[cfg(test)]
mod tests;
