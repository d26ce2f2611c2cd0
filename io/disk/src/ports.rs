use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use weir_store::disk::{DiskOp, DiskOpId, DiskOutcome};

use crate::disk_port::DiskPort;
use crate::doorbell::Doorbell;

/// The connections of one shard to all disks of its store. Used by one thread. Never waits for a
/// disk, except in [`Self::close`].
///
/// In each turn, the thread calls [`drain`](Self::drain) and lets the store process the outcomes.
/// It then calls [`submit`](Self::submit) for new operations and [`flush`](Self::flush). At the end
/// it waits for [`sources`](Self::sources) and its other events.
pub struct DiskPorts {
    ports: Vec<DiskPort>,
    bell: Arc<Doorbell>,
    /// For outcomes that are delayed, by paced and stalled disks.
    timer: TimerFd,
    timer_at: Option<Instant>,
}

impl DiskPorts {
    pub(crate) fn new(bell: Arc<Doorbell>) -> io::Result<Self> {
        let flags = TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK;
        let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, flags)?;
        Ok(Self { ports: Vec::new(), bell, timer, timer_at: None })
    }

    pub(crate) fn add(&mut self, port: DiskPort) {
        self.ports.push(port);
    }

    /// Descriptors that become readable when outcomes have arrived. They are never read, so watch
    /// them edge-triggered (`EPOLLET`), as mio does.
    pub fn sources(&self) -> [BorrowedFd<'_>; 2] {
        [self.bell.as_fd(), self.timer.as_fd()]
    }

    /// Accepts an operation, which starts with [`Self::flush`] at the latest.
    ///
    /// # Panics
    /// If the disk does not exist, or has `depth` operations in progress already. A store never
    /// exceeds its depth.
    pub fn submit(&mut self, op: DiskOp) {
        self.ports[usize::from(op.disk)].submit(op);
    }

    /// Starts all accepted operations. Call it once in each turn, whether or not there are any.
    pub fn flush(&mut self) {
        self.ports.iter_mut().for_each(DiskPort::flush);
        if self.ports.iter().any(DiskPort::has_outcomes) {
            self.bell.ring();
        }
        self.set_timer();
    }

    /// Appends the outcomes since the last call.
    pub fn drain(&mut self, out: &mut Vec<(DiskOpId, DiskOutcome)>) {
        self.bell.clear();
        for port in &mut self.ports {
            port.drain(out);
        }
        self.set_timer();
    }

    fn set_timer(&mut self) {
        let next = self.ports.iter().filter_map(DiskPort::next_release).min();
        if next == self.timer_at {
            return;
        }
        self.timer_at = next;
        let Some(next) = next else { return };
        // A time of zero would disable the timer.
        let left = next.saturating_duration_since(Instant::now()).max(Duration::from_nanos(1));
        let expiration = Expiration::OneShot(TimeSpec::from_duration(left));
        let set = self.timer.set(expiration, TimerSetTimeFlags::empty());
        set.expect("a timer can be set to any future time");
    }

    /// Operations that were submitted and not drained yet.
    pub fn under_way(&self) -> usize {
        self.ports.iter().map(DiskPort::under_way).sum()
    }

    /// Waits for operations in progress, at most `within`. The thread that submitted them must call
    /// it, because io_uring accepts no other. Returns false if a device did not respond. Then its
    /// buffers are leaked, since it may still write to them, and the lock stays until it responds.
    pub fn close(mut self, within: Duration) -> bool {
        let until = Instant::now() + within;
        // `&` closes every port, even after one has failed. A disk that hangs uses up the time, but
        // the others still collect the operations that have ended.
        self.ports.iter_mut().fold(true, |all_ended, port| all_ended & port.close(until))
    }
}

impl fmt::Debug for DiskPorts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DiskPorts")
            .field("disks", &self.ports.len())
            .field("under_way", &self.under_way())
            .finish_non_exhaustive()
    }
}
