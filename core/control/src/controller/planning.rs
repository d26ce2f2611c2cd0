//! Who keeps which part of a file, and who is asked for it (paper multipath-cache-management,
//! Algorithms 3 and 4).

use alloc::borrow::ToOwned;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use weir_wire::Name;

use super::configuration::RULES_MAX;
use super::{Controller, Event};
use crate::bounds::Bound;
use crate::data_map::ActivePlan;
use crate::file::File;
use crate::graph::Paths;
use crate::message::Decision;
use crate::network::Router;
use crate::objects::RouterId;
use crate::placement::{AS_NEAR_NS, Candidate, Placement, place};
use crate::plan::{Part, Plan, Share};
use crate::segments::Segments;

/// Of a store this share may be promised; the rest goes on as without a controller.
const PROMISED_SHARE: (u64, u64) = (7, 8);
/// Routers that the segments of a file are spread over at most, and their weights.
const SPREAD_MAX: usize = 32;
const WEIGHT_MAX: u64 = 1000;

impl Controller {
    pub(super) fn plan_for(&mut self, name: &str, object: &Name) -> Decision {
        let Some(file) = self.map.objects.file(object).cloned() else { return Decision::Unknown };
        if self.map.plan(object).is_some() {
            if self.is_waiting() {
                return Decision::Planned;
            }
            self.grow(object);
            return self.join_plan(name, &file);
        }
        if self.is_waiting() {
            // Those who hold or could keep it may not have reported yet.
            return Decision::NoRoom;
        }
        if !self.may_plan(name) {
            return Decision::NoRoom;
        }
        let (mut parts, mut spread) = self.arrange(name, &file);
        let moved = self.room_for_new(name, &file, &parts);
        if !moved.is_empty() {
            (parts, spread) = self.arrange(name, &file);
        }
        let decision = match parts.is_empty() && spread.is_empty() {
            true => Decision::NoRoom,
            false => {
                self.make_plan(&file, parts, spread, vec![name.to_owned()]);
                Decision::Planned
            }
        };
        moved.iter().for_each(|object| self.examine(object));
        decision
    }

    /// A router asks for a file that has a plan: it is told of it, too.
    fn join_plan(&mut self, name: &str, file: &File) -> Decision {
        let Some(active) = self.map.plan(&file.name) else { return Decision::NoRoom };
        let Plan { parts, spread, consumers, .. } = active.plan.clone();
        if consumers.iter().any(|consumer| consumer == name) {
            return Decision::Planned;
        }
        if self.are_ways(file, &parts, &spread) || !self.may_plan(name) {
            return Decision::NoRoom;
        }
        let consumers = consumers.into_iter().chain([name.to_owned()]);
        self.make_plan(file, parts, spread, consumers.collect());
        Decision::Planned
    }

    /// Whether a plan is one over all ways. These are those of one router: from another they may
    /// lead back.
    pub(super) fn are_ways(&self, file: &File, parts: &[Part], spread: &[Share]) -> bool {
        let objects = &self.map.objects;
        let holds = |share: &Share| {
            let id = self.network.id_of(&share.router);
            id.is_some_and(|id| holds_all(&objects.held_of(id, &file.name), file))
        };
        parts.is_empty() && !spread.iter().all(holds)
    }

    /// Whether a router may ask for another plan now. One that asks for too many waits.
    fn may_plan(&mut self, name: &str) -> bool {
        let Some(router) = self.network.routers.get_mut(name) else { return false };
        let is_left = router.plans_left > 0;
        router.plans_left = router.plans_left.saturating_sub(1);
        if !is_left {
            self.does_not_count(name, Bound::Plans, 1);
        }
        is_left
    }

    /// How a file is to be had by a consumer's router: from those that hold it, else from those
    /// that are to keep parts of it, else over all ways.
    pub(super) fn arrange(&self, consumer: &str, file: &File) -> (Vec<Part>, Vec<Share>) {
        let object = &file.name;
        let Some(id) = self.network.id_of(consumer) else { return (Vec::new(), Vec::new()) };
        let all = self.map.objects.holders(object);
        let all = all.iter().filter(|(_, held)| holds_all(held, file));
        let holders = self.spread(id, all.map(|(holder, _)| *holder));
        if !holders.is_empty() {
            return (Vec::new(), holders);
        }
        let range = (0, file.segments - 1);
        let candidates = self.candidates(consumer, object, file);
        let parts = place(self.config.placement, file, range, candidates);
        if !parts.is_empty() {
            return (parts, Vec::new());
        }
        let ways = self.spread(id, self.leading(id, object).into_iter());
        (Vec::new(), if ways.len() < 2 { Vec::new() } else { ways })
    }

    /// Routers that a consumer's router may ask for any segment of a file, the nearest first (paper
    /// multipath-cache-management, Algorithm 3).
    fn spread(&self, consumer: RouterId, routers: impl Iterator<Item = RouterId>) -> Vec<Share> {
        let to_consumer = self.routing.graph.paths(&[consumer]);
        let others = routers.filter(|router| *router != consumer);
        let mut chosen: Vec<(u64, &str)> = others
            .filter_map(|id| Some((to_consumer.distance(id)?, self.network.name_of(id))))
            .collect();
        chosen.sort_unstable();
        let ratio = &self.config.ratio;
        let weight = |place: usize| ratio.get(place).or(ratio.last()).copied().unwrap_or(1);
        let share = |(place, (_, name)): (usize, (u64, &str))| Share {
            router: name.to_owned(),
            weight: weight(place).clamp(1, WEIGHT_MAX),
        };
        chosen.into_iter().enumerate().map(share).take(SPREAD_MAX).collect()
    }

    /// The neighbours of a consumer's router from which a path leads to the producer that does not
    /// come back.
    fn leading(&self, consumer: RouterId, object: &Name) -> Vec<RouterId> {
        let graph = &self.routing.graph;
        let paths = graph.paths(&self.network.producers_of(object));
        let back = self.coming_back(&paths, consumer);
        let neighbours = graph.neighbours(consumer).iter().map(|(neighbour, _)| *neighbour);
        neighbours.filter(|id| paths.distance(*id).is_some() && !back.contains(id)).collect()
    }

    /// Routers from which a way to the producers may lead over another one.
    fn coming_back(&self, paths: &Paths, over: RouterId) -> BTreeSet<RouterId> {
        let graph = &self.routing.graph;
        let mut back = BTreeSet::from([over]);
        let Some(least) = paths.distance(over) else { return back };
        // Nobody nearer asks it.
        let farther = |id: &&RouterId| paths.distance(**id).is_some_and(|far| far > least);
        for &id in paths.order().iter().filter(farther) {
            if graph.nearer(paths, id).iter().any(|(next, _)| back.contains(next)) {
                back.insert(id);
            }
        }
        back
    }

    /// Routers that may keep a part of an object that `consumer` reads and have room for it.
    pub(super) fn candidates(&self, consumer: &str, object: &Name, file: &File) -> Vec<Candidate> {
        let promised = |name: &str| self.map.promised_bytes(name);
        self.keepers(consumer, object, file, promised)
    }

    /// Octets of a router's store that are promised to nobody.
    pub(super) fn free_bytes(&self, name: &str) -> u64 {
        let promisable = self.network.routers.get(name).map_or(0, promisable);
        promisable.saturating_sub(self.map.promised_bytes(name))
    }

    /// Routers that may keep a part of an object that `consumer` reads: those that have room beside
    /// what is promised, and a path to the producer. It may lead over the consumer, which asks
    /// others for what a keeper asks it for (strategy `multipath`).
    pub(super) fn keepers(
        &self,
        consumer: &str,
        object: &Name,
        file: &File,
        promised: impl Fn(&str) -> u64,
    ) -> Vec<Candidate> {
        let Some(consumer) = self.network.id_of(consumer) else { return Vec::new() };
        let producers = self.network.producers_of(object);
        let to_producer = self.routing.graph.paths(&producers);
        let to_consumer = self.routing.graph.paths(&[consumer]);
        // How far a router is, and that with how long a block takes from there.
        let crowding = self.network.crowding();
        let far = |router: RouterId| {
            let distance = to_consumer.distance(router)?;
            let took_ns = slowest_ns(&crowding, &to_consumer, router);
            Some((distance, distance.saturating_add(took_ns)))
        };
        let farthest = match self.config.placement {
            Placement::LargestFree => None,
            Placement::Nearest | Placement::ByDemand => {
                let far = producers.iter().filter_map(|producer| far(*producer));
                far.reduce(|one, other| (one.0.min(other.0), one.1.min(other.1)))
            }
        };
        let candidate = |(name, router): (&String, &Router)| {
            // Room for the manifest at each: which of them keeps it is not known yet.
            let taken = promised(name) + file.manifest_bytes();
            let free_bytes = promisable(router).saturating_sub(taken);
            let is_reached = to_producer.distance(router.id).is_some();
            let (distance, with_block) = far(router.id)?;
            let is_near = farthest.is_none_or(|farthest| {
                distance < farthest.0 + AS_NEAR_NS
                    && with_block < farthest.1.saturating_add(AS_NEAR_NS)
            });
            let fits = free_bytes >= file.stored_bytes_each();
            let is_trusted = router.distrusted_until.is_none();
            let fits = fits && self.map.rules_of(name).kept < RULES_MAX;
            let is_one = fits && is_trusted && is_near && is_reached;
            is_one.then(|| Candidate { router: name.clone(), free_bytes, distance: with_block })
        };
        self.network.routers.iter().filter_map(candidate).collect()
    }

    pub(super) fn make_plan(
        &mut self,
        file: &File,
        parts: Vec<Part>,
        spread: Vec<Share>,
        consumers: Vec<String>,
    ) {
        let number = self.count();
        let object = file.name.clone();
        let parent = self.map.plan(&object).map_or(0, |active| active.plan.number);
        let plan = Plan { number, parent, object, consumers, parts, spread };
        self.events.push(Event::Planned(plan.clone()));
        self.put_in_force(file, plan);
    }

    /// A plan takes the place of the one before.
    pub(super) fn put_in_force(&mut self, file: &File, plan: Plan) {
        let concerned = self.concerned(&plan);
        let touched = concerned.clone();
        let mut active = ActivePlan::new(plan, file, concerned, self.now);
        if let Some(former) = self.map.plan(&active.plan.object) {
            active.take_progress(former);
        }
        let former = self.map.insert_plan(active);
        for router in &touched {
            let surplus = self.map.rules_of(router).all.saturating_sub(RULES_MAX);
            if surplus > 0 {
                self.does_not_count(router, Bound::Rules, 1);
            }
        }
        let former = former.map(|former| former.concerned).unwrap_or_default();
        for router in touched.union(&former) {
            self.touch(router);
        }
    }

    /// Routers that Data of a plan passes through: from the producer to those that keep it, and
    /// from there to the consumers. Those that keep nothing are told to refuse it.
    pub(super) fn concerned(&self, plan: &Plan) -> BTreeSet<String> {
        let mut concerned: BTreeSet<String> = plan.consumers.iter().cloned().collect();
        let keepers = plan.parts.iter().map(|part| &part.router);
        let keepers: BTreeSet<&String> = keepers.collect();
        concerned.extend(keepers.iter().map(|keeper| (*keeper).clone()));
        if keepers.is_empty() {
            return concerned;
        }
        let keepers: Vec<RouterId> =
            keepers.into_iter().filter_map(|keeper| self.network.id_of(keeper)).collect();
        let graph = &self.routing.graph;
        let mut between = BTreeSet::new();
        let mut follow = |paths: &Paths| {
            for keeper in &keepers {
                between.extend(paths.path(*keeper));
            }
        };
        follow(&graph.paths(&self.network.producers_of(&plan.object)));
        for consumer in plan.consumers.iter().filter_map(|name| self.network.id_of(name)) {
            follow(&graph.paths(&[consumer]));
        }
        concerned.extend(between.into_iter().map(|id| self.network.name_of(id).to_owned()));
        concerned
    }

    pub(super) fn withdraw(&mut self, object: &Name) {
        let Some(parent) = self.map.plan(object).map(|active| active.plan.number) else { return };
        let number = self.count();
        let (consumers, parts, spread) = (Vec::new(), Vec::new(), Vec::new());
        let plan = Plan { number, parent, object: object.clone(), consumers, parts, spread };
        self.events.push(Event::Planned(plan));
        self.end_plan(object);
    }

    /// There is no plan for an object any more.
    pub(super) fn end_plan(&mut self, object: &Name) {
        if let Some(active) = self.map.remove_plan(object) {
            self.upkeep.room_came();
            for router in &active.concerned {
                self.touch(router);
            }
        }
    }
}

/// How long a block takes over the slowest of the links on a router's path, by what their loads
/// leave; 0 where nobody knows the rate of one.
fn slowest_ns(
    crowding: &BTreeMap<(RouterId, RouterId), u64>,
    paths: &Paths,
    router: RouterId,
) -> u64 {
    let mut at = router;
    let links = paths.path(router).map(|next| {
        let from = core::mem::replace(&mut at, next);
        crowding.get(&(from.min(next), from.max(next))).copied().unwrap_or(0)
    });
    links.max().unwrap_or(0)
}

/// Whether it is all of a file.
pub(super) fn holds_all(held: &Segments, file: &File) -> bool {
    held.count_within(0, file.segments - 1) == file.segments
}

/// Octets of a store that plans may have.
pub(super) fn promisable(router: &Router) -> u64 {
    router.report.store_bytes / PROMISED_SHARE.1 * PROMISED_SHARE.0
}
