//! WebSocket connections whose request has not arrived. Worker threads get only complete ones.
//!
//! A peer that stalls costs one descriptor for [`TIMEOUT_NS`], and at most 8 KiB, over TLS 80 KiB.
//! The number of handshakes is limited for each host and in total. At the limit of a host, a new
//! connection replaces its oldest one. At the limit of all, it replaces the oldest one of the host
//! with the most. So a host that stalls disturbs other hosts only if there are many such hosts.

use std::collections::HashMap;
use std::io;

use mio::{Interest, Registry, Token};
use weir_base::{Instant, NS_PER_S};
use weir_face::{Handshake, Socket};

use crate::face_quota::Network;
use crate::rate_limited_log::RateLimitedLog;

/// Maximum number of handshakes in progress.
const HANDSHAKES_MAX: usize = 256;
/// Maximum number of one host. Browsers open few at once, but a proxy is one host as well.
const PER_HOST_MAX: usize = 64;
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
    host: Network,
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
        let host = Network::host(handshake.peer());
        let slot = self.free_slot(now, host);
        let token = Token(self.first + slot);
        if let Err(error) = self.registry.register(&mut handshake, token, Interest::READABLE) {
            return self.note_failed(now, &error);
        }
        let expires_at = now.plus_ns(TIMEOUT_NS);
        self.slots[slot] = Some(PendingHandshake { handshake, host, expires_at });
    }

    /// A slot for a handshake of `host`.
    fn free_slot(&mut self, now: Instant, host: Network) -> usize {
        let crowded = if self.count_of(host) >= PER_HOST_MAX {
            host
        } else if let Some(slot) = self.slots.iter().position(Option::is_none) {
            return slot;
        } else if self.slots.len() < HANDSHAKES_MAX {
            self.slots.push(None);
            return self.slots.len() - 1;
        } else {
            self.host_with_most().unwrap_or(host)
        };
        let pending = self.slots.iter().enumerate();
        let pending = pending.filter_map(|(slot, pending)| Some((slot, pending.as_ref()?)));
        let of_host = pending.filter(|(_, pending)| pending.host == crowded);
        let oldest = of_host.min_by_key(|(_, pending)| pending.expires_at);
        let oldest = oldest.map_or(0, |(slot, _)| slot);
        self.slots[oldest] = None;
        self.note_failed(now, &io::Error::other("replaced: too many handshakes are in progress"));
        oldest
    }

    fn host_with_most(&self) -> Option<Network> {
        let hosts = self.slots.iter().flatten().map(|pending| pending.host);
        let mut counts = HashMap::new();
        hosts.for_each(|host| *counts.entry(host).or_insert(0_usize) += 1);
        counts.into_iter().max_by_key(|&(_, count)| count).map(|(host, _)| host)
    }

    /// Number of handshakes of `host`.
    fn count_of(&self, host: Network) -> usize {
        self.slots.iter().flatten().filter(|pending| pending.host == host).count()
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
