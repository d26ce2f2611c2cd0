//! What the agent's threads have in common.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use weir_base::FaceId;
use weir_control::message::SetupProblem;
use weir_runtime::{Contents, LocalPort};
use weir_socket::{Client, ClientError};

/// What is counted.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) reports: AtomicU64,
    pub(crate) questions: AtomicU64,
    pub(crate) questions_left_out: AtomicU64,
}

/// See the module's text.
pub(crate) struct Shared {
    pub(crate) contents: Contents,
    pub(crate) counters: Counters,
    port: LocalPort,
    is_stopping: AtomicBool,
    stopping: (Mutex<()>, Condvar),
    /// The generation of the configuration that is set up, and what of the last one is not.
    setup: Mutex<(u64, Vec<SetupProblem>)>,
    /// Round-trip times to the other ends of faces in nanoseconds, as they are told.
    round_trips: Mutex<BTreeMap<FaceId, u64>>,
    /// The face of the thread that fetches ahead; 0 before there is one.
    pub(crate) prefetch_face: AtomicU64,
}

impl Shared {
    pub(crate) fn new(contents: Contents, port: LocalPort) -> Self {
        Self {
            contents,
            counters: Counters::default(),
            port,
            is_stopping: AtomicBool::new(false),
            stopping: Default::default(),
            setup: Mutex::default(),
            round_trips: Mutex::default(),
            prefetch_face: AtomicU64::new(0),
        }
    }

    /// What is set up now: the generation, if all of a configuration is, and what is wrong.
    pub(crate) fn set_up(&self, generation: Option<u64>, problems: Vec<SetupProblem>) {
        let mut setup = self.setup.lock().unwrap_or_else(PoisonError::into_inner);
        *setup = (generation.unwrap_or(setup.0), problems);
    }

    /// The generation that is set up, and what is wrong.
    pub(crate) fn setup(&self) -> (u64, Vec<SetupProblem>) {
        self.setup.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Round-trip times are these now.
    pub(crate) fn set_round_trips(&self, round_trips: BTreeMap<FaceId, u64>) {
        *self.round_trips.lock().unwrap_or_else(PoisonError::into_inner) = round_trips;
    }

    /// Round-trip times to the other ends of faces in nanoseconds, as far as they are known.
    pub(crate) fn round_trips(&self) -> BTreeMap<FaceId, u64> {
        self.round_trips.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether a face leads to another router, as far as is known: to one that answers as routers
    /// do.
    pub(crate) fn is_router(&self, face: FaceId) -> bool {
        self.round_trips.lock().unwrap_or_else(PoisonError::into_inner).contains_key(&face)
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
