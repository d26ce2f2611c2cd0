//! From a scenario to a [`Plan`].

mod controller;
mod faults;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::num::NonZeroU64;

use serde::Deserialize;
use weir_base::Rng;
use weir_base::units::Time;
use weir_plan::workload::{Collection, Names, ProducerPlan};
use weir_plan::{LinkPlan, NodePlan, Plan, Role, RoutePlan};
use weir_topology::generate::{Generator, LinkDefaults};
use weir_topology::{Metric, ReadOptions, RoutePlanner, Topology};

pub(super) use self::controller::ControllerTable;
pub(super) use self::faults::FaultTable;
use super::File;
use super::apps::{self, ConsumerGroup, ProducerGroup};
use super::disk;
use super::links::{LinkSettings, LinkTable};
use super::router::{self, RouterSettings};
use crate::document::{Node, ScenarioError, Tree, suggestion, texts};
use crate::folder::Folder;
use crate::metric::WarmUp;
use crate::real::trial::Trial;

/// `[run]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(expecting = "a table", deny_unknown_fields)]
pub(super) struct RunTable {
    duration: Time,
    drain: Option<Time>,
    warm_up: Option<WarmUpWord>,
    sample: Option<Time>,
    pub(super) seeds: Option<Seeds>,
    pub(super) seed: Option<u64>,
}

/// What is left out at the start of a run.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(untagged, expecting = "write a time such as \"200ms\", or \"auto\"")]
enum WarmUpWord {
    Auto(Auto),
    Time(Time),
}

/// `"auto"`.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Auto {
    Auto,
}

/// How many seeds, or which.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, expecting = "write a number of seeds, or a list of whole numbers")]
pub(super) enum Seeds {
    Count(NonZeroU64),
    List(Vec<u64>),
}

/// `[topology]`; the parameters of a generator stand beside these.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(expecting = "a table", deny_unknown_fields, default)]
pub(super) struct TopologyTable {
    builtin: Option<String>,
    file: Option<String>,
    generator: Option<String>,
    delay_from_distance: bool,
    positions: BTreeMap<String, (f64, f64)>,
    seed: Option<u64>,
}

/// `[routes]`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(expecting = "a table", deny_unknown_fields, default)]
pub(super) struct RoutesTable {
    metric: MetricWord,
    only_given: bool,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum MetricWord {
    #[default]
    Delay,
    Cost,
    Hops,
}

/// `[[route]]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(expecting = "a table", deny_unknown_fields)]
pub(super) struct RouteTable {
    at: String,
    to: String,
    prefix: Option<String>,
    of: Option<String>,
    objects: Option<Vec<(u64, u64)>>,
    #[serde(default)]
    cost: u64,
}

/// The key of `[[routers]]` beside those of a router.
#[derive(Deserialize)]
#[serde(expecting = "a table", deny_unknown_fields)]
struct Selected {
    #[serde(deserialize_with = "texts")]
    at: Vec<String>,
}

/// What one run consists of.
#[derive(Clone, Debug)]
pub struct Prepared {
    /// The plan for either arm.
    pub plan: Plan,
    /// Nodes of the plan by group: `routers`, `producers`, `consumers`, and the ids of groups.
    pub groups: BTreeMap<String, Vec<usize>>,
    /// The topology, without the consumers and producers that the scenario adds.
    pub topology: Topology,
    /// What is not measured at the start.
    pub warm_up: WarmUp,
    /// What is measured at its routers, in the place of consumers and producers.
    pub trial: Option<Trial>,
}

/// Times of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    pub(super) duration_ns: u64,
    pub(super) warm_up: WarmUp,
    pub(super) sample_ns: u64,
    drain_ns: Option<u64>,
}

pub(super) fn times(tree: &Tree, run: &RunTable) -> Result<Times, ScenarioError> {
    let duration_ns = run.duration.ns;
    let warm_up = match run.warm_up {
        None => WarmUp::Fixed(0),
        Some(WarmUpWord::Auto(Auto::Auto)) => WarmUp::Auto,
        Some(WarmUpWord::Time(time)) => WarmUp::Fixed(time.ns),
    };
    if duration_ns == 0 {
        let message = "a run of no time measures nothing; write for example \"10s\"";
        return Err(tree.error("run.duration", message));
    }
    if matches!(warm_up, WarmUp::Fixed(ns) if ns >= duration_ns) {
        let message = "the warm-up takes the whole duration; leave some of it to be measured";
        return Err(tree.error("run.warm_up", message));
    }
    let sample_ns = run.sample.map_or(duration_ns / 100, |time| time.ns);
    if sample_ns > 0 && duration_ns / sample_ns > 1_000_000 {
        let message = "more than a million samples in a run; write a longer `sample`";
        return Err(tree.error("run.sample", message));
    }
    Ok(Times { duration_ns, warm_up, sample_ns, drain_ns: run.drain.map(|time| time.ns) })
}

/// Makes the plan of a scenario whose size and sweep point are settled.
pub(super) fn prepare(tree: &Tree, folder: &Folder, seed: u64) -> Result<Prepared, ScenarioError> {
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
    if file.trial.is_some() {
        builder.trial_routes();
    }
    builder.store_capacities()?;
    let faults = builder.faults(&file.fault, times)?;
    let lifetime_ms = consumers.iter().map(|group| group.lifetime_ms).max().unwrap_or(0);
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

/// A scenario has consumers, or a trial and neither consumers nor producers.
fn check_apps(
    tree: &Tree,
    trial: Option<&Trial>,
    producers: usize,
    consumers: usize,
) -> Result<(), ScenarioError> {
    match trial {
        None if consumers == 0 => {
            Err(tree.error("", "no consumer asks for anything; write at least one [[consumer]]"))
        }
        Some(_) if producers + consumers > 0 => {
            let message = "stands in the place of [[producer]] and [[consumer]]; leave them out";
            Err(tree.error("trial", message))
        }
        Some(
            Trial { transfers: 0, .. } | Trial { count: 0, .. } | Trial { subscribers: 0, .. },
        ) => {
            let message = "measures nothing: `transfers`, `count` and `subscribers` are 1 at least";
            Err(tree.error("trial", message))
        }
        Some(trial) if trial.size.bytes == 0 => {
            Err(tree.error("trial", "measures nothing: `size` is 1 at least"))
        }
        Some(trial) if trial.late > 100 => {
            Err(tree.error("trial", "`late` is a share of a hundred"))
        }
        _ => Ok(()),
    }
}

fn topology(tree: &Tree, folder: &Folder, seed: u64) -> Result<Topology, ScenarioError> {
    let node = tree.root.at("topology").unwrap_or(&tree.root);
    let (own, parameters) = node.split::<TopologyTable>();
    let table: TopologyTable = tree.read_at("topology", &own)?;
    if table.generator.is_none() {
        // Refuses what else is there.
        tree.read_at::<TopologyTable>("topology", node)?;
    }
    let options = ReadOptions {
        delay_from_distance: table.delay_from_distance,
        positions: table.positions.clone(),
        ..ReadOptions::default()
    };
    let topology = match (&table.builtin, &table.file, &table.generator) {
        (Some(name), None, None) => Topology::builtin(name).ok_or_else(|| {
            let names: Vec<&str> = weir_topology::builtin_names().collect();
            let message = format!("cannot be \"{name}\"; {}", suggestion(name, &names));
            tree.error("topology.builtin", message)
        })?,
        (None, Some(file), None) => {
            let text = folder.read(file).map_err(|message| tree.error("topology.file", message))?;
            Topology::parse(&text, file, &options).map_err(|error| {
                let text = error.to_string();
                let line = error.line();
                let place = line.map_or(format!("{file}: "), |line| format!("{file}:{line}: "));
                let message = text.strip_prefix(&place).unwrap_or(&text).to_owned();
                ScenarioError { file: file.to_owned(), line, message }
            })?
        }
        (None, None, Some(kind)) => {
            let line = own.at("generator").map_or(own.line, |node| node.line);
            let choice = Node::choice(kind, parameters, line);
            let generator: Generator = tree.read_at("topology.generator", &choice)?;
            generator
                .generate(&LinkDefaults::default(), table.seed.unwrap_or(seed))
                .map_err(|error| tree.error("topology", error.to_string()))?
        }
        _ => {
            let message = "[topology] has exactly one of `builtin`, `file` and `generator`";
            return Err(tree.error("topology", message));
        }
    };
    if table.file.is_none() && !table.positions.is_empty() {
        let message = "positions are for the nodes of a `file`; leave them out";
        return Err(tree.error("topology.positions", message));
    }
    if let Some(name) = table.positions.keys().find(|name| topology.index_of(name).is_none()) {
        let message = format!("the topology's file has no node \"{name}\"; leave it out");
        return Err(tree.error("topology.positions", message));
    }
    if topology.nodes().is_empty() {
        return Err(tree.error("topology", "the topology has no nodes"));
    }
    let parts = topology.components();
    if parts.len() > 1 {
        let name = &topology.nodes()[parts[1][0]].name;
        let message = format!(
            "the topology is in {} parts that no link joins; node \"{name}\" cannot reach the \
                first one. Choose a connected topology",
            parts.len()
        );
        return Err(tree.error("topology", message));
    }
    Ok(topology)
}

/// A plan as it grows.
struct Builder<'a> {
    tree: &'a Tree,
    topology: Topology,
    seed: u64,
    nodes: Vec<NodePlan>,
    links: Vec<LinkPlan>,
    routes: Vec<RoutePlan>,
    groups: BTreeMap<String, Vec<usize>>,
    settings: Vec<RouterSettings>,
    /// For each node of the topology its index in the plan, for those that route.
    router_of: Vec<Option<usize>>,
    /// For each link of the topology its index in the plan, for those between routers.
    link_of: Vec<Option<usize>>,
    /// Settings of links between routers and hosts of the topology.
    host_links: Vec<LinkSettings>,
    /// Prefix, router of the topology it is attached to, the plan's link to it.
    attached: Vec<(String, usize, usize)>,
    /// For each group of producers the prefixes.
    prefixes: BTreeMap<String, Vec<String>>,
}

impl<'a> Builder<'a> {
    fn new(tree: &'a Tree, topology: Topology, seed: u64) -> Self {
        let mut router_of = Vec::new();
        let mut next = 0;
        for node in topology.nodes() {
            let is_router = node.role == weir_topology::Role::Router;
            router_of.push(is_router.then_some(next));
            next += usize::from(is_router);
        }
        let link_of = vec![None; topology.links().len()];
        Self {
            tree,
            seed,
            nodes: Vec::new(),
            links: Vec::new(),
            routes: Vec::new(),
            groups: BTreeMap::new(),
            settings: Vec::new(),
            router_of,
            link_of,
            host_links: Vec::new(),
            attached: Vec::new(),
            prefixes: BTreeMap::new(),
            topology,
        }
    }

    fn routers(&mut self) -> Result<(), ScenarioError> {
        let tree = self.tree;
        let none = Node::empty_table();
        let base = tree.root.at("router").unwrap_or(&none);
        let common = router::read(tree, "router", base)?;
        let mut nodes = vec![base.clone(); self.topology.nodes().len()];
        let mut settings = vec![common; nodes.len()];
        let mut paths = vec!["router".to_owned(); nodes.len()];
        for (at, over) in tree.root.at("routers").into_iter().flat_map(Node::items).enumerate() {
            let path = format!("routers[{at}]");
            let (own, over) = over.split::<Selected>();
            let Selected { at } = tree.read_at(&path, &own)?;
            for node in self.select(&format!("{path}.at"), &at)? {
                nodes[node] = nodes[node].merged(&over);
                settings[node] = router::read(tree, &path, &nodes[node])?;
                paths[node].clone_from(&path);
            }
        }
        for (node, one) in settings.iter().enumerate() {
            for (other, two) in settings[..node].iter().enumerate() {
                if let Some(key) = one.plan.conflict_with(&two.plan) {
                    let name = &self.topology.nodes()[other].name;
                    let message = format!("is not that of \"{name}\", which shares it");
                    return Err(tree.error(&format!("{}.{key}", paths[node]), message));
                }
            }
        }
        let mut indices = Vec::new();
        for (node, settings) in settings.into_iter().enumerate() {
            if self.router_of[node].is_some() {
                let name = self.topology.nodes()[node].name.clone();
                indices.push(self.nodes.len());
                self.nodes.push(NodePlan { name, role: Role::Router(settings.plan.clone()) });
                self.settings.push(settings);
            }
        }
        if indices.is_empty() {
            let message = "the topology has no routers, only hosts; give at least one node the \
                           role of a router";
            return Err(tree.error("topology", message));
        }
        self.groups.insert("routers".into(), indices);
        Ok(())
    }

    /// Links of the topology: what `[link]` says holds for all of them.
    /// From the first router on towards the last one, where the producers of a trial are.
    fn trial_routes(&mut self) {
        let links = self.links.iter().enumerate();
        let prefix = crate::real::trial::PREFIX;
        self.routes.extend(links.map(|(link, ends)| RoutePlan {
            node: ends.a.min(ends.b),
            prefix: prefix.to_owned(),
            link,
            cost: 0,
        }));
    }

    fn links(&mut self, table: Option<&LinkTable>) -> Result<(), ScenarioError> {
        let mut all = Vec::new();
        for link in self.topology.links() {
            let mut settings = LinkSettings::default();
            let config = &mut settings.config;
            config.rate_bps = link.rate_bps;
            config.delay_ns = link.delay_ns;
            if link.loss > 0.0 {
                config.loss = weir_netem::Loss::Independent { probability: link.loss };
            }
            if link.jitter_ns > 0 {
                config.jitter = weir_netem::Jitter::Uniform { max_ns: link.jitter_ns };
            }
            config.queue_packets_max = link.queue_packets_max.unwrap_or(config.queue_packets_max);
            config.queue_bytes_max = link.queue_bytes_max.unwrap_or(config.queue_bytes_max);
            if let Some(table) = table {
                settings =
                    settings.with(table).map_err(|message| self.tree.error("link", message))?;
            }
            all.push(settings);
        }
        let (delays, costs): (Vec<u64>, Vec<Option<u32>>) =
            all.iter().map(|settings| (settings.config.delay_ns, settings.cost)).unzip();
        let edited = self.topology.edit_links(|index, link| {
            link.delay_ns = delays[index];
            link.cost = costs[index].unwrap_or(link.cost);
        });
        if let (Err(error), Some(_)) = (edited, table) {
            return Err(self.tree.error("link", error.to_string()));
        }
        for (index, link) in self.topology.links().iter().enumerate() {
            if let (Some(a), Some(b)) = (self.router_of[link.a], self.router_of[link.b]) {
                self.link_of[index] = Some(self.links.len());
                self.links.push(plan_link(a, b, &all[index]));
            }
        }
        self.host_links = all;
        Ok(())
    }

    /// The nodes of the topology that `words` select, in the order of the words.
    fn select(&self, path: &str, words: &[String]) -> Result<Vec<usize>, ScenarioError> {
        let nodes = self.topology.nodes();
        let mut degree = vec![0usize; nodes.len()];
        for link in self.topology.links() {
            degree[link.a] += 1;
            degree[link.b] += 1;
        }
        let routers = || (0..nodes.len()).filter(|node| self.router_of[*node].is_some());
        let with_role = |role| (0..nodes.len()).filter(move |node| nodes[*node].role == role);
        let mut selected = Vec::new();
        for word in words {
            let before = selected.len();
            match word.as_str() {
                "all" => selected.extend(routers()),
                "first" => selected.extend(routers().next()),
                "last" => selected.extend(routers().next_back()),
                "leaves" => selected.extend(routers().filter(|node| degree[*node] == 1)),
                "inner" => selected.extend(routers().filter(|node| degree[*node] > 1)),
                "producers" => selected.extend(with_role(weir_topology::Role::Producer)),
                "consumers" => selected.extend(with_role(weir_topology::Role::Consumer)),
                name => match (self.topology.index_of(name), name.strip_prefix("random ")) {
                    (Some(node), _) => selected.push(node),
                    (None, Some(count)) => {
                        selected.extend(
                            self.random(count.trim().parse().unwrap_or(0), self.tree.line(path)),
                        );
                    }
                    (None, None) => return Err(self.no_node(path, name)),
                },
            }
            if selected.len() == before {
                let message = format!("\"{word}\" selects no node of this topology");
                return Err(self.tree.error(path, message));
            }
        }
        Ok(selected)
    }

    fn no_node(&self, path: &str, name: &str) -> ScenarioError {
        let mut known = vec!["all", "first", "last", "leaves", "inner", "producers", "consumers"];
        known.extend(self.topology.nodes().iter().take(40).map(|node| node.name.as_str()));
        let remedy = suggestion(name, &known);
        let message = format!("the topology has no node \"{name}\"; {remedy}, or \"random 3\"");
        self.tree.error(path, message)
    }

    /// `count` different routers; the line of the file makes each selection one of its own.
    fn random(&self, count: usize, line: usize) -> Vec<usize> {
        let mut routers: Vec<usize> =
            (0..self.router_of.len()).filter(|node| self.router_of[*node].is_some()).collect();
        let mut rng = Rng::from_seed(self.seed ^ (line as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let count = count.min(routers.len());
        for at in 0..count {
            let other = at + rng.below((routers.len() - at) as u32) as usize;
            routers.swap(at, other);
        }
        routers.truncate(count);
        routers.sort_unstable();
        routers
    }

    /// Adds a consumer or producer at a node of the topology, and returns its index, the router of
    /// the topology it is attached to, and its link.
    fn attach(
        &mut self,
        path: &str,
        node: usize,
        app: NodePlan,
        link: &LinkSettings,
    ) -> Result<(usize, usize, usize), ScenarioError> {
        let index = self.nodes.len();
        let (router, settings) = if self.router_of[node].is_some() {
            (node, link.clone())
        } else {
            let host = &self.topology.nodes()[node].name;
            let Some(own) = self.links_of_host(node).next() else {
                let message = format!("host \"{host}\" has no link; link it to a router");
                return Err(self.tree.error(path, message));
            };
            let router = self.topology.links()[own].other(node);
            if self.router_of[router].is_none() {
                let message =
                    format!("host \"{host}\" is linked to another host; link it to a router");
                return Err(self.tree.error(path, message));
            }
            (router, self.host_links[own].clone())
        };
        let at = self.router_of[router].unwrap_or_default();
        if self.nodes.iter().any(|other| other.name == app.name) {
            let message =
                format!("two nodes would be called \"{}\"; give the group another `id`", app.name);
            return Err(self.tree.error(path, message));
        }
        self.nodes.push(app);
        self.links.push(plan_link(at, index, &settings));
        Ok((index, router, self.links.len() - 1))
    }

    /// Links of the topology that end at `node`, in the order of its file.
    fn links_of_host(&self, node: usize) -> impl Iterator<Item = usize> {
        let links = self.topology.links();
        (0..links.len()).filter(move |&at| [links[at].a, links[at].b].contains(&node))
    }

    /// Refuses a host with a link, beside its first one, that no path of its consumer takes.
    fn check_host(
        &self,
        path: &str,
        place: usize,
        paths: &[(String, LinkSettings)],
    ) -> Result<(), ScenarioError> {
        if self.router_of[place].is_some() {
            return Ok(());
        }
        let name = |at: usize| &self.topology.nodes()[self.topology.links()[at].other(place)].name;
        let is_unused = |&at: &usize| !paths.iter().any(|(to, _)| to == name(at));
        match self.links_of_host(place).skip(1).find(is_unused) {
            None => Ok(()),
            Some(at) => {
                let message = format!(
                    "host \"{}\" has a link to \"{}\" that nothing uses; name it in a \
                     [[consumer.path]], or take it out of the topology",
                    self.topology.nodes()[place].name,
                    name(at)
                );
                Err(self.tree.error(path, message))
            }
        }
    }

    /// Gives a consumer at `place` a further link, to another router: that of the topology where a
    /// host has one.
    fn attach_also(
        &mut self,
        path: &str,
        (consumer, place): (usize, usize),
        to: &str,
        link: &LinkSettings,
    ) -> Result<(), ScenarioError> {
        let path = format!("{path}.path");
        let router = self.plan_node(&path, to)?;
        if !matches!(self.nodes[router].role, Role::Router(_)) {
            return Err(self.tree.error(&path, format!("\"{to}\" is no router")));
        }
        if self.link_between(router, consumer).is_some() {
            let message = format!("leads to \"{to}\" twice; name another router");
            return Err(self.tree.error(&path, message));
        }
        let is_host = self.router_of[place].is_none();
        let leads_there =
            |at: &usize| self.router_of[self.topology.links()[*at].other(place)] == Some(router);
        let own = self.links_of_host(place).find(|at| is_host && leads_there(at));
        let link = plan_link(router, consumer, own.map_or(link, |at| &self.host_links[at]));
        self.links.push(link);
        Ok(())
    }

    fn producers(&mut self, groups: &[ProducerGroup]) -> Result<(), ScenarioError> {
        let mut members = Vec::new();
        for group in groups {
            let path = format!("{}.at", group.path);
            let places = self.places(&path, &group.at, group.per_node)?;
            let mut prefixes = Vec::new();
            let mut own = Vec::new();
            for (index, place) in places.iter().enumerate() {
                let prefix = group.prefix(index, places.len());
                let name = app_name(&group.id, index, places.len());
                let app = NodePlan { name, role: Role::Producer(group.plan(&prefix)) };
                let (node, router, link) = self.attach(&path, *place, app, &group.link)?;
                self.check_host(&path, *place, &[])?;
                self.attached.push((prefix.clone(), router, link));
                prefixes.push(prefix);
                own.push(node);
            }
            members.extend_from_slice(&own);
            if self.groups.insert(group.id.clone(), own).is_some() {
                return Err(self.same_id(&group.path, &group.id));
            }
            self.prefixes.insert(group.id.clone(), prefixes);
        }
        self.groups.insert("producers".into(), members);
        Ok(())
    }

    fn same_id(&self, path: &str, id: &str) -> ScenarioError {
        let message = format!("\"{id}\" names two groups of nodes; give each an `id` of its own");
        self.tree.error(&format!("{path}.id"), message)
    }

    fn places(
        &self,
        path: &str,
        at: &[String],
        per_node: u64,
    ) -> Result<Vec<usize>, ScenarioError> {
        let nodes = self.select(path, at)?;
        if nodes.len() as u64 * per_node > 1_000_000 {
            let message = "more than a million consumers or producers; write fewer";
            return Err(self.tree.error(path, message));
        }
        Ok(nodes.iter().flat_map(|node| std::iter::repeat_n(*node, per_node as usize)).collect())
    }

    fn consumers(
        &mut self,
        producers: &[ProducerGroup],
        groups: &[ConsumerGroup],
    ) -> Result<(), ScenarioError> {
        let ids: Vec<&str> = producers.iter().map(|group| group.id.as_str()).collect();
        let mut members = Vec::new();
        for group in groups {
            let Some(of) = producers.iter().find(|producers| producers.id == group.of) else {
                let message = format!(
                    "no [[producer]] has the id \"{}\"; {}",
                    group.of,
                    suggestion(&group.of, &ids)
                );
                return Err(self.tree.error(&format!("{}.of", group.path), message));
            };
            let prefixes = self.prefixes.get(&of.id).cloned().unwrap_or_default();
            let turns = group.spread.unwrap_or(prefixes.len() as u64);
            if turns > prefixes.len() as u64 {
                let message = format!(
                    "`spread` is {turns}, but group \"{}\" has {} producers; write at most that",
                    of.id,
                    prefixes.len()
                );
                return Err(self.tree.error(&format!("{}.spread", group.path), message));
            }
            let path = format!("{}.at", group.path);
            let places = self.places(&path, &group.at, group.per_node)?;
            let mut own = Vec::new();
            for (index, place) in places.iter().enumerate() {
                let prefix = &prefixes[index % turns as usize];
                let name = app_name(&group.id, index, places.len());
                let plan = group
                    .plan(index, of, prefix, self.seed)
                    .map_err(|error| self.tree.error(&group.path, error.to_string()))?;
                let app = NodePlan { name, role: Role::Consumer(plan) };
                let consumer = self.attach(&path, *place, app, &group.link)?.0;
                for (to, link) in &group.paths {
                    self.attach_also(&group.path, (consumer, *place), to, link)?;
                }
                self.check_host(&path, *place, &group.paths)?;
                own.push(consumer);
            }
            members.extend_from_slice(&own);
            if self.groups.insert(group.id.clone(), own).is_some() {
                return Err(self.same_id(&group.path, &group.id));
            }
        }
        self.groups.insert("consumers".into(), members);
        Ok(())
    }

    /// Shortest paths to every producer, then those that the file gives.
    fn routes(&mut self, table: &RoutesTable, given: &[RouteTable]) -> Result<(), ScenarioError> {
        if !table.only_given {
            self.shortest(match table.metric {
                MetricWord::Delay => Metric::Delay,
                MetricWord::Cost => Metric::Cost,
                MetricWord::Hops => Metric::Hops,
            });
        }
        for (at, route) in given.iter().enumerate() {
            self.given(&format!("route[{at}]"), route)?;
        }
        Ok(())
    }

    fn shortest(&mut self, metric: Metric) {
        let forwards: Vec<bool> = self.router_of.iter().map(Option::is_some).collect();
        let planner = RoutePlanner::new(&self.topology, metric).through(|node| forwards[node]);
        let mut known: BTreeMap<usize, weir_topology::Routes> = BTreeMap::new();
        // Several producers of one prefix: a router keeps the least cost of each link.
        let mut costs: BTreeMap<(usize, String, usize), u64> = BTreeMap::new();
        for (prefix, router, link) in &self.attached {
            let routes = known.entry(*router).or_insert_with(|| planner.routes_to(*router));
            for (node, plan_node) in self.router_of.iter().enumerate() {
                let Some(plan_node) = *plan_node else { continue };
                let hop = match (node == *router, routes.next[node]) {
                    (true, _) => Some((*link, 0)),
                    (false, Some(hop)) => self.link_of[hop.link].zip(routes.distance[node]),
                    (false, None) => None,
                };
                if let Some((link, cost)) = hop {
                    let least = costs.entry((plan_node, prefix.clone(), link)).or_insert(cost);
                    *least = cost.min(*least);
                }
            }
        }
        let routes = costs.into_iter();
        self.routes.extend(routes.map(|((node, prefix, link), cost)| RoutePlan {
            node,
            prefix,
            link,
            cost,
        }));
    }

    fn given(&mut self, path: &str, route: &RouteTable) -> Result<(), ScenarioError> {
        let error = |key: &str, message: &str| self.tree.error(&format!("{path}.{key}"), message);
        let node = self.plan_node(&format!("{path}.at"), &route.at)?;
        let to = self.plan_node(&format!("{path}.to"), &route.to)?;
        let link = self.link_between(node, to).ok_or_else(|| {
            let message =
                format!("no link joins \"{}\" and \"{}\"; name two neighbours", route.at, route.to);
            error("to", &message)
        })?;
        if !matches!(self.nodes[node].role, Role::Router(_)) {
            return Err(error("at", &format!("\"{}\" is no router and has no routes", route.at)));
        }
        let prefixes = match (&route.prefix, &route.of, &route.objects) {
            (Some(prefix), None, None) => vec![prefix.clone()],
            (None, Some(of), Some(objects)) => self.object_prefixes(path, of, objects)?,
            _ => {
                let message = "a route has a `prefix`, or is `of` a producer's `objects`, such as \
                               [[0, 49], [100, 149]]; give one or the other";
                return Err(self.tree.error(path, message));
            }
        };
        let cost = route.cost;
        let route = |prefix| RoutePlan { node, prefix, link, cost };
        self.routes.extend(prefixes.into_iter().map(route));
        Ok(())
    }

    /// The prefixes of some of a producer's objects.
    fn object_prefixes(
        &self,
        path: &str,
        of: &str,
        objects: &[(u64, u64)],
    ) -> Result<Vec<String>, ScenarioError> {
        let error = |key: &str, message: String| self.tree.error(&format!("{path}.{key}"), message);
        let node = self.plan_node(&format!("{path}.of"), of)?;
        let Role::Producer(producer) = &self.nodes[node].role else {
            return Err(error("of", format!("\"{of}\" is no producer")));
        };
        let collection =
            Collection::new(&producer.names).map_err(|problem| error("of", problem.to_string()))?;
        disk::check_ranges(objects).map_err(|message| error("objects", message))?;
        let mut prefixes = Vec::new();
        for &(first, last) in objects {
            let count = collection.object_count();
            if last >= count {
                let message = format!("\"{of}\" has objects 0 to {}, not {last}", count - 1);
                return Err(error("objects", message));
            }
            let name = |object| collection.naming().object_name(object).to_string();
            prefixes.extend((first..=last).map(name));
        }
        Ok(prefixes)
    }

    fn link_between(&self, a: usize, b: usize) -> Option<usize> {
        self.links.iter().position(|link| (link.a, link.b) == (a, b) || (link.a, link.b) == (b, a))
    }

    /// A node of the plan by name.
    fn plan_node(&self, path: &str, name: &str) -> Result<usize, ScenarioError> {
        self.nodes.iter().position(|node| node.name == name).ok_or_else(|| {
            let names = self.nodes.iter().take(50).map(|node| node.name.as_str());
            let remedy = suggestion(name, &names.collect::<Vec<_>>());
            self.tree.error(path, format!("no node is called \"{name}\"; {remedy}"))
        })
    }

    /// Stores that are bounded in packets get the octets that this number of packets of the
    /// workload takes.
    fn store_capacities(&mut self) -> Result<(), ScenarioError> {
        if self.settings.iter().all(|settings| settings.store_packets.is_none()) {
            return Ok(());
        }
        let mut sizes: BTreeMap<String, u64> = BTreeMap::new();
        for node in &self.nodes {
            let Role::Producer(plan) = &node.role else { continue };
            // Producers of one group differ in a digit of their prefix at most.
            let key = format!(
                "{:?}",
                ProducerPlan {
                    names: Names { prefix: String::new(), ..plan.names.clone() },
                    ..plan.clone()
                }
            );
            if let Entry::Vacant(vacant) = sizes.entry(key) {
                let bytes = super::store::packet_bytes(plan)
                    .map_err(|error| self.tree.error("producer", error.to_string()))?;
                vacant.insert(bytes);
            }
        }
        let packet_bytes = sizes.values().copied().max().unwrap_or(0);
        for (node, settings) in self.nodes.iter_mut().zip(&self.settings) {
            if let (Role::Router(plan), Some(packets)) = (&mut node.role, settings.store_packets) {
                plan.store.size.bytes = packets.saturating_mul(packet_bytes);
            }
        }
        Ok(())
    }
}

fn app_name(id: &str, index: usize, count: usize) -> String {
    if count == 1 { id.to_owned() } else { format!("{id}-{index}") }
}

fn plan_link(a: usize, b: usize, settings: &LinkSettings) -> LinkPlan {
    LinkPlan {
        a,
        b,
        a_to_b: settings.config.clone(),
        b_to_a: settings.config.clone(),
        is_local: settings.is_local,
        transport: settings.transport,
        mtu: settings.mtu,
        reliability: settings.reliability,
        runs: settings.runs,
    }
}
