//! The fixture of this crate's tests: a store, optionally with disks in memory, and names whose
//! hashes have a known key.

use crate::disk::{DiskGeometry, DiskOp, DiskTierConfig};
use crate::{EvictionPolicy, Hit, Lookup, NameHashes, NewData, Query, Store, StoreConfig};
use std::collections::VecDeque;
use std::string::String;
use std::vec::Vec;
use std::{format, vec};
use weir_base::{HashKey, Instant, NS_PER_MS, Packet, Pool};
use weir_wire::{Data, DataView, Name, NameView};

pub(crate) const KEY: HashKey = HashKey::new([7, 8]);
pub(crate) const STORE_ID: u64 = 0x0123_4567_89AB_CDEF;
const LARGE: u64 = 1 << 30;

/// FNV-1a, which is enough to detect what the tests flip.
pub(crate) fn checksum(octets: &[u8]) -> u32 {
    octets
        .iter()
        .fold(0x811C_9DC5, |sum, &octet| (sum ^ u32::from(octet)).wrapping_mul(0x0100_0193))
}

pub(crate) fn name(uri: &str) -> Name {
    uri.parse().unwrap()
}

pub(crate) fn hashes(name: NameView<'_>) -> NameHashes {
    let hash = |name: NameView<'_>| (!name.is_empty()).then(|| KEY.hash(name.value()));
    NameHashes {
        whole: KEY.hash(name.value()),
        parent: hash(name.parent()),
        grandparent: hash(name.parent().parent()),
    }
}

pub(crate) fn prefixes(name: NameView<'_>, path: &mut Vec<u64>) {
    path.extend((1..name.component_count()).map(|n| KEY.hash(name.prefix(n).value())));
}

pub(crate) fn wire(name: &Name, freshness_ms: u64, content: &[u8]) -> Vec<u8> {
    Data::new(name.clone()).freshness_ms(freshness_ms).content(content).encode_with_digest()
}

#[derive(Clone, Default)]
pub(crate) struct Octets(pub(crate) Vec<u8>);

impl Octets {
    /// Zeros for all regions.
    pub(crate) fn of(geometry: &DiskGeometry) -> Self {
        let regions = u64::from(geometry.first + geometry.stride * geometry.regions);
        Self(vec![0; (geometry.data_offset + regions * geometry.region_bytes) as usize])
    }

    pub(crate) fn read(&self, offset: u64, len: u32) -> Vec<u8> {
        let begin = (offset as usize).min(self.0.len());
        let end = (begin + len as usize).min(self.0.len());
        self.0[begin..end].to_vec()
    }

    pub(crate) fn write(&mut self, offset: u64, octets: &[u8]) {
        self.0[offset as usize..offset as usize + octets.len()].copy_from_slice(octets);
    }
}

pub(crate) fn ms(ms: u64) -> Instant {
    Instant::from_ns(ms * NS_PER_MS)
}

/// A store and its environment.
pub(crate) struct Fixture {
    pub(crate) store: Store,
    pub(crate) pool: Pool,
    pub(crate) now: Instant,
    /// The configuration with which the store is created again after a crash.
    pub(crate) memory: StoreConfig,
    pub(crate) config: DiskTierConfig,
    pub(crate) disks: Vec<Octets>,
    pub(crate) ops: VecDeque<DiskOp>,
}

impl Fixture {
    pub(crate) fn new(capacity_bytes: u64, policy: EvictionPolicy) -> Self {
        let memory = StoreConfig { capacity_bytes, policy, ..StoreConfig::default() };
        Self {
            store: Store::new(memory.clone()),
            pool: Pool::new(1 << 20),
            now: ms(1),
            memory,
            config: DiskTierConfig::new(vec![], STORE_ID, KEY, checksum),
            disks: vec![],
            ops: VecDeque::new(),
        }
    }

    pub(crate) fn large() -> Self {
        Self::new(LARGE, EvictionPolicy::S3Fifo)
    }

    pub(crate) fn set_capacity_bytes(&mut self, capacity_bytes: u64) {
        self.store
            .configure(self.now, StoreConfig { capacity_bytes, ..self.store.config().clone() });
    }

    pub(crate) fn set_flags(&mut self, admit: bool, serve: bool) {
        self.store.configure(self.now, StoreConfig { admit, serve, ..self.store.config().clone() });
    }

    pub(crate) fn put_wire(&mut self, wire: &[u8]) -> Option<Packet> {
        let data = DataView::decode(wire).unwrap();
        let fill = |path: &mut Vec<u64>| prefixes(data.name, path);
        let received = NewData { data: &data, hashes: hashes(data.name), source: 7 };
        self.store.insert(self.now, received, fill, &mut self.pool)
    }

    pub(crate) fn put(&mut self, uri: &str, freshness_ms: u64) -> bool {
        self.put_wire(&wire(&name(uri), freshness_ms, b"")).is_some()
    }

    pub(crate) fn lookup(
        &mut self,
        name: &Name,
        can_be_prefix: bool,
        must_be_fresh: bool,
    ) -> Lookup {
        let hashes = hashes(name.as_view());
        let query = Query { name: name.as_view(), hashes, can_be_prefix, must_be_fresh };
        self.store.lookup(self.now, &query)
    }

    pub(crate) fn ask(
        &mut self,
        uri: &str,
        can_be_prefix: bool,
        must_be_fresh: bool,
    ) -> Option<Hit> {
        match self.lookup(&name(uri), can_be_prefix, must_be_fresh) {
            Lookup::Hit(hit) => Some(hit),
            Lookup::OnDisk(_) | Lookup::Miss => None,
        }
    }

    /// The name of the Data that answers.
    pub(crate) fn found(
        &mut self,
        uri: &str,
        can_be_prefix: bool,
        must_be_fresh: bool,
    ) -> Option<String> {
        let hit = self.ask(uri, can_be_prefix, must_be_fresh)?;
        Some(format!("{}", DataView::decode(&hit.packet).unwrap().name))
    }

    pub(crate) fn erase(&mut self, uri: &str, limit: usize) -> usize {
        let name = name(uri);
        self.store.erase(name.as_view(), KEY.hash(name.value()), limit)
    }
}
