//! Between the shard and the disks of its store. Nothing here waits for a disk.

use std::time::Duration;

use weir_base::{Instant, NS_PER_MS};
use weir_disk::DiskPorts;
use weir_forward::Input;
use weir_store::disk::{DiskOpId, DiskOutcome};

use super::{BATCH_PACKETS, Worker};
use crate::message::ToControl;

/// How often the control thread is told what became of the disks, which it logs.
const REPORT_INTERVAL_NS: u64 = 200 * NS_PER_MS;
/// The same while what was on disk before is being read in.
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

    pub(super) fn next_report(&self) -> Instant {
        self.report_at
    }
}

impl Worker {
    /// What the disks have done since the last turn becomes inputs of the shard.
    pub(super) fn take_disk_outcomes(&mut self, now: Instant) {
        let Some(disks) = &mut self.disks else { return };
        disks.ports.drain(&mut disks.outcomes);
        let done = disks.outcomes.drain(..).map(|(id, outcome)| Input::DiskDone { id, outcome });
        self.inputs.extend(done);
        if self.inputs.len() >= BATCH_PACKETS {
            self.process(now);
        }
    }

    /// Hands the disks what the shard wants of them.
    pub(super) fn submit_disk_ops(&mut self) {
        let Some(disks) = &mut self.disks else { return };
        for op in self.outbox.disk_ops.drain(..) {
            disks.ports.submit(op);
        }
    }

    /// Begins it. Once a turn.
    pub(super) fn flush_disks(&mut self) {
        if let Some(disks) = &mut self.disks {
            disks.ports.flush();
        }
    }

    /// The end: what is under way comes to its own, or is left to the device.
    pub(super) fn close_disks(&mut self) {
        if let Some(disks) = self.disks.take()
            && !disks.ports.close(CLOSE_TIMEOUT)
        {
            tracing::warn!("a disk does not answer; what was being read or written is left to it");
        }
    }

    pub(super) fn report_disks(&mut self, now: Instant) {
        if self.disks.as_ref().is_some_and(|disks| disks.report_at <= now) {
            self.report_disks_now(now);
        }
    }

    pub(super) fn report_disks_now(&mut self, now: Instant) {
        let Some(disks) = &mut self.disks else { return };
        let stats = Box::new(self.router.stats().store.disk);
        let interval_ns = match stats.is_recovering() {
            true => RECOVERY_REPORT_INTERVAL_NS,
            false => REPORT_INTERVAL_NS,
        };
        disks.report_at = now.plus_ns(interval_ns);
        self.control.send(ToControl::Disks { worker: self.index, stats });
    }
}
