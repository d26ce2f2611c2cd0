//! `weir get` of files with segments missing in a router's store while the producer is unreachable.

use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::path::Path;
use std::thread;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::Value;
use weir_tests::{Finished, Host, Process, Router, random_file, sha256_hex, wait_until};

const SEGMENT_BYTES: usize = 1000;
const SEGMENTS: u64 = 500;
const SIZE: usize = SEGMENTS as usize * SEGMENT_BYTES - 300;
/// The segments erased from the store, 100 of 500.
const HOLES: [Range<u64>; 3] = [40..120, 200..210, 490..500];
/// Gives up after 3 s without progress.
const SHORT_TIMEOUTS: [&str; 4] = ["--retries", "3", "--lifetime", "1000ms"];

/// A router with most segments of a file in its store, and another router with the producer.
struct Network {
    host: Host,
    edge: Router,
    origin: Router,
    producer: Process,
    /// SHA-256 of the file.
    expected: String,
    /// The name of the file with its version.
    name: String,
}

impl Network {
    fn new() -> Self {
        let host = Host::new();
        let [edge, origin] = ["edge", "origin"].map(|socket| Router::start_at(&host, socket));
        edge.add_route("/file", &origin.udp());
        let expected = random_file(&host.path("source"), SIZE, 5);
        let size = SEGMENT_BYTES.to_string();
        let (producer, name) = origin.put_object(&["source", "/file", "--segment-size", &size]);
        fs::create_dir(host.path("out")).expect("folder");
        let network = Self { host, edge, origin, producer, expected, name };
        network.get("out/all", &[]).success();
        HOLES.into_iter().flatten().for_each(|segment| network.erase(segment));
        network
    }

    fn erase(&self, segment: u64) {
        let name = format!("{}/seg={segment}", self.name);
        self.edge.weir(&["cs", "erase", &name]).success();
    }

    fn get(&self, to: &str, options: &[&str]) -> Finished {
        let mut words = vec!["get", &self.name, "-o", to, "--json"];
        words.extend(options);
        self.edge.weir(&words)
    }

    /// Interests that the edge router has sent to the other router.
    fn sent_upstream(&self) -> u64 {
        let faces: Value = self.edge.weir_json(&["status", "faces"]);
        let faces = faces["faces"].as_array().expect("faces").clone();
        let upstream = faces.iter().find(|face| face["uri"] == self.origin.udp());
        upstream.expect("face")["out_interests"].as_u64().expect("counter")
    }
}

/// Stops a router with SIGSTOP, and waits until all its threads are stopped.
fn stop(router: &mut Router) {
    router.process.signal(Signal::SIGSTOP);
    let folder = format!("/proc/{}/task", router.process.id());
    let is_stopped = |thread: std::io::Result<fs::DirEntry>| {
        let stat = fs::read_to_string(thread.expect("a thread").path().join("stat"));
        // The state follows the program name in parentheses.
        stat.expect("a state").rsplit(") ").next().is_some_and(|rest| rest.starts_with('T'))
    };
    wait_until("the router has stopped", || {
        fs::read_dir(&folder).expect("threads").all(is_stopped)
    });
}

fn missing_text(name: &str, why: &str) -> String {
    format!(
        "400 of 500 segments of {name} arrived, 100 are missing ({why}): 40-119, 200-209, 490-499"
    )
}

#[test]
fn file_ends_with_report_and_is_completed_later() {
    let mut network = Network::new();
    stop(&mut network.origin);
    let text = missing_text(&network.name, "no answer");
    let failed = network.get("out/file", &SHORT_TIMEOUTS);
    assert_eq!(failed.status.code(), Some(8));
    assert!(failed.errors.contains(&text), "{}", failed.errors);
    assert!(!network.host.path("out/file").exists());

    // The received segments were kept: only the missing ones are requested, again without success.
    let failed = network.get("out/file", &SHORT_TIMEOUTS);
    assert_eq!(failed.status.code(), Some(8));
    assert!(failed.errors.contains(&text), "{}", failed.errors);

    network.origin.process.signal(Signal::SIGCONT);
    let before = network.sent_upstream();
    let report = network.get("out/file", &[]).success().json();
    assert_eq!(sha256_hex(&network.host.path("out/file")), network.expected);
    assert_eq!((&report["segments"], &report["resumed_segments"]), (&100.into(), &400.into()));
    // Each missing segment is requested once, or twice if the first Interest was still pending.
    let sent = network.sent_upstream() - before;
    assert!((100..=210).contains(&sent), "{sent} Interests for 100 segments");
}

#[test]
fn ends_where_the_producer_has_no_route() {
    let mut network = Network::new();
    network.producer.signal(Signal::SIGINT);
    while network.producer.is_running() {
        thread::sleep(Duration::from_millis(10));
    }
    // Erase the store of the other router, which would answer.
    network.origin.weir(&["cs", "erase", "/file"]).success();
    let failed = network.get("out/file", &[]);
    assert_eq!(failed.status.code(), Some(8));
    let text = missing_text(&network.name, "no route");
    assert!(failed.errors.contains(&text), "{}", failed.errors);
}

#[test]
fn stream_ends_before_the_hole() {
    let mut network = Network::new();
    stop(&mut network.origin);
    let weir = weir_tests::weir_binary().display();
    let line =
        format!("{weir} get {} -o - {} > out/stream", network.name, SHORT_TIMEOUTS.join(" "));
    let mut command = network.host.command(Path::new("sh"));
    command.args(["-c", &line]).env("NDN_CLIENT_TRANSPORT", network.edge.unix());
    let failed = Process::start("weir get -o -", command).finish();
    assert_eq!(failed.status.code(), Some(8));
    assert!(failed.errors.contains("The output ends before segment 40."), "{}", failed.errors);
    let (got, source) = (network.host.path("out/stream"), network.host.path("source"));
    let source = fs::read(source).expect("source");
    assert!(fs::read(got).expect("stream") == source[..40 * SEGMENT_BYTES]);
}

#[test]
fn two_routers_fetch_everything_but_the_hole() {
    let mut network = Network::new();
    stop(&mut network.origin);
    let mut options = SHORT_TIMEOUTS.to_vec();
    let (unix, udp) = (network.edge.unix(), network.edge.udp());
    options.extend(["--router", &unix, "--router", &udp]);
    let failed = network.get("out/file", &options);
    assert_eq!(failed.status.code(), Some(8));
    assert!(failed.errors.contains("400 of 500 segments"), "{}", failed.errors);
}

#[test]
fn folder_gets_all_files_but_the_one_with_a_hole() {
    let host = Host::new();
    let [edge, origin] = ["edge", "origin"].map(|socket| Router::start_at(&host, socket));
    edge.add_route("/d", &origin.udp());
    fs::create_dir(host.path("d")).expect("folder");
    let mut expected = BTreeMap::new();
    for (seed, name) in (0..).zip(["a", "b", "c", "e"]) {
        expected.insert(name, random_file(&host.path("d").join(name), 100_000, seed));
    }
    let (_producer, _) = origin.put(&["d", "/d", "--segment-size", "1000B"]);
    edge.weir(&["get", "/d", "-o", "all"]).success();
    let report = edge.weir_json(&["get", "/d/b", "-o", "b"]);
    let versioned = report["versioned"].as_str().expect("a name");
    edge.weir(&["cs", "erase", &format!("{versioned}/seg=7")]).success();
    let mut origin = origin;
    stop(&mut origin);
    let mut words = vec!["get", "/d", "-o", "out"];
    words.extend(SHORT_TIMEOUTS);
    let failed = edge.weir(&words);
    assert_eq!(failed.status.code(), Some(8));
    assert!(
        failed.errors.contains("99 of 100 segments (99000 of 100000 bytes) of /d/b/"),
        "{}",
        failed.errors
    );
    for (name, sum) in expected.into_iter().filter(|(name, _)| *name != "b") {
        assert_eq!(sha256_hex(&host.path("out").join(name)), sum, "{name}");
    }
}
