//! Unanswered Interests of an open loop.

use std::collections::VecDeque;

use weir_base::{Instant, Slab, Table};

use crate::workload::random::mix;

#[derive(Clone, Copy, Debug)]
pub(super) struct UnansweredInterest {
    pub(super) object: u64,
    pub(super) segment: u64,
    pub(super) sent_at: Instant,
    pub(super) nonce: u32,
    /// Position in the order of sending.
    order: u64,
}

/// Unanswered Interests by segment; a segment may have several. All have the same lifetime, so they
/// expire in the order of sending.
pub(super) struct Unanswered {
    lifetime_ns: u64,
    by_segment: Table,
    entries: Slab<UnansweredInterest>,
    /// Slot and position of each Interest. Answered ones are skipped.
    sent: VecDeque<(u32, u64)>,
    next_order: u64,
}

fn hash(object: u64, segment: u64) -> u64 {
    mix(mix(object) ^ segment)
}

impl Unanswered {
    pub(super) fn new(lifetime_ns: u64) -> Self {
        Self {
            lifetime_ns,
            by_segment: Table::with_capacity(8),
            entries: Slab::new(),
            sent: VecDeque::new(),
            next_order: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn insert(&mut self, sent_at: Instant, object: u64, segment: u64, nonce: u32) {
        let order = self.next_order;
        self.next_order += 1;
        let slot =
            self.entries.insert(UnansweredInterest { object, segment, sent_at, nonce, order });
        self.by_segment.insert(hash(object, segment), slot);
        self.sent.push_back((slot, order));
    }

    /// Removes an Interest for a segment, the one with `nonce` if it is given.
    pub(super) fn take(
        &mut self,
        object: u64,
        segment: u64,
        nonce: Option<u32>,
    ) -> Option<UnansweredInterest> {
        let slot = self.by_segment.find(hash(object, segment), |slot| {
            self.entries.get(slot).is_some_and(|entry| {
                (entry.object, entry.segment) == (object, segment)
                    && nonce.is_none_or(|nonce| nonce == entry.nonce)
            })
        })?;
        let entry = self.remove(slot);
        self.drop_answered_front();
        Some(entry)
    }

    fn remove(&mut self, slot: u32) -> UnansweredInterest {
        let entry = self.entries.remove(slot);
        self.by_segment.remove(hash(entry.object, entry.segment), slot);
        entry
    }

    /// Removes the oldest Interest if it has expired at `now`.
    pub(super) fn take_expired(&mut self, now: Instant) -> Option<UnansweredInterest> {
        self.next_end().filter(|&at| at <= now)?;
        self.take_oldest()
    }

    pub(super) fn take_oldest(&mut self) -> Option<UnansweredInterest> {
        let (slot, _) = self.sent.pop_front()?;
        let entry = self.remove(slot);
        self.drop_answered_front();
        Some(entry)
    }

    /// When the oldest Interest expires.
    pub(super) fn next_end(&self) -> Option<Instant> {
        let &(slot, _) = self.sent.front()?;
        self.entries.get(slot).map(|entry| entry.sent_at.plus_ns(self.lifetime_ns))
    }

    /// Drops answered Interests at the front of `sent`.
    fn drop_answered_front(&mut self) {
        while let Some(&(slot, order)) = self.sent.front()
            && self.entries.get(slot).is_none_or(|entry| entry.order != order)
        {
            self.sent.pop_front();
        }
    }
}

impl std::fmt::Debug for Unanswered {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Unanswered").field("len", &self.len()).finish_non_exhaustive()
    }
}
