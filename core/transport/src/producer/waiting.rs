//! Interests for data that does not exist yet, limited in number and time.

use alloc::vec::Vec;
use core::mem;

use weir_base::{HashKey, Instant, NS_PER_MS, Packet, Slab, Table, TimerWheel};
use weir_wire::{DataView, InterestView, NameView, tlv};

use super::input::PendingInterest;
use super::{Answer, ProducerConfig, Source};

/// Timers need no finer resolution.
const TICK_NS: u64 = NS_PER_MS;

struct WaitingInterest {
    pending: PendingInterest,
    /// Hash of the Interest's complete name.
    hash: u64,
}

/// What happened to an Interest that should wait.
#[derive(Debug)]
pub(super) enum JoinResult {
    /// It waits, and is the first of its kind.
    First,
    /// It waits, and replaces this older one with the same path, name and selectors.
    Replaced(PendingInterest),
    Full(PendingInterest),
}

/// The table. Each path has one entry per name and selectors, as its router has.
pub(super) struct WaitingTable {
    entries: Slab<WaitingInterest>,
    table: Table,
    timers: TimerWheel,
    /// Number of entries whose name ends in an implicit digest.
    full_names: usize,
    hash_key: HashKey,
    max: usize,
    scratch: Vec<u32>,
}

impl WaitingTable {
    pub(super) fn new(config: &ProducerConfig) -> Self {
        Self {
            entries: Slab::new(),
            table: Table::with_capacity(0),
            timers: TimerWheel::new(TICK_NS, Instant::ZERO),
            full_names: 0,
            hash_key: config.hash_key,
            max: config.waiting_max,
            scratch: Vec::new(),
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn next_wakeup(&self) -> Option<Instant> {
        self.timers.next_wakeup()
    }

    pub(super) fn join(
        &mut self,
        interest: &InterestView<'_>,
        until: Instant,
        pending: PendingInterest,
    ) -> JoinResult {
        let hash = self.hash_key.hash(interest.name.value());
        let entries = &self.entries;
        let same = self.table.find(hash, |index| {
            let other = &entries[index].pending;
            other.path == pending.path && matches_interest(&other.interest, interest)
        });
        if let Some(index) = same {
            // The router replaces its own entry too, so only the token of the latest Interest is
            // valid.
            let entry = &mut self.entries[index];
            let old = mem::replace(&mut entry.pending, pending);
            self.timers.schedule(index, until);
            return JoinResult::Replaced(old);
        }
        if self.entries.len() >= self.max {
            return JoinResult::Full(pending);
        }
        self.full_names += usize::from(pending.is_full_name);
        let index = self.entries.insert(WaitingInterest { pending, hash });
        self.table.insert(hash, index);
        self.timers.schedule(index, until);
        JoinResult::First
    }

    pub(super) fn take_refused(
        &mut self,
        interest: &InterestView<'_>,
        mut then: impl FnMut(PendingInterest),
    ) {
        let mut found = mem::take(&mut self.scratch);
        let hash = self.hash_key.hash(interest.name.value());
        self.table.for_each_candidate(hash, |index| found.push(index));
        for index in found.drain(..) {
            if matches_interest(&self.entries[index].pending.interest, interest) {
                then(self.remove(index));
            }
        }
        self.scratch = found;
    }

    pub(super) fn take_answered(
        &mut self,
        data: &DataView<'_>,
        mut then: impl FnMut(PendingInterest),
    ) {
        if self.entries.is_empty() {
            return;
        }
        let mut found = mem::take(&mut self.scratch);
        let value = data.name.value();
        let mut hasher = self.hash_key.prefixes(value);
        for count in 0..=data.name.component_count() {
            let hash = hasher.hash_to(data.name.prefix(count).value().len());
            self.table.for_each_candidate(hash, |index| found.push(index));
        }
        if self.full_names > 0 {
            let hash = self.hash_of_full_name(data);
            self.table.for_each_candidate(hash, |index| found.push(index));
        }
        // If the hashes of two prefixes are equal, an entry may be listed twice.
        found.sort_unstable();
        found.dedup();
        for index in found.drain(..) {
            let answers = InterestView::decode(&self.entries[index].pending.interest)
                .is_ok_and(|interest| data.satisfies(&interest));
            if answers {
                then(self.remove(index));
            }
        }
        self.scratch = found;
    }

    /// Removes and returns the Interests that `source` can answer now, with their answers. Only
    /// Interests for names below `prefix`, or with CanBePrefix for a prefix of it, are looked up.
    pub(super) fn take_answerable(
        &mut self,
        prefix: NameView<'_>,
        source: &mut impl Source,
    ) -> Vec<(PendingInterest, Answer)> {
        let answer = |(index, entry): (u32, &WaitingInterest)| {
            let interest = InterestView::decode(&entry.pending.interest).ok()?;
            let is_related = prefix.is_prefix_of(interest.name)
                || (interest.can_be_prefix && interest.name.is_prefix_of(prefix));
            let answer = is_related.then(|| source.find(&interest))?;
            let is_there = !matches!(answer, Answer::NotFound | Answer::WhenMade);
            is_there.then_some((index, answer))
        };
        let found: Vec<_> = self.entries.iter().filter_map(answer).collect();
        found.into_iter().map(|(index, answer)| (self.remove(index), answer)).collect()
    }

    pub(super) fn take_all(&mut self, mut then: impl FnMut(PendingInterest)) {
        let all: Vec<u32> = self.entries.iter().map(|(index, _)| index).collect();
        all.into_iter().for_each(|index| then(self.remove(index)));
    }

    pub(super) fn take_expired(&mut self, now: Instant, mut then: impl FnMut(PendingInterest)) {
        if self.timers.is_empty() {
            return;
        }
        let mut expired = mem::take(&mut self.scratch);
        self.timers.advance(now, &mut expired);
        for index in expired.drain(..) {
            then(self.remove(index));
        }
        self.scratch = expired;
    }

    fn remove(&mut self, index: u32) -> PendingInterest {
        let WaitingInterest { pending, hash } = self.entries.remove(index);
        self.table.remove(hash, index);
        self.timers.cancel(index);
        self.full_names -= usize::from(pending.is_full_name);
        pending
    }

    fn hash_of_full_name(&self, data: &DataView<'_>) -> u64 {
        let digest = data.implicit_digest();
        let mut full = Vec::with_capacity(data.name.value().len() + 2 + digest.len());
        full.extend_from_slice(data.name.value());
        full.extend([tlv::IMPLICIT_SHA256_DIGEST_COMPONENT as u8, digest.len() as u8]);
        full.extend(digest);
        self.hash_key.hash(&full)
    }
}

fn matches_interest(waiting: &Packet, interest: &InterestView<'_>) -> bool {
    InterestView::decode(waiting).is_ok_and(|waiting| {
        waiting.name == interest.name
            && waiting.can_be_prefix == interest.can_be_prefix
            && waiting.must_be_fresh == interest.must_be_fresh
    })
}
