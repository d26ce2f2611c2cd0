//! Carries out what [`Holes`] decides about packets without an answer.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;

use weir_base::{Instant, NS_PER_MS};

use super::{Purpose, Transfer};
use crate::consumer::holes::{HoleStep, Holes, PassState};
use crate::consumer::outbox::{ConsumerError, ConsumerOutbox};
use crate::consumer::path::Answer;
use crate::consumer::scoreboard::{FailedSegment, HoleRules};
use crate::consumer::target::PacketId;

/// Objects with more segments than this do not set packets aside. A forged packet may claim any
/// number of segments, and the cost of a search grows with the ranges that are set aside.
const SET_ASIDE_SEGMENTS_MAX: u64 = 1 << 32;

impl Transfer {
    /// Whether a packet without an answer can be set aside: the object has a known end and does not
    /// grow.
    fn can_set_aside(&self) -> bool {
        self.config.sets_aside
            && self.config.is_reliable
            && self.live.is_none()
            && self.is_running()
            && self.inventory.end_index().is_some_and(|end| end <= SET_ASIDE_SEGMENTS_MAX)
    }

    /// A packet got no answer. It is set aside if possible; otherwise its object fails.
    pub(super) fn on_packet_failed(
        &mut self,
        now: Instant,
        failed: FailedSegment,
        out: &mut ConsumerOutbox,
    ) {
        if !self.config.is_reliable {
            return self.skip_packet(failed.index, out);
        }
        if !self.can_set_aside() {
            let name = self.inventory.naming.name_of(failed.index);
            let error = self.error_of(name, failed.reason);
            return self.fail_packet(failed.index, error, out);
        }
        if self.scoreboard.outstanding().is_open(failed.index) {
            // A pass has requested it meanwhile.
            return;
        }
        if self.holes.is_none() {
            // While no segment has arrived, the patience counts from the first Interest that timed
            // out or from the latest packet, and not from now.
            let since = self.scoreboard.unresponsive_since().filter(|_| self.has_no_segment());
            let since = since.unwrap_or(now);
            let lifetime_ns = self.config.lifetime_ms.saturating_mul(NS_PER_MS);
            let retries_max = self.config.retries_max;
            let holes = Holes::new(lifetime_ns, retries_max, since, now, self.stats.segments);
            self.holes = Some(Box::new(holes));
            self.shorten_tries();
        }
        let Some(holes) = &mut self.holes else { return };
        holes.add_failed(failed);
        if let PacketId::Manifest(_) = self.inventory.packet_at(failed.index).1 {
            self.set_aside_held();
        }
    }

    /// Sets packets aside after fewer attempts from now on. For an in-order reader that gains
    /// nothing. Before the first segment arrives, it would be too early: all may be missing.
    fn shorten_tries(&mut self) {
        if !self.scoreboard.is_in_order() && !self.has_no_segment() {
            self.scoreboard.set_hole_rules(HoleRules::Known);
        }
    }

    /// Whether no segment has been received.
    fn has_no_segment(&self) -> bool {
        self.stats.segments == 0 && self.inventory.received.is_empty()
    }

    /// Sets aside the packets that wait for a missing manifest part.
    fn set_aside_held(&mut self) {
        for (index, incoming) in self.verify.take_held() {
            if !self.set_aside_unlisted(index) {
                self.verify.hold(index, incoming);
            }
        }
    }

    /// Sets aside a received packet if the manifest part that lists it is set aside. Returns
    /// whether it did.
    pub(super) fn set_aside_unlisted(&mut self, index: u64) -> bool {
        let (Some(holes), Some(layout)) = (&mut self.holes, self.inventory.layout()) else {
            return false;
        };
        if !holes.lacks_lister(layout, layout.packet_at(index)) {
            return false;
        }
        holes.add(index);
        self.reader.drop_unread(1);
        true
    }

    /// Data arrived for a packet that was requested outside the window.
    pub(super) fn on_refetch_answer(&mut self, index: u64, answer: &Answer) {
        // A pass may have requested it meanwhile, or may be about to.
        self.scoreboard.cancel(index);
        self.scoreboard.answered_early(index);
        self.note_aside(index, answer);
    }

    /// Data arrived for a packet that is not requested. Returns whether the packet is set aside. If
    /// so, the Data is wanted: it answers an earlier Interest.
    pub(super) fn on_late_answer(&mut self, index: u64, answer: &Answer) -> bool {
        if !self.holes.as_ref().is_some_and(|holes| holes.is_aside(index)) {
            return false;
        }
        self.scoreboard.note_answer(index, Some(answer.path), 0, answer);
        self.note_aside(index, answer);
        true
    }

    fn note_aside(&mut self, index: u64, answer: &Answer) {
        let Some(holes) = &mut self.holes else { return };
        let was_seeking = holes.answered(index, answer.now);
        self.scoreboard.on_packet_outside_window(answer.path, answer.now);
        self.scoreboard.answered_early(index);
        if was_seeking && !self.scoreboard.is_in_order() {
            self.skip_to_answered(index);
        }
    }

    /// The pass skips a hole: it continues with the answered packet, or with the first manifest
    /// part needed to verify it.
    fn skip_to_answered(&mut self, index: u64) {
        let next = self.scoreboard.outstanding().next_index();
        let to = self.prerequisite(index);
        // The pass requested a manifest part before `next` already.
        let to = if to < next { index } else { to };
        if to > next {
            self.skip(to);
        }
    }

    /// The index of a packet, or of the manifest part that must be verified first.
    fn prerequisite(&self, index: u64) -> u64 {
        let layout = self.inventory.layout();
        layout.map_or(index, |layout| self.verify.prerequisite(layout, index))
    }

    /// The pass continues with packet `to`, and sets aside those before it.
    fn skip(&mut self, to: u64) {
        let Some(holes) = &mut self.holes else { return };
        for index in self.scoreboard.cancel_all() {
            holes.add(index);
        }
        let next = self.scoreboard.outstanding().next_index();
        let answered = self.scoreboard.skip_to(to);
        holes.skipped(next..to, answered);
        self.set_aside_held();
    }

    /// Before a pass over set-aside packets requests the next one: skips a long gap, once
    /// everything requested is answered. Returns whether the pass may request a packet now.
    pub(super) fn skip_gap(&mut self) -> bool {
        let (Some(holes), Some(layout)) = (&self.holes, self.inventory.layout()) else {
            return true;
        };
        let end = self.inventory.end_index().unwrap_or(u64::MAX);
        let rest = self.scoreboard.outstanding().next_index()..end;
        let Some(to) = holes.skip_target(rest, layout, &self.verify) else { return true };
        let is_idle = self.scoreboard.outstanding().unanswered() == 0;
        if is_idle {
            self.scoreboard.skip_to(to);
        }
        is_idle
    }

    /// Requests set-aside packets again, and ends passes. `has_room`: the reader takes more.
    /// Returns whether a pass begins.
    pub(super) fn advance_holes(
        &mut self,
        now: Instant,
        has_room: bool,
        out: &mut ConsumerOutbox,
    ) -> bool {
        let segments = self.stats.segments;
        let Some(holes) = &mut self.holes else { return false };
        if holes.note_verified(segments, now) {
            self.shorten_tries();
        }
        // 1. The current pass. It is stuck when the reader has no buffer and nothing is in flight:
        //    the reader waits for a set-aside segment.
        let is_stuck = !has_room && self.scoreboard.outstanding().unanswered() == 0;
        let state = self.pass_state(now, is_stuck);
        let Some(holes) = &mut self.holes else { return false };
        let step = holes.advance(&state);
        self.take_step(now, step, out);
        // 2. Its end, when nothing is in flight any more.
        let is_idle = !self.is_refetching() && self.verify.is_idle();
        let mut begins = false;
        if is_idle && self.holes.is_some() && (self.scoreboard.is_done() || is_stuck) {
            begins = self.end_pass(now, out);
        }
        // 3. The deadline. A pending verdict may still be progress.
        let ends = self.holes.as_ref().map(|holes| holes.deadline());
        if self.verify.is_idle() && ends.is_some_and(|ends| now >= ends) {
            self.fail_incomplete(out);
        }
        begins && !self.has_ended()
    }

    fn pass_state(&self, now: Instant, is_stuck: bool) -> PassState {
        let next = self.scoreboard.outstanding().next_index();
        PassState {
            now,
            has_nothing: self.has_no_segment(),
            is_in_order: self.scoreboard.is_in_order(),
            is_passing: !self.scoreboard.is_done() && !is_stuck,
            is_unresponsive: self.scoreboard.is_unresponsive(),
            is_requesting: self.is_refetching(),
            unrequested: next..self.inventory.end_index().unwrap_or(next),
        }
    }

    /// Ends a pass. Returns whether another one begins.
    fn end_pass(&mut self, now: Instant, out: &mut ConsumerOutbox) -> bool {
        let state = self.pass_state(now, false);
        let answered = self.scoreboard.skip_to(state.unrequested.end);
        let Some(holes) = &mut self.holes else { return false };
        let step = holes.end_pass(&state, answered);
        let begins = matches!(step, HoleStep::BeginPass(_));
        self.take_step(now, step, out);
        begins
    }

    fn take_step(&mut self, now: Instant, step: HoleStep, out: &mut ConsumerOutbox) {
        match step {
            HoleStep::Wait => {}
            HoleStep::Complete => {
                self.scoreboard.set_hole_rules(HoleRules::Watch);
                self.holes = None;
            }
            HoleStep::Request(round) => self.request_round(now, round),
            HoleStep::SkipRest => {
                self.skip(
                    self.inventory
                        .end_index()
                        .unwrap_or(self.scoreboard.outstanding().next_index()),
                );
            }
            HoleStep::BeginPass(first) => {
                self.scoreboard.skip_to(first);
            }
            HoleStep::Fail => self.fail_incomplete(out),
        }
    }

    /// Requests each of these packets once, or what must come before it.
    fn request_round(&mut self, now: Instant, round: BTreeSet<u64>) {
        let next = self.scoreboard.outstanding().next_index();
        for index in round {
            // Behind a hole there may be manifest parts and no segments. Only segments show that
            // the hole has ended.
            let is_aside = self.holes.as_ref().is_some_and(|holes| holes.is_aside(index));
            let is_behind = index >= next && !is_aside;
            let index = if is_behind { index } else { self.prerequisite(index) };
            let is_requested = self.requests.contains(Purpose::Refetch(index))
                || self.scoreboard.outstanding().is_open(index);
            if !is_requested
                && !self.inventory.is_received(index)
                && !self.scoreboard.outstanding().is_answered_early(index)
            {
                self.refetch(now, index, None, false, 0);
            }
        }
    }

    /// When [`Transfer::advance_holes`] has work, if no packet arrives earlier.
    pub(super) fn holes_wakeup(&self) -> Option<Instant> {
        // A pending verdict comes first.
        let holes = self.holes.as_ref().filter(|_| self.verify.is_idle())?;
        Some(holes.next_wakeup(self.is_refetching()))
    }

    /// Nothing more will arrive: fails.
    fn fail_incomplete(&mut self, out: &mut ConsumerOutbox) {
        let Some(mut holes) = self.holes.take() else { return };
        for index in self.scoreboard.cancel_all() {
            holes.add(index);
        }
        let next = self.scoreboard.outstanding().next_index();
        holes.skipped(next..self.inventory.end_index().unwrap_or(0), alloc::vec::Vec::new());
        if self.has_no_segment() {
            let name = self.inventory.naming.name_of(holes.first_aside().unwrap_or(0));
            return self.fail(self.error_of(name, holes.reason()), out);
        }
        let missing = holes.missing(&self.inventory);
        if missing.missing > 0 {
            self.fail(ConsumerError::Incomplete(Box::new(missing)), out);
        }
    }
}
