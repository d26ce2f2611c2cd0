//! The agent's threads.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use weir_control::message::{Configuration, SetupPart};
use weir_runtime::Handle;

use crate::apply::Applier;
use crate::backoff::Backoff;
use crate::config::AgentConfig;
use crate::error::AgentError;
use crate::prefetch::{Orders, Prefetcher};
use crate::rest::Rest;
use crate::round_trips::RoundTrips;
use crate::shared::Shared;
use crate::tell::Teller;

/// How long the controller keeps a question for a newer configuration.
const POLL: Duration = Duration::from_secs(25);

/// How soon it is looked again whether the controller refuses this router for its name.
const REFUSED_PAUSE: Duration = Duration::from_secs(1);

/// What an agent has done.
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
    shared: Arc<Shared>,
}

impl Agent {
    /// Starts the agent's threads.
    ///
    /// # Errors
    /// [`AgentError`]. That the controller does not answer is none: it is tried again and again.
    pub fn start(config: AgentConfig, router: &Handle) -> Result<Self, AgentError> {
        config.check()?;
        let rest = Rest::new(&config)?;
        let seed = || getrandom::u64().map_err(io::Error::other);
        let shared = Arc::new(Shared::new(router.contents(), router.local_port()));
        let agent = Self { shared: Arc::clone(&shared) };
        let orders = Orders::default();
        // 0 would say that it is not told.
        let (backoff, instance) = (Backoff::new(seed()?), seed()?.max(1));
        let teller = Teller::new(&config, rest.clone(), Arc::clone(&shared), backoff, instance);
        spawn("weir-agent-tell", move || teller.run())?;
        if config.prefetch {
            let prefetcher = Prefetcher::new(Arc::clone(&shared), orders.clone());
            spawn("weir-agent-fetch", move || prefetcher.run())?;
        }
        let round_trips = RoundTrips::new(Arc::clone(&shared), config.interval);
        spawn("weir-agent-rtt", move || round_trips.run())?;
        let configurer = Configurer {
            rest,
            shared: Arc::clone(&shared),
            orders,
            backoff: Backoff::new(seed()?),
            retry: Backoff::new(seed()?),
            applier: Applier::new(shared),
            wanted: None,
            pause: None,
        };
        spawn("weir-agent-conf", move || configurer.run())?;
        Ok(agent)
    }

    /// What it has done so far.
    #[must_use]
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
        self.shared.waits().stop();
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

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    std::thread::Builder::new().name(name.into()).spawn(run).map(drop)
}

/// Asks for configurations and sets them up.
struct Configurer {
    rest: Rest,
    shared: Arc<Shared>,
    orders: Orders,
    /// Between requests to a controller that does not answer.
    backoff: Backoff,
    /// Between tries to set up what could not be set up whole.
    retry: Backoff,
    applier: Applier,
    wanted: Option<Configuration>,
    /// How long until the present configuration is tried again; nothing if it is set up.
    pause: Option<Duration>,
}

impl Configurer {
    fn run(mut self) {
        while !self.shared.is_stopping() {
            if self.shared.is_refused() {
                // What it was to fetch ahead was for another router.
                self.orders.replace(Vec::new());
                self.shared.pause(REFUSED_PAUSE);
                continue;
            }
            if !self.ask() {
                return;
            }
            // It may have been refused while it waited.
            if self.shared.is_refused() {
                continue;
            }
            let Some(wanted) = &self.wanted else { continue };
            // What is set up is looked at again: a face may be gone, and its routes with it.
            let outcome = self.applier.apply(wanted);
            let generation = wanted.generation;
            if !outcome.has_failed(SetupPart::Rules) {
                self.orders.replace(wanted.prefetch.clone());
            }
            self.shared
                .set_up(outcome.is_whole().then_some(generation), outcome.problems(generation));
            self.pause = match outcome.is_whole() {
                true => {
                    self.retry.reset();
                    None
                }
                false => Some(self.retry.next(None)),
            };
        }
    }

    /// Asks for a newer configuration than the one that is wanted, for as long as that one need not
    /// be tried again; whether to go on.
    fn ask(&mut self) -> bool {
        let (asked, wait) = (Instant::now(), self.pause.unwrap_or(POLL));
        let heard = self.shared.waits().heard();
        // The controller counts in whole seconds.
        let wait_s = wait.as_secs().max(1);
        let after = self.wanted.as_ref().map_or(0, |wanted| wanted.generation);
        match self.rest.configuration(after, wait_s) {
            // It is for another router, which has this one's name.
            Ok(Some(_)) if self.shared.is_refused() => true,
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
                self.wanted = Some(newer);
                true
            }
            // One that does not wait is not asked all the time.
            Ok(None) if asked.elapsed() < Duration::from_secs(1) => {
                self.shared.pause(self.backoff.next(None).min(wait))
            }
            Ok(None) => {
                self.backoff.reset();
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
                let (goes_on, is_heard) = self.shared.waits().pause_until_heard(pause, heard);
                if is_heard {
                    self.backoff.reset();
                }
                goes_on
            }
        }
    }
}
