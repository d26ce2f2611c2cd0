//! Random changes of a network in which routers fetch configurations late, apply them later, and
//! report them later still. The routes that routers have never form a loop. When changes stop, all
//! routers get the shortest paths.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use weir_base::{Instant, NS_PER_MS, NS_PER_S};
use weir_control::message::{Configuration, FaceReport, RouteOrder, RouterReport};
use weir_control::{Controller, ControllerConfig};

const ROUTERS: usize = 7;
const PREFIXES: usize = 2;

#[derive(Clone, Copy, Debug)]
enum Step {
    /// A link gets this round-trip time, or is removed.
    Link {
        a: usize,
        b: usize,
        ms: Option<u64>,
    },
    /// A prefix is registered at a router, or removed.
    Produce {
        router: usize,
        prefix: usize,
        is: bool,
    },
    Report {
        router: usize,
    },
    /// A router fetches its configuration and begins to apply it.
    Fetch {
        router: usize,
    },
    /// A router has applied it.
    Apply {
        router: usize,
    },
    /// A router restarts without routes.
    Crash {
        router: usize,
    },
    /// Time passes. Routers that have not reported for too long are lost.
    Wait {
        ms: u64,
    },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let router = || 0..ROUTERS;
    let step = prop_oneof![
        4 => (router(), router(), proptest::option::weighted(0.8, 1_u64..60))
            .prop_map(|(a, b, ms)| Step::Link { a, b, ms }),
        2 => (router(), 0..PREFIXES, any::<bool>())
            .prop_map(|(router, prefix, is)| Step::Produce { router, prefix, is }),
        8 => router().prop_map(|router| Step::Report { router }),
        6 => router().prop_map(|router| Step::Fetch { router }),
        6 => router().prop_map(|router| Step::Apply { router }),
        1 => router().prop_map(|router| Step::Crash { router }),
        6 => (1_u64..6_000).prop_map(|ms| Step::Wait { ms }),
    ];
    proptest::collection::vec(step, 0..200)
}

type Routes = Vec<RouteOrder>;

struct Network {
    controller: Controller,
    now: Instant,
    links: BTreeMap<(usize, usize), u64>,
    produced: BTreeSet<(usize, usize)>,
    /// By router: the routes in force, the configuration being applied, and the generation in
    /// force.
    has: Vec<Routes>,
    fetched: Vec<Option<Configuration>>,
    generation: Vec<u64>,
}

fn name(router: usize) -> String {
    format!("r{router}")
}

fn prefix(prefix: usize) -> weir_wire::Name {
    format!("/p{prefix}").parse().unwrap()
}

fn router(name: &str) -> usize {
    name[1..].parse().unwrap()
}

impl Network {
    fn new() -> Self {
        Self {
            controller: Controller::new(ControllerConfig::default()),
            now: Instant::ZERO,
            // The routers form a ring.
            links: (0..ROUTERS).map(|a| ((a, (a + 1) % ROUTERS), 5)).collect(),
            produced: BTreeSet::from([(0, 0), (0, 1)]),
            has: vec![Routes::new(); ROUTERS],
            fetched: vec![None; ROUTERS],
            generation: vec![0; ROUTERS],
        }
    }

    fn report(&mut self, router: usize) {
        let neighbours = self.links.iter().filter_map(|(&(a, b), ms)| match router {
            _ if a == router => Some((b, ms)),
            _ if b == router => Some((a, ms)),
            _ => None,
        });
        let faces = neighbours.map(|(other, ms)| FaceReport {
            remote: name(other),
            round_trip_ns: Some(ms * NS_PER_MS),
            ..FaceReport::default()
        });
        let prefixes = (0..PREFIXES).filter(|one| self.produced.contains(&(router, *one)));
        let report = RouterReport {
            uris: vec![name(router)],
            faces: faces.collect(),
            prefixes: prefixes.map(prefix).collect(),
            generation: self.generation[router],
            ..RouterReport::default()
        };
        self.controller.report(self.now, &name(router), report).unwrap();
    }

    fn apply(&mut self, step: Step) {
        match step {
            Step::Link { a, b, .. } if a == b => {}
            Step::Link { a, b, ms } => {
                let key = (a.min(b), a.max(b));
                self.links.remove(&(key.1, key.0));
                match ms {
                    Some(ms) => drop(self.links.insert(key, ms)),
                    None => drop(self.links.remove(&key)),
                }
            }
            Step::Produce { router, prefix, is: true } => {
                self.produced.insert((router, prefix));
            }
            Step::Produce { router, prefix, is: false } => {
                self.produced.remove(&(router, prefix));
            }
            Step::Report { router } => self.report(router),
            Step::Fetch { router } => {
                let found = self.controller.configuration(&name(router));
                let is_newer = |one: &Configuration| one.generation > self.generation[router];
                if let Some(found) = found.filter(is_newer) {
                    self.fetched[router] = Some(found);
                }
            }
            Step::Apply { router } => {
                if let Some(fetched) = self.fetched[router].take() {
                    self.generation[router] = fetched.generation;
                    self.has[router] = fetched.routes;
                }
            }
            Step::Crash { router } => {
                (self.has[router], self.fetched[router]) = (Routes::new(), None);
                self.generation[router] = 0;
                self.report(router);
            }
            Step::Wait { ms } => {
                self.now = self.now.plus_ns(ms * NS_PER_MS);
                self.controller.tick(self.now);
            }
        }
    }

    /// The next hops of each router: those in force and those being applied.
    fn next_hops(&self, of: usize) -> Vec<BTreeSet<usize>> {
        let of_prefix = |routes: &Routes| -> Vec<usize> {
            let routes = routes.iter().filter(|route| route.prefix == prefix(of));
            routes.map(|route| router(&route.router)).collect()
        };
        let all = self.has.iter().zip(&self.fetched).map(|(has, fetched)| {
            let fetched = fetched.iter().flat_map(|one| of_prefix(&one.routes));
            of_prefix(has).into_iter().chain(fetched).collect()
        });
        all.collect()
    }

    fn has_loop(&self, of: usize) -> bool {
        // Remove routers without next hops until none is left. Routers that remain are on or before
        // a loop.
        let mut next = self.next_hops(of);
        let mut left: BTreeSet<usize> = (0..ROUTERS).collect();
        while let Some(&end) = left.iter().find(|one| next[**one].is_empty()) {
            left.remove(&end);
            next.iter_mut().for_each(|hops| {
                hops.remove(&end);
            });
        }
        !left.is_empty()
    }

    /// Lets routers report and apply configurations until nothing changes.
    fn settle(&mut self) {
        for _ in 0..40 {
            for router in 0..ROUTERS {
                self.report(router);
                self.apply(Step::Fetch { router });
                self.apply(Step::Apply { router });
            }
            self.apply(Step::Wait { ms: 1_100 });
        }
    }

    /// Costs of the shortest paths to the nearest producer in microseconds: round-trip times, plus
    /// 0.1 ms for each hop.
    fn distances(&self, of: usize) -> Vec<Option<u64>> {
        let mut distances: Vec<Option<u64>> =
            (0..ROUTERS).map(|router| self.produced.contains(&(router, of)).then_some(0)).collect();
        for _ in 0..ROUTERS {
            for (&(a, b), ms) in &self.links {
                for (from, to) in [(a, b), (b, a)] {
                    let over = distances[to].map(|distance| distance + ms * 1000 + 100);
                    if over.is_some_and(|over| distances[from].is_none_or(|known| over < known)) {
                        distances[from] = over;
                    }
                }
            }
        }
        distances
    }
}

proptest! {
    #[test]
    fn mixed_old_and_new_routes_never_loop(steps in steps()) {
        let mut network = Network::new();
        (0..ROUTERS).for_each(|router| network.report(router));
        for (at, &step) in steps.iter().enumerate() {
            network.apply(step);
            for of in 0..PREFIXES {
                let next_hops = network.next_hops(of);
                prop_assert!(!network.has_loop(of), "after step {at}: {next_hops:?}");
            }
        }
        network.settle();
        for of in 0..PREFIXES {
            let distances = network.distances(of);
            let next = network.next_hops(of);
            for router in 0..ROUTERS {
                let is_reached = distances[router].is_some_and(|distance| distance > 0);
                prop_assert_eq!(!next[router].is_empty(), is_reached, "{} of {}", router, of);
            }
        }
    }
}

#[test]
fn routes_converge_to_shortest_paths() {
    let mut network = Network::new();
    (0..ROUTERS).for_each(|router| network.report(router));
    network.settle();
    // The ring breaks, and the prefix gets another producer.
    network.apply(Step::Link { a: 0, b: 1, ms: None });
    network.apply(Step::Produce { router: 3, prefix: 1, is: true });
    network.settle();
    for of in 0..PREFIXES {
        let distances = network.distances(of);
        for (at, routes) in network.has.iter().enumerate() {
            let route = routes.iter().find(|route| route.prefix == prefix(of));
            let distance = distances[at].filter(|distance| *distance > 0);
            assert_eq!(route.map(|route| route.cost), distance, "{at} of {of}");
        }
    }
    assert_eq!(network.now.as_ns() / NS_PER_S, 88);
}

#[test]
fn small_rtt_changes_move_no_route() {
    let mut network = Network::new();
    (0..ROUTERS).for_each(|router| network.report(router));
    network.settle();
    let before = network.controller.generation();
    for ms in [4, 6, 5, 6, 4] {
        network.links.extend((0..ROUTERS).map(|a| ((a, (a + 1) % ROUTERS), ms)));
        network.settle();
    }
    assert_eq!(network.controller.generation(), before);
    network.links.extend((0..3).map(|a| ((a, (a + 1) % ROUTERS), 20)));
    network.settle();
    assert!(network.controller.generation() > before);
}
