//! Generated topologies: regular ones, and random ones from a seed. Functions come from `libm`,
//! which gives the same results on every machine.

use serde::{Deserialize, Serialize};
use weir_base::Rng;

use crate::error::InvalidTopology;
use crate::model::{Coordinates, Link, Node, Role, Topology};

/// Why a generator failed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum GeneratorError {
    /// A parameter is out of range.
    #[error("{generator} with {parameter} = {value}; write {remedy}")]
    Parameter { generator: &'static str, parameter: &'static str, value: String, remedy: String },
    /// The links' properties are invalid.
    #[error(transparent)]
    Link(#[from] InvalidTopology),
}

/// Limit on the nodes of a generated topology.
pub(crate) const NODES_MAX: usize = 100_000;

/// Properties of generated links.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkDefaults {
    pub delay_ns: u64,
    pub rate_bps: Option<u64>,
    /// Cost for routing by cost.
    pub cost: u32,
    /// Queue limit in packets.
    pub queue_packets: Option<u32>,
}

impl Default for LinkDefaults {
    /// 1 ms, no rate limit, cost 1.
    fn default() -> Self {
        Self { delay_ns: 1_000_000, rate_bps: None, cost: 1, queue_packets: None }
    }
}

impl LinkDefaults {
    /// A link with these properties.
    pub(crate) fn link(&self, a: usize, b: usize) -> Link {
        let (rate_bps, cost) = (self.rate_bps, self.cost);
        let queue_packets_max = self.queue_packets;
        Link { delay_ns: self.delay_ns, rate_bps, cost, queue_packets_max, ..Link::new(a, b) }
    }
}

/// A generator by name with its parameters: `{ tree = { depth = 4, fan_out = 2 } }`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Generator {
    /// Routers in a row.
    Line { nodes: usize },
    /// Routers around a central one.
    Star {
        /// Routers around the central one.
        leaves: usize,
    },
    /// A tree with the root first.
    Tree {
        /// Levels, including the root's.
        depth: usize,
        /// Children of each router.
        fan_out: usize,
    },
    /// A rectangle of routers, each linked to its neighbours.
    Grid {
        /// Routers per row.
        width: usize,
        /// Routers per column.
        height: usize,
    },
    /// Two stars with a single link between their centres.
    Dumbbell { left: usize, right: usize },
    /// A random graph in which close nodes are linked more often than distant ones (Waxman, 1988).
    Waxman {
        nodes: usize,
        /// How far links reach, 0 < alpha <= 1.
        alpha: f64,
        /// How many links there are, 0 < beta <= 1.
        beta: f64,
    },
    /// See `barabasi_albert`.
    BarabasiAlbert {
        nodes: usize,
        /// Links of each added router.
        links_per_node: usize,
    },
}

impl Generator {
    /// Generates the topology. Only random generators use `seed`.
    pub fn generate(&self, link: &LinkDefaults, seed: u64) -> Result<Topology, GeneratorError> {
        match *self {
            Self::Line { nodes } => line(nodes, link),
            Self::Star { leaves } => star(leaves, link),
            Self::Tree { depth, fan_out } => tree(depth, fan_out, link),
            Self::Grid { width, height } => grid(width, height, link),
            Self::Dumbbell { left, right } => dumbbell(left, right, link, link),
            Self::Waxman { nodes, alpha, beta } => waxman(nodes, alpha, beta, link, seed),
            Self::BarabasiAlbert { nodes, links_per_node } => {
                barabasi_albert(nodes, links_per_node, link, seed)
            }
        }
    }
}

fn check_count(
    generator: &'static str,
    parameter: &'static str,
    value: usize,
    least: usize,
) -> Result<(), GeneratorError> {
    if (least..=NODES_MAX).contains(&value) {
        return Ok(());
    }
    let remedy = format!("a number from {least} to {NODES_MAX}");
    Err(GeneratorError::Parameter { generator, parameter, value: value.to_string(), remedy })
}

fn too_many(generator: &'static str, parameter: &'static str, value: String) -> GeneratorError {
    let remedy = format!("parameters that give at most {NODES_MAX} nodes");
    GeneratorError::Parameter { generator, parameter, value, remedy }
}

fn routers(count: usize, at: impl Fn(usize) -> (f64, f64)) -> Vec<Node> {
    (0..count)
        .map(|index| {
            let (x, y) = at(index);
            Node::new(format!("r{index}")).at(x, y)
        })
        .collect()
}

fn make(name: String, nodes: Vec<Node>, links: Vec<Link>) -> Result<Topology, GeneratorError> {
    Ok(Topology::new(name, Coordinates::Plane, nodes, links)?)
}

/// Routers `r0` to `r(nodes-1)` in a row.
pub(crate) fn line(nodes: usize, link: &LinkDefaults) -> Result<Topology, GeneratorError> {
    check_count("line", "nodes", nodes, 1)?;
    let links = (1..nodes).map(|index| link.link(index - 1, index)).collect();
    make(format!("line-{nodes}"), routers(nodes, |index| (index as f64, 0.0)), links)
}

/// Router `r0` in the centre of `r1` to `r(leaves)`.
pub(crate) fn star(leaves: usize, link: &LinkDefaults) -> Result<Topology, GeneratorError> {
    check_count("star", "leaves", leaves, 1)?;
    let at = |index: usize| {
        if index == 0 {
            return (0.0, 0.0);
        }
        let angle = (index - 1) as f64 / leaves as f64 * std::f64::consts::TAU;
        (libm::sin(angle), libm::cos(angle))
    };
    let links = (1..=leaves).map(|index| link.link(0, index)).collect();
    make(format!("star-{leaves}"), routers(leaves + 1, at), links)
}

/// A complete tree of `depth` levels, numbered level by level from the root `r0`: `depth` 4 and
/// `fan_out` 2 give 15 routers.
pub(crate) fn tree(
    depth: usize,
    fan_out: usize,
    link: &LinkDefaults,
) -> Result<Topology, GeneratorError> {
    check_count("tree", "depth", depth, 1)?;
    check_count("tree", "fan_out", fan_out, 1)?;
    let (mut count, mut level_size, mut level_of) = (0usize, 1usize, Vec::new());
    for level in 0..depth {
        if level_size > NODES_MAX - count {
            return Err(too_many("tree", "depth", depth.to_string()));
        }
        level_of.extend((0..level_size).map(|place| (level, place, level_size)));
        count += level_size;
        level_size = level_size.saturating_mul(fan_out);
    }
    let widest = level_of[count - 1].2 as f64;
    let at = |index: usize| {
        let (level, place, size) = level_of[index];
        // Half as high as wide, so that the names of the lowest level fit.
        let height = (widest / 2.0).max(depth as f64 / 2.0) / depth as f64;
        ((place as f64 + 0.5) / size as f64 * widest, -(level as f64) * height)
    };
    let links = (1..count).map(|index| link.link((index - 1) / fan_out, index)).collect();
    make(format!("tree-{depth}-{fan_out}"), routers(count, at), links)
}

/// `width` by `height` routers, each linked to its right and its lower neighbour.
pub(crate) fn grid(
    width: usize,
    height: usize,
    link: &LinkDefaults,
) -> Result<Topology, GeneratorError> {
    check_count("grid", "width", width, 1)?;
    check_count("grid", "height", height, 1)?;
    let count = width * height;
    if count > NODES_MAX {
        return Err(too_many("grid", "height", height.to_string()));
    }
    let at = |index: usize| ((index % width) as f64, -((index / width) as f64));
    let mut links = Vec::with_capacity(2 * count);
    for index in 0..count {
        if index % width + 1 < width {
            links.push(link.link(index, index + 1));
        }
        if index + width < count {
            links.push(link.link(index, index + width));
        }
    }
    make(format!("grid-{width}-{height}"), routers(count, at), links)
}

/// Consumers `c0`.. at router `r0`, producers `p0`.. at router `r1`, and one `bottleneck` between.
pub(crate) fn dumbbell(
    left: usize,
    right: usize,
    edge: &LinkDefaults,
    bottleneck: &LinkDefaults,
) -> Result<Topology, GeneratorError> {
    check_count("dumbbell", "left", left, 1)?;
    check_count("dumbbell", "right", right, 1)?;
    let mut nodes = vec![Node::new("r0").at(1.0, 0.0), Node::new("r1").at(2.5, 0.0)];
    let mut links = vec![bottleneck.link(0, 1)];
    let most = left.max(right) as f64;
    for (count, router, letter, role, x) in
        [(left, 0, 'c', Role::Consumer, 0.0), (right, 1, 'p', Role::Producer, 3.5)]
    {
        for index in 0..count {
            let y = ((count - 1) as f64 / 2.0 - index as f64) * (2.0 / most);
            links.push(edge.link(router, nodes.len()));
            nodes.push(Node::new(format!("{letter}{index}")).with_role(role).at(x, y));
        }
    }
    make(format!("dumbbell-{left}-{right}"), nodes, links)
}

/// Waxman's random graph. Routers have random positions in the unit square. Two are linked with the
/// probability `beta * exp(-distance / (alpha * longest))`. Then the nearest routers of separate
/// components are linked until the graph is connected.
///
/// The given delay is multiplied by `distance / mean distance of linked routers`, so it stays the
/// same on average. No link has less than a hundredth of it.
pub(crate) fn waxman(
    nodes: usize,
    alpha: f64,
    beta: f64,
    link: &LinkDefaults,
    seed: u64,
) -> Result<Topology, GeneratorError> {
    check_count("waxman", "nodes", nodes, 1)?;
    for (parameter, value) in [("alpha", alpha), ("beta", beta)] {
        if !(value > 0.0 && value <= 1.0) {
            let remedy = "a number above 0 and at most 1".to_owned();
            let value = value.to_string();
            return Err(GeneratorError::Parameter {
                generator: "waxman",
                parameter,
                value,
                remedy,
            });
        }
    }
    let mut rng = Rng::from_seed(seed);
    let places: Vec<_> = (0..nodes).map(|_| (rng.unit(), rng.unit())).collect();
    let distance = |a: usize, b: usize| {
        let (dx, dy) = (places[a].0 - places[b].0, places[a].1 - places[b].1);
        (dx * dx + dy * dy).sqrt()
    };
    // The longest possible distance in the unit square is its diagonal.
    let reach = alpha * std::f64::consts::SQRT_2;
    let mut pairs = Vec::new();
    for a in 0..nodes {
        for b in a + 1..nodes {
            if rng.unit() < beta * libm::exp(-distance(a, b) / reach) {
                pairs.push((a, b));
            }
        }
    }
    connect_components(nodes, &mut pairs, distance);
    let total: f64 = pairs.iter().map(|&(a, b)| distance(a, b)).sum();
    let mean = (total / pairs.len().max(1) as f64).max(f64::MIN_POSITIVE);
    let links = pairs
        .into_iter()
        .map(|(a, b)| {
            let factor = (distance(a, b) / mean).max(0.01);
            let delay_ns = (link.delay_ns as f64 * factor).round() as u64;
            Link { delay_ns, ..link.link(a, b) }
        })
        .collect();
    make(format!("waxman-{nodes}"), routers(nodes, |index| places[index]), links)
}

/// Links the component of node 0 to the nearest node outside it until one component is left (Prim).
fn connect_components(
    nodes: usize,
    pairs: &mut Vec<(usize, usize)>,
    distance: impl Fn(usize, usize) -> f64,
) {
    let mut neighbours = vec![Vec::new(); nodes];
    for &(a, b) in pairs.iter() {
        neighbours[a].push(b);
        neighbours[b].push(a);
    }
    // For each node outside, its nearest node inside.
    let mut inside = vec![false; nodes];
    let mut nearest = vec![(f64::INFINITY, 0); nodes];
    let mut entering = vec![0];
    loop {
        while let Some(node) = entering.pop() {
            if std::mem::replace(&mut inside[node], true) {
                continue;
            }
            entering.extend(neighbours[node].iter().filter(|&&other| !inside[other]));
            for other in 0..nodes {
                let length = distance(node, other);
                if !inside[other] && length < nearest[other].0 {
                    nearest[other] = (length, node);
                }
            }
        }
        let outside = (0..nodes).filter(|&node| !inside[node]);
        let Some(node) = outside.min_by(|&a, &b| nearest[a].0.total_cmp(&nearest[b].0)) else {
            return;
        };
        let other = nearest[node].1;
        pairs.push((node.min(other), node.max(other)));
        entering.push(node);
    }
}

/// Barabási and Albert's graph of preferential attachment. It starts with a complete graph of
/// `links_per_node + 1` routers. Each further router links to `links_per_node` different ones,
/// chosen with a probability proportional to their number of links. The graph is connected.
pub(crate) fn barabasi_albert(
    nodes: usize,
    links_per_node: usize,
    link: &LinkDefaults,
    seed: u64,
) -> Result<Topology, GeneratorError> {
    check_count("barabasi-albert", "nodes", nodes, 2)?;
    if links_per_node == 0 || links_per_node >= nodes {
        return Err(GeneratorError::Parameter {
            generator: "barabasi-albert",
            parameter: "links_per_node",
            value: links_per_node.to_string(),
            remedy: format!("a number from 1 to {} (fewer than nodes)", nodes - 1),
        });
    }
    if links_per_node.saturating_mul(nodes) > 100 * NODES_MAX {
        return Err(too_many("barabasi-albert", "links_per_node", links_per_node.to_string()));
    }
    let mut rng = Rng::from_seed(seed);
    let core = links_per_node + 1;
    // Every link adds both its ends, so a uniform draw is proportional to the degree.
    let (mut ends, mut links) = (Vec::<usize>::new(), Vec::new());
    for b in 1..core {
        for a in 0..b {
            links.push(link.link(a, b));
            ends.extend([a, b]);
        }
    }
    for node in core..nodes {
        let mut chosen = Vec::with_capacity(links_per_node);
        while chosen.len() < links_per_node {
            let other = ends[rng.below(ends.len() as u32) as usize];
            if !chosen.contains(&other) {
                chosen.push(other);
            }
        }
        for other in chosen {
            links.push(link.link(other, node));
            ends.extend([other, node]);
        }
    }
    let nodes = (0..nodes).map(|index| Node::new(format!("r{index}"))).collect::<Vec<_>>();
    make(format!("barabasi-albert-{}", nodes.len()), nodes, links)
}

#[cfg(test)]
mod tests;
