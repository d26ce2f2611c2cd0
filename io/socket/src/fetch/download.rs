//! One download: a consumer, and the destination of its segments. `fetch/mod.rs` has an overview.

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_base::{FaceId, Instant, NS_PER_S};
use weir_client::{Client, ClientError, ReceivedPacket};
use weir_security::trust::Trust;
use weir_transport::{
    Consumer, ConsumerConfig, ConsumerEvent, ConsumerInput, ConsumerOutbox, NameMapping, PacketId,
    PathId, ReaderMode, SegmentSet, Target, Verdict, VerifyOp,
};
use weir_wire::{DataView, Name};

use super::durability::{DurabilityTask, DurabilityThread};
use super::erasures::Erasures;
use super::host::{DownloadError, DownloadHost, DownloadId, Found, PathSummary, Summary};
use super::lookup::CertificateLookups;
use super::notifier::Notifiers;
use super::output::{Opened, Output, OutputError, PacketReader};
use super::part_file::NO_KEY;
use super::sink::{FileSink, StreamWriter};
use super::spans::{DownloadSpans, ThreadWork};
use super::verify_pool::{PoolTask, StoreFault, VerifiedBatch, VerifyPool, is_native};

/// Segments per batch for a thread: 256 kB.
const BATCH_SEGMENTS: usize = 32;
/// How often the stored segments are saved, for a download that is interrupted.
const SAVE_NS: u64 = 2 * NS_PER_S;
/// Upper bound of segments that wait for a stream, 8 MB. More wait in the consumer.
const STREAM_SEGMENTS_MAX: u32 = 1024;

/// What all downloads share.
pub(crate) struct DownloadServices<'a> {
    pub(crate) client: &'a mut Client,
    pub(crate) host: &'a mut dyn DownloadHost,
    pub(crate) pool: &'a VerifyPool,
    pub(crate) durability: &'a DurabilityThread,
}

/// The object, and its destination.
struct ObjectState {
    found: Found,
    /// `None` while another thread opens or saves it.
    output: Option<Box<dyn Output>>,
    destination: Destination,
    segments_resumed: u64,
    /// Keys that verified segments of an earlier attempt, and that this one has not accepted. It
    /// must accept one of the keys, but not all: if the earlier attempt fetched a folder, it also
    /// lists the keys of other files. [`NO_KEY`] is valid only if this attempt accepts no keys.
    unconfirmed_keys: Vec<[u8; 32]>,
    /// Whether this one has accepted such a key, or any key before the output was opened.
    has_accepted_key: bool,
    has_manifest: bool,
}

/// Where segments go.
enum Destination {
    /// Not known yet.
    Undecided,
    /// A file, once the segment size is known.
    File(Option<Arc<FileSink>>),
    Stream(StreamWriter),
    Reader(Box<dyn PacketReader>),
    /// Nowhere: the file is already complete.
    AlreadyThere,
}

/// A download in progress.
pub(crate) struct Download {
    /// Distinguishes its reports from those of other downloads.
    serial: u64,
    notifiers: Notifiers,
    pub(crate) id: DownloadId,
    consumer: Consumer,
    mapping: NameMapping,
    /// Packets below this prefix are for this download, too.
    new_prefix: Option<Name>,
    inputs: Vec<ConsumerInput>,
    out: ConsumerOutbox,
    object: Option<ObjectState>,
    /// Segments for the next batch.
    verify_batch: Vec<VerifyOp>,
    /// Verdicts of packets verified on the network thread.
    verified_inline: VerifiedBatch,
    /// Bad packets that will be erased from local routers.
    bad_packets: VerifiedBatch,
    erasures: Erasures,
    batches_in_flight: usize,
    /// How many segments it may have in memory; `None` before they are granted.
    granted_segments: Option<u32>,
    segments_max: u32,
    /// Signers without a decision.
    lookups: CertificateLookups,
    paths: Vec<PathId>,
    by_face: BTreeMap<(PathId, Option<FaceId>), u64>,
    by_path: BTreeMap<PathId, PathSummary>,
    started: Instant,
    saved_at: Instant,
    /// The first segment that is shorter than the others, although no signature says that it is the
    /// last.
    short_segment: Option<(u64, usize)>,
    spans: DownloadSpans,
    work: ThreadWork,
    /// The error that ended it.
    error: Option<DownloadError>,
}

impl Download {
    pub(crate) fn new(
        client: &mut Client,
        id: DownloadId,
        target: Target,
        fetch: ConsumerConfig,
        serial: u64,
        notifiers: Notifiers,
    ) -> Self {
        let now = client.now();
        Self {
            serial,
            notifiers,
            id,
            spans: DownloadSpans::start(&target, &fetch),
            work: ThreadWork::default(),
            segments_max: fetch.reader_segments_max,
            mapping: fetch.mapping,
            new_prefix: None,
            consumer: Consumer::new(target, fetch, client.random_u64(), now),
            inputs: client.paths().map(|path| add_path(path, client.is_local_at(path))).collect(),
            out: ConsumerOutbox::default(),
            object: None,
            verify_batch: Vec::new(),
            verified_inline: VerifiedBatch::default(),
            bad_packets: VerifiedBatch::default(),
            erasures: Erasures::default(),
            batches_in_flight: 0,
            granted_segments: None,
            lookups: CertificateLookups::new(client.random_u64()),
            paths: client.paths().collect(),
            by_face: BTreeMap::new(),
            by_path: client.paths().map(|path| (path, PathSummary::default())).collect(),
            started: now,
            saved_at: now,
            short_segment: None,
            error: None,
        }
    }

    /// Whether it waits for packets that are not below its name: certificates, and answers of
    /// routers.
    /// A prefix of the names that it requests, if it is new.
    pub(crate) fn take_new_prefix(&mut self) -> Option<Name> {
        self.new_prefix.take()
    }

    pub(crate) fn awaits_foreign_packets(&self) -> bool {
        self.lookups.is_waiting() || self.erasures.is_waiting() || self.consumer.awaits_routers()
    }

    pub(crate) fn receive(
        &mut self,
        now: Instant,
        packet: ReceivedPacket,
        host: &mut dyn DownloadHost,
    ) {
        let ReceivedPacket { path, header, packet } = packet;
        let trust = host.trust(self.id);
        let is_other = self.lookups.on_data(now, &header, &packet, trust, &mut self.inputs)
            || self.erasures.on_answer(&header, &packet);
        if !is_other {
            self.inputs.push(ConsumerInput::Packet { path, header, packet });
        }
    }

    /// A path broke or returned.
    pub(crate) fn on_path_changed(
        &mut self,
        path: PathId,
        is_local: bool,
        is_there: bool,
        now: Instant,
    ) {
        if self.paths.contains(&path) == is_there {
            return;
        }
        if is_there {
            self.paths.push(path);
            self.by_path.entry(path).or_default();
            self.inputs.push(add_path(path, is_local));
        } else {
            self.paths.retain(|&other| other != path);
            self.lookups.path_removed(path, now);
            self.erasures.path_removed(path);
            self.inputs.push(ConsumerInput::RemovePath { path });
        }
    }

    /// Whether it has done everything that it can without new input.
    pub(crate) fn is_idle(&self) -> bool {
        self.inputs.is_empty() || self.has_ended()
    }

    pub(crate) fn next_wakeup(&self) -> Option<Instant> {
        let others = [Some(self.lookups.next_wakeup()), self.erasures.next_wakeup()];
        self.consumer.next_wakeup().into_iter().chain(others.into_iter().flatten()).min()
    }

    /// How many segments must be granted to it. `None` before the object is known, and once they
    /// are granted.
    pub(crate) fn needed_segments(&self) -> Option<u32> {
        let object = self.object.as_ref().filter(|_| self.granted_segments.is_none())?;
        let last = object.found.metadata.last_segment.unwrap_or(u64::MAX);
        let segments = last.saturating_add(1);
        Some(segments.clamp(1, u64::from(self.segments_max)) as u32)
    }

    pub(crate) fn open(&mut self, units: u32, pool: &VerifyPool) {
        self.granted_segments = Some(units);
        let object = self.object.as_mut().expect("the object is known");
        let mut output = object.output.take().expect("the output is not in use");
        let metadata = object.found.metadata.clone();
        self.spans.opening();
        if output.is_quick() {
            let result = output.open(&metadata);
            return self.on_opened(output, result);
        }
        pool.submit(PoolTask::Open { serial: self.serial, output, metadata });
    }

    /// Segments to return to the shared budget at its end.
    pub(crate) fn granted_segments(&self) -> u32 {
        self.granted_segments.unwrap_or(0)
    }

    /// Does everything that is possible without new input.
    pub(crate) fn advance(&mut self, services: &mut DownloadServices<'_>) {
        if self.error.is_none() {
            self.error = self.try_advance(services).err();
        }
    }

    fn try_advance(&mut self, services: &mut DownloadServices<'_>) -> Result<(), DownloadError> {
        loop {
            // Bad verdicts take a detour: the consumer requests a packet again only after local
            // routers have erased the bad copy.
            if !self.bad_packets.verdicts.is_empty() {
                let VerifiedBatch { verdicts, bad_names: false_copies, .. } =
                    std::mem::take(&mut self.bad_packets);
                self.erasures.begin(services.client, &self.paths, &false_copies, verdicts);
            }
            // Handling may produce new inputs at once, so this repeats until none are left.
            let now = services.client.now();
            self.erasures.poll(now, &mut self.inputs);
            self.consumer.handle(now, &mut self.inputs, &mut self.out);
            let (paths, out) = (&self.paths, &mut self.out.interests);
            let trust = services.host.trust(self.id);
            self.lookups.poll(now, paths, trust, &mut self.inputs, out);
            for (path, interest) in self.out.interests.iter() {
                // A full queue drops the Interest, as a network would: it is sent again later.
                let _ = services.client.send_bytes(path, interest);
            }
            self.out.interests.clear();
            self.submit_verification(services.pool)?;
            let verified = std::mem::take(&mut self.verified_inline);
            self.take_verdicts(verified);
            self.take_deliveries()?;
            self.take_events(services)?;
            self.confirm_keys(services.host.trust(self.id))?;
            self.save_if_due(now, services);
            if self.inputs.is_empty() && self.bad_packets.verdicts.is_empty() {
                return Ok(());
            }
        }
    }

    /// Submits packets for verification: segments in batches to the pool, the few others here.
    fn submit_verification(&mut self, pool: &VerifyPool) -> Result<(), DownloadError> {
        for op in self.out.verify.drain(..) {
            let data = DataView::decode(&op.packet).expect("decoded by the consumer");
            *self.by_face.entry((op.path, op.incoming_face)).or_default() += 1;
            let by_path = self.by_path.entry(op.path).or_default();
            by_path.packets += 1;
            by_path.octets += data.content.len() as u64;
            let PacketId::Segment(segment) = op.id else {
                // While the segment size is unknown, no batch is submitted. Manifest parts are
                // verified here then, because the segment that shows the size needs them.
                if self.object.as_ref().is_none_or(ObjectState::is_ready) {
                    self.verify_batch.push(op);
                } else {
                    self.verified_inline.check(&op);
                }
                continue;
            };
            let object = self.object.as_mut().expect("a segment is of an object");
            // The metadata may not state the segment size. Only a verified segment does: a forged
            // one would put all others at wrong offsets.
            if let (Destination::File(None), Some(size)) =
                (&object.destination, stated_size(segment, &data))
            {
                if !self.verified_inline.check(&op) {
                    continue;
                }
                // The pool verifies it again with its batch, and stores it.
                self.verified_inline.verdicts.pop();
                object.set_segment_size(size)?;
            }
            self.verify_batch.push(op);
            if self.verify_batch.len() >= BATCH_SEGMENTS && object.is_ready() {
                self.spans.verifying();
                let (serial, file) = (self.serial, object.file());
                self.batches_in_flight += 1;
                let ops = std::mem::take(&mut self.verify_batch);
                pool.submit(PoolTask::Verify { serial, ops, file });
            }
        }
        // The incomplete last batch goes too: nothing waits for more segments. Before the object is
        // known, the batch holds its metadata.
        let is_ready = self.object.as_ref().is_none_or(ObjectState::is_ready);
        if is_ready && !self.verify_batch.is_empty() {
            self.spans.verifying();
            let (serial, file) = (self.serial, self.object.as_ref().and_then(ObjectState::file));
            self.batches_in_flight += 1;
            let ops = std::mem::take(&mut self.verify_batch);
            pool.submit(PoolTask::Verify { serial, ops, file });
        }
        Ok(())
    }

    /// Passes ordered segments to the stream or reader.
    fn take_deliveries(&mut self) -> Result<(), DownloadError> {
        let destination = self.object.as_mut().map(|object| &mut object.destination);
        let deliveries = &mut self.out.deliveries;
        let units = match destination {
            Some(Destination::Stream(writer)) => {
                if !deliveries.is_empty() {
                    writer.write(deliveries.drain(..).map(|delivery| delivery.packet).collect());
                }
                writer.take_written().map_err(DownloadError::Store)?
            }
            Some(Destination::Reader(reader)) => {
                if !deliveries.is_empty() {
                    reader.take(deliveries);
                }
                reader.take_consumed().ok_or(DownloadError::Stopped)?
            }
            _ => 0,
        };
        if units > 0 {
            self.inputs.push(ConsumerInput::Read { segments: units });
        }
        Ok(())
    }

    fn take_events(&mut self, services: &mut DownloadServices<'_>) -> Result<(), DownloadError> {
        for event in std::mem::take(&mut self.out.events) {
            match event {
                ConsumerEvent::Found { metadata, stored } => {
                    let versioned = metadata.versioned.as_view();
                    // NDN names of a version are below that of the object.
                    self.new_prefix = (self.mapping != NameMapping::Identity)
                        .then(|| self.mapping.version_prefix(versioned));
                    let is_from_local_store = !self.by_face.is_empty()
                        && self
                            .by_face
                            .keys()
                            .all(|(_, face)| *face == Some(FaceId::CONTENT_STORE));
                    let stored = stored.map(|error| *error);
                    let found = Found { metadata, stored, is_from_local_store };
                    self.spans.found(&found);
                    let output = services.host.output(self.id, &found);
                    let mut output = output.map_err(DownloadError::Refused)?;
                    let keys = services.host.trust(self.id).accepted_keys();
                    let has_accepted_key = !keys.is_empty();
                    output.set_keys(keys);
                    self.object = Some(ObjectState {
                        found,
                        output: Some(output),
                        unconfirmed_keys: Vec::new(),
                        has_accepted_key,
                        destination: Destination::Undecided,
                        segments_resumed: 0,
                        has_manifest: false,
                    });
                }
                ConsumerEvent::Manifest { shape } => {
                    let object = self.object.as_mut().expect("opened before");
                    object.has_manifest = shape.is_some();
                }
                ConsumerEvent::NeedKey { key, packet } => {
                    let now = services.client.now();
                    let trust = services.host.trust(self.id);
                    self.lookups.start(now, key, packet, trust, &mut self.inputs);
                }
                ConsumerEvent::Failed(error) => return Err(error.into()),
                ConsumerEvent::Done => {
                    self.check_short_segment()?;
                    self.confirm_keys(services.host.trust(self.id))?;
                    if self.object.as_ref().is_some_and(ObjectState::awaits_key) {
                        return Err(DownloadError::OtherSigner);
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Confirms keys that verified the segments of an earlier attempt. Fails if the first keys that
    /// this download accepts are others.
    fn confirm_keys(&mut self, trust: &mut dyn Trust) -> Result<(), DownloadError> {
        let Some(object) = &mut self.object else { return Ok(()) };
        if object.unconfirmed_keys.is_empty() {
            return Ok(());
        }
        let accepted = trust.accepted_keys();
        let count = object.unconfirmed_keys.len();
        object.unconfirmed_keys.retain(|key| !accepted.contains(key));
        object.has_accepted_key |= object.unconfirmed_keys.len() < count;
        if accepted.is_empty() || object.has_accepted_key {
            return Ok(());
        }
        Err(DownloadError::OtherSigner)
    }

    /// Only the last segment may be shorter than the others.
    fn check_short_segment(&self) -> Result<(), DownloadError> {
        match self.short_segment {
            Some((segment, len)) if self.consumer.last_segment() != Some(segment) => {
                Err(DownloadError::Size { segment, len })
            }
            _ => Ok(()),
        }
    }

    /// The output has been opened, or failed to open.
    pub(crate) fn on_opened(
        &mut self,
        output: Box<dyn Output>,
        result: Result<Opened, OutputError>,
    ) {
        let object = self.object.as_mut().expect("the object is known");
        object.output = Some(output);
        let result = result.map_err(DownloadError::from);
        if let Err(error) = result.and_then(|opened| self.begin(opened)) {
            self.error.get_or_insert(error);
        }
    }

    fn begin(&mut self, opened: Opened) -> Result<(), DownloadError> {
        let object = self.object.as_mut().expect("the object is known");
        let mut units = STREAM_SEGMENTS_MAX;
        let (have, segment_size, reader) = match opened {
            Opened::Complete => {
                object.destination = Destination::AlreadyThere;
                object.segments_resumed =
                    object.found.metadata.last_segment.map_or(0, |last| last.saturating_add(1));
                return Ok(());
            }
            Opened::File { have, segment_size, unconfirmed_keys } => {
                object.destination = Destination::File(None);
                object.unconfirmed_keys = unconfirmed_keys;
                (have, segment_size, ReaderMode::None)
            }
            Opened::Stream(out) => {
                let writer = StreamWriter::new(out, self.notifiers.notifier(self.serial));
                object.destination = Destination::Stream(writer.map_err(ClientError::from)?);
                (SegmentSet::new(), None, ReaderMode::InOrder)
            }
            Opened::Reader { mut reader, segments, packets_max } => {
                reader.set_notifier(self.notifiers.notifier(self.serial));
                object.destination = Destination::Reader(reader);
                units = packets_max;
                self.inputs.push(ConsumerInput::Narrow { segments });
                (SegmentSet::new(), None, ReaderMode::InOrder)
            }
        };
        // `have` are the intact segments of an earlier attempt.
        object.segments_resumed = have.len();
        // The size need not be verified here: it only gives offsets, and a verified segment of
        // another size is rejected when it is stored.
        if let Some(size) = segment_size.or(object.found.metadata.segment_size) {
            object.set_segment_size(size)?;
        }
        self.spans.fetching();
        self.inputs.push(ConsumerInput::Start { have, reader });
        self.inputs.push(ConsumerInput::Read { segments: units });
        Ok(())
    }

    /// A batch has been verified and stored.
    pub(crate) fn on_verified(&mut self, verified: VerifiedBatch, fault: Option<StoreFault>) {
        self.batches_in_flight -= 1;
        self.work.add(verified.work);
        let error = match fault {
            None => return self.take_verdicts(verified),
            Some(StoreFault::Size { segment, len }) => DownloadError::Size { segment, len },
            Some(StoreFault::Store(error)) => DownloadError::Store(error),
        };
        self.error.get_or_insert(error);
    }

    fn take_verdicts(&mut self, verified: VerifiedBatch) {
        let VerifiedBatch { verdicts, bad_names: false_copies, short_segment, .. } = verified;
        self.short_segment = self.short_segment.into_iter().chain(short_segment).min();
        let (good, wrong): (Vec<_>, Vec<_>) =
            verdicts.into_iter().partition(|(_, verdict)| *verdict == Verdict::Good);
        self.bad_packets.verdicts.extend(wrong);
        self.bad_packets.bad_names.extend(false_copies);
        let good = good.into_iter();
        self.inputs.extend(good.map(|(op, verdict)| ConsumerInput::Verified { op, verdict }));
    }

    /// The state has been saved.
    pub(crate) fn on_saved(&mut self, now: Instant, output: Box<dyn Output>) {
        self.saved_at = now;
        if let Some(object) = &mut self.object {
            object.output = Some(output);
        }
    }

    /// Saves the state every few seconds, on another thread, because the file system may be slow.
    fn save_if_due(&mut self, now: Instant, services: &mut DownloadServices<'_>) {
        let is_due = now >= self.saved_at.plus_ns(SAVE_NS);
        let object = self.object.as_mut().filter(|object| is_due && object.file().is_some());
        if let Some(mut output) = object.and_then(|object| object.output.take()) {
            let have = self.consumer.received().clone();
            output.set_keys(services.host.trust(self.id).accepted_keys());
            services.durability.submit(DurabilityTask::Save { serial: self.serial, output, have });
        }
    }

    /// Ends it with an error, unless it has ended.
    pub(crate) fn fail(&mut self, error: DownloadError) {
        if !self.has_ended() {
            self.error.get_or_insert(error);
        }
    }

    /// Whether it has ended, successfully or not.
    fn has_ended(&self) -> bool {
        let is_there =
            |object: &ObjectState| matches!(object.destination, Destination::AlreadyThere);
        self.error.is_some()
            || self.consumer.has_ended()
            || self.object.as_ref().is_some_and(is_there)
    }

    /// Whether it has ended and no thread works for it.
    pub(crate) fn can_close(&self) -> bool {
        let is_home = self.object.as_ref().is_none_or(|object| object.output.is_some());
        self.has_ended() && self.batches_in_flight == 0 && is_home
    }

    /// Bytes of Content verified and stored.
    pub(crate) fn octets_stored(&self) -> u64 {
        self.consumer.stats().content_octets
    }

    /// Its spans, which end after it. Called before [`Download::close`].
    pub(crate) fn spans(&self) -> DownloadSpans {
        let mut spans = self.spans.clone();
        spans.fetched(&self.consumer.stats(), self.work, &self.by_face);
        spans
    }

    /// Ends it. Returns its result, and the work that remains for the durability thread.
    pub(crate) fn close(
        mut self,
        now: Instant,
        trust: &mut dyn Trust,
    ) -> (Result<Summary, DownloadError>, Option<DurabilityTask>) {
        let serial = self.serial;
        // The trust may have accepted a key since the last check. The state must not list it for
        // segments that another key has verified.
        let has_other_signer = self.confirm_keys(trust).is_err();
        for (&path, summary) in &mut self.by_path {
            summary.stats = self.consumer.path_stats(path);
            summary.labels = self.consumer.label_stats(path);
        }
        let Some(object) = self.object else {
            return (Err(self.error.expect("a successful download has an object")), None);
        };
        let mut output = object.output.expect("it is back");
        output.set_keys(trust.accepted_keys());
        // A quick output needs no durability.
        let is_kept = !output.is_quick();
        let (writer, is_opened) = match object.destination {
            Destination::Stream(writer) => (Some(writer), true),
            Destination::AlreadyThere | Destination::Undecided => (None, false),
            Destination::File(_) | Destination::Reader(_) => (None, true),
        };
        if let Some(error) = self.error {
            let is_discarded = has_other_signer || matches!(error, DownloadError::OtherSigner);
            let received = self.consumer.received();
            let have = if is_discarded { SegmentSet::new() } else { received.clone() };
            // If an earlier attempt left segments and none is there now, its files stay unchanged.
            let is_touched =
                is_opened && (is_discarded || object.segments_resumed == 0 || !have.is_empty());
            let task = DurabilityTask::Cancel { serial, output, writer, have };
            return (Err(error), (is_touched && is_kept).then_some(task));
        }
        let task = DurabilityTask::Finish { serial, output, writer };
        let Found { metadata, stored, .. } = object.found;
        let stats = self.consumer.stats();
        let summary = Summary {
            versioned: metadata.versioned.clone(),
            metadata,
            is_stored: stored.is_some(),
            octets: stats.content_octets,
            segments: stats.segments,
            segments_resumed: object.segments_resumed,
            was_complete: !is_opened,
            took_ns: now.ns_since(self.started),
            has_manifest: object.has_manifest,
            by_face: self.by_face,
            by_path: self.by_path,
            stats,
        };
        (Ok(summary), (is_opened && is_kept).then_some(task))
    }
}

impl ObjectState {
    /// Whether segments of an earlier attempt need an accepted key and have none.
    fn awaits_key(&self) -> bool {
        !self.has_accepted_key && self.unconfirmed_keys.iter().any(|key| *key != NO_KEY)
    }

    /// Whether the destination of segments is known.
    fn is_ready(&self) -> bool {
        !matches!(self.destination, Destination::File(None))
    }

    /// The file in which pool threads store segments.
    fn file(&self) -> Option<Arc<FileSink>> {
        match &self.destination {
            Destination::File(file) => file.clone(),
            _ => None,
        }
    }

    fn set_segment_size(&mut self, size: u64) -> Result<(), DownloadError> {
        if let Destination::File(file) = &mut self.destination {
            let output = self.output.as_mut().expect("the output is not in use");
            *file = Some(output.sink(size)?);
        }
        Ok(())
    }
}

/// The size of all segments but the last, if this segment shows it. The last one does not, unless
/// it is the only one. Of an hICN producer, only the first segment shows it, because no signature
/// says which is the last.
fn stated_size(segment: u64, data: &DataView<'_>) -> Option<u64> {
    if is_native(data) && segment > 0 {
        return None;
    }
    let shows = data.signed_last_segment() != Some(segment) || segment == 0;
    shows.then(|| (data.content.len() as u64).max(1))
}

fn add_path(path: PathId, is_local: bool) -> ConsumerInput {
    ConsumerInput::AddPath { path, window: None, is_local }
}
