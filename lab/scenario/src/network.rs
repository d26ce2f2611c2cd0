//! Builds a network from the tables of a scenario: routers, links, applications, routes and faults.

pub(crate) mod controller;
mod faults;
mod routes;

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use weir_base::Rng;
use weir_plan::workload::{Names, ProducerPlan};
use weir_plan::{LinkPackets, LinkPlan, NodePlan, Role, RoutePlan};
use weir_topology::Topology;

pub(crate) use self::controller::ControllerTable;
pub(crate) use self::faults::FaultTable;
pub(crate) use self::routes::{RouteTable, RoutesTable};
use crate::apps::{ConsumerGroup, ProducerGroup};
use crate::document::{ScenarioError, Tree, ValueNode, suggestion, texts};
use crate::links::{LinkSettings, LinkTable};
use crate::router::{self, RouterSettings};

/// The key of `[[routers]]` that is not a router setting.
#[derive(Deserialize)]
#[serde(expecting = "a table", deny_unknown_fields)]
struct Selected {
    #[serde(deserialize_with = "texts")]
    at: Vec<String>,
}

/// A plan under construction.
pub(crate) struct Builder<'a> {
    tree: &'a Tree,
    pub(crate) topology: Topology,
    seed: u64,
    pub(crate) nodes: Vec<NodePlan>,
    names: BTreeSet<String>,
    pub(crate) links: Vec<LinkPlan>,
    pub(crate) routes: Vec<RoutePlan>,
    pub(crate) groups: BTreeMap<String, Vec<usize>>,
    settings: Vec<RouterSettings>,
    /// For each node of the topology, its index in the plan, if it is a router.
    router_of: Vec<Option<usize>>,
    /// For each link of the topology, its index in the plan, if it connects routers.
    link_of: Vec<Option<usize>>,
    /// Settings of links between routers and hosts of the topology.
    host_links: Vec<LinkSettings>,
    /// For each attached prefix: its router in the topology, and the plan's link to it.
    attached: Vec<(String, usize, usize)>,
    /// Prefixes of each group of producers.
    prefixes: BTreeMap<String, Vec<String>>,
}

impl<'a> Builder<'a> {
    pub(crate) fn new(tree: &'a Tree, topology: Topology, seed: u64) -> Self {
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
            names: BTreeSet::new(),
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

    pub(crate) fn routers(&mut self) -> Result<(), ScenarioError> {
        let tree = self.tree;
        let none = ValueNode::empty_table();
        let base = tree.root.at("router").unwrap_or(&none);
        let common = router::read(tree, "router", base)?;
        let mut nodes = vec![base.clone(); self.topology.nodes().len()];
        let mut settings = vec![common; nodes.len()];
        let mut paths = vec!["router".to_owned(); nodes.len()];
        for (at, over) in tree.root.at("routers").into_iter().flat_map(ValueNode::items).enumerate()
        {
            let path = format!("routers[{at}]");
            let (own, over) = over.split::<Selected>();
            let Selected { at } = tree.read_at(&path, &own)?;
            for node in self.select(&format!("{path}.at"), &at)? {
                nodes[node] = nodes[node].merged(&over);
                settings[node] = router::read(tree, &path, &nodes[node])?;
                paths[node].clone_from(&path);
            }
        }
        // Routers that share a machine or a disk must describe it alike.
        for (node, one) in settings.iter().enumerate() {
            for (other, two) in settings[..node].iter().enumerate() {
                if let Some(key) = one.plan.conflict_with(&two.plan) {
                    let name = &self.topology.nodes()[other].name;
                    let message = format!("differs from that of \"{name}\", which shares it");
                    return Err(tree.error(&format!("{}.{key}", paths[node]), message));
                }
            }
        }
        let mut indices = Vec::new();
        for (node, settings) in settings.into_iter().enumerate() {
            if self.router_of[node].is_some() {
                let name = self.topology.nodes()[node].name.clone();
                indices.push(self.nodes.len());
                self.names.insert(name.clone());
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

    /// Adds the links of the topology. The settings in `[link]` apply to all of them.
    pub(crate) fn links(&mut self, table: Option<&LinkTable>) -> Result<(), ScenarioError> {
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
        // Routes are computed from the topology, so it needs the delays and costs of `[link]`.
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
            // A word that selects nothing is an error, most likely a misunderstanding of the
            // topology.
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

    /// `count` different routers. The seed and their line in the scenario file decide which, so a
    /// line inserted above changes the selection.
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

    /// Adds a consumer or producer at a node of the topology. Returns its index, its router in the
    /// topology, and its link.
    fn attach(
        &mut self,
        path: &str,
        node: usize,
        app: NodePlan,
        link: &LinkSettings,
    ) -> Result<(usize, usize, usize), ScenarioError> {
        let index = self.nodes.len();
        // At a router, the application gets a new link. A host of the topology has its own.
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
        if !self.names.insert(app.name.clone()) {
            let message = format!(
                "two nodes would have the name \"{}\"; give the group another `id`",
                app.name
            );
            return Err(self.tree.error(path, message));
        }
        self.nodes.push(app);
        self.links.push(plan_link(at, index, &settings));
        Ok((index, router, self.links.len() - 1))
    }

    /// Links of the topology that end at `node`, in file order.
    fn links_of_host(&self, node: usize) -> impl Iterator<Item = usize> {
        let links = self.topology.links();
        (0..links.len()).filter(move |&at| [links[at].a, links[at].b].contains(&node))
    }

    /// Rejects a host with a further link that no path of its consumer uses.
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
                    "host \"{}\" has a link to \"{}\" that nothing uses; add it as a \
                     [[consumer.path]], or take it out of the topology",
                    self.topology.nodes()[place].name,
                    name(at)
                );
                Err(self.tree.error(path, message))
            }
        }
    }

    /// Adds a further link to a consumer, to another router. A host of the topology uses its own
    /// link.
    fn attach_also(
        &mut self,
        path: &str,
        consumer: usize,
        place: usize,
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

    pub(crate) fn producers(&mut self, groups: &[ProducerGroup]) -> Result<(), ScenarioError> {
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
        let message = format!("two groups of nodes have the id \"{id}\"; give each its own `id`");
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

    pub(crate) fn consumers(
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
            if group.is_player() != of.live.is_some() {
                let message = "`live` of a consumer needs `live` of its producer, and the reverse";
                return Err(self.tree.error(&group.path, message));
            }
            // Consumers take the first `spread` producers in turn, or all of them.
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
                    self.attach_also(&group.path, consumer, *place, to, link)?;
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

    /// The plan's link between two routers.
    fn link_between(&self, a: usize, b: usize) -> Option<usize> {
        self.links.iter().position(|link| (link.a, link.b) == (a, b) || (link.a, link.b) == (b, a))
    }

    /// A node of the plan by name.
    fn plan_node(&self, path: &str, name: &str) -> Result<usize, ScenarioError> {
        self.nodes.iter().position(|node| node.name == name).ok_or_else(|| {
            let names = self.nodes.iter().take(50).map(|node| node.name.as_str());
            let remedy = suggestion(name, &names.collect::<Vec<_>>());
            self.tree.error(path, format!("no node has the name \"{name}\"; {remedy}"))
        })
    }

    /// Converts store limits in packets to bytes, by the packets of the workload.
    pub(crate) fn store_capacities(&mut self) -> Result<(), ScenarioError> {
        if self.settings.iter().all(|settings| settings.store_packets.is_none()) {
            return Ok(());
        }
        let mut sizes: BTreeMap<String, u64> = BTreeMap::new();
        for node in &self.nodes {
            let Role::Producer(plan) = &node.role else { continue };
            // Producers of one group differ in at most a digit of their prefix.
            let key = format!(
                "{:?}",
                ProducerPlan {
                    names: Names { prefix: String::new(), ..plan.names.clone() },
                    ..plan.clone()
                }
            );
            if let Entry::Vacant(vacant) = sizes.entry(key) {
                let bytes = crate::store::packet_bytes(plan)
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
        packets: LinkPackets::Ndn,
    }
}
