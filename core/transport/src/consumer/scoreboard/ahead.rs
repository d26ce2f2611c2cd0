//! How many segments of a growing object are requested before they exist.
//!
//! Such an Interest waits at the producer until its segment exists. If its lifetime ends first, it
//! is sent again. The wait says nothing about the path. So the Interest uses no window, gives no
//! round-trip sample, and its expiry is not a loss.
//!
//! The number requested ahead adapts. It grows by one for each segment that already existed when
//! requested. It shrinks by one when requests are earlier than needed for a while, and by half
//! after a timeout. Consumers of one object therefore request a segment at the same time, even if
//! they started at different times, and routers aggregate their Interests.
//!
//! A segment exists once it or a later one has arrived, or metadata says so. Earlier segments that
//! were requested ahead are then lost or about to arrive.

/// Initial and smallest number of segments requested ahead.
const AHEAD_MIN: u32 = 2;
/// A segment that arrives within this many round trips existed when it was requested, or was made
/// very soon after.
const LATE_ROUND_TRIPS: u64 = 2;
/// A segment was requested earlier than needed if it would still have waited this many round trips
/// when requested one segment later.
const EARLY_ROUND_TRIPS: u64 = 2 * LATE_ROUND_TRIPS;
/// The number shrinks after this many consecutive segments that were requested earlier than needed.
/// If more segments are requested ahead, it takes that larger number, so that a whole burst counts.
const EARLY_SEGMENTS_MIN: u32 = 4;

pub(super) struct AheadWindow {
    /// The first segment that is not known to exist.
    horizon: u64,
    /// How many segments from there on are requested, and the upper bound.
    segments: u32,
    segments_max: u32,
    /// Consecutive segments that were requested earlier than needed.
    early_segments: u32,
}

impl AheadWindow {
    pub(super) fn new(horizon: u64, segments_max: u32) -> Self {
        let segments_max = segments_max.max(1);
        Self { horizon, segments: AHEAD_MIN.min(segments_max), segments_max, early_segments: 0 }
    }

    /// Whether a segment is not known to exist.
    pub(super) fn contains(&self, index: u64) -> bool {
        index >= self.horizon
    }

    /// One past the last segment to request.
    pub(super) fn end(&self) -> u64 {
        self.horizon.saturating_add(u64::from(self.segments))
    }

    /// Segment `index` and all before it exist.
    pub(super) fn set_newest_segment(&mut self, index: u64) {
        self.horizon = index.saturating_add(1);
    }

    /// Halves the number requested ahead.
    pub(super) fn halve(&mut self) {
        self.segments = (self.segments / 2).max(AHEAD_MIN.min(self.segments_max));
        self.early_segments = 0;
    }

    /// A segment arrived `waited_ns` after its Interest, and `next_waited_ns` after the Interest
    /// for the next segment, if that was sent. `is_last`: no other is requested ahead.
    pub(super) fn answered(
        &mut self,
        rtt_ns: Option<u64>,
        waited_ns: u64,
        next_waited_ns: Option<u64>,
        is_last: bool,
    ) {
        let existed = rtt_ns.is_some_and(|rtt_ns| waited_ns < LATE_ROUND_TRIPS * rtt_ns);
        if existed || is_last {
            self.segments = self.segments.saturating_add(1).min(self.segments_max);
        }
        // The Interest for the next segment left at the time at which this one would have, with one
        // fewer requested ahead.
        let is_early = rtt_ns
            .zip(next_waited_ns)
            .is_some_and(|(rtt_ns, next_ns)| next_ns >= EARLY_ROUND_TRIPS * rtt_ns);
        self.early_segments = if is_early { self.early_segments + 1 } else { 0 };
        if self.early_segments >= self.segments.max(EARLY_SEGMENTS_MIN) {
            self.segments = (self.segments - 1).max(AHEAD_MIN.min(self.segments_max));
            self.early_segments = 0;
        }
    }
}
