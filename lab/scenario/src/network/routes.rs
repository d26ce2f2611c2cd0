//! Routes: the shortest ones to producers, and those that a scenario gives.

use std::collections::BTreeMap;

use serde::Deserialize;
use weir_plan::workload::Collection;
use weir_plan::{Role, RoutePlan};
use weir_topology::{Metric, RoutePlanner};

use super::Builder;
use crate::disk;
use crate::document::ScenarioError;
use crate::trial::Trial;

/// `[routes]`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(expecting = "a table", deny_unknown_fields, default)]
pub(crate) struct RoutesTable {
    metric: MetricWord,
    only_given: bool,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum MetricWord {
    #[default]
    Delay,
    Cost,
    Hops,
}

/// `[[route]]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(expecting = "a table", deny_unknown_fields)]
pub(crate) struct RouteTable {
    at: String,
    to: String,
    prefix: Option<String>,
    of: Option<String>,
    objects: Option<Vec<(u64, u64)>>,
    #[serde(default)]
    cost: u64,
}

impl Builder<'_> {
    pub(crate) fn routes(
        &mut self,
        table: &RoutesTable,
        given: &[RouteTable],
    ) -> Result<(), ScenarioError> {
        if !table.only_given {
            self.shortest(match table.metric {
                MetricWord::Delay => Metric::Delay,
                MetricWord::Cost => Metric::Cost,
                MetricWord::Hops => Metric::Hops,
            });
        }
        for (at, route) in given.iter().enumerate() {
            self.given(&format!("route[{at}]"), route)?;
        }
        Ok(())
    }

    fn shortest(&mut self, metric: Metric) {
        let forwards: Vec<bool> = self.router_of.iter().map(Option::is_some).collect();
        let planner = RoutePlanner::new(&self.topology, metric).through(|node| forwards[node]);
        let mut known: BTreeMap<usize, weir_topology::Routes> = BTreeMap::new();
        // If several producers have one prefix, a router keeps the lowest cost of each link.
        let mut costs: BTreeMap<(usize, String, usize), u64> = BTreeMap::new();
        for (prefix, router, link) in &self.attached {
            let routes = known.entry(*router).or_insert_with(|| planner.routes_to(*router));
            for (node, plan_node) in self.router_of.iter().enumerate() {
                let Some(plan_node) = *plan_node else { continue };
                let hop = match (node == *router, routes.next[node]) {
                    (true, _) => Some((*link, 0)),
                    (false, Some(hop)) => self.link_of[hop.link].zip(routes.distance[node]),
                    (false, None) => None,
                };
                if let Some((link, cost)) = hop {
                    let least = costs.entry((plan_node, prefix.clone(), link)).or_insert(cost);
                    *least = cost.min(*least);
                }
            }
        }
        let routes = costs.into_iter();
        self.routes.extend(routes.map(|((node, prefix, link), cost)| RoutePlan {
            node,
            prefix,
            link,
            cost,
        }));
    }

    fn given(&mut self, path: &str, route: &RouteTable) -> Result<(), ScenarioError> {
        let error = |key: &str, message: &str| self.tree.error(&format!("{path}.{key}"), message);
        let node = self.plan_node(&format!("{path}.at"), &route.at)?;
        let to = self.plan_node(&format!("{path}.to"), &route.to)?;
        let link = self.link_between(node, to).ok_or_else(|| {
            let message = format!(
                "no link connects \"{}\" and \"{}\"; name two neighbours",
                route.at, route.to
            );
            error("to", &message)
        })?;
        if !matches!(self.nodes[node].role, Role::Router(_)) {
            return Err(error(
                "at",
                &format!("\"{}\" is not a router and has no routes", route.at),
            ));
        }
        let prefixes = match (&route.prefix, &route.of, &route.objects) {
            (Some(prefix), None, None) => vec![prefix.clone()],
            (None, Some(of), Some(objects)) => self.object_prefixes(path, of, objects)?,
            _ => {
                let message = "a route has either a `prefix`, or `of` with a producer's `objects`, \
                               such as [[0, 49], [100, 149]]; give one or the other";
                return Err(self.tree.error(path, message));
            }
        };
        let cost = route.cost;
        let route = |prefix| RoutePlan { node, prefix, link, cost };
        self.routes.extend(prefixes.into_iter().map(route));
        Ok(())
    }

    /// The prefixes of some of a producer's objects.
    fn object_prefixes(
        &self,
        path: &str,
        of: &str,
        objects: &[(u64, u64)],
    ) -> Result<Vec<String>, ScenarioError> {
        let error = |key: &str, message: String| self.tree.error(&format!("{path}.{key}"), message);
        let node = self.plan_node(&format!("{path}.of"), of)?;
        let Role::Producer(producer) = &self.nodes[node].role else {
            return Err(error("of", format!("\"{of}\" is no producer")));
        };
        let collection =
            Collection::new(&producer.names).map_err(|problem| error("of", problem.to_string()))?;
        disk::check_ranges(objects).map_err(|message| error("objects", message))?;
        let mut prefixes = Vec::new();
        for &(first, last) in objects {
            let count = collection.object_count();
            if last >= count {
                let message = format!("\"{of}\" has objects 0 to {}, not {last}", count - 1);
                return Err(error("objects", message));
            }
            let name = |object| collection.naming().object_name(object).to_string();
            prefixes.extend((first..=last).map(name));
        }
        Ok(prefixes)
    }

    /// The packets of a trial on each link, and routes from the first router towards the last one,
    /// where its producers are.
    pub(crate) fn trial_links(&mut self, trial: &Trial) {
        self.links.iter_mut().for_each(|link| link.packets = trial.packets);
        let links = self.links.iter().enumerate();
        let prefix = trial.network_prefix().to_string();
        self.routes.extend(links.map(|(link, ends)| RoutePlan {
            node: ends.a.min(ends.b),
            prefix: prefix.clone(),
            link,
            cost: 0,
        }));
    }
}
