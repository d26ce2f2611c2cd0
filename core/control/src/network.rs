//! Routers and the links between them, from their reports.

use alloc::borrow::ToOwned;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use weir_base::{Instant, NS_PER_MS, NS_PER_S};
use weir_wire::Name;

use crate::graph::{Graph, NO_ROUTER};
use crate::limits::{EventLimiter, LimitKind};
use crate::message::{FaceReport, RouterReport, UpdateNumber};
use crate::objects::RouterId;

/// Added to the round-trip time of each link. So of two paths with equal delay, the path with fewer
/// routers is shorter.
const HOP_NS: u64 = NS_PER_MS / 10;
/// Size of a range of 64 segments in bytes. The time that it takes over a link is part of a
/// router's distance for placement.
const RANGE_BYTES: u64 = 64 * 8192;
/// Even a link under full load counts as having 1/16 of its rate left, because transfers share it.
const FREE_RATE_DIVISOR: u64 = 16;
/// How long the controller remembers that a lost router may still forward by its old routes. At
/// least `DEPARTED_MIN` such routers are remembered.
const DEPARTED_NS: u64 = 600 * NS_PER_S;
const DEPARTED_MIN: usize = 64;
/// After this time, packets that were sent by an old route have arrived.
const IN_FLIGHT_NS: u64 = NS_PER_S;
/// Maximum number of generations in `Router::reported_generations`.
const REPORTED_GENERATIONS_MAX: usize = 8;
/// Assumed round-trip time of a link if no link of the network has a known one.
const UNKNOWN_ROUND_TRIP_NS: u64 = 10 * NS_PER_MS;

/// Maximum number of earlier agents of one name, and of duplicates, that are remembered.
const INSTANCES_MAX: usize = 4;

/// New plans that the requests of one router may cause at once.
pub(crate) const PLANS_MAX: u64 = 4096;
/// New plans that the requests of one router may cause per second on average.
pub(crate) const PLANS_PER_S: u64 = 64;

/// A router that has reported recently.
pub(crate) struct Router {
    /// The number of the router in this process. It keeps it while it is lost for a short time.
    pub(crate) id: RouterId,
    pub(crate) report: RouterReport,
    pub(crate) last_seen: Instant,
    /// The update that the controller expects next. Number 0 makes the router begin a new
    /// generation.
    pub(crate) expected: UpdateNumber,
    /// The numbers of its present configuration and of the previous one.
    pub(crate) generation: u64,
    pub(crate) parent: u64,
    /// For each face of the report: the round-trip time that routes use. A reported time replaces
    /// it only if it differs clearly; see [`is_similar`].
    pub(crate) round_trips: Vec<Option<u64>>,
    /// Generations that the router has reported, each with the time of the first report, the newest
    /// last.
    pub(crate) reported_generations: VecDeque<(u64, Instant)>,
    /// When the router last reported a segment that it did not hold before.
    pub(crate) last_gain: Instant,
    /// Until then it gets no new parts, because it did not fetch the segments of an earlier one.
    pub(crate) distrusted_until: Option<Instant>,
    /// New plans that its requests may cause now; refilled with time.
    pub(crate) plan_credits: u64,
    /// For each kind of limit: occurrences, and when an event last reported them.
    pub(crate) event_limiters: [EventLimiter; LimitKind::ALL.len()],
    /// Instance numbers of earlier agents that reported by this name, the latest last.
    former_instances: VecDeque<u64>,
    /// Other routers that report by this name and came later. The one found last is at the end.
    pub(crate) duplicates: VecDeque<DuplicateRouter>,
}

/// A router that reports by the name of another router.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DuplicateRouter {
    instance: u64,
    pub(crate) seen: Instant,
    pub(crate) uris: Vec<String>,
}

impl Router {
    pub(crate) fn new(id: RouterId, now: Instant) -> Self {
        Self {
            id,
            report: RouterReport::default(),
            last_seen: now,
            expected: UpdateNumber::default(),
            generation: 0,
            parent: 0,
            round_trips: Vec::new(),
            reported_generations: VecDeque::new(),
            last_gain: now,
            distrusted_until: None,
            plan_credits: PLANS_MAX,
            event_limiters: Default::default(),
            former_instances: VecDeque::new(),
            duplicates: VecDeque::new(),
        }
    }
}

impl Router {
    /// Whether the report comes from another router with the same name.
    ///
    /// An unknown instance number is first taken for a restart of the agent. When the previous
    /// agent reports again, there are two routers: the earlier one stays, and the later one is a
    /// duplicate. Example: instances 12, 77, 12, 77 report in turn. The first three
    /// reports are accepted. The third shows that 77 is a duplicate, so the fourth is refused.
    pub(crate) fn is_from_duplicate(&mut self, report: &RouterReport, now: Instant) -> bool {
        let (instance, present) = (report.instance, self.report.instance);
        if instance == 0 || present == 0 || instance == present {
            return false;
        }
        if let Some(twin) = self.duplicates.iter_mut().find(|twin| twin.instance == instance) {
            twin.seen = now;
            twin.uris.clone_from(&report.uris);
            return true;
        }
        if self.former_instances.contains(&instance) {
            // The earlier agent still runs, so the present one is the duplicate.
            self.former_instances.retain(|one| *one != instance);
            let uris = self.report.uris.clone();
            self.duplicates.push_back(DuplicateRouter {
                instance: present,
                seen: self.last_seen,
                uris,
            });
            if self.duplicates.len() > INSTANCES_MAX {
                self.duplicates.pop_front();
            }
            return false;
        }
        // An unknown instance: take it for a restart of the agent.
        self.former_instances.push_back(present);
        if self.former_instances.len() > INSTANCES_MAX {
            self.former_instances.pop_front();
        }
        false
    }

    /// Records the generation whose routes the router reports to have.
    pub(crate) fn note_generation(&mut self, generation: u64, now: Instant) {
        if self.reported_generations.back().is_none_or(|(had, _)| *had != generation) {
            self.reported_generations.push_back((generation, now));
            if self.reported_generations.len() > REPORTED_GENERATIONS_MAX {
                // Drop one from the middle. If the oldest were dropped again and again, a router
                // that changes often would never have an old enough entry.
                self.reported_generations.remove(REPORTED_GENERATIONS_MAX / 2);
            }
        }
    }

    /// The newest generation that the router has reported for at least `IN_FLIGHT_NS`. Packets that
    /// were sent by its older routes have arrived.
    pub(crate) fn settled_generation(&self, now: Instant) -> u64 {
        let old = self
            .reported_generations
            .iter()
            .rev()
            .find(|(_, since)| now.ns_since(*since) >= IN_FLIGHT_NS);
        old.map_or(0, |(generation, _)| *generation)
    }
}

/// A link from a router to a neighbour.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    pub from: String,
    pub to: String,
    /// Round-trip time in nanoseconds, if it is known.
    pub round_trip_ns: Option<u64>,
    /// Capacity in bits per second, if it is known.
    pub rate_bps: Option<u64>,
    /// Recent traffic in bits per second.
    pub load_bps: u64,
}

/// A router that was lost.
#[derive(Clone, Copy)]
struct DepartedRouter {
    id: RouterId,
    since: Instant,
    /// The last generation that it reported.
    last_generation: u64,
}

/// All routers that have reported recently, with their addresses and prefixes.
#[derive(Default)]
pub(crate) struct Network {
    pub(crate) routers: BTreeMap<String, Router>,
    names: Vec<String>,
    free: Vec<RouterId>,
    /// Lost routers. They may still forward by their last routes, and may come back.
    departed: BTreeMap<String, DepartedRouter>,
    /// The owner of each address: the router that reported it first.
    addresses: BTreeMap<String, RouterId>,
    /// For each prefix: the routers at which applications have registered it.
    producers: BTreeMap<Name, BTreeSet<RouterId>>,
}

impl Network {
    /// Adds a router. If it was lost recently, it gets its old number, and its last reported
    /// generation is returned; otherwise 0.
    pub(crate) fn add(&mut self, name: &str, now: Instant) -> u64 {
        let router = self.departed.remove(name);
        let id = match router {
            Some(router) => router.id,
            None => self.free.pop().unwrap_or_else(|| {
                self.names.push(String::new());
                (self.names.len() - 1) as RouterId
            }),
        };
        name.clone_into(&mut self.names[id as usize]);
        self.routers.insert(name.to_owned(), Router::new(id, now));
        router.map_or(0, |router| router.last_generation)
    }

    /// Removes a lost router. Returns its number and its prefixes.
    pub(crate) fn remove(&mut self, name: &str, now: Instant) -> Option<(RouterId, Vec<Name>)> {
        let Router { id, report, reported_generations: has, .. } = self.routers.remove(name)?;
        let had = has.back().map_or(0, |(generation, _)| *generation);
        self.addresses.retain(|_, owner| *owner != id);
        for prefix in &report.prefixes {
            self.remove_producer(prefix, id);
        }
        self.departed
            .insert(name.to_owned(), DepartedRouter { id, since: now, last_generation: had });
        Some((id, report.prefixes))
    }

    /// Frees the numbers of routers that were lost long ago, and returns them. If more routers are
    /// lost than present (and more than `DEPARTED_MIN`), those lost first are forgotten as well.
    pub(crate) fn forget_departed(&mut self, now: Instant) -> Vec<RouterId> {
        let mut since: Vec<Instant> = self.departed.values().map(|router| router.since).collect();
        since.sort_unstable();
        // Many routers that come and go must not fill the memory.
        let surplus = since.len().saturating_sub(self.routers.len().max(DEPARTED_MIN));
        let newest = surplus.checked_sub(1).map(|at| since[at]);
        let mut forgotten = Vec::new();
        self.departed.retain(|_, router| {
            let is_old = now.ns_since(router.since) > DEPARTED_NS
                || newest.is_some_and(|newest| router.since <= newest);
            forgotten.extend(is_old.then_some(router.id));
            !is_old
        });
        self.free.extend(&forgotten);
        forgotten
    }

    pub(crate) fn name_of(&self, id: RouterId) -> &str {
        self.names.get(id as usize).map_or("", String::as_str)
    }

    pub(crate) fn id_of(&self, name: &str) -> Option<RouterId> {
        self.routers.get(name).map(|router| router.id)
    }

    pub(crate) fn by_id(&self, id: RouterId) -> Option<&Router> {
        self.routers.get(self.name_of(id)).filter(|router| router.id == id)
    }

    /// Records the addresses that a router reports. Returns how many of them belong to other
    /// routers, and whether it now owns one that it did not own before.
    pub(crate) fn claim_addresses(&mut self, id: RouterId, uris: &[String]) -> (u64, bool) {
        self.addresses.retain(|uri, owner| *owner != id || uris.contains(uri));
        let (mut taken, mut is_new) = (0, false);
        for uri in uris {
            let owner = self.addresses.entry(uri.clone()).or_insert_with(|| {
                is_new = true;
                id
            });
            taken += u64::from(*owner != id);
        }
        (taken, is_new)
    }

    pub(crate) fn add_producer(&mut self, prefix: &Name, id: RouterId) {
        self.producers.entry(prefix.clone()).or_default().insert(id);
    }

    pub(crate) fn remove_producer(&mut self, prefix: &Name, id: RouterId) {
        if let Some(producers) = self.producers.get_mut(prefix) {
            producers.remove(&id);
            if producers.is_empty() {
                self.producers.remove(prefix);
            }
        }
    }

    /// The routers at which exactly this prefix is registered.
    pub(crate) fn producers_at(&self, prefix: &Name) -> Vec<RouterId> {
        self.producers.get(prefix).into_iter().flatten().copied().collect()
    }

    /// The routers at which the longest registered prefix of a name is registered.
    pub(crate) fn producers_of(&self, name: &Name) -> Vec<RouterId> {
        let view = name.as_view();
        let lengths = (0..=view.component_count()).rev();
        let mut prefixes = lengths.map(|count| view.prefix(count).to_name());
        let found = prefixes.find_map(|prefix| self.producers.get(&prefix));
        found.into_iter().flatten().copied().collect()
    }

    /// The links, with the round-trip time that routes use. If only one end reports a link, the
    /// reverse direction is added, because a face carries packets both ways.
    fn links_by_id(&self) -> Vec<(RouterId, RouterId, &FaceReport, Option<u64>)> {
        let mut links = Vec::new();
        for router in self.routers.values() {
            for (face, used) in router.report.faces.iter().zip(&router.round_trips) {
                match self.addresses.get(&face.remote) {
                    Some(to) if *to != router.id => links.push((router.id, *to, face, *used)),
                    _ => {}
                }
            }
        }
        let reported: BTreeSet<(RouterId, RouterId)> =
            links.iter().map(|(from, to, ..)| (*from, *to)).collect();
        for at in 0..links.len() {
            let (from, to, face, used) = links[at];
            if !reported.contains(&(to, from)) {
                links.push((to, from, face, used));
            }
        }
        links
    }

    /// The links between present routers.
    pub(crate) fn links(&self) -> Vec<Link> {
        let link = |(from, to, face, _): (RouterId, RouterId, &FaceReport, _)| Link {
            from: self.name_of(from).to_owned(),
            to: self.name_of(to).to_owned(),
            round_trip_ns: face.round_trip_ns,
            rate_bps: face.rate_bps,
            load_bps: face.load_bps,
        };
        self.links_by_id().into_iter().map(link).collect()
    }

    /// For each link with a known rate: how many nanoseconds [`RANGE_BYTES`] take at the rate that
    /// its load leaves. The lower router number comes first in the key. If both ends report, the
    /// longer time counts.
    pub(crate) fn range_transfer_times(&self) -> BTreeMap<(RouterId, RouterId), u64> {
        let mut crowding = BTreeMap::new();
        for router in self.routers.values() {
            for face in &router.report.faces {
                let (Some(rate_bps), Some(&to)) = (face.rate_bps, self.addresses.get(&face.remote))
                else {
                    continue;
                };
                let left_bps = rate_bps.saturating_sub(face.load_bps);
                let left_bps = left_bps.max(rate_bps / FREE_RATE_DIVISOR).max(1);
                let took_ns = u128::from(RANGE_BYTES) * 8 * u128::from(NS_PER_S);
                let took_ns = u64::try_from(took_ns / u128::from(left_bps)).unwrap_or(u64::MAX);
                let link = (router.id.min(to), router.id.max(to));
                let known: &mut u64 = crowding.entry(link).or_default();
                *known = took_ns.max(*known);
            }
        }
        crowding
    }

    /// The graph for shortest paths.
    pub(crate) fn graph(&self) -> Graph {
        let mut rank = vec![NO_ROUTER; self.names.len()];
        for (place, router) in self.routers.values().enumerate() {
            rank[router.id as usize] = place as u32;
        }
        let links = self.links_by_id();
        let known: BTreeMap<(RouterId, RouterId), u64> =
            links.iter().filter_map(|&(from, to, _, used)| Some(((from, to), used?))).collect();
        // If only one end has measured the round trip, its time counts for both directions.
        let used = |from, to, used: Option<u64>| used.or(known.get(&(to, from)).copied());
        // A link without a measurement gets the median of the others. Parts stay where they are
        // placed first, so a guess of 0 or of infinity would have lasting effects.
        let mut others: Vec<u64> = known.values().copied().collect();
        let middle = others.len() / 2;
        let unknown = match others.is_empty() {
            true => UNKNOWN_ROUND_TRIP_NS,
            false => *others.select_nth_unstable(middle).1,
        };
        let links = links.iter().map(|&(from, to, _, own)| {
            let round_trip_ns = used(from, to, own).unwrap_or(unknown);
            (from, to, round_trip_ns.saturating_add(HOP_NS))
        });
        Graph::new(rank, links)
    }
}

/// Whether a link may keep its present cost: a new round-trip time counts only if it differs by
/// more than a quarter and a millisecond. Round-trip times vary; routes should not.
pub(crate) fn is_similar(used: Option<u64>, now: Option<u64>) -> bool {
    match (used, now) {
        (Some(used), Some(now)) => used.abs_diff(now) <= used / 4 + NS_PER_MS,
        (used, now) => used == now,
    }
}
