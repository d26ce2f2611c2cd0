//! Interests that are not answered yet.

use std::collections::VecDeque;

use weir_base::{Instant, Slab, Table};

use crate::workload::random::mix;

/// One Interest in flight.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) object: u64,
    pub(super) segment: u64,
    /// Which part of the consumer asked.
    pub(super) owner: u64,
    /// When it was sent last.
    pub(super) sent_at: Instant,
    pub(super) nonce: u32,
    /// How often it was sent.
    pub(super) sends: u32,
    /// Its lifetime is over; an answer would do all the same.
    pub(super) is_expired: bool,
    /// Tells its last sending from all others: its place in the order of sending, from 1.
    pub(super) sequence: u64,
}

#[derive(Clone, Copy, Debug)]
struct Deadline {
    at: Instant,
    slot: u32,
    sequence: u64,
}

/// Interests by what they ask for. All have the same lifetime, so that deadlines come in the order
/// of sending.
pub(super) struct Pending {
    lifetime_ns: u64,
    table: Table,
    entries: Slab<Entry>,
    /// One for each sending; those of entries that were answered or sent again are skipped.
    deadlines: VecDeque<Deadline>,
    sequence: u64,
}

fn hash(object: u64, segment: u64) -> u64 {
    mix(mix(object) ^ segment)
}

impl Pending {
    pub(super) fn new(lifetime_ns: u64) -> Self {
        Self {
            lifetime_ns,
            table: Table::with_capacity(8),
            entries: Slab::new(),
            deadlines: VecDeque::new(),
            sequence: 0,
        }
    }

    /// Interests in flight, and those that are kept beyond their lifetime.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Interests sent so far.
    pub(super) fn sent(&self) -> u64 {
        self.sequence
    }

    /// Whether no lifetime runs.
    pub(super) fn is_quiet(&self) -> bool {
        self.deadlines.is_empty()
    }

    pub(super) fn get(&self, slot: u32) -> Option<&Entry> {
        self.entries.get(slot)
    }

    /// An Interest leaves that was sent `sends` times, this one included.
    pub(super) fn insert(
        &mut self,
        now: Instant,
        (object, segment): (u64, u64),
        owner: u64,
        nonce: u32,
        sends: u32,
    ) {
        self.sequence += 1;
        let sequence = self.sequence;
        let entry = Entry {
            object,
            segment,
            owner,
            sent_at: now,
            nonce,
            sends,
            is_expired: false,
            sequence,
        };
        let slot = self.entries.insert(entry);
        self.table.insert(hash(object, segment), slot);
        self.deadlines.push_back(Deadline { at: now.plus_ns(self.lifetime_ns), slot, sequence });
    }

    /// The Interest of an entry leaves again.
    pub(super) fn renew(&mut self, slot: u32, now: Instant, nonce: u32) {
        self.sequence += 1;
        let sequence = self.sequence;
        if let Some(entry) = self.entries.get_mut(slot) {
            entry.sent_at = now;
            entry.nonce = nonce;
            entry.sends += 1;
            entry.is_expired = false;
            entry.sequence = sequence;
            let at = now.plus_ns(self.lifetime_ns);
            self.deadlines.push_back(Deadline { at, slot, sequence });
        }
    }

    /// The lifetime of an entry is over without an answer; nothing will tell so.
    pub(super) fn rest(&mut self, slot: u32) {
        if let Some(entry) = self.entries.get_mut(slot) {
            entry.is_expired = true;
            entry.sequence = 0;
        }
    }

    /// The first entry for a segment that `is_match` likes.
    pub(super) fn find(
        &self,
        object: u64,
        segment: u64,
        mut is_match: impl FnMut(&Entry) -> bool,
    ) -> Option<u32> {
        self.table.find(hash(object, segment), |slot| {
            self.entries.get(slot).is_some_and(|entry| {
                entry.object == object && entry.segment == segment && is_match(entry)
            })
        })
    }

    /// Takes out an entry for a segment, whoever asked.
    pub(super) fn take(&mut self, object: u64, segment: u64) -> Option<Entry> {
        let slot = self.find(object, segment, |_| true)?;
        Some(self.remove(slot))
    }

    /// Takes out an entry.
    ///
    /// # Panics
    /// When there is none.
    pub(super) fn remove(&mut self, slot: u32) -> Entry {
        let entry = self.entries.remove(slot);
        self.table.remove(hash(entry.object, entry.segment), slot);
        entry
    }

    /// Takes out what `owner` asked for and is kept beyond its lifetime.
    pub(super) fn purge_expired(&mut self, owner: u64) {
        let is_old = |entry: &Entry| entry.owner == owner && entry.is_expired;
        let old: Vec<u32> =
            self.entries.iter().filter(|(_, entry)| is_old(entry)).map(|(slot, _)| slot).collect();
        for slot in old {
            self.remove(slot);
        }
    }

    /// The next entry whose lifetime is over by now, marked so. It stays until it is removed.
    pub(super) fn next_expired(&mut self, now: Instant) -> Option<u32> {
        self.tidy();
        let first = *self.deadlines.front().filter(|deadline| deadline.at <= now)?;
        self.deadlines.pop_front();
        self.expire(first.slot)
    }

    /// The entry that has least of its lifetime left, as if that were over.
    pub(super) fn expire_oldest(&mut self) -> Option<u32> {
        self.tidy();
        let first = self.deadlines.pop_front()?;
        self.expire(first.slot)
    }

    fn expire(&mut self, slot: u32) -> Option<u32> {
        self.entries.get_mut(slot)?.is_expired = true;
        Some(slot)
    }

    /// Drops deadlines that mean nothing any more, so that the first one is that of an entry.
    pub(super) fn tidy(&mut self) {
        while let Some(deadline) = self.deadlines.front() {
            let entry = self.entries.get(deadline.slot);
            if entry.is_some_and(|entry| entry.sequence == deadline.sequence) {
                return;
            }
            self.deadlines.pop_front();
        }
    }

    /// When the next lifetime ends; exact after [`Pending::tidy`].
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.deadlines.front().map(|deadline| deadline.at)
    }
}

impl std::fmt::Debug for Pending {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Pending").field("len", &self.len()).finish_non_exhaustive()
    }
}
