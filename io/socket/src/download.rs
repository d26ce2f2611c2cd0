//! Getting an object: the fetcher driven over a client, segments verified and stored by other
//! threads.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, OnceLock};

use crossbeam_channel::Receiver;
use weir_base::{FaceId, Instant, NS_PER_MS, NS_PER_S};
use weir_security::manifest::{DigestCheck, DigestManifest};
use weir_security::{Verifier, verify_data};
use weir_transport::{
    Delivery, FetchConfig, FetchError, FetchEvent, FetchInput, FetchOutbox, FetchStats, Fetcher,
    Metadata, Part, SegmentSet, Target,
};
use weir_wire::{DataView, LpHeader, Name};

use crate::client::{Client, ClientError, FromRouter};
use crate::output::{Output, OutputError};
use crate::verify_pool::{Check, Fault, Goal, Refused, Report, Task, VerifyPool, run_aside};

/// Segments handed to a thread at once: 256 kB of them.
const BATCH_SEGMENTS: usize = 32;
/// How often progress is told.
const PROGRESS_NS: u64 = 100 * NS_PER_MS;
/// How often what is there is noted, for a download that breaks off.
const SAVE_NS: u64 = 2 * NS_PER_S;
/// Signers of one object at most.
const SIGNERS_MAX: usize = 16;
/// Times that one packet is asked for again because it came damaged or forged, and how many of
/// these are asked for by the digest that the manifest lists.
const REFUSALS_MAX: u32 = 4;
const BY_DIGEST: u32 = 2;
/// Segments of an object at most: 32 octets of memory each while their manifest part is awaited.
const SEGMENTS_MAX: u64 = 1 << 40;

/// What the download asks of its owner.
pub trait Host {
    /// Where an object is to go. Called once, before any segment is fetched.
    ///
    /// # Errors
    /// Ends the download.
    fn output(&mut self, found: &Found) -> Result<Box<dyn Output>, String>;

    /// What verifies a packet that says it is signed so. Called once for each signer; may use the
    /// client to fetch certificates.
    ///
    /// # Errors
    /// Ends the download: the signer is not to be believed.
    fn verifier(
        &mut self,
        client: &mut Client,
        data: &DataView<'_>,
    ) -> Result<Arc<dyn Verifier>, String>;

    /// Told now and then. Returns false to break off.
    fn progress(&mut self, progress: &Progress) -> bool;
}

/// What is known of an object before its segments come; not verified.
#[derive(Clone, Debug)]
pub struct Found {
    /// Its metadata, or no more than its name.
    pub metadata: Metadata,
    /// The metadata came from a store, and the producer did not answer: there may be a later
    /// version.
    pub is_stored: bool,
}

/// How far a download is.
#[derive(Clone, Debug)]
pub struct Progress {
    /// Octets of Content verified and stored.
    pub octets: u64,
    /// Octets of the whole object, if known.
    pub octets_total: Option<u64>,
    /// Segments verified and stored, those of an earlier attempt included.
    pub segments: u64,
    /// Segments of the whole object, if known.
    pub segments_total: Option<u64>,
}

/// What a finished download was like.
#[derive(Clone, Debug)]
pub struct Summary {
    /// Name of the version.
    pub versioned: Name,
    /// The metadata, if there was any; else no more than the name.
    pub metadata: Metadata,
    /// The metadata came from a store, and the producer did not answer.
    pub is_stored: bool,
    /// Octets of Content fetched, those of an earlier attempt not included.
    pub octets: u64,
    /// Segments fetched.
    pub segments: u64,
    /// Segments that were there from an earlier attempt.
    pub segments_resumed: u64,
    /// Time from the start until the last segment was stored, in nanoseconds.
    pub took_ns: u64,
    /// Whether segments were verified by a digest manifest.
    pub has_manifest: bool,
    /// Packets by the face that the router had them from, as far as it tells.
    pub by_face: BTreeMap<Option<FaceId>, u64>,
    /// Counters and measures of the fetch.
    pub stats: FetchStats,
}

/// Why a download failed. What was verified stays for another attempt.
#[derive(Debug, thiserror::Error)]
pub enum DownloadError {
    /// It cannot be had.
    #[error(transparent)]
    Fetch(#[from] FetchError),
    /// The router is gone.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The output cannot be made.
    #[error(transparent)]
    Output(#[from] OutputError),
    /// The owner does not want it.
    #[error("{0}")]
    Refused(String),
    /// The signer is not to be believed.
    #[error("{0}")]
    Untrusted(String),
    /// A packet is not what its producer signed.
    #[error("{what} cannot be verified: {reason}")]
    Unverified {
        /// Which packet.
        what: String,
        /// Why.
        reason: String,
    },
    /// Segments differ in size, so that their places in a file are not known.
    #[error("segment {segment} has {len} octets, unlike others: it has no place in a file")]
    Size {
        /// Its number.
        segment: u64,
        /// Octets of its Content.
        len: usize,
    },
    /// A segment cannot be stored.
    #[error("cannot be written: {0}")]
    Store(std::io::Error),
    /// The owner broke it off.
    #[error("interrupted")]
    Stopped,
}

/// How to download.
#[derive(Clone, Debug)]
pub struct DownloadOptions {
    /// How to fetch.
    pub fetch: FetchConfig,
    /// Threads that verify and store.
    pub threads: usize,
}

impl Default for DownloadOptions {
    fn default() -> Self {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        Self { fetch: FetchConfig::default(), threads: threads.min(8) }
    }
}

/// Fetches `target`, verifies every segment and stores it where `host` says.
///
/// # Errors
/// [`DownloadError`].
pub fn download(
    client: &mut Client,
    target: Target,
    options: DownloadOptions,
    host: &mut dyn Host,
) -> Result<Summary, DownloadError> {
    let mut download = Download::new(client, target, options, host)?;
    let result = download.run();
    download.close(result)
}

/// What is to be done with segments that came, once it is known how.
struct Object {
    found: Found,
    output: Box<dyn Output>,
    goal: Option<Arc<Goal>>,
    have: SegmentSet,
    resumed: u64,
    /// `None` until it is known whether there is a manifest.
    has_manifest: Option<bool>,
}

struct Download<'a> {
    client: &'a mut Client,
    host: &'a mut dyn Host,
    fetcher: Fetcher,
    pool: VerifyPool,
    inputs: Vec<FetchInput>,
    out: FetchOutbox,
    packets: Vec<FromRouter>,
    object: Option<Object>,
    manifest: DigestManifest,
    manifest_signer: Option<Arc<dyn Verifier>>,
    /// Segments that came before what they need to be checked.
    held: Vec<Delivery>,
    tasks: Vec<Task>,
    signers: HashMap<Vec<u8>, Arc<dyn Verifier>>,
    /// How often packets came damaged or forged.
    refusals: HashMap<Part, u32>,
    submitted: u64,
    reported: u64,
    /// Segments of those reported that came damaged or forged.
    refused: u64,
    /// Segments of those reported that the fetcher was told of as consumed.
    credited: u64,
    octets: u64,
    by_face: BTreeMap<Option<FaceId>, u64>,
    /// Number of the last segment as a verified segment states it.
    last_segment: Option<u64>,
    started: Instant,
    told: Instant,
    saved: Instant,
    saving: Option<Receiver<Box<dyn Output>>>,
}

impl<'a> Download<'a> {
    fn new(
        client: &'a mut Client,
        target: Target,
        options: DownloadOptions,
        host: &'a mut dyn Host,
    ) -> Result<Self, DownloadError> {
        let now = client.now();
        let pool = VerifyPool::new(options.threads, &client.waker()).map_err(ClientError::from)?;
        let fetcher = Fetcher::new(target, options.fetch, client.random(), now);
        Ok(Self {
            client,
            host,
            fetcher,
            pool,
            inputs: Vec::new(),
            out: FetchOutbox::default(),
            packets: Vec::new(),
            object: None,
            manifest: DigestManifest::new(SEGMENTS_MAX),
            manifest_signer: None,
            held: Vec::new(),
            tasks: Vec::new(),
            signers: HashMap::new(),
            refusals: HashMap::new(),
            submitted: 0,
            reported: 0,
            refused: 0,
            credited: 0,
            octets: 0,
            by_face: BTreeMap::new(),
            last_segment: None,
            started: now,
            told: now,
            saved: now,
            saving: None,
        })
    }

    fn run(&mut self) -> Result<(), DownloadError> {
        loop {
            let now = self.client.now();
            self.fetcher.handle(now, &mut self.inputs, &mut self.out);
            self.send_interests();
            self.take_deliveries()?;
            self.take_events()?;
            self.take_reports()?;
            self.tell()?;
            self.save_now_and_then(now)?;
            if !self.inputs.is_empty() {
                continue;
            }
            let is_stored = self.held.is_empty() && self.submitted == self.reported;
            if is_stored && self.fetcher.is_over() {
                return Ok(());
            }
            let wakeup = self.fetcher.next_wakeup().unwrap_or(Instant::FAR_FUTURE);
            let deadline = wakeup.min(self.told.plus_ns(PROGRESS_NS));
            self.client.poll(Some(deadline), &mut self.packets)?;
            self.inputs.extend(
                self.packets
                    .drain(..)
                    .map(|FromRouter { header, packet }| FetchInput::Packet { header, packet }),
            );
        }
    }

    fn send_interests(&mut self) {
        for interest in self.out.interests.iter() {
            let packet = self.client.pool().copy(interest);
            // A full queue drops it, as a network would: it is sent again later.
            let _ = self.client.send(LpHeader::default(), packet);
        }
        self.out.interests.clear();
    }

    fn take_deliveries(&mut self) -> Result<(), DownloadError> {
        if self.out.deliveries.is_empty() {
            return Ok(());
        }
        let mut deliveries = std::mem::take(&mut self.out.deliveries);
        for delivery in deliveries.drain(..) {
            *self.by_face.entry(delivery.incoming_face).or_default() += 1;
            match delivery.part {
                Part::Metadata => {
                    self.verify(&delivery, &what(delivery.part))?;
                    self.inputs.push(FetchInput::Consumed(1));
                }
                Part::Manifest(part) => {
                    match self.manifest_part(part, &delivery) {
                        Err(DownloadError::Unverified { reason, .. }) => {
                            self.refuse(Part::Manifest(part), reason)?;
                        }
                        other => other?,
                    }
                    self.inputs.push(FetchInput::Consumed(1));
                }
                Part::Segment(segment) => self.segment(segment, delivery)?,
            }
        }
        self.out.deliveries = deliveries;
        self.submit();
        Ok(())
    }

    fn take_events(&mut self) -> Result<(), DownloadError> {
        for event in std::mem::take(&mut self.out.events) {
            match event {
                FetchEvent::Found { metadata, is_stored } => {
                    self.open(Found { metadata, is_stored })?;
                }
                FetchEvent::Manifest { digests_per_part } => {
                    if let Some(object) = &mut self.object {
                        object.has_manifest = Some(digests_per_part.is_some());
                    }
                    self.release()?;
                }
                FetchEvent::LastSegment(_) | FetchEvent::Done => {}
                FetchEvent::Failed(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn open(&mut self, found: Found) -> Result<(), DownloadError> {
        let mut output = self.host.output(&found).map_err(DownloadError::Refused)?;
        let have = output.open(&found.metadata.versioned)?;
        let segment_size = output.segment_size();
        let resumed = have.len();
        let mut object =
            Object { found, output, goal: None, have: have.clone(), resumed, has_manifest: None };
        // An unverified size only says where a segment would go; one that does not fit is refused
        // then.
        if let Some(size) = segment_size.or(object.found.metadata.segment_size) {
            object.set_segment_size(size)?;
        }
        self.object = Some(object);
        self.inputs.push(FetchInput::Start { have });
        Ok(())
    }

    /// Checks the signature of a packet right here: there are few of them.
    fn verify(
        &mut self,
        delivery: &Delivery,
        what: &str,
    ) -> Result<Arc<dyn Verifier>, DownloadError> {
        let data = DataView::decode(&delivery.packet).expect("the fetcher has decoded it");
        let verifier = self.verifier_of(&data)?;
        verify_data(&data, &*verifier).map_err(|error| DownloadError::Unverified {
            what: what.to_owned(),
            reason: error.to_string(),
        })?;
        Ok(verifier)
    }

    fn verifier_of(&mut self, data: &DataView<'_>) -> Result<Arc<dyn Verifier>, DownloadError> {
        let info = data.signature_info.to_signature_info();
        let mut key = weir_wire::tlv::Writer::new();
        weir_wire::SignatureInfo {
            key_locator: info.key_locator,
            ..weir_wire::SignatureInfo::new(info.signature_type)
        }
        .write(weir_wire::tlv::SIGNATURE_INFO, &mut key);
        let key = key.into_vec();
        if let Some(verifier) = self.signers.get(&key) {
            return Ok(verifier.clone());
        }
        if self.signers.len() >= SIGNERS_MAX {
            let reason = format!("it has more than {SIGNERS_MAX} signers");
            return Err(DownloadError::Untrusted(reason));
        }
        let verifier = self.host.verifier(self.client, data).map_err(DownloadError::Untrusted)?;
        self.signers.insert(key, verifier.clone());
        Ok(verifier)
    }

    fn manifest_part(&mut self, part: u64, delivery: &Delivery) -> Result<(), DownloadError> {
        let what = what(Part::Manifest(part));
        let signer = self.verify(delivery, &what)?;
        let data = DataView::decode(&delivery.packet).expect("the fetcher has decoded it");
        let added = self.manifest.add_part(part, data.content);
        added.map_err(|error| DownloadError::Unverified { what, reason: error.to_string() })?;
        self.manifest_signer.get_or_insert(signer);
        self.release()
    }

    /// Asks once more for a packet that is not what its producer signed.
    fn refuse(&mut self, part: Part, reason: String) -> Result<(), DownloadError> {
        let times = self.refusals.entry(part).or_default();
        *times += 1;
        if *times > REFUSALS_MAX {
            return Err(DownloadError::Unverified { what: what(part), reason });
        }
        let digest = match part {
            Part::Segment(segment) if *times <= BY_DIGEST => self.manifest.digest(segment).copied(),
            _ => None,
        };
        // After the first time, damage on the way is less likely than a bad copy in a router.
        let must_be_fresh = digest.is_none() && *times > 1;
        self.inputs.push(FetchInput::AskAgain { part, digest, must_be_fresh });
        Ok(())
    }

    /// Looks again at the segments that had to wait.
    fn release(&mut self) -> Result<(), DownloadError> {
        for delivery in std::mem::take(&mut self.held) {
            let Part::Segment(segment) = delivery.part else { unreachable!("only segments wait") };
            self.segment(segment, delivery)?;
        }
        self.submit();
        Ok(())
    }

    /// Hands a segment to the threads, if it is known how to check it and where it goes.
    fn segment(&mut self, segment: u64, delivery: Delivery) -> Result<(), DownloadError> {
        let object = self.object.as_mut().expect("a segment is of an object");
        if object.goal.is_none() {
            object.learn_segment_size(segment, &delivery)?;
        }
        let is_ready = object.goal.is_some();
        let check = match object.has_manifest {
            Some(true) => self.manifest.digest(segment).copied().map(Check::Digest),
            Some(false) => {
                let data = DataView::decode(&delivery.packet).expect("the fetcher has decoded it");
                let is_first_signer = self.signers.is_empty();
                match self.verifier_of(&data) {
                    // Others of this object were believed: this one may be somebody else's.
                    Err(DownloadError::Untrusted(reason)) if !is_first_signer => {
                        self.inputs.push(FetchInput::Consumed(1));
                        return self.refuse(Part::Segment(segment), reason);
                    }
                    verifier => Some(Check::Signature(verifier?)),
                }
            }
            None => None,
        };
        match check.filter(|_| is_ready) {
            Some(check) => {
                self.tasks.push(Task { segment, packet: delivery.packet, check });
                if self.tasks.len() >= BATCH_SEGMENTS {
                    self.submit();
                }
            }
            None => self.hold(segment, delivery)?,
        }
        Ok(())
    }

    fn hold(&mut self, segment: u64, delivery: Delivery) -> Result<(), DownloadError> {
        // A segment that is listed may still wait: for its size, or for word of the manifest.
        let is_past_the_end = self.manifest.digest(segment).is_none()
            && self.manifest.check(segment, &[0; 32]) != DigestCheck::Unknown;
        if is_past_the_end {
            return Err(DownloadError::Unverified {
                what: format!("segment {segment}"),
                reason: "the manifest lists no such segment".into(),
            });
        }
        self.held.push(delivery);
        Ok(())
    }

    fn submit(&mut self) {
        if self.tasks.is_empty() {
            return;
        }
        let goal = self.object.as_ref().and_then(|object| object.goal.clone());
        let goal = goal.expect("tasks are made when the goal is known");
        if let Some(signer) = &self.manifest_signer {
            goal.manifest_signer.get_or_init(|| signer.clone());
        }
        let tasks = std::mem::take(&mut self.tasks);
        self.submitted += tasks.len() as u64;
        self.pool.submit(tasks, goal);
    }

    fn take_reports(&mut self) -> Result<(), DownloadError> {
        while let Some(report) = self.pool.try_report() {
            self.take_report(report)?;
        }
        Ok(())
    }

    fn take_report(&mut self, report: Report) -> Result<(), DownloadError> {
        match report.fault {
            None => {}
            Some(Fault::Size { segment, len }) => {
                return Err(DownloadError::Size { segment, len });
            }
            Some(Fault::Store(error)) => return Err(DownloadError::Store(error)),
        }
        self.reported += (report.segments.len() + report.refused.len()) as u64;
        self.refused += report.refused.len() as u64;
        self.octets += report.octets;
        self.credit();
        for Refused { segment, reason } in report.refused {
            self.refuse(Part::Segment(segment), reason)?;
        }
        let object = self.object.as_mut().expect("a segment is of an object");
        for segment in report.segments {
            object.have.insert(segment);
        }
        let Some(stated) = report.last_segment else { return Ok(()) };
        let known = *self.last_segment.get_or_insert(stated);
        if known != stated {
            return Err(DownloadError::Unverified {
                what: "the number of segments".into(),
                reason: format!("one says that {stated} is the last, another {known}"),
            });
        }
        if self.fetcher.last_segment() != Some(stated) {
            self.inputs.push(FetchInput::LastSegment(stated));
        }
        Ok(())
    }

    /// Tells the fetcher how many segments take no more memory. Those that others must go before
    /// still do.
    fn credit(&mut self) {
        let goal = self.object.as_ref().and_then(|object| object.goal.as_ref());
        let waiting = goal.map_or(0, |goal| goal.sink.waiting());
        let consumed = self.reported.saturating_sub(waiting).saturating_sub(self.credited);
        let consumed = u32::try_from(consumed).unwrap_or(u32::MAX);
        self.credited += u64::from(consumed);
        self.inputs.push(FetchInput::Consumed(consumed));
    }

    fn tell(&mut self) -> Result<(), DownloadError> {
        let now = self.client.now();
        if now < self.told.plus_ns(PROGRESS_NS) {
            return Ok(());
        }
        self.told = now;
        let object = self.object.as_ref();
        let progress = Progress {
            octets: self.octets,
            octets_total: object.and_then(|object| object.found.metadata.size_bytes),
            segments: object.map_or(0, |object| object.have.len()),
            segments_total: self.fetcher.last_segment().map(|last| last.saturating_add(1)),
        };
        if self.host.progress(&progress) { Ok(()) } else { Err(DownloadError::Stopped) }
    }

    /// Notes what is there. The system may take its time over it, so that another thread does it.
    fn save_now_and_then(&mut self, now: Instant) -> Result<(), DownloadError> {
        if let Some(saving) = &self.saving {
            let Ok(output) = saving.try_recv() else { return Ok(()) };
            self.saving = None;
            self.saved = now;
            if let Some(object) = &mut self.object {
                object.output = output;
            }
        }
        let Some(object) = self.object.as_mut() else { return Ok(()) };
        if now < self.saved.plus_ns(SAVE_NS) || object.goal.is_none() {
            return Ok(());
        }
        let mut output = std::mem::replace(&mut object.output, Box::new(Away));
        let have = object.have.clone();
        let saving = run_aside("save", move || {
            // What cannot be noted is fetched again after a break, nothing worse.
            let _ = output.save(&have);
            output
        });
        self.saving = Some(saving.map_err(ClientError::from)?);
        Ok(())
    }

    fn close(mut self, result: Result<(), DownloadError>) -> Result<Summary, DownloadError> {
        let took_ns = self.client.now().ns_since(self.started);
        // The threads finish what they have.
        drop(self.pool);
        if let (Some(saving), Some(object)) = (self.saving.take(), &mut self.object)
            && let Ok(output) = saving.recv()
        {
            object.output = output;
        }
        let Some(mut object) = self.object.take() else {
            return Err(result.expect_err("no download ends well without an object"));
        };
        if let Err(error) = result {
            if object.have.is_empty() {
                object.output.abandon();
            } else {
                // What cannot be noted is fetched again.
                let _ = object.output.save_last(&object.have);
            }
            return Err(error);
        }
        object.output.finish()?;
        let has_manifest = object.has_manifest == Some(true);
        let Found { metadata, is_stored } = object.found;
        Ok(Summary {
            versioned: metadata.versioned.clone(),
            metadata,
            is_stored,
            octets: self.octets,
            segments: self.reported - self.refused,
            segments_resumed: object.resumed,
            took_ns,
            has_manifest,
            by_face: self.by_face,
            stats: self.fetcher.stats(),
        })
    }
}

fn what(part: Part) -> String {
    match part {
        Part::Metadata => "the metadata".into(),
        Part::Manifest(part) => format!("part {part} of the manifest"),
        Part::Segment(segment) => format!("segment {segment}"),
    }
}

impl Object {
    /// A producer's metadata may not tell the size of its segments: any segment but the last shows
    /// it.
    fn learn_segment_size(
        &mut self,
        segment: u64,
        delivery: &Delivery,
    ) -> Result<(), DownloadError> {
        let data = DataView::decode(&delivery.packet).expect("the fetcher has decoded it");
        let last = data.final_block_id.and_then(|component| component.as_segment());
        if last != Some(segment) || segment == 0 {
            self.set_segment_size((data.content.len() as u64).max(1))?;
        }
        Ok(())
    }

    fn set_segment_size(&mut self, size: u64) -> Result<(), DownloadError> {
        let sink = self.output.sink(size)?;
        let segment_size = self.output.segment_size();
        let manifest_signer = OnceLock::new();
        self.goal = Some(Arc::new(Goal { sink, segment_size, manifest_signer }));
        Ok(())
    }
}

/// Stands in for an output that another thread has.
struct Away;

impl Output for Away {
    fn open(&mut self, _versioned: &Name) -> Result<SegmentSet, OutputError> {
        unreachable!("it was opened before")
    }

    fn segment_size(&self) -> Option<u64> {
        None
    }

    fn sink(
        &mut self,
        _segment_size: u64,
    ) -> Result<Arc<dyn crate::sink::SegmentSink>, OutputError> {
        unreachable!("the sink was taken before")
    }

    fn save(&mut self, _have: &SegmentSet) -> std::io::Result<()> {
        Ok(())
    }

    fn finish(&mut self) -> Result<(), OutputError> {
        Ok(())
    }
}
