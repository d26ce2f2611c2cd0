use std::sync::atomic::{AtomicU32, Ordering};

use super::fixture::{HttpRequest, Network, Reply, Server, file, response};

/// A playlist with the segments 0 to `segments - 1`, of one second each.
fn playlist(segments: u32, control: &str) -> String {
    let segments: String = (0..segments).map(|at| format!("#EXTINF:1.0,\n{at}.ts\n")).collect();
    format!("#EXTM3U\n#EXT-X-TARGETDURATION:1\n{control}#EXT-X-MEDIA-SEQUENCE:0\n{segments}")
}

fn is_playlist(request: &HttpRequest) -> bool {
    request.line.contains(".m3u8")
}

async fn live(server: &Server) -> Network {
    Network::start_with(server.address, |config| config.live = true).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn playlist_is_fresh_until_next_segment() {
    let server = Server::start(|request| {
        let control = match request.line.split(' ').nth(1).unwrap() {
            "/c/none.m3u8" => "cache-control: no-cache\r\n",
            "/c/long.m3u8" => "cache-control: max-age=60\r\n",
            _ => "",
        };
        file(request, "\"v1\"", control, playlist(3, "").as_bytes())
    });
    let network = live(&server).await;
    for name in ["/c/a.m3u8", "/c/long.m3u8"] {
        let lifetime_ms = network.get(name).await.head.lifetime_ms;
        assert!((100..=1000).contains(&lifetime_ms), "{name}: {lifetime_ms}");
    }
    assert_eq!(network.get("/c/none.m3u8").await.head.lifetime_ms, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reload_waits_for_segment() {
    let requests = AtomicU32::new(0);
    // The fourth request finds one segment more.
    let server = Server::start(move |request| {
        let segments = 5 + requests.fetch_add(1, Ordering::Relaxed) / 3;
        file(request, &format!("\"{segments}\""), "", playlist(segments, "").as_bytes())
    });
    let network = live(&server).await;
    let found = network.get("/c/a.m3u8/32=%3F_HLS_msn=5").await;
    assert_eq!((found.status(), found.text()), (200, playlist(6, "")));
    let lines: Vec<_> = server.requests().into_iter().map(|request| request.line).collect();
    assert_eq!(lines, ["GET /c/a.m3u8 HTTP/1.1"; 4]);
    // It is too far ahead.
    assert_eq!(network.get("/c/a.m3u8/32=%3F_HLS_msn=50").await.status(), 400);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_that_blocks_gets_the_query() {
    let control = "#EXT-X-SERVER-CONTROL:CAN-BLOCK-RELOAD=YES\n";
    let server = Server::start(move |request| {
        let segments = 5 + u32::from(request.line.contains("_HLS_msn=5"));
        file(request, &format!("\"{segments}\""), "", playlist(segments, control).as_bytes())
    });
    let network = live(&server).await;
    let found = network.get("/c/a.m3u8/32=%3F_HLS_msn=5").await;
    assert_eq!(found.text(), playlist(6, control));
    assert_eq!(server.requests().len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waits_for_next_segment_of_live_playlist() {
    let missing = AtomicU32::new(0);
    let server = Server::start(move |request| {
        if is_playlist(request) {
            return file(request, "\"v1\"", "", playlist(3, "").as_bytes());
        }
        let is_missing = missing.fetch_add(1, Ordering::Relaxed) % 3 != 2;
        match is_missing || request.line.contains("never") {
            true => Reply::Close(response("404 Not Found", "", b"missing")),
            false => file(request, "\"v1\"", "", b"segment"),
        }
    });
    let network = live(&server).await;
    // Nothing is live here yet.
    assert_eq!(network.get("/c/2.ts").await.status(), 404);
    assert_eq!(server.requests().len(), 1);
    network.get("/c/a.m3u8").await;
    assert_eq!(network.get("/c/3.ts").await.text(), "segment");
    assert_eq!(network.get("/c/never.ts").await.status(), 404);
    let before = server.requests().len();
    assert_eq!(network.get("/d/never.ts").await.status(), 404);
    assert_eq!(server.requests().len(), before + 1);
}
