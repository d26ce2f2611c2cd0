//! The disk tier, and the Data in memory that has not been offered to it yet.

use super::COMPONENTS_MAX;
use super::memory::{ArrivedData, Memory};
use super::write_queue::WriteQueue;
use crate::disk::{
    Comparison, DiskTier, DiskTierConfig, LostSegment, Offer, OfferAt, OfferReason, OfferResult,
    key_of,
};
use crate::entry::{EVICT_FIRST, Entry, NACK, UNVERIFIED, USED};
use crate::holdings::Holdings;
use crate::scope::is_management;
use alloc::vec::Vec;
use weir_base::{Instant, NS_PER_MS, Packet, Pool};
use weir_wire::NameView;

/// Most entries that one call offers early, so that a batch of packets does not wait for a whole
/// store.
const EARLY_OFFERS_MAX: u32 = 64;
/// Write backlog at which early offers pause. It keeps a disk busy, but lets evicted Data through
/// without long delays.
const EARLY_BACKLOG_BYTES: u64 = 4 << 20;

/// The data that waits to be written to disks.
#[derive(Copy, Clone, Debug)]
pub struct WriteBacklog {
    /// Bytes of Data that is not on any disk yet.
    pub bytes: u64,
    /// Limit of `bytes`. As `bytes` gets close to it, the store loses Data.
    pub bytes_max: u64,
    /// Bytes of records that were offered to disks, included in `bytes`.
    pub offered_bytes: u64,
    /// Bytes written so far, to all disks.
    pub written_bytes: u64,
}

/// The disk tier of a store, and the queue of Data in memory that it has not been offered yet.
pub(super) struct Disks {
    pub(super) tier: DiskTier,
    /// Data that has not been offered yet.
    queue: WriteQueue,
    /// Whether [`Disks::flush`] has offered all Data in memory.
    is_flushed: bool,
    /// Whether a flush has started to compare records with fingerprints.
    is_comparing: bool,
    /// Whether [`Disks::write_early`] stopped at its limit and should be called again at once.
    has_more_early_offers: bool,
}

impl Disks {
    pub(super) fn new(config: DiskTierConfig) -> Self {
        Self {
            tier: DiskTier::new(config),
            queue: WriteQueue::new(),
            is_flushed: false,
            is_comparing: false,
            has_more_early_offers: false,
        }
    }

    /// The latest time for the driver's next call.
    #[inline]
    pub(super) fn next_wakeup(&self) -> Option<Instant> {
        if self.has_more_early_offers { Some(Instant::ZERO) } else { self.tier.next_wakeup() }
    }

    /// Must be called before each insertion into memory: the next flush must offer memory again.
    #[inline]
    pub(super) fn note_insertion(&mut self) {
        self.is_flushed = false;
    }

    /// Handles the arrival of Data that memory does not hold. A disk may have an older record of
    /// its name. Returns true if the two cannot be compared later; the caller must then have the
    /// new Data written in place of the record.
    #[inline]
    pub(super) fn on_new_data(&mut self, arrival: &ArrivedData<'_>) -> bool {
        let key = key_of(arrival.data.name, arrival.hashes.whole, arrival.hashes.parent);
        self.tier.on_new_data(key, arrival.data.wire) == Comparison::Impossible
    }

    /// Erases the record on disk: [`Disks::on_new_data`] returned true, but the new Data is not
    /// stored.
    #[cold]
    pub(super) fn drop_unverified(&mut self, arrival: &ArrivedData<'_>) {
        let key = key_of(arrival.data.name, arrival.hashes.whole, arrival.hashes.parent);
        self.tier.erase_unverified(key);
    }

    /// Erases the record on disk, since different Data of its name arrived.
    #[inline]
    pub(super) fn replace(&mut self, arrival: &ArrivedData<'_>) {
        let key = key_of(arrival.data.name, arrival.hashes.whole, arrival.hashes.parent);
        self.tier.erase_key(key);
    }

    /// Passes the name of an object to the index of stored segments. Recovery finds only the hashes
    /// of names, so the index lacks the names of recovered objects.
    pub(super) fn learn_name(&mut self, arrival: &ArrivedData<'_>) {
        if let (Some(holdings), Some(object)) = (self.holdings_mut(), arrival.hashes.parent) {
            holdings.learn_name(object, || arrival.data.name.parent().value().to_vec());
        }
    }

    /// Queues new Data in memory to be offered.
    #[inline]
    pub(super) fn enqueue(&mut self, index: u32, entry: &Entry) {
        self.queue.push_back(index, entry.memory_bytes());
    }

    /// Removes Data that leaves memory, or was offered, from the queue.
    #[inline]
    pub(super) fn unqueue(&mut self, index: u32, entry: &Entry) {
        self.queue.remove(index, entry.memory_bytes());
    }

    /// Offers Data that memory is about to evict. If it waits to be written, the pending record
    /// keeps its packet from now on.
    #[inline]
    pub(super) fn offer_evicted(&mut self, now: Instant, memory: &mut Memory, index: u32) {
        match self.offer_entry(now, memory, index, OfferReason::Eviction) {
            OfferResult::Queued(at) => self.tier.on_evicted(at),
            OfferResult::OnDisk | OfferResult::Rejected => {}
            OfferResult::Lost => self.tier.lost.add(&memory.entries[index].packet),
        }
    }

    /// Offers Data that does not fit into memory, as if memory had just evicted it. Returns the
    /// stored copy.
    #[cold]
    pub(super) fn offer_bypassing_memory(
        &mut self,
        now: Instant,
        arrival: &ArrivedData<'_>,
        is_unverified: bool,
        prefixes: impl FnOnce(&mut Vec<u64>),
        pool: &mut Pool,
    ) -> Option<Packet> {
        let ArrivedData { data, hashes, .. } = *arrival;
        let is_storable = data.name.component_count() <= COMPONENTS_MAX
            && data.wire.len() <= usize::from(u16::MAX)
            && !is_management(data.name);
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
            reason: OfferReason::Eviction,
        };
        let offered = self.tier.offer(now, offer, |path| {
            prefixes(path);
            if key.object != hashes.whole {
                path.pop(); // The last prefix is the object itself, and `offer` wants those above.
            }
        });
        match offered {
            OfferResult::Queued(at) => self.tier.on_evicted(at),
            OfferResult::Lost => self.tier.lost.add(&packet),
            OfferResult::OnDisk | OfferResult::Rejected => {}
        }
        (!matches!(offered, OfferResult::Rejected | OfferResult::Lost)).then_some(packet)
    }

    /// Offers Data before memory has to evict it, oldest first, as far as [`OfferAt`] and the
    /// disks' backlogs allow. `is_filling` says whether memory is full enough for
    /// [`OfferAt::Early`]. Each call offers a limited number of entries; [`Disks::next_wakeup`]
    /// requests another call for more.
    pub(super) fn write_early(&mut self, now: Instant, memory: &mut Memory, is_filling: bool) {
        self.has_more_early_offers = false;
        for offers in 0.. {
            let Some(index) = self.next_early_offer(now, is_filling) else { break };
            if offers == EARLY_OFFERS_MAX {
                self.has_more_early_offers = true;
                break;
            }
            if self.offer_entry(now, memory, index, OfferReason::Early) == OfferResult::Lost {
                break;
            }
            self.unqueue(index, &memory.entries[index]);
        }
    }

    /// The next entry to offer, if a disk has time for it.
    #[inline]
    fn next_early_offer(&self, now: Instant, is_filling: bool) -> Option<u32> {
        let index = self.queue.first()?;
        let config = self.tier.config();
        let backlog_max = self.tier.device_backlog_max();
        // The backlog up to which early offers continue. `Early` uses a 32nd of the limit, but at
        // least two writes, so the disk never idles, and at most half, so evictions have the rest.
        let backlog_max = match config.offer_at {
            OfferAt::Eviction => return None,
            OfferAt::Arrival => backlog_max,
            OfferAt::Early if !is_filling => return None,
            OfferAt::Early => {
                let writes_bytes = 2 * u64::from(config.write_bytes_max);
                let early_bytes = (backlog_max / 32).max(writes_bytes).min(backlog_max / 2);
                early_bytes.min(EARLY_BACKLOG_BYTES)
            }
        };
        let backlog_bytes = self.tier.shortest_backlog_bytes(now)?;
        (backlog_bytes < backlog_max).then_some(index)
    }

    /// The data that waits for disks; `None` if no disk takes writes now. `memory_bytes` is the
    /// memory that Data without a pin may use.
    ///
    /// With early offers, all of that memory is a write buffer: the store loses Data only when it
    /// must evict an entry that no disk has taken. Otherwise the buffer is the disks' own backlog.
    pub(super) fn write_backlog(&self, now: Instant, memory_bytes: u64) -> Option<WriteBacklog> {
        let offered_bytes = self.tier.backlog_bytes(now)?;
        let offered_max = self.tier.config().write_backlog_bytes_max;
        let (bytes, bytes_max) = match self.tier.config().offer_at {
            OfferAt::Eviction => (offered_bytes, offered_max),
            OfferAt::Early | OfferAt::Arrival => {
                (offered_bytes + self.queue.bytes(), memory_bytes.max(offered_max))
            }
        };
        let written_bytes = self.tier.written_bytes();
        Some(WriteBacklog { bytes, bytes_max, offered_bytes, written_bytes })
    }

    /// See [`Store::flush`](crate::Store::flush).
    pub(super) fn flush(&mut self, now: Instant, memory: &mut Memory) -> bool {
        // Offer all of memory once. Further calls only wait, unless an insertion came between.
        if self.tier.is_ready() && !self.is_flushed {
            self.is_flushed = true;
            let indices: Vec<u32> = memory.entries.iter().map(|(index, _)| index).collect();
            for index in indices {
                self.offer_entry(now, memory, index, OfferReason::Shutdown);
            }
            if !core::mem::replace(&mut self.is_comparing, true) {
                self.tier.begin_comparisons();
            }
        }
        let has_more = self.tier.flush(now);
        self.is_comparing &= has_more;
        has_more
    }

    /// Offers Data that is in memory.
    fn offer_entry(
        &mut self,
        now: Instant,
        memory: &mut Memory,
        index: u32,
        reason: OfferReason,
    ) -> OfferResult {
        let (entry, tree) = memory.entry_mut(index);
        // A Nack is valid for a short time only, so it is not worth a write.
        if entry.flags & NACK != 0 {
            return OfferResult::Rejected;
        }
        // Nor is Data that a command wants evicted, unless memory is lost anyway.
        if entry.flags & EVICT_FIRST != 0 && reason != OfferReason::Shutdown {
            return OfferResult::Rejected;
        }
        let Ok(name) = NameView::from_value(entry.name_value()) else {
            return OfferResult::Rejected;
        };
        // Nor are answers of management, which each start of a router makes again.
        if is_management(name) {
            return OfferResult::Rejected;
        }
        let key = key_of(name, entry.hash, tree.hash(entry.node));
        let (node, is_whole) = (entry.node, key.object == entry.hash);
        let offer = Offer {
            key,
            fresh_until: (entry.freshness_ms > 0).then_some(entry.fresh_until),
            was_used: entry.flags & USED != 0,
            is_unverified: entry.flags & UNVERIFIED != 0,
            reason,
            packet: &mut entry.packet,
        };
        let offered = self.tier.offer(now, offer, |path| tree.path(node, is_whole, path));
        // The new record replaces the one that could not be compared.
        if let OfferResult::Queued(_) = offered {
            entry.flags &= !UNVERIFIED;
        }
        offered
    }

    /// Erases the record of Data that a command erases from memory.
    pub(super) fn erase_entry(&mut self, memory: &Memory, index: u32) {
        let entry = &memory.entries[index];
        if let Ok(name) = NameView::from_value(entry.name_value()) {
            self.tier.erase_by_command(key_of(name, entry.hash, memory.parent_hash(entry)));
        }
    }

    /// Erases the records at or below a name. See [`Store::erase`](crate::Store::erase).
    pub(super) fn erase(&mut self, prefix: NameView<'_>, hash: u64, limit: usize) -> usize {
        if limit == 0 {
            return 0;
        }
        if prefix.is_empty() {
            return self.tier.erase_below(None, limit);
        }
        // The name may itself be that of a segment, whose key needs the hash of the parent.
        let parent = prefix.parent();
        let hash_key = self.tier.config().hash_key;
        let parent = (!parent.is_empty()).then(|| hash_key.hash(parent.value()));
        let key = key_of(prefix, hash, parent);
        let is_segment = key.object != hash;
        let erased = usize::from(is_segment && self.tier.erase_by_command(key));
        erased + self.tier.erase_below(Some(hash), limit - erased)
    }

    pub(super) fn take_lost(&mut self) -> Vec<LostSegment> {
        self.tier.lost.take()
    }

    /// The index of the segments on the disks.
    pub(super) fn holdings(&self) -> Option<&Holdings> {
        self.tier.holdings()
    }

    pub(super) fn holdings_mut(&mut self) -> Option<&mut Holdings> {
        self.tier.holdings_mut()
    }
}
