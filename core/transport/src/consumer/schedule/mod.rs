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

    /// When a path can be chosen at the earliest while windows stay as they are: the pace may keep
    /// it back until then. `None` while the windows leave no room.
    fn departure(&self, paths: &[Path]) -> Option<Instant> {
        paths.iter().filter(|path| path.window_has_room()).map(Path::paced_until).min()
    }
}
