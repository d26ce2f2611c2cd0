//! Disks that give no answers while a file is there, which experiments and tests ask for. A program
//! without the feature `lab` has none.

use weir_base::Instant;
use weir_disk::DiskMonitor;

use crate::config::DisksConfig;

#[cfg(not(feature = "lab"))]
pub(super) struct Stalls;

#[cfg(not(feature = "lab"))]
impl Stalls {
    pub(super) fn new(_config: &DisksConfig, _monitor: &DiskMonitor, _now: Instant) -> Self {
        Self
    }

    pub(super) fn next_wakeup(&self) -> Option<Instant> {
        None
    }

    pub(super) fn check(&mut self, _now: Instant) {}
}

#[cfg(feature = "lab")]
pub(super) use with_lab::Stalls;

#[cfg(feature = "lab")]
mod with_lab {
    use std::path::PathBuf;
    use std::time::Duration;

    use weir_base::NS_PER_MS;
    use weir_disk::StallHandle;

    use super::{DiskMonitor, DisksConfig, Instant};

    /// How often the files are looked for.
    const CHECK_NS: u64 = 20 * NS_PER_MS;
    /// A stall lasts until its file is gone.
    const STALL_TIME: Duration = Duration::from_secs(86_400);

    pub(in super::super) struct Stalls {
        all: Vec<Stall>,
        check_at: Option<Instant>,
    }

    struct Stall {
        path: PathBuf,
        handle: StallHandle,
        is_on: bool,
    }

    impl Stalls {
        /// Those of `config`, from the first read on.
        pub(in super::super) fn new(
            config: &DisksConfig,
            monitor: &DiskMonitor,
            now: Instant,
        ) -> Self {
            let all = config.stalled_while.iter().enumerate().filter_map(|(disk, path)| {
                let (path, handle) = (path.clone()?, monitor.stall_handle(disk));
                Some(Stall { path, handle, is_on: false })
            });
            let all: Vec<Stall> = all.collect();
            let mut stalls = Self { check_at: (!all.is_empty()).then_some(now), all };
            stalls.check(now);
            stalls
        }

        /// When [`Self::check`] wants to be called.
        pub(in super::super) fn next_wakeup(&self) -> Option<Instant> {
            self.check_at
        }

        /// Looks for the files if it is time to.
        pub(in super::super) fn check(&mut self, now: Instant) {
            if self.check_at.is_none_or(|at| at > now) {
                return;
            }
            self.check_at = Some(now.plus_ns(CHECK_NS));
            for stall in &mut self.all {
                let is_on = stall.path.exists();
                if is_on != std::mem::replace(&mut stall.is_on, is_on) {
                    stall.handle.stall_for(if is_on { STALL_TIME } else { Duration::ZERO });
                }
            }
        }
    }
}
