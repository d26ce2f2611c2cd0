//! The output buffer: the producer's own content store, in memory and optionally on a disk (paper
//! socket-api, section 5.4).

use alloc::vec::Vec;

use weir_base::{HashKey, Instant, Packet, Pool};
use weir_store::disk::{DiskOp, DiskOpId, DiskOutcome, DiskTierConfig, DiskTierStats};
use weir_store::disk::{FinishedRead, OnDisk, ReadId, ReadRefused};
use weir_store::{
    Lookup, NameHashes, NewData, Query, ReadData, Store, StoreConfig, UNKNOWN_SOURCE,
};
use weir_wire::{DataView, InterestView, NameView};

use super::ProducerConfig;

/// Bytes of blocks kept for reuse.
const POOL_BYTES: usize = 1 << 20;
/// When this many records wait for the disk, publishers should wait, too.
const DISK_BACKLOG_HIGH: u32 = 1024;

pub(super) struct Buffer {
    store: Store,
    hash_key: HashKey,
    pool: Pool,
}

impl Buffer {
    /// With a disk, the configuration must have the disk's hash key.
    pub(super) fn new(config: &ProducerConfig, disk: Option<DiskTierConfig>) -> Self {
        let memory = StoreConfig {
            capacity_bytes: config.buffer_bytes,
            policy: config.buffer_policy,
            ..StoreConfig::default()
        };
        let store = match disk {
            Some(disk) => Store::with_disk(memory, disk),
            None => Store::new(memory),
        };
        Self { store, hash_key: config.hash_key, pool: Pool::new(POOL_BYTES) }
    }

    /// Whether it stores anything.
    pub(super) fn is_enabled(&self) -> bool {
        self.store.config().capacity_bytes > 0 || self.has_disk()
    }

    pub(super) fn has_disk(&self) -> bool {
        self.store.has_disk()
    }

    /// Bytes of memory in use.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> u64 {
        self.store.stats().bytes
    }

    /// The Data that answers an Interest, or its location on disk. A producer's own Data counts as
    /// fresh.
    pub(super) fn find(&mut self, now: Instant, interest: &InterestView<'_>) -> Lookup {
        if !self.is_enabled() {
            return Lookup::Miss;
        }
        let query = Query {
            name: interest.name,
            hashes: self.hashes(interest.name),
            can_be_prefix: interest.can_be_prefix,
            must_be_fresh: false,
        };
        self.store.lookup(now, &query)
    }

    pub(super) fn insert(&mut self, now: Instant, data: &DataView<'_>) {
        if !self.is_enabled() {
            return;
        }
        let hashes = self.hashes(data.name);
        let prefixes = prefixes(self.hash_key, data.name);
        let received = NewData { data, hashes, source: UNKNOWN_SOURCE };
        self.store.insert(now, received, prefixes, &mut self.pool);
    }

    /// A copy that uses no more memory than it needs.
    pub(super) fn copy(&mut self, packet: &[u8]) -> Packet {
        self.pool.copy(packet)
    }

    pub(super) fn begin_read(&mut self, found: &OnDisk) -> Result<ReadId, ReadRefused> {
        self.store.begin_read(found)
    }

    /// The record found on the disk for this Interest will not be read.
    pub(super) fn decline_read(&mut self, interest: &Packet) {
        self.store.count_miss_of(interest);
    }

    pub(super) fn on_disk_done(&mut self, now: Instant, id: DiskOpId, outcome: DiskOutcome) {
        self.store.on_disk_done(now, id, outcome);
    }

    pub(super) fn next_finished(&mut self) -> Option<FinishedRead> {
        self.store.next_finished()
    }

    /// Puts Data that was read and is wanted back into memory.
    pub(super) fn promote(
        &mut self,
        now: Instant,
        packet: &Packet,
        data: &DataView<'_>,
        fresh_until: Instant,
    ) {
        let hashes = self.hashes(data.name);
        let prefixes = prefixes(self.hash_key, data.name);
        let read = ReadData { packet, data, hashes, fresh_until };
        self.store.promote(now, read, prefixes, &mut self.pool);
    }

    pub(super) fn take_disk_ops(&mut self, now: Instant, ops: &mut Vec<DiskOp>) {
        self.store.take_disk_ops(now, ops);
    }

    pub(super) fn handle_timeout(&mut self, now: Instant) {
        if self.store.next_wakeup().is_some_and(|at| at <= now) {
            self.store.handle_timeout(now);
        }
    }

    pub(super) fn next_wakeup(&self) -> Option<Instant> {
        self.store.next_wakeup()
    }

    /// Whether the disk should write some of its backlog before more is added.
    pub(super) fn is_disk_behind(&self) -> bool {
        self.store.is_disk_behind(DISK_BACKLOG_HIGH)
    }

    pub(super) fn disk_stats(&self) -> DiskTierStats {
        match self.has_disk() {
            true => self.store.stats().disk,
            false => DiskTierStats::default(),
        }
    }

    fn hashes(&self, name: NameView<'_>) -> NameHashes {
        let parent = name.parent();
        // Only a store with a disk needs the grandparent.
        let grandparent = if self.has_disk() { parent.parent().value().len() } else { 0 };
        let parent = parent.value().len();
        let mut hasher = self.hash_key.prefixes(name.value());
        let mut hash = |len: usize| (len > 0).then(|| hasher.hash_to(len));
        NameHashes {
            grandparent: hash(grandparent),
            parent: hash(parent),
            whole: hasher.hash_to(name.value().len()),
        }
    }
}

/// Appends the hashes of all proper prefixes, shortest first.
fn prefixes(key: HashKey, name: NameView<'_>) -> impl FnOnce(&mut Vec<u64>) {
    move |out| {
        let mut hasher = key.prefixes(name.value());
        let counts = 1..name.component_count();
        out.extend(counts.map(|count| hasher.hash_to(name.prefix(count).value().len())));
    }
}
