//! Faulty controllers: they offer outdated configurations, or refuse valid requests.

use crate::common;

use common::{Producer, RouterWithAgent, TestController, name, read};
use weir_client::Client;
use weir_control::ControllerConfig;
use weir_control::message::{Configuration, Peer, RouteOrder};
use weir_io_fixture::wait_until;
use weir_manage::{RibEntry, route_origin};

/// A configuration of this generation with a route for `/ghost`.
fn with_route(generation: u64) -> Configuration {
    let (router, prefix) = ("ghost".to_owned(), name("/ghost"));
    let uris = vec!["udp4://127.0.0.1:9".to_owned()];
    Configuration {
        generation,
        peers: vec![Peer { router: router.clone(), uris }],
        routes: vec![RouteOrder { prefix, router, cost: 1 }],
        ..Configuration::default()
    }
}

fn has_route(node: &RouterWithAgent) -> bool {
    let mut client = Client::from_socket_pair(node.router.local_port().connect().unwrap()).unwrap();
    let routes: Vec<RibEntry> = client.dataset("rib/list").unwrap();
    let ghost = routes.iter().filter(|entry| entry.name == name("/ghost"));
    ghost.flat_map(|entry| &entry.routes).any(|route| route.origin == route_origin::CONTROLLER)
}

#[test]
fn older_configuration_is_ignored() {
    let controller = TestController::start(ControllerConfig::default());
    let node = RouterWithAgent::start("edge", &controller, 1, 1 << 20, &[]);
    controller.wait_until("the router is known", |controller| controller.routers().count() == 1);
    controller.dictate(with_route(1000));
    let generation = |controller: &weir_control::Controller| {
        controller.routers().next().map(|(_, report)| report.generation)
    };
    controller.wait_until("it is set up", |controller| generation(controller) == Some(1000));
    assert!(has_route(&node));
    // As from a restarted controller, or another one with older knowledge.
    let before = controller.requests("configuration");
    controller.repeat_configuration(Configuration { generation: 500, ..Configuration::default() });
    wait_until("the agent requests configurations", || {
        controller.requests("configuration") >= before + 4
    });
    assert!(has_route(&node));
    controller.with(|controller| assert_eq!(generation(controller), Some(1000)));
    // The agent accepts newer configurations again.
    controller.repeat_configuration(Configuration { generation: 1001, ..Configuration::default() });
    controller.wait_until("the next one", |controller| generation(controller) == Some(1001));
    assert!(!has_route(&node));
}

/// Regression: each accepted report triggered a request at once, in spite of `Retry-After`.
#[test]
fn retry_after_is_respected() {
    let controller = TestController::start(ControllerConfig::default());
    controller.postpone();
    let _node = RouterWithAgent::start("edge", &controller, 1, 1 << 20, &[]);
    wait_until("the agent requests a configuration", || controller.requests("configuration") != 0);
    for _ in 0..3 {
        controller.forget();
        controller.wait_until("it is heard of", |controller| controller.routers().count() == 1);
    }
    assert_eq!(controller.requests("configuration"), 1);
}

#[test]
fn large_updates_are_split_on_413() {
    const OBJECTS: u64 = 500;
    let controller = TestController::start(ControllerConfig::default());
    controller.limit(100);
    controller.refuse(true);
    let node = RouterWithAgent::start("edge", &controller, 1, 64 << 20, &[]);
    let _producer = Producer::start(&node.router, "/data", 1);
    let object = |number: u64| name(&format!("/data/{number}/v=1"));
    (0..OBJECTS).for_each(|number| read(&node.router, &object(number), 1));
    controller.refuse(false);
    let are_reported = |controller: &weir_control::Controller| {
        (0..OBJECTS).all(|number| !controller.holdings(&object(number)).is_empty())
    };
    controller.wait_until("all holdings are reported", are_reported);
    assert!(controller.requests("too large") > 0);
    assert!(controller.updates().0.iter().all(|update| update.changes.len() <= 100));
}

/// Regression: an old controller refused all reports because of the unknown field.
#[test]
fn old_controller_gets_no_instance_number() {
    let controller = TestController::start(ControllerConfig::default());
    controller.use_old_schema();
    let _site = RouterWithAgent::start("edge", &controller, 1, 1 << 20, &[]);
    controller.wait_until("the router is known", |controller| controller.routers().count() == 1);
    controller.with(|controller| {
        assert!(controller.routers().all(|(_, report)| report.instance == 0));
    });
}

/// Regression: a command too long for a packet cost the connection, and later steps were not taken.
/// An answer that was too large counted as no answer.
#[test]
fn oversized_answers_fail_alone() {
    let controller = TestController::start(ControllerConfig::default());
    controller.pad(17 << 20);
    let node = RouterWithAgent::start("edge", &controller, 1, 1 << 20, &[]);
    controller.wait_until("the router is known", |controller| controller.routers().count() == 1);
    let mut long = with_route(1000);
    let endless = name(&format!("/a/{}", "x".repeat(9000)));
    long.routes.insert(0, RouteOrder { prefix: endless, ..long.routes[0].clone() });
    long.peers.insert(0, Peer { router: "far".into(), uris: vec!["u".repeat(9000)] });
    controller.dictate(long);
    wait_until("the route is set up", || has_route(&node));
    // Holdings are reported although no answer to a report is usable.
    wait_until("holdings are reported", || !controller.updates().0.is_empty());
}

#[test]
fn excess_routes_are_refused_and_counted() {
    let controller = TestController::start(ControllerConfig::default());
    let (router, uri) = common::router(1, 1 << 20, &[]);
    let mut node = RouterWithAgent { agent: None, router, uri };
    node.start_agent_with("edge", &controller, |config| config.routes_max = 10);
    controller.wait_until("the router is known", |controller| controller.routers().count() == 1);
    let mut many = with_route(1000);
    let route = |number: u64| RouteOrder {
        prefix: name(&format!("/r/{number}")),
        ..many.routes[0].clone()
    };
    let more: Vec<RouteOrder> = (0..50).map(route).collect();
    many.routes.extend(more);
    controller.dictate(many);
    let told = |controller: &weir_control::Controller| {
        controller.routers().next().is_some_and(|(_, report)| {
            let text = report.problems.first().map(|problem| problem.text.as_str());
            report.generation == 1000
                && text.is_some_and(|text| text.contains("41 routes are not set up"))
        })
    };
    controller.wait_until("it says how many", told);
    let mut client = Client::from_socket_pair(node.router.local_port().connect().unwrap()).unwrap();
    let routes: Vec<RibEntry> = client.dataset("rib/list").unwrap();
    let set = routes.iter().flat_map(|entry| &entry.routes);
    assert_eq!(set.filter(|route| route.origin == route_origin::CONTROLLER).count(), 10);
}

#[test]
fn rereads_a_replaced_token() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    std::fs::write(&file, "old\n").unwrap();
    let controller = TestController::start(ControllerConfig::default());
    controller.take_only("old");
    let (router, uri) = common::router(1, 1 << 20, &[]);
    let mut node = RouterWithAgent { agent: None, router, uri };
    node.start_agent_with("edge", &controller, |config| {
        config.access.token = Some("old".into());
        config.access.token_file = Some(file.clone());
    });
    controller.wait_until("the router is known", |controller| controller.routers().count() == 1);
    controller.take_only("new");
    controller.forget();
    wait_until("the token is refused", || controller.requests("unauthorized") >= 2);
    controller.with(|controller| assert_eq!(controller.routers().count(), 0));
    std::fs::write(&file, "new\n").unwrap();
    controller.wait_until("it is known again", |controller| controller.routers().count() == 1);
}
