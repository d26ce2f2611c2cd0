//! Resolves host names and connects, outside of all long-lived threads. Each attempt has a thread
//! of its own, and the number of attempts is limited.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use weir_base::{Backoff, Instant, NS_PER_S};
use weir_face::{Connected, FaceUri, TlsTrust};

use crate::mailbox::ControlSender;
use crate::message::{ConnectOutcome, ConnectPurpose, ToControl};

/// Timeout of a TCP connection attempt (NFD: 4 s).
const CONNECT_TIMEOUT: Duration = Duration::from_secs(4);
/// Delays between connection attempts.
pub(super) const RECONNECT: Backoff = Backoff::new(NS_PER_S, 60 * NS_PER_S);
/// How long a static UDP face may be silent before its host name is resolved again, and the delays
/// between lookups that change nothing.
pub(super) const RECHECK: Backoff = Backoff::new(5 * NS_PER_S, 60 * NS_PER_S);
/// Maximum number of concurrent attempts. Further ones fail at once.
const ATTEMPTS_MAX: usize = 64;

/// Starts connection attempts for the control thread, and schedules retries.
#[derive(Debug)]
pub(super) struct Connector {
    control: ControlSender,
    /// For `wss://`.
    trust: TlsTrust,
    running: Arc<AtomicUsize>,
    retries: Vec<(Instant, ConnectPurpose)>,
}

impl Connector {
    pub(super) fn new(control: ControlSender, trust: TlsTrust) -> Self {
        Self { control, trust, running: Arc::new(AtomicUsize::new(0)), retries: Vec::new() }
    }

    /// Starts an attempt. It tries `current` before other addresses. The outcome always
    /// arrives as a [`ToControl::Connected`] message.
    pub(super) fn start(&self, uri: String, current: Option<FaceUri>, purpose: ConnectPurpose) {
        let (control, trust) = (self.control.clone(), self.trust.clone());
        let running = Arc::clone(&self.running);
        let refuse = |purpose, why: String| {
            let outcome = ConnectOutcome { purpose, result: Err(why) };
            self.control.send(ToControl::Connected(Box::new(outcome)));
        };
        if running.fetch_add(1, Ordering::Relaxed) >= ATTEMPTS_MAX {
            running.fetch_sub(1, Ordering::Relaxed);
            return refuse(purpose, "too many connections are being made at once".into());
        }
        let spare = purpose.clone();
        let thread = std::thread::Builder::new().name("weir-connect".into()).spawn(move || {
            let result = attempt(&uri, current.as_ref(), &trust);
            running.fetch_sub(1, Ordering::Relaxed);
            control.send(ToControl::Connected(Box::new(ConnectOutcome { purpose, result })));
        });
        if let Err(error) = thread {
            self.running.fetch_sub(1, Ordering::Relaxed);
            refuse(spare, format!("cannot start a thread: {error}"));
        }
    }

    /// Schedules another attempt after `pause_ns`.
    pub(super) fn retry_after(&mut self, now: Instant, pause_ns: u64, purpose: ConnectPurpose) {
        self.retries.push((now.plus_ns(pause_ns), purpose));
    }

    pub(super) fn next_retry(&self) -> Option<Instant> {
        self.retries.iter().map(|(at, _)| *at).min()
    }

    pub(super) fn take_due(&mut self, now: Instant) -> Option<ConnectPurpose> {
        let due = self.retries.iter().position(|(at, _)| *at <= now)?;
        Some(self.retries.swap_remove(due).1)
    }
}

fn attempt(uri: &str, current: Option<&FaceUri>, trust: &TlsTrust) -> Result<Connected, String> {
    let remote = FaceUri::resolve_reachable(uri, current).map_err(|error| error.to_string())?;
    Connected::with_trust(&remote, CONNECT_TIMEOUT, trust)
        .map_err(|error| format!("cannot connect to {remote}: {error}"))
}
