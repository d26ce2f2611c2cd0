//! Which face goes over to which packet thread, so that none has much more to do with sockets than
//! another. New faces are dealt out in turn: nobody knows yet what they will do.

use weir_base::{FaceId, Instant};

use super::Control;
use super::answers::SnapshotFor;
use crate::message::{ToWorker, WorkReport};

/// Work of a thread a second below which nothing is moved.
const WORK_LEAST: u64 = 5_000;

/// What a packet thread's faces have it do.
#[derive(Clone, Debug, Default)]
struct Work {
    reported_at: Instant,
    report: WorkReport,
}

/// What all packet threads have told.
#[derive(Debug)]
pub(super) struct Balance {
    threads: Vec<Work>,
    interval_ns: u64,
    /// Not before: all are to have told of the time since the last face was moved.
    decide_at: Option<Instant>,
    moving: Option<Moving>,
}

/// A face on its way from thread to thread, and what waits until it has come.
#[derive(Debug)]
pub(super) struct Moving {
    id: FaceId,
    /// For it.
    pub(super) updates: Vec<ToWorker>,
    /// It would be in none, or in two.
    pub(super) snapshots: Vec<SnapshotFor>,
}

impl Balance {
    pub(super) fn new(threads: usize, interval_ns: u64) -> Self {
        Self { threads: vec![Work::default(); threads], interval_ns, decide_at: None, moving: None }
    }

    /// The face that is moving, if it is this one.
    pub(super) fn moving(&mut self, id: FaceId) -> Option<&mut Moving> {
        self.moving.as_mut().filter(|moving| moving.id == id)
    }

    /// The face is on its way from now on. None other may be.
    pub(super) fn begin(&mut self, id: FaceId) {
        self.moving = Some(Moving { id, updates: Vec::new(), snapshots: Vec::new() });
    }

    /// Any face that is moving.
    pub(super) fn any_moving(&mut self) -> Option<&mut Moving> {
        self.moving.as_mut()
    }

    fn note_work(&mut self, now: Instant, worker: u16, report: WorkReport) {
        self.threads[usize::from(worker)] = Work { reported_at: now, report };
    }

    /// The face to be moved now, if any, from where, and to where.
    fn decide(&mut self, now: Instant) -> Option<(FaceId, usize, usize)> {
        let settled_at = now.plus_ns(2 * self.interval_ns);
        if *self.decide_at.get_or_insert(settled_at) > now {
            return None;
        }
        self.decide_at = Some(now.plus_ns(self.interval_ns));
        // Who has told nothing for long sleeps.
        let oldest_ns = 3 * self.interval_ns;
        for thread in &mut self.threads {
            if now.ns_since(thread.reported_at) > oldest_ns {
                *thread = Work::default();
            }
        }
        let totals =
            || self.threads.iter().enumerate().map(|(index, work)| (work.report.total, index));
        let ((busiest, from), (idlest, to)) = (totals().max()?, totals().min()?);
        let gap = busiest - idlest;
        if busiest < WORK_LEAST || gap < busiest / 4 {
            return None;
        }
        // What moves makes the gap less by twice its work.
        let left = |work: u64| gap.abs_diff(2 * work);
        let moved = self.threads[from].report.movable.iter().min_by_key(|face| left(face.work))?;
        if left(moved.work) > gap / 4 * 3 {
            return None;
        }
        self.decide_at = Some(settled_at);
        Some((moved.face, from, to))
    }
}

impl Control {
    /// A packet thread tells what its faces have it do.
    pub(super) fn on_work(&mut self, now: Instant, worker: u16, report: WorkReport) {
        self.balance.note_work(now, worker, report);
        // A snapshot that has begun would have the face twice, or not at all.
        if self.balance.moving.is_none()
            && self.snapshots.is_empty()
            && let Some((id, from, to)) = self.balance.decide(now)
        {
            tracing::debug!(face = id.0, from, to, "a face goes to another packet thread");
            self.balance.begin(id);
            self.workers[from].send(ToWorker::GiveFace { id, to: to as u16, socket: None });
        }
    }

    /// Thread `worker` has the face, if it is still there.
    pub(super) fn on_move_ended(&mut self, id: FaceId, worker: u16) {
        if let Some(face) = self.faces.find_mut(id) {
            face.worker = worker;
        }
        let Some(moving) = self.balance.moving.take() else { return };
        for update in moving.updates {
            self.workers[usize::from(worker)].send(update);
        }
        for asked_by in moving.snapshots {
            self.start_snapshot(asked_by);
        }
    }
}

#[cfg(test)]
mod tests {
    use weir_base::NS_PER_S;

    use super::*;
    use crate::message::FaceWork;

    fn told(loads: &[&[u64]]) -> (Balance, Instant) {
        let mut balance = Balance::new(loads.len(), NS_PER_S);
        let now = Instant::ZERO.plus_ns(10 * NS_PER_S);
        assert_eq!(balance.decide(now), None, "nobody has told anything");
        for (worker, load) in loads.iter().enumerate() {
            let face = |number: usize| FaceId((100 * worker + number) as u64);
            let movable = load
                .iter()
                .enumerate()
                .map(|(number, &work)| FaceWork { face: face(number), work });
            let report = WorkReport { total: load.iter().sum(), movable: movable.collect() };
            balance.note_work(now, worker as u16, report);
        }
        (balance, now.plus_ns(2 * NS_PER_S))
    }

    #[test]
    fn the_face_that_evens_threads_best_moves() {
        let (mut balance, now) = told(&[&[30_000, 20_000, 1_000], &[8_000], &[9_000]]);
        assert_eq!(balance.decide(now), Some((FaceId(1), 0, 1)));
        // Not before all have told anew.
        assert_eq!(balance.decide(now), None);
    }

    #[test]
    fn one_busy_face_stays_where_it_is() {
        let (mut balance, now) = told(&[&[90_000], &[]]);
        assert_eq!(balance.decide(now), None);
        let (mut balance, now) = told(&[&[90_000, 4_000], &[]]);
        assert_eq!(balance.decide(now), None, "the gap would hardly be less");
    }

    #[test]
    fn little_work_and_small_differences_move_nothing() {
        let (mut balance, now) = told(&[&[2_000, 2_000], &[]]);
        assert_eq!(balance.decide(now), None);
        let (mut balance, now) = told(&[&[20_000, 20_000], &[33_000]]);
        assert_eq!(balance.decide(now), None);
    }

    #[test]
    fn a_thread_that_tells_nothing_sleeps() {
        let (mut balance, now) = told(&[&[20_000, 20_000], &[50_000]]);
        let later = now.plus_ns(2 * NS_PER_S);
        let movable = vec![FaceWork { face: FaceId(7), work: 20_000 }];
        balance.note_work(later, 0, WorkReport { total: 40_000, movable });
        assert_eq!(balance.decide(later), Some((FaceId(7), 0, 1)));
    }
}
