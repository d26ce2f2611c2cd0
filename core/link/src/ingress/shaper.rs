use alloc::boxed::Box;
use alloc::collections::VecDeque;

use weir_base::{Instant, Packet};
use weir_wire::lp::LpHeader;

use super::config::ShapingConfig;
use super::fisp::{Fisp, ShapingOutcome};
use crate::counters::LinkCounters;
use crate::egress::PacketKind;

/// The shaping of incoming Interests of one face.
#[derive(Debug)]
pub(crate) struct Ingress {
    shaper: Shaper,
    /// Interests that were delayed when the configuration changed. They are released next.
    leftover: VecDeque<(LpHeader, Packet)>,
}

#[derive(Debug)]
enum Shaper {
    None,
    Fisp(Box<Fisp>),
}

impl Ingress {
    pub(crate) fn new(config: &ShapingConfig, seed: u64) -> Self {
        let shaper = match config {
            ShapingConfig::None => Shaper::None,
            ShapingConfig::Fisp(config) => Shaper::Fisp(Box::new(Fisp::new(config, seed))),
        };
        Self { shaper, leftover: VecDeque::new() }
    }

    /// Changes the configuration. No delayed Interest is lost.
    pub(crate) fn reconfigure(&mut self, config: &ShapingConfig, seed: u64) {
        let mut ended = core::mem::take(&mut self.leftover);
        while let Some(interest) = self.drop_newest() {
            ended.push_front(interest);
        }
        *self = Self { leftover: ended, ..Self::new(config, seed) };
    }

    /// Whether an Interest may be delayed.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        !matches!(self.shaper, Shaper::None)
    }

    /// Handles an Interest that arrives while `queue_bytes` wait to leave.
    pub(crate) fn receive(
        &mut self,
        now: Instant,
        (header, packet): (LpHeader, Packet),
        queue_bytes: u64,
    ) -> ShapingOutcome {
        match &mut self.shaper {
            Shaper::None => ShapingOutcome::Pass(header, packet),
            Shaper::Fisp(fisp) => fisp.receive(now, (header, packet), queue_bytes),
        }
    }

    /// A packet is about to join the `queue_bytes` that wait to leave.
    #[cold]
    pub(crate) fn on_sent(&mut self, kind: PacketKind, packet: &Packet, queue_bytes: u64) {
        let Shaper::Fisp(fisp) = &mut self.shaper else { return };
        match kind {
            PacketKind::Interest => {}
            PacketKind::Data => fisp.on_answer(packet, packet.len() as u64, queue_bytes),
            PacketKind::Nack => fisp.on_answer(packet, 0, queue_bytes),
        }
    }

    /// Releases the next delayed Interest, if one may be released now.
    pub(crate) fn release(
        &mut self,
        now: Instant,
        queue_bytes: u64,
        counters: &mut LinkCounters,
    ) -> Option<(LpHeader, Packet)> {
        if let Some(interest) = self.leftover.pop_front() {
            return Some(interest);
        }
        match &mut self.shaper {
            Shaper::None => None,
            Shaper::Fisp(fisp) => fisp.release(now, queue_bytes, counters),
        }
    }

    /// Takes the newest Interest of the flow with the most delayed ones.
    pub(crate) fn drop_newest(&mut self) -> Option<(LpHeader, Packet)> {
        match &mut self.shaper {
            Shaper::None => None,
            Shaper::Fisp(fisp) => fisp.drop_newest(),
        }
    }

    /// Whether an Interest is delayed now.
    pub(crate) fn has_delayed_interests(&self) -> bool {
        let is_delayed = matches!(&self.shaper, Shaper::Fisp(fisp) if fisp.has_delayed_interests());
        is_delayed || !self.leftover.is_empty()
    }

    /// Discards the state of Interests that are not delayed, because memory is short.
    pub(crate) fn discard_state(&mut self) {
        if let Shaper::Fisp(fisp) = &mut self.shaper {
            fisp.discard_state();
        }
    }

    /// Frees memory that only a busier time needed.
    pub(crate) fn shrink(&mut self) {
        if let Shaper::Fisp(fisp) = &mut self.shaper {
            fisp.shrink();
        }
    }

    #[inline]
    pub(crate) fn memory_bytes(&self) -> u64 {
        match &self.shaper {
            Shaper::None => 0,
            Shaper::Fisp(fisp) => fisp.memory_bytes(),
        }
    }

    #[inline]
    pub(crate) fn next_wakeup(&self) -> Option<Instant> {
        match &self.shaper {
            _ if !self.leftover.is_empty() => Some(Instant::ZERO),
            Shaper::None => None,
            Shaper::Fisp(fisp) => fisp.next_wakeup(),
        }
    }

    /// Runs the timer. [`Self::release`] may then return Interests.
    pub(crate) fn poll(&mut self, now: Instant) {
        match &mut self.shaper {
            Shaper::None => {}
            Shaper::Fisp(fisp) => fisp.poll(now),
        }
    }
}
