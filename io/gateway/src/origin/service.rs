//! The table of resources. One task owns it, decides which requests the server gets, and starts a
//! task for each.

use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::num::NonZeroUsize;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::StatusCode;
use lru::LruCache;
use tokio::sync::{mpsc, watch};
use tokio::task::{self, JoinError, JoinSet};
use weir_base::Packet;
use weir_face::unix_time_ms;
use weir_socket::{Request, SocketError};
use weir_wire::{Name, NameView};

use super::ask::{Answer, Rest, ask};
use super::context::Context;
use super::find::{Known, Question};
use super::interest::{InterestNames, Wanted};
use super::response::{Body, Problem};
use super::slices::{SliceError, SliceReply, fetch_slice, stream_slices};
use super::upload::{Upload, UploadId, UploadStep, Uploads, failure};
use super::upstream::Target;
use super::version::Version;

/// Upper bound of resources whose state is known.
const RESOURCES_MAX: NonZeroUsize = NonZeroUsize::new(65_536).unwrap();
/// How long a signed packet of metadata answers further Interests, so that a burst is signed once.
const SIGNED_TIME: Duration = Duration::from_millis(100);
/// How long it is not asked whether a version that Interests name is the current one, after it has
/// named another one.
const VERSION_TIME: Duration = Duration::from_secs(1);
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
        /// Whether the server may have performed it.
        has_effect: bool,
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

/// What a task works for.
enum Work {
    /// A resource, by the name of its object.
    Resource(Name),
    Upload(UploadId),
}

/// A task that publishes the slices of a version in order.
struct Stream {
    version: u64,
    /// The slice that it publishes next.
    next: u64,
    /// The slice after its last one.
    end: u64,
    /// The highest slice that is wanted. It is closed when the task has ended.
    wanted: watch::Sender<u64>,
}

impl Stream {
    /// Whether it publishes this slice, unless it ends before.
    fn publishes(&self, version: u64, slice: u64) -> bool {
        self.version == version && (self.next..self.end).contains(&slice)
    }

    /// Lets it publish up to this slice.
    fn raise_demand(&self, slice: u64) {
        self.wanted.send_if_modified(|wanted| {
            let is_higher = slice > *wanted;
            *wanted = slice.max(*wanted);
            is_higher
        });
    }
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
    /// An upload has changed it while the server was being asked.
    is_outdated: bool,
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
            is_outdated: false,
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
        let fresh_ms = known.fresh_ms();
        if fresh_ms == 0 {
            return None;
        }
        let time = SIGNED_TIME.min(Duration::from_millis(fresh_ms));
        self.sign(&known, fresh_ms, time)
    }

    /// Whether the current version was confirmed a moment ago.
    fn is_recent(&self) -> bool {
        self.known.as_ref().is_some_and(|known| known.received.elapsed() < VERSION_TIME)
    }

    /// Forgets what an upload may have changed.
    fn forget(&mut self) {
        (self.known, self.signed) = (None, None);
        self.is_outdated = self.asking.is_some();
    }

    /// The Interests that wait for a slice of this version. They no longer do.
    fn take_waiting(&mut self, version: u64, is_taken: impl Fn(u64) -> bool) -> Vec<Request> {
        let keys = self.slices.keys().copied();
        let mut keys: Vec<_> =
            keys.filter(|&(number, slice)| number == version && is_taken(slice)).collect();
        keys.sort_unstable();
        keys.iter().filter_map(|key| self.slices.remove(key)).flatten().collect()
    }

    /// All Interests that wait. They no longer do.
    fn take_all_waiting(&mut self) -> Vec<Request> {
        self.stream = None;
        let slices = self.slices.drain().flat_map(|(_, waiting)| waiting);
        self.asking.take().into_iter().flatten().chain(slices).collect()
    }

    fn current(&self, version: u64) -> Option<Arc<Version>> {
        let known = self.known.as_ref()?;
        (known.version.number == version).then(|| known.version.clone())
    }
}

/// The task of an origin.
pub(super) struct Service {
    context: Arc<Context>,
    names: InterestNames,
    resources: LruCache<Name, Resource>,
    /// `None`: there are no uploads.
    uploads: Option<Uploads>,
    tasks: JoinSet<()>,
    /// What each task works for.
    work: HashMap<task::Id, Work>,
    events: mpsc::UnboundedReceiver<Event>,
    reporter: mpsc::UnboundedSender<Event>,
}

impl Service {
    pub(super) fn new(context: Arc<Context>, uploads: Option<Uploads>) -> Self {
        let (reporter, events) = mpsc::unbounded_channel();
        let resources = LruCache::new(RESOURCES_MAX);
        let (tasks, work) = (JoinSet::new(), HashMap::new());
        let names = InterestNames::new(context.config.mapping);
        Self { context, names, resources, uploads, tasks, work, events, reporter }
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
                Some(ended) = self.tasks.join_next_with_id() => self.on_task_end(ended),
            }
        }
    }

    fn start(&mut self, work: Work, task: impl Future<Output = ()> + Send + 'static) {
        let id = self.tasks.spawn(task).id();
        self.work.insert(id, work);
    }

    /// A task that has panicked reports nothing, so its Interests must not wait for it.
    fn on_task_end(&mut self, ended: Result<(task::Id, ()), JoinError>) {
        let error = match ended {
            Ok((id, ())) => {
                self.work.remove(&id);
                return;
            }
            Err(error) => error,
        };
        tracing::error!(%error, "a task of the origin has failed; please report this");
        match self.work.remove(&error.id()) {
            Some(Work::Resource(object)) => {
                let resource = self.resources.get_mut(&object);
                let waiting = resource.map(Resource::take_all_waiting);
                self.refuse(waiting.unwrap_or_default());
            }
            Some(Work::Upload(id)) => {
                let reason = "The gateway has failed. The server may have performed the request.";
                let problem = Problem::new(StatusCode::INTERNAL_SERVER_ERROR, reason);
                self.on_uploaded(id, failure(&problem), true);
            }
            None => {}
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
        let Some((object, wanted)) = self.names.find(&request) else {
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
            Wanted::Part { version, part } => {
                let current = resource.current(version);
                (version, current.map(|it| (it.object.slice_of_part(part), it)))
            }
        };
        match slice {
            // It is being published.
            Some((Some(slice), _)) if resource.slices.contains_key(&(version, slice)) => {
                resource.slices.entry((version, slice)).or_default().push(request);
                if let Some(stream) = resource.stream_of(version, slice) {
                    stream.raise_demand(slice);
                }
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
        self.start(Work::Upload(upload.id.clone()), async move {
            let (answer, has_effect) = upload.perform(&context, &consumer).await;
            let _ = reporter.send(Event::Uploaded { id: upload.id, answer, has_effect });
        });
    }

    fn on_uploaded(&mut self, id: UploadId, answer: Vec<u8>, has_effect: bool) {
        if has_effect {
            self.forget(id.object().as_view());
        }
        let waiting = self.uploads.as_mut().map(|it| it.end(id, answer.clone()));
        for request in waiting.unwrap_or_default() {
            self.context.answer(&request, &answer);
        }
    }

    /// Forgets an object that an upload has changed, its variants, and the folder that lists it
    /// (RFC 9111, section 4.4).
    fn forget(&mut self, object: NameView<'_>) {
        let folder = folder_of(object);
        for (name, resource) in &mut self.resources {
            if object.is_prefix_of(name.as_view()) || *name == folder {
                resource.forget();
            }
        }
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
        self.start(Work::Resource(object.clone()), async move {
            let (answer, rest) = ask(&context, &mut question).await;
            let Question { object, has_false_validators, .. } = question;
            let asked = Event::Asked { object: object.clone(), answer, has_false_validators };
            let Some(Rest { version, slices, body }) = rest else {
                let _ = reporter.send(asked);
                return;
            };
            let job = SliceJob { object, version, slice: slices.start, reporter };
            // The stream first, so that waiting Interests find it.
            let wanted = job.begin_stream(slices.end);
            let _ = job.reporter.send(asked);
            let result = job.stream(&context, body, slices, wanted).await;
            job.end(result);
        });
    }

    /// Requests a slice, unless a task will bring it.
    fn fetch(&mut self, object: &Name, version: &Arc<Version>, slice: u64, request: Request) {
        let Some(resource) = self.resources.get_mut(object) else { return };
        // Without ranges, each request brings everything. Those that wait for this one are served
        // by its stream, or when it has ended.
        let is_requested = !version.has_ranges()
            && resource.slices.keys().any(|(number, _)| *number == version.number);
        resource.slices.entry((version.number, slice)).or_default().push(request);
        if let Some(stream) = resource.stream_of(version.number, slice) {
            return stream.raise_demand(slice);
        }
        if is_requested {
            return;
        }
        let (context, target) = (self.context.clone(), resource.target.clone());
        let (work, reporter) = (Work::Resource(object.clone()), self.reporter.clone());
        let job = SliceJob { object: object.clone(), version: version.clone(), slice, reporter };
        self.start(work, async move {
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
                    resource.begin_stream(stream);
                }
            }
            Event::Slice { object, version, slice } => {
                if let Some(resource) = self.resources.get_mut(&object) {
                    resource.on_slice(version, slice);
                }
            }
            Event::Uploaded { id, answer, has_effect } => self.on_uploaded(id, answer, has_effect),
            Event::Ended { object, version, slice, result } => {
                self.on_ended(&object, (version, slice), result);
            }
        }
    }

    /// The server has answered, so that waiting Interests can be answered, too.
    fn on_answer(&mut self, object: &Name, answer: Answer) {
        let Some(resource) = self.resources.get_mut(object) else { return };
        let waiting = resource.asking.take().unwrap_or_default();
        let is_outdated = std::mem::take(&mut resource.is_outdated);
        let packet = match answer {
            Answer::Current(mut known) => {
                if is_outdated {
                    known.head.lifetime_ms = 0;
                }
                let fresh_ms = known.fresh_ms();
                let time = SIGNED_TIME.min(Duration::from_millis(fresh_ms));
                let version = &known.version;
                self.names.add(object, version.object.versioned(), version.number);
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
        if is_outdated {
            resource.signed = None;
        }
        match packet {
            Some(packet) => self.answer(packet),
            None => return self.refuse(waiting),
        }
        for request in waiting {
            match self.names.find(&request) {
                // The packet has answered it.
                Some((_, Wanted::Metadata)) | None => {}
                Some((_, wanted)) => self.on_wanted(object, wanted, request, false),
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
        let has_ended = |it: &mut Stream| it.version == version && it.wanted.is_closed();
        let ended = resource.stream.take_if(has_ended);
        let has_ranges = resource.current(version).is_some_and(|it| it.has_ranges());
        // Without ranges, all wait for one task.
        let is_last =
            !has_ranges && resource.stream.as_ref().is_none_or(|it| it.version != version);
        let left = resource.take_waiting(version, |at| {
            let was_promised = ended.as_ref().is_some_and(|it| it.publishes(version, at));
            at == slice || was_promised || is_last
        });
        match result {
            Ok(()) => {
                for request in left {
                    self.on_request(request);
                }
            }
            Err(error) => {
                match &error {
                    SliceError::Changed => tracing::debug!(%object, "the content has changed"),
                    SliceError::Problem(problem) => problem.log(&resource.target.url),
                }
                resource.on_slice_error(version, &error);
                self.refuse(left);
            }
        }
    }
}

impl Resource {
    /// The stream that publishes a slice, unless it ends before.
    fn stream_of(&self, version: u64, slice: u64) -> Option<&Stream> {
        self.stream.as_ref().filter(|stream| stream.publishes(version, slice))
    }

    /// A stream has begun. If another one covers what it publishes, it is dropped, and so ends.
    fn begin_stream(&mut self, stream: Stream) {
        let other = self.stream_of(stream.version, stream.next);
        let is_covered = other.is_some_and(|other| !other.wanted.is_closed());
        // A closed one has ended already.
        if !is_covered && !stream.wanted.is_closed() {
            self.stream = Some(stream);
        }
        let Some(stream) = &self.stream else { return };
        let waiting = self.slices.keys().filter(|key| stream.publishes(key.0, key.1));
        if let Some(highest) = waiting.map(|(_, slice)| *slice).max() {
            stream.raise_demand(highest);
        }
    }

    /// A slice was published.
    fn on_slice(&mut self, version: u64, slice: u64) {
        self.slices.remove(&(version, slice));
        let stream = self.stream.as_mut().filter(|it| it.publishes(version, slice));
        let Some(stream) = stream else { return };
        stream.next = slice + 1;
        // Those that wait for slices before it wait for its end.
        let mut waiting = self.slices.keys().filter(|key| key.0 == version).peekable();
        if waiting.peek().is_some() && waiting.all(|key| key.1 < stream.next) {
            self.stream = None;
        }
    }

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

/// The folder that lists an object: its path up to the last segment.
fn folder_of(object: NameView<'_>) -> Name {
    let mut path = object;
    while path.last().is_some_and(|last| !last.is_generic() || last.value.is_empty()) {
        path = path.parent();
    }
    path.parent().to_name().append_generic(b"").clone()
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
                let wanted = self.begin_stream(slices.end);
                self.stream(context, body, slices, wanted).await
            }
        }
    }

    /// Reports a stream of the slices from this one to `end`. Returns the highest wanted one.
    fn begin_stream(&self, end: u64) -> watch::Receiver<u64> {
        let (sender, wanted) = watch::channel(self.slice);
        let (version, next) = (self.version.number, self.slice);
        let stream = Stream { version, next, end, wanted: sender };
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

#[cfg(test)]
mod tests {
    use weir_face::FaceUri;
    use weir_io_fixture::router::TestRouter;
    use weir_security::DigestSigner;
    use weir_socket::{Identity, Producer, PublishOptions, Session};

    use super::super::upstream::Upstream;
    use super::*;
    use crate::config::OriginConfig;

    fn service(router: &TestRouter) -> Service {
        let session = Session::connect(&FaceUri::Unix(router.path.clone())).unwrap();
        let identity = Identity::new(DigestSigner);
        let config = OriginConfig::new("/p".parse().unwrap(), "http://127.0.0.1:1".into());
        let producer = Producer::bind(&session, config.prefix.clone(), identity.clone()).unwrap();
        let (upstream, options) = (Upstream::new(&config).unwrap(), PublishOptions::default());
        let context = Context::new(upstream, producer, identity, options, config);
        Service::new(Arc::new(context), None)
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn nothing_waits_for_a_task_that_panics() {
        let router = TestRouter::start();
        let mut service = tokio::task::block_in_place(|| service(&router));
        let object: Name = "/p/a".parse().unwrap();
        let target = service.context.upstream.target(object.as_view()).unwrap();
        let mut resource = Resource::new(target);
        resource.asking = Some(Vec::new());
        resource.slices.insert((1, 1), Vec::new());
        service.resources.put(object.clone(), resource);
        service.start(Work::Resource(object.clone()), async { panic!("as this test needs it") });
        let ended = service.tasks.join_next_with_id().await.unwrap();
        service.on_task_end(ended);
        let resource = service.resources.peek(&object).unwrap();
        assert!(resource.asking.is_none() && resource.slices.is_empty());
        assert!(service.work.is_empty());
    }

    #[test]
    fn folder_precedes_last_segment() {
        for (object, folder) in [
            ("/p/a/b", "/p/a/..."),
            ("/p/a/...", "/p/..."),
            ("/p/a/32=%3Fx=1", "/p/..."),
            ("/p/...", "/..."),
        ] {
            let name: Name = object.parse().unwrap();
            assert_eq!(folder_of(name.as_view()).to_string(), folder, "{object}");
        }
    }
}
