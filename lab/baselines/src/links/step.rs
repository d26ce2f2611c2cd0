use std::sync::Arc;

use weir_base::units::Time;
use weir_base::{Instant, NS_PER_MS};
use weir_link::{
    ChoiceError, Marker, MarkerKind, MarkerOptions, QueueArrival, Sojourn, read_options,
};
use weir_wire::CongestionMark;

pub(super) const KIND: MarkerKind =
    MarkerKind { name: "step", read: |options| Ok(Arc::new(StepOptions::read(options)?)) };

/// When `step` marks.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
struct StepOptions {
    /// How long the oldest packet of the queue may wait without marks, ns.
    target_ns: u64,
}

impl Default for StepOptions {
    fn default() -> Self {
        Self { target_ns: NS_PER_MS }
    }
}

impl StepOptions {
    fn read(options: &str) -> Result<Self, ChoiceError> {
        let mut chosen = Self::default();
        read_options(("marking policy", KIND.name), options, |key, value| {
            let time = value.parse().ok().filter(|_| key == "target");
            time.inspect(|time: &Time| chosen.target_ns = time.ns).is_some()
        })?;
        Ok(chosen)
    }
}

/// Marks every Data that is enqueued while the oldest packet has waited longer than a target.
/// DualPI2's queue for scalable controllers does the same (RFC 9332, 2.5.1).
#[derive(Debug)]
struct Step {
    sojourn: Sojourn,
}

impl MarkerOptions for StepOptions {
    fn make(&self, _capacity_bytes: u64, _seed: u64) -> Box<dyn Marker> {
        Box::new(Step { sojourn: Sojourn::new(self.target_ns) })
    }
}

impl Marker for Step {
    fn mark_value(&self) -> CongestionMark {
        CongestionMark::PROPORTIONAL
    }

    fn must_mark(&mut self, joining: &QueueArrival) -> bool {
        joining.is_data && self.sojourn.is_late(joining.now, joining.queue_bytes)
    }

    fn joined(&mut self, now: Instant, wire_bytes: u64) {
        self.sojourn.add(now, wire_bytes);
    }
}
