//! The registered objects and the plan in force for each of them.

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

/// A plan in force, with what the controller derived from it.
pub(crate) struct ActivePlan {
    pub(crate) plan: Plan,
    /// Bytes of memory that one segment takes in a store.
    pub(crate) bytes_each: u64,
    /// The lists of the file's manifest. A router that keeps segments also keeps the packets of
    /// these lists with the same numbers.
    lists: Vec<List>,
    /// Routers whose configuration mentions this plan: the consumers, the keepers, and the routers
    /// on the paths from the producers to the keepers and from there to the consumers.
    pub(crate) involved: BTreeSet<String>,
    /// For each part: how many of its segments its router holds, and when that number last grew.
    pub(crate) progress: Vec<(u64, Instant)>,
}

impl ActivePlan {
    pub(crate) fn new(plan: Plan, file: &File, concerned: BTreeSet<String>, now: Instant) -> Self {
        let progress = plan.parts.iter().map(|_| (0, now)).collect();
        let (bytes_each, lists) = (file.stored_bytes_per_segment(), file.manifest.clone());
        Self { plan, bytes_each, lists, involved: concerned, progress }
    }

    /// The ranges of packets that the router of a part keeps: the segments of the part, and from
    /// each list of the manifest the packets with the same numbers.
    pub(crate) fn kept_ranges<'a>(&'a self, part: &'a Part) -> impl Iterator<Item = KeptRange<'a>> {
        let listed = self.lists.iter().filter(|list| part.first < list.packets);
        let listed = listed.map(|list| (&list.name, part.first, part.last.min(list.packets - 1)));
        let segments = (&self.plan.object, part.first, part.last);
        let kept = listed.chain(core::iter::once(segments));
        kept.map(|(name, first, last)| KeptRange { name, first, last })
    }

    /// Bytes of memory that a part takes in the store of its router.
    fn part_bytes(&self, part: &Part) -> u64 {
        self.kept_ranges(part).map(|kept| kept.packets() * self.bytes_each).sum()
    }

    /// Copies the progress of parts that the previous plan had as well. So a router that keeps its
    /// part is not measured from zero again.
    pub(crate) fn inherit_progress(&mut self, former: &Self) {
        for (part, progress) in self.plan.parts.iter().zip(&mut self.progress) {
            if let Some(at) = former.plan.parts.iter().position(|other| other == part) {
                *progress = former.progress[at];
            }
        }
    }
}

/// Packets `first` to `last` below a name, which a router keeps.
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

/// How many store rules the plans need on one router.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RuleCounts {
    pub(crate) total: usize,
    /// Rules that keep packets; the other rules refuse them.
    pub(crate) keeping: usize,
}

/// The objects, the plans, and indexes of the plans by router.
#[derive(Default)]
pub(crate) struct DataMap {
    pub(crate) objects: Objects,
    pub(crate) plans: BTreeMap<Name, ActivePlan>,
    /// For each router: bytes of its store that plans have promised.
    promised: BTreeMap<String, u64>,
    /// For each router: the store rules that plans need on it.
    rules: BTreeMap<String, RuleCounts>,
    /// For each router: the objects whose plans involve it.
    by_router: BTreeMap<String, BTreeSet<Name>>,
    /// Objects with segments that are in no part. Their plan may improve when a store gets more
    /// space or paths change.
    incomplete: BTreeSet<Name>,
}

impl DataMap {
    pub(crate) fn rule_counts_of(&self, router: &str) -> RuleCounts {
        self.rules.get(router).copied().unwrap_or_default()
    }

    /// Bytes of a router's store that plans have promised.
    pub(crate) fn promised_bytes(&self, router: &str) -> u64 {
        self.promised.get(router).copied().unwrap_or(0)
    }

    pub(crate) fn plan(&self, object: &Name) -> Option<&ActivePlan> {
        self.plans.get(object)
    }

    pub(crate) fn plans(&self) -> impl Iterator<Item = &ActivePlan> {
        self.plans.values()
    }

    /// Up to `count` incomplete objects after `after`, in the order of names.
    pub(crate) fn incomplete_after(&self, after: Option<&Name>, count: usize) -> Vec<Name> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let later = self.incomplete.range::<Name, _>((from, Bound::Unbounded));
        later.take(count).cloned().collect()
    }

    /// Up to `count` objects with a plan after `after`, in the order of names.
    pub(crate) fn planned_after(&self, after: Option<&Name>, count: usize) -> Vec<Name> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let later = self.plans.range::<Name, _>((from, Bound::Unbounded));
        later.take(count).map(|(object, _)| object.clone()).collect()
    }

    /// The plans that involve a router.
    pub(crate) fn plans_of(&self, router: &str) -> impl Iterator<Item = &ActivePlan> {
        let objects = self.by_router.get(router).into_iter().flatten();
        objects.filter_map(|object| self.plans.get(object))
    }

    /// Puts a plan into force. Returns the previous plan of the object.
    pub(crate) fn insert_plan(&mut self, active: ActivePlan) -> Option<ActivePlan> {
        // This also subtracts the bytes and rules of the previous plan.
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

/// Counts the store rules of a plan for each involved router: one to keep each range, and one to
/// refuse the rest of the object.
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
