//! The consumer: everything that asks with a window, whatever it asks for.

#[cfg(test)]
mod bottleneck_tests;
mod check;
mod chunks;
mod config;
mod discovery;
mod holdings;
mod holes;
mod input;
mod layout;
mod live;
mod missing;
mod naming;
mod outbox;
pub(crate) mod path;
mod pieces;
mod reader;
mod requests;
pub(crate) mod schedule;
pub(crate) mod scoreboard;
pub(crate) mod slot;
mod stats;
mod target;
#[cfg(test)]
mod tests;
mod verify;

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

use weir_base::{FaceId, Instant, NS_PER_MS, Packet, Rng};
use weir_security::manifest::PartId;
use weir_wire::{CongestionMark, DataView, InterestView, LpHeader, NackReason, Name};

use self::holdings::{Questions, Told};
use self::holes::Holes;
use self::layout::Layout;
use self::live::Live;
use self::naming::Naming;
use self::path::Answer;
use self::pieces::Pieces;
use self::reader::Reader;
use self::requests::{Purpose, Requests};
use self::schedule::Schedule;
use self::scoreboard::{GiveUp, Scoreboard, ScoreboardConfig};
use self::verify::{Incoming, Verifying};
use crate::PathId;
use crate::congestion::WindowBounds;
use crate::interest::Selectors;
use crate::metadata::Metadata;
use crate::request::{Nack, Tries};
use crate::segment_set::SegmentSet;

pub use self::check::{Check, KeyId, Verdict, VerifyId};
pub use self::chunks::CHUNK_UNITS_MAX;
pub use self::config::{Behind, ConsumerConfig, Holdings, OnBad, ReaderMode, Verification};
pub use self::input::ConsumerInput;
pub use self::missing::MissingSegments;
pub use self::outbox::{
    ConsumerError, ConsumerEvent, ConsumerOutbox, Delivery, TraceEvent, TraceKind, VerifyOp,
};
pub use self::schedule::PathSchedule;
pub use self::stats::{ConsumerStats, PathStats};
pub use self::target::{Part, PieceId, Target, Unit};

/// How often a single Interest is tried: 1 + 2 + 4 + 4 s with the default lifetime.
const SINGLE_TRIES: Tries = Tries { sends_max: 4, nacks_max: 6, needs_route: false };
/// The same for the first Interest.
const DISCOVERY_TRIES: Tries = Tries { needs_route: true, ..SINGLE_TRIES };

#[derive(Debug)]
enum Stage {
    /// Looks for the name of the version.
    Discovering {
        is_stored: bool,
    },
    /// What came is being verified.
    Believing {
        /// `None`: it says that there is no such object.
        metadata: Option<Metadata>,
        is_stored: bool,
    },
    /// The driver is to say what is there already.
    Waiting,
    /// Looks whether the version has a manifest.
    Probing {
        /// The first segment, once it has come, and when to go on without a manifest.
        held: Option<(Incoming, Instant)>,
        /// The level of the part that is asked for, its first.
        level: u8,
        /// A part has come: there is a manifest, which is waited for.
        has_part: bool,
    },
    Fetching,
    Over,
}

/// Fetches one object, or pieces of objects one after another. See [`ConsumerInput`] and
/// [`ConsumerOutbox`]; the driver calls [`Consumer::handle`] with what came and whenever
/// [`Consumer::next_wakeup`] has passed.
pub struct Consumer {
    config: ConsumerConfig,
    target: Target,
    rng: Rng,
    stage: Stage,
    scoreboard: Scoreboard,
    naming: Naming,
    /// Segments that were there or have been verified.
    have: SegmentSet,
    requests: Requests,
    questions: Questions,
    verification: Verifying,
    reader: Reader,
    /// Units that came and have not been handed out: held, being verified, or with the reader.
    unread: u32,
    /// Routers' stores have been asked for metadata.
    has_asked_stores: bool,
    /// These came before the scoreboard took over.
    first_part: Option<PartId>,
    first_segment_done: bool,
    metadata: Option<Metadata>,
    /// Why the metadata that came last was not taken.
    refused: Option<ConsumerError>,
    /// A router that lies behind the first one said last that it has no route.
    has_far_no_route: bool,
    last_segment: Option<u64>,
    last_is_from_segment: bool,
    /// Of an object that grows.
    live: Option<Live>,
    /// Units that got no answer, if there are any.
    holes: Option<Box<Holes>>,
    /// No piece of the sequence follows.
    is_closed: bool,
    /// The driver has been told that more may be appended.
    has_asked_for_more: bool,
    stats: ConsumerStats,
    /// Units that a packet answers; here so that its memory stays.
    found: Vec<u64>,
}

impl fmt::Debug for Consumer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consumer")
            .field("target", &self.target)
            .field("stage", &self.stage)
            .field("last_segment", &self.last_segment)
            .field("unread", &self.unread)
            .finish_non_exhaustive()
    }
}

impl Consumer {
    /// A consumer that begins at `now`. `seed` is for nonces.
    pub fn new(target: Target, config: ConsumerConfig, seed: u64, now: Instant) -> Self {
        let schedule = config.schedule.make();
        Self::with_schedule(target, config, seed, now, schedule)
    }

    pub(crate) fn with_schedule(
        target: Target,
        config: ConsumerConfig,
        seed: u64,
        now: Instant,
        schedule: Box<dyn Schedule>,
    ) -> Self {
        let scoreboard = ScoreboardConfig {
            lifetime_ns: config.lifetime_ms.saturating_mul(NS_PER_MS),
            retries_max: config.retries_max,
            asks_once: !config.is_reliable,
            chunk_units: config.chunk_units,
            rtt: config.rtt,
            controller: config.controller,
            constants: config.constants,
            window: WindowBounds { initial: config.window, max: config.window_max },
            decrease_interval_ns: config.decrease_interval_ns,
            waits_for_lifetime: config.waits_for_lifetime,
            trace: config.trace,
        };
        let naming = match &target {
            Target::Sequence => Naming::Sequence(Pieces::new(seed)),
            Target::Range { versioned, segments } => {
                let mut layout = Layout::new(versioned.as_view(), config.mapping);
                layout.set_wanted(segments.clone());
                Naming::Object(layout)
            }
            _ => Naming::Object(Layout::new(Name::new().as_view(), config.mapping)),
        };
        let mut scoreboard = Scoreboard::new(scoreboard, schedule);
        if let Naming::Sequence(pieces) = &naming {
            scoreboard.set_limit(Some(pieces.end_index()));
        }
        let mut consumer = Self {
            target,
            rng: Rng::from_seed(seed),
            stage: Stage::Waiting,
            scoreboard,
            naming,
            have: SegmentSet::new(),
            requests: Requests::default(),
            questions: Questions::default(),
            verification: Verifying::new(),
            reader: Reader::new(ReaderMode::None),
            unread: 0,
            has_asked_stores: false,
            first_part: None,
            first_segment_done: false,
            metadata: None,
            refused: None,
            has_far_no_route: false,
            last_segment: None,
            last_is_from_segment: false,
            live: None,
            holes: None,
            is_closed: false,
            has_asked_for_more: false,
            stats: ConsumerStats::default(),
            found: Vec::new(),
            config,
        };
        match &consumer.target {
            Target::Latest { .. } => consumer.discover(now, false),
            Target::Prefix { .. } => consumer.discover(now, true),
            Target::Version { .. } | Target::Range { .. } | Target::Known { .. } => {}
            Target::Sequence => consumer.stage = Stage::Fetching,
        }
        consumer
    }

    /// Takes what came, drained from `inputs`, and appends what is to be done to `out`.
    pub fn handle(
        &mut self,
        now: Instant,
        inputs: &mut Vec<ConsumerInput>,
        out: &mut ConsumerOutbox,
    ) {
        if let (Stage::Waiting, None) = (&self.stage, &self.metadata) {
            let metadata = match &self.target {
                Target::Known { metadata } => metadata.clone(),
                other => Metadata::new(other.name()),
            };
            self.found(metadata, false, out);
        }
        for input in inputs.drain(..) {
            self.input(now, input, out);
        }
        self.advance(now, out);
        self.trace(out);
        if let Naming::Sequence(pieces) = &mut self.naming {
            pieces.tidy(self.scoreboard.first_open());
        }
    }

    fn input(&mut self, now: Instant, input: ConsumerInput, out: &mut ConsumerOutbox) {
        match input {
            ConsumerInput::AddPath { path, window, is_local } => {
                let is_new = self.scoreboard.add_path(path, window);
                debug_assert!(is_new, "{path:?} is there already");
                self.questions.path_added((path, is_local), self.config.lifetime_ms, now);
            }
            ConsumerInput::RemovePath { path } => {
                self.scoreboard.remove_path(path, now);
                self.requests.path_removed(path, now);
                self.questions.path_removed(path);
            }
            ConsumerInput::Packet { path, header, packet } => {
                self.packet(now, path, &header, packet, out);
            }
            ConsumerInput::Narrow { segments } => {
                debug_assert!(matches!(self.stage, Stage::Waiting), "it has begun");
                self.layout_mut().set_wanted(segments);
            }
            ConsumerInput::Start { have, reader } => {
                self.reader.set_mode(reader);
                self.scoreboard.set_in_order(reader == ReaderMode::InOrder);
                self.ask_routers(now);
                self.start(now, have, out);
            }
            ConsumerInput::Append { piece, name, segments } => {
                let Naming::Sequence(pieces) = &mut self.naming else {
                    debug_assert!(false, "only a sequence has pieces");
                    return;
                };
                if !pieces.append(piece, &name, segments) {
                    return out.events.push(ConsumerEvent::PieceDone { piece });
                }
                self.scoreboard.set_limit(Some(pieces.end_index()));
                self.has_asked_for_more = false;
            }
            ConsumerInput::Close => self.is_closed = true,
            ConsumerInput::Verified { .. } | ConsumerInput::Key { .. } if self.is_over() => {}
            ConsumerInput::Verified { op, verdict } => self.verified(now, op, verdict, out),
            ConsumerInput::Key { key, verifier } => self.key(now, key, verifier, out),
            ConsumerInput::Read { units } => self.reader.read(units),
        }
    }

    /// When [`Consumer::handle`] must be called at the latest if no input comes before.
    pub fn next_wakeup(&self) -> Option<Instant> {
        // Without a path nothing can be sent.
        if self.scoreboard.has_no_path() {
            return None;
        }
        let of_stage = match &self.stage {
            Stage::Discovering { .. } => None,
            Stage::Probing { has_part: true, .. } => None,
            Stage::Probing { held, .. } => held.as_ref().map(|&(_, until)| until),
            Stage::Fetching => {
                let wakeups =
                    [self.scoreboard.next_wakeup(), self.live_wakeup(), self.holes_wakeup()];
                wakeups.into_iter().flatten().min()
            }
            Stage::Believing { .. } | Stage::Waiting | Stage::Over => return None,
        };
        let others = [self.requests.next_wakeup(), self.questions.next_wakeup()];
        others.into_iter().chain([of_stage]).flatten().min()
    }

    /// Whether it has ended, well or not.
    pub fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Over)
    }

    /// The number of the last segment, if known; not verified.
    pub fn last_segment(&self) -> Option<u64> {
        self.last_segment
    }

    /// Counters and measures so far. The window is that of all paths in use, the smoothed and the
    /// smallest round-trip time are those of the path that was there first.
    pub fn stats(&self) -> ConsumerStats {
        let histogram = self.scoreboard.histogram();
        let mut stats = self.stats.clone();
        stats.add(self.scoreboard.counters());
        stats.outstanding = self.scoreboard.in_flight();
        stats.rtt_median_ns = histogram.and_then(|histogram| histogram.quantile(0.5));
        stats.rtt_p99_ns = histogram.and_then(|histogram| histogram.quantile(0.99));
        let in_use = self.scoreboard.paths_in_use();
        stats.window = in_use.iter().map(|path| path.allowance().window).sum();
        if let Some(path) = in_use.first() {
            stats.rtt_smoothed_ns = path.rtt.smoothed_ns();
            stats.rtt_min_ns = path.rtt.min_ns();
        }
        stats
    }

    /// The window of a path, in chunks; `None` if there is no such path.
    pub fn window_of(&self, path: PathId) -> Option<f64> {
        let paths = self.scoreboard.paths();
        paths.iter().find(|one| one.id == path).map(|one| one.allowance().window)
    }

    /// What happened on a path so far, since it was there first.
    pub fn path_stats(&self, path: PathId) -> PathStats {
        self.scoreboard.path_stats(path)
    }

    /// Holds the state against itself.
    #[cfg(test)]
    pub(crate) fn assert_consistent(&self) {
        self.scoreboard.assert_consistent();
    }

    fn layout_mut(&mut self) -> &mut Layout {
        match &mut self.naming {
            Naming::Object(layout) => layout,
            Naming::Sequence(_) => unreachable!("a sequence has no layout"),
        }
    }

    /// What every Interest for a unit asks for besides its name.
    fn selectors(&self) -> Selectors {
        Selectors {
            must_be_fresh: self.config.must_be_fresh,
            lifetime_ms: self.config.lifetime_ms,
            ..Selectors::default()
        }
    }

    fn packet(
        &mut self,
        now: Instant,
        path: PathId,
        header: &LpHeader,
        packet: Packet,
        out: &mut ConsumerOutbox,
    ) {
        let octets = packet.clone();
        if let Some(nack) = Nack::of(header) {
            match InterestView::decode(&octets) {
                Ok(interest) => self.nack(now, &interest, nack, out),
                Err(_) => self.stats.malformed += 1,
            }
            return;
        }
        let Ok(data) = DataView::decode(&octets) else {
            self.stats.malformed += 1;
            return;
        };
        match self.questions.take(path, &data, now) {
            Told::Nothing => {}
            Told::Taken => return,
            Told::Held(path, status) => return self.told(path, status, out),
        }
        let incoming = Incoming::new(&data, packet, path, header.incoming_face.map(FaceId));
        match &self.stage {
            Stage::Discovering { .. } | Stage::Probing { .. } => {
                self.answered(now, &data, incoming, out);
            }
            Stage::Fetching => {
                let mark = CongestionMark::from_value(header.congestion_mark);
                let packet_bytes = incoming.packet.len();
                let answer = Answer { now, path, mark, packet_bytes };
                self.data(&answer, &data, incoming, out);
            }
            _ => self.stats.unwanted += 1,
        }
    }

    /// Data came while units are fetched.
    fn data(
        &mut self,
        answer: &Answer,
        data: &DataView<'_>,
        incoming: Incoming,
        out: &mut ConsumerOutbox,
    ) {
        let now = answer.now;
        let Some(incoming) = self.take_renewal(now, data, incoming, out) else { return };
        let mut found = core::mem::take(&mut self.found);
        self.naming.find(data.name.value(), &mut found);
        if found.is_empty() {
            self.stats.unwanted += 1;
        }
        let Incoming { packet, path, incoming_face, last_segment, content_bytes } = incoming;
        for &index in &found {
            if let Some(request) = self.requests.take(Purpose::Again(index)) {
                let rtt_ns = request.elapsed_ns(now);
                self.scoreboard.note_answer(index, request.path(), rtt_ns, answer);
                self.answered_aside(index, answer, true);
            } else if !self.scoreboard.answered(index, answer)
                && !self.answered_aside(index, answer, false)
            {
                continue;
            }
            if data.is_nack() {
                self.unit_refused(now, index, out);
                continue;
            }
            if matches!(self.naming.part_of(index).1, Part::Unit(_)) {
                self.learn_last(data, out);
            }
            let packet = packet.clone();
            let incoming = Incoming { packet, path, incoming_face, last_segment, content_bytes };
            self.accept(now, index, incoming, out);
        }
        self.found = found;
    }

    fn learn_last(&mut self, data: &DataView<'_>, out: &mut ConsumerOutbox) {
        let Naming::Object(layout) = &self.naming else { return };
        let last = if layout.is_whole() {
            Some(0)
        } else {
            data.final_block_id().and_then(|component| component.as_segment())
        };
        if let Some(last) = last
            && !self.last_is_from_segment
        {
            self.set_last(last, true, out);
        }
    }

    fn set_last(&mut self, last: u64, is_from_segment: bool, out: &mut ConsumerOutbox) {
        self.last_is_from_segment = is_from_segment;
        if self.last_segment == Some(last) {
            return;
        }
        if let Err(error) = self.config.mapping.check_last(last) {
            return self.fail(error.into(), out);
        }
        self.last_segment = Some(last);
        self.set_limit();
        out.events.push(ConsumerEvent::LastSegment(last));
    }

    fn set_limit(&mut self) {
        if let Naming::Object(layout) = &self.naming {
            self.scoreboard.set_limit(layout.end_index(self.last_segment));
        }
    }

    fn nack(
        &mut self,
        now: Instant,
        interest: &InterestView<'_>,
        nack: Nack,
        out: &mut ConsumerOutbox,
    ) {
        if self.is_over() || self.questions.nacked(interest, nack, now) {
            return;
        }
        let reason = nack.reason;
        self.has_far_no_route = reason == NackReason::NoRoute && !nack.is_of_first_router;
        if let Some((purpose, result)) = self.requests.nacked(interest, nack, now) {
            self.stats.nacks += 1;
            return self.request_nacked(now, (purpose, result), reason, out);
        }
        let mut found = core::mem::take(&mut self.found);
        self.naming.find(interest.name.value(), &mut found);
        for &index in &found {
            let (_, segment) = self.naming.interest_name(index);
            let nonce = interest.nonce.map(|nonce| nonce_base(nonce, segment));
            match self.scoreboard.nacked(index, nonce, reason, now) {
                Ok(_) => {}
                Err(failed) => self.unit_failed(now, failed, out),
            }
        }
        self.found = found;
    }

    /// A unit is passed over.
    fn miss(&mut self, index: u64, out: &mut ConsumerOutbox) {
        let (piece, part) = self.naming.part_of(index);
        self.reader.pass(index);
        out.events.push(ConsumerEvent::Missed { piece, part });
        self.unit_over(index, out);
    }

    /// An answer says that there is no such unit. It is requested once more, past all caches; a
    /// second such answer ends the transfer.
    fn unit_refused(&mut self, now: Instant, index: u64, out: &mut ConsumerOutbox) {
        let name = self.naming.name_of(index);
        let selectors = Selectors { must_be_fresh: true, ..self.selectors() };
        let retries_max = self.config.retries_max;
        let is_first = self.verification.count_refusal(index) == 1 && self.config.is_reliable;
        if !is_first
            || !self.requests.ask_again(index, name.clone(), None, selectors, retries_max, now)
        {
            self.fail_unit(index, ConsumerError::Refused(name), out);
        }
    }

    /// Nothing more is to be done for a unit.
    fn unit_over(&mut self, index: u64, out: &mut ConsumerOutbox) {
        if let Naming::Sequence(pieces) = &mut self.naming
            && let Some(piece) = pieces.unit_done(index)
        {
            out.events.push(ConsumerEvent::PieceDone { piece });
        }
    }

    /// Why there is nothing under this name.
    fn error_of(&self, name: Name, reason: GiveUp) -> ConsumerError {
        match reason {
            GiveUp::NoRoute if self.has_far_no_route => ConsumerError::NoRouteBeyond(name),
            GiveUp::NoRoute => ConsumerError::NoRoute(name),
            GiveUp::Unanswered => ConsumerError::Unanswered(name),
            GiveUp::Nacked(reason) => ConsumerError::Nacked { name, reason },
        }
    }

    /// For want of a unit its object fails, or its piece.
    fn fail_unit(&mut self, index: u64, error: ConsumerError, out: &mut ConsumerOutbox) {
        let Naming::Sequence(pieces) = &mut self.naming else { return self.fail(error, out) };
        let asked_end = self.scoreboard.next_index();
        let Some((piece, units)) = pieces.give_up(index, asked_end) else { return };
        self.scoreboard.set_limit(Some(pieces.end_index()));
        for index in units {
            if index >= self.scoreboard.first_open() {
                self.scoreboard.give_up(index);
            }
            self.reader.pass_open(index);
        }
        self.forget_unwanted();
        out.events.push(ConsumerEvent::PieceFailed { piece, error });
    }

    fn fail(&mut self, error: ConsumerError, out: &mut ConsumerOutbox) {
        if !self.is_over() {
            self.stage = Stage::Over;
            out.events.push(ConsumerEvent::Failed(error));
        }
    }

    /// Sends what may be sent, and ends what has ended.
    fn advance(&mut self, now: Instant, out: &mut ConsumerOutbox) {
        if let Stage::Probing { held: Some((_, until)), has_part: false, .. } = self.stage
            && now >= until
        {
            self.end_probe(now, None, out);
        }
        if let Stage::Fetching = self.stage {
            while !self.is_over()
                && let Err(failed) = self.scoreboard.check(now)
            {
                self.unit_failed(now, failed, out);
            }
        }
        if !self.requests.is_empty() {
            self.poll_requests(now, out);
        }
        if !self.questions.is_empty() && !self.is_over() {
            self.stats.interests += self.questions.poll(now, &mut self.rng, &mut out.interests);
        }
        self.unread -= self.reader.hand_out(&mut out.deliveries);
        if let Stage::Fetching = self.stage {
            self.advance_live(now, out);
        }
        if let Stage::Fetching = self.stage {
            self.advance_units(now, out);
        }
    }

    fn advance_units(&mut self, now: Instant, out: &mut ConsumerOutbox) {
        if !self.waits_for_routers() {
            let has_room = self.send(now, out);
            if self.holes.is_some() && self.advance_holes(now, has_room, out) {
                self.send(now, out);
            }
        }
        if self.is_over() {
            return;
        }
        let is_ended = match self.naming {
            Naming::Sequence(_) => self.is_closed,
            Naming::Object(_) => true,
        };
        // What was passed over may have made room for the reader.
        self.unread -= self.reader.hand_out(&mut out.deliveries);
        let is_settled =
            self.requests.is_empty() && self.verification.is_idle() && self.holes.is_none();
        if is_ended && is_settled && self.reader.is_empty() && self.scoreboard.is_done() {
            self.stage = Stage::Over;
            out.events.push(ConsumerEvent::Done);
        } else if !is_ended && !self.has_asked_for_more && self.scoreboard.wants_more(now) {
            self.has_asked_for_more = true;
            out.events.push(ConsumerEvent::NeedsMore);
        }
    }

    fn poll_requests(&mut self, now: Instant, out: &mut ConsumerOutbox) {
        let paths = self.scoreboard.paths_to_ask();
        while !self.is_over() {
            let Self { requests, rng, stats, scoreboard, .. } = self;
            let polled = requests.poll(&paths, now, rng, &mut out.interests, |purpose, path| {
                stats.interests += 1;
                if let Purpose::Again(index) = purpose {
                    scoreboard.note_sent_again(index, path);
                }
            });
            let Err((purpose, give_up)) = polled else { return };
            self.give_up(now, purpose, give_up, out);
        }
    }

    /// Asks for units while a path, and the reader, have room. Whether the reader has.
    fn send(&mut self, now: Instant, out: &mut ConsumerOutbox) -> bool {
        let mut selectors = self.selectors();
        let is_behind = self.is_behind();
        let Self { scoreboard, naming, have, rng, config, reader, unread, .. } = self;
        let (holes, verification) = (&mut self.holes, &self.verification);
        // A chunk is asked for as a whole, so that there must be room for one.
        let chunk_units = config.chunk_units.clamp(1, CHUNK_UNITS_MAX);
        let units_max = match holes {
            Some(holes) => holes.units_max(config.reader_units_max, scoreboard.is_in_order()),
            None => config.reader_units_max,
        };
        let units_max = units_max.max(chunk_units);
        // What is asked for at once may leave as a run, whose nonces follow the segment numbers.
        let mut base = None;
        let has_room = loop {
            let committed = scoreboard.unanswered().saturating_add(*unread);
            let room_units = units_max.saturating_sub(committed);
            let may_ask = !is_behind
                && match (&*holes, &*naming) {
                    (Some(holes), Naming::Object(layout)) => {
                        let end = layout.end_index(self.last_segment);
                        holes.skip_gap(scoreboard, layout, verification, end.unwrap_or(u64::MAX))
                    }
                    _ => true,
                };
            let room_units = if may_ask { room_units - room_units % chunk_units } else { 0 };
            if scoreboard.knows_holders() {
                scoreboard.prefer_holders(naming.segment_of(scoreboard.next_index()));
            }
            let next = scoreboard.next_to_send(now, room_units, |index| {
                let is_needed = match naming {
                    Naming::Sequence(_) => true,
                    Naming::Object(layout) => match layout.part_of(index) {
                        Part::Manifest(id) if self.first_part == Some(id) => false,
                        Part::Unit(unit)
                            if self.first_segment_done && unit.chunk == layout.first_segment() =>
                        {
                            // It is with the reader, or will be.
                            return false;
                        }
                        part => !layout.is_had(part, have, self.last_segment),
                    },
                };
                if !is_needed {
                    reader.pass_open(index);
                }
                match (&mut *holes, &*naming) {
                    (Some(holes), Naming::Object(layout)) => {
                        holes.admits(index, is_needed, layout, verification)
                    }
                    _ => is_needed,
                }
            });
            let Some((first, path)) = next else { break room_units > 0 };
            let base = *base.get_or_insert_with(|| rng.next_u32());
            for index in scoreboard.open_units(first) {
                let (prefix, segment) = naming.interest_name(index);
                selectors.nonce = base.wrapping_add(segment.unwrap_or(0) as u32);
                out.interests.push(path, prefix, segment, selectors);
            }
            scoreboard.sent(first, path, base, now);
        };
        if !has_room {
            self.reader_is_full();
        }
        has_room
    }

    /// Says of single units what happened to them.
    fn trace(&mut self, out: &mut ConsumerOutbox) {
        let Self { scoreboard, naming, .. } = self;
        for (index, path, kind) in scoreboard.trace().drain(..) {
            let (piece, part) = naming.part_of(index);
            out.trace.push(TraceEvent { piece, part, path, kind });
        }
    }
}

/// What was drawn for all Interests that were sent with the one of this nonce and segment.
fn nonce_base(nonce: u32, segment: Option<u64>) -> u32 {
    nonce.wrapping_sub(segment.unwrap_or(0) as u32)
}
