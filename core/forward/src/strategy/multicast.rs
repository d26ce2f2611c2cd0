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
        let interval_ns = pending.map(|record| record.strategy_state.max(suppression.initial_ns));
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
            let face = hop.face;
            let upstreams = &mut context.pit.lists_mut(context.entry).upstreams;
            if let Some(record) = upstreams.iter_mut().find(|record| record.face == face) {
                record.strategy_state = suppression.next_ns(record.strategy_state);
            }
        }
    }
    if !sent {
        context.egress.drop_packet(DropReason::NoNextHop);
    }
}
