//! hICN packets between routers, and from public hICN programs.

use std::io::Read as _;
use std::net::UdpSocket;
use std::sync::Arc;

use serde_json::Value;
use weir_crypto::{KeySigner, KeyType, PrivateKey, verifier_from_spki};
use weir_hicn::{Flags, HicnName, HicnView, Hop, NativeData, from_tlv, updated_label};
use weir_security::Verifier;
use weir_socket::{Consumer, Identity, Producer};
use weir_tests::sockets::{self, content, name, producer_options, producer_with, session};
use weir_tests::{Host, Router, TEST_TIMEOUT, random_file, sha256_hex, wait_until};
use weir_transport::NameMapping;
use weir_wire::{DataView, Interest, Name, UriStyle};

const MAPPING: &str = "hicn:2001:db8:7::/48";
/// The names below the prefix of [`MAPPING`].
const PREFIX: &str = "/32=hicn/8=%20%01/8=%0D%B8/8=%00%07";

/// A router with a UDP port for hICN packets.
struct Border {
    router: Router,
    port: u16,
}

impl Border {
    fn start(host: &Host, socket: &str) -> Self {
        let port = host.free_port();
        let config = format!("[faces]\nhicn_udp = [\"127.0.0.1:{port}\"]\n");
        let file = format!("{socket}.toml");
        host.write(&file, config.as_bytes());
        let router = Router::start_at_with(host, socket, &["--config", &file]);
        Self { router, port }
    }

    fn uri(&self) -> String {
        format!("hicn+udp4://127.0.0.1:{}", self.port)
    }

    /// The face to this URI.
    fn face(&self, uri: &str) -> Value {
        let faces = self.router.weir_json(&["face", "list"]);
        let mut faces = faces.as_array().expect("faces").iter();
        faces.find(|face| face["uri"] == uri).unwrap_or_else(|| panic!("no face {uri}")).clone()
    }
}

/// A file crosses two routers that exchange only hICN packets.
fn crosses_two_routers(face_options: &str, threads: &str) {
    let host = Host::new();
    let near_producer = Border::start(&host, "producer");
    let uri = near_producer.uri();
    let config = format!("[[face]]\nuri = \"{uri}\"\nroutes = [\"{PREFIX}\"]\n{face_options}");
    host.write("consumer.toml", config.as_bytes());
    let arguments = ["--config", "consumer.toml", "--threads", threads];
    let near_consumer = Router::start_at_with(&host, "consumer", &arguments);
    wait_until("the route is there", || {
        near_consumer.weir_json(&["route", "list"]).to_string().contains("hicn")
    });
    let near_consumer = Border { router: near_consumer, port: 0 };
    let (here, there) = (session(&near_consumer.router), session(&near_producer.router));
    let mut seen = 0;
    for (signs, segment_size) in [("segments", "8000"), ("manifest", "1000")] {
        let options = [("mapping", MAPPING), ("signs", signs), ("segment_size", segment_size)];
        let producer = producer_with(&there, "/p", &options);
        let uri_of = |len: usize| format!("/p/{signs}/{len}");
        for len in [0, 1, 8001, 1_000_000] {
            producer.publish(&name(&uri_of(len)), content(len)).unwrap();
            let mut consumer = sockets::consumer(&here, "/p");
            consumer.set("mapping", MAPPING).unwrap();
            let mut reader = consumer.fetch(&name(&uri_of(len))).unwrap();
            let mut octets = Vec::new();
            reader.read_to_end(&mut octets).unwrap();
            assert!(reader.is_verified() && octets == content(len), "{}", uri_of(len));
            seen += 1;
        }
    }
    let face = near_consumer.face(&uri);
    let count = |key: &str| face[key].as_u64().expect("a number");
    assert!(seen == 8 && count("inData") > 1100, "{face}");
    // Everything that left over the face were hICN packets: 60 bytes for each Interest. Those for
    // metadata carry a name as well.
    let names = count("outBytes") - 60 * count("outInterests");
    assert!((8 * 20..100 * 40).contains(&names), "{face}");
    assert!(count("inInterests") + count("inNacks") == 0, "{face}");
}

#[test]
fn file_crosses_two_routers() {
    crosses_two_routers("", "1");
}

#[test]
fn file_crosses_two_routers_of_ours_with_tokens() {
    crosses_two_routers("pit_token = \"short\"\n", "2");
}

/// The same by commands.
#[test]
fn file_crosses_by_commands() {
    let host = Host::new();
    let (near, far) = (Border::start(&host, "near"), Border::start(&host, "far"));
    near.router.add_route(PREFIX, &far.uri());
    let expected = random_file(&host.path("source"), 300_000, 1);
    let options = ["--mapping", MAPPING, "--signature-per", "manifest"];
    let (_producer, name) = far.router.put_object(&[&["source", "/file"][..], &options].concat());
    assert!(name.starts_with("/file/"), "{name}");
    near.router.weir(&["get", "/file", "-o", "out", "--mapping", MAPPING]).success();
    assert_eq!(sha256_hex(&host.path("out")), expected);
    assert!(near.face(&far.uri())["inData"].as_u64() > Some(38));
    // A directory, with one below it.
    for file in ["folder/a", "folder/below/b"] {
        host.write(file, file.as_bytes());
    }
    let put = ["folder", "/folder", "--mapping", "hicn:2001:db8:7:5::/64"];
    let (_folder, _) = far.router.put_object(&put);
    let get = ["get", "/folder", "-o", "copy", "--mapping", "hicn:2001:db8:7:5::/64"];
    near.router.weir(&get).success();
    for file in ["folder/a", "folder/below/b"] {
        let copy = host.path(&file.replacen("folder", "copy", 1));
        assert_eq!(std::fs::read(copy).unwrap(), file.as_bytes());
    }
    let address = ["put", "folder", "hicn:2001:db8:7::1", "--mapping", MAPPING];
    let refused = far.router.weir(&address).failure();
    assert!(refused.contains("has room for one file"), "{refused}");
}

/// A peer as simple as hicn-ping: it sends an Interest, and gets the Data at its locator.
#[test]
fn foreign_peer_reads_the_content() {
    let host = Host::new();
    let border = Border::start(&host, "border");
    let there = session(&border.router);
    let producer = producer_with(&there, "/p", &[("mapping", MAPPING)]);
    let versioned = producer.publish(&name("/p/a"), content(5000)).unwrap();
    let mapping: NameMapping = MAPPING.parse().unwrap();
    let mut first = mapping.version_prefix(versioned.as_view());
    first.append_segment(0);
    let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
    peer.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    peer.connect(("127.0.0.1", border.port)).unwrap();
    let locator = "2001:db8:99::5".parse().unwrap();
    let hop = Hop { locator, face: 0, is_marked: false };
    let mut interest = Vec::new();
    from_tlv(&Interest::new(first.clone()).lifetime_ms(1000).encode(), &hop, &mut interest)
        .unwrap();
    peer.send(&interest).unwrap();
    let mut octets = [0; 9000];
    let len = peer.recv(&mut octets).unwrap();
    let view = HicnView::decode(&octets[..len]).unwrap();
    assert!(view.header.is_data());
    assert_eq!(view.header.name, HicnName::from_name(first.as_view()).unwrap());
    assert_eq!(view.header.locator, locator);
    assert_eq!(view.payload, content(5000));
    let uri = format!("hicn+udp4://{}", peer.local_addr().unwrap());
    let face = border.face(&uri);
    let face_id = face["faceId"].as_u64().unwrap();
    assert_eq!(view.header.path_label, updated_label(0, face_id));
    assert_eq!(
        (face["inInterests"].as_u64(), face["persistency"].as_str()),
        (Some(1), Some("on-demand"))
    );
    // `weir packet` shows both forms.
    let hex: String = octets[..len].iter().map(|octet| format!("{octet:02x}")).collect();
    let shown = border.router.host.spawn(&border.uri(), &["packet", "--hex", &hex, "--json"]);
    let shown = shown.finish().success().json();
    assert_eq!(shown["kind"], "hicn");
    assert_eq!(shown["address"], view.header.name.address.to_string());
    assert_eq!(shown["inner"]["name"], first.as_view().uri(UriStyle::Numeric).to_string());
}

/// A key and its verifier.
fn key_pair(key_type: KeyType) -> (Identity, Arc<dyn Verifier>) {
    let key = PrivateKey::generate(key_type).unwrap();
    let verifier = verifier_from_spki(&key.public_key().unwrap()).unwrap();
    (Identity::new(KeySigner::new(key, name("/p/KEY/1"))), verifier.into())
}

/// Data signed once verifies at a foreign peer, which sees only hICN packets, and at our consumer
/// behind another router.
#[test]
fn signatures_verify_on_both_sides() {
    let host = Host::new();
    let (near, far) = (Border::start(&host, "near"), Border::start(&host, "far"));
    near.router.add_route(PREFIX, &far.uri());
    let (here, there) = (session(&near.router), session(&far.router));
    let prefix = HicnName::parse_uri(MAPPING).unwrap().unwrap();
    let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
    peer.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    peer.connect(("127.0.0.1", near.port)).unwrap();
    for (key_type, algorithm) in [(KeyType::Ecdsa, 7), (KeyType::Ed25519, 9), (KeyType::Rsa, 17)] {
        let (identity, verifier) = key_pair(key_type);
        // Segments, with and without a manifest, of objects with names of applications.
        for signs in ["segments", "manifest"] {
            let options = [("mapping", MAPPING), ("signature_format", "hicn"), ("signs", signs)];
            let options = producer_options(&[&options[..], &[("segment_size", "1000")]].concat());
            let producer =
                Producer::bind_with(&there, name("/p"), identity.clone(), options).unwrap();
            let mut consumer = Consumer::bind(&here, name("/p"), verifier.clone());
            consumer.set("mapping", MAPPING).unwrap();
            let uri = name(&format!("/p/{key_type}/{signs}"));
            producer.publish(&uri, content(200_000)).unwrap();
            let mut octets = Vec::new();
            let mut reader = consumer.fetch(&uri).unwrap();
            reader.read_to_end(&mut octets).unwrap();
            assert!(reader.is_verified() && octets == content(200_000), "{uri}");
        }
        // An object for foreign programs.
        let options =
            [("mapping", MAPPING), ("signature_format", "hicn"), ("segment_size", "1000")];
        let producer =
            Producer::bind_with(&there, prefix.clone(), identity, producer_options(&options))
                .unwrap();
        let address = format!("2001:db8:7::{algorithm}");
        let object = HicnName::parse_uri(&format!("hicn:{address}")).unwrap().unwrap();
        producer.publish(&object, content(2500)).unwrap();
        let mut octets = Vec::new();
        for segment in 0..3 {
            let hop = Hop { locator: "2001:db8:99::5".parse().unwrap(), face: 0, is_marked: false };
            let mut interest = Vec::new();
            let name = HicnName { address: address.parse().unwrap(), suffix: segment };
            let wire = Interest::new(name.to_name()).lifetime_ms(1000).must_be_fresh(true);
            from_tlv(&wire.encode(), &hop, &mut interest).unwrap();
            peer.send(&interest).unwrap();
            let mut packet = [0; 9000];
            let len = peer.recv(&mut packet).unwrap();
            let packet = &packet[..len];
            let view = HicnView::decode(packet).unwrap();
            assert_eq!(
                (view.header.name, view.header.flags.has(Flags::LAST)),
                (name, segment == 2)
            );
            let ah = view.ah.unwrap();
            assert_eq!(ah.algorithm.number(), algorithm);
            // What hICN's programs verify (libtransport): all else is zero.
            let payload_at = len - view.payload.len();
            let mut covered = vec![0; len];
            for range in [8..24, 44..48, 60..63, 64..104, payload_at..len] {
                covered[range.clone()].copy_from_slice(&packet[range]);
            }
            assert_eq!(verifier.verify(&[&covered], ah.signature()), Ok(()));
            octets.extend_from_slice(view.payload);
        }
        assert!(octets == content(2500));
    }
}

/// The same by commands, for a file at an address.
#[test]
fn puts_a_file_at_an_address() {
    let host = Host::new();
    let border = Border::start(&host, "border");
    host.write("source", &content(2500));
    let address = "hicn:2001:db8:7::5";
    let put = ["source", address, "--mapping", MAPPING, "--segment-size", "1000"];
    let signed = ["--signature-format", "hicn"];
    let (_producer, shown) = border.router.put_object(&[&put[..], &signed].concat());
    let object = HicnName::parse_uri(address).unwrap().unwrap();
    assert_eq!(shown.parse::<Name>().unwrap(), object);
    let raw = sockets::consumer(&session(&border.router), "/32=hicn");
    let mut octets = Vec::new();
    for segment in 0..3 {
        let interest = Interest::new(object.clone().append_segment(segment).clone()).nonce(1);
        let packet = raw.express(&interest.encode()).unwrap().wait().unwrap();
        let data = DataView::decode(&packet).unwrap();
        assert!(NativeData::of(&data).unwrap().signed_octets().is_some());
        octets.extend_from_slice(data.content);
    }
    assert!(octets == content(2500));
    for (arguments, problem) in [
        (&["source", "/file", "--signature-format", "hicn"][..], "--mapping"),
        (&[&put[..], &["--signature-per", "manifest"]].concat(), "has no manifest"),
        (&["source", "hicn:2001:db8:9::5", "--mapping", MAPPING], "below"),
        (&["source", "hicn:2001:db8:9::/33"], "multiple"),
    ] {
        let refused = border.router.weir(&[&["put"][..], arguments].concat()).failure();
        assert!(refused.contains(problem), "{refused}");
    }
}

#[test]
fn commands_make_hicn_faces() {
    let host = Host::new();
    let (near, far) = (Border::start(&host, "near"), Border::start(&host, "far"));
    near.router.weir(&["face", "create", &far.uri(), "--mtu", "1500"]).success();
    let face = near.face(&far.uri());
    assert_eq!(
        (face["mtu"].as_u64(), face["persistency"].as_str()),
        (Some(1500), Some("persistent"))
    );
    let refused = near.router.weir(&["face", "update", &far.uri(), "--reliability", "on"]);
    assert!(!refused.status.success(), "reliability needs NDN packets");
    near.router.weir(&["face", "destroy", &far.uri()]).success();
}
