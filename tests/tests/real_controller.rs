//! Routers with a controller, and consumers that request the holdings of routers, with real
//! processes (paper multipath-cache-management).

use weir_netem::LinkConfig;
use weir_plan::event::{Event, EventKind};
use weir_plan::workload::{ConsumerPlan, Demand, Names, Popularity};
use weir_plan::{ControllerPlan, LinkPlan, Plan, Role, RouterPlan, Transport};
use weir_plan_fixture::{MS, PlanBuilder, S, consumer, names, producer, router};
use weir_real::{self as real, RealError, RealOptions};
use weir_tests::weir_binary;

const SEGMENTS: u64 = 600;

fn file() -> Names {
    names("/file", Popularity::Sequential { objects: 1 }, SEGMENTS * 8000, 8000)
}

fn reader(demand: Demand) -> ConsumerPlan {
    ConsumerPlan { lifetime_ms: 1000, ..consumer(file(), demand) }
}

fn builder(duration_ns: u64) -> PlanBuilder {
    let mut builder = PlanBuilder::new(3, duration_ns);
    (builder.plan.drain_ns, builder.plan.sample_ns) = (2 * S, 200 * MS);
    builder
}

fn add_router(to: &mut PlanBuilder, name: &str, store_bytes: u64, store_filled: f64) -> usize {
    let mut plan = RouterPlan { store_filled, ..router(store_bytes) };
    plan.store.policy = "lru".parse().expect("a policy");
    to.node(name, Role::Router(plan))
}

fn add_producer(to: &mut PlanBuilder) -> usize {
    to.node("producer", Role::Producer(producer(file())))
}

/// A link with this delay, or within one host.
fn link(a: usize, b: usize, delay_ms: Option<u64>) -> LinkPlan {
    let delay_ns = delay_ms.unwrap_or(0) * MS;
    let link = LinkPlan::local(a, b, &LinkConfig { delay_ns, ..LinkConfig::default() });
    if delay_ms.is_none() {
        return link;
    }
    LinkPlan { is_local: false, transport: Transport::Udp, ..link }
}

fn run(plan: &Plan) -> Vec<Event> {
    let options = RealOptions { program: weir_binary().to_path_buf(), ..RealOptions::default() };
    let mut events = Vec::new();
    real::run(plan, &options, &mut events).unwrap_or_else(|error| panic!("{error}"));
    events
}

/// A consumer behind an edge router, three parallel routers, and an origin. The three stores have
/// 7.5 MB together. The file has 4.8 MB, more than any of them.
fn parts(demand: Demand) -> (Plan, usize) {
    let mut draft = builder(60 * S);
    let edge = add_router(&mut draft, "edge", 0, 0.0);
    let middle = ["one", "two", "three"].map(|name| add_router(&mut draft, name, 2500 << 10, 0.0));
    let origin = add_router(&mut draft, "origin", 0, 0.0);
    let host = draft.node("host", Role::Consumer(reader(demand)));
    let producer = add_producer(&mut draft);
    draft.connect(link(host, edge, Some(1)));
    for (place, &router) in middle.iter().enumerate() {
        let near = draft.connect(link(edge, router, Some(2 + place as u64)));
        let far = draft.connect(link(router, origin, Some(10)));
        if place == 0 {
            draft.route(edge, "/file", near);
        }
        draft.route(router, "/file", far);
        let ahead =
            ConsumerPlan { prefetches: true, ..reader(Demand::Window { window: 1, count: None }) };
        let ahead = draft.node(format!("ahead-{place}"), Role::Consumer(ahead));
        draft.connect(link(ahead, router, None));
    }
    let last = draft.connect(link(origin, producer, None));
    draft.route(origin, "/file", last);
    draft.plan.controller = Some(ControllerPlan {
        delay_ns: 5 * MS,
        placement: weir_control::Placement::LargestFree,
        prefetch: true,
        prefetch_first: false,
        ratio: Vec::new(),
        agents: false,
        routes: None,
    });
    (draft.plan, origin)
}

/// A file larger than any store is read 20 times. Most reads come from the three routers together:
/// their agents got a plan from the controller, prefetched their parts and installed the routes,
/// over links with delay.
#[test]
fn file_larger_than_stores_is_split() {
    const READINGS: u64 = 20;
    let demand = Demand::Window { window: 20, count: Some(READINGS * SEGMENTS) };
    let (plan, origin) = parts(demand);
    let events = run(&plan);
    let is_data = |event: &&Event| matches!(event.kind, EventKind::DataReceived { .. });
    assert_eq!(events.iter().filter(is_data).count() as u64, READINGS * SEGMENTS);
    let mut samples = events.iter().filter_map(|event| match &event.kind {
        EventKind::RouterSample(sample) if event.node as usize == origin => Some(sample.out_data),
        _ => None,
    });
    // The first read, and segments that were read again before the plan existed.
    let produced = samples.next_back().expect("samples");
    assert!((SEGMENTS..READINGS * SEGMENTS / 2).contains(&produced), "{produced}");
}

#[test]
fn only_the_filled_store_is_asked() {
    let mut draft = builder(20 * S);
    let full = add_router(&mut draft, "full", 16 << 20, 1.0);
    let empty = add_router(&mut draft, "empty", 16 << 20, 0.0);
    let demand = Demand::Objects {
        arrivals: None,
        count: Some(1),
        controller: "fixed".into(),
        window: Some(10),
    };
    let plan = ConsumerPlan {
        schedule: "round-robin".parse().expect("a schedule"),
        holdings: weir_transport::HoldingsMode::Wait,
        ..reader(demand)
    };
    let host = draft.node("host", Role::Consumer(plan));
    let producer = add_producer(&mut draft);
    draft.connect(link(host, full, Some(5)));
    draft.connect(link(host, empty, Some(5)));
    let last = draft.connect(link(empty, producer, None));
    draft.route(empty, "/file", last);
    let events = run(&draft.plan);
    let is_complete = |event: &Event| matches!(event.kind, EventKind::ObjectCompleted { .. });
    assert!(events.iter().any(is_complete));
    let mut bytes = [0; 2];
    for event in &events {
        if let EventKind::PathSample { path, content_bytes, .. } = event.kind {
            bytes[path as usize] = content_bytes;
        }
    }
    assert!(bytes[0] > 0 && bytes[1] == 0, "{bytes:?}");
}

#[test]
fn refuses_plans_agents_cannot_run() {
    let (good, _) = parts(Demand::Window { window: 1, count: Some(1) });
    let mut cases = Vec::new();
    let mut case = |part: &'static str, change: &dyn Fn(&mut Plan)| {
        let mut plan = good.clone();
        change(&mut plan);
        cases.push((part, plan));
    };
    case("not neighbours", &|plan| plan.controller.as_mut().expect("one").agents = true);
    case("not `no name`", &|plan| plan.nodes[1].name = "no name".into());
    case("must be `udp`", &|plan| {
        let far = plan.links.iter().position(|link| link.b == 4).expect("a link to the origin");
        let ideal = LinkConfig::default();
        let (a_to_b, b_to_a, transport) = (ideal.clone(), ideal, Transport::Tcp);
        plan.links[far] = LinkPlan { a_to_b, b_to_a, transport, ..plan.links[far].clone() };
    });
    case("`producer` is behind", &|plan| {
        let last = plan.links.len() - 1;
        plan.links[last].transport = Transport::Udp;
    });
    for (part, plan) in cases {
        let error = real::run(&plan, &RealOptions::default(), &mut Vec::new()).unwrap_err();
        assert!(matches!(error, RealError::Unsupported(_)), "{error}");
        assert!(error.to_string().contains(part), "{error} lacks {part}");
    }
}
