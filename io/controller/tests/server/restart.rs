//! What outlives a controller, and what it does while its database does not answer.

use serde_json::json;
use weir_controller::Role;

use crate::backend::IS_SERVER;
use crate::bench::{Bench, FILE, FILE_SEGMENTS, Square, eventually, file};

#[test]
fn files_and_plans_survive_a_restart() {
    let mut bench = Bench::start();
    let square = Square::join(&bench);
    assert_eq!(square.router("c").forward("c", FILE).json()["decision"], "planned");
    let before = square.router("c").configuration("c", 0, 0).json();
    bench.restart();
    let square = square.at(&bench);
    assert_eq!(square.operator.get("/v1/files").json()[0]["name"], FILE);

    // Routers are soft state: they are told so, and tell of themselves anew.
    let consumer = square.router("c");
    assert_eq!(consumer.forward("c", FILE).status, 404);
    assert_eq!(consumer.configuration("c", 0, 0).status, 404);
    let registered = consumer.update("c", 1, 2, json!([]));
    assert_eq!(registered.status, 404, "{registered:?}");
    square.report();
    let parts = &before["distributions"][0]["parts"];
    eventually(
        || {
            square.router("c").configuration("c", 0, 0).json()["distributions"][0]["parts"]
                == *parts
        },
        "the plan of the run before",
    );
    assert_eq!(square.router("c").forward("c", FILE).json()["decision"], "planned");
    assert_eq!(square.operator.get("/v1/plans").json().as_array().unwrap().len(), 1);
}

#[test]
fn restart_continues_above_router_numbers() {
    let mut bench = Bench::with(|config| config.controller.router_timeout_ns = 1_000_000_000);
    let router = bench.client(Role::Router, "r");
    let report =
        |generation: u64| json!({"uris": [], "store_bytes": 1000, "generation": generation});
    assert_eq!(router.report("r", &report(700)).status, 200);
    bench.restart();
    let router = router.at(&bench);
    let registered = || router.report("r", &report(700)).json()["generation"].as_u64().unwrap();
    assert_eq!(registered(), 700, "it keeps what it has until all can have reported");
    eventually(|| registered() > 700, "a configuration of its own");
}

/// Regression: it had to wait until all could have come back, though all had.
#[test]
fn both_restarted_get_routes_when_all_reported() {
    // Longer than this test waits for anything.
    let timeout_ns = 1_000_000_000_000;
    let mut bench = Bench::with(|config| config.controller.router_timeout_ns = timeout_ns);
    let square = Square::join(&bench);
    let generation = || square.router("a").configuration("a", 0, 0).json()["generation"].as_u64();
    let generation = generation().unwrap();
    let is_written = || {
        let gone = square.operator.get("/v1/state").json()["gone"].clone();
        let events = square.operator.get("/v1/events?count=1000").text;
        gone == json!([]) && events.matches("router found").count() == 4
    };
    eventually(is_written, "all routers in the database");
    bench.restart();
    let square = square.at(&bench);
    let tell = |router: &str| {
        assert_eq!(square.router(router).update(router, 1, 1, json!([])).status, 200);
    };
    square.report_as(&["a", "b", "p"], generation);
    ["a", "b", "p"].into_iter().for_each(tell);
    let configuration = || square.router("c").configuration("c", 0, 0);
    assert_eq!(square.operator.get("/health").json()["waits"], true);
    square.report_as(&["c"], 0);
    assert_eq!(configuration().status, 204);
    tell("c");
    eventually(|| configuration().status == 200, "a configuration");
    assert_eq!(configuration().json()["routes"][0]["prefix"], "/file");
}

/// And whoever does not come back is lost, which the next run knows.
#[test]
fn missing_router_is_reported_lost_once() {
    let mut bench = Bench::with(|config| config.controller.router_timeout_ns = 3_000_000_000);
    let square = Square::join(&bench);
    let lines = |square: &Square, action: &str| {
        let events = square.operator.get("/v1/events?count=1000").json();
        let events = events.as_array().unwrap().iter();
        events.filter(|event| event["action"] == action && event["detail"] == "b").count()
    };
    eventually(|| lines(&square, "router found") == 1, "all routers in the database");
    for _ in 0..2 {
        bench.restart();
        let square = square.at(&bench);
        let waits = || {
            square.report_as(&["a", "c", "p"], 700);
            square.operator.get("/health").json()["waits"] == true
        };
        // They have come, or there would be nothing to wait for.
        waits();
        eventually(|| !waits(), "the end of the wait");
    }
    // All that there is to be told has been written.
    bench.restart();
    let square = square.at(&bench);
    assert_eq!((lines(&square, "router lost"), lines(&square, "router found")), (1, 1));
}

#[test]
fn locked_database_delays_no_decision() {
    let bench = Bench::start();
    let square = Square::join(&bench);
    let mut other = bench.connect();
    other.sql(match IS_SERVER {
        true => "BEGIN; LOCK TABLE numbers, audit IN EXCLUSIVE MODE",
        false => "BEGIN IMMEDIATE",
    });

    assert_eq!(square.router("c").forward("c", FILE).json()["decision"], "planned");
    let configuration = square.router("c").configuration("c", 0, 0).json();
    assert_eq!(configuration["distributions"][0]["object"], FILE);
    let refused = square.producer.post("/v1/files", &file("/second/v=1", 10));
    assert_eq!(refused.status, 503, "{refused:?}");
    assert!(refused.error().contains("database"), "{refused:?}");
    assert!(refused.retry_after.is_some());
    let refused = square.operator.send("DELETE", &format!("/v1/files?name={FILE}"), "");
    assert_eq!(refused.status, 503);
    // Nothing is half done: the one is not there, and the other still is.
    let files = square.operator.get("/v1/files").json();
    assert_eq!((files.as_array().unwrap().len(), &files[0]["name"]), (1, &json!(FILE)));
    assert_eq!(square.router("c").forward("c", "/second/v=1").json()["decision"], "unknown");
    eventually(|| square.operator.get("/health").json()["why"] == "locked", "that it is told");
    assert_eq!(square.operator.get("/health").status, 503);

    other.sql("ROLLBACK");
    eventually(|| square.operator.get("/health").status == 200, "that it is over");
    let plans = || square.operator.get("/v1/plans").json();
    eventually(|| plans()[0]["object"] == FILE, "the plan that waited");
    assert_eq!(square.producer.post("/v1/files", &file("/second/v=1", 10)).status, 201);
}

#[test]
fn part_of_a_silent_router_moves() {
    let bench = Bench::with(|config| config.controller.router_timeout_ns = 3_000_000_000);
    let square = Square::join(&bench);
    assert_eq!(square.router("c").forward("c", FILE).json()["decision"], "planned");
    let reports = |names: &[&str]| {
        for name in names {
            let seen = square.operator.get("/v1/routers").json();
            let seen = seen.as_array().unwrap().iter();
            if let Some(report) = seen.clone().find(|router| router["name"] == *name) {
                let keys = ["uris", "store_bytes", "faces", "prefixes"];
                let report: serde_json::Map<_, _> =
                    keys.iter().map(|key| ((*key).to_owned(), report[*key].clone())).collect();
                square.router(name).report(name, &report.into());
            }
        }
    };
    let is_gone = || {
        reports(&["a", "c", "p"]);
        let state = square.operator.get("/v1/state").json();
        state["gone"][0][0] == "b"
    };
    eventually(is_gone, "the end of a silent router");
    let parts =
        square.router("c").configuration("c", 0, 0).json()["distributions"][0]["parts"].clone();
    let parts = parts.as_array().unwrap();
    assert!(!parts.is_empty() && parts.iter().all(|part| part["router"] == "a"), "{parts:?}");
    let kept: u64 = parts
        .iter()
        .map(|part| part["last"].as_u64().unwrap() - part["first"].as_u64().unwrap() + 1)
        .sum();
    assert!(kept < FILE_SEGMENTS, "one store cannot have it all");
}
