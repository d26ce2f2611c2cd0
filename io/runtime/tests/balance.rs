//! Faces move to less loaded worker threads, without an effect that a peer can notice.

use std::collections::BTreeSet;
use std::os::unix::net::UnixStream;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use weir_base::{Instant as Time, Pool};
use weir_face::{FaceUri, Socket};
use weir_io_fixture::router::{Peer, ReceivedPacket, TestRouter, data, interest, name_of};
use weir_link::{Link, Received};
use weir_runtime::Snapshot;
use weir_wire::{LpFraming, LpHeader, NackReason};

/// Links need some time value.
const START: Time = Time::ZERO;
/// Pending Interests of a consumer.
const WINDOW: usize = 32;
/// How long a test waits until faces have moved.
const TEST_TIMEOUT: Duration = Duration::from_secs(60);

fn start(threads: usize, interval: Duration) -> TestRouter {
    TestRouter::start_with(|config| {
        config.threads = threads;
        config.rebalance_interval = interval;
    })
}

/// Answers every Interest until the router closes its face.
fn serve(mut producer: Peer<UnixStream>) -> JoinHandle<()> {
    producer.socket.set_read_timeout(None).unwrap();
    std::thread::spawn(move || {
        while let Ok(Some(frame)) = producer.try_frame() {
            let ReceivedPacket::Interest { header, wire } = ReceivedPacket::of_frame(&frame) else {
                continue;
            };
            let packet = data(&name_of(&wire), &[7; 1000]);
            let answer = LpHeader { pit_token: header.pit_token, ..LpHeader::default() };
            let mut prefix = [0; weir_wire::LP_PREFIX_MAX];
            let prefix_len = answer.encode_prefix(&LpFraming::BARE, packet.len(), &mut prefix);
            producer.send(&[&prefix[..prefix_len], &packet].concat());
        }
    })
}

/// New names and their Interests.
fn window(next: &mut u64) -> (BTreeSet<String>, Vec<Vec<u8>>) {
    let uris: BTreeSet<String> =
        (*next..*next + WINDOW as u64).map(|number| format!("/b/{number}")).collect();
    *next += WINDOW as u64;
    let interests = uris.iter().map(|uri| interest(uri)).collect();
    (uris, interests)
}

/// Requests a window of new Data and receives all of it.
fn exchange(consumer: &mut Peer<UnixStream>, next: &mut u64) {
    let (asked, interests) = window(next);
    consumer.send(&interests.concat());
    let came: BTreeSet<String> = (0..WINDOW).map(|_| name_of(&consumer.receive().data())).collect();
    assert_eq!(came, asked);
}

fn threads_of(snapshot: &Snapshot) -> Vec<u16> {
    snapshot.faces.iter().map(|face| face.thread).collect()
}

/// An application that switches to shared memory once there is traffic.
struct Application {
    socket: Socket,
    link: Link,
    pool: Pool,
}

impl Application {
    fn connect(router: &TestRouter) -> Self {
        let uri = FaceUri::Unix(router.path.clone());
        let socket = Socket::connect(&uri, TEST_TIMEOUT).unwrap();
        let link = Link::new(socket.link_config());
        Self { socket, link, pool: Pool::new(1 << 20) }
    }

    fn exchange(&mut self, next: &mut u64) {
        let (uris, interests) = window(next);
        for interest in interests {
            self.link.enqueue(START, LpHeader::default(), interest.into()).unwrap();
        }
        let (mut came, mut frames) = (BTreeSet::new(), Vec::new());
        let deadline = Instant::now() + TEST_TIMEOUT;
        while came.len() < WINDOW {
            assert!(Instant::now() < deadline, "{} of {WINDOW} came", came.len());
            self.socket.send(&mut self.link).unwrap();
            self.socket.recv(&mut self.pool, &mut frames).unwrap();
            if frames.is_empty() {
                std::thread::sleep(Duration::from_micros(50));
            }
            for frame in frames.drain(..) {
                let received = self.link.receive(START, frame, &mut self.pool);
                if let Received::Packet { packet, .. } = received {
                    came.insert(name_of(&packet));
                }
            }
        }
        assert_eq!(came, uris);
    }
}

/// Connects one after the other, so that faces are created in this order.
fn connect(router: &TestRouter, count: usize) -> Vec<Peer<UnixStream>> {
    let before = router.snapshot().faces.len();
    (1..=count)
        .map(|number| {
            let peer = router.unix();
            router.wait_until("a face", |snapshot| snapshot.faces.len() == before + number);
            peer
        })
        .collect()
}

#[test]
fn busy_faces_do_not_stay_on_one_thread() {
    let router = start(2, Duration::from_millis(50));
    let mut producer = router.unix();
    producer.register("/b");
    let producer = serve(producer);
    let mut consumers = connect(&router, 4);
    assert_eq!(threads_of(&router.snapshot()), [0, 1, 0, 1, 0]);
    // On the producer's thread.
    let deadline = Instant::now() + TEST_TIMEOUT;
    let mut next = 0;
    loop {
        exchange(&mut consumers[1], &mut next);
        exchange(&mut consumers[3], &mut next);
        let threads = threads_of(&router.snapshot());
        assert_eq!(threads.len(), 5, "a face on its way is in each snapshot");
        if threads != [0, 1, 0, 1, 0] {
            break;
        }
        assert!(Instant::now() < deadline, "{threads:?}");
    }
    let snapshot = router.snapshot();
    let gone = snapshot.runtime_drops.iter().filter(|(reason, _)| *reason == "face-gone");
    assert_eq!(gone.map(|(_, count)| count).sum::<u64>(), 0);
    router.stop();
    producer.join().unwrap();
}

/// Faces are created, move and are removed while the load shifts between them.
#[test]
fn moving_faces_loses_nothing() {
    let router = start(3, Duration::from_millis(2));
    let mut producer = router.unix();
    producer.register("/b");
    let producer = serve(producer);
    let mut consumers = connect(&router, 6);
    let deadline = Instant::now() + TEST_TIMEOUT;
    let (mut next, mut moves, mut round) = (0, 0, 0);
    let mut before = threads_of(&router.snapshot());
    while moves < 30 {
        assert!(Instant::now() < deadline, "{moves} moves");
        round += 1;
        // Two faces of one thread have all the load for a while.
        let mut busy: Vec<usize> = (0..6).collect();
        busy.sort_by_key(|&consumer| {
            (before.get(consumer + 1) != before.get(round % 6 + 1), consumer)
        });
        for _ in 0..8 {
            for &consumer in &busy[..2] {
                exchange(&mut consumers[consumer], &mut next);
            }
        }
        // One face is removed meanwhile.
        let mut passing = router.unix();
        for _ in 0..round % 8 {
            exchange(&mut passing, &mut next);
        }
        passing.send(&interest(&format!("/b/passing/{round}")));
        drop(passing);
        router.wait_until("it is gone", |snapshot| snapshot.faces.len() == 7);
        let now = threads_of(&router.snapshot());
        moves += now.iter().zip(&before).filter(|(now, before)| now != before).count();
        before = now;
    }
    drop(consumers);
    router.wait_until("all are gone but the producer", |snapshot| snapshot.faces.len() == 1);
    router.stop();
    producer.join().unwrap();
}

/// The same for faces that use shared memory.
#[test]
fn shared_memory_moves_along() {
    let router = start(2, Duration::from_millis(20));
    let mut producer = router.unix();
    producer.register("/b");
    let producer = serve(producer);
    let silent = connect(&router, 1);
    let mut application = Application::connect(&router);
    let mut next = 0;
    let thread = |router: &TestRouter| {
        let snapshot = router.snapshot();
        let shared = snapshot.faces.iter().find(|face| face.local_uri.starts_with("shm://"));
        shared.map(|face| face.thread)
    };
    let deadline = Instant::now() + TEST_TIMEOUT;
    while thread(&router).is_none() {
        assert!(Instant::now() < deadline, "it does not go over");
        application.exchange(&mut next);
    }
    // On the producer's thread, where a plain consumer reduces the load of this one.
    let first = thread(&router);
    let mut plain = router.unix();
    while thread(&router) == first {
        assert!(Instant::now() < deadline);
        application.exchange(&mut next);
        exchange(&mut plain, &mut next);
    }
    for _ in 0..20 {
        application.exchange(&mut next);
    }
    drop((silent, plain, application));
    router.wait_until("all are gone but the producer", |snapshot| snapshot.faces.len() == 1);
    router.stop();
    producer.join().unwrap();
}

/// When a producer that has moved disconnects, all shards forget it.
#[test]
fn moved_face_leaves_all_shards() {
    let router = start(2, Duration::from_millis(20));
    let mut peers = connect(&router, 3);
    let mut consumer = peers.remove(1);
    for (number, peer) in peers.iter_mut().enumerate() {
        peer.register(&format!("/p{number}"));
    }
    let deadline = Instant::now() + TEST_TIMEOUT;
    // Both producers constantly request unavailable names, and one of them moves.
    let first = threads_of(&router.snapshot());
    while threads_of(&router.snapshot()) == first {
        assert!(Instant::now() < deadline);
        for peer in &mut peers {
            let asked: Vec<Vec<u8>> = (0..WINDOW).map(|_| interest("/absent")).collect();
            peer.send(&asked.concat());
            for _ in 0..WINDOW {
                assert_eq!(peer.receive().nack(), NackReason::NoRoute);
            }
        }
    }
    drop(peers);
    router.wait_until("the producers are gone", |snapshot| snapshot.faces.len() == 1);
    for number in 0..2 {
        for segment in 0..8 {
            consumer.send(&interest(&format!("/p{number}/{}", segment * 64)));
            assert_eq!(consumer.receive().nack(), NackReason::NoRoute);
        }
    }
}
