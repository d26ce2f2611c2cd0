//! An agent asks about misses of local applications, of hosts if configured, and never of other
//! routers.

use crate::common;

use std::time::{Duration, Instant};

use common::{
    Producer, RouterWithAgent, TEST_TIMEOUT, TestController, name, read, read_by, router,
};
use weir_client::Client;
use weir_control::{Controller, ControllerConfig};
use weir_face::{FaceUri, UdpOptions, UdpPort};
use weir_manage::commands::Command;
use weir_manage::{ControlParameters, FaceStatus};
use weir_runtime::Handle;

/// Segments of an object. Two misses of it are reported, one for each range of 64 segments.
const SEGMENTS: u64 = 130;

/// A host that sends to a router by UDP.
fn host(node: &RouterWithAgent) -> Client {
    let peer = node.uri.parse::<FaceUri>().unwrap().socket_addr().unwrap();
    let port = UdpPort::bind("127.0.0.1:0".parse().unwrap(), &UdpOptions::default()).unwrap();
    Client::from_udp_ports(vec![(port, peer, 8800)]).unwrap()
}

/// Adds a route of a router for `/data` over its first face.
fn lead(router: &Handle, uri: &str) {
    let mut client = Client::from_socket_pair(router.local_port().connect().unwrap()).unwrap();
    let faces: Vec<FaceStatus> = client.dataset("faces/list").unwrap();
    let face = faces.iter().find(|face| face.info.uri == uri).unwrap().info.face_id;
    let parameters = ControlParameters {
        name: Some(name("/data")),
        face_id: Some(face),
        ..ControlParameters::default()
    };
    client.command(Command::RibRegister, &parameters).unwrap();
}

#[test]
fn asks_for_hosts_only_if_configured() {
    for asks_for_hosts in [true, false] {
        let controller = TestController::start(ControllerConfig::default());
        let (edge, uri) = router(1, 1 << 20, &[]);
        let mut edge = RouterWithAgent { agent: None, router: edge, uri };
        edge.start_agent_with("edge", &controller, |config| {
            config.asks_for_hosts = asks_for_hosts;
        });
        let _producer = Producer::start(&edge.router, "/data", SEGMENTS);
        let (other, _) = router(1, 1 << 20, &[&edge.uri]);
        lead(&other, &edge.uri);
        read(&other, &name("/data/first/v=1"), 3);
        controller.wait_until("the other router is known as one", |controller: &Controller| {
            let mut routers = controller.routers();
            routers.any(|(_, report)| report.faces.iter().any(|face| face.round_trip_ns.is_some()))
        });
        let [of_router, of_host, of_application] =
            ["/data/of-a-router/v=1", "/data/of-a-host/v=1", "/data/of-an-application/v=1"]
                .map(name);
        read(&other, &of_router, SEGMENTS);
        read_by(&mut host(&edge), &of_host, SEGMENTS);
        read(&edge.router, &of_application, SEGMENTS);
        // Misses are reported in order.
        let until = Instant::now() + TEST_TIMEOUT;
        while !controller.asked().contains(&of_application) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(10));
        }
        let expected = match asks_for_hosts {
            true => vec![of_host, of_application],
            false => vec![of_application],
        };
        assert_eq!(controller.asked(), expected);
    }
}
