//! The database holds rows that the controller did not write, or that a disk has spoilt.

use serde_json::json;
use weir_controller::{Role, remove_token, tokens};

use crate::backend::{GARBLE_FILE, IS_SERVER};
use crate::bench::{Bench, FILE, FILE_SEGMENTS, Square, eventually, file};

/// What another program has written last is this file, or these plans.
const TELL_FILE: &str = "UPDATE files SET change = \
                         (SELECT value FROM numbers WHERE name = 'change') WHERE name = '/bad/v=1'";
const GARBLE_PLAN: &str = "INSERT INTO plans (number, parent, object, made_ms, body, change, ends) \
                           SELECT MAX(number) + 500000, MAX(number), '/file/v=1', 1, '{', \
                           (SELECT value FROM numbers WHERE name = 'change'), 0 FROM plans";

#[test]
fn skips_and_reports_unreadable_rows() {
    for garble in GARBLE_FILE {
        let mut one = Bench::start();
        let mut other = one.beside();
        let producer = one.client(Role::Producer, "producer");
        let operator = one.client(Role::Operator, "operator");
        let there = operator.at(&other);
        for name in ["/bad/v=1", "/good/v=1"] {
            assert_eq!(producer.post("/v1/files", &file(name, 10)).status, 201);
        }
        let count = |client: &crate::bench::Client| {
            client.get("/v1/files").json().as_array().unwrap().len()
        };
        eventually(|| count(&there) == 2, "both files at the other");
        let mut program = one.connect();
        program.change(&format!("{garble}; {TELL_FILE}"));

        assert_eq!(producer.post("/v1/files", &file("/later/v=1", 10)).status, 201);
        eventually(|| count(&there) == 3, "the file that comes after it");
        // What was read of it before it was garbled stays.
        let names = there.get("/v1/files").text;
        assert!(names.contains("/bad/v=1") && names.contains("/later/v=1"), "{names}");
        for client in [&operator, &there] {
            let garbled = || client.get("/health").json()["garbled_rows"].clone();
            eventually(|| garbled() == 1, "that it is told");
            let health = client.get("/health");
            assert_eq!((health.status, &health.json()["unread"]), (200, &json!(null)));
            let first = health.json()["garbled"].as_str().unwrap().to_owned();
            assert!(first.starts_with("file /bad/v=1: "), "{garble}: {first}");
            let metrics = client.get("/metrics").text;
            assert!(metrics.contains("weir_controller_database_garbled_rows 1\n"), "{metrics}");
            assert_eq!(client.get("/v1/state").json()["health"]["garbled_rows"], 1);
        }

        // Also where all files are read anew, as after a long time.
        program.sql("UPDATE numbers SET value = 1000000 WHERE name IN ('change', 'forgotten')");
        assert_eq!(producer.post("/v1/files", &file("/last/v=1", 10)).status, 201);
        eventually(|| count(&there) == 4, "the file that comes after all is read anew");
        assert!(there.get("/v1/files").text.contains("/bad/v=1"));
        assert_eq!(there.get("/health").json()["garbled_rows"], 1, "each is told once");

        // Who begins with it has no file of that name, and all else.
        drop(program);
        other.stop();
        one.restart();
        let operator = operator.at(&one);
        assert_eq!(count(&operator), 3);
        assert!(!operator.get("/v1/files").text.contains("/bad/v=1"));
        assert_eq!(operator.get("/health").json()["garbled_rows"], 1);
    }
}

/// It was in the way of its producer for ever, and of all files of the same list.
#[test]
fn owner_replaces_an_unreadable_file() {
    let change = "UPDATE files SET change = 'late' WHERE name = '/bad/v=1'";
    // A server takes no text for a number.
    let change = (!IS_SERVER).then_some(change);
    for garble in GARBLE_FILE.into_iter().chain(change) {
        let mut bench = Bench::start();
        let [owner, stranger] =
            ["producer", "stranger"].map(|name| bench.client(Role::Producer, name));
        let operator = bench.client(Role::Operator, "operator");
        let bad = file("/bad/v=1", 10);
        assert_eq!(owner.post("/v1/files", &bad).status, 201);
        let garble = |bench: &mut Bench| {
            bench.connect().sql(garble);
            bench.restart();
            [&owner, &stranger, &operator].map(|client| client.at(bench))
        };
        let names = |operator: &crate::bench::Client| -> Vec<String> {
            let files = operator.get("/v1/files").json();
            let files = files.as_array().unwrap().iter();
            files.map(|file| file["name"].as_str().unwrap().to_owned()).collect()
        };
        let path = "/v1/files?name=/bad/v=1";

        let [owner, stranger, operator] = garble(&mut bench);
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
        eventually(|| operator.get("/health").json()["garbled_rows"] == 0, "that it is well");
        bench.restart();
        assert_eq!(names(&operator.at(&bench)).len(), 3);

        let [_, stranger, operator] = garble(&mut bench);
        assert_eq!(operator.send("DELETE", path, "").status, 204);
        eventually(|| operator.get("/health").json()["garbled_rows"] == 0, "that it is gone");
        assert_eq!(operator.send("DELETE", path, "").status, 404);
        assert_eq!(stranger.post("/v1/files", &bad).status, 201);
        assert_eq!(names(&operator).len(), 3);

        let [owner, _, operator] = garble(&mut bench);
        assert_eq!(owner.send("DELETE", path, "").status, 404, "it is another's by now");
        assert_eq!(operator.post("/v1/files", &bad).status, 201);
        assert_eq!(names(&operator).len(), 3);
    }
}

/// It was in no range that was asked for, and nobody was told.
#[test]
fn reads_files_with_impossible_changes() {
    let mut bench = Bench::start();
    let square = Square::join(&bench);
    assert_eq!(square.router("c").forward("c", FILE).json()["decision"], "planned");
    let plan = |square: &Square| square.operator.get("/v1/plans").json()[0]["object"] == FILE;
    eventually(|| plan(&square), "a plan that is written");
    for change in [9_000_000, -1] {
        let mut program = bench.connect();
        for table in ["files", "plans", "routers"] {
            program.sql(&format!("UPDATE {table} SET change = {change}"));
        }
        drop(program);
        bench.restart();
        let square = square.at(&bench);
        assert_eq!(square.operator.get("/v1/files").json()[0]["name"], FILE);
        let state = square.operator.get("/v1/state").json();
        assert_eq!(state["transfers"][0]["object"], FILE, "{state}");
        assert_eq!(square.producer.post("/v1/files", &file(FILE, FILE_SEGMENTS)).status, 200);
    }
}

#[test]
fn unreadable_plan_blocks_no_other() {
    let bench = Bench::start();
    let square = Square::join(&bench);
    let newest = || square.operator.get("/v1/plans").json()[0].clone();
    assert_eq!(square.router("c").forward("c", FILE).json()["decision"], "planned");
    eventually(|| newest()["number"].is_u64(), "a plan that is written");
    let first = newest()["number"].as_u64().unwrap();
    let mut program = bench.connect();
    program.change(GARBLE_PLAN);
    let garbled = first + 500_000;
    eventually(|| square.operator.get("/health").json()["garbled_rows"] == 1, "that it is told");
    // Lists go without it, and who asks for it is told.
    assert_eq!(newest()["number"], first);
    let refused = square.operator.get(&format!("/v1/plans/{garbled}"));
    assert_eq!(refused.status, 500, "{refused:?}");
    assert!(refused.error().contains("a plan that cannot be read"), "{refused:?}");
    assert_eq!(
        square.router("c").configuration("c", 0, 0).json()["distributions"][0]["object"],
        FILE
    );

    let path = format!("/v1/files?name={FILE}");
    assert_eq!(square.producer.send("DELETE", &path, "").status, 204);
    assert_eq!(square.producer.post("/v1/files", &file(FILE, FILE_SEGMENTS)).status, 201);
    let is_written = || {
        assert_eq!(square.router("c").forward("c", FILE).json()["decision"], "planned");
        let newest = newest();
        newest["number"].as_u64() > Some(garbled) && newest["parts"][0]["router"].is_string()
    };
    eventually(is_written, "the plan after it");
    let in_force = || square.operator.get("/v1/state").json()["transfers"][0]["number"].clone();
    eventually(|| in_force() == newest()["number"], "that it is in force");
    assert_eq!(square.operator.get("/health").json()["garbled_rows"], 1);
}

/// It is JSON, and there can be no such plan.
#[test]
fn skips_plans_invalid_for_their_file() {
    let mut bench = Bench::start();
    let square = Square::join(&bench);
    let newest = || square.operator.get("/v1/plans").json()[0].clone();
    assert_eq!(square.router("c").forward("c", FILE).json()["decision"], "planned");
    eventually(|| newest()["number"].is_u64(), "a plan that is written");
    let mut program = bench.connect();
    // Its last part ends before it begins.
    program.change(
        "UPDATE plans SET body = replace(body, '\"last\":8999', '\"last\":0'), \
         change = (SELECT value FROM numbers WHERE name = 'change')",
    );
    drop(program);
    let garbled = |client: &crate::bench::Client| client.get("/health").json()["garbled"].clone();
    eventually(|| !garbled(&square.operator).is_null(), "that it is told");
    let text = garbled(&square.operator).to_string();
    assert!(text.contains("there cannot be such a plan"), "{text}");
    let kept = square.router("c").configuration("c", 0, 0).text;
    assert!(kept.contains("\"last\":8999"), "what was read before is in force: {kept}");
    bench.restart();
    let operator = square.operator.at(&bench);
    assert!(garbled(&operator).to_string().contains("there cannot be such a plan"));
    assert_eq!(operator.get("/v1/files").json()[0]["name"], FILE);
}

#[test]
fn unreadable_token_blocks_no_other() {
    let mut bench = Bench::start();
    let [garbled, removed] = ["garbled", "removed"].map(|name| bench.client(Role::Reader, name));
    for client in [&garbled, &removed] {
        assert_eq!(client.get("/v1/links").status, 200);
    }
    let mut program = bench.connect();
    program.sql("UPDATE tokens SET role = 'king' WHERE name = 'garbled'");
    let new = bench.client(Role::Operator, "new");
    assert_eq!(new.get("/v1/links").status, 200);
    eventually(|| new.get("/health").json()["garbled_rows"] == 1, "that it is told");
    let listed = tokens(&bench.database()).unwrap();
    assert_eq!(listed.len(), 2, "it is not listed");
    let token = listed.iter().find(|token| token.name == "removed").unwrap();
    assert!(remove_token(&bench.database(), &token.id).unwrap());
    eventually(|| removed.get("/v1/links").status == 401, "the end of a removed token");
    assert_eq!(garbled.get("/v1/links").status, 200, "what was read before holds");
    drop(program);
    bench.restart();
    assert_eq!(garbled.at(&bench).get("/v1/links").status, 401);
    assert_eq!(new.at(&bench).get("/v1/links").status, 200);
}

/// Nothing can be followed without it. That is told, and requests go on.
#[test]
fn reports_an_unreadable_table() {
    let bench = Bench::start();
    let square = Square::join(&bench);
    let mut program = bench.connect();
    program.sql("ALTER TABLE numbers RENAME TO lost");
    let health = || square.operator.get("/v1/state").json()["health"].clone();
    eventually(|| health()["unread"].is_string(), "that it is told");
    assert_eq!(square.router("c").forward("c", FILE).json()["decision"], "planned");
    program.sql("ALTER TABLE lost RENAME TO numbers");
    eventually(|| health()["unread"].is_null(), "that it is read again");
}

/// It was taken for 0, so that files were forgotten or nothing was followed any more, untold.
#[test]
fn missing_number_loses_no_file() {
    let bench = Bench::start();
    let square = Square::join(&bench);
    let health = || square.operator.get("/v1/state").json()["health"].clone();
    let mut program = bench.connect();
    let turn = "UPDATE numbers SET value = -value - 1 WHERE name = 'forgotten'".to_owned();
    let rename =
        |from: &str, to: &str| format!("UPDATE numbers SET name = '{to}' WHERE name = '{from}'");
    let lost = ["change", "forgotten", "run"];
    let lost = lost.map(|name| (rename(name, "lost"), rename("lost", name)));
    for (lose, find) in lost.into_iter().chain([(turn.clone(), turn)]) {
        program.sql(&lose);
        eventually(|| health()["unread"].is_string(), "that it is told");
        let files = square.operator.get("/v1/files").json();
        assert_eq!((files.as_array().unwrap().len(), &files[0]["name"]), (1, &json!(FILE)));
        assert_eq!(square.router("c").forward("c", FILE).json()["decision"], "planned");
        program.sql(&find);
        eventually(|| health()["unread"].is_null(), "that it is read again");
    }
}
