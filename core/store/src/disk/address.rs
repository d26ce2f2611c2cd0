//! Addresses of records on disk, and the keys by which the disk tier knows Data.

use core::fmt;
use core::num::NonZeroU64;
use weir_base::mix;
use weir_wire::{NameView, tlv};

/// Bytes of a sector, in which offsets and lengths of records are counted. Blocks are one or eight
/// sectors.
pub(crate) const SECTOR_BYTES: u64 = 512;
/// Most sectors of a store's share of one disk: 32 TiB.
const OFFSET_SECTORS_MAX: u64 = 1 << OFFSET_BITS;

const OFFSET_BITS: u32 = 36;
const GENERATION_AT: u32 = OFFSET_BITS;
const SECTORS_AT: u32 = GENERATION_AT + 8;
const DISK_AT: u32 = SECTORS_AT + 8;
/// A bit that is always set, so that no address is 0.
const ADDRESS_BIT: NonZeroU64 = NonZeroU64::new(1 << 60).unwrap();
/// Bits that no address uses. The index marks words with them.
pub(super) const SPARE_BITS: u64 = 0b111 << 61;

/// The address of a record, in 8 bytes.
///
/// | bits | field |
/// |---|---|
/// | 61..64 | spare, for the index |
/// | 60 | always 1 |
/// | 52..56 | disk |
/// | 44..52 | length in sectors |
/// | 36..44 | generation: the low 8 bits of the region's sequence number |
/// | 0..36 | offset in sectors, in the store's share of the disk |
///
/// When the region is reused, its sequence number changes. The generation then differs, and the
/// address is no longer valid.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct RecordAddress(NonZeroU64);

impl RecordAddress {
    /// The record of `sectors` sectors at `offset_sectors` in the store's share of disk `disk`.
    ///
    /// # Panics
    /// In debug builds, if `disk` is over 15 or `offset_sectors` is not below 2^36.
    #[inline]
    pub(crate) fn new(disk: u8, offset_sectors: u64, sectors: u8, generation: u8) -> Self {
        debug_assert!(disk < 16 && offset_sectors < OFFSET_SECTORS_MAX);
        let fields = u64::from(disk & 15) << DISK_AT
            | u64::from(sectors) << SECTORS_AT
            | u64::from(generation) << GENERATION_AT
            | offset_sectors & (OFFSET_SECTORS_MAX - 1);
        Self(ADDRESS_BIT | fields)
    }

    /// An index into the disks of the store.
    #[inline]
    pub(crate) fn disk(self) -> u8 {
        (self.0.get() >> DISK_AT & 15) as u8
    }

    /// Where the record begins in the store's share of the disk.
    #[inline]
    pub(crate) fn offset_sectors(self) -> u64 {
        self.0.get() & (OFFSET_SECTORS_MAX - 1)
    }

    #[inline]
    pub(crate) fn sectors(self) -> u8 {
        (self.0.get() >> SECTORS_AT) as u8
    }

    /// The low 8 bits of the sequence number of its region.
    #[inline]
    pub(crate) fn generation(self) -> u8 {
        (self.0.get() >> GENERATION_AT) as u8
    }

    #[inline]
    pub(super) fn to_word(self) -> u64 {
        self.0.get()
    }

    /// The address in a word of the index, without the index's marks.
    #[inline]
    pub(super) fn from_word(word: u64) -> Option<Self> {
        if word & ADDRESS_BIT.get() == 0 {
            return None;
        }
        NonZeroU64::new(word & !SPARE_BITS).map(Self)
    }
}

impl fmt::Debug for RecordAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordAddress")
            .field("disk", &self.disk())
            .field("offset_sectors", &self.offset_sectors())
            .field("sectors", &self.sectors())
            .field("generation", &self.generation())
            .finish()
    }
}

/// The [`Key::segment`] of Data whose name does not end with a segment number.
pub(crate) const WHOLE: u64 = u64::MAX;

/// The key by which the disk tier identifies Data.
///
/// The key of a segment is the hash of the object's name and the segment number. The key of other
/// Data is the hash of its whole name and [`WHOLE`]. The segment number 2^64 - 1 would look like
/// [`WHOLE`], so such Data counts as other Data.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Key {
    /// The hash of the object's name.
    pub object: u64,
    /// The segment number, or [`WHOLE`].
    pub segment: u64,
}

impl Key {
    /// The next greater key.
    pub(super) fn next(self) -> Self {
        match self.segment.checked_add(1) {
            Some(segment) => Self { segment, ..self },
            None => Self { object: self.object.wrapping_add(1), segment: 0 },
        }
    }

    /// The hash of this key in the filter.
    #[inline]
    pub(crate) fn filter_hash(self) -> u64 {
        // The segment number counts the steps of a SplitMix64 sequence that starts at the object's
        // hash.
        mix(self.object.wrapping_add(self.segment.wrapping_mul(0x9E37_79B9_7F4A_7C15)))
    }
}

/// The key of Data with this name. `parent` is the hash of the name without its last component.
///
/// Only the last bytes of the name are checked for a segment number: walking the components would
/// cost more than the filter lookup. A long last component may end in the same bytes. Its Data then
/// gets the key of a segment of its parent. If the parent has that segment, too, the two replace
/// each other on disk. A reader compares names, so it never serves the wrong one.
#[inline]
pub(crate) fn key_of(name: NameView<'_>, whole: u64, parent: Option<u64>) -> Key {
    match (segment_at_end(name.value()), parent) {
        (Some(segment), Some(object)) => Key { object, segment },
        _ => Key { object: whole, segment: WHOLE },
    }
}

/// The segment number that a name seems to end with, if it is encoded in the shortest form and is
/// not [`WHOLE`]. The code tries longer numbers first, since their last bytes may look like a
/// shorter one.
#[inline]
pub(crate) fn segment_at_end(value: &[u8]) -> Option<u64> {
    const SEGMENT: u8 = tlv::SEGMENT_NAME_COMPONENT as u8;
    let Some(end) = value.last_chunk::<10>() else { return segment_at_short_end(value) };
    let number =
        u64::from_be_bytes([end[2], end[3], end[4], end[5], end[6], end[7], end[8], end[9]]);
    if end[..2] == [SEGMENT, 8] && number > u32::MAX.into() && number != WHOLE {
        Some(number)
    } else if end[4..6] == [SEGMENT, 4] && number as u32 > u16::MAX.into() {
        Some(number & 0xFFFF_FFFF)
    } else if end[6..8] == [SEGMENT, 2] && end[8] != 0 {
        Some(number & 0xFFFF)
    } else if end[7..9] == [SEGMENT, 1] {
        Some(number & 0xFF)
    } else {
        None
    }
}

/// The same for a name shorter than the 10 bytes that the longest number needs.
#[cold]
fn segment_at_short_end(value: &[u8]) -> Option<u64> {
    let mut padded = [0; 10];
    let begin = padded.len() - value.len();
    padded[begin..].copy_from_slice(value);
    segment_at_end(&padded)
}
