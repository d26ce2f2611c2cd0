//! Routers get their routes from the controller, late and with losses, while what they tell it
//! changes.

use std::collections::{BTreeMap, BTreeSet};

use weir_base::{FaceId, Instant, Rng};
use weir_control::message::{Configuration, RouterReport};
use weir_forward::{Command, DropReason, NextHop};
use weir_plan::RoutesPlan;
use weir_wire::Name;

use super::Message;
use crate::check::Broken;
use crate::network::{Network, NodeKind};

/// Between two looks of the controller at the clock, ns.
const TICK_NS: u64 = 200_000_000;

/// What changes, and what routers have.
pub(super) struct Routing {
    plan: RoutesPlan,
    rng: Rng,
    /// What each router would tell.
    reports: BTreeMap<u32, RouterReport>,
    /// The prefixes that it has routes of the controller for.
    prefixes: BTreeMap<u32, BTreeSet<Name>>,
}

impl Routing {
    pub(super) fn new(plan: &RoutesPlan, seed: u64, reports: BTreeMap<u32, RouterReport>) -> Self {
        let rng = Rng::from_seed(seed);
        Self { plan: plan.clone(), rng, reports, prefixes: BTreeMap::new() }
    }

    /// A random part of a time.
    fn up_to(&mut self, max_ns: u64) -> u64 {
        (self.rng.unit() * max_ns as f64) as u64
    }
}

impl Network {
    /// Routers begin to tell of themselves, and the controller to look at the clock.
    pub(in crate::network) fn begin_routing(&mut self) {
        let Some(control) = &mut self.control else { return };
        let Some(routing) = &mut control.routing else { return };
        let nodes: Vec<u32> = routing.reports.keys().copied().collect();
        let (report_ns, change_ns) = (routing.plan.report_ns, routing.plan.change_ns);
        let mut first: Vec<(u64, Message)> = nodes
            .into_iter()
            .map(|node| (routing.up_to(report_ns), Message::Due { node }))
            .collect();
        first.extend([(TICK_NS, Message::Tick), (change_ns, Message::Change)]);
        for (after_ns, message) in first {
            self.control_message(after_ns, message);
        }
    }

    /// How long the next message takes; none if it is lost.
    pub(super) fn control_delay_ns(&mut self) -> Option<u64> {
        let control = self.control.as_mut()?;
        let Some(routing) = &mut control.routing else { return Some(control.delay_ns) };
        let is_lost = routing.rng.unit() < routing.plan.loss;
        let spread_ns = routing.up_to(routing.plan.spread_ns);
        (!is_lost).then_some(control.delay_ns + spread_ns)
    }

    /// The same message comes again after a time, until consumers stop.
    pub(super) fn control_again(&mut self, after_ns: u64, message: Message) {
        let end_ns = self.control.as_ref().map_or(0, |control| control.duration_ns);
        if self.now_ns + after_ns < end_ns {
            self.control_message(after_ns, message);
        }
    }

    pub(super) fn send_report(&mut self, node: u32) {
        let Some(control) = &mut self.control else { return };
        let Some(routing) = &mut control.routing else { return };
        let report_ns = routing.plan.report_ns;
        if let Some(report) = routing.reports.get(&node).cloned()
            && let Some(delay_ns) = self.control_delay_ns()
        {
            self.control_message(delay_ns, Message::Report { node, report: Box::new(report) });
        }
        self.control_again(report_ns, Message::Due { node });
    }

    /// What a router told has arrived. If it lacks its configuration, that got lost, or is on its
    /// way.
    pub(super) fn take_report(&mut self, node: u32, report: RouterReport) {
        let now = Instant::from_ns(self.now_ns);
        let Some(control) = &mut self.control else { return };
        let name = &self.names[node as usize];
        let has = report.generation;
        if control.controller.report(now, name, report).is_err() {
            return;
        }
        if control.told.get(&node).is_some_and(|told| told.generation > has) {
            control.told.remove(&node);
            control.told_all = 0;
        }
        self.tell_all();
    }

    pub(super) fn tick_controller(&mut self) {
        let now = Instant::from_ns(self.now_ns);
        let Some(control) = &mut self.control else { return };
        control.controller.tick(now);
        let is_agents = control.agents.is_some();
        self.tell_all();
        match is_agents {
            true => self.tick_again(),
            false => self.control_again(TICK_NS, Message::Tick),
        }
    }

    /// Both ends of some link tell of another round-trip time.
    pub(super) fn change_round_trip(&mut self) {
        let Some(control) = &mut self.control else { return };
        let Some(routing) = &mut control.routing else { return };
        let change_ns = routing.plan.change_ns;
        let round_trip_ns = Some(1 + routing.up_to(routing.plan.round_trip_max_ns));
        let all: Vec<(u32, usize)> = routing
            .reports
            .iter()
            .flat_map(|(node, report)| (0..report.faces.len()).map(|face| (*node, face)))
            .collect();
        let at = routing.rng.below(all.len().max(1) as u32) as usize;
        if let Some(&(node, face)) = all.get(at) {
            let other = routing.reports[&node].faces[face].remote.clone();
            let own = self.names[node as usize].clone();
            for (of, to) in [(&own, &other), (&other, &own)] {
                let report = control.nodes.get(of).and_then(|node| routing.reports.get_mut(node));
                let faces = report.into_iter().flat_map(|report| &mut report.faces);
                faces
                    .filter(|face| face.remote == *to)
                    .for_each(|face| face.round_trip_ns = round_trip_ns);
            }
        }
        self.control_again(change_ns, Message::Change);
    }

    /// A router gets the routes of a configuration, unless it has a newer one, and says so from now
    /// on. Those to its applications stay.
    pub(super) fn set_routes(
        &mut self,
        node: u32,
        configuration: &Configuration,
    ) -> Result<(), Broken> {
        let faces: BTreeMap<String, FaceId> = self
            .faces_to_routers(node)
            .into_iter()
            .map(|(name, face)| (name.to_owned(), face))
            .collect();
        let Some(control) = &mut self.control else { return Ok(()) };
        let Some(routing) = &mut control.routing else { return Ok(()) };
        let Some(report) = routing.reports.get_mut(&node) else { return Ok(()) };
        if report.generation >= configuration.generation {
            return Ok(());
        }
        report.generation = configuration.generation;
        let new: BTreeSet<Name> =
            configuration.routes.iter().map(|route| route.prefix.clone()).collect();
        let old = routing.prefixes.insert(node, new.clone()).unwrap_or_default();
        let NodeKind::Router(router) = &self.nodes[node as usize].kind else { return Ok(()) };
        let shards = router.shards.len();
        let mut commands = Vec::new();
        for prefix in old.union(&new) {
            let mut next_hops = router.next_hops_below(prefix.value()).to_vec();
            let routes = configuration.routes.iter().filter(|route| route.prefix == *prefix);
            next_hops.extend(routes.filter_map(|route| {
                let (face, cost) = (*faces.get(&route.router)?, route.cost);
                Some(NextHop { face, cost })
            }));
            commands.push((prefix.clone(), next_hops));
        }
        for shard in 0..shards {
            for (prefix, next_hops) in commands.clone() {
                self.command(node, shard, Command::SetNextHops { prefix, next_hops })?;
            }
        }
        Ok(())
    }

    /// Interests that came to a router with a nonce that was there before, at all routers.
    pub(in crate::network) fn interests_looped(&self) -> u64 {
        let routers = self.nodes.iter().filter_map(|node| match &node.kind {
            NodeKind::Router(router) => Some(router),
            NodeKind::App(_) => None,
        });
        let shards = routers.flat_map(|router| &router.shards);
        shards.map(|shard| shard.stats().drops[DropReason::Loop as usize]).sum()
    }
}
