//! Who keeps which part of a file, and who is asked for it (paper multipath-cache-management,
//! Algorithms 3 and 4).

use alloc::borrow::ToOwned;
use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use weir_wire::Name;

use super::{Controller, Event};
use crate::bounds::Bound;
use crate::data_map::ActivePlan;
use crate::file::File;
use crate::message::Decision;
use crate::network::{Network, Router};
use crate::placement::{Candidate, Placement, place};
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
        if let Some(active) = self.map.plan(object) {
            let Plan { parts, spread, consumers, .. } = active.plan.clone();
            if !self.is_waiting() && !consumers.iter().any(|consumer| consumer == name) {
                if !self.may_plan(name) {
                    return Decision::NoRoom;
                }
                let consumers = consumers.into_iter().chain([name.to_owned()]);
                self.make_plan(&file, parts, spread, consumers.collect());
            }
            return Decision::Planned;
        }
        if self.is_waiting() {
            // Those who hold or could keep it may not have reported yet.
            return Decision::NoRoom;
        }
        if !self.may_plan(name) {
            return Decision::NoRoom;
        }
        let (parts, spread) = self.arrange(name, &file);
        if parts.is_empty() && spread.is_empty() {
            return Decision::NoRoom;
        }
        self.make_plan(&file, parts, spread, vec![name.to_owned()]);
        Decision::Planned
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
        let all = self.map.objects.holders(object);
        let all = all.iter().filter(|(_, held)| holds_all(held, file));
        let holders = self.spread(consumer, all.map(|(id, _)| self.network.name_of(*id)));
        if !holders.is_empty() {
            return (Vec::new(), holders);
        }
        let range = (0, file.segments - 1);
        let candidates = self.candidates(consumer, object, file);
        let parts = place(self.config.placement, file, range, candidates);
        if !parts.is_empty() {
            return (parts, Vec::new());
        }
        let leading = self.leading(consumer, object);
        let ways = self.spread(consumer, leading.into_iter());
        (Vec::new(), if ways.len() < 2 { Vec::new() } else { ways })
    }

    /// Routers that a consumer's router may ask for any segment of a file, the nearest first (paper
    /// multipath-cache-management, Algorithm 3).
    fn spread<'a>(&self, consumer: &str, routers: impl Iterator<Item = &'a str>) -> Vec<Share> {
        let to_consumer = Network::paths(&self.links, consumer);
        let others = routers.filter(|name| *name != consumer);
        let mut chosen: Vec<(u64, &str)> =
            others.filter_map(|name| Some((to_consumer.distance(name)?, name))).collect();
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
    fn leading(&self, consumer: &str, object: &Name) -> BTreeSet<&str> {
        let producers = self.network.producers_of(object);
        let Some(producer) = producers.first() else { return BTreeSet::new() };
        let paths = Network::paths(&self.links, producer);
        let neighbours = self.links.iter().filter(|link| link.from == consumer);
        let leads = |name: &str| {
            paths.distance(name).is_some() && paths.path(name).all(|router| router != consumer)
        };
        neighbours.map(|link| link.to.as_str()).filter(|name| leads(name)).collect()
    }

    /// Routers that may keep a part of an object that `consumer` reads: those that have room and a
    /// path to the producer that does not lead back to the consumer.
    pub(super) fn candidates(&self, consumer: &str, object: &Name, file: &File) -> Vec<Candidate> {
        let producers = self.network.producers_of(object);
        let Some(producer) = producers.first() else { return Vec::new() };
        let to_producer = Network::paths(&self.links, producer);
        let to_consumer = Network::paths(&self.links, consumer);
        let farthest = match self.config.placement {
            Placement::LargestFree => None,
            Placement::Nearest => to_consumer.distance(producer),
        };
        let candidate = |(name, router): (&String, &Router)| {
            let promised = self.map.promised_bytes(name);
            let free_bytes = promisable(router).saturating_sub(promised);
            let is_reached = to_producer.distance(name).is_some();
            let comes_back = to_producer.path(name).any(|router| router == consumer);
            let distance = to_consumer.distance(name)?;
            let is_near = farthest.is_none_or(|farthest| distance < farthest);
            let fits = free_bytes >= file.stored_bytes_each();
            let is_trusted = router.distrusted_until.is_none();
            let is_one = fits && is_trusted && is_near && is_reached && !comes_back;
            is_one.then(|| Candidate { router: name.clone(), free_bytes, distance })
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
        self.generation += 1;
        let object = file.name.clone();
        let parent = self.map.plan(&object).map_or(0, |active| active.plan.number);
        let plan = Plan { number: self.generation, parent, object, consumers, parts, spread };
        self.events.push(Event::Planned(plan.clone()));
        let concerned = self.concerned(&plan);
        let bytes_each = file.stored_bytes_each();
        let touched = concerned.clone();
        let mut active = ActivePlan::new(plan, bytes_each, concerned, self.now);
        if let Some(former) = self.map.plan(&active.plan.object) {
            active.take_progress(former);
        }
        let former = self.map.insert_plan(active);
        let former = former.map(|former| former.concerned).unwrap_or_default();
        for router in touched.union(&former) {
            self.touch(router);
        }
    }

    /// Routers that Data of a plan passes through: from the producer to those that keep it, and
    /// from there to the consumers. Those that keep nothing are told to refuse it.
    pub(super) fn concerned(&self, plan: &Plan) -> BTreeSet<String> {
        let producers = self.network.producers_of(&plan.object);
        let to_producer = producers.first().map(|producer| Network::paths(&self.links, producer));
        let mut concerned: BTreeSet<String> = plan.consumers.iter().cloned().collect();
        for part in &plan.parts {
            concerned.insert(part.router.clone());
            let up = to_producer.iter().flat_map(|paths| paths.path(&part.router));
            concerned.extend(up.map(str::to_owned));
            let to_keeper = Network::paths(&self.links, &part.router);
            for consumer in &plan.consumers {
                concerned.extend(to_keeper.path(consumer).map(str::to_owned));
            }
        }
        concerned
    }

    pub(super) fn withdraw(&mut self, object: &Name) {
        if let Some(active) = self.map.remove_plan(object) {
            self.upkeep.room_came();
            self.generation += 1;
            let (number, parent) = (self.generation, active.plan.number);
            let (consumers, parts, spread) = (Vec::new(), Vec::new(), Vec::new());
            let plan = Plan { number, parent, object: object.clone(), consumers, parts, spread };
            self.events.push(Event::Planned(plan));
            for router in &active.concerned {
                self.touch(router);
            }
        }
    }
}

/// Whether it is all of a file.
fn holds_all(held: &Segments, file: &File) -> bool {
    held.count_within(0, file.segments - 1) == file.segments
}

/// Octets of a store that plans may have.
pub(super) fn promisable(router: &Router) -> u64 {
    router.report.store_bytes / PROMISED_SHARE.1 * PROMISED_SHARE.0
}
