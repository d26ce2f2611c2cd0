use crate::disk::DiskTierStats;
use weir_base::words;

/// Which entry the store evicts when new Data needs its memory.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug, Default)]
pub enum EvictionPolicy {
    /// The least recently used entry.
    Lru,
    /// The oldest entry.
    Fifo,
    /// The least frequently used entry; of several, the least recently used.
    Lfu,
    /// S3-FIFO (Yang et al., SOSP 2023): new Data passes through a small queue first, so Data that
    /// is used once is evicted early.
    S3Fifo,
    /// S3-FIFO that also keeps part of an object larger than the store. Plain S3-FIFO evicts each
    /// segment of such an object just before it is requested again.
    #[default]
    Parts,
}

words!(EvictionPolicy {
    Lru = "lru",
    Fifo = "fifo",
    Lfu = "lfu",
    S3Fifo = "s3-fifo",
    Parts = "parts",
});

/// How a store behaves. All values may change while the store runs.
#[derive(Clone, Eq, PartialEq, Debug)]
pub struct StoreConfig {
    /// Bytes of memory for Data, including its blocks and index entries; 0 stores nothing.
    pub capacity_bytes: u64,
    /// Which entry is evicted for new Data.
    pub policy: EvictionPolicy,
    /// Whether new Data is stored (NFD management, CS flag bit 0).
    pub admit: bool,
    /// Whether Interests are answered (NFD management, CS flag bit 1).
    pub serve: bool,
}

impl Default for StoreConfig {
    /// 512 MiB, [`EvictionPolicy::Parts`], admits and serves.
    fn default() -> Self {
        Self {
            capacity_bytes: 512 << 20,
            policy: EvictionPolicy::default(),
            admit: true,
            serve: true,
        }
    }
}

weir_base::counters! {
    /// What a store holds, and what has happened so far.
    #[derive(Copy)]
    pub struct StoreStats {
        /// Data packets in memory.
        entries: Now, "store_entries";
        /// Memory that the store uses, at most its capacity.
        bytes: Now, "store_bytes";
        /// Memory of the index of stored segments; `bytes` does not include it.
        holdings_bytes: Now, "store_holdings_bytes";
        /// Memory that the store may use.
        capacity_bytes: Now, "store_capacity_bytes";
        /// Interests that the store (memory or disk) could answer.
        hits: Total, "store_hits";
        /// Interests that the store could not answer.
        misses: Total, "store_misses";
        /// Data packets stored, including those that replace other Data of the same name.
        insertions: Total, "store_insertions";
        /// Data packets that arrived again unchanged: only their freshness was renewed.
        refreshes: Total, "store_refreshes";
        /// Data packets not stored: larger than the whole store, without a name, or with too many
        /// name components.
        rejections: Total, "store_rejections";
        /// Data packets not stored because a rule forbids it.
        refusals: Total, "store_refusals";
        /// Memory of Data that rules keep in the store.
        kept_bytes: Now, "store_kept_bytes";
        /// Data packets evicted for other Data.
        evictions: Total, "store_evictions";
        /// Data packets erased by command. See [`Store::erase`](crate::Store::erase).
        erasures: Total, "store_erasures";
    }
    also {
        /// The disk tier, if there is one.
        disk: DiskTierStats,
    }
}
