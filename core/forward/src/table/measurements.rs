//! What is known of each next hop of each FIB entry: how long answers take, what is lost, what is
//! under way. Fed by every Interest that leaves, and by all that ends it.

use alloc::boxed::Box;

use weir_base::{Instant, RttConfig, RttEstimator, Slab};

use crate::table::path_model::PathModel;

/// Next hops that are measured at most; beyond it a new one is not.
const MEASUREMENTS_MAX: usize = 1 << 16;
/// Next hops with a model of the queue behind them at most; beyond it, that which was used longest
/// ago is forgotten.
pub(crate) const MODELS_MAX: usize = 1024;
const NONE: u32 = u32::MAX;
/// 1 / weight of the last gap between two Data in the usual one.
const GAP_PARTS: i64 = 16;

/// How many Data make up for an Interest that was left out.
/// Waiting a second for each of these costs no more than 4 ms for each Data that it brings.
const DATA_PER_UNANSWERED: u32 = 256;

/// Set in [`Flight::ahead`]: the Interest was sent there although its Data may be here.
const CHOSEN: u32 = 1 << 31;

/// An Interest under way to a next hop.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flight {
    measurement: u32,
    /// Interests under way there when it left, and [`CHOSEN`].
    ahead: u32,
    since: Instant,
}

impl Flight {
    /// An Interest whose flight has ended, or is not measured.
    pub(crate) const NONE: Self = Self { measurement: NONE, ahead: 0, since: Instant::ZERO };

    /// All that is to be kept of it where its beginning is known.
    #[inline(always)]
    pub(crate) fn packed(self) -> (u32, u32) {
        (self.measurement, self.ahead)
    }

    /// The flight of these parts, which began at `since` if it is not over.
    #[inline(always)]
    pub(crate) fn from_packed((measurement, ahead): (u32, u32), since: Instant) -> Self {
        match measurement {
            NONE => Self::NONE,
            _ => Self { measurement, ahead, since },
        }
    }

    fn ahead(&self) -> u32 {
        self.ahead & !CHOSEN
    }

    fn is_chosen(&self) -> bool {
        self.ahead & CHOSEN != 0
    }

    /// When it began; the beginning of time if it has ended, or is not measured.
    pub(crate) fn began_at(&self) -> Instant {
        self.since
    }

    /// Whether it is measured and began at this time.
    pub(crate) fn is_since(&self, at: Instant) -> bool {
        self.measurement != NONE && self.since == at
    }

    /// Whether it has ended, or was never measured.
    pub(crate) fn is_over(&self) -> bool {
        self.measurement == NONE
    }
}

/// How the flight of an Interest ends, apart from Data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FlightEnd {
    /// The next hop has refused it.
    Nack,
    /// There was no answer in time.
    TimeOut,
    /// Another next hop has answered.
    OtherNextHop,
    /// The store has answered, which says nothing of the next hop.
    Store,
}

/// What is known of a next hop of a FIB entry.
#[derive(Debug)]
pub(crate) struct Measurement {
    rtt: RttEstimator,
    in_flight: u32,
    data: u64,
    nacks: u64,
    timeouts: u64,
    /// Nacks, time-outs and what else counts as a failure, since the last Data.
    failures: u32,
    /// [`DATA_PER_UNANSWERED`] for each Interest that it left out, less one for each Data.
    unanswered: u32,
    /// Usual time between two Data, ns; 0 before the second.
    gap_ns: u64,
    last_data_at: Option<Instant>,
    /// Since when nothing has come back although something is under way.
    silent_since: Option<Instant>,
    used_at: Instant,
    /// The FIB does not have the next hop any more.
    is_retired: bool,
    /// What the strategy of the prefix remembers of the next hop.
    pub(crate) strategy_state: u64,
    model: Option<Box<PathModel>>,
}

impl Measurement {
    fn new(now: Instant) -> Self {
        Self {
            rtt: RttEstimator::new(RttConfig::default()),
            in_flight: 0,
            data: 0,
            nacks: 0,
            timeouts: 0,
            failures: 0,
            unanswered: 0,
            gap_ns: 0,
            last_data_at: None,
            silent_since: None,
            used_at: now,
            is_retired: false,
            strategy_state: 0,
            model: None,
        }
    }

    /// The smoothed round-trip time; `None` before the first.
    pub(crate) fn smoothed_rtt_ns(&self) -> Option<u64> {
        self.rtt.smoothed_ns()
    }

    /// The time after which an answer is late (RFC 6298, RTO); `None` before the first.
    pub(crate) fn rto_ns(&self) -> Option<u64> {
        self.rtt.smoothed_ns().map(|_| self.rtt.rto_ns())
    }

    pub(crate) fn data(&self) -> u64 {
        self.data
    }

    /// Interests under way.
    pub(crate) fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Failures in a row: Interests that it has refused or left unanswered.
    pub(crate) fn failures(&self) -> u32 {
        self.failures
    }

    /// Since when no Interest has gone there and none that had has ended, ns.
    pub(crate) fn idle_ns(&self, now: Instant) -> u64 {
        now.ns_since(self.used_at)
    }

    /// So many Interests it should have answered by now.
    pub(crate) fn note_failures(&mut self, count: u32) {
        self.failures = self.failures.saturating_add(count);
    }

    /// Interests that it left out and has not made up for with Data.
    pub(crate) fn unanswered(&self) -> u32 {
        self.unanswered.div_ceil(DATA_PER_UNANSWERED)
    }

    /// It has left out an Interest. No more than `most` are remembered.
    pub(crate) fn note_unanswered(&mut self, most: u32) {
        let most = most.saturating_mul(DATA_PER_UNANSWERED);
        self.unanswered = self.unanswered.saturating_add(DATA_PER_UNANSWERED).min(most);
    }

    /// At least what it has been silent for although something is under way, ns.
    pub(crate) fn silent_ns(&self, now: Instant) -> u64 {
        self.silent_since.map_or(0, |since| now.ns_since(since))
    }

    /// What is known of the queue there.
    pub(crate) fn model(&self) -> Option<&PathModel> {
        self.model.as_deref()
    }

    #[inline(always)]
    fn on_data(&mut self, now: Instant, rtt_ns: Option<u64>) {
        self.data += 1;
        self.failures = 0;
        self.unanswered = self.unanswered.saturating_sub(1);
        self.silent_since = Some(now);
        if let Some(last) = self.last_data_at.replace(now) {
            let error_ns = now.ns_since(last) as i64 - self.gap_ns as i64;
            self.gap_ns = (self.gap_ns as i64 + error_ns / GAP_PARTS).max(0) as u64;
        }
        if let Some(rtt_ns) = rtt_ns {
            self.rtt.sample(rtt_ns, self.in_flight);
        }
    }

    /// A flight there has ended. Says whether it was the last of a next hop that is gone.
    #[inline]
    fn end_flight(&mut self, now: Instant, flight: Flight) -> bool {
        self.in_flight -= 1;
        self.used_at = now;
        if let (Some(model), true) = (&mut self.model, flight.is_chosen()) {
            model.on_flight_end();
        }
        if self.in_flight > 0 {
            return false;
        }
        self.silent_since = None;
        self.is_retired
    }
}

/// The measurements of all next hops of the FIB.
#[derive(Default)]
pub(crate) struct Measurements {
    all: Slab<Measurement>,
    models: usize,
}

impl Measurements {
    /// Begins to measure a next hop. Returns its number.
    pub(crate) fn insert(&mut self, now: Instant) -> u32 {
        match self.all.len() < MEASUREMENTS_MAX {
            true => self.all.insert(Measurement::new(now)),
            false => NONE,
        }
    }

    /// The FIB does not have the next hop any more: forgotten once nothing is under way there.
    pub(crate) fn retire(&mut self, index: u32) {
        if let Some(one) = self.all.get_mut(index) {
            one.is_retired = true;
            if one.in_flight == 0 {
                self.forget(index);
            }
        }
    }

    #[cold]
    fn forget(&mut self, index: u32) {
        self.models -= usize::from(self.all.remove(index).model.is_some());
    }

    pub(crate) fn find(&self, index: u32) -> Option<&Measurement> {
        self.all.get(index)
    }

    pub(crate) fn find_mut(&mut self, index: u32) -> Option<&mut Measurement> {
        self.all.get_mut(index)
    }

    /// An Interest leaves for a next hop.
    #[inline]
    pub(crate) fn begin(&mut self, now: Instant, index: u32) -> Flight {
        let Some(one) = self.all.get_mut(index) else { return Flight::NONE };
        let is_chosen = one.model.as_mut().is_some_and(|model| model.on_sent());
        let ahead = if is_chosen { one.in_flight | CHOSEN } else { one.in_flight };
        one.in_flight += 1;
        one.used_at = now;
        one.silent_since.get_or_insert(now);
        Flight { measurement: index, ahead, since: now }
    }

    /// Data has come from the next hop. `is_first`: the Interest was sent there once only, so that
    /// the round-trip time is known (RFC 6298, 3).
    #[inline(always)]
    pub(crate) fn on_data(&mut self, now: Instant, flight: Flight, is_first: bool) {
        let Some(one) = self.all.get_mut(flight.measurement) else { return };
        let took_ns = now.ns_since(flight.since);
        one.on_data(now, is_first.then_some(took_ns));
        if let (Some(model), true) = (&mut one.model, is_first) {
            model.on_answer(now, flight.since, flight.ahead(), true);
        }
        if one.end_flight(now, flight) {
            self.forget(flight.measurement);
        }
    }

    /// A flight ends without Data from the next hop.
    #[cold]
    pub(crate) fn end(&mut self, now: Instant, flight: Flight, end: FlightEnd) {
        let Some(one) = self.all.get_mut(flight.measurement) else { return };
        one.nacks += u64::from(end == FlightEnd::Nack);
        one.timeouts += u64::from(end == FlightEnd::TimeOut);
        if matches!(end, FlightEnd::Nack | FlightEnd::TimeOut) {
            one.note_failures(1);
        }
        match (&mut one.model, end) {
            (None, _) => {}
            (Some(model), FlightEnd::Store | FlightEnd::OtherNextHop) => model.on_overtaken(now),
            (Some(model), FlightEnd::Nack | FlightEnd::TimeOut) => {
                model.on_answer(now, flight.since, flight.ahead(), false);
            }
        }
        if one.end_flight(now, flight) {
            self.forget(flight.measurement);
        }
    }

    /// Has a model of the queue behind a next hop made from now on.
    pub(crate) fn add_model(&mut self, index: u32) {
        if self.all.get(index).is_none_or(|one| one.model.is_some()) {
            return;
        }
        if self.models >= MODELS_MAX {
            let with_model = self.all.iter().filter(|(_, one)| one.model.is_some());
            let oldest = with_model.min_by_key(|(_, one)| one.used_at).map(|(index, _)| index);
            let Some(oldest) = oldest else { return };
            self.all[oldest].model = None;
            self.models -= 1;
        }
        self.all[index].model = Some(Box::default());
        self.models += 1;
    }

    /// The model of the queue behind a next hop.
    pub(crate) fn model_mut(&mut self, index: u32) -> Option<&mut PathModel> {
        self.all.get_mut(index)?.model.as_deref_mut()
    }

    #[cfg(test)]
    pub(crate) fn models(&self) -> usize {
        self.models
    }
}
