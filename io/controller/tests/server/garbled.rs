//! The database contains rows that another program has written or that are damaged.

use serde_json::json;
use weir_controller::{Role, remove_token, tokens};

use crate::backend::{GARBLE_FILE, IS_SERVER};
use crate::fixture::{FILE, FILE_SEGMENTS, FourRouters, TestServer, eventually, file};

/// Statements of another program: mark a file as changed last, or insert damaged plans.
const TELL_FILE: &str = "UPDATE files SET change = \
                         (SELECT value FROM numbers WHERE name = 'change') WHERE name = '/bad/v=1'";
const GARBLE_PLAN: &str = "INSERT INTO plans (number, parent, object, made_ms, body, change, ends) \
                           SELECT MAX(number) + 500000, MAX(number), '/file/v=1', 1, '{', \
                           (SELECT value FROM numbers WHERE name = 'change'), 0 FROM plans";

#[test]
fn skips_and_reports_unreadable_rows() {
    for garble in GARBLE_FILE {
        let mut one = TestServer::start();
        let mut other = one.start_another();
        let producer = one.client(Role::Producer, "producer");
        let operator = one.client(Role::Operator, "operator");
        let there = operator.at(&other);
        for name in ["/bad/v=1", "/good/v=1"] {
            assert_eq!(producer.post("/v1/files", &file(name, 10)).status, 201);
        }
        let count = |client: &crate::fixture::Client| {
            client.get("/v1/files").json().as_array().unwrap().len()
        };
        eventually(|| count(&there) == 2, "both files at the other controller");
        let mut program = one.connect();
        program.change(&format!("{garble}; {TELL_FILE}"));

        assert_eq!(producer.post("/v1/files", &file("/later/v=1", 10)).status, 201);
        eventually(|| count(&there) == 3, "the next file");
        // What was read before the damage stays.
        let names = there.get("/v1/files").text;
        assert!(names.contains("/bad/v=1") && names.contains("/later/v=1"), "{names}");
        for client in [&operator, &there] {
            let garbled = || client.get("/health").json()["garbled_rows"].clone();
            eventually(|| garbled() == 1, "a report of the problem");
            let health = client.get("/health");
            assert_eq!((health.status, &health.json()["unread"]), (200, &json!(null)));
            let first = health.json()["garbled"].as_str().unwrap().to_owned();
            assert!(first.starts_with("file /bad/v=1: "), "{garble}: {first}");
            let metrics = client.get("/metrics").text;
            assert!(metrics.contains("weir_controller_database_garbled_rows 1\n"), "{metrics}");
            assert_eq!(client.get("/v1/state").json()["health"]["garbled_rows"], 1);
        }

        // Also with a complete read, as after a long outage.
        program.sql("UPDATE numbers SET value = 1000000 WHERE name IN ('change', 'forgotten')");
        assert_eq!(producer.post("/v1/files", &file("/last/v=1", 10)).status, 201);
        eventually(|| count(&there) == 4, "the file after a complete read");
        assert!(there.get("/v1/files").text.contains("/bad/v=1"));
        assert_eq!(there.get("/health").json()["garbled_rows"], 1, "each row counts once");

        // A controller that starts with it lacks this file and has all others.
        drop(program);
        other.stop();
        one.restart();
        let operator = operator.at(&one);
        assert_eq!(count(&operator), 3);
        assert!(!operator.get("/v1/files").text.contains("/bad/v=1"));
        assert_eq!(operator.get("/health").json()["garbled_rows"], 1);
    }
}

/// Regression: its producer could never register it again, nor any list with it.
#[test]
fn owner_replaces_an_unreadable_file() {
    let change = "UPDATE files SET change = 'late' WHERE name = '/bad/v=1'";
    // PostgreSQL does not accept text in an integer column.
    let change = (!IS_SERVER).then_some(change);
    for garble in GARBLE_FILE.into_iter().chain(change) {
        let mut controller = TestServer::start();
        let [owner, stranger] =
            ["producer", "stranger"].map(|name| controller.client(Role::Producer, name));
        let operator = controller.client(Role::Operator, "operator");
        let bad = file("/bad/v=1", 10);
        assert_eq!(owner.post("/v1/files", &bad).status, 201);
        let garble = |controller: &mut TestServer| {
            controller.connect().sql(garble);
            controller.restart();
            [&owner, &stranger, &operator].map(|client| client.at(controller))
        };
        let names = |operator: &crate::fixture::Client| -> Vec<String> {
            let files = operator.get("/v1/files").json();
            let files = files.as_array().unwrap().iter();
            files.map(|file| file["name"].as_str().unwrap().to_owned()).collect()
        };
        let path = "/v1/files?name=/bad/v=1";

        let [owner, stranger, operator] = garble(&mut controller);
        let refused = stranger.post("/v1/files", &bad);
        assert_eq!(refused.status, 403, "{refused:?}");
        assert!(refused.error().contains("cannot be read"), "{refused:?}");
        let answer = stranger.post("/v1/files/list", &json!([bad, file("/new/v=1", 10)]));
        assert_eq!((answer.status, &answer.json()[0]["name"]), (200, &json!("/bad/v=1")));
        assert_eq!(answer.json().as_array().unwrap().len(), 1, "{answer:?}");
        assert_eq!(names(&operator), ["/new/v=1"]);
        assert_eq!(stranger.send("DELETE", path, "").status, 404);
        let answer = owner.post("/v1/files/list", &json!([bad, file("/own/v=1", 10)]));
        assert_eq!((answer.status, &*answer.text), (200, "[]"));
        assert_eq!(names(&operator).len(), 3);
        eventually(|| operator.get("/health").json()["garbled_rows"] == 0, "a healthy state");
        controller.restart();
        assert_eq!(names(&operator.at(&controller)).len(), 3);

        let [_, stranger, operator] = garble(&mut controller);
        assert_eq!(operator.send("DELETE", path, "").status, 204);
        eventually(
            || operator.get("/health").json()["garbled_rows"] == 0,
            "no unreadable rows after the withdrawal",
        );
        assert_eq!(operator.send("DELETE", path, "").status, 404);
        assert_eq!(stranger.post("/v1/files", &bad).status, 201);
        assert_eq!(names(&operator).len(), 3);

        let [owner, _, operator] = garble(&mut controller);
        assert_eq!(owner.send("DELETE", path, "").status, 404, "it is another's by now");
        assert_eq!(operator.post("/v1/files", &bad).status, 201);
        assert_eq!(names(&operator).len(), 3);
    }
}

/// Regression: the row was in no range of changes, so it was missed silently.
#[test]
fn reads_files_with_impossible_changes() {
    let mut controller = TestServer::start();
    let network = FourRouters::join(&controller);
    assert_eq!(network.router("c").forward("c", FILE).json()["decision"], "planned");
    let plan =
        |network: &FourRouters| network.operator.get("/v1/plans").json()[0]["object"] == FILE;
    eventually(|| plan(&network), "a written plan");
    for change in [9_000_000, -1] {
        let mut program = controller.connect();
        for table in ["files", "plans", "routers"] {
            program.sql(&format!("UPDATE {table} SET change = {change}"));
        }
        drop(program);
        controller.restart();
        let network = network.at(&controller);
        assert_eq!(network.operator.get("/v1/files").json()[0]["name"], FILE);
        let state = network.operator.get("/v1/state").json();
        assert_eq!(state["transfers"][0]["object"], FILE, "{state}");
        assert_eq!(network.producer.post("/v1/files", &file(FILE, FILE_SEGMENTS)).status, 200);
    }
}

#[test]
fn unreadable_plan_blocks_no_other() {
    let controller = TestServer::start();
    let network = FourRouters::join(&controller);
    let newest = || network.operator.get("/v1/plans").json()[0].clone();
    assert_eq!(network.router("c").forward("c", FILE).json()["decision"], "planned");
    eventually(|| newest()["number"].is_u64(), "a written plan");
    let first = newest()["number"].as_u64().unwrap();
    let mut program = controller.connect();
    program.change(GARBLE_PLAN);
    let garbled = first + 500_000;
    eventually(
        || network.operator.get("/health").json()["garbled_rows"] == 1,
        "a report of the problem",
    );
    // Lists leave it out; a request for it fails with the cause.
    assert_eq!(newest()["number"], first);
    let refused = network.operator.get(&format!("/v1/plans/{garbled}"));
    assert_eq!(refused.status, 500, "{refused:?}");
    assert!(refused.error().contains("a plan that cannot be read"), "{refused:?}");
    assert_eq!(
        network.router("c").configuration("c", 0, 0).json()["distributions"][0]["object"],
        FILE
    );

    let path = format!("/v1/files?name={FILE}");
    assert_eq!(network.producer.send("DELETE", &path, "").status, 204);
    assert_eq!(network.producer.post("/v1/files", &file(FILE, FILE_SEGMENTS)).status, 201);
    let is_written = || {
        assert_eq!(network.router("c").forward("c", FILE).json()["decision"], "planned");
        let newest = newest();
        newest["number"].as_u64() > Some(garbled) && newest["parts"][0]["router"].is_string()
    };
    eventually(is_written, "the next plan");
    let in_force = || network.operator.get("/v1/state").json()["transfers"][0]["number"].clone();
    eventually(|| in_force() == newest()["number"], "the next plan in force");
    assert_eq!(network.operator.get("/health").json()["garbled_rows"], 1);
}

/// Its JSON is valid, but the plan is not.
#[test]
fn skips_plans_invalid_for_their_file() {
    let mut controller = TestServer::start();
    let network = FourRouters::join(&controller);
    let newest = || network.operator.get("/v1/plans").json()[0].clone();
    assert_eq!(network.router("c").forward("c", FILE).json()["decision"], "planned");
    eventually(|| newest()["number"].is_u64(), "a written plan");
    let mut program = controller.connect();
    // Its last part has a reversed range.
    program.change(
        "UPDATE plans SET body = replace(body, '\"last\":8999', '\"last\":0'), \
         change = (SELECT value FROM numbers WHERE name = 'change')",
    );
    drop(program);
    let garbled = |client: &crate::fixture::Client| client.get("/health").json()["garbled"].clone();
    eventually(|| !garbled(&network.operator).is_null(), "a report of the problem");
    let text = garbled(&network.operator).to_string();
    assert!(text.contains("the plan is invalid for its file"), "{text}");
    let kept = network.router("c").configuration("c", 0, 0).text;
    assert!(kept.contains("\"last\":8999"), "the earlier plan is in force: {kept}");
    controller.restart();
    let operator = network.operator.at(&controller);
    assert!(garbled(&operator).to_string().contains("the plan is invalid for its file"));
    assert_eq!(operator.get("/v1/files").json()[0]["name"], FILE);
}

#[test]
fn unreadable_token_blocks_no_other() {
    let mut controller = TestServer::start();
    let [garbled, removed] =
        ["garbled", "removed"].map(|name| controller.client(Role::Reader, name));
    for client in [&garbled, &removed] {
        assert_eq!(client.get("/v1/links").status, 200);
    }
    let mut program = controller.connect();
    program.sql("UPDATE tokens SET role = 'king' WHERE name = 'garbled'");
    let new = controller.client(Role::Operator, "new");
    assert_eq!(new.get("/v1/links").status, 200);
    eventually(|| new.get("/health").json()["garbled_rows"] == 1, "a report of the problem");
    let listed = tokens(&controller.database()).unwrap();
    assert_eq!(listed.len(), 2, "it is not listed");
    let token = listed.iter().find(|token| token.name == "removed").unwrap();
    assert!(remove_token(&controller.database(), &token.id).unwrap());
    eventually(|| removed.get("/v1/links").status == 401, "the end of a removed token");
    assert_eq!(garbled.get("/v1/links").status, 200, "the known token stays valid");
    drop(program);
    controller.restart();
    assert_eq!(garbled.at(&controller).get("/v1/links").status, 401);
    assert_eq!(new.at(&controller).get("/v1/links").status, 200);
}

/// Changes cannot be followed without this table. That is reported, and requests still work.
#[test]
fn reports_an_unreadable_table() {
    let controller = TestServer::start();
    let network = FourRouters::join(&controller);
    let mut program = controller.connect();
    program.sql("ALTER TABLE numbers RENAME TO lost");
    let health = || network.operator.get("/v1/state").json()["health"].clone();
    eventually(|| health()["unread"].is_string(), "a report of the problem");
    assert_eq!(network.router("c").forward("c", FILE).json()["decision"], "planned");
    program.sql("ALTER TABLE lost RENAME TO numbers");
    eventually(|| health()["unread"].is_null(), "a successful read");
}

/// Regression: a missing counter was taken for 0, so files were lost or changes were no longer
/// followed.
#[test]
fn missing_number_loses_no_file() {
    let controller = TestServer::start();
    let network = FourRouters::join(&controller);
    let health = || network.operator.get("/v1/state").json()["health"].clone();
    let mut program = controller.connect();
    let turn = "UPDATE numbers SET value = -value - 1 WHERE name = 'forgotten'".to_owned();
    let rename =
        |from: &str, to: &str| format!("UPDATE numbers SET name = '{to}' WHERE name = '{from}'");
    let lost = ["change", "forgotten", "run"];
    let lost = lost.map(|name| (rename(name, "lost"), rename("lost", name)));
    for (lose, find) in lost.into_iter().chain([(turn.clone(), turn)]) {
        program.sql(&lose);
        eventually(|| health()["unread"].is_string(), "a report of the problem");
        let files = network.operator.get("/v1/files").json();
        assert_eq!((files.as_array().unwrap().len(), &files[0]["name"]), (1, &json!(FILE)));
        assert_eq!(network.router("c").forward("c", FILE).json()["decision"], "planned");
        program.sql(&find);
        eventually(|| health()["unread"].is_null(), "a successful read");
    }
}
