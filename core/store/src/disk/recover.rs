//! Recovery: rebuilds the index from the disks after a start.
//!
//! The disks hold no copy of the index, only regions. Recovery reads as little as possible: two
//! blocks and a checkpoint for each region that was closed, and whole regions only where these are
//! missing. Several disks recover at the same time and independently.
//!
//! 1. **Ends** ([`Stage::Ends`]). Read the first and the last block of every region: header and
//!    footer.
//!
//!    | header | footer | the region |
//!    |---|---|---|
//!    | valid | valid, same sequence number | was closed: read its checkpoint |
//!    | valid | else | was being written: scan it |
//!    | not valid | anything but zeros, in either block | age unknown: scan it |
//!    | zeros | zeros | empty: skip it |
//!
//! 2. **Unknown ages** ([`Stage::UnknownAges`]). Scan the regions without a valid header first,
//!    since the order of step 3 needs their sequence numbers. A scan reads a region in chunks of
//!    256 KiB (`scan.rs`) and collects the records of the highest sequence number that it meets.
//! 3. **Indexing** ([`Stage::Indexing`]). Take the regions of a disk newest first, and the items of
//!    each region last to first. So the first record found for a name is the valid one.
//!    - *An erasure* names a key or a prefix and a position in the log: what was appended before
//!      that position is void. Remember it.
//!    - *A record* is skipped if a remembered erasure covers it, or if the index has its key
//!      already. Otherwise it enters index and filter.
//!
//!    Four regions are read at a time, and a call handles at most [`ITEMS_PER_STEP`] items.
//! 4. **Continuation.** A disk takes writes again once its newest region is indexed. If that region
//!    was scanned and has space left, the log continues in it. Any other scanned region gets the
//!    checkpoint that it lacks.
//!
//! Example: region 5 (sequence 9, no footer) holds record A, then an erasure of B. Region 2
//! (sequence 8, with a checkpoint) holds B, then A. Region 5 is scanned and comes first: the
//! erasure of B is remembered, and A is indexed in region 5. In region 2, the older A is skipped
//! because A is known. B is skipped because its position (8, ...) lies before that of the erasure
//! (9, ...).
//!
//! While a disk recovers, the store may erase or replace names whose records have not been read
//! yet. `erase_unindexed` remembers these with the highest position, so recovery skips their
//! records later. After [`ERASED_MAX`] of them recovery abandons the rest of the disk, to limit
//! memory. It does the same when the index is full. It then logs an erasure of everything up to
//! that position; otherwise a later start would bring old records back.
//!
//! If two disks hold a record of the same key, the one found first wins. The other disk logs an
//! erasure of its copy.
//!
//! Recovery must never index a record that was erased or replaced, delay one disk because of
//! another, or make a lookup wait.

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

/// Attempts for a read that fails.
const ATTEMPTS_MAX: u32 = 3;
/// Most erasures since the start that recovery remembers for a disk. Beyond the limit, it abandons
/// the rest of the disk.
const ERASED_MAX: usize = if cfg!(test) { 1 << 11 } else { 1 << 18 };
/// Items of one disk that a call indexes before other work gets a turn.
const ITEMS_PER_STEP: usize = 1024;

impl DiskTier {
    /// The next read of recovery, if it may have another one in progress. Recovery uses a quarter
    /// of the disk's depth, at most 32 reads.
    pub(super) fn next_recovery_read(&mut self, disk: usize) -> Option<(OpPurpose, DiskOpKind)> {
        let share = (self.config.depth / 4).clamp(1, 32);
        let recovery = self.recovery.disks.get_mut(disk)?;
        if recovery.reading >= share {
            return None;
        }
        let (read, attempts) = recovery.next_read()?;
        recovery.reading += 1;
        let tag = self.recovery.requests.insert(RecoveryRequest { disk, read, attempts });
        let device = &self.devices[disk];
        let block_bytes = device.geometry.block_bytes;
        let (region, at, len) = match read {
            RecoveryRead::Header(region) => (region, 0, block_bytes),
            RecoveryRead::Footer(region) => {
                (region, device.geometry.region_bytes - u64::from(block_bytes), block_bytes)
            }
            RecoveryRead::Job(region) => {
                let context = self.context(disk, region);
                let jobs = &self.recovery.disks[disk].jobs;
                let job = jobs.iter().find(|job| job.region == region);
                let next_range = job.and_then(|job| match &job.source {
                    ContentSource::Checkpoint { at, len } => Some((*at, *len)),
                    ContentSource::Scan(scan) => scan.next_read(&context),
                });
                // A job that needs no more reads has its contents already, so it is never chosen.
                let (at, len) = next_range.unwrap_or((0, block_bytes));
                (region, at, len)
            }
        };
        let kind = DiskOpKind::ReadRaw { offset: device.offset(region, at), len };
        Some((OpPurpose::Recovery(tag), kind))
    }

    fn context(&self, disk: usize, region: u32) -> RegionContext {
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
        let RecoveryRequest { disk, read, attempts } = self.recovery.requests.remove(tag);
        let Some(recovery) = self.recovery.disks.get_mut(disk) else { return };
        recovery.reading -= 1;
        let octets = match outcome {
            DiskOutcome::Raw(octets) => Some(octets),
            _ => {
                self.stats.read_errors += 1;
                if attempts + 1 < ATTEMPTS_MAX {
                    recovery.retries.push((read, attempts + 1));
                    return;
                }
                None
            }
        };
        match read {
            RecoveryRead::Header(region) => self.on_header(disk, region, octets.as_deref()),
            RecoveryRead::Footer(region) => self.on_footer(disk, region, octets.as_deref()),
            RecoveryRead::Job(region) => self.on_job_read(disk, region, octets.as_deref()),
        }
        self.continue_recovery();
    }

    fn on_header(&mut self, disk: usize, region: u32, octets: Option<&[u8]>) {
        let RegionContext { store_id, checksum, offset, .. } = self.context(disk, region);
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
            self.context(disk, region);
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
                // The checkpoint must end where the footer begins.
                let is_sensible = begin.checked_add(len) == Some(at) && len >= HEADER_BYTES as u64;
                ends.footer = is_sensible.then_some((record.sequence, begin, len as u32));
            }
            _ => ends.has_invalid_bytes |= has_nonzero_bytes(octets),
        }
        if is_damaged(opened) {
            self.count_unreadable(disk, region);
        }
    }

    /// Counts an unreadable region, but only once.
    fn count_unreadable(&mut self, disk: usize, region: u32) {
        let ends = &mut self.recovery.disks[disk].ends[region as usize];
        self.stats.regions_unreadable += u64::from(!ends.is_unreadable);
        ends.is_unreadable = true;
    }

    fn on_job_read(&mut self, disk: usize, region: u32, octets: Option<&[u8]>) {
        let context = self.context(disk, region);
        let recovery = &mut self.recovery.disks[disk];
        let ends = recovery.ends[region as usize];
        let mut jobs = recovery.jobs.iter_mut();
        let Some(job) = jobs.find(|job| job.region == region) else { return };
        job.is_reading = false;
        let mut is_unreadable = octets.is_none();
        match &mut job.source {
            ContentSource::Checkpoint { at, .. } => {
                let offset = context.offset + *at;
                let record = octets.and_then(|octets| {
                    record::parse_any(octets, context.store_id, offset, context.checksum).ok()
                });
                let is_it = |record: &record::Record<'_>| {
                    record.kind == RecordKind::Checkpoint && record.sequence == job.sequence
                };
                match record.filter(is_it).and_then(|record| RegionContents::decode(record.body)) {
                    Some(contents) => job.set_contents(contents),
                    None => {
                        // Without a valid checkpoint, the region must be scanned.
                        let scan = RegionScan::new(job.sequence, context.block_bytes);
                        job.source = ContentSource::Scan(scan);
                    }
                }
            }
            ContentSource::Scan(scan) => {
                match octets {
                    Some(octets) => scan.read(octets, &context),
                    // Continue behind the unreadable chunk. The region then gets no checkpoint.
                    None => scan.skip(&context),
                }
                if scan.next_read(&context).is_none() {
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

    /// Does the work that needs no disk, up to a limit.
    pub(super) fn continue_recovery(&mut self) {
        if self.recovery.is_finished() {
            return;
        }
        let count = self.recovery.disks.len();
        for disk in 0..count {
            self.advance_stage(disk);
            // A disk need not wait for others: sequence numbers are compared only within a disk.
            if self.recovery.disks[disk].stage == Stage::Indexing {
                self.index_regions(disk);
            }
        }
        for disk in self.recovery.disks.iter_mut().filter(|disk| !disk.may_index()) {
            disk.erased.clear();
        }
        if self.recovery.disks.iter().all(DiskRecovery::is_finished) {
            self.recovery.disks = Vec::new();
        }
    }

    /// Enters the next stage, once everything that it needs is known.
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
            // Keep only the regions of unknown age in `jobs`, to be scanned first.
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

    /// Remembers an erasure, so that recovery skips records of it that are not indexed yet.
    pub(super) fn erase_unindexed(&mut self, erasure: Erasure) {
        for disk in 0..self.recovery.disks.len() {
            let recovery = &mut self.recovery.disks[disk];
            if !recovery.may_index() {
                continue;
            }
            // The highest position covers every record that recovery has yet to read.
            if recovery.erased.insert(erasure, (u32::MAX, u32::MAX)).is_none() {
                recovery.erased_since_start += 1;
            }
            if recovery.erased_since_start > ERASED_MAX {
                let last = recovery.last_indexed();
                // Until the disk is ready, all its records are older than the start. Then an
                // erasure of everything cannot hit new ones.
                self.abandon_rest(disk, last.filter(|_| self.devices[disk].is_ready));
            }
        }
    }

    /// Stops indexing a disk, and logs an erasure of everything before a position. With `None`, the
    /// position is where the erasure will be logged.
    fn abandon_rest(&mut self, disk: usize, before: Option<LogPosition>) {
        let recovery = &mut self.recovery.disks[disk];
        recovery.is_abandoned = true;
        recovery.erased.clear();
        self.devices[disk].erase_before(Erasure::Below(None), before);
    }

    /// Indexes the regions of a disk whose contents are known, newest first. Stops at the first
    /// region that has not been read: an older one must not come before it.
    fn index_regions(&mut self, disk: usize) {
        let mut budget = ITEMS_PER_STEP;
        while let Some(mut job) = self.recovery.disks[disk].jobs.pop_front() {
            if job.contents.is_none() {
                // The log can continue only once the end of the newest region is known. A region
                // with a checkpoint is closed, so another one will be opened.
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
        let region = &mut self.devices[disk].regions[job.region as usize];
        // A scan may have found a later use of the region than its header says.
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
                RegionItem::Record { key, node, at_sectors, sectors } => {
                    self.path.clear();
                    contents.path(node, &mut self.path);
                    self.index_record(disk, job.region, key, at_sectors, sectors);
                }
            }
        }
    }

    fn index_record(&mut self, disk: usize, region: u32, key: Key, at_sectors: u32, sectors: u8) {
        let device = &self.devices[disk];
        let (at, size) = (u64::from(at_sectors) * SECTOR_BYTES, u64::from(sectors) * SECTOR_BYTES);
        let is_sensible = size > 0
            && at + size <= device.geometry.region_bytes
            && (at | size).is_multiple_of(device.geometry.block_bytes.into());
        let position = (device.regions[region as usize].sequence, at_sectors);
        if !is_sensible || self.recovery.disks[disk].is_erased(key, &self.path, position) {
            return;
        }
        let address = device.address(disk as u8, region, at, size);
        let end = (position.0, at_sectors + u32::from(sectors));
        if let Some(known) = self.find_recoverable(key) {
            // On the same disk, the known record is newer. On another disk it wins, too, and this
            // record must not return once the known one is gone.
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
        let before = self.catalog.insert(key, address, append_path, Vec::new);
        debug_assert!(before.is_none());
        let region = &mut self.devices[disk].regions[region as usize];
        region.records += 1;
        region.bytes += size;
        self.stats.recovered += 1;
    }

    /// Finishes a region that was scanned. If it is the newest of its disk, the log continues in
    /// it. Otherwise it gets the checkpoint that it lacks.
    fn on_region_indexed(&mut self, disk: usize, job: RegionJob) {
        let ContentSource::Scan(scan) = job.source else { return };
        let device = &mut self.devices[disk];
        // A region with unreadable chunks is left as it is, until it is reused.
        if scan.has_gaps || !device.is_usable() {
            return;
        }
        let has_header =
            self.recovery.disks[disk].ends[job.region as usize].header == Some(job.sequence);
        let writer = RegionWriter {
            region: job.region,
            sequence: job.sequence,
            write_offset: scan.end,
            checkpoint: scan.checkpoint,
            has_header,
            writes: 0,
            has_failed: false,
            is_sealed: false,
        };
        if !device.has_room(writer.write_offset, writer.checkpoint.len(), 0, 0) {
            return;
        }
        // `is_ready` means that a newer region was handled before.
        if device.is_ready || !has_header {
            device.closing.push(writer);
        } else {
            device.open = Some(writer);
        }
    }
}

/// Whether a block of this store is damaged or unreadable. Bytes from before the store's first use
/// of the disk do not count.
fn is_damaged(opened: Option<Result<record::Record<'_>, RecordFault>>) -> bool {
    opened.is_none_or(|opened| matches!(opened, Err(RecordFault::Checksum)))
}

/// Whether the bytes hold anything but zeros, or could not be read.
fn has_nonzero_bytes(octets: Option<&[u8]>) -> bool {
    octets.is_none_or(|octets| octets.iter().any(|&octet| octet != 0))
}
