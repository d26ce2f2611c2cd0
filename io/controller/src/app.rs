//! What all requests share: the controller with who waits for its configurations, the database, the
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
use crate::journal::Journal;
use crate::metrics::Metrics;
use crate::tokens::Tokens;

/// Who does what no token's holder does.
const CONTROLLER: &str = "controller";

/// Between two lines of the audit about names that one caller may not register.
const AUDIT_INTERVAL: Duration = Duration::from_secs(60);

/// For so long it is told that the database has taken no file, if none is registered meanwhile.
const WRITE_FAILURE_SHOWN: Duration = Duration::from_secs(30);

/// What all requests share.
pub(crate) struct App {
    pub(crate) clock: Clock,
    pub(crate) wall_clock: WallClock,
    pub(crate) database: Database,
    pub(crate) journal: Journal,
    pub(crate) tokens: Tokens,
    pub(crate) metrics: Metrics,
    pub(crate) slots: Arc<ConnectionSlots>,
    /// Octets of a request's body, at most.
    pub(crate) body_bytes_max: usize,
    /// Whether the program is to end: who waits for news gets none.
    pub(crate) stopping: watch::Receiver<bool>,
    /// Its number among the controllers of the database.
    pub(crate) run: AtomicU64,
    /// What other controllers have written is taken up, and files are registered and withdrawn, one
    /// after the other, in memory as in the database.
    pub(crate) follower: tokio::sync::Mutex<Follower>,
    /// Other controllers of the database that run, by address.
    pub(crate) other_urls: Mutex<Vec<String>>,
    known: Mutex<ControllerState>,
    /// Why the database took no file when it was given one last, and when that was.
    write_failure: Mutex<Option<(OutageCause, Instant)>>,
    /// Why what other controllers write cannot be read at present, if it cannot.
    read_failure: Mutex<Option<String>>,
    /// When the audit was told last that a caller may not register a name.
    refusals_audited: Mutex<BTreeMap<String, Instant>>,
}

/// The controller, and what its decisions do not need.
pub(crate) struct ControllerState {
    pub(crate) controller: Controller,
    /// Routers that controllers heard before this one began, with the number of each, until they
    /// are here or lost.
    restored_routers: BTreeMap<String, u64>,
    /// When each router reported last, in milliseconds since 1970.
    pub(crate) seen_ms: BTreeMap<String, u64>,
    /// The number of each router's configuration, for those who wait for a higher one.
    generations: BTreeMap<String, watch::Sender<u64>>,
    published_generation: u64,
}

impl ControllerState {
    pub(crate) fn new(controller: Controller, former: BTreeMap<String, u64>) -> Self {
        let (seen_ms, generations) = (BTreeMap::new(), BTreeMap::new());
        Self { controller, restored_routers: former, seen_ms, generations, published_generation: 0 }
    }

    /// News of a router's configuration; none of a router that is not there.
    pub(crate) fn subscribe(&self, router: &str) -> Option<watch::Receiver<u64>> {
        self.generations.get(router).map(watch::Sender::subscribe)
    }

    /// How many wait for news of any configuration.
    pub(crate) fn waiting_count(&self) -> usize {
        self.generations.values().map(watch::Sender::receiver_count).sum()
    }

    /// What is to be written of what has come to pass, and those who wait are woken.
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
                        "two routers report by one name; this one is refused"
                    );
                    ("two of one name", format!("{router}: the one at {at} is refused"))
                }
                Event::PartNotKept { router, object, segments } => {
                    ("does not keep", format!("{router}: {segments} segments of {object}"))
                }
                Event::LimitExceeded { router, bound, count } => {
                    tracing::warn!(router, %bound, count, "what a router says does not count");
                    ("does not count", format!("{router}: {count} beyond bound {bound}"))
                }
            };
            records.push(Record::Audit { at_ms, who: CONTROLLER.to_owned(), action, detail });
        }
        if self.published_generation != self.controller.generation() {
            self.published_generation = self.controller.generation();
            for (router, sender) in &self.generations {
                let generation = self.controller.generation_of(router);
                sender.send_if_modified(|told| std::mem::replace(told, generation) != generation);
            }
        }
        records
    }
}

impl App {
    pub(crate) fn new(
        known: ControllerState,
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
            known: Mutex::new(known),
            write_failure: Mutex::default(),
            read_failure: Mutex::default(),
            refusals_audited: Mutex::default(),
        }
    }

    /// Looks at what is known, or changes it. What has come to pass is written afterwards.
    pub(crate) fn with<T>(&self, act: impl FnOnce(&mut ControllerState) -> T) -> T {
        let mut known = self.lock();
        let result = act(&mut known);
        let records = known.drain_events(self.wall_clock.now_ms());
        drop(known);
        if !records.is_empty() {
            self.journal.push(records);
        }
        result
    }

    /// A name is not registered, as it is below no prefix of the token. The audit has one line a
    /// minute of each caller.
    pub(crate) fn audit_refused_name(&self, who: &str, name: &Name) {
        let mut told = self.refusals_audited.lock().unwrap_or_else(PoisonError::into_inner);
        if told.get(who).is_some_and(|at| at.elapsed() < AUDIT_INTERVAL) {
            return;
        }
        told.insert(who.to_owned(), Instant::now());
        let at_ms = self.wall_clock.now_ms();
        let (who, detail) = (who.to_owned(), name.to_string());
        self.journal.push([Record::Audit { at_ms, who, action: "file refused", detail }]);
    }

    /// Takes note of whether the database has taken a change.
    pub(crate) fn note_write<T>(&self, changed: &Result<T, DatabaseError>) {
        let failed = changed.as_ref().err();
        // Somebody else was first: it is well.
        let failed = failed.filter(|error| !matches!(error, DatabaseError::Conflict));
        let untaken = failed.map(|error| (error.outage_cause(), Instant::now()));
        *self.write_failure.lock().unwrap_or_else(PoisonError::into_inner) = untaken;
    }

    /// Takes note of whether what the database holds could be read.
    pub(crate) fn note_read(&self, followed: &Result<(), DatabaseError>) {
        let why = followed.as_ref().err().map(DatabaseError::to_string);
        let mut unread = self.read_failure.lock().unwrap_or_else(PoisonError::into_inner);
        if let (Some(error), None) = (&why, &*unread) {
            tracing::warn!(error, "what other controllers write is not read; it is tried again");
        }
        *unread = why;
    }

    /// Why what other controllers write cannot be read at present, if it cannot.
    pub(crate) fn read_failure(&self) -> Option<String> {
        self.read_failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Why the database takes nothing, as far as that was tried lately.
    pub(crate) fn outage(&self) -> Option<OutageCause> {
        let untaken = *self.write_failure.lock().unwrap_or_else(PoisonError::into_inner);
        let untaken = untaken.filter(|(_, at)| at.elapsed() < WRITE_FAILURE_SHOWN);
        self.journal.outage().or(untaken.map(|(why, _)| why))
    }

    fn lock(&self) -> MutexGuard<'_, ControllerState> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
