use weir_base::{HashKey, Instant, NS_PER_MS, Packet, Rng, mix};
use weir_wire::lp::LpHeader;

use super::config::FispConfig;
use super::delayed::{DelayQueue, DelayedInterest};
use super::flows::Flows;
use crate::counters::{LinkCounters, LinkDrop};

/// The time over which Q is smoothed: longer than a burst of packets of one chunk (6 ms at the 160
/// chunks a second of paper chopcop, 6.1.2), shorter than a round trip.
const SMOOTHED_OVER_NS: u64 = 10 * NS_PER_MS;
/// How often the face is looked at while Interests wait.
const TICK_NS: u64 = NS_PER_MS;

/// What becomes of an Interest that comes in.
#[derive(Debug)]
pub(crate) enum ShapingOutcome {
    /// The forwarder gets it now.
    Pass(LpHeader, Packet),
    Delay,
    /// Too many wait: this one is refused, the one that came or another whose place it takes.
    Refuse {
        header: LpHeader,
        packet: Packet,
        is_evicted: bool,
    },
}

/// Fair share Interest shaping (paper chopcop, 3.2).
///
/// Interests of a face towards a downstream wait while the queue towards it will not have room for
/// what they ask for. Where the paper leaves a choice:
///
/// - Q is looked at with each Interest that comes, and each [`CHECK_OPEN_FILES_NS`] while some wait. A burst
///   must not pass because the average has not risen yet: the third phase begins when Q or its
///   average exceeds the maximum.
/// - A delayed Interest may go after `interval`, once Q is not above the maximum, in the order of
///   deficit round robin. The probability is not drawn again: in the paper Q hovers at the maximum,
///   whatever the probability (Tables 6 to 8).
/// - Interests of one flow keep their order: while some wait, the next one does.
/// - An Interest that is not answered counts in full, also for its flow, but for the face no longer
///   once it is late; such a flow is held to its share for a while ([`Flows::has_used_share`]).
/// - In the fourth phase all leave at once, but no more than fill the queue up to the maximum.
#[derive(Debug)]
pub(super) struct Fisp {
    config: FispConfig,
    /// Thresholds of Q in octets.
    release_bytes: u64,
    min_bytes: u64,
    max_bytes: u64,
    flows: Flows,
    delayed: DelayQueue,
    rng: Rng,
    smoothed_bytes: f64,
    smoothed_at: Instant,
    tick_at: Instant,
    /// Q has fallen below the release threshold: what waits goes on, though it makes Q rise again.
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

    /// An Interest comes in while `queue_bytes` wait to leave.
    pub(super) fn receive(
        &mut self,
        now: Instant,
        (header, packet): (LpHeader, Packet),
        queue_bytes: u64,
    ) -> ShapingOutcome {
        self.advance(now, queue_bytes);
        let Some(asked) = self.flows.classify(&packet) else {
            return ShapingOutcome::Pass(header, packet);
        };
        if self.flows.is_pending(&asked) || !self.must_delay(now, asked.flow) {
            self.flows.add(now, asked);
            return ShapingOutcome::Pass(header, packet);
        }
        let displaced = if self.delayed.len() >= self.config.held_max as usize {
            let displaced = self.delayed.evict_for(asked.flow);
            if displaced.is_none() {
                self.flows.remove_if_idle(asked.flow);
                return ShapingOutcome::Refuse { header, packet, is_evicted: false };
            }
            displaced.inspect(|displaced| self.end_delayed(displaced.interest.flow))
        } else {
            None
        };
        if self.delayed.is_empty() {
            self.tick_at = now.plus_ns(TICK_NS);
        }
        *self.flows.delayed(asked.flow) += 1;
        self.delayed.push(DelayedInterest {
            interest: asked,
            header,
            // A copy, since it may wait for long: else it would keep a whole receive block.
            packet: Packet::from(&packet[..]),
            ready_at: now.plus_ns(self.config.interval_ns),
            expires_at: now.plus_ns(asked.lifetime_ns),
        });
        displaced.map_or(ShapingOutcome::Delay, |DelayedInterest { header, packet, .. }| {
            ShapingOutcome::Refuse { header, packet, is_evicted: true }
        })
    }

    /// Phases 1 to 3, for an Interest that comes.
    fn must_delay(&mut self, now: Instant, flow: u32) -> bool {
        let smoothed_bytes = self.smoothed_bytes as u64;
        let required_bytes = self.flows.required_bytes(self.config.gamma);
        if *self.flows.delayed(flow) > 0
            || required_bytes.max(smoothed_bytes) > self.max_bytes
            || self.flows.is_full()
            || self.flows.has_used_share(now, flow, self.config.gamma, self.max_bytes)
        {
            return true;
        }
        if smoothed_bytes <= self.min_bytes {
            return false;
        }
        let share_bytes = self.min_bytes / self.flows.count();
        let is_beyond_share = self.flows.required_bytes_of(flow, self.config.gamma) >= share_bytes;
        is_beyond_share && self.rng.unit() < self.delay_probability(smoothed_bytes)
    }

    /// Fig. 3 of paper chopcop, between the minimum and the maximum; above 1 means always.
    fn delay_probability(&self, required_bytes: u64) -> f64 {
        let above_bytes = required_bytes.saturating_sub(self.min_bytes);
        let span_bytes = self.max_bytes.saturating_sub(self.min_bytes).max(1);
        above_bytes as f64 / span_bytes as f64 + f64::from(self.config.p0) / 1000.0
    }

    /// Data or a Nack is about to join the `queue_bytes` that wait to leave.
    pub(super) fn on_answer(&mut self, packet: &[u8], data_bytes: u64, queue_bytes: u64) {
        self.flows.on_answer(packet, data_bytes, queue_bytes);
    }

    /// An Interest that waited and may go now.
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
            let by = if self.is_releasing { Instant::FAR_FUTURE } else { now };
            let (flows, max_bytes, gamma) = (&self.flows, self.max_bytes, self.config.gamma);
            let cost_bytes = |flow| {
                let may_go = !flows.has_used_share(now, flow, gamma, max_bytes);
                may_go.then(|| flows.cost_bytes(flow))
            };
            let DelayedInterest { interest: asked, header, packet, expires_at, .. } =
                self.delayed.pop(by, cost_bytes)?;
            if expires_at <= now {
                self.end_delayed(asked.flow);
                counters.drops.count(LinkDrop::ShapingExpired);
                continue;
            }
            *self.flows.delayed(asked.flow) -= 1;
            self.flows.add(now, asked);
            return Some((header, packet));
        }
    }

    /// An Interest of `flow` waits no longer, and does not go on.
    fn end_delayed(&mut self, flow: u32) {
        *self.flows.delayed(flow) -= 1;
        self.flows.remove_if_idle(flow);
    }

    /// Gives up the Interest that the flow which has most can spare best.
    pub(super) fn drop_newest(&mut self) -> Option<(LpHeader, Packet)> {
        let DelayedInterest { interest: asked, header, packet, .. } = self.delayed.pop_newest()?;
        self.end_delayed(asked.flow);
        Some((header, packet))
    }

    /// Whether an Interest waits.
    pub(super) fn has_delayed_interests(&self) -> bool {
        !self.delayed.is_empty()
    }

    /// Octets of memory of what waits and of what is known of flows, about.
    pub(super) fn memory_bytes(&self) -> u64 {
        self.delayed.memory_bytes() + self.flows.memory_bytes()
    }

    /// Gives back the memory that only a busier time needed.
    pub(super) fn shrink(&mut self) {
        self.flows.shrink();
        self.delayed.shrink();
    }

    /// Forgets what was asked for and is under way: memory is short.
    pub(super) fn discard_state(&mut self) {
        self.flows.clear();
    }

    pub(super) fn next_wakeup(&self) -> Option<Instant> {
        (!self.delayed.is_empty()).then_some(self.tick_at)
    }

    /// The time has come.
    pub(super) fn poll(&mut self, now: Instant) {
        self.tick_at = now.plus_ns(TICK_NS);
    }

    /// Phase 1: what the face needs by now. The moving average is that of a value that has been the
    /// same since the last time.
    fn advance(&mut self, now: Instant, queue_bytes: u64) {
        self.flows.advance(now, queue_bytes);
        let passed_ns = now.ns_since(self.smoothed_at).min(SMOOTHED_OVER_NS);
        self.smoothed_at = self.smoothed_at.max(now);
        let required_bytes = self.flows.required_bytes(self.config.gamma) as f64;
        let weight = passed_ns as f64 / SMOOTHED_OVER_NS as f64;
        self.smoothed_bytes += (required_bytes - self.smoothed_bytes) * weight;
    }
}

#[cfg(test)]
mod tests;
