use weir_base::{HashKey, Instant, NS_PER_MS, Packet, Rng, mix};
use weir_wire::lp::LpHeader;

use super::config::FispConfig;
use super::delayed::{DelayQueue, DelayedInterest};
use super::flows::Flows;
use crate::counters::{LinkCounters, LinkDrop};

/// The time over which Q is averaged: longer than a burst of packets of one chunk (6 ms at the 160
/// chunks a second of paper chopcop, 6.1.2), shorter than a round trip.
const SMOOTHED_OVER_NS: u64 = 10 * NS_PER_MS;
/// How often Q is checked while Interests are delayed.
const TICK_NS: u64 = NS_PER_MS;

/// What happens to an incoming Interest.
#[derive(Debug)]
pub(crate) enum ShapingOutcome {
    /// The forwarder gets it now.
    Pass(LpHeader, Packet),
    Delay,
    /// Too many Interests are delayed. `is_evicted` means that an earlier Interest is refused and
    /// the new one is delayed. Otherwise the new one is refused.
    Refuse {
        header: LpHeader,
        packet: Packet,
        is_evicted: bool,
    },
}

/// Fair share Interest shaping, FISP (paper chopcop, 3.2).
///
/// If a downstream requests too much, the Data overflows the queue towards it. FISP therefore
/// delays Interests of the downstream's face while this queue will not have room for their Data. It
/// estimates the bytes that the face needs there as `Q = q_d + gamma * q_i` (Eq. 2): the bytes that
/// wait to leave, plus a weighted estimate of the Data that unanswered Interests will bring.
/// [`Flows`] keeps both terms, for the face and for each flow (the first components of a name).
///
/// For each Interest that arrives:
///
/// 1. Names under `/localhost` and `/localhop` pass. So does an Interest for a name that is already
///    unanswered, since one Data packet answers both.
/// 2. If an Interest of its flow is already delayed, this one is delayed too, so that a flow keeps
///    its order.
/// 3. If Q or its average over 10 ms exceeds `max`, it is delayed. Q itself is also compared, so
///    that a burst cannot pass before the average has risen.
/// 4. If the average is at most `min`, it passes. In between, it passes if its flow needs less than
///    `min / flows`. Otherwise it is delayed with the probability `(Q - min) / (max - min) + p0`.
/// 5. If `held_max` Interests are delayed, the flow with the most of them loses its newest one to a
///    flow with less than its share. Otherwise the new Interest itself is refused. A refused
///    Interest gets a Congestion Nack.
///
/// On each poll, and every 1 ms while Interests are delayed ([`Fisp::release`]):
///
/// 1. While Q exceeds `max`, none is released.
/// 2. An Interest that has waited for `interval` is released, in the order of deficit round robin
///    over the flows. Its cost is the expected size of its Data.
/// 3. When Q has fallen below `release`, the interval no longer matters. All delayed Interests are
///    released, until Q reaches `max`.
/// 4. An Interest whose lifetime has ended is dropped instead.
///
/// Example with a capacity of 1,500,000 bytes: `release` is 300,000, `min` 900,000 and `max`
/// 1,350,000 bytes. 600,000 bytes wait to leave, and 100 Interests with 8,192 bytes of Data each
/// are unanswered. Q is 600,000 + 0.6 * 819,200 = 1,091,520 bytes. Two flows are active, so a share
/// is 450,000 bytes. A flow with 391,520 bytes passes. A flow with 700,000 bytes is delayed with
/// the probability 191,520 / 450,000 + 0.3 = 0.73.
///
/// The paper leaves two points open. First, a delayed Interest is not drawn again: Q stays near the
/// maximum with any probability (Tables 6 to 8). Second, an unanswered Interest stops counting for
/// the face when it is late. Otherwise names without Data would block the face. The flow is then
/// limited to its share for a while ([`Flows::has_used_share`]). Otherwise a flow could gain by
/// late answers.
///
/// It must never delay management, reorder the Interests of a flow, or let one flow take the share
/// of others.
#[derive(Debug)]
pub(super) struct Fisp {
    config: FispConfig,
    /// Thresholds of Q in bytes.
    release_bytes: u64,
    min_bytes: u64,
    max_bytes: u64,
    flows: Flows,
    delayed: DelayQueue,
    rng: Rng,
    smoothed_bytes: f64,
    smoothed_at: Instant,
    tick_at: Instant,
    /// Q has fallen below the release threshold. All delayed Interests are released, although Q
    /// rises again.
    is_releasing: bool,
}

impl Fisp {
    pub(super) fn new(config: &FispConfig, seed: u64) -> Self {
        let key = HashKey::new([seed, mix(!seed)]);
        Self {
            config: *config,
            release_bytes: config.fraction_bytes(config.release),
            min_bytes: config.fraction_bytes(config.min),
            max_bytes: config.fraction_bytes(config.max),
            flows: Flows::new(key, config.components),
            delayed: DelayQueue::default(),
            rng: Rng::from_seed(mix(seed)),
            smoothed_bytes: 0.0,
            smoothed_at: Instant::ZERO,
            tick_at: Instant::ZERO,
            is_releasing: false,
        }
    }

    /// Handles an Interest that arrives while `queue_bytes` wait to leave.
    pub(super) fn receive(
        &mut self,
        now: Instant,
        (header, packet): (LpHeader, Packet),
        queue_bytes: u64,
    ) -> ShapingOutcome {
        self.advance(now, queue_bytes);
        // Management and malformed packets are never delayed.
        let Some(interest) = self.flows.classify(&packet) else {
            return ShapingOutcome::Pass(header, packet);
        };
        // Step 1 of the first list: one Data packet answers both. The other steps are in
        // `must_delay`.
        if self.flows.is_pending(&interest) || !self.must_delay(now, interest.flow) {
            self.flows.add(now, interest);
            return ShapingOutcome::Pass(header, packet);
        }
        // Step 5: no room for another delayed Interest.
        let displaced = if self.delayed.len() >= self.config.held_max as usize {
            let displaced = self.delayed.evict_for(interest.flow);
            if displaced.is_none() {
                self.flows.remove_if_idle(interest.flow);
                return ShapingOutcome::Refuse { header, packet, is_evicted: false };
            }
            displaced.inspect(|displaced| self.end_delayed(displaced.interest.flow))
        } else {
            None
        };
        if self.delayed.is_empty() {
            self.tick_at = now.plus_ns(TICK_NS);
        }
        *self.flows.delayed(interest.flow) += 1;
        self.delayed.push(DelayedInterest {
            interest,
            header,
            // A copy, because the Interest may wait for long and would keep a whole receive block
            // in use.
            packet: Packet::from(&packet[..]),
            ready_at: now.plus_ns(self.config.interval_ns),
            expires_at: now.plus_ns(interest.lifetime_ns),
        });
        displaced.map_or(ShapingOutcome::Delay, |DelayedInterest { header, packet, .. }| {
            ShapingOutcome::Refuse { header, packet, is_evicted: true }
        })
    }

    /// Phases 1 to 3 of the paper, for an Interest that arrives.
    fn must_delay(&mut self, now: Instant, flow: u32) -> bool {
        let smoothed_bytes = self.smoothed_bytes as u64;
        let required_bytes = self.flows.required_bytes(self.config.gamma);
        // Steps 2 and 3.
        if *self.flows.delayed(flow) > 0
            || required_bytes.max(smoothed_bytes) > self.max_bytes
            || self.flows.is_full()
            || self.flows.has_used_share(now, flow, self.config.gamma, self.max_bytes)
        {
            return true;
        }
        // Step 4.
        if smoothed_bytes <= self.min_bytes {
            return false;
        }
        let share_bytes = self.min_bytes / self.flows.count();
        let is_beyond_share = self.flows.required_bytes_of(flow, self.config.gamma) >= share_bytes;
        is_beyond_share && self.rng.unit() < self.delay_probability(smoothed_bytes)
    }

    /// Fig. 3 of the paper, between the minimum and the maximum. Above 1 means always.
    fn delay_probability(&self, required_bytes: u64) -> f64 {
        let above_bytes = required_bytes.saturating_sub(self.min_bytes);
        let span_bytes = self.max_bytes.saturating_sub(self.min_bytes).max(1);
        above_bytes as f64 / span_bytes as f64 + f64::from(self.config.p0) / 1000.0
    }

    /// Data or a Nack is about to join the `queue_bytes` that wait to leave.
    pub(super) fn on_answer(&mut self, packet: &[u8], data_bytes: u64, queue_bytes: u64) {
        self.flows.on_answer(packet, data_bytes, queue_bytes);
    }

    /// Releases the next delayed Interest, if one may be released now.
    pub(super) fn release(
        &mut self,
        now: Instant,
        queue_bytes: u64,
        counters: &mut LinkCounters,
    ) -> Option<(LpHeader, Packet)> {
        let released = self.release_next(now, queue_bytes, counters);
        self.is_releasing &= released.is_some();
        released
    }

    fn release_next(
        &mut self,
        now: Instant,
        queue_bytes: u64,
        counters: &mut LinkCounters,
    ) -> Option<(LpHeader, Packet)> {
        if self.delayed.is_empty() {
            return None;
        }
        self.advance(now, queue_bytes);
        loop {
            let required_bytes = self.flows.required_bytes(self.config.gamma);
            if required_bytes > self.max_bytes || self.flows.is_full() {
                return None;
            }
            self.is_releasing |=
                required_bytes.max(self.smoothed_bytes as u64) < self.release_bytes;
            // With `is_releasing`, an Interest need not have waited for the interval.
            let by = if self.is_releasing { Instant::FAR_FUTURE } else { now };
            let (flows, max_bytes, gamma) = (&self.flows, self.max_bytes, self.config.gamma);
            let cost_bytes = |flow| {
                let may_go = !flows.has_used_share(now, flow, gamma, max_bytes);
                may_go.then(|| flows.cost_bytes(flow))
            };
            let DelayedInterest { interest, header, packet, expires_at, .. } =
                self.delayed.pop(by, cost_bytes)?;
            // The consumer no longer waits for this Interest.
            if expires_at <= now {
                self.end_delayed(interest.flow);
                counters.drops.count(LinkDrop::ShapingExpired);
                continue;
            }
            *self.flows.delayed(interest.flow) -= 1;
            self.flows.add(now, interest);
            return Some((header, packet));
        }
    }

    /// An Interest of `flow` is no longer delayed, and was not released.
    fn end_delayed(&mut self, flow: u32) {
        *self.flows.delayed(flow) -= 1;
        self.flows.remove_if_idle(flow);
    }

    /// Drops the newest Interest of the flow with the most delayed ones.
    pub(super) fn drop_newest(&mut self) -> Option<(LpHeader, Packet)> {
        let DelayedInterest { interest, header, packet, .. } = self.delayed.pop_newest()?;
        self.end_delayed(interest.flow);
        Some((header, packet))
    }

    pub(super) fn has_delayed_interests(&self) -> bool {
        !self.delayed.is_empty()
    }

    /// Approximate memory of delayed Interests and of flows, in bytes.
    pub(super) fn memory_bytes(&self) -> u64 {
        self.delayed.memory_bytes() + self.flows.memory_bytes()
    }

    /// Frees memory that only a busier time needed.
    pub(super) fn shrink(&mut self) {
        self.flows.shrink();
        self.delayed.shrink();
    }

    /// Discards the state of unanswered Interests, because memory is short.
    pub(super) fn discard_state(&mut self) {
        self.flows.clear();
    }

    pub(super) fn next_wakeup(&self) -> Option<Instant> {
        (!self.delayed.is_empty()).then_some(self.tick_at)
    }

    /// Runs the timer. [`Self::release`] may then return Interests.
    pub(super) fn poll(&mut self, now: Instant) {
        self.tick_at = now.plus_ns(TICK_NS);
    }

    /// Phase 1: updates Q and its average. The average assumes that Q was constant since the last
    /// update.
    fn advance(&mut self, now: Instant, queue_bytes: u64) {
        self.flows.advance(now, queue_bytes);
        let elapsed_ns = now.ns_since(self.smoothed_at).min(SMOOTHED_OVER_NS);
        self.smoothed_at = self.smoothed_at.max(now);
        let required_bytes = self.flows.required_bytes(self.config.gamma) as f64;
        let weight = elapsed_ns as f64 / SMOOTHED_OVER_NS as f64;
        self.smoothed_bytes += (required_bytes - self.smoothed_bytes) * weight;
    }
}

#[cfg(test)]
mod tests;
