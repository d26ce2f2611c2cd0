//! Plans are looked at anew when what they were made for has changed: routers are gone, stores have
//! room, hold an object or hold it no more, or do not keep what they were to keep.

use alloc::collections::{BTreeSet, VecDeque};
use alloc::string::String;
use alloc::vec::Vec;

use weir_base::{Instant, NS_PER_S};
use weir_wire::Name;

use super::{Controller, Event};
use crate::data_map::{ActivePlan, DataMap};
use crate::file::File;
use crate::placement::place;
use crate::plan::{Part, Plan, Share};

/// Plans that are looked at anew in one tick, and parts whose progress is, at most: so that no
/// router can have the controller do nothing else.
const EXAMINED_MAX: usize = 16;
const WATCHED_MAX: usize = 1024;
/// A router that has gained nothing for so long, though a part of it lacks segments, does not keep
/// it: others get it. It is asked for them once every 2 s, six times, and again after 10 s.
const PATIENCE_NS: u64 = 60 * NS_PER_S;
/// For so long it gets nothing more to keep.
const DISTRUST_NS: u64 = 600 * NS_PER_S;

/// Which plans are to be looked at.
#[derive(Default)]
pub(super) struct Upkeep {
    /// Those whose holders have changed, in turn.
    due: VecDeque<Name>,
    is_due: BTreeSet<Name>,
    /// Through those with segments in no part: where it is, whether it runs, and whether it is to
    /// run again.
    swept: Option<Name>,
    is_sweeping: bool,
    sweeps_again: bool,
    /// Through all: where it is.
    watched: Option<Name>,
}

impl Upkeep {
    /// A store has room that it had not, or there are other ways.
    pub(super) fn room_came(&mut self) {
        self.sweeps_again |= self.is_sweeping;
        self.is_sweeping = true;
    }

    /// Other routers hold an object than before, or hold other segments of it.
    pub(super) fn holders_changed(&mut self, object: &Name) {
        if self.is_due.insert(object.clone()) {
            self.due.push_back(object.clone());
        }
    }

    fn next_due(&mut self) -> Option<Name> {
        let object = self.due.pop_front()?;
        self.is_due.remove(&object);
        Some(object)
    }
}

impl Controller {
    /// Plans of a former run: now that paths are known, so are the routers between, and what was
    /// given to routers that have not come back is planned anew.
    pub(super) fn take_up_plans(&mut self) {
        let objects: Vec<Name> =
            self.map.plans().map(|active| active.plan.object.clone()).collect();
        for object in objects {
            let Some(mut active) = self.map.remove_plan(&object) else { continue };
            let concerned = self.concerned(&active.plan);
            let former = core::mem::replace(&mut active.concerned, concerned.clone());
            self.map.insert_plan(active);
            for router in concerned.difference(&former) {
                self.touch(router);
            }
        }
        let named = self.map.plans().flat_map(|active| {
            let parts = active.plan.parts.iter().map(|part| &part.router);
            parts.chain(active.plan.spread.iter().map(|share| &share.router))
        });
        let is_gone = |router: &&String| !self.is_heard(router);
        let gone: BTreeSet<String> = named.filter(is_gone).cloned().collect();
        self.repair(&gone);
    }

    /// Plans anew what routers that are gone were to keep. What others keep stays where it is.
    pub(super) fn repair(&mut self, lost: &BTreeSet<String>) {
        let is_hit = |active: &&ActivePlan| {
            let Plan { parts, spread, .. } = &active.plan;
            parts.iter().any(|part| lost.contains(&part.router))
                || spread.iter().any(|share| lost.contains(&share.router))
        };
        let hit: Vec<Name> =
            self.map.plans().filter(is_hit).map(|active| active.plan.object.clone()).collect();
        for object in hit {
            self.plan_without(&object, |router, _| lost.contains(router));
        }
    }

    /// Plans an object anew without some routers, or without some of their parts, of which the
    /// first segment is given.
    fn plan_without(&mut self, object: &Name, is_gone: impl Fn(&str, u64) -> bool) {
        let Some(file) = self.map.objects.file(object).cloned() else { return };
        let Some(active) = self.map.plan(object) else { return };
        let Plan { mut parts, mut spread, mut consumers, .. } = active.plan.clone();
        consumers.retain(|consumer| self.is_heard(consumer));
        parts.retain(|part| !is_gone(&part.router, part.first));
        spread.retain(|share| !is_gone(&share.router, 0));
        if consumers.is_empty() || (parts.is_empty() && spread.is_empty()) {
            // Nobody asks at present, or nothing is left: who asks next gets a new plan.
            return self.withdraw(object);
        }
        // First what is left, so that its room counts.
        self.make_plan(&file, parts, spread, consumers);
        self.fill(&file);
    }

    /// Has segments that are in no part of a plan kept, as far as there is room now.
    fn fill(&mut self, file: &File) {
        let object = &file.name;
        let Some(active) = self.map.plan(object).filter(|active| !active.plan.parts.is_empty())
        else {
            return;
        };
        let Plan { mut parts, spread, consumers, .. } = active.plan.clone();
        let Some(consumer) = self.first_there(&consumers) else { return };
        let before = parts.len();
        for range in holes(&parts, file.segments) {
            // What was placed a moment ago is promised, too.
            let mut candidates = self.candidates(&consumer, object, file);
            for candidate in &mut candidates {
                let new = parts[before..].iter().filter(|part| part.router == candidate.router);
                let segments: u64 = new.map(|part| part.last - part.first + 1).sum();
                let taken = segments * file.stored_bytes_each();
                candidate.free_bytes = candidate.free_bytes.saturating_sub(taken);
            }
            parts.extend(place(self.config.placement, file, range, candidates));
        }
        if parts.len() > before {
            parts.sort_by_key(|part| part.first);
            self.make_plan(file, parts, spread, consumers);
        }
    }

    /// Looks at a plan anew: room that has come is used, and who is asked in turn are those that
    /// hold the object now.
    pub(super) fn examine(&mut self, object: &Name) {
        if self.is_waiting() {
            return;
        }
        let Some(file) = self.map.objects.file(object).cloned() else { return };
        let Some(active) = self.map.plan(object) else { return };
        if !active.plan.parts.is_empty() {
            return self.fill(&file);
        }
        let mut consumers = active.plan.consumers.clone();
        let Some(consumer) = self.first_there(&consumers) else { return };
        let (parts, spread) = self.arrange(&consumer, &file);
        let before = consumers.len();
        if self.are_ways(&file, &parts, &spread) {
            consumers.retain(|other| *other == consumer);
        }
        let is_left_out = consumers.len() < before;
        let routers = |spread: &[Share]| -> BTreeSet<String> {
            spread.iter().map(|share| share.router.clone()).collect()
        };
        if parts.is_empty() && spread.is_empty() {
            self.withdraw(object);
        } else if is_left_out
            || !parts.is_empty()
            || routers(&spread) != routers(&active.plan.spread)
        {
            self.make_plan(&file, parts, spread, consumers);
        }
    }

    pub(super) fn first_there(&self, consumers: &[String]) -> Option<String> {
        let is_there = |consumer: &&String| self.network.routers.contains_key(*consumer);
        consumers.iter().find(is_there).cloned()
    }

    /// What is due of all that; a bounded part of it.
    pub(super) fn upkeep(&mut self) {
        if self.is_waiting() {
            return;
        }
        for _ in 0..EXAMINED_MAX {
            let Some(object) = self.upkeep.next_due() else { break };
            self.examine(&object);
        }
        if self.upkeep.is_sweeping {
            let objects = self.map.loose_after(self.upkeep.swept.as_ref(), EXAMINED_MAX);
            for object in &objects {
                self.examine(object);
            }
            let has_more = objects.len() == EXAMINED_MAX;
            self.upkeep.swept = objects.into_iter().next_back().filter(|_| has_more);
            if !has_more {
                self.upkeep.is_sweeping = core::mem::take(&mut self.upkeep.sweeps_again);
            }
        }
        if self.config.prefetch {
            self.watch_parts();
        }
    }

    /// Finds routers that do not keep what they were to keep, and gives it to others.
    fn watch_parts(&mut self) {
        let now = self.now;
        for router in self.network.routers.values_mut() {
            if router.distrusted_until.is_some_and(|until| until <= now) {
                router.distrusted_until = None;
                self.upkeep.room_came();
            }
        }
        let objects = self.map.objects_after(self.upkeep.watched.as_ref(), WATCHED_MAX);
        let has_more = objects.len() == WATCHED_MAX;
        self.upkeep.watched = objects.last().filter(|_| has_more).cloned();
        for object in objects {
            let lacking = self.lacking(&object);
            for (router, _, segments) in &lacking {
                let until = now.plus_ns(DISTRUST_NS);
                if let Some(record) = self.network.routers.get_mut(router)
                    && record.distrusted_until.replace(until).is_none()
                {
                    let (router, object, segments) = (router.clone(), object.clone(), *segments);
                    self.events.push(Event::KeepsNot { router, object, segments });
                }
            }
            if !lacking.is_empty() {
                self.plan_without(&object, |router, first| {
                    lacking.iter().any(|(other, at, _)| other == router && *at == first)
                });
            }
        }
    }

    /// The routers that have had the time to fetch a part of an object and lack some of it, with
    /// the part's first segment and how much. None where it cannot be had at present.
    fn lacking(&mut self, object: &Name) -> Vec<(String, u64, u64)> {
        let (now, skips_first) = (self.now, !self.config.prefetch_first);
        if self.network.producers_of(object).is_empty() {
            return Vec::new();
        }
        let DataMap { objects, plans, .. } = &mut self.map;
        let Some(active) = plans.get_mut(object) else { return Vec::new() };
        let mut lacking = Vec::new();
        let parts = active.plan.parts.iter().zip(&mut active.progress);
        for (part, (held, since)) in parts.skip(usize::from(skips_first)) {
            let Some(router) = self.network.routers.get(&part.router) else { continue };
            let holds = objects.held_of(router.id, object).count_within(part.first, part.last);
            if holds > *held {
                *since = now;
            }
            *held = holds;
            let size = part.last - part.first + 1;
            let has_waited = |from: Instant| now.ns_since(from) > PATIENCE_NS;
            if holds < size && has_waited(*since) && has_waited(router.gained) {
                lacking.push((part.router.clone(), part.first, size - holds));
            }
        }
        lacking
    }
}

/// The segments of a file that are in none of its parts, which are in order.
fn holes(parts: &[Part], segments: u64) -> Vec<(u64, u64)> {
    let mut holes = Vec::new();
    let mut next = 0;
    for part in parts {
        if next < part.first {
            holes.push((next, part.first - 1));
        }
        next = part.last + 1;
    }
    if next < segments {
        holes.push((next, segments - 1));
    }
    holes
}
