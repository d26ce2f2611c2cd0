use weir_base::units::Time;
use weir_base::{Instant, NS_PER_MS};
use weir_wire::CongestionMark;

use super::policy::{Joining, Policy};
use super::sojourn::Sojourn;

/// When `step` marks.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct StepOptions {
    /// For how long the oldest packet of the queue may wait without marks, ns.
    pub target_ns: u64,
}

impl Default for StepOptions {
    fn default() -> Self {
        Self { target_ns: NS_PER_MS }
    }
}

/// Marks every Data that joins while the oldest packet of the queue waits for longer than a target,
/// as the queue of DualPI2 for scalable controllers does (RFC 9332, 2.5.1).
#[derive(Debug)]
pub(crate) struct Step {
    sojourn: Sojourn,
}

impl Policy for Step {
    type Options = StepOptions;

    const MARK: CongestionMark = CongestionMark::PROPORTIONAL;

    fn new(options: &StepOptions, _capacity_bytes: u64, _seed: u64) -> Self {
        Self { sojourn: Sojourn::new(options.target_ns) }
    }

    fn set(options: &mut StepOptions, key: &str, value: &str) -> bool {
        let time = value.parse().ok().filter(|_| key == "target");
        time.inspect(|time: &Time| options.target_ns = time.ns).is_some()
    }

    fn marks(&mut self, joining: &Joining) -> bool {
        joining.is_data && self.sojourn.is_late(joining.now, joining.queue_bytes)
    }

    fn joined(&mut self, now: Instant, wire_bytes: u64) {
        self.sojourn.add(now, wire_bytes);
    }
}
