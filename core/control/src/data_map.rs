//! Which objects there are, and what is planned for each.

use alloc::borrow::ToOwned;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;
use core::ops::Bound;

use weir_base::Instant;
use weir_wire::Name;

use crate::file::{File, List};
use crate::objects::Objects;
use crate::plan::{Part, Plan, segment_count};

pub(crate) struct ActivePlan {
    pub(crate) plan: Plan,
    /// Octets of memory that a segment takes where it is kept.
    pub(crate) bytes_each: u64,
    /// The file's manifest.
    lists: Vec<List>,
    /// Routers whose configuration speaks of it: consumers, those that keep a part, and those
    /// between.
    pub(crate) involved: BTreeSet<String>,
    /// How much of each part its router has said to hold, and when that last became more.
    pub(crate) progress: Vec<(u64, Instant)>,
}

impl ActivePlan {
    pub(crate) fn new(plan: Plan, file: &File, concerned: BTreeSet<String>, now: Instant) -> Self {
        let progress = plan.parts.iter().map(|_| (0, now)).collect();
        let (bytes_each, lists) = (file.stored_bytes_per_segment(), file.manifest.clone());
        Self { plan, bytes_each, lists, involved: concerned, progress }
    }

    /// Ranges of packets that the router of a part keeps, by what is before their numbers: of each
    /// list the numbers of its segments, and these.
    pub(crate) fn kept_ranges<'a>(&'a self, part: &'a Part) -> impl Iterator<Item = KeptRange<'a>> {
        let listed = self.lists.iter().filter(|list| part.first < list.packets);
        let listed = listed.map(|list| (&list.name, part.first, part.last.min(list.packets - 1)));
        let segments = (&self.plan.object, part.first, part.last);
        let kept = listed.chain(core::iter::once(segments));
        kept.map(|(name, first, last)| KeptRange { name, first, last })
    }

    /// Octets of memory that the router of a part has promised.
    fn part_bytes(&self, part: &Part) -> u64 {
        self.kept_ranges(part).map(|kept| kept.packets() * self.bytes_each).sum()
    }

    /// What is known of parts that are in the former plan of the same object, too.
    pub(crate) fn inherit_progress(&mut self, former: &Self) {
        for (part, progress) in self.plan.parts.iter().zip(&mut self.progress) {
            if let Some(at) = former.plan.parts.iter().position(|other| other == part) {
                *progress = former.progress[at];
            }
        }
    }
}

/// Packets of consecutive numbers that a router keeps.
pub(crate) struct KeptRange<'a> {
    pub(crate) name: &'a Name,
    pub(crate) first: u64,
    pub(crate) last: u64,
}

impl KeptRange<'_> {
    pub(crate) fn packets(&self) -> u64 {
        self.last - self.first + 1
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RuleCounts {
    pub(crate) total: usize,
    /// Those that have it keep something.
    pub(crate) keeping: usize,
}

/// Objects and plans.
#[derive(Default)]
pub(crate) struct DataMap {
    pub(crate) objects: Objects,
    pub(crate) plans: BTreeMap<Name, ActivePlan>,
    /// Octets of a router's store that plans have promised.
    promised: BTreeMap<String, u64>,
    /// Rules that plans have for a router's store, and how many of them have it keep something.
    rules: BTreeMap<String, RuleCounts>,
    /// Objects whose plans concern a router.
    by_router: BTreeMap<String, BTreeSet<Name>>,
    /// Objects whose plan would be another one if stores had more room, or ways were others: those
    /// with segments in no part.
    incomplete: BTreeSet<Name>,
}

impl DataMap {
    /// Rules that plans have for a router's store.
    pub(crate) fn rule_counts_of(&self, router: &str) -> RuleCounts {
        self.rules.get(router).copied().unwrap_or_default()
    }

    /// Octets of memory that plans have promised of a router's store.
    pub(crate) fn promised_bytes(&self, router: &str) -> u64 {
        self.promised.get(router).copied().unwrap_or(0)
    }

    pub(crate) fn plan(&self, object: &Name) -> Option<&ActivePlan> {
        self.plans.get(object)
    }

    pub(crate) fn plans(&self) -> impl Iterator<Item = &ActivePlan> {
        self.plans.values()
    }

    /// The next so many objects after one of which some segments are in no part, by name.
    pub(crate) fn incomplete_after(&self, after: Option<&Name>, count: usize) -> Vec<Name> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let later = self.incomplete.range::<Name, _>((from, Bound::Unbounded));
        later.take(count).cloned().collect()
    }

    /// The next so many plans after that of an object, by name.
    pub(crate) fn planned_after(&self, after: Option<&Name>, count: usize) -> Vec<Name> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let later = self.plans.range::<Name, _>((from, Bound::Unbounded));
        later.take(count).map(|(object, _)| object.clone()).collect()
    }

    /// The plans that concern a router.
    pub(crate) fn plans_of(&self, router: &str) -> impl Iterator<Item = &ActivePlan> {
        let objects = self.by_router.get(router).into_iter().flatten();
        objects.filter_map(|object| self.plans.get(object))
    }

    /// Puts a plan into force in place of the file's former one, which is returned.
    pub(crate) fn insert_plan(&mut self, active: ActivePlan) -> Option<ActivePlan> {
        let former = self.remove_plan(&active.plan.object.clone());
        for part in &active.plan.parts {
            let bytes = active.part_bytes(part);
            *self.promised.entry(part.router.clone()).or_default() += bytes;
        }
        for (router, count) in rule_counts(&active) {
            let rules = self.rules.entry(router.to_owned()).or_default();
            rules.total += count.total;
            rules.keeping += count.keeping;
        }
        for router in &active.involved {
            let objects = self.by_router.entry(router.clone()).or_default();
            objects.insert(active.plan.object.clone());
        }
        let kept = segment_count(&active.plan.parts);
        if self.objects.file(&active.plan.object).is_some_and(|file| kept < file.segments) {
            self.incomplete.insert(active.plan.object.clone());
        }
        self.plans.insert(active.plan.object.clone(), active);
        former
    }

    pub(crate) fn remove_plan(&mut self, object: &Name) -> Option<ActivePlan> {
        let active = self.plans.remove(object)?;
        self.incomplete.remove(object);
        for part in &active.plan.parts {
            let bytes = active.part_bytes(part);
            if let Some(promised) = self.promised.get_mut(&part.router) {
                *promised -= bytes;
            }
        }
        for (router, count) in rule_counts(&active) {
            if let Some(rules) = self.rules.get_mut(router) {
                rules.total -= count.total;
                rules.keeping -= count.keeping;
            }
        }
        for router in &active.involved {
            if let Some(objects) = self.by_router.get_mut(router) {
                objects.remove(object);
            }
        }
        Some(active)
    }
}

/// How many rules a plan has for each router's store: one for each range that it keeps, and one for
/// all else.
fn rule_counts(active: &ActivePlan) -> BTreeMap<&str, RuleCounts> {
    let mut rules = BTreeMap::new();
    if active.plan.parts.is_empty() {
        return rules;
    }
    let other = RuleCounts { total: 1, keeping: 0 };
    rules.extend(active.involved.iter().map(|router| (router.as_str(), other)));
    for part in &active.plan.parts {
        let rules: &mut RuleCounts = rules.entry(part.router.as_str()).or_default();
        let kept = active.kept_ranges(part).count();
        rules.total += kept;
        rules.keeping += kept;
    }
    rules
}
