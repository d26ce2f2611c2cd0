//! Answering Interests for published objects.

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
/// How often it is checked that a file is still the one that was signed.
const CHECK_NS: u64 = NS_PER_S;
/// Interests that wait for buckets.
const READS_MAX: usize = 4096;
/// How long an Interest waits for what is made when it is asked for.
const MAKE_WAIT_NS_MAX: u64 = NS_PER_S;
/// How often all open files are looked at.
const CHECK_OPEN_FILES_NS: u64 = 200 * NS_PER_MS;

/// Something that cannot be served, or can be again.
#[derive(Debug, thiserror::Error)]
pub enum ServeProblem {
    /// It is not what was signed any more: its segments would be refused.
    #[error("{} has changed since it was signed", path.display())]
    FileChanged { path: PathBuf },
    #[error("{} cannot be read any more: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    /// A packet of a repository is not what was written. It is not served; the others are.
    #[error("{packet} of {object} in {} is damaged", path.display())]
    Damaged {
        /// The file of the repository, or its address.
        path: PathBuf,
        object: Name,
        packet: String,
    },
    /// A packet of a repository cannot be read. Whenever it is asked for that is tried again.
    #[error("{packet} of {object} in {} cannot be read: {source}", path.display())]
    Unreadable {
        /// The file of the repository, or its address.
        path: PathBuf,
        object: Name,
        packet: String,
        source: io::Error,
    },
    /// Nothing can be read from a bucket. Whenever something is asked for that is tried again.
    #[error("cannot read {bucket}: {reason}")]
    BucketUnreachable { bucket: String, reason: String },
    /// The bucket can be read again.
    #[error("{bucket} can be read again")]
    BucketReachable { bucket: String },
}

struct CheckedFile {
    file: Arc<File>,
    checked: Instant,
}

/// What changes in an [`ObjectStore`] while it serves.
#[derive(Debug)]
pub enum Update {
    /// This object takes the place of the one of its name, if there is one.
    Add(Published),
    /// There is no object of this name any more.
    Remove(Name),
    /// This packet is served as it is, such as a certificate.
    Packet(Packet),
}

/// Changes an [`ObjectStore`] from another thread.
#[derive(Clone, Debug)]
pub struct Updates {
    updates: Sender<(Vec<Update>, Sender<()>)>,
    waker: Arc<Mutex<Option<EndpointWaker>>>,
}

impl Updates {
    /// Has the store changed, and waits until it is or `in_directory` is over: nobody serves while the
    /// router is away. Whether it has been changed by then; if not, it will be.
    pub fn apply(&self, updates: Vec<Update>, within: Duration) -> bool {
        let (done, is_done) = unbounded();
        if self.updates.send((updates, done)).is_err() {
            return false;
        }
        if let Some(waking) = &*lock(&self.waker) {
            // Otherwise it looks a little later.
            let _ = waking.wake();
        }
        is_done.recv_timeout(within).is_ok()
    }
}

fn lock(waking: &Mutex<Option<EndpointWaker>>) -> MutexGuard<'_, Option<EndpointWaker>> {
    waking.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes the Data that an Interest asks for, if there is to be any.
type DataMaker = Box<dyn FnMut(&InterestView<'_>) -> Option<Packet> + Send>;

/// Published objects, found by name, with the producer that answers for them.
pub struct ObjectStore {
    producer: Producer,
    maker: Option<DataMaker>,
    /// By number; nothing where one has been removed.
    objects: Vec<Option<Published>>,
    /// By the value of the object's name, the version added last.
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
    /// The bucket that nothing could be read from the last time.
    unreachable_bucket: Option<String>,
    /// Takes word of the files that are lost.
    problem_sender: Option<Sender<ServeProblem>>,
    updates: Option<Receiver<(Vec<Update>, Sender<()>)>>,
    waker: Arc<Mutex<Option<EndpointWaker>>>,
    /// How long versions are served that have been replaced or removed, and what may be kept open
    /// for that.
    linger_policy: Option<(u64, OpenFiles)>,
    replaced_versions: ReplacedVersions,
}

impl Default for ObjectStore {
    fn default() -> Self {
        Self::new()
    }
}

impl ObjectStore {
    /// A store of nothing, which answers for what is added to it.
    pub fn new() -> Self {
        // All objects are there: no Interest waits and no Data is kept, so that no name is hashed.
        let config = ProducerConfig::new(HashKey::new([0, 0]));
        // Interests that wait for buckets keep what they came in.
        Self::with_config(ProducerConfig { reads_max: READS_MAX, ..config }, None)
    }

    /// A store that has `make` make what it does not have.
    ///
    /// # Errors
    /// The system gives no random numbers.
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

    /// Answers Interests for what there is not, below the names that it [owns](Self::own), with a
    /// signed word of that.
    pub fn sign_absence(&mut self, signer: Arc<dyn Signer>) {
        self.producer.sign_absence(signer);
    }

    /// What is below `prefix` this store has, or nobody.
    pub fn own_prefix(&mut self, prefix: &Name) {
        self.producer.own_prefix(prefix);
    }

    /// Has versions served for that long after they have been replaced or removed, as far as their
    /// content can still be read. Their names are not told to those who ask for the latest.
    #[must_use]
    pub fn with_lingering(mut self, linger: Duration, files: OpenFiles) -> Self {
        let ns = u64::try_from(linger.as_nanos()).unwrap_or(u64::MAX);
        self.linger_policy = Some((ns, files)).filter(|(ns, _)| *ns > 0);
        self
    }

    pub fn add(&mut self, published: Published) {
        let catalog = self.producer.source_mut();
        let versioned = published.versioned().as_view();
        let id = catalog.add_object(versioned, published.segments());
        match &published.0 {
            ObjectForm::Sealed(object, _) => {
                for packet in &object.packets {
                    catalog.add_packet(packet.clone()).expect("it was made as Data");
                }
            }
            ObjectForm::Stored(kept) => {
                self.has_bucket |= kept.location.file().is_none();
                for (number, whole) in (kept.header.segments..).zip(&kept.header.named_packets) {
                    catalog.add_read_packet(whole.name.as_view(), id, number);
                }
            }
        }
        self.by_name.insert(published.object().value().to_vec(), id);
        let at = id.0 as usize;
        self.objects.resize_with(self.objects.len().max(at + 1), || None);
        self.objects[at] = Some(published);
    }

    /// Removes the object of a name, in the version that was added last: at once, or after a while
    /// in which those who know that version may still have its segments.
    fn remove(&mut self, now: Instant, object: &[u8]) {
        let Some(id) = self.by_name.remove(object) else { return };
        let Some((linger_ns, files)) = &self.linger_policy else { return self.remove_object(id) };
        let (end, files) = (now.plus_ns(*linger_ns), files.clone());
        if !self.keep_file_open(id, &files) {
            return self.remove_object(id);
        }
        let names = self.object(id).metadata_names();
        self.producer.source_mut().remove_packets(id, names.iter().map(Name::as_view));
        self.replaced_versions.add(end, id);
    }

    /// Sees to it that the content of an object can be read whatever becomes of its file's name.
    /// Whether that is so.
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
            // A repository writes each version to a file of its own.
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

    /// Has nothing of an object served any more.
    fn remove_object(&mut self, id: ObjectId) {
        self.close_file(id);
        let Some(published) = self.objects[id.0 as usize].take() else { return };
        let names = published.named_packet_names();
        self.producer.source_mut().remove(id, names.iter().map(Name::as_view));
    }

    /// Has the store changed by another thread, from now on.
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
                        // It was Data when it was put into a repository.
                        let _ = self.add_packet(packet);
                    }
                }
            }
            // Whoever does not wait has waited long enough.
            let _ = done.send(());
        }
        self.updates = Some(updates);
    }

    fn object(&self, id: ObjectId) -> &Published {
        self.objects[id.0 as usize].as_ref().expect("the catalog has it")
    }

    fn object_mut(&mut self, id: ObjectId) -> &mut Published {
        self.objects[id.0 as usize].as_mut().expect("the catalog has it")
    }

    /// Adds a Data packet to be served as it is, such as a certificate.
    ///
    /// # Errors
    /// When it is no Data.
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

    /// Interests for packets of a repository that are not what was written. None of these was sent.
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

    /// Answers what is in `inputs`, with what is read for it.
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
        let object = self.objects[op.object.0 as usize].as_ref().expect("the catalog has it");
        let (op, data) = if let ObjectForm::Stored(kept) = &object.0
            && let ObjectLocation::Bucket(place) = &kept.location
        {
            match self.block_cache.read(now, (kept, place), op, pool) {
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
        if let (Some(_), ObjectForm::Stored(kept)) = (&data, &mut self.object_mut(op.object).0) {
            kept.is_unreadable_reported = false;
        }
        self.inputs.push(match data {
            Some(data) => ProducerInput::ReadDone { op, data },
            None => ProducerInput::ReadFailed { op },
        });
    }

    /// Answers those who waited for what has come from buckets, or has not.
    fn take_finished_reads(&mut self, now: Instant, pool: &mut Pool) {
        while let Some(FinishedRead { number, ops, result }) = self.block_cache.next_finished(now) {
            let is_it = |op: &ReadOp| {
                let object = self.objects[op.object.0 as usize].as_ref().map(|object| &object.0);
                matches!(object, Some(ObjectForm::Stored(kept)) if kept.number == number)
            };
            // Meanwhile an object may have been removed, and another one have its place.
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

    /// A packet in a bucket cannot be had. Where that is so of all, it is told once for all.
    fn on_read_failed(&mut self, op: &ReadOp, error: &BucketError) {
        let ObjectForm::Stored(kept) = &self.object(op.object).0 else { return };
        let ObjectLocation::Bucket(place) = &kept.location else { return };
        if let BucketError::Unreachable(_) = error {
            let bucket = place.bucket.location().to_string();
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
            (ObjectForm::Stored(kept), Ok(file)) => {
                let read = |range: Range<u64>, out: &mut [u8]| file.read_exact_at(out, range.start);
                match kept.read(op.segment, pool, read) {
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

    /// A file cannot be served any more: it has changed, or the system says why.
    fn on_file_lost(&mut self, id: ObjectId, reason: Option<io::Error>) {
        self.close_file(id);
        let ObjectForm::Sealed(_, content) = &mut self.object_mut(id).0 else { return };
        let Content::File { path, .. } = std::mem::replace(content, Content::Unavailable) else {
            return;
        };
        if self.replaced_versions.contains(id) {
            // A later version is served.
            return;
        }
        self.report_problem(match reason {
            None => ServeProblem::FileChanged { path },
            Some(source) => ServeProblem::Read { path, source },
        });
    }

    /// A packet of a repository cannot be served. Of each object that is told once.
    fn on_packet_unreadable(&mut self, id: ObjectId, number: u64, error: ReadError) {
        let is_damaged = matches!(error, ReadError::Damaged);
        self.damaged += u64::from(is_damaged);
        self.unread += u64::from(!is_damaged);
        // What is opened anew may be readable.
        self.close_file(id);
        let ObjectForm::Stored(kept) = &mut self.object_mut(id).0 else { return };
        let is_told = if is_damaged {
            &mut kept.is_damage_reported
        } else {
            &mut kept.is_unreadable_reported
        };
        if std::mem::replace(is_told, true) {
            return;
        }
        if is_damaged {
            // A mark for the next start. Where it cannot be made, the damage is found again.
            let _ = kept.mark_damaged();
        }
        let (path, object) = (kept.location.path(), kept.header.versioned.clone());
        let packet = kept.packet_name(number);
        self.report_problem(match error {
            ReadError::Damaged => ServeProblem::Damaged { path, object, packet },
            ReadError::Io(source) => ServeProblem::Unreadable { path, object, packet, source },
        });
    }

    fn report_problem(&self, loss: ServeProblem) {
        if let Some(losses) = &self.problem_sender {
            // Whoever does not listen does not want to know.
            let _ = losses.send(loss);
        }
    }

    fn close_file(&mut self, id: ObjectId) {
        if self.open.remove(&id).is_some() {
            self.open_order.retain(|&open| open != id);
        }
    }

    /// Has the file of an object open and found unchanged within the last second. An error without
    /// a reason is a change.
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
        // What lies in a repository has checksums.
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

    /// Checks every file that is open, several times a second.
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

/// Answers Interests until `drive` returns false, which is asked several times a second and told
/// which files have been lost since. They are refused from then on; the rest is served.
///
/// # Errors
/// When the router is gone, the caller may connect anew and go on with the same store.
pub fn serve(
    client: &mut Client,
    store: &mut ObjectStore,
    go_on: &mut dyn FnMut(Vec<ServeProblem>) -> bool,
) -> Result<(), ClientError> {
    // Bounded by the number of files: each is lost once.
    let (tell, losses) = unbounded();
    store.problem_sender = Some(tell);
    // A client has a waker of its own.
    store.block_cache.clear_waker();
    *lock(&store.waker) = None;
    let mut events = EventLoop::new(client);
    events.add(store);
    events.run(&mut || go_on(losses.try_iter().collect()))
}
