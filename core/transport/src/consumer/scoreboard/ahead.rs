//! Asking for what is not made yet: units of an object that grows.
//!
//! Such an Interest waits at the producer until its unit is made, as long as it lives, and is sent
//! again then. How long it waited says nothing of the path, so that it has no place in a window, is
//! no sample of a round trip and no sign of loss. How many there are at a time follows what comes:
//! one more for each unit that was there when it was asked for, one less when none would have been
//! for a while, half as many whenever one has waited in vain. So consumers of one object come to
//! ask for a unit at the same time, whatever they have seen before, and routers take their
//! Interests for one. A unit is known to be there once it or a later one has come, or metadata say
//! so. Those before it that were asked for ahead are lost or about to come.

use alloc::collections::BTreeSet;

use weir_base::{Instant, NS_PER_MS};
use weir_wire::NackReason;

use super::{Failed, GiveUp, NO_ROUTE_MAX, Scoreboard, Slot, State, give_up_of, nack_wait_ns};
use crate::PathId;

/// Units that are asked for ahead at least, and at first.
const AHEAD_MIN: u32 = 2;
/// A unit that comes within so many round trips of its Interest was there, or nearly.
const LATE_ROUND_TRIPS: u64 = 2;
/// A unit that would have waited for so many round trips, had it been asked for one unit later, is
/// asked for earlier than it needs to be.
const EARLY_ROUND_TRIPS: u64 = 2 * LATE_ROUND_TRIPS;
/// Units in a row that are asked for earlier than they need to be before there are fewer: as many
/// as are asked for at a time, so that all of what is made at once counts, and at least so many.
const EARLY_UNITS_MIN: u32 = 4;
/// How long a unit that was overtaken is waited for: half a round trip, at least the first of
/// these, and the second while no round trip has been measured.
const OVERTAKEN_NS_MIN: u64 = 10 * NS_PER_MS;
const OVERTAKEN_NS: u64 = 100 * NS_PER_MS;
/// A unit that is asked for once is lost when so many later ones are there.
const OVERTAKEN_UNITS: u64 = 3;

/// What is asked for before it is made.
pub(super) struct Ahead {
    /// The first unit that is not known to be there.
    horizon: u64,
    /// Units from there on that are asked for: now, and at most.
    units: u32,
    units_max: u32,
    /// Units in a row that were asked for earlier than they needed to be.
    early_units: u32,
    /// When the Interests end that are under way, with the first units of their chunks.
    ends: BTreeSet<(Instant, u64)>,
}

impl Ahead {
    pub(super) fn sent(&mut self, end: Instant, first: u64) {
        self.ends.insert((end, first));
    }

    pub(super) fn ended(&mut self, end: Instant, first: u64) {
        self.ends.remove(&(end, first));
    }

    pub(super) fn next_wakeup(&self) -> Option<Instant> {
        self.ends.first().map(|&(end, _)| end)
    }

    fn has_fewer(&mut self) {
        self.units = (self.units / 2).max(AHEAD_MIN.min(self.units_max));
        self.early_units = 0;
    }

    /// A unit came that was asked for early, or not.
    fn note_early(&mut self, is_early: bool) {
        self.early_units = if is_early { self.early_units + 1 } else { 0 };
        if self.early_units >= self.units.max(EARLY_UNITS_MIN) {
            self.units = (self.units - 1).max(AHEAD_MIN.min(self.units_max));
            self.early_units = 0;
        }
    }
}

impl Scoreboard {
    /// The object grows: no unit from `horizon` on is known to be there. At most `units_max` of
    /// them are asked for at a time. Chunks must be of one unit.
    pub(crate) fn set_horizon(&mut self, horizon: u64, units_max: u32) {
        let units_max = units_max.max(1);
        let units = AHEAD_MIN.min(units_max);
        let ends = BTreeSet::new();
        self.ahead = Some(Ahead { horizon, units, units_max, early_units: 0, ends });
    }

    /// Units that are asked for ahead.
    pub(crate) fn ahead_count(&self) -> u32 {
        self.ahead.as_ref().map_or(0, |ahead| ahead.ends.len() as u32)
    }

    pub(super) fn is_ahead(&self, index: u64) -> bool {
        self.ahead.as_ref().is_some_and(|ahead| index >= ahead.horizon)
    }

    /// As [`Scoreboard::next_to_send`], of units that are not known to be there.
    pub(super) fn next_ahead(
        &mut self,
        again: Option<u64>,
        now: Instant,
        room_units: u32,
        mut is_needed: impl FnMut(u64) -> bool,
    ) -> Option<(u64, PathId)> {
        self.is_paced = false;
        let path = *self.paths_to_ask().first()?;
        if again.is_some() {
            self.again.pop_first();
            return again.map(|first| (first, path));
        }
        let Ahead { horizon, units, .. } = self.ahead.as_ref()?;
        let end = horizon.saturating_add(u64::from(*units));
        if room_units == 0 || self.next_index() >= end {
            return None;
        }
        self.push_next(now, path, &mut is_needed)
    }

    /// A unit came that was asked for ahead.
    pub(super) fn came_ahead(&mut self, slot: &Slot, now: Instant) {
        let path = self.paths.iter().find(|path| path.id == slot.path);
        let rtt_ns = path.and_then(|path| path.rtt.smoothed_ns());
        let waited_ns = now.ns_since(slot.sent_at);
        // The next one was asked for when this one would have been with one less at a time.
        let next = self.chunks.find(slot.first + 1).map(|at| *self.chunks.slot(at));
        let next = next.filter(|next| matches!(next.state, State::Ahead(_)));
        let Some(ahead) = &mut self.ahead else { return };
        let was_there = rtt_ns.is_some_and(|rtt_ns| waited_ns < LATE_ROUND_TRIPS * rtt_ns);
        if was_there || ahead.ends.is_empty() {
            ahead.units = ahead.units.saturating_add(1).min(ahead.units_max);
        }
        let is_early = rtt_ns
            .zip(next)
            .is_some_and(|(rtt_ns, next)| now.ns_since(next.sent_at) >= EARLY_ROUND_TRIPS * rtt_ns);
        ahead.note_early(is_early);
    }

    /// The unit `index` is there, and so is all before it: what was asked for ahead of that is on
    /// its way or lost, and is asked for again unless it comes soon.
    pub(crate) fn made(&mut self, index: u64, now: Instant) {
        if !self.is_ahead(index) {
            return;
        }
        if let Some(ahead) = &mut self.ahead {
            ahead.horizon = index.saturating_add(1);
        }
        let asks_once = self.config.asks_once;
        let mut is_overtaken = false;
        for at in 0..self.chunks.len() {
            let &Slot { state, first, path, .. } = self.chunks.slot(at);
            if first > index {
                break;
            }
            if !matches!(state, State::Ahead(_)) {
                continue;
            }
            if !asks_once {
                is_overtaken = true;
                let path = self.paths.iter().find(|one| one.id == path);
                let rtt_ns = path.and_then(|path| path.rtt.smoothed_ns());
                let wait_ns = rtt_ns.map_or(OVERTAKEN_NS, |ns| (ns / 2).max(OVERTAKEN_NS_MIN));
                self.ask_ahead_again(at, now.plus_ns(wait_ns));
            } else if first + OVERTAKEN_UNITS <= index {
                is_overtaken = true;
                self.fail_chunk(at, GiveUp::Unanswered);
            }
        }
        self.chunks.shift();
        if let Some(ahead) = self.ahead.as_mut().filter(|_| is_overtaken) {
            ahead.has_fewer();
        }
    }

    /// A chunk that was asked for ahead is asked for again at `when`. What was tried before its
    /// units were made does not count.
    pub(super) fn ask_ahead_again(&mut self, at: usize, when: Instant) {
        let slot = self.chunks.slot_mut(at);
        let State::Ahead(end) = slot.state else { return };
        slot.state = State::Waiting(when);
        slot.sends = 1;
        let first = slot.first;
        if let Some(ahead) = &mut self.ahead {
            ahead.ended(end, first);
        }
        self.again.insert((when, first));
    }

    /// An Interest for a unit that is not made yet was refused: there may be no producer any more.
    pub(super) fn refused_ahead(
        &mut self,
        at: usize,
        reason: NackReason,
        now: Instant,
    ) -> Result<bool, Failed> {
        let slot = self.chunks.slot_mut(at);
        slot.no_routes += u32::from(reason != NackReason::Duplicate);
        let is_in_vain = reason != NackReason::Congestion && slot.no_routes > NO_ROUTE_MAX;
        let wait_ns = nack_wait_ns(slot.no_routes.saturating_sub(1));
        if is_in_vain {
            self.fail_chunk(at, give_up_of(reason));
            self.chunks.shift();
        } else {
            self.ask_ahead_again(at, now.plus_ns(wait_ns));
        }
        self.failed.pop_front().map_or(Ok(true), Err)
    }

    /// Sends again what has waited in vain, less of it.
    pub(super) fn check_ahead(&mut self, now: Instant) {
        let mut is_in_vain = false;
        while let Some(ahead) = &self.ahead
            && let Some(&(end, first)) = ahead.ends.first()
            && end <= now
        {
            let at = self.chunks.find(first).expect("what is under way has a slot");
            if !self.is_ahead(first) {
                // It was made, is asked for once and has not come.
                self.fail_chunk(at, GiveUp::Unanswered);
                continue;
            }
            is_in_vain = true;
            self.chunks.slot_mut(at).no_routes = 0;
            self.ask_ahead_again(at, now);
        }
        self.chunks.shift();
        if let Some(ahead) = self.ahead.as_mut().filter(|_| is_in_vain) {
            ahead.has_fewer();
            let end = ahead.horizon.saturating_add(u64::from(ahead.units));
            self.cut(end);
        }
    }
}
