//! The fib, rib, strategy-choice and cs modules.

use alloc::format;
use alloc::vec::Vec;

use weir_base::{FaceId, Instant, NS_PER_MS};
use weir_security::verify_data;
use weir_wire::{DataView, Name, tlv};

use crate::authorize::AccessPolicy;
use crate::commands::Scope;
use crate::element::Elements;
use crate::io::{Action, ManagerOutbox, Sender};
use crate::manager::{Call, Manager, OWN_ROUTE, Pending, PendingKind};
use crate::numbers::{route_flags, route_origin, store_flags, types};
use crate::parameters::{ControlParameters, ControlResponse};
use crate::rib::Route;
use crate::{ERASE_LIMIT, PREFIX_COMPONENTS_MAX, STORE_PACKET_BYTES};

/// ContentType of prefix announcements.
const CONTENT_TYPE_PREFIX_ANNOUNCEMENT: u64 = 5;
/// Cost of routes made by rib/announce (NFD).
const ANNOUNCED_COST: u64 = 2048;

/// Puts the ingress where the command left the face open, and gives the face.
fn fill_in_face(call: &Call<'_>, parameters: &mut ControlParameters) -> FaceId {
    let face = parameters.face_id.filter(|face| *face != FaceId::INVALID).unwrap_or(call.ingress);
    parameters.face_id = Some(face);
    face
}

fn is_too_long(name: &Name) -> bool {
    name.component_count() > PREFIX_COMPONENTS_MAX
}

fn too_long(what: &str) -> ControlResponse {
    let text = format!("{what} prefix cannot exceed {PREFIX_COMPONENTS_MAX} components");
    ControlResponse::new(414, text)
}

/// Longest period until a route expires, in milliseconds: 292 years, what nanoseconds of a signed
/// 64-bit integer can count. NFD's clients write "for ever" as the largest number of theirs.
const EXPIRATION_MS_MAX: u64 = i64::MAX as u64 / NS_PER_MS;

/// When a route expires that is given so long; never, beyond what can be counted.
fn expiry(now: Instant, period_ms: u64) -> Option<Instant> {
    (period_ms < EXPIRATION_MS_MAX).then(|| now.plus_ns(period_ms * NS_PER_MS))
}

impl Manager {
    pub(super) fn add_next_hop(
        &mut self,
        call: &Call<'_>,
        mut parameters: ControlParameters,
        out: &mut ManagerOutbox,
    ) {
        let face = fill_in_face(call, &mut parameters);
        let prefix = parameters.name.clone().unwrap_or_default();
        let response = if is_too_long(&prefix) {
            too_long("FIB entry")
        } else if !self.knows_face(face) {
            ControlResponse::new(410, "Face not found")
        } else if !self.fib.contains(&prefix) && self.fib.len() >= self.config.fib_entries_max {
            ControlResponse::new(500, "The FIB is full")
        } else {
            self.fib.add(&prefix, face, parameters.cost.unwrap_or(0));
            self.fib.flush(&mut out.actions);
            ControlResponse::ok(parameters)
        };
        self.respond(&call.request(), &response, out);
    }

    pub(super) fn remove_next_hop(
        &mut self,
        call: &Call<'_>,
        mut parameters: ControlParameters,
        out: &mut ManagerOutbox,
    ) {
        let face = fill_in_face(call, &mut parameters);
        if let Some(prefix) = &parameters.name {
            self.fib.remove(prefix, face);
            self.fib.flush(&mut out.actions);
        }
        self.respond(&call.request(), &ControlResponse::ok(parameters), out);
    }

    pub(super) fn register_route(
        &mut self,
        call: &Call<'_>,
        mut parameters: ControlParameters,
        out: &mut ManagerOutbox,
    ) {
        let prefix = parameters.name.clone().unwrap_or_default();
        if is_too_long(&prefix) {
            self.respond(&call.request(), &too_long("Route"), out);
            return;
        }
        let face = fill_in_face(call, &mut parameters);
        let route = Route {
            face,
            origin: parameters.origin.unwrap_or(route_origin::APP),
            cost: parameters.cost.unwrap_or(0),
            flags: parameters.flags.unwrap_or(route_flags::CHILD_INHERIT),
            expires: parameters.expiration_period_ms.and_then(|ms| expiry(call.at.now, ms)),
        };
        self.keep_localhop(call, &prefix, out);
        let response = self.add_route(&prefix, route, ControlResponse::ok(parameters), out);
        self.respond(&call.request(), &response, out);
    }

    /// Keeps what neighbours ask of this router from a program that registers a shorter prefix.
    fn keep_localhop(&mut self, call: &Call<'_>, prefix: &Name, out: &mut ManagerOutbox) {
        let localhop = Scope::Localhop.prefix();
        if call.sender == Sender::Application && prefix.as_view().is_prefix_of(localhop.as_view()) {
            self.register_trusted(&localhop, OWN_ROUTE, out);
        }
    }

    /// Adds a route and gives `success`. Like NFD, which learns only later that there is no such
    /// face, a route to one that is unknown is silently left out.
    fn add_route(
        &mut self,
        prefix: &Name,
        route: Route,
        success: ControlResponse,
        out: &mut ManagerOutbox,
    ) -> ControlResponse {
        if self.knows_face(route.face) && self.register(prefix, route).is_err() {
            self.stats.overflows += 1;
            return ControlResponse::new(500, "The RIB is full");
        }
        self.fib.flush(&mut out.actions);
        success
    }

    pub(super) fn unregister_route(
        &mut self,
        call: &Call<'_>,
        mut parameters: ControlParameters,
        out: &mut ManagerOutbox,
    ) {
        let prefix = parameters.name.clone().unwrap_or_default();
        let face = fill_in_face(call, &mut parameters);
        let mut changes = Vec::new();
        let origin = parameters.origin.unwrap_or(route_origin::APP);
        self.rib.unregister(&prefix, face, origin, &mut changes);
        self.apply(changes);
        self.fib.flush(&mut out.actions);
        self.respond(&call.request(), &ControlResponse::ok(parameters), out);
    }

    /// rib/announce: the Interest carries a prefix announcement, and the route leads back to where
    /// it came from.
    pub(crate) fn on_announce(&mut self, call: &Call<'_>, out: &mut ManagerOutbox) {
        let Some(parameters) = call.interest.application_parameters() else {
            self.stats.ignored += 1;
            return;
        };
        let mut elements = Elements::new(parameters).flatten();
        let announcement = elements.find(|inner| inner.typ == tlv::DATA);
        let announcement = announcement.and_then(|data| DataView::decode(data.wire()).ok());
        let parsed = announcement.as_ref().and_then(|data| Announcement::of(data, call));
        let (Some(data), Some(announcement)) = (announcement, parsed) else {
            let response = ControlResponse::new(400, "Malformed prefix announcement");
            self.respond(&call.request(), &response, out);
            return;
        };
        let concerns_sender_alone = self.may_register(announcement.prefix.as_view());
        if !self.authorize(call, concerns_sender_alone, out) {
            return;
        }
        self.stats.commands += 1;
        let prefix = announcement.prefix;
        if is_too_long(&prefix) {
            self.respond(&call.request(), &too_long("Route"), out);
            return;
        }
        if !self.is_believed(&data, call) {
            self.stats.unauthorized += 1;
            let response = ControlResponse::new(403, "Prefix announcement rejected");
            self.respond(&call.request(), &response, out);
            return;
        }
        let expiration_ms = announcement.expiration_ms;
        let route = Route {
            face: call.ingress,
            origin: route_origin::PREFIX_ANNOUNCEMENT,
            cost: ANNOUNCED_COST,
            flags: route_flags::CHILD_INHERIT,
            expires: expiry(call.at.now, expiration_ms),
        };
        let success = ControlResponse::ok(ControlParameters {
            name: Some(prefix.clone()),
            face_id: Some(route.face),
            origin: Some(route.origin),
            cost: Some(route.cost),
            flags: Some(route.flags),
            expiration_period_ms: Some(expiration_ms),
            ..ControlParameters::default()
        });
        self.keep_localhop(call, &prefix, out);
        let response = self.add_route(&prefix, route, success, out);
        self.respond(&call.request(), &response, out);
    }

    fn is_believed(&self, announcement: &DataView<'_>, call: &Call<'_>) -> bool {
        if self.config.announcements == AccessPolicy::Any {
            return true;
        }
        let verifier = announcement.signature_info().key_locator.and_then(|locator| {
            self.config.anchors.as_deref()?.verifier(locator, call.at.now_unix_ms)
        });
        verifier.is_some_and(|verifier| verify_data(announcement, verifier).is_ok())
    }

    pub(super) fn choose_strategy(
        &mut self,
        call: &Call<'_>,
        mut parameters: ControlParameters,
        out: &mut ManagerOutbox,
    ) {
        let prefix = parameters.name.clone().unwrap_or_default();
        let strategy = parameters.strategy.clone().unwrap_or_default();
        let response = if is_too_long(&prefix) {
            let text = format!("Prefix has too many components (limit is {PREFIX_COMPONENTS_MAX})");
            ControlResponse::new(414, text)
        } else {
            match self.set_strategy(&prefix, strategy.as_view(), out) {
                Ok(instance) => {
                    parameters.strategy = Some(instance);
                    ControlResponse::ok(parameters)
                }
                Err(refusal) => refusal,
            }
        };
        self.respond(&call.request(), &response, out);
    }

    pub(super) fn unset_strategy(
        &mut self,
        call: &Call<'_>,
        parameters: ControlParameters,
        out: &mut ManagerOutbox,
    ) {
        if let Some(prefix) = parameters.name.clone().filter(|name| self.strategies.unset(name)) {
            out.actions.push(Action::SetStrategy { prefix, strategy: None });
        }
        self.respond(&call.request(), &ControlResponse::ok(parameters), out);
    }

    pub(super) fn configure_store(
        &mut self,
        call: &Call<'_>,
        parameters: &ControlParameters,
        out: &mut ManagerOutbox,
    ) {
        let before = self.store;
        if let Some(packets) = parameters.capacity {
            let bytes = packets.saturating_mul(STORE_PACKET_BYTES);
            self.store.capacity_bytes = bytes.min(self.config.store_bytes_max);
        }
        if let Some(admit) = parameters.flag(store_flags::ADMIT) {
            self.store.admit = admit;
        }
        if let Some(serve) = parameters.flag(store_flags::SERVE) {
            self.store.serve = serve;
        }
        if self.store != before {
            out.actions.push(Action::ConfigureStore(self.store));
        }
        let body = ControlParameters {
            capacity: Some(self.store_capacity()),
            flags: Some(self.store_flags()),
            ..ControlParameters::default()
        };
        self.respond(&call.request(), &ControlResponse::ok(body), out);
    }

    /// Capacity of the store in packets, rounded up.
    pub(super) fn store_capacity(&self) -> u64 {
        self.store.capacity_bytes.div_ceil(STORE_PACKET_BYTES)
    }

    pub(super) fn store_flags(&self) -> u64 {
        let flag = |is_set, bit| if is_set { bit } else { 0 };
        flag(self.store.admit, store_flags::ADMIT) | flag(self.store.serve, store_flags::SERVE)
    }

    pub(super) fn erase_store(
        &mut self,
        call: &Call<'_>,
        parameters: &ControlParameters,
        out: &mut ManagerOutbox,
    ) {
        let request = call.request();
        let prefix = parameters.name.clone().unwrap_or_default();
        let count = parameters.count.unwrap_or(u64::MAX);
        let kind =
            PendingKind::EraseStore { prefix: prefix.clone(), is_limited: count > ERASE_LIMIT };
        match self.wait(call.at, request.clone(), kind) {
            Some(txn) => {
                let limit = count.min(ERASE_LIMIT);
                out.actions.push(Action::EraseStore { txn, prefix, limit });
            }
            None => {
                let response = ControlResponse::new(500, "Too many commands in progress");
                self.respond(&request, &response, out);
            }
        }
    }

    pub(crate) fn on_store_erased(
        &mut self,
        pending: Pending,
        erased: u64,
        more: bool,
        out: &mut ManagerOutbox,
    ) {
        let PendingKind::EraseStore { prefix, is_limited } = pending.kind else { return };
        let body = ControlParameters {
            name: Some(prefix),
            count: Some(erased),
            capacity: (is_limited && more && erased >= ERASE_LIMIT).then_some(ERASE_LIMIT),
            ..ControlParameters::default()
        };
        self.respond(&pending.request, &ControlResponse::ok(body), out);
    }
}

/// What a prefix announcement says (NDN-FACTS 2.7).
struct Announcement {
    prefix: Name,
    expiration_ms: u64,
}

impl Announcement {
    fn of(data: &DataView<'_>, call: &Call<'_>) -> Option<Self> {
        let prefix_components = data.name.component_count().checked_sub(3)?;
        let suffix = |at: usize| data.name.component(prefix_components + at);
        let is_announcement = data.content_type == CONTENT_TYPE_PREFIX_ANNOUNCEMENT
            && suffix(0)?.is_keyword(b"PA")
            && suffix(1)?.as_version().is_some()
            && suffix(2)?.as_segment().is_some();
        if !is_announcement {
            return None;
        }
        let mut expiration_ms = None;
        let mut valid_for_ms = u64::MAX;
        for element in Elements::new(data.content) {
            let element = element.ok()?;
            match element.typ {
                types::EXPIRATION_PERIOD => expiration_ms = Some(element.number().ok()?),
                tlv::VALIDITY_PERIOD => {
                    valid_for_ms = valid_for_ms.min(valid_for(element.value, call.at.now_unix_ms)?);
                }
                _ => element.skip().ok()?,
            }
        }
        let expiration_ms = expiration_ms?.min(valid_for_ms);
        Some(Self { prefix: data.name.prefix(prefix_components).to_name(), expiration_ms })
    }
}

/// How long a ValidityPeriod goes on, in milliseconds: 0 outside it.
fn valid_for(value: &[u8], now_unix_ms: u64) -> Option<u64> {
    let mut bounds = [None; 2];
    for element in Elements::new(value) {
        let element = element.ok()?;
        let at = match element.typ {
            tlv::NOT_BEFORE => 0,
            tlv::NOT_AFTER => 1,
            _ => continue,
        };
        bounds[at] = Some(weir_wire::timestamp::parse_timestamp(element.value)?);
    }
    let (not_before, not_after) = (bounds[0]?, bounds[1]?);
    let now_ms = i64::try_from(now_unix_ms).ok()?;
    if now_ms < not_before.saturating_mul(1000) {
        return Some(0);
    }
    Some(u64::try_from(not_after.saturating_mul(1000).saturating_sub(now_ms)).unwrap_or(0))
}
