//! The state of the disks of a router's store.

use alloc::vec::Vec;

use weir_store::disk::DiskTierConfig;

use crate::content::adaptive::Adaptive;
use crate::content::busy::BusyPolicy;
use crate::content::marks::ShareMarker;
use crate::content::neighbours::Neighbours;
use crate::content::reads::{Reads, Waiter};
use crate::content::refill::Refill;
use crate::content::write_marks::WriteMarks;

/// The disks of the store, and the Interests that wait for them. Nearly empty on a router without
/// disks.
pub(crate) struct DiskState {
    pub(crate) policy: BusyPolicy,
    pub(crate) reads: Reads,
    pub(crate) neighbours: Neighbours,
    pub(crate) adaptive: Adaptive,
    /// With [`Bypass::Late`](crate::content::busy::Bypass::Late): marks Data that waits for a disk.
    pub(crate) read_marker: ShareMarker,
    /// Marks Data that the disks have not written yet.
    pub(crate) write_marks: WriteMarks,
    /// Segments that the store has lost.
    pub(crate) refill: Refill,
    /// Queue length from which on a disk is busy.
    pub(crate) threshold: u32,
    /// The number of Interests that a driver has queued in front of the store; `None` without such
    /// a driver. It replaces the queue length of every disk.
    driver_queue: Option<u32>,
    /// Flush commands that have not been answered.
    pub(crate) flushes: Vec<u64>,
    /// Scratch: the waiters of a read that has finished.
    pub(crate) finished: Vec<Waiter>,
}

impl DiskState {
    pub(crate) fn new(busy: &BusyPolicy, disk: Option<&DiskTierConfig>) -> Self {
        Self {
            policy: busy.clone(),
            reads: Reads::new(),
            neighbours: Neighbours::new(busy.announce_period_ns),
            adaptive: Adaptive::default(),
            read_marker: ShareMarker::default(),
            write_marks: WriteMarks::default(),
            refill: Refill::default(),
            threshold: disk.map_or(0, |disk| disk.bypass_threshold),
            driver_queue: None,
            flushes: Vec::new(),
            finished: Vec::new(),
        }
    }

    pub(crate) fn set_driver_queue(&mut self, interests: usize) {
        self.driver_queue = Some(u32::try_from(interests).unwrap_or(u32::MAX));
    }

    /// Whether a driver queues Interests in front of the store.
    pub(crate) fn has_driver_queue(&self) -> bool {
        self.driver_queue.is_some()
    }

    /// Interests that a driver has queued now.
    pub(crate) fn driver_queue_len(&self) -> u32 {
        self.driver_queue.unwrap_or(0)
    }

    /// Whether the busiest disk is over the threshold.
    pub(crate) fn is_over_threshold(&self) -> bool {
        let queue = self.driver_queue.unwrap_or_else(|| self.reads.longest_queue());
        queue >= self.threshold.max(1)
    }
}
