//! Descriptors of endpoints. One that becomes readable wakes its endpoint.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};

use crate::waker::EndpointId;

/// Events fetched per call.
const EVENTS_MAX: usize = 64;

/// A set of descriptors, itself a descriptor. A descriptor leaves it when it is closed.
pub(crate) struct EndpointSources(Epoll);

impl EndpointSources {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self(Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?))
    }

    /// Watches a descriptor, edge-triggered: it need not be read.
    pub(crate) fn watch(&self, source: BorrowedFd<'_>, id: EndpointId) -> io::Result<()> {
        let flags = EpollFlags::EPOLLIN | EpollFlags::EPOLLET;
        Ok(self.0.add(source, EpollEvent::new(flags, u64::from(id.0)))?)
    }

    /// Appends the endpoints with events since the last call; some may appear twice.
    pub(crate) fn take(&self, concerned: &mut Vec<EndpointId>) {
        let mut events = [EpollEvent::empty(); EVENTS_MAX];
        loop {
            match self.0.wait(&mut events, EpollTimeout::ZERO) {
                Ok(count) => {
                    let ids = events[..count].iter().map(|event| EndpointId(event.data() as u32));
                    concerned.extend(ids);
                    if count < EVENTS_MAX {
                        return;
                    }
                }
                Err(Errno::EINTR) => {}
                // The descriptor is an epoll set for its whole life.
                Err(_) => return,
            }
        }
    }
}

impl AsFd for EndpointSources {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.0.as_fd()
    }
}
