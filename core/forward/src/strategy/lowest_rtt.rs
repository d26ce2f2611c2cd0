//! lowest-rtt: uses the next hop with the shortest round-trip time among those that have not
//! failed.

use weir_wire::NackReason;

use super::best_route;
use super::context::{Behaviour, Context, Suppression};
use crate::stats::DropReason;
use crate::table::fib::FibNextHop;

/// One Interest in 128 also goes to the second best next hop, to measure it.
const PROBE_EVERY: u64 = 128;

#[derive(Debug)]
pub(super) struct LowestRtt;

impl Behaviour for LowestRtt {
    fn version(&self) -> u64 {
        1
    }

    fn on_interest(&self, suppression: &Suppression, context: &mut Context<'_>) {
        if best_route::is_pending(context) {
            return best_route::on_retransmission(suppression, context);
        }
        let Some(best) = context.eligible().min_by_key(|hop| rank(context, hop)) else {
            context.egress.drop_packet(DropReason::NoNextHop);
            return context.reject(NackReason::NoRoute);
        };
        let is_probe = context.measurement(&best).is_some_and(|measured| {
            // This number grows with each Interest that is sent, and does not change with its Data.
            let sent = measured.data() + u64::from(measured.in_flight());
            measured.data() > 0 && sent.is_multiple_of(PROBE_EVERY)
        });
        context.send_interest(best);
        if is_probe {
            let others = context.eligible().filter(|hop| hop.face != best.face);
            if let Some(second) = others.min_by_key(|hop| rank(context, hop)) {
                context.send_interest(second);
            }
        }
    }
}

/// The order of next hops: not distrusted, fewest failures in a row, shortest round-trip time,
/// lowest cost. A next hop that has never answered is tried by one Interest at a time.
fn rank(context: &Context<'_>, hop: &FibNextHop) -> (bool, u32, u64, u64) {
    let Some(measured) = context.measurement(hop) else {
        return (hop.is_distrusted, 0, u64::MAX, hop.cost);
    };
    let unknown_ns = if measured.in_flight() == 0 { 0 } else { u64::MAX };
    let rtt_ns = measured.smoothed_rtt_ns().unwrap_or(unknown_ns);
    (hop.is_distrusted, measured.failures(), rtt_ns, hop.cost)
}
