//! What a packet thread counts in addition to its shard and its faces.

use weir_base::Instant;
use weir_link::LinkDrop;

use crate::face::Face;
use crate::message::CloseReason;
use crate::rate_limited_log::RateLimitedLog;
use crate::snapshot::WorkerCounters;

/// Counters, and the log of what repeats.
#[derive(Default)]
pub(super) struct WorkerStats {
    pub(super) counters: WorkerCounters,
    /// Link drops of faces that are gone.
    removed_face_drops: [u64; LinkDrop::COUNT],
    stalls: RateLimitedLog,
}

impl WorkerStats {
    /// A face's socket was closed.
    pub(super) fn note_closed(&mut self, reason: &CloseReason) {
        match reason {
            CloseReason::Evicted => self.counters.faces_evicted += 1,
            CloseReason::Stalled => self.counters.faces_stalled += 1,
            CloseReason::RingBroken => self.counters.rings_broken += 1,
            _ => {}
        }
    }

    /// A connection closes because its peer accepts nothing.
    pub(super) fn log_stall(&mut self, now: Instant, face: u64) {
        if let Some(count) = self.stalls.add(now) {
            tracing::warn!(face, count, "a connection closes: its peer takes nothing");
        }
    }

    /// A face is gone: its drops stay.
    pub(super) fn add_removed_face(&mut self, face: &Face) {
        for (sum, (_, count)) in
            self.removed_face_drops.iter_mut().zip(face.link.counters().drops.iter())
        {
            *sum += count;
        }
    }

    pub(super) fn removed_face_drops(&self) -> [u64; LinkDrop::COUNT] {
        self.removed_face_drops
    }
}
