//! The disk reads in progress, and the PIT entries that wait for each.

use alloc::vec::Vec;

use weir_base::{FaceId, Instant, Slab, Table, mix};
use weir_store::disk::ReadId;
use weir_wire::LpHeader;

/// The end of a list, or no entry.
const NONE: u32 = u32::MAX;
const DISKS_MAX: usize = 16;

/// A PIT entry that waits for a read, and what is needed to forward it if the read fails.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiter {
    pub(crate) entry: u32,
    pub(crate) since: Instant,
    /// The face that the first Interest came from.
    pub(crate) ingress: FaceId,
    pub(crate) next_hop_face: Option<u64>,
    pub(crate) non_discovery: bool,
    /// Whether its Data must be marked.
    pub(crate) is_marked: bool,
    pub(crate) disk: u8,
    /// Reads that were in the queue when it arrived.
    pub(crate) ahead: u32,
}

impl Waiter {
    /// The header fields of the first Interest that concern the choice of next hops.
    pub(crate) fn header(&self) -> LpHeader {
        let &Self { next_hop_face, non_discovery, .. } = self;
        LpHeader { next_hop_face, non_discovery, ..LpHeader::PLAIN }
    }
}

struct WaiterNode {
    waiter: Waiter,
    read: u32,
    previous: u32,
    next: u32,
}

struct Read {
    id: ReadId,
    disk: u8,
    /// The waiters, in order of arrival.
    first: u32,
    last: u32,
}

/// All reads in progress that Interests have begun. A read stays until it ends, even if no entry
/// waits for it any more. The store limits their number.
pub(crate) struct Reads {
    table: Table,
    reads: Slab<Read>,
    waiters: Slab<WaiterNode>,
    by_disk: [u32; DISKS_MAX],
}

impl Reads {
    pub(crate) fn new() -> Self {
        Self {
            table: Table::with_capacity(0),
            reads: Slab::new(),
            waiters: Slab::new(),
            by_disk: [0; DISKS_MAX],
        }
    }

    /// The number of reads in progress at the busiest disk.
    pub(crate) fn longest_queue(&self) -> u32 {
        self.by_disk.iter().copied().max().unwrap_or(0)
    }

    /// The number of reads in progress at `disk`.
    pub(crate) fn queue_of(&self, disk: u8) -> u32 {
        self.by_disk[usize::from(disk) % DISKS_MAX]
    }

    pub(crate) fn waiter(&self, at: u32) -> &Waiter {
        &self.waiters[at].waiter
    }

    /// Adds an entry that waits for a read. Returns the slot of its waiter. The entry keeps the
    /// slot until it stops waiting or the read ends.
    pub(crate) fn add_waiter(&mut self, id: ReadId, disk: u8, waiter: Waiter) -> u32 {
        let read = self.find(id).unwrap_or_else(|| self.insert(id, disk));
        let previous = self.reads[read].last;
        let at = self.waiters.insert(WaiterNode { waiter, read, previous, next: NONE });
        match self.waiters.get_mut(previous) {
            Some(linked) => linked.next = at,
            None => self.reads[read].first = at,
        }
        self.reads[read].last = at;
        at
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.reads.len() == 0
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

    /// Removes the waiter of an entry; its read continues.
    pub(crate) fn remove_waiter(&mut self, at: u32) {
        let WaiterNode { read, previous, next, .. } = self.waiters.remove(at);
        match self.waiters.get_mut(previous) {
            Some(linked) => linked.next = next,
            None => self.reads[read].first = next,
        }
        match self.waiters.get_mut(next) {
            Some(linked) => linked.previous = previous,
            None => self.reads[read].last = previous,
        }
    }

    /// Ends a read and appends its waiters. Appends none if the read has ended before.
    pub(crate) fn finish(&mut self, id: ReadId, waiters: &mut Vec<Waiter>) {
        let Some(index) = self.find(id) else { return };
        self.table.remove(mix(id.0), index);
        let read = self.reads.remove(index);
        self.by_disk[usize::from(read.disk) % DISKS_MAX] -= 1;
        let mut next = read.first;
        while next != NONE {
            let linked = self.waiters.remove(next);
            waiters.push(linked.waiter);
            next = linked.next;
        }
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
            non_discovery: false,
            is_marked: false,
            disk: 0,
            ahead: 0,
        }
    }

    fn entries(waiters: &[Waiter]) -> Vec<u32> {
        waiters.iter().map(|waiter| waiter.entry).collect()
    }

    #[test]
    fn waiters_keep_order_after_removals() {
        let mut reads = Reads::new();
        let [seven, three, _, nine] =
            [7, 3, 5, 9].map(|entry| reads.add_waiter(ReadId(1), 2, waiter(entry)));
        reads.add_waiter(ReadId(2), 2, waiter(4));
        assert_eq!((reads.queue_of(2), reads.longest_queue()), (2, 2));
        assert_eq!(reads.waiter(three).entry, 3);
        for at in [three, seven, nine] {
            reads.remove_waiter(at);
        }
        reads.add_waiter(ReadId(1), 2, waiter(3));
        let mut waiters = Vec::new();
        reads.finish(ReadId(1), &mut waiters);
        assert_eq!(entries(&waiters), vec![5, 3]);
        reads.finish(ReadId(1), &mut waiters);
        assert_eq!(waiters.len(), 2, "the read ended before");
        assert_eq!((reads.queue_of(2), reads.queue_of(1)), (1, 0));
    }

    #[test]
    fn read_without_waiters_still_counts() {
        let mut reads = Reads::new();
        let at = reads.add_waiter(ReadId(8), 0, waiter(1));
        reads.remove_waiter(at);
        assert_eq!(reads.queue_of(0), 1);
        let mut waiters = Vec::new();
        reads.finish(ReadId(8), &mut waiters);
        assert!(waiters.is_empty() && reads.queue_of(0) == 0);
    }
}
