use std::sync::atomic::{AtomicU64, Ordering};

use http::{HeaderMap, HeaderValue, Method};
use weir_base::units::Time;
use weir_security::DigestSigner;
use weir_socket::{
    Consumer, ConsumerOptions, Identity, Offer, Producer, PublishOptions, SlicedObject,
};
use weir_wire::{DataView, Name};

use super::fixture::{
    Network, PREFIX, Reply, Server, content, file, response, router_without_store,
};
use crate::head::{AnswerBody, RequestHead, UploadAnswer};

/// What a front does: it publishes the body with the head of the request, and offers it.
async fn offer(network: &Network, method: &Method, body: &[u8]) -> (Producer, Offer) {
    static OFFERS: AtomicU64 = AtomicU64::new(1);
    let number = OFFERS.fetch_add(1, Ordering::Relaxed);
    let mut fields = HeaderMap::new();
    for (name, value) in [("content-type", "text/plain"), ("cookie", "a=b")] {
        fields.insert(name, HeaderValue::from_static(value));
    }
    let head = RequestHead { method: method.clone(), fields }.encode();
    let (session, body) = (network.session.clone(), body.to_vec());
    let publish = move || {
        let (prefix, identity): (Name, _) =
            ("/front".parse().unwrap(), Identity::new(DigestSigner));
        let producer = Producer::bind(&session, prefix, identity.clone()).unwrap();
        // Each upload is an object of its own.
        let name: Name = format!("/front/{number}/54=%07").parse().unwrap();
        let (size, options) = (body.len() as u64, PublishOptions::default());
        let object = SlicedObject::new(name, size, &identity, &options).unwrap();
        let metadata = object.sign_metadata(7, 10_000, Some(head)).unwrap();
        let mut packets = object.sign(0, &body).unwrap().packets;
        packets.push(metadata.clone());
        producer.publish_packets_async(packets).unwrap().wait().unwrap();
        (producer, Offer::decode(metadata).unwrap())
    };
    tokio::task::spawn_blocking(publish).await.unwrap()
}

async fn send(network: &Network, name: &str, offer: &Offer) -> Option<UploadAnswer> {
    let (mut consumer, offer) = (Consumer::clone(&network.consumer), offer.clone());
    // Longer than the origin takes at most.
    let lifetime = Time { ns: 30 * weir_base::NS_PER_S };
    consumer.set_options(ConsumerOptions { lifetime, ..consumer.options().clone() }).unwrap();
    let name: Name = format!("{PREFIX}{name}").parse().unwrap();
    let send = move || consumer.send(&name, &offer).unwrap().wait();
    let answer = tokio::task::spawn_blocking(send).await.unwrap().ok()?;
    Some(UploadAnswer::decode(DataView::decode(&answer).unwrap().content).unwrap())
}

async fn network(server: &Server) -> Network {
    // Routers answer for what an upload has changed, until its freshness ends.
    Network::start_on(router_without_store(), server.address, |config| {
        config.methods = vec!["PUT".into(), "DELETE".into()];
        config.unsized_max.bytes = 100_000;
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sends_an_upload_once() {
    let server = Server::start(|_| {
        Reply::Close(response("201 Created", "location: /a/b\r\nset-cookie: c=d\r\n", b"made"))
    });
    let network = network(&server).await;
    let body = content(50_000, 1);
    let (_producer, offer) = offer(&network, &Method::PUT, &body).await;
    let answer = send(&network, "/a/32=PUT", &offer).await.unwrap();
    assert_eq!(answer.head.status, 201);
    assert_eq!(answer.head.fields["location"], "a/b");
    assert!(!answer.head.fields.contains_key("set-cookie"));
    assert_eq!(answer.body, AnswerBody::Inline(b"made".into()));
    assert_eq!(send(&network, "/a/32=PUT", &offer).await, Some(answer));
    let requests = server.requests();
    assert_eq!(requests.len(), 1);
    assert_eq!(requests[0].line, "PUT /a HTTP/1.1");
    assert_eq!(requests[0].body, body);
    assert_eq!(requests[0].field("content-type"), Some("text/plain"));
    assert_eq!(requests[0].field("cookie"), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_answers_are_objects() {
    let long = content(30_000, 2);
    let sent = long.clone();
    let server = Server::start(move |_| Reply::Close(response("200 OK", "", &sent)));
    let network = network(&server).await;
    let (_producer, offer) = offer(&network, &Method::DELETE, b"").await;
    let answer = send(&network, "/a/32=DELETE", &offer).await.unwrap();
    let AnswerBody::Version(name) = answer.body else { panic!("{answer:?}") };
    let consumer = network.consumer.clone();
    let read = tokio::task::spawn_blocking(move || {
        let mut body = Vec::new();
        std::io::Read::read_to_end(&mut consumer.fetch(&name).unwrap(), &mut body).unwrap();
        body
    });
    assert_eq!(read.await.unwrap(), long);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refuses_uploads_that_are_not_allowed() {
    let server = Server::fixed(response("200 OK", "", b""));
    let network = network(&server).await;
    let (producer, put) = offer(&network, &Method::PUT, b"x").await;
    // A method that is not configured, and a head with another method than the name.
    assert_eq!(send(&network, "/a/32=POST", &put).await, None);
    assert_eq!(send(&network, "/a/32=DELETE", &put).await.unwrap().head.status, 400);
    drop(producer);
    let (_producer, long) = offer(&network, &Method::PUT, &content(100_001, 3)).await;
    assert_eq!(send(&network, "/a/32=PUT", &long).await.unwrap().head.status, 413);
    assert_eq!(server.requests().len(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn upload_invalidates_object_and_folder() {
    let puts = AtomicU64::new(0);
    let server = Server::start(move |request| {
        if request.line.starts_with("PUT /d/denied") {
            return Reply::Close(response("403 Forbidden", "", b""));
        }
        if request.line.starts_with("PUT") {
            puts.fetch_add(1, Ordering::Relaxed);
            return Reply::Close(response("204 No Content", "", b""));
        }
        let version = puts.load(Ordering::Relaxed).to_string();
        file(
            request,
            &format!("\"{version}\""),
            "cache-control: max-age=60\r\n",
            version.as_bytes(),
        )
    });
    let network = network(&server).await;
    let names = ["/d/a", "/d/a/32=%3Fx", "/d/...", "/d/b", "/d/denied"];
    for name in names {
        assert_eq!(network.get(name).await.text(), "0", "{name}");
    }
    let (_producer, put) = offer(&network, &Method::PUT, b"x").await;
    assert_eq!(send(&network, "/d/denied/32=PUT", &put).await.unwrap().head.status, 403);
    assert_eq!(network.get("/d/denied").await.text(), "0");
    assert_eq!(send(&network, "/d/a/32=PUT", &put).await.unwrap().head.status, 204);
    let mut found = Vec::new();
    for name in names {
        found.push(network.get(name).await.text());
    }
    assert_eq!(found, ["1", "1", "1", "0", "0"]);
    assert_eq!(server.requests().len(), names.len() + 2 + 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn upload_ends_while_its_front_waits() {
    let server = Server::start(|_| Reply::Hang(Vec::new()));
    let network = network(&server).await;
    let (_producer, put) = offer(&network, &Method::PUT, b"x").await;
    let answer = send(&network, "/a/32=PUT", &put).await.unwrap();
    assert_eq!(answer.head.status, 504);
    let AnswerBody::Inline(text) = answer.body else { panic!("{answer:?}") };
    assert!(String::from_utf8(text).unwrap().contains("may have performed"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn greatest_bound_is_no_bound() {
    let reply = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n\
        2\r\nhi\r\n0\r\n\r\n";
    let server = Server::fixed(reply);
    let network = Network::start_with(server.address, |config| {
        config.methods = vec!["PUT".into()];
        config.unsized_max.bytes = u64::MAX;
    })
    .await;
    assert_eq!(network.get("/a").await.text(), "hi");
    let (_producer, put) = offer(&network, &Method::PUT, b"x").await;
    let answer = send(&network, "/a/32=PUT", &put).await.unwrap();
    assert_eq!(answer.body, AnswerBody::Inline(b"hi".into()));
}
