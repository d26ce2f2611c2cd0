//! All paths at once (paper chopcop, 4).
//!
//! The paper's engine and its pipes are distributed over the consumer. The scoreboard keeps the
//! pending Interest space and reassigns the losses of a path. Each path has its own controller.
//! This schedule selects a path for the next Interest, and freezes and resumes paths.

use weir_base::Instant;

use super::{Path, Schedule, SendKind};

/// Uses every path with room in its window, first the one with the earliest expected answer.
#[derive(Debug)]
pub(crate) struct Parallel;

impl Schedule for Parallel {
    fn choose(&mut self, paths: &[Path], next: SendKind, now: Instant) -> Option<usize> {
        let may_take = |at: &usize| departs_at(paths, *at, next).is_some_and(|when| when <= now);
        (0..paths.len()).filter(may_take).min_by_key(|&at| paths[at].expected_answer_ns())
    }

    fn departure(&self, paths: &[Path], next: SendKind) -> Option<Instant> {
        (0..paths.len()).filter_map(|at| departs_at(paths, at, next)).min()
    }
}

/// When the path at `at` may take a chunk at the earliest; `None` while it may not.
fn departs_at(paths: &[Path], at: usize, next: SendKind) -> Option<Instant> {
    let path = &paths[at];
    let may_take = match next {
        // A failing path would probably lose the chunk again. It waits for room on another path.
        SendKind::Resend => !path.is_failing() || paths.iter().all(Path::is_failing),
        // A failing path is tried with one chunk at a time.
        SendKind::New { .. } if path.is_failing() && path.in_flight() > 0 => false,
        SendKind::New { room_chunks } => room_chunks > reserved_chunks(paths, at),
    };
    let may_take = may_take && path.window_has_room();
    may_take.then(|| path.paced_until().max(path.no_route_until()))
}

/// The chunks that faster paths deliver while one chunk is in flight on the path at `at`. An
/// in-order reader must buffer them until that chunk arrives. If it has less room, the path is
/// frozen, and the transfer continues at the pace of the others.
fn reserved_chunks(paths: &[Path], at: usize) -> u32 {
    let path = &paths[at];
    let faster = paths.iter().enumerate().filter(|&(other_at, other)| {
        let is_faster = (other.expected_answer_ns(), other_at) < (path.expected_answer_ns(), at);
        is_faster && other.expected_answer_ns() > 0 && !other.is_passed_over()
    });
    let chunks = faster.map(|(_, other)| {
        let round_trips = path.expected_answer_ns() as f64 / other.expected_answer_ns() as f64;
        other.allowance().window * round_trips
    });
    chunks.sum::<f64>() as u32
}
