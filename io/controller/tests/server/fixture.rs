//! A controller on loopback with a database in a temporary folder, and its clients.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Value, json};
use sqlx::{AnyConnection, AssertSqlSafe, Connection as _};
use tempfile::TempDir;
use ureq::Agent;
use ureq::http::Request;
use weir_controller::{Config, DatabaseLocation, Role, Server};
use weir_wire::Name;

use crate::backend;

/// A timeout for tests that hang.
pub(crate) const TEST_TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) struct TestServer {
    folder: TempDir,
    /// For other programs that use the database.
    database_url: String,
    pub(crate) config: Config,
    server: Option<Server>,
}

pub(crate) struct Client {
    pub(crate) url: String,
    pub(crate) token: String,
    agent: Agent,
}

/// Status and body of an answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) text: String,
    pub(crate) retry_after: Option<String>,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The error text of a refusal.
    pub(crate) fn error(&self) -> String {
        self.json()["error"].as_str().unwrap_or_else(|| panic!("{self:?}")).to_owned()
    }
}

impl TestServer {
    pub(crate) fn start() -> Self {
        Self::with(|_| {})
    }

    pub(crate) fn with(change: impl FnOnce(&mut Config)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self::on(backend::database(&folder), folder, change)
    }

    /// With this database.
    pub(crate) fn on(
        database_url: String,
        folder: TempDir,
        change: impl FnOnce(&mut Config),
    ) -> Self {
        let place = database_url.strip_prefix("sqlite://").unwrap_or(&database_url);
        let database = place.parse().unwrap();
        let listen = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut config = Config { listen, database, ..Config::default() };
        change(&mut config);
        let server = Server::start(config.clone()).unwrap();
        Self { folder, database_url, config, server: Some(server) }
    }

    pub(crate) fn stop(&mut self) {
        self.server.take().unwrap().stop();
    }

    pub(crate) fn restart(&mut self) {
        if self.server.is_some() {
            self.stop();
        }
        self.server = Some(Server::start(self.config.clone()).unwrap());
    }

    pub(crate) fn url(&self) -> String {
        self.server.as_ref().unwrap().url()
    }

    /// Starts another controller with the same database.
    pub(crate) fn start_another(&self) -> Self {
        self.start_another_with(|_| {})
    }

    pub(crate) fn start_another_with(&self, change: impl FnOnce(&mut Config)) -> Self {
        let (folder, url) = (tempfile::tempdir().unwrap(), self.database_url.clone());
        let config = self.config.clone();
        Self::on(url, folder, |new| {
            *new = Config { database: new.database.clone(), ..config };
            change(new);
        })
    }

    /// Another program's connection to the database.
    pub(crate) fn connect(&self) -> ExternalProgram {
        sqlx::any::install_default_drivers();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let connection = runtime.block_on(AnyConnection::connect(&self.database_url)).unwrap();
        ExternalProgram { runtime, connection }
    }

    /// A copy of the database, made while it runs as `docs/operate.md` says.
    pub(crate) fn backup(&self) -> String {
        backend::backup(self.folder.path(), &self.database_url)
    }

    pub(crate) fn database(&self) -> DatabaseLocation {
        self.config.database.clone()
    }

    /// A client with a new token that allows all names.
    pub(crate) fn client(&self, role: Role, name: &str) -> Client {
        self.client_below(role, name, &["/"])
    }

    /// A client with a new token that allows names below some prefixes.
    pub(crate) fn client_below(&self, role: Role, name: &str, prefixes: &[&str]) -> Client {
        let prefixes: Vec<Name> = prefixes.iter().map(|prefix| prefix.parse().unwrap()).collect();
        let database = &self.config.database;
        let token = weir_controller::add_token(database, role, name, None, &prefixes).unwrap();
        Client::new(&self.url(), &token)
    }
}

/// Another program that uses the database.
pub(crate) struct ExternalProgram {
    runtime: tokio::runtime::Runtime,
    connection: AnyConnection,
}

impl ExternalProgram {
    pub(crate) fn sql(&mut self, sql: &str) {
        self.try_sql(sql).unwrap();
    }

    /// Increments `change` and runs a statement in one transaction. If a controller read in
    /// between, it would take the statement's effect for an old change.
    pub(crate) fn change(&mut self, sql: &str) {
        self.sql(&format!(
            "BEGIN; UPDATE numbers SET value = value + 1 WHERE name = 'change'; {sql}; COMMIT"
        ));
    }

    pub(crate) fn try_sql(&mut self, sql: &str) -> Result<(), sqlx::Error> {
        let sql = AssertSqlSafe(sql.to_owned());
        self.runtime.block_on(sqlx::raw_sql(sql).execute(&mut self.connection)).map(drop)
    }
}

impl Client {
    pub(crate) fn new(url: &str, token: &str) -> Self {
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(TEST_TIMEOUT))
            .build();
        Self { url: url.to_owned(), token: token.to_owned(), agent: config.new_agent() }
    }

    /// The same client after a restart of the controller.
    pub(crate) fn at(&self, controller: &TestServer) -> Self {
        Self::new(&controller.url(), &self.token)
    }

    pub(crate) fn send(&self, method: &str, path: &str, body: &str) -> Answer {
        self.send_coded(method, path, "", body.as_bytes())
    }

    /// Sends a body with a content coding.
    pub(crate) fn send_coded(&self, method: &str, path: &str, coding: &str, body: &[u8]) -> Answer {
        let kind = "application/json";
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.url))
            .header("Authorization", format!("Bearer {}", self.token))
            .header("Content-Type", kind);
        if !coding.is_empty() {
            request = request.header("Content-Encoding", coding);
        }
        let mut response = match body {
            [] if method != "POST" => self.agent.run(request.body(()).unwrap()),
            body => self.agent.run(request.body(body).unwrap()),
        }
        .unwrap();
        let header = response.headers().get("Retry-After");
        let retry_after = header.map(|value| value.to_str().unwrap().to_owned());
        let text = response.body_mut().read_to_string().unwrap();
        Answer { status: response.status().as_u16(), text, retry_after }
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.send("GET", path, "")
    }

    pub(crate) fn put(&self, path: &str, body: &Value) -> Answer {
        self.send("PUT", path, &body.to_string())
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Answer {
        self.send("POST", path, &body.to_string())
    }

    pub(crate) fn report(&self, router: &str, report: &Value) -> Answer {
        self.put(&format!("/v1/routers/{router}"), report)
    }

    pub(crate) fn update(
        &self,
        router: &str,
        generation: u64,
        number: u64,
        changes: Value,
    ) -> Answer {
        let body = json!({"generation": generation, "number": number, "changes": changes});
        self.post(&format!("/v1/routers/{router}/updates"), &body)
    }

    pub(crate) fn forward(&self, router: &str, object: &str) -> Answer {
        self.post(&format!("/v1/routers/{router}/forward"), &json!({"object": object}))
    }

    pub(crate) fn configuration(&self, router: &str, after: u64, wait_s: u64) -> Answer {
        self.get(&format!("/v1/routers/{router}/config?after={after}&wait={wait_s}"))
    }
}

/// The report of a router with `store_bytes` of memory and faces to `neighbours`.
pub(crate) fn report(
    name: &str,
    store_bytes: u64,
    neighbours: &[&str],
    prefixes: &[&str],
) -> Value {
    let uri = |name: &str| format!("udp://{name}.example:6363");
    let faces: Vec<Value> = neighbours
        .iter()
        .map(|neighbour| json!({"remote": uri(neighbour), "round_trip_ns": 1_000_000}))
        .collect();
    json!({
        "uris": [uri(name)],
        "store_bytes": store_bytes,
        "faces": faces,
        "prefixes": prefixes,
    })
}

/// A file of `segments` segments of 8,000 bytes.
pub(crate) fn file(name: &str, segments: u64) -> Value {
    let size = segments * 8000;
    json!({"name": name, "segments": segments, "size_bytes": size, "packet_bytes": 8200})
}

/// Repeats a check until it succeeds.
pub(crate) fn eventually(mut ask: impl FnMut() -> bool, what: &str) {
    let end = std::time::Instant::now() + TEST_TIMEOUT;
    while !ask() {
        assert!(std::time::Instant::now() < end, "never: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A consumer's router `c`, a producer's router `p`, and two routers in between, `a` and `b`. Each
/// store in between holds two thirds of `/file/v=1`, which is registered.
pub(crate) struct FourRouters {
    pub(crate) routers: Vec<(&'static str, Client)>,
    pub(crate) producer: Client,
    pub(crate) operator: Client,
}

pub(crate) const FILE: &str = "/file/v=1";
pub(crate) const FILE_SEGMENTS: u64 = 9000;
const STORE_BYTES: u64 = 6000 * 11_000;

impl FourRouters {
    pub(crate) fn join(controller: &TestServer) -> Self {
        let names = ["a", "b", "c", "p"];
        let routers = names.map(|name| (name, controller.client(Role::Router, name)));
        let network = Self {
            routers: routers.into(),
            producer: controller.client(Role::Producer, "producer"),
            operator: controller.client(Role::Operator, "operator"),
        };
        network.report();
        let answer = network.producer.post("/v1/files", &file(FILE, FILE_SEGMENTS));
        assert_eq!(answer.status, 201, "{answer:?}");
        network
    }

    pub(crate) fn report(&self) {
        self.report_with(0);
    }

    /// They report this generation.
    pub(crate) fn report_with(&self, generation: u64) {
        self.report_as(&["a", "b", "c", "p"], generation);
    }

    /// Some of them report.
    pub(crate) fn report_as(&self, names: &[&str], generation: u64) {
        for (name, client) in self.routers.iter().filter(|(name, _)| names.contains(name)) {
            let mut report = Self::report_of(name);
            report["generation"] = generation.into();
            let answer = client.report(name, &report);
            assert_eq!(answer.status, 200, "{answer:?}");
        }
    }

    /// Some of them report to a further controller until it decides about files. It waits while
    /// another controller has more routers, which is so between two of these reports.
    pub(crate) fn report_until_decides(&self, names: &[&str]) {
        let waits = || self.operator.get("/health").json()["waits"].clone();
        let report = || {
            self.report_as(names, 0);
            for name in names {
                // Refused as a repetition from the second time on.
                self.router(name).update(name, 1, 1, json!([]));
            }
            waits() == false
        };
        eventually(report, "decisions of a controller");
    }

    pub(crate) fn report_of(name: &str) -> Value {
        let (neighbours, prefixes, store): (&[&str], &[&str], u64) = match name {
            "c" => (&["a", "b"], &[], 1_000_000),
            "p" => (&["a", "b"], &["/file"], 1_000_000),
            _ => (&["c", "p"], &[], STORE_BYTES),
        };
        report(name, store, neighbours, prefixes)
    }

    /// Two routers report as `a`. Returns the answer to the later one.
    pub(crate) fn report_duplicate(&self) -> Answer {
        let report = |instance: u64, uri: &str| {
            let mut report = Self::report_of("a");
            report["instance"] = instance.into();
            report["uris"] = json!([uri]);
            self.router("a").report("a", &report)
        };
        for (instance, uri) in [(1, "udp://a.example:6363"), (2, "udp://twin.example:6363")] {
            assert_eq!(report(instance, uri).status, 200);
        }
        assert_eq!(report(1, "udp://a.example:6363").status, 200, "it was there first");
        report(2, "udp://twin.example:6363")
    }

    pub(crate) fn router(&self, name: &str) -> &Client {
        &self.routers.iter().find(|(router, _)| *router == name).unwrap().1
    }

    pub(crate) fn at(&self, controller: &TestServer) -> Self {
        Self {
            routers: self
                .routers
                .iter()
                .map(|(name, client)| (*name, client.at(controller)))
                .collect(),
            producer: self.producer.at(controller),
            operator: self.operator.at(controller),
        }
    }
}
