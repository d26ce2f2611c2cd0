//! Links, and the routes of each router.
//!
//! Routers get their routes at different times, keep old ones while they are away, and are told of
//! others meanwhile. No mixture of what they have may lead an Interest in a circle. So the
//! controller keeps, for each prefix, the next hops that each router may have at present: those
//! that it was given, and those before until it says that it has another configuration. Together
//! they have no circle at any time. A router gets a new next hop at once if that closes none,
//! whatever the others have by then; else when that next hop leads to a producer over routers that
//! all have, for sure, nothing but what they are to have. The nearest to the producer can always go
//! first (decision 0026).

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;
use alloc::vec::Vec;

use weir_base::Instant;
use weir_wire::Name;

use crate::graph::{Graph, NO_ROUTER, Paths, strong_components};
use crate::message::RouteOrder;
use crate::network::Network;
use crate::objects::RouterId;

/// Next hops of a prefix in one router, at most: the shortest, and others to go on with.
const HOPS_MAX: usize = 3;
/// Routes are computed when something is told if that is so little work (routers and links, times
/// sets of producers), so often between two ticks; else at the next tick.
const AT_ONCE_MAX: usize = 20_000;
const AT_ONCE_TIMES: u32 = 64;
const WORK_PER_TICK: usize = 100_000;

/// A next hop and what it costs, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Hop {
    next: RouterId,
    cost_us: u32,
}

const NO_HOP: Hop = Hop { next: NO_ROUTER, cost_us: 0 };

type Hops = [Hop; HOPS_MAX];

/// Prefixes that are produced at the same routers and have the same routes.
#[derive(Clone, Default)]
struct Group {
    prefixes: BTreeSet<Name>,
    producers: Vec<RouterId>,
    /// What each router was given last.
    given: Vec<Hops>,
    /// What it was given before, until it has the configuration with this number.
    before: BTreeMap<RouterId, Vec<(RouterId, u64)>>,
    /// Some have not been given what they are to have.
    is_pending: bool,
}

/// A change of one router's next hops in a group.
struct Given {
    group: usize,
    router: RouterId,
    hops: Hops,
}

/// What [`Routing::compute`] has found.
pub(super) struct NewRoutes {
    /// Routers whose routes are others.
    pub(super) touched: BTreeSet<RouterId>,
    given: Vec<Given>,
    groups: Vec<usize>,
}

#[derive(Default)]
pub(super) struct Routing {
    pub(super) graph: Graph,
    has_changed: bool,
    groups: BTreeMap<usize, Group>,
    next_group: usize,
    of_prefix: BTreeMap<Name, usize>,
    /// Prefixes whose producers are others.
    moved: BTreeSet<Name>,
    /// Groups that are to be computed anew.
    due: BTreeSet<usize>,
    /// Where the last tick ended.
    at: usize,
    at_once_left: u32,
}

impl Group {
    fn given(&self, router: RouterId) -> Hops {
        self.given.get(router as usize).copied().unwrap_or([NO_HOP; HOPS_MAX])
    }

    /// Forgets next hops that routers do not have any more.
    fn prune(&mut self, settled: impl Fn(RouterId) -> u64) {
        self.before.retain(|router, before| {
            before.retain(|(_, until)| settled(*router) < *until);
            !before.is_empty()
        });
    }

    /// The next hops that each router may have.
    fn edges(&self, size: usize) -> Vec<Vec<RouterId>> {
        let mut edges = vec![Vec::new(); size];
        for (from, hops) in edges.iter_mut().zip(&self.given) {
            from.extend(hops.iter().map(|hop| hop.next).filter(|next| *next != NO_ROUTER));
        }
        for (router, before) in &self.before {
            edges[*router as usize].extend(before.iter().map(|(next, _)| *next));
        }
        edges
    }

    fn wanted(graph: &Graph, paths: &Paths, router: RouterId) -> Hops {
        let mut hops = [NO_HOP; HOPS_MAX];
        for (hop, (next, cost)) in hops.iter_mut().zip(graph.nearer_neighbours(paths, router)) {
            *hop = Hop { next, cost_us: u32::try_from(cost / 1000).unwrap_or(u32::MAX) };
        }
        hops
    }

    /// What routers are given now, where that is something else, and whether all have what they are
    /// to have then.
    fn next(
        &self,
        graph: &Graph,
        is_there: impl Fn(RouterId) -> bool,
    ) -> (Vec<(RouterId, Hops)>, bool) {
        let paths = graph.paths(&self.producers);
        let mut edges = self.edges(graph.id_count());
        let mut wanted: BTreeMap<RouterId, Hops> = BTreeMap::new();
        for router in (0..edges.len() as RouterId).filter(|router| is_there(*router)) {
            let hops = Self::wanted(graph, &paths, router);
            if hops != self.given(router) {
                edges[router as usize]
                    .extend(hops.iter().map(|hop| hop.next).filter(|next| *next != NO_ROUTER));
                wanted.insert(router, hops);
            }
        }
        if wanted.is_empty() {
            return (Vec::new(), true);
        }
        let component = strong_components(&edges);
        // Who has nothing but what it is to have, and leads to none but such.
        let mut is_settled = vec![false; edges.len()];
        for &router in paths.order() {
            let mut hops = self.given(router).into_iter().filter(|hop| hop.next != NO_ROUTER);
            is_settled[router as usize] = !wanted.contains_key(&router)
                && !self.before.contains_key(&router)
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
                // Until then as before, where that leads anywhere.
                let given = self.given(router);
                let neighbours = graph.neighbours(router);
                let is_link =
                    |hop: &&Hop| neighbours.iter().any(|(neighbour, _)| *neighbour == hop.next);
                let is_wanted = hops.iter().any(|hop| hop.next != NO_ROUTER);
                may = given.iter().filter(is_link).filter(|_| is_wanted).copied().collect();
            }
            let mut new = [NO_HOP; HOPS_MAX];
            new.iter_mut().zip(may).for_each(|(hop, one)| *hop = one);
            if new != self.given(router) {
                changes.push((router, new));
            }
        }
        (changes, is_whole)
    }

    /// A router gets these next hops in the configuration with this number.
    fn give(&mut self, router: RouterId, hops: Hops, generation: u64) {
        let at = router as usize;
        if self.given.len() <= at {
            self.given.resize(at + 1, [NO_HOP; HOPS_MAX]);
        }
        let former = core::mem::replace(&mut self.given[at], hops);
        let has = |next: RouterId| hops.iter().any(|hop| hop.next == next);
        let gone =
            former.iter().map(|hop| hop.next).filter(|next| *next != NO_ROUTER && !has(*next));
        let gone: Vec<(RouterId, u64)> = gone.map(|next| (next, generation)).collect();
        if !gone.is_empty() {
            let before = self.before.entry(router).or_default();
            before.retain(|(next, _)| gone.iter().all(|(other, _)| other != next));
            before.extend(gone);
        }
    }

    /// A router has none of its next hops any more.
    fn forget(&mut self, router: RouterId) {
        self.before.remove(&router);
        if let Some(given) = self.given.get_mut(router as usize) {
            *given = [NO_HOP; HOPS_MAX];
        }
    }
}

impl Routing {
    pub(super) fn new() -> Self {
        Self { at_once_left: AT_ONCE_TIMES, ..Self::default() }
    }

    /// Something is to be computed anew: the links, or where a prefix is produced.
    pub(super) fn links_changed(&mut self) {
        self.has_changed = true;
    }

    pub(super) fn producers_changed(&mut self, prefix: &Name) {
        self.moved.insert(prefix.clone());
    }

    /// All routes are given anew, as nobody has any.
    pub(super) fn begin(&mut self) {
        for group in self.groups.values_mut() {
            group.given.clear();
            group.before.clear();
        }
        self.has_changed = true;
    }

    /// A router has come that has no routes, or one that was gone comes no more.
    pub(super) fn forget(&mut self, router: RouterId) {
        for (id, group) in &mut self.groups {
            group.forget(router);
            self.due.insert(*id);
        }
    }

    pub(super) fn of(&self, network: &Network, router: RouterId) -> Vec<RouteOrder> {
        let mut routes = Vec::new();
        for group in self.groups.values() {
            for hop in group.given(router).iter().filter(|hop| hop.next != NO_ROUTER) {
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
        let due = if self.has_changed { self.groups.len() } else { self.due.len() };
        self.graph.size() * (1 + due + self.moved.len())
    }

    /// Puts prefixes into the groups of those that are produced at the same routers. Returns the
    /// routers whose routes are others by that.
    fn move_prefixes(&mut self, network: &Network) -> BTreeSet<RouterId> {
        let mut touched = BTreeSet::new();
        let mut moves: BTreeMap<(Option<usize>, Vec<RouterId>), BTreeSet<Name>> = BTreeMap::new();
        for prefix in core::mem::take(&mut self.moved) {
            let producers = network.producers_at(&prefix);
            let from = self.of_prefix.get(&prefix).copied();
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
                // Of a prefix that is new nobody has routes: any group will do.
                None => {
                    let same = |(_, group): &(&usize, &Group)| group.producers == producers;
                    let known = self.groups.iter().find(same).map(|(id, _)| *id);
                    known.unwrap_or_else(|| self.new_group(Group { producers, ..Group::default() }))
                }
                Some(from) => {
                    let Some(group) = self.groups.get_mut(&from) else { continue };
                    group.prefixes.retain(|prefix| !prefixes.contains(prefix));
                    let state = Group { prefixes: BTreeSet::new(), producers, ..group.clone() };
                    if group.prefixes.is_empty() {
                        self.groups.remove(&from);
                        self.due.remove(&from);
                    }
                    self.new_group(state)
                }
            };
            self.due.insert(to);
            let Some(group) = self.groups.get_mut(&to) else { continue };
            for prefix in prefixes {
                self.of_prefix.insert(prefix.clone(), to);
                group.prefixes.insert(prefix);
            }
            if from.is_none() {
                let has = |router: &RouterId| group.given(*router)[0].next != NO_ROUTER;
                touched.extend((0..group.given.len() as RouterId).filter(has));
            }
        }
        touched
    }

    fn new_group(&mut self, group: Group) -> usize {
        let id = self.next_group;
        self.next_group += 1;
        self.groups.insert(id, group);
        id
    }

    /// Groups without prefixes, or whose prefixes nobody produces or has routes to, are forgotten;
    /// those that have come to be the same are one.
    fn tidy(&mut self, id: usize) {
        let Some(group) = self.groups.get(&id) else { return };
        if group.is_pending || !group.before.is_empty() {
            return;
        }
        if group.producers.is_empty() {
            let has_none = |hops: &Hops| hops.iter().all(|hop| hop.next == NO_ROUTER);
            if !group.given.iter().all(has_none) {
                return;
            }
            for prefix in &group.prefixes {
                self.of_prefix.remove(prefix);
            }
            self.groups.remove(&id);
            return;
        }
        let is_twin = |(other, twin): &(&usize, &Group)| {
            **other != id
                && twin.producers == group.producers
                && !twin.is_pending
                && twin.before.is_empty()
                && twin.given == group.given
        };
        let twin = self.groups.iter().find(is_twin).map(|(other, _)| *other);
        if let Some(twin) = twin
            && let Some(group) = self.groups.remove(&id)
            && let Some(twin_group) = self.groups.get_mut(&twin)
        {
            for prefix in group.prefixes {
                self.of_prefix.insert(prefix.clone(), twin);
                twin_group.prefixes.insert(prefix);
            }
        }
    }

    /// Whether routes are computed now, after something that they depend on has changed, and not at
    /// the next tick: if that is little work.
    pub(super) fn computes_now(&mut self) -> bool {
        let is_little = self.at_once_left > 0 && self.work() <= AT_ONCE_MAX;
        self.at_once_left -= u32::from(is_little);
        is_little
    }

    /// A tick begins: what is pending is due.
    pub(super) fn begin_tick(&mut self) {
        self.at_once_left = AT_ONCE_TIMES;
        let is_pending =
            |(_, group): &(&usize, &Group)| group.is_pending || !group.before.is_empty();
        self.due.extend(self.groups.iter().filter(is_pending).map(|(id, _)| *id));
    }

    /// Takes over the links if they have changed. Returns whether they have.
    pub(super) fn update_graph(&mut self, network: &Network) -> bool {
        let has_changed = core::mem::take(&mut self.has_changed);
        if has_changed {
            self.graph = network.graph();
            self.due.extend(self.groups.keys());
        }
        has_changed
    }

    /// Computes routes again that something has changed for, as many as one tick may. The routers
    /// that get others must get a new configuration before [`Routing::give`].
    pub(super) fn compute(&mut self, network: &Network, now: Instant) -> NewRoutes {
        let touched = self.move_prefixes(network);
        let mut new = NewRoutes { touched, given: Vec::new(), groups: Vec::new() };
        let mut left = (WORK_PER_TICK / self.graph.size().max(1)).max(1);
        while left > 0
            && let Some(&id) = self.due.range(self.at..).next().or_else(|| self.due.first())
        {
            left -= 1;
            self.due.remove(&id);
            self.at = id + 1;
            let Some(group) = self.groups.get_mut(&id) else { continue };
            group
                .prune(|router| network.by_id(router).map_or(0, |one| one.settled_generation(now)));
            let is_there = |router| network.by_id(router).is_some();
            let (changes, is_whole) = group.next(&self.graph, is_there);
            group.is_pending = !is_whole;
            new.touched.extend(changes.iter().map(|(router, _)| *router));
            let given = changes.into_iter();
            new.given.extend(given.map(|(router, hops)| Given { group: id, router, hops }));
            new.groups.push(id);
        }
        new
    }

    /// Routers get their new routes in their present configurations.
    pub(super) fn give(&mut self, network: &Network, new: NewRoutes) {
        for Given { group, router, hops } in new.given {
            let generation = network.by_id(router).map_or(0, |router| router.generation);
            if let Some(group) = self.groups.get_mut(&group) {
                group.give(router, hops, generation);
            }
        }
        new.groups.into_iter().for_each(|id| self.tidy(id));
    }
}
