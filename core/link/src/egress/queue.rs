use alloc::boxed::Box;

use weir_base::{Instant, Packet, Pool};

use super::discipline::{Discipline, DisciplineConfig};
use super::marking::{AnyMarker, MarkingConfig};
use super::outlet::{Outgoing, Outlet, PacketKind};
use super::paced::Paced;
use super::ready::{Load, ReadyQueue};
use crate::codec::{CodecConfig, Encoder};
use crate::counters::{LinkCounters, LinkDrop};
use crate::frame::Frame;

/// The configuration of the egress queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EgressConfig {
    /// Maximum memory of waiting packets in bytes, including a fixed charge for each.
    pub queue_bytes_max: u64,
    pub marking: MarkingConfig,
    /// Order and time of packets that leave.
    pub discipline: DisciplineConfig,
    /// The seed of random numbers and name hashes. Keep it secret.
    pub seed: u64,
}

/// The parts of the link that the egress needs for one call.
pub(crate) struct Context<'a> {
    pub(crate) codec: &'a CodecConfig,
    pub(crate) config: &'a EgressConfig,
    pub(crate) encoder: &'a mut Encoder,
    pub(crate) counters: &'a mut LinkCounters,
}

/// Waiting packets: first held by the discipline, then encoded in frames for the socket.
#[derive(Debug)]
pub(crate) struct Egress {
    /// `None` is first in, first out.
    discipline: Option<Box<dyn Discipline>>,
    marker: AnyMarker,
    ready: ReadyQueue,
    socket_backlog_bytes: u64,
    /// The latest time that a caller has set.
    now: Instant,
}

impl Egress {
    pub(crate) fn new(config: &EgressConfig) -> Self {
        Self {
            discipline: discipline_of(config),
            marker: config.marking.marker(config.seed),
            ready: ReadyQueue::default(),
            socket_backlog_bytes: 0,
            now: Instant::ZERO,
        }
    }

    /// Switches from configuration `before` to that of `context`. Packets of a replaced discipline
    /// may leave.
    pub(crate) fn reconfigure(&mut self, before: &EgressConfig, context: Context<'_>) {
        let config = context.config;
        if config.marking.needs_new_marker(&before.marking) {
            self.marker = config.marking.marker(config.seed);
        }
        if config.discipline != before.discipline {
            self.release(context);
            self.discipline = discipline_of(config);
        }
    }

    #[inline]
    pub(crate) fn enqueue(
        &mut self,
        now: Instant,
        outgoing: Outgoing,
        context: Context<'_>,
    ) -> Result<(), LinkDrop> {
        self.now = now;
        if !self.has_room_for(outgoing.packet.len(), context.config) {
            return Err(LinkDrop::QueueFull);
        }
        let (discipline, mut out) = self.outlet(context);
        match discipline {
            None => out.send(outgoing),
            Some(discipline) => discipline.enqueue(now, outgoing, &mut out),
        }
    }

    /// Adds a frame that does not pass through the discipline.
    pub(crate) fn push(&mut self, frame: Frame, config: &EgressConfig) -> Result<(), LinkDrop> {
        if !self.has_room_for(frame.len(), config) {
            return Err(LinkDrop::QueueFull);
        }
        self.ready.push(frame);
        Ok(())
    }

    fn has_room_for(&self, wire_len: usize, config: &EgressConfig) -> bool {
        // One limit covers both the discipline and the ready frames.
        let waiting = self.ready.load().charged_bytes + self.discipline_load().charged_bytes;
        waiting + Load::charge_of(wire_len) <= config.queue_bytes_max
    }

    pub(crate) fn on_received(&mut self, now: Instant, kind: PacketKind, packet: &Packet) {
        if let Some(discipline) = &mut self.discipline {
            discipline.on_received(now, kind, packet);
        }
    }

    /// Runs the timers.
    pub(crate) fn poll(&mut self, now: Instant, context: Context<'_>) {
        self.now = now;
        self.refill(context);
    }

    /// Polls the discipline, because the socket has taken frames.
    #[inline]
    pub(crate) fn refill(&mut self, context: Context<'_>) {
        if self.discipline.is_some() {
            self.poll_discipline(context);
        }
    }

    fn poll_discipline(&mut self, context: Context<'_>) {
        let now = self.now;
        if let (Some(discipline), mut out) = self.outlet(context) {
            discipline.poll(now, &mut out);
        }
    }

    /// The peer is known to have a large receive buffer, so datagrams need no pacing.
    #[cold]
    pub(crate) fn stop_pacing(&mut self, context: Context<'_>) {
        if context.config.discipline == DisciplineConfig::Paced {
            self.release(context);
            self.discipline = None;
        }
    }

    /// Sends at a limited rate again, because the next peer may be another program.
    pub(crate) fn resume_pacing(&mut self, config: &EgressConfig) {
        if config.discipline == DisciplineConfig::Paced {
            self.discipline = discipline_of(config);
        }
    }

    /// Releases all packets of the discipline.
    pub(crate) fn release(&mut self, context: Context<'_>) {
        let now = self.now;
        if let (Some(discipline), mut out) = self.outlet(context) {
            discipline.release(now, &mut out);
        }
    }

    pub(crate) fn next_wakeup(&self) -> Option<Instant> {
        self.discipline.as_ref()?.next_wakeup()
    }

    #[inline]
    pub(crate) fn pop(&mut self) -> Option<Frame> {
        self.ready.pop()
    }

    pub(crate) fn set_now(&mut self, now: Instant) {
        self.now = now;
    }

    pub(crate) fn now(&self) -> Instant {
        self.now
    }

    /// See [`ReadyQueue::gather`].
    pub(crate) fn gather(&mut self, begun: usize, span: u8, mtu: usize) -> (u64, u64) {
        self.ready.gather(begun, span, mtu)
    }

    /// See [`ReadyQueue::gather_hicn`].
    pub(crate) fn gather_hicn(&mut self, begun: usize, mtu: usize) -> (u64, u64) {
        self.ready.gather_hicn(begun, mtu)
    }

    pub(crate) fn ready(&self) -> &ReadyQueue {
        &self.ready
    }

    /// Bytes on the wire that wait here.
    pub(crate) fn wire_bytes(&self) -> u64 {
        self.ready.load().wire_bytes + self.discipline_load().wire_bytes
    }

    /// Bytes on the wire that wait here and in the socket.
    pub(crate) fn waiting_bytes(&self) -> u64 {
        self.wire_bytes() + self.socket_backlog_bytes
    }

    /// The size of all packets that the discipline holds.
    #[inline]
    fn discipline_load(&self) -> Load {
        self.discipline.as_ref().map_or_else(Load::default, |discipline| discipline.load())
    }

    pub(crate) fn set_socket_backlog(&mut self, bytes: u64) {
        self.socket_backlog_bytes = bytes;
    }

    pub(crate) fn detach(&mut self, pool: &mut Pool) {
        self.ready.detach(pool);
    }

    /// Approximate memory of all waiting packets, in bytes.
    #[inline]
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.ready.memory_bytes() + self.discipline_load().charged_bytes
    }

    /// Drops the newest waiting packet. At least `kept` frames stay.
    pub(crate) fn drop_newest(&mut self, kept: usize) -> bool {
        let dropped = self.discipline.as_mut().and_then(|discipline| discipline.drop_newest());
        dropped.is_some() || self.ready.pop_newest(kept).is_some()
    }

    pub(crate) fn shrink(&mut self) {
        self.ready.shrink();
    }

    #[inline]
    fn outlet<'a>(
        &'a mut self,
        context: Context<'a>,
    ) -> (Option<&'a mut (dyn Discipline + 'static)>, Outlet<'a>) {
        let Context { codec, config, encoder, counters } = context;
        let out = Outlet {
            now: self.now,
            codec,
            encoder,
            ready: &mut self.ready,
            counters,
            marking: &config.marking,
            marker: &mut self.marker,
            held_bytes: 0,
            socket_backlog_bytes: self.socket_backlog_bytes,
        };
        (self.discipline.as_deref_mut(), out)
    }
}

/// The discipline of one face; `None` for first in, first out.
fn discipline_of(config: &EgressConfig) -> Option<Box<dyn Discipline>> {
    match &config.discipline {
        DisciplineConfig::Fifo => None,
        DisciplineConfig::Paced => Some(Box::new(Paced::new(config.seed))),
        DisciplineConfig::External(other) => Some(other.options().make(config.seed)),
    }
}
