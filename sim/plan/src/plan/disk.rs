//! The disks of a router, and how it uses them.

use serde::{Deserialize, Serialize};
use weir_forward::{BusyPolicy, Bypass};
use weir_netem::DiskConfig;
use weir_options::DisksOptions;
use weir_store::disk::{DiskTierConfig, OfferAt};

use super::experiments::{DiskExperiments, StoreIo};

/// Limit on the disks of a router.
pub const DISKS_MAX: u8 = 16;

/// The disks of a router. In the real arm they are files or block devices of these sizes, paced to
/// the times of `device`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DiskPlan {
    /// Number of parallel disks, at most [`DISKS_MAX`].
    pub disks: u8,
    /// Size of each disk in bytes, for all shards of the router together.
    pub bytes: u64,
    /// Size of a region, which is evicted as a whole; a multiple of `block_bytes`.
    pub region_bytes: u64,
    /// Alignment of reads and writes in bytes: 512 or 4,096.
    pub block_bytes: u32,
    /// Speed of each disk. Its queue setting is ignored, because the router has its own queues.
    pub device: DiskConfig,
    /// The name of a device that serves the disks of all routers with this name in one queue. Each
    /// such router has one disk, with the same `device`. Simulator only.
    pub shared_as: Option<String>,
    /// Number of objects of all producers that are on the disks at the start. The seed chooses
    /// them, and those that do not fit are omitted.
    pub filled_objects: u32,
    /// Further objects of every producer on the disks at the start, as ranges of object numbers
    /// (first, last).
    pub filled_ranges: Vec<(u64, u64)>,
    /// Fraction of all segments on the disks at the start, 0 to 1, like
    /// [`RouterPlan::store_filled`](super::RouterPlan::store_filled) in memory.
    pub filled: f64,
    /// How the router uses the disks. The simulator ignores `index_memory_max` and `stop_timeout`.
    pub options: DisksOptions,
    /// Disk settings for experiments only.
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
    /// The options of a plan that names none. Results were recorded with them, while the router's
    /// defaults write earlier and bypass later.
    pub fn recorded_options() -> DisksOptions {
        let (offer, bypass) = (OfferAt::Eviction, Bypass::Threshold);
        DisksOptions { offer, bypass, ..DisksOptions::default() }
    }

    /// What the router does when the disks are busy.
    pub fn busy(&self) -> BusyPolicy {
        self.experiments.busy(self.options.busy())
    }

    /// Applies these options to `tier`, see [`DisksOptions::tier`].
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
