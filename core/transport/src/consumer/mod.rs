//! The consumer: finds what a target consists of, and fetches it.
//!
//! The methods of `Transfer` are in four files. Each file calls only the following ones. `mod`
//! sends and receives. `verdicts` decides about received packets. `set_aside` carries out what
//! `Holes` decides. `failure` handles failed segments and the end. [`Consumer`] calls its three
//! components in order; they never call it. [`Transfer`] calls those below it in the same way.
//!
//! ```text
//! called by Consumer: owns                               returns
//!   Discovery         requests for version and manifest  Step: verify, found, begin, failed
//!   HoldingsQueries   queries to routers                 the segments that a router holds
//!   Transfer          the fetch, and all below           Verified: what concerns discovery
//! called by Transfer:
//!   Inventory         names of packets, which are here   whether a packet is needed
//!   Scoreboard        what is requested, lost, done      the next chunk, what failed
//!   Requests          Interests outside the window       what failed
//!   VerifyQueue       packets held or with the driver    VerifyOutcome: what happens to a packet
//!   Reader            segments that wait for the reader  segments to deliver
//!   Live              when metadata are renewed          the request, verified metadata
//!   Holes             packets that were set aside        HoleStep: request these, skip, new pass
//! called by Scoreboard:
//!   Outstanding       chunks, those to send again        the next chunk, what failed
//!   Paths             the paths and their schedule       the path for the next chunk
//!   Path              round trips, controller, pace      what is lost, what may be sent
//!   AheadWindow       how many segments to request       one past the last of those
//!                     before they exist
//! ```

mod check;
mod chunk;
mod chunks;
mod config;
mod discovery;
mod end_claim;
mod holdings;
mod holes;
mod input;
mod inventory;
mod labels;
mod layout;
mod live;
mod missing;
mod naming;
mod outbox;
pub(crate) mod path;
mod ranges;
mod reader;
mod requests;
pub(crate) mod schedule;
pub(crate) mod scoreboard;
mod stats;
mod stream;
mod target;
#[cfg(test)]
mod tests;
mod transfer;
mod verify;

use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::net::Ipv6Addr;

use weir_base::{FaceId, Instant, Packet, Rng};
use weir_hicn::{NativeData, path_label};
use weir_security::Verifier;
use weir_security::manifest::{ManifestPart, PartId};
use weir_store::{HoldingsStatus, SegmentRange};
use weir_wire::{CongestionMark, DataView, InterestView, LpHeader};

use self::discovery::{Discovery, Step};
use self::end_claim::StatedEnd;
use self::holdings::{HoldingsQueries, QueryReply};
use self::layout::Layout;
use self::naming::{METADATA_INDEX, probe_index};
use self::path::Answer;
use self::schedule::Schedule;
use self::stream::StreamPart;
use self::transfer::{Transfer, Verified};
use self::verify::{AcceptedPart, BAD_COPIES_MAX, Incoming};
use crate::PathId;
use crate::metadata::Metadata;
use crate::request::Nack;
use crate::segment_set::SegmentSet;

pub use self::check::{Check, KeyId, Verdict, VerifyId};
pub(crate) use self::chunk::nack_wait_ns;
pub use self::chunks::CHUNK_SEGMENTS_MAX;
pub use self::config::{ConsumerConfig, HoldingsMode, LagPolicy, OnBad, ReaderMode, Verification};
pub use self::input::ConsumerInput;
pub use self::labels::LabelStats;
pub use self::missing::MissingSegments;
pub use self::outbox::{
    ConsumerError, ConsumerEvent, ConsumerOutbox, Delivery, TraceEvent, TraceKind, VerifyOp,
};
pub use self::schedule::PathSchedule;
pub use self::stats::{ConsumerStats, PathStats};
pub use self::target::{PacketId, RangeId, Target};

/// Fetches one object, or ranges of objects one after another. See [`ConsumerInput`] and
/// [`ConsumerOutbox`]. The driver calls [`Consumer::handle`] with inputs, and whenever
/// [`Consumer::next_wakeup`] has passed.
pub struct Consumer {
    rng: Rng,
    discovery: Discovery,
    holdings_queries: HoldingsQueries,
    transfer: Transfer,
}

impl fmt::Debug for Consumer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consumer")
            .field("discovery", &self.discovery)
            .field("inventory", &self.transfer.inventory)
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
        let target = target.resolved();
        Self {
            rng: Rng::from_seed(seed),
            holdings_queries: HoldingsQueries::default(),
            discovery: Discovery::new(target.clone(), &config, now),
            transfer: Transfer::new(&target, config, schedule, seed),
        }
    }

    /// Takes and drains `inputs`, and appends to `out` what the driver must do.
    pub fn handle(
        &mut self,
        now: Instant,
        inputs: &mut Vec<ConsumerInput>,
        out: &mut ConsumerOutbox,
    ) {
        self.start_known_version(now, out);
        for input in inputs.drain(..) {
            self.input(now, input, out);
        }
        self.advance(now, out);
        self.transfer.end_turn(out);
    }

    fn input(&mut self, now: Instant, input: ConsumerInput, out: &mut ConsumerOutbox) {
        match input {
            ConsumerInput::AddPath { path, window, is_local } => {
                let is_new = self.transfer.scoreboard.add_path(path, window);
                debug_assert!(is_new, "{path:?} is there already");
                let lifetime_ms = self.transfer.config.lifetime_ms;
                self.holdings_queries.path_added(path, is_local, lifetime_ms, now);
            }
            ConsumerInput::RemovePath { path } => {
                self.discovery.path_removed(path, now);
                self.transfer.path_removed(path, now);
                self.holdings_queries.path_removed(path);
            }
            ConsumerInput::Packet { path, header, packet } => {
                self.packet(now, path, &header, packet, out);
            }
            ConsumerInput::Narrow { segments } => {
                debug_assert!(self.discovery.is_found(), "it has begun");
                self.transfer.inventory.layout_mut().set_wanted(segments);
            }
            ConsumerInput::Start { have, reader } => {
                self.transfer.set_reader(reader);
                self.query_routers(now);
                self.start(now, have, out);
            }
            ConsumerInput::Append { range, name, segments } => {
                self.transfer.append(range, &name, segments, out);
            }
            ConsumerInput::Close => self.transfer.close(),
            ConsumerInput::Verified { .. } | ConsumerInput::Key { .. } if self.has_ended() => {}
            ConsumerInput::Verified { op, verdict } => self.on_verdict(now, op, verdict, out),
            ConsumerInput::Key { key, verifier } => self.on_key(now, key, verifier, out),
            ConsumerInput::Read { segments } => self.transfer.reader.read(segments),
        }
    }

    /// Sends what may be sent, and ends what is complete.
    fn advance(&mut self, now: Instant, out: &mut ConsumerOutbox) {
        // 1. Ends the probe for a manifest when it has waited long enough.
        let step = self.discovery.advance(now);
        self.apply_step(now, step, out);
        // 2. Losses and timeouts.
        self.transfer.detect_losses(now, out);
        // 3. Single Interests: of discovery, outside the window, and queries to routers.
        self.poll_discovery(now, out);
        self.transfer.poll_requests(now, &mut self.rng, out);
        if !self.holdings_queries.is_empty() && !self.has_ended() {
            let sent = self.holdings_queries.poll(now, &mut self.rng, &mut out.interests);
            self.transfer.stats.interests += sent;
        }
        // 4. Delivery to the reader.
        self.transfer.hand_out(&mut out.deliveries);
        // 5. Growing objects.
        if self.transfer.is_running() {
            self.transfer.advance_live(now, out);
        }
        // 6. The window.
        if self.transfer.is_running() {
            if !self.waits_for_routers() {
                self.transfer.advance(now, &mut self.rng, out);
            }
            self.transfer.end_if_done(now, out);
        }
    }

    /// When [`Consumer::handle`] must be called at the latest, if no input arrives earlier.
    pub fn next_wakeup(&self) -> Option<Instant> {
        // Without a path nothing can be sent. Everything else that the consumer may wait for, such
        // as verdicts, arrives as an input.
        let has_path = !self.transfer.scoreboard.paths().all().is_empty();
        if !has_path || !(self.discovery.is_requesting() || self.transfer.is_running()) {
            return None;
        }
        let discovery = self.discovery.next_wakeup();
        let wakeups = [discovery, self.transfer.next_wakeup(), self.holdings_queries.next_wakeup()];
        wakeups.into_iter().flatten().min()
    }
}

/// Packets.
impl Consumer {
    fn packet(
        &mut self,
        now: Instant,
        path: PathId,
        header: &LpHeader,
        packet: Packet,
        out: &mut ConsumerOutbox,
    ) {
        let octets = packet.clone();
        if let Some(nack) = Nack::from_header(header) {
            match InterestView::decode(&octets) {
                Ok(interest) => self.nack(now, &interest, nack, out),
                Err(_) => self.transfer.stats.malformed += 1,
            }
            return;
        }
        let Ok(data) = DataView::decode(&octets) else {
            self.transfer.stats.malformed += 1;
            return;
        };
        // Answers about holdings have their own names, which are not below the object's name.
        match self.holdings_queries.on_data(path, &data, now) {
            QueryReply::Unrelated => {}
            QueryReply::Consumed => return,
            QueryReply::Holdings(path, status) => return self.on_holdings(path, status, out),
        }
        let incoming = Incoming::new(&data, packet, path, header.incoming_face.map(FaceId));
        if self.has_ended() {
            self.transfer.stats.unwanted += 1;
        } else if self.discovery.is_requesting() {
            self.discovery_data(now, &data, incoming, out);
        } else if self.transfer.is_running() {
            let mark = CongestionMark::from_value(header.congestion_mark);
            let label = path_label(&data);
            let answer = Answer { now, path, mark, packet_bytes: octets.len(), label };
            let verified = self.transfer.on_data(&answer, &data, incoming, out);
            self.on_verified(now, verified, out);
        } else {
            self.transfer.stats.unwanted += 1;
        }
    }

    fn nack(
        &mut self,
        now: Instant,
        interest: &InterestView<'_>,
        nack: Nack,
        out: &mut ConsumerOutbox,
    ) {
        if self.has_ended() || self.holdings_queries.on_nack(interest, nack, now) {
            return;
        }
        self.transfer.note_nack_origin(nack);
        match self.discovery.on_nack(now, interest, nack) {
            Some(step) => {
                self.transfer.stats.nacks += 1;
                self.apply_step(now, step, out);
            }
            None => self.transfer.on_nack(now, interest, nack, out),
        }
    }
}

/// Discovery.
impl Consumer {
    /// Some targets know their version from the start.
    fn start_known_version(&mut self, now: Instant, out: &mut ConsumerOutbox) {
        if !self.discovery.is_found() || self.transfer.inventory.metadata.is_some() {
            return;
        }
        let metadata = match self.discovery.target() {
            Target::KnownMetadata { metadata } => metadata.clone(),
            other => Metadata::new(other.name()),
        };
        let found = Step::Found { metadata, stored: None, is_whole: false };
        self.apply_step(now, found, out);
    }

    fn discovery_data(
        &mut self,
        now: Instant,
        data: &DataView<'_>,
        incoming: Incoming,
        out: &mut ConsumerOutbox,
    ) {
        let Some(answered) = self.discovery.take_answered(data) else {
            self.transfer.stats.unwanted += 1;
            return;
        };
        if let Some(rtt_ns) = answered.request.rtt_ns(now) {
            self.transfer.scoreboard.set_first_rtt(answered.request.path(), rtt_ns);
        }
        let mut step = self.discovery.on_data(now, answered, data, incoming);
        if let Step::FirstSegment = step {
            self.transfer.learn_last(StatedEnd::of(data), out);
            step = self.discovery.on_first_segment();
        }
        self.apply_step(now, step, out);
    }

    fn poll_discovery(&mut self, now: Instant, out: &mut ConsumerOutbox) {
        if !self.discovery.is_requesting() {
            return;
        }
        let paths = self.transfer.scoreboard.paths().request_order();
        while !self.has_ended() && self.discovery.is_requesting() {
            let sent = &mut self.transfer.stats.interests;
            let polled = self.discovery.poll(now, &paths, &mut self.rng, &mut out.interests, sent);
            let Some(step) = polled else { return };
            self.apply_step(now, step, out);
        }
    }

    /// Does what a step of discovery requires.
    fn apply_step(&mut self, now: Instant, step: Step, out: &mut ConsumerOutbox) {
        if self.has_ended() {
            return;
        }
        match step {
            Step::Wait | Step::FirstSegment => {}
            Step::Verify { index, incoming } => {
                let verified = self.transfer.accept(now, index, incoming, out);
                self.on_verified(now, verified, out);
            }
            Step::Found { metadata, stored, is_whole } => {
                self.transfer.inventory.set_metadata(metadata.clone(), is_whole);
                self.discovery.set_version(metadata.versioned.clone());
                let target = self.discovery.target();
                let stored = stored.map(|why| Box::new(self.transfer.error_of(target.name(), why)));
                out.events.push(ConsumerEvent::Found { metadata, stored });
            }
            Step::BadMetadata(error) => self.on_bad_metadata(now, error, out),
            Step::BadManifest => self.on_bad_manifest(now, None, out),
            Step::Begin { manifest, first_segment } => {
                self.transfer.begin(manifest, out);
                let Some(incoming) = first_segment else { return };
                if let Some(index) = self.transfer.inventory.take_first_segment() {
                    let verified = self.transfer.accept(now, index, incoming, out);
                    self.on_verified(now, verified, out);
                }
            }
            Step::Failed(error) => self.transfer.fail(error, out),
            Step::Unanswered(reason) => {
                let error = self.transfer.error_of(self.discovery.target().name(), reason);
                self.transfer.fail(error, out);
            }
        }
    }

    /// The driver has stated which segments it has. Begins to fetch the others, or to probe for a
    /// manifest.
    fn start(&mut self, now: Instant, have: SegmentSet, out: &mut ConsumerOutbox) {
        let Some(metadata) = &self.transfer.inventory.metadata else { return };
        if !self.discovery.is_found() || self.has_ended() {
            return;
        }
        let (last, manifest) = (metadata.last_segment, metadata.manifest);
        let manifest = manifest.filter(|_| !metadata.grows());
        self.transfer.inventory.received = have;
        let target = self.discovery.target();
        let layout = self.transfer.inventory.layout_mut();
        if layout.stream_address().is_some() {
            return self.discovery.probe_stream(now, 0);
        }
        // Without metadata nothing says whether there is a manifest: a probe finds out.
        let has_metadata = matches!(target, Target::Latest { .. } | Target::KnownMetadata { .. });
        let may_probe = self.transfer.config.look_for_manifest;
        if !has_metadata && !layout.is_whole() && may_probe && self.transfer.uses_manifest() {
            let first_segment = self.transfer.inventory.layout_mut().first_segment();
            return self.discovery.probe(now, first_segment);
        }
        if let Some(last) = last {
            self.transfer.set_last(last, false, out);
            if self.has_ended() {
                return;
            }
        }
        self.transfer.begin(manifest, out);
        self.transfer.begin_live(now, target);
        self.discovery.finish();
    }
}

/// Verification.
impl Consumer {
    /// The driver's verdict on a packet.
    fn on_verdict(
        &mut self,
        now: Instant,
        op: VerifyId,
        verdict: Verdict,
        out: &mut ConsumerOutbox,
    ) {
        let Transfer { verify, inventory, .. } = &mut self.transfer;
        let Some((index, outcome)) = verify.conclude(op, verdict, inventory) else { return };
        let verified = self.transfer.apply_outcome(now, index, outcome, out);
        self.on_verified(now, verified, out);
    }

    /// The driver states how to verify a signer's packets, or that it does not trust the signer.
    fn on_key(
        &mut self,
        now: Instant,
        key: KeyId,
        verifier: Result<Arc<dyn Verifier>, String>,
        out: &mut ConsumerOutbox,
    ) {
        match verifier {
            Ok(verifier) => {
                if !self.transfer.verify.set_key(key, verifier) {
                    return;
                }
            }
            Err(reason) => {
                let Some(refused) = self.transfer.verify.remove_key(key) else { return };
                // Of the held packets, only those of this signer are rejected.
                for (index, incoming) in self.transfer.verify.take_held() {
                    let data = DataView::decode(&incoming.packet).expect("decoded on arrival");
                    let Transfer { verify, inventory, .. } = &mut self.transfer;
                    if !verify.needs_signer(inventory, index) || !refused.signed(&data) {
                        verify.hold(index, incoming);
                        continue;
                    }
                    let (_, id) = inventory.packet_at(index);
                    let outcome = verify.untrusted(id, reason.clone());
                    let verified = self.transfer.apply_outcome(now, index, outcome, out);
                    self.on_verified(now, verified, out);
                }
            }
        }
        self.retry_held_packets(now, out);
    }

    /// Verifies held packets whose prerequisite may have arrived.
    fn retry_held_packets(&mut self, now: Instant, out: &mut ConsumerOutbox) {
        for (index, incoming) in self.transfer.verify.take_held() {
            let verified = self.transfer.verify(now, index, incoming, out);
            self.on_verified(now, verified, out);
        }
    }

    /// Reports a verification to discovery and growing objects, and retries held packets.
    fn on_verified(&mut self, now: Instant, verified: Option<Verified>, out: &mut ConsumerOutbox) {
        match verified {
            None => {}
            Some(Verified::Metadata) => {
                let step = self.discovery.metadata_verified();
                self.apply_step(now, step, out);
                self.transfer.on_metadata_verified(out);
            }
            Some(Verified::BadMetadata(error)) => self.on_bad_metadata(now, error, out),
            Some(Verified::FirstManifestPart(part)) => self.on_first_manifest_part(now, part, out),
            Some(Verified::BadManifest(error)) => self.on_bad_manifest(now, Some(error), out),
            Some(Verified::ManifestPart) => self.retry_held_packets(now, out),
        }
    }

    /// The metadata are not those of the object, or its producer did not sign them. Requests them
    /// again a few times, then fails.
    fn on_bad_metadata(&mut self, now: Instant, error: ConsumerError, out: &mut ConsumerOutbox) {
        if self.transfer.drop_end_metadata() {
            return;
        }
        if self.transfer.verify.count_bad_copy(METADATA_INDEX) > BAD_COPIES_MAX {
            return self.transfer.fail(error, out);
        }
        if !self.transfer.renew_later(now) {
            self.discovery.request_metadata_again(now, error);
        }
    }

    /// The first manifest part is verified: it gives the manifest's shape.
    fn on_first_manifest_part(
        &mut self,
        now: Instant,
        part: AcceptedPart,
        out: &mut ConsumerOutbox,
    ) {
        let data = DataView::decode(&part.packet).expect("decoded on arrival");
        if let Some(address) = self.transfer.inventory.layout().and_then(Layout::stream_address) {
            return self.on_first_packet(now, address, part.id, &data, out);
        }
        let Ok(manifest) = ManifestPart::decode(data.content) else { return };
        self.transfer.inventory.set_first_manifest_part(part.id);
        let step = self.discovery.end_probe(Some(manifest.shape));
        self.apply_step(now, step, out);
        if let Err(error) = self.transfer.verify.add_part(part) {
            let (what, reason) = ("the manifest".into(), alloc::format!("{error}"));
            return self.transfer.fail(ConsumerError::Unverified { what, reason }, out);
        }
        self.retry_held_packets(now, out);
    }

    /// The first packet of a stream is verified. No signature covers the flag of a manifest, so the
    /// content shows whether it is one.
    fn on_first_packet(
        &mut self,
        now: Instant,
        address: Ipv6Addr,
        id: PartId,
        data: &DataView<'_>,
        out: &mut ConsumerOutbox,
    ) {
        let read = StreamPart::read(data.content, address, 0);
        let shape = read.as_ref().ok().and_then(StreamPart::shape);
        match (&read, shape) {
            (Ok(part), Some(shape)) => {
                self.discovery.drop_first_segment();
                self.transfer.inventory.set_first_manifest_part(id);
                let step = self.discovery.end_probe(Some(shape));
                self.apply_step(now, step, out);
                if let Err(reason) = self.transfer.add_stream_part(id, part, out) {
                    let what = "the manifest at packet 0".into();
                    self.transfer.fail(ConsumerError::Unverified { what, reason }, out);
                }
            }
            // Either the flag is false, which another copy shows, or it is a manifest of a kind
            // that is not supported.
            (Err(reason), _) if NativeData::of(data).is_some_and(|it| it.is_manifest()) => {
                let (what, reason) = ("packet 0".into(), reason.clone());
                let error = ConsumerError::Unverified { what, reason };
                self.on_bad_manifest(now, Some(error), out);
            }
            _ => {
                if self.transfer.inventory.layout().is_none_or(|it| it.first_segment() > 0) {
                    self.discovery.drop_first_segment();
                }
                let step = self.discovery.end_probe(None);
                self.apply_step(now, step, out);
            }
        }
    }

    /// The first manifest part is not usable, or the first packet of a stream.
    fn on_bad_manifest(
        &mut self,
        now: Instant,
        error: Option<ConsumerError>,
        out: &mut ConsumerOutbox,
    ) {
        let times = self.transfer.verify.count_bad_copy(probe_index(1));
        if self.transfer.inventory.is_stream()
            && let Some(error) = error
        {
            if times > BAD_COPIES_MAX || matches!(error, ConsumerError::Untrusted(_)) {
                return self.transfer.fail(error, out);
            }
            return self.discovery.probe_stream(now, times);
        }
        let step = self.discovery.on_bad_manifest(now, times);
        self.apply_step(now, step, out);
    }
}

/// Holdings of routers.
impl Consumer {
    /// The version is known: queries the routers, if configured.
    fn query_routers(&mut self, now: Instant) {
        let Transfer { config, inventory, .. } = &self.transfer;
        let (Some(metadata), Some(_)) = (&inventory.metadata, inventory.layout()) else { return };
        if config.holdings == HoldingsMode::Ignore {
            return;
        }
        let versioned = config.mapping.version_prefix(metadata.versioned.as_view());
        self.holdings_queries.begin(versioned, config.lifetime_ms, now);
    }

    /// Whether the fetch waits for the routers' answers.
    fn waits_for_routers(&self) -> bool {
        self.transfer.config.holdings == HoldingsMode::Wait && self.awaits_routers()
    }

    /// Whether some routers have not reported their holdings yet. The names of their answers are
    /// not below the object's name, so a driver that filters by name must accept them.
    pub fn awaits_routers(&self) -> bool {
        !self.holdings_queries.is_empty()
    }

    fn on_holdings(&mut self, path: PathId, status: HoldingsStatus, out: &mut ConsumerOutbox) {
        let HoldingsStatus { memory, disk, is_partial, .. } = status;
        let ranges = SegmentRange::join([memory, disk].concat());
        let segments = ranges.iter().fold(0, |sum: u64, range| {
            sum.saturating_add((range.last - range.first).saturating_add(1))
        });
        self.transfer.scoreboard.set_holdings(path, ranges);
        out.events.push(ConsumerEvent::Holdings { path, segments, is_partial });
    }
}

/// State and counters.
impl Consumer {
    /// Whether it has ended, successfully or not.
    pub fn has_ended(&self) -> bool {
        self.transfer.has_ended()
    }

    /// The segments received: those that the driver had at the start, and those verified since.
    pub fn received(&self) -> &SegmentSet {
        &self.transfer.inventory.received
    }

    /// The number of the last segment, once known.
    pub fn last_segment(&self) -> Option<u64> {
        self.transfer.inventory.last_segment()
    }

    /// Counters and measures so far. The window is the sum over all paths in use. The smoothed and
    /// the smallest round-trip time are those of the first path.
    pub fn stats(&self) -> ConsumerStats {
        let Transfer { scoreboard, stats, .. } = &self.transfer;
        let histogram = scoreboard.histogram();
        let mut stats = stats.clone();
        stats.add(scoreboard.counters());
        stats.has_unsigned_end = self.transfer.has_unsigned_end();
        stats.outstanding = scoreboard.outstanding().in_flight();
        stats.rtt_median_ns = histogram.and_then(|histogram| histogram.quantile(0.5));
        stats.rtt_p99_ns = histogram.and_then(|histogram| histogram.quantile(0.99));
        let in_use = scoreboard.paths().in_use();
        stats.window = in_use.iter().map(|path| path.allowance().window).sum();
        if let Some(path) = in_use.first() {
            stats.rtt_smoothed_ns = path.rtt.smoothed_ns();
            stats.rtt_min_ns = path.rtt.min_ns();
        }
        stats
    }

    /// The window of a path, in chunks; `None` for an unknown path.
    pub fn window_of(&self, path: PathId) -> Option<f64> {
        let paths = self.transfer.scoreboard.paths().all();
        paths.iter().find(|one| one.id == path).map(|one| one.allowance().window)
    }

    /// Counters of a path since it was first added.
    pub fn path_stats(&self, path: PathId) -> PathStats {
        self.transfer.scoreboard.paths().stats(path)
    }

    /// Measurements of a path for each path label of hICN, the most recently seen one last; at most
    /// 16. No signature covers labels.
    pub fn label_stats(&self, path: PathId) -> Vec<LabelStats> {
        self.transfer.scoreboard.paths().labels(path).to_vec()
    }

    /// Checks the counters of Interests in flight against the chunks, for tests of drivers.
    ///
    /// # Panics
    /// They contradict each other.
    pub fn assert_consistent(&self) {
        self.transfer.scoreboard.assert_consistent();
    }
}
