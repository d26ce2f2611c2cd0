//! Sources (names to fetch) and streams (fetches in progress).

use std::io::BufRead;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use weir_base::Packet;
use weir_binding::{SharedTrust, TrustSettings};
use weir_crypto::random_octets;
use weir_security::trust::{Advice, ExplainedTrust, Refusal};
use weir_security::{DigestVerifier, Verifier};
use weir_socket::{Consumer, ConsumerOptions, Reader, SocketError};
use weir_transport::Metadata;
use weir_wire::{Interest, Name};

use crate::answer::Offer;
use crate::buffer::{Buffer, octets_of};
use crate::memory::prefer_large_pages;
use crate::process_local::ProcessLocal;
use crate::task::Task;
use crate::wait::{Notifier, block_on, timeout_of};
use crate::{errors, options, sessions};

/// Maximum memory that is reserved at once for an object, even if it claims a larger size.
const RESERVED_BYTES_MAX: u64 = 1 << 30;

const STREAM: &str = "this fetch";
const ANSWER: &str = "this request";

/// The user's trust settings, with advice in terms of the Python API.
pub(crate) type PythonTrust = ExplainedTrust<SharedTrust>;

fn explain(Refusal { reason, advice }: Refusal) -> String {
    let step = match advice {
        None => return reason,
        Some(Advice::AskProducer) => {
            ". It may be forged: fetch it over another router (router=), and ask its producer, \
             through another channel, which key signs it"
        }
        Some(Advice::AllowUnsigned) => {
            ". Ask its producer to sign it; if the origin does not matter, pass allow_unsigned=True"
        }
        Some(Advice::NameAnchors) => ". Name certificates to trust with anchors=[FILE]",
        Some(Advice::ImportKey) => "; `weir key import` it first",
        Some(Advice::NameHicnKey) => "; name its key with hicn_key=FILE",
        Some(Advice::ImportCertificate) => {
            "; if you know the signer, get its certificate and import it with `weir key import \
             FILE`. If the origin does not matter, pass accept_unverified=True"
        }
    };
    reason + step
}

/// Certificate files, whether unsigned and unverified content is accepted, and the file of a key of
/// hICN.
pub(crate) type Trusted = (Vec<PathBuf>, bool, bool, Option<PathBuf>);

pub(crate) fn trust_settings(trusted: Trusted) -> TrustSettings {
    let (anchors, allow_unsigned, accept_unverified, hicn_key) = trusted;
    TrustSettings { anchors, allow_unsigned, accept_unverified, hicn_key }
}

/// The trust settings for a name.
///
/// # Errors
/// Keys, or files of the settings, cannot be read.
pub(crate) fn trust_for(
    py: Python<'_>,
    name: &Name,
    settings: &TrustSettings,
) -> PyResult<PythonTrust> {
    let trust = py.detach(|| SharedTrust::new(name.clone(), settings));
    trust.map(|trust| PythonTrust::new(trust, explain)).map_err(errors::of_keys)
}

/// The consumer of a source, for this process.
#[derive(Clone)]
struct SourceConsumer {
    consumer: Arc<Consumer>,
    trust: PythonTrust,
    has_remembered: Arc<AtomicBool>,
}

/// An object by name, fixed to one version once that is known. Also works in a child of `fork`,
/// which has a session of its own.
#[pyclass(frozen, module = "weir._weir")]
pub(crate) struct Source {
    name: Name,
    prefix: Name,
    router: Option<String>,
    trust: TrustSettings,
    options: ConsumerOptions,
    /// Both are locked only while holding the GIL, which is not released meanwhile.
    consumer: Mutex<Option<ProcessLocal<SourceConsumer>>>,
    metadata: Arc<Mutex<Option<Metadata>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[pymethods]
impl Source {
    #[new]
    #[pyo3(signature = (name, prefix, router, trusted, options))]
    fn new(
        name: &str,
        prefix: &str,
        router: Option<String>,
        trusted: Trusted,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        Ok(Self {
            name: sessions::name_of(name)?,
            prefix: sessions::name_of(prefix)?,
            router,
            trust: trust_settings(trusted),
            options: options::for_consumer(options)?,
            consumer: Mutex::default(),
            metadata: Arc::default(),
        })
    }

    /// The name.
    #[getter]
    fn name(&self) -> String {
        self.name.to_string()
    }

    /// Starts to follow a growing object, from its newest segment on.
    fn newest(&self, py: Python<'_>) -> PyResult<Stream> {
        let SourceConsumer { consumer, trust, has_remembered } = self.source_consumer(py)?;
        let reader = consumer.fetch_newest(&self.name).map_err(errors::of_socket)?;
        Ok(Stream::new(FetchState { reader, trust, has_remembered, whole: Vec::new() }, None))
    }

    /// Sends a single Interest for the name. Returns a task for the answer.
    fn express(
        &self,
        py: Python<'_>,
        parameters: Option<&Bound<'_, PyAny>>,
        can_be_prefix: bool,
        must_be_fresh: bool,
    ) -> PyResult<Task> {
        let lifetime_ms = self.options.config().lifetime_ms;
        let mut interest = Interest::new(self.name.clone())
            .can_be_prefix(can_be_prefix)
            .must_be_fresh(must_be_fresh)
            .nonce(u32::from_ne_bytes(random_octets()))
            .lifetime_ms(lifetime_ms);
        if let Some(parameters) = parameters {
            interest = interest.application_parameters(octets_of(py, parameters)?.to_vec());
        }
        let sent = self.unverified_consumer(py)?.express(&interest.encode());
        sent.map(|answer| Task::of_data(ANSWER, answer)).map_err(errors::of_socket)
    }

    /// Sends an offer in a single Interest for the name. Returns a task for the answer.
    fn send(&self, py: Python<'_>, offer: &Offer) -> PyResult<Task> {
        let sent = self.unverified_consumer(py)?.send(&self.name, &offer.0);
        sent.map(|answer| Task::of_data(ANSWER, answer)).map_err(errors::of_socket)
    }

    /// Starts to fetch a range of bytes; without an end, up to the end of the object.
    #[pyo3(signature = (start = 0, end = None))]
    fn stream(&self, py: Python<'_>, start: u64, end: Option<u64>) -> PyResult<Stream> {
        let SourceConsumer { consumer, trust, has_remembered } = self.source_consumer(py)?;
        let range = start..end.unwrap_or(u64::MAX).max(start);
        let is_empty = range.is_empty();
        let found = lock(&self.metadata).clone();
        let reader = match &found {
            Some(metadata) => consumer.fetch_found(metadata, range),
            None => consumer.fetch_range(&self.name, range),
        };
        let reader = reader.map_err(errors::of_socket)?;
        let flow = FetchState { reader, trust, has_remembered, whole: Vec::new() };
        Ok(Stream::new(flow, is_empty.then(|| self.metadata.clone())))
    }
}

impl Source {
    fn source_consumer(&self, py: Python<'_>) -> PyResult<SourceConsumer> {
        let found = lock(&self.consumer).as_ref().and_then(ProcessLocal::get).cloned();
        if let Some(ways) = found {
            return Ok(ways);
        }
        let session = sessions::session(py, self.router.as_deref())?;
        let trust = trust_for(py, &self.name, &self.trust)?;
        let mut consumer = Consumer::bind(&session, self.prefix.clone(), trust.clone());
        consumer.set_options(self.options.clone()).map_err(errors::of_socket)?;
        let ways =
            SourceConsumer { consumer: Arc::new(consumer), trust, has_remembered: Arc::default() };
        *lock(&self.consumer) = Some(ProcessLocal::new(ways.clone()));
        Ok(ways)
    }

    /// A consumer for single Interests, whose answers are not verified.
    fn unverified_consumer(&self, py: Python<'_>) -> PyResult<Consumer> {
        let session = sessions::session(py, self.router.as_deref())?;
        let nobody: Arc<dyn Verifier> = Arc::new(DigestVerifier);
        let mut consumer = Consumer::bind(&session, self.prefix.clone(), nobody);
        consumer.set_options(self.options.clone()).map_err(errors::of_socket)?;
        Ok(consumer)
    }
}

/// A fetch in progress.
struct FetchState {
    reader: Reader,
    trust: PythonTrust,
    has_remembered: Arc<AtomicBool>,
    /// Bytes collected for a caller that waits for the whole object.
    whole: Vec<u8>,
}

type Polled<T> = Poll<Result<T, SocketError>>;

impl FetchState {
    fn poll_piece(&mut self, context: &mut Context<'_>) -> Polled<Packet> {
        // A wait that was cancelled may have collected some bytes.
        if !self.whole.is_empty() {
            return Poll::Ready(Ok(std::mem::take(&mut self.whole).into()));
        }
        let piece = ready!(self.reader.poll_piece(context))?;
        if piece.is_empty() {
            self.end();
        }
        Poll::Ready(Ok(piece))
    }

    /// Collects bytes until there are `count`, or until the end. If the caller gives up before, the
    /// bytes stay in `whole` for the next call.
    fn poll_octets(&mut self, context: &mut Context<'_>, count: u64) -> Polled<Vec<u8>> {
        if self.whole.capacity() == 0 {
            let metadata = ready!(self.reader.poll_metadata(context))?;
            let expected = metadata.size_bytes.unwrap_or(0).min(count).min(RESERVED_BYTES_MAX);
            let reserved = self.whole.try_reserve_exact(expected as usize);
            reserved.map_err(|error| SocketError::System(error.to_string()))?;
            prefer_large_pages(&mut self.whole);
        }
        while (self.whole.len() as u64) < count {
            let octets = ready!(self.reader.poll_fill_buf(context))?;
            if octets.is_empty() {
                self.end();
                break;
            }
            let taken = octets.len().min((count - self.whole.len() as u64) as usize);
            self.whole.extend_from_slice(&octets[..taken]);
            self.reader.consume(taken);
        }
        let asked = self.whole.len().min(usize::try_from(count).unwrap_or(usize::MAX));
        // A cancelled wait for more may have collected further bytes.
        let rest = self.whole.split_off(asked);
        Poll::Ready(Ok(std::mem::replace(&mut self.whole, rest)))
    }

    /// The object's metadata. Verified if the range is empty (`ends`).
    fn poll_metadata(&mut self, context: &mut Context<'_>, ends: bool) -> Polled<Metadata> {
        if ends {
            ready!(self.reader.poll_fill_buf(context))?;
            self.end();
        }
        self.reader.poll_metadata(context).map_ok(Clone::clone)
    }

    /// The whole range has been received.
    fn end(&self) {
        let is_verified = self.reader.is_verified();
        if is_verified && !self.has_remembered.swap(true, Ordering::Relaxed) {
            self.trust.inner.remember();
        }
    }
}

struct StreamState {
    /// `None` while a caller waits, because the caller has taken it.
    fetch: Mutex<Option<FetchState>>,
    is_closed: Arc<AtomicBool>,
    /// Wakes the waiting task, which then notices a closed stream.
    task: Mutex<Option<Waker>>,
}

/// The bytes of an object as they arrive.
#[pyclass(frozen, module = "weir._weir")]
pub(crate) struct Stream {
    course: ProcessLocal<StreamState>,
    /// Where this stream stores the metadata that it was created to find.
    finds: Option<Arc<Mutex<Option<Metadata>>>>,
}

impl Stream {
    fn new(flow: FetchState, finds: Option<Arc<Mutex<Option<Metadata>>>>) -> Self {
        let (is_closed, task) = (Arc::default(), Mutex::default());
        let state = StreamState { fetch: Mutex::new(Some(flow)), is_closed, task };
        Self { course: ProcessLocal::new(state), finds }
    }

    /// Runs a function on the fetch, with exclusive access.
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        then: impl FnOnce(&mut FetchState) -> PyResult<T>,
    ) -> PyResult<T> {
        let course = self.course.get_or_raise(STREAM)?;
        let Some(mut flow) = lock(&course.fetch).take() else {
            return Err(match course.is_closed.load(Ordering::Relaxed) {
                true => errors::closed(STREAM),
                false => errors::busy(STREAM),
            });
        };
        let result = then(&mut flow);
        // `close` found no fetch, because this call had taken it. So drop it here.
        if course.is_closed.load(Ordering::Relaxed) {
            py.detach(|| drop(flow));
        } else {
            *lock(&course.fetch) = Some(flow);
        }
        result
    }

    fn wait<T: Send>(
        &self,
        py: Python<'_>,
        timeout: Option<f64>,
        mut poll: impl FnMut(&mut FetchState, &mut Context<'_>) -> Polled<T> + Send,
    ) -> PyResult<T> {
        let timeout = timeout_of(timeout)?;
        let is_closed = self.course.get_or_raise(STREAM)?.is_closed.clone();
        self.with(py, |flow| {
            let found = block_on(py, timeout, |context| {
                if is_closed.load(Ordering::Relaxed) {
                    return Poll::Ready(Err(SocketError::Closed));
                }
                poll(flow, context)
            })?;
            found.map_err(errors::of_socket)
        })
    }

    fn poll<T: Send>(
        &self,
        py: Python<'_>,
        notifier: &Notifier,
        token: u64,
        mut poll: impl FnMut(&mut FetchState, &mut Context<'_>) -> Polled<T> + Send,
    ) -> PyResult<Option<(T,)>> {
        let waker = notifier.waker(token)?;
        *lock(&self.course.get_or_raise(STREAM)?.task) = Some(waker.clone());
        self.with(py, |flow| match py.detach(|| poll(flow, &mut Context::from_waker(&waker))) {
            Poll::Ready(found) => found.map(|found| Some((found,))).map_err(errors::of_socket),
            Poll::Pending => Ok(None),
        })
    }

    fn info_of<'py>(&self, py: Python<'py>, metadata: Metadata) -> PyResult<Bound<'py, PyDict>> {
        let info = PyDict::new(py);
        info.set_item("name", metadata.versioned.to_string())?;
        let last = metadata.versioned.as_view().last();
        info.set_item("version", last.and_then(|last| last.as_version()))?;
        info.set_item("size", metadata.size_bytes)?;
        info.set_item("segment_size", metadata.segment_size)?;
        info.set_item("segments", metadata.last_segment.map(|last| last.saturating_add(1)))?;
        info.set_item("next_segment", metadata.next_segment)?;
        info.set_item("mode", metadata.mode)?;
        info.set_item("mtime", metadata.mtime_ns.map(|ns| ns as f64 / 1e9))?;
        info.set_item("is_directory", metadata.is_directory())?;
        if let Some(finds) = &self.finds {
            lock(finds).get_or_insert(metadata);
        }
        Ok(info)
    }
}

/// A chunk, or `None` at the end.
fn chunk(piece: Packet) -> Option<Buffer> {
    (!piece.is_empty()).then(|| Buffer::of_packet(piece))
}

#[pymethods]
impl Stream {
    /// Waits for the object's metadata.
    #[pyo3(signature = (timeout = None))]
    fn info<'py>(&self, py: Python<'py>, timeout: Option<f64>) -> PyResult<Bound<'py, PyDict>> {
        let ends = self.finds.is_some();
        let found = self.wait(py, timeout, |flow, context| flow.poll_metadata(context, ends))?;
        self.info_of(py, found)
    }

    /// Like `info`, but returns None if it is not available yet.
    fn poll_info<'py>(
        &self,
        py: Python<'py>,
        notifier: &Notifier,
        token: u64,
    ) -> PyResult<Option<(Bound<'py, PyDict>,)>> {
        let ends = self.finds.is_some();
        let poll =
            |flow: &mut FetchState, context: &mut Context<'_>| flow.poll_metadata(context, ends);
        match self.poll(py, notifier, token, poll)? {
            Some((found,)) => Ok(Some((self.info_of(py, found)?,))),
            None => Ok(None),
        }
    }

    /// Waits for the next bytes, as many as arrived in one packet. None at the end.
    #[pyo3(signature = (timeout = None))]
    fn chunk(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Option<Buffer>> {
        self.wait(py, timeout, FetchState::poll_piece).map(chunk)
    }

    /// Like `chunk`, but returns None if no chunk is available yet.
    fn poll_chunk(
        &self,
        py: Python<'_>,
        notifier: &Notifier,
        token: u64,
    ) -> PyResult<Option<(Option<Buffer>,)>> {
        let found = self.poll(py, notifier, token, FetchState::poll_piece)?;
        Ok(found.map(|(piece,)| (chunk(piece),)))
    }

    /// Waits for `count` bytes. Returns fewer only at the end.
    #[pyo3(signature = (count, timeout = None))]
    fn read<'py>(
        &self,
        py: Python<'py>,
        count: u64,
        timeout: Option<f64>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let poll =
            |flow: &mut FetchState, context: &mut Context<'_>| flow.poll_octets(context, count);
        self.wait(py, timeout, poll).map(|octets| PyBytes::new(py, &octets))
    }

    /// Waits for all remaining bytes.
    #[pyo3(signature = (timeout = None))]
    fn whole(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Buffer> {
        let poll =
            |flow: &mut FetchState, context: &mut Context<'_>| flow.poll_octets(context, u64::MAX);
        self.wait(py, timeout, poll).map(Buffer::of_vec)
    }

    /// Like `whole`, but returns None if they are not available yet.
    fn poll_whole(
        &self,
        py: Python<'_>,
        notifier: &Notifier,
        token: u64,
    ) -> PyResult<Option<(Buffer,)>> {
        let poll =
            |flow: &mut FetchState, context: &mut Context<'_>| flow.poll_octets(context, u64::MAX);
        let found = self.poll(py, notifier, token, poll)?;
        Ok(found.map(|(octets,)| (Buffer::of_vec(octets),)))
    }

    /// Whether everything read so far was verified, the number of skipped segments, and whether a
    /// signature covers the end, if it was reached.
    fn quality(&self, py: Python<'_>) -> PyResult<(bool, u64, bool)> {
        self.with(py, |FetchState { reader, .. }| {
            Ok((reader.is_verified(), reader.missed(), reader.is_end_signed()))
        })
    }

    /// Ends the fetch and all waits for it. Does nothing in a child of `fork`.
    fn close(&self, py: Python<'_>) {
        let Some(course) = self.course.get() else { return };
        course.is_closed.store(true, Ordering::Relaxed);
        let (flow, task) = (lock(&course.fetch).take(), lock(&course.task).take());
        if let Some(task) = task {
            task.wake();
        }
        py.detach(|| drop(flow));
    }
}
