//! The agent's threads.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use weir_runtime::Handle;

use crate::apply::Applier;
use crate::backoff::Backoff;
use crate::config::{AgentConfig, AgentError};
use crate::prefetch::{Orders, Prefetcher};
use crate::rest::Rest;
use crate::shared::Shared;
use crate::tell::Teller;

/// How long the controller keeps a question for a newer configuration.
const POLL_S: u64 = 25;
/// How soon a configuration is tried again that could not be set up whole.
const RETRY_S: u64 = 2;

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
        let teller = Teller::new(&config, rest.clone(), Arc::clone(&shared), Backoff::new(seed()?));
        spawn("weir-agent-tell", move || teller.run())?;
        if config.prefetch {
            let prefetcher = Prefetcher::new(Arc::clone(&shared), orders.clone());
            spawn("weir-agent-fetch", move || prefetcher.run())?;
        }
        let backoff = Backoff::new(seed()?);
        spawn("weir-agent-conf", move || configure(&rest, &shared, &orders, backoff))?;
        Ok(agent)
    }
}

impl Drop for Agent {
    /// The threads end with the request that they wait for.
    fn drop(&mut self) {
        self.shared.stop();
    }
}

impl std::fmt::Debug for Agent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let generation = self.shared.generation.load(Ordering::Relaxed);
        f.debug_struct("Agent").field("generation", &generation).finish_non_exhaustive()
    }
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    std::thread::Builder::new().name(name.into()).spawn(run).map(drop)
}

/// Asks for configurations and sets them up.
fn configure(rest: &Rest, shared: &Arc<Shared>, orders: &Orders, mut backoff: Backoff) {
    let mut applier = Applier::new(Arc::clone(shared));
    let mut wanted = None;
    let mut is_whole = true;
    while !shared.is_stopping() {
        let after = shared.generation.load(Ordering::Relaxed);
        let wait_s = if is_whole { POLL_S } else { RETRY_S };
        match rest.configuration(after, wait_s) {
            Ok(Some(newer)) => {
                backoff.reset();
                if newer.generation <= after {
                    tracing::warn!(
                        after,
                        offered = newer.generation,
                        "the controller offers an older configuration; it is refused"
                    );
                    if !shared.pause(backoff.next(None)) {
                        return;
                    }
                    continue;
                }
                orders.replace(newer.prefetch.clone());
                shared.generation.store(newer.generation, Ordering::Relaxed);
                wanted = Some(newer);
            }
            // What is set up is looked at again: a face may be gone, and its routes with it.
            Ok(None) => {
                backoff.reset();
            }
            Err(error) => {
                // One that does not know this router yet hears of it in a moment.
                let pause = backoff.next(error.retry_after());
                if !error.is_unknown() && backoff.is_first() {
                    tracing::info!(%error, "no configuration; what is set up stays");
                }
                if !shared.pause(pause) {
                    return;
                }
                continue;
            }
        }
        if let Some(wanted) = &wanted {
            is_whole = applier.apply(wanted);
        }
    }
}
