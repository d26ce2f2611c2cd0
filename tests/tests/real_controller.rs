//! Routers that ask a controller, and consumers that ask routers what they hold, on real processes
//! (paper multipath-cache-management).

use weir_netem::LinkConfig;
use weir_options::StoreOptions;
use weir_plan::event::{Event, EventKind};
use weir_plan::workload::{ConsumerPlan, Demand, Names, Popularity, ProducerPlan, Sizes};
use weir_plan::{ControllerPlan, LinkPlan, NodePlan, Plan, Role, RoutePlan, RouterPlan, Transport};
use weir_real::{self as real, RealError, RealOptions};
use weir_tests::weir_binary;

const MS: u64 = 1_000_000;
const S: u64 = 1000 * MS;
const SEGMENTS: u64 = 600;

fn names() -> Names {
    Names {
        prefix: "/file".into(),
        components: 0,
        popularity: Popularity::Sequential { objects: 1 },
        sizes: Sizes::Fixed { bytes: SEGMENTS * 8000 },
        segment_bytes: 8000,
    }
}

fn consumer(demand: Demand) -> ConsumerPlan {
    ConsumerPlan {
        start_ns: 0,
        stop_ns: None,
        lifetime_ms: 1000,
        verify_ns: 0,
        decrease_interval_ns: None,
        waits_for_lifetime: false,
        chunk_units: 1,
        schedule: Default::default(),
        holdings: Default::default(),
        path_windows: Vec::new(),
        prefetches: false,
        names: names(),
        demand,
    }
}

/// A plan under construction.
struct Draft(Plan);

impl Draft {
    fn new(duration_ns: u64) -> Self {
        Self(Plan {
            seed: 3,
            duration_ns,
            drain_ns: 2 * S,
            sample_ns: 200 * MS,
            nodes: Vec::new(),
            links: Vec::new(),
            routes: Vec::new(),
            faults: Vec::new(),
            controller: None,
        })
    }

    fn node(&mut self, name: &str, role: Role) -> usize {
        self.0.nodes.push(NodePlan { name: name.into(), role });
        self.0.nodes.len() - 1
    }

    fn router(&mut self, name: &str, store_bytes: u64, store_filled: f64) -> usize {
        let policy = "lru".parse().expect("a policy");
        let store = StoreOptions { policy, ..StoreOptions::with_bytes(store_bytes) };
        self.node(name, Role::Router(RouterPlan { store, store_filled, ..RouterPlan::default() }))
    }

    fn producer(&mut self, name: &str) -> usize {
        let plan = ProducerPlan { names: names(), freshness_ms: 3_600_000, delay_ns: 0 };
        self.node(name, Role::Producer(plan))
    }

    /// A link with so much delay, or one on one host.
    fn link(&mut self, a: usize, b: usize, delay_ms: Option<u64>) -> usize {
        let delay_ns = delay_ms.unwrap_or(0) * MS;
        let config = LinkConfig { delay_ns, ..LinkConfig::default() };
        self.0.links.push(LinkPlan {
            a,
            b,
            a_to_b: config.clone(),
            b_to_a: config,
            is_local: delay_ms.is_none(),
            transport: if delay_ms.is_some() { Transport::Udp } else { Transport::Unix },
            mtu: 8800,
            reliability: false,
            runs: false,
        });
        self.0.links.len() - 1
    }

    fn route(&mut self, node: usize, link: usize) {
        self.0.routes.push(RoutePlan { node, prefix: "/file".into(), link, cost: 0 });
    }

    fn run(&self) -> Vec<Event> {
        let options =
            RealOptions { program: weir_binary().to_path_buf(), ..RealOptions::default() };
        let mut events = Vec::new();
        real::run(&self.0, &options, &mut events).unwrap_or_else(|error| panic!("{error}"));
        events
    }
}

/// A host behind an edge, three routers beside each other, and an origin. Stores of the three hold
/// 7.5 MB together, and the file has 4.8; none holds it alone.
fn parts(demand: Demand) -> (Draft, usize) {
    let mut draft = Draft::new(60 * S);
    let edge = draft.router("edge", 0, 0.0);
    let middle = ["one", "two", "three"].map(|name| draft.router(name, 2500 << 10, 0.0));
    let origin = draft.router("origin", 0, 0.0);
    let host = draft.node("host", Role::Consumer(consumer(demand)));
    let producer = draft.producer("producer");
    draft.link(host, edge, Some(1));
    for (place, &router) in middle.iter().enumerate() {
        let near = draft.link(edge, router, Some(2 + place as u64));
        let far = draft.link(router, origin, Some(10));
        if place == 0 {
            draft.route(edge, near);
        }
        draft.route(router, far);
        let ahead = ConsumerPlan {
            prefetches: true,
            ..consumer(Demand::Window { window: 1, count: None })
        };
        let ahead = draft.node(&format!("ahead-{place}"), Role::Consumer(ahead));
        draft.link(ahead, router, None);
    }
    let last = draft.link(origin, producer, None);
    draft.route(origin, last);
    draft.0.controller = Some(ControllerPlan {
        delay_ns: 5 * MS,
        placement: weir_control::Placement::LargestFree,
        prefetch: true,
        prefetch_first: false,
        ratio: Vec::new(),
        agents: false,
        routes: None,
    });
    (draft, origin)
}

/// Read 20 times in a row, a file that no store holds is mostly in the three together: the routers
/// have an agent each, which asked the controller, fetched ahead and set up what it said, by links
/// that take time.
#[test]
fn a_file_larger_than_any_store_is_kept_in_parts() {
    const READINGS: u64 = 20;
    let demand = Demand::Window { window: 20, count: Some(READINGS * SEGMENTS) };
    let (draft, origin) = parts(demand);
    let events = draft.run();
    let is_data = |event: &&Event| matches!(event.kind, EventKind::DataReceived { .. });
    assert_eq!(events.iter().filter(is_data).count() as u64, READINGS * SEGMENTS);
    let mut samples = events.iter().filter_map(|event| match &event.kind {
        EventKind::RouterSample(sample) if event.node as usize == origin => Some(sample.out_data),
        _ => None,
    });
    // Once, and for what was read again before there was a plan.
    let produced = samples.next_back().expect("samples");
    assert!((SEGMENTS..READINGS * SEGMENTS / 2).contains(&produced), "{produced}");
}

#[test]
fn a_store_that_is_filled_is_asked_and_one_that_is_empty_is_not() {
    let mut draft = Draft::new(20 * S);
    let full = draft.router("full", 16 << 20, 1.0);
    let empty = draft.router("empty", 16 << 20, 0.0);
    let demand = Demand::Objects {
        arrivals: None,
        count: Some(1),
        controller: "fixed".into(),
        window: Some(10),
    };
    let plan = ConsumerPlan {
        schedule: "round-robin".parse().expect("a schedule"),
        holdings: weir_transport::Holdings::Wait,
        ..consumer(demand)
    };
    let host = draft.node("host", Role::Consumer(plan));
    let producer = draft.producer("producer");
    draft.link(host, full, Some(5));
    draft.link(host, empty, Some(5));
    let last = draft.link(empty, producer, None);
    draft.route(empty, last);
    let events = draft.run();
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
fn what_agents_of_processes_cannot_do_is_refused() {
    let (good, _) = parts(Demand::Window { window: 1, count: Some(1) });
    let mut cases = Vec::new();
    let mut case = |part: &'static str, change: &dyn Fn(&mut Plan)| {
        let mut plan = good.0.clone();
        change(&mut plan);
        cases.push((part, plan));
    };
    case("no neighbours", &|plan| plan.controller.as_mut().expect("one").agents = true);
    case("by `no name`", &|plan| plan.nodes[1].name = "no name".into());
    case("is no `udp`", &|plan| {
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
