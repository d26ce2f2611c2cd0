//! `weir router` with WebSocket faces: NDNts, which uses the same protocol in browsers, and another
//! router.

use serde_json::Value;
use weir_tests::{
    Client, Host, Library, Router, interop_is_skipped, random_file, sha256_hex, wait_until,
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
