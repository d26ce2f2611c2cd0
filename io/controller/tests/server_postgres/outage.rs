//! The server of the database is away, and comes back.

use crate::bench::{Bench, FILE, Square, eventually, file};
use crate::postgres::Postgres;

#[test]
fn a_server_that_is_away_stops_no_decision_and_is_told() {
    let mut server = Postgres::start();
    let url = server.url(&server.database(""));
    let mut bench = Bench::on(url, tempfile::tempdir().unwrap(), |_| {});
    let square = Square::join(&bench);
    server.stop();

    assert_eq!(square.router("c").forward("c", FILE).json()["decision"], "planned");
    let configuration = square.router("c").configuration("c", 0, 0).json();
    assert_eq!(configuration["distributions"][0]["object"], FILE);
    let refused = square.producer.post("/v1/files", &file("/second/v=1", 10));
    assert_eq!(refused.status, 503, "{refused:?}");
    // What was registered before is registered.
    assert_eq!(square.producer.post("/v1/files", &file(FILE, 9000)).status, 200);
    eventually(|| square.operator.get("/health").json()["why"] == "silent", "that it is told");
    assert_eq!(square.router("c").forward("c", "/second/v=1").json()["decision"], "unknown");

    server.resume();
    eventually(|| square.operator.get("/health").status == 200, "that it is back");
    let plans = || square.operator.get("/v1/plans").json();
    eventually(|| plans()[0]["object"] == FILE, "the plan that waited");
    assert_eq!(square.operator.get("/health").json()["lost_records"], 0);
    assert_eq!(square.producer.post("/v1/files", &file("/second/v=1", 10)).status, 201);
    bench.restart();
    let files = square.at(&bench).operator.get("/v1/files").json();
    assert_eq!(files.as_array().unwrap().len(), 2);
}
