//! The configuration of a shard.

use alloc::sync::Arc;

use weir_base::{HashKey, NS_PER_S, SpanSource};
use weir_store::StoreConfig;
use weir_store::disk::DiskTierConfig;
use weir_wire::NAME_COMPONENTS_MAX;

use crate::content::busy::BusyPolicy;
use crate::io::{DataSource, UnsolicitedPolicy};

/// Limits and policies of a shard.
#[derive(Clone, Debug)]
pub struct RouterConfig {
    /// The number of this shard, below `shard_count`.
    pub shard: u16,
    /// The number of shards of the router. With more than one, Interests leave with a PIT token.
    pub shard_count: u16,
    /// The key of name hashes: secret, random for each run, and the same for all shards.
    pub hash_key: HashKey,
    /// Seed of the random numbers, for example of nonces for Interests without one.
    pub seed: u64,
    pub store: StoreConfig,
    pub disk: Option<DiskTierConfig>,
    /// What to do when the disks of the store are busy.
    pub busy: BusyPolicy,
    /// Maximum number of PIT entries. When the PIT is full, the host or the prefix with the largest
    /// share loses entries to others. Their downstreams receive a Congestion Nack.
    pub pit_entries_max: usize,
    /// Maximum memory of PIT entries, in bytes. When it is used up, entries are evicted as well.
    pub pit_bytes_max: u64,
    /// Maximum lifetime of an Interest from another host, ns.
    pub remote_lifetime_ns_max: u64,
    /// Maximum number of PIT entries that one face may wait for. Further Interests receive a
    /// Congestion Nack.
    pub pit_entries_per_face_max: usize,
    /// Maximum number of dead nonces. When the list is full, the oldest is removed.
    pub dead_nonces_max: usize,
    /// How long a dead nonce is remembered, ns (NFD: 6 s).
    pub dead_nonce_lifetime_ns: u64,
    /// Maximum number of name components; packets with longer names are dropped. The limit bounds
    /// the cost of Data: with pending CanBePrefix Interests of all lengths, each component takes
    /// one lookup.
    pub name_components_max: usize,
    pub data_source: DataSource,
    /// What to do with Data that no Interest requested.
    pub unsolicited: UnsolicitedPolicy,
    /// Maximum size of the pool of free packet blocks, in bytes.
    pub pool_bytes_max: usize,
    /// The source of memory for stored packets; `None` is the global allocator.
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
