//! Versions of a file that one producer has registered.

use serde_json::{Value, json};
use weir_controller::Role;

use crate::bench::{Bench, FILE, FILE_SEGMENTS, Square, eventually, file};

const NEWER: &str = "/file/v=2";

/// Segments that are kept of a file, by the plan in force.
fn kept(square: &Square, object: &str) -> Option<u64> {
    let state = square.operator.get("/v1/state").json();
    let plans = state["transfers"].as_array().unwrap().iter();
    let parts = plans.filter(|plan| plan["object"] == object).flat_map(|plan| {
        let number = |part: &Value, key: &str| part[key].as_u64().unwrap();
        let parts = plan["parts"].as_array().unwrap();
        parts.iter().map(move |part| number(part, "last") + 1 - number(part, "first"))
    });
    parts.reduce(|one, other| one + other)
}

fn asks(square: &Square, object: &str) -> Value {
    square.router("c").forward("c", object).json()["decision"].clone()
}

/// The newest plan of an object in the database, and whether it ends others.
fn is_ended(square: &Square, object: &str) -> bool {
    let plans = square.operator.get("/v1/plans?count=1000").json();
    let mut plans = plans.as_array().unwrap().clone().into_iter();
    let newest = plans.find(|plan| plan["object"] == object);
    newest.is_some_and(|plan| plan["parts"] == json!([]) && plan["spread"] == json!([]))
}

#[test]
fn newer_version_takes_space_until_withdrawn() {
    let mut bench = Bench::start();
    let square = Square::join(&bench);
    assert_eq!(asks(&square, FILE), "planned");
    // Another producer's is another file.
    let stranger = bench.client(Role::Producer, "stranger");
    assert_eq!(stranger.post("/v1/files", &file("/file/v=9", FILE_SEGMENTS)).status, 201);
    assert_eq!(kept(&square, FILE), Some(FILE_SEGMENTS));

    let newer = file(NEWER, FILE_SEGMENTS);
    assert_eq!(square.producer.post("/v1/files", &newer).status, 201);
    assert_eq!((asks(&square, FILE), kept(&square, FILE)), (json!("no-room"), None));
    assert_eq!(asks(&square, NEWER), "planned");
    assert_eq!(kept(&square, NEWER), Some(FILE_SEGMENTS));
    let files = square.operator.get("/v1/files").json();
    let told = files.as_array().unwrap().iter().map(|file| file["newer"].clone());
    assert_eq!(told.collect::<Vec<_>>(), [json!(NEWER), Value::Null, Value::Null]);
    eventually(|| is_ended(&square, FILE), "the end of the first plan in the database");
    eventually(|| !is_ended(&square, NEWER), "the second plan in the database");

    bench.restart();
    let square = square.at(&bench);
    square.report();
    assert_eq!((kept(&square, FILE), kept(&square, NEWER)), (None, Some(FILE_SEGMENTS)));
    let path = format!("/v1/files?name={NEWER}");
    assert_eq!(square.producer.send("DELETE", &path, "").status, 204);
    assert_eq!(asks(&square, FILE), "planned");
    assert_eq!(kept(&square, FILE), Some(FILE_SEGMENTS));
    eventually(|| !is_ended(&square, FILE), "the plan that is made again");
}

#[test]
fn new_version_ends_plans_everywhere() {
    let one = Bench::start();
    let square = Square::join(&one);
    let other = one.beside();
    let there = square.at(&other);
    assert_eq!(asks(&square, FILE), "planned");
    eventually(|| kept(&there, FILE).is_some(), "the plan at the other");
    let newer = file(NEWER, FILE_SEGMENTS);
    assert_eq!(there.producer.post("/v1/files", &newer).status, 201);
    assert_eq!(kept(&there, FILE), None);
    eventually(|| kept(&square, FILE).is_none(), "the end of the plan where it was made");
    assert_eq!(asks(&square, NEWER), "planned");
    eventually(|| kept(&there, NEWER) == Some(FILE_SEGMENTS), "the next plan at the other");

    let path = format!("/v1/files?name={NEWER}");
    assert_eq!(there.producer.send("DELETE", &path, "").status, 204);
    let again = || asks(&square, FILE) == "planned" && kept(&there, FILE) == Some(FILE_SEGMENTS);
    eventually(again, "a plan for the first at both");
    eventually(|| !is_ended(&square, FILE), "and in the database");
    let lines = square.operator.get("/v1/events?count=1000").text;
    assert!(!lines.contains("plan overtaken"), "{lines}");
}

/// A controller that is killed between the two, or is of the time when versions kept their room.
#[test]
fn start_ends_plans_of_old_versions() {
    let mut bench = Bench::start();
    let square = Square::join(&bench);
    assert_eq!(asks(&square, FILE), "planned");
    eventually(|| kept(&square, FILE).is_some() && !is_ended(&square, FILE), "a plan");
    bench.stop();
    bench.connect().change(
        "INSERT INTO files (name, owner, added_ms, body, change) \
         SELECT '/file/v=2', owner, 1, REPLACE(body, '/v=1', '/v=2'), value \
         FROM files, numbers WHERE numbers.name = 'change'",
    );
    bench.restart();
    let square = square.at(&bench);
    square.report();
    assert_eq!(kept(&square, FILE), None);
    eventually(|| is_ended(&square, FILE), "the end of the plan in the database");
    assert_eq!(asks(&square, NEWER), "planned");
    assert_eq!(kept(&square, NEWER), Some(FILE_SEGMENTS));
}
