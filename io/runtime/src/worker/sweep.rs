//! Finds faces to close: idle UDP peers, and connections that accept nothing.

use weir_base::{Instant, NS_PER_MS, NS_PER_S};

use super::faces::FaceTable;
use crate::config::FaceDefaults;
use crate::face::Face;

/// Maximum interval between sweeps.
const INTERVAL_NS_MAX: u64 = 10 * NS_PER_S;

/// Timeouts, and the time of the next sweep.
pub(super) struct Sweep {
    idle_timeout_ns: u64,
    stall_timeout_ns: u64,
    due_at: Instant,
}

impl Sweep {
    pub(super) fn new(defaults: &FaceDefaults, now: Instant) -> Self {
        let mut sweep = Self {
            idle_timeout_ns: defaults.idle_timeout.as_nanos() as u64,
            stall_timeout_ns: defaults.stall_timeout.as_nanos() as u64,
            due_at: now,
        };
        sweep.schedule(now);
        sweep
    }

    fn schedule(&mut self, now: Instant) {
        let timeout_ns = self.idle_timeout_ns.min(self.stall_timeout_ns);
        self.due_at = now.plus_ns((timeout_ns / 8).clamp(NS_PER_MS, INTERVAL_NS_MAX));
    }

    pub(super) fn due_at(&self) -> Instant {
        self.due_at
    }

    /// Returns whether a sweep is due. If so, schedules the next one.
    pub(super) fn begin(&mut self, now: Instant) -> bool {
        let is_due = self.due_at <= now;
        if is_due {
            self.schedule(now);
        }
        is_due
    }

    pub(super) fn idle_deadline(&self, face: &Face) -> Option<Instant> {
        face.idle_deadline(self.idle_timeout_ns)
    }

    pub(super) fn idle(&self, now: Instant, faces: &FaceTable) -> Vec<u32> {
        let is_idle =
            |face: &Face| self.idle_deadline(face).is_some_and(|deadline| deadline <= now);
        faces.iter().filter(|(_, face)| is_idle(face)).map(|(slot, _)| slot).collect()
    }

    pub(super) fn stalled(&self, now: Instant, faces: &FaceTable) -> Vec<u32> {
        let is_stalled = |face: &Face| {
            face.blocked_since().is_some_and(|since| since.plus_ns(self.stall_timeout_ns) <= now)
        };
        faces.iter().filter(|(_, face)| is_stalled(face)).map(|(slot, _)| slot).collect()
    }
}
