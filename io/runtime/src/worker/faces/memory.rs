//! What all faces of a packet thread may hold together, and which of them lose it beyond that. Each
//! thread has an equal part of the router's memory; threads share no counters.
//!
//! Queues are counted once for each batch and face, the rest when it changes. At the bound a
//! quarter is released at once, so the search for what to release stays rare.

use weir_base::Instant;

use super::table::FaceTable;
use crate::face::{CountedBytes, Face, FaceSocket};
use crate::memory::MemoryShares;

/// One bound, and how much of it is used.
#[derive(Debug)]
struct Budget {
    used_bytes: u64,
    max_bytes: u64,
}

impl Budget {
    fn new(max_bytes: u64) -> Self {
        Self { used_bytes: 0, max_bytes }
    }

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

    /// How much may stay when something is released.
    fn target_bytes(&self) -> u64 {
        self.max_bytes / 4 * 3
    }

    /// The first of `faces`, oldest first, that hold what must be released.
    fn oldest_to_release(&self, mut faces: Vec<(Instant, u32, u64)>) -> Vec<u32> {
        faces.sort_unstable();
        let mut left_bytes = self.used_bytes;
        let is_needed = |&(_, _, bytes): &(Instant, u32, u64)| {
            let is_needed = left_bytes > self.target_bytes();
            left_bytes = left_bytes.saturating_sub(bytes);
            is_needed
        };
        faces.into_iter().take_while(is_needed).map(|(_, slot, _)| slot).collect()
    }
}

/// The bounds of one packet thread.
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

    /// Counts a face's queue after it was flushed. Returns whether all queues are too long now.
    #[inline]
    pub(super) fn recount_egress(&mut self, face: &mut Face) -> bool {
        self.egress.recount(&mut face.counted.egress, face.link.egress_memory_bytes());
        self.egress.is_over()
    }

    /// Returns whether there is too much now.
    #[inline]
    pub(super) fn recount_reassembly(&mut self, face: &mut Face) -> bool {
        let bytes = face.link.partial_bytes() as u64;
        if bytes == face.counted.reassembly {
            return false;
        }
        self.reassembly.recount(&mut face.counted.reassembly, bytes);
        self.reassembly.is_over()
    }

    /// Returns whether there is too much now.
    pub(super) fn recount_connection(&mut self, face: &mut Face) -> bool {
        let FaceSocket::Own(socket) = &face.socket else { return false };
        let bytes = socket.held_bytes() as u64;
        self.connections.recount(&mut face.counted.connection, bytes);
        self.connections.is_over()
    }

    /// Cuts the longest queues to one length. Where even their oldest frames are too much, returns
    /// the connections to close: those that have accepted nothing for longest.
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

    /// The connections to close when the beginnings of packets use too much: those that have sent
    /// nothing for longest after such a beginning.
    #[cold]
    pub(super) fn connections_to_shed(&self, faces: &FaceTable) -> Vec<u32> {
        let waiting = faces.iter().filter(|(_, face)| face.counted.connection > 0);
        let waiting =
            waiting.map(|(slot, face)| (face.last_heard(), slot, face.counted.connection));
        self.connections.oldest_to_release(waiting.collect())
    }
}

/// The length to which the longest of `queues` (shortest first) must be cut, so that all together
/// use `bytes_max`.
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
