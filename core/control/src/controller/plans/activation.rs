//! Puts plans into force and ends them.

use alloc::string::String;
use alloc::vec::Vec;

use weir_wire::Name;

use super::{PlanContext, Plans};
use crate::controller::configuration::RULES_MAX;
use crate::controller::event::Event;
use crate::data_map::ActivePlan;
use crate::file::File;
use crate::limits::LimitKind;
use crate::plan::{Part, Plan, Share};

impl Plans {
    /// Makes a plan that replaces the present plan of the file.
    pub(super) fn make_plan(
        &mut self,
        cx: &mut PlanContext<'_>,
        file: &File,
        parts: Vec<Part>,
        spread: Vec<Share>,
        consumers: Vec<String>,
    ) {
        let number = cx.registry.next_number();
        let object = file.name.clone();
        let parent = self.map.plan(&object).map_or(0, |active| active.plan.number);
        let plan = Plan { number, parent, object, consumers, parts, spread };
        cx.registry.record(Event::Planned(plan.clone()));
        self.activate(cx, file, plan);
    }

    /// Puts a plan into force in place of the present one. All routers that either plan involves
    /// get a new configuration.
    pub(in crate::controller) fn activate(
        &mut self,
        cx: &mut PlanContext<'_>,
        file: &File,
        plan: Plan,
    ) {
        let concerned = self.involved_routers(cx, &plan);
        let touched = concerned.clone();
        let mut active = ActivePlan::new(plan, file, concerned, cx.registry.now);
        if let Some(former) = self.map.plan(&active.plan.object) {
            active.inherit_progress(former);
        }
        let former = self.map.insert_plan(active);
        for router in &touched {
            // More rules than a configuration may have: the operator should know that some are left
            // out.
            let surplus = self.map.rule_counts_of(router).total.saturating_sub(RULES_MAX);
            if surplus > 0 {
                cx.registry.note_limit_exceeded(router, LimitKind::Rules, 1);
            }
        }
        let former = former.map(|former| former.involved).unwrap_or_default();
        for router in touched.union(&former) {
            cx.registry.new_generation(router);
        }
    }

    /// Ends the plan of an object, with a record of the end.
    pub(in crate::controller) fn withdraw(&mut self, cx: &mut PlanContext<'_>, object: &Name) {
        let Some(parent) = self.map.plan(object).map(|active| active.plan.number) else { return };
        let number = cx.registry.next_number();
        let (consumers, parts, spread) = (Vec::new(), Vec::new(), Vec::new());
        let plan = Plan { number, parent, object: object.clone(), consumers, parts, spread };
        cx.registry.record(Event::Planned(plan));
        self.end_plan(cx, object);
    }

    /// Removes the plan of an object, without a record.
    pub(in crate::controller) fn end_plan(&mut self, cx: &mut PlanContext<'_>, object: &Name) {
        if let Some(active) = self.map.remove_plan(object) {
            self.upkeep.note_more_room();
            for router in &active.involved {
                cx.registry.new_generation(router);
            }
        }
    }

    /// Finds the routers on the paths of restored plans, now that paths are known.
    pub(super) fn recompute_involved(&mut self, cx: &mut PlanContext<'_>) {
        let objects: Vec<Name> =
            self.map.plans().map(|active| active.plan.object.clone()).collect();
        for object in objects {
            let Some(mut active) = self.map.remove_plan(&object) else { continue };
            let concerned = self.involved_routers(cx, &active.plan);
            let former = core::mem::replace(&mut active.involved, concerned.clone());
            self.map.insert_plan(active);
            for router in concerned.difference(&former) {
                cx.registry.new_generation(router);
            }
        }
    }
}
