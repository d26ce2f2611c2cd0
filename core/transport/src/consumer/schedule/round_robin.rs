//! Paths in turn (paper multipath-cache-management, 4.1).
//!
//! The paper gives each router a pipeline depth, keeps each pipeline full, and deals Interests out
//! to them in turn or by a ratio. The depth of a path is its window; a path's share of the turns is
//! its window, too: equal windows are the paper's round-robin scheme, and windows of 5, 3 and 2 its
//! ratio of 50, 30 and 20 %.

use alloc::vec::Vec;

use weir_base::Instant;

use super::{Next, Path, Schedule};
use crate::PathId;

/// Gives each path as many chunks as its window is large against those of the others; one without
/// room is passed over.
#[derive(Debug, Default)]
pub(crate) struct RoundRobin {
    /// What each path was given, in chunks for one of its window.
    given: Vec<(PathId, f64)>,
}

impl RoundRobin {
    /// Forgets paths that are gone. One that has come begins with the one that has had least.
    fn see(&mut self, paths: &[Path]) {
        let is_known = |given: &[(PathId, f64)], id| given.iter().any(|(known, _)| *known == id);
        if self.given.len() == paths.len()
            && paths.iter().all(|path| is_known(&self.given, path.id))
        {
            return;
        }
        self.given.retain(|(id, _)| paths.iter().any(|path| path.id == *id));
        let least = self.given.iter().map(|&(_, given)| given).reduce(f64::min).unwrap_or(0.0);
        for path in paths {
            if !is_known(&self.given, path.id) {
                self.given.push((path.id, least));
            }
        }
    }

    /// What the path will have had if it gets the next chunk.
    fn after(&self, path: &Path) -> f64 {
        let given = self.given.iter().find(|(known, _)| *known == path.id);
        given.map_or(0.0, |&(_, given)| given) + 1.0 / path.allowance().window.max(1.0)
    }
}

/// When the path at `at` may be given `next` at the earliest; `None` while it may not. One that
/// fails is tried with a chunk at a time, and gets what others lost only when all fail.
fn departs_at(paths: &[Path], at: usize, next: Next) -> Option<Instant> {
    let path = &paths[at];
    let may_take = match next {
        Next::Again => !path.is_failing() || paths.iter().all(Path::is_failing),
        Next::New { .. } => !path.is_failing() || path.in_flight() == 0,
    };
    let may_take = may_take && path.window_has_room();
    may_take.then(|| path.paced_until().max(path.rests_until()))
}

impl Schedule for RoundRobin {
    fn choose(&mut self, paths: &[Path], next: Next, now: Instant) -> Option<usize> {
        self.see(paths);
        let may_take = |at: &usize| departs_at(paths, *at, next).is_some_and(|when| when <= now);
        let order =
            |a: &usize, b: &usize| self.after(&paths[*a]).total_cmp(&self.after(&paths[*b]));
        let at = (0..paths.len()).filter(may_take).min_by(order)?;
        let after = self.after(&paths[at]);
        if let Some((_, given)) = self.given.iter_mut().find(|(id, _)| *id == paths[at].id) {
            *given = after;
        }
        Some(at)
    }

    fn departure(&self, paths: &[Path], next: Next) -> Option<Instant> {
        (0..paths.len()).filter_map(|at| departs_at(paths, at, next)).min()
    }
}
