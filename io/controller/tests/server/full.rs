//! The disk of the database is full.

use crate::backend::Small;
use crate::bench::{Bench, FILE, Square, eventually, file};

#[test]
fn a_full_disk_loses_nothing_and_is_told() {
    let Some(small) = Small::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut bench = Bench::on(small.database(), folder, Small::configure);
    let square = Square::join(&bench);
    let mut other = bench.connect();
    other.sql(Small::SETTINGS);
    other.sql(Small::FILLER);
    let mut fill = |sql| while other.try_sql(sql).is_ok() {};
    fill(Small::MUCH);
    fill(Small::LITTLE);

    // Some of what there is may have room left.
    let mut registered = vec![FILE.to_owned()];
    let refused = loop {
        let name = format!("/file/{}/v=1", registered.len());
        let answer = square.producer.post("/v1/files", &file(&name, 10));
        match answer.status {
            201 => registered.push(name),
            _ => break answer,
        }
        assert!(registered.len() < 10_000, "it is never full");
    };
    assert_eq!(refused.status, 503, "{refused:?}");
    assert!(refused.retry_after.is_some() && refused.error().contains("database"), "{refused:?}");
    let health = || square.operator.get("/health").json();
    assert_eq!(square.router("c").forward("c", FILE).json()["decision"], "planned");
    let planned = square.router("c").configuration("c", 0, 0).json();
    assert_eq!(planned["distributions"][0]["object"], FILE);
    assert_eq!(health()["why"], "full");
    assert_eq!(square.operator.get("/health").status, 503);
    let names = || {
        let files = square.operator.get("/v1/files").json();
        let files = files.as_array().unwrap().iter();
        files.map(|file| file["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let mut expected = registered.clone();
    expected.sort();
    let mut found = names();
    found.sort();
    assert_eq!(found, expected, "what was refused is not there, and all else is");

    other.sql("DROP TABLE filler");
    assert_eq!(square.producer.post("/v1/files", &file("/file/late/v=1", 10)).status, 201);
    eventually(|| health()["status"] == "ok", "room");
    eventually(|| health()["waiting_records"] == 0, "all that waited is written");
    assert_eq!(health()["lost_records"], 0);
    let plans = square.operator.get("/v1/plans").json();
    assert_eq!(plans[0]["object"], FILE, "{plans}");
    drop(other);
    bench.restart();
    let square = square.at(&bench);
    let files = square.operator.get("/v1/files").json();
    assert_eq!(files.as_array().unwrap().len(), expected.len() + 1);
}
