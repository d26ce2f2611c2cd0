//! The disk tier as the store sees it: what is where, and what of it is asked for.

use super::config::{DiskTierConfig, FilterKind};
use super::device::{Batch, Device};
use super::fingerprints::PendingFingerprints;
use super::index::{Cursor, DiskIndex};
use super::lookup::{FinishedRead, OnDisk, ReadId, ReadOutcome, ReadRefused};
use super::lost::LostSegments;
use super::op::DiskOpId;
use super::place::{Key, Place, UNIT_BYTES, WHOLE, key_of};
use super::recovery::Recovery;
use super::stats::DiskTierStats;
use crate::holdings::{Holdings, HoldingsConfig};
use crate::store::{Hit, Lookup, NameHashes, PREFIX_VISITS_MAX, Query};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use weir_base::{CountingBloom, Instant, NS_PER_MS, Packet, Pool, Slab, Table, mix};
use weir_wire::name::DIGEST_SIZE;
use weir_wire::{DataView, NameView, tlv};

/// A record that is not known to be on disk yet.
pub(super) struct Pending {
    /// Whether memory for it is counted in `evicted_unwritten_bytes`: the store has evicted it.
    pub(super) is_evicted: bool,
    pub(super) key: Key,
    pub(super) place: Place,
    pub(super) packet: Packet,
    pub(super) fresh_until_unix_ms: u64,
}

/// A read that Interests wait for.
pub(super) struct Read {
    pub(super) id: ReadId,
    pub(super) key: Key,
    pub(super) place: Place,
    pub(super) ticket: u64,
    /// Those who waited have been told to go on.
    pub(super) is_let_go: bool,
    /// What is there was erased or replaced after the read was begun.
    pub(super) is_outdated: bool,
}

/// What an operation that is under way is for.
pub(super) enum Purpose {
    Read(u32),
    Write(Batch),
    Recovery(u32),
    /// Whether a record is the Data that has come since, whose fingerprint is known.
    Comparison(Key, Place),
}

/// An operation that is under way.
pub(super) struct Running {
    pub(super) id: DiskOpId,
    pub(super) disk: u8,
    pub(super) purpose: Purpose,
}

/// What RAM has no room for, on disks.
pub(crate) struct DiskTier {
    pub(super) config: DiskTierConfig,
    pub(super) devices: Vec<Device>,
    pub(super) index: DiskIndex,
    pub(super) filter: Option<CountingBloom>,
    pub(super) pending: Slab<Pending>,
    pub(super) pending_places: Table,
    pub(super) reads: Slab<Read>,
    pub(super) read_keys: Table,
    pub(super) running: Slab<Running>,
    pub(super) finished: VecDeque<FinishedRead>,
    pub(super) fingerprints: PendingFingerprints,
    /// Where to look next for one whose record is gone.
    pub(super) next_fingerprint: Key,
    pub(super) recovery: Recovery,
    /// Operations so far.
    pub(super) serial: u64,
    pub(super) last_read: u64,
    pub(super) last_ticket: u64,
    /// That of the region opened last.
    pub(super) last_sequence: u32,
    /// Where to look first for a disk to append to.
    pub(super) next_disk: usize,
    /// Bytes of memory of packets that wait to be written and that the store has evicted.
    pub(super) evicted_unwritten_bytes: u64,
    /// What was lost lately.
    pub(crate) lost: LostSegments,
    /// Octets of all disks that are of use.
    pub(super) log_bytes: u64,
    /// The latest time that anyone told.
    pub(super) stats: DiskTierStats,
    /// Scratch: the prefixes of an object's name.
    pub(super) path: Vec<u64>,
    /// Which segments are held, if somebody wants to know.
    pub(crate) holdings: Option<Box<Holdings>>,
    /// Where the building of `holdings` goes on.
    pub(super) building: Cursor,
}

/// Pending fingerprints may take one octet in this number of the memory for the index.
const FINGERPRINTS_SHARE: u64 = 16;

#[inline]
fn place_hash(place: Place) -> u64 {
    mix(u64::from(place.disk()) << 36 | place.offset_units())
}

impl DiskTier {
    pub(crate) fn new(config: DiskTierConfig) -> Self {
        let config = DiskTierConfig {
            // Numbers of operations under way have 16 bits, disks 4.
            depth: config.depth.clamp(1, 4095),
            ..config
        };
        let device = |geometry| Device::new(geometry, config.store_id, config.checksum);
        let devices: Vec<_> = config.disks.iter().take(16).cloned().map(device).collect();
        let log_bytes = devices.iter().map(|device| device.geometry.log_bytes()).sum();
        let filter = filter_for(&config, log_bytes);
        let fingerprints = PendingFingerprints::new(config.index_bytes_max / FINGERPRINTS_SHARE);
        let others_bytes =
            filter.as_ref().map_or(0, CountingBloom::memory_bytes) + fingerprints.bytes_max();
        let index_bytes_max = config.index_bytes_max.saturating_sub(others_bytes as u64);
        Self {
            filter,
            recovery: Recovery::new(&devices),
            devices,
            index: DiskIndex::with_bytes_max(
                usize::try_from(index_bytes_max).unwrap_or(usize::MAX),
            ),
            pending: Slab::new(),
            pending_places: Table::with_capacity(0),
            reads: Slab::new(),
            read_keys: Table::with_capacity(0),
            running: Slab::new(),
            finished: VecDeque::new(),
            fingerprints,
            next_fingerprint: Key { object: 0, segment: 0 },
            serial: 0,
            last_read: 0,
            last_ticket: 0,
            last_sequence: 0,
            next_disk: 0,
            evicted_unwritten_bytes: 0,
            lost: LostSegments::default(),
            log_bytes,
            stats: DiskTierStats::default(),
            path: Vec::new(),
            holdings: None,
            building: Cursor::default(),
            config,
        }
    }

    pub(crate) fn config(&self) -> &DiskTierConfig {
        &self.config
    }

    pub(super) fn ticket(&mut self) -> u64 {
        self.last_ticket += 1;
        self.last_ticket
    }

    #[inline]
    pub(super) fn is_valid(&self, place: Place) -> bool {
        let device = self.devices.get(usize::from(place.disk()));
        device.is_some_and(|device| device.is_valid(place))
    }

    /// Whether a start would find what was written there.
    #[inline]
    pub(super) fn may_come_back(&self, place: Place) -> bool {
        let device = self.devices.get(usize::from(place.disk()));
        device.is_some_and(|device| device.may_come_back(place))
    }

    /// Octets of memory for index and filter.
    pub(super) fn memory_bytes(&self) -> u64 {
        let filter = self.filter.as_ref().map_or(0, CountingBloom::memory_bytes);
        (self.index.memory_bytes() + filter + self.fingerprints.memory_bytes()) as u64
    }

    pub(crate) fn stats(&self) -> DiskTierStats {
        let sum =
            |of: fn(&Device) -> u32| self.devices.iter().map(|device| u64::from(of(device))).sum();
        let regions = || self.devices.iter().flat_map(|device| &device.regions);
        DiskTierStats {
            entries: regions().map(|region| u64::from(region.records)).sum(),
            bytes: regions().map(|region| region.bytes).sum(),
            index_bytes: self.memory_bytes(),
            recovering: self.is_recovering().into(),
            reads_waiting: sum(|device| device.reads_waiting),
            writes_waiting: sum(|device| device.records_waiting),
            write_backlog_bytes: self.devices.iter().map(|device| device.bytes_waiting).sum(),
            filter_saturated: self.filter.as_ref().map_or(0, CountingBloom::saturated),
            stalled_set: (0..)
                .zip(&self.devices)
                .fold(0, |set, (at, device)| set | u64::from(device.is_stalled) << at),
            ..self.stats
        }
    }

    /// See [`Store::is_disk_behind`](crate::Store::is_disk_behind).
    pub(crate) fn is_behind(&self, records: u32) -> bool {
        let answers = |device: &&Device| device.is_of_use() && !device.is_stalled;
        let mut answering = self.devices.iter().filter(answers).peekable();
        answering.peek().is_some() && answering.all(|device| device.is_behind(records))
    }

    /// Bytes that wait to be written to the disk with the fewest of them, of those that take any
    /// now; none where no disk does.
    #[inline]
    pub(crate) fn shortest_backlog_bytes(&self, now: Instant) -> Option<u64> {
        let takes = |device: &&Device| device.takes_writes(now);
        self.devices.iter().filter(takes).map(|device| device.bytes_waiting).min()
    }

    /// Bytes that wait to be written to all disks that take any now; none where no disk does.
    #[inline]
    pub(crate) fn backlog_bytes(&self, now: Instant) -> Option<u64> {
        let takes = |device: &&Device| device.takes_writes(now);
        let backlogs = self.devices.iter().filter(takes).map(|device| device.bytes_waiting);
        backlogs.reduce(|sum, bytes| sum + bytes)
    }

    /// Octets written so far.
    pub(crate) fn written_bytes(&self) -> u64 {
        self.stats.written_bytes
    }

    /// The store has evicted Data whose record waits to be written: from now on its packet takes
    /// memory for the disk alone.
    #[inline]
    pub(crate) fn on_evicted(&mut self, at: u32) {
        let pending = &mut self.pending[at];
        if !core::mem::replace(&mut pending.is_evicted, true) {
            self.evicted_unwritten_bytes += Pool::footprint(pending.packet.len()) as u64;
        }
    }

    /// Bytes of memory of packets that wait to be written and that the store has evicted.
    #[inline]
    pub(crate) fn evicted_unwritten_bytes(&self) -> u64 {
        self.evicted_unwritten_bytes
    }

    pub(crate) fn is_recovering(&self) -> bool {
        !self.recovery.is_over()
    }

    pub(super) fn unix_ms(&self, instant: Instant) -> u64 {
        self.config.unix_ms_at_zero.saturating_add(instant.as_ns() / NS_PER_MS)
    }

    pub(super) fn instant(&self, unix_ms: u64) -> Instant {
        let ms = unix_ms.saturating_sub(self.config.unix_ms_at_zero);
        Instant::from_ns(ms.saturating_mul(NS_PER_MS))
    }

    pub(super) fn find_pending(&self, place: Place) -> Option<u32> {
        if self.pending_places.is_empty() {
            return None;
        }
        self.pending_places.find(place_hash(place), |at| self.pending[at].place == place)
    }

    pub(super) fn insert_pending(&mut self, pending: Pending) -> u32 {
        let hash = place_hash(pending.place);
        let device = &mut self.devices[usize::from(pending.place.disk())];
        device.records_waiting += 1;
        device.bytes_waiting += u64::from(pending.place.units()) * UNIT_BYTES;
        let at = self.pending.insert(pending);
        self.pending_places.insert(hash, at);
        at
    }

    pub(super) fn remove_pending(&mut self, at: u32) -> Pending {
        let pending = self.pending.remove(at);
        if pending.is_evicted {
            self.evicted_unwritten_bytes -= Pool::footprint(pending.packet.len()) as u64;
        }
        let device = &mut self.devices[usize::from(pending.place.disk())];
        device.records_waiting -= 1;
        device.bytes_waiting -= u64::from(pending.place.units()) * UNIT_BYTES;
        self.pending_places.remove(place_hash(pending.place), at);
        pending
    }

    /// The read of this record that others may join.
    fn find_read(&self, key: Key, place: Place) -> Option<u32> {
        self.read_keys.find(key.filter_hash(), |at| {
            let read = &self.reads[at];
            read.key == key && read.place == place && !read.is_outdated
        })
    }

    /// What is being read under this key is not to be served any more.
    pub(super) fn outdate_reads(&mut self, key: Key) {
        let Self { read_keys, reads, .. } = self;
        if read_keys.is_empty() {
            return;
        }
        read_keys.for_each_candidate(key.filter_hash(), |at| {
            let read = &mut reads[at];
            read.is_outdated |= read.key == key;
        });
    }

    /// What is being read is not to be served any more.
    pub(super) fn outdate_all_reads(&mut self) {
        self.reads.iter_mut().for_each(|(_, read)| read.is_outdated = true);
    }

    pub(super) fn remove_read(&mut self, at: u32) -> Read {
        let read = self.reads.remove(at);
        self.read_keys.remove(read.key.filter_hash(), at);
        read
    }

    /// Asks for the line of the filter that a lookup of this name will look at.
    #[inline]
    pub(crate) fn prefetch_filter(&self, name: NameView<'_>, hashes: &NameHashes) {
        let key = key_of(name, hashes.whole, hashes.parent);
        match &self.filter {
            Some(filter) => filter.prefetch(key.filter_hash()),
            None => self.index.prefetch(key.object),
        }
    }

    /// Whether the filter says that there is no answer. Not counted unless it does.
    #[inline]
    pub(crate) fn ends_at_filter(&mut self, query: &Query<'_>) -> bool {
        let asks_more = query.can_be_prefix || ends_like_digest(query.name);
        let ends = !asks_more && self.is_ruled_out(query.name, &query.hashes);
        self.stats.filter_negatives += u64::from(ends);
        ends
    }

    /// What the store has of an Interest that RAM has no answer to.
    pub(crate) fn lookup(&mut self, now: Instant, query: &Query<'_>) -> Lookup {
        let key = key_of(query.name, query.hashes.whole, query.hashes.parent);
        if self.may_have(key) {
            let answer = self.look_in_index(now, query, key);
            if !matches!(answer, Lookup::Miss) {
                return answer;
            }
        }
        self.lookup_other(now, query)
    }

    #[inline]
    fn may_have(&mut self, key: Key) -> bool {
        let Some(filter) = &self.filter else { return true };
        let may_have = filter.contains(key.filter_hash());
        self.stats.filter_negatives += u64::from(!may_have);
        may_have
    }

    /// Whether the filter alone says that there is no Data of the very name, without a trace.
    #[inline]
    pub(crate) fn is_ruled_out(&self, name: NameView<'_>, hashes: &NameHashes) -> bool {
        let key = key_of(name, hashes.whole, hashes.parent);
        self.filter.as_ref().is_some_and(|filter| !filter.contains(key.filter_hash()))
    }

    /// Whether there is Data of the very name, or with CanBePrefix below it, without a trace.
    pub(crate) fn has_answer(&self, query: &Query<'_>) -> bool {
        let key = key_of(query.name, query.hashes.whole, query.hashes.parent);
        if self.index.find(key).is_some_and(|place| self.is_valid(place)) {
            return true;
        }
        let prefix = Some(query.hashes.whole);
        let is_wanted = |_, place| self.is_valid(place);
        let asks_below = query.can_be_prefix && !query.name.is_empty();
        asks_below && self.index.below(prefix, PREFIX_VISITS_MAX, is_wanted).is_some()
    }

    /// Whether the filter refuses what the index has.
    pub(crate) fn is_filter_wrong(&self, query: &Query<'_>) -> bool {
        let key = key_of(query.name, query.hashes.whole, query.hashes.parent);
        let is_known = self.index.find(key).is_some_and(|place| self.is_valid(place));
        is_known && self.filter.as_ref().is_some_and(|filter| !filter.contains(key.filter_hash()))
    }

    /// Answers by the digest that the name ends with, or by Data below it.
    #[inline]
    fn lookup_other(&mut self, now: Instant, query: &Query<'_>) -> Lookup {
        if ends_like_digest(query.name) {
            let answer = self.lookup_by_digest(now, query);
            if !matches!(answer, Lookup::Miss) {
                return answer;
            }
        }
        // As in RAM, the empty name asks for nothing.
        if query.can_be_prefix && !query.name.is_empty() {
            self.lookup_below(now, query)
        } else {
            Lookup::Miss
        }
    }

    #[cold]
    fn lookup_by_digest(&mut self, now: Instant, query: &Query<'_>) -> Lookup {
        let is_digest = query.name.last().is_some_and(|last| last.is_implicit_digest());
        let (true, Some(whole)) = (is_digest, query.hashes.parent) else { return Lookup::Miss };
        let key = key_of(query.name.parent(), whole, query.hashes.grandparent);
        match self.may_have(key) {
            true => self.look_in_index(now, query, key),
            false => Lookup::Miss,
        }
    }

    /// Looks for Data that has passed the filter.
    fn look_in_index(&mut self, now: Instant, query: &Query<'_>, key: Key) -> Lookup {
        match self.find(key) {
            Some(place) => self.answer(now, query, key, place),
            None => {
                self.stats.filter_false_positives += u64::from(self.filter.is_some());
                Lookup::Miss
            }
        }
    }

    /// Where Data is, if it still is.
    pub(super) fn find(&mut self, key: Key) -> Option<Place> {
        self.find_at_all(key).filter(|&place| self.is_valid(place))
    }

    /// Where Data is, or where a start may still find it.
    pub(super) fn find_at_all(&mut self, key: Key) -> Option<Place> {
        let place = self.index.find(key)?;
        if self.may_come_back(place) {
            return Some(place);
        }
        self.remove_from_index(key, place);
        None
    }

    /// Removes an entry that may be stale. Says whether it was there.
    pub(super) fn remove_from_index(&mut self, key: Key, place: Place) -> bool {
        let was_there = self.index.remove(key, place);
        if was_there {
            self.on_removed(key, place);
        }
        was_there
    }

    /// Filter and sums, after an entry has gone from the index.
    pub(super) fn on_removed(&mut self, key: Key, place: Place) {
        if let Some(holdings) = &mut self.holdings {
            untrack(holdings, key);
        }
        if let Some(filter) = &mut self.filter {
            filter.remove(key.filter_hash());
        }
        self.uncount(place);
    }

    /// The index leads no more to what is in a place.
    pub(super) fn uncount(&mut self, place: Place) {
        let Some(device) = self.devices.get_mut(usize::from(place.disk())) else { return };
        if device.is_valid(place) {
            let region = device.locate(place).0;
            let region = &mut device.regions[region];
            debug_assert!(region.records > 0, "what leads to a region is counted there");
            region.records = region.records.saturating_sub(1);
            region.bytes = region.bytes.saturating_sub(u64::from(place.units()) * UNIT_BYTES);
        }
    }

    #[cold]
    fn lookup_below(&mut self, now: Instant, query: &Query<'_>) -> Lookup {
        let prefix = Some(query.hashes.whole);
        let now_unix_ms = self.unix_ms(now);
        let found = self.index.below(prefix, PREFIX_VISITS_MAX, |_, place| {
            let is_fresh_enough = |at: u32| {
                !query.must_be_fresh || now_unix_ms < self.pending[at].fresh_until_unix_ms
            };
            self.is_valid(place) && self.find_pending(place).is_none_or(is_fresh_enough)
        });
        match found {
            Some((key, place)) => self.answer(now, query, key, place),
            None => Lookup::Miss,
        }
    }

    /// The answer from a place that is valid.
    fn answer(&mut self, now: Instant, query: &Query<'_>, key: Key, place: Place) -> Lookup {
        if let Some(at) = self.find_pending(place) {
            return self.answer_unwritten(now, query, at);
        }
        let device = &self.devices[usize::from(place.disk())];
        let is_shared = !self.read_keys.is_empty() && self.find_read(key, place).is_some();
        let reads_waiting = device.reads_waiting - u32::from(is_shared);
        Lookup::OnDisk(OnDisk {
            disk: place.disk(),
            reads_waiting,
            is_stalled: device.is_stalled,
            key,
            place,
        })
    }

    fn answer_unwritten(&mut self, now: Instant, query: &Query<'_>, at: u32) -> Lookup {
        let is_fresh = self.unix_ms(now) < self.pending[at].fresh_until_unix_ms;
        let packet = self.pending[at].packet.share();
        let freshness_ms = {
            let Ok(data) = DataView::decode(&packet) else { return Lookup::Miss };
            if !satisfies(&data, query) || query.must_be_fresh && !is_fresh {
                return Lookup::Miss;
            }
            data.freshness_ms.min(u32::MAX.into())
        };
        self.stats.hits_unwritten += 1;
        Lookup::Hit(Hit { packet, freshness_ms, is_fresh })
    }

    /// Begins a read, or joins one. What is not there any more ends at once without Data, so that
    /// those who ask go on.
    pub(crate) fn begin_read(&mut self, found: &OnDisk) -> Result<ReadId, ReadRefused> {
        let place = found.place;
        let is_stalled = self.devices[usize::from(found.disk)].is_stalled;
        if let Some(at) = self.find_read(found.key, place).filter(|_| !is_stalled) {
            let read = &mut self.reads[at];
            read.is_let_go = false;
            self.stats.reads_shared += 1;
            return Ok(read.id);
        }
        let reads_max = self.config.reads_max;
        let is_there = self.index.find(found.key) == Some(place) && self.is_valid(place);
        let device = &mut self.devices[usize::from(found.disk)];
        if is_there && !device.is_stalled && device.reads_waiting >= reads_max {
            self.stats.reads_refused += 1;
            return Err(ReadRefused);
        }
        self.last_read += 1;
        let id = ReadId(self.last_read);
        if !is_there || device.is_stalled {
            let outcome = if is_there { ReadOutcome::Stalled } else { ReadOutcome::Unavailable };
            self.finished.push_back(FinishedRead { read: id, outcome });
            return Ok(id);
        }
        device.reads_waiting += 1;
        let ticket = self.ticket();
        let read = Read { id, key: found.key, place, ticket, is_let_go: false, is_outdated: false };
        let at = self.reads.insert(read);
        self.read_keys.insert(found.key.filter_hash(), at);
        self.devices[usize::from(found.disk)].reads.push_back(at);
        Ok(id)
    }

    /// Begins to keep an index of the segments that are held, or gives it up.
    pub(crate) fn track(&mut self, config: Option<HoldingsConfig>) {
        self.holdings = config.map(|config| Box::new(Holdings::new(config)));
        self.building = Cursor::default();
    }

    /// Data is on a disk from now on, or will be.
    #[inline]
    pub(super) fn track_segment(&mut self, key: Key, name: impl FnOnce() -> Vec<u8>) {
        if let Some(holdings) = self.holdings.as_mut().filter(|_| key.segment != WHOLE) {
            holdings.add(key.object, key.segment, name);
        }
    }

    /// The index of what is held is to be built from the start once more.
    pub(crate) fn restart_building(&mut self) {
        self.building = Cursor::default();
    }

    /// Adds to it what is there, so many steps further. Says whether that was all.
    pub(crate) fn build_holdings(&mut self, steps: u32) -> bool {
        let Self { index, holdings: Some(holdings), devices, .. } = self else { return true };
        let mut cursor = self.building;
        let is_end = index.walk(&mut cursor, steps, |key, place| {
            let device = devices.get(usize::from(place.disk()));
            if key.segment != WHOLE && device.is_some_and(|device| device.is_valid(place)) {
                holdings.add(key.object, key.segment, Vec::new);
            }
        });
        self.building = cursor;
        is_end
    }

    pub(crate) fn next_finished(&mut self) -> Option<FinishedRead> {
        self.finished.pop_front()
    }
}

/// Data is not on a disk any more.
#[inline]
pub(super) fn untrack(holdings: &mut Holdings, key: Key) {
    if key.segment != WHOLE {
        holdings.remove(key.object, key.segment);
    }
}

/// Whether the last octets of a name may be an implicit digest.
#[inline]
fn ends_like_digest(name: NameView<'_>) -> bool {
    const DIGEST: [u8; 2] = [tlv::IMPLICIT_SHA256_DIGEST_COMPONENT as u8, DIGEST_SIZE as u8];
    let value = name.value();
    let at = value.len().wrapping_sub(DIGEST_SIZE + 2);
    value.get(at..at.wrapping_add(2)) == Some(&DIGEST)
}

/// Whether Data answers a query, freshness aside.
fn satisfies(data: &DataView<'_>, query: &Query<'_>) -> bool {
    if data.name == query.name || query.can_be_prefix && query.name.is_prefix_of(data.name) {
        return true;
    }
    let digest = query.name.last().filter(|last| last.is_implicit_digest());
    digest.is_some_and(|digest| {
        data.name == query.name.parent() && data.implicit_digest() == *digest.value
    })
}

/// A filter for as many records as the disks hold, within half of the memory for the index.
fn filter_for(config: &DiskTierConfig, log_bytes: u64) -> Option<CountingBloom> {
    if config.filter == FilterKind::Index {
        return None;
    }
    let record_bytes = u64::from(config.record_bytes_typical.max(1));
    let entries = log_bytes / record_bytes;
    // A first one, of a size that needs hardly any memory, tells what an entry takes.
    let sample = CountingBloom::new(10_000, config.false_positives_ppm);
    let bytes_max = u128::from(config.index_bytes_max / 2);
    let affordable = bytes_max * 10_000 / sample.memory_bytes() as u128;
    let entries = u128::from(entries).min(affordable) as u64;
    Some(CountingBloom::new(entries, config.false_positives_ppm))
}
