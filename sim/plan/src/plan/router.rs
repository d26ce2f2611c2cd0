//! A router's settings as the core has them.

use weir_forward::strategy::{Strategy, StrategyKind};
use weir_link::{ChoiceError, DisciplineConfig, MarkingPolicy, ShapingConfig, ShapingError};

use super::{CpuPlan, DiskPlan, RouterPlan};
use crate::error::PlanError;

impl RouterPlan {
    /// A router's strategy of `/`.
    ///
    /// # Errors
    /// There is no strategy of that name; `name` is the node's.
    pub fn strategy_of_root(&self, name: &str) -> Result<Strategy, PlanError> {
        let kind = self.strategy.parse::<StrategyKind>().map_err(|_| PlanError::Value {
            place: format!("node `{name}`"),
            key: "strategy",
            problem: format!("is `{}`; it must be one of {:?}", self.strategy, StrategyKind::WORDS),
        })?;
        Ok(kind.into())
    }

    /// How a router's faces mark and queue, before a queue that holds `capacity_bytes` if that is
    /// known.
    ///
    /// # Errors
    /// A text chooses nothing, or what contradicts itself before such a queue; `name` is the
    /// node's.
    pub fn egress(
        &self,
        name: &str,
        capacity_bytes: Option<u64>,
    ) -> Result<(MarkingPolicy, DisciplineConfig), PlanError> {
        let failed = |key, error: ChoiceError| PlanError::Value {
            place: format!("node `{name}`"),
            key,
            problem: format!("cannot be: {error}"),
        };
        let marking: MarkingPolicy =
            self.marking.parse().map_err(|error| failed("marking", error))?;
        marking.check(capacity_bytes).map_err(|error| failed("marking", error))?;
        Ok((marking, self.discipline.parse().map_err(|error| failed("discipline", error))?))
    }

    /// How a router's faces shape the Interests that come in.
    ///
    /// # Errors
    /// The text chooses nothing; `name` is the node's.
    pub fn face_shaping(&self, name: &str) -> Result<ShapingConfig, PlanError> {
        self.shaping.parse().map_err(|error: ShapingError| PlanError::Value {
            place: format!("node `{name}`"),
            key: "shaping",
            problem: format!("cannot be: {error}"),
        })
    }
}

impl RouterPlan {
    /// Which key is not the same in another router's plan, although both name the same shared disk
    /// or the same machine.
    #[must_use]
    pub fn conflict_with(&self, other: &Self) -> Option<&'static str> {
        let disks = self.disk.as_ref().zip(other.disk.as_ref());
        let is_shared = |(one, two): &(&DiskPlan, &DiskPlan)| {
            one.shared_as.is_some() && one.shared_as == two.shared_as
        };
        if disks.filter(is_shared).is_some_and(|(one, two)| one.device != two.device) {
            return Some("disk.device");
        }
        let cpu = |plan: &Self| plan.stages.as_ref()?.cpu.clone();
        let cpus = cpu(self).zip(cpu(other));
        let is_same =
            |(one, two): &(CpuPlan, CpuPlan)| one.machine.is_some() && one.machine == two.machine;
        let differs = cpus.filter(is_same).is_some_and(|(one, two)| one.cores != two.cores);
        differs.then_some("stages.cpu.cores")
    }
}
