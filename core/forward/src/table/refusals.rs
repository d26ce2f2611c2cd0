//! Who asks for room in a full PIT, and was refused lately.

use weir_base::{Instant, NS_PER_MS};

/// How long who was refused is refused again without another look.
const REFUSAL_NS: u64 = NS_PER_MS;
/// Hosts for which a refusal is remembered.
const REFUSALS_MAX: usize = 16;

/// Who has a PIT entry, or wants one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Holder {
    pub(crate) host: u64,
    /// A number for the FIB prefix.
    pub(crate) prefix: usize,
}

/// Who was refused lately: a flood that has the most must not cost a sample for each Interest.
#[derive(Default)]
pub(crate) struct RecentRefusals {
    /// Each until when, in the place of its host.
    slots: [Option<(Holder, Instant)>; REFUSALS_MAX],
}

impl RecentRefusals {
    pub(crate) fn has(&self, now: Instant, holder: Holder) -> bool {
        let place = self.slots[Self::slot_of(holder)];
        place.is_some_and(|(refused, until)| refused == holder && now < until)
    }

    pub(crate) fn add(&mut self, now: Instant, holder: Holder) {
        self.slots[Self::slot_of(holder)] = Some((holder, now.plus_ns(REFUSAL_NS)));
    }

    fn slot_of(holder: Holder) -> usize {
        // Not by the prefix, whose number differs from run to run.
        holder.host.wrapping_mul(0x9E37_79B9_7F4A_7C15) as usize >> 32 & (REFUSALS_MAX - 1)
    }
}
