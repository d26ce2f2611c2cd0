//! Applications and routers that switch from a Unix connection to shared memory.

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant as Clock};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use tempfile::TempDir;
use weir_base::{Instant, Packet, Pool};
use weir_face::{
    Accepted, FaceUri, Listener, RecvStatus, SendStatus, SharedMemory, Socket, UnixAccess,
    UnixListener,
};
use weir_io_fixture::TEST_TIMEOUT;
use weir_io_fixture::face::data;
use weir_io_fixture::hostile_peer::{self, FromApplication, FromRouter, HostilePeer, SHARED_BYTES};
use weir_link::{Link, LinkConfig, Received};
use weir_wire::FrameError;

fn accepted(listener: &Listener) -> Socket {
    match listener.accept().unwrap() {
        Some(Accepted::Socket(socket)) => socket,
        other => panic!("{other:?}"),
    }
}

/// A router's Unix socket, and the memory that its peers may share.
struct SharingListener {
    listener: Listener,
    memory: Arc<SharedMemory>,
    uri: FaceUri,
    _directory: TempDir,
}

impl SharingListener {
    fn new(bytes_max: u64) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut listener =
            UnixListener::bind(&directory.path().join("nfd.sock"), UnixAccess::default()).unwrap();
        let memory = Arc::new(SharedMemory::new(bytes_max));
        listener.share_memory(Arc::clone(&memory));
        let uri = listener.local_uri();
        Self { listener: Listener::Unix(listener), memory, uri, _directory: directory }
    }

    fn accept(&self) -> SharedEnd {
        SharedEnd::new(accepted(&self.listener))
    }

    /// An application's end and the router's end.
    fn pair(&self) -> (SharedEnd, SharedEnd) {
        let near = Socket::connect(&self.uri, Duration::from_secs(1)).unwrap();
        (SharedEnd::new(near), self.accept())
    }

    /// The same, after both have switched to shared memory.
    fn shared_pair(&self) -> (SharedEnd, SharedEnd) {
        let (mut application, mut router) = self.pair();
        switch_to_ring(&mut application, &mut router);
        (application, router)
    }

    fn hostile_peer(&self) -> (HostilePeer, SharedEnd) {
        let FaceUri::Unix(path) = &self.uri else { panic!("a path") };
        let stream = UnixStream::connect(path).unwrap();
        (HostilePeer::new(stream), self.accept())
    }

    /// A hostile application whose offer was accepted.
    fn shared_hostile_peer(&self) -> (HostilePeer, SharedEnd) {
        let (mut peer, mut router) = self.hostile_peer();
        peer.offer();
        router.send_and_read().unwrap();
        router.enqueue(&data(40, 0));
        router.send_and_read().unwrap();
        peer.switch();
        router.send_and_read().unwrap();
        assert!(router.socket.is_shared());
        (peer, router)
    }
}

struct SharedEnd {
    socket: Socket,
    link: Link,
    pool: Pool,
    frames: Vec<Packet>,
    packets: Vec<Packet>,
}

impl SharedEnd {
    fn new(socket: Socket) -> Self {
        let link = Link::new(LinkConfig { ..socket.link_config() });
        Self { socket, link, pool: Pool::new(4 << 20), frames: Vec::new(), packets: Vec::new() }
    }

    fn enqueue(&mut self, packet: &Packet) {
        self.link.enqueue(Instant::ZERO, Default::default(), packet.clone()).unwrap();
    }

    /// Sends as much as possible, and processes one read.
    fn send_and_read(&mut self) -> Result<SendStatus, RecvStatus> {
        let sent = self.socket.send(&mut self.link).unwrap();
        self.link.detach_frames(&mut self.pool);
        match self.read() {
            RecvStatus::Drained | RecvStatus::More => Ok(sent),
            other => Err(other),
        }
    }

    fn read(&mut self) -> RecvStatus {
        let status = self.socket.recv(&mut self.pool, &mut self.frames).unwrap();
        for frame in self.frames.drain(..) {
            match self.link.receive(Instant::ZERO, frame, &mut self.pool) {
                Received::Packet { packet, .. } => self.packets.push(packet),
                Received::Idle => {}
                other => panic!("{other:?}"),
            }
        }
        status
    }

    /// Reads until there is nothing more, or until the end.
    fn read_all(&mut self) -> RecvStatus {
        loop {
            match self.read() {
                RecvStatus::More => {}
                other => return other,
            }
        }
    }

    /// Waits until there is something to read, for at most `limit`.
    fn wait(&self, limit: Duration) -> bool {
        let mut watched = [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)];
        poll(&mut watched, PollTimeout::try_from(limit).unwrap()).unwrap() == 1
    }
}

/// Exchanges packets until both ends use shared memory.
fn switch_to_ring(application: &mut SharedEnd, router: &mut SharedEnd) {
    let end = Clock::now() + TEST_TIMEOUT;
    while !application.socket.is_shared() || !router.socket.is_shared() {
        assert!(Clock::now() < end, "{application:?} {router:?}");
        for (from, to) in [(0, 1), (1, 0)] {
            let ends = [&mut *application, &mut *router];
            ends[from].enqueue(&data(40, 1));
            ends[from].send_and_read().unwrap();
            let ends = [&mut *application, &mut *router];
            ends[to].send_and_read().unwrap();
        }
    }
    application.read_all();
    router.read_all();
    application.packets.clear();
    router.packets.clear();
}

impl std::fmt::Debug for SharedEnd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.socket.fmt(f)
    }
}

/// Packets of all sizes, so that they cross reads and the end of the ring in every way. The ends
/// switch while packets are in flight in both directions.
#[test]
fn packets_stay_in_order_during_the_switch() {
    let listener = SharingListener::new(1 << 30);
    let (mut application, mut router) = listener.pair();
    let packets: Vec<Packet> =
        (0..4000).map(|index| data(2 + (index * index * 37) % 8700, index)).collect();
    let mut sent = [0; 2];
    let end = Clock::now() + TEST_TIMEOUT;
    while application.packets.len() < packets.len() || router.packets.len() < packets.len() {
        assert!(Clock::now() < end);
        for (end, sent) in [&mut application, &mut router].into_iter().zip(&mut sent) {
            for packet in packets[*sent..].iter().take(7) {
                end.enqueue(packet);
                *sent += 1;
            }
            end.send_and_read().unwrap();
        }
    }
    assert!(application.packets == packets && router.packets == packets);
    assert!(application.socket.is_shared() && router.socket.is_shared());
    assert_eq!(listener.memory.used_bytes(), SHARED_BYTES as u64);
    drop(router);
    assert_eq!(listener.memory.used_bytes(), 0);
}

#[test]
fn a_few_packets_stay_on_the_connection() {
    let listener = SharingListener::new(1 << 30);
    let (mut application, mut router) = listener.pair();
    for index in 0..20 {
        router.enqueue(&data(100, index));
        router.send_and_read().unwrap();
        application.enqueue(&data(100, index));
        application.send_and_read().unwrap();
    }
    assert!(!application.socket.is_shared() && !router.socket.is_shared());
    assert_eq!(listener.memory.used_bytes(), 0);
}

/// Each end sleeps whenever it finds nothing, so every packet needs a doorbell.
#[test]
fn sleeping_end_is_woken() {
    const ROUNDS: usize = 5000;
    let listener = SharingListener::new(1 << 30);
    let (mut application, mut router) = listener.shared_pair();
    let answer = std::thread::spawn(move || {
        for round in 0..ROUNDS {
            while router.packets.len() <= round {
                if router.read_all() == RecvStatus::Drained && router.packets.len() <= round {
                    assert!(router.wait(TEST_TIMEOUT), "the router is woken in round {round}");
                }
            }
            router.enqueue(&data(100, round));
            assert_eq!(router.socket.send(&mut router.link).unwrap(), SendStatus::Drained);
        }
    });
    for round in 0..ROUNDS {
        application.enqueue(&data(100, round));
        application.socket.send(&mut application.link).unwrap();
        while application.packets.len() <= round {
            if application.read_all() == RecvStatus::Drained && application.packets.len() <= round {
                assert!(
                    application.wait(TEST_TIMEOUT),
                    "the application is woken in round {round}"
                );
            }
        }
        assert_eq!(application.packets[round], data(100, round));
    }
    answer.join().unwrap();
}

/// Like a socket: a bounded queue, then refusals. When the reader continues, all accepted packets
/// arrive, and the writer is woken.
#[test]
fn stopped_reader_costs_bounded_queue() {
    let listener = SharingListener::new(1 << 30);
    let (mut application, mut router) = listener.shared_pair();
    let mut taken = Vec::new();
    let mut refused = 0;
    for index in 0..3000 {
        let packet = data(8000, index);
        match router.link.enqueue(Instant::ZERO, Default::default(), packet.clone()) {
            Ok(()) => taken.push(packet),
            Err(reason) => {
                assert_eq!(reason, weir_link::LinkDrop::QueueFull);
                refused += 1;
            }
        }
        router.send_and_read().unwrap();
    }
    assert!(refused > 500, "24 MB do not fit into queue and ring");
    assert!(router.link.queue_bytes() <= router.link.config().egress.queue_bytes_max);
    assert!(router.socket.signals_space_by_input() && !router.wait(Duration::ZERO));
    let reader = std::thread::spawn(move || {
        let end = Clock::now() + TEST_TIMEOUT;
        while application.packets.len() < taken.len() && Clock::now() < end {
            if application.read_all() == RecvStatus::Drained {
                application.wait(Duration::from_millis(100));
            }
        }
        assert!(application.packets == taken, "{} came", application.packets.len());
    });
    while router.send_and_read().unwrap() == SendStatus::WouldBlock {
        let is_woken = router.socket.is_writable_again() || router.wait(TEST_TIMEOUT);
        assert!(is_woken, "the writer is notified of free space");
    }
    reader.join().unwrap();
}

#[test]
fn ring_backlog_sets_congestion_marks() {
    let (_application, mut router) = SharingListener::new(1 << 30).shared_pair();
    for index in 0..60 {
        let now = Instant::from_ns((index + 1) * 10 * weir_base::NS_PER_MS);
        router.link.enqueue(now, Default::default(), data(3000, index as usize)).unwrap();
        assert_eq!(router.socket.send(&mut router.link).unwrap(), SendStatus::Drained);
    }
    assert!(router.link.counters().marks_set > 0);
}

#[test]
fn packets_before_the_close_are_delivered() {
    let listener = SharingListener::new(1 << 30);
    for application_ends in [true, false] {
        let (application, router) = listener.shared_pair();
        let (mut ends, mut stays) =
            if application_ends { (application, router) } else { (router, application) };
        for index in 0..30 {
            ends.enqueue(&data(8000, index));
        }
        assert_eq!(ends.socket.send(&mut ends.link).unwrap(), SendStatus::Drained);
        drop(ends);
        assert_eq!(stays.read_all(), RecvStatus::Closed);
        assert_eq!(stays.packets.len(), 30);
        // The memory still exists. Writes into it have no effect.
        stays.enqueue(&data(8000, 0));
        stays.socket.send(&mut stays.link).unwrap();
        assert_eq!(stays.read_all(), RecvStatus::Closed);
    }
}

/// An application makes an offer, and a router without support ignores it.
#[test]
fn a_router_without_shared_memory_serves_on() {
    let directory = tempfile::tempdir().unwrap();
    let listener = Listener::Unix(
        UnixListener::bind(&directory.path().join("s"), UnixAccess::default()).unwrap(),
    );
    let near = Socket::connect(&listener.local_uri(), Duration::from_secs(1)).unwrap();
    let mut application = SharedEnd::new(near);
    let mut router = SharedEnd::new(accepted(&listener));
    for index in 0..200 {
        router.enqueue(&data(1000, index));
        router.send_and_read().unwrap();
        application.enqueue(&data(50, index));
        application.send_and_read().unwrap();
    }
    router.send_and_read().unwrap();
    assert!(!application.socket.is_shared() && !router.socket.is_shared());
    assert!((application.packets.len(), router.packets.len()) == (200, 200));
    assert!(router.link.counters().in_frames > 200, "there was an offer");
}

#[test]
fn memory_limit_keeps_faces_on_sockets() {
    let listener = SharingListener::new(2 * SHARED_BYTES as u64);
    let shared = [listener.shared_pair(), listener.shared_pair()];
    let (mut application, mut router) = listener.pair();
    for index in 0..200 {
        router.enqueue(&data(1000, index));
        router.send_and_read().unwrap();
        application.enqueue(&data(50, index));
        application.send_and_read().unwrap();
    }
    router.send_and_read().unwrap();
    assert!(!application.socket.is_shared() && !router.socket.is_shared());
    assert!((application.packets.len(), router.packets.len()) == (200, 200));
    assert_eq!(listener.memory.refused(), 1);
    drop(shared);
    assert_eq!(listener.memory.used_bytes(), 0);
    listener.shared_pair();
}

#[test]
fn rejects_unsuitable_memory() {
    let listener = SharingListener::new(1 << 30);
    let files = hostile_peer::bad_files();
    let count = files.len() as u64;
    for (what, file) in files {
        let (mut peer, mut router) = listener.hostile_peer();
        peer.offer_file(file.as_fd());
        for index in 0..3 {
            router.enqueue(&data(100, index));
            router.send_and_read().unwrap();
        }
        peer.send(&data(100, 1));
        router.send_and_read().unwrap();
        assert_eq!(router.packets, [data(100, 1)], "{what}");
        // The router would have switched with the first packet.
        assert!(!router.socket.signals_space_by_input(), "{what}");
        assert_eq!(peer.received().len(), 300, "{what}");
    }
    assert_eq!((listener.memory.refused(), listener.memory.used_bytes()), (count, 0));
}

#[test]
fn memory_cannot_be_shrunk() {
    let (peer, mut router) = SharingListener::new(1 << 30).shared_hostile_peer();
    peer.expect_sealed();
    router.enqueue(&data(8000, 1));
    assert_eq!(router.send_and_read(), Ok(SendStatus::Drained));
}

#[test]
fn incomplete_offers_change_nothing() {
    let listener = SharingListener::new(1 << 30);
    let (mut peer, mut router) = listener.hostile_peer();
    peer.send(&hostile_peer::OFFER);
    peer.switch();
    router.send_and_read().unwrap();
    peer.send_with_file(&data(40, 1));
    router.send_and_read().unwrap();
    router.enqueue(&data(40, 2));
    router.send_and_read().unwrap();
    assert_eq!(router.packets, [data(40, 1)]);
    assert!(!router.socket.signals_space_by_input() && listener.memory.used_bytes() == 0);
}

#[test]
fn nonsense_in_a_ring_ends_the_face() {
    let listener = SharingListener::new(1 << 30);
    for written in [600 << 10, (512 << 10) + 1, u32::MAX, 1 << 31] {
        let (peer, mut router) = listener.shared_hostile_peer();
        peer.set(FromApplication::Written, written);
        assert_eq!(router.send_and_read(), Err(RecvStatus::RingBroken), "written {written}");
    }
    for read in [600 << 10, 9000, u32::MAX, 1 << 31] {
        let (peer, mut router) = listener.shared_hostile_peer();
        peer.set(FromRouter::Read, read);
        router.enqueue(&data(8000, 1));
        let sent = router.socket.send(&mut router.link).unwrap();
        assert_eq!(sent, SendStatus::RingBroken, "read {read}");
    }
}

#[test]
fn octets_that_are_no_packets_end_the_face() {
    let listener = SharingListener::new(1 << 30);
    let part = data(300, 1)[..200].to_vec();
    for (octets, expected) in [
        (part, RecvStatus::RingBroken),
        (vec![0xa5; 9000], RecvStatus::FramingLost(FrameError::UnexpectedType(0xa5))),
        // Larger than a packet may be.
        (vec![6, 253, 255, 0, 0], RecvStatus::FramingLost(FrameError::TooLong(65_284))),
        (vec![6, 254, 0, 1, 0, 0], RecvStatus::FramingLost(FrameError::TooLong(65_542))),
    ] {
        let (mut peer, mut router) = listener.shared_hostile_peer();
        peer.write(&octets);
        assert_eq!(router.send_and_read(), Err(expected));
    }
}

/// Arbitrary flags and doorbells cost no more than a look at the ring.
#[test]
fn endless_doorbells_do_not_block() {
    let (mut peer, mut router) = SharingListener::new(1 << 30).shared_hostile_peer();
    router.packets.clear();
    for index in 0..200 {
        peer.set(FromApplication::Reader, index);
        peer.set(FromApplication::Writer, index % 3);
        peer.set(FromRouter::Reader, 0);
        peer.set(FromRouter::Writer, index);
        for _ in 0..20 {
            peer.send(&[0x64, 0]);
        }
        peer.write(&data(100, index as usize));
        router.enqueue(&data(100, 0));
        router.send_and_read().unwrap();
        router.read_all();
    }
    assert_eq!(router.packets.len(), 200);
}

/// Closing a TCP connection with SO_LINGER waits for its other end, and the sender can make the
/// receiver the last holder.
#[test]
fn slow_close_of_a_file_blocks_no_thread() {
    let listener = SharingListener::new(1 << 30);
    for sends in [hostile_peer::OFFER.as_slice(), &data(40, 1)] {
        let (mut peer, router) = listener.hostile_peer();
        let (lingers, _other_end) = hostile_peer::lingering_connection();
        peer.send_with(sends, &[lingers.as_fd()]);
        drop(lingers);
        let (done, is_done) = mpsc::channel();
        std::thread::spawn(move || {
            let mut router = router;
            router.send_and_read().unwrap();
            drop(router);
            done.send(()).unwrap();
        });
        is_done.recv_timeout(TEST_TIMEOUT).expect("the router continues");
    }
}

/// Files are closed with the face and its connection; none is leaked.
#[test]
fn unexpected_files_are_closed() {
    let listener = SharingListener::new(1 << 30);
    let closes: [fn(&mut SharedEnd); 3] = [
        |router| _ = router.send_and_read(),
        // The file is still in the connection when the face ends.
        |_| {},
        |router| {
            router.socket.recv(&mut router.pool, &mut router.frames).unwrap();
        },
    ];
    for close in closes {
        let (mut peer, mut router) = listener.hostile_peer();
        let (reader, writer) = std::io::pipe().unwrap();
        peer.send_with(&hostile_peer::OFFER, &[writer.as_fd()]);
        drop(writer);
        close(&mut router);
        drop(router);
        let mut watched = [PollFd::new(reader.as_fd(), PollFlags::POLLIN)];
        poll(&mut watched, PollTimeout::try_from(TEST_TIMEOUT).unwrap()).unwrap();
        assert_eq!(watched[0].revents(), Some(PollFlags::POLLHUP));
    }
}

/// A frame is partly in the connection when the application empties a full ring, so the doorbell
/// must not be inserted.
#[test]
fn no_doorbell_inside_partial_frame() {
    let listener = SharingListener::new(1 << 30);
    let (mut application, mut router) = listener.pair();
    for index in 0..40 {
        router.enqueue(&data(40, index));
        router.send_and_read().unwrap();
        application.send_and_read().unwrap();
    }
    router.read_all();
    application.packets.clear();
    let packets: Vec<Packet> = (0..300).map(|index| data(8000, index)).collect();
    let mut sent = 0;
    let mut fill = |end: &mut SharedEnd| {
        for packet in &packets[sent..] {
            sent += usize::from(
                end.link.enqueue(Instant::ZERO, Default::default(), packet.clone()).is_ok(),
            );
            if end.socket.send(&mut end.link).unwrap() == SendStatus::WouldBlock {
                break;
            }
        }
        sent
    };
    let sent_by_application = fill(&mut application);
    let sent_by_router = fill(&mut router) - sent_by_application;
    assert!(
        router.socket.signals_space_by_input(),
        "the router has gone over, and its ring is full"
    );
    let end = Clock::now() + TEST_TIMEOUT;
    while router.packets.len() < sent_by_application || application.packets.len() < sent_by_router {
        assert!(Clock::now() < end, "{application:?} {router:?}");
        application.read_all();
        router.read_all();
        application.send_and_read().unwrap();
        router.send_and_read().unwrap();
    }
    assert!(router.packets == packets[..sent_by_application]);
    assert!(application.packets == packets[sent_by_application..][..sent_by_router]);
}

#[test]
fn face_with_several_files_is_closed() {
    let listener = SharingListener::new(1 << 30);
    // So few that other tests of this process can send theirs.
    for at_once in [1, 2, 20] {
        let (mut peer, mut router) = listener.hostile_peer();
        let file = File::open("/dev/null").unwrap();
        for _ in 0..2 {
            peer.send_with(&data(40, 1), &vec![file.as_fd(); at_once]);
        }
        let result = (0..2)
            .try_for_each(|_| router.socket.recv(&mut router.pool, &mut router.frames).map(drop));
        assert_eq!(result.unwrap_err().kind(), std::io::ErrorKind::InvalidData, "{at_once}");
    }
}
