//! Sockets with mapped names (hICN), over a real router.

use std::io::{self, Read as _};
use std::thread;

use weir_crypto::{KeyChain, KeyType, UserTrust};
use weir_hicn::HicnName;
use weir_security::DigestSigner;
use weir_socket::{Consumer, ConsumerOptions, Identity, Producer, Session, SocketError};
use weir_tests::sockets::{self, content, name, producer_options, producer_with, session};
use weir_tests::{Host, Router, TEST_TIMEOUT};
use weir_transport::NameMapping;
use weir_wire::{DataView, Interest};

const MAPPING: &str = "hicn:2001:db8:7::/48";

fn mapped_producer(session: &Session, prefix: &str, options: &[(&str, &str)]) -> Producer {
    producer_with(session, prefix, &[&[("mapping", MAPPING)], options].concat())
}

fn consumer(session: &Session, prefix: &str, mapping: &str) -> Consumer {
    let mut consumer = sockets::consumer(session, prefix);
    consumer.set("mapping", mapping).unwrap();
    consumer
}

fn read(consumer: &Consumer, uri: &str) -> io::Result<Vec<u8>> {
    let (mut octets, mut reader) = (Vec::new(), consumer.fetch(&name(uri))?);
    reader.read_to_end(&mut octets)?;
    assert!(reader.is_verified());
    Ok(octets)
}

#[test]
fn publishes_and_reads_hicn_names() {
    let router = Router::on_new_host();
    let (one, other) = (session(&router), session(&router));
    // Manifests with one and two levels.
    for (signs, segment_size) in [("segments", "8000"), ("manifest", "1000")] {
        let changes = [("signs", signs), ("segment_size", segment_size)];
        let producer = mapped_producer(&one, "/p", &changes);
        let consumer = consumer(&other, "/p", MAPPING);
        for len in [0, 1, 8001, 3_000_000] {
            let uri = format!("/p/{signs}/{len}");
            let versioned = producer.publish(&name(&uri), content(len)).unwrap();
            assert!(name(&uri).as_view().is_prefix_of(versioned.as_view()));
            assert!(read(&consumer, &uri).unwrap() == content(len), "{uri}");
            assert!(read(&consumer, &versioned.to_string()).unwrap() == content(len), "{uri}");
        }
        let uri = name(&format!("/p/{signs}/3000000"));
        let mut octets = Vec::new();
        let mut reader = consumer.fetch_range(&uri, 1_234_567..2_345_678).unwrap();
        reader.read_to_end(&mut octets).unwrap();
        assert!(octets == content(3_000_000)[1_234_567..2_345_678]);
    }
}

#[test]
fn only_hicn_names_are_on_the_wire() {
    let router = Router::on_new_host();
    let (one, other) = (session(&router), session(&router));
    let producer = mapped_producer(&one, "/p", &[]);
    let object = name("/p/a");
    let versioned = producer.publish(&object, content(50_000)).unwrap();
    let mapping: NameMapping = MAPPING.parse().unwrap();
    let raw = consumer(&other, "/32=hicn", "identity");
    let metadata = mapping.metadata_interest(object.as_view()).0;
    let mut names = vec![metadata];
    for suffix in [0, 6, 0x8000_0000] {
        let mut name = mapping.version_prefix(versioned.as_view());
        names.push(name.append_segment(suffix).clone());
    }
    for name in names {
        let interest = Interest::new(name.clone()).nonce(1).encode();
        let packet = raw.express(&interest).unwrap().wait().unwrap();
        let data = DataView::decode(&packet).unwrap();
        assert_eq!(data.name, name.as_view());
        let hicn = HicnName::from_name(data.name).unwrap();
        assert_eq!(hicn.address.segments()[..3], [0x2001, 0xdb8, 7]);
    }
    // Nothing is published under the application's names or another prefix.
    for mapping in ["identity", "hicn:2001:db8:8::/48"] {
        let error = read(&consumer(&other, "/p", mapping), "/p/a").unwrap_err();
        assert!(error.to_string().contains("no route"), "{error}");
    }
}

#[test]
fn finds_new_version_and_old_by_name() {
    let router = Router::on_new_host();
    let (one, other) = (session(&router), session(&router));
    let producer = mapped_producer(&one, "/p", &[("metadata_freshness", "0s")]);
    let consumer = consumer(&other, "/p", MAPPING);
    let first = producer.publish(&name("/p/news"), content(20_000)).unwrap();
    assert!(read(&consumer, "/p/news").unwrap() == content(20_000));
    producer.publish(&name("/p/news"), content(30_000)).unwrap();
    assert!(read(&consumer, "/p/news").unwrap() == content(30_000));
    assert!(read(&consumer, &first.to_string()).unwrap() == content(20_000));
    // An older version does not replace a newer one.
    producer.publish_version(&name("/p/news"), 1, content(10_000)).unwrap();
    assert!(read(&consumer, "/p/news").unwrap() == content(30_000));
}

#[test]
fn early_request_is_answered_on_publication() {
    let host = Host::new();
    let router = Router::start(&host);
    let (one, other) = (session(&router), session(&router));
    let producer = mapped_producer(&one, "/p", &[("request_wait", "1m")]);
    let asking = thread::spawn(move || read(&consumer(&other, "/p", MAPPING), "/p/a").unwrap());
    // The request contains only the mapped name.
    let request = producer.recv_timeout(TEST_TIMEOUT).unwrap().unwrap();
    let mapping: NameMapping = MAPPING.parse().unwrap();
    let prefix = mapping.version_prefix(name("/p/a").as_view());
    assert_eq!(*request.name(), prefix);
    producer.publish(&name("/p/a"), content(100_000)).unwrap();
    assert!(asking.join().unwrap() == content(100_000));
}

#[test]
fn unmappable_names_are_refused() {
    let router = Router::on_new_host();
    let session = session(&router);
    let producer = mapped_producer(&session, "/p", &[]);
    let outside = producer.publish(&name("/q"), content(1)).unwrap_err();
    assert!(matches!(outside, SocketError::OutsidePrefix { .. }), "{outside}");
    let live = producer.publish_live(&name("/p/live")).err().unwrap();
    let offer = producer.offer(&name("/p/offer"), content(1)).err().unwrap();
    for error in [live, offer] {
        assert!(error.to_string().contains(MAPPING), "{error}");
    }
    // A mapped prefix can have only one producer, even with different application names.
    let identity = Identity::new(DigestSigner);
    let taken = Producer::bind_with(
        &session,
        name("/q"),
        identity,
        producer_options(&[("mapping", MAPPING)]),
    )
    .err()
    .unwrap();
    assert!(matches!(taken, SocketError::PrefixInUse(_)), "{taken}");
    for value in ["hicn:2001:db8::/80", "hicn:2001:db8::/16", "ccnx"] {
        let error = ConsumerOptions::default().set("mapping", value).unwrap_err();
        assert!(error.to_string().contains("mapping"), "{error}");
    }
}

/// The user's own keys, and a key at first use, are trusted as for NDN names. An anchor is not: it
/// applies to names below its own, and an hICN name is never below it.
#[test]
fn hicn_keys_are_trusted_by_user_rules() {
    let host = Host::new();
    let router = Router::start(&host);
    let (one, other) = (session(&router), session(&router));
    let owner = KeyChain::at(host.path("owner"));
    let key = owner.generate(&name("/p"), KeyType::Ecdsa, None).unwrap();
    let signer = owner.signer(&key.name).unwrap();
    let certificate = signer.certificate().map(|certificate| certificate.wire().to_vec());
    let identity = Identity { certificate, ..Identity::new(signer) };
    let producer =
        Producer::bind_with(&one, name("/p"), identity, producer_options(&[("mapping", MAPPING)]))
            .unwrap();
    producer.publish(&name("/p/a"), content(100_000)).unwrap();
    let read_with = |trust: UserTrust| {
        let mut consumer = Consumer::bind(&other, name("/p"), trust);
        consumer.set("mapping", MAPPING).unwrap();
        read(&consumer, "/p/a")
    };
    let trust = |chain: &KeyChain, anchors: &[std::path::PathBuf]| {
        UserTrust::new(name("/p"), Some(chain.clone()), anchors).unwrap()
    };
    let stranger = KeyChain::at(host.path("stranger"));
    for chain in [&owner, &stranger] {
        assert!(read_with(trust(chain, &[])).unwrap() == content(100_000));
    }
    let certificate = owner.certificate_for(&key.name).unwrap().unwrap();
    let file = host.write("anchor", certificate.wire());
    let error = read_with(trust(&stranger, &[file])).unwrap_err();
    assert!(error.to_string().contains("cannot be verified"), "{error}");
}
