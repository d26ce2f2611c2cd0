//! A router that starts while its controller is away.

use crate::common;

use std::path::Path;
use std::time::{Duration, Instant};

use common::{PATIENCE, Site, TestController, name};
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

fn start(controller: &TestController, state_file: &Path) -> Site {
    let (router, uri) = common::router(1, 1 << 20, &[]);
    let mut site = Site { agent: None, router, uri };
    site.start_agent_with("edge", controller, |config| {
        config.state_file = Some(state_file.to_owned());
    });
    site
}

fn has_route(site: &Site, prefix: &str) -> bool {
    let mut client = Client::over_pair(site.router.local_port().connect().unwrap()).unwrap();
    let routes: Vec<RibEntry> = client.dataset("rib/list").unwrap();
    routes.iter().any(|entry| entry.name == name(prefix))
}

fn wait_for(what: &str, is_so: impl Fn() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn it_has_the_routes_of_the_last_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let state_file = folder.path().join("edge.configuration");
    let controller = TestController::start(ControllerConfig::default());
    controller.dictate(with_route(1000, "/kept"));
    let site = start(&controller, &state_file);
    wait_for("the route is set", || has_route(&site, "/kept"));
    wait_for("it is kept", || state_file.exists());
    drop(site);

    controller.refuse(true);
    let site = start(&controller, &state_file);
    wait_for("the kept route is set", || has_route(&site, "/kept"));

    // A controller that knows better has its way, also with a lower number.
    controller.dictate(with_route(500, "/newer"));
    controller.refuse(false);
    wait_for("the newer route is set", || has_route(&site, "/newer"));
    assert!(!has_route(&site, "/kept"));
    drop(site);

    controller.refuse(true);
    std::fs::write(&state_file, "weir-configuration 1 damaged").unwrap();
    let site = start(&controller, &state_file);
    wait_for("it asks", || controller.requests("report") > 0 || controller.requests("refused") > 1);
    assert!(!has_route(&site, "/newer"));
}
