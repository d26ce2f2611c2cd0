//! `weir router` between applications written with python-ndn and NDNts.

use std::thread;
use std::time::Duration;

use serde_json::Value;
use weir_tests::{Client, Host, Library, Process, Router, interop_is_skipped};

const NACK_CONGESTION: u64 = 50;
const NACK_NO_ROUTE: u64 = 150;

#[derive(Clone, Copy)]
enum Transport {
    Unix,
    Tcp,
    Udp,
}

impl Transport {
    fn of(self, router: &Router) -> String {
        match self {
            Self::Unix => router.unix(),
            Self::Tcp => router.tcp(),
            Self::Udp => router.udp(),
        }
    }
}

/// The Interests that a producer has received since the last call.
fn interests(producer: &Process) -> Vec<Value> {
    // The answer may arrive before the producer has printed the line about the Interest.
    thread::sleep(Duration::from_millis(100));
    producer
        .pending_lines()
        .iter()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|value| value["event"] == "interest")
        .collect()
}

/// Runs a producer of one library and a consumer of another over one router.
fn exchange(transport: Transport, producing: Library, consuming: Library) {
    if interop_is_skipped() {
        return;
    }
    let router = Router::on_new_host();
    let producer_side = Client::new(&router.host, producing, &transport.of(&router));
    let consumer = Client::new(&router.host, consuming, &transport.of(&router));

    exact_and_prefix(&producer_side, &consumer, &router);
    freshness(&producer_side, &consumer, &router);
    signed_interest(&producer_side, &consumer, &router);
    nacks(&producer_side, &consumer, &router);
}

fn exact_and_prefix(producer_side: &Client<'_>, consumer: &Client<'_>, router: &Router) {
    let producer = producer_side.serve(router, &["produce", "/exact", "--content", "hello, world"]);
    let data = consumer.run_to_json(&["consume", "/exact/a"]);
    assert_eq!(data["event"], "data");
    assert_eq!(data["name"], "/exact/a");
    assert_eq!(data["content"], "hello, world");
    assert_eq!(data["signatureOk"], true);
    assert_eq!(interests(&producer).len(), 1);

    let arguments = ["produce", "/longer", "--content", "deep", "--suffix", "/x/y"];
    let producer = producer_side.serve(router, &arguments);
    let data = consumer.run_to_json(&["consume", "/longer/a", "--can-be-prefix"]);
    assert_eq!(data["name"], "/longer/a/x/y");
    let seen = interests(&producer);
    assert_eq!(seen.len(), 1);
    assert_eq!(seen[0]["canBePrefix"], true);
    assert_eq!(seen[0]["mustBeFresh"], false);
    let exact = consumer.run_to_json(&["consume", "/longer/a", "--lifetime", "300"]);
    assert_eq!(exact["event"], "timeout", "a longer name must not answer an exact Interest");
}

fn freshness(producer_side: &Client<'_>, consumer: &Client<'_>, router: &Router) {
    let arguments = ["produce", "/fresh", "--content", "news", "--freshness", "1500"];
    let producer = producer_side.serve(router, &arguments);
    let stale_allowed = ["consume", "/fresh/a"];
    let fresh_only = ["consume", "/fresh/a", "--must-be-fresh"];

    assert_eq!(consumer.run_to_json(&fresh_only)["freshnessMs"], 1500);
    let seen = interests(&producer);
    assert_eq!(seen.len(), 1);
    assert_eq!(seen[0]["mustBeFresh"], true);

    thread::sleep(Duration::from_millis(1600));
    assert_eq!(consumer.run_to_json(&stale_allowed)["content"], "news");
    assert_eq!(interests(&producer).len(), 0, "stale Data may be answered from the store");
    assert_eq!(consumer.run_to_json(&fresh_only)["content"], "news");
    assert_eq!(interests(&producer).len(), 1, "stale Data must not answer MustBeFresh");
}

fn signed_interest(producer_side: &Client<'_>, consumer: &Client<'_>, router: &Router) {
    let producer = producer_side.serve(router, &["produce", "/signed", "--content", "done"]);
    let data = consumer.run_to_json(&["consume", "/signed/do", "--signed", "--parameters", "abc"]);
    assert_eq!(data["content"], "done");
    let seen = interests(&producer);
    assert_eq!(seen.len(), 1);
    assert_eq!(seen[0]["parametersHex"], "616263");
    assert_eq!(seen[0]["signatureOk"], true);
}

fn nacks(producer_side: &Client<'_>, consumer: &Client<'_>, router: &Router) {
    let answer = consumer.run_to_json(&["consume", "/missing/file"]);
    assert_eq!(answer["event"], "nack", "{answer}");
    assert_eq!(answer["reason"], NACK_NO_ROUTE);

    let reason = NACK_CONGESTION.to_string();
    let _producer = producer_side.serve(router, &["produce", "/busy", "--nack", &reason]);
    let busy = consumer.run_to_json(&["consume", "/busy/a"]);
    assert_eq!(busy["event"], "nack", "{busy}");
    assert_eq!(busy["reason"], NACK_CONGESTION);
}

#[test]
fn python_ndn_serves_ndnts_over_unix() {
    exchange(Transport::Unix, Library::PythonNdn, Library::Ndnts);
}

#[test]
fn ndnts_serves_python_ndn_over_unix() {
    exchange(Transport::Unix, Library::Ndnts, Library::PythonNdn);
}

#[test]
fn python_ndn_serves_ndnts_over_tcp() {
    exchange(Transport::Tcp, Library::PythonNdn, Library::Ndnts);
}

#[test]
fn ndnts_serves_python_ndn_over_tcp() {
    exchange(Transport::Tcp, Library::Ndnts, Library::PythonNdn);
}

#[test]
fn python_ndn_serves_ndnts_over_udp() {
    exchange(Transport::Udp, Library::PythonNdn, Library::Ndnts);
}

#[test]
fn ndnts_serves_python_ndn_over_udp() {
    exchange(Transport::Udp, Library::Ndnts, Library::PythonNdn);
}

#[test]
fn remote_ndnts_registers_with_a_trusted_key() {
    if interop_is_skipped() {
        return;
    }
    let host = Host::new();
    let files: Vec<_> = ["trusted", "its-key", "unknown", "other-key"]
        .map(|name| host.path(name).to_str().expect("UTF-8").to_owned())
        .into();
    let anyone = Client::new(&host, Library::Ndnts, "unix:///dev/null");
    anyone.run_to_json(&["key", "/lab", "--certificate", &files[0], "--private", &files[1]]);
    anyone.run_to_json(&["key", "/elsewhere", "--certificate", &files[2], "--private", &files[3]]);
    let config = format!("[management]\nlocalhop = true\ntrust_anchors = [{:?}]\n", files[0]);
    host.write("weir.toml", config.as_bytes());
    let router = Router::start_with(&host, &["--config", "weir.toml"]);
    let afar = Client::new(&host, Library::Ndnts, &router.udp());
    let base = ["produce", "/lab/data", "--content", "from afar"];

    let refused = [&base[..], &["--certificate", &files[2], "--private", &files[3]]].concat();
    let _ = afar.start(&refused).finish().failure();

    let accepted = [&base[..], &["--certificate", &files[0], "--private", &files[1]]].concat();
    let producer = afar.start(&accepted);
    assert_eq!(producer.event("ready")["registered"], true);
    let near = Client::new(&host, Library::Ndnts, &router.unix());
    let data = near.run_to_json(&["consume", "/lab/data/1"]);
    assert_eq!(data["content"], "from afar", "{data}");
}
