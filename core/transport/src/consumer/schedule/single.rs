//! One path at a time.

use weir_base::Instant;

use super::{Path, Schedule, SendKind};

/// Uses the first path. The others stand by until it is removed.
#[derive(Debug)]
pub(crate) struct Single;

impl Schedule for Single {
    fn choose(&mut self, paths: &[Path], _next: SendKind, now: Instant) -> Option<usize> {
        paths.first().is_some_and(|path| path.may_send(now)).then_some(0)
    }

    fn departure(&self, paths: &[Path], _next: SendKind) -> Option<Instant> {
        paths.first().filter(|path| path.window_has_room()).map(Path::paced_until)
    }

    fn used(&self, paths: &[Path]) -> usize {
        paths.len().min(1)
    }
}
