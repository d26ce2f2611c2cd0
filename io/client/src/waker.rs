//! Wakes a client that waits for packets, from any thread.

use std::io;
use std::mem;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nix::sys::eventfd::{EfdFlags, EventFd};

/// The number of an endpoint in an [`EventLoop`](crate::EventLoop). It may be reused after the
/// endpoint is removed.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EndpointId(pub u32);

/// Which endpoints must be called.
#[derive(Debug, Default)]
pub(crate) struct WokenEndpoints {
    pub(crate) all_endpoints: bool,
    pub(crate) endpoints: Vec<EndpointId>,
}

/// Wakes the [`Client`](crate::Client) that it belongs to, from any thread.
#[derive(Debug)]
pub struct Waker {
    event: EventFd,
    woken: Mutex<WokenEndpoints>,
}

impl Waker {
    /// A waker without a client.
    ///
    /// # Errors
    /// The system has no free descriptor.
    pub fn new() -> io::Result<Self> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        Ok(Self { event: EventFd::from_flags(flags)?, woken: Mutex::default() })
    }

    fn woken(&self) -> MutexGuard<'_, WokenEndpoints> {
        self.woken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the present wait, or else the next one. All endpoints are called.
    pub fn wake(&self) -> io::Result<()> {
        self.woken().all_endpoints = true;
        self.end_wait()
    }

    /// A waker for one endpoint only.
    #[must_use]
    pub fn endpoint(self: &Arc<Self>, id: EndpointId) -> EndpointWaker {
        EndpointWaker { waker: self.clone(), id }
    }

    fn wake_endpoint(&self, id: EndpointId) -> io::Result<()> {
        self.woken().endpoints.push(id);
        self.end_wait()
    }

    fn end_wait(&self) -> io::Result<()> {
        match self.event.write(1) {
            // A full counter wakes as well.
            Ok(_) | Err(nix::errno::Errno::EAGAIN) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Prepares for the next wait.
    pub(crate) fn clear(&self) {
        // No wake-up is lost: a thread queues its work before it wakes the client.
        let _ = self.event.read();
    }

    /// Which endpoints were woken since the last call.
    pub(crate) fn take(&self) -> WokenEndpoints {
        mem::take(&mut *self.woken())
    }
}

/// Wakes a client for one endpoint, from any thread. Other endpoints, perhaps thousands, are not
/// called.
#[derive(Clone, Debug)]
pub struct EndpointWaker {
    waker: Arc<Waker>,
    id: EndpointId,
}

impl EndpointWaker {
    pub fn id(&self) -> EndpointId {
        self.id
    }

    /// Ends the present wait, or else the next one, and calls the endpoint.
    pub fn wake(&self) -> io::Result<()> {
        self.waker.wake_endpoint(self.id)
    }
}

impl PartialEq for EndpointWaker {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id && Arc::ptr_eq(&self.waker, &other.waker)
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}
