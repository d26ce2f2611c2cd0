//! A network of controllers, routers and a producer, each in its own process.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::TcpStream;

use std::time::Duration;

use serde_json::{Value, json};
pub(crate) use weir_tests::wait_until;
use weir_tests::{Host, Process, Router, TEST_TIMEOUT, random_file, sha256_hex};

use crate::numbers::Numbers;

pub(crate) const MIB: usize = 1 << 20;
/// Content bytes per segment.
const SEGMENT_BYTES: usize = 8000;
const DIGESTS_PER_PART: usize = weir_security::manifest::DIGESTS_PER_PART;
/// Time after which a silent router counts as down. It is the default, so that a short pause of a
/// busy machine loses no router.
pub(crate) const ROUTER_TIMEOUT: Duration = Duration::from_secs(15);
/// Metric: Interests for a part that bypassed the router that stores it.
const PASSED_BY: &str = "weir_multipath_diverted_interests_total";
pub(crate) const MIDDLE: [&str; 3] = ["one", "two", "three"];

pub(crate) struct Controller {
    pub(crate) process: Process,
    pub(crate) address: String,
    pub(crate) database: String,
    pub(crate) token: String,
}

impl Controller {
    pub(crate) fn start(host: &Host) -> Self {
        Self::with(host, host.path("controller.db").to_str().expect("UTF-8"))
    }

    /// A controller with a database that others can share.
    pub(crate) fn with(host: &Host, database: &str) -> Self {
        let (database, address) = (database.to_owned(), format!("127.0.0.1:{}", host.free_port()));
        let token = add_token(host, &database, "operator", "test");
        let process = start(host, &address, &database);
        Self { process, address, database, token }
    }

    /// Sends a request that must succeed, and returns the body of the response.
    pub(crate) fn request(&self, method: &str, path: &str, body: Option<&Value>) -> Value {
        // On a busy machine the database may be too slow for a request. Retry after status 503.
        for _ in 0..10 {
            match self.try_request(method, path, body) {
                Ok(answer) => return answer,
                Err(error) if error.to_string().contains("503 Service Unavailable") => {
                    std::thread::sleep(std::time::Duration::from_secs(2));
                }
                Err(error) => panic!("{method} {path}: {error}"),
            }
        }
        panic!("{method} {path}: still 503 after 20 s")
    }

    fn try_request(&self, method: &str, path: &str, body: Option<&Value>) -> io::Result<Value> {
        let body = body.map(Value::to_string).unwrap_or_default();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nContent-Type: \
             application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
            self.address,
            self.token,
            body.len()
        );
        let body = http(&self.address, &request)?;
        Ok(if body.is_empty() { Value::Null } else { serde_json::from_str(&body).expect("JSON") })
    }

    /// The registered files, as names with version.
    pub(crate) fn versions(&self) -> Vec<String> {
        let files = self.request("GET", "/v1/files", None);
        let files = files["files"].as_array().or_else(|| files.as_array()).expect("files").iter();
        let mut names: Vec<String> =
            files.map(|file| file["name"].as_str().expect("a name").to_owned()).collect();
        names.sort();
        names
    }

    /// The registered files, as the last name component before the version.
    pub(crate) fn registered(&self) -> Vec<String> {
        let short = |name: &String| {
            let (object, _) = name.rsplit_once("/v=").expect("a version");
            object.rsplit_once('/').expect("a component").1.to_owned()
        };
        self.versions().iter().map(short).collect()
    }

    pub(crate) fn withdraw_all(&self) {
        for name in self.versions() {
            self.request("DELETE", &format!("/v1/files?name={}", name.replace('%', "%25")), None);
        }
        assert!(self.versions().is_empty());
    }
}

/// Sends an HTTP request and returns the body of the response.
pub(crate) fn http(address: &str, request: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(TEST_TIMEOUT))?;
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    match answer.split_once("\r\n\r\n") {
        Some((head, body)) if head.starts_with("HTTP/1.1 2") => Ok(body.to_owned()),
        _ => Err(io::Error::other(answer)),
    }
}

pub(crate) fn start(host: &Host, address: &str, database: &str) -> Process {
    let decisions = format!("[decisions]\nrouter_timeout = \"{}s\"\n", ROUTER_TIMEOUT.as_secs());
    let config = host.write("controller.toml", decisions.as_bytes());
    let config = config.to_str().expect("UTF-8");
    let arguments =
        ["controller", "-c", config, "--listen", address, "--database", database, "--json"];
    let process = host.spawn("", &arguments);
    assert_eq!(process.json_line()["ready"], true);
    process
}

fn add_token(host: &Host, database: &str, role: &str, name: &str) -> String {
    let arguments =
        ["controller", "--database", database, "token", "add", "--role", role, "--name", name];
    host.spawn("", &arguments).finish().success().output.trim().to_owned()
}

/// The counters and tables of a network at one time.
pub(crate) struct TrafficSnapshot {
    /// Read last, so it may include Interests that `edge` had not counted when `numbers` were read.
    interests_at_producer: u64,
    numbers: Numbers,
    /// Faces, routes and strategies of `edge`.
    edge: String,
}

/// The state when all parts of an object were stored, before they were read.
struct InitialParts {
    object: String,
    parts: Vec<Value>,
    asked: u64,
    passed_by: u64,
}

/// Routers: `edge`, then `one`, `two` and `three` in parallel, then `origin`.
pub(crate) struct Network {
    pub(crate) host: Host,
    /// The first controller. `others` share its database.
    pub(crate) controller: Controller,
    pub(crate) others: Vec<Controller>,
    pub(crate) routers: BTreeMap<&'static str, Router>,
    /// The addresses of the routers' metrics.
    metrics: BTreeMap<&'static str, String>,
    initial_parts: RefCell<Option<InitialParts>>,
    /// Size of the file in bytes: larger than any store, smaller than three stores together.
    file_bytes: usize,
}

impl Network {
    pub(crate) fn start() -> Self {
        Self::with(24 * MIB)
    }

    pub(crate) fn with(file_bytes: usize) -> Self {
        let host = Host::new();
        let controller = Controller::start(&host);
        Self::of(host, controller, Vec::new(), file_bytes)
    }

    pub(crate) fn of(
        host: Host,
        controller: Controller,
        others: Vec<Controller>,
        file_bytes: usize,
    ) -> Self {
        let store = (file_bytes / 3 * 2).to_string();
        Self::of_stores(host, controller, others, file_bytes, &store, [""; 3])
    }

    /// A network in which each middle router could store the whole file, and `edge` reports the
    /// rates of its links.
    pub(crate) fn with_rates(rates: [&str; 3]) -> Self {
        let host = Host::new();
        let controller = Controller::start(&host);
        Self::of_stores(host, controller, Vec::new(), 24 * MIB, "64MiB", rates)
    }

    fn of_stores(
        host: Host,
        controller: Controller,
        others: Vec<Controller>,
        file_bytes: usize,
        store: &str,
        rates: [&str; 3],
    ) -> Self {
        let (routers, metrics) = (BTreeMap::new(), BTreeMap::new());
        let beginning = RefCell::new(None);
        let mut network = Self {
            host,
            controller,
            others,
            routers,
            metrics,
            initial_parts: beginning,
            file_bytes,
        };
        network.add("origin", "1MiB", &[]);
        for name in MIDDLE {
            network.add(name, store, &[("origin", "")]);
        }
        let neighbours: Vec<(&str, &str)> = MIDDLE.into_iter().zip(rates).collect();
        network.add("edge", "1MiB", &neighbours);
        network
    }

    /// Starts a router with faces to neighbours. Each neighbour is an address and the rate of its
    /// link, which may be empty.
    fn add(&mut self, name: &'static str, store: &str, neighbours: &[(&str, &str)]) {
        let token = add_token(&self.host, &self.controller.database, "router", name);
        let controllers = std::iter::once(&self.controller).chain(&self.others);
        let urls: Vec<String> =
            controllers.map(|one| format!("\"http://{}\"", one.address)).collect();
        let mut config = format!(
            "[controller]\nurl = [{}]\nname = \"{name}\"\ntoken = \"{token}\"\n\
             interval = \"100ms\"\nstate_file = {:?}\n",
            urls.join(", "),
            self.host.path(&format!("{name}.configuration")),
        );
        for (neighbour, rate) in neighbours {
            config += &format!("[[face]]\nuri = \"{}\"\n", self.routers[neighbour].udp());
            if !rate.is_empty() {
                config += &format!("rate = \"{rate}\"\n");
            }
        }
        let path = self.host.write(&format!("{name}.toml"), config.as_bytes());
        let path = path.to_str().expect("UTF-8").to_owned();
        let metrics = format!("127.0.0.1:{}", self.host.free_port());
        let arguments = ["-c", &path, "--store", store, "--metrics", &metrics];
        let arguments = arguments.map(str::to_owned).to_vec();
        self.metrics.insert(name, metrics);
        self.routers.insert(name, Router::start_at_with(&self.host, name, &arguments));
    }

    /// Publishes a file at `origin`, registers it with the controller, and waits until `edge` has a
    /// route.
    pub(crate) fn put(&self, name: &str) -> (Process, String, String) {
        self.put_content(name, 5)
    }

    /// As [`Network::put`], with random content from this seed.
    pub(crate) fn put_content(&self, name: &str, seed: u64) -> (Process, String, String) {
        let source = self.host.path("source");
        let hash = random_file(&source, self.file_bytes, seed);
        let origin = self.routers["origin"].unix();
        let words = ["put", source.to_str().expect("UTF-8"), name, "--json"];
        let producer = self.host.spawn(&origin, &words);
        let ready = producer.json_line();
        let versioned = ready["name"].as_str().expect("a name").to_owned();
        let manifest = json!({
            "name": manifest_of(&versioned), "packets": self.manifest_parts(),
        });
        let file = json!({
            "name": versioned, "segments": self.segments(), "size_bytes": self.file_bytes,
            "packet_bytes": 8400, "manifest": [manifest],
        });
        self.controller.request("POST", "/v1/files", Some(&file));
        wait_until("a route at each router", || {
            self.routers
                .values()
                .all(|router| router.weir_json(&["route", "list"]).to_string().contains(name))
        });
        (producer, versioned, hash)
    }

    pub(crate) fn segments(&self) -> usize {
        self.file_bytes.div_ceil(SEGMENT_BYTES)
    }

    fn manifest_parts(&self) -> usize {
        self.segments().div_ceil(DIGESTS_PER_PART)
    }

    /// Restarts a killed controller.
    pub(crate) fn restart_controller(&mut self, object: &str) {
        let Controller { address, database, .. } = &self.controller;
        self.controller.process = start(&self.host, address, database);
        wait_until("all routers again", || {
            let routers = self.controller.request("GET", "/v1/routers", None);
            MIDDLE.iter().all(|name| routers.to_string().contains(&format!("\"{name}\"")))
        });
        self.wait_for_parts(object);
    }

    pub(crate) fn get(&self, name: &str, target: &str) -> String {
        let target = self.host.path(target);
        let words = ["get", name, "-o", target.to_str().expect("UTF-8")];
        self.routers["edge"].weir_json(&words);
        sha256_hex(&target)
    }

    /// Reads an object without its producer, see [`Network::producer_was_not_used`].
    pub(crate) fn read_without_producer(&self, object: &str, hash: &str) {
        wait_until("a transfer without Interests to the producer", || {
            let before = self.state();
            assert_eq!(self.get(object, "again"), hash);
            self.producer_was_not_used(&before)
        });
    }

    pub(crate) fn state(&self) -> TrafficSnapshot {
        let mut numbers = Numbers::default();
        self.metrics.iter().for_each(|(router, address)| numbers.add(router, address));
        let edge = &self.routers["edge"];
        let lists = ["face", "route", "strategy"];
        let lists = lists.map(|list| edge.weir_json(&[list, "list"]).to_string());
        TrafficSnapshot {
            numbers,
            edge: lists.join("\n"),
            interests_at_producer: self.producer_interests(),
        }
    }

    /// Whether the producer got no Interests since `before`. On a busy machine, a router may pause
    /// for so long that it counts as down, and its part is requested from the producer. `edge`
    /// counts these Interests, and no others are permitted.
    pub(crate) fn producer_was_not_used(&self, before: &TrafficSnapshot) -> bool {
        // Read this first: `edge` may already have counted Interests that arrive later.
        let asked = self.producer_interests();
        if asked == before.interests_at_producer {
            return true;
        }
        let now = self.state();
        let beginning = self.initial_parts.borrow();
        let beginning = beginning.as_ref().expect("parts were waited for");
        // Count over all transfers, as an Interest of one may reach the producer during the next.
        let asked_in_all = asked - beginning.asked;
        let passed_by = now.numbers.of("edge", PASSED_BY) - beginning.passed_by;
        let (changes, edge) = (now.numbers.since(&before.numbers), [&before.edge, &now.edge]);
        eprintln!(
            "{} of the producer, {asked_in_all} in all readings, {passed_by} passed by in \
             these\n{changes}{edge:#?}",
            asked - before.interests_at_producer
        );
        // Other routers may request new parts from the producer. Without a controller, there are no
        // new parts.
        let parts = self.controller.try_request("GET", "/v1/plans", None);
        let parts =
            parts.map_or(beginning.parts.clone(), |plans| parts_in(&plans, &beginning.object));
        if asked_in_all > passed_by && parts == beginning.parts {
            let events = self.controller.try_request("GET", "/v1/events?count=1000", None);
            panic!("the producer got Interests although all parts were stored; events: {events:?}");
        }
        false
    }

    /// Whether the plan covers the whole object and each router has reported its part. The number
    /// of parts depends on when the round-trip times were known.
    fn are_parts_held(&self, object: &str) -> bool {
        let path = format!("/v1/files/holdings?name={}", object.replace('%', "%25"));
        let holders = self.controller.request("GET", &path, None);
        let parts = self.parts_of(object);
        let is_held = |part: &Value| {
            let holder = holders.as_array().expect("holders").iter();
            let ranges = holder.filter(|holder| holder["router"] == part["router"]);
            let mut ranges = ranges.flat_map(|holder| holder["segments"].as_array().unwrap());
            let (first, last) = (part["first"].as_u64(), part["last"].as_u64());
            ranges.any(|range| range[0].as_u64() <= first && last <= range[1].as_u64())
        };
        let segments = |part: &Value| {
            part["last"].as_u64().expect("a number") + 1 - part["first"].as_u64().expect("a number")
        };
        let all = parts.iter().map(segments).sum::<u64>() == self.segments() as u64;
        all && parts.iter().all(is_held)
    }

    /// Whether the router with the first part has the whole manifest.
    fn is_manifest_held(&self, object: &str) -> bool {
        let parts = self.parts_of(object);
        let Some(keeper) = parts.first().and_then(|part| part["router"].as_str()) else {
            return false;
        };
        let held = ["cs", "holdings", &manifest_of(object)];
        let held = self.routers[keeper].weir_json(&held);
        held["memory"] == json!([[0, self.manifest_parts() - 1]])
    }

    /// Waits until routers store the whole object, and `edge` has a route to each part.
    pub(crate) fn wait_for_parts(&self, object: &str) {
        let mut parts = Vec::new();
        wait_until("all parts, of one plan", || {
            parts = self.parts_of(object);
            wait_until("each part in its router", || self.are_parts_held(object));
            wait_until("the manifest in the first", || self.is_manifest_held(object));
            wait_until("a way to each part at the edge", || {
                let strategies = self.routers["edge"].weir_json(&["strategy", "list"]);
                strategies.to_string().matches("part~").count() == self.parts_of(object).len()
            });
            self.parts_of(object) == parts
        });
        let mut beginning = self.initial_parts.borrow_mut();
        let is_same = |one: &InitialParts| one.object == object && one.parts == parts;
        if !beginning.as_ref().is_some_and(is_same) {
            let TrafficSnapshot { numbers, interests_at_producer: asked, .. } = self.state();
            let passed_by = numbers.of("edge", PASSED_BY);
            *beginning = Some(InitialParts { object: object.to_owned(), parts, asked, passed_by });
        }
    }

    pub(crate) fn parts_of(&self, object: &str) -> Vec<Value> {
        parts_in(&self.controller.request("GET", "/v1/plans", None), object)
    }

    /// Interests that `origin` has sent to the producer.
    pub(crate) fn producer_interests(&self) -> u64 {
        let faces = self.routers["origin"].weir_json(&["face", "list"]);
        let is_of_producer = |face: &&Value| {
            face["scope"] == "local"
                && face["uri"].as_str().is_some_and(|uri| uri.starts_with("fd"))
        };
        let of_producer = faces.as_array().expect("faces").iter().filter(is_of_producer);
        of_producer.map(|face| face["out_interests"].as_u64().unwrap_or(0)).sum()
    }

    /// Interests that `edge` has sent to another router. The metrics are updated with a short
    /// delay.
    pub(crate) fn edge_interests_to(&self, router: &str) -> u64 {
        let mut numbers = Numbers::default();
        numbers.add("edge", &self.metrics["edge"]);
        numbers.interests_to("edge", &self.routers[router].udp())
    }
}

/// The parts of an object in the plans.
fn parts_in(plans: &Value, object: &str) -> Vec<Value> {
    let mut plans = plans.as_array().expect("plans").iter();
    let plan = plans.find(|plan| plan["object"] == object);
    plan.and_then(|plan| plan["parts"].as_array()).cloned().unwrap_or_default()
}

fn manifest_of(object: &str) -> String {
    format!("{object}/32=manifest")
}
