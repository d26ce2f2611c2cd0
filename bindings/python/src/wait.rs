//! Waiting: in a thread with the GIL released, or in an event loop that watches a descriptor.
//!
//! Network threads never call into Python. They unpark a thread, or write to an eventfd.

use std::os::fd::{AsRawFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use nix::sys::eventfd::{EfdFlags, EventFd};
use pyo3::prelude::*;

use crate::errors;
use crate::process_local::ProcessLocal;

/// Maximum delay until a waiting thread notices Ctrl-C.
const SIGNALS: Duration = Duration::from_millis(50);

struct Unpark(std::thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Waits with the GIL released. Lets signal handlers run meanwhile.
///
/// # Errors
/// An exception of a signal handler, such as KeyboardInterrupt, or a timeout.
pub(crate) fn block_on<T: Send>(
    py: Python<'_>,
    timeout: Option<Duration>,
    mut poll: impl FnMut(&mut Context<'_>) -> Poll<T> + Send,
) -> PyResult<T> {
    let until = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    loop {
        let found = py.detach(|| {
            // Return to Python regularly, so that it can run signal handlers.
            let tick = Instant::now() + SIGNALS;
            loop {
                if let Poll::Ready(found) = poll(&mut Context::from_waker(&waker)) {
                    return Some(found);
                }
                let end = until.map_or(tick, |until| until.min(tick));
                match end.checked_duration_since(Instant::now()) {
                    Some(left) if !left.is_zero() => std::thread::park_timeout(left),
                    _ => return None,
                }
            }
        });
        if let Some(found) = found {
            return Ok(found);
        }
        py.check_signals()?;
        if until.is_some_and(|until| until <= Instant::now()) {
            let timeout = timeout.unwrap_or_default();
            return Err(errors::raise(
                "TimedOut",
                format!("no result within {timeout:?}; give a longer timeout"),
            ));
        }
    }
}

/// Converts a timeout in seconds.
///
/// # Errors
/// The value is not a valid time.
pub(crate) fn timeout_of(seconds: Option<f64>) -> PyResult<Option<Duration>> {
    let Some(seconds) = seconds else { return Ok(None) };
    match Duration::try_from_secs_f64(seconds) {
        Ok(timeout) => Ok(Some(timeout)),
        Err(_) if seconds == f64::INFINITY => Ok(None),
        Err(_) => Err(errors::raise("OptionError", format!("timeout: {seconds} is invalid"))),
    }
}

struct PendingTokens {
    event: EventFd,
    tokens: Mutex<Vec<u64>>,
}

impl PendingTokens {
    fn tokens(&self) -> MutexGuard<'_, Vec<u64>> {
        self.tokens.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct TokenWaker {
    pending: Arc<PendingTokens>,
    token: u64,
}

impl Wake for TokenWaker {
    fn wake(self: Arc<Self>) {
        let mut tokens = self.pending.tokens();
        let is_first = tokens.is_empty();
        tokens.push(self.token);
        drop(tokens);
        // One write announces all tokens until the event loop takes them.
        if is_first {
            // Fails only after 2^64 wake-ups.
            let _ = self.pending.event.write(1);
        }
    }
}

/// A descriptor that becomes readable when tasks of an event loop may have results.
#[pyclass(frozen, module = "weir._weir")]
pub(crate) struct Notifier(ProcessLocal<Arc<PendingTokens>>);

const WHAT: &str = "the event loop";

#[pymethods]
impl Notifier {
    #[new]
    fn new() -> PyResult<Self> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let event = EventFd::from_flags(flags).map_err(std::io::Error::from)?;
        Ok(Self(ProcessLocal::new(Arc::new(PendingTokens { event, tokens: Mutex::default() }))))
    }

    /// The descriptor.
    fn fileno(&self) -> PyResult<RawFd> {
        Ok(self.0.get_or_raise(WHAT)?.event.as_raw_fd())
    }

    /// Takes the tokens of tasks that must poll again.
    fn take(&self) -> PyResult<Vec<u64>> {
        let pending = self.0.get_or_raise(WHAT)?;
        let mut tokens = pending.tokens();
        // Reading fails if the eventfd is empty, because no task was woken.
        let _ = pending.event.read();
        Ok(std::mem::take(&mut *tokens))
    }
}

impl Notifier {
    /// A waker that adds the token and makes the descriptor readable.
    ///
    /// # Errors
    /// The notifier was created before a fork.
    pub(crate) fn waker(&self, token: u64) -> PyResult<Waker> {
        let pending = self.0.get_or_raise(WHAT)?.clone();
        Ok(Waker::from(Arc::new(TokenWaker { pending, token })))
    }
}
