//! Shortest paths between routers, by number.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BinaryHeap};
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::cmp::Reverse;

use crate::objects::RouterId;

/// No router has this number.
pub(crate) const NO_ROUTER: RouterId = RouterId::MAX;
/// Trees that are remembered at most.
const PATH_CACHE_MAX: usize = 4096;

/// The links between routers, with what they cost.
#[derive(Default)]
pub(crate) struct Graph {
    /// Links of a router, one to each neighbour.
    outgoing: Vec<Vec<(RouterId, u64)>>,
    incoming: Vec<Vec<(RouterId, u64)>>,
    /// The place of a router's name among all. Of equal paths that over the first neighbour is
    /// taken, so that a controller that begins anew finds the same.
    rank: Vec<u32>,
    links: usize,
    path_cache: RefCell<BTreeMap<Box<[RouterId]>, Arc<Paths>>>,
}

/// The paths of all routers to the nearest of some.
pub(crate) struct Paths {
    /// Of each router; `u64::MAX` of one without a path.
    distance: Vec<u64>,
    next: Vec<RouterId>,
    /// Routers with a path, the nearest first.
    order: Vec<RouterId>,
}

impl Paths {
    pub(crate) fn distance(&self, router: RouterId) -> Option<u64> {
        self.distance.get(router as usize).copied().filter(|distance| *distance != u64::MAX)
    }

    /// The routers after `from` on its path, the destination included.
    pub(crate) fn path(&self, from: RouterId) -> impl Iterator<Item = RouterId> {
        let next = |router: &RouterId| {
            self.next.get(*router as usize).copied().filter(|next| *next != NO_ROUTER)
        };
        core::iter::successors(next(&from), next)
    }

    /// Routers with a path, the nearest first.
    pub(crate) fn order(&self) -> &[RouterId] {
        &self.order
    }
}

impl Graph {
    /// Of routers with these ranks, `NO_ROUTER` of numbers that are not in use, and of links from a
    /// router to another at a cost above 0.
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

    /// Routers, links included: what a tree takes to compute.
    pub(crate) fn size(&self) -> usize {
        self.rank.len() + self.links
    }

    /// Numbers of routers are below this.
    pub(crate) fn id_count(&self) -> usize {
        self.rank.len()
    }

    /// Links from one router to another, both ways counted.
    pub(crate) fn links_count(&self) -> usize {
        self.links
    }

    /// The neighbours of a router and what it costs to reach them.
    pub(crate) fn neighbours(&self, router: RouterId) -> &[(RouterId, u64)] {
        self.outgoing.get(router as usize).map_or(&[], Vec::as_slice)
    }

    pub(crate) fn rank(&self, router: RouterId) -> u32 {
        self.rank.get(router as usize).copied().unwrap_or(NO_ROUTER)
    }

    /// Shortest paths to the nearest of `destinations`.
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

    fn compute(&self, destinations: &[RouterId]) -> Paths {
        let size = self.rank.len();
        let mut paths = Paths {
            distance: vec![u64::MAX; size],
            next: vec![NO_ROUTER; size],
            order: Vec::new(),
        };
        let known = destinations.iter().filter(|router| self.rank(**router) != NO_ROUTER);
        let mut heap: BinaryHeap<_> =
            known.map(|&router| Reverse((0, 0, NO_ROUTER, router))).collect();
        while let Some(Reverse((distance, _, next, router))) = heap.pop() {
            let at = router as usize;
            if paths.distance[at] != u64::MAX {
                continue;
            }
            paths.distance[at] = distance;
            paths.next[at] = next;
            paths.order.push(router);
            for &(from, cost) in &self.incoming[at] {
                if paths.distance[from as usize] == u64::MAX {
                    let distance = distance.saturating_add(cost).min(u64::MAX - 1);
                    heap.push(Reverse((distance, self.rank(router), router, from)));
                }
            }
        }
        paths
    }

    /// The neighbours that are strictly nearer to the destinations than a router, with the distance
    /// over each, the shortest first: whoever asks only these comes nearer with every hop.
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

/// For each node of a graph of edges the number of its strongly connected component (Tarjan, 1972).
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
        // 0 -> 1 -> 2 -> 0, 2 -> 3 -> 4, 4 -> 3, 5 alone.
        let edges = [vec![1], vec![2], vec![0, 3], vec![4], vec![3], vec![]];
        let found = strong_components(&edges);
        assert!(found[0] == found[1] && found[1] == found[2]);
        assert!(found[3] == found[4] && found[3] != found[0]);
        assert!(found[5] != found[0] && found[5] != found[3]);
    }

    #[test]
    fn picks_nearest_destination_then_rank() {
        // 0 - 1 - 2 - 3, and 1 - 4 - 3, at 10 each; names in the order 4, 3, 2, 1, 0.
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
