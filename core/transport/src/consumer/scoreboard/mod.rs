//! The scoreboard: which segments are requested, on which path, what is lost, sent again, and done.
//!
//! The scoreboard knows packets by their index in the fetch order, from 0. It calls all of them
//! segments, even manifest parts. It keeps one record for each chunk from the first unanswered to
//! the last requested one. A chunk is sent, lost and counted in the window as a whole. When it is
//! sent again, only its missing segments are requested.
//!
//! # Life of a chunk
//!
//! ```text
//!                on_sent                 last segment arrives
//!   AwaitsResend ---------> InFlight ------------------------> Done
//!        ^                     |
//!        '---------------------'  lost, timed out, refused, or its path was removed
//!
//!   AwaitsResend ---------> Ahead       the segment does not exist yet (a growing object)
//! ```
//!
//! 1. [`Scoreboard::next_to_send`] picks the next chunk: first one that waits to be resent, then a
//!    new one. The schedule picks the path.
//! 2. [`Scoreboard::on_sent`] appends the chunk to the path's list of sendings, with an *order*,
//!    the number of the sending on that path.
//! 3. [`Scoreboard::on_answer`] closes one segment. The last one completes the chunk. The path then
//!    measures the round trip, and remembers the highest order answered.
//! 4. [`Scoreboard::detect_losses`] runs in every turn of the consumer. For each path it takes the
//!    oldest sending that is still in flight, and calls [`Path::detect_loss`] for it. It stops at
//!    the first chunk that is not lost, because younger ones are not lost either. `path.rs`
//!    explains the rules.
//! 5. A lost chunk leaves the window, waits for its time ([`Path::resend_at`]), and is sent again.
//!    After too many attempts its segments fail, and the caller sets them aside or ends the fetch
//!    ([`HoleRules`]).
//!
//! Example: a window of 4 chunks of one segment each. 0, 1, 2 and 3 leave at 0 ms. 1, 2 and 3 are
//! answered at 20 ms, so 4, 5 and 6 leave. Chunk 0 is overtaken now, because chunk 3 was sent three
//! sendings later. The reorder window is 20 ms and a quarter. At 25 ms chunk 0 is lost, and sent
//! again at once.
//!
//! It must never count a chunk in two states, which `assert_consistent` checks, and never request
//! more than about [`outstanding::SEGMENTS_MAX`] segments past the first unanswered one.
//!
//! [`Outstanding`] keeps the chunks, [`Paths`] chooses the path, [`AheadWindow`] bounds requests
//! for segments that do not exist yet. Only this file calls them.

mod ahead;
mod config;
mod hole_rules;
mod outstanding;
mod paths;
#[cfg(test)]
mod tests;

use alloc::boxed::Box;
use alloc::vec::Vec;

use weir_base::{Histogram, Instant, NS_PER_MS, bucket_count};
use weir_store::SegmentRange;
use weir_wire::NackReason;

use self::ahead::AheadWindow;
pub(crate) use self::config::ScoreboardConfig;
pub(crate) use self::hole_rules::HoleRules;
use self::hole_rules::NO_ROUTE_MAX;
use self::outstanding::Outstanding;
use self::paths::Paths;
pub use super::chunk::FailReason;
pub(crate) use super::chunk::FailedSegment;
use super::chunk::{Chunk, ChunkState, ScoreboardCounters, nack_wait_ns};
use super::outbox::TraceKind;
use super::path::{Answer, LossState, Path};
use super::schedule::{Schedule, SendKind};
use crate::PathId;
use crate::congestion::Congestion;

/// When a later segment arrives before one that was requested ahead, the earlier one is sent again
/// after half a round trip, but at least `OVERTAKEN_NS_MIN`. Before any round trip is known, the
/// wait is `OVERTAKEN_NS`.
const OVERTAKEN_NS_MIN: u64 = 10 * NS_PER_MS;
const OVERTAKEN_NS: u64 = 100 * NS_PER_MS;
/// Without retransmissions, a segment that was requested ahead is lost when the segment this many
/// numbers later arrives.
const OVERTAKEN_SEGMENTS: u64 = 3;

/// Round-trip times in nanoseconds, accurate to one part in eight.
pub(crate) type RttHistogram = Histogram<8, { bucket_count(8) }>;

pub(crate) struct Scoreboard {
    config: ScoreboardConfig,
    paths: Paths,
    outstanding: Outstanding,
    /// For a growing object.
    ahead: Option<AheadWindow>,
    hole_rules: HoleRules,
    /// The reader wants all segments in order.
    is_in_order: bool,
    /// Number of segments, once known.
    limit: Option<u64>,
    /// Round-trip times of chunks. Allocated with the first: many consumers only wait, and this is
    /// larger than the rest.
    histogram: Option<Box<RttHistogram>>,
    counters: ScoreboardCounters,
    /// What happened to segments, if a trace is wanted.
    trace: Vec<(u64, PathId, TraceKind)>,
}

/// State and counters.
impl Scoreboard {
    pub(crate) fn new(config: ScoreboardConfig, schedule: Box<dyn Schedule>) -> Self {
        Self {
            config,
            paths: Paths::new(schedule),
            outstanding: Outstanding::new(config.chunk_segments),
            ahead: None,
            hole_rules: HoleRules::Off,
            is_in_order: true,
            limit: None,
            histogram: None,
            counters: ScoreboardCounters::default(),
            trace: Vec::new(),
        }
    }

    pub(crate) fn counters(&self) -> &ScoreboardCounters {
        &self.counters
    }

    /// `None` before the first packet.
    pub(crate) fn histogram(&self) -> Option<&RttHistogram> {
        self.histogram.as_deref()
    }

    pub(crate) fn paths(&self) -> &Paths {
        &self.paths
    }

    pub(crate) fn outstanding(&self) -> &Outstanding {
        &self.outstanding
    }

    /// The segments to request of the chunk that begins with `first`.
    pub(crate) fn open_segments(&self, first: u64) -> impl Iterator<Item = u64> {
        let found = self.outstanding.find(first);
        found.into_iter().flat_map(|at| self.outstanding.open_segments(at))
    }

    pub(crate) fn is_done(&self) -> bool {
        self.outstanding.is_empty() && self.is_all_requested()
    }

    /// Whether a next segment could be sent if there were one.
    pub(crate) fn wants_more(&self, now: Instant) -> bool {
        self.is_all_requested()
            && self.outstanding.has_room()
            && self.paths.next_departure().is_some_and(|at| at <= now)
    }

    fn is_all_requested(&self) -> bool {
        self.limit.is_some_and(|limit| self.outstanding.next_index() >= limit)
    }

    /// Whether the reader wants all segments in order.
    pub(crate) fn is_in_order(&self) -> bool {
        self.is_in_order
    }

    /// Whether no packet has arrived on any path since a timeout.
    pub(crate) fn is_unresponsive(&self) -> bool {
        self.paths.are_unresponsive()
    }

    /// Since when packets have been due and none has arrived on any path. `None` while a path is
    /// responsive.
    pub(crate) fn unresponsive_since(&self) -> Option<Instant> {
        let since = self.paths.in_use().iter().filter_map(Path::unresponsive_since).max();
        since.filter(|_| self.is_unresponsive())
    }

    /// When [`Scoreboard::detect_losses`] or [`Scoreboard::next_to_send`] has work, if no packet
    /// arrives earlier.
    pub(crate) fn next_wakeup(&self) -> Option<Instant> {
        // Of each path, only the oldest chunk in flight counts: no younger one is lost before it.
        let decided = self.paths.all().iter().filter_map(|path| {
            path.sent.iter().find_map(|sent| {
                let at = self.outstanding.find_in_flight(sent.index, path.id, sent.order)?;
                let sent_at = self.outstanding.get(at).sent_at;
                Some(path.detection_at(sent.order, sent_at, self.config.lifetime_ns))
            })
        });
        let resend = self.outstanding.first_resend().and_then(|(at, index)| {
            if self.is_ahead(index) {
                return Some(at);
            }
            Some(at.max(self.paths.departure(SendKind::Resend)?))
        });
        let ahead = self.outstanding.first_ahead_end().map(|(end, _)| end);
        decided.chain(resend).chain(ahead).chain(self.paths.paced_departure()).min()
    }

    /// What happened since the last call. The caller drains it.
    pub(crate) fn trace(&mut self) -> &mut Vec<(u64, PathId, TraceKind)> {
        &mut self.trace
    }

    fn record_trace(&mut self, index: u64, path: PathId, kind: TraceKind) {
        if self.config.trace {
            self.trace.push((index, path, kind));
        }
    }

    /// Adds a path whose controller has no name.
    #[cfg(test)]
    pub(crate) fn push_path(&mut self, path: Path) {
        self.paths.add(path);
    }

    /// Checks the counters against the chunks.
    pub(crate) fn assert_consistent(&self) {
        self.outstanding.assert_consistent(&self.paths);
    }
}

/// Paths and limits.
impl Scoreboard {
    /// Adds a path, optionally with its own initial window. Returns false if it exists.
    pub(crate) fn add_path(&mut self, id: PathId, initial_window: Option<u32>) -> bool {
        let is_new = self.paths.get(id).is_none();
        if is_new {
            let ScoreboardConfig { rtt, controller, constants, mut window, .. } = self.config;
            window.initial = initial_window.or(window.initial);
            let ScoreboardConfig { decrease_interval_ns, waits_for_lifetime, sends_once, .. } =
                self.config;
            let path = Path::new(id, rtt, controller.make(&constants, window));
            self.paths.add(path.with_rules(decrease_interval_ns, waits_for_lifetime, sends_once));
        }
        is_new
    }

    /// Removes a path. Its chunks in flight are sent again, which is no sign of congestion.
    pub(crate) fn remove_path(&mut self, id: PathId, now: Instant) {
        self.paths.remove(id);
        self.outstanding.path_removed(id, now);
    }

    /// Sets a round-trip time measured before the first segment was sent.
    pub(crate) fn set_first_rtt(&mut self, path: Option<PathId>, rtt_ns: u64) {
        if let Some(path) = path.and_then(|path| self.paths.get_mut(path)) {
            path.rtt.sample(rtt_ns, 1);
        }
    }

    /// Sets which segments the router of a path holds.
    pub(crate) fn set_holdings(&mut self, id: PathId, held: Vec<SegmentRange>) {
        self.paths.set_holdings(id, held);
    }

    /// Makes the next new chunk, which begins with this segment, take a path whose router holds it.
    pub(crate) fn prefer_holders(&mut self, segment: Option<u64>) {
        self.paths.prefer_holders(segment);
    }

    /// Sets whether the reader wants all segments in order. If so, early ones use its buffer.
    pub(crate) fn set_in_order(&mut self, is_in_order: bool) {
        self.is_in_order = is_in_order;
    }

    pub(crate) fn set_hole_rules(&mut self, rules: HoleRules) {
        self.hole_rules = rules;
    }

    /// The object grows: no segment from `horizon` on is known to exist. At most `segments_max` of
    /// them are requested at a time. Chunks must have one segment.
    pub(crate) fn set_horizon(&mut self, horizon: u64, segments_max: u32) {
        self.ahead = Some(AheadWindow::new(horizon, segments_max));
    }

    /// Starts at `index`: earlier segments are not wanted.
    pub(crate) fn start_at(&mut self, index: u64) {
        self.outstanding.start_at(index);
    }

    /// Sets the number of segments, if known. Beyond it, the scoreboard only remembers which
    /// segments were answered, because a forged segment may have set the limit too low.
    pub(crate) fn set_limit(&mut self, segments: Option<u64>) {
        self.limit = segments;
        if let Some(segments) = segments {
            self.outstanding.truncate(segments, &mut self.paths);
        }
    }

    /// Cancels a segment: it is no longer wanted.
    pub(crate) fn cancel(&mut self, index: u64) {
        self.outstanding.cancel(index, &mut self.paths);
    }

    /// Cancels all requested segments without an answer, and returns them.
    pub(crate) fn cancel_all(&mut self) -> Vec<u64> {
        self.outstanding.cancel_all(&mut self.paths)
    }

    /// See [`Outstanding::skip_to`].
    pub(crate) fn skip_to(&mut self, index: u64) -> Vec<u64> {
        self.outstanding.skip_to(index)
    }
}

/// Sending.
impl Scoreboard {
    /// The first segment of the next chunk to request, and the path that takes it. `None` if no
    /// path may send. `room` is how many new segments the caller can take: with 0, only chunks to
    /// be resent are returned. `is_needed` states whether a new segment is wanted. The caller
    /// requests the [`Scoreboard::open_segments`], then calls [`Scoreboard::on_sent`].
    pub(crate) fn next_to_send(
        &mut self,
        now: Instant,
        room: u32,
        is_needed: impl FnMut(u64) -> bool,
    ) -> Option<(u64, PathId)> {
        for path in self.paths.all_mut() {
            path.update_window_limited(room > 0, now);
        }
        // A resend comes first and needs no room, because its segments were counted when they were
        // first requested. The reader may be waiting for exactly this chunk to free its buffer.
        let resend = self.outstanding.first_resend().filter(|&(at, _)| at <= now);
        let resend = resend.map(|(_, index)| index);
        if resend.is_some() && self.paths.knows_holders() {
            // The router that holds the segment did not deliver it, so any path may take it.
            self.prefer_holders(None);
        }
        // Segments requested ahead use no window, so any working path will do.
        let index = resend.unwrap_or(self.outstanding.next_index());
        let ahead = self.ahead.as_ref().filter(|ahead| ahead.contains(index));
        let has_room = room > 0 && ahead.is_none_or(|ahead| index < ahead.end());
        let path = if ahead.is_some() {
            self.paths.set_unpaced();
            *self.paths.request_order().first()?
        } else {
            let chunk_segments = self.config.chunk_segments.max(1);
            let next = match resend {
                Some(_) => SendKind::Resend,
                // Room limits the choice of path only for an in-order reader: a chunk on a slow
                // path blocks its buffer.
                None if room > 0 && !self.is_in_order => SendKind::New { room_chunks: u32::MAX },
                None => SendKind::New { room_chunks: room.div_ceil(chunk_segments) },
            };
            self.paths.choose(next, now)?
        };
        if let Some(first) = resend {
            self.outstanding.take_resend();
            return Some((first, path));
        }
        if !has_room {
            return None;
        }
        let limit = self.limit.unwrap_or(u64::MAX);
        let first = self.outstanding.push_next(path, now, limit, is_needed)?;
        Some((first, path))
    }

    /// The Interests of the chunk that begins with `first`, from [`Scoreboard::next_to_send`],
    /// leave on `path` now.
    pub(crate) fn on_sent(&mut self, first: u64, path: PathId, nonce: u32, now: Instant) {
        let at = self.outstanding.find(first).expect("a chunk to send has a record");
        let is_ahead = self.is_ahead(first);
        let segments = self.outstanding.get(at).open_count;
        let taken = self.paths.get_mut(path).expect("the path was chosen");
        // A segment that does not exist yet is answered when the producer makes it. The wait says
        // nothing about the path, so the Interest uses no window and has no order.
        let order = match is_ahead {
            true => taken.count_sent_ahead(segments),
            false => taken.on_send(first, segments, now),
        };
        let ahead_until = is_ahead.then(|| now.plus_ns(self.config.lifetime_ns));
        self.outstanding.on_sent(at, ahead_until);
        let chunk = self.outstanding.get_mut(at);
        chunk.path = path;
        chunk.is_path_gone = false;
        chunk.sent_at = now;
        chunk.send_order = order;
        chunk.nonce = nonce;
        chunk.sends += 1;
        let is_resend = chunk.sends > 1;
        self.counters.resent += if is_resend { u64::from(segments) } else { 0 };
        self.counters.sent += u64::from(segments);
        self.counters.in_flight_max = self.counters.in_flight_max.max(self.outstanding.in_flight());
        if self.config.trace {
            let kind = TraceKind::Sent { is_resend };
            self.trace.extend(self.outstanding.open_segments(at).map(|index| (index, path, kind)));
        }
    }

    fn is_ahead(&self, index: u64) -> bool {
        self.ahead.as_ref().is_some_and(|ahead| ahead.contains(index))
    }

    /// A segment, requested again outside the window, left on `path`.
    pub(crate) fn note_sent_again(&mut self, index: u64, path: PathId) {
        self.record_trace(index, path, TraceKind::Sent { is_resend: true });
    }
}

/// Answers.
impl Scoreboard {
    /// Data for `index` arrived. Returns whether it was requested and had not been answered.
    pub(crate) fn on_answer(&mut self, index: u64, answer: &Answer) -> bool {
        let found = self.outstanding.find(index);
        // A chunk can have a record before it is first sent.
        let found = found.filter(|&at| self.outstanding.get(at).sends > 0);
        let Some(at) = found.filter(|&at| self.outstanding.close(at, index)) else {
            self.counters.unwanted += 1;
            return false;
        };
        let chunk = self.outstanding.get_mut(at);
        chunk.packets += 1;
        chunk.marked_packets += u32::from(answer.mark.is_set());
        chunk.mark = chunk.mark.with(answer.mark);
        chunk.bytes += answer.packet_bytes;
        let chunk = *chunk;
        let is_ahead = matches!(chunk.state, ChunkState::Ahead(_));
        // Requests ahead prove nothing about the path: the segment may have waited at the producer.
        if let Some(path) = self.paths.get_mut(answer.path).filter(|_| !is_ahead) {
            path.on_packet(answer.now);
        }
        if is_ahead {
            // The wait includes time at the producer, so it is no round trip of the path.
            self.finish_chunk(at);
            self.on_ahead_answered(&chunk, answer.now);
        } else if chunk.open_count == 0 {
            self.on_chunk_complete(at, &chunk, answer);
        // The remaining segments may all be refused now.
        } else if chunk.nacked_count > 0 {
            self.on_segment_refused(at, answer.now);
        }
        let rtt_ns = answer.now.ns_since(chunk.sent_at);
        let is_marked = answer.mark.is_set();
        self.record_trace(index, chunk.path, TraceKind::Answered { rtt_ns, is_marked });
        // An answer shows that the segment exists, and all before it.
        self.on_segment_exists(index, answer.now);
        true
    }

    /// The packet of `answer` completes a chunk.
    fn on_chunk_complete(&mut self, at: usize, chunk: &Chunk, answer: &Answer) {
        // An answer from another path belongs to an earlier sending.
        let path = (chunk.path == answer.path && !chunk.is_path_gone).then_some(chunk.path);
        let Self { paths, counters, histogram, .. } = self;
        let timed = path.and_then(|path| paths.get_mut(path));
        let rtt_ns = timed.and_then(|path| path.measure_answer(chunk, answer, counters));
        if let Some(rtt_ns) = rtt_ns {
            histogram.get_or_insert_default().record(rtt_ns);
        }
        self.finish_chunk(at);
        if let Some(path) = path.and_then(|path| self.paths.get_mut(path)) {
            path.on_chunk_answered(chunk, rtt_ns, answer, &mut self.counters);
        }
    }

    fn finish_chunk(&mut self, at: usize) {
        self.outstanding.finish(at, &mut self.paths);
        self.outstanding.pop_done();
    }

    /// A segment that was requested ahead arrived.
    fn on_ahead_answered(&mut self, chunk: &Chunk, now: Instant) {
        let rtt_ns = self.paths.get(chunk.path).and_then(|path| path.rtt.smoothed_ns());
        let next =
            self.outstanding.find(chunk.first_segment + 1).map(|at| self.outstanding.get(at));
        let next = next.filter(|next| matches!(next.state, ChunkState::Ahead(_)));
        let next_waited_ns = next.map(|next| now.ns_since(next.sent_at));
        let is_last = self.outstanding.ahead_count() == 0;
        if let Some(ahead) = &mut self.ahead {
            ahead.answered(rtt_ns, now.ns_since(chunk.sent_at), next_waited_ns, is_last);
        }
    }

    /// Segment `index` and all before it exist. The answers to earlier requests ahead are on their
    /// way or lost. These segments are sent again unless they arrive soon.
    pub(crate) fn on_segment_exists(&mut self, index: u64, now: Instant) {
        let Some(ahead) = self.ahead.as_mut().filter(|ahead| ahead.contains(index)) else { return };
        ahead.set_newest_segment(index);
        let mut is_overtaken = false;
        for at in 0..self.outstanding.len() {
            let &Chunk { state, first_segment: first, path, .. } = self.outstanding.get(at);
            if first > index {
                break;
            }
            if !matches!(state, ChunkState::Ahead(_)) {
                continue;
            }
            // Half a round trip: the answer may be on its way.
            if !self.config.sends_once {
                is_overtaken = true;
                let rtt_ns = self.paths.get(path).and_then(|path| path.rtt.smoothed_ns());
                let wait_ns = rtt_ns.map_or(OVERTAKEN_NS, |ns| (ns / 2).max(OVERTAKEN_NS_MIN));
                self.outstanding.resend_ahead(at, now.plus_ns(wait_ns));
            } else if first + OVERTAKEN_SEGMENTS <= index {
                is_overtaken = true;
                self.outstanding.fail(at, FailReason::Unanswered, &mut self.paths);
            }
        }
        self.outstanding.pop_done();
        if let Some(ahead) = self.ahead.as_mut().filter(|_| is_overtaken) {
            ahead.halve();
        }
    }

    /// Data for a segment that was requested outside the window arrived.
    pub(crate) fn note_answer(
        &mut self,
        index: u64,
        path: Option<PathId>,
        rtt_ns: u64,
        answer: &Answer,
    ) {
        if let Some(path) = path {
            let is_marked = answer.mark.is_set();
            self.record_trace(index, path, TraceKind::Answered { rtt_ns, is_marked });
        }
    }

    /// Data for a segment that was set aside arrived by this path.
    pub(crate) fn on_packet_outside_window(&mut self, path: PathId, now: Instant) {
        if let Some(path) = self.paths.get_mut(path) {
            path.on_packet_outside_window(now);
        }
    }

    /// A segment that was not requested in its turn is answered.
    pub(crate) fn answered_early(&mut self, index: u64) {
        self.outstanding.answered_early(index);
    }

    /// A Nack for `index` arrived. Returns whether it counts: only a Nack of the last sending does.
    pub(crate) fn on_nack(
        &mut self,
        index: u64,
        nonce: Option<u32>,
        reason: NackReason,
        now: Instant,
    ) -> Result<bool, FailedSegment> {
        let found = self.outstanding.find(index).filter(|_| self.outstanding.is_open(index));
        let Some(at) = found else { return Ok(false) };
        let chunk = self.outstanding.get(at);
        let is_ahead = matches!(chunk.state, ChunkState::Ahead(_));
        let is_out = chunk.is_in_flight() || is_ahead;
        // A Nack of an earlier sending changes nothing: a later one is in flight, or will be sent.
        if !is_out || nonce.is_some_and(|nonce| nonce != chunk.nonce) {
            return Ok(false);
        }
        let (path, order) = (chunk.path, chunk.send_order);
        if !self.outstanding.mark_refused(at, index) {
            return Ok(false);
        }
        self.counters.nacks += 1;
        self.record_trace(index, path, TraceKind::Nacked { reason });
        if is_ahead {
            self.on_ahead_refused(at, reason, now);
            return self.outstanding.take_failed().map_or(Ok(true), Err);
        }
        if let Some(path) = self.paths.get_mut(path) {
            path.on_nack();
            match reason {
                NackReason::Congestion => {
                    path.on_congestion(now, order, Congestion::Nack, &mut self.counters);
                }
                NackReason::Duplicate => {}
                _ => path.on_no_route(now),
            }
        }
        // There is no second attempt, so the segment fails at once.
        if self.config.sends_once {
            self.cancel(index);
            return Err(FailedSegment { index, reason: FailReason::from_nack(reason) });
        }
        self.outstanding.get_mut(at).nack_reason = reason;
        self.on_segment_refused(at, now);
        self.outstanding.take_failed().map_or(Ok(true), Err)
    }

    /// An Interest for a segment that does not exist yet was refused: the producer may be gone.
    fn on_ahead_refused(&mut self, at: usize, reason: NackReason, now: Instant) {
        let chunk = self.outstanding.get_mut(at);
        chunk.no_route_rounds += u32::from(reason != NackReason::Duplicate);
        let is_hopeless = reason != NackReason::Congestion && chunk.no_route_rounds > NO_ROUTE_MAX;
        let wait_ns = nack_wait_ns(chunk.no_route_rounds.saturating_sub(1));
        if is_hopeless {
            self.fail_chunk(at, FailReason::from_nack(reason));
        } else {
            self.outstanding.resend_ahead(at, now.plus_ns(wait_ns));
        }
    }

    /// If every open segment of a chunk was refused, sends the chunk again later, or fails it.
    fn on_segment_refused(&mut self, at: usize, now: Instant) {
        let (retries_max, no_routes_max) =
            (self.config.retries_max, self.active_hole_rules().no_routes_max());
        let in_use = self.paths.in_use();
        let paths = in_use.len().max(1) as u32;
        // A path that has not answered "no route" may still have one.
        let refuse_all = !in_use.iter().any(|path| path.no_route_until() == Instant::ZERO);
        let chunk = self.outstanding.get_mut(at);
        if !chunk.is_in_flight() || chunk.nacked_count < chunk.open_count {
            return;
        }
        let (tries, reason) = (chunk.sends, chunk.nack_reason);
        let (wait_ns, failed) = match reason {
            NackReason::Duplicate => (0, tries > retries_max),
            NackReason::Congestion => (nack_wait_ns(tries - 1), tries > retries_max),
            _ => {
                chunk.no_route_rounds += 1;
                // Another path may have a route, so only a full round of refusals makes the chunk
                // wait.
                let (round, rest) = (chunk.no_route_rounds / paths, chunk.no_route_rounds % paths);
                let wait_ns = if rest == 0 { nack_wait_ns(round - 1) } else { 0 };
                (wait_ns, refuse_all && chunk.no_route_rounds > no_routes_max * paths)
            }
        };
        if failed {
            self.fail_chunk(at, FailReason::from_nack(reason));
        } else {
            self.outstanding.resend(at, now.plus_ns(wait_ns), &mut self.paths);
        }
    }

    /// Stops requesting a chunk. [`Scoreboard::detect_losses`] reports its missing segments.
    fn fail_chunk(&mut self, at: usize, reason: FailReason) {
        self.outstanding.fail(at, reason, &mut self.paths);
        self.outstanding.pop_done();
    }

    /// The rules in force. Without a known end there is nothing to skip to.
    fn active_hole_rules(&self) -> HoleRules {
        if self.limit.is_some() { self.hole_rules } else { HoleRules::Off }
    }
}

/// Losses.
impl Scoreboard {
    /// Finds chunks that are lost or timed out, and queues them to be sent again. Returns at the
    /// first failed segment; the caller calls again.
    pub(crate) fn detect_losses(&mut self, now: Instant) -> Result<(), FailedSegment> {
        let timeouts = self.counters.timeouts;
        for at in 0..self.paths.all().len() {
            self.detect_path_losses(at, now);
        }
        if self.counters.timeouts > timeouts {
            self.fail_unresponsive(now);
        }
        if self.paths.in_use().len() > 1 {
            self.resend_from_timed_out_paths(now);
        }
        self.expire_ahead(now);
        self.outstanding.take_failed().map_or(Ok(()), Err)
    }

    fn detect_path_losses(&mut self, path_at: usize, now: Instant) {
        let ScoreboardConfig { lifetime_ns, sends_once, retries_max, .. } = self.config;
        let tries_max = self.active_hole_rules().tries_max(retries_max);
        while let Some(&sent) = self.paths.all()[path_at].sent.front() {
            let path = &mut self.paths.all_mut()[path_at];
            let id = path.id;
            let Some(at) = self.outstanding.find_in_flight(sent.index, id, sent.order) else {
                path.sent.pop_front();
                continue;
            };
            let chunk = *self.outstanding.get(at);
            let loss_state = path.detect_loss(now, sent.order, chunk.sent_at, lifetime_ns);
            let kind = match loss_state {
                LossState::Open => return,
                LossState::TimedOut => {
                    path.on_timeout(now, &chunk, &mut self.counters);
                    TraceKind::TimedOut
                }
                LossState::Lost => {
                    self.counters.lost += 1;
                    path.on_congestion(now, sent.order, Congestion::Loss, &mut self.counters);
                    TraceKind::Lost
                }
                LossState::ProbeTimeout => {
                    self.counters.lost += 1;
                    path.on_probe_timeout();
                    TraceKind::Lost
                }
            };
            let resend_at = match loss_state {
                LossState::TimedOut => now,
                _ => Path::resend_at(now, chunk.sent_at, chunk.sends),
            };
            path.sent.pop_front();
            // One trace event for the chunk, under its first missing segment.
            let first_open = self.outstanding.open_segments(at).next().unwrap_or(sent.index);
            self.record_trace(first_open, id, kind);
            // A Nack is an answer, so sendings that ended in one are not unanswered attempts.
            if chunk.sends.saturating_sub(chunk.no_route_rounds) > tries_max || sends_once {
                self.fail_chunk(at, FailReason::Unanswered);
                continue;
            }
            // A stall says nothing about reordering (see `path.rs`, false losses).
            self.outstanding.get_mut(at).is_presumed_lost |= loss_state == LossState::Lost;
            self.outstanding.resend(at, resend_at, &mut self.paths);
        }
    }

    /// After how many lifetimes without a packet on any path segments fail; `None`: never.
    ///
    /// While the end is unknown, one failed segment ends the fetch. Then the limit is the time that
    /// all attempts of one segment may take. Counting attempts does not bound this time: timeouts
    /// shrink the window to about two chunks, and all chunks that timed out take turns in it. With
    /// 150 of them, each is sent again only every 75 timeouts.
    fn silent_lifetimes(&self) -> Option<u64> {
        match self.limit {
            Some(_) => self.hole_rules.silent_lifetimes(),
            None if self.config.sends_once => None,
            None => Some(u64::from(self.config.retries_max) + 1),
        }
    }

    /// After a timeout: fails all chunks that wait to be resent, if no packet has arrived on any
    /// path for long enough. While the end is unknown, also those in flight: the error names the
    /// first segment.
    fn fail_unresponsive(&mut self, now: Instant) {
        let Some(lifetimes) = self.silent_lifetimes() else { return };
        let enough_ns = self.config.lifetime_ns.saturating_mul(lifetimes);
        if self.unresponsive_since().is_none_or(|since| now.ns_since(since) < enough_ns) {
            return;
        }
        for at in 0..self.outstanding.len() {
            let fails = match self.outstanding.get(at).state {
                ChunkState::AwaitsResend(_) => true,
                ChunkState::InFlight => self.limit.is_none(),
                ChunkState::Ahead(_) | ChunkState::Done => false,
            };
            if fails {
                self.outstanding.fail(at, FailReason::Unanswered, &mut self.paths);
            }
        }
        self.outstanding.pop_done();
    }

    /// When nothing new is left to request, chunks on timed-out paths are sent on another path. The
    /// end of the transfer must not wait for them.
    fn resend_from_timed_out_paths(&mut self, now: Instant) {
        let is_left = self.limit.is_none_or(|limit| self.outstanding.next_index() < limit);
        let has_other = self.paths.in_use().iter().any(|path| !path.is_failing());
        if !has_other || (is_left && self.outstanding.has_room()) {
            return;
        }
        for path_at in 0..self.paths.all().len() {
            while self.paths.all()[path_at].has_timed_out()
                && let Some(sent) = self.paths.all_mut()[path_at].sent.pop_front()
            {
                let id = self.paths.all()[path_at].id;
                if let Some(at) = self.outstanding.find_in_flight(sent.index, id, sent.order) {
                    self.outstanding.resend(at, now, &mut self.paths);
                }
            }
        }
    }

    /// Resends requests ahead whose lifetime has ended, and requests fewer ahead from now on.
    fn expire_ahead(&mut self, now: Instant) {
        let mut has_timed_out = false;
        while let Some((end, first)) = self.outstanding.first_ahead_end()
            && end <= now
        {
            let at = self.outstanding.find(first).expect("a chunk in flight has a record");
            if !self.is_ahead(first) {
                // The segment exists now, has not arrived, and is requested only once.
                self.outstanding.fail(at, FailReason::Unanswered, &mut self.paths);
                continue;
            }
            has_timed_out = true;
            // The Interest expired without a Nack, so the refusals before it no longer count.
            self.outstanding.get_mut(at).no_route_rounds = 0;
            self.outstanding.resend_ahead(at, now);
        }
        self.outstanding.pop_done();
        if let Some(ahead) = self.ahead.as_mut().filter(|_| has_timed_out) {
            ahead.halve();
            // Interests past the new end are forgotten, and sent again when their turn comes.
            let end = ahead.end();
            self.outstanding.truncate(end, &mut self.paths);
        }
    }
}
