//! Routes from the controller, with message delay and loss, while the reported links change.

use std::collections::{BTreeMap, BTreeSet};

use weir_base::{FaceId, Rng};
use weir_control::message::{Configuration, RouterReport};
use weir_forward::NextHop;
use weir_plan::RoutesPlan;
use weir_wire::Name;

use super::message_queue::ControlMessage;
use super::setting::RouterSetting;
use crate::network::router::RouterNode;

/// Interval of the controller's timer, ns.
pub(super) const TICK_NS: u64 = 200_000_000;

/// Reported link delays, and the routes that routers have.
pub(super) struct Routing {
    plan: RoutesPlan,
    rng: Rng,
    reports: BTreeMap<u32, RouterReport>,
    /// Prefixes for which each router has routes from the controller.
    prefixes: BTreeMap<u32, BTreeSet<Name>>,
}

impl Routing {
    pub(super) fn new(plan: &RoutesPlan, seed: u64, reports: BTreeMap<u32, RouterReport>) -> Self {
        let rng = Rng::from_seed(seed);
        Self { plan: plan.clone(), rng, reports, prefixes: BTreeMap::new() }
    }

    /// A random time up to `max_ns`.
    fn up_to(&mut self, max_ns: u64) -> u64 {
        (self.rng.unit() * max_ns as f64) as u64
    }

    /// The first messages, each with its delay in ns.
    pub(super) fn first_messages(&mut self) -> Vec<(u64, ControlMessage)> {
        let nodes: Vec<u32> = self.reports.keys().copied().collect();
        let (report_ns, change_ns) = (self.plan.report_ns, self.plan.change_ns);
        let report = |node| (self.up_to(report_ns), ControlMessage::ReportDue { node });
        let mut first: Vec<(u64, ControlMessage)> = nodes.into_iter().map(report).collect();
        first.extend([(TICK_NS, ControlMessage::Tick), (change_ns, ControlMessage::Change)]);
        first
    }

    /// Delay of the next message, at least `least_ns`; `None` if it is lost.
    pub(super) fn delay_ns(&mut self, least_ns: u64) -> Option<u64> {
        let is_lost = self.rng.unit() < self.plan.loss;
        let spread_ns = self.up_to(self.plan.spread_ns);
        (!is_lost).then_some(least_ns + spread_ns)
    }

    /// Interval between two reports of a router, ns.
    pub(super) fn report_ns(&self) -> u64 {
        self.plan.report_ns
    }

    /// Interval between two changes of a reported link, ns.
    pub(super) fn change_ns(&self) -> u64 {
        self.plan.change_ns
    }

    pub(super) fn report_of(&self, node: u32) -> Option<RouterReport> {
        self.reports.get(&node).cloned()
    }

    /// Makes both ends of a random link report another round-trip time.
    pub(super) fn change_round_trip(&mut self, names: &[String], nodes: &BTreeMap<String, u32>) {
        let round_trip_ns = Some(1 + self.up_to(self.plan.round_trip_max_ns));
        let faces = self.reports.iter().flat_map(|(&node, report)| {
            report.faces.iter().map(move |face| (node, face.remote.clone()))
        });
        let all: Vec<(u32, String)> = faces.collect();
        let at = self.rng.below(all.len().max(1) as u32) as usize;
        let Some((node, other)) = all.get(at) else { return };
        let own = &names[*node as usize];
        for (of, to) in [(own, other), (other, own)] {
            let report = nodes.get(of).and_then(|node| self.reports.get_mut(node));
            let faces = report.into_iter().flat_map(|report| &mut report.faces);
            faces
                .filter(|face| face.remote == *to)
                .for_each(|face| face.round_trip_ns = round_trip_ns);
        }
    }

    /// The settings that install the routes of a configuration, unless the router has a newer one.
    /// The router's later reports name this configuration. Routes to its applications stay.
    pub(super) fn settings(
        &mut self,
        router: &RouterNode,
        configuration: &Configuration,
        face_of: impl Fn(&str) -> Option<FaceId>,
    ) -> Vec<RouterSetting> {
        let node = router.incarnation().node;
        let Some(report) = self.reports.get_mut(&node) else { return Vec::new() };
        if report.generation >= configuration.generation {
            return Vec::new();
        }
        report.generation = configuration.generation;
        let new: BTreeSet<Name> =
            configuration.routes.iter().map(|route| route.prefix.clone()).collect();
        let old = self.prefixes.insert(node, new.clone()).unwrap_or_default();
        let setting = |prefix: &Name| {
            let mut next_hops = router.next_hops_of(prefix).to_vec();
            let routes = configuration.routes.iter().filter(|route| route.prefix == *prefix);
            next_hops.extend(routes.filter_map(|route| {
                let (face, cost) = (face_of(&route.router)?, route.cost);
                Some(NextHop { face, cost })
            }));
            RouterSetting::NextHops(prefix.clone(), next_hops)
        };
        // A prefix that is no longer in the configuration gets only the own routes of the router
        // back.
        old.union(&new).map(setting).collect()
    }
}
