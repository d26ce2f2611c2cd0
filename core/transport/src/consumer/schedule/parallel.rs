//! All paths at once (paper chopcop, 4).
//!
//! The engine of the paper and its pipes are spread over the consumer: the scoreboard keeps the
//! pending Interest space and reassigns what a path lost, each path has its controller, and this
//! schedule says which of the paths that ask for an Interest gets the next, and freezes and resumes
//! them.

use weir_base::Instant;

use super::{Path, Schedule, SendKind};

/// Uses every path that has room in its window, the one first from which the answer comes soonest.
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

/// When the path at `at` may be given `last_request` at the earliest; `None` while it may not.
fn departs_at(paths: &[Path], at: usize, next: SendKind) -> Option<Instant> {
    let path = &paths[at];
    let may_take = match next {
        // What a failing path gets is likely to be lost once more; another path has room soon.
        SendKind::Resend => !path.is_failing() || paths.iter().all(Path::is_failing),
        // A failing path is tried with a chunk at a time.
        SendKind::New { .. } if path.is_failing() && path.in_flight() > 0 => false,
        SendKind::New { room_chunks } => room_chunks > reserved_chunks(paths, at),
    };
    let may_take = may_take && path.window_has_room();
    may_take.then(|| path.paced_until().max(path.no_route_until()))
}

/// The room that the faster paths need while a chunk is under way on the path at `at`: what they
/// bring in that time the reader cannot take before that chunk has come, if it wants all in order.
/// With less room than that the path is frozen, and the transfer goes on at the pace of the others.
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
