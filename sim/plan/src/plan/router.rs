//! A router's settings as types of the core.

use weir_forward::strategy::{Strategy, StrategyKind};
use weir_link::{ShapingConfig, ShapingError};

use weir_wire::Name;

use super::{CpuPlan, DiskPlan, RouterPlan};
use crate::error::PlanError;

impl RouterPlan {
    /// The strategy of `/`.
    ///
    /// # Errors
    /// No strategy has that name. `name` is the node's.
    pub fn strategy_of_root(&self, name: &str) -> Result<Strategy, PlanError> {
        let refuse = |problem: String| PlanError::Value {
            place: format!("node `{name}`"),
            key: "strategy",
            problem: format!("is `{}`; {problem}", self.strategy),
        };
        if let Ok(kind) = self.strategy.parse::<StrategyKind>() {
            return Ok(kind.into());
        }
        let words = StrategyKind::WORDS;
        let whole: Name = match self.strategy.starts_with('/') {
            true => self.strategy.parse().map_err(|error| refuse(format!("{error}")))?,
            false => return Err(refuse(format!("it must be one of {words:?}, or a whole name"))),
        };
        Strategy::from_name(whole.as_view()).map_err(|error| refuse(error.to_string()))
    }

    /// Checks the marking policy of a router's faces, before a queue of `capacity_bytes` if that is
    /// known.
    ///
    /// # Errors
    /// The policy is invalid for such a queue. `name` is the node's.
    pub fn check_marking(&self, name: &str, capacity_bytes: Option<u64>) -> Result<(), PlanError> {
        self.marking.check(capacity_bytes).map_err(|error| PlanError::Value {
            place: format!("node `{name}`"),
            key: "marking",
            problem: error.to_string(),
        })
    }

    /// The Interest shaping of a router's faces.
    ///
    /// # Errors
    /// The text is no valid choice. `name` is the node's.
    pub fn face_shaping(&self, name: &str) -> Result<ShapingConfig, PlanError> {
        self.shaping.parse().map_err(|error: ShapingError| PlanError::Value {
            place: format!("node `{name}`"),
            key: "shaping",
            problem: error.to_string(),
        })
    }
}

impl RouterPlan {
    /// The first key that differs from another router's plan, if both name the same shared disk or
    /// machine.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_strategy_is_a_word_or_a_whole_name() {
        let strategy = |text: &str| {
            let plan = RouterPlan { strategy: text.into(), ..RouterPlan::default() };
            plan.strategy_of_root("r").map(|strategy| strategy.name().to_string())
        };
        let best_route = "/localhost/nfd/strategy/best-route/v=5";
        assert_eq!(strategy("best-route").unwrap(), best_route);
        let held = format!("{best_route}/retx-suppression-initial~200");
        assert_eq!(strategy(&held).unwrap(), held);
        for (bad, problem) in [
            ("best", "one of"),
            ("/localhost/nfd/strategy/best", "no strategy"),
            ("/localhost/nfd/strategy/best-route/v=5/colour~3", "colour~3"),
        ] {
            let error = strategy(bad).unwrap_err().to_string();
            assert!(error.contains(problem), "{error}");
        }
    }
}
