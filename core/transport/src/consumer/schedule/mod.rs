//! Which path takes the next unit. One file for each schedule.

mod single;

pub(crate) use self::single::Single;

use weir_base::Instant;

use super::path::Path;

/// Decides which path takes the next unit.
pub(crate) trait Schedule: Send {
    /// The place in `paths` of the path that takes the next unit now; `None` while none may. Only
    /// a path that [`may_send`](Path::may_send) may be chosen.
    fn choose(&mut self, paths: &[Path], now: Instant) -> Option<usize>;
}
