//! The superblock of a disk: the store it belongs to, its number in the set, and its layout.
//!
//! Two copies of [`SUPERBLOCK_BYTES`] lie at the start and at the end of the bytes in use. So
//! neither a torn write nor an overwritten end destroys both. In version 1 the second copy followed
//! the first, at [`COPY_OFFSET_V1`]. This program still reads and writes such disks. Integers are
//! little-endian. Bytes that are not listed are zero.
//!
//! | bytes | field |
//! |---|---|
//! | 0..8 | `WeirDisk` |
//! | 8..12 | version |
//! | 12..16 | checksum of all bytes from 16 on |
//! | 16..24 | set |
//! | 24..32 | store |
//! | 32..48 | key of the name hashes |
//! | 48..56 | generation |
//! | 56..64 | bytes of the disk in use |
//! | 64..72 | where region 0 begins |
//! | 72..80 | bytes of a region |
//! | 80..84 | bytes of a block |
//! | 84..88 | number of disks in the set |
//! | 88..92 | number of this disk |
//! | 92..96 | number of shards of the store |
//! | 96..104 | where the second copy lies (version 2) |

use super::config::{Checksum, DiskGeometry};
use alloc::boxed::Box;

pub const SUPERBLOCK_BYTES: usize = 4096;
/// Where the second copy was in version 1.
pub const COPY_OFFSET_V1: u64 = SUPERBLOCK_BYTES as u64;
/// The smallest offset of region 0.
pub const DATA_OFFSET_MIN: u64 = COPY_OFFSET_V1 + SUPERBLOCK_BYTES as u64;
/// The first bytes of each copy.
const SUPERBLOCK_MAGIC: [u8; 8] = *b"WeirDisk";
/// The version of new superblocks. Version 1 is read and written as well.
const SUPERBLOCK_VERSION: u32 = 2;
pub const DISKS_MAX: u32 = 16;
pub const REGION_BYTES_MIN: u64 = 64 << 10;
pub const REGION_BYTES_MAX: u64 = 1 << 30;

const CHECKED_FROM: usize = 16;

/// The contents of a superblock. It is secret: with `store_id` and `hash_key`, an attacker can
/// forge records of the store, and choose names that all fall into the same slot of its tables.
#[derive(Clone, PartialEq, Eq)]
pub struct Superblock {
    /// Marks the disks of one set. Random, drawn when the set is created.
    pub set_id: u64,
    /// Marks the records of the store. Drawn again whenever the store starts empty.
    pub store_id: u64,
    /// The key of the name hashes.
    pub hash_key: [u64; 2],
    /// Of two copies, the one with the higher generation is valid.
    pub generation: u64,
    /// Bytes in use, from the start of the file or device.
    pub bytes: u64,
    /// Where region 0 begins.
    pub data_offset: u64,
    pub region_bytes: u64,
    /// Alignment of reads and writes in bytes: 512 or 4096.
    pub block_bytes: u32,
    pub disks: u32,
    /// The number of this disk, from 0.
    pub disk: u32,
    /// Shards of the store. Regions are assigned to them in turn.
    pub shards: u32,
    /// Where the second copy lies: before the regions in version 1, behind them in version 2.
    pub copy_offset: u64,
}

impl core::fmt::Debug for Superblock {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        // Print no identifiers and keys: they must not get into a log.
        f.debug_struct("Superblock")
            .field("generation", &self.generation)
            .field("bytes", &self.bytes)
            .field("data_offset", &self.data_offset)
            .field("region_bytes", &self.region_bytes)
            .field("block_bytes", &self.block_bytes)
            .field("disks", &self.disks)
            .field("disk", &self.disk)
            .field("shards", &self.shards)
            .field("copy_offset", &self.copy_offset)
            .finish_non_exhaustive()
    }
}

/// Why bytes are not a superblock.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SuperblockFault {
    /// The magic bytes are missing.
    #[error("it does not start with a superblock of Weir")]
    Foreign,
    /// Written by another version of this program.
    #[error("its format version is {0}; this program supports 1 to {SUPERBLOCK_VERSION}")]
    Version(u32),
    /// The checksum does not match, or there are too few bytes.
    #[error("its checksum does not match")]
    Checksum,
    /// The checksum matches, but the values contradict each other.
    #[error("its values contradict each other")]
    Invalid,
}

impl Superblock {
    pub fn encode(&self, checksum: Checksum) -> Box<[u8; SUPERBLOCK_BYTES]> {
        let mut octets = Box::new([0; SUPERBLOCK_BYTES]);
        octets[..8].copy_from_slice(&SUPERBLOCK_MAGIC);
        let version = if self.copy_offset == COPY_OFFSET_V1 { 1 } else { SUPERBLOCK_VERSION };
        octets[8..12].copy_from_slice(&version.to_le_bytes());
        // Version 1 has its second copy at a fixed offset.
        if version > 1 {
            octets[96..104].copy_from_slice(&self.copy_offset.to_le_bytes());
        }
        let [key_low, key_high] = self.hash_key;
        let longs = [
            self.set_id,
            self.store_id,
            key_low,
            key_high,
            self.generation,
            self.bytes,
            self.data_offset,
            self.region_bytes,
        ];
        for (index, long) in longs.into_iter().enumerate() {
            octets[16 + 8 * index..24 + 8 * index].copy_from_slice(&long.to_le_bytes());
        }
        let words = [self.block_bytes, self.disks, self.disk, self.shards];
        for (index, word) in words.into_iter().enumerate() {
            octets[80 + 4 * index..84 + 4 * index].copy_from_slice(&word.to_le_bytes());
        }
        let sum = checksum(&octets[CHECKED_FROM..]);
        octets[12..16].copy_from_slice(&sum.to_le_bytes());
        octets
    }

    pub fn decode(octets: &[u8], checksum: Checksum) -> Result<Self, SuperblockFault> {
        if !octets.starts_with(&SUPERBLOCK_MAGIC) {
            return Err(SuperblockFault::Foreign);
        }
        // A block that is too short is one of ours, but damaged.
        let octets = octets.get(..SUPERBLOCK_BYTES).ok_or(SuperblockFault::Checksum)?;
        let word = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|octet| octets[at + octet]));
        let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        let version = word(8);
        if !(1..=SUPERBLOCK_VERSION).contains(&version) {
            return Err(SuperblockFault::Version(version));
        }
        if checksum(&octets[CHECKED_FROM..]) != word(12) {
            return Err(SuperblockFault::Checksum);
        }
        let superblock = Self {
            set_id: long(16),
            store_id: long(24),
            hash_key: [long(32), long(40)],
            generation: long(48),
            bytes: long(56),
            data_offset: long(64),
            region_bytes: long(72),
            block_bytes: word(80),
            disks: word(84),
            disk: word(88),
            shards: word(92),
            copy_offset: if version == 1 { COPY_OFFSET_V1 } else { long(96) },
        };
        if superblock.is_consistent() { Ok(superblock) } else { Err(SuperblockFault::Invalid) }
    }

    fn is_consistent(&self) -> bool {
        let block_bytes = u64::from(self.block_bytes);
        matches!(self.block_bytes, 512 | 4096)
            && (1..=DISKS_MAX).contains(&self.disks)
            && self.disk < self.disks
            && (1..=1 << 16).contains(&self.shards)
            && (REGION_BYTES_MIN..=REGION_BYTES_MAX).contains(&self.region_bytes)
            && self.region_bytes.is_multiple_of(block_bytes)
            && self.data_offset >= DATA_OFFSET_MIN
            && self.data_offset.is_multiple_of(block_bytes)
            && self.bytes >= self.data_offset
            && (self.copy_offset == COPY_OFFSET_V1
                || self.copy_offset >= self.data_offset
                    && self.copy_offset.is_multiple_of(block_bytes)
                    && self.copy_offset <= self.bytes.saturating_sub(SUPERBLOCK_BYTES as u64))
    }

    /// The largest offset at which a region may end.
    fn data_end(&self) -> u64 {
        if self.copy_offset == COPY_OFFSET_V1 { self.bytes } else { self.copy_offset }
    }

    /// Bytes that a disk needs for this number of regions.
    pub fn bytes_for(&self, regions: u64) -> u64 {
        self.data_offset + regions * self.region_bytes + (self.bytes - self.data_end())
    }

    fn regions(&self) -> u32 {
        let regions = (self.data_end() - self.data_offset) / self.region_bytes;
        u32::try_from(regions).unwrap_or(u32::MAX)
    }

    /// One shard's share of the disk.
    ///
    /// # Panics
    /// If there is no such shard.
    pub fn geometry(&self, shard: u32, is_writable: bool) -> DiskGeometry {
        assert!(shard < self.shards, "a store of {} shards has no shard {shard}", self.shards);
        DiskGeometry {
            data_offset: self.data_offset,
            region_bytes: self.region_bytes,
            block_bytes: self.block_bytes,
            first: shard,
            stride: self.shards,
            regions: self.regions().saturating_sub(shard).div_ceil(self.shards),
            is_writable,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;

    fn sum(octets: &[u8]) -> u32 {
        octets.iter().fold(1, |sum: u32, &octet| sum.rotate_left(5) ^ (u32::from(octet) + 7))
    }

    fn sample() -> Superblock {
        Superblock {
            set_id: 0x1122_3344_5566_7788,
            store_id: 0x99aa_bbcc_ddee_ff00,
            hash_key: [0xdead_beef_0bad_cafe, u64::MAX - 1],
            generation: 7,
            bytes: 8192 + 10 * (1 << 20) + 4096,
            data_offset: 8192,
            region_bytes: 1 << 20,
            block_bytes: 512,
            disks: 3,
            disk: 2,
            shards: 4,
            copy_offset: 8192 + 10 * (1 << 20),
        }
    }

    #[test]
    fn version_1_keeps_second_copy_at_start() {
        let before = Superblock { copy_offset: COPY_OFFSET_V1, ..sample() };
        let octets = before.encode(sum);
        assert_eq!(octets[8..12], [1, 0, 0, 0]);
        assert_eq!(octets[96..104], [0; 8]);
        assert_eq!(Superblock::decode(&octets[..], sum), Ok(before.clone()));
        // Its regions may extend to the end.
        let bytes = 8192 + 10 * (1 << 20);
        // Regions of version 1 may reach to the end of the disk.
        assert_eq!(Superblock { bytes, ..before.clone() }.regions(), 10);
        assert_eq!(Superblock { bytes, ..before }.bytes_for(10), bytes);
        assert_eq!(sample().bytes_for(10), bytes + 4096);
    }

    #[test]
    fn superblock_round_trips() {
        let octets = sample().encode(sum);
        assert_eq!(Superblock::decode(&octets[..], sum), Ok(sample()));
    }

    #[test]
    fn every_flipped_octet_is_noticed() {
        let octets = sample().encode(sum);
        for at in 0..SUPERBLOCK_BYTES {
            let mut flipped = octets.clone();
            flipped[at] ^= 0x10;
            assert!(Superblock::decode(&flipped[..], sum).is_err(), "byte {at}");
        }
        assert_eq!(Superblock::decode(&octets[..4095], sum), Err(SuperblockFault::Checksum));
        assert_eq!(Superblock::decode(&[], sum), Err(SuperblockFault::Foreign));
    }

    #[test]
    fn rejects_inconsistent_values() {
        let broken: [fn(&mut Superblock); 11] = [
            |block| block.block_bytes = 1024,
            |block| block.disks = 17,
            |block| block.disk = 3,
            |block| block.shards = 0,
            |block| block.region_bytes = 0,
            |block| block.region_bytes += 1,
            |block| block.data_offset = 4096,
            |block| block.bytes = 512,
            |block| block.copy_offset = 0,
            |block| block.copy_offset += 4096,
            |block| block.copy_offset -= 1,
        ];
        for (index, break_it) in broken.into_iter().enumerate() {
            let mut superblock = sample();
            break_it(&mut superblock);
            let octets = superblock.encode(sum);
            let read = Superblock::decode(&octets[..], sum);
            assert_eq!(read, Err(SuperblockFault::Invalid), "{index}");
        }
    }

    #[test]
    fn every_region_belongs_to_one_shard() {
        let superblock = sample();
        assert_eq!(superblock.regions(), 10);
        let mut owners = [0; 10];
        for shard in 0..4 {
            let share = superblock.geometry(shard, true);
            assert_eq!((share.first, share.stride), (shard, 4));
            (0..share.regions).for_each(|k| owners[(share.first + k * share.stride) as usize] += 1);
        }
        assert_eq!(owners, [1; 10]);
    }

    #[test]
    fn debug_output_hides_keys() {
        let text = format!("{:?}", sample());
        assert!(text.contains("shards: 4"), "{text}");
        assert!(!text.contains(&format!("{}", sample().store_id)), "{text}");
        assert!(!text.contains(&format!("{}", sample().hash_key[1])), "{text}");
    }
}
