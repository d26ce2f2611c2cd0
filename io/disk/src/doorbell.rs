use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering, fence};

use nix::sys::eventfd::{EfdFlags, EventFd};

/// Wakes the owner of a [`DiskPorts`](crate::DiskPorts) when outcomes have arrived. Threads ring it
/// through [`Doorbell::ring`]; io_uring signals the eventfd itself.
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

    /// Signals the eventfd, unless it was signalled since the last [`Self::clear`]. The thread that
    /// clears it sees everything that the caller published before.
    pub(crate) fn ring(&self) {
        fence(Ordering::SeqCst);
        if !self.is_ringing.load(Ordering::Relaxed) && !self.is_ringing.swap(true, Ordering::SeqCst)
        {
            // Fails only if the counter is full, and then it is readable.
            let _ = self.event.write(1);
        }
    }

    /// Prepares for the next signal. The owner must call it before it looks for outcomes.
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
