use weir_base::NS_PER_MS;
use weir_base::units::Time;
use weir_wire::CongestionMark;

use super::lately::Lately;
use super::policy::{Joining, Policy};

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
    lately: Lately,
    /// The largest packet so far: no queue is shorter than what is being sent.
    packet_bytes_max: u64,
}

impl Policy for Step {
    type Options = StepOptions;

    const MARK: CongestionMark = CongestionMark::PROPORTIONAL;

    fn new(options: &StepOptions, _capacity_bytes: u64, _seed: u64) -> Self {
        Self { lately: Lately::new(options.target_ns), packet_bytes_max: 0 }
    }

    fn set(options: &mut StepOptions, key: &str, value: &str) -> bool {
        let time = value.parse().ok().filter(|_| key == "target");
        time.inspect(|time: &Time| options.target_ns = time.ns).is_some()
    }

    fn marks(&mut self, joining: &Joining<'_>) -> bool {
        let &Joining { now, is_data, packet, queue_bytes, .. } = joining;
        let bytes = packet.len() as u64;
        self.packet_bytes_max = self.packet_bytes_max.max(bytes);
        let is_late = self.lately.is_oldest_late(now, queue_bytes, bytes);
        is_late && is_data && queue_bytes > self.packet_bytes_max
    }
}
