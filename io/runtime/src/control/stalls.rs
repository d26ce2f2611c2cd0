//! Injected disk stalls for experiments and tests: a disk gives no answers while a file exists.
//! Only with the feature `lab`.

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

    /// Interval between checks for the files.
    const CHECK_NS: u64 = 20 * NS_PER_MS;
    /// Longer than any experiment: a stall ends when its file is removed.
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
        /// Injects the configured stalls, from the first read on.
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

        /// When [`Self::check`] must be called.
        pub(in super::super) fn next_wakeup(&self) -> Option<Instant> {
            self.check_at
        }

        /// Checks for the files if the interval has passed.
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
