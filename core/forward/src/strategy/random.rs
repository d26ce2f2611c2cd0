//! random, version 1 of NFD: sends each Interest to a random next hop, all with equal probability
//! (NFD fe044ce3, `RandomStrategy`). A retransmission goes to another random next hop, without
//! suppression. The strategy has no parameters.

use weir_wire::NackReason;

use super::best_route;
use super::context::{Behaviour, Context, Suppression};
use crate::stats::DropReason;

#[derive(Debug)]
pub(super) struct Random;

impl Behaviour for Random {
    fn version(&self) -> u64 {
        1
    }

    fn has_suppression(&self) -> bool {
        false
    }

    fn on_interest(&self, _suppression: &Suppression, context: &mut Context<'_>) {
        let count = context.eligible().count();
        let position = context.rng().below(count as u32) as usize;
        let chosen = context.eligible().nth(position);
        match chosen {
            Some(hop) => {
                context.send_interest(hop);
            }
            // An earlier transmission may still be answered.
            None if best_route::is_pending(context) => {
                context.egress.drop_packet(DropReason::NoNextHop);
            }
            None => {
                context.egress.drop_packet(DropReason::NoNextHop);
                context.reject(NackReason::NoRoute);
            }
        }
    }
}
