//! Sessions: the threads that drive a program's sockets, connected to a router.
//!
//! A router never sends an Interest back to the face that it came from. Consumers must nevertheless
//! reach producers of the same session. So consumers and producers have separate connections and
//! threads. The producers' connection starts with the first producer.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, unbounded};
use weir_base::Instant;
use weir_client::{Client, EndpointId, EndpointWaker, EventLoop, Waker, packet_bytes_max};
use weir_face::{FaceUri, client_transport};
use weir_wire::Name;

use super::SocketError;
use super::express::{ExpressEndpoint, ExpressRequest};
use super::fetches::{Fetch, Fetches};
use super::output_disk::{ClosingDisks, OutputDisk};
use super::pending::{Completer, Pending, pending};
use super::producer_endpoint::ProducerEndpoint;
use super::registrations::{Registration, Registrations};
use crate::fetch::{DownloadOptions, Downloads};
use crate::publish::sign_pool::{SignPool, SignPoolHandle};

/// Upper bound of concurrent fetches in a session.
const FETCHES_MAX: usize = 1 << 17;

#[derive(Clone, Debug)]
pub struct SessionConfig {
    /// The router; `None`: the one that `weir get` would find.
    pub router: Option<FaceUri>,
    /// Threads that verify; 0: one per processor, at most 8.
    pub threads: usize,
    /// How long fetches wait for an unreachable router.
    pub router_wait: Duration,
    /// Asks a router on this machine to report where Data comes from, for
    /// [`Reader::is_from_local_store`](super::Reader::is_from_local_store).
    pub reports_sources: bool,
}

impl Default for SessionConfig {
    fn default() -> Self {
        let router_wait = Duration::from_secs(60);
        Self { router: None, threads: 0, router_wait, reports_sources: false }
    }
}

/// The sockets' connections to a router, and their threads. Cheap to clone; thousands of sockets
/// share one. It ends with its last socket and clone.
///
/// When a router restarts, the session registers its prefixes again and repeats its Interests. If
/// the router stays unreachable, fetches fail in the end.
#[derive(Clone)]
pub struct Session(Arc<SessionShared>);

/// A reference that does not keep a session alive.
#[derive(Clone)]
pub struct WeakSession(Weak<SessionShared>);

impl WeakSession {
    /// The session, unless it has ended.
    pub fn upgrade(&self) -> Option<Session> {
        self.0.upgrade().map(Session)
    }

    pub fn has_ended(&self) -> bool {
        self.0.strong_count() == 0
    }
}

struct SessionShared {
    router: FaceUri,
    consumers: ConsumerSide,
    producers: Mutex<Option<ProducerSide>>,
    signing: SignPool,
    /// TLV-VALUEs of the prefixes of producers.
    bound_prefixes: Mutex<BTreeSet<Vec<u8>>>,
}

impl Session {
    /// Connects to the router that `weir get` would find: the one in NDN_CLIENT_TRANSPORT or
    /// client.conf, else the one on this host.
    ///
    /// # Errors
    /// [`SocketError::NoRouter`].
    pub fn open() -> Result<Self, SocketError> {
        Self::with(SessionConfig::default())
    }

    /// Connects to a router.
    ///
    /// # Errors
    /// [`SocketError::NoRouter`].
    pub fn connect(router: &FaceUri) -> Result<Self, SocketError> {
        Self::with(SessionConfig { router: Some(router.clone()), ..SessionConfig::default() })
    }

    /// Connects with this configuration.
    ///
    /// # Errors
    /// [`SocketError::NoRouter`].
    pub fn with(config: SessionConfig) -> Result<Self, SocketError> {
        let router = match &config.router {
            Some(router) => router.clone(),
            None => client_transport()
                .map(|choice| choice.uri)
                .map_err(|error| SocketError::NoRouter(error.to_string()))?,
        };
        let consumers = ConsumerSide::start(&router, &config)?;
        let (producers, bound) = (Mutex::default(), Mutex::default());
        let signing = SignPool::default();
        Ok(Self(Arc::new(SessionShared {
            router,
            consumers,
            producers,
            signing,
            bound_prefixes: bound,
        })))
    }

    /// A reference that does not keep the session alive.
    pub fn downgrade(&self) -> WeakSession {
        WeakSession(Arc::downgrade(&self.0))
    }

    pub fn router(&self) -> &FaceUri {
        &self.0.router
    }

    /// Bytes of the longest packet that can be sent to the router.
    pub fn packet_bytes_max(&self) -> usize {
        packet_bytes_max(&self.0.router)
    }

    pub(super) fn fetch(&self, fetch: Fetch) {
        // If the thread is gone, the fetch ends as closed.
        let _ = self.0.consumers.fetches.send(fetch);
        self.0.consumers.thread.wake();
    }

    pub(super) fn express(&self, expressed: ExpressRequest) {
        let _ = self.0.consumers.express_requests.send(expressed);
        self.0.consumers.thread.wake();
    }

    fn bound(&self) -> MutexGuard<'_, BTreeSet<Vec<u8>>> {
        self.0.bound_prefixes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Connects for producers now, instead of with the first producer. Waits for the router.
    ///
    /// # Errors
    /// [`SocketError::NoRouter`].
    pub fn connect_producers(&self) -> Result<(), SocketError> {
        self.with_producers().map(drop)
    }

    fn with_producers(&self) -> Result<MutexGuard<'_, Option<ProducerSide>>, SocketError> {
        let mut producers = self.0.producers.lock().unwrap_or_else(PoisonError::into_inner);
        if producers.is_none() {
            *producers = Some(ProducerSide::start(&self.0.router)?);
        }
        Ok(producers)
    }

    /// A handle to signing threads, at least `count` of them.
    pub(super) fn signers(&self, count: usize) -> Result<SignPoolHandle, SocketError> {
        Ok(self.0.signing.signers(count)?)
    }

    /// Reserves a prefix for one producer. Returns whether it was free.
    pub(super) fn reserve(&self, prefix: &Name) -> bool {
        self.bound().insert(prefix.value().to_vec())
    }

    /// Lets `endpoint` answer Interests below `prefix`, and registers the prefix at the router.
    /// Returns the waker for the endpoint's commands.
    pub(super) fn serve(
        &self,
        prefix: &Name,
        endpoint: ProducerEndpoint,
    ) -> Result<(EndpointWaker, Pending<()>), SocketError> {
        let producers = self.with_producers()?;
        let side = producers.as_ref().expect("it runs");
        let (id, registered) = side.add(prefix, endpoint);
        let waker = side.thread.waker.clone();
        drop(producers);
        // Waits at most for one turn of the thread.
        Ok((waker.endpoint(id.wait()?), registered))
    }

    pub(super) fn release_prefix(&self, prefix: &Name, id: Option<EndpointId>) {
        if let Some(id) = id {
            let producers = self.0.producers.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(side) = &*producers {
                side.remove(prefix, id);
            }
        }
        self.bound().remove(prefix.value());
    }
}

/// A thread that is stopped and joined on drop.
struct NetworkThread {
    waker: Arc<Waker>,
    is_stopped: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl NetworkThread {
    /// Runs `body` with the client until it returns.
    fn start(
        name: &str,
        router: &FaceUri,
        body: impl FnOnce(&mut Client, &Arc<AtomicBool>) + Send + 'static,
    ) -> Result<Self, SocketError> {
        let mut client = Client::connect(router)?;
        client.retry_last_path();
        let (waker, is_stopped) = (client.waker(), Arc::new(AtomicBool::new(false)));
        let stop = is_stopped.clone();
        let thread = std::thread::Builder::new().name(name.into());
        let thread = Some(thread.spawn(move || body(&mut client, &stop))?);
        Ok(Self { waker, is_stopped, thread })
    }

    fn wake(&self) {
        // This fails only if the system is out of resources.
        let _ = self.waker.wake();
    }
}

impl Drop for NetworkThread {
    fn drop(&mut self) {
        self.is_stopped.store(true, Ordering::Relaxed);
        self.wake();
        // A trust or a task of the application may hold the last reference to the session that this
        // thread drives.
        let is_other =
            |thread: &JoinHandle<()>| thread.thread().id() != std::thread::current().id();
        if let Some(thread) = self.thread.take().filter(is_other) {
            // A panic in a thread has been printed already.
            let _ = thread.join();
        }
    }
}

/// Runs turns until the thread is stopped or a system call fails. `between` is called after each
/// turn, and returns when the next must end at the latest.
fn run(
    events: &mut EventLoop<'_>,
    is_stopped: &AtomicBool,
    mut between: impl FnMut(&mut EventLoop<'_>) -> Option<Instant>,
) {
    let mut until = None;
    while !is_stopped.load(Ordering::Relaxed) && events.run_once(until).is_ok() {
        until = between(events);
    }
}

struct ConsumerSide {
    fetches: Sender<Fetch>,
    express_requests: Sender<ExpressRequest>,
    thread: NetworkThread,
}

impl ConsumerSide {
    fn start(router: &FaceUri, config: &SessionConfig) -> Result<Self, SocketError> {
        let SessionConfig { threads, router_wait, reports_sources, .. } = *config;
        let defaults = DownloadOptions::default();
        let options = DownloadOptions {
            threads: if threads == 0 { defaults.threads } else { threads },
            // Each of them is bounded by its own buffer.
            concurrent_max: FETCHES_MAX,
            segments_max: u64::MAX,
            ..defaults
        };
        let (fetches, new_fetches) = unbounded();
        let (expressed, new_expressed) = unbounded();
        let thread = NetworkThread::start("consumers", router, move |client, is_stopped| {
            if reports_sources {
                // The next turn notices a lost connection.
                let _ = client.report_sources();
            }
            let fetches = Fetches::new(new_fetches, is_stopped.clone(), router_wait);
            // Without threads everything ends as closed.
            let _ = run_consumers(client, is_stopped, options, fetches, new_expressed);
        })?;
        Ok(Self { fetches, express_requests: expressed, thread })
    }
}

fn run_consumers(
    client: &mut Client,
    is_stopped: &AtomicBool,
    options: DownloadOptions,
    mut fetches: Fetches,
    expressed: Receiver<ExpressRequest>,
) -> Result<(), SocketError> {
    let downloads = Downloads::new(client, options, &mut fetches)?;
    let mut events = EventLoop::new(client);
    // Both get all Data, and recognize the answers to their own requests.
    let ids = [events.add(downloads), events.add(ExpressEndpoint::new(expressed))];
    ids.into_iter().for_each(|id| events.route_data(id, &Name::new()));
    run(&mut events, is_stopped, |_| None);
    Ok(())
}

/// Changes of the producers' thread.
enum ProducerChange {
    Add {
        prefix: Name,
        endpoint: Box<ProducerEndpoint>,
        added: Completer<EndpointId>,
        registered: Completer<()>,
    },
    Remove {
        prefix: Name,
        id: EndpointId,
    },
}

struct ProducerSide {
    changes: Sender<ProducerChange>,
    thread: NetworkThread,
}

impl ProducerSide {
    fn start(router: &FaceUri) -> Result<Self, SocketError> {
        let (changes, new_changes) = unbounded();
        let thread = NetworkThread::start("producers", router, move |client, is_stopped| {
            run_producers(client, is_stopped, &new_changes);
        })?;
        Ok(Self { changes, thread })
    }

    fn add(&self, prefix: &Name, endpoint: ProducerEndpoint) -> (Pending<EndpointId>, Pending<()>) {
        let (added, id) = pending();
        let (registered, registration) = pending();
        let (prefix, endpoint) = (prefix.clone(), Box::new(endpoint));
        // If the thread is gone, both end as closed.
        let _ = self.changes.send(ProducerChange::Add { prefix, endpoint, added, registered });
        self.thread.wake();
        (id, registration)
    }

    fn remove(&self, prefix: &Name, id: EndpointId) {
        let _ = self.changes.send(ProducerChange::Remove { prefix: prefix.clone(), id });
        self.thread.wake();
    }
}

fn run_producers(client: &mut Client, is_stopped: &AtomicBool, changes: &Receiver<ProducerChange>) {
    let waker = client.waker();
    let (register, registrations) = unbounded();
    let (closing, closed) = unbounded();
    let mut disks = ClosingDisks::default();
    let mut events = EventLoop::new(client);
    let id = events.add(Registrations::new(registrations));
    events.route_registrations(id);
    let apply = |events: &mut EventLoop<'_>| {
        for change in changes.try_iter() {
            let registration = match change {
                ProducerChange::Add { prefix, mut endpoint, added, registered } => {
                    endpoint.close_disk_by(closing.clone());
                    let id = match events.add_with_sources(*endpoint, ProducerEndpoint::sources) {
                        Ok(id) => id,
                        Err(error) => {
                            added.complete(Err(error.into()));
                            continue;
                        }
                    };
                    events.route_interests(id, &prefix);
                    added.complete(Ok(id));
                    Registration::Begin { prefix, registered }
                }
                ProducerChange::Remove { prefix, id } => {
                    events.remove(id);
                    Registration::End { prefix }
                }
            };
            // The receiver is an endpoint of this loop, so this cannot fail.
            let _ = register.send(registration);
            let _ = waker.wake();
        }
    };
    run(&mut events, is_stopped, |events| {
        apply(events);
        close(&mut disks, &closed, events.now())
    });
    // The last producers ended with the session: notifies those that wait for them.
    apply(&mut events);
    let _ = events.flush();
    let now = events.now();
    // Dropping the loop drops all endpoints, which send their busy disks to `closing`.
    drop(events);
    close(&mut disks, &closed, now);
    disks.wait(now);
}

/// Continues the disks of removed producers. Returns when to call this again at the latest.
fn close(disks: &mut ClosingDisks, closed: &Receiver<OutputDisk>, now: Instant) -> Option<Instant> {
    closed.try_iter().for_each(|disk| disks.add(now, disk));
    disks.poll(now)
}
