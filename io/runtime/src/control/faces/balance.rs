//! Balances the load of the worker threads by moving faces between them. New faces are assigned
//! round robin, because their load is not known yet.

use weir_base::{FaceId, Instant};

use crate::message::{ToWorker, WorkReport};

/// Below this much work per second on the busiest thread, no face moves.
const WORK_LEAST: u64 = 5_000;

/// The last report of a worker thread.
#[derive(Clone, Debug, Default)]
struct WorkerLoad {
    reported_at: Instant,
    report: WorkReport,
}

/// The reports of all worker threads, and the face that is moving.
#[derive(Debug)]
pub(super) struct Balance {
    threads: Vec<WorkerLoad>,
    interval_ns: u64,
    /// Earliest time of the next decision: late enough that all threads have reported since the
    /// last move.
    decide_at: Option<Instant>,
    moving: Option<MovingFace>,
}

/// A face, its present thread, and its new thread.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Move {
    pub(super) face: FaceId,
    pub(super) from: u16,
    pub(super) to: u16,
}

/// A face that is moving between threads, with the commands that wait for its arrival.
#[derive(Debug)]
struct MovingFace {
    id: FaceId,
    commands: Vec<ToWorker>,
}

impl Balance {
    pub(super) fn new(threads: usize, interval_ns: u64) -> Self {
        Self {
            threads: vec![WorkerLoad::default(); threads],
            interval_ns,
            decide_at: None,
            moving: None,
        }
    }

    /// Marks the face as moving. Only one face moves at a time.
    pub(super) fn begin(&mut self, id: FaceId) {
        self.moving = Some(MovingFace { id, commands: Vec::new() });
    }

    pub(super) fn is_moving(&self) -> bool {
        self.moving.is_some()
    }

    /// Holds back a command if its face is moving. Otherwise returns the command.
    pub(super) fn defer(&mut self, id: FaceId, command: ToWorker) -> Option<ToWorker> {
        match &mut self.moving {
            Some(moving) if moving.id == id => {
                moving.commands.push(command);
                None
            }
            _ => Some(command),
        }
    }

    /// The face has arrived. Returns the commands that were held back.
    pub(super) fn end(&mut self) -> Vec<ToWorker> {
        self.moving.take().map(|moving| moving.commands).unwrap_or_default()
    }

    pub(super) fn note_work(&mut self, now: Instant, worker: u16, report: WorkReport) {
        self.threads[usize::from(worker)] = WorkerLoad { reported_at: now, report };
    }

    /// Returns the face that should move now, if any.
    pub(super) fn decide(&mut self, now: Instant) -> Option<Move> {
        let settled_at = now.plus_ns(2 * self.interval_ns);
        if *self.decide_at.get_or_insert(settled_at) > now {
            return None;
        }
        self.decide_at = Some(now.plus_ns(self.interval_ns));
        // A sleeping thread sends no reports, so a thread with an old report counts as idle.
        let oldest_ns = 3 * self.interval_ns;
        for thread in &mut self.threads {
            if now.ns_since(thread.reported_at) > oldest_ns {
                *thread = WorkerLoad::default();
            }
        }
        let totals =
            || self.threads.iter().enumerate().map(|(index, work)| (work.report.total, index));
        let ((busiest, from), (idlest, to)) = (totals().max()?, totals().min()?);
        let gap = busiest - idlest;
        if busiest < WORK_LEAST || gap < busiest / 4 {
            return None;
        }
        // A move reduces the gap by twice the work of the face.
        let left = |work: u64| gap.abs_diff(2 * work);
        let moved = self.threads[from].report.movable.iter().min_by_key(|face| left(face.work))?;
        // A move that closes less than a quarter of the gap does not pay.
        if left(moved.work) > gap / 4 * 3 {
            return None;
        }
        self.decide_at = Some(settled_at);
        Some(Move { face: moved.face, from: from as u16, to: to as u16 })
    }
}

#[cfg(test)]
mod tests {
    use weir_base::NS_PER_S;

    use super::*;
    use crate::message::FaceWork;

    fn moved(face: u64) -> Move {
        Move { face: FaceId(face), from: 0, to: 1 }
    }

    fn reported(loads: &[&[u64]]) -> (Balance, Instant) {
        let mut balance = Balance::new(loads.len(), NS_PER_S);
        let now = Instant::ZERO.plus_ns(10 * NS_PER_S);
        assert_eq!(balance.decide(now), None, "no thread has reported");
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
    fn moves_face_that_evens_threads_best() {
        let (mut balance, now) = reported(&[&[30_000, 20_000, 1_000], &[8_000], &[9_000]]);
        assert_eq!(balance.decide(now), Some(moved(1)));
        // The threads must report again first.
        assert_eq!(balance.decide(now), None);
    }

    #[test]
    fn one_busy_face_stays() {
        let (mut balance, now) = reported(&[&[90_000], &[]]);
        assert_eq!(balance.decide(now), None);
        let (mut balance, now) = reported(&[&[90_000, 4_000], &[]]);
        assert_eq!(balance.decide(now), None, "the gap would hardly be less");
    }

    #[test]
    fn small_differences_move_nothing() {
        let (mut balance, now) = reported(&[&[2_000, 2_000], &[]]);
        assert_eq!(balance.decide(now), None);
        let (mut balance, now) = reported(&[&[20_000, 20_000], &[33_000]]);
        assert_eq!(balance.decide(now), None);
    }

    #[test]
    fn silent_thread_counts_as_idle() {
        let (mut balance, now) = reported(&[&[20_000, 20_000], &[50_000]]);
        let later = now.plus_ns(2 * NS_PER_S);
        let movable = vec![FaceWork { face: FaceId(7), work: 20_000 }];
        balance.note_work(later, 0, WorkReport { total: 40_000, movable });
        assert_eq!(balance.decide(later), Some(moved(7)));
    }
}
