//! Paths in turn (paper multipath-cache-management, 4.1).
//!
//! The paper gives each router a pipeline of fixed depth, keeps each pipeline full, and distributes
//! Interests in turn or by a ratio. Here the depth of a path is its window, and so is its share of
//! the turns. Equal windows are the paper's round-robin scheme; windows of 5, 3 and 2 are its ratio
//! of 50, 30 and 20 %.

use alloc::vec::Vec;

use weir_base::Instant;

use super::{Path, Schedule, SendKind};
use crate::PathId;

/// Gives each path chunks in proportion to its window. A path without room is skipped.
#[derive(Debug, Default)]
pub(crate) struct RoundRobin {
    /// Chunks given to each path, divided by its window.
    turns_taken: Vec<(PathId, f64)>,
}

impl RoundRobin {
    /// Forgets removed paths. A new one starts with the count of the path that has had least.
    fn sync_paths(&mut self, paths: &[Path]) {
        let is_known = |taken: &[(PathId, f64)], id| taken.iter().any(|(known, _)| *known == id);
        if self.turns_taken.len() == paths.len()
            && paths.iter().all(|path| is_known(&self.turns_taken, path.id))
        {
            return;
        }
        self.turns_taken.retain(|(id, _)| paths.iter().any(|path| path.id == *id));
        let least =
            self.turns_taken.iter().map(|&(_, taken)| taken).reduce(f64::min).unwrap_or(0.0);
        for path in paths {
            if !is_known(&self.turns_taken, path.id) {
                self.turns_taken.push((path.id, least));
            }
        }
    }

    /// The count of a path if it gets the next chunk.
    fn turns_after(&self, path: &Path) -> f64 {
        let taken = self.turns_taken.iter().find(|(known, _)| *known == path.id);
        taken.map_or(0.0, |&(_, taken)| taken) + 1.0 / path.allowance().window.max(1.0)
    }
}

/// When the path at `at` may take a chunk at the earliest; `None` while it may not. A failing path
/// is tried with one chunk at a time, and takes lost chunks only when all are failing.
fn departs_at(paths: &[Path], at: usize, next: SendKind) -> Option<Instant> {
    let path = &paths[at];
    let may_take = match next {
        SendKind::Resend => !path.is_failing() || paths.iter().all(Path::is_failing),
        SendKind::New { .. } => !path.is_failing() || path.in_flight() == 0,
    };
    let may_take = may_take && path.window_has_room();
    may_take.then(|| path.paced_until().max(path.no_route_until()))
}

impl Schedule for RoundRobin {
    fn choose(&mut self, paths: &[Path], next: SendKind, now: Instant) -> Option<usize> {
        self.sync_paths(paths);
        let may_take = |at: &usize| departs_at(paths, *at, next).is_some_and(|when| when <= now);
        let order = |a: &usize, b: &usize| {
            self.turns_after(&paths[*a]).total_cmp(&self.turns_after(&paths[*b]))
        };
        let at = (0..paths.len()).filter(may_take).min_by(order)?;
        let after = self.turns_after(&paths[at]);
        if let Some((_, taken)) = self.turns_taken.iter_mut().find(|(id, _)| *id == paths[at].id) {
            *taken = after;
        }
        Some(at)
    }

    fn departure(&self, paths: &[Path], next: SendKind) -> Option<Instant> {
        (0..paths.len()).filter_map(|at| departs_at(paths, at, next)).min()
    }
}
