//! Tests of congestion marking in routers.

use weir_link::MarkingPolicy;
use weir_netem::LinkConfig;
use weir_plan::workload::{Arrivals, ConsumerPlan, Demand, Popularity, ProducerPlan};
use weir_plan::{LinkPlan, Plan, Role, RouterPlan};
use weir_plan_fixture::{PlanBuilder, S, names, producer};

use super::Network;

/// A consumer with a constant rate, a router and a producer.
fn plan(rate_hz: f64) -> Plan {
    let names = names("/p", Popularity::Sequential { objects: 1000 }, 100, 100);
    let demand = Demand::Arrivals { arrivals: Arrivals::Constant { rate_hz } };
    let mut builder = PlanBuilder::new(1, S);
    let consumer = builder.node("n0", Role::Consumer(ConsumerPlan::new(names.clone(), demand)));
    let router = builder.node("n1", Role::Router(RouterPlan::default()));
    let producer = ProducerPlan { freshness_ms: 1000, ..producer(names) };
    let producer = builder.node("n2", Role::Producer(producer));
    builder.connect(LinkPlan::local(consumer, router, &LinkConfig::default()));
    let link = builder.connect(LinkPlan::local(router, producer, &LinkConfig::default()));
    builder.route(router, "/p", link);
    builder.plan
}

fn router(plan: &mut Plan) -> &mut RouterPlan {
    match &mut plan.nodes[1].role {
        Role::Router(router) => router,
        _ => unreachable!("the second node is the router"),
    }
}

#[test]
fn routers_mark_as_planned_by_queue_of_link() {
    let mut plan = plan(1.0);
    let policy: MarkingPolicy = "codel target=1s interval=2s".parse().unwrap();
    router(&mut plan).marking = policy.clone();
    plan.links[0].b_to_a.queue_bytes_max = 1_500_000;
    let network = Network::new(&plan).unwrap();
    let egress = |end: u32| &network.links.end(end).link.config().egress;
    // In order: consumer, router to consumer, router to producer, producer.
    let policies = [0, 1, 2, 3].map(|end| &egress(end).marking.policy);
    assert_eq!(policies, [&MarkingPolicy::Nfd, &policy, &policy, &MarkingPolicy::Nfd]);
    assert_eq!(egress(1).marking.capacity_bytes, 1_500_000);
    assert_ne!(egress(1).seed, egress(2).seed);
}
