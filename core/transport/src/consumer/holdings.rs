//! Discovery of paper multipath-cache-management (Algorithm 1): one question to each router, which
//! segments of the object it holds (docs/holdings.md).

use alloc::vec::Vec;

use weir_base::{Instant, Rng};
use weir_store::{HoldingsStatus, SegmentRange};
use weir_wire::{DataView, InterestView, NackReason, Name};

use super::config::Holdings;
use super::{ConsumerEvent, ConsumerOutbox, Naming};
use crate::PathId;
use crate::consumer::Consumer;
use crate::interest::{InterestBatch, Selectors};
use crate::request::{Request, Tries};

/// A router that does not tell holds nobody up for longer: 1 s, once.
const TRIES: Tries = Tries { sends_max: 1, nacks_max: 1 };
/// 4,096 ranges, the most that are told, have 73,728 octets at most.
const OCTETS_MAX: usize = 80_000;

/// The questions that are open.
#[derive(Debug, Default)]
pub(super) struct Questions {
    /// What is asked, once the version is known.
    dataset: Option<Name>,
    open: Vec<Question>,
}

#[derive(Debug)]
struct Question {
    path: PathId,
    request: Request,
    /// What has come of the answer, of its first segments.
    octets: Vec<u8>,
}

/// What a packet was to the questions.
pub(super) enum Told {
    /// None of theirs.
    Nothing,
    /// Theirs, and no answer, or not all of one.
    Taken,
    /// The router at the other end of the path holds these.
    Held(PathId, HoldingsStatus),
}

impl Questions {
    /// Asks by these paths about the object from now on.
    pub(super) fn begin(&mut self, prefix: Name, versioned: &Name) {
        self.dataset = Some(HoldingsStatus::dataset_name(prefix, versioned));
    }

    /// Asks by a path.
    pub(super) fn ask(&mut self, path: PathId, lifetime_ms: u64, now: Instant) {
        let Some(dataset) = &self.dataset else { return };
        let selectors =
            Selectors { can_be_prefix: true, must_be_fresh: true, lifetime_ms, nonce: 0 };
        let request = Request::new(dataset, selectors, TRIES, now);
        self.open.push(Question { path, request, octets: Vec::new() });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Sends what is due, and gives up what is not answered. How many Interests left.
    pub(super) fn poll(&mut self, now: Instant, rng: &mut Rng, out: &mut InterestBatch) -> u64 {
        let mut sent = 0;
        self.open.retain_mut(|question| {
            let polled = question.request.poll(&[question.path], now, rng, out);
            sent += u64::from(polled == Ok(true));
            polled.is_ok()
        });
        sent
    }

    pub(super) fn next_wakeup(&self) -> Option<Instant> {
        self.open.iter().map(|question| question.request.due_at()).min()
    }

    pub(super) fn path_removed(&mut self, path: PathId) {
        self.open.retain(|question| question.path != path);
    }

    /// Takes Data that came by a path.
    pub(super) fn take(&mut self, path: PathId, data: &DataView<'_>, now: Instant) -> Told {
        let is_it = |one: &Question| one.path == path && one.request.is_answered_by(data);
        let Some(at) = self.open.iter().position(is_it) else { return Told::Nothing };
        let mut question = self.open.swap_remove(at);
        question.octets.extend_from_slice(data.content);
        let number = data.name.last().and_then(|last| last.as_segment());
        let last = data.final_block_id().and_then(|last| last.as_segment());
        let (Some(number), Some(last)) = (number, last) else { return Told::Taken };
        if number < last && question.octets.len() <= OCTETS_MAX {
            let mut name = data.name.parent().to_name();
            name.append_segment(number + 1);
            let selectors =
                Selectors { lifetime_ms: question.request.lifetime_ms(), ..Selectors::default() };
            question.request = Request::new(&name, selectors, TRIES, now);
            self.open.push(question);
            return Told::Taken;
        }
        // An application's refusal is no Holdings, either.
        match HoldingsStatus::decode(&question.octets) {
            Ok(status) => Told::Held(path, status),
            Err(_) => Told::Taken,
        }
    }

    /// Takes a Nack; whether it is one for a question.
    pub(super) fn nacked(
        &mut self,
        interest: &InterestView<'_>,
        reason: NackReason,
        now: Instant,
    ) -> bool {
        let mut is_ours = false;
        self.open.retain_mut(|question| match question.request.nacked(interest, reason, now) {
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

impl Consumer {
    /// The version is known: the routers are asked, if that is wanted.
    pub(super) fn ask_routers(&mut self, now: Instant) {
        let (Some(metadata), Naming::Object(_)) = (&self.metadata, &self.naming) else { return };
        if self.config.holdings == Holdings::Ignore {
            return;
        }
        let mut prefix = Name::new();
        prefix.append_str(if self.config.routers_are_local { "localhost" } else { "localhop" });
        prefix.append_str("nfd");
        let versioned = self.config.mapping.version_prefix(metadata.versioned.as_view());
        self.questions.begin(prefix, &versioned);
        for path in self.scoreboard.paths().iter().map(|path| path.id).collect::<Vec<_>>() {
            self.questions.ask(path, self.config.lifetime_ms, now);
        }
    }

    /// Whether units wait for what the routers say.
    pub(super) fn waits_for_routers(&self) -> bool {
        self.config.holdings == Holdings::Wait && !self.questions.is_empty()
    }

    /// A router has told what it holds.
    pub(super) fn told(&mut self, path: PathId, status: HoldingsStatus, out: &mut ConsumerOutbox) {
        let HoldingsStatus { memory, disk, is_partial, .. } = status;
        let ranges = SegmentRange::join([memory, disk].concat());
        let segments = ranges.iter().fold(0, |sum: u64, range| {
            sum.saturating_add((range.last - range.first).saturating_add(1))
        });
        self.scoreboard.set_held(path, ranges);
        out.events.push(ConsumerEvent::Holdings { path, segments, is_partial });
    }
}
