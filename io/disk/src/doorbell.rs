//! Wakes the thread of a disk, without a system call while it is awake.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags};
use nix::sys::time::TimeSpec;

/// An eventfd, and whether its owner sleeps.
pub(crate) struct Doorbell {
    event: OwnedFd,
    is_asleep: AtomicBool,
}

impl Doorbell {
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: takes no pointers.
        let event = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if event < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a new descriptor that nobody else owns.
        let event = unsafe { OwnedFd::from_raw_fd(event) };
        Ok(Self { event, is_asleep: AtomicBool::new(false) })
    }

    /// Wakes the owner if it sleeps or is about to. What the caller published before is seen by it.
    pub(crate) fn ring_if_asleep(&self) {
        fence(Ordering::SeqCst);
        if self.is_asleep.load(Ordering::Relaxed) && self.is_asleep.swap(false, Ordering::SeqCst) {
            self.ring();
        }
    }

    fn ring(&self) {
        // Fails only when the counter is full, and then it is readable.
        let _ = nix::unistd::write(&self.event, &1_u64.to_ne_bytes());
    }

    /// The owner says that it will sleep. It must look once more for what is there, then sleep.
    pub(crate) fn fall_asleep(&self) {
        self.is_asleep.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// The owner is awake again.
    pub(crate) fn wake_up(&self) {
        self.is_asleep.store(false, Ordering::SeqCst);
    }

    /// Sleeps until the bell rings or the time is over.
    pub(crate) fn wait(&self, timeout: Option<Duration>) {
        let mut events = [PollFd::new(self.event.as_fd(), PollFlags::POLLIN)];
        // A signal wakes us up too early, which does no harm.
        let _ = nix::poll::ppoll(&mut events, timeout.map(TimeSpec::from_duration), None);
        let mut counter = [0; 8];
        let _ = nix::unistd::read(&self.event, &mut counter);
    }
}

impl AsRawFd for Doorbell {
    fn as_raw_fd(&self) -> i32 {
        self.event.as_raw_fd()
    }
}

impl AsFd for Doorbell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

/// Has timers of this thread end when they are due, not up to 50 µs later.
pub(crate) fn sharpen_timers() {
    // SAFETY: sets an attribute of the calling thread; takes no pointers.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1_u64, 0_u64, 0_u64, 0_u64) };
}
