//! What a controller knows of the others of its database.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use crate::config::Config;
use crate::database::Sharer;

/// The database says who runs at least so often while it answers.
const HEARD_EVERY: Duration = Duration::from_secs(3);

/// What is known of other controllers.
pub(crate) struct Follower {
    /// Its own number among the controllers of the database, and where it listens.
    pub(crate) run: u64,
    /// See there.
    pub(crate) url: String,
    /// Whether others may use the database while this one does.
    pub(crate) is_shared: bool,
    /// The last change that was taken up.
    pub(crate) change: u64,
    /// Others, with when their beat went up last.
    pub(crate) others: BTreeMap<u64, (Sharer, Instant)>,
    /// Which controller each router reports to.
    pub(crate) routers: BTreeMap<String, u64>,
    /// The routers that are known to be heard elsewhere, as that was told last.
    pub(crate) told: BTreeSet<String>,
    /// When it last gave a sign of life.
    pub(crate) beat_at: Option<Instant>,
    /// When the database last said who runs.
    heard_at: Option<Instant>,
    /// A controller that says nothing for so long is gone.
    timeout: Duration,
}

impl Follower {
    /// Begins as controller `run`, which listens at `url`.
    pub(crate) fn new(config: &Config, run: u64, url: String) -> Self {
        Self {
            run,
            url,
            is_shared: config.database.is_server(),
            change: 0,
            others: BTreeMap::new(),
            routers: BTreeMap::new(),
            told: BTreeSet::new(),
            beat_at: None,
            heard_at: None,
            timeout: Duration::from_nanos(config.controller.router_timeout_ns),
        }
    }

    /// Takes note of who runs. While the database did not say so nobody was silent.
    pub(crate) fn hear(&mut self, sharers: Vec<Sharer>, now: Instant) {
        let last = self.heard_at.replace(now).unwrap_or(now);
        let unheard = now.duration_since(last).saturating_sub(HEARD_EVERY);
        let mut former = std::mem::take(&mut self.others);
        former.values_mut().for_each(|(_, at)| *at += unheard);
        for sharer in sharers.into_iter().filter(|sharer| sharer.run != self.run) {
            let at = match former.remove(&sharer.run) {
                Some((known, at)) if known == sharer => at,
                _ => now,
            };
            self.others.insert(sharer.run, (sharer, at));
        }
    }

    /// Whether another controller runs, as far as is known.
    pub(crate) fn is_alive(&self, run: u64, now: Instant) -> bool {
        let other = self.others.get(&run).filter(|_| self.is_shared);
        other.is_some_and(|(_, at)| now.duration_since(*at) <= self.timeout)
    }

    /// The routers that others hear.
    pub(crate) fn elsewhere(&self, now: Instant) -> BTreeSet<String> {
        let is_heard = |(_, run): &(&String, &u64)| self.is_alive(**run, now);
        self.routers.iter().filter(is_heard).map(|(name, _)| name.clone()).collect()
    }
}
