//! Measurements of the next hops of FIB entries: round-trip times, losses, and Interests in flight.
//! They change with every Interest that is sent and with every event that ends it.

use alloc::boxed::Box;

use weir_base::{FaceId, Instant, NS_PER_S, RttConfig, RttEstimator, Slab};

use crate::table::path_model::PathModel;
use crate::table::prefix_hops::{PrefixHop, PrefixHops, namespace_of};

/// Maximum number of measured next hops; further ones are not measured.
const MEASUREMENTS_MAX: usize = 1 << 16;
/// Maximum number of next hops with a queue model. Beyond it, the least recently used model is
/// dropped.
pub(crate) const MODELS_MAX: usize = 1024;
const NONE: u32 = u32::MAX;
/// A namespace has a working next hop for this long after its last Data (NFD, `AccessStrategy`).
const WORKING_NS: u64 = 8 * NS_PER_S;
/// 1 / weight of the last gap between two Data in the average.
const GAP_PARTS: i64 = 16;

/// How many Data compensate for one unanswered Interest. Waiting a second for each unanswered
/// Interest then costs at most 4 ms for each Data.
const DATA_PER_UNANSWERED: u32 = 256;

/// Set in [`Flight::ahead`]: the Interest was sent there by choice, because a disk of this router
/// may have its Data.
const CHOSEN: u32 = 1 << 31;

/// An Interest in flight to a next hop.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flight {
    measurement: u32,
    /// Interests in flight there when it was sent, and [`CHOSEN`].
    ahead: u32,
    since: Instant,
}

impl Flight {
    /// An Interest whose flight has ended, or is not measured.
    pub(crate) const NONE: Self = Self { measurement: NONE, ahead: 0, since: Instant::ZERO };

    /// The fields of a flight except its start, which the caller stores elsewhere.
    #[inline(always)]
    pub(crate) fn packed(self) -> (u32, u32) {
        (self.measurement, self.ahead)
    }

    /// The reverse of [`Flight::packed`]: `since` is the start of the flight.
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

    /// When the flight began; zero if it has ended or is not measured.
    pub(crate) fn began_at(&self) -> Instant {
        self.since
    }

    /// Whether the flight is measured and began at this time.
    pub(crate) fn is_since(&self, at: Instant) -> bool {
        self.measurement != NONE && self.since == at
    }

    /// Whether the flight has ended or was never measured.
    pub(crate) fn is_over(&self) -> bool {
        self.measurement == NONE
    }
}

/// How the flight of an Interest ends without Data from the next hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FlightEnd {
    /// The next hop has refused it.
    Nack,
    /// No answer arrived in time.
    TimeOut,
    /// Another next hop has answered.
    OtherNextHop,
    /// The store has answered; this says nothing about the next hop.
    Store,
}

/// The measurements of one next hop of a FIB entry.
#[derive(Debug)]
pub(crate) struct Measurement {
    rtt: RttEstimator,
    in_flight: u32,
    data: u64,
    nacks: u64,
    timeouts: u64,
    /// Nacks, time-outs and other failures since the last Data.
    failures: u32,
    /// [`DATA_PER_UNANSWERED`] for each Interest that it did not answer, minus one for each Data.
    unanswered: u32,
    /// Average time between two Data, ns; 0 before the second.
    gap_ns: u64,
    last_data_at: Option<Instant>,
    /// Since when the next hop has sent nothing, although Interests are in flight.
    silent_since: Option<Instant>,
    used_at: Instant,
    /// The FIB no longer has the next hop.
    is_retired: bool,
    /// One of the failures was a Nack. It has no meaning without failures.
    has_refused: bool,
    /// State of the prefix's strategy for this next hop.
    pub(crate) strategy_state: u64,
    /// When the strategy of the prefix probes a next hop; zero if it has not chosen a time.
    pub(crate) probe_at: Instant,
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
            has_refused: false,
            strategy_state: 0,
            probe_at: Instant::ZERO,
            model: None,
        }
    }

    /// The smoothed round-trip time; `None` before the first sample.
    pub(crate) fn smoothed_rtt_ns(&self) -> Option<u64> {
        self.rtt.smoothed_ns()
    }

    /// The retransmission timeout (RFC 6298, RTO); `None` before the first sample.
    pub(crate) fn rto_ns(&self) -> Option<u64> {
        self.rtt.smoothed_ns().map(|_| self.rtt.rto_ns())
    }

    pub(crate) fn data(&self) -> u64 {
        self.data
    }

    pub(crate) fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Failures in a row: Interests that it has refused or not answered.
    pub(crate) fn failures(&self) -> u32 {
        self.failures
    }

    /// Whether it has refused an Interest since its last Data.
    pub(crate) fn has_refused(&self) -> bool {
        self.failures > 0 && self.has_refused
    }

    /// Forgets round-trip times, failures and the strategy's state, as if it were a new next hop.
    pub(crate) fn restart(&mut self) {
        self.rtt = RttEstimator::new(RttConfig::default());
        self.last_data_at = None;
        (self.failures, self.unanswered, self.strategy_state) = (0, 0, 0);
    }

    /// The strategy of the prefix is another one now, and starts without state.
    pub(crate) fn reset_strategy(&mut self) {
        (self.strategy_state, self.probe_at) = (0, Instant::ZERO);
    }

    pub(crate) fn last_data_at(&self) -> Option<Instant> {
        self.last_data_at
    }

    /// Time since the last Interest to this next hop was sent or ended, ns.
    pub(crate) fn idle_ns(&self, now: Instant) -> u64 {
        now.ns_since(self.used_at)
    }

    /// Counts `count` Interests that should have been answered by now.
    pub(crate) fn note_failures(&mut self, count: u32) {
        self.has_refused &= self.failures > 0;
        self.failures = self.failures.saturating_add(count);
    }

    /// Unanswered Interests that later Data has not compensated for.
    pub(crate) fn unanswered(&self) -> u32 {
        self.unanswered.div_ceil(DATA_PER_UNANSWERED)
    }

    /// Counts an unanswered Interest. At most `most` are remembered.
    pub(crate) fn note_unanswered(&mut self, most: u32) {
        let most = most.saturating_mul(DATA_PER_UNANSWERED);
        self.unanswered = self.unanswered.saturating_add(DATA_PER_UNANSWERED).min(most);
    }

    /// How long the next hop has sent nothing although Interests are in flight, ns; a lower bound.
    pub(crate) fn silent_ns(&self, now: Instant) -> u64 {
        self.silent_since.map_or(0, |since| now.ns_since(since))
    }

    /// The model of the queue there.
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

    /// Ends a flight. Returns whether it was the last one of a retired next hop.
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

/// The next hop that has answered last in the namespace of a name.
pub(crate) struct WorkingHop {
    pub(crate) face: FaceId,
    /// Its retransmission timeout.
    pub(crate) rto_ns: u64,
}

/// The measurements of all next hops of the FIB, and of the next hops of longer namespaces.
#[derive(Default)]
pub(crate) struct Measurements {
    all: Slab<Measurement>,
    models: usize,
    prefix_hops: PrefixHops,
}

impl Measurements {
    /// Begins to measure a next hop. Returns its index.
    pub(crate) fn insert(&mut self, now: Instant) -> u32 {
        match self.all.len() < MEASUREMENTS_MAX {
            true => self.all.insert(Measurement::new(now)),
            false => NONE,
        }
    }

    /// The FIB no longer has the next hop. Its measurements are removed when nothing is in flight
    /// there.
    pub(crate) fn retire(&mut self, index: u32) {
        if let Some(measured) = self.all.get_mut(index) {
            measured.is_retired = true;
            if measured.in_flight == 0 {
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

    /// The next hop that has answered last in the longest namespace of a name with a working next
    /// hop.
    pub(crate) fn working_hop(&self, now: Instant, name_value: &[u8]) -> Option<WorkingHop> {
        let working = |hop: &PrefixHop| {
            let measured = self.find(hop.measurement)?;
            let last = measured.last_data_at.filter(|&at| now.ns_since(at) < WORKING_NS)?;
            Some((last, WorkingHop { face: hop.face, rto_ns: measured.rtt.rto_ns() }))
        };
        self.prefix_hops.of_name(name_value).find_map(|hops| {
            let latest = hops.iter().filter_map(working).max_by_key(|&(at, _)| at);
            latest.map(|(_, hop)| hop)
        })
    }

    /// The measurements of `face` in the namespace of an Interest. They begin here if there are
    /// none.
    pub(crate) fn index_for(
        &mut self,
        now: Instant,
        name_value: &[u8],
        can_be_prefix: bool,
        face: FaceId,
    ) -> u32 {
        let namespace = namespace_of(name_value, can_be_prefix);
        if let Some(known) = self.prefix_hops.find(namespace, face) {
            return known;
        }
        if self.prefix_hops.is_full() {
            let all = &self.all;
            let is_used =
                |index| all.get(index).is_some_and(|measured| measured.idle_ns(now) < WORKING_NS);
            self.prefix_hops.make_room(is_used).into_iter().for_each(|index| self.retire(index));
        }
        let measurement = self.insert(now);
        if measurement != NONE {
            self.prefix_hops.insert(namespace, PrefixHop { face, measurement });
        }
        measurement
    }

    /// An Interest is sent to a next hop.
    #[inline]
    pub(crate) fn begin(&mut self, now: Instant, index: u32) -> Flight {
        let Some(measured) = self.all.get_mut(index) else { return Flight::NONE };
        let is_chosen = measured.model.as_mut().is_some_and(|model| model.on_sent());
        let ahead = if is_chosen { measured.in_flight | CHOSEN } else { measured.in_flight };
        measured.in_flight += 1;
        measured.used_at = now;
        measured.silent_since.get_or_insert(now);
        Flight { measurement: index, ahead, since: now }
    }

    /// Data arrived from the next hop. `is_first` means that the Interest was sent there only once,
    /// so the round-trip time is unambiguous (RFC 6298, 3).
    #[inline(always)]
    pub(crate) fn on_data(&mut self, now: Instant, flight: Flight, is_first: bool) {
        let Some(measured) = self.all.get_mut(flight.measurement) else { return };
        let took_ns = now.ns_since(flight.since);
        measured.on_data(now, is_first.then_some(took_ns));
        if let (Some(model), true) = (&mut measured.model, is_first) {
            model.on_answer(now, flight.since, flight.ahead(), true);
        }
        if measured.end_flight(now, flight) {
            self.forget(flight.measurement);
        }
    }

    /// A flight ends without Data from the next hop.
    #[cold]
    pub(crate) fn end(&mut self, now: Instant, flight: Flight, end: FlightEnd) {
        let Some(measured) = self.all.get_mut(flight.measurement) else { return };
        measured.nacks += u64::from(end == FlightEnd::Nack);
        measured.timeouts += u64::from(end == FlightEnd::TimeOut);
        // An answer from elsewhere is no failure of this next hop.
        if matches!(end, FlightEnd::Nack | FlightEnd::TimeOut) {
            measured.note_failures(1);
            measured.has_refused |= end == FlightEnd::Nack;
        }
        match (&mut measured.model, end) {
            (None, _) => {}
            (Some(model), FlightEnd::Store | FlightEnd::OtherNextHop) => model.on_overtaken(now),
            (Some(model), FlightEnd::Nack | FlightEnd::TimeOut) => {
                model.on_answer(now, flight.since, flight.ahead(), false);
            }
        }
        if measured.end_flight(now, flight) {
            self.forget(flight.measurement);
        }
    }

    /// Creates a model of the queue behind a next hop, if there is none.
    pub(crate) fn add_model(&mut self, index: u32) {
        if self.all.get(index).is_none_or(|measured| measured.model.is_some()) {
            return;
        }
        // Models are large, so the least recently used one is dropped.
        if self.models >= MODELS_MAX {
            let with_model = self.all.iter().filter(|(_, measured)| measured.model.is_some());
            let oldest =
                with_model.min_by_key(|(_, measured)| measured.used_at).map(|(index, _)| index);
            let Some(oldest) = oldest else { return };
            self.all[oldest].model = None;
            self.models -= 1;
        }
        self.all[index].model = Some(Box::default());
        self.models += 1;
    }

    pub(crate) fn model_mut(&mut self, index: u32) -> Option<&mut PathModel> {
        self.all.get_mut(index)?.model.as_deref_mut()
    }

    #[cfg(test)]
    pub(crate) fn models(&self) -> usize {
        self.models
    }
}
