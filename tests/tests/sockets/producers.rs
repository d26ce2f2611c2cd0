//! Producer sockets: publishing, buffering, answering and rejecting.

use std::io::Read as _;
use std::thread;
use std::time::Duration;
use weir_face::FaceUri;
use weir_security::DigestSigner;
use weir_socket::{Identity, Offer, Producer, Session, SocketError};
use weir_tests::sockets::{
    consumer, content, error_of, name, producer, producer_with, read_all, session,
};
use weir_tests::{Host, Router, TEST_TIMEOUT};
use weir_transport::Metadata;
use weir_wire::{Data, DataView, Interest};

#[test]
fn requests_wait_for_publication() {
    let host = Host::new();
    let router = Router::start(&host);
    let (one, other) = (session(&router), session(&router));
    let producer = producer_with(&one, "/p", &[("request_wait", "100ms")]);
    let answering = thread::spawn(move || {
        for _ in 0..50 {
            let request = producer.recv().unwrap();
            let text = format!("this is {}", request.name());
            producer.publish(request.name(), text.into_bytes()).unwrap();
        }
        assert!(producer.recv_timeout(Duration::ZERO).unwrap().is_none());
        producer
    });
    let consumer = consumer(&other, "/p");
    for number in 0..50 {
        let uri = format!("/p/made/{number}");
        assert_eq!(read_all(&consumer, &uri).unwrap(), format!("this is {uri}").as_bytes());
    }
    let producer = answering.join().unwrap();
    // A request for a name that is never published is rejected after the waiting time.
    let error = error_of(read_all(&consumer, "/p/nothing"));
    assert!(matches!(error, SocketError::NoRoute(_)), "{error}");
    let request = producer.recv_timeout(TEST_TIMEOUT).unwrap().unwrap();
    assert_eq!(*request.name(), name("/p/nothing"));
}

#[test]
fn expresses_single_interests() {
    let router = Router::on_new_host();
    let (one, other) = (session(&router), session(&router));
    let producer = producer_with(&one, "/p", &[("request_wait", "1h")]);
    let consumer = consumer(&other, "/p");
    let interest = |uri: &str| Interest::new(name(uri)).nonce(7).lifetime_ms(60_000).encode();
    let pending = consumer.express(&interest("/p/ping/1")).unwrap();
    let request = producer.recv().unwrap();
    assert_eq!(*request.name(), name("/p/ping/1"));
    let data = Data::new(request.name().clone()).content("pong").encode_with_digest();
    producer.publish_packet(data).unwrap();
    let packet = pending.wait().unwrap();
    assert_eq!(DataView::decode(&packet).unwrap().content, b"pong");
    // A rejected request ends long before its lifetime.
    let pending = consumer.express(&interest("/p/never")).unwrap();
    producer.refuse(&producer.recv().unwrap()).unwrap();
    assert!(matches!(pending.wait(), Err(SocketError::NoRoute(_))));
    let short = Interest::new(name("/p/ping/2")).nonce(8).lifetime_ms(50).encode();
    let error = consumer.express(&short).unwrap().wait().unwrap_err();
    assert!(matches!(error, SocketError::TimedOut(_)), "{error}");
    let outside = consumer.express(&interest("/q")).err();
    assert!(matches!(outside, Some(SocketError::OutsidePrefix { .. })));
    assert!(matches!(consumer.express(b"no").err(), Some(SocketError::Invalid(_))));
    assert!(matches!(producer.publish_packet(b"no".to_vec()), Err(SocketError::Invalid(_))));
}

#[test]
fn each_prefix_has_one_producer() {
    let host = Host::new();
    let router = Router::start(&host);
    let session = session(&router);
    let identity = || Identity::new(DigestSigner);
    let outer = producer(&session, "/p");
    let error = Producer::bind(&session, name("/p"), identity()).err();
    assert!(matches!(error, Some(SocketError::PrefixInUse(_))), "{error:?}");
    let inner = producer(&session, "/p/inner");
    outer.publish(&name("/p/a"), content(10)).unwrap();
    inner.publish(&name("/p/inner/a"), content(11)).unwrap();
    let error = outer.publish(&name("/q/a"), content(10)).unwrap_err();
    assert!(matches!(error, SocketError::OutsidePrefix { .. }), "{error}");
    let consumer = consumer(&session, "/p");
    let error = consumer.fetch(&name("/q/a")).err();
    assert!(matches!(error, Some(SocketError::OutsidePrefix { .. })), "{error:?}");
    assert!(read_all(&consumer, "/p/a").unwrap() == content(10));
    assert!(read_all(&consumer, "/p/inner/a").unwrap() == content(11));
    // After the drop, the prefix is free.
    drop(outer);
    let again = producer(&session, "/p");
    again.publish(&name("/p/b"), content(12)).unwrap();
    assert!(read_all(&consumer, "/p/b").unwrap() == content(12));
    // Only local applications may register prefixes.
    let elsewhere = Session::connect(&FaceUri::resolve(&router.udp()).unwrap()).unwrap();
    let error = Producer::bind(&elsewhere, name("/p"), identity()).err();
    assert!(matches!(error, Some(SocketError::PrefixRefused { .. })), "{error:?}");
}

#[test]
fn evicted_objects_are_requested_again() {
    let host = Host::new();
    let router = Router::without_store(&host);
    let session = session(&router);
    let options = [("output_buffer", "1MiB"), ("output_policy", "fifo")];
    let producer = producer_with(&session, "/p", &options);
    let error = producer.publish(&name("/p/huge"), content(2_000_000)).unwrap_err();
    assert!(matches!(error, SocketError::TooLong { max_bytes: 1_048_576 }), "{error}");
    for number in 0..10 {
        producer.publish(&name(&format!("/p/{number}")), content(300_000)).unwrap();
    }
    let consumer = consumer(&session, "/p");
    assert!(read_all(&consumer, "/p/9").unwrap() == content(300_000));
    assert!(producer.recv_timeout(Duration::ZERO).unwrap().is_none());
    let mut lost = consumer.fetch(&name("/p/0")).unwrap();
    let asked = producer.recv().unwrap().name().clone();
    assert_eq!(asked, name("/p/0"));
    let version = lost.versioned().unwrap().as_view().last().unwrap().as_version().unwrap();
    producer.publish_version(&asked, version, content(300_000)).unwrap();
    let mut octets = Vec::new();
    lost.read_to_end(&mut octets).unwrap();
    assert!(octets == content(300_000));
}

#[test]
fn refuses_what_exceeds_a_packet() {
    let router = Router::on_new_host();
    let session = session(&router);
    let producer = producer_with(&session, "/p", &[("segment_size", "100")]);
    let mut long = name("/p");
    long.append_generic(&[b'x'; 4000]);
    // The metadata contains the name twice, and the manifest packets are as large as possible.
    for octets in [5, 2000, 24_800] {
        let versioned = producer.publish(&long, content(octets)).unwrap();
        let mut read = Vec::new();
        let mut reader = consumer(&session, "/p").fetch(&versioned).unwrap();
        reader.read_to_end(&mut read).unwrap();
        assert!(read == content(octets));
    }
    long.append_generic(&[b'x'; 1000]);
    let error = producer.publish(&long, content(2000)).unwrap_err();
    assert!(error.to_string().contains("metadata"), "{error}");
    let data = Data::new(name("/p/large")).content(content(9000)).encode_with_digest();
    let error = producer.publish_packet(data).unwrap_err();
    assert_eq!(error, SocketError::TooLong { max_bytes: 8800 });
    let interest = Interest::new(name("/p/large")).application_parameters(content(9000)).encode();
    let error = consumer(&session, "/p").express(&interest).err().unwrap();
    assert_eq!(error, SocketError::TooLong { max_bytes: 8800 });
}

#[test]
fn older_version_does_not_become_latest() {
    let router = Router::on_new_host();
    let session = session(&router);
    let producer = producer(&session, "/p");
    for (version, text) in [(6, "six"), (7, "seven"), (5, "five")] {
        producer.publish_version(&name("/p/a"), version, text.as_bytes().to_vec()).unwrap();
    }
    let consumer = consumer(&session, "/p");
    assert_eq!(read_all(&consumer, "/p/a").unwrap(), b"seven");
    assert_eq!(read_all(&consumer, "/p/a/v=5").unwrap(), b"five");
}

/// Regression: the route of the shorter prefix was inherited, so its producer in another program
/// got the Interests and delayed them for seconds.
#[test]
fn longer_prefix_hides_shorter_one() {
    let router = Router::on_new_host();
    let (one, other) = (session(&router), session(&router));
    let shorter = producer(&one, "/demo");
    let longer = producer(&other, "/demo/l");
    longer.publish(&name("/demo/l/x"), b"here".to_vec()).unwrap();
    let reader = consumer(&session(&router), "/demo");
    assert_eq!(read_all(&reader, "/demo/l/x").unwrap(), b"here");
    assert!(shorter.recv_timeout(Duration::ZERO).unwrap().is_none());
}

#[test]
fn short_object_fits_any_segment_size() {
    let router = Router::on_new_host();
    let session = session(&router);
    let producer = producer_with(&session, "/p", &[("segment_size", "8800")]);
    producer.publish(&name("/p/a"), content(5)).unwrap();
    assert!(read_all(&consumer(&session, "/p"), "/p/a").unwrap() == content(5));
    let error = producer.publish(&name("/p/b"), content(8800)).unwrap_err();
    assert!(matches!(error, SocketError::TooLong { max_bytes: 8000.. }), "{error}");
}

#[test]
fn names_may_contain_metadata_keyword() {
    let router = Router::on_new_host();
    let session = session(&router);
    let producer = producer(&session, "/p");
    for (uri, text) in [("/p/32=metadata/a", b"one"), ("/p/32=metadata/b", b"two")] {
        producer.publish(&name(uri), text.to_vec()).unwrap();
    }
    let consumer = consumer(&session, "/p");
    assert_eq!(read_all(&consumer, "/p/32=metadata/a").unwrap(), b"one");
    assert_eq!(read_all(&consumer, "/p/32=metadata/b").unwrap(), b"two");
}

#[test]
fn server_fetches_an_offered_object() {
    let host = Host::new();
    let router = Router::start(&host);
    let (server_session, client_session) = (session(&router), session(&router));
    // Fetching the offered object may take a while.
    let server = producer_with(&server_session, "/server", &[("request_wait", "30s")]);
    let served = thread::spawn(move || {
        let puller = consumer(&server_session, "/");
        let mut results = Vec::new();
        while results.len() < 4 {
            let request = server.recv().unwrap();
            let answer = request.offer().expect("parameters").and_then(|offer| {
                assert_eq!(offer.metadata().size_bytes, Some(100_000));
                let mut octets = Vec::new();
                let mut reader = puller.fetch(offer.name())?;
                reader
                    .read_to_end(&mut octets)
                    .map_err(|error| SocketError::Invalid(format!("cannot be got: {error}")))?;
                Ok(octets)
            });
            match &answer {
                Ok(octets) => server.answer(&request, &octets.len().to_be_bytes()).unwrap(),
                Err(error) => server.answer(&request, error.to_string().as_bytes()).unwrap(),
            }
            results.push(answer);
        }
        results
    });

    let own = producer(&client_session, "/client");
    let mut asker = consumer(&client_session, "/server");
    asker.set("lifetime", "30s").unwrap();
    let offer = own.offer(&name("/client/photo"), content(100_000)).unwrap();
    let send = |offer: &Offer| {
        let answer = asker.send(&name("/server/upload"), offer).unwrap().wait().unwrap();
        DataView::decode(&answer).unwrap().content.to_vec()
    };
    assert_eq!(send(&offer), 100_000_usize.to_be_bytes());
    let text = |octets: Vec<u8>| String::from_utf8(octets).unwrap();
    // A missing object, and one that the server would have to request from itself.
    let made = |object: &str| {
        let metadata = Metadata {
            size_bytes: Some(100_000),
            ..Metadata::new(name(&format!("{object}/54=%01")))
        };
        let data = Data::new(name(&format!("{object}/32=metadata/54=%01/50=%00")));
        Offer::decode(data.content(metadata.encode()).encode_with_digest()).unwrap()
    };
    let missing = text(send(&made("/nowhere/file")));
    assert!(missing.contains("no route to /nowhere/file"), "{missing}");
    let looping = text(send(&made("/server/file")));
    assert!(looping.contains("which this producer serves"), "{looping}");
    let rubbish =
        Interest::new(name("/server/upload")).application_parameters("rubbish").nonce(1).encode();
    let answer = asker.express(&rubbish).unwrap().wait().unwrap();
    let rubbish = text(DataView::decode(&answer).unwrap().content.to_vec());
    assert!(rubbish.contains("no offer"), "{rubbish}");
    let results = served.join().unwrap();
    assert!(results[0].as_ref().unwrap() == &content(100_000));
    assert_eq!(results.iter().filter(|result| result.is_err()).count(), 3);
}
