//! The gateway: HTTP clients, a front, routers, an origin and HTTP servers.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use weir_base::Rng;
use weir_tests::{
    Host, HttpServer, Process, Router, random_file, reply, sha256_hex, wait_until, weir_binary,
};

/// A front, as its clients see it.
struct Front {
    url: String,
}

impl Front {
    fn start(host: &Host, transport: &str, arguments: &[&str]) -> (Process, Self) {
        let all = [&["gateway", "front", "--listen", "127.0.0.1:0", "--json"], arguments].concat();
        let process = host.spawn(transport, &all);
        let url = process.json_line()["urls"][0].as_str().expect("a URL").to_owned();
        (process, Self { url })
    }

    fn request(&self, method: &str, path: &str, fields: &[(&str, &str)]) -> Response {
        let mut request = ureq::http::Request::builder().method(method);
        request = request.uri(format!("{}{path}", self.url));
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        let config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .timeout_global(Some(Duration::from_secs(60)));
        let agent: ureq::Agent = config.build().into();
        let mut response = agent.run(request.body(()).expect("a request")).expect("a response");
        let mut body = Vec::new();
        let error = response.body_mut().as_reader().read_to_end(&mut body).err();
        let (parts, _) = response.into_parts();
        Response { parts, body, is_broken: error.is_some() }
    }

    fn get(&self, path: &str) -> Response {
        self.request("GET", path, &[])
    }

    /// Sends bytes as they are, and returns the first line of the answer.
    fn send_raw(&self, octets: &[u8]) -> String {
        let address = self.url.trim_start_matches("http://").trim_end_matches('/');
        let mut stream = TcpStream::connect(address).expect("a connection");
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
        stream.write_all(octets).expect("written");
        let mut answer = vec![0; 4096];
        let count = stream.read(&mut answer).unwrap_or(0);
        let text = String::from_utf8_lossy(&answer[..count]).into_owned();
        text.lines().next().unwrap_or_default().to_owned()
    }
}

struct Response {
    parts: ureq::http::response::Parts,
    body: Vec<u8>,
    /// The body ended before its end.
    is_broken: bool,
}

impl Response {
    fn status(&self) -> u16 {
        self.parts.status.as_u16()
    }

    fn field(&self, name: &str) -> &str {
        self.parts.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

fn octets(len: usize) -> Vec<u8> {
    let mut octets = vec![0; len];
    Rng::from_seed(7).fill(&mut octets);
    octets
}

/// A router, an origin in front of `server`, and a front.
fn chain(server: &HttpServer, arguments: &[&str]) -> (Router, [Process; 2], Front) {
    let host = Host::new();
    let router = Router::start(&host);
    let mapping = format!("/web={}", server.url());
    let origin = router.spawn(&["gateway", "origin", &mapping, "--json"]);
    assert_eq!(origin.json_line()["ready"], true);
    let arguments = [&["--prefix", "/web"], arguments].concat();
    let (process, front) = Front::start(&host, &router.unix(), &arguments);
    (router, [origin, process], front)
}

/// Front and origin use hICN names, and only hICN packets are between their routers.
#[test]
fn responses_cross_a_network_of_hicn() {
    const MAPPING: [&str; 2] = ["--mapping", "hicn:2001:db8:7::/48"];
    let content = octets(5_000_000);
    let server = HttpServer::of_file(content.clone(), "Cache-Control: max-age=60\r\n");
    let host = Host::new();
    let port = host.free_port();
    let config = format!("[faces]\nudp_mtu = 1500\nhicn_udp = [\"127.0.0.1:{port}\"]\n");
    host.write("far.toml", config.as_bytes());
    let far = Router::start_at_with(&host, "far", &["--config", "far.toml"]);
    let near = Router::start_at(&host, "near");
    let uri = format!("hicn+udp4://127.0.0.1:{port}");
    near.weir(&["face", "create", &uri, "--mtu", "1500"]).success();
    near.add_route("hicn:2001:db8:7::/48", &uri);
    let web = format!("/web={}", server.url());
    let origin = ["gateway", "origin", &web, "--json"];
    let origin = far.spawn(&[&origin[..], &MAPPING].concat());
    assert_eq!(origin.json_line()["ready"], true);
    let (_front, front) =
        Front::start(&host, &near.unix(), &[&["--prefix", "/web"], &MAPPING[..]].concat());
    for path in ["big.bin", "other.bin", "big.bin"] {
        let response = front.get(path);
        assert_eq!((response.status(), response.body.len()), (200, content.len()), "{path}");
        assert!(response.body == content && !response.is_broken);
    }
    let part = front.request("GET", "third.bin", &[("Range", "bytes=4000000-4000009")]);
    assert!(part.status() == 206 && part.body == content[4_000_000..4_000_010]);
    let faces = near.weir_json(&["face", "list"]);
    let face = faces.as_array().unwrap().iter().find(|face| face["uri"] == uri.as_str()).unwrap();
    assert!(face["in_data"].as_u64() > Some(2 * 5_000_000 / 1000), "{face}");
    assert_eq!(face["in_nacks"], 0, "{face}");
}

/// What `weir put` serves, HTTP clients read: content, ranges, conditions, directories, versions.
#[test]
fn browser_reads_named_files() {
    let host = Host::new();
    let router = Router::start(&host);
    host.write("site/index.html", b"<h1>index</h1>");
    host.write("site/sub/a b.txt", b"text");
    let digest = random_file(&host.path("site/big.bin"), 3_000_000, 1);
    let content = std::fs::read(host.path("site/big.bin")).unwrap();
    let site = host.path("site");
    let _put = router.put(&[site.to_str().unwrap(), "/web"]);
    let (_process, front) = Front::start(&host, &router.unix(), &["--prefix", "/web"]);

    let whole = front.get("big.bin");
    assert_eq!((whole.status(), whole.body.len()), (200, content.len()));
    assert!(whole.body == content && !whole.is_broken, "{digest}");
    assert_eq!(whole.field("content-type"), "application/octet-stream");
    assert_eq!(whole.field("accept-ranges"), "bytes");
    let head = front.request("HEAD", "big.bin", &[]);
    assert_eq!((head.field("content-length"), head.body.len()), ("3000000", 0));

    for (range, expected) in [
        ("bytes=0-0", &content[..1]),
        ("bytes=1048570-1048580", &content[1_048_570..1_048_581]),
        ("bytes=-7", &content[2_999_993..]),
        ("bytes=2999999-9223372036854775807", &content[2_999_999..]),
    ] {
        let part = front.request("GET", "big.bin", &[("Range", range)]);
        assert_eq!(part.status(), 206, "{range}");
        assert!(part.body == expected, "{range}");
    }
    let both = front.request("GET", "big.bin", &[("Range", "bytes=0-1, 5-6")]);
    assert!(both.field("content-type").starts_with("multipart/byteranges"));
    assert_eq!(both.field("content-length"), both.body.len().to_string());
    let beyond = front.request("GET", "big.bin", &[("Range", "bytes=9223372036854775808-")]);
    assert_eq!((beyond.status(), beyond.field("content-range")), (416, "bytes */3000000"));

    let same = front.request("GET", "big.bin", &[("If-None-Match", whole.field("etag"))]);
    assert_eq!((same.status(), same.body.len()), (304, 0));
    let other = front.request("GET", "big.bin", &[("If-Match", "\"other\"")]);
    assert_eq!(other.status(), 412);

    assert_eq!(front.get("").body, b"<h1>index</h1>");
    assert_eq!(front.get("sub").field("location"), "/sub/");
    let listing = String::from_utf8(front.get("sub/").body).unwrap();
    assert!(listing.contains("href=\"a%20b%2Etxt\""), "{listing}");
    assert_eq!(front.get("sub/a%20b.txt").body, b"text");
    assert_eq!(front.get("none").status(), 404);
}

/// Where the query is a part of names, directories have none in theirs.
#[test]
fn directory_is_listed_for_query() {
    let host = Host::new();
    let router = Router::start(&host);
    host.write("site/sub/text.txt", b"text");
    let site = host.path("site");
    let _put = router.put(&[site.to_str().unwrap(), "/web"]);
    let (_process, front) = Front::start(&host, &router.unix(), &["--prefix", "/web", "--query"]);
    for path in ["sub/", "sub/?sort=name"] {
        let listing = front.get(path);
        let text = String::from_utf8(listing.body).unwrap();
        assert!(text.contains("text%2Etxt"), "{path}: {text}");
    }
    assert_eq!(front.get("sub/text.txt?x").status(), 404);
}

/// Signers are those that front and origin see first. A long answer is an object of its own.
#[test]
fn uploads_reach_the_server() {
    let server = HttpServer::start(|request, stream| {
        let len = if request.target == "/long" { 100_000 } else { 10 };
        reply(stream, "200 OK", "Cache-Control: max-age=60\r\n", &octets(len));
    });
    let host = Host::new();
    let router = Router::start(&host);
    let configuration = format!(
        "[front]\nlisten = [\"127.0.0.1:0\"]\nuploads = \"/front\"\n\
         [[front.host]]\nprefix = \"/web\"\n\
         [[origin]]\nprefix = \"/web\"\nurl = \"{}\"\nmethods = [\"POST\"]\n",
        server.url()
    );
    let file = host.write("gateway.toml", configuration.as_bytes());
    let process = router.spawn(&["gateway", "run", "-c", file.to_str().unwrap(), "--json"]);
    let url = process.json_line()["urls"][0].as_str().expect("a URL").to_owned();
    let front = Front { url };
    for (path, len) in [("short", 10), ("long", 100_000)] {
        let answer = front.request("POST", path, &[]);
        assert_eq!((answer.status(), answer.body.len()), (200, len), "{path}");
        assert!(answer.body == octets(len) && !answer.is_broken, "{path}");
    }
    // More at the same time than the origin accepts: they wait for each other.
    thread::scope(|scope| {
        for number in 0..100 {
            let front = &front;
            scope.spawn(move || {
                let answer = front.request("POST", &format!("many/{number}"), &[]);
                assert_eq!(answer.status(), 200, "{number}");
            });
        }
    });
    let posts = server.requests().iter().filter(|request| request.method == "POST").count();
    assert_eq!(posts, 102, "each request is sent once");
}

/// `/v=N` is a version: it is found by its number, and never changes.
#[test]
fn version_in_url_is_immutable() {
    let host = Host::new();
    let router = Router::start(&host);
    let file = host.write("a.txt", b"text");
    let _put = router.put(&[file.to_str().unwrap(), "/web/a", "--version", "5"]);
    let (_process, front) = Front::start(&host, &router.unix(), &["--prefix", "/web"]);
    let found = front.get("a/v=5");
    assert_eq!((found.status(), &found.body[..]), (200, &b"text"[..]));
    assert!(found.field("cache-control").contains("immutable"));
    assert_eq!(front.get("a/v=6").status(), 404);
}

#[test]
fn paths_without_name_are_refused() {
    let host = Host::new();
    let router = Router::start(&host);
    let (_process, front) = Front::start(&host, &router.unix(), &[]);
    let long = "a".repeat(2100);
    for (path, status) in [
        ("/a/../b", 400),
        ("/a/%2e%2e/b", 400),
        ("/a%2Fb", 400),
        ("/a%00", 400),
        ("/a//b", 400),
        (&format!("/{long}"), 414),
        ("*", 400),
        ("/localhost/nfd/faces/list", 404),
        ("/no/producer/serves/this", 503),
    ] {
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        let answer = front.send_raw(request.as_bytes());
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{path}: {answer}");
    }
    let smuggled = "GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\
                    Transfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /x HTTP/1.1\r\n\r\n";
    let answer = front.send_raw(smuggled.as_bytes());
    assert!(!answer.starts_with("HTTP/1.1 200"), "{answer}");
    let put = front.request("DELETE", "a", &[]);
    assert_eq!((put.status(), put.field("allow")), (405, "GET, HEAD, OPTIONS"));
    let preflight = front.request("OPTIONS", "a", &[("Origin", "http://other")]);
    assert_eq!((preflight.status(), preflight.field("access-control-allow-origin")), (204, "*"));
}

/// Each request wants a few bytes of the piece after the one that is still being fetched.
#[test]
fn ranges_in_consecutive_pieces_are_fetched() {
    const LEN: usize = 12_000_000;
    let content = octets(LEN);
    let served = content.clone();
    let server = HttpServer::start(move |request, stream| {
        let (start, end) = request.range(LEN).expect("a range");
        if start > 0 {
            // A piece that reaches into this slice is incomplete until then.
            thread::sleep(Duration::from_millis(300));
        }
        let place = format!("bytes {start}-{}/{LEN}", end - 1);
        let fields = format!("ETag: \"a\"\r\nContent-Range: {place}\r\n");
        reply(stream, "206 Partial Content", &fields, &served[start..end]);
    });
    let (_router, _programs, front) = chain(&server, &[]);
    for start in (0..content.len() - 10).step_by(1_048_000) {
        let range = format!("bytes={start}-{}", start + 9);
        let part = front.request("GET", "big.bin", &[("Range", &range)]);
        assert!(part.status() == 206 && !part.is_broken, "{range}");
        assert_eq!(part.body, &content[start..start + 10], "{range}");
    }
}

/// Many clients cause one request for the head, and one for each slice.
#[test]
fn server_gets_one_request_for_many_clients() {
    let content = octets(5_000_000);
    let server = HttpServer::of_file(content.clone(), "Cache-Control: max-age=60\r\n");
    let (_router, _origin, front) = chain(&server, &[]);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let response = front.get("big.bin");
                assert!(response.status() == 200 && response.body == content);
            });
        }
    });
    // 5,000,000 bytes are three slices. The first comes with the head.
    assert_eq!(server.requests().len(), 3);
    assert!(server.requests().iter().all(|request| request.field("range").starts_with("bytes=")));
    assert_eq!(front.get("big.bin").field("cache-status"), "weir; hit; detail=memory");
    assert_eq!(server.requests().len(), 3);
}

/// Cookies and authorization are for one client, but a response is for all.
#[test]
fn server_does_not_learn_who_asks() {
    let server = HttpServer::of_file(octets(10), "Set-Cookie: id=1\r\nX-Kept: yes\r\n");
    let (_router, _origin, front) = chain(&server, &[]);
    let fields = [("Cookie", "id=7"), ("Authorization", "Basic x"), ("User-Agent", "me")];
    let response = front.request("GET", "a?q=1", &fields);
    assert_eq!((response.status(), response.field("x-kept")), (200, "yes"));
    assert_eq!(response.field("set-cookie"), "");
    let request = &server.requests()[0];
    assert_eq!((&request.method[..], &request.target[..]), ("GET", "/a"));
    for name in ["cookie", "authorization"] {
        assert_eq!(request.field(name), "", "{name}");
    }
    assert!(request.field("user-agent").starts_with("weir-gateway/"));
}

/// After its freshness, a response is validated. While the server is down, it is served stale.
#[test]
fn stale_response_is_validated_and_outlives_server() {
    let server = HttpServer::of_file(octets(1000), "Cache-Control: max-age=1\r\n");
    let (_router, _origin, front) = chain(&server, &[]);
    assert_eq!(front.get("a").body, octets(1000));
    wait_until("the response is validated", || {
        assert_eq!(front.get("a").body, octets(1000));
        server.requests().iter().any(|request| request.field("if-none-match") == "\"tag\"")
    });
    server.stop_answering();
    thread::sleep(Duration::from_millis(1500));
    let stale = front.get("a");
    assert_eq!((stale.status(), stale.body), (200, octets(1000)));
}

#[test]
fn status_and_redirects_pass() {
    let server = HttpServer::start(|request, stream| match &request.target[..] {
        "/gone" => reply(stream, "410 Gone", "Cache-Control: max-age=60\r\n", b"gone"),
        "/moved" => reply(stream, "301 Moved Permanently", "Location: /new\r\n", b""),
        "/switched" => reply(stream, "101 Switching Protocols", "", b""),
        "/range" => reply(stream, "416 Range Not Satisfiable", "", b""),
        _ => reply(stream, "404 Not Found", "", b"nothing"),
    });
    let (_router, _origin, front) = chain(&server, &[]);
    assert_eq!((front.get("gone").status(), front.get("gone").body), (410, b"gone".to_vec()));
    assert_eq!((front.get("moved").status(), front.get("moved").field("location")), (301, "new"));
    assert_eq!(front.get("none").status(), 404);
    assert_eq!((front.get("switched").status(), front.get("range").status()), (502, 502));
    let gone = server.requests().iter().filter(|request| request.target == "/gone").count();
    assert_eq!(gone, 1, "a 410 that stores may keep is requested once");
}

/// No wrong byte ever leaves as if it were right.
#[test]
fn broken_servers_never_look_right() {
    const LEN: usize = 5_000_000;
    let server = HttpServer::start(|request, stream| {
        let content = octets(LEN);
        let range = request.range(LEN);
        let start = range.map_or(0, |(start, _)| start);
        let part = |stream: &mut TcpStream, tag: &str, octets: &[u8], total: usize| {
            let (start, end) = range.unwrap_or((0, LEN));
            let place = format!("bytes {start}-{}/{total}", end - 1);
            let fields = format!("ETag: \"{tag}\"\r\nContent-Range: {place}\r\n");
            reply(stream, "206 Partial Content", &fields, octets);
        };
        let (first, end) = range.unwrap_or((0, LEN));
        match (&request.target[..], start) {
            ("/breaks", 1..) => {
                let head = "HTTP/1.1 206 Partial Content\r\nContent-Length: 1984000\r\n\
                            ETag: \"a\"\r\n\
                            Content-Range: bytes 1984000-3967999/5000000\r\n\r\nshort";
                let _ = stream.write_all(head.as_bytes());
            }
            ("/changes", 1..) => part(stream, "b", &content[first..end], LEN),
            ("/shrinks", 1..) => part(stream, "a", &content[first..end], LEN - 1),
            ("/other-place", 1..) => {
                let fields = "ETag: \"a\"\r\nContent-Range: bytes 0-9/5000000\r\n";
                reply(stream, "206 Partial Content", fields, &content[..10]);
            }
            ("/fails", 1..) => reply(stream, "500 Internal Server Error", "", b"oops"),
            _ => part(stream, "a", &content[first..end], LEN),
        }
    });
    let (_router, _origin, front) = chain(&server, &[]);
    assert_eq!(front.get("good").body, octets(LEN));
    for path in ["breaks", "changes", "shrinks", "other-place", "fails"] {
        let response = front.get(path);
        let right = octets(LEN);
        assert_eq!(response.status(), 200, "{path}");
        assert!(response.is_broken, "{path} looks complete");
        assert!(right.starts_with(&response.body), "{path}");
    }
}

/// Servers that ignore ranges, or do not state a length.
#[test]
fn servers_without_ranges_are_read() {
    const LEN: usize = 5_000_000;
    let server = HttpServer::start(|request, stream| match &request.target[..] {
        "/chunked" => {
            let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n";
            let content = octets(LEN);
            let chunk = format!("{head}{LEN:x}\r\n");
            let written = stream.write_all(chunk.as_bytes());
            let written = written.and_then(|()| stream.write_all(&content));
            let _ = written.and_then(|()| stream.write_all(b"\r\n0\r\n\r\n"));
        }
        _ => reply(
            stream,
            "200 OK",
            "Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\n",
            &octets(LEN),
        ),
    });
    let (_router, _origin, front) = chain(&server, &[]);
    for path in ["chunked", "whole"] {
        let response = front.get(path);
        assert_eq!((response.status(), response.is_broken), (200, false), "{path}");
        assert!(response.body == octets(LEN), "{path}");
    }
}

/// `weir get` reads what an HTTP server has.
#[test]
fn other_applications_read_responses() {
    let host = Host::new();
    let server = HttpServer::of_file(octets(3_000_000), "");
    let router = Router::start(&host);
    let mapping = format!("/web={}", server.url());
    let origin = router.spawn(&["gateway", "origin", &mapping, "--json"]);
    origin.json_line();
    let out = host.path("out.bin");
    router.weir(&["get", "/web/a", "-o", out.to_str().unwrap()]).success();
    let expected = host.write("expected.bin", &octets(3_000_000));
    assert_eq!(sha256_hex(&out), sha256_hex(&expected));
}

/// The front and the router restart; clients only wait.
#[test]
fn front_survives_restart_of_router() {
    let host = Host::new();
    let mut router = Router::start(&host);
    let file = host.write("a.txt", b"text");
    let _put = router.put(&[file.to_str().unwrap(), "/web/a"]);
    let (_process, front) = Front::start(&host, &router.unix(), &["--prefix", "/web"]);
    assert_eq!(front.get("a").body, b"text");
    drop(router);
    router = Router::start(&host);
    wait_until("the front reaches the new router", || front.get("a").body == b"text");
    drop(router);
}

/// A minimal Debian and a container have no CA certificates.
#[test]
fn origin_of_http_needs_no_certificates() {
    let host = Host::new();
    let router = Router::start(&host);
    let start = |scheme: &str| {
        let mapping = format!("/{scheme}={scheme}://127.0.0.1:1/");
        let mut command = host.command(weir_binary());
        command.args(["gateway", "origin", &mapping, "--router", &router.unix()]);
        command.env("SSL_CERT_FILE", "/none").env("SSL_CERT_DIR", "/none");
        Process::start(scheme, command)
    };
    start("http").line_with("ready");
    let error = start("https").finish_within(Duration::from_secs(20)).failure();
    assert!(error.contains("install ca-certificates"), "{error}");
}

/// A front with a configuration file. `front` is the content of `[front]`.
fn configured(host: &Host, router: &Router, front: &str) -> (Process, Front) {
    let text = format!(
        "[front]\nlisten = [\"127.0.0.1:0\"]\n{front}\n[[front.host]]\nprefix = \"/web\"\n"
    );
    let file = host.write("front.toml", text.as_bytes());
    let process = host
        .spawn(&router.unix(), &["gateway", "run", "-c", file.to_str().expect("a path"), "--json"]);
    let url = process.json_line()["urls"][0].as_str().expect("a URL").to_owned();
    (process, Front { url })
}

/// The first signer of an object says nothing about another object.
#[test]
fn objects_of_different_signers_are_read() {
    let (one, other) = (Host::new(), Host::new());
    let router = Router::start(&one);
    let put = |host: &Host, name: &str| {
        let file = host.write("file", name.as_bytes());
        let file = file.to_str().unwrap().to_owned();
        let process = host.spawn(&router.unix(), &["put", &file, name, "--json"]);
        process.json_line();
        process
    };
    let _puts = [put(&one, "/web/one"), put(&other, "/web/other")];
    let reader = Host::new();
    let (_process, front) = Front::start(&reader, &router.unix(), &["--prefix", "/web"]);
    for name in ["one", "other", "one"] {
        let response = front.get(name);
        let body = String::from_utf8_lossy(&response.body).into_owned();
        assert_eq!((response.status(), &body[..]), (200, &format!("/web/{name}")[..]));
    }
}

/// Routers keep earlier versions. Their metadata are gone, so HTTP/1.0 learns no length.
#[test]
fn earlier_version_of_long_object_is_read() {
    let latest = std::sync::Arc::new(std::sync::atomic::AtomicU8::new(1));
    let version = latest.clone();
    let server = HttpServer::start(move |_, stream| {
        let version = version.load(std::sync::atomic::Ordering::Relaxed);
        let fields = format!("ETag: \"{version}\"\r\nCache-Control: no-cache\r\n");
        reply(stream, "200 OK", &fields, &vec![version; 3_000_000]);
    });
    let (router, _origin, front) = chain(&server, &[]);
    assert!(front.get("file").body == [1; 3_000_000]);
    let reader = Host::new();
    let out = reader.path("out");
    let log = router.weir(&["get", "/web/file", "-o", out.to_str().unwrap()]).success();
    let (_, number) = log.errors.split_once("/v=").expect("the version");
    let number: String = number.chars().take_while(char::is_ascii_digit).collect();
    latest.store(2, std::sync::atomic::Ordering::Relaxed);
    assert!(front.get("file").body == [2; 3_000_000]);
    let earlier = front.get(&format!("file/v={number}"));
    assert_eq!((earlier.status(), earlier.is_broken), (200, false));
    let first = (earlier.body.len(), earlier.body.first());
    assert!(earlier.body == [1; 3_000_000], "{first:?}");
    let request = format!("GET /file/v={number} HTTP/1.0\r\n\r\n");
    assert!(front.send_raw(request.as_bytes()).contains(" 505 "));
    let put = front.request("PUT", &format!("file/v={number}"), &[]);
    assert_eq!(put.status(), 405);
}

/// Many clients that read slowly cannot use more memory than is configured, and all get what they
/// want in the end.
#[test]
fn memory_of_slow_readers_is_bounded() {
    const CLIENTS: usize = 16;
    const LEN: usize = 4_000_000;
    let host = Host::new();
    let router = Router::start(&host);
    let server = HttpServer::of_file(octets(LEN), "Cache-Control: max-age=600\r\n");
    let mapping = format!("/web={}", server.url());
    let origin = router.spawn(&["gateway", "origin", &mapping, "--json"]);
    origin.json_line();
    let status = host.free_port();
    let limits = format!("memory = \"8MiB\"\nstatus = \"127.0.0.1:{status}\"");
    let (_process, front) = configured(&host, &router, &limits);
    let address = front.url.trim_start_matches("http://").trim_end_matches('/');
    let mut clients = Vec::new();
    for number in 0..CLIENTS {
        let mut client = TcpStream::connect(address).unwrap();
        client.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let request = format!("GET /{number} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        client.write_all(request.as_bytes()).unwrap();
        let mut start = [0; 12];
        client.read_exact(&mut start).unwrap();
        assert_eq!(&start, b"HTTP/1.1 200");
        clients.push(client);
    }
    let text = ureq::get(format!("http://127.0.0.1:{status}/metrics")).call().unwrap();
    let text = text.into_body().read_to_string().unwrap();
    let line = text.lines().find(|line| line.starts_with("weir_gateway_memory_bytes "));
    let used: u64 = line.unwrap().rsplit(' ').next().unwrap().parse().unwrap();
    // Each run may receive a little ahead of its piece.
    assert!(used <= (8 << 20) + CLIENTS as u64 * (512 << 10), "{used}");
    for mut client in clients {
        let mut rest = Vec::new();
        client.read_to_end(&mut rest).unwrap();
        assert!(rest.ends_with(&octets(LEN)), "{} bytes", rest.len());
    }
}

/// A client that sends nothing, or only the beginning of HTTP/2, does not stay; one that opens too
/// many connections hears why.
#[test]
fn silent_and_greedy_clients_are_refused() {
    let host = Host::new();
    let router = Router::start(&host);
    let limits = "client_timeout = \"2s\"\nconnections_per_address_max = 3";
    let (_process, front) = configured(&host, &router, limits);
    let address = front.url.trim_start_matches("http://").trim_end_matches('/');
    let connect = |start: &[u8]| {
        let mut client = TcpStream::connect(address).unwrap();
        client.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        client.write_all(start).unwrap();
        client
    };
    let silent = [connect(b""), connect(b"PRI * HTTP"), connect(b"GET / HT")];
    let mut refused = connect(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    let mut answer = String::new();
    refused.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 429 "), "{answer}");
    for mut client in silent {
        // What it gets, if anything, is an error, and then the end.
        let mut rest = Vec::new();
        client.read_to_end(&mut rest).unwrap();
    }
}

/// The commands of "Put your nginx behind names in five minutes", one string a code block.
fn guide_commands() -> Vec<String> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/gateway.md");
    let page = std::fs::read_to_string(path).expect("the page");
    let (_, section) = page.split_once("## Put your nginx").expect("the guide");
    let (section, _) = section.split_once("\n## ").expect("its end");
    let blocks = section.split("   ```").skip(1).step_by(2);
    let unindented = |block: &str| {
        let lines = block.lines().skip(1).map(|line| line.strip_prefix("   ").unwrap_or(line));
        lines.collect::<Vec<_>>().join("\n")
    };
    blocks.map(unindented).collect()
}

/// The guide works as printed, with other ports and folders. After nginx is stopped, and even after
/// the origin, the page is still read.
#[test]
fn nginx_stands_behind_names() {
    if !std::path::Path::new("/usr/sbin/nginx").exists() {
        eprintln!("not tested: install nginx-light");
        return;
    }
    let host = Host::new();
    let (server, front) = (host.free_port().to_string(), host.free_port().to_string());
    let weir = weir_binary().to_str().expect("a path");
    let adapt = |commands: &str| {
        let commands = commands.replace("8081", &server).replace("8080", &front);
        let site = host.path("site");
        let commands = commands.replace("/tmp/site", site.to_str().expect("a path"));
        let commands = commands.replace("\nnginx", "\nexec nginx");
        let router = "weir router --unix router.sock --udp none --tcp none";
        commands.replace("weir router", router).replace("weir ", &format!("exec {weir} "))
    };
    let transport = format!("unix://{}", host.path("router.sock").display());
    let start = |commands: &str| {
        let mut command = host.command(std::path::Path::new("/bin/sh"));
        command.args(["-c", &adapt(commands)]).env("NDN_CLIENT_TRANSPORT", &transport);
        command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        Process::start(commands, command)
    };
    let commands = guide_commands();
    let [router, nginx, gateway, curl] = &commands[..] else { panic!("{commands:?}") };
    let router = start(router);
    router.line_with("ready");
    let nginx = start(nginx);
    let (origin, front) = gateway.split_once('\n').expect("two commands");
    let origin = start(origin.trim_end_matches(" &"));
    origin.line_with("ready");
    let front = start(front);
    front.line_with("ready");
    let read = || start(curl).finish_within(Duration::from_secs(60)).success().output;
    wait_until("nginx serves the page", || read().contains("<h1>By name</h1>"));
    nginx.stop();
    assert!(read().contains("<h1>By name</h1>"));
    origin.stop();
    assert!(read().contains("<h1>By name</h1>"));
    drop((front, router));
}
