//! The queue of a router before its processor.

use std::collections::VecDeque;

use weir_base::{FaceId, Instant, Packet, Rng};
use weir_forward::{Input, InterestStep};
use weir_plan::CpuPlan;
use weir_wire::LpHeader;

/// A packet that waits for a stage or for the processor.
pub(super) struct QueuedPacket {
    pub(super) shard: usize,
    pub(super) face: FaceId,
    pub(super) header: LpHeader,
    pub(super) packet: Packet,
    /// The router's next step for it, if it is an Interest.
    pub(super) step: InterestStep,
}

impl QueuedPacket {
    /// The packet as an input that skips the stages.
    pub(super) fn into_input(self) -> Input {
        let Self { face, header, packet, .. } = self;
        Input::Packet { face, header, packet }
    }
}

/// The result of a turn on a processor.
#[derive(Debug, Default)]
pub(in crate::network) struct TurnResult {
    /// The shard that handled the packet.
    pub(in crate::network) shard: Option<usize>,
    /// How much longer the router needs its core for that packet, ns.
    pub(in crate::network) more_ns: Option<u64>,
    /// Other packets wait for the processor.
    pub(in crate::network) has_more: bool,
}

/// A router's packets before its processor, if the plan limits the processor.
pub(super) struct Cpu {
    plan: CpuPlan,
    /// Each packet, and whether it is an Interest. The first one is served next.
    queue: VecDeque<(bool, QueuedPacket)>,
    /// Start and end of the current turn, ns.
    served: Option<(u64, u64)>,
    /// The turn is for follow-up work of a packet that has already left the queue.
    is_rest: bool,
    /// Sum of finished turns, ns.
    busy_ns: u64,
    rng: Rng,
}

/// What happens to a packet before the processor.
pub(super) enum CpuEntry {
    /// The packet needs no processor time.
    AtOnce(QueuedPacket),
    Queued,
    /// The packet is the only one, so the router must request a core.
    First,
    /// The queue is full.
    Full,
}

impl Cpu {
    pub(super) fn new(plan: CpuPlan, rng: Rng) -> Self {
        let queue = VecDeque::new();
        Self { plan, queue, served: None, is_rest: false, busy_ns: 0, rng }
    }

    /// Queues a packet for the processor.
    pub(super) fn enter(&mut self, is_interest: bool, job: QueuedPacket) -> CpuEntry {
        let service = if is_interest { &self.plan.interest } else { &self.plan.data };
        if service.is_zero() {
            return CpuEntry::AtOnce(job);
        }
        if self.queue.len() >= self.plan.capacity as usize {
            return CpuEntry::Full;
        }
        // During a turn the router already has a core, even if no packet waits.
        let is_first = self.queue.is_empty() && self.served.is_none();
        self.queue.push_back((is_interest, job));
        if is_first { CpuEntry::First } else { CpuEntry::Queued }
    }

    /// Starts a turn for the first packet. Returns its length in ns; `None` if no packet waits.
    pub(super) fn start(&mut self, now_ns: u64) -> Option<u64> {
        let &(is_interest, _) = self.queue.front()?;
        let service = if is_interest { &self.plan.interest } else { &self.plan.data };
        let service_ns = service.sample(&mut self.rng);
        self.served = Some((now_ns, now_ns.saturating_add(service_ns)));
        Some(service_ns)
    }

    /// Ends a turn. Returns its packet; `None` if the turn was for follow-up work.
    pub(super) fn end(&mut self, now_ns: u64) -> Option<(bool, QueuedPacket)> {
        let (from_ns, until_ns) = self.served.take()?;
        self.busy_ns += until_ns.min(now_ns) - from_ns;
        if std::mem::take(&mut self.is_rest) { None } else { self.queue.pop_front() }
    }

    /// Extends the turn that just ended, if its packet caused `reads` disk reads or `bypasses` of
    /// the store. Returns the additional time in ns; `None` if the router leaves its core.
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

    /// Number of waiting packets, and its limit.
    pub(super) fn length(&self) -> (u32, u32) {
        (self.queue.len() as u32, self.plan.capacity)
    }

    /// Total time that the router has had a core, ns.
    pub(super) fn busy_ns(&self, now: Instant) -> u64 {
        let now_ns = now.as_ns();
        let current = self.served.map_or(0, |(from_ns, until_ns)| until_ns.min(now_ns) - from_ns);
        self.busy_ns + current
    }
}
