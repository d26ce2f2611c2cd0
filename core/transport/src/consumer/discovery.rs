//! What there is to fetch: the name of the version, and whether it has a manifest.

use weir_base::{Instant, NS_PER_MS, Packet};
use weir_security::manifest::{MANIFEST_KEYWORD, ManifestPart};
use weir_wire::{DataView, InterestView, NackReason, Name};

use super::config::Verification;
use super::naming::{METADATA_INDEX, Naming};
use super::target::Target;
use super::verify::{Incoming, REFUSALS_MAX};
use super::{
    CONTENT_TYPE_NACK, Consumer, ConsumerError, ConsumerEvent, ConsumerOutbox, DISCOVERY_TRIES,
    Stage, error_of,
};
use crate::PathId;
use crate::consumer::scoreboard::GiveUp;
use crate::interest::Selectors;
use crate::metadata::{METADATA_KEYWORD, Metadata};
use crate::request::{Request, Tries};
use crate::segment_set::SegmentSet;

/// For what only a router's store may have: 1 + 2 s.
const STORED_TRIES: Tries = Tries { sends_max: 2, nacks_max: 1 };
/// Once the first segment is there, its manifest is waited for this many round trips, and at least
/// this long.
const MANIFEST_ROUND_TRIPS: u64 = 4;
const MANIFEST_WAIT_MIN_NS: u64 = 100 * NS_PER_MS;

/// Looks whether a version has a manifest.
#[derive(Debug)]
pub(super) struct Probe {
    /// `None` once it is known that there is no manifest.
    manifest: Option<Request>,
    first: Request,
    /// The first segment, once it has come, and when to go on without a manifest.
    held: Option<(Incoming, Instant)>,
}

impl Probe {
    pub(super) fn next_wakeup(&self) -> Instant {
        let first = self.held.as_ref().map_or(self.first.due_at(), |&(_, at)| at);
        self.manifest.as_ref().map_or(first, |request| request.due_at().min(first))
    }

    pub(super) fn path_removed(&mut self, path: PathId, now: Instant) {
        self.first.path_removed(path, now);
        if let Some(manifest) = &mut self.manifest {
            manifest.path_removed(path, now);
        }
    }
}

impl Consumer {
    pub(super) fn discover(&self, now: Instant, is_stored: bool) -> Stage {
        let (name, must_be_fresh, tries) = match &self.target {
            Target::Latest { object, .. } => {
                let mut name = object.clone();
                name.append_keyword(METADATA_KEYWORD);
                (name, !is_stored, if is_stored { STORED_TRIES } else { DISCOVERY_TRIES })
            }
            other => (other.name(), false, DISCOVERY_TRIES),
        };
        let selectors = Selectors {
            can_be_prefix: true,
            must_be_fresh,
            lifetime_ms: self.config.lifetime_ms,
            nonce: 0,
        };
        let request = Request::new(name.value().to_vec(), selectors, tries, now);
        Stage::Discovering { request, is_stored }
    }

    /// A Data that discovery asked for came.
    pub(super) fn discovered(
        &mut self,
        now: Instant,
        data: &DataView<'_>,
        incoming: Incoming,
        out: &mut ConsumerOutbox,
    ) {
        let Stage::Discovering { request, is_stored } = &self.stage else { return };
        let is_stored = *is_stored;
        if let Some(rtt_ns) = request.rtt_ns(now) {
            self.scoreboard.first_rtt(request.path(), rtt_ns);
        }
        if data.content_type == CONTENT_TYPE_NACK {
            return self.fail(ConsumerError::Refused(data.name.to_name()), out);
        }
        let object = self.target.name();
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
        self.stage = Stage::Believing { metadata, is_stored };
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
        self.stage = self.discover(now, false);
    }

    /// The metadata is what its producer signed.
    pub(super) fn believed(&mut self, out: &mut ConsumerOutbox) {
        if let Stage::Believing { metadata, is_stored } = &self.stage {
            let (metadata, is_stored) = (metadata.clone(), *is_stored);
            self.found(metadata, is_stored, out);
        }
    }

    pub(super) fn found(&mut self, metadata: Metadata, is_stored: bool, out: &mut ConsumerOutbox) {
        self.layout_mut().set_prefix(metadata.versioned.as_view());
        self.metadata = Some(metadata.clone());
        self.stage = Stage::Waiting;
        out.events.push(ConsumerEvent::Found { metadata, is_stored });
    }

    pub(super) fn start(&mut self, now: Instant, have: SegmentSet, out: &mut ConsumerOutbox) {
        let (Stage::Waiting, Some(metadata)) = (&self.stage, &self.metadata) else { return };
        let Naming::Object(layout) = &self.naming else { return };
        self.have = have;
        let knows = matches!(self.target, Target::Latest { .. }) || layout.is_whole();
        let (last, per_part) = (metadata.last_segment, metadata.digests_per_part);
        if knows || !self.config.look_for_manifest {
            if let Some(last) = last {
                self.set_last(last, false, out);
            }
            return self.begin(per_part, out);
        }
        let selectors = self.selectors();
        let mut manifest = metadata.versioned.clone();
        manifest.append_keyword(MANIFEST_KEYWORD).append_segment(0);
        let mut first = metadata.versioned.clone();
        first.append_segment(layout.first_segment());
        let request =
            |name: Name| Request::new(name.value().to_vec(), selectors, DISCOVERY_TRIES, now);
        let (manifest, first) = (Some(request(manifest)), request(first));
        self.stage = Stage::Probing(Probe { manifest, first, held: None });
    }

    /// The names of all segments are known: the scoreboard takes over.
    fn begin(&mut self, digests_per_part: Option<u64>, out: &mut ConsumerOutbox) {
        // All that a manifest is for is verification.
        let is_of_use = self.config.verification == Verification::Signatures;
        let digests_per_part = digests_per_part.filter(|_| is_of_use);
        let layout = self.layout_mut();
        layout.set_digests_per_part(digests_per_part);
        let first_index = layout.first_index();
        self.scoreboard.start_at(first_index);
        self.reader.start_at(first_index);
        self.set_limit();
        self.stage = Stage::Fetching;
        self.verification.has_manifest = digests_per_part.is_some();
        out.events.push(ConsumerEvent::Manifest { digests_per_part });
    }

    /// Goes on without a manifest, or with one, once the first segment or a part is there.
    fn end_probe(&mut self, now: Instant, per_part: Option<u64>, out: &mut ConsumerOutbox) {
        let Stage::Probing(probe) = &mut self.stage else { return };
        let held = probe.held.take();
        self.begin(per_part, out);
        if let Some((incoming, _)) = held {
            let Naming::Object(layout) = &self.naming else { return };
            let first = layout.first_segment();
            if !self.have.contains(first) {
                self.first_segment_done = true;
                let index = layout.index_of(super::Part::Unit(super::Unit::segment(first)));
                self.accept(now, index.expect("a segment has a place"), incoming, out);
            }
        }
    }

    pub(super) fn probed(
        &mut self,
        now: Instant,
        data: &DataView<'_>,
        incoming: Incoming,
        out: &mut ConsumerOutbox,
    ) {
        let Stage::Probing(probe) = &mut self.stage else { return };
        if let Some(request) = probe.manifest.take_if(|request| request.is_answered_by(data)) {
            if let Some(rtt_ns) = request.rtt_ns(now) {
                self.scoreboard.first_rtt(request.path(), rtt_ns);
            }
            let part = ManifestPart::decode(data.content).ok();
            if let Some(part) = part.filter(|_| data.content_type != CONTENT_TYPE_NACK) {
                self.first_part_done = true;
                self.end_probe(now, Some(part.digests_per_part as u64), out);
                self.accept(now, 0, incoming, out);
            } else {
                self.no_manifest(now, out);
            }
        } else if probe.first.is_answered_by(data) && probe.held.is_none() {
            if data.content_type == CONTENT_TYPE_NACK {
                return self.fail(ConsumerError::Refused(data.name.to_name()), out);
            }
            let rtt_ns = probe.first.rtt_ns(now);
            let wait_ns = MANIFEST_ROUND_TRIPS * rtt_ns.unwrap_or(0);
            probe.held = Some((incoming, now.plus_ns(wait_ns.max(MANIFEST_WAIT_MIN_NS))));
            let is_without_manifest = probe.manifest.is_none();
            if let Some(rtt_ns) = rtt_ns {
                self.scoreboard.first_rtt(probe.first.path(), rtt_ns);
            }
            self.learn_last(data, out);
            if is_without_manifest {
                self.end_probe(now, None, out);
            }
        } else {
            self.stats.unwanted += 1;
        }
    }

    /// The manifest cannot be had: on without it, once it is known that the object can.
    fn no_manifest(&mut self, now: Instant, out: &mut ConsumerOutbox) {
        let Stage::Probing(probe) = &mut self.stage else { return };
        probe.manifest = None;
        if probe.held.is_some() {
            self.end_probe(now, None, out);
        }
    }

    /// A Nack came before the scoreboard took over.
    pub(super) fn early_nack(
        &mut self,
        now: Instant,
        interest: &InterestView<'_>,
        reason: NackReason,
        out: &mut ConsumerOutbox,
    ) {
        match &mut self.stage {
            Stage::Discovering { request, .. } => {
                self.stats.nacks += 1;
                match request.nacked(interest, reason, now) {
                    Err(give_up) => self.give_up(now, give_up, out),
                    // While the producer may be coming up, a store may do.
                    Ok(true) if reason == NackReason::NoRoute => {
                        self.ask_stores(now);
                    }
                    Ok(_) => {}
                }
            }
            Stage::Probing(probe) => {
                self.stats.nacks += 1;
                let manifest = probe.manifest.as_mut();
                if let Some(request) = manifest.filter(|request| request.name() == interest.name) {
                    // A Nack of Duplicate says nothing about the manifest; any other, that it
                    // cannot be had.
                    let result = request.nacked(interest, reason, now);
                    if result.is_err() || reason != NackReason::Duplicate {
                        self.no_manifest(now, out);
                    }
                } else if let Err(give_up) = probe.first.nacked(interest, reason, now) {
                    self.give_up(now, give_up, out);
                }
            }
            _ => {}
        }
    }

    /// Asks for metadata that need not be fresh, if that is wanted and has not been done. Whether
    /// it is done now.
    fn ask_stores(&mut self, now: Instant) -> bool {
        let is_wanted = matches!(self.target, Target::Latest { allow_stored: true, .. });
        if !is_wanted || self.has_asked_stores {
            return false;
        }
        self.has_asked_stores = true;
        self.stage = self.discover(now, true);
        true
    }

    /// A single request has come to nothing.
    fn give_up(&mut self, now: Instant, reason: GiveUp, out: &mut ConsumerOutbox) {
        if let Stage::Discovering { is_stored, .. } = self.stage {
            if is_stored && reason == GiveUp::NoRoute {
                // No store has it: back to waiting for the producer.
                self.stage = self.discover(now, false);
                return;
            }
            if !is_stored && self.ask_stores(now) {
                return;
            }
        }
        self.fail(error_of(self.target.name(), reason), out);
    }

    pub(super) fn advance_discovery(&mut self, now: Instant, out: &mut ConsumerOutbox) {
        let Some(path) = self.scoreboard.first_path() else { return };
        while let Stage::Discovering { request, .. } = &mut self.stage {
            match request.poll(path, now, &mut self.rng, &mut out.interests) {
                Ok(is_sent) => {
                    self.stats.interests += u64::from(is_sent);
                    return;
                }
                Err(give_up) => self.give_up(now, give_up, out),
            }
        }
    }

    pub(super) fn advance_probe(&mut self, now: Instant, out: &mut ConsumerOutbox) {
        let Some(path) = self.scoreboard.first_path() else { return };
        let Stage::Probing(probe) = &mut self.stage else { return };
        if probe.held.as_ref().is_some_and(|&(_, until)| now >= until) {
            return self.end_probe(now, None, out);
        }
        let batch = &mut out.interests;
        let before = batch.len();
        let manifest = match &mut probe.manifest {
            Some(request) => request.poll(path, now, &mut self.rng, batch),
            None => Ok(false),
        };
        let first = match probe.held {
            Some(_) => Ok(false),
            None => probe.first.poll(path, now, &mut self.rng, batch),
        };
        self.stats.interests += (batch.len() - before) as u64;
        // Without the first segment there is nothing; without the manifest there are signatures.
        if let Err(give_up) = first {
            return self.give_up(now, give_up, out);
        }
        if manifest.is_err() {
            self.no_manifest(now, out);
        }
    }
}

impl Incoming {
    pub(super) fn new(
        data: &DataView<'_>,
        packet: Packet,
        incoming_face: Option<weir_base::FaceId>,
    ) -> Self {
        Self {
            last_segment: data.final_block_id.and_then(|component| component.as_segment()),
            content_bytes: data.content.len() as u32,
            packet,
            incoming_face,
        }
    }
}
