//! Delayed Interests, and the order of their release: deficit round robin over flows (Shreedhar and
//! Varghese, 1995). An Interest costs its flow the expected bytes of its Data (paper chopcop, 3.2).

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use weir_base::{Instant, Packet};
use weir_wire::PACKET_SIZE_MAX;
use weir_wire::lp::LpHeader;

use super::flows::ShapedInterest;

/// Bytes of Data that a flow may request in one round. This is at least the size of the largest
/// Data, so each flow can release an Interest in its turn.
const QUANTUM_BYTES: u64 = PACKET_SIZE_MAX as u64;
/// Approximate memory of a delayed Interest in addition to its own bytes.
const CHARGE_BYTES: u64 = 320;

#[derive(Debug)]
pub(super) struct DelayedInterest {
    pub(super) interest: ShapedInterest,
    pub(super) header: LpHeader,
    pub(super) packet: Packet,
    /// The earliest time of its release.
    pub(super) ready_at: Instant,
    /// When its sender stops waiting.
    pub(super) expires_at: Instant,
}

/// All delayed Interests of one face.
#[derive(Debug, Default)]
pub(super) struct DelayQueue {
    queues: Vec<FlowQueue>,
    /// Flows with delayed Interests; the first one has its turn.
    round: VecDeque<u32>,
    len: usize,
    bytes: u64,
}

#[derive(Debug, Default)]
struct FlowQueue {
    waiting: VecDeque<DelayedInterest>,
    deficit_bytes: u64,
}

impl DelayQueue {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        self.bytes + (self.queues.capacity() * size_of::<FlowQueue>()) as u64
    }

    /// Frees the memory if no Interest is delayed.
    pub(super) fn shrink(&mut self) {
        if self.is_empty() {
            self.queues = Vec::new();
        }
    }

    fn len_of(&self, flow: u32) -> usize {
        self.queues.get(flow as usize).map_or(0, |queue| queue.waiting.len())
    }

    pub(super) fn push(&mut self, delayed: DelayedInterest) {
        let flow = delayed.interest.flow;
        if self.queues.len() <= flow as usize {
            self.queues.resize_with(flow as usize + 1, FlowQueue::default);
        }
        self.len += 1;
        self.bytes += charge(&delayed);
        let queue = &mut self.queues[flow as usize];
        if queue.waiting.is_empty() {
            self.round.push_back(flow);
        }
        queue.waiting.push_back(delayed);
    }

    /// Makes room for an Interest of `flow` in a full queue: takes the newest Interest of the flow
    /// with the most delayed ones. Returns `None` if `flow` already has its share.
    pub(super) fn evict_for(&mut self, flow: u32) -> Option<DelayedInterest> {
        // The share of a flow is the queue divided by the number of its flows.
        if (self.len_of(flow) + 1) * self.round.len().max(1) > self.len {
            return None;
        }
        self.pop_newest()
    }

    /// Takes the newest Interest of the flow with the most delayed ones.
    pub(super) fn pop_newest(&mut self) -> Option<DelayedInterest> {
        let longest = self.round.iter().copied().max_by_key(|&flow| self.len_of(flow))?;
        let newest = self.queues[longest as usize].waiting.pop_back();
        self.after_removal(longest, newest)
    }

    /// The next Interest by deficit round robin that may be released by `now`. `cost_bytes` is the
    /// cost of an Interest of a flow, or `None` if the flow may release none.
    pub(super) fn pop(
        &mut self,
        now: Instant,
        cost_bytes: impl Fn(u32) -> Option<u64>,
    ) -> Option<DelayedInterest> {
        // Two rounds are enough: a flow needs at most one quantum before it can pay for an
        // Interest.
        for _ in 0..2 * self.round.len() {
            let &flow = self.round.front()?;
            let queue = &mut self.queues[flow as usize];
            let is_ready = queue.waiting.front().is_some_and(|first| first.ready_at <= now);
            if let Some(cost_bytes) = cost_bytes(flow).filter(|_| is_ready) {
                if queue.deficit_bytes >= cost_bytes {
                    queue.deficit_bytes -= cost_bytes;
                    let oldest = queue.waiting.pop_front();
                    return self.after_removal(flow, oldest);
                }
                // The flow receives its quantum, and may use it in the next round.
                queue.deficit_bytes += QUANTUM_BYTES;
            }
            self.round.rotate_left(1);
        }
        None
    }

    fn after_removal(
        &mut self,
        flow: u32,
        removed: Option<DelayedInterest>,
    ) -> Option<DelayedInterest> {
        let removed = removed?;
        self.len -= 1;
        self.bytes -= charge(&removed);
        let queue = &mut self.queues[flow as usize];
        if queue.waiting.is_empty() {
            *queue = FlowQueue::default();
            match self.round.front() == Some(&flow) {
                true => _ = self.round.pop_front(),
                false => self.round.retain(|&other| other != flow),
            }
        }
        Some(removed)
    }
}

fn charge(delayed: &DelayedInterest) -> u64 {
    delayed.packet.len() as u64 + CHARGE_BYTES
}
