//! The encoding of records on disk.
//!
//! A record is a header of 48 bytes, a body, and zeros up to the end of the block. Integers are
//! little-endian. The header names the store, the use of the region, and the offset. So the reader
//! detects:
//!
//! - packet content that looks like a record,
//! - a record of an earlier use of the region,
//! - a block that the disk wrote or read at the wrong offset.
//!
//! | bytes | field |
//! |---|---|
//! | 0..4 | `WRec` |
//! | 4..8 | checksum of header and body from byte 8 on, without padding |
//! | 8..16 | store |
//! | 16..24 | offset of the record on the disk |
//! | 24..28 | sequence number of the region |
//! | 28..32 | length of the body |
//! | 32..40 | end of the Data's freshness, in milliseconds since 1970 |
//! | 40..44 | kind of record |
//! | 44..48 | zeros |

use super::config::Checksum;
use super::op::{RecordFault, WriteChunk};

pub(crate) const HEADER_BYTES: usize = 48;

/// The first bytes of a record.
const MAGIC: [u8; 4] = *b"WRec";

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum RecordKind {
    Data = 1,
    Region = 2,
    /// The list of a region's contents, written when the region is full.
    Checkpoint = 3,
    /// In the last block of a region: where its checkpoint is.
    Footer = 4,
    /// Names that were erased.
    Erasures = 5,
}

impl RecordKind {
    fn of(number: u32) -> Option<Self> {
        [Self::Data, Self::Region, Self::Checkpoint, Self::Footer, Self::Erasures]
            .into_iter()
            .find(|&kind| kind as u32 == number)
    }
}

/// Where a record must be. Its header holds these values.
#[derive(Copy, Clone, Debug)]
pub struct RecordLocation {
    /// See [`DiskTierConfig::store_id`](super::DiskTierConfig::store_id).
    pub store_id: u64,
    /// Bytes from the start of the file or device.
    pub offset: u64,
    /// The sequence number of the region.
    pub sequence: u32,
}

/// A record that was read and checked.
#[derive(Copy, Clone, Debug)]
pub struct Record<'a> {
    pub(crate) kind: RecordKind,
    /// The sequence number of the region.
    pub(crate) sequence: u32,
    /// The end of the Data's freshness, in milliseconds since 1970.
    pub fresh_until_unix_ms: u64,
    pub body: &'a [u8],
}

/// Bytes of a record on disk with a body of `body_len` bytes.
#[inline]
pub fn size(body_len: usize, block_bytes: u32) -> u64 {
    ((HEADER_BYTES + body_len) as u64).next_multiple_of(u64::from(block_bytes))
}

impl WriteChunk {
    pub fn size(&self, block_bytes: u32) -> u64 {
        match self {
            Self::Data { packet, .. } => size(packet.len(), block_bytes),
            Self::Raw(octets) => (octets.len() as u64).next_multiple_of(u64::from(block_bytes)),
        }
    }
}

/// Writes the header of a record whose body is already in place.
///
/// # Panics
/// If `octets` is shorter than a header.
pub(crate) fn write_header(
    octets: &mut [u8],
    address: &RecordLocation,
    kind: RecordKind,
    fresh_until_unix_ms: u64,
    checksum: Checksum,
) {
    let body_len = octets.len() - HEADER_BYTES;
    octets[..4].copy_from_slice(&MAGIC);
    octets[8..16].copy_from_slice(&address.store_id.to_le_bytes());
    octets[16..24].copy_from_slice(&address.offset.to_le_bytes());
    octets[24..28].copy_from_slice(&address.sequence.to_le_bytes());
    octets[28..32].copy_from_slice(&(body_len as u32).to_le_bytes());
    octets[32..40].copy_from_slice(&fresh_until_unix_ms.to_le_bytes());
    octets[40..44].copy_from_slice(&(kind as u32).to_le_bytes());
    octets[44..48].fill(0);
    let sum = checksum(&octets[8..]);
    octets[4..8].copy_from_slice(&sum.to_le_bytes());
}

/// Encodes the chunks of a write one after another.
///
/// # Panics
/// If `out` does not have the length of all chunks with their padding.
pub fn encode_chunks(
    chunks: &[WriteChunk],
    first: &RecordLocation,
    block_bytes: u32,
    checksum: Checksum,
    out: &mut [u8],
) {
    let mut at = 0;
    for chunk in chunks {
        let end = at + chunk.size(block_bytes) as usize;
        let block = &mut out[at..end];
        let used = match chunk {
            WriteChunk::Data { packet, fresh_until_unix_ms } => {
                let used = HEADER_BYTES + packet.len();
                block[HEADER_BYTES..used].copy_from_slice(packet);
                let address = RecordLocation { offset: first.offset + at as u64, ..*first };
                write_header(
                    &mut block[..used],
                    &address,
                    RecordKind::Data,
                    *fresh_until_unix_ms,
                    checksum,
                );
                used
            }
            WriteChunk::Raw(octets) => {
                block[..octets.len()].copy_from_slice(octets);
                octets.len()
            }
        };
        block[used..].fill(0);
        at = end;
    }
    assert_eq!(at, out.len(), "the output is as long as all chunks");
}

/// Parses the record at the start of `octets`, which were read at `offset`. Accepts any kind, and
/// any use of the region.
pub(crate) fn parse_any<'a>(
    octets: &'a [u8],
    store_id: u64,
    offset: u64,
    checksum: Checksum,
) -> Result<Record<'a>, RecordFault> {
    let header = octets.get(..HEADER_BYTES).ok_or(RecordFault::Truncated)?;
    let word = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|octet| header[at + octet]));
    let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
    if header[..4] != MAGIC || long(8) != store_id || long(16) != offset {
        return Err(RecordFault::Foreign);
    }
    let kind = RecordKind::of(word(40)).ok_or(RecordFault::Foreign)?;
    let end = HEADER_BYTES.saturating_add(word(28) as usize);
    let covered = octets.get(8..end).ok_or(RecordFault::Truncated)?;
    if checksum(covered) != word(4) {
        return Err(RecordFault::Checksum);
    }
    let body = &octets[HEADER_BYTES..end];
    Ok(Record { kind, sequence: word(24), fresh_until_unix_ms: long(32), body })
}

/// Parses the Data record at the start of `octets`, which were read at this location.
pub fn parse_data<'a>(
    octets: &'a [u8],
    address: &RecordLocation,
    checksum: Checksum,
) -> Result<Record<'a>, RecordFault> {
    let record = parse_any(octets, address.store_id, address.offset, checksum)?;
    let is_it = record.kind == RecordKind::Data && record.sequence == address.sequence;
    if is_it { Ok(record) } else { Err(RecordFault::Foreign) }
}
