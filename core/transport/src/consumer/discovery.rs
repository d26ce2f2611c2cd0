//! Discovery: finds the version to fetch, and whether it has a manifest.
//!
//! 1. A request for metadata, or for any Data below a prefix, finds the version. If no producer
//!    answers within 3 s, or there is no route, a router's store may ([`Target::Latest`]).
//! 2. The driver states which segments it already has.
//! 3. If the metadata do not mention a manifest, a probe requests the first segment and the first
//!    manifest part.
//!
//! Each method returns the next [`Step`], and the consumer takes it.

use alloc::vec::Vec;
use core::cmp::Ordering;

use weir_base::{Instant, NS_PER_MS, Rng};
use weir_security::manifest::{ManifestError, ManifestPart, ManifestShape, PartId};
use weir_wire::{DataView, InterestView, NackReason, Name};

use super::ConsumerError;
use super::config::ConsumerConfig;
use super::end_claim::is_refusal;
use super::naming::{METADATA_INDEX, probe_index};
use super::requests::{Requests, SINGLE_TRIES};
use super::scoreboard::FailReason;
use super::target::Target;
use super::verify::{BAD_COPIES_MAX, Incoming};
use crate::PathId;
use crate::interest::{InterestBatch, Selectors};
use crate::mapping::NameMapping;
use crate::metadata::Metadata;
use crate::request::{Nack, Request, RetryLimits};

/// Retry limits of the first Interest.
const DISCOVERY_TRIES: RetryLimits = RetryLimits { needs_route: true, ..SINGLE_TRIES };
/// Retry limits of the first Interest while a store may have a version: 1 + 2 s. A user should not
/// wait longer if the producer is down. One lost packet and a round trip of 2 s are possible.
const FRESH_TRIES: RetryLimits = RetryLimits { sends_max: 2, ..DISCOVERY_TRIES };
/// Retry limits of the request that stores may answer. Producers may answer it, too, so it is sent
/// as often as others.
const STORED_TRIES: RetryLimits = RetryLimits { nacks_max: 1, ..SINGLE_TRIES };
/// How often all paths must refuse before stores are queried, if a router further on has no route.
/// The first refusal may have ended a route that routers had learned (strategy self-learning), and
/// the second Interest then finds the producer.
const REFUSALS_BEFORE_STORES: u32 = 2;
/// After the first segment has arrived, the probe waits this many round trips for the manifest, but
/// at least `MANIFEST_WAIT_MIN_NS`.
const MANIFEST_ROUND_TRIPS: u64 = 4;
const MANIFEST_WAIT_MIN_NS: u64 = 100 * NS_PER_MS;

/// What a request of discovery is for.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Purpose {
    Version,
    /// The first part of a manifest, if there is one.
    Manifest,
    /// The first segment, while it is unknown whether there is a manifest.
    FirstSegment,
    /// The first packet of a stream: a manifest or a segment.
    FirstPacket,
}

/// A request that a Data answers.
#[derive(Debug)]
pub(super) struct AnsweredRequest {
    purpose: Purpose,
    pub(super) request: Request,
}

#[derive(Debug)]
enum Stage {
    /// Requests the name of the version.
    Version {
        is_stored: bool,
    },
    /// The metadata are being verified, with whether stores could answer. `None`: the producer's
    /// answer that the object does not exist is.
    Verifying {
        metadata: Option<(Metadata, bool)>,
    },
    /// The version is known. The driver must state which segments it has.
    Found,
    /// Requests the first segment and the first manifest part.
    Probing {
        /// The first segment, once received, and until when to wait for a manifest.
        first_segment: Option<(Incoming, Instant)>,
        /// The level whose first part is requested.
        level: u8,
        /// A part has arrived, so there is a manifest.
        has_part: bool,
    },
    Over,
}

/// The step that follows an input to discovery.
#[derive(Debug)]
pub(super) enum Step {
    /// Nothing to do until an answer or a timeout.
    Wait,
    /// A packet must be verified first.
    Verify { index: u64, incoming: Incoming },
    Found {
        metadata: Metadata,
        /// A store may have answered, because the producer did not, for this reason.
        stored: Option<FailReason>,
        is_whole: bool,
    },
    /// The metadata are not those of the object.
    BadMetadata(ConsumerError),
    /// The manifest part is not usable.
    BadManifest,
    /// The first segment arrived. The caller takes its last segment number, then calls
    /// [`Discovery::on_first_segment`].
    FirstSegment,
    /// The names of all segments are known. The first one may have arrived already.
    Begin { manifest: Option<ManifestShape>, first_segment: Option<Incoming> },
    /// There is nothing to fetch.
    Failed(ConsumerError),
    /// No answer for the target.
    Unanswered(FailReason),
}

#[derive(Debug)]
pub(super) struct Discovery {
    target: Target,
    mapping: NameMapping,
    /// The selectors of Interests for segments.
    selectors: Selectors,
    stage: Stage,
    requests: Requests<Purpose>,
    /// The version that was found.
    versioned: Name,
    /// Why routers' stores have been queried for metadata, if they have been.
    queried_stores: Option<FailReason>,
    /// Why the latest metadata were rejected.
    last_refusal: Option<ConsumerError>,
}

impl Discovery {
    pub(super) fn new(target: Target, config: &ConsumerConfig, now: Instant) -> Self {
        let mut discovery = Self {
            mapping: config.mapping,
            selectors: config.selectors(),
            stage: Stage::Found,
            requests: Requests::default(),
            versioned: Name::new(),
            queried_stores: None,
            last_refusal: None,
            target,
        };
        match discovery.target {
            Target::Latest { .. } => discovery.request_version(now, false),
            Target::Prefix { .. } => discovery.request_version(now, true),
            Target::Version { .. } | Target::Range { .. } | Target::KnownMetadata { .. } => {}
            Target::Sequence => discovery.stage = Stage::Over,
        }
        discovery
    }

    pub(super) fn target(&self) -> &Target {
        &self.target
    }

    /// Whether the driver must state which segments it has.
    pub(super) fn is_found(&self) -> bool {
        matches!(self.stage, Stage::Found)
    }

    /// Whether a request waits for Data.
    pub(super) fn is_requesting(&self) -> bool {
        matches!(self.stage, Stage::Version { .. } | Stage::Probing { .. })
    }

    /// When [`Discovery::advance`] or [`Discovery::poll`] has work.
    pub(super) fn next_wakeup(&self) -> Option<Instant> {
        let probe_ends = match &self.stage {
            Stage::Probing { first_segment: Some((_, until)), has_part: false, .. } => Some(*until),
            _ => None,
        };
        self.requests.next_wakeup().into_iter().chain(probe_ends).min()
    }

    /// Requests the name of the version; also from stores if `is_stored`.
    fn request_version(&mut self, now: Instant, is_stored: bool) {
        let mut element = Vec::new();
        let ((name, can_be_prefix), must_be_fresh, tries) = match &self.target {
            Target::Latest { object, .. } => {
                let name = self.mapping.metadata_interest(object.as_view());
                element = self.mapping.metadata_payload(object.as_view());
                let tries = match is_stored {
                    true => STORED_TRIES,
                    false if self.can_query_stores() => FRESH_TRIES,
                    false => DISCOVERY_TRIES,
                };
                (name, !is_stored, tries)
            }
            other => ((other.name(), true), false, DISCOVERY_TRIES),
        };
        let lifetime_ms = self.selectors.lifetime_ms;
        let selectors = Selectors { can_be_prefix, must_be_fresh, lifetime_ms, nonce: 0 };
        self.requests.clear();
        let request = Request::new(&name, selectors, tries, now).with_element(element);
        self.requests.add(Purpose::Version, request);
        self.stage = Stage::Version { is_stored };
    }

    /// Removes the request that `data` answers.
    pub(super) fn take_answered(&mut self, data: &DataView<'_>) -> Option<AnsweredRequest> {
        let (question, request) = self.requests.take_answered(data)?;
        Some(AnsweredRequest { purpose: question, request })
    }

    /// Data arrived for a request of [`Discovery::take_answered`].
    pub(super) fn on_data(
        &mut self,
        now: Instant,
        AnsweredRequest { purpose: question, request }: AnsweredRequest,
        data: &DataView<'_>,
        incoming: Incoming,
    ) -> Step {
        let is_refusal = is_refusal(data);
        match question {
            Purpose::Version => self.on_version(now, data, incoming),
            Purpose::Manifest => match ManifestPart::decode(data.content) {
                Ok(part) if !is_refusal => self.on_manifest_part(now, part.shape, incoming),
                // Perhaps a damaged copy.
                Err(ManifestError::Malformed) if !is_refusal => Step::BadManifest,
                _ => self.without_manifest(),
            },
            Purpose::FirstPacket if is_refusal => {
                Step::Failed(ConsumerError::Refused(self.target.name()))
            }
            Purpose::FirstPacket => {
                let Stage::Probing { first_segment: held, .. } = &mut self.stage else {
                    return Step::Wait;
                };
                *held = Some((incoming.clone(), now));
                Step::Verify { index: probe_index(1), incoming }
            }
            // Routers may have cached this refusal before the version existed. A fresh request
            // bypasses them, once.
            Purpose::FirstSegment if is_refusal => match request.to_fresh_request(now) {
                Some(again) => {
                    self.requests.add(Purpose::FirstSegment, again);
                    Step::Wait
                }
                None => Step::Failed(ConsumerError::Refused(self.target.name())),
            },
            Purpose::FirstSegment => {
                let Stage::Probing { first_segment: held, .. } = &mut self.stage else {
                    return Step::Wait;
                };
                let wait_ns = MANIFEST_ROUND_TRIPS * request.rtt_ns(now).unwrap_or(0);
                *held = Some((incoming, now.plus_ns(wait_ns.max(MANIFEST_WAIT_MIN_NS))));
                Step::FirstSegment
            }
        }
    }

    fn on_version(&mut self, now: Instant, data: &DataView<'_>, incoming: Incoming) -> Step {
        let Stage::Version { is_stored } = self.stage else { return Step::Wait };
        let object = self.target.name();
        if is_refusal(data) {
            // A stored refusal counts like no answer. The producer's own must be verified first.
            if is_stored {
                return self.on_request_failed(now, Purpose::Version, FailReason::NoRoute);
            }
            self.stage = Stage::Verifying { metadata: None };
            return Step::Verify { index: METADATA_INDEX, incoming };
        }
        if let Target::Prefix { .. } = self.target {
            // Any Data below the prefix shows the version. It is a segment, or the whole object.
            let is_whole = data.name.last().is_none_or(|last| last.as_segment().is_none());
            let versioned = if is_whole { data.name } else { data.name.parent() }.to_name();
            let mut metadata = Metadata::new(versioned);
            metadata.last_segment = is_whole.then_some(0);
            return Step::Found { metadata, stored: None, is_whole };
        }
        let metadata = match Metadata::decode(data.content) {
            Ok(metadata) => metadata,
            Err(error) => {
                return Step::BadMetadata(ConsumerError::Metadata { name: object, error });
            }
        };
        if !object.as_view().is_prefix_of(metadata.versioned.as_view()) {
            let versioned = metadata.versioned;
            return Step::BadMetadata(ConsumerError::ForeignMetadata { object, versioned });
        }
        self.stage = Stage::Verifying { metadata: Some((metadata, is_stored)) };
        Step::Verify { index: METADATA_INDEX, incoming }
    }

    pub(super) fn metadata_verified(&self) -> Step {
        match &self.stage {
            Stage::Verifying { metadata: Some((metadata, is_stored)) } => {
                let stored = self.queried_stores.filter(|_| *is_stored);
                Step::Found { metadata: metadata.clone(), stored, is_whole: false }
            }
            Stage::Verifying { metadata: None } => {
                Step::Failed(ConsumerError::Refused(self.target.name()))
            }
            _ => Step::Wait,
        }
    }

    /// The metadata are not usable: requests them once more, fresh, to bypass a bad copy in a
    /// router.
    pub(super) fn request_metadata_again(&mut self, now: Instant, error: ConsumerError) {
        self.last_refusal = Some(error);
        self.request_version(now, false);
    }

    pub(super) fn set_version(&mut self, versioned: Name) {
        self.versioned = versioned;
        self.last_refusal = None;
        self.stage = Stage::Found;
    }

    /// Ends without a probe: the transfer begins.
    pub(super) fn finish(&mut self) {
        self.stage = Stage::Over;
    }

    /// Probes for a manifest.
    pub(super) fn probe(&mut self, now: Instant, first_segment: u64) {
        let mut first = self.mapping.version_prefix(self.versioned.as_view());
        first.append_segment(first_segment);
        self.stage = Stage::Probing { first_segment: None, level: 1, has_part: false };
        self.request_manifest_part(now, 1, self.selectors);
        let request = Request::new(&first, self.selectors, DISCOVERY_TRIES, now);
        self.requests.add(Purpose::FirstSegment, request);
    }

    /// Requests the first packet of a stream, again for the `times`-th time. It shows whether the
    /// stream has manifests.
    pub(super) fn probe_stream(&mut self, now: Instant, times: u32) {
        let mut first = self.versioned.clone();
        first.append_segment(0);
        let must_be_fresh = self.selectors.must_be_fresh || times > 1;
        let selectors = Selectors { must_be_fresh, ..self.selectors };
        // The verified packet ends the probe, and not the time.
        self.stage = Stage::Probing { first_segment: None, level: 1, has_part: true };
        let request = Request::new(&first, selectors, DISCOVERY_TRIES, now);
        self.requests.add(Purpose::FirstPacket, request);
    }

    /// Forgets the first segment: it is a manifest, or not wanted.
    pub(super) fn drop_first_segment(&mut self) {
        if let Stage::Probing { first_segment, .. } = &mut self.stage {
            *first_segment = None;
        }
    }

    /// Requests the first part of a level.
    fn request_manifest_part(&mut self, now: Instant, level: u8, selectors: Selectors) {
        let part = PartId { level, number: 0 };
        let name = self.mapping.part_name(self.versioned.as_view(), part);
        let request = Request::new(&name, selectors, SINGLE_TRIES, now);
        self.requests.add(Purpose::Manifest, request);
    }

    /// A part of a manifest of this shape arrived. The producer signs only the highest level. So
    /// the first part of that level is requested and verified before it is used.
    fn on_manifest_part(&mut self, now: Instant, shape: ManifestShape, incoming: Incoming) -> Step {
        let Stage::Probing { level, has_part, .. } = &mut self.stage else { return Step::Wait };
        *has_part = true;
        match shape.levels.cmp(level) {
            Ordering::Equal => Step::Verify { index: probe_index(shape.levels), incoming },
            Ordering::Greater => {
                *level = shape.levels;
                self.request_manifest_part(now, shape.levels, self.selectors);
                Step::Wait
            }
            Ordering::Less => Step::BadManifest,
        }
    }

    /// The manifest part was not usable, for the `times`-th time. Requests another copy a few
    /// times. After that, continues as if the object had no manifest.
    pub(super) fn on_bad_manifest(&mut self, now: Instant, times: u32) -> Step {
        let Stage::Probing { level, has_part, .. } = &mut self.stage else { return Step::Wait };
        // The bad part may have stated a wrong number of levels, so the probe begins again at 1.
        (*level, *has_part) = (1, true);
        if times > BAD_COPIES_MAX {
            return self.without_manifest();
        }
        let must_be_fresh = self.selectors.must_be_fresh || times > 1;
        self.request_manifest_part(now, 1, Selectors { must_be_fresh, ..self.selectors });
        Step::Wait
    }

    /// Continues after [`Step::FirstSegment`].
    pub(super) fn on_first_segment(&mut self) -> Step {
        let Stage::Probing { has_part: false, .. } = self.stage else { return Step::Wait };
        match self.requests.contains(Purpose::Manifest) {
            true => Step::Wait,
            false => self.end_probe(None),
        }
    }

    /// There is no usable manifest. Continues without one, once the object is known to exist.
    fn without_manifest(&mut self) -> Step {
        self.requests.take(Purpose::Manifest);
        let Stage::Probing { first_segment: held, has_part, .. } = &mut self.stage else {
            return Step::Wait;
        };
        *has_part = false;
        if held.is_some() { self.end_probe(None) } else { Step::Wait }
    }

    /// Ends the probe: it is known whether there is a manifest.
    pub(super) fn end_probe(&mut self, manifest: Option<ManifestShape>) -> Step {
        let Stage::Probing { first_segment: held, .. } = &mut self.stage else { return Step::Wait };
        let held = held.take();
        self.requests.clear();
        self.stage = Stage::Over;
        // With two levels the first segment must wait for a part of each. In the meantime it could
        // fill the buffer that these parts need, so it is dropped and requested again.
        let is_of_use = manifest.is_none_or(|shape| shape.levels == 1);
        let first_segment = held.filter(|_| is_of_use).map(|(incoming, _)| incoming);
        Step::Begin { manifest, first_segment }
    }

    /// Ends the probe when it has waited long enough for the manifest.
    pub(super) fn advance(&mut self, now: Instant) -> Step {
        match self.stage {
            Stage::Probing { first_segment: Some((_, until)), has_part: false, .. }
                if now >= until =>
            {
                self.end_probe(None)
            }
            _ => Step::Wait,
        }
    }

    /// Takes a Nack and returns the next step; `None` if it belongs to another Interest.
    pub(super) fn on_nack(
        &mut self,
        now: Instant,
        interest: &InterestView<'_>,
        nack: Nack,
    ) -> Option<Step> {
        let (question, result) = self.requests.on_nack(interest, nack, now)?;
        Some(match (question, result) {
            (_, Err(give_up)) => self.on_request_failed(now, question, give_up),
            // Another path may have an answer.
            (_, Ok(false)) => Step::Wait,
            // Duplicate says nothing about the manifest. Any other reason means that there is none.
            (Purpose::Manifest, Ok(true)) if nack.reason != NackReason::Duplicate => {
                self.without_manifest()
            }
            // If stale metadata are acceptable, the user need not wait for a producer that may be
            // starting up.
            (Purpose::Version, Ok(true))
                if nack.reason == NackReason::NoRoute
                    && self.requests.refusals(Purpose::Version) >= REFUSALS_BEFORE_STORES
                    && self.can_query_stores() =>
            {
                self.query_stores(now, FailReason::NoRoute);
                Step::Wait
            }
            _ => Step::Wait,
        })
    }

    /// Sends requests that are due, and counts them in `sent`. Returns at the first request that
    /// failed, with the next step; the caller calls again.
    pub(super) fn poll(
        &mut self,
        now: Instant,
        paths: &[PathId],
        rng: &mut Rng,
        out: &mut InterestBatch,
        sent: &mut u64,
    ) -> Option<Step> {
        let polled = self.requests.poll(paths, now, rng, out, |_, _| *sent += 1);
        polled.err().map(|(question, reason)| self.on_request_failed(now, question, reason))
    }

    pub(super) fn path_removed(&mut self, path: PathId, now: Instant) {
        self.requests.path_removed(path, now);
    }

    /// Whether stale metadata are acceptable and have not been requested.
    fn can_query_stores(&self) -> bool {
        let is_wanted = matches!(self.target, Target::Latest { allow_stored: true, .. });
        is_wanted && self.queried_stores.is_none()
    }

    fn query_stores(&mut self, now: Instant, reason: FailReason) {
        self.queried_stores = Some(reason);
        self.request_version(now, true);
    }

    /// A request failed. Without the first segment there is nothing to fetch. Without a manifest,
    /// segments are verified by their signatures.
    fn on_request_failed(&mut self, now: Instant, question: Purpose, reason: FailReason) -> Step {
        match (question, &self.stage) {
            (Purpose::Manifest, _) => return self.without_manifest(),
            // No store has the metadata, so only the producer can answer.
            (Purpose::Version, Stage::Version { is_stored: true })
                if reason == FailReason::NoRoute =>
            {
                self.request_version(now, false);
            }
            (Purpose::Version, Stage::Version { is_stored: false }) if self.can_query_stores() => {
                self.query_stores(now, reason);
            }
            // A rejected answer explains more than a missing one.
            _ => return self.last_refusal.take().map_or(Step::Unanswered(reason), Step::Failed),
        }
        Step::Wait
    }
}
