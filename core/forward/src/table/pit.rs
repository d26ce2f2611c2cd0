//! The pending Interest table. Each entry has an in-record for each downstream that waits, and an
//! out-record for each upstream that the Interest was sent to.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::mem;
use core::ops::Deref;

use weir_base::{Instant, Packet, Pool, Rng, Slab, Table, TimerWheel};
use weir_store::Query;
use weir_wire::{NameView, PACKET_SIZE_MAX, tlv};

use crate::table::records::{InRecord, OutRecord, RecordLists, Records};
use crate::table::slot_set::SlotSet;

/// The source from which a pending Interest expects its Data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum AwaitedSource {
    /// Upstream. No disk or other shard may have the Data.
    #[default]
    Upstream,
    /// Upstream, and the Data needs a prefix announcement (`path/announced.rs`).
    Announced,
    /// A disk of the store, with the slot of the entry's waiter in `Reads`. A retransmission may
    /// also have gone upstream.
    Disk(u32),
    /// The stores of other shards: the slot of the query.
    Shards(u32),
    /// Upstream, although a disk has the Data.
    Bypass {
        since: Instant,
        /// Whether its Data must be marked.
        is_marked: bool,
    },
}

/// A pending Interest. It fills exactly two cache lines, because its Data touches all of it.
#[repr(align(64))]
pub(crate) struct PitEntry {
    /// Keyed hash of the whole name.
    pub(crate) hash: u64,
    /// The Interest as it goes upstream, with a nonce and with HopLimit reduced by one.
    pub(crate) interest: Packet,
    /// Start and length of the name's TLV-VALUE in `interest`.
    pub(crate) name_at: (u16, u16),
    /// Number of name components, if [`Pit`] counts the entry by it; otherwise 0.
    pub(crate) component_count: u16,
    pub(crate) can_be_prefix: bool,
    pub(crate) must_be_fresh: bool,
    /// The last component is an implicit digest.
    pub(crate) has_digest: bool,
    pub(crate) awaits: AwaitedSource,
    /// HopLimit of `interest`.
    pub(crate) hop_limit: Option<u8>,
    records: Records,
    /// Memory of its Interest and its record lists, in bytes.
    bytes: u32,
}

const _: () = assert!(size_of::<Option<PitEntry>>() == 128);

impl Deref for PitEntry {
    type Target = Records;

    #[inline(always)]
    fn deref(&self) -> &Records {
        &self.records
    }
}

impl PitEntry {
    /// State of the strategy for this entry; 0 at first.
    pub(crate) fn strategy_state(&self) -> u64 {
        self.lists().map_or(0, |lists| lists.strategy_state)
    }

    /// Removes the downstream that matches.
    pub(crate) fn remove_downstream(
        &mut self,
        is_match: impl Fn(&InRecord) -> bool,
    ) -> Option<InRecord> {
        self.records.remove_downstream(is_match)
    }

    /// Memory of the entry in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        SLOT_BYTES + u64::from(self.bytes)
    }

    pub(crate) fn name_view(&self) -> NameView<'_> {
        NameView::from_value(self.name_value()).expect("the PIT holds valid names")
    }

    pub(crate) fn name_value(&self) -> &[u8] {
        let (at, len) = self.name_at;
        &self.interest[usize::from(at)..usize::from(at) + usize::from(len)]
    }

    /// The latest expiry of a downstream.
    pub(crate) fn last_expiry(&self) -> Option<Instant> {
        self.downstreams().map(|record| record.expiry).max()
    }
}

/// Whether the last component is an implicit digest. The bytes are checked first, which is enough
/// for most names.
#[inline]
fn ends_in_digest(name: NameView<'_>) -> bool {
    const HEADER: [u8; 2] = [tlv::IMPLICIT_SHA256_DIGEST_COMPONENT as u8, 32];
    let last = name.value().split_last_chunk::<34>();
    last.is_some_and(|(_, last)| last.starts_with(&HEADER))
        && name.last().is_some_and(|last| last.is_implicit_digest())
}

/// Maximum number of record lists that are kept for reuse.
const SPARES_MAX: usize = 1024;

/// Memory of a slot, used or not, in bytes: the entry, its element of the free list, its timer, and
/// its share of a hash table that is as empty as it can be.
const SLOT_BYTES: u64 = size_of::<Option<PitEntry>>() as u64 + 4 + 24 + 20;

/// Memory of each downstream after the first, in bytes. Up to half of their vector is unused.
const DOWNSTREAM_BYTES: u64 = 2 * size_of::<InRecord>() as u64;
/// Memory of each upstream after the first.
const UPSTREAM_BYTES: u64 = 2 * size_of::<OutRecord>() as u64;
/// Memory of the record lists with one record of each kind, and of the allocator.
const LISTS_BYTES: u64 = size_of::<RecordLists>() as u64 + DOWNSTREAM_BYTES + UPSTREAM_BYTES + 24;

/// How much an Interest may grow when a nonce is added: the nonce element and longer outer lengths.
pub(crate) const REWRITE_GROWTH: usize = 16;

/// Maximum memory of an entry for an Interest of `len` bytes.
pub(crate) fn entry_bytes_max(len: usize) -> u64 {
    SLOT_BYTES + LISTS_BYTES + Pool::footprint(len + REWRITE_GROWTH) as u64
}

/// All pending Interests of a shard, limited by number and by bytes.
pub(crate) struct Pit {
    table: Table,
    entries: Slab<PitEntry>,
    occupied: SlotSet,
    pub(crate) timers: TimerWheel,
    entries_max: usize,
    bytes: u64,
    bytes_max: u64,
    /// While entries use less than this, any Interest has room.
    ample_bytes: u64,
    /// Entries with CanBePrefix by number of components. Data looks only for lengths that exist.
    prefix_lengths: LengthCount,
    /// Entries that end in an implicit digest, by number of components.
    digest_lengths: LengthCount,
    #[expect(clippy::vec_box, reason = "an entry takes the box as it is")]
    spares: Vec<Box<RecordLists>>,
    /// On routers with several shards: index and hash of ended entries with CanBePrefix, until
    /// [`Pit::take_ended`].
    ended: Option<Vec<(u32, u64)>>,
}

/// The number of entries for each number of components.
#[derive(Default)]
pub(crate) struct LengthCount {
    counts: Vec<u32>,
    total: usize,
}

impl LengthCount {
    pub(crate) fn add(&mut self, length: usize) {
        if self.counts.len() <= length {
            self.counts.resize(length + 1, 0);
        }
        self.counts[length] += 1;
        self.total += 1;
    }

    pub(crate) fn remove(&mut self, length: usize) {
        self.counts[length] -= 1;
        self.total -= 1;
    }

    pub(crate) fn any(&self, length: usize) -> bool {
        self.counts.get(length).is_some_and(|&count| count > 0)
    }
}

/// The timer wheel's tick is 1 ms, the unit of lifetimes.
const TICK_NS: u64 = weir_base::NS_PER_MS;

impl Pit {
    /// `notes_ended`: see [`Pit::take_ended`].
    pub(crate) fn new(now: Instant, entries_max: usize, bytes_max: u64, notes_ended: bool) -> Self {
        Self {
            table: Table::with_capacity(1024.min(entries_max.max(1))),
            entries: Slab::new(),
            occupied: SlotSet::default(),
            timers: TimerWheel::new(TICK_NS, now),
            entries_max,
            bytes: 0,
            bytes_max,
            ample_bytes: bytes_max.saturating_sub(entry_bytes_max(PACKET_SIZE_MAX)),
            prefix_lengths: LengthCount::default(),
            digest_lengths: LengthCount::default(),
            spares: Vec::new(),
            ended: notes_ended.then(Vec::new),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Memory of all entries and vacant slots, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// A quick check that there is room for any Interest.
    #[inline]
    pub(crate) fn has_ample_room(&self) -> bool {
        self.entries.len() < self.entries_max && self.bytes < self.ample_bytes
    }

    /// Whether there is room for `entries` more with `bytes` in total. Vacant slots are already
    /// counted.
    pub(crate) fn has_room(&self, entries: usize, bytes: u64) -> bool {
        let vacant = self.entries.slots() as usize - self.entries.len();
        let bytes = bytes - entries.min(vacant) as u64 * SLOT_BYTES;
        self.entries.len() + entries <= self.entries_max && self.bytes + bytes <= self.bytes_max
    }

    /// Number of slots, used or not: every index is below it.
    pub(crate) fn slots(&self) -> u32 {
        self.entries.slots()
    }

    /// The entry in a slot, if there is one.
    pub(crate) fn get(&self, index: u32) -> Option<&PitEntry> {
        self.entries.get(index)
    }

    /// The additional memory that an entry needs for another downstream, or for a change of one. An
    /// upper bound.
    pub(crate) fn downstream_bytes(&self, index: u32, is_new: bool) -> u64 {
        let lists_bytes = if self.entries[index].lists().is_some() { 0 } else { LISTS_BYTES };
        lists_bytes + if is_new { DOWNSTREAM_BYTES } else { 0 }
    }

    /// Adds an in-record to an entry.
    pub(crate) fn add_downstream(&mut self, index: u32, record: InRecord) {
        self.charge_extra(index, self.entries[index].has_downstreams(), DOWNSTREAM_BYTES);
        self.lists_mut(index).downstreams.push(record);
    }

    /// Adds an out-record to an entry.
    #[inline]
    pub(crate) fn add_upstream(&mut self, index: u32, record: &OutRecord) {
        let entry = &mut self.entries[index];
        if entry.lists().is_some() || !entry.records.add_first_upstream(record) {
            let is_another = entry.has_upstreams();
            self.charge_extra(index, is_another, UPSTREAM_BYTES);
            self.lists_mut(index).upstreams.push(*record);
        }
    }

    fn charge_extra(&mut self, index: u32, is_another: bool, bytes: u64) {
        if is_another {
            self.entries[index].bytes += bytes as u32;
            self.bytes += bytes;
        }
    }

    /// The records of an entry, for changes.
    pub(crate) fn lists_mut(&mut self, index: u32) -> &mut RecordLists {
        let entry = &mut self.entries[index];
        if entry.lists().is_none() {
            entry.bytes += LISTS_BYTES as u32;
            self.bytes += LISTS_BYTES;
        }
        entry.records.move_to_lists(|| self.spares.pop().unwrap_or_default())
    }

    /// An entry drawn at random.
    pub(crate) fn sample(&self, rng: &mut Rng) -> Option<u32> {
        self.occupied.sample(rng)
    }

    /// Whether an Interest of `len` bytes can replace that of an entry.
    pub(crate) fn can_replace_interest(&self, index: u32, len: usize) -> bool {
        let before = Pool::footprint(self.entries[index].interest.len()) as u64;
        let after = Pool::footprint(len) as u64;
        after <= before || self.has_room(0, after - before)
    }

    /// Replaces the Interest that goes upstream, for example by one with another nonce or
    /// forwarding hint. Returns the old one.
    pub(crate) fn replace_interest(
        &mut self,
        index: u32,
        interest: Packet,
        name_at: (u16, u16),
        nonce: u32,
        hop_limit: Option<u8>,
    ) -> Packet {
        let entry = &mut self.entries[index];
        let footprint = |packet: &Packet| Pool::footprint(packet.len()) as u64;
        let (before, after) = (footprint(&entry.interest), footprint(&interest));
        entry.bytes = (u64::from(entry.bytes) + after - before) as u32;
        self.bytes = self.bytes + after - before;
        (entry.name_at, entry.hop_limit) = (name_at, hop_limit);
        let before = mem::replace(&mut entry.interest, interest);
        self.lists_mut(index);
        self.entries[index].records.set_nonce(nonce);
        before
    }

    #[inline]
    pub(crate) fn prefetch_table(&self, hash: u64) {
        self.table.prefetch(hash);
    }

    /// Prefetches the most likely entry and returns its index. Call it when the line of the hash
    /// table has arrived.
    #[inline]
    pub(crate) fn prefetch_entry(&self, hash: u64) -> Option<u32> {
        let first = self.table.find(hash, |_| true)?;
        self.entries.prefetch(first);
        self.timers.prefetch(first);
        Some(first)
    }

    /// Prefetches the stored Interest, whose name will be compared. Call it when the entry has
    /// arrived.
    #[inline]
    pub(crate) fn prefetch_name(&self, index: u32) {
        self.entries[index].interest.prefetch();
    }

    pub(crate) fn entry(&self, index: u32) -> &PitEntry {
        &self.entries[index]
    }

    pub(crate) fn entry_mut(&mut self, index: u32) -> &mut PitEntry {
        &mut self.entries[index]
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &PitEntry)> {
        self.entries.iter()
    }

    /// The entry of an Interest.
    #[inline(always)]
    pub(crate) fn find(&self, query: &Query<'_>) -> Option<u32> {
        let hash = query.hashes.whole;
        self.table.find(hash, |index| {
            let entry = &self.entries[index];
            entry.hash == hash
                && entry.can_be_prefix == query.can_be_prefix
                && entry.must_be_fresh == query.must_be_fresh
                && entry.name_value() == query.name.value()
        })
    }

    /// Adds an entry with one downstream. The caller has checked [`Pit::has_room`].
    #[inline(always)]
    pub(crate) fn insert(
        &mut self,
        query: &Query<'_>,
        interest: Packet,
        name_at: (u16, u16),
        hop_limit: Option<u8>,
        record: &InRecord,
    ) -> u32 {
        let bytes = Pool::footprint(interest.len()) as u64;
        let slots_before = self.entries.slots();
        let hash = query.hashes.whole;
        let has_digest = ends_in_digest(query.name);
        // Only these kinds of entries are counted by length.
        let is_counted = query.can_be_prefix || has_digest;
        let component_count = if is_counted { query.name.component_count() } else { 0 };
        let token = record.pit_token.to_short();
        let index = self.entries.insert_with(|| PitEntry {
            hash,
            interest,
            name_at,
            component_count: component_count as u16,
            can_be_prefix: query.can_be_prefix,
            must_be_fresh: query.must_be_fresh,
            has_digest,
            awaits: AwaitedSource::Upstream,
            hop_limit,
            records: Records::new(record, token),
            bytes: bytes as u32,
        });
        self.bytes += bytes + u64::from(self.entries.slots() - slots_before) * SLOT_BYTES;
        self.occupied.insert(index);
        self.table.insert(hash, index);
        self.timers.schedule(index, record.expiry);
        // A token that is too long for the short form needs a record list.
        if token.is_none() {
            self.lists_mut(index).downstreams.push(*record);
        }
        if query.can_be_prefix {
            self.prefix_lengths.add(component_count);
        }
        if has_digest {
            self.digest_lengths.add(component_count);
        }
        index
    }

    /// Removes an entry and returns its Interest, so that the pool can reuse the memory.
    #[inline(always)]
    pub(crate) fn remove(&mut self, index: u32) -> Packet {
        self.timers.cancel(index);
        let entry = &mut self.entries[index];
        let removed = self.table.remove(entry.hash, index);
        assert!(removed, "table and slab agree");
        let length = usize::from(entry.component_count);
        if entry.can_be_prefix {
            self.prefix_lengths.remove(length);
            if let Some(ended) = &mut self.ended {
                // Other shards watch for this entry until they receive its `Unwatch`.
                ended.push((index, entry.hash));
            }
        }
        if entry.has_digest {
            self.digest_lengths.remove(length);
        }
        if let Some(spare) = entry.records.take_lists().and_then(RecordLists::cleared_for_reuse)
            && self.spares.len() < SPARES_MAX
        {
            self.spares.push(spare);
        }
        let interest = mem::take(&mut entry.interest);
        self.bytes -= u64::from(entry.bytes);
        self.occupied.remove(index);
        self.entries.discard(index);
        let slots_bytes = u64::from(self.entries.slots()) * SLOT_BYTES;
        debug_assert!(self.bytes == slots_bytes || !self.entries.is_empty());
        interest
    }

    /// Takes an ended entry with CanBePrefix, by index and hash. Other shards watch for it.
    pub(crate) fn take_ended(&mut self) -> Option<(u32, u64)> {
        self.ended.as_mut()?.pop()
    }

    /// Whether some entry can be satisfied only by the digest of a Data packet with `length` name
    /// components.
    pub(crate) fn wants_digest(&self, length: usize) -> bool {
        self.digest_lengths.total > 0 && self.digest_lengths.any(length + 1)
    }

    /// Whether some entry has CanBePrefix.
    pub(crate) fn has_prefixes(&self) -> bool {
        self.prefix_lengths.total > 0
    }

    /// Appends the entries with exactly this name, whose hash is `hash`.
    #[inline(always)]
    pub(crate) fn matches(&self, name: NameView<'_>, hash: u64, found: &mut Vec<u32>) {
        self.collect(name.value(), hash, false, found);
    }

    /// Appends the entries with CanBePrefix whose name is a proper prefix of `name`. `hashes` are
    /// the hashes of all proper prefixes, shortest first.
    #[inline(never)]
    pub(crate) fn matches_by_prefix(
        &self,
        name: NameView<'_>,
        hashes: &[u64],
        found: &mut Vec<u32>,
    ) {
        let mut end = 0;
        for (index, component) in name.components().take(hashes.len()).enumerate() {
            end += component.wire.len();
            if self.prefix_lengths.any(index + 1) {
                self.collect(&name.value()[..end], hashes[index], true, found);
            }
        }
    }

    #[inline(always)]
    fn collect(&self, name: &[u8], hash: u64, prefix_only: bool, found: &mut Vec<u32>) {
        self.table.for_each_candidate(hash, |index| {
            let entry = &self.entries[index];
            if entry.hash == hash
                && (entry.can_be_prefix || !prefix_only)
                && entry.name_value() == name
            {
                found.push(index);
            }
        });
    }
}
