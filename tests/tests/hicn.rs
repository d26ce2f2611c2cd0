//! hICN packets between routers, and from public hICN programs.

use std::collections::HashMap;
use std::io::{ErrorKind, Read as _};
use std::net::{Ipv6Addr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::Value;
use weir_crypto::{KeySigner, KeyType, PrivateKey, verifier_from_spki};
use weir_hicn::{
    Flags, HEADER_SIZE, Header, HicnName, HicnView, Hop, NativeData, from_tlv, updated_label,
};
use weir_security::{Verifier, sha256};
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
    let config = format!("[[face]]\nuri = \"{uri}\"\nroutes = [\"{MAPPING}\"]\n{face_options}");
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
    assert!(seen == 8 && count("in_data") > 1100, "{face}");
    // Everything that left over the face were hICN packets: 60 bytes for each Interest. Those for
    // metadata carry a name as well.
    let names = count("out_bytes") - 60 * count("out_interests");
    assert!((8 * 20..100 * 40).contains(&names), "{face}");
    assert!(count("in_interests") + count("in_nacks") == 0, "{face}");
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
    assert!(near.face(&far.uri())["in_data"].as_u64() > Some(38));
    // A directory, with one below it.
    for file in ["folder/a", "folder/below/b"] {
        host.write(file, file.as_bytes());
    }
    const OTHER: &str = "hicn:2001:db8:9::/48";
    near.router.add_route(OTHER, &far.uri());
    let put = ["folder", "/folder", "--mapping", OTHER];
    let (_folder, _) = far.router.put_object(&put);
    let get = ["get", "/folder", "-o", "copy", "--mapping", OTHER];
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
    let interest = Interest::new(first.clone()).lifetime_ms(1000).encode();
    let interest = from_tlv(&interest, &hop).unwrap();
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
    let face_id = face["face_id"].as_u64().unwrap();
    assert_eq!(view.header.path_label, updated_label(0, face_id));
    assert_eq!(
        (face["in_interests"].as_u64(), face["persistency"].as_str()),
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
            let name = HicnName { address: address.parse().unwrap(), suffix: segment };
            let wire = Interest::new(name.to_name()).lifetime_ms(1000).must_be_fresh(true);
            let interest = from_tlv(&wire.encode(), &hop).unwrap();
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
    let put = ["source", address, "--mapping", MAPPING, "--segment-size", "1000B"];
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
        (&["source", "hicn:2001:db8:9::5"], "--mapping hicn:2001:db8:9::/64"),
        (&["source", "/file", "--mapping", "hicn:2001:d00::/20"], "16, 32, 48 or 64 bits"),
        (&[&put[..], &signed, &["--sign", "digest"]].concat(), "leave out --sign digest"),
    ] {
        let refused = border.router.weir(&[&["put"][..], arguments].concat()).failure();
        assert!(refused.contains(problem), "{refused}");
    }
}

/// `weir put` prints how to fetch what it serves.
#[test]
fn prints_the_command_to_fetch() {
    let host = Host::new();
    let border = Border::start(&host, "border");
    host.write("source", &content(2500));
    for (name, options, expected) in [
        ("/file", &[][..], format!("weir get /file --mapping {MAPPING}\n")),
        (
            "hicn:2001:db8:7::5",
            &["--signature-format", "hicn"],
            format!("weir get hicn:2001:db8:7::5 --mapping {MAPPING} --hicn-key FILE\n"),
        ),
    ] {
        let put = ["put", "source", name, "--mapping", MAPPING];
        let producer = border.router.spawn(&[&put[..], options].concat());
        producer.wait_for_output(&expected);
    }
}

/// The names of pings are not hICN names.
#[test]
fn ping_refuses_hicn() {
    let host = Host::new();
    let border = Border::start(&host, "border");
    let uri = border.uri();
    for target in [&[&uri[..]][..], &["hicn:b001::33"], &["/a", "--router", &uri]] {
        let refused = border.router.weir(&[&["ping"][..], target].concat()).failure();
        assert!(
            refused.contains("not hICN names") || refused.contains("cannot carry"),
            "{refused}"
        );
    }
}

/// A file with hICN's signature, fetched by the name of its version: its metadata confirm the end,
/// and the producer denies the segment behind it.
#[test]
fn version_has_a_signed_end() {
    let host = Host::new();
    let border = Border::start(&host, "border");
    host.write("source", &content(50_000));
    let put = ["source", "/file", "--mapping", MAPPING, "--segment-size", "1000B"];
    let signed = ["--signature-format", "hicn"];
    let (_producer, versioned) = border.router.put_object(&[&put[..], &signed].concat());
    let get = ["get", &versioned, "--mapping", MAPPING, "-o", "out", "--json"];
    let report = border.router.weir(&get).success().json();
    assert_eq!(report["unsigned_end"], false, "{report}");
    assert!(std::fs::read(host.path("out")).unwrap() == content(50_000));
}

/// Several producers use the prefix of one mapping at one router: a directory with more addresses
/// than are registered one by one, files with names and with addresses, and a longer prefix.
#[test]
fn producers_share_the_prefix_of_a_mapping() {
    let host = Host::new();
    let border = Border::start(&host, "border");
    for file in 0..40 {
        host.write(&format!("folder/{file}"), format!("file {file}").as_bytes());
    }
    let names = ["/folder", "/one", "/two", "hicn:2001:db8:7::5", "hicn:2001:db8:7:1::6", "/below"];
    let mapping_of = |at: usize| if at == 5 { "hicn:2001:db8:7:1::/64" } else { MAPPING };
    let producers: Vec<_> = (0..names.len())
        .map(|at| {
            let file = format!("source{at}");
            host.write(&file, &content(2500 + at));
            let source = if at == 0 { "folder" } else { &file };
            let options = ["--mapping", mapping_of(at), "--freshness", "10ms"];
            border.router.put_object(&[&[source, names[at]][..], &options].concat())
        })
        .collect();
    // In both orders, as the router may try the producers in turn.
    for (turn, at) in (0..names.len()).chain((0..names.len()).rev()).enumerate() {
        let copy = format!("copy{turn}");
        let get = ["get", names[at], "--mapping", mapping_of(at), "-o", &copy];
        border.router.weir(&get).success();
        let (file, expected) = match at {
            0 => (format!("{copy}/39"), b"file 39".to_vec()),
            _ => (copy, content(2500 + at)),
        };
        assert!(std::fs::read(host.path(&file)).unwrap() == expected, "{}", names[at]);
    }
    for (process, name) in &producers {
        assert!(!process.log().contains("another producer"), "{name}: {}", process.log());
    }
    // The same name, or address, twice.
    for name in ["/one", "hicn:2001:db8:7::5"] {
        let (second, _) = border.router.put_object(&["source2", name, "--mapping", MAPPING]);
        second.wait_for_output("another producer already serves");
    }
    // A producer that starts again is alone, although the router's store has fresh packets.
    for name in ["/again", "hicn:2001:db8:7::7"] {
        let put = ["source2", name, "--mapping", MAPPING];
        let (first, _) = border.router.put_object(&put);
        let get = ["get", name, "--mapping", MAPPING, "-o", "again", "--force"];
        border.router.weir(&get).success();
        first.stop();
        let (second, _) = border.router.put_object(&put);
        assert!(!second.log().contains("another producer"), "{name}: {}", second.log());
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

/// The address of the producers that are not Weir.
const STREAM: &str = "b001::1";
const STREAM_PREFIX: &str = "/32=hicn/8=%B0%01";
/// The key of the stream "ec" in `bytestream.jsonl`.
const EC_KEY: &str = "-----BEGIN PUBLIC KEY-----
MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE8QHt4CLyHxYuLP3TBdyXUigjVwn4
FbSuy3aRnDNOWiIxtKPOlGWW2Tlfr5Ec+ZIn9aKPfBDeWA+2++AemEvOnA==
-----END PUBLIC KEY-----
";

/// A producer as hICN's library has one: it answers Interests from a table of packets.
struct StreamProducer {
    port: u16,
    is_stopped: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl StreamProducer {
    fn start(packets: Vec<Vec<u8>>) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        let port = socket.local_addr().unwrap().port();
        let is_stopped = Arc::new(AtomicBool::new(false));
        let stop = is_stopped.clone();
        let thread = std::thread::spawn(move || serve_stream(&socket, &packets, &stop));
        Self { port, is_stopped, thread: Some(thread) }
    }

    fn uri(&self) -> String {
        format!("hicn+udp4://127.0.0.1:{}", self.port)
    }
}

impl Drop for StreamProducer {
    fn drop(&mut self) {
        self.is_stopped.store(true, Ordering::Relaxed);
        self.thread.take().map(JoinHandle::join).unwrap().unwrap();
    }
}

fn serve_stream(socket: &UdpSocket, packets: &[Vec<u8>], stop: &AtomicBool) {
    let suffix_of = |packet: &Vec<u8>| HicnView::decode(packet).unwrap().header.name.suffix;
    let packets: HashMap<u32, &Vec<u8>> = packets.iter().map(|it| (suffix_of(it), it)).collect();
    let mut datagram = [0; 2000];
    while !stop.load(Ordering::Relaxed) {
        let (len, from) = match socket.recv_from(&mut datagram) {
            Ok(received) => received,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                continue;
            }
            Err(error) => panic!("{error}"),
        };
        let header = HicnView::decode(&datagram[..len]).unwrap().header;
        let Some(packet) = packets.get(&header.name.suffix) else { continue };
        let mut answer = packet.to_vec();
        answer[24..40].copy_from_slice(&header.locator.octets());
        socket.send_to(&answer, from).unwrap();
    }
}

/// A stream of the public library.
fn captured_stream(stream: &str) -> Vec<Vec<u8>> {
    let lines = include_str!("../../core/hicn/tests/vectors/bytestream.jsonl").lines();
    let records = lines.map(|line| serde_json::from_str::<Value>(line).unwrap());
    let of_stream = records.filter(|record| record["stream"] == stream);
    of_stream.map(|record| octets_of(record["hex"].as_str().unwrap())).collect()
}

fn octets_of(hex: &str) -> Vec<u8> {
    let octet = |at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    (0..hex.len()).step_by(2).map(octet).collect()
}

fn stream_packet(suffix: u32, flags: Flags, payload: &[u8]) -> Vec<u8> {
    let header = Header {
        name: HicnName { address: STREAM.parse().unwrap(), suffix },
        locator: Ipv6Addr::UNSPECIFIED,
        flags: flags.with(Flags::DATA),
        hop_limit: 64,
        is_marked: false,
        path_label: 0,
        lifetime_ms: 10_000,
    };
    [&header.encode(&[&[], payload]).unwrap()[..], payload].concat()
}

/// A stream as hICN's library makes it, without signatures: manifests of `per_part` segments, or
/// none. The final segment that it states is too low, as the library's may be.
fn unsigned_stream(content: &[u8], per_part: Option<usize>) -> Vec<Vec<u8>> {
    let segments: Vec<&[u8]> = content.chunks(1200).collect();
    let mut packets = Vec::new();
    let Some(per_part) = per_part else {
        let last = |at| Flags::default().with_if(Flags::LAST, at + 1 == segments.len());
        return (0..segments.len())
            .map(|at| stream_packet(at as u32, last(at), segments[at]))
            .collect();
    };
    let parts = segments.chunks(per_part);
    let count = parts.len();
    for (number, part) in parts.enumerate() {
        let at = packets.len() as u32;
        let listed = part.iter().zip(at + 1..);
        let listed: Vec<_> =
            listed.map(|(octets, at)| stream_packet(at, Flags::default(), octets)).collect();
        let is_last = u8::from(number + 1 == count);
        let mut payload = vec![0x11, 30, 1, is_last, part.len() as u8, 1, 0, 0];
        payload.extend(STREAM.parse::<Ipv6Addr>().unwrap().octets());
        payload.extend(3_u32.to_le_bytes());
        for (packet, suffix) in listed.iter().zip(at + 1..) {
            let mut zeroed = [0; HEADER_SIZE];
            zeroed[8..24].copy_from_slice(&packet[8..24]);
            zeroed[44..48].copy_from_slice(&packet[44..48]);
            payload.extend(suffix.to_be_bytes());
            payload.extend(sha256(&[&zeroed, &packet[HEADER_SIZE..]]));
        }
        packets.push(stream_packet(at, Flags::MANIFEST, &payload));
        packets.extend(listed);
    }
    packets
}

/// `weir get` fetches what programs of hICN's library publish.
#[test]
fn gets_streams_of_public_producers() {
    let host = Host::new();
    host.write("hmac.key", b"secret-of-the-producer\n");
    host.write("other.key", b"secret of another one\n");
    host.write("ec.key", EC_KEY.as_bytes());
    let expected = vec![b'?'; 1000];
    let unsigned = ["--allow-unsigned"];
    let [hmac, other, ec] = ["hmac.key", "other.key", "ec.key"].map(|file| ["--hicn-key", file]);
    for (stream, options) in [("none", &unsigned[..]), ("hmac", &hmac), ("low", &hmac), ("ec", &ec)]
    {
        let router = Router::start_at(&host, stream);
        let producer = StreamProducer::start(captured_stream(stream));
        router.add_route(STREAM_PREFIX, &producer.uri());
        let output = format!("{stream}.out");
        let get = ["get", "hicn:b001::1", "-o", &output, "--json"];
        for wrong in [&other[..], &[][..]] {
            let refused = router.weir(&[&get[..], wrong].concat()).failure();
            let reasons = ["cannot be verified", "not signed", "signature", "which key signed"];
            assert!(reasons.iter().any(|it| refused.contains(it)), "{stream}: {refused}");
        }
        let report = router.weir(&[&get[..], options].concat()).success().json();
        assert_eq!(std::fs::read(host.path(&output)).unwrap(), expected, "{stream}");
        assert_eq!(report["manifest"], true, "{report}");
        assert_eq!(report["unsigned_end"], false, "{report}");
        assert_eq!(report["segments"], 6, "{report}");
        let labels = report["routers"][0]["labels"].as_array().unwrap();
        assert_eq!(labels.len(), 1, "{report}");
    }
}

/// Files of a size that needs many manifests, and without manifests.
#[test]
fn gets_large_streams() {
    for per_part in [Some(30), Some(1), None] {
        let host = Host::new();
        let router = Router::start_at(&host, "router");
        let expected = random_file(&host.path("source"), 1_000_000, 7);
        let content = std::fs::read(host.path("source")).unwrap();
        let producer = StreamProducer::start(unsigned_stream(&content, per_part));
        router.add_route(STREAM_PREFIX, &producer.uri());
        let get = ["get", "hicn:b001::1", "--allow-unsigned", "--json"];
        let report = router.weir(&get).success().json();
        assert_eq!(sha256_hex(&host.path(STREAM)), expected);
        assert_eq!(report["unsigned_end"], per_part.is_none(), "{report}");
        // A socket reads it in order.
        let session = session(&router);
        let mut consumer = sockets::consumer(&session, STREAM_PREFIX);
        consumer.set("verify", "false").unwrap();
        let mut reader = consumer
            .fetch(&name(&format!("{STREAM_PREFIX}{}", "/8=%00%00".repeat(6) + "/8=%00%01")))
            .unwrap();
        let mut octets = Vec::new();
        reader.read_to_end(&mut octets).unwrap();
        assert!(octets == content);
        assert_eq!(reader.is_end_signed(), per_part.is_some());
    }
}
