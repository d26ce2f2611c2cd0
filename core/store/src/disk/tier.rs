//! The disk tier as the store sees it: what is where, and what of it is asked for.

use super::address::{Key, RecordAddress, SECTOR_BYTES, key_of};
use super::catalog::RecordCatalog;
use super::config::DiskTierConfig;
use super::device::Device;
use super::fingerprints::PendingFingerprints;
use super::lookup::{FinishedRead, OnDisk, ReadId, ReadOutcome, ReadRefused};
use super::lost::LostSegments;
use super::operations::Operations;
use super::pending::{Pending, PendingRecords};
use super::queue::Tickets;
use super::reads::Reads;
use super::recovery_state::Recovery;
use super::stats::DiskTierStats;
use crate::holdings::{Holdings, HoldingsConfig};
use crate::store::{Hit, Lookup, NameHashes, PREFIX_VISITS_MAX, Query};
use alloc::vec::Vec;
use weir_base::{Instant, NS_PER_MS};
use weir_wire::{DIGEST_SIZE, DataView, NameView, tlv};

/// What memory has no room for, on disks.
///
/// What records there are is the catalog's, what of them is on no disk yet is pending; reads and
/// operations wait or are under way. Each of these keeps its own state; the devices know what is
/// written where.
pub(crate) struct DiskTier {
    pub(super) config: DiskTierConfig,
    pub(super) devices: Vec<Device>,
    pub(super) catalog: RecordCatalog,
    pub(super) pending: PendingRecords,
    pub(super) reads: Reads,
    pub(super) operations: Operations,
    pub(super) fingerprints: PendingFingerprints,
    pub(super) recovery: Recovery,
    pub(super) tickets: Tickets,
    /// The sequence number of the region opened last.
    pub(super) last_sequence: u32,
    /// The disk that is looked at first for one to append to.
    pub(super) next_disk: usize,
    pub(crate) lost: LostSegments,
    /// Octets of all disks that are of use.
    pub(super) log_bytes: u64,
    /// What happened. The levels are filled in when asked for.
    pub(super) stats: DiskTierStats,
    /// Scratch: the prefixes of an object's name.
    pub(super) path: Vec<u64>,
}

/// Pending fingerprints may take one octet in this number of the memory for the index.
const FINGERPRINTS_SHARE: u64 = 16;

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
        let fingerprints = PendingFingerprints::new(config.index_bytes_max / FINGERPRINTS_SHARE);
        Self {
            catalog: RecordCatalog::new(&config, log_bytes, fingerprints.bytes_max()),
            recovery: Recovery::new(&devices),
            devices,
            pending: PendingRecords::new(),
            reads: Reads::new(),
            operations: Operations::default(),
            fingerprints,
            tickets: Tickets::default(),
            last_sequence: 0,
            next_disk: 0,
            lost: LostSegments::default(),
            log_bytes,
            stats: DiskTierStats::default(),
            path: Vec::new(),
            config,
        }
    }

    pub(crate) fn config(&self) -> &DiskTierConfig {
        &self.config
    }

    #[inline]
    pub(super) fn is_valid(&self, place: RecordAddress) -> bool {
        let device = self.devices.get(usize::from(place.disk()));
        device.is_some_and(|device| device.is_valid(place))
    }

    /// Whether a start would find what was written there.
    #[inline]
    pub(super) fn may_come_back(&self, place: RecordAddress) -> bool {
        let device = self.devices.get(usize::from(place.disk()));
        device.is_some_and(|device| device.may_be_recovered(place))
    }

    /// Octets of memory for index and filter.
    pub(super) fn memory_bytes(&self) -> u64 {
        (self.catalog.memory_bytes() + self.fingerprints.memory_bytes()) as u64
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
            filter_saturated: self.catalog.saturated(),
            stalled_set: (0..)
                .zip(&self.devices)
                .fold(0, |set, (at, device)| set | u64::from(device.is_stalled) << at),
            ..self.stats
        }
    }

    /// See [`Store::is_disk_behind`](crate::Store::is_disk_behind).
    pub(crate) fn is_behind(&self, records: u32) -> bool {
        let answers = |device: &&Device| device.is_usable() && !device.is_stalled;
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

    pub(crate) fn written_bytes(&self) -> u64 {
        self.stats.written_bytes
    }

    /// The store has evicted Data whose record waits to be written: from now on its packet takes
    /// memory for the disk alone.
    #[inline]
    pub(crate) fn on_evicted(&mut self, at: u32) {
        self.pending.on_evicted(at);
    }

    /// Bytes of memory of packets that wait to be written and that the store has evicted.
    #[inline]
    pub(crate) fn evicted_unwritten_bytes(&self) -> u64 {
        self.pending.evicted_bytes()
    }

    #[inline]
    pub(crate) fn is_recovering(&self) -> bool {
        !self.recovery.is_finished()
    }

    pub(super) fn unix_ms(&self, instant: Instant) -> u64 {
        self.config.unix_ms_at_zero.saturating_add(instant.as_ns() / NS_PER_MS)
    }

    pub(super) fn instant(&self, unix_ms: u64) -> Instant {
        let ms = unix_ms.saturating_sub(self.config.unix_ms_at_zero);
        Instant::from_ns(ms.saturating_mul(NS_PER_MS))
    }

    pub(super) fn insert_pending(&mut self, pending: Pending) -> u32 {
        let device = &mut self.devices[usize::from(pending.address.disk())];
        device.records_waiting += 1;
        device.bytes_waiting += u64::from(pending.address.sectors()) * SECTOR_BYTES;
        self.pending.insert(pending)
    }

    pub(super) fn remove_pending(&mut self, at: u32) -> Pending {
        let pending = self.pending.remove(at);
        let device = &mut self.devices[usize::from(pending.address.disk())];
        device.records_waiting -= 1;
        device.bytes_waiting -= u64::from(pending.address.sectors()) * SECTOR_BYTES;
        pending
    }

    /// Asks for the line of the filter that a lookup of this name will look at.
    #[inline]
    pub(crate) fn prefetch_filter(&self, name: NameView<'_>, hashes: &NameHashes) {
        self.catalog.prefetch(key_of(name, hashes.whole, hashes.parent));
    }

    /// Whether the filter says that there is no answer. Not counted unless it does.
    #[inline]
    pub(crate) fn is_filtered_out(&mut self, query: &Query<'_>) -> bool {
        let asks_more = query.can_be_prefix || ends_like_digest(query.name);
        let ends = !asks_more && self.is_ruled_out(query.name, &query.hashes);
        self.stats.filter_negatives += u64::from(ends);
        ends
    }

    /// What the store has of an Interest that RAM has no answer to.
    pub(crate) fn lookup(&mut self, now: Instant, query: &Query<'_>) -> Lookup {
        let key = key_of(query.name, query.hashes.whole, query.hashes.parent);
        if self.passes_filter(key) {
            let answer = self.lookup_indexed(now, query, key);
            if !matches!(answer, Lookup::Miss) {
                return answer;
            }
        }
        self.lookup_digest_or_prefix(now, query)
    }

    #[inline]
    fn passes_filter(&mut self, key: Key) -> bool {
        let is_ruled_out = self.catalog.is_ruled_out(key);
        self.stats.filter_negatives += u64::from(is_ruled_out);
        !is_ruled_out
    }

    /// Whether the filter alone says that there is no Data of the very name, without a trace.
    #[inline]
    pub(crate) fn is_ruled_out(&self, name: NameView<'_>, hashes: &NameHashes) -> bool {
        self.catalog.is_ruled_out(key_of(name, hashes.whole, hashes.parent))
    }

    /// Whether there is Data of the very name, or with CanBePrefix below it, without a trace.
    pub(crate) fn has_answer(&self, query: &Query<'_>) -> bool {
        let key = key_of(query.name, query.hashes.whole, query.hashes.parent);
        if self.catalog.find(key).is_some_and(|place| self.is_valid(place)) {
            return true;
        }
        let prefix = Some(query.hashes.whole);
        let is_wanted = |_, place| self.is_valid(place);
        let asks_below = query.can_be_prefix && !query.name.is_empty();
        asks_below && self.catalog.below(prefix, PREFIX_VISITS_MAX, is_wanted).is_some()
    }

    /// Whether the filter refuses what the index has.
    pub(crate) fn is_filter_wrong(&self, query: &Query<'_>) -> bool {
        let key = key_of(query.name, query.hashes.whole, query.hashes.parent);
        let is_known = self.catalog.find(key).is_some_and(|place| self.is_valid(place));
        is_known && self.catalog.is_ruled_out(key)
    }

    /// Answers by the digest that the name ends with, or by Data below it.
    #[inline]
    fn lookup_digest_or_prefix(&mut self, now: Instant, query: &Query<'_>) -> Lookup {
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
        match self.passes_filter(key) {
            true => self.lookup_indexed(now, query, key),
            false => Lookup::Miss,
        }
    }

    /// Looks for Data that has passed the filter.
    fn lookup_indexed(&mut self, now: Instant, query: &Query<'_>, key: Key) -> Lookup {
        match self.find(key) {
            Some(place) => self.answer(now, query, key, place),
            None => {
                self.stats.filter_false_positives += u64::from(self.catalog.has_filter());
                Lookup::Miss
            }
        }
    }

    /// Where Data is, if it still is.
    pub(super) fn find(&mut self, key: Key) -> Option<RecordAddress> {
        self.find_recoverable(key).filter(|&place| self.is_valid(place))
    }

    /// Where Data is, or where a start may still find it.
    pub(super) fn find_recoverable(&mut self, key: Key) -> Option<RecordAddress> {
        let place = self.catalog.find(key)?;
        if self.may_come_back(place) {
            return Some(place);
        }
        self.remove_from_index(key, place);
        None
    }

    /// Removes an entry that may be stale. Says whether it was there.
    pub(super) fn remove_from_index(&mut self, key: Key, place: RecordAddress) -> bool {
        let was_there = self.catalog.remove(key, place);
        if was_there {
            self.uncount_record(place);
        }
        was_there
    }

    /// The index leads no more to what is in a place.
    pub(super) fn uncount_record(&mut self, place: RecordAddress) {
        let Some(device) = self.devices.get_mut(usize::from(place.disk())) else { return };
        if device.is_valid(place) {
            let region = device.locate(place).0;
            let region = &mut device.regions[region];
            debug_assert!(region.records > 0, "what leads to a region is counted there");
            region.records = region.records.saturating_sub(1);
            region.bytes = region.bytes.saturating_sub(u64::from(place.sectors()) * SECTOR_BYTES);
        }
    }

    #[cold]
    fn lookup_below(&mut self, now: Instant, query: &Query<'_>) -> Lookup {
        let prefix = Some(query.hashes.whole);
        let now_unix_ms = self.unix_ms(now);
        let found = self.catalog.below(prefix, PREFIX_VISITS_MAX, |_, place| {
            let is_fresh_enough = |at: u32| {
                let pending = self.pending.get(at);
                !query.must_be_fresh || now_unix_ms < pending.fresh_until_unix_ms
            };
            self.is_valid(place) && self.pending.find(place).is_none_or(is_fresh_enough)
        });
        match found {
            Some((key, place)) => self.answer(now, query, key, place),
            None => Lookup::Miss,
        }
    }

    /// The answer from a place that is valid.
    fn answer(
        &mut self,
        now: Instant,
        query: &Query<'_>,
        key: Key,
        place: RecordAddress,
    ) -> Lookup {
        if let Some(at) = self.pending.find(place) {
            return self.answer_unwritten(now, query, at);
        }
        let device = &self.devices[usize::from(place.disk())];
        let is_shared = self.reads.find(key, place).is_some();
        let reads_waiting = device.reads_waiting - u32::from(is_shared);
        Lookup::OnDisk(OnDisk {
            disk: place.disk(),
            reads_waiting,
            is_stalled: device.is_stalled,
            key,
            address: place,
        })
    }

    fn answer_unwritten(&mut self, now: Instant, query: &Query<'_>, at: u32) -> Lookup {
        let is_fresh = self.unix_ms(now) < self.pending.get(at).fresh_until_unix_ms;
        let packet = self.pending.packet_mut(at).share();
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
        let place = found.address;
        let is_stalled = self.devices[usize::from(found.disk)].is_stalled;
        if let Some(at) = self.reads.find(found.key, place).filter(|_| !is_stalled) {
            self.stats.reads_shared += 1;
            return Ok(self.reads.join(at));
        }
        let reads_max = self.config.reads_max;
        let is_there = self.catalog.find(found.key) == Some(place) && self.is_valid(place);
        let device = &mut self.devices[usize::from(found.disk)];
        if is_there && !device.is_stalled && device.reads_waiting >= reads_max {
            self.stats.reads_refused += 1;
            return Err(ReadRefused);
        }
        if !is_there || device.is_stalled {
            let outcome = if is_there { ReadOutcome::Stalled } else { ReadOutcome::Unavailable };
            return Ok(self.reads.finish_immediately(outcome));
        }
        device.reads_waiting += 1;
        let (id, at) = self.reads.begin(found.key, place, self.tickets.next());
        device.reads.push_back(at);
        Ok(id)
    }

    /// Begins to keep an index of the segments that are held, or gives it up.
    pub(crate) fn track(&mut self, config: Option<HoldingsConfig>) {
        self.catalog.track_holdings(config);
    }

    /// The index of what is held must be built from the start once more.
    pub(crate) fn restart_building(&mut self) {
        self.catalog.restart_building();
    }

    /// Adds to it what is there, `steps` further. Returns whether that was all.
    pub(crate) fn build_holdings(&mut self, steps: u32) -> bool {
        let Self { catalog, devices, .. } = self;
        catalog.build_holdings(steps, |place| {
            let device = devices.get(usize::from(place.disk()));
            device.is_some_and(|device| device.is_valid(place))
        })
    }

    pub(crate) fn holdings(&self) -> Option<&Holdings> {
        self.catalog.holdings()
    }

    pub(crate) fn holdings_mut(&mut self) -> Option<&mut Holdings> {
        self.catalog.holdings_mut()
    }

    pub(crate) fn next_finished(&mut self) -> Option<FinishedRead> {
        self.reads.next_finished()
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
