//! Validates plans.

mod disk;

use std::collections::BTreeSet;

use weir_forward::PREFIX_COMPONENTS_MAX;
use weir_netem::{LinkConfig, ServerConfig};
use weir_wire::Name;

use crate::error::PlanError;
use crate::plan::{
    Fault, LinkPackets, Plan, Role, RouterPlan, StagePlan, StagesPlan, Transport, WhenFull,
};

/// Limit on the links of a consumer with a window.
const LINKS_MAX: usize = 64;
/// Limit on the shards of a router.
const SHARDS_MAX: u16 = 256;

impl Plan {
    /// Checks a plan before anything is built from it.
    ///
    /// # Errors
    /// A number is out of range, a value is invalid, or a consumer or producer lacks its link to a
    /// router.
    pub fn check(&self) -> Result<(), PlanError> {
        check_nodes(self)?;
        check_links(self)?;
        check_apps(self)?;
        check_routes(self)?;
        check_faults(self)
    }
}

fn value(place: &str, key: &'static str, problem: impl Into<String>) -> PlanError {
    PlanError::Value { place: place.into(), key, problem: problem.into() }
}

fn check_nodes(plan: &Plan) -> Result<(), PlanError> {
    let mut names = BTreeSet::new();
    for node in &plan.nodes {
        if !names.insert(node.name.as_str()) {
            return Err(PlanError::NodeNameTwice { name: node.name.clone() });
        }
        if let Role::Router(router) = &node.role {
            check_router(router, &node.name)?;
        }
    }
    check_shared(plan)
}

/// Routers that share a disk or a machine must agree about it.
fn check_shared(plan: &Plan) -> Result<(), PlanError> {
    let routers = plan.nodes.iter().filter_map(|node| match &node.role {
        Role::Router(router) => Some((node, router)),
        Role::Consumer(_) | Role::Producer(_) => None,
    });
    let routers: Vec<_> = routers.collect();
    for (index, (node, router)) in routers.iter().enumerate() {
        for (other, plan) in &routers[..index] {
            if let Some(key) = router.conflict_with(plan) {
                let problem =
                    format!("differs from that of node `{}`, which shares it", other.name);
                return Err(value(&format!("node `{}`", node.name), key, problem));
            }
        }
    }
    Ok(())
}

fn check_router(router: &RouterPlan, name: &str) -> Result<(), PlanError> {
    let place = format!("node `{name}`");
    router.strategy_of_root(name)?;
    router.check_marking(name, None)?;
    router.face_shaping(name)?;
    if !(0.0..=1.0).contains(&router.store_filled) {
        let problem = format!("is {}; write a fraction from 0 to 1", router.store_filled);
        return Err(value(&place, "store_filled", problem));
    }
    if router.shards == 0 || router.shards > SHARDS_MAX {
        let problem = format!("is {}; a router has 1 to {SHARDS_MAX} shards", router.shards);
        return Err(value(&place, "shards", problem));
    }
    if router.pit_entries_max == 0 {
        return Err(value(
            &place,
            "pit_entries_max",
            "is 0; write at least 1, because a router forwards nothing without a PIT",
        ));
    }
    if let Some(disk) = &router.disk {
        disk::check(disk, &place)?;
    }
    let Some(stages) = &router.stages else { return Ok(()) };
    check_cpu(router, stages, &place)?;
    let named = [
        ("stages.store", &stages.store),
        ("stages.store_write", &stages.store_write),
        ("stages.pit", &stages.pit),
        ("stages.pit_data", &stages.pit_data),
        ("stages.fib", &stages.fib),
    ];
    for (key, stage) in named {
        let Some(stage) = stage else { continue };
        check_stage(stage, &place, key)?;
        let may_pass_by = matches!(key, "stages.store" | "stages.store_write");
        if stage.when_full == WhenFull::Bypass && !may_pass_by {
            let problem = "is `bypass`, but only the store can be bypassed; write `drop`";
            return Err(value(&place, key, problem));
        }
    }
    if let Some(miss) = &stages.store_miss {
        miss.check().map_err(|error| value(&place, "stages.store_miss", error.to_string()))?;
        if stages.store.is_none() {
            let problem = "is set without a `store` stage; add one or remove this key";
            return Err(value(&place, "stages.store_miss", problem));
        }
    }
    Ok(())
}

/// Checks the processor. The additional time of a read or bypass must be known when the turn ends.
fn check_cpu(router: &RouterPlan, stages: &StagesPlan, place: &str) -> Result<(), PlanError> {
    let Some(cpu) = &stages.cpu else { return Ok(()) };
    let named = [
        ("stages.cpu.interest", &cpu.interest),
        ("stages.cpu.data", &cpu.data),
        ("stages.cpu.read", &cpu.read),
        ("stages.cpu.bypass", &cpu.bypass),
    ];
    for (key, service) in named {
        let service = service.clone();
        let config = ServerConfig { service, parallelism: 1, capacity: cpu.capacity };
        config.check().map_err(|error| value(place, key, error.to_string()))?;
    }
    if cpu.cores == 0 {
        return Err(value(place, "stages.cpu.cores", "is 0; a machine has at least 1"));
    }
    if cpu.machine.is_none() && cpu.cores > 1 {
        let problem = "is more than 1, but a router serves one packet at a time; name the \
                       `machine` whose cores several routers share";
        return Err(value(place, "stages.cpu.cores", problem));
    }
    let has_rest = !cpu.read.is_zero() || !cpu.bypass.is_zero();
    let disk = router.disk.as_ref();
    let is_later = stages.store.is_some() || disk.is_some_and(crate::DiskPlan::is_blocking);
    if has_rest && is_later {
        let problem = "has `read` or `bypass`, but this store blocks and decides later; remove \
            them";
        return Err(value(place, "stages.cpu", problem));
    }
    Ok(())
}

fn check_stage(stage: &StagePlan, place: &str, key: &'static str) -> Result<(), PlanError> {
    let config =
        ServerConfig { service: stage.service.clone(), parallelism: 1, capacity: stage.capacity };
    config.check().map_err(|error| value(place, key, error.to_string()))
}

fn check_links(plan: &Plan) -> Result<(), PlanError> {
    for (index, link) in plan.links.iter().enumerate() {
        let place = format!("link {index}");
        for end in [link.a, link.b] {
            check_node(plan, end, &place)?;
        }
        if link.a == link.b {
            let node = plan.nodes[link.a].name.clone();
            return Err(PlanError::LinkToItself { link: index, node });
        }
        if link.transport == Transport::Udp && link.mtu < weir_link::MTU_MIN {
            let problem = format!(
                "is {}; write at least {} bytes, because a smaller datagram carries nothing",
                link.mtu,
                weir_link::MTU_MIN
            );
            return Err(value(&place, "mtu", problem));
        }
        let is_hicn = link.packets == LinkPackets::Hicn;
        if is_hicn && (link.transport != Transport::Udp || link.reliability || link.runs) {
            let problem = "of hICN require a link over UDP without reliability and runs";
            return Err(value(&place, "packets", problem));
        }
        if link.reliability && link.transport != Transport::Udp {
            let problem = "requires a link over UDP; only those lose frames";
            return Err(value(&place, "reliability", problem));
        }
        let check = |config: &LinkConfig, key| {
            config.check().map_err(|error| value(&place, key, error.to_string()))
        };
        check(&link.a_to_b, "a_to_b")?;
        check(&link.b_to_a, "b_to_a")?;
    }
    Ok(())
}

/// Consumers and producers have one link to a router. Consumers with a window may have several.
fn check_apps(plan: &Plan) -> Result<(), PlanError> {
    let is_router = |node: usize| matches!(plan.nodes[node].role, Role::Router(_));
    let mut links = vec![(0, 0); plan.nodes.len()];
    for link in &plan.links {
        for (node, other) in [(link.a, link.b), (link.b, link.a)] {
            match is_router(other) {
                true => links[node].0 += 1,
                false => links[node].1 += 1,
            }
        }
    }
    for (index, node) in plan.nodes.iter().enumerate() {
        let links_max = match &node.role {
            Role::Router(_) => continue,
            Role::Consumer(consumer) if consumer.has_window() => LINKS_MAX,
            Role::Consumer(_) | Role::Producer(_) => 1,
        };
        let (links, others) = links[index];
        if !(1..=links_max).contains(&links) || others > 0 {
            return Err(PlanError::AppLinks { node: node.name.clone(), links, others });
        }
    }
    Ok(())
}

fn check_node(plan: &Plan, index: usize, place: &str) -> Result<(), PlanError> {
    let count = plan.nodes.len();
    match index < count {
        true => Ok(()),
        false => Err(PlanError::NoSuchNode { place: place.into(), index, count }),
    }
}

fn check_link(plan: &Plan, index: usize, place: &str) -> Result<(), PlanError> {
    let count = plan.links.len();
    match index < count {
        true => Ok(()),
        false => Err(PlanError::NoSuchLink { place: place.into(), index, count }),
    }
}

fn check_is_router(plan: &Plan, index: usize, place: &str) -> Result<(), PlanError> {
    check_node(plan, index, place)?;
    match plan.nodes[index].role {
        Role::Router(_) => Ok(()),
        _ => {
            let node = plan.nodes[index].name.clone();
            Err(PlanError::NotARouter { place: place.into(), node })
        }
    }
}

fn check_routes(plan: &Plan) -> Result<(), PlanError> {
    for (index, route) in plan.routes.iter().enumerate() {
        let place = format!("route {index} of `{}`", route.prefix);
        check_is_router(plan, route.node, &place)?;
        check_link(plan, route.link, &place)?;
        let link = &plan.links[route.link];
        if link.a != route.node && link.b != route.node {
            return Err(PlanError::RouteLink {
                route: index,
                prefix: route.prefix.clone(),
                node: plan.nodes[route.node].name.clone(),
                link: route.link,
            });
        }
        let prefix: Name = route.prefix.parse().map_err(|error| {
            value(&place, "prefix", format!("is not a valid name: {error}; write one like /a/b"))
        })?;
        if prefix.component_count() > PREFIX_COMPONENTS_MAX {
            let problem = format!("has more than {PREFIX_COMPONENTS_MAX} components");
            return Err(value(&place, "prefix", problem));
        }
    }
    Ok(())
}

fn check_share(place: &str, key: &'static str, share: f64) -> Result<(), PlanError> {
    if (0.0..=1.0).contains(&share) {
        return Ok(());
    }
    Err(value(place, key, format!("is {share}; write a probability from 0 to 1")))
}

fn check_disk(plan: &Plan, node: usize, disk: u8, place: &str) -> Result<(), PlanError> {
    check_is_router(plan, node, place)?;
    let count = match &plan.nodes[node].role {
        Role::Router(RouterPlan { disk: Some(disk), .. }) => disk.disks,
        _ => 0,
    };
    if disk < count {
        return Ok(());
    }
    let name = &plan.nodes[node].name;
    let problem = format!("names disk {disk} of node `{name}`, which has {count}, from 0");
    Err(value(place, "disk", problem))
}

/// The disk must not be shared.
fn check_own_disk(plan: &Plan, node: usize, place: &str) -> Result<(), PlanError> {
    match plan.nodes.get(node).map(|node| (&node.name, &node.role)) {
        Some((name, Role::Router(RouterPlan { disk: Some(disk), .. })))
            if disk.shared_as.is_some() =>
        {
            let problem = format!(
                "concerns the disk of node `{name}`, which other routers share; use a disk of its \
                own"
            );
            Err(value(place, "kind", problem))
        }
        _ => Ok(()),
    }
}

fn check_faults(plan: &Plan) -> Result<(), PlanError> {
    for (index, fault) in plan.faults.iter().enumerate() {
        let place = format!("fault {index}");
        match fault.fault {
            Fault::LinkDown { link, .. } => check_link(plan, link, &place)?,
            Fault::LinkSlow { link, share, .. } => {
                check_link(plan, link, &place)?;
                check_share(&place, "share", share)?;
            }
            Fault::Crash { node, .. } => check_is_router(plan, node, &place)?,
            Fault::StoreStall { node, .. } => {
                check_is_router(plan, node, &place)?;
                check_own_disk(plan, node, &place)?;
            }
            Fault::DiskFull { node, disk, .. } => check_disk(plan, node, disk, &place)?,
            Fault::DiskStall { node, disk, .. } => {
                check_disk(plan, node, disk, &place)?;
                check_own_disk(plan, node, &place)?;
            }
            Fault::DiskErrors { node, disk, probability, .. } => {
                check_disk(plan, node, disk, &place)?;
                check_own_disk(plan, node, &place)?;
                check_share(&place, "probability", probability)?;
            }
            Fault::DiskDamage { node, disk, flipped, lost, torn, .. } => {
                check_disk(plan, node, disk, &place)?;
                check_share(&place, "flipped", flipped)?;
                check_share(&place, "lost", lost)?;
                check_share(&place, "torn", torn)?;
                check_share(&place, "lost, torn", lost + torn)?;
            }
            Fault::WrongBytes { link, probability, .. } => {
                check_link(plan, link, &place)?;
                check_share(&place, "probability", probability)?;
            }
        }
    }
    Ok(())
}
