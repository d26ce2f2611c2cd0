//! Routers with agents in one process, and a controller.

use crate::common;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use common::wire::{SimulatedLink, relay};
use common::{Producer, RouterWithAgent, SEGMENT_BYTES, TEST_TIMEOUT, TestController, name, read};
use weir_agent::AgentConfig;
use weir_base::{FaceId, Instant as Moment};
use weir_client::Client;
use weir_control::message::{FaceReport, RouterReport, SetupPart, SetupProblem};
use weir_control::{ControllerConfig, File, Part};
use weir_io_fixture::wait_until;
use weir_manage::commands::Command;
use weir_manage::{ControlParameters, FaceStatus, RibEntry, StrategyChoice, route_origin};
use weir_runtime::Handle;
use weir_wire::Interest;

fn file(segments: u64) -> File {
    File {
        name: name("/data/file/v=1"),
        segments,
        size_bytes: segments * SEGMENT_BYTES as u64,
        packet_bytes: 8200,
        manifest: Vec::new(),
    }
}

/// Routers `edge`, `middle` and `origin` in a chain.
struct ThreeRouters {
    controller: TestController,
    edge: RouterWithAgent,
    /// Kept alive.
    _middle: RouterWithAgent,
    origin: RouterWithAgent,
}

impl ThreeRouters {
    fn start(threads: usize, store_bytes: u64) -> Self {
        let controller = TestController::start(ControllerConfig::default());
        let origin = RouterWithAgent::start("origin", &controller, threads, store_bytes, &[]);
        let middle =
            RouterWithAgent::start("middle", &controller, threads, store_bytes, &[&origin.uri]);
        let edge =
            RouterWithAgent::start("edge", &controller, threads, store_bytes, &[&middle.uri]);
        Self { controller, edge, _middle: middle, origin }
    }

    /// Waits until routes lead from the edge to the producer. Small objects need nothing else of
    /// the controller.
    fn wait_for_routes(&self) {
        self.controller.wait_until("there are routes", |controller| {
            let has_route = |router: &str| {
                controller.configuration(router).is_some_and(|one| !one.routes.is_empty())
            };
            let has_got = |router: &str| {
                let mut routers = controller.routers();
                let report = routers.find(|(name, _)| *name == router);
                report.is_some_and(|(_, it)| it.generation == controller.generation_of(router))
            };
            ["edge", "middle"].iter().all(|router| has_route(router) && has_got(router))
        });
        read(&self.edge.router, &name("/data/small/v=1"), 3);
        // Faces that were created by a peer's first packets are reported as well.
        let has_both_ways = |controller: &weir_control::Controller| controller.links().len() == 4;
        self.controller.wait_until("links are known both ways", has_both_ways);
    }
}

#[test]
fn file_in_parts_is_produced_once() {
    // 16 MB of packets with stores of 12.6 MB, and 57 MB with stores of 50.3 MB. So no store can
    // hold all of it, and it must be divided.
    for (threads, store_bytes, segments) in [(1, 12 << 20, 2000), (2, 48 << 20, 7000)] {
        let row = ThreeRouters::start(threads, store_bytes);
        let producer = Producer::start(&row.origin.router, "/data", segments);
        row.controller
            .with(|controller| controller.add_file("producer p", file(segments)).unwrap());
        row.wait_for_routes();
        let object = file(segments).name;
        read(&row.edge.router, &object, segments);
        // The read may end before the router asks the controller.
        row.controller.wait_until("it is planned", |controller| controller.plans().count() == 1);
        row.controller.wait_until("each keeps its part", |controller| {
            let held: BTreeMap<_, _> = controller.holdings(&object).into_iter().collect();
            let has = |part: &Part| {
                let held = held.get(part.router.as_str());
                let count = held.map_or(0, |held| held.count_within(part.first, part.last));
                count == part.last - part.first + 1
            };
            controller.plans().all(|plan| {
                plan.parts.iter().map(|part| part.last - part.first + 1).sum::<u64>() == segments
                    && plan.parts.iter().all(has)
            })
        });
        let before = producer.asked();
        read(&row.edge.router, &object, segments);
        assert_eq!(producer.asked(), before, "{threads} threads: {}", row.controller.describe());
        assert_eq!(row.controller.requests("forward"), 1);
        let plans = row.controller.with(|controller| controller.plans().count());
        assert_eq!(plans, 1);
    }
}

#[test]
fn restarted_controller_gets_a_full_report() {
    let row = ThreeRouters::start(2, 12 << 20);
    let _producer = Producer::start(&row.origin.router, "/data", 300);
    row.wait_for_routes();
    let object = name("/data/other/v=1");
    read(&row.edge.router, &object, 300);
    let is_held = |controller: &weir_control::Controller| {
        let held = controller.holdings(&object);
        held.len() == 3 && held.iter().all(|(_, segments)| segments.count() == 300)
    };
    row.controller.wait_until("all three hold it", is_held);
    let updates = row.controller.requests("update");
    assert!(updates < 40, "{updates} updates for 900 segments");
    row.controller.forget();
    row.controller.wait_until("all three have reported it again", is_held);
}

#[test]
fn forwards_without_controller_then_reports() {
    let row = ThreeRouters::start(1, 12 << 20);
    let _producer = Producer::start(&row.origin.router, "/data", 100);
    row.wait_for_routes();
    row.controller.refuse(true);
    let object = name("/data/meanwhile/v=1");
    read(&row.edge.router, &object, 100);
    row.controller.with(|controller| assert!(controller.holdings(&object).is_empty()));
    row.controller.refuse(false);
    row.controller.wait_until("changes in between are reported", |controller| {
        controller.holdings(&object).iter().any(|(router, held)| {
            *router == "edge" && held.ranges().collect::<Vec<_>>() == [(0, 99)]
        })
    });
}

#[test]
fn routes_follow_producers_and_spare_others() {
    let row = ThreeRouters::start(1, 12 << 20);
    let producer = Producer::start(&row.origin.router, "/data", 3);
    row.wait_for_routes();
    let mut client =
        Client::from_socket_pair(row.edge.router.local_port().connect().unwrap()).unwrap();
    let routes = |client: &mut Client| -> Vec<(String, u64)> {
        let entries: Vec<RibEntry> = client.dataset("rib/list").unwrap();
        let routes = entries.iter().flat_map(|entry| {
            entry.routes.iter().map(|route| (entry.name.to_string(), route.origin))
        });
        routes.filter(|(prefix, _)| !prefix.starts_with("/local")).collect()
    };
    let faces: Vec<FaceStatus> = client.dataset("faces/list").unwrap();
    let middle = faces.iter().find(|face| face.info.uri.starts_with("udp4")).unwrap();
    let parameters = ControlParameters {
        name: Some(name("/data")),
        face_id: Some(middle.info.face_id),
        origin: Some(route_origin::STATIC),
        ..ControlParameters::default()
    };
    client.command(Command::RibRegister, &parameters).unwrap();
    let data = |origin| ("/data".to_owned(), origin);
    let both = [data(route_origin::CONTROLLER), data(route_origin::STATIC)];
    assert_eq!(routes(&mut client), both);
    drop(producer);
    wait_until("the route of the agent is gone", || {
        routes(&mut client) == [data(route_origin::STATIC)]
    });
}

/// Interests from applications of this process, including the agent.
fn local_interests(router: &Handle) -> u64 {
    let faces = router.snapshot().unwrap().faces;
    let local = faces.iter().filter(|face| face.uri.starts_with("fd"));
    local.map(|face| face.counters.in_interests).sum()
}

/// Sends an Interest for a late segment of each of `objects` objects. Returns how many were refused
/// with a Nack, as a router without a route does.
fn miss(client: &mut Client, objects: u64) -> u64 {
    let path = client.paths().next().unwrap();
    let (mut refused, mut packets) = (0, Vec::new());
    for first in (0..objects).step_by(50) {
        for number in first..first + 50 {
            let asked = name(&format!("/flood/{number}/v=1/seg=64"));
            let nonce = client.random_u64() as u32;
            let interest = Interest::new(asked).nonce(nonce).lifetime_ms(1000).encode();
            client.send_bytes(path, &interest).unwrap();
        }
        let deadline = client.now().plus_ns(1_000_000_000);
        let wanted = refused + 50;
        while refused < wanted && client.now() < deadline {
            client.poll(Some(deadline), &mut packets).unwrap();
            refused +=
                packets.drain(..).filter(|packet| packet.header.nack.is_some()).count() as u64;
        }
    }
    refused
}

const FLOOD: u64 = 10_000;

/// A router whose agent reports at its start, and then not for a minute.
fn quiet_site(controller: &TestController) -> RouterWithAgent {
    let (router, uri) = common::router(1, 1 << 20, &[]);
    let mut node = RouterWithAgent { agent: None, router, uri };
    let quiet = |config: &mut AgentConfig| config.interval = Duration::from_secs(60);
    node.start_agent_with("edge", controller, quiet);
    controller.wait_until("the router has reported and been set up", |controller| {
        controller.configuration("edge").is_some()
    });
    node
}

#[test]
fn misses_of_other_hosts_cost_nothing() {
    let controller = TestController::start(ControllerConfig::default());
    let node = quiet_site(&controller);
    let mut stranger = Client::connect(&node.uri.parse().unwrap()).unwrap();
    let mut client = Client::from_socket_pair(node.router.local_port().connect().unwrap()).unwrap();
    let before = local_interests(&node.router);
    assert!(miss(&mut stranger, FLOOD) > FLOOD / 2);
    // A miss after the flood is still asked about.
    let path = client.paths().next().unwrap();
    let interest = Interest::new(name("/own/v=1/seg=64")).nonce(1).lifetime_ms(1000).encode();
    client.send_bytes(path, &interest).unwrap();
    client.flush().unwrap();
    wait_until("the agent asks about the object", || controller.requests("forward") != 0);
    let cost = local_interests(&node.router) - before;
    assert!(cost < 20, "{cost} Interests for management after {FLOOD} misses");
    assert_eq!(controller.requests("forward"), 1);
}

#[test]
fn flood_of_misses_is_sampled_and_counted() {
    let controller = TestController::start(ControllerConfig::default());
    let node = quiet_site(&controller);
    let mut client = Client::from_socket_pair(node.router.local_port().connect().unwrap()).unwrap();
    let (began, before) = (Instant::now(), local_interests(&node.router));
    let missed = miss(&mut client, FLOOD);
    assert_eq!(missed, FLOOD);
    let agent = node.agent.as_ref().unwrap();
    let until = Instant::now() + TEST_TIMEOUT;
    loop {
        let (stats, drops) = (agent.stats(), node.router.snapshot().unwrap().runtime_drops);
        let untold = drops.iter().find(|(reason, _)| *reason == "miss-untold").unwrap().1;
        let counted = stats.questions + stats.questions_left_out + untold;
        if counted == FLOOD {
            break;
        }
        assert!(counted < FLOOD && Instant::now() < until, "{stats:?} {untold}");
        std::thread::sleep(Duration::from_millis(20));
    }
    let asked = agent.stats().questions;
    assert!(asked > 0 && asked <= 64 * (began.elapsed().as_secs() + 2), "{asked} questions");
    while controller.requests("forward") < asked {
        assert!(Instant::now() < until, "{} of {asked}", controller.requests("forward"));
        std::thread::sleep(Duration::from_millis(20));
    }
    let cost = local_interests(&node.router) - before - FLOOD;
    assert!(cost < 20, "{cost} Interests for management");
}

/// Reports a router `ghost` with these addresses, a face to the present router, and a producer or
/// none.
fn report_ghost(
    controller: &TestController,
    node: &RouterWithAgent,
    uri: &str,
    has_producer: bool,
) {
    let face = FaceReport { remote: node.uri.clone(), ..FaceReport::default() };
    let report = RouterReport {
        uris: vec![uri.to_owned()],
        faces: vec![face],
        prefixes: has_producer.then(|| name("/ghost")).into_iter().collect(),
        ..RouterReport::default()
    };
    controller.with(|controller| {
        controller.report(Moment::ZERO, "ghost", report).unwrap();
    });
}

/// Waits until the router reports that its newest configuration is set up.
fn wait_until_set_up(controller: &TestController, router: &str) {
    controller.wait_until("the newest configuration is set up", |controller| {
        let report = controller.routers().find(|(name, _)| *name == router).unwrap().1;
        report.generation == controller.generation_of(router)
    });
}

fn lone_site() -> (TestController, RouterWithAgent) {
    let never = ControllerConfig { router_timeout_ns: u64::MAX / 2, ..ControllerConfig::default() };
    let controller = TestController::start(never);
    let node = RouterWithAgent::start("edge", &controller, 1, 12 << 20, &[]);
    controller.wait_until("the router has reported", |controller| {
        controller.routers().any(|(name, _)| name == "edge")
    });
    (controller, node)
}

#[test]
fn face_in_use_by_others_is_kept() {
    let (controller, node) = lone_site();
    let mut client = Client::from_socket_pair(node.router.local_port().connect().unwrap()).unwrap();
    let ghost = "udp4://127.0.0.1:9";
    let face = |client: &mut Client| -> Option<FaceId> {
        let faces: Vec<FaceStatus> = client.dataset("faces/list").unwrap();
        faces.iter().find(|face| face.info.uri == ghost).map(|face| face.info.face_id)
    };
    report_ghost(&controller, &node, ghost, true);
    wait_until_set_up(&controller, "edge");
    let made = face(&mut client).expect("a face for the configuration");
    let parameters = ControlParameters {
        name: Some(name("/mine")),
        face_id: Some(made),
        ..ControlParameters::default()
    };
    client.command(Command::RibRegister, &parameters).unwrap();
    report_ghost(&controller, &node, ghost, false);
    wait_until_set_up(&controller, "edge");
    assert_eq!(face(&mut client), Some(made), "someone else's route needs it");
    client.command(Command::RibUnregister, &parameters).unwrap();
    report_ghost(&controller, &node, ghost, true);
    wait_until_set_up(&controller, "edge");
    assert_eq!(face(&mut client), Some(made));
    report_ghost(&controller, &node, ghost, false);
    wait_until_set_up(&controller, "edge");
    assert_eq!(face(&mut client), None, "it is unused");
}

#[test]
fn failed_setup_is_reported_and_retried() {
    let (controller, node) = lone_site();
    report_ghost(&controller, &node, "dev://nowhere", true);
    let of_edge = |controller: &weir_control::Controller| {
        let mut routers = controller.routers();
        routers.find(|(name, _)| *name == "edge").unwrap().1.clone()
    };
    controller.wait_until("it says what is wrong", |controller| {
        let (report, newest) = (of_edge(controller), controller.generation_of("edge"));
        let is_so = |problem: &SetupProblem| {
            problem.part == SetupPart::Faces
                && problem.generation == newest
                && problem.text.contains("dev://nowhere")
        };
        report.problems.iter().any(is_so) && report.generation < newest
    });
    // The router comes back at another address.
    report_ghost(&controller, &node, "dev://nowhere", false);
    report_ghost(&controller, &node, "udp4://127.0.0.1:9", true);
    wait_until_set_up(&controller, "edge");
    controller.wait_until("nothing is wrong", |controller| of_edge(controller).problems.is_empty());
}

#[test]
fn strategy_set_by_others_is_kept() {
    let segments = 2000;
    let row = ThreeRouters::start(1, 12 << 20);
    let _producer = Producer::start(&row.origin.router, "/data", segments);
    row.controller.with(|controller| controller.add_file("producer p", file(segments)).unwrap());
    row.wait_for_routes();
    let object = file(segments).name;
    let mut client =
        Client::from_socket_pair(row.edge.router.local_port().connect().unwrap()).unwrap();
    let parameters = ControlParameters {
        name: Some(object.clone()),
        strategy: Some(name("/localhost/nfd/strategy/best-route")),
        ..ControlParameters::default()
    };
    client.command(Command::StrategyChoiceSet, &parameters).unwrap();
    let strategy = |client: &mut Client| -> Option<String> {
        let chosen: Vec<StrategyChoice> = client.dataset("strategy-choice/list").unwrap();
        let of_object = chosen.into_iter().find(|choice| choice.name == object);
        of_object.map(|choice| choice.strategy.to_string())
    };
    let own = strategy(&mut client);
    assert!(own.is_some());
    read(&row.edge.router, &object, segments);
    row.controller.wait_until("it says that the strategy stays", |controller| {
        let mut routers = controller.routers();
        let report = routers.find(|(name, _)| *name == "edge").unwrap().1;
        report.problems.iter().any(|problem| problem.part == SetupPart::Strategies)
            && report.generation == controller.generation_of("edge")
    });
    assert_eq!(strategy(&mut client), own);
    row.controller.with(|controller| assert!(controller.remove_file(&object)));
    wait_until_set_up(&row.controller, "edge");
    assert_eq!(strategy(&mut client), own, "it outlives the plan");
}

#[test]
fn reports_link_round_trip_time() {
    let controller = TestController::start(ControllerConfig::default());
    let near = RouterWithAgent::start("near", &controller, 1, 1 << 20, &[]);
    let (router, uri) = common::router(1, 1 << 20, &[]);
    let mut far = RouterWithAgent {
        agent: None,
        uri: relay(
            &uri,
            SimulatedLink { delay: Duration::from_millis(30), ..SimulatedLink::default() },
        ),
        router,
    };
    far.start_agent("far", &controller);
    let (router, uri) = common::router(2, 1 << 20, &[&near.uri, &far.uri]);
    let mut node = RouterWithAgent { agent: None, router, uri };
    node.start_agent("edge", &controller);
    let round_trip_ns = |controller: &weir_control::Controller, to: &str| {
        let mut links = controller.links().into_iter();
        links.find(|link| link.from == "edge" && link.to == to)?.round_trip_ns
    };
    controller.wait_until("both round trips are known", |controller| {
        ["near", "far"].iter().all(|to| round_trip_ns(controller, to).is_some())
    });
    let (near_ns, far_ns) = controller
        .with(|controller| ["near", "far"].map(|to| round_trip_ns(controller, to).unwrap()).into());
    assert!(far_ns >= 60_000_000, "{far_ns} over two times 30 ms");
    assert!(near_ns < far_ns, "{near_ns} {far_ns}");
}
