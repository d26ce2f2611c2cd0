//! A result that another thread delivers, once.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use weir_wire::Name;

use super::SocketError;

enum PendingState<T> {
    Open(Option<Waker>),
    Completed(Result<T, SocketError>),
    Taken,
}

struct PendingShared<T> {
    state: Mutex<PendingState<T>>,
    changed: Condvar,
}

impl<T> PendingShared<T> {
    fn state(&self) -> MutexGuard<'_, PendingState<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A pending result: a future, which can also be [waited](Pending::wait) for without an executor.
/// Drop it if the result does not matter.
#[must_use = "the result is pending; wait for it or drop it"]
pub struct Pending<T>(Arc<PendingShared<T>>);

/// Delivers the result. If it is dropped, the result is that the session is closed.
pub(crate) struct Completer<T>(Option<Arc<PendingShared<T>>>);

/// Both ends.
pub(crate) fn pending<T>() -> (Completer<T>, Pending<T>) {
    let state = Mutex::new(PendingState::Open(None));
    let shared = Arc::new(PendingShared { state, changed: Condvar::new() });
    (Completer(Some(shared.clone())), Pending(shared))
}

impl<T> Pending<T> {
    /// Waits for the result.
    ///
    /// # Errors
    /// The error in the result.
    pub fn wait(self) -> Result<T, SocketError> {
        self.wait_again()
    }

    /// As [`Pending::wait`]. A second call returns `Closed`.
    pub(crate) fn wait_again(&self) -> Result<T, SocketError> {
        let mut state = self.0.state();
        loop {
            match std::mem::replace(&mut *state, PendingState::Taken) {
                PendingState::Completed(answer) => return answer,
                PendingState::Taken => return Err(SocketError::Closed),
                open @ PendingState::Open(_) => *state = open,
            }
            state = self.0.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl<T> Future for Pending<T> {
    type Output = Result<T, SocketError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.0.state();
        match std::mem::replace(&mut *state, PendingState::Taken) {
            PendingState::Completed(answer) => Poll::Ready(answer),
            PendingState::Taken => Poll::Ready(Err(SocketError::Closed)),
            PendingState::Open(_) => {
                *state = PendingState::Open(Some(context.waker().clone()));
                Poll::Pending
            }
        }
    }
}

impl<T> Completer<T> {
    /// Whether the result is still wanted.
    pub(crate) fn has_receiver(&self) -> bool {
        self.0.as_ref().is_some_and(|shared| Arc::strong_count(shared) > 1)
    }

    pub(crate) fn complete(mut self, answer: Result<T, SocketError>) {
        self.set_result(answer);
    }

    fn set_result(&mut self, answer: Result<T, SocketError>) {
        let Some(shared) = self.0.take() else { return };
        let before = std::mem::replace(&mut *shared.state(), PendingState::Completed(answer));
        shared.changed.notify_one();
        if let PendingState::Open(Some(waker)) = before {
            waker.wake();
        }
    }
}

impl<T> Drop for Completer<T> {
    fn drop(&mut self) {
        self.set_result(Err(SocketError::Closed));
    }
}

/// Who is notified that something is published, and with what.
pub(crate) enum PublishConfirmation {
    /// A caller that knows what it published.
    Published(Completer<()>),
    /// As [`PublishConfirmation::Published`]; its bytes were pending until now.
    PublishedBytes(Completer<()>, PendingBytes),
    /// A caller that needs the name.
    PublishedName(Completer<Name>, Name),
}

/// Bytes in a sum of pending bytes, subtracted on drop.
pub(crate) struct PendingBytes {
    total: Arc<AtomicU64>,
    octets: u64,
}

impl PendingBytes {
    pub(crate) fn new(sum: &Arc<AtomicU64>, octets: u64) -> Self {
        sum.fetch_add(octets, Ordering::Relaxed);
        Self { total: sum.clone(), octets }
    }
}

impl Drop for PendingBytes {
    fn drop(&mut self) {
        self.total.fetch_sub(self.octets, Ordering::Relaxed);
    }
}

impl From<Completer<()>> for PublishConfirmation {
    fn from(answer: Completer<()>) -> Self {
        Self::Published(answer)
    }
}

impl PublishConfirmation {
    /// Delivers the confirmation.
    pub(crate) fn confirm(self) {
        match self {
            Self::Published(answer) => answer.complete(Ok(())),
            Self::PublishedBytes(answer, under_way) => {
                // A caller that has the result may append again.
                drop(under_way);
                answer.complete(Ok(()));
            }
            Self::PublishedName(answer, name) => answer.complete(Ok(name)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn completes_from_other_threads() {
        let (answer, pending) = super::pending();
        let thread = std::thread::spawn(move || pending.wait());
        answer.complete(Ok(7));
        assert_eq!(thread.join().unwrap(), Ok(7));
        let (answer, pending) = super::pending::<u8>();
        assert!(answer.has_receiver());
        drop(answer);
        assert_eq!(pending.wait(), Err(SocketError::Closed));
        let (answer, pending) = super::pending::<u8>();
        drop(pending);
        assert!(!answer.has_receiver());
    }
}
