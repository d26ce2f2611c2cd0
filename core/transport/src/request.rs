//! One Interest that is sent until it is answered: for discovery, and for anything outside the
//! window.

use alloc::vec::Vec;

use weir_base::{Instant, NS_PER_MS, NS_PER_S, Rng};
use weir_wire::{DataView, InterestView, LpHeader, NackReason, Name, NameView};

use crate::PathId;
use crate::consumer::nack_wait_ns;
use crate::consumer::scoreboard::FailReason;
use crate::interest::{InterestBatch, Selectors};

/// The first wait for an answer. It doubles up to the lifetime of the Interest (RFC 6298, initial
/// RTO).
const TIMEOUT_NS: u64 = NS_PER_S;

/// How often a request is tried.
#[derive(Copy, Clone, Debug)]
pub struct RetryLimits {
    /// At most this many sendings.
    pub sends_max: u32,
    /// At most this many Nacks other than Duplicate.
    pub nacks_max: u32,
    /// A NoRoute Nack from the first router ends the request.
    pub needs_route: bool,
}

#[derive(Copy, Clone, Debug)]
pub struct Nack {
    pub reason: NackReason,
    /// The router that the Interest was sent to made it.
    pub is_from_first_router: bool,
}

impl Nack {
    /// The Nack of a packet with this header, if it is one. Routers that report where packets come
    /// from (NDNLPv2, IncomingFaceId) omit that field in Nacks of their own.
    pub fn from_header(header: &LpHeader) -> Option<Self> {
        let reason = header.nack?;
        Some(Self { reason, is_from_first_router: header.incoming_face.is_none() })
    }
}

/// One Interest that is sent until it is answered, without a window.
#[derive(Clone, Debug)]
pub struct Request {
    name: Vec<u8>,
    /// An element at the end of the Interest; may be empty.
    element: Vec<u8>,
    selectors: Selectors,
    limits: RetryLimits,
    /// When it is sent, for the first time or again.
    due_at: Instant,
    sent_at: Instant,
    sends: u32,
    nacks: u32,
    /// How many Nacks since the last round came from a first router without a route.
    no_route_nacks: u32,
    last_nack: Option<NackReason>,
    /// How many paths were available at the last sending.
    paths: u32,
    path: Option<PathId>,
}

impl Request {
    /// A request for `name`, due at `now`.
    pub fn new(name: &Name, selectors: Selectors, tries: RetryLimits, now: Instant) -> Self {
        Self {
            name: name.value().to_vec(),
            element: Vec::new(),
            selectors,
            limits: tries,
            due_at: now,
            sent_at: now,
            sends: 0,
            nacks: 0,
            no_route_nacks: 0,
            last_nack: None,
            paths: 1,
            path: None,
        }
    }

    /// Adds an element at the end of the Interest, which others skip.
    #[must_use]
    pub fn with_element(mut self, element: Vec<u8>) -> Self {
        self.element = element;
        self
    }

    /// Sends the Interest when it is due, on each of `paths` in turn. Returns whether it did.
    ///
    /// # Errors
    /// It was tried often enough on each path.
    pub fn poll(
        &mut self,
        paths: &[PathId],
        now: Instant,
        rng: &mut Rng,
        out: &mut InterestBatch,
    ) -> Result<bool, FailReason> {
        if now < self.due_at || paths.is_empty() {
            return Ok(false);
        }
        self.paths = paths.len() as u32;
        if self.sends >= self.limits.sends_max.saturating_mul(self.paths) {
            return Err(match self.last_nack {
                Some(reason) => FailReason::from_nack(reason),
                None => FailReason::Unanswered,
            });
        }
        if self.path.is_some() {
            // The request timed out, so routers that had no route are tried again, too.
            self.no_route_nacks = 0;
        }
        self.selectors.nonce = rng.next_u32();
        let path = paths[(self.sends + self.nacks) as usize % paths.len()];
        out.push_with(path, &self.name, None, self.selectors, &self.element);
        self.path = Some(path);
        let lifetime_ns = self.selectors.lifetime_ms.saturating_mul(NS_PER_MS);
        let timeout_ns = (TIMEOUT_NS << (self.sends / self.paths).min(16)).min(lifetime_ns);
        self.sends += 1;
        self.sent_at = now;
        self.due_at = now.plus_ns(timeout_ns);
        Ok(true)
    }

    /// A path was removed. An Interest in flight there is sent on another path at once, which does
    /// not count as an attempt.
    pub fn path_removed(&mut self, path: PathId, now: Instant) {
        if self.path.take_if(|taken| *taken == path).is_some() {
            self.sends -= 1;
            self.due_at = now;
        }
    }

    pub(crate) fn lifetime_ms(&self) -> u64 {
        self.selectors.lifetime_ms
    }

    pub(crate) fn path(&self) -> Option<PathId> {
        self.path
    }

    /// Whether `data` answers the Interest.
    pub fn is_answered_by(&self, data: &DataView<'_>) -> bool {
        // An application-level Nack has exactly the requested name.
        if self.selectors.can_be_prefix && !data.is_nack() {
            data.name.value().starts_with(&self.name)
        } else {
            data.name.value() == self.name
        }
    }

    /// The round-trip time, if it was sent only once.
    pub(crate) fn rtt_ns(&self, now: Instant) -> Option<u64> {
        (self.sends == 1).then(|| self.elapsed_ns(now))
    }

    /// The time since its last sending.
    pub(crate) fn elapsed_ns(&self, now: Instant) -> u64 {
        now.ns_since(self.sent_at)
    }

    /// The same request, for fresh Data only; `None` if it already was.
    pub(crate) fn to_fresh_request(&self, now: Instant) -> Option<Self> {
        let selectors = Selectors { must_be_fresh: true, ..self.selectors };
        let name = self.name().to_name();
        let again = || Self::new(&name, selectors, self.limits, now);
        (!self.selectors.must_be_fresh).then(|| again().with_element(self.element.clone()))
    }

    /// Takes a Nack. Returns whether it belongs to this Interest.
    ///
    /// # Errors
    /// It was refused often enough.
    pub fn on_nack(
        &mut self,
        interest: &InterestView<'_>,
        nack: Nack,
        now: Instant,
    ) -> Result<bool, FailReason> {
        let reason = nack.reason;
        let is_ours = interest.name.value() == self.name
            && interest.nonce == Some(self.selectors.nonce)
            && interest.can_be_prefix == self.selectors.can_be_prefix;
        if !is_ours || self.sends == 0 {
            return Ok(false);
        }
        if reason == NackReason::Duplicate {
            self.due_at = now;
            return Ok(true);
        }
        self.last_nack = Some(reason);
        self.nacks += 1;
        self.no_route_nacks +=
            u32::from(reason == NackReason::NoRoute && nack.is_from_first_router);
        let has_no_route = self.limits.needs_route && self.no_route_nacks >= self.paths;
        if has_no_route || self.nacks >= self.limits.nacks_max.saturating_mul(self.paths) {
            return Err(FailReason::from_nack(reason));
        }
        // `sends` counts attempts without an answer, and a Nack is an answer.
        self.sends -= 1;
        self.path = None;
        // Another path may have a route.
        let mut wait_ns = 0;
        if self.is_refused_by_all_paths() {
            wait_ns = nack_wait_ns(self.refusals() - 1);
            // The paths that have a route are asked again, so those without are counted again.
            self.no_route_nacks = 0;
        }
        self.due_at = now.plus_ns(wait_ns);
        Ok(true)
    }

    /// Whether the latest Nack came from the last path of a round.
    pub(crate) fn is_refused_by_all_paths(&self) -> bool {
        self.nacks > 0 && self.nacks.is_multiple_of(self.paths)
    }

    /// How often all paths have refused it.
    pub(crate) fn refusals(&self) -> u32 {
        self.nacks / self.paths
    }

    /// When the request is sent next.
    pub fn due_at(&self) -> Instant {
        self.due_at
    }

    pub fn name(&self) -> NameView<'_> {
        NameView::from_value(&self.name).expect("made from a name")
    }
}
