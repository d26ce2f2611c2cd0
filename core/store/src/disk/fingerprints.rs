//! What is known of Data that may differ from what lies on a disk under its name.

use super::place::Key;
use alloc::collections::{BTreeMap, VecDeque};

/// Fingerprints that are kept at most.
const FINGERPRINTS_MAX: usize = 1 << 16;
/// Octets that one takes at most, with its share of what is copied when their list grows.
const FINGERPRINT_BYTES: usize = 2 * size_of::<(Key, u64)>() + 2 * size_of::<Key>();

/// Fingerprints of Data that came from the network while other Data of its name, or the same, was
/// on a disk: which of the two is not known until the record is read. It is only served if it is
/// the same.
///
/// So Data that passed by a busy disk need not be written a second time.
pub(super) struct PendingFingerprints {
    fingerprints: BTreeMap<Key, u64>,
    /// Oldest first. Some may be gone.
    order: VecDeque<Key>,
    /// Fingerprints that are kept: a power of two, so that the list takes no more than it must.
    count_max: usize,
}

impl PendingFingerprints {
    /// As many as fit `bytes_max` octets of memory, within bounds.
    pub(super) fn new(bytes_max: u64) -> Self {
        let count = (bytes_max / FINGERPRINT_BYTES as u64).clamp(4, FINGERPRINTS_MAX as u64);
        let count_max = 1 << count.ilog2();
        Self { fingerprints: BTreeMap::new(), order: VecDeque::new(), count_max }
    }

    /// Octets that they take at most.
    pub(super) fn bytes_max(&self) -> usize {
        self.count_max * FINGERPRINT_BYTES
    }

    /// The fingerprint that the record must have to be served.
    #[inline]
    pub(super) fn find(&self, key: Key) -> Option<u64> {
        if self.fingerprints.is_empty() {
            return None;
        }
        self.fingerprints.get(&key).copied()
    }

    /// Adds or replaces one. Returns a key whose fingerprint had to go for it: what is on a disk
    /// under that key must not be served any more.
    #[must_use]
    pub(super) fn insert(&mut self, key: Key, fingerprint: u64) -> Option<Key> {
        let is_full = self.order.len() >= self.count_max;
        let oldest = if is_full { self.order.pop_front() } else { None };
        let gone = oldest.filter(|oldest| self.fingerprints.remove(oldest).is_some());
        self.fingerprints.insert(key, fingerprint);
        self.order.push_back(key);
        gone.filter(|&gone| gone != key)
    }

    /// Removes one. Says whether there was one.
    #[inline]
    pub(super) fn remove(&mut self, key: Key) -> bool {
        !self.fingerprints.is_empty() && self.fingerprints.remove(&key).is_some()
    }

    /// Any key that has one.
    pub(super) fn first(&self) -> Option<Key> {
        self.fingerprints.first_key_value().map(|(&key, _)| key)
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.fingerprints.len() * 2 * size_of::<(Key, u64)>()
            + self.order.capacity() * size_of::<Key>()
    }
}
