//! The index of the segments in memory, combined with that of the segments on disks.

use super::disks::Disks;
use super::memory::Memory;
use crate::disk::segment_at_end;
use crate::entry::Entry;
use crate::holdings::{
    Holding, HoldingChanges, Holdings, HoldingsConfig, HoldingsCursor, HoldingsPage, Tier,
};
use alloc::vec::Vec;
use weir_wire::NameView;

/// The segments that the store holds in memory, by object, and the generation of changes in both
/// tiers. The disk tier owns the list for the disks, since its index decides which records exist.
pub(super) struct StoreHoldings {
    config: HoldingsConfig,
    memory: Holdings,
    /// Entries below this slot are in `memory`.
    build_position: u32,
    is_memory_built: bool,
    is_disk_built: bool,
    /// Entries below this slot have passed the names of their objects to the list for the disks.
    named_position: u32,
    are_names_passed: bool,
    is_tracking_changes: bool,
    /// The number of the last batch of changes within the generation.
    sequence: u64,
    /// The number of the last generation of changes, including those of earlier indexes.
    generation: u64,
    /// The generations of the memory list and the disk list when this generation began. If one of
    /// them differs later, that list has restarted on its own for lack of space.
    tier_generations: (u32, u32),
}

/// The object hash and segment number of an entry, if it is a segment.
#[inline]
fn segment_of(memory: &Memory, entry: &Entry) -> Option<(u64, u64)> {
    let segment = segment_at_end(entry.name_value())?;
    Some((memory.parent_hash(entry)?, segment))
}

fn object_name(entry: &Entry) -> Vec<u8> {
    let name = NameView::from_value(entry.name_value());
    name.map_or_else(|_| Vec::new(), |name| name.parent().value().to_vec())
}

impl StoreHoldings {
    /// An empty index. Its first generation follows `generation`.
    pub(super) fn new(config: HoldingsConfig, generation: u64) -> Self {
        Self {
            config,
            memory: Holdings::new(config),
            build_position: 0,
            is_memory_built: false,
            is_disk_built: false,
            named_position: 0,
            are_names_passed: false,
            is_tracking_changes: false,
            sequence: 0,
            generation,
            tier_generations: (0, 0),
        }
    }

    pub(super) fn config(&self) -> HoldingsConfig {
        self.config
    }

    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    /// Bytes of memory for the index of the memory tier.
    pub(super) fn memory_bytes(&self) -> u64 {
        self.memory.memory_bytes()
    }

    #[inline(always)]
    pub(super) fn add(&mut self, memory: &Memory, index: u32) {
        let entry = &memory.entries[index];
        if let Some((object, segment)) = segment_of(memory, entry) {
            self.memory.add(object, segment, entry.packet.len() as u64, || object_name(entry));
        }
    }

    /// Removes the segment of an entry that leaves memory. The entry's node must still exist.
    #[inline]
    pub(super) fn remove(&mut self, memory: &Memory, index: u32) {
        let entry = &memory.entries[index];
        if let Some((object, segment)) = segment_of(memory, entry) {
            self.memory.remove(object, segment, entry.packet.len() as u64);
        }
    }

    /// Adds up to `steps` existing entries or disk records. Returns whether more work remains.
    ///
    /// The disks' records have only hashes of names. So at last, entries in memory pass the names
    /// of their objects: those read from a disk before there was an index are not read again.
    pub(super) fn build(&mut self, memory: &Memory, disks: Option<&mut Disks>, steps: u32) -> bool {
        if !self.is_memory_built {
            // `add` lists new entries as they arrive, so one pass over the existing slots is
            // enough.
            let to = self.build_position.saturating_add(steps).min(memory.entries.slots());
            for at in self.build_position..to {
                let Some(entry) = memory.entries.get(at) else { continue };
                if let Some((object, segment)) = segment_of(memory, entry) {
                    let bytes = entry.packet.len() as u64;
                    self.memory.add(object, segment, bytes, || object_name(entry));
                }
            }
            self.build_position = to;
            self.is_memory_built = to == memory.entries.slots();
            return true;
        }
        if !self.is_disk_built {
            self.is_disk_built = disks.is_none_or(|disks| disks.tier.build_holdings(steps));
            return true;
        }
        if !self.are_names_passed {
            self.pass_names(memory, disks.and_then(Disks::holdings_mut), steps);
        }
        !self.are_names_passed
    }

    fn pass_names(&mut self, memory: &Memory, disk: Option<&mut Holdings>, steps: u32) {
        let end = memory.entries.slots();
        let to = self.named_position.saturating_add(steps).min(end);
        let unnamed = disk.filter(|disk| disk.unnamed() > 0);
        self.are_names_passed = unnamed.is_none() || to == end;
        let Some(disk) = unnamed else { return };
        for at in self.named_position..to {
            let Some(entry) = memory.entries.get(at) else { continue };
            if let Some(object) = memory.parent_hash(entry) {
                disk.learn_name(object, || object_name(entry));
            }
        }
        self.named_position = to;
    }

    pub(super) fn is_built(&self) -> bool {
        self.is_memory_built && self.is_disk_built && self.are_names_passed
    }

    /// See [`Store::holdings`](crate::Store::holdings).
    pub(super) fn list(
        &self,
        disk: Option<&Holdings>,
        prefix: NameView<'_>,
        from: HoldingsCursor,
        visits_max: u32,
    ) -> HoldingsPage {
        let mut holdings = Vec::new();
        let (tier, list) = match from.is_on_disk {
            false => (Tier::Memory, Some(&self.memory)),
            true => (Tier::Disk, disk),
        };
        let next = list
            .and_then(|list| list.list(tier, prefix, from.object, visits_max, &mut holdings))
            .map(|object| HoldingsCursor { object, ..from });
        let disk_next = HoldingsCursor { is_on_disk: true, object: 0 };
        let next = next.or((!from.is_on_disk && disk.is_some()).then_some(disk_next));
        HoldingsPage { holdings, next, is_partial: self.is_partial(disk) }
    }

    /// See [`Store::holdings_of`](crate::Store::holdings_of).
    pub(super) fn of(
        &self,
        disk: Option<&Holdings>,
        object: NameView<'_>,
        hash: u64,
    ) -> HoldingsPage {
        let tiers = [(Tier::Memory, &self.memory)].into_iter();
        let tiers = tiers.chain(disk.map(|disk| (Tier::Disk, disk)));
        let holdings = tiers.map(|(tier, holdings)| Holding {
            name: object.to_name(),
            tier,
            ranges: holdings.of(hash),
        });
        HoldingsPage {
            holdings: holdings.filter(|holding| !holding.ranges.is_empty()).collect(),
            next: None,
            is_partial: self.is_partial(disk),
        }
    }

    fn is_partial(&self, disk: Option<&Holdings>) -> bool {
        !self.is_built() || self.memory.is_partial() || disk.is_some_and(Holdings::is_partial)
    }

    /// Starts a new generation. See [`Store::restart_changes`](crate::Store::restart_changes).
    pub(super) fn restart_changes(&mut self, disks: Option<&mut Disks>) {
        self.is_tracking_changes = true;
        self.memory.begin_generation();
        if self.is_memory_built && self.memory.retry_missed() {
            (self.build_position, self.is_memory_built) = (0, false);
        }
        let mut disk_generation = 0;
        if let Some(disks) = disks
            && let Some(holdings) = disks.holdings_mut()
        {
            holdings.begin_generation();
            disk_generation = holdings.generation();
            if self.is_disk_built && holdings.retry_missed() {
                self.is_disk_built = false;
                (self.named_position, self.are_names_passed) = (0, false);
                disks.tier.restart_building();
            }
        }
        self.tier_generations = (self.memory.generation(), disk_generation);
        self.generation += 1;
        self.sequence = 0;
    }

    /// Records no more changes.
    pub(super) fn stop_changes(&mut self, disk: Option<&mut Holdings>) {
        self.is_tracking_changes = false;
        self.memory.stop_tracking_changes();
        if let Some(disk) = disk {
            disk.stop_tracking_changes();
        }
    }

    /// See [`Store::take_changes`](crate::Store::take_changes).
    pub(super) fn take_changes(
        &mut self,
        mut disks: Option<&mut Disks>,
        blocks_max: usize,
    ) -> HoldingChanges {
        let disk = disks.as_deref().and_then(Disks::holdings).map_or(0, Holdings::generation);
        if !self.is_tracking_changes || self.tier_generations != (self.memory.generation(), disk) {
            self.restart_changes(disks.as_deref_mut());
        }
        let mut changes = Vec::new();
        let mut has_more = false;
        if let Some(disk) = disks.and_then(Disks::holdings_mut) {
            has_more |= disk.take_changes(Tier::Disk, blocks_max, &mut changes);
        }
        has_more |= self.memory.take_changes(Tier::Memory, blocks_max, &mut changes);
        self.sequence += 1;
        let Self { generation, sequence, .. } = *self;
        HoldingChanges { generation, sequence, changes, has_more }
    }

    #[cfg(test)]
    pub(super) fn check(&self, memory: &Memory) {
        use alloc::collections::BTreeSet;
        self.memory.check();
        if !self.is_memory_built || self.memory.is_partial() {
            return;
        }
        let entries = memory.entries.iter();
        let held: BTreeSet<_> =
            entries.filter_map(|(_, entry)| segment_of(memory, entry)).collect();
        let objects: BTreeSet<_> = held.iter().map(|&(object, _)| object).collect();
        let listed: BTreeSet<_> = objects
            .into_iter()
            .flat_map(|object| {
                let ranges = self.memory.of(object);
                ranges.into_iter().flat_map(move |range| {
                    (range.first..=range.last).map(move |segment| (object, segment))
                })
            })
            .collect();
        assert_eq!(listed, held);
    }
}

#[cfg(test)]
mod tests;
