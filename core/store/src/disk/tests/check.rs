//! Invariants of the tier, checked after every step.

use super::super::DiskTier;
use super::super::address::{Key, SECTOR_BYTES, WHOLE};
use crate::holdings::{Holdings, HoldingsConfig};
use std::collections::{BTreeMap, BTreeSet};
use weir_base::Pool;

impl DiskTier {
    /// Where the record of a key is: the disk, and the offset in bytes from its start.
    pub(crate) fn offset_of(&self, key: Key) -> Option<(u8, u64)> {
        let address = self.catalog.find(key)?;
        let device = &self.devices[usize::from(address.disk())];
        let (region, at) = device.locate(address);
        Some((address.disk(), device.offset(region as u32, at)))
    }

    /// The sequence number of the current use of a region, counted from the start of the disk.
    pub(crate) fn region_sequence(&self, disk: u8, region: u64) -> u32 {
        let device = &self.devices[usize::from(disk)];
        let geometry = &device.geometry;
        let at = (region - u64::from(geometry.first)) / u64::from(geometry.stride);
        device.regions[at as usize].sequence
    }

    /// The most erasures on one disk that wait to be logged, and that wait for records not read
    /// yet.
    pub(crate) fn erasures_waiting(&self) -> (usize, usize) {
        let waiting = self.devices.iter().map(|device| device.erasures.len()).max();
        (waiting.unwrap_or(0), self.recovery.erased_len())
    }

    /// The list of segments is part of the index and contains everything readable. A list that is
    /// built later contains no less.
    fn check_holdings(&mut self, keys: &BTreeSet<Key>) {
        let Some(kept) = self.catalog.swap_holdings(None) else { return };
        kept.check();
        let segments = || keys.iter().copied().filter(|key| key.segment != WHOLE);
        let valid: BTreeSet<Key> = segments()
            .filter(|&key| self.catalog.find(key).is_some_and(|address| self.is_valid(address)))
            .collect();
        let listed = |holdings: &Holdings| -> BTreeSet<Key> {
            let objects: BTreeSet<u64> = segments().map(|key| key.object).collect();
            let keys = objects.into_iter().flat_map(|object| {
                let ranges = holdings.of(object).into_iter();
                ranges.flat_map(move |range| {
                    (range.first..=range.last).map(move |segment| Key { object, segment })
                })
            });
            keys.collect()
        };
        let of_kept = listed(&kept);
        assert!(valid.is_subset(&of_kept), "{valid:?} {of_kept:?}");
        assert!(of_kept.is_subset(&segments().collect()));
        self.track_holdings(Some(HoldingsConfig::default()));
        while !self.build_holdings(7) {}
        assert_eq!(listed(self.catalog.holdings().unwrap()), valid);
        self.catalog.swap_holdings(Some(kept));
    }

    /// Filter, sums and queues are consistent with the index.
    pub(crate) fn check(&mut self) {
        let mut regions = BTreeMap::<(u8, usize), (u32, u64)>::new();
        let records = self.catalog.check();
        for &address in records.values() {
            let device = &self.devices[usize::from(address.disk())];
            if device.is_valid(address) {
                let region = regions.entry((address.disk(), device.locate(address).0)).or_default();
                region.0 += 1;
                region.1 += u64::from(address.sectors()) * SECTOR_BYTES;
            }
        }
        self.check_holdings(&records.into_keys().collect());
        for (disk, device) in self.devices.iter().enumerate() {
            for (at, region) in device.regions.iter().enumerate() {
                let counted = regions.remove(&(disk as u8, at)).unwrap_or_default();
                assert_eq!((region.records, region.bytes), counted, "region {at} of disk {disk}");
            }
            let under_way = self.operations.of_disk(disk).count();
            assert_eq!(under_way, device.under_way as usize);
            assert!(device.under_way <= self.config.depth);
            assert!(device.reads_waiting <= self.config.reads_max);
        }
        let waiting: u32 = self.devices.iter().map(|device| device.records_waiting).sum();
        assert_eq!(waiting as usize, self.pending.iter().count());
        let mut bytes_waiting = BTreeMap::<u8, u64>::new();
        let mut evicted_bytes = 0;
        for pending in self.pending.iter() {
            let bytes = u64::from(pending.address.sectors()) * SECTOR_BYTES;
            *bytes_waiting.entry(pending.address.disk()).or_default() += bytes;
            let memory_bytes = Pool::footprint(pending.packet.len()) as u64;
            evicted_bytes += if pending.is_evicted { memory_bytes } else { 0 };
        }
        for (disk, device) in (0..).zip(&self.devices) {
            let counted = bytes_waiting.get(&disk).copied().unwrap_or(0);
            assert_eq!(device.bytes_waiting, counted, "waits for disk {disk}");
        }
        assert_eq!(self.evicted_unwritten_bytes(), evicted_bytes);
        let reads: u32 = self.devices.iter().map(|device| device.reads_waiting).sum();
        assert_eq!(reads as usize, self.reads.len());
    }
}
