//! Faces over TUN devices. Each test runs in a network namespace with two of them, between which
//! the kernel forwards IPv6 packets.

use std::net::{IpAddr, TcpStream, UdpSocket};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use weir_hicn::HicnName;
use weir_io_fixture::router::{Peer, TestRouter, run_with_tun_devices, wait_until_running};
use weir_link::LinkDrop;
use weir_manage::commands::Command;
use weir_manage::{ControlParameters, FacePersistency};
use weir_runtime::{FaceSnapshot, PitTokenChoice, StaticFace};
use weir_wire::{Data, Interest, InterestView, Name};

/// The device of the router near the producer: a route leads names into it.
const PRODUCER: &str = "hicn+tun://hicn1";
/// The device of the router near the consumer: a route leads its locator into it.
const CONSUMER: &str = "hicn+tun://hicn0/2001:db8:1::";

/// The names below 2001:db8:7::/48.
fn prefix() -> Name {
    HicnName::prefix(&[0x20, 1, 0x0D, 0xB8, 0, 7])
}

fn hicn_name(suffix: u32) -> Name {
    HicnName { address: "2001:db8:7::1".parse().unwrap(), suffix }.to_name()
}

fn interest(suffix: u32) -> Vec<u8> {
    Interest::new(hicn_name(suffix)).nonce(suffix + 1).hop_limit(9).lifetime_ms(60_000).encode()
}

fn data(suffix: u32, len: usize) -> Vec<u8> {
    Data::new(hicn_name(suffix)).content(vec![suffix as u8; len]).encode_with_digest()
}

fn ip(arguments: &str) {
    let status =
        std::process::Command::new("ip").args(arguments.split_whitespace()).status().unwrap();
    assert!(status.success(), "ip {arguments}");
}

fn add_routes() {
    ip("-6 route add 2001:db8:7::/48 dev hicn1");
    ip("-6 route add 2001:db8:1::/64 dev hicn0");
}

/// A router with a static face at this URI, and routes to it.
fn router(
    uri: &str,
    routes: &[Name],
    pit_token: Option<PitTokenChoice>,
    threads: usize,
) -> TestRouter {
    let routes = routes.iter().map(|prefix| (prefix.clone(), 0)).collect();
    let face =
        StaticFace { uri: uri.into(), permanent: true, pit_token, routes, ..StaticFace::default() };
    TestRouter::start_with(|config| {
        config.threads = threads;
        config.static_faces.push(face);
    })
}

fn face(router: &TestRouter, uri: &str) -> Option<FaceSnapshot> {
    router.snapshot().faces.into_iter().find(|face| face.uri == uri)
}

/// The routers near the producer and near the consumer.
struct Pair {
    far: TestRouter,
    near: TestRouter,
    producer: Peer<UnixStream>,
    consumer: Peer<UnixStream>,
}

impl Pair {
    fn start(pit_token: Option<PitTokenChoice>, threads: usize) -> Self {
        add_routes();
        let far = router(PRODUCER, &[], None, threads);
        let near = router(CONSUMER, &[prefix()], pit_token, threads);
        for (router, fib_entries) in [(&far, 2), (&near, 3)] {
            router.wait_until("the face and its routes", |snapshot| {
                !snapshot.faces.is_empty() && snapshot.router.fib_entries >= fib_entries
            });
        }
        wait_until_running("hicn0");
        wait_until_running("hicn1");
        let (mut producer, consumer) = (far.unix(), near.unix());
        producer.register(&prefix().to_string());
        Self { far, near, producer, consumer }
    }

    fn exchange(&mut self, suffix: u32) {
        self.consumer.send(&interest(suffix));
        let asked = self.producer.receive().interest();
        let view = InterestView::decode(&asked).unwrap();
        assert_eq!(view.name, hicn_name(suffix).as_view());
        // Both routers and the kernel count as hops.
        assert_eq!(view.hop_limit, Some(6));
        self.producer.send(&data(suffix, 1000));
        assert_eq!(self.consumer.receive().data(), data(suffix, 1000));
    }

    fn wait_for(&self, is_up: bool) {
        self.near.wait_until("the face changes", |snapshot| {
            snapshot.faces.iter().any(|face| face.uri == CONSUMER && face.up == is_up)
        });
        if is_up {
            wait_until_running("hicn0");
        }
    }
}

#[test]
fn data_crosses_the_kernel() {
    run_with_tun_devices("pair_exchanges_data");
    run_with_tun_devices("pair_exchanges_data_with_tokens");
}

#[test]
#[ignore = "data_crosses_the_kernel runs it with TUN devices"]
fn pair_exchanges_data() {
    let mut pair = Pair::start(None, 1);
    (0..20).for_each(|suffix| pair.exchange(suffix));
    let counters = face(&pair.near, CONSUMER).unwrap().counters;
    assert_eq!((counters.out_interests, counters.in_data), (20, 20));
    assert_eq!(counters.out_bytes, 20 * 60);
    let face = face(&pair.far, PRODUCER).unwrap();
    assert_eq!((face.counters.in_interests, face.counters.out_data), (20, 20));
    assert_eq!(face.local_uri, "dev://hicn1");
}

#[test]
#[ignore = "data_crosses_the_kernel runs it with TUN devices"]
fn pair_exchanges_data_with_tokens() {
    let mut pair = Pair::start(Some(PitTokenChoice::Short), 3);
    (0..20).for_each(|suffix| pair.exchange(suffix));
    assert_eq!(face(&pair.near, CONSUMER).unwrap().counters.in_data, 20);
}

#[test]
fn lost_device_returns() {
    run_with_tun_devices("face_follows_its_device");
}

#[test]
#[ignore = "lost_device_returns runs it with TUN devices"]
fn face_follows_its_device() {
    let mut pair = Pair::start(None, 1);
    pair.exchange(0);
    ip("link del hicn0");
    pair.wait_for(false);
    ip("tuntap add dev hicn0 mode tun");
    ip("link set hicn0 up");
    ip("-6 route add 2001:db8:1::/64 dev hicn0");
    pair.wait_for(true);
    pair.exchange(1);
    // The kernel reports a device that is down only to a writer.
    ip("link set hicn0 down");
    pair.consumer.send(&interest(2));
    pair.wait_for(false);
    ip("link set hicn0 up");
    ip("-6 route add 2001:db8:1::/64 dev hicn0");
    pair.wait_for(true);
    pair.exchange(3);
    // The static face of a router that started before its device.
    let early = router("hicn+tun://hicn2", &[], None, 1);
    ip("tuntap add dev hicn2 mode tun");
    ip("link set hicn2 up");
    early.wait_until("the face", |snapshot| !snapshot.faces.is_empty());
}

#[test]
fn foreign_packets_are_counted() {
    run_with_tun_devices("drops_have_reasons");
}

#[test]
#[ignore = "foreign_packets_are_counted runs it with TUN devices"]
fn drops_have_reasons() {
    // Without a token, the kernel takes the locator for an anycast address, and reports nothing to
    // it.
    let mut pair = Pair::start(Some(PitTokenChoice::Short), 1);
    ip("addr add 2001:db8:9::1/128 dev lo nodad");
    ip("addr add 10.9.0.1/24 dev hicn1");
    let wait = |router: &TestRouter, reason: LinkDrop| {
        router.wait_until(reason.name(), |snapshot| {
            snapshot.faces.iter().any(|face| face.counters.drops[reason] > 0)
        });
    };
    // Programs of this host that use addresses of the prefix.
    let name: IpAddr = "2001:db8:7::1".parse().unwrap();
    TcpStream::connect_timeout(&(name, 80).into(), Duration::from_millis(50)).unwrap_err();
    wait(&pair.far, LinkDrop::HicnPorts);
    let udp = UdpSocket::bind("[::]:0").unwrap();
    udp.send_to(&[0; 100], (name, 80)).unwrap();
    wait(&pair.far, LinkDrop::HicnNotTcp);
    udp.send_to(&[0; 4000], (name, 80)).unwrap();
    wait(&pair.far, LinkDrop::HicnFragment);
    UdpSocket::bind("0.0.0.0:0").unwrap().send_to(&[0; 100], "10.9.0.2:80").unwrap();
    wait(&pair.far, LinkDrop::HicnVersion);
    // A Data that exceeds the MTU.
    pair.consumer.send(&interest(0));
    pair.producer.receive().interest();
    pair.producer.send(&data(0, 2000));
    wait(&pair.far, LinkDrop::TooLargeForMtu);
    // The kernel has no route: it reports that to the locator.
    ip("-6 route del 2001:db8:7::/48");
    pair.consumer.send(&interest(1));
    wait(&pair.near, LinkDrop::HicnIcmp);
    ip("-6 route add 2001:db8:7::/48 dev hicn1");
    pair.exchange(2);
}

#[test]
fn commands_make_permanent_faces() {
    run_with_tun_devices("faces_by_command");
}

#[test]
#[ignore = "commands_make_permanent_faces runs it with TUN devices"]
fn faces_by_command() {
    let router = TestRouter::start();
    let mut local = router.unix();
    let mut create = |uri: &str, persistency| {
        let parameters = ControlParameters {
            uri: Some(uri.into()),
            face_persistency: persistency,
            ..ControlParameters::default()
        };
        local.command(Command::FacesCreate, &parameters)
    };
    let made = create(PRODUCER, None).body.unwrap();
    assert_eq!(made.face_persistency, Some(FacePersistency::Permanent));
    assert_eq!((made.mtu, made.local_uri.as_deref()), (Some(1500), Some("dev://hicn1")));
    assert_eq!(create(PRODUCER, None).code, 409);
    assert_eq!(create(CONSUMER, Some(FacePersistency::OnDemand)).code, 406);
    for (uri, code, text) in [
        ("hicn+tun://hicn9", 504, "ip tuntap add dev hicn9 mode tun"),
        ("hicn+tun://lo", 504, "lo is not a TUN device"),
        ("hicn+tun://hicn1/2001:db8:1::", 504, "is in use"),
        ("hicn+tun://hicn0/2001:db8:1::1", 406, "no usable locator"),
        ("hicn+tun://name-of-16-bytes", 406, "names no network device"),
    ] {
        let refusal = create(uri, None);
        assert!(refusal.code == code && refusal.text.contains(text), "{refusal:?}");
    }
    // Without a locator, no Data could return.
    let route = ControlParameters {
        name: Some(prefix()),
        face_id: made.face_id,
        ..ControlParameters::default()
    };
    assert_eq!(local.command(Command::RibRegister, &route).code, 200);
    local.send(&interest(0));
    router.wait_until("the Interest is dropped", |snapshot| {
        let face = snapshot.faces.iter().find(|face| face.uri == PRODUCER).unwrap();
        face.counters.drops[LinkDrop::HicnNoLocator] == 1
    });
    // A closed face releases its device.
    let id = ControlParameters { face_id: made.face_id, ..ControlParameters::default() };
    assert_eq!(local.command(Command::FacesDestroy, &id).code, 200);
    let again = ControlParameters { uri: Some(PRODUCER.into()), ..ControlParameters::default() };
    router.wait_until("the device is free", |_| {
        router.unix().command(Command::FacesCreate, &again).code == 200
    });
}
