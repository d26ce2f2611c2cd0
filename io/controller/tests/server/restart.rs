//! What survives a restart, and what a controller does during outages of its database.

use serde_json::json;
use weir_controller::Role;

use crate::backend::IS_SERVER;
use crate::fixture::{FILE, FILE_SEGMENTS, FourRouters, TestServer, eventually, file};

#[test]
fn files_and_plans_survive_a_restart() {
    let mut controller = TestServer::start();
    let network = FourRouters::join(&controller);
    assert_eq!(network.router("c").forward("c", FILE).json()["decision"], "planned");
    let before = network.router("c").configuration("c", 0, 0).json();
    controller.restart();
    let network = network.at(&controller);
    assert_eq!(network.operator.get("/v1/files").json()[0]["name"], FILE);

    // Routers are soft state: they get 404 and report everything again.
    let consumer = network.router("c");
    assert_eq!(consumer.forward("c", FILE).status, 404);
    assert_eq!(consumer.configuration("c", 0, 0).status, 404);
    let registered = consumer.update("c", 1, 2, json!([]));
    assert_eq!(registered.status, 404, "{registered:?}");
    network.report();
    let parts = &before["distributions"][0]["parts"];
    eventually(
        || {
            network.router("c").configuration("c", 0, 0).json()["distributions"][0]["parts"]
                == *parts
        },
        "the plan of the earlier run",
    );
    assert_eq!(network.router("c").forward("c", FILE).json()["decision"], "planned");
    assert_eq!(network.operator.get("/v1/plans").json().as_array().unwrap().len(), 1);
}

#[test]
fn restart_continues_above_router_numbers() {
    let mut controller =
        TestServer::with(|config| config.controller.router_timeout_ns = 1_000_000_000);
    let router = controller.client(Role::Router, "r");
    let report =
        |generation: u64| json!({"uris": [], "store_bytes": 1000, "generation": generation});
    assert_eq!(router.report("r", &report(700)).status, 200);
    controller.restart();
    let router = router.at(&controller);
    let registered = || router.report("r", &report(700)).json()["generation"].as_u64().unwrap();
    assert_eq!(registered(), 700, "it keeps its configuration until all have had time to report");
    eventually(|| registered() > 700, "a configuration of its own");
}

/// Regression: the router had to wait until all routers could have reported, although all had.
#[test]
fn both_restarted_get_routes_when_all_reported() {
    // Longer than any wait of this test.
    let timeout_ns = 1_000_000_000_000;
    let mut controller =
        TestServer::with(|config| config.controller.router_timeout_ns = timeout_ns);
    let network = FourRouters::join(&controller);
    let generation = || network.router("a").configuration("a", 0, 0).json()["generation"].as_u64();
    let generation = generation().unwrap();
    let is_written = || {
        let gone = network.operator.get("/v1/state").json()["gone"].clone();
        let events = network.operator.get("/v1/events?count=1000").text;
        gone == json!([]) && events.matches("router found").count() == 4
    };
    eventually(is_written, "all routers in the database");
    controller.restart();
    let network = network.at(&controller);
    let tell = |router: &str| {
        assert_eq!(network.router(router).update(router, 1, 1, json!([])).status, 200);
    };
    network.report_as(&["a", "b", "p"], generation);
    ["a", "b", "p"].into_iter().for_each(tell);
    let configuration = || network.router("c").configuration("c", 0, 0);
    assert_eq!(network.operator.get("/health").json()["waits"], true);
    network.report_as(&["c"], 0);
    assert_eq!(configuration().status, 204);
    tell("c");
    eventually(|| configuration().status == 200, "a configuration");
    assert_eq!(configuration().json()["routes"][0]["prefix"], "/file");
}

/// A router that does not return is lost, and the next run knows that.
#[test]
fn missing_router_is_reported_lost_once() {
    let mut controller =
        TestServer::with(|config| config.controller.router_timeout_ns = 3_000_000_000);
    let network = FourRouters::join(&controller);
    let lines = |network: &FourRouters, action: &str| {
        let events = network.operator.get("/v1/events?count=1000").json();
        let events = events.as_array().unwrap().iter();
        events.filter(|event| event["action"] == action && event["detail"] == "b").count()
    };
    eventually(|| lines(&network, "router found") == 1, "all routers in the database");
    for _ in 0..2 {
        controller.restart();
        let network = network.at(&controller);
        let waits = || {
            network.report_as(&["a", "c", "p"], 700);
            network.operator.get("/health").json()["waits"] == true
        };
        // They have reported, otherwise there would be nothing to wait for.
        waits();
        eventually(|| !waits(), "the end of the wait");
    }
    // All events have been written by then.
    controller.restart();
    let network = network.at(&controller);
    assert_eq!((lines(&network, "router lost"), lines(&network, "router found")), (1, 1));
}

#[test]
fn locked_database_delays_no_decision() {
    let controller = TestServer::start();
    let network = FourRouters::join(&controller);
    let mut other = controller.connect();
    other.sql(match IS_SERVER {
        true => "BEGIN; LOCK TABLE numbers, audit IN EXCLUSIVE MODE",
        false => "BEGIN IMMEDIATE",
    });

    assert_eq!(network.router("c").forward("c", FILE).json()["decision"], "planned");
    let configuration = network.router("c").configuration("c", 0, 0).json();
    assert_eq!(configuration["distributions"][0]["object"], FILE);
    let refused = network.producer.post("/v1/files", &file("/second/v=1", 10));
    assert_eq!(refused.status, 503, "{refused:?}");
    assert!(refused.error().contains("database"), "{refused:?}");
    assert!(refused.retry_after.is_some());
    let refused = network.operator.send("DELETE", &format!("/v1/files?name={FILE}"), "");
    assert_eq!(refused.status, 503);
    // Nothing is half done: the new file is not there, and the other one still is.
    let files = network.operator.get("/v1/files").json();
    assert_eq!((files.as_array().unwrap().len(), &files[0]["name"]), (1, &json!(FILE)));
    assert_eq!(network.router("c").forward("c", "/second/v=1").json()["decision"], "unknown");
    eventually(
        || network.operator.get("/health").json()["why"] == "locked",
        "a report of the problem",
    );
    assert_eq!(network.operator.get("/health").status, 503);

    other.sql("ROLLBACK");
    eventually(|| network.operator.get("/health").status == 200, "the end of the outage");
    let plans = || network.operator.get("/v1/plans").json();
    eventually(|| plans()[0]["object"] == FILE, "the plan that waited");
    assert_eq!(network.producer.post("/v1/files", &file("/second/v=1", 10)).status, 201);
}

#[test]
fn part_of_a_silent_router_moves() {
    let controller = TestServer::with(|config| config.controller.router_timeout_ns = 3_000_000_000);
    let network = FourRouters::join(&controller);
    assert_eq!(network.router("c").forward("c", FILE).json()["decision"], "planned");
    let reports = |names: &[&str]| {
        for name in names {
            let seen = network.operator.get("/v1/routers").json();
            let seen = seen.as_array().unwrap().iter();
            if let Some(report) = seen.clone().find(|router| router["name"] == *name) {
                let keys = ["uris", "store_bytes", "faces", "prefixes"];
                let report: serde_json::Map<_, _> =
                    keys.iter().map(|key| ((*key).to_owned(), report[*key].clone())).collect();
                network.router(name).report(name, &report.into());
            }
        }
    };
    let is_gone = || {
        reports(&["a", "c", "p"]);
        let state = network.operator.get("/v1/state").json();
        state["gone"][0][0] == "b"
    };
    eventually(is_gone, "the end of a silent router");
    let parts =
        network.router("c").configuration("c", 0, 0).json()["distributions"][0]["parts"].clone();
    let parts = parts.as_array().unwrap();
    assert!(!parts.is_empty() && parts.iter().all(|part| part["router"] == "a"), "{parts:?}");
    let kept: u64 = parts
        .iter()
        .map(|part| part["last"].as_u64().unwrap() - part["first"].as_u64().unwrap() + 1)
        .sum();
    assert!(kept < FILE_SEGMENTS, "one store cannot hold all of it");
}
