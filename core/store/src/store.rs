use crate::config::{StoreConfig, StoreStats};
use crate::disk::DiskTierStats;
use crate::entry::{NACK, NONE, UNVERIFIED, USED};
use crate::holdings::{HoldingChanges, Holdings, HoldingsConfig, HoldingsCursor, HoldingsPage};
use crate::name_index::NameIndex;
use crate::policy::IncomingData;
use crate::rules::{Rules, RulesError};
use crate::tree::NODE_BYTES;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;
use weir_base::{Instant, NS_PER_MS, Packet, Pool};
use weir_wire::{DataView, Name, NameView};

mod disks;
mod driver;
mod eviction;
mod holdings;
mod memory;
mod objects;
mod prefix_counters;
mod query;
mod replaced;
mod shard;
mod write_queue;

use self::disks::Disks;
use self::eviction::Eviction;
use self::holdings::StoreHoldings;
use self::memory::{ArrivedData, Memory, freshness_ms};
use self::prefix_counters::PrefixCounters;
use self::replaced::ReplacedData;

pub use self::disks::WriteBacklog;
pub use self::eviction::{MarkCursor, MarkedBatch};
pub use self::prefix_counters::{COUNTED_PREFIXES_MAX, PrefixCounts, PrefixStats};
pub use self::query::{Hit, Lookup, NameHashes, Query};
pub use self::shard::ShardAnswer;

/// Names with more components are not stored: each prefix may need a node of its own.
pub(crate) const COMPONENTS_MAX: usize = 128;

/// Most nodes and entries that one prefix lookup visits. More than a name has components, so the
/// limit matters only if the lookup must skip many entries that are not fresh.
pub(crate) const PREFIX_VISITS_MAX: usize = 256;

/// Most bytes of memory for Data that was replaced by other Data of its name.
fn replaced_bytes_max(config: &StoreConfig) -> u64 {
    config.capacity_bytes / 16
}

/// Most entries that one insertion evicts while evicted packets wait to be written to disks.
const BACKLOG_EVICTIONS_MAX: u32 = 32;

/// The source of Data whose source is not known.
pub const UNKNOWN_SOURCE: u32 = u32::MAX;

/// Data that arrived and should be stored.
#[derive(Copy, Clone, Debug)]
pub struct NewData<'a> {
    pub data: &'a DataView<'a>,
    pub hashes: NameHashes,
    /// Where the Data came from. [`Store::erase_copy`] returns it.
    pub source: u32,
}

/// Data that was read from a disk.
#[derive(Copy, Clone, Debug)]
pub struct ReadData<'a> {
    pub packet: &'a Packet,
    pub data: &'a DataView<'a>,
    pub hashes: NameHashes,
    pub fresh_until: Instant,
}

/// The content store of one shard: Data by name and by prefix, in memory and on disks, with limits
/// in bytes.
///
/// It owns six components and calls them in order. None of them holds a reference to another or to
/// the store. The README lists them. The module [`disk`](crate::disk) describes how an evicted
/// segment gets to disk and back.
pub struct Store {
    config: StoreConfig,
    memory: Memory,
    eviction: Eviction,
    replaced: ReplacedData,
    disks: Option<Box<Disks>>,
    /// The index of stored segments, if it was requested.
    holdings: Option<Box<StoreHoldings>>,
    /// The generation number of the holdings when tracking last stopped. The next index continues
    /// from it.
    last_generation: u64,
    /// All hits, and more for the prefixes that the operator has chosen.
    prefix_counters: PrefixCounters,
    /// Whether a miss in memory needs more than the disks: Data was replaced and may be found by
    /// its digest, or prefixes are counted.
    misses_need_more: bool,
    /// Counters of events. Sizes and hits are filled in when the statistics are read.
    stats: StoreStats,
    /// Scratch: the hashes of the prefixes of the name being inserted.
    path: Vec<u64>,
}

impl Store {
    pub fn new(config: StoreConfig) -> Self {
        Self {
            memory: Memory::new(),
            eviction: Eviction::new(config.policy),
            config,
            replaced: ReplacedData::default(),
            disks: None,
            holdings: None,
            last_generation: 0,
            prefix_counters: PrefixCounters::new(),
            misses_need_more: false,
            stats: StoreStats::default(),
            path: Vec::new(),
        }
    }

    pub fn config(&self) -> &StoreConfig {
        &self.config
    }

    /// Changes capacity, policy and flags. If the capacity shrinks, evicts the excess at once.
    pub fn configure(&mut self, now: Instant, config: StoreConfig) {
        if config.policy != self.config.policy {
            self.eviction.set_policy(&mut self.memory.entries, config.policy);
        }
        self.config = config;
        self.replaced.trim(replaced_bytes_max(&self.config));
        while self.bytes() > self.config.capacity_bytes {
            self.evict(now, IncomingData::NONE);
        }
    }

    /// Compares and orders names by `index` from now on.
    pub fn set_name_index(&mut self, index: Box<dyn NameIndex>) {
        self.memory.set_name_index(index);
    }

    /// What the store holds, and what has happened so far.
    pub fn stats(&self) -> StoreStats {
        let memory_bytes = self.holdings.as_ref().map_or(0, |holdings| holdings.memory_bytes());
        let disk_bytes = self.disk_holdings().map_or(0, Holdings::memory_bytes);
        StoreStats {
            entries: self.memory.entries.len() as u64,
            bytes: self.bytes(),
            capacity_bytes: self.config.capacity_bytes,
            hits: self.prefix_counters.hits(),
            kept_bytes: self.eviction.pinned_bytes(),
            holdings_bytes: memory_bytes + disk_bytes,
            disk: self
                .disks
                .as_ref()
                .map_or_else(DiskTierStats::default, |disks| disks.tier.stats()),
            ..self.stats
        }
    }

    #[inline]
    fn bytes(&self) -> u64 {
        self.memory.bytes() + self.replaced.bytes()
    }

    /// Stage 1 before a lookup or insertion: prefetches the table line of a whole name.
    ///
    /// The stages let a caller process packets in batches. The caller runs each stage for all
    /// packets of the batch before the next stage. So the processor waits for memory once per
    /// stage, not once per packet.
    #[inline]
    pub fn prefetch_table(&self, hash: u64) {
        self.memory.prefetch_table(hash);
    }

    /// Stage 2, once the line has arrived: prefetches the entry, if there is one, and returns its
    /// index.
    #[inline]
    pub fn prefetch_entry(&self, hash: u64) -> Option<u32> {
        self.memory.prefetch_entry(hash)
    }

    /// Stage 3, once the entry has arrived: prefetches the start of the packet, which holds the
    /// name.
    #[inline]
    pub fn prefetch_packet(&self, entry: u32) {
        self.memory.entries[entry].packet.prefetch();
    }

    /// Stage 1 before an insertion, in addition to [`Store::prefetch_table`]. `parent_hash` is the
    /// hash of the name without its last component. The name must have at least one component.
    #[inline]
    pub fn prefetch_parent_table(&self, hash: u64, parent_hash: u64) {
        self.eviction.prefetch(hash);
        self.memory.prefetch_parent_table(parent_hash);
    }

    /// Stage 2 before an insertion. Returns the node of the parent, if there is one.
    #[inline]
    pub fn prefetch_parent(&self, parent_hash: u64) -> Option<u32> {
        self.memory.prefetch_parent(parent_hash)
    }

    /// Stage 3 before an insertion.
    #[inline]
    pub fn prefetch_sibling(&self, parent: u32) {
        self.memory.prefetch_sibling(parent);
    }

    /// Finds Data that satisfies an Interest (NDN packet 0.3, Interest; NFD's matching rules).
    ///
    /// Candidates in order:
    ///
    /// 1. Data of exactly this name,
    /// 2. Data whose implicit digest is the last component of the name,
    /// 3. with CanBePrefix, the newest Data below the name. If several arrived at the same time,
    ///    the last in name order answers. This search takes at most `PREFIX_VISITS_MAX` steps.
    #[inline(always)]
    pub fn lookup(&mut self, now: Instant, query: &Query<'_>) -> Lookup {
        let answer = if self.config.serve { self.memory.find_answer(now, query) } else { None };
        match answer {
            Some(index) => {
                self.eviction.on_hit(&mut self.memory.entries, index);
                let entry = &mut self.memory.entries[index];
                entry.flags |= USED;
                let (node, bytes) = (entry.node, entry.packet.len());
                let hit = Hit {
                    packet: entry.packet.share(),
                    freshness_ms: entry.freshness_ms.into(),
                    is_fresh: entry.is_fresh(now),
                };
                let class = self.memory.count_hit(node, bytes, now);
                self.prefix_counters.count_hit(class, bytes);
                Lookup::Hit(hit)
            }
            None if self.misses_need_more => self.lookup_rare(now, query),
            None => self.lookup_beyond_memory(now, query),
        }
    }

    /// Looks up replaced Data and the disks, and counts a miss by prefix.
    #[cold]
    fn lookup_rare(&mut self, now: Instant, query: &Query<'_>) -> Lookup {
        self.misses_need_more = !self.replaced.is_empty() || !self.prefix_counters.is_empty();
        if !self.replaced.is_empty()
            && self.config.serve
            && let Some(hit) = self.replaced.find(now, query)
        {
            self.prefix_counters.count_hit_with(&hit.packet);
            return Lookup::Hit(hit);
        }
        let answer = self.lookup_beyond_memory(now, query);
        if let Lookup::Miss = answer {
            self.prefix_counters.count_miss(query.name, query.can_be_prefix);
        }
        answer
    }

    #[inline(always)]
    fn lookup_beyond_memory(&mut self, now: Instant, query: &Query<'_>) -> Lookup {
        if self.is_memory_only(query) {
            self.stats.misses += 1;
            return Lookup::Miss;
        }
        self.lookup_disks_counted(now, query)
    }

    /// Whether the disks cannot answer, so memory's miss is the store's miss.
    #[inline]
    fn is_memory_only(&mut self, query: &Query<'_>) -> bool {
        self.disks.as_mut().is_none_or(|disks| disks.tier.is_filtered_out(query))
    }

    #[cold]
    fn lookup_disks_counted(&mut self, now: Instant, query: &Query<'_>) -> Lookup {
        let answer = self.lookup_disks(now, query);
        match &answer {
            Lookup::Hit(hit) => self.prefix_counters.count_hit_with(&hit.packet),
            Lookup::Miss => self.stats.misses += 1,
            // `begin_read` counts a hit, or the caller a miss.
            Lookup::OnDisk(_) => {}
        }
        answer
    }

    fn lookup_disks(&mut self, now: Instant, query: &Query<'_>) -> Lookup {
        let known = self.memory.find(query.hashes.whole, query.name.value());
        // Memory has Data of this name, but it is not fresh. The record on disk may be an older
        // version, and no fingerprint can tell. So the disk must not answer.
        let is_unverified = known.is_some_and(|at| self.memory.entries[at].flags & UNVERIFIED != 0);
        let Some(disks) = self.disks.as_mut().filter(|_| self.config.serve && !is_unverified)
        else {
            return Lookup::Miss;
        };
        disks.tier.lookup(now, query)
    }

    /// Whether [`Store::lookup`] would find Data in memory or on a disk. Changes neither the
    /// eviction policy nor the counters.
    pub fn has_answer(&self, now: Instant, query: &Query<'_>) -> bool {
        self.config.serve
            && (self.memory.find_answer(now, query).is_some()
                || self.replaced.find(now, query).is_some()
                || self.disks.as_ref().is_some_and(|disks| disks.tier.has_answer(query)))
    }

    /// Stores Data, replacing other Data of the same name. Returns the stored copy, or `None` if
    /// the Data is not stored. The caller should forward the copy: it holds no more memory than
    /// needed.
    ///
    /// `prefixes` appends the keyed hashes of all proper prefixes, shortest first. The store calls
    /// it only if the parent node does not exist yet, which is rare for names with many siblings.
    pub fn insert(
        &mut self,
        now: Instant,
        received: NewData<'_>,
        prefixes: impl FnOnce(&mut Vec<u64>),
        pool: &mut Pool,
    ) -> Option<Packet> {
        let NewData { data, hashes, source } = received;
        if !self.config.admit || data.name.is_empty() {
            return None;
        }
        let fresh_until = now.plus_ns(u64::from(freshness_ms(data)) * NS_PER_MS);
        let arrival = ArrivedData { data, hashes, fresh_until, source };
        self.note_insertion();
        let mut is_unverified = false;
        let is_nack = data.is_nack();
        let rule = self.eviction.rule_for(data.name, hashes);
        let mut known = self.memory.find(hashes.whole, data.name.value());
        if !is_nack {
            known = self.remove_nack(known, pool);
        } else if !self.admits_nack(known, data, rule) {
            return None;
        }
        // - The same Data again: only its freshness and order change.
        // - Different Data of the same name: it replaces the entry.
        // - A name that memory does not hold: the disks may have a record of it.
        match known {
            Some(index) if *self.memory.entries[index].packet == *data.wire => {
                self.stats.refreshes += 1;
                let packet = self.memory.refresh(now, index, fresh_until);
                self.eviction.on_hit(&mut self.memory.entries, index);
                return Some(packet);
            }
            Some(index) => {
                // A Nack reaches this point only if the old entry is a Nack too. Then there is no
                // Data to keep for queries by digest, and a record on disk stays.
                if !is_nack {
                    self.replace(&arrival, index);
                }
                pool.recycle(self.remove(index));
            }
            None if is_nack => {}
            None => {
                is_unverified = self.on_new_data(&arrival);
                if self.is_refused(rule) {
                    // The new Data will not be written over the record, so the record must go.
                    if is_unverified && let Some(disks) = &mut self.disks {
                        disks.drop_unverified(&arrival);
                    }
                    return None;
                }
            }
        }
        // Too large for memory: only the disks can store it.
        if !self.memory.is_storable(data, self.config.capacity_bytes) {
            return self.offer_bypassing_memory(now, &arrival, is_unverified, prefixes, pool);
        }
        // The packet is shared: the entry and the caller hold the same copy.
        let mut packet = pool.copy(data.wire);
        let index = self.insert_into_memory(now, &arrival, packet.share(), prefixes, pool);
        self.eviction.on_insert(&mut self.memory.entries, index, rule);
        let entry = &mut self.memory.entries[index];
        if is_nack {
            entry.flags |= NACK;
        } else {
            entry.flags |= if is_unverified { UNVERIFIED } else { 0 };
            if let Some(disks) = &mut self.disks {
                disks.enqueue(index, entry);
            }
        }
        self.stats.insertions += 1;
        // Each insertion moves a few packets out of sparse spans, so no single call takes long.
        if pool.is_fragmented() {
            self.memory.compact(pool);
        }
        Some(packet)
    }

    /// Puts Data that was read from a disk into memory. The disk still has it, so the entry is not
    /// queued for writing.
    pub fn promote(
        &mut self,
        now: Instant,
        read: ReadData<'_>,
        prefixes: impl FnOnce(&mut Vec<u64>),
        pool: &mut Pool,
    ) {
        let ReadData { packet, data, hashes, fresh_until } = read;
        let is_wanted = self.config.admit && !data.name.is_empty();
        if !is_wanted || !self.memory.is_storable(data, self.config.capacity_bytes) {
            return;
        }
        // Data that arrived since the read began is newer.
        if self.memory.find(hashes.whole, data.name.value()).is_some() {
            return;
        }
        let arrival = ArrivedData { data, hashes, fresh_until, source: UNKNOWN_SOURCE };
        self.note_insertion();
        if let Some(disks) = &mut self.disks {
            disks.learn_name(&arrival);
        }
        let rule = self.eviction.rule_for(data.name, hashes);
        if self.is_refused(rule) {
            return;
        }
        let index = self.insert_into_memory(now, &arrival, packet.clone(), prefixes, pool);
        self.eviction.on_insert(&mut self.memory.entries, index, rule);
        // An Interest waits for this read. `begin_read` has counted it as a hit of the store.
        self.memory.count_hit(self.memory.entries[index].node, packet.len(), now);
    }

    #[inline]
    fn note_insertion(&mut self) {
        if let Some(disks) = &mut self.disks {
            disks.note_insertion();
        }
    }

    /// Data arrived that memory does not hold. Returns whether a record of its name on disk may
    /// differ and no fingerprint can be kept to compare the two later.
    #[inline]
    fn on_new_data(&mut self, arrival: &ArrivedData<'_>) -> bool {
        self.disks.as_mut().is_some_and(|disks| disks.on_new_data(arrival))
    }

    /// Whether a rule forbids storing new Data. Counts it if so.
    #[inline]
    fn is_refused(&mut self, rule: Option<u32>) -> bool {
        let is_refused = self.eviction.refuses(rule);
        self.stats.refusals += u64::from(is_refused);
        is_refused
    }

    /// Handles the arrival of different Data of the same name. From now on only a query with the
    /// implicit digest finds the old Data.
    fn replace(&mut self, arrival: &ArrivedData<'_>, index: u32) {
        self.replaced.add(&self.memory.entries[index], replaced_bytes_max(&self.config));
        self.misses_need_more = true;
        if let Some(disks) = &mut self.disks {
            disks.replace(arrival);
        }
    }

    /// Whether to store a Nack, by which a producer says that it has no such Data. A Nack never
    /// replaces Data. The Nack of a segment is not stored, since it would count as a stored
    /// segment.
    #[cold]
    fn admits_nack(&mut self, known: Option<u32>, data: &DataView<'_>, rule: Option<u32>) -> bool {
        let is_segment = data.name.last().is_some_and(|last| last.as_segment().is_some());
        match known {
            Some(index) => self.memory.entries[index].flags & NACK != 0,
            None => {
                !is_segment
                    && !self.is_refused(rule)
                    && self.memory.is_storable(data, self.config.capacity_bytes)
            }
        }
    }

    /// Removes the entry of a name if it is a Nack, since Data of that name has arrived.
    #[inline]
    fn remove_nack(&mut self, known: Option<u32>, pool: &mut Pool) -> Option<u32> {
        let index = known.filter(|&index| self.memory.entries[index].flags & NACK != 0);
        let Some(index) = index else { return known };
        pool.recycle(self.remove(index));
        None
    }

    /// Offers Data that is too large for memory to the disks.
    #[cold]
    fn offer_bypassing_memory(
        &mut self,
        now: Instant,
        arrival: &ArrivedData<'_>,
        is_unverified: bool,
        prefixes: impl FnOnce(&mut Vec<u64>),
        pool: &mut Pool,
    ) -> Option<Packet> {
        let disks = self.disks.as_mut();
        let stored = disks.and_then(|disks| {
            disks.offer_bypassing_memory(now, arrival, is_unverified, prefixes, pool)
        });
        self.stats.rejections += u64::from(stored.is_none());
        stored
    }

    /// Inserts storable Data, whose name has no entry, into memory. The caller must then pass the
    /// entry to `Eviction::on_insert`.
    #[inline]
    fn insert_into_memory(
        &mut self,
        now: Instant,
        arrival: &ArrivedData<'_>,
        packet: Packet,
        prefixes: impl FnOnce(&mut Vec<u64>),
        pool: &mut Pool,
    ) -> u32 {
        let (nearest, missing) = self.make_room(now, arrival, prefixes, pool);
        let node = match missing {
            0 => nearest,
            _ => {
                let node = self.memory.extend(nearest, &self.path[self.path.len() - missing..]);
                self.eviction.on_new_object(node);
                node
            }
        };
        let index = self.memory.insert(now, arrival, packet, node);
        if let Some(holdings) = &mut self.holdings {
            holdings.add(&self.memory, index);
        }
        index
    }

    /// Evicts entries until there is enough memory for storable Data.
    ///
    /// Returns the deepest existing node on the path to its name, and how many nodes are missing
    /// below it. If any are missing, `self.path` holds the hashes of all prefixes.
    fn make_room(
        &mut self,
        now: Instant,
        arrival: &ArrivedData<'_>,
        prefixes: impl FnOnce(&mut Vec<u64>),
        pool: &mut Pool,
    ) -> (u32, usize) {
        let ArrivedData { data, hashes, .. } = *arrival;
        let bytes = self.memory.bytes_of(data);
        let bytes_max = match pool.span_bytes_when_exhausted() {
            // The pool's memory is exhausted: its spans are the limit now.
            Some(bytes) => self.config.capacity_bytes.min(bytes + self.memory.overhead_bytes()),
            None => self.config.capacity_bytes,
        };
        // `prefixes` is called in the first round at most. Later rounds find `path` filled.
        let mut prefixes = Some(prefixes);
        let mut evictions = 0;
        loop {
            let nodes = self.memory.nodes();
            let path = &mut self.path;
            let (nearest, missing) = self.memory.nearest_node(hashes, || {
                if let Some(prefixes) = prefixes.take() {
                    path.clear();
                    prefixes(path);
                    debug_assert_eq!(path.len(), data.name.component_count() - 1);
                }
                path
            });
            let needed = bytes + missing as u64 * NODE_BYTES;
            // The policy needs the node of the object. A new object has none yet.
            let node = if missing == 0 { nearest } else { NONE };
            let incoming = IncomingData { node, hash: hashes.whole, name: data.name.value() };
            // An eviction may remove a node of the path. Then find the nearest node again.
            while self.memory.nodes() == nodes {
                let used_bytes = self.bytes() + self.evicted_unwritten_bytes();
                if used_bytes + needed <= bytes_max {
                    return (nearest, missing);
                }
                if self.memory.entries.is_empty() {
                    self.replaced.trim(0);
                    return (nearest, missing);
                }
                // Evicted packets that wait for a disk leave memory on their own soon. Do not evict
                // more than a few other entries for them, and never a pinned one.
                let is_last = evictions >= BACKLOG_EVICTIONS_MAX
                    || self.memory.entry_bytes() == self.eviction.pinned_bytes();
                if is_last && self.bytes() + needed <= bytes_max {
                    return (nearest, missing);
                }
                evictions += 1;
                pool.recycle(self.evict(now, incoming));
            }
        }
    }

    /// Bytes of packets that were evicted and still wait to be written to a disk.
    #[inline]
    fn evicted_unwritten_bytes(&self) -> u64 {
        self.disks.as_ref().map_or(0, |disks| disks.tier.evicted_unwritten_bytes())
    }

    #[inline(always)]
    fn evict(&mut self, now: Instant, incoming: IncomingData<'_>) -> Packet {
        let victim = self.eviction.take_victim(&mut self.memory.entries, incoming);
        let index = victim
            .unwrap_or_else(|| unreachable!("a store that uses memory has an entry to evict"));
        if let Some(disks) = &mut self.disks {
            disks.offer_evicted(now, &mut self.memory, index);
        }
        let packet = self.remove_unlisted(index);
        self.stats.evictions += 1;
        self.prefetch_victims();
        packet
    }

    /// Prefetches the memory that the next eviction will touch. The previous eviction has already
    /// prefetched the entries at the heads of the queues.
    #[inline(always)]
    fn prefetch_victims(&self) {
        for index in self.eviction.candidates() {
            if let Some(hash) = self.memory.prefetch_removal(index) {
                self.eviction.prefetch(hash);
            }
        }
    }

    /// Removes an entry for a reason other than lack of memory. Returns its packet.
    fn remove(&mut self, index: u32) -> Packet {
        self.eviction.on_remove(&mut self.memory.entries, index);
        self.remove_unlisted(index)
    }

    /// Removes an entry that is no longer in a list of the eviction policy. Returns its packet.
    #[inline(always)]
    fn remove_unlisted(&mut self, index: u32) -> Packet {
        if let Some(holdings) = &mut self.holdings {
            holdings.remove(&self.memory, index);
            if let Some(disks) = &mut self.disks {
                objects::keep_uses(&mut self.memory, disks, index);
            }
        }
        if let Some(disks) = &mut self.disks {
            disks.unqueue(index, &self.memory.entries[index]);
        }
        self.memory.remove(index)
    }

    /// Removes up to `limit` Data packets at or below `prefix`, in memory and on disks. Returns the
    /// number removed.
    ///
    /// `prefix_hash` is the keyed hash of the components of `prefix`. It is ignored for the empty
    /// name.
    pub fn erase(&mut self, prefix: NameView<'_>, prefix_hash: u64, limit: usize) -> usize {
        let mut erased = 0;
        if !self.replaced.is_empty() {
            self.replaced.erase(prefix);
        }
        if limit > 0
            && let Some(index) = self.memory.find(prefix_hash, prefix.value())
        {
            self.erase_entry(index);
            erased = 1;
        }
        let top = self.memory.node_of(prefix, prefix_hash);
        let first = |top| self.memory.first_below(top);
        let mut next = top.filter(|_| erased < limit).and_then(first);
        while let (Some(top), Some(index)) = (top, next) {
            if erased >= limit {
                break;
            }
            // Take the successor first. It keeps the nodes above it alive while the entry is
            // removed.
            next = self.memory.next_below(top, index);
            if self.memory.entries[index].is_below(prefix) {
                self.erase_entry(index);
                erased += 1;
            }
        }
        let disks = self.disks.as_mut();
        erased + disks.map_or(0, |disks| disks.erase(prefix, prefix_hash, limit - erased))
    }

    /// Marks the Data in memory at or below `prefix` to be evicted before all other Data, and not
    /// to be written to disks. Until then it answers Interests. Data that rules keep stays.
    ///
    /// A call visits at most `visits_max` entries, from the start or from the end of the previous
    /// batch. Data that arrives between two batches may be marked or not. Records on disks stay
    /// until their region is reused, since a log has no other order.
    pub fn evict_first(
        &mut self,
        prefix: NameView<'_>,
        prefix_hash: u64,
        from: Option<MarkCursor>,
        visits_max: u32,
    ) -> MarkedBatch {
        self.eviction.evict_first(&mut self.memory, prefix, prefix_hash, from, visits_max)
    }

    /// Removes a copy that was found to be forged: the Data of exactly this name, if its implicit
    /// digest is `digest`. Returns the source of the copy. Data that is only on a disk stays, since
    /// its digest is not known.
    pub fn erase_copy(&mut self, name: NameView<'_>, name_hash: u64, digest: &[u8]) -> Option<u32> {
        if !self.replaced.is_empty() {
            self.replaced.erase_copy(name, digest);
        }
        let index = self.memory.find(name_hash, name.value())?;
        let packet = &self.memory.entries[index].packet;
        let data = DataView::decode(packet).expect("only Data is stored");
        if data.implicit_digest() != digest {
            return None;
        }
        self.erase_entry(index);
        Some(self.memory.source(index))
    }

    fn erase_entry(&mut self, index: u32) {
        if let Some(disks) = &mut self.disks {
            disks.erase_entry(&self.memory, index);
        }
        self.remove(index);
        self.stats.erasures += 1;
    }

    /// Puts the rules of a new plan into force. `hash` computes the keyed hash of a prefix.
    ///
    /// The store pins Data that the new rules keep at once. Data that only the old rules kept
    /// becomes ordinary Data. The call visits each entry below the prefixes of rules that keep
    /// Data.
    ///
    /// # Errors
    /// The rules are invalid or outdated. The old rules stay in force.
    pub fn set_rules(
        &mut self,
        rules: Rules,
        hash: impl Fn(NameView<'_>) -> u64,
    ) -> Result<(), RulesError> {
        self.eviction.set_rules(&mut self.memory, rules, self.config.capacity_bytes, hash)
    }

    /// Counts hits, misses and served bytes of these prefixes from now on, at most
    /// [`COUNTED_PREFIXES_MAX`]. `hash` computes the keyed hash of a prefix. Prefixes that are
    /// counted already continue.
    ///
    /// The caller must then call [`Store::classify`] until it returns `false`. Until then, hits of
    /// Data that was stored before may count for the earlier prefixes. If such work is left from
    /// an earlier call, new prefixes are counted once that work is done. Only those of the latest
    /// call are.
    pub fn count_prefixes(&mut self, prefixes: Vec<Name>, hash: impl Fn(NameView<'_>) -> u64) {
        let hashed = |name: Name| (hash(name.as_view()), name);
        let prefixes = prefixes.into_iter().take(COUNTED_PREFIXES_MAX).map(hashed);
        self.prefix_counters.set_next(prefixes.collect());
        self.classify(0);
    }

    /// Assigns stored Data to the prefixes of [`Store::count_prefixes`], in at most `steps` steps.
    /// Returns whether more work remains.
    pub fn classify(&mut self, steps: u32) -> bool {
        if self.memory.classify(steps) {
            return true;
        }
        let counters = &mut self.prefix_counters;
        if !counters.apply_next() {
            return false;
        }
        self.memory.set_classes(counters.root_class(), counters.classes());
        self.misses_need_more = true;
        self.memory.classify(0)
    }

    /// What was counted for each prefix of [`Store::count_prefixes`]. Data counts for the longest
    /// of them that is a proper prefix of its name. So does a miss, by the Interest's name; with
    /// CanBePrefix, that name may also equal the prefix.
    ///
    /// Prefixes that wait for [`Store::classify`] are missing. Those that the latest call removed
    /// are missing as well, even if they still take hits from shorter ones.
    pub fn prefix_stats(&self) -> PrefixStats {
        self.prefix_counters.stats()
    }

    /// The index of the segments on the disks.
    fn disk_holdings(&self) -> Option<&Holdings> {
        self.disks.as_ref()?.holdings()
    }

    /// Starts an index of the stored segments by object, which [`Store::holdings`] reads. Call
    /// [`Store::build_holdings`] to add existing entries in small steps. Does nothing if this
    /// configuration is in force already. Generation numbers continue those of an earlier index.
    pub fn track_holdings(&mut self, config: HoldingsConfig) {
        if self.holdings.as_ref().is_some_and(|holdings| holdings.config() == config) {
            return;
        }
        self.stop_tracking_holdings();
        self.holdings = Some(Box::new(StoreHoldings::new(config, self.last_generation)));
        if let Some(disks) = &mut self.disks {
            disks.tier.track_holdings(Some(config));
        }
    }

    /// Drops the index and frees its memory.
    pub fn stop_tracking_holdings(&mut self) {
        if let Some(holdings) = self.holdings.take() {
            self.last_generation = holdings.generation();
        }
        if let Some(disks) = &mut self.disks {
            disks.tier.track_holdings(None);
        }
    }

    /// Adds up to `steps` existing entries to the index. Returns whether more work remains. After
    /// it has returned false, only [`Store::restart_changes`] creates new work.
    pub fn build_holdings(&mut self, steps: u32) -> bool {
        let Some(holdings) = &mut self.holdings else { return false };
        holdings.build(&self.memory, self.disks.as_deref_mut(), steps)
    }

    /// Whether [`Store::build_holdings`] has work left.
    pub fn has_holdings_to_build(&self) -> bool {
        self.holdings.as_ref().is_some_and(|holdings| !holdings.is_built())
    }

    /// Lists the stored segments of objects below `prefix`, starting at a cursor and visiting up to
    /// `visits_max` objects. Returns `None` if there is no index.
    ///
    /// Segments that a disk has evicted stay listed until the sweep of the disk index finds them.
    /// The sweep does so before the disks have written another eighth of their logs.
    pub fn holdings(
        &self,
        prefix: NameView<'_>,
        from: HoldingsCursor,
        visits_max: u32,
    ) -> Option<HoldingsPage> {
        let holdings = self.holdings.as_ref()?;
        Some(holdings.list(self.disk_holdings(), prefix, from, visits_max))
    }

    /// Lists the stored segments of exactly one object, whose name has the keyed hash `hash`. Also
    /// finds segments that were on a disk before the last start.
    pub fn holdings_of(&self, object: NameView<'_>, hash: u64) -> Option<HoldingsPage> {
        Some(self.holdings.as_ref()?.of(self.disk_holdings(), object, hash))
    }

    /// Starts a new generation of changes: [`Store::take_changes`] reports everything stored once
    /// more. If an eighth of the index is free, [`Store::build_holdings`] also looks for segments
    /// that did not fit before.
    pub fn restart_changes(&mut self) {
        if let Some(holdings) = &mut self.holdings {
            holdings.restart_changes(self.disks.as_deref_mut());
        }
    }

    /// Records no changes until [`Store::take_changes`] is called again.
    pub fn stop_changes(&mut self) {
        let disk = self.disks.as_deref_mut().and_then(Disks::holdings_mut);
        if let Some(holdings) = &mut self.holdings {
            holdings.stop_changes(disk);
        }
    }

    /// Returns the changes since the last call, for up to `blocks_max` blocks of 64 segments in
    /// each tier, or `None` if there is no index. The first call starts a generation. So does a
    /// call after the index had to drop changes for lack of space.
    pub fn take_changes(&mut self, blocks_max: usize) -> Option<HoldingChanges> {
        Some(self.holdings.as_mut()?.take_changes(self.disks.as_deref_mut(), blocks_max))
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store")
            .field("config", &self.config)
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
