//! hICN packets between routers, and from public hICN programs.

use std::io::Read as _;
use std::net::UdpSocket;

use serde_json::Value;
use weir_hicn::{HicnName, HicnView, Hop, from_tlv, updated_label};
use weir_tests::sockets::{self, content, name, producer_with, session};
use weir_tests::{Host, Router, TEST_TIMEOUT, random_file, sha256_hex, wait_until};
use weir_transport::NameMapping;
use weir_wire::{Interest, UriStyle};

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
    // Everything that left over the face were hICN packets: 60 bytes for each Interest.
    assert_eq!(count("outBytes"), 60 * count("outInterests"), "{face}");
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
    host.write("folder/a", b"text");
    let refused = far.router.weir(&["put", "folder", "/folder", "--mapping", MAPPING]).failure();
    assert!(refused.contains("a directory has no hICN names"), "{refused}");
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
