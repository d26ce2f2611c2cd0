//! The controller of a plan: routers ask it and do what it says, after the time that messages take.

mod agents;
mod routes;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use weir_base::{FaceId, Instant};
use weir_control::message::{
    Configuration, Distribution, FaceReport, Prefetch, RouterReport, Update, UpdateNumber,
};
use weir_control::{Controller, ControllerConfig};
use weir_forward::strategy::Strategy;
use weir_forward::{Command, NextHop, StoreCommand};
use weir_wire::Name;

use self::agents::Agents;
use self::routes::Routing;
use super::queue::Due;
use super::{Network, NodeKind};
use crate::check::Broken;
use weir_plan::app::App;
use weir_plan::event::Observer;
use weir_plan::workload::{Collection, ConsumerPlan, Demand, Popularity, WorkloadError};
use weir_plan::{ControllerPlan, Plan, PlanError, Role};

/// What a next hop to a part costs: more than any route, so that what is in no part goes by these.
const PART_COST: u64 = u64::MAX;

/// The controller, and what is on its way to it and from it.
pub(super) struct ControlPlane {
    controller: Controller,
    delay_ns: u64,
    /// By when they arrive, and by when they were sent.
    messages: BTreeMap<(u64, u64), Message>,
    messages_sent: u64,
    /// Only where routers get their routes from it.
    routing: Option<Routing>,
    /// Only where routers do as real agents do.
    agents: Option<Agents>,
    /// Objects that a router has asked about.
    asked: BTreeSet<(u32, Name)>,
    nodes: BTreeMap<String, u32>,
    /// What each router was told last.
    told: BTreeMap<u32, Configuration>,
    /// All were told what there was to tell when the controller's highest number was this.
    told_all: u64,
    /// The objects that each router asks several routers for, and how.
    distributed: BTreeMap<u32, BTreeMap<Name, Distribution>>,
    /// Of a router the consumer that fetches ahead.
    prefetchers: BTreeMap<u32, Prefetcher>,
    /// When consumers stop, ns.
    duration_ns: u64,
}

/// A consumer that asks for what its router is ordered to fetch ahead.
struct Prefetcher {
    node: u32,
    plan: ConsumerPlan,
    seed: u64,
    /// What it was ordered already.
    ordered: Vec<Prefetch>,
}

enum Message {
    /// A router asks for an object.
    Ask { node: u32, object: Name },
    /// It is told how it is to be set up.
    Tell { node: u32, configuration: Box<Configuration> },
    /// It is time for it to tell of itself.
    Due { node: u32 },
    /// A router tells of itself.
    Report { node: u32, report: Box<RouterReport> },
    /// The controller looks at the clock.
    Tick,
    /// What is told of a link becomes something else.
    Change,
}

impl ControlPlane {
    /// The controller of a plan, which knows the routers, their links and the producers' files.
    pub(super) fn new(plan: &Plan, of: &ControllerPlan) -> Result<Self, PlanError> {
        let config = ControllerConfig {
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
            refused.map_err(|error| refuse(&node.name, &error.to_string()))?;
        }
        for (index, file) in plan.files()? {
            let owner = &plan.nodes[index].name;
            let refused = controller.add_file(owner, file);
            refused.map_err(|error| refuse(owner, &error.to_string()))?;
        }
        Ok(Self {
            controller,
            delay_ns: of.delay_ns,
            messages: BTreeMap::new(),
            messages_sent: 0,
            routing: of.routes.as_ref().map(|routes| Routing::new(routes, plan.seed, reports)),
            agents: of.agents.then(|| Agents::new(plan)),
            asked: BTreeSet::new(),
            nodes,
            told: BTreeMap::new(),
            told_all: 0,
            distributed: BTreeMap::new(),
            prefetchers: prefetchers(plan),
            duration_ns: plan.duration_ns,
        })
    }
}

/// The consumers that fetch ahead, by the router that each is at.
fn prefetchers(plan: &Plan) -> BTreeMap<u32, Prefetcher> {
    let mut prefetchers = BTreeMap::new();
    for link in &plan.links {
        for (node, router) in [(link.a, link.b), (link.b, link.a)] {
            if let Role::Consumer(consumer) = &plan.nodes[node].role
                && consumer.prefetches
            {
                let (plan, seed) = (consumer.clone(), plan.app_seed(node));
                let node = node as u32;
                let prefetcher = Prefetcher { node, plan, seed, ordered: Vec::new() };
                prefetchers.insert(router as u32, prefetcher);
            }
        }
    }
    prefetchers
}

impl Prefetcher {
    /// The consumer of a part that was not ordered before.
    fn order(&mut self, order: &Prefetch, duration_ns: u64) -> Result<Option<App>, String> {
        if self.ordered.contains(order) {
            return Ok(None);
        }
        self.ordered.push(order.clone());
        let failed = |error: WorkloadError| error.to_string();
        let collection = Collection::new(&self.plan.names).map_err(failed)?;
        let mut name = order.object.clone();
        name.append_segment(order.first);
        let Some(asked) = collection.naming().parse(name.value()) else { return Ok(None) };
        let object = asked.object;
        let requests: Arc<[(u64, u64)]> =
            (order.first..=order.last).map(|segment| (object, segment)).collect();
        let mut plan = self.plan.clone();
        match &mut plan.demand {
            Demand::Window { count, .. } | Demand::Controlled { count, .. } => {
                *count = Some(requests.len() as u64);
            }
            Demand::Arrivals { .. } | Demand::Objects { .. } => {}
        }
        plan.names.popularity = Popularity::Trace { requests };
        App::new(&Role::Consumer(plan), duration_ns, self.seed).map_err(failed)
    }
}

fn refuse(node: &str, problem: &str) -> PlanError {
    PlanError::App { node: node.to_owned(), problem: format!("the controller: {problem}") }
}

/// What a router's agent would tell.
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

impl Network {
    /// The controller learns what stores hold from the start.
    pub(super) fn tell_holdings(&mut self) {
        let Some(control) = &mut self.control else { return };
        for (name, &node) in &control.nodes {
            let NodeKind::Router(router) = &mut self.nodes[node as usize].kind else { continue };
            let changes = router.holdings_at_start();
            let at = UpdateNumber { generation: 1, number: 1 };
            // It has reported, and this is its first.
            let _ = control.controller.update(Instant::ZERO, name, Update { at, changes });
        }
    }

    /// A router lacks segments of an object that an application wants, and asks how to get them.
    pub(super) fn ask_controller(&mut self, node: u32, ingress: FaceId, object: Name) {
        let Some(control) = &mut self.control else { return };
        let slot = ingress.0.wrapping_sub(FaceId::FIRST.0) as usize;
        let Some(&end) = self.nodes[node as usize].ends.get(slot) else { return };
        let asking = self.ends[(end ^ 1) as usize].node;
        let is_router = matches!(self.nodes[asking as usize].kind, NodeKind::Router(_));
        if is_router || control.prefetchers.values().any(|one| one.node == asking) {
            return;
        }
        let may_ask = match &mut control.agents {
            Some(agents) => agents.may_ask(self.now_ns, node, &object),
            None => control.asked.insert((node, object.clone())),
        };
        if may_ask {
            let delay_ns = control.delay_ns;
            self.control_message(delay_ns, Message::Ask { node, object });
        }
    }

    /// The first message that is on its way arrives.
    pub(super) fn on_control_message(&mut self, observer: &mut dyn Observer) -> Result<(), Broken> {
        let Some(control) = &mut self.control else { return Ok(()) };
        match control.messages.pop_first().map(|(_, message)| message) {
            Some(Message::Ask { node, object }) => self.decide(node, &object),
            Some(Message::Tell { node, configuration }) => {
                self.configure(node, &configuration)?;
                self.fetch_ahead(node, &configuration, observer)?;
            }
            Some(Message::Due { node }) => self.send_report(node),
            Some(Message::Report { node, report }) => self.take_report(node, *report),
            Some(Message::Tick) => self.tick_controller(),
            Some(Message::Change) => self.change_round_trip(),
            None => {}
        }
        Ok(())
    }

    /// The controller decides, and tells all routers whose configuration is another one now.
    fn decide(&mut self, node: u32, object: &Name) {
        let Some(control) = &mut self.control else { return };
        let asking = &self.names[node as usize];
        let Ok(answer) = control.controller.forward(asking, object) else { return };
        if let Some(agents) = &mut control.agents {
            agents.answered(self.now_ns, node, object, answer.decision);
        }
        self.tell_all();
    }

    /// Tells all routers whose configuration is another one than they were told.
    fn tell_all(&mut self) {
        let Some(control) = &mut self.control else { return };
        let highest = control.controller.generation();
        if std::mem::replace(&mut control.told_all, highest) == highest {
            return;
        }
        let mut news = Vec::new();
        for (name, &node) in &control.nodes {
            let told = control.told.get(&node).map_or(0, |told| told.generation);
            if control.controller.generation_of(name) <= told {
                continue;
            }
            let Some(configuration) = control.controller.configuration(name) else { continue };
            control.told.insert(node, configuration.clone());
            news.push((node, configuration));
        }
        for (node, configuration) in news {
            self.tell(node, configuration);
        }
    }

    /// A configuration is on its way to a router.
    fn tell(&mut self, node: u32, configuration: Configuration) {
        let configuration = Box::new(configuration);
        if let Some(delay_ns) = self.control_delay_ns() {
            self.control_message(delay_ns, Message::Tell { node, configuration });
        }
    }

    /// A message arrives after some time.
    fn control_message(&mut self, after_ns: u64, message: Message) {
        let Some(control) = &mut self.control else { return };
        let at_ns = self.now_ns + after_ns;
        control.messages_sent += 1;
        control.messages.insert((at_ns, control.messages_sent), message);
        let moment = self.queue.moment(at_ns, Due::Control);
        self.queue.push(moment);
    }

    /// A router that has come back has forgotten what it was told.
    pub(super) fn tell_again(&mut self, node: u32) {
        let Some(control) = &mut self.control else { return };
        control.asked.retain(|(asking, _)| *asking != node);
        control.distributed.remove(&node);
        if let Some(agents) = &mut control.agents {
            agents.forget(node);
        }
        if let Some(configuration) = control.told.get(&node).cloned() {
            self.tell(node, configuration);
        }
    }

    /// A router does what it is told: rules of its store, and for each object with parts the next
    /// hops and the strategy.
    fn configure(&mut self, node: u32, configuration: &Configuration) -> Result<(), Broken> {
        self.set_routes(node, configuration)?;
        self.make_faces(node, configuration)?;
        let (new, ended) = self.changed(node, configuration);
        let faces = self.faces_to_routers(node);
        let face_of = |router: &str| faces.get(router).copied();
        let mut commands = Vec::new();
        for distribution in new {
            let prefix = distribution.object.clone();
            let NodeKind::Router(router) = &self.nodes[node as usize].kind else { continue };
            let mut next_hops = router.next_hops_below(prefix.value()).to_vec();
            let routes: Vec<FaceId> = next_hops.iter().map(|hop| hop.face).collect();
            for face in distribution.routers().filter_map(face_of) {
                if next_hops.iter().all(|hop| hop.face != face) {
                    next_hops.push(NextHop { face, cost: PART_COST });
                }
            }
            let name = distribution.strategy(face_of, &routes);
            let strategy = Strategy::from_name(name.as_view())
                .map_err(|error| Broken::correctness(node, format!("the controller: {error}")))?;
            commands.push((prefix, next_hops, strategy));
        }
        let rules = configuration.store_rules();
        let shards = match &self.nodes[node as usize].kind {
            NodeKind::Router(router) => router.shards.len(),
            NodeKind::App(_) => 0,
        };
        for shard in 0..shards {
            let set_rules = StoreCommand::SetRules { transaction: 0, rules: rules.clone() };
            self.command(node, shard, Command::Store(set_rules))?;
            for (prefix, next_hops, strategy) in commands.clone() {
                let strategy = Some(strategy);
                let hops = Command::SetNextHops { prefix: prefix.clone(), next_hops };
                self.command(node, shard, hops)?;
                self.command(node, shard, Command::SetStrategy { prefix, strategy })?;
            }
            for prefix in ended.clone() {
                let (next_hops, strategy) = (Vec::new(), None);
                let hops = Command::SetNextHops { prefix: prefix.clone(), next_hops };
                self.command(node, shard, hops)?;
                self.command(node, shard, Command::SetStrategy { prefix, strategy })?;
            }
        }
        Ok(())
    }

    /// What a configuration says of objects that a router asks several routers for and did not say
    /// before, and the objects that it does not speak of any more.
    fn changed(&mut self, node: u32, of: &Configuration) -> (Vec<Distribution>, Vec<Name>) {
        let Some(control) = &mut self.control else { return (Vec::new(), Vec::new()) };
        let now = of.distributions.iter().map(|one| (one.object.clone(), one.clone())).collect();
        let before = control.distributed.insert(node, now).unwrap_or_default();
        let is_new = |one: &&Distribution| before.get(&one.object) != Some(one);
        let new = of.distributions.iter().filter(is_new).cloned().collect();
        let now = &control.distributed[&node];
        let ended = before.into_keys().filter(|object| !now.contains_key(object)).collect();
        (new, ended)
    }

    /// A router has what it is to fetch ahead asked for. It fetches one part at a time: a later
    /// order takes the place of one under way.
    fn fetch_ahead(
        &mut self,
        node: u32,
        configuration: &Configuration,
        observer: &mut dyn Observer,
    ) -> Result<(), Broken> {
        for order in &configuration.prefetch {
            let Some(control) = &mut self.control else { return Ok(()) };
            let duration_ns = control.duration_ns;
            let Some(prefetcher) = control.prefetchers.get_mut(&node) else { return Ok(()) };
            let app = prefetcher.order(order, duration_ns);
            let app = app.map_err(|what| Broken::correctness(node, what))?;
            let consumer = prefetcher.node;
            if let Some(app) = app {
                self.nodes[consumer as usize].kind = NodeKind::App(app);
                self.call_app(consumer, observer)?;
            }
        }
        Ok(())
    }

    /// The faces of a node that lead to routers, by the router's name.
    fn faces_to_routers(&self, node: u32) -> BTreeMap<&str, FaceId> {
        let ends = self.nodes[node as usize].ends.iter();
        let face = |&end: &u32| {
            let other = self.ends[(end ^ 1) as usize].node as usize;
            let is_router = matches!(self.nodes[other].kind, NodeKind::Router(_));
            is_router.then(|| (self.names[other].as_str(), self.ends[end as usize].face))
        };
        ends.filter_map(face).collect()
    }
}
