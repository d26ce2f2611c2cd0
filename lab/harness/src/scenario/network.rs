//! From a scenario to a [`Plan`].

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use weir_base::Rng;
use weir_plan::workload::{Collection, Names, ProducerPlan};
use weir_plan::{Fault, FaultPlan, LinkPlan, NodePlan, Plan, Role, RoutePlan};
use weir_topology::generate::{Generator, LinkDefaults};
use weir_topology::{Metric, ReadOptions, RoutePlanner, Topology};

use super::TOP;
use super::apps::{self, ConsumerGroup, ProducerGroup};
use super::disk;
use super::links::{self, LinkSettings};
use super::router::{self, RouterSettings};
use crate::document::{Node, Reader, ScenarioError, suggestion};
use crate::folder::Folder;

const RUN: &[&str] = &["duration", "drain", "warm_up", "sample", "seeds", "seed"];
const ROUTES: &[&str] = &["metric", "only_given"];
const ROUTE: &[&str] = &["at", "prefix", "of", "objects", "to", "cost"];
const FAULT: &[&str] = &["at", "kind", "link", "node", "disk", "for", "probability"];
const TOPOLOGY: &[&str] = &[
    "builtin",
    "file",
    "generator",
    "nodes",
    "leaves",
    "depth",
    "fan_out",
    "width",
    "height",
    "left",
    "right",
    "alpha",
    "beta",
    "links_per_node",
    "delay_from_distance",
    "seed",
];

/// What one run consists of.
#[derive(Clone, Debug)]
pub struct Prepared {
    /// The plan for either arm.
    pub plan: Plan,
    /// Nodes of the plan by group: `routers`, `producers`, `consumers`, and the ids of groups.
    pub groups: BTreeMap<String, Vec<usize>>,
    /// The topology, without the consumers and producers that the scenario adds.
    pub topology: Topology,
    /// What is not measured at the start, ns.
    pub warm_up_ns: u64,
}

/// Times of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    pub(super) duration_ns: u64,
    pub(super) warm_up_ns: u64,
    pub(super) sample_ns: u64,
    drain_ns: Option<u64>,
}

pub(super) fn times(top: &Reader<'_>) -> Result<Times, ScenarioError> {
    let Some(run) = top.table("run", RUN)? else {
        return Err(top.error(1, "there is no [run]; write [run] with duration = \"10s\""));
    };
    let duration_ns = run.required("duration", "\"10s\"", run.duration_ns("duration")?)?;
    let warm_up_ns = run.duration_ns("warm_up")?.unwrap_or(0);
    if duration_ns == 0 {
        return Err(run
            .error_at("duration", "a run of no time measures nothing; write for example \"10s\""));
    }
    if warm_up_ns >= duration_ns {
        return Err(run.error_at(
            "warm_up",
            "the warm-up takes the whole duration; leave some of it to be measured",
        ));
    }
    let sample_ns = run.duration_ns("sample")?.unwrap_or(duration_ns / 100);
    if sample_ns > 0 && duration_ns / sample_ns > 1_000_000 {
        return Err(
            run.error_at("sample", "more than a million samples in a run; write a longer `sample`")
        );
    }
    Ok(Times { duration_ns, warm_up_ns, sample_ns, drain_ns: run.duration_ns("drain")? })
}

/// Makes the plan of a scenario whose size and sweep point are settled.
pub(super) fn prepare(
    file: &Arc<str>,
    root: &Node,
    folder: &Folder,
    seed: u64,
) -> Result<Prepared, ScenarioError> {
    let top = Reader::new(file, "the scenario", root, TOP)?;
    let times = times(&top)?;
    let topology = topology(&top, folder, seed)?;
    let mut builder = Builder::new(topology, seed);
    builder.routers(&top)?;
    builder.links(top.table("link", links::KNOWN)?.as_ref())?;
    let access = match top.table("access", links::KNOWN)? {
        Some(table) => LinkSettings::local().with(&table)?,
        None => LinkSettings::local(),
    };
    let producers = apps::producers(&top, &access, folder)?;
    let consumers = apps::consumers(&top, &access, folder)?;
    if consumers.is_empty() {
        return Err(top.error(1, "nobody asks for anything; write at least one [[consumer]]"));
    }
    builder.producers(&top, &producers)?;
    builder.consumers(&top, &producers, &consumers)?;
    builder.routes(&top)?;
    builder.store_capacities(&top)?;
    let faults = builder.faults(&top, times)?;
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
        },
        groups: builder.groups,
        topology: builder.topology,
        warm_up_ns: times.warm_up_ns,
    })
}

fn topology(top: &Reader<'_>, folder: &Folder, seed: u64) -> Result<Topology, ScenarioError> {
    let Some(reader) = top.table("topology", TOPOLOGY)? else {
        return Err(top.error(
            1,
            "there is no [topology]; write [topology] with generator = \"line\" and nodes = 1",
        ));
    };
    let kinds = ["builtin", "file", "generator"];
    let given: Vec<&str> = kinds.into_iter().filter(|kind| reader.has(kind)).collect();
    let options = ReadOptions {
        delay_from_distance: reader.truth("delay_from_distance")?.unwrap_or(false),
        ..ReadOptions::default()
    };
    let topology = match given.as_slice() {
        ["builtin"] => {
            let names: Vec<&str> = weir_topology::builtin_names().collect();
            let name = reader.word("builtin", &names)?.unwrap_or_default();
            Topology::builtin(name).ok_or_else(|| {
                reader.error_at("builtin", format!("no topology \"{name}\" comes with the program"))
            })?
        }
        ["file"] => {
            let file = reader.required_text("file")?;
            let text = folder.read(file).map_err(|message| reader.error_at("file", message))?;
            Topology::parse(&text, file, &options).map_err(|error| {
                let text = error.to_string();
                let line = error.line();
                let place = line.map_or(format!("{file}: "), |line| format!("{file}:{line}: "));
                let message = text.strip_prefix(&place).unwrap_or(&text).to_owned();
                ScenarioError { file: file.to_owned(), line, message }
            })?
        }
        ["generator"] => generated(&reader, seed)?,
        _ => {
            let message = "[topology] has exactly one of `builtin`, `file` and `generator`";
            return Err(reader.error(reader.line(), message));
        }
    };
    if topology.nodes().is_empty() {
        return Err(reader.error(reader.line(), "the topology has no nodes"));
    }
    let parts = topology.components();
    if parts.len() > 1 {
        let name = &topology.nodes()[parts[1][0]].name;
        let message = format!(
            "the topology is in {} parts that no link joins; node \"{name}\" cannot reach the \
                first one. Choose a connected topology",
            parts.len()
        );
        return Err(reader.error(reader.line(), message));
    }
    Ok(topology)
}

fn generated(reader: &Reader<'_>, seed: u64) -> Result<Topology, ScenarioError> {
    const KINDS: &[(&str, &[&str])] = &[
        ("line", &["nodes"]),
        ("star", &["leaves"]),
        ("tree", &["depth", "fan_out"]),
        ("grid", &["width", "height"]),
        ("dumbbell", &["left", "right"]),
        ("waxman", &["nodes", "alpha", "beta"]),
        ("barabasi-albert", &["nodes", "links_per_node"]),
    ];
    let words: Vec<&str> = KINDS.iter().map(|(kind, _)| *kind).collect();
    let kind = reader.word("generator", &words)?.unwrap_or_default();
    let parameters = KINDS.iter().find(|(name, _)| *name == kind).map_or(&[][..], |(_, keys)| keys);
    for entry in reader.entries() {
        let key = entry.key.as_str();
        if !["generator", "seed"].contains(&key) && !parameters.contains(&key) {
            let message = format!(
                "generator \"{kind}\" has no parameter `{key}`; {}",
                suggestion(key, parameters)
            );
            return Err(reader.error(entry.line, message));
        }
    }
    // `nodes = 1` is one router alone.
    let count = |key: &str| -> Result<usize, ScenarioError> {
        Ok(reader.required(key, "4", reader.count(key, 0)?)? as usize)
    };
    let real = |key: &str| reader.required(key, "0.4", reader.number(key)?);
    let generator = match kind {
        "star" => Generator::Star { leaves: count("leaves")? },
        "tree" => Generator::Tree { depth: count("depth")?, fan_out: count("fan_out")? },
        "grid" => Generator::Grid { width: count("width")?, height: count("height")? },
        "dumbbell" => Generator::Dumbbell { left: count("left")?, right: count("right")? },
        "waxman" => {
            Generator::Waxman { nodes: count("nodes")?, alpha: real("alpha")?, beta: real("beta")? }
        }
        "barabasi-albert" => Generator::BarabasiAlbert {
            nodes: count("nodes")?,
            links_per_node: count("links_per_node")?,
        },
        _ => Generator::Line { nodes: count("nodes")? },
    };
    let seed = reader.count("seed", 0)?.unwrap_or(seed);
    generator
        .generate(&LinkDefaults::default(), seed)
        .map_err(|error| reader.error(reader.line(), error.to_string()))
}

/// A plan as it grows.
struct Builder {
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

impl Builder {
    fn new(topology: Topology, seed: u64) -> Self {
        let mut router_of = Vec::new();
        let mut next = 0;
        for node in topology.nodes() {
            let is_router = node.role == weir_topology::Role::Router;
            router_of.push(is_router.then_some(next));
            next += usize::from(is_router);
        }
        let link_of = vec![None; topology.links().len()];
        Self {
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

    fn routers(&mut self, top: &Reader<'_>) -> Result<(), ScenarioError> {
        let mut base = RouterSettings::default();
        if let Some(table) = top.table("router", router::KNOWN)? {
            base = base.with(&table)?;
        }
        let mut settings = vec![base; self.topology.nodes().len()];
        for table in top.tables("routers", router::KNOWN_SOME)? {
            let at = table.required("at", "\"leaves\"", table.texts("at")?)?;
            let line = table.node("at").map_or(table.line(), |node| node.line);
            for node in self.select(&table, line, &at)? {
                settings[node] = settings[node].with(&table)?;
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
            return Err(top.error_at(
                "topology",
                "the topology has no routers, only hosts; give \
                at least one node the role of a router",
            ));
        }
        self.groups.insert("routers".into(), indices);
        Ok(())
    }

    /// Links of the topology: what `[link]` says holds for all of them.
    fn links(&mut self, table: Option<&Reader<'_>>) -> Result<(), ScenarioError> {
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
                settings = settings.with(table)?;
            }
            all.push(settings);
        }
        let (delays, costs): (Vec<u64>, Vec<Option<u32>>) =
            all.iter().map(|settings| (settings.config.delay_ns, settings.cost)).unzip();
        let edited = self.topology.edit_links(|index, link| {
            link.delay_ns = delays[index];
            link.cost = costs[index].unwrap_or(link.cost);
        });
        if let (Err(error), Some(table)) = (edited, table) {
            return Err(table.error(table.line(), error.to_string()));
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
    fn select(
        &self,
        reader: &Reader<'_>,
        line: usize,
        words: &[String],
    ) -> Result<Vec<usize>, ScenarioError> {
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
                        selected.extend(self.random(count.trim().parse().unwrap_or(0), line));
                    }
                    (None, None) => return Err(self.no_node(reader, line, name)),
                },
            }
            if selected.len() == before {
                return Err(
                    reader.error(line, format!("\"{word}\" selects no node of this topology"))
                );
            }
        }
        Ok(selected)
    }

    fn no_node(&self, reader: &Reader<'_>, line: usize, name: &str) -> ScenarioError {
        let mut known = vec!["all", "first", "last", "leaves", "inner", "producers", "consumers"];
        known.extend(self.topology.nodes().iter().take(40).map(|node| node.name.as_str()));
        let remedy = suggestion(name, &known);
        reader
            .error(line, format!("the topology has no node \"{name}\"; {remedy}, or \"random 3\""))
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
        reader: &Reader<'_>,
        line: usize,
        node: usize,
        app: NodePlan,
        link: &LinkSettings,
    ) -> Result<(usize, usize, usize), ScenarioError> {
        let index = self.nodes.len();
        let (router, settings) = if self.router_of[node].is_some() {
            (node, link.clone())
        } else {
            let host = &self.topology.nodes()[node].name;
            let own: Vec<usize> = (0..self.topology.links().len())
                .filter(|at| {
                    [self.topology.links()[*at].a, self.topology.links()[*at].b].contains(&node)
                })
                .collect();
            let [own] = own.as_slice() else {
                return Err(reader.error(
                    line,
                    format!(
                        "host \"{host}\" has {} links; a host of \
                    consumers or producers has one, to a router",
                        own.len()
                    ),
                ));
            };
            let router = self.topology.links()[*own].other(node);
            if self.router_of[router].is_none() {
                return Err(reader.error(
                    line,
                    format!("host \"{host}\" is linked to another host; link it to a router"),
                ));
            }
            (router, self.host_links[*own].clone())
        };
        let at = self.router_of[router].unwrap_or_default();
        if self.nodes.iter().any(|other| other.name == app.name) {
            let message =
                format!("two nodes would be called \"{}\"; give the group another `id`", app.name);
            return Err(reader.error(line, message));
        }
        self.nodes.push(app);
        self.links.push(plan_link(at, index, &settings));
        Ok((index, router, self.links.len() - 1))
    }

    fn producers(
        &mut self,
        top: &Reader<'_>,
        groups: &[ProducerGroup],
    ) -> Result<(), ScenarioError> {
        let mut members = Vec::new();
        for group in groups {
            let places = self.places(top, group.at_line, &group.at, group.per_node)?;
            let mut prefixes = Vec::new();
            let mut own = Vec::new();
            for (index, place) in places.iter().enumerate() {
                let prefix = group.prefix(index, places.len());
                let name = app_name(&group.id, index, places.len());
                let app = NodePlan { name, role: Role::Producer(group.plan(&prefix)) };
                let (node, router, link) =
                    self.attach(top, group.at_line, *place, app, &group.link)?;
                self.attached.push((prefix.clone(), router, link));
                prefixes.push(prefix);
                own.push(node);
            }
            members.extend_from_slice(&own);
            if self.groups.insert(group.id.clone(), own).is_some() {
                return Err(same_id(top, group.line, &group.id));
            }
            self.prefixes.insert(group.id.clone(), prefixes);
        }
        self.groups.insert("producers".into(), members);
        Ok(())
    }

    fn places(
        &self,
        top: &Reader<'_>,
        line: usize,
        at: &[String],
        per_node: u64,
    ) -> Result<Vec<usize>, ScenarioError> {
        let nodes = self.select(top, line, at)?;
        if nodes.len() as u64 * per_node > 1_000_000 {
            return Err(top.error(line, "more than a million consumers or producers; write fewer"));
        }
        Ok(nodes.iter().flat_map(|node| std::iter::repeat_n(*node, per_node as usize)).collect())
    }

    fn consumers(
        &mut self,
        top: &Reader<'_>,
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
                return Err(top.error(group.of_line, message));
            };
            let prefixes = self.prefixes.get(&of.id).cloned().unwrap_or_default();
            let turns = group.spread.unwrap_or(prefixes.len() as u64);
            if turns > prefixes.len() as u64 {
                let message = format!(
                    "`spread` is {turns}, but group \"{}\" has {} producers; write at most that",
                    of.id,
                    prefixes.len()
                );
                return Err(top.error(group.line, message));
            }
            let places = self.places(top, group.at_line, &group.at, group.per_node)?;
            let mut own = Vec::new();
            for (index, place) in places.iter().enumerate() {
                let prefix = &prefixes[index % turns as usize];
                let name = app_name(&group.id, index, places.len());
                let plan = group
                    .plan(index, of, prefix, self.seed)
                    .map_err(|error| top.error(group.line, error.to_string()))?;
                let app = NodePlan { name, role: Role::Consumer(plan) };
                own.push(self.attach(top, group.at_line, *place, app, &group.link)?.0);
            }
            members.extend_from_slice(&own);
            if self.groups.insert(group.id.clone(), own).is_some() {
                return Err(same_id(top, group.line, &group.id));
            }
        }
        self.groups.insert("consumers".into(), members);
        Ok(())
    }

    /// Shortest paths to every producer, then those that the file gives.
    fn routes(&mut self, top: &Reader<'_>) -> Result<(), ScenarioError> {
        let table = top.table("routes", ROUTES)?;
        let mut metric = Metric::Delay;
        let mut only_given = false;
        if let Some(table) = &table {
            metric = match table.word("metric", &["delay", "cost", "hops"])? {
                Some("cost") => Metric::Cost,
                Some("hops") => Metric::Hops,
                _ => Metric::Delay,
            };
            only_given = table.truth("only_given")?.unwrap_or(false);
        }
        if !only_given {
            self.shortest(metric);
        }
        for reader in top.tables("route", ROUTE)? {
            self.given(&reader)?;
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

    fn given(&mut self, reader: &Reader<'_>) -> Result<(), ScenarioError> {
        let node = self.plan_node(reader, "at")?;
        let to = self.plan_node(reader, "to")?;
        let link = self.link_between(node, to).ok_or_else(|| {
            let (a, b) = (&self.nodes[node].name, &self.nodes[to].name);
            reader.error_at("to", format!("no link joins \"{a}\" and \"{b}\"; name two neighbours"))
        })?;
        if !matches!(self.nodes[node].role, Role::Router(_)) {
            let name = &self.nodes[node].name;
            return Err(reader.error_at("at", format!("\"{name}\" is no router and has no routes")));
        }
        let cost = reader.count("cost", 0)?.unwrap_or(0);
        let prefixes = match reader.text("of")? {
            Some(of) => self.object_prefixes(reader, of)?,
            None if reader.has("objects") => {
                let message = "`objects` needs `of`, the producer whose they are";
                return Err(reader.error_at("objects", message));
            }
            None => vec![reader.required_text("prefix")?.to_owned()],
        };
        let route = |prefix| RoutePlan { node, prefix, link, cost };
        self.routes.extend(prefixes.into_iter().map(route));
        Ok(())
    }

    /// The prefixes of a producer's objects, of those that `objects` names.
    fn object_prefixes(&self, reader: &Reader<'_>, of: &str) -> Result<Vec<String>, ScenarioError> {
        if reader.has("prefix") {
            let message = "a route is of a `prefix` or `of` a producer's objects; keep one";
            return Err(reader.error_at("prefix", message));
        }
        let Some(node) = self.named(of) else { return Err(self.unknown_node(reader, "of", of)) };
        let Role::Producer(producer) = &self.nodes[node].role else {
            return Err(reader.error_at("of", format!("\"{of}\" is no producer")));
        };
        let collection = Collection::new(&producer.names)
            .map_err(|error| reader.error_at("of", error.to_string()))?;
        let list = reader.node("objects");
        let list = reader.required("objects", "[[0, 49], [100, 149]]", list)?;
        let mut prefixes = Vec::new();
        for (first, last) in disk::ranges(reader, "objects", list)? {
            if last >= collection.object_count() {
                let count = collection.object_count();
                let message = format!("\"{of}\" has objects 0 to {}, not {last}", count - 1);
                return Err(reader.error_at("objects", message));
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
    fn plan_node(&self, reader: &Reader<'_>, key: &str) -> Result<usize, ScenarioError> {
        let name = reader.required_text(key)?;
        self.named(name).ok_or_else(|| self.unknown_node(reader, key, name))
    }

    fn named(&self, name: &str) -> Option<usize> {
        self.nodes.iter().position(|node| node.name == name)
    }

    fn unknown_node(&self, reader: &Reader<'_>, key: &str, name: &str) -> ScenarioError {
        let names: Vec<&str> = self.nodes.iter().take(50).map(|node| node.name.as_str()).collect();
        reader.error_at(key, format!("no node is called \"{name}\"; {}", suggestion(name, &names)))
    }

    fn faults(&self, top: &Reader<'_>, times: Times) -> Result<Vec<FaultPlan>, ScenarioError> {
        let mut faults = Vec::new();
        for reader in top.tables("fault", FAULT)? {
            let at_ns = reader.required("at", "\"1s\"", reader.duration_ns("at")?)?;
            if at_ns > times.duration_ns {
                return Err(reader.error_at(
                    "at",
                    "the fault comes after the end of the run; write an earlier time",
                ));
            }
            let for_ns = reader.required("for", "\"500ms\"", reader.duration_ns("for")?)?;
            let kinds = [
                "link-down",
                "crash",
                "store-stall",
                "wrong-bytes",
                "disk-stall",
                "disk-errors",
                "disk-full",
            ];
            let kind = reader.required("kind", "\"link-down\"", reader.word("kind", &kinds)?)?;
            let fault = match kind {
                "link-down" => Fault::LinkDown { link: self.fault_link(&reader)?, for_ns },
                "crash" => Fault::Crash { node: self.fault_router(&reader)?, for_ns },
                "store-stall" => Fault::StoreStall { node: self.fault_router(&reader)?, for_ns },
                "wrong-bytes" => Fault::WrongBytes {
                    link: self.fault_link(&reader)?,
                    for_ns,
                    probability: probability(&reader)?,
                },
                kind => {
                    let (node, disk) = self.fault_disk(&reader)?;
                    match kind {
                        "disk-stall" => Fault::DiskStall { node, disk, for_ns },
                        "disk-full" => Fault::DiskFull { node, disk, for_ns },
                        _ => {
                            let probability = probability(&reader)?;
                            Fault::DiskErrors { node, disk, for_ns, probability }
                        }
                    }
                }
            };
            faults.push(FaultPlan { at_ns, fault });
        }
        Ok(faults)
    }

    fn fault_router(&self, reader: &Reader<'_>) -> Result<usize, ScenarioError> {
        let node = self.plan_node(reader, "node")?;
        if matches!(self.nodes[node].role, Role::Router(_)) {
            return Ok(node);
        }
        let name = &self.nodes[node].name;
        Err(reader
            .error_at("node", format!("\"{name}\" is no router; this fault is one of routers")))
    }

    /// A router and one of its disks.
    fn fault_disk(&self, reader: &Reader<'_>) -> Result<(usize, u8), ScenarioError> {
        let node = self.fault_router(reader)?;
        let disk = reader.count("disk", 0)?.unwrap_or(0);
        let disks = match &self.nodes[node].role {
            Role::Router(plan) => plan.disk.as_ref().map_or(0, |disk| disk.disks),
            Role::Consumer(_) | Role::Producer(_) => 0,
        };
        match u8::try_from(disk).ok().filter(|disk| *disk < disks) {
            Some(disk) => Ok((node, disk)),
            None => {
                let name = &self.nodes[node].name;
                let message = format!("\"{name}\" has {disks} disks, counted from 0");
                Err(reader.error_at("disk", message))
            }
        }
    }

    fn fault_link(&self, reader: &Reader<'_>) -> Result<usize, ScenarioError> {
        let ends = reader.required("link", "[\"a\", \"b\"]", reader.texts("link")?)?;
        let [a, b] = ends.as_slice() else {
            return Err(
                reader.error_at("link", "`link` names its two ends, such as [\"a\", \"b\"]")
            );
        };
        let a = self.named(a).ok_or_else(|| self.unknown_node(reader, "link", a))?;
        let b = self.named(b).ok_or_else(|| self.unknown_node(reader, "link", b))?;
        self.link_between(a, b).ok_or_else(|| {
            reader.error_at("link", "no link joins these two nodes; name two neighbours")
        })
    }

    /// Stores that are bounded in packets get the octets that so many packets of the workload take.
    fn store_capacities(&mut self, top: &Reader<'_>) -> Result<(), ScenarioError> {
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
                    .map_err(|error| top.error_at("producer", error.to_string()))?;
                vacant.insert(bytes);
            }
        }
        let packet_bytes = sizes.values().copied().max().unwrap_or(0);
        for (node, settings) in self.nodes.iter_mut().zip(&self.settings) {
            if let (Role::Router(plan), Some(packets)) = (&mut node.role, settings.store_packets) {
                plan.store_bytes = packets.saturating_mul(packet_bytes);
            }
        }
        Ok(())
    }
}

fn probability(reader: &Reader<'_>) -> Result<f64, ScenarioError> {
    reader.required("probability", "0.01", reader.share("probability")?)
}

fn same_id(top: &Reader<'_>, line: usize, id: &str) -> ScenarioError {
    top.error(line, format!("\"{id}\" names two groups of nodes; give each an `id` of its own"))
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
    }
}
