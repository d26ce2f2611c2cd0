//! Two ends that share memory, under loom, which runs every order in which two threads may see each
//! other's writes. The tested ring is the sockets' own file. One simulated connection carries
//! packets before an end switches to its ring, and then doorbells in both directions.

mod atomic {
    pub(crate) use loom::sync::atomic::{AtomicU32, Ordering, fence};
}
#[path = "../src/shared/ring.rs"]
mod ring;

use loom::cell::UnsafeCell;
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;
use ring::{Marks, Memory, Reader, Writer};

const PACKET: usize = 2;

/// One direction. loom detects bytes that are read while they may be written.
struct Direction<const LEN: usize> {
    marks: Marks,
    octets: [UnsafeCell<u8>; LEN],
}

/// What one end has received over the connection and not read.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Inbox {
    packets: u8,
    /// After the packets.
    has_switch: bool,
    /// Anywhere. A second doorbell is not added, like on a socket that is full.
    has_bell: bool,
}

#[derive(Default)]
struct LoomSocket {
    inbox: Mutex<Inbox>,
    changed: Condvar,
}

impl LoomSocket {
    fn post(&self, change: impl FnOnce(&mut Inbox)) {
        change(&mut self.inbox.lock().unwrap());
        self.changed.notify_one();
    }

    fn take(&self) -> Inbox {
        std::mem::take(&mut self.inbox.lock().unwrap())
    }

    /// Waits for anything, and leaves it unread, like poll.
    fn wait(&self) {
        let mut inbox = self.inbox.lock().unwrap();
        while *inbox == Inbox::default() {
            inbox = self.changed.wait(inbox).unwrap();
        }
    }
}

/// Directions and connections, by their reader.
struct Shared<const LEN: usize> {
    directions: [Direction<LEN>; 2],
    lines: [LoomSocket; 2],
}

/// One direction, as one end uses it.
struct Half<const LEN: usize>(Arc<Shared<LEN>>, usize);

impl<const LEN: usize> Half<LEN> {
    fn direction(&self) -> &Direction<LEN> {
        &self.0.directions[self.1]
    }
}

impl<const LEN: usize> Memory for Half<LEN> {
    const LEN: u32 = LEN as u32;

    fn marks(&self) -> &Marks {
        &self.direction().marks
    }

    fn put(&self, at: u32, octets: &[u8]) {
        for (cell, octet) in self.direction().octets[at as usize..].iter().zip(octets) {
            // SAFETY: loom reports it if another thread may access the byte.
            cell.with_mut(|cell| unsafe { *cell = *octet });
        }
    }

    fn take(&self, at: u32, octets: &mut [u8]) {
        for (cell, octet) in self.direction().octets[at as usize..].iter().zip(octets) {
            // SAFETY: as in `put`.
            cell.with(|cell| *octet = unsafe { *cell });
        }
    }
}

/// One end, which does what `SharedSocket` and its caller do.
struct LoomEnd<const LEN: usize> {
    reader: Reader<Half<LEN>>,
    writer: Writer<Half<LEN>>,
    near: usize,
    shared: Arc<Shared<LEN>>,
    owes_switch: bool,
    reads_ring: bool,
    writes_ring: bool,
    is_blocked: bool,
    sent: u8,
    read: u8,
}

impl<const LEN: usize> LoomEnd<LEN> {
    fn new(shared: Arc<Shared<LEN>>, near: usize, start: Start) -> Self {
        let half = |reader| Half(Arc::clone(&shared), reader);
        let (reader, writer) = (Reader::new(half(near)), Writer::new(half(1 - near)));
        let is_over = start == Start::Over;
        Self {
            reader,
            writer,
            near,
            shared,
            // The application's end follows the router's.
            owes_switch: !is_over && near == ROUTER,
            reads_ring: is_over,
            writes_ring: is_over,
            is_blocked: false,
            sent: 0,
            read: 0,
        }
    }

    /// Sends and receives the given numbers of packets, and sleeps while there is nothing to do.
    fn run(mut self, to_send: u8, to_read: u8) {
        loop {
            self.send(to_send);
            let has_more = self.recv();
            if self.sent == to_send && self.read == to_read && !self.owes_switch {
                assert!(self.writer.waiting().unwrap() as usize <= LEN);
                return;
            }
            let has_room = self.is_blocked && self.writer.is_woken();
            if !has_more && !has_room && (self.is_blocked || self.sent == to_send) {
                self.shared.lines[self.near].wait();
            }
        }
    }

    fn send(&mut self, to_send: u8) {
        if self.owes_switch {
            self.far().post(|inbox| inbox.has_switch = true);
            (self.owes_switch, self.writes_ring) = (false, true);
        }
        if !self.writes_ring {
            if self.sent < to_send {
                self.sent += 1;
                self.far().post(|inbox| inbox.packets += 1);
            }
            return;
        }
        self.is_blocked = false;
        while self.sent < to_send {
            while !self.writer.push([&[self.sent], &[!self.sent]]).unwrap() {
                self.publish();
                if !self.writer.wait_for_space(PACKET).unwrap() {
                    self.is_blocked = true;
                    return;
                }
            }
            self.sent += 1;
        }
        self.publish();
    }

    fn publish(&mut self) {
        if self.writer.publish() {
            self.ring_doorbell();
        }
        assert_eq!(self.writer.unpublished(), 0);
    }

    /// Returns whether there may be more.
    fn recv(&mut self) -> bool {
        let line = &self.shared.lines[self.near];
        if !self.reads_ring {
            let inbox = line.take();
            self.read += inbox.packets;
            if inbox.has_switch {
                self.reads_ring = true;
                self.owes_switch = self.near == APPLICATION;
            }
            return inbox != Inbox::default();
        }
        if self.reader.available().unwrap() == 0 {
            let mut inbox = Inbox::default();
            let is_empty = self.reader.sleep(|| inbox = line.take()).unwrap();
            assert!(inbox.packets == 0 && !inbox.has_switch, "bells alone");
            return !is_empty;
        }
        let mut packet = [0; PACKET];
        self.reader.copy(&mut packet);
        assert_eq!(packet, [self.read, !self.read]);
        self.read += 1;
        if self.reader.release(PACKET as u32) {
            self.ring_doorbell();
        }
        true
    }

    fn far(&self) -> &LoomSocket {
        &self.shared.lines[1 - self.near]
    }

    fn ring_doorbell(&self) {
        self.far().post(|inbox| inbox.has_bell = true);
    }
}

const ROUTER: usize = 0;
const APPLICATION: usize = 1;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Start {
    /// The router has accepted an offer, and neither end has switched.
    Offered,
    /// Both ends have switched.
    Over,
}

/// Checks that nothing is lost, torn or reordered, and that neither side sleeps forever.
fn check<const LEN: usize>(start: Start, to_router: u8, to_application: u8) {
    let mut model = loom::model::Builder::new();
    // A higher bound takes hours.
    model.preemption_bound = Some(3);
    model.check(move || {
        let direction = || Direction {
            marks: Marks::default(),
            octets: std::array::from_fn(|_| UnsafeCell::new(0)),
        };
        let directions: [Direction<LEN>; 2] = std::array::from_fn(|_| direction());
        let shared = Arc::new(Shared { directions, lines: Default::default() });
        let router = LoomEnd::new(Arc::clone(&shared), ROUTER, start);
        let application = LoomEnd::new(shared, APPLICATION, start);
        let router = thread::spawn(move || router.run(to_application, to_router));
        application.run(to_router, to_application);
        router.join().unwrap();
    });
}

#[test]
fn sleeping_end_is_woken() {
    check::<4>(Start::Over, 1, 0);
    check::<4>(Start::Over, 2, 0);
    check::<4>(Start::Over, 1, 1);
}

#[test]
fn blocked_writer_is_woken() {
    // One packet more than the ring holds.
    check::<4>(Start::Over, 3, 0);
}

#[test]
fn blocked_writer_wakes_while_reading() {
    check::<2>(Start::Over, 2, 1);
    check::<2>(Start::Over, 2, 2);
}

#[test]
fn switching_end_is_woken() {
    check::<4>(Start::Offered, 1, 1);
    check::<2>(Start::Offered, 2, 2);
}
