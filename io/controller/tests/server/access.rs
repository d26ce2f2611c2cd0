//! Authorization of requests, and accepted bodies.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::num::NonZeroU32;
use std::time::Duration;

use miniz_oxide::deflate::compress_to_vec_zlib;
use serde_json::{Value, json};
use weir_controller::{Config, Role, Server, StartError, add_token, remove_token, tokens};

use crate::backend::IS_SERVER;
use crate::fixture::{Answer, Client, FILE, TestServer, eventually, file, report};

const ROLES: [Role; 4] = [Role::Router, Role::Producer, Role::Operator, Role::Reader];

#[test]
fn each_role_has_its_permissions() {
    use Role::{Operator, Producer, Reader, Router};
    let controller = TestServer::start();
    let clients = ROLES.map(|role| (role, controller.client(role, "r1")));
    let first = clients[0].1.report("r1", &report("r1", 1000, &[], &[]));
    assert_eq!(first.status, 200);
    let update = json!({"generation": 1, "number": 1, "changes": []});
    let object = json!({"object": FILE});
    let cases: [(&str, &str, Value, &[Role]); 15] = [
        ("PUT", "/v1/routers/r1", report("r1", 1000, &[], &[]), &[Router]),
        ("POST", "/v1/routers/r1/updates", update, &[Router]),
        ("POST", "/v1/routers/r1/forward", object, &[Router]),
        ("GET", "/v1/routers/r1/config", Value::Null, &[Router, Operator, Reader]),
        ("POST", "/v1/files", file(FILE, 5), &[Producer, Operator]),
        ("GET", "/v1/files", Value::Null, &[Producer, Operator, Reader]),
        ("DELETE", "/v1/files?name=/file/v=1", Value::Null, &[Producer, Operator]),
        ("GET", "/v1/files/holdings?name=/file/v=1", Value::Null, &[Operator, Reader]),
        ("GET", "/v1/routers", Value::Null, &[Operator, Reader]),
        ("GET", "/v1/links", Value::Null, &[Operator, Reader]),
        ("GET", "/v1/plans", Value::Null, &[Operator, Reader]),
        ("GET", "/v1/plans/1", Value::Null, &[Operator, Reader]),
        ("GET", "/v1/events", Value::Null, &[Operator, Reader]),
        ("GET", "/v1/state", Value::Null, &[Operator, Reader]),
        ("GET", "/metrics", Value::Null, &[Operator, Reader]),
    ];
    for (method, path, body, roles) in cases {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        for (role, client) in &clients {
            let answer = client.send(method, path, &body);
            let is_let_in = answer.status != 403;
            assert_eq!(is_let_in, roles.contains(role), "{role}: {method} {path}: {answer:?}");
            assert!(answer.status != 401 && answer.status < 500, "{path}: {answer:?}");
            if !is_let_in {
                assert!(answer.error().contains(&roles[0].to_string()), "{answer:?}");
            }
        }
        for stranger in ["", "weir-0-0", &clients[0].1.token.replace("weir-", "weir-0")] {
            let answer = Client::new(&controller.url(), stranger).send(method, path, &body);
            assert_eq!(answer.status, 401, "{method} {path}: {answer:?}");
            assert!(answer.error().contains("token"), "{answer:?}");
        }
    }
    let stranger = Client::new(&controller.url(), "");
    assert_eq!(stranger.get("/health").status, 200);
    let api = stranger.get("/openapi.json").json();
    let documented: Vec<&String> = api["paths"].as_object().unwrap().keys().collect();
    for (_, path, ..) in
        [("", "/v1/routers/{router}/updates"), ("", "/v1/files"), ("", "/v1/state")]
    {
        assert!(documented.iter().any(|known| *known == path), "{documented:?}");
    }
}

#[test]
fn router_token_serves_only_its_router() {
    let controller = TestServer::start();
    let [one, other] = ["one", "other"].map(|name| controller.client(Role::Router, name));
    assert_eq!(other.report("other", &report("other", 1, &[], &[])).status, 200);
    for answer in [
        one.report("other", &report("other", 1, &[], &[])),
        one.update("other", 1, 1, json!([])),
        one.forward("other", FILE),
        one.configuration("other", 0, 0),
    ] {
        assert_eq!(answer.status, 403);
        assert!(answer.error().contains("for router one, not for other"), "{answer:?}");
    }
    assert_eq!(one.report("a%2Fb", &report("one", 1, &[], &[])).status, 400);
}

#[test]
fn tokens_expire_and_are_removed() {
    let controller = TestServer::start();
    let database = controller.database();
    let short = add_token(&database, Role::Reader, "short", Some(0), &[]).unwrap();
    let expired = Client::new(&controller.url(), &short).get("/v1/routers");
    assert_eq!(expired.status, 401);
    assert!(expired.error().contains("expired"), "{expired:?}");

    let reader = controller.client(Role::Reader, "reader");
    assert_eq!(reader.get("/v1/routers").status, 200);
    let listed = tokens(&database).unwrap();
    let token = listed.iter().find(|token| token.name == "reader").unwrap();
    assert!(remove_token(&database, &token.id).unwrap());
    assert!(!remove_token(&database, &token.id).unwrap());
    eventually(|| reader.get("/v1/routers").status == 401, "the end of a removed token");
}

#[test]
fn limits_requests_of_a_token() {
    let controller = TestServer::with(|config| {
        config.requests_per_second_max = NonZeroU32::new(5).unwrap();
    });
    let [one, other] = ["one", "other"].map(|name| controller.client(Role::Reader, name));
    let refused = |client: &Client| -> Option<Answer> {
        let answers = (0..1000).map(|_| client.get("/v1/links"));
        answers.into_iter().find(|answer| answer.status == 429)
    };
    let answer = refused(&one).expect("a refusal among 1,000 requests");
    assert!(answer.error().contains("limit of 5 requests per second"), "{answer:?}");
    assert!(answer.retry_after.is_some());
    assert_eq!(other.get("/v1/links").status, 200);
}

#[test]
fn names_the_field_of_a_bad_body() {
    let controller = TestServer::with(|config| config.body_bytes_max = 100_000);
    let router = controller.client(Role::Router, "r");
    assert_eq!(router.report("r", &report("r", 1000, &[], &[])).status, 200);
    let mut extra = report("r", 1000, &[], &[]);
    extra["clock"] = json!(3);
    let mut wrong = report("r", 1000, &["s"], &[]);
    wrong["faces"][0]["load_bps"] = json!("much");
    let mut prefix = report("r", 1000, &[], &[]);
    prefix["prefixes"] = json!(["/foo=x"]);
    for (body, field) in [
        (json!({"uris": []}), "store_bytes"),
        (extra, "clock"),
        (wrong, "faces[0].load_bps"),
        (prefix, "prefixes[0]"),
        (json!({"uris": [], "store_bytes": -1}), "store_bytes"),
    ] {
        let answer = router.report("r", &body);
        assert_eq!(answer.status, 422, "{answer:?}");
        assert!(answer.error().contains(field), "{field}: {answer:?}");
    }
    for ranges in [json!([[9, 3]]), json!([[0, 1_u64 << 60]]), json!([[0]])] {
        let change = json!([{"object": FILE, "tier": "memory", "added": ranges}]);
        let answer = router.update("r", 1, 1, change);
        assert_eq!(answer.status, 422, "{answer:?}");
    }
    let tape = json!([{"object": FILE, "tier": "tape"}]);
    assert!(router.update("r", 1, 1, tape).error().contains("tape"));

    assert_eq!(router.send("PUT", "/v1/routers/r", "{\"uris\":").status, 400);
    let large = json!({"uris": ["x".repeat(100_000)], "store_bytes": 1});
    assert_eq!(router.report("r", &large).status, 413);
    assert_eq!(router.get("/v1/routers/r/config?after=-1").status, 400);
    assert_eq!(router.get("/v1/routers/r/config?since=1").status, 400);
    assert_eq!(router.get("/nowhere").status, 404);
    assert_eq!(router.send("DELETE", "/v1/routers/r", "").status, 405);
    // Refused requests have changed nothing.
    let registered = router.report("r", &report("r", 1000, &[], &[])).json();
    assert_eq!(registered["expected"]["number"], 0);
}

/// A connection that writes the whole request before it reads, as many programs do.
struct RawConnection(BufReader<TcpStream>);

impl RawConnection {
    fn connect(controller: &TestServer) -> Self {
        let stream = TcpStream::connect(controller.url().strip_prefix("http://").unwrap()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        Self(BufReader::new(stream))
    }

    fn write(&mut self, octets: &[u8]) -> std::io::Result<()> {
        self.0.get_mut().write_all(octets)
    }

    fn begin(&mut self, request: &str, token: &str, header: &str) {
        let head = format!("{request} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n");
        let rest = format!("Content-Type: application/json\r\n{header}\r\n\r\n");
        self.write((head + &rest).as_bytes()).unwrap();
    }

    /// The first line of an answer, and its body.
    fn answer(&mut self) -> (String, String) {
        let mut line = || {
            let mut line = String::new();
            self.0.read_line(&mut line).unwrap();
            line.trim_end().to_ascii_lowercase()
        };
        let (status, mut length) = (line(), 0);
        loop {
            match line() {
                header if header.is_empty() => break,
                header => {
                    let value = header.strip_prefix("content-length: ");
                    length = value.map_or(length, |value| value.parse().unwrap());
                }
            }
        }
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).unwrap();
        (status, String::from_utf8(body).unwrap())
    }
}

/// Regression: the connection was closed before the whole body was sent, so the answer was lost.
#[test]
fn oversized_body_still_gets_an_answer() {
    const MAX: usize = 1_000_000;
    let controller = TestServer::with(|config| config.body_bytes_max = MAX);
    let router = controller.client(Role::Router, "r");
    let (put, length) = ("PUT /v1/routers/r", format!("Content-Length: {}", 10 * MAX));
    let body = vec![b' '; 10 * MAX];
    let chunked = [format!("{:x}\r\n", body.len()).as_bytes(), &body, b"\r\n0\r\n\r\n"].concat();
    let is_too_large = |(status, text): &(String, String)| {
        status.contains(" 413 ") && text.contains("larger than 1000000 bytes; send it in several")
    };
    for (header, octets) in [(&*length, &body), ("Transfer-Encoding: chunked", &chunked)] {
        let mut wire = RawConnection::connect(&controller);
        wire.begin(put, &router.token, header);
        wire.write(octets).unwrap();
        let answer = wire.answer();
        assert!(is_too_large(&answer), "{header}: {answer:?}");
        // The connection stays usable.
        wire.begin("GET /health", "", "Accept: */*");
        assert!(wire.answer().0.contains(" 200 "));
    }
    // An unauthorized client can read its answer after a body of the allowed size.
    let mut stranger = RawConnection::connect(&controller);
    stranger.begin(put, "weir-0-0", &format!("Content-Length: {MAX}"));
    stranger.write(&body[..MAX]).unwrap();
    let (status, text) = stranger.answer();
    assert!(status.contains(" 401 ") && text.contains("is unknown"), "{status}: {text}");
    // A client that waits for `100 Continue` sends no body.
    let mut asking = RawConnection::connect(&controller);
    asking.begin(put, &router.token, &format!("{length}\r\nExpect: 100-continue"));
    let answer = asking.answer();
    assert!(is_too_large(&answer), "{answer:?}");
    // An endless body is not received for ever, and from anonymous clients even less of it.
    let taken = |token: &str| {
        let mut endless = RawConnection::connect(&controller);
        endless.begin(put, token, &format!("Content-Length: {}", 1000 * MAX));
        // Use small pieces: larger ones stay in the socket buffers of both ends.
        let mut pieces = (0..100_000).take_while(|_| endless.write(&body[..MAX / 100]).is_ok());
        pieces.by_ref().count() / 100
    };
    let (known, stranger) = (taken(&router.token), taken("weir-0-0"));
    assert!((10..200).contains(&known), "{known} MB of it");
    assert!(stranger < known, "{stranger} MB and {known} MB of it");
}

/// Regression: shutdown waited for the rest of a body as long as any request does.
#[test]
fn missing_body_does_not_delay_shutdown() {
    let mut controller = TestServer::start();
    let router = controller.client(Role::Router, "r");
    let length = controller.config.body_bytes_max + 1;
    let mut slow = RawConnection::connect(&controller);
    slow.begin("PUT /v1/routers/r", &router.token, &format!("Content-Length: {length}"));
    slow.write(b" ").unwrap();
    // It is refused because of its length, and the server waits for the rest.
    let refused = "weir_controller_requests_total{method=\"PUT\",route=\"/v1/routers/{router}\",status=\"413\"} 1";
    let operator = controller.client(Role::Operator, "o");
    eventually(|| operator.get("/metrics").text.contains(refused), "that it is refused");
    controller.stop();
    let answer = slow.answer();
    assert!(answer.0.contains(" 413 "), "{answer:?}");
}

#[test]
fn limits_size_of_inflated_bodies() {
    let controller = TestServer::with(|config| config.body_bytes_max = 100_000);
    let router = controller.client(Role::Router, "r");
    let send = |coding: &str, body: &[u8]| router.send_coded("PUT", "/v1/routers/r", coding, body);
    let deflated = |text: &str| compress_to_vec_zlib(text.as_bytes(), 6);
    let good = report("r", 1000, &["s"], &["/data"]).to_string();
    assert_eq!(send("deflate", &deflated(&good)).status, 200);
    // Codings are case-insensitive, and `identity` has no effect.
    for coding in ["Deflate", "DEFLATE", "identity, deflate"] {
        assert_eq!(send(coding, &deflated(&good)).status, 200, "{coding}");
    }
    for coding in ["identity", "Identity", "identity,, identity"] {
        assert_eq!(send(coding, good.as_bytes()).status, 200, "{coding}");
    }
    let operator = controller.client(Role::Operator, "o");
    assert_eq!(operator.get("/v1/routers").json()[0]["prefixes"], json!(["/data"]));
    let wrong = json!({"uris": []}).to_string();
    let refused = send("deflate", &deflated(&wrong));
    assert_eq!(refused.status, 422);
    assert!(refused.error().contains("store_bytes"), "{refused:?}");
    // Slightly too large, and a compression bomb.
    for length in [100_001, 50_000_000] {
        let bomb = deflated(&" ".repeat(length));
        assert!(bomb.len() < 100_000);
        let refused = send("deflate", &bomb);
        assert_eq!(refused.status, 413, "{refused:?}");
        assert!(refused.error().contains("larger than 100000 bytes"), "{refused:?}");
    }
    let cut = &deflated(&good)[..20];
    for garbage in [cut, b"", b"{}", &[0xff; 300]] {
        let refused = send("deflate", garbage);
        assert_eq!(refused.status, 400, "{refused:?}");
    }
    for coding in ["gzip", "br", "deflate, gzip", "deflate, deflate"] {
        let refused = send(coding, &deflated(&good));
        assert_eq!(refused.status, 415, "{refused:?}");
        assert!(refused.error().contains("deflate"), "{refused:?}");
    }
}

#[test]
fn refuses_plain_http_beyond_loopback() {
    let folder = tempfile::tempdir().unwrap();
    let database = folder.path().join("controller.db");
    let listen = "0.0.0.0:0".parse().unwrap();
    let config = Config { listen, database: database.clone().into(), ..Config::default() };
    match Server::start(config.clone()) {
        Err(StartError::NoTls(address)) => assert_eq!(address, config.listen),
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("it listens everywhere without TLS"),
    }
    assert!(!database.exists(), "no database is created");
    Server::start(Config { insecure: true, ..config }).unwrap().stop();
}

#[test]
fn false_reports_do_not_flood_the_audit() {
    let controller = TestServer::with(|config| config.controller.unregistered_max = 3);
    let liar = controller.client(Role::Router, "liar");
    let operator = controller.client(Role::Operator, "o");
    assert_eq!(liar.report("liar", &report("liar", 1000, &[], &[])).status, 200);
    for number in 1..=50 {
        let change = |object: u64| {
            let object = format!("/{number}/{object}");
            json!({"object": object, "tier": "memory", "added": [[0, 0]]})
        };
        let changes: Vec<Value> = (0..10).map(change).collect();
        assert_eq!(liar.update("liar", 1, number, changes.into()).status, 200);
    }
    let events = || operator.get("/v1/events?count=1000").json();
    let lines = || {
        let events = events();
        let events = events.as_array().unwrap().iter();
        events.filter(|event| event["action"] == "does not count").count()
    };
    eventually(|| lines() == 1, "a line of the audit");
    let metrics = operator.get("/metrics").text;
    let counted = "weir_controller_over_limit_total{limit=\"unregistered\"} 497";
    assert!(metrics.contains(counted), "{metrics}");
    assert_eq!(lines(), 1);
}

#[test]
fn token_prefixes_limit_file_names() {
    let controller = TestServer::start();
    let producer = controller.client_below(Role::Producer, "p", &["/cms", "/atlas/raw"]);
    let operator = controller.client_below(Role::Operator, "o", &[]);
    for name in ["/cms", "/cms/run/v=1", "/atlas/raw/v=1"] {
        assert_eq!(producer.post("/v1/files", &file(name, 10)).status, 201, "{name}");
    }
    for name in ["/cmsx/v=1", "/atlas/v=1", "/v=1"] {
        let refused = producer.post("/v1/files", &file(name, 10));
        assert_eq!(refused.status, 403, "{refused:?}");
        let words = ["producer p", "/cms and /atlas/raw", name];
        assert!(words.iter().all(|word| refused.error().contains(word)), "{refused:?}");
    }
    assert_eq!(operator.post("/v1/files", &file("/cmsx/v=1", 10)).status, 201);
    assert_eq!(operator.get("/v1/files").json().as_array().unwrap().len(), 4);
    let events = || operator.get("/v1/events?count=100").json();
    let of = |action: &str| -> Vec<String> {
        let events = events();
        let events = events.as_array().unwrap().iter();
        let events = events.filter(|event| event["action"] == action);
        events.map(|event| event["detail"].as_str().unwrap().to_owned()).collect()
    };
    eventually(|| of("file refused") == ["/cmsx/v=1"], "one line for all refusals of a minute");
    assert!(of("token added").iter().any(|line| line.ends_with("names below /cms /atlas/raw")));
    // The prefixes are stored with the token.
    let listed = tokens(&controller.database()).unwrap();
    let token = listed.iter().find(|token| token.name == "p").unwrap();
    let prefixes: Vec<String> = token.prefixes.iter().map(ToString::to_string).collect();
    assert_eq!(prefixes, ["/cms", "/atlas/raw"]);
}

#[test]
fn token_prefixes_limit_routes() {
    let controller = TestServer::start();
    let router = controller.client_below(Role::Router, "r", &["/cms"]);
    let other = controller.client(Role::Router, "s");
    let operator = controller.client(Role::Operator, "o");
    let reported = report("r", 1000, &["s"], &["/cms/a", "/", "/atlas"]);
    assert_eq!(router.report("r", &reported).status, 200);
    other.report("s", &report("s", 1000, &["r"], &[]));
    assert_eq!(operator.get("/v1/routers").json()[0]["prefixes"], json!(["/cms/a"]));
    let routes = other.configuration("s", 0, 0).json()["routes"].clone();
    assert_eq!((routes.as_array().unwrap().len(), &routes[0]["prefix"]), (1, &json!("/cms/a")));
    let counted = "weir_controller_over_limit_total{limit=\"prefix\"} 2";
    assert!(operator.get("/metrics").text.contains(counted));
}

#[test]
fn old_tokens_allow_any_name() {
    if IS_SERVER {
        // PostgreSQL was not supported before tokens had prefixes.
        return;
    }
    let mut controller = TestServer::start();
    let producer = controller.client_below(Role::Producer, "p", &[]);
    assert_eq!(producer.post("/v1/files", &file("/a/v=1", 10)).status, 403);
    controller.stop();
    // Undo the migration that added prefixes.
    let mut database = controller.connect();
    database.sql("ALTER TABLE tokens DROP COLUMN prefixes");
    database.sql("DELETE FROM _sqlx_migrations WHERE version = 2");
    drop(database);
    controller.restart();
    let producer = producer.at(&controller);
    assert_eq!(producer.post("/v1/files", &file("/a/v=1", 10)).status, 201);
}

#[test]
fn known_files_do_not_count_as_new() {
    let controller = TestServer::with(|config| config.controller.files_max = 3);
    let producer = controller.client(Role::Producer, "p");
    let names = ["/a/v=1", "/b/v=1"];
    for name in names {
        assert_eq!(producer.post("/v1/files", &file(name, 10)).status, 201);
    }
    let whole = names.map(|name| {
        let mut whole = file(name, 10);
        whole["manifest"] = json!([{"name": format!("{name}/32=manifest"), "packets": 1}]);
        whole
    });
    let (new, other) = (file("/c/v=1", 10), file("/c/v=1", 11));
    let list = json!([whole[0], whole[1], new, new, other, file("/d/v=1", 10)]);
    let refused = producer.post("/v1/files/list", &list).json();
    let refused: Vec<&str> =
        refused.as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert_eq!(refused, ["/c/v=1", "/d/v=1"], "the other one, and one too many");
    let files = controller.client(Role::Operator, "o").get("/v1/files").json();
    assert_eq!(files.as_array().unwrap().len(), 3, "{files}");
}
