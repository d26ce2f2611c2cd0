//! The agent's threads.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use weir_control::message::{Configuration, SetupPart};
use weir_runtime::{ExtraMetric, Handle};

use crate::apply::Applier;
use crate::config::AgentConfig;
use crate::error::AgentError;
use crate::prefetch::{PrefetchOrders, Prefetcher};
use crate::report_thread::ReportThread;
use crate::rest::{ControllerHealth, RouterClient};
use crate::retry_waits::RetryWaits;
use crate::round_trips::RoundTripProber;
use crate::shared::{AgentShared, unix_time_ms};
use crate::state_file::StateFile;

/// How long the controller keeps a question for a newer configuration.
const POLL: Duration = Duration::from_secs(25);

/// How soon it is looked again whether the controller refuses this router for its name.
const NAME_TAKEN_PAUSE: Duration = Duration::from_secs(1);

/// How often what a controller says is kept at most.
const SAVE_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct AgentStats {
    /// Reports of the router that the controller took.
    pub reports: u64,
    /// Large objects that the controller was asked about.
    pub questions: u64,
    /// Misses of large objects that it was not asked about, because they were too many or it did
    /// not answer.
    pub questions_left_out: u64,
}

/// A router's agent. It ends when this is dropped; what it has set up in the router stays.
pub struct Agent {
    shared: Arc<AgentShared>,
}

impl Agent {
    /// Starts the agent's threads.
    ///
    /// # Errors
    /// [`AgentError`]. That the controller does not answer is none: it is tried again and again.
    pub fn start(config: AgentConfig, router: &Handle) -> Result<Self, AgentError> {
        config.check()?;
        let rest = RouterClient::new(&config)?;
        let seed = || getrandom::u64().map_err(io::Error::other);
        let shared = Arc::new(AgentShared::new(router.contents(), router.local_port()));
        let agent = Self { shared: Arc::clone(&shared) };
        let orders = PrefetchOrders::default();
        // 0 would say that it is not told.
        let (backoff, instance) = (RetryWaits::new(seed()?), seed()?.max(1));
        let teller =
            ReportThread::new(&config, rest.clone(), Arc::clone(&shared), backoff, instance);
        spawn("weir-agent-tell", move || teller.run())?;
        if config.prefetch {
            let prefetcher = Prefetcher::new(Arc::clone(&shared), orders.clone());
            spawn("weir-agent-fetch", move || prefetcher.run())?;
        }
        let round_trips = RoundTripProber::new(Arc::clone(&shared), config.interval);
        spawn("weir-agent-rtt", move || round_trips.run())?;
        let (health, observed) = (rest.health(), Arc::clone(&shared));
        router.add_metrics(move || metrics(&health, &observed));
        let urls = config.access.urls().cloned().collect();
        let keeper = config.state_file.map(|path| StateFile::new(path, config.name, urls));
        let configurer = Configurer {
            rest,
            shared: Arc::clone(&shared),
            orders,
            backoff: RetryWaits::new(seed()?),
            retry: RetryWaits::new(seed()?),
            applier: Applier::new(shared, config.routes_max),
            target: None,
            state_file: keeper,
            is_from_state_file: false,
            saved: None,
            pause: None,
        };
        spawn("weir-agent-conf", move || configurer.run())?;
        Ok(agent)
    }

    /// What it has done so far.
    pub fn stats(&self) -> AgentStats {
        let counters = &self.shared.counters;
        AgentStats {
            reports: counters.reports.load(Ordering::Relaxed),
            questions: counters.questions.load(Ordering::Relaxed),
            questions_left_out: counters.questions_left_out.load(Ordering::Relaxed),
        }
    }
}

impl Drop for Agent {
    /// The threads end with the request that they wait for.
    fn drop(&mut self) {
        self.shared.wake_point().stop();
    }
}

impl std::fmt::Debug for Agent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (generation, problems) = self.shared.setup();
        let mut text = f.debug_struct("Agent");
        text.field("generation", &generation).field("problems", &problems);
        text.field("stats", &self.stats()).finish_non_exhaustive()
    }
}

/// What `/metrics` of the router says of its controller.
fn metrics(health: &ControllerHealth, shared: &AgentShared) -> Vec<ExtraMetric> {
    let is_reachable = u64::from(health.is_reachable.load(Ordering::Relaxed));
    let refused = health.refused.load(Ordering::Relaxed);
    let unanswered = health.unanswered.load(Ordering::Relaxed);
    let gauge = |name, help, value| ExtraMetric { name, help, is_total: false, value };
    let total = |name, help, value| ExtraMetric { name, help, is_total: true, value };
    let reachable = "Whether the controller answered the last request";
    let generation = "Number of the configuration that is set up, 0 before the first";
    let mut metrics = vec![
        gauge("agent_controller_reachable", reachable, is_reachable),
        total("agent_requests_refused", "Requests that the controller refused", refused),
        total("agent_requests_unanswered", "Requests that no controller answered", unanswered),
        gauge("agent_configuration_generation", generation, shared.setup().0),
        gauge(
            "agent_routes_left_out",
            "Routes of the configuration beyond routes_max",
            shared.routes_left_out(),
        ),
    ];
    let age = "Seconds since the controller gave the configuration or said that it holds";
    let age_s = shared.configuration_age_s();
    metrics.extend(age_s.map(|age_s| gauge("agent_configuration_age_seconds", age, age_s)));
    metrics
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    std::thread::Builder::new().name(name.into()).spawn(run).map(drop)
}

/// Asks for configurations and sets them up.
struct Configurer {
    rest: RouterClient,
    shared: Arc<AgentShared>,
    orders: PrefetchOrders,
    /// Between requests to a controller that does not answer.
    backoff: RetryWaits,
    /// Between tries to set up what could not be set up whole.
    retry: RetryWaits,
    applier: Applier,
    target: Option<Configuration>,
    state_file: Option<StateFile>,
    /// Whether what is wanted was kept from before the start. It holds until a controller says
    /// anything, also of a lower generation.
    is_from_state_file: bool,
    /// The generation that was stored last, and when.
    saved: Option<(u64, Instant)>,
    /// How long until the present configuration is tried again; nothing if it is set up.
    pause: Option<Duration>,
}

impl Configurer {
    fn run(mut self) {
        self.apply_stored();
        while !self.shared.is_stopping() {
            if self.shared.is_name_refused() {
                // What it was to fetch ahead was for another router.
                self.orders.replace(Vec::new());
                self.shared.pause(NAME_TAKEN_PAUSE);
                continue;
            }
            if !self.poll_controller() {
                break;
            }
            // It may have been refused while it waited.
            if self.shared.is_name_refused() {
                continue;
            }
            // What is set up is looked at again: a face may be gone, and its routes with it.
            self.apply();
            self.save(SAVE_INTERVAL);
        }
        self.save(Duration::ZERO);
    }

    /// Sets up what was kept from before the start, until a controller says what is to be.
    fn apply_stored(&mut self) {
        let Some(kept) = self.state_file.as_ref().and_then(StateFile::load) else { return };
        let generation = kept.configuration.generation;
        tracing::info!(
            generation,
            age_s = unix_time_ms().saturating_sub(kept.received_ms) / 1000,
            "set up as kept from before the start, until a controller answers"
        );
        self.saved = Some((generation, Instant::now()));
        self.shared.note_confirmed(kept.received_ms);
        (self.target, self.is_from_state_file) = (Some(kept.configuration), true);
        self.apply();
    }

    /// Keeps what a controller has said, but not more often than once in `pause`.
    fn save(&mut self, pause: Duration) {
        let (Some(keeper), Some(wanted)) = (&mut self.state_file, &self.target) else { return };
        let is_due = self.saved.is_none_or(|(generation, at)| {
            generation != wanted.generation && at.elapsed() >= pause
        });
        // What could not be written is written with the next report.
        if is_due && !self.is_from_state_file && keeper.store(wanted, unix_time_ms()) {
            self.saved = Some((wanted.generation, Instant::now()));
        }
    }

    fn apply(&mut self) {
        let Some(wanted) = &self.target else { return };
        let outcome = self.applier.apply(wanted);
        let generation = wanted.generation;
        if !outcome.has_failed(SetupPart::Rules) {
            self.orders.replace(wanted.prefetch.clone());
        }
        self.shared.record_setup(
            outcome.is_complete().then_some(generation),
            outcome.problems(generation),
        );
        self.pause = match outcome.is_complete() {
            true => {
                self.retry.reset();
                None
            }
            false => Some(self.retry.next(None)),
        };
    }

    /// Asks for a newer configuration than the one that is wanted, for as long as that one need not
    /// be tried again; whether to go on.
    fn poll_controller(&mut self) -> bool {
        let (asked, wait) = (Instant::now(), self.pause.unwrap_or(POLL));
        let heard = self.shared.wake_point().reconnects();
        // The controller counts in whole seconds.
        let wait_s = wait.as_secs().max(1);
        let known = self.target.as_ref().filter(|_| !self.is_from_state_file);
        let after = known.map_or(0, |wanted| wanted.generation);
        match self.rest.configuration(after, wait_s) {
            // It is for another router, which has this one's name.
            Ok(Some(_)) if self.shared.is_name_refused() => true,
            Ok(Some(newer)) if newer.generation <= after => {
                tracing::warn!(
                    after,
                    offered = newer.generation,
                    "the controller offers an older configuration; it is refused"
                );
                self.shared.pause(self.backoff.next(None))
            }
            Ok(Some(newer)) => {
                self.backoff.reset();
                self.retry.reset();
                if self.is_from_state_file && self.target.as_ref() != Some(&newer) {
                    self.saved = None;
                }
                (self.target, self.is_from_state_file) = (Some(newer), false);
                self.shared.note_confirmed(unix_time_ms());
                true
            }
            // One that does not wait is not asked all the time.
            Ok(None) if asked.elapsed() < Duration::from_secs(1) => {
                self.shared.pause(self.backoff.next(None).min(wait))
            }
            Ok(None) => {
                self.backoff.reset();
                if !self.is_from_state_file && self.target.is_some() {
                    self.shared.note_confirmed(unix_time_ms());
                }
                true
            }
            Err(error) => {
                // One that does not know this router yet hears of it in a moment; then this asks
                // again.
                let asked_for = error.retry_after();
                let pause = self.backoff.next(asked_for);
                if !error.is_unknown() && self.backoff.is_first() {
                    tracing::info!(%error, "no configuration; what is set up stays");
                }
                if asked_for.is_some() {
                    return self.shared.pause(pause);
                }
                let (goes_on, is_heard) =
                    self.shared.wake_point().pause_until_reconnect(pause, heard);
                if is_heard {
                    self.backoff.reset();
                }
                goes_on
            }
        }
    }
}
