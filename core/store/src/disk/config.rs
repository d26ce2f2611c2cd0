use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;
use weir_base::units::parse_bytes;
use weir_base::{HashKey, NS_PER_MS, UnknownWord, words};

/// Computes the CRC-32C of bytes. The caller passes the function, because fast variants depend on
/// the processor and this crate has no unsafe code.
pub type Checksum = fn(&[u8]) -> u32;

/// One shard's share of one disk: every `stride`th region, starting with region `first`.
#[derive(Clone, Debug)]
pub struct DiskGeometry {
    /// Where region 0 of the disk begins, in bytes; a multiple of `block_bytes`.
    pub data_offset: u64,
    /// Bytes of a region; a multiple of `block_bytes`.
    pub region_bytes: u64,
    /// Alignment of reads and writes in bytes: 512 or 4096.
    pub block_bytes: u32,
    /// The first region of this store.
    pub first: u32,
    /// The distance from one region of this store to the next.
    pub stride: u32,
    /// The number of regions of this store. With fewer than 2, nothing is stored.
    pub regions: u32,
    pub is_writable: bool,
}

/// The filter that a lookup consults before the index of the disks (paper nb-cache, III-B).
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug, Default)]
pub enum FilterKind {
    /// A counting Bloom filter.
    #[default]
    Bloom,
    /// Nothing: the lookup goes to the index directly.
    Index,
}

/// Which Data the disk tier stores.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug, Default)]
pub enum Admission {
    #[default]
    All,
    /// Data that was used at least once since it was inserted into memory.
    SecondHit,
    /// Packets of at least this size.
    Size {
        /// Bytes of the Data TLV.
        bytes_min: u32,
    },
}

/// When Data is offered to the disk tier.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug, Default)]
pub enum OfferAt {
    /// As soon as memory is a quarter full, oldest Data first. Disks then have time until memory
    /// must evict the Data.
    #[default]
    Early,
    /// When memory evicts the Data.
    Eviction,
    /// When the Data arrives.
    Arrival,
}

/// Which operation goes first when reads and writes wait for the same disk (paper nb-cache,
/// VI-B.2).
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug, Default)]
pub enum Contention {
    /// The one that has waited longest.
    Fifo,
    /// Writes.
    DataFirst,
    /// Reads.
    #[default]
    InterestFirst,
}

words!(FilterKind { Bloom = "bloom", Index = "index" });
words!(OfferAt { Early = "early", Eviction = "eviction", Arrival = "arrival" });
words!(Contention { Fifo = "fifo", DataFirst = "data-first", InterestFirst = "interest-first" });

impl fmt::Display for Admission {
    /// `all`, `second-hit`, or the smallest size in bytes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("all"),
            Self::SecondHit => f.write_str("second-hit"),
            Self::Size { bytes_min } => write!(f, "{bytes_min}"),
        }
    }
}

impl FromStr for Admission {
    type Err = UnknownWord;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "all" => Ok(Self::All),
            "second-hit" => Ok(Self::SecondHit),
            size => {
                let bytes = parse_bytes(size).ok().and_then(|bytes| u32::try_from(bytes).ok());
                let unknown = UnknownWord { words: &["all", "second-hit", "4KiB"] };
                bytes.map(|bytes_min| Self::Size { bytes_min }).ok_or(unknown)
            }
        }
    }
}

/// Configuration of the disk tier of one shard's store. It does not change while the store exists.
#[derive(Clone, Debug)]
pub struct DiskTierConfig {
    /// At most 16 disks.
    pub disks: Vec<DiskGeometry>,
    /// Marks the records of this store. It must be secret and random, so that packet content cannot
    /// look like a record.
    pub store_id: u64,
    /// The key of the router's name hashes. It must be the same after each restart, because
    /// checkpoints on disk contain hashes.
    pub hash_key: HashKey,
    pub checksum: Checksum,
    /// Milliseconds since 1970 at [`Instant::ZERO`](weir_base::Instant::ZERO). Freshness on disk is
    /// in wall-clock time, so that it survives a restart.
    pub unix_ms_at_zero: u64,
    /// The filter in front of the index.
    pub filter: FilterKind,
    /// False positives of the filter in a million lookups, once the disks are full.
    pub false_positives_ppm: u32,
    /// Bytes of a typical record, by which the filter is sized. Smaller records raise the rate of
    /// false positives.
    pub record_bytes_typical: u32,
    /// Bytes of memory for index and filter. A record is not stored if it might exceed them, even
    /// if only while a table grows. Below about 100 KiB, hardly any record is stored.
    pub index_bytes_max: u64,
    pub admission: Admission,
    pub offer_at: OfferAt,
    pub contention: Contention,
    /// Most operations in progress on one disk.
    pub depth: u32,
    /// Most reads that wait for one disk or are in progress. Beyond this limit, the tier refuses
    /// reads.
    pub reads_max: u32,
    /// Most bytes of records that wait to be written or are being written, on all disks together.
    /// Beyond this limit Data is not stored (paper nb-cache, V-C.1).
    pub write_backlog_bytes_max: u64,
    /// If at least this many reads wait for a disk, the router forwards Interests instead of
    /// reading, if it can (paper nb-cache, III-C).
    pub bypass_threshold: u32,
    /// Most bytes of one write, unless a single record is longer.
    pub write_bytes_max: u32,
    /// How long a record may wait for other records to be written together with it, in nanoseconds.
    pub write_delay_max_ns: u64,
    /// How long an operation may take before the disk counts as stalled, in nanoseconds. The tier
    /// then ends the reads that wait for the disk, and sends it no operations until it responds.
    pub stalled_after_ns: u64,
}

impl DiskGeometry {
    /// Bytes of all regions of this store.
    pub(super) fn log_bytes(&self) -> u64 {
        u64::from(self.regions) * self.region_bytes
    }
}

impl DiskTierConfig {
    /// One shard's share of a configuration whose depth and limits apply to the whole router.
    #[must_use]
    pub fn for_shard(self, shards: u32) -> Self {
        Self {
            depth: (self.depth / shards).max(1),
            reads_max: (self.reads_max / shards).max(1),
            write_backlog_bytes_max: self.write_backlog_bytes_max / u64::from(shards),
            bypass_threshold: self.bypass_threshold.div_ceil(shards),
            ..self
        }
    }

    /// Default values for these disks.
    pub fn new(
        disks: Vec<DiskGeometry>,
        store_id: u64,
        hash_key: HashKey,
        checksum: Checksum,
    ) -> Self {
        Self {
            disks,
            store_id,
            hash_key,
            checksum,
            unix_ms_at_zero: 0,
            filter: FilterKind::default(),
            false_positives_ppm: 10_000,
            record_bytes_typical: 8192 + 512,
            index_bytes_max: u64::MAX,
            admission: Admission::default(),
            offer_at: OfferAt::default(),
            contention: Contention::default(),
            depth: 64,
            reads_max: 4096,
            write_backlog_bytes_max: 128 << 20,
            bypass_threshold: 64,
            write_bytes_max: 256 << 10,
            write_delay_max_ns: 5 * NS_PER_MS,
            stalled_after_ns: 500 * NS_PER_MS,
        }
    }
}
