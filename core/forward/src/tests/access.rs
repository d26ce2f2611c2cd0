//! access, with the cases of NFD's own tests (fe044ce3, `tests/daemon/fw/access-strategy.t.cpp`).

use alloc::format;

use super::topology::{End, Node, Topology};
use super::*;

const ACCESS: &str = "/localhost/nfd/strategy/access";

/// A router with two laptops that share a prefix.
struct Laptops {
    network: Topology,
    router: Node,
    a: Node,
    b: Node,
    /// The links, seen from the router.
    to_a: End,
    to_b: End,
    /// The links, seen from the laptops.
    from_a: End,
    from_b: End,
}

impl Laptops {
    fn new() -> Self {
        let mut network = Topology::new();
        let router = network.router("access");
        let [a, b] = [(); 2].map(|()| network.router("best-route"));
        let [to_a, from_a] = network.link([router, a], 10);
        let [to_b, from_b] = network.link([router, b], 20);
        network.route(to_a, "/laptops", 0);
        network.route(to_b, "/laptops", 0);
        Self { network, router, a, b, to_a, to_b, from_a, from_b }
    }

    fn sent(&self, end: End) -> u32 {
        self.network.counts(end).out_interests
    }

    fn answered(&self, consumer: End) -> u32 {
        self.network.counts(consumer).out_data
    }
}

#[test]
fn access_finds_the_producer() {
    let mut laptops = Laptops::new();
    laptops.network.producer(laptops.a, "/laptops/A", 0);
    let consumer = laptops.network.consumer(laptops.router);
    laptops.network.ask_each(consumer, "/laptops/A", 100, 0..100);
    assert_eq!(laptops.answered(consumer), 100);
    assert_eq!(laptops.sent(laptops.to_a), 100);
    assert_eq!(laptops.sent(laptops.to_b), 1);
}

#[test]
fn access_prefers_the_faster_producer() {
    let mut laptops = Laptops::new();
    laptops.network.producer(laptops.a, "/laptops/BOTH", 0);
    laptops.network.producer(laptops.b, "/laptops/BOTH", 0);
    let consumer = laptops.network.consumer(laptops.router);
    laptops.network.ask_each(consumer, "/laptops/BOTH", 100, 0..100);
    assert_eq!(laptops.answered(consumer), 100);
    assert!(laptops.sent(laptops.to_a) >= 90);
    assert!(laptops.sent(laptops.to_b) <= 15);
}

#[test]
fn access_follows_a_moving_producer() {
    let mut laptops = Laptops::new();
    let on_a = laptops.network.producer(laptops.a, "/laptops/M", 0);
    let on_b = laptops.network.producer(laptops.b, "/laptops/M", 0);
    let consumer = laptops.network.consumer(laptops.router);
    laptops.network.set_down(on_b, true);
    laptops.network.ask_each(consumer, "/laptops/M", 100, 0..60);
    assert!(laptops.sent(laptops.to_b) <= 5);
    let to_a = laptops.sent(laptops.to_a);
    laptops.network.set_down(on_a, true);
    laptops.network.set_down(on_b, false);
    laptops.network.ask_each(consumer, "/laptops/M", 100, 60..120);
    laptops.network.run_ms(1000);
    assert!(laptops.sent(laptops.to_a) - to_a <= 5);
    assert!(laptops.answered(consumer) >= 117, "{}", laptops.answered(consumer));
}

#[test]
fn access_serves_both_directions() {
    let mut laptops = Laptops::new();
    laptops.network.route(laptops.from_a, "/", 0);
    laptops.network.route(laptops.from_b, "/", 0);
    laptops.network.producer(laptops.a, "/laptops/A", 0);
    laptops.network.producer(laptops.b, "/laptops/B", 0);
    let (on_a, on_b) = (laptops.network.consumer(laptops.a), laptops.network.consumer(laptops.b));
    for number in 0..100 {
        laptops.network.ask(on_a, &Ask::new(&format!("/laptops/B/{number}"), 2 * number));
        laptops.network.ask(on_b, &Ask::new(&format!("/laptops/A/{number}"), 2 * number + 1));
        laptops.network.run_ms(100);
    }
    assert_eq!(laptops.answered(on_a), 100);
    assert_eq!(laptops.answered(on_b), 100);
}

/// NFD's bug 2831: an Interest must not return to its ingress.
#[test]
fn access_does_not_send_back() {
    let mut network = Topology::new();
    let router = network.router("access");
    let laptop = network.router("access");
    let [to_laptop, to_router] = network.link([router, laptop], 10);
    network.route(to_laptop, "/net", 0);
    network.route(to_router, "/net", 0);
    let consumer = network.consumer(laptop);
    network.ask_each(consumer, "/net", 100, 0..10);
    assert_eq!(network.counts(to_router).out_interests, 10);
    assert_eq!(network.counts(to_laptop).out_interests, 0);
}

fn faces(packets: &[OutPacket]) -> Vec<FaceId> {
    packets.iter().map(|packet| packet.face).collect()
}

fn with_working_hop() -> Fixture {
    let mut fixture = Fixture::new();
    fixture.strategy("/l", ACCESS);
    fixture.route("/l", &[(U, 0), (V, 1), (SPOOFABLE, 2)]);
    assert_eq!(faces(&fixture.ask(LOCAL, &Ask::new("/l/x/1", 1))), [U, V, SPOOFABLE]);
    fixture.pass_ms(10);
    fixture.answer(V, data("/l/x/1", 0));
    fixture
}

/// Each namespace has its own working next hop.
#[test]
fn access_learns_for_each_namespace() {
    let mut fixture = with_working_hop();
    assert_eq!(faces(&fixture.ask(LOCAL, &Ask::new("/l/x/2", 1))), [V]);
    assert_eq!(faces(&fixture.ask(LOCAL, &Ask::new("/l/x/longer/1", 1))), [V]);
    assert_eq!(faces(&fixture.ask(LOCAL, &Ask::new("/l/y/1", 1))), [U, V, SPOOFABLE]);
    fixture.pass_ms(10);
    fixture.answer(U, data("/l/y/1", 0));
    fixture.answer(V, data("/l/x/2", 0));
    assert_eq!(faces(&fixture.ask(LOCAL, &Ask::new("/l/y/2", 1))), [U]);
    assert_eq!(faces(&fixture.ask(LOCAL, &Ask::new("/l/x/3", 1))), [V]);
    // V itself is the downstream.
    assert_eq!(faces(&fixture.ask(V, &Ask::new("/l/x/4", 1))), [U, SPOOFABLE]);
    // The working next hop has left the FIB.
    fixture.route("/l", &[(U, 0), (SPOOFABLE, 2)]);
    assert_eq!(faces(&fixture.ask(LOCAL, &Ask::new("/l/x/5", 1))), [U, SPOOFABLE]);
}

#[test]
fn access_forgets_after_eight_seconds() {
    let mut fixture = with_working_hop();
    fixture.pass_ms(7900);
    assert_eq!(faces(&fixture.ask(LOCAL, &Ask::new("/l/x/2", 1))), [V]);
    fixture.pass_ms(100);
    fixture.take();
    assert_eq!(faces(&fixture.ask(LOCAL, &Ask::new("/l/x/3", 1))), [U, V, SPOOFABLE]);
}

/// The working next hop is silent or refuses, so the others receive the Interest.
#[test]
fn access_tries_all_others_after_failure() {
    let mut fixture = with_working_hop();
    assert_eq!(faces(&fixture.ask(LOCAL, &Ask::new("/l/x/2", 1))), [V]);
    fixture.pass_ms(199);
    assert_eq!(faces(&fixture.take()), []);
    fixture.pass_ms(2);
    assert_eq!(faces(&fixture.take()), [U, SPOOFABLE]);
    assert_eq!(sent(&fixture.answer(U, data("/l/x/2", 0))), vec![(LOCAL, PacketKind::Data)]);
    let asked = fixture.ask(LOCAL, &Ask::new("/l/x/3", 1)).remove(0);
    assert_eq!(asked.face, U, "it works now");
    let others = fixture.nack(U, NackReason::NoRoute, &asked.packet);
    assert_eq!(faces(&others), [V, SPOOFABLE]);
    assert_eq!(sent(&fixture.answer(V, data("/l/x/3", 0))), vec![(LOCAL, PacketKind::Data)]);
}

#[test]
fn access_suppresses_and_broadcasts_retransmissions() {
    let mut fixture = with_working_hop();
    assert_eq!(faces(&fixture.ask(LOCAL, &Ask::new("/l/x/2", 1))), [V]);
    fixture.pass_ms(9);
    assert_eq!(faces(&fixture.ask(LOCAL, &Ask::new("/l/x/2", 2))), []);
    assert_eq!(fixture.drops(DropReason::Suppressed), 1);
    fixture.pass_ms(2);
    assert_eq!(faces(&fixture.ask(LOCAL, &Ask::new("/l/x/2", 3))), [U, V, SPOOFABLE]);
    assert_eq!(sent(&fixture.answer(V, data("/l/x/2", 0))), vec![(LOCAL, PacketKind::Data)]);
}

#[test]
fn access_without_next_hop_sends_nothing() {
    let mut fixture = Fixture::new();
    fixture.strategy("/l", ACCESS);
    assert!(fixture.ask(LOCAL, &Ask::new("/l/x/1", 1)).is_empty());
    assert_eq!(fixture.drops(DropReason::NoNextHop), 1);
}
