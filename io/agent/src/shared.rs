//! State that the agent's threads share.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use weir_base::FaceId;
use weir_client::{Client, ClientError};
use weir_control::message::SetupProblem;
use weir_runtime::{Contents, LocalPort};

/// Milliseconds since 1970 by the system clock.
pub(crate) fn unix_time_ms() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) reports: AtomicU64,
    pub(crate) questions: AtomicU64,
    pub(crate) questions_left_out: AtomicU64,
}

/// Lets threads wait for a time, for the end of the agent, or for a report that the controller
/// accepts after an outage.
#[derive(Debug, Default)]
pub(crate) struct WakePoint {
    is_stopping: AtomicBool,
    /// How often the controller has accepted a report after it did not know this router.
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

    /// Waits until the controller accepts a report again, at most for `pause`. `before` is the
    /// value of `reconnects` before. Returns whether the thread continues, and whether the
    /// controller has accepted one.
    pub(crate) fn pause_until_reconnect(&self, pause: Duration, before: u64) -> (bool, bool) {
        let continues = self.pause(pause, || self.reconnects() != before);
        (continues, self.reconnects() != before)
    }

    /// Waits, unless `is_over` returns true. Returns whether the thread continues.
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
        // Without the lock, a thread between its check and its wait would miss the notification.
        drop(self.lock.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.notify_all();
    }
}

/// State that the agent's threads share.
pub(crate) struct AgentShared {
    pub(crate) contents: Contents,
    pub(crate) counters: Counters,
    port: LocalPort,
    wake_point: WakePoint,
    /// The generation that is set up, and the problems of the last configuration.
    setup: Mutex<(u64, Vec<SetupProblem>)>,
    /// Routes of the present configuration that exceed `routes_max`.
    routes_left_out: AtomicU64,
    /// When a controller last sent or confirmed the present configuration, in milliseconds since
    /// 1970; 0 without one.
    confirmed_ms: AtomicU64,
    /// When a controller last accepted a report, in milliseconds since 1970; 0 before the first.
    reported_ms: AtomicU64,
    /// Another router has this router's name at the controller. So the controller's configurations
    /// for the name are for that router.
    is_name_refused: AtomicBool,
    /// Reported round-trip times of faces in nanoseconds.
    round_trips: Mutex<BTreeMap<FaceId, u64>>,
    /// The face of the prefetching thread; 0 before it has one.
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
            reported_ms: AtomicU64::new(0),
            is_name_refused: AtomicBool::new(false),
            round_trips: Mutex::default(),
            prefetch_face: AtomicU64::new(0),
        }
    }

    /// Records the generation, if a configuration is set up completely, and the problems.
    pub(crate) fn record_setup(&self, generation: Option<u64>, problems: Vec<SetupProblem>) {
        let mut setup = self.setup.lock().unwrap_or_else(PoisonError::into_inner);
        *setup = (generation.unwrap_or(setup.0), problems);
    }

    /// The generation that is set up, and the problems.
    pub(crate) fn setup(&self) -> (u64, Vec<SetupProblem>) {
        self.setup.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set_routes_left_out(&self, routes: usize) {
        self.routes_left_out.store(routes as u64, Ordering::Relaxed);
    }

    pub(crate) fn routes_left_out(&self) -> u64 {
        self.routes_left_out.load(Ordering::Relaxed)
    }

    /// Records when a controller has sent or confirmed the present configuration.
    pub(crate) fn note_confirmed(&self, at_ms: u64) {
        self.confirmed_ms.store(at_ms, Ordering::Relaxed);
    }

    /// The same time; none without a configuration.
    pub(crate) fn confirmed_ms(&self) -> Option<u64> {
        Some(self.confirmed_ms.load(Ordering::Relaxed)).filter(|at_ms| *at_ms > 0)
    }

    /// Records when a controller has accepted a report.
    pub(crate) fn note_reported(&self, at_ms: u64) {
        self.reported_ms.store(at_ms, Ordering::Relaxed);
    }

    /// When a controller last accepted a report, if one ever did.
    pub(crate) fn reported_ms(&self) -> Option<u64> {
        Some(self.reported_ms.load(Ordering::Relaxed)).filter(|at_ms| *at_ms > 0)
    }

    /// Seconds since the configuration was confirmed; none without one.
    pub(crate) fn configuration_age_s(&self) -> Option<u64> {
        let confirmed_ms = self.confirmed_ms()?;
        Some(unix_time_ms().saturating_sub(confirmed_ms) / 1000)
    }

    /// Records whether the controller refuses this router because another one has its name.
    pub(crate) fn set_name_refused(&self, is_refused: bool) {
        self.is_name_refused.store(is_refused, Ordering::Relaxed);
    }

    /// Whether the controller refuses this router because another one has its name.
    pub(crate) fn is_name_refused(&self) -> bool {
        self.is_name_refused.load(Ordering::Relaxed)
    }

    pub(crate) fn set_round_trips(&self, round_trips: BTreeMap<FaceId, u64>) {
        *self.round_trips.lock().unwrap_or_else(PoisonError::into_inner) = round_trips;
    }

    /// Known round-trip times of faces in nanoseconds.
    pub(crate) fn round_trips(&self) -> BTreeMap<FaceId, u64> {
        self.round_trips.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether a face leads to another router, because it answers round-trip probes.
    pub(crate) fn is_router(&self, face: FaceId) -> bool {
        self.round_trips.lock().unwrap_or_else(PoisonError::into_inner).contains_key(&face)
    }

    pub(crate) fn wake_point(&self) -> &WakePoint {
        &self.wake_point
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.wake_point.is_stopping()
    }

    /// Waits. Returns whether the thread continues.
    pub(crate) fn pause(&self, pause: Duration) -> bool {
        self.wake_point.pause(pause, || false)
    }

    /// An application's connection to the router.
    pub(crate) fn connect(&self) -> Result<Client, ClientError> {
        Client::from_socket_pair(self.port.connect()?)
    }

    /// Whether a face belongs to this agent.
    pub(crate) fn is_own(&self, face: FaceId) -> bool {
        face.0 == self.prefetch_face.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// While the controller does not know this router, requests for a configuration wait longer and
    /// longer. A successful report must end such a wait.
    #[test]
    fn reconnect_or_stop_ends_a_wait() {
        const LONG: Duration = Duration::from_secs(60);
        let waits = WakePoint::default();
        let before = waits.reconnects();
        let waited = std::thread::scope(|scope| {
            let waiter = scope.spawn(|| waits.pause_until_reconnect(LONG, before));
            waits.note_reconnect();
            waiter.join().unwrap()
        });
        assert_eq!(waited, (true, true));
        // A reconnection before the call counts as well.
        assert_eq!(waits.pause_until_reconnect(LONG, before), (true, true));
        let before = waits.reconnects();
        assert_eq!(waits.pause_until_reconnect(Duration::ZERO, before), (true, false));
        let waited = std::thread::scope(|scope| {
            let waiter = scope.spawn(|| waits.pause_until_reconnect(LONG, before));
            waits.stop();
            waiter.join().unwrap()
        });
        assert_eq!(waited, (false, false));
    }
}
