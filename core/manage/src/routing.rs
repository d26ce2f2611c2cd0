//! The fib and rib modules: routes, and the next hops that result from them.

use alloc::vec::Vec;

use weir_base::{FaceId, Instant, NS_PER_MS, Packet};
use weir_wire::Name;

use crate::PREFIX_COMPONENTS_MAX;
use crate::announcement::Announcement;
use crate::faces::FaceTable;
use crate::fib::Fib;
use crate::io::Action;
use crate::numbers::{route_flags, route_origin};
use crate::parameters::{ControlParameters, ControlResponse};
use crate::rib::{FibChange, Rib, RibError, Route};
use crate::status::{RibEntry, RouteStatus};

/// The cost of routes from rib/announce (NFD).
const ANNOUNCED_COST: u64 = 2048;

/// Longest time until a route expires, in milliseconds: 292 years, the range of a signed 64-bit
/// integer in nanoseconds. NFD's clients use the largest number for "never".
const EXPIRATION_MS_MAX: u64 = i64::MAX as u64 / NS_PER_MS;

/// The route to the router itself. An application's route for a shorter prefix must not receive
/// commands.
pub(crate) const OWN_ROUTE: Route = Route {
    face: FaceId::INTERNAL,
    origin: route_origin::APP,
    cost: 0,
    flags: route_flags::CHILD_INHERIT | route_flags::CAPTURE,
    expires: None,
};

/// RIB and FIB. The FIB follows the RIB, except for next hops that commands set directly. Routes to
/// unknown faces have no effect.
#[derive(Debug)]
pub(crate) struct Routing {
    pub(crate) rib: Rib,
    pub(crate) fib: Fib,
    fib_entries_max: usize,
}

impl Routing {
    pub(crate) fn new(routes_max: usize, fib_entries_max: usize) -> Self {
        Self { rib: Rib::new(routes_max), fib: Fib::default(), fib_entries_max }
    }

    /// Appends the changes of the FIB since the last call.
    pub(crate) fn flush(&mut self, actions: &mut Vec<Action>) {
        self.fib.flush(actions);
    }

    /// fib/add-nexthop, with the face set.
    pub(crate) fn add_next_hop(
        &mut self,
        faces: &FaceTable,
        parameters: ControlParameters,
    ) -> ControlResponse {
        let prefix = parameters.name.clone().unwrap_or_default();
        let face = parameters.face_id.unwrap_or(FaceId::INVALID);
        if is_too_long(&prefix) {
            return too_long("FIB entry");
        }
        if !faces.contains(face) {
            return ControlResponse::new(410, "Face not found");
        }
        if self.is_fib_full_for(&prefix) {
            return ControlResponse::new(500, "The FIB is full");
        }
        self.fib.add(&prefix, face, parameters.cost.unwrap_or(0));
        ControlResponse::ok(parameters)
    }

    /// fib/remove-nexthop, with the face set.
    pub(crate) fn remove_next_hop(&mut self, parameters: &ControlParameters) {
        if let (Some(prefix), Some(face)) = (&parameters.name, parameters.face_id) {
            self.fib.remove(prefix, face);
        }
    }

    /// Adds a route whose face exists.
    pub(crate) fn register(
        &mut self,
        faces: &FaceTable,
        prefix: &Name,
        route: Route,
    ) -> Result<(), RibError> {
        if self.is_fib_full_for(prefix) {
            return Err(RibError::Full);
        }
        let mut changes = Vec::new();
        self.rib.register(prefix, route, &mut changes)?;
        self.apply(faces, changes);
        Ok(())
    }

    /// Like [`Self::register`], for the route of a prefix announcement, which is kept.
    pub(crate) fn register_announced(
        &mut self,
        faces: &FaceTable,
        prefix: &Name,
        route: Route,
        announcement: Packet,
    ) -> Result<(), RibError> {
        self.register(faces, prefix, route)?;
        self.rib.set_announcement(prefix, route.face, announcement);
        Ok(())
    }

    /// Removes the route that a prefix announcement has made.
    pub(crate) fn withdraw(&mut self, faces: &FaceTable, prefix: &Name, face: FaceId) {
        self.remove_route(faces, prefix, face, route_origin::PREFIX_ANNOUNCEMENT);
    }

    /// Removes the routes to a face that prefix announcements have made.
    pub(crate) fn withdraw_all(&mut self, faces: &FaceTable, face: FaceId) {
        let prefixes: Vec<Name> = self.rib.prefixes_to(face).cloned().collect();
        prefixes.iter().for_each(|prefix| self.withdraw(faces, prefix, face));
    }

    /// rib/unregister, with the face set.
    pub(crate) fn unregister(&mut self, faces: &FaceTable, parameters: &ControlParameters) {
        let prefix = parameters.name.clone().unwrap_or_default();
        let face = parameters.face_id.unwrap_or(FaceId::INVALID);
        let origin = parameters.origin.unwrap_or(route_origin::APP);
        self.remove_route(faces, &prefix, face, origin);
    }

    /// Removes one route.
    pub(crate) fn remove_route(
        &mut self,
        faces: &FaceTable,
        prefix: &Name,
        face: FaceId,
        origin: u64,
    ) {
        let mut changes = Vec::new();
        self.rib.unregister(prefix, face, origin, &mut changes);
        self.apply(faces, changes);
    }

    /// Removes all routes and next hops to a closed face.
    pub(crate) fn remove_face(&mut self, faces: &FaceTable, face: FaceId) {
        let mut changes = Vec::new();
        self.rib.remove_face(face, &mut changes);
        self.apply(faces, changes);
        // Commands may have set next hops that are not in the RIB.
        self.fib.remove_face(face);
    }

    /// Removes the routes that have expired.
    pub(crate) fn expire(&mut self, faces: &FaceTable, now: Instant) {
        let mut changes = Vec::new();
        self.rib.expire(now, &mut changes);
        self.apply(faces, changes);
    }

    /// The items of rib/list.
    pub(crate) fn rib_items(&self, now: Instant) -> impl Iterator<Item = RibEntry> {
        let status = move |route: &Route| RouteStatus {
            face_id: route.face,
            origin: route.origin,
            cost: route.cost,
            flags: route.flags,
            expiration_period_ms: route.expires.map(|at| at.ns_since(now) / NS_PER_MS),
        };
        self.rib.iter().map(move |(name, routes)| RibEntry {
            name: name.clone(),
            routes: routes.map(status).collect(),
        })
    }

    fn is_fib_full_for(&self, prefix: &Name) -> bool {
        !self.fib.contains(prefix) && self.fib.len() >= self.fib_entries_max
    }

    /// Applies changes of the RIB to the FIB. A closed face gets no next hops.
    fn apply(&mut self, faces: &FaceTable, changes: Vec<FibChange>) {
        for change in changes {
            match change.cost {
                Some(cost) if faces.contains(change.face) => {
                    self.fib.add(&change.prefix, change.face, cost);
                }
                _ => self.fib.remove(&change.prefix, change.face),
            }
        }
    }
}

/// The route that rib/register requests, with the face set.
pub(crate) fn registered_route(
    now: Instant,
    face: FaceId,
    parameters: &ControlParameters,
) -> Route {
    Route {
        face,
        origin: parameters.origin.unwrap_or(route_origin::APP),
        cost: parameters.cost.unwrap_or(0),
        flags: parameters.flags.unwrap_or(route_flags::CHILD_INHERIT),
        expires: parameters.expiration_period_ms.and_then(|ms| expiry(now, ms)),
    }
}

/// The route that a prefix announcement requests, and the body of the answer.
pub(crate) fn announced_route(
    now: Instant,
    face: FaceId,
    announcement: &Announcement,
) -> (Route, ControlParameters) {
    let route = Route {
        face,
        origin: route_origin::PREFIX_ANNOUNCEMENT,
        cost: ANNOUNCED_COST,
        flags: route_flags::CHILD_INHERIT,
        expires: expiry(now, announcement.expiration_ms),
    };
    let body = ControlParameters {
        name: Some(announcement.prefix.clone()),
        face_id: Some(route.face),
        origin: Some(route.origin),
        cost: Some(route.cost),
        flags: Some(route.flags),
        expiration_period_ms: Some(announcement.expiration_ms),
        ..ControlParameters::default()
    };
    (route, body)
}

/// When a route with this period expires. `None` means never, for a period beyond the range of the
/// clock.
fn expiry(now: Instant, period_ms: u64) -> Option<Instant> {
    (period_ms < EXPIRATION_MS_MAX).then(|| now.plus_ns(period_ms * NS_PER_MS))
}

pub(crate) fn is_too_long(name: &Name) -> bool {
    name.component_count() > PREFIX_COMPONENTS_MAX
}

/// The refusal of a prefix with too many components.
pub(crate) fn too_long(what: &str) -> ControlResponse {
    let text = alloc::format!("{what} prefix cannot exceed {PREFIX_COMPONENTS_MAX} components");
    ControlResponse::new(414, text)
}
