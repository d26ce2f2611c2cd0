//! How what is on the disks is found again at a start.
//!
//! First the two ends of every region are read: its header says of which use it is, its footer
//! where the checkpoint is. Regions without a checkpoint are read whole. Of each disk the newest
//! region is taken in first: what it erases or replaces is never taken in from an older one, and
//! lookups may go on all the time with what is known so far.

use super::address::{Key, SECTOR_BYTES};
use super::checkpoint::{Erasure, LogPosition, LoggedErasure, RegionContents, RegionItem};
use super::device::RegionWriter;
use super::op::{DiskOpKind, DiskOutcome, RecordFault};
use super::operations::OpPurpose;
use super::record::{self, HEADER_BYTES, RecordKind};
use super::recovery_state::{
    ContentSource, DiskRecovery, RecoveryRead, RecoveryRequest, RegionJob, Stage,
};
use super::scan::{RegionContext, RegionScan};
use super::tier::DiskTier;
use alloc::vec::Vec;

/// How often a read is tried that the system fails.
const ATTEMPTS_MAX: u32 = 3;
/// Erasures since the start that are kept for what has yet to be taken in of a disk. Beyond it
/// nothing more of it is.
const ERASED_MAX: usize = if cfg!(test) { 1 << 11 } else { 1 << 18 };
/// Records that are taken in before others get a turn.
const ITEMS_PER_STEP: usize = 1024;

impl DiskTier {
    /// The next read of the recovery, if it may have one.
    pub(super) fn next_recovery_read(&mut self, disk: usize) -> Option<(OpPurpose, DiskOpKind)> {
        let share = (self.config.depth / 4).clamp(1, 32);
        let recovery = self.recovery.disks.get_mut(disk)?;
        if recovery.reading >= share {
            return None;
        }
        let (what, attempts) = recovery.next_read()?;
        recovery.reading += 1;
        let tag = self.recovery.requests.insert(RecoveryRequest { disk, read: what, attempts });
        let device = &self.devices[disk];
        let block_bytes = device.geometry.block_bytes;
        let (region, at, len) = match what {
            RecoveryRead::Header(region) => (region, 0, block_bytes),
            RecoveryRead::Footer(region) => {
                (region, device.geometry.region_bytes - u64::from(block_bytes), block_bytes)
            }
            RecoveryRead::Job(region) => {
                let medium = self.medium(disk, region);
                let jobs = &self.recovery.disks[disk].jobs;
                let job = jobs.iter().find(|job| job.region == region);
                let part = job.and_then(|job| match &job.source {
                    ContentSource::Checkpoint { at, len } => Some((*at, *len)),
                    ContentSource::Scan(scan) => scan.next_read(&medium),
                });
                // A job that asks for nothing more has its contents.
                let (at, len) = part.unwrap_or((0, block_bytes));
                (region, at, len)
            }
        };
        let kind = DiskOpKind::ReadRaw { offset: device.offset(region, at), len };
        Some((OpPurpose::Recovery(tag), kind))
    }

    fn medium(&self, disk: usize, region: u32) -> RegionContext {
        let device = &self.devices[disk];
        RegionContext {
            store_id: device.store_id,
            checksum: device.checksum,
            hash_key: self.config.hash_key,
            offset: device.offset(region, 0),
            region_bytes: device.geometry.region_bytes,
            block_bytes: device.geometry.block_bytes,
        }
    }

    pub(super) fn on_recovery_read(&mut self, tag: u32, outcome: DiskOutcome) {
        let RecoveryRequest { disk, read: what, attempts } = self.recovery.requests.remove(tag);
        let Some(recovery) = self.recovery.disks.get_mut(disk) else { return };
        recovery.reading -= 1;
        let octets = match outcome {
            DiskOutcome::Raw(octets) => Some(octets),
            _ => {
                self.stats.read_errors += 1;
                if attempts + 1 < ATTEMPTS_MAX {
                    recovery.retries.push((what, attempts + 1));
                    return;
                }
                None
            }
        };
        match what {
            RecoveryRead::Header(region) => self.on_header(disk, region, octets.as_deref()),
            RecoveryRead::Footer(region) => self.on_footer(disk, region, octets.as_deref()),
            RecoveryRead::Job(region) => self.on_job_read(disk, region, octets.as_deref()),
        }
        self.continue_recovery();
    }

    fn on_header(&mut self, disk: usize, region: u32, octets: Option<&[u8]>) {
        let RegionContext { store_id, checksum, offset, .. } = self.medium(disk, region);
        let ends = &mut self.recovery.disks[disk].ends[region as usize];
        let opened = octets.map(|octets| record::parse_any(octets, store_id, offset, checksum));
        match opened {
            Some(Ok(record)) if record.kind == RecordKind::Region => {
                ends.header = Some(record.sequence)
            }
            _ => ends.has_invalid_bytes |= has_nonzero_bytes(octets),
        }
        if is_damaged(opened) {
            self.count_unreadable(disk, region);
        }
    }

    fn on_footer(&mut self, disk: usize, region: u32, octets: Option<&[u8]>) {
        let RegionContext { store_id, checksum, offset, region_bytes, block_bytes, .. } =
            self.medium(disk, region);
        let ends = &mut self.recovery.disks[disk].ends[region as usize];
        let at = region_bytes - u64::from(block_bytes);
        let opened =
            octets.map(|octets| record::parse_any(octets, store_id, offset + at, checksum));
        match opened {
            Some(Ok(record)) if record.kind == RecordKind::Footer && record.body.len() == 16 => {
                let word = |at: usize| {
                    record.body[at..at + 8]
                        .iter()
                        .rev()
                        .fold(0, |word, &octet| word << 8 | u64::from(octet))
                };
                let (begin, len) = (word(0), word(8));
                let is_sensible = begin.checked_add(len) == Some(at) && len >= HEADER_BYTES as u64;
                ends.footer = is_sensible.then_some((record.sequence, begin, len as u32));
            }
            _ => ends.has_invalid_bytes |= has_nonzero_bytes(octets),
        }
        if is_damaged(opened) {
            self.count_unreadable(disk, region);
        }
    }

    /// Counts a region once of which something cannot be read.
    fn count_unreadable(&mut self, disk: usize, region: u32) {
        let ends = &mut self.recovery.disks[disk].ends[region as usize];
        self.stats.regions_unreadable += u64::from(!ends.is_unreadable);
        ends.is_unreadable = true;
    }

    fn on_job_read(&mut self, disk: usize, region: u32, octets: Option<&[u8]>) {
        let medium = self.medium(disk, region);
        let recovery = &mut self.recovery.disks[disk];
        let ends = recovery.ends[region as usize];
        let mut jobs = recovery.jobs.iter_mut();
        let Some(job) = jobs.find(|job| job.region == region) else { return };
        job.is_reading = false;
        let mut is_unreadable = octets.is_none();
        match &mut job.source {
            ContentSource::Checkpoint { at, .. } => {
                let offset = medium.offset + *at;
                let record = octets.and_then(|octets| {
                    record::parse_any(octets, medium.store_id, offset, medium.checksum).ok()
                });
                let is_it = |record: &record::Record<'_>| {
                    record.kind == RecordKind::Checkpoint && record.sequence == job.sequence
                };
                match record.filter(is_it).and_then(|record| RegionContents::decode(record.body)) {
                    Some(contents) => job.set_contents(contents),
                    None => {
                        let scan = RegionScan::new(job.sequence, medium.block_bytes);
                        job.source = ContentSource::Scan(scan);
                    }
                }
            }
            ContentSource::Scan(scan) => {
                match octets {
                    Some(octets) => scan.read(octets, &medium),
                    None => scan.skip(&medium),
                }
                if scan.next_read(&medium).is_none() {
                    is_unreadable |= ends.are_damaged(scan);
                    job.sequence = scan.sequence;
                    let contents = scan.checkpoint.contents();
                    job.set_contents(contents);
                }
            }
        }
        if is_unreadable {
            self.count_unreadable(disk, region);
        }
    }

    /// Goes on with what needs no disk, for a while.
    pub(super) fn continue_recovery(&mut self) {
        if self.recovery.is_finished() {
            return;
        }
        let count = self.recovery.disks.len();
        for disk in 0..count {
            self.advance_stage(disk);
            // No disk waits for another: sequence numbers are compared within one.
            if self.recovery.disks[disk].stage == Stage::Indexing {
                self.index_regions(disk);
            }
        }
        for disk in self.recovery.disks.iter_mut().filter(|disk| !disk.may_index()) {
            disk.erased.clear();
        }
        let is_over = |disk: &DiskRecovery| {
            disk.stage == Stage::Indexing && disk.jobs.is_empty() && disk.reading == 0
        };
        if self.recovery.disks.iter().all(is_over) {
            self.recovery.disks = Vec::new();
        }
    }

    /// From one stage to the next, where all that it needs is known.
    fn advance_stage(&mut self, disk: usize) {
        let recovery = &mut self.recovery.disks[disk];
        let device = &mut self.devices[disk];
        let block_bytes = device.geometry.block_bytes;
        let is_at_rest = recovery.reading == 0 && recovery.retries.is_empty();
        if recovery.stage == Stage::Ends {
            if !is_at_rest || (recovery.next_end as usize) < 2 * recovery.ends.len() {
                return;
            }
            for (ends, region) in recovery.ends.iter().zip(0..) {
                recovery.jobs.extend(RegionJob::of(ends, region, block_bytes));
            }
            // First those of which nobody knows how old they are.
            let (unknown, known): (Vec<_>, Vec<_>) =
                recovery.jobs.drain(..).partition(|job| job.sequence == 0);
            recovery.jobs.extend(unknown);
            for job in known {
                device.regions[job.region as usize].sequence = job.sequence;
                self.last_sequence = self.last_sequence.max(job.sequence);
                recovery.known_jobs.push(job);
            }
            recovery.stage = Stage::UnknownAges;
        }
        let is_known = |job: &RegionJob| job.contents.is_some();
        if recovery.stage == Stage::UnknownAges && recovery.jobs.iter().all(is_known) {
            for job in recovery.jobs.drain(..).filter(|job| job.sequence != 0) {
                device.regions[job.region as usize].sequence = job.sequence;
                self.last_sequence = self.last_sequence.max(job.sequence);
                recovery.known_jobs.push(job);
            }
            recovery.known_jobs.sort_unstable_by_key(|job| core::cmp::Reverse(job.sequence));
            recovery.jobs.extend(recovery.known_jobs.drain(..));
            recovery.stage = Stage::Indexing;
            device.update_oldest_eighth();
        }
    }

    /// What is erased now must not be taken in later.
    pub(super) fn erase_unindexed(&mut self, erasure: Erasure) {
        for disk in 0..self.recovery.disks.len() {
            let recovery = &mut self.recovery.disks[disk];
            if !recovery.may_index() {
                continue;
            }
            if recovery.erased.insert(erasure, (u32::MAX, u32::MAX)).is_none() {
                recovery.erased_since_start += 1;
            }
            if recovery.erased_since_start > ERASED_MAX {
                let last = recovery.last_indexed();
                // Until it is ready nothing is on it but what it held before.
                self.abandon_rest(disk, last.filter(|_| self.devices[disk].is_ready));
            }
        }
    }

    /// Takes in nothing more that lies before a position, or before the place where this will be
    /// noted.
    fn abandon_rest(&mut self, disk: usize, before: Option<LogPosition>) {
        let recovery = &mut self.recovery.disks[disk];
        recovery.is_abandoned = true;
        recovery.erased.clear();
        self.devices[disk].erase_before(Erasure::Below(None), before);
    }

    /// Takes in what is known of a disk, newest first.
    fn index_regions(&mut self, disk: usize) {
        let mut budget = ITEMS_PER_STEP;
        while let Some(mut job) = self.recovery.disks[disk].jobs.pop_front() {
            if job.contents.is_none() {
                // Until the newest region is known as far as it was written, it cannot be written
                // on; older ones need no waiting for.
                self.devices[disk].is_ready |=
                    matches!(job.source, ContentSource::Checkpoint { .. });
                self.recovery.disks[disk].jobs.push_front(job);
                return;
            }
            self.index_items(disk, &mut job, &mut budget);
            if job.items_left > 0 {
                self.recovery.disks[disk].jobs.push_front(job);
                return;
            }
            self.on_region_indexed(disk, job);
            self.devices[disk].is_ready = true;
        }
        self.devices[disk].is_ready = true;
    }

    fn index_items(&mut self, disk: usize, job: &mut RegionJob, budget: &mut usize) {
        let Some(contents) = &job.contents else { return };
        // A scan may have found that it is of a later use than its header says.
        let region = &mut self.devices[disk].regions[job.region as usize];
        region.sequence = job.sequence;
        self.last_sequence = self.last_sequence.max(job.sequence);
        while job.items_left > 0 && *budget > 0 {
            job.items_left -= 1;
            *budget -= 1;
            if self.recovery.disks[disk].is_abandoned {
                continue;
            }
            match contents.items[job.items_left] {
                RegionItem::Erased(LoggedErasure { erasure, before }) => {
                    let known = self.recovery.disks[disk].erased.entry(erasure).or_default();
                    *known = before.max(*known);
                }
                RegionItem::Record { key, node, at_sectors: at_units, sectors: units } => {
                    self.path.clear();
                    contents.path(node, &mut self.path);
                    self.index_record(disk, job.region, key, at_units, units);
                }
            }
        }
    }

    fn index_record(&mut self, disk: usize, region: u32, key: Key, at_units: u32, units: u8) {
        let device = &self.devices[disk];
        let (at, size) = (u64::from(at_units) * SECTOR_BYTES, u64::from(units) * SECTOR_BYTES);
        let is_sensible = size > 0
            && at + size <= device.geometry.region_bytes
            && (at | size).is_multiple_of(device.geometry.block_bytes.into());
        let position = (device.regions[region as usize].sequence, at_units);
        if !is_sensible || self.recovery.disks[disk].is_erased(key, &self.path, position) {
            return;
        }
        let place = device.address(disk as u8, region, at, size);
        let end = (position.0, at_units + u32::from(units));
        if let Some(known) = self.find_recoverable(key) {
            // On one disk what is known already is newer. Between two it counts, and the other one
            // must not come back once it is gone.
            if usize::from(known.disk()) != disk {
                self.devices[disk].erase_before(Erasure::Key(key), Some(end));
            }
            return;
        }
        if !self.catalog.has_room_for(key, self.path.len()) {
            self.stats.no_room += 1;
            return self.abandon_rest(disk, Some(end));
        }
        let path = &self.path;
        let append_path = |out: &mut Vec<u64>| out.extend_from_slice(path);
        let before = self.catalog.insert(key, place, append_path, Vec::new);
        debug_assert!(before.is_none());
        let region = &mut self.devices[disk].regions[region as usize];
        region.records += 1;
        region.bytes += size;
        self.stats.recovered += 1;
    }

    /// A region that was read whole is written on if it is the newest of its disk, else it gets its
    /// checkpoint now.
    fn on_region_indexed(&mut self, disk: usize, job: RegionJob) {
        let ContentSource::Scan(scan) = job.source else { return };
        let device = &mut self.devices[disk];
        if scan.has_gaps || !device.is_usable() {
            return;
        }
        let has_header =
            self.recovery.disks[disk].ends[job.region as usize].header == Some(job.sequence);
        let log = RegionWriter {
            region: job.region,
            sequence: job.sequence,
            write_offset: scan.end,
            checkpoint: scan.checkpoint,
            has_header,
            writes: 0,
            has_failed: false,
            is_sealed: false,
        };
        if !device.has_room(log.write_offset, log.checkpoint.len(), 0, 0) {
            return;
        }
        if device.is_ready || !has_header {
            device.closing.push(log);
        } else {
            device.open = Some(log);
        }
    }
}

/// Whether a record of this store should be there and cannot be read. What was there before the
/// store is none.
fn is_damaged(opened: Option<Result<record::Record<'_>, RecordFault>>) -> bool {
    opened.is_none_or(|opened| matches!(opened, Err(RecordFault::Checksum)))
}

/// Whether there is something else than zeros, or nobody can tell.
fn has_nonzero_bytes(octets: Option<&[u8]>) -> bool {
    octets.is_none_or(|octets| octets.iter().any(|&octet| octet != 0))
}
