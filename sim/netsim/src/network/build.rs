//! Builds a network from a plan.

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_base::{FaceId, NS_PER_MS};
use weir_forward::{FaceScope, NextHop, Outbox};
use weir_link::{EgressConfig, HicnConfig, LinkConfig, RunsConfig};
use weir_netem::LinkModel;
use weir_transport::Controllers;
use weir_wire::Name;

use super::Network;
use super::apps::{AppNode, Apps};
use super::control::ControlPlane;
use super::faults::Faults;
use super::links::{End, Links};
use super::nodes::{Node, NodeKind, Nodes};
use super::processors::Processors;
use super::queue::{DueEvent, INDEX_MAX};
use super::router::{ProducerSet, RouterNode, RouterSetup, disk_wait_max_ns, stages_wait_max_ns};
use super::shared_disks::SharedDisks;
use super::timeline::Timeline;
use crate::check::content::ProducedData;
use crate::check::liveness::Progress;
use crate::experiments::Experiments;
use weir_plan::app::{App, PathId};
use weir_plan::hash::{SeedPurpose, seed_of};
use weir_plan::workload::ConsumerPlan;
use weir_plan::{
    Fault, LinkPackets, LinkPlan, NodePlan, Plan, PlanError, Role, RouterPlan, Transport,
};

/// Memory for free packet blocks: of all routers together, and the minimum and maximum of one
/// shard.
const POOLS_BYTES: usize = 256 << 20;
const POOL_BYTES_MIN: usize = 64 << 10;
const POOL_BYTES_MAX: usize = 8 << 20;
/// Frame loss from which a consumer may fail to make progress.
const LOSSY: f64 = 0.2;

/// Builds the network of a valid plan.
pub(super) fn build(plan: &Plan, experiments: &Experiments) -> Result<Network, PlanError> {
    check_numbers(plan)?;
    let has_fault = |is_it: fn(&Fault) -> bool| plan.faults.iter().any(|it| is_it(&it.fault));
    let has_damage =
        has_fault(|fault| matches!(fault, Fault::WrongBytes { .. } | Fault::DiskDamage { .. }));
    let names: Arc<[String]> = plan.nodes.iter().map(|node| node.name.clone()).collect();
    let mut producers = producer_set(plan)?;
    let control = plan.controller.as_ref();
    let mut control = control
        .map(|of| ControlPlane::new(plan, of, experiments.controllers, Arc::clone(&names)))
        .transpose()?;
    let (node_ends, ends) = build_ends(plan)?;
    let setups = router_setups(plan, experiments, &ends, &node_ends)?;
    let mut nodes = build_nodes(plan, experiments.controllers, setups, node_ends, &mut producers)?;
    let mut apps = Apps::new(has_damage.then(ProducedData::default), is_lossy(plan));
    // Disks first: filling them restarts the shards and so empties the stores.
    fill_disks(plan, &mut nodes, &mut apps, &mut producers)?;
    fill_stores(plan, &mut nodes, &mut apps)?;
    let faults = Faults::new(plan.faults.clone());
    let mut timeline = Timeline::default();
    if let Some(control) = &mut control {
        // Before its first timer, so that its first decision covers all stores.
        for node in control.routers() {
            if let Some(router) = nodes.router_mut(node) {
                control.learn_holdings(node, router.holdings_at_start());
            }
        }
        control.begin(&mut timeline);
    }
    faults.schedule(&mut timeline);
    if plan.sample_ns > 0 {
        timeline.schedule(0, DueEvent::Sample);
    }
    // The order of these first events is part of the event hash.
    nodes.set_first_timers(&mut timeline);
    Ok(Network {
        seed: plan.seed,
        end_ns: plan.duration_ns.saturating_add(plan.drain_ns),
        sample_ns: plan.sample_ns,
        links: Links::new(plan.seed, Arc::clone(&names), ends, lifetime_max_ns(plan)),
        names,
        timeline,
        nodes,
        apps,
        faults,
        shared_disks: SharedDisks::new(plan),
        processors: Processors::new(plan),
        control: control.map(Box::new),
        producers,
        are_records_kept: !has_fault(loses_records),
        steps: 0,
        virtual_ns: 0,
        is_over: false,
        outbox: Outbox::default(),
    })
}

fn build_nodes(
    plan: &Plan,
    controllers: Controllers,
    mut setups: BTreeMap<usize, RouterSetup>,
    node_ends: Vec<Vec<u32>>,
    producers: &mut ProducerSet,
) -> Result<Nodes, PlanError> {
    let mut nodes = Vec::with_capacity(plan.nodes.len());
    for (index, (node, node_ends)) in plan.nodes.iter().zip(node_ends).enumerate() {
        let kind = match setups.remove(&index) {
            Some(setup) => NodeKind::Router(Box::new(RouterNode::new(setup, producers))),
            None => {
                let progress = match &node.role {
                    Role::Consumer(consumer) => Some(Progress::new(consumer.lifetime_ms)),
                    _ => None,
                };
                NodeKind::App(AppNode {
                    app: build_app(plan, controllers, index, node_ends.len())?,
                    progress,
                })
            }
        };
        nodes.push(Node::new(kind, node_ends));
    }
    Ok(Nodes::new(nodes))
}

/// Checks that the engine's event keys can hold all node, link and fault numbers.
fn check_numbers(plan: &Plan) -> Result<(), PlanError> {
    let counts = [
        ("nodes", plan.nodes.len()),
        ("links", 2 * plan.links.len()),
        ("faults", 2 * plan.faults.len()),
    ];
    let Some((key, _)) = counts.into_iter().find(|&(_, count)| count >= INDEX_MAX) else {
        return Ok(());
    };
    let problem = format!("are more than the {} that the engine can number", INDEX_MAX / 2);
    Err(PlanError::Value { place: "the plan".into(), key, problem })
}

/// Whether a fault may make a disk lose data.
fn loses_records(fault: &Fault) -> bool {
    matches!(
        fault,
        Fault::WrongBytes { .. }
            | Fault::DiskErrors { .. }
            | Fault::DiskDamage { .. }
            | Fault::DiskFull { .. }
    )
}

/// Whether a link loses more than [`LOSSY`].
fn is_lossy(plan: &Plan) -> bool {
    let lossy = |loss: weir_netem::Loss| loss.mean() > LOSSY;
    plan.links.iter().any(|link| lossy(link.a_to_b.loss) || lossy(link.b_to_a.loss))
}

/// How long after its lifetime a node may still answer an Interest, ns. This covers the delay of a
/// producer, and the stages and store stalls of a router.
fn patience_ns(plan: &Plan, index: usize) -> u64 {
    // All stalls of this node may happen within one Interest's lifetime.
    let stalls = || {
        let for_ns = plan.faults.iter().filter_map(|fault| match fault.fault {
            Fault::StoreStall { node, for_ns, .. } | Fault::DiskStall { node, for_ns, .. }
                if node == index =>
            {
                Some(for_ns)
            }
            _ => None,
        });
        for_ns.fold(0, u64::saturating_add)
    };
    let held_up_ns = match &plan.nodes[index].role {
        Role::Producer(producer) => producer.delay_ns,
        Role::Router(router) => {
            let machine = |router: &RouterPlan| {
                router.stages.as_ref()?.cpu.as_ref().and_then(|cpu| cpu.machine.clone())
            };
            let in_stages = router
                .stages
                .as_ref()
                .map(|stages| stages_wait_max_ns(stages, sharers(plan, machine(router), machine)));
            let blocked = router.disk.as_ref().filter(|disk| disk.is_blocking());
            let blocked = blocked.map(|disk| {
                let device = |router: &RouterPlan| router.disk.as_ref()?.shared_as.clone();
                let sharers = sharers(plan, disk.shared_as.clone(), device);
                disk_wait_max_ns(disk).saturating_mul(sharers)
            });
            let waits = in_stages.into_iter().chain(blocked).reduce(u64::saturating_add);
            waits.map_or(0, |wait_ns| wait_ns.saturating_add(stalls()))
        }
        Role::Consumer(_) => 0,
    };
    // One millisecond covers the rounding of lifetimes.
    held_up_ns.saturating_add(NS_PER_MS)
}

/// Number of routers that share the resource with this name; 1 without a name.
fn sharers(
    plan: &Plan,
    name: Option<String>,
    name_of: impl Fn(&RouterPlan) -> Option<String>,
) -> u64 {
    let has_it = |node: &&weir_plan::NodePlan| match &node.role {
        Role::Router(router) => name.is_some() && name_of(router) == name,
        Role::Consumer(_) | Role::Producer(_) => false,
    };
    plan.nodes.iter().filter(has_it).count().max(1) as u64
}

fn lifetime_max_ns(plan: &Plan) -> u64 {
    let lifetimes = plan.nodes.iter().filter_map(|node| match &node.role {
        Role::Consumer(consumer) => Some(consumer.lifetime_ms.saturating_mul(NS_PER_MS)),
        _ => None,
    });
    // Consumers may also request metadata, with NDN's default lifetime.
    lifetimes.max().unwrap_or(0).max(4000 * NS_PER_MS)
}

/// Configures the face of a node at one end of a link. `model` describes the queue in that
/// direction.
fn face_config(
    plan: &Plan,
    node: usize,
    link: &LinkPlan,
    model: &weir_netem::LinkConfig,
    seed: u64,
) -> Result<LinkConfig, PlanError> {
    let mut config = match link.transport {
        Transport::Unix | Transport::Tcp => LinkConfig::stream(),
        Transport::Udp => match link.packets {
            LinkPackets::Ndn => LinkConfig::datagram(link.mtu),
            LinkPackets::Hicn => LinkConfig::hicn(link.mtu, HicnConfig::default()),
        },
    };
    config.codec.reliability = link.reliability && link.transport == Transport::Udp;
    if link.runs {
        config.codec.runs = RunsConfig::Initiate;
    }
    let NodePlan { name, role } = &plan.nodes[node];
    let EgressConfig { marking, discipline, .. } = &mut config.egress;
    if model.queue_bytes_max != u64::MAX {
        marking.capacity_bytes = model.queue_bytes_max;
    }
    if let Role::Router(router) = role {
        router.check_marking(name, Some(marking.capacity_bytes))?;
        (marking.policy, *discipline) = (router.marking.clone(), router.discipline.clone());
    }
    config.egress.seed = seed;
    Ok(config)
}

/// Returns the ends of every node, and all ends.
fn build_ends(plan: &Plan) -> Result<(Vec<Vec<u32>>, Vec<End>), PlanError> {
    let mut node_ends = vec![Vec::new(); plan.nodes.len()];
    let mut ends = Vec::with_capacity(2 * plan.links.len());
    let patience_ns = |node| patience_ns(plan, node);
    let patience_ns: Vec<u64> = (0..plan.nodes.len()).map(patience_ns).collect();
    for link in &plan.links {
        for (node, config) in [(link.a, &link.a_to_b), (link.b, &link.b_to_a)] {
            let number = ends.len() as u32;
            let face = FaceId(FaceId::FIRST.0 + node_ends[node].len() as u64);
            let seed = seed_of(plan.seed, SeedPurpose::Link, number.into());
            let model = LinkModel::new(config.clone(), seed);
            node_ends[node].push(number);
            let seed = seed_of(plan.seed, SeedPurpose::Egress, number.into());
            let link = face_config(plan, node, link, config, seed)?;
            ends.push(End::new(node as u32, face, link, model, patience_ns[node]));
        }
    }
    set_shaping(plan, &node_ends, &mut ends)?;
    Ok((node_ends, ends))
}

/// Makes routers shape incoming Interests as their plans say.
fn set_shaping(plan: &Plan, node_ends: &[Vec<u32>], ends: &mut [End]) -> Result<(), PlanError> {
    for (node, node_ends) in plan.nodes.iter().zip(node_ends) {
        let Role::Router(router) = &node.role else { continue };
        let shaping = router.face_shaping(&node.name)?;
        for &number in node_ends {
            let link = &mut ends[number as usize].link;
            let shaping_seed = seed_of(plan.seed, SeedPurpose::Shaping, number.into());
            link.set_config(LinkConfig { shaping, shaping_seed, ..link.config().clone() });
        }
    }
    Ok(())
}

fn build_app(
    plan: &Plan,
    controllers: Controllers,
    index: usize,
    links: usize,
) -> Result<App, PlanError> {
    let node = &plan.nodes[index];
    let seed = seed_of(plan.seed, SeedPurpose::App, index as u64);
    let failed = |problem: String| PlanError::App { node: node.name.clone(), problem };
    let role = match &node.role {
        // A prefetching consumer starts with nothing to fetch; the controller assigns its work.
        Role::Consumer(consumer) if consumer.prefetches => {
            Role::Consumer(ConsumerPlan { start_ns: plan.duration_ns, ..consumer.clone() })
        }
        role => role.clone(),
    };
    let mut app = App::new(&role, controllers, plan.duration_ns, seed)
        .map_err(|error| failed(error.to_string()))?
        .ok_or_else(|| failed("is neither consumer nor producer".into()))?;
    (1..links).for_each(|path| app.set_path(PathId(path as u16), true));
    Ok(app)
}

/// The setup of each router, by node.
fn router_setups(
    plan: &Plan,
    experiments: &Experiments,
    ends: &[End],
    node_ends: &[Vec<u32>],
) -> Result<BTreeMap<usize, RouterSetup>, PlanError> {
    let mut routes = routes(plan, ends);
    let routers = plan.nodes.iter().enumerate().filter_map(|(index, node)| match &node.role {
        Role::Router(router) => Some((index, router, node.name.as_str())),
        _ => None,
    });
    let routers: Vec<_> = routers.collect();
    // All shards of the network share one budget for free blocks.
    let shards: usize = routers.iter().map(|(_, router, _)| usize::from(router.shards)).sum();
    let pool_bytes_max = (POOLS_BYTES / shards.max(1)).clamp(POOL_BYTES_MIN, POOL_BYTES_MAX);
    let setup = |(index, router, name): (usize, &RouterPlan, &str)| {
        let faces = node_ends[index].iter().map(|&end| {
            let link = &plan.links[end as usize / 2];
            let scope = if link.is_local { FaceScope::Local } else { FaceScope::NonLocal };
            (ends[end as usize].face, scope)
        });
        let setup = RouterSetup {
            node: index as u32,
            seed: seed_of(plan.seed, SeedPurpose::Router, index as u64),
            plan: router.clone(),
            extension: experiments.extension(name, router)?,
            strategy: router.strategy_of_root(name)?,
            pool_bytes_max,
            faces: faces.collect(),
            routes: routes.remove(&index).unwrap_or_default().into_iter().collect(),
            watches_misses: plan.controller.is_some(),
            reports_holdings: plan.asks_holdings(),
        };
        Ok((index, setup))
    };
    routers.into_iter().map(setup).collect()
}

/// Next hops by router and prefix.
fn routes(plan: &Plan, ends: &[End]) -> BTreeMap<usize, BTreeMap<Name, Vec<NextHop>>> {
    let mut routes: BTreeMap<usize, BTreeMap<Name, Vec<NextHop>>> = BTreeMap::new();
    for route in &plan.routes {
        let Ok(prefix) = route.prefix.parse::<Name>() else { continue };
        let end = 2 * route.link + usize::from(plan.links[route.link].a != route.node);
        let hop = NextHop { face: ends[end].face, cost: route.cost };
        routes.entry(route.node).or_default().entry(prefix).or_default().push(hop);
    }
    routes
}

/// Fills the stores with the shares that the plan gives.
fn fill_stores(plan: &Plan, nodes: &mut Nodes, apps: &mut Apps) -> Result<(), PlanError> {
    for (index, node) in plan.nodes.iter().enumerate() {
        let is_filled = |router: &RouterPlan| router.store_filled > 0.0;
        if matches!(&node.role, Role::Router(router) if is_filled(router))
            && let Some(router) = nodes.router_mut(index as u32)
        {
            router.fill_store(plan.stored_at_start(index)?, |packet| apps.on_produced(packet));
        }
    }
    Ok(())
}

/// The producers that can regenerate content, if disks need them.
fn producer_set(plan: &Plan) -> Result<ProducerSet, PlanError> {
    let has_disk = |role: &Role| matches!(role, Role::Router(RouterPlan { disk: Some(_), .. }));
    match plan.nodes.iter().any(|node| has_disk(&node.role)) {
        true => Ok(ProducerSet::new(plan.producers()?.into_values())),
        false => Ok(ProducerSet::default()),
    }
}

/// Fills the disks with the shares that the plan gives.
fn fill_disks(
    plan: &Plan,
    nodes: &mut Nodes,
    apps: &mut Apps,
    producers: &mut ProducerSet,
) -> Result<(), PlanError> {
    for (index, node) in plan.nodes.iter().enumerate() {
        let Role::Router(RouterPlan { disk: Some(disk), .. }) = &node.role else { continue };
        if disk.filled_objects == 0 && disk.filled_ranges.is_empty() && disk.filled <= 0.0 {
            continue;
        }
        let packets = plan.on_disk_at_start(index)?;
        let packets = packets.inspect(|packet| apps.on_produced(packet));
        if let Some(router) = nodes.router_mut(index as u32) {
            router.fill_disks(packets, producers);
        }
    }
    Ok(())
}
