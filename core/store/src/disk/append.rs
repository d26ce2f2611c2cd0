//! What goes onto the disks, and what is taken off them.

use super::checkpoint::{Erasure, RECORD_BYTES_MAX};
use super::config::Admission;
use super::device::{Region, Reused};
use super::op::WritePart;
use super::pending::Pending;
use super::place::{Key, Place, UNIT_BYTES};
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
    pub(crate) urgency: Urgency,
}

/// Why Data is offered now.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Urgency {
    /// The disk has time. What is refused is not counted: it will be offered again.
    Early,
    /// RAM evicts it.
    Due,
    /// The router stops: the bounds of the queues do not hold.
    Forced,
}

/// What became of Data that was offered.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Offered {
    /// It is on disk, or Data is that will be compared with it.
    OnDisk,
    /// It waits to be written, as this pending record.
    Waiting(u32),
    /// It is not stored: admission or the size of disks and index say so.
    Refused,
    /// It is not stored: disks are too slow, or do not answer.
    Lost,
}

/// What is on disk under the key of Data that is offered.
#[derive(Copy, Clone)]
enum Before {
    Nothing,
    /// The same waits to be written, as this pending record.
    Waiting(u32),
    /// The same, or it will be compared when it is read: it need not be written.
    Same,
    /// The same, but it will soon make room: it is to be written anew, and to the same disk, where
    /// a note that it was erased holds for both.
    Due(Place),
    Other(Place),
    /// The same or other Data.
    Perhaps(Place),
}

/// Whether Data that has come can be compared with the record on disk under its name later.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Comparison {
    /// There is no record that may differ.
    Needless,
    /// A fingerprint of the Data is kept.
    Possible,
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
    ) -> Offered {
        let before = self.before(&offer);
        match before {
            Before::Same => return Offered::OnDisk,
            Before::Waiting(at) => return Offered::Waiting(at),
            Before::Nothing | Before::Due(_) | Before::Other(_) | Before::Perhaps(_) => {}
        }
        // On one disk what is newer counts, so that nothing is lost if it dies between a note of
        // what was erased and what was written instead.
        let only = match before {
            Before::Due(place) | Before::Perhaps(place) | Before::Other(place) => {
                Some(usize::from(place.disk()))
            }
            Before::Nothing | Before::Same | Before::Waiting(_) => None,
        };
        let disk = match self.admit(now, &offer, only) {
            Ok(disk) => disk,
            Err(refusal) => {
                let refused = match refusal {
                    Refusal::Busy => Offered::Lost,
                    Refusal::NotAdmitted | Refusal::NoRoom => Offered::Refused,
                };
                return match before {
                    Before::Perhaps(_) | Before::Due(_) => Offered::OnDisk,
                    // Memory still has it.
                    Before::Other(_) if offer.urgency == Urgency::Early => refused,
                    Before::Other(_) => {
                        self.erase_key(offer.key);
                        refused
                    }
                    // What was on disk before a start may yet be read in.
                    Before::Nothing if offer.is_unverified && offer.urgency != Urgency::Early => {
                        self.erase_key(offer.key);
                        refused
                    }
                    Before::Nothing | Before::Same | Before::Waiting(_) => refused,
                };
            }
        };
        if matches!(before, Before::Perhaps(_) | Before::Other(_)) {
            self.reads.outdate(offer.key);
        }
        Offered::Waiting(self.append(now, disk, offer, path))
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
                Ok(disk) if self.make_room(now, disk, offer.packet.len()) => return Ok(disk),
                Ok(_) => Refusal::Busy,
                Err(refusal) => refusal,
            }
        };
        if offer.urgency != Urgency::Early {
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
    fn before(&mut self, offer: &Offer<'_>) -> Before {
        let Some(place) = self.find(offer.key) else { return Before::Nothing };
        if let Some(at) = self.pending.find(place) {
            let is_same = *self.pending.get(at).packet == **offer.packet;
            return if is_same { Before::Waiting(at) } else { Before::Other(place) };
        }
        if offer.is_unverified {
            return Before::Other(place);
        }
        let device = &self.devices[usize::from(place.disk())];
        let is_due_again = offer.was_used && device.will_go_soon(place);
        match (self.fingerprints.find(offer.key).is_some(), is_due_again) {
            // Before a stop there is no later chance to compare it.
            (true, false) if offer.urgency == Urgency::Forced => Before::Perhaps(place),
            (true, true) => Before::Perhaps(place),
            (_, false) => Before::Same,
            (false, true) => Before::Due(place),
        }
    }

    /// From now on only this Data is served under this key, if there is room to note so.
    fn note(&mut self, key: Key, wire: &[u8]) -> Comparison {
        let fingerprint = self.config.hash_key.hash(wire);
        if self.fingerprints.insert(key, fingerprint) {
            return Comparison::Possible;
        }
        self.forget_stale_fingerprints();
        if self.fingerprints.insert(key, fingerprint) {
            return Comparison::Possible;
        }
        self.reads.outdate(key);
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
            if !device.is_of_use() || !device.fits_empty(device.record_bytes(len), RECORD_BYTES_MAX)
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
            if device.bytes_waiting >= backlog_max && offer.urgency != Urgency::Forced {
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
    fn make_room(&mut self, now: Instant, disk: usize, len: usize) -> bool {
        let size = self.devices[disk].record_bytes(len);
        self.append_erasures(now, disk) && self.ensure_room(now, disk, size, RECORD_BYTES_MAX)
    }

    fn ensure_room(&mut self, now: Instant, disk: usize, size: u64, growth: usize) -> bool {
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
        let Reused { before: Region { records, .. }, batch } = reused;
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
            if !self.ensure_room(now, disk, size, growth) {
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
        let (region, at) = (log.region, log.at);
        let (mut path, mut prefixes) = (Some(path), mem::take(&mut self.path));
        prefixes.clear();
        if !log.checkpoint.knows(key.object)
            && let Some(path) = path.take()
        {
            path(&mut prefixes);
        }
        let (at_units, units) = ((at / UNIT_BYTES) as u32, (size / UNIT_BYTES) as u8);
        log.checkpoint.record(key, &prefixes, at_units, units);
        let place = device.place(disk as u8, region, at, size);
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
        let pending =
            Pending { is_evicted, key, place, packet: packet.clone(), fresh_until_unix_ms };
        let pending = self.insert_pending(pending);
        let write_bytes_max = u64::from(self.config.write_bytes_max);
        let device = &mut self.devices[disk];
        let batch = device.batch_for(now, size, write_bytes_max, &mut self.tickets);
        debug_assert_eq!(batch.at + batch.len, at);
        batch.len += size;
        batch.parts.push(WritePart::Data { packet, fresh_until_unix_ms });
        batch.records.push(pending);
        if batch.len >= write_bytes_max {
            device.finish_batch();
        }
        if let Some(log) = &mut device.open {
            log.at += size;
        }
        self.sweep(disk, size);
        pending
    }

    /// A record on `disk` is in the index, in place of the one at `before`.
    #[inline]
    fn on_indexed(&mut self, disk: usize, key: Key, before: Option<Place>) {
        let Some(before) = before else { return };
        self.uncount(before);
        if usize::from(before.disk()) != disk && self.may_come_back(before) {
            self.devices[usize::from(before.disk())].erase(Erasure::Key(key));
        }
    }

    /// What has yet to be read in under this key is older than what was just appended to a disk.
    fn supersede(&mut self, disk: usize, key: Key) {
        self.erase_unread(Erasure::Key(key));
        for (other, device) in self.devices.iter_mut().enumerate() {
            if other != disk && self.recovery.takes_in(other) {
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
            device.is_some_and(|device| device.may_come_back(place))
        });
    }

    /// New Data has come that RAM did not have: the record on disk under its name may be other
    /// Data.
    pub(crate) fn on_new(&mut self, key: Key, wire: &[u8]) -> Comparison {
        if self.catalog.is_ruled_out(key) && !self.is_recovering() {
            self.reads.outdate(key);
            return Comparison::Needless;
        }
        let place = self.find(key);
        match place.and_then(|place| self.pending.find(place)) {
            Some(at) if *self.pending.get(at).packet == *wire => {}
            Some(_) => {
                self.erase_key(key);
            }
            None if place.is_some() || self.is_recovering() => return self.note(key, wire),
            // The region of the record may have been reused since a read of it was begun.
            None => self.reads.outdate(key),
        }
        Comparison::Needless
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
        self.reads.outdate(key);
        let place = self.find_at_all(key);
        let was_there = place.is_some_and(|place| self.is_valid(place));
        if let Some(place) = place {
            self.remove_from_index(key, place);
        }
        self.note_erased(key, place);
        was_there
    }

    /// Has it noted on disk that what is there under this key, or may be, was erased.
    fn note_erased(&mut self, key: Key, place: Option<Place>) {
        self.erase_unread(Erasure::Key(key));
        for (disk, device) in self.devices.iter_mut().enumerate() {
            let is_its = place.is_some_and(|place| usize::from(place.disk()) == disk);
            if is_its || self.recovery.takes_in(disk) {
                device.erase(Erasure::Key(key));
            }
        }
    }

    /// Gives up a record that is there and cannot be served, so that nothing else of its name that
    /// is written elsewhere is ever taken for older.
    pub(super) fn give_up(&mut self, key: Key, place: Place) {
        if !self.is_valid(place) || !self.remove_from_index(key, place) {
            return;
        }
        let device = &mut self.devices[usize::from(place.disk())];
        let (region, at) = device.locate(place);
        let end = (at / UNIT_BYTES) as u32 + u32::from(place.units());
        let before = (device.regions[region].sequence, end);
        device.erase_before(Erasure::Key(key), Some(before));
    }

    pub(crate) fn erase_by_command(&mut self, key: Key) -> bool {
        let was_there = self.erase_key(key);
        self.stats.erasures += u64::from(was_there);
        was_there
    }

    /// Erases what is at or below a prefix, `limit` at most, and says how many that were.
    pub(crate) fn erase_below(&mut self, prefix: Option<u64>, limit: usize) -> usize {
        // A record that made room since its read was begun is not in the index any more, so nobody
        // can tell whether it is among them.
        self.reads.outdate_all();
        let mut erased = 0;
        while erased < limit {
            // Stale entries among them count for nothing.
            let removed = self.catalog.remove_below(prefix, limit - erased);
            let is_all = removed.len() < limit - erased;
            for (key, place) in removed {
                let (is_valid, may_come_back) = (self.is_valid(place), self.may_come_back(place));
                self.uncount(place);
                if may_come_back && !is_all {
                    self.note_erased(key, Some(place));
                }
                if is_valid {
                    erased += 1;
                    self.fingerprints.remove(key);
                }
            }
            if is_all {
                self.erase_unread(Erasure::Below(prefix));
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
