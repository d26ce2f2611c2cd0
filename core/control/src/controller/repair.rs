//! Plans whose routers are gone.

use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;

use weir_wire::Name;

use super::Controller;
use crate::data_map::ActivePlan;
use crate::placement::place;
use crate::plan::{Part, Plan};

impl Controller {
    /// Plans of a former run: now that paths are known, so are the routers between, and what was
    /// given to routers that have not come back is planned anew.
    pub(super) fn take_up_plans(&mut self) {
        let plans: Vec<(Plan, u64)> =
            self.map.plans().map(|active| (active.plan.clone(), active.bytes_each)).collect();
        for (plan, bytes_each) in plans {
            let concerned = self.concerned(&plan);
            let touched = concerned.clone();
            let former = self.map.insert_plan(ActivePlan { plan, bytes_each, concerned });
            let former = former.map(|former| former.concerned).unwrap_or_default();
            for router in touched.difference(&former) {
                self.touch(router);
            }
        }
        let named = self.map.plans().flat_map(|active| {
            let parts = active.plan.parts.iter().map(|part| &part.router);
            parts.chain(active.plan.spread.iter().map(|share| &share.router))
        });
        let is_gone = |router: &&String| !self.network.routers.contains_key(*router);
        let gone: BTreeSet<String> = named.filter(is_gone).cloned().collect();
        let gone: Vec<String> = gone.into_iter().collect();
        self.repair(&gone);
    }

    /// Plans anew what routers that are gone were to keep. What others keep stays where it is.
    pub(super) fn repair(&mut self, lost: &[String]) {
        let is_hit = |active: &&ActivePlan| {
            let Plan { parts, spread, .. } = &active.plan;
            parts.iter().any(|part| lost.contains(&part.router))
                || spread.iter().any(|share| lost.contains(&share.router))
        };
        let hit: Vec<Name> =
            self.map.plans().filter(is_hit).map(|active| active.plan.object.clone()).collect();
        for object in hit {
            let Some(file) = self.map.files.get(&object).cloned() else { continue };
            let Some(active) = self.map.plan(&object) else { continue };
            let mut consumers = active.plan.consumers.clone();
            consumers.retain(|consumer| !lost.contains(consumer));
            let mut spread = active.plan.spread.clone();
            spread.retain(|share| !lost.contains(&share.router));
            let (gone, parts): (Vec<Part>, Vec<Part>) =
                active.plan.parts.iter().cloned().partition(|part| lost.contains(&part.router));
            let Some(consumer) =
                consumers.first().cloned().filter(|_| !(parts.is_empty() && spread.is_empty()))
            else {
                // Nobody asks at present, or nothing is left: who asks next gets a new plan.
                self.withdraw(&object);
                continue;
            };
            self.make_plan(&file, parts, spread.clone(), consumers.clone());
            for part in gone {
                let candidates = self.candidates(&consumer, &object, &file);
                let range = (part.first, part.last);
                let more = place(self.config.placement, &file, range, candidates);
                let Some(active) = self.map.plan(&object) else { break };
                let mut parts = active.plan.parts.clone();
                parts.extend(more);
                parts.sort_by_key(|part| part.first);
                self.make_plan(&file, parts, spread.clone(), consumers.clone());
            }
        }
    }
}
