//! multicast, version 5 of NFD: sends to all next hops. Retransmissions are suppressed for each
//! upstream.

use crate::stats::DropReason;
use crate::strategy::context::{Behaviour, Context, Suppression, may_retransmit};

#[derive(Debug)]
pub(super) struct Multicast;

impl Behaviour for Multicast {
    fn wants_new_next_hops(&self) -> bool {
        true
    }

    fn on_interest(&self, suppression: &Suppression, context: &mut Context<'_>) {
        forward_to_all(suppression, context);
    }
}

fn forward_to_all(suppression: &Suppression, context: &mut Context<'_>) {
    let mut sent = false;
    for position in 0..context.next_hops.len() {
        let Some(hop) = context.eligible_at(position) else { continue };
        let pending = context.out_record(hop.face).filter(|record| record.expiry > context.now);
        let interval_ns = pending.map(|record| suppression.current_ns(record.strategy_state));
        if let (Some(record), Some(interval_ns)) = (pending, interval_ns)
            && !may_retransmit(context.now, record.sent_at, interval_ns)
        {
            context.egress.drop_packet(DropReason::Suppressed);
            // The earlier transmission may still be answered, so a next hop exists.
            sent = true;
            continue;
        }
        let was_pending = pending.is_some();
        sent |= context.send_interest(hop);
        if was_pending {
            context.lengthen_upstream_suppression(suppression, hop.face);
        }
    }
    if !sent {
        context.egress.drop_packet(DropReason::NoNextHop);
    }
}
