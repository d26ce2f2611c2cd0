//! Routers, the links between them, and what their stores hold.

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

/// What a hop costs beside its round-trip time, so that of two paths of one delay the one with
/// fewer routers is taken.
const HOP_NS: u64 = NS_PER_MS / 10;
/// By how long so much takes links are told apart that have rates: a range of 64 segments, in which
/// parts are divided.
const RANGE_BYTES: u64 = 64 * 8192;
/// Of a link that is full as much of its rate counts as left: transfers share it.
const FREE_RATE_DIVISOR: u64 = 16;
/// For so long it is remembered what a router that is gone may go on doing, and of how many routers
/// in any case.
const DEPARTED_NS: u64 = 600 * NS_PER_S;
const DEPARTED_MIN: usize = 64;
/// Packets that were sent by a route have arrived after so long.
const IN_FLIGHT_NS: u64 = NS_PER_S;
/// Configurations that a router said it has and that are remembered.
const REPORTED_GENERATIONS_MAX: usize = 8;
/// What is assumed of a link whose round-trip time nobody knows, where no link's is known.
const UNKNOWN_ROUND_TRIP_NS: u64 = 10 * NS_PER_MS;

/// Agents of one name that came before the present one and are remembered, at most.
const INSTANCES_MAX: usize = 4;

/// New plans that one router may ask for at once, and in a second.
pub(crate) const PLANS_MAX: u64 = 4096;
pub(crate) const PLANS_PER_S: u64 = 64;

/// A router, as far as it has told.
pub(crate) struct Router {
    /// What it is called where there is no room for its name.
    pub(crate) id: RouterId,
    pub(crate) report: RouterReport,
    pub(crate) last_seen: Instant,
    /// The update that is to come next; number 0 asks for a new generation.
    pub(crate) expected: UpdateNumber,
    /// Number of its configuration, and of the one before.
    pub(crate) generation: u64,
    pub(crate) parent: u64,
    /// What is reckoned with of each face of the report: the round-trip time of a report before, if
    /// it is about the same.
    pub(crate) round_trips: Vec<Option<u64>>,
    /// Configurations that it said it has, each with when it said so first, the newest last.
    pub(crate) reported_generations: VecDeque<(u64, Instant)>,
    /// When it last said to hold something that it did not hold before.
    pub(crate) last_gain: Instant,
    /// It has not kept what it was to keep: until then it gets nothing more to keep.
    pub(crate) distrusted_until: Option<Instant>,
    /// New plans that it may ask for at present.
    pub(crate) plan_credits: u64,
    /// What of it did not count.
    pub(crate) event_limiters: [EventLimiter; LimitKind::ALL.len()],
    /// Agents that have reported by its name before the present one, the last at the end.
    former_instances: VecDeque<u64>,
    /// Other routers that report by its name and were there later, the last to be found at the end.
    pub(crate) duplicates: VecDeque<DuplicateRouter>,
}

/// A router that reports by the name of another one.
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
    /// Whether a report comes from another router than this one, which has the same name. An agent
    /// that was not there before has been started anew, as far as is known; when the one before it
    /// speaks again there are two, and the one that was there first stays.
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
        self.former_instances.push_back(present);
        if self.former_instances.len() > INSTANCES_MAX {
            self.former_instances.pop_front();
        }
        false
    }

    /// It says which configuration it has.
    pub(crate) fn note_generation(&mut self, generation: u64, now: Instant) {
        if self.reported_generations.back().is_none_or(|(had, _)| *had != generation) {
            self.reported_generations.push_back((generation, now));
            if self.reported_generations.len() > REPORTED_GENERATIONS_MAX {
                // The middle, so that neither the oldest nor the newest waits for ever.
                self.reported_generations.remove(REPORTED_GENERATIONS_MAX / 2);
            }
        }
    }

    /// The configuration that it has had for a while: packets that were sent as the one before had
    /// it have arrived.
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
    /// What it carries at most, in bits per second, if it is known.
    pub rate_bps: Option<u64>,
    /// What it has carried lately, in bits per second.
    pub load_bps: u64,
}

/// A router that was there.
#[derive(Clone, Copy)]
struct DepartedRouter {
    id: RouterId,
    since: Instant,
    /// The configuration that it said last to have.
    last_generation: u64,
}

/// All routers that have told of themselves lately.
#[derive(Default)]
pub(crate) struct Network {
    pub(crate) routers: BTreeMap<String, Router>,
    names: Vec<String>,
    free: Vec<RouterId>,
    /// Routers that were there. They may go on forwarding as they did, and come back.
    departed: BTreeMap<String, DepartedRouter>,
    /// Whose each address is: of who gave it first.
    addresses: BTreeMap<String, RouterId>,
    /// The routers at which names below a prefix are produced.
    producers: BTreeMap<Name, BTreeSet<RouterId>>,
}

impl Network {
    /// A router that is not there. It has the number that it had before, if it was; the
    /// configuration that it said to have then is returned, 0 if none.
    pub(crate) fn add(&mut self, name: &str, now: Instant) -> u64 {
        let gone = self.departed.remove(name);
        let id = match gone {
            Some(gone) => gone.id,
            None => self.free.pop().unwrap_or_else(|| {
                self.names.push(String::new());
                (self.names.len() - 1) as RouterId
            }),
        };
        name.clone_into(&mut self.names[id as usize]);
        self.routers.insert(name.to_owned(), Router::new(id, now));
        gone.map_or(0, |gone| gone.last_generation)
    }

    /// A router is there no longer: its number, and the prefixes that it produced.
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

    /// The numbers of routers that have been gone for long, which others get from now on. So have
    /// those gone first, where there are more of them than of routers that are there.
    pub(crate) fn forget_departed(&mut self, now: Instant) -> Vec<RouterId> {
        let mut since: Vec<Instant> = self.departed.values().map(|gone| gone.since).collect();
        since.sort_unstable();
        let surplus = since.len().saturating_sub(self.routers.len().max(DEPARTED_MIN));
        let newest = surplus.checked_sub(1).map(|at| since[at]);
        let mut forgotten = Vec::new();
        self.departed.retain(|_, gone| {
            let is_old = now.ns_since(gone.since) > DEPARTED_NS
                || newest.is_some_and(|newest| gone.since <= newest);
            forgotten.extend(is_old.then_some(gone.id));
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

    /// A router gives these addresses. Says how many others gave before, and whether one is its own
    /// that was not.
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

    /// Names below a prefix are produced at a router, too.
    pub(crate) fn add_producer(&mut self, prefix: &Name, id: RouterId) {
        self.producers.entry(prefix.clone()).or_default().insert(id);
    }

    /// They are not produced there any more.
    pub(crate) fn remove_producer(&mut self, prefix: &Name, id: RouterId) {
        if let Some(producers) = self.producers.get_mut(prefix) {
            producers.remove(&id);
            if producers.is_empty() {
                self.producers.remove(prefix);
            }
        }
    }

    /// The routers at which names below this very prefix are produced.
    pub(crate) fn producers_at(&self, prefix: &Name) -> Vec<RouterId> {
        self.producers.get(prefix).into_iter().flatten().copied().collect()
    }

    /// The routers at which a name is produced, by the longest prefix that one of them has
    /// registered.
    pub(crate) fn producers_of(&self, name: &Name) -> Vec<RouterId> {
        let view = name.as_view();
        let lengths = (0..=view.component_count()).rev();
        let mut prefixes = lengths.map(|count| view.prefix(count).to_name());
        let found = prefixes.find_map(|prefix| self.producers.get(&prefix));
        found.into_iter().flatten().copied().collect()
    }

    /// Links by number. A face carries packets both ways, so that a link that one end alone tells
    /// of has its way back.
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
        let told: BTreeSet<(RouterId, RouterId)> =
            links.iter().map(|(from, to, ..)| (*from, *to)).collect();
        for at in 0..links.len() {
            let (from, to, face, used) = links[at];
            if !told.contains(&(to, from)) {
                links.push((to, from, face, used));
            }
        }
        links
    }

    /// The links between routers that are there.
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

    /// How long [`RANGE_BYTES`] take over each link of which somebody knows the rate, in
    /// nanoseconds, by what its load leaves. The lower number of the two routers comes first.
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

    /// The same for paths.
    pub(crate) fn graph(&self) -> Graph {
        let mut rank = vec![NO_ROUTER; self.names.len()];
        for (place, router) in self.routers.values().enumerate() {
            rank[router.id as usize] = place as u32;
        }
        let links = self.links_by_id();
        let known: BTreeMap<(RouterId, RouterId), u64> =
            links.iter().filter_map(|&(from, to, _, used)| Some(((from, to), used?))).collect();
        // A round trip that one end knows takes as long from the other.
        let used = |from, to, used: Option<u64>| used.or(known.get(&(to, from)).copied());
        // A link that has not been measured yet is taken for one of the others: parts of files stay
        // where they are put first.
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

/// Whether a link may go on costing what it did: round-trip times swing, and routes should not.
pub(crate) fn is_similar(used: Option<u64>, now: Option<u64>) -> bool {
    match (used, now) {
        (Some(used), Some(now)) => used.abs_diff(now) <= used / 4 + NS_PER_MS,
        (used, now) => used == now,
    }
}
