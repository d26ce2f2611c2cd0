//! Fingerprints of Data that may differ from the record on disk under its name.

use super::address::Key;
use alloc::collections::BTreeMap;

const FINGERPRINTS_MAX: usize = 1 << 16;
/// Most bytes of one: a B-tree node is at least half full.
const FINGERPRINT_BYTES: usize = 2 * size_of::<(Key, u64)>();

/// Fingerprints of Data that arrived from the network while a record of its name was on disk. When
/// the record is read, it is compared with the fingerprint, and served only if it is equal.
///
/// So Data that was fetched past a busy disk need not be written a second time. A fingerprint is
/// never evicted for another: without it, a record that differs could be served. If there is no
/// space, the new Data itself must be written in place of the record.
pub(super) struct PendingFingerprints {
    fingerprints: BTreeMap<Key, u64>,
    count_max: usize,
    /// The next key for [`PendingFingerprints::next_in_turn`].
    next: Key,
}

impl PendingFingerprints {
    /// As many as fit into `bytes_max` bytes, within limits.
    pub(super) fn new(bytes_max: u64) -> Self {
        let count = (bytes_max / FINGERPRINT_BYTES as u64).clamp(4, FINGERPRINTS_MAX as u64);
        let next = Key { object: 0, segment: 0 };
        Self { fingerprints: BTreeMap::new(), count_max: count as usize, next }
    }

    /// Most bytes of memory for all fingerprints.
    pub(super) fn bytes_max(&self) -> usize {
        self.count_max * FINGERPRINT_BYTES
    }

    /// The fingerprint that the record of this key must have, if one is kept.
    #[inline]
    pub(super) fn find(&self, key: Key) -> Option<u64> {
        if self.fingerprints.is_empty() {
            return None;
        }
        self.fingerprints.get(&key).copied()
    }

    /// Adds or replaces a fingerprint. Returns whether there was space.
    #[must_use]
    pub(super) fn insert(&mut self, key: Key, fingerprint: u64) -> bool {
        if self.fingerprints.len() < self.count_max {
            self.fingerprints.insert(key, fingerprint);
            return true;
        }
        match self.fingerprints.get_mut(&key) {
            Some(known) => *known = fingerprint,
            None => return false,
        }
        true
    }

    /// Removes a fingerprint. Returns whether there was one.
    #[inline]
    pub(super) fn remove(&mut self, key: Key) -> bool {
        !self.fingerprints.is_empty() && self.fingerprints.remove(&key).is_some()
    }

    /// The first key that is not less than `key`.
    pub(super) fn first_from(&self, key: Key) -> Option<Key> {
        self.fingerprints.range(key..).next().map(|(&key, _)| key)
    }

    /// Each key in turn, and `None` once at the end of each round.
    pub(super) fn next_in_turn(&mut self) -> Option<Key> {
        let key = self.first_from(self.next);
        self.next = key.map_or(Key { object: 0, segment: 0 }, Key::next);
        key
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.fingerprints.len() * FINGERPRINT_BYTES
    }
}
