//! Appends records to the log, and erases them. These are steps 2 to 4 of the path to disk in the
//! [module documentation](super).

use super::address::{Key, RecordAddress, SECTOR_BYTES};
use super::checkpoint::{Erasure, RECORD_BYTES_MAX};
use super::config::Admission;
use super::device::{Region, ReusedRegion};
use super::op::WriteChunk;
use super::pending::Pending;
use super::tier::DiskTier;
use crate::store::COMPONENTS_MAX;
use alloc::vec::Vec;
use core::mem;
use weir_base::{Instant, Packet};
use weir_wire::DataView;

/// Data that is offered to the disk tier.
pub(crate) struct Offer<'a> {
    pub(crate) key: Key,
    pub(crate) packet: &'a mut Packet,
    /// `None` if the Data has no FreshnessPeriod.
    pub(crate) fresh_until: Option<Instant>,
    /// Whether it was used since it was inserted into memory.
    pub(crate) was_used: bool,
    /// Whether it may differ from the record on disk, and no fingerprint is kept to compare the
    /// two.
    pub(crate) is_unverified: bool,
    pub(crate) reason: OfferReason,
}

/// Why Data is offered now.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum OfferReason {
    /// The disk has time. A rejection is not counted, since the Data will be offered again.
    Early,
    Eviction,
    /// The router stops. The limits of the queues do not apply.
    Shutdown,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum OfferResult {
    /// The Data is on disk already, or will be compared with the record there.
    OnDisk,
    /// It waits to be written, as this pending record.
    Queued(u32),
    /// Not stored, because of the admission policy or the sizes of disks and index.
    Rejected,
    /// Not stored, because the disks are too slow or do not respond.
    Lost,
}

/// The record on disk under the key of offered Data, compared with the Data.
#[derive(Copy, Clone)]
enum ExistingRecord {
    Absent,
    /// The same Data waits to be written, as this pending record.
    Queued(u32),
    /// The same Data, or Data that will be compared when it is read. A write is not needed.
    Same,
    /// The same Data, but its region will be reused soon. It should be written again, and to the
    /// same disk, where one erasure covers both records.
    Aging(RecordAddress),
    Different(RecordAddress),
    /// The same or other Data.
    Unverified(RecordAddress),
}

/// Whether Data that arrived can be compared later with the record on disk under its name.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Comparison {
    /// No record can differ.
    NotNeeded,
    /// A fingerprint of the Data is kept.
    Deferred,
    /// The limit of fingerprints is reached. The Data must be written in place of the record.
    Impossible,
}

/// When there is no space for a new fingerprint, this many old ones are checked and dropped if
/// their record is gone.
const STALE_FINGERPRINTS_STEPS: usize = 4;

/// Why no disk takes Data.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Refusal {
    NotAdmitted,
    /// No disk could ever take it, or the index may not grow.
    NoRoom,
    /// A disk could take it later: its backlog is full, or it does not respond now.
    Busy,
}

/// The name of the object that a segment belongs to.
fn object_name(packet: &[u8]) -> Vec<u8> {
    DataView::decode(packet).map_or_else(|_| Vec::new(), |data| data.name.parent().value().to_vec())
}

impl DiskTier {
    /// Stores Data if admission policy, disks and queues allow it and it is not stored already.
    /// `path` appends the hashes of all proper prefixes of the object's name, shortest first and
    /// without the empty one.
    ///
    /// 1. Find out what is on disk under the same key.
    /// 2. Choose a disk. New Data of a name must go to the disk of the old record, if there is one.
    ///    On one disk the newer record wins after a restart.
    /// 3. If no disk takes the Data, the old record may stay only if it is not known to differ.
    /// 4. Otherwise append it.
    pub(crate) fn offer(
        &mut self,
        now: Instant,
        offer: Offer<'_>,
        path: impl FnOnce(&mut Vec<u64>),
    ) -> OfferResult {
        let before = self.existing_record(&offer);
        match before {
            ExistingRecord::Same => return OfferResult::OnDisk,
            ExistingRecord::Queued(at) => return OfferResult::Queued(at),
            ExistingRecord::Absent
            | ExistingRecord::Aging(_)
            | ExistingRecord::Different(_)
            | ExistingRecord::Unverified(_) => {}
        }
        // On one disk the newer record wins. So nothing is lost if the process dies between an
        // erasure and the record that replaces it.
        let only = match before {
            ExistingRecord::Aging(address)
            | ExistingRecord::Unverified(address)
            | ExistingRecord::Different(address) => Some(usize::from(address.disk())),
            ExistingRecord::Absent | ExistingRecord::Same | ExistingRecord::Queued(_) => None,
        };
        let disk = match self.admit(now, &offer, only) {
            Ok(disk) => disk,
            Err(refusal) => {
                let refused = match refusal {
                    Refusal::Busy => OfferResult::Lost,
                    Refusal::NotAdmitted | Refusal::NoRoom => OfferResult::Rejected,
                };
                return match before {
                    // The record is the same, or its fingerprint will show that it is not.
                    ExistingRecord::Unverified(_) | ExistingRecord::Aging(_) => OfferResult::OnDisk,
                    // Memory still has the new Data and answers first.
                    ExistingRecord::Different(_) if offer.reason == OfferReason::Early => refused,
                    ExistingRecord::Different(_) => {
                        self.erase_key(offer.key);
                        refused
                    }
                    // Recovery may still find an older record, which must not be served.
                    ExistingRecord::Absent
                        if offer.is_unverified && offer.reason != OfferReason::Early =>
                    {
                        self.erase_key(offer.key);
                        refused
                    }
                    ExistingRecord::Absent | ExistingRecord::Same | ExistingRecord::Queued(_) => {
                        refused
                    }
                };
            }
        };
        if matches!(before, ExistingRecord::Unverified(_) | ExistingRecord::Different(_)) {
            self.reads.invalidate(offer.key);
        }
        OfferResult::Queued(self.append(now, disk, offer, path))
    }

    /// Chooses the disk that will take the Data, and makes space in its open region.
    fn admit(
        &mut self,
        now: Instant,
        offer: &Offer<'_>,
        only: Option<usize>,
    ) -> Result<usize, Refusal> {
        let is_admitted = match self.config.admission {
            Admission::All => true,
            Admission::SecondHit => offer.was_used,
            Admission::Size { bytes_min } => offer.packet.len() as u64 >= u64::from(bytes_min),
        };
        let refusal = if !is_admitted {
            Refusal::NotAdmitted
        } else if !self.catalog.has_room_for(offer.key, COMPONENTS_MAX) {
            Refusal::NoRoom
        } else {
            match self.choose_disk(now, offer, only) {
                Ok(disk) if self.prepare_append(now, disk, offer.packet.len()) => return Ok(disk),
                Ok(_) => Refusal::Busy,
                Err(refusal) => refusal,
            }
        };
        if offer.reason != OfferReason::Early {
            self.count_refusal(refusal);
        }
        Err(refusal)
    }

    fn count_refusal(&mut self, refusal: Refusal) {
        match refusal {
            Refusal::NotAdmitted => self.stats.not_admitted += 1,
            Refusal::NoRoom => self.stats.no_room += 1,
            Refusal::Busy => self.stats.passed_by += 1,
        }
    }

    /// Finds the record under the key of offered Data, and compares the two as far as possible
    /// without reading the disk.
    fn existing_record(&mut self, offer: &Offer<'_>) -> ExistingRecord {
        let Some(address) = self.find(offer.key) else { return ExistingRecord::Absent };
        if let Some(at) = self.pending.find(address) {
            let is_same = *self.pending.get(at).packet == **offer.packet;
            return if is_same {
                ExistingRecord::Queued(at)
            } else {
                ExistingRecord::Different(address)
            };
        }
        if offer.is_unverified {
            return ExistingRecord::Different(address);
        }
        let device = &self.devices[usize::from(address.disk())];
        // Data that was used should outlive the region of its record.
        let is_due_again = offer.was_used && device.is_evicted_soon(address);
        match (self.fingerprints.find(offer.key).is_some(), is_due_again) {
            // A restart loses the fingerprint. After that, nothing could show that the record
            // differs, so write the Data now.
            (true, false) if offer.reason == OfferReason::Shutdown => {
                ExistingRecord::Unverified(address)
            }
            (true, true) => ExistingRecord::Unverified(address),
            (_, false) => ExistingRecord::Same,
            (false, true) => ExistingRecord::Aging(address),
        }
    }

    /// Keeps a fingerprint of the Data, if there is space. From now on, a record of this key is
    /// served only if it has this fingerprint.
    fn record_fingerprint(&mut self, key: Key, wire: &[u8]) -> Comparison {
        let fingerprint = self.config.hash_key.hash(wire);
        if self.fingerprints.insert(key, fingerprint) {
            return Comparison::Deferred;
        }
        self.forget_stale_fingerprints();
        if self.fingerprints.insert(key, fingerprint) {
            return Comparison::Deferred;
        }
        self.reads.invalidate(key);
        Comparison::Impossible
    }

    /// Drops some fingerprints whose records are gone.
    fn forget_stale_fingerprints(&mut self) {
        for _ in 0..STALE_FINGERPRINTS_STEPS {
            let Some(key) = self.fingerprints.next_in_turn() else { return };
            if !self.is_recovering() && self.find(key).is_none() {
                self.fingerprints.remove(key);
            }
        }
    }

    /// The disk with the fewest waiting records, among those that take any. Disks with equally many
    /// take turns. If `only` is set, no other disk is considered.
    fn choose_disk(
        &mut self,
        now: Instant,
        offer: &Offer<'_>,
        only: Option<usize>,
    ) -> Result<usize, Refusal> {
        let len = offer.packet.len();
        let backlog_max = self.device_backlog_max();
        let count = self.devices.len();
        let mut chosen: Option<((bool, u32), usize)> = None;
        let (mut is_full, mut is_held_up) = (false, false);
        for step in 0..count {
            let disk = (self.next_disk + step) % count;
            let device = &self.devices[disk];
            if !device.is_usable() || !device.fits_empty(device.record_bytes(len), RECORD_BYTES_MAX)
            {
                continue;
            }
            if only.is_some_and(|only| only != disk) {
                continue;
            }
            if now < device.paused_until || !device.is_ready {
                is_held_up = true;
                continue;
            }
            if device.bytes_waiting >= backlog_max && offer.reason != OfferReason::Shutdown {
                is_full = true;
                continue;
            }
            // `false` sorts first, so a stalled disk is chosen only if all are stalled: stalls end.
            let load = (device.is_stalled, device.records_waiting);
            if chosen.is_none_or(|(least, _)| load < least) {
                chosen = Some((load, disk));
            }
        }
        match chosen {
            Some((_, disk)) => {
                self.next_disk = disk + 1;
                Ok(disk)
            }
            None if is_full || is_held_up => Err(Refusal::Busy),
            None => Err(Refusal::NoRoom),
        }
    }

    /// The limit of the write backlog of one disk. It is an equal share, so an unresponsive disk
    /// cannot use up the limit of the others.
    #[inline]
    pub(crate) fn device_backlog_max(&self) -> u64 {
        self.config.write_backlog_bytes_max / self.devices.len().max(1) as u64
    }

    /// Ensures that a disk's open region has space for a packet of `len` bytes. First logs the
    /// erasures that wait: an erasure without a position covers everything before it, so it must
    /// not come after the new record.
    fn prepare_append(&mut self, now: Instant, disk: usize, len: usize) -> bool {
        let size = self.devices[disk].record_bytes(len);
        self.append_erasures(now, disk)
            && self.ensure_region_space(now, disk, size, RECORD_BYTES_MAX)
    }

    /// Ensures that the open region has space for `size` bytes, and for `growth` bytes in its
    /// checkpoint. If it does not, closes it and opens the next one, which evicts the records of
    /// the next one.
    fn ensure_region_space(&mut self, now: Instant, disk: usize, size: u64, growth: usize) -> bool {
        if self.devices[disk].fits(size, growth) {
            return true;
        }
        if !self.devices[disk].fits_empty(size, growth) {
            return false;
        }
        self.devices[disk].close();
        self.seal_closed(now, disk);
        let ticket = self.tickets.next();
        let device = &mut self.devices[disk];
        // There is no next region while all others are still being written.
        let Some(reused) = device.open_next(now, &mut self.last_sequence, ticket) else {
            return false;
        };
        let ReusedRegion { before: Region { records, .. }, batch } = reused;
        self.recovery.on_reused(disk, batch.region);
        device.writes.push_back(batch);
        self.stats.evictions += u64::from(records);
        true
    }

    pub(super) fn seal_closed(&mut self, now: Instant, disk: usize) {
        self.devices[disk].seal_closed(now, &mut self.tickets);
    }

    /// Logs the erasures that wait. Returns whether all of them are logged.
    pub(super) fn append_erasures(&mut self, now: Instant, disk: usize) -> bool {
        while !self.devices[disk].erasures.is_empty() {
            let (size, growth) = self.devices[disk].erasure_room();
            if !self.ensure_region_space(now, disk, size, growth) {
                return false;
            }
            let write_bytes_max = u64::from(self.config.write_bytes_max);
            self.devices[disk].append_erasures(now, write_bytes_max, &mut self.tickets);
        }
        true
    }

    /// Appends Data to the open region, which has space for it. Returns the pending record.
    fn append(
        &mut self,
        now: Instant,
        disk: usize,
        offer: Offer<'_>,
        path: impl FnOnce(&mut Vec<u64>),
    ) -> u32 {
        let fresh_until_unix_ms = offer.fresh_until.map_or(0, |until| self.unix_ms(until));
        let Offer { key, packet, is_unverified, .. } = offer;
        let device = &mut self.devices[disk];
        let size = device.record_bytes(packet.len());
        let Some(writer) = &mut device.open else { unreachable!("prepare_append opened a region") };
        let (region, at) = (writer.region, writer.write_offset);
        let (mut path, mut prefixes) = (Some(path), mem::take(&mut self.path));
        prefixes.clear();
        // The checkpoint needs the prefixes once for each region and object, the index once for
        // each new object. Compute them at most once.
        if !writer.checkpoint.knows(key.object)
            && let Some(path) = path.take()
        {
            path(&mut prefixes);
        }
        let (at_sectors, sectors) = ((at / SECTOR_BYTES) as u32, (size / SECTOR_BYTES) as u8);
        writer.checkpoint.record(key, &prefixes, at_sectors, sectors);
        let address = device.address(disk as u8, region, at, size);
        device.regions[region as usize].records += 1;
        device.regions[region as usize].bytes += size;
        let append_path = |out: &mut Vec<u64>| match path.take() {
            Some(path) => path(out),
            None => out.extend_from_slice(&prefixes),
        };
        let before = self.catalog.insert(key, address, append_path, || object_name(packet));
        self.path = prefixes;
        self.on_indexed(disk, key, before);
        // The new record replaces any older one, including one that recovery has not found yet.
        if (self.fingerprints.remove(key) || is_unverified) && self.is_recovering() {
            self.supersede(disk, key);
        }
        // The pending record and the batch share the packet with memory. Nothing is copied.
        let packet = packet.share();
        let is_evicted = false;
        let pending =
            Pending { is_evicted, key, address, packet: packet.clone(), fresh_until_unix_ms };
        let pending = self.insert_pending(pending);
        let write_bytes_max = u64::from(self.config.write_bytes_max);
        let device = &mut self.devices[disk];
        let batch = device.batch_for(now, size, write_bytes_max, &mut self.tickets);
        debug_assert_eq!(batch.offset + batch.len, at);
        batch.len += size;
        batch.chunks.push(WriteChunk::Data { packet, fresh_until_unix_ms });
        batch.records.push(pending);
        if batch.len >= write_bytes_max {
            device.finish_batch();
        }
        if let Some(writer) = &mut device.open {
            writer.write_offset += size;
        }
        self.sweep(disk, size);
        pending
    }

    /// A record on `disk` entered the index, in place of the one at `before`.
    #[inline]
    fn on_indexed(&mut self, disk: usize, key: Key, before: Option<RecordAddress>) {
        let Some(before) = before else { return };
        self.uncount_record(before);
        if usize::from(before.disk()) != disk && self.may_be_recovered(before) {
            self.devices[usize::from(before.disk())].erase(Erasure::Key(key));
        }
    }

    /// A record was just appended. Records of its key that recovery has not read yet are older.
    fn supersede(&mut self, disk: usize, key: Key) {
        self.erase_unindexed(Erasure::Key(key));
        for (other, device) in self.devices.iter_mut().enumerate() {
            if other != disk && self.recovery.may_index(other) {
                device.erase(Erasure::Key(key));
            }
        }
    }

    /// Continues the sweep that removes stale entries from the index, in proportion to the bytes
    /// appended to a disk.
    ///
    /// An address holds only 8 bits of its region's sequence number. So a stale address would look
    /// valid again after 256 uses of regions. The sweep must pass the whole index before that. It
    /// completes a round while an eighth of all logs is written. It also completes two rounds while
    /// any disk's own log is written once, even if that disk is much smaller than the others.
    pub(super) fn sweep(&mut self, disk: usize, appended: u64) {
        let round = self.catalog.round_steps() as u128 + 1;
        // An eighth needs a factor of 8. The rest is a margin for an index that grows meanwhile.
        let of_all = 10 * u128::from(appended) * round / u128::from(self.log_bytes.max(1));
        let own_bytes = self.devices[disk].geometry.log_bytes().max(1);
        let of_own = 2 * u128::from(appended) * round / u128::from(own_bytes);
        let steps = of_all.max(of_own) + 1;
        let Self { catalog, devices, .. } = self;
        catalog.sweep(steps as usize, |_, address| {
            let device = devices.get(usize::from(address.disk()));
            device.is_some_and(|device| device.may_be_recovered(address))
        });
    }

    /// Handles the arrival of Data that memory does not hold. A record of its name on disk may
    /// differ; it must be erased, or compared before it is served.
    pub(crate) fn on_new_data(&mut self, key: Key, wire: &[u8]) -> Comparison {
        if self.catalog.is_ruled_out(key) && !self.is_recovering() {
            self.reads.invalidate(key);
            return Comparison::NotNeeded;
        }
        let address = self.find(key);
        // A pending record is still in memory and can be compared at once. A written record cannot.
        match address.and_then(|address| self.pending.find(address)) {
            Some(at) if *self.pending.get(at).packet == *wire => {}
            Some(_) => {
                self.erase_key(key);
            }
            None if address.is_some() || self.is_recovering() => {
                return self.record_fingerprint(key, wire);
            }
            // The region of the record may have been reused since a read of it began.
            None => self.reads.invalidate(key),
        }
        Comparison::NotNeeded
    }

    /// Erases a record that differs, or may differ, from newer Data of its name.
    pub(crate) fn erase_unverified(&mut self, key: Key) {
        let was_there = self.erase_key(key);
        self.stats.superseded += u64::from(was_there);
    }

    /// Erases the record of this key, now and after any restart. Returns whether there was one.
    pub(crate) fn erase_key(&mut self, key: Key) -> bool {
        self.fingerprints.remove(key);
        self.reads.invalidate(key);
        let address = self.find_recoverable(key);
        let was_there = address.is_some_and(|address| self.is_valid(address));
        if let Some(address) = address {
            self.remove_from_index(key, address);
        }
        self.log_erasure(key, address);
        was_there
    }

    /// Schedules an erasure on each disk that has a record of this key, or may have one that
    /// recovery has not read yet.
    fn log_erasure(&mut self, key: Key, address: Option<RecordAddress>) {
        self.erase_unindexed(Erasure::Key(key));
        for (disk, device) in self.devices.iter_mut().enumerate() {
            let is_its = address.is_some_and(|address| usize::from(address.disk()) == disk);
            if is_its || self.recovery.may_index(disk) {
                device.erase(Erasure::Key(key));
            }
        }
    }

    /// Removes a record that cannot be served, such as a damaged one. The erasure that is logged
    /// ends at this record, so newer Data of its name stays after a restart.
    pub(super) fn discard_record(&mut self, key: Key, address: RecordAddress) {
        if !self.is_valid(address) || !self.remove_from_index(key, address) {
            return;
        }
        let device = &mut self.devices[usize::from(address.disk())];
        let (region, at) = device.locate(address);
        let end = (at / SECTOR_BYTES) as u32 + u32::from(address.sectors());
        let before = (device.regions[region].sequence, end);
        device.erase_before(Erasure::Key(key), Some(before));
    }

    pub(crate) fn erase_by_command(&mut self, key: Key) -> bool {
        let was_there = self.erase_key(key);
        self.stats.erasures += u64::from(was_there);
        was_there
    }

    /// Erases up to `limit` records at or below a prefix. Returns how many.
    pub(crate) fn erase_below(&mut self, prefix: Option<u64>, limit: usize) -> usize {
        // A record whose region was reused since its read began is no longer in the index. It may
        // lie below the prefix, too.
        self.reads.invalidate_all();
        let mut erased = 0;
        while erased < limit {
            // Stale entries do not count, so several rounds may be needed.
            let removed = self.catalog.remove_below(prefix, limit - erased);
            let is_all = removed.len() < limit - erased;
            for (key, address) in removed {
                let (is_valid, may_be_recovered) =
                    (self.is_valid(address), self.may_be_recovered(address));
                self.uncount_record(address);
                // If everything below the prefix goes, one erasure at the end covers it all.
                if may_be_recovered && !is_all {
                    self.log_erasure(key, Some(address));
                }
                if is_valid {
                    erased += 1;
                    self.fingerprints.remove(key);
                }
            }
            if is_all {
                self.erase_unindexed(Erasure::Below(prefix));
                for device in &mut self.devices {
                    device.erase(Erasure::Below(prefix));
                }
                break;
            }
        }
        self.stats.erasures += erased as u64;
        erased
    }
}
