//! Consumers: the transport's consumer, and an open loop of single Interests.

mod arrivals;
mod fetch;
mod live;
mod objects;
mod unanswered;
mod window;

use weir_base::{Instant, NS_PER_MS, Pool};
use weir_transport::{ConsumerInput, Controllers, PathId};
use weir_wire::DataView;

use self::arrivals::OpenLoop;
use self::live::LiveLoop;
use self::objects::ObjectLoop;
use self::window::WindowLoop;
use super::{AppInput, AppOutbox};
use crate::event::EventKind;
use crate::workload::{Collection, ConsumerPlan, ContentError, Demand, WorkloadError};

/// Memory for free packet blocks. It is small, because a large network has thousands of consumers.
const POOL_BYTES: usize = 1 << 16;
/// Maximum InterestLifetime: a day.
const LIFETIME_MAX_MS: u64 = 86_400_000;

/// Counters of a consumer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ConsumerStats {
    pub interests: u64,
    /// Interests answered with the correct bytes.
    pub answered: u64,
    /// Interests that timed out or were considered lost.
    pub timed_out: u64,
    /// Interests answered by a Nack.
    pub nacked: u64,
    /// Data with wrong bytes.
    pub damaged: u64,
    /// Data without an open Interest: late or duplicate.
    pub unwanted: u64,
    /// Packets that could not be decoded, or whose names are not this consumer's.
    pub malformed: u64,
    pub objects_completed: u64,
    pub objects_failed: u64,
}

/// Requests what its plan says, and checks every byte that it receives.
#[derive(Debug)]
pub struct Consumer {
    core: ConsumerCore,
    mode: ConsumerMode,
}

#[derive(Debug)]
enum ConsumerMode {
    Arrivals(Box<OpenLoop>),
    Window(Box<WindowLoop>),
    Objects(Box<ObjectLoop>),
    Live(Box<LiveLoop>),
}

/// State that all kinds of demand share.
#[derive(Debug)]
struct ConsumerCore {
    collection: Collection,
    /// The congestion controllers that the plan may name.
    controllers: Controllers,
    pool: Pool,
    lifetime_ns: u64,
    start: Instant,
    /// When the consumer stops to request new content.
    stop: Instant,
    /// When the consumer stops to send.
    end: Instant,
    /// Time of the last call.
    now: Instant,
    /// Duration of a content comparison.
    verify_ns: u64,
    /// When the last comparison so far ends.
    verified: Instant,
    stats: ConsumerStats,
    /// Links that are up. The last one stays, even if it goes down.
    paths: Vec<PathId>,
    /// Windows of the second and later links, where the plan sets them.
    path_windows: Vec<Option<u32>>,
    /// Content bytes received on each link so far.
    path_bytes: Vec<u64>,
}

impl Consumer {
    /// The consumer of `plan`; its controller is one of `controllers`. From `stop_ns` on it
    /// requests nothing new, and from `duration_ns` on it sends nothing. All its Interests have
    /// expired one lifetime later.
    pub fn new(
        plan: &ConsumerPlan,
        controllers: Controllers,
        duration_ns: u64,
        seed: u64,
    ) -> Result<Self, WorkloadError> {
        let lifetime_ms = plan.lifetime_ms;
        if lifetime_ms == 0 || lifetime_ms > LIFETIME_MAX_MS {
            let problem = format!("is {lifetime_ms}; write a number from 1 to {LIFETIME_MAX_MS}");
            return Err(WorkloadError::value("lifetime_ms", problem));
        }
        let stop_ns = plan.stop_ns.unwrap_or(duration_ns).min(duration_ns);
        let collection = Collection::new(&plan.names)?;
        collection.check_trace(&plan.names.popularity)?;
        let core = ConsumerCore {
            collection,
            controllers,
            pool: Pool::new(POOL_BYTES),
            lifetime_ns: lifetime_ms * NS_PER_MS,
            start: Instant::from_ns(plan.start_ns),
            stop: Instant::from_ns(stop_ns),
            end: Instant::from_ns(duration_ns),
            now: Instant::ZERO,
            verify_ns: plan.verify_ns,
            verified: Instant::ZERO,
            stats: ConsumerStats::default(),
            paths: vec![PathId(0)],
            path_windows: plan.path_windows.clone(),
            path_bytes: vec![0],
        };
        let mode = match &plan.demand {
            Demand::Arrivals { .. } => {
                ConsumerMode::Arrivals(Box::new(OpenLoop::new(plan, &core, seed)?))
            }
            Demand::Window { .. } | Demand::Controlled { .. } => {
                ConsumerMode::Window(Box::new(WindowLoop::new(plan, &core, seed)?))
            }
            Demand::Objects { .. } => {
                ConsumerMode::Objects(Box::new(ObjectLoop::new(plan, &core, seed)?))
            }
            Demand::Live { .. } => ConsumerMode::Live(Box::new(LiveLoop::new(plan, &core, seed)?)),
        };
        Ok(Self { core, mode })
    }

    /// See [`App::set_path`](super::App::set_path).
    pub(crate) fn set_path(&mut self, path: PathId, is_there: bool) {
        let ConsumerCore { paths, path_bytes, .. } = &mut self.core;
        // Nothing changes, or this is the last link, which stays.
        if paths.contains(&path) == is_there || *paths == [path] {
            return;
        }
        match is_there {
            true => paths.push(path),
            false => paths.retain(|&other| other != path),
        }
        path_bytes.resize(path_bytes.len().max(usize::from(path.0) + 1), 0);
        match &mut self.mode {
            ConsumerMode::Arrivals(_) => {}
            ConsumerMode::Window(window) => window.set_path(path, is_there, &self.core),
            ConsumerMode::Objects(objects) => objects.set_path(path, is_there, &self.core),
            ConsumerMode::Live(live) => live.set_path(path, is_there, &self.core),
        }
    }

    /// See [`App::handle`](super::App::handle).
    pub fn handle(&mut self, now: Instant, inputs: &mut Vec<AppInput>, out: &mut AppOutbox) {
        let core = &mut self.core;
        core.now = now;
        let is_over = now >= core.end;
        match &mut self.mode {
            ConsumerMode::Arrivals(arrivals) => {
                inputs.drain(..).for_each(|input| arrivals.packet(core, &input, out));
                arrivals.advance(core, out);
            }
            ConsumerMode::Window(window) => {
                if is_over {
                    window.end(core);
                }
                inputs.drain(..).for_each(|input| window.packet(input));
                window.advance(core, out);
            }
            ConsumerMode::Objects(objects) => {
                if is_over {
                    objects.end(core);
                }
                inputs.drain(..).for_each(|input| objects.packet(core, input));
                objects.advance(core, out);
            }
            ConsumerMode::Live(live) => {
                if is_over {
                    live.end(core);
                }
                inputs.drain(..).for_each(|input| live.packet(core, input));
                live.advance(core, out);
            }
        }
    }

    /// See [`App::next_wakeup`](super::App::next_wakeup).
    pub(crate) fn next_wakeup(&self) -> Option<Instant> {
        match &self.mode {
            ConsumerMode::Arrivals(arrivals) => arrivals.next_wakeup(),
            ConsumerMode::Window(window) => window.next_wakeup(&self.core),
            ConsumerMode::Objects(objects) => objects.next_wakeup(&self.core),
            ConsumerMode::Live(live) => live.next_wakeup(&self.core),
        }
    }

    /// See [`App::is_done`](super::App::is_done).
    pub(crate) fn is_done(&self) -> bool {
        match &self.mode {
            ConsumerMode::Arrivals(arrivals) => arrivals.next_wakeup().is_none(),
            ConsumerMode::Window(window) => window.is_done(&self.core),
            ConsumerMode::Objects(objects) => objects.is_done(&self.core),
            ConsumerMode::Live(live) => live.is_done(&self.core),
        }
    }

    /// See [`App::sample`](super::App::sample).
    pub(crate) fn sample(&self) -> Vec<EventKind> {
        let (window, outstanding) = match &self.mode {
            ConsumerMode::Arrivals(_) => return Vec::new(),
            // When everything is answered, the unused part of a window has no meaning.
            ConsumerMode::Window(window) if window.is_done(&self.core) => return Vec::new(),
            ConsumerMode::Window(window) => (window.fetch().window(), window.fetch().in_flight()),
            ConsumerMode::Objects(objects) => (objects.window(), objects.in_flight()),
            ConsumerMode::Live(live) => (live.window(), live.in_flight()),
        };
        let mut events = vec![EventKind::Window { window, outstanding }];
        let path_bytes = &self.core.path_bytes;
        if path_bytes.len() > 1 {
            events.extend(path_bytes.iter().enumerate().map(|(path, &content_bytes)| {
                let window = self.window_of(PathId(path as u16));
                EventKind::PathSample { path: path as u32, window, content_bytes }
            }));
        }
        events
    }

    /// Window of a link; 0 while it is unused.
    fn window_of(&self, path: PathId) -> f64 {
        match &self.mode {
            ConsumerMode::Arrivals(_) => 0.0,
            ConsumerMode::Window(window) => window.fetch().window_of(path),
            ConsumerMode::Objects(objects) => objects.window_of(path),
            ConsumerMode::Live(live) => live.window_of(path),
        }
    }

    #[cfg(test)]
    pub(crate) fn outstanding(&self) -> usize {
        match &self.mode {
            ConsumerMode::Arrivals(arrivals) => arrivals.outstanding(),
            ConsumerMode::Window(window) => window.fetch().in_flight() as usize,
            ConsumerMode::Objects(objects) => objects.in_flight() as usize,
            ConsumerMode::Live(live) => live.in_flight() as usize,
        }
    }

    #[cfg(test)]
    pub(crate) fn stats(&self) -> ConsumerStats {
        let mut stats = self.core.stats;
        if let ConsumerMode::Window(window) = &self.mode {
            (stats.malformed, stats.unwanted) = window.fetch().unexpected_packets();
        }
        stats
    }
}

impl ConsumerCore {
    /// Whether new content may still be requested.
    fn can_request(&self) -> bool {
        self.now >= self.start && self.now < self.stop
    }

    /// The input that adds a link.
    fn added(&self, path: PathId) -> ConsumerInput {
        let further = usize::from(path.0).checked_sub(1);
        let window = further.and_then(|at| *self.path_windows.get(at)?);
        ConsumerInput::AddPath { path, window, is_local: false }
    }

    fn may_send(&self) -> bool {
        self.now < self.end
    }

    /// When the comparison of a Data that arrived now ends. Comparisons run one after another.
    fn check_ends(&mut self) -> Instant {
        self.verified = self.verified.max(self.now).plus_ns(self.verify_ns);
        self.verified
    }

    fn received(
        &mut self,
        (object, segment): (u64, u64),
        data: &DataView<'_>,
        rtt_ns: u64,
        is_marked: bool,
        out: &mut AppOutbox,
    ) {
        self.stats.answered += 1;
        out.events.push(EventKind::DataReceived {
            object,
            segment,
            content_bytes: data.content.len() as u32,
            packet_bytes: data.wire.len() as u32,
            rtt_ns,
            is_marked,
        });
    }

    #[cold]
    fn damaged(&mut self, object: u64, segment: u64, wrong: ContentError, out: &mut AppOutbox) {
        self.stats.damaged += 1;
        out.events.push(EventKind::DamagedData { object, segment });
        if out.violation.is_none() {
            let name = self.collection.naming().segment_name(object, segment);
            out.violation = Some(format!("{name} arrived with wrong content: {wrong}"));
        }
    }

    #[cold]
    fn playlist_damaged(&mut self, stream: u64, wrong: &str, out: &mut AppOutbox) {
        self.stats.damaged += 1;
        out.events.push(EventKind::DamagedData { object: stream, segment: 0 });
        if out.violation.is_none() {
            out.violation = Some(wrong.to_owned());
        }
    }

    fn timed_out(&mut self, object: u64, segment: u64, out: &mut AppOutbox) {
        self.stats.timed_out += 1;
        out.events.push(EventKind::TimedOut { object, segment });
    }

    fn object_completed(&mut self, object: u64, started: Instant, out: &mut AppOutbox) {
        self.stats.objects_completed += 1;
        out.events.push(EventKind::ObjectCompleted {
            object,
            content_bytes: self.collection.shape(object).bytes,
            elapsed_ns: self.now.ns_since(started),
        });
    }

    fn object_failed(&mut self, object: u64, out: &mut AppOutbox) {
        self.stats.objects_failed += 1;
        out.events.push(EventKind::ObjectFailed { object });
    }
}
