//! Which routers could keep parts of a file, and which could serve it (paper
//! multipath-cache-management, Algorithms 3 and 4). Everything here only reads.

use alloc::borrow::ToOwned;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

use weir_wire::Name;

use super::{DEMAND_FACTOR, PARTS_EXAMINED_MAX, PlanContext, Plans};
use crate::controller::configuration::RULES_MAX;
use crate::file::File;
use crate::graph::Paths;
use crate::network::Router;
use crate::objects::RouterId;
use crate::placement::{Candidate, DISTANCE_TOLERANCE_NS, Placement, assign_parts};
use crate::plan::{Part, Plan, Share};
use crate::segments::Segments;

/// The share of a store that plans may use. The rest caches as without a controller.
const PROMISED_SHARE: (u64, u64) = (7, 8);
/// Maximum number of routers that the Interests for a file are spread over, and their maximum
/// weight.
const SPREAD_MAX: usize = 32;
const WEIGHT_MAX: u64 = 1000;

impl Plans {
    /// Whether a plan spreads Interests over all paths, because no router holds or can keep the
    /// file. Such a plan is for one consumer: from another router the paths may lead back.
    pub(super) fn is_multipath(
        &self,
        cx: &PlanContext<'_>,
        file: &File,
        parts: &[Part],
        spread: &[Share],
    ) -> bool {
        let objects = &self.map.objects;
        let holds = |share: &Share| {
            let id = cx.registry.network.id_of(&share.router);
            id.is_some_and(|id| holds_all(&objects.holdings_of(id, &file.name), file))
        };
        parts.is_empty() && !spread.iter().all(holds)
    }

    /// How a consumer's router gets a file. If other routers hold all of it, Interests are spread
    /// over them. Otherwise routers with space get parts. If there are none, Interests are spread
    /// over all loop-free paths, if there are at least two.
    pub(super) fn choose(
        &self,
        cx: &PlanContext<'_>,
        consumer: &str,
        file: &File,
    ) -> (Vec<Part>, Vec<Share>) {
        let object = &file.name;
        let Some(id) = cx.registry.network.id_of(consumer) else { return (Vec::new(), Vec::new()) };
        let all = self.map.objects.holders(object);
        let all = all.iter().filter(|(_, held)| holds_all(held, file));
        let holders = self.weighted_shares(cx, id, all.map(|(holder, _)| *holder));
        if !holders.is_empty() {
            return (Vec::new(), holders);
        }
        let range = (0, file.segments - 1);
        let candidates = self.candidates(cx, consumer, object, file);
        let parts = assign_parts(cx.config.placement, file, range, candidates);
        if !parts.is_empty() {
            return (parts, Vec::new());
        }
        let ways =
            self.weighted_shares(cx, id, self.loop_free_neighbours(cx, id, object).into_iter());
        (Vec::new(), if ways.len() < 2 { Vec::new() } else { ways })
    }

    /// The given routers with their weights, the nearest to the consumer first (paper
    /// multipath-cache-management, Algorithm 3).
    fn weighted_shares(
        &self,
        cx: &PlanContext<'_>,
        consumer: RouterId,
        routers: impl Iterator<Item = RouterId>,
    ) -> Vec<Share> {
        let to_consumer = cx.graph.paths(&[consumer]);
        let others = routers.filter(|router| *router != consumer);
        let mut chosen: Vec<(u64, &str)> = others
            .filter_map(|id| Some((to_consumer.distance(id)?, cx.registry.network.name_of(id))))
            .collect();
        chosen.sort_unstable();
        let ratio = &cx.config.ratio;
        let weight = |place: usize| ratio.get(place).or(ratio.last()).copied().unwrap_or(1);
        let share = |(place, (_, name)): (usize, (u64, &str))| Share {
            router: name.to_owned(),
            weight: weight(place).clamp(1, WEIGHT_MAX),
        };
        chosen.into_iter().enumerate().map(share).take(SPREAD_MAX).collect()
    }

    /// Neighbours of a consumer's router from which no path to the producer leads back over that
    /// router.
    fn loop_free_neighbours(
        &self,
        cx: &PlanContext<'_>,
        consumer: RouterId,
        object: &Name,
    ) -> Vec<RouterId> {
        let graph = &cx.graph;
        let paths = graph.paths(&cx.registry.network.producers_of(object));
        // A neighbour that may send an Interest back would make it loop.
        let back = self.routers_leading_over(cx, &paths, consumer);
        let neighbours = graph.neighbours(consumer).iter().map(|(neighbour, _)| *neighbour);
        neighbours.filter(|id| paths.distance(*id).is_some() && !back.contains(id)).collect()
    }

    /// Routers from which a path to the producers may lead over router `over`.
    fn routers_leading_over(
        &self,
        cx: &PlanContext<'_>,
        paths: &Paths,
        over: RouterId,
    ) -> BTreeSet<RouterId> {
        let graph = &cx.graph;
        let mut back = BTreeSet::from([over]);
        let Some(least) = paths.distance(over) else { return back };
        // Routers that are nearer to a producer never forward to a farther one.
        let farther = |id: &&RouterId| paths.distance(**id).is_some_and(|far| far > least);
        for &id in paths.order().iter().filter(farther) {
            if graph.nearer_neighbours(paths, id).iter().any(|(next, _)| back.contains(next)) {
                back.insert(id);
            }
        }
        back
    }

    /// Routers that may keep a part of an object for `consumer`, with the space that no plan has
    /// promised.
    pub(super) fn candidates(
        &self,
        cx: &PlanContext<'_>,
        consumer: &str,
        object: &Name,
        file: &File,
    ) -> Vec<Candidate> {
        let promised = |name: &str| self.map.promised_bytes(name);
        self.keeper_candidates(cx, consumer, object, file, promised)
    }

    /// Bytes of a router's store that plans may use and have not promised.
    pub(super) fn free_bytes(&self, cx: &PlanContext<'_>, name: &str) -> u64 {
        let promisable = cx.registry.network.routers.get(name).map_or(0, promisable_bytes);
        promisable.saturating_sub(self.map.promised_bytes(name))
    }

    /// Routers that may keep a part of an object for `consumer`. They need a path to the producer
    /// and space beyond what `promised` returns. The path may lead over the consumer: strategy
    /// `multipath` forwards Interests that a keeper sends to it.
    pub(super) fn keeper_candidates(
        &self,
        cx: &PlanContext<'_>,
        consumer: &str,
        object: &Name,
        file: &File,
        promised: impl Fn(&str) -> u64,
    ) -> Vec<Candidate> {
        let Some(consumer) = cx.registry.network.id_of(consumer) else { return Vec::new() };
        let producers = cx.registry.network.producers_of(object);
        let to_producer = cx.graph.paths(&producers);
        let to_consumer = cx.graph.paths(&[consumer]);
        // The distance of a router, without and with the transfer time of a range.
        let crowding = cx.registry.network.range_transfer_times();
        let far = |router: RouterId| {
            let distance = to_consumer.distance(router)?;
            let took_ns = bottleneck_ns(&crowding, &to_consumer, router);
            Some((distance, distance.saturating_add(took_ns)))
        };
        // `LargestFree` has no limit on distance. With the other policies a keeper must not be
        // farther than the producer.
        let farthest = match cx.config.placement {
            Placement::LargestFree => None,
            Placement::Nearest | Placement::ByDemand => {
                let far = producers.iter().filter_map(|producer| far(*producer));
                far.reduce(|one, other| (one.0.min(other.0), one.1.min(other.1)))
            }
        };
        let candidate = |(name, router): (&String, &Router)| {
            // It is not known yet which part includes which packets of the manifest. So space for
            // all of the manifest is reserved at each candidate.
            let taken = promised(name) + file.manifest_bytes();
            let free_bytes = promisable_bytes(router).saturating_sub(taken);
            // A keeper fetches its part from the producer, so it needs a path there.
            let is_reached = to_producer.distance(router.id).is_some();
            let (distance, with_block) = far(router.id)?;
            let is_near = farthest.is_none_or(|farthest| {
                distance < farthest.0 + DISTANCE_TOLERANCE_NS
                    && with_block < farthest.1.saturating_add(DISTANCE_TOLERANCE_NS)
            });
            let fits = free_bytes >= file.stored_bytes_per_segment();
            let is_trusted = router.distrusted_until.is_none();
            let fits = fits && self.map.rule_counts_of(name).keeping < RULES_MAX;
            let is_one = fits && is_trusted && is_near && is_reached;
            is_one.then(|| Candidate { router: name.clone(), free_bytes, distance: with_block })
        };
        cx.registry.network.routers.iter().filter_map(candidate).collect()
    }

    /// The routers that Data of a plan passes through: those on the paths from the producer to the
    /// keepers, and from there to the consumers. A router that keeps nothing gets a rule to refuse
    /// the Data.
    pub(super) fn involved_routers(&self, cx: &PlanContext<'_>, plan: &Plan) -> BTreeSet<String> {
        let mut concerned: BTreeSet<String> = plan.consumers.iter().cloned().collect();
        let keepers = plan.parts.iter().map(|part| &part.router);
        let keepers: BTreeSet<&String> = keepers.collect();
        concerned.extend(keepers.iter().map(|keeper| (*keeper).clone()));
        if keepers.is_empty() {
            return concerned;
        }
        let keepers: Vec<RouterId> =
            keepers.into_iter().filter_map(|keeper| cx.registry.network.id_of(keeper)).collect();
        let graph = &cx.graph;
        let mut between = BTreeSet::new();
        // Paths between each keeper and the destinations, without the keepers themselves.
        let mut follow = |paths: &Paths| {
            for keeper in &keepers {
                between.extend(paths.path(*keeper));
            }
        };
        follow(&graph.paths(&cx.registry.network.producers_of(&plan.object)));
        for consumer in plan.consumers.iter().filter_map(|name| cx.registry.network.id_of(name)) {
            follow(&graph.paths(&[consumer]));
        }
        concerned.extend(between.into_iter().map(|id| cx.registry.network.name_of(id).to_owned()));
        concerned
    }

    /// Whether a router holds all of a file. Such a file needs no space elsewhere.
    pub(super) fn is_fully_held(&self, file: &File) -> bool {
        self.map.objects.holders(&file.name).values().any(|held| holds_all(held, file))
    }

    /// Objects with parts at the given routers that may be displaced for object `than`: its demand
    /// is at least `DEMAND_FACTOR` times theirs. The least demanded come first.
    pub(super) fn less_demanded(&self, near: &[Candidate], than: &Name) -> Vec<Name> {
        let own_score = self.demand.score(than);
        let with_part = near.iter().flat_map(|one| {
            let plans = self.map.plans_of(&one.router);
            plans.filter(|active| active.plan.parts.iter().any(|part| part.router == one.router))
        });
        let objects = with_part.take(PARTS_EXAMINED_MAX).map(|active| &active.plan.object);
        let less = objects.filter(|object| *object != than);
        let mut less: Vec<(u64, &Name)> = less
            .map(|object| (self.demand.score(object), object))
            .filter(|(score, _)| score.saturating_mul(DEMAND_FACTOR) <= own_score)
            .collect();
        less.sort_unstable();
        less.dedup();
        less.into_iter().map(|(_, object)| object.clone()).collect()
    }
}

/// The transfer time of a range over the slowest link of a router's path; 0 if no rate is known.
fn bottleneck_ns(
    crowding: &BTreeMap<(RouterId, RouterId), u64>,
    paths: &Paths,
    router: RouterId,
) -> u64 {
    let mut at = router;
    let links = paths.path(router).map(|next| {
        let from = core::mem::replace(&mut at, next);
        crowding.get(&(from.min(next), from.max(next))).copied().unwrap_or(0)
    });
    links.max().unwrap_or(0)
}

fn holds_all(held: &Segments, file: &File) -> bool {
    held.count_within(0, file.segments - 1) == file.segments
}

/// Bytes of a store that plans may use.
pub(in crate::controller) fn promisable_bytes(router: &Router) -> u64 {
    router.report.store_bytes / PROMISED_SHARE.1 * PROMISED_SHARE.0
}
