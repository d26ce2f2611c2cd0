//! Which Interests to send when: window, losses, timeouts, retries.
//!
//! The pipeline knows *units*, numbered from 0 in the order in which they are wanted; the fetcher
//! says what they are called. Its state is one slot for each unit between the first unanswered and
//! the last sent.

use alloc::boxed::Box;
use alloc::collections::{BTreeSet, VecDeque};

use weir_base::{Instant, NS_PER_MS, NS_PER_S, RttConfig, RttEstimator};
use weir_wire::NackReason;

use crate::congestion::{Congestion, CongestionControl, Sample};
use crate::histogram::Histogram;

/// An Interest may be lost once this many later ones were answered (RFC 9002, kPacketThreshold).
const REORDER_ORDERS: u64 = 3;
/// The time an Interest may be overtaken, in quarters of the smoothed round trip above one: 1.25 of
/// it at first (RFC 9002 has 1.125), more after a loss turned out to be none, for answers from
/// caches overtake a producer's.
const REORDER_QUARTERS: u64 = 1;
/// At most nine round trips.
const REORDER_QUARTERS_MAX: u64 = 32;
/// Routers suppress a retransmission that comes sooner (NFD best-route, retx-suppression-initial).
const RESEND_AFTER_NS: u64 = 10 * NS_PER_MS;
/// Waits after a Nack grow from the first to the second by factors of two.
const NACK_WAIT_NS: u64 = 100 * NS_PER_MS;
const NACK_WAIT_MAX_NS: u64 = NS_PER_S;
/// Nacks `NoRoute` to one unit before it is given up: 100 + 200 + 400 + 800 + 1000 ms, for a
/// producer or a route that is just coming up.
const NO_ROUTE_MAX: u32 = 5;
/// Slots at most: how far the last Interest may be ahead of the first unanswered one.
const SLOTS_MAX: usize = 1 << 16;

/// Limits of a pipeline.
#[derive(Copy, Clone, Debug)]
pub(crate) struct PipelineConfig {
    pub(crate) lifetime_ns: u64,
    pub(crate) retries_max: u32,
    pub(crate) rtt: RttConfig,
}

/// Why a unit is given up.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub(crate) enum GiveUp {
    /// Every try timed out or was lost.
    Unanswered,
    /// A router has no route.
    NoRoute,
    /// Another Nack, again and again.
    Nacked(NackReason),
}

/// A unit that cannot be had.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub(crate) struct Failed {
    pub(crate) unit: u64,
    pub(crate) reason: GiveUp,
}

/// What an answer was worth.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub(crate) enum Answered {
    /// The first for this unit.
    First,
    /// The unit had been answered before, or was never asked for.
    Unwanted,
}

/// Counters of a pipeline.
#[derive(Copy, Clone, Debug, Default)]
pub(crate) struct PipelineCounters {
    pub(crate) sent: u64,
    pub(crate) resent: u64,
    pub(crate) lost: u64,
    pub(crate) timeouts: u64,
    pub(crate) nacks: u64,
    pub(crate) marks: u64,
    pub(crate) decreases: u64,
    pub(crate) false_losses: u64,
    pub(crate) unwanted: u64,
    /// Most that were outstanding at one time.
    pub(crate) flying_max: u32,
}

#[derive(Copy, Clone, Eq, PartialEq, Debug)]
enum State {
    /// Sent, not answered.
    Flying,
    /// In the list of those to be sent again, under this time.
    Waiting(Instant),
    /// Answered or not needed.
    Done,
}

#[derive(Copy, Clone, Debug)]
struct Slot {
    state: State,
    sent_at: Instant,
    order: u64,
    nonce: u32,
    sends: u32,
    no_routes: u32,
    /// Sent again because later ones had been answered.
    is_presumed_lost: bool,
}

#[derive(Copy, Clone, Debug)]
struct Sent {
    unit: u64,
    order: u64,
}

/// See the module's text.
pub(crate) struct Pipeline {
    config: PipelineConfig,
    control: Box<dyn CongestionControl>,
    rtt: RttEstimator,
    histogram: Histogram,
    counters: PipelineCounters,
    slots: VecDeque<Slot>,
    /// Unit of the first slot.
    base: u64,
    /// Number of units, once known.
    limit: Option<u64>,
    /// In the order of sending; entries whose slot has moved on are skipped.
    sent: VecDeque<Sent>,
    again: BTreeSet<(Instant, u64)>,
    flying: u32,
    next_order: u64,
    /// The largest place in the order of sending that was answered, plus one.
    answered_order_end: u64,
    /// Signals about Interests sent before this place belong to the last decrease.
    recovery_order: u64,
    reorder_quarters: u64,
    window_limited: bool,
}

impl Pipeline {
    pub(crate) fn new(config: PipelineConfig, control: Box<dyn CongestionControl>) -> Self {
        Self {
            config,
            control,
            rtt: RttEstimator::new(config.rtt),
            histogram: Histogram::default(),
            counters: PipelineCounters::default(),
            slots: VecDeque::new(),
            base: 0,
            limit: None,
            sent: VecDeque::new(),
            again: BTreeSet::new(),
            flying: 0,
            next_order: 0,
            answered_order_end: 0,
            recovery_order: 0,
            reorder_quarters: REORDER_QUARTERS,
            window_limited: false,
        }
    }

    pub(crate) fn counters(&self) -> &PipelineCounters {
        &self.counters
    }

    pub(crate) fn rtt(&self) -> &RttEstimator {
        &self.rtt
    }

    pub(crate) fn histogram(&self) -> &Histogram {
        &self.histogram
    }

    pub(crate) fn window(&self) -> f64 {
        self.control.window()
    }

    pub(crate) fn flying(&self) -> u32 {
        self.flying
    }

    /// Units asked for and not answered: under way, or to be asked for again.
    pub(crate) fn unanswered(&self) -> u32 {
        self.flying.saturating_add(u32::try_from(self.again.len()).unwrap_or(u32::MAX))
    }

    /// A round-trip time measured before the first unit was sent.
    pub(crate) fn first_rtt(&mut self, rtt_ns: u64) {
        self.rtt.sample(rtt_ns, 1);
    }

    /// Says how many units there are; those beyond are forgotten.
    pub(crate) fn set_limit(&mut self, units: u64) {
        self.limit = Some(units);
        while self.base + self.slots.len() as u64 > units && !self.slots.is_empty() {
            let unit = self.base + self.slots.len() as u64 - 1;
            self.finish(unit);
            self.slots.pop_back();
        }
        self.shift();
    }

    /// Whether every unit has been answered.
    pub(crate) fn is_done(&self) -> bool {
        self.slots.is_empty() && self.limit.is_some_and(|limit| self.base >= limit)
    }

    /// The next unit to ask for, if the window has room and, for a unit that was not asked for
    /// before, the caller has, too. `is_needed` says of a unit seen for the first time whether it
    /// is wanted at all. The caller sends it and calls [`Pipeline::sent`].
    pub(crate) fn next_to_send(
        &mut self,
        now: Instant,
        has_room: bool,
        mut is_needed: impl FnMut(u64) -> bool,
    ) -> Option<u64> {
        self.window_limited = has_room && !self.window_has_room();
        if !self.window_has_room() {
            return None;
        }
        // What comes again was counted before; the caller's room may be waiting for just this.
        if let Some(&(at, unit)) = self.again.first()
            && at <= now
        {
            self.again.pop_first();
            return Some(unit);
        }
        if !has_room {
            return None;
        }
        loop {
            let unit = self.base + self.slots.len() as u64;
            if self.limit.is_some_and(|limit| unit >= limit) || self.slots.len() >= SLOTS_MAX {
                return None;
            }
            let state = if is_needed(unit) { State::Waiting(now) } else { State::Done };
            if state == State::Done && self.slots.is_empty() {
                self.base += 1;
                continue;
            }
            self.slots.push_back(Slot {
                state,
                sent_at: now,
                order: 0,
                nonce: 0,
                sends: 0,
                no_routes: 0,
                is_presumed_lost: false,
            });
            if state != State::Done {
                return Some(unit);
            }
        }
    }

    /// The Interest for `unit`, from [`Pipeline::next_to_send`], goes out now.
    pub(crate) fn sent(&mut self, unit: u64, nonce: u32, now: Instant) {
        let order = self.next_order;
        self.next_order += 1;
        let slot = self.slot_mut(unit).expect("a unit to be sent has a slot");
        debug_assert!(matches!(slot.state, State::Waiting(_)), "{slot:?}");
        slot.state = State::Flying;
        slot.sent_at = now;
        slot.order = order;
        slot.nonce = nonce;
        slot.sends += 1;
        if slot.sends > 1 {
            self.counters.resent += 1;
        }
        self.counters.sent += 1;
        self.flying += 1;
        self.counters.flying_max = self.counters.flying_max.max(self.flying);
        self.sent.push_back(Sent { unit, order });
    }

    /// Data for `unit` came, marked by a router or not.
    pub(crate) fn answered(&mut self, unit: u64, now: Instant, is_marked: bool) -> Answered {
        let slot = match self.slot_mut(unit) {
            Some(slot) if slot.sends > 0 && slot.state != State::Done => *slot,
            _ => {
                self.counters.unwanted += 1;
                return Answered::Unwanted;
            }
        };
        let elapsed_ns = now.ns_since(slot.sent_at);
        let is_waiting = matches!(slot.state, State::Waiting(_));
        if slot.is_presumed_lost
            && (is_waiting || self.rtt.min_ns().is_some_and(|min_ns| elapsed_ns < min_ns / 2))
        {
            self.counters.false_losses += 1;
            self.reorder_quarters = (self.reorder_quarters * 2).min(REORDER_QUARTERS_MAX);
        }
        let mut rtt_ns = None;
        if slot.sends == 1 && !is_waiting {
            self.rtt.sample(elapsed_ns, (self.flying / 2).max(1));
            self.histogram.record(elapsed_ns);
            rtt_ns = Some(elapsed_ns);
        }
        if !is_waiting {
            self.answered_order_end = self.answered_order_end.max(slot.order + 1);
        }
        self.finish(unit);
        self.shift();
        if is_marked {
            self.counters.marks += 1;
            self.decrease(now, slot.order, Congestion::Mark);
        } else {
            self.control.on_data(&Sample {
                now,
                rtt_ns,
                smoothed_rtt_ns: self.rtt.smoothed_ns().unwrap_or(0),
                min_rtt_ns: self.rtt.min_ns().unwrap_or(0),
                sent_order: slot.order,
                next_order: self.next_order,
                window_limited: self.window_limited,
            });
        }
        Answered::First
    }

    /// A Nack for `unit` came. It counts only if it answers the last Interest that was sent for it.
    pub(crate) fn nacked(
        &mut self,
        unit: u64,
        nonce: Option<u32>,
        reason: NackReason,
        now: Instant,
    ) -> Result<(), Failed> {
        let retries_max = self.config.retries_max;
        let Some(slot) = self.slot_mut(unit) else { return Ok(()) };
        if slot.state != State::Flying || nonce.is_some_and(|nonce| nonce != slot.nonce) {
            return Ok(());
        }
        let order = slot.order;
        let tries = slot.sends;
        let (wait_ns, failed) = match reason {
            NackReason::Duplicate => (0, tries > retries_max),
            NackReason::Congestion => (nack_wait_ns(tries - 1), tries > retries_max),
            _ => {
                slot.no_routes += 1;
                (nack_wait_ns(slot.no_routes - 1), slot.no_routes > NO_ROUTE_MAX)
            }
        };
        self.counters.nacks += 1;
        if failed {
            let reason = match reason {
                NackReason::NoRoute => GiveUp::NoRoute,
                other => GiveUp::Nacked(other),
            };
            return Err(Failed { unit, reason });
        }
        self.send_again(unit, now.plus_ns(wait_ns));
        if reason == NackReason::Congestion {
            self.decrease(now, order, Congestion::Nack);
        }
        Ok(())
    }

    /// Finds what is lost or timed out by now and queues it to be sent again.
    pub(crate) fn check(&mut self, now: Instant) -> Result<(), Failed> {
        while let Some(&Sent { unit, order }) = self.sent.front() {
            let Some(slot) = self.flying_slot(unit, order) else {
                self.sent.pop_front();
                continue;
            };
            let overdue_at = slot.sent_at.plus_ns(self.timeout_ns());
            let lost_at = slot.sent_at.plus_ns(self.overtaken_ns());
            let sends = slot.sends;
            if now >= overdue_at {
                self.counters.timeouts += 1;
                if order >= self.recovery_order {
                    self.recovery_order = self.next_order;
                    self.counters.decreases += 1;
                    self.rtt.back_off();
                    self.control.on_timeout(now);
                }
            } else if self.is_overtaken(order) && now >= lost_at {
                self.counters.lost += 1;
                self.slot_mut(unit).expect("it is flying").is_presumed_lost = true;
                self.decrease(now, order, Congestion::Loss);
            } else {
                break;
            }
            self.sent.pop_front();
            if sends > self.config.retries_max {
                return Err(Failed { unit, reason: GiveUp::Unanswered });
            }
            self.send_again(unit, now);
        }
        Ok(())
    }

    /// When [`Pipeline::check`] or [`Pipeline::next_to_send`] has something to do, if no packet
    /// comes before.
    pub(crate) fn next_wakeup(&self) -> Option<Instant> {
        let overdue = self.sent.iter().find_map(|sent| {
            let slot = self.flying_slot(sent.unit, sent.order)?;
            let wait_ns = if self.is_overtaken(sent.order) {
                self.overtaken_ns().min(self.timeout_ns())
            } else {
                self.timeout_ns()
            };
            Some(slot.sent_at.plus_ns(wait_ns))
        });
        let may_send = self.window_has_room();
        let again = self.again.first().map(|&(at, _)| at).filter(|_| may_send);
        match (overdue, again) {
            (Some(overdue), Some(again)) => Some(overdue.min(again)),
            (overdue, again) => overdue.or(again),
        }
    }

    fn window_has_room(&self) -> bool {
        f64::from(self.flying) + 1.0 <= self.control.window()
    }

    fn slot_mut(&mut self, unit: u64) -> Option<&mut Slot> {
        let index = usize::try_from(unit.checked_sub(self.base)?).ok()?;
        self.slots.get_mut(index)
    }

    fn flying_slot(&self, unit: u64, order: u64) -> Option<&Slot> {
        let index = usize::try_from(unit.checked_sub(self.base)?).ok()?;
        self.slots.get(index).filter(|slot| slot.state == State::Flying && slot.order == order)
    }

    fn timeout_ns(&self) -> u64 {
        self.rtt.rto_ns().min(self.config.lifetime_ns)
    }

    fn is_overtaken(&self, order: u64) -> bool {
        self.answered_order_end > order + REORDER_ORDERS
    }

    fn overtaken_ns(&self) -> u64 {
        let smoothed_ns = self.rtt.smoothed_ns().unwrap_or(0);
        (smoothed_ns + smoothed_ns / 4 * self.reorder_quarters).max(RESEND_AFTER_NS)
    }

    fn decrease(&mut self, now: Instant, order: u64, cause: Congestion) {
        if order < self.recovery_order {
            return;
        }
        self.recovery_order = self.next_order;
        self.counters.decreases += 1;
        self.control.on_congestion(now, cause);
    }

    fn send_again(&mut self, unit: u64, at: Instant) {
        let slot = self.slot_mut(unit).expect("it was sent");
        debug_assert_eq!(slot.state, State::Flying);
        slot.state = State::Waiting(at);
        self.flying -= 1;
        self.again.insert((at, unit));
    }

    fn finish(&mut self, unit: u64) {
        let Some(slot) = self.slot_mut(unit) else { return };
        match core::mem::replace(&mut slot.state, State::Done) {
            State::Flying => self.flying -= 1,
            State::Waiting(at) => {
                self.again.remove(&(at, unit));
            }
            State::Done => {}
        }
    }

    /// Forgets the leading slots that are done.
    fn shift(&mut self) {
        while self.slots.front().is_some_and(|slot| slot.state == State::Done) {
            self.slots.pop_front();
            self.base += 1;
        }
    }
}

fn nack_wait_ns(times: u32) -> u64 {
    (NACK_WAIT_NS << times.min(8)).min(NACK_WAIT_MAX_NS)
}
