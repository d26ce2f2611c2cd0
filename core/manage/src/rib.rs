//! The routing information base: routes by prefix, and the next hops that result from them.

use alloc::collections::{BTreeMap, BTreeSet, btree_map};
use alloc::vec::Vec;

use weir_base::{FaceId, Instant, Packet};
use weir_wire::Name;

use crate::numbers::{route_flags, route_origin};

/// A route of a prefix. A prefix has at most one route for each face and origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    pub face: FaceId,
    /// The origin of the route, see [`route_origin`](crate::route_origin).
    pub origin: u64,
    /// Lower is better.
    pub cost: u64,
    /// See [`route_flags`].
    pub flags: u64,
    pub expires: Option<Instant>,
}

impl Route {
    fn is_inherited(&self) -> bool {
        self.flags & route_flags::CHILD_INHERIT != 0
    }

    fn is_capture(&self) -> bool {
        self.flags & route_flags::CAPTURE != 0
    }
}

/// A next hop that was added, removed, or has a new cost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FibChange {
    pub prefix: Name,
    pub face: FaceId,
    /// The new cost; `None` removes the next hop.
    pub cost: Option<u64>,
}

/// Why a route was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RibError {
    #[error("the RIB is full")]
    Full,
}

type NextHops = BTreeMap<FaceId, u64>;

#[derive(Clone, Debug, Default)]
struct RibNode {
    routes: BTreeMap<(FaceId, u64), Route>,
    /// The next hops last reported to the FIB.
    next_hops: NextHops,
}

impl RibNode {
    fn has_capture(&self) -> bool {
        self.routes.values().any(Route::is_capture)
    }

    /// The lowest cost for each face among the routes that `wanted` selects.
    fn lowest_costs(&self, wanted: impl Fn(&Route) -> bool) -> NextHops {
        let mut next_hops = NextHops::new();
        for route in self.routes.values().filter(|route| wanted(route)) {
            let cost = next_hops.entry(route.face).or_insert(route.cost);
            *cost = route.cost.min(*cost);
        }
        next_hops
    }

    /// Own routes, plus inherited routes for faces without an own route.
    fn effective(&self, inherited: &NextHops) -> NextHops {
        let mut next_hops = self.lowest_costs(|_| true);
        if !self.has_capture() {
            add_missing(&mut next_hops, inherited);
        }
        next_hops
    }

    /// The routes that longer prefixes inherit. For each face, the nearest prefix wins.
    fn inheritable(&self, inherited: &NextHops) -> NextHops {
        let mut next_hops = self.lowest_costs(Route::is_inherited);
        if !self.has_capture() {
            add_missing(&mut next_hops, inherited);
        }
        next_hops
    }
}

fn add_missing(next_hops: &mut NextHops, inherited: &NextHops) {
    for (face, cost) in inherited {
        next_hops.entry(*face).or_insert(*cost);
    }
}

/// Routes by prefix (NDN management, RIB). Every change appends its effect on the FIB.
#[derive(Clone, Debug)]
pub struct Rib {
    entries: BTreeMap<Name, RibNode>,
    faces: BTreeMap<FaceId, BTreeSet<Name>>,
    /// The announcements of routes of origin `prefixann`, by face and prefix.
    announcements: BTreeMap<(FaceId, Name), Packet>,
    expiries: BTreeSet<(Instant, Name, FaceId, u64)>,
    /// Prefixes whose routes have changed since [`Rib::take_changed`].
    changed: BTreeSet<Name>,
    routes: usize,
    routes_max: usize,
}

impl Rib {
    /// An empty table for at most `routes_max` routes.
    pub(crate) fn new(routes_max: usize) -> Self {
        Self {
            entries: BTreeMap::new(),
            faces: BTreeMap::new(),
            announcements: BTreeMap::new(),
            expiries: BTreeSet::new(),
            changed: BTreeSet::new(),
            routes: 0,
            routes_max,
        }
    }

    /// Number of routes.
    pub fn len(&self) -> usize {
        self.routes
    }

    pub fn is_empty(&self) -> bool {
        self.routes == 0
    }

    /// The prefixes in canonical order, with their routes by face and origin.
    pub fn iter(&self) -> impl Iterator<Item = (&Name, impl Iterator<Item = &Route>)> {
        self.entries.iter().map(|(prefix, entry)| (prefix, entry.routes.values()))
    }

    /// Whether a route leads to this face.
    pub(crate) fn has_route_to(&self, face: FaceId) -> bool {
        self.faces.contains_key(&face)
    }

    /// The routes of a prefix, by face and origin.
    pub(crate) fn routes(&self, prefix: &Name) -> impl Iterator<Item = &Route> {
        self.entries.get(prefix).into_iter().flat_map(|entry| entry.routes.values())
    }

    /// The prefixes with a route to this face.
    pub(crate) fn prefixes_to(&self, face: FaceId) -> impl Iterator<Item = &Name> {
        self.faces.get(&face).into_iter().flatten()
    }

    /// The number of prefixes with a route to this face.
    pub(crate) fn prefix_count_to(&self, face: FaceId) -> usize {
        self.faces.get(&face).map_or(0, BTreeSet::len)
    }

    /// The announcement that made the route of a prefix to this face.
    pub(crate) fn announcement(&self, prefix: &Name, face: FaceId) -> Option<&Packet> {
        self.announcements.get(&(face, prefix.clone()))
    }

    /// Keeps the announcement that made the route of a prefix to this face, until the route ends or
    /// is replaced.
    pub(crate) fn set_announcement(&mut self, prefix: &Name, face: FaceId, announcement: Packet) {
        self.announcements.insert((face, prefix.clone()), announcement);
    }

    fn forget_announcement(&mut self, prefix: &Name, face: FaceId, origin: u64) {
        if origin == route_origin::PREFIX_ANNOUNCEMENT && !self.announcements.is_empty() {
            self.announcements.remove(&(face, prefix.clone()));
        }
    }

    /// Returns the prefixes whose routes have changed since the last call.
    pub(crate) fn take_changed(&mut self) -> BTreeSet<Name> {
        core::mem::take(&mut self.changed)
    }

    /// Adds a route, or replaces the route with the same face and origin.
    pub(crate) fn register(
        &mut self,
        prefix: &Name,
        route: Route,
        changes: &mut Vec<FibChange>,
    ) -> Result<(), RibError> {
        let key = (route.face, route.origin);
        let known = self.entries.get(prefix).and_then(|entry| entry.routes.get(&key)).copied();
        match known {
            Some(old) => self.forget_expiry(prefix, &old),
            None if self.routes >= self.routes_max => return Err(RibError::Full),
            None => self.routes += 1,
        }
        self.forget_announcement(prefix, route.face, route.origin);
        if let Some(at) = route.expires {
            self.expiries.insert((at, prefix.clone(), route.face, route.origin));
        }
        self.faces.entry(route.face).or_default().insert(prefix.clone());
        self.entries.entry(prefix.clone()).or_default().routes.insert(key, route);
        self.recompute(prefix, changes);
        Ok(())
    }

    /// Removes the route of a face and origin. Returns `false` if there is none.
    pub(crate) fn unregister(
        &mut self,
        prefix: &Name,
        face: FaceId,
        origin: u64,
        changes: &mut Vec<FibChange>,
    ) -> bool {
        let removed = self.remove(prefix, face, origin);
        if removed {
            self.recompute(prefix, changes);
        }
        removed
    }

    /// Removes every route of a closed face.
    pub(crate) fn remove_face(&mut self, face: FaceId, changes: &mut Vec<FibChange>) {
        for prefix in self.faces.get(&face).cloned().unwrap_or_default() {
            let origins: Vec<u64> = match self.entries.get(&prefix) {
                Some(entry) => entry
                    .routes
                    .range((face, 0)..=(face, u64::MAX))
                    .map(|((_, origin), _)| *origin)
                    .collect(),
                None => Vec::new(),
            };
            for origin in origins {
                self.remove(&prefix, face, origin);
            }
            self.recompute(&prefix, changes);
        }
    }

    /// Removes the routes that have expired.
    pub(crate) fn expire(&mut self, now: Instant, changes: &mut Vec<FibChange>) {
        while let Some((at, ..)) = self.expiries.first()
            && *at <= now
        {
            let Some((_, prefix, face, origin)) = self.expiries.pop_first() else { break };
            self.unregister(&prefix, face, origin, changes);
        }
    }

    /// When the next route expires.
    pub(crate) fn next_wakeup(&self) -> Option<Instant> {
        self.expiries.first().map(|(at, ..)| *at)
    }

    fn forget_expiry(&mut self, prefix: &Name, route: &Route) {
        if let Some(at) = route.expires {
            self.expiries.remove(&(at, prefix.clone(), route.face, route.origin));
        }
    }

    fn remove(&mut self, prefix: &Name, face: FaceId, origin: u64) -> bool {
        let Some(entry) = self.entries.get_mut(prefix) else { return false };
        let Some(route) = entry.routes.remove(&(face, origin)) else { return false };
        let has_others = entry.routes.range((face, 0)..=(face, u64::MAX)).next().is_some();
        self.routes -= 1;
        self.forget_expiry(prefix, &route);
        self.forget_announcement(prefix, face, origin);
        if !has_others && let btree_map::Entry::Occupied(mut prefixes) = self.faces.entry(face) {
            prefixes.get_mut().remove(prefix);
            if prefixes.get().is_empty() {
                prefixes.remove();
            }
        }
        true
    }

    /// Recomputes the next hops of a changed prefix and of all prefixes below it. One pass in
    /// canonical order is enough, because a prefix comes directly before those below it.
    fn recompute(&mut self, prefix: &Name, changes: &mut Vec<FibChange>) {
        self.changed.insert(prefix.clone());
        // A stack of the prefixes above the present name, nearest last, each with the next hops
        // that longer prefixes inherit from it.
        let mut above = alloc::vec![self.inherited_by(prefix)];
        let mut emptied = None;
        for (name, entry) in self.entries.range_mut(prefix.clone()..) {
            if !prefix.as_view().is_prefix_of(name.as_view()) {
                break;
            }
            while above.last().is_some_and(|ancestor| !ancestor.covers(name)) {
                above.pop();
            }
            // The first element of the stack covers every name of the range, so the stack is never
            // empty.
            let Some(Inherited { next_hops: inherited, .. }) = above.last() else { break };
            let is_empty = entry.routes.is_empty();
            let next_hops = if is_empty { NextHops::new() } else { entry.effective(inherited) };
            push_changes(name, &entry.next_hops, &next_hops, changes);
            if is_empty {
                // Only the changed prefix itself can have lost its last route.
                emptied = Some(name.clone());
            } else {
                let next_hops = entry.inheritable(inherited);
                above.push(Inherited { from: Some(name.clone()), next_hops });
            }
            entry.next_hops = next_hops;
        }
        if let Some(name) = emptied {
            self.entries.remove(&name);
        }
    }

    /// The next hops that `prefix` inherits from shorter prefixes.
    fn inherited_by(&self, prefix: &Name) -> Inherited {
        let view = prefix.as_view();
        let mut next_hops = NextHops::new();
        for length in (0..view.component_count()).rev() {
            let Some(entry) = self.entries.get(&view.prefix(length).to_name()) else { continue };
            // From the longest prefix to the shortest, so the nearest one wins for each face.
            add_missing(&mut next_hops, &entry.lowest_costs(Route::is_inherited));
            if entry.has_capture() {
                break;
            }
        }
        Inherited { from: None, next_hops }
    }
}

/// The next hops that prefixes below `from` inherit.
struct Inherited {
    from: Option<Name>,
    next_hops: NextHops,
}

impl Inherited {
    fn covers(&self, name: &Name) -> bool {
        self.from.as_ref().is_none_or(|from| from.as_view().is_prefix_of(name.as_view()))
    }
}

fn push_changes(prefix: &Name, old: &NextHops, new: &NextHops, changes: &mut Vec<FibChange>) {
    for face in old.keys().filter(|face| !new.contains_key(face)) {
        changes.push(FibChange { prefix: prefix.clone(), face: *face, cost: None });
    }
    for (face, cost) in new.iter().filter(|(face, cost)| old.get(face) != Some(cost)) {
        changes.push(FibChange { prefix: prefix.clone(), face: *face, cost: Some(*cost) });
    }
}

#[cfg(test)]
mod tests;
