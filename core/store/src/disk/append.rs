//! What goes onto the disks, and what is taken off them.

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

/// Data that RAM offers.
pub(crate) struct Offer<'a> {
    pub(crate) key: Key,
    pub(crate) packet: &'a mut Packet,
    /// Nothing when it never was.
    pub(crate) fresh_until: Option<Instant>,
    /// Whether it was used since it came.
    pub(crate) was_used: bool,
    /// Whether it may differ from the record on disk, with no fingerprint to compare the two by.
    pub(crate) is_unverified: bool,
    pub(crate) reason: OfferReason,
}

/// Why Data is offered now.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum OfferReason {
    /// The disk has time. What is refused is not counted: it will be offered again.
    Early,
    /// RAM evicts it.
    Eviction,
    /// The router stops: the bounds of the queues do not hold.
    Shutdown,
}

/// What became of Data that was offered.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum OfferResult {
    /// It is on disk, or Data is that will be compared with it.
    OnDisk,
    /// It waits to be written, as this pending record.
    Queued(u32),
    /// It is not stored: admission or the size of disks and index say so.
    Rejected,
    /// It is not stored: disks are too slow, or do not answer.
    Lost,
}

/// What is on disk under the key of Data that is offered.
#[derive(Copy, Clone)]
enum ExistingRecord {
    Absent,
    /// The same waits to be written, as this pending record.
    Queued(u32),
    /// The same, or it will be compared when it is read: it need not be written.
    Same,
    /// The same, but it will soon make room: it is to be written anew, and to the same disk, where
    /// a note that it was erased holds for both.
    Aging(RecordAddress),
    Different(RecordAddress),
    /// The same or other Data.
    Unverified(RecordAddress),
}

/// Whether Data that has come can be compared with the record on disk under its name later.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Comparison {
    /// There is no record that may differ.
    NotNeeded,
    /// A fingerprint of the Data is kept.
    Deferred,
    /// As many fingerprints as may be are kept: the Data must be written in place of the record.
    Impossible,
}

/// Fingerprints that are looked at, each time there is no room for another one, for one whose
/// record is gone.
const STALE_FINGERPRINTS_STEPS: usize = 4;

/// Why no disk takes Data.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Refusal {
    /// The admission policy does not want it.
    NotAdmitted,
    /// No disk could take it, or the index may not grow.
    NoRoom,
    /// A disk could later: as much as may be waits to be written, or it does not answer now.
    Busy,
}

/// The name of the object that a Data is a segment of.
fn object_name(packet: &[u8]) -> Vec<u8> {
    DataView::decode(packet).map_or_else(|_| Vec::new(), |data| data.name.parent().value().to_vec())
}

impl DiskTier {
    /// Stores Data if admission, room and the queues allow it, and it is not there yet. `path`
    /// appends the hashes of all proper prefixes of the object's name but the empty one, shortest
    /// first.
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
        // On one disk what is newer counts, so that nothing is lost if it dies between a note of
        // what was erased and what was written instead.
        let only = match before {
            ExistingRecord::Aging(place)
            | ExistingRecord::Unverified(place)
            | ExistingRecord::Different(place) => Some(usize::from(place.disk())),
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
                    ExistingRecord::Unverified(_) | ExistingRecord::Aging(_) => OfferResult::OnDisk,
                    // Memory still has it.
                    ExistingRecord::Different(_) if offer.reason == OfferReason::Early => refused,
                    ExistingRecord::Different(_) => {
                        self.erase_key(offer.key);
                        refused
                    }
                    // What was on disk before a start may yet be read in.
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

    /// The disk that has room for Data that may be stored.
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

    /// What is on disk under the key of Data that is offered.
    fn existing_record(&mut self, offer: &Offer<'_>) -> ExistingRecord {
        let Some(place) = self.find(offer.key) else { return ExistingRecord::Absent };
        if let Some(at) = self.pending.find(place) {
            let is_same = *self.pending.get(at).packet == **offer.packet;
            return if is_same {
                ExistingRecord::Queued(at)
            } else {
                ExistingRecord::Different(place)
            };
        }
        if offer.is_unverified {
            return ExistingRecord::Different(place);
        }
        let device = &self.devices[usize::from(place.disk())];
        let is_due_again = offer.was_used && device.is_evicted_soon(place);
        match (self.fingerprints.find(offer.key).is_some(), is_due_again) {
            // Before a stop there is no later chance to compare it.
            (true, false) if offer.reason == OfferReason::Shutdown => {
                ExistingRecord::Unverified(place)
            }
            (true, true) => ExistingRecord::Unverified(place),
            (_, false) => ExistingRecord::Same,
            (false, true) => ExistingRecord::Aging(place),
        }
    }

    /// From now on only this Data is served under this key, if there is room to note so.
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

    /// Removes some fingerprints whose records are gone.
    fn forget_stale_fingerprints(&mut self) {
        for _ in 0..STALE_FINGERPRINTS_STEPS {
            let Some(key) = self.fingerprints.next_in_turn() else { return };
            if !self.is_recovering() && self.find(key).is_none() {
                self.fingerprints.remove(key);
            }
        }
    }

    /// The disk with the fewest records waiting that takes any, ties in turn.
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
            // One that does not answer is better than none: stalls end.
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

    /// Octets of records that may wait for one disk: its share, so that a disk that does not answer
    /// leaves the others theirs.
    #[inline]
    pub(crate) fn device_backlog_max(&self) -> u64 {
        self.config.write_backlog_bytes_max / self.devices.len().max(1) as u64
    }

    /// Makes room for a packet of `len` octets in the region that a disk fills, after all erasures
    /// that wait for it.
    fn prepare_append(&mut self, now: Instant, disk: usize, len: usize) -> bool {
        let size = self.devices[disk].record_bytes(len);
        self.append_erasures(now, disk)
            && self.ensure_region_space(now, disk, size, RECORD_BYTES_MAX)
    }

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

    /// Notes in the log what was erased. Says whether nothing is left to note.
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

    /// Puts Data into the region that is being filled, which has room. Returns the pending record.
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
        let Some(log) = &mut device.open else { unreachable!("room was made") };
        let (region, at) = (log.region, log.write_offset);
        let (mut path, mut prefixes) = (Some(path), mem::take(&mut self.path));
        prefixes.clear();
        if !log.checkpoint.knows(key.object)
            && let Some(path) = path.take()
        {
            path(&mut prefixes);
        }
        let (at_units, units) = ((at / SECTOR_BYTES) as u32, (size / SECTOR_BYTES) as u8);
        log.checkpoint.record(key, &prefixes, at_units, units);
        let place = device.address(disk as u8, region, at, size);
        device.regions[region as usize].records += 1;
        device.regions[region as usize].bytes += size;
        let append_path = |out: &mut Vec<u64>| match path.take() {
            Some(path) => path(out),
            None => out.extend_from_slice(&prefixes),
        };
        let before = self.catalog.insert(key, place, append_path, || object_name(packet));
        self.path = prefixes;
        self.on_indexed(disk, key, before);
        if (self.fingerprints.remove(key) || is_unverified) && self.is_recovering() {
            self.supersede(disk, key);
        }
        let packet = packet.share();
        let is_evicted = false;
        let pending = Pending {
            is_evicted,
            key,
            address: place,
            packet: packet.clone(),
            fresh_until_unix_ms,
        };
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
        if let Some(log) = &mut device.open {
            log.write_offset += size;
        }
        self.sweep(disk, size);
        pending
    }

    /// A record on `disk` is in the index, in place of the one at `existing_record`.
    #[inline]
    fn on_indexed(&mut self, disk: usize, key: Key, before: Option<RecordAddress>) {
        let Some(before) = before else { return };
        self.uncount_record(before);
        if usize::from(before.disk()) != disk && self.may_come_back(before) {
            self.devices[usize::from(before.disk())].erase(Erasure::Key(key));
        }
    }

    /// What has yet to be read in under this key is older than what was just appended to a disk.
    fn supersede(&mut self, disk: usize, key: Key) {
        self.erase_unindexed(Erasure::Key(key));
        for (other, device) in self.devices.iter_mut().enumerate() {
            if other != disk && self.recovery.may_index(other) {
                device.erase(Erasure::Key(key));
            }
        }
    }

    /// Goes on through the index for stale entries, in step with what was appended to a disk: fast
    /// enough to come around in less than an eighth of the log, and twice before any disk's own log
    /// comes around, however small it is beside the others. So stale entries are gone before the
    /// low bits of a sequence number come again.
    pub(super) fn sweep(&mut self, disk: usize, appended: u64) {
        let round = self.catalog.round_steps() as u128 + 1;
        let of_all = 10 * u128::from(appended) * round / u128::from(self.log_bytes.max(1));
        let own_bytes = self.devices[disk].geometry.log_bytes().max(1);
        let of_own = 2 * u128::from(appended) * round / u128::from(own_bytes);
        let steps = of_all.max(of_own) + 1;
        let Self { catalog, devices, .. } = self;
        catalog.sweep(steps as usize, |_, place| {
            let device = devices.get(usize::from(place.disk()));
            device.is_some_and(|device| device.may_be_recovered(place))
        });
    }

    /// New Data has come that RAM did not have: the record on disk under its name may be other
    /// Data.
    pub(crate) fn on_new_data(&mut self, key: Key, wire: &[u8]) -> Comparison {
        if self.catalog.is_ruled_out(key) && !self.is_recovering() {
            self.reads.invalidate(key);
            return Comparison::NotNeeded;
        }
        let place = self.find(key);
        match place.and_then(|place| self.pending.find(place)) {
            Some(at) if *self.pending.get(at).packet == *wire => {}
            Some(_) => {
                self.erase_key(key);
            }
            None if place.is_some() || self.is_recovering() => {
                return self.record_fingerprint(key, wire);
            }
            // The region of the record may have been reused since a read of it was begun.
            None => self.reads.invalidate(key),
        }
        Comparison::NotNeeded
    }

    /// Data of this name that is not stored has come, and the record cannot be compared with it.
    pub(crate) fn erase_unverified(&mut self, key: Key) {
        let was_there = self.erase_key(key);
        self.stats.superseded += u64::from(was_there);
    }

    /// What was stored under this key is not to be served again, now or after a restart. Says
    /// whether there was anything.
    pub(crate) fn erase_key(&mut self, key: Key) -> bool {
        self.fingerprints.remove(key);
        self.reads.invalidate(key);
        let place = self.find_recoverable(key);
        let was_there = place.is_some_and(|place| self.is_valid(place));
        if let Some(place) = place {
            self.remove_from_index(key, place);
        }
        self.log_erasure(key, place);
        was_there
    }

    /// Has it noted on disk that what is there under this key, or may be, was erased.
    fn log_erasure(&mut self, key: Key, place: Option<RecordAddress>) {
        self.erase_unindexed(Erasure::Key(key));
        for (disk, device) in self.devices.iter_mut().enumerate() {
            let is_its = place.is_some_and(|place| usize::from(place.disk()) == disk);
            if is_its || self.recovery.may_index(disk) {
                device.erase(Erasure::Key(key));
            }
        }
    }

    /// Gives up a record that is there and cannot be served, so that nothing else of its name that
    /// is written elsewhere is ever taken for older.
    pub(super) fn discard_record(&mut self, key: Key, place: RecordAddress) {
        if !self.is_valid(place) || !self.remove_from_index(key, place) {
            return;
        }
        let device = &mut self.devices[usize::from(place.disk())];
        let (region, at) = device.locate(place);
        let end = (at / SECTOR_BYTES) as u32 + u32::from(place.sectors());
        let before = (device.regions[region].sequence, end);
        device.erase_before(Erasure::Key(key), Some(before));
    }

    pub(crate) fn erase_by_command(&mut self, key: Key) -> bool {
        let was_there = self.erase_key(key);
        self.stats.erasures += u64::from(was_there);
        was_there
    }

    /// Erases what is at or below a prefix, `truncate` at most, and says how many that were.
    pub(crate) fn erase_below(&mut self, prefix: Option<u64>, limit: usize) -> usize {
        // A record that made room since its read was begun is not in the index any more, so nobody
        // can tell whether it is among them.
        self.reads.invalidate_all();
        let mut erased = 0;
        while erased < limit {
            // Stale entries among them count for nothing.
            let removed = self.catalog.remove_below(prefix, limit - erased);
            let is_all = removed.len() < limit - erased;
            for (key, place) in removed {
                let (is_valid, may_come_back) = (self.is_valid(place), self.may_come_back(place));
                self.uncount_record(place);
                if may_come_back && !is_all {
                    self.log_erasure(key, Some(place));
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
