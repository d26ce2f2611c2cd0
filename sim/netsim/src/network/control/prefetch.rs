//! Consumers that fetch objects for a router before anyone requests them, on the controller's
//! order.

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_control::message::Prefetch;
use weir_plan::app::App;
use weir_plan::workload::{Collection, ConsumerPlan, Demand, Popularity, WorkloadError};
use weir_plan::{Plan, Role};
use weir_transport::Controllers;

struct Prefetcher {
    node: u32,
    plan: ConsumerPlan,
    seed: u64,
    ordered: Vec<Prefetch>,
}

/// All prefetching consumers, by the router that each serves.
pub(super) struct Prefetchers {
    by_router: BTreeMap<u32, Prefetcher>,
    controllers: Controllers,
    /// When consumers stop, ns.
    duration_ns: u64,
}

impl Prefetchers {
    pub(super) fn new(plan: &Plan, controllers: Controllers) -> Self {
        let mut prefetchers = BTreeMap::new();
        for link in &plan.links {
            for (node, router) in [(link.a, link.b), (link.b, link.a)] {
                if let Role::Consumer(consumer) = &plan.nodes[node].role
                    && consumer.prefetches
                {
                    let prefetcher = Prefetcher {
                        node: node as u32,
                        plan: consumer.clone(),
                        seed: plan.app_seed(node),
                        ordered: Vec::new(),
                    };
                    prefetchers.insert(router as u32, prefetcher);
                }
            }
        }
        Self { by_router: prefetchers, controllers, duration_ns: plan.duration_ns }
    }

    /// Whether a node is a prefetching consumer.
    pub(super) fn contains(&self, node: u32) -> bool {
        self.by_router.values().any(|one| one.node == node)
    }

    /// The consumers of the ranges newly ordered at a router, each with its node.
    pub(super) fn order(
        &mut self,
        router: u32,
        orders: &[Prefetch],
    ) -> Result<Vec<(u32, App)>, String> {
        let Some(prefetcher) = self.by_router.get_mut(&router) else { return Ok(Vec::new()) };
        let mut apps = Vec::new();
        for order in orders {
            let app = prefetcher.order(order, self.controllers, self.duration_ns)?;
            apps.extend(app.map(|app| (prefetcher.node, app)));
        }
        Ok(apps)
    }
}

impl Prefetcher {
    /// The consumer of one newly ordered range.
    fn order(
        &mut self,
        order: &Prefetch,
        controllers: Controllers,
        duration_ns: u64,
    ) -> Result<Option<App>, String> {
        if self.ordered.contains(order) {
            return Ok(None);
        }
        self.ordered.push(order.clone());
        let failed = |error: WorkloadError| error.to_string();
        let collection = Collection::new(&self.plan.names).map_err(failed)?;
        // The number of the object follows from the name of any of its segments.
        let mut name = order.object.clone();
        name.append_segment(order.first);
        let Some(asked) = collection.naming().parse(name.value()) else { return Ok(None) };
        let object = asked.object;
        let requests: Arc<[(u64, u64)]> =
            (order.first..=order.last).map(|segment| (object, segment)).collect();
        let mut plan = self.plan.clone();
        match &mut plan.demand {
            Demand::Window { count, .. } | Demand::Controlled { count, .. } => {
                *count = Some(requests.len() as u64);
            }
            Demand::Arrivals { .. } | Demand::Objects { .. } | Demand::Live { .. } => {}
        }
        plan.names.popularity = Popularity::Trace { requests };
        App::new(&Role::Consumer(plan), controllers, duration_ns, self.seed).map_err(failed)
    }
}
