use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;
use weir_base::units::parse_bytes;
use weir_base::{HashKey, NS_PER_MS, UnknownWord, words};

/// CRC-32C of octets. Passed in, since the fast ones need to ask the processor.
pub type Checksum = fn(&[u8]) -> u32;

/// The part of one disk that belongs to one shard's store: every `stride`th region from `first` on.
#[derive(Clone, Debug)]
pub struct DiskGeometry {
    /// Where region 0 of the disk begins; a multiple of `block_bytes`.
    pub data_offset: u64,
    /// Octets of a region; a multiple of `block_bytes`.
    pub region_bytes: u64,
    /// Octets that reads and writes are aligned to: 512 or 4,096.
    pub block_bytes: u32,
    /// The first region of this store.
    pub first: u32,
    /// Regions from one of this store to the next.
    pub stride: u32,
    /// Regions of this store; at least 2 for it to store anything.
    pub regions: u32,
    /// Whether it can be written to.
    pub is_writable: bool,
}

/// What stands before the index on disk (paper nb-cache, III-B).
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug, Default)]
pub enum FilterKind {
    #[default]
    Bloom,
    /// Nothing: the index itself is asked.
    Index,
}

/// Which Data may go to disk.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug, Default)]
pub enum Admission {
    #[default]
    All,
    /// What was used at least once since it came.
    SecondHit,
    /// Packets of at least this number of octets.
    Size {
        /// The least octets of a Data TLV.
        bytes_min: u32,
    },
}

/// When Data is offered to the disk.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug, Default)]
pub enum OfferAt {
    /// As soon as RAM is a quarter full, oldest Data first, so that disks have time until RAM has
    /// no room for it.
    #[default]
    Early,
    /// When RAM has no room for it any more.
    Eviction,
    /// When it comes.
    Arrival,
}

/// Whose turn it is when reads and writes wait for one disk (paper nb-cache, VI-B.2).
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug, Default)]
pub enum Contention {
    /// Whoever came first.
    Fifo,
    DataFirst,
    #[default]
    InterestFirst,
}

words!(FilterKind { Bloom = "bloom", Index = "index" });
words!(OfferAt { Early = "early", Eviction = "eviction", Arrival = "arrival" });
words!(Contention { Fifo = "fifo", DataFirst = "data-first", InterestFirst = "interest-first" });

impl fmt::Display for Admission {
    /// `packets`, `second-hit`, or the least octets.
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

/// How the disk tier of one shard's store behaves. Fixed while the store lives.
#[derive(Clone, Debug)]
pub struct DiskTierConfig {
    /// The disks, at most 16.
    pub disks: Vec<DiskGeometry>,
    /// Marks the records of this store among all others. Secret and random: nobody can make octets
    /// that look like a record.
    pub store_id: u64,
    /// The key of the name hashes of the router that the store belongs to. It must be the same in
    /// all its lives: the index on disk knows names by their hashes.
    pub hash_key: HashKey,
    /// CRC-32C.
    pub checksum: Checksum,
    /// Milliseconds since 1970 at [`Instant::ZERO`](weir_base::Instant::ZERO): freshness on disk is
    /// in wall time, so that it outlives the router.
    pub unix_ms_at_zero: u64,
    /// What stands before the index.
    pub filter: FilterKind,
    /// False positives of the filter among a million, once the disks are full.
    pub false_positives_ppm: u32,
    /// Octets of a typical record. The filter is sized for as many as fit; with more of them its
    /// false positives rise.
    pub record_bytes_typical: u32,
    /// Octets of RAM for index and filter: what might need more is not stored, even if only for as
    /// long as a table grows. Below some 100 KiB hardly anything is.
    pub index_bytes_max: u64,
    /// Which Data goes to disk.
    pub admission: Admission,
    /// When it does.
    pub offer_at: OfferAt,
    /// Whose turn it is.
    pub contention: Contention,
    /// Operations under way at a disk at most.
    pub depth: u32,
    /// Reads that wait for a disk, or are under way, at most: the hard bound.
    pub reads_max: u32,
    /// Octets of records that wait to be written, or are under way, at most, of all disks
    /// together: beyond it Data passes by without being stored (paper nb-cache, V-C.1).
    pub write_backlog_bytes_max: u64,
    /// Reads before a disk from which on Interests go elsewhere if they can (paper nb-cache,
    /// III-C).
    pub bypass_threshold: u32,
    /// Octets written at once at most, unless one record is longer.
    pub write_bytes_max: u32,
    /// How long a record may wait for others to be written with, ns.
    pub write_delay_max_ns: u64,
    /// An operation that takes longer says that the disk is stalled: what waits for it is let go,
    /// and nothing more is asked of the disk until it answers, ns.
    pub stalled_after_ns: u64,
}

impl DiskGeometry {
    /// Octets of all regions of the store's.
    pub(super) fn log_bytes(&self) -> u64 {
        u64::from(self.regions) * self.region_bytes
    }
}

impl DiskTierConfig {
    /// The share of one shard, where depth and bounds are those of a whole router.
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

    /// Defaults for these disks.
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
