//! The methods that a disk driver calls. The README has the order of the calls.

use super::{Store, WriteBacklog};
use crate::config::StoreConfig;
use crate::disk::{
    DiskOp, DiskOpId, DiskOutcome, DiskTierConfig, FinishedRead, LostSegment, OnDisk, ReadId,
    ReadRefused,
};
use crate::store::disks::Disks;
use crate::{NameHashes, Query};
use alloc::boxed::Box;
use alloc::vec::Vec;
use weir_base::Instant;
use weir_wire::NameView;

impl Store {
    /// An empty store with a disk tier, which starts to recover the contents of its disks.
    pub fn with_disk(config: StoreConfig, disk: DiskTierConfig) -> Self {
        Self { disks: Some(Box::new(Disks::new(disk))), ..Self::new(config) }
    }

    /// Whether there is a disk tier. If so, every Interest's [`NameHashes`] must be complete.
    #[inline]
    pub fn has_disk(&self) -> bool {
        self.disks.is_some()
    }

    /// Whether the disks are still being recovered. A name that is not found now may be found
    /// later.
    #[inline]
    pub fn is_recovering(&self) -> bool {
        self.disks.as_ref().is_some_and(|disks| disks.tier.is_recovering())
    }

    /// Whether the filter alone proves that no Data of this name is on the disks. False without a
    /// filter (paper nb-cache, III-B: the first bypass).
    pub fn is_ruled_out(&self, name: NameView<'_>, hashes: &NameHashes) -> bool {
        self.disks.as_ref().is_some_and(|disks| disks.tier.is_ruled_out(name, hashes))
    }

    /// Stage 1 before a lookup in a store with a disk tier: prefetches the filter's line. See
    /// [`Store::prefetch_table`].
    #[inline]
    pub fn prefetch_filter(&self, name: NameView<'_>, hashes: &NameHashes) {
        if let Some(disks) = &self.disks {
            disks.tier.prefetch_filter(name, hashes);
        }
    }

    /// Whether the filter rejects a name that is in the index, which must never happen. For checks;
    /// changes nothing.
    pub fn is_filter_wrong(&self, query: &Query<'_>) -> bool {
        self.disks.as_ref().is_some_and(|disks| disks.tier.is_filter_wrong(query))
    }

    /// Whether every disk that responds has a full queue. A queue counts as full if `records` wait
    /// to be written, if no region is free to be filled next, or until recovery knows enough of the
    /// disk to write to it. A caller that waits for `false` before each insertion loses nothing to
    /// the limits of the queues.
    pub fn is_disk_behind(&self, records: u32) -> bool {
        self.disks.as_ref().is_some_and(|disks| disks.tier.is_behind(records))
    }

    /// Begins to read a record that [`Store::lookup`] has just found, or joins a read in progress.
    /// Counts a hit. If the disk is stalled or the record is gone, the read ends immediately
    /// without Data.
    ///
    /// # Errors
    /// The disk's limit of waiting reads is reached. Counts nothing: the caller must call
    /// [`Store::count_miss`] with the Interest.
    pub fn begin_read(&mut self, found: &OnDisk) -> Result<ReadId, ReadRefused> {
        let disks = self.disks.as_mut().ok_or(ReadRefused)?;
        let read = disks.tier.begin_read(found)?;
        let class = if self.prefix_counters.is_empty() {
            0
        } else {
            self.prefix_counters.class_of_hashes(disks.tier.prefixes_of(found))
        };
        // The length is not known yet; see [`Store::count_read_bytes`].
        self.prefix_counters.count_hit(class, 0);
        Ok(read)
    }

    /// Counts bytes of answers with Data that a disk has read.
    pub fn count_read_bytes(&mut self, data: NameView<'_>, bytes: u64) {
        self.prefix_counters.count_bytes(data, bytes);
    }

    /// The driver reports the outcome of an operation.
    pub fn on_disk_done(&mut self, now: Instant, id: DiskOpId, outcome: DiskOutcome) {
        if let Some(disks) = &mut self.disks {
            disks.tier.on_done(now, id, outcome);
        }
    }

    /// The next read that has ended. Call it until it returns `None`, after [`Store::begin_read`],
    /// [`Store::on_disk_done`] and [`Store::handle_timeout`].
    #[inline]
    pub fn next_finished(&mut self) -> Option<FinishedRead> {
        self.disks.as_mut()?.tier.next_finished()
    }

    /// Appends the operations that the driver must start now. Call it after every batch of packets.
    #[inline]
    pub fn take_disk_ops(&mut self, now: Instant, ops: &mut Vec<DiskOp>) {
        if let Some(disks) = &mut self.disks {
            // Early offers start at a quarter of the capacity. They have the rest to finish in.
            let memory_bytes = self.memory.bytes() + self.replaced.bytes();
            let used_bytes = memory_bytes + disks.tier.evicted_unwritten_bytes();
            let is_filling = used_bytes >= self.config.capacity_bytes / 4;
            disks.write_early(now, &mut self.memory, is_filling);
            disks.tier.take_ops(now, ops);
        }
    }

    /// Detects stalled disks, and continues recovery.
    pub fn handle_timeout(&mut self, now: Instant) {
        if let Some(disks) = &mut self.disks {
            disks.tier.handle_timeout(now);
        }
    }

    /// The latest time for the next call of [`Store::handle_timeout`], then
    /// [`Store::take_disk_ops`].
    #[inline]
    pub fn next_wakeup(&self) -> Option<Instant> {
        self.disks.as_ref()?.next_wakeup()
    }

    /// Prepares for shutdown: offers everything in memory to the disks, beyond the limits of the
    /// queues. Returns whether a working disk still has something to write. Call it again as
    /// operations end, until it returns `false`.
    pub fn flush(&mut self, now: Instant) -> bool {
        let Self { disks: Some(disks), memory, .. } = self else { return false };
        disks.flush(now, memory)
    }

    /// Whether [`Store::take_lost`] would return something.
    pub fn has_lost(&self) -> bool {
        self.disks.as_ref().is_some_and(|disks| !disks.tier.lost.is_empty())
    }

    /// The segments lost since the last call, up to a limit. A segment is lost when memory must
    /// evict it while no disk takes it, or when its write fails after eviction.
    pub fn take_lost(&mut self) -> Vec<LostSegment> {
        self.disks.as_mut().map_or_else(Vec::new, |disks| disks.take_lost())
    }

    /// The data that waits for disks. `None` if no disk takes writes now.
    pub fn write_backlog(&self, now: Instant) -> Option<WriteBacklog> {
        let kept_bytes = self.eviction.pinned_bytes();
        let memory_bytes = self.config.capacity_bytes.saturating_sub(kept_bytes);
        self.disks.as_ref()?.write_backlog(now, memory_bytes)
    }
}

/// Accessors for the tests of the disk tier.
#[cfg(test)]
impl Store {
    fn tier(&self) -> Option<&crate::disk::DiskTier> {
        Some(&self.disks.as_ref()?.tier)
    }

    pub(crate) fn is_on_disk(&self, query: &Query<'_>) -> bool {
        self.tier().is_some_and(|tier| tier.has_answer(query))
    }

    /// Where the record of a name is: the disk, and the offset in bytes from its start.
    pub(crate) fn offset_of(&self, name: NameView<'_>, hashes: NameHashes) -> Option<(u8, u64)> {
        self.tier()?.offset_of(crate::disk::key_of(name, hashes.whole, hashes.parent))
    }

    /// The sequence number of the current use of a region, by this store or another.
    pub(crate) fn region_sequence(&self, disk: u8, region: u64) -> u32 {
        self.tier().map_or(0, |tier| tier.region_sequence(disk, region))
    }

    /// The most erasures on one disk that wait to be logged, and that wait for records not read
    /// yet.
    pub(crate) fn erasures_waiting(&self) -> (usize, usize) {
        self.tier().map_or((0, 0), |tier| tier.erasures_waiting())
    }

    pub(crate) fn check_disk(&mut self) {
        if let Some(disks) = &mut self.disks {
            disks.tier.check();
        }
    }
}
