//! What the agent's threads have in common.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use weir_base::FaceId;
use weir_runtime::{Contents, LocalPort};
use weir_socket::{Client, ClientError};

/// See the module's text.
pub(crate) struct Shared {
    pub(crate) contents: Contents,
    port: LocalPort,
    is_stopping: AtomicBool,
    stopping: (Mutex<()>, Condvar),
    /// The generation of the configuration that is set up.
    pub(crate) generation: AtomicU64,
    /// The face of the thread that fetches ahead; 0 before there is one.
    pub(crate) prefetch_face: AtomicU64,
}

impl Shared {
    pub(crate) fn new(contents: Contents, port: LocalPort) -> Self {
        Self {
            contents,
            port,
            is_stopping: AtomicBool::new(false),
            stopping: Default::default(),
            generation: AtomicU64::new(0),
            prefetch_face: AtomicU64::new(0),
        }
    }

    /// Ends all waits.
    pub(crate) fn stop(&self) {
        self.is_stopping.store(true, Ordering::Relaxed);
        let (lock, changed) = &self.stopping;
        drop(lock.lock().unwrap_or_else(PoisonError::into_inner));
        changed.notify_all();
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Relaxed)
    }

    /// Waits; says whether to go on.
    pub(crate) fn pause(&self, pause: Duration) -> bool {
        let until = Instant::now() + pause;
        let (lock, changed) = &self.stopping;
        let mut guard = lock.lock().unwrap_or_else(PoisonError::into_inner);
        while !self.is_stopping() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            guard = changed.wait_timeout(guard, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        !self.is_stopping()
    }

    /// An application's connection to the router.
    pub(crate) fn connect(&self) -> Result<Client, ClientError> {
        Client::over_pair(self.port.connect()?)
    }

    /// Whether a face leads to a thread of this agent.
    pub(crate) fn is_own(&self, face: FaceId) -> bool {
        face.0 == self.prefetch_face.load(Ordering::Relaxed)
    }
}
