//! What is wanted, asked on which path, lost, to be asked again, and done.
//!
//! The scoreboard knows units by their place in the order in which they are wanted, counted from 0;
//! [`super::naming`] says what they are called. Its state is one slot for each unit between the
//! first unanswered and the last asked for, whatever the number of paths.

use alloc::boxed::Box;
use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;

use weir_base::{Histogram, Instant, NS_PER_MS, NS_PER_S, RttConfig, bucket_count};
use weir_wire::NackReason;

use super::outbox::TraceKind;
use super::path::{Answer, Fate, Path};
use super::schedule::Schedule;
use super::slot::{Counters, Slot, State};
use crate::PathId;
use crate::congestion::{Congestion, Controller, WindowBounds};

/// Waits after a Nack grow from the first to the second by factors of two.
const NACK_WAIT_NS: u64 = 100 * NS_PER_MS;
const NACK_WAIT_MAX_NS: u64 = NS_PER_S;
/// Nacks `NoRoute` to one unit before it is given up: 100 + 200 + 400 + 800 + 1000 ms, for a
/// producer or a route that is just coming up.
const NO_ROUTE_MAX: u32 = 5;
/// Slots at most: how far the last Interest may be ahead of the first unanswered one.
const SLOTS_MAX: usize = 1 << 16;

/// Round-trip times in nanoseconds, to one part in eight.
pub(crate) type RttHistogram = Histogram<8, { bucket_count(8) }>;

/// Limits of a scoreboard.
#[derive(Copy, Clone, Debug)]
pub(crate) struct ScoreboardConfig {
    pub(crate) lifetime_ns: u64,
    pub(crate) retries_max: u32,
    /// A unit is asked for once; one that is lost or refused is given up.
    pub(crate) asks_once: bool,
    pub(crate) rtt: RttConfig,
    pub(crate) controller: Controller,
    pub(crate) window: WindowBounds,
    /// See [`ConsumerConfig::decrease_interval_ns`](crate::ConsumerConfig::decrease_interval_ns).
    pub(crate) decrease_interval_ns: Option<u64>,
    /// See [`ConsumerConfig::waits_for_lifetime`](crate::ConsumerConfig::waits_for_lifetime).
    pub(crate) waits_for_lifetime: bool,
    pub(crate) trace: bool,
}

/// Why a unit is given up.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub enum GiveUp {
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
    pub(crate) index: u64,
    pub(crate) reason: GiveUp,
}

/// See the module's text.
pub(crate) struct Scoreboard {
    config: ScoreboardConfig,
    schedule: Box<dyn Schedule>,
    paths: Vec<Path>,
    histogram: RttHistogram,
    counters: Counters,
    slots: VecDeque<Slot>,
    /// Place of the first slot's unit.
    base: u64,
    /// Units in all, once known.
    limit: Option<u64>,
    /// Units beyond the limit that were done before it was set.
    done_beyond: BTreeSet<u64>,
    again: BTreeSet<(Instant, u64)>,
    in_flight: u32,
    /// The pace alone kept the last Interest back.
    is_paced: bool,
    /// What happened to units, if that is wanted.
    trace: Vec<(u64, PathId, TraceKind)>,
}

impl Scoreboard {
    pub(crate) fn new(config: ScoreboardConfig, schedule: Box<dyn Schedule>) -> Self {
        Self {
            config,
            schedule,
            paths: Vec::new(),
            histogram: RttHistogram::default(),
            counters: Counters::default(),
            slots: VecDeque::new(),
            base: 0,
            limit: None,
            done_beyond: BTreeSet::new(),
            again: BTreeSet::new(),
            in_flight: 0,
            is_paced: false,
            trace: Vec::new(),
        }
    }

    pub(crate) fn counters(&self) -> &Counters {
        &self.counters
    }

    pub(crate) fn histogram(&self) -> &RttHistogram {
        &self.histogram
    }

    pub(crate) fn paths(&self) -> &[Path] {
        &self.paths
    }

    pub(crate) fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// What happened since the last call; the caller drains it.
    pub(crate) fn trace(&mut self) -> &mut Vec<(u64, PathId, TraceKind)> {
        &mut self.trace
    }

    /// Units asked for and not answered: under way, or to be asked for again.
    pub(crate) fn unanswered(&self) -> u32 {
        self.in_flight.saturating_add(u32::try_from(self.again.len()).unwrap_or(u32::MAX))
    }

    /// The unit that is asked for for the first time next.
    pub(crate) fn next_index(&self) -> u64 {
        self.base + self.slots.len() as u64
    }

    /// The first unit that is neither answered nor given up.
    pub(crate) fn first_open(&self) -> u64 {
        self.base
    }

    /// The path for what needs no window.
    pub(crate) fn first_path(&self) -> Option<PathId> {
        self.paths.first().map(|path| path.id)
    }

    /// A path is there; whether it was not before.
    pub(crate) fn add_path(&mut self, id: PathId) -> bool {
        let is_new = self.path_mut(id).is_none();
        if is_new {
            let ScoreboardConfig { rtt, controller, window, .. } = self.config;
            let ScoreboardConfig { decrease_interval_ns, waits_for_lifetime, .. } = self.config;
            let path = Path::new(id, rtt, controller.make(window));
            self.paths.push(path.with_rules(decrease_interval_ns, waits_for_lifetime));
        }
        is_new
    }

    /// A path is no more. What is in flight on it is asked for again, which is no sign of
    /// congestion.
    pub(crate) fn remove_path(&mut self, id: PathId, now: Instant) {
        self.paths.retain(|path| path.id != id);
        for (slot, index) in self.slots.iter_mut().zip(self.base..) {
            if slot.path != id {
                continue;
            }
            slot.is_path_gone = true;
            if slot.is_flying() {
                slot.state = State::Waiting(now);
                self.in_flight -= 1;
                self.again.insert((now, index));
            }
        }
    }

    /// A round-trip time measured before the first unit was sent.
    pub(crate) fn first_rtt(&mut self, path: Option<PathId>, rtt_ns: u64) {
        if let Some(path) = path.and_then(|path| self.path_mut(path)) {
            path.rtt.sample(rtt_ns, 1);
        }
    }

    /// Nothing before `index` is wanted.
    pub(crate) fn start_at(&mut self, index: u64) {
        debug_assert!(self.slots.is_empty());
        self.base = index;
    }

    /// Says how many units there are, if that is known. Of those beyond, only which are answered is
    /// remembered: a forged segment may have said so, and there may be more after all.
    pub(crate) fn set_limit(&mut self, units: Option<u64>) {
        self.limit = units;
        let Some(units) = units else { return };
        while self.next_index() > units
            && let Some(slot) = self.slots.back()
        {
            let index = self.next_index() - 1;
            if slot.state == State::Done {
                self.done_beyond.insert(index);
            }
            self.finish(index);
            self.slots.pop_back();
        }
        self.shift();
    }

    /// Whether every unit has been answered.
    pub(crate) fn is_done(&self) -> bool {
        self.slots.is_empty() && self.limit.is_some_and(|limit| self.base >= limit)
    }

    /// Whether the next unit could be sent, if there were more of them.
    pub(crate) fn wants_more(&self, now: Instant) -> bool {
        self.limit.is_some_and(|limit| self.next_index() >= limit)
            && self.slots.len() < SLOTS_MAX
            && self.schedule.departure(&self.paths).is_some_and(|at| at <= now)
    }

    /// The next unit to ask for and the path that takes it, if a path may send and, for a unit that
    /// was not asked for before, the caller has room. `is_needed` says of a unit seen for the first
    /// time whether it is wanted at all. The caller sends it and calls [`Scoreboard::sent`].
    pub(crate) fn next_to_send(
        &mut self,
        now: Instant,
        has_room: bool,
        mut is_needed: impl FnMut(u64) -> bool,
    ) -> Option<(u64, PathId)> {
        for path in &mut self.paths {
            path.note_limit(has_room);
        }
        let chosen = self.schedule.choose(&self.paths, now);
        self.is_paced = chosen.is_none() && self.schedule.departure(&self.paths).is_some();
        let path = &self.paths[chosen?];
        debug_assert!(path.may_send(now));
        let path = path.id;
        // What comes again was counted before; the caller's room may be waiting for just this.
        if let Some(&(at, index)) = self.again.first()
            && at <= now
        {
            self.again.pop_first();
            return Some((index, path));
        }
        if !has_room {
            return None;
        }
        loop {
            let index = self.next_index();
            if self.limit.is_some_and(|limit| index >= limit) || self.slots.len() >= SLOTS_MAX {
                return None;
            }
            let is_done = self.done_beyond.remove(&index) || !is_needed(index);
            let state = if is_done { State::Done } else { State::Waiting(now) };
            if state == State::Done && self.slots.is_empty() {
                self.base += 1;
                continue;
            }
            self.slots.push_back(Slot {
                state,
                path,
                is_path_gone: false,
                sent_at: now,
                order: 0,
                nonce: 0,
                sends: 0,
                no_routes: 0,
                is_presumed_lost: false,
            });
            if state != State::Done {
                return Some((index, path));
            }
        }
    }

    /// The Interest for `index`, from [`Scoreboard::next_to_send`], goes out on `path` now.
    pub(crate) fn sent(&mut self, index: u64, path: PathId, nonce: u32, now: Instant) {
        let order = self.path_mut(path).expect("the path was chosen").sent(index, now);
        let slot = self.slot_mut(index).expect("a unit to be sent has a slot");
        debug_assert!(matches!(slot.state, State::Waiting(_)), "{slot:?}");
        slot.state = State::Flying;
        slot.path = path;
        slot.is_path_gone = false;
        slot.sent_at = now;
        slot.order = order;
        slot.nonce = nonce;
        slot.sends += 1;
        let is_resend = slot.sends > 1;
        self.counters.resent += u64::from(is_resend);
        self.counters.sent += 1;
        self.in_flight += 1;
        self.counters.in_flight_max = self.counters.in_flight_max.max(self.in_flight);
        self.note(index, path, TraceKind::Sent { is_resend });
    }

    /// Data for `index` came. Whether it was wanted: asked for, and not answered before.
    pub(crate) fn answered(&mut self, index: u64, answer: &Answer) -> bool {
        let slot = match self.slot_mut(index) {
            Some(slot) if slot.sends > 0 && slot.state != State::Done => *slot,
            _ => {
                self.counters.unwanted += 1;
                return false;
            }
        };
        let elapsed_ns = answer.now.ns_since(slot.sent_at);
        // An answer by another path is one to an Interest sent before the last.
        let path = Some(slot.path).filter(|&path| path == answer.path && !slot.is_path_gone);
        let Self { paths, counters, histogram, .. } = self;
        let timed = paths.iter_mut().find(|one| Some(one.id) == path);
        let rtt_ns = timed.and_then(|path| path.time_answer(&slot, answer.now, counters));
        if let Some(rtt_ns) = rtt_ns {
            histogram.record(rtt_ns);
        }
        self.finish(index);
        self.shift();
        let Self { paths, counters, .. } = self;
        if let Some(path) = paths.iter_mut().find(|one| Some(one.id) == path) {
            path.answered(slot.order, rtt_ns, answer, counters);
        }
        let is_marked = answer.is_marked;
        self.note(index, slot.path, TraceKind::Answered { rtt_ns: elapsed_ns, is_marked });
        true
    }

    /// The unit `index`, asked for again outside the window, left on `path`.
    pub(crate) fn note_sent_again(&mut self, index: u64, path: PathId) {
        self.note(index, path, TraceKind::Sent { is_resend: true });
    }

    /// Data for the unit `index`, asked for again outside the window, came.
    pub(crate) fn note_answer(
        &mut self,
        index: u64,
        path: Option<PathId>,
        rtt_ns: u64,
        answer: &Answer,
    ) {
        if let Some(path) = path {
            let is_marked = answer.is_marked;
            self.note(index, path, TraceKind::Answered { rtt_ns, is_marked });
        }
    }

    /// A Nack for `index` came. It counts only if it answers the last Interest that was sent for
    /// it; whether it does.
    pub(crate) fn nacked(
        &mut self,
        index: u64,
        nonce: Option<u32>,
        reason: NackReason,
        now: Instant,
    ) -> Result<bool, Failed> {
        let ScoreboardConfig { retries_max, asks_once, .. } = self.config;
        let Some(slot) = self.slot_mut(index) else { return Ok(false) };
        if !slot.is_flying() || nonce.is_some_and(|nonce| nonce != slot.nonce) {
            return Ok(false);
        }
        let tries = slot.sends;
        let (wait_ns, failed) = match reason {
            NackReason::Duplicate => (0, tries > retries_max),
            NackReason::Congestion => (nack_wait_ns(tries - 1), tries > retries_max),
            _ => {
                slot.no_routes += 1;
                (nack_wait_ns(slot.no_routes - 1), slot.no_routes > NO_ROUTE_MAX)
            }
        };
        let (path, order) = (slot.path, slot.order);
        self.counters.nacks += 1;
        self.note(index, path, TraceKind::Nacked { reason });
        if reason == NackReason::Congestion {
            let Self { paths, counters, .. } = self;
            if let Some(path) = paths.iter_mut().find(|one| one.id == path) {
                path.congested(now, order, Congestion::Nack, counters);
            }
        }
        if failed || asks_once {
            self.give_up(index);
            let reason = match reason {
                NackReason::NoRoute => GiveUp::NoRoute,
                other => GiveUp::Nacked(other),
            };
            return Err(Failed { index, reason });
        }
        self.send_again(index, now.plus_ns(wait_ns));
        Ok(true)
    }

    /// Finds what is lost or timed out by now and queues it to be sent again. Stops at a unit that
    /// is given up; the caller calls again for the rest.
    pub(crate) fn check(&mut self, now: Instant) -> Result<(), Failed> {
        for at in 0..self.paths.len() {
            self.check_path(at, now)?;
        }
        Ok(())
    }

    fn check_path(&mut self, at: usize, now: Instant) -> Result<(), Failed> {
        let ScoreboardConfig { lifetime_ns, retries_max, asks_once, .. } = self.config;
        while let Some(&sent) = self.paths[at].sent.front() {
            let id = self.paths[at].id;
            let Some(slot) = self.flying_slot(sent.index, id, sent.order).copied() else {
                self.paths[at].sent.pop_front();
                continue;
            };
            let Self { paths, counters, .. } = self;
            let path = &mut paths[at];
            let kind = match path.fate(now, sent.order, slot.sent_at, lifetime_ns) {
                Fate::Open => return Ok(()),
                Fate::TimedOut => {
                    path.timed_out(now, sent.order, counters);
                    TraceKind::TimedOut
                }
                Fate::Lost => {
                    counters.lost += 1;
                    path.congested(now, sent.order, Congestion::Loss, counters);
                    TraceKind::Lost
                }
            };
            path.sent.pop_front();
            self.note(sent.index, id, kind);
            if slot.sends > retries_max || asks_once {
                self.give_up(sent.index);
                return Err(Failed { index: sent.index, reason: GiveUp::Unanswered });
            }
            if kind == TraceKind::Lost {
                self.slot_mut(sent.index).expect("it is in flight").is_presumed_lost = true;
            }
            self.send_again(sent.index, now);
        }
        Ok(())
    }

    /// A unit is not wanted any more.
    pub(crate) fn give_up(&mut self, index: u64) {
        self.finish(index);
        self.shift();
    }

    /// When [`Scoreboard::check`] or [`Scoreboard::next_to_send`] has something to do, if no packet
    /// comes before.
    pub(crate) fn next_wakeup(&self) -> Option<Instant> {
        let decided = self.paths.iter().filter_map(|path| {
            path.sent.iter().find_map(|sent| {
                let slot = self.flying_slot(sent.index, path.id, sent.order)?;
                Some(path.decided_at(sent.order, slot.sent_at, self.config.lifetime_ns))
            })
        });
        let paced = self.schedule.departure(&self.paths);
        let again = self.again.first().zip(paced).map(|(&(at, _), paced)| at.max(paced));
        decided.chain(again).chain(paced.filter(|_| self.is_paced)).min()
    }

    fn path_mut(&mut self, id: PathId) -> Option<&mut Path> {
        self.paths.iter_mut().find(|path| path.id == id)
    }

    fn slot_mut(&mut self, index: u64) -> Option<&mut Slot> {
        let at = usize::try_from(index.checked_sub(self.base)?).ok()?;
        self.slots.get_mut(at)
    }

    fn flying_slot(&self, index: u64, path: PathId, order: u64) -> Option<&Slot> {
        let at = usize::try_from(index.checked_sub(self.base)?).ok()?;
        let slot = self.slots.get(at)?;
        (slot.is_flying() && slot.path == path && slot.order == order).then_some(slot)
    }

    fn send_again(&mut self, index: u64, at: Instant) {
        let slot = self.slot_mut(index).expect("it was sent");
        debug_assert!(slot.is_flying());
        slot.state = State::Waiting(at);
        let path = slot.path;
        self.landed(path);
        self.again.insert((at, index));
    }

    fn landed(&mut self, path: PathId) {
        self.in_flight -= 1;
        if let Some(path) = self.path_mut(path) {
            path.landed();
        }
    }

    fn finish(&mut self, index: u64) {
        let Some(slot) = self.slot_mut(index) else { return };
        let path = slot.path;
        match core::mem::replace(&mut slot.state, State::Done) {
            State::Flying => self.landed(path),
            State::Waiting(at) => {
                self.again.remove(&(at, index));
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

    /// Adds a path whose controller is not one of those with a name.
    #[cfg(test)]
    pub(crate) fn push_path(&mut self, path: Path) {
        self.paths.push(path);
    }

    /// Holds the counters against the slots.
    #[cfg(test)]
    pub(crate) fn assert_consistent(&self) {
        let flying = |id| self.slots.iter().filter(move |slot| slot.is_flying() && slot.path == id);
        for path in &self.paths {
            assert_eq!(flying(path.id).count(), path.in_flight() as usize, "{:?}", path.id);
        }
        let in_flight: u32 = self.paths.iter().map(Path::in_flight).sum();
        assert_eq!(in_flight, self.in_flight);
        let waiting = |slot: &&Slot| matches!(slot.state, State::Waiting(_));
        assert_eq!(self.slots.iter().filter(waiting).count(), self.again.len());
    }

    fn note(&mut self, index: u64, path: PathId, kind: TraceKind) {
        if self.config.trace {
            self.trace.push((index, path, kind));
        }
    }
}

/// How long to wait after a Nack, the first (`times` 0) or a later one in a row.
pub(crate) fn nack_wait_ns(times: u32) -> u64 {
    (NACK_WAIT_NS << times.min(8)).min(NACK_WAIT_MAX_NS)
}
