//! Parts of nodes that only experiments need, and that the caller brings along.

use std::sync::Arc;

use weir_forward::MakeDriver;
use weir_plan::{PlanError, RouterPlan};
use weir_transport::Controllers;

/// Makes what plans may ask for and routers do not have.
#[derive(Clone, Copy, Debug, Default)]
pub struct Experiments {
    /// The congestion controllers that consumers may have.
    pub controllers: Controllers,
    /// A store before which Interests queue while it reads, at most as many as the argument says.
    pub blocking_store: Option<fn(usize) -> Arc<dyn MakeDriver>>,
}

impl Experiments {
    /// What drives the shards of a router, if its plan wants more than their own order.
    pub(crate) fn driver(
        &self,
        name: &str,
        plan: &RouterPlan,
    ) -> Result<Option<Arc<dyn MakeDriver>>, PlanError> {
        let Some(disk) = plan.disk.as_ref().filter(|disk| disk.is_blocking()) else {
            return Ok(None);
        };
        match self.blocking_store {
            Some(make) => Ok(Some(make(disk.experiments.interests_waiting_max as usize))),
            None => Err(PlanError::Value {
                place: format!("node `{name}`"),
                key: "disk.io",
                problem: "is \"blocking\", but the simulator was given no such store".into(),
            }),
        }
    }
}
