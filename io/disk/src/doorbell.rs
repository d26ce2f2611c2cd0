use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering, fence};

use nix::sys::eventfd::{EfdFlags, EventFd};

/// Tells the owner of a [`DiskPorts`](crate::DiskPorts) that outcomes have come in. Threads ring it
/// through `self`, io_uring rings the eventfd itself.
pub(crate) struct Doorbell {
    event: EventFd,
    is_ringing: AtomicBool,
}

impl Doorbell {
    pub(crate) fn new() -> io::Result<Self> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let event = EventFd::from_value_and_flags(0, flags)?;
        Ok(Self { event, is_ringing: AtomicBool::new(false) })
    }

    /// Rings, unless it was rung since the last [`Self::clear`]. What the caller published before
    /// is seen by whoever clears it after.
    pub(crate) fn ring(&self) {
        fence(Ordering::SeqCst);
        if !self.is_ringing.load(Ordering::Relaxed) && !self.is_ringing.swap(true, Ordering::SeqCst)
        {
            // Fails only when the counter is full, and then it is readable.
            let _ = self.event.write(1);
        }
    }

    /// The owner looks for outcomes next.
    pub(crate) fn clear(&self) {
        self.is_ringing.store(false, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }
}

impl AsFd for Doorbell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}
