//! The transfer: fetches the packets of a target whose names are known.
//!
//! [`Transfer`] owns the components and calls them. Its methods are in four files. Each calls only
//! the following ones: this one (sending and receiving), `verdicts` (what happens to a received
//! packet), `set_aside` (holes), `failure` (failed packets).

mod failure;
mod set_aside;
mod verdicts;

use alloc::boxed::Box;
use alloc::vec::Vec;

use weir_base::{Instant, Rng};
use weir_security::manifest::ManifestShape;
use weir_wire::{DataView, InterestView, NackReason, Name};

pub(super) use self::verdicts::Verified;
use super::chunks::CHUNK_SEGMENTS_MAX;
use super::config::{ConsumerConfig, LagPolicy, ReaderMode, Verification};
use super::end_claim::{EndClaims, StatedEnd, is_refusal};
use super::holes::Holes;
use super::inventory::{Inventory, Need};
use super::live::{Live, LiveState};
use super::naming::{METADATA_INDEX, Naming};
use super::outbox::{ConsumerError, ConsumerEvent, ConsumerOutbox, Delivery, TraceEvent};
use super::path::Answer;
use super::reader::Reader;
use super::requests::Requests;
use super::schedule::Schedule;
use super::scoreboard::{FailReason, FailedSegment, HoleRules, Scoreboard, ScoreboardConfig};
use super::stats::ConsumerStats;
use super::target::{PacketId, RangeId, Target};
use super::verify::{Incoming, VerifyQueue};
use crate::PathId;
use crate::request::Nack;

/// What a request of the transfer is for.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Purpose {
    /// Whether a growing object has grown.
    Renewal,
    /// The packet of this index, outside the window: it arrived damaged, or got no answer.
    Refetch(u64),
    /// The packet of this index, which follows one that claims to be the last.
    TestClaim(u64),
    /// The metadata, which may state the end while a claim is tested.
    EndMetadata,
}

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum TransferState {
    /// The names of the packets are not known yet.
    Waiting,
    Running,
    Over,
}

pub(super) struct Transfer {
    pub(super) config: ConsumerConfig,
    state: TransferState,
    pub(super) inventory: Inventory,
    pub(super) scoreboard: Scoreboard,
    requests: Requests<Purpose>,
    pub(super) verify: VerifyQueue,
    pub(super) reader: Reader,
    /// For a growing object.
    live: Option<Live>,
    /// Packets that got no answer, if any.
    holes: Option<Box<Holes>>,
    /// Claims about the end of an object whose end is not signed.
    claims: EndClaims,
    /// The first packet that does not exist, according to an answer, while the end is unknown.
    absent: Option<u64>,
    /// The latest Nack had the reason NoRoute, and came from a router beyond the first.
    is_no_route_remote: bool,
    /// No range of the sequence follows.
    is_closed: bool,
    /// More ranges have been requested from the driver.
    has_asked_for_more: bool,
    pub(super) stats: ConsumerStats,
    /// Indices of the packets that a Data or Nack answers. A field, so that its memory is reused.
    found: Vec<u64>,
}

impl Transfer {
    pub(super) fn new(
        target: &Target,
        config: ConsumerConfig,
        schedule: Box<dyn Schedule>,
        seed: u64,
    ) -> Self {
        let mut scoreboard = Scoreboard::new(ScoreboardConfig::new(&config), schedule);
        let inventory = Inventory::new(target, config.mapping, seed);
        if let Naming::Sequence(ranges) = &inventory.naming {
            scoreboard.set_limit(Some(ranges.end_index()));
        }
        Self {
            state: match target {
                Target::Sequence => TransferState::Running,
                _ => TransferState::Waiting,
            },
            inventory,
            scoreboard,
            requests: Requests::default(),
            verify: VerifyQueue::new(config.verification, config.on_bad),
            reader: Reader::new(ReaderMode::None),
            live: None,
            holes: None,
            claims: EndClaims::default(),
            absent: None,
            is_no_route_remote: false,
            is_closed: false,
            has_asked_for_more: false,
            stats: ConsumerStats::default(),
            found: Vec::new(),
            config,
        }
    }

    pub(super) fn path_removed(&mut self, path: PathId, now: Instant) {
        self.scoreboard.remove_path(path, now);
        self.requests.path_removed(path, now);
    }

    pub(super) fn set_reader(&mut self, mode: ReaderMode) {
        self.reader.set_mode(mode);
        self.verify.set_reader(self.reader.is_enabled());
        self.scoreboard.set_in_order(mode == ReaderMode::InOrder);
    }

    pub(super) fn append(
        &mut self,
        range: RangeId,
        name: &Name,
        segments: Option<core::ops::Range<u64>>,
        out: &mut ConsumerOutbox,
    ) {
        let Naming::Sequence(ranges) = &mut self.inventory.naming else {
            debug_assert!(false, "only a sequence has ranges");
            return;
        };
        if !ranges.append(range, name, segments) {
            return out.events.push(ConsumerEvent::RangeDone { range });
        }
        self.scoreboard.set_limit(Some(ranges.end_index()));
        self.has_asked_for_more = false;
    }

    /// No range follows.
    pub(super) fn close(&mut self) {
        self.is_closed = true;
    }

    /// A manifest is used only for verification.
    pub(super) fn uses_manifest(&self) -> bool {
        self.config.verification == Verification::Signatures && self.config.use_manifest
    }

    /// The names of all packets are known: starts the scoreboard.
    pub(super) fn begin(&mut self, manifest: Option<ManifestShape>, out: &mut ConsumerOutbox) {
        let uses_manifest = self.uses_manifest();
        let layout = self.inventory.layout_mut();
        // The manifests of a stream are between its segments.
        let is_stream = layout.stream_address().is_some();
        let manifest = manifest.filter(|_| uses_manifest || is_stream);
        layout.set_manifest(manifest);
        let first_index = layout.first_index();
        self.scoreboard.start_at(first_index);
        self.reader.start_at(first_index);
        self.set_limit();
        if self.config.is_reliable && self.config.sets_aside {
            self.scoreboard.set_hole_rules(HoleRules::Watch);
        }
        self.state = TransferState::Running;
        self.verify.set_manifest(manifest);
        out.events.push(ConsumerEvent::Manifest { shape: manifest });
    }

    /// If the object grows, segments may be requested before they exist.
    pub(super) fn begin_live(&mut self, now: Instant, target: &Target) {
        let grows = self.inventory.metadata.as_ref().filter(|metadata| metadata.grows());
        let Some(next) = grows.and_then(|metadata| metadata.next_segment) else { return };
        if self.config.chunk_segments > 1 || !self.is_running() {
            return;
        }
        self.scoreboard.set_horizon(next, self.config.ahead_max);
        self.scoreboard.set_hole_rules(HoleRules::Off);
        self.live = Some(Live::new(target, self.config.lifetime_ms, now));
    }
}

/// Receiving.
impl Transfer {
    pub(super) fn on_data(
        &mut self,
        answer: &Answer,
        data: &DataView<'_>,
        incoming: Incoming,
        out: &mut ConsumerOutbox,
    ) -> Option<Verified> {
        let now = answer.now;
        // 1. The metadata of a growing object are no packets of the fetch order.
        if let (Some(live), Some(metadata)) = (&mut self.live, &self.inventory.metadata) {
            live.on_data(now, data.name, &metadata.versioned);
            if self.requests.take_if_answered(Purpose::Renewal, data) {
                return match live.take_renewal(data) {
                    Ok(()) => self.accept(now, METADATA_INDEX, incoming, out),
                    Err(error) => Some(Verified::BadMetadata(error)),
                };
            }
        }
        if self.requests.take_if_answered(Purpose::EndMetadata, data) {
            return self.on_end_metadata(now, data, incoming, out);
        }
        let mut found = core::mem::take(&mut self.found);
        self.inventory.naming.find(data.name.value(), &mut found);
        if found.is_empty() {
            self.stats.unwanted += 1;
        }
        let Incoming { packet, path, incoming_face, end, content_bytes } = incoming;
        let mut result = None;
        // 2. A sequence may contain the same segment in several ranges. Each range counts it.
        for &index in &found {
            if !self.on_answer(index, answer) {
                continue;
            }
            if is_refusal(data) {
                self.on_packet_absent(now, index, out);
                continue;
            }
            if matches!(self.inventory.packet_at(index).1, PacketId::Segment(_)) {
                self.learn_last(end, out);
            }
            let packet = packet.clone();
            let incoming = Incoming { packet, path, incoming_face, end, content_bytes };
            // Without verification, a manifest is accepted at once.
            result = self.accept(now, index, incoming, out).or(result);
        }
        self.found = found;
        result
    }

    /// A packet arrived. Returns whether it was wanted.
    fn on_answer(&mut self, index: u64, answer: &Answer) -> bool {
        let requested = [Purpose::Refetch(index), Purpose::TestClaim(index)];
        let request = requested.into_iter().find_map(|purpose| self.requests.take(purpose));
        if let Some(request) = request {
            let rtt_ns = request.elapsed_ns(answer.now);
            self.scoreboard.note_answer(index, request.path(), rtt_ns, answer);
            self.on_refetch_answer(index, answer);
            return true;
        }
        self.scoreboard.on_answer(index, answer) || self.on_late_answer(index, answer)
    }

    /// Takes the number of the last segment from a received one, unless an earlier one stated it.
    pub(super) fn learn_last(&mut self, end: StatedEnd, out: &mut ConsumerOutbox) {
        let Some(layout) = self.inventory.layout() else { return };
        let last = if layout.is_whole() { Some(0) } else { end.signed };
        if let Some(last) = last
            && !self.inventory.last_is_from_segment()
        {
            self.set_last(last, true, out);
        }
    }

    /// Records whether the first router sent a Nack, or one further on.
    pub(super) fn note_nack_origin(&mut self, nack: Nack) {
        self.is_no_route_remote = nack.reason == NackReason::NoRoute && !nack.is_from_first_router;
    }

    pub(super) fn on_nack(
        &mut self,
        now: Instant,
        interest: &InterestView<'_>,
        nack: Nack,
        out: &mut ConsumerOutbox,
    ) {
        // Requests outside the window have their own retries.
        if let Some((purpose, result)) = self.requests.on_nack(interest, nack, now) {
            self.stats.nacks += 1;
            if let Err(reason) = result {
                self.request_failed(now, purpose, reason, out);
            }
            return;
        }
        let mut found = core::mem::take(&mut self.found);
        self.inventory.naming.find(interest.name.value(), &mut found);
        for &index in &found {
            // The scoreboard knows only the base of the nonces (see `send`).
            let (_, segment) = self.inventory.naming.interest_name(index);
            let nonce = interest.nonce.map(|nonce| nonce_base(nonce, segment));
            if let Err(failed) = self.scoreboard.on_nack(index, nonce, nack.reason, now) {
                self.on_packet_failed(now, failed, out);
            }
        }
        self.found = found;
    }

    /// A single request failed.
    fn request_failed(
        &mut self,
        now: Instant,
        purpose: Purpose,
        reason: FailReason,
        out: &mut ConsumerOutbox,
    ) {
        match (purpose, &self.live) {
            (Purpose::Refetch(index), _) => {
                self.on_packet_failed(now, FailedSegment { index, reason }, out)
            }
            (Purpose::TestClaim(index), _) => self.on_claim_tested(index, reason, out),
            // The test decides.
            (Purpose::EndMetadata, _) => {}
            (Purpose::Renewal, Some(live)) if !live.has_recent_data(now) => {
                self.fail(self.error_of(live.target(), reason), out);
            }
            // Segments have arrived since, so there is a producer.
            (Purpose::Renewal, _) => {}
        }
    }
}

/// Sending.
impl Transfer {
    /// Finds lost and timed-out chunks and requests.
    pub(super) fn detect_losses(&mut self, now: Instant, out: &mut ConsumerOutbox) {
        while self.is_running()
            && let Err(failed) = self.scoreboard.detect_losses(now)
        {
            self.on_packet_failed(now, failed, out);
        }
    }

    /// Sends single requests that are due.
    pub(super) fn poll_requests(&mut self, now: Instant, rng: &mut Rng, out: &mut ConsumerOutbox) {
        if self.requests.is_empty() {
            return;
        }
        let paths = self.scoreboard.paths().request_order();
        while !self.has_ended() {
            let Self { requests, stats, scoreboard, .. } = self;
            let polled = requests.poll(&paths, now, rng, &mut out.interests, |purpose, path| {
                stats.interests += 1;
                if let Purpose::Refetch(index) = purpose {
                    scoreboard.note_sent_again(index, path);
                }
            });
            let Err((purpose, reason)) = polled else { return };
            self.request_failed(now, purpose, reason, out);
        }
    }

    /// Delivers segments to the reader.
    pub(super) fn hand_out(&mut self, out: &mut Vec<Delivery>) {
        self.reader.hand_out(out);
    }

    /// Learns how far an object has grown, and requests its metadata again when that is due.
    pub(super) fn advance_live(&mut self, now: Instant, out: &mut ConsumerOutbox) {
        let (Some(live), Some(known)) = (&mut self.live, &self.inventory.metadata) else { return };
        match live.take_verified(now, &known.versioned) {
            Ok(Some(metadata)) => self.renewed(now, &metadata, out),
            Ok(None) => {}
            Err(error) => self.fail(error, out),
        }
        if self.inventory.last_segment().is_some() {
            self.requests.take(Purpose::Renewal);
        }
        let state = self.live_state();
        let mapping = self.config.mapping;
        let request = self.live.as_mut().and_then(|live| live.advance(now, &state, mapping));
        if let Some(request) = request {
            self.requests.add(Purpose::Renewal, request);
        }
    }

    fn live_state(&self) -> LiveState {
        LiveState {
            is_end_known: self.inventory.last_segment().is_some(),
            is_renewing: self.requests.contains(Purpose::Renewal),
            unanswered: self.scoreboard.outstanding().unanswered(),
            ahead: self.scoreboard.outstanding().ahead_count(),
            unread: self.reader.unread(),
            is_drained: self.reader.is_drained(),
        }
    }

    /// Verified metadata state how far the object has grown. A reader that was too slow may
    /// continue with the newest segment.
    fn renewed(
        &mut self,
        now: Instant,
        metadata: &crate::metadata::Metadata,
        out: &mut ConsumerOutbox,
    ) {
        let is_idle = self.scoreboard.outstanding().unanswered() == 0
            && self.reader.is_drained()
            && self.verify.is_idle()
            && !self.is_refetching();
        // Segments may be skipped only once everything requested has been delivered.
        let may_skip = is_idle && self.live.as_mut().is_some_and(Live::take_reader_behind);
        if let Some(newest) = metadata.newest_segment() {
            self.scoreboard.on_segment_exists(newest, now);
            if may_skip && newest > self.scoreboard.outstanding().next_index() {
                self.scoreboard.start_at(newest);
                self.reader.start_at(newest);
            }
        }
        if let Some(last) = metadata.last_segment {
            self.set_last(last, false, out);
        }
    }

    /// Metadata are verified that were requested for the end of the object, or because it grows.
    pub(super) fn on_metadata_verified(&mut self, out: &mut ConsumerOutbox) {
        self.on_end_metadata_verified(out);
        if let Some(live) = &mut self.live {
            live.renewal_verified();
        }
        self.verify.forget_bad_copies(METADATA_INDEX);
    }

    /// The new metadata are not usable. If the object grows, they are requested again later.
    /// Returns whether they are.
    pub(super) fn renew_later(&mut self, now: Instant) -> bool {
        self.live.as_mut().map(|live| live.renew_later(now)).is_some()
    }

    /// Requests packets while paths and the reader have room, and decides about set-aside packets.
    pub(super) fn advance(&mut self, now: Instant, rng: &mut Rng, out: &mut ConsumerOutbox) {
        let has_room = self.send(now, rng, out);
        if self.advance_holes(now, has_room, out) {
            self.send(now, rng, out);
        }
    }

    /// Ends when all packets have been received, or reports that more ranges may follow.
    pub(super) fn end_if_done(&mut self, now: Instant, out: &mut ConsumerOutbox) {
        if self.has_ended() {
            return;
        }
        let may_end = match self.inventory.naming {
            Naming::Sequence(_) => self.is_closed,
            Naming::Object(_) => true,
        };
        // `send` may have skipped packets that the reader was waiting for.
        self.reader.hand_out(&mut out.deliveries);
        let is_settled = self.requests.is_empty() && self.verify.is_idle() && self.holes.is_none();
        if may_end && is_settled && self.reader.is_empty() && self.scoreboard.is_done() {
            if let Some(absent) = self.absent_packet() {
                let name = self.inventory.naming.name_of(absent);
                return self.fail(ConsumerError::Refused(name), out);
            }
            self.state = TransferState::Over;
            out.events.push(ConsumerEvent::Done);
        } else if !may_end && !self.has_asked_for_more && self.scoreboard.wants_more(now) {
            self.has_asked_for_more = true;
            out.events.push(ConsumerEvent::NeedsMore);
        }
    }

    /// Requests chunks while a path and the reader have room. Returns whether the reader has room
    /// left.
    ///
    /// # Run Interests
    ///
    /// Between two ends that support it, one link packet carries up to 64 Interests of one object,
    /// a *run* (`docs/run-interests.md`). The link forms runs from queued Interests that are
    /// adjacent, equal in all other fields, and whose segment numbers and nonces have the same
    /// distance. The consumer only has to make its Interests fit:
    ///
    /// 1. It draws one random number, `base`, when it sends the first Interest of this call.
    /// 2. The nonce of segment `n` is `base + n` (modulo 2^32). So the nonces of a batch increase
    ///    exactly as its segment numbers do, gaps included.
    /// 3. All Interests of a batch have the same selectors and are appended in ascending order,
    ///    path by path as the schedule decides.
    /// 4. The scoreboard stores `base` for each chunk, not the nonces. A Nack returns the Interest,
    ///    and [`nonce_base`] subtracts the segment number. The Nack counts only if the result is
    ///    the base of the chunk's last sending.
    ///
    /// Example: base 1000, segments 7, 8 and 10. The nonces are 1007, 1008 and 1010. The link sends
    /// the Interest of segment 7 with the bitmap `1011` (bits 0, 1 and 3).
    ///
    /// A batch must never use two bases, or the run breaks. Two batches must never share one: a
    /// segment sent again needs a new nonce, or routers drop its Interest as a duplicate.
    fn send(&mut self, now: Instant, rng: &mut Rng, out: &mut ConsumerOutbox) -> bool {
        let mut selectors = self.config.selectors();
        let room_max = self.unread_max();
        let mut base = None;
        let has_room = loop {
            let room = if self.may_request() { self.new_segment_room(room_max) } else { 0 };
            // If the router of a working path holds the next segment, only such paths may take it.
            if self.scoreboard.paths().knows_holders() {
                let next =
                    self.inventory.naming.segment_of(self.scoreboard.outstanding().next_index());
                self.scoreboard.prefer_holders(next);
            }
            let Some((first, path)) = self.next_chunk(now, room) else { break room > 0 };
            let base = *base.get_or_insert_with(|| rng.next_u32());
            for index in self.scoreboard.open_segments(first) {
                let (prefix, segment) = self.inventory.naming.interest_name(index);
                selectors.nonce = base.wrapping_add(segment.unwrap_or(0) as u32);
                out.interests.push(path, prefix, segment, selectors);
            }
            self.scoreboard.on_sent(first, path, base, now);
        };
        // The reader of a growing object is too slow, and may continue with the newest segment.
        let skips = self.config.behind == LagPolicy::Skip && self.reader.is_enabled();
        if !has_room
            && skips
            && self.inventory.last_segment().is_none()
            && let Some(live) = &mut self.live
        {
            live.set_reader_behind();
        }
        has_room
    }

    /// How many segments may be requested and unread; at least those of one chunk.
    fn unread_max(&self) -> u32 {
        let max = self.config.reader_segments_max;
        let max = match &self.holes {
            Some(holes) => holes.reader_capacity(max, self.scoreboard.is_in_order()),
            None => max,
        };
        max.max(self.chunk_segments())
    }

    /// Room for new segments, in whole chunks: a chunk is requested at once.
    fn new_segment_room(&self, room_max: u32) -> u32 {
        let committed =
            self.scoreboard.outstanding().unanswered().saturating_add(self.reader.unread());
        let room = room_max.saturating_sub(committed);
        room - room % self.chunk_segments()
    }

    fn chunk_segments(&self) -> u32 {
        self.config.chunk_segments.clamp(1, CHUNK_SEGMENTS_MAX)
    }

    /// Whether new segments may be requested. Not while a slow reader of a growing object waits for
    /// metadata, or while a pass waits to jump over a gap between set-aside packets.
    fn may_request(&mut self) -> bool {
        !self.live.as_ref().is_some_and(Live::is_reader_behind) && self.skip_gap()
    }

    /// The next chunk to request, by its first segment, and its path.
    fn next_chunk(&mut self, now: Instant, room: u32) -> Option<(u64, PathId)> {
        let Self { scoreboard, inventory, reader, holes, verify, .. } = self;
        scoreboard.next_to_send(now, room, |index| {
            let need = inventory.need(index);
            if need == Need::AlreadyReceived {
                return false;
            }
            let is_needed = need == Need::Fetch;
            // An in-order reader must not wait for a packet that will not come.
            if !is_needed {
                reader.skip_missing(index);
            }
            match (&mut *holes, inventory.layout()) {
                (Some(holes), Some(layout)) => {
                    holes.claims_packet(index, is_needed, layout, verify)
                }
                _ => is_needed,
            }
        })
    }

    /// When something is due if no packet arrives earlier.
    pub(super) fn next_wakeup(&self) -> Option<Instant> {
        let requests = self.requests.next_wakeup();
        if !self.is_running() {
            return requests;
        }
        let live = self.live.as_ref().and_then(|live| live.next_wakeup(&self.live_state()));
        [requests, self.scoreboard.next_wakeup(), live, self.holes_wakeup()]
            .into_iter()
            .flatten()
            .min()
    }

    /// Ends the turn: reports trace events, and forgets finished ranges.
    pub(super) fn end_turn(&mut self, out: &mut ConsumerOutbox) {
        let Self { scoreboard, inventory, .. } = self;
        for (index, path, kind) in scoreboard.trace().drain(..) {
            let (range, id) = inventory.packet_at(index);
            out.trace.push(TraceEvent { range, id, path, kind });
        }
        if let Naming::Sequence(ranges) = &mut inventory.naming {
            ranges.forget_finished(scoreboard.outstanding().first_index());
        }
    }
}

/// The base that the nonces of a batch share (see `Transfer::send`).
fn nonce_base(nonce: u32, segment: Option<u64>) -> u32 {
    nonce.wrapping_sub(segment.unwrap_or(0) as u32)
}
