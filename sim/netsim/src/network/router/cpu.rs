//! The queue of a router before its processor.

use std::collections::VecDeque;

use weir_base::{FaceId, Instant, Packet, Rng};
use weir_forward::{Input, InterestStep};
use weir_plan::CpuPlan;
use weir_wire::LpHeader;

/// A packet that waits for a stage.
pub(super) struct QueuedPacket {
    pub(super) shard: usize,
    pub(super) face: FaceId,
    pub(super) header: LpHeader,
    pub(super) packet: Packet,
    /// What the router is to do with it next, if it is an Interest.
    pub(super) step: InterestStep,
}

impl QueuedPacket {
    /// The packet as an input that passes no stages.
    pub(super) fn into_input(self) -> Input {
        let Self { face, header, packet, .. } = self;
        Input::Packet { face, header, packet }
    }
}

/// What a turn on a processor came to.
#[derive(Debug, Default)]
pub(in crate::network) struct TurnResult {
    /// The shard that handled the packet.
    pub(in crate::network) shard: Option<usize>,
    /// How much longer the router needs its core for that packet, ns.
    pub(in crate::network) more_ns: Option<u64>,
    /// Other packets wait.
    pub(in crate::network) has_more: bool,
}

/// A router's packets before the processor, where that is a limit.
pub(super) struct Cpu {
    plan: CpuPlan,
    /// Packets and whether they are Interests; the first one may be served.
    queue: VecDeque<(bool, QueuedPacket)>,
    /// Since when the router has a core, and until when, ns.
    served: Option<(u64, u64)>,
    /// It has it for what came of a packet that is not in the queue any more.
    is_rest: bool,
    /// Service of turns that are over, ns.
    busy_ns: u64,
    rng: Rng,
}

/// What becomes of a packet before the processor.
pub(super) enum CpuEntry {
    /// It does not need it.
    AtOnce(QueuedPacket),
    Queued,
    /// None are.
    First,
    /// There is no room.
    Full,
}

impl Cpu {
    pub(super) fn new(plan: CpuPlan, rng: Rng) -> Self {
        let queue = VecDeque::new();
        Self { plan, queue, served: None, is_rest: false, busy_ns: 0, rng }
    }

    /// A packet comes to the processor.
    pub(super) fn enter(&mut self, is_interest: bool, job: QueuedPacket) -> CpuEntry {
        let service = if is_interest { &self.plan.interest } else { &self.plan.data };
        if service.is_zero() {
            return CpuEntry::AtOnce(job);
        }
        if self.queue.len() >= self.plan.capacity as usize {
            return CpuEntry::Full;
        }
        let is_first = self.queue.is_empty() && self.served.is_none();
        self.queue.push_back((is_interest, job));
        if is_first { CpuEntry::First } else { CpuEntry::Queued }
    }

    /// The router gets a core for the packet that is first. For how long, ns; `None` where none
    /// waits.
    pub(super) fn start(&mut self, now_ns: u64) -> Option<u64> {
        let &(is_interest, _) = self.queue.front()?;
        let service = if is_interest { &self.plan.interest } else { &self.plan.data };
        let service_ns = service.sample(&mut self.rng);
        self.served = Some((now_ns, now_ns.saturating_add(service_ns)));
        Some(service_ns)
    }

    /// A turn is over. The packet that had it, unless it was the rest of the last one's.
    pub(super) fn end(&mut self, now_ns: u64) -> Option<(bool, QueuedPacket)> {
        let (from_ns, until_ns) = self.served.take()?;
        self.busy_ns += until_ns.min(now_ns) - from_ns;
        if std::mem::take(&mut self.is_rest) { None } else { self.queue.pop_front() }
    }

    /// The packet whose turn was just over has had `reads` disks asked, and has passed `bypasses`
    /// by. For how long the router keeps its core, ns; `None` where it leaves.
    pub(super) fn extend(&mut self, now_ns: u64, reads: u64, bypasses: u64) -> Option<u64> {
        let mut more_ns = 0;
        if reads > 0 {
            more_ns += self.plan.read.sample(&mut self.rng);
        }
        if bypasses > 0 {
            more_ns += self.plan.bypass.sample(&mut self.rng);
        }
        if more_ns == 0 {
            return None;
        }
        self.is_rest = true;
        self.served = Some((now_ns, now_ns.saturating_add(more_ns)));
        Some(more_ns)
    }

    /// Packets that wait for a turn, and how many may.
    pub(super) fn length(&self) -> (u32, u32) {
        (self.queue.len() as u32, self.plan.capacity)
    }

    /// Time that the router has had a core for, ns.
    pub(super) fn busy_ns(&self, now: Instant) -> u64 {
        let now_ns = now.as_ns();
        let current = self.served.map_or(0, |(from_ns, until_ns)| until_ns.min(now_ns) - from_ns);
        self.busy_ns + current
    }
}
