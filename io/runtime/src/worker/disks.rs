//! Between the shard and the disks of its store. Nothing here waits for a disk.

use std::time::Duration;

use weir_base::{Instant, NS_PER_MS};
use weir_disk::DiskPorts;
use weir_store::disk::{DiskOp, DiskOpId, DiskOutcome, DiskTierStats};

/// How often the control thread gets the shard's disk statistics, which it logs.
const REPORT_INTERVAL_NS: u64 = 200 * NS_PER_MS;
/// The same while the index of an earlier run is being read.
const RECOVERY_REPORT_INTERVAL_NS: u64 = 20 * NS_PER_MS;

/// How long the disks may take to end what is under way when the router stops.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// A packet thread's side of the disks.
pub(super) struct Disks {
    ports: DiskPorts,
    outcomes: Vec<(DiskOpId, DiskOutcome)>,
    report_at: Instant,
}

impl Disks {
    pub(super) fn new(ports: DiskPorts, now: Instant) -> Self {
        Self { ports, outcomes: Vec::new(), report_at: now }
    }

    /// What the disks have done since the last call.
    pub(super) fn take_outcomes(&mut self) -> impl Iterator<Item = (DiskOpId, DiskOutcome)> + '_ {
        self.ports.drain(&mut self.outcomes);
        self.outcomes.drain(..)
    }

    /// Hands over what the shard requests. It begins with [`Self::flush`].
    pub(super) fn submit(&mut self, ops: impl Iterator<Item = DiskOp>) {
        for op in ops {
            self.ports.submit(op);
        }
    }

    pub(super) fn flush(&mut self) {
        self.ports.flush();
    }

    /// When the next report is due.
    pub(super) fn report_at(&self) -> Instant {
        self.report_at
    }

    pub(super) fn note_report(&mut self, now: Instant, stats: &DiskTierStats) {
        let interval_ns = match stats.is_recovering() {
            true => RECOVERY_REPORT_INTERVAL_NS,
            false => REPORT_INTERVAL_NS,
        };
        self.report_at = now.plus_ns(interval_ns);
    }

    /// The end: waits for a moment for what is under way, and leaves the rest to the device.
    pub(super) fn close(self) {
        if !self.ports.close(CLOSE_TIMEOUT) {
            tracing::warn!("a disk does not answer; what was being read or written is left to it");
        }
    }
}
