//! Access to a shard for simulators, without packets.

use weir_base::{FaceId, Instant, Packet};
use weir_store::Query;
use weir_store::disk::DiskTierStats;
use weir_wire::{DataView, InterestView, PacketView};

use crate::incoming::query_of;
use crate::router::Router;

impl Router {
    /// Stores a Data packet as if it had just answered an Interest, without a trace in the PIT or
    /// in packet counters. A simulation uses this to start with a filled store. Returns whether the
    /// store has stored it.
    pub fn preload(&mut self, now: Instant, packet: &Packet) -> bool {
        let Ok(data) = DataView::decode(packet) else { return false };
        let hashes = self.hash_name(&PacketView::Data(data));
        self.content.insert(now, &data, hashes, FaceId::CONTENT_STORE).is_some()
    }

    /// The statistics of the disk tier alone.
    #[must_use]
    pub fn disk_stats(&self) -> DiskTierStats {
        self.content.store.stats().disk
    }

    /// Reads that wait for the disks, plus Interests that wait in front of the store.
    #[must_use]
    pub fn interests_waiting(&self) -> u64 {
        self.content.store.stats().disk.reads_waiting
            + u64::from(self.content.disk.driver_queue_len())
    }

    /// Interests that have waited for a disk so far, and Interests that have bypassed one.
    #[must_use]
    pub fn disk_decisions(&self) -> (u64, u64) {
        let busy = &self.egress.stats.busy;
        let bypassed = busy.bypassed_queue_full
            + busy.bypassed_slower
            + busy.bypassed_probe
            + busy.bypassed_stalled;
        (busy.reads_begun, bypassed)
    }

    /// Whether memory or disk has Data with the name of this packet. Changes nothing, not even
    /// counters.
    #[must_use]
    pub fn would_find(&self, now: Instant, packet: &Packet) -> bool {
        let Ok(data) = DataView::decode(packet) else { return false };
        let hashes = self.hash_name(&PacketView::Data(data));
        self.content.store.has_answer(
            now,
            &Query { name: data.name, hashes, can_be_prefix: false, must_be_fresh: false },
        )
    }

    /// Whether the filter in front of the disks rules out a name that their index has. This must
    /// never happen. Changes nothing.
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

    /// Whether the store would answer this Interest now. Changes nothing, not even counters.
    #[must_use]
    pub fn would_hit(&self, now: Instant, packet: &Packet) -> bool {
        let Ok(interest) = InterestView::decode(packet) else { return false };
        let hashes = self.hash_name(&PacketView::Interest(interest));
        self.content.store.has_answer(now, &query_of(&interest, &hashes))
    }
}
