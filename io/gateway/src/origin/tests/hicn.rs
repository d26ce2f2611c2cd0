//! An origin with hICN names.

use std::sync::Arc;

use weir_transport::NameMapping;

use super::fixture::{Network, Server, content, file, until_stale};
use super::{DATED, LARGE};

const MAPPING: &str = "hicn:2001:db8:7::/48";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn serves_files_with_hicn_names() {
    let body = Arc::new(content(LARGE, 1));
    let served = body.clone();
    let server = Server::start(move |request| match request.line.contains("/small") {
        true => file(request, "\"s\"", "cache-control: max-age=0\r\n", b"hello"),
        false => file(request, "\"v1\"", DATED, &served),
    });
    let mapping: NameMapping = MAPPING.parse().unwrap();
    let mut network = Network::start_with(server.address, |config| config.mapping = mapping).await;
    network.set_mapping(MAPPING);
    for _ in 0..2 {
        assert_eq!(network.get("/small").await.text(), "hello");
        until_stale().await;
    }
    let found = network.get("/large").await;
    assert_eq!(found.body.unwrap(), *body);
    assert_eq!(network.origin.stats().slices, 3 + 1);
    // A range of another file, whose first slice was not requested.
    let part = network.get_from("/other", 4_000_000).await.unwrap();
    assert!(part.body.unwrap() == body[4_000_000..]);
    // Names without a producer, and a name that no URL has.
    assert!(network.get_from("/a/32=x", 0).await.is_err());
}
