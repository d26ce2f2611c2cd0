//! Builds the configuration of one router from plans and routes.

use alloc::borrow::ToOwned;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::cmp::Reverse;

use weir_wire::Name;

use super::config::ControllerConfig;
use super::routes::Routing;
use crate::data_map::{ActivePlan, DataMap};
use crate::message::{
    Configuration, Distribution, PartOrder, Peer, Prefetch, Retention, StoreRule,
};
use crate::network::Network;
use crate::placement::{DISTANCE_TOLERANCE_NS, Placement};
use crate::plan::{Part, Plan, Share};
use crate::segments::Segments;

/// Maximum number of store rules in a configuration.
pub(super) const RULES_MAX: usize = 4096;

/// Everything that a configuration is built from.
pub(super) struct ConfigurationSources<'a> {
    pub(super) config: &'a ControllerConfig,
    pub(super) network: &'a Network,
    pub(super) map: &'a DataMap,
    pub(super) routing: &'a Routing,
}

impl ConfigurationSources<'_> {
    /// The configuration of a router. None if it is unknown or has none yet.
    pub(super) fn configuration(&self, name: &str) -> Option<Configuration> {
        let router = self.network.routers.get(name).filter(|router| router.generation > 0)?;
        let routes = self.routing.routes_of(self.network, router.id);
        let mut configuration = Configuration {
            generation: router.generation,
            parent: router.parent,
            routes,
            ..Configuration::default()
        };
        for active in self.map.plans_of(name) {
            self.add_plan(name, active, &mut configuration);
        }
        // Rules that keep segments go before rules that refuse them, and large files before small
        // ones: without a rule, a small file takes the least space from others.
        if configuration.rules.len() > RULES_MAX {
            let segments = |rule: &StoreRule| {
                self.map.objects.file(&rule.object).map_or(0, |file| file.segments)
            };
            configuration.rules.sort_by_cached_key(|rule| {
                let is_refused = matches!(rule.retention, Retention::Refuse);
                (is_refused, Reverse(segments(rule)))
            });
            configuration.rules.truncate(RULES_MAX);
            let kept = |rule: &StoreRule| {
                let is_kept = matches!(rule.retention, Retention::Keep { .. });
                is_kept.then(|| (rule.object.clone(), rule.first))
            };
            // A router must not prefetch what it has no rule to keep.
            let kept: BTreeSet<_> = configuration.rules.iter().filter_map(kept).collect();
            configuration
                .prefetch
                .retain(|order| kept.contains(&(order.object.clone(), order.first)));
        }
        // The router needs the address of each router that its routes and next hops mention.
        let routes = configuration.routes.iter().map(|route| route.router.as_str());
        let distributions = configuration.distributions.iter().flat_map(Distribution::routers);
        let peers: BTreeSet<&str> = routes.chain(distributions).collect();
        configuration.peers = peers.into_iter().filter_map(|peer| self.peer(peer)).collect();
        Some(configuration)
    }

    /// Adds the rules, prefetch orders and next hops of one plan.
    fn add_plan(&self, name: &str, active: &ActivePlan, to: &mut Configuration) {
        let plan = &active.plan;
        let Plan { object, consumers, .. } = plan;
        let is_consumer = consumers.iter().any(|consumer| consumer == name);
        let own = plan.parts.iter().filter(|part| part.router == name);
        for part in own {
            let is_read_first = plan.parts.first() == Some(part);
            for kept in active.kept_ranges(part) {
                let (object, first, last) = (kept.name.clone(), kept.first, kept.last);
                let retention = Retention::Keep { bytes_max: kept.packets() * active.bytes_each };
                to.rules.push(StoreRule { object: object.clone(), first, last, retention });
                // The segments that were read before there was a plan are in the part that is read
                // first. The manifest is not: other routers sent it. So it is always prefetched.
                let is_list = object != plan.object;
                let is_ahead = self.config.prefetch_first || !is_read_first || is_list;
                if self.config.prefetch && is_ahead {
                    to.prefetch.push(Prefetch { object, first, last });
                }
            }
        }
        // A shorter range has priority, so this rule refuses only what no rule above keeps.
        if !plan.parts.is_empty() {
            let (first, last) = (0, Segments::LAST_MAX);
            let retention = Retention::Refuse;
            to.rules.push(StoreRule { object: object.clone(), first, last, retention });
        }
        if is_consumer {
            let others = plan.parts.iter().filter(|part| {
                part.router != name
                    && self.network.routers.contains_key(&part.router)
                    && self.should_ask_keeper(name, object, &part.router)
            });
            let order = |part: &Part| PartOrder {
                router: part.router.clone(),
                first: part.first,
                last: part.last,
            };
            let parts: Vec<PartOrder> = others.map(order).collect();
            let is_there = |share: &&Share| self.network.routers.contains_key(&share.router);
            let spread: Vec<Share> = plan.spread.iter().filter(is_there).cloned().collect();
            if !(parts.is_empty() && spread.is_empty()) {
                to.distributions.push(Distribution { object: object.clone(), parts, spread });
            }
        }
    }

    /// Whether a consumer's router should request a part from its keeper. With `LargestFree` it
    /// always does. With the other policies it does not if the producer is nearer than the keeper:
    /// parts are placed for the first consumer, and a later one may be elsewhere.
    fn should_ask_keeper(&self, consumer: &str, object: &Name, keeper: &str) -> bool {
        let ids = (self.network.id_of(consumer), self.network.id_of(keeper));
        let (Placement::Nearest | Placement::ByDemand, (Some(consumer), Some(keeper))) =
            (self.config.placement, ids)
        else {
            return true;
        };
        let paths = self.routing.graph.paths(&[consumer]);
        let producers = self.network.producers_of(object);
        let producer = producers.iter().filter_map(|producer| paths.distance(*producer)).min();
        match (paths.distance(keeper), producer) {
            (Some(keeper), Some(producer)) => keeper < producer + DISTANCE_TOLERANCE_NS,
            _ => true,
        }
    }

    fn peer(&self, name: &str) -> Option<Peer> {
        let router = self.network.routers.get(name)?;
        Some(Peer { router: name.to_owned(), uris: router.report.uris.clone() })
    }
}
