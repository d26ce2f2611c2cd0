//! Files, the holdings of routers, and the plans for files.

mod activation;
mod displacement;
mod repair;
mod selection;

use alloc::borrow::ToOwned;
use alloc::collections::{BTreeSet, VecDeque};
use alloc::string::String;
use alloc::vec;

use weir_wire::Name;

pub(super) use self::selection::promisable_bytes;
use super::config::ControllerConfig;
use super::registry::Registry;
use crate::data_map::DataMap;
use crate::demand::Demand;
use crate::file::File;
use crate::graph::Graph;
use crate::limits::LimitKind;
use crate::message::{Change, Decision};
use crate::objects::{Applied, Limits, RouterId};
use crate::plan::{Plan, segment_count};

/// Maximum number of parts examined in a search for space.
const PARTS_EXAMINED_MAX: usize = 64;
/// An object may displace another one if its demand is at least this many times higher. With a
/// lower factor two objects would displace each other again and again.
const DEMAND_FACTOR: u64 = 2;

/// What plans are made from, and the registry that they change.
pub(super) struct PlanContext<'a> {
    pub(super) registry: &'a mut Registry,
    pub(super) graph: &'a Graph,
    pub(super) config: &'a ControllerConfig,
}

impl PlanContext<'_> {
    /// The first consumer of a plan that is present.
    fn first_present(&self, consumers: &[String]) -> Option<String> {
        let is_there = |consumer: &&String| self.registry.network.routers.contains_key(*consumer);
        consumers.iter().find(is_there).cloned()
    }
}

/// Files, holdings, plans, and which plans must be re-examined.
///
/// The files of this module form layers. `selection` only reads. `activation` replaces one plan.
/// `displacement` and `repair` replace plans until a goal is reached. This file answers routers.
#[derive(Default)]
pub(super) struct Plans {
    pub(super) map: DataMap,
    pub(super) demand: Demand,
    upkeep: PlanUpkeep,
}

/// Which plans must be re-examined.
#[derive(Default)]
struct PlanUpkeep {
    /// Objects whose holders have changed, in order.
    due: VecDeque<Name>,
    is_due: BTreeSet<Name>,
    /// State of the sweep over incomplete plans: the last object of the previous tick, whether the
    /// sweep runs, and whether it must run again afterwards.
    sweep_at: Option<Name>,
    is_sweeping: bool,
    sweep_again: bool,
    /// The last object whose progress was checked.
    check_at: Option<Name>,
}

impl PlanUpkeep {
    /// Starts a sweep over incomplete plans: they may improve, because a store has more space or
    /// paths have changed. If a sweep runs already, another one follows it.
    fn note_more_room(&mut self) {
        self.sweep_again |= self.is_sweeping;
        self.is_sweeping = true;
    }

    /// Makes the plan of an object due, because its holders have changed.
    fn holders_changed(&mut self, object: &Name) {
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

impl Plans {
    /// A store has more space, or paths have changed, so incomplete plans may improve.
    pub(super) fn note_more_room(&mut self) {
        self.upkeep.note_more_room();
    }

    /// Applies a change that a router reports about its holdings.
    pub(super) fn apply(&mut self, id: RouterId, limits: &Limits, change: Change) -> Applied {
        // A plan without parts depends on the present holders.
        if self.map.plan(&change.object).is_some_and(|active| active.plan.parts.is_empty()) {
            self.upkeep.holders_changed(&change.object);
        }
        self.map.objects.apply(id, limits, change)
    }

    /// Forgets the holdings of a router.
    pub(super) fn forget_holdings(&mut self, id: RouterId) {
        let Self { map: DataMap { objects, plans, .. }, upkeep, .. } = self;
        objects.forget(id, |object| {
            if plans.get(object).is_some_and(|active| active.plan.parts.is_empty()) {
                upkeep.holders_changed(object);
            }
        });
    }

    /// Decides about a file that a router requests and that is larger than its store. Makes a plan
    /// if none exists.
    pub(super) fn plan_for(
        &mut self,
        cx: &mut PlanContext<'_>,
        name: &str,
        object: &Name,
    ) -> Decision {
        let Some(file) = self.map.objects.file(object).cloned() else { return Decision::Unknown };
        if self.map.plan(object).is_some() {
            if cx.registry.is_waiting() {
                return Decision::Planned;
            }
            self.extend_for_demand(cx, object);
            return self.add_consumer(cx, name, &file);
        }
        if cx.registry.is_waiting() {
            // Routers that hold the file, or could keep parts of it, may not have reported yet.
            return Decision::NoRoom;
        }
        if !self.take_plan_credit(cx, name) {
            return Decision::NoRoom;
        }
        // First with the free space. If that is not enough, displace objects with less demand and
        // choose again.
        let (mut parts, mut spread) = self.choose(cx, name, &file);
        let moved =
            self.displace_less_demanded(cx, name, &file, file.segments - segment_count(&parts));
        if !moved.is_empty() {
            (parts, spread) = self.choose(cx, name, &file);
        }
        let decision = if parts.is_empty() && spread.is_empty() {
            Decision::NoRoom
        } else {
            self.make_plan(cx, &file, parts, spread, vec![name.to_owned()]);
            Decision::Planned
        };
        // The displaced objects may find space elsewhere.
        for object in &moved {
            self.reexamine(cx, object);
        }
        decision
    }

    /// Makes a router that requests a file a consumer of the plan for this file.
    fn add_consumer(&mut self, cx: &mut PlanContext<'_>, name: &str, file: &File) -> Decision {
        let Some(active) = self.map.plan(&file.name) else { return Decision::NoRoom };
        let Plan { parts, spread, consumers, .. } = active.plan.clone();
        if consumers.iter().any(|consumer| consumer == name) {
            return Decision::Planned;
        }
        if self.is_multipath(cx, file, &parts, &spread) || !self.take_plan_credit(cx, name) {
            return Decision::NoRoom;
        }
        let consumers = consumers.into_iter().chain([name.to_owned()]);
        self.make_plan(cx, file, parts, spread, consumers.collect());
        Decision::Planned
    }

    /// Whether a request of a router may make a new plan now. If so, it uses one of the router's
    /// credits.
    fn take_plan_credit(&mut self, cx: &mut PlanContext<'_>, name: &str) -> bool {
        let Some(router) = cx.registry.network.routers.get_mut(name) else { return false };
        let is_left = router.plan_credits > 0;
        router.plan_credits = router.plan_credits.saturating_sub(1);
        if !is_left {
            cx.registry.note_limit_exceeded(name, LimitKind::Plans, 1);
        }
        is_left
    }

    /// Extends the plan of an object that is requested again. If some segments are in no part, they
    /// may displace objects with less demand.
    fn extend_for_demand(&mut self, cx: &mut PlanContext<'_>, object: &Name) {
        let Some(file) = self.map.objects.file(object).cloned() else { return };
        let Some(active) = self.map.plan(object) else { return };
        let kept = segment_count(&active.plan.parts);
        let Some(consumer) = cx.first_present(&active.plan.consumers) else { return };
        let moved = self.displace_less_demanded(cx, &consumer, &file, file.segments - kept);
        if !moved.is_empty() {
            self.reexamine(cx, object);
            for object in &moved {
                self.reexamine(cx, object);
            }
        }
    }
}
