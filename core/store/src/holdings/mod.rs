//! The segments that a store holds, by object, and the changes since the last report.
//!
//! *Holdings* are ranges of segment numbers. The store updates them with each packet, and the
//! controller plans placement by them.

mod blocks;
mod ranges;
mod status;

pub use ranges::SegmentRange;
pub use status::{HoldingsError, HoldingsStatus};

use crate::uses::{ObjectUses, TierShare};
use alloc::vec::Vec;
use blocks::{Block, Blocks, NONE};
use ranges::push_bits;
use weir_wire::{Name, NameView};

const BLOCK_SEGMENTS: u64 = 64;
/// One part in this many of the index, for two thresholds. A full index drops vacant blocks that
/// only wait to be reported if they take up this part. An index that has missed segments looks for
/// them again once this part is free.
const SPARE_SHARE: u32 = 8;

/// Limits of the index.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub struct HoldingsConfig {
    /// Bytes for the index of one tier of one store. Segments that do not fit are not listed.
    pub bytes_max: u64,
}

impl Default for HoldingsConfig {
    /// 16 MiB: 190,000 blocks of 64 segments, or 60,000 objects of one segment with names of 60
    /// bytes.
    fn default() -> Self {
        Self { bytes_max: 16 << 20 }
    }
}

/// Where a segment is stored.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug)]
pub enum Tier {
    Memory,
    /// On a disk, or waiting to be written to one.
    Disk,
}

/// The segments of one object in one tier.
#[derive(Clone, Eq, PartialEq, Debug)]
pub struct Holding {
    /// The name of the segments without the segment number.
    pub name: Name,
    pub tier: Tier,
    /// In order, with gaps between the ranges.
    pub ranges: Vec<SegmentRange>,
}

/// The stored segments of some objects below a prefix.
#[derive(Clone, Eq, PartialEq, Debug)]
pub struct HoldingsPage {
    /// In no particular order, at most one for each object and tier.
    pub holdings: Vec<Holding>,
    /// Where the next page starts; `None` after the last one.
    pub next: Option<HoldingsCursor>,
    /// Whether the store may hold more than is listed. If so, the index is still being built, was
    /// full, or lacks the name of an object that was on a disk before the last start. Segments that
    /// did not fit are added once [`Store::restart_changes`](crate::Store::restart_changes) finds
    /// space.
    pub is_partial: bool,
}

/// The start of a page. Objects that appear or disappear between two pages may be missing or listed
/// twice.
#[derive(Copy, Clone, Eq, PartialEq, Debug, Default)]
pub struct HoldingsCursor {
    pub(crate) is_on_disk: bool,
    pub(crate) object: u32,
}

/// Changes of one object in one tier.
#[derive(Clone, Eq, PartialEq, Debug)]
pub struct HoldingChange {
    /// The name of the segments without the segment number.
    pub name: Name,
    pub tier: Tier,
    /// Segments that were added, in order.
    pub added: Vec<SegmentRange>,
    /// Segments that were removed, in order.
    pub removed: Vec<SegmentRange>,
}

/// A batch of changes since the last one.
#[derive(Clone, Eq, PartialEq, Debug)]
pub struct HoldingChanges {
    /// The batches of one generation, from number 1 on, together describe everything that is
    /// stored. A new generation starts from nothing: earlier reports are void.
    pub generation: u64,
    /// The number of the batch in its generation. A reader that misses one calls
    /// [`Store::restart_changes`](crate::Store::restart_changes).
    pub sequence: u64,
    pub changes: Vec<HoldingChange>,
    /// Whether another batch is available now.
    pub has_more: bool,
}

/// The segments in one tier.
///
/// 64 segments of an object form a block of one cache line. For each segment, the block has one bit
/// that says whether it is stored, and one that says whether it was reported as stored. The next
/// report contains the segments whose bits differ. So a change that is reverted before the next
/// report costs no message. Pending changes use no memory in addition to the blocks, however long
/// the reader waits.
pub(crate) struct Holdings {
    config: HoldingsConfig,
    blocks: Blocks,
    /// Segments that did not fit into the index.
    missed: u64,
    /// Whether a reader takes changes.
    is_tracking_changes: bool,
    /// The current generation. The reported bits of a block count only in the generation in which
    /// they were set.
    generation: u32,
    /// Blocks below this slot were reported in this generation.
    reported_to: u32,
}

impl Holdings {
    pub(crate) fn new(config: HoldingsConfig) -> Self {
        Self {
            config,
            blocks: Blocks::new(),
            missed: 0,
            is_tracking_changes: false,
            generation: 0,
            reported_to: 0,
        }
    }

    pub(crate) fn memory_bytes(&self) -> u64 {
        self.blocks.bytes()
    }

    /// Whether stored segments may be missing from the index.
    pub(crate) fn is_partial(&self) -> bool {
        self.missed > 0 || self.blocks.unnamed() > 0
    }

    /// Adds a stored segment of `bytes` bytes of the object whose name has the hash `object`.
    /// `name` returns the object's name, or nothing if it is not known. Does nothing if the segment
    /// is in the index already.
    #[inline]
    pub(crate) fn add(
        &mut self,
        object: u64,
        segment: u64,
        bytes: u64,
        name: impl FnOnce() -> Vec<u8>,
    ) {
        let number = segment / BLOCK_SEGMENTS;
        let at = match self.blocks.find(object, number) {
            NONE => match self.add_block(object, number, name) {
                NONE => return,
                at => at,
            },
            at => {
                if self.blocks.unnamed() > 0 {
                    self.learn_name(object, name);
                }
                at
            }
        };
        let present = self.blocks.get_mut(at).bits();
        let bits = present | 1 << (segment % BLOCK_SEGMENTS);
        if bits != present {
            self.blocks.set_bits(at, bits);
            self.blocks.count_added(at, bytes);
            if self.is_tracking_changes {
                self.blocks.mark_changed(at);
            }
        }
    }

    /// Removes a segment that is no longer stored. Does nothing if it is not in the index.
    #[inline]
    pub(crate) fn remove(&mut self, object: u64, segment: u64, bytes: u64) {
        let at = self.blocks.find(object, segment / BLOCK_SEGMENTS);
        if at == NONE {
            return;
        }
        let block = self.blocks.get_mut(at);
        let bits = block.bits() & !(1 << (segment % BLOCK_SEGMENTS));
        if bits == block.bits() {
            return;
        }
        let is_reported = block.is_changed() || block.reported_in(self.generation) != 0;
        self.blocks.set_bits(at, bits);
        self.blocks.count_removed(at, bytes);
        // A block that was never reported can be freed at once. Otherwise it stays until the reader
        // knows of the removal.
        if bits == 0 && !is_reported {
            self.blocks.free(at);
        } else if self.is_tracking_changes {
            self.blocks.mark_changed(at);
        }
    }

    /// Adds the name of an object, if it was not known before.
    #[cold]
    pub(crate) fn learn_name(&mut self, object: u64, name: impl FnOnce() -> Vec<u8>) {
        if self.blocks.unnamed() > 0 && self.blocks.is_unnamed(object) {
            self.blocks.set_name(object, name(), self.is_tracking_changes);
        }
    }

    #[cold]
    fn add_block(&mut self, object: u64, number: u64, name: impl FnOnce() -> Vec<u8>) -> u32 {
        let name = name();
        let needed = Blocks::growth_bytes(name.len());
        if self.blocks.bytes() + needed > self.config.bytes_max {
            self.drop_vacant();
        }
        if self.blocks.bytes() + needed > self.config.bytes_max {
            self.missed += 1;
            return NONE;
        }
        self.blocks.insert(object, number, name)
    }

    /// Frees blocks that hold nothing and only wait to be reported. The reader must then start a
    /// new generation. The index does this only if such blocks are a large part of it; otherwise a
    /// reader of a full index would restart all the time.
    fn drop_vacant(&mut self) {
        if self.is_tracking_changes && self.blocks.is_vacant_share(SPARE_SHARE) {
            self.begin_generation();
        }
    }

    /// Begins a generation: everything stored will be reported again.
    pub(crate) fn begin_generation(&mut self) {
        self.is_tracking_changes = true;
        self.generation = self.generation.wrapping_add(1);
        self.reported_to = 0;
        self.blocks.clear_changed();
    }

    /// The current generation. If it changes, earlier reports are void.
    pub(crate) fn generation(&self) -> u32 {
        self.generation
    }

    /// Whether segments were missed and there may be space for them now. If so, stops counting them
    /// as missed; the caller must then add everything stored again.
    pub(crate) fn retry_missed(&mut self) -> bool {
        let bytes_max = self.config.bytes_max - self.config.bytes_max / u64::from(SPARE_SHARE);
        let has_room = self.missed > 0 && self.blocks.bytes() <= bytes_max;
        if has_room {
            self.missed = 0;
        }
        has_room
    }

    /// Records no more changes.
    pub(crate) fn stop_tracking_changes(&mut self) {
        if self.is_tracking_changes {
            self.begin_generation();
            self.is_tracking_changes = false;
        }
    }

    /// Appends the changes of up to `blocks_max` blocks, which then count as reported. Returns
    /// whether there are more.
    pub(crate) fn take_changes(
        &mut self,
        tier: Tier,
        blocks_max: usize,
        changes: &mut Vec<HoldingChange>,
    ) -> bool {
        let mut due = Vec::new();
        // Blocks marked as changed come first, then those that this generation has not reported.
        while due.len() < blocks_max {
            let at = match self.blocks.take_changed() {
                NONE => match self.next_unreported() {
                    NONE => break,
                    at => at,
                },
                at => at,
            };
            if self.blocks.waits_for_name(at) {
                continue;
            }
            let block = self.blocks.get_mut(at);
            let reported = block.reported_in(self.generation);
            let bits = block.bits();
            let (added, removed) = (bits & !reported, reported & !bits);
            (block.reported, block.generation) = (bits, self.generation);
            if added | removed != 0 {
                due.push((block.object, block.number, added, removed));
            }
            if bits == 0 {
                // Free it later: the loop below reads the name of its object.
                self.blocks.free_later(at);
            }
        }
        // One change for each object, with its blocks in order.
        due.sort_unstable();
        for of_one in due.chunk_by(|one, other| one.0 == other.0) {
            let Some(name) = self.blocks.name_of(of_one[0].0) else { continue };
            let mut change = HoldingChange { name, tier, added: Vec::new(), removed: Vec::new() };
            for &(_, number, added, removed) in of_one {
                push_bits(&mut change.added, number, added);
                push_bits(&mut change.removed, number, removed);
            }
            changes.push(change);
        }
        self.blocks.free_deferred();
        self.blocks.has_changed() || self.reported_to < self.blocks.slots()
    }

    /// The next block that was not reported in this generation.
    fn next_unreported(&mut self) -> u32 {
        while self.reported_to < self.blocks.slots() {
            let at = self.reported_to;
            self.reported_to += 1;
            let is_due = |block: &Block| block.bits() != 0 && block.generation != self.generation;
            if self.blocks.get(at).is_some_and(is_due) {
                return at;
            }
        }
        NONE
    }

    /// The stored segments of one object.
    pub(crate) fn of(&self, object: u64) -> Vec<SegmentRange> {
        self.blocks.ranges_of(object)
    }

    /// Appends the stored segments of objects below a prefix, visiting up to `visits_max` objects
    /// from slot `from` on. Returns where to continue.
    pub(crate) fn list(
        &self,
        tier: Tier,
        prefix: NameView<'_>,
        from: u32,
        visits_max: u32,
        holdings: &mut Vec<Holding>,
    ) -> Option<u32> {
        let end = self.blocks.object_slots();
        let to = end.min(from.saturating_add(visits_max));
        for object in from..to {
            let Some((name, ranges)) = self.blocks.object_below(object, prefix.value()) else {
                continue;
            };
            if !ranges.is_empty() {
                holdings.push(Holding { name, tier, ranges });
            }
        }
        (to < end).then_some(to)
    }

    /// Appends the objects below a prefix with their shares and uses, visiting up to `visits_max`
    /// objects from slot `from` on. Returns where to continue.
    pub(crate) fn list_shares(
        &self,
        prefix: NameView<'_>,
        from: u32,
        visits_max: u32,
        mut add: impl FnMut(Name, TierShare, ObjectUses),
    ) -> Option<u32> {
        let end = self.blocks.object_slots();
        let to = end.min(from.saturating_add(visits_max));
        for object in from..to {
            let found = self.blocks.listed_below(object, prefix.value());
            if let Some((name, held, uses)) = found.filter(|(_, held, _)| held.packets > 0) {
                add(name, held, uses);
            }
        }
        (to < end).then_some(to)
    }

    /// Adds what memory has counted for an object, if it is in the index.
    pub(crate) fn add_uses(&mut self, object: u64, uses: ObjectUses) {
        self.blocks.add_uses(object, uses);
    }

    /// Objects whose names are not known.
    pub(crate) fn unnamed(&self) -> u32 {
        self.blocks.unnamed()
    }

    /// Segments that did not fit into the index.
    pub(crate) fn missed(&self) -> u64 {
        self.missed
    }

    #[cfg(test)]
    pub(crate) fn check(&self) {
        self.blocks.check(self.is_tracking_changes);
    }
}

#[cfg(test)]
mod tests;
