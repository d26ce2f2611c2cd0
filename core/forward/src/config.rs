//! The configuration of a shard.

use alloc::sync::Arc;

use weir_base::{HashKey, NS_PER_S, SpanSource};
use weir_store::StoreConfig;
use weir_store::disk::DiskTierConfig;
use weir_wire::NAME_COMPONENTS_MAX;

use crate::content::busy::BusyPolicy;
use crate::io::{DataSource, UnsolicitedPolicy};

/// Bounds and policies of a shard.
#[derive(Clone, Debug)]
pub struct RouterConfig {
    /// This shard's number, below `shard_count`.
    pub shard: u16,
    /// Shards of the router. With more than one, Interests leave with a PIT token.
    pub shard_count: u16,
    /// Key of name hashes: secret, random for each run, the same for all shards.
    pub hash_key: HashKey,
    /// Seed of nonces given to Interests without one.
    pub seed: u64,
    /// This shard's content store.
    pub store: StoreConfig,
    pub disk: Option<DiskTierConfig>,
    /// What to do when its disks are busy.
    pub busy: BusyPolicy,
    /// Pending Interests held at most. When there are as many, those of the host or prefix that has
    /// the most make room for others; there is a Nack for congestion for it.
    pub pit_entries_max: usize,
    /// Octets of memory that pending Interests take at most, likewise.
    pub pit_bytes_max: u64,
    /// How long an Interest from another host waits at most, ns.
    pub remote_lifetime_ns_max: u64,
    /// Pending Interests that one face waits for at most; beyond it, a Nack for congestion.
    pub pit_entries_per_face_max: usize,
    /// Dead nonces held at most; beyond it the oldest is forgotten.
    pub dead_nonces_max: usize,
    /// How long a dead nonce is known, ns (NFD: 6 s).
    pub dead_nonce_lifetime_ns: u64,
    /// Components that a name has at most: with CanBePrefix Interests of every length pending, Data
    /// takes a look-up for each of its components. Other packets are dropped.
    pub name_components_max: usize,
    /// Whose Data satisfies a pending Interest.
    pub data_source: DataSource,
    /// What to do with Data that no Interest requested.
    pub unsolicited: UnsolicitedPolicy,
    /// Octets of free packet blocks kept for reuse.
    pub pool_bytes_max: usize,
    /// Where memory for packets that are kept comes from; the global allocator without it.
    pub memory: Option<Arc<dyn SpanSource>>,
}

impl Default for RouterConfig {
    fn default() -> Self {
        Self {
            shard: 0,
            shard_count: 1,
            hash_key: HashKey::new([0, 0]),
            seed: 0,
            store: StoreConfig::default(),
            disk: None,
            busy: BusyPolicy::default(),
            pit_entries_max: 1 << 20,
            pit_bytes_max: 1 << 30,
            remote_lifetime_ns_max: 60 * NS_PER_S,
            pit_entries_per_face_max: 250_000,
            dead_nonces_max: 1 << 18,
            dead_nonce_lifetime_ns: 6 * NS_PER_S,
            name_components_max: NAME_COMPONENTS_MAX,
            data_source: DataSource::NextHops,
            unsolicited: UnsolicitedPolicy::DropAll,
            pool_bytes_max: 16 << 20,
            memory: None,
        }
    }
}
