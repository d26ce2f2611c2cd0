use alloc::collections::VecDeque;

use weir_base::{Instant, NS_PER_S, Packet};

use super::discipline::Discipline;
use super::outlet::{Outgoing, Outlet, PacketKind};
use super::ready::Load;
use crate::counters::LinkDrop;

/// How many Interests may leave.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct InterestRateConfig {
    /// Interests a second in the long run, at least 1.
    pub interests_per_s: u32,
    /// Interests that may leave at once after a pause, at least 1.
    pub burst: u32,
    /// Interests that wait for their turn; more are dropped.
    pub held_max: u32,
}

impl Default for InterestRateConfig {
    fn default() -> Self {
        Self { interests_per_s: 1000, burst: 32, held_max: 1024 }
    }
}

impl InterestRateConfig {
    fn interval_ns(&self) -> u64 {
        (NS_PER_S / u64::from(self.interests_per_s.max(1))).max(1)
    }

    fn tolerance_ns(&self) -> u64 {
        u64::from(self.burst.max(1) - 1) * self.interval_ns()
    }
}

/// Holds Interests to a rate, by a token bucket; Data and Nacks pass. What may leave goes on to the
/// discipline `Next`.
#[derive(Debug)]
pub(crate) struct InterestRate<Next> {
    config: InterestRateConfig,
    next: Next,
    held: VecDeque<Outgoing>,
    load: Load,
    /// When the bucket will be full: the theoretical arrival time of the generic cell rate
    /// algorithm (ITU-T I.371).
    full_at: Instant,
}

impl<Next: Discipline> InterestRate<Next> {
    /// When the bucket has a token for one more Interest.
    fn token_at(&self) -> Instant {
        let tolerance_ns = self.config.tolerance_ns();
        Instant::from_ns(self.full_at.as_ns().saturating_sub(tolerance_ns))
    }

    fn take_token(&mut self, now: Instant) {
        self.full_at = self.full_at.max(now).plus_ns(self.config.interval_ns());
    }

    fn hold(&mut self, outgoing: Outgoing) {
        let outgoing = outgoing.detached();
        self.load.add(outgoing.packet.len());
        self.held.push_back(outgoing);
    }

    fn send_oldest(&mut self, now: Instant, out: &mut Outlet<'_>) {
        let Some(outgoing) = self.held.pop_front() else { return };
        self.load.remove(outgoing.packet.len());
        if let Err(reason) = self.next.enqueue(now, outgoing, out) {
            out.counters.drops.count(reason);
        }
    }
}

impl<Next: Discipline<Config = ()>> Discipline for InterestRate<Next> {
    type Config = InterestRateConfig;

    fn new(config: &InterestRateConfig, seed: u64) -> Self {
        Self {
            config: *config,
            next: Next::new(&(), seed),
            held: VecDeque::new(),
            load: Load::default(),
            full_at: Instant::ZERO,
        }
    }

    fn set(config: &mut InterestRateConfig, key: &str, value: u64) -> bool {
        let field = match key {
            "interests_per_s" => &mut config.interests_per_s,
            "burst" => &mut config.burst,
            "held_max" => &mut config.held_max,
            _ => return false,
        };
        let least = u64::from(key != "held_max");
        let allowed = u32::try_from(value).ok().filter(|_| value >= least);
        allowed.inspect(|&value| *field = value).is_some()
    }

    fn enqueue(
        &mut self,
        now: Instant,
        outgoing: Outgoing,
        out: &mut Outlet<'_>,
    ) -> Result<(), LinkDrop> {
        if outgoing.kind != PacketKind::Interest {
            return self.next.enqueue(now, outgoing, out);
        }
        if self.held.is_empty() && self.token_at() <= now {
            self.take_token(now);
            return self.next.enqueue(now, outgoing, out);
        }
        if self.held.len() >= self.config.held_max as usize {
            return Err(LinkDrop::InterestRate);
        }
        self.hold(outgoing);
        out.counters.out_interests_delayed += 1;
        Ok(())
    }

    fn on_received(&mut self, now: Instant, kind: PacketKind, packet: &Packet) {
        self.next.on_received(now, kind, packet);
    }

    fn poll(&mut self, now: Instant, out: &mut Outlet<'_>) {
        while !self.held.is_empty() && self.token_at() <= now {
            self.take_token(now);
            self.send_oldest(now, out);
        }
        self.next.poll(now, out);
    }

    fn next_wakeup(&self) -> Option<Instant> {
        let own = (!self.held.is_empty()).then(|| self.token_at());
        own.into_iter().chain(self.next.next_wakeup()).min()
    }

    fn held(&self) -> Load {
        self.load.with(self.next.held())
    }

    fn drop_newest(&mut self) -> Option<Outgoing> {
        let Some(newest) = self.held.pop_back() else { return self.next.drop_newest() };
        self.load.remove(newest.packet.len());
        Some(newest)
    }

    fn release(&mut self, now: Instant, out: &mut Outlet<'_>) {
        while !self.held.is_empty() {
            self.send_oldest(now, out);
        }
        self.next.release(now, out);
    }
}
