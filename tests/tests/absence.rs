//! Missing names: consumers get a clear error quickly. Also next hops that do not respond.

use std::fs;
use std::net::UdpSocket;
use std::time::{Duration, Instant};

use weir_tests::{Host, Process, Router, random_file, sha256_hex};

/// Shorter than the first retry, which follows after 1 s. Five attempts would take 2.5 s.
const FAST_FAILURE_LIMIT: Duration = Duration::from_millis(900);

/// A folder with one file, `/folder/there`.
fn put(router: &Router) -> Process {
    fs::create_dir(router.host.path("source")).expect("a folder");
    router.host.write("source/there", b"there");
    let (process, _) = router.put(&["source", "/folder"]);
    process
}

/// The error of a `weir get` that must fail within [`FAST_FAILURE_LIMIT`].
fn expect_fast_failure(router: &Router, arguments: &[&str]) -> String {
    let begin = Instant::now();
    let words = [&["get"], arguments, &["-o", "copy"]].concat();
    let message = router.weir(&words).failure();
    assert!(begin.elapsed() < FAST_FAILURE_LIMIT, "{:?}: {message}", begin.elapsed());
    message
}

#[test]
fn producer_reports_missing_names() {
    let host = Host::new();
    let (near, far) = (Router::start_at(&host, "near"), Router::start_at(&host, "far"));
    let producer = put(&far);
    near.add_route("/folder", &far.udp());
    near.weir(&["get", "/folder/there", "-o", "copy"]).success();
    for arguments in [&["/folder/none"][..], &["/folder/there/none"], &["/none", "--version", "5"]]
    {
        let name = arguments[0];
        let is_served = name.starts_with("/folder");
        let message = expect_fast_failure(&near, arguments);
        assert_eq!(message.contains("the producer has no "), is_served, "{message}");
    }
    let message = expect_fast_failure(&near, &["/folder/there", "--version", "5"]);
    assert!(message.contains("the producer has no "), "{message}");
    drop(producer);
}

#[test]
fn routers_cache_absence() {
    let host = Host::new();
    let (near, far) = (Router::start_at(&host, "near"), Router::start_at(&host, "far"));
    let producer = put(&far);
    near.add_route("/folder", &far.udp());
    let (begin, mut tries) = (Instant::now(), 0_u64);
    let received = |router: &Router| {
        let faces = router.weir_json(&["face", "list"]);
        let faces = faces.as_array().expect("faces").iter();
        let mut to_far = faces.filter(|face| face["uri"] == far.udp().as_str());
        to_far.next().expect("the route's face")["in_data"].as_u64().expect("a number")
    };
    let before = received(&near);
    while tries < 4 {
        let _ = expect_fast_failure(&near, &["/folder/none"]);
        tries += 1;
    }
    // The producer gets at most one Interest per second.
    let asked = received(&near) - before;
    assert!(asked <= 1 + begin.elapsed().as_secs(), "{asked} in {:?}", begin.elapsed());
    drop(producer);
}

#[test]
fn each_reason_for_absence_has_its_message() {
    let host = Host::new();
    let (near, far) = (Router::start_at(&host, "near"), Router::start_at(&host, "far"));
    let message = expect_fast_failure(&near, &["/folder/there"]);
    assert!(message.contains("the router has no route"), "{message}");
    // A Nack from the neighbour may mean that its producer is restarting.
    near.add_route("/folder", &far.udp());
    let message = near.weir(&["get", "/folder/there", "-o", "copy"]).failure();
    assert!(message.contains("the next router has no route"), "{message}");
}

#[test]
fn dead_next_hop_costs_one_timeout() {
    let host = Host::new();
    let (near, far) = (Router::start_at(&host, "near"), Router::start_at(&host, "far"));
    let expected = random_file(&host.path("source"), 400_000, 5);
    let (producer, _) = far.put(&["source", "/file"]);
    // It accepts all packets and never answers.
    let dead = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let dead = format!("udp4://{}", dead.local_addr().expect("an address"));
    near.weir(&["route", "add", "/file", &dead, "--cost", "0"]).success();
    near.weir(&["route", "add", "/file", &far.udp(), "--cost", "10"]).success();
    let begin = Instant::now();
    near.weir(&["get", "/file", "-o", "copy"]).success();
    assert_eq!(sha256_hex(&host.path("copy")), expected);
    // Regression: this took 171 s and failed.
    assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
    drop(producer);
}
