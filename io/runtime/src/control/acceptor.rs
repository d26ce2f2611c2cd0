//! Listening sockets for connections.

use std::fmt::Display;
use std::io;
use std::time::Duration;

use mio::{Interest, Registry, Token};
use weir_base::{Instant, NS_PER_S};
use weir_face::{Accepted, FaceUri, Listener, Socket};

use super::handshakes::Handshakes;
use crate::rate_limited_log::RateLimitedLog;

/// Connections accepted on one listener before other listeners are served.
const ACCEPTS_PER_TURN: usize = 64;
/// TLS connections accepted in one second, on all listeners. The control thread signs each
/// handshake, which takes up to 1 ms (RSA with 2048 bits).
const TLS_ACCEPTS_PER_S: u32 = 200;
/// Pause when the process has no file descriptor left, or when too many TLS connections arrive.
const PAUSE: Duration = Duration::from_millis(200);

/// How often the certificates are checked, because they expire while the router runs.
const CERTIFICATE_CHECK_NS: u64 = 24 * 3600 * NS_PER_S;

/// Warns if clients refuse a certificate. `next`: what happens, or must be done, after its renewal.
pub fn warn_of_certificate(shown: impl Display, problem: Option<String>, next: &str) {
    if let Some(problem) = problem {
        tracing::warn!(
            certificate = %shown,
            problem,
            "clients refuse the certificate; renew it, and {next}"
        );
    }
}

fn warn_of_listener(listener: &Listener) {
    let next = "the router reads the new files";
    warn_of_certificate(listener.local_uri(), listener.certificate_problem(), next);
}

/// All listeners, and when they must be tried again without an event from the kernel.
pub(super) struct Acceptor {
    listeners: Vec<Listener>,
    again_at: Option<Instant>,
    failures: RateLimitedLog,
    reload_failures: RateLimitedLog,
    tls_budget: TlsBudget,
    handshakes: Handshakes,
    check_certificates_at: Instant,
}

impl Acceptor {
    /// Registers the listeners, with tokens from `first` on.
    pub(super) fn new(
        mut listeners: Vec<Listener>,
        registry: &Registry,
        first: usize,
    ) -> io::Result<Self> {
        for (index, listener) in listeners.iter_mut().enumerate() {
            registry.register(listener, Token(first + index), Interest::READABLE)?;
        }
        let handshakes = Handshakes::new(registry.try_clone()?, first + listeners.len());
        let (failures, reload_failures) = (RateLimitedLog::default(), RateLimitedLog::default());
        Ok(Self {
            listeners,
            again_at: None,
            failures,
            reload_failures,
            tls_budget: TlsBudget::default(),
            handshakes,
            check_certificates_at: Instant::ZERO,
        })
    }

    pub(super) fn next_wakeup(&self) -> Option<Instant> {
        let check_at = Some(self.check_certificates_at);
        [self.again_at, self.handshakes.next_wakeup(), check_at].into_iter().flatten().min()
    }

    pub(super) fn failed_handshakes(&self) -> u64 {
        self.handshakes.failed()
    }

    /// Handles an event of the listener or handshake with this index. Returns new connections.
    pub(super) fn on_readable(&mut self, now: Instant, index: usize) -> Vec<Socket> {
        match index.checked_sub(self.listeners.len()) {
            None => self.accept(now, index),
            Some(slot) => self.handshakes.advance(now, slot).into_iter().collect(),
        }
    }

    /// Accepts connections of one listener.
    fn accept(&mut self, now: Instant, index: usize) -> Vec<Socket> {
        let mut sockets = Vec::new();
        self.reload_certificate(now, index);
        let is_tls = matches!(self.listeners[index].local_uri(), FaceUri::WebSocketTls { .. });
        for _ in 0..ACCEPTS_PER_TURN {
            if is_tls && self.tls_budget.is_spent(now) {
                // The others stay in the listener's backlog.
                self.try_again(now.plus_ns(PAUSE.as_nanos() as u64));
                return sockets;
            }
            match self.listeners[index].accept() {
                Ok(Some(Accepted::Socket(socket))) => sockets.push(socket),
                Ok(Some(Accepted::Handshake(begun))) => {
                    if is_tls {
                        self.tls_budget.spend();
                    }
                    self.handshakes.begin(now, begun);
                }
                Ok(None) => return sockets,
                Err(error) => {
                    // Most likely no descriptor is left. The connection stays in the listener's
                    // backlog.
                    if let Some(count) = self.failures.add(now) {
                        tracing::warn!(%error, count, "cannot accept a connection");
                    }
                    self.try_again(now.plus_ns(PAUSE.as_nanos() as u64));
                    return sockets;
                }
            }
        }
        // Readiness is edge-triggered: connections that wait already raise no further event.
        self.try_again(now);
        sockets
    }

    /// Lets new connections use a renewed certificate.
    fn reload_certificate(&mut self, now: Instant, index: usize) {
        let listener = &mut self.listeners[index];
        match listener.reload_certificate() {
            None => {}
            Some(Ok(())) => {
                tracing::info!(listener = %listener.local_uri(), "read the changed certificate");
                warn_of_listener(listener);
            }
            Some(Err(error)) => {
                if let Some(count) = self.reload_failures.add(now) {
                    tracing::warn!(
                        listener = %listener.local_uri(),
                        %error,
                        count,
                        "cannot read the changed certificate; the previous one stays in use"
                    );
                }
            }
        }
    }

    fn try_again(&mut self, at: Instant) {
        self.again_at = Some(self.again_at.map_or(at, |earlier| earlier.min(at)));
    }

    /// Accepts on all listeners, if a retry is due. Drops handshakes that take too long. Warns of
    /// expired certificates.
    pub(super) fn run_timers(&mut self, now: Instant) -> Vec<Socket> {
        self.handshakes.run_timers(now);
        if self.check_certificates_at <= now {
            self.check_certificates_at = now.plus_ns(CERTIFICATE_CHECK_NS);
            self.listeners.iter().for_each(warn_of_listener);
        }
        if self.again_at.is_none_or(|at| at > now) {
            return Vec::new();
        }
        self.again_at = None;
        let listeners = 0..self.listeners.len();
        listeners.flat_map(|index| self.accept(now, index)).collect()
    }

    /// Closes the sockets and removes the socket file, so that a new router can start at once.
    pub(super) fn close(&mut self) {
        self.listeners.clear();
        self.handshakes.close();
    }
}

/// Counts TLS connections in one second.
#[derive(Debug, Default)]
struct TlsBudget {
    second: u64,
    accepted: u32,
}

impl TlsBudget {
    /// Whether no further connection may be accepted in this second.
    fn is_spent(&mut self, now: Instant) -> bool {
        let second = now.as_ns() / NS_PER_S;
        if self.second != second {
            *self = Self { second, accepted: 0 };
        }
        self.accepted >= TLS_ACCEPTS_PER_S
    }

    fn spend(&mut self) {
        self.accepted += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_are_checked_daily() {
        let poll = mio::Poll::new().unwrap();
        let mut acceptor = Acceptor::new(Vec::new(), poll.registry(), 0).unwrap();
        let mut now = Instant::from_ns(NS_PER_S);
        assert!(acceptor.next_wakeup().is_some_and(|at| at <= now));
        for _ in 0..2 {
            acceptor.run_timers(now);
            let next = acceptor.next_wakeup().unwrap();
            assert_eq!(next, now.plus_ns(CERTIFICATE_CHECK_NS));
            now = next;
        }
    }

    #[test]
    fn tls_accepts_are_limited_per_second() {
        let mut budget = TlsBudget::default();
        for second in 0..3 {
            for index in 0..u64::from(TLS_ACCEPTS_PER_S) {
                assert!(!budget.is_spent(Instant::from_ns(second * NS_PER_S + index)));
                budget.spend();
            }
            assert!(budget.is_spent(Instant::from_ns((second + 1) * NS_PER_S - 1)));
        }
    }
}
