//! How much work each face causes, for the control thread, which moves faces to threads that have
//! less to do.

use std::cmp::Reverse;
use std::time::Duration;

use weir_base::Instant;

use super::faces::Faces;
use crate::face::FaceSocket;
use crate::message::{FaceWork, WorkReport};

/// Faces that a report names, those with the most work.
const REPORTED_MAX: usize = 16;

/// When the last report was made.
pub(super) struct LoadMeter {
    interval_ns: u64,
    reported_at: Instant,
}

impl LoadMeter {
    pub(super) fn new(interval: Duration, now: Instant) -> Self {
        Self { interval_ns: interval.as_nanos() as u64, reported_at: now }
    }

    /// The work of all faces since the last report, when the next is due. Checked only while the
    /// thread runs anyway: one that sleeps has nothing to report.
    pub(super) fn report(&mut self, now: Instant, faces: &mut Faces) -> Option<WorkReport> {
        if now < self.reported_at.plus_ns(self.interval_ns) {
            return None;
        }
        let elapsed_ns = now.ns_since(self.reported_at).max(1);
        self.reported_at = now;
        let (mut total, mut movable) = (0, Vec::new());
        for face in faces.table_mut().iter_mut() {
            let work = face.work_since_report(elapsed_ns);
            total += work;
            if work > 0 && matches!(face.socket, FaceSocket::Own(_)) {
                movable.push(FaceWork { face: face.id, work });
            }
        }
        movable.sort_unstable_by_key(|face| Reverse(face.work));
        movable.truncate(REPORTED_MAX);
        Some(WorkReport { total, movable })
    }
}
