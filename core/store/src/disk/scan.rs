//! Scans a region without a checkpoint: reads it record by record. Where a block holds no record,
//! the scan continues at the next block.

use super::address::{SECTOR_BYTES, key_of};
use super::checkpoint::{CheckpointBuilder, decode_erasures};
use super::config::Checksum;
use super::op::RecordFault;
use super::record::{self, HEADER_BYTES, Record, RecordKind};
use alloc::vec::Vec;
use weir_base::HashKey;
use weir_wire::{DataView, NameView};

/// Bytes of one read.
const CHUNK_BYTES: u64 = 256 << 10;
/// The longest record, except for checkpoints.
const RECORD_LEN_MAX: usize = HEADER_BYTES + u16::MAX as usize;
/// Bytes after which the scan of a region of unknown age gives up, if it has found no record.
const PROBE_BYTES: u64 = 1 << 20;

/// The properties of disk and region that a scan needs.
pub(super) struct RegionContext {
    pub(super) store_id: u64,
    pub(super) checksum: Checksum,
    pub(super) hash_key: HashKey,
    /// Bytes from the start of the file or device to the region.
    pub(super) offset: u64,
    pub(super) region_bytes: u64,
    pub(super) block_bytes: u32,
}

/// The scan of a region, and its results so far.
pub(super) struct RegionScan {
    /// The sequence number of the records found; 0 while none is known.
    pub(super) sequence: u32,
    /// Where the next chunk begins.
    next_at: u64,
    /// The end of the last chunk, which may be the start of a record.
    remainder: Vec<u8>,
    /// The contents found so far.
    pub(super) checkpoint: CheckpointBuilder,
    /// Where the last record ends.
    pub(super) end: u64,
    /// Whether a chunk could not be read.
    pub(super) has_gaps: bool,
    /// Whether the region has a checkpoint and so was closed.
    pub(super) has_checkpoint: bool,
    /// Scratch.
    hashes: Vec<u64>,
}

impl RegionScan {
    /// A scan of a region whose header has this sequence number; 0 if the number is unknown.
    pub(super) fn new(sequence: u32, block_bytes: u32) -> Self {
        Self {
            sequence,
            next_at: 0,
            remainder: Vec::new(),
            checkpoint: CheckpointBuilder::new(),
            end: block_bytes.into(),
            has_gaps: false,
            has_checkpoint: false,
            hashes: Vec::new(),
        }
    }

    /// Offset and length of the next read; `None` when all is read.
    pub(super) fn next_read(&self, context: &RegionContext) -> Option<(u64, u32)> {
        let is_hopeless = self.sequence == 0 && self.next_at >= PROBE_BYTES;
        let len = CHUNK_BYTES.min(context.region_bytes - self.next_at);
        (len > 0 && !is_hopeless).then_some((self.next_at, len as u32))
    }

    /// Skips a chunk that could not be read.
    pub(super) fn skip(&mut self, context: &RegionContext) {
        self.has_gaps = true;
        self.remainder.clear();
        self.next_at = (self.next_at + CHUNK_BYTES).min(context.region_bytes);
    }

    /// Handles a chunk that was read. It is shorter than requested at the end of the file.
    pub(super) fn read(&mut self, octets: &[u8], context: &RegionContext) {
        let base = self.next_at - self.remainder.len() as u64;
        let requested = self.next_read(context).map_or(0, |(_, len)| len as usize);
        self.next_at = match octets.len() < requested {
            true => context.region_bytes, // The file ends here.
            false => self.next_at + octets.len() as u64,
        };
        let mut buffer = core::mem::take(&mut self.remainder);
        buffer.extend_from_slice(octets);
        let is_last = self.next_at >= context.region_bytes;
        let block_bytes = context.block_bytes as usize;
        let mut at = 0;
        while at + block_bytes <= buffer.len() {
            let rest = &buffer[at..];
            let offset = context.offset + base + at as u64;
            match record::parse_any(rest, context.store_id, offset, context.checksum) {
                Ok(record) => {
                    let size = record::size(record.body.len(), context.block_bytes);
                    self.on_record(&record, base + at as u64, size, context);
                    at += size as usize;
                }
                // The record continues in the next chunk.
                Err(RecordFault::Truncated) if !is_last && has_plausible_length(rest) => break,
                // No record here: records start at block boundaries, so try the next block.
                Err(_) => at += block_bytes,
            }
        }
        if at > buffer.len() {
            // The record is complete, and its padding reaches into the next chunk. Skip the
            // padding.
            self.next_at = (base + at as u64).min(context.region_bytes);
            at = buffer.len();
        }
        buffer.drain(..at);
        if !is_last {
            self.remainder = buffer;
        }
    }

    /// Adds a record. Keeps only records of the newest use of the region seen so far.
    fn on_record(&mut self, record: &Record<'_>, at: u64, size: u64, context: &RegionContext) {
        if record.sequence < self.sequence || at + size > context.region_bytes {
            return;
        }
        if record.sequence > self.sequence {
            // Everything found so far belongs to an earlier use.
            self.sequence = record.sequence;
            self.checkpoint = CheckpointBuilder::new();
            self.end = context.block_bytes.into();
            self.has_checkpoint = false;
        }
        let at_sectors = (at / SECTOR_BYTES) as u32;
        match record.kind {
            RecordKind::Data => {
                let Ok(data) = DataView::decode(record.body) else { return };
                self.on_data(data.name, at_sectors, (size / SECTOR_BYTES) as u8, context);
            }
            RecordKind::Erasures => {
                let erasures = decode_erasures(record.body).unwrap_or_default();
                erasures.into_iter().for_each(|erased| self.checkpoint.erased(erased));
            }
            RecordKind::Region => {}
            RecordKind::Checkpoint => {
                self.has_checkpoint = true;
                return;
            }
            RecordKind::Footer => return,
        }
        self.end = self.end.max(at + size);
    }

    fn on_data(
        &mut self,
        name: NameView<'_>,
        at_sectors: u32,
        sectors: u8,
        context: &RegionContext,
    ) {
        if name.is_empty() || name.component_count() > crate::store::COMPONENTS_MAX {
            return;
        }
        let hashes = &mut self.hashes;
        hashes.clear();
        let mut hasher = context.hash_key.prefixes(name.value());
        let mut end = 0;
        hashes.extend(name.components().map(|component| {
            end += component.wire.len();
            hasher.hash_to(end)
        }));
        let whole = hashes.pop().unwrap_or_default();
        let key = key_of(name, whole, hashes.last().copied());
        if key.object != whole {
            hashes.pop();
        }
        self.checkpoint.record(key, hashes, at_sectors, sectors);
    }
}

/// Whether the header states a length that a record may have. If not, the bytes are no record, so
/// waiting for the next chunk would not help.
fn has_plausible_length(octets: &[u8]) -> bool {
    let Some(len) = octets.get(28..32) else { return true };
    let len = u32::from_le_bytes([len[0], len[1], len[2], len[3]]);
    (len as usize).saturating_add(HEADER_BYTES) <= RECORD_LEN_MAX
}
