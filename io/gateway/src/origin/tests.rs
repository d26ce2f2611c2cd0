mod fixture;
mod hicn;
mod live;
mod streams;
mod uploads;

use std::io::Read as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use weir_base::units::Time;

use self::fixture::{Network, Reply, Server, content, file, response, until_stale};

/// Three slices.
const LARGE: usize = 5_000_000;
const DATED: &str = "last-modified: Mon, 01 Jan 2024 00:00:00 GMT\r\n";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn serves_small_files() {
    let server = Server::start(|request| {
        let fields = "content-type: text/plain\r\nset-cookie: a=b\r\nx-own: 1\r\n";
        file(request, "\"v1\"", fields, b"hello")
    });
    let network = Network::start(server.address).await;
    let found = network.get("/a%20b/32=%3Fx=1").await;
    assert_eq!((found.status(), &found.text()[..]), (200, "hello"));
    assert_eq!((found.field("etag"), found.field("x-own")), (Some("\"v1\""), Some("1")));
    assert_eq!((found.field("set-cookie"), found.field("content-length")), (None, None));
    let digest = "sha-256=:LPJNul+wow4m6DsqxbninhsWHlwfp0JecwQzYpOLmCQ=:";
    assert_eq!(found.field("repr-digest"), Some(digest));
    let requests = server.requests();
    assert_eq!(requests.len(), 1);
    assert_eq!(requests[0].line, "GET /a%20b?x=1 HTTP/1.1");
    for (name, value) in [
        ("via", Some("1.1 weir-gateway")),
        ("accept", Some("*/*")),
        ("accept-encoding", Some("identity")),
        ("range", Some("bytes=0-1983999")),
        ("cookie", None),
    ] {
        assert_eq!(requests[0].field(name), value, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fetches_large_files_slice_by_slice() {
    let body = Arc::new(content(LARGE, 1));
    let served = body.clone();
    let server = Server::start(move |request| file(request, "\"v1\"", DATED, &served));
    let network = Network::start(server.address).await;
    let found = network.get("/large").await;
    assert_eq!(found.body.unwrap(), *body);
    let requests = server.requests();
    let ranges: Vec<_> = requests.iter().map(|request| request.range().unwrap().0).collect();
    assert_eq!(ranges, [0, 1_984_000, 3_968_000]);
    assert!(requests[1..].iter().all(|request| request.field("if-match") == Some("\"v1\"")));
    assert_eq!(network.origin.stats().slices, 3);
}

/// The name of a version suffices to read it, from any byte on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn version_is_read_by_its_name() {
    let body = Arc::new(content(LARGE, 1));
    let served = body.clone();
    let server = Server::start(move |request| file(request, "\"v1\"", DATED, &served));
    let network = Network::start(server.address).await;
    let versioned = network.get("/large").await.versioned;
    for start in [0, 1, 8000, 1_048_000, 2_500_000] {
        let (consumer, versioned) = (network.consumer.clone(), versioned.clone());
        let read = move || {
            let mut reader = consumer.fetch_range(&versioned, start..u64::MAX).unwrap();
            let mut read = Vec::new();
            reader.read_to_end(&mut read).map(|_| read).map_err(|error| error.to_string())
        };
        let read = tokio::task::spawn_blocking(read).await.unwrap();
        assert!(read.as_deref() == Ok(&body[start as usize..]), "{start}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn asks_server_as_freshness_demands() {
    let server = Server::start(|request| match request.line.contains("/fresh") {
        true => file(request, "\"v1\"", "cache-control: max-age=60\r\n", b"fresh"),
        false => file(request, "\"v1\"", "cache-control: no-cache\r\n", b"checked"),
    });
    let network = Network::start(server.address).await;
    for (name, requests, not_modified) in [("/fresh", 1, 0), ("/checked", 3, 1)] {
        let first = network.get(name).await;
        until_stale().await;
        let second = network.get(name).await;
        assert_eq!((&first.versioned, first.text()), (&second.versioned, second.text()), "{name}");
        assert_eq!(server.requests().len(), requests, "{name}");
        assert_eq!(network.origin.stats().not_modified, not_modified, "{name}");
    }
}

/// Bursts must not become bursts at the server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_consumers_share_a_request() {
    let server = Server::start(|request| {
        std::thread::sleep(std::time::Duration::from_millis(100));
        file(request, "\"v1\"", "cache-control: max-age=60\r\n", b"x")
    });
    let network = Network::start(server.address).await;
    let gets = (0..20).map(|_| network.get("/a"));
    let found = futures_util::future::join_all(gets).await;
    assert!(found.iter().all(|it| it.text() == "x"));
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_where_server_ignores_ranges() {
    let body = Arc::new(content(LARGE, 2));
    let served = body.clone();
    let server =
        Server::start(move |_| Reply::Close(response("200 OK", "etag: \"v1\"\r\n", &served)));
    let network = Network::start(server.address).await;
    let found = network.get("/large").await;
    assert_eq!(found.body.unwrap(), *body);
    assert_eq!(server.requests().len(), 1);
    // The end first: what precedes it is received, but not published.
    let found = network.get_from("/large-2", 4_500_000).await.unwrap();
    assert_eq!(found.body.unwrap(), body[4_500_000..]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn content_without_length_or_validator_has_a_digest() {
    let server = Server::fixed(
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n\
         5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n",
    );
    let network = Network::start(server.address).await;
    let found = network.get("/a").await;
    assert_eq!(found.text(), "hello world");
    let etag = found.field("etag").unwrap().to_owned();
    until_stale().await;
    let again = network.get("/a").await;
    assert_eq!((again.field("etag"), &again.versioned), (Some(&etag[..]), &found.versioned));
}

/// The same response makes the same packets at every gateway.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gateways_agree_on_versions() {
    let server = Server::start(|request| file(request, "\"v1\"", DATED, b"hello"));
    let one = Network::start(server.address).await.get("/a").await;
    let two = Network::start(server.address).await.get("/a").await;
    assert_eq!(one.versioned, two.versioned);
    let version = one.versioned.as_view().last().unwrap().as_version().unwrap();
    assert_eq!(version >> 24, 1_704_067_200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn passes_on_other_statuses() {
    let server = Server::start(|request| {
        Reply::Close(match request.line.split(' ').nth(1).unwrap() {
            "/missing" => response("404 Not Found", "cache-control: max-age=60\r\n", b"none"),
            "/moved/x" => response("301 Moved Permanently", "location: /moved/y?z\r\n", b""),
            _ => response("204 No Content", "", b""),
        })
    });
    let network = Network::start(server.address).await;
    let found = network.get("/missing").await;
    assert_eq!((found.status(), &found.text()[..]), (404, "none"));
    assert_eq!(found.head.lifetime_ms, 60_000);
    let found = network.get("/moved/x").await;
    assert_eq!((found.status(), found.field("location")), (301, Some("y?z")));
    let found = network.get("/empty").await;
    assert_eq!((found.status(), found.body.unwrap().len()), (204, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn explains_failures_of_server() {
    let server = Server::start(|request| {
        let huge = format!("x-huge: {}\r\n", "h".repeat(6000));
        let many: String = (0..2000).map(|at| format!("x-{at}: y\r\n")).collect();
        match request.line.split(' ').nth(1).unwrap() {
            "/silent" => Reply::Hang(vec![]),
            "/trickle" => Reply::Hang(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nabc".into()),
            "/short" => Reply::Close(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nabc".into()),
            "/chunk" => {
                Reply::Close(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhe".into())
            }
            "/garbage" => Reply::Close(b"\0\0\0\0".into()),
            "/huge" => Reply::Close(response("200 OK", &huge, b"x")),
            "/many" => Reply::Close(response("200 OK", &many, b"x")),
            "/long" => {
                Reply::Close(b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\n\r\n".into())
            }
            "/vast" => {
                let length = format!("content-length: {}\r\n", u64::MAX - 1);
                Reply::Close(format!("HTTP/1.1 200 OK\r\netag: \"v\"\r\n{length}\r\n").into())
            }
            "/304" => Reply::Close(response("304 Not Modified", "", b"")),
            _ => Reply::Close(response("206 Partial Content", "", b"x")),
        }
    });
    let network = Network::start_with(server.address, |config| {
        config.timeout = Time { ns: 300_000_000 };
    })
    .await;
    for (name, status) in [
        ("/silent", 504),
        ("/trickle", 504),
        ("/short", 502),
        ("/chunk", 502),
        ("/garbage", 502),
        ("/huge", 502),
        ("/many", 502),
        ("/long", 502),
        ("/vast", 502),
        ("/304", 502),
        ("/206", 502),
    ] {
        let found = network.get(name).await;
        assert_eq!(found.status(), status, "{name}: {found:?}");
        assert_eq!(found.head.lifetime_ms, 0, "{name}");
        assert!(found.text().len() > 40, "{name}: {}", found.text());
    }
    let nowhere = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    assert_eq!(Network::start(nowhere).await.get("/a").await.status(), 502);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn serves_stale_while_server_is_down() {
    let is_down = Arc::new(AtomicBool::new(false));
    let state = is_down.clone();
    let server = Server::start(move |request| match state.load(Ordering::Relaxed) {
        true => Reply::Close(response("503 Service Unavailable", "", b"down")),
        false if request.line.contains("/strict") => {
            file(request, "\"v1\"", "cache-control: no-cache\r\n", b"up")
        }
        false => file(request, "\"v1\"", "", b"up"),
    });
    let network = Network::start(server.address).await;
    assert_eq!(network.get("/a").await.text(), "up");
    assert_eq!(network.get("/strict").await.text(), "up");
    is_down.store(true, Ordering::Relaxed);
    until_stale().await;
    let found = network.get("/a").await;
    assert_eq!((found.status(), &found.text()[..]), (200, "up"));
    assert_eq!(network.origin.stats().stale, 1);
    let found = network.get("/strict").await;
    assert_eq!((found.status(), &found.text()[..]), (503, "down"));
}

/// A server with several versions of a file, which differ in all slices.
fn versions(etag: impl Fn(u32) -> String + Send + Sync + 'static) -> (Server, Arc<AtomicU32>) {
    let at = Arc::new(AtomicU32::new(1));
    let current = at.clone();
    let server = Server::start(move |request| {
        let version = current.load(Ordering::Relaxed);
        file(request, &etag(version), "", &content(LARGE, version))
    });
    (server, at)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn never_mixes_versions() {
    let (server, version) = versions(|version| format!("\"v{version}\""));
    let network = Network::start(server.address).await;
    // Only the first slice of version 1 is received before it is replaced.
    let consumer = network.consumer.clone();
    let begin = tokio::task::spawn_blocking(move || {
        let mut reader = consumer.fetch(&"/p/a".parse().unwrap()).unwrap();
        reader.metadata().unwrap().clone()
    });
    let old = begin.await.unwrap();
    version.store(2, Ordering::Relaxed);
    let consumer = network.consumer.clone();
    let rest = tokio::task::spawn_blocking(move || {
        let mut reader = consumer.fetch_found(&old, 4_000_000..u64::MAX).unwrap();
        std::io::Read::read_to_end(&mut reader, &mut Vec::new())
    });
    assert!(rest.await.unwrap().is_err());
    until_stale().await;
    assert_eq!(network.get("/a").await.body.unwrap(), content(LARGE, 2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn notices_content_that_changes_under_one_validator() {
    let (server, version) = versions(|_| "\"same\"".into());
    let network = Network::start_with(server.address, |config| {
        // So little that slices are soon requested again.
        config.buffer.bytes = 1;
        config.freshness = Time { ns: 0 };
    })
    .await;
    let one = network.get("/a").await;
    assert_eq!(one.body.unwrap(), content(LARGE, 1));
    version.store(2, Ordering::Relaxed);
    for name in ["/b", "/c", "/d"] {
        network.get(name).await;
    }
    let two = network.get_from("/a", 4_000_000).await;
    // The old content is no longer available, and the new one is not passed off as the old one.
    if let Ok(Ok(body)) = two.map(|two| two.body) {
        assert_eq!(body, content(LARGE, 1)[4_000_000..]);
    }
    until_stale().await;
    let three = network.get("/a").await;
    assert_ne!(three.versioned, one.versioned);
    assert_eq!(three.body.unwrap(), content(LARGE, 2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refuses_names_of_no_resource() {
    let server = Server::start(|request| file(request, "\"v1\"", "", b"x"));
    let network = Network::start(server.address).await;
    for name in ["/...../a", "/a/32=other", "/a%2Fb", "/a/32=%40cookie%3Da"] {
        assert!(network.get_from(name, 0).await.is_err(), "{name}");
    }
    // Their packets would have too many components.
    for components in [61, 62] {
        let name = "/a".repeat(components);
        assert!(network.get_from(&name, 0).await.is_err(), "{components}");
    }
    assert_eq!(server.requests().len(), 0);
    let consumer = network.consumer.clone();
    let wrong = tokio::task::spawn_blocking(move || {
        let mut reader = consumer.fetch(&"/p/a/54=%05".parse().unwrap()).unwrap();
        std::io::Read::read_to_end(&mut reader, &mut Vec::new())
    });
    assert!(wrong.await.unwrap().is_err());
    // It was asked which version it has.
    assert_eq!(server.requests().len(), 1);
}

/// Anyone can send an Interest, so only configured headers reach the server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn passes_on_configured_headers_alone() {
    let server = Server::start(|request| {
        let language = request.field("accept-language").unwrap_or("none").to_owned();
        file(request, "\"v1\"", "vary: accept-language\r\n", language.as_bytes())
    });
    let network = Network::start_with(server.address, |config| {
        config.vary = vec!["Accept-Language".into()];
    })
    .await;
    assert_eq!(network.get("/a/32=%40accept-language%3Dde").await.text(), "de");
    for headers in ["x-http-method-override%3DDELETE", "accept-language%3Dde&x-own%3D1"] {
        let name = format!("/a/32=%40{headers}");
        assert!(network.get_from(&name, 0).await.is_err(), "{headers}");
    }
    assert_eq!(server.requests().len(), 1);
    let network = Network::start(server.address).await;
    assert!(network.get_from("/a/32=%40accept-language%3Dde", 0).await.is_err());
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn confirmed_fields_become_relative() {
    let server = Server::start(|request| {
        let fields = format!("content-location: http://{}/b/c\r\n", request.field("host").unwrap());
        file(request, "\"v1\"", &fields, b"x")
    });
    let network = Network::start(server.address).await;
    for _ in 0..2 {
        assert_eq!(network.get("/b/a").await.field("content-location"), Some("c"));
        until_stale().await;
    }
    assert_eq!(network.origin.stats().not_modified, 1);
}
