//! The output buffer: a content store of the producer's own.

use alloc::vec::Vec;

use weir_base::{HashKey, Instant, Packet, Pool};
use weir_store::{Lookup, NameHashes, Query, Store, StoreConfig, UNKNOWN_SOURCE};
use weir_wire::{DataView, InterestView, NameView};

use super::ProducerConfig;

/// Octets of blocks at rest.
const POOL_BYTES: usize = 1 << 20;

pub(super) struct Buffer {
    store: Store,
    hash_key: HashKey,
    pool: Pool,
}

impl Buffer {
    pub(super) fn new(config: &ProducerConfig) -> Self {
        let store = StoreConfig {
            capacity_bytes: config.buffer_bytes,
            policy: config.buffer_policy,
            ..StoreConfig::default()
        };
        let pool = Pool::new(POOL_BYTES);
        Self { store: Store::new(store), hash_key: config.hash_key, pool }
    }

    /// Whether it keeps anything at all.
    pub(super) fn is_on(&self) -> bool {
        self.store.config().capacity_bytes > 0
    }

    /// Octets of memory that it takes.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> u64 {
        self.store.stats().bytes
    }

    /// The Data that answers an Interest. A producer's own Data counts as fresh.
    pub(super) fn find(&mut self, now: Instant, interest: &InterestView<'_>) -> Option<Packet> {
        if !self.is_on() {
            return None;
        }
        let query = Query {
            name: interest.name,
            hashes: self.hashes(interest.name),
            can_be_prefix: interest.can_be_prefix,
            must_be_fresh: false,
        };
        match self.store.lookup(now, &query) {
            Lookup::Hit(hit) => Some(hit.packet),
            Lookup::OnDisk(_) | Lookup::Miss => None,
        }
    }

    pub(super) fn insert(&mut self, now: Instant, data: &DataView<'_>) {
        if !self.is_on() {
            return;
        }
        let hashes = self.hashes(data.name);
        let key = self.hash_key;
        let prefixes = |out: &mut Vec<u64>| {
            let mut hasher = key.prefixes(data.name.value());
            let counts = 1..data.name.component_count();
            out.extend(counts.map(|count| hasher.hash_to(data.name.prefix(count).value().len())));
        };
        self.store.insert(now, data, hashes, UNKNOWN_SOURCE, prefixes, &mut self.pool);
    }

    /// A copy that holds no more memory than it needs.
    pub(super) fn copy(&mut self, packet: &[u8]) -> Packet {
        self.pool.copy(packet)
    }

    fn hashes(&self, name: NameView<'_>) -> NameHashes {
        let mut hasher = self.hash_key.prefixes(name.value());
        let parent = name.parent().value().len();
        NameHashes {
            parent: (parent > 0).then(|| hasher.hash_to(parent)),
            whole: hasher.hash_to(name.value().len()),
            grandparent: None,
        }
    }
}
