//! A router that starts while its controller is unreachable.

use crate::common;
use weir_io_fixture::wait_until;

use std::path::Path;

use common::{RouterWithAgent, TestController, name};
use weir_client::Client;
use weir_control::ControllerConfig;
use weir_control::message::{Configuration, Peer, RouteOrder};
use weir_manage::RibEntry;

fn with_route(generation: u64, prefix: &str) -> Configuration {
    let router = "ghost".to_owned();
    let uris = vec!["udp4://127.0.0.1:9".to_owned()];
    Configuration {
        generation,
        peers: vec![Peer { router: router.clone(), uris }],
        routes: vec![RouteOrder { prefix: name(prefix), router, cost: 1 }],
        ..Configuration::default()
    }
}

fn start(controller: &TestController, state_file: &Path) -> RouterWithAgent {
    let (router, uri) = common::router(1, 1 << 20, &[]);
    let mut node = RouterWithAgent { agent: None, router, uri };
    node.start_agent_with("edge", controller, |config| {
        config.state_file = Some(state_file.to_owned());
    });
    node
}

fn has_route(node: &RouterWithAgent, prefix: &str) -> bool {
    let mut client = Client::from_socket_pair(node.router.local_port().connect().unwrap()).unwrap();
    let routes: Vec<RibEntry> = client.dataset("rib/list").unwrap();
    routes.iter().any(|entry| entry.name == name(prefix))
}

#[test]
fn starts_with_the_last_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let state_file = folder.path().join("edge.configuration");
    let controller = TestController::start(ControllerConfig::default());
    controller.dictate(with_route(1000, "/kept"));
    let node = start(&controller, &state_file);
    wait_until("the route is set", || has_route(&node, "/kept"));
    wait_until("it is kept", || state_file.exists());
    drop(node);

    controller.refuse(true);
    let node = start(&controller, &state_file);
    wait_until("the kept route is set", || has_route(&node, "/kept"));

    // A configuration from a controller replaces the stored one, even with a lower generation.
    controller.dictate(with_route(500, "/newer"));
    controller.refuse(false);
    wait_until("the newer route is set", || has_route(&node, "/newer"));
    assert!(!has_route(&node, "/kept"));
    drop(node);

    controller.refuse(true);
    std::fs::write(&state_file, "weir-configuration 1 damaged").unwrap();
    let node = start(&controller, &state_file);
    wait_until("it asks", || {
        controller.requests("report") > 0 || controller.requests("refused") > 1
    });
    assert!(!has_route(&node, "/newer"));
}
