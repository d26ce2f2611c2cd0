//! Beside other controllers of the same network. There is no leader: each decides for the routers
//! that report to it, and takes over what the others have planned. A controller that hears fewer
//! routers than the others waits (decision 0028).

use alloc::collections::BTreeSet;
use alloc::string::String;

use weir_base::Instant;
use weir_wire::Name;

use super::{Beginning, Controller};
use crate::plan::Plan;

impl Controller {
    /// Other controllers hear these routers, as far as is known. Plans that speak of them stay as
    /// they are while these are not here.
    pub fn hear_elsewhere(&mut self, routers: BTreeSet<String>) {
        let before = core::mem::replace(&mut self.elsewhere, routers);
        if self.network.routers.is_empty() || self.is_waiting() {
            return;
        }
        let silent = before.into_iter().filter(|router| !self.is_heard(router)).collect();
        self.repair(&silent);
    }

    /// Another controller has made a plan. It is in force if it is newer than what is, or `counts`
    /// in any case: if what is here was refused as it did not follow the newest one.
    pub fn adopt(&mut self, plan: Plan, counts: bool) {
        self.generation = self.generation.max(plan.number);
        let own = self.map.plan(&plan.object).map(|active| active.plan.number);
        if own.is_some_and(|own| own == plan.number || own > plan.number && !counts) {
            return;
        }
        let file = self.map.objects.file(&plan.object).cloned();
        match file.filter(|_| !plan.is_end()) {
            Some(file) => self.put_in_force(&file, plan),
            None => self.end_plan(&plan.object),
        }
    }

    /// A file was withdrawn at another controller, which tells of the end of its plan.
    pub fn forget_file(&mut self, name: &Name) {
        self.map.objects.remove_file(name);
        self.demand.forget(name);
        self.end_plan(name);
    }

    /// Whether any controller hears a router.
    pub(super) fn is_heard(&self, router: &str) -> bool {
        self.network.routers.contains_key(router) || self.elsewhere.contains(router)
    }

    /// Whether it begins, waits, or has begun.
    pub(super) fn tick_beginning(&mut self, now: Instant) {
        let here = &self.network.routers;
        if here.is_empty() {
            if !self.elsewhere.is_empty() {
                // Who comes next has a configuration of somebody else.
                self.beginning = Beginning::Fresh;
            }
            return;
        }
        let others = self.elsewhere.iter().filter(|router| !here.contains_key(*router)).count();
        if others > here.len() {
            // What these have is of who knows more. They keep it.
            let until = now.plus_ns(self.config.router_timeout_ns);
            self.beginning = Beginning::Waits { until };
            return;
        }
        match self.beginning {
            Beginning::Fresh if now.as_ns() > self.config.router_timeout_ns => {
                self.beginning = Beginning::Over;
                self.take_up_plans();
            }
            Beginning::Waits { until } if now >= until => self.begin(),
            Beginning::Fresh | Beginning::Waits { .. } | Beginning::Over => {}
        }
    }

    /// Plans anew what routers that are gone were to keep, unless others hear them or nobody is
    /// left to ask for it.
    pub(super) fn repair_lost(&mut self, mut lost: BTreeSet<String>) {
        lost.retain(|router| !self.elsewhere.contains(router));
        if !self.network.routers.is_empty() {
            self.repair(&lost);
        }
    }
}
