//! Routes from the controller arrive late or never, while the reported links change. No Interest
//! may visit a router twice, and all must be answered.

use crate::common;

use common::{MS, PlanBuilder, S, consumer, is_data, names, producer, run, without_store};
use weir_control::Placement;
use weir_netem::LinkConfig;
use weir_plan::workload::{Arrivals, Demand, Popularity};
use weir_plan::{ControllerPlan, Plan, RoutesPlan};

const SIDE: usize = 4;
const DURATION_NS: u64 = 60 * S;

/// A grid of routers with 1 ms links, two producers of one prefix in opposite corners, and a
/// consumer at each router.
fn plan(seed: u64) -> Plan {
    let mut builder = PlanBuilder::new(seed, DURATION_NS);
    let routers: Vec<usize> = (0..SIDE * SIDE).map(|_| builder.router(without_store())).collect();
    let link = LinkConfig { delay_ns: MS, ..LinkConfig::default() };
    for at in 0..SIDE * SIDE {
        if at % SIDE + 1 < SIDE {
            builder.link(routers[at], routers[at + 1], &link);
        }
        if at + SIDE < SIDE * SIDE {
            builder.link(routers[at], routers[at + SIDE], &link);
        }
    }
    let content = |objects| names("/p", Popularity::Sequential { objects }, 1000, 1000);
    for &router in &routers {
        let demand = Demand::Arrivals { arrivals: Arrivals::Poisson { rate_hz: 50.0 } };
        builder.consumer(router, consumer(content(1_000_000), demand));
    }
    for at in [0, SIDE * SIDE - 1] {
        builder.producer(routers[at], producer(content(1_000_000)));
    }
    let is_local: Vec<bool> = builder.plan.links.iter().map(|link| link.is_local).collect();
    builder.plan.routes.retain(|route| is_local[route.link]);
    builder.plan.controller = Some(ControllerPlan {
        delay_ns: 5 * MS,
        placement: Placement::LargestFree,
        prefetch: false,
        prefetch_first: false,
        ratio: vec![],
        agents: false,
        routes: Some(RoutesPlan {
            report_ns: S,
            change_ns: 300 * MS,
            round_trip_max_ns: 50 * MS,
            spread_ns: 2 * S,
            loss: 0.2,
        }),
    });
    builder.plan
}

#[test]
fn no_interest_visits_a_router_twice() {
    for seed in 0..4 {
        let (summary, events) = run(&plan(seed));
        let later = events.iter().filter(|event| event.at_ns > 10 * S);
        let received = later.filter(|event| is_data(&event.kind)).count();
        let looped = summary.interests_looped;
        println!("seed {seed}: {received} Data after the first 10 s, {looped} Interests came back");
        assert!(received > 35_000, "{received}");
        assert_eq!(looped, 0, "seed {seed}");
    }
}
