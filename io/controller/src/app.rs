//! State that all requests share: the controller with its waiting routers, the database, and the
//! tokens.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;
use weir_control::{Controller, Event};
use weir_wire::Name;

use crate::clock::{Clock, WallClock};
use crate::config::Config;
use crate::connection_slots::ConnectionSlots;
use crate::database::{Database, DatabaseError, OutageCause, Record};
use crate::follower::Follower;
use crate::history::History;
use crate::journal::Journal;
use crate::metrics::Metrics;
use crate::spans;
use crate::tokens::Tokens;

/// The actor of audit lines about the controller's own actions.
const CONTROLLER: &str = "controller";

/// Minimum time between two audit lines about names that one caller may not register.
const AUDIT_INTERVAL: Duration = Duration::from_secs(60);

/// How long a failed registration counts as a sign that the database is unavailable.
const WRITE_FAILURE_SHOWN: Duration = Duration::from_secs(30);

/// State that all requests share.
pub(crate) struct App {
    pub(crate) clock: Clock,
    pub(crate) wall_clock: WallClock,
    pub(crate) database: Database,
    pub(crate) journal: Journal,
    pub(crate) tokens: Tokens,
    pub(crate) metrics: Metrics,
    pub(crate) slots: Arc<ConnectionSlots>,
    /// Maximum size of a request's body in bytes.
    pub(crate) body_bytes_max: usize,
    /// Set when the program stops. Waiting requests then end.
    pub(crate) stopping: watch::Receiver<bool>,
    /// The number of this controller among those of the database.
    pub(crate) run: AtomicU64,
    /// Held while changes of other controllers are adopted, and while a file is registered or
    /// withdrawn. So these happen one after the other, in memory and in the database.
    pub(crate) follower: tokio::sync::Mutex<Follower>,
    /// Addresses of other running controllers of the database.
    pub(crate) other_urls: Mutex<Vec<String>>,
    state: Mutex<ControllerState>,
    /// Why the last registration was not written, and when.
    write_failure: Mutex<Option<(OutageCause, Instant)>>,
    /// Why changes of other controllers cannot be read at present, if they cannot.
    read_failure: Mutex<Option<String>>,
    /// When the last audit line about a refused name was written, by caller.
    refusals_audited: Mutex<BTreeMap<String, Instant>>,
}

/// The controller, with what its decisions do not need.
pub(crate) struct ControllerState {
    pub(crate) controller: Controller,
    /// Routers that reported to any controller before this one started, with the number of that
    /// controller. A router is removed from here when it reports or is lost.
    restored_routers: BTreeMap<String, u64>,
    /// When each router reported last, in milliseconds since 1970.
    pub(crate) seen_ms: BTreeMap<String, u64>,
    /// The generation of each router's configuration, for requests that wait for a higher one.
    generations: BTreeMap<String, watch::Sender<u64>>,
    published_generation: u64,
    /// How often a router was lost.
    lost_routers: u64,
    /// The load of links and the hits of stores in the last hour.
    pub(crate) history: History,
}

impl ControllerState {
    pub(crate) fn new(controller: Controller, former: BTreeMap<String, u64>) -> Self {
        let (seen_ms, generations) = (BTreeMap::new(), BTreeMap::new());
        Self {
            controller,
            restored_routers: former,
            seen_ms,
            generations,
            published_generation: 0,
            lost_routers: 0,
            history: History::default(),
        }
    }

    /// Notifications about a router's configuration; none if the router is not present.
    pub(crate) fn subscribe(&self, router: &str) -> Option<watch::Receiver<u64>> {
        self.generations.get(router).map(watch::Sender::subscribe)
    }

    pub(crate) fn lost_routers(&self) -> u64 {
        self.lost_routers
    }

    /// Adds a sample to the history if one is due.
    pub(crate) fn sample(&mut self, now_ms: u64) {
        let Self { controller, history, .. } = self;
        history.sample(now_ms, controller);
    }

    /// The number of requests that wait for a configuration.
    pub(crate) fn waiting_count(&self) -> usize {
        self.generations.values().map(watch::Sender::receiver_count).sum()
    }

    /// Converts events into records for the database, and wakes requests that wait for
    /// configurations.
    fn drain_events(&mut self, at_ms: u64) -> Vec<Record> {
        let mut records = Vec::new();
        for event in self.controller.take_events() {
            let (action, detail) = match event {
                Event::RouterFound { router } => {
                    self.restored_routers.remove(&router);
                    self.generations.insert(router.clone(), watch::Sender::new(0));
                    ("router found", router)
                }
                Event::RouterLost { router } => {
                    self.lost_routers += 1;
                    self.generations.remove(&router);
                    let (name, run) = (router.clone(), self.restored_routers.remove(&router));
                    let seen_ms = self.seen_ms.remove(&router);
                    records.push(Record::RouterLost { name, run, seen_ms });
                    ("router lost", router)
                }
                Event::Planned(plan) => {
                    let detail = format!("{} for {}", plan.number, plan.object);
                    let action = if plan.is_end() { "plan ended" } else { "plan made" };
                    records.push(Record::Plan { follows: plan.parent, plan, made_ms: at_ms });
                    (action, detail)
                }
                Event::DuplicateName { router, uris } => {
                    let at = uris.join(" ");
                    tracing::warn!(
                        router,
                        at,
                        "two routers report by one name; this one is refused: give it a name of \
                         its own"
                    );
                    ("two of one name", format!("{router}: the one at {at} is refused"))
                }
                Event::PartNotKept { router, object, segments } => {
                    ("does not keep", format!("{router}: {segments} segments of {object}"))
                }
                Event::LimitExceeded { router, bound, count } => {
                    tracing::warn!(
                        router, %bound, count,
                        "a router exceeds a limit; the excess is ignored"
                    );
                    ("does not count", format!("{router}: {count} beyond bound {bound}"))
                }
            };
            records.push(Record::Audit { at_ms, who: CONTROLLER.to_owned(), action, detail });
        }
        if self.published_generation != self.controller.generation() {
            self.published_generation = self.controller.generation();
            for (router, sender) in &self.generations {
                let generation = self.controller.generation_of(router);
                // This wakes only requests for routers whose own generation has changed.
                sender.send_if_modified(|known| std::mem::replace(known, generation) != generation);
            }
        }
        records
    }
}

impl App {
    pub(crate) fn new(
        state: ControllerState,
        database: Database,
        tokens: Tokens,
        follower: Follower,
        config: &Config,
        stopping: watch::Receiver<bool>,
    ) -> Self {
        Self {
            clock: Clock::start(),
            wall_clock: config.wall_clock.clone(),
            database,
            journal: Journal::default(),
            tokens,
            metrics: Metrics::default(),
            slots: ConnectionSlots::new(config.connections_max),
            body_bytes_max: config.body_bytes_max,
            stopping,
            run: AtomicU64::new(follower.run),
            follower: tokio::sync::Mutex::new(follower),
            other_urls: Mutex::default(),
            state: Mutex::new(state),
            write_failure: Mutex::default(),
            read_failure: Mutex::default(),
            refusals_audited: Mutex::default(),
        }
    }

    /// Runs `act` with the state, and then queues the records of its events.
    pub(crate) fn with<T>(&self, act: impl FnOnce(&mut ControllerState) -> T) -> T {
        self.with_count(act).0
    }

    /// [`App::with`], and the number of records.
    pub(crate) fn with_count<T>(&self, act: impl FnOnce(&mut ControllerState) -> T) -> (T, usize) {
        let mut state = self.lock();
        let result = act(&mut state);
        let records = state.drain_events(self.wall_clock.now_ms());
        drop(state);
        spans::record_decisions(&records);
        let count = records.len();
        if count > 0 {
            self.journal.push(records);
        }
        (result, count)
    }

    /// Queues an audit line about a name that no prefix of the caller's token covers, at most one a
    /// minute for each caller.
    pub(crate) fn audit_refused_name(&self, who: &str, name: &Name) {
        let mut refusals = self.refusals_audited.lock().unwrap_or_else(PoisonError::into_inner);
        if refusals.get(who).is_some_and(|at| at.elapsed() < AUDIT_INTERVAL) {
            return;
        }
        refusals.insert(who.to_owned(), Instant::now());
        let at_ms = self.wall_clock.now_ms();
        let (who, detail) = (who.to_owned(), name.to_string());
        self.journal.push([Record::Audit { at_ms, who, action: "file refused", detail }]);
    }

    /// Records whether the database has written a change.
    pub(crate) fn note_write<T>(&self, changed: &Result<T, DatabaseError>) {
        let failed = changed.as_ref().err();
        // Another controller was first. The database works.
        let failed = failed.filter(|error| !matches!(error, DatabaseError::Conflict));
        let untaken = failed.map(|error| (error.outage_cause(), Instant::now()));
        *self.write_failure.lock().unwrap_or_else(PoisonError::into_inner) = untaken;
    }

    /// Records whether changes of other controllers could be read.
    pub(crate) fn note_read(&self, followed: &Result<(), DatabaseError>) {
        let why = followed.as_ref().err().map(DatabaseError::to_string);
        let mut unread = self.read_failure.lock().unwrap_or_else(PoisonError::into_inner);
        // Log an outage once, not with each read.
        if let (Some(error), None) = (&why, &*unread) {
            tracing::warn!(error, "changes of other controllers cannot be read; retrying");
        }
        *unread = why;
    }

    /// Why changes of other controllers cannot be read at present, if they cannot.
    pub(crate) fn read_failure(&self) -> Option<String> {
        self.read_failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Why the database does not write, as far as recent attempts show.
    pub(crate) fn outage(&self) -> Option<OutageCause> {
        let untaken = *self.write_failure.lock().unwrap_or_else(PoisonError::into_inner);
        let untaken = untaken.filter(|(_, at)| at.elapsed() < WRITE_FAILURE_SHOWN);
        self.journal.outage().or(untaken.map(|(why, _)| why))
    }

    fn lock(&self) -> MutexGuard<'_, ControllerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
