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

/// One shard's way to all disks of its store. Used by one thread; waits for no disk.
///
/// A turn of its thread: [`drain`](Self::drain), let the store work, [`submit`](Self::submit) what
/// it wants, [`flush`](Self::flush), wait for [`sources`](Self::sources) among others.
pub struct DiskPorts {
    ports: Vec<DiskPort>,
    bell: Arc<Doorbell>,
    /// For answers that are held back, by paced and stalled disks.
    timer: TimerFd,
    timer_at: Option<Instant>,
}

impl DiskPorts {
    pub(crate) fn new(bell: Arc<Doorbell>) -> io::Result<Self> {
        let flags = TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK;
        let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, flags)?;
        Ok(Self { ports: Vec::new(), bell, timer, timer_at: None })
    }

    pub(crate) fn add(&mut self, lane: DiskPort) {
        self.ports.push(lane);
    }

    /// Descriptors that become readable when outcomes have come in. To be watched for edges, since
    /// they are not read: `EPOLLET`, as mio does.
    pub fn sources(&self) -> [BorrowedFd<'_>; 2] {
        [self.bell.as_fd(), self.timer.as_fd()]
    }

    /// Takes an operation, which begins with [`Self::flush`] at the latest.
    ///
    /// # Panics
    /// When the disk does not exist, or has as many operations under way as it was started for: the
    /// store never asks for more.
    pub fn submit(&mut self, op: DiskOp) {
        self.ports[usize::from(op.disk)].submit(op);
    }

    /// Begins all that was taken. Once a turn, whatever happened in it.
    pub fn flush(&mut self) {
        self.ports.iter_mut().for_each(DiskPort::flush);
        if self.ports.iter().any(DiskPort::has_answers) {
            self.bell.ring();
        }
        self.set_timer();
    }

    /// Appends what has ended since the last call.
    pub fn drain(&mut self, out: &mut Vec<(DiskOpId, DiskOutcome)>) {
        self.bell.clear();
        for lane in &mut self.ports {
            lane.drain(out);
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
        // A time of zero would switch it off.
        let left = next.saturating_duration_since(Instant::now()).max(Duration::from_nanos(1));
        let expiration = Expiration::OneShot(TimeSpec::from_duration(left));
        let set = self.timer.set(expiration, TimerSetTimeFlags::empty());
        set.expect("a timer can be set to any time to come");
    }

    /// Operations that were submitted and not drained yet.
    pub fn under_way(&self) -> usize {
        self.ports.iter().map(DiskPort::under_way).sum()
    }

    /// Waits for what is under way, no longer than `within`. Called by the thread that submitted
    /// it: io_uring refuses others, and nothing ends for them. False when a device did not answer:
    /// the buffers that it may still write to and the lock are left to it then.
    pub fn close(mut self, within: Duration) -> bool {
        let until = Instant::now() + within;
        // One that hangs does not keep the others from theirs.
        self.ports.iter_mut().fold(true, |all_ended, lane| all_ended & lane.close(until))
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
