//! Which records are on the disks: index, filter, and the list of segments that are held.

use super::address::{Key, RecordAddress, WHOLE};
use super::config::{DiskTierConfig, FilterKind};
use super::index::{Cursor, DiskIndex};
use crate::holdings::{Holdings, HoldingsConfig};
use alloc::boxed::Box;
use alloc::vec::Vec;
use weir_base::CountingBloom;

/// Index and filter always know the same keys; the list lags behind only while it is built. A place
/// in the index may be stale, which the devices know and this does not.
pub(super) struct RecordCatalog {
    index: DiskIndex,
    filter: Option<CountingBloom>,
    /// Which segments are held, if asked to keep track.
    holdings: Option<Box<Holdings>>,
    /// The position that the building of `holdings` has reached.
    build_cursor: Cursor,
}

impl RecordCatalog {
    /// For logs of `log_bytes`, within the memory for the index less `others_bytes`.
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

    /// Octets of memory for index and filter.
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

    /// Asks for the memory that a lookup of this key will look at first.
    #[inline]
    pub(super) fn prefetch(&self, key: Key) {
        match &self.filter {
            Some(filter) => filter.prefetch(key.filter_hash()),
            None => self.index.prefetch(key.object),
        }
    }

    /// Whether the filter alone says that there is no record of this key.
    #[inline]
    pub(super) fn is_ruled_out(&self, key: Key) -> bool {
        self.filter.as_ref().is_some_and(|filter| !filter.contains(key.filter_hash()))
    }

    #[inline]
    pub(super) fn find(&self, key: Key) -> Option<RecordAddress> {
        self.index.find(key)
    }

    /// The record below a prefix that came last and is wanted, of at most `visits_max`.
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

    /// Adds a record, for which there is room, or moves it. Returns its former place. `path`
    /// appends the hashes of the prefixes of the object's name, `name` is that of the object.
    pub(super) fn insert(
        &mut self,
        key: Key,
        place: RecordAddress,
        path: impl FnOnce(&mut Vec<u64>),
        name: impl FnOnce() -> Vec<u8>,
    ) -> Option<RecordAddress> {
        let before = self.index.insert(key, place, path);
        if let Some(holdings) = self.holdings.as_mut().filter(|_| key.segment != WHOLE) {
            holdings.add(key.object, key.segment, name);
        }
        if let (None, Some(filter)) = (before, &mut self.filter) {
            filter.insert(key.filter_hash());
        }
        before
    }

    /// Removes a record if it is in this place. Returns whether it was.
    pub(super) fn remove(&mut self, key: Key, place: RecordAddress) -> bool {
        let was_there = self.index.remove(key, place);
        if was_there {
            on_record_removed(&mut self.filter, &mut self.holdings, key);
        }
        was_there
    }

    /// Removes at most `truncate` records at or below a prefix. Returns them.
    pub(super) fn remove_below(
        &mut self,
        prefix: Option<u64>,
        limit: usize,
    ) -> Vec<(Key, RecordAddress)> {
        let mut removed = Vec::new();
        self.index.erase_below(prefix, limit, |key, place| removed.push((key, place)));
        for &(key, _) in &removed {
            on_record_removed(&mut self.filter, &mut self.holdings, key);
        }
        removed
    }

    /// Steps that [`Catalog::sweep`] takes to come around.
    pub(super) fn round_steps(&self) -> usize {
        self.index.round_steps()
    }

    /// Continues through the index and removes what must not be kept.
    pub(super) fn sweep(
        &mut self,
        steps: usize,
        mut is_kept: impl FnMut(Key, RecordAddress) -> bool,
    ) {
        let Self { index, filter, holdings, .. } = self;
        index.sweep(steps, |key, place| {
            let is_kept = is_kept(key, place);
            if !is_kept {
                on_record_removed(filter, holdings, key);
            }
            is_kept
        });
    }

    /// The segments that are held.
    pub(super) fn holdings(&self) -> Option<&Holdings> {
        self.holdings.as_deref()
    }

    pub(super) fn holdings_mut(&mut self) -> Option<&mut Holdings> {
        self.holdings.as_deref_mut()
    }

    /// Begins to list the segments that are held, or stops it.
    pub(super) fn track_holdings(&mut self, config: Option<HoldingsConfig>) {
        self.holdings = config.map(|config| Box::new(Holdings::new(config)));
        self.build_cursor = Cursor::default();
    }

    /// The list must be built from the start once more.
    pub(super) fn restart_building(&mut self) {
        self.build_cursor = Cursor::default();
    }

    /// Adds records that were there before to the list, `steps` further. Returns whether that was
    /// all.
    pub(super) fn build_holdings(
        &mut self,
        steps: u32,
        is_valid: impl Fn(RecordAddress) -> bool,
    ) -> bool {
        let Self { index, holdings: Some(holdings), build_cursor: building, .. } = self else {
            return true;
        };
        index.walk(building, steps, |key, place| {
            if key.segment != WHOLE && is_valid(place) {
                holdings.add(key.object, key.segment, Vec::new);
            }
        })
    }

    /// The filter knows what is in the index, each key is there once. Returns all with their
    /// places.
    #[cfg(test)]
    pub(super) fn check(&mut self) -> std::collections::BTreeMap<Key, RecordAddress> {
        let Self { index, filter, .. } = self;
        let mut seen = std::collections::BTreeMap::new();
        index.sweep(2 * index.round_steps() + 2, |key, place| {
            if let Some(filter) = filter {
                assert!(filter.contains(key.filter_hash()), "a false negative: {key:?}");
            }
            seen.insert(key, place);
            true
        });
        assert_eq!(seen.len(), self.index.len(), "the sweep comes around");
        seen
    }

    /// Takes the list away, or puts it back.
    #[cfg(test)]
    pub(super) fn swap_holdings(&mut self, other: Option<Box<Holdings>>) -> Option<Box<Holdings>> {
        core::mem::replace(&mut self.holdings, other)
    }
}

/// A record has gone from the index.
#[inline]
fn on_record_removed(
    filter: &mut Option<CountingBloom>,
    holdings: &mut Option<Box<Holdings>>,
    key: Key,
) {
    if let Some(holdings) = holdings.as_mut().filter(|_| key.segment != WHOLE) {
        holdings.remove(key.object, key.segment);
    }
    if let Some(filter) = filter {
        filter.remove(key.filter_hash());
    }
}

/// A filter for as many records as the disks hold, within half of the memory for the index.
fn filter_for(config: &DiskTierConfig, log_bytes: u64) -> Option<CountingBloom> {
    if config.filter == FilterKind::Index {
        return None;
    }
    let record_bytes = u64::from(config.record_bytes_typical.max(1));
    let entries = log_bytes / record_bytes;
    // A first one, of a size that needs hardly any memory, shows what an entry takes.
    let sample = CountingBloom::new(10_000, config.false_positives_ppm);
    let bytes_max = u128::from(config.index_bytes_max / 2);
    let affordable = bytes_max * 10_000 / sample.memory_bytes() as u128;
    let entries = u128::from(entries).min(affordable) as u64;
    Some(CountingBloom::new(entries, config.false_positives_ppm))
}
