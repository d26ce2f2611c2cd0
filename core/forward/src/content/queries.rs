//! Queries of a home shard to the stores of other shards, and reads for other shards.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use weir_base::{Instant, NS_PER_MS, NS_PER_S, Packet, Slab};
use weir_store::disk::ReadId;

use crate::content::reads::Waiter;
use crate::shard::{Candidate, QueryId};

/// How long a home shard waits for replies. A busy thread needs far less for its other packets.
const ANSWER_TIMEOUT_NS: u64 = 50 * NS_PER_MS;
/// How long a home shard waits for the disk of another shard.
const READ_TIMEOUT_NS: u64 = 4 * NS_PER_S;
/// Maximum number of reads that a shard has in progress for others.
const READS_MAX: usize = 1024;

/// A query of this shard. Its PIT entry waits for the replies.
pub(crate) struct PrefixQuery {
    serial: u32,
    /// The entry, and what is needed to forward it.
    pub(crate) waiter: Waiter,
    /// The first Interest, as it arrived.
    pub(crate) interest: Packet,
    /// The shards that have not replied, as a bit set.
    pub(crate) awaited: u64,
    /// The awaited shard reads from its disk.
    pub(crate) is_reading: bool,
    /// The best reply so far, and the shard that sent it.
    pub(crate) best: Option<(u16, Candidate)>,
}

/// A read for an Interest of another shard.
pub(crate) struct RemoteRead {
    pub(crate) read: ReadId,
    pub(crate) home: u16,
    pub(crate) id: QueryId,
    pub(crate) interest: Packet,
    pub(crate) since: Instant,
    /// The Data must be marked.
    pub(crate) is_marked: bool,
}

/// The shards for which a finished read has returned Data.
#[derive(Clone, Copy, Default)]
pub(crate) struct RemoteWaiters {
    /// The shards, as a bit set.
    pub(crate) homes: u64,
    /// The Data must be marked.
    pub(crate) is_marked: bool,
}

/// All open queries of a shard. Each belongs to one PIT entry, and the entry has its slot number.
/// There are never more queries than PIT entries.
#[derive(Default)]
pub(crate) struct Queries {
    queries: Slab<PrefixQuery>,
    serial: u32,
    answers_due: VecDeque<(Instant, QueryId)>,
    reads_due: VecDeque<(Instant, QueryId)>,
    remote_reads: Vec<RemoteRead>,
}

impl Queries {
    /// Opens a query for a PIT entry that has none.
    pub(crate) fn open(
        &mut self,
        now: Instant,
        waiter: Waiter,
        interest: Packet,
        awaited: u64,
    ) -> QueryId {
        let query =
            PrefixQuery { waiter, interest, awaited, is_reading: false, best: None, serial: 0 };
        let id = self.insert(query);
        self.answers_due.push_back((now.plus_ns(ANSWER_TIMEOUT_NS), id));
        id
    }

    /// Reopens an answered query, which now waits for the disk of `shard`.
    pub(crate) fn wait_for_read(
        &mut self,
        now: Instant,
        query: PrefixQuery,
        shard: u16,
    ) -> QueryId {
        let id = self.insert(PrefixQuery { awaited: 1 << shard, is_reading: true, ..query });
        self.reads_due.push_back((now.plus_ns(READ_TIMEOUT_NS), id));
        id
    }

    fn insert(&mut self, query: PrefixQuery) -> QueryId {
        self.serial = self.serial.wrapping_add(1);
        let serial = self.serial;
        QueryId { slot: self.queries.insert(PrefixQuery { serial, ..query }), serial }
    }

    pub(crate) fn get(&mut self, id: QueryId) -> Option<&mut PrefixQuery> {
        self.queries.get_mut(id.slot).filter(|query| query.serial == id.serial)
    }

    /// The waiter of the query in this slot.
    pub(crate) fn waiter(&self, slot: u32) -> &Waiter {
        &self.queries[slot].waiter
    }

    pub(crate) fn remove(&mut self, slot: u32) -> PrefixQuery {
        self.queries.remove(slot)
    }

    /// When [`Queries::take_due`] must be called next.
    pub(crate) fn next_wakeup(&self) -> Option<Instant> {
        let at = |due: &VecDeque<(Instant, QueryId)>| due.front().map(|&(at, _)| at);
        [at(&self.answers_due), at(&self.reads_due)].into_iter().flatten().min()
    }

    /// Takes the next query whose time is up. Closed queries are skipped.
    pub(crate) fn take_due(&mut self, now: Instant) -> Option<QueryId> {
        let Self { queries, answers_due, reads_due, .. } = self;
        for due in [answers_due, reads_due] {
            while let Some(&(at, id)) = due.front() {
                let query = queries.get(id.slot);
                let is_current = query.is_some_and(|query| query.serial == id.serial);
                if is_current && at > now {
                    break;
                }
                due.pop_front();
                if is_current {
                    return Some(id);
                }
            }
        }
        None
    }

    /// Records a read for another shard. The caller has checked that there is room.
    pub(crate) fn note_remote_read(&mut self, read: RemoteRead) {
        self.remote_reads.push(read);
    }

    pub(crate) fn has_room_for_read(&self) -> bool {
        self.remote_reads.len() < READS_MAX
    }

    /// Takes one of the reads for other shards that were recorded for `read`.
    pub(crate) fn take_remote_read(&mut self, read: ReadId) -> Option<RemoteRead> {
        let at = self.remote_reads.iter().position(|remote| remote.read == read)?;
        Some(self.remote_reads.remove(at))
    }
}
