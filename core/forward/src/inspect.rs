//! What a simulator asks of a shard beside packets.

use weir_base::{FaceId, Instant, Packet};
use weir_store::Query;
use weir_store::disk::DiskTierStats;
use weir_wire::{DataView, InterestView, PacketView};

use crate::incoming::query_of;
use crate::router::Router;

impl Router {
    /// Stores a Data as if it had been asked for and had come just now, with no trace in PIT and
    /// packet counters: to begin with a store that is not empty. Whether it is a Data and in the
    /// store now.
    pub fn preload(&mut self, now: Instant, packet: &Packet) -> bool {
        let Ok(data) = DataView::decode(packet) else { return false };
        let hashes = self.hash_name(&PacketView::Data(data));
        self.content.insert(now, &data, hashes, FaceId::CONTENT_STORE).is_some()
    }

    /// What the disk tier of the store holds, without all other counters.
    #[must_use]
    pub fn disk_stats(&self) -> DiskTierStats {
        self.content.store.stats().disk
    }

    /// Reads that wait for the disks of the store, and Interests that wait before it.
    #[must_use]
    pub fn interests_waiting(&self) -> u64 {
        self.content.store.stats().disk.reads_waiting
            + u64::from(self.content.disk.driver_queue_len())
    }

    /// Interests that waited for a disk, and that passed one by, so far.
    #[must_use]
    pub fn disk_decisions(&self) -> (u64, u64) {
        let busy = &self.egress.stats.busy;
        let bypassed = busy.bypassed_queue_full
            + busy.bypassed_slower
            + busy.bypassed_probe
            + busy.bypassed_stalled;
        (busy.reads_begun, bypassed)
    }

    /// Whether the store, RAM or disk, knows a Data of the name of this one. Changes nothing,
    /// counters included.
    #[must_use]
    pub fn would_find(&self, now: Instant, packet: &Packet) -> bool {
        let Ok(data) = DataView::decode(packet) else { return false };
        let hashes = self.hash_name(&PacketView::Data(data));
        self.content.store.has_answer(
            now,
            &Query { name: data.name, hashes, can_be_prefix: false, must_be_fresh: false },
        )
    }

    /// Whether the filter before the disks refuses the name of this Data although it is in their
    /// index. Never, unless something is wrong; changes nothing.
    #[must_use]
    pub fn is_filter_wrong(&self, packet: &Packet) -> bool {
        let Ok(data) = DataView::decode(packet) else { return false };
        let hashes = self.hash_name(&PacketView::Data(data));
        let (can_be_prefix, must_be_fresh) = (false, false);
        self.content.store.is_filter_wrong(&Query {
            name: data.name,
            hashes,
            can_be_prefix,
            must_be_fresh,
        })
    }

    /// Whether the store would answer this Interest now. Changes nothing, counters included.
    #[must_use]
    pub fn would_hit(&self, now: Instant, packet: &Packet) -> bool {
        let Ok(interest) = InterestView::decode(packet) else { return false };
        let hashes = self.hash_name(&PacketView::Interest(interest));
        self.content.store.has_answer(now, &query_of(&interest, &hashes))
    }
}
