//! WebSocket connections whose request has not arrived. Worker threads get only complete ones.
//!
//! A peer that stalls costs one descriptor for [`TIMEOUT_NS`], and at most 8 KiB. With
//! [`HANDSHAKES_MAX`] such peers, each new connection replaces the oldest.

use std::io;

use mio::{Interest, Registry, Token};
use weir_base::{Instant, NS_PER_S};
use weir_face::{Handshake, Socket};

use crate::rate_limited_log::RateLimitedLog;

/// Maximum number of handshakes in progress.
const HANDSHAKES_MAX: usize = 256;
/// Timeout of a handshake (NFD, by websocketpp: 5 s).
const TIMEOUT_NS: u64 = 5 * NS_PER_S;

pub(super) struct Handshakes {
    registry: Registry,
    /// The token of slot 0.
    first: usize,
    slots: Vec<Option<PendingHandshake>>,
    failed: u64,
    log: RateLimitedLog,
}

struct PendingHandshake {
    handshake: Handshake,
    expires_at: Instant,
}

impl Handshakes {
    /// Uses tokens from `first` on.
    pub(super) fn new(registry: Registry, first: usize) -> Self {
        Self { registry, first, slots: Vec::new(), failed: 0, log: RateLimitedLog::default() }
    }

    /// Number of failed handshakes.
    pub(super) fn failed(&self) -> u64 {
        self.failed
    }

    pub(super) fn next_wakeup(&self) -> Option<Instant> {
        self.slots.iter().flatten().map(|pending| pending.expires_at).min()
    }

    /// Waits for the request of an accepted connection.
    pub(super) fn begin(&mut self, now: Instant, mut handshake: Handshake) {
        let slot = self.free_slot(now);
        let token = Token(self.first + slot);
        if let Err(error) = self.registry.register(&mut handshake, token, Interest::READABLE) {
            return self.note_failed(now, &error);
        }
        let expires_at = now.plus_ns(TIMEOUT_NS);
        self.slots[slot] = Some(PendingHandshake { handshake, expires_at });
    }

    fn free_slot(&mut self, now: Instant) -> usize {
        if let Some(slot) = self.slots.iter().position(Option::is_none) {
            return slot;
        }
        if self.slots.len() < HANDSHAKES_MAX {
            self.slots.push(None);
            return self.slots.len() - 1;
        }
        let expiry = |slot: &usize| self.slots[*slot].as_ref().map(|pending| pending.expires_at);
        let oldest = (0..self.slots.len()).min_by_key(expiry).unwrap_or(0);
        self.slots[oldest] = None;
        self.note_failed(now, &io::Error::other("replaced: too many handshakes are in progress"));
        oldest
    }

    /// Reads from the connection in `slot`. Returns its socket once the request is answered.
    pub(super) fn advance(&mut self, now: Instant, slot: usize) -> Option<Socket> {
        let pending = self.slots.get_mut(slot)?.as_mut()?;
        let result = match pending.handshake.read() {
            Ok(false) => return None,
            Ok(true) => self.finish(slot)?,
            Err(error) => Err(error),
        };
        self.slots[slot] = None;
        result.inspect_err(|error| self.note_failed(now, error)).ok()
    }

    fn finish(&mut self, slot: usize) -> Option<io::Result<Socket>> {
        let mut handshake = self.slots[slot].take()?.handshake;
        let deregistered = self.registry.deregister(&mut handshake);
        Some(deregistered.and_then(|()| Socket::of_handshake(handshake)))
    }

    /// Drops handshakes that take too long.
    pub(super) fn run_timers(&mut self, now: Instant) {
        for slot in 0..self.slots.len() {
            if self.slots[slot].take_if(|pending| pending.expires_at <= now).is_some() {
                self.note_failed(now, &io::ErrorKind::TimedOut.into());
            }
        }
    }

    pub(super) fn close(&mut self) {
        self.slots.clear();
    }

    fn note_failed(&mut self, now: Instant, error: &io::Error) {
        self.failed += 1;
        if let Some(count) = self.log.add(now) {
            tracing::info!(%error, count, "WebSocket handshake failed");
        }
    }
}
