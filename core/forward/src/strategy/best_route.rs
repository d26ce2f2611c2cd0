//! best-route, version 5 of NFD, with failover: it uses the cheapest next hop that answers. NFD's
//! version keeps using a dead next hop. Here, a hop that is silent or refuses is skipped, and is
//! tried again later.

use weir_base::{Instant, NS_PER_MS, NS_PER_S};
use weir_wire::NackReason;

use super::context::{Behaviour, Context, Suppression, may_retransmit};
use crate::stats::DropReason;
use crate::table::fib::FibNextHop;
use crate::table::measurements::Measurement;

/// A next hop that refuses this many Interests in a row, while another one answers, is down.
const REFUSALS_MAX: u32 = 3;
/// How long the strategy waits for a next hop that has never answered.
const FIRST_WAIT_NS: u64 = 250 * NS_PER_MS;
/// One Interest tries a next hop that is down after this time. The time doubles at most
/// `DOUBLINGS_MAX` times.
const RETRY_NS: u64 = NS_PER_S;
const DOUBLINGS_MAX: u64 = 5;
/// The bits of a next hop's state that count the doublings. The other bits are the time of the next
/// try; 0 if the hop is up.
const DOUBLINGS_MASK: u64 = 7;

#[derive(Debug)]
pub(super) struct BestRoute;

impl Behaviour for BestRoute {
    fn on_interest(&self, suppression: &Suppression, context: &mut Context<'_>) {
        if !is_pending(context) {
            return forward_new(context);
        }
        if context.next_hops.len() < 2 {
            return on_retransmission(suppression, context);
        }
        // A next hop that should have answered by now is marked as down first, so the
        // retransmission goes elsewhere.
        note_timeouts(context);
        on_retransmission(suppression, context);
        context.wake_after(FIRST_WAIT_NS);
    }

    fn on_refusal(&self, context: &mut Context<'_>) -> bool {
        note_refusals(context);
        try_next_hop(context)
    }

    fn on_timeout(&self, context: &mut Context<'_>) {
        match note_timeouts(context) {
            Some(0) => {
                try_next_hop(context);
            }
            Some(wait_ns) => context.wake_after(wait_ns),
            None => {}
        }
    }
}

/// Whether some upstream may still answer.
#[inline]
pub(super) fn is_pending(context: &Context<'_>) -> bool {
    let entry = context.entry();
    entry.has_upstreams() && entry.upstreams().any(|record| record.expiry > context.now)
}

#[inline]
fn forward_new(context: &mut Context<'_>) {
    if context.next_hops.len() > 1 {
        return forward_to_one_of_several(context);
    }
    let only = context.eligible().next();
    match only {
        Some(hop) => {
            context.send_interest(hop);
        }
        None => {
            context.egress.drop_packet(DropReason::NoNextHop);
            context.reject(NackReason::NoRoute);
        }
    }
}

#[inline(never)]
fn forward_to_one_of_several(context: &mut Context<'_>) {
    // Chooses the cheapest next hop that is up. If no hop is up, chooses the hop with the fewest
    // failures.
    let up = context.eligible().find(|hop| is_up(context, hop));
    let failures = |hop: &FibNextHop| context.measurement(hop).map_or(0, Measurement::failures);
    match up.or_else(|| context.eligible().min_by_key(failures)) {
        Some(hop) => send(context, hop),
        None => {
            context.egress.drop_packet(DropReason::NoNextHop);
            context.reject(NackReason::NoRoute);
        }
    }
}

/// Whether a next hop answers, or is due for a try.
fn is_up(context: &Context<'_>, hop: &FibNextHop) -> bool {
    context.measurement(hop).is_none_or(|measured| {
        measured.failures() == 0 || context.now.as_ns() >= measured.strategy_state & !DOUBLINGS_MASK
    })
}

/// Marks a next hop as down until its next try.
fn mark_down(now: Instant, measured: &mut Measurement, doublings: u64) {
    let retry_at = now.plus_ns(RETRY_NS << doublings).as_ns();
    measured.strategy_state = (retry_at & !DOUBLINGS_MASK) | doublings;
}

fn is_marked_down(measured: &Measurement) -> bool {
    measured.failures() > 0 && measured.strategy_state != 0
}

/// Sends the Interest to `hop`, and schedules a wakeup in case it does not answer in time.
fn send(context: &mut Context<'_>, hop: FibNextHop) {
    let now = context.now;
    if let Some(measured) = context.measurement_mut(&hop) {
        match is_marked_down(measured) {
            // This Interest tries a hop that is down.
            true => {
                let doublings = (measured.strategy_state & DOUBLINGS_MASK) + 1;
                mark_down(now, measured, doublings.min(DOUBLINGS_MAX));
            }
            false => measured.strategy_state = 0,
        }
    }
    if context.send_interest(hop) {
        context.wake_after(context.measurement(&hop).map_or(FIRST_WAIT_NS, wait_ns));
    }
}

/// Sends the Interest to a next hop that has not received it. Returns `false` if there is none.
fn try_next_hop(context: &mut Context<'_>) -> bool {
    let is_new = |hop: &FibNextHop| context.out_record(hop.face).is_none();
    let up = context.eligible().find(|hop| is_new(hop) && is_up(context, hop));
    let Some(hop) = up.or_else(|| context.eligible().find(is_new)) else { return false };
    send(context, hop);
    true
}

/// Marks a next hop as down if it should have answered this Interest by now and has answered
/// nothing else since. Returns the shortest remaining time of the next hops, in ns. It is 0 if the
/// time of one is over, and `None` if no next hop may still answer.
fn note_timeouts(context: &mut Context<'_>) -> Option<u64> {
    let (now, hops) = (context.now, context.next_hops);
    let mut shortest_ns = None;
    for hop in hops {
        let record = context.out_record(hop.face);
        let Some(record) = record.filter(|it| it.nacked.is_none() && it.expiry > now) else {
            continue;
        };
        let Some(measured) = context.measurement_mut(hop) else { continue };
        // A hop that has answered other Interests since is slow, not down.
        let waited_ns = now.ns_since(record.sent_at).min(measured.silent_ns(now));
        let left_ns = wait_ns(measured).saturating_sub(waited_ns);
        if left_ns == 0 && !is_marked_down(measured) {
            measured.note_failures(1);
            mark_down(now, measured, 0);
        }
        shortest_ns = Some(shortest_ns.map_or(left_ns, |known: u64| known.min(left_ns)));
    }
    shortest_ns
}

/// Marks a next hop as down if it refuses its Interests while another one answers. If all refuse,
/// the Data does not exist, and none is marked.
fn note_refusals(context: &mut Context<'_>) {
    let (now, hops) = (context.now, context.next_hops);
    let answers = |measured: &Measurement| measured.failures() == 0 && measured.data() > 0;
    if !hops.iter().any(|hop| context.measurement(hop).is_some_and(answers)) {
        return;
    }
    for hop in hops {
        let has_refused = context.out_record(hop.face).is_some_and(|it| it.nacked.is_some());
        if let Some(measured) = context.measurement_mut(hop)
            && has_refused
            && measured.failures() >= REFUSALS_MAX
            && !is_marked_down(measured)
        {
            mark_down(now, measured, 0);
        }
    }
}

/// How long a next hop may take to answer.
fn wait_ns(measured: &Measurement) -> u64 {
    measured.rto_ns().unwrap_or(FIRST_WAIT_NS)
}

/// Whether a retransmission of a [pending](is_pending) entry comes too early. Counts it as dropped
/// if so.
pub(super) fn is_suppressed(suppression: &Suppression, context: &mut Context<'_>) -> bool {
    let pending = context.entry().upstreams().filter(|record| record.expiry > context.now);
    let last = pending.map(|record| record.sent_at).max().unwrap_or(context.now);
    let interval_ns = suppression.current_ns(context.entry().strategy_state());
    let is_early = !may_retransmit(context.now, last, interval_ns);
    if is_early {
        context.egress.drop_packet(DropReason::Suppressed);
    }
    is_early
}

/// Lengthens the suppression interval for the next retransmission.
pub(super) fn lengthen_suppression(suppression: &Suppression, context: &mut Context<'_>) {
    let state = &mut context.pit.lists_mut(context.entry).strategy_state;
    *state = suppression.next_ns(*state);
}

/// Handles a retransmission of a [pending](is_pending) entry. If it does not come too early, it
/// goes to an unused next hop. If all are in use, it goes to the hop whose last transmission is the
/// oldest.
pub(super) fn on_retransmission(suppression: &Suppression, context: &mut Context<'_>) {
    if is_suppressed(suppression, context) {
        return;
    }
    let is_unused = |hop: &FibNextHop| !context.is_in_use(hop);
    let up = context.eligible().find(|hop| is_unused(hop) && is_up(context, hop));
    let unused = up.or_else(|| context.eligible().find(is_unused));
    let last_sent =
        |hop: &FibNextHop| context.out_record(hop.face).map(|record| (record.sent_at, hop.cost));
    let chosen = unused.or_else(|| context.eligible().min_by_key(last_sent));
    match chosen {
        Some(hop) => {
            context.send_interest(hop);
        }
        None => context.egress.drop_packet(DropReason::NoNextHop),
    }
    lengthen_suppression(suppression, context);
}
