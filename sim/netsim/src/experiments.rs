//! Extensions that only experiments need. The caller supplies them, so that the simulator does not
//! depend on the crates that implement them.

use std::sync::Arc;

use weir_forward::Extension;
use weir_plan::{DiskPlan, PlanError, RouterPlan, StoreExperiments};
use weir_transport::Controllers;

/// Makes the store extension of a router from its plan; `None` if it needs none.
pub type StoreExtension = fn(&RouterPlan) -> Option<Arc<dyn Extension>>;

/// The extensions that a plan may name.
#[derive(Clone, Copy, Debug, Default)]
pub struct Experiments {
    /// Congestion controllers of consumers.
    pub controllers: Controllers,
    /// Extends the store of a router.
    pub store: Option<StoreExtension>,
}

impl Experiments {
    /// The extension of a router's shards.
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
        let problem = "belongs to an experiment, but the simulator was started without that \
            experiment's extensions"
            .into();
        Err(PlanError::Value { place: format!("node `{name}`"), key, problem })
    }
}
