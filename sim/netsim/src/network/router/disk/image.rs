//! The content of a simulated disk.

use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use weir_base::Packet;
use weir_store::disk::record::{self, RecordLocation};
use weir_store::disk::{Checksum, DiskOutcome, RecordFault, WriteChunk};

use super::producers::{ProducerSet, SegmentRef};

/// The layout of records, the same on all disks of a router.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecordFormat {
    pub(crate) store_id: u64,
    pub(crate) block_bytes: u32,
    pub(crate) checksum: Checksum,
}

/// One part of a write, stored in the cheapest form.
#[derive(Clone, Debug)]
enum ExtentBody {
    /// A Data that its producer can generate again. Only its number is stored.
    Generated {
        segment: SegmentRef,
        sequence: u32,
        fresh_until_unix_ms: u64,
    },
    Data {
        packet: Packet,
        sequence: u32,
        fresh_until_unix_ms: u64,
    },
    Octets(Rc<[u8]>),
}

/// The remaining bytes of a part that later writes did not overwrite.
#[derive(Clone, Debug)]
struct Extent {
    /// Bytes that remain.
    len: u64,
    /// Where the part began on the disk.
    base: u64,
    whole_len: u64,
    body: ExtentBody,
    /// The write was answered with [`DiskOutcome::Written`].
    is_acknowledged: bool,
}

/// A record that was acknowledged and not overwritten.
#[derive(Clone, Debug)]
pub(crate) struct Acknowledged {
    pub(crate) offset: u64,
    pub(crate) sequence: u32,
    pub(crate) packet: Packet,
}

/// The content of a disk, stored as the parts that were written.
#[derive(Debug)]
pub(crate) struct DiskImage {
    format: RecordFormat,
    bytes: u64,
    /// By start offset, without overlaps. Bytes outside all extents are zero.
    extents: BTreeMap<u64, Extent>,
}

/// Parts written one after another.
pub(crate) struct ImageWrite {
    pub(crate) offset: u64,
    pub(crate) sequence: u32,
    pub(crate) parts: Vec<WriteChunk>,
}

/// The range of blocks of a write that reaches the disk.
pub(crate) type Blocks = Range<u32>;

impl DiskImage {
    /// A disk of `bytes` zero bytes.
    pub(crate) fn new(format: RecordFormat, bytes: u64) -> Self {
        Self { format, bytes, extents: BTreeMap::new() }
    }

    pub(crate) fn block_bytes(&self) -> u32 {
        self.format.block_bytes
    }

    /// Writes all blocks and acknowledges the write.
    pub(crate) fn write_all(&mut self, write: ImageWrite, producers: &mut ProducerSet) {
        self.write(write, 0..u64::MAX, true, producers);
    }

    /// Writes some blocks and does not acknowledge the write.
    pub(crate) fn write_some(
        &mut self,
        write: ImageWrite,
        blocks: Blocks,
        producers: &mut ProducerSet,
    ) {
        let block_bytes = u64::from(self.format.block_bytes);
        let at = |block: u32| write.offset + u64::from(block) * block_bytes;
        let written = at(blocks.start)..at(blocks.end);
        self.write(write, written, false, producers);
    }

    /// Writes the bytes of the parts that lie in `written`.
    fn write(
        &mut self,
        write: ImageWrite,
        written: Range<u64>,
        is_acknowledged: bool,
        producers: &mut ProducerSet,
    ) {
        let ImageWrite { offset, sequence, parts } = write;
        let mut base = offset;
        for part in parts {
            let whole_len = part.size(self.format.block_bytes);
            let start = base.max(written.start);
            let end = (base + whole_len).min(written.end);
            if start < end {
                self.clear(start, end);
                let body = body_of(part, sequence, producers);
                let len = end - start;
                // A fragment keeps the start and length of its whole part, which `lay_out` needs.
                let extent = Extent { len, base, whole_len, body, is_acknowledged };
                self.extents.insert(start, extent);
            }
            base += whole_len;
        }
    }

    /// Removes the bytes from `start` to `end`.
    fn clear(&mut self, start: u64, end: u64) {
        // 1. An extent that begins before `start` may reach into the range, or even beyond its end.
        let before = self.extents.range(..start).next_back();
        if let Some((&at, extent)) = before
            && at + extent.len > start
        {
            let mut rest = extent.clone();
            let rest_end = at + extent.len;
            if let Some(extent) = self.extents.get_mut(&at) {
                extent.len = start - at;
            }
            if rest_end > end {
                rest.len = rest_end - end;
                self.extents.insert(end, rest);
            }
        }
        // 2. Extents that begin in the range disappear, except for what lies beyond its end.
        while let Some((&at, extent)) = self.extents.range(start..end).next() {
            let rest_end = at + extent.len;
            let rest = self.extents.remove(&at);
            if let Some(mut rest) = rest.filter(|_| rest_end > end) {
                rest.len = rest_end - end;
                self.extents.insert(end, rest);
            }
        }
    }

    /// Reads a record with the same result as a driver. A whole record needs no encoding. Otherwise
    /// the bytes are laid out and the checksum is verified.
    pub(crate) fn read_record(
        &self,
        offset: u64,
        len: u32,
        sequence: u32,
        producers: &mut ProducerSet,
    ) -> DiskOutcome {
        let extent = self.extents.get(&offset).filter(|extent| {
            let is_whole = extent.base == offset && extent.len == extent.whole_len;
            is_whole && u64::from(len) >= extent.whole_len
        });
        let found = extent.and_then(|extent| match &extent.body {
            ExtentBody::Generated { segment, sequence, fresh_until_unix_ms } => {
                Some((producers.generate(segment), *sequence, *fresh_until_unix_ms))
            }
            ExtentBody::Data { packet, sequence, fresh_until_unix_ms } => {
                Some((packet.clone(), *sequence, *fresh_until_unix_ms))
            }
            ExtentBody::Octets(_) => None,
        });
        match found {
            Some((packet, found, fresh_until_unix_ms)) if found == sequence => {
                DiskOutcome::Record { packet, fresh_until_unix_ms }
            }
            // The region was overwritten: this is a record of another generation.
            Some(_) => DiskOutcome::Damaged(RecordFault::Foreign),
            None => {
                let octets = self.read_octets(offset, len, producers);
                self.open(&octets, offset, sequence)
            }
        }
    }

    /// Decodes bytes that were read at `offset`.
    pub(crate) fn open(&self, octets: &[u8], offset: u64, sequence: u32) -> DiskOutcome {
        let place = RecordLocation { store_id: self.format.store_id, offset, sequence };
        match record::parse_data(octets, &place, self.format.checksum) {
            Ok(record) => DiskOutcome::Record {
                packet: Packet::from(record.body.to_vec()),
                fresh_until_unix_ms: record.fresh_until_unix_ms,
            },
            Err(fault) => DiskOutcome::Damaged(fault),
        }
    }

    /// The bytes at `offset`, up to the end of the disk.
    pub(crate) fn read_octets(
        &self,
        offset: u64,
        len: u32,
        producers: &mut ProducerSet,
    ) -> Vec<u8> {
        let end = offset.saturating_add(len.into()).min(self.bytes);
        let mut octets = vec![0; end.saturating_sub(offset) as usize];
        // The first extent may begin before `offset` and reach into the range.
        let first = self.extents.range(..=offset).next_back().map_or(offset, |(&at, _)| at);
        for (&at, extent) in self.extents.range(first..end) {
            let (from, to) = (at.max(offset), (at + extent.len).min(end));
            if from >= to {
                continue;
            }
            let whole = self.lay_out(extent, producers);
            let piece = &whole[(from - extent.base) as usize..(to - extent.base) as usize];
            octets[(from - offset) as usize..(to - offset) as usize].copy_from_slice(piece);
        }
        octets
    }

    /// All bytes of the part that an extent belongs to.
    fn lay_out(&self, extent: &Extent, producers: &mut ProducerSet) -> Vec<u8> {
        let mut octets = vec![0; extent.whole_len as usize];
        let (packet, sequence, fresh_until_unix_ms) = match &extent.body {
            ExtentBody::Octets(found) => {
                octets[..found.len()].copy_from_slice(found);
                return octets;
            }
            ExtentBody::Generated { segment, sequence, fresh_until_unix_ms } => {
                (producers.generate(segment), *sequence, *fresh_until_unix_ms)
            }
            ExtentBody::Data { packet, sequence, fresh_until_unix_ms } => {
                (packet.clone(), *sequence, *fresh_until_unix_ms)
            }
        };
        let RecordFormat { store_id, block_bytes, checksum } = self.format;
        let place = RecordLocation { store_id, offset: extent.base, sequence };
        let parts = [WriteChunk::Data { packet, fresh_until_unix_ms }];
        record::encode_chunks(&parts, &place, block_bytes, checksum, &mut octets);
        octets
    }

    /// Whole records that were acknowledged, spread over the disk. Samples fewer than twice
    /// `count_max` extents; `skip` chooses where the sample starts.
    pub(crate) fn acknowledged(
        &self,
        count_max: usize,
        skip: usize,
        producers: &mut ProducerSet,
    ) -> Vec<Acknowledged> {
        let step = (self.extents.len() / count_max.max(1)).max(1);
        let chosen = self.extents.iter().skip(skip % step).step_by(step);
        let records = chosen.filter_map(|(&offset, extent)| {
            let is_whole = extent.base == offset && extent.len == extent.whole_len;
            let (packet, sequence) = match &extent.body {
                ExtentBody::Generated { segment, sequence, .. } => {
                    (producers.generate(segment), *sequence)
                }
                ExtentBody::Data { packet, sequence, .. } => (packet.clone(), *sequence),
                ExtentBody::Octets(_) => return None,
            };
            (is_whole && extent.is_acknowledged).then_some(Acknowledged {
                offset,
                sequence,
                packet,
            })
        });
        records.collect()
    }
}

fn body_of(part: WriteChunk, sequence: u32, producers: &mut ProducerSet) -> ExtentBody {
    match part {
        WriteChunk::Data { packet, fresh_until_unix_ms } => match producers.find(&packet) {
            Some(segment) => ExtentBody::Generated { segment, sequence, fresh_until_unix_ms },
            None => ExtentBody::Data { packet, sequence, fresh_until_unix_ms },
        },
        WriteChunk::Raw(octets) => ExtentBody::Octets(octets.into()),
    }
}

#[cfg(test)]
mod tests;
