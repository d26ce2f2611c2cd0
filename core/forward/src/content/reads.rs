//! Who waits for which read of a disk.

use alloc::vec::Vec;

use weir_base::{FaceId, Instant, Slab, Table, mix};
use weir_store::disk::ReadId;

/// No read, no waiter.
const NONE: u32 = u32::MAX;
/// Disks of a store.
const DISKS_MAX: usize = 16;

/// A PIT entry that waits for a read, and what is needed to send it on if that fails.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiter {
    /// The PIT entry.
    pub(crate) entry: u32,
    /// Since when.
    pub(crate) since: Instant,
    /// Where the first Interest came from.
    pub(crate) ingress: FaceId,
    /// Its NextHopFaceId.
    pub(crate) next_hop_face: Option<u64>,
    /// Whether its Data is to be marked.
    pub(crate) is_marked: bool,
    /// The disk.
    pub(crate) disk: u8,
    /// Reads that waited for the disk when it came.
    pub(crate) ahead: u32,
}

struct Linked {
    waiter: Waiter,
    read: u32,
    previous: u32,
    next: u32,
}

struct Read {
    id: ReadId,
    disk: u8,
    /// The waiters, in the order in which they came.
    first: u32,
    last: u32,
}

/// All reads under way that were begun for Interests. A read stays until it ends, whether anybody
/// waits for it or not; bounded by the store, which refuses more.
pub(crate) struct Reads {
    table: Table,
    reads: Slab<Read>,
    waiters: Slab<Linked>,
    /// From a PIT entry's index to its waiter.
    by_entry: Vec<u32>,
    by_disk: [u32; DISKS_MAX],
}

impl Reads {
    pub(crate) fn new() -> Self {
        Self {
            table: Table::with_capacity(0),
            reads: Slab::new(),
            waiters: Slab::new(),
            by_entry: Vec::new(),
            by_disk: [0; DISKS_MAX],
        }
    }

    /// Reads under way at the disk that has most.
    pub(crate) fn longest_queue(&self) -> u32 {
        self.by_disk.iter().copied().max().unwrap_or(0)
    }

    /// Reads under way at `disk`.
    pub(crate) fn queue_of(&self, disk: u8) -> u32 {
        self.by_disk[usize::from(disk) % DISKS_MAX]
    }

    /// Who waits with a PIT entry, if it does.
    pub(crate) fn waiter(&self, entry: u32) -> Option<&Waiter> {
        let index = *self.by_entry.get(entry as usize)?;
        self.waiters.get(index).map(|linked| &linked.waiter)
    }

    /// An entry, which waits for nothing yet, waits for a read that was begun or joined.
    pub(crate) fn wait(&mut self, id: ReadId, disk: u8, waiter: Waiter) {
        let read = self.find(id).unwrap_or_else(|| self.insert(id, disk));
        let entry = waiter.entry as usize;
        if self.by_entry.len() <= entry {
            self.by_entry.resize(entry + 1, NONE);
        }
        assert_eq!(self.by_entry[entry], NONE, "an entry waits once");
        let previous = self.reads[read].last;
        let index = self.waiters.insert(Linked { waiter, read, previous, next: NONE });
        match self.waiters.get_mut(previous) {
            Some(linked) => linked.next = index,
            None => self.reads[read].first = index,
        }
        self.reads[read].last = index;
        self.by_entry[entry] = index;
    }

    fn find(&self, id: ReadId) -> Option<u32> {
        self.table.find(mix(id.0), |index| self.reads[index].id == id)
    }

    fn insert(&mut self, id: ReadId, disk: u8) -> u32 {
        let index = self.reads.insert(Read { id, disk, first: NONE, last: NONE });
        self.table.insert(mix(id.0), index);
        self.by_disk[usize::from(disk) % DISKS_MAX] += 1;
        index
    }

    /// An entry waits no longer; its read goes on.
    pub(crate) fn leave(&mut self, entry: u32) -> Option<Waiter> {
        let slot = self.by_entry.get_mut(entry as usize)?;
        let index = core::mem::replace(slot, NONE);
        if index == NONE {
            return None;
        }
        let Linked { waiter, read, previous, next } = self.waiters.remove(index);
        match self.waiters.get_mut(previous) {
            Some(linked) => linked.next = next,
            None => self.reads[read].first = next,
        }
        match self.waiters.get_mut(next) {
            Some(linked) => linked.previous = previous,
            None => self.reads[read].last = previous,
        }
        Some(waiter)
    }

    /// A read has ended: appends those who wait for it, who do so no longer, and returns the disk.
    /// Nothing when it was let go before.
    pub(crate) fn finish(&mut self, id: ReadId, waiters: &mut Vec<Waiter>) -> Option<u8> {
        let index = self.find(id)?;
        self.table.remove(mix(id.0), index);
        let read = self.reads.remove(index);
        self.by_disk[usize::from(read.disk) % DISKS_MAX] -= 1;
        let mut next = read.first;
        while next != NONE {
            let linked = self.waiters.remove(next);
            self.by_entry[linked.waiter.entry as usize] = NONE;
            waiters.push(linked.waiter);
            next = linked.next;
        }
        Some(read.disk)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn waiter(entry: u32) -> Waiter {
        Waiter {
            entry,
            since: Instant::ZERO,
            ingress: FaceId(1),
            next_hop_face: None,
            is_marked: false,
            disk: 0,
            ahead: 0,
        }
    }

    fn entries(waiters: &[Waiter]) -> Vec<u32> {
        waiters.iter().map(|waiter| waiter.entry).collect()
    }

    #[test]
    fn waiters_come_out_in_order_less_those_who_left() {
        let mut reads = Reads::new();
        for entry in [7, 3, 5, 9] {
            reads.wait(ReadId(1), 2, waiter(entry));
        }
        reads.wait(ReadId(2), 2, waiter(4));
        assert_eq!((reads.queue_of(2), reads.longest_queue()), (2, 2));
        assert_eq!(reads.leave(3).map(|waiter| waiter.entry), Some(3));
        assert!(reads.leave(3).is_none() && reads.leave(1000).is_none());
        assert!(reads.waiter(3).is_none() && reads.waiter(5).is_some());
        reads.leave(7);
        reads.leave(9);
        reads.wait(ReadId(1), 2, waiter(3));
        let mut waiters = Vec::new();
        assert_eq!(reads.finish(ReadId(1), &mut waiters), Some(2));
        assert_eq!(entries(&waiters), vec![5, 3]);
        assert_eq!(reads.finish(ReadId(1), &mut waiters), None, "let go before");
        assert!(reads.waiter(5).is_none());
        assert_eq!((reads.queue_of(2), reads.queue_of(1)), (1, 0));
    }

    #[test]
    fn a_read_that_nobody_waits_for_still_counts() {
        let mut reads = Reads::new();
        reads.wait(ReadId(8), 0, waiter(1));
        reads.leave(1);
        assert_eq!(reads.queue_of(0), 1);
        let mut waiters = Vec::new();
        assert_eq!(reads.finish(ReadId(8), &mut waiters), Some(0));
        assert!(waiters.is_empty() && reads.queue_of(0) == 0);
    }
}
