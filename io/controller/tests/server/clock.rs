//! A controller whose clock on the wall is off, from the start or in mid-run.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use weir_controller::{Role, WallClock, add_token};

use crate::backend::IS_SERVER;
use crate::bench::{Bench, Client, FILE, Square, eventually, file};

const HOUR_MS: i64 = 3_600_000;
const YEAR_MS: i64 = 365 * 24 * HOUR_MS;

/// By how many milliseconds a clock is ahead.
#[derive(Clone, Default)]
struct Ahead(Arc<AtomicI64>);

impl Ahead {
    fn set(&self, ahead_ms: i64) {
        self.0.store(ahead_ms, Ordering::Relaxed);
    }

    fn clock(&self) -> WallClock {
        WallClock::from(self.0.clone())
    }
}

/// A controller whose clock is ahead by so much.
fn bench(ahead_ms: i64) -> (Bench, Ahead) {
    let ahead = Ahead::default();
    ahead.set(ahead_ms);
    let bench = Bench::with(|config| {
        config.wall_clock = ahead.clock();
        // No router is lost because this machine is busy.
        config.controller.router_timeout_ns = HOUR_MS.unsigned_abs() * 1_000_000;
    });
    (bench, ahead)
}

fn names(operator: &Client) -> Vec<String> {
    let files = operator.get("/v1/files").json();
    let files = files.as_array().unwrap().iter();
    files.map(|file| file["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn wrong_clock_changes_no_decision() {
    for ahead_ms in [-100 * YEAR_MS, -4 * YEAR_MS, 4 * YEAR_MS, 100 * YEAR_MS] {
        let (mut bench, ahead) = bench(ahead_ms);
        let square = Square::join(&bench);
        assert_eq!(square.router("c").forward("c", FILE).json()["decision"], "planned");
        let newest = |square: &Square| square.operator.get("/v1/plans").json()[0].clone();
        eventually(|| newest(&square)["object"] == FILE, "a plan that is written");
        let before = square.router("c").configuration("c", 0, 0).json();
        assert_eq!(before["routes"][0]["prefix"], "/file", "{before}");

        // It is set, and is wrong the other way, while requests come.
        for (at, ahead_ms) in [0, -ahead_ms, ahead_ms].into_iter().enumerate() {
            ahead.set(ahead_ms);
            square.report();
            let name = format!("/file/{at}/v=1");
            assert_eq!(square.producer.post("/v1/files", &file(&name, 9000)).status, 201);
            assert_eq!(square.router("c").forward("c", &name).json()["decision"], "planned");
            eventually(|| newest(&square)["object"] == *name, "the plan for it, the newest");
            let routers = square.operator.get("/v1/routers").json();
            assert_eq!(routers.as_array().unwrap().len(), 4, "{routers}");
            let after = square.router("c").configuration("c", 0, 0).json();
            assert_eq!(after["routes"], before["routes"], "{ahead_ms}");
            assert!(after["distributions"].as_array().unwrap().len() > at, "{after}");
        }
        let lost = |event: &str| square.operator.get("/v1/events?count=1000").text.contains(event);
        assert!(!lost("router lost") && !lost("plan ended"), "{ahead_ms}");
        bench.restart();
        let square = square.at(&bench);
        assert_eq!(names(&square.operator).len(), 4);
        assert_eq!(square.operator.get("/v1/plans").json().as_array().unwrap().len(), 4);
    }
}

#[test]
fn token_refusal_shows_both_times() {
    let (bench, ahead) = bench(0);
    let day_ms = 24 * HOUR_MS;
    let add =
        |expires_ms| add_token(&bench.database(), Role::Reader, "r", expires_ms, &[]).unwrap();
    let until = add(Some(day_ms.unsigned_abs()));
    let (until, for_ever) =
        (Client::new(&bench.url(), &until), Client::new(&bench.url(), &add(None)));
    let cases = [
        (0, None),
        (2 * day_ms, Some("has expired: it held until ")),
        (4 * YEAR_MS, Some("has expired: it held until ")),
        (-2 * HOUR_MS, Some("was made at ")),
        (-4 * YEAR_MS, Some("was made at ")),
        // Clocks of two machines differ a little.
        (-60_000, None),
        (0, None),
    ];
    for (ahead_ms, refused) in cases {
        ahead.set(ahead_ms);
        assert_eq!(for_ever.get("/v1/links").status, 200, "{ahead_ms}: it never expires");
        let answer = until.get("/v1/links");
        let Some(words) = refused else {
            assert_eq!(answer.status, 200, "{ahead_ms}: {answer:?}");
            continue;
        };
        assert_eq!(answer.status, 401, "{ahead_ms}: {answer:?}");
        let error = answer.error();
        assert!(error.contains(words) && error.contains("the controller's clock says "), "{error}");
        assert_eq!(error.matches(" GMT").count(), 2, "both times: {error}");
        assert!(error.contains("clock is right") || error.contains("set that clock"), "{error}");
    }
}

/// Refusals are told once a minute, also if the clock jumps: forth, when it told each of them, or
/// back, when it would have told none for years.
#[test]
fn refusals_audited_once_a_minute() {
    let (bench, ahead) = bench(0);
    let producer = bench.client_below(Role::Producer, "p", &["/cms"]);
    let operator = bench.client(Role::Operator, "o");
    for ahead_ms in [0, HOUR_MS, 2 * HOUR_MS] {
        ahead.set(ahead_ms);
        assert_eq!(producer.post("/v1/files", &file("/other/v=1", 10)).status, 403);
    }
    // What comes after them is there, so they are.
    assert_eq!(producer.post("/v1/files", &file("/cms/v=1", 10)).status, 201);
    assert_eq!(operator.send("DELETE", "/v1/files?name=/cms/v=1", "").status, 204);
    let refusals = || operator.get("/v1/events?count=1000").text.matches("file refused").count();
    eventually(|| refusals() > 0, "a line");
    eventually(|| operator.get("/health").json()["waiting_records"] == 0, "all lines");
    assert_eq!(refusals(), 1);
}

/// What one of them writes has the times of its own clock, and the other goes by none of them.
#[test]
fn clock_difference_does_not_matter() {
    for ahead_ms in [-4 * YEAR_MS, 4 * YEAR_MS] {
        let (mut one, _) = bench(0);
        let square = Square::join(&one);
        let ahead = Ahead::default();
        ahead.set(ahead_ms);
        let mut other = one.beside_with(|config| config.wall_clock = ahead.clock());
        let there = square.at(&other);
        let are_beside = || {
            let others = |square: &Square| square.operator.get("/health").json()["others"].clone();
            others(&square)[0] == other.url() && others(&there)[0] == one.url()
        };
        if IS_SERVER {
            eventually(are_beside, "that they know of each other");
        }

        // Files go both ways, and so does the end of one.
        assert_eq!(there.producer.post("/v1/files", &file("/file/there/v=1", 9000)).status, 201);
        assert_eq!(square.producer.post("/v1/files", &file("/file/here/v=1", 10)).status, 201);
        for operator in [&square.operator, &there.operator] {
            eventually(|| names(operator).len() == 3, "all files");
        }
        let path = "/v1/files?name=/file/here/v=1";
        assert_eq!(there.producer.send("DELETE", path, "").status, 204);
        eventually(|| names(&square.operator).len() == 2, "the end of a file");

        // A plan of the one whose clock is off counts, and the next one of the other follows it.
        there.report();
        assert_eq!(there.router("c").forward("c", FILE).json()["decision"], "planned");
        let newest = || square.operator.get("/v1/plans").json()[0].clone();
        eventually(|| newest()["object"] == FILE, "its plan");
        let number = newest()["number"].clone();
        let in_force = |square: &Square| {
            let transfers = square.operator.get("/v1/state").json()["transfers"].clone();
            let transfers = transfers.as_array().unwrap().clone();
            let found = transfers.into_iter().find(|transfer| transfer["object"] == FILE);
            found.map(|transfer| transfer["number"].clone())
        };
        eventually(|| in_force(&square) == Some(number.clone()), "its plan at the first");
        square.report();
        assert_eq!(square.router("p").forward("p", FILE).json()["decision"], "planned");
        eventually(|| newest()["parent"] == number, "the plan after it");
        let number = newest()["number"].clone();
        eventually(|| in_force(&there) == Some(number.clone()), "that plan at the other");

        // Tokens that expire are a matter of each clock; nobody removes one.
        let day_ms = Some((24 * HOUR_MS).unsigned_abs());
        let token = add_token(&one.database(), Role::Reader, "r", day_ms, &[]).unwrap();
        assert_eq!(Client::new(&one.url(), &token).get("/v1/links").status, 200);
        let refused = Client::new(&other.url(), &token).get("/v1/links");
        assert_eq!(refused.status, 401, "{refused:?}");
        ahead.set(0);
        assert_eq!(Client::new(&other.url(), &token).get("/v1/links").status, 200);
        ahead.set(ahead_ms);

        // Each finds all of it when it comes back.
        other.restart();
        one.restart();
        for bench in [&one, &other] {
            let square = square.at(bench);
            assert_eq!(names(&square.operator).len(), 2);
            assert_eq!(square.operator.get("/v1/plans").json()[0]["number"], number);
        }
    }
}
