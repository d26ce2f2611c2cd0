//! Path labels of hICN, where two routers lead to one producer.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use serde_json::Value;
use weir_base::NS_PER_MS;
use weir_hicn::updated_label;
use weir_netem::LinkConfig;
use weir_real::emulator::{Emulator, EmulatorConfig, UdpEnds};
use weir_tests::{Host, Router, random_file, sha256_hex, wait_until};

const MAPPING: &str = "hicn:2001:db8:7::/48";
/// The names below the prefix of [`MAPPING`].
const PREFIX: &str = "/32=hicn/8=%20%01/8=%0D%B8/8=%00%07";
/// One way, in milliseconds. The first answers of a much longer path would be sent again, and those
/// by the short path arrive first.
const DELAYS_MS: [u64; 2] = [20, 22];

/// A link with a delay, between routers. It runs until it is dropped.
struct Link {
    stop: Arc<AtomicBool>,
    /// For the router that connects, and its address at the other router.
    here: SocketAddr,
    there: SocketAddr,
    thread: Option<JoinHandle<()>>,
}

impl Link {
    fn start(delay_ms: u64, peer: SocketAddr) -> Self {
        let config = LinkConfig { delay_ns: delay_ms * NS_PER_MS, ..LinkConfig::default() };
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let ends = UdpEnds { a: any, b: any, peer_a: None, peer_b: Some(peer) };
        let emulator = Emulator::bind(ends, EmulatorConfig::symmetric(config)).expect("ports");
        let (here, there) = (emulator.local_a(), emulator.local_b());
        let stop = Arc::new(AtomicBool::new(false));
        let is_stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            emulator.run(&is_stopped).expect("the link runs");
        });
        Self { stop, here, there, thread: Some(thread) }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(ended.is_none_or(|ended| ended.is_ok()) || std::thread::panicking());
    }
}

/// A router with a port for hICN packets, and faces with routes to the producer.
fn router(host: &Host, name: &str, port: u16, next_hops: &[SocketAddr]) -> Router {
    let mut config =
        format!("[faces]\nhicn_udp = [\"127.0.0.1:{port}\"]\n[store]\nadmit = false\n");
    for next_hop in next_hops {
        let uri = uri_of(*next_hop);
        config += &format!("[[face]]\nuri = \"{uri}\"\nroutes = [\"{PREFIX}\"]\n");
    }
    let file = format!("{name}.toml");
    host.write(&file, config.as_bytes());
    let router = Router::start_at_with(host, name, &["--config", &file]);
    wait_until("the routes are there", || {
        let routes = router.weir(&["route", "list"]).success().output;
        routes.matches("hicn+udp4").count() >= next_hops.len()
    });
    router
}

fn uri_of(address: SocketAddr) -> String {
    format!("hicn+udp4://{address}")
}

/// The number of the face to an address.
fn face_id(router: &Router, address: SocketAddr) -> u64 {
    let faces = router.weir_json(&["face", "list"]);
    let mut faces = faces.as_array().expect("faces").iter();
    let face = faces.find(|face| face["uri"] == uri_of(address));
    face.and_then(|face| face["face_id"].as_u64()).unwrap_or_else(|| panic!("no face {address}"))
}

/// A router spreads Interests over two others. The consumer distinguishes their Data by label, and
/// measures both.
#[test]
fn labels_distinguish_two_routers() {
    let host = Host::new();
    let address = |port| SocketAddr::from(([127, 0, 0, 1], port));
    let [origin_port, near_port, far_port, port] = [(); 4].map(|()| host.free_port());
    let origin = router(&host, "origin", origin_port, &[]);
    let [near, far] = [("near", near_port), ("far", far_port)]
        .map(|(name, port)| router(&host, name, port, &[address(origin_port)]));
    let links = [near_port, far_port];
    let links: Vec<Link> = DELAYS_MS
        .into_iter()
        .zip(links)
        .map(|(delay_ms, port)| Link::start(delay_ms, address(port)))
        .collect();
    let here = router(&host, "here", port, &[links[0].here, links[1].here]);
    here.weir(&["strategy", "set", PREFIX, "multipath"]).success();
    let expected = random_file(&host.path("source"), 1_000_000, 1);
    let signed = ["--mapping", MAPPING, "--signature-format", "hicn", "--segment-size", "1000B"];
    let (_producer, _) = origin.put_object(&[&["source", "/file"][..], &signed].concat());
    let get = |controller: &str| {
        let arguments = ["get", "/file", "-o", "out", "--mapping", MAPPING, "--json", "--pipeline"];
        let report = here.weir(&[&arguments[..], &[controller]].concat()).success().json();
        assert_eq!(sha256_hex(&host.path("out")), expected);
        std::fs::remove_file(host.path("out")).unwrap();
        report
    };
    // Each router on the way changes the label by the number of the face that the Data leaves over.
    let label_of = |router: &Router, port: u16, link: &Link| {
        let label = updated_label(0, face_id(&origin, address(port)));
        u64::from(updated_label(label, face_id(router, link.there)))
    };
    let mut tries = 0..5;
    let (first, expected_labels) = loop {
        let report = get("cubic");
        let labels = [label_of(&near, near_port, &links[0]), label_of(&far, far_port, &links[1])];
        if labels[0] != labels[1] {
            break (report, labels);
        }
        // The numbers of faces depend on earlier connections, and happen to give the same label.
        assert!(tries.next().is_some(), "the label of both paths is {}", labels[0]);
        far.weir(&["face", "destroy", &uri_of(links[1].there)]).success();
    };
    for report in [first, get("ledbat"), get("weir")] {
        let labels = report["routers"][0]["labels"].as_array().expect("labels");
        let by_label: BTreeMap<u64, &Value> =
            labels.iter().map(|stats| (stats["label"].as_u64().unwrap(), stats)).collect();
        assert_eq!(by_label.len(), 2, "{report}");
        for (label, delay_ms) in expected_labels.into_iter().zip(DELAYS_MS) {
            let stats = by_label.get(&label).unwrap_or_else(|| panic!("no {label}: {report}"));
            assert!(stats["answers"].as_u64() > Some(10), "{report}");
            // A delay can be longer on a busy machine, but never shorter than that of the link.
            let rtt_ms = stats["rtt_smoothed_ms"].as_f64().expect("a round trip");
            assert!(rtt_ms > 2.0 * delay_ms as f64 - 0.1, "{report}");
        }
    }
}
