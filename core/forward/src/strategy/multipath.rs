//! multipath: spreads the segments of an object over all next hops (paper
//! multipath-cache-management, 4.1, 4.2, 5.2).
//!
//! Each segment of an object is requested from one next hop. The parameter `part~FACE:FIRST-LAST`
//! makes a face the owner of a range of segments (up to 256 ranges, without overlap). The other
//! segments are spread by weighted round robin. `weight~FACE:N` sets the weight, from 0 to 1000,
//! default 1; a face with weight 0 receives only its own ranges. A next hop is skipped while it has
//! more than its share of the Interests in flight, so a slow router receives fewer.
//!
//! - A next hop that has failed three times in a row is skipped, except for one Interest a second.
//!   A failure is a Nack, a time-out or an overdue answer. A dead next hop thus costs a second,
//!   once for each object and shard.
//! - A refused Interest goes to another next hop at once. A retransmission goes to a next hop that
//!   has not received it. A segment with an owner goes to the owner again. The exception is an
//!   owner that has sent nothing for a second, or has not answered this Interest within a second.
//! - If an owner leaves three segments of its range unanswered, the strategy no longer waits for
//!   it. It waits again when the owner has delivered some hundreds of other segments.
//!
//! Each shard counts turns and Interests in flight on its own (decision 0023).

use alloc::sync::Arc;
use alloc::vec::Vec;

use weir_base::{FaceId, NS_PER_S};
use weir_wire::NackReason;

use super::context::{Behaviour, Context, Suppression};
use super::{Parameter, StrategyError, best_route, parse_number};
use crate::shard::object_and_segment;
use crate::stats::DropReason;
use crate::table::fib::FibNextHop;
use crate::table::measurements::Measurement;

/// Maximum number of ranges, and of weights.
const PARAMETERS_MAX: usize = 256;
const WEIGHT_MAX: u64 = 1000;
/// Length of a turn of a next hop with weight 1. It is divisible by all weights up to 20.
const TURN: u64 = 232_792_560;
/// Maximum number of turns that a busy next hop may make up for.
const TURNS_OWED_MAX: u64 = 8;
/// The turn counter is reduced by this value when it has reached it.
const TURNS_MAX: u64 = 1 << 62;
/// A next hop is skipped after this number of failures in a row. It is tried again when it has been
/// idle for `RETRY_NS`. The time begins when its last Interest ends. Otherwise a consumer with one
/// Interest in flight would try it each time.
const FAILURES_MAX: u32 = 3;
const RETRY_NS: u64 = NS_PER_S;
/// How many smoothed round-trip times an answer may take.
const ROUND_TRIPS_MAX: u64 = 2;
/// Minimum time to wait for an owner. Other hops would have to get the segment from the producer,
/// and a busy machine may stall for longer than any round trip.
const OWNER_WAIT_MIN_NS: u64 = NS_PER_S;
/// Maximum time to wait. Otherwise an owner could set its own limit by delaying its answers.
const OWNER_WAIT_MAX_NS: u64 = 2 * NS_PER_S;
/// Number of unanswered segments after which the strategy no longer waits for an owner.
const UNANSWERED_MAX: u32 = 3;

/// The strategy without parameters.
pub(super) static WITHOUT_PARAMETERS: Multipath =
    Multipath { ranges: Vec::new(), weights: Vec::new() };

#[derive(Debug)]
pub(super) struct Multipath {
    /// Sorted by segment, without overlap.
    ranges: Vec<OwnedRange>,
    /// Weights other than 1.
    weights: Vec<(FaceId, u64)>,
}

/// A range of segments and its owner.
#[derive(Clone, Copy, Debug)]
struct OwnedRange {
    first: u64,
    last: u64,
    face: FaceId,
}

/// A next hop that may get the next turn. A hop with weight 0 receives only its own ranges.
#[derive(Clone, Copy)]
struct Candidate {
    hop: FibNextHop,
    weight: u64,
    in_flight: u64,
    /// When its last turn ends, in units of turn length.
    free_at: u64,
}

impl Candidate {
    fn turn_length(&self) -> u64 {
        TURN / self.weight
    }
}

impl Behaviour for Multipath {
    fn version(&self) -> u64 {
        1
    }

    fn with_parameters(&self, own: &[Parameter<'_>]) -> Result<Arc<dyn Behaviour>, StrategyError> {
        let (mut ranges, mut weights) = (Vec::new(), Vec::new());
        for parameter in own {
            match parameter.key {
                "part" => ranges.push((parse_range(parameter)?, parameter)),
                "weight" => {
                    let (face, weight) = parse_weight(parameter)?;
                    if weights.iter().any(|&(other, _)| other == face) {
                        return Err(parameter.refuse("the face already has a weight"));
                    }
                    weights.push((face, weight));
                }
                _ => return Err(parameter.refuse("this strategy has no such parameter")),
            }
            if ranges.len().max(weights.len()) > PARAMETERS_MAX {
                return Err(parameter.refuse("at most 256 parts and 256 weights are allowed"));
            }
        }
        // `owner_of` searches by bisection, so ranges are sorted and must not overlap.
        ranges.sort_by_key(|(range, _)| range.first);
        for pair in ranges.windows(2) {
            if pair[1].0.first <= pair[0].0.last {
                return Err(pair[1].1.refuse("it overlaps another part"));
            }
        }
        let ranges = ranges.into_iter().map(|(range, _)| range).collect();
        Ok(Arc::new(Self { ranges, weights }))
    }

    fn on_interest(&self, suppression: &Suppression, context: &mut Context<'_>) {
        // Without a segment number there is nothing to spread.
        let Some(segment) = segment_of(context) else {
            return best_route::BestRoute.on_interest(suppression, context);
        };
        let owner = self.owner_of(segment);
        if owner == Some(context.ingress) {
            return self.forward_for_owner(suppression, context);
        }
        let is_pending = best_route::is_pending(context);
        if is_pending && best_route::is_suppressed(suppression, context) {
            return;
        }
        // A retransmission for an owner that may still answer goes to this owner again.
        if let Some(hop) = owner.and_then(|owner| awaited_owner(context, owner)) {
            context.send_interest(hop);
            return best_route::lengthen_suppression(suppression, context);
        }
        self.note_overdue(owner, context);
        // First choice is the owner if it is usable, then round robin. The last resort is a next
        // hop that has already received the Interest.
        let is_sent = self.send_to_new_hop(owner, context) || resend(owner, context);
        match (is_sent, is_pending) {
            (_, true) => best_route::lengthen_suppression(suppression, context),
            (true, false) => {}
            (false, false) => context.reject(NackReason::NoRoute),
        }
    }

    fn on_refusal(&self, context: &mut Context<'_>) -> bool {
        let segment = segment_of(context);
        segment.is_some_and(|segment| self.send_to_new_hop(self.owner_of(segment), context))
    }
}

impl Multipath {
    /// Sends the Interest to a next hop that has not received it, preferably to the owner. Returns
    /// `false` if there is none.
    fn send_to_new_hop(&self, owner: Option<FaceId>, context: &mut Context<'_>) -> bool {
        let is_new = |hop: &FibNextHop| context.out_record(hop.face).is_none();
        let may_use = |hop: &FibNextHop| is_new(hop) && is_usable(context, hop);
        let of_owner = owner.and_then(|owner| {
            context.eligible().find(|hop| hop.face == owner).filter(|hop| may_use(hop))
        });
        if let Some(hop) = of_owner {
            context.send_interest(hop);
            return true;
        }
        let chosen = self.choose(context, may_use).or_else(|| self.choose(context, is_new));
        let Some((hop, free_at)) = chosen else { return false };
        if context.send_interest(hop) {
            end_turn(context, &hop, free_at);
            count_diverted(owner, &hop, context);
        }
        true
    }

    /// Handles a retransmission: counts a failure for next hops that should have answered by now.
    /// Only a retransmission can show this, because an answer of another hop ends the entry. An
    /// owner fails only if it has sent nothing at all for a long time, so a slow owner stays in
    /// use. Each segment that it left unanswered is also counted. Otherwise the strategy would wait
    /// each time for an owner that delivers only some segments.
    fn note_overdue(&self, owner: Option<FaceId>, context: &mut Context<'_>) {
        let (now, hops) = (context.now, context.next_hops);
        let is_first = context.entry().upstreams().all(|record| Some(record.face) == owner);
        for hop in hops {
            let Some(record) = context.out_record(hop.face).filter(|one| one.nacked.is_none())
            else {
                continue;
            };
            let owns_range = self.ranges.iter().any(|range| range.face == hop.face);
            let Some(measured) = context.measurement_mut(hop) else { continue };
            if owns_range {
                let wait_ns = owner_wait_ns(measured);
                let waited_ns = now.ns_since(record.flight.began_at());
                if is_first && !record.flight.is_over() && waited_ns > wait_ns {
                    measured.note_unanswered(UNANSWERED_MAX);
                }
                if measured.silent_ns(now) > wait_ns {
                    measured.note_failures(FAILURES_MAX);
                }
            } else if now.ns_since(record.sent_at) > ROUND_TRIPS_MAX * rtt_ns(measured) {
                measured.note_failures(1);
            }
        }
    }

    /// Forwards an Interest from the owner of its segment, by the cheapest path. Round robin might
    /// send it back to the owner, which does not answer its own Interests.
    fn forward_for_owner(&self, suppression: &Suppression, context: &mut Context<'_>) {
        let (now, owner) = (context.now, context.ingress);
        let records = context.entry().upstreams();
        let pending = records.filter(|record| record.expiry > now).map(|record| record.face);
        let (is_pending, was_sent_to_others) =
            pending.fold((false, false), |(_, others), face| (true, others || face != owner));
        if was_sent_to_others {
            return best_route::on_retransmission(suppression, context);
        }
        let is_other = |hop: &FibNextHop| self.weight(hop.face) > 0 && is_usable(context, hop);
        let cheapest = context.eligible().find(is_other).or_else(|| context.eligible().next());
        match cheapest {
            Some(hop) => {
                context.send_interest(hop);
            }
            // The owner may have another path.
            None if is_pending => context.egress.drop_packet(DropReason::NoNextHop),
            None => context.reject(NackReason::NoRoute),
        }
    }

    fn weight(&self, face: FaceId) -> u64 {
        let weight = self.weights.iter().find(|&&(other, _)| other == face);
        weight.map_or(1, |&(_, weight)| weight)
    }

    /// The owner of the range that a segment lies in.
    fn owner_of(&self, segment: u64) -> Option<FaceId> {
        let end = self.ranges.partition_point(|range| range.first <= segment);
        let range = self.ranges[..end].last()?;
        (segment <= range.last).then_some(range.face)
    }

    /// Considers only next hops with less than their share in flight. Chooses the hop whose turn
    /// begins first, and returns it with the end of its turn.
    fn choose(
        &self,
        context: &Context<'_>,
        may_use: impl Fn(&FibNextHop) -> bool,
    ) -> Option<(FibNextHop, u64)> {
        let candidates = || {
            let hops = context.eligible().filter(|hop| may_use(hop));
            let candidates = hops.map(|hop| self.candidate(context, hop));
            candidates.filter(|candidate| candidate.weight > 0)
        };
        // Includes the Interest that is about to be sent.
        let (mut in_flight, mut weights, mut now) = (1, 0, 0);
        for candidate in candidates() {
            in_flight += candidate.in_flight;
            weights += candidate.weight;
            // The start of the latest turn of all.
            now = candidate.free_at.saturating_sub(candidate.turn_length()).max(now);
        }
        let has_room = |candidate: &Candidate| {
            candidate.in_flight < (in_flight * candidate.weight).div_ceil(weights)
        };
        let turn = |candidate: Candidate| {
            let owed = TURNS_OWED_MAX * candidate.turn_length();
            (candidate.free_at.max(now.saturating_sub(owed)), candidate)
        };
        // The turn that begins first wins. A hop that was busy may make up for missed turns, but
        // for at most 8.
        let (begin, next) =
            candidates().filter(has_room).map(turn).min_by_key(|&(begin, _)| begin)?;
        Some((next.hop, begin + next.turn_length()))
    }

    fn candidate(&self, context: &Context<'_>, hop: FibNextHop) -> Candidate {
        let measured = context.measurement(&hop);
        Candidate {
            hop,
            weight: self.weight(hop.face),
            in_flight: measured.map_or(0, |measured| measured.in_flight().into()),
            free_at: measured.map_or(0, |measured| measured.strategy_state),
        }
    }
}

/// The segment number that an Interest requests.
fn segment_of(context: &Context<'_>) -> Option<u64> {
    object_and_segment(context.entry().name_value())?.1
}

/// Whether a next hop answers, or is due for another try. A hop without measurements counts as
/// unusable, so it is used only if there is no other.
fn is_usable(context: &Context<'_>, hop: &FibNextHop) -> bool {
    let Some(measured) = context.measurement(hop) else { return false };
    let is_due = || measured.in_flight() == 0 && measured.idle_ns(context.now) >= RETRY_NS;
    !hop.is_distrusted && (measured.failures() < FAILURES_MAX || is_due())
}

/// Records the turn of a next hop.
fn end_turn(context: &mut Context<'_>, hop: &FibNextHop, free_at: u64) {
    if let Some(measured) = context.measurement_mut(hop) {
        measured.strategy_state = free_at;
    }
    if free_at >= TURNS_MAX {
        let hops = context.next_hops;
        for hop in hops {
            if let Some(measured) = context.measurement_mut(hop) {
                measured.strategy_state = measured.strategy_state.saturating_sub(TURNS_MAX);
            }
        }
    }
}

/// The owner of a pending Interest, if the Interest must be sent to it again and to no other. It
/// must not have refused the Interest, and must not have left too many segments unanswered. Neither
/// this Interest nor the owner's silence may be older than the waiting time.
fn awaited_owner(context: &Context<'_>, owner: FaceId) -> Option<FibNextHop> {
    let hop = context.eligible().find(|hop| hop.face == owner)?;
    let record = context.out_record(owner)?;
    let is_pending = record.nacked.is_none() && record.expiry > context.now;
    let measured = context.measurement(&hop)?;
    // The strategy does not wait for an owner that has already failed.
    let is_trusted = !hop.is_distrusted
        && measured.failures() < FAILURES_MAX
        && measured.unanswered() < UNANSWERED_MAX;
    let pending_ns = context.now.ns_since(record.flight.began_at());
    let waited_ns = pending_ns.max(measured.silent_ns(context.now));
    (is_pending && is_trusted && waited_ns <= owner_wait_ns(measured)).then_some(hop)
}

/// How long to wait for the owner of a segment.
fn owner_wait_ns(measured: &Measurement) -> u64 {
    (ROUND_TRIPS_MAX * rtt_ns(measured)).clamp(OWNER_WAIT_MIN_NS, OWNER_WAIT_MAX_NS)
}

/// The smoothed round-trip time; 0 before the first answer.
fn rtt_ns(measured: &Measurement) -> u64 {
    measured.smoothed_rtt_ns().unwrap_or(0)
}

/// Counts an Interest that goes to another next hop than the owner.
fn count_diverted(owner: Option<FaceId>, hop: &FibNextHop, context: &mut Context<'_>) {
    let is_diverted = owner.is_some_and(|owner| owner != hop.face);
    context.egress.stats.parts_passed_by += u64::from(is_diverted);
}

/// Sends the Interest again, to the next hop that refused it or received it longest ago. Returns
/// `false` if no next hop is eligible.
fn resend(owner: Option<FaceId>, context: &mut Context<'_>) -> bool {
    let rank = |hop: &FibNextHop| {
        context.out_record(hop.face).map(|record| (record.nacked.is_some(), record.sent_at))
    };
    let Some(hop) = context.eligible().min_by_key(rank) else {
        context.egress.drop_packet(DropReason::NoNextHop);
        return false;
    };
    if context.send_interest(hop) {
        count_diverted(owner, &hop, context);
    }
    true
}

/// `FACE:FIRST-LAST`: the face owns these segments.
fn parse_range(parameter: &Parameter<'_>) -> Result<OwnedRange, StrategyError> {
    let parse = || {
        let (face, range) = parameter.value.split_once(':')?;
        let (first, last) = range.split_once('-')?;
        let face = FaceId(parse_number(face)?);
        Some(OwnedRange { first: parse_number(first)?, last: parse_number(last)?, face })
    };
    let range = parse()
        .ok_or_else(|| parameter.refuse("it must have the form part~<face>:<first>-<last>"))?;
    match range.first <= range.last {
        true => Ok(range),
        false => Err(parameter.refuse("its last segment is before its first")),
    }
}

/// `FACE:N`.
fn parse_weight(parameter: &Parameter<'_>) -> Result<(FaceId, u64), StrategyError> {
    let parse = || {
        let (face, weight) = parameter.value.split_once(':')?;
        Some((FaceId(parse_number(face)?), parse_number(weight)?))
    };
    let parsed =
        parse().ok_or_else(|| parameter.refuse("it must have the form weight~<face>:<number>"))?;
    match parsed.1 <= WEIGHT_MAX {
        true => Ok(parsed),
        false => Err(parameter.refuse("the weight must be from 0 to 1000")),
    }
}
