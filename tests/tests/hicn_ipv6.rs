//! hICN packets as plain IPv6: a router near the producer and one near the consumer, each with a
//! TUN device, and between them a Linux router that knows nothing of hICN.

use std::path::Path;

use nix::sys::signal::Signal;
use serde_json::Value;
use weir_tests::{Finished, Host, Networks, Process, Router, random_file, sha256_hex, wait_until};

const MAPPING: &str = "hicn:2001:db8:7::/48";
/// The names below the prefix of [`MAPPING`].
const PREFIX: &str = "/32=hicn/8=%20%01/8=%0D%B8/8=%00%07";
const PRODUCER: &str = "hicn+tun://hicn0";
const CONSUMER: &str = "hicn+tun://hicn0/2001:db8:1::";

/// `middle` forwards the prefix of names to `producer`, and the locator to `consumer`.
const SCRIPT: &str = r"
: < /dev/net/tun
middle() { ip -n middle $*; }
middle addr add 2001:db8:ff::1/128 dev lo
host() {
    ip -n $1 link add wan type veth peer name to-$1 netns middle
    ip -n $1 link set wan addrgenmode none up
    ip -n $1 addr add $2/64 dev wan nodad
    ip -n $1 route add default via fe80::1 dev wan
    middle link set to-$1 addrgenmode none up
    middle addr add fe80::1/64 dev to-$1 nodad
    middle -6 route add $3 via $2 dev to-$1
    ip -n $1 tuntap add dev hicn0 mode tun
    ip -n $1 link set hicn0 up
    ip -n $1 route add $3 dev hicn0
}
host producer fe80::2 2001:db8:7::/48
host consumer fe80::3 2001:db8:1::/64
for network in producer middle consumer; do
    nsenter --net=/run/netns/$network sh -c 'echo 1 > /proc/sys/net/ipv6/conf/all/forwarding'
done
";

/// Reads packets of a device until SIGTERM. Checks the checksums of TCP packets, and counts them by
/// TCP's flags.
const CAPTURE: &str = r#"
import json, signal, socket, struct
packets = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
packets.setsockopt(socket.SOL_SOCKET, 33, 1 << 25)
packets.bind(("to-consumer", 0))
packets.settimeout(0.1)
stopped = []
signal.signal(signal.SIGTERM, lambda number, frame: stopped.append(number))
print("ready", flush=True)
count = {"interests": 0, "data": 0, "wrong": 0, "longest": 0}
while True:
    try:
        frame = packets.recv(65536)
    except TimeoutError:
        if stopped:
            break
        continue
    packet = frame[14:]
    if frame[12:14] != b"\x86\xdd" or packet[6] != 6:
        continue
    segment = packet[40:] + bytes(len(packet) % 2)
    total = packet[8:40] + struct.pack("!II", len(packet) - 40, 6) + segment
    value = sum(struct.unpack("!%dH" % (len(total) // 2), total))
    while value >> 16:
        value = (value & 0xFFFF) + (value >> 16)
    count["data" if packet[53] & 0x40 else "interests"] += 1
    count["wrong"] += value != 0xFFFF
    count["longest"] = max(count["longest"], len(packet))
print(json.dumps(count))
"#;

/// Prints the metrics of a router.
const SCRAPE: &str = r#"python3 -c '
import urllib.request
print(urllib.request.urlopen("http://127.0.0.1:9636/metrics").read().decode())'"#;

/// A program that counts the packets which the middle carries to and from the consumer.
struct Capture(Process);

impl Capture {
    fn start(host: &Host, networks: &Networks) -> Self {
        let mut command = networks.command(host, "middle", Path::new("python3"));
        command.args(["-c", CAPTURE]);
        let process = Process::start("capture", command);
        process.line_with("ready");
        Self(process)
    }

    fn end(mut self) -> Value {
        self.0.signal(Signal::SIGTERM);
        self.0.finish().success().json()
    }
}

/// Both routers, and what they share.
struct Path6 {
    host: Host,
    networks: Networks,
    producer: Router,
    consumer: Router,
}

impl Path6 {
    /// `None` if this system does not permit networks with TUN devices; the reason is printed.
    fn start(consumer_options: &str) -> Option<Self> {
        let networks = Networks::make(&["producer", "middle", "consumer"], SCRIPT)?;
        let host = Host::new();
        let metrics = "[metrics]\naddress = \"127.0.0.1:9636\"\n";
        let face = format!("{metrics}[[face]]\nuri = \"{PRODUCER}\"\n");
        host.write("producer.toml", face.as_bytes());
        let face = format!("[[face]]\nuri = \"{CONSUMER}\"\nroutes = [\"{PREFIX}\"]\n");
        host.write("consumer.toml", (face + consumer_options).as_bytes());
        let start = |network: &str| {
            let config = format!("{network}.toml");
            Router::start_in(&host, &networks, network, &["--config", &config])
        };
        let (producer, consumer) = (start("producer"), start("consumer"));
        wait_until("the faces and the route are there", || {
            producer.weir_json(&["face", "list"]).to_string().contains(PRODUCER)
                && consumer.weir_json(&["route", "list"]).to_string().contains("hicn")
        });
        Some(Self { host, networks, producer, consumer })
    }

    /// Publishes a file. Returns its producer, and its SHA-256.
    fn put(&self, name: &str, size: usize, segment_size: &str) -> (Process, String) {
        let expected = random_file(&self.host.path("source"), size, 1);
        let options = ["--mapping", MAPPING, "--segment-size", segment_size];
        let (process, _) = self.producer.put_object(&[&["source", name][..], &options].concat());
        (process, expected)
    }

    fn get(&self, name: &str, options: &[&str]) -> Finished {
        let arguments = ["get", name, "-o", "out", "--mapping", MAPPING];
        self.consumer.weir(&[&arguments[..], options].concat())
    }

    /// Counters of the face of a router.
    fn face(router: &Router) -> Value {
        let faces = router.weir_json(&["face", "list"]);
        let mut faces = faces.as_array().expect("faces").iter();
        let is_tun = |face: &&Value| face["uri"].as_str().unwrap().starts_with("hicn+tun://");
        faces.find(is_tun).expect("the face").clone()
    }

    /// Packets that the producer's router has dropped for this reason.
    fn drops(&self, reason: &str) -> u64 {
        let text = self.networks.shell(&self.host, "producer", SCRAPE);
        let label = format!("reason=\"{reason}\"");
        let line = text.lines().find(|line| line.contains(&label));
        line.and_then(|line| line.split(' ').next_back()).map_or(0, |n| n.parse().unwrap())
    }

    /// IPv6 packets that the middle has forwarded.
    fn forwarded(&self) -> u64 {
        let text = self.networks.shell(&self.host, "middle", "cat /proc/net/snmp6");
        let line = text.lines().find(|line| line.starts_with("Ip6OutForwDatagrams"));
        line.and_then(|line| line.split_whitespace().last()).unwrap().parse().unwrap()
    }
}

fn file_crosses_the_middle(options: &str) {
    let Some(path) = Path6::start(options) else { return };
    let capture = Capture::start(&path.host, &path.networks);
    let (_put, expected) = path.put("/file", 1_000_000, "1200");
    let before = path.forwarded();
    path.get("/file", &[]).success();
    assert_eq!(sha256_hex(&path.host.path("out")), expected);
    let segments = 1_000_000_u64.div_ceil(1200);
    let forwarded = path.forwarded() - before;
    assert!(forwarded >= 2 * segments, "{forwarded}");
    let seen = capture.end();
    assert_eq!(seen["wrong"], 0, "{seen}");
    assert!(seen["interests"].as_u64().unwrap() >= segments, "{seen}");
    assert!(seen["data"].as_u64().unwrap() >= segments, "{seen}");
    assert!((1200..=1500).contains(&seen["longest"].as_u64().unwrap()), "{seen}");
    let face = Path6::face(&path.consumer);
    assert_eq!(
        (face["mtu"].as_u64(), face["persistency"].as_str()),
        (Some(1500), Some("permanent"))
    );
    // Only the Interest for the metadata carries more: the application's name.
    let names = face["out_bytes"].as_u64().unwrap() - 60 * face["out_interests"].as_u64().unwrap();
    assert!((1..100).contains(&names), "{face}");
}

#[test]
fn file_crosses_a_router_of_ipv6() {
    file_crosses_the_middle("");
}

#[test]
fn file_crosses_a_router_of_ipv6_with_tokens() {
    file_crosses_the_middle("pit_token = \"short\"\n");
}

/// Packets longer than the MTU of the face, and of a link on the path.
#[test]
fn too_large_packets_are_reported() {
    let Some(path) = Path6::start("") else { return };
    let get = |name: &str| path.get(name, &["--lifetime", "200ms", "--retries", "2"]);
    // One producer at a time: each registers the prefix.
    let (put, _) = path.put("/large", 10_000, "4000");
    let failure = get("/large").failure();
    assert!(failure.contains("no answer"), "{failure}");
    assert!(path.drops("too-large-for-mtu") > 0);
    assert_eq!(path.drops("hicn-icmp"), 0);
    put.stop();
    path.networks.shell(&path.host, "middle", "ip link set to-consumer mtu 1280");
    let (put, _) = path.put("/medium", 10_000, "1100");
    let failure = get("/medium").failure();
    assert!(failure.contains("no answer") && !failure.contains("metadata"), "{failure}");
    // The middle reports Packet Too Big to the name, which is the source of the Data.
    wait_until("the report is counted", || path.drops("hicn-icmp") > 0);
    put.stop();
    let (_put, expected) = path.put("/small", 10_000, "1000");
    path.get("/small", &[]).success();
    assert_eq!(sha256_hex(&path.host.path("out")), expected);
}
