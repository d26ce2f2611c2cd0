//! Which path takes the next chunk. One file per schedule.

mod parallel;
mod round_robin;
mod single;

pub(crate) use self::parallel::Parallel;
pub(crate) use self::round_robin::RoundRobin;
pub(crate) use self::single::Single;

use alloc::boxed::Box;

use weir_base::Instant;

use super::path::Path;

/// Which of its paths a consumer uses, by its name in configurations.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum PathSchedule {
    /// The first path. The others stand by until it is removed.
    #[default]
    Single,
    /// All paths at once, so that their bandwidths add up (paper chopcop, 4).
    Parallel,
    /// In turn, each path in proportion to its window (paper multipath-cache-management, 4.1). A
    /// path without room is skipped.
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

/// The kind of chunk that needs a path.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum SendKind {
    /// A chunk that was lost or refused. The reader has reserved its buffer.
    Resend,
    /// A chunk that was not requested before. An in-order reader has buffer for `room_chunks`.
    New { room_chunks: u32 },
}

/// Decides which path takes the next chunk.
pub(crate) trait Schedule: Send {
    /// The position in `paths` of the path that takes a chunk of this kind; `None` while none may.
    /// It must be a path that [`may_send`](Path::may_send).
    fn choose(&mut self, paths: &[Path], next: SendKind, now: Instant) -> Option<usize>;

    /// The earliest time at which a path can take a chunk, with the windows as they are. Pacing may
    /// delay it. `None` while no path may take one.
    fn departure(&self, paths: &[Path], _next: SendKind) -> Option<Instant> {
        paths.iter().filter(|path| path.window_has_room()).map(Path::paced_until).min()
    }

    /// How many of `paths`, from the first on, are in use. The others will not be chosen.
    fn used(&self, paths: &[Path]) -> usize {
        paths.len()
    }
}
