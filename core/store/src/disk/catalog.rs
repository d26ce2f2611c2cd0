//! The set of records on the disks: index, filter, and the list of stored segments.

use super::address::{Key, RecordAddress, SECTOR_BYTES, WHOLE};
use super::config::{DiskTierConfig, FilterKind};
use super::index::{Cursor, DiskIndex};
use crate::holdings::{Holdings, HoldingsConfig};
use alloc::boxed::Box;
use alloc::vec::Vec;
use weir_base::CountingBloom;

/// Index and filter always hold the same keys. The list of segments holds fewer only while it is
/// being built. An address in the index may be stale. Only the devices can tell.
pub(super) struct RecordCatalog {
    index: DiskIndex,
    filter: Option<CountingBloom>,
    /// The list of stored segments, if it was requested.
    holdings: Option<Box<Holdings>>,
    /// How far the list of segments has been built.
    build_cursor: Cursor,
}

impl RecordCatalog {
    /// An empty catalog for logs of `log_bytes` bytes in all. Index and filter together use at most
    /// `index_bytes_max` less `others_bytes`.
    pub(super) fn new(config: &DiskTierConfig, log_bytes: u64, others_bytes: usize) -> Self {
        let filter = filter_for(config, log_bytes);
        let filter_bytes = filter.as_ref().map_or(0, CountingBloom::memory_bytes);
        let bytes_max = config.index_bytes_max.saturating_sub((filter_bytes + others_bytes) as u64);
        Self {
            index: DiskIndex::with_bytes_max(usize::try_from(bytes_max).unwrap_or(usize::MAX)),
            filter,
            holdings: None,
            build_cursor: Cursor::default(),
        }
    }

    /// Bytes of memory for index and filter.
    pub(super) fn memory_bytes(&self) -> usize {
        let filter = self.filter.as_ref().map_or(0, CountingBloom::memory_bytes);
        self.index.memory_bytes() + filter
    }

    /// Counters of the filter that have reached their maximum.
    pub(super) fn saturated(&self) -> u64 {
        self.filter.as_ref().map_or(0, CountingBloom::saturated)
    }

    #[inline]
    pub(super) fn has_filter(&self) -> bool {
        self.filter.is_some()
    }

    /// Prefetches what a lookup of this key will read first.
    #[inline]
    pub(super) fn prefetch(&self, key: Key) {
        match &self.filter {
            Some(filter) => filter.prefetch(key.filter_hash()),
            None => self.index.prefetch(key.object),
        }
    }

    /// Whether the filter proves that no record of this key exists.
    #[inline]
    pub(super) fn is_ruled_out(&self, key: Key) -> bool {
        self.filter.as_ref().is_some_and(|filter| !filter.contains(key.filter_hash()))
    }

    #[inline]
    pub(super) fn find(&self, key: Key) -> Option<RecordAddress> {
        self.index.find(key)
    }

    /// See [`DiskIndex::prefixes_of`].
    pub(super) fn prefixes_of(&self, key: Key) -> impl Iterator<Item = u64> {
        self.index.prefixes_of(key)
    }

    /// The newest wanted record below a prefix, after at most `visits_max` steps.
    pub(super) fn below(
        &self,
        prefix: Option<u64>,
        visits_max: usize,
        is_wanted: impl FnMut(Key, RecordAddress) -> bool,
    ) -> Option<(Key, RecordAddress)> {
        self.index.below(prefix, visits_max, is_wanted)
    }

    pub(super) fn has_room_for(&self, key: Key, path_len: usize) -> bool {
        self.index.has_room_for(key, path_len)
    }

    /// Adds a record or changes its address. There must be space. Returns the former address.
    /// `path` appends the hashes of the prefixes of the object's name; `name` returns the object's
    /// name.
    pub(super) fn insert(
        &mut self,
        key: Key,
        address: RecordAddress,
        path: impl FnOnce(&mut Vec<u64>),
        name: impl FnOnce() -> Vec<u8>,
    ) -> Option<RecordAddress> {
        let before = self.index.insert(key, address, path);
        if let Some(holdings) = self.holdings.as_mut().filter(|_| key.segment != WHOLE) {
            holdings.add(key.object, key.segment, record_bytes(address), name);
        }
        if let (None, Some(filter)) = (before, &mut self.filter) {
            filter.insert(key.filter_hash());
        }
        before
    }

    /// Removes a record if it has this address. Returns whether it had.
    pub(super) fn remove(&mut self, key: Key, address: RecordAddress) -> bool {
        let was_there = self.index.remove(key, address);
        if was_there {
            on_record_removed(&mut self.filter, &mut self.holdings, key, address);
        }
        was_there
    }

    /// Removes and returns up to `limit` records at or below a prefix.
    pub(super) fn remove_below(
        &mut self,
        prefix: Option<u64>,
        limit: usize,
    ) -> Vec<(Key, RecordAddress)> {
        let mut removed = Vec::new();
        self.index.erase_below(prefix, limit, |key, address| removed.push((key, address)));
        for &(key, address) in &removed {
            on_record_removed(&mut self.filter, &mut self.holdings, key, address);
        }
        removed
    }

    /// Steps that [`RecordCatalog::sweep`] needs for one round.
    pub(super) fn round_steps(&self) -> usize {
        self.index.round_steps()
    }

    /// Visits the next `steps` entries of the index and removes those that `is_kept` rejects.
    pub(super) fn sweep(
        &mut self,
        steps: usize,
        mut is_kept: impl FnMut(Key, RecordAddress) -> bool,
    ) {
        let Self { index, filter, holdings, .. } = self;
        index.sweep(steps, |key, address| {
            let is_kept = is_kept(key, address);
            if !is_kept {
                on_record_removed(filter, holdings, key, address);
            }
            is_kept
        });
    }

    pub(super) fn holdings(&self) -> Option<&Holdings> {
        self.holdings.as_deref()
    }

    pub(super) fn holdings_mut(&mut self) -> Option<&mut Holdings> {
        self.holdings.as_deref_mut()
    }

    /// Starts or stops the list of stored segments.
    pub(super) fn track_holdings(&mut self, config: Option<HoldingsConfig>) {
        self.holdings = config.map(|config| Box::new(Holdings::new(config)));
        self.build_cursor = Cursor::default();
    }

    /// The list must be built again from the start.
    pub(super) fn restart_building(&mut self) {
        self.build_cursor = Cursor::default();
    }

    /// Adds up to `steps` existing records to the list. Returns whether it is complete.
    pub(super) fn build_holdings(
        &mut self,
        steps: u32,
        is_valid: impl Fn(RecordAddress) -> bool,
    ) -> bool {
        let Self { index, holdings: Some(holdings), build_cursor: building, .. } = self else {
            return true;
        };
        index.walk(building, steps, |key, address| {
            if key.segment != WHOLE && is_valid(address) {
                holdings.add(key.object, key.segment, record_bytes(address), Vec::new);
            }
        })
    }

    /// Asserts that index and filter agree, and that each key occurs once. Returns all records.
    #[cfg(test)]
    pub(super) fn check(&mut self) -> std::collections::BTreeMap<Key, RecordAddress> {
        let Self { index, filter, .. } = self;
        let mut seen = std::collections::BTreeMap::new();
        index.sweep(2 * index.round_steps() + 2, |key, address| {
            if let Some(filter) = filter {
                assert!(filter.contains(key.filter_hash()), "a false negative: {key:?}");
            }
            seen.insert(key, address);
            true
        });
        assert_eq!(seen.len(), self.index.len(), "a sweep visits each entry once");
        seen
    }

    /// Takes the list away, or puts it back.
    #[cfg(test)]
    pub(super) fn swap_holdings(&mut self, other: Option<Box<Holdings>>) -> Option<Box<Holdings>> {
        core::mem::replace(&mut self.holdings, other)
    }
}

/// Bytes that a record takes on its disk.
fn record_bytes(address: RecordAddress) -> u64 {
    u64::from(address.sectors()) * SECTOR_BYTES
}

/// Updates filter and list after a record has left the index.
#[inline]
fn on_record_removed(
    filter: &mut Option<CountingBloom>,
    holdings: &mut Option<Box<Holdings>>,
    key: Key,
    address: RecordAddress,
) {
    if let Some(holdings) = holdings.as_mut().filter(|_| key.segment != WHOLE) {
        holdings.remove(key.object, key.segment, record_bytes(address));
    }
    if let Some(filter) = filter {
        filter.remove(key.filter_hash());
    }
}

/// A filter for as many records as the disks can hold. It uses at most half of the index's memory.
fn filter_for(config: &DiskTierConfig, log_bytes: u64) -> Option<CountingBloom> {
    if config.filter == FilterKind::Index {
        return None;
    }
    let record_bytes = u64::from(config.record_bytes_typical.max(1));
    let entries = log_bytes / record_bytes;
    // A small filter shows how many bytes an entry needs.
    let sample = CountingBloom::new(10_000, config.false_positives_ppm);
    let bytes_max = u128::from(config.index_bytes_max / 2);
    let affordable = bytes_max * 10_000 / sample.memory_bytes() as u128;
    let entries = u128::from(entries).min(affordable) as u64;
    Some(CountingBloom::new(entries, config.false_positives_ppm))
}
