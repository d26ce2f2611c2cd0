//! Beside other controllers of the same network. There is no leader: each decides for the routers
//! that report to it, and takes over what the others have planned. A controller that hears fewer
//! routers than one of the others waits (decision 0028).

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;

use weir_base::{Instant, NS_PER_S};
use weir_wire::Name;

use super::{Beginning, Controller, Event};
use crate::plan::Plan;

/// What else the stores of all hold has been told so long after they have begun to tell it.
const TOLD_NS: u64 = NS_PER_S;

impl Controller {
    /// Other controllers hear these routers, as far as is known, each with the number of the one
    /// that does. Plans that speak of them stay as they are while these are not here.
    pub fn hear_elsewhere(&mut self, routers: BTreeMap<String, u64>) {
        let before = core::mem::replace(&mut self.elsewhere, routers);
        if self.network.routers.is_empty() || self.is_waiting() {
            return;
        }
        let silent = before.into_keys().filter(|router| !self.is_heard(router)).collect();
        self.repair(&silent);
    }

    /// These routers were there at the end of a former run. Once all of them are here again, nobody
    /// is waited for: one that has begun anew meanwhile has nothing until then.
    pub fn expect(&mut self, routers: BTreeSet<String>) {
        self.expected = routers;
    }

    /// Whether all that are expected are here, and have begun to tell what they hold; and so have
    /// those that another controller hears, or heard until it ended.
    fn have_all_come(&self) -> bool {
        let here = &self.network.routers;
        let has_come =
            |name: &String| here.get(name).is_some_and(|router| router.expected.number > 1);
        !self.expected.is_empty() && self.expected.iter().chain(self.elsewhere.keys()).all(has_come)
    }

    /// Who was expected and has not come is lost.
    pub(super) fn end_beginning(&mut self) {
        self.beginning = Beginning::Over;
        for router in core::mem::take(&mut self.expected) {
            if !self.is_heard(&router) {
                self.events.push(Event::RouterLost { router });
            }
        }
    }

    /// How many routers that are not here the one of the other controllers hears that hears most.
    fn most_elsewhere(&self) -> usize {
        let mut heard: BTreeMap<u64, usize> = BTreeMap::new();
        let here = &self.network.routers;
        for (_, run) in self.elsewhere.iter().filter(|(router, _)| !here.contains_key(*router)) {
            *heard.entry(*run).or_default() += 1;
        }
        heard.into_values().max().unwrap_or(0)
    }

    /// Another controller has made a plan. It is in force if it is newer than what is, or `counts`
    /// in any case: if what is here was refused as it did not follow the newest one. One that
    /// cannot be for its file is not, nor one for a file of which there is a newer version: who
    /// made it did not know of that yet, and will end it.
    pub fn adopt(&mut self, plan: Plan, counts: bool) {
        self.generation = self.generation.max(plan.number);
        let own = self.map.plan(&plan.object).map(|active| active.plan.number);
        if own.is_some_and(|own| own == plan.number || own > plan.number && !counts) {
            return;
        }
        let file = self.map.objects.file(&plan.object).cloned();
        if file.as_ref().is_some_and(|file| !plan.is_possible(file.segments)) {
            return;
        }
        let gives_way = self.newer_version(&plan.object).is_some();
        match file.filter(|_| !plan.is_end() && !gives_way) {
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
        self.network.routers.contains_key(router) || self.elsewhere.contains_key(router)
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
        if self.most_elsewhere() > here.len() {
            // What these have is of who knows more. They keep it. Of several that hear equally many
            // none waits: else all would, for ever.
            let until = now.plus_ns(self.config.router_timeout_ns);
            self.beginning = Beginning::Waits { until };
            return;
        }
        match self.beginning {
            Beginning::Fresh if now.as_ns() > self.config.router_timeout_ns => {
                self.end_beginning();
                self.take_up_plans();
            }
            Beginning::Waits { until } if now >= until => self.begin(),
            Beginning::Waits { until } if self.have_all_come() => {
                let until = until.min(now.plus_ns(TOLD_NS));
                self.beginning = Beginning::Waits { until };
            }
            Beginning::Fresh | Beginning::Waits { .. } | Beginning::Over => {}
        }
    }

    /// Plans anew what routers that are gone were to keep, unless others hear them or nobody is
    /// left to ask for it.
    pub(super) fn repair_lost(&mut self, mut lost: BTreeSet<String>) {
        lost.retain(|router| !self.elsewhere.contains_key(router));
        if !self.network.routers.is_empty() {
            self.repair(&lost);
        }
    }
}
