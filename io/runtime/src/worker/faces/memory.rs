//! How the memory of queues is divided among the faces of a worker thread.
//!
//! Each thread has an equal share of the router's memory, and threads share no counters. Three
//! budgets limit the memory of all faces of a thread together:
//!
//! | budget | share of `memory_max` | over budget |
//! |---|---|---|
//! | egress queues | 1/8 | the longest queues are cut to one common length |
//! | partially reassembled packets | 1/16 | the oldest partial packets are discarded |
//! | incomplete packets on connections | 1/16 | the longest silent connections are closed |
//!
//! 1. After each batch, the egress queue of every face that sent is counted again
//!    ([`MemoryBudgets::recount_egress`]). The other two are counted when they change. A budget
//!    stores the sum, and each face stores what the sum includes for it, so counting costs no
//!    search.
//! 2. When a sum exceeds its budget, memory is released until 3/4 of the budget is used. A quarter
//!    is thus released at once, and the search through all faces stays rare.
//! 3. For egress, [`cut_length`] computes the length L such that all queues, cut to L, fit into the
//!    target. It walks the queues from the shortest: each may use an equal share of what the
//!    shorter ones have left over. Only the longest queues lose packets.
//! 4. The oldest frame of a connection may be partly sent, so it must stay. If these frames alone
//!    exceed the budget, the worker closes connections, first those that are blocked for longest.
//!
//! Example: the budget is 16 KiB, and four queues hold 1, 2, 6 and 10 KiB, in total 19 KiB. The
//! target is 12 KiB. The first queue may use 12/4 = 3 KiB and uses 1; the second (12-1)/3 = 3.67
//! and uses 2; the third (11-2)/2 = 4.5 and has 6, so L = 4.5 KiB. The two long queues are cut to
//! 4.5 KiB each, and all use 1 + 2 + 4.5 + 4.5 = 12 KiB.
//!
//! It must never take packets from a short queue because another face's queue is long. It must
//! never cut a frame of a stream that has been sent in part.

use weir_base::Instant;

use super::table::FaceTable;
use crate::face::{CountedBytes, Face, FaceSocket};
use crate::memory::MemoryShares;

/// A limit, and how much of it is used.
#[derive(Debug)]
struct Budget {
    used_bytes: u64,
    max_bytes: u64,
}

impl Budget {
    fn new(max_bytes: u64) -> Self {
        Self { used_bytes: 0, max_bytes }
    }

    /// Changes the count of one face from `counted` to `bytes`.
    #[inline]
    fn recount(&mut self, counted: &mut u64, bytes: u64) {
        self.used_bytes = self.used_bytes - *counted + bytes;
        *counted = bytes;
    }

    #[inline]
    fn is_over(&self) -> bool {
        self.used_bytes > self.max_bytes
    }

    /// How much may stay when memory is released.
    fn target_bytes(&self) -> u64 {
        self.max_bytes / 4 * 3
    }

    /// Selects faces, oldest first, until releasing them would reach the target.
    fn oldest_to_release(&self, mut faces: Vec<(Instant, u32, u64)>) -> Vec<u32> {
        faces.sort_unstable();
        let mut left_bytes = self.used_bytes;
        let is_needed = |&(_, _, bytes): &(Instant, u32, u64)| {
            // Also release the face that crosses the target.
            let is_needed = left_bytes > self.target_bytes();
            left_bytes = left_bytes.saturating_sub(bytes);
            is_needed
        };
        faces.into_iter().take_while(is_needed).map(|(_, slot, _)| slot).collect()
    }
}

/// The budgets of one worker thread.
#[derive(Debug)]
pub(super) struct MemoryBudgets {
    egress: Budget,
    reassembly: Budget,
    connections: Budget,
}

impl MemoryBudgets {
    pub(super) fn new(shares: &MemoryShares) -> Self {
        Self {
            egress: Budget::new(shares.egress_bytes),
            reassembly: Budget::new(shares.reassembly_bytes),
            connections: Budget::new(shares.connection_bytes),
        }
    }

    pub(super) fn forget(&mut self, mut face: CountedBytes) {
        self.egress.recount(&mut face.egress, 0);
        self.reassembly.recount(&mut face.reassembly, 0);
        self.connections.recount(&mut face.connection, 0);
    }

    /// Counts a face's egress queue again, after a flush. Returns whether all queues exceed the
    /// budget.
    #[inline]
    pub(super) fn recount_egress(&mut self, face: &mut Face) -> bool {
        self.egress.recount(&mut face.counted.egress, face.link.egress_memory_bytes());
        self.egress.is_over()
    }

    /// Counts a face's partial packets again. Returns whether all of them exceed the budget.
    #[inline]
    pub(super) fn recount_reassembly(&mut self, face: &mut Face) -> bool {
        let bytes = face.link.partial_bytes() as u64;
        if bytes == face.counted.reassembly {
            return false;
        }
        self.reassembly.recount(&mut face.counted.reassembly, bytes);
        self.reassembly.is_over()
    }

    /// Counts a face's incomplete packet again. Returns whether all of them exceed the budget.
    pub(super) fn recount_connection(&mut self, face: &mut Face) -> bool {
        let FaceSocket::Own(socket) = &face.socket else { return false };
        let bytes = socket.held_bytes() as u64;
        self.connections.recount(&mut face.counted.connection, bytes);
        self.connections.is_over()
    }

    /// Cuts the longest queues to one length. If their oldest frames alone exceed the budget,
    /// returns connections to close, first those that are blocked for longest.
    #[cold]
    pub(super) fn shed_egress(&mut self, faces: &mut FaceTable) -> Vec<u32> {
        let queues = faces.iter().map(|(slot, face)| (face.counted.egress, slot));
        let mut queues: Vec<(u64, u32)> = queues.filter(|&(bytes, _)| bytes > 0).collect();
        queues.sort_unstable();
        let level_bytes = cut_length(&queues, self.egress.target_bytes());
        for &(_, slot) in queues.iter().rev().take_while(|&&(bytes, _)| bytes > level_bytes) {
            let Some(face) = faces.at(slot) else { continue };
            face.link.shed_egress(level_bytes, matches!(face.socket, FaceSocket::Own(_)));
            self.recount_egress(face);
        }
        if !self.egress.is_over() {
            return Vec::new();
        }
        let blocked =
            |(slot, face): (u32, &Face)| Some((face.blocked_since()?, slot, face.counted.egress));
        self.egress.oldest_to_release(faces.iter().filter_map(blocked).collect())
    }

    /// Discards the oldest partial packets.
    #[cold]
    pub(super) fn shed_reassembly(&mut self, faces: &mut FaceTable) {
        let mut partials: Vec<(Instant, u32, u64)> = Vec::new();
        for (slot, face) in faces.iter() {
            partials.extend(face.link.partials().map(|(deadline, id, _)| (deadline, slot, id)));
        }
        partials.sort_unstable();
        for (_, slot, id) in partials {
            if self.reassembly.used_bytes <= self.reassembly.target_bytes() {
                return;
            }
            let Some(face) = faces.at(slot) else { continue };
            face.link.discard_partial(id);
            self.recount_reassembly(face);
        }
    }

    /// Selects connections to close when incomplete packets use too much memory. The connections
    /// that have been silent for longest come first.
    #[cold]
    pub(super) fn connections_to_shed(&self, faces: &FaceTable) -> Vec<u32> {
        let waiting = faces.iter().filter(|(_, face)| face.counted.connection > 0);
        let waiting =
            waiting.map(|(slot, face)| (face.last_heard(), slot, face.counted.connection));
        self.connections.oldest_to_release(waiting.collect())
    }
}

/// The length L to which the longest queues must be cut, so that all queues together use
/// `bytes_max`. `queues` is sorted, shortest first. `u64::MAX` if no cut is needed.
fn cut_length(queues: &[(u64, u32)], bytes_max: u64) -> u64 {
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
    use super::cut_length;

    #[test]
    fn longest_queues_are_cut_to_one_length() {
        let cut = |queues: &[u64], bytes_max| {
            let queues: Vec<_> = queues.iter().map(|&bytes| (bytes, 0)).collect();
            cut_length(&queues, bytes_max)
        };
        assert_eq!(cut(&[], 10), u64::MAX);
        assert_eq!(cut(&[1, 2, 3], 6), u64::MAX);
        assert_eq!(cut(&[1, 2, 30], 10), 7);
        assert_eq!(cut(&[1, 20, 30], 11), 5);
        assert_eq!(cut(&[20, 20, 20, 20], 40), 10);
    }
}
