//! Data in memory, found by name, by implicit digest and by prefix.

use super::query::{NameHashes, Query};
use super::{COMPONENTS_MAX, PREFIX_VISITS_MAX, UNKNOWN_SOURCE};
use crate::entry::{ENTRY_BYTES, Entry, Links, NACK, NONE, USED, entry_bytes};
use crate::name_index::{NameIndex, StoredNames};
use crate::tree::{NODE_BYTES, Tree};
use crate::uses::ObjectUses;
use alloc::boxed::Box;
use alloc::vec::Vec;
use weir_base::{Instant, Packet, Pool, Slab, Table};
use weir_wire::tlv::IMPLICIT_SHA256_DIGEST_COMPONENT as DIGEST_COMPONENT;
use weir_wire::{DIGEST_SIZE, DataView, NameView};

/// Entries that [`Memory::compact`] visits for each insertion. At 8 for each, it visits the whole
/// store while insertions replace an eighth of it.
const COMPACT_ENTRIES: u32 = 8;

/// Decoded Data that has arrived.
#[derive(Copy, Clone)]
pub(super) struct ArrivedData<'a> {
    pub(super) data: &'a DataView<'a>,
    pub(super) hashes: NameHashes,
    pub(super) fresh_until: Instant,
    /// See [`NewData::source`](crate::NewData::source).
    pub(super) source: u32,
}

/// The entries and their indexes: a hash table of names, and a tree of prefixes. [`Memory`] has no
/// limit of its own: the store decides what to evict.
pub(super) struct Memory {
    pub(super) entries: Slab<Entry>,
    /// Where the Data came from, by entry. Stored outside the entries, which fill a cache line.
    sources: Vec<u32>,
    /// From the hash of a whole name to an entry.
    table: Table,
    tree: Tree,
    /// The name index that an experiment has set, if any.
    name_index: Option<Box<dyn NameIndex>>,
    /// The sum of `memory_bytes` of all entries, without nodes.
    entry_bytes: u64,
    /// The entry that [`Memory::compact`] visited last.
    compacted_to: u32,
}

impl Memory {
    pub(super) fn new() -> Self {
        Self {
            entries: Slab::new(),
            sources: Vec::new(),
            table: Table::with_capacity(0),
            tree: Tree::new(),
            name_index: None,
            entry_bytes: 0,
            compacted_to: 0,
        }
    }

    pub(super) fn set_name_index(&mut self, mut index: Box<dyn NameIndex>) {
        for (entry, _) in self.entries.iter() {
            index.insert(StoredNames(&self.entries), entry);
        }
        self.name_index = Some(index);
    }

    /// Whether prefix lookups answer in name order.
    pub(super) fn is_ordered(&self) -> bool {
        self.name_index.as_ref().is_some_and(|index| index.is_ordered())
    }

    #[inline]
    pub(super) fn bytes(&self) -> u64 {
        let index_bytes = self.entries.len() as u64 * self.index_bytes();
        self.entry_bytes + self.tree.len() as u64 * NODE_BYTES + index_bytes
    }

    /// Bytes of each entry in the experiment's name index.
    #[inline]
    fn index_bytes(&self) -> u64 {
        self.name_index.as_ref().map_or(0, |index| index.entry_bytes())
    }

    /// Bytes of all entries, including their packets.
    #[inline]
    pub(super) fn entry_bytes(&self) -> u64 {
        self.entry_bytes
    }

    /// Bytes of all entries, without their packets.
    #[inline]
    pub(super) fn overhead_bytes(&self) -> u64 {
        self.entries.len() as u64 * ENTRY_BYTES
    }

    /// Bytes of memory that Data needs, without nodes.
    #[inline]
    pub(super) fn bytes_of(&self, data: &DataView<'_>) -> u64 {
        entry_bytes(data.wire.len()) + self.index_bytes()
    }

    /// Whether Data fits into a memory of `capacity_bytes` at all.
    #[inline]
    pub(super) fn is_storable(&self, data: &DataView<'_>, capacity_bytes: u64) -> bool {
        let depth = data.name.component_count() - 1;
        depth < COMPONENTS_MAX
            && data.wire.len() <= usize::from(u16::MAX)
            && self.bytes_of(data) + depth as u64 * NODE_BYTES <= capacity_bytes
    }

    #[inline]
    pub(super) fn prefetch_table(&self, hash: u64) {
        self.table.prefetch(hash);
    }

    #[inline]
    pub(super) fn prefetch_entry(&self, hash: u64) -> Option<u32> {
        let first = self.table.find(hash, |_| true)?;
        self.entries.prefetch(first);
        Some(first)
    }

    #[inline]
    pub(super) fn prefetch_parent_table(&self, parent_hash: u64) {
        self.tree.prefetch_table(parent_hash);
    }

    #[inline]
    pub(super) fn prefetch_parent(&self, parent_hash: u64) -> Option<u32> {
        self.tree.prefetch_hash(parent_hash)
    }

    #[inline]
    pub(super) fn prefetch_sibling(&self, parent: u32) {
        let index = self.tree.last_entry(parent);
        if index != NONE {
            self.entries.prefetch(index);
        }
    }

    /// Prefetches the memory that [`Memory::remove`] will touch. Returns the hash of the name.
    #[inline(always)]
    pub(super) fn prefetch_removal(&self, index: u32) -> Option<u64> {
        let entry = self.entries.get(index)?;
        entry.packet.prefetch_block();
        self.table.prefetch(entry.hash);
        self.tree.prefetch_node(entry.node);
        self.entries.prefetch(entry.sibling_links.next);
        self.entries.prefetch(entry.policy_links.next);
        Some(entry.hash)
    }

    /// The entry that answers a query. See [`Store::lookup`](crate::Store::lookup).
    #[inline(always)]
    pub(super) fn find_answer(&self, now: Instant, query: &Query<'_>) -> Option<u32> {
        if let Some(index) = &self.name_index
            && index.is_ordered()
        {
            return self.find_in_order(now, query, &**index);
        }
        let hash = query.hashes.whole;
        let name = query.name;
        // A digest is computed only if the name itself finds nothing.
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
    pub(super) fn find(&self, hash: u64, name_value: &[u8]) -> Option<u32> {
        if let Some(index) = &self.name_index {
            return self.find_with_index(hash, name_value, &**index);
        }
        self.table.find(hash, |index| {
            let entry = &self.entries[index];
            entry.hash == hash && entry.name_value() == name_value
        })
    }

    #[cold]
    fn find_with_index(&self, hash: u64, name: &[u8], index: &dyn NameIndex) -> Option<u32> {
        let stored = StoredNames(&self.entries);
        let is_it = |entry| stored.hash(entry) == hash && index.name(stored, entry) == name;
        self.table.find(hash, is_it)
    }

    /// The first match in name order, as in CCNx: Data of exactly the Interest's name, else the
    /// first below it.
    #[cold]
    fn find_in_order(&self, now: Instant, query: &Query<'_>, order: &dyn NameIndex) -> Option<u32> {
        let name = query.name;
        let is_fresh_enough = |entry: &Entry| entry.is_fresh_enough(now, query.must_be_fresh);
        let first = order.first_at_or_after(StoredNames(&self.entries), name.value());
        let in_order = core::iter::successors(first, |&index| order.next(index));
        for index in in_order.take(PREFIX_VISITS_MAX) {
            let entry = &self.entries[index];
            if !entry.is_below(name) {
                break;
            }
            let is_whole_name = entry.name_value().len() == name.value().len();
            if !is_whole_name && !query.can_be_prefix {
                break;
            }
            if is_fresh_enough(entry) && (is_whole_name || entry.flags & NACK == 0) {
                return Some(index);
            }
        }
        self.find_by_digest(name, query.hashes)
            .filter(|&index| is_fresh_enough(&self.entries[index]))
    }

    #[inline(always)]
    fn find_by_digest(&self, name: NameView<'_>, hashes: NameHashes) -> Option<u32> {
        let (rest, last) = name.value().split_last_chunk::<{ DIGEST_SIZE + 2 }>()?;
        let [typ, len, digest @ ..] = last;
        let may_be_digest = (u32::from(*typ), usize::from(*len)) == (DIGEST_COMPONENT, DIGEST_SIZE);
        // The same bytes may be the end of a longer component. Check the component before hashing a
        // packet.
        if !may_be_digest || u32::from(name.last()?.typ) != DIGEST_COMPONENT {
            return None;
        }
        self.find_by_computed_digest(hashes.parent?, rest, digest)
    }

    #[cold]
    fn find_by_computed_digest(
        &self,
        hash: u64,
        name_value: &[u8],
        digest: &[u8; 32],
    ) -> Option<u32> {
        let index = self.find(hash, name_value)?;
        let data = DataView::decode(&self.entries[index].packet).ok()?;
        (data.implicit_digest() == *digest).then_some(index)
    }

    fn find_below(&self, now: Instant, query: &Query<'_>, hash: u64) -> Option<u32> {
        let top = self.tree.find(hash)?;
        self.tree.last_below(&self.entries, top, PREFIX_VISITS_MAX, |entry| {
            // A Nack answers only for exactly its own name.
            entry.flags & NACK == 0
                && entry.is_fresh_enough(now, query.must_be_fresh)
                && entry.is_below(query.name)
        })
    }

    /// The node of a prefix; the root for the empty name.
    pub(super) fn node_of(&self, prefix: NameView<'_>, hash: u64) -> Option<u32> {
        if prefix.is_empty() { Some(self.tree.root()) } else { self.tree.find(hash) }
    }

    /// The first entry below a node.
    pub(super) fn first_below(&self, top: u32) -> Option<u32> {
        self.tree.first(top)
    }

    /// The entry after `index`, among those below `top`.
    pub(super) fn next_below(&self, top: u32, index: u32) -> Option<u32> {
        self.tree.after(&self.entries, index, top)
    }

    /// The keyed hash of an entry's name without its last component; `None` if nothing is left.
    #[inline]
    pub(super) fn parent_hash(&self, entry: &Entry) -> Option<u64> {
        self.tree.hash(entry.node)
    }

    /// An entry to change, with the tree to look up its prefixes at the same time.
    #[inline]
    pub(super) fn entry_mut(&mut self, index: u32) -> (&mut Entry, &Tree) {
        (&mut self.entries[index], &self.tree)
    }

    /// Counts an answer with Data of a node. Returns the class of the Data.
    #[inline(always)]
    pub(super) fn count_hit(&mut self, node: u32, bytes: usize, now: Instant) -> u8 {
        self.tree.count_hit(node, bytes, now)
    }

    /// See [`Tree::set_classes`].
    pub(super) fn set_classes(&mut self, others: u8, classes: Vec<(u64, u8)>) {
        self.tree.set_classes(others, classes);
    }

    /// See [`Tree::classify`].
    pub(super) fn classify(&mut self, steps: u32) -> bool {
        self.tree.classify(steps)
    }

    /// The number of node slots in the prefix tree.
    pub(super) fn node_slots(&self) -> u32 {
        self.tree.slots()
    }

    /// The number of Data directly below a node, which may be vacant.
    #[inline]
    pub(super) fn packets_of(&self, node: u32) -> u32 {
        self.tree.packets(node)
    }

    /// The newest Data directly below a node.
    pub(super) fn newest_of(&self, node: u32) -> Option<u32> {
        Some(self.tree.last_entry(node)).filter(|&index| index != NONE)
    }

    /// The uses of the Data directly below a node. An arrival counts as the last use.
    pub(super) fn uses(&self, node: u32) -> ObjectUses {
        let uses = self.tree.uses(node);
        let last_use = uses.last_use.max(self.tree.newest_arrival(node));
        ObjectUses { last_use, ..uses }
    }

    /// The same, and counts from zero afterwards.
    pub(super) fn take_uses(&mut self, node: u32) -> ObjectUses {
        let uses = self.uses(node);
        self.tree.restart_uses(node);
        uses
    }

    pub(super) fn source(&self, index: u32) -> u32 {
        self.sources[index as usize]
    }

    /// The number of nodes in the prefix tree.
    #[inline]
    pub(super) fn nodes(&self) -> usize {
        self.tree.len()
    }

    /// The node nearest to a name, and how many nodes are missing below it. Calls `path` for the
    /// hashes of all proper prefixes only if some are missing.
    #[inline]
    pub(super) fn nearest_node<'a>(
        &self,
        hashes: NameHashes,
        path: impl FnOnce() -> &'a [u64],
    ) -> (u32, usize) {
        let known = hashes.parent.map_or(Some(self.tree.root()), |parent| self.tree.find(parent));
        match known {
            Some(node) => (node, 0),
            None => self.tree.nearest(path()),
        }
    }

    /// Adds the missing nodes below the nearest one. Returns the last of them.
    #[inline]
    pub(super) fn extend(&mut self, nearest: u32, missing: &[u64]) -> u32 {
        self.tree.extend(nearest, missing)
    }

    /// Adds Data, whose name has no entry, below the node of its parent.
    #[inline]
    pub(super) fn insert(
        &mut self,
        now: Instant,
        arrival: &ArrivedData<'_>,
        packet: Packet,
        node: u32,
    ) -> u32 {
        let ArrivedData { data, hashes, fresh_until, source } = *arrival;
        let hash = hashes.whole;
        let name_value = data.name.value();
        let index = self.entries.insert_with(|| Entry {
            packet,
            fresh_until,
            hash,
            freshness_ms: freshness_ms(data),
            node,
            sibling_links: Links::NONE,
            policy_links: Links::NONE,
            policy_state: 0,
            // The casts lose nothing: the name follows two headers of at most four bytes each, and
            // `is_storable` has limited the packet to 65,535 bytes.
            name_offset: (name_value.as_ptr().addr() - data.wire.as_ptr().addr()) as u8,
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
        if let Some(name_index) = &mut self.name_index {
            name_index.insert(StoredNames(&self.entries), index);
        }
        self.entry_bytes += entry_bytes(data.wire.len());
        index
    }

    /// The same Data arrived again: renews its freshness and its order. Returns the stored packet.
    pub(super) fn refresh(&mut self, now: Instant, index: u32, fresh_until: Instant) -> Packet {
        let entry = &mut self.entries[index];
        entry.fresh_until = fresh_until;
        entry.flags |= USED;
        let packet = entry.packet.share();
        self.tree.renew(&mut self.entries, index, now);
        packet
    }

    /// Removes an entry that is no longer in a list of the eviction policy. Returns its packet.
    #[inline(always)]
    pub(super) fn remove(&mut self, index: u32) -> Packet {
        self.tree.detach(&mut self.entries, index);
        if let Some(name_index) = &mut self.name_index {
            name_index.remove(StoredNames(&self.entries), index);
        }
        let entry = self.entries.remove(index);
        let was_known = self.table.remove(entry.hash, index);
        debug_assert!(was_known);
        self.entry_bytes -= entry.memory_bytes();
        entry.packet
    }

    /// Moves the packets of the next few entries out of pool spans that are nearly empty. The spans
    /// can then be reused for other packet sizes. Without this, Data that outlives its neighbours
    /// would hold many times its size, and the process would exceed the store's capacity.
    #[cold]
    pub(super) fn compact(&mut self, pool: &mut Pool) {
        for _ in 0..COMPACT_ENTRIES {
            self.compacted_to = match self.compacted_to + 1 {
                next if next < self.entries.slots() => next,
                _ => 0,
            };
            if let Some(entry) = self.entries.get_mut(self.compacted_to) {
                pool.compact(&mut entry.packet);
            }
        }
    }

    /// Asserts that the indexes are consistent.
    #[cfg(test)]
    pub(super) fn check(&self) {
        let bytes: u64 = self.entries.iter().map(|(_, entry)| entry.memory_bytes()).sum();
        assert_eq!(self.entry_bytes, bytes);
        assert_eq!(self.table.len(), self.entries.len());
        let root = self.tree.root();
        let first = self.first_below(root);
        let reached = core::iter::successors(first, |&index| self.next_below(root, index)).count();
        assert_eq!(reached, self.entries.len());
    }
}

/// FreshnessPeriod in milliseconds, at most 49 days.
#[inline]
pub(super) fn freshness_ms(data: &DataView<'_>) -> u32 {
    u32::try_from(data.freshness_ms).unwrap_or(u32::MAX)
}
