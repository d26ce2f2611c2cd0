//! Connects the shard with the disks of its store. Nothing here waits for a disk.

use std::time::Duration;

use weir_base::{Instant, NS_PER_MS};
use weir_disk::DiskPorts;
use weir_store::disk::{DiskOp, DiskOpId, DiskOutcome, DiskTierStats};

/// Interval of the reports about disks to the control thread, which logs them.
const REPORT_INTERVAL_NS: u64 = 200 * NS_PER_MS;
/// The same during recovery of the index.
const RECOVERY_REPORT_INTERVAL_NS: u64 = 20 * NS_PER_MS;

/// How long the disks may take to finish pending operations when the router stops.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// A worker thread's ports to the disks.
pub(super) struct Disks {
    ports: DiskPorts,
    outcomes: Vec<(DiskOpId, DiskOutcome)>,
    report_at: Instant,
}

impl Disks {
    pub(super) fn new(ports: DiskPorts, now: Instant) -> Self {
        Self { ports, outcomes: Vec::new(), report_at: now }
    }

    /// Takes the outcomes of operations that have finished since the last call.
    pub(super) fn take_outcomes(&mut self) -> impl Iterator<Item = (DiskOpId, DiskOutcome)> + '_ {
        self.ports.drain(&mut self.outcomes);
        self.outcomes.drain(..)
    }

    /// Queues operations of the shard. [`Self::flush`] starts them.
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

    /// Waits briefly for pending operations, and abandons the rest.
    pub(super) fn close(self) {
        if !self.ports.close(CLOSE_TIMEOUT) {
            tracing::warn!("a disk does not respond; its pending reads and writes are abandoned");
        }
    }
}
