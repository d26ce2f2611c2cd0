//! Adapts plans when routers, stores or paths change.

use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;

use weir_base::{Instant, NS_PER_S};
use weir_wire::Name;

use super::{PlanContext, Plans};
use crate::controller::event::Event;
use crate::data_map::{ActivePlan, DataMap};
use crate::file::File;
use crate::placement::assign_parts;
use crate::plan::{Part, Plan, Share};

/// Maximum number of plans re-examined, and of plans whose progress is checked, in one tick. So no
/// router can keep the controller busy.
const EXAMINED_MAX: usize = 16;
const CHECKED_MAX: usize = 1024;
/// A part is stalled if it lacks segments, and its router has gained no segment for this long. An
/// agent retries a failing order after 10 s, so this leaves time for several attempts.
const STALLED_NS: u64 = 60 * NS_PER_S;
/// The router of a stalled part gets no new parts for this long.
const DISTRUST_NS: u64 = 600 * NS_PER_S;

impl Plans {
    /// Repairs plans of an earlier run: moves parts whose routers have not come back to others.
    pub(in crate::controller) fn repair_restored(&mut self, cx: &mut PlanContext<'_>) {
        self.recompute_involved(cx);
        let named = self.map.plans().flat_map(|active| {
            let parts = active.plan.parts.iter().map(|part| &part.router);
            parts.chain(active.plan.spread.iter().map(|share| &share.router))
        });
        let is_gone = |router: &&String| !cx.registry.is_heard(router);
        let gone: BTreeSet<String> = named.filter(is_gone).cloned().collect();
        self.repair(cx, &gone);
    }

    /// Replaces the parts of lost routers. Other parts stay where they are.
    pub(in crate::controller) fn repair(
        &mut self,
        cx: &mut PlanContext<'_>,
        lost: &BTreeSet<String>,
    ) {
        let is_hit = |active: &&ActivePlan| {
            let Plan { parts, spread, .. } = &active.plan;
            parts.iter().any(|part| lost.contains(&part.router))
                || spread.iter().any(|share| lost.contains(&share.router))
        };
        let hit: Vec<Name> =
            self.map.plans().filter(is_hit).map(|active| active.plan.object.clone()).collect();
        for object in hit {
            self.replan_without(cx, &object, |router, _| lost.contains(router));
        }
    }

    /// Replaces the plan of an object by one without the parts for which `is_gone` returns true.
    /// `is_gone` gets the router and the first segment of each part.
    fn replan_without(
        &mut self,
        cx: &mut PlanContext<'_>,
        object: &Name,
        is_gone: impl Fn(&str, u64) -> bool,
    ) {
        let Some(file) = self.map.objects.file(object).cloned() else { return };
        let Some(active) = self.map.plan(object) else { return };
        let Plan { mut parts, mut spread, mut consumers, .. } = active.plan.clone();
        consumers.retain(|consumer| cx.registry.is_heard(consumer));
        parts.retain(|part| !is_gone(&part.router, part.first));
        spread.retain(|share| !is_gone(&share.router, 0));
        if consumers.is_empty() || (parts.is_empty() && spread.is_empty()) {
            // Without a consumer or a part, nothing is left to plan. The next request makes a new
            // plan.
            return self.withdraw(cx, object);
        }
        // First put the remaining parts into force, so that their space counts as promised.
        self.make_plan(cx, &file, parts, spread, consumers);
        self.fill_holes(cx, &file);
    }

    /// Gives segments that are in no part of a plan to routers with space.
    fn fill_holes(&mut self, cx: &mut PlanContext<'_>, file: &File) {
        let object = &file.name;
        let Some(active) = self.map.plan(object).filter(|active| !active.plan.parts.is_empty())
        else {
            return;
        };
        let Plan { mut parts, spread, consumers, .. } = active.plan.clone();
        let Some(consumer) = cx.first_present(&consumers) else { return };
        let before = parts.len();
        for range in holes(&parts, file.segments) {
            // Parts of earlier holes are not in force yet, so their space must be subtracted here.
            let mut candidates = self.candidates(cx, &consumer, object, file);
            for candidate in &mut candidates {
                let new = parts[before..].iter().filter(|part| part.router == candidate.router);
                let segments: u64 = new.map(|part| part.last - part.first + 1).sum();
                let taken = segments * file.stored_bytes_per_segment();
                candidate.free_bytes = candidate.free_bytes.saturating_sub(taken);
            }
            parts.extend(assign_parts(cx.config.placement, file, range, candidates));
        }
        if parts.len() > before {
            parts.sort_by_key(|part| part.first);
            self.make_plan(cx, file, parts, spread, consumers);
        }
    }

    /// Re-examines a plan: uses new space, and spreads Interests over the present holders.
    pub(super) fn reexamine(&mut self, cx: &mut PlanContext<'_>, object: &Name) {
        if cx.registry.is_waiting() {
            return;
        }
        let Some(file) = self.map.objects.file(object).cloned() else { return };
        let Some(active) = self.map.plan(object) else { return };
        if !active.plan.parts.is_empty() {
            return self.fill_holes(cx, &file);
        }
        let mut consumers = active.plan.consumers.clone();
        let Some(consumer) = cx.first_present(&consumers) else { return };
        let (parts, spread) = self.choose(cx, &consumer, &file);
        let before = consumers.len();
        // A plan that spreads Interests over all paths serves only one consumer.
        if self.is_multipath(cx, &file, &parts, &spread) {
            consumers.retain(|other| *other == consumer);
        }
        let is_left_out = consumers.len() < before;
        // Weights alone are no reason for a new plan, so compare only routers.
        let routers = |spread: &[Share]| -> BTreeSet<String> {
            spread.iter().map(|share| share.router.clone()).collect()
        };
        if parts.is_empty() && spread.is_empty() {
            self.withdraw(cx, object);
        } else if is_left_out
            || !parts.is_empty()
            || routers(&spread) != routers(&active.plan.spread)
        {
            self.make_plan(cx, &file, parts, spread, consumers);
        }
    }

    /// Re-examines due plans and checks the progress of parts, a limited number in each tick.
    pub(in crate::controller) fn run_upkeep(&mut self, cx: &mut PlanContext<'_>) {
        if cx.registry.is_waiting() {
            return;
        }
        // First the plans whose holders have changed.
        for _ in 0..EXAMINED_MAX {
            let Some(object) = self.upkeep.next_due() else { break };
            self.reexamine(cx, &object);
        }
        // Then a step of the sweep over incomplete plans, if one runs.
        if self.upkeep.is_sweeping {
            let objects = self.map.incomplete_after(self.upkeep.sweep_at.as_ref(), EXAMINED_MAX);
            for object in &objects {
                self.reexamine(cx, object);
            }
            let has_more = objects.len() == EXAMINED_MAX;
            self.upkeep.sweep_at = objects.into_iter().next_back().filter(|_| has_more);
            if !has_more {
                self.upkeep.is_sweeping = core::mem::take(&mut self.upkeep.sweep_again);
            }
        }
        if cx.config.prefetch {
            self.check_progress(cx);
        }
    }

    /// Finds routers that do not fetch their parts, and gives these parts to other routers.
    fn check_progress(&mut self, cx: &mut PlanContext<'_>) {
        let now = cx.registry.now;
        // Routers may get parts again after their time of distrust.
        for router in cx.registry.network.routers.values_mut() {
            if router.distrusted_until.is_some_and(|until| until <= now) {
                router.distrusted_until = None;
                self.upkeep.note_more_room();
            }
        }
        let objects = self.map.planned_after(self.upkeep.check_at.as_ref(), CHECKED_MAX);
        let has_more = objects.len() == CHECKED_MAX;
        self.upkeep.check_at = objects.last().filter(|_| has_more).cloned();
        for object in objects {
            let lacking = self.stalled_parts(cx, &object);
            for (router, _, segments) in &lacking {
                let until = now.plus_ns(DISTRUST_NS);
                if let Some(record) = cx.registry.network.routers.get_mut(router)
                    && record.distrusted_until.replace(until).is_none()
                {
                    let (router, object, segments) = (router.clone(), object.clone(), *segments);
                    cx.registry.record(Event::PartNotKept { router, object, segments });
                }
            }
            if !lacking.is_empty() {
                self.replan_without(cx, &object, |router, first| {
                    lacking.iter().any(|(other, at, _)| other == router && *at == first)
                });
            }
        }
    }

    /// The stalled parts of an object: router, first segment, and number of lacking segments.
    /// Without a producer no part counts as stalled, because its segments cannot be fetched.
    fn stalled_parts(&mut self, cx: &PlanContext<'_>, object: &Name) -> Vec<(String, u64, u64)> {
        let (now, skips_first) = (cx.registry.now, !cx.config.prefetch_first);
        if cx.registry.network.producers_of(object).is_empty() {
            return Vec::new();
        }
        let DataMap { objects, plans, .. } = &mut self.map;
        let Some(active) = plans.get_mut(object) else { return Vec::new() };
        let mut lacking = Vec::new();
        let parts = active.plan.parts.iter().zip(&mut active.progress);
        // Without `prefetch_first`, consumers fetch the first part, so it is not checked.
        for (part, (held, since)) in parts.skip(usize::from(skips_first)) {
            let Some(router) = cx.registry.network.routers.get(&part.router) else { continue };
            let holds = objects.holdings_of(router.id, object).count_within(part.first, part.last);
            if holds > *held {
                *since = now;
            }
            *held = holds;
            let size = part.last - part.first + 1;
            let has_waited = |from: Instant| now.ns_since(from) > STALLED_NS;
            if holds < size && has_waited(*since) && has_waited(router.last_gain) {
                lacking.push((part.router.clone(), part.first, size - holds));
            }
        }
        lacking
    }
}

/// The segments of a file that are in none of its parts; the parts are in order.
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
