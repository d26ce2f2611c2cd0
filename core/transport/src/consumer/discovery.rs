//! What there is to fetch: the name of the version, and whether it has a manifest.

use alloc::string::ToString;
use alloc::sync::Arc;
use core::cmp::Ordering;

use weir_base::{Instant, NS_PER_MS, Packet};
use weir_security::Verifier;
use weir_security::manifest::{ManifestError, ManifestPart, PartId, Shape};
use weir_wire::{DataView, NackReason};

use super::config::Verification;
use super::naming::{METADATA_INDEX, Naming, probe_index};
use super::requests::Purpose;
use super::scoreboard::{Failed, GiveUp, HoleRules};
use super::target::{Part, Target, Unit};
use super::verify::{Incoming, REFUSALS_MAX};
use super::{
    Consumer, ConsumerError, ConsumerEvent, ConsumerOutbox, DISCOVERY_TRIES, SINGLE_TRIES, Stage,
};
use crate::PathId;
use crate::interest::Selectors;
use crate::metadata::Metadata;
use crate::request::{Request, Tries};
use crate::segment_set::SegmentSet;

/// For what only a router's store may have: 1 + 2 s.
const STORED_TRIES: Tries = Tries { sends_max: 2, nacks_max: 1, needs_route: false };
/// Once the first segment is there, its manifest is waited for this many round trips, and at least
/// this long.
const MANIFEST_ROUND_TRIPS: u64 = 4;
const MANIFEST_WAIT_MIN_NS: u64 = 100 * NS_PER_MS;

impl Consumer {
    /// Looks for the name of the version, perhaps once more, and perhaps in stores.
    pub(super) fn discover(&mut self, now: Instant, is_stored: bool) {
        let ((name, can_be_prefix), must_be_fresh, tries) = match &self.target {
            Target::Latest { object, .. } => {
                let name = self.config.mapping.metadata_interest(object.as_view());
                (name, !is_stored, if is_stored { STORED_TRIES } else { DISCOVERY_TRIES })
            }
            other => ((other.name(), true), false, DISCOVERY_TRIES),
        };
        let selectors = Selectors {
            can_be_prefix,
            must_be_fresh,
            lifetime_ms: self.config.lifetime_ms,
            nonce: 0,
        };
        self.requests.clear();
        self.requests.add(Purpose::Discovery, Request::new(&name, selectors, tries, now));
        self.stage = Stage::Discovering { is_stored };
    }

    /// Data came before the scoreboard took over.
    pub(super) fn answered(
        &mut self,
        now: Instant,
        data: &DataView<'_>,
        incoming: Incoming,
        out: &mut ConsumerOutbox,
    ) {
        let Some((purpose, request)) = self.requests.take_answered(data) else {
            self.stats.unwanted += 1;
            return;
        };
        let rtt_ns = request.rtt_ns(now);
        if let Some(rtt_ns) = rtt_ns {
            self.scoreboard.first_rtt(request.path(), rtt_ns);
        }
        let is_refusal = data.is_nack();
        if purpose == Purpose::Manifest {
            return match ManifestPart::decode(data.content) {
                Ok(part) if !is_refusal => self.probed(now, part.shape, incoming, out),
                // A bad copy, perhaps.
                Err(ManifestError::Malformed) if !is_refusal => self.part_refused(now, out),
                _ => self.no_manifest(now, out),
            };
        }
        if is_refusal && purpose == Purpose::FirstSegment {
            // Routers may have kept it from before there was such a version.
            match request.refreshed(now) {
                Some(again) => self.requests.add(Purpose::FirstSegment, again),
                None => self.fail(ConsumerError::Refused(self.target.name()), out),
            }
            return;
        }
        let Stage::Probing { held, has_part, .. } = &mut self.stage else {
            return self.discovered(now, data, incoming, out);
        };
        let wait_ns = MANIFEST_ROUND_TRIPS * rtt_ns.unwrap_or(0);
        *held = Some((incoming, now.plus_ns(wait_ns.max(MANIFEST_WAIT_MIN_NS))));
        let has_part = *has_part;
        self.learn_last(data, out);
        if !has_part && !self.requests.contains(Purpose::Manifest) {
            self.end_probe(now, None, out);
        }
    }

    /// The Data that discovery asked for came.
    fn discovered(
        &mut self,
        now: Instant,
        data: &DataView<'_>,
        incoming: Incoming,
        out: &mut ConsumerOutbox,
    ) {
        let Stage::Discovering { is_stored } = self.stage else { return };
        let object = self.target.name();
        if data.is_nack() {
            if is_stored {
                return self.give_up(now, Purpose::Discovery, GiveUp::NoRoute, out);
            }
            self.stage = Stage::Believing { metadata: None, is_stored };
            return self.accept(now, METADATA_INDEX, incoming, out);
        }
        if let Target::Prefix { .. } = self.target {
            // The Data is a segment, or the whole object.
            let is_segment = data.name.last().is_some_and(|last| last.as_segment().is_some());
            let versioned = if is_segment { data.name.parent() } else { data.name }.to_name();
            let mut metadata = Metadata::new(versioned);
            if !is_segment {
                metadata.last_segment = Some(0);
                self.layout_mut().set_whole();
            }
            return self.found(metadata, false, out);
        }
        let metadata = match Metadata::decode(data.content) {
            Ok(metadata) => metadata,
            Err(error) => {
                let error = ConsumerError::Metadata { name: object, error };
                return self.refuse_metadata(now, error, out);
            }
        };
        if !object.as_view().is_prefix_of(metadata.versioned.as_view()) {
            let versioned = metadata.versioned;
            let error = ConsumerError::Elsewhere { object, versioned };
            return self.refuse_metadata(now, error, out);
        }
        self.stage = Stage::Believing { metadata: Some(metadata), is_stored };
        self.accept(now, METADATA_INDEX, incoming, out);
    }

    /// What came is no metadata of the object, or not what its producer signed: it is asked for
    /// once more, fresh, so that routers pass over a bad copy, or given up.
    pub(super) fn refuse_metadata(
        &mut self,
        now: Instant,
        error: ConsumerError,
        out: &mut ConsumerOutbox,
    ) {
        if self.verification.count_refusal(METADATA_INDEX) > REFUSALS_MAX {
            return self.fail(error, out);
        }
        if self.live.is_some() {
            return self.renew_again(now);
        }
        self.refused = Some(error);
        self.discover(now, false);
    }

    /// The metadata is what its producer signed.
    pub(super) fn believed(&mut self, out: &mut ConsumerOutbox) {
        if let Stage::Believing { metadata, is_stored } = &self.stage {
            let (metadata, is_stored) = (metadata.clone(), *is_stored);
            match metadata {
                Some(metadata) => self.found(metadata, is_stored, out),
                None => self.fail(ConsumerError::Refused(self.target.name()), out),
            }
        }
        self.renewal_believed();
    }

    pub(super) fn found(&mut self, metadata: Metadata, is_stored: bool, out: &mut ConsumerOutbox) {
        self.layout_mut().set_version(metadata.versioned.as_view());
        self.metadata = Some(metadata.clone());
        self.refused = None;
        self.stage = Stage::Waiting;
        out.events.push(ConsumerEvent::Found { metadata, is_stored });
    }

    pub(super) fn start(&mut self, now: Instant, have: SegmentSet, out: &mut ConsumerOutbox) {
        let (Stage::Waiting, Some(metadata)) = (&self.stage, &self.metadata) else { return };
        let Naming::Object(layout) = &self.naming else { return };
        self.have = have;
        let is_told = matches!(self.target, Target::Latest { .. } | Target::Known { .. });
        let knows = is_told || layout.is_whole();
        let (last, manifest) = (metadata.last_segment, metadata.manifest);
        let grows = metadata.grows();
        let looks = self.config.look_for_manifest && self.manifest_is_of_use();
        if knows || !looks {
            if let Some(last) = last {
                self.set_last(last, false, out);
                if self.is_over() {
                    return;
                }
            }
            self.begin(manifest.filter(|_| !grows), out);
            return self.begin_live(now);
        }
        let mut first = self.config.mapping.version_prefix(metadata.versioned.as_view());
        first.append_segment(layout.first_segment());
        self.stage = Stage::Probing { held: None, level: 1, has_part: false };
        self.ask_for_part(now, self.selectors());
        let request = Request::new(&first, self.selectors(), DISCOVERY_TRIES, now);
        self.requests.add(Purpose::FirstSegment, request);
    }

    /// Asks for the first part of the level that is sought.
    fn ask_for_part(&mut self, now: Instant, selectors: Selectors) {
        let (Stage::Probing { level, .. }, Some(metadata)) = (&self.stage, &self.metadata) else {
            return;
        };
        let part = PartId { level: *level, number: 0 };
        let name = self.config.mapping.part_name(metadata.versioned.as_view(), part);
        let request = Request::new(&name, selectors, SINGLE_TRIES, now);
        self.requests.add(Purpose::Manifest, request);
    }

    /// A part of a manifest of that shape came, if it is to be believed. Only the highest level is
    /// signed by its producer: that part is asked for, and verified before anything is made of it.
    fn probed(&mut self, now: Instant, shape: Shape, incoming: Incoming, out: &mut ConsumerOutbox) {
        let Stage::Probing { level, has_part, .. } = &mut self.stage else { return };
        *has_part = true;
        match shape.levels.cmp(level) {
            Ordering::Equal => self.accept(now, probe_index(shape.levels), incoming, out),
            Ordering::Greater => {
                *level = shape.levels;
                self.ask_for_part(now, self.selectors());
            }
            Ordering::Less => self.part_refused(now, out),
        }
    }

    /// The part of the manifest that came first is not what the producer signed: another is asked
    /// for a few times, and then there is none.
    pub(super) fn part_refused(&mut self, now: Instant, out: &mut ConsumerOutbox) {
        let times = self.verification.count_refusal(probe_index(1));
        let Stage::Probing { level, has_part, .. } = &mut self.stage else { return };
        (*level, *has_part) = (1, true);
        if times > REFUSALS_MAX {
            return self.no_manifest(now, out);
        }
        let selectors = self.selectors();
        let must_be_fresh = selectors.must_be_fresh || times > 1;
        self.ask_for_part(now, Selectors { must_be_fresh, ..selectors });
    }

    /// The part of the manifest that came first is what its producer signed.
    pub(super) fn part_believed(
        &mut self,
        now: Instant,
        id: PartId,
        content: &[u8],
        signer: Option<Arc<dyn Verifier>>,
        out: &mut ConsumerOutbox,
    ) {
        let Ok(part) = ManifestPart::decode(content) else { return };
        self.first_part = Some(id);
        self.end_probe(now, Some(part.shape), out);
        if let Err(error) = self.verification.take_part(id, content, signer) {
            let what = "the manifest".into();
            return self.fail(ConsumerError::Unverified { what, reason: error.to_string() }, out);
        }
        self.release(now, out);
    }

    /// All that a manifest is for is verification.
    fn manifest_is_of_use(&self) -> bool {
        self.config.verification == Verification::Signatures && self.config.use_manifest
    }

    /// The names of all segments are known: the scoreboard takes over.
    fn begin(&mut self, manifest: Option<Shape>, out: &mut ConsumerOutbox) {
        let manifest = manifest.filter(|_| self.manifest_is_of_use());
        let layout = self.layout_mut();
        layout.set_manifest(manifest);
        let first_index = layout.first_index();
        self.scoreboard.start_at(first_index);
        self.reader.start_at(first_index);
        self.set_limit();
        if self.config.is_reliable && self.config.sets_aside {
            self.scoreboard.set_hole_rules(HoleRules::Watch);
        }
        self.stage = Stage::Fetching;
        self.verification.set_manifest(manifest);
        out.events.push(ConsumerEvent::Manifest { shape: manifest });
    }

    /// Goes on without a manifest, or with one, once the first segment or a part is there.
    pub(super) fn end_probe(
        &mut self,
        now: Instant,
        manifest: Option<Shape>,
        out: &mut ConsumerOutbox,
    ) {
        let Stage::Probing { held, .. } = &mut self.stage else { return };
        let held = held.take();
        self.requests.clear();
        self.begin(manifest, out);
        // What waits for parts of two levels might take up all the room that these need.
        if let Some((incoming, _)) = held.filter(|_| manifest.is_none_or(|it| it.levels == 1)) {
            let Naming::Object(layout) = &self.naming else { return };
            let first = layout.first_segment();
            if !self.have.contains(first) {
                self.first_segment_done = true;
                self.accept_at(now, Part::Unit(Unit::segment(first)), incoming, out);
            }
        }
    }

    fn accept_at(
        &mut self,
        now: Instant,
        part: Part,
        incoming: Incoming,
        out: &mut ConsumerOutbox,
    ) {
        let Naming::Object(layout) = &self.naming else { return };
        // Without verification there are no parts of the manifest.
        let Some(index) = layout.index_of(part) else { return };
        self.accept(now, index, incoming, out);
    }

    /// The manifest cannot be had: on without it, once it is known that the object can.
    fn no_manifest(&mut self, now: Instant, out: &mut ConsumerOutbox) {
        self.requests.take(Purpose::Manifest);
        let Stage::Probing { held, has_part, .. } = &mut self.stage else { return };
        *has_part = false;
        if held.is_some() {
            self.end_probe(now, None, out);
        }
    }

    /// A request was refused, perhaps for the last time.
    pub(super) fn request_nacked(
        &mut self,
        now: Instant,
        (purpose, result): (Purpose, Result<bool, GiveUp>),
        reason: NackReason,
        out: &mut ConsumerOutbox,
    ) {
        match (purpose, result) {
            (_, Err(give_up)) => self.give_up(now, purpose, give_up, out),
            // Another path may have it.
            (_, Ok(false)) => {}
            // A Nack of Duplicate says nothing about the manifest; any other, that it cannot be
            // had.
            (Purpose::Manifest, Ok(true)) if reason != NackReason::Duplicate => {
                self.no_manifest(now, out);
            }
            // While the producer may be coming up, a store may do.
            (Purpose::Discovery, Ok(true))
                if reason == NackReason::NoRoute && self.may_ask_stores() =>
            {
                self.ask_stores(now);
            }
            _ => {}
        }
    }

    /// Whether metadata that need not be fresh will do, and has not been asked for.
    fn may_ask_stores(&self) -> bool {
        let is_wanted = matches!(self.target, Target::Latest { allow_stored: true, .. });
        is_wanted && !self.has_asked_stores
    }

    fn ask_stores(&mut self, now: Instant) {
        self.has_asked_stores = true;
        self.discover(now, true);
    }

    /// A single request has come to nothing. Without the first segment there is nothing; without
    /// the manifest there are signatures.
    pub(super) fn give_up(
        &mut self,
        now: Instant,
        purpose: Purpose,
        reason: GiveUp,
        out: &mut ConsumerOutbox,
    ) {
        match (purpose, &self.stage) {
            (Purpose::Again(index), _) => self.unit_failed(now, Failed { index, reason }, out),
            (Purpose::Manifest, _) => self.no_manifest(now, out),
            // Segments have come since: there is a producer.
            (Purpose::Renewal, _) if self.is_heard_of(now) => {}
            // No store has it: back to waiting for the producer.
            (Purpose::Discovery, Stage::Discovering { is_stored: true })
                if reason == GiveUp::NoRoute =>
            {
                self.discover(now, false);
            }
            (Purpose::Discovery, Stage::Discovering { is_stored: false })
                if self.may_ask_stores() =>
            {
                self.ask_stores(now);
            }
            _ => {
                // What came and was not believed says more than that nothing else came.
                let refused = self.refused.take();
                let error = refused.unwrap_or_else(|| self.error_of(self.target.name(), reason));
                self.fail(error, out);
            }
        }
    }
}

impl Incoming {
    pub(super) fn new(
        data: &DataView<'_>,
        packet: Packet,
        path: PathId,
        incoming_face: Option<weir_base::FaceId>,
    ) -> Self {
        Self {
            last_segment: data.final_block_id().and_then(|component| component.as_segment()),
            content_bytes: data.content.len() as u32,
            packet,
            path,
            incoming_face,
        }
    }
}
