//! What is known of Data that may differ from what lies on a disk under its name.

use super::place::Key;
use alloc::collections::{BTreeMap, VecDeque};

/// Notes that are kept at most.
const NOTES_MAX: usize = 1 << 16;
/// Octets that a note takes at most, with its share of what is copied when their list grows.
const NOTE_BYTES: usize = 2 * size_of::<(Key, u64)>() + 2 * size_of::<Key>();

/// Fingerprints of Data that came from the network while other Data of its name, or the same, was
/// on a disk: nobody knows which until the record is read. It is only served if it is the same.
///
/// So Data that passed by a busy disk need not be written a second time.
pub(super) struct Notes {
    fingerprints: BTreeMap<Key, u64>,
    /// Oldest first. Some may be gone.
    order: VecDeque<Key>,
    /// Notes that are kept: a power of two, so that the list takes no more than it must.
    count_max: usize,
}

impl Notes {
    /// For as many notes as take so much memory, or fewer.
    pub(super) fn new(bytes_max: u64) -> Self {
        let count = (bytes_max / NOTE_BYTES as u64).clamp(4, NOTES_MAX as u64);
        let count_max = 1 << count.ilog2();
        Self { fingerprints: BTreeMap::new(), order: VecDeque::new(), count_max }
    }

    /// Octets that they take at most.
    pub(super) fn bytes_max(&self) -> usize {
        self.count_max * NOTE_BYTES
    }

    /// The fingerprint that the record must have to be served.
    #[inline]
    pub(super) fn find(&self, key: Key) -> Option<u64> {
        if self.fingerprints.is_empty() {
            return None;
        }
        self.fingerprints.get(&key).copied()
    }

    /// Adds or replaces a note. Returns a key whose note had to go for it: what is on a disk under
    /// that key must not be served any more.
    #[must_use]
    pub(super) fn insert(&mut self, key: Key, fingerprint: u64) -> Option<Key> {
        let is_full = self.order.len() >= self.count_max;
        let oldest = if is_full { self.order.pop_front() } else { None };
        let gone = oldest.filter(|oldest| self.fingerprints.remove(oldest).is_some());
        self.fingerprints.insert(key, fingerprint);
        self.order.push_back(key);
        gone.filter(|&gone| gone != key)
    }

    /// Removes a note. Says whether there was one.
    #[inline]
    pub(super) fn remove(&mut self, key: Key) -> bool {
        !self.fingerprints.is_empty() && self.fingerprints.remove(&key).is_some()
    }

    /// Any key that has a note.
    pub(super) fn first(&self) -> Option<Key> {
        self.fingerprints.first_key_value().map(|(&key, _)| key)
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.fingerprints.len() * 2 * size_of::<(Key, u64)>()
            + self.order.capacity() * size_of::<Key>()
    }
}
