//! One disk: its regions, the one being filled, and what waits for it.

use super::address::{Key, RecordAddress, SECTOR_BYTES, WHOLE};
use super::checkpoint::{
    CheckpointBuilder, ERASURE_BYTES_MAX, Erasure, LogPosition, LoggedErasure, encode_erased,
};
use super::config::{Checksum, DiskGeometry};
use super::op::{DiskOpId, DiskOpKind, WriteChunk};
use super::queue::Tickets;
use super::record::{self, HEADER_BYTES, RecordKind};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec;
use alloc::vec::Vec;
use core::mem;
use weir_base::Instant;

/// Erasures in one record of them at most.
const ERASURES_PER_RECORD: usize = 1024;
/// Erasures that wait for a disk at most. Beyond it those of segments count for their objects, and
/// where this does not help all that is on the disk will be taken for erased when it is next read
/// in.
const ERASURES_WAITING_MAX: usize = if cfg!(test) { 1 << 12 } else { 1 << 18 };

/// What is known of a region.
#[derive(Copy, Clone, Debug, Default)]
pub(super) struct Region {
    /// Of its present use; 0 when it holds nothing.
    pub(super) sequence: u32,
    /// Of its last use, if it holds nothing.
    pub(super) last_sequence: u32,
    /// Of the use that a start would take it for, while no later header is on disk.
    pub(super) recoverable_as: u32,
    /// Times that its header could not be written, one after another.
    pub(super) failures: u8,
    /// Records in it that the index leads to.
    pub(super) records: u32,
    pub(super) bytes: u64,
}

/// A region that is being filled or closed.
#[derive(Debug)]
pub(super) struct RegionWriter {
    pub(super) region: u32,
    pub(super) sequence: u32,
    /// Where the next record begins in the region.
    pub(super) write_offset: u64,
    pub(super) checkpoint: CheckpointBuilder,
    /// Whether its header is on disk: other writes wait for that, so that a start never takes the
    /// region for what it was before.
    pub(super) has_header: bool,
    /// Writes that have not ended.
    pub(super) writes: u32,
    /// Whether a write failed: then nobody knows what the region holds until it is read.
    pub(super) has_failed: bool,
    /// Whether its checkpoint is on its way.
    pub(super) is_sealed: bool,
}

/// What a write is for.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum BatchContent {
    Header,
    Records,
    Checkpoint,
}

/// A write that is gathered, waits or is under way.
#[derive(Debug)]
pub(super) struct WriteBatch {
    pub(super) ticket: u64,
    pub(super) content: BatchContent,
    pub(super) region: u32,
    pub(super) sequence: u32,
    /// Where it begins in the region.
    pub(super) offset: u64,
    pub(super) len: u64,
    pub(super) chunks: Vec<WriteChunk>,
    /// The records that wait to be written with it.
    pub(super) records: Vec<u32>,
    /// The erasures that are noted with it.
    pub(super) erasures: Vec<LoggedErasure>,
    /// When its first part came.
    pub(super) began: Instant,
}

/// A region to be filled, and what was in it before.
pub(super) struct ReusedRegion {
    pub(super) before: Region,
    pub(super) batch: WriteBatch,
}

pub(super) struct Device {
    pub(super) geometry: DiskGeometry,
    pub(super) store_id: u64,
    pub(super) checksum: Checksum,
    pub(super) regions: Vec<Region>,
    pub(super) open: Option<RegionWriter>,
    pub(super) closing: Vec<RegionWriter>,
    /// Being gathered.
    pub(super) batch: Option<WriteBatch>,
    /// Gathered; in the order in which they go.
    pub(super) writes: VecDeque<WriteBatch>,
    pub(super) reads: VecDeque<u32>,
    pub(super) under_way: u32,
    /// Operations in the order in which they were begun. Some may have ended.
    pub(super) begun: VecDeque<(Instant, DiskOpId)>,
    /// Reads that wait or are under way.
    pub(super) reads_waiting: u32,
    /// Records that wait or are being written, and bytes of the disk that they take.
    pub(super) records_waiting: u32,
    pub(super) bytes_waiting: u64,
    /// Keys whose records are yet to be compared with Data that came since, and how many are
    /// being compared.
    pub(super) comparisons: Vec<Key>,
    pub(super) comparing: u32,
    /// What was erased and is not noted on the disk yet, and before which position: that at which
    /// it will be noted, unless this has failed at another one.
    pub(super) erasures: BTreeMap<Erasure, Option<LogPosition>>,
    pub(super) is_stalled: bool,
    /// Operations begun before count as begun now: the disk has answered since.
    pub(super) last_answer: Instant,
    /// Regions of lower sequence numbers are the oldest eighth of a full log.
    pub(super) old_below: u32,
    /// Scratch: the sequence numbers of all regions.
    sequences: Vec<u32>,
    /// Whether what it held before is known well enough to write.
    pub(super) is_ready: bool,
    /// Writes that failed one after another.
    pub(super) write_failures: u32,
    /// Reads that failed one after another.
    pub(super) read_failures: u32,
    /// Nothing is appended before.
    pub(super) paused_until: Instant,
}

impl Device {
    pub(super) fn new(geometry: DiskGeometry, store_id: u64, checksum: Checksum) -> Self {
        Self {
            regions: vec![Region::default(); geometry.regions as usize],
            geometry,
            store_id,
            checksum,
            open: None,
            closing: Vec::new(),
            batch: None,
            writes: VecDeque::new(),
            reads: VecDeque::new(),
            under_way: 0,
            begun: VecDeque::new(),
            reads_waiting: 0,
            records_waiting: 0,
            bytes_waiting: 0,
            comparisons: Vec::new(),
            comparing: 0,
            erasures: BTreeMap::new(),
            is_stalled: false,
            last_answer: Instant::ZERO,
            old_below: 0,
            sequences: Vec::new(),
            is_ready: false,
            write_failures: 0,
            read_failures: 0,
            paused_until: Instant::ZERO,
        }
    }

    /// Whether it may ever store anything.
    #[inline]
    pub(super) fn is_usable(&self) -> bool {
        self.geometry.is_writable && self.geometry.regions >= 2
    }

    /// Whether it takes records now.
    #[inline]
    pub(super) fn takes_writes(&self, now: Instant) -> bool {
        self.is_usable() && self.is_ready && !self.is_stalled && now >= self.paused_until
    }

    /// Whether it should do some of its work before it is offered more.
    pub(super) fn is_behind(&self, records: u32) -> bool {
        let in_use = self.closing.len() + usize::from(self.open.is_some());
        !self.is_ready || self.records_waiting >= records || in_use >= self.regions.len()
    }

    /// The operation that reads the record in a place.
    pub(super) fn read_record(&self, place: RecordAddress) -> DiskOpKind {
        let (region, within) = self.locate(place);
        DiskOpKind::ReadRecord {
            offset: self.offset(region as u32, within),
            len: (u64::from(place.sectors()) * SECTOR_BYTES) as u32,
            // Of its use at present: if that is another, the record will not be found.
            sequence: self.regions[region].sequence,
        }
    }

    /// The region of a place, and where in it.
    #[inline]
    pub(super) fn locate(&self, place: RecordAddress) -> (usize, u64) {
        let at = place.offset_sectors() * SECTOR_BYTES;
        let region = at / self.geometry.region_bytes;
        (region as usize, at - region * self.geometry.region_bytes)
    }

    /// Whether what was written there is still there.
    #[inline]
    pub(super) fn is_valid(&self, place: RecordAddress) -> bool {
        self.regions.get(self.locate(place).0).is_some_and(|region| {
            region.sequence != 0 && region.sequence as u8 == place.generation()
        })
    }

    /// Whether a start would find what was written there: it is there, or its region is used again
    /// and the header that says so is not on disk yet.
    #[inline]
    pub(super) fn may_be_recovered(&self, place: RecordAddress) -> bool {
        let is = |sequence: u32| sequence != 0 && sequence as u8 == place.generation();
        let region = self.regions.get(self.locate(place).0);
        region.is_some_and(|region| is(region.sequence) || is(region.recoverable_as))
    }

    /// Whether what was written there will soon make room for other records.
    #[inline]
    pub(super) fn is_evicted_soon(&self, place: RecordAddress) -> bool {
        self.regions[self.locate(place).0].sequence < self.old_below
    }

    /// Finds out which regions are the oldest eighth.
    pub(super) fn update_oldest_eighth(&mut self) {
        let sequences = &mut self.sequences;
        sequences.clear();
        sequences.extend(self.regions.iter().map(|region| region.sequence));
        let is_full = !sequences.is_empty() && !sequences.contains(&0);
        let eighth = sequences.len() / 8;
        self.old_below = if is_full { *sequences.select_nth_unstable(eighth).1 } else { 0 };
    }

    pub(super) fn address(&self, disk: u8, region: u32, at: u64, size: u64) -> RecordAddress {
        let offset = u64::from(region) * self.geometry.region_bytes + at;
        let generation = self.regions[region as usize].sequence as u8;
        RecordAddress::new(disk, offset / SECTOR_BYTES, (size / SECTOR_BYTES) as u8, generation)
    }

    /// Octets from the start of the file or device to a place in a region.
    #[inline]
    pub(super) fn offset(&self, region: u32, at: u64) -> u64 {
        let geometry = &self.geometry;
        let region = u64::from(geometry.first) + u64::from(region) * u64::from(geometry.stride);
        geometry.data_offset + region * geometry.region_bytes + at
    }

    pub(super) fn record_location(
        &self,
        region: u32,
        at: u64,
        sequence: u32,
    ) -> record::RecordLocation {
        record::RecordLocation {
            store_id: self.store_id,
            offset: self.offset(region, at),
            sequence,
        }
    }

    /// Octets of a record, by the octets of its body.
    #[inline]
    pub(super) fn record_bytes(&self, body_len: usize) -> u64 {
        record::size(body_len, self.geometry.block_bytes)
    }

    /// Whether a region has room for `size` octets more, of which the checkpoint grows by
    /// `checkpoint_growth`.
    pub(super) fn has_room(
        &self,
        at: u64,
        checkpoint_len: usize,
        size: u64,
        growth: usize,
    ) -> bool {
        let block_bytes = u64::from(self.geometry.block_bytes);
        let checkpoint = ((checkpoint_len + growth) as u64).next_multiple_of(block_bytes);
        at + size + checkpoint + block_bytes <= self.geometry.region_bytes
    }

    /// Whether the open region has room.
    #[inline]
    pub(super) fn fits(&self, size: u64, growth: usize) -> bool {
        let Some(log) = &self.open else { return false };
        self.has_room(log.write_offset, log.checkpoint.len(), size, growth)
    }

    /// Whether an empty region has room.
    pub(super) fn fits_empty(&self, size: u64, growth: usize) -> bool {
        self.has_room(u64::from(self.geometry.block_bytes), HEADER_BYTES, size, growth)
    }

    /// The next region to fill: one that holds nothing, else the oldest.
    fn next_region(&self) -> Option<u32> {
        let is_busy = |region: u32| self.closing.iter().any(|log| log.region == region);
        let regions = self.regions.iter().zip(0_u32..);
        let idle = regions.filter(|&(_, index)| !is_busy(index));
        // One that cannot be written is tried again before another one is given up, but then it
        // waits for its turn.
        let age = |region: &Region| match region.failures {
            0 | 1 => (region.sequence, region.failures),
            _ => (region.sequence.max(region.last_sequence), 0),
        };
        idle.min_by_key(|(region, _)| age(region)).map(|(_, index)| index)
    }

    /// Begins to fill the next region. Nothing when all are still being written.
    pub(super) fn open_next(
        &mut self,
        now: Instant,
        last_sequence: &mut u32,
        ticket: u64,
    ) -> Option<ReusedRegion> {
        debug_assert!(self.open.is_none() && self.batch.is_none());
        let region = self.next_region()?;
        let before = self.regions[region as usize];
        *last_sequence += 1;
        let found_as = if before.sequence != 0 { before.sequence } else { before.recoverable_as };
        // So that places of its last use are told apart.
        while [before.last_sequence as u8, found_as as u8].contains(&(*last_sequence as u8)) {
            *last_sequence += 1;
        }
        let sequence = *last_sequence;
        let failures = before.failures;
        self.regions[region as usize] =
            Region { sequence, failures, recoverable_as: found_as, ..Region::default() };
        self.update_oldest_eighth();
        let mut header = vec![0; HEADER_BYTES];
        header.extend_from_slice(&self.geometry.first.to_le_bytes());
        header.extend_from_slice(&self.geometry.stride.to_le_bytes());
        let place = self.record_location(region, 0, sequence);
        record::write_header(&mut header, &place, RecordKind::Region, 0, self.checksum);
        let block_bytes = u64::from(self.geometry.block_bytes);
        self.open = Some(RegionWriter {
            region,
            sequence,
            write_offset: block_bytes,
            checkpoint: CheckpointBuilder::new(),
            has_header: false,
            writes: 1,
            has_failed: false,
            is_sealed: false,
        });
        let batch = WriteBatch {
            ticket,
            content: BatchContent::Header,
            region,
            sequence,
            offset: 0,
            len: block_bytes,
            chunks: vec![WriteChunk::Raw(header)],
            records: Vec::new(),
            erasures: Vec::new(),
            began: now,
        };
        Some(ReusedRegion { before, batch })
    }

    /// The write that the next part goes into.
    pub(super) fn batch_for(
        &mut self,
        now: Instant,
        size: u64,
        write_bytes_max: u64,
        tickets: &mut Tickets,
    ) -> &mut WriteBatch {
        if self.batch.as_ref().is_some_and(|batch| batch.len + size > write_bytes_max) {
            self.finish_batch();
        }
        let log = self.open.as_mut().unwrap_or_else(|| unreachable!("asked for with room"));
        self.batch.get_or_insert_with(|| {
            log.writes += 1;
            WriteBatch {
                ticket: tickets.next(),
                content: BatchContent::Records,
                region: log.region,
                sequence: log.sequence,
                offset: log.write_offset,
                len: 0,
                chunks: Vec::new(),
                records: Vec::new(),
                erasures: Vec::new(),
                began: now,
            }
        })
    }

    /// Nothing more goes into the write that is being gathered.
    pub(super) fn finish_batch(&mut self) {
        self.writes.extend(self.batch.take());
    }

    /// Nothing more goes into the region that is being filled.
    pub(super) fn close(&mut self) {
        self.finish_batch();
        self.closing.extend(self.open.take());
    }

    /// The log of a region, unless it is done with.
    pub(super) fn writer_mut(&mut self, region: u32, sequence: u32) -> Option<&mut RegionWriter> {
        let open = self.open.as_mut();
        open.into_iter()
            .chain(&mut self.closing)
            .find(|log| log.region == region && log.sequence == sequence)
    }

    /// Whether this write must wait until the header of its region is on disk.
    pub(super) fn must_wait_for_header(&self, batch: &WriteBatch) -> bool {
        let mut logs = self.open.iter().chain(&self.closing);
        batch.content == BatchContent::Records
            && logs.any(|log| log.sequence == batch.sequence && !log.has_header)
    }

    /// Whether anything waits to be written or is being written.
    pub(super) fn has_writes(&self) -> bool {
        self.open.iter().chain(&self.closing).any(|log| log.writes > 0)
    }

    /// Writes checkpoint and footer of closed regions whose records are all written, and lets go of
    /// those that have them or cannot have them.
    pub(super) fn seal_closed(&mut self, now: Instant, tickets: &mut Tickets) {
        let mut at = 0;
        while at < self.closing.len() {
            let log = &self.closing[at];
            if log.writes > 0 {
                at += 1;
                continue;
            }
            let log = self.closing.swap_remove(at);
            if log.has_failed || log.is_sealed {
                continue;
            }
            let RegionWriter { region, sequence, checkpoint, write_offset: log_at, .. } = log;
            let batch = self.checkpoint(now, region, sequence, checkpoint, tickets.next());
            debug_assert!(batch.offset >= log_at, "room was kept for the checkpoint");
            self.writes.push_back(batch);
            self.closing.push(RegionWriter {
                region,
                sequence,
                write_offset: self.geometry.region_bytes,
                checkpoint: CheckpointBuilder::new(),
                has_header: true,
                writes: 1,
                has_failed: false,
                is_sealed: true,
            });
        }
    }

    fn checkpoint(
        &self,
        now: Instant,
        region: u32,
        sequence: u32,
        checkpoint: CheckpointBuilder,
        ticket: u64,
    ) -> WriteBatch {
        let block_bytes = u64::from(self.geometry.block_bytes);
        let mut octets = checkpoint.into_octets();
        let checkpoint_len = (octets.len() as u64).next_multiple_of(block_bytes);
        let footer_at = self.geometry.region_bytes - block_bytes;
        let at = footer_at - checkpoint_len;
        let place = self.record_location(region, at, sequence);
        record::write_header(&mut octets, &place, RecordKind::Checkpoint, 0, self.checksum);
        let mut footer = vec![0; HEADER_BYTES];
        footer.extend_from_slice(&at.to_le_bytes());
        footer.extend_from_slice(&checkpoint_len.to_le_bytes());
        let place = self.record_location(region, footer_at, sequence);
        record::write_header(&mut footer, &place, RecordKind::Footer, 0, self.checksum);
        WriteBatch {
            ticket,
            content: BatchContent::Checkpoint,
            region,
            sequence,
            offset: at,
            len: checkpoint_len + block_bytes,
            chunks: vec![WriteChunk::Raw(octets), WriteChunk::Raw(footer)],
            records: Vec::new(),
            erasures: Vec::new(),
            began: now,
        }
    }

    /// Notes that something is to be erased from what is on the disk by now.
    pub(super) fn erase(&mut self, erasure: Erasure) {
        self.erase_before(erasure, None);
    }

    /// Notes that something is to be erased from what is before a position.
    pub(super) fn erase_before(&mut self, erasure: Erasure, before: Option<LogPosition>) {
        if !self.geometry.is_writable {
            return; // Nothing can be noted there; a start reads it as it is.
        }
        if self.erasures.len() >= ERASURES_WAITING_MAX {
            self.coarsen_erasures();
        }
        if self.erasures.len() >= ERASURES_WAITING_MAX {
            self.erasures.clear();
            self.merge_erasure(Erasure::Below(None), None);
        }
        self.merge_erasure(erasure, before);
    }

    fn merge_erasure(&mut self, erasure: Erasure, before: Option<LogPosition>) {
        let waiting = self.erasures.entry(erasure).or_insert(before);
        // Nothing stands for a position that is yet to come.
        *waiting = waiting.zip(before).map(|(one, other)| one.max(other));
    }

    /// Has erasures of several segments count for their objects.
    fn coarsen_erasures(&mut self) {
        for (erasure, before) in mem::take(&mut self.erasures) {
            let object = match erasure {
                Erasure::Key(key) if key.segment != WHOLE => Erasure::Below(Some(key.object)),
                other => other,
            };
            self.merge_erasure(object, before);
        }
    }

    /// Erasures of the next record of them: as many as an empty region has room for.
    fn next_erasures(&self) -> usize {
        let mut count = self.erasures.len().min(ERASURES_PER_RECORD);
        while count > 1 {
            let octets = count * ERASURE_BYTES_MAX;
            if self.fits_empty(self.record_bytes(octets), octets) {
                break;
            }
            count /= 2;
        }
        count
    }

    /// The size of the record of the next erasures, and what it adds to the checkpoint at most.
    pub(super) fn erasure_room(&self) -> (u64, usize) {
        let octets = self.next_erasures() * ERASURE_BYTES_MAX;
        (self.record_bytes(octets), octets)
    }

    /// Puts the next erasures into the open region, which has room.
    pub(super) fn append_erasures(
        &mut self,
        now: Instant,
        write_bytes_max: u64,
        tickets: &mut Tickets,
    ) {
        let count = self.next_erasures();
        let mut octets = vec![0; HEADER_BYTES];
        let Some(log) = &mut self.open else { return };
        let (region, sequence, at) = (log.region, log.sequence, log.write_offset);
        let here = (sequence, (at / SECTOR_BYTES) as u32);
        let erased = |(erasure, before): (Erasure, Option<LogPosition>)| LoggedErasure {
            erasure,
            before: before.unwrap_or(here),
        };
        let next = core::iter::from_fn(|| self.erasures.pop_first());
        let noted: Vec<LoggedErasure> = next.take(count).map(erased).collect();
        for &erased in &noted {
            encode_erased(erased, &mut octets);
            log.checkpoint.erased(erased);
        }
        let place = self.record_location(region, at, sequence);
        record::write_header(&mut octets, &place, RecordKind::Erasures, 0, self.checksum);
        let size = (octets.len() as u64).next_multiple_of(u64::from(self.geometry.block_bytes));
        let batch = self.batch_for(now, size, write_bytes_max, tickets);
        batch.len += size;
        batch.chunks.push(WriteChunk::Raw(octets));
        batch.erasures.extend(noted);
        if let Some(log) = &mut self.open {
            log.write_offset += size;
        }
    }
}
