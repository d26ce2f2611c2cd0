//! Marking and queue disciplines of routers.

use weir_link::{CoDelOptions, DisciplineConfig, HrIcpConfig, MarkingPolicy, RemOptions};
use weir_netem::LinkConfig;
use weir_plan::event::{Event, EventKind};
use weir_plan::workload::{Arrivals, ConsumerPlan, Demand, Popularity, ProducerPlan, Sizes};
use weir_plan::{LinkPlan, Plan, Role, RouterPlan};
use weir_plan_fixture::{PlanBuilder, S, names, producer};

use super::Network;

/// A consumer that asks at a constant rate, a router, a producer.
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

/// How many Data the consumer has after a second, and in the end, with `discipline` at the faces of
/// the router.
fn received(discipline: &str) -> (usize, usize) {
    let mut plan = plan(100.0);
    router(&mut plan).discipline = discipline.into();
    let mut network = Network::new(&plan).unwrap();
    let mut events: Vec<Event> = Vec::new();
    network.advance(S, u64::MAX, &mut events).unwrap();
    let count = |events: &[Event]| {
        let is_data = |event: &&Event| matches!(event.kind, EventKind::DataReceived { .. });
        events.iter().filter(is_data).count()
    };
    let early = count(&events);
    network.run(&mut events).unwrap();
    (early, count(&events))
}

#[test]
fn the_timers_of_a_discipline_are_honoured() {
    assert_eq!(received("fifo"), (100, 100));
    // One at once and one each 50 ms; those that still wait come in the time to drain.
    assert_eq!(received("interest-rate interests_per_s=20 burst=1"), (20, 100));
}

/// What a second of 1,000 Interests a second for packets of about 1 kB at a bottleneck of 4 Mbit/s
/// with a queue of 100 kB comes to: the longest queue in octets, frames that found no room, Data at
/// the consumer, and marked ones.
fn overload(marking: &str, discipline: &str) -> (u64, u64, usize, usize) {
    let mut plan = plan(1000.0);
    let producer_bytes = Sizes::Fixed { bytes: 900 };
    for node in &mut plan.nodes {
        match &mut node.role {
            Role::Consumer(ConsumerPlan { names, .. })
            | Role::Producer(ProducerPlan { names, .. }) => {
                (names.sizes, names.segment_bytes) = (producer_bytes.clone(), 900);
            }
            Role::Router(router) => {
                (router.marking, router.discipline) = (marking.into(), discipline.into());
            }
        }
    }
    plan.links[0].b_to_a =
        LinkConfig { rate_bps: Some(4_000_000), queue_bytes_max: 100_000, ..LinkConfig::default() };
    let mut network = Network::new(&plan).unwrap();
    let mut events: Vec<Event> = Vec::new();
    network.run(&mut events).unwrap();
    let stats = *network.links.end(1).model.stats();
    let marked = events.iter().filter_map(|event| match event.kind {
        EventKind::DataReceived { is_marked, .. } => Some(is_marked),
        _ => None,
    });
    let marked: Vec<bool> = marked.collect();
    let marks = marked.iter().filter(|&&is_marked| is_marked).count();
    (stats.queue_bytes_peak, stats.dropped_queue_bytes, marked.len(), marks)
}

#[test]
fn routers_mark_and_queue_as_planned() {
    let codel = CoDelOptions { target_ns: S, interval_ns: 2 * S };
    for (text, policy) in [
        ("rem", MarkingPolicy::Rem(RemOptions::default())),
        ("codel target=1s interval=2s", MarkingPolicy::CoDel(codel)),
    ] {
        let mut plan = plan(1.0);
        router(&mut plan).marking = text.into();
        router(&mut plan).discipline = "hr-icp rate_bps=8000".into();
        plan.links[0].b_to_a.queue_bytes_max = 1_500_000;
        let network = Network::new(&plan).unwrap();
        let marking = |end: usize| network.links.end(end as u32).link.config().egress.marking;
        let shaping = HrIcpConfig { rate_bps: 8000, ..HrIcpConfig::default() };
        let egress = &network.links.end(2).link.config().egress;
        assert_eq!(egress.discipline, DisciplineConfig::HrIcp(shaping));
        // Consumer, router towards it, router towards the producer, producer.
        assert_eq!([1, 2].map(|end| marking(end).policy), [policy; 2]);
        assert_eq!([0, 3].map(|end| marking(end).policy), [MarkingPolicy::default(); 2]);
        assert_eq!(marking(1).capacity_bytes, 1_500_000);
        let seed = |end: usize| network.links.end(end as u32).link.config().egress.seed;
        assert_ne!(seed(1), seed(2));
    }
    let mut wrong = plan(1.0);
    router(&mut wrong).marking = "red".into();
    let error = Network::new(&wrong).err().map(|error| error.to_string());
    assert!(error.is_some_and(|error| error.contains("`red`") && error.contains("codel")));
}

#[test]
fn marking_policies_see_the_link_queue() {
    for (marking, least, most) in [
        // Twice q_max is three fifths of the queue, where the mean is for most of the time.
        ("rem", 0.5, 0.95),
        ("rem q_min=90KB q_max=95KB", 0.001, 0.1),
        // 100 kB take 200 ms.
        ("codel target=20ms interval=50ms", 0.01, 0.2),
        ("step target=20ms", 0.9, 1.0),
        ("nfd", 0.001, 0.1),
    ] {
        let (queue_bytes, dropped, received, marks) = overload(marking, "fifo");
        assert!((99_000..=100_000).contains(&queue_bytes), "{marking}: {queue_bytes} octets");
        assert_eq!(dropped as usize + received, 1000, "{marking}");
        assert!(dropped > 300, "{marking}: {dropped} dropped");
        let share = marks as f64 / received as f64;
        assert!((least..=most).contains(&share), "{marking}: {share} marked");
    }
    assert_eq!(overload("rem", "fifo"), overload("rem", "fifo"), "one seed, one result");
}

/// Interests leave the router as fast as the bottleneck carries their Data, whose size it learns:
/// none is lost, and the queue stays at the burst and what sizes were misjudged at first.
#[test]
fn shaped_interests_bring_no_more_than_the_link_carries() {
    let (queue_bytes, dropped, received, marks) =
        overload("step target=100ms", "hr-icp rate_bps=3900000 burst_bytes=10000 held_max=2000");
    assert_eq!((dropped, received, marks), (0, 1000, 0));
    assert!(queue_bytes < 15_000, "{queue_bytes} octets");
}
