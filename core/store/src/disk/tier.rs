//! The disk tier as the store sees it: lookups, reads and statistics.

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

/// The Data on all disks. The [module documentation](super) describes how it works.
///
/// - `catalog` finds the record of a name.
/// - `pending` holds the records that are not written yet.
/// - `reads` and `operations` hold the work in progress.
/// - `devices` hold the regions and queues of each disk.
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
    /// The sequence number of the region opened last, on any disk.
    pub(super) last_sequence: u32,
    /// The first disk to consider for the next append. Disks with equal queues take turns.
    pub(super) next_disk: usize,
    pub(crate) lost: LostSegments,
    /// Bytes of all regions of all disks.
    pub(super) log_bytes: u64,
    /// Counters of events. Sizes are filled in when the statistics are read.
    pub(super) stats: DiskTierStats,
    /// Scratch: hashes of the prefixes of an object's name.
    pub(super) path: Vec<u64>,
}

/// The memory limit of fingerprints is that of the index divided by this.
const FINGERPRINTS_SHARE: u64 = 16;

impl DiskTier {
    pub(crate) fn new(config: DiskTierConfig) -> Self {
        let config = DiskTierConfig {
            // All operations in progress on up to 16 disks share numbers of 16 bits.
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
    pub(super) fn is_valid(&self, address: RecordAddress) -> bool {
        let device = self.devices.get(usize::from(address.disk()));
        device.is_some_and(|device| device.is_valid(address))
    }

    /// Whether a restart would find the record at this address.
    #[inline]
    pub(super) fn may_be_recovered(&self, address: RecordAddress) -> bool {
        let device = self.devices.get(usize::from(address.disk()));
        device.is_some_and(|device| device.may_be_recovered(address))
    }

    /// Bytes of memory for index, filter and fingerprints.
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
            unrecovered_set: self.recovery.unfinished_set(),
            ..self.stats
        }
    }

    /// See [`Store::is_disk_behind`](crate::Store::is_disk_behind).
    pub(crate) fn is_behind(&self, records: u32) -> bool {
        let responds = |device: &&Device| device.is_usable() && !device.is_stalled;
        let mut responding = self.devices.iter().filter(responds).peekable();
        responding.peek().is_some() && responding.all(|device| device.is_behind(records))
    }

    /// The smallest write backlog of the disks that take writes now; `None` if there is none.
    #[inline]
    pub(crate) fn shortest_backlog_bytes(&self, now: Instant) -> Option<u64> {
        let takes_writes = |device: &&Device| device.takes_writes(now);
        self.devices.iter().filter(takes_writes).map(|device| device.bytes_waiting).min()
    }

    /// The write backlog of all disks that take writes now; `None` if there is none.
    #[inline]
    pub(crate) fn backlog_bytes(&self, now: Instant) -> Option<u64> {
        let takes_writes = |device: &&Device| device.takes_writes(now);
        let backlogs = self.devices.iter().filter(takes_writes).map(|device| device.bytes_waiting);
        backlogs.reduce(|sum, bytes| sum + bytes)
    }

    pub(crate) fn written_bytes(&self) -> u64 {
        self.stats.written_bytes
    }

    /// Notes that memory has evicted Data whose record waits to be written. From now on, only the
    /// pending record holds the packet.
    #[inline]
    pub(crate) fn on_evicted(&mut self, at: u32) {
        self.pending.on_evicted(at);
    }

    /// Bytes of packets that memory has evicted and that still wait to be written.
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

    /// Prefetches the line of the filter that a lookup of this name reads.
    #[inline]
    pub(crate) fn prefetch_filter(&self, name: NameView<'_>, hashes: &NameHashes) {
        self.catalog.prefetch(key_of(name, hashes.whole, hashes.parent));
    }

    /// Whether the filter proves that there is no answer. Counts it if so.
    #[inline]
    pub(crate) fn is_filtered_out(&mut self, query: &Query<'_>) -> bool {
        // Such a query may match a record whose own name is different. The filter knows whole names
        // only.
        let asks_more = query.can_be_prefix || ends_like_digest(query.name);
        let ends = !asks_more && self.is_ruled_out(query.name, &query.hashes);
        self.stats.filter_negatives += u64::from(ends);
        ends
    }

    /// Looks for an answer that memory does not have, and never waits for a disk.
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

    /// Whether the filter proves that there is no Data of exactly this name. Does not count it.
    #[inline]
    pub(crate) fn is_ruled_out(&self, name: NameView<'_>, hashes: &NameHashes) -> bool {
        self.catalog.is_ruled_out(key_of(name, hashes.whole, hashes.parent))
    }

    /// Whether there is Data of exactly this name, or, with CanBePrefix, below it. Does not count
    /// it.
    pub(crate) fn has_answer(&self, query: &Query<'_>) -> bool {
        let key = key_of(query.name, query.hashes.whole, query.hashes.parent);
        if self.catalog.find(key).is_some_and(|address| self.is_valid(address)) {
            return true;
        }
        let prefix = Some(query.hashes.whole);
        let is_wanted = |_, address| self.is_valid(address);
        let asks_below = query.can_be_prefix && !query.name.is_empty();
        asks_below && self.catalog.below(prefix, PREFIX_VISITS_MAX, is_wanted).is_some()
    }

    /// Whether the filter rejects a key that is in the index.
    pub(crate) fn is_filter_wrong(&self, query: &Query<'_>) -> bool {
        let key = key_of(query.name, query.hashes.whole, query.hashes.parent);
        let is_known = self.catalog.find(key).is_some_and(|address| self.is_valid(address));
        is_known && self.catalog.is_ruled_out(key)
    }

    /// Answers by the digest that the name ends with, or by Data below the name.
    #[inline]
    fn lookup_digest_or_prefix(&mut self, now: Instant, query: &Query<'_>) -> Lookup {
        if ends_like_digest(query.name) {
            let answer = self.lookup_by_digest(now, query);
            if !matches!(answer, Lookup::Miss) {
                return answer;
            }
        }
        // As in memory, the empty name finds nothing.
        if query.can_be_prefix && !query.name.is_empty() {
            self.lookup_below(now, query)
        } else {
            Lookup::Miss
        }
    }

    #[cold]
    fn lookup_by_digest(&mut self, now: Instant, query: &Query<'_>) -> Lookup {
        // The Data's own name is the query's name without the digest.
        let is_digest = query.name.last().is_some_and(|last| last.is_implicit_digest());
        let (true, Some(whole)) = (is_digest, query.hashes.parent) else { return Lookup::Miss };
        let key = key_of(query.name.parent(), whole, query.hashes.grandparent);
        match self.passes_filter(key) {
            true => self.lookup_indexed(now, query, key),
            false => Lookup::Miss,
        }
    }

    /// Looks up a key that has passed the filter.
    fn lookup_indexed(&mut self, now: Instant, query: &Query<'_>, key: Key) -> Lookup {
        match self.find(key) {
            Some(address) => self.answer(now, query, key, address),
            None => {
                self.stats.filter_false_positives += u64::from(self.catalog.has_filter());
                Lookup::Miss
            }
        }
    }

    /// The address of the record of a key, if there is one and it is valid.
    pub(super) fn find(&mut self, key: Key) -> Option<RecordAddress> {
        self.find_recoverable(key).filter(|&address| self.is_valid(address))
    }

    /// The address of the record of a key, if it is valid or a restart would find it. Removes any
    /// other address from the index.
    pub(super) fn find_recoverable(&mut self, key: Key) -> Option<RecordAddress> {
        let address = self.catalog.find(key)?;
        if self.may_be_recovered(address) {
            return Some(address);
        }
        self.remove_from_index(key, address);
        None
    }

    /// Removes an entry from the index; it may be stale. Returns whether it was there.
    pub(super) fn remove_from_index(&mut self, key: Key, address: RecordAddress) -> bool {
        let was_there = self.catalog.remove(key, address);
        if was_there {
            self.uncount_record(address);
        }
        was_there
    }

    /// Subtracts a record that has left the index from the counters of its region.
    pub(super) fn uncount_record(&mut self, address: RecordAddress) {
        let Some(device) = self.devices.get_mut(usize::from(address.disk())) else { return };
        if device.is_valid(address) {
            let region = device.locate(address).0;
            let region = &mut device.regions[region];
            debug_assert!(region.records > 0, "a region counts its indexed records");
            region.records = region.records.saturating_sub(1);
            region.bytes = region.bytes.saturating_sub(u64::from(address.sectors()) * SECTOR_BYTES);
        }
    }

    #[cold]
    fn lookup_below(&mut self, now: Instant, query: &Query<'_>) -> Lookup {
        let prefix = Some(query.hashes.whole);
        let now_unix_ms = self.unix_ms(now);
        // Only pending records show their freshness. Those on disk are checked after the read.
        let found = self.catalog.below(prefix, PREFIX_VISITS_MAX, |_, address| {
            let is_fresh_enough = |at: u32| {
                let pending = self.pending.get(at);
                !query.must_be_fresh || now_unix_ms < pending.fresh_until_unix_ms
            };
            self.is_valid(address) && self.pending.find(address).is_none_or(is_fresh_enough)
        });
        match found {
            Some((key, address)) => self.answer(now, query, key, address),
            None => Lookup::Miss,
        }
    }

    /// The answer from a valid address.
    fn answer(
        &mut self,
        now: Instant,
        query: &Query<'_>,
        key: Key,
        address: RecordAddress,
    ) -> Lookup {
        if let Some(at) = self.pending.find(address) {
            return self.answer_unwritten(now, query, at);
        }
        let device = &self.devices[usize::from(address.disk())];
        // A lookup that joins a read does not wait behind it, so do not count that read.
        let is_shared = self.reads.find(key, address).is_some();
        let reads_waiting = device.reads_waiting - u32::from(is_shared);
        Lookup::OnDisk(OnDisk {
            disk: address.disk(),
            reads_waiting,
            is_stalled: device.is_stalled,
            key,
            address,
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

    /// The hashes of the proper prefixes of the Data's name, longest first and without the empty
    /// one. None if the record has just left the index.
    pub(crate) fn prefixes_of(&self, found: &OnDisk) -> impl Iterator<Item = u64> {
        self.catalog.prefixes_of(found.key)
    }

    /// Begins a read, or joins one. If the record is gone or the disk stalled, the read ends
    /// immediately without Data, so that the Interests are forwarded.
    pub(crate) fn begin_read(&mut self, found: &OnDisk) -> Result<ReadId, ReadRefused> {
        let address = found.address;
        let is_stalled = self.devices[usize::from(found.disk)].is_stalled;
        // Joining costs the disk nothing, so the limit of waiting reads does not apply.
        if let Some(at) = self.reads.find(found.key, address).filter(|_| !is_stalled) {
            self.stats.reads_shared += 1;
            return Ok(self.reads.join(at));
        }
        let reads_max = self.config.reads_max;
        let is_there = self.catalog.find(found.key) == Some(address) && self.is_valid(address);
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
        let (id, at) = self.reads.begin(found.key, address, self.tickets.next());
        device.reads.push_back(at);
        Ok(id)
    }

    /// Starts or stops the index of stored segments.
    pub(crate) fn track_holdings(&mut self, config: Option<HoldingsConfig>) {
        self.catalog.track_holdings(config);
    }

    /// Restarts the build of the index of stored segments from the beginning.
    pub(crate) fn restart_building(&mut self) {
        self.catalog.restart_building();
    }

    /// Adds up to `steps` existing records to that index. Returns whether it is complete.
    pub(crate) fn build_holdings(&mut self, steps: u32) -> bool {
        let Self { catalog, devices, .. } = self;
        catalog.build_holdings(steps, |address| {
            let device = devices.get(usize::from(address.disk()));
            device.is_some_and(|device| device.is_valid(address))
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

/// Whether the last bytes of a name may be an implicit digest.
#[inline]
fn ends_like_digest(name: NameView<'_>) -> bool {
    const DIGEST: [u8; 2] = [tlv::IMPLICIT_SHA256_DIGEST_COMPONENT as u8, DIGEST_SIZE as u8];
    let value = name.value();
    let at = value.len().wrapping_sub(DIGEST_SIZE + 2);
    value.get(at..at.wrapping_add(2)) == Some(&DIGEST)
}

/// Whether Data answers a query, not considering freshness.
fn satisfies(data: &DataView<'_>, query: &Query<'_>) -> bool {
    if data.name == query.name || query.can_be_prefix && query.name.is_prefix_of(data.name) {
        return true;
    }
    let digest = query.name.last().filter(|last| last.is_implicit_digest());
    digest.is_some_and(|digest| {
        data.name == query.name.parent() && data.implicit_digest() == *digest.value
    })
}
