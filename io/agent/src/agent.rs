//! The agent's threads, and how it keeps the router working while the controller is unreachable.
//!
//! The agent runs four threads. None of them is a worker, and the router never waits for any of
//! them.
//!
//! | thread | module | work |
//! |---|---|---|
//! | `weir-agent-tell` | `report_thread` | reports the router and its holdings, asks about misses |
//! | `weir-agent-conf` | this one, `apply` | fetches configurations and sets them up |
//! | `weir-agent-fetch` | `prefetch` | fetches segments before a consumer requests them |
//! | `weir-agent-rtt` | `round_trips` | measures round-trip times of links |
//!
//! While the controller is unreachable:
//!
//! 1. The router forwards as before. Faces, routes, strategies and store rules of the last
//!    configuration stay, and prefetching continues.
//! 2. A request that gets no answer goes to the next controller of the list at once. Earlier
//!    controllers in the list are retried every 30 s, so all routers with one list return to the
//!    same controller.
//! 3. If none answers, the thread waits 0.25 s before it retries. The wait doubles with each
//!    failure, up to 30 s or a third of the controller's timeout for routers. It is randomized, so
//!    that not all routers return at once.
//! 4. Changes of the store stay in the store's own index. Nothing is queued, so nothing overflows.
//! 5. The agent does not ask about missed objects. It counts them as left out.
//! 6. The last configuration is in `state_file`. A router that restarts meanwhile sets it up, until
//!    a controller gives it another one.
//!
//! When the controller answers again, the report thread wakes the configuration thread. A restarted
//! controller answers 404 to an update, and then gets a full report. It answers 409 to an update
//! that it does not expect, and then gets all holdings again.
//!
//! Example: the controller stops at 12:00:00. The report due then fails, and so do those after
//! about 0.25, 0.75 and 1.75 s. At 12:10 it starts again. The next report arrives within 5 s (a
//! third of the default timeout of 15 s), and a configuration follows at once.
//!
//! The agent must never undo a configuration because the controller is silent. It must never accept
//! an older configuration after a newer one of the same controllers.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use weir_base::without_secrets;
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
use crate::status::controller_status;

/// How long the controller may hold a request for a newer configuration.
const POLL: Duration = Duration::from_secs(25);

/// How often the agent checks whether the controller still refuses this router for its name.
const NAME_TAKEN_PAUSE: Duration = Duration::from_secs(1);

/// Minimum time between two writes of the configuration to disk.
const SAVE_INTERVAL: Duration = Duration::from_secs(1);

/// Counters of an agent.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct AgentStats {
    /// Reports that the controller accepted.
    pub reports: u64,
    /// Missed large objects that the controller was asked about.
    pub questions: u64,
    /// Missed large objects that it was not asked about: they exceeded a limit, or the controller
    /// did not answer.
    pub questions_left_out: u64,
}

/// The agent of a router. It stops when this is dropped; everything that it has set up in the
/// router stays.
pub struct Agent {
    shared: Arc<AgentShared>,
}

impl Agent {
    /// Starts the agent's threads.
    ///
    /// # Errors
    /// [`AgentError`]. An unreachable controller is no error: the agent retries for ever.
    pub fn start(config: AgentConfig, router: &Handle) -> Result<Self, AgentError> {
        config.check()?;
        let rest = RouterClient::new(&config)?;
        let seed = || getrandom::u64().map_err(io::Error::other);
        let shared = Arc::new(AgentShared::new(router.contents(), router.local_port()));
        let agent = Self { shared: Arc::clone(&shared) };
        let orders = PrefetchOrders::default();
        // Instance 0 means "not reported".
        let (backoff, instance) = (RetryWaits::new(seed()?), seed()?.max(1));
        let report_thread =
            ReportThread::new(&config, rest.clone(), Arc::clone(&shared), backoff, instance);
        spawn("weir-agent-tell", move || report_thread.run())?;
        if config.prefetch {
            let prefetcher = Prefetcher::new(Arc::clone(&shared), orders.clone());
            spawn("weir-agent-fetch", move || prefetcher.run())?;
        }
        let round_trips = RoundTripProber::new(Arc::clone(&shared), config.interval);
        spawn("weir-agent-rtt", move || round_trips.run())?;
        let (health, observed) = (rest.health(), Arc::clone(&shared));
        router.add_metrics(move || metrics(&health, &observed));
        let (health, observed) = (rest.health(), Arc::clone(&shared));
        let shown: Vec<String> = config.access.urls().map(|url| without_secrets(url)).collect();
        let shown = shown.join(" ");
        router.set_controller_source(move || controller_status(&shown, &health, &observed));
        let urls = config.access.urls();
        let state_file = config.state_file.map(|path| StateFile::new(path, config.name, urls));
        let configurer = Configurer {
            rest,
            shared: Arc::clone(&shared),
            orders,
            backoff: RetryWaits::new(seed()?),
            retry: RetryWaits::new(seed()?),
            applier: Applier::new(shared, config.routes_max),
            target: None,
            state_file,
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
    /// The threads end when the request that they wait for ends.
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

/// What the metrics report.
struct MetricValues {
    is_reachable: bool,
    refused: u64,
    unanswered: u64,
    generation: u64,
    routes_left_out: u64,
    age_s: Option<u64>,
}

/// The metrics about the controller, for `/metrics` of the router.
fn metrics(health: &ControllerHealth, shared: &AgentShared) -> Vec<ExtraMetric> {
    metrics_of(&MetricValues {
        is_reachable: health.is_reachable.load(Ordering::Relaxed),
        refused: health.refused.load(Ordering::Relaxed),
        unanswered: health.unanswered.load(Ordering::Relaxed),
        generation: shared.setup().0,
        routes_left_out: shared.routes_left_out(),
        age_s: shared.configuration_age_s(),
    })
}

fn metrics_of(values: &MetricValues) -> Vec<ExtraMetric> {
    let gauge = |name, help, value| ExtraMetric { name, help, is_total: false, value };
    let total = |name, help, value| ExtraMetric { name, help, is_total: true, value };
    let reachable = "1 if a controller answered the last request of this router, else 0";
    let generation = "Number of the configuration that is set up; 0 before the first";
    let refused = "Requests of this router that the controller refused with an error";
    let unanswered = "Requests of this router that no controller answered";
    let left_out = "Routes of the configuration that are not set up because they exceed routes_max";
    let mut metrics = vec![
        gauge("agent_controller_reachable", reachable, values.is_reachable.into()),
        total("agent_requests_refused", refused, values.refused),
        total("agent_requests_unanswered", unanswered, values.unanswered),
        gauge("agent_configuration_generation", generation, values.generation),
        gauge("agent_routes_left_out", left_out, values.routes_left_out),
    ];
    let age = "Time since the controller last sent or confirmed the configuration";
    metrics.extend(values.age_s.map(|age_s| gauge("agent_configuration_age_seconds", age, age_s)));
    metrics
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    std::thread::Builder::new().name(name.into()).spawn(run).map(drop)
}

/// The thread that fetches configurations and sets them up.
struct Configurer {
    rest: RouterClient,
    shared: Arc<AgentShared>,
    orders: PrefetchOrders,
    /// Waits between requests to a controller that does not answer.
    backoff: RetryWaits,
    /// Waits between attempts to set up what failed.
    retry: RetryWaits,
    applier: Applier,
    target: Option<Configuration>,
    state_file: Option<StateFile>,
    /// Whether `target` was read from `state_file`. Then any configuration of a controller replaces
    /// it, even one with a lower generation.
    is_from_state_file: bool,
    /// The generation that was saved last, and when.
    saved: Option<(u64, Instant)>,
    /// The wait until the present configuration is set up again; none if it is set up completely.
    pause: Option<Duration>,
}

impl Configurer {
    fn run(mut self) {
        self.apply_stored();
        while !self.shared.is_stopping() {
            if self.shared.is_name_refused() {
                // The name belongs to another router, and so do the orders to prefetch.
                self.orders.replace(Vec::new());
                self.shared.pause(NAME_TAKEN_PAUSE);
                continue;
            }
            if !self.poll_controller() {
                break;
            }
            // The name may have been refused during the poll.
            if self.shared.is_name_refused() {
                continue;
            }
            // Check what is set up: a face may have disappeared with its routes.
            self.apply();
            self.save(SAVE_INTERVAL);
        }
        self.save(Duration::ZERO);
    }

    /// Sets up the configuration of `state_file`, until a controller gives one.
    fn apply_stored(&mut self) {
        let Some(stored) = self.state_file.as_ref().and_then(StateFile::load) else { return };
        let generation = stored.configuration.generation;
        tracing::info!(
            generation,
            age_s = unix_time_ms().saturating_sub(stored.received_ms) / 1000,
            "the configuration of the state file is set up until a controller answers"
        );
        self.saved = Some((generation, Instant::now()));
        self.shared.note_confirmed(stored.received_ms);
        (self.target, self.is_from_state_file) = (Some(stored.configuration), true);
        self.apply();
    }

    /// Saves the configuration, at most once in `pause`.
    fn save(&mut self, pause: Duration) {
        let (Some(state_file), Some(target)) = (&mut self.state_file, &self.target) else { return };
        let is_due = self.saved.is_none_or(|(generation, at)| {
            generation != target.generation && at.elapsed() >= pause
        });
        // If the write fails, the next poll retries it.
        if is_due && !self.is_from_state_file && state_file.store(target, unix_time_ms()) {
            self.saved = Some((target.generation, Instant::now()));
        }
    }

    fn apply(&mut self) {
        let Some(target) = &self.target else { return };
        let outcome = self.applier.apply(target);
        let generation = target.generation;
        if !outcome.has_failed(SetupPart::Rules) {
            self.orders.replace(target.prefetch.clone());
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

    /// Requests a configuration newer than the present one, until the present one must be set up
    /// again. Returns whether the thread continues.
    fn poll_controller(&mut self) -> bool {
        let (sent_at, wait) = (Instant::now(), self.pause.unwrap_or(POLL));
        // Read the counter before the request, so that a report accepted during it is not missed.
        let reconnects = self.shared.wake_point().reconnects();
        // The controller's `wait` is in whole seconds.
        let wait_s = wait.as_secs().max(1);
        let known = self.target.as_ref().filter(|_| !self.is_from_state_file);
        let after = known.map_or(0, |target| target.generation);
        match self.rest.configuration(after, wait_s) {
            // The configuration is for another router with this name.
            Ok(Some(_)) if self.shared.is_name_refused() => true,
            Ok(Some(newer)) if newer.generation <= after => {
                tracing::warn!(
                    after,
                    offered = newer.generation,
                    "the controller offers an older configuration; the present one stays"
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
            // A controller that answers at once without waiting must not be polled in a busy loop.
            Ok(None) if sent_at.elapsed() < Duration::from_secs(1) => {
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
                // An unknown router becomes known with its first report, and
                // `pause_until_reconnect` ends then.
                let requested = error.retry_after();
                let pause = self.backoff.next(requested);
                if !error.is_unknown() && self.backoff.is_first() {
                    tracing::info!(%error, "cannot get a configuration; what is set up stays");
                }
                if requested.is_some() {
                    return self.shared.pause(pause);
                }
                let (continues, has_reconnected) =
                    self.shared.wake_point().pause_until_reconnect(pause, reconnects);
                if has_reconnected {
                    self.backoff.reset();
                }
                continues
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write as _;

    #[test]
    fn reference_lists_the_agents_metrics() {
        let values = MetricValues {
            is_reachable: true,
            refused: 1,
            unanswered: 2,
            generation: 3,
            routes_left_out: 4,
            age_s: Some(5),
        };
        let mut text = String::new();
        for ExtraMetric { name, help, is_total, value } in metrics_of(&values) {
            let (kind, suffix) = if is_total { ("counter", "_total") } else { ("gauge", "") };
            let _ = writeln!(text, "# HELP weir_{name} {help}\n# TYPE weir_{name} {kind}");
            let _ = writeln!(text, "weir_{name}{suffix} {value}");
        }
        weir_metrics::reference::check("agent", &(text + "# EOF\n"), &[]);
    }
}
