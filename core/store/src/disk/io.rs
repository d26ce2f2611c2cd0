//! Issues operations to the disks, and handles their outcomes. These are steps 5 to 9 of the path
//! in the [module documentation](super).

use super::address::SECTOR_BYTES;
use super::checkpoint::{Erasure, LoggedErasure};
use super::config::Contention;
use super::device::{BatchContent, Region, WriteBatch};
use super::lookup::ReadOutcome;
use super::op::{DiskFailure, DiskOp, DiskOpId, DiskOpKind, DiskOutcome};
use super::operations::{OpPurpose, RunningOp};
use super::queue::{NextOp, choose_next};
use super::reads::SharedRead;
use super::tier::DiskTier;
use alloc::vec::Vec;
use core::mem;
use weir_base::{Backoff, Instant, NS_PER_S, Packet};

/// Consecutive failed writes after which appending to a disk pauses.
const FAILURES_MAX: u32 = 3;
/// The length of the pause. It doubles with each further failure.
const PAUSE: Backoff = Backoff::new(NS_PER_S, 60 * NS_PER_S);

impl DiskTier {
    /// Appends the operations that the disks should start now.
    pub(crate) fn take_ops(&mut self, now: Instant, ops: &mut Vec<DiskOp>) {
        for disk in 0..self.devices.len() {
            self.prepare(now, disk);
            while let Some(op) = self.next_op(now, disk) {
                ops.push(op);
            }
        }
    }

    /// Queues batches that have waited long enough, erasures and checkpoints.
    fn prepare(&mut self, now: Instant, disk: usize) {
        let device = &mut self.devices[disk];
        if device.paused_until <= now {
            device.paused_until = Instant::ZERO;
        }
        let takes_writes = device.is_ready && !device.is_stalled && now >= device.paused_until;
        if !device.erasures.is_empty() && takes_writes && device.is_usable() {
            self.append_erasures(now, disk);
        }
        let delay_ns = self.config.write_delay_max_ns;
        let device = &mut self.devices[disk];
        if device.batch.as_ref().is_some_and(|batch| batch.began.plus_ns(delay_ns) <= now) {
            device.finish_batch();
        }
        if !device.closing.is_empty() {
            self.seal_closed(now, disk);
        }
    }

    fn next_op(&mut self, now: Instant, disk: usize) -> Option<DiskOp> {
        let device = &self.devices[disk];
        if device.is_stalled || device.under_way >= self.config.depth {
            return None;
        }
        // Recovery goes first: until it is complete, lookups miss records.
        if let Some((purpose, kind)) = self.next_recovery_read(disk) {
            return Some(self.begin_op(now, disk, purpose, kind));
        }
        let device = &self.devices[disk];
        let read = device.reads.front().map(|&at| self.reads.get(at).ticket);
        let write = device.writes.front();
        let write =
            write.filter(|batch| !device.must_wait_for_header(batch)).map(|batch| batch.ticket);
        // With a large backlog, take turns by arrival. If reads always went first, evicted packets
        // that wait to be written would fill memory.
        let contention = match device.bytes_waiting > self.device_backlog_max() / 4 {
            true => Contention::Fifo,
            false => self.config.contention,
        };
        match choose_next(contention, read, write) {
            Some(NextOp::Read) => self.begin_next_read(now, disk),
            Some(NextOp::Write) => self.begin_next_write(now, disk),
            // The disk is idle: compare records, which happens only before a stop.
            None => {
                let (purpose, kind) = self.next_comparison(disk)?;
                Some(self.begin_op(now, disk, purpose, kind))
            }
        }
    }

    fn begin_op(
        &mut self,
        now: Instant,
        disk: usize,
        purpose: OpPurpose,
        kind: DiskOpKind,
    ) -> DiskOp {
        let id = self.operations.begin(disk as u8, purpose);
        let device = &mut self.devices[disk];
        device.under_way += 1;
        device.begun.push_back((now, id));
        // One slow operation keeps all that ended after it in the list. Drop those now and then.
        if device.begun.len() > 2 * self.config.depth as usize + 64 {
            let operations = &self.operations;
            device.begun.retain(|&(_, id)| operations.is_running(id));
        }
        DiskOp { id, disk: disk as u8, kind }
    }

    fn begin_next_read(&mut self, now: Instant, disk: usize) -> Option<DiskOp> {
        let at = self.devices[disk].reads.pop_front()?;
        let kind = self.devices[disk].read_record(self.reads.get(at).address);
        Some(self.begin_op(now, disk, OpPurpose::Read(at), kind))
    }

    fn begin_next_write(&mut self, now: Instant, disk: usize) -> Option<DiskOp> {
        let mut batch = self.devices[disk].writes.pop_front()?;
        let kind = DiskOpKind::Write {
            offset: self.devices[disk].offset(batch.region, batch.offset),
            len: batch.len as u32,
            sequence: batch.sequence,
            chunks: mem::take(&mut batch.chunks),
        };
        Some(self.begin_op(now, disk, OpPurpose::Write(batch), kind))
    }

    /// An operation has ended.
    pub(crate) fn on_done(&mut self, now: Instant, id: DiskOpId, outcome: DiskOutcome) {
        let Some(RunningOp { disk, purpose, .. }) = self.operations.end(id) else { return };
        let disk = usize::from(disk);
        let device = &mut self.devices[disk];
        device.under_way -= 1;
        // Any response ends a stall.
        device.is_stalled = false;
        device.last_answer = now;
        self.forget_ended(disk);
        match purpose {
            OpPurpose::Read(at) => self.on_read(disk, at, outcome),
            OpPurpose::Write(batch) => self.on_write(now, disk, batch, &outcome),
            OpPurpose::Recovery(tag) => self.on_recovery_read(tag, outcome),
            OpPurpose::Comparison(key, address) => self.on_comparison(key, address, &outcome),
        }
    }

    fn forget_ended(&mut self, disk: usize) {
        let begun = &mut self.devices[disk].begun;
        while begun.front().is_some_and(|&(_, id)| !self.operations.is_running(id)) {
            begun.pop_front();
        }
    }

    fn on_read(&mut self, disk: usize, at: u32, outcome: DiskOutcome) {
        let read = self.reads.remove(at);
        let device = &mut self.devices[disk];
        device.reads_waiting -= 1;
        if !matches!(outcome, DiskOutcome::Failed(_)) {
            device.read_failures = 0;
        }
        let data = match outcome {
            DiskOutcome::Record { packet, fresh_until_unix_ms } => {
                self.check_read(&read, &packet).then(|| (packet, self.instant(fresh_until_unix_ms)))
            }
            DiskOutcome::Failed(_) => {
                self.on_read_failed(disk, &read);
                None
            }
            DiskOutcome::Damaged(_) | DiskOutcome::Raw(_) | DiskOutcome::Written => {
                // If the region was reused meanwhile, the record is gone and not damaged.
                if self.is_valid(read.address) {
                    self.stats.damaged += 1;
                    self.discard_record(read.key, read.address);
                }
                None
            }
        };
        self.stats.reads += u64::from(data.is_some());
        let outcome = match data {
            Some((packet, fresh_until)) => ReadOutcome::Data { packet, fresh_until },
            // The waiting Interests were released when the disk stalled.
            None if read.is_released => return,
            None => ReadOutcome::Unavailable,
        };
        self.reads.finish(read.id, outcome);
    }

    /// Whether the record that was read may be served. Erases it if it has the wrong fingerprint.
    fn check_read(&mut self, read: &SharedRead, packet: &Packet) -> bool {
        if read.is_stale {
            return false;
        }
        let Some(fingerprint) = self.fingerprints.find(read.key) else { return true };
        if self.config.hash_key.hash(packet) == fingerprint {
            self.fingerprints.remove(read.key);
            return true;
        }
        self.stats.damaged += 1;
        self.erase_key(read.key);
        false
    }

    /// Handles a failed read. The first of consecutive failures discards its record. After further
    /// failures the disk itself counts as broken, and its records stay for when it recovers.
    fn on_read_failed(&mut self, disk: usize, read: &SharedRead) {
        self.stats.read_errors += 1;
        let device = &mut self.devices[disk];
        device.read_failures = device.read_failures.saturating_add(1);
        if device.read_failures == 1 {
            self.discard_record(read.key, read.address);
        }
    }

    fn on_write(&mut self, now: Instant, disk: usize, batch: WriteBatch, outcome: &DiskOutcome) {
        let failure = match outcome {
            DiskOutcome::Written => None,
            DiskOutcome::Failed(failure) => Some(*failure),
            _ => Some(DiskFailure::Io),
        };
        let device = &mut self.devices[disk];
        // The region has no writer any more if it was abandoned since.
        if let Some(writer) = device.writer_mut(batch.region, batch.sequence) {
            writer.writes -= 1;
            writer.has_failed |= failure.is_some();
            writer.has_header |= batch.content == BatchContent::Header && failure.is_none();
        }
        if let Some(failure) = failure {
            self.stats.write_errors += 1;
            self.drop_batch(disk, &batch);
            self.on_write_failed(now, disk, &batch, failure);
        } else {
            if batch.content == BatchContent::Header {
                let region = &mut device.regions[batch.region as usize];
                (region.failures, region.recoverable_as) = (0, 0);
            }
            // A success ends the pause after failures.
            device.write_failures = 0;
            device.paused_until = Instant::ZERO;
            self.stats.writes += batch.records.len() as u64;
            self.stats.written_bytes += batch.len;
            for &record in &batch.records {
                self.remove_pending(record);
            }
        }
        self.seal_closed(now, disk);
    }

    /// Drops the records of a failed write. They may or may not be on the disk, so erasures are
    /// logged for them.
    fn drop_batch(&mut self, disk: usize, batch: &WriteBatch) {
        let end = (batch.sequence, ((batch.offset + batch.len) / SECTOR_BYTES) as u32);
        for &record in &batch.records {
            let pending = self.remove_pending(record);
            // A record that was erased meanwhile is not lost.
            if self.remove_from_index(pending.key, pending.address) && pending.is_evicted {
                self.stats.lost += 1;
                self.lost.add(&pending.packet);
            }
            self.devices[disk].erase_before(Erasure::Key(pending.key), Some(end));
        }
        // Log the erasures again, with their old positions: records appended since then must stay.
        for &LoggedErasure { erasure, before } in &batch.erasures {
            self.devices[disk].erase_before(erasure, Some(before));
        }
    }

    fn on_write_failed(
        &mut self,
        now: Instant,
        disk: usize,
        batch: &WriteBatch,
        failure: DiskFailure,
    ) {
        let device = &mut self.devices[disk];
        device.write_failures = device.write_failures.saturating_add(1);
        if let Some(doubled) = device.write_failures.checked_sub(FAILURES_MAX) {
            device.paused_until = now.plus_ns(PAUSE.delay_ns(doubled + 1));
        }
        if batch.content == BatchContent::Header {
            return self.abandon_region(disk, batch, failure);
        }
        let is_open = device.open.as_ref().is_some_and(|writer| writer.sequence == batch.sequence);
        // After an I/O error, continue in another region. On a full file system that would fail,
        // too.
        if is_open && failure == DiskFailure::Io {
            device.close();
        }
    }

    /// Empties a region whose header could not be written, and drops its other writes.
    fn abandon_region(&mut self, disk: usize, header: &WriteBatch, failure: DiskFailure) {
        let device = &mut self.devices[disk];
        device.finish_batch();
        let is_of_region = |batch: &WriteBatch| batch.sequence == header.sequence;
        let writes = mem::take(&mut device.writes);
        let (dropped, kept): (Vec<WriteBatch>, Vec<WriteBatch>) =
            writes.into_iter().partition(is_of_region);
        device.writes.extend(kept);
        device.open.take_if(|writer| writer.sequence == header.sequence);
        device.closing.retain(|writer| writer.sequence != header.sequence);
        for batch in dropped {
            self.drop_batch(disk, &batch);
        }
        // A full file system is no fault of the region.
        let is_its_own = u8::from(failure == DiskFailure::Io);
        let region = &mut self.devices[disk].regions[header.region as usize];
        let failures = region.failures.saturating_add(is_its_own);
        let (former, found_as) = (header.sequence, region.recoverable_as);
        *region = Region {
            last_sequence: former,
            recoverable_as: found_as,
            failures,
            ..Region::default()
        };
        // Sequence numbers advance without records here. The sweep must advance as well, or stale
        // addresses could become valid again.
        self.sweep(disk, self.devices[disk].geometry.region_bytes);
    }

    /// Detects stalled disks and continues recovery. `take_ops` does everything else that is due.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        for disk in 0..self.devices.len() {
            if self.stalls_at(disk).is_some_and(|at| at <= now) {
                self.on_stalled(disk);
            }
        }
        self.continue_recovery();
    }

    /// When the disk will count as stalled, unless it responds.
    fn stalls_at(&self, disk: usize) -> Option<Instant> {
        let device = &self.devices[disk];
        let &(begun, _) = device.begun.front().filter(|_| !device.is_stalled)?;
        Some(begun.max(device.last_answer).plus_ns(self.config.stalled_after_ns))
    }

    /// Releases all reads that wait for a disk.
    fn on_stalled(&mut self, disk: usize) {
        self.stats.stalls += 1;
        let device = &mut self.devices[disk];
        device.is_stalled = true;
        let waiting = mem::take(&mut device.reads);
        device.reads_waiting -= waiting.len() as u32;
        for at in waiting {
            let read = self.reads.remove(at);
            self.reads.finish(read.id, ReadOutcome::Stalled);
        }
        // Reads in progress stay with the driver. Their Interests are released as well.
        for running in self.operations.of_disk(disk) {
            if let OpPurpose::Read(at) = running.purpose {
                self.reads.release_waiters(at);
            }
        }
    }

    /// When [`DiskTier::handle_timeout`] or [`DiskTier::take_ops`] has something to do.
    pub(crate) fn next_wakeup(&self) -> Option<Instant> {
        let mut next = if self.recovery.has_work() { Some(Instant::ZERO) } else { None };
        let mut consider = |at: Instant| next = Some(next.map_or(at, |next: Instant| next.min(at)));
        for (disk, device) in self.devices.iter().enumerate() {
            if let Some(at) = self.stalls_at(disk) {
                consider(at);
            }
            if let Some(batch) = &device.batch {
                consider(batch.began.plus_ns(self.config.write_delay_max_ns));
            }
            let waits = !device.erasures.is_empty() && device.is_ready && !device.is_stalled;
            if waits && device.is_usable() && device.paused_until > Instant::ZERO {
                consider(device.paused_until);
            }
        }
        next
    }

    /// Queues the batches that are being gathered. Returns whether a working disk still has
    /// something to write or to compare.
    pub(crate) fn flush(&mut self, now: Instant) -> bool {
        for disk in 0..self.devices.len() {
            self.prepare(now, disk);
            self.devices[disk].finish_batch();
        }
        self.devices.iter().any(|device| {
            let is_held_up = device.is_stalled || now < device.paused_until;
            let is_written = device.is_ready && !device.has_writes() && device.erasures.is_empty();
            let is_compared = device.comparisons.is_empty() && device.comparing == 0;
            device.is_usable() && !is_held_up && !(is_written && is_compared)
        })
    }

    /// Whether recovery knows enough of all usable disks to write to them.
    pub(crate) fn is_ready(&self) -> bool {
        self.devices.iter().all(|device| device.is_ready || !device.is_usable())
    }
}
