//! Readiness of sockets: what blocking calls wait for and `poll` reports.
//!
//! A socket has one event descriptor, which the application knows, and several sources, such as the
//! read of one name. A source that may have something sets the descriptor readable and wakes
//! blocked calls.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::JoinHandle;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::stat::fstat;
use nix::unistd::{read, write};
use weir_binding::WithoutSignals;

/// The event descriptor of a socket.
struct Descriptor {
    /// The descriptor that the application knows. It may have closed it itself.
    app_fd: OwnedFd,
    /// A duplicate with a number that the application does not know. Writing to it cannot hit
    /// another file that has reused the application's number.
    own_fd: OwnedFd,
    /// Device and inode.
    identity: (u64, u64),
    is_signalled: bool,
}

impl Descriptor {
    fn new(is_nonblocking: bool) -> Result<Self, Errno> {
        let mut flags = EfdFlags::EFD_CLOEXEC;
        flags.set(EfdFlags::EFD_NONBLOCK, is_nonblocking);
        let shown = OwnedFd::from(EventFd::from_flags(flags)?);
        let own = shown.try_clone().map_err(|_| Errno::EMFILE)?;
        let identity = identity(&shown)?;
        Ok(Self { app_fd: shown, own_fd: own, identity, is_signalled: false })
    }

    /// Whether the application's number still refers to this descriptor. Another eventfd with the
    /// same number is not detected.
    fn is_fd_ours(&self) -> bool {
        identity(&self.app_fd) == Ok(self.identity)
    }

    fn set(&mut self, is_up: bool) {
        if is_up == self.is_signalled {
            return;
        }
        // Reading and writing fail only if the application has tampered with the descriptor. Check
        // before reading: the application may have read it, and a blocking read would wait forever.
        if is_up {
            let _ = write(&self.own_fd, &1_u64.to_ne_bytes());
        } else if is_readable(&self.own_fd) {
            let _ = read(&self.own_fd, &mut [0; 8]);
        }
        self.is_signalled = is_up;
    }

    /// Closes the application's number, unless it refers to another file by now.
    fn close(self, owns_number: bool) {
        let is_shown =
            self.is_fd_ours() && event_number(&self.app_fd) == event_number(&self.own_fd);
        if !owns_number || !is_shown {
            // Dropping `app_fd` would close the file that has reused the number.
            std::mem::forget(self.app_fd);
        }
    }
}

fn identity(descriptor: &OwnedFd) -> Result<(u64, u64), Errno> {
    let status = fstat(descriptor)?;
    Ok((status.st_dev, status.st_ino))
}

/// The identifier of an eventfd. All eventfds share one inode, so the inode does not distinguish
/// them. Slower than [`identity`].
fn event_number(descriptor: &OwnedFd) -> Option<String> {
    let path = format!("/proc/self/fdinfo/{}", descriptor.as_raw_fd());
    let text = std::fs::read_to_string(path).ok()?;
    text.lines().find(|line| line.starts_with("eventfd-id:")).map(str::to_owned)
}

fn is_readable(descriptor: &OwnedFd) -> bool {
    let mut looked = [PollFd::new(descriptor.as_fd(), PollFlags::POLLIN)];
    poll(&mut looked, PollTimeout::ZERO) == Ok(1)
}

/// A source of readiness.
#[derive(Default)]
struct Source {
    wakes: u64,
    is_ready: bool,
    /// Whether `poll` ignores it.
    is_hidden: bool,
}

struct ReadinessState {
    /// `None` after the socket was closed.
    descriptor: Option<Descriptor>,
    sources: BTreeMap<u64, Source>,
    next: u64,
}

impl ReadinessState {
    fn update_descriptor(&mut self) {
        let is_ready = self.sources.values().any(|source| source.is_ready);
        if let Some(descriptor) = &mut self.descriptor {
            descriptor.set(is_ready);
        }
    }
}

/// The readiness of a socket, for blocking calls and `poll`.
pub(crate) struct Readiness {
    state: Mutex<ReadinessState>,
    changed: Condvar,
}

impl Readiness {
    pub(crate) fn new(is_nonblocking: bool) -> Result<Arc<Self>, Errno> {
        let descriptor = Some(Descriptor::new(is_nonblocking)?);
        let state = Mutex::new(ReadinessState { descriptor, sources: BTreeMap::new(), next: 0 });
        Ok(Arc::new(Self { state, changed: Condvar::new() }))
    }

    fn state(&self) -> MutexGuard<'_, ReadinessState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The descriptor that the application knows.
    pub(crate) fn number(&self) -> Option<RawFd> {
        self.state().descriptor.as_ref().map(|descriptor| descriptor.app_fd.as_raw_fd())
    }

    /// Whether the application's number still refers to this socket.
    pub(crate) fn is_fd_ours(&self) -> bool {
        self.state().descriptor.as_ref().is_some_and(Descriptor::is_fd_ours)
    }

    /// Whether the application has set O_NONBLOCK.
    pub(crate) fn is_nonblocking(&self) -> bool {
        let state = self.state();
        let flags = state.descriptor.as_ref().map(|found| fcntl(&found.own_fd, FcntlArg::F_GETFL));
        flags.is_some_and(|flags| {
            flags.is_ok_and(|flags| OFlag::from_bits_retain(flags).contains(OFlag::O_NONBLOCK))
        })
    }

    pub(crate) fn is_open(&self) -> bool {
        self.state().descriptor.is_some()
    }

    /// Ends all waits, now and later.
    pub(crate) fn close(&self, owns_number: bool) {
        let descriptor = self.state().descriptor.take();
        self.changed.notify_all();
        if let Some(descriptor) = descriptor {
            descriptor.close(owns_number);
        }
    }
}

/// Starts a thread that receives no signals.
///
/// # Errors
/// The system has no thread left.
pub(crate) fn spawn<T: Send + 'static>(
    body: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, Errno> {
    let _guard = WithoutSignals::new();
    std::thread::Builder::new().name("icn".into()).spawn(body).map_err(|_| Errno::EIO)
}

/// Handle to one source of a socket. It wakes the calls that wait for the source.
pub(crate) struct WakeSource {
    readiness: Arc<Readiness>,
    id: u64,
    waker: Waker,
}

/// The result of polling a source, and whether more is available.
pub(crate) struct SourcePoll<T> {
    pub(crate) found: Poll<T>,
    pub(crate) has_more: bool,
}

impl<T> SourcePoll<T> {
    /// A result, without more.
    pub(crate) fn of(found: T) -> Self {
        Self { found: Poll::Ready(found), has_more: false }
    }
}

struct SourceWaker {
    readiness: Arc<Readiness>,
    id: u64,
}

impl Wake for SourceWaker {
    fn wake(self: Arc<Self>) {
        self.readiness.wake(self.id);
    }
}

impl Readiness {
    fn wake(&self, id: u64) {
        let mut state = self.state();
        if let Some(source) = state.sources.get_mut(&id) {
            source.wakes += 1;
            source.is_ready = !source.is_hidden;
        }
        state.update_descriptor();
        drop(state);
        self.changed.notify_all();
    }
}

impl WakeSource {
    pub(crate) fn new(readiness: &Arc<Readiness>) -> Self {
        Self::with(readiness, false)
    }

    /// A source that `poll` ignores.
    pub(crate) fn hidden(readiness: &Arc<Readiness>) -> Self {
        Self::with(readiness, true)
    }

    fn with(readiness: &Arc<Readiness>, is_hidden: bool) -> Self {
        let mut state = readiness.state();
        let id = state.next;
        state.next += 1;
        state.sources.insert(id, Source { is_hidden, ..Source::default() });
        drop(state);
        let waker = Waker::from(Arc::new(SourceWaker { readiness: readiness.clone(), id }));
        Self { readiness: readiness.clone(), id, waker }
    }

    /// Makes all calls that wait for this source poll again.
    pub(crate) fn wake(&self) {
        self.readiness.wake(self.id);
    }

    /// Like [`WakeSource::wake`], if `is_so`.
    pub(crate) fn wake_if(&self, is_so: bool) {
        if is_so {
            self.wake();
        }
    }

    /// Runs a blocking function in a separate thread and waits for it. If the socket is closed
    /// meanwhile, the result is dropped in that thread.
    ///
    /// # Errors
    /// EBADF: the socket was closed. EIO: no thread could be started.
    pub(crate) fn wait_in_thread<T: Send + 'static>(
        &self,
        body: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Errno> {
        let place = Arc::new(Mutex::new(None));
        let (there, waker) = (place.clone(), self.waker.clone());
        let work = move || {
            let done = body();
            *there.lock().unwrap_or_else(PoisonError::into_inner) = Some(done);
            waker.wake();
        };
        drop(spawn(work)?);
        self.wait(true, |_| {
            let done = place.lock().unwrap_or_else(PoisonError::into_inner).take();
            SourcePoll { found: done.map_or(Poll::Pending, Poll::Ready), has_more: false }
        })
    }

    fn source<R>(&self, then: impl FnOnce(&mut Source) -> R) -> Result<R, Errno> {
        let mut state = self.readiness.state();
        if state.descriptor.is_none() {
            return Err(Errno::EBADF);
        }
        let result = state.sources.get_mut(&self.id).map(then);
        state.update_descriptor();
        result.ok_or(Errno::EBADF)
    }

    /// Polls until there is a result, or once if `may_wait` is false.
    ///
    /// # Errors
    /// EBADF: the socket was closed. EAGAIN: no result, and the call must not wait.
    pub(crate) fn wait<T>(
        &self,
        may_wait: bool,
        mut look: impl FnMut(&mut Context<'_>) -> SourcePoll<T>,
    ) -> Result<T, Errno> {
        loop {
            // Read the counter before polling, so that a wake-up during the poll is noticed.
            let wakes = self.source(|source| source.wakes)?;
            let SourcePoll { found, has_more } = look(&mut Context::from_waker(&self.waker));
            // If the source was woken since, its readiness is already set correctly.
            let settled = self.source(|source| {
                if source.wakes == wakes {
                    source.is_ready = has_more && !source.is_hidden;
                }
            });
            // A result counts even if the socket was closed meanwhile.
            if let Poll::Ready(found) = found {
                return Ok(found);
            }
            settled?;
            if !may_wait {
                return Err(Errno::EAGAIN);
            }
            let mut state = self.readiness.state();
            while state.descriptor.is_some()
                && state.sources.get(&self.id).is_some_and(|source| source.wakes == wakes)
            {
                state = self.readiness.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }
}

impl Drop for WakeSource {
    fn drop(&mut self) {
        let mut state = self.readiness.state();
        state.sources.remove(&self.id);
        state.update_descriptor();
    }
}
