//! Ends a wait for packets from any thread.

use std::io;
use std::mem;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nix::sys::eventfd::{EfdFlags, EventFd};

/// An endpoint of one [`EventLoop`](crate::EventLoop); its number may be given anew once it is
/// removed.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EndpointId(pub(crate) u32);

/// Who is to look for what is new.
#[derive(Debug, Default)]
pub(crate) struct Woken {
    pub(crate) all: bool,
    pub(crate) ones: Vec<EndpointId>,
}

/// Ends a wait of the [`Client`](crate::Client) that it comes from, from any thread.
#[derive(Debug)]
pub struct Waker {
    event: EventFd,
    woken: Mutex<Woken>,
}

impl Waker {
    pub(crate) fn new() -> io::Result<Self> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        Ok(Self { event: EventFd::from_flags(flags)?, woken: Mutex::default() })
    }

    fn woken(&self) -> MutexGuard<'_, Woken> {
        self.woken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the wait that is under way, or else the next one, and has all endpoints look.
    ///
    /// # Errors
    /// What the system says.
    pub fn wake(&self) -> io::Result<()> {
        self.woken().all = true;
        self.end_wait()
    }

    /// As [`Waker::wake`], for one endpoint alone: of thousands, the others need not look.
    pub(crate) fn wake_one(&self, id: EndpointId) -> io::Result<()> {
        self.woken().ones.push(id);
        self.end_wait()
    }

    fn end_wait(&self) -> io::Result<()> {
        match self.event.write(1) {
            // So often that the counter is full, which wakes as well.
            Ok(_) | Err(nix::errno::Errno::EAGAIN) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Makes ready for the next wait.
    pub(crate) fn clear(&self) {
        // Nothing is lost: whoever wakes has done its part before.
        let _ = self.event.read();
    }

    /// Who is to look since this was asked last.
    pub(crate) fn take(&self) -> Woken {
        mem::take(&mut *self.woken())
    }
}

/// Wakes one endpoint.
#[derive(Clone, Debug)]
pub(crate) struct Waking {
    pub(crate) waker: Arc<Waker>,
    pub(crate) id: EndpointId,
}

impl Waking {
    pub(crate) fn wake(&self) -> io::Result<()> {
        self.waker.wake_one(self.id)
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}
