//! The consumer of one segmented object.

mod again;
mod layout;

use alloc::vec::Vec;
use core::fmt;

use weir_base::{FaceId, Instant, NS_PER_MS, Packet, Rng, RttConfig};
use weir_security::manifest::{MANIFEST_KEYWORD, ManifestPart};
use weir_wire::{DataView, InterestView, LpHeader, NackReason, Name};

use self::again::AskedAgain;
use self::layout::Layout;
use crate::congestion::Controller;
use crate::interest::{InterestBatch, Selectors};
use crate::metadata::{METADATA_KEYWORD, Metadata};
use crate::pipeline::{Answered, Failed, GiveUp, Pipeline, PipelineConfig};
use crate::request::{Request, Tries};
use crate::segment_set::SegmentSet;
use crate::stats::FetchStats;

pub use self::layout::Part;

/// ContentType of an application's refusal (NDN packet 0.3).
const CONTENT_TYPE_NACK: u64 = 3;
/// Discovery is tried so often: 1 + 2 + 4 + 4 s with the default lifetime.
const DISCOVERY_TRIES: Tries = Tries { sends_max: 4, nacks_max: 6 };
/// For what only a router's store may have: 1 + 2 s.
const STORED_TRIES: Tries = Tries { sends_max: 2, nacks_max: 1 };
/// Once the first segment is there, its manifest is waited for so many round trips, and at least so
/// long.
const MANIFEST_ROUND_TRIPS: u64 = 4;
const MANIFEST_WAIT_MIN_NS: u64 = 100 * NS_PER_MS;

/// What to fetch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// The latest version of an object, found by its RDR metadata.
    Latest {
        /// Name of the object.
        object: Name,
        /// Whether metadata from a router's store will do when no producer answers.
        allow_stored: bool,
    },
    /// The segments right below a name.
    Version {
        /// The name, usually with a Version component at its end.
        versioned: Name,
    },
    /// Whatever a router or producer has below a name, found with CanBePrefix: an object without
    /// metadata, or one Data that is the whole object.
    Prefix {
        /// The name.
        name: Name,
    },
}

/// How to fetch.
#[derive(Clone, Debug)]
pub struct FetchConfig {
    /// InterestLifetime, in milliseconds.
    pub lifetime_ms: u64,
    /// Times that an Interest is sent again before its segment is given up.
    pub retries_max: u32,
    /// The congestion controller.
    pub controller: Controller,
    /// Its window at the start, or for good if fixed; `None` leaves it to the controller.
    pub window: Option<u32>,
    /// Interests outstanding at most.
    pub window_max: u32,
    /// Segments asked for or handed out and not yet reported as consumed, at most.
    pub unconsumed_max: u32,
    /// Whether stored segments must be fresh.
    pub must_be_fresh: bool,
    /// Whether to look for a digest manifest when metadata does not tell.
    pub look_for_manifest: bool,
    /// The constants of the timeout.
    pub rtt: RttConfig,
}

impl Default for FetchConfig {
    /// Lifetime 4 s and 15 retries as ndnget has them; 4096 segments of 8 kB in flight fill 2.6
    /// Gbit/s over 100 ms.
    fn default() -> Self {
        Self {
            lifetime_ms: 4000,
            retries_max: 15,
            controller: Controller::default(),
            window: None,
            window_max: 4096,
            unconsumed_max: 8192,
            must_be_fresh: false,
            look_for_manifest: true,
            rtt: RttConfig::default(),
        }
    }
}

/// One thing that the fetcher is told.
#[derive(Debug)]
pub enum FetchInput {
    /// A packet from the router: Data, or an Interest that a Nack brings back.
    Packet {
        /// Its link header.
        header: LpHeader,
        /// Exactly one Interest or Data TLV.
        packet: Packet,
    },
    /// Begin with the segments, now that [`FetchEvent::Found`] has been seen.
    Start {
        /// Segments that need not be fetched.
        have: SegmentSet,
    },
    /// So many deliveries have been dealt with.
    Consumed(u32),
    /// A verified segment says which is the last.
    LastSegment(u64),
    /// A delivery is not what the producer signed: it was damaged or forged on the way. It comes
    /// once more, or the fetcher fails.
    AskAgain {
        /// What it claimed to be: a segment or a part of the manifest.
        part: Part,
        /// Its implicit digest, if known: what routers have of its name is passed over then.
        digest: Option<[u8; 32]>,
        /// Whether old copies in routers will not do.
        must_be_fresh: bool,
    },
}

/// A packet for the driver to verify. Each segment and each part comes once, and again only after
/// [`FetchInput::AskAgain`].
#[derive(Clone, Debug)]
pub struct Delivery {
    /// What it is a packet of.
    pub part: Part,
    /// The Data, decodable and of the right name, nothing more.
    pub packet: Packet,
    /// Where the router had it from, if it tells.
    pub incoming_face: Option<FaceId>,
}

/// Something that happened.
#[derive(Clone, Debug)]
pub enum FetchEvent {
    /// The name to fetch is known. The driver checks what it needs and answers with
    /// [`FetchInput::Start`].
    Found {
        /// What is known about the object, not verified.
        metadata: Metadata,
        /// The metadata came from a store and may not be the latest.
        is_stored: bool,
    },
    /// It is known whether there is a digest manifest: if not, every segment is to be verified by
    /// its signature.
    Manifest {
        /// Digests in each part.
        digests_per_part: Option<u64>,
    },
    /// The number of the last segment is known, or known better; not verified.
    LastSegment(u64),
    /// Every segment has been handed out. What the fetcher is told about them may bring it back.
    Done,
    /// The fetcher gives up.
    Failed(FetchError),
}

/// Why an object cannot be fetched.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FetchError {
    /// The router answers that it has no route for the name.
    #[error("no route to {0}")]
    NoRoute(Name),
    /// Nobody answers for the name.
    #[error("nobody answers for {0}")]
    Unanswered(Name),
    /// Interests for the name are refused again and again.
    #[error("{name} is refused: {reason:?}")]
    Nacked {
        /// What was asked for.
        name: Name,
        /// The reason that the router gives.
        reason: NackReason,
    },
    /// The producer answers that it has no such thing.
    #[error("the producer says that it has no {0}")]
    Refused(Name),
    /// Too much of what comes is not what the producer signed.
    #[error("{0} and many packets like it come damaged or forged")]
    Damaged(Name),
    /// The metadata cannot be read.
    #[error("the metadata of {name} cannot be used: {error}")]
    Metadata {
        /// The object.
        name: Name,
        /// What is wrong with it.
        error: crate::metadata::MetadataError,
    },
    /// The metadata is that of another object.
    #[error("the metadata of {object} names {versioned}, which is something else")]
    Elsewhere {
        /// What was asked for.
        object: Name,
        /// What the metadata names.
        versioned: Name,
    },
}

/// What the fetcher wants done. The driver drains the lists; their memory stays.
#[derive(Debug, Default)]
pub struct FetchOutbox {
    /// Interests to send, in order.
    pub interests: InterestBatch,
    /// Packets to verify and store.
    pub deliveries: Vec<Delivery>,
    /// What happened.
    pub events: Vec<FetchEvent>,
}

#[derive(Debug)]
enum Stage {
    Discovering { request: Request, is_stored: bool },
    Waiting,
    Probing(Probe),
    Fetching,
    Over,
}

/// Looks whether a version has a manifest.
#[derive(Debug)]
struct Probe {
    /// `None` once it is known that there is no manifest.
    manifest: Option<Request>,
    first: Request,
    /// When to go on without a manifest; set once the first segment has come.
    give_up_at: Option<Instant>,
}

/// Fetches one object. See [`FetchInput`], [`FetchOutbox`]; the driver calls [`Fetcher::handle`]
/// with what came and whenever [`Fetcher::next_wakeup`] has passed.
pub struct Fetcher {
    config: FetchConfig,
    target: Target,
    rng: Rng,
    stage: Stage,
    pipeline: Pipeline,
    layout: Layout,
    /// Segments that were there or were delivered.
    have: SegmentSet,
    again: AskedAgain,
    /// Routers' stores have been asked for metadata.
    has_asked_stores: bool,
    first_part_done: bool,
    metadata: Option<Metadata>,
    last_segment: Option<u64>,
    last_is_from_segment: bool,
    last_is_verified: bool,
    /// It is over, and well.
    has_handed_out: bool,
    unconsumed: u32,
    stats: FetchStats,
}

impl fmt::Debug for Fetcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fetcher")
            .field("target", &self.target)
            .field("stage", &self.stage)
            .field("last_segment", &self.last_segment)
            .field("unconsumed", &self.unconsumed)
            .finish_non_exhaustive()
    }
}

impl Fetcher {
    /// A fetcher that begins at `now`. `seed` is for nonces.
    pub fn new(target: Target, config: FetchConfig, seed: u64, now: Instant) -> Self {
        let pipeline = Pipeline::new(
            PipelineConfig {
                lifetime_ns: config.lifetime_ms.saturating_mul(NS_PER_MS),
                retries_max: config.retries_max,
                rtt: config.rtt,
            },
            config.controller.make(config.window, config.window_max),
        );
        let mut fetcher = Self {
            target,
            rng: Rng::from_seed(seed),
            stage: Stage::Waiting,
            pipeline,
            layout: Layout::new(Name::new().as_view()),
            have: SegmentSet::new(),
            again: AskedAgain::default(),
            has_asked_stores: false,
            first_part_done: false,
            metadata: None,
            last_segment: None,
            last_is_from_segment: false,
            last_is_verified: false,
            has_handed_out: false,
            unconsumed: 0,
            stats: FetchStats::default(),
            config,
        };
        fetcher.stage = match &fetcher.target {
            Target::Latest { .. } => fetcher.discover(now, false),
            Target::Prefix { .. } => fetcher.discover(now, true),
            Target::Version { .. } => Stage::Waiting,
        };
        fetcher
    }

    /// Takes what came, drained from `inputs`, and appends what is to be done to `out`.
    pub fn handle(&mut self, now: Instant, inputs: &mut Vec<FetchInput>, out: &mut FetchOutbox) {
        if let (Stage::Waiting, None, Target::Version { versioned }) =
            (&self.stage, &self.metadata, &self.target)
        {
            let metadata = Metadata::new(versioned.clone());
            self.found(metadata, false, out);
        }
        for input in inputs.drain(..) {
            match input {
                FetchInput::Packet { header, packet } => {
                    self.packet(now, &header, packet, out);
                }
                FetchInput::Start { have } => self.start(now, have, out),
                FetchInput::Consumed(count) => {
                    debug_assert!(count <= self.unconsumed);
                    self.unconsumed = self.unconsumed.saturating_sub(count);
                }
                FetchInput::LastSegment(last) => {
                    self.last_is_verified = true;
                    self.set_last(last, true, out);
                    self.resume();
                }
                FetchInput::AskAgain { part, digest, must_be_fresh } => {
                    self.ask_again(now, part, digest, must_be_fresh, out);
                }
            }
        }
        self.advance(now, out);
    }

    /// When [`Fetcher::handle`] must be called at the latest if no input comes before.
    pub fn next_wakeup(&self) -> Option<Instant> {
        match &self.stage {
            Stage::Discovering { request, .. } => Some(request.due_at()),
            Stage::Probing(probe) => {
                let first = probe.give_up_at.unwrap_or(probe.first.due_at());
                Some(probe.manifest.as_ref().map_or(first, |request| request.due_at().min(first)))
            }
            Stage::Fetching => {
                let all = [self.pipeline.next_wakeup(), self.again.next_wakeup()];
                all.into_iter().flatten().min()
            }
            Stage::Waiting | Stage::Over => None,
        }
    }

    /// Whether it has ended, well or not.
    pub fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Over)
    }

    /// The number of the last segment, if known; not verified.
    pub fn last_segment(&self) -> Option<u64> {
        self.last_segment
    }

    /// Counters and measures so far.
    pub fn stats(&self) -> FetchStats {
        let rtt = self.pipeline.rtt();
        let histogram = self.pipeline.histogram();
        let mut stats = self.stats.clone();
        stats.add_pipeline(self.pipeline.counters());
        stats.window = self.pipeline.window();
        stats.outstanding = self.pipeline.flying();
        stats.rtt_smoothed_ns = rtt.smoothed_ns();
        stats.rtt_min_ns = rtt.min_ns();
        stats.rtt_median_ns = histogram.quantile_ns(0.5);
        stats.rtt_p99_ns = histogram.quantile_ns(0.99);
        stats
    }

    fn discover(&self, now: Instant, is_stored: bool) -> Stage {
        let (name, must_be_fresh, tries) = match &self.target {
            Target::Prefix { name } => (name.clone(), false, DISCOVERY_TRIES),
            Target::Latest { object, .. } => {
                let mut name = object.clone();
                name.append_keyword(METADATA_KEYWORD);
                (name, !is_stored, if is_stored { STORED_TRIES } else { DISCOVERY_TRIES })
            }
            Target::Version { .. } => unreachable!("a version is not discovered"),
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

    fn packet(&mut self, now: Instant, header: &LpHeader, packet: Packet, out: &mut FetchOutbox) {
        if let Some(reason) = header.nack {
            let interest = packet.clone();
            match InterestView::decode(&interest) {
                Ok(interest) => self.nack(now, &interest, reason, out),
                Err(_) => self.stats.malformed += 1,
            }
            return;
        }
        let octets = packet.clone();
        let Ok(data) = DataView::decode(&octets) else {
            self.stats.malformed += 1;
            return;
        };
        match &mut self.stage {
            Stage::Discovering { request, is_stored } if request.is_answered_by(&data) => {
                if let Some(rtt_ns) = request.rtt_ns(now) {
                    self.pipeline.first_rtt(rtt_ns);
                }
                let is_stored = *is_stored;
                self.discovered(&data, packet, header, is_stored, out);
            }
            Stage::Probing(_) => self.probed(now, &data, packet, header, out),
            Stage::Fetching => self.segment(now, &data, packet, header, out),
            _ => self.stats.unwanted += 1,
        }
    }

    fn discovered(
        &mut self,
        data: &DataView<'_>,
        packet: Packet,
        header: &LpHeader,
        is_stored: bool,
        out: &mut FetchOutbox,
    ) {
        if data.content_type == CONTENT_TYPE_NACK {
            let name = data.name.to_name();
            return self.fail(FetchError::Refused(name), out);
        }
        let (object, is_prefix) = match &self.target {
            Target::Latest { object, .. } => (object, false),
            Target::Prefix { name } => (name, true),
            Target::Version { .. } => unreachable!("a version is not discovered"),
        };
        if is_prefix {
            // The Data is a segment, or the whole object.
            let is_segment = data.name.last().is_some_and(|last| last.as_segment().is_some());
            let versioned = if is_segment { data.name.parent() } else { data.name }.to_name();
            let mut metadata = Metadata::new(versioned);
            if !is_segment {
                metadata.last_segment = Some(0);
                self.layout.set_whole();
            }
            return self.found(metadata, false, out);
        }
        let metadata = match Metadata::decode(data.content) {
            Ok(metadata) => metadata,
            Err(error) => {
                let name = object.clone();
                return self.fail(FetchError::Metadata { name, error }, out);
            }
        };
        if !object.as_view().is_prefix_of(metadata.versioned.as_view()) {
            let error =
                FetchError::Elsewhere { object: object.clone(), versioned: metadata.versioned };
            return self.fail(error, out);
        }
        self.deliver(Part::Metadata, packet, header, out);
        self.found(metadata, is_stored, out);
    }

    fn found(&mut self, metadata: Metadata, is_stored: bool, out: &mut FetchOutbox) {
        self.layout.set_prefix(metadata.versioned.as_view());
        self.metadata = Some(metadata.clone());
        self.stage = Stage::Waiting;
        out.events.push(FetchEvent::Found { metadata, is_stored });
    }

    fn start(&mut self, now: Instant, have: SegmentSet, out: &mut FetchOutbox) {
        let (Stage::Waiting, Some(metadata)) = (&self.stage, &self.metadata) else { return };
        self.have = have;
        let knows = matches!(self.target, Target::Latest { .. }) || self.layout.is_whole();
        let (last, per_part) = (metadata.last_segment, metadata.digests_per_part);
        if knows || !self.config.look_for_manifest {
            self.begin(per_part, out);
            if let Some(last) = last {
                self.set_last(last, false, out);
            }
            return;
        }
        let selectors = Selectors {
            must_be_fresh: self.config.must_be_fresh,
            lifetime_ms: self.config.lifetime_ms,
            ..Selectors::default()
        };
        let mut manifest = metadata.versioned.clone();
        manifest.append_keyword(MANIFEST_KEYWORD).append_segment(0);
        let mut first = metadata.versioned.clone();
        first.append_segment(0);
        let request =
            |name: Name| Request::new(name.value().to_vec(), selectors, DISCOVERY_TRIES, now);
        self.stage = Stage::Probing(Probe {
            manifest: Some(request(manifest)),
            first: request(first),
            give_up_at: None,
        });
    }

    /// The names of all segments are known: the pipeline takes over.
    fn begin(&mut self, digests_per_part: Option<u64>, out: &mut FetchOutbox) {
        self.layout.set_digests_per_part(digests_per_part);
        self.stage = Stage::Fetching;
        out.events.push(FetchEvent::Manifest { digests_per_part });
        if let Some(last) = self.last_segment {
            self.pipeline.set_limit(self.layout.units(last));
        }
    }

    fn probed(
        &mut self,
        now: Instant,
        data: &DataView<'_>,
        packet: Packet,
        header: &LpHeader,
        out: &mut FetchOutbox,
    ) {
        let Stage::Probing(probe) = &mut self.stage else { return };
        if let Some(request) = probe.manifest.take_if(|request| request.is_answered_by(data)) {
            if let Some(rtt_ns) = request.rtt_ns(now) {
                self.pipeline.first_rtt(rtt_ns);
            }
            let part = ManifestPart::decode(data.content).ok();
            if let Some(part) = part.filter(|_| data.content_type != CONTENT_TYPE_NACK) {
                let digests_per_part = part.digests_per_part as u64;
                self.first_part_done = true;
                self.deliver(Part::Manifest(0), packet, header, out);
                self.begin(Some(digests_per_part), out);
            } else {
                self.no_manifest(out);
            }
        } else if probe.first.is_answered_by(data) && probe.give_up_at.is_none() {
            if data.content_type == CONTENT_TYPE_NACK {
                return self.fail(FetchError::Refused(data.name.to_name()), out);
            }
            let rtt_ns = probe.first.rtt_ns(now);
            let wait_ns = MANIFEST_ROUND_TRIPS * rtt_ns.unwrap_or(0);
            probe.give_up_at = Some(now.plus_ns(wait_ns.max(MANIFEST_WAIT_MIN_NS)));
            let is_without_manifest = probe.manifest.is_none();
            if let Some(rtt_ns) = rtt_ns {
                self.pipeline.first_rtt(rtt_ns);
            }
            self.learn_last(data, out);
            if !self.have.contains(0) {
                self.deliver(Part::Segment(0), packet, header, out);
            }
            if is_without_manifest {
                self.begin(None, out);
            }
        } else {
            self.stats.unwanted += 1;
        }
    }

    /// Goes on although everything had been handed out, as it was less than thought.
    fn resume(&mut self) {
        if self.has_handed_out {
            self.has_handed_out = false;
            self.stage = Stage::Fetching;
        }
    }

    /// What the packet said that could not be verified counts no more.
    fn ask_again(
        &mut self,
        now: Instant,
        part: Part,
        digest: Option<[u8; 32]>,
        must_be_fresh: bool,
        out: &mut FetchOutbox,
    ) {
        self.resume();
        if !matches!(self.stage, Stage::Fetching) {
            return;
        }
        let selectors = Selectors {
            must_be_fresh: must_be_fresh || self.config.must_be_fresh,
            lifetime_ms: self.config.lifetime_ms,
            ..Selectors::default()
        };
        if !self.again.ask(&self.layout, part, digest, selectors, now) {
            let name = self.layout.name_of(part);
            return self.fail(FetchError::Damaged(name), out);
        }
        let is_segment = matches!(part, Part::Segment(_));
        if is_segment && self.last_is_from_segment && !self.last_is_verified {
            self.last_is_from_segment = false;
            let stated = self.metadata.as_ref().and_then(|metadata| metadata.last_segment);
            if let Some(last) = stated {
                self.set_last(last, false, out);
            }
        }
    }

    /// The manifest cannot be had: on without it, once it is known that the object can.
    fn no_manifest(&mut self, out: &mut FetchOutbox) {
        let Stage::Probing(probe) = &mut self.stage else { return };
        probe.manifest = None;
        if probe.give_up_at.is_some() {
            self.begin(None, out);
        }
    }

    fn segment(
        &mut self,
        now: Instant,
        data: &DataView<'_>,
        packet: Packet,
        header: &LpHeader,
        out: &mut FetchOutbox,
    ) {
        let Some(part) = self.layout.part_of_name(data.name.value()) else {
            self.stats.unwanted += 1;
            return;
        };
        if data.content_type == CONTENT_TYPE_NACK {
            return self.fail(FetchError::Refused(data.name.to_name()), out);
        }
        let Some(unit) = self.layout.unit_of(part) else {
            self.stats.unwanted += 1;
            return;
        };
        if self.again.is_answered(part) {
            if let Part::Segment(_) = part {
                self.learn_last(data, out);
            }
            return self.deliver(part, packet, header, out);
        }
        let is_marked = header.congestion_mark != 0;
        if self.pipeline.answered(unit, now, is_marked) == Answered::Unwanted {
            return;
        }
        if let Part::Segment(_) = part {
            self.learn_last(data, out);
        }
        self.deliver(part, packet, header, out);
    }

    fn learn_last(&mut self, data: &DataView<'_>, out: &mut FetchOutbox) {
        let last = if self.layout.is_whole() {
            Some(0)
        } else {
            data.final_block_id.and_then(|component| component.as_segment())
        };
        if let Some(last) = last
            && !self.last_is_from_segment
        {
            self.set_last(last, true, out);
        }
    }

    fn set_last(&mut self, last: u64, is_from_segment: bool, out: &mut FetchOutbox) {
        self.last_is_from_segment = is_from_segment;
        if self.last_segment == Some(last) {
            return;
        }
        self.last_segment = Some(last);
        self.pipeline.set_limit(self.layout.units(last));
        out.events.push(FetchEvent::LastSegment(last));
    }

    fn deliver(&mut self, part: Part, packet: Packet, header: &LpHeader, out: &mut FetchOutbox) {
        if let Part::Segment(segment) = part {
            self.have.insert(segment);
        }
        self.unconsumed += 1;
        self.stats.delivered += 1;
        self.stats.octets += packet.len() as u64;
        out.deliveries.push(Delivery {
            part,
            packet,
            incoming_face: header.incoming_face.map(FaceId),
        });
    }

    fn nack(
        &mut self,
        now: Instant,
        interest: &InterestView<'_>,
        reason: NackReason,
        out: &mut FetchOutbox,
    ) {
        match &mut self.stage {
            Stage::Discovering { request, .. } => {
                self.stats.nacks += 1;
                if let Err(give_up) = request.nacked(interest, reason, now) {
                    self.give_up(now, give_up, out);
                } else if reason == NackReason::NoRoute {
                    // While the producer may be coming up, a store may do.
                    self.ask_stores(now);
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
                        self.no_manifest(out);
                    }
                } else if let Err(give_up) = probe.first.nacked(interest, reason, now) {
                    self.give_up(now, give_up, out);
                }
            }
            Stage::Fetching => {
                if let Some(result) = self.again.nacked(&self.layout, interest, reason, now) {
                    self.stats.nacks += 1;
                    if let Err((name, give_up)) = result {
                        self.fail(error_of(name, give_up), out);
                    }
                    return;
                }
                let part = self.layout.part_of_name(interest.name.value());
                let Some(unit) = part.and_then(|part| self.layout.unit_of(part)) else { return };
                if let Err(failed) = self.pipeline.nacked(unit, interest.nonce, reason, now) {
                    self.fail_unit(failed, out);
                }
            }
            Stage::Waiting | Stage::Over => {}
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
    fn give_up(&mut self, now: Instant, reason: GiveUp, out: &mut FetchOutbox) {
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
        let name = match &self.target {
            Target::Latest { object, .. } => object.clone(),
            Target::Version { versioned } => versioned.clone(),
            Target::Prefix { name } => name.clone(),
        };
        self.fail(error_of(name, reason), out);
    }

    fn fail_unit(&mut self, failed: Failed, out: &mut FetchOutbox) {
        let name = self.layout.name_of(self.layout.part_of(failed.unit));
        self.fail(error_of(name, failed.reason), out);
    }

    fn fail(&mut self, error: FetchError, out: &mut FetchOutbox) {
        self.stage = Stage::Over;
        out.events.push(FetchEvent::Failed(error));
    }

    /// Sends what may be sent, and ends what has ended.
    fn advance(&mut self, now: Instant, out: &mut FetchOutbox) {
        match &mut self.stage {
            Stage::Discovering { request, .. } => {
                let before = out.interests.len();
                match request.poll(now, &mut self.rng, &mut out.interests) {
                    Ok(()) => self.stats.interests += (out.interests.len() - before) as u64,
                    Err(give_up) => {
                        self.give_up(now, give_up, out);
                        if !self.is_over() {
                            self.advance(now, out);
                        }
                    }
                }
            }
            Stage::Probing(_) => self.advance_probe(now, out),
            Stage::Fetching => self.advance_segments(now, out),
            Stage::Waiting | Stage::Over => {}
        }
    }

    fn advance_probe(&mut self, now: Instant, out: &mut FetchOutbox) {
        let Stage::Probing(probe) = &mut self.stage else { return };
        if probe.give_up_at.is_some_and(|at| now >= at) {
            self.begin(None, out);
            return self.advance_segments(now, out);
        }
        let batch = &mut out.interests;
        let before = batch.len();
        let manifest = match &mut probe.manifest {
            Some(request) => request.poll(now, &mut self.rng, batch),
            None => Ok(()),
        };
        let first = match probe.give_up_at {
            Some(_) => Ok(()),
            None => probe.first.poll(now, &mut self.rng, batch),
        };
        self.stats.interests += (batch.len() - before) as u64;
        // Without the first segment there is nothing; without the manifest there are signatures.
        if let Err(give_up) = first {
            return self.give_up(now, give_up, out);
        }
        if manifest.is_err() {
            self.no_manifest(out);
        }
        if let Stage::Fetching = self.stage {
            self.advance_segments(now, out);
        }
    }

    fn advance_segments(&mut self, now: Instant, out: &mut FetchOutbox) {
        let before = out.interests.len();
        let asked = self.again.poll(&self.layout, now, &mut self.rng, &mut out.interests);
        self.stats.interests += (out.interests.len() - before) as u64;
        if let Err((name, give_up)) = asked {
            return self.fail(error_of(name, give_up), out);
        }
        if let Err(failed) = self.pipeline.check(now) {
            return self.fail_unit(failed, out);
        }
        let Self { pipeline, layout, have, rng, config, .. } = self;
        let mut selectors = Selectors {
            must_be_fresh: config.must_be_fresh,
            lifetime_ms: config.lifetime_ms,
            ..Selectors::default()
        };
        loop {
            let committed = pipeline.unanswered().saturating_add(self.unconsumed);
            let has_room = committed < config.unconsumed_max;
            let next = pipeline.next_to_send(now, has_room, |unit| match layout.part_of(unit) {
                Part::Manifest(0) if self.first_part_done => false,
                part => !layout.is_had(part, have, self.last_segment),
            });
            let Some(unit) = next else { break };
            selectors.nonce = rng.next_u32();
            let (prefix, segment) = layout.interest_name(layout.part_of(unit));
            out.interests.push(prefix, segment, selectors);
            pipeline.sent(unit, selectors.nonce, now);
        }
        if self.pipeline.is_done() && self.again.is_empty() {
            self.stage = Stage::Over;
            self.has_handed_out = true;
            out.events.push(FetchEvent::Done);
        }
    }
}

fn error_of(name: Name, reason: GiveUp) -> FetchError {
    match reason {
        GiveUp::NoRoute => FetchError::NoRoute(name),
        GiveUp::Unanswered => FetchError::Unanswered(name),
        GiveUp::Nacked(reason) => FetchError::Nacked { name, reason },
    }
}
