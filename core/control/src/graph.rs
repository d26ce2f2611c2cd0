//! The graph of routers and links, with shortest paths. Routers are numbers here.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BinaryHeap};
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::cmp::Reverse;

use crate::objects::RouterId;

/// A number that no router has.
pub(crate) const NO_ROUTER: RouterId = RouterId::MAX;
/// Maximum number of shortest-path trees in the cache.
const PATH_CACHE_MAX: usize = 4096;

/// Routers, and the links between them with their costs in nanoseconds.
#[derive(Default)]
pub(crate) struct Graph {
    /// By router: its neighbours with the cost of the link, one entry for each neighbour.
    outgoing: Vec<Vec<(RouterId, u64)>>,
    incoming: Vec<Vec<(RouterId, u64)>>,
    /// By router: the position of its name in the sorted list of names. Of several paths with equal
    /// cost, the one over the neighbour of lowest rank is used. So a restarted controller finds the
    /// same paths.
    rank: Vec<u32>,
    links: usize,
    path_cache: RefCell<BTreeMap<Box<[RouterId]>, Arc<Paths>>>,
}

/// The shortest path of each router to the nearest of several destinations.
pub(crate) struct Paths {
    /// By router: the cost of the path, or `u64::MAX` without a path.
    distance: Vec<u64>,
    next: Vec<RouterId>,
    /// Routers that have a path, the nearest first.
    order: Vec<RouterId>,
}

impl Paths {
    pub(crate) fn distance(&self, router: RouterId) -> Option<u64> {
        self.distance.get(router as usize).copied().filter(|distance| *distance != u64::MAX)
    }

    /// The routers after `from` on its path, including the destination.
    pub(crate) fn path(&self, from: RouterId) -> impl Iterator<Item = RouterId> {
        let next = |router: &RouterId| {
            self.next.get(*router as usize).copied().filter(|next| *next != NO_ROUTER)
        };
        core::iter::successors(next(&from), next)
    }

    /// Routers that have a path, the nearest first.
    pub(crate) fn order(&self) -> &[RouterId] {
        &self.order
    }
}

impl Graph {
    /// Builds a graph. `rank` has `NO_ROUTER` for unused numbers. Of several links between two
    /// routers the cheapest counts. Costs must be above 0.
    pub(crate) fn new(
        rank: Vec<u32>,
        links: impl Iterator<Item = (RouterId, RouterId, u64)>,
    ) -> Self {
        let mut cheapest: BTreeMap<(RouterId, RouterId), u64> = BTreeMap::new();
        for (from, to, cost) in links {
            let known = cheapest.entry((from, to)).or_insert(cost);
            *known = cost.min(*known);
        }
        let (mut out, mut into) = (vec![Vec::new(); rank.len()], vec![Vec::new(); rank.len()]);
        let count = cheapest.len();
        for ((from, to), cost) in cheapest {
            out[from as usize].push((to, cost));
            into[to as usize].push((from, cost));
        }
        Self { outgoing: out, incoming: into, rank, links: count, path_cache: RefCell::default() }
    }

    /// The number of routers and links: an estimate of the work for one tree.
    pub(crate) fn size(&self) -> usize {
        self.rank.len() + self.links
    }

    /// All router numbers are below this.
    pub(crate) fn id_count(&self) -> usize {
        self.rank.len()
    }

    /// The number of links; each direction counts.
    pub(crate) fn links_count(&self) -> usize {
        self.links
    }

    /// The neighbours of a router, with the cost to reach each.
    pub(crate) fn neighbours(&self, router: RouterId) -> &[(RouterId, u64)] {
        self.outgoing.get(router as usize).map_or(&[], Vec::as_slice)
    }

    pub(crate) fn rank(&self, router: RouterId) -> u32 {
        self.rank.get(router as usize).copied().unwrap_or(NO_ROUTER)
    }

    /// Shortest paths to the nearest of `destinations`, from the cache if they were computed
    /// before.
    pub(crate) fn paths(&self, destinations: &[RouterId]) -> Arc<Paths> {
        if let Some(paths) = self.path_cache.borrow().get(destinations) {
            return Arc::clone(paths);
        }
        let paths = Arc::new(self.compute(destinations));
        let mut trees = self.path_cache.borrow_mut();
        if trees.len() >= PATH_CACHE_MAX {
            trees.clear();
        }
        trees.insert(destinations.into(), Arc::clone(&paths));
        paths
    }

    /// Dijkstra's algorithm from all destinations at once, against the direction of the links.
    fn compute(&self, destinations: &[RouterId]) -> Paths {
        let size = self.rank.len();
        let mut paths = Paths {
            distance: vec![u64::MAX; size],
            next: vec![NO_ROUTER; size],
            order: Vec::new(),
        };
        // The heap orders by distance, then by the rank of the next hop, so ties are always broken
        // alike.
        let known = destinations.iter().filter(|router| self.rank(**router) != NO_ROUTER);
        let mut heap: BinaryHeap<_> =
            known.map(|&router| Reverse((0, 0, NO_ROUTER, router))).collect();
        while let Some(Reverse((distance, _, next, router))) = heap.pop() {
            let at = router as usize;
            // An earlier entry of the heap has reached this router by a shorter path.
            if paths.distance[at] != u64::MAX {
                continue;
            }
            paths.distance[at] = distance;
            paths.next[at] = next;
            paths.order.push(router);
            for &(from, cost) in &self.incoming[at] {
                if paths.distance[from as usize] == u64::MAX {
                    // `u64::MAX` means that there is no path.
                    let distance = distance.saturating_add(cost).min(u64::MAX - 1);
                    heap.push(Reverse((distance, self.rank(router), router, from)));
                }
            }
        }
        paths
    }

    /// The neighbours that are strictly nearer to the destinations than the router, with the
    /// distance over each, the shortest first. An Interest that only follows such neighbours gets
    /// nearer with every hop, so it never loops.
    pub(crate) fn nearer_neighbours(
        &self,
        paths: &Paths,
        router: RouterId,
    ) -> Vec<(RouterId, u64)> {
        let Some(distance) = paths.distance(router) else { return Vec::new() };
        let over = |&(next, cost): &(RouterId, u64)| {
            let from_there = paths.distance(next)?;
            (from_there < distance).then_some((next, from_there.saturating_add(cost)))
        };
        let mut nearer: Vec<_> = self.neighbours(router).iter().filter_map(over).collect();
        nearer.sort_unstable_by_key(|&(next, over)| (over, self.rank(next)));
        nearer
    }
}

/// For each node the number of its strongly connected component (Tarjan, 1972), without recursion.
/// Two nodes are on a common cycle exactly if they have the same component.
pub(crate) fn strong_components(edges: &[Vec<RouterId>]) -> Vec<u32> {
    const NEW: u32 = u32::MAX;
    let size = edges.len();
    let (mut index, mut low) = (vec![NEW; size], vec![0; size]);
    let (mut component, mut components) = (vec![NEW; size], 0);
    let (mut stack, mut counter) = (Vec::new(), 0);
    let mut calls: Vec<(usize, usize)> = Vec::new();
    for start in 0..size {
        if index[start] != NEW {
            continue;
        }
        calls.push((start, 0));
        // Each entry is a node and its next edge to follow, in place of a recursive call.
        while let Some((node, edge)) = calls.pop() {
            if edge == 0 {
                (index[node], low[node]) = (counter, counter);
                counter += 1;
                stack.push(node);
            }
            if let Some(&to) = edges[node].get(edge) {
                let to = to as usize;
                calls.push((node, edge + 1));
                if index[to] == NEW {
                    calls.push((to, 0));
                } else if component[to] == NEW {
                    low[node] = low[node].min(index[to]);
                }
                continue;
            }
            // The node is the first one of its component that was reached: the component is on top
            // of the stack.
            if low[node] == index[node] {
                while let Some(member) = stack.pop() {
                    component[member] = components;
                    if member == node {
                        break;
                    }
                }
                components += 1;
            }
            if let Some(&(caller, _)) = calls.last() {
                low[caller] = low[caller].min(low[node]);
            }
        }
    }
    component
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_strong_components() {
        // 0 -> 1 -> 2 -> 0, 2 -> 3 -> 4, 4 -> 3, and 5 alone.
        let edges = [vec![1], vec![2], vec![0, 3], vec![4], vec![3], vec![]];
        let found = strong_components(&edges);
        assert!(found[0] == found[1] && found[1] == found[2]);
        assert!(found[3] == found[4] && found[3] != found[0]);
        assert!(found[5] != found[0] && found[5] != found[3]);
    }

    #[test]
    fn picks_nearest_destination_then_rank() {
        // 0 - 1 - 2 - 3 and 1 - 4 - 3, all at cost 10. Names sort in the order 4, 3, 2, 1, 0.
        let pairs = [(0, 1), (1, 2), (2, 3), (1, 4), (4, 3)];
        let both = pairs.iter().flat_map(|&(a, b)| [(a, b, 10), (b, a, 10)]);
        let graph = Graph::new(vec![4, 3, 2, 1, 0], both);
        let paths = graph.paths(&[3]);
        assert_eq!(paths.path(0).collect::<Vec<_>>(), [1, 4, 3]);
        assert_eq!(graph.nearer_neighbours(&paths, 1), [(4, 20), (2, 20)]);
        let both = graph.paths(&[0, 3]);
        assert_eq!(
            [0, 1, 2, 3, 4].map(|router| both.distance(router)),
            [0, 10, 10, 0, 10].map(Some)
        );
        assert_eq!(graph.nearer_neighbours(&both, 1), [(0, 10)]);
        assert_eq!(graph.paths(&[9]).distance(0), None);
    }
}
