//! A router's disks and what it does with them.

use serde::{Deserialize, Serialize};
use weir_base::NS_PER_MS;
use weir_forward::{BusyPolicy, Bypass, Mark, StoreIo};
use weir_netem::DiskConfig;
use weir_store::disk::{Admission, Contention, FilterKind, OfferAt};

/// Disks that a router may have.
pub const DISKS_MAX: u8 = 16;

/// The disks of a router. In the real arm they are files, or block devices, of these sizes, paced
/// to the times of `device`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DiskPlan {
    /// How many there are, side by side; at most [`DISKS_MAX`].
    pub disks: u8,
    /// Octets of each, for all shards of the router together.
    pub bytes: u64,
    /// Octets of a region, which is evicted as a whole; a multiple of `block_bytes`.
    pub region_bytes: u64,
    /// Octets that reads and writes are aligned to: 512 or 4,096.
    pub block_bytes: u32,
    /// How fast each disk is. Its queue is not used: the router has queues of its own.
    pub device: DiskConfig,
    /// How many of the objects of all producers of the plan are on the disks from the start, drawn
    /// by the seed, as far as they fit.
    pub filled_objects: u32,
    /// And objects of every producer that are, by their numbers: first and last of each range.
    pub filled_ranges: Vec<(u64, u64)>,
    /// And the share of all segments that are, 0 to 1, as
    /// [`RouterPlan::store_filled`](super::RouterPlan::store_filled) has it for RAM.
    pub filled: f64,
    /// What stands before the index.
    #[serde(with = "super::words")]
    pub filter: FilterKind,
    /// Whether reads block the router.
    #[serde(with = "super::words")]
    pub io: StoreIo,
    /// When Interests pass the disks by.
    #[serde(with = "super::words")]
    pub bypass: Bypass,
    /// Which Data is marked for congestion.
    #[serde(with = "super::words")]
    pub mark: Mark,
    /// Reads before a disk from which on Interests go elsewhere if they can.
    pub threshold: u32,
    /// Whose turn it is when reads and writes wait for one disk.
    #[serde(with = "super::words")]
    pub contention: Contention,
    /// Which Data may go on disk.
    #[serde(with = "super::words")]
    pub admission: Admission,
    /// When it is offered to the disk.
    #[serde(with = "super::words")]
    pub offer: OfferAt,
    /// Operations under way at a disk at most; shards have equal parts of this and of all bounds.
    pub depth: u32,
    /// Reads that wait for a disk, or are under way, at most.
    pub reads_max: u32,
    /// Records that wait to be written to a disk, or are being written, at most.
    pub writes_max: u32,
    /// Octets written at once at most, unless one record is longer.
    pub write_bytes_max: u32,
    /// How long a record may wait for others to be written with, ns.
    pub write_delay_ns: u64,
    /// An operation that takes longer says that the disk is stalled, ns.
    pub stalled_after_ns: u64,
    /// How often neighbours are told that the disks are over the threshold, ns.
    pub announce_period_ns: u64,
    /// With [`StoreIo::Blocking`]: Interests that queue before the store at most.
    pub interests_waiting_max: u32,
    /// False positives of the filter among a million, once the disks are full.
    pub false_positives_ppm: u32,
    /// Octets of a typical record, by which the filter is sized.
    pub record_bytes_typical: u32,
}

impl Default for DiskPlan {
    fn default() -> Self {
        Self {
            disks: 1,
            bytes: 1 << 30,
            region_bytes: 4 << 20,
            block_bytes: 4096,
            device: DiskConfig::default(),
            filled_objects: 0,
            filled_ranges: Vec::new(),
            filled: 0.0,
            filter: FilterKind::default(),
            io: StoreIo::default(),
            bypass: Bypass::default(),
            mark: Mark::default(),
            threshold: 64,
            contention: Contention::default(),
            admission: Admission::default(),
            offer: OfferAt::default(),
            depth: 64,
            reads_max: 4096,
            writes_max: 4096,
            write_bytes_max: 256 << 10,
            write_delay_ns: 5 * NS_PER_MS,
            stalled_after_ns: 500 * NS_PER_MS,
            announce_period_ns: 10 * NS_PER_MS,
            interests_waiting_max: 20_000,
            false_positives_ppm: 10_000,
            record_bytes_typical: 8192 + 512,
        }
    }
}

impl DiskPlan {
    /// What the router does when its disks are busy.
    #[must_use]
    pub fn busy_policy(&self) -> BusyPolicy {
        BusyPolicy {
            io: self.io,
            bypass: self.bypass,
            mark: self.mark,
            announce_period_ns: self.announce_period_ns,
            interests_waiting_max: self.interests_waiting_max as usize,
        }
    }

    /// Whole regions of one disk.
    #[must_use]
    pub fn regions(&self) -> u32 {
        u32::try_from(self.bytes / self.region_bytes.max(1)).unwrap_or(u32::MAX)
    }
}
