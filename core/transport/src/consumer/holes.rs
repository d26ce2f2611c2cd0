//! Holes: segments of an object without an answer, although others are answered. Example: a
//! router's store has evicted them, and the producer is down.
//!
//! When the scoreboard fails a segment, the segment is *set aside*, and the fetch continues:
//!
//! 1. A *pass* goes through the object in order, with window and controller as usual. A segment
//!    without an answer after its retries in the window is set aside
//!    ([`HoleRules`](super::scoreboard::HoleRules)).
//! 2. *Rounds* of at most [`ROUND_SEGMENTS`] Interests request set-aside segments again, outside
//!    the window, once per Interest lifetime. They notice when the producer returns.
//! 3. If a timeout passes without any answer, the pass has met a hole of unknown length. A round
//!    immediately requests segments at growing distances, and some spread over the rest. If one is
//!    answered, the pass skips to it, and sets aside the skipped segments. Otherwise the pass ends.
//! 4. If anything was verified since a pass began, another pass goes over the set-aside segments.
//!    It fetches an island in a hole, found by one segment, at full speed.
//! 5. The transfer fails when nothing has been verified for as long as all retries of one segment
//!    take (retries times lifetime). If routers refuse everything because they have no route, it
//!    fails after one more round.
//!
//! A segment whose manifest part is missing cannot be verified. It is set aside with the part, and
//! requested again when the part has arrived. An in-order reader can use nothing behind a hole. For
//! such a reader nothing is skipped, and half of its buffer stays free for set-aside segments.
//!
//! [`Holes`] decides, and `transfer/set_aside.rs` carries out its [`HoleStep`]. `Holes` exists only
//! once a segment is set aside, so a fetch without holes pays nothing.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::ops::Range;

use rangemap::RangeSet;
use weir_base::{Instant, NS_PER_S};

use super::inventory::Inventory;
use super::layout::Layout;
use super::missing::{MissingSegments, RANGES_MAX};
use super::scoreboard::{FailReason, FailedSegment};
use super::target::PacketId;
use super::verify::VerifyQueue;

/// A pass over set-aside segments skips up to this many segments one by one. For a longer gap it
/// waits until all its Interests are answered, and then jumps.
const GAP_SEGMENTS: u64 = 1 << 12;
/// Upper bound of segments requested in one round: half in order, half spread over all.
const ROUND_SEGMENTS: u64 = 64;
/// A pass that meets a hole requests segments at distances 1, 2, 4 and so on, and this many spread
/// over the rest.
const SPREAD_SEGMENTS: u64 = 16;

/// Minimum wait for an answer from behind a hole.
const SEEK_NS: u64 = NS_PER_S;
/// A search in a repeat pass covers this many set-aside ranges, and requests segments at this many
/// distances before the end of each.
const SOUGHT_RANGES: usize = 8;
const SOUGHT_DISTANCES: usize = 8;

/// What is set aside, and the progress of the search for it.
#[derive(Debug)]
pub(super) struct Holes {
    /// InterestLifetime, and how long a transfer may verify nothing.
    lifetime_ns: u64,
    patience_ns: u64,
    /// Indices that were requested without an answer, or skipped by a pass.
    set_aside: RangeSet<u64>,
    /// The pass goes over `set_aside` only. Segments that it requests are removed from it.
    is_repeat_pass: bool,
    /// The pass has met a hole of unknown length. A round searches for its end, at least until this
    /// time.
    is_seeking: bool,
    seeks_until: Instant,
    /// When the next round may start, where in `set_aside` it begins, and rounds since a segment
    /// was verified.
    next_round_at: Instant,
    round_start_index: u64,
    idle_rounds: u64,
    /// Segments verified when the pass began, at the last check, and when that number last changed.
    verified_at_pass_start: u64,
    verified: u64,
    verified_at: Instant,
    /// When the first segment was set aside.
    first_hole_at: Instant,
    /// Manifest parts verified since then.
    manifest_parts_verified: u64,
    /// Since a segment was last verified: some got no answer, and some were refused.
    has_unanswered: bool,
    has_refused: bool,
    reason: FailReason,
}

/// The state of the transfer that holes depend on.
#[derive(Clone, Debug)]
pub(super) struct PassState {
    pub(super) now: Instant,
    /// No segment has been received.
    pub(super) has_nothing: bool,
    /// The reader wants all segments in order.
    pub(super) is_in_order: bool,
    /// The scoreboard has something to request or to wait for.
    pub(super) is_passing: bool,
    /// No packet has arrived on any path since a timeout.
    pub(super) is_unresponsive: bool,
    /// Interests of a round have no answer yet.
    pub(super) is_requesting: bool,
    /// The indices that the pass has not requested.
    pub(super) unrequested: Range<u64>,
}

/// What the transfer does next about set-aside segments.
#[derive(Debug)]
pub(super) enum HoleStep {
    Wait,
    /// All of them have arrived: no holes remain.
    Complete,
    /// Request these once, outside the window.
    Request(BTreeSet<u64>),
    /// End the pass, and set aside the segments that it has not requested.
    SkipRest,
    /// Begin a pass over the set-aside segments, at this index.
    BeginPass(u64),
    /// Fail: nothing more will arrive.
    Fail,
}

impl Holes {
    /// The first segment is set aside at `now`. `verified` segments are verified, the last of them
    /// at `since`.
    pub(super) fn new(
        lifetime_ns: u64,
        retries: u32,
        since: Instant,
        now: Instant,
        verified: u64,
    ) -> Self {
        Self {
            lifetime_ns,
            patience_ns: lifetime_ns.saturating_mul(u64::from(retries.max(1))),
            set_aside: RangeSet::new(),
            is_repeat_pass: false,
            is_seeking: false,
            seeks_until: now,
            next_round_at: now,
            round_start_index: 0,
            idle_rounds: 0,
            verified_at_pass_start: verified,
            verified,
            verified_at: since,
            first_hole_at: now,
            manifest_parts_verified: 0,
            has_unanswered: false,
            has_refused: false,
            reason: FailReason::Unanswered,
        }
    }

    pub(super) fn is_aside(&self, index: u64) -> bool {
        self.set_aside.contains(&index)
    }

    pub(super) fn add_failed(&mut self, failed: FailedSegment) {
        self.has_unanswered |= failed.reason == FailReason::Unanswered;
        self.has_refused |= failed.reason != FailReason::Unanswered;
        self.reason = failed.reason;
        self.add(failed.index);
    }

    pub(super) fn add(&mut self, index: u64) {
        self.set_aside.insert(index..index + 1);
    }

    /// A segment need not be requested again.
    pub(super) fn forget(&mut self, index: u64) {
        self.set_aside.remove(index..index + 1);
    }

    /// A pass skipped `range`; `answered` indices in it had arrived earlier.
    pub(super) fn skipped(&mut self, range: Range<u64>, answered: Vec<u64>) {
        if !self.is_repeat_pass && !range.is_empty() {
            self.set_aside.insert(range);
            answered.into_iter().for_each(|index| self.forget(index));
        }
    }

    /// A segment that was not requested in its turn is answered. Returns whether a round was
    /// searching for the end of a hole.
    pub(super) fn answered(&mut self, index: u64, now: Instant) -> bool {
        self.forget(index);
        // More may be available.
        self.next_round_at = now;
        core::mem::take(&mut self.is_seeking)
    }

    pub(super) fn part_verified(&mut self) {
        self.manifest_parts_verified += 1;
    }

    /// `segments` are verified in total. Returns whether that is more than at the last call.
    pub(super) fn note_verified(&mut self, segments: u64, now: Instant) -> bool {
        let verified = segments + self.manifest_parts_verified;
        let is_new = verified != self.verified;
        if is_new {
            (self.verified, self.verified_at) = (verified, now);
            (self.has_unanswered, self.has_refused, self.idle_rounds) = (false, false, 0);
        }
        is_new
    }

    /// Whether the manifest part that lists a packet is set aside.
    pub(super) fn lacks_lister(&self, layout: &Layout, packet: PacketId) -> bool {
        let lister = layout.listing_part(packet).and_then(|lister| layout.index_of(lister));
        lister.is_some_and(|at| self.set_aside.contains(&at))
    }

    /// Whether the pass requests a packet. If so, the packet is no longer set aside.
    pub(super) fn claims_packet(
        &mut self,
        index: u64,
        is_needed: bool,
        layout: &Layout,
        verify: &VerifyQueue,
    ) -> bool {
        if !is_needed {
            self.forget(index);
            return false;
        }
        let is_aside = self.set_aside.contains(&index);
        let packet = layout.packet_at(index);
        // A repeat pass requests only set-aside packets, and only when they can be verified.
        if self.is_repeat_pass {
            let is_requested = is_aside && verify.can_check(layout, packet);
            if is_requested {
                self.forget(index);
            }
            return is_requested;
        }
        // Without its manifest part the packet could not be verified.
        if self.lacks_lister(layout, packet) {
            self.add(index);
            return false;
        }
        !is_aside
    }

    /// Where a pass over set-aside segments continues, if that is far from `remaining.start`.
    pub(super) fn skip_target(
        &self,
        remaining: Range<u64>,
        layout: &Layout,
        verify: &VerifyQueue,
    ) -> Option<u64> {
        if !self.is_repeat_pass || remaining.is_empty() {
            return None;
        }
        let to = self.next_aside(remaining.clone(), layout, verify);
        (to - remaining.start > GAP_SEGMENTS).then_some(to)
    }

    /// The next index that such a pass requests, or the end of `remaining`.
    fn next_aside(&self, remaining: Range<u64>, layout: &Layout, verify: &VerifyQueue) -> u64 {
        let mut from = remaining.start;
        while let Some(range) = self.set_aside.overlapping(from..remaining.end).next() {
            from = from.max(range.start);
            let packet = layout.packet_at(from);
            if verify.can_check(layout, packet) {
                return from;
            }
            // Everything below the missing part must wait for it, and is skipped at once.
            let lister = layout.listing_part(packet).and_then(|lister| layout.end_of_part(lister));
            from = lister.unwrap_or(from).max(from + 1);
        }
        remaining.end
    }

    /// How many segments may be requested and unread, of `max`. If the reader wants all in order,
    /// half of its buffer stays free for set-aside segments, which it needs first.
    pub(super) fn reader_capacity(&self, max: u32, is_in_order: bool) -> u32 {
        if is_in_order && !self.is_repeat_pass { max / 2 } else { max }
    }

    /// Whether routers refuse everything, also in a round.
    fn is_refused_everywhere(&self) -> bool {
        self.has_refused && !self.has_unanswered && self.idle_rounds > 0
    }

    /// The next step during a pass.
    pub(super) fn advance(&mut self, state: &PassState) -> HoleStep {
        if state.is_passing && !self.is_repeat_pass && self.set_aside.is_empty() {
            // All set-aside segments arrived after all.
            return HoleStep::Complete;
        }
        // Before any segment has arrived, refusals alone show that the object may be missing.
        let is_in_hole = state.is_unresponsive || (state.has_nothing && self.has_refused);
        let is_lost = state.is_passing && is_in_hole && !state.is_in_order;
        self.is_seeking &= is_lost;
        if is_lost && !self.is_seeking {
            self.is_seeking = true;
            self.seeks_until = state.now.plus_ns(SEEK_NS);
            return HoleStep::Request(self.begin_round(state, true));
        }
        if !state.is_passing || state.is_requesting {
            return HoleStep::Wait;
        }
        if is_lost {
            if state.now < self.seeks_until {
                return HoleStep::Wait;
            }
            // The round found nothing behind the hole.
            self.is_seeking = false;
            return HoleStep::SkipRest;
        }
        if state.is_in_order && self.is_refused_everywhere() {
            return HoleStep::Fail;
        }
        self.round_if_due(state)
    }

    /// A pass ended. `answered` are those of its unrequested indices that had arrived. Another pass
    /// begins if anything was verified since this one began, and always after the first pass.
    pub(super) fn end_pass(&mut self, state: &PassState, answered: Vec<u64>) -> HoleStep {
        if !self.is_repeat_pass && !state.unrequested.is_empty() {
            // The reader's buffer stays full until the hole is filled, so the pass had to end here.
            self.set_aside.insert(state.unrequested.clone());
        }
        answered.into_iter().for_each(|index| self.forget(index));
        let Some(first) = self.first_aside() else { return HoleStep::Complete };
        let is_first = !core::mem::replace(&mut self.is_repeat_pass, true);
        // The first repeat pass always runs; later ones only if something was verified meanwhile.
        if (is_first && !state.has_nothing) || self.verified != self.verified_at_pass_start {
            self.is_seeking = false;
            self.verified_at_pass_start = self.verified;
            return HoleStep::BeginPass(first);
        }
        if self.is_refused_everywhere() { HoleStep::Fail } else { self.round_if_due(state) }
    }

    fn round_if_due(&mut self, state: &PassState) -> HoleStep {
        if state.now < self.next_round_at {
            return HoleStep::Wait;
        }
        HoleStep::Request(self.begin_round(state, false))
    }

    /// The indices of a round: some set-aside segments, and if `is_seeking` some behind the hole.
    fn begin_round(&mut self, state: &PassState, is_seeking: bool) -> BTreeSet<u64> {
        let mut round = self.round(state.is_in_order);
        if is_seeking && self.is_repeat_pass {
            round.extend(self.ends_behind(state.unrequested.start));
        } else if is_seeking {
            round.extend(seek_offsets(&state.unrequested));
        }
        self.next_round_at = state.now.plus_ns(self.lifetime_ns);
        self.idle_rounds += 1;
        round
    }

    /// When the transfer fails unless something is verified earlier.
    pub(super) fn deadline(&self) -> Instant {
        // Even with few retries there is time for a round.
        let round_ns = SEEK_NS + self.lifetime_ns;
        self.verified_at.plus_ns(self.patience_ns).max(self.first_hole_at.plus_ns(round_ns))
    }

    /// When [`Holes::advance`] has work, if no packet arrives earlier.
    pub(super) fn next_wakeup(&self, is_requesting: bool) -> Instant {
        let round_at = if self.is_seeking { self.seeks_until } else { self.next_round_at };
        let ends = self.deadline();
        if is_requesting { ends } else { ends.min(round_at) }
    }

    /// The first index that is set aside.
    pub(super) fn first_aside(&self) -> Option<u64> {
        self.set_aside.first().map(|range| range.start)
    }

    /// Why the latest segment failed.
    pub(super) fn reason(&self) -> FailReason {
        self.reason
    }

    fn segments(&self) -> u64 {
        self.set_aside.iter().map(|range| range.end - range.start).sum()
    }

    /// Segments at growing distances before the ends of the next set-aside ranges, from `from` on.
    /// A pass may have skipped to the middle of an island: its beginning lies right before such an
    /// end.
    fn ends_behind(&self, from: u64) -> impl Iterator<Item = u64> {
        let ranges =
            self.set_aside.iter().filter(move |range| range.end > from).take(SOUGHT_RANGES);
        ranges.flat_map(|range| {
            let len = range.end - range.start;
            let near = doubling().take(SOUGHT_DISTANCES).take_while(move |&at| at < len);
            near.map(|at| range.end - 1 - at)
        })
    }

    /// Segments of the next round: some in order, and unless `is_in_order` some spread over all.
    fn round(&mut self, is_in_order: bool) -> BTreeSet<u64> {
        let mut segments = BTreeSet::new();
        // 1. The next ones in order, from where the last round ended. It wraps around at the end.
        let from = if is_in_order { 0 } else { self.round_start_index };
        let in_order = if is_in_order { ROUND_SEGMENTS } else { ROUND_SEGMENTS / 2 };
        let after = self.set_aside.iter().flat_map(|range| range.start.max(from)..range.end);
        let before = self.set_aside.iter().flat_map(|range| range.start..range.end.min(from));
        let mut next_from = 0;
        for index in after.chain(before).take(in_order as usize) {
            segments.insert(index);
            next_from = index + 1;
        }
        self.round_start_index = next_from;
        if is_in_order {
            return segments;
        }
        // 2. Some spread evenly over all.
        let step = self.segments().div_ceil(ROUND_SEGMENTS / 2).max(1);
        // Each round begins at another offset, so that in time every segment is requested.
        let mut skip = self.idle_rounds % step;
        for range in self.set_aside.iter() {
            let len = range.end - range.start;
            while skip < len {
                segments.insert(range.start + skip);
                skip += step;
            }
            skip -= len;
        }
        segments
    }

    /// What is missing, when nothing more will arrive.
    pub(super) fn missing(&self, inventory: &Inventory) -> MissingSegments {
        let layout = inventory.layout().expect("only objects have holes");
        let last_segment = inventory.last_segment();
        let mut segments: RangeSet<u64> = RangeSet::new();
        for range in self.set_aside.iter() {
            let range = layout.segments_at(range);
            if !range.is_empty() {
                segments.insert(range);
            }
        }
        // An earlier fetch may have received some segments that a pass skipped.
        inventory.received.ranges().for_each(|range| segments.remove(range));
        let mut parts = BTreeSet::new();
        for part in segments.iter().flat_map(|range| layout.parts_above(range)) {
            parts.extend(layout.index_of(part).filter(|&at| self.is_aside(at)));
        }
        let missing = segments.iter().map(|range| range.end - range.start).sum();
        let wanted = layout.wanted_segments(last_segment);
        let reason = if self.has_unanswered { FailReason::Unanswered } else { self.reason };
        let metadata = inventory.metadata.as_ref();
        let is_whole = wanted.start == 0 && last_segment == wanted.end.checked_sub(1);
        let sizes = metadata.and_then(|it| it.size_bytes.zip(it.segment_size));
        let octets = sizes.filter(|_| is_whole).map(|(all, size)| {
            let of = |range: &Range<u64>| {
                (range.end.saturating_mul(size).min(all))
                    .saturating_sub(range.start.saturating_mul(size))
            };
            (all.saturating_sub(segments.iter().map(of).sum()), all)
        });
        MissingSegments {
            versioned: metadata.map(|it| it.versioned.clone()).unwrap_or_default(),
            segments: wanted.end - wanted.start,
            missing,
            first_ranges: segments.iter().take(RANGES_MAX).cloned().collect(),
            ranges: segments.iter().count() as u64,
            manifest_parts: parts.len() as u64,
            bytes: octets,
            reason,
        }
    }
}

/// Distances 1, 2, 4 and so on, minus one.
fn doubling() -> impl Iterator<Item = u64> {
    (0..u64::BITS).map(|bit| (1_u64 << bit) - 1)
}

/// Segments behind a hole that begins at `remaining.start`: at distances 1, 2, 4 and so on, and
/// some all over the rest.
fn seek_offsets(remaining: &Range<u64>) -> impl Iterator<Item = u64> {
    let len = remaining.end.saturating_sub(remaining.start);
    let start = remaining.start;
    let near = doubling().take_while(move |&at| at < len);
    let step = len.div_ceil(SPREAD_SEGMENTS).max(1);
    let all_over =
        (1..=SPREAD_SEGMENTS).map(move |at| at * step - 1).take_while(move |&at| at < len);
    near.chain(all_over).map(move |at| start + at)
}
