//! Marking by routers.

use weir_link::MarkingPolicy;
use weir_netem::LinkConfig;
use weir_plan::workload::{Arrivals, ConsumerPlan, Demand, Names, Popularity, ProducerPlan, Sizes};
use weir_plan::{LinkPlan, NodePlan, Plan, Role, RoutePlan, RouterPlan};

use super::Network;

const S: u64 = 1_000_000_000;

/// A consumer that asks at a constant rate, a router, a producer.
fn plan(rate_hz: f64) -> Plan {
    let names = Names {
        prefix: "/p".into(),
        components: 0,
        popularity: Popularity::Sequential { objects: 1000 },
        sizes: Sizes::Fixed { bytes: 100 },
        segment_bytes: 100,
    };
    let demand = Demand::Arrivals { arrivals: Arrivals::Constant { rate_hz } };
    let consumer = ConsumerPlan::new(names.clone(), demand);
    let producer = ProducerPlan { names, freshness_ms: 1000, delay_ns: 0 };
    let roles =
        [Role::Consumer(consumer), Role::Router(RouterPlan::default()), Role::Producer(producer)];
    let named = |(number, role)| NodePlan { name: format!("n{number}"), role };
    let link = |a, b| LinkPlan::local(a, b, &LinkConfig::default());
    Plan {
        seed: 1,
        duration_ns: S,
        drain_ns: 5 * S,
        sample_ns: 0,
        nodes: roles.into_iter().enumerate().map(named).collect(),
        links: vec![link(0, 1), link(1, 2)],
        routes: vec![RoutePlan { node: 1, prefix: "/p".into(), link: 1, cost: 0 }],
        faults: Vec::new(),
        controller: None,
    }
}

fn router(plan: &mut Plan) -> &mut RouterPlan {
    match &mut plan.nodes[1].role {
        Role::Router(router) => router,
        _ => unreachable!("the second node is the router"),
    }
}

#[test]
fn routers_mark_as_their_plan_says_and_know_the_queue_of_each_link() {
    let mut plan = plan(1.0);
    let policy: MarkingPolicy = "codel target=1s interval=2s".parse().unwrap();
    router(&mut plan).marking = policy.clone();
    plan.links[0].b_to_a.queue_bytes_max = 1_500_000;
    let network = Network::new(&plan).unwrap();
    let egress = |end: u32| &network.links.end(end).link.config().egress;
    // Consumer, router towards it, router towards the producer, producer.
    let policies = [0, 1, 2, 3].map(|end| &egress(end).marking.policy);
    assert_eq!(policies, [&MarkingPolicy::Nfd, &policy, &policy, &MarkingPolicy::Nfd]);
    assert_eq!(egress(1).marking.capacity_bytes, 1_500_000);
    assert_ne!(egress(1).seed, egress(2).seed);
}
