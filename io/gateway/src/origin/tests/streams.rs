use std::io::Read;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use weir_transport::Metadata;

use super::LARGE;
use super::fixture::{Network, Reply, Server, content, file, response, router_without_store};

/// The first slice is slow. The second one is requested meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn later_slices_do_not_wait_for_the_first() {
    let body = Arc::new(content(LARGE, 1));
    let served = body.clone();
    let server = Server::start(move |request| match request.range() {
        Some((0, end)) => {
            let head = format!(
                "HTTP/1.1 206 Partial Content\r\netag: \"v1\"\r\ncontent-length: {end}\r\n\
                 content-range: bytes 0-{}/{LARGE}\r\n\r\n",
                end - 1
            );
            Reply::Hang([head.as_bytes(), &served[..1000]].concat())
        }
        _ => file(request, "\"v1\"", "", &served),
    });
    let network = Network::start(server.address).await;
    let found = network.get_from("/a", 2_000_000).await.unwrap();
    assert_eq!(found.body.unwrap(), body[2_000_000..]);
}

async fn metadata(network: &Network) -> Arc<Metadata> {
    let consumer = network.consumer.clone();
    let find = move || {
        let mut reader = consumer.fetch_range(&"/p/a".parse().unwrap(), 0..0).unwrap();
        Arc::new(reader.metadata().unwrap().clone())
    };
    tokio::task::spawn_blocking(find).await.unwrap()
}

/// Reads a part of a known version.
async fn read(network: &Network, found: &Arc<Metadata>, range: Range<u64>) -> Vec<u8> {
    let (consumer, found) = (network.consumer.clone(), found.clone());
    let read = move || {
        let mut body = Vec::new();
        consumer.fetch_found(&found, range).unwrap().read_to_end(&mut body).unwrap();
        body
    };
    tokio::task::spawn_blocking(read).await.unwrap()
}

/// Without ranges, a request brings all slices, so that one is enough for all that wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slices_share_a_download_without_ranges() {
    let body = Arc::new(content(LARGE, 1));
    let served = body.clone();
    let server = Server::start(move |_| {
        std::thread::sleep(Duration::from_millis(300));
        Reply::Close(response("200 OK", "etag: \"v1\"\r\n", &served))
    });
    // So little memory that the slices are soon requested again.
    let router = router_without_store();
    let network = Network::start_on(router, server.address, |config| config.buffer.bytes = 1).await;
    let requests = || server.requests().iter().filter(|it| it.line.contains("/a ")).count();
    let found = metadata(&network).await;
    let (second, third) = (2_000_000..2_100_000, 4_500_000..4_600_000);
    // The first one of these begins the download. A later one for bytes before it begins another.
    for (ranges, downloads) in [([&second, &third], 1), ([&third, &second], 2)] {
        for name in ["/b", "/c", "/d"] {
            network.get(name).await;
        }
        let before = requests();
        let late = async {
            while requests() == before {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            read(&network, &found, ranges[1].clone()).await
        };
        let (early, late) = tokio::join!(read(&network, &found, ranges[0].clone()), late);
        for (range, bytes) in ranges.into_iter().zip([early, late]) {
            assert!(bytes == body[range.start as usize..range.end as usize], "{range:?}");
        }
        assert_eq!(requests() - before, downloads);
    }
}
