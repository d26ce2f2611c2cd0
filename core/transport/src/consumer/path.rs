//! One path: its round-trip time, its congestion controller, its Interests in flight, pacing, and
//! loss detection.
//!
//! # How a loss is detected
//!
//! A *chunk* is one Interest, or the Interests of several consecutive segments. Each sending of a
//! chunk gets the next number of its path, its *order*. The scoreboard asks [`Path::detect_loss`]
//! about the oldest chunk in flight. The answer is one of three kinds of loss, tested in this
//! order:
//!
//! 1. **Timeout.** The chunk is older than the retransmission timeout of RFC 6298 (smoothed round
//!    trip plus 8 deviations), or its lifetime ends. A controller may set a fixed timeout instead.
//! 2. **Overtaken.** A chunk sent at least three sendings later was answered (`REORDER_ORDERS`),
//!    *and* the chunk is older than the *reorder window*. That is the slowest recent round trip
//!    plus a quarter of it. Both conditions are needed: the paths of NDN reorder, because a near
//!    store answers before a far one.
//! 3. **Probe timeout.** No packet has arrived for twice the reorder window, at least 10 ms, since
//!    the chunk was sent. The oldest chunk is sent again, once, until a packet arrives. The end of
//!    an object needs this, because no later answers can overtake its last chunks (as in RFC 8985,
//!    7.2).
//!
//! The controller selects the rules with [`LossDetection`]:
//!
//! | rule                | overtaken, and older than      | probe | timeout counts from       |
//! |---------------------|--------------------------------|-------|---------------------------|
//! | `AfterSlowest`      | reorder window, at least 10 ms | no    | the sending               |
//! | `AfterSlowestEarly` | reorder window                 | yes   | the last packet, if later |
//! | `AfterThree`        | 10 ms                          | no    | the sending               |
//! | `Never`             | not used                       | no    | the sending               |
//!
//! 10 ms is how long routers suppress a retransmission. A lost chunk is sent again no earlier than
//! that after its last sending, and each further loss doubles the wait ([`Path::resend_at`]). A
//! timed-out chunk is sent again at once.
//!
//! **False losses.** The answer of an overtaken chunk may arrive after all. Then the margin of the
//! reorder window doubles, from 1/4 up to 8 round trips ([`Path::measure_answer`]). A probe timeout
//! does not count, because a path that stalls has not reordered. The answer arrives either before
//! the chunk is sent again, or sooner afterwards than half the least round trip. With path labels
//! of hICN, that is the least one of the answer's label: the shortest path may be many times
//! shorter.
//!
//! **Congestion.** An overtaken chunk makes the controller slow down, at most once a round trip.
//! A probe timeout does not: if more is lost, the answer to the probe shows it. A timeout doubles
//! the RFC 6298 timeout, and calls `on_timeout` unless it is the single trial of a path that had
//! timed out before.
//!
//! Example, `AfterSlowest`: ten chunks leave at 0 ms. Chunks 1 to 9 are answered at 100, 101, ...,
//! 108 ms, chunk 0 is not. At 102 ms the answer to chunk 3 makes chunk 0 overtaken. The slowest
//! round trip is 108 ms, and the reorder window 135 ms. So chunk 0 is lost at 135 ms, and is sent
//! again at once. Its timeout would have come much later.
//!
//! It must never find a loss by the number of answers alone, except with the rule `AfterThree`. It
//! must never let a probe timeout widen the margin of the reorder window.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use weir_base::{Instant, NS_PER_MS, NS_PER_S, RttConfig, RttEstimator};
use weir_store::SegmentRange;
use weir_wire::{CongestionMark, PACKET_SIZE_MAX};

use super::chunk::{Chunk, ScoreboardCounters, nack_wait_ns};
use super::labels::{LabelStats, Labels};
use super::stats::PathStats;
use crate::PathId;
use crate::congestion::{
    Allowance, Congestion, CongestionControl, LossDetection, Marks, Round, Sample, Timeout,
};

/// A chunk is overtaken once a chunk sent this many sendings later was answered (RFC 9002,
/// kPacketThreshold).
const REORDER_ORDERS: u64 = 3;
/// The margin of the reorder window, in quarters of the slowest round trip: 1.25 round trips at
/// first (RFC 9002 has 1.125 smoothed ones). Each false loss doubles the margin.
const REORDER_QUARTERS: u64 = 1;
/// At most nine round trips.
const REORDER_QUARTERS_MAX: u64 = 32;
/// The slowest round trip is kept for at least one span, and at most two. A span lasts 8 slowest
/// round trips, but at least one second and at most four unless the round trip is longer. With a
/// longer memory one answer that was delayed for seconds would delay loss detection for a minute.
const SLOWEST_SPAN_ROUND_TRIPS: u64 = 8;
const SLOWEST_SPAN_MIN_NS: u64 = NS_PER_S;
const SLOWEST_SPAN_MAX_NS: u64 = 4 * NS_PER_S;
/// Routers suppress a retransmission that arrives within this time of the last one. The time
/// doubles with each retransmission, up to 250 ms (NFD best-route, retx-suppression-initial).
const RESEND_AFTER_NS: u64 = 10 * NS_PER_MS;
const RESEND_DOUBLINGS_MAX: u32 = 5;
/// The probe timeout, in reorder windows (RFC 8985, 7.2, has two smoothed round trips).
const PROBE_ROUND_TRIPS: u64 = 2;
/// How late a driver may call without losing throughput to pacing.
const PACE_LATE_NS: u64 = 2 * NS_PER_MS;
/// Each answered chunk moves the mean packet size by the difference divided by this.
const SIZE_MEAN_DIVISOR: i64 = 16;

/// One sending of a chunk.
#[derive(Copy, Clone, Debug)]
pub(crate) struct SentChunk {
    pub(crate) index: u64,
    pub(crate) order: u64,
}

pub(crate) struct Path {
    pub(crate) id: PathId,
    pub(crate) rtt: RttEstimator,
    control: Box<dyn CongestionControl>,
    in_flight: u32,
    /// In sending order. Entries of chunks that were answered or sent again are skipped.
    pub(crate) sent: VecDeque<SentChunk>,
    /// The segments that its router reported to hold: ascending, with gaps.
    holdings: Vec<SegmentRange>,
    /// The router of this path does not hold the next segment, but that of another path does.
    is_passed_over: bool,
    next_order: u64,
    /// One past the latest order that was answered.
    answered_order_end: u64,
    /// A signal about an order before this one belongs to the last decrease.
    recovery_order: u64,
    /// If set, it replaces `recovery_order`: a signal within this time after a decrease belongs to
    /// that decrease.
    decrease_interval_ns: Option<u64>,
    decreased_at: Option<Instant>,
    /// An Interest is lost only when its lifetime ends.
    waits_for_lifetime: bool,
    /// A segment is sent only once, so a loss must be certain.
    sends_once: bool,
    /// When the latest packet arrived, and whether the probe timeout was used since then.
    last_packet_at: Option<Instant>,
    is_probe_spent: bool,
    reorder_margin_quarters: u64,
    slowest: SlowestRtt,
    window_limited: bool,
    /// Interests found lost so far, without false losses.
    lost: u64,
    /// How long the latest timed-out chunk had been in flight, and when it timed out. `None` once a
    /// chunk completes.
    timed_out_wait_ns: Option<u64>,
    timed_out_at: Instant,
    /// When the path became unresponsive: its latest packet before the timeout, or the sending of
    /// the chunk that timed out first, if that was later. An idle path is not unresponsive.
    unresponsive_since: Instant,
    /// "No route" Nacks since the last answer, and when the path may be tried again.
    no_route_nacks: u32,
    no_route_until: Instant,
    stats: PathStats,
    /// `None` before the first Data with a label: most paths have none.
    labels: Option<Box<Labels>>,
    round: Round,
    /// An answer to this order or a later one begins the next round.
    round_end: u64,
    /// When pacing lets the next Interest leave.
    paced_until: Instant,
    /// Mean bytes of an arriving packet.
    packet_bytes: i64,
}

impl Path {
    pub(crate) fn new(id: PathId, rtt: RttConfig, control: Box<dyn CongestionControl>) -> Self {
        Self {
            id,
            rtt: RttEstimator::new(rtt),
            control,
            in_flight: 0,
            sent: VecDeque::new(),
            holdings: Vec::new(),
            is_passed_over: false,
            next_order: 0,
            answered_order_end: 0,
            recovery_order: 0,
            decrease_interval_ns: None,
            decreased_at: None,
            waits_for_lifetime: false,
            sends_once: false,
            last_packet_at: None,
            is_probe_spent: false,
            reorder_margin_quarters: REORDER_QUARTERS,
            slowest: SlowestRtt::default(),
            window_limited: false,
            lost: 0,
            timed_out_wait_ns: None,
            timed_out_at: Instant::ZERO,
            unresponsive_since: Instant::ZERO,
            no_route_nacks: 0,
            no_route_until: Instant::ZERO,
            stats: PathStats::default(),
            labels: None,
            round: Round::default(),
            round_end: 0,
            paced_until: Instant::ZERO,
            packet_bytes: PACKET_SIZE_MAX as i64,
        }
    }

    /// Sets options of [`ConsumerConfig`](crate::ConsumerConfig).
    pub(crate) fn with_rules(
        self,
        decrease_interval_ns: Option<u64>,
        waits_for_lifetime: bool,
        sends_once: bool,
    ) -> Self {
        Self { decrease_interval_ns, waits_for_lifetime, sends_once, ..self }
    }

    pub(crate) fn allowance(&self) -> Allowance {
        self.control.allowance()
    }

    pub(crate) fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Whether a chunk has timed out and none has completed since. If so, recently sent chunks are
    /// probably lost too.
    pub(crate) fn has_timed_out(&self) -> bool {
        self.timed_out_wait_ns.is_some()
    }

    /// Whether not even one packet has arrived since the timeout.
    pub(crate) fn is_unresponsive(&self) -> bool {
        self.has_timed_out() && self.last_packet_at.is_none_or(|at| at < self.timed_out_at)
    }

    /// Since when a packet has been due and none has arrived. `None` while the path is responsive.
    pub(crate) fn unresponsive_since(&self) -> Option<Instant> {
        self.is_unresponsive().then_some(self.unresponsive_since)
    }

    /// Whether the next Interest will probably be lost, or refused because there is no route.
    pub(crate) fn is_failing(&self) -> bool {
        self.has_timed_out() || self.no_route_nacks > 0
    }

    /// When the path may be tried again after its router answered that it has no route.
    pub(crate) fn no_route_until(&self) -> Instant {
        if self.no_route_nacks > 0 { self.no_route_until } else { Instant::ZERO }
    }

    /// Counters so far.
    pub(crate) fn stats(&self) -> PathStats {
        PathStats { rtt_smoothed_ns: self.rtt.smoothed_ns(), ..self.stats }
    }

    pub(crate) fn labels(&self) -> &[LabelStats] {
        self.labels.as_ref().map_or(&[], |labels| labels.all())
    }

    /// The least round trip of answers with this label, if labels are usable.
    fn label_rtt_min_ns(&self, label: Option<u8>) -> Option<u64> {
        self.labels.as_ref()?.rtt_min_ns(label?)
    }

    /// A chunk is lost: counts it for a label.
    fn note_loss(&mut self) {
        self.lost += 1;
        if let Some(labels) = &mut self.labels {
            labels.on_loss();
        }
    }

    /// Counts a Nack.
    pub(crate) fn on_nack(&mut self) {
        self.stats.nacks += 1;
    }

    /// The router has no route: the path rests, longer each time.
    pub(crate) fn on_no_route(&mut self, now: Instant) {
        if now >= self.no_route_until() {
            self.no_route_until = now.plus_ns(nack_wait_ns(self.no_route_nacks));
            self.no_route_nacks += 1;
        }
    }

    /// Nanoseconds until an answer, or until its absence is known. 0 before the first, so that a
    /// new path is tried at once.
    pub(crate) fn expected_answer_ns(&self) -> u64 {
        self.timed_out_wait_ns.or(self.rtt.smoothed_ns()).unwrap_or(0)
    }

    /// Sets what its router holds.
    pub(crate) fn set_holdings(&mut self, held: Vec<SegmentRange>) {
        self.holdings = held;
    }

    /// Whether its router reported to hold a segment.
    pub(crate) fn holds(&self, segment: u64) -> bool {
        let after = self.holdings.partition_point(|range| range.first <= segment);
        after > 0 && self.holdings[after - 1].contains(segment)
    }

    /// Whether only routers of other paths hold the next segment.
    pub(crate) fn is_passed_over(&self) -> bool {
        self.is_passed_over
    }

    pub(crate) fn set_passed_over(&mut self, is_passed_over: bool) {
        self.is_passed_over = is_passed_over;
    }

    /// Whether the window has room for another Interest on this path.
    pub(crate) fn window_has_room(&self) -> bool {
        !self.is_passed_over && f64::from(self.in_flight) + 1.0 <= self.control.allowance().window
    }

    /// Whether an Interest may leave now.
    pub(crate) fn may_send(&self, now: Instant) -> bool {
        self.paced_until <= now && self.window_has_room()
    }

    /// When pacing lets an Interest leave.
    pub(crate) fn paced_until(&self) -> Instant {
        self.paced_until
    }

    /// Records whether the window or the pace limits a consumer that has more to send.
    pub(crate) fn update_window_limited(&mut self, has_more: bool, now: Instant) {
        self.window_limited = has_more && !self.is_passed_over && !self.may_send(now);
        if !has_more || !self.window_has_room() {
            // Pacing did not delay anything in this time, so the time earns no credit.
            self.paced_until = self.paced_until.max(now);
        }
    }

    /// Sends the `segments` open Interests of the chunk that begins with `index`. Returns their
    /// order.
    pub(crate) fn on_send(&mut self, index: u64, segments: u32, now: Instant) -> u64 {
        debug_assert!(self.window_has_room());
        let order = self.next_order;
        self.next_order += 1;
        self.in_flight += 1;
        self.stats.interests += u64::from(segments);
        self.sent.push_back(SentChunk { index, order });
        if let Some(pacing_bps) = self.control.allowance().pacing_bps {
            let bits = 8 * u64::from(segments) * self.packet_bytes.unsigned_abs();
            let gap_ns = bits.saturating_mul(NS_PER_S) / pacing_bps.max(1);
            // Unused time in the past earns no credit, except for the delay of a coarse timer.
            let late = Instant::from_ns(now.as_ns().saturating_sub(PACE_LATE_NS));
            self.paced_until = self.paced_until.max(late).plus_ns(gap_ns);
        }
        order
    }

    /// Counts Interests for `segments` that do not exist yet. They need no window and have no
    /// order.
    pub(crate) fn count_sent_ahead(&mut self, segments: u32) -> u64 {
        self.stats.interests += u64::from(segments);
        0
    }

    /// A chunk is no longer in flight: answered, lost or cancelled.
    pub(crate) fn remove_in_flight(&mut self) {
        self.in_flight -= 1;
    }

    /// A packet of a chunk of this path arrived.
    pub(crate) fn on_packet(&mut self, now: Instant) {
        (self.last_packet_at, self.is_probe_spent) = (Some(now), false);
    }

    /// A packet requested outside the window arrived: the path works.
    pub(crate) fn on_packet_outside_window(&mut self, now: Instant) {
        self.on_packet(now);
        (self.timed_out_wait_ns, self.no_route_nacks) = (None, 0);
    }

    /// `chunk` is complete and was last sent on this path. Returns its round-trip time, unless
    /// several sendings make it ambiguous. Recognizes false losses. Called before a chunk in flight
    /// is subtracted from `in_flight`.
    pub(crate) fn measure_answer(
        &mut self,
        chunk: &Chunk,
        &Answer { now, label, .. }: &Answer,
        counters: &mut ScoreboardCounters,
    ) -> Option<u64> {
        self.timed_out_wait_ns = None;
        self.no_route_nacks = 0;
        let elapsed_ns = now.ns_since(chunk.sent_at);
        let is_waiting = !chunk.is_in_flight();
        let least_ns = self.label_rtt_min_ns(label).or(self.rtt.min_ns());
        // A false loss: the presumably lost sending was answered. Its answer came before the
        // resend, or sooner after the resend than this path can answer.
        if chunk.is_presumed_lost
            && (is_waiting || least_ns.is_some_and(|least_ns| elapsed_ns < least_ns / 2))
        {
            counters.false_losses += 1;
            self.lost = self.lost.saturating_sub(1);
            self.reorder_margin_quarters =
                (self.reorder_margin_quarters * 2).min(REORDER_QUARTERS_MAX);
        }
        if is_waiting {
            return None;
        }
        // The latest sending was answered, so earlier sendings may now count as overtaken.
        self.answered_order_end = self.answered_order_end.max(chunk.send_order + 1);
        // Karn's algorithm: it is unknown which sending was answered.
        if chunk.sends > 1 {
            return None;
        }
        // The estimator needs to know how many samples arrive per round trip, to weight each.
        self.rtt.sample(elapsed_ns, (self.in_flight / 2).max(1));
        self.slowest.sample(now, elapsed_ns);
        Some(elapsed_ns)
    }

    /// Reports a complete chunk to the controller.
    pub(crate) fn on_chunk_answered(
        &mut self,
        chunk: &Chunk,
        rtt_ns: Option<u64>,
        &Answer { now, label, .. }: &Answer,
        counters: &mut ScoreboardCounters,
    ) {
        if let Some(label) = label {
            self.labels.get_or_insert_default().on_answer(label, rtt_ns);
        }
        let min_rtt_ns = self.rtt.min_ns().unwrap_or(0);
        let label_min_ns = self.label_rtt_min_ns(label);
        let &Chunk { send_order: order, packets, marked_packets, mark, bytes, .. } = chunk;
        let packet_bytes = (bytes / packets.max(1) as usize) as i64;
        self.packet_bytes += (packet_bytes - self.packet_bytes) / SIZE_MEAN_DIVISOR;
        // An answer to an Interest sent after the round began: the round is over.
        if order >= self.round_end {
            self.round = Round { number: self.round.number + 1, ..Round::default() };
            self.round_end = self.next_order;
        }
        self.round.answers += 1;
        self.round.marks += u32::from(mark.is_set());
        self.control.on_data(&Sample {
            now,
            rtt_ns,
            smoothed_rtt_ns: self.rtt.smoothed_ns().unwrap_or(0),
            min_rtt_ns,
            label: label_min_ns.and(label),
            detour_ns: label_min_ns.map_or(0, |label_ns| label_ns.saturating_sub(min_rtt_ns)),
            sent_order: order,
            next_order: self.next_order,
            window_limited: self.window_limited,
            lost: self.lost,
            mark,
            packets,
            marked_packets,
            bytes,
            round: self.round,
        });
        if mark.is_set() {
            counters.marks += u64::from(marked_packets);
            if self.control.rules().marks == Marks::Reported {
                self.on_congestion(now, order, Congestion::Mark, counters);
            }
        }
    }

    /// Reports congestion met by the chunk of this order, unless that chunk was sent before the
    /// last decrease.
    pub(crate) fn on_congestion(
        &mut self,
        now: Instant,
        order: u64,
        cause: Congestion,
        counters: &mut ScoreboardCounters,
    ) {
        if cause == Congestion::Loss {
            self.note_loss();
            self.stats.losses += 1;
        }
        if self.starts_decrease(now, order) {
            counters.decreases += 1;
            self.control.on_congestion(now, cause);
        }
    }

    pub(crate) fn on_timeout(
        &mut self,
        now: Instant,
        chunk: &Chunk,
        counters: &mut ScoreboardCounters,
    ) {
        let order = chunk.send_order;
        // A path that had timed out was tried with a single chunk, and that timed out too. This
        // says nothing new about congestion (RFC 5681, 3.1, keeps ssthresh in this case).
        let is_trial = self.has_timed_out() && self.in_flight == 1;
        counters.timeouts += 1;
        self.stats.timeouts += 1;
        self.note_loss();
        // Nothing of this chunk and nothing sent later was answered, so the path may be dead.
        if chunk.packets == 0 && order >= self.answered_order_end {
            if !self.is_unresponsive() {
                let heard_at = self.last_packet_at.unwrap_or(chunk.sent_at);
                self.unresponsive_since = heard_at.max(chunk.sent_at);
            }
            self.timed_out_wait_ns = Some(now.ns_since(chunk.sent_at));
            self.timed_out_at = now;
        }
        if self.starts_decrease(now, order) {
            counters.decreases += 1;
            if self.control.rules().timeout == Timeout::Estimated {
                self.rtt.back_off();
            }
            if !is_trial {
                self.control.on_timeout(now);
            }
        }
    }

    /// Whether a signal about this order begins a new decrease. False if the chunk was sent before
    /// the last decrease: the controller has already reacted to that congestion.
    fn starts_decrease(&mut self, now: Instant, order: u64) -> bool {
        let is_new = match (self.decrease_interval_ns, self.decreased_at) {
            (Some(interval_ns), Some(at)) => now >= at.plus_ns(interval_ns),
            (Some(_), None) => true,
            (None, _) => order >= self.recovery_order,
        };
        if is_new {
            self.recovery_order = self.next_order;
            self.decreased_at = Some(now);
        }
        is_new
    }

    /// The state of the oldest chunk in flight, of this order, sent at `sent_at`, with a lifetime
    /// of `max_ns`. The module's text explains the rules.
    pub(crate) fn detect_loss(
        &self,
        now: Instant,
        order: u64,
        sent_at: Instant,
        max_ns: u64,
    ) -> LossState {
        if now >= self.timeout_at(sent_at, max_ns) {
            LossState::TimedOut
        } else if self.is_overtaken(order) && now >= sent_at.plus_ns(self.reorder_window_ns()) {
            LossState::Lost
        } else if self.probe_timeout_at(sent_at).is_some_and(|at| now >= at) {
            LossState::ProbeTimeout
        } else {
            LossState::Open
        }
    }

    /// When [`Path::detect_loss`] will find a loss at the latest.
    pub(crate) fn detection_at(&self, order: u64, sent_at: Instant, max_ns: u64) -> Instant {
        let overtaken_at =
            self.is_overtaken(order).then(|| sent_at.plus_ns(self.reorder_window_ns()));
        let others = overtaken_at.into_iter().chain(self.probe_timeout_at(sent_at));
        others.fold(self.timeout_at(sent_at, max_ns), Instant::min)
    }

    /// When a chunk found lost at `now` may be sent again. It was last sent at `sent_at`, for the
    /// `sends`th time.
    pub(crate) fn resend_at(now: Instant, sent_at: Instant, sends: u32) -> Instant {
        let doublings = sends.saturating_sub(1).min(RESEND_DOUBLINGS_MAX);
        now.max(sent_at.plus_ns(RESEND_AFTER_NS << doublings))
    }

    /// When a chunk sent at `sent_at`, with a lifetime of `max_ns`, times out.
    fn timeout_at(&self, sent_at: Instant, max_ns: u64) -> Instant {
        let end = sent_at.plus_ns(max_ns);
        if self.waits_for_lifetime {
            return end;
        }
        let timeout = match self.control.rules().timeout {
            // A growing queue may delay answers beyond the timeout. Packets that still arrive show
            // that the path works, so each one restarts the timer (RFC 6298, 5.3).
            Timeout::Estimated if self.detects_early() => {
                self.last_packet_at.map_or(sent_at, |at| at.max(sent_at)).plus_ns(self.rtt.rto_ns())
            }
            Timeout::Estimated => sent_at.plus_ns(self.rtt.rto_ns()),
            Timeout::After(ns) => sent_at.plus_ns(ns.max(RESEND_AFTER_NS)),
        };
        timeout.min(end)
    }

    fn detects_early(&self) -> bool {
        self.control.rules().loss_detection == LossDetection::AfterSlowestEarly && !self.sends_once
    }

    fn is_overtaken(&self, order: u64) -> bool {
        !self.waits_for_lifetime
            && self.answered_order_end > order + REORDER_ORDERS
            && self.control.rules().loss_detection != LossDetection::Never
    }

    fn reorder_window_ns(&self) -> u64 {
        if self.control.rules().loss_detection == LossDetection::AfterThree {
            return RESEND_AFTER_NS;
        }
        let slowest_ns = self.slowest.ns().max(self.rtt.smoothed_ns().unwrap_or(0));
        let overtaken_ns = slowest_ns + slowest_ns / 4 * self.reorder_margin_quarters;
        if self.detects_early() { overtaken_ns } else { overtaken_ns.max(RESEND_AFTER_NS) }
    }

    /// When the oldest chunk, sent at `sent_at`, is sent again because no packet arrives. `None` if
    /// that has happened since the last packet.
    fn probe_timeout_at(&self, sent_at: Instant) -> Option<Instant> {
        let heard_at = self.last_packet_at.filter(|_| !self.is_probe_spent)?;
        (self.detects_early() && !self.waits_for_lifetime).then(|| {
            let silent_ns = (PROBE_ROUND_TRIPS * self.reorder_window_ns()).max(RESEND_AFTER_NS);
            heard_at.max(sent_at).plus_ns(silent_ns)
        })
    }

    /// The probe timeout expired. This alone does not mean congestion: if more is lost, the answer
    /// to the probe will show it.
    pub(crate) fn on_probe_timeout(&mut self) {
        self.is_probe_spent = true;
        self.note_loss();
        self.stats.losses += 1;
    }
}

/// The slowest recent round trip. A near store answers many times faster than a far one. If most
/// answers come from near stores, the smoothed round trip is too short for the far ones. Only the
/// slowest answer shows how long the next may take.
#[derive(Copy, Clone, Debug, Default)]
struct SlowestRtt {
    /// The maximum of the previous span of time, and of this one.
    spans_ns: [u64; 2],
    began: Instant,
}

impl SlowestRtt {
    fn sample(&mut self, now: Instant, rtt_ns: u64) {
        let slowest_ns = self.ns();
        let span_ns = (SLOWEST_SPAN_ROUND_TRIPS * slowest_ns)
            .min(SLOWEST_SPAN_MAX_NS.max(slowest_ns))
            .max(SLOWEST_SPAN_MIN_NS);
        if now >= self.began.plus_ns(span_ns) {
            self.spans_ns = [self.spans_ns[1], 0];
            self.began = now;
        }
        self.spans_ns[1] = self.spans_ns[1].max(rtt_ns);
    }

    /// 0 before the first sample.
    fn ns(&self) -> u64 {
        self.spans_ns[0].max(self.spans_ns[1])
    }
}

/// A Data that answers an Interest.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) now: Instant,
    pub(crate) path: PathId,
    pub(crate) mark: CongestionMark,
    pub(crate) packet_bytes: usize,
    /// The path label of hICN.
    pub(crate) label: Option<u8>,
}

/// The state of a chunk in flight.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum LossState {
    /// An answer may still arrive.
    Open,
    /// Later chunks were answered and this one was not.
    Lost,
    /// No packet has arrived for a while.
    ProbeTimeout,
    /// The retransmission timeout has passed.
    TimedOut,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The slowest round trip after `at_s` seconds: first one of `rtt_ns`, then one of 0.1 s every
    /// 0.1 s.
    fn remembered_ns(rtt_ns: u64, at_s: u64) -> u64 {
        let mut slowest = SlowestRtt::default();
        let mut now = Instant::from_ns(60 * NS_PER_S);
        slowest.sample(now, rtt_ns);
        for _ in 0..at_s * 10 {
            now = now.plus_ns(NS_PER_S / 10);
            slowest.sample(now, NS_PER_S / 10);
        }
        slowest.ns()
    }

    /// Regression: a round trip of 4 s was remembered for 30 to 60 s.
    #[test]
    fn forgets_slow_round_trip_after_seconds() {
        assert_eq!(remembered_ns(4 * NS_PER_S, 3), 4 * NS_PER_S);
        assert_eq!(remembered_ns(4 * NS_PER_S, 9), NS_PER_S / 10);
        assert_eq!(remembered_ns(20 * NS_PER_S, 19), 20 * NS_PER_S, "not before one like it");
        assert_eq!(remembered_ns(20 * NS_PER_S, 41), NS_PER_S / 10);
    }
}
