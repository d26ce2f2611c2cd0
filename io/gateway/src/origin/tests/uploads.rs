use std::sync::atomic::{AtomicU64, Ordering};

use http::{HeaderMap, HeaderValue, Method};
use weir_security::DigestSigner;
use weir_socket::{Identity, Offer, Producer, PublishOptions, SlicedObject};
use weir_wire::{DataView, Name};

use super::fixture::{Network, PREFIX, Reply, Server, content, response};
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
    let (consumer, offer) = (network.consumer.clone(), offer.clone());
    let name: Name = format!("{PREFIX}{name}").parse().unwrap();
    let send = move || consumer.send(&name, &offer).unwrap().wait();
    let answer = tokio::task::spawn_blocking(send).await.unwrap().ok()?;
    Some(UploadAnswer::decode(DataView::decode(&answer).unwrap().content).unwrap())
}

async fn network(server: &Server) -> Network {
    Network::start_with(server.address, |config| {
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
