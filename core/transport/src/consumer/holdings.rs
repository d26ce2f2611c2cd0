//! Queries each router for the segments of the object that it holds: discovery of paper
//! multipath-cache-management (Algorithm 1, docs/holdings.md).

use alloc::vec::Vec;

use weir_base::{Instant, NS_PER_S, Rng};
use weir_store::HoldingsStatus;
use weir_wire::{DataView, InterestView, Name};

use crate::PathId;
use crate::interest::{InterestBatch, Selectors};
use crate::request::{Nack, Request, RetryLimits};

/// Each segment of an answer is requested once.
const TRIES: RetryLimits = RetryLimits { sends_max: 1, nacks_max: 1, needs_route: false };
/// A router that has not answered by then does not delay the fetch any longer.
const ANSWER_NS: u64 = NS_PER_S;
/// The most ranges in an answer, 4,096, take at most 73,728 bytes.
const OCTETS_MAX: usize = 80_000;

/// The queries without an answer.
#[derive(Debug, Default)]
pub(super) struct HoldingsQueries {
    /// The object, once the version is known.
    object: Option<Name>,
    /// The paths to query, and whether their routers are on this host.
    paths: Vec<(PathId, bool)>,
    open: Vec<HoldingsQuery>,
}

#[derive(Debug)]
struct HoldingsQuery {
    path: PathId,
    request: Request,
    /// When the query is abandoned.
    deadline: Instant,
    /// The first segments of the answer.
    octets: Vec<u8>,
}

/// What a packet means for the queries.
pub(super) enum QueryReply {
    /// It answers no query.
    Unrelated,
    /// It answers a query, but not usefully or not completely.
    Consumed,
    /// The router of the path holds these segments.
    Holdings(PathId, HoldingsStatus),
}

impl HoldingsQueries {
    /// Queries all present and future paths about the object.
    pub(super) fn begin(&mut self, object: Name, lifetime_ms: u64, now: Instant) {
        self.object = Some(object);
        for (path, is_local) in self.paths.clone() {
            self.query(path, is_local, lifetime_ms, now);
        }
    }

    pub(super) fn path_added(
        &mut self,
        path: PathId,
        is_local: bool,
        lifetime_ms: u64,
        now: Instant,
    ) {
        self.paths.push((path, is_local));
        self.query(path, is_local, lifetime_ms, now);
    }

    fn query(&mut self, path: PathId, is_local: bool, lifetime_ms: u64, now: Instant) {
        let Some(object) = &self.object else { return };
        let mut prefix = Name::new();
        prefix.append_str(if is_local { "localhost" } else { "localhop" }).append_str("nfd");
        let dataset = HoldingsStatus::dataset_name(prefix, object);
        let selectors =
            Selectors { can_be_prefix: true, must_be_fresh: true, lifetime_ms, nonce: 0 };
        let request = Request::new(&dataset, selectors, TRIES, now);
        let until = now.plus_ns(ANSWER_NS);
        self.open.push(HoldingsQuery { path, request, deadline: until, octets: Vec::new() });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Sends queries that are due, and abandons late ones. Returns how many Interests left.
    pub(super) fn poll(&mut self, now: Instant, rng: &mut Rng, out: &mut InterestBatch) -> u64 {
        let mut sent = 0;
        self.open.retain_mut(|question| {
            let polled = question.request.poll(&[question.path], now, rng, out);
            sent += u64::from(polled == Ok(true));
            polled.is_ok() && now < question.deadline
        });
        sent
    }

    pub(super) fn next_wakeup(&self) -> Option<Instant> {
        let due_at = |question: &HoldingsQuery| question.request.due_at().min(question.deadline);
        self.open.iter().map(due_at).min()
    }

    pub(super) fn path_removed(&mut self, path: PathId) {
        self.paths.retain(|&(known, _)| known != path);
        self.open.retain(|question| question.path != path);
    }

    pub(super) fn on_data(
        &mut self,
        path: PathId,
        data: &DataView<'_>,
        now: Instant,
    ) -> QueryReply {
        let is_it = |one: &HoldingsQuery| one.path == path && one.request.is_answered_by(data);
        let Some(at) = self.open.iter().position(is_it) else { return QueryReply::Unrelated };
        let mut question = self.open.swap_remove(at);
        question.octets.extend_from_slice(data.content);
        let number = data.name.last().and_then(|last| last.as_segment());
        let (Some(number), Some(last)) = (number, data.signed_last_segment()) else {
            return QueryReply::Consumed;
        };
        if number < last {
            if data.content.is_empty() || question.octets.len() > OCTETS_MAX {
                return QueryReply::Consumed;
            }
            let mut name = data.name.parent().to_name();
            name.append_segment(number + 1);
            let selectors =
                Selectors { lifetime_ms: question.request.lifetime_ms(), ..Selectors::default() };
            question.request = Request::new(&name, selectors, TRIES, now);
            self.open.push(question);
            return QueryReply::Consumed;
        }
        // An application-level Nack is no valid answer either.
        match HoldingsStatus::decode(&question.octets) {
            Ok(status) => QueryReply::Holdings(path, status),
            Err(_) => QueryReply::Consumed,
        }
    }

    /// Takes a Nack. Returns whether it answers a query.
    pub(super) fn on_nack(
        &mut self,
        interest: &InterestView<'_>,
        nack: Nack,
        now: Instant,
    ) -> bool {
        let mut is_ours = false;
        self.open.retain_mut(|question| match question.request.on_nack(interest, nack, now) {
            Ok(is_it) => {
                is_ours |= is_it;
                true
            }
            Err(_) => {
                is_ours = true;
                false
            }
        });
        is_ours
    }
}
