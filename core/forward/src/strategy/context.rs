//! The interface between the router and a strategy.

use alloc::sync::Arc;
use core::fmt::Debug;

use weir_base::{FaceId, Instant, NS_PER_MS, Rng};
use weir_wire::{LpHeader, NackReason};

use super::{Parameter, StrategyError};
use crate::egress::{Egress, OutNack, with_nonce};
use crate::scope::{Scope, scope_of};
use crate::stats::DropReason;
use crate::table::faces::{Face, FaceTable};
use crate::table::fib::{FibNextHop, HopSet};
use crate::table::measurements::{Measurement, Measurements};
use crate::table::pit::{Pit, PitEntry};
use crate::table::records::OutRecord;

/// Exponential suppression of retransmissions (NFD, RetxSuppressionExponential).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Suppression {
    pub(super) initial_ns: u64,
    pub(super) max_ns: u64,
    /// Growth of the interval, in thousandths.
    pub(super) multiplier_milli: u64,
}

impl Default for Suppression {
    fn default() -> Self {
        Self { initial_ns: 10 * NS_PER_MS, max_ns: 250 * NS_PER_MS, multiplier_milli: 2000 }
    }
}

impl Suppression {
    /// The interval of an entry or upstream with this state, which is 0 at first.
    pub(super) fn current_ns(&self, state: u64) -> u64 {
        state.max(self.initial_ns)
    }

    pub(super) fn next_ns(&self, interval_ns: u64) -> u64 {
        (self.current_ns(interval_ns).saturating_mul(self.multiplier_milli) / 1000).min(self.max_ns)
    }
}

pub(crate) trait Behaviour: Debug + Send + Sync {
    /// The highest version. A strategy of NFD has NFD's version.
    fn version(&self) -> u64 {
        5
    }

    /// Whether the strategy has the parameters of exponential suppression.
    fn has_suppression(&self) -> bool {
        true
    }

    /// Creates the strategy with its own parameters, in the order of the name. There is at least
    /// one. Parameters of suppression are not passed to a strategy that has suppression.
    ///
    /// # Errors
    /// If there is no such parameter, or a value is out of range.
    fn with_parameters(&self, own: &[Parameter<'_>]) -> Result<Arc<dyn Behaviour>, StrategyError> {
        Err(own[0].refuse("this strategy has no such parameter"))
    }

    /// Forwards an Interest, either a new one or one that joined a pending entry.
    fn on_interest(&self, suppression: &Suppression, context: &mut Context<'_>);

    /// All next hops that received the Interest have refused it. Returns whether the strategy sent
    /// it to another one. If not, the downstreams receive a Nack.
    fn on_refusal(&self, _context: &mut Context<'_>) -> bool {
        false
    }

    /// The time set with [`Context::wake_after`] is over, and the Interest is still pending.
    fn on_timeout(&self, _context: &mut Context<'_>) {}

    /// Whether the strategy learns routes from prefix announcements.
    fn learns_routes(&self) -> bool {
        false
    }

    /// An upstream has refused the Interest. Only called while a strategy
    /// [learns routes](Self::learns_routes). Returns whether the Interest stays pending even if all
    /// upstreams have refused.
    fn on_nack(&self, _context: &mut Context<'_>, _from: FaceId, _reason: NackReason) -> bool {
        false
    }

    /// Whether the strategy handles pending Interests when a prefix gets a new next hop.
    fn wants_new_next_hops(&self) -> bool {
        false
    }
}

/// One Interest, and what a strategy can do with it.
pub(crate) struct Context<'a> {
    pub(crate) now: Instant,
    pub(crate) pit: &'a mut Pit,
    pub(crate) entry: u32,
    pub(crate) ingress: FaceId,
    /// The link header of the Interest; a plain one if it is unknown.
    pub(crate) header: &'a LpHeader,
    /// The next hops, by rising cost.
    pub(crate) next_hops: &'a [FibNextHop],
    /// The next hops that may be used; `None` means all.
    pub(crate) only: Option<HopSet>,
    pub(crate) lifetime_ns: u64,
    pub(crate) faces: &'a mut FaceTable,
    pub(crate) measurements: &'a mut Measurements,
    pub(crate) egress: &'a mut Egress,
}

impl Context<'_> {
    /// The next hops to which the Interest may go, by rising cost. It may not leave its scope, and
    /// may not go back to its ingress, unless that is an ad hoc face.
    pub(crate) fn eligible(&self) -> impl Iterator<Item = FibNextHop> {
        (0..self.next_hops.len()).filter_map(|position| self.eligible_at(position))
    }

    /// The next hop at this position, if it is eligible.
    #[inline(always)]
    pub(crate) fn eligible_at(&self, position: usize) -> Option<FibNextHop> {
        let hop = *self.next_hops.get(position)?;
        let is_allowed = self.only.is_none_or(|only| only.contains(position));
        (is_allowed && self.is_eligible(&hop)).then_some(hop)
    }

    pub(crate) fn entry(&self) -> &PitEntry {
        self.pit.entry(self.entry)
    }

    #[inline(always)]
    fn is_eligible(&self, hop: &FibNextHop) -> bool {
        self.may_send_to(hop.face)
    }

    /// Whether the Interest may go to this face by its scope and its ingress.
    #[inline(always)]
    pub(crate) fn may_send_to(&self, face: FaceId) -> bool {
        is_eligible(self.faces, self.ingress, self.entry().name_value(), face).is_some()
    }

    /// The measurements of a next hop.
    pub(crate) fn measurement(&self, hop: &FibNextHop) -> Option<&Measurement> {
        self.measurements.find(hop.measurement)
    }

    /// The measurements of a next hop, for changes of the strategy's state.
    pub(crate) fn measurement_mut(&mut self, hop: &FibNextHop) -> Option<&mut Measurement> {
        self.measurements.find_mut(hop.measurement)
    }

    pub(crate) fn is_local(&self, face: FaceId) -> bool {
        self.faces.find(face).is_some_and(|face| face.is_local())
    }

    /// Whether an unanswered Interest is in flight to `hop`.
    pub(crate) fn is_in_use(&self, hop: &FibNextHop) -> bool {
        self.out_record(hop.face).is_some_and(|record| record.expiry > self.now)
    }

    pub(crate) fn out_record(&self, face: FaceId) -> Option<OutRecord> {
        self.entry().upstreams().find(|record| record.face == face)
    }

    /// Sends the Interest to `hop` and records it (NFD, outgoing Interest pipeline). Returns
    /// whether it was sent.
    pub(crate) fn send_interest(&mut self, hop: FibNextHop) -> bool {
        let FibNextHop { face, measurement, .. } = hop;
        if !self.has_hops_left(face) {
            return false;
        }
        let nonce = self.pit.entry(self.entry).nonce();
        self.record_transmission(face, measurement, nonce);
        let entry = self.pit.entry(self.entry);
        let ingress = self.ingress;
        self.egress.interest(face, self.faces.tokens_of(face), ingress, entry);
        true
    }

    /// Records that the Interest is sent to `face` with this nonce.
    #[inline(always)]
    fn record_transmission(&mut self, face: FaceId, measurement: u32, nonce: u32) {
        let entry = self.pit.entry(self.entry);
        let now = self.now;
        let expiry = now.plus_ns(self.lifetime_ns);
        let is_first = !entry.has_upstreams();
        let is_match = |record: OutRecord| record.face == face;
        match if is_first { None } else { entry.upstreams().position(is_match) } {
            Some(at) => {
                let record = &mut self.pit.lists_mut(self.entry).upstreams[at];
                record.nonce = nonce;
                record.sent_at = now;
                record.expiry = expiry;
                record.nacked = None;
                // A flight that is not over continues, so that the retransmission does not hide its
                // age.
                if record.flight.is_over() {
                    record.flight = self.measurements.begin(now, measurement);
                }
            }
            None => {
                let flight = self.measurements.begin(now, measurement);
                let (sent_at, nacked, strategy_state) = (now, None, 0);
                let record =
                    OutRecord { face, nonce, sent_at, expiry, nacked, flight, strategy_state };
                self.pit.add_upstream(self.entry, &record);
            }
        }
    }

    /// Sends a copy of the Interest, which is on its way to another next hop, with this nonce to
    /// `hop`. Returns whether it was sent.
    pub(crate) fn send_probe(&mut self, hop: FibNextHop, nonce: u32) -> bool {
        let FibNextHop { face, measurement, .. } = hop;
        if !self.has_hops_left(face) {
            return false;
        }
        self.record_transmission(face, measurement, nonce);
        let entry = self.pit.entry(self.entry);
        let packet = with_nonce(entry, nonce);
        let tokens = self.faces.tokens_of(face);
        self.egress.interest_as(face, tokens, self.ingress, entry, packet);
        true
    }

    /// Whether the Interest may go to `face` by its HopLimit. Counts it as dropped if not.
    #[inline(always)]
    fn has_hops_left(&mut self, face: FaceId) -> bool {
        let has_left = self.entry().hop_limit != Some(0) || self.is_local(face);
        if !has_left {
            self.egress.drop_packet(DropReason::HopLimitSpent);
        }
        has_left
    }

    /// Sets the strategy's state of an upstream.
    pub(crate) fn set_upstream_state(&mut self, face: FaceId, state: u64) {
        // The usual record is stored inline, and its state is 0. Do not make lists for it.
        let is_usual = self.pit.entry(self.entry).lists().is_none()
            && self.out_record(face).is_none_or(|record| record.strategy_state == state);
        if is_usual {
            return;
        }
        // The record was usually added last.
        let upstreams = &mut self.pit.lists_mut(self.entry).upstreams;
        if let Some(record) = upstreams.iter_mut().rfind(|record| record.face == face) {
            record.strategy_state = state;
        }
    }

    /// Lengthens the suppression interval of an upstream for the next retransmission.
    pub(crate) fn lengthen_upstream_suppression(
        &mut self,
        suppression: &Suppression,
        face: FaceId,
    ) {
        let upstreams = &mut self.pit.lists_mut(self.entry).upstreams;
        if let Some(record) = upstreams.iter_mut().find(|record| record.face == face) {
            record.strategy_state = suppression.next_ns(record.strategy_state);
        }
    }

    /// Random numbers for this Interest. Its sender cannot foresee them, since the hash of the name
    /// has a secret key. The same Interest yields the same numbers again.
    pub(crate) fn rng(&self) -> Rng {
        let entry = self.entry();
        Rng::from_seed(entry.hash ^ u64::from(entry.nonce()))
    }

    /// Schedules a call of [`Behaviour::on_timeout`] after this time, unless the Interest expires
    /// earlier.
    pub(crate) fn wake_after(&mut self, wait_ns: u64) {
        let at = self.now.plus_ns(wait_ns);
        if self.entry().last_expiry().is_some_and(|last| at < last) {
            self.pit.timers.schedule(self.entry, at);
        }
    }

    /// Sends a Nack to every downstream. The router then ends the entry.
    pub(crate) fn reject(&mut self, reason: NackReason) {
        let entry = self.pit.entry_mut(self.entry);
        self.egress.nack_all(self.now, entry, OutNack::own(reason), self.faces);
    }
}

/// The face `egress`, if an Interest from `ingress` may go there.
#[inline(always)]
pub(crate) fn is_eligible<'a>(
    faces: &'a FaceTable,
    ingress: FaceId,
    name_value: &[u8],
    egress: FaceId,
) -> Option<&'a Face> {
    let found = faces.find(egress)?;
    if egress == ingress && !found.is_ad_hoc() {
        return None;
    }
    let is_in_scope = match scope_of(name_value) {
        Scope::Global => true,
        Scope::Localhost => found.is_local(),
        Scope::Localhop => {
            found.is_local() || faces.find(ingress).is_some_and(|face| face.is_local())
        }
    };
    is_in_scope.then_some(found)
}

/// Whether a retransmission may be sent, by the time since the last transmission.
pub(crate) fn may_retransmit(now: Instant, last: Instant, interval_ns: u64) -> bool {
    now.ns_since(last) >= interval_ns
}
