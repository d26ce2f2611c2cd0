//! What is wanted, asked on which path, lost, to be asked again, and done.
//!
//! The scoreboard knows units by their place in the order in which they are wanted, counted from 0;
//! [`super::naming`] says what they are called. Its state is one slot for each chunk between the
//! first unanswered and the last asked for, whatever the number of paths. A chunk is sent, lost and
//! counted in the window as one; of one that is sent again, only what has not come is asked for.

mod ahead;
mod holes;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use weir_base::{Histogram, Instant, RttConfig, bucket_count};
use weir_store::SegmentRange;
use weir_wire::NackReason;

use self::ahead::Ahead;
pub(crate) use self::holes::HoleRules;
use super::chunks::Chunks;
use super::outbox::TraceKind;
use super::path::{Answer, Fate, Path};
use super::schedule::{Next, Schedule};
pub use super::slot::GiveUp;
use super::slot::{Counters, Slot, State, nack_wait_ns};
use super::stats::PathStats;
use crate::PathId;
use crate::congestion::{Congestion, Controller, ControllerConstants, WindowBounds};

/// Nacks `NoRoute` to one unit before it is given up: 100 + 200 + 400 + 800 + 1000 ms, for a
/// producer or a route that is just coming up.
const NO_ROUTE_MAX: u32 = 5;
/// How many units the last Interest may be ahead of the first unanswered one, about. What is lost
/// twice comes after three round trips, and 10 Gbit/s over 300 ms are 47,000 packets of 8 kB in
/// each. A consumer has a slot of some 120 octets for each packet past the first that it lacks:
/// 60 MB after half a million of them.
const UNITS_MAX: u64 = 1 << 19;

/// Round-trip times in nanoseconds, to one part in eight.
pub(crate) type RttHistogram = Histogram<8, { bucket_count(8) }>;

/// Limits of a scoreboard.
#[derive(Copy, Clone, Debug)]
pub(crate) struct ScoreboardConfig {
    pub(crate) lifetime_ns: u64,
    pub(crate) retries_max: u32,
    /// A unit is asked for once; one that is lost or refused is given up.
    pub(crate) asks_once: bool,
    /// See [`ConsumerConfig::chunk_units`](crate::ConsumerConfig::chunk_units).
    pub(crate) chunk_units: u32,
    pub(crate) rtt: RttConfig,
    pub(crate) controller: Controller,
    pub(crate) constants: ControllerConstants,
    pub(crate) window: WindowBounds,
    /// See [`ConsumerConfig::decrease_interval_ns`](crate::ConsumerConfig::decrease_interval_ns).
    pub(crate) decrease_interval_ns: Option<u64>,
    /// See [`ConsumerConfig::waits_for_lifetime`](crate::ConsumerConfig::waits_for_lifetime).
    pub(crate) waits_for_lifetime: bool,
    pub(crate) trace: bool,
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
    /// Of paths that are no more.
    past: BTreeMap<PathId, PathStats>,
    /// The reader wants all in order.
    is_in_order: bool,
    /// Of the packets that came. Made with the first: many a consumer only waits, and this is
    /// larger than the rest of it.
    histogram: Option<Box<RttHistogram>>,
    counters: Counters,
    chunks: Chunks,
    /// Units in all, once known.
    limit: Option<u64>,
    /// A router has told that it holds something.
    knows_holders: bool,
    /// Units beyond the limit that were done before it was set.
    done_beyond: BTreeSet<u64>,
    /// First units of chunks to be sent again.
    again: BTreeSet<(Instant, u64)>,
    /// Of an object that grows: what is asked for before it is made.
    ahead: Option<Ahead>,
    /// Units of chunks that were given up, still to be told.
    failed: VecDeque<Failed>,
    /// Units asked for and not answered, in flight or to be asked for again.
    unanswered: u32,
    /// Those of them in flight.
    in_flight: u32,
    /// What a path was sought for last.
    next: Next,
    /// The pace alone kept the last Interest back.
    is_paced: bool,
    hole_rules: HoleRules,
    /// When the Interest that timed out first was sent.
    unheard_since: Option<Instant>,
    /// What happened to units, if that is wanted.
    trace: Vec<(u64, PathId, TraceKind)>,
}

impl Scoreboard {
    pub(crate) fn new(config: ScoreboardConfig, schedule: Box<dyn Schedule>) -> Self {
        Self {
            config,
            schedule,
            paths: Vec::new(),
            past: BTreeMap::new(),
            is_in_order: true,
            histogram: None,
            counters: Counters::default(),
            chunks: Chunks::new(config.chunk_units),
            limit: None,
            knows_holders: false,
            done_beyond: BTreeSet::new(),
            again: BTreeSet::new(),
            ahead: None,
            failed: VecDeque::new(),
            unanswered: 0,
            in_flight: 0,
            next: Next::Again,
            is_paced: false,
            hole_rules: HoleRules::Off,
            unheard_since: None,
            trace: Vec::new(),
        }
    }

    pub(crate) fn counters(&self) -> &Counters {
        &self.counters
    }

    /// `None` before the first packet.
    pub(crate) fn histogram(&self) -> Option<&RttHistogram> {
        self.histogram.as_deref()
    }

    pub(crate) fn paths(&self) -> &[Path] {
        &self.paths
    }

    /// Those that are used now.
    pub(crate) fn paths_in_use(&self) -> &[Path] {
        &self.paths[..self.schedule.used(&self.paths)]
    }

    pub(crate) fn in_flight(&self) -> u32 {
        self.in_flight + self.ahead_count()
    }

    /// What happened since the last call; the caller drains it.
    pub(crate) fn trace(&mut self) -> &mut Vec<(u64, PathId, TraceKind)> {
        &mut self.trace
    }

    /// Units asked for and not answered: under way, or to be asked for again.
    pub(crate) fn unanswered(&self) -> u32 {
        self.unanswered
    }

    /// The unit that is asked for for the first time next.
    pub(crate) fn next_index(&self) -> u64 {
        self.chunks.next_index()
    }

    /// The first unit of the first chunk that is neither answered nor given up.
    pub(crate) fn first_open(&self) -> u64 {
        self.chunks.first_index()
    }

    /// The units to ask for of the chunk that begins with `first`.
    pub(crate) fn open_units(&self, first: u64) -> impl Iterator<Item = u64> {
        self.chunks.find(first).into_iter().flat_map(|at| self.chunks.open_units(at))
    }

    /// Whether there is no path.
    pub(crate) fn has_no_path(&self) -> bool {
        self.paths.is_empty()
    }

    /// The paths for what needs no window, those first that have answered.
    pub(crate) fn paths_to_ask(&self) -> Vec<PathId> {
        let mut paths: Vec<&Path> = self.paths_in_use().iter().collect();
        paths.sort_by_key(|path| (path.is_failing(), path.rtt.smoothed_ns().is_none()));
        paths.into_iter().map(|path| path.id).collect()
    }

    /// What happened on a path so far.
    pub(crate) fn path_stats(&self, id: PathId) -> PathStats {
        let mut stats = self.past.get(&id).copied().unwrap_or_default();
        if let Some(path) = self.paths.iter().find(|path| path.id == id) {
            stats.add(&path.stats());
        }
        stats
    }

    /// Whether the reader wants all in order, so that what comes too early takes room.
    pub(crate) fn set_in_order(&mut self, is_in_order: bool) {
        self.is_in_order = is_in_order;
    }

    /// A path is there, with a window of its own if given; whether it was not before.
    pub(crate) fn add_path(&mut self, id: PathId, initial_window: Option<u32>) -> bool {
        let is_new = self.path_mut(id).is_none();
        if is_new {
            let ScoreboardConfig { rtt, controller, constants, .. } = self.config;
            let mut window = self.config.window;
            window.initial = initial_window.or(window.initial);
            let ScoreboardConfig { decrease_interval_ns, waits_for_lifetime, asks_once, .. } =
                self.config;
            let path = Path::new(id, rtt, controller.make(&constants, window));
            self.paths.reserve_exact(1);
            self.paths.push(path.with_rules(decrease_interval_ns, waits_for_lifetime, asks_once));
        }
        is_new
    }

    /// A path is no more. What is in flight on it is asked for again, which is no sign of
    /// congestion.
    pub(crate) fn remove_path(&mut self, id: PathId, now: Instant) {
        let stats = self.path_stats(id);
        self.past.insert(id, stats);
        self.paths.retain(|path| path.id != id);
        for at in 0..self.chunks.len() {
            let slot = self.chunks.slot_mut(at);
            if slot.path != id {
                continue;
            }
            slot.is_path_gone = true;
            if slot.is_flying() {
                slot.state = State::Waiting(now);
                self.in_flight -= slot.open;
                self.again.insert((now, slot.first));
            } else if let State::Ahead(_) = slot.state {
                self.ask_ahead_again(at, now);
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
        self.chunks.start_at(index);
    }

    /// Says how many units there are, if that is known. Of those beyond, only which are answered is
    /// remembered: a forged segment may have said so, and there may be more after all.
    pub(crate) fn set_limit(&mut self, units: Option<u64>) {
        self.limit = units;
        if let Some(units) = units {
            self.cut(units);
        }
    }

    /// Nothing from the unit `units` on is asked for any more.
    fn cut(&mut self, units: u64) {
        while self.next_index() > units && !self.chunks.is_empty() {
            let at = self.chunks.len() - 1;
            let beyond = self.chunks.slot(at).units();
            for index in beyond.start.max(units)..beyond.end {
                if !self.close(at, index) {
                    self.done_beyond.insert(index);
                }
            }
            if self.chunks.slot(at).open == 0 {
                self.end(at);
            }
            self.chunks.cut(units);
        }
        self.chunks.shift();
    }

    /// Whether every unit has been answered.
    pub(crate) fn is_done(&self) -> bool {
        self.chunks.is_empty() && self.limit.is_some_and(|limit| self.next_index() >= limit)
    }

    /// Whether the next unit could be sent, if there were more of them.
    pub(crate) fn wants_more(&self, now: Instant) -> bool {
        self.limit.is_some_and(|limit| self.next_index() >= limit)
            && self.chunks.units() < UNITS_MAX
            && self.schedule.departure(&self.paths, self.next).is_some_and(|at| at <= now)
    }

    /// What the router of a path holds.
    pub(crate) fn set_held(&mut self, id: PathId, held: Vec<SegmentRange>) {
        self.knows_holders |= !held.is_empty();
        if let Some(path) = self.path_mut(id) {
            path.set_held(held);
        }
    }

    /// Whether a router has told that it holds something.
    pub(crate) fn knows_holders(&self) -> bool {
        self.knows_holders
    }

    /// Has the next new chunk, which begins with this segment, taken by a path whose router holds
    /// it. One that fails does not count: its segments go to all.
    pub(crate) fn prefer_holders(&mut self, segment: Option<u64>) {
        let used = self.schedule.used(&self.paths);
        let holds = |path: &Path| segment.is_some_and(|segment| path.holds(segment));
        let has_holder = self.paths[..used].iter().any(|path| holds(path) && !path.is_failing());
        for path in &mut self.paths {
            let is_passed_over = has_holder && !holds(path);
            path.set_passed_over(is_passed_over);
        }
    }

    /// The next chunk to ask for, by its first unit, and the path that takes it, if a path may send
    /// and, for a chunk that was not asked for before, the caller has room for units. `is_needed`
    /// says of a unit seen for the first time whether it is wanted at all. The caller asks for its
    /// [`Scoreboard::open_units`] and calls [`Scoreboard::sent`].
    pub(crate) fn next_to_send(
        &mut self,
        now: Instant,
        room_units: u32,
        mut is_needed: impl FnMut(u64) -> bool,
    ) -> Option<(u64, PathId)> {
        for path in &mut self.paths {
            path.note_limit(room_units > 0, now);
        }
        // What comes again was counted before; the caller's room may be waiting for just this.
        let again = self.again.first().filter(|&&(at, _)| at <= now).map(|&(_, index)| index);
        if again.is_some() && self.knows_holders {
            // Who holds it did not bring it.
            self.prefer_holders(None);
        }
        if self.is_ahead(again.unwrap_or(self.next_index())) {
            return self.next_ahead(again, now, room_units, is_needed);
        }
        self.next = match again {
            Some(_) => Next::Again,
            None if room_units > 0 && !self.is_in_order => Next::New { room_chunks: u32::MAX },
            None => Next::New { room_chunks: room_units.div_ceil(self.config.chunk_units.max(1)) },
        };
        let Self { schedule, paths, next, .. } = self;
        let chosen = schedule.choose(paths, *next, now);
        self.is_paced = chosen.is_none() && schedule.departure(paths, *next).is_some();
        let path = &self.paths[chosen?];
        debug_assert!(path.may_send(now));
        let path = path.id;
        if again.is_some() {
            self.again.pop_first();
            return again.map(|index| (index, path));
        }
        if room_units == 0 {
            return None;
        }
        self.push_next(now, path, &mut is_needed)
    }

    /// Adds the next chunk that has a unit that is needed, if there may be one.
    fn push_next(
        &mut self,
        now: Instant,
        path: PathId,
        is_needed: &mut impl FnMut(u64) -> bool,
    ) -> Option<(u64, PathId)> {
        loop {
            let limit = self.limit.unwrap_or(u64::MAX);
            if self.next_index() >= limit || self.chunks.units() >= UNITS_MAX {
                return None;
            }
            let Self { chunks, done_beyond, .. } = self;
            let at = chunks.push(Slot::new(path, now), limit, |index| {
                !done_beyond.remove(&index) && is_needed(index)
            });
            let slot = chunks.slot_mut(at);
            if slot.open > 0 {
                self.unanswered += slot.open;
                return Some((slot.first, path));
            }
            slot.state = State::Done;
            chunks.shift();
        }
    }

    /// The Interests for the chunk that begins with `first`, from [`Scoreboard::next_to_send`], go
    /// out on `path` now.
    pub(crate) fn sent(&mut self, first: u64, path: PathId, nonce: u32, now: Instant) {
        let at = self.chunks.find(first).expect("a chunk to be sent has a slot");
        let is_ahead = self.is_ahead(first);
        let units = self.chunks.slot(at).open;
        let end = now.plus_ns(self.config.lifetime_ns);
        let taken = self.path_mut(path).expect("the path was chosen");
        let order = if is_ahead { taken.sent_ahead(units) } else { taken.sent(first, units, now) };
        let slot = self.chunks.slot_mut(at);
        debug_assert!(matches!(slot.state, State::Waiting(_)), "{slot:?}");
        slot.state = if is_ahead { State::Ahead(end) } else { State::Flying };
        slot.path = path;
        slot.is_path_gone = false;
        slot.sent_at = now;
        slot.order = order;
        slot.nonce = nonce;
        slot.sends += 1;
        let is_resend = slot.sends > 1;
        self.chunks.forget_refused(at);
        self.counters.resent += if is_resend { u64::from(units) } else { 0 };
        self.counters.sent += u64::from(units);
        match &mut self.ahead {
            Some(ahead) if is_ahead => ahead.sent(end, first),
            _ => self.in_flight += units,
        }
        self.counters.in_flight_max = self.counters.in_flight_max.max(self.in_flight());
        if self.config.trace {
            let kind = TraceKind::Sent { is_resend };
            self.trace.extend(self.chunks.open_units(at).map(|index| (index, path, kind)));
        }
    }

    /// Data for `index` came. Whether it was wanted: asked for, and not answered before.
    pub(crate) fn answered(&mut self, index: u64, answer: &Answer) -> bool {
        let found = self.chunks.find(index).filter(|&at| self.chunks.slot(at).sends > 0);
        let Some(at) = found.filter(|&at| self.close(at, index)) else {
            self.counters.unwanted += 1;
            return false;
        };
        let slot = self.chunks.slot_mut(at);
        slot.packets += 1;
        slot.marked_packets += u32::from(answer.mark.is_set());
        slot.mark = slot.mark.with(answer.mark);
        slot.bytes += answer.packet_bytes;
        let slot = *slot;
        let is_ahead = matches!(slot.state, State::Ahead(_));
        if let Some(path) = self.path_mut(answer.path).filter(|_| !is_ahead) {
            path.heard(answer.now);
        }
        if is_ahead {
            // How long it waited says nothing of the path.
            self.end(at);
            self.chunks.shift();
            self.came_ahead(&slot, answer.now);
        } else if slot.open == 0 {
            self.chunk_answered(at, &slot, answer);
        } else if slot.nacked > 0 {
            self.check_refused(at, answer.now);
        }
        let rtt_ns = answer.now.ns_since(slot.sent_at);
        let is_marked = answer.mark.is_set();
        self.note(index, slot.path, TraceKind::Answered { rtt_ns, is_marked });
        self.made(index, answer.now);
        true
    }

    /// With the packet of `answer` all of a chunk is there.
    fn chunk_answered(&mut self, at: usize, slot: &Slot, answer: &Answer) {
        // An answer by another path is one to an Interest sent before the last.
        let path = Some(slot.path).filter(|&path| path == answer.path && !slot.is_path_gone);
        let Self { paths, counters, histogram, .. } = self;
        let timed = paths.iter_mut().find(|one| Some(one.id) == path);
        let rtt_ns = timed.and_then(|path| path.time_answer(slot, answer.now, counters));
        if let Some(rtt_ns) = rtt_ns {
            histogram.get_or_insert_default().record(rtt_ns);
        }
        self.end(at);
        self.chunks.shift();
        let Self { paths, counters, .. } = self;
        if let Some(path) = paths.iter_mut().find(|one| Some(one.id) == path) {
            path.answered(slot, rtt_ns, answer.now, counters);
        }
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
            let is_marked = answer.mark.is_set();
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
        let found = self.chunks.find(index).filter(|&at| self.chunks.is_open(at, index));
        let Some(at) = found else { return Ok(false) };
        let slot = self.chunks.slot(at);
        let is_ahead = matches!(slot.state, State::Ahead(_));
        let is_out = slot.is_flying() || is_ahead;
        if !is_out || nonce.is_some_and(|nonce| nonce != slot.nonce) {
            return Ok(false);
        }
        let (path, order) = (slot.path, slot.order);
        if !self.chunks.refuse(at, index) {
            return Ok(false);
        }
        self.counters.nacks += 1;
        self.note(index, path, TraceKind::Nacked { reason });
        if is_ahead {
            return self.refused_ahead(at, reason, now);
        }
        let Self { paths, counters, .. } = self;
        if let Some(path) = paths.iter_mut().find(|one| one.id == path) {
            path.nacked();
            match reason {
                NackReason::Congestion => path.congested(now, order, Congestion::Nack, counters),
                NackReason::Duplicate => {}
                _ => path.refused(now),
            }
        }
        if self.config.asks_once {
            self.give_up(index);
            return Err(Failed { index, reason: give_up_of(reason) });
        }
        let slot = self.chunks.slot_mut(at);
        slot.nack_reason = reason;
        self.check_refused(at, now);
        self.failed.pop_front().map_or(Ok(true), Err)
    }

    /// If all that is open of a chunk was refused, it waits, or is given up.
    fn check_refused(&mut self, at: usize, now: Instant) {
        let (retries_max, no_routes_max) = (self.config.retries_max, self.no_routes_max());
        let in_use = self.paths_in_use();
        let paths = in_use.len().max(1) as u32;
        let refuse_all = !in_use.iter().any(|path| path.rests_until() == Instant::ZERO);
        let slot = self.chunks.slot_mut(at);
        if !slot.is_flying() || slot.nacked < slot.open {
            return;
        }
        let (tries, reason) = (slot.sends, slot.nack_reason);
        let (wait_ns, failed) = match reason {
            NackReason::Duplicate => (0, tries > retries_max),
            NackReason::Congestion => (nack_wait_ns(tries - 1), tries > retries_max),
            _ => {
                slot.no_routes += 1;
                // Another path may have a route.
                let (round, rest) = (slot.no_routes / paths, slot.no_routes % paths);
                let wait_ns = if rest == 0 { nack_wait_ns(round - 1) } else { 0 };
                (wait_ns, refuse_all && slot.no_routes > no_routes_max * paths)
            }
        };
        if failed {
            self.give_up_chunk(at, give_up_of(reason));
        } else {
            self.send_again(at, now.plus_ns(wait_ns));
        }
    }

    /// Nothing more of a chunk is asked for. What has not come is told by [`Scoreboard::check`].
    fn give_up_chunk(&mut self, at: usize, reason: GiveUp) {
        self.fail_chunk(at, reason);
        self.chunks.shift();
    }

    fn fail_chunk(&mut self, at: usize, reason: GiveUp) {
        let Self { chunks, failed, .. } = self;
        failed.extend(chunks.open_units(at).map(|index| Failed { index, reason }));
        for index in self.chunks.slot(at).units() {
            self.close(at, index);
        }
        self.end(at);
    }

    /// Finds what is lost or timed out by now and queues it to be sent again. Stops at a unit that
    /// is given up; the caller calls again for the rest.
    pub(crate) fn check(&mut self, now: Instant) -> Result<(), Failed> {
        let timeouts = self.counters.timeouts;
        for at in 0..self.paths.len() {
            self.check_path(at, now);
        }
        if self.counters.timeouts > timeouts {
            self.set_silent_aside(now);
        }
        if self.paths_in_use().len() > 1 {
            self.take_from_silent(now);
        }
        self.check_ahead(now);
        self.failed.pop_front().map_or(Ok(()), Err)
    }

    fn check_path(&mut self, path_at: usize, now: Instant) {
        let ScoreboardConfig { lifetime_ns, asks_once, .. } = self.config;
        let tries_max = self.tries_max();
        while let Some(&sent) = self.paths[path_at].sent.front() {
            let id = self.paths[path_at].id;
            let Some(at) = self.flying(sent.index, id, sent.order) else {
                self.paths[path_at].sent.pop_front();
                continue;
            };
            let slot = *self.chunks.slot(at);
            let Self { paths, counters, .. } = self;
            let path = &mut paths[path_at];
            let fate = path.fate(now, sent.order, slot.sent_at, lifetime_ns);
            let kind = match fate {
                Fate::Open => return,
                Fate::TimedOut => {
                    path.timed_out(now, &slot, counters);
                    self.unheard_since.get_or_insert(slot.sent_at);
                    TraceKind::TimedOut
                }
                Fate::Lost => {
                    counters.lost += 1;
                    path.congested(now, sent.order, Congestion::Loss, counters);
                    TraceKind::Lost
                }
                Fate::Silent => {
                    counters.lost += 1;
                    path.fell_silent();
                    TraceKind::Lost
                }
            };
            let resend_at = match fate {
                Fate::TimedOut => now,
                _ => Path::resend_at(now, slot.sent_at, slot.sends),
            };
            path.sent.pop_front();
            // One event tells of the chunk, under the first unit that has not come.
            let first_open = self.chunks.open_units(at).next().unwrap_or(sent.index);
            self.note(first_open, id, kind);
            // A refusal is an answer, and no try that found none.
            if slot.sends.saturating_sub(slot.no_routes) > tries_max || asks_once {
                self.give_up_chunk(at, GiveUp::Unanswered);
                continue;
            }
            // A path that stalls says nothing of how far answers overtake others.
            self.chunks.slot_mut(at).is_presumed_lost |= fate == Fate::Lost;
            self.send_again(at, resend_at);
        }
    }

    /// When nothing new is left to ask for, what a silent path was tried with is asked for on
    /// another, so that the end of the transfer does not wait for it.
    fn take_from_silent(&mut self, now: Instant) {
        let is_left = self.limit.is_none_or(|limit| self.next_index() < limit);
        let has_other = self.paths_in_use().iter().any(|path| !path.is_failing());
        if !has_other || (is_left && self.chunks.units() < UNITS_MAX) {
            return;
        }
        for path_at in 0..self.paths.len() {
            while self.paths[path_at].is_silent()
                && let Some(sent) = self.paths[path_at].sent.pop_front()
            {
                if let Some(at) = self.flying(sent.index, self.paths[path_at].id, sent.order) {
                    self.send_again(at, now);
                }
            }
        }
    }

    /// A unit is not wanted any more.
    pub(crate) fn give_up(&mut self, index: u64) {
        let Some(at) = self.chunks.find(index) else { return };
        self.close(at, index);
        if self.chunks.slot(at).open == 0 {
            self.end(at);
            self.chunks.shift();
        }
    }

    /// When [`Scoreboard::check`] or [`Scoreboard::next_to_send`] has something to do, if no packet
    /// comes before.
    pub(crate) fn next_wakeup(&self) -> Option<Instant> {
        let decided = self.paths.iter().filter_map(|path| {
            path.sent.iter().find_map(|sent| {
                let at = self.flying(sent.index, path.id, sent.order)?;
                let sent_at = self.chunks.slot(at).sent_at;
                Some(path.decided_at(sent.order, sent_at, self.config.lifetime_ns))
            })
        });
        let departure = |next| self.schedule.departure(&self.paths, next);
        let again = self.again.first().and_then(|&(at, index)| match self.is_ahead(index) {
            true => Some(at),
            false => Some(at.max(departure(Next::Again)?)),
        });
        let ahead = self.ahead.as_ref().and_then(Ahead::next_wakeup);
        let paced = self.is_paced.then(|| departure(self.next)).flatten();
        decided.chain(again).chain(ahead).chain(paced).min()
    }

    fn path_mut(&mut self, id: PathId) -> Option<&mut Path> {
        self.paths.iter_mut().find(|path| path.id == id)
    }

    /// The place of the chunk that begins with `first`, if it is in flight there and so.
    fn flying(&self, first: u64, path: PathId, order: u64) -> Option<usize> {
        let at = self.chunks.find(first)?;
        let slot = self.chunks.slot(at);
        (slot.is_flying() && slot.path == path && slot.order == order).then_some(at)
    }

    fn send_again(&mut self, at: usize, when: Instant) {
        let slot = self.chunks.slot_mut(at);
        debug_assert!(slot.is_flying());
        slot.state = State::Waiting(when);
        let Slot { path, first, open, .. } = *slot;
        self.in_flight -= open;
        if let Some(path) = self.path_mut(path) {
            path.landed();
        }
        self.again.insert((when, first));
    }

    /// A unit of a chunk is wanted no more. Whether it was.
    fn close(&mut self, at: usize, index: u64) -> bool {
        let was_open = self.chunks.close(at, index);
        let is_flying = self.chunks.slot(at).is_flying();
        self.unanswered -= u32::from(was_open);
        self.in_flight -= u32::from(was_open && is_flying);
        was_open
    }

    /// Nothing of a chunk is wanted any more.
    fn end(&mut self, at: usize) {
        let slot = self.chunks.slot_mut(at);
        let (path, first) = (slot.path, slot.first);
        match core::mem::replace(&mut slot.state, State::Done) {
            State::Flying => {
                if let Some(path) = self.path_mut(path) {
                    path.landed();
                }
            }
            State::Waiting(at) => {
                self.again.remove(&(at, first));
            }
            State::Ahead(end) => {
                if let Some(ahead) = &mut self.ahead {
                    ahead.ended(end, first);
                }
            }
            State::Done => {}
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
        let flying = |id| self.chunks.iter().filter(move |s| s.is_flying() && s.path == id);
        for path in &self.paths {
            assert_eq!(flying(path.id).count(), path.in_flight() as usize, "{:?}", path.id);
        }
        let mut open = (0, 0);
        for at in 0..self.chunks.len() {
            let slot = self.chunks.slot(at);
            assert_eq!(self.chunks.open_units(at).count(), slot.open as usize);
            assert_eq!(slot.open == 0, slot.state == State::Done, "{slot:?}");
            open.0 += slot.open;
            open.1 += if slot.is_flying() { slot.open } else { 0 };
        }
        assert_eq!(open, (self.unanswered, self.in_flight));
        let waiting = |slot: &&Slot| matches!(slot.state, State::Waiting(_));
        assert_eq!(self.chunks.iter().filter(waiting).count(), self.again.len());
        let ahead = |slot: &&Slot| matches!(slot.state, State::Ahead(_));
        assert_eq!(self.chunks.iter().filter(ahead).count(), self.ahead_count() as usize);
    }

    fn note(&mut self, index: u64, path: PathId, kind: TraceKind) {
        if self.config.trace {
            self.trace.push((index, path, kind));
        }
    }
}

fn give_up_of(reason: NackReason) -> GiveUp {
    match reason {
        NackReason::NoRoute => GiveUp::NoRoute,
        other => GiveUp::Nacked(other),
    }
}
