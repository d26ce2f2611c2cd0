//! Finished disk reads: answers the Interests that wait for them (paper nb-cache, section III-D).

use alloc::vec::Vec;
use core::mem;

use weir_base::{Instant, Packet};
use weir_store::ReadData;
use weir_store::disk::{FinishedRead, ReadOutcome};
use weir_wire::{DataView, PacketView};

use crate::content::queries::RemoteWaiters;
use crate::content::reads::Waiter;
use crate::endpoints::DataOrigin;
use crate::router::Router;
use crate::shard::OfferedData;
use crate::table::pit::AwaitedSource;

impl Router {
    /// Answers the Interests whose reads have returned their Data, and forwards the others.
    pub(crate) fn take_finished_reads(&mut self) {
        while let Some(FinishedRead { read, outcome }) = self.content.store.next_finished() {
            // All Interests that waited for this record shared one read.
            let mut waiters = mem::take(&mut self.content.disk.finished);
            waiters.clear();
            self.content.disk.reads.finish(read, &mut waiters);
            for waiter in &waiters {
                self.tables.pit.entry_mut(waiter.entry).awaits = AwaitedSource::Upstream;
            }
            let is_stalled = matches!(outcome, ReadOutcome::Stalled);
            // Interests of other shards may have requested the same read.
            let remote = self.end_remote_reads(read, &outcome);
            self.measure_read(waiters.first(), is_stalled);
            if let ReadOutcome::Data { packet, fresh_until } = outcome {
                // Data from upstream has already answered all Interests that waited for this read.
                let is_late = waiters.is_empty() && remote.homes == 0;
                self.egress.stats.busy.reads_late += u64::from(is_late);
                self.answer_from_disk(&packet, fresh_until, &mut waiters, remote);
            }
            // The read failed, or its Data does not match: these Interests go upstream, as after a
            // miss.
            for waiter in waiters.drain(..) {
                self.egress.stats.busy.went_on += 1;
                self.forward_waiting(&waiter, is_stalled);
            }
            self.content.disk.finished = waiters;
        }
    }

    /// Measures how long a read took, from the arrival of the Interest that began it.
    fn measure_read(&mut self, first: Option<&Waiter>, is_stalled: bool) {
        let disk = &mut self.content.disk;
        if let Some(first) = first
            && disk.times_reads()
            && !(is_stalled && disk.is_late())
        {
            let left = disk.reads.queue_of(first.disk);
            let took_ns = self.now.ns_since(first.since);
            disk.adaptive.on_read(self.now, first.disk, first.ahead, left, took_ns);
        }
    }

    /// Sends Data from a disk to every Interest that it matches, and keeps it in memory. Removes
    /// the answered Interests from `waiters`.
    #[inline(never)]
    fn answer_from_disk(
        &mut self,
        packet: &Packet,
        fresh_until: Instant,
        waiters: &mut Vec<Waiter>,
        remote: RemoteWaiters,
    ) {
        let Ok(data) = DataView::decode(packet) else {
            self.egress.stats.busy.reads_malformed += 1;
            return;
        };
        let hashes = self.hash_name(&PacketView::Data(data));
        let mut matched = mem::take(&mut self.matched);
        matched.clear();
        self.tables.find_pending(&data, hashes.whole, &mut matched);
        // If no waiter matches, the record on the disk is not the Data that the index had promised.
        let is_requested = waiters.iter().any(|waiter| matched.contains(&waiter.entry));
        if !waiters.is_empty() && !is_requested {
            self.egress.stats.busy.reads_malformed += 1;
        }
        let is_stale = fresh_until <= self.now;
        if is_stale {
            matched.retain(|&index| !self.tables.pit.entry(index).must_be_fresh);
        }
        let mut is_marked = remote.is_marked;
        waiters.retain(|waiter| {
            let is_answered = matched.contains(&waiter.entry);
            if is_answered {
                is_marked |= waiter.is_marked;
                self.egress.stats.busy.answered += 1;
                let took_ns = self.now.ns_since(waiter.since);
                self.egress.stats.busy.read_latency.record(took_ns);
            }
            !is_answered
        });
        // Data that was requested is kept in memory too, so the next Interest needs no read.
        self.content.promote(self.now, ReadData { packet, data: &data, hashes, fresh_until });
        let origin = DataOrigin::store(is_marked);
        if !matched.is_empty() {
            let sent = self.egress.stats.out_data;
            self.end_with_data(origin, packet.clone(), &data, &matched);
            let copies = self.egress.stats.out_data - sent;
            let bytes = copies * packet.len() as u64;
            self.egress.stats.disk_bytes += bytes;
            self.content.store.count_read_bytes(data.name, bytes);
            if is_marked {
                self.egress.stats.busy.marked += copies;
            }
        }
        // The watch of a home shard that requested the read may not have arrived here yet.
        let watching = if self.content.watches.is_empty() { 0 } else { self.home_shards_of(&data) };
        let homes = watching | remote.homes;
        if homes != 0 {
            let served = if matched.is_empty() { Vec::new() } else { self.downstreams.clone() };
            let offered = OfferedData::new(origin, packet.clone(), served, homes);
            self.offer(OfferedData { is_stale, ..offered });
        }
        self.matched = matched;
    }
}
