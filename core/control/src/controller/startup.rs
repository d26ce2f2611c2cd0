//! How a controller begins among routers that have configurations of a former run or of other
//! controllers. There is no leader: each controller decides for the routers that report to it, and
//! takes over what the others have planned. One that hears fewer routers than another one waits
//! (decision 0028).

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;

use weir_base::{Instant, NS_PER_S};

use crate::network::Network;

/// What else the stores of all hold has been reported so long after they have begun to report it.
const HOLDINGS_GRACE_NS: u64 = NS_PER_S;

/// Whether it has been there long enough to know all routers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// No router has reported a configuration: there is none that could be taken away by mistake.
    Fresh,
    /// Routers have configurations of a former run. They get no others until then, when all that
    /// are there have reported; or until soon after those that are expected have.
    Waiting { until: Instant },
    /// All that are not known are gone.
    Done,
}

/// What time brings at the start.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum StartupStep {
    Nothing,
    /// Routers that have not come are gone.
    Finish,
    /// The same, and configurations can be given again.
    FinishAndConfigure,
}

/// Which phase it is in, and which routers it knows of only from before or from others.
pub(super) struct Startup {
    phase: Phase,
    /// Routers that were there at the end of a former run, until it has begun.
    expected: BTreeSet<String>,
    /// Routers that other controllers hear, and which of these does.
    heard_elsewhere: BTreeMap<String, u64>,
}

impl Default for Startup {
    fn default() -> Self {
        Self { phase: Phase::Fresh, expected: BTreeSet::new(), heard_elsewhere: BTreeMap::new() }
    }
}

impl Startup {
    pub(super) fn is_waiting(&self) -> bool {
        matches!(self.phase, Phase::Waiting { .. })
    }

    /// These routers were there at the end of a former run.
    pub(super) fn expect(&mut self, routers: BTreeSet<String>) {
        self.expected = routers;
    }

    /// Other controllers hear these routers. Returns those that they heard before.
    pub(super) fn set_heard_elsewhere(
        &mut self,
        routers: BTreeMap<String, u64>,
    ) -> BTreeMap<String, u64> {
        core::mem::replace(&mut self.heard_elsewhere, routers)
    }

    pub(super) fn is_heard_elsewhere(&self, router: &str) -> bool {
        self.heard_elsewhere.contains_key(router)
    }

    /// A new router reports that it has a configuration: others may have one that have not come.
    pub(super) fn on_configured_router(&mut self, until: Instant) {
        if self.phase == Phase::Fresh {
            self.phase = Phase::Waiting { until };
        }
    }

    /// Goes on to the next phase if it is time. `timeout_ns` is that of routers.
    pub(super) fn tick(&mut self, now: Instant, timeout_ns: u64, network: &Network) -> StartupStep {
        let here = &network.routers;
        if here.is_empty() {
            if !self.heard_elsewhere.is_empty() {
                // The next router to come has a configuration of another controller.
                self.phase = Phase::Fresh;
            }
            return StartupStep::Nothing;
        }
        if self.max_heard_by_one_other(network) > here.len() {
            // What these have is of a controller that knows more. They keep it. Of several that
            // hear equally many none waits: else all would, for ever.
            self.phase = Phase::Waiting { until: now.plus_ns(timeout_ns) };
            return StartupStep::Nothing;
        }
        match self.phase {
            Phase::Fresh if now.as_ns() > timeout_ns => StartupStep::Finish,
            Phase::Waiting { until } if now >= until => StartupStep::FinishAndConfigure,
            Phase::Waiting { until } if self.have_all_reported(network) => {
                self.phase = Phase::Waiting { until: until.min(now.plus_ns(HOLDINGS_GRACE_NS)) };
                StartupStep::Nothing
            }
            Phase::Fresh | Phase::Waiting { .. } | Phase::Done => StartupStep::Nothing,
        }
    }

    /// Ends it. Returns the routers that were expected.
    pub(super) fn end(&mut self) -> BTreeSet<String> {
        self.phase = Phase::Done;
        core::mem::take(&mut self.expected)
    }

    /// Whether all that are expected are here, and have begun to report what they hold; and so have
    /// those that another controller hears, or heard until it ended.
    fn have_all_reported(&self, network: &Network) -> bool {
        let has_come = |name: &String| {
            network.routers.get(name).is_some_and(|router| router.expected.number > 1)
        };
        !self.expected.is_empty()
            && self.expected.iter().chain(self.heard_elsewhere.keys()).all(has_come)
    }

    /// How many routers that are not here the one of the other controllers hears that hears most.
    fn max_heard_by_one_other(&self, network: &Network) -> usize {
        let mut heard: BTreeMap<u64, usize> = BTreeMap::new();
        let is_here = |router: &String| network.routers.contains_key(router);
        for (_, run) in self.heard_elsewhere.iter().filter(|(router, _)| !is_here(router)) {
            *heard.entry(*run).or_default() += 1;
        }
        heard.into_values().max().unwrap_or(0)
    }
}
