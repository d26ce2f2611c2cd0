//! Where a record lies, and what Data is known by.

use core::fmt;
use core::num::NonZeroU64;
use weir_base::mix;
use weir_wire::{NameView, tlv};

/// Octets that offsets and lengths of records are counted in.
pub(crate) const SECTOR_BYTES: u64 = 512;
/// Units that a store's part of one disk may have: 32 TiB.
const OFFSET_SECTORS_MAX: u64 = 1 << OFFSET_BITS;

const OFFSET_BITS: u32 = 36;
const GENERATION_AT: u32 = OFFSET_BITS;
const SECTORS_AT: u32 = GENERATION_AT + 8;
const DISK_AT: u32 = SECTORS_AT + 8;
/// A bit that is always set: no place is 0.
const ADDRESS_BIT: NonZeroU64 = NonZeroU64::new(1 << 60).unwrap();
/// Bits that no place sets; the index keeps what it likes there.
pub(super) const SPARE_BITS: u64 = 0b111 << 61;

/// Where a record lies, in 8 octets: disk 4 bits, units of 512 octets that it takes 8 bits,
/// generation 8 bits, offset in units 36 bits.
///
/// The generation is the low bits of the sequence number of the region when the record was written.
/// Once the region is used again they differ, and the place says nothing any more.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecordAddress(NonZeroU64);

impl RecordAddress {
    /// The record of `sectors` at `offset_sectors` of the store's part of disk number `disk`.
    ///
    /// # Panics
    /// In debug builds, when `disk` is over 15 or `offset_sectors` not below 2^36.
    #[inline]
    pub(crate) fn new(disk: u8, offset_units: u64, units: u8, generation: u8) -> Self {
        debug_assert!(disk < 16 && offset_units < OFFSET_SECTORS_MAX);
        let fields = u64::from(disk & 15) << DISK_AT
            | u64::from(units) << SECTORS_AT
            | u64::from(generation) << GENERATION_AT
            | offset_units & (OFFSET_SECTORS_MAX - 1);
        Self(ADDRESS_BIT | fields)
    }

    /// The disk, an index into the disks of the store.
    #[inline]
    pub(crate) fn disk(self) -> u8 {
        (self.0.get() >> DISK_AT & 15) as u8
    }

    /// Where the record begins in the store's part of the disk, in units.
    #[inline]
    pub(crate) fn offset_sectors(self) -> u64 {
        self.0.get() & (OFFSET_SECTORS_MAX - 1)
    }

    /// Units that the record takes.
    #[inline]
    pub(crate) fn sectors(self) -> u8 {
        (self.0.get() >> SECTORS_AT) as u8
    }

    /// The low bits of the sequence number of its region.
    #[inline]
    pub(crate) fn generation(self) -> u8 {
        (self.0.get() >> GENERATION_AT) as u8
    }

    #[inline]
    pub(super) fn to_word(self) -> u64 {
        self.0.get()
    }

    /// The place in a word, whose spare bits are not looked at.
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
        f.debug_struct("Place")
            .field("disk", &self.disk())
            .field("offset_units", &self.offset_sectors())
            .field("units", &self.sectors())
            .field("generation", &self.generation())
            .finish()
    }
}

/// The [`Key::segment`] of Data whose name does not end with a segment number.
pub(crate) const WHOLE: u64 = u64::MAX;

/// What the disk tier knows Data by.
///
/// Data whose name ends with a segment component is the hash of the name before it and the number,
/// any other Data the hash of its whole name and [`WHOLE`]. The segment number 2^64 - 1 would read
/// as [`WHOLE`], so such Data counts as any other too.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Key {
    /// The hash of the object's name.
    pub object: u64,
    /// The number of the segment, or [`WHOLE`].
    pub segment: u64,
}

impl Key {
    /// The least key that is greater.
    pub(super) fn next(self) -> Self {
        match self.segment.checked_add(1) {
            Some(segment) => Self { segment, ..self },
            None => Self { object: self.object.wrapping_add(1), segment: 0 },
        }
    }

    /// The hash that stands for this Data in the filter.
    #[inline]
    pub(crate) fn filter_hash(self) -> u64 {
        // The steps of SplitMix64 from the object's hash on.
        mix(self.object.wrapping_add(self.segment.wrapping_mul(0x9E37_79B9_7F4A_7C15)))
    }
}

/// The key of Data of this name. `parent` is the hash of the name without its last component.
///
/// The last octets of a name say whether it ends with a segment number: a walk through its
/// components would cost more than the filter. A long last component may end in the same octets; it
/// is then known by its parent and that number, which only matters where the parent has the very
/// segment too: the two get in each other's way, and names are compared anyway.
#[inline]
pub(crate) fn key_of(name: NameView<'_>, whole: u64, parent: Option<u64>) -> Key {
    match (segment_at_end(name.value()), parent) {
        (Some(segment), Some(object)) => Key { object, segment },
        _ => Key { object: whole, segment: WHOLE },
    }
}

/// The number of the segment that a name seems to end with, if it is in the shortest form and does
/// not read as [`WHOLE`]. Longer numbers come first: their last octets may look like shorter ones.
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

/// The same of a name that has no room for the longest number.
#[cold]
fn segment_at_short_end(value: &[u8]) -> Option<u64> {
    let mut padded = [0; 10];
    let begin = padded.len() - value.len();
    padded[begin..].copy_from_slice(value);
    segment_at_end(&padded)
}
