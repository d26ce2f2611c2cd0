//! A router's settings as the core has them.

use weir_forward::strategy::{Strategy, StrategyKind};

use super::RouterPlan;
use crate::error::PlanError;

impl RouterPlan {
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
