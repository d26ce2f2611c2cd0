//! Measures each face's work. The control thread uses it to move faces to less loaded threads.

use std::cmp::Reverse;
use std::time::Duration;

use weir_base::Instant;

use super::faces::Faces;
use crate::face::FaceSocket;
use crate::message::{FaceWork, WorkReport};

/// Maximum number of faces in a report. It lists the faces with the most work.
const REPORTED_MAX: usize = 16;

/// The time of the last report.
pub(super) struct LoadMeter {
    interval_ns: u64,
    reported_at: Instant,
}

impl LoadMeter {
    pub(super) fn new(interval: Duration, now: Instant) -> Self {
        Self { interval_ns: interval.as_nanos() as u64, reported_at: now }
    }

    /// Returns the work of all faces since the last report, if the next one is due. Called only
    /// when the thread runs anyway: a sleeping thread has nothing to report.
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
