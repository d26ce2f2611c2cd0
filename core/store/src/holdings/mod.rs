//! Which segments of which objects are held: ranges, kept up to date packet by packet, and what of
//! them has changed since a reader was told.

mod blocks;
mod ranges;
mod status;

pub use ranges::SegmentRange;
pub use status::{HoldingsError, HoldingsStatus};

use alloc::vec::Vec;
use blocks::{Block, Blocks, NONE};
use ranges::push_bits;
use weir_wire::{Name, NameView};

/// Segments that one block is about.
const BLOCK_SEGMENTS: u64 = 64;
/// The share of a full index that blocks hold of which it is only to be told that they are gone,
/// from which on they are given up; and the share that is to be free before what it missed is
/// looked for.
const SPARE_SHARE: u32 = 8;

/// How much is kept of what is held.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub struct HoldingsConfig {
    /// Octets for the index of one tier of one store. What has no room is not listed.
    pub bytes_max: u64,
}

impl Default for HoldingsConfig {
    /// 16 MiB: 190,000 blocks of 64 segments, or 70,000 objects of one segment with names of 60
    /// octets.
    fn default() -> Self {
        Self { bytes_max: 16 << 20 }
    }
}

/// Where Data is held.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug)]
pub enum Tier {
    Memory,
    /// On a disk, or about to be written to one.
    Disk,
}

/// What a tier holds of one object.
#[derive(Clone, Eq, PartialEq, Debug)]
pub struct Holding {
    /// The name of its segments without the segment number.
    pub name: Name,
    pub tier: Tier,
    /// The segments, in order, with gaps between the ranges.
    pub ranges: Vec<SegmentRange>,
}

/// What is held of some objects below a prefix.
#[derive(Clone, Eq, PartialEq, Debug)]
pub struct HoldingsPage {
    /// In no order, at most one for an object and tier.
    pub holdings: Vec<Holding>,
    /// Where to go on; none behind the last.
    pub next: Option<HoldingsCursor>,
    /// Whether more may be held than is listed: the index is still being built, had no room, or
    /// lacks the name of something that was on a disk before a start. What had no room is looked
    /// for when [`Store::restart_changes`](crate::Store::restart_changes) finds some.
    pub is_partial: bool,
}

/// Where a listing goes on. What comes and goes between two pages may be missing or come twice.
#[derive(Copy, Clone, Eq, PartialEq, Debug, Default)]
pub struct HoldingsCursor {
    pub(crate) is_on_disk: bool,
    pub(crate) object: u32,
}

/// What is new of one object in one tier.
#[derive(Clone, Eq, PartialEq, Debug)]
pub struct HoldingChange {
    /// The name of its segments without the segment number.
    pub name: Name,
    pub tier: Tier,
    /// Segments that are held and were not, in order.
    pub added: Vec<SegmentRange>,
    /// Segments that were held and are not, in order.
    pub removed: Vec<SegmentRange>,
}

/// What has changed since the last such batch.
#[derive(Clone, Eq, PartialEq, Debug)]
pub struct HoldingChanges {
    /// Of a generation the batches together, from number 1 on, say all that is held, starting from
    /// nothing. When a new one begins, what was told in the one before is void.
    pub generation: u64,
    /// The number of the batch in its generation. A reader who misses one calls
    /// [`Store::restart_changes`](crate::Store::restart_changes).
    pub sequence: u64,
    pub changes: Vec<HoldingChange>,
    /// Whether there is more at once.
    pub has_more: bool,
}

/// The segments that one tier holds.
///
/// 64 segments of an object are a block of one cache line: a bit for each that is held, and one for
/// each of which the reader was told. What changes and changes back before the reader asks costs
/// no message, and what is to be told takes no memory beside the blocks, however late it is asked
/// for.
pub(crate) struct Holdings {
    config: HoldingsConfig,
    blocks: Blocks,
    /// Segments that were held and had no room here.
    missed: u64,
    /// Whether somebody is told of changes.
    is_tracking_changes: bool,
    /// What a block was told of counts in this generation alone.
    generation: u32,
    /// Blocks before it were told of in this generation.
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

    /// Whether it may lack something that is held.
    pub(crate) fn is_partial(&self) -> bool {
        self.missed > 0 || self.blocks.unnamed() > 0
    }

    /// A segment of the object whose name has this hash is held. `name` is the object's name, empty
    /// if it is not known. Nothing happens if it was known to be held.
    #[inline]
    pub(crate) fn add(&mut self, object: u64, segment: u64, name: impl FnOnce() -> Vec<u8>) {
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
            if self.is_tracking_changes {
                self.blocks.mark_changed(at);
            }
        }
    }

    /// A segment is not held any more. Nothing happens if it was not known to be.
    #[inline]
    pub(crate) fn remove(&mut self, object: u64, segment: u64) {
        let at = self.blocks.find(object, segment / BLOCK_SEGMENTS);
        if at == NONE {
            return;
        }
        let block = self.blocks.get_mut(at);
        let bits = block.bits() & !(1 << (segment % BLOCK_SEGMENTS));
        if bits == block.bits() {
            return;
        }
        let is_told = block.is_changed() || block.reported_in(self.generation) != 0;
        self.blocks.set_bits(at, bits);
        if bits == 0 && !is_told {
            self.blocks.free(at);
        } else if self.is_tracking_changes {
            self.blocks.mark_changed(at);
        }
    }

    /// The name of an object has become known, if it was not.
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

    /// Frees what is only there to be told that it is gone, if that is a real share: the reader
    /// begins anew. Were it done for less, a reader of a full index would begin anew all the time.
    fn drop_vacant(&mut self) {
        if self.is_tracking_changes && self.blocks.is_vacant_share(SPARE_SHARE) {
            self.begin_generation();
        }
    }

    /// From now on the reader is told of all that is held.
    pub(crate) fn begin_generation(&mut self) {
        self.is_tracking_changes = true;
        self.generation = self.generation.wrapping_add(1);
        self.reported_to = 0;
        self.blocks.clear_changed();
    }

    /// The generation at present; any other than before voids what was told.
    pub(crate) fn generation(&self) -> u32 {
        self.generation
    }

    /// Whether something was missed for which there may be room now. If so it counts as missed no
    /// more: all that is held is to be added again.
    pub(crate) fn retry_missed(&mut self) -> bool {
        let bytes_max = self.config.bytes_max - self.config.bytes_max / u64::from(SPARE_SHARE);
        let has_room = self.missed > 0 && self.blocks.bytes() <= bytes_max;
        if has_room {
            self.missed = 0;
        }
        has_room
    }

    /// Nobody is told any more.
    pub(crate) fn stop_tracking_changes(&mut self) {
        if self.is_tracking_changes {
            self.begin_generation();
            self.is_tracking_changes = false;
        }
    }

    /// Appends what has changed, of `blocks_max` blocks at most, and takes it for told. Says
    /// whether there is more.
    pub(crate) fn take_changes(
        &mut self,
        tier: Tier,
        blocks_max: usize,
        changes: &mut Vec<HoldingChange>,
    ) -> bool {
        let mut due = Vec::new();
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
            let told = block.reported_in(self.generation);
            let bits = block.bits();
            let (added, removed) = (bits & !told, told & !bits);
            (block.reported, block.generation) = (bits, self.generation);
            if added | removed != 0 {
                due.push((block.object, block.number, added, removed));
            }
            if bits == 0 {
                // Kept until the names were read.
                self.blocks.free_later(at);
            }
        }
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

    /// The next block that the reader was not told of in this generation.
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

    /// What is held of the one object with this name.
    pub(crate) fn of(&self, object: u64) -> Vec<SegmentRange> {
        self.blocks.ranges_of(object)
    }

    /// Appends what is held below a prefix of the objects from a place on, `visits_max` of them at
    /// most. Returns where to go on.
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

    #[cfg(test)]
    pub(crate) fn check(&self) {
        self.blocks.check(self.is_tracking_changes);
    }
}

#[cfg(test)]
mod tests;
