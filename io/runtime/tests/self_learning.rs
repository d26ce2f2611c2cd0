//! A router with two neighbours (strategy self-learning). One has the producer. The first Interest
//! goes to both, and the second follows the learned route.

use std::os::unix::net::UnixStream;

use weir_io_fixture::router::{
    Peer, TestRouter, content_of, data, interest, name, name_of, response_of,
};
use weir_runtime::{Snapshot, StaticFace};
use weir_wire::{Data, Interest};

fn start(threads: usize, neighbours: &[&TestRouter]) -> TestRouter {
    let router = TestRouter::start_with(|config| {
        config.threads = threads;
        let strategy = name("/localhost/nfd/strategy/self-learning");
        config.strategies = vec![(name("/"), strategy)];
        let faces = neighbours.iter().map(|neighbour| StaticFace {
            uri: format!("udp4://{}", neighbour.address("udp4")),
            permanent: true,
            ..StaticFace::default()
        });
        config.static_faces = faces.collect();
    });
    router.wait_until("the faces are there", |snapshot| snapshot.faces.len() == neighbours.len());
    router
}

fn announce(producer: &mut Peer<UnixStream>, prefix: &str) {
    let mut announced = name(prefix);
    announced.append_keyword(b"PA").append_version(1).append_segment(0);
    // ExpirationPeriod: one hour.
    let content = [0x6D, 4, 0, 0x36, 0xEE, 0x80];
    let announcement = Data::new(announced).content_type(5).content(content).encode_with_digest();
    let command = Interest::new(name("/localhost/nfd/rib/announce")).nonce(1);
    producer.send(&command.application_parameters(announcement).encode());
    assert_eq!(response_of(&producer.receive().data()).code, 200);
}

fn interests_to(snapshot: &Snapshot, neighbour: &TestRouter) -> u64 {
    let uri = format!("udp4://{}", neighbour.address("udp4"));
    let mut faces = snapshot.faces.iter().filter(|face| face.uri == uri);
    faces.next().unwrap().counters.out_interests
}

fn second_interest_follows_the_route(threads: usize, is_announced: bool) {
    let near = start(threads, &[]);
    let empty = start(threads, &[]);
    let middle = start(threads, &[&near, &empty]);
    let mut producer = near.unix();
    match is_announced {
        true => announce(&mut producer, "/p"),
        false => producer.register("/p"),
    }
    let mut consumer = middle.unix();
    for number in 0..6 {
        let uri = format!("/p/{number}");
        let is_prefix = number == 5;
        let asked = Interest::new(name(&uri)).can_be_prefix(is_prefix).nonce(number + 1);
        consumer.send(&asked.encode());
        assert_eq!(name_of(&producer.receive().interest()), uri);
        let found = if is_prefix { format!("{uri}/v=1/seg=0") } else { uri };
        producer.send(&data(&found, b"found"));
        assert_eq!(content_of(&consumer.receive().data()), b"found");
        middle.wait_until("the route is learned", |snapshot| snapshot.router.fib_entries == 3);
    }
    let snapshot = middle.snapshot();
    assert_eq!(interests_to(&snapshot, &near), 6);
    assert_eq!(interests_to(&snapshot, &empty), 1);
    // Without the producer the route ends with the first Interest, and the second is a flood.
    drop(producer);
    near.wait_until("the producer is gone", |snapshot| snapshot.router.fib_entries == 2);
    consumer.send(&interest("/p/gone"));
    consumer.receive().nack();
    middle.wait_until("the route has ended", |snapshot| snapshot.router.fib_entries == 2);
    consumer.send(&interest("/p/gone/2"));
    middle.wait_until("the flood", |snapshot| interests_to(snapshot, &empty) == 2);
    [near, empty, middle].into_iter().for_each(TestRouter::stop);
}

#[test]
fn second_interest_follows_the_announced_route() {
    second_interest_follows_the_route(1, true);
    second_interest_follows_the_route(3, true);
}

#[test]
fn second_interest_follows_the_registered_route() {
    second_interest_follows_the_route(1, false);
    second_interest_follows_the_route(3, false);
}

/// The first Interest has CanBePrefix, so its Data may arrive at another shard.
#[test]
fn discovery_of_a_prefix_learns_the_route() {
    for threads in [1, 3] {
        let near = start(threads, &[]);
        let middle = start(threads, &[&near]);
        let mut producer = near.unix();
        announce(&mut producer, "/p");
        let mut consumer = middle.unix();
        consumer.send(&Interest::new(name("/p/x")).can_be_prefix(true).nonce(7).encode());
        producer.receive().interest();
        producer.send(&data("/p/x/v=1/seg=0", b"found"));
        assert_eq!(content_of(&consumer.receive().data()), b"found");
        middle.wait_until("the route is learned", |snapshot| snapshot.router.fib_entries == 3);
        [near, middle].into_iter().for_each(TestRouter::stop);
    }
}
