//! Nodes and links.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};

use crate::error::InvalidTopology;

/// The role of a node. It decides its colour in pictures, and whether it forwards traffic.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Forwards and caches.
    #[default]
    Router,
    /// Serves content.
    Producer,
    /// Requests content.
    Consumer,
}

impl Role {
    /// The word used in files.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Router => "router",
            Self::Producer => "producer",
            Self::Consumer => "consumer",
        }
    }
}

/// The meaning of node positions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Coordinates {
    /// Any unit; x to the right, y up.
    #[default]
    Plane,
    /// x is the longitude and y the latitude, in degrees east and north.
    Geographic,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Node {
    /// Unique in the topology, without spaces.
    pub name: String,
    pub role: Role,
    /// Its position in the topology's coordinates.
    pub position: Option<(f64, f64)>,
    /// Other keys of the node in the file, as text.
    pub attributes: BTreeMap<String, String>,
}

impl Node {
    /// A router with this name and no position.
    pub(crate) fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    /// The same node with another role.
    #[must_use]
    pub(crate) fn with_role(self, role: Role) -> Self {
        Self { role, ..self }
    }

    /// The same node at a position.
    #[must_use]
    pub(crate) fn at(self, x: f64, y: f64) -> Self {
        Self { position: Some((x, y)), ..self }
    }
}

/// A link with the same properties in both directions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Link {
    /// Index of one end in [`Topology::nodes`].
    pub a: usize,
    /// Index of the other end.
    pub b: usize,
    /// Propagation delay of one direction, in nanoseconds.
    pub delay_ns: u64,
    /// Rate of one direction in bit/s; `None` if the link is never the bottleneck.
    pub rate_bps: Option<u64>,
    /// Cost for routing by cost; at least 1.
    pub cost: u32,
    /// Probability that a frame is lost, `0..=1`.
    pub loss: f64,
    /// Maximum additional delay of a frame, in nanoseconds.
    pub jitter_ns: u64,
    /// Queue limit of one direction in packets, if the file gives one.
    pub queue_packets_max: Option<u32>,
    /// Queue limit of one direction in bytes, if the file gives one.
    pub queue_bytes_max: Option<u64>,
    /// Other keys of the link in the file, as text.
    pub attributes: BTreeMap<String, String>,
}

impl Link {
    /// An ideal link between two nodes: no delay, no rate limit, cost 1.
    pub(crate) fn new(a: usize, b: usize) -> Self {
        Self {
            a,
            b,
            delay_ns: 0,
            rate_bps: None,
            cost: 1,
            loss: 0.0,
            jitter_ns: 0,
            queue_packets_max: None,
            queue_bytes_max: None,
            attributes: BTreeMap::new(),
        }
    }

    /// The end that is not `node`.
    pub fn other(&self, node: usize) -> usize {
        if node == self.a { self.b } else { self.a }
    }
}

/// A network of nodes and links, checked on creation and after every change.
///
/// Names are unique and without spaces. Links connect two different existing nodes. Costs and rates
/// are at least 1, and probabilities and positions are valid. Two nodes may have several links. A
/// topology need not be connected, see [`Topology::components`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Topology {
    name: String,
    coordinates: Coordinates,
    nodes: Vec<Node>,
    links: Vec<Link>,
    by_name: HashMap<String, usize>,
}

impl Topology {
    /// Checks `nodes` and `links`, and creates a topology.
    pub(crate) fn new(
        name: impl Into<String>,
        coordinates: Coordinates,
        nodes: Vec<Node>,
        links: Vec<Link>,
    ) -> Result<Self, InvalidTopology> {
        let mut topology = Self { name: name.into(), coordinates, ..Self::default() };
        topology.nodes.reserve(nodes.len());
        for node in nodes {
            topology.add_node(node)?;
        }
        topology.links.reserve(links.len());
        for link in links {
            topology.add_link(link)?;
        }
        Ok(topology)
    }

    pub(crate) fn empty(coordinates: Coordinates) -> Self {
        Self { coordinates, ..Self::default() }
    }

    /// The name; empty if there is none.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn set_name(&mut self, name: impl Into<String>) {
        self.name = name.into();
    }

    /// The meaning of positions.
    pub(crate) fn coordinates(&self) -> Coordinates {
        self.coordinates
    }

    /// The nodes in file order.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The links in file order.
    pub fn links(&self) -> &[Link] {
        &self.links
    }

    /// The index of the node with this name.
    pub fn index_of(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    /// Adds a node and returns its index.
    pub(crate) fn add_node(&mut self, node: Node) -> Result<usize, InvalidTopology> {
        self.check_node(&node)?;
        let index = self.nodes.len();
        if self.by_name.contains_key(&node.name) {
            return Err(InvalidTopology::DuplicateName { name: node.name });
        }
        self.by_name.insert(node.name.clone(), index);
        self.nodes.push(node);
        Ok(index)
    }

    /// Adds a link and returns its index.
    pub(crate) fn add_link(&mut self, link: Link) -> Result<usize, InvalidTopology> {
        self.check_link(&link)?;
        self.links.push(link);
        Ok(self.links.len() - 1)
    }

    /// Changes every link with `edit` (index and link). If a result is invalid, nothing changes.
    pub fn edit_links(
        &mut self,
        mut edit: impl FnMut(usize, &mut Link),
    ) -> Result<(), InvalidTopology> {
        let mut links = self.links.clone();
        for (index, link) in links.iter_mut().enumerate() {
            edit(index, link);
            self.check_link(link)?;
        }
        self.links = links;
        Ok(())
    }

    /// For each node, its links and their other ends, in the order of links.
    pub(crate) fn neighbours(&self) -> Vec<Vec<(usize, usize)>> {
        let mut neighbours = vec![Vec::new(); self.nodes.len()];
        for (index, link) in self.links.iter().enumerate() {
            neighbours[link.a].push((index, link.b));
            neighbours[link.b].push((index, link.a));
        }
        neighbours
    }

    /// The connected components, each a sorted list of node indices, in the order of their first
    /// node.
    pub fn components(&self) -> Vec<Vec<usize>> {
        let neighbours = self.neighbours();
        let mut seen = vec![false; self.nodes.len()];
        let mut components = Vec::new();
        for start in 0..self.nodes.len() {
            if seen[start] {
                continue;
            }
            seen[start] = true;
            let mut part = vec![start];
            let mut next = 0;
            while next < part.len() {
                for &(_, other) in &neighbours[part[next]] {
                    if !seen[other] {
                        seen[other] = true;
                        part.push(other);
                    }
                }
                next += 1;
            }
            part.sort_unstable();
            components.push(part);
        }
        components
    }

    /// Whether every node reaches every other one. A topology without nodes is connected.
    #[cfg(test)]
    pub(crate) fn is_connected(&self) -> bool {
        self.components().len() <= 1
    }

    /// Pairs of nodes with more than one link, each pair once, sorted.
    #[cfg(test)]
    pub(crate) fn parallel_links(&self) -> Vec<(usize, usize)> {
        let mut seen = std::collections::HashSet::new();
        let mut pairs: Vec<_> = self
            .links
            .iter()
            .map(|link| (link.a.min(link.b), link.a.max(link.b)))
            .filter(|&pair| !seen.insert(pair))
            .collect();
        pairs.sort_unstable();
        pairs.dedup();
        pairs
    }

    fn check_node(&self, node: &Node) -> Result<(), InvalidTopology> {
        let bad = |c: char| c.is_whitespace() || c.is_control();
        if node.name.is_empty() || node.name.contains(bad) {
            return Err(InvalidTopology::BadName { name: node.name.clone() });
        }
        let Some((x, y)) = node.position else { return Ok(()) };
        let remedy = if !(x.is_finite() && y.is_finite()) {
            "write finite numbers"
        } else if self.coordinates == Coordinates::Geographic && (x.abs() > 180.0 || y.abs() > 90.0)
        {
            "write a longitude in -180..180 and a latitude in -90..90"
        } else {
            return Ok(());
        };
        Err(InvalidTopology::BadPosition { name: node.name.clone(), x, y, remedy })
    }

    fn check_link(&self, link: &Link) -> Result<(), InvalidTopology> {
        for node in [link.a, link.b] {
            if node >= self.nodes.len() {
                return Err(InvalidTopology::NoSuchNode { node, nodes: self.nodes.len() });
            }
        }
        if link.a == link.b {
            return Err(InvalidTopology::SelfLink { name: self.nodes[link.a].name.clone() });
        }
        let (attribute, remedy) = if link.cost == 0 {
            ("cost 0".to_owned(), "write a cost of 1 or more")
        } else if link.rate_bps == Some(0) {
            ("rate 0".to_owned(), "omit the rate for an unlimited link")
        } else if !(0.0..=1.0).contains(&link.loss) {
            (format!("loss {}", link.loss), "write a probability between 0 and 1")
        } else if link.queue_packets_max == Some(0) || link.queue_bytes_max == Some(0) {
            ("a queue of 0".to_owned(), "write a queue of 1 or more, or omit it")
        } else {
            return Ok(());
        };
        let (a, b) = (self.nodes[link.a].name.clone(), self.nodes[link.b].name.clone());
        Err(InvalidTopology::BadLink { a, b, attribute, remedy })
    }
}
