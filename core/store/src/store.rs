use crate::config::{Compare, IndexKind, StoreConfig, StoreStats};
use crate::disk::OnDisk;
use crate::entry::{
    ENTRY_BYTES, Entry, Links, List, NACK, NONE, Queue, UNVERIFIED, USED, entry_bytes,
};
use crate::ordered::{ORDERED_BYTES, Ordered, Path};
use crate::policy::{Incoming, Policy};
use crate::rules::Ruling;
use crate::tree::{NODE_BYTES, Tree};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;
use weir_base::{Instant, NS_PER_MS, Packet, Pool, Slab, Table};
use weir_wire::name::DIGEST_SIZE;
use weir_wire::tlv::IMPLICIT_SHA256_DIGEST_COMPONENT as DIGEST_COMPONENT;
use weir_wire::{DataView, NameView};

mod gather;
mod holdings;
mod part;
mod replaced;
mod ruled;
mod tiered;
mod write_queue;

use self::replaced::Replaced;

pub use part::PartAnswer;
pub use tiered::WriteBacklog;

/// Names of more components are not stored: each prefix may need a node of its own.
pub const COMPONENTS_MAX: usize = 128;

/// Nodes and Data that a lookup by prefix looks at, at most. More than the components of a name, so
/// that it ends early only where it has to pass over Data that is not fresh.
pub(crate) const PREFIX_VISITS_MAX: usize = 256;

/// What Data may take of whose name there is other Data.
fn replaced_bytes_max(config: &StoreConfig) -> u64 {
    config.capacity_bytes / 16
}

/// Data evicted at a time for what disks have yet to write.
const EVICTIONS_MAX: u32 = 32;

/// The keyed hashes of a name that every lookup and insertion needs.
#[derive(Copy, Clone, Debug)]
pub struct NameHashes {
    /// That of the whole name.
    pub whole: u64,
    /// That of the name without its last component; none when nothing is left. An Interest may
    /// leave it out unless its last component is an implicit digest.
    pub parent: Option<u64>,
    /// That of the name without its last two components; none when nothing is left. Only needed
    /// where the last component is an implicit digest and the store has a disk tier.
    pub grandparent: Option<u64>,
}

/// What an Interest asks of the store.
#[derive(Copy, Clone, Debug)]
pub struct Query<'a> {
    /// The name of the Interest.
    pub name: NameView<'a>,
    /// The keyed hashes of the name.
    pub hashes: NameHashes,
    /// Whether the name may be a proper prefix of that of the Data.
    pub can_be_prefix: bool,
    /// Whether the Data must be fresh.
    pub must_be_fresh: bool,
}

/// The answer to a [`Query`].
#[derive(Clone, Debug)]
pub enum Lookup {
    /// The store has matching Data.
    Hit(Hit),
    /// It is on a disk: the caller may [`Store::begin_read`], or have it from elsewhere.
    OnDisk(OnDisk),
    /// It has not.
    Miss,
}

/// Data that answers a [`Query`].
#[derive(Clone, Debug)]
pub struct Hit {
    /// The whole Data TLV.
    pub packet: Packet,
    /// FreshnessPeriod of the Data in milliseconds, capped at 2^32 - 1.
    pub freshness_ms: u64,
    /// Whether the FreshnessPeriod has not passed since the Data came.
    pub is_fresh: bool,
}

/// The source of Data of which none is known.
pub const UNKNOWN_SOURCE: u32 = u32::MAX;

/// The content store of one shard, in memory: Data by name and by prefix, bounded in octets.
pub struct Store {
    config: StoreConfig,
    entries: Slab<Entry>,
    /// The entry that was looked at last for memory that is scattered.
    gathered_to: u32,
    /// Where each came from, beside `entries`, which are full: what a driver said.
    sources: Vec<u32>,
    /// From the hash of a whole name to an entry.
    table: Table,
    tree: Tree,
    /// With [`IndexKind::Ordered`].
    ordered: Option<Ordered>,
    policy: Policy,
    /// Rules in force, if there are.
    ruling: Option<Box<Ruling>>,
    /// What rules keep. The policy does not know it.
    kept: List<Queue>,
    /// `bytes` of all entries. Nodes come on top.
    entry_bytes: u64,
    /// What happened. The levels are filled in when asked for.
    stats: StoreStats,
    /// Scratch: hashes of the prefixes of the name being inserted.
    path: Vec<u64>,
    /// Which segments are held, if somebody wants to know.
    tracking: Option<Box<holdings::Tracking>>,
    /// The number of the last generation of changes, of this index or one before.
    generation: u64,
    /// What RAM has no room for.
    disk: Option<Box<tiered::Tiered>>,
    replaced: Replaced,
}

impl Store {
    /// An empty store.
    pub fn new(config: StoreConfig) -> Self {
        Self {
            policy: Policy::new(config.policy),
            ordered: (config.index == IndexKind::Ordered).then(Ordered::new),
            config,
            entries: Slab::new(),
            gathered_to: 0,
            sources: Vec::new(),
            table: Table::with_capacity(0),
            tree: Tree::new(),
            entry_bytes: 0,
            stats: StoreStats::default(),
            path: Vec::new(),
            tracking: None,
            generation: 0,
            ruling: None,
            kept: List::EMPTY,
            disk: None,
            replaced: Replaced::default(),
        }
    }

    /// How the store behaves at present.
    pub fn config(&self) -> &StoreConfig {
        &self.config
    }

    /// Changes capacity, policy and flags. Evicts at once what the new capacity has no room for.
    pub fn configure(&mut self, now: Instant, config: StoreConfig) {
        if config.policy != self.config.policy {
            let mut policy = Policy::new(config.policy);
            // In the order in which they would have left, so that the new policy starts from what
            // the old one knew.
            while let Some(index) = self.policy.take_victim(&mut self.entries, Incoming::NOTHING) {
                policy.on_insert(&mut self.entries, index);
            }
            self.policy = policy;
        }
        let is_same_index = config.index == self.config.index;
        self.config = config;
        if !is_same_index {
            self.rebuild_index();
        }
        self.replaced.trim(replaced_bytes_max(&self.config));
        while self.bytes() > self.config.capacity_bytes {
            self.evict(now, Incoming::NOTHING);
        }
    }

    fn rebuild_index(&mut self) {
        self.ordered = (self.config.index == IndexKind::Ordered).then(Ordered::new);
        let indices: Vec<u32> = self.entries.iter().map(|(index, _)| index).collect();
        for index in indices {
            self.put_in_order(index);
        }
    }

    /// What the store holds, and what happened so far.
    pub fn stats(&self) -> StoreStats {
        StoreStats {
            entries: self.entries.len() as u64,
            bytes: self.bytes(),
            capacity_bytes: self.config.capacity_bytes,
            holdings_bytes: self.holdings_bytes(),
            disk: self.disk_stats(),
            ..self.stats
        }
    }

    /// Octets of memory in use.
    #[inline]
    fn bytes(&self) -> u64 {
        let order_bytes = match self.ordered {
            Some(_) => self.entries.len() as u64 * ORDERED_BYTES,
            None => 0,
        };
        self.entry_bytes + self.replaced.bytes() + self.tree.len() as u64 * NODE_BYTES + order_bytes
    }

    /// First stage before a lookup or an insertion: asks for the table's line of a whole name.
    #[inline]
    pub fn prefetch_table(&self, hash: u64) {
        self.table.prefetch(hash);
    }

    /// Second stage, when the line has arrived: asks for the entry, if there is one, and returns
    /// its index.
    #[inline]
    pub fn prefetch_entry(&self, hash: u64) -> Option<u32> {
        let first = self.table.find(hash, |_| true)?;
        self.entries.prefetch(first);
        Some(first)
    }

    /// Third stage, when the entry has arrived: asks for the start of the packet, as far as a name
    /// commonly reaches.
    #[inline]
    pub fn prefetch_packet(&self, entry: u32) {
        self.entries[entry].packet.prefetch();
    }

    /// First stage before an insertion, beside [`Store::prefetch_table`]. `parent_hash` is that of
    /// the name without its last component, which the name has.
    #[inline]
    pub fn prefetch_parent_table(&self, hash: u64, parent_hash: u64) {
        self.policy.prefetch(hash);
        self.tree.prefetch_table(parent_hash);
    }

    /// Second stage before an insertion. Returns the node of the parent, if there is one.
    #[inline]
    pub fn prefetch_parent(&self, parent_hash: u64) -> Option<u32> {
        self.tree.prefetch_hash(parent_hash)
    }

    /// Third stage before an insertion.
    #[inline]
    pub fn prefetch_sibling(&self, parent: u32) {
        let index = self.tree.last_entry(parent);
        if index != NONE {
            self.entries.prefetch(index);
        }
    }

    /// Looks for Data that satisfies an Interest (NDN packet 0.3, Interest; NFD's rules of
    /// matching).
    ///
    /// Data of the very name comes first, then that whose implicit digest the name ends with, then,
    /// with CanBePrefix, Data below the name: the one that came last, among those of one moment the
    /// last in the order of names, at most `PREFIX_VISITS_MAX` steps away.
    #[inline(always)]
    pub fn lookup(&mut self, now: Instant, query: &Query<'_>) -> Lookup {
        let answer = if self.config.serve { self.find_answer(now, query) } else { None };
        match answer {
            Some(index) => {
                self.stats.hits += 1;
                self.use_entry(index);
                let entry = &mut self.entries[index];
                entry.flags |= USED;
                Lookup::Hit(Hit {
                    packet: entry.packet.share(),
                    freshness_ms: entry.freshness_ms.into(),
                    is_fresh: entry.is_fresh(now),
                })
            }
            None if !self.replaced.is_empty() => self.look_at_replaced(now, query),
            None => self.look_on_disks(now, query),
        }
    }

    #[inline(always)]
    fn look_on_disks(&mut self, now: Instant, query: &Query<'_>) -> Lookup {
        if self.ends_here(query) {
            self.stats.misses += 1;
            return Lookup::Miss;
        }
        self.look_further(now, query)
    }

    #[cold]
    fn look_at_replaced(&mut self, now: Instant, query: &Query<'_>) -> Lookup {
        match self.replaced.find(now, query).filter(|_| self.config.serve) {
            Some(hit) => {
                self.stats.hits += 1;
                Lookup::Hit(hit)
            }
            None => self.look_on_disks(now, query),
        }
    }

    /// Looks on the disks.
    #[cold]
    fn look_further(&mut self, now: Instant, query: &Query<'_>) -> Lookup {
        let answer = self.lookup_on_disk(now, query);
        match answer {
            Lookup::Hit(_) => self.stats.hits += 1,
            Lookup::Miss => self.stats.misses += 1,
            // Counted when it is read, or declined.
            Lookup::OnDisk(_) => {}
        }
        answer
    }

    /// Whether [`Store::lookup`] would hit or find it on a disk, without a trace in policy and
    /// counters.
    pub fn has_answer(&self, now: Instant, query: &Query<'_>) -> bool {
        self.config.serve
            && (self.find_answer(now, query).is_some()
                || self.replaced.find(now, query).is_some()
                || self.has_answer_on_disk(query))
    }

    #[inline(always)]
    fn find_answer(&self, now: Instant, query: &Query<'_>) -> Option<u32> {
        if let Some(ordered) = &self.ordered {
            return self.find_in_order(now, query, ordered);
        }
        let hash = query.hashes.whole;
        let name = query.name;
        let will_do = |index: &u32| self.entries[*index].is_fresh_enough(now, query.must_be_fresh);
        let found = match self.find(hash, name.value()).filter(will_do) {
            None => self.find_by_digest(name, query.hashes).filter(will_do),
            found => found,
        };
        match found {
            None if query.can_be_prefix => self.find_below(now, query, hash),
            found => found,
        }
    }

    #[inline(always)]
    fn find(&self, hash: u64, name_value: &[u8]) -> Option<u32> {
        if self.config.compare == Compare::Decode {
            return self.find_decoding(hash, name_value);
        }
        self.table.find(hash, |index| {
            let entry = &self.entries[index];
            entry.hash == hash && entry.name_value() == name_value
        })
    }

    #[cold]
    fn find_decoding(&self, hash: u64, name_value: &[u8]) -> Option<u32> {
        self.table.find(hash, |index| {
            let entry = &self.entries[index];
            entry.hash == hash && decoded_name(entry) == name_value
        })
    }

    /// Where the first entry is in the order of names that does not come before `name_value`.
    fn seek(&self, ordered: &Ordered, name_value: &[u8]) -> Path {
        match self.config.compare {
            Compare::Stored => ordered.seek(|index| self.entries[index].name_value() < name_value),
            Compare::Decode => {
                ordered.seek(|index| decoded_name(&self.entries[index]) < name_value)
            }
        }
    }

    /// The first match from the Interest's own name on, as CCNx answers: Data of that name, else
    /// the first below it.
    #[cold]
    fn find_in_order(&self, now: Instant, query: &Query<'_>, ordered: &Ordered) -> Option<u32> {
        let name = query.name;
        let is_fresh_enough = |entry: &Entry| entry.is_fresh_enough(now, query.must_be_fresh);
        let mut index = ordered.at(&self.seek(ordered, name.value()));
        for _ in 0..PREFIX_VISITS_MAX {
            let Some(entry) = self.entries.get(index).filter(|entry| entry.is_below(name)) else {
                break;
            };
            let is_whole_name = entry.name_value().len() == name.value().len();
            if !is_whole_name && !query.can_be_prefix {
                break;
            }
            if is_fresh_enough(entry) && (is_whole_name || entry.flags & NACK == 0) {
                return Some(index);
            }
            index = ordered.next(index);
        }
        self.find_by_digest(name, query.hashes)
            .filter(|&index| is_fresh_enough(&self.entries[index]))
    }

    /// Gives a new entry its place in the order of names, if one is kept.
    #[inline(always)]
    fn put_in_order(&mut self, index: u32) {
        if let Some(mut ordered) = self.ordered.take() {
            let entry = &self.entries[index];
            let path = self.seek(&ordered, entry.name_value());
            ordered.insert(&path, index, entry.hash);
            self.ordered = Some(ordered);
        }
    }

    #[inline(always)]
    fn take_out_of_order(&mut self, index: u32) {
        if let Some(mut ordered) = self.ordered.take() {
            let entry = &self.entries[index];
            let path = self.seek(&ordered, entry.name_value());
            ordered.remove(&path, index, entry.hash);
            self.ordered = Some(ordered);
        }
    }

    #[inline(always)]
    fn find_by_digest(&self, name: NameView<'_>, hashes: NameHashes) -> Option<u32> {
        let (rest, last) = name.value().split_last_chunk::<{ DIGEST_SIZE + 2 }>()?;
        let [typ, len, digest @ ..] = last;
        let may_be_digest = (u32::from(*typ), usize::from(*len)) == (DIGEST_COMPONENT, DIGEST_SIZE);
        // Those octets may also be the end of some longer component, so ask the name before hashing
        // a packet.
        if !may_be_digest || u32::from(name.last()?.typ) != DIGEST_COMPONENT {
            return None;
        }
        self.find_of_digest(hashes.parent?, rest, digest)
    }

    #[cold]
    fn find_of_digest(&self, hash: u64, name_value: &[u8], digest: &[u8; 32]) -> Option<u32> {
        let index = self.find(hash, name_value)?;
        let data = DataView::decode(&self.entries[index].packet).ok()?;
        (data.implicit_digest() == *digest).then_some(index)
    }

    fn find_below(&self, now: Instant, query: &Query<'_>, hash: u64) -> Option<u32> {
        let top = self.tree.find(hash)?;
        self.tree.last_below(&self.entries, top, PREFIX_VISITS_MAX, |entry| {
            // Word that there is no such Data is of that name alone.
            entry.flags & NACK == 0
                && entry.is_fresh_enough(now, query.must_be_fresh)
                && entry.is_below(query.name)
        })
    }

    /// Stores Data, in place of other Data of that name. Returns the stored copy, which holds no
    /// more memory than it needs and is the one to send on; nothing when the Data is not stored.
    ///
    /// `source` says where it came from, for [`Store::erase_copy`]. `prefixes` appends the keyed
    /// hashes of all proper prefixes, shortest first. It is called only when the parent is not
    /// known yet, which is rare where names have many siblings.
    pub fn insert(
        &mut self,
        now: Instant,
        data: &DataView<'_>,
        hashes: NameHashes,
        source: u32,
        prefixes: impl FnOnce(&mut Vec<u64>),
        pool: &mut Pool,
    ) -> Option<Packet> {
        if !self.config.admit || data.name.is_empty() {
            return None;
        }
        self.note_insertion();
        let mut is_unverified = false;
        let is_nack = data.is_nack();
        let rule = self.rule_for(data.name, hashes);
        let fresh_until = now.plus_ns(u64::from(freshness_ms(data)) * NS_PER_MS);
        let mut known = self.find(hashes.whole, data.name.value());
        match is_nack {
            true if !self.admits_nack(known, data, rule) => return None,
            true => {}
            false => known = self.without_nack(known, pool),
        }
        match known {
            Some(index) if *self.entries[index].packet == *data.wire => {
                return Some(self.refresh(now, index, fresh_until));
            }
            Some(index) => {
                if !is_nack {
                    self.replaced.keep(&self.entries[index], replaced_bytes_max(&self.config));
                    self.replace_on_disk(data, hashes);
                }
                self.take_out(index);
                pool.recycle(self.discard(index));
            }
            None if is_nack => {}
            None => {
                is_unverified = self.note_new(data, hashes);
                if self.is_refused(rule) {
                    if is_unverified {
                        self.drop_unverified(data, hashes);
                    }
                    return None;
                }
            }
        }
        if !self.is_storable(data) {
            let stored = self.offer_past_memory(now, data, hashes, is_unverified, prefixes, pool);
            self.stats.rejections += u64::from(stored.is_none());
            return stored;
        }
        let mut packet = pool.copy(data.wire);
        let stored = packet.share();
        let stored = (stored, source);
        let index = self.put(now, stored, data, hashes, fresh_until, prefixes, pool);
        self.take_in(index, rule);
        match is_nack {
            true => self.entries[index].flags |= NACK,
            false => {
                self.entries[index].flags |= if is_unverified { UNVERIFIED } else { 0 };
                self.queue_for_disk(index);
            }
        }
        self.stats.insertions += 1;
        if pool.is_scattered() {
            self.gather(pool);
        }
        Some(packet)
    }

    /// Whether a producer's word that there is no Data of a name is stored. What was there is worth
    /// more, and that of a segment would count as held.
    #[cold]
    fn admits_nack(&mut self, known: Option<u32>, data: &DataView<'_>, rule: Option<u32>) -> bool {
        let is_segment = data.name.last().is_some_and(|last| last.as_segment().is_some());
        match known {
            Some(index) => self.entries[index].flags & NACK != 0,
            None => !is_segment && !self.is_refused(rule) && self.is_storable(data),
        }
    }

    /// Takes out an entry that says there is no such Data: there is.
    #[inline]
    fn without_nack(&mut self, known: Option<u32>, pool: &mut Pool) -> Option<u32> {
        let index = known.filter(|&index| self.entries[index].flags & NACK != 0);
        let Some(index) = index else { return known };
        self.take_out(index);
        pool.recycle(self.discard(index));
        None
    }

    /// Puts Data into memory that is not there and may be. It is yet to be taken in.
    #[expect(clippy::too_many_arguments, reason = "one stage of two paths")]
    #[inline]
    fn put(
        &mut self,
        now: Instant,
        (stored, source): (Packet, u32),
        data: &DataView<'_>,
        hashes: NameHashes,
        fresh_until: Instant,
        prefixes: impl FnOnce(&mut Vec<u64>),
        pool: &mut Pool,
    ) -> u32 {
        let hash = hashes.whole;
        let (nearest, missing) = self.make_room(now, data, hashes, prefixes, pool);
        let node = match missing {
            0 => nearest,
            _ => {
                let node = self.tree.extend(nearest, &self.path[self.path.len() - missing..]);
                self.policy.on_new_object(node);
                node
            }
        };
        let name_value = data.name.value();
        let index = self.entries.insert_with(|| Entry {
            packet: stored,
            fresh_until,
            hash,
            freshness_ms: freshness_ms(data),
            node,
            siblings: Links::NONE,
            queue: Links::NONE,
            mark: 0,
            // Two headers of four octets at most; `is_storable` has checked that the other fits.
            name_at: (name_value.as_ptr().addr() - data.wire.as_ptr().addr()) as u8,
            flags: 0,
            name_len: name_value.len() as u16,
        });
        debug_assert_eq!(self.entries[index].name_value(), name_value);
        if self.sources.len() <= index as usize {
            self.sources.resize(index as usize + 1, UNKNOWN_SOURCE);
        }
        self.sources[index as usize] = source;
        self.table.insert(hash, index);
        self.tree.attach(&mut self.entries, index, now);
        self.put_in_order(index);
        self.entry_bytes += entry_bytes(data.wire.len());
        self.track_entry(index);
        index
    }

    fn refresh(&mut self, now: Instant, index: u32, fresh_until: Instant) -> Packet {
        self.stats.refreshes += 1;
        let entry = &mut self.entries[index];
        entry.fresh_until = fresh_until;
        entry.flags |= USED;
        let packet = entry.packet.share();
        self.tree.renew(&mut self.entries, index, now);
        self.use_entry(index);
        packet
    }

    /// Octets of memory that Data takes, nodes aside.
    #[inline]
    fn bytes_of(&self, data: &DataView<'_>) -> u64 {
        let order_bytes = if self.ordered.is_some() { ORDERED_BYTES } else { 0 };
        entry_bytes(data.wire.len()) + order_bytes
    }

    /// Whether memory can hold Data at all.
    #[inline]
    fn is_storable(&self, data: &DataView<'_>) -> bool {
        let depth = data.name.component_count() - 1;
        depth < COMPONENTS_MAX
            && data.wire.len() <= usize::from(u16::MAX)
            && self.bytes_of(data) + depth as u64 * NODE_BYTES <= self.config.capacity_bytes
    }

    /// Evicts until there is room for `data`, which is storable. Returns the node nearest to it and
    /// how many of its prefixes are beyond; if some are, the path has the hashes of the prefixes.
    fn make_room(
        &mut self,
        now: Instant,
        data: &DataView<'_>,
        hashes: NameHashes,
        prefixes: impl FnOnce(&mut Vec<u64>),
        pool: &mut Pool,
    ) -> (u32, usize) {
        let bytes = self.bytes_of(data);
        let bytes_max = match pool.bytes_when_short() {
            // It has all the memory for packets that it will get.
            Some(bytes) => {
                let entries_bytes = self.entries.len() as u64 * ENTRY_BYTES;
                self.config.capacity_bytes.min(bytes + entries_bytes)
            }
            None => self.config.capacity_bytes,
        };
        let mut prefixes = Some(prefixes);
        let mut evictions = 0;
        loop {
            let nodes = self.tree.len();
            let known =
                hashes.parent.map_or(Some(self.tree.root()), |parent| self.tree.find(parent));
            let (nearest, missing) = match known {
                Some(node) => (node, 0),
                None => {
                    if let Some(prefixes) = prefixes.take() {
                        self.path.clear();
                        prefixes(&mut self.path);
                        debug_assert_eq!(self.path.len(), data.name.component_count() - 1);
                    }
                    self.tree.nearest(&self.path)
                }
            };
            let needed = bytes + missing as u64 * NODE_BYTES;
            let node = if missing == 0 { nearest } else { NONE };
            let incoming = Incoming { node, hash: hashes.whole, name: data.name.value() };
            // An eviction may take a node of the path with it.
            while self.tree.len() == nodes {
                let used_bytes = self.bytes() + self.evicted_unwritten_bytes();
                if used_bytes + needed <= bytes_max {
                    return (nearest, missing);
                }
                if self.entries.is_empty() {
                    self.replaced.trim(0);
                    return (nearest, missing);
                }
                // What disks have yet to write leaves in its own time: it costs neither Data that
                // rules keep nor, at once, all other Data.
                let is_last =
                    evictions >= EVICTIONS_MAX || self.entry_bytes == self.stats.kept_bytes;
                if is_last && self.bytes() + needed <= bytes_max {
                    return (nearest, missing);
                }
                evictions += 1;
                pool.recycle(self.evict(now, incoming));
            }
        }
    }

    #[inline(always)]
    fn evict(&mut self, now: Instant, incoming: Incoming<'_>) -> Packet {
        let victim = self.policy.take_victim(&mut self.entries, incoming);
        let victim = victim.or_else(|| self.take_kept());
        let index = victim.unwrap_or_else(|| unreachable!("what takes memory can be evicted"));
        if self.disk.is_some() {
            self.offer_evicted(now, index);
        }
        let packet = self.discard(index);
        self.stats.evictions += 1;
        self.prefetch_victims();
        packet
    }

    /// Asks for what the next eviction will touch. The entries at the heads of the queues were
    /// asked for the time before.
    #[inline(always)]
    fn prefetch_victims(&self) {
        for index in self.policy.candidates() {
            let Some(entry) = self.entries.get(index) else { continue };
            entry.packet.prefetch_block();
            self.table.prefetch(entry.hash);
            self.policy.prefetch(entry.hash);
            self.tree.prefetch_node(entry.node);
            self.entries.prefetch(entry.siblings.next);
            self.entries.prefetch(entry.queue.next);
        }
    }

    /// Removes an entry that the policy knows no more, and returns its packet.
    #[inline(always)]
    fn discard(&mut self, index: u32) -> Packet {
        self.untrack_entry(index);
        self.unqueue_for_disk(index);
        self.tree.detach(&mut self.entries, index);
        self.take_out_of_order(index);
        let entry = self.entries.remove(index);
        let was_known = self.table.remove(entry.hash, index);
        debug_assert!(was_known);
        self.entry_bytes -= entry.bytes();
        entry.packet
    }

    /// Removes Data whose names start with `prefix` or are it, at most `limit` of them, and returns
    /// how many.
    ///
    /// `prefix_hash` is the keyed hash of the components of `prefix`. That of the empty name is not
    /// looked at.
    pub fn erase(&mut self, prefix: NameView<'_>, prefix_hash: u64, limit: usize) -> usize {
        let mut erased = 0;
        if !self.replaced.is_empty() {
            self.replaced.erase(prefix);
        }
        if limit > 0
            && let Some(index) = self.find(prefix_hash, prefix.value())
        {
            self.erase_entry(index);
            erased = 1;
        }
        let top = match prefix.is_empty() {
            true => Some(self.tree.root()),
            false => self.tree.find(prefix_hash),
        };
        let mut next = top.filter(|_| erased < limit).and_then(|top| self.tree.first(top));
        while let (Some(top), Some(index)) = (top, next) {
            if erased >= limit {
                break;
            }
            // Taken before the entry goes; what it leads to keeps the nodes on the way.
            next = self.tree.after(&self.entries, index, top);
            if self.entries[index].is_below(prefix) {
                self.erase_entry(index);
                erased += 1;
            }
        }
        erased + self.erase_on_disk(prefix, prefix_hash, limit - erased)
    }

    /// Removes the Data of this very name, if its implicit digest is `digest`: a copy that was
    /// found to be false. Returns where it came from. Data that only a disk has
    /// stays: its digest is not known.
    pub fn erase_copy(&mut self, name: NameView<'_>, name_hash: u64, digest: &[u8]) -> Option<u32> {
        if !self.replaced.is_empty() {
            self.replaced.erase_copy(name, digest);
        }
        let index = self.find(name_hash, name.value())?;
        let data = DataView::decode(&self.entries[index].packet).expect("only Data is stored");
        let is_it = data.implicit_digest() == digest;
        is_it.then(|| {
            self.erase_entry(index);
            self.sources[index as usize]
        })
    }

    fn erase_entry(&mut self, index: u32) {
        self.erase_entry_on_disk(index);
        self.take_out(index);
        self.discard(index);
        self.stats.erasures += 1;
    }
}

/// FreshnessPeriod in milliseconds. More than 49 days count as 49 days.
#[inline]
fn freshness_ms(data: &DataView<'_>) -> u32 {
    u32::try_from(data.freshness_ms).unwrap_or(u32::MAX)
}

/// The name of a stored packet as if nothing but its octets were known.
fn decoded_name(entry: &Entry) -> &[u8] {
    DataView::decode(&entry.packet).expect("only Data is stored").name.value()
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
