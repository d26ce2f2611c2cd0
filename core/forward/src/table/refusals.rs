//! Recent refusals of a full PIT.

use weir_base::{Instant, NS_PER_MS};

/// How long a holder is refused again without a new sample.
const REFUSAL_NS: u64 = NS_PER_MS;
/// Number of hosts whose refusal is remembered.
const REFUSALS_MAX: usize = 16;

/// The holder of a PIT entry: a host, together with a FIB prefix.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Holder {
    pub(crate) host: u64,
    /// A number for the FIB prefix.
    pub(crate) prefix: usize,
}

/// Holders that were refused recently. A flood by the largest holder must not cost a sample for
/// each Interest.
#[derive(Default)]
pub(crate) struct RecentRefusals {
    /// The last refused holder of each slot, and until when. The host selects the slot.
    slots: [Option<(Holder, Instant)>; REFUSALS_MAX],
}

impl RecentRefusals {
    pub(crate) fn has(&self, now: Instant, holder: Holder) -> bool {
        let slot = self.slots[Self::slot_of(holder)];
        slot.is_some_and(|(refused, until)| refused == holder && now < until)
    }

    pub(crate) fn add(&mut self, now: Instant, holder: Holder) {
        self.slots[Self::slot_of(holder)] = Some((holder, now.plus_ns(REFUSAL_NS)));
    }

    fn slot_of(holder: Holder) -> usize {
        // The number of the prefix differs between runs, so it must not select the slot.
        holder.host.wrapping_mul(0x9E37_79B9_7F4A_7C15) as usize >> 32 & (REFUSALS_MAX - 1)
    }
}
