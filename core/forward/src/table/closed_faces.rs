//! Finds the PIT entries whose faces have all closed.

use core::ops::Range;

use weir_base::{Instant, NS_PER_MS};

/// Slots that are checked in one turn.
const SLOTS_PER_TURN: u32 = 1024;

/// The progress of the sweep. It runs from the last slot to the first, some slots in each turn.
#[derive(Default)]
pub(crate) struct ClosedFaceSweep {
    /// Slots below this one have not been checked.
    left: u32,
    /// Slots to sweep again afterwards: a face has closed since the sweep began.
    restart_from: u32,
    due: Option<Instant>,
}

impl ClosedFaceSweep {
    /// A face has closed, so all slots must be checked.
    pub(crate) fn begin(&mut self, now: Instant, slots: u32) {
        if self.left > 0 {
            // A restart for each closed face could keep the sweep from ever reaching the first
            // slots.
            self.restart_from = slots;
            return;
        }
        self.left = slots;
        self.due = (slots > 0).then_some(now);
    }

    #[inline]
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.due.is_some_and(|due| due <= now)
    }

    /// The slots to check now.
    pub(crate) fn advance(&mut self, now: Instant) -> Range<u32> {
        let end = self.left;
        let begin = end.saturating_sub(SLOTS_PER_TURN);
        self.left = if begin > 0 { begin } else { core::mem::take(&mut self.restart_from) };
        self.due = (self.left > 0).then(|| now.plus_ns(NS_PER_MS));
        begin..end
    }

    /// When the sweep continues.
    pub(crate) fn next_wakeup(&self) -> Option<Instant> {
        self.due
    }
}
