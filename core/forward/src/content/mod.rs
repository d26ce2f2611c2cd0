//! The content store of a shard, its disks, and the Interests that wait for them.

pub(crate) mod adaptive;
pub(crate) mod busy;
pub(crate) mod bypass;
pub(crate) mod decision;
pub(crate) mod disk;
mod holdings;
pub(crate) mod marks;
pub(crate) mod neighbours;
pub(crate) mod queries;
pub(crate) mod reads;
pub(crate) mod refill;
pub(crate) mod thresholds;
pub(crate) mod write_marks;

use alloc::sync::Arc;
use alloc::vec::Vec;

use weir_base::{FaceId, HashKey, Instant, Packet, Pool};
use weir_store::{NameHashes, NewData, ReadData, Store};
use weir_wire::DataView;

use crate::config::RouterConfig;
use crate::content::disk::DiskState;
use crate::content::queries::Queries;
use crate::input::MissReports;
use crate::table::prefixes::hash_proper_prefixes;
use crate::table::watches::Watches;

pub(crate) struct Content {
    pub(crate) store: Store,
    pub(crate) disk: DiskState,
    /// Queries to the stores of other shards.
    pub(crate) queries: Queries,
    /// PIT entries of other shards whose Data may arrive here.
    pub(crate) watches: Watches,
    /// Which Interests cause reports of misses of large objects.
    pub(crate) reported_misses: MissReports,
    /// When the work of [`Content::continue_building`] began; `None` when it is complete.
    pub(crate) building_since: Option<Instant>,
    /// Memory blocks for packets in the store and the PIT.
    pub(crate) pool: Pool,
    hash_key: HashKey,
}

impl Content {
    pub(crate) fn new(now: Instant, config: &RouterConfig) -> Self {
        Self {
            store: match &config.disk {
                Some(disk) => Store::with_disk(config.store.clone(), disk.clone()),
                None => Store::new(config.store.clone()),
            },
            disk: DiskState::new(&config.busy, config.disk.as_ref()),
            queries: Queries::default(),
            watches: Watches::new(now, watches_max(config)),
            reported_misses: MissReports::Off,
            building_since: None,
            pool: match &config.memory {
                Some(memory) => Pool::with_spans(config.pool_bytes_max, Arc::clone(memory)),
                None => Pool::new(config.pool_bytes_max),
            },
            hash_key: config.hash_key,
        }
    }

    /// Stores Data that came from the face `source`. Returns the stored copy.
    pub(crate) fn insert(
        &mut self,
        now: Instant,
        data: &DataView<'_>,
        hashes: NameHashes,
        source: FaceId,
    ) -> Option<Packet> {
        let key = &self.hash_key;
        let prefixes = |path: &mut Vec<u64>| hash_proper_prefixes(key, data.name, path);
        // Face identifiers are assigned in sequence, so the low 32 bits distinguish them.
        let received = NewData { data, hashes, source: source.0 as u32 };
        self.store.insert(now, received, prefixes, &mut self.pool)
    }

    /// Copies Data that a disk has read into memory.
    pub(crate) fn promote(&mut self, now: Instant, read: ReadData<'_>) {
        let key = &self.hash_key;
        let prefixes = |path: &mut Vec<u64>| hash_proper_prefixes(key, read.data.name, path);
        self.store.promote(now, read, prefixes, &mut self.pool);
    }
}

/// Maximum number of watches: one for each PIT entry of the other shards, within an eighth of the
/// memory of the PIT.
fn watches_max(config: &RouterConfig) -> usize {
    /// A watch with its slab slot, its timer and its share of the hash table.
    const WATCH_BYTES: u64 = 80;
    let others = usize::from(config.shard_count) - 1;
    let by_memory = config.pit_bytes_max / 8 / WATCH_BYTES;
    others.saturating_mul(config.pit_entries_max).min(by_memory as usize)
}
