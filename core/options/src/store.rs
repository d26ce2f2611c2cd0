//! Options of the memory for Data.

use weir_base::units::Size;
use weir_forward::UnsolicitedPolicy;
use weir_store::{EvictionPolicy, StoreConfig};

options! {
    /// How a router stores Data: `[store]` of its configuration, `[router.store]` of a scenario.
    pub struct StoreOptions {
        /// Memory for copies of Data. 0 stores nothing. Disks are configured in `[[disk]]` below.
        size: Size = Size { bytes: 256 << 20 };
        /// Eviction policy of a full store: "parts", "s3-fifo", "lru", "fifo" or "lfu".
        policy: EvictionPolicy = StoreConfig::default().policy;
        /// Whether new Data is stored.
        admit: bool = StoreConfig::default().admit;
        /// Whether stored Data answers Interests.
        serve: bool = StoreConfig::default().serve;
        /// Whether Data that no Interest requested is stored: "drop-all", "admit-local" (from
        /// programs of this machine), "admit-network" (from other machines) or "admit-all".
        unsolicited: UnsolicitedPolicy = UnsolicitedPolicy::default();
    }
}

impl StoreOptions {
    /// The defaults with `bytes` bytes of memory.
    pub fn with_bytes(bytes: u64) -> Self {
        Self { size: Size { bytes }, ..Self::default() }
    }

    /// The configuration of the store. `unsolicited` belongs to the router.
    pub fn config(&self) -> StoreConfig {
        StoreConfig {
            capacity_bytes: self.size.bytes,
            policy: self.policy,
            admit: self.admit,
            serve: self.serve,
        }
    }
}
