//! best-route, version 5 of NFD: the cheapest next hop; a retransmission tries the next.

use weir_wire::NackReason;

use crate::stats::DropReason;
use crate::strategy::context::{Context, Suppression, may_retransmit};
use crate::table::fib::FibNextHop;

pub(super) fn after_interest(suppression: &Suppression, context: &mut Context<'_>) {
    let pending = context.entry().out_records.iter().filter(|record| record.expiry > context.now);
    match pending.map(|record| record.sent_at).max() {
        None => forward_new(context),
        Some(last) => {
            let interval_ns = context.entry().strategy_state.max(suppression.initial_ns);
            if !may_retransmit(context.now, last, interval_ns) {
                context.stats.drop_packet(DropReason::Suppressed);
                return;
            }
            forward_again(context);
            let entry = context.pit.entry_mut(context.entry);
            entry.strategy_state = suppression.next_ns(entry.strategy_state);
        }
    }
}

fn forward_new(context: &mut Context<'_>) {
    let cheapest = context.eligible().next();
    match cheapest {
        Some(hop) => {
            context.send_interest(hop);
        }
        None => {
            context.stats.drop_packet(DropReason::NoNextHop);
            context.reject(NackReason::NoRoute);
        }
    }
}

/// The cheapest next hop not in use, else the one used longest ago.
fn forward_again(context: &mut Context<'_>) {
    let unused = context.eligible().find(|hop| !context.is_in_use(hop));
    let last_sent =
        |hop: &FibNextHop| context.out_record(hop.face).map(|record| (record.sent_at, hop.cost));
    let chosen = unused.or_else(|| context.eligible().min_by_key(last_sent));
    match chosen {
        Some(hop) => {
            context.send_interest(hop);
        }
        None => context.stats.drop_packet(DropReason::NoNextHop),
    }
}
