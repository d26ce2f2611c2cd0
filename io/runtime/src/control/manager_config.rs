//! The manager's part of the configuration, for the start and for reloads.

use weir_manage::{AnchorLookup, ManagerConfig, StoreSettings};

use super::anchors::Anchors;
use super::operators::Operators;
use crate::config::{RuntimeConfig, TrustAnchor};

/// `None` without anchors.
fn lookup(anchors: &[TrustAnchor]) -> Option<Box<dyn AnchorLookup>> {
    (!anchors.is_empty()).then(|| Box::new(Anchors(anchors.to_vec())) as _)
}

pub(super) fn manager_config(config: &RuntimeConfig, store_bytes_max: u64) -> ManagerConfig {
    ManagerConfig {
        anchors: lookup(&config.management.trust_anchors),
        announcement_anchors: lookup(&config.management.announcement_anchors),
        local_registration: config.management.local_registration,
        operators: Operators::new(config).describe(),
        localhop: config.management.localhop,
        holdings_for_neighbours: config.management.holdings_for_neighbours,
        readvertise_nlsr: config.management.readvertise_nlsr,
        store: StoreSettings {
            capacity_bytes: config.store.capacity_bytes,
            admit: config.store.admit,
            serve: config.store.serve,
        },
        store_bytes_max,
        routes_max: config.fib_entries_max,
        fib_entries_max: config.fib_entries_max,
        ..ManagerConfig::default()
    }
}
