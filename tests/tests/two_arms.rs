//! Runs the same plans in the simulator and with real processes, and compares the results. Counts
//! and ratios have tight bounds, times loose ones. Real times have no upper bound, as the machine
//! may be busy.

use std::collections::BTreeMap;

use weir_netem::{LinkConfig, Loss};
use weir_netsim::Network;
use weir_plan::event::{Event, EventKind, RouterSample};
use weir_plan::workload::{ConsumerPlan, Demand, Names, Popularity};
use weir_plan::{LinkPlan, Plan, Role, Transport};
use weir_plan_fixture::{MS, PlanBuilder, S, consumer, poisson, producer, router};
use weir_real::{self as real, RealOptions, RealReport};
use weir_tests::weir_binary;

fn options() -> RealOptions {
    RealOptions { program: weir_binary().to_path_buf(), ..RealOptions::default() }
}

struct ArmResult {
    events: Vec<Event>,
}

impl ArmResult {
    fn simulated(plan: &Plan) -> Self {
        let mut events = Vec::new();
        let mut network = Network::new(plan).expect("a plan for the simulator");
        if let Err(violation) = network.run(&mut events) {
            panic!("the simulator: {violation}\n{}", violation.last_events.join("\n"));
        }
        Self { events }
    }

    fn real(plan: &Plan) -> (Self, RealReport) {
        let mut events = Vec::new();
        let report = real::run(plan, &options(), &mut events)
            .unwrap_or_else(|error| panic!("the real arm: {error}"));
        assert_eq!(report.events, events.len() as u64);
        assert!(events.is_sorted_by_key(|event| event.at_ns), "events come in the order of time");
        (Self { events }, report)
    }

    fn count(&self, is_counted: impl Fn(&EventKind) -> bool) -> u64 {
        self.events.iter().filter(|event| is_counted(&event.kind)).count() as u64
    }

    fn interests(&self) -> u64 {
        self.count(|kind| matches!(kind, EventKind::InterestSent { .. }))
    }

    fn repeated(&self) -> u64 {
        self.count(|kind| matches!(kind, EventKind::InterestSent { is_repeated: true, .. }))
    }

    fn data(&self) -> u64 {
        self.count(|kind| matches!(kind, EventKind::DataReceived { .. }))
    }

    fn failures(&self) -> u64 {
        self.count(|kind| {
            matches!(
                kind,
                EventKind::TimedOut { .. }
                    | EventKind::NackReceived { .. }
                    | EventKind::ObjectFailed { .. }
            )
        })
    }

    /// The requests of each node, in order.
    fn requests(&self) -> BTreeMap<u32, Vec<(u64, u64)>> {
        let mut requests: BTreeMap<u32, Vec<(u64, u64)>> = BTreeMap::new();
        for event in &self.events {
            if let EventKind::InterestSent { object, segment, is_repeated: false } = event.kind {
                requests.entry(event.node).or_default().push((object, segment));
            }
        }
        requests
    }

    /// The last sample of every router.
    fn samples(&self) -> BTreeMap<u32, RouterSample> {
        let mut samples = BTreeMap::new();
        for event in &self.events {
            if let EventKind::RouterSample(sample) = &event.kind {
                samples.insert(event.node, **sample);
            }
        }
        samples
    }

    fn hit_ratios(&self) -> Vec<f64> {
        let ratio = |sample: &RouterSample| {
            sample.store_hits as f64 / (sample.store_hits + sample.store_misses).max(1) as f64
        };
        self.samples().values().map(ratio).collect()
    }

    fn completions(&self) -> Vec<(u64, u64, u64)> {
        let completion = |event: &Event| match event.kind {
            EventKind::ObjectCompleted { object, content_bytes, elapsed_ns } => {
                Some((object, content_bytes, elapsed_ns))
            }
            _ => None,
        };
        self.events.iter().filter_map(completion).collect()
    }

    fn rtt_median_ns(&self) -> u64 {
        let rtt = |event: &Event| match event.kind {
            EventKind::DataReceived { rtt_ns, .. } => Some(rtt_ns),
            _ => None,
        };
        let mut rtts: Vec<u64> = self.events.iter().filter_map(rtt).collect();
        rtts.sort_unstable();
        rtts[rtts.len() / 2]
    }
}

#[track_caller]
fn assert_near(what: &str, real: f64, simulated: f64, bound: f64) {
    println!("{what}: real {real}, simulated {simulated}");
    assert!((real - simulated).abs() <= bound, "{what}: real {real}, simulated {simulated}");
}

fn builder(seed: u64, duration_ns: u64) -> PlanBuilder {
    let mut builder = PlanBuilder::new(seed, duration_ns);
    (builder.plan.drain_ns, builder.plan.sample_ns) = (2 * S, 500 * MS);
    builder
}

fn add_router(to: &mut PlanBuilder, name: &str, store_bytes: u64) -> usize {
    let mut plan = router(store_bytes);
    plan.store.policy = "lru".parse().unwrap();
    to.node(name, Role::Router(plan))
}

fn add_consumer(to: &mut PlanBuilder, names: &Names, demand: Demand) -> usize {
    let plan = ConsumerPlan { lifetime_ms: 1000, ..consumer(names.clone(), demand) };
    to.node("consumer", Role::Consumer(plan))
}

fn add_producer(to: &mut PlanBuilder, names: &Names) -> usize {
    to.node("producer", Role::Producer(producer(names.clone())))
}

fn link(a: usize, b: usize, transport: Transport, config: &LinkConfig) -> LinkPlan {
    let is_local = transport == Transport::Unix;
    LinkPlan { is_local, transport, ..LinkPlan::local(a, b, config) }
}

fn names(popularity: Popularity, object_bytes: u64, segment_bytes: u32) -> Names {
    weir_plan_fixture::names("/data", popularity, object_bytes, segment_bytes)
}

/// One consumer, one router and one producer on one host.
fn one_router(transport: Transport, demand: Demand, names: &Names, duration_ns: u64) -> Plan {
    let mut draft = builder(7, duration_ns);
    let router = add_router(&mut draft, "router", 64 << 20);
    let consumer = add_consumer(&mut draft, names, demand);
    let producer = add_producer(&mut draft, names);
    let ideal = LinkConfig::default();
    draft.connect(link(consumer, router, transport, &ideal));
    let link = draft.connect(link(router, producer, transport, &ideal));
    draft.route(router, "/data", link);
    draft.plan
}

/// Open loop at a low rate: all transports give the same requests and hits.
#[test]
fn poisson_through_one_router() {
    let zipf = Popularity::Zipf { objects: 200, exponent: 0.8 };
    let names = names(zipf, 4000, 1000);
    let transports = [Transport::Unix, Transport::Tcp, Transport::Udp];
    for transport in transports {
        let plan = one_router(transport, poisson(300.0), &names, 2 * S);
        let simulated = ArmResult::simulated(&plan);
        let (real, report) = ArmResult::real(&plan);
        assert_eq!(real.requests(), simulated.requests(), "{transport:?}");
        assert_eq!(real.data(), simulated.data());
        assert_eq!(real.failures() + simulated.failures(), 0);
        let (ours, theirs) = (real.samples(), simulated.samples());
        // A busy machine delivers Interests in bursts. They are aggregated in the PIT, where the
        // simulator has store hits.
        let (hits, expected) = (ours[&0].store_hits as f64, theirs[&0].store_hits as f64);
        assert_near("hits", hits, expected, 0.02 * expected);
        assert_eq!(ours[&0].in_interests, theirs[&0].in_interests);
        // In a burst from one face, the router suppresses the second Interest.
        assert!(ours[&0].dropped as f64 <= (expected - hits).max(0.0), "{}", ours[&0].dropped);
        assert_eq!(report.routers[0].pit_entries, 0);
        assert_eq!((report.apps.len(), report.routers.len()), (2, 1));
        println!("{transport:?}: rtt {} ns, {report:?}", real.rtt_median_ns());
    }
}

fn shaped(loss: Loss) -> LinkConfig {
    LinkConfig {
        rate_bps: Some(10_000_000),
        delay_ns: 20 * MS,
        loss,
        queue_bytes_max: 64 << 10,
        ..LinkConfig::default()
    }
}

/// A consumer behind an emulated UDP link with 10 Mbit/s and 20 ms.
fn far_consumer(demand: Demand, names: &Names, loss: Loss, duration_ns: u64) -> Plan {
    let mut draft = builder(11, duration_ns);
    let router = add_router(&mut draft, "router", 64 << 20);
    let consumer = add_consumer(&mut draft, names, demand);
    let producer = add_producer(&mut draft, names);
    draft.connect(link(consumer, router, Transport::Udp, &shaped(loss)));
    let link = draft.connect(link(router, producer, Transport::Unix, &LinkConfig::default()));
    draft.route(router, "/data", link);
    draft.plan
}

fn one_object(controller: &str) -> Demand {
    Demand::Objects { arrivals: None, count: Some(1), controller: controller.into(), window: None }
}

/// The bottleneck determines the transfer time: at least the time for its bytes, and not much more
/// than that plus slow start, unless the machine is late.
#[test]
fn object_over_a_bottleneck() {
    let bytes = 1_000_000;
    let names = names(Popularity::Sequential { objects: 1 }, bytes, 1000);
    for controller in ["aimd", "cubic"] {
        let plan = far_consumer(one_object(controller), &names, Loss::None, 20 * S);
        let simulated = ArmResult::simulated(&plan);
        let (real, report) = ArmResult::real(&plan);
        let (ours, theirs) = (real.completions(), simulated.completions());
        assert_eq!((ours.len(), theirs.len()), (1, 1), "{controller}");
        assert_eq!((ours[0].0, ours[0].1), (theirs[0].0, theirs[0].1));
        assert_eq!(ours[0].1, bytes);
        let least_ns = bytes * 8 * S / 10_000_000;
        let (real_ns, simulated_ns) = (ours[0].2, theirs[0].2);
        println!("{controller}: real {real_ns} ns, simulated {simulated_ns} ns, {report:?}");
        assert!(real_ns > least_ns && simulated_ns > least_ns);
        assert!(real_ns < 3 * simulated_ns + 2 * S, "real {real_ns}, simulated {simulated_ns}");
        assert!(real.rtt_median_ns() >= 40 * MS);
    }
}

/// A link with 2 % loss in each direction gives the same share of retransmissions in both arms.
#[test]
fn object_over_a_link_that_loses() {
    let segments = 1500;
    let names = names(Popularity::Sequential { objects: 1 }, segments * 1000, 1000);
    let loss = Loss::Independent { probability: 0.02 };
    let plan = far_consumer(one_object("fixed"), &names, loss, 40 * S);
    let simulated = ArmResult::simulated(&plan);
    let (real, _) = ArmResult::real(&plan);
    for story in [&real, &simulated] {
        assert_eq!(story.completions().len(), 1);
        assert_eq!(story.data(), segments);
        let again = story.repeated() as f64 / story.interests() as f64;
        // 3.96 % are lost in either direction. The bounds allow 4 standard deviations and losses of
        // retransmissions.
        assert!((0.018..0.065).contains(&again), "{again} of the Interests were retransmitted");
    }
    let again = |story: &ArmResult| story.repeated() as f64 / segments as f64;
    assert_near("sent again", again(&real), again(&simulated), 0.03);
}

/// Routers retransmit packets lost on their link, so each Interest is sent once and answered.
#[test]
fn a_reliable_link_that_loses() {
    let names = names(Popularity::Sequential { objects: 10_000 }, 1000, 1000);
    let mut draft = builder(12, 4 * S);
    let routers = ["near", "far"].map(|name| add_router(&mut draft, name, 0));
    let consumer = add_consumer(&mut draft, &names, poisson(300.0));
    let producer = add_producer(&mut draft, &names);
    draft.connect(link(consumer, routers[0], Transport::Unix, &LinkConfig::default()));
    let lossy = shaped(Loss::Independent { probability: 0.05 });
    let between = draft.connect(link(routers[0], routers[1], Transport::Udp, &lossy));
    draft.plan.links[between].reliability = true;
    draft.route(routers[0], "/data", between);
    let last = draft.connect(link(routers[1], producer, Transport::Unix, &LinkConfig::default()));
    draft.route(routers[1], "/data", last);
    let simulated = ArmResult::simulated(&draft.plan);
    let (real, _) = ArmResult::real(&draft.plan);
    assert_eq!(real.requests(), simulated.requests());
    assert_eq!(simulated.data(), simulated.interests());
    // Without retransmission 1 in 10 is lost, with it 1 in 10,000. The machine may also be late.
    assert!(real.interests() > 1000 && real.interests() - real.data() < 5, "{:?}", real.data());
}

/// A line of small stores: popular objects stay near the consumer.
#[test]
fn line_of_stores_agrees_in_both_arms() {
    let zipf = Popularity::Zipf { objects: 300, exponent: 1.0 };
    let names = names(zipf, 1000, 1000);
    let mut draft = builder(3, 3 * S);
    let routers = ["near", "middle", "far"].map(|name| add_router(&mut draft, name, 60_000));
    let consumer = add_consumer(&mut draft, &names, poisson(400.0));
    let producer = add_producer(&mut draft, &names);
    let ideal = LinkConfig::default();
    draft.connect(link(consumer, routers[0], Transport::Unix, &ideal));
    let links = [
        draft.connect(link(routers[0], routers[1], Transport::Udp, &ideal)),
        draft.connect(link(routers[2], routers[1], Transport::Tcp, &ideal)),
        draft.connect(link(producer, routers[2], Transport::Tcp, &ideal)),
    ];
    for (router, link) in routers.into_iter().zip(links) {
        draft.route(router, "/data", link);
    }
    let plan = draft.plan;
    let simulated = ArmResult::simulated(&plan);
    let (real, _) = ArmResult::real(&plan);
    assert_eq!(real.requests(), simulated.requests());
    assert_eq!(real.data(), simulated.data());
    let (ours, theirs) = (real.hit_ratios(), simulated.hit_ratios());
    assert!(theirs[0] > 0.2 && theirs[0] < 0.8, "{theirs:?}");
    for (at, (real, simulated)) in ours.iter().zip(&theirs).enumerate() {
        assert_near(&format!("hit ratio of router {at}"), *real, *simulated, 0.02);
    }
}

/// A store that is filled at the start answers in both arms, and admits nothing else.
#[test]
fn stores_filled_from_the_start() {
    let names = names(Popularity::Uniform { objects: 100 }, 1000, 1000);
    let mut plan = one_router(Transport::Unix, poisson(300.0), &names, 2 * S);
    let Role::Router(router) = &mut plan.nodes[0].role else { panic!("a router") };
    (router.store_filled, router.store.admit) = (0.5, false);
    let simulated = ArmResult::simulated(&plan);
    let (real, _) = ArmResult::real(&plan);
    let (ours, theirs) = (real.samples()[&0], simulated.samples()[&0]);
    assert_eq!(ours.store_entries, theirs.store_entries);
    assert_eq!(ours.store_hits, theirs.store_hits);
    assert_eq!(real.data(), simulated.data());
    assert_near("hit ratio", real.hit_ratios()[0], 0.5, 0.25);
}
