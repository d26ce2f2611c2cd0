//! A router with faces of both kinds: hICN packets on one side, NDN packets on the other.

use std::io::{BufRead as _, Read as _};
use std::sync::Arc;
use std::thread;

use serde_json::Value;
use weir_crypto::{KeySigner, KeyType, PrivateKey, verifier_from_spki};
use weir_security::Verifier;
use weir_socket::{Consumer, Identity, Producer, Session};
use weir_tests::sockets::{content, name, producer_options, session};
use weir_tests::{Host, Router};

/// The mapping of the producer in the network of hICN, and of that in the network of NDN.
const BEHIND_HICN: &str = "hicn:2001:db8:1::/48";
const BEHIND_NDN: &str = "hicn:2001:db8:2::/48";

/// Five routers. The border is between two consumers and two producers, and reaches one of each by
/// hICN packets and one by NDN packets.
struct Network {
    border: Router,
    consumers: [Router; 2],
    hicn_producer: Router,
    ndn_producer: Router,
    /// The border's faces to the routers of both producers.
    producer_faces: [String; 2],
}

impl Network {
    fn start(host: &Host) -> Self {
        let start_with_hicn = |socket: &str| {
            let port = host.free_port();
            let file = format!("{socket}.toml");
            let config = format!("[faces]\nhicn_udp = [\"127.0.0.1:{port}\"]\n");
            host.write(&file, config.as_bytes());
            let router = Router::start_at_with(host, socket, &["--config", &file]);
            (router, format!("hicn+udp4://127.0.0.1:{port}"))
        };
        let (border, border_uri) = start_with_hicn("border");
        let (hicn_producer, hicn_face) = start_with_hicn("far-hicn");
        let ndn_producer = Router::start_at(host, "far-ndn");
        border.add_route(BEHIND_HICN, &hicn_face);
        let ndn_face = ndn_producer.udp();
        border.add_route(BEHIND_NDN, &ndn_face);
        let consumers = [("near-ndn", border.udp()), ("near-hicn", border_uri)];
        let consumers = consumers.map(|(socket, uri)| {
            let router = Router::start_at(host, socket);
            for prefix in [BEHIND_HICN, BEHIND_NDN] {
                router.add_route(prefix, &uri);
            }
            router
        });
        let producer_faces = [hicn_face, ndn_face];
        Self { border, consumers, hicn_producer, ndn_producer, producer_faces }
    }

    /// A counter of one of the border's faces to the producers.
    fn count(&self, face: usize, key: &str) -> u64 {
        let faces = self.border.weir_json(&["face", "list"]);
        let mut faces = faces.as_array().expect("faces").iter();
        let uri = &self.producer_faces[face];
        let face: &Value = faces.find(|face| face["uri"] == **uri).expect("the face");
        face[key].as_u64().expect("a number")
    }
}

fn key_pair() -> (Identity, Arc<dyn Verifier>) {
    let key = PrivateKey::generate(KeyType::Ecdsa).unwrap();
    let verifier = verifier_from_spki(&key.public_key().unwrap()).unwrap();
    (Identity::new(KeySigner::new(key, name("/p/KEY/1"))), verifier.into())
}

fn producer(session: &Session, identity: Identity, mapping: &str, format: &str) -> Producer {
    let options = [("mapping", mapping), ("signature_format", format), ("segment_size", "1000")];
    Producer::bind_with(session, name("/p"), identity, producer_options(&options)).unwrap()
}

fn consumer(session: &Session, verifier: &Arc<dyn Verifier>, mapping: &str) -> Consumer {
    let mut consumer = Consumer::bind(session, name("/p"), verifier.clone());
    consumer.set("mapping", mapping).unwrap();
    consumer
}

/// Both consumers fetch from both producers, and the border caches what it has translated.
#[test]
fn objects_cross_both_ways() {
    let host = Host::new();
    let network = Network::start(&host);
    let (identity, verifier) = key_pair();
    let far = [session(&network.hicn_producer), session(&network.ndn_producer)];
    let near = network.consumers.each_ref().map(session);
    for (face, mapping, format) in [(0, BEHIND_HICN, "hicn"), (1, BEHIND_NDN, "ndn")] {
        let producer = producer(&far[face], identity.clone(), mapping, format);
        let object = name(&format!("/p/{format}"));
        producer.publish(&object, content(300_000)).unwrap();
        let mut asked = None;
        for session in &near {
            let mut octets = Vec::new();
            let mut reader = consumer(session, &verifier, mapping).fetch(&object).unwrap();
            reader.read_to_end(&mut octets).unwrap();
            assert!(reader.is_verified() && octets == content(300_000), "{mapping}");
            let interests = network.count(face, "out_interests");
            assert!(interests >= 300, "{interests}");
            // Metadata stay fresh for a short time only, so they may be requested again.
            assert!(asked.is_none_or(|asked| interests - asked < 10), "{asked:?}, {interests}");
            asked = Some(interests);
        }
    }
    assert_eq!(network.count(0, "in_nacks"), 0);
}

/// Consumers of both kinds follow an object of the hICN producer while it grows.
#[test]
fn channel_of_hicn_producer_is_followed() {
    const MESSAGES: u64 = 50;
    let message = |number: u64| format!("message {number}");
    let host = Host::new();
    let network = Network::start(&host);
    let (identity, verifier) = key_pair();
    let there = session(&network.hicn_producer);
    let producer = producer(&there, identity, BEHIND_HICN, "hicn");
    let channel = name("/p/channel");
    let mut live = producer.publish_live(&channel).unwrap();
    live.append(message(0).as_bytes()).unwrap();
    let near = network.consumers.each_ref().map(session);
    let readers = near.each_ref().map(|session| {
        let mut reader = consumer(session, &verifier, BEHIND_HICN).fetch(&channel).unwrap();
        // It follows from the first message on.
        assert_eq!(reader.fill_buf().unwrap(), message(0).as_bytes());
        thread::spawn(move || {
            let mut messages = Vec::new();
            loop {
                let octets = reader.fill_buf().unwrap().to_vec();
                if octets.is_empty() {
                    break (messages, reader.is_verified());
                }
                reader.consume(octets.len());
                messages.push(String::from_utf8(octets).unwrap());
            }
        })
    });
    for number in 1..MESSAGES {
        live.append(message(number).as_bytes()).unwrap();
        thread::sleep(std::time::Duration::from_millis(5));
    }
    live.finish().unwrap();
    for reader in readers {
        let (messages, is_verified) = reader.join().unwrap();
        assert!(messages == (0..MESSAGES).map(message).collect::<Vec<_>>(), "{messages:?}");
        assert!(is_verified);
    }
}
