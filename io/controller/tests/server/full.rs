//! The disk of the database is full, or the database does not take what it is given.

use crate::backend::{REFUSES, Small};
use crate::bench::{Bench, FILE, Square, eventually, file};

#[test]
fn full_disk_loses_nothing() {
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

/// Else nothing that comes after it would ever be written.
#[test]
fn skips_records_the_database_refuses() {
    const POISON: &str = "/file/poison/v=1";
    let mut bench = Bench::start();
    let square = Square::join(&bench);
    let mut other = bench.connect();
    other.sql(REFUSES);
    drop(other);
    assert_eq!(square.producer.post("/v1/files", &file(POISON, 9000)).status, 201);
    for object in [POISON, FILE] {
        assert_eq!(square.router("c").forward("c", object).json()["decision"], "planned");
    }
    let plans = || square.operator.get("/v1/plans").json();
    eventually(|| plans()[0]["object"] == FILE, "what came after it");
    let events = || square.operator.get("/v1/events?count=1000").text;
    eventually(|| events().matches("plan made").count() == 2, "all lines of the audit");
    let health = square.operator.get("/health");
    assert_eq!((health.status, &health.json()["refused_records"]), (200, &1.into()));
    assert_eq!(
        (&health.json()["lost_records"], &health.json()["waiting_records"]),
        (&0.into(), &0.into())
    );
    let metrics = square.operator.get("/metrics").text;
    assert!(metrics.contains("weir_controller_journal_refused_records 1"), "{metrics}");
    // It is in force all the same, and others are written.
    let kept = square.router("c").configuration("c", 0, 0).text;
    assert!(kept.contains(POISON), "{kept}");
    assert_eq!(plans().as_array().unwrap().len(), 1);
    bench.restart();
    let square = square.at(&bench);
    assert_eq!(square.operator.get("/v1/files").json().as_array().unwrap().len(), 2);
}
