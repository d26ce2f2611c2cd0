//! Controllers that share a database.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;
use weir_controller::Role;

use crate::fixture::{FILE, FILE_SEGMENTS, FourRouters, TestServer, eventually, file};

#[test]
fn shares_registered_files() {
    let one = TestServer::start();
    let other = one.start_another();
    let producer = one.client(Role::Producer, "producer");
    let operator = one.client(Role::Operator, "operator").at(&other);
    assert_eq!(producer.post("/v1/files", &file("/a/v=1", 10)).status, 201);
    // A controller reads changes before it answers a registration.
    let there = producer.at(&other);
    assert_eq!(there.post("/v1/files", &file("/a/v=1", 10)).status, 200);
    assert_eq!(there.post("/v1/files", &file("/a/v=1", 11)).status, 409);
    assert_eq!(producer.post("/v1/files", &file("/b/v=1", 10)).status, 201);
    let names = || operator.get("/v1/files").text.matches("\"name\"").count();
    eventually(|| names() == 2, "the second file");
    assert_eq!(operator.get("/v1/files").json()[0]["owner"], "producer producer");
    assert_eq!(there.send("DELETE", "/v1/files?name=/a/v=1", "").status, 204);
    assert_eq!(names(), 1);
    let here = operator.at(&one);
    let left = || here.get("/v1/files").json()[0]["name"].clone();
    eventually(|| left() == "/b/v=1", "the end of the first file");
    // Register it again with another size.
    assert_eq!(producer.post("/v1/files", &file("/a/v=1", 20)).status, 201);
    let sizes = || operator.get("/v1/files").json()[0]["segments"].clone();
    eventually(|| sizes() == 20, "the changed file");
}

#[test]
fn shares_later_manifests() {
    let mut one = TestServer::start();
    let other = one.start_another();
    let network = FourRouters::join(&one);
    assert_eq!(network.router("c").forward("c", FILE).json()["decision"], "planned");
    let manifest = json!([{"name": format!("{FILE}/32=manifest"), "packets": 40}]);
    let mut whole = file(FILE, FILE_SEGMENTS);
    whole["manifest"] = manifest.clone();
    // Another producer may not add it.
    let stranger = one.client(Role::Producer, "stranger");
    let refused = stranger.post("/v1/files", &whole);
    assert_eq!(refused.status, 403, "{refused:?}");
    let listed = stranger.post("/v1/files/list", &json!([whole])).json();
    assert_eq!(listed[0]["name"], FILE);
    for status in [200, 200] {
        assert_eq!(network.producer.post("/v1/files", &whole).status, status);
    }
    assert_eq!(network.producer.post("/v1/files/list", &json!([whole])).json(), json!([]));
    let keeper = network.router("c").configuration("c", 0, 0).json();
    let keeper = keeper["distributions"][0]["parts"][0]["router"].as_str().unwrap().to_owned();
    let rules = network.router(&keeper).configuration(&keeper, 0, 0).text;
    assert!(rules.contains("32=manifest"), "{rules}");
    let there = network.operator.at(&other);
    let registered_manifest = |client: &crate::fixture::Client| {
        let files = client.get("/v1/files").json();
        (files[0]["manifest"].clone(), files[0]["owner"].clone())
    };
    let known = || registered_manifest(&there) == (manifest.clone(), "producer producer".into());
    eventually(known, "the manifest at the other");
    assert_eq!(network.producer.at(&other).post("/v1/files", &whole).status, 200);
    let bare = network.producer.post("/v1/files", &file(FILE, FILE_SEGMENTS));
    assert_eq!(bare.status, 409, "{bare:?}");
    one.restart();
    assert_eq!(registered_manifest(&network.operator.at(&one)).0, manifest);
    let lines = network.operator.at(&one).get("/v1/events?count=1000").text;
    assert_eq!(lines.matches("manifest added").count(), 1, "{lines}");
}

#[test]
fn shares_plans() {
    let mut one = TestServer::start();
    let network = FourRouters::join(&one);
    let mut other = one.start_another();
    assert_eq!(network.router("c").forward("c", FILE).json()["decision"], "planned");
    let before = network.router("c").configuration("c", 0, 0).json();
    eventually(|| !network.operator.get("/v1/plans").json()[0].is_null(), "a written plan");
    one.stop();
    let network = network.at(&other);
    let generation = before["generation"].as_u64().unwrap();
    let new = || {
        network.report_with(generation);
        network.router("c").configuration("c", generation, 0)
    };
    eventually(|| new().status == 200, "a configuration of the other controller");
    let after = new().json();
    assert_eq!(after["distributions"], before["distributions"]);
    assert!(after["generation"].as_u64().unwrap() > generation);
    // The last digits of numbers differ between controllers.
    let ends =
        |configuration: &serde_json::Value| configuration["generation"].as_u64().unwrap() % 1000;
    assert_ne!(ends(&after), ends(&before));
    // No new plan was made for it.
    assert_eq!(network.operator.get("/v1/plans").json().as_array().unwrap().len(), 1);
    other.stop();
}

#[test]
fn concurrent_plans_converge() {
    let one = TestServer::start();
    let network = FourRouters::join(&one);
    let other = one.start_another();
    let there = network.at(&other);
    // The other controller does not know one router and plans without it.
    there.report_until_decides(&["b", "c", "p"]);
    let known = || there.operator.get("/v1/files").json()[0]["name"].clone();
    eventually(|| known() == FILE, "the file at the other");
    let decided = std::thread::scope(|scope| {
        let there = scope.spawn(|| there.router("c").forward("c", FILE).json());
        [network.router("c").forward("c", FILE).json(), there.join().unwrap()]
    });
    assert!(decided.iter().all(|decided| decided["decision"] == "planned"), "{decided:?}");
    let plan = |network: &FourRouters| {
        let state = network.operator.get("/v1/state").json();
        (state["transfers"][0]["number"].clone(), state["transfers"][0]["parts"].clone())
    };
    let written = || network.operator.get("/v1/plans").json()[0]["number"].clone();
    eventually(
        || {
            let (here, other) = (plan(&network), plan(&there));
            !written().is_null() && here == other && here.0 == written()
        },
        "one plan at both and in the database",
    );
}

#[test]
fn backup_under_load_is_consistent() {
    let mut controller = TestServer::start();
    let network = FourRouters::join(&controller);
    assert_eq!(network.router("c").forward("c", FILE).json()["decision"], "planned");
    eventually(|| !network.operator.get("/v1/plans").json()[0].is_null(), "a written plan");
    let stops = AtomicBool::new(false);
    let registered = Mutex::new(Vec::new());
    let count = || registered.lock().unwrap().len();
    let (before, copy) = std::thread::scope(|scope| {
        for thread in 0..3 {
            let (network, stops, registered) = (&network, &stops, &registered);
            scope.spawn(move || {
                for number in 0.. {
                    if stops.load(Ordering::Relaxed) {
                        return;
                    }
                    let name = format!("/file/{thread}/{number}/v=1");
                    assert_eq!(network.producer.post("/v1/files", &file(&name, 10)).status, 201);
                    registered.lock().unwrap().push(name);
                    network.report();
                }
            });
        }
        eventually(|| count() > 50, "some files");
        let before = registered.lock().unwrap().clone();
        let copy = controller.backup();
        let during = count();
        eventually(|| count() > during, "more requests during the backup");
        stops.store(true, Ordering::Relaxed);
        (before, copy)
    });
    let after: BTreeSet<String> = registered.into_inner().unwrap().into_iter().collect();
    let plans = network.operator.get("/v1/plans").json();
    controller.stop();

    let restored = TestServer::on(copy, tempfile::tempdir().unwrap(), |_| {});
    let network = network.at(&restored);
    let files = network.operator.get("/v1/files").json();
    let files = files.as_array().unwrap().iter();
    let names: BTreeSet<String> =
        files.map(|file| file["name"].as_str().unwrap().to_owned()).collect();
    for name in before.iter().map(String::as_str).chain([FILE]) {
        assert!(names.contains(name), "{name} was registered before the backup");
    }
    assert!(names.iter().all(|name| name == FILE || after.contains(name)), "nothing else is");
    assert_eq!(network.operator.get("/v1/plans").json(), plans);
    assert_eq!(network.producer.post("/v1/files", &file("/file/new/v=1", 10)).status, 201);
}

/// The end of its first plan must not block the next one.
#[test]
fn reregistered_file_is_planned_again() {
    let controller = TestServer::start();
    let network = FourRouters::join(&controller);
    let newest = || network.operator.get("/v1/plans").json()[0].clone();
    let has_parts = |plan: &serde_json::Value| plan["parts"].as_array().map(|all| !all.is_empty());
    assert_eq!(network.router("c").forward("c", FILE).json()["decision"], "planned");
    eventually(|| has_parts(&newest()) == Some(true), "a written plan");
    let first = newest()["number"].as_u64();

    let path = format!("/v1/files?name={FILE}");
    assert_eq!(network.producer.send("DELETE", &path, "").status, 204);
    eventually(|| has_parts(&newest()) == Some(false), "its end");
    assert_eq!(network.producer.post("/v1/files", &file(FILE, FILE_SEGMENTS)).status, 201);
    assert_eq!(network.router("c").forward("c", FILE).json()["decision"], "planned");
    eventually(|| has_parts(&newest()) == Some(true), "the next plan");
    assert!(newest()["number"].as_u64() > first);
    let transfers = network.operator.get("/v1/state").json()["transfers"].clone();
    assert_eq!(transfers[0]["number"], newest()["number"]);
}
