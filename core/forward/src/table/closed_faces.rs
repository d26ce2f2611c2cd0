//! The search for PIT entries that closed faces have left behind.

use core::ops::Range;

use weir_base::{Instant, NS_PER_MS};

/// Places of entries that are looked at in one turn.
const SLOTS_PER_TURN: u32 = 1024;

/// How far the search has come: from the last place to the first, some places a turn.
#[derive(Default)]
pub(crate) struct ClosedFaceSweep {
    /// Places below are yet to be looked at.
    left: u32,
    /// Places to look at once more from the last on: a face has gone since this search began.
    restart_from: u32,
    due: Option<Instant>,
}

impl ClosedFaceSweep {
    /// A face is gone: every place is to be looked at.
    pub(crate) fn begin(&mut self, now: Instant, places: u32) {
        if self.left > 0 {
            // Begun anew each time, it would never come to the first places.
            self.restart_from = places;
            return;
        }
        self.left = places;
        self.due = (places > 0).then_some(now);
    }

    #[inline]
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.due.is_some_and(|due| due <= now)
    }

    /// The places to look at now.
    pub(crate) fn advance(&mut self, now: Instant) -> Range<u32> {
        let end = self.left;
        let begin = end.saturating_sub(SLOTS_PER_TURN);
        self.left = if begin > 0 { begin } else { core::mem::take(&mut self.restart_from) };
        self.due = (self.left > 0).then(|| now.plus_ns(NS_PER_MS));
        begin..end
    }

    /// When to go on.
    pub(crate) fn next_wakeup(&self) -> Option<Instant> {
        self.due
    }
}
