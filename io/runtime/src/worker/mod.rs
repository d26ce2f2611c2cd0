//! A packet thread: poll, read its faces in batches, hand the packets to its shard in batches, send
//! what comes out once a batch.
//!
//! Nothing here allocates, locks or makes a system call per packet. Sockets are edge-triggered: a
//! face that had more to read than its share of a turn stays in `ready` and the next poll does not
//! sleep.

mod command;
mod disks;
mod displace;
mod face;
mod memory;
mod moving;
mod receive;
mod send;
mod shards;

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::Receiver;
use mio::{Events, Poll, Token};
use weir_base::{FaceId, Instant, NS_PER_MS, NS_PER_S, Packet, Pool, Slab, TimerWheel};
use weir_disk::DiskPorts;
use weir_face::{Datagram, UdpPort};
use weir_forward::{
    BlockingStore, Command, FaceAttributes, FaceScope, Input, Outbox, Router, RouterConfig,
};
use weir_link::LinkDrop;

use crate::clock::{Clock, sleep_until};
use crate::config::FaceDefaults;
use crate::gathered::Gathered;
use crate::mailbox::ControlSender;
use crate::memory::MemoryShares;
use crate::message::{PeerLinks, PortId, ToControl, ToWorker};
use crate::rooms::Rooms;
use crate::snapshot::WorkerCounters;
use disks::Disks;
use displace::Search;
pub(crate) use face::Face;
use face::Faces;
use memory::Memory;
pub(crate) use shards::Shards;

/// Packets handed to the shard at once.
const BATCH_PACKETS: usize = 64;
/// Octets queued on faces, also within a turn, before they go to the sockets.
const UNSENT_BYTES_MAX: usize = 256 << 10;
/// Sources read in one turn before what they brought is sent on.
const SOURCES_PER_TURN: usize = 64;
/// Events taken from the kernel at once.
const EVENTS_MAX: usize = 1024;
/// Free packet blocks a thread keeps for reuse.
const POOL_BYTES_MAX: usize = 8 << 20;
/// How often idle and stalled faces are looked for, at most.
const SWEEP_INTERVAL_MAX_NS: u64 = 10 * NS_PER_S;

pub(crate) const WAKER_TOKEN: Token = Token(0);

/// Something that can be read from or written to: a face's own socket, or a shared port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Face(u32),
    Port(u32),
}

impl Source {
    fn token(self) -> Token {
        match self {
            Self::Face(slot) => Token(1 + 2 * slot as usize),
            Self::Port(slot) => Token(2 + 2 * slot as usize),
        }
    }

    fn of(token: Token) -> Option<Self> {
        let number = token.0.checked_sub(1)?;
        let slot = (number / 2) as u32;
        Some(if number % 2 == 0 { Self::Face(slot) } else { Self::Port(slot) })
    }
}

/// A shared UDP port. It knows its peers by the slots of their faces.
struct Port {
    id: PortId,
    socket: UdpPort,
    links: PeerLinks,
    is_ready: bool,
    awaits_writable: bool,
    /// Faces that wait for the port to be writable.
    blocked: Vec<u32>,
}

/// What a packet thread is made with.
pub(crate) struct WorkerSetup {
    pub(crate) index: u16,
    pub(crate) clock: Clock,
    pub(crate) poll: Poll,
    pub(crate) router: RouterConfig,
    pub(crate) face_defaults: FaceDefaults,
    pub(crate) rebalance_interval: Duration,
    /// This thread's.
    pub(crate) memory: MemoryShares,
    pub(crate) commands: Receiver<ToWorker>,
    pub(crate) control: ControlSender,
    pub(crate) rooms: Arc<Rooms>,
    pub(crate) shards: Option<Shards>,
    pub(crate) disks: Option<DiskPorts>,
}

/// A packet thread.
pub(crate) struct Worker {
    index: u16,
    clock: Clock,
    poll: Poll,
    pool: Pool,
    router: Router,
    /// The queue before its store, where that blocks.
    blocking: Option<BlockingStore>,
    faces: Faces,
    ports: Slab<Port>,
    port_slots: HashMap<PortId, u32>,
    commands: Receiver<ToWorker>,
    control: ControlSender,
    rooms: Arc<Rooms>,
    searches: [Search; 4],
    /// When the other threads were last asked to make room for a peer.
    room_asked_at: Instant,
    memory: Memory,
    /// Warnings of peers that were refused.
    refusals: Gathered,
    /// Warnings of connections that took nothing.
    stalls: Gathered,
    /// Warnings of UDP ports that fail.
    port_failures: Gathered,
    shards: Option<Shards>,
    disks: Option<Disks>,
    idle_timeout_ns: u64,
    stall_timeout_ns: u64,
    rebalance_interval_ns: u64,
    /// When the control thread was last told what faces have this thread do.
    work_told_at: Instant,
    sweep_at: Instant,
    /// When links want to be polled, by face slot.
    timers: TimerWheel,
    expired: Vec<u32>,
    ready: VecDeque<Source>,
    dirty: Vec<u32>,
    /// Octets queued on faces since all of these were flushed.
    unsent_bytes: usize,
    frames: Vec<Packet>,
    datagrams: Vec<Datagram>,
    inputs: Vec<Input>,
    outbox: Outbox,
    counters: WorkerCounters,
    /// Link drops of faces that are gone.
    gone_drops: [u64; LinkDrop::COUNT],
    is_stopping: bool,
}

impl Worker {
    pub(crate) fn new(setup: WorkerSetup) -> Self {
        let now = setup.clock.now();
        let idle_timeout_ns = setup.face_defaults.idle_timeout.as_nanos() as u64;
        let stall_timeout_ns = setup.face_defaults.stall_timeout.as_nanos() as u64;
        let mut router = Router::new(now, setup.router);
        // Management is a program of this machine behind a face that has no socket.
        let internal = Input::Command(Command::AddFace {
            face: FaceId::INTERNAL,
            attributes: FaceAttributes::point_to_point(FaceScope::Local),
        });
        Self {
            index: setup.index,
            clock: setup.clock,
            poll: setup.poll,
            pool: Pool::new(POOL_BYTES_MAX.min(setup.memory.pool_bytes as usize / 2)),
            blocking: BlockingStore::of(&mut router),
            router,
            faces: Faces::default(),
            ports: Slab::new(),
            port_slots: HashMap::new(),
            commands: setup.commands,
            control: setup.control,
            rooms: setup.rooms,
            searches: Default::default(),
            room_asked_at: now,
            memory: Memory::new(&setup.memory),
            refusals: Gathered::default(),
            stalls: Gathered::default(),
            port_failures: Gathered::default(),
            shards: setup.shards,
            disks: setup.disks.map(|ports| Disks::new(ports, now)),
            idle_timeout_ns,
            stall_timeout_ns,
            rebalance_interval_ns: setup.rebalance_interval.as_nanos() as u64,
            work_told_at: now,
            sweep_at: now.plus_ns(sweep_interval_ns(idle_timeout_ns.min(stall_timeout_ns))),
            timers: TimerWheel::new(NS_PER_MS, now),
            expired: Vec::new(),
            ready: VecDeque::new(),
            dirty: Vec::new(),
            unsent_bytes: 0,
            frames: Vec::new(),
            datagrams: Vec::new(),
            inputs: vec![internal],
            outbox: Outbox::default(),
            counters: WorkerCounters::default(),
            gone_drops: [0; LinkDrop::COUNT],
            is_stopping: false,
        }
    }

    /// Runs until [`ToWorker::Stop`], then tells the control thread. Tells it too when this thread
    /// panics, so that a router never lives on with a part of its names dead.
    pub(crate) fn run(mut self) {
        let _ended = EndNotice { control: self.control.clone(), worker: self.index };
        let mut events = Events::with_capacity(EVENTS_MAX);
        while !self.is_stopping {
            let timeout = self.fall_asleep(self.poll_timeout());
            let polled = self.poll.poll(&mut events, timeout);
            if let Some(shards) = &self.shards {
                shards.ports.wake_up();
            }
            if let Err(error) = polled {
                assert!(error.kind() == io::ErrorKind::Interrupted, "epoll failed: {error}");
                continue;
            }
            let now = self.clock.now();
            self.counters.loops += 1;
            self.take_events(&events);
            self.take_disk_outcomes(now);
            self.take_commands_and_crossings(now);
            self.read_ready(now);
            self.run_timers(now);
            self.process(now);
            self.flush(now);
        }
        self.close_all();
        self.close_disks();
    }

    fn poll_timeout(&self) -> Option<Duration> {
        if !self.ready.is_empty() || !self.inputs.is_empty() {
            return Some(Duration::ZERO);
        }
        let router = self.router.next_wakeup();
        let timers = self.timers.next_wakeup();
        let disks = self.disks.as_ref().map(Disks::next_report);
        let deadlines = [router, timers, disks];
        let deadline = deadlines.into_iter().flatten().fold(self.sweep_at, Instant::min);
        sleep_until(self.clock.now(), deadline)
    }

    /// How long to sleep, given how long there is nothing to do here. From here on other packet
    /// threads wake this one; what they handed over just before is looked for once more.
    fn fall_asleep(&self, timeout: Option<Duration>) -> Option<Duration> {
        let Some(shards) = self.shards.as_ref().filter(|_| timeout != Some(Duration::ZERO)) else {
            return timeout;
        };
        match shards.ports.fall_asleep() && self.commands.is_empty() {
            true => timeout,
            false => Some(Duration::ZERO),
        }
    }

    fn take_events(&mut self, events: &Events) {
        for event in events {
            let Some(source) = Source::of(event.token()) else {
                continue;
            };
            if event.is_readable() || event.is_read_closed() || event.is_error() {
                self.mark_ready(source);
            }
            if event.is_writable() {
                self.on_writable(source);
            }
        }
    }

    fn mark_ready(&mut self, source: Source) {
        let is_ready = match source {
            Source::Face(slot) => self.faces.at(slot).map(|face| &mut face.is_ready),
            Source::Port(slot) => self.ports.get_mut(slot).map(|port| &mut port.is_ready),
        };
        // An event for a face that this turn has closed already leads nowhere.
        let Some(is_ready) = is_ready else {
            return;
        };
        if !std::mem::replace(is_ready, true) {
            self.ready.push_back(source);
        }
    }

    fn on_writable(&mut self, source: Source) {
        match source {
            Source::Face(slot) => {
                if let Some(face) = self.faces.at(slot) {
                    face.is_full = false;
                }
                self.mark_dirty(slot);
            }
            Source::Port(slot) => {
                let Some(port) = self.ports.get_mut(slot) else {
                    return;
                };
                let blocked = std::mem::take(&mut port.blocked);
                for &slot in &blocked {
                    if let Some(face) = self.faces.at(slot) {
                        face.awaits_writable = false;
                    }
                    self.mark_dirty(slot);
                }
            }
        }
    }

    pub(super) fn mark_dirty(&mut self, slot: u32) {
        if let Some(face) = self.faces.at(slot)
            && !std::mem::replace(&mut face.is_dirty, true)
        {
            self.dirty.push(slot);
        }
    }

    fn run_timers(&mut self, now: Instant) {
        self.timers.advance(now, &mut self.expired);
        let mut expired = std::mem::take(&mut self.expired);
        for slot in expired.drain(..) {
            if let Some(face) = self.faces.at(slot) {
                face.link.poll(now);
                self.memory.recount_reassembly(face);
                self.take_released(now, slot);
            }
            if let Some(face) = self.faces.at(slot) {
                if let Some(at) = face.link.next_wakeup() {
                    self.timers.schedule(slot, at);
                }
                if !face.link.is_egress_empty() {
                    self.mark_dirty(slot);
                }
            }
        }
        self.expired = expired;
        if self.router.next_wakeup().is_some_and(|at| at <= now) {
            self.inputs.push(Input::Wakeup);
        }
        self.report_disks(now);
        self.report_work(now);
        if self.sweep_at <= now {
            let shortest_ns = self.idle_timeout_ns.min(self.stall_timeout_ns);
            self.sweep_at = now.plus_ns(sweep_interval_ns(shortest_ns));
            self.close_idle(now);
            self.tend_memory(now);
        }
    }
}

fn sweep_interval_ns(timeout_ns: u64) -> u64 {
    (timeout_ns / 8).clamp(NS_PER_MS, SWEEP_INTERVAL_MAX_NS)
}

/// Tells the control thread that a packet thread has ended, whatever way it went.
struct EndNotice {
    control: ControlSender,
    worker: u16,
}

impl Drop for EndNotice {
    fn drop(&mut self) {
        let panicked = std::thread::panicking();
        self.control.send(ToControl::Ended { worker: self.worker, panicked });
    }
}
