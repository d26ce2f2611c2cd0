use crate::disk::DiskTierStats;
use weir_base::words;

/// Which Data makes room for new Data.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug, Default)]
pub enum EvictionPolicy {
    /// The one used longest ago.
    Lru,
    /// The one stored longest ago.
    Fifo,
    /// The one used least often; among equals the one used longest ago.
    Lfu,
    /// S3-FIFO (Yang et al., SOSP 2023): new Data passes a small queue first, so that Data used
    /// once leaves soon.
    S3Fifo,
    /// S3-FIFO that keeps a part of an object larger than the store, where S3-FIFO has pushed out
    /// each segment when it is asked for again.
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

/// How a store behaves. All of it may change while the store runs.
#[derive(Clone, Eq, PartialEq, Debug)]
pub struct StoreConfig {
    /// Octets of memory for Data, with the blocks they are in and the index; 0 stores nothing.
    pub capacity_bytes: u64,
    /// Which Data makes room for new Data.
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
    /// What a store holds, and what happened so far.
    #[derive(Copy)]
    pub struct StoreStats {
        /// Data in the store.
        entries: Now, "store_entries";
        /// Octets of memory in use. [`StoreConfig::capacity_bytes`] is their bound.
        bytes: Now, "store_bytes";
        /// Octets of memory for the index of what is held, which `bytes` does not count.
        holdings_bytes: Now, "store_holdings_bytes";
        /// Octets of memory that the store may use.
        capacity_bytes: Now, "store_capacity_bytes";
        /// Lookups that were answered.
        hits: Total, "store_hits";
        /// Lookups that found nothing in the store.
        misses: Total, "store_misses";
        /// Data stored, other Data of the same name replaced included.
        insertions: Total, "store_insertions";
        /// Data that came again unchanged and only had its freshness renewed.
        refreshes: Total, "store_refreshes";
        /// Data not stored: larger than the whole store, without a name, or with too many
        /// components.
        rejections: Total, "store_rejections";
        /// Data that a rule does not want stored.
        refusals: Total, "store_refusals";
        /// Octets that stay because rules say so.
        kept_bytes: Now, "store_kept_bytes";
        /// Data that made room for other Data.
        evictions: Total, "store_evictions";
        /// Data erased by command. See [`Store::erase`](crate::Store::erase).
        erasures: Total, "store_erasures";
    }
    also {
        /// The disk tier, if there is one.
        disk: DiskTierStats,
    }
}
