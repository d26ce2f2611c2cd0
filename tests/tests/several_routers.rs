//! `weir get` over several routers at once, with failures of one of them.

use std::fs;
use std::net::UdpSocket;
use std::path::Path;

use nix::sys::signal::Signal;
use serde_json::Value;
use weir_tests::{
    Host, Networks, Process, Relay, Router, random_file, sha256_hex, wait_until, weir_binary,
};

const MIB: usize = 1 << 20;

/// A producer behind a router, and other routers with a route to it.
struct Network {
    host: Host,
    origin: Router,
    _producer: Process,
    /// SHA-256 of the file.
    expected: String,
    /// The name of the file with its version.
    name: String,
}

impl Network {
    fn new(octets: usize) -> Self {
        let host = Host::new();
        let origin = Router::start_at(&host, "origin");
        let expected = random_file(&host.path("source"), octets, 5);
        let (producer, name) = origin.put_object(&["source", "/file"]);
        fs::create_dir(host.path("out")).expect("folder");
        Self { host, origin, _producer: producer, expected, name }
    }

    /// A router with a route to the producer.
    fn router(&self, socket: &str) -> Router {
        let router = Router::start_at(&self.host, socket);
        router.add_route("/file", &self.origin.udp());
        router
    }

    fn get(&self, routers: &[String]) -> Process {
        let mut words = vec!["get", &self.name, "-o", "out/file", "--json"];
        words.extend(routers.iter().flat_map(|uri| ["--router", uri]));
        self.host.spawn("unix:///nowhere", &words)
    }

    /// Waits for a correct file. Returns the report about each router, and the log.
    fn finish_transfer(&self, transfer: Process) -> (Vec<Value>, String) {
        let finished = transfer.finish().success();
        assert_eq!(sha256_hex(&self.host.path("out/file")), self.expected);
        let report = finished.json();
        (report["routers"].as_array().expect("routers").clone(), finished.log)
    }

    /// Waits until part of the file is written.
    fn wait_for_first_bytes(&self) {
        let has_some = |name: &String| {
            use std::os::unix::fs::MetadataExt;
            let path = self.host.path("out").join(name);
            fs::metadata(path).is_ok_and(|found| found.blocks() * 512 > 4 << 20)
        };
        wait_until("part of the file is written", || self.host.list("out").iter().any(has_some));
    }
}

/// D-MP of the paper multipath-cache-management: segments that a router holds come from it,
/// although other routers have a route to the producer.
#[test]
fn asked_routers_serve_their_holdings() {
    let network = Network::new(64 * MIB);
    network.host.write("holdings.toml", b"[management]\nholdings_for_neighbours = true\n");
    let start = |socket: &str| {
        let router = Router::start_at_with(&network.host, socket, &["-c", "holdings.toml"]);
        router.add_route("/file", &network.origin.udp());
        router
    };
    let (holder, other) = (start("a"), start("b"));
    let _ = network.finish_transfer(network.get(&[holder.udp()]));
    let out = network.host.path("out/file");
    let by_other = |asks: bool| {
        fs::remove_file(&out).expect("file");
        let mut words = vec!["get", &network.name, "-o", "out/file", "--json"];
        let uris = [other.udp(), holder.udp()];
        words.extend(uris.iter().flat_map(|uri| ["--router", uri]));
        words.extend(asks.then_some("--ask-routers"));
        let (of_routers, _) =
            network.finish_transfer(network.host.spawn("unix:///nowhere", &words));
        of_routers[0]["bytes"].as_u64().expect("bytes")
    };
    // Interests sent before the holdings are known go to both routers. Measure with holdings
    // first, as the transfer also fills the store of the other router.
    let (asked, not_asked) = (by_other(true), by_other(false));
    assert!(2 * asked < not_asked, "{asked} of 64 MiB came by the other router, and {not_asked}");
}

#[test]
fn uses_all_given_routers() {
    let network = Network::new(16 * MIB);
    let routers = [network.router("a"), network.router("b"), network.router("c")];
    let uris = [routers[0].unix(), routers[1].tcp(), routers[2].udp()];
    let (of_routers, _) = network.finish_transfer(network.get(&uris));
    let mut octets = 0;
    for (uri, of_router) in uris.iter().zip(&of_routers) {
        assert_eq!(of_router["uri"], uri.as_str());
        octets += of_router["bytes"].as_u64().expect("bytes");
        assert!(of_router["bytes"].as_u64() > Some(0), "{uri} brought nothing: {of_routers:?}");
    }
    assert_eq!(of_routers.len(), 3);
    assert!(octets >= 16 * MIB as u64, "{octets}");
}

#[test]
fn transfer_survives_a_killed_router() {
    let network = Network::new(64 * MIB);
    let (mut first, second) = (network.router("a"), network.router("b"));
    let transfer = network.get(&[first.unix(), second.unix()]);
    network.wait_for_first_bytes();
    first.process.signal(Signal::SIGKILL);
    let _ = network.finish_transfer(transfer);
}

#[test]
fn broken_connection_is_named_and_replaced() {
    let network = Network::new(8 * MIB);
    let (first, second) = (network.router("a"), network.router("b"));
    let relay = Relay::to(first.port(), 30_000);
    let (_, log) = network.finish_transfer(network.get(&[relay.uri(), second.tcp()]));
    assert!(log.contains(&relay.uri()) && log.contains("continuing"), "{log}");
}

/// The second router never answers, so the file cannot complete before the first is back.
#[test]
fn restarted_router_is_used_again() {
    let network = Network::new(64 * MIB);
    let silent = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    let silent_uri = format!("udp4://{}", silent.local_addr().expect("bound"));
    let mut router = network.router("a");
    let transfer = network.get(&[router.unix(), silent_uri]);
    network.wait_for_first_bytes();
    router.process.signal(Signal::SIGKILL);
    let _ = router.process.finish();
    let router = network.router("a");
    let (of_routers, log) = network.finish_transfer(transfer);
    assert!(log.contains(&format!("{} is back", router.unix())), "{log}");
    assert_eq!(of_routers[1]["bytes"], 0);
}

#[test]
fn router_without_route_does_not_block() {
    let network = Network::new(8 * MIB);
    let (lost, other) = (Router::start_at(&network.host, "a"), network.router("b"));
    for uris in [[lost.unix(), other.unix()], [other.unix(), lost.udp()]] {
        let (of_routers, _) = network.finish_transfer(network.get(&uris));
        let octets: Vec<u64> =
            of_routers.iter().map(|one| one["bytes"].as_u64().expect("bytes")).collect();
        assert!(octets.contains(&0) && octets.iter().sum::<u64>() >= 8 * MIB as u64, "{octets:?}");
        fs::remove_file(network.host.path("out/file")).expect("file");
    }
}

#[test]
fn silent_router_does_not_block() {
    let network = Network::new(8 * MIB);
    let silent = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    let silent_uri = format!("udp4://{}", silent.local_addr().expect("bound"));
    let router = network.router("a");
    let (of_routers, _) = network.finish_transfer(network.get(&[silent_uri, router.unix()]));
    assert_eq!(of_routers[0]["bytes"], 0);
}

#[test]
fn missing_router_is_named_and_replaced() {
    let network = Network::new(100_000);
    let nowhere = format!("unix://{}", network.host.path("nothing.sock").display());
    let router = network.router("a");
    let (_, log) = network.finish_transfer(network.get(&[nowhere.clone(), router.unix()]));
    assert!(log.contains("nothing.sock"), "{log}");

    let message = network.get(&[nowhere.clone(), nowhere]).finish().failure();
    assert!(message.contains("nothing.sock") && message.contains("weir router"), "{message}");
    assert!(Path::new(&network.host.path("out/file")).exists(), "it was there");
}

#[test]
fn other_commands_take_one_router() {
    let host = Host::new();
    host.write("x", b"x");
    let router = Router::start_at(&host, "a");
    for words in [&["status"][..], &["put", "x", "/x"], &["route", "list"], &["ping", "/x"]] {
        let uri = router.unix();
        let words = [words, &["--router", &uri, "--router", &uri]].concat();
        let message = host.spawn(&uri, &words).finish().failure();
        assert!(message.contains("2 times") && message.contains("only `weir get`"), "{message}");
    }
}

/// The nodes of a site, each with a router.
const NODES: usize = 3;

/// Connects the nodes to the router of the site, and that one to the origin elsewhere.
const SITE_SCRIPT: &str = r"
connect() {
    ip -n $1 link add $2 type veth peer name $4 netns $3
    ip -n $1 addr add 10.9.$5.1/24 dev $2
    ip -n $3 addr add 10.9.$5.2/24 dev $4
    ip -n $1 link set $2 up
    ip -n $3 link set $4 up
}
connect origin site site wan 0
for node in 1 2 3; do connect site node$node node$node site $node; done
";

/// As in the Helm chart, which has 250 ms. With the default of 10 ms, as in NFD, Interests of pods
/// that begin later than the first one go upstream as well: the site's link then carries twice the
/// file. The interval must be longer than round trips.
fn strategy(suppression_ms: u32) -> String {
    format!(
        "[[strategy]]\nprefix = \"/\"\nstrategy = \"/localhost/nfd/strategy/best-route/v=5/\
         retx-suppression-initial~{suppression_ms}/retx-suppression-max~{suppression_ms}\"\n"
    )
}

/// The near end of the emulated link to the origin.
const LINK: &str = "udp4://10.9.0.2:7001";

/// A cluster of Kubernetes as the network sees it: a router on each node, pods that have no network
/// and use the Unix socket of their node, and the site's router.
struct Cluster {
    host: Host,
    networks: Networks,
    nodes: Vec<Router>,
    site: Router,
    _origin: Router,
    _link: Process,
    _producer: Process,
    name: String,
    expected: String,
}

impl Cluster {
    fn start(pods: usize, octets: usize, suppression_ms: u32) -> Option<Self> {
        let mut names = vec!["origin".to_owned(), "site".to_owned()];
        names.extend((1..=NODES).map(|node| format!("node{node}")));
        names.extend((0..pods).map(|pod| format!("pod{pod}")));
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let networks = Networks::make(&names, SITE_SCRIPT)?;
        let host = Host::new();
        host.write("site.toml", strategy(suppression_ms).as_bytes());
        let start = |network: &str, address: &str| {
            let address = format!("{address}:6363");
            let words = ["-c", "site.toml", "--udp", &address, "--store", "64MiB"];
            Router::start_in(&host, &networks, network, &words)
        };
        let origin = start("origin", "10.9.0.1");
        let site = start("site", "0.0.0.0");
        let mut link = networks.command(&host, "site", weir_binary());
        link.args(["link", "--a", "10.9.0.2:7001", "--b", "10.9.0.2:7002"]);
        link.args(["--peer-b", "10.9.0.1:6363", "--rate", "400Mbit", "--delay", "5ms"]);
        let link = Process::start("the site's link", link);
        link.wait_for_output("10.9.0.2:7002");
        site.add_route("/", LINK);
        let nodes: Vec<Router> = (1..=NODES)
            .map(|node| {
                let router = start(&format!("node{node}"), &format!("10.9.{node}.2"));
                router.add_route("/", &format!("udp4://10.9.{node}.1:6363"));
                router
            })
            .collect();
        let expected = random_file(&host.path("source"), octets, 9);
        let (producer, name) = origin.put_object(&["source", "/file"]);
        fs::create_dir(host.path("out")).expect("folder");
        let (_origin, _link, _producer) = (origin, link, producer);
        Some(Self { host, networks, nodes, site, _origin, _link, _producer, name, expected })
    }

    /// Starts `weir get` in a pod.
    fn get(&self, pod: usize) -> Process {
        let network = format!("pod{pod}");
        let mut command = self.networks.command(&self.host, &network, weir_binary());
        let router = self.nodes[pod % NODES].unix();
        command.args(["get", &self.name, "-o", &format!("out/{pod}"), "--router", &router]);
        Process::start(&format!("pod {pod}"), command)
    }
}

/// Bytes that a router received from a next hop.
fn bytes_from(router: &Router, uri: &str) -> u64 {
    let faces = router.weir_json(&["face", "list"]);
    let face = faces.as_array().expect("faces").iter().find(|face| face.to_string().contains(uri));
    let face = face.unwrap_or_else(|| panic!("no face {uri}: {faces}"));
    face["in_bytes"].as_u64().unwrap_or_else(|| panic!("no counter: {face}"))
}

fn pods_share_one_transfer(pods: usize, octets: usize, suppression_ms: u32) {
    let Some(cluster) = Cluster::start(pods, octets, suppression_ms) else { return };
    let transfers: Vec<Process> = (0..pods).map(|pod| cluster.get(pod)).collect();
    for (pod, transfer) in transfers.into_iter().enumerate() {
        transfer.finish_within(std::time::Duration::from_secs(300)).success();
        assert_eq!(sha256_hex(&cluster.host.path("out").join(pod.to_string())), cluster.expected);
    }
    let bytes = bytes_from(&cluster.site, LINK);
    println!("{pods} pods read {octets} bytes, {bytes} over the site's link");
    assert!(bytes <= octets as u64 * 105 / 100, "{bytes} of {octets}");
}

#[test]
fn file_of_many_pods_crosses_the_site_link_once() {
    pods_share_one_transfer(20, 2 * MIB, 250);
}

#[test]
#[ignore = "100 processes"]
fn file_of_100_pods_crosses_the_site_link_once() {
    // On few cores, round trips of 100 processes are long.
    pods_share_one_transfer(100, 8 * MIB, 1000);
}
