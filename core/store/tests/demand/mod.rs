//! Demands on a store, the hits of policies, and the most hits possible.

use std::collections::{BTreeMap, BTreeSet};
use weir_base::{HashKey, Instant, Pool, Rng};
use weir_store::{
    EvictionPolicy, Lookup, NameHashes, NewData, Query, Store, StoreConfig, UNKNOWN_SOURCE,
};
use weir_wire::{Component, Data, DataView, Name};

const KEY: HashKey = HashKey::new([3, 5]);
/// Bytes of content of a packet.
pub(crate) const CONTENT: usize = 200;

/// A segment of an object.
pub(crate) type Request = (u32, u32);

/// A file that is read in order, `times` times.
pub(crate) fn scan(object: u32, segments: u32, times: u32) -> Vec<Request> {
    (0..times).flat_map(|_| (0..segments).map(move |segment| (object, segment))).collect()
}

/// Zipf's law: the share of the item of rank r is proportional to r to the power of -s.
pub(crate) struct Zipf {
    sums: Vec<f64>,
}

impl Zipf {
    pub(crate) fn new(items: u32, s: f64) -> Self {
        let mut sum = 0.0;
        let sums = (1..=items).map(|rank| {
            sum += f64::from(rank).powf(-s);
            sum
        });
        Self { sums: sums.collect() }
    }

    pub(crate) fn draw(&self, rng: &mut Rng) -> u32 {
        let at = rng.unit() * self.sums[self.sums.len() - 1];
        self.sums.partition_point(|&sum| sum < at) as u32
    }
}

/// Alternates between requests of two streams, `ones` and `others` at a time, until one ends.
pub(crate) fn mix(one: &[Request], ones: usize, other: &[Request], others: usize) -> Vec<Request> {
    let turns = one.chunks(ones).zip(other.chunks(others));
    turns.flat_map(|(one, other)| one.iter().chain(other)).copied().collect()
}

/// A store that stores everything it misses.
pub(crate) struct Cache {
    pub(crate) store: Store,
    pool: Pool,
    now: Instant,
    content: Vec<u8>,
}

impl Cache {
    pub(crate) fn new(policy: EvictionPolicy, capacity_bytes: u64, content: usize) -> Self {
        let config = StoreConfig { capacity_bytes, policy, ..StoreConfig::default() };
        Self {
            store: Store::new(config),
            pool: Pool::new(1 << 20),
            now: Instant::from_ns(1),
            content: vec![7; content],
        }
    }

    /// Returns whether the segment was in the store.
    pub(crate) fn request(&mut self, (object, segment): Request) -> bool {
        let object = Component::generic(format!("object-{object}").as_bytes());
        let name: Name = [object, Component::segment(segment.into())].into_iter().collect();
        let name = name.as_view();
        let hash = |name: weir_wire::NameView<'_>| KEY.hash(name.value());
        let hashes =
            NameHashes { whole: hash(name), parent: Some(hash(name.parent())), grandparent: None };
        self.now = self.now.plus_ns(1_000);
        let query = Query { name, hashes, can_be_prefix: false, must_be_fresh: false };
        if matches!(self.store.lookup(self.now, &query), Lookup::Hit(_)) {
            return true;
        }
        let wire = Data::new(name.to_name()).content(&*self.content).encode_with_digest();
        let data = DataView::decode(&wire).unwrap();
        let prefixes = |path: &mut Vec<u64>| path.push(hash(name.parent()));
        let Self { store, pool, now, .. } = self;
        let received = NewData { data: &data, hashes, source: UNKNOWN_SOURCE };
        store.insert(*now, received, prefixes, pool);
        false
    }

    pub(crate) fn hits(&mut self, requests: &[Request]) -> usize {
        requests.iter().filter(|&&request| self.request(request)).count()
    }
}

/// Bytes of a store that holds about this number of packets with [`CONTENT`] bytes.
pub(crate) fn bytes_for(packets: u32) -> u64 {
    let mut cache = Cache::new(EvictionPolicy::Fifo, 64 << 20, CONTENT);
    cache.hits(&scan(0, 1_000, 1));
    cache.store.stats().bytes * u64::from(packets) / 1_000
}

/// For each request, whether the best policy has the segment in a store of `max` packets. That
/// policy knows all future requests and need not store every packet. Source: Belady, "A study of
/// replacement algorithms for a virtual-storage computer", IBM Systems Journal 1966.
pub(crate) fn belady(requests: &[Request], max: usize) -> Vec<bool> {
    let mut next_use = vec![usize::MAX; requests.len()];
    let mut next_by_request = BTreeMap::new();
    for (at, request) in requests.iter().enumerate().rev() {
        next_use[at] = next_by_request.insert(request, at).unwrap_or(usize::MAX);
    }
    // Ordered by the next use, which is unique.
    let mut stored = BTreeSet::new();
    let mut found = Vec::with_capacity(requests.len());
    for (at, &next) in next_use.iter().enumerate() {
        found.push(stored.remove(&at));
        if next != usize::MAX {
            stored.insert(next);
        }
        if stored.len() > max {
            stored.pop_last();
        }
    }
    found
}

/// The hits of the best policy, among the requests from `from` on.
pub(crate) fn belady_hits(requests: &[Request], max: usize, from: usize) -> usize {
    belady(requests, max)[from..].iter().filter(|&&is_hit| is_hit).count()
}
