//! The disk of the database is full, or the database refuses a record.

use crate::backend::{REFUSES, SmallDisk};
use crate::fixture::{FILE, FourRouters, TestServer, eventually, file};

#[test]
fn full_disk_loses_nothing() {
    let Some(small) = SmallDisk::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut controller = TestServer::on(small.database(), folder, SmallDisk::configure);
    let network = FourRouters::join(&controller);
    let mut other = controller.connect();
    other.sql(SmallDisk::SETTINGS);
    other.sql(SmallDisk::FILLER);
    let mut fill = |sql| while other.try_sql(sql).is_ok() {};
    fill(SmallDisk::MUCH);
    fill(SmallDisk::LITTLE);

    // The database may have free space in its pages.
    let mut registered = vec![FILE.to_owned()];
    let refused = loop {
        let name = format!("/file/{}/v=1", registered.len());
        let answer = network.producer.post("/v1/files", &file(&name, 10));
        match answer.status {
            201 => registered.push(name),
            _ => break answer,
        }
        assert!(registered.len() < 10_000, "it is never full");
    };
    assert_eq!(refused.status, 503, "{refused:?}");
    assert!(refused.retry_after.is_some() && refused.error().contains("database"), "{refused:?}");
    let health = || network.operator.get("/health").json();
    assert_eq!(network.router("c").forward("c", FILE).json()["decision"], "planned");
    let planned = network.router("c").configuration("c", 0, 0).json();
    assert_eq!(planned["distributions"][0]["object"], FILE);
    assert_eq!(health()["why"], "full");
    assert_eq!(network.operator.get("/health").status, 503);
    let names = || {
        let files = network.operator.get("/v1/files").json();
        let files = files.as_array().unwrap().iter();
        files.map(|file| file["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let mut expected = registered.clone();
    expected.sort();
    let mut found = names();
    found.sort();
    assert_eq!(found, expected, "only refused files are missing");

    other.sql("DROP TABLE filler");
    assert_eq!(network.producer.post("/v1/files", &file("/file/late/v=1", 10)).status, 201);
    eventually(|| health()["status"] == "ok", "room");
    eventually(|| health()["waiting_records"] == 0, "all waiting records written");
    assert_eq!(health()["lost_records"], 0);
    let plans = network.operator.get("/v1/plans").json();
    assert_eq!(plans[0]["object"], FILE, "{plans}");
    drop(other);
    controller.restart();
    let network = network.at(&controller);
    let files = network.operator.get("/v1/files").json();
    assert_eq!(files.as_array().unwrap().len(), expected.len() + 1);
}

/// Otherwise no later record would ever be written.
#[test]
fn skips_records_the_database_refuses() {
    const POISON: &str = "/file/poison/v=1";
    let mut controller = TestServer::start();
    let network = FourRouters::join(&controller);
    let mut other = controller.connect();
    other.sql(REFUSES);
    drop(other);
    assert_eq!(network.producer.post("/v1/files", &file(POISON, 9000)).status, 201);
    for object in [POISON, FILE] {
        assert_eq!(network.router("c").forward("c", object).json()["decision"], "planned");
    }
    let plans = || network.operator.get("/v1/plans").json();
    eventually(|| plans()[0]["object"] == FILE, "the next plan");
    let events = || network.operator.get("/v1/events?count=1000").text;
    eventually(|| events().matches("plan made").count() == 2, "all lines of the audit");
    let health = network.operator.get("/health");
    assert_eq!((health.status, &health.json()["refused_records"]), (200, &1.into()));
    assert_eq!(
        (&health.json()["lost_records"], &health.json()["waiting_records"]),
        (&0.into(), &0.into())
    );
    let metrics = network.operator.get("/metrics").text;
    assert!(metrics.contains("weir_controller_journal_refused_records_total 1"), "{metrics}");
    // The plan is in force nevertheless, and other plans are written.
    let kept = network.router("c").configuration("c", 0, 0).text;
    assert!(kept.contains(POISON), "{kept}");
    assert_eq!(plans().as_array().unwrap().len(), 1);
    controller.restart();
    let network = network.at(&controller);
    assert_eq!(network.operator.get("/v1/files").json().as_array().unwrap().len(), 2);
}
