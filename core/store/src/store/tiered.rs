//! The store with its disk tier.

use super::write_queue::WriteQueue;
use super::{Lookup, NameHashes, Query, Store};
use crate::config::StoreConfig;
use crate::disk::{
    Comparison, DiskOp, DiskOpId, DiskOutcome, DiskTier, DiskTierConfig, FinishedRead, LostSegment,
    Offer, OfferAt, Offered, OnDisk, ReadId, ReadRefused, Urgency, key_of,
};
use crate::entry::{NACK, UNVERIFIED, USED};
use crate::holdings::{Holdings, HoldingsConfig};
use alloc::boxed::Box;
use alloc::vec::Vec;
use weir_base::{Instant, NS_PER_MS, Packet, Pool};
use weir_wire::{DataView, NameView};

/// A store's disks, and what the store itself has to remember for them.
pub(super) struct Tiered {
    tier: DiskTier,
    /// What has yet to be offered to the disks.
    queue: WriteQueue,
    /// Whether all that is in RAM was offered by [`Store::flush`].
    is_flushed: bool,
    /// Whether a flush has begun to compare records.
    is_comparing: bool,
    /// Whether more could be written early at once.
    is_interrupted: bool,
}

/// What waits to be written to a disk.
#[derive(Copy, Clone, Debug)]
pub struct WriteBacklog {
    /// Octets of Data that is on no disk yet.
    pub bytes: u64,
    /// The bound of `bytes`: near it Data is lost.
    pub bytes_max: u64,
    /// Octets of records that disks were offered, a part of `bytes`.
    pub offered_bytes: u64,
    /// Octets that were written so far, to all disks.
    pub written_bytes: u64,
}

/// Data that is offered early at a time: a batch of packets must not wait for a whole store.
const EARLY_OFFERS_MAX: u32 = 64;
/// Bytes that wait for a disk while Data is written early: enough to keep it busy, few enough that
/// what has to be evicted does not wait long.
const EARLY_BACKLOG_BYTES: u64 = 4 << 20;

impl Store {
    /// An empty store with a disk tier, which begins to read in what is on its disks.
    pub fn with_disk(config: StoreConfig, disk: DiskTierConfig) -> Self {
        let (tier, queue) = (DiskTier::new(disk), WriteQueue::new());
        let tiered =
            Tiered { tier, queue, is_flushed: false, is_comparing: false, is_interrupted: false };
        Self { disk: Some(Box::new(tiered)), ..Self::new(config) }
    }

    /// Whether there is a disk tier. Then an Interest's [`NameHashes`] must have all of them.
    #[inline]
    pub fn has_disk(&self) -> bool {
        self.disk.is_some()
    }

    /// Whether the filter alone says that no Data of a name is on the disks. Never where there is
    /// no filter (paper nb-cache, III-B: the first bypass).
    pub fn is_ruled_out(&self, name: NameView<'_>, hashes: &NameHashes) -> bool {
        self.disk.as_ref().is_some_and(|disk| disk.tier.is_ruled_out(name, hashes))
    }

    /// First stage before a lookup of a store with a disk tier, beside [`Store::prefetch_table`]:
    /// asks for the line of the filter.
    #[inline]
    pub fn prefetch_filter(&self, name: NameView<'_>, hashes: &NameHashes) {
        if let Some(disk) = &self.disk {
            disk.tier.prefetch_filter(name, hashes);
        }
    }

    /// Whether there is no need to look on disks for what RAM has not.
    #[inline]
    pub(super) fn ends_here(&mut self, query: &Query<'_>) -> bool {
        self.disk.as_mut().is_none_or(|disk| disk.tier.ends_at_filter(query))
    }

    pub(super) fn lookup_on_disk(&mut self, now: Instant, query: &Query<'_>) -> Lookup {
        let known = self.find(query.hashes.whole, query.name.value());
        // The record on disk may be older Data than that in memory, which is not fresh any more.
        let is_unverified = known.is_some_and(|at| self.entries[at].flags & UNVERIFIED != 0);
        let Some(disk) = self.disk.as_mut().filter(|_| self.config.serve && !is_unverified) else {
            return Lookup::Miss;
        };
        disk.tier.lookup(now, query)
    }

    pub(super) fn has_answer_on_disk(&self, query: &Query<'_>) -> bool {
        self.disk.as_ref().is_some_and(|disk| disk.tier.has_answer(query))
    }

    /// Whether the filter refuses a name that is in the index, which it must never do. For checks;
    /// changes nothing.
    #[must_use]
    pub fn is_filter_wrong(&self, query: &Query<'_>) -> bool {
        self.disk.as_ref().is_some_and(|disk| disk.tier.is_filter_wrong(query))
    }

    /// Whether all disks that answer have too much to do to be offered more: `records` wait to be
    /// written, no region is free to be filled next, or what was there before is not known yet. Who
    /// can wait before an insertion, and does, loses nothing to the bounds of queues.
    #[must_use]
    pub fn is_disk_behind(&self, records: u32) -> bool {
        self.disk.as_ref().is_some_and(|disk| disk.tier.is_behind(records))
    }

    /// Begins to read what [`Store::lookup`] has just found, or joins the read that is under way,
    /// and counts a hit. Where the disk is stalled, or the record gone, the read ends at once
    /// without Data.
    ///
    /// # Errors
    /// As many reads as may be wait for the disk.
    pub fn begin_read(&mut self, found: &OnDisk) -> Result<ReadId, ReadRefused> {
        let disk = self.disk.as_mut().ok_or(ReadRefused)?;
        let read = disk.tier.begin_read(found);
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
        if let Some(disk) = &mut self.disk {
            disk.tier.on_done(now, id, outcome);
        }
    }

    /// The next read that has ended; call until `None` after [`Store::begin_read`],
    /// [`Store::on_disk_done`] and [`Store::handle_timeout`].
    #[inline]
    pub fn next_finished(&mut self) -> Option<FinishedRead> {
        self.disk.as_mut()?.tier.next_finished()
    }

    /// Appends what is to be done on disks. Call after every batch.
    #[inline]
    pub fn take_disk_ops(&mut self, now: Instant, ops: &mut Vec<DiskOp>) {
        self.write_early(now);
        if let Some(disk) = &mut self.disk {
            disk.tier.take_ops(now, ops);
        }
    }

    /// Does what is due: writes that have waited long enough, stalls.
    pub fn handle_timeout(&mut self, now: Instant) {
        if let Some(disk) = &mut self.disk {
            disk.tier.handle_timeout(now);
        }
    }

    /// When [`Store::handle_timeout`] and then [`Store::take_disk_ops`] must be called at the
    /// latest.
    #[inline]
    pub fn next_wakeup(&self) -> Option<Instant> {
        let disk = self.disk.as_ref()?;
        if disk.is_interrupted { Some(Instant::ZERO) } else { disk.tier.next_wakeup() }
    }

    /// Offers all that is in RAM to the disks, bounds of the queues aside, as before a stop. Says
    /// whether something has yet to be written by a disk that works; call again as operations end,
    /// until no.
    pub fn flush(&mut self, now: Instant) -> bool {
        let Some(disk) = &mut self.disk else { return false };
        if disk.tier.is_ready() && !disk.is_flushed {
            disk.is_flushed = true;
            let indices: Vec<u32> = self.entries.iter().map(|(index, _)| index).collect();
            for index in indices {
                self.offer_entry(now, index, Urgency::Forced);
            }
            if let Some(disk) = &mut self.disk
                && !core::mem::replace(&mut disk.is_comparing, true)
            {
                disk.tier.begin_comparisons();
            }
        }
        let Some(disk) = &mut self.disk else { return false };
        let has_more = disk.tier.flush(now);
        disk.is_comparing &= has_more;
        has_more
    }

    /// Puts Data that was read into RAM.
    pub fn promote(
        &mut self,
        now: Instant,
        data: (&Packet, &DataView<'_>),
        fresh_until: Instant,
        hashes: NameHashes,
        prefixes: impl FnOnce(&mut Vec<u64>),
        pool: &mut Pool,
    ) {
        let (packet, data) = data;
        if !self.config.admit || data.name.is_empty() || !self.is_storable(data) {
            return;
        }
        // What has come meanwhile is newer.
        if self.find(hashes.whole, data.name.value()).is_some() {
            return;
        }
        self.note_insertion();
        if let (Some(holdings), Some(object)) = (self.disk_holdings_mut(), hashes.parent) {
            holdings.learn(object, || data.name.parent().value().to_vec());
        }
        let rule = self.rule_for(data.name, hashes);
        if self.is_refused(rule) {
            return;
        }
        let stored = (packet.clone(), super::UNKNOWN_SOURCE);
        let index = self.put(now, stored, data, hashes, fresh_until, prefixes, pool);
        self.take_in(index, rule);
    }

    /// To be called before an insertion.
    #[inline]
    pub(super) fn note_insertion(&mut self) {
        if let Some(disk) = &mut self.disk {
            disk.is_flushed = false;
        }
    }

    /// Data has come that RAM does not have. Returns whether it must be written in place of the
    /// record on disk, since the two cannot be compared later.
    #[inline]
    pub(super) fn note_new(&mut self, data: &DataView<'_>, hashes: NameHashes) -> bool {
        let Some(disk) = &mut self.disk else { return false };
        let key = key_of(data.name, hashes.whole, hashes.parent);
        disk.tier.on_new(key, data.wire) == Comparison::Impossible
    }

    /// Such Data is not stored.
    #[cold]
    pub(super) fn drop_unverified(&mut self, data: &DataView<'_>, hashes: NameHashes) {
        if let Some(disk) = &mut self.disk {
            disk.tier.erase_unverified(key_of(data.name, hashes.whole, hashes.parent));
        }
    }

    /// Other Data of a name has come: what is on disk under it is not to be served any more.
    #[inline]
    pub(super) fn replace_on_disk(&mut self, data: &DataView<'_>, hashes: NameHashes) {
        if let Some(disk) = &mut self.disk {
            disk.tier.erase_key(key_of(data.name, hashes.whole, hashes.parent));
        }
    }

    /// Offers Data to the disks for which RAM has no room. Returns the stored copy.
    #[cold]
    pub(super) fn offer_past_memory(
        &mut self,
        now: Instant,
        data: &DataView<'_>,
        hashes: NameHashes,
        is_unverified: bool,
        prefixes: impl FnOnce(&mut Vec<u64>),
        pool: &mut Pool,
    ) -> Option<Packet> {
        let disk = self.disk.as_mut()?;
        let is_storable = data.name.component_count() <= super::COMPONENTS_MAX
            && data.wire.len() <= usize::from(u16::MAX);
        if !is_storable {
            return None;
        }
        let key = key_of(data.name, hashes.whole, hashes.parent);
        let mut packet = pool.copy(data.wire);
        let fresh_until = now.plus_ns(data.freshness_ms.saturating_mul(NS_PER_MS));
        let offer = Offer {
            key,
            packet: &mut packet,
            fresh_until: (data.freshness_ms > 0).then_some(fresh_until),
            was_used: false,
            is_unverified,
            urgency: Urgency::Due,
        };
        let offered = disk.tier.offer(now, offer, |path| {
            prefixes(path);
            if key.object != hashes.whole {
                path.pop(); // The last prefix is the object itself.
            }
        });
        match offered {
            Offered::Waiting(at) => disk.tier.on_evicted(at),
            Offered::Lost => disk.tier.lost.add(&packet),
            Offered::OnDisk | Offered::Refused => {}
        }
        (!matches!(offered, Offered::Refused | Offered::Lost)).then_some(packet)
    }

    /// New Data in RAM has yet to be offered to the disks.
    #[inline]
    pub(super) fn queue_for_disk(&mut self, index: u32) {
        if let Some(disk) = &mut self.disk {
            disk.queue.push_back(index, self.entries[index].bytes());
        }
    }

    /// Data leaves RAM.
    #[inline]
    pub(super) fn unqueue_for_disk(&mut self, index: u32) {
        if let Some(disk) = &mut self.disk {
            disk.queue.remove(index, self.entries[index].bytes());
        }
    }

    /// Data leaves RAM to make room: offers it to the disks.
    #[inline]
    pub(super) fn offer_evicted(&mut self, now: Instant, index: u32) {
        let offered = self.offer_entry(now, index, Urgency::Due);
        let Self { disk: Some(disk), entries, .. } = self else { return };
        match offered {
            Offered::Waiting(at) => disk.tier.on_evicted(at),
            Offered::OnDisk | Offered::Refused => {}
            Offered::Lost => disk.tier.lost.add(&entries[index].packet),
        }
    }

    /// Bytes of memory of Data that RAM has evicted and that waits to be written.
    #[inline]
    pub(super) fn evicted_unwritten_bytes(&self) -> u64 {
        self.disk.as_ref().map_or(0, |disk| disk.tier.evicted_unwritten_bytes())
    }

    /// Whether [`Store::take_lost`] has something.
    #[must_use]
    pub fn has_lost(&self) -> bool {
        self.disk.as_ref().is_some_and(|disk| !disk.tier.lost.is_empty())
    }

    /// The segments that were lost since the last call, as far as they were few enough to be
    /// listed: memory was full of what waits for the disks, or a write failed.
    pub fn take_lost(&mut self) -> Vec<LostSegment> {
        self.disk.as_mut().map_or_else(Vec::new, |disk| disk.tier.lost.take())
    }

    /// Offers Data to the disks before RAM has to evict it, oldest first, as far as [`OfferAt`]
    /// says and they have time. A call offers a bounded number; [`Store::next_wakeup`] asks for
    /// more.
    fn write_early(&mut self, now: Instant) {
        let mut is_interrupted = false;
        for offers in 0.. {
            let Some(index) = self.next_early(now) else { break };
            if offers == EARLY_OFFERS_MAX {
                is_interrupted = true;
                break;
            }
            if self.offer_entry(now, index, Urgency::Early) == Offered::Lost {
                break;
            }
            self.unqueue_for_disk(index);
        }
        if let Some(disk) = &mut self.disk {
            disk.is_interrupted = is_interrupted;
        }
    }

    /// The entry that disks have time for, if there is one.
    #[inline]
    fn next_early(&self, now: Instant) -> Option<u32> {
        let Tiered { tier, queue, .. } = &**self.disk.as_ref()?;
        let index = queue.first()?;
        let backlog_max = tier.device_backlog_max();
        let backlog_max = match tier.config().offer_at {
            OfferAt::Eviction => return None,
            OfferAt::Arrival => backlog_max,
            OfferAt::Early => {
                let used_bytes = self.bytes() + tier.evicted_unwritten_bytes();
                if used_bytes < self.config.capacity_bytes / 4 {
                    return None;
                }
                let writes_bytes = 2 * u64::from(tier.config().write_bytes_max);
                let early_bytes = (backlog_max / 32).max(writes_bytes).min(backlog_max / 2);
                early_bytes.min(EARLY_BACKLOG_BYTES)
            }
        };
        let backlog_bytes = tier.shortest_backlog_bytes(now)?;
        (backlog_bytes < backlog_max).then_some(index)
    }

    /// What waits for disks that take anything now; none where no disk does.
    #[must_use]
    pub fn write_backlog(&self, now: Instant) -> Option<WriteBacklog> {
        let Tiered { tier, queue, .. } = &**self.disk.as_ref()?;
        let offered_bytes = tier.backlog_bytes(now)?;
        let offered_max = tier.config().write_backlog_bytes_max;
        let (bytes, bytes_max) = match tier.config().offer_at {
            OfferAt::Eviction => (offered_bytes, offered_max),
            OfferAt::Early | OfferAt::Arrival => {
                let memory_bytes = self.config.capacity_bytes.saturating_sub(self.stats.kept_bytes);
                (offered_bytes + queue.bytes(), memory_bytes.max(offered_max))
            }
        };
        Some(WriteBacklog { bytes, bytes_max, offered_bytes, written_bytes: tier.written_bytes() })
    }

    /// Offers Data that is in RAM to the disks.
    pub(super) fn offer_entry(&mut self, now: Instant, index: u32, urgency: Urgency) -> Offered {
        let Self { disk: Some(disk), entries, tree, .. } = self else { return Offered::Refused };
        let entry = &mut entries[index];
        if entry.flags & NACK != 0 {
            return Offered::Refused;
        }
        let Ok(name) = NameView::from_value(entry.name_value()) else { return Offered::Refused };
        let key = key_of(name, entry.hash, tree.hash(entry.node));
        let (node, is_whole) = (entry.node, key.object == entry.hash);
        let offer = Offer {
            key,
            fresh_until: (entry.freshness_ms > 0).then_some(entry.fresh_until),
            was_used: entry.flags & USED != 0,
            is_unverified: entry.flags & UNVERIFIED != 0,
            urgency,
            packet: &mut entry.packet,
        };
        let offered = disk.tier.offer(now, offer, |path| tree.path(node, is_whole, path));
        if let Offered::Waiting(_) = offered {
            entry.flags &= !UNVERIFIED;
        }
        offered
    }

    /// Data goes from RAM by command.
    pub(super) fn erase_entry_on_disk(&mut self, index: u32) {
        let Self { disk: Some(disk), entries, tree, .. } = self else { return };
        let entry = &entries[index];
        if let Ok(name) = NameView::from_value(entry.name_value()) {
            disk.tier.erase_by_command(key_of(name, entry.hash, tree.hash(entry.node)));
        }
    }

    /// Erases what is on disk under a name, as [`Store::erase`] does.
    pub(super) fn erase_on_disk(
        &mut self,
        prefix: NameView<'_>,
        prefix_hash: u64,
        limit: usize,
    ) -> usize {
        let Some(disk) = &mut self.disk else { return 0 };
        if limit == 0 {
            return 0;
        }
        if prefix.is_empty() {
            return disk.tier.erase_below(None, limit);
        }
        let parent = prefix.parent();
        let hash_key = disk.tier.config().hash_key;
        let parent = (!parent.is_empty()).then(|| hash_key.hash(parent.value()));
        let key = key_of(prefix, prefix_hash, parent);
        let is_segment = key.object != prefix_hash;
        let erased = usize::from(is_segment && disk.tier.erase_by_command(key));
        erased + disk.tier.erase_below(Some(prefix_hash), limit - erased)
    }

    pub(super) fn track_disk(&mut self, config: Option<HoldingsConfig>) {
        if let Some(disk) = &mut self.disk {
            disk.tier.track(config);
        }
    }

    /// Says whether all that is on the disks is in the index.
    pub(super) fn build_disk_holdings(&mut self, steps: u32) -> bool {
        self.disk.as_mut().is_none_or(|disk| disk.tier.build_holdings(steps))
    }

    /// All that is on the disks is to be added to the index again.
    pub(super) fn restart_disk_holdings(&mut self) {
        if let Some(disk) = &mut self.disk {
            disk.tier.restart_building();
        }
    }

    pub(super) fn disk_holdings(&self) -> Option<&Holdings> {
        self.disk.as_ref()?.tier.holdings.as_deref()
    }

    pub(super) fn disk_holdings_mut(&mut self) -> Option<&mut Holdings> {
        self.disk.as_mut()?.tier.holdings.as_deref_mut()
    }

    pub(super) fn disk_stats(&self) -> crate::disk::DiskTierStats {
        self.disk.as_ref().map_or_else(Default::default, |disk| disk.tier.stats())
    }

    #[cfg(test)]
    pub(crate) fn is_on_disk(&self, query: &Query<'_>) -> bool {
        self.has_answer_on_disk(query)
    }

    /// Where the record of a name is: the disk, and octets from its start.
    #[cfg(test)]
    pub(crate) fn offset_of(&self, name: NameView<'_>, hashes: NameHashes) -> Option<(u8, u64)> {
        let key = key_of(name, hashes.whole, hashes.parent);
        self.disk.as_ref()?.tier.offset_of(key)
    }

    /// Of the use at present of a region of the disk, this store's or not.
    #[cfg(test)]
    pub(crate) fn region_sequence(&self, disk: u8, region: u64) -> u32 {
        self.disk.as_ref().map_or(0, |tiered| tiered.tier.region_sequence(disk, region))
    }

    /// Of any disk: erasures that wait to be noted, and those that wait for what it holds.
    #[cfg(test)]
    pub(crate) fn erasures_waiting(&self) -> (usize, usize) {
        self.disk.as_ref().map_or((0, 0), |disk| disk.tier.erasures_waiting())
    }

    #[cfg(test)]
    pub(crate) fn check_disk(&mut self) {
        if let Some(disk) = &mut self.disk {
            disk.tier.check();
        }
    }
}
