//! asf, version 5 of NFD: adaptive forwarding by smoothed round-trip times (NFD fe044ce3,
//! `daemon/fw/asf-strategy.cpp`; technical report NDN-0042).
//!
//! Each next hop of a prefix is in one of three groups: it works, it is unmeasured, or it has timed
//! out. An Interest goes to the working hop with the shortest smoothed round-trip time. If there is
//! none, it goes to the cheapest unmeasured hop. If there is none either, it goes to the cheapest
//! one that has timed out.
//!
//! - **Timeouts.** A hop that sends nothing within the retransmission timeout after an Interest has
//!   one silent timeout. Only an Interest sent after the last timeout counts for the next one, so
//!   a burst counts once. After `max-timeouts~N` (3) in a row the hop has timed out. One Nack is
//!   enough. Data makes it work again.
//! - **Probes.** After a random time of up to 5 s, and then each `probing-interval~MS` (60 s, at
//!   least 1 s), one new Interest also goes to another hop, with a nonce of its own. An unmeasured
//!   hop is probed first. Otherwise a better rank is more likely: of n hops, the first has weight
//!   n and the last has weight 1.
//! - A hop that is unused for `measurements-lifetime~MS` (5 min) is unmeasured again. It must be
//!   longer than the probing interval.
//! - **Retransmissions** go to the best hop that has not received the Interest, and then to the one
//!   that received it longest ago. They are suppressed for each upstream.
//!
//! Measurements belong to next hops of FIB entries, as in NFD, and each shard has its own. Two
//! things differ from NFD:
//!
//! - NFD keeps a satisfied Interest for another 50 ms, to measure a slower probe. Here the first
//!   Data ends the entry. A hop whose probe was overtaken stays unmeasured, but is no longer probed
//!   before others.
//! - An Interest with a lifetime below the retransmission timeout times out shortly before its end.

use alloc::sync::Arc;

use weir_base::{FaceId, Instant, NS_PER_MS, NS_PER_S, Rng};
use weir_wire::NackReason;

use super::context::{Behaviour, Context, Suppression, may_retransmit};
use super::{Parameter, StrategyError, parse_number};
use crate::stats::DropReason;
use crate::table::fib::FibNextHop;
use crate::table::measurements::Measurement;
use crate::table::records::OutRecord;

/// The first probe follows the first Interest of a prefix within this time.
const FIRST_PROBE_MS_MAX: u32 = 5000;
const PROBING_INTERVAL_NS_MIN: u64 = NS_PER_S;
/// How long the strategy waits for a next hop that has never answered (the initial timeout of
/// ndn-cxx's `RttEstimator`).
const FIRST_WAIT_NS: u64 = NS_PER_S;

/// The strategy with NFD's default parameters.
pub(super) static DEFAULT: Asf = Asf {
    probing_interval_ns: 60 * NS_PER_S,
    timeouts_max: 3,
    measurements_lifetime_ns: 300 * NS_PER_S,
};

#[derive(Clone, Copy, Debug)]
pub(super) struct Asf {
    probing_interval_ns: u64,
    timeouts_max: u64,
    measurements_lifetime_ns: u64,
}

/// The groups of next hops, in the order of use.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Group {
    Working,
    Unmeasured,
    TimedOut,
}

/// Lower is better: group, smoothed round-trip time, cost, face. Distrusted next hops are last.
type Rank = (bool, u8, u64, u64, FaceId);

/// The state that a next hop's measurements keep for this strategy, in one number.
#[derive(Clone, Copy)]
struct HopState {
    /// Silent timeouts in a row, below [`TIMEOUTS_MAX`].
    timeouts: u64,
    has_timed_out: bool,
    was_probed: bool,
    /// When the last timeout was counted, in steps of 65 us.
    counted_at: Instant,
}

/// The lowest bits of a [`HopState`] are its number of timeouts and two flags. The others are a
/// time.
const TIMEOUTS_MAX: u64 = (1 << 14) - 1;
const TIMED_OUT: u64 = 1 << 14;
const PROBED: u64 = 1 << 15;
const TIME_MASK: u64 = !0xFFFF;

impl HopState {
    /// The state of a next hop. Data since the last timeout proves that it works.
    fn of(measured: &Measurement) -> Self {
        let bits = measured.strategy_state;
        let counted_at = Instant::from_ns(bits & TIME_MASK);
        let has_answered = measured.last_data_at().is_some_and(|at| at > counted_at);
        Self {
            timeouts: if has_answered { 0 } else { bits & TIMEOUTS_MAX },
            has_timed_out: !has_answered && bits & TIMED_OUT != 0,
            was_probed: bits & PROBED != 0,
            counted_at,
        }
    }

    fn write_to(self, measured: &mut Measurement) {
        let timed_out = if self.has_timed_out { TIMED_OUT } else { 0 };
        let probed = if self.was_probed { PROBED } else { 0 };
        let time = self.counted_at.as_ns() & TIME_MASK;
        measured.strategy_state = time | probed | timed_out | self.timeouts.min(TIMEOUTS_MAX);
    }
}

impl Behaviour for Asf {
    fn with_parameters(&self, own: &[Parameter<'_>]) -> Result<Arc<dyn Behaviour>, StrategyError> {
        let mut asf = *self;
        for parameter in own {
            match parameter.key {
                "probing-interval" => {
                    asf.probing_interval_ns = parse_ms(parameter)?;
                    if asf.probing_interval_ns < PROBING_INTERVAL_NS_MIN {
                        return Err(parameter.refuse("it must be at least 1000 ms"));
                    }
                }
                "measurements-lifetime" => asf.measurements_lifetime_ns = parse_ms(parameter)?,
                "max-timeouts" => {
                    let count = parse_number(parameter.value);
                    asf.timeouts_max = count
                        .filter(|&count| count <= TIMEOUTS_MAX)
                        .ok_or_else(|| parameter.refuse("it must be a number from 0 to 16383"))?;
                }
                _ => return Err(parameter.refuse("this strategy has no such parameter")),
            }
        }
        // The bound depends on two parameters, so it is checked after all have been read.
        if asf.measurements_lifetime_ns <= asf.probing_interval_ns {
            let reason = "it must be longer than probing-interval";
            return Err(StrategyError::BadParameter("measurements-lifetime".into(), reason));
        }
        Ok(Arc::new(asf))
    }

    fn on_interest(&self, suppression: &Suppression, context: &mut Context<'_>) {
        if is_pending(context) {
            return self.on_retransmission(suppression, context);
        }
        let best = context.eligible().min_by_key(|hop| self.forwarding_rank(context, hop));
        let Some(best) = best else {
            context.egress.drop_packet(DropReason::NoNextHop);
            return context.reject(NackReason::NoRoute);
        };
        if self.send(context, best) {
            self.probe(context, &best);
            self.watch(context);
        }
    }

    fn on_timeout(&self, context: &mut Context<'_>) {
        self.watch(context);
    }
}

impl Asf {
    /// Handles an Interest that joined a pending entry.
    fn on_retransmission(&self, suppression: &Suppression, context: &mut Context<'_>) {
        let unused = context
            .eligible()
            .filter(|hop| !context.is_in_use(hop))
            .min_by_key(|hop| self.forwarding_rank(context, hop));
        let last_sent = |hop: &FibNextHop| context.out_record(hop.face).map(|it| it.sent_at);
        let Some(hop) = unused.or_else(|| context.eligible().min_by_key(last_sent)) else {
            return context.egress.drop_packet(DropReason::NoNextHop);
        };
        let record = context.out_record(hop.face);
        if record.is_some_and(|record| is_too_early(context.now, suppression, &record)) {
            return context.egress.drop_packet(DropReason::Suppressed);
        }
        if self.send(context, hop) {
            if record.is_some() {
                context.lengthen_upstream_suppression(suppression, hop.face);
            }
            self.watch(context);
        }
    }

    /// Sends the Interest to `hop`.
    fn send(&self, context: &mut Context<'_>, hop: FibNextHop) -> bool {
        self.forget_old(context, &hop);
        context.send_interest(hop)
    }

    /// Discards the measurements of a hop whose lifetime is over.
    fn forget_old(&self, context: &mut Context<'_>, hop: &FibNextHop) {
        let now = context.now;
        if let Some(measured) = context.measurement_mut(hop)
            && measured.idle_ns(now) >= self.measurements_lifetime_ns
        {
            measured.restart();
        }
    }

    fn group(&self, now: Instant, measured: &Measurement) -> Group {
        if measured.idle_ns(now) >= self.measurements_lifetime_ns {
            return Group::Unmeasured;
        }
        if measured.has_refused() || HopState::of(measured).has_timed_out {
            return Group::TimedOut;
        }
        match measured.smoothed_rtt_ns() {
            Some(_) => Group::Working,
            None => Group::Unmeasured,
        }
    }

    fn forwarding_rank(&self, context: &Context<'_>, hop: &FibNextHop) -> Rank {
        let measured = context.measurement(hop);
        let group = measured.map_or(Group::Unmeasured, |it| self.group(context.now, it));
        let rtt_ns = match group {
            Group::Working => measured.and_then(Measurement::smoothed_rtt_ns),
            Group::Unmeasured | Group::TimedOut => None,
        };
        (hop.is_distrusted, group as u8, rtt_ns.unwrap_or(u64::MAX), hop.cost, hop.face)
    }

    /// Like [`Self::forwarding_rank`], but unmeasured hops are first, until they have been probed.
    fn probing_rank(&self, context: &Context<'_>, hop: &FibNextHop) -> Rank {
        let (is_distrusted, group, rtt_ns, cost, face) = self.forwarding_rank(context, hop);
        let group = if self.is_unmeasured(context, hop) {
            0
        } else if group == Group::TimedOut as u8 {
            2
        } else {
            1
        };
        (is_distrusted, group, rtt_ns, cost, face)
    }

    /// Whether a hop has no measurement, and no probe was sent to find one.
    fn is_unmeasured(&self, context: &Context<'_>, hop: &FibNextHop) -> bool {
        context.measurement(hop).is_none_or(|measured| {
            let is_forgotten = measured.idle_ns(context.now) >= self.measurements_lifetime_ns;
            self.group(context.now, measured) == Group::Unmeasured
                && (is_forgotten || !HopState::of(measured).was_probed)
        })
    }

    /// Sends a copy of a new Interest to a next hop other than `used`, if a probe is due.
    fn probe(&self, context: &mut Context<'_>, used: &FibNextHop) {
        if context.next_hops.len() < 2 {
            return;
        }
        let (now, hops) = (context.now, context.next_hops);
        // All next hops of the prefix have the same time, except new ones, which have none.
        let times = hops.iter().filter_map(|hop| context.measurement(hop));
        let Some(due_at) = times.map(|measured| measured.probe_at).max() else { return };
        if due_at == Instant::ZERO {
            let wait_ms = context.rng().below(FIRST_PROBE_MS_MAX + 1);
            return set_probe_time(context, now.plus_ns(u64::from(wait_ms) * NS_PER_MS));
        }
        if now < due_at {
            return;
        }
        let mut rng = context.rng();
        let Some(hop) = self.hop_to_probe(context, used, &mut rng) else { return };
        self.forget_old(context, &hop);
        // The nonce of the Interest itself would look like a loop where the two paths meet.
        let nonce = rng.next_u32();
        let nonce = if nonce == context.entry().nonce() { !nonce } else { nonce };
        if context.send_probe(hop, nonce) {
            if let Some(measured) = context.measurement_mut(&hop) {
                HopState { was_probed: true, ..HopState::of(measured) }.write_to(measured);
            }
            set_probe_time(context, now.plus_ns(self.probing_interval_ns));
        }
    }

    /// The best unmeasured next hop. If there is none, any of them, by weighted chance.
    fn hop_to_probe(
        &self,
        context: &Context<'_>,
        used: &FibNextHop,
        rng: &mut Rng,
    ) -> Option<FibNextHop> {
        let (used, ingress) = (used.face, context.ingress);
        let others = || {
            let hops = context.eligible();
            hops.filter(move |hop| hop.face != used && hop.face != ingress)
        };
        let rank = |hop: &FibNextHop| self.probing_rank(context, hop);
        let best = others().min_by_key(rank)?;
        if self.is_unmeasured(context, &best) {
            return Some(best);
        }
        let count = others().count() as u32;
        let mut number = rng.below(count * (count + 1) / 2);
        let mut chosen = best;
        for weight in (1..=count).rev() {
            if number < weight {
                break;
            }
            number -= weight;
            let last = rank(&chosen);
            chosen = others().filter(|hop| rank(hop) > last).min_by_key(rank)?;
        }
        Some(chosen)
    }

    /// Counts the timeouts of the next hops that should have answered by now, and schedules the
    /// next wakeup for the others.
    fn watch(&self, context: &mut Context<'_>) {
        let (now, hops, lifetime_ns) = (context.now, context.next_hops, context.lifetime_ns);
        let mut shortest_ns: Option<u64> = None;
        for hop in hops {
            let record = context.out_record(hop.face);
            let Some(record) = record.filter(|it| it.nacked.is_none() && it.expiry > now) else {
                continue;
            };
            let Some(measured) = context.measurement_mut(hop) else { continue };
            // A hop that has answered other Interests since is slow, not down.
            let waited_ns = now.ns_since(record.sent_at).min(measured.silent_ns(now));
            match wait_ns(measured, lifetime_ns).saturating_sub(waited_ns) {
                0 => self.count_timeout(now, measured, record.sent_at),
                left_ns => {
                    shortest_ns = Some(shortest_ns.map_or(left_ns, |known| known.min(left_ns)));
                }
            }
        }
        if let Some(left_ns) = shortest_ns {
            context.wake_after(left_ns);
        }
    }

    fn count_timeout(&self, now: Instant, measured: &mut Measurement, sent_at: Instant) {
        let mut state = HopState::of(measured);
        // The last timeout has already counted for this Interest.
        if sent_at < state.counted_at {
            return;
        }
        state.counted_at = now;
        state.timeouts += 1;
        if state.timeouts >= self.timeouts_max {
            state.timeouts = 0;
            state.has_timed_out = true;
        }
        state.write_to(measured);
    }
}

/// Whether some upstream may still answer (NFD, `hasPendingOutRecords`).
fn is_pending(context: &Context<'_>) -> bool {
    let is_open = |it: OutRecord| it.expiry > context.now && it.nacked.is_none();
    context.entry().upstreams().any(is_open)
}

fn is_too_early(now: Instant, suppression: &Suppression, record: &OutRecord) -> bool {
    !may_retransmit(now, record.sent_at, suppression.current_ns(record.strategy_state))
}

/// How long a next hop may take to answer an Interest of this lifetime.
fn wait_ns(measured: &Measurement, lifetime_ns: u64) -> u64 {
    measured.rto_ns().unwrap_or(FIRST_WAIT_NS).min(lifetime_ns - lifetime_ns / 8)
}

fn set_probe_time(context: &mut Context<'_>, at: Instant) {
    let hops = context.next_hops;
    for hop in hops {
        if let Some(measured) = context.measurement_mut(hop) {
            measured.probe_at = at;
        }
    }
}

fn parse_ms(parameter: &Parameter<'_>) -> Result<u64, StrategyError> {
    let ms = parse_number(parameter.value).and_then(|ms| ms.checked_mul(NS_PER_MS));
    ms.ok_or_else(|| parameter.refuse("it must be a number of milliseconds"))
}
