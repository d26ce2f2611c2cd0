//! An answer that another thread gives, once.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use weir_wire::Name;

use super::SocketError;

enum State<T> {
    Open(Option<Waker>),
    Given(Result<T, SocketError>),
    Taken,
}

struct Shared<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
}

impl<T> Shared<T> {
    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An answer that is under way: a future, and something to [wait](Pending::wait) for without one.
/// Whoever drops it does not want to know.
#[must_use = "the answer is not waited for"]
pub struct Pending<T>(Arc<Shared<T>>);

/// Where the answer goes. Dropped, it answers that the session is closed.
pub(crate) struct Answer<T>(Option<Arc<Shared<T>>>);

/// Both ends.
pub(crate) fn pending<T>() -> (Answer<T>, Pending<T>) {
    let state = Mutex::new(State::Open(None));
    let shared = Arc::new(Shared { state, changed: Condvar::new() });
    (Answer(Some(shared.clone())), Pending(shared))
}

impl<T> Pending<T> {
    /// Waits for the answer.
    ///
    /// # Errors
    /// What the answer is.
    pub fn wait(self) -> Result<T, SocketError> {
        self.wait_again()
    }

    /// As [`Pending::wait`]; a second time it finds it closed.
    pub(crate) fn wait_again(&self) -> Result<T, SocketError> {
        let mut state = self.0.state();
        loop {
            match std::mem::replace(&mut *state, State::Taken) {
                State::Given(answer) => return answer,
                State::Taken => return Err(SocketError::Closed),
                open @ State::Open(_) => *state = open,
            }
            state = self.0.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl<T> Future for Pending<T> {
    type Output = Result<T, SocketError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.0.state();
        match std::mem::replace(&mut *state, State::Taken) {
            State::Given(answer) => Poll::Ready(answer),
            State::Taken => Poll::Ready(Err(SocketError::Closed)),
            State::Open(_) => {
                *state = State::Open(Some(context.waker().clone()));
                Poll::Pending
            }
        }
    }
}

impl<T> Answer<T> {
    /// Whether somebody waits for it still.
    pub(crate) fn is_wanted(&self) -> bool {
        self.0.as_ref().is_some_and(|shared| Arc::strong_count(shared) > 1)
    }

    pub(crate) fn give(mut self, answer: Result<T, SocketError>) {
        self.put(answer);
    }

    fn put(&mut self, answer: Result<T, SocketError>) {
        let Some(shared) = self.0.take() else { return };
        let before = std::mem::replace(&mut *shared.state(), State::Given(answer));
        shared.changed.notify_one();
        if let State::Open(Some(waker)) = before {
            waker.wake();
        }
    }
}

impl<T> Drop for Answer<T> {
    fn drop(&mut self) {
        self.put(Err(SocketError::Closed));
    }
}

/// Whom it is confirmed to that something is published.
pub(crate) enum Confirmation {
    /// Somebody who knows what it is.
    Known(Answer<()>),
    /// As [`Confirmation::Known`], and its octets were under way until now.
    Counted(Answer<()>, UnderWay),
    /// Somebody who wants to know its name.
    Named(Answer<Name>, Name),
}

/// Octets of a sum of those that are under way, until it is dropped.
pub(crate) struct UnderWay {
    sum: Arc<AtomicU64>,
    octets: u64,
}

impl UnderWay {
    pub(crate) fn new(sum: &Arc<AtomicU64>, octets: u64) -> Self {
        sum.fetch_add(octets, Ordering::Relaxed);
        Self { sum: sum.clone(), octets }
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.sum.fetch_sub(self.octets, Ordering::Relaxed);
    }
}

impl From<Answer<()>> for Confirmation {
    fn from(answer: Answer<()>) -> Self {
        Self::Known(answer)
    }
}

impl Confirmation {
    /// Says so.
    pub(crate) fn give(self) {
        match self {
            Self::Known(answer) => answer.give(Ok(())),
            Self::Counted(answer, under_way) => {
                // Who has the answer may append again.
                drop(under_way);
                answer.give(Ok(()));
            }
            Self::Named(answer, name) => answer.give(Ok(name)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_come_from_other_threads_and_none_is_an_answer_too() {
        let (answer, pending) = super::pending();
        let thread = std::thread::spawn(move || pending.wait());
        answer.give(Ok(7));
        assert_eq!(thread.join().unwrap(), Ok(7));
        let (answer, pending) = super::pending::<u8>();
        assert!(answer.is_wanted());
        drop(answer);
        assert_eq!(pending.wait(), Err(SocketError::Closed));
        let (answer, pending) = super::pending::<u8>();
        drop(pending);
        assert!(!answer.is_wanted());
    }
}
