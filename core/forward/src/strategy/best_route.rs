//! best-route, version 5 of NFD: the cheapest next hop; a retransmission tries the next.

use weir_wire::NackReason;

use super::context::{Behaviour, Context, Suppression, may_retransmit};
use crate::stats::DropReason;
use crate::table::fib::FibNextHop;

#[derive(Debug)]
pub(super) struct BestRoute;

impl Behaviour for BestRoute {
    fn on_interest(&self, suppression: &Suppression, context: &mut Context<'_>) {
        match is_pending(context) {
            true => on_retransmission(suppression, context),
            false => forward_new(context),
        }
    }
}

/// Whether some upstream may still answer.
#[inline]
pub(super) fn is_pending(context: &Context<'_>) -> bool {
    let entry = context.entry();
    entry.is_asked() && entry.upstreams().any(|record| record.expiry > context.now)
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

/// Whether an Interest whose entry is [pending](is_pending) comes before its time, which drops it.
pub(super) fn is_suppressed(suppression: &Suppression, context: &mut Context<'_>) -> bool {
    let pending = context.entry().upstreams().filter(|record| record.expiry > context.now);
    let last = pending.map(|record| record.sent_at).max().unwrap_or(context.now);
    let interval_ns = context.entry().strategy_state().max(suppression.initial_ns);
    let is_early = !may_retransmit(context.now, last, interval_ns);
    if is_early {
        context.stats.drop_packet(DropReason::Suppressed);
    }
    is_early
}

/// The next Interest for the entry has to wait for longer.
pub(super) fn lengthen_suppression(suppression: &Suppression, context: &mut Context<'_>) {
    let state = &mut context.pit.lists_mut(context.entry).strategy_state;
    *state = suppression.next_ns(*state);
}

/// An Interest whose entry is [pending](is_pending): not before its time, then to the next hop that
/// is not in use, else the one that was used longest ago.
pub(super) fn on_retransmission(suppression: &Suppression, context: &mut Context<'_>) {
    if is_suppressed(suppression, context) {
        return;
    }
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
    lengthen_suppression(suppression, context);
}
