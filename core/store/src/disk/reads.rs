//! Reads that Interests wait for.

use super::address::{Key, RecordAddress};
use super::lookup::{FinishedRead, ReadId, ReadOutcome};
use alloc::collections::VecDeque;
use weir_base::{Slab, Table};

/// A read that one or more Interests wait for.
pub(super) struct SharedRead {
    pub(super) id: ReadId,
    pub(super) key: Key,
    pub(super) address: RecordAddress,
    pub(super) ticket: u64,
    /// The disk stalled, and the waiting Interests have been released already.
    pub(super) is_released: bool,
    /// The Data was erased or replaced after the read began.
    pub(super) is_stale: bool,
}

/// Reads that wait or are in progress, by key, and the results of finished ones.
pub(super) struct Reads {
    reads: Slab<SharedRead>,
    by_key: Table,
    last_id: u64,
    finished: VecDeque<FinishedRead>,
}

impl Reads {
    pub(super) fn new() -> Self {
        Self {
            reads: Slab::new(),
            by_key: Table::with_capacity(0),
            last_id: 0,
            finished: VecDeque::new(),
        }
    }

    pub(super) fn get(&self, at: u32) -> &SharedRead {
        &self.reads[at]
    }

    /// The read of this record, if one can be joined.
    pub(super) fn find(&self, key: Key, address: RecordAddress) -> Option<u32> {
        if self.by_key.is_empty() {
            return None;
        }
        self.by_key.find(key.filter_hash(), |at| {
            let read = &self.reads[at];
            read.key == key && read.address == address && !read.is_stale
        })
    }

    pub(super) fn join(&mut self, at: u32) -> ReadId {
        let read = &mut self.reads[at];
        read.is_released = false;
        read.id
    }

    pub(super) fn finish_immediately(&mut self, outcome: ReadOutcome) -> ReadId {
        let id = self.next_id();
        self.finish(id, outcome);
        id
    }

    /// Adds a read. Returns its identifier and its index.
    pub(super) fn begin(&mut self, key: Key, address: RecordAddress, ticket: u64) -> (ReadId, u32) {
        let id = self.next_id();
        let read = SharedRead { id, key, address, ticket, is_released: false, is_stale: false };
        let at = self.reads.insert(read);
        self.by_key.insert(key.filter_hash(), at);
        (id, at)
    }

    fn next_id(&mut self) -> ReadId {
        self.last_id += 1;
        ReadId(self.last_id)
    }

    /// Marks the reads of this key: their record must not be served any more.
    pub(super) fn invalidate(&mut self, key: Key) {
        let Self { by_key, reads, .. } = self;
        if by_key.is_empty() {
            return;
        }
        by_key.for_each_candidate(key.filter_hash(), |at| {
            let read = &mut reads[at];
            read.is_stale |= read.key == key;
        });
    }

    /// Marks all reads: none of their records may be served any more.
    pub(super) fn invalidate_all(&mut self) {
        self.reads.iter_mut().for_each(|(_, read)| read.is_stale = true);
    }

    pub(super) fn remove(&mut self, at: u32) -> SharedRead {
        let read = self.reads.remove(at);
        self.by_key.remove(read.key.filter_hash(), at);
        read
    }

    /// Releases the Interests that wait for a read, unless they were released before.
    pub(super) fn release_waiters(&mut self, at: u32) {
        let read = &mut self.reads[at];
        if !core::mem::replace(&mut read.is_released, true) {
            let id = read.id;
            self.finish(id, ReadOutcome::Stalled);
        }
    }

    pub(super) fn finish(&mut self, read: ReadId, outcome: ReadOutcome) {
        self.finished.push_back(FinishedRead { read, outcome });
    }

    pub(super) fn next_finished(&mut self) -> Option<FinishedRead> {
        self.finished.pop_front()
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.reads.len()
    }
}
