//! What the agent's threads have in common.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use weir_base::FaceId;
use weir_client::{Client, ClientError};
use weir_control::message::SetupProblem;
use weir_runtime::{Contents, LocalPort};

/// Milliseconds since 1970, by the system's clock.
pub(crate) fn unix_time_ms() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// What is counted.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) reports: AtomicU64,
    pub(crate) questions: AtomicU64,
    pub(crate) questions_left_out: AtomicU64,
}

/// What threads wait for beside the time.
#[derive(Debug, Default)]
pub(crate) struct WakePoint {
    is_stopping: AtomicBool,
    /// How often the controller has heard of this router after a time in which it had not.
    reconnects: AtomicU64,
    lock: Mutex<()>,
    changed: Condvar,
}

impl WakePoint {
    pub(crate) fn stop(&self) {
        self.is_stopping.store(true, Ordering::Relaxed);
        self.wake();
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Relaxed)
    }

    /// The controller knows this router from now on.
    pub(crate) fn note_reconnect(&self) {
        self.reconnects.fetch_add(1, Ordering::Relaxed);
        self.wake();
    }

    /// See [`WakePoint::pause_until_reconnect`].
    pub(crate) fn reconnects(&self) -> u64 {
        self.reconnects.load(Ordering::Relaxed)
    }

    /// Waits until the controller hears of this router again, but no longer than `pause`. Says
    /// whether to go on, and whether it has, since `reconnects` was what it said.
    pub(crate) fn pause_until_reconnect(&self, pause: Duration, heard: u64) -> (bool, bool) {
        let goes_on = self.pause(pause, || self.reconnects() != heard);
        (goes_on, self.reconnects() != heard)
    }

    /// Waits, unless it is over; says whether to go on.
    fn pause(&self, pause: Duration, is_over: impl Fn() -> bool) -> bool {
        let until = Instant::now() + pause;
        let mut guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        while !self.is_stopping() && !is_over() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let waited = self.changed.wait_timeout(guard, left);
            guard = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        !self.is_stopping()
    }

    fn wake(&self) {
        drop(self.lock.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.notify_all();
    }
}

pub(crate) struct AgentShared {
    pub(crate) contents: Contents,
    pub(crate) counters: Counters,
    port: LocalPort,
    wake_point: WakePoint,
    /// The generation of the configuration that is set up, and what of the last one is not.
    setup: Mutex<(u64, Vec<SetupProblem>)>,
    /// Routes of the present configuration that are left out, beyond the bound.
    routes_left_out: AtomicU64,
    /// When a controller last gave the present configuration or said that it holds, in milliseconds
    /// since 1970; 0: there is none.
    confirmed_ms: AtomicU64,
    /// Another router has this one's name at the controller: what that has for the name is not for
    /// this one.
    is_name_refused: AtomicBool,
    /// Round-trip times to the other ends of faces in nanoseconds, as they are told.
    round_trips: Mutex<BTreeMap<FaceId, u64>>,
    /// The face of the thread that fetches ahead; 0 before there is one.
    pub(crate) prefetch_face: AtomicU64,
}

impl AgentShared {
    pub(crate) fn new(contents: Contents, port: LocalPort) -> Self {
        Self {
            contents,
            counters: Counters::default(),
            port,
            wake_point: WakePoint::default(),
            setup: Mutex::default(),
            routes_left_out: AtomicU64::new(0),
            confirmed_ms: AtomicU64::new(0),
            is_name_refused: AtomicBool::new(false),
            round_trips: Mutex::default(),
            prefetch_face: AtomicU64::new(0),
        }
    }

    /// What is set up now: the generation, if all of a configuration is, and what is wrong.
    pub(crate) fn record_setup(&self, generation: Option<u64>, problems: Vec<SetupProblem>) {
        let mut setup = self.setup.lock().unwrap_or_else(PoisonError::into_inner);
        *setup = (generation.unwrap_or(setup.0), problems);
    }

    /// The generation that is set up, and what is wrong.
    pub(crate) fn setup(&self) -> (u64, Vec<SetupProblem>) {
        self.setup.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// So many routes of the present configuration are left out.
    pub(crate) fn set_routes_left_out(&self, routes: usize) {
        self.routes_left_out.store(routes as u64, Ordering::Relaxed);
    }

    pub(crate) fn routes_left_out(&self) -> u64 {
        self.routes_left_out.load(Ordering::Relaxed)
    }

    /// A controller stood by the present configuration then.
    pub(crate) fn note_confirmed(&self, at_ms: u64) {
        self.confirmed_ms.store(at_ms, Ordering::Relaxed);
    }

    /// Seconds since then; nothing without a configuration.
    pub(crate) fn configuration_age_s(&self) -> Option<u64> {
        let confirmed_ms = self.confirmed_ms.load(Ordering::Relaxed);
        (confirmed_ms > 0).then(|| unix_time_ms().saturating_sub(confirmed_ms) / 1000)
    }

    /// Whether another router has this one's name, as the controller says.
    pub(crate) fn set_name_refused(&self, is_refused: bool) {
        self.is_name_refused.store(is_refused, Ordering::Relaxed);
    }

    /// See there.
    pub(crate) fn is_name_refused(&self) -> bool {
        self.is_name_refused.load(Ordering::Relaxed)
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

    pub(crate) fn wake_point(&self) -> &WakePoint {
        &self.wake_point
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.wake_point.is_stopping()
    }

    /// Waits; says whether to go on.
    pub(crate) fn pause(&self, pause: Duration) -> bool {
        self.wake_point.pause(pause, || false)
    }

    /// An application's connection to the router.
    pub(crate) fn connect(&self) -> Result<Client, ClientError> {
        Client::from_socket_pair(self.port.connect()?)
    }

    /// Whether a face leads to a thread of this agent.
    pub(crate) fn is_own(&self, face: FaceId) -> bool {
        face.0 == self.prefetch_face.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Who asks for a configuration waits longer and longer while the controller does not know this
    /// router, and is not to go on waiting when it does.
    #[test]
    fn reconnect_or_stop_ends_a_wait() {
        const LONG: Duration = Duration::from_secs(60);
        let waits = WakePoint::default();
        let heard = waits.reconnects();
        let waited = std::thread::scope(|scope| {
            let waiter = scope.spawn(|| waits.pause_until_reconnect(LONG, heard));
            waits.note_reconnect();
            waiter.join().unwrap()
        });
        assert_eq!(waited, (true, true));
        // Also if that was just before.
        assert_eq!(waits.pause_until_reconnect(LONG, heard), (true, true));
        let heard = waits.reconnects();
        assert_eq!(waits.pause_until_reconnect(Duration::ZERO, heard), (true, false));
        let waited = std::thread::scope(|scope| {
            let waiter = scope.spawn(|| waits.pause_until_reconnect(LONG, heard));
            waits.stop();
            waiter.join().unwrap()
        });
        assert_eq!(waited, (false, false));
    }
}
