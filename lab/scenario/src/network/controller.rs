//! The controller of a network.

use serde::Deserialize;
use weir_base::units::Time;
use weir_control::Placement;
use weir_plan::ControllerPlan;

use crate::apps::ConsumerGroup;
use crate::document::{ScenarioError, Tree};

/// `[controller]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(expecting = "a table", deny_unknown_fields)]
pub(crate) struct ControllerTable {
    #[serde(default = "yes")]
    enabled: bool,
    delay: Time,
    #[serde(default)]
    placement: Placement,
    #[serde(default)]
    prefetch: bool,
    #[serde(default)]
    prefetch_first: bool,
    #[serde(default)]
    ratio: Vec<u64>,
    #[serde(default)]
    agents: bool,
}

fn yes() -> bool {
    true
}

/// The plan of a scenario's controller, if one is enabled.
pub(crate) fn plan(
    tree: &Tree,
    table: Option<&ControllerTable>,
    consumers: &[ConsumerGroup],
) -> Result<Option<ControllerPlan>, ScenarioError> {
    let Some(table) = table else {
        return match consumers.iter().find(|group| group.prefetches) {
            None => Ok(None),
            Some(group) => {
                let message = "no controller orders a prefetch; add a [controller]";
                Err(tree.error(&format!("{}.prefetches", group.path), message))
            }
        };
    };
    let plan = ControllerPlan {
        delay_ns: table.delay.ns,
        placement: table.placement,
        prefetch: table.prefetch,
        prefetch_first: table.prefetch_first,
        ratio: table.ratio.clone(),
        agents: table.agents,
        routes: None,
    };
    Ok(table.enabled.then_some(plan))
}
