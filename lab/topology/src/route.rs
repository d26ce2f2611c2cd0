//! Shortest paths.
//!
//! All results are deterministic. Among equally short paths, the one with the fewest links wins,
//! then the neighbour with the lowest index, then the link with the lowest index.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::model::Topology;

/// The quantity that paths minimise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Metric {
    /// [`crate::Link::cost`].
    #[default]
    Cost,
    /// [`crate::Link::delay_ns`].
    Delay,
    Hops,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hop {
    pub node: usize,
    /// The link to it, an index in [`Topology::links`].
    pub link: usize,
}

/// Paths of every node to one destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Routes {
    pub destination: usize,
    /// For each node, the sum of the metric to the destination; `None` without a path.
    pub distance: Vec<Option<u64>>,
    /// For each node, the number of links of its path; 0 without a path.
    pub hops: Vec<u32>,
    /// For each node, its next hop; `None` at the destination and without a path.
    pub next: Vec<Option<Hop>>,
}

impl Routes {
    /// The hops from `node` to the destination: empty at the destination, `None` without a path.
    #[cfg(test)]
    pub(crate) fn path_from(&self, node: usize) -> Option<Vec<Hop>> {
        self.distance.get(node).copied().flatten()?;
        let next = |hop: Option<Hop>| self.next[hop.map_or(node, |hop| hop.node)];
        Some(std::iter::successors(next(None), |&hop| next(Some(hop))).collect())
    }
}

#[derive(Clone, Copy, Debug)]
struct Edge {
    hop: Hop,
    weight: u64,
}

/// Computes routes over one topology to many destinations.
///
/// It has its own compact copy of the links. A destination costs `O((nodes + links) log nodes)`.
/// After changes of links, create a new planner.
#[derive(Clone, Debug)]
pub struct RoutePlanner {
    /// The edges of node `n` are `edges[starts[n]..starts[n + 1]]`, sorted by neighbour and link.
    starts: Vec<usize>,
    edges: Vec<Edge>,
    forwards: Vec<bool>,
}

impl RoutePlanner {
    /// A planner over all links of `topology`.
    pub fn new(topology: &Topology, metric: Metric) -> Self {
        Self::over(topology, metric, |_| true)
    }

    /// A planner over the links for which `usable(index)` holds, such as those that are up.
    pub(crate) fn over(
        topology: &Topology,
        metric: Metric,
        usable: impl Fn(usize) -> bool,
    ) -> Self {
        let nodes = topology.nodes().len();
        let mut by_node = vec![Vec::new(); nodes];
        for (link, properties) in topology.links().iter().enumerate() {
            if !usable(link) {
                continue;
            }
            let weight = match metric {
                Metric::Cost => u64::from(properties.cost),
                Metric::Delay => properties.delay_ns,
                Metric::Hops => 1,
            };
            let (a, b) = (properties.a, properties.b);
            by_node[a].push(Edge { hop: Hop { node: b, link }, weight });
            by_node[b].push(Edge { hop: Hop { node: a, link }, weight });
        }
        let (mut starts, mut edges) = (vec![0], Vec::new());
        for mut list in by_node {
            list.sort_unstable_by_key(|edge| edge.hop);
            edges.append(&mut list);
            starts.push(edges.len());
        }
        Self { starts, edges, forwards: vec![true; nodes] }
    }

    /// Excludes paths through nodes for which `forwards` does not hold. Paths may still start and
    /// end there.
    #[must_use]
    pub fn through(mut self, forwards: impl Fn(usize) -> bool) -> Self {
        for (node, value) in self.forwards.iter_mut().enumerate() {
            *value = forwards(node);
        }
        self
    }

    fn edges_of(&self, node: usize) -> std::ops::Range<usize> {
        self.starts[node]..self.starts[node + 1]
    }

    /// Whether a path to `destination` may continue through `node`.
    fn can_transit(&self, node: usize, destination: usize) -> bool {
        node == destination || self.forwards[node]
    }

    /// The shortest paths of all nodes to `destination` (Dijkstra).
    ///
    /// # Panics
    /// `destination` is not the index of a node.
    pub fn routes_to(&self, destination: usize) -> Routes {
        let nodes = self.forwards.len();
        assert!(destination < nodes, "node {destination} of {nodes}");
        let mut best = vec![(u64::MAX, u32::MAX); nodes];
        let mut settled = vec![false; nodes];
        let mut queue = BinaryHeap::new();
        best[destination] = (0, 0);
        queue.push(Reverse((0u64, 0u32, destination)));
        // Dijkstra from the destination, ordered by distance and then by links.
        while let Some(Reverse((distance, hops, node))) = queue.pop() {
            if std::mem::replace(&mut settled[node], true) || !self.can_transit(node, destination) {
                continue;
            }
            for edge in &self.edges[self.edges_of(node)] {
                let candidate = (distance.saturating_add(edge.weight), hops + 1);
                let other = edge.hop.node;
                if !settled[other] && candidate < best[other] {
                    best[other] = candidate;
                    queue.push(Reverse((candidate.0, candidate.1, other)));
                }
            }
        }
        let reached = |node: usize| settled[node].then_some(best[node]);
        // A second pass chooses next hops: edges are sorted, so the first one on a shortest path
        // has the lowest indices.
        let next = (0..nodes)
            .map(|node| {
                let own = reached(node).filter(|_| node != destination)?;
                let edges = &self.edges[self.edges_of(node)];
                let on_path = |edge: &&Edge| {
                    let other = edge.hop.node;
                    self.can_transit(other, destination)
                        && reached(other).is_some_and(|(distance, hops)| {
                            own == (distance.saturating_add(edge.weight), hops + 1)
                        })
                };
                edges.iter().find(on_path).map(|edge| edge.hop)
            })
            .collect();
        Routes {
            destination,
            distance: (0..nodes).map(|node| reached(node).map(|(distance, _)| distance)).collect(),
            hops: (0..nodes).map(|node| reached(node).map_or(0, |(_, hops)| hops)).collect(),
            next,
        }
    }
}

#[cfg(test)]
mod tests;
