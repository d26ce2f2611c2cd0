//! What `weir status` shows of the controller.

use std::sync::atomic::Ordering;

use weir_manage::ControllerStatus;

use crate::rest::ControllerHealth;
use crate::shared::AgentShared;

/// The state of the connection to the controller. `urls` are the configured ones.
pub(crate) fn controller_status(
    urls: &str,
    health: &ControllerHealth,
    shared: &AgentShared,
) -> ControllerStatus {
    let (generation, problems) = shared.setup();
    let problem = match shared.is_name_refused() {
        true => Some("another router has this router's name at the controller".to_owned()),
        false => problems.into_iter().next().map(|problem| problem.text),
    };
    let connected_ms = health.connected_ms.load(Ordering::Relaxed);
    ControllerStatus {
        urls: urls.to_owned(),
        is_reachable: u64::from(health.is_reachable.load(Ordering::Relaxed)),
        connected_unix_ms: (connected_ms > 0).then_some(connected_ms),
        reported_unix_ms: shared.reported_ms(),
        confirmed_unix_ms: shared.confirmed_ms(),
        generation,
        problem,
    }
}
