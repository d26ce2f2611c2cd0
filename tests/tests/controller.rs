//! Routers and their controller as processes: a file that no store holds is kept in parts, read
//! again without its producer, and none of it waits for the controller (paper
//! multipath-cache-management, 3.3 and 5).

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use weir_tests::{PATIENCE, Process, Router, RouterOptions, Site, random_file, sha256_hex};

const MIB: usize = 1 << 20;
/// Octets of content of a segment.
const SEGMENT_BYTES: usize = 8000;
const DIGESTS_PER_PART: usize = weir_security::manifest::DIGESTS_PER_PART;
const MIDDLE: [&str; 3] = ["one", "two", "three"];

/// A controller and its database.
struct Controller {
    process: Process,
    address: String,
    database: PathBuf,
    token: String,
}

impl Controller {
    fn start(site: &Site) -> Self {
        let database = site.path("controller.db");
        let address = format!("127.0.0.1:{}", site.free_port());
        let token = add_token(site, &database, "operator", "test");
        let process = start(site, &address, &database);
        Self { process, address, database, token }
    }

    /// The body of an answer; what is no success fails the test.
    fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> Value {
        let body = body.map(Value::to_string).unwrap_or_default();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nContent-Type: \
             application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
            self.address,
            self.token,
            body.len()
        );
        let mut stream = TcpStream::connect(&self.address).expect("the controller listens");
        stream.write_all(request.as_bytes()).expect("a request");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
        assert!(head.starts_with("HTTP/1.1 2"), "{method} {path}: {answer}");
        if body.is_empty() { Value::Null } else { serde_json::from_str(body).expect("JSON") }
    }

    /// The files that it knows, by their names with the version.
    fn versions(&self) -> Vec<String> {
        let files = self.ask("GET", "/v1/files", None);
        let files = files["files"].as_array().or_else(|| files.as_array()).expect("files").iter();
        let mut names: Vec<String> =
            files.map(|file| file["name"].as_str().expect("a name").to_owned()).collect();
        names.sort();
        names
    }

    /// The same, by the last component of their names without the version.
    fn registered(&self) -> Vec<String> {
        let short = |name: &String| {
            let (object, _) = name.rsplit_once("/v=").expect("a version");
            object.rsplit_once('/').expect("a component").1.to_owned()
        };
        self.versions().iter().map(short).collect()
    }

    fn withdraw_all(&self) {
        for name in self.versions() {
            self.ask("DELETE", &format!("/v1/files?name={}", name.replace('%', "%25")), None);
        }
        assert!(self.versions().is_empty());
    }
}

fn start(site: &Site, address: &str, database: &Path) -> Process {
    let database = database.to_str().expect("UTF-8");
    let arguments = ["controller", "--listen", address, "--database", database, "--json"];
    let process = site.weir("", &arguments);
    assert_eq!(process.json_line()["ready"], true);
    process
}

fn add_token(site: &Site, database: &Path, role: &str, name: &str) -> String {
    let database = database.to_str().expect("UTF-8");
    let arguments =
        ["controller", "--database", database, "token", "add", "--role", role, "--name", name];
    site.weir("", &arguments).finish().success().output.trim().to_owned()
}

/// `edge` - `one`, `two`, `three` beside each other - `origin`.
struct Network {
    site: Site,
    controller: Controller,
    routers: BTreeMap<&'static str, Router>,
    /// Octets of the file: more than any one store has, less than three may promise together.
    file_bytes: usize,
}

impl Network {
    fn start() -> Self {
        Self::with(24 * MIB)
    }

    fn with(file_bytes: usize) -> Self {
        let site = Site::new();
        let controller = Controller::start(&site);
        let mut network = Self { site, controller, routers: BTreeMap::new(), file_bytes };
        network.add("origin", "1MiB", &[]);
        let store = (file_bytes / 3 * 2).to_string();
        for name in MIDDLE {
            network.add(name, &store, &["origin"]);
        }
        network.add("edge", "1MiB", &MIDDLE);
        network
    }

    fn add(&mut self, name: &'static str, store: &str, neighbours: &[&str]) {
        let token = add_token(&self.site, &self.controller.database, "router", name);
        let mut config = format!(
            "[controller]\nurl = \"http://{}\"\nname = \"{name}\"\ntoken = \"{token}\"\n\
             interval = \"100ms\"\n",
            self.controller.address
        );
        for neighbour in neighbours {
            config += &format!("[[face]]\nuri = \"{}\"\n", self.routers[neighbour].udp());
        }
        let path = self.site.write(&format!("{name}.toml"), config.as_bytes());
        let path = path.to_str().expect("UTF-8").to_owned();
        let arguments = vec!["-c".into(), path, "--store".into(), store.into()];
        let options = RouterOptions { socket: name.into(), arguments };
        self.routers.insert(name, Router::start_with(&self.site, &options));
    }

    /// Publishes a file at `origin`, tells the controller of it, and waits until `edge` has a
    /// route.
    fn put(&self, name: &str) -> (Process, String, String) {
        let source = self.site.path("source");
        let hash = random_file(&source, self.file_bytes, 5);
        let origin = self.routers["origin"].unix();
        let words = ["put", source.to_str().expect("UTF-8"), name, "--json"];
        let producer = self.site.weir(&origin, &words);
        let ready = producer.json_line();
        let versioned = ready["name"].as_str().expect("a name").to_owned();
        let manifest = json!({
            "name": manifest_of(&versioned), "packets": self.manifest_parts(),
        });
        let file = json!({
            "name": versioned, "segments": self.segments(), "size_bytes": self.file_bytes,
            "packet_bytes": 8400, "manifest": [manifest],
        });
        self.controller.ask("POST", "/v1/files", Some(&file));
        wait_until("a route at each router", || {
            self.routers.values().all(|router| {
                router.weir_json(&self.site, &["route", "list"]).to_string().contains(name)
            })
        });
        (producer, versioned, hash)
    }

    fn segments(&self) -> usize {
        self.file_bytes.div_ceil(SEGMENT_BYTES)
    }

    fn manifest_parts(&self) -> usize {
        self.segments().div_ceil(DIGESTS_PER_PART)
    }

    /// Starts the controller again that was killed.
    fn restart_controller(&mut self, object: &str) {
        let Controller { address, database, .. } = &self.controller;
        self.controller.process = start(&self.site, address, database);
        wait_until("all routers again", || {
            let routers = self.controller.ask("GET", "/v1/routers", None);
            MIDDLE.iter().all(|name| routers.to_string().contains(&format!("\"{name}\"")))
        });
        self.wait_for_parts(object);
    }

    fn get(&self, name: &str, target: &str) -> String {
        let target = self.site.path(target);
        let words = ["get", name, "-o", target.to_str().expect("UTF-8")];
        self.routers["edge"].weir_json(&self.site, &words);
        sha256_hex(&target)
    }

    /// Whether routers are to keep all of an object in parts, and each has said that it holds its
    /// own. How many parts there are depends on when round-trip times were known.
    fn are_parts_held(&self, object: &str) -> bool {
        let path = format!("/v1/files/holdings?name={}", object.replace('%', "%25"));
        let holders = self.controller.ask("GET", &path, None);
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

    /// Whether the router that keeps the first part has the whole manifest.
    fn is_manifest_held(&self, object: &str) -> bool {
        let parts = self.parts_of(object);
        let Some(keeper) = parts.first().and_then(|part| part["router"].as_str()) else {
            return false;
        };
        let held = ["cs", "holdings", &manifest_of(object)];
        let held = self.routers[keeper].weir_json(&self.site, &held);
        held["memory"] == json!([[0, self.manifest_parts() - 1]])
    }

    /// Waits until routers keep all of an object, and the edge asks each for its part.
    fn wait_for_parts(&self, object: &str) {
        wait_until("each part in its router", || self.are_parts_held(object));
        wait_until("the manifest in the first", || self.is_manifest_held(object));
        wait_until("a way to each part at the edge", || {
            let strategies = self.routers["edge"].weir_json(&self.site, &["strategy", "list"]);
            strategies.to_string().matches("part~").count() == self.parts_of(object).len()
        });
    }

    fn parts_of(&self, object: &str) -> Vec<Value> {
        let plans = self.controller.ask("GET", "/v1/plans", None);
        let mut plans = plans.as_array().expect("plans").iter();
        let plan = plans.find(|plan| plan["object"] == object);
        plan.and_then(|plan| plan["parts"].as_array()).cloned().unwrap_or_default()
    }

    /// Interests that the producer's face of `origin` has carried.
    fn asked_of_producer(&self) -> u64 {
        let faces = self.routers["origin"].weir_json(&self.site, &["face", "list"]);
        let local = faces.as_array().expect("faces").iter().filter(|face| {
            face["scope"] == "local"
                && face["uri"].as_str().is_some_and(|uri| uri.starts_with("fd"))
        });
        local.map(|face| face["outInterests"].as_u64().unwrap_or(0)).sum()
    }
}

fn manifest_of(object: &str) -> String {
    format!("{object}/32=manifest")
}

fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "{what} did not come about");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_file_larger_than_any_store_is_read_again_without_its_producer() {
    let network = Network::start();
    let (_producer, versioned, hash) = network.put("/data/large");
    assert_eq!(network.get("/data/large", "first"), hash);

    network.wait_for_parts(&versioned);
    let before = network.asked_of_producer();
    assert_eq!(network.get(&versioned, "second"), hash);
    assert_eq!(network.asked_of_producer() - before, 0, "Interests of the second reading");
}

#[test]
fn transfers_go_on_without_the_controller_and_it_takes_up_where_it_was() {
    let mut network = Network::start();
    let (_producer, versioned, hash) = network.put("/data/large");
    assert_eq!(network.get("/data/large", "first"), hash);
    network.wait_for_parts(&versioned);

    network.controller.process.signal(Signal::SIGKILL);
    let before = network.asked_of_producer();
    assert_eq!(network.get(&versioned, "second"), hash);
    assert_eq!(network.asked_of_producer(), before, "what was set up stays");

    network.restart_controller(&versioned);
    assert_eq!(network.get(&versioned, "third"), hash);
    assert_eq!(network.asked_of_producer(), before, "and the plan is the same");
}

/// What is watched is registered as it appears, in its latest version, and withdrawn as it goes.
#[test]
fn a_watched_directory_is_registered_as_it_changes() {
    let site = Site::new();
    let mut controller = Controller::start(&site);
    let router = Router::start(&site);
    let token = site.write("token", controller.token.as_bytes());
    let url = format!("http://{}", controller.address);
    let reached = ["--controller", &url, "--controller-token-file", token.to_str().expect("UTF-8")];
    std::fs::create_dir(site.path("source")).expect("a folder");
    random_file(&site.path("source/first"), MIB, 1);
    let words = ["put", "source", "/watched", "--watch", "--json", "--repo", "repo"];
    let mut producer = site.weir(&router.unix(), &[&words[..], &reached].concat());
    producer.json_line();
    wait_until("the first is registered", || controller.registered() == ["first"]);
    let first = controller.versions();

    random_file(&site.path("source/first"), MIB, 2);
    random_file(&site.path("source/second"), MIB, 3);
    random_file(&site.path("source/small"), 1000, 4);
    wait_until("both are registered, once", || {
        controller.registered() == ["first", "second"] && controller.versions()[0] != first[0]
    });
    std::fs::rename(site.path("source/second"), site.path("source/third")).expect("renamed");
    std::fs::remove_file(site.path("source/first")).expect("removed");
    wait_until("the first is withdrawn", || controller.registered() == ["third"]);

    // What happens while it is away it learns when it is back.
    controller.process.signal(Signal::SIGKILL);
    let _ = controller.process.finish();
    random_file(&site.path("source/fourth"), MIB, 5);
    std::fs::remove_file(site.path("source/third")).expect("removed");
    loop {
        let told = producer.json_line();
        if told["withdrawn"].to_string().contains("/watched/third") {
            break;
        }
    }
    controller.process = start(&site, &controller.address, &controller.database);
    wait_until("it has learnt all", || controller.registered() == ["fourth"]);

    // A producer that comes again with nothing but its repository.
    producer.signal(Signal::SIGKILL);
    let _ = producer.finish();
    let versions = controller.versions();
    controller.withdraw_all();
    let words = ["put", "--repo", "repo", "--json"];
    let producer = site.weir(&router.unix(), &[&words[..], &reached].concat());
    producer.json_line();
    wait_until("all of it is registered again", || controller.versions() == versions);
}

/// What a transfer takes in which the controller is killed, of what it takes otherwise: shown with
/// `--ignored --nocapture`.
#[test]
#[ignore = "it measures"]
fn what_killing_the_controller_costs_a_transfer() {
    const ROUNDS: usize = 15;
    let mut network = Network::with(768 * MIB);
    let (_producer, versioned, hash) = network.put("/data/large");
    assert_eq!(network.get("/data/large", "first"), hash);
    network.wait_for_parts(&versioned);

    let time = |network: &mut Network, kills: bool| {
        let words = ["get", versioned.as_str(), "-o", "/dev/null"];
        let begun = Instant::now();
        let transfer = network.site.weir(&network.routers["edge"].unix(), &words);
        std::thread::sleep(Duration::from_millis(200));
        if kills {
            network.controller.process.signal(Signal::SIGKILL);
        }
        let _ = transfer.finish().success();
        begun.elapsed().as_secs_f64()
    };
    let mut ratios = Vec::new();
    for round in 0..ROUNDS {
        // In turn, so that neither is always the first.
        let without = (round % 2 == 0).then(|| time(&mut network, false));
        let killed = time(&mut network, true);
        network.restart_controller(&versioned);
        ratios.push(killed / without.unwrap_or_else(|| time(&mut network, false)));
    }
    ratios.sort_by(f64::total_cmp);
    let (least, median, most) = (ratios[0], ratios[ROUNDS / 2], ratios[ROUNDS - 1]);
    println!(
        "with the controller killed a transfer takes {median:.3} ({least:.3} to {most:.3}) times \
         as long"
    );
}
