//! Ends a wait for packets from any thread.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use nix::sys::eventfd::{EfdFlags, EventFd};

/// Ends a wait of the [`Client`](crate::Client) that it comes from, from any thread.
#[derive(Debug)]
pub struct Waker(EventFd);

impl Waker {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self(EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?))
    }

    /// Ends the wait that is under way, or else the next one.
    ///
    /// # Errors
    /// What the system says.
    pub fn wake(&self) -> io::Result<()> {
        match self.0.write(1) {
            // So often that the counter is full, which wakes as well.
            Ok(_) | Err(nix::errno::Errno::EAGAIN) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Makes ready for the next wait.
    pub(crate) fn clear(&self) {
        // Nothing is lost: whoever wakes has done its part before.
        let _ = self.0.read();
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
