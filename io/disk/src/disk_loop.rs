//! The thread of one disk: takes operations from all shards, has a backend read and write, checks
//! and lays out records, answers.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use weir_base::Pool;
use weir_store::disk::record::{self, Place};
use weir_store::disk::{
    DiskFailure, DiskOp, DiskOpId, DiskOpKind, DiskOutcome, RecordFault, WritePart,
};

use crate::buffer::{Buffer, Buffers};
use crate::engine::DiskShared;
use crate::pace::Pacer;
use crate::port::EngineLane;

/// Octets of packet blocks that a disk keeps for reads to come.
const POOL_BYTES: usize = 16 << 20;

/// Times that an operation is tried again after it was interrupted.
const INTERRUPTIONS_MAX: u32 = 1000;

/// Completions after which shards are told, though there are more.
const NOTIFY_EVERY: usize = 8;

/// How long the thread looks for operations before it sleeps, if they have been coming this fast:
/// to fall asleep and be woken takes both sides about as long.
const SPIN: Duration = Duration::from_micros(15);

/// Says whether it is worth to wait awake: whether the last idle times were short on average.
struct Patience {
    idle_ns_average: u64,
}

impl Patience {
    fn new() -> Self {
        Self { idle_ns_average: u64::MAX / 16 }
    }

    fn is_worth_it(&self) -> bool {
        self.idle_ns_average < SPIN.as_nanos() as u64
    }

    /// Notes an idle time. A long one counts for little more than a wasted spin.
    fn note(&mut self, idle: Duration) {
        let idle_ns = idle.min(4 * SPIN).as_nanos() as u64;
        self.idle_ns_average = self.idle_ns_average.min(4 * SPIN.as_nanos() as u64);
        self.idle_ns_average = (self.idle_ns_average * 7 + idle_ns) / 8;
    }
}

/// A read or write of a backend: all of `range` of the buffer at `offset`.
pub(crate) struct Transfer {
    pub(crate) token: u32,
    pub(crate) is_write: bool,
    pub(crate) offset: u64,
    pub(crate) buffer: Buffer,
    pub(crate) range: Range<usize>,
}

/// How a [`Transfer`] ended: octets done, or the error number.
pub(crate) struct Done {
    pub(crate) token: u32,
    pub(crate) buffer: Buffer,
    pub(crate) result: Result<usize, i32>,
}

/// Reads and writes. An error of a method is the end of the disk.
pub(crate) trait Backend {
    /// Takes a transfer, which begins with the next [`Self::wait`] at the latest.
    fn start(&mut self, transfer: Transfer) -> io::Result<()>;

    /// Appends what has ended. If nothing has, and it may, sleeps until something has, the doorbell
    /// rings, or the time is over.
    fn wait(
        &mut self,
        may_sleep: bool,
        timeout: Option<Duration>,
        done: &mut Vec<Done>,
    ) -> io::Result<()>;
}

/// What an operation is about, once it is under way.
enum Task {
    Record(Place),
    Raw,
    /// The parts hold their packets until the write is over.
    Write(#[expect(dead_code, reason = "held, not read")] Vec<WritePart>),
}

struct Running {
    lane: u16,
    id: DiskOpId,
    task: Task,
    offset: u64,
    len: usize,
    /// Octets done.
    done: usize,
    interruptions: u32,
    /// Before which it is not answered.
    due: Option<Instant>,
}

/// An answer that is held back. Ordered by time, then by arrival.
struct Held {
    due: Instant,
    number: u64,
    lane: u16,
    id: DiskOpId,
    outcome: DiskOutcome,
}

impl Held {
    fn key(&self) -> (Instant, u64) {
        (self.due, self.number)
    }
}

impl PartialEq for Held {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Held {}

impl PartialOrd for Held {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Held {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

/// All that the thread of a disk works with.
pub(crate) struct DiskLoop<B> {
    pub(crate) backend: B,
    pub(crate) parts: LoopParts,
}

/// All of it but the backend.
pub(crate) struct LoopParts {
    lanes: Vec<EngineLane>,
    shared: Arc<DiskShared>,
    store_id: u64,
    block_bytes: u32,
    buffers: Buffers,
    pool: Pool,
    pacer: Option<Pacer>,
    running: Vec<Option<Running>>,
    free: Vec<u32>,
    held: BinaryHeap<Reverse<Held>>,
    held_number: u64,
    unannounced: usize,
}

impl LoopParts {
    pub(crate) fn new(
        lanes: Vec<EngineLane>,
        shared: Arc<DiskShared>,
        store_id: u64,
        block_bytes: u32,
        operations_max: usize,
        pacer: Option<Pacer>,
    ) -> Self {
        Self {
            lanes,
            shared,
            store_id,
            block_bytes,
            buffers: Buffers::new(operations_max),
            pool: Pool::new(POOL_BYTES),
            pacer,
            running: (0..operations_max).map(|_| None).collect(),
            free: (0..operations_max as u32).rev().collect(),
            held: BinaryHeap::new(),
            held_number: 0,
            unannounced: 0,
        }
    }

    fn has_operations(&self) -> bool {
        self.lanes.iter().any(|lane| !lane.ops.is_empty())
    }

    /// Looks for operations for a short time.
    fn await_operations(&self, since: Instant) {
        while !self.has_operations() && since.elapsed() < SPIN && self.held.is_empty() {
            std::hint::spin_loop();
        }
    }

    pub(crate) fn buffers(&self) -> &Buffers {
        &self.buffers
    }

    /// Whether nothing is being read or written.
    pub(crate) fn is_idle(&self) -> bool {
        self.free.len() == self.running.len()
    }

    fn place(&self, offset: u64, sequence: u32) -> Place {
        Place { store_id: self.store_id, offset, sequence }
    }

    /// Tells the shards of the outcomes that they have got.
    fn notify(&mut self) {
        self.unannounced = 0;
        self.lanes.iter_mut().for_each(EngineLane::notify);
    }

    fn answer(&mut self, lane: u16, id: DiskOpId, outcome: DiskOutcome) {
        self.lanes[usize::from(lane)].answer(id, outcome);
        self.unannounced += 1;
        if self.unannounced >= NOTIFY_EVERY {
            self.notify();
        }
    }

    /// Answers now, or when a paced or stalled disk would.
    fn answer_in_time(&mut self, running: &Running, outcome: DiskOutcome) {
        let Running { lane, id, due, .. } = *running;
        let stalled_until = self.shared.stalled_until();
        if (due.is_none() && stalled_until.is_none()) || self.shared.is_stopping() {
            return self.answer(lane, id, outcome);
        }
        let now = Instant::now();
        if due.max(stalled_until).is_none_or(|until| until <= now) {
            return self.answer(lane, id, outcome);
        }
        // Not until the stall is over: that may be ended before.
        self.held_number += 1;
        let due = due.unwrap_or(now);
        self.held.push(Reverse(Held { due, number: self.held_number, lane, id, outcome }));
    }

    /// Answers what has been held back long enough.
    fn release(&mut self, now: Instant) {
        let stalled_until = self.shared.stalled_until();
        if stalled_until.is_some_and(|until| until > now) {
            return;
        }
        while self.held.peek().is_some_and(|held| held.0.due <= now) {
            let Some(Reverse(held)) = self.held.pop() else { return };
            self.answer(held.lane, held.id, held.outcome);
        }
    }

    fn release_all(&mut self) {
        while let Some(Reverse(held)) = self.held.pop() {
            self.answer(held.lane, held.id, held.outcome);
        }
    }

    /// How long to sleep at most.
    fn timeout(&self) -> Option<Duration> {
        let next = self.held.peek().map(|held| held.0.due)?;
        let next = self.shared.stalled_until().map_or(next, |until| until.max(next));
        Some(next.saturating_duration_since(Instant::now()))
    }

    /// What came of an operation of which `done` octets were transferred.
    fn outcome(&mut self, running: &Running, buffer: &Buffer) -> DiskOutcome {
        let octets = &buffer[..running.done];
        match &running.task {
            Task::Raw => DiskOutcome::Raw(octets.to_vec()),
            Task::Write(_) => DiskOutcome::Written,
            Task::Record(place) => match record::open_data(octets, place, crate::checksum) {
                Ok(record) => DiskOutcome::Record {
                    packet: self.pool.copy(record.body),
                    fresh_until_unix_ms: record.fresh_until_unix_ms,
                },
                Err(fault) => DiskOutcome::Damaged(fault),
            },
        }
    }

    fn end(&mut self, running: &Running, buffer: Buffer, outcome: DiskOutcome) {
        self.buffers.put(buffer);
        self.shared.counters.count(&outcome, running.done as u64);
        self.answer_in_time(running, outcome);
    }
}

impl<B: Backend> DiskLoop<B> {
    /// Works until the disk is stopped.
    ///
    /// # Errors
    /// When nothing more can be read or written.
    pub(crate) fn run(&mut self) -> io::Result<()> {
        let shared = Arc::clone(&self.parts.shared);
        let mut done = Vec::new();
        let mut patience = Patience::new();
        loop {
            if let Some(until) = shared.stop_by() {
                return self.wind_up(until);
            }
            self.take_all()?;
            self.parts.notify();
            let idle_since = self.parts.is_idle().then(Instant::now);
            if let Some(since) = idle_since
                && patience.is_worth_it()
            {
                self.parts.await_operations(since);
            }
            shared.doorbell.fall_asleep();
            let has_work = self.parts.has_operations() || shared.stop_by().is_some();
            let timeout = self.parts.timeout();
            let may_sleep = !has_work && timeout != Some(Duration::ZERO);
            if may_sleep || !self.parts.is_idle() {
                self.backend.wait(may_sleep, timeout, &mut done)?;
            }
            shared.doorbell.wake_up();
            if let Some(since) = idle_since {
                patience.note(since.elapsed());
            }
            self.finish_all(&mut done)?;
            if !self.parts.held.is_empty() {
                self.parts.release(Instant::now());
            }
            self.parts.notify();
        }
    }

    /// Waits for what is under way, no longer than the given time, and answers it at once.
    fn wind_up(&mut self, until: Instant) -> io::Result<()> {
        let mut done = Vec::new();
        self.parts.release_all();
        while !self.parts.is_idle() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            self.parts.shared.doorbell.fall_asleep();
            self.backend.wait(true, Some(left), &mut done)?;
            self.parts.shared.doorbell.wake_up();
            self.finish_all(&mut done)?;
        }
        self.parts.notify();
        Ok(())
    }

    fn take_all(&mut self) -> io::Result<()> {
        let now = self.parts.pacer.is_some().then(Instant::now);
        for lane in 0..self.parts.lanes.len() {
            while let Ok(op) = self.parts.lanes[lane].ops.pop() {
                self.take(lane as u16, op, now)?;
            }
        }
        Ok(())
    }

    fn take(&mut self, lane: u16, op: DiskOp, now: Option<Instant>) -> io::Result<()> {
        let parts = &mut self.parts;
        let (offset, len) = match &op.kind {
            DiskOpKind::ReadRecord { offset, len, .. }
            | DiskOpKind::ReadRaw { offset, len }
            | DiskOpKind::Write { offset, len, .. } => (*offset, *len as usize),
        };
        let services = match &op.kind {
            DiskOpKind::Write { parts, .. } => parts.len().max(1) as u32,
            _ => 1,
        };
        let due = parts.pacer.as_mut().zip(now).map(|(pacer, now)| pacer.due(now, services));
        let mut buffer = parts.buffers.take(len);
        let is_write = matches!(op.kind, DiskOpKind::Write { .. });
        let task = match op.kind {
            DiskOpKind::ReadRecord { sequence, .. } => Task::Record(parts.place(offset, sequence)),
            DiskOpKind::ReadRaw { .. } => Task::Raw,
            DiskOpKind::Write { sequence, parts: records, .. } => {
                let first = parts.place(offset, sequence);
                let out = &mut buffer[..len];
                record::lay_out(&records, &first, parts.block_bytes, crate::checksum, out);
                Task::Write(records)
            }
        };
        let running =
            Running { lane, id: op.id, task, offset, len, done: 0, interruptions: 0, due };
        if is_write && !parts.shared.is_writable {
            parts.end(&running, buffer, DiskOutcome::Failed(DiskFailure::ReadOnly));
            return Ok(());
        }
        let token = parts.free.pop().expect("lanes bound the operations under way");
        parts.running[token as usize] = Some(running);
        self.backend.start(Transfer { token, is_write, offset, buffer, range: 0..len })
    }

    fn finish_all(&mut self, done: &mut Vec<Done>) -> io::Result<()> {
        for done in done.drain(..) {
            self.finish(done)?;
        }
        Ok(())
    }

    /// Ends an operation, or goes on with it.
    fn finish(&mut self, done: Done) -> io::Result<()> {
        let Done { token, buffer, result } = done;
        let parts = &mut self.parts;
        let running = parts.running[token as usize].take();
        let mut running = running.expect("a backend ends what it was given, once");
        parts.free.push(token);
        let is_write = matches!(running.task, Task::Write(_));
        let goes_on = match result {
            Err(libc::EINTR | libc::EAGAIN) if running.interruptions < INTERRUPTIONS_MAX => {
                running.interruptions += 1;
                true
            }
            Err(errno) => {
                let failure = failure(errno);
                parts.shared.log_failure(is_write, running.offset, errno);
                parts.end(&running, buffer, DiskOutcome::Failed(failure));
                return Ok(());
            }
            Ok(0) if is_write && running.done < running.len => {
                parts.shared.log_failure(is_write, running.offset, libc::EIO);
                parts.end(&running, buffer, DiskOutcome::Failed(DiskFailure::Io));
                return Ok(());
            }
            Ok(octets) => {
                running.done += octets;
                // Direct I/O goes on at a block only. A read that ends within one is at the end of
                // the file.
                let rest = running.done % parts.block_bytes as usize;
                if is_write {
                    running.done -= rest;
                }
                octets > 0 && running.done < running.len && (is_write || rest == 0)
            }
        };
        if !goes_on {
            let outcome = parts.outcome(&running, &buffer);
            parts.end(&running, buffer, outcome);
            return Ok(());
        }
        let range = running.done..running.len;
        let offset = running.offset + running.done as u64;
        let token = parts.free.pop().expect("one was just put there");
        parts.running[token as usize] = Some(running);
        self.backend.start(Transfer { token, is_write, offset, buffer, range })
    }
}

fn failure(errno: i32) -> DiskFailure {
    match errno {
        libc::ENOSPC | libc::EDQUOT | libc::EFBIG => DiskFailure::NoSpace,
        libc::EROFS | libc::EPERM | libc::EBADF => DiskFailure::ReadOnly,
        _ => DiskFailure::Io,
    }
}

/// Whether an outcome tells of octets that are not what was written.
pub(crate) fn is_damage(outcome: &DiskOutcome) -> bool {
    matches!(
        outcome,
        DiskOutcome::Damaged(RecordFault::Checksum | RecordFault::Foreign | RecordFault::Truncated)
    )
}
