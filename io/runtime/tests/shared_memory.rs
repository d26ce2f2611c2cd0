//! Applications that share memory with a whole router, including hostile ones.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;

use weir_io_fixture::TEST_TIMEOUT;
use weir_io_fixture::hostile_peer::{FromApplication, FromRouter, HostilePeer, SHARED_BYTES};
use weir_io_fixture::router::{TestRouter, content_of, data, interest};
use weir_link::LinkDrop;
use weir_runtime::{Snapshot, UnsolicitedPolicy};
use weir_wire::{LP_PREFIX_MAX, LpFraming, LpHeader, NackReason};

/// An application that uses shared memory.
fn shared(router: &TestRouter) -> HostilePeer {
    let stream = UnixStream::connect(&router.path).unwrap();
    stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    let mut attacker = HostilePeer::new(stream);
    attacker.offer();
    // The router switches when it has something to send.
    attacker.send(&interest("/unrouted/some/name"));
    attacker.wait_for_octets(nack_len(), TEST_TIMEOUT);
    attacker.switch();
    router.wait_until("both have gone over", |snapshot| shared_faces(snapshot) == 1);
    attacker
}

/// Size of the answer to an Interest without a route.
fn nack_len() -> u32 {
    let header = LpHeader { nack: Some(NackReason::NoRoute), ..LpHeader::default() };
    let packet = interest("/unrouted/some/name");
    let mut prefix = [0; LP_PREFIX_MAX];
    (header.encode_prefix(&LpFraming::BARE, packet.len(), &mut prefix) + packet.len()) as u32
}

fn shared_faces(snapshot: &Snapshot) -> usize {
    snapshot.faces.iter().filter(|face| face.local_uri.starts_with("shm://")).count()
}

fn drops(snapshot: &Snapshot, reason: &str) -> u64 {
    snapshot.runtime_drops.iter().find(|(known, _)| *known == reason).expect("is counted").1
}

#[test]
fn ring_carries_interests_and_data() {
    let router = TestRouter::start();
    let mut producer = router.unix();
    producer.register("/movies");
    let mut consumer = shared(&router);
    consumer.write(&interest("/movies/one"));
    consumer.send(&[0x64, 0]);
    producer.receive().interest();
    producer.send(&data("/movies/one", b"first"));
    let len = data("/movies/one", b"first").len() as u32;
    let packet = consumer.wait_for_octets(len, TEST_TIMEOUT);
    assert_eq!(content_of(&packet), b"first");
    drop(consumer);
    router.wait_until("the face is closed", |snapshot| snapshot.faces.len() == 1);
    router.stop();
}

/// One read brings Interests for more Data than the face's queue holds, while socket or ring have
/// space for more. Regression: a whole read was answered before anything was sent.
#[test]
fn answers_are_sent_during_one_read() {
    const COUNT: usize = 128;
    const QUEUED_MAX: usize = 110;
    let uri = |number: usize| format!("/block/{number}");
    for is_shared in [false, true] {
        let router = TestRouter::start_with(|config| {
            config.unsolicited = UnsolicitedPolicy::AdmitLocal;
            config.face_defaults.queue_bytes_max = QUEUED_MAX * 8400;
        });
        let mut producer = router.unix();
        (0..COUNT).for_each(|number| producer.send(&data(&uri(number), &[7; 8000])));
        let is_stored = |snapshot: &Snapshot| snapshot.router.store.entries == COUNT as u64;
        router.wait_until("all is stored", is_stored);
        let interests: Vec<u8> = (0..COUNT).flat_map(|number| interest(&uri(number))).collect();
        let mut consumer = match is_shared {
            true => shared(&router),
            false => HostilePeer::new(UnixStream::connect(&router.path).unwrap()),
        };
        if is_shared {
            consumer.write(&interests);
            consumer.send(&[0x64, 0]);
        } else {
            consumer.send(&interests);
        }
        let are_answered = |snapshot: &Snapshot| snapshot.router.store.hits == COUNT as u64;
        router.wait_until("all are answered", are_answered);
        let drops = router.snapshot().link_drops;
        assert!(drops.contains(&(LinkDrop::QueueFull, 0)), "shared {is_shared}: {drops:?}");
        router.stop();
    }
}

#[test]
fn nonsense_in_a_ring_closes_the_face() {
    let router = TestRouter::start();
    type Harm = fn(&mut HostilePeer);
    let harms: [(&str, Harm); 4] = [
        ("shared-memory-broken", |attacker| attacker.set(FromApplication::Written, 1 << 30)),
        ("shared-memory-broken", |attacker| attacker.write(&[6, 100, 1, 2])),
        ("framing-lost", |attacker| attacker.write(&[0xff; 5000])),
        ("shared-memory-broken", |attacker| {
            attacker.set(FromRouter::Read, 1 << 31);
            attacker.write(&interest("/unrouted/some/name"));
        }),
    ];
    for (reason, harm) in harms {
        let mut attacker = shared(&router);
        let before = drops(&router.snapshot(), reason);
        harm(&mut attacker);
        attacker.send(&[0x64, 0]);
        router.wait_until("its face is closed", |snapshot| snapshot.faces.is_empty());
        assert_eq!(drops(&router.snapshot(), reason), before + 1, "{reason}");
    }
    // The router is not affected.
    router.unix().register("/still/here");
    router.stop();
}

#[test]
fn excess_memory_offers_are_refused() {
    let router = TestRouter::start_with(|config| {
        config.memory_bytes_max = 16 * 2 * SHARED_BYTES as u64;
    });
    let mut attackers: Vec<HostilePeer> =
        (0..3).map(|_| HostilePeer::new(UnixStream::connect(&router.path).unwrap())).collect();
    for attacker in &mut attackers {
        attacker.offer();
        attacker.send(&interest("/unrouted/some/name"));
        attacker.received();
    }
    assert_eq!(drops(&router.snapshot(), "shared-memory-refused"), 1);
    attackers.clear();
    router.wait_until("all are gone", |snapshot| snapshot.faces.is_empty());
    shared(&router);
}

fn metrics(router: &TestRouter) -> String {
    let mut http = TcpStream::connect(router.handle().metrics_address().unwrap()).unwrap();
    http.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
    let mut text = String::new();
    http.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn metrics_cover_shared_memory() {
    let bytes_max = 2 * SHARED_BYTES as u64;
    let router = TestRouter::start_with(|config| {
        config.memory_bytes_max = 16 * bytes_max;
        config.metrics = Some("127.0.0.1:0".parse().unwrap());
    });
    let drops = |reason: &str, count: u64| {
        format!("weir_drops_total{{layer=\"runtime\",reason=\"{reason}\"}} {count}")
    };
    let expect = |faces: u64, used: u64, [taken, refused, broken]: [u64; 3]| {
        let used = used * SHARED_BYTES as u64;
        let metrics = metrics(&router);
        for line in [
            format!("weir_shared_memory_faces {faces}"),
            format!("weir_shared_memory_bytes {used}"),
            format!("weir_shared_memory_max_bytes {bytes_max}"),
            format!("weir_shared_memory_offers_accepted_total {taken}"),
            drops("shared-memory-refused", refused),
            drops("shared-memory-broken", broken),
        ] {
            assert!(metrics.lines().any(|found| found == line), "{line} is not in\n{metrics}");
        }
    };
    expect(0, 0, [0, 0, 0]);
    let mut first = shared(&router);
    expect(1, 1, [1, 0, 0]);
    // One that has not switched yet.
    let mut second = HostilePeer::new(UnixStream::connect(&router.path).unwrap());
    let mut third = HostilePeer::new(UnixStream::connect(&router.path).unwrap());
    for attacker in [&mut second, &mut third] {
        attacker.offer();
        attacker.send(&interest("/unrouted/some/name"));
        attacker.received();
    }
    expect(1, 2, [2, 1, 0]);
    first.set(FromApplication::Written, 1 << 30);
    first.send(&[0x64, 0]);
    router.wait_until("its face is closed", |snapshot| snapshot.faces.len() == 2);
    expect(0, 1, [2, 1, 1]);
    drop((second, third));
    router.wait_until("all are gone", |snapshot| snapshot.faces.is_empty());
    expect(0, 0, [2, 1, 1]);
    router.stop();
}
