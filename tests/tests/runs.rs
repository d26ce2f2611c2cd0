//! Runs of Interests between Weir programs, and with a router that does not accept runs.

use serde_json::Value;
use weir_tests::{Host, Router, random_file, sha256_hex};

fn router(host: &Host, socket: &str, runs: bool) -> Router {
    let config = format!("{socket}.toml");
    host.write(&config, format!("[faces]\nruns = {runs}\n").as_bytes());
    Router::start_at_with(host, socket, &["-c", &config])
}

/// Number of Interests that the router sent in runs over faces of `scheme`.
fn sent_in_runs(router: &Router, scheme: &str) -> u64 {
    let faces = router.weir(&["face", "list", "--json"]).success().json();
    let faces = faces.as_array().expect("faces");
    let is_meant = |face: &&Value| face["uri"].as_str().is_some_and(|uri| uri.starts_with(scheme));
    let sent = |face: &Value| face["out_run_interests"].as_u64().expect("a number");
    faces.iter().filter(is_meant).map(sent).sum()
}

/// Fetches a file over two routers. `near_runs` says whether the near one accepts runs. Returns the
/// number of Interests in runs to the far router, and to the producer on its Unix socket.
fn fetch(near_runs: bool) -> (u64, u64) {
    let host = Host::new();
    let (near, far) = (router(&host, "near", near_runs), router(&host, "far", true));
    let expected = random_file(&host.path("source"), 8 << 20, 3);
    let (_producer, name) = far.put_object(&["source", "/file"]);
    near.add_route("/file", &far.udp());
    let words = ["get", &name, "-o", "copy", "--chunk", "32", "--json"];
    host.spawn(&near.udp(), &words).finish().success();
    assert_eq!(sha256_hex(&host.path("copy")), expected);
    (sent_in_runs(&near, "udp4"), sent_in_runs(&far, "fd"))
}

#[test]
fn weir_programs_send_runs() {
    let (to_router, to_producer) = fetch(true);
    assert!(to_router > 300 && to_producer == 0, "{to_router} of 1049, {to_producer}");
}

#[test]
fn router_without_runs_gets_single_interests() {
    // With runs disabled, the near router receives and sends single Interests.
    assert_eq!(fetch(false).0, 0);
}
