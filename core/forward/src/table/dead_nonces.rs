//! Dead nonce list: nonces of ended PIT entries. They identify a looping Interest after its entry
//! has ended (NFD, DeadNonceList).

use alloc::collections::VecDeque;

use weir_base::{Instant, Table};

struct Dead {
    hash: u64,
    since: Instant,
}

/// A bounded first-in first-out list of 64-bit hashes of (name, nonce).
pub(crate) struct DeadNonceList {
    table: Table,
    /// The hash table knows entry `i` of the queue as `first + i`, wrapping.
    queue: VecDeque<Dead>,
    first: u32,
    lifetime_ns: u64,
    entries_max: usize,
}

impl DeadNonceList {
    pub(crate) fn new(lifetime_ns: u64, entries_max: usize) -> Self {
        Self {
            table: Table::with_capacity(1024.min(entries_max)),
            queue: VecDeque::new(),
            first: 0,
            lifetime_ns,
            entries_max,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    pub(crate) fn lifetime_ns(&self) -> u64 {
        self.lifetime_ns
    }

    /// Combines the hash of a name with a nonce. The hash is keyed, so attackers cannot choose
    /// collisions.
    fn key(name_hash: u64, nonce: u32) -> u64 {
        (name_hash ^ u64::from(nonce)).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(32)
            ^ name_hash
    }

    #[inline]
    pub(crate) fn prefetch(&self, name_hash: u64, nonce: u32) {
        if !self.queue.is_empty() {
            self.table.prefetch(Self::key(name_hash, nonce));
        }
    }

    #[inline]
    pub(crate) fn contains(&self, name_hash: u64, nonce: u32) -> bool {
        if self.queue.is_empty() {
            return false;
        }
        let key = Self::key(name_hash, nonce);
        let is_match = |index: u32| self.queue[index.wrapping_sub(self.first) as usize].hash == key;
        self.table.find(key, is_match).is_some()
    }

    pub(crate) fn insert(&mut self, now: Instant, name_hash: u64, nonce: u32) {
        if self.entries_max == 0 || self.contains(name_hash, nonce) {
            return;
        }
        if self.queue.len() == self.entries_max {
            self.pop_first();
        }
        let hash = Self::key(name_hash, nonce);
        let index = self.first.wrapping_add(self.queue.len() as u32);
        self.table.insert(hash, index);
        self.queue.push_back(Dead { hash, since: now });
    }

    /// Removes the nonces that are older than the lifetime.
    pub(crate) fn expire(&mut self, now: Instant) {
        while let Some(oldest) = self.queue.front()
            && now.ns_since(oldest.since) >= self.lifetime_ns
        {
            self.pop_first();
        }
    }

    fn pop_first(&mut self) {
        if let Some(oldest) = self.queue.pop_front() {
            let removed = self.table.remove(oldest.hash, self.first);
            assert!(removed, "table and queue agree");
            self.first = self.first.wrapping_add(1);
        }
    }
}
