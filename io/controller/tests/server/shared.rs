//! Controllers that share a database.

use weir_controller::Role;

use crate::bench::{Bench, FILE, Square, eventually, file};

#[test]
fn what_is_registered_at_one_is_known_at_the_other() {
    let one = Bench::start();
    let other = one.beside();
    let producer = one.client(Role::Producer, "producer");
    let operator = one.client(Role::Operator, "operator").at(&other);
    assert_eq!(producer.post("/v1/files", &file("/a/v=1", 10)).status, 201);
    // What matters to an answer is known at once.
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
    // Anew, with another size.
    assert_eq!(producer.post("/v1/files", &file("/a/v=1", 20)).status, 201);
    let sizes = || operator.get("/v1/files").json()[0]["segments"].clone();
    eventually(|| sizes() == 20, "the file that is another now");
}

#[test]
fn what_one_has_planned_the_other_goes_on_with() {
    let mut one = Bench::start();
    let square = Square::join(&one);
    let mut other = one.beside();
    assert_eq!(square.router("c").forward("c", FILE).json()["decision"], "planned");
    let before = square.router("c").configuration("c", 0, 0).json();
    eventually(|| !square.operator.get("/v1/plans").json()[0].is_null(), "a plan that is written");
    one.stop();
    let square = square.at(&other);
    let generation = before["generation"].as_u64().unwrap();
    let new = || {
        square.report_with(generation);
        square.router("c").configuration("c", generation, 0)
    };
    eventually(|| new().status == 200, "a configuration of the other controller");
    let after = new().json();
    assert_eq!(after["distributions"], before["distributions"]);
    assert!(after["generation"].as_u64().unwrap() > generation);
    // Two never give one number: the last digits are of one alone.
    let ends =
        |configuration: &serde_json::Value| configuration["generation"].as_u64().unwrap() % 1000;
    assert_ne!(ends(&after), ends(&before));
    // Nothing was planned anew for it.
    assert_eq!(square.operator.get("/v1/plans").json().as_array().unwrap().len(), 1);
    other.stop();
}
