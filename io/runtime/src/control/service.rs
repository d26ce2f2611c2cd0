//! Notifications for systemd (sd_notify(3)): the status line, reloads, and the watchdog.
//!
//! The watchdog of systemd restarts a router that does not respond. The control thread feeds it,
//! but only while every worker thread has made a round since the last time. So a router whose
//! packets are stuck in one thread is restarted, although its other threads run.

use std::collections::BTreeSet;

use crossbeam_channel::{Receiver, Sender};
use sd_notify::NotifyState;
use weir_base::{Instant, NS_PER_S};

use super::workers::Workers;
use crate::message::ToWorker;

/// How often the status line is computed.
const STATUS_INTERVAL_NS: u64 = 5 * NS_PER_S;
/// The longest reason in the status line, in characters.
const REASON_CHARS_MAX: usize = 200;

/// What the status line shows.
pub(super) struct ServiceStatus {
    pub(super) faces: usize,
    pub(super) routes: usize,
    pub(super) store_bytes: u64,
}

/// The connection to the service manager. Without one, it does nothing.
pub(super) struct Service {
    is_on: bool,
    /// The outcome of the last reload.
    last_reload: Option<String>,
    sent: String,
    status_at: Instant,
    watchdog: Option<Watchdog>,
}

impl Service {
    pub(super) fn new(now: Instant, workers: &Workers) -> Self {
        let is_on = std::env::var_os("NOTIFY_SOCKET").is_some();
        let timeout = sd_notify::watchdog_enabled().filter(|_| is_on);
        let watchdog =
            timeout.map(|timeout| Watchdog::new(now, timeout.as_nanos() as u64 / 2, workers));
        Self { is_on, last_reload: None, sent: String::new(), status_at: now, watchdog }
    }

    pub(super) fn next_wakeup(&self) -> Option<Instant> {
        let status = self.is_on.then_some(self.status_at);
        self.watchdog.as_ref().map(|watchdog| watchdog.look_at).into_iter().chain(status).min()
    }

    /// A reload begins. systemd waits for the end of it.
    pub(super) fn begin_reload(&self) {
        let Ok(time) = NotifyState::monotonic_usec_now() else { return };
        self.notify(&[NotifyState::Reloading, time]);
    }

    /// A reload has ended.
    pub(super) fn end_reload(&mut self, outcome: &Result<String, String>, status: &ServiceStatus) {
        self.last_reload = Some(match outcome {
            Ok(summary) => format!("last reload: {}", one_line(summary)),
            Err(refusal) => format!("last reload refused: {}", one_line(refusal)),
        });
        self.sent = self.line(status);
        self.notify(&[NotifyState::Ready, NotifyState::Status(&self.sent)]);
    }

    /// Sends the status line if it has changed, and feeds the watchdog.
    pub(super) fn run_timers(
        &mut self,
        now: Instant,
        workers: &Workers,
        status: impl FnOnce() -> ServiceStatus,
    ) {
        if self.watchdog.as_mut().is_some_and(|watchdog| watchdog.look(now, workers)) {
            self.notify(&[NotifyState::Watchdog]);
        }
        if !self.is_on || self.status_at > now {
            return;
        }
        self.status_at = now.plus_ns(STATUS_INTERVAL_NS);
        let line = self.line(&status());
        if line != self.sent {
            self.notify(&[NotifyState::Status(&line)]);
            self.sent = line;
        }
    }

    fn line(&self, status: &ServiceStatus) -> String {
        let ServiceStatus { faces, routes, store_bytes } = status;
        let mut line = format!("{faces} faces, {routes} routes, store {} MiB", store_bytes >> 20);
        if let Some(outcome) = &self.last_reload {
            line.push_str("; ");
            line.push_str(outcome);
        }
        line
    }

    /// The service manager may be gone, which is no reason to stop.
    fn notify(&self, states: &[NotifyState<'_>]) {
        if self.is_on {
            let _ = sd_notify::notify(states);
        }
    }
}

/// The first words of a text, without line breaks.
fn one_line(text: &str) -> String {
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    words.chars().take(REASON_CHARS_MAX).collect()
}

/// Decides when systemd's watchdog is fed.
struct Watchdog {
    /// Half of systemd's timeout.
    interval_ns: u64,
    look_at: Instant,
    pulses: (Sender<u16>, Receiver<u16>),
    /// The worker threads that have answered the last round of pulses.
    alive: BTreeSet<u16>,
}

impl Watchdog {
    fn new(now: Instant, interval_ns: u64, workers: &Workers) -> Self {
        let pulses = crossbeam_channel::unbounded();
        let watchdog =
            Self { interval_ns, look_at: now.plus_ns(interval_ns), pulses, alive: BTreeSet::new() };
        watchdog.send_pulses(workers);
        watchdog
    }

    fn send_pulses(&self, workers: &Workers) {
        workers.send_all(|| ToWorker::Pulse(self.pulses.0.clone()));
    }

    /// Whether all worker threads have made a round since the last time. Then the next round of
    /// pulses begins. A thread that is late gets no further pulses, so its queue does not grow.
    fn look(&mut self, now: Instant, workers: &Workers) -> bool {
        if self.look_at > now {
            return false;
        }
        self.alive.extend(self.pulses.1.try_iter());
        if self.alive.len() < usize::from(workers.count()) {
            // It may be late only once: look again soon.
            self.look_at = now.plus_ns(self.interval_ns / 4);
            return false;
        }
        self.alive.clear();
        self.look_at = now.plus_ns(self.interval_ns);
        self.send_pulses(workers);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers pulses as a worker thread does.
    fn answer(commands: &Receiver<ToWorker>, worker: u16) -> usize {
        let pulses: Vec<_> = commands.try_iter().collect();
        for pulse in &pulses {
            let ToWorker::Pulse(answer) = pulse else { panic!("{pulse:?}") };
            answer.send(worker).unwrap();
        }
        pulses.len()
    }

    #[test]
    fn stuck_worker_starves_the_watchdog() {
        let (workers, receivers) = Workers::fixture();
        let at = |s: u64| Instant::ZERO.plus_ns(s * NS_PER_S);
        let mut watchdog = Watchdog::new(at(0), 4 * NS_PER_S, &workers);
        for round in 1..4 {
            assert!(!watchdog.look(at(4 * round - 1), &workers), "too early");
            assert_eq!((answer(&receivers[0], 0), answer(&receivers[1], 1)), (1, 1));
            assert!(watchdog.look(at(4 * round), &workers));
        }
        // The second thread is stuck from now on.
        for second in 13..60 {
            answer(&receivers[0], 0);
            assert!(!watchdog.look(at(second), &workers));
        }
        // Once it responds, the watchdog is fed again. It has got one pulse in all that time.
        assert_eq!(answer(&receivers[1], 1), 1);
        assert!(watchdog.look(at(60), &workers));
    }

    #[test]
    fn status_is_one_short_line() {
        let refusal = format!("weir.toml: line 3:\n  |\n3 | {}", "x".repeat(1000));
        let line = one_line(&refusal);
        assert!(line.starts_with("weir.toml: line 3: | 3 | xxx"), "{line}");
        assert_eq!(line.len(), REASON_CHARS_MAX);
    }
}
