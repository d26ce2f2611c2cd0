//! The bypass policies: when an Interest bypasses the disk that has its Data, and when its Data is
//! marked because of the disk's queue (paper nb-cache, III-C).

use weir_base::Instant;

use crate::content::adaptive::{DiskChoice, DiskQueue};
use crate::content::busy::{Bypass, Mark};
use crate::content::decision::{BypassReason, DiskBypass, QueueDecision};
use crate::content::disk::DiskState;
use crate::content::marks::FULL_SHARE;
use crate::table::fib::{FibNextHop, HopSet};
use crate::table::measurements::Measurements;

/// With [`Bypass::Late`]: queue length at which a disk without measurements counts as late.
const UNKNOWN_DISK_QUEUE_MAX: u32 = 1024;

impl DiskState {
    fn bypass(&self) -> Bypass {
        match self.policy.bypass {
            // The router does not measure how long Interests wait in the queue of a driver.
            Bypass::Adaptive | Bypass::Late if self.has_driver_queue() => Bypass::Threshold,
            bypass => bypass,
        }
    }

    pub(crate) fn is_adaptive(&self) -> bool {
        self.bypass() == Bypass::Adaptive
    }

    pub(crate) fn is_late(&self) -> bool {
        self.bypass() == Bypass::Late
    }

    /// Whether the policy needs the duration of reads.
    pub(crate) fn times_reads(&self) -> bool {
        matches!(self.bypass(), Bypass::Adaptive | Bypass::Late)
    }

    /// With [`Bypass::Late`]: the share of Data to mark for a read that joins this queue, in parts
    /// of [`FULL_SHARE`]. The share is zero for a read that takes 1/16 of the limit. It grows to
    /// all Data for a read that takes the whole limit.
    fn lateness(&self, queue: DiskQueue) -> u32 {
        let late_ns = self.policy.late_after_ns as f64;
        let Some(expected_ns) = self.adaptive.expected_read_ns(queue) else {
            return if queue.length >= UNKNOWN_DISK_QUEUE_MAX { FULL_SHARE } else { 0 };
        };
        let least_ns = late_ns / 16.0;
        ((expected_ns - least_ns) / (late_ns - least_ns) * f64::from(FULL_SHARE)) as u32
    }

    /// Whether an Interest may bypass this queue if it has a next hop.
    pub(crate) fn may_bypass(&self, queue: DiskQueue) -> bool {
        match self.bypass() {
            Bypass::Off => false,
            Bypass::Threshold => queue.length >= self.threshold,
            // An idle disk is always used. Otherwise no measurement would show that it is fast
            // again.
            Bypass::Late => queue.length > 0 && self.lateness(queue) >= FULL_SHARE,
            Bypass::Adaptive => true,
        }
    }

    /// Makes an Interest wait. `is_without_hop` means that no next hop is available.
    pub(crate) fn wait(&mut self, queue: DiskQueue, is_without_hop: bool) -> QueueDecision {
        let is_over_threshold = queue.length >= self.threshold;
        if self.is_late() {
            let share = if self.policy.mark == Mark::Off { 0 } else { self.lateness(queue) };
            let is_marked = self.read_marker.is_next_marked(share);
            return QueueDecision::Wait { is_over_threshold, is_marked };
        }
        let is_last_resort = is_over_threshold && is_without_hop;
        let is_marked = is_last_resort && self.policy.mark == Mark::NbCc
            || self.is_marked_by_queue(queue.length);
        QueueDecision::Wait { is_over_threshold, is_marked }
    }

    /// Whether an Interest's Data is marked because of a queue of this length, whether the Interest
    /// waits or not.
    pub(crate) fn is_marked_by_queue(&self, queue: u32) -> bool {
        self.policy.mark == Mark::Ecn && queue >= self.threshold
    }

    /// Decides whether an Interest that [may bypass](Self::may_bypass) the queue does so.
    /// `available` is the set of next hops to which it may go.
    pub(crate) fn choose(
        &mut self,
        now: Instant,
        queue: DiskQueue,
        next_hops: &[FibNextHop],
        available: HopSet,
        measurements: &mut Measurements,
    ) -> QueueDecision {
        if available.is_empty() {
            return self.wait(queue, true);
        }
        let is_marked = self.is_marked_by_queue(queue.length);
        // The other policies have already decided in `may_bypass`.
        if !self.is_adaptive() {
            let reason = BypassReason::QueueFull;
            return QueueDecision::Bypass(DiskBypass { reason, hops: available, is_marked });
        }
        let hops = next_hops.iter().map(|hop| hop.measurement).enumerate();
        let hops = hops.filter(|&(position, _)| available.contains(position));
        match self.adaptive.choose(now, queue, self.threshold, measurements, hops) {
            DiskChoice::Disk => self.wait(queue, false),
            DiskChoice::NextHop { position, is_probe } => {
                let reason = if is_probe { BypassReason::Probe } else { BypassReason::Slower };
                let hops = available.only(position);
                QueueDecision::Bypass(DiskBypass { reason, hops, is_marked })
            }
        }
    }
}
