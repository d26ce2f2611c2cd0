//! self-learning, version 1 of NFD: finds producers by flooding and learns routes to them (NFD
//! fe044ce3, `SelfLearningStrategy`; NDNLPv2, NonDiscovery and PrefixAnnouncement).
//!
//! - Without a route, an Interest is a **discovery** Interest. It goes to all faces to other hosts.
//! - With a route, an Interest goes to all next hops of the route with the mark NonDiscovery.
//! - A router that has no route for a marked Interest answers it with a NoRoute Nack. It does not
//!   flood a marked Interest.
//! - A router that has a route for a discovery Interest of another host returns the Data with the
//!   announcement of its prefix (`path/announced.rs`).
//! - Data with an announcement that answers a discovery Interest makes a route to the face that it
//!   came from. The driver checks the announcement ([`Event::Announced`]).
//! - A NoRoute Nack for a marked Interest ends the learned route ([`Event::RouteRefused`]).
//!
//! An Interest of another host for an unknown prefix thus passes all routers once. Its nonce and
//! its HopLimit end the flood. The strategy has no parameters.
//!
//! The work of a flood grows with the square of its faces, because each out-record is searched for
//! in a list. Strangers can open faces, so a flood goes to the 256 oldest ones at most. These
//! usually include the configured faces, because identifiers are assigned in sequence.
//!
//! Differences from NFD:
//!
//! - A flood has a limit on its faces.
//! - An upstream receives an Interest at most once in 10 ms. NFD sends every Interest again.
//! - Nacks for a discovery Interest reach only programs of this host, and only when all upstreams
//!   have refused. NFD forwards the first NoRoute Nack, although another upstream may answer.
//! - NoRoute Nacks for a marked Interest are passed on when all next hops have refused. NFD passes
//!   on the first one.
//! - A marked Interest whose only next hop is its own ingress gets a NoRoute Nack, so that the
//!   sender's route ends. In NFD it times out.

use alloc::vec::Vec;

use weir_base::{FaceId, NS_PER_MS};
use weir_wire::NackReason;

use super::best_route;
use super::context::{Behaviour, Context, Suppression, may_retransmit};
use crate::io::Event;
use crate::stats::DropReason;
use crate::table::fib::FibNextHop;
use crate::table::pit::AwaitedSource;

/// The strategy state of an upstream that has received a discovery Interest. It is 0 for marked
/// Interests, which are the usual ones.
pub(crate) const DISCOVERY: u64 = 1;

/// A retransmission is sent at the earliest this long after the last transmission.
const RETRANSMISSION_NS: u64 = 10 * NS_PER_MS;

/// Maximum number of faces of a flood.
const FLOOD_FACES_MAX: usize = 256;

#[derive(Debug)]
pub(super) struct SelfLearning;

impl Behaviour for SelfLearning {
    fn version(&self) -> u64 {
        1
    }

    fn has_suppression(&self) -> bool {
        false
    }

    fn learns_routes(&self) -> bool {
        true
    }

    fn on_interest(&self, _suppression: &Suppression, context: &mut Context<'_>) {
        let is_discovery = !context.header.non_discovery;
        if context.next_hops.is_empty() && is_discovery {
            flood(context);
        } else {
            follow_route(context, is_discovery);
        }
    }

    fn on_nack(&self, context: &mut Context<'_>, from: FaceId, reason: NackReason) -> bool {
        let Some(record) = context.out_record(from) else { return false };
        if record.strategy_state == DISCOVERY {
            // A neighbour with this strategy would take the Nack as an answer of all routers.
            return context.entry().downstreams().any(|record| !context.is_local(record.face));
        }
        if reason == NackReason::NoRoute {
            let name = context.entry().name_view().to_name();
            context.egress.push_event(Event::RouteRefused { face: from, name });
        }
        false
    }
}

/// Sends a discovery Interest to the faces to other hosts, in NFD's order.
fn flood(context: &mut Context<'_>) {
    let remote = context.faces.iter().filter(|face| !face.is_local());
    let mut faces: Vec<FaceId> = remote.map(|face| face.id()).collect();
    if faces.len() > FLOOD_FACES_MAX {
        faces.select_nth_unstable(FLOOD_FACES_MAX);
        faces.truncate(FLOOD_FACES_MAX);
    }
    faces.sort_unstable_by_key(|&face| core::cmp::Reverse(face));
    let is_first = !context.entry().has_upstreams();
    let mut has_upstream = false;
    for face in faces {
        if !context.may_send_to(face) {
            continue;
        }
        has_upstream = true;
        // A new entry has nothing to suppress.
        if !is_first && is_suppressed(context, face) {
            continue;
        }
        if context.send_interest(FibNextHop::unmeasured(face)) {
            context.set_upstream_state(face, DISCOVERY);
        }
    }
    if !has_upstream {
        context.egress.drop_packet(DropReason::NoNextHop);
    }
}

/// Sends an Interest to all next hops as a marked one.
fn follow_route(context: &mut Context<'_>, is_discovery: bool) {
    let (mut is_sent, mut has_upstream) = (false, false);
    for position in 0..context.next_hops.len() {
        let Some(hop) = context.eligible_at(position) else { continue };
        has_upstream = true;
        if !is_suppressed(context, hop.face) && context.send_interest(hop) {
            is_sent = true;
            context.egress.mark_non_discovery();
            context.set_upstream_state(hop.face, 0);
        }
    }
    if !has_upstream {
        context.egress.drop_packet(DropReason::NoNextHop);
        // An earlier flood may still be answered.
        if !is_discovery && !best_route::is_pending(context) {
            context.reject(NackReason::NoRoute);
        }
    } else if is_sent && is_discovery && !context.is_local(context.ingress) {
        let entry = context.pit.entry_mut(context.entry);
        if entry.awaits == AwaitedSource::Upstream {
            entry.awaits = AwaitedSource::Announced;
        }
    }
}

/// Whether an Interest for `face` comes too soon after the last one. Counts it as dropped if so.
fn is_suppressed(context: &mut Context<'_>, face: FaceId) -> bool {
    let pending = context.out_record(face).filter(|record| record.expiry > context.now);
    let is_early = pending
        .is_some_and(|record| !may_retransmit(context.now, record.sent_at, RETRANSMISSION_NS));
    if is_early {
        context.egress.drop_packet(DropReason::Suppressed);
    }
    is_early
}
