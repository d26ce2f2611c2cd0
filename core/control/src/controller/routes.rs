//! Links, and the routes of each router.

use alloc::borrow::ToOwned;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use super::Controller;
use crate::message::{RouteOrder, RouterReport};
use crate::network::Network;

impl Controller {
    /// Computes links and routes anew, and touches the routers whose routes have changed.
    pub(super) fn refresh_routes(&mut self) {
        self.links = self.network.links();
        if !self.config.routes {
            return;
        }
        let mut all: BTreeMap<String, Vec<RouteOrder>> = BTreeMap::new();
        for (producer, record) in &self.network.routers {
            let paths = Network::paths(&self.links, producer);
            for prefix in &record.report.prefixes {
                for name in self.network.routers.keys() {
                    if let (Some(next), Some(cost)) = (paths.next(name), paths.distance(name)) {
                        let (prefix, router) = (prefix.clone(), next.to_owned());
                        let cost = cost / 1000;
                        let route = RouteOrder { prefix, router, cost };
                        all.entry(name.clone()).or_default().push(route);
                    }
                }
            }
        }
        let names: Vec<String> = self.network.routers.keys().cloned().collect();
        for name in names {
            let mut new = all.remove(&name).unwrap_or_default();
            // A prefix that several routers have may be reached by one neighbour.
            new.sort_by(|one, other| {
                (&one.prefix, &one.router, one.cost).cmp(&(
                    &other.prefix,
                    &other.router,
                    other.cost,
                ))
            });
            new.dedup_by(|two, one| two.prefix == one.prefix && two.router == one.router);
            if self.routes.get(&name).is_none_or(|former| *former != new) {
                self.routes.insert(name.clone(), new);
                self.touch(&name);
            }
        }
    }
}

/// Whether two reports tell of the same place in the network.
pub(super) fn is_same_place(one: &RouterReport, other: &RouterReport) -> bool {
    let remotes = |report: &RouterReport| -> Vec<(String, Option<u64>)> {
        report.faces.iter().map(|face| (face.remote.clone(), face.round_trip_ns)).collect()
    };
    one.uris == other.uris && one.prefixes == other.prefixes && remotes(one) == remotes(other)
}
