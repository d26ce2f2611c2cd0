//! One disk: its regions, the region being filled, and the queues of operations.

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

/// Most erasures in one record.
const ERASURES_PER_RECORD: usize = 1024;
/// Most erasures that wait to be logged on one disk. Beyond the limit, erasures of segments are
/// widened to their objects. If that does not suffice, everything on the disk counts as erased at
/// the next recovery.
const ERASURES_WAITING_MAX: usize = if cfg!(test) { 1 << 12 } else { 1 << 18 };

/// The state of a region. A region is *valid* while `sequence` is not 0.
#[derive(Copy, Clone, Debug, Default)]
pub(super) struct Region {
    /// The sequence number of its current use; 0 if it holds nothing.
    pub(super) sequence: u32,
    /// If it holds nothing: the sequence number of its last use.
    pub(super) last_sequence: u32,
    /// The sequence number of the previous use, until the new header is on disk. If the process
    /// died before that, recovery would find the records of that use; 0 if there are none.
    pub(super) recoverable_as: u32,
    /// Consecutive failed writes of its header.
    pub(super) failures: u8,
    /// Records in it that are in the index.
    pub(super) records: u32,
    /// Bytes of these records on disk.
    pub(super) bytes: u64,
}

/// A region that is being filled or closed.
///
/// 1. *Open*: records are appended behind `write_offset`.
/// 2. *Closing*: it is full. It waits until all of its writes have ended.
/// 3. *Sealed*: its checkpoint and footer are being written. After that it is dropped.
#[derive(Debug)]
pub(super) struct RegionWriter {
    pub(super) region: u32,
    pub(super) sequence: u32,
    /// Where the next record begins, in bytes from the start of the region.
    pub(super) write_offset: u64,
    pub(super) checkpoint: CheckpointBuilder,
    /// Whether its header is on disk. Other writes wait for it. Otherwise a restart could take the
    /// region for what it was before.
    pub(super) has_header: bool,
    /// Writes that have not ended.
    pub(super) writes: u32,
    /// Whether a write failed. Then its contents are unknown, and it gets no checkpoint.
    pub(super) has_failed: bool,
    /// Whether its checkpoint is being written.
    pub(super) is_sealed: bool,
}

/// What a write contains.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum BatchContent {
    Header,
    Records,
    Checkpoint,
}

/// A write of one region: it is gathered, then waits, then is in progress.
#[derive(Debug)]
pub(super) struct WriteBatch {
    pub(super) ticket: u64,
    pub(super) content: BatchContent,
    pub(super) region: u32,
    pub(super) sequence: u32,
    /// Where it begins in the region, in bytes.
    pub(super) offset: u64,
    pub(super) len: u64,
    pub(super) chunks: Vec<WriteChunk>,
    /// The pending records that are written with it.
    pub(super) records: Vec<u32>,
    /// The erasures that are logged with it.
    pub(super) erasures: Vec<LoggedErasure>,
    /// When its first chunk was added.
    pub(super) began: Instant,
}

/// A region that was opened, and its state before.
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
    /// The write that is being gathered.
    pub(super) batch: Option<WriteBatch>,
    /// Gathered writes, in order.
    pub(super) writes: VecDeque<WriteBatch>,
    /// Reads that wait, by their index in `Reads`.
    pub(super) reads: VecDeque<u32>,
    /// Operations that the driver has not finished.
    pub(super) under_way: u32,
    /// Operations in the order in which they began. Some may have ended.
    pub(super) begun: VecDeque<(Instant, DiskOpId)>,
    /// Reads that wait or are in progress.
    pub(super) reads_waiting: u32,
    /// Records that wait to be written or are being written, and their bytes on disk.
    pub(super) records_waiting: u32,
    pub(super) bytes_waiting: u64,
    /// Keys whose records still have to be compared with newer Data, and the comparisons in
    /// progress.
    pub(super) comparisons: Vec<Key>,
    pub(super) comparing: u32,
    /// Erasures that are not logged yet, and the position before which each applies. `None` stands
    /// for the position at which it will be logged. An erasure has a position if it covers only
    /// older records, or if an earlier attempt to log it failed.
    pub(super) erasures: BTreeMap<Erasure, Option<LogPosition>>,
    pub(super) is_stalled: bool,
    /// When the disk last responded. For the detection of stalls, operations that began before
    /// count as begun at this time.
    pub(super) last_answer: Instant,
    /// Regions with lower sequence numbers are the oldest eighth of a full log.
    pub(super) old_below: u32,
    /// Scratch: the sequence numbers of all regions.
    sequences: Vec<u32>,
    /// Whether recovery knows enough of the disk to write to it.
    pub(super) is_ready: bool,
    pub(super) write_failures: u32,
    pub(super) read_failures: u32,
    /// Nothing is appended before this time.
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

    /// Whether the disk can ever store anything.
    #[inline]
    pub(super) fn is_usable(&self) -> bool {
        self.geometry.is_writable && self.geometry.regions >= 2
    }

    /// Whether the disk takes records now.
    #[inline]
    pub(super) fn takes_writes(&self, now: Instant) -> bool {
        self.is_usable() && self.is_ready && !self.is_stalled && now >= self.paused_until
    }

    /// Whether the disk should catch up before the caller offers it more.
    pub(super) fn is_behind(&self, records: u32) -> bool {
        let in_use = self.closing.len() + usize::from(self.open.is_some());
        !self.is_ready || self.records_waiting >= records || in_use >= self.regions.len()
    }

    /// The operation that reads the record at an address.
    pub(super) fn read_record(&self, address: RecordAddress) -> DiskOpKind {
        let (region, within) = self.locate(address);
        DiskOpKind::ReadRecord {
            offset: self.offset(region as u32, within),
            len: (u64::from(address.sectors()) * SECTOR_BYTES) as u32,
            // If the region was reused since the address was made, the record will not match.
            sequence: self.regions[region].sequence,
        }
    }

    /// The region of an address, and the offset in bytes in the region.
    #[inline]
    pub(super) fn locate(&self, address: RecordAddress) -> (usize, u64) {
        let at = address.offset_sectors() * SECTOR_BYTES;
        let region = at / self.geometry.region_bytes;
        (region as usize, at - region * self.geometry.region_bytes)
    }

    /// Whether the record written at this address is still there.
    #[inline]
    pub(super) fn is_valid(&self, address: RecordAddress) -> bool {
        self.regions.get(self.locate(address).0).is_some_and(|region| {
            region.sequence != 0 && region.sequence as u8 == address.generation()
        })
    }

    /// Whether a restart would find the record written at this address. It would if the record is
    /// valid, or if its region is being reused and the new header is not on disk yet.
    #[inline]
    pub(super) fn may_be_recovered(&self, address: RecordAddress) -> bool {
        let is = |sequence: u32| sequence != 0 && sequence as u8 == address.generation();
        let region = self.regions.get(self.locate(address).0);
        region.is_some_and(|region| is(region.sequence) || is(region.recoverable_as))
    }

    /// Whether the region of this address will be reused soon.
    #[inline]
    pub(super) fn is_evicted_soon(&self, address: RecordAddress) -> bool {
        self.regions[self.locate(address).0].sequence < self.old_below
    }

    /// Determines which regions are the oldest eighth.
    pub(super) fn update_oldest_eighth(&mut self) {
        let sequences = &mut self.sequences;
        sequences.clear();
        sequences.extend(self.regions.iter().map(|region| region.sequence));
        let is_full = !sequences.is_empty() && !sequences.contains(&0);
        let eighth = sequences.len() / 8;
        // The number with an eighth of all numbers below it. An empty region is reused before any.
        self.old_below = if is_full { *sequences.select_nth_unstable(eighth).1 } else { 0 };
    }

    pub(super) fn address(&self, disk: u8, region: u32, at: u64, size: u64) -> RecordAddress {
        let offset = u64::from(region) * self.geometry.region_bytes + at;
        let generation = self.regions[region as usize].sequence as u8;
        RecordAddress::new(disk, offset / SECTOR_BYTES, (size / SECTOR_BYTES) as u8, generation)
    }

    /// Bytes from the start of the file or device to an offset in a region.
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

    /// Bytes of a record with a body of `body_len` bytes.
    #[inline]
    pub(super) fn record_bytes(&self, body_len: usize) -> u64 {
        record::size(body_len, self.geometry.block_bytes)
    }

    /// Whether a region has space for `size` more bytes at `at`, and for its checkpoint and footer
    /// behind them. The checkpoint has `checkpoint_len` bytes and grows by `growth`.
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

    /// Whether the open region has space.
    #[inline]
    pub(super) fn fits(&self, size: u64, growth: usize) -> bool {
        let Some(writer) = &self.open else { return false };
        self.has_room(writer.write_offset, writer.checkpoint.len(), size, growth)
    }

    /// Whether an empty region has space.
    pub(super) fn fits_empty(&self, size: u64, growth: usize) -> bool {
        self.has_room(u64::from(self.geometry.block_bytes), HEADER_BYTES, size, growth)
    }

    /// The next region to fill: an empty one, else the oldest.
    fn next_region(&self) -> Option<u32> {
        let is_busy = |region: u32| self.closing.iter().any(|writer| writer.region == region);
        let regions = self.regions.iter().zip(0_u32..);
        let idle = regions.filter(|&(_, index)| !is_busy(index));
        // After one failed header write, retry the region before evicting another one. After two,
        // it waits until its last use would have been the oldest.
        let age = |region: &Region| match region.failures {
            0 | 1 => (region.sequence, region.failures),
            _ => (region.sequence.max(region.last_sequence), 0),
        };
        idle.min_by_key(|(region, _)| age(region)).map(|(_, index)| index)
    }

    /// Opens the next region and prepares its header. `None` if all regions are still being
    /// written.
    pub(super) fn open_next(
        &mut self,
        now: Instant,
        last_sequence: &mut u32,
        ticket: u64,
    ) -> Option<ReusedRegion> {
        debug_assert!(self.open.is_none() && self.batch.is_none());
        let region = self.next_region()?;
        let before = self.regions[region as usize];
        // Every use of a region gets a new number, so records of earlier uses can be recognised.
        *last_sequence += 1;
        let recoverable_as =
            if before.sequence != 0 { before.sequence } else { before.recoverable_as };
        // Skip numbers with the same low 8 bits as an earlier use. Their addresses must differ.
        while [before.last_sequence as u8, recoverable_as as u8].contains(&(*last_sequence as u8)) {
            *last_sequence += 1;
        }
        let sequence = *last_sequence;
        let failures = before.failures;
        self.regions[region as usize] =
            Region { sequence, failures, recoverable_as, ..Region::default() };
        self.update_oldest_eighth();
        let mut header = vec![0; HEADER_BYTES];
        header.extend_from_slice(&self.geometry.first.to_le_bytes());
        header.extend_from_slice(&self.geometry.stride.to_le_bytes());
        let address = self.record_location(region, 0, sequence);
        record::write_header(&mut header, &address, RecordKind::Region, 0, self.checksum);
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

    /// The batch for the next chunk of `size` bytes. Starts a new one if the current batch would
    /// grow beyond `write_bytes_max`.
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
        let writer =
            self.open.as_mut().unwrap_or_else(|| unreachable!("called with an open region"));
        self.batch.get_or_insert_with(|| {
            writer.writes += 1;
            WriteBatch {
                ticket: tickets.next(),
                content: BatchContent::Records,
                region: writer.region,
                sequence: writer.sequence,
                offset: writer.write_offset,
                len: 0,
                chunks: Vec::new(),
                records: Vec::new(),
                erasures: Vec::new(),
                began: now,
            }
        })
    }

    /// Queues the batch that is being gathered for writing.
    pub(super) fn finish_batch(&mut self) {
        self.writes.extend(self.batch.take());
    }

    /// Closes the open region.
    pub(super) fn close(&mut self) {
        self.finish_batch();
        self.closing.extend(self.open.take());
    }

    /// The writer of a region, unless it is finished.
    pub(super) fn writer_mut(&mut self, region: u32, sequence: u32) -> Option<&mut RegionWriter> {
        let open = self.open.as_mut();
        open.into_iter()
            .chain(&mut self.closing)
            .find(|writer| writer.region == region && writer.sequence == sequence)
    }

    /// Whether this write must wait until the header of its region is on disk.
    pub(super) fn must_wait_for_header(&self, batch: &WriteBatch) -> bool {
        let mut writers = self.open.iter().chain(&self.closing);
        batch.content == BatchContent::Records
            && writers.any(|writer| writer.sequence == batch.sequence && !writer.has_header)
    }

    /// Whether anything waits to be written or is being written.
    pub(super) fn has_writes(&self) -> bool {
        self.open.iter().chain(&self.closing).any(|writer| writer.writes > 0)
    }

    /// Queues checkpoint and footer of each closed region whose writes have all ended. Drops the
    /// writers of regions that have a checkpoint, or cannot get one because a write failed.
    pub(super) fn seal_closed(&mut self, now: Instant, tickets: &mut Tickets) {
        let mut at = 0;
        while at < self.closing.len() {
            let writer = &self.closing[at];
            if writer.writes > 0 {
                at += 1;
                continue;
            }
            let writer = self.closing.swap_remove(at);
            if writer.has_failed || writer.is_sealed {
                continue;
            }
            let RegionWriter { region, sequence, checkpoint, write_offset, .. } = writer;
            let batch = self.checkpoint(now, region, sequence, checkpoint, tickets.next());
            debug_assert!(batch.offset >= write_offset, "the region has space for its checkpoint");
            self.writes.push_back(batch);
            // Stay in the list until checkpoint and footer are written, so the region is not
            // reused.
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

    /// The write of checkpoint and footer at the end of a region.
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
        // Checkpoint and footer end with the region, so that recovery finds the footer in the last
        // block.
        let footer_at = self.geometry.region_bytes - block_bytes;
        let at = footer_at - checkpoint_len;
        let address = self.record_location(region, at, sequence);
        record::write_header(&mut octets, &address, RecordKind::Checkpoint, 0, self.checksum);
        let mut footer = vec![0; HEADER_BYTES];
        footer.extend_from_slice(&at.to_le_bytes());
        footer.extend_from_slice(&checkpoint_len.to_le_bytes());
        let address = self.record_location(region, footer_at, sequence);
        record::write_header(&mut footer, &address, RecordKind::Footer, 0, self.checksum);
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

    /// Schedules an erasure that covers everything on the disk so far.
    pub(super) fn erase(&mut self, erasure: Erasure) {
        self.erase_before(erasure, None);
    }

    /// Schedules an erasure that covers everything before a position.
    pub(super) fn erase_before(&mut self, erasure: Erasure, before: Option<LogPosition>) {
        if !self.geometry.is_writable {
            return; // Nothing can be logged on a read-only disk.
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
        // `None` is a future position, so it is the greater of the two.
        *waiting = waiting.zip(before).map(|(one, other)| one.max(other));
    }

    /// Replaces erasures of segments by erasures of their objects, to save memory.
    fn coarsen_erasures(&mut self) {
        for (erasure, before) in mem::take(&mut self.erasures) {
            let object = match erasure {
                Erasure::Key(key) if key.segment != WHOLE => Erasure::Below(Some(key.object)),
                other => other,
            };
            self.merge_erasure(object, before);
        }
    }

    /// How many erasures the next record holds: all that wait, as far as an empty region has space.
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

    /// The size of the next record of erasures, and the most bytes that it adds to the checkpoint.
    pub(super) fn erasure_room(&self) -> (u64, usize) {
        let octets = self.next_erasures() * ERASURE_BYTES_MAX;
        (self.record_bytes(octets), octets)
    }

    /// Appends a record with the next erasures to the open region, which has space for it.
    pub(super) fn append_erasures(
        &mut self,
        now: Instant,
        write_bytes_max: u64,
        tickets: &mut Tickets,
    ) {
        let count = self.next_erasures();
        let mut octets = vec![0; HEADER_BYTES];
        let Some(writer) = &mut self.open else { return };
        let (region, sequence, at) = (writer.region, writer.sequence, writer.write_offset);
        let here = (sequence, (at / SECTOR_BYTES) as u32);
        let erased = |(erasure, before): (Erasure, Option<LogPosition>)| LoggedErasure {
            erasure,
            before: before.unwrap_or(here),
        };
        // Erasures without a position apply to everything up to here.
        let next = core::iter::from_fn(|| self.erasures.pop_first());
        let logged: Vec<LoggedErasure> = next.take(count).map(erased).collect();
        for &erased in &logged {
            encode_erased(erased, &mut octets);
            writer.checkpoint.erased(erased);
        }
        let address = self.record_location(region, at, sequence);
        record::write_header(&mut octets, &address, RecordKind::Erasures, 0, self.checksum);
        let size = (octets.len() as u64).next_multiple_of(u64::from(self.geometry.block_bytes));
        let batch = self.batch_for(now, size, write_bytes_max, tickets);
        batch.len += size;
        batch.chunks.push(WriteChunk::Raw(octets));
        batch.erasures.extend(logged);
        if let Some(writer) = &mut self.open {
            writer.write_offset += size;
        }
    }
}
