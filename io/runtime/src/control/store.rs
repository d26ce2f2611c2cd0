//! Settings of the content store, and the preparer of its memory.

use weir_forward::Command;
use weir_manage::StoreSettings;
use weir_store::{EvictionPolicy, StoreConfig};

use super::workers::Workers;
use crate::arena::Preparer;

/// Settings that all shards' stores share.
pub(super) struct Store {
    workers: Workers,
    config: StoreConfig,
    memory: Option<Preparer>,
}

impl Store {
    pub(super) fn new(workers: Workers, config: StoreConfig, memory: Option<Preparer>) -> Self {
        Self { workers, config, memory }
    }

    /// Starts the thread that prepares memory.
    pub(super) fn start(&mut self) {
        if let Some(memory) = &mut self.memory {
            memory.start();
        }
    }

    pub(super) fn capacity_bytes(&self) -> u64 {
        self.config.capacity_bytes
    }

    pub(super) fn settings(&self) -> StoreSettings {
        StoreSettings {
            capacity_bytes: self.config.capacity_bytes,
            admit: self.config.admit,
            serve: self.config.serve,
        }
    }

    /// Replaces the eviction policy.
    pub(super) fn set_policy(&mut self, policy: EvictionPolicy) {
        self.config.policy = policy;
        let share = shard_store(&self.config, self.workers.count());
        self.workers.send_all_shards(|| Command::ConfigureStore(share.clone()));
    }

    pub(super) fn configure(&mut self, settings: &StoreSettings) {
        self.config.capacity_bytes = settings.capacity_bytes;
        self.config.admit = settings.admit;
        self.config.serve = settings.serve;
        if let Some(memory) = &self.memory {
            memory.set_capacity(settings.capacity_bytes);
        }
        let share = shard_store(&self.config, self.workers.count());
        self.workers.send_all_shards(|| Command::ConfigureStore(share.clone()));
    }
}

/// The configuration of one shard's store.
pub(super) fn shard_store(whole: &StoreConfig, shards: u16) -> StoreConfig {
    StoreConfig { capacity_bytes: whole.capacity_bytes / u64::from(shards), ..whole.clone() }
}
