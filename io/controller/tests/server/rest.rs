//! Routers, producers and people use a controller.

use std::sync::mpsc;
use std::thread;

use crate::fixture::{
    Client, FILE, FILE_SEGMENTS, FourRouters, TestServer, eventually, file, report,
};
use serde_json::{Value, json};
use weir_controller::Role;

#[test]
fn plans_file_larger_than_any_store() {
    let controller = TestServer::start();
    let network = FourRouters::join(&controller);
    let consumer = network.router("c");
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
    let kept = network.router(keeper).configuration(keeper, 0, 0).json();
    assert_eq!(kept["prefetch"][0]["object"], FILE);
    assert_eq!(kept["prefetch"][0]["last"], FILE_SEGMENTS - 1);

    // An unregistered object is handled as without a controller.
    assert_eq!(consumer.forward("c", "/other/v=1").json()["decision"], "unknown");
    // An unchanged configuration is not sent again.
    let generation = configuration["generation"].as_u64().unwrap();
    assert_eq!(consumer.configuration("c", generation, 0).status, 204);
}

#[test]
fn rejects_out_of_order_updates() {
    let controller = TestServer::start();
    let router = controller.client(Role::Router, "r");
    let operator = controller.client(Role::Operator, "o");
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

    // An update is missing, so this one is refused.
    let gap = router.update("r", 5, 4, change("added", json!([[100, 199]])));
    assert_eq!(gap.status, 409);
    assert_eq!(gap.json()["expected"], json!({"generation": 5, "number": 3}));
    assert_eq!(holdings()[0]["segments"], json!([[0, 4], [25, 29]]));
    // A new generation.
    assert_eq!(router.update("r", 6, 1, change("added", json!([[7, 7]]))).status, 200);
    assert_eq!(holdings()[0]["segments"], json!([[7, 7]]));
    let registered = router.report("r", &report("r", 1000, &[], &[])).json();
    assert_eq!(registered["expected"], json!({"generation": 6, "number": 2}));
}

#[test]
fn new_configuration_wakes_waiters() {
    let controller = TestServer::start();
    let network = FourRouters::join(&controller);
    let consumer = network.router("c");
    let generation = consumer.configuration("c", 0, 0).json()["generation"].as_u64().unwrap();
    let (sender, receiver) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(|| sender.send(consumer.configuration("c", generation, 60)).unwrap());
        // A request that arrives before the plan waits and is woken; a later one is answered at
        // once.
        assert_eq!(consumer.forward("c", FILE).json()["decision"], "planned");
        let configuration = receiver.recv().unwrap().json();
        assert!(configuration["generation"].as_u64().unwrap() > generation);
        assert_eq!(configuration["distributions"][0]["object"], FILE);
    });
}

#[test]
fn stop_ends_waiting_requests() {
    let mut controller = TestServer::start();
    let router = controller.client(Role::Router, "r");
    router.report("r", &report("r", 1000, &[], &[]));
    let generation = router.configuration("r", 0, 0).json()["generation"].as_u64().unwrap();
    let waits = thread::spawn(move || router.configuration("r", generation, 60).status);
    let reader = controller.client(Role::Reader, "reader");
    let waits_one = || reader.get("/metrics").text.contains("weir_controller_waiting_requests 1");
    eventually(waits_one, "a request that waits");
    controller.stop();
    assert_eq!(waits.join().unwrap(), 204);
}

#[test]
fn registers_lists_and_withdraws_files() {
    let controller = TestServer::start();
    let [one, other] = ["one", "other"].map(|name| controller.client(Role::Producer, name));
    let operator = controller.client(Role::Operator, "o");
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
    let controller = TestServer::start();
    let network = FourRouters::join(&controller);
    let forwarded = network.router("c").forward("c", FILE).json();
    let see = |path: &str| network.operator.get(path).json();
    assert_eq!(see("/v1/routers")[0]["name"], "a");
    assert_eq!(see("/v1/links").as_array().unwrap().len(), 8);
    eventually(|| see("/v1/plans") != json!([]), "a plan in the database");
    let plan = see("/v1/plans")[0].clone();
    assert_eq!((&plan["object"], &plan["consumers"]), (&json!(FILE), &json!(["c"])));
    assert!(plan["number"].as_u64() < forwarded["generation"].as_u64());
    assert_eq!(see(&format!("/v1/plans/{}", plan["number"])), plan);
    assert_eq!(network.operator.get("/v1/plans/999999").status, 404);

    // An end is a new plan without parts; the ended plan stays as it is.
    network.producer.send("DELETE", &format!("/v1/files?name={FILE}"), "");
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
    let metrics = network.operator.get("/metrics").text;
    assert!(metrics.contains("weir_controller_routers 4"), "{metrics}");
    assert!(metrics.contains("weir_controller_decision_seconds_count 1"), "{metrics}");
}

/// Regression: reports of two routers were taken for one router, without any event.
#[test]
fn refuses_and_reports_duplicate_names() {
    let controller = TestServer::start();
    let network = FourRouters::join(&controller);
    let refused = network.report_duplicate();
    assert_eq!(refused.status, 409);
    assert!(refused.error().contains("another router already reports as a"), "{refused:?}");
    let state = network.operator.get("/v1/state").json();
    assert_eq!(state["twins"], json!([["a", ["udp://twin.example:6363"]]]));
    let routers = network.operator.get("/v1/routers").json();
    assert_eq!(routers[0]["uris"], json!(["udp://a.example:6363"]));
    let lines = || network.operator.get("/v1/events").text;
    eventually(|| lines().contains("two of one name"), "a report of the problem");
    let metrics = network.operator.get("/metrics").text;
    let counted = "weir_controller_over_limit_total{limit=\"name\"} 1";
    assert!(metrics.contains(counted), "{metrics}");
}

/// Regression: the audit reported every plan without parts as an end.
#[test]
fn spread_only_plan_is_not_an_end() {
    let controller = TestServer::start();
    let network = FourRouters::join(&controller);
    let plans = || network.operator.get("/v1/plans").json();
    let has_no_parts = |plan: &Value| plan["parts"] == json!([]) && plan["spread"] != json!([]);
    // Until no store has space.
    for at in 0..3 {
        let name = format!("/file/{at}/v=1");
        assert_eq!(network.producer.post("/v1/files", &file(&name, FILE_SEGMENTS)).status, 201);
        assert_eq!(network.router("c").forward("c", &name).json()["decision"], "planned");
        eventually(|| plans()[0]["object"] == *name, "its plan");
    }
    assert!(has_no_parts(&plans()[0]), "{}", plans());
    let events = || network.operator.get("/v1/events?count=1000").text;
    eventually(|| events().matches("plan made").count() == 3, "three plans");
    assert!(!events().contains("plan ended"), "{}", events());
}

#[test]
fn serves_dashboard_without_token() {
    let controller = TestServer::start();
    let stranger = Client::new(&controller.url(), "");
    let page = stranger.get("/");
    assert_eq!(page.status, 200);
    for file in ["/style.css", "/dashboard.js"] {
        assert!(page.text.contains(&format!("\"{file}\"")), "{file}");
        assert_eq!(stranger.get(file).status, 200, "{file}");
    }
    // The page loads nothing from other hosts.
    assert!(!page.text.contains("//"), "{}", page.text);
}
