//! A router's settings as the core has them.

use weir_forward::strategy::{Strategy, StrategyKind};
use weir_store::{Compare, IndexKind, StoreConfig};

use super::RouterPlan;
use crate::error::PlanError;

impl RouterPlan {
    /// The configuration of a router's store.
    ///
    /// # Errors
    /// A word of the plan is none of those that there are; `name` is the node's.
    pub fn store_config(&self, name: &str) -> Result<StoreConfig, PlanError> {
        let bad = |key, value: &str, choices| PlanError::Value {
            place: format!("node `{name}`"),
            key,
            problem: format!("is `{value}`; it must be {choices}"),
        };
        Ok(StoreConfig {
            capacity_bytes: self.store_bytes,
            policy: self.store_policy.parse().map_err(|_| {
                bad("store_policy", &self.store_policy, "lru, fifo, lfu or s3-fifo")
            })?,
            index: match self.store_index.as_str() {
                "hash" => IndexKind::Hash,
                "ordered" => IndexKind::Ordered,
                other => return Err(bad("store_index", other, "hash or ordered")),
            },
            compare: match self.store_compare.as_str() {
                "stored" => Compare::Stored,
                "decode" => Compare::Decode,
                other => return Err(bad("store_compare", other, "stored or decode")),
            },
            admit: self.store_admits,
            serve: true,
        })
    }

    /// A router's strategy of `/`.
    ///
    /// # Errors
    /// There is no strategy of that name; `name` is the node's.
    pub fn strategy_of_root(&self, name: &str) -> Result<Strategy, PlanError> {
        let kind = self.strategy.parse::<StrategyKind>().map_err(|_| PlanError::Value {
            place: format!("node `{name}`"),
            key: "strategy",
            problem: format!("is `{}`; it must be one of {:?}", self.strategy, StrategyKind::WORDS),
        })?;
        Ok(kind.into())
    }
}
