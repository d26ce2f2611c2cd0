//! What a driver of the disks calls, see the README.

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
    /// An empty store with a disk tier, which begins to read in what is on its disks.
    pub fn with_disk(config: StoreConfig, disk: DiskTierConfig) -> Self {
        Self { disks: Some(Box::new(Disks::new(disk))), ..Self::new(config) }
    }

    /// Whether there is a disk tier. Then an Interest's [`NameHashes`] must have all of them.
    #[inline]
    pub fn has_disk(&self) -> bool {
        self.disks.is_some()
    }

    /// Whether what was on the disks before is still being read in: a name that is not found may
    /// be found later.
    #[inline]
    pub fn is_recovering(&self) -> bool {
        self.disks.as_ref().is_some_and(|disks| disks.tier.is_recovering())
    }

    /// Whether the filter alone says that no Data of a name is on the disks. Never where there is
    /// no filter (paper nb-cache, III-B: the first bypass).
    pub fn is_ruled_out(&self, name: NameView<'_>, hashes: &NameHashes) -> bool {
        self.disks.as_ref().is_some_and(|disks| disks.tier.is_ruled_out(name, hashes))
    }

    /// First stage before a lookup of a store with a disk tier, next to [`Store::prefetch_table`]:
    /// asks for the line of the filter.
    #[inline]
    pub fn prefetch_filter(&self, name: NameView<'_>, hashes: &NameHashes) {
        if let Some(disks) = &self.disks {
            disks.tier.prefetch_filter(name, hashes);
        }
    }

    /// Whether the filter refuses a name that is in the index, which it must never do. For checks;
    /// changes nothing.
    pub fn is_filter_wrong(&self, query: &Query<'_>) -> bool {
        self.disks.as_ref().is_some_and(|disks| disks.tier.is_filter_wrong(query))
    }

    /// Whether all disks that answer have too much to do to be offered more: `records` wait to be
    /// written, no region is free to be filled next, or what was there before is not known yet. A
    /// caller that waits before an insertion until this is false loses nothing to the bounds of
    /// queues.
    pub fn is_disk_behind(&self, records: u32) -> bool {
        self.disks.as_ref().is_some_and(|disks| disks.tier.is_behind(records))
    }

    /// Begins to read what [`Store::lookup`] has just found, or joins the read that is under way,
    /// and counts a hit. Where the disk is stalled, or the record gone, the read ends at once
    /// without Data.
    ///
    /// # Errors
    /// As many reads as may be wait for the disk.
    pub fn begin_read(&mut self, found: &OnDisk) -> Result<ReadId, ReadRefused> {
        let disks = self.disks.as_mut().ok_or(ReadRefused)?;
        let read = disks.tier.begin_read(found);
        match read {
            Ok(_) => self.stats.hits += 1,
            Err(ReadRefused) => self.stats.misses += 1,
        }
        read
    }

    /// What [`Store::lookup`] has found on a disk is not read: counts a miss.
    pub fn decline_read(&mut self) {
        self.stats.misses += 1;
    }

    /// An operation has ended.
    pub fn on_disk_done(&mut self, now: Instant, id: DiskOpId, outcome: DiskOutcome) {
        if let Some(disks) = &mut self.disks {
            disks.tier.on_done(now, id, outcome);
        }
    }

    /// The next read that has ended; call until `None` after [`Store::begin_read`],
    /// [`Store::on_disk_done`] and [`Store::handle_timeout`].
    #[inline]
    pub fn next_finished(&mut self) -> Option<FinishedRead> {
        self.disks.as_mut()?.tier.next_finished()
    }

    /// Appends what must be done on disks. Call after every batch.
    #[inline]
    pub fn take_disk_ops(&mut self, now: Instant, ops: &mut Vec<DiskOp>) {
        if let Some(disks) = &mut self.disks {
            let memory_bytes = self.memory.bytes() + self.replaced.bytes();
            let used_bytes = memory_bytes + disks.tier.evicted_unwritten_bytes();
            let is_filling = used_bytes >= self.config.capacity_bytes / 4;
            disks.write_early(now, &mut self.memory, is_filling);
            disks.tier.take_ops(now, ops);
        }
    }

    /// Does what is due: writes that have waited long enough, stalls.
    pub fn handle_timeout(&mut self, now: Instant) {
        if let Some(disks) = &mut self.disks {
            disks.tier.handle_timeout(now);
        }
    }

    /// When [`Store::handle_timeout`] and then [`Store::take_disk_ops`] must be called at the
    /// latest.
    #[inline]
    pub fn next_wakeup(&self) -> Option<Instant> {
        self.disks.as_ref()?.next_wakeup()
    }

    /// Offers all that is in memory to the disks, bounds of the queues aside, as before a stop.
    /// Returns whether a disk that works has yet to write something; call again as operations end,
    /// until `false`.
    pub fn flush(&mut self, now: Instant) -> bool {
        let Self { disks: Some(disks), memory, .. } = self else { return false };
        disks.flush(now, memory)
    }

    /// Whether [`Store::take_lost`] has something.
    pub fn has_lost(&self) -> bool {
        self.disks.as_ref().is_some_and(|disks| !disks.tier.lost.is_empty())
    }

    /// The segments that were lost since the last call, as far as they were few enough to be
    /// listed: memory was full of what waits for the disks, or a write failed.
    pub fn take_lost(&mut self) -> Vec<LostSegment> {
        self.disks.as_mut().map_or_else(Vec::new, |disks| disks.take_lost())
    }

    /// What waits for disks that take anything now; none where no disk does.
    pub fn write_backlog(&self, now: Instant) -> Option<WriteBacklog> {
        let kept_bytes = self.eviction.pinned_bytes();
        let memory_bytes = self.config.capacity_bytes.saturating_sub(kept_bytes);
        self.disks.as_ref()?.write_backlog(now, memory_bytes)
    }
}

/// What the tests of the disk tier ask.
#[cfg(test)]
impl Store {
    fn tier(&self) -> Option<&crate::disk::DiskTier> {
        Some(&self.disks.as_ref()?.tier)
    }

    pub(crate) fn is_on_disk(&self, query: &Query<'_>) -> bool {
        self.tier().is_some_and(|tier| tier.has_answer(query))
    }

    /// The position of the record of a name: the disk, and octets from its start.
    pub(crate) fn offset_of(&self, name: NameView<'_>, hashes: NameHashes) -> Option<(u8, u64)> {
        self.tier()?.offset_of(crate::disk::key_of(name, hashes.whole, hashes.parent))
    }

    /// The sequence number of the present use of a region, of this store or another.
    pub(crate) fn region_sequence(&self, disk: u8, region: u64) -> u32 {
        self.tier().map_or(0, |tier| tier.region_sequence(disk, region))
    }

    /// Of any disk: erasures that wait to be noted, and those that wait for what it holds.
    pub(crate) fn erasures_waiting(&self) -> (usize, usize) {
        self.tier().map_or((0, 0), |tier| tier.erasures_waiting())
    }

    pub(crate) fn check_disk(&mut self) {
        if let Some(disks) = &mut self.disks {
            disks.tier.check();
        }
    }
}
