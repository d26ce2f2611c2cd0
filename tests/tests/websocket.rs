//! `weir router` with WebSocket faces: NDNts, which uses the same protocol in browsers, and another
//! router.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use serde_json::Value;
use weir_tests::{
    Client, Host, Library, Process, Router, TEST_TIMEOUT, interop_is_skipped, open_page,
    random_file, sha256_hex, wait_until,
};

const SIZE: usize = 3_000_001;

/// A router that also listens for WebSockets, and the FaceUri of that port.
fn router_with_websocket(host: &Host) -> (Router, String) {
    let address = format!("127.0.0.1:{}", host.free_port());
    let router = Router::start_with(host, &["--websocket", &address]);
    (router, format!("ws://{address}"))
}

/// The faces of a router whose URI starts with this scheme.
fn faces(router: &Router, scheme: &str) -> Vec<Value> {
    let faces = router.weir_json(&["face", "list"]);
    let is_wanted = |face: &&Value| face["uri"].as_str().is_some_and(|uri| uri.starts_with(scheme));
    faces.as_array().expect("faces").iter().filter(is_wanted).cloned().collect()
}

#[test]
fn ndnts_fetches_file_over_websocket() {
    if interop_is_skipped() {
        return;
    }
    let host = Host::new();
    let (router, uri) = router_with_websocket(&host);
    let key = host.path("key");
    let key = key.to_str().expect("UTF-8");
    router.weir(&["key", "new", "/weir", "--type", "ecdsa", "--default"]).success();
    router.weir(&["key", "export", "/weir", "--output", key]).success();
    let sha256 = random_file(&host.path("source"), SIZE, 8);
    let (_producer, _) = router.put_object(&["source", "/weir/file"]);

    let browser = Client::new(&host, Library::Ndnts, &uri);
    let object = browser.run_to_json(&["get", "/weir/file", "--key", key]);
    assert_eq!(object["event"], "object", "{object}");
    assert_eq!(object["sha256"], sha256);
    assert_eq!(object["verified"], true);
    wait_until("the face of the client is gone", || faces(&router, "wsclient://").is_empty());
}

#[test]
fn ndnts_serves_over_websocket() {
    if interop_is_skipped() {
        return;
    }
    let host = Host::new();
    let (router, uri) = router_with_websocket(&host);
    let browser = Client::new(&host, Library::Ndnts, &uri);
    let producer = browser.serve(&router, &["produce", "/page", "--content", "hello"]);
    assert_eq!(faces(&router, "wsclient://").len(), 1);
    let near = Client::new(&host, Library::Ndnts, &router.unix());
    let data = near.run_to_json(&["consume", "/page/1"]);
    assert_eq!(data["content"], "hello", "{data}");
    drop(producer);
    wait_until("the face of the client is gone", || faces(&router, "wsclient://").is_empty());
}

/// What the page found, within `timeout`.
fn result_of(page: &mut Process, timeout: Duration) -> Value {
    let deadline = Instant::now() + timeout;
    loop {
        if let Some(line) = page.pending_lines().first() {
            return serde_json::from_str(line).expect("JSON");
        }
        assert!(page.is_running() && Instant::now() < deadline, "{}", page.log());
        thread::sleep(Duration::from_millis(20));
    }
}

/// A page fetches and verifies a file of `size` bytes. Closing it leaves no face.
fn browser_fetches(size: usize, timeout: Duration) {
    if interop_is_skipped() {
        return;
    }
    let host = Host::new();
    let (router, uri) = router_with_websocket(&host);
    for name in ["/weir", "/other"] {
        router.weir(&["key", "new", name, "--type", "ecdsa"]).success();
        let file = host.path(&name[1..]);
        let file = file.to_str().expect("UTF-8");
        router.weir(&["key", "export", name, "--output", file]).success();
    }
    let sha256 = random_file(&host.path("source"), size, 10);
    let (_producer, _) = router.put_object(&["source", "/weir/file", "--key", "/weir"]);
    let router_url = format!("{uri}/");
    let open = |certificate| open_page(&host, &router_url, "/weir/file", &host.path(certificate));
    let Some(mut page) = open("weir") else { return };
    let result = result_of(&mut page, timeout);
    assert_eq!((&result["event"], &result["size"]), (&"object".into(), &size.into()), "{result}");
    assert_eq!(result["sha256"], sha256);
    eprintln!("NDNts in Chromium: {size} bytes in {} s", result["seconds"]);
    assert_eq!(faces(&router, "wsclient://").len(), 1);

    page.signal(Signal::SIGUSR2);
    page.event("closed");
    wait_until("the face of the page is gone", || faces(&router, "wsclient://").is_empty());
    assert!(page.is_running(), "only the page is closed");

    let mut page = open("other").expect("the browser is installed");
    let result = result_of(&mut page, timeout);
    assert_eq!(result["event"], "error", "the key of another producer: {result}");
}

#[test]
fn browser_fetches_file_and_leaves_no_face() {
    browser_fetches(5_000_000, TEST_TIMEOUT);
}

#[test]
#[ignore = "fetches 100 MB in a browser"]
fn browser_fetches_large_file() {
    browser_fetches(100_000_000, Duration::from_secs(600));
}

#[test]
fn routers_connect_over_websocket() {
    let host = Host::new();
    let (far, uri) = router_with_websocket(&host);
    let near = Router::start_at(&host, "near.sock");
    let sha256 = random_file(&host.path("source"), SIZE, 9);
    let (_producer, _) = far.put_object(&["source", "/far/file"]);
    near.weir(&["face", "create", &uri]).success();
    assert_eq!((faces(&near, "ws://").len(), faces(&far, "wsclient://").len()), (1, 1));
    near.add_route("/far", &uri);
    near.weir(&["get", "/far/file", "-o", "copy"]).success();
    assert_eq!(sha256_hex(&host.path("copy")), sha256);
    near.weir(&["face", "destroy", &uri]).success();
    wait_until("the other end is gone", || faces(&far, "wsclient://").is_empty());
}

/// Writes a certificate for `localhost` as `certificate` and `key`, and that of its authority as
/// `ca`.
fn write_certificate(host: &Host) {
    let mut params = CertificateParams::new(Vec::new()).expect("parameters");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca_key = KeyPair::generate().expect("a key");
    let ca = CertifiedIssuer::self_signed(params, ca_key).expect("an authority");
    let key = KeyPair::generate().expect("a key");
    let params = CertificateParams::new(["localhost".to_owned()]).expect("parameters");
    let certificate = params.signed_by(&key, &ca).expect("a certificate");
    for (file, pem) in
        [("certificate", certificate.pem()), ("key", key.serialize_pem()), ("ca", ca.pem())]
    {
        fs::write(host.path(file), pem).expect("written");
    }
}

#[test]
fn routers_connect_over_tls() {
    let host = Host::new();
    write_certificate(&host);
    let file = |name: &str| host.path(name).display().to_string();
    let port = host.free_port();
    let far_config = format!(
        "[faces]\nwebsocket_tls = [\"127.0.0.1:{port}\"]\ntls_certificate = \"{}\"\n\
         tls_key = \"{}\"\n",
        file("certificate"),
        file("key")
    );
    fs::write(host.path("far.toml"), far_config).expect("written");
    fs::write(host.path("near.toml"), format!("[faces]\ntls_ca = \"{}\"\n", file("ca")))
        .expect("written");
    let far = Router::start_with(&host, &["--config", &file("far.toml")]);
    let near = Router::start_at_with(&host, "near.sock", &["--config", &file("near.toml")]);
    let stranger = Router::start_at(&host, "stranger.sock");
    let uri = format!("wss://localhost:{port}/ws/");
    let refused = stranger.weir(&["face", "create", &uri]).failure();
    assert!(refused.contains("tls_ca"), "{refused}");

    let sha256 = random_file(&host.path("source"), SIZE, 11);
    let (_producer, _) = far.put_object(&["source", "/far/file"]);
    near.weir(&["face", "create", &uri]).success();
    assert_eq!((faces(&near, &uri).len(), faces(&far, "wsclient://").len()), (1, 1));
    near.add_route("/far", &uri);
    near.weir(&["get", "/far/file", "-o", "copy"]).success();
    assert_eq!(sha256_hex(&host.path("copy")), sha256);
    near.weir(&["face", "destroy", &uri]).success();
    wait_until("the other end is gone", || faces(&far, "wsclient://").is_empty());
}
