//! Getting an object: a consumer on the event loop, segments verified and stored by other threads.

use std::collections::BTreeMap;
use std::sync::Arc;

use crossbeam_channel::Receiver;
use weir_base::{FaceId, Instant, NS_PER_MS, NS_PER_S};
use weir_transport::{
    Consumer, ConsumerConfig, ConsumerError, ConsumerEvent, ConsumerInput, ConsumerOutbox,
    ConsumerStats, Metadata, Part, ReaderMode, SegmentSet, Target, Unit, Verdict, VerifyOp,
};
use weir_wire::{DataView, Name};

use crate::client::{Client, ClientError, FromRouter};
use crate::event_loop::{Context, Endpoint, EventLoop};
use crate::host::{Found, Host, PATH, Progress};
use crate::lookup::Lookups;
use crate::output::{Opened, Output, OutputError};
use crate::sink::{FileSink, StreamWriter};
use crate::verify_pool::{Fault, Report, VerifyPool, run_aside};

/// Segments handed to a thread at once: 256 kB of them.
const BATCH_SEGMENTS: usize = 32;
/// How often progress is told.
const PROGRESS_NS: u64 = 100 * NS_PER_MS;
/// How often what is there is noted, for a download that breaks off.
const SAVE_NS: u64 = 2 * NS_PER_S;
/// Segments at most that wait for a stream to take them, 8 MB; more wait with the consumer.
const STREAM_UNITS_MAX: u32 = 1024;

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
    pub stats: ConsumerStats,
}

/// Why a download failed. What was verified stays for another attempt.
#[derive(Debug, thiserror::Error)]
pub enum DownloadError {
    /// It cannot be had.
    #[error(transparent)]
    Fetch(#[from] ConsumerError),
    /// The router is gone.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The output cannot be made.
    #[error(transparent)]
    Output(#[from] OutputError),
    /// The owner does not want it.
    #[error("{0}")]
    Refused(String),
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
    pub fetch: ConsumerConfig,
    /// Threads that verify and store.
    pub threads: usize,
}

impl Default for DownloadOptions {
    fn default() -> Self {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        Self { fetch: ConsumerConfig::default(), threads: threads.min(8) }
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
    let mut events = EventLoop::new(client);
    events.add(&mut download);
    let run = events.run(&mut || true);
    drop(events);
    let result = match (download.error.take(), run) {
        (Some(error), _) => Err(error),
        // A connection that ends after the last packet has lost nothing.
        (None, Err(_)) if download.consumer.is_over() => Ok(()),
        (None, run) => run.map_err(DownloadError::from),
    };
    download.close(client.now(), result)
}

/// What is fetched, and where it goes.
struct Object {
    found: Found,
    /// Away while another thread saves it.
    output: Option<Box<dyn Output>>,
    place: Place,
    resumed: u64,
    has_manifest: bool,
}

/// Where segments go.
enum Place {
    /// A file, once the size of segments is known.
    File(Option<Arc<FileSink>>),
    /// A stream, in order.
    Stream(StreamWriter),
}

struct Download<'a> {
    host: &'a mut dyn Host,
    consumer: Consumer,
    pool: VerifyPool,
    inputs: Vec<ConsumerInput>,
    out: ConsumerOutbox,
    object: Option<Object>,
    /// Segments for the next batch.
    tasks: Vec<VerifyOp>,
    /// Signers that are not decided about yet.
    lookups: Lookups,
    by_face: BTreeMap<Option<FaceId>, u64>,
    started: Instant,
    told: Instant,
    saved: Instant,
    saving: Option<Receiver<Box<dyn Output>>>,
    /// Why it ended, if not well.
    error: Option<DownloadError>,
}

impl<'a> Download<'a> {
    fn new(
        client: &mut Client,
        target: Target,
        options: DownloadOptions,
        host: &'a mut dyn Host,
    ) -> Result<Self, DownloadError> {
        let now = client.now();
        let pool = VerifyPool::new(options.threads, &client.waker()).map_err(ClientError::from)?;
        let lookups = Lookups::new(client.random());
        Ok(Self {
            consumer: Consumer::new(target, options.fetch, client.random(), now),
            host,
            pool,
            inputs: vec![ConsumerInput::AddPath { path: PATH }],
            out: ConsumerOutbox::default(),
            object: None,
            tasks: Vec::new(),
            lookups,
            by_face: BTreeMap::new(),
            started: now,
            told: now,
            saved: now,
            saving: None,
            error: None,
        })
    }

    /// Goes on as far as that is possible without anything new.
    fn turn(&mut self, client: &mut Client) -> Result<(), DownloadError> {
        loop {
            let now = client.now();
            self.consumer.handle(now, &mut self.inputs, &mut self.out);
            self.lookups.poll(now, self.host, &mut self.inputs, &mut self.out.interests);
            for (_, interest) in self.out.interests.iter() {
                // A full queue drops it, as a network would: it is sent again later.
                let _ = client.send_octets(interest);
            }
            self.out.interests.clear();
            self.take_verify()?;
            self.take_deliveries()?;
            self.take_events(client)?;
            while let Some(report) = self.pool.try_report() {
                self.take_report(report)?;
            }
            self.tell(now)?;
            self.save_now_and_then(now)?;
            if self.inputs.is_empty() {
                return Ok(());
            }
        }
    }

    /// Has packets verified: segments by the threads, in batches, the few others right here.
    fn take_verify(&mut self) -> Result<(), DownloadError> {
        for op in self.out.verify.drain(..) {
            *self.by_face.entry(op.incoming_face).or_default() += 1;
            let data = DataView::decode(&op.packet).expect("the consumer has decoded it");
            let Part::Unit(unit) = op.part else {
                let verdict = op.check.run(&data);
                self.inputs.push(ConsumerInput::Verified { op: op.op, verdict });
                continue;
            };
            let object = self.object.as_mut().expect("a segment is of an object");
            // A producer's metadata may not tell the size of segments. Only what is verified does:
            // a forged segment would put all others in wrong places.
            if let (Place::File(None), Some(size)) = (&object.place, stated_size(unit, &data)) {
                let verdict = op.check.run(&data);
                if verdict != Verdict::Good {
                    self.inputs.push(ConsumerInput::Verified { op: op.op, verdict });
                    continue;
                }
                object.set_segment_size(size)?;
            }
            self.tasks.push(op);
            if self.tasks.len() >= BATCH_SEGMENTS && object.is_ready() {
                self.pool.submit(std::mem::take(&mut self.tasks), object.file());
            }
        }
        let object = self.object.as_ref().filter(|object| object.is_ready());
        if let Some(object) = object.filter(|_| !self.tasks.is_empty()) {
            self.pool.submit(std::mem::take(&mut self.tasks), object.file());
        }
        Ok(())
    }

    /// Passes on to the stream what is in order.
    fn take_deliveries(&mut self) -> Result<(), DownloadError> {
        let Some(Object { place: Place::Stream(writer), .. }) = &mut self.object else {
            return Ok(());
        };
        if !self.out.deliveries.is_empty() {
            writer.write(self.out.deliveries.drain(..).map(|delivery| delivery.packet).collect());
        }
        match writer.written().map_err(DownloadError::Store)? {
            0 => {}
            units => self.inputs.push(ConsumerInput::Read { units }),
        }
        Ok(())
    }

    fn take_events(&mut self, client: &Client) -> Result<(), DownloadError> {
        for event in std::mem::take(&mut self.out.events) {
            match event {
                ConsumerEvent::Found { metadata, is_stored } => {
                    self.open(Found { metadata, is_stored }, client)?;
                }
                ConsumerEvent::Manifest { digests_per_part } => {
                    let object = self.object.as_mut().expect("opened before");
                    object.has_manifest = digests_per_part.is_some();
                }
                ConsumerEvent::NeedKey { key, packet } => {
                    let now = client.now();
                    self.lookups.begin(now, key, packet, self.host, &mut self.inputs);
                }
                ConsumerEvent::Failed(error) => return Err(error.into()),
                _ => {}
            }
        }
        Ok(())
    }

    fn open(&mut self, found: Found, client: &Client) -> Result<(), DownloadError> {
        let mut output = self.host.output(&found).map_err(DownloadError::Refused)?;
        let (have, segment_size, place) = match output.open(&found.metadata.versioned)? {
            Opened::File { have, segment_size } => (have, segment_size, Place::File(None)),
            Opened::Stream(out) => {
                let writer = StreamWriter::new(out, client.waker());
                let writer = writer.map_err(ClientError::from)?;
                (SegmentSet::new(), None, Place::Stream(writer))
            }
        };
        let reader = match place {
            Place::File(_) => ReaderMode::None,
            Place::Stream(_) => ReaderMode::InOrder,
        };
        let resumed = have.len();
        let mut object =
            Object { found, output: Some(output), place, resumed, has_manifest: false };
        // An unverified size only says where a segment would go; one that does not fit is refused
        // then.
        if let Some(size) = segment_size.or(object.found.metadata.segment_size) {
            object.set_segment_size(size)?;
        }
        self.object = Some(object);
        self.inputs.push(ConsumerInput::Start { have, reader });
        self.inputs.push(ConsumerInput::Read { units: STREAM_UNITS_MAX });
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
        let verdicts = report.verdicts.into_iter();
        self.inputs.extend(verdicts.map(|(op, verdict)| ConsumerInput::Verified { op, verdict }));
        Ok(())
    }

    fn tell(&mut self, now: Instant) -> Result<(), DownloadError> {
        if now < self.told.plus_ns(PROGRESS_NS) {
            return Ok(());
        }
        self.told = now;
        let object = self.object.as_ref();
        let progress = Progress {
            octets: self.consumer.stats().content_octets,
            octets_total: object.and_then(|object| object.found.metadata.size_bytes),
            segments: self.consumer.have().len(),
            segments_total: self.consumer.last_segment().map(|last| last.saturating_add(1)),
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
                object.output = Some(output);
            }
        }
        let is_due = now >= self.saved.plus_ns(SAVE_NS);
        let object = self.object.as_mut().filter(|object| is_due && object.file().is_some());
        let Some(mut output) = object.and_then(|object| object.output.take()) else {
            return Ok(());
        };
        let have = self.consumer.have().clone();
        let saving = run_aside("save", move || {
            // What cannot be noted is fetched again after a break, nothing worse.
            let _ = output.save(&have);
            output
        });
        self.saving = Some(saving.map_err(ClientError::from)?);
        Ok(())
    }

    fn close(
        mut self,
        now: Instant,
        result: Result<(), DownloadError>,
    ) -> Result<Summary, DownloadError> {
        // The threads finish what they have.
        drop(self.pool);
        if let (Some(saving), Some(object)) = (self.saving.take(), &mut self.object)
            && let Ok(output) = saving.recv()
        {
            object.output = Some(output);
        }
        let Some(object) = self.object.take() else {
            return Err(result.expect_err("no download ends well without an object"));
        };
        let mut output = object.output.expect("a thread that saves gives it back");
        let written = match object.place {
            Place::File(_) => Ok(()),
            Place::Stream(writer) => writer.finish().map_err(DownloadError::Store),
        };
        if let Err(error) = result.and(written) {
            let have = self.consumer.have();
            if have.is_empty() {
                output.abandon();
            } else {
                // What cannot be noted is fetched again.
                let _ = output.save_last(have);
            }
            return Err(error);
        }
        output.finish()?;
        let Found { metadata, is_stored } = object.found;
        let stats = self.consumer.stats();
        Ok(Summary {
            versioned: metadata.versioned.clone(),
            metadata,
            is_stored,
            octets: stats.content_octets,
            segments: stats.units,
            segments_resumed: object.resumed,
            took_ns: now.ns_since(self.started),
            has_manifest: object.has_manifest,
            by_face: self.by_face,
            stats,
        })
    }
}

impl Endpoint for Download<'_> {
    fn handle(&mut self, context: &mut Context<'_>, packets: &mut Vec<FromRouter>) {
        let now = context.client.now();
        for FromRouter { header, packet } in packets.drain(..) {
            if !self.lookups.take(now, &header, &packet, self.host, &mut self.inputs) {
                self.inputs.push(ConsumerInput::Packet { path: PATH, header, packet });
            }
        }
        self.error = self.turn(context.client).err();
    }

    fn next_wakeup(&self) -> Option<Instant> {
        let wakeup = self.lookups.next_wakeup().min(self.told.plus_ns(PROGRESS_NS));
        self.consumer.next_wakeup().into_iter().chain([wakeup]).min()
    }

    fn is_done(&self) -> bool {
        self.error.is_some() || self.consumer.is_over()
    }
}

impl Object {
    /// Whether it is known where segments go.
    fn is_ready(&self) -> bool {
        !matches!(self.place, Place::File(None))
    }

    /// The file that takes segments from the threads that verify them.
    fn file(&self) -> Option<Arc<FileSink>> {
        match &self.place {
            Place::File(file) => file.clone(),
            Place::Stream(_) => None,
        }
    }

    fn set_segment_size(&mut self, size: u64) -> Result<(), DownloadError> {
        if let Place::File(file) = &mut self.place {
            let output = self.output.as_mut().expect("it is saved once there is a file");
            *file = Some(output.sink(size)?);
        }
        Ok(())
    }
}

/// Octets of every segment but the last, which any of them shows, and a sole one.
fn stated_size(unit: Unit, data: &DataView<'_>) -> Option<u64> {
    let last = data.final_block_id().and_then(|component| component.as_segment());
    let shows = last != Some(unit.chunk) || unit.chunk == 0;
    shows.then(|| (data.content.len() as u64).max(1))
}
