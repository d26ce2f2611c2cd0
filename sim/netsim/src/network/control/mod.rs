//! The controller of a plan. Routers query it and apply its configurations, after the delay of each
//! message.

mod agents;
mod message_queue;
mod prefetch;
mod routes;
mod setting;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use weir_base::{FaceId, Instant};
use weir_control::message::{
    Change, Configuration, Distribution, FaceReport, RouterReport, Update, UpdateNumber,
};
use weir_control::{Controller, ControllerConfig};
use weir_forward::NextHop;
use weir_forward::strategy::{Strategy, StrategyError};
use weir_wire::Name;

use self::agents::Agents;
use self::message_queue::{ControlMessage, MessageQueue};
use self::prefetch::Prefetchers;
use self::routes::Routing;
use self::setting::RouterSetting;
use super::router::RouterNode;
use super::timeline::Timeline;
use weir_plan::app::App;
use weir_plan::{ControllerPlan, Plan, PlanError, Role};
use weir_transport::Controllers;

/// Cost of a next hop for a range. It exceeds the cost of any route, so a segment outside all
/// ranges takes a route.
const RANGE_ROUTE_COST: u64 = u64::MAX;

/// A router's faces to other routers, by the other router's node.
pub(super) type NeighbourFaces = BTreeMap<u32, FaceId>;

/// The controller and the messages from and to it.
pub(super) struct ControlPlane {
    controller: Controller,
    names: Arc<[String]>,
    /// Node numbers of routers, by name.
    nodes: BTreeMap<String, u32>,
    mail: MessageQueue,
    /// Present only if routers receive their routes from the controller.
    routing: Option<Routing>,
    /// Present only if routers have agents.
    agents: Option<Agents>,
    /// Objects that each router has already queried; used without agents.
    queried_objects: BTreeSet<(u32, Name)>,
    /// The last configuration sent to each router.
    sent: BTreeMap<u32, Configuration>,
    /// The controller's generation when all routers were last sent their configurations.
    sent_generation: u64,
    /// The objects that each router requests from several routers, and how.
    distributed: BTreeMap<u32, BTreeMap<Name, Distribution>>,
    prefetchers: Prefetchers,
}

impl ControlPlane {
    /// The controller of a plan. It knows the routers, their links and the producers' files.
    pub(super) fn new(
        plan: &Plan,
        of: &ControllerPlan,
        controllers: Controllers,
        names: Arc<[String]>,
    ) -> Result<Self, PlanError> {
        let config = ControllerConfig {
            // Routers of a simulation report rarely, so the controller must not declare one down.
            router_timeout_ns: u64::MAX,
            placement: of.placement,
            prefetch: of.prefetch,
            prefetch_first: of.prefetch_first,
            ratio: of.ratio.clone(),
            routes: of.routes.is_some() || of.agents,
            ..ControllerConfig::default()
        };
        let mut controller = Controller::new(config);
        let mut nodes = BTreeMap::new();
        let mut reports = BTreeMap::new();
        for (index, node) in plan.nodes.iter().enumerate() {
            let Role::Router(router) = &node.role else { continue };
            nodes.insert(node.name.clone(), index as u32);
            let report = report(plan, index, router.store.size.bytes);
            reports.insert(index as u32, report.clone());
            let refused = controller.report(Instant::ZERO, &node.name, report);
            refused.map_err(|error| plan_error(&node.name, &error.to_string()))?;
        }
        for (index, file) in plan.files()? {
            let owner = &plan.nodes[index].name;
            let refused = controller.add_file(owner, file);
            refused.map_err(|error| plan_error(owner, &error.to_string()))?;
        }
        Ok(Self {
            controller,
            names,
            nodes,
            mail: MessageQueue::new(of.delay_ns, plan.duration_ns),
            routing: of.routes.as_ref().map(|routes| Routing::new(routes, plan.seed, reports)),
            agents: of.agents.then(|| Agents::new(plan)),
            queried_objects: BTreeSet::new(),
            sent: BTreeMap::new(),
            sent_generation: 0,
            distributed: BTreeMap::new(),
            prefetchers: Prefetchers::new(plan, controllers),
        })
    }

    /// Nodes of the routers, in the order of their names.
    pub(super) fn routers(&self) -> Vec<u32> {
        self.nodes.values().copied().collect()
    }

    /// Records what the stores of a router hold at the start.
    pub(super) fn learn_holdings(&mut self, node: u32, changes: Vec<Change>) {
        let at = UpdateNumber { generation: 1, number: 1 };
        let name = &self.names[node as usize];
        // The router has reported, and this is its first update.
        let _ = self.controller.update(Instant::ZERO, name, Update { at, changes });
    }

    /// Schedules the first reports of routers and the controller's timer.
    pub(super) fn begin(&mut self, timeline: &mut Timeline) {
        if let Some(routing) = &mut self.routing {
            for (after_ns, message) in routing.first_messages() {
                self.mail.send(after_ns, message, timeline);
            }
        }
        if self.agents.is_some() {
            // The first tick makes the controller accept the links reported before it.
            self.controller.tick(Instant::ZERO);
            self.mail.send(agents::TICK_NS, ControlMessage::Tick, timeline);
        }
    }

    /// A router lacks segments of an object that the application `asking` requests. It queries the
    /// controller for a source.
    pub(super) fn query(&mut self, node: u32, asking: u32, object: Name, timeline: &mut Timeline) {
        if self.prefetchers.contains(asking) {
            return;
        }
        let may_ask = match &mut self.agents {
            Some(agents) => agents.try_begin_query(timeline.now_ns(), node, &object),
            None => self.queried_objects.insert((node, object.clone())),
        };
        if may_ask {
            self.mail.send(self.mail.delay_ns, ControlMessage::Ask { node, object }, timeline);
        }
    }

    /// Delivers the first message in flight. Returns the router that receives a configuration, if
    /// any.
    pub(super) fn receive(&mut self, timeline: &mut Timeline) -> Option<(u32, Box<Configuration>)> {
        match self.mail.take_first()? {
            ControlMessage::Ask { node, object } => self.decide(node, &object, timeline),
            ControlMessage::Configure { node, configuration } => {
                return Some((node, configuration));
            }
            ControlMessage::ReportDue { node } => self.send_report(node, timeline),
            ControlMessage::Report { node, report } => self.take_report(node, *report, timeline),
            ControlMessage::Tick => self.tick(timeline),
            ControlMessage::Change => self.change_round_trip(timeline),
        }
        None
    }

    /// The controller decides where an object is stored, and sends the configurations that changed.
    fn decide(&mut self, node: u32, object: &Name, timeline: &mut Timeline) {
        let asking = &self.names[node as usize];
        let Ok(answer) = self.controller.forward(asking, object) else { return };
        if let Some(agents) = &mut self.agents {
            agents.on_answer(timeline.now_ns(), node, object, answer.decision);
        }
        self.send_changed(timeline);
    }

    /// Sends each router its configuration if it differs from the last one sent.
    fn send_changed(&mut self, timeline: &mut Timeline) {
        let highest = self.controller.generation();
        if std::mem::replace(&mut self.sent_generation, highest) == highest {
            return;
        }
        let mut changed = Vec::new();
        for (name, &node) in &self.nodes {
            let sent = self.sent.get(&node).map_or(0, |sent| sent.generation);
            if self.controller.generation_of(name) <= sent {
                continue;
            }
            let Some(configuration) = self.controller.configuration(name) else { continue };
            self.sent.insert(node, configuration.clone());
            changed.push((node, configuration));
        }
        for (node, configuration) in changed {
            self.send_configuration(node, configuration, timeline);
        }
    }

    fn send_configuration(
        &mut self,
        node: u32,
        configuration: Configuration,
        timeline: &mut Timeline,
    ) {
        let configuration = Box::new(configuration);
        if let Some(delay_ns) = self.delay_ns() {
            self.mail.send(delay_ns, ControlMessage::Configure { node, configuration }, timeline);
        }
    }

    /// Delay of the next message; `None` if it is lost.
    fn delay_ns(&mut self) -> Option<u64> {
        match &mut self.routing {
            Some(routing) => routing.delay_ns(self.mail.delay_ns),
            None => Some(self.mail.delay_ns),
        }
    }

    /// A restarted router has no configuration.
    pub(super) fn on_restart(&mut self, node: u32, timeline: &mut Timeline) {
        self.queried_objects.retain(|(asking, _)| *asking != node);
        self.distributed.remove(&node);
        if let Some(agents) = &mut self.agents {
            agents.forget(node);
        }
        if let Some(configuration) = self.sent.get(&node).cloned() {
            self.send_configuration(node, configuration, timeline);
        }
    }

    fn send_report(&mut self, node: u32, timeline: &mut Timeline) {
        let Some(routing) = &mut self.routing else { return };
        let report_ns = routing.report_ns();
        if let Some(report) = routing.report_of(node)
            && let Some(delay_ns) = routing.delay_ns(self.mail.delay_ns)
        {
            self.mail.send(
                delay_ns,
                ControlMessage::Report { node, report: Box::new(report) },
                timeline,
            );
        }
        self.mail.repeat(report_ns, ControlMessage::ReportDue { node }, timeline);
    }

    /// Handles a router's report. An older generation means that the last configuration was lost or
    /// is still in flight.
    fn take_report(&mut self, node: u32, report: RouterReport, timeline: &mut Timeline) {
        let generation = report.generation;
        let name = &self.names[node as usize];
        if self.controller.report(timeline.now(), name, report).is_err() {
            return;
        }
        // Forgetting what was sent makes the controller send it again.
        if self.sent.get(&node).is_some_and(|sent| sent.generation > generation) {
            self.sent.remove(&node);
            self.sent_generation = 0;
        }
        self.send_changed(timeline);
    }

    /// Fires the controller's timer.
    fn tick(&mut self, timeline: &mut Timeline) {
        self.controller.tick(timeline.now());
        self.send_changed(timeline);
        let after_ns = if self.agents.is_some() { agents::TICK_NS } else { routes::TICK_NS };
        self.mail.repeat(after_ns, ControlMessage::Tick, timeline);
    }

    /// Makes both ends of a random link report another round-trip time.
    fn change_round_trip(&mut self, timeline: &mut Timeline) {
        let Some(routing) = &mut self.routing else { return };
        routing.change_round_trip(&self.names, &self.nodes);
        self.mail.repeat(routing.change_ns(), ControlMessage::Change, timeline);
    }

    /// The commands that install the routes of a configuration. Empty if the router has a newer
    /// one.
    pub(super) fn routes(
        &mut self,
        router: &RouterNode,
        configuration: &Configuration,
        faces: &NeighbourFaces,
    ) -> Vec<RouterSetting> {
        let face_of = |router: &str| faces.get(self.nodes.get(router)?).copied();
        match &mut self.routing {
            Some(routing) => routing.settings(router, configuration, face_of),
            None => Vec::new(),
        }
    }

    /// The routers that this router must query by its configuration but has no face to, each with
    /// the delay in ns.
    pub(super) fn links_to_make(
        &mut self,
        node: u32,
        configuration: &Configuration,
        faces: &NeighbourFaces,
    ) -> Vec<(u32, u64)> {
        let Some(agents) = &mut self.agents else { return Vec::new() };
        let wanted = configuration.distributions.iter().flat_map(Distribution::routers);
        let wanted = wanted.filter_map(|router| self.nodes.get(router).copied());
        let wanted: BTreeSet<u32> =
            wanted.filter(|other| !faces.contains_key(other) && *other != node).collect();
        let link = |other| agents.delay_ns(node, other).map(|delay_ns| (other, delay_ns));
        wanted.into_iter().filter_map(link).collect()
    }

    /// The settings of a configuration: the rules of the store, and next hops and a strategy for
    /// each object with ranges.
    pub(super) fn settings(
        &mut self,
        router: &RouterNode,
        configuration: &Configuration,
        faces: &NeighbourFaces,
    ) -> Result<Vec<RouterSetting>, StrategyError> {
        let (new, ended) = self.changed(router.incarnation().node, configuration);
        let face_of = |router: &str| faces.get(self.nodes.get(router)?).copied();
        let mut settings = vec![RouterSetting::Rules(configuration.store_rules())];
        for distribution in new {
            let prefix = distribution.object.clone();
            // Routes first, then the holders at a higher cost. The strategy chooses among them by
            // range.
            let mut next_hops = router.next_hops_of(&prefix).to_vec();
            let routes: Vec<FaceId> = next_hops.iter().map(|hop| hop.face).collect();
            for face in distribution.routers().filter_map(face_of) {
                if next_hops.iter().all(|hop| hop.face != face) {
                    next_hops.push(NextHop { face, cost: RANGE_ROUTE_COST });
                }
            }
            let name = distribution.strategy(face_of, &routes);
            let strategy = Some(Strategy::from_name(name.as_view())?);
            settings.push(RouterSetting::NextHops(prefix.clone(), next_hops));
            settings.push(RouterSetting::Strategy(prefix, strategy));
        }
        // An empty list of next hops removes the object's FIB entry.
        for prefix in ended {
            settings.push(RouterSetting::NextHops(prefix.clone(), Vec::new()));
            settings.push(RouterSetting::Strategy(prefix, None));
        }
        Ok(settings)
    }

    /// The distributions that are new in a configuration, and the objects that it no longer names.
    fn changed(&mut self, node: u32, of: &Configuration) -> (Vec<Distribution>, Vec<Name>) {
        let now: BTreeMap<Name, Distribution> =
            of.distributions.iter().map(|one| (one.object.clone(), one.clone())).collect();
        let before = self.distributed.insert(node, now).unwrap_or_default();
        let is_new = |one: &&Distribution| before.get(&one.object) != Some(one);
        let new = of.distributions.iter().filter(is_new).cloned().collect();
        let now = &self.distributed[&node];
        let ended = before.into_keys().filter(|object| !now.contains_key(object)).collect();
        (new, ended)
    }

    /// Consumers for the prefetches that are new in a configuration, each with its node. A new
    /// order replaces one in progress.
    pub(super) fn prefetch(
        &mut self,
        node: u32,
        configuration: &Configuration,
    ) -> Result<Vec<(u32, App)>, String> {
        self.prefetchers.order(node, &configuration.prefetch)
    }
}

fn plan_error(node: &str, problem: &str) -> PlanError {
    PlanError::App { node: node.to_owned(), problem: format!("the controller: {problem}") }
}

/// The report that a router's agent would send.
fn report(plan: &Plan, node: usize, store_bytes: u64) -> RouterReport {
    let name = |index: usize| plan.nodes[index].name.clone();
    let mut report =
        RouterReport { uris: vec![name(node)], store_bytes, ..RouterReport::default() };
    for link in plan.links.iter().filter(|link| link.a == node || link.b == node) {
        let other = if link.a == node { link.b } else { link.a };
        match &plan.nodes[other].role {
            Role::Router(_) => report.faces.push(FaceReport {
                remote: name(other),
                round_trip_ns: Some(link.a_to_b.delay_ns + link.b_to_a.delay_ns),
                rate_bps: [&link.a_to_b, &link.b_to_a].iter().filter_map(|way| way.rate_bps).min(),
                ..FaceReport::default()
            }),
            Role::Producer(producer) => report.prefixes.extend(producer.names.prefix.parse()),
            Role::Consumer(_) => {}
        }
    }
    report
}
