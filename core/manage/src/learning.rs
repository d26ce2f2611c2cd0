//! Routes that strategy self-learning learns from prefix announcements, and the announcements that
//! it returns with Data (NFD fe044ce, `RibManager::slAnnounce`, `slRenew` and `slFindAnn`).

use alloc::vec::Vec;

use weir_base::{FaceId, Instant, NS_PER_MS, NS_PER_S, Packet};
use weir_security::{Signer, sign_data};
use weir_wire::{Data, DataView, Name, NameView, tlv};

use crate::announcement::{Announcement, CONTENT_TYPE_PREFIX_ANNOUNCEMENT};
use crate::authorize::Authorizer;
use crate::commands::Scope;
use crate::faces::FaceTable;
use crate::numbers::{LinkType, route_origin, types};
use crate::request::Clocks;
use crate::rib::{Rib, Route};
use crate::routing::{self, Routing};

/// How long a learned route lasts without a new announcement (NFD, `ROUTE_RENEW_LIFETIME`).
const LEARNED_LIFETIME_NS: u64 = 600 * NS_PER_S;
/// The same for routes to faces with several nodes, such as multicast faces. Nacks do not pass
/// there, so no neighbour can end such a route early.
const SHARED_LINK_LIFETIME_NS: u64 = 10 * NS_PER_S;
/// The bounds of the expiration in an announcement that the router makes itself (NFD).
const OWN_EXPIRATION_MS: core::ops::RangeInclusive<u64> = 15_000..=3_600_000;
/// Longest announcement that is learned, in bytes. The RIB keeps it as long as its route.
const ANNOUNCEMENT_BYTES_MAX: usize = 2048;
/// Maximum number of prefixes with a learned route to one face.
const PREFIXES_PER_FACE_MAX: usize = 1024;

/// Why an announcement made no route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LearnError {
    Malformed,
    /// A prefix that no other host may announce, or a signature that is not accepted.
    Unauthorized,
    /// Outside its validity period.
    Expired,
    UnknownFace,
    Full,
}

/// Adds the route of an announcement that came with Data from `face`, or renews it.
pub(crate) fn learn(
    at: Clocks,
    face: FaceId,
    packet: &Packet,
    authorizer: &Authorizer,
    (faces, routing): (&FaceTable, &mut Routing),
) -> Result<(), LearnError> {
    let data = DataView::decode(packet).ok().filter(|_| packet.len() <= ANNOUNCEMENT_BYTES_MAX);
    let data = data.ok_or(LearnError::Malformed)?;
    let announcement = Announcement::of(&data, at.now_unix_ms).ok_or(LearnError::Malformed)?;
    let prefix = &announcement.prefix;
    if routing::is_too_long(prefix) {
        return Err(LearnError::Malformed);
    }
    if !is_learnable(prefix.as_view()) || !authorizer.accepts_announcement(&data, at.now_unix_ms) {
        return Err(LearnError::Unauthorized);
    }
    if !faces.contains(face) {
        return Err(LearnError::UnknownFace);
    }
    if announcement.expiration_ms == 0 {
        routing.withdraw(faces, prefix, face);
        return Err(LearnError::Expired);
    }
    let is_known = routing.rib.routes(prefix).any(|route| is_learned(route, face));
    if !is_known && routing.rib.prefix_count_to(face) >= PREFIXES_PER_FACE_MAX {
        return Err(LearnError::Full);
    }
    let (mut route, _) = routing::announced_route(at.now, face, &announcement);
    let lifetime_ns = match faces.link_type(face) {
        Some(LinkType::MultiAccess | LinkType::AdHoc) => SHARED_LINK_LIFETIME_NS,
        _ => LEARNED_LIFETIME_NS,
    };
    let latest = at.now.plus_ns(lifetime_ns);
    route.expires = Some(route.expires.map_or(latest, |expires| expires.min(latest)));
    let added = routing.register_announced(faces, prefix, route, packet.clone());
    added.map_err(|_| LearnError::Full)
}

/// Ends the learned route of the longest prefix of a name, because its face has refused.
pub(crate) fn unlearn(faces: &FaceTable, routing: &mut Routing, face: FaceId, name: &Name) {
    let view = name.as_view();
    let prefixes = (0..=view.component_count()).rev().map(|count| view.prefix(count).to_name());
    let mut of_face = prefixes.filter(|prefix| {
        routing.rib.routes(prefix).any(|route| is_learned(route, face))
            && routing.rib.announcement(prefix, face).is_some()
    });
    if let Some(prefix) = of_face.next() {
        routing.withdraw(faces, &prefix, face);
    }
}

/// The announcement for names under `prefix`: that of the route that lasts longest. A prefix
/// without one gets an announcement of the router itself. `None` if there is no route.
pub(crate) fn find_announcement(
    at: Clocks,
    rib: &Rib,
    prefix: &Name,
    signer: &dyn Signer,
) -> Option<Packet> {
    let view = prefix.as_view();
    let mut prefixes = (0..=view.component_count()).rev().map(|count| view.prefix(count).to_name());
    let found = prefixes.find(|prefix| rib.routes(prefix).next().is_some())?;
    if !is_learnable(found.as_view()) {
        return None;
    }
    let expiry = |route: &&Route| route.expires.unwrap_or(Instant::FAR_FUTURE);
    let announced = rib.routes(&found).filter(|route| {
        route.origin == route_origin::PREFIX_ANNOUNCEMENT
            && rib.announcement(&found, route.face).is_some()
    });
    if let Some(route) = announced.max_by_key(expiry) {
        return rib.announcement(&found, route.face).cloned();
    }
    let expires = rib.routes(&found).map(|route| expiry(&route)).max()?;
    let left_ms = expires.ns_since(at.now) / NS_PER_MS;
    own_announcement(at, &found, left_ms, signer)
}

fn own_announcement(
    at: Clocks,
    prefix: &Name,
    left_ms: u64,
    signer: &dyn Signer,
) -> Option<Packet> {
    let expiration_ms = left_ms.clamp(*OWN_EXPIRATION_MS.start(), *OWN_EXPIRATION_MS.end());
    let mut name = prefix.clone();
    name.append_keyword(b"PA").append_version(at.now_unix_ms).append_segment(0);
    let mut content = tlv::Writer::new();
    content.nni(types::EXPIRATION_PERIOD, expiration_ms);
    let content: Vec<u8> = content.into_vec();
    let data = Data::new(name).content_type(CONTENT_TYPE_PREFIX_ANNOUNCEMENT).content(content);
    let wire = sign_data(&data, signer).ok()?;
    (wire.len() <= ANNOUNCEMENT_BYTES_MAX).then(|| Packet::from(wire))
}

fn is_learned(route: &Route, face: FaceId) -> bool {
    (route.face, route.origin) == (face, route_origin::PREFIX_ANNOUNCEMENT)
}

/// Whether another host may announce a prefix. Management prefixes, and all names of this host or
/// of one link, belong to this router. The prefix `/` would attract the Interests of all names.
fn is_learnable(prefix: NameView<'_>) -> bool {
    let first = prefix.component(0);
    let is_scoped = first.is_some_and(|first| {
        first.is_generic() && matches!(first.value, b"localhost" | b"localhop")
    });
    first.is_some() && !is_scoped && Scope::of(prefix).is_none()
}
