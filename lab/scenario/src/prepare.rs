//! Turns a scenario, at one size and one point of its sweep, into a [`Plan`].

use std::collections::BTreeMap;

use weir_plan::{LinkPackets, Plan};
use weir_topology::Topology;

use crate::apps;
use crate::document::{ScenarioError, Tree};
use crate::file::File;
use crate::folder::Folder;
use crate::links::LinkSettings;
use crate::network::{Builder, controller};
use crate::times::{WarmUp, times};
use crate::topology::topology;
use crate::trial::Trial;

/// One run.
#[derive(Clone, Debug)]
pub struct Prepared {
    /// The plan, for either arm.
    pub plan: Plan,
    /// Nodes of the plan by group: `routers`, `producers`, `consumers`, and the ids of groups.
    pub groups: BTreeMap<String, Vec<usize>>,
    /// The topology, without the consumers and producers that the scenario adds.
    pub topology: Topology,
    /// Time at the start that is not measured.
    pub warm_up: WarmUp,
    /// What is measured at its routers instead of consumers and producers.
    pub trial: Option<Trial>,
}

/// Creates the plan of a scenario whose size and sweep point are chosen.
pub(crate) fn prepare(tree: &Tree, folder: &Folder, seed: u64) -> Result<Prepared, ScenarioError> {
    let file: File = tree.read()?;
    let times = times(tree, &file.run)?;
    let topology = topology(tree, folder, seed)?;
    let mut builder = Builder::new(tree, topology, seed);
    builder.routers()?;
    builder.links(file.link.as_ref())?;
    let access = match &file.access {
        Some(table) => {
            LinkSettings::local().with(table).map_err(|message| tree.error("access", message))?
        }
        None => LinkSettings::local(),
    };
    let producers = apps::producers(tree, &file.producer, &access, folder)?;
    let consumers = apps::consumers(tree, &file.consumer, &access, folder)?;
    check_apps(tree, file.trial.as_ref(), producers.len(), consumers.len())?;
    let controller = controller::plan(tree, file.controller.as_ref(), &consumers)?;
    builder.producers(&producers)?;
    builder.consumers(&producers, &consumers)?;
    builder.routes(&file.routes, &file.route)?;
    if let Some(trial) = &file.trial {
        builder.trial_links(trial);
    }
    builder.store_capacities()?;
    let faults = builder.faults(&file.fault, times)?;
    let lifetime_ms = consumers.iter().map(|group| group.lifetime_ms).max().unwrap_or(0);
    // By default, the last Interests can expire, with a second to spare.
    let drain_ns = times.drain_ns.unwrap_or(lifetime_ms * 1_000_000 + 1_000_000_000);
    Ok(Prepared {
        plan: Plan {
            seed,
            duration_ns: times.duration_ns,
            drain_ns,
            sample_ns: times.sample_ns,
            nodes: builder.nodes,
            links: builder.links,
            routes: builder.routes,
            faults,
            controller,
        },
        groups: builder.groups,
        topology: builder.topology,
        warm_up: times.warm_up,
        trial: file.trial,
    })
}

/// A scenario has either consumers, or a trial without consumers and producers.
fn check_apps(
    tree: &Tree,
    trial: Option<&Trial>,
    producers: usize,
    consumers: usize,
) -> Result<(), ScenarioError> {
    match trial {
        None if consumers == 0 => {
            Err(tree.error("", "there is no consumer; write at least one [[consumer]]"))
        }
        Some(_) if producers + consumers > 0 => {
            let message = "replaces [[producer]] and [[consumer]]; remove them";
            Err(tree.error("trial", message))
        }
        Some(
            Trial { transfers: 0, .. } | Trial { count: 0, .. } | Trial { subscribers: 0, .. },
        ) => {
            let message = "measures nothing; write at least 1 for `transfers`, `count` and \
                `subscribers`";
            Err(tree.error("trial", message))
        }
        Some(trial) if trial.size.bytes == 0 => {
            Err(tree.error("trial", "measures nothing; write at least 1 for `size`"))
        }
        Some(trial) if trial.packets == LinkPackets::Hicn && !trial.what.maps_names() => {
            let message = "`packets = \"hicn\"` is only for `what` of \"transfer\", \"answers\" \
                and \"video\"";
            Err(tree.error("trial", message))
        }
        Some(trial) if trial.late > 100 => {
            Err(tree.error("trial", "`late` is a percentage; write 0 to 100"))
        }
        Some(Trial { video, .. }) if let Some(message) = video.invalid() => {
            Err(tree.error("trial.video", message))
        }
        _ => Ok(()),
    }
}
