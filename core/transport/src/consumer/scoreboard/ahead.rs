//! How far ahead segments of an object that grows are requested, before they are made.
//!
//! Such an Interest waits at the producer until its segment is made, or until its lifetime ends;
//! then it is sent again. How long it waited says nothing about the path. So it takes no room in a
//! window, is no sample of a round trip and no sign of loss. How many there are at a time follows
//! the answers: one more for each segment that existed when it was requested, one less when none
//! would have for a while, half as many whenever one timed out. So consumers of one object come to
//! request a segment at the same time, whatever they have seen before, and routers aggregate their
//! Interests. A segment is known to exist once it or a later one has come, or metadata say so.
//! Earlier ones that were requested ahead are lost or about to come.

/// Segments requested ahead at least, and at first.
const AHEAD_MIN: u32 = 2;
/// A segment that comes within this many round trips of its Interest existed, or nearly.
const LATE_ROUND_TRIPS: u64 = 2;
/// A segment that would have waited for this many round trips, had it been requested one segment
/// later, is requested earlier than needed.
const EARLY_ROUND_TRIPS: u64 = 2 * LATE_ROUND_TRIPS;
/// Consecutive segments requested earlier than needed before there are fewer: as many as are
/// requested at a time, so that all of a burst counts, and at least this many.
const EARLY_SEGMENTS_MIN: u32 = 4;

pub(super) struct AheadWindow {
    /// The first segment that is not known to exist.
    horizon: u64,
    /// Segments from there on that are requested: now, and at most.
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

    /// The end of the segments that are requested.
    pub(super) fn end(&self) -> u64 {
        self.horizon.saturating_add(u64::from(self.segments))
    }

    /// The segment `index` and all before it exist.
    pub(super) fn set_newest_segment(&mut self, index: u64) {
        self.horizon = index.saturating_add(1);
    }

    /// Requests half as many at a time.
    pub(super) fn halve(&mut self) {
        self.segments = (self.segments / 2).max(AHEAD_MIN.min(self.segments_max));
        self.early_segments = 0;
    }

    /// A segment came `timed_out_wait_ns` after its Interest, and `next_waited_ns` after that for the next
    /// one, if there is one. `is_last`: no other is requested ahead.
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
        // The next one was requested when this one would have been with one less at a time.
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
