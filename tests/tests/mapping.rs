//! Sockets with mapped names (hICN), over a real router.

use std::io::{self, BufRead as _, Read as _};
use std::sync::Arc;
use std::thread;

use weir_crypto::{KeyChain, KeySigner, KeyType, PrivateKey, UserTrust, verifier_from_spki};
use weir_hicn::{HicnName, NativeData};
use weir_security::{DigestSigner, Verifier, verify_data};
use weir_socket::{Consumer, ConsumerOptions, Identity, Offer, Producer, Session, SocketError};
use weir_tests::sockets::{
    self, content, error_of, name, producer_options, producer_with, session,
};
use weir_tests::{Host, Router, TEST_TIMEOUT};
use weir_transport::NameMapping;
use weir_wire::{DataView, Interest, Name, tlv};

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
    // The request contains the application's name.
    let request = producer.recv_timeout(TEST_TIMEOUT).unwrap().unwrap();
    assert_eq!(*request.name(), name("/p/a"));
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
/// applies to names below its own, and an hICN name is never below it. The certificate in the
/// metadata names the key of an hICN signature by its digest.
#[test]
fn hicn_names_are_trusted_by_user_rules() {
    let host = Host::new();
    let router = Router::start(&host);
    let (one, other) = (session(&router), session(&router));
    let owner = KeyChain::at(host.path("owner"));
    let key = owner.generate(&name("/p"), KeyType::Ecdsa, None).unwrap();
    let signer = owner.signer(&key.name).unwrap();
    let certificate = signer.certificate().map(|certificate| certificate.wire().to_vec());
    let identity = Identity { certificate, ..Identity::new(signer) };
    let anchor = owner.certificate_for(&key.name).unwrap().unwrap();
    let anchor = host.write("anchor", anchor.wire());
    for format in ["ndn", "hicn"] {
        let options = [("mapping", MAPPING), ("signature_format", format)];
        let options = producer_options(&options);
        let producer = Producer::bind_with(&one, name("/p"), identity.clone(), options).unwrap();
        let uri = format!("/p/{format}");
        producer.publish(&name(&uri), content(100_000)).unwrap();
        let stranger = KeyChain::at(host.path(&format!("stranger-{format}")));
        let read_with = |chain: &KeyChain, anchors: &[std::path::PathBuf]| {
            let trust = UserTrust::new(name("/p"), Some(chain.clone()), anchors).unwrap();
            let mut consumer = Consumer::bind(&other, name("/p"), trust);
            consumer.set("mapping", MAPPING).unwrap();
            read(&consumer, &uri)
        };
        for chain in [&owner, &stranger] {
            assert!(read_with(chain, &[]).unwrap() == content(100_000), "{format}");
        }
        let error = read_with(&stranger, std::slice::from_ref(&anchor)).unwrap_err();
        assert!(error.to_string().contains("cannot be verified"), "{format}: {error}");
    }
}

/// A key and its verifier.
fn key_pair(key_type: KeyType) -> (Identity, Arc<dyn Verifier>) {
    let key = PrivateKey::generate(key_type).unwrap();
    let verifier = verifier_from_spki(&key.public_key().unwrap()).unwrap();
    (Identity::new(KeySigner::new(key, name("/p/KEY/1"))), verifier.into())
}

fn signed_producer(session: &Session, identity: Identity, options: &[(&str, &str)]) -> Producer {
    let options = [&[("mapping", MAPPING), ("signature_format", "hicn")], options].concat();
    Producer::bind_with(session, name("/p"), identity, producer_options(&options)).unwrap()
}

fn express(consumer: &Consumer, name: &Name) -> Result<Vec<u8>, SocketError> {
    let interest = Interest::new(name.clone()).nonce(1).encode();
    consumer.express(&interest)?.wait().map(|packet| packet.to_vec())
}

#[test]
fn signs_once_for_both_sides_of_a_border() {
    let router = Router::on_new_host();
    let (one, other) = (session(&router), session(&router));
    for key_type in [KeyType::Ecdsa, KeyType::Ed25519, KeyType::Rsa] {
        let (identity, verifier) = key_pair(key_type);
        for (signs, is_native) in [("segments", true), ("manifest", false)] {
            let options = [("signs", signs), ("segment_size", "1000")];
            let producer = signed_producer(&one, identity.clone(), &options);
            let mut consumer = Consumer::bind(&other, name("/p"), verifier.clone());
            consumer.set("mapping", MAPPING).unwrap();
            for len in [0, 1, 2000, 300_000] {
                let uri = format!("/p/{key_type}/{signs}/{len}");
                let versioned = producer.publish(&name(&uri), content(len)).unwrap();
                assert!(read(&consumer, &uri).unwrap() == content(len), "{uri}");
                let mapping: NameMapping = MAPPING.parse().unwrap();
                let last = len.saturating_sub(1) as u64 / 1000;
                let mut segment = mapping.version_prefix(versioned.as_view());
                let first = segment.clone().append_segment(0).clone();
                let metadata = mapping.metadata_interest(name(&uri).as_view()).0;
                for (packet, is_last) in [
                    (first, last == 0),
                    (segment.append_segment(last).clone(), true),
                    (metadata, true),
                ] {
                    let is_metadata = packet == mapping.metadata_interest(name(&uri).as_view()).0;
                    let packet = express(&consumer, &packet).unwrap();
                    let data = DataView::decode(&packet).unwrap();
                    let is_signed = is_native || is_metadata || last < 2;
                    assert_eq!(NativeData::of(&data).is_some(), is_signed, "{uri}");
                    if is_signed {
                        assert_eq!(verify_data(&data, &*verifier), Ok(()), "{uri}");
                        assert_eq!(data.final_block_id().is_some(), is_last, "{uri}");
                    }
                }
            }
        }
    }
}

#[test]
fn hicn_signatures_need_names_and_keys_of_hicn() {
    let router = Router::on_new_host();
    let session = session(&router);
    let (identity, _) = key_pair(KeyType::Ecdsa);
    let unmapped = producer_options(&[("signature_format", "hicn")]);
    let error = Producer::bind_with(&session, name("/p"), identity, unmapped).err().unwrap();
    assert!(error.to_string().contains("needs a mapping"), "{error}");
    let producer = signed_producer(&session, Identity::new(DigestSigner), &[]);
    let error = producer.publish(&name("/p/a"), content(1)).unwrap_err();
    assert!(error.to_string().contains("need a key"), "{error}");
}

/// An object for programs of hICN: segments below the address, and nothing else.
#[test]
fn publishes_directly_at_an_address() {
    let router = Router::on_new_host();
    let (one, other) = (session(&router), session(&router));
    let prefix = HicnName::parse_uri("hicn:2001:db8:7::/48").unwrap().unwrap();
    let address = |uri: &str| HicnName::parse_uri(uri).unwrap().unwrap();
    let (identity, verifier) = key_pair(KeyType::Ecdsa);
    let options = [("mapping", MAPPING), ("signature_format", "hicn"), ("segment_size", "1000")];
    let options = producer_options(&[&options[..], &[("request_wait", "0s")]].concat());
    let producer = Producer::bind_with(&one, prefix.clone(), identity, options).unwrap();
    let raw = Consumer::bind(&other, prefix, verifier.clone());
    for len in [3500, 1000, 0] {
        let object = address(&format!("hicn:2001:db8:7::{len}"));
        assert_eq!(producer.publish(&object, content(len)).unwrap(), object);
        let (mut octets, mut is_last, mut segment) = (Vec::new(), false, 0);
        while !is_last {
            let name = object.clone().append_segment(segment).clone();
            let interest = Interest::new(name).nonce(1).must_be_fresh(true).encode();
            let packet = raw.express(&interest).unwrap().wait().unwrap();
            let data = DataView::decode(&packet).unwrap();
            assert_eq!(verify_data(&data, &*verifier), Ok(()));
            octets.extend_from_slice(data.content);
            is_last = data.final_block_id().is_some();
            segment += 1;
        }
        assert!(octets == content(len) && segment == (len as u64).div_ceil(1000).max(1));
    }
    let object = address("hicn:2001:db8:7::3500");
    let metadata = object.clone().append_segment(u32::MAX.into()).clone();
    assert!(matches!(express(&raw, &metadata), Err(SocketError::NoRoute(_))));
    for error in [
        producer.publish_live(&object).err().unwrap(),
        producer.offer(&object, content(1)).err().unwrap(),
    ] {
        assert!(error.to_string().contains("has no versions"), "{error}");
    }
    let outside = HicnName::parse_uri("hicn:2001:db8:8::1").unwrap().unwrap();
    let error = producer.publish(&outside, content(1)).unwrap_err();
    assert!(matches!(error, SocketError::OutsidePrefix { .. }), "{error}");
}

fn next(reader: &mut weir_socket::Reader) -> Option<(u64, Vec<u8>)> {
    let octets = reader.fill_buf().unwrap().to_vec();
    let segment = reader.segment()?;
    reader.consume(octets.len());
    (!octets.is_empty()).then_some((segment, octets))
}

fn rest(mut reader: weir_socket::Reader) -> Vec<(u64, Vec<u8>)> {
    std::iter::from_fn(|| next(&mut reader)).collect()
}

fn messages(numbers: std::ops::Range<u64>) -> Vec<(u64, Vec<u8>)> {
    numbers.map(|number| (number, format!("message {number}").into_bytes())).collect()
}

#[test]
fn growing_objects_have_hicn_names() {
    let host = Host::new();
    let router = Router::start(&host);
    let (one, other) = (session(&router), session(&router));
    let (identity, verifier) = key_pair(KeyType::Ed25519);
    for format in ["ndn", "hicn"] {
        // Routers never answer with the metadata of an earlier version.
        let fresh = ("metadata_freshness", "0s");
        let options = [("mapping", MAPPING), ("signature_format", format), fresh];
        let producer =
            Producer::bind_with(&one, name("/p"), identity.clone(), producer_options(&options))
                .unwrap();
        let object = name(&format!("/p/{format}"));
        let consumer = |options: &[(&str, &str)]| {
            let mut consumer = Consumer::bind(&other, name("/p"), verifier.clone());
            consumer.set("mapping", MAPPING).unwrap();
            options.iter().for_each(|(option, value)| consumer.set(option, value).unwrap());
            consumer
        };
        let mut live = producer.publish_live(&object).unwrap();
        let mut early = consumer(&[]).fetch_newest(&object).unwrap();
        early.metadata().unwrap();
        let early = thread::spawn(move || rest(early));
        let append = |live: &mut weir_socket::LiveWriter, numbers: std::ops::Range<u64>| {
            for (number, message) in messages(numbers) {
                assert_eq!(live.next_segment(), number);
                live.append(&message).unwrap();
                thread::sleep(std::time::Duration::from_millis(5));
            }
        };
        append(&mut live, 0..20);
        let mut late = consumer(&[]).fetch_newest(&object).unwrap();
        assert_eq!(next(&mut late), messages(19..20).pop());
        append(&mut live, 20..40);
        live.finish().unwrap();
        assert_eq!(early.join().unwrap(), messages(0..40));
        assert_eq!(rest(late), messages(20..40));
        assert_eq!(rest(consumer(&[]).fetch(&object).unwrap()), messages(0..40));
        assert!(producer.recv_timeout(std::time::Duration::ZERO).unwrap().is_none());
        // A writer that is dropped leaves no object, and a newer version ends its readers.
        let mut dropped = producer.publish_live(&object).unwrap();
        append(&mut dropped, 0..1);
        let quick = [("lifetime", "300ms")];
        let mut reader = consumer(&quick).fetch_newest(&object).unwrap();
        assert_eq!(next(&mut reader), messages(0..1).pop());
        drop(dropped);
        let versioned = producer.publish(&object, content(10)).unwrap();
        let mut octets = Vec::new();
        let error = error_of(reader.read_to_end(&mut octets));
        assert!(error.to_string().contains(&versioned.to_string()), "{error}");
        let mut octets = Vec::new();
        consumer(&[]).fetch(&versioned).unwrap().read_to_end(&mut octets).unwrap();
        assert!(octets == content(10));
    }
}

/// A client offers an object, and the server fetches it and answers, each below its own prefix.
#[test]
fn offers_cross_with_hicn_names() {
    const CLIENT: &str = "hicn:2001:db8:8::/48";
    let router = Router::on_new_host();
    let (one, other) = (session(&router), session(&router));
    for format in ["ndn", "hicn"] {
        let (identity, verifier) = key_pair(KeyType::Ecdsa);
        let bind = |session: &Session, prefix: &str, mapping: &str| {
            // Offers wait while their receiver fetches.
            let wait = ("request_wait", "10s");
            let options = [("mapping", mapping), ("signature_format", format), wait];
            let (prefix, options) = (name(prefix), producer_options(&options));
            Producer::bind_with(session, prefix, identity.clone(), options).unwrap()
        };
        let consumer = |session: &Session, prefix: &str, mapping: &str| {
            let mut consumer = Consumer::bind(session, name(prefix), verifier.clone());
            consumer.set("mapping", mapping).unwrap();
            consumer
        };
        let (server, client) = (bind(&one, "/p", MAPPING), bind(&other, "/c", CLIENT));
        let upload = client.offer(&name("/c/upload"), content(50_000)).unwrap();
        assert_eq!(client.offer_of(&name("/c/upload")).unwrap().unwrap().name(), upload.name());
        let answer = consumer(&other, "/p", MAPPING).send(&name("/p/inbox"), &upload).unwrap();
        let request = server.recv_timeout(TEST_TIMEOUT).unwrap().unwrap();
        assert_eq!(*request.name(), name("/p/inbox"));
        let offer = request.offer().unwrap().unwrap();
        assert_eq!(offer.name(), upload.name());
        let versioned = offer.name().to_string();
        assert!(read(&consumer(&one, "/c", CLIENT), &versioned).unwrap() == content(50_000));
        server.answer(&request, b"stored").unwrap();
        let answer = answer.wait().unwrap();
        consumer(&other, "/p", MAPPING).verify(&answer).unwrap();
        let data = DataView::decode(&answer).unwrap();
        assert_eq!(data.content, b"stored");
        assert_eq!(NativeData::of(&data).is_some(), format == "hicn");
        // Another offer has another name.
        let second = client.offer(&name("/c/upload"), content(60_000)).unwrap();
        let pending = consumer(&other, "/p", MAPPING).send(&name("/p/inbox"), &second).unwrap();
        let request = server.recv_timeout(TEST_TIMEOUT).unwrap().unwrap();
        server.refuse(&request).unwrap();
        assert!(matches!(pending.wait(), Err(SocketError::NoRoute(_))));
        // An offer of what the server itself serves is useless.
        let own = server.offer(&name("/p/own"), content(1)).unwrap();
        let _pending = consumer(&other, "/p", MAPPING).send(&name("/p/inbox"), &own).unwrap();
        let request = server.recv_timeout(TEST_TIMEOUT).unwrap().unwrap();
        assert!(request.offer().unwrap().unwrap_err().to_string().contains("useless"));
    }
}

#[test]
fn false_payloads_are_dropped_and_counted() {
    let router = Router::on_new_host();
    let (one, other) = (session(&router), session(&router));
    let producer = mapped_producer(&one, "/p", &[("request_wait", "1m")]);
    let raw = consumer(&other, "/32=hicn", "identity");
    let mapping: NameMapping = MAPPING.parse().unwrap();
    let element = |uri: &str| mapping.metadata_payload(name(uri).as_view());
    let nonces = std::cell::Cell::new(0);
    let interest = |uri: &str, element: &[u8], lifetime_ms: u64| {
        let network = mapping.metadata_interest(name(uri).as_view()).0;
        nonces.set(nonces.get() + 1);
        let plain = Interest::new(network).nonce(nonces.get());
        let plain = plain.lifetime_ms(lifetime_ms).encode();
        let body = tlv::read_single_of(&plain, tlv::INTEREST).unwrap();
        let mut writer = tlv::Writer::new();
        writer.tlv(tlv::INTEREST, &[body, element].concat());
        writer.into_vec()
    };
    let mut truncated = tlv::Writer::new();
    let whole = element("/p/b");
    let payload = tlv::read_single_of(&whole, tlv::HICN_PAYLOAD).unwrap();
    truncated.tlv(tlv::HICN_PAYLOAD, &payload[..payload.len() - 1]);
    let false_ones =
        [interest("/p/a", &element("/p/b"), 500), interest("/p/b", truncated.as_slice(), 500)];
    for interest in &false_ones {
        let ended = raw.express(interest).unwrap().wait();
        assert!(matches!(ended, Err(SocketError::TimedOut(_))), "{ended:?}");
    }
    assert!(producer.recv_timeout(std::time::Duration::ZERO).unwrap().is_none());
    let stats = producer.stats().unwrap();
    assert!(stats.false_payloads >= 2, "{stats:?}");
    // A genuine Interest for the same name is received.
    let pending = raw.express(&interest("/p/a", &element("/p/a"), 60_000)).unwrap();
    let request = producer.recv_timeout(TEST_TIMEOUT).unwrap().unwrap();
    assert_eq!((request.name(), request.parameters()), (&name("/p/a"), None));
    producer.publish(request.name(), content(10)).unwrap();
    assert!(pending.wait().is_ok());
    // Without a payload there is only the name of the network, unless the object was published.
    let _pending = raw.express(&interest("/p/c", &[], 60_000)).unwrap();
    let request = producer.recv_timeout(TEST_TIMEOUT).unwrap().unwrap();
    assert_eq!(*request.name(), mapping.version_prefix(name("/p/c").as_view()));
    let versioned = producer.publish(&name("/p/a"), content(10)).unwrap();
    let mut segment = mapping.version_prefix(versioned.as_view());
    let segment = Interest::new(segment.append_segment(7).clone()).nonce(1).encode();
    let _pending = raw.express(&segment).unwrap();
    let request = producer.recv_timeout(TEST_TIMEOUT).unwrap().unwrap();
    assert_eq!(*request.name(), name("/p/a"));
    // Offers and names that do not fit into a packet.
    let consumer = consumer(&other, "/p", MAPPING);
    let mut long = name("/p");
    long.append_generic(&[b'x'; 8700]);
    let own = producer.offer(&name("/p/own"), content(1)).unwrap();
    let error = consumer.send(&long, &Offer::decode(own.packet().clone()).unwrap()).err().unwrap();
    assert!(matches!(error, SocketError::TooLong { .. }), "{error}");
}
