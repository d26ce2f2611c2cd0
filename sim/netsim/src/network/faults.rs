//! The faults of a plan: when they begin and end, and how long they explain a lack of progress.

use weir_base::Instant;

use super::queue::DueEvent;
use super::timeline::Timeline;
use weir_plan::{Fault, FaultPlan};

pub(super) struct Faults {
    plans: Vec<FaultPlan>,
    excused_until_ns: u64,
}

/// The begin or end of a fault.
pub(super) struct FaultChange {
    /// Index of the fault in the plan.
    pub(super) index: u32,
    pub(super) fault: Fault,
    pub(super) begins: bool,
    pub(super) ends_at: Instant,
}

impl Faults {
    pub(super) fn new(plans: Vec<FaultPlan>) -> Self {
        Self { plans, excused_until_ns: 0 }
    }

    /// Schedules the begin and the end of each fault.
    pub(super) fn schedule(&self, timeline: &mut Timeline) {
        for (index, FaultPlan { at_ns, fault }) in self.plans.iter().enumerate() {
            timeline.schedule(*at_ns, DueEvent::Fault(2 * index as u32));
            let ends_ns = at_ns.saturating_add(fault.for_ns());
            timeline.schedule(ends_ns, DueEvent::Fault(2 * index as u32 + 1));
        }
    }

    /// Begins or ends fault `number / 2`.
    pub(super) fn change(&mut self, number: u32) -> FaultChange {
        let (index, begins) = (number / 2, number.is_multiple_of(2));
        let FaultPlan { at_ns, fault } = self.plans[index as usize].clone();
        let ends_ns = at_ns.saturating_add(fault.for_ns());
        self.excused_until_ns = self.excused_until_ns.max(ends_ns);
        FaultChange { index, fault, begins, ends_at: Instant::from_ns(ends_ns) }
    }

    /// When the latest fault that has begun ends, ns.
    pub(super) fn effects_end_ns(&self) -> u64 {
        self.excused_until_ns
    }
}
