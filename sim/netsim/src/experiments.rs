//! Parts of nodes that only experiments need, and that the caller brings along.

use std::sync::Arc;

use weir_forward::Extension;
use weir_plan::{DiskPlan, PlanError, RouterPlan, StoreExperiments};
use weir_transport::Controllers;

/// What extends the store of a router, by its plan.
pub type StoreExtension = fn(&RouterPlan) -> Option<Arc<dyn Extension>>;

/// Makes what plans may request and routers do not have.
#[derive(Clone, Copy, Debug, Default)]
pub struct Experiments {
    /// The congestion controllers that consumers may have.
    pub controllers: Controllers,
    /// Extends the store of a router as its plan says.
    pub store: Option<StoreExtension>,
}

impl Experiments {
    /// What extends the shards of a router.
    pub(crate) fn extension(
        &self,
        name: &str,
        plan: &RouterPlan,
    ) -> Result<Option<Arc<dyn Extension>>, PlanError> {
        if let Some(extension) = self.store {
            return Ok(extension(plan));
        }
        let key = if plan.disk.as_ref().is_some_and(DiskPlan::is_blocking) {
            "disk.io"
        } else if plan.store_experiments != StoreExperiments::default() {
            "store.index"
        } else {
            return Ok(None);
        };
        let problem = "is of an experiment, whose parts the simulator was not given".into();
        Err(PlanError::Value { place: format!("node `{name}`"), key, problem })
    }
}
