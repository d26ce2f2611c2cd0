//! Marking policies and queue disciplines of routers in simulated networks: those of papers
//! compared with the built-in ones.

use weir_baselines::links::{DISCIPLINES, MARKERS};
use weir_link::{DisciplineConfig, MarkingPolicy};
use weir_netem::LinkConfig;
use weir_netsim::Network;
use weir_plan::event::{Event, EventKind};
use weir_plan::workload::{Arrivals, ConsumerPlan, Demand, Names, Popularity, ProducerPlan, Sizes};
use weir_plan::{LinkPlan, NodePlan, Plan, Role, RoutePlan, RouterPlan};

const S: u64 = 1_000_000_000;

/// A consumer with a constant rate, a router and a producer.
fn plan(rate_hz: f64) -> Plan {
    let names = Names {
        prefix: "/p".into(),
        components: 0,
        popularity: Popularity::Sequential { objects: 1000 },
        sizes: Sizes::Fixed { bytes: 100 },
        segment_bytes: 100,
        live: None,
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

fn marking(text: &str) -> MarkingPolicy {
    MarkingPolicy::read(text, MARKERS).unwrap()
}

fn discipline(text: &str) -> DisciplineConfig {
    DisciplineConfig::read(text, DISCIPLINES).unwrap()
}

fn router(plan: &mut Plan) -> &mut RouterPlan {
    match &mut plan.nodes[1].role {
        Role::Router(router) => router,
        _ => unreachable!("the second node is the router"),
    }
}

/// Data at the consumer after a second and at the end, with this discipline at the router's faces.
fn received(text: &str) -> (usize, usize) {
    let mut plan = plan(100.0);
    router(&mut plan).discipline = discipline(text);
    let mut events: Vec<Event> = Vec::new();
    Network::new(&plan).unwrap().run(&mut events).unwrap();
    let is_data = |event: &&Event| matches!(event.kind, EventKind::DataReceived { .. });
    let all = events.iter().filter(is_data);
    let early = all.clone().filter(|event| event.at_ns <= S);
    (early.count(), all.count())
}

#[test]
fn discipline_timers_fire() {
    assert_eq!(received("fifo"), (100, 100));
    // One at once and one each 50 ms; the waiting ones leave during the drain time.
    assert_eq!(received("interest-rate interests_per_s=20 burst=1"), (20, 100));
}

/// Results of one second at 1,000 Interests per second. Packets have about 1 kB; the bottleneck has
/// 4 Mbit/s and a queue of 100 kB. Returns the longest queue in bytes, dropped frames, Data at the
/// consumer, and marked Data. The queue is sampled each millisecond, and a frame takes two.
fn overload(policy: &str, queueing: &str) -> (u64, u64, usize, usize) {
    let mut plan = plan(1000.0);
    let producer_bytes = Sizes::Fixed { bytes: 900 };
    for node in &mut plan.nodes {
        match &mut node.role {
            Role::Consumer(ConsumerPlan { names, .. })
            | Role::Producer(ProducerPlan { names, .. }) => {
                (names.sizes, names.segment_bytes) = (producer_bytes.clone(), 900);
            }
            Role::Router(router) => {
                (router.marking, router.discipline) = (marking(policy), discipline(queueing));
            }
        }
    }
    plan.links[0].b_to_a =
        LinkConfig { rate_bps: Some(4_000_000), queue_bytes_max: 100_000, ..LinkConfig::default() };
    plan.sample_ns = S / 1000;
    let mut events: Vec<Event> = Vec::new();
    Network::new(&plan).unwrap().run(&mut events).unwrap();
    let samples = events.iter().filter_map(|event| match event.kind {
        EventKind::LinkSample { link: 0, dropped, waiting_bytes, .. } if event.node == 1 => {
            Some((waiting_bytes, dropped))
        }
        _ => None,
    });
    let (queue_bytes_peak, dropped) = samples
        .fold((0, 0), |(peak, _), (waiting_bytes, dropped)| (peak.max(waiting_bytes), dropped));
    let marked = events.iter().filter_map(|event| match event.kind {
        EventKind::DataReceived { is_marked, .. } => Some(is_marked),
        _ => None,
    });
    let marked: Vec<bool> = marked.collect();
    let marks = marked.iter().filter(|&&is_marked| is_marked).count();
    (queue_bytes_peak, dropped, marked.len(), marks)
}

#[test]
fn unsuitable_marking_policy_is_rejected() {
    let mut plan = plan(1.0);
    router(&mut plan).marking = marking("rem q_max=90KB");
    let mut with_queues = |bytes| {
        for link in &mut plan.links {
            link.a_to_b.queue_bytes_max = bytes;
            link.b_to_a.queue_bytes_max = bytes;
        }
        Network::new(&plan)
    };
    assert!(with_queues(800_000).is_ok());
    let error = with_queues(1_000_000).err().map(|error| error.to_string());
    assert!(error.is_some_and(|error| error.contains("q_min=100kB and q_max=90kB")));
}

#[test]
fn every_policy_marks_by_the_link_queue() {
    for (policy, least, most) in [
        // Twice q_max is three fifths of the queue; the mean is there for most of the time.
        ("rem", 0.5, 0.95),
        ("rem q_min=90KB q_max=95KB", 0.001, 0.1),
        // 100 kB take 200 ms.
        ("codel target=20ms interval=50ms", 0.01, 0.2),
        ("step target=20ms", 0.9, 1.0),
        ("nfd", 0.001, 0.1),
    ] {
        let (queue_bytes, dropped, received, marks) = overload(policy, "fifo");
        assert!((99_000..=100_000).contains(&queue_bytes), "{policy}: {queue_bytes} bytes");
        assert_eq!(dropped as usize + received, 1000, "{policy}");
        assert!(dropped > 300, "{policy}: {dropped} dropped");
        let share = marks as f64 / received as f64;
        assert!((least..=most).contains(&share), "{policy}: {share} marked");
    }
    assert_eq!(overload("rem", "fifo"), overload("rem", "fifo"), "one seed, one result");
}

/// Interests leave the router as fast as the bottleneck carries their Data, whose size the router
/// learns. None is lost. The queue stays at the burst plus the initial error of the sizes.
#[test]
fn shaping_keeps_data_within_link_rate() {
    let (queue_bytes, dropped, received, marks) =
        overload("step target=100ms", "hr-icp rate_bps=3900000 burst_bytes=10000 held_max=2000");
    assert_eq!((dropped, received, marks), (0, 1000, 0));
    assert!(queue_bytes < 15_000, "{queue_bytes} bytes");
}
