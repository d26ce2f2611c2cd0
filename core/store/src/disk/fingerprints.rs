//! What is known of Data that may differ from the record on disk under its name.

use super::address::Key;
use alloc::collections::BTreeMap;

/// Fingerprints that are kept at most.
const FINGERPRINTS_MAX: usize = 1 << 16;
/// Bytes that one takes at most: a B-tree node is at least half full.
const FINGERPRINT_BYTES: usize = 2 * size_of::<(Key, u64)>();

/// Fingerprints of Data that came from the network while a record of its name was on disk. The
/// two are compared when the record is read; it is served only if it is the same.
///
/// So Data that bypassed a busy disk need not be written a second time. When there is no room for
/// another fingerprint, the Data itself must be written instead: an earlier fingerprint is never
/// forgotten, since its record could then not be served any more.
pub(super) struct PendingFingerprints {
    fingerprints: BTreeMap<Key, u64>,
    count_max: usize,
    /// The next key for [`PendingFingerprints::next_in_turn`].
    next: Key,
}

impl PendingFingerprints {
    /// As many as fit `bytes_max` bytes of memory, within bounds.
    pub(super) fn new(bytes_max: u64) -> Self {
        let count = (bytes_max / FINGERPRINT_BYTES as u64).clamp(4, FINGERPRINTS_MAX as u64);
        let next = Key { object: 0, segment: 0 };
        Self { fingerprints: BTreeMap::new(), count_max: count as usize, next }
    }

    /// Bytes that they take at most.
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

    /// Adds or replaces one. Returns whether there was room for it.
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

    /// Removes one. Returns whether there was one.
    #[inline]
    pub(super) fn remove(&mut self, key: Key) -> bool {
        !self.fingerprints.is_empty() && self.fingerprints.remove(&key).is_some()
    }

    /// The first key at or after another.
    pub(super) fn first_from(&self, key: Key) -> Option<Key> {
        self.fingerprints.range(key..).next().map(|(&key, _)| key)
    }

    /// The keys in turn; nothing once at the end of each round.
    pub(super) fn next_in_turn(&mut self) -> Option<Key> {
        let key = self.first_from(self.next);
        self.next = key.map_or(Key { object: 0, segment: 0 }, Key::next);
        key
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.fingerprints.len() * FINGERPRINT_BYTES
    }
}
