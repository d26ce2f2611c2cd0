//! Delays of a disk's answers, by its pace and by stalls. Experiments and tests use them; without
//! the feature `lab` nothing is ever delayed.

use std::time::Instant;

use crate::config::DiskFileConfig;

/// Shared by all ports of a disk.
#[cfg(not(feature = "lab"))]
pub(crate) struct AnswerDelay;

#[cfg(not(feature = "lab"))]
impl AnswerDelay {
    pub(crate) fn new(_config: &DiskFileConfig) -> Self {
        Self
    }

    pub(crate) fn answer_due(&self, _operations: u32) -> Option<Instant> {
        None
    }

    pub(crate) fn stalled_until(&self) -> Option<Instant> {
        None
    }
}

#[cfg(feature = "lab")]
pub(crate) use with_lab::AnswerDelay;

#[cfg(feature = "lab")]
mod with_lab {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    use super::{DiskFileConfig, Instant};
    use crate::pace::Pacer;

    /// Shared by all ports of a disk.
    pub(crate) struct AnswerDelay {
        pacer: Option<Mutex<Pacer>>,
        epoch: Instant,
        /// Nanoseconds after `epoch`; 0 if the disk is not stalled.
        stalled_until_ns: AtomicU64,
    }

    impl AnswerDelay {
        pub(crate) fn new(config: &DiskFileConfig) -> Self {
            let now = Instant::now();
            Self {
                pacer: config.pace.as_ref().map(|pace| Mutex::new(Pacer::new(pace, now))),
                epoch: now,
                stalled_until_ns: AtomicU64::new(0),
            }
        }

        /// When a paced disk would finish `operations` that arrive now.
        pub(crate) fn answer_due(&self, operations: u32) -> Option<Instant> {
            let mut pacer = self.pacer.as_ref()?.lock().ok()?;
            Some(pacer.due(Instant::now(), operations))
        }

        pub(crate) fn stalled_until(&self) -> Option<Instant> {
            let until_ns = self.stalled_until_ns.load(Ordering::Acquire);
            (until_ns > 0).then(|| self.epoch + Duration::from_nanos(until_ns))
        }

        /// Stalls the disk for this time from now on; zero ends a stall.
        pub(crate) fn stall_for(&self, time: Duration) {
            // Limit the time to a century, so that the sum does not overflow.
            let until = self.epoch.elapsed() + time.min(Duration::from_secs(100 * 365 * 86_400));
            let until_ns = if time.is_zero() { 0 } else { until.as_nanos() as u64 };
            self.stalled_until_ns.store(until_ns, Ordering::Release);
        }
    }
}
