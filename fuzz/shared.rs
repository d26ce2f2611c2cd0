//! One end of a shared-memory connection, with a hostile peer that sends arbitrary bytes and files
//! and writes anywhere in the memory, between any two calls. Writes during a call are tested in
//! `ring.rs`. Shared by a property test of `weir-face` and a fuzz target.

use std::cell::RefCell;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixListener as StdListener;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use weir_base::{Instant, Packet, Pool};
use weir_face::{
    Accepted, FaceUri, Listener, RecvStatus, SendStatus, SharedMemory, Socket, UnixAccess,
    UnixListener,
};
use weir_io_fixture::hostile_peer::{
    self, HostilePeer, OFFER, RING_BYTES, SHARED_BYTES, SIZE_SEALS, SWITCH,
};
use weir_link::{Link, LinkConfig, Received};
use weir_wire::peek_frame;

const DOORBELL: [u8; 2] = [0x64, 0];
/// Number of frames after which an application makes an offer.
const FRAMES_BEFORE_OFFER: usize = 32;
/// Bytes of a script for one step.
const STEP_BYTES: usize = 6;
/// The unused range between the marks and the rings.
const UNUSED: std::ops::Range<usize> = 1024..4096;
const POISON: u8 = 0xA5;
/// Maximum number of consecutive calls that may return More while the peer does not write: for the
/// doorbells in a full connection, and a full ring.
const READS_MAX: usize = 10_000;

thread_local! {
    /// The sockets where routers and applications connect, for all scripts.
    static LISTENERS: Listeners = Listeners::new();
}

struct Listeners {
    router: Listener,
    memory: Arc<SharedMemory>,
    hostile: StdListener,
    directory: TempDir,
}

impl Listeners {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let mut router =
            UnixListener::bind(&directory.path().join("router"), UnixAccess::default())
                .expect("a socket");
        let memory = Arc::new(SharedMemory::new(1 << 30));
        router.share_memory(Arc::clone(&memory));
        let hostile = StdListener::bind(directory.path().join("hostile")).expect("a socket");
        Self { router: Listener::Unix(router), memory, hostile, directory }
    }

    /// A router's end, and a hostile application.
    fn router(&self) -> (Socket, HostilePeer) {
        let stream = UnixStream::connect(self.directory.path().join("router")).expect("listens");
        let Some(Accepted::Socket(socket)) = self.router.accept().expect("accepts") else {
            panic!("a connection waits")
        };
        (socket, HostilePeer::new(stream))
    }

    /// An application's end, and a hostile listener in place of a router.
    fn application(&self) -> (Socket, UnixStream) {
        let uri = FaceUri::Unix(self.directory.path().join("hostile"));
        let socket = Socket::connect(&uri, Duration::from_secs(1)).expect("listens");
        (socket, self.hostile.accept().expect("a connection waits").0)
    }
}

/// Runs `script`, for the hostile peer and for the end under test. Nothing may panic or run
/// forever. The end must deliver the bytes of the ring in whole frames, and write only to the marks
/// and its own ring.
pub(crate) fn check(script: &[u8]) {
    let [how, script @ ..] = script else { return };
    LISTENERS.with(|listeners| {
        let mut connection = match how % 3 {
            0 => Connection::of_router(listeners),
            1 => Connection::of_switched_router(listeners),
            _ => Connection::of_application(listeners),
        };
        if how & 0x80 != 0 && connection.reads_ring {
            // Start near the end of the ring.
            (0..RING_BYTES / 8004).for_each(|_| connection.write(&packet(8000)));
            assert!(connection.recv_all());
        }
        for step in script.chunks_exact(STEP_BYTES) {
            if !connection.step(step) {
                break;
            }
        }
        connection.end();
        assert_eq!(listeners.memory.used_bytes(), 0, "the memory is released");
    });
}

struct Connection {
    socket: Socket,
    link: Link,
    pool: Pool,
    frames: Vec<Packet>,
    peer: HostilePeer,
    memory: Arc<SharedMemory>,
    /// The ring that the end reads: 0 for a router.
    reads: usize,
    reads_ring: bool,
    /// Bytes that the end has read from the ring, and bytes that the peer has written correctly.
    read: u32,
    written: u32,
    /// The contents of that ring.
    ring_copy: RefCell<Vec<u8>>,
    is_closed: bool,
}

impl Connection {
    fn new(socket: Socket, peer: HostilePeer, memory: &Arc<SharedMemory>, reads: usize) -> Self {
        peer.stream().set_nonblocking(true).expect("a socket");
        peer.write_at(UNUSED.start, &[POISON; UNUSED.end - UNUSED.start]);
        Self {
            link: Link::new(LinkConfig { ..socket.link_config() }),
            socket,
            pool: Pool::new(1 << 20),
            frames: Vec::new(),
            peer,
            memory: Arc::clone(memory),
            reads,
            reads_ring: false,
            read: 0,
            written: 0,
            ring_copy: RefCell::new(vec![0; RING_BYTES]),
            is_closed: false,
        }
    }

    fn of_router(listeners: &Listeners) -> Self {
        let (socket, peer) = listeners.router();
        Self::new(socket, peer, &listeners.memory, 0)
    }

    fn of_switched_router(listeners: &Listeners) -> Self {
        for _ in 0..1_000_000 {
            let mut connection = Self::of_router(listeners);
            connection.peer.offer();
            assert!(connection.recv() && connection.send(20));
            if listeners.memory.used_bytes() > 0 {
                connection.peer.switch();
                assert!(
                    connection.recv() && connection.socket.is_shared() && connection.reads_ring
                );
                return connection;
            }
            // Too many files of other scripts wait to be closed.
            std::thread::yield_now();
        }
        panic!("no offer is accepted");
    }

    /// An application that has just made an offer.
    fn of_application(listeners: &Listeners) -> Self {
        let (mut socket, stream) = listeners.application();
        let (mut link, mut pool) = (Link::new(socket.link_config()), Pool::new(1 << 20));
        let mut frames = Vec::new();
        for _ in 0..FRAMES_BEFORE_OFFER {
            nix::unistd::write(&stream, &packet(20)).expect("there is room");
        }
        socket.recv(&mut pool, &mut frames).expect("a connection");
        socket.send(&mut link).expect("a connection");
        Self::new(socket, HostilePeer::from_offer(stream), &listeners.memory, 1)
    }

    /// Carries out a step. Returns whether the face is still open.
    fn step(&mut self, step: &[u8]) -> bool {
        let [what, at, rest @ ..] = step else { return false };
        let (count, number) = (usize::from(*at), number_of(rest));
        // Most steps that would close the face at once are skipped, so that scripts get further.
        let is_rude = *at >= 200;
        let len = number as usize % 9000;
        match what % 16 {
            0 => self.send_bytes(&packet(count), &[]),
            1 => self.send_files(*at),
            2 => self.send_bytes(&SWITCH, &[]),
            3 => (0..=*at).for_each(|_| self.send_bytes(&DOORBELL, &[])),
            4 if is_rude => self.send_bytes(&rest[..count % 5], &[]),
            5 if is_rude => self.set_field(count % 8, number),
            // Near the correct value.
            5 => self.set_field(4 * self.reads, self.written.wrapping_add(number % 4)),
            6 => {
                let written = self.field(4 * (1 - self.reads));
                self.set_field(4 * (1 - self.reads) + 1, written.wrapping_sub(number % 4));
            }
            // Flags for sleeping and waiting.
            7 => self.set_field(4 * (count % 2) + 2 + count / 2 % 2, number % 3),
            4 | 8 => (0..=count % 16).for_each(|_| self.write(&packet(len))),
            9 if is_rude => self.write(&rest[..count % 5]),
            // Bytes that were written may already have been read.
            9 | 10 => self.put(self.written.wrapping_sub(number % 10_000), &[*at; 3]),
            11 => self.drain_all(),
            12 => return self.send(count),
            13 => return (0..*at).all(|_| self.send(len.min(8800))),
            14 => return self.recv(),
            _ => return self.recv_all(),
        }
        true
    }

    /// Sends as much as the connection accepts.
    fn send_bytes(&mut self, octets: &[u8], files: &[BorrowedFd<'_>]) {
        let _ = self.peer.try_send_with(octets, files);
    }

    fn send_files(&mut self, what: u8) {
        let memory = self.peer.file().try_clone_to_owned().expect("a file more");
        let octets: &[u8] = if what & 8 == 0 { &OFFER } else { &DOORBELL };
        let other = |len| hostile_peer::memory_file(len, SIZE_SEALS);
        match what % 8 {
            0..=2 => self.send_bytes(octets, &[memory.as_fd()]),
            3 => self.send_bytes(octets, &[]),
            4 => self.send_bytes(octets, &[memory.as_fd(), memory.as_fd()]),
            5 => self.send_bytes(octets, &[other(4096).as_fd(), memory.as_fd(), memory.as_fd()]),
            6 => self.send_bytes(octets, &[other(SHARED_BYTES + 4096).as_fd()]),
            _ => self.send_bytes(octets, &[File::open("/dev/null").expect("is there").as_fd()]),
        }
    }

    fn set_field(&self, number: usize, value: u32) {
        self.peer.write_at(128 * number, &value.to_ne_bytes());
    }

    fn field(&self, number: usize) -> u32 {
        let octets = self.peer.read_at(128 * number, 4);
        u32::from_ne_bytes(octets.try_into().expect("four octets"))
    }

    /// Writes bytes into the ring that the end reads.
    fn put(&self, at: u32, octets: &[u8]) {
        let at = at as usize % RING_BYTES;
        let (first, rest) = octets.split_at(octets.len().min(RING_BYTES - at));
        for (at, part) in [(at, first), (0, rest)] {
            self.peer.write_at(4096 + self.reads * RING_BYTES + at, part);
            self.ring_copy.borrow_mut()[at..][..part.len()].copy_from_slice(part);
        }
    }

    /// Writes like a correct peer, except for the contents.
    fn write(&mut self, octets: &[u8]) {
        self.put(self.written, octets);
        self.written = self.written.wrapping_add(octets.len() as u32);
        self.set_field(4 * self.reads, self.written);
    }

    /// Takes everything that the end has sent.
    fn drain_all(&mut self) {
        let mut octets = [0; 65536];
        while self.peer.stream().read(&mut octets).is_ok_and(|read| read > 0) {}
        let ring = 4 * (1 - self.reads);
        self.set_field(ring + 1, self.field(ring));
        self.set_field(ring + 3, 0);
    }

    fn send(&mut self, len: usize) -> bool {
        // The queue may be full.
        let _ = self.link.enqueue(Instant::ZERO, Default::default(), Packet::from(packet(len)));
        let status = self.socket.send(&mut self.link);
        self.link.detach_frames(&mut self.pool);
        self.is_closed |= !matches!(status, Ok(SendStatus::Drained | SendStatus::WouldBlock));
        !self.is_closed
    }

    /// One call of recv. Returns whether the face is still open.
    fn recv(&mut self) -> bool {
        self.recv_status();
        !self.is_closed
    }

    fn recv_all(&mut self) -> bool {
        for _ in 0..READS_MAX {
            if self.recv_status() != Some(RecvStatus::More) {
                return !self.is_closed;
            }
        }
        panic!("recv returns More forever, although the peer does not write");
    }

    fn recv_status(&mut self) -> Option<RecvStatus> {
        // An application has had its memory from the start.
        let has_rings = self.reads == 1 || self.memory.used_bytes() > 0;
        let status = self.socket.recv(&mut self.pool, &mut self.frames);
        let was_ring = self.reads_ring;
        for frame in std::mem::take(&mut self.frames) {
            assert_eq!(peek_frame(&frame), Ok(Some(frame.len())), "one whole frame");
            if was_ring {
                self.expect_in_ring(&frame);
            } else if self.reads_ring {
                panic!("only doorbells may follow the switch");
            } else if has_rings && *frame == SWITCH {
                self.reads_ring = true;
            }
            self.receive(frame);
        }
        let status = status.ok();
        self.is_closed |= !matches!(status, Some(RecvStatus::Drained | RecvStatus::More));
        status
    }

    /// Checks that a received frame equals the bytes in the ring.
    fn expect_in_ring(&mut self, frame: &[u8]) {
        let ring_copy = self.ring_copy.borrow();
        let at = self.read as usize % RING_BYTES;
        let (first, rest) = frame.split_at(frame.len().min(RING_BYTES - at));
        assert!(
            ring_copy[at..].starts_with(first) && ring_copy.starts_with(rest),
            "the frame is in the ring"
        );
        self.read = self.read.wrapping_add(frame.len() as u32);
    }

    /// Passes the frame to a link, as a face does.
    fn receive(&mut self, frame: Packet) {
        let is_packet = |packet: &[u8]| {
            matches!(packet, [5 | 6, ..]) && peek_frame(packet) == Ok(Some(packet.len()))
        };
        match self.link.receive(Instant::ZERO, frame, &mut self.pool) {
            Received::Packet { packet, .. } => assert!(is_packet(&packet), "{packet:?}"),
            Received::Run => {
                while let Some((_, packet)) = self.link.next_in_run(Instant::ZERO, &mut self.pool) {
                    assert!(is_packet(&packet), "{packet:?}");
                }
            }
            _ => {}
        }
    }

    fn end(mut self) {
        if !self.is_closed {
            self.recv_all();
        }
        let unused = self.peer.read_at(UNUSED.start, UNUSED.end - UNUSED.start);
        assert!(unused.iter().all(|&octet| octet == POISON), "wrote outside of the marks");
        let ring = self.peer.read_at(4096 + self.reads * RING_BYTES, RING_BYTES);
        assert!(ring == *self.ring_copy.borrow(), "wrote into the ring that it reads");
    }
}

fn number_of(octets: &[u8]) -> u32 {
    u32::from_le_bytes(octets.try_into().expect("four octets"))
}

/// A Data with `len` bytes of value.
fn packet(len: usize) -> Vec<u8> {
    let mut packet = vec![6, 253, (len >> 8) as u8, len as u8];
    if len < 253 {
        packet = vec![6, len as u8];
    }
    packet.resize(packet.len() + len, 7);
    packet
}
