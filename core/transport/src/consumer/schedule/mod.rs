//! Which path takes the next chunk. One file for each schedule.

mod parallel;
mod round_robin;
mod single;

pub(crate) use self::parallel::Parallel;
pub(crate) use self::round_robin::RoundRobin;
pub(crate) use self::single::Single;

use alloc::boxed::Box;

use weir_base::Instant;

use super::path::Path;

/// Which of its paths a consumer uses, by the name that people give.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum PathSchedule {
    /// The path that was there first. The others stand by until it is removed.
    #[default]
    Single,
    /// All at once, so that their bandwidths add up (paper chopcop, 4).
    Parallel,
    /// In turn, each path by the share of its window (paper multipath-cache-management, 4.1); one
    /// without room is passed over.
    RoundRobin,
}

weir_base::words!(PathSchedule {
    Single = "single",
    Parallel = "parallel",
    RoundRobin = "round-robin"
});

impl PathSchedule {
    pub(crate) fn make(self) -> Box<dyn Schedule> {
        match self {
            Self::Single => Box::new(Single),
            Self::Parallel => Box::new(Parallel),
            Self::RoundRobin => Box::new(RoundRobin::default()),
        }
    }
}

/// The chunk that a path is sought for.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum SendKind {
    /// One that was lost or refused, for which the reader keeps a place.
    Resend,
    /// One that was not asked for before. The reader, which wants all in order, has room for so
    /// many of them.
    New { room_chunks: u32 },
}

/// Decides which path takes the next chunk.
pub(crate) trait Schedule: Send {
    /// The place in `paths` of the path that takes `last_request` now; `None` while none may. Only a path
    /// that [`may_send`](Path::may_send) may be chosen.
    fn choose(&mut self, paths: &[Path], next: SendKind, now: Instant) -> Option<usize>;

    /// When a path can be chosen for `last_request` at the earliest while windows stay as they are: the
    /// pace may keep it back until then. `None` while no path may take it.
    fn departure(&self, paths: &[Path], _next: SendKind) -> Option<Instant> {
        paths.iter().filter(|path| path.window_has_room()).map(Path::paced_until).min()
    }

    /// How many of `paths`, from the first on, are in use: no other will be chosen.
    fn used(&self, paths: &[Path]) -> usize {
        paths.len()
    }
}
