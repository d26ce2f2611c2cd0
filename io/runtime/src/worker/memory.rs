//! What all faces of a packet thread hold together, and what gives way beyond the bound. Each
//! thread has an equal part of the router's; nothing is counted in common.
//!
//! Counted once a batch and face for what waits to be sent, and when it changes for the rest. At
//! the bound a quarter is set free at once, so that looking for what gives way stays rare.

use weir_base::Instant;

use super::Worker;
use super::face::{Counted, Face, Socket};
use crate::memory::MemoryShares;
use crate::message::CloseReason;

/// One bound, and how much of it is taken.
#[derive(Debug)]
struct Budget {
    used_bytes: u64,
    max_bytes: u64,
}

impl Budget {
    /// What was `counted` is `bytes` now.
    #[inline]
    fn recount(&mut self, counted: &mut u64, bytes: u64) {
        self.used_bytes = self.used_bytes - *counted + bytes;
        *counted = bytes;
    }

    #[inline]
    fn is_over(&self) -> bool {
        self.used_bytes > self.max_bytes
    }

    /// How much may stay when something gives way.
    fn kept_bytes(&self) -> u64 {
        self.max_bytes / 4 * 3
    }
}

/// The bounds of one packet thread.
#[derive(Debug)]
pub(super) struct Memory {
    egress: Budget,
    reassembly: Budget,
    connections: Budget,
}

impl Memory {
    pub(super) fn new(shares: &MemoryShares) -> Self {
        let budget = |max_bytes| Budget { used_bytes: 0, max_bytes };
        Self {
            egress: budget(shares.egress_bytes),
            reassembly: budget(shares.reassembly_bytes),
            connections: budget(shares.connection_bytes),
        }
    }

    /// A face is gone.
    pub(super) fn forget(&mut self, mut face: Counted) {
        self.egress.recount(&mut face.egress_bytes, 0);
        self.reassembly.recount(&mut face.reassembly_bytes, 0);
        self.connections.recount(&mut face.connection_bytes, 0);
    }

    #[inline]
    pub(super) fn recount_egress(&mut self, face: &mut Face) {
        self.egress.recount(&mut face.counted.egress_bytes, face.link.egress_memory_bytes());
    }

    /// Whether there is too much now.
    #[inline]
    pub(super) fn recount_reassembly(&mut self, face: &mut Face) -> bool {
        let bytes = face.link.partial_bytes() as u64;
        if bytes == face.counted.reassembly_bytes {
            return false;
        }
        self.reassembly.recount(&mut face.counted.reassembly_bytes, bytes);
        self.reassembly.is_over()
    }

    /// Whether there is too much now.
    pub(super) fn recount_connection(&mut self, face: &mut Face) -> bool {
        let Socket::Own(socket) = &face.socket else { return false };
        let bytes = socket.held_bytes() as u64;
        self.connections.recount(&mut face.counted.connection_bytes, bytes);
        self.connections.is_over()
    }
}

impl Worker {
    /// After a face has given its queue to its socket.
    #[inline]
    pub(super) fn bound_egress(&mut self, slot: u32) {
        let Some(face) = self.faces.at(slot) else { return };
        self.memory.recount_egress(face);
        if self.memory.egress.is_over() {
            self.shed_egress();
        }
    }

    /// The longest queues are cut to one length. Where even their oldest frames are too much, the
    /// connections that have taken nothing for longest are closed.
    #[cold]
    fn shed_egress(&mut self) {
        let kept_bytes = self.memory.egress.kept_bytes();
        let queues = || self.faces.iter().map(|(slot, face)| (face.counted.egress_bytes, slot));
        let mut queues: Vec<(u64, u32)> = queues().filter(|&(bytes, _)| bytes > 0).collect();
        queues.sort_unstable();
        let level_bytes = level_of(&queues, kept_bytes);
        for &(_, slot) in queues.iter().rev().take_while(|&&(bytes, _)| bytes > level_bytes) {
            let Some(face) = self.faces.at(slot) else { continue };
            face.link.shed_egress(level_bytes, matches!(face.socket, Socket::Own(_)));
            self.memory.recount_egress(face);
        }
        if self.memory.egress.is_over() {
            self.close_longest_blocked(kept_bytes);
        }
    }

    fn close_longest_blocked(&mut self, kept_bytes: u64) {
        let blocked = |(slot, face): (u32, &Face)| Some((face.blocked?.since, slot));
        let mut blocked: Vec<(Instant, u32)> = self.faces.iter().filter_map(blocked).collect();
        blocked.sort_unstable();
        for (_, slot) in blocked {
            if self.memory.egress.used_bytes <= kept_bytes {
                return;
            }
            self.close_stalled(slot);
        }
    }

    /// The oldest partial packets give way.
    #[cold]
    pub(super) fn shed_reassembly(&mut self) {
        let mut partials: Vec<(Instant, u32, u64)> = Vec::new();
        for (slot, face) in self.faces.iter() {
            partials.extend(face.link.partials().map(|(deadline, id, _)| (deadline, slot, id)));
        }
        partials.sort_unstable();
        for (_, slot, id) in partials {
            if self.memory.reassembly.used_bytes <= self.memory.reassembly.kept_bytes() {
                return;
            }
            let Some(face) = self.faces.at(slot) else { continue };
            face.link.discard_partial(id);
            self.memory.recount_reassembly(face);
        }
    }

    /// The connections that have sent nothing for longest, after the beginning of a packet, close.
    #[cold]
    pub(super) fn shed_connections(&mut self) {
        let waiting = self.faces.iter().filter(|(_, face)| face.counted.connection_bytes > 0);
        let mut waiting: Vec<(Instant, u32)> =
            waiting.map(|(slot, face)| (face.heard(), slot)).collect();
        waiting.sort_unstable();
        for (_, slot) in waiting {
            if self.memory.connections.used_bytes <= self.memory.connections.kept_bytes() {
                return;
            }
            self.close_socket(slot, CloseReason::Displaced);
        }
    }

    /// Closes the connections that have taken nothing for long, and gives back memory that only a
    /// busier time needed.
    pub(super) fn tend_memory(&mut self, now: Instant) {
        let is_stalled = |face: &Face| {
            let until = face.blocked.map(|blocked| blocked.since.plus_ns(self.stall_timeout_ns));
            until.is_some_and(|until| until <= now)
        };
        let stalled = self.faces.iter().filter(|(_, face)| is_stalled(face));
        let stalled: Vec<u32> = stalled.map(|(slot, _)| slot).collect();
        for slot in stalled {
            self.close_stalled(slot);
        }
        self.faces.shrink();
    }

    fn close_stalled(&mut self, slot: u32) {
        let now = self.clock.now();
        let Some(face) = self.faces.at(slot) else { return };
        let face = face.id.0;
        self.close_socket(slot, CloseReason::Stalled);
        if let Some(count) = self.stalls.add(now) {
            tracing::warn!(face, count, "a connection closes: its peer takes nothing");
        }
    }
}

/// The length to which the longest of `queues` (shortest first) are to be cut, so that all together
/// take `bytes_max`.
fn level_of(queues: &[(u64, u32)], bytes_max: u64) -> u64 {
    let mut left_bytes = bytes_max;
    for (index, &(bytes, _)) in queues.iter().enumerate() {
        let level_bytes = left_bytes / (queues.len() - index) as u64;
        if bytes > level_bytes {
            return level_bytes;
        }
        left_bytes -= bytes;
    }
    u64::MAX
}

#[cfg(test)]
mod tests {
    use super::level_of;

    #[test]
    fn the_longest_queues_are_cut_to_one_length() {
        let cut = |queues: &[u64], bytes_max| {
            let queues: Vec<_> = queues.iter().map(|&bytes| (bytes, 0)).collect();
            level_of(&queues, bytes_max)
        };
        assert_eq!(cut(&[], 10), u64::MAX);
        assert_eq!(cut(&[1, 2, 3], 6), u64::MAX);
        assert_eq!(cut(&[1, 2, 30], 10), 7);
        assert_eq!(cut(&[1, 20, 30], 11), 5);
        assert_eq!(cut(&[20, 20, 20, 20], 40), 10);
    }
}
