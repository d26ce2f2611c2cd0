//! Routers, producers and people talk to a controller.

use std::sync::mpsc;
use std::thread;

use crate::bench::{Bench, Client, FILE, FILE_SEGMENTS, Square, eventually, file, report};
use serde_json::{Value, json};
use weir_controller::Role;

#[test]
fn plans_file_larger_than_any_store() {
    let bench = Bench::start();
    let square = Square::join(&bench);
    let consumer = square.router("c");
    let former = consumer.configuration("c", 0, 0).json();
    let prefixes: Vec<&Value> =
        former["routes"].as_array().unwrap().iter().map(|route| &route["prefix"]).collect();
    assert!(prefixes.iter().all(|prefix| *prefix == "/file") && !prefixes.is_empty(), "{former}");

    let forwarded = consumer.forward("c", FILE).json();
    assert_eq!(forwarded["decision"], "planned");
    let after = former["generation"].as_u64().unwrap();
    assert!(forwarded["generation"].as_u64().unwrap() > after);
    let configuration = consumer.configuration("c", after, 0).json();
    let parts = configuration["distributions"][0]["parts"].as_array().unwrap();
    assert_eq!((parts.len(), &parts[0]["first"]), (2, &json!(0)));
    assert_eq!(parts[1]["last"], FILE_SEGMENTS - 1);
    let keeper = parts[1]["router"].as_str().unwrap();
    let kept = square.router(keeper).configuration(keeper, 0, 0).json();
    assert_eq!(kept["prefetch"][0]["object"], FILE);
    assert_eq!(kept["prefetch"][0]["last"], FILE_SEGMENTS - 1);

    // What nobody has registered goes as without a controller.
    assert_eq!(consumer.forward("c", "/other/v=1").json()["decision"], "unknown");
    // What nobody has changed does not come again.
    let generation = configuration["generation"].as_u64().unwrap();
    assert_eq!(consumer.configuration("c", generation, 0).status, 204);
}

#[test]
fn rejects_out_of_order_updates() {
    let bench = Bench::start();
    let router = bench.client(Role::Router, "r");
    let operator = bench.client(Role::Operator, "o");
    let unknown = router.update("r", 5, 1, json!([]));
    assert_eq!(unknown.status, 404);
    assert!(unknown.error().contains("must report first"), "{unknown:?}");

    let registered = router.report("r", &report("r", 1000, &[], &[])).json();
    assert_eq!(registered["expected"], json!({"generation": 0, "number": 0}));
    let change =
        |kind: &str, ranges: Value| json!([{"object": FILE, "tier": "memory", kind: ranges}]);
    let first = router.update("r", 5, 1, change("added", json!([[0, 9], [20, 29]])));
    assert_eq!((first.status, &first.json()["number"]), (200, &json!(2)));
    assert_eq!(router.update("r", 5, 2, change("removed", json!([[5, 24]]))).status, 200);
    let holdings = || operator.get(&format!("/v1/files/holdings?name={FILE}")).json();
    assert_eq!(holdings(), json!([{"router": "r", "segments": [[0, 4], [25, 29]]}]));

    // One is missing: nothing of this one is taken.
    let gap = router.update("r", 5, 4, change("added", json!([[100, 199]])));
    assert_eq!(gap.status, 409);
    assert_eq!(gap.json()["expected"], json!({"generation": 5, "number": 3}));
    assert_eq!(holdings()[0]["segments"], json!([[0, 4], [25, 29]]));
    // Everything anew.
    assert_eq!(router.update("r", 6, 1, change("added", json!([[7, 7]]))).status, 200);
    assert_eq!(holdings()[0]["segments"], json!([[7, 7]]));
    let registered = router.report("r", &report("r", 1000, &[], &[])).json();
    assert_eq!(registered["expected"], json!({"generation": 6, "number": 2}));
}

#[test]
fn new_configuration_wakes_waiters() {
    let bench = Bench::start();
    let square = Square::join(&bench);
    let consumer = square.router("c");
    let generation = consumer.configuration("c", 0, 0).json()["generation"].as_u64().unwrap();
    let (told, tells) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(|| told.send(consumer.configuration("c", generation, 60)).unwrap());
        // Whoever asks before this has come gets it at once, and else is woken.
        assert_eq!(consumer.forward("c", FILE).json()["decision"], "planned");
        let configuration = tells.recv().unwrap().json();
        assert!(configuration["generation"].as_u64().unwrap() > generation);
        assert_eq!(configuration["distributions"][0]["object"], FILE);
    });
}

#[test]
fn stop_ends_waiting_requests() {
    let mut bench = Bench::start();
    let router = bench.client(Role::Router, "r");
    router.report("r", &report("r", 1000, &[], &[]));
    let generation = router.configuration("r", 0, 0).json()["generation"].as_u64().unwrap();
    let waits = thread::spawn(move || router.configuration("r", generation, 60).status);
    let reader = bench.client(Role::Reader, "reader");
    let waits_one = || reader.get("/metrics").text.contains("weir_controller_waiting_requests 1");
    eventually(waits_one, "a request that waits");
    bench.stop();
    assert_eq!(waits.join().unwrap(), 204);
}

#[test]
fn registers_lists_and_withdraws_files() {
    let bench = Bench::start();
    let [one, other] = ["one", "other"].map(|name| bench.client(Role::Producer, name));
    let operator = bench.client(Role::Operator, "o");
    assert_eq!(one.post("/v1/files", &file("/b/v=1", 10)).status, 201);
    assert_eq!(one.post("/v1/files", &file("/b/v=1", 10)).status, 200);
    assert_eq!(one.post("/v1/files", &file("/a/v=1", 20)).status, 201);
    let changed = other.post("/v1/files", &file("/b/v=1", 11));
    assert_eq!(changed.status, 409);
    assert!(changed.error().contains("another size"), "{changed:?}");
    let empty = one.post("/v1/files", &file("/c/v=1", 0));
    assert_eq!(empty.status, 422, "{empty:?}");

    let names = |answer: Value| -> Vec<String> {
        let files = answer.as_array().unwrap().iter();
        files.map(|file| file["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(operator.get("/v1/files").json()), ["/a/v=1", "/b/v=1"]);
    assert_eq!(names(operator.get("/v1/files?count=1").json()), ["/a/v=1"]);
    assert_eq!(names(operator.get("/v1/files?after=/a/v=1").json()), ["/b/v=1"]);
    assert_eq!(operator.get("/v1/files").json()[0]["owner"], "producer one");

    let stranger = other.send("DELETE", "/v1/files?name=/b/v=1", "");
    assert_eq!(stranger.status, 403, "{stranger:?}");
    assert_eq!(one.send("DELETE", "/v1/files?name=/b/v=1", "").status, 204);
    assert_eq!(operator.send("DELETE", "/v1/files?name=/a/v=1", "").status, 204);
    assert_eq!(one.send("DELETE", "/v1/files?name=/b/v=1", "").status, 404);
    assert_eq!(operator.get("/v1/files").json(), json!([]));
}

#[test]
fn operators_see_routers_links_and_plans() {
    let bench = Bench::start();
    let square = Square::join(&bench);
    let forwarded = square.router("c").forward("c", FILE).json();
    let see = |path: &str| square.operator.get(path).json();
    assert_eq!(see("/v1/routers")[0]["name"], "a");
    assert_eq!(see("/v1/links").as_array().unwrap().len(), 8);
    eventually(|| see("/v1/plans") != json!([]), "a plan in the database");
    let plan = see("/v1/plans")[0].clone();
    assert_eq!((&plan["object"], &plan["consumers"]), (&json!(FILE), &json!(["c"])));
    assert!(plan["number"].as_u64() < forwarded["generation"].as_u64());
    assert_eq!(see(&format!("/v1/plans/{}", plan["number"])), plan);
    assert_eq!(square.operator.get("/v1/plans/999999").status, 404);

    // A plan that ends is followed by one without parts, and stays as it is.
    square.producer.send("DELETE", &format!("/v1/files?name={FILE}"), "");
    eventually(|| see("/v1/plans").as_array().unwrap().len() == 2, "the end of the plan");
    let end = see("/v1/plans")[0].clone();
    assert_eq!((&end["parent"], &end["parts"]), (&plan["number"], &json!([])));
    assert_eq!(see("/v1/plans")[1], plan);
    assert_eq!(see(&format!("/v1/plans?before={}", end["number"]))[0], plan);

    eventually(
        || {
            let events = see("/v1/events");
            let events = events.as_array().unwrap().iter();
            let actions: Vec<&str> =
                events.map(|event| event["action"].as_str().unwrap()).collect();
            let all = [
                "router found",
                "token added",
                "file added",
                "file withdrawn",
                "plan made",
                "plan ended",
            ];
            all.iter().all(|action| actions.contains(action))
        },
        "all events",
    );
    let state = see("/v1/state");
    assert_eq!(state["routers"].as_array().unwrap().len(), 4);
    assert_eq!((&state["transfers"], &state["health"]["database"]), (&json!([]), &json!(true)));
    let metrics = square.operator.get("/metrics").text;
    assert!(metrics.contains("weir_controller_routers 4"), "{metrics}");
    assert!(metrics.contains("weir_controller_decision_seconds_count 1"), "{metrics}");
}

/// Regression: what both told was taken for one router's, and nobody heard of it.
#[test]
fn refuses_and_reports_duplicate_names() {
    let bench = Bench::start();
    let square = Square::join(&bench);
    let refused = square.double();
    assert_eq!(refused.status, 409);
    assert!(refused.error().contains("another router reports as a"), "{refused:?}");
    let state = square.operator.get("/v1/state").json();
    assert_eq!(state["twins"], json!([["a", ["udp://twin.example:6363"]]]));
    let routers = square.operator.get("/v1/routers").json();
    assert_eq!(routers[0]["uris"], json!(["udp://a.example:6363"]));
    let lines = || square.operator.get("/v1/events").text;
    eventually(|| lines().contains("two of one name"), "that it is told");
    let metrics = square.operator.get("/metrics").text;
    let counted = "weir_controller_beyond_bounds{bound=\"name\"} 1";
    assert!(metrics.contains(counted), "{metrics}");
}

/// The audit said so of every plan without parts.
#[test]
fn spread_only_plan_is_not_an_end() {
    let bench = Bench::start();
    let square = Square::join(&bench);
    let plans = || square.operator.get("/v1/plans").json();
    let has_no_parts = |plan: &Value| plan["parts"] == json!([]) && plan["spread"] != json!([]);
    // Until no store has room.
    for at in 0..3 {
        let name = format!("/file/{at}/v=1");
        assert_eq!(square.producer.post("/v1/files", &file(&name, FILE_SEGMENTS)).status, 201);
        assert_eq!(square.router("c").forward("c", &name).json()["decision"], "planned");
        eventually(|| plans()[0]["object"] == *name, "its plan");
    }
    assert!(has_no_parts(&plans()[0]), "{}", plans());
    let events = || square.operator.get("/v1/events?count=1000").text;
    eventually(|| events().matches("plan made").count() == 3, "three plans");
    assert!(!events().contains("plan ended"), "{}", events());
}

#[test]
fn serves_dashboard_without_token() {
    let bench = Bench::start();
    let stranger = Client::new(&bench.url(), "");
    let page = stranger.get("/");
    assert_eq!(page.status, 200);
    for file in ["/style.css", "/dashboard.js"] {
        assert!(page.text.contains(&format!("\"{file}\"")), "{file}");
        assert_eq!(stranger.get(file).status, 200, "{file}");
    }
    // It needs no other host.
    assert!(!page.text.contains("//"), "{}", page.text);
}
