//! Versions of a file by one producer.

use serde_json::{Value, json};
use weir_controller::Role;

use crate::fixture::{FILE, FILE_SEGMENTS, FourRouters, TestServer, eventually, file};

const NEWER: &str = "/file/v=2";

/// Segments of a file that the plan in force keeps.
fn kept(network: &FourRouters, object: &str) -> Option<u64> {
    let state = network.operator.get("/v1/state").json();
    let plans = state["transfers"].as_array().unwrap().iter();
    let parts = plans.filter(|plan| plan["object"] == object).flat_map(|plan| {
        let number = |part: &Value, key: &str| part[key].as_u64().unwrap();
        let parts = plan["parts"].as_array().unwrap();
        parts.iter().map(move |part| number(part, "last") + 1 - number(part, "first"))
    });
    parts.reduce(|one, other| one + other)
}

fn asks(network: &FourRouters, object: &str) -> Value {
    network.router("c").forward("c", object).json()["decision"].clone()
}

/// Whether the newest plan of an object in the database is an end.
fn is_ended(network: &FourRouters, object: &str) -> bool {
    let plans = network.operator.get("/v1/plans?count=1000").json();
    let mut plans = plans.as_array().unwrap().clone().into_iter();
    let newest = plans.find(|plan| plan["object"] == object);
    newest.is_some_and(|plan| plan["parts"] == json!([]) && plan["spread"] == json!([]))
}

#[test]
fn newer_version_takes_space_until_withdrawn() {
    let mut controller = TestServer::start();
    let network = FourRouters::join(&controller);
    assert_eq!(asks(&network, FILE), "planned");
    // A file of another producer is a different object.
    let stranger = controller.client(Role::Producer, "stranger");
    assert_eq!(stranger.post("/v1/files", &file("/file/v=9", FILE_SEGMENTS)).status, 201);
    assert_eq!(kept(&network, FILE), Some(FILE_SEGMENTS));

    let newer = file(NEWER, FILE_SEGMENTS);
    assert_eq!(network.producer.post("/v1/files", &newer).status, 201);
    assert_eq!((asks(&network, FILE), kept(&network, FILE)), (json!("no-room"), None));
    assert_eq!(asks(&network, NEWER), "planned");
    assert_eq!(kept(&network, NEWER), Some(FILE_SEGMENTS));
    let files = network.operator.get("/v1/files").json();
    let newer = files.as_array().unwrap().iter().map(|file| file["newer"].clone());
    assert_eq!(newer.collect::<Vec<_>>(), [json!(NEWER), Value::Null, Value::Null]);
    eventually(|| is_ended(&network, FILE), "the end of the first plan in the database");
    eventually(|| !is_ended(&network, NEWER), "the second plan in the database");

    controller.restart();
    let network = network.at(&controller);
    network.report();
    assert_eq!((kept(&network, FILE), kept(&network, NEWER)), (None, Some(FILE_SEGMENTS)));
    let path = format!("/v1/files?name={NEWER}");
    assert_eq!(network.producer.send("DELETE", &path, "").status, 204);
    assert_eq!(asks(&network, FILE), "planned");
    assert_eq!(kept(&network, FILE), Some(FILE_SEGMENTS));
    eventually(|| !is_ended(&network, FILE), "the plan that is made again");
}

#[test]
fn new_version_ends_plans_everywhere() {
    let one = TestServer::start();
    let network = FourRouters::join(&one);
    let other = one.start_another();
    let there = network.at(&other);
    assert_eq!(asks(&network, FILE), "planned");
    eventually(|| kept(&there, FILE).is_some(), "the plan at the other");
    let newer = file(NEWER, FILE_SEGMENTS);
    assert_eq!(there.producer.post("/v1/files", &newer).status, 201);
    assert_eq!(kept(&there, FILE), None);
    eventually(|| kept(&network, FILE).is_none(), "the end of the plan where it was made");
    assert_eq!(asks(&network, NEWER), "planned");
    eventually(|| kept(&there, NEWER) == Some(FILE_SEGMENTS), "the next plan at the other");

    let path = format!("/v1/files?name={NEWER}");
    assert_eq!(there.producer.send("DELETE", &path, "").status, 204);
    let again = || asks(&network, FILE) == "planned" && kept(&there, FILE) == Some(FILE_SEGMENTS);
    eventually(again, "a plan for the first at both");
    eventually(|| !is_ended(&network, FILE), "and in the database");
    let lines = network.operator.get("/v1/events?count=1000").text;
    assert!(!lines.contains("plan overtaken"), "{lines}");
}

/// As after a kill between the two changes, or from a time when older versions kept their space.
#[test]
fn start_ends_plans_of_old_versions() {
    let mut controller = TestServer::start();
    let network = FourRouters::join(&controller);
    assert_eq!(asks(&network, FILE), "planned");
    eventually(|| kept(&network, FILE).is_some() && !is_ended(&network, FILE), "a plan");
    controller.stop();
    controller.connect().change(
        "INSERT INTO files (name, owner, added_ms, body, change) \
         SELECT '/file/v=2', owner, 1, REPLACE(body, '/v=1', '/v=2'), value \
         FROM files, numbers WHERE numbers.name = 'change'",
    );
    controller.restart();
    let network = network.at(&controller);
    network.report();
    assert_eq!(kept(&network, FILE), None);
    eventually(|| is_ended(&network, FILE), "the end of the plan in the database");
    assert_eq!(asks(&network, NEWER), "planned");
    assert_eq!(kept(&network, NEWER), Some(FILE_SEGMENTS));
}
