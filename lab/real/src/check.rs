//! Checks that processes on one machine can run a plan, before any process starts.

use weir_netem::{Jitter, LinkConfig, Loss};
use weir_plan::{
    ControllerPlan, DiskPlan, Fault, FaultPlan, LinkPackets, LinkPlan, Plan, Role, Transport,
};

use super::{RealError, disks};

/// Whether a link neither delays nor loses frames.
fn is_ideal(link: &LinkConfig) -> bool {
    link.rate_bps.is_none()
        && link.delay_ns == 0
        && link.jitter == Jitter::None
        && link.loss == Loss::None
        && link.reorder.is_none()
}

/// Whether a link must be emulated. Links between programs of one host never are.
fn is_shaped(link: &LinkPlan) -> bool {
    let is_ideal = is_ideal(&link.a_to_b) && is_ideal(&link.b_to_a);
    !(link.is_local || is_ideal)
}

/// Whether a link needs the link emulator. Routers with a controller also use it for ideal links:
/// each then has its own address for each neighbour, known before the start.
pub(super) fn is_emulated(plan: &Plan, index: usize) -> bool {
    let link = &plan.links[index];
    let is_cut = plan
        .faults
        .iter()
        .any(|planned| matches!(planned.fault, Fault::LinkDown { link, .. } if link == index));
    // A face is identified by the address of its peer, so a second link between the same nodes
    // needs ports of its own.
    let ends = |link: &LinkPlan| (link.a.min(link.b), link.a.max(link.b));
    let has_twin = plan.links[..index]
        .iter()
        .any(|other| other.transport == Transport::Udp && ends(other) == ends(link));
    let is_told = plan.controller.is_some() && is_router(plan, link.a) && is_router(plan, link.b);
    link.transport == Transport::Udp && (is_shaped(link) || is_cut || has_twin || is_told)
}

/// Whether a node is a router.
pub(super) fn is_router(plan: &Plan, node: usize) -> bool {
    matches!(plan.nodes[node].role, Role::Router(_))
}

/// Whether a node is a consumer or producer with its own process.
pub(super) fn is_app(plan: &Plan, node: usize) -> bool {
    !is_router(plan, node) && !is_agents(plan, node)
}

/// Whether a node stands for the prefetches of a router's agent.
pub(super) fn is_agents(plan: &Plan, node: usize) -> bool {
    matches!(&plan.nodes[node].role, Role::Consumer(consumer) if consumer.prefetches)
}

/// Whether a router serves hosts without their own router.
pub(super) fn has_hosts(plan: &Plan, router: usize) -> bool {
    links_of(plan, router).into_iter().any(|(link, other)| {
        let is_consumer = matches!(plan.nodes[other].role, Role::Consumer(_));
        is_consumer && plan.links[link].transport == Transport::Udp
    })
}

pub(super) fn disk(plan: &Plan, node: usize) -> Option<&DiskPlan> {
    match &plan.nodes.get(node)?.role {
        Role::Router(router) => router.disk.as_ref(),
        Role::Consumer(_) | Role::Producer(_) => None,
    }
}

/// The links of a node, each with the node at the other end. A consumer's paths are numbered in
/// this order.
pub(super) fn links_of(plan: &Plan, node: usize) -> Vec<(usize, usize)> {
    let links = plan.links.iter().enumerate();
    let others = links.filter_map(|(index, link)| match (link.a == node, link.b == node) {
        (true, _) => Some((index, link.b)),
        (_, true) => Some((index, link.a)),
        _ => None,
    });
    others.collect()
}

/// Rejects plans that the real arm cannot run.
pub(super) fn check(plan: &Plan) -> Result<(), RealError> {
    let refuse = |what: String| Err(RealError::Unsupported(what));
    if plan.nodes.is_empty() {
        return refuse("it has no nodes".into());
    }
    if let Some(controller) = &plan.controller {
        check_controller(plan, controller)?;
    }
    for (index, link) in plan.links.iter().enumerate() {
        check_link(plan, index, link)?;
    }
    for (index, node) in plan.nodes.iter().enumerate() {
        if !is_router(plan, index) {
            check_app(plan, index)?;
        }
        if let Role::Router(router) = &node.role
            && !(0.0..=1.0).contains(&router.store_filled)
        {
            return refuse(format!(
                "node `{}`: `store_filled` is {}; write a fraction from 0 to 1",
                node.name, router.store_filled
            ));
        }
        if disk(plan, index).is_some_and(|disk| disk.shared_as.is_some()) {
            return refuse(format!(
                "node `{}` shares its disk, but each process paces only its own disk; use --arm \
                 sim",
                node.name
            ));
        }
        if let Some(what) = disk(plan, index).and_then(|disk| disks::unsupported(&disk.device)) {
            return refuse(format!(
                "the disks of node `{}` have {what}, but real disks can only be paced",
                node.name
            ));
        }
    }
    for (index, route) in plan.routes.iter().enumerate() {
        let touches =
            plan.links.get(route.link).is_some_and(|link| [link.a, link.b].contains(&route.node));
        if !touches || !is_router(plan, route.node) {
            return refuse(format!(
                "route {index} of `{}` must be at a router and leave by a link of that router",
                route.prefix
            ));
        }
    }
    plan.faults.iter().try_for_each(|planned| check_fault(plan, &planned.fault))?;
    check_overlaps(plan)
}

/// Rejects plans that a real controller cannot run.
fn check_controller(plan: &Plan, controller: &ControllerPlan) -> Result<(), RealError> {
    let refuse =
        |what: String| Err(RealError::Unsupported(format!("{what}; run it with --arm sim")));
    if controller.agents || controller.routes.is_some() {
        return refuse(
            "its routers create faces to routers that are not neighbours, or get routes from the \
             controller, but processes have only the links of the plan"
                .into(),
        );
    }
    for (index, node) in plan.nodes.iter().enumerate() {
        let is_letter = |octet: u8| octet.is_ascii_alphanumeric() || b"._-".contains(&octet);
        let is_name = (1..=64).contains(&node.name.len()) && node.name.bytes().all(is_letter);
        if is_router(plan, index) && !is_name {
            return refuse(format!(
                "a controller accepts router names of 1 to 64 characters A-Z a-z 0-9 . _ -, and \
                 not `{}`",
                node.name
            ));
        }
        let mut links = links_of(plan, index).into_iter();
        let is_behind = links.any(|(link, _)| plan.links[link].transport != Transport::Unix);
        if matches!(node.role, Role::Producer(_)) && is_behind {
            return refuse(format!(
                "a router reports only producers on its own machine to a controller, but `{}` is \
                 behind a link",
                node.name
            ));
        }
    }
    let is_stream = |link: &LinkPlan| {
        is_router(plan, link.a) && is_router(plan, link.b) && link.transport != Transport::Udp
    };
    match plan.links.iter().position(is_stream) {
        Some(link) => refuse(format!(
            "link {link} connects two routers with a controller, so it must be `udp`"
        )),
        None => Ok(()),
    }
}

/// Rejects links that consumers and producers cannot have.
fn check_app(plan: &Plan, node: usize) -> Result<(), RealError> {
    let refuse = |what: &str| {
        let name = &plan.nodes[node].name;
        Err(RealError::Unsupported(format!("node `{name}` {what}; run it with --arm sim")))
    };
    let links = links_of(plan, node);
    let is_any = |is: fn(&LinkPlan) -> bool| links.iter().any(|&(link, _)| is(&plan.links[link]));
    if links.is_empty() || links.iter().any(|&(_, other)| !is_router(plan, other)) {
        return refuse("must have links, to routers alone");
    }
    if is_any(|link| link.reliability) {
        return refuse("has a link with `reliability`, which only routers support");
    }
    if links.len() > 1 && is_any(|link| link.transport != Transport::Udp) {
        return refuse("has several links, so all must be `udp`");
    }
    if links.len() > 1 && !matches!(plan.nodes[node].role, Role::Consumer(_)) {
        return refuse("has several links, which only consumers support");
    }
    Ok(())
}

/// Faults of one link or router must not overlap, because a process has only one state of being
/// down.
fn check_overlaps(plan: &Plan) -> Result<(), RealError> {
    let target = |fault: &Fault| match *fault {
        Fault::LinkDown { link, .. }
        | Fault::LinkSlow { link, .. }
        | Fault::WrongBytes { link, .. } => ("link", link),
        Fault::Crash { node, .. }
        | Fault::StoreStall { node, .. }
        | Fault::DiskStall { node, .. }
        | Fault::DiskErrors { node, .. }
        | Fault::DiskDamage { node, .. }
        | Fault::DiskFull { node, .. } => ("node", node),
    };
    let end_ns = |planned: &FaultPlan| planned.at_ns.saturating_add(planned.fault.for_ns());
    for (index, one) in plan.faults.iter().enumerate() {
        for other in &plan.faults[..index] {
            let is_same = target(&one.fault) == target(&other.fault);
            if is_same && one.at_ns <= end_ns(other) && other.at_ns <= end_ns(one) {
                let (kind, number) = target(&one.fault);
                let what = format!(
                    "two faults of {kind} {number} overlap; end one before the other begins"
                );
                return Err(RealError::Unsupported(what));
            }
        }
    }
    Ok(())
}

fn check_link(plan: &Plan, index: usize, link: &LinkPlan) -> Result<(), RealError> {
    let refuse = |what: &str| Err(RealError::Unsupported(format!("link {index} {what}")));
    if link.a >= plan.nodes.len() || link.b >= plan.nodes.len() || link.a == link.b {
        return refuse("must connect two nodes of the plan");
    }
    if is_shaped(link) && link.transport != Transport::Udp {
        return refuse("is not ideal, but only UDP passes through the link emulator; write `udp`");
    }
    let is_between_routers = is_router(plan, link.a) && is_router(plan, link.b);
    if is_between_routers && link.transport == Transport::Unix {
        return refuse("connects two routers over a Unix socket; write `udp` or `tcp`");
    }
    if !is_between_routers && link.packets == LinkPackets::Hicn {
        return refuse("has hICN packets, which the laboratory has only between routers");
    }
    Ok(())
}

fn check_fault(plan: &Plan, fault: &Fault) -> Result<(), RealError> {
    let refuse = |what: String| Err(RealError::Unsupported(what));
    match *fault {
        Fault::LinkDown { link, .. } => match plan.links.get(link) {
            Some(found) if found.transport == Transport::Udp => Ok(()),
            Some(_) => refuse(format!("link {link} goes down, which needs `udp`")),
            None => refuse(format!("a fault takes down link {link}, which does not exist")),
        },
        Fault::LinkSlow { link, .. } => match plan.links.get(link) {
            Some(found) if found.transport == Transport::Udp => Ok(()),
            _ => refuse(format!("link {link} slows down, which needs `udp`")),
        },
        Fault::Crash { node, .. } => {
            if node >= plan.nodes.len() || !is_router(plan, node) {
                return refuse(format!("node {node} crashes, but it is not a router of the plan"));
            }
            let has_stream_between_routers = plan.links.iter().any(|link| {
                [link.a, link.b].contains(&node)
                    && link.transport != Transport::Udp
                    && is_router(plan, link.a)
                    && is_router(plan, link.b)
            });
            if has_stream_between_routers {
                return refuse(format!(
                    "router `{}` crashes, so its links to other routers must be `udp`",
                    plan.nodes[node].name
                ));
            }
            Ok(())
        }
        Fault::StoreStall { node, .. } if disk(plan, node).is_none() => {
            refuse("only the simulator can stall a store without a disk".to_owned())
        }
        Fault::DiskStall { node, disk: at, .. }
            if disk(plan, node).is_none_or(|disk| at >= disk.disks) =>
        {
            refuse(format!("disk {at} of node {node} stalls, but it does not exist"))
        }
        Fault::StoreStall { .. } | Fault::DiskStall { .. } => Ok(()),
        Fault::WrongBytes { .. } => {
            refuse("only the simulator can flip bytes on a link".to_owned())
        }
        Fault::DiskErrors { .. } | Fault::DiskDamage { .. } | Fault::DiskFull { .. } => {
            refuse("only the simulator has disk faults other than stalls".to_owned())
        }
    }
}
