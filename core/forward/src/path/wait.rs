//! How a PIT entry comes to wait for a disk, or for the stores of other shards.

use weir_store::disk::{OnDisk, ReadId};
use weir_store::{Lookup, Query};

use crate::content::decision::DiskRead;
use crate::content::reads::Waiter;
use crate::endpoints::Origin;
use crate::incoming::IncomingInterest;
use crate::router::Router;
use crate::shard::Message;
use crate::table::pit::AwaitedSource;

impl Router {
    /// Begins a read or joins one. `None` if too many reads wait; the caller then counts a miss.
    pub(crate) fn begin_read(&mut self, found: &OnDisk) -> Option<ReadId> {
        let read = self.content.store.begin_read(found).ok();
        self.egress.stats.busy.reads_refused += u64::from(read.is_none());
        read
    }

    /// Makes an entry wait for a read that has begun.
    pub(crate) fn wait_for_disk(
        &mut self,
        entry: u32,
        origin: Origin<'_>,
        read: &DiskRead,
        begun: ReadId,
    ) {
        self.egress.stats.busy.reads_begun += 1;
        if matches!(self.tables.pit.entry(entry).awaits, AwaitedSource::Disk(_)) {
            return;
        }
        self.end_wait(entry, None);
        let waiter = Waiter {
            entry,
            since: self.now,
            ingress: origin.face,
            next_hop_face: origin.header.next_hop_face,
            non_discovery: origin.header.non_discovery,
            is_marked: read.is_marked,
            disk: read.found.disk,
            ahead: read.found.reads_waiting,
        };
        let at = self.content.disk.reads.add_waiter(begun, read.found.disk, waiter);
        self.tables.pit.entry_mut(entry).awaits = AwaitedSource::Disk(at);
    }

    /// Begins a read for an entry that had bypassed the disk, because the next hop did not answer
    /// or has refused. Returns whether the entry waits for the disk now.
    #[cold]
    pub(crate) fn fall_back_to_disk(
        &mut self,
        entry: u32,
        query: &Query<'_>,
        origin: Origin<'_>,
    ) -> bool {
        if self.content.disk.has_driver_queue() {
            return false;
        }
        let Lookup::OnDisk(found) = self.content.store.lookup(self.now, query) else {
            return false;
        };
        let begun =
            if found.is_stalled { None } else { self.content.store.begin_read(&found).ok() };
        let Some(begun) = begun else {
            self.content.store.count_miss(query.name, query.can_be_prefix);
            return false;
        };
        self.egress.stats.busy.came_back += 1;
        if self.content.disk.is_adaptive() {
            self.content.disk.adaptive.on_return(found.disk);
        }
        let is_marked = self.content.disk.is_marked_by_queue(found.reads_waiting);
        let read = DiskRead { found, is_over_threshold: false, is_marked };
        self.wait_for_disk(entry, origin, &read, begun);
        true
    }

    /// Queries the stores of the other shards, and makes the entry wait for their replies.
    #[cold]
    pub(crate) fn query_shards(&mut self, entry: u32, incoming: &IncomingInterest<'_>) {
        self.end_wait(entry, None);
        let waiter = Waiter {
            entry,
            since: self.now,
            ingress: incoming.received.face,
            next_hop_face: incoming.received.header.next_hop_face,
            non_discovery: incoming.received.header.non_discovery,
            is_marked: false,
            disk: 0,
            ahead: 0,
        };
        let interest = incoming.received.packet.clone();
        let shards = self.egress.other_shards();
        let id = self.content.queries.open(self.now, waiter, interest.clone(), shards);
        self.tables.pit.entry_mut(entry).awaits = AwaitedSource::Shards(id.slot);
        self.egress.send_to_other_shards(|| Message::Query { id, interest: interest.clone() });
    }
}
