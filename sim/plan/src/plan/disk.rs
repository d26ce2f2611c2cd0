//! A router's disks and what it does with them.

use serde::{Deserialize, Serialize};
use weir_forward::{BusyPolicy, Bypass};
use weir_netem::DiskConfig;
use weir_options::DisksOptions;
use weir_store::disk::{DiskTierConfig, OfferAt};

use super::experiments::{DiskExperiments, StoreIo};

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
    /// The name of a device that serves the disk of this router and of all others that name it,
    /// in one queue: a disk each, of the same `device`. The simulator has it, the real arm not.
    pub shared_as: Option<String>,
    /// How many of the objects of all producers of the plan are on the disks from the start, drawn
    /// by the seed, as far as they fit.
    pub filled_objects: u32,
    /// And objects of every producer that are, by their numbers: first and last of each range.
    pub filled_ranges: Vec<(u64, u64)>,
    /// And the share of all segments that are, 0 to 1, as
    /// [`RouterPlan::store_filled`](super::RouterPlan::store_filled) has it for RAM.
    pub filled: f64,
    /// How the router uses them. The simulator has no use for `index_memory_max` and
    /// `stop_timeout`.
    pub options: DisksOptions,
    /// What no operator chooses.
    pub experiments: DiskExperiments,
}

impl Default for DiskPlan {
    fn default() -> Self {
        Self {
            disks: 1,
            bytes: 1 << 30,
            region_bytes: 4 << 20,
            block_bytes: 4096,
            device: DiskConfig::default(),
            shared_as: None,
            filled_objects: 0,
            filled_ranges: Vec::new(),
            filled: 0.0,
            options: Self::recorded_options(),
            experiments: DiskExperiments::default(),
        }
    }
}

impl DiskPlan {
    /// The options of a plan that names none: those that results were recorded with, where a router
    /// writes earlier and bypasses later by default.
    pub fn recorded_options() -> DisksOptions {
        let (offer, bypass) = (OfferAt::Eviction, Bypass::Threshold);
        DisksOptions { offer, bypass, ..DisksOptions::default() }
    }

    /// What the router does when the disks are busy.
    pub fn busy(&self) -> BusyPolicy {
        self.experiments.busy(self.options.busy())
    }

    /// `tier` with these options, see [`DisksOptions::tier`].
    pub fn tier(&self, tier: DiskTierConfig) -> DiskTierConfig {
        self.experiments.tier(self.options.tier(tier))
    }

    /// Whether Interests queue before the store while it reads.
    pub fn is_blocking(&self) -> bool {
        self.experiments.io == StoreIo::Blocking
    }

    pub fn regions(&self) -> u32 {
        u32::try_from(self.bytes / self.region_bytes.max(1)).unwrap_or(u32::MAX)
    }
}
