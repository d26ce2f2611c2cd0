//! Links, and the routes of each router, updated without loops (docs/decisions/0026).
//!
//! Routers receive their routes at different times, and an unreachable router keeps its old ones.
//! So at any moment the network forwards by a mixture of old and new routes. No such mixture may
//! form a loop.
//!
//! For each group of prefixes with the same producers, the controller tracks the next hops that
//! each router may have at present: those assigned last, and retiring ones. A retiring next hop has
//! been replaced. It counts until the router has reported a configuration without it for a second,
//! so that packets in flight arrive. These next hops are the edges of a graph. The invariant is:
//! this graph never has a cycle.
//!
//! [`PrefixGroup::next_changes`] computes the next safe changes:
//!
//! 1. Compute shortest paths to the nearest producer. The best next hops of a router are up to
//!    three neighbours that are strictly nearer to a producer than the router itself. Best next
//!    hops alone cannot form a cycle.
//! 2. Build the graph of all edges that routers may have, and add the best next hops of each router
//!    that has others at present. Compute its strongly connected components.
//! 3. Find settled routers, the nearest to a producer first. A router is settled if it has its best
//!    next hops, has no retiring ones, and all its next hops are settled.
//! 4. A router may get a new next hop if that is in another component, because then no cycle
//!    contains the edge. It may also get it if the next hop is settled: an Interest there only
//!    meets settled routers and gets nearer with each hop.
//! 5. A router without any permitted next hop keeps its old ones, if their links exist.
//! 6. The caller gives each changed router a new generation. Next hops that it loses become
//!    retiring, with that generation. When reports show that they are gone, the next tick repeats
//!    these steps.
//!
//! Example: routers A and B are linked. Producer P is behind A, so B has next hop A, and A has next
//! hop P. The application moves to Q, behind B. Now A should use B, and B should use Q. Edges B-A
//! and A-B together form a cycle, so they are in one component. B gets Q at once, in generation 10,
//! because Q is in a component of its own; its edge to A retires. A waits and keeps P. When B has
//! reported generation 10 for a second, the edge B-A is deleted. B is settled now, so A gets B. If
//! the controller had changed both at once, and A had been faster, Interests would have looped
//! between A and B.
//!
//! The router nearest to a producer never has to wait for others, then the next nearest, and so on.
//! So all routers reach their best next hops when nothing else changes.
//!
//! This must never assume that a router has applied a configuration before it reports so. It must
//! never forget retiring edges of a lost router too early, because the router may still forward.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;
use alloc::vec::Vec;

use weir_base::Instant;
use weir_wire::Name;

use crate::graph::{Graph, NO_ROUTER, Paths, strong_components};
use crate::message::RouteOrder;
use crate::network::Network;
use crate::objects::RouterId;

/// Maximum number of next hops for a prefix in one router: the shortest, and others as a fallback.
const HOPS_MAX: usize = 3;
/// Routes are computed immediately after a report if the work (routers and links, times groups) is
/// at most this. That happens at most `IMMEDIATE_RUNS` times between two ticks. Otherwise the next
/// tick computes them, at most `WORK_PER_TICK` in one tick.
const IMMEDIATE_WORK_MAX: usize = 20_000;
const IMMEDIATE_RUNS: u32 = 64;
const WORK_PER_TICK: usize = 100_000;

/// A next hop with its cost in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Hop {
    next: RouterId,
    cost_us: u32,
}

const NO_HOP: Hop = Hop { next: NO_ROUTER, cost_us: 0 };

type Hops = [Hop; HOPS_MAX];

/// Prefixes that are registered at the same routers and have the same routes.
#[derive(Clone, Default)]
struct PrefixGroup {
    prefixes: BTreeSet<Name>,
    producers: Vec<RouterId>,
    /// By router: the next hops that it was given last.
    assigned: Vec<Hops>,
    /// By router: next hops that it was given earlier and may still have, each with the first
    /// generation that is without it.
    retiring: BTreeMap<RouterId, Vec<(RouterId, u64)>>,
    /// Whether some routers do not have their best next hops yet.
    is_pending: bool,
}

/// New next hops of one router in one group.
struct HopChange {
    group: usize,
    router: RouterId,
    hops: Hops,
}

/// The result of [`Routing::compute`].
pub(super) struct RouteChanges {
    /// Routers whose routes change.
    pub(super) changed_routers: BTreeSet<RouterId>,
    changes: Vec<HopChange>,
    groups: Vec<usize>,
}

/// The graph of links, and the routes of all groups.
#[derive(Default)]
pub(super) struct Routing {
    pub(super) graph: Graph,
    has_changed: bool,
    groups: BTreeMap<usize, PrefixGroup>,
    next_group: usize,
    group_of_prefix: BTreeMap<Name, usize>,
    /// Prefixes whose producers have changed.
    changed_prefixes: BTreeSet<Name>,
    /// Groups whose routes must be computed.
    due_groups: BTreeSet<usize>,
    /// The group at which the next computation starts, so that each group gets its turn.
    resume_at: usize,
    immediate_runs_left: u32,
}

impl PrefixGroup {
    fn assigned_hops(&self, router: RouterId) -> Hops {
        self.assigned.get(router as usize).copied().unwrap_or([NO_HOP; HOPS_MAX])
    }

    /// Deletes retiring next hops that routers have certainly given up. `settled` is the generation
    /// that a router has reported for a while.
    fn drop_retired(&mut self, settled: impl Fn(RouterId) -> u64) {
        self.retiring.retain(|router, before| {
            before.retain(|(_, until)| settled(*router) < *until);
            !before.is_empty()
        });
    }

    /// The next hops that each router may have at present.
    fn possible_edges(&self, size: usize) -> Vec<Vec<RouterId>> {
        let mut edges = vec![Vec::new(); size];
        for (from, hops) in edges.iter_mut().zip(&self.assigned) {
            from.extend(hops.iter().map(|hop| hop.next).filter(|next| *next != NO_ROUTER));
        }
        for (router, before) in &self.retiring {
            edges[*router as usize].extend(before.iter().map(|(next, _)| *next));
        }
        edges
    }

    fn best_hops(graph: &Graph, paths: &Paths, router: RouterId) -> Hops {
        let mut hops = [NO_HOP; HOPS_MAX];
        for (hop, (next, cost)) in hops.iter_mut().zip(graph.nearer_neighbours(paths, router)) {
            *hop = Hop { next, cost_us: u32::try_from(cost / 1000).unwrap_or(u32::MAX) };
        }
        hops
    }

    /// The routers whose next hops change now, each with its new ones. The flag says whether all
    /// routers then have their best next hops. The module's description has the steps.
    fn next_changes(
        &self,
        graph: &Graph,
        is_there: impl Fn(RouterId) -> bool,
    ) -> (Vec<(RouterId, Hops)>, bool) {
        let paths = graph.paths(&self.producers);
        let mut edges = self.possible_edges(graph.id_count());
        let mut wanted: BTreeMap<RouterId, Hops> = BTreeMap::new();
        for router in (0..edges.len() as RouterId).filter(|router| is_there(*router)) {
            let hops = Self::best_hops(graph, &paths, router);
            if hops != self.assigned_hops(router) {
                edges[router as usize]
                    .extend(hops.iter().map(|hop| hop.next).filter(|next| *next != NO_ROUTER));
                wanted.insert(router, hops);
            }
        }
        if wanted.is_empty() {
            return (Vec::new(), true);
        }
        // Steps 2 and 4: two nodes of different components are on no common cycle.
        let component = strong_components(&edges);
        // Step 3: from the nearest router outwards, so that next hops are decided before the
        // routers that use them.
        let mut is_settled = vec![false; edges.len()];
        for &router in paths.order() {
            let mut hops =
                self.assigned_hops(router).into_iter().filter(|hop| hop.next != NO_ROUTER);
            is_settled[router as usize] = !wanted.contains_key(&router)
                && !self.retiring.contains_key(&router)
                && hops.all(|hop| is_settled[hop.next as usize]);
        }
        let mut changes = Vec::new();
        let mut is_whole = true;
        for (router, hops) in wanted {
            let closes_none = |hop: &&Hop| {
                component[hop.next as usize] != component[router as usize]
                    || is_settled[hop.next as usize]
            };
            let all = hops.iter().filter(|hop| hop.next != NO_ROUTER);
            let mut may: Vec<Hop> = all.clone().filter(closes_none).copied().collect();
            is_whole &= may.len() == all.count();
            if may.is_empty() {
                // Step 5: keep the old next hops, as far as their links exist and the router should
                // have a route.
                let given = self.assigned_hops(router);
                let neighbours = graph.neighbours(router);
                let is_link =
                    |hop: &&Hop| neighbours.iter().any(|(neighbour, _)| *neighbour == hop.next);
                let is_wanted = hops.iter().any(|hop| hop.next != NO_ROUTER);
                may = given.iter().filter(is_link).filter(|_| is_wanted).copied().collect();
            }
            let mut new = [NO_HOP; HOPS_MAX];
            new.iter_mut().zip(may).for_each(|(hop, one)| *hop = one);
            if new != self.assigned_hops(router) {
                changes.push((router, new));
            }
        }
        (changes, is_whole)
    }

    /// Assigns next hops to a router. The configuration with this generation contains them, so the
    /// next hops that it removes retire with the same generation.
    fn assign(&mut self, router: RouterId, hops: Hops, generation: u64) {
        let at = router as usize;
        if self.assigned.len() <= at {
            self.assigned.resize(at + 1, [NO_HOP; HOPS_MAX]);
        }
        let former = core::mem::replace(&mut self.assigned[at], hops);
        let has = |next: RouterId| hops.iter().any(|hop| hop.next == next);
        let removed =
            former.iter().map(|hop| hop.next).filter(|next| *next != NO_ROUTER && !has(*next));
        let removed: Vec<(RouterId, u64)> = removed.map(|next| (next, generation)).collect();
        if !removed.is_empty() {
            let before = self.retiring.entry(router).or_default();
            // A next hop that was removed before, and assigned again since, retires later.
            before.retain(|(next, _)| removed.iter().all(|(other, _)| other != next));
            before.extend(removed);
        }
    }

    /// Removes all next hops of a router, including retiring ones.
    fn forget(&mut self, router: RouterId) {
        self.retiring.remove(&router);
        if let Some(given) = self.assigned.get_mut(router as usize) {
            *given = [NO_HOP; HOPS_MAX];
        }
    }
}

impl Routing {
    pub(super) fn new() -> Self {
        Self { immediate_runs_left: IMMEDIATE_RUNS, ..Self::default() }
    }

    /// Makes all routes due, because the links have changed.
    pub(super) fn links_changed(&mut self) {
        self.has_changed = true;
    }

    pub(super) fn producers_changed(&mut self, prefix: &Name) {
        self.changed_prefixes.insert(prefix.clone());
    }

    /// No router has routes, so all of them are assigned from the beginning.
    pub(super) fn reset(&mut self) {
        for group in self.groups.values_mut() {
            group.assigned.clear();
            group.retiring.clear();
        }
        self.has_changed = true;
    }

    /// Forgets the next hops of a router that has restarted, or that was lost long ago.
    pub(super) fn forget(&mut self, router: RouterId) {
        for (id, group) in &mut self.groups {
            group.forget(router);
            self.due_groups.insert(*id);
        }
    }

    pub(super) fn routes_of(&self, network: &Network, router: RouterId) -> Vec<RouteOrder> {
        let mut routes = Vec::new();
        for group in self.groups.values() {
            for hop in group.assigned_hops(router).iter().filter(|hop| hop.next != NO_ROUTER) {
                routes.extend(group.prefixes.iter().map(|prefix| RouteOrder {
                    prefix: prefix.clone(),
                    router: network.name_of(hop.next).into(),
                    cost: u64::from(hop.cost_us),
                }));
            }
        }
        routes.sort_by(|one, other| (&one.prefix, one.cost).cmp(&(&other.prefix, other.cost)));
        routes
    }

    fn work(&self) -> usize {
        let due = if self.has_changed { self.groups.len() } else { self.due_groups.len() };
        self.graph.size() * (1 + due + self.changed_prefixes.len())
    }

    /// Moves each prefix whose producers have changed to a group with its new producers. Returns
    /// the routers whose routes change by that.
    fn regroup_prefixes(&mut self, network: &Network) -> BTreeSet<RouterId> {
        let mut touched = BTreeSet::new();
        let mut moves: BTreeMap<(Option<usize>, Vec<RouterId>), BTreeSet<Name>> = BTreeMap::new();
        for prefix in core::mem::take(&mut self.changed_prefixes) {
            let producers = network.producers_at(&prefix);
            let from = self.group_of_prefix.get(&prefix).copied();
            let is_same = from.is_some_and(|from| {
                self.groups.get(&from).is_some_and(|group| group.producers == producers)
            });
            let is_nothing = from.is_none() && producers.is_empty();
            if !(is_same || is_nothing) {
                moves.entry((from, producers)).or_default().insert(prefix);
            }
        }
        for ((from, producers), prefixes) in moves {
            let to = match from {
                // No router has a route to a new prefix, so any group with the same producers fits.
                None => {
                    let same = |(_, group): &(&usize, &PrefixGroup)| group.producers == producers;
                    let known = self.groups.iter().find(same).map(|(id, _)| *id);
                    known.unwrap_or_else(|| {
                        self.new_group(PrefixGroup { producers, ..PrefixGroup::default() })
                    })
                }
                Some(from) => {
                    // A prefix that has routes keeps them as the state of its new group: the change
                    // of producers must happen without loops as well.
                    let Some(group) = self.groups.get_mut(&from) else { continue };
                    group.prefixes.retain(|prefix| !prefixes.contains(prefix));
                    let state =
                        PrefixGroup { prefixes: BTreeSet::new(), producers, ..group.clone() };
                    if group.prefixes.is_empty() {
                        self.groups.remove(&from);
                        self.due_groups.remove(&from);
                    }
                    self.new_group(state)
                }
            };
            self.due_groups.insert(to);
            let Some(group) = self.groups.get_mut(&to) else { continue };
            for prefix in prefixes {
                self.group_of_prefix.insert(prefix.clone(), to);
                group.prefixes.insert(prefix);
            }
            if from.is_none() {
                let has = |router: &RouterId| group.assigned_hops(*router)[0].next != NO_ROUTER;
                touched.extend((0..group.assigned.len() as RouterId).filter(has));
            }
        }
        touched
    }

    fn new_group(&mut self, group: PrefixGroup) -> usize {
        let id = self.next_group;
        self.next_group += 1;
        self.groups.insert(id, group);
        id
    }

    /// Removes a group that has neither producers nor routes. Merges a group into another
    /// group with the same producers and routes.
    fn merge_or_remove(&mut self, id: usize) {
        let Some(group) = self.groups.get(&id) else { return };
        if group.is_pending || !group.retiring.is_empty() {
            return;
        }
        if group.producers.is_empty() {
            let has_none = |hops: &Hops| hops.iter().all(|hop| hop.next == NO_ROUTER);
            if !group.assigned.iter().all(has_none) {
                return;
            }
            for prefix in &group.prefixes {
                self.group_of_prefix.remove(prefix);
            }
            self.groups.remove(&id);
            return;
        }
        let is_twin = |(other, twin): &(&usize, &PrefixGroup)| {
            **other != id
                && twin.producers == group.producers
                && !twin.is_pending
                && twin.retiring.is_empty()
                && twin.assigned == group.assigned
        };
        let twin = self.groups.iter().find(is_twin).map(|(other, _)| *other);
        if let Some(twin) = twin
            && let Some(group) = self.groups.remove(&id)
            && let Some(twin_group) = self.groups.get_mut(&twin)
        {
            for prefix in group.prefixes {
                self.group_of_prefix.insert(prefix.clone(), twin);
                twin_group.prefixes.insert(prefix);
            }
        }
    }

    /// Whether routes are computed now, after a change, instead of at the next tick. If so, it
    /// counts against `IMMEDIATE_RUNS`.
    pub(super) fn take_immediate_run(&mut self) -> bool {
        let is_little = self.immediate_runs_left > 0 && self.work() <= IMMEDIATE_WORK_MAX;
        self.immediate_runs_left -= u32::from(is_little);
        is_little
    }

    /// Begins a tick: groups with pending changes become due.
    pub(super) fn begin_tick(&mut self) {
        self.immediate_runs_left = IMMEDIATE_RUNS;
        let is_pending =
            |(_, group): &(&usize, &PrefixGroup)| group.is_pending || !group.retiring.is_empty();
        self.due_groups.extend(self.groups.iter().filter(is_pending).map(|(id, _)| *id));
    }

    /// Rebuilds the graph if links have changed. Returns whether they have.
    pub(super) fn update_graph(&mut self, network: &Network) -> bool {
        let has_changed = core::mem::take(&mut self.has_changed);
        if has_changed {
            self.graph = network.graph();
            self.due_groups.extend(self.groups.keys());
        }
        has_changed
    }

    /// Computes due routes, as many as one tick may. The caller must give new generations to the
    /// changed routers before it calls [`Routing::apply`].
    pub(super) fn compute(&mut self, network: &Network, now: Instant) -> RouteChanges {
        let touched = self.regroup_prefixes(network);
        let mut new =
            RouteChanges { changed_routers: touched, changes: Vec::new(), groups: Vec::new() };
        // At least one group in each tick, even in a very large network.
        let mut left = (WORK_PER_TICK / self.graph.size().max(1)).max(1);
        // Continue after the last group of the previous tick, and wrap around at the end.
        while left > 0
            && let Some(&id) =
                self.due_groups.range(self.resume_at..).next().or_else(|| self.due_groups.first())
        {
            left -= 1;
            self.due_groups.remove(&id);
            self.resume_at = id + 1;
            // The group may have been merged or removed since it became due.
            let Some(group) = self.groups.get_mut(&id) else { continue };
            group.drop_retired(|router| {
                network.by_id(router).map_or(0, |one| one.settled_generation(now))
            });
            let is_there = |router| network.by_id(router).is_some();
            let (changes, is_whole) = group.next_changes(&self.graph, is_there);
            group.is_pending = !is_whole;
            new.changed_routers.extend(changes.iter().map(|(router, _)| *router));
            let given = changes.into_iter();
            new.changes.extend(given.map(|(router, hops)| HopChange { group: id, router, hops }));
            new.groups.push(id);
        }
        new
    }

    /// Assigns the new next hops with the present generations of their routers.
    pub(super) fn apply(&mut self, network: &Network, new: RouteChanges) {
        for HopChange { group, router, hops } in new.changes {
            let generation = network.by_id(router).map_or(0, |router| router.generation);
            if let Some(group) = self.groups.get_mut(&group) {
                group.assign(router, hops, generation);
            }
        }
        new.groups.into_iter().for_each(|id| self.merge_or_remove(id));
    }
}
