//! The controller of a plan: routers ask it and do what it says, after the time that messages take.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use weir_base::{FaceId, Instant};
use weir_control::message::{Configuration, FaceReport, RouterReport};
use weir_control::{Controller, ControllerConfig, File};
use weir_forward::strategy::Strategy;
use weir_forward::{Command, NextHop, StoreCommand};
use weir_wire::Name;

use super::queue::Due;
use super::{Network, NodeKind};
use crate::check::Broken;
use weir_plan::{ControllerPlan, Plan, PlanError, Role};

/// What a next hop to a part costs: more than any route, so that what is in no part goes by these.
const PART_COST: u64 = u64::MAX;

/// The controller, and what is on its way to it and from it.
pub(super) struct ControlPlane {
    controller: Controller,
    delay_ns: u64,
    /// In order of arrival: all take the same time.
    messages: VecDeque<Message>,
    /// Objects that a router has asked about.
    asked: BTreeSet<(u32, Name)>,
    nodes: BTreeMap<String, u32>,
    /// What each router was told last.
    told: BTreeMap<u32, Configuration>,
}

enum Message {
    /// A router asks for an object.
    Ask { node: u32, object: Name },
    /// It is told how it is to be set up.
    Tell { node: u32, configuration: Box<Configuration> },
}

impl ControlPlane {
    /// The controller of a plan, which knows the routers, their links and the producers' files.
    pub(super) fn new(plan: &Plan, of: &ControllerPlan) -> Result<Self, PlanError> {
        let config = ControllerConfig {
            router_timeout_ns: u64::MAX,
            placement: of.placement,
            prefetch: false,
            routes: false,
            ..ControllerConfig::default()
        };
        let mut controller = Controller::new(config);
        let mut nodes = BTreeMap::new();
        for (index, node) in plan.nodes.iter().enumerate() {
            let Role::Router(router) = &node.role else { continue };
            nodes.insert(node.name.clone(), index as u32);
            let report = report(plan, index, router.store.size.bytes);
            let refused = controller.report(Instant::ZERO, &node.name, report);
            refused.map_err(|error| refuse(&node.name, &error.to_string()))?;
        }
        for (index, file) in plan.files()? {
            let refused = controller.add_file(file);
            refused.map_err(|error| refuse(&plan.nodes[index].name, &error.to_string()))?;
        }
        Ok(Self {
            controller,
            delay_ns: of.delay_ns,
            messages: VecDeque::new(),
            asked: BTreeSet::new(),
            nodes,
            told: BTreeMap::new(),
        })
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
                ..FaceReport::default()
            }),
            Role::Producer(producer) => report.prefixes.extend(producer.names.prefix.parse()),
            Role::Consumer(_) => {}
        }
    }
    report
}

impl Network {
    /// A router lacks segments of an object and asks how to get them.
    pub(super) fn ask_controller(&mut self, node: u32, object: Name) {
        let Some(control) = &mut self.control else { return };
        if control.asked.insert((node, object.clone())) {
            control.messages.push_back(Message::Ask { node, object });
            let moment = self.queue.moment(self.now_ns + control.delay_ns, Due::Control);
            self.queue.push(moment);
        }
    }

    /// The first message that is on its way arrives.
    pub(super) fn on_control_message(&mut self) -> Result<(), Broken> {
        let Some(control) = &mut self.control else { return Ok(()) };
        match control.messages.pop_front() {
            Some(Message::Ask { node, object }) => self.decide(node, &object),
            Some(Message::Tell { node, configuration }) => self.configure(node, *configuration)?,
            None => {}
        }
        Ok(())
    }

    /// The controller decides, and tells all routers whose configuration is another one now.
    fn decide(&mut self, node: u32, object: &Name) {
        let Some(control) = &mut self.control else { return };
        let asking = &self.names[node as usize];
        if control.controller.forward(asking, object).is_err() {
            return;
        }
        for (name, &node) in &control.nodes {
            let Some(configuration) = control.controller.configuration(name) else { continue };
            let told = control.told.get(&node);
            if told.is_some_and(|told| told.generation >= configuration.generation) {
                continue;
            }
            control.told.insert(node, configuration.clone());
            let configuration = Box::new(configuration);
            control.messages.push_back(Message::Tell { node, configuration });
            let moment = self.queue.moment(self.now_ns + control.delay_ns, Due::Control);
            self.queue.push(moment);
        }
    }

    /// A router does what it is told: rules of its store, and for each object with parts the next
    /// hops and the strategy.
    fn configure(&mut self, node: u32, configuration: Configuration) -> Result<(), Broken> {
        let faces = self.faces_to_routers(node);
        let face_of = |router: &str| faces.get(router).copied();
        let mut commands = Vec::new();
        for distribution in &configuration.distributions {
            let prefix = distribution.object.clone();
            let NodeKind::Router(router) = &self.nodes[node as usize].kind else { continue };
            let mut next_hops = router.next_hops_below(prefix.value()).to_vec();
            for part in &distribution.parts {
                let Some(face) = face_of(&part.router) else { continue };
                if next_hops.iter().all(|hop| hop.face != face) {
                    next_hops.push(NextHop { face, cost: PART_COST });
                }
            }
            let strategy = Strategy::from_name(distribution.strategy(face_of).as_view());
            let strategy = strategy
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
