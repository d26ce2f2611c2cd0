//! The start of a controller among routers that have configurations of an earlier run or of other
//! controllers.
//!
//! A new controller knows too little at first: a configuration that it gives now would lack the
//! paths to routers that have not reported yet. So it waits until all routers have had time to
//! report.
//!
//! There is no leader. Each controller decides for the routers that report to it, and adopts the
//! plans of the others. A controller with fewer routers than another one waits
//! (docs/decisions/0028).

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;

use weir_base::{Instant, NS_PER_S};

use crate::network::Network;

/// When all expected routers have begun to report their holdings, the controller waits this much
/// longer for the rest of the holdings.
const HOLDINGS_GRACE_NS: u64 = NS_PER_S;

/// The phase of the start.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// No router has reported a configuration. So no configuration can be replaced by a worse one,
    /// and the controller gives configurations at once.
    Fresh,
    /// A router has a configuration of an earlier run. Routers get no other configuration until
    /// `until`, or until shortly after all expected routers have reported.
    Waiting { until: Instant },
    /// All routers that have not reported by now are lost.
    Done,
}

/// The result of a tick.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum StartupStep {
    Nothing,
    /// The start is over: routers that have not reported are lost.
    Finish,
    /// The same, and routers get configurations again.
    FinishAndConfigure,
}

/// The phase, and the routers that are known only from an earlier run or from other controllers.
pub(super) struct Startup {
    phase: Phase,
    /// Routers that were present at the end of an earlier run; empty after the start.
    expected: BTreeSet<String>,
    /// Routers that report to other controllers, with the number of that controller.
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

    /// Sets the routers that were present at the end of an earlier run.
    pub(super) fn expect(&mut self, routers: BTreeSet<String>) {
        self.expected = routers;
    }

    /// Sets the routers that report to other controllers. Returns the former ones.
    pub(super) fn set_heard_elsewhere(
        &mut self,
        routers: BTreeMap<String, u64>,
    ) -> BTreeMap<String, u64> {
        core::mem::replace(&mut self.heard_elsewhere, routers)
    }

    pub(super) fn is_heard_elsewhere(&self, router: &str) -> bool {
        self.heard_elsewhere.contains_key(router)
    }

    /// A new router reports that it has a configuration. So other routers may have one as well and
    /// may not have reported yet.
    pub(super) fn on_configured_router(&mut self, until: Instant) {
        if self.phase == Phase::Fresh {
            self.phase = Phase::Waiting { until };
        }
    }

    /// Enters the next phase if it is time. `timeout_ns` is the timeout of routers.
    pub(super) fn tick(&mut self, now: Instant, timeout_ns: u64, network: &Network) -> StartupStep {
        let present = &network.routers;
        if present.is_empty() {
            if !self.heard_elsewhere.is_empty() {
                // The next router that reports here will have a configuration of another
                // controller.
                self.phase = Phase::Fresh;
            }
            return StartupStep::Nothing;
        }
        if self.max_heard_by_one_other(network) > present.len() {
            // Another controller has more routers than this one, so it knows more. Its
            // configurations stay in the routers here. If several controllers have equally many,
            // none waits: otherwise all of them would, for ever.
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

    /// Ends the start. Returns the expected routers.
    pub(super) fn end(&mut self) -> BTreeSet<String> {
        self.phase = Phase::Done;
        core::mem::take(&mut self.expected)
    }

    /// Whether all expected routers, and all routers of other controllers, report here and have
    /// begun to report their holdings. False if there are none, because nothing is known then.
    fn have_all_reported(&self, network: &Network) -> bool {
        let has_come = |name: &String| {
            network.routers.get(name).is_some_and(|router| router.expected.number > 1)
        };
        let mut known = self.expected.iter().chain(self.heard_elsewhere.keys()).peekable();
        known.peek().is_some() && known.all(has_come)
    }

    /// The largest number of routers that one other controller has and that do not report here.
    fn max_heard_by_one_other(&self, network: &Network) -> usize {
        let mut counts: BTreeMap<u64, usize> = BTreeMap::new();
        let is_here = |router: &String| network.routers.contains_key(router);
        for (_, run) in self.heard_elsewhere.iter().filter(|(router, _)| !is_here(router)) {
            *counts.entry(*run).or_default() += 1;
        }
        counts.into_values().max().unwrap_or(0)
    }
}
