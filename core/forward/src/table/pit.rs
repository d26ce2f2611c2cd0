//! Pending Interest table: who waits for what, and whom it was asked of.

use alloc::vec::Vec;
use core::mem;

use weir_base::{FaceId, Instant, Packet, Pool, Rng, Slab, Table, TimerWheel};
use weir_wire::{NackReason, NameView, PACKET_SIZE_MAX, PitToken, tlv};

use crate::table::live::LiveSet;
use crate::table::measurements::Flight;

/// A downstream that waits (NFD, PIT in-record).
pub(crate) struct InRecord {
    pub(crate) face: FaceId,
    /// Where the face table has it, as long as it is there.
    pub(crate) face_slot: u32,
    pub(crate) nonce: u32,
    pub(crate) expiry: Instant,
    pub(crate) pit_token: PitToken,
}

/// An upstream that was asked (NFD, PIT out-record).
pub(crate) struct OutRecord {
    pub(crate) face: FaceId,
    pub(crate) nonce: u32,
    pub(crate) sent_at: Instant,
    pub(crate) expiry: Instant,
    pub(crate) nacked: Option<NackReason>,
    /// Until it ends, for what is measured of the upstream.
    pub(crate) flight: Flight,
    /// What the strategy remembers of this upstream; 0 at first.
    pub(crate) strategy_state: u64,
}

impl OutRecord {
    /// Whether the Interest was sent to this upstream only once.
    pub(crate) fn is_sent_once(&self) -> bool {
        self.flight.is_since(self.sent_at)
    }
}

/// One record in place, more in a vector: nearly every entry has one downstream and one upstream.
pub(crate) struct Records<T> {
    first: Option<T>,
    more: Vec<T>,
}

impl<T> Records<T> {
    /// These, in the memory of `spare` where there is one.
    fn new(first: Option<T>, spare: Option<Vec<T>>) -> Self {
        Self { first, more: spare.unwrap_or_default() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.first.iter().chain(&self.more)
    }

    pub(crate) fn find(&mut self, is_match: impl Fn(&T) -> bool) -> Option<&mut T> {
        self.first.iter_mut().chain(&mut self.more).find(|record| is_match(record))
    }

    pub(crate) fn push(&mut self, record: T) {
        match self.first {
            None => self.first = Some(record),
            Some(_) => self.more.push(record),
        }
    }

    pub(crate) fn remove(&mut self, is_match: impl Fn(&T) -> bool) -> Option<T> {
        if self.first.as_ref().is_some_and(&is_match) {
            let next = self.more.pop();
            return mem::replace(&mut self.first, next);
        }
        let at = self.more.iter().position(is_match)?;
        Some(self.more.swap_remove(at))
    }

    /// Large ones are let go: they would be kept for entries that need no such room.
    fn take_spare(&mut self) -> Option<Vec<T>> {
        self.first = None;
        self.more.clear();
        let spare = mem::take(&mut self.more);
        (1..=SPARE_RECORDS_MAX).contains(&spare.capacity()).then_some(spare)
    }
}

/// Where the Data of a pending Interest is to come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum AwaitedSource {
    /// Upstream, for want of another.
    #[default]
    Upstream,
    /// A disk of the store: the place of its waiter among those of the read. A retransmission may
    /// have gone upstream as well.
    Disk(u32),
    /// The stores of other shards: the place of the question.
    Shards(u32),
    /// Upstream, although a disk has it.
    Bypass {
        /// Since then.
        since: Instant,
        /// Whether its Data is to be marked.
        is_marked: bool,
    },
}

/// A pending Interest.
pub(crate) struct PitEntry {
    /// Keyed hash of the whole name.
    pub(crate) hash: u64,
    /// The Interest as it goes upstream: nonce present, HopLimit decremented.
    pub(crate) interest: Packet,
    /// Where the name's TLV-VALUE lies in `interest`.
    pub(crate) name_at: (u16, u16),
    /// Of the name, where [`Pit`] counts the entry by it; else 0.
    pub(crate) component_count: u16,
    pub(crate) can_be_prefix: bool,
    pub(crate) must_be_fresh: bool,
    /// The last component is an implicit digest.
    pub(crate) has_digest: bool,
    /// Where its Data is to come from.
    pub(crate) awaits: AwaitedSource,
    /// Nonce and HopLimit of `interest`.
    pub(crate) nonce: u32,
    pub(crate) hop_limit: Option<u8>,
    pub(crate) in_records: Records<InRecord>,
    pub(crate) out_records: Records<OutRecord>,
    /// Octets that its Interest and further records take.
    bytes: u32,
    /// What the strategy remembers of the entry; 0 at first.
    pub(crate) strategy_state: u64,
}

impl PitEntry {
    /// Whether `face` was asked first.
    #[inline]
    pub(crate) fn is_first_asked(&self, face: FaceId) -> bool {
        self.out_records.first.as_ref().is_some_and(|record| record.face == face)
    }

    /// Octets of memory that it takes.
    pub(crate) fn bytes(&self) -> u64 {
        PLACE_BYTES + u64::from(self.bytes)
    }

    pub(crate) fn name_value(&self) -> &[u8] {
        let (at, len) = self.name_at;
        &self.interest[usize::from(at)..usize::from(at) + usize::from(len)]
    }

    /// When the last downstream stops waiting.
    pub(crate) fn last_expiry(&self) -> Option<Instant> {
        self.in_records.iter().map(|record| record.expiry).max()
    }
}

/// Whether the last component is an implicit digest. Its octets are looked at first, as most names
/// need no more than that.
#[inline]
fn ends_in_digest(name: NameView<'_>) -> bool {
    const HEADER: [u8; 2] = [tlv::IMPLICIT_SHA256_DIGEST_COMPONENT as u8, 32];
    let last = name.value().split_last_chunk::<34>();
    last.is_some_and(|(_, last)| last.starts_with(&HEADER))
        && name.last().is_some_and(|last| last.is_implicit_digest())
}

/// What selects a PIT entry (NFD: name and selectors, not the forwarding hint).
#[derive(Clone, Copy)]
pub(crate) struct PitKey<'a> {
    pub(crate) name: NameView<'a>,
    pub(crate) hash: u64,
    pub(crate) can_be_prefix: bool,
    pub(crate) must_be_fresh: bool,
}

/// Vectors that aggregated entries leave behind for the next ones.
const SPARES_MAX: usize = 1024;
/// Records that such a vector has room for at most.
const SPARE_RECORDS_MAX: usize = 4;

/// Octets that a place for an entry takes, used or not: the entry, its place on the list of vacant
/// ones, its timer, and its share of the table at its emptiest.
const PLACE_BYTES: u64 = size_of::<Option<PitEntry>>() as u64 + 4 + 24 + 20;

/// Octets that a downstream beyond the first takes, in a vector that is half empty.
pub(crate) const RECORD_BYTES: u64 = 2 * size_of::<InRecord>() as u64;
/// Octets that an upstream beyond the first takes, likewise.
const UPSTREAM_BYTES: u64 = 2 * size_of::<OutRecord>() as u64;

/// Octets that an Interest may grow by when a nonce is added: the element and longer outer lengths.
pub(crate) const REWRITE_GROWTH: usize = 16;

/// Octets that an entry takes at most for an Interest that came with `len` octets.
pub(crate) fn entry_bytes_max(len: usize) -> u64 {
    PLACE_BYTES + Pool::footprint(len + REWRITE_GROWTH) as u64
}

/// All pending Interests of a shard, bounded in number and octets.
pub(crate) struct Pit {
    table: Table,
    entries: Slab<PitEntry>,
    live: LiveSet,
    pub(crate) timers: TimerWheel,
    entries_max: usize,
    bytes: u64,
    bytes_max: u64,
    /// As long as all entries take less, there is room for any Interest.
    plenty_bytes: u64,
    /// Entries with CanBePrefix by number of components: Data looks only at lengths that exist.
    prefix_lengths: LengthCount,
    /// Entries that end in an implicit digest, by number of components.
    digest_lengths: LengthCount,
    spare_in: Vec<Vec<InRecord>>,
    spare_out: Vec<Vec<OutRecord>>,
    /// On routers of several shards: index and hash of entries with CanBePrefix that have ended,
    /// until [`Pit::take_ended`].
    ended: Option<Vec<(u32, u64)>>,
}

/// How many entries have each number of components.
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

/// The first tick is 1 ms: lifetimes are given in milliseconds.
const TICK_NS: u64 = weir_base::NS_PER_MS;

impl Pit {
    /// `notes_ended`: see [`Pit::take_ended`].
    pub(crate) fn new(now: Instant, entries_max: usize, bytes_max: u64, notes_ended: bool) -> Self {
        Self {
            table: Table::with_capacity(1024.min(entries_max.max(1))),
            entries: Slab::new(),
            live: LiveSet::default(),
            timers: TimerWheel::new(TICK_NS, now),
            entries_max,
            bytes: 0,
            bytes_max,
            plenty_bytes: bytes_max.saturating_sub(entry_bytes_max(PACKET_SIZE_MAX)),
            prefix_lengths: LengthCount::default(),
            digest_lengths: LengthCount::default(),
            spare_in: Vec::new(),
            spare_out: Vec::new(),
            ended: notes_ended.then(Vec::new),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Octets that all entries take, and places for more that are kept.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether there is room for any Interest, at a glance.
    #[inline]
    pub(crate) fn has_much_room(&self) -> bool {
        self.entries.len() < self.entries_max && self.bytes < self.plenty_bytes
    }

    /// Whether there is room for `entries` more of `bytes` octets together. Places that are vacant
    /// are counted already.
    pub(crate) fn has_room(&self, entries: usize, bytes: u64) -> bool {
        let vacant = self.entries.places() as usize - self.entries.len();
        let bytes = bytes - entries.min(vacant) as u64 * PLACE_BYTES;
        self.entries.len() + entries <= self.entries_max && self.bytes + bytes <= self.bytes_max
    }

    /// Places of entries, used or not: every index is below.
    pub(crate) fn places(&self) -> u32 {
        self.entries.places()
    }

    /// The entry in a place, if there is one.
    pub(crate) fn get(&self, index: u32) -> Option<&PitEntry> {
        self.entries.get(index)
    }

    /// A downstream joins others at an entry.
    pub(crate) fn add_downstream(&mut self, index: u32, record: InRecord) {
        let entry = &mut self.entries[index];
        if !entry.in_records.is_empty() {
            entry.bytes += RECORD_BYTES as u32;
            self.bytes += RECORD_BYTES;
        }
        entry.in_records.push(record);
    }

    /// Another upstream was asked for an entry.
    pub(crate) fn add_upstream(&mut self, index: u32, record: OutRecord) {
        let entry = &mut self.entries[index];
        if !entry.out_records.is_empty() {
            entry.bytes += UPSTREAM_BYTES as u32;
            self.bytes += UPSTREAM_BYTES;
        }
        entry.out_records.push(record);
    }

    /// An entry drawn at random.
    pub(crate) fn draw(&self, rng: &mut Rng) -> Option<u32> {
        self.live.draw(rng)
    }

    /// Whether there is room for an Interest of `len` octets in place of the one of an entry.
    pub(crate) fn has_room_instead(&self, index: u32, len: usize) -> bool {
        let before = Pool::footprint(self.entries[index].interest.len()) as u64;
        let after = Pool::footprint(len) as u64;
        after <= before || self.has_room(0, after - before)
    }

    /// Another Interest goes upstream for an entry from now on: another nonce, perhaps another
    /// forwarding hint. Returns the one before.
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
        (entry.name_at, entry.nonce, entry.hop_limit) = (name_at, nonce, hop_limit);
        mem::replace(&mut entry.interest, interest)
    }

    #[inline]
    pub(crate) fn prefetch_table(&self, hash: u64) {
        self.table.prefetch(hash);
    }

    /// Once the table's line is here: the entry that most likely matches, whose index this returns.
    #[inline]
    pub(crate) fn prefetch_entry(&self, hash: u64) -> Option<u32> {
        let first = self.table.find(hash, |_| true)?;
        self.entries.prefetch(first);
        self.timers.prefetch(first);
        Some(first)
    }

    /// Once the entry is here: the stored Interest, whose name will be compared.
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

    pub(crate) fn find(&self, key: &PitKey<'_>) -> Option<u32> {
        self.table.find(key.hash, |index| {
            let entry = &self.entries[index];
            entry.hash == key.hash
                && entry.can_be_prefix == key.can_be_prefix
                && entry.must_be_fresh == key.must_be_fresh
                && entry.name_value() == key.name.value()
        })
    }

    /// Adds an entry for which one downstream waits. The caller has checked [`Pit::has_room`].
    #[inline(always)]
    pub(crate) fn insert(
        &mut self,
        key: &PitKey<'_>,
        interest: Packet,
        name_at: (u16, u16),
        nonce: u32,
        hop_limit: Option<u8>,
        record: InRecord,
    ) -> u32 {
        let bytes = Pool::footprint(interest.len()) as u64;
        let places = self.entries.places();
        let has_digest = ends_in_digest(key.name);
        // Only entries of these kinds are counted by length.
        let is_counted = key.can_be_prefix || has_digest;
        let component_count = if is_counted { key.name.component_count() } else { 0 };
        let expiry = record.expiry;
        let (spare_in, spare_out) = (self.spare_in.pop(), self.spare_out.pop());
        let index = self.entries.insert_with(|| PitEntry {
            hash: key.hash,
            interest,
            name_at,
            component_count: component_count as u16,
            can_be_prefix: key.can_be_prefix,
            must_be_fresh: key.must_be_fresh,
            has_digest,
            awaits: AwaitedSource::Upstream,
            nonce,
            hop_limit,
            in_records: Records::new(Some(record), spare_in),
            out_records: Records::new(None, spare_out),
            bytes: bytes as u32,
            strategy_state: 0,
        });
        self.bytes += bytes + u64::from(self.entries.places() - places) * PLACE_BYTES;
        self.live.insert(index);
        self.table.insert(key.hash, index);
        self.timers.schedule(index, expiry);
        if key.can_be_prefix {
            self.prefix_lengths.add(component_count);
        }
        if has_digest {
            self.digest_lengths.add(component_count);
        }
        index
    }

    /// Ends an entry and returns its Interest, for the pool.
    pub(crate) fn remove(&mut self, index: u32) -> Packet {
        self.timers.cancel(index);
        let entry = &mut self.entries[index];
        let removed = self.table.remove(entry.hash, index);
        assert!(removed, "table and slab agree");
        let length = usize::from(entry.component_count);
        if entry.can_be_prefix {
            self.prefix_lengths.remove(length);
            if let Some(ended) = &mut self.ended {
                ended.push((index, entry.hash));
            }
        }
        if entry.has_digest {
            self.digest_lengths.remove(length);
        }
        if let Some(spare) = entry.in_records.take_spare()
            && self.spare_in.len() < SPARES_MAX
        {
            self.spare_in.push(spare);
        }
        if let Some(spare) = entry.out_records.take_spare()
            && self.spare_out.len() < SPARES_MAX
        {
            self.spare_out.push(spare);
        }
        let interest = mem::take(&mut entry.interest);
        self.bytes -= u64::from(entry.bytes);
        self.live.remove(index);
        self.entries.discard(index);
        let place_bytes = u64::from(self.entries.places()) * PLACE_BYTES;
        debug_assert!(self.bytes == place_bytes || !self.entries.is_empty());
        interest
    }

    /// Takes one of the entries with CanBePrefix that have ended, by index and hash: other shards
    /// watch for them.
    pub(crate) fn take_ended(&mut self) -> Option<(u32, u64)> {
        self.ended.as_mut()?.pop()
    }

    /// Whether some entry can be satisfied only through the digest of a Data with `length` name
    /// components.
    pub(crate) fn wants_digest(&self, length: usize) -> bool {
        self.digest_lengths.total > 0 && self.digest_lengths.any(length + 1)
    }

    /// Whether some entry has CanBePrefix.
    pub(crate) fn has_prefixes(&self) -> bool {
        self.prefix_lengths.total > 0
    }

    /// Appends the entries of that very name, hashed to `hash`.
    pub(crate) fn matches(&self, name: NameView<'_>, hash: u64, found: &mut Vec<u32>) {
        self.collect(name.value(), hash, false, found);
    }

    /// Appends the entries with CanBePrefix whose name is a proper prefix of `name`; `hashes` are
    /// those of all proper prefixes, shortest first.
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
