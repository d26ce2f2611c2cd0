//! The table of resources. One task owns it, decides which requests the server gets, and starts a
//! task for each.

use std::collections::HashMap;
use std::future::poll_fn;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lru::LruCache;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use weir_base::Packet;
use weir_face::unix_time_ms;
use weir_socket::{Request, SocketError};
use weir_wire::{InterestView, Name};

use super::ask::{Answer, Rest, ask};
use super::context::Context;
use super::find::{Known, Question};
use super::interest::{Wanted, wanted};
use super::response::Body;
use super::slices::{SliceError, SliceReply, fetch_slice, stream_slices};
use super::upload::{Upload, UploadId, UploadStep, Uploads};
use super::upstream::Target;
use super::version::Version;

/// Upper bound of resources whose state is known.
const RESOURCES_MAX: NonZeroUsize = NonZeroUsize::new(65_536).unwrap();
/// How long a signed packet of metadata answers further Interests, so that a burst is signed once.
const SIGNED_TIME: Duration = Duration::from_millis(100);
/// How long it is not asked whether a version that Interests name is the current one, after it has
/// named another one.
const VERSION_TIME_MS: u64 = 1000;
/// How long the server is not asked again after it failed.
const RETRY_WAIT: Duration = Duration::from_secs(1);

/// What a task reports.
enum Event {
    Asked {
        object: Name,
        answer: Answer,
        has_false_validators: bool,
    },
    /// A body is being received.
    Streaming {
        object: Name,
        stream: Stream,
    },
    /// A slice was published.
    Slice {
        object: Name,
        version: u64,
        slice: u64,
    },
    Uploaded {
        id: UploadId,
        answer: Vec<u8>,
    },
    /// A request for a slice has ended. Those who wait for it and did not get it ask again, or are
    /// refused.
    Ended {
        object: Name,
        version: u64,
        slice: u64,
        result: Result<(), SliceError>,
    },
}

/// A task that publishes the slices of a version in order.
struct Stream {
    version: u64,
    /// The slice that it publishes next.
    next: u64,
    /// The highest slice that is wanted.
    wanted: watch::Sender<u64>,
}

/// Metadata that answer further Interests until `until`.
struct Signed {
    packet: Packet,
    until: Instant,
}

/// What is known about a resource.
struct Resource {
    target: Arc<Target>,
    known: Option<Known>,
    has_false_validators: bool,
    /// The Interests that wait for the server's answer, while it is being asked.
    asking: Option<Vec<Request>>,
    /// The Interests that wait for slices: version and slice.
    slices: HashMap<(u64, u64), Vec<Request>>,
    stream: Option<Stream>,
    signed: Option<Signed>,
    /// The number of the latest metadata.
    last_number: u64,
}

impl Resource {
    fn new(target: Target) -> Self {
        Self {
            target: Arc::new(target),
            known: None,
            has_false_validators: false,
            asking: None,
            slices: HashMap::new(),
            stream: None,
            signed: None,
            last_number: 0,
        }
    }

    /// Signs metadata, which answer until `until`.
    fn sign(&mut self, known: &Known, freshness_ms: u64, time: Duration) -> Option<Packet> {
        self.last_number = unix_time_ms().max(self.last_number + 1);
        let object = &known.version.object;
        let head = Some(known.head.encode());
        let signed = object.sign_metadata(self.last_number, freshness_ms, head);
        let signed = signed.inspect_err(|error| tracing::warn!(%error, "metadata not signed"));
        let packet = signed.ok()?;
        self.signed = Some(Signed { packet: packet.clone(), until: Instant::now() + time });
        Some(packet)
    }

    /// The metadata that may be sent now without asking the server.
    fn fresh_metadata(&mut self) -> Option<Packet> {
        if let Some(signed) = self.signed.as_ref().filter(|it| Instant::now() < it.until) {
            return Some(signed.packet.clone());
        }
        let known = self.known.clone()?;
        let fresh_ms = known.head.fresh_ms(unix_time_ms());
        if fresh_ms == 0 {
            return None;
        }
        let time = SIGNED_TIME.min(Duration::from_millis(fresh_ms));
        self.sign(&known, fresh_ms, time)
    }

    /// Whether the current version was confirmed a moment ago.
    fn is_recent(&self) -> bool {
        let confirmed = self.known.as_ref().map(|known| known.head.received_ms);
        confirmed.is_some_and(|at| unix_time_ms() < at.saturating_add(VERSION_TIME_MS))
    }

    fn current(&self, version: u64) -> Option<Arc<Version>> {
        let known = self.known.as_ref()?;
        (known.version.number == version).then(|| known.version.clone())
    }
}

/// The task of an origin.
pub(super) struct Service {
    context: Arc<Context>,
    resources: LruCache<Name, Resource>,
    /// `None`: there are no uploads.
    uploads: Option<Uploads>,
    tasks: JoinSet<()>,
    events: mpsc::UnboundedReceiver<Event>,
    reporter: mpsc::UnboundedSender<Event>,
}

impl Service {
    pub(super) fn new(context: Arc<Context>, uploads: Option<Uploads>) -> Self {
        let (reporter, events) = mpsc::unbounded_channel();
        let resources = LruCache::new(RESOURCES_MAX);
        Self { context, resources, uploads, tasks: JoinSet::new(), events, reporter }
    }

    /// Answers until the session ends.
    pub(super) async fn run(mut self) {
        let context = self.context.clone();
        loop {
            // Requests first: those that were received before a slice was published are then
            // handled before its event.
            tokio::select! {
                biased;
                request = poll_fn(|task| context.producer.poll_recv(task)) => match request {
                    Ok(request) => self.on_request(request),
                    Err(SocketError::Closed) => return,
                    Err(error) => tracing::warn!(%error, "no request received"),
                },
                Some(event) = self.events.recv() => self.on_event(event),
                Some(_) = self.tasks.join_next() => {}
            }
        }
    }

    fn refuse(&self, requests: impl IntoIterator<Item = Request>) {
        for request in requests {
            // If the session has ended, no Interest waits.
            let _ = self.context.producer.refuse(&request);
        }
    }

    fn answer(&self, packet: Packet) {
        if let Err(error) = self.context.producer.answer_waiting(packet) {
            tracing::warn!(%error, "metadata not sent");
        }
    }

    fn on_request(&mut self, request: Request) {
        if request.parameters().is_some() {
            return self.on_upload(request);
        }
        let object = request.name().clone();
        let own = object.as_view().component_count();
        let interest = InterestView::decode(request.interest()).ok();
        let Some(wanted) = interest.and_then(|interest| wanted(interest.name, own)) else {
            return self.refuse([request]);
        };
        if self.resources.get(&object).is_none() {
            let Some(target) = self.context.upstream.target(object.as_view()) else {
                return self.refuse([request]);
            };
            self.resources.put(object.clone(), Resource::new(target));
        }
        self.on_wanted(&object, wanted, request, true);
    }

    /// Answers a request, or lets it wait. `may_ask`: the server may be asked which version is the
    /// current one.
    fn on_wanted(&mut self, object: &Name, wanted: Wanted, request: Request, may_ask: bool) {
        let Some(resource) = self.resources.get_mut(object) else { return self.refuse([request]) };
        let (version, slice) = match wanted {
            Wanted::Metadata => {
                return match resource.fresh_metadata() {
                    Some(packet) => self.answer(packet),
                    None => self.ask(object, request),
                };
            }
            Wanted::Segment { version, segment } => {
                let current = resource.current(version);
                (version, current.map(|it| (it.object.slice_of_segment(segment), it)))
            }
            Wanted::Part { version, slice } => {
                let current = resource.current(version);
                let slice = |it: &Version| (slice < it.object.slices()).then_some(slice);
                (version, current.map(|it| (slice(&it), it)))
            }
        };
        match slice {
            // It is being published.
            Some((Some(slice), _)) if resource.slices.contains_key(&(version, slice)) => {
                resource.slices.entry((version, slice)).or_default().push(request);
                raise_demand(resource, version, slice);
            }
            // Its content can only be requested as a whole.
            Some((Some(_), current)) if !current.validator.exists() => match may_ask {
                true => self.ask(object, request),
                false => self.refuse([request]),
            },
            Some((Some(slice), current)) => self.fetch(object, &current, slice, request),
            Some((None, _)) => self.refuse([request]),
            None if may_ask && !resource.is_recent() => self.ask(object, request),
            None => self.refuse([request]),
        }
    }

    fn on_upload(&mut self, request: Request) {
        let upload = Upload::of(&self.context, &request);
        let (Some(upload), Some(uploads)) = (upload, &mut self.uploads) else {
            return self.refuse([request]);
        };
        match uploads.add(&upload.id, &request) {
            UploadStep::Start => {}
            UploadStep::Wait => return,
            UploadStep::Answer(answer) => return self.context.answer(&request, &answer),
            UploadStep::Busy => return self.refuse([request]),
        }
        let (context, reporter) = (self.context.clone(), self.reporter.clone());
        let consumer = uploads.consumer.clone();
        self.tasks.spawn(async move {
            let answer = upload.perform(&context, &consumer).await;
            let _ = reporter.send(Event::Uploaded { id: upload.id, answer });
        });
    }

    /// Asks the server, unless that is already happening.
    fn ask(&mut self, object: &Name, request: Request) {
        let Some(resource) = self.resources.get_mut(object) else { return };
        if let Some(waiting) = &mut resource.asking {
            waiting.push(request);
            return;
        }
        resource.asking = Some(vec![request]);
        let mut question = Question {
            object: object.clone(),
            target: resource.target.clone(),
            known: resource.known.clone(),
            has_false_validators: resource.has_false_validators,
        };
        let (context, reporter) = (self.context.clone(), self.reporter.clone());
        self.tasks.spawn(async move {
            let (answer, rest) = ask(&context, &mut question).await;
            let Question { object, has_false_validators, .. } = question;
            let asked = Event::Asked { object: object.clone(), answer, has_false_validators };
            let Some(Rest { version, slices, body }) = rest else {
                let _ = reporter.send(asked);
                return;
            };
            let job = SliceJob { object, version, slice: slices.start, reporter };
            // The stream first, so that waiting Interests find it.
            let wanted = job.begin_stream();
            let _ = job.reporter.send(asked);
            let result = job.stream(&context, body, slices, wanted).await;
            job.end(result);
        });
    }

    /// Requests a slice.
    fn fetch(&mut self, object: &Name, version: &Arc<Version>, slice: u64, request: Request) {
        let Some(resource) = self.resources.get_mut(object) else { return };
        resource.slices.entry((version.number, slice)).or_default().push(request);
        if raise_demand(resource, version.number, slice) {
            return;
        }
        let (context, target) = (self.context.clone(), resource.target.clone());
        let (object, reporter) = (object.clone(), self.reporter.clone());
        let job = SliceJob { object, version: version.clone(), slice, reporter };
        self.tasks.spawn(async move {
            let result = job.run(&context, &target).await;
            job.end(result);
        });
    }

    fn on_event(&mut self, event: Event) {
        match event {
            Event::Asked { object, answer, has_false_validators } => {
                if let Some(resource) = self.resources.get_mut(&object) {
                    resource.has_false_validators = has_false_validators;
                }
                self.on_answer(&object, answer);
            }
            Event::Streaming { object, stream } => {
                if let Some(resource) = self.resources.get_mut(&object) {
                    let is_wanted = |((version, slice), _): ((u64, u64), _)| {
                        (version == stream.version && slice >= stream.next).then_some(slice)
                    };
                    let slices = resource.slices.iter().map(|(key, waiting)| (*key, waiting));
                    if let Some(highest) = slices.filter_map(is_wanted).max() {
                        stream.wanted.send_replace(highest);
                    }
                    resource.stream = Some(stream);
                }
            }
            Event::Slice { object, version, slice } => {
                if let Some(resource) = self.resources.get_mut(&object) {
                    resource.slices.remove(&(version, slice));
                    if let Some(stream) = &mut resource.stream
                        && stream.version == version
                    {
                        stream.next = stream.next.max(slice + 1);
                    }
                }
            }
            Event::Uploaded { id, answer } => {
                let waiting = self.uploads.as_mut().map(|it| it.end(id, answer.clone()));
                for request in waiting.unwrap_or_default() {
                    self.context.answer(&request, &answer);
                }
            }
            Event::Ended { object, version, slice, result } => {
                self.on_ended(&object, (version, slice), result);
            }
        }
    }

    /// The server has answered, so that waiting Interests can be answered, too.
    fn on_answer(&mut self, object: &Name, answer: Answer) {
        let Some(resource) = self.resources.get_mut(object) else { return };
        let waiting = resource.asking.take().unwrap_or_default();
        let packet = match answer {
            Answer::Current(known) => {
                let fresh_ms = known.head.fresh_ms(unix_time_ms());
                let time = SIGNED_TIME.min(Duration::from_millis(fresh_ms));
                resource.known = Some(known.clone());
                resource.sign(&known, fresh_ms, time)
            }
            Answer::Stale => {
                self.context.count(|counters| &counters.stale);
                let known = resource.known.clone();
                known.and_then(|known| resource.sign(&known, 0, RETRY_WAIT))
            }
            Answer::Failed(known) => resource.sign(&known, 0, RETRY_WAIT),
        };
        match packet {
            Some(packet) => self.answer(packet),
            None => return self.refuse(waiting),
        }
        for request in waiting {
            let own = object.as_view().component_count();
            let interest = InterestView::decode(request.interest()).ok();
            match interest.and_then(|interest| wanted(interest.name, own)) {
                // The packet has answered it.
                Some(Wanted::Metadata) | None => {}
                Some(wanted) => self.on_wanted(object, wanted, request, false),
            }
        }
    }

    /// A request for slices from `slice` on has ended.
    fn on_ended(
        &mut self,
        object: &Name,
        (version, slice): (u64, u64),
        result: Result<(), SliceError>,
    ) {
        let Some(resource) = self.resources.get_mut(object) else { return };
        let was_stream = resource.stream.as_ref().is_some_and(|it| it.version == version);
        if was_stream {
            resource.stream = None;
        }
        let is_left =
            |key: &(u64, u64)| key.0 == version && (key.1 == slice || was_stream && key.1 >= slice);
        let keys: Vec<_> = resource.slices.keys().copied().filter(is_left).collect();
        let left = keys.iter().filter_map(|key| resource.slices.remove(key)).flatten();
        let left: Vec<Request> = left.collect();
        match result {
            Ok(()) => {
                for request in left {
                    self.on_request(request);
                }
            }
            Err(error) => {
                tracing::debug!(%object, ?error, "no slice");
                resource.on_slice_error(version, &error);
                self.refuse(left);
            }
        }
    }
}

impl Resource {
    /// The version may no longer exist, so the server is asked at the next occasion.
    fn on_slice_error(&mut self, version: u64, error: &SliceError) {
        let is_false = matches!(error, SliceError::Problem(problem) if problem.is_false_validator);
        let has_changed = is_false || matches!(error, SliceError::Changed);
        self.has_false_validators |= is_false;
        if let Some(known) = &mut self.known
            && known.version.number == version
            && has_changed
        {
            known.head.lifetime_ms = 0;
            self.signed = None;
        }
    }
}

/// Lets a stream that has not reached this slice publish it. Returns whether there is one.
fn raise_demand(resource: &Resource, version: u64, slice: u64) -> bool {
    match &resource.stream {
        Some(stream) if stream.version == version && stream.next <= slice => {
            stream.wanted.send_if_modified(|wanted| {
                let is_higher = slice > *wanted;
                *wanted = slice.max(*wanted);
                is_higher
            });
            true
        }
        _ => false,
    }
}

/// A request for a slice, and perhaps for later ones.
struct SliceJob {
    object: Name,
    version: Arc<Version>,
    slice: u64,
    reporter: mpsc::UnboundedSender<Event>,
}

impl SliceJob {
    async fn run(&self, context: &Context, target: &Target) -> Result<(), SliceError> {
        match fetch_slice(context, target, &self.version, self.slice).await? {
            SliceReply::Published => {
                self.report(self.slice);
                Ok(())
            }
            SliceReply::Whole(body) => {
                let slices = 0..self.version.object.slices();
                self.stream(context, body, slices, self.begin_stream()).await
            }
        }
    }

    /// Reports a stream from this slice on. Returns the slices that are wanted from it.
    fn begin_stream(&self) -> watch::Receiver<u64> {
        let (sender, wanted) = watch::channel(self.slice);
        let stream = Stream { version: self.version.number, next: self.slice, wanted: sender };
        let _ = self.reporter.send(Event::Streaming { object: self.object.clone(), stream });
        wanted
    }

    /// Publishes a body that has these slices, from the slice of the job on.
    async fn stream(
        &self,
        context: &Context,
        body: Body,
        slices: Range<u64>,
        wanted: watch::Receiver<u64>,
    ) -> Result<(), SliceError> {
        let slices = (slices, self.slice);
        stream_slices(context, &self.version, body, slices, wanted, |at| self.report(at)).await
    }

    fn report(&self, slice: u64) {
        let (object, version) = (self.object.clone(), self.version.number);
        let _ = self.reporter.send(Event::Slice { object, version, slice });
    }

    fn end(self, result: Result<(), SliceError>) {
        let Self { object, version, slice, reporter } = self;
        let _ = reporter.send(Event::Ended { object, version: version.number, slice, result });
    }
}
