//! Answers Interests for published objects.

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, unbounded};
use weir_base::{HashKey, Instant, NS_PER_MS, NS_PER_S, Packet, Pool};
use weir_client::{
    Client, ClientError, Context, Endpoint, EndpointWaker, EventLoop, ReceivedPacket, random_u64,
};
use weir_security::Signer;
use weir_transport::{
    Catalog, ObjectId, Producer, ProducerConfig, ProducerEvent, ProducerInput, ProducerOutbox,
    ProducerStats, ReadOp,
};
use weir_wire::{DecodeError, InterestView, Name};

use super::lingering::ReplacedVersions;
use crate::bucket::BucketError;
use crate::object::block_cache::{BlockCache, CacheResult, FinishedRead};
use crate::object::held_file::OpenFiles;
use crate::object::location::{ObjectLocation, bucket_error, open_to_read};
use crate::object::published::{Content, Fingerprint, ObjectForm, Published, read_segment};
use crate::object::stored::ReadError;

/// Files kept open at a time.
const OPEN_FILES_MAX: usize = 256;
/// An open file serves segments for this long after it was last compared with the signed one.
const CHECK_NS: u64 = NS_PER_S;
/// Interests that wait for buckets.
const READS_MAX: usize = 4096;
/// How long an Interest waits for Data made on request.
const MAKE_WAIT_NS_MAX: u64 = NS_PER_S;
/// How often all open files are compared, even if no Interest requests them.
const CHECK_OPEN_FILES_NS: u64 = 200 * NS_PER_MS;

/// Something that cannot be served, or can be served again.
#[derive(Debug, thiserror::Error)]
pub enum ServeProblem {
    /// It has changed since it was signed: consumers would reject its segments.
    #[error("{} has changed since it was signed", path.display())]
    FileChanged { path: PathBuf },
    #[error("{} cannot be read any more: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    /// A packet of a repository is damaged. It is not served; the others are.
    #[error("{packet} of {object} in {} is damaged", path.display())]
    Damaged {
        /// The file of the repository, or its address.
        path: PathBuf,
        object: Name,
        packet: String,
    },
    /// A packet of a repository cannot be read. Each request tries again.
    #[error("{packet} of {object} in {} cannot be read: {source}", path.display())]
    Unreadable {
        /// The file of the repository, or its address.
        path: PathBuf,
        object: Name,
        packet: String,
        source: io::Error,
    },
    /// A bucket cannot be read. Each request tries again.
    #[error("cannot read {bucket}: {reason}")]
    BucketUnreachable { bucket: String, reason: String },
    #[error("{bucket} can be read again")]
    BucketReachable { bucket: String },
}

struct CheckedFile {
    file: Arc<File>,
    checked: Instant,
}

/// A change of an [`ObjectStore`] while it serves.
#[derive(Debug)]
pub enum Update {
    /// Adds an object, and replaces one of the same name.
    Add(Published),
    /// Removes the object of this name.
    Remove(Name),
    /// Serves this packet as it is, such as a certificate.
    Packet(Packet),
}

/// Changes an [`ObjectStore`] from another thread.
#[derive(Clone, Debug)]
pub struct Updates {
    updates: Sender<(Vec<Update>, Sender<()>)>,
    waker: Arc<Mutex<Option<EndpointWaker>>>,
}

impl Updates {
    /// Changes the store, and waits at most `within` until it has changed: while the router is
    /// unreachable, the store does not run. Returns whether it has changed by then; if not, it
    /// will.
    pub fn apply(&self, updates: Vec<Update>, within: Duration) -> bool {
        let (done, is_done) = unbounded();
        if self.updates.send((updates, done)).is_err() {
            return false;
        }
        if let Some(waker) = &*lock(&self.waker) {
            // If this fails, the store notices the change a little later.
            let _ = waker.wake();
        }
        is_done.recv_timeout(within).is_ok()
    }
}

fn lock(waker: &Mutex<Option<EndpointWaker>>) -> MutexGuard<'_, Option<EndpointWaker>> {
    waker.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes the Data that an Interest requests, if it should exist.
type DataMaker = Box<dyn FnMut(&InterestView<'_>) -> Option<Packet> + Send>;

/// Published objects, found by name, and the producer that answers for them.
pub struct ObjectStore {
    producer: Producer,
    maker: Option<DataMaker>,
    /// By number; `None` where an object has been removed.
    objects: Vec<Option<Published>>,
    /// By the TLV-VALUE of the object's name, the version added last.
    by_name: HashMap<Vec<u8>, ObjectId>,
    open: HashMap<ObjectId, CheckedFile>,
    open_order: VecDeque<ObjectId>,
    /// When the open files are checked next.
    check_at: Instant,
    inputs: Vec<ProducerInput>,
    out: ProducerOutbox,
    dropped: u64,
    damaged: u64,
    unread: u64,
    block_cache: BlockCache,
    has_bucket: bool,
    /// The bucket that could not be read the last time.
    unreachable_bucket: Option<String>,
    /// Receives problems with files.
    problem_sender: Option<Sender<ServeProblem>>,
    updates: Option<Receiver<(Vec<Update>, Sender<()>)>>,
    waker: Arc<Mutex<Option<EndpointWaker>>>,
    /// How long replaced and removed versions are served, and the files kept open for that.
    linger_policy: Option<(u64, OpenFiles)>,
    replaced_versions: ReplacedVersions,
}

impl Default for ObjectStore {
    fn default() -> Self {
        Self::new()
    }
}

impl ObjectStore {
    /// An empty store, which answers for added objects.
    pub fn new() -> Self {
        // All objects are complete, so no Interest waits and no Data is stored. The hash key of the
        // tables is therefore never used.
        let config = ProducerConfig::new(HashKey::new([0, 0]));
        // Interests that wait for buckets keep the packet that they arrived in.
        Self::with_config(ProducerConfig { reads_max: READS_MAX, ..config }, None)
    }

    /// A store that calls `make` for Data that it does not have.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn on_demand(
        make: impl FnMut(&InterestView<'_>) -> Option<Packet> + Send + 'static,
    ) -> io::Result<Self> {
        let hash_key = HashKey::new([random_u64()?, random_u64()?]);
        let config = ProducerConfig::on_demand(hash_key, MAKE_WAIT_NS_MAX);
        Ok(Self::with_config(config, Some(Box::new(make))))
    }

    fn with_config(config: ProducerConfig, maker: Option<DataMaker>) -> Self {
        Self {
            producer: Producer::new(Catalog::new(), config),
            maker,
            objects: Vec::new(),
            by_name: HashMap::new(),
            open: HashMap::new(),
            open_order: VecDeque::new(),
            check_at: Instant::ZERO,
            inputs: Vec::new(),
            out: ProducerOutbox::default(),
            dropped: 0,
            damaged: 0,
            unread: 0,
            block_cache: BlockCache::new(),
            has_bucket: false,
            unreachable_bucket: None,
            problem_sender: None,
            updates: None,
            waker: Arc::default(),
            linger_policy: None,
            replaced_versions: ReplacedVersions::default(),
        }
    }

    /// Answers Interests for missing names below the prefixes of [`Self::own_prefix`] with a signed
    /// Nack.
    pub fn sign_absence(&mut self, signer: Arc<dyn Signer>) {
        self.producer.sign_absence(signer);
    }

    /// Declares that only this store serves `prefix`.
    pub fn own_prefix(&mut self, prefix: &Name) {
        self.producer.own_prefix(prefix);
    }

    /// Serves versions for that long after they were replaced or removed, if their content can
    /// still be read. Requests for the latest version do not find them.
    #[must_use]
    pub fn with_lingering(mut self, linger: Duration, files: OpenFiles) -> Self {
        let ns = u64::try_from(linger.as_nanos()).unwrap_or(u64::MAX);
        self.linger_policy = Some((ns, files)).filter(|(ns, _)| *ns > 0);
        self
    }

    pub fn add(&mut self, published: Published) {
        let catalog = self.producer.source_mut();
        let prefix = match &published.0 {
            ObjectForm::Sealed(object, _) => object.template.prefix(),
            ObjectForm::Stored(_) => published.versioned().as_view(),
        };
        let id = catalog.add_object(prefix, published.segments());
        match &published.0 {
            ObjectForm::Sealed(object, _) => {
                for packet in &object.packets {
                    catalog.add_packet(packet.clone()).expect("built as Data");
                }
            }
            ObjectForm::Stored(stored) => {
                self.has_bucket |= stored.location.file().is_none();
                for (number, whole) in (stored.header.segments..).zip(&stored.header.named_packets)
                {
                    catalog.add_read_packet(whole.name.as_view(), id, number);
                }
            }
        }
        self.by_name.insert(published.object().value().to_vec(), id);
        let at = id.0 as usize;
        self.objects.resize_with(self.objects.len().max(at + 1), || None);
        self.objects[at] = Some(published);
    }

    /// Removes the version of an object that was added last, at once or after a while. Until then,
    /// consumers that know the version may fetch its segments.
    fn remove(&mut self, now: Instant, object: &[u8]) {
        let Some(id) = self.by_name.remove(object) else { return };
        let Some((linger_ns, files)) = &self.linger_policy else { return self.remove_object(id) };
        let (end, files) = (now.plus_ns(*linger_ns), files.clone());
        // Without its content the old version is useless.
        if !self.keep_file_open(id, &files) {
            return self.remove_object(id);
        }
        // Without its metadata, only consumers that know the version still find it.
        let names = self.object(id).metadata_names();
        self.producer.source_mut().remove_packets(id, names.iter().map(Name::as_view));
        self.replaced_versions.add(end, id);
    }

    /// Keeps the content of an object readable, even if its file's name is reused. Returns whether
    /// it is.
    fn keep_file_open(&mut self, id: ObjectId, files: &OpenFiles) -> bool {
        let object = self.object(id);
        let Some(path) = object.path() else {
            return matches!(&object.0, ObjectForm::Sealed(_, Content::Memory(_)));
        };
        if object.held_file().is_some() {
            return true;
        }
        let open = self.open.get(&id).map(|open| open.file.clone());
        let file = match (&object.0, open) {
            (_, Some(open)) => open,
            // A repository writes each version to its own file.
            (ObjectForm::Stored(_), None) => match open_to_read(path) {
                Ok(file) => Arc::new(file),
                Err(_) => return false,
            },
            (ObjectForm::Sealed(..), None) => return false,
        };
        let Some(held) = files.hold_open(file) else { return false };
        self.object_mut(id).keep_file(held);
        true
    }

    /// Stops serving an object.
    fn remove_object(&mut self, id: ObjectId) {
        self.close_file(id);
        let Some(published) = self.objects[id.0 as usize].take() else { return };
        let names = published.named_packet_names();
        self.producer.source_mut().remove(id, names.iter().map(Name::as_view));
    }

    /// Allows another thread to change the store from now on.
    pub fn updates(&mut self) -> Updates {
        let (send, receive) = unbounded();
        self.updates = Some(receive);
        Updates { updates: send, waker: self.waker.clone() }
    }

    fn take_updates(&mut self, now: Instant) {
        while let Some(id) = self.replaced_versions.pop_expired(now) {
            self.remove_object(id);
        }
        let Some(updates) = self.updates.take() else { return };
        for (updates, done) in updates.try_iter() {
            for update in updates {
                match update {
                    Update::Add(published) => {
                        self.remove(now, published.object().value());
                        self.add(published);
                    }
                    Update::Remove(object) => self.remove(now, object.value()),
                    Update::Packet(packet) => {
                        // It was Data when it was put into the repository.
                        let _ = self.add_packet(packet);
                    }
                }
            }
            // The thread may have stopped waiting.
            let _ = done.send(());
        }
        self.updates = Some(updates);
    }

    fn object(&self, id: ObjectId) -> &Published {
        self.objects[id.0 as usize].as_ref().expect("listed in the catalog")
    }

    fn object_mut(&mut self, id: ObjectId) -> &mut Published {
        self.objects[id.0 as usize].as_mut().expect("listed in the catalog")
    }

    /// Adds a Data packet to be served as it is, such as a certificate.
    ///
    /// # Errors
    /// It is not Data.
    pub fn add_packet(&mut self, packet: Packet) -> Result<(), DecodeError> {
        self.producer.source_mut().add_packet(packet)
    }

    /// The objects, in the order of adding unless some have been removed.
    pub fn objects(&self) -> impl Iterator<Item = &Published> {
        self.objects.iter().flatten()
    }

    pub fn stats(&self) -> ProducerStats {
        self.producer.stats()
    }

    /// Interests for damaged packets of a repository. None of these was sent.
    pub fn damaged(&self) -> u64 {
        self.damaged
    }

    /// Interests for packets of a repository that could not be read.
    pub fn unread(&self) -> u64 {
        self.unread
    }

    /// Data that could not be sent.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Answers the Interests in `inputs`, and those whose reads have finished.
    fn answer_inputs(&mut self, client: &mut Client) {
        let now = client.now();
        let mut out = std::mem::take(&mut self.out);
        loop {
            self.producer.handle(now, &mut self.inputs, &mut out);
            for (path, header, packet) in out.packets.drain(..) {
                self.dropped += u64::from(client.send(path, header, packet).is_err());
            }
            for op in out.reads.drain(..) {
                self.read(now, op, client.pool());
            }
            for ProducerEvent::Wanted { interest } in out.events.drain(..) {
                let view = InterestView::decode(&interest).expect("the producer decoded it");
                let made = self.maker.as_mut().and_then(|make| make(&view));
                self.inputs.extend(made.map(ProducerInput::Put));
            }
            if self.inputs.is_empty() {
                self.out = out;
                return;
            }
        }
    }

    /// Reads a segment or another packet of an object, at once or in the background.
    fn read(&mut self, now: Instant, op: ReadOp, pool: &mut Pool) {
        let object = self.objects[op.object.0 as usize].as_ref().expect("listed in the catalog");
        let (op, data) = if let ObjectForm::Stored(stored) = &object.0
            && let ObjectLocation::Bucket(location) = &stored.location
        {
            match self.block_cache.read(now, (stored, location), op, pool) {
                CacheResult::Later => return,
                CacheResult::Ready(op, Ok(packet)) => (op, Some(packet)),
                CacheResult::Ready(op, Err(error)) => {
                    self.on_packet_unreadable(op.object, op.segment, error);
                    (op, None)
                }
            }
        } else {
            let data = self.segment(now, &op, pool);
            (op, data)
        };
        if let (Some(_), ObjectForm::Stored(stored)) = (&data, &mut self.object_mut(op.object).0) {
            stored.is_unreadable_reported = false;
        }
        self.inputs.push(match data {
            Some(data) => ProducerInput::ReadDone { op, data },
            None => ProducerInput::ReadFailed { op },
        });
    }

    /// Answers Interests that waited for buckets, successfully or not.
    fn take_finished_reads(&mut self, now: Instant, pool: &mut Pool) {
        while let Some(FinishedRead { number, ops, result }) = self.block_cache.next_finished(now) {
            let is_it = |op: &ReadOp| {
                let object = self.objects[op.object.0 as usize].as_ref().map(|object| &object.0);
                matches!(object, Some(ObjectForm::Stored(stored)) if stored.number == number)
            };
            // During the read the object may have been removed and its number reused. Interests for
            // the old one fail.
            let (ops, others): (Vec<ReadOp>, Vec<ReadOp>) = ops.into_iter().partition(is_it);
            self.inputs.extend(others.into_iter().map(|op| ProducerInput::ReadFailed { op }));
            match result {
                Ok(()) => {
                    if let Some(bucket) = self.unreachable_bucket.take() {
                        self.report_problem(ServeProblem::BucketReachable { bucket });
                    }
                    ops.into_iter().for_each(|op| self.read(now, op, pool));
                }
                Err(error) => ops.into_iter().for_each(|op| {
                    self.on_read_failed(&op, &error);
                    self.inputs.push(ProducerInput::ReadFailed { op });
                }),
            }
        }
    }

    /// A packet in a bucket cannot be read. An unreachable bucket is reported once.
    fn on_read_failed(&mut self, op: &ReadOp, error: &BucketError) {
        let ObjectForm::Stored(stored) = &self.object(op.object).0 else { return };
        let ObjectLocation::Bucket(location) = &stored.location else { return };
        // An unreachable bucket concerns all its objects, so it is reported once.
        if let BucketError::Unreachable(_) = error {
            let bucket = location.bucket.location().to_string();
            self.unread += 1;
            if self.unreachable_bucket.is_none() {
                self.unreachable_bucket = Some(bucket.clone());
                self.report_problem(ServeProblem::BucketUnreachable {
                    bucket,
                    reason: error.to_string(),
                });
            }
            return;
        }
        self.on_packet_unreadable(op.object, op.segment, bucket_error(error.clone()).into());
    }

    /// A segment or another packet of an object, unless its file is lost.
    fn segment(&mut self, now: Instant, op: &ReadOp, pool: &mut Pool) -> Option<Packet> {
        let id = op.object;
        if let ObjectForm::Sealed(_, Content::Memory(_)) = &self.object(id).0 {
            return Some(self.object(id).packet(op.segment, pool));
        }
        let prepared = self.prepare_file(now, id);
        let file = self.open.get(&id).map(|open| open.file.clone());
        match (&self.object(id).0, prepared.map(|()| file.expect("it is open"))) {
            (ObjectForm::Sealed(object, _), Ok(file)) => {
                match read_segment(object, &file, op.segment, pool) {
                    Ok(packet) => return Some(packet),
                    Err(reason) => self.on_file_lost(id, reason),
                }
            }
            (ObjectForm::Sealed(..), Err(reason)) => self.on_file_lost(id, reason),
            (ObjectForm::Stored(stored), Ok(file)) => {
                let read = |range: Range<u64>, out: &mut [u8]| file.read_exact_at(out, range.start);
                match stored.read(op.segment, pool, read) {
                    Ok(packet) => return Some(packet),
                    Err(error) => self.on_packet_unreadable(id, op.segment, error),
                }
            }
            (ObjectForm::Stored(_), Err(reason)) => {
                let reason = reason.unwrap_or_else(|| io::ErrorKind::NotFound.into());
                self.on_packet_unreadable(id, op.segment, reason.into());
            }
        }
        None
    }

    /// A file cannot be served any more: it has changed, or there is an error.
    fn on_file_lost(&mut self, id: ObjectId, reason: Option<io::Error>) {
        self.close_file(id);
        let ObjectForm::Sealed(_, content) = &mut self.object_mut(id).0 else { return };
        let Content::File { path, .. } = std::mem::replace(content, Content::Unavailable) else {
            return;
        };
        if self.replaced_versions.contains(id) {
            // A newer version has replaced it, so this is no problem to report.
            return;
        }
        self.report_problem(match reason {
            None => ServeProblem::FileChanged { path },
            Some(source) => ServeProblem::Read { path, source },
        });
    }

    /// A packet of a repository cannot be served. Reported once per object.
    fn on_packet_unreadable(&mut self, id: ObjectId, number: u64, error: ReadError) {
        let is_damaged = matches!(error, ReadError::Damaged);
        self.damaged += u64::from(is_damaged);
        self.unread += u64::from(!is_damaged);
        // It may be readable after it is opened again.
        self.close_file(id);
        let ObjectForm::Stored(stored) = &mut self.object_mut(id).0 else { return };
        let is_told = if is_damaged {
            &mut stored.is_damage_reported
        } else {
            &mut stored.is_unreadable_reported
        };
        if std::mem::replace(is_told, true) {
            return;
        }
        if is_damaged {
            // A mark for the next start. If that fails, the damage will be found again.
            let _ = stored.mark_damaged();
        }
        let (path, object) = (stored.location.path(), stored.header.versioned.clone());
        let packet = stored.packet_name(number);
        self.report_problem(match error {
            ReadError::Damaged => ServeProblem::Damaged { path, object, packet },
            ReadError::Io(source) => ServeProblem::Unreadable { path, object, packet, source },
        });
    }

    fn report_problem(&self, problem: ServeProblem) {
        if let Some(problems) = &self.problem_sender {
            // The receiver may have stopped listening.
            let _ = problems.send(problem);
        }
    }

    fn close_file(&mut self, id: ObjectId) {
        if self.open.remove(&id).is_some() {
            self.open_order.retain(|&open| open != id);
        }
    }

    /// Opens the file of an object, unless it was found unchanged within the last second. An error
    /// without a reason means that it has changed.
    fn prepare_file(&mut self, now: Instant, id: ObjectId) -> Result<(), Option<io::Error>> {
        let needs_check = match self.open.get(&id) {
            Some(open) => now >= open.checked.plus_ns(CHECK_NS),
            None => {
                self.open_file(now, id)?;
                true
            }
        };
        if needs_check {
            self.check_file(now, id)?;
        }
        Ok(())
    }

    fn open_file(&mut self, now: Instant, id: ObjectId) -> io::Result<()> {
        let object = self.object(id);
        let file = match object.held_file() {
            Some(held) => held.file.clone(),
            None => Arc::new(open_to_read(object.path().ok_or(io::ErrorKind::NotFound)?)?),
        };
        if self.open_order.len() >= OPEN_FILES_MAX
            && let Some(oldest) = self.open_order.pop_front()
        {
            self.open.remove(&oldest);
        }
        self.open.insert(id, CheckedFile { file, checked: now });
        self.open_order.push_back(id);
        Ok(())
    }

    fn check_file(&mut self, now: Instant, id: ObjectId) -> Result<(), Option<io::Error>> {
        if let Some(open) = self.open.get_mut(&id) {
            open.checked = now;
        }
        if self.object(id).held_file().is_some_and(|held| held.is_copy) {
            return Ok(());
        }
        // Packets of a repository have checksums, so only files that were signed in place are
        // compared.
        let object = &self.object(id).0;
        let ObjectForm::Sealed(_, Content::File { fingerprint, .. }) = object else {
            return Ok(());
        };
        let Some(open) = self.open.get(&id) else { return Ok(()) };
        match Fingerprint::of(&open.file)? {
            found if found == *fingerprint => Ok(()),
            _ => Err(None),
        }
    }

    /// Checks every open file, several times a second.
    fn check_open_files(&mut self, now: Instant) {
        if now < self.check_at {
            return;
        }
        self.check_at = now.plus_ns(CHECK_OPEN_FILES_NS);
        for id in self.open_order.clone() {
            if let Err(reason) = self.check_file(now, id) {
                self.on_file_lost(id, reason);
            }
        }
    }
}

impl Endpoint for ObjectStore {
    fn handle(&mut self, context: &mut Context<'_>, packets: &mut Vec<ReceivedPacket>) {
        if self.has_bucket {
            self.block_cache.set_waker(|| context.waker());
        }
        if self.updates.is_some() {
            lock(&self.waker).get_or_insert_with(|| context.waker());
        }
        let client = &mut *context.client;
        let inputs = packets.drain(..).map(|ReceivedPacket { path, header, packet }| {
            ProducerInput::Packet { path, header, packet }
        });
        self.inputs.extend(inputs);
        if self.has_bucket {
            self.take_finished_reads(client.now(), client.pool());
        }
        self.answer_inputs(client);
        self.check_open_files(client.now());
        self.take_updates(client.now());
    }

    fn next_wakeup(&self) -> Option<Instant> {
        let is_checked = !self.open_order.is_empty() || self.updates.is_some();
        let check = is_checked.then_some(self.check_at);
        let others = [self.producer.next_wakeup(), self.replaced_versions.next_wakeup()];
        others.into_iter().chain([check]).flatten().min()
    }

    fn is_done(&self) -> bool {
        false
    }
}

/// Answers Interests until `keep_going` returns false. The loop calls it several times a second,
/// with the problems since the last call. A file that has changed is refused from then on. Other
/// objects are still served.
///
/// # Errors
/// The router is unreachable. The caller may connect again and continue with the same store.
pub fn serve(
    client: &mut Client,
    store: &mut ObjectStore,
    keep_going: &mut dyn FnMut(Vec<ServeProblem>) -> bool,
) -> Result<(), ClientError> {
    // A problem is reported once per file or bucket, and `keep_going` drains them, so the channel
    // needs no limit.
    let (problem_sender, problems) = unbounded();
    store.problem_sender = Some(problem_sender);
    // A new client has its own waker.
    store.block_cache.clear_waker();
    *lock(&store.waker) = None;
    let mut events = EventLoop::new(client);
    events.add(store);
    events.run(&mut || keep_going(problems.try_iter().collect()))
}
