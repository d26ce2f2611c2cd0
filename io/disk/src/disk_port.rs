//! The connection of one shard to one disk: accepts operations, lets a backend read and write,
//! encodes and checks records, and reports outcomes.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use weir_base::Pool;
use weir_store::disk::record::{self, RecordLocation};
use weir_store::disk::{DiskFailure, DiskOp, DiskOpId, DiskOpKind, DiskOutcome, WriteChunk};

use crate::buffer::{Buffer, Buffers};
use crate::monitor::DiskShared;

/// How often an interrupted operation is repeated.
const INTERRUPTIONS_MAX: u32 = 1000;

/// A read or write for a backend: `range` of the buffer, at `offset` on the disk.
pub(crate) struct Transfer {
    pub(crate) token: u32,
    pub(crate) is_write: bool,
    pub(crate) offset: u64,
    pub(crate) buffer: Buffer,
    pub(crate) range: Range<usize>,
}

/// The end of a [`Transfer`]: bytes transferred, or the error number.
pub(crate) struct Completion {
    pub(crate) token: u32,
    pub(crate) buffer: Buffer,
    pub(crate) result: Result<usize, i32>,
}

/// Reads and writes. If a method returns an error, the disk is unusable.
pub(crate) trait Backend: Send {
    fn start(&mut self, transfer: Transfer) -> io::Result<()>;

    fn flush(&mut self) -> io::Result<()>;

    /// Appends the transfers that have ended.
    fn reap(&mut self, done: &mut Vec<Completion>) -> io::Result<()>;

    /// Starts all accepted transfers, and sleeps until one has ended or the time is over.
    fn wait(&mut self, timeout: Duration) -> io::Result<()>;
}

/// The kind of an operation in progress.
enum OpTask {
    Record(RecordLocation),
    Raw,
    /// The chunks own their packets, which must stay until the write has ended.
    Write {
        _chunks: Vec<WriteChunk>,
    },
}

struct RunningOp {
    id: DiskOpId,
    task: OpTask,
    offset: u64,
    len: usize,
    done: usize,
    interruptions: u32,
    /// The earliest time to report the outcome.
    due: Option<Instant>,
}

/// An outcome that is delayed. Ordered by time, then by arrival.
struct DelayedAnswer {
    due: Instant,
    number: u64,
    id: DiskOpId,
    outcome: DiskOutcome,
}

impl DelayedAnswer {
    fn key(&self) -> (Instant, u64) {
        (self.due, self.number)
    }
}

impl PartialEq for DelayedAnswer {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for DelayedAnswer {}

impl PartialOrd for DelayedAnswer {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for DelayedAnswer {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

pub(crate) struct DiskPort {
    backend: Box<dyn Backend>,
    shared: Arc<DiskShared>,
    buffers: Buffers,
    pool: Pool,
    running: Vec<Option<RunningOp>>,
    free: Vec<u32>,
    done: Vec<Completion>,
    delayed: BinaryHeap<Reverse<DelayedAnswer>>,
    delayed_count: u64,
    outcomes: Vec<(DiskOpId, DiskOutcome)>,
    /// Operations that were submitted and whose outcome was not drained yet.
    under_way: usize,
}

impl DiskPort {
    /// A port for at most `depth` operations at a time. It keeps up to `pool_bytes` of packet
    /// blocks for reads.
    pub(crate) fn new(
        backend: Box<dyn Backend>,
        shared: Arc<DiskShared>,
        buffers: Buffers,
        depth: usize,
        pool_bytes: usize,
    ) -> Self {
        Self {
            backend,
            shared,
            buffers,
            pool: Pool::new(pool_bytes),
            running: (0..depth).map(|_| None).collect(),
            free: (0..depth as u32).rev().collect(),
            done: Vec::new(),
            delayed: BinaryHeap::new(),
            delayed_count: 0,
            outcomes: Vec::new(),
            under_way: 0,
        }
    }

    /// Accepts an operation.
    ///
    /// # Panics
    /// If there are `depth` already.
    pub(crate) fn submit(&mut self, op: DiskOp) {
        assert!(self.under_way < self.running.len(), "the store exceeded its depth");
        self.under_way += 1;
        if self.shared.is_dead() {
            return self.outcomes.push((op.id, DiskOutcome::Failed(DiskFailure::Io)));
        }
        let taken = self.begin(op);
        self.check_backend(taken);
    }

    pub(crate) fn flush(&mut self) {
        if !self.shared.is_dead() {
            let flushed = self.backend.flush();
            self.check_backend(flushed);
        }
    }

    /// Appends the outcomes that are due.
    pub(crate) fn drain(&mut self, out: &mut Vec<(DiskOpId, DiskOutcome)>) {
        if !self.shared.is_dead() {
            let finished = self.reap_completions();
            self.check_backend(finished);
            if !self.delayed.is_empty() {
                self.answer_delayed(Instant::now());
            }
        }
        if self.shared.is_dead() {
            self.fail_all();
        }
        self.under_way -= self.outcomes.len();
        out.append(&mut self.outcomes);
    }

    pub(crate) fn has_outcomes(&self) -> bool {
        !self.outcomes.is_empty()
    }

    pub(crate) fn under_way(&self) -> usize {
        self.under_way
    }

    /// When the next delayed outcome is due, if there is one.
    pub(crate) fn next_release(&self) -> Option<Instant> {
        let next = self.delayed.peek().map(|answer| answer.0.due)?;
        Some(self.shared.answer_delay.stalled_until().map_or(next, |until| until.max(next)))
    }

    /// Waits for operations in progress until `until`. Returns whether all have ended.
    pub(crate) fn close(&mut self, until: Instant) -> bool {
        while !self.is_idle() && !self.shared.is_dead() {
            // Wait at least once: operations may have ended although the time is over.
            let left = until.saturating_duration_since(Instant::now());
            let finished = self.backend.wait(left).and_then(|()| self.reap_completions());
            self.check_backend(finished);
            if left.is_zero() {
                break;
            }
        }
        self.is_idle()
    }

    /// Whether nothing is being read or written.
    fn is_idle(&self) -> bool {
        self.free.len() == self.running.len()
    }

    /// Marks the disk as unusable for all shards after an error of the backend.
    fn check_backend(&mut self, result: io::Result<()>) {
        if let Err(error) = result {
            self.shared.mark_dead(&error);
        }
    }

    /// Reports all operations of a dead disk: delayed outcomes as they are, others as failed. Their
    /// buffers stay with the backend.
    fn fail_all(&mut self) {
        while let Some(Reverse(answer)) = self.delayed.pop() {
            self.outcomes.push((answer.id, answer.outcome));
        }
        let failed = self.running.iter_mut().filter_map(Option::take);
        let failed = failed.map(|running| (running.id, DiskOutcome::Failed(DiskFailure::Io)));
        self.outcomes.extend(failed);
    }

    fn record_location(&self, offset: u64, sequence: u32) -> RecordLocation {
        RecordLocation { store_id: self.shared.store_id, offset, sequence }
    }

    /// Reports an outcome now, or at the time at which a paced or stalled disk would report it.
    fn answer_or_delay(&mut self, running: &RunningOp, outcome: DiskOutcome) {
        let RunningOp { id, due, .. } = *running;
        let stalled_until = self.shared.answer_delay.stalled_until();
        let until = due.max(stalled_until);
        let Some(now) = until.map(|_| Instant::now()).filter(|&now| until > Some(now)) else {
            return self.outcomes.push((id, outcome));
        };
        // Do not store the end of the stall: the stall may be cancelled.
        self.delayed_count += 1;
        let due = due.unwrap_or(now);
        self.delayed.push(Reverse(DelayedAnswer { due, number: self.delayed_count, id, outcome }));
    }

    /// Reports the delayed outcomes that are due.
    fn answer_delayed(&mut self, now: Instant) {
        if self.shared.answer_delay.stalled_until().is_some_and(|until| until > now) {
            return;
        }
        while self.delayed.peek().is_some_and(|answer| answer.0.due <= now) {
            let Some(Reverse(answer)) = self.delayed.pop() else { return };
            self.outcomes.push((answer.id, answer.outcome));
        }
    }

    /// The outcome of an operation that has ended without an error.
    fn outcome(&mut self, running: &RunningOp, buffer: &Buffer) -> DiskOutcome {
        let octets = &buffer[..running.done];
        match &running.task {
            OpTask::Raw => DiskOutcome::Raw(octets.to_vec()),
            OpTask::Write { .. } => DiskOutcome::Written,
            OpTask::Record(location) => match record::parse_data(octets, location, crate::checksum)
            {
                Ok(record) => DiskOutcome::Record {
                    packet: self.pool.copy(record.body),
                    fresh_until_unix_ms: record.fresh_until_unix_ms,
                },
                Err(fault) => DiskOutcome::Damaged(fault),
            },
        }
    }

    fn complete(&mut self, running: &RunningOp, buffer: Buffer, outcome: DiskOutcome) {
        self.buffers.put(buffer);
        self.shared.counters.count(&outcome, running.done as u64);
        self.answer_or_delay(running, outcome);
    }

    fn begin(&mut self, op: DiskOp) -> io::Result<()> {
        let (offset, len) = match &op.kind {
            DiskOpKind::ReadRecord { offset, len, .. }
            | DiskOpKind::ReadRaw { offset, len }
            | DiskOpKind::Write { offset, len, .. } => (*offset, *len as usize),
        };
        // A paced disk counts each record of a write.
        let services = match &op.kind {
            DiskOpKind::Write { chunks, .. } => chunks.len().max(1) as u32,
            _ => 1,
        };
        let is_write = matches!(op.kind, DiskOpKind::Write { .. });
        if is_write && !self.shared.is_writable {
            let outcome = DiskOutcome::Failed(DiskFailure::ReadOnly);
            self.shared.counters.count(&outcome, 0);
            self.outcomes.push((op.id, outcome));
            return Ok(());
        }
        let due = self.shared.answer_delay.answer_due(services);
        let mut buffer = self.buffers.take(len);
        let task = match op.kind {
            DiskOpKind::ReadRecord { sequence, .. } => {
                OpTask::Record(self.record_location(offset, sequence))
            }
            DiskOpKind::ReadRaw { .. } => OpTask::Raw,
            DiskOpKind::Write { sequence, chunks, .. } => {
                let first = self.record_location(offset, sequence);
                let out = &mut buffer[..len];
                let block_bytes = self.shared.block_bytes;
                record::encode_chunks(&chunks, &first, block_bytes, crate::checksum, out);
                OpTask::Write { _chunks: chunks }
            }
        };
        let running = RunningOp { id: op.id, task, offset, len, done: 0, interruptions: 0, due };
        self.start(running, buffer)
    }

    /// Starts the rest of an operation.
    fn start(&mut self, running: RunningOp, buffer: Buffer) -> io::Result<()> {
        let token = self.free.pop().expect("the depth limits the operations in progress");
        let is_write = matches!(running.task, OpTask::Write { .. });
        let range = running.done..running.len;
        let offset = running.offset + running.done as u64;
        self.running[token as usize] = Some(running);
        self.backend.start(Transfer { token, is_write, offset, buffer, range })
    }

    fn reap_completions(&mut self) -> io::Result<()> {
        let mut done = std::mem::take(&mut self.done);
        let reaped = self.backend.reap(&mut done);
        let finished = done.drain(..).try_for_each(|done| self.on_completion(done));
        self.done = done;
        reaped.and(finished)
    }

    /// Handles the end of a transfer: continues the operation with the rest, or ends it.
    fn on_completion(&mut self, done: Completion) -> io::Result<()> {
        let Completion { token, buffer, result } = done;
        let running = self.running[token as usize].take();
        let mut running = running.expect("a backend completes each transfer once");
        self.free.push(token);
        let is_write = matches!(running.task, OpTask::Write { .. });
        let must_continue = match result {
            Err(libc::EINTR | libc::EAGAIN) if running.interruptions < INTERRUPTIONS_MAX => {
                running.interruptions += 1;
                true
            }
            Err(errno) => {
                self.shared.record_failure(is_write, running.offset, errno);
                self.complete(&running, buffer, DiskOutcome::Failed(failure(errno)));
                return Ok(());
            }
            // A write that makes no progress has failed, although the system reports no error.
            Ok(0) if is_write && running.done < running.len => {
                self.shared.record_failure(is_write, running.offset, libc::EIO);
                self.complete(&running, buffer, DiskOutcome::Failed(DiskFailure::Io));
                return Ok(());
            }
            Ok(octets) => {
                running.done += octets;
                // Direct I/O can continue only at a block boundary. A read that ends within a block
                // has reached the end of the file.
                let rest = running.done % self.shared.block_bytes as usize;
                if is_write {
                    running.done -= rest;
                }
                octets > 0 && running.done < running.len && (is_write || rest == 0)
            }
        };
        if must_continue {
            return self.start(running, buffer);
        }
        let outcome = self.outcome(&running, &buffer);
        self.complete(&running, buffer, outcome);
        Ok(())
    }
}

impl Drop for DiskPort {
    fn drop(&mut self) {
        if !self.is_idle() {
            self.shared.abandon_lock();
        }
    }
}

fn failure(errno: i32) -> DiskFailure {
    match errno {
        libc::ENOSPC | libc::EDQUOT | libc::EFBIG => DiskFailure::NoSpace,
        libc::EROFS | libc::EPERM | libc::EBADF => DiskFailure::ReadOnly,
        _ => DiskFailure::Io,
    }
}
