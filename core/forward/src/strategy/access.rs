//! access, version 1 of NFD: for a router whose next hops are single hosts behind lossy links, such
//! as laptops that share a prefix (NFD fe044ce3, `AccessStrategy`).
//!
//! - The first Interest of a namespace goes to all next hops. The first one that answers is the
//!   working next hop of the namespace. The namespace is the name without its last component.
//! - Later Interests go to the working next hop alone. If it does not answer within its
//!   retransmission timeout, or refuses, the Interest also goes to all others.
//! - A retransmission goes to all next hops, at most once in 10 ms.
//! - A namespace without Data for 8 s has no working next hop.
//!
//! The table of namespaces is in the measurements (`PrefixHops`). The strategy has no parameters,
//! and sends no Nack of its own.

use weir_base::NS_PER_MS;

use super::best_route;
use super::context::{Behaviour, Context, Suppression, may_retransmit};
use crate::stats::DropReason;
use crate::table::fib::FibNextHop;

/// A retransmission is sent at the earliest this long after the last transmission.
const RETRANSMISSION_NS: u64 = 10 * NS_PER_MS;

#[derive(Debug)]
pub(super) struct Access;

impl Behaviour for Access {
    fn version(&self) -> u64 {
        1
    }

    fn has_suppression(&self) -> bool {
        false
    }

    fn on_interest(&self, _suppression: &Suppression, context: &mut Context<'_>) {
        if best_route::is_pending(context) {
            let last = context.entry().upstreams().map(|record| record.sent_at).max();
            let last = last.unwrap_or(context.now);
            if !may_retransmit(context.now, last, RETRANSMISSION_NS) {
                return context.egress.drop_packet(DropReason::Suppressed);
            }
            broadcast(context, |_, _| true);
        } else if !send_to_working_hop(context) && !broadcast(context, |_, _| true) {
            context.egress.drop_packet(DropReason::NoNextHop);
        }
    }

    fn on_refusal(&self, context: &mut Context<'_>) -> bool {
        broadcast_to_others(context)
    }

    fn on_timeout(&self, context: &mut Context<'_>) {
        broadcast_to_others(context);
    }
}

/// Sends a new Interest to the working next hop of its namespace. Returns `false` if there is none.
fn send_to_working_hop(context: &mut Context<'_>) -> bool {
    let name = context.entry().name_value();
    let Some(working) = context.measurements.working_hop(context.now, name) else { return false };
    let hop = context.eligible().find(|hop| hop.face == working.face);
    let Some(hop) = hop else { return false };
    let is_sent = send(context, hop);
    if is_sent {
        context.wake_after(working.rto_ns);
    }
    is_sent
}

/// Sends the Interest to all next hops that have not received it. Returns whether there was one.
fn broadcast_to_others(context: &mut Context<'_>) -> bool {
    broadcast(context, |context, hop| context.out_record(hop.face).is_none())
}

/// Sends the Interest to the next hops that match. Returns whether it was sent to any.
fn broadcast(
    context: &mut Context<'_>,
    is_match: impl Fn(&Context<'_>, &FibNextHop) -> bool,
) -> bool {
    let mut is_sent = false;
    for position in 0..context.next_hops.len() {
        let Some(hop) = context.eligible_at(position) else { continue };
        if is_match(context, &hop) {
            is_sent |= send(context, hop);
        }
    }
    is_sent
}

/// Sends the Interest to `hop`, measured for its namespace.
fn send(context: &mut Context<'_>, hop: FibNextHop) -> bool {
    let entry = context.pit.entry(context.entry);
    let (now, name) = (context.now, entry.name_value());
    let measurement = context.measurements.index_for(now, name, entry.can_be_prefix, hop.face);
    context.send_interest(FibNextHop { measurement, ..hop })
}
