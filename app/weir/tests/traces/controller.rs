//! Traces of `weir controller`.

use std::path::Path;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use opentelemetry_proto::tonic::trace::v1::Span;
use serde_json::{Value, json};

use crate::collector::{Answer, collector};
use crate::spans::{Spans, boolean, has, integer, text};
use crate::{TEST_TIMEOUT, start, weir};

fn token(folder: &Path, words: &[&str]) -> String {
    let mut command = weir(folder, &["controller", "-c", "controller.toml", "token", "add"]);
    let output = command.args(words).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// Sends a request. Returns its status and its body.
fn send(token: &str, method: &str, url: &str, body: &Value) -> (u16, String) {
    let agent = ureq::Agent::config_builder().http_status_as_error(false).proxy(None).build();
    let request = ureq::http::Request::builder().method(method).uri(url);
    let request = request.header("Authorization", format!("Bearer {token}"));
    let request = request.header("Content-Type", "application/json").body(body.to_string());
    let mut answer = agent.new_agent().run(request.unwrap()).unwrap();
    (answer.status().as_u16(), answer.body_mut().read_to_string().unwrap())
}

/// Reports of three routers in a row: the consumer's, one with space for the file, and the
/// producer's.
fn reports() -> [(&'static str, Value); 3] {
    let uri = |name: &str| format!("udp://{name}.example:6363");
    let report = |name, store_bytes: u64, neighbours: &[&str], prefixes: &[&str]| {
        let face = |other: &&str| json!({"remote": uri(other), "round_trip_ns": 1_000_000});
        let faces: Vec<Value> = neighbours.iter().map(face).collect();
        let report = json!({
            "uris": [uri(name)], "store_bytes": store_bytes, "faces": faces, "prefixes": prefixes,
        });
        (name, report)
    };
    [
        report("edge", 1_000_000, &["keep"], &[]),
        report("keep", 100_000_000, &["edge", "home"], &[]),
        report("home", 1_000_000, &["keep"], &["/big"]),
    ]
}

/// The decision has one child, with what the plan stores and where.
fn assert_plan_of(spans: &Spans, decision: &Span) {
    assert_eq!(spans.children(decision), ["plan"]);
    let is_child = |span: &&Span| span.parent_span_id == decision.span_id;
    let plan = spans.all("plan").into_iter().find(is_child).unwrap();
    assert_eq!(text(&plan.attributes, "weir.object"), "/big/v=1");
    assert!(text(&plan.attributes, "weir.parts").contains("keep:"), "{plan:#?}");
    assert_eq!(text(&plan.attributes, "weir.consumers"), "edge");
    assert!(integer(plan, "weir.segments") > 0 && integer(plan, "weir.plan") > 0);
    assert!(!boolean(plan, "weir.ended"));
}

#[test]
fn controller_sends_requests_and_decisions() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let config = "listen = '127.0.0.1:0'\ndatabase = 'controller.db'\n[decisions]\n\
                  router_timeout = '2s'\n";
    std::fs::write(folder.join("controller.toml"), config).unwrap();
    let [edge, keep, home] =
        ["edge", "keep", "home"].map(|name| token(folder, &["--role", "router", "--name", name]));
    let operator = token(folder, &["--role", "operator", "--name", "me"]);
    let (url, received) = collector(Answer::ACCEPT);
    let mut command = weir(folder, &["controller", "-c", "controller.toml", "--json"]);
    command.env("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", format!("{url}/spans"));
    command.env("OTEL_SERVICE_NAME", "placement").env("OTEL_BSP_SCHEDULE_DELAY", "200");
    let running = start(command);
    let at = running.ready["url"].as_str().unwrap().to_owned();

    let send = |token: &str, method: &str, path: &str, body: Value| {
        send(token, method, &format!("{at}{path}"), &body)
    };
    let file = json!({"name": "/big/v=1", "segments": 1000, "size_bytes": 8_000_000,
        "packet_bytes": 8200});
    assert_eq!(send(&operator, "POST", "/v1/files", file).0, 201);
    let object = json!({"object": "/big/v=1"});
    let end = Instant::now() + TEST_TIMEOUT;
    loop {
        for (token, (name, report)) in [&edge, &keep, &home].into_iter().zip(reports()) {
            let (status, body) = send(token, "PUT", &format!("/v1/routers/{name}"), report);
            assert_eq!(status, 200, "{body}");
        }
        let (_, answer) = send(&edge, "POST", "/v1/routers/edge/forward", object.clone());
        if answer.contains("\"planned\"") {
            break;
        }
        // At its start, the controller waits for reports of all routers.
        assert!(Instant::now() < end, "{answer}");
        std::thread::sleep(Duration::from_millis(200));
    }
    assert_eq!(send(&keep, "POST", "/v1/routers/edge/forward", object).0, 403);

    // The routers are lost after 2 s, in one tick or in several.
    let lost = |spans: &Spans| {
        let has_lost = |span: &&Span| has(&span.attributes, "weir.lost_routers");
        let epochs = spans.all("epoch").into_iter().filter(has_lost);
        epochs.map(|epoch| integer(epoch, "weir.lost_routers")).sum::<i64>()
    };
    let spans = Spans::receive(&received, |spans| lost(spans) >= 3);
    assert!(spans.heads[0].starts_with("post /spans "), "{}", spans.heads[0]);
    assert_eq!(text(&spans.resource, "service.name"), "placement");
    let changes = |span: &Span| {
        span.attributes.iter().any(|at| at.key.starts_with("weir.") && at.key != "weir.discard")
    };
    assert!(spans.all("epoch").into_iter().all(changes), "ticks without changes are not sent");

    let requests = spans.all("POST /v1/routers/{router}/forward");
    let status = |span: &Span| integer(span, "http.response.status_code");
    assert!(requests.iter().any(|request| status(request) == 403), "{requests:#?}");
    let is_planned = |span: &&Span| text(&span.attributes, "weir.decision") == "planned";
    let decision = spans.all("decision").into_iter().find(is_planned).unwrap();
    assert_eq!(text(&decision.attributes, "weir.router"), "edge");
    assert_eq!(integer(decision, "weir.plans"), 1);
    let is_parent = |span: &&&Span| span.span_id == decision.parent_span_id;
    let request = requests.iter().find(is_parent).unwrap();
    assert_eq!(status(request), 200);
    assert_eq!(text(&request.attributes, "http.route"), "/v1/routers/{router}/forward");

    assert_plan_of(&spans, decision);
    kill(Pid::from_raw(running.child.id() as i32), Signal::SIGTERM).unwrap();
}

#[test]
fn controller_warns_about_a_bad_collector() {
    for (url, words) in [
        ("http://127.0.0.1:9", "cannot deliver traces; check that a collector listens there"),
        ("collector:4317", "no traces are sent: OTEL_EXPORTER_OTLP_ENDPOINT is `collector:4317`"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let words_of_start =
            ["controller", "--database", "controller.db", "--listen", "127.0.0.1:0", "--json"];
        let mut command = weir(folder.path(), &words_of_start);
        let log = std::fs::File::create(folder.path().join("log")).unwrap();
        command.env("OTEL_EXPORTER_OTLP_ENDPOINT", url).stderr(log);
        let mut running = start(command);
        let at = format!("{}/health", running.ready["url"].as_str().unwrap());
        assert_eq!(send("none", "GET", &at, &Value::Null).0, 200);
        kill(Pid::from_raw(running.child.id() as i32), Signal::SIGTERM).unwrap();
        assert!(running.child.wait().unwrap().success());
        let log = std::fs::read_to_string(folder.path().join("log")).unwrap();
        assert_eq!(log.matches(words).count(), 1, "{log}");
    }
}
