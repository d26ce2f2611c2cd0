//! How a controller begins among routers that have configurations of a former run or of other
//! controllers. There is no leader: each controller decides for the routers that report to it, and
//! takes over what the others have planned. One that hears fewer routers than another one waits
//! (decision 0028).

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;

use weir_base::{Instant, NS_PER_S};

use crate::network::Network;

/// What else the stores of all hold has been reported so long after they have begun to report it.
const TOLD_NS: u64 = NS_PER_S;

/// Whether it has been there long enough to know all routers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// No router has reported a configuration: there is none that could be taken away by mistake.
    Fresh,
    /// Routers have configurations of a former run. They get no others until then, when all that
    /// are there have reported; or until soon after those that are expected have.
    Waits { until: Instant },
    /// All that are not known are gone.
    Over,
}

/// What time brings at the start.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Nothing,
    /// Routers that have not come are gone.
    Over,
    /// The same, and configurations can be given again.
    Begin,
}

/// Which phase it is in, and which routers it knows of only from before or from others.
pub(super) struct Startup {
    phase: Phase,
    /// Routers that were there at the end of a former run, until it has begun.
    expected: BTreeSet<String>,
    /// Routers that other controllers hear, and which of these does.
    elsewhere: BTreeMap<String, u64>,
}

impl Default for Startup {
    fn default() -> Self {
        Self { phase: Phase::Fresh, expected: BTreeSet::new(), elsewhere: BTreeMap::new() }
    }
}

impl Startup {
    pub(super) fn is_waiting(&self) -> bool {
        matches!(self.phase, Phase::Waits { .. })
    }

    /// These routers were there at the end of a former run.
    pub(super) fn expect(&mut self, routers: BTreeSet<String>) {
        self.expected = routers;
    }

    /// Other controllers hear these routers. Returns those that they heard before.
    pub(super) fn set_elsewhere(
        &mut self,
        routers: BTreeMap<String, u64>,
    ) -> BTreeMap<String, u64> {
        core::mem::replace(&mut self.elsewhere, routers)
    }

    pub(super) fn is_elsewhere(&self, router: &str) -> bool {
        self.elsewhere.contains_key(router)
    }

    /// A new router reports that it has a configuration: others may have one that have not come.
    pub(super) fn on_configured_router(&mut self, until: Instant) {
        if self.phase == Phase::Fresh {
            self.phase = Phase::Waits { until };
        }
    }

    /// Goes on to the next phase if it is time. `timeout_ns` is that of routers.
    pub(super) fn tick(&mut self, now: Instant, timeout_ns: u64, network: &Network) -> Step {
        let here = &network.routers;
        if here.is_empty() {
            if !self.elsewhere.is_empty() {
                // The next router to come has a configuration of another controller.
                self.phase = Phase::Fresh;
            }
            return Step::Nothing;
        }
        if self.most_elsewhere(network) > here.len() {
            // What these have is of a controller that knows more. They keep it. Of several that
            // hear equally many none waits: else all would, for ever.
            self.phase = Phase::Waits { until: now.plus_ns(timeout_ns) };
            return Step::Nothing;
        }
        match self.phase {
            Phase::Fresh if now.as_ns() > timeout_ns => Step::Over,
            Phase::Waits { until } if now >= until => Step::Begin,
            Phase::Waits { until } if self.have_all_come(network) => {
                self.phase = Phase::Waits { until: until.min(now.plus_ns(TOLD_NS)) };
                Step::Nothing
            }
            Phase::Fresh | Phase::Waits { .. } | Phase::Over => Step::Nothing,
        }
    }

    /// Ends it. Returns the routers that were expected.
    pub(super) fn end(&mut self) -> BTreeSet<String> {
        self.phase = Phase::Over;
        core::mem::take(&mut self.expected)
    }

    /// Whether all that are expected are here, and have begun to report what they hold; and so have
    /// those that another controller hears, or heard until it ended.
    fn have_all_come(&self, network: &Network) -> bool {
        let has_come = |name: &String| {
            network.routers.get(name).is_some_and(|router| router.expected.number > 1)
        };
        !self.expected.is_empty() && self.expected.iter().chain(self.elsewhere.keys()).all(has_come)
    }

    /// How many routers that are not here the one of the other controllers hears that hears most.
    fn most_elsewhere(&self, network: &Network) -> usize {
        let mut heard: BTreeMap<u64, usize> = BTreeMap::new();
        let is_here = |router: &String| network.routers.contains_key(router);
        for (_, run) in self.elsewhere.iter().filter(|(router, _)| !is_here(router)) {
            *heard.entry(*run).or_default() += 1;
        }
        heard.into_values().max().unwrap_or(0)
    }
}
