//! A controller whose wall clock is wrong, from the start or from some time on.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use weir_controller::{Role, WallClock, add_token};

use crate::backend::IS_SERVER;
use crate::fixture::{Client, FILE, FourRouters, TestServer, eventually, file};

const HOUR_MS: i64 = 3_600_000;
const YEAR_MS: i64 = 365 * 24 * HOUR_MS;

/// The error of a clock in milliseconds.
#[derive(Clone, Default)]
struct ClockOffset(Arc<AtomicI64>);

impl ClockOffset {
    fn set(&self, ahead_ms: i64) {
        self.0.store(ahead_ms, Ordering::Relaxed);
    }

    fn clock(&self) -> WallClock {
        WallClock::from(self.0.clone())
    }
}

/// A controller whose clock is ahead.
fn controller_with_clock(ahead_ms: i64) -> (TestServer, ClockOffset) {
    let ahead = ClockOffset::default();
    ahead.set(ahead_ms);
    let controller = TestServer::with(|config| {
        config.wall_clock = ahead.clock();
        // A busy machine must not cause lost routers.
        config.controller.router_timeout_ns = HOUR_MS.unsigned_abs() * 1_000_000;
    });
    (controller, ahead)
}

fn names(operator: &Client) -> Vec<String> {
    let files = operator.get("/v1/files").json();
    let files = files.as_array().unwrap().iter();
    files.map(|file| file["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn wrong_clock_changes_no_decision() {
    for ahead_ms in [-100 * YEAR_MS, -4 * YEAR_MS, 4 * YEAR_MS, 100 * YEAR_MS] {
        let (mut controller, ahead) = controller_with_clock(ahead_ms);
        let network = FourRouters::join(&controller);
        assert_eq!(network.router("c").forward("c", FILE).json()["decision"], "planned");
        let newest = |network: &FourRouters| network.operator.get("/v1/plans").json()[0].clone();
        eventually(|| newest(&network)["object"] == FILE, "a written plan");
        let before = network.router("c").configuration("c", 0, 0).json();
        assert_eq!(before["routes"][0]["prefix"], "/file", "{before}");

        // The clock is set to other wrong times while requests arrive.
        for (at, ahead_ms) in [0, -ahead_ms, ahead_ms].into_iter().enumerate() {
            ahead.set(ahead_ms);
            network.report();
            let name = format!("/file/{at}/v=1");
            assert_eq!(network.producer.post("/v1/files", &file(&name, 9000)).status, 201);
            assert_eq!(network.router("c").forward("c", &name).json()["decision"], "planned");
            eventually(|| newest(&network)["object"] == *name, "the plan for it, the newest");
            let routers = network.operator.get("/v1/routers").json();
            assert_eq!(routers.as_array().unwrap().len(), 4, "{routers}");
            let after = network.router("c").configuration("c", 0, 0).json();
            assert_eq!(after["routes"], before["routes"], "{ahead_ms}");
            assert!(after["distributions"].as_array().unwrap().len() > at, "{after}");
        }
        let lost = |event: &str| network.operator.get("/v1/events?count=1000").text.contains(event);
        assert!(!lost("router lost") && !lost("plan ended"), "{ahead_ms}");
        controller.restart();
        let network = network.at(&controller);
        assert_eq!(names(&network.operator).len(), 4);
        assert_eq!(network.operator.get("/v1/plans").json().as_array().unwrap().len(), 4);
    }
}

#[test]
fn token_refusal_shows_both_times() {
    let (controller, ahead) = controller_with_clock(0);
    let day_ms = 24 * HOUR_MS;
    let add =
        |expires_ms| add_token(&controller.database(), Role::Reader, "r", expires_ms, &[]).unwrap();
    let until = add(Some(day_ms.unsigned_abs()));
    let (until, for_ever) =
        (Client::new(&controller.url(), &until), Client::new(&controller.url(), &add(None)));
    let cases = [
        (0, None),
        (2 * day_ms, Some("has expired: it was valid until ")),
        (4 * YEAR_MS, Some("has expired: it was valid until ")),
        (-2 * HOUR_MS, Some("was made at ")),
        (-4 * YEAR_MS, Some("was made at ")),
        // Clocks of two machines may differ slightly.
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

/// Refusals are audited once a minute, even if the wall clock jumps. Forward jumps must not cause a
/// line for each refusal, and backward jumps must not suppress lines for years.
#[test]
fn refusals_audited_once_a_minute() {
    let (controller, ahead) = controller_with_clock(0);
    let producer = controller.client_below(Role::Producer, "p", &["/cms"]);
    let operator = controller.client(Role::Operator, "o");
    for ahead_ms in [0, HOUR_MS, 2 * HOUR_MS] {
        ahead.set(ahead_ms);
        assert_eq!(producer.post("/v1/files", &file("/other/v=1", 10)).status, 403);
    }
    // Later lines are there, so lines of the refusals would be there too.
    assert_eq!(producer.post("/v1/files", &file("/cms/v=1", 10)).status, 201);
    assert_eq!(operator.send("DELETE", "/v1/files?name=/cms/v=1", "").status, 204);
    let refusals = || operator.get("/v1/events?count=1000").text.matches("file refused").count();
    eventually(|| refusals() > 0, "a line");
    eventually(|| operator.get("/health").json()["waiting_records"] == 0, "all lines");
    assert_eq!(refusals(), 1);
}

/// Each controller writes times of its own clock, and the other one does not depend on them.
#[test]
fn clock_difference_does_not_matter() {
    for ahead_ms in [-4 * YEAR_MS, 4 * YEAR_MS] {
        let (mut one, _) = controller_with_clock(0);
        let network = FourRouters::join(&one);
        let ahead = ClockOffset::default();
        ahead.set(ahead_ms);
        let mut other = one.start_another_with(|config| config.wall_clock = ahead.clock());
        let there = network.at(&other);
        let know_each_other = || {
            let others =
                |network: &FourRouters| network.operator.get("/health").json()["others"].clone();
            others(&network)[0] == other.url() && others(&there)[0] == one.url()
        };
        if IS_SERVER {
            eventually(know_each_other, "both in the lists of each other");
        }

        // Both see each other's files and withdrawals.
        assert_eq!(there.producer.post("/v1/files", &file("/file/there/v=1", 9000)).status, 201);
        assert_eq!(network.producer.post("/v1/files", &file("/file/here/v=1", 10)).status, 201);
        for operator in [&network.operator, &there.operator] {
            eventually(|| names(operator).len() == 3, "all files");
        }
        let path = "/v1/files?name=/file/here/v=1";
        assert_eq!(there.producer.send("DELETE", path, "").status, 204);
        eventually(|| names(&network.operator).len() == 2, "the end of a file");

        // The plan of the controller with the wrong clock takes effect, and the other's next plan
        // follows it.
        there.report_until_decides(&["a", "b", "c", "p"]);
        assert_eq!(there.router("c").forward("c", FILE).json()["decision"], "planned");
        let newest = || network.operator.get("/v1/plans").json()[0].clone();
        eventually(|| newest()["object"] == FILE, "its plan");
        let number = newest()["number"].clone();
        let in_force = |network: &FourRouters| {
            let transfers = network.operator.get("/v1/state").json()["transfers"].clone();
            let transfers = transfers.as_array().unwrap().clone();
            let found = transfers.into_iter().find(|transfer| transfer["object"] == FILE);
            found.map(|transfer| transfer["number"].clone())
        };
        eventually(|| in_force(&network) == Some(number.clone()), "its plan at the first");
        network.report();
        assert_eq!(network.router("p").forward("p", FILE).json()["decision"], "planned");
        eventually(|| newest()["parent"] == number, "the plan after it");
        let number = newest()["number"].clone();
        eventually(|| in_force(&there) == Some(number.clone()), "that plan at the other");

        // Expiry depends on each controller's clock, and expired tokens are not removed.
        let day_ms = Some((24 * HOUR_MS).unsigned_abs());
        let token = add_token(&one.database(), Role::Reader, "r", day_ms, &[]).unwrap();
        assert_eq!(Client::new(&one.url(), &token).get("/v1/links").status, 200);
        let refused = Client::new(&other.url(), &token).get("/v1/links");
        assert_eq!(refused.status, 401, "{refused:?}");
        ahead.set(0);
        assert_eq!(Client::new(&other.url(), &token).get("/v1/links").status, 200);
        ahead.set(ahead_ms);

        // After a restart each controller finds everything.
        other.restart();
        one.restart();
        for controller in [&one, &other] {
            let network = network.at(controller);
            assert_eq!(names(&network.operator).len(), 2);
            assert_eq!(network.operator.get("/v1/plans").json()[0]["number"], number);
        }
    }
}
