//! A worker thread. Its event loop polls, reads its faces in batches, passes batches of packets to
//! its shard, and sends the results once per batch.
//!
//! Nothing here allocates, locks or makes a system call per packet. Sockets are edge-triggered. A
//! face may have more to read than its share of a turn. It then stays in the list of ready sources,
//! and the next poll does not sleep.
//!
//! [`Worker`] owns components and calls them in order. A component has its own state and returns
//! what the worker must do; it never calls the worker.
//!
//! | component | state | returns |
//! |---|---|---|
//! | [`Faces`] | faces, UDP ports, event queue, timers, lists | packets; faces to close |
//! | [`Shard`] | router, batch of inputs | its outbox |
//! | [`Siblings`] | rings to other threads, owners of faces | received messages; owners |
//! | [`Disks`] | ports to the disks | outcomes of operations |
//! | [`PeerAdmission`] | quota, searches for idle faces | an identifier, a face to evict |
//! | [`Sweep`] | timeouts | idle and stalled faces |
//! | [`LoadMeter`] | time of the last report | each face's work |
//! | [`WorkerStats`] | counters that belong to no face | copies of them |
//!
//! The methods of [`Worker`] are in four files: the loop (this file), `commands`, `receive`,
//! `forward`. Each file calls only methods of later files. [`Faces`] contains `UdpPorts`,
//! `FaceTable` and `MemoryBudgets`, which do not depend on it.

mod admission;
mod commands;
mod disks;
mod faces;
mod forward;
mod load;
mod receive;
mod shard;
mod siblings;
mod stats;
mod sweep;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::Receiver;
use mio::{Events, Poll};
use weir_base::{Instant, Pool};
use weir_disk::DiskPorts;
use weir_forward::{Extension, Input, RouterConfig};

use self::admission::PeerAdmission;
use self::disks::Disks;
use self::faces::Faces;
pub(crate) use self::faces::WAKER_TOKEN;
use self::load::LoadMeter;
use self::receive::ReadBuffers;
use self::shard::Shard;
pub(crate) use self::siblings::Siblings;
use self::stats::WorkerStats;
use self::sweep::Sweep;
use crate::clock::{Clock, sleep_until};
use crate::config::FaceDefaults;
use crate::face_quota::FaceQuota;
use crate::mailbox::ControlSender;
use crate::memory::MemoryShares;
use crate::message::{CloseReason, ToControl, ToWorker};

/// Maximum number of events taken from the kernel at once.
const EVENTS_MAX: usize = 1024;
/// Memory of free packet blocks that a thread keeps for reuse.
const POOL_BYTES_MAX: usize = 8 << 20;

/// Everything that a worker thread needs to start.
pub(crate) struct WorkerSetup {
    pub(crate) index: u16,
    pub(crate) clock: Clock,
    pub(crate) poll: Poll,
    pub(crate) router: RouterConfig,
    pub(crate) extension: Option<Arc<dyn Extension>>,
    pub(crate) face_defaults: FaceDefaults,
    pub(crate) rebalance_interval: Duration,
    pub(crate) memory: MemoryShares,
    pub(crate) commands: Receiver<ToWorker>,
    pub(crate) control: ControlSender,
    pub(crate) quota: Arc<FaceQuota>,
    pub(crate) siblings: Option<Siblings>,
    pub(crate) disks: Option<DiskPorts>,
}

pub(crate) struct Worker {
    index: u16,
    clock: Clock,
    commands: Receiver<ToWorker>,
    control: ControlSender,
    /// Packet blocks for sockets and rings.
    pool: Pool,
    buffers: ReadBuffers,
    faces: Faces,
    shard: Shard,
    siblings: Option<Siblings>,
    disks: Option<Disks>,
    admission: PeerAdmission,
    sweep: Sweep,
    load: LoadMeter,
    stats: WorkerStats,
    is_stopping: bool,
}

impl Worker {
    pub(crate) fn new(setup: WorkerSetup) -> Self {
        let now = setup.clock.now();
        Self {
            index: setup.index,
            clock: setup.clock,
            commands: setup.commands,
            control: setup.control,
            pool: Pool::new(POOL_BYTES_MAX.min(setup.memory.pool_bytes as usize / 2)),
            buffers: ReadBuffers::default(),
            faces: Faces::new(setup.poll, &setup.memory, now),
            shard: Shard::new(now, setup.router, setup.extension.as_deref()),
            siblings: setup.siblings,
            disks: setup.disks.map(|ports| Disks::new(ports, now)),
            admission: PeerAdmission::new(setup.quota, now),
            sweep: Sweep::new(&setup.face_defaults, now),
            load: LoadMeter::new(setup.rebalance_interval, now),
            stats: WorkerStats::default(),
            is_stopping: false,
        }
    }

    /// Runs until [`ToWorker::Stop`], then notifies the control thread. A panic notifies it as
    /// well: a router must not continue when one of its shards is dead.
    pub(crate) fn run(mut self) {
        let _ended = EndNotice { control: self.control.clone(), worker: self.index };
        let mut events = Events::with_capacity(EVENTS_MAX);
        while !self.is_stopping {
            if let Err(error) = self.sleep(&mut events) {
                assert!(error.kind() == io::ErrorKind::Interrupted, "epoll failed: {error}");
                continue;
            }
            let now = self.clock.now();
            self.stats.counters.loops += 1;
            self.faces.take_events(&events);
            // Results of disks, messages of other threads, reads and timers all add inputs to the
            // batch. The final `forward` handles what is left in it.
            self.take_disk_outcomes(now);
            self.take_from_threads(now);
            self.read_ready(now);
            self.run_timers(now);
            self.forward(now);
            self.flush(now);
        }
        self.faces.flush_at_exit();
        if let Some(disks) = self.disks.take() {
            disks.close();
        }
    }

    /// Waits for events of the kernel or of other threads, until the next timer at most.
    fn sleep(&mut self, events: &mut Events) -> io::Result<()> {
        let mut timeout = self.poll_timeout();
        let Some(siblings) = &self.siblings else {
            return self.faces.poll(events, timeout);
        };
        // From here on, other threads wake this one. Check once more for messages that arrived just
        // before: see `cross::doorbell`.
        let may_sleep = timeout != Some(Duration::ZERO);
        if may_sleep && !(siblings.rings.begin_sleep() && self.commands.is_empty()) {
            timeout = Some(Duration::ZERO);
        }
        let polled = self.faces.poll(events, timeout);
        siblings.rings.end_sleep();
        polled
    }

    fn poll_timeout(&self) -> Option<Duration> {
        if self.faces.has_ready() || self.shard.has_inputs() {
            return Some(Duration::ZERO);
        }
        let disks = self.disks.as_ref().map(Disks::report_at);
        let deadlines = [self.shard.next_wakeup(), self.faces.next_wakeup(), disks];
        let deadline = deadlines.into_iter().flatten().fold(self.sweep.due_at(), Instant::min);
        sleep_until(self.clock.now(), deadline)
    }

    fn take_disk_outcomes(&mut self, now: Instant) {
        let Some(disks) = &mut self.disks else { return };
        for (id, outcome) in disks.take_outcomes() {
            self.shard.push(Input::DiskDone { id, outcome });
        }
        if self.shard.is_batch_full() {
            self.forward(now);
        }
    }

    /// Handles commands, then the messages that are in the rings now. Another thread announces a
    /// face in the command queue before it puts the face's packets into a ring. So the lengths come
    /// first: each packet in them belongs to a face that the commands announce.
    fn take_from_threads(&mut self, now: Instant) {
        if let Some(siblings) = &mut self.siblings {
            siblings.rings.note_lengths();
        }
        self.take_commands(now);
        self.take_ring_messages(now);
    }

    fn run_timers(&mut self, now: Instant) {
        self.faces.advance_timers(now);
        while let Some(slot) = self.faces.next_expired(now) {
            while let Some((face, header, packet)) = self.faces.take_released(now, slot) {
                self.dispatch(face, header, packet);
                if self.shard.is_batch_full() {
                    self.forward(now);
                }
            }
            self.faces.reschedule(slot);
        }
        self.shard.run_timers(now);
        if self.disks.as_ref().is_some_and(|disks| disks.report_at() <= now) {
            self.report_disks(now);
        }
        if self.siblings.is_some()
            && let Some(report) = self.load.report(now, &mut self.faces)
        {
            self.control.send(ToControl::Work { worker: self.index, report });
        }
        if self.sweep.begin(now) {
            self.sweep_faces(now);
        }
    }

    fn sweep_faces(&mut self, now: Instant) {
        for slot in self.sweep.idle(now, self.faces.table()) {
            if !self.faces.extend_idle(now, slot) {
                self.close_face(slot, CloseReason::Idle);
            }
        }
        for slot in self.sweep.stalled(now, self.faces.table()) {
            self.close_stalled(now, slot);
        }
        self.faces.shrink();
    }
}

/// Reports the end of a worker thread to the control thread, also after a panic.
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
