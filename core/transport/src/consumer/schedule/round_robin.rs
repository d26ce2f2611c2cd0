//! Paths in turn (paper multipath-cache-management, 4.1).
//!
//! The paper gives each router a pipeline depth, and Interests to the routers in turn or by a
//! ratio. The depth of a path is its window; a path's share of the turns is its window, too: equal
//! windows are the paper's round-robin scheme, and windows of 5, 3 and 2 its ratio of 50, 30 and
//! 20 %.

use alloc::vec::Vec;

use weir_base::Instant;

use super::{Next, Path, Schedule};
use crate::PathId;

/// Gives each path as many chunks as its window is large against those of the others.
///
/// The paper's text leaves open what becomes of a turn whose path has no room. A `strict` schedule
/// waits, so that all go at the pace of the slowest path; another passes the path over, which then
/// gets what its round-trip time lets it have.
#[derive(Debug)]
pub(crate) struct RoundRobin {
    is_strict: bool,
    /// What each path was given, in chunks for one of its window.
    given: Vec<(PathId, f64)>,
}

impl RoundRobin {
    pub(crate) fn new(is_strict: bool) -> Self {
        Self { is_strict, given: Vec::new() }
    }

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

    fn given(&self, id: PathId) -> f64 {
        self.given.iter().find(|(known, _)| *known == id).map_or(0.0, |&(_, given)| given)
    }

    /// The place of the path whose turn it is to get `next`: that which will have had least then.
    fn turn(&self, paths: &[Path], next: Next, now: Option<Instant>) -> Option<usize> {
        let after = |at: &usize| {
            let path = &paths[*at];
            self.given(path.id) + 1.0 / path.allowance().window.max(1.0)
        };
        let is_first = |a: &usize, b: &usize| after(a).total_cmp(&after(b));
        let live = (0..paths.len()).filter(|&at| is_live(paths, at, next));
        let has_room = |at: &usize| {
            let path = &paths[*at];
            let may_leave = |now| path.paced_until().max(path.rests_until()) <= now;
            path.window_has_room() && now.is_none_or(may_leave)
        };
        if self.is_strict {
            live.min_by(is_first).filter(has_room)
        } else {
            live.filter(has_room).min_by(is_first)
        }
    }
}

/// Whether the path at `at` has turns: one that fails is tried with a chunk at a time, and gets
/// what others lost only when all fail.
fn is_live(paths: &[Path], at: usize, next: Next) -> bool {
    let path = &paths[at];
    match next {
        Next::Again => !path.is_failing() || paths.iter().all(Path::is_failing),
        Next::New { .. } => !path.is_failing() || path.in_flight() == 0,
    }
}

impl Schedule for RoundRobin {
    fn choose(&mut self, paths: &[Path], next: Next, now: Instant) -> Option<usize> {
        self.see(paths);
        let at = self.turn(paths, next, Some(now))?;
        let part = 1.0 / paths[at].allowance().window.max(1.0);
        if let Some((_, given)) = self.given.iter_mut().find(|(id, _)| *id == paths[at].id) {
            *given += part;
        }
        Some(at)
    }

    fn departure(&self, paths: &[Path], next: Next) -> Option<Instant> {
        let leaves_at = |at: usize| paths[at].paced_until().max(paths[at].rests_until());
        if self.is_strict {
            return self.turn(paths, next, None).map(leaves_at);
        }
        let live = (0..paths.len()).filter(|&at| is_live(paths, at, next));
        live.filter(|&at| paths[at].window_has_room()).map(leaves_at).min()
    }
}
