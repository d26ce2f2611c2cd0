//! What a router knows of its store's disks.

use alloc::vec::Vec;

use weir_store::disk::DiskTierConfig;

use crate::content::adaptive::Adaptive;
use crate::content::busy::BusyPolicy;
use crate::content::marks::ShareMarker;
use crate::content::neighbours::Neighbours;
use crate::content::reads::{Reads, Waiter};
use crate::content::refill::Refill;
use crate::content::write_marks::WriteMarks;

/// What a router knows of its store's disks and of the Interests that wait for them. A router
/// without disks has an empty one.
pub(crate) struct DiskState {
    pub(crate) policy: BusyPolicy,
    pub(crate) reads: Reads,
    pub(crate) neighbours: Neighbours,
    pub(crate) adaptive: Adaptive,
    /// With [`Bypass::TimedOut`](crate::content::busy::Bypass::Late): of Data that waits for a disk.
    pub(crate) read_marker: ShareMarker,
    /// Of Data that disks have yet to write.
    pub(crate) write_marks: WriteMarks,
    /// Segments that the store lost.
    pub(crate) refill: Refill,
    /// Reads before a disk from which on Interests go elsewhere if they can.
    pub(crate) threshold: u32,
    /// Interests that a driver holds up before the store, whose number stands for the queue of
    /// every disk then.
    driver_queue: Option<u32>,
    /// Commands to flush that have not been answered.
    pub(crate) flushes: Vec<u64>,
    /// Scratch: the waiters of a read that has ended.
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

    /// A driver holds up `interests` before the store.
    pub(crate) fn set_driver_queue(&mut self, interests: usize) {
        self.driver_queue = Some(u32::try_from(interests).unwrap_or(u32::MAX));
    }

    /// Whether a driver holds Interests up before the store.
    pub(crate) fn has_driver_queue(&self) -> bool {
        self.driver_queue.is_some()
    }

    /// Interests that it holds up now.
    pub(crate) fn driver_queue_len(&self) -> u32 {
        self.driver_queue.unwrap_or(0)
    }

    /// Whether the busiest disk is over the threshold.
    pub(crate) fn is_over_threshold(&self) -> bool {
        let queue = self.driver_queue.unwrap_or_else(|| self.reads.longest_queue());
        queue >= self.threshold.max(1)
    }
}
