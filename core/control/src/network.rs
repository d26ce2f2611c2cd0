//! Routers, the links between them, and what their stores hold.

use alloc::borrow::ToOwned;
use alloc::collections::{BTreeMap, BTreeSet, BinaryHeap};
use alloc::string::String;
use alloc::vec::Vec;
use core::cmp::Reverse;

use weir_base::{Instant, NS_PER_MS};
use weir_wire::Name;

use crate::bounds::{Bound, Tally};
use crate::message::{RouterReport, UpdateNumber};
use crate::objects::RouterId;

/// What a hop costs beside its round-trip time, so that of two paths of one delay the one with
/// fewer routers is taken.
const HOP_NS: u64 = NS_PER_MS / 10;
/// What is assumed of a link whose round-trip time nobody knows.
const UNKNOWN_ROUND_TRIP_NS: u64 = 10 * NS_PER_MS;

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
    /// When it last said to hold something that it did not hold before.
    pub(crate) gained: Instant,
    /// It has not kept what it was to keep: until then it gets nothing more to keep.
    pub(crate) distrusted_until: Option<Instant>,
    /// New plans that it may ask for at present.
    pub(crate) plans_left: u64,
    /// What of it did not count.
    pub(crate) tallies: [Tally; Bound::ALL.len()],
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
            gained: now,
            distrusted_until: None,
            plans_left: PLANS_MAX,
            tallies: Default::default(),
        }
    }
}

/// A link from a router to a neighbour.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Who has the face.
    pub from: String,
    /// Where it leads.
    pub to: String,
    /// Round-trip time in nanoseconds, if it is known.
    pub round_trip_ns: Option<u64>,
    /// What it carries at most, in bits per second, if it is known.
    pub rate_bps: Option<u64>,
    /// What it has carried lately, in bits per second.
    pub load_bps: u64,
}

impl Link {
    fn cost(&self) -> u64 {
        self.round_trip_ns.unwrap_or(UNKNOWN_ROUND_TRIP_NS).saturating_add(HOP_NS)
    }
}

/// All routers that have told of themselves lately.
#[derive(Default)]
pub(crate) struct Network {
    pub(crate) routers: BTreeMap<String, Router>,
    names: Vec<String>,
    free: Vec<RouterId>,
    /// Whose each address is: of who gave it first.
    addresses: BTreeMap<String, RouterId>,
}

/// The paths of all routers to one of them.
pub(crate) struct Paths<'a> {
    /// Of each router that has a path: what it costs, and the next hop.
    by_router: BTreeMap<&'a str, (u64, Option<&'a str>)>,
}

impl<'a> Paths<'a> {
    pub(crate) fn distance(&self, router: &str) -> Option<u64> {
        self.by_router.get(router).map(|(distance, _)| *distance)
    }

    /// Its next hop; none at the destination itself.
    pub(crate) fn next(&self, router: &str) -> Option<&'a str> {
        self.by_router.get(router).and_then(|(_, next)| *next)
    }

    /// The routers after `from` on its path, the destination included.
    pub(crate) fn path(&self, from: &str) -> impl Iterator<Item = &'a str> {
        core::iter::successors(self.next(from), |router| self.next(router))
    }
}

impl Network {
    /// A router that has not been there.
    pub(crate) fn add(&mut self, name: &str, now: Instant) {
        let id = self.free.pop().unwrap_or_else(|| {
            self.names.push(String::new());
            (self.names.len() - 1) as RouterId
        });
        name.clone_into(&mut self.names[id as usize]);
        self.routers.insert(name.to_owned(), Router::new(id, now));
    }

    /// A router that is there no longer: its number, which another may get.
    pub(crate) fn remove(&mut self, name: &str) -> Option<RouterId> {
        let id = self.routers.remove(name)?.id;
        self.addresses.retain(|_, owner| *owner != id);
        self.free.push(id);
        Some(id)
    }

    pub(crate) fn name_of(&self, id: RouterId) -> &str {
        &self.names[id as usize]
    }

    /// A router gives these addresses. Says how many others gave before.
    pub(crate) fn claim(&mut self, id: RouterId, uris: &[String]) -> u64 {
        self.addresses.retain(|uri, owner| *owner != id || uris.contains(uri));
        let mut taken = 0;
        for uri in uris {
            let owner = self.addresses.entry(uri.clone()).or_insert(id);
            taken += u64::from(*owner != id);
        }
        taken
    }

    /// The links between routers that are there. A face carries packets both ways, so that a link
    /// that one end alone tells of has its way back.
    pub(crate) fn links(&self) -> Vec<Link> {
        let mut links = Vec::new();
        for (from, router) in &self.routers {
            for face in &router.report.faces {
                match self.addresses.get(&face.remote) {
                    Some(to) if *to != router.id => links.push(Link {
                        from: from.clone(),
                        to: self.name_of(*to).to_owned(),
                        round_trip_ns: face.round_trip_ns,
                        rate_bps: face.rate_bps,
                        load_bps: face.load_bps,
                    }),
                    _ => {}
                }
            }
        }
        let told: BTreeSet<(String, String)> =
            links.iter().map(|link| (link.from.clone(), link.to.clone())).collect();
        let back = |link: &Link| Link {
            from: link.to.clone(),
            to: link.from.clone(),
            load_bps: 0,
            ..link.clone()
        };
        let backs: Vec<Link> = links.iter().map(back).collect();
        links.extend(
            backs.into_iter().filter(|back| !told.contains(&(back.from.clone(), back.to.clone()))),
        );
        links
    }

    /// Shortest paths to `destination` over `links`. Of equal ones that over the neighbour whose
    /// name comes first.
    pub(crate) fn paths<'a>(links: &'a [Link], destination: &'a str) -> Paths<'a> {
        let mut into: BTreeMap<&str, Vec<&Link>> = BTreeMap::new();
        for link in links {
            into.entry(link.to.as_str()).or_default().push(link);
        }
        let mut by_router = BTreeMap::new();
        let mut heap = BinaryHeap::from([Reverse((0_u64, None, destination))]);
        while let Some(Reverse((distance, next, router))) = heap.pop() {
            if by_router.contains_key(router) {
                continue;
            }
            by_router.insert(router, (distance, next));
            for link in into.get(router).into_iter().flatten() {
                let distance = distance.saturating_add(link.cost());
                heap.push(Reverse((distance, Some(router), link.from.as_str())));
            }
        }
        Paths { by_router }
    }

    /// The routers at which names below `prefix` are produced, by the longest prefix that one of
    /// them has registered.
    pub(crate) fn producers_of(&self, name: &Name) -> Vec<&str> {
        let mut longest = 0;
        let mut producers = Vec::new();
        for (router, record) in &self.routers {
            for prefix in &record.report.prefixes {
                let length = prefix.as_view().component_count();
                if !prefix.as_view().is_prefix_of(name.as_view()) || length < longest {
                    continue;
                }
                if length > longest {
                    longest = length;
                    producers.clear();
                }
                if producers.last() != Some(&router.as_str()) {
                    producers.push(router.as_str());
                }
            }
        }
        producers
    }
}
