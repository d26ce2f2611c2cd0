//! A routing daemon makes what `weir put` publishes reachable at another router, as NLSR and ndn-dv
//! do. The daemon is a stand-in with their side of the protocol (NLSR bb59d40,
//! src/update/command-processor.cpp; ndnd 31822ab, dv/dv/mgmt.go): it registers `/localhost/nlsr`,
//! and answers `rib/register` and `rib/unregister` below it.

use std::os::unix::net::UnixStream;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::Value;
use weir_base::FaceId;
use weir_io_fixture::router::{Peer, ReceivedPacket, command_interest, response_of};
use weir_manage::commands::Command;
use weir_manage::{ControlParameters, ControlResponse, Element};
use weir_tests::{Host, Router, random_file, sha256_hex, wait_until};
use weir_wire::{Data, InterestView, Name};

/// How long a prefix may take to reach another router, and to leave it.
const PROPAGATION_MAX: Duration = Duration::from_secs(15);
/// The origin of a routing daemon's routes.
const NLSR: u64 = 128;

fn connect(router: &Router) -> Peer<UnixStream> {
    let socket = UnixStream::connect(router.socket()).expect("the router's socket");
    Peer::new(socket)
}

/// A daemon of two routers at once, in place of a protocol between two daemons.
struct StandIn {
    /// The router whose applications it announces.
    here: Peer<UnixStream>,
    /// The router that learns their prefixes.
    there: Peer<UnixStream>,
    /// The face from there to here.
    back: Option<FaceId>,
}

impl StandIn {
    /// Starts the daemon. It ends with the router `here`.
    fn start(here: &Router, there: &Router) -> JoinHandle<usize> {
        let mut daemon = Self { here: connect(here), there: connect(there), back: None };
        // Permanent, with a host name, as in ndnd's documents.
        let face = ControlParameters {
            uri: Some(format!("udp4://localhost:{}", here.port())),
            ..ControlParameters::default()
        };
        let made = daemon.there.command(Command::FacesCreate, &face);
        assert_eq!(made.code, 200, "{made:?}");
        daemon.back = made.body.expect("the face").face_id;
        let prefix = ControlParameters {
            name: Some("/localhost/nlsr".parse().expect("a name")),
            ..ControlParameters::default()
        };
        daemon.here.send(&command_interest(Command::RibRegister, &prefix));
        thread::spawn(move || daemon.run())
    }

    /// Answers commands until the router closes the face. Returns their number.
    fn run(mut self) -> usize {
        let mut commands = 0;
        while let Ok(Some(frame)) = self.here.try_frame() {
            match ReceivedPacket::of_frame(&frame) {
                // The answer to the registration. Commands may overtake it.
                ReceivedPacket::Data { wire, .. } => assert_eq!(response_of(&wire).code, 200),
                received => {
                    let wire = received.interest();
                    let data = self.obey(&InterestView::decode(&wire).expect("an Interest"));
                    self.here.send(&data);
                    commands += 1;
                }
            }
        }
        commands
    }

    /// Runs a command at the other router, and returns the answer.
    fn obey(&mut self, interest: &InterestView<'_>) -> Vec<u8> {
        // ndn-dv checks no more than this.
        assert_eq!(interest.name.component_count(), 6, "{}", interest.name);
        let component = |at| interest.name.component(at).expect("a component").value;
        let asked = ControlParameters::decode(component(4)).expect("ControlParameters");
        let (command, cost) = match component(3) {
            b"register" => (Command::RibRegister, asked.cost),
            b"unregister" => (Command::RibUnregister, None),
            verb => panic!("{}", String::from_utf8_lossy(verb)),
        };
        let route = ControlParameters {
            name: Some(asked.name.clone().expect("a prefix")),
            face_id: self.back,
            origin: Some(NLSR),
            cost,
            ..ControlParameters::default()
        };
        let response = self.there.command(command, &route);
        assert_eq!(response.code, 200, "{response:?}");
        // As ndn-dv's.
        let body = ControlParameters {
            name: asked.name,
            face_id: Some(FaceId(1)),
            origin: Some(65),
            ..ControlParameters::default()
        };
        let response = ControlResponse {
            body: Some(Box::new(body)),
            ..ControlResponse::new(200, "Readvertise command successful")
        };
        let name: Name = interest.name.to_name();
        Data::new(name).freshness_ms(1000).content(response.encode()).encode_with_digest()
    }
}

/// Whether a daemon has added a route for this prefix.
fn has_route(router: &Router, prefix: &str) -> bool {
    let entries = router.weir_json(&["route", "list"]);
    let is_from_daemon = |route: &Value| route["origin"].as_u64() == Some(NLSR);
    entries.as_array().expect("routes").iter().any(|entry| {
        entry["prefix"].as_str() == Some(prefix)
            && entry["routes"].as_array().expect("routes").iter().any(is_from_daemon)
    })
}

#[test]
fn published_prefix_is_reachable_until_its_producer_ends() {
    let host = Host::new();
    let here = Router::start_at_with(&host, "here.sock", &["--store", "0"]);
    let there = Router::start_at_with(&host, "there.sock", &["--store", "0"]);
    let sha256 = random_file(&host.path("source"), 100_000, 1);
    let (early, early_name) = here.put_object(&["source", "/early"]);
    let daemon = StandIn::start(&here, &there);
    let (late, late_name) = here.put_object(&["source", "/late"]);
    for name in [&early_name, &late_name] {
        let started = Instant::now();
        let out = host.path("copy");
        wait_until("the file is reachable", || {
            there.weir(&["get", name, "-o", "copy"]).status.success()
        });
        assert!(started.elapsed() < PROPAGATION_MAX, "{:?}", started.elapsed());
        assert_eq!(sha256_hex(&out), sha256);
        std::fs::remove_file(&out).expect("the copy");
    }
    // One ends by itself, the other is killed.
    for (mut producer, prefix, signal) in
        [(early, "/early", Signal::SIGTERM), (late, "/late", Signal::SIGKILL)]
    {
        assert!(has_route(&there, prefix), "{prefix}");
        let started = Instant::now();
        producer.signal(signal);
        wait_until("the prefix is withdrawn", || !has_route(&there, prefix));
        assert!(started.elapsed() < PROPAGATION_MAX, "{:?}", started.elapsed());
    }
    let _ = there.weir(&["get", &late_name, "-o", "copy"]).failure();
    drop(here);
    assert!(daemon.join().expect("the daemon") >= 4);
}

#[test]
fn config_keeps_prefixes_from_the_daemon() {
    let host = Host::new();
    host.write("router.toml", b"[management]\nreadvertise_nlsr = false\n");
    let here = Router::start_at_with(&host, "here.sock", &["-c", "router.toml"]);
    let there = Router::start_at(&host, "there.sock");
    random_file(&host.path("source"), 1000, 1);
    let daemon = StandIn::start(&here, &there);
    let (_producer, _) = here.put_object(&["source", "/file"]);
    assert!(!has_route(&there, "/file"));
    drop(here);
    assert_eq!(daemon.join().expect("the daemon"), 0);
}
