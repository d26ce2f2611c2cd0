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

use alloc::borrow::ToOwned;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;
use alloc::vec::Vec;

use weir_wire::Name;

use super::Controller;
use crate::bounds::Bound;
use crate::graph::{Graph, NOBODY, Paths, components};
use crate::message::{RouteOrder, RouterReport};
use crate::network::{Network, Router, is_near};
use crate::objects::RouterId;

/// Next hops of a prefix in one router, at most: the shortest, and others to go on with.
const HOPS_MAX: usize = 3;
/// Routes are computed when something is told if that is so little work (routers and links, times
/// sets of producers), so often between two ticks; else at the next tick.
const AT_ONCE_MAX: usize = 20_000;
const AT_ONCE_TIMES: u32 = 64;
/// Work of one tick.
const WORK_PER_TICK: usize = 100_000;

/// A next hop and what it costs, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Hop {
    next: RouterId,
    cost_us: u32,
}

const NO_HOP: Hop = Hop { next: NOBODY, cost_us: 0 };

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

/// All routes.
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
            from.extend(hops.iter().map(|hop| hop.next).filter(|next| *next != NOBODY));
        }
        for (router, before) in &self.before {
            edges[*router as usize].extend(before.iter().map(|(next, _)| *next));
        }
        edges
    }

    /// What a router is to have.
    fn wanted(graph: &Graph, paths: &Paths, router: RouterId) -> Hops {
        let mut hops = [NO_HOP; HOPS_MAX];
        for (hop, (next, cost)) in hops.iter_mut().zip(graph.nearer(paths, router)) {
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
        let mut edges = self.edges(graph.ranks());
        let mut wanted: BTreeMap<RouterId, Hops> = BTreeMap::new();
        for router in (0..edges.len() as RouterId).filter(|router| is_there(*router)) {
            let hops = Self::wanted(graph, &paths, router);
            if hops != self.given(router) {
                edges[router as usize]
                    .extend(hops.iter().map(|hop| hop.next).filter(|next| *next != NOBODY));
                wanted.insert(router, hops);
            }
        }
        if wanted.is_empty() {
            return (Vec::new(), true);
        }
        let component = components(&edges);
        // Who has nothing but what it is to have, and leads to none but such.
        let mut is_settled = vec![false; edges.len()];
        for &router in paths.order() {
            let mut hops = self.given(router).into_iter().filter(|hop| hop.next != NOBODY);
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
            let all = hops.iter().filter(|hop| hop.next != NOBODY);
            let mut may: Vec<Hop> = all.clone().filter(closes_none).copied().collect();
            is_whole &= may.len() == all.count();
            if may.is_empty() {
                // Until then as before, where that leads anywhere.
                let given = self.given(router);
                let neighbours = graph.neighbours(router);
                let is_link =
                    |hop: &&Hop| neighbours.iter().any(|(neighbour, _)| *neighbour == hop.next);
                let is_wanted = hops.iter().any(|hop| hop.next != NOBODY);
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
        let gone = former.iter().map(|hop| hop.next).filter(|next| *next != NOBODY && !has(*next));
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

    /// The routes of a router.
    pub(super) fn of(&self, network: &Network, router: RouterId) -> Vec<RouteOrder> {
        let mut routes = Vec::new();
        for group in self.groups.values() {
            for hop in group.given(router).iter().filter(|hop| hop.next != NOBODY) {
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
                let has = |router: &RouterId| group.given(*router)[0].next != NOBODY;
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
            let has_none = |hops: &Hops| hops.iter().all(|hop| hop.next == NOBODY);
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
}

impl Controller {
    /// Something that routes depend on has been told: they are computed now if that is little.
    pub(super) fn routes_changed(&mut self) {
        if self.routing.at_once_left > 0 && self.routing.work() <= AT_ONCE_MAX {
            self.routing.at_once_left -= 1;
            self.refresh_routes();
        }
    }

    /// What is due of routes, at a tick.
    pub(super) fn upkeep_routes(&mut self) {
        self.routing.at_once_left = AT_ONCE_TIMES;
        let pending = self
            .routing
            .groups
            .iter()
            .filter(|(_, group)| group.is_pending || !group.before.is_empty());
        let pending: Vec<usize> = pending.map(|(id, _)| *id).collect();
        self.routing.due.extend(pending);
        self.refresh_routes();
    }

    /// Computes routes anew that something has changed for, as many as one tick may, and touches
    /// the routers that get others.
    fn refresh_routes(&mut self) {
        if self.is_waiting() {
            return;
        }
        if core::mem::take(&mut self.routing.has_changed) {
            self.routing.graph = self.network.graph();
            let all: Vec<usize> = self.routing.groups.keys().copied().collect();
            self.routing.due.extend(all);
            self.upkeep.room_came();
        }
        if !self.config.routes {
            return;
        }
        let mut touched = self.routing.move_prefixes(&self.network);
        let mut left = (WORK_PER_TICK / self.routing.graph.size().max(1)).max(1);
        let mut given = Vec::new();
        let mut done = Vec::new();
        while left > 0
            && let Some(&id) = self
                .routing
                .due
                .range(self.routing.at..)
                .next()
                .or_else(|| self.routing.due.first())
        {
            left -= 1;
            self.routing.due.remove(&id);
            self.routing.at = id + 1;
            let now = self.now;
            let network = &self.network;
            let Some(group) = self.routing.groups.get_mut(&id) else { continue };
            group.prune(|router| network.by_id(router).map_or(0, |one| one.settled(now)));
            let is_there = |router| network.by_id(router).is_some();
            let (changes, is_whole) = group.next(&self.routing.graph, is_there);
            group.is_pending = !is_whole;
            touched.extend(changes.iter().map(|(router, _)| *router));
            given.extend(changes.into_iter().map(|(router, hops)| Given {
                group: id,
                router,
                hops,
            }));
            done.push(id);
        }
        for router in touched {
            let name = self.network.name_of(router).to_owned();
            self.touch(&name);
        }
        for Given { group, router, hops } in given {
            let generation = self.network.by_id(router).map_or(0, |router| router.generation);
            if let Some(group) = self.routing.groups.get_mut(&group) {
                group.give(router, hops, generation);
            }
        }
        done.into_iter().for_each(|id| self.routing.tidy(id));
    }

    /// A report has come in place of another: what it means for links and prefixes. Says whether
    /// that is anything.
    pub(super) fn note_place(&mut self, name: &str, former: &RouterReport) -> bool {
        let Some(router) = self.network.routers.get_mut(name) else { return false };
        let id = router.id;
        let mut has_changed = note_round_trips(router, former);
        let uris = core::mem::take(&mut router.report.uris);
        let prefixes = core::mem::take(&mut router.report.prefixes);
        let (taken, is_new) = self.network.claim(id, &uris);
        has_changed |= is_new || uris != former.uris;
        let (old, new): (BTreeSet<&Name>, BTreeSet<&Name>) =
            (former.prefixes.iter().collect(), prefixes.iter().collect());
        for prefix in old.symmetric_difference(&new) {
            if new.contains(*prefix) {
                self.network.add_producer(prefix, id);
            } else {
                self.network.remove_producer(prefix, id);
            }
            self.routing.producers_changed(prefix);
        }
        let has_moved = old != new;
        if taken > 0 && (has_changed || has_moved) {
            self.does_not_count(name, Bound::Address, taken);
        }
        if let Some(router) = self.network.routers.get_mut(name) {
            (router.report.uris, router.report.prefixes) = (uris, prefixes);
        }
        if has_changed {
            self.routing.links_changed();
        }
        has_changed || has_moved
    }
}

/// Which round-trip times are reckoned with from now on. Says whether they, or faces, are others.
fn note_round_trips(router: &mut Router, former: &RouterReport) -> bool {
    let known: BTreeMap<&str, Option<u64>> = former
        .faces
        .iter()
        .zip(&router.round_trips)
        .map(|(face, used)| (face.remote.as_str(), *used))
        .collect();
    let mut has_changed = router.report.faces.len() != former.faces.len();
    let mut round_trips = Vec::with_capacity(router.report.faces.len());
    for face in &router.report.faces {
        let used = known.get(face.remote.as_str());
        let near = used.copied().filter(|used| is_near(*used, face.round_trip_ns));
        has_changed |= near.is_none();
        round_trips.push(near.unwrap_or(face.round_trip_ns));
    }
    router.round_trips = round_trips;
    has_changed
}
