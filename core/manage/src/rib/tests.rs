//! The RIB against a computation from scratch.

use std::vec;

use proptest::prelude::*;

use super::*;

/// The routes of the RIB, in a naive model.
#[derive(Default)]
struct Naive {
    routes: BTreeMap<(Name, FaceId, u64), Route>,
}

impl Naive {
    fn prefixes(&self) -> impl Iterator<Item = &Name> {
        let mut prefixes: Vec<&Name> = self.routes.keys().map(|(prefix, ..)| prefix).collect();
        prefixes.dedup();
        prefixes.into_iter()
    }

    fn routes_of<'a>(&'a self, prefix: &'a Name) -> impl Iterator<Item = &'a Route> {
        self.routes.iter().filter(move |((p, ..), _)| p == prefix).map(|(_, route)| route)
    }

    fn has_capture(&self, prefix: &Name) -> bool {
        self.routes_of(prefix).any(|route| route.flags & route_flags::CAPTURE != 0)
    }

    /// Next hops of `prefix` by the rules: own routes at the lowest cost over origins; for other
    /// faces child-inherit routes of the nearest shorter prefix, up to a capture.
    fn next_hops(&self, prefix: &Name) -> BTreeMap<FaceId, u64> {
        let mut next_hops = BTreeMap::new();
        for route in self.routes_of(prefix) {
            let cost = next_hops.entry(route.face).or_insert(u64::MAX);
            *cost = route.cost.min(*cost);
        }
        let mut is_captured = self.has_capture(prefix);
        for length in (0..prefix.component_count()).rev() {
            let ancestor = prefix.as_view().prefix(length).to_name();
            if is_captured {
                break;
            }
            let mut inherited = BTreeMap::new();
            for route in self.routes_of(&ancestor) {
                if route.flags & route_flags::CHILD_INHERIT != 0 {
                    let cost = inherited.entry(route.face).or_insert(u64::MAX);
                    *cost = route.cost.min(*cost);
                }
            }
            for (face, cost) in inherited {
                next_hops.entry(face).or_insert(cost);
            }
            is_captured = self.has_capture(&ancestor);
        }
        next_hops
    }

    fn fib(&self) -> BTreeMap<Name, BTreeMap<FaceId, u64>> {
        self.prefixes().map(|prefix| (prefix.clone(), self.next_hops(prefix))).collect()
    }
}

/// Applies changes, and checks that each changes something.
fn apply(fib: &mut BTreeMap<Name, BTreeMap<FaceId, u64>>, changes: Vec<FibChange>) {
    for change in changes {
        let next_hops = fib.entry(change.prefix.clone()).or_default();
        let old = match change.cost {
            Some(cost) => next_hops.insert(change.face, cost),
            None => next_hops.remove(&change.face),
        };
        assert_ne!(old, change.cost, "{change:?} changes nothing");
        if next_hops.is_empty() {
            fib.remove(&change.prefix);
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Register { prefix: Name, route: Route },
    Unregister { prefix: Name, face: FaceId, origin: u64 },
    RemoveFace(FaceId),
    Advance(u64),
}

fn prefix() -> impl Strategy<Value = Name> {
    prop::collection::vec(0..2_u8, 0..5).prop_map(|components| {
        let mut name = Name::new();
        for component in components {
            name.append_generic(&[b'a' + component]);
        }
        name
    })
}

fn step() -> impl Strategy<Value = Step> {
    let face = (256..260_u64).prop_map(FaceId);
    let origin = prop::sample::select(vec![0_u64, 65, 255]);
    let route = (face.clone(), origin.clone(), 0..4_u64, 0..4_u64, prop::option::of(1..60_u64));
    prop_oneof![
        6 => (prefix(), route).prop_map(|(prefix, (face, origin, cost, flags, expires))| {
            let expires = expires.map(Instant::from_ns);
            Step::Register { prefix, route: Route { face, origin, cost, flags, expires } }
        }),
        2 => (prefix(), face.clone(), origin)
            .prop_map(|(prefix, face, origin)| Step::Unregister { prefix, face, origin }),
        1 => face.prop_map(Step::RemoveFace),
        1 => (1..20_u64).prop_map(Step::Advance),
    ]
}

proptest! {
    #[test]
    fn changes_match_full_computation(
        steps in prop::collection::vec(step(), 1..60),
    ) {
        let (mut rib, mut naive) = (Rib::new(1000), Naive::default());
        let mut fib = BTreeMap::new();
        let mut now = Instant::ZERO;
        for step in steps {
            let mut changes = Vec::new();
            match step {
                Step::Register { prefix, route } => {
                    rib.register(&prefix, route, &mut changes).unwrap();
                    naive.routes.insert((prefix, route.face, route.origin), route);
                }
                Step::Unregister { prefix, face, origin } => {
                    let removed = rib.unregister(&prefix, face, origin, &mut changes);
                    let known = naive.routes.remove(&(prefix, face, origin)).is_some();
                    prop_assert_eq!(removed, known);
                }
                Step::RemoveFace(face) => {
                    rib.remove_face(face, &mut changes);
                    naive.routes.retain(|(_, f, _), _| *f != face);
                }
                Step::Advance(ns) => now = now.plus_ns(ns),
            }
            rib.expire(now, &mut changes);
            naive.routes.retain(|_, route| route.expires.is_none_or(|at| at > now));
            apply(&mut fib, changes);
            prop_assert_eq!(&fib, &naive.fib());
            prop_assert_eq!(rib.len(), naive.routes.len());
            let next = naive.routes.values().filter_map(|route| route.expires).min();
            prop_assert_eq!(rib.next_wakeup(), next);
            let listed: Vec<(Name, Vec<Route>)> = rib
                .iter()
                .map(|(prefix, routes)| (prefix.clone(), routes.copied().collect()))
                .collect();
            let expected: Vec<(Name, Vec<Route>)> = naive
                .prefixes()
                .map(|prefix| (prefix.clone(), naive.routes_of(prefix).copied().collect()))
                .collect();
            prop_assert_eq!(listed, expected);
        }
    }
}

fn route(face: u64, flags: u64) -> Route {
    Route { face: FaceId(face), origin: 0, cost: 1, flags, expires: None }
}

#[test]
fn a_full_rib_still_replaces() {
    let mut rib = Rib::new(1);
    let mut changes = Vec::new();
    let (a, b): (Name, Name) = ("/a".parse().unwrap(), "/b".parse().unwrap());
    rib.register(&a, route(256, 1), &mut changes).unwrap();
    assert_eq!(rib.register(&b, route(256, 1), &mut changes), Err(RibError::Full));
    rib.register(&a, Route { cost: 7, ..route(256, 1) }, &mut changes).unwrap();
    let last = changes.last().unwrap();
    assert_eq!((&last.prefix, last.face, last.cost), (&a, FaceId(256), Some(7)));
    assert_eq!(rib.len(), 1);
}

#[test]
fn default_route_over_many_prefixes_is_fast() {
    let mut rib = Rib::new(1 << 20);
    let mut changes = Vec::new();
    for number in 0..20_000_u64 {
        let mut name: Name = "/site".parse().unwrap();
        name.append_segment(number);
        rib.register(&name, route(256, 1), &mut changes).unwrap();
    }
    changes.clear();
    let started = std::time::Instant::now();
    rib.register(&Name::new(), route(257, 1), &mut changes).unwrap();
    assert_eq!(changes.len(), 20_001);
    assert!(started.elapsed().as_secs() < 5, "took {:?}", started.elapsed());
}
