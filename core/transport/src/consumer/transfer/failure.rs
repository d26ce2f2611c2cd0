//! Failed segments, and the end of a transfer.

use weir_base::Instant;
use weir_wire::Name;

use super::{Purpose, Transfer, TransferState};
use crate::consumer::end_claim::{ClaimStep, EndMetadata};
use crate::consumer::layout::Layout;
use crate::consumer::naming::Naming;
use crate::consumer::outbox::{ConsumerError, ConsumerEvent, ConsumerOutbox};
use crate::consumer::requests::SINGLE_TRIES;
use crate::consumer::scoreboard::FailReason;
use crate::consumer::target::{PacketId, object_of};
use crate::interest::Selectors;
use crate::mapping::NameMapping;
use crate::request::{Request, RetryLimits};

/// Retry limits of the request that tests a claim: 1 + 2 s.
const CLAIM_TRIES: RetryLimits = RetryLimits { sends_max: 2, nacks_max: 6, needs_route: false };

impl Transfer {
    pub(in crate::consumer) fn is_running(&self) -> bool {
        self.state == TransferState::Running
    }

    /// Whether it has ended, successfully or not.
    pub(in crate::consumer) fn has_ended(&self) -> bool {
        self.state == TransferState::Over
    }

    pub(in crate::consumer) fn fail(&mut self, error: ConsumerError, out: &mut ConsumerOutbox) {
        if !self.has_ended() {
            self.state = TransferState::Over;
            out.events.push(ConsumerEvent::Failed(error));
        }
    }

    /// The error for a name that failed for this reason.
    pub(in crate::consumer) fn error_of(&self, name: Name, reason: FailReason) -> ConsumerError {
        match reason {
            FailReason::NoRoute if self.is_no_route_remote => ConsumerError::NoRouteFurtherOn(name),
            FailReason::NoRoute => ConsumerError::NoRoute(name),
            FailReason::Unanswered => ConsumerError::Unanswered(name),
            FailReason::Nacked(reason) => ConsumerError::Nacked { name, reason },
        }
    }

    /// Fails the object, or the range, that needs this packet.
    pub(super) fn fail_packet(
        &mut self,
        index: u64,
        error: ConsumerError,
        out: &mut ConsumerOutbox,
    ) {
        let Naming::Sequence(ranges) = &mut self.inventory.naming else {
            // Without ranges, a missing packet fails the whole object.
            return self.fail(error, out);
        };
        let requested_end = self.scoreboard.outstanding().next_index();
        let Some((range, indices)) = ranges.cancel(index, requested_end) else { return };
        self.scoreboard.set_limit(Some(ranges.end_index()));
        for index in indices {
            // Chunks before the first open one are complete, and have no record.
            if index >= self.scoreboard.outstanding().first_index() {
                self.scoreboard.cancel(index);
            }
            self.reader.skip_missing(index);
        }
        let is_wanted = |index| ranges.is_wanted(index);
        self.requests.retain(|purpose| match purpose {
            Purpose::Refetch(index) | Purpose::TestClaim(index) => is_wanted(index),
            Purpose::Renewal | Purpose::EndMetadata => true,
        });
        self.reader.drop_unread(self.verify.retain(is_wanted));
        out.events.push(ConsumerEvent::RangeFailed { range, error });
    }

    pub(super) fn skip_packet(&mut self, index: u64, out: &mut ConsumerOutbox) {
        let (range, id) = self.inventory.packet_at(index);
        self.reader.skip(index);
        out.events.push(ConsumerEvent::Missed { range, id });
        self.on_packet_done(index, out);
    }

    /// A packet is verified or skipped.
    pub(super) fn on_packet_done(&mut self, index: u64, out: &mut ConsumerOutbox) {
        if let Naming::Sequence(ranges) = &mut self.inventory.naming
            && let Some(range) = ranges.segment_done(index)
        {
            out.events.push(ConsumerEvent::RangeDone { range });
        }
    }

    /// An answer states that the packet does not exist. A reliable consumer requests the packet
    /// once more, bypassing all caches. After a second such answer, the object or the range fails.
    ///
    /// Requests for an object whose end is unknown, or only claimed, may lie behind its end. There,
    /// such an answer only bounds what is requested.
    pub(super) fn on_packet_absent(&mut self, now: Instant, index: u64, out: &mut ConsumerOutbox) {
        if self.has_open_end() {
            let absent = self.absent.map_or(index, |absent| absent.min(index));
            self.absent = Some(absent);
            self.requests.retain(|purpose| purpose != Purpose::TestClaim(index));
            self.set_limit();
            self.check_absent(out);
            return;
        }
        let is_first = self.verify.count_bad_copy(index) == 1 && self.config.is_reliable;
        if !is_first || !self.refetch(now, index, None, true, self.config.retries_max) {
            let name = self.inventory.naming.name_of(index);
            self.fail_packet(index, ConsumerError::Refused(name), out);
        }
    }

    /// Whether nothing signed states the end, and it is unknown or only claimed. Objects with names
    /// of NDN state it in all their segments.
    fn has_open_end(&self) -> bool {
        let may_be_open = self.inventory.is_stream()
            || (self.config.mapping != NameMapping::Identity
                && self.live.is_none()
                && self.inventory.layout().is_some()
                && self.inventory.metadata.as_ref().is_none_or(|it| it.last_segment.is_none())
                && (self.inventory.last_segment().is_none()
                    || self.claims.claimed_last().is_some()));
        may_be_open && !self.verify.knows_last_segment()
    }

    /// Compares the first packet that does not exist with what is known about the end.
    fn check_absent(&mut self, out: &mut ConsumerOutbox) {
        let (Some(absent), Some(layout)) = (self.absent, self.inventory.layout()) else { return };
        let end_of = |last| layout.end_index(last).filter(|_| last.is_some());
        // The part of a manifest may precede the next segment.
        let is_next = |last: u64| {
            end_of(Some(last)) == Some(absent)
                || layout.index_of(PacketId::Segment(last + 1)) == Some(absent)
        };
        if self.claims.claimed_last().is_some_and(is_next) {
            // A request for end metadata continues: they may contradict a forged answer.
            if let Some(last) = self.claims.confirm() {
                self.set_last(last, true, out);
            }
        } else if end_of(self.claims.newest()).is_some_and(|end| absent < end) {
            let name = self.inventory.naming.name_of(absent);
            self.fail(ConsumerError::Refused(name), out);
        }
    }

    /// The packet that does not exist, although the end of the object is unknown or behind it.
    pub(super) fn absent_packet(&self) -> Option<u64> {
        let last = self.inventory.last_segment();
        let end = last.and_then(|_| self.inventory.layout()?.end_index(last));
        self.absent.filter(|&absent| end.is_none_or(|end| absent < end))
    }

    /// Requests a packet outside the window. If its digest is known, the request includes it, and
    /// routers cannot answer with another copy. If no packet has this digest, any packet of the
    /// name is requested, because the producer may have signed the object again. Returns false when
    /// there are too many requests.
    pub(super) fn refetch(
        &mut self,
        now: Instant,
        index: u64,
        digest: Option<[u8; 32]>,
        must_be_fresh: bool,
        retries_max: u32,
    ) -> bool {
        if !self.requests.has_room() {
            return false;
        }
        let mut name = self.inventory.naming.name_of(index);
        let mut selectors = self.config.selectors();
        selectors.must_be_fresh |= must_be_fresh;
        let tries = RetryLimits { sends_max: retries_max.saturating_add(1), ..SINGLE_TRIES };
        let request = Request::new(&name, selectors, tries, now);
        let purpose = Purpose::Refetch(index);
        match digest {
            Some(digest) => {
                name.append_implicit_digest(digest);
                let exact = Request::new(&name, selectors, SINGLE_TRIES, now);
                self.requests.add_with_fallback(purpose, exact, request);
            }
            None => self.requests.add(purpose, request),
        }
        true
    }

    /// Whether a packet is being requested outside the window.
    pub(super) fn is_refetching(&self) -> bool {
        self.requests.any(|purpose| matches!(purpose, Purpose::Refetch(_)))
    }

    /// The number of the last segment is known, or corrected.
    pub(in crate::consumer) fn set_last(
        &mut self,
        last: u64,
        is_from_segment: bool,
        out: &mut ConsumerOutbox,
    ) {
        match self.inventory.set_last(last, is_from_segment, self.config.mapping) {
            Ok(true) => {
                self.set_limit();
                out.events.push(ConsumerEvent::LastSegment(last));
            }
            Ok(false) => {}
            Err(error) => self.fail(error.into(), out),
        }
    }

    /// Discards the last segment number that no signature covers.
    pub(super) fn forget_last(&mut self, out: &mut ConsumerOutbox) {
        if !self.inventory.last_is_from_segment() || self.verify.knows_last_segment() {
            return;
        }
        match self.inventory.metadata.as_ref().and_then(|metadata| metadata.last_segment) {
            Some(last) => self.set_last(last, false, out),
            None => {
                self.inventory.forget_last();
                self.set_limit();
            }
        }
    }

    /// A verified segment arrived. `is_claimed`: it claims to be the last, and no signature covers
    /// that. `end_claim.rs` explains the rules.
    pub(super) fn on_end_claim(
        &mut self,
        now: Instant,
        segment: u64,
        is_claimed: bool,
        out: &mut ConsumerOutbox,
    ) {
        if let Some(live) = &mut self.live {
            if is_claimed {
                live.claim_end();
            }
            return;
        }
        self.test_end_claim(now, segment, is_claimed, out);
        self.check_absent(out);
    }

    fn test_end_claim(
        &mut self,
        now: Instant,
        segment: u64,
        is_claimed: bool,
        out: &mut ConsumerOutbox,
    ) {
        let has_signed_end = self.verify.knows_last_segment()
            || self.inventory.metadata.as_ref().is_some_and(|it| it.last_segment.is_some())
            || self.inventory.layout().is_none_or(Layout::has_stream_manifest);
        if has_signed_end {
            return;
        }
        let (last, stops_window) = match self.claims.on_segment(segment, is_claimed) {
            ClaimStep::None => return,
            ClaimStep::Refuted => {
                self.requests.retain(|purpose| !matches!(purpose, Purpose::TestClaim(_)));
                return self.forget_last(out);
            }
            ClaimStep::Test { last, stops_window } => (last, stops_window),
        };
        self.requests.retain(|purpose| !matches!(purpose, Purpose::TestClaim(_)));
        let Some(layout) = self.inventory.layout() else { return };
        // Whether the object ends does not matter if no more is wanted.
        if !layout.wanted_segments(None).contains(&(last + 1)) {
            return;
        }
        let Some(next) = layout.index_of(PacketId::Segment(last + 1)) else { return };
        let outstanding = self.scoreboard.outstanding();
        let is_answered = outstanding.is_answered_early(next)
            || (next < outstanding.next_index() && !outstanding.is_open(next));
        let is_absent = self.absent == Some(next);
        // A packet that is being verified may refute the claim. Nothing else is needed.
        if !is_answered && !is_absent {
            let name = self.inventory.naming.name_of(next);
            let request = Request::new(&name, self.config.selectors(), CLAIM_TRIES, now);
            self.requests.add(Purpose::TestClaim(next), request);
        }
        let may_be_confirmed = is_absent || !is_answered;
        if may_be_confirmed && self.claims.metadata() == EndMetadata::NotRequested {
            self.request_end_metadata(now, false);
        }
        if stops_window && !is_answered {
            self.set_last(last, true, out);
        } else {
            self.forget_last(out);
        }
    }

    /// Requests the metadata of the object, which state the end of its latest version.
    pub(super) fn request_end_metadata(&mut self, now: Instant, is_fresh: bool) {
        let Some(versioned) = self.inventory.metadata.as_ref().map(|known| &known.versioned) else {
            return;
        };
        let Some(object) = object_of(versioned.as_view()) else { return };
        let mapping = self.config.mapping;
        let (name, can_be_prefix) = mapping.metadata_interest(object.as_view());
        let selectors =
            Selectors { can_be_prefix, must_be_fresh: is_fresh, ..self.config.selectors() };
        let request = Request::new(&name, selectors, CLAIM_TRIES, now)
            .with_element(mapping.metadata_payload(object.as_view()));
        self.requests.add(Purpose::EndMetadata, request);
        self.claims.set_metadata(EndMetadata::Requested { is_fresh });
    }

    /// Metadata are not usable: ignores them if they should have stated the end. Returns whether
    /// end metadata was being verified.
    pub(in crate::consumer) fn drop_end_metadata(&mut self) -> bool {
        let was_verifying = matches!(self.claims.metadata(), EndMetadata::Verifying(_));
        if was_verifying {
            self.claims.set_metadata(EndMetadata::Done);
        }
        was_verifying
    }

    /// The request for the packet behind the one that claims to be the last has failed. Without a
    /// route to a producer, as where only a cache still has the object, nothing can answer it.
    pub(super) fn on_claim_tested(
        &mut self,
        index: u64,
        reason: FailReason,
        out: &mut ConsumerOutbox,
    ) {
        if matches!(reason, FailReason::Nacked(_)) {
            let error = self.error_of(self.inventory.naming.name_of(index), reason);
            return self.fail(error, out);
        }
        if let Some(last) = self.claims.confirm() {
            self.requests.retain(|purpose| purpose != Purpose::EndMetadata);
            self.set_last(last, true, out);
        }
    }

    /// Whether the object ended where a segment claims its end, and no signature covers that.
    pub(in crate::consumer) fn has_unsigned_end(&self) -> bool {
        self.claims.is_confirmed()
    }

    /// Bounds the scoreboard by the end of the object.
    pub(super) fn set_limit(&mut self) {
        if let Some(layout) = self.inventory.layout() {
            let end = layout.end_index(self.inventory.last_segment());
            self.scoreboard.set_limit(end.into_iter().chain(self.absent).min());
        }
    }
}
