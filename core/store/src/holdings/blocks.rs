use super::ranges::{SegmentRange, push_bits};
use crate::uses::{ObjectUses, TierShare};
use alloc::boxed::Box;
use alloc::vec::Vec;
use weir_base::{Slab, Table, mix};
use weir_wire::{Name, NameView};

/// The index of no block and no object.
pub(super) const NONE: u32 = u32::MAX;

/// 64 segments of an object.
#[repr(align(64))]
pub(super) struct Block {
    /// The number of the block: its segment numbers divided by 64.
    pub(super) number: u64,
    /// The segments that are stored.
    bits: u64,
    /// The segments that were reported as stored, in `generation`.
    pub(super) reported: u64,
    pub(super) generation: u32,
    pub(super) object: u32,
    /// Neighbours among the blocks of the object.
    next: u32,
    previous: u32,
    /// The next block with changes to report, if this is one of them.
    next_changed: u32,
    is_changed: bool,
}

const _: () = assert!(size_of::<Option<Block>>() == 64);

impl Block {
    #[inline]
    pub(super) fn bits(&self) -> u64 {
        self.bits
    }

    #[inline]
    pub(super) fn is_changed(&self) -> bool {
        self.is_changed
    }

    /// Whether the block holds nothing and only waits to be reported.
    fn is_vacant_changed(&self) -> bool {
        self.is_changed && self.bits == 0
    }

    #[inline]
    pub(super) fn reported_in(&self, generation: u32) -> u64 {
        if self.generation == generation { self.reported } else { 0 }
    }
}

struct TrackedObject {
    hash: u64,
    /// The TLV-VALUE of its name; empty while it is not known.
    name: Box<[u8]>,
    first: u32,
    held: TierShare,
    /// What memory has counted for the object before it evicted the object's last Data.
    uses: ObjectUses,
}

impl TrackedObject {
    fn new(hash: u64) -> Self {
        Self {
            hash,
            name: Box::default(),
            first: NONE,
            held: TierShare::default(),
            uses: ObjectUses::default(),
        }
    }
}

/// Bytes that a block costs: the block itself, its slot on the slab's list of vacant slots, and its
/// share of the table.
const BLOCK_BYTES: u64 = size_of::<Option<Block>>() as u64 + 4 + 20;
/// The same for an object, including the allocator's overhead for its name.
const OBJECT_BYTES: u64 = size_of::<Option<TrackedObject>>() as u64 + 4 + 20 + 16;

/// The blocks of one tier, by object and number.
pub(super) struct Blocks {
    blocks: Slab<Block>,
    by_number: Table,
    objects: Slab<TrackedObject>,
    by_hash: Table,
    name_bytes: u64,
    /// Objects whose names are not known.
    unnamed: u32,
    /// The blocks with changes to report, in order of the first change.
    first_changed: u32,
    last_changed: u32,
    /// How many of the changed blocks hold nothing.
    vacant_changed: u32,
    to_free: Vec<u32>,
    /// The blocks found last: insertions and evictions each follow an order of their own.
    recent: [RecentBlock; 2],
}

#[derive(Copy, Clone)]
struct RecentBlock {
    object: u64,
    number: u64,
    at: u32,
}

const NO_RECENT_BLOCK: RecentBlock = RecentBlock { object: 0, number: 0, at: NONE };

#[inline]
fn block_hash(object: u64, number: u64) -> u64 {
    mix(object.wrapping_add(number.wrapping_mul(0x9E37_79B9_7F4A_7C15)))
}

impl Blocks {
    pub(super) fn new() -> Self {
        Self {
            blocks: Slab::new(),
            by_number: Table::with_capacity(0),
            objects: Slab::new(),
            by_hash: Table::with_capacity(0),
            name_bytes: 0,
            unnamed: 0,
            first_changed: NONE,
            last_changed: NONE,
            vacant_changed: 0,
            to_free: Vec::new(),
            recent: [NO_RECENT_BLOCK; 2],
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.blocks.len() as u64 * BLOCK_BYTES
            + self.objects.len() as u64 * OBJECT_BYTES
            + self.name_bytes
    }

    /// Most bytes that another block takes.
    pub(super) fn growth_bytes(name_len: usize) -> u64 {
        BLOCK_BYTES + OBJECT_BYTES + name_len as u64
    }

    /// The block, or [`NONE`].
    #[inline]
    pub(super) fn find(&mut self, object: u64, number: u64) -> u32 {
        for recent in &self.recent {
            if recent.number == number && recent.object == object && recent.at != NONE {
                return recent.at;
            }
        }
        self.find_in_table(object, number)
    }

    fn find_in_table(&mut self, object: u64, number: u64) -> u32 {
        let is_it = |at: u32| {
            let block = &self.blocks[at];
            block.number == number && self.objects[block.object].hash == object
        };
        let found = self.by_number.find(block_hash(object, number), is_it);
        found.inspect(|&at| self.remember(object, number, at)).unwrap_or(NONE)
    }

    /// Remembers a block in place of the older of the two.
    #[inline]
    fn remember(&mut self, object: u64, number: u64, at: u32) {
        self.recent = [RecentBlock { object, number, at }, self.recent[0]];
    }

    pub(super) fn get(&self, at: u32) -> Option<&Block> {
        self.blocks.get(at)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, at: u32) -> &mut Block {
        &mut self.blocks[at]
    }

    /// The stored segments of a block have changed.
    #[inline]
    pub(super) fn set_bits(&mut self, at: u32, bits: u64) {
        let block = &mut self.blocks[at];
        self.vacant_changed -= u32::from(block.is_vacant_changed());
        block.bits = bits;
        self.vacant_changed += u32::from(block.is_vacant_changed());
    }

    /// Counts a segment that a block's object has gained.
    #[inline]
    pub(super) fn count_added(&mut self, at: u32, bytes: u64) {
        let held = &mut self.objects[self.blocks[at].object].held;
        held.packets += 1;
        held.bytes += bytes;
    }

    /// Counts a segment that a block's object has lost.
    #[inline]
    pub(super) fn count_removed(&mut self, at: u32, bytes: u64) {
        let held = &mut self.objects[self.blocks[at].object].held;
        held.packets = held.packets.saturating_sub(1);
        // A segment may have been replaced by one of another size, which is not counted.
        held.bytes = held.bytes.saturating_sub(bytes);
    }

    /// Adds what memory has counted for an object, if it is listed.
    pub(super) fn add_uses(&mut self, hash: u64, uses: ObjectUses) {
        if let Some(at) = self.by_hash.find(hash, |at| self.objects[at].hash == hash) {
            self.objects[at].uses.add(uses);
        }
    }

    /// Name, share and uses of the object in a slot, if its name is known and starts with `prefix`.
    pub(super) fn listed_below(
        &self,
        at: u32,
        prefix: &[u8],
    ) -> Option<(Name, TierShare, ObjectUses)> {
        let object = self.objects.get(at).filter(|object| object.name.starts_with(prefix))?;
        Some((self.name_of(at)?, object.held, object.uses))
    }

    /// The number of block slots: every block lies below.
    pub(super) fn slots(&self) -> u32 {
        self.blocks.slots()
    }

    /// The number of object slots: every object lies below.
    pub(super) fn object_slots(&self) -> u32 {
        self.objects.slots()
    }

    /// Adds a block, which must not exist yet.
    pub(super) fn insert(&mut self, hash: u64, number: u64, name: Vec<u8>) -> u32 {
        let object = self.object(hash, name);
        let first = self.objects[object].first;
        let at = self.blocks.insert(Block {
            number,
            bits: 0,
            reported: 0,
            generation: 0,
            object,
            next: first,
            previous: NONE,
            next_changed: NONE,
            is_changed: false,
        });
        if first != NONE {
            self.blocks[first].previous = at;
        }
        self.objects[object].first = at;
        self.by_number.insert(block_hash(hash, number), at);
        self.remember(hash, number, at);
        at
    }

    fn object(&mut self, hash: u64, name: Vec<u8>) -> u32 {
        let found = self.by_hash.find(hash, |at| self.objects[at].hash == hash);
        let at = found.unwrap_or_else(|| {
            let at = self.objects.insert(TrackedObject::new(hash));
            self.by_hash.insert(hash, at);
            self.unnamed += 1;
            at
        });
        self.name(at, name);
        at
    }

    fn name(&mut self, at: u32, name: Vec<u8>) {
        let object = &mut self.objects[at];
        if object.name.is_empty() && !name.is_empty() {
            self.unnamed -= 1;
            self.name_bytes += name.len() as u64;
            object.name = name.into_boxed_slice();
        }
    }

    /// Objects whose names are not known.
    #[inline]
    pub(super) fn unnamed(&self) -> u32 {
        self.unnamed
    }

    pub(super) fn is_unnamed(&self, hash: u64) -> bool {
        let found = self.by_hash.find(hash, |at| self.objects[at].hash == hash);
        found.is_some_and(|at| self.objects[at].name.is_empty())
    }

    /// Sets the name of an existing object. If `must_report`, its blocks are marked to be reported.
    pub(super) fn set_name(&mut self, hash: u64, name: Vec<u8>, must_report: bool) {
        let found = self.by_hash.find(hash, |at| self.objects[at].hash == hash);
        let Some(object) = found else { return };
        self.name(object, name);
        let mut at = self.objects[object].first;
        while at != NONE && must_report {
            self.mark_changed(at);
            at = self.blocks[at].next;
        }
    }

    /// Whether a block cannot be reported because its object's name is not known. If it holds
    /// nothing, it is freed.
    pub(super) fn waits_for_name(&mut self, at: u32) -> bool {
        let block = &self.blocks[at];
        let is_nameless = self.unnamed > 0 && self.objects[block.object].name.is_empty();
        if is_nameless && block.bits == 0 {
            self.free(at);
        }
        is_nameless
    }

    /// Removes a block, and its object together with the last one.
    pub(super) fn free(&mut self, at: u32) {
        for recent in &mut self.recent {
            if recent.at == at {
                *recent = NO_RECENT_BLOCK;
            }
        }
        let block = self.blocks.remove(at);
        let hash = self.objects[block.object].hash;
        self.by_number.remove(block_hash(hash, block.number), at);
        if block.next != NONE {
            self.blocks[block.next].previous = block.previous;
        }
        if block.previous != NONE {
            self.blocks[block.previous].next = block.next;
            return;
        }
        self.objects[block.object].first = block.next;
        if block.next == NONE {
            let object = self.objects.remove(block.object);
            self.name_bytes -= object.name.len() as u64;
            self.unnamed -= u32::from(object.name.is_empty());
            self.by_hash.remove(hash, block.object);
        }
    }

    /// Marks a block as changed.
    #[inline]
    pub(super) fn mark_changed(&mut self, at: u32) {
        let block = &mut self.blocks[at];
        if block.is_changed {
            return;
        }
        block.is_changed = true;
        self.vacant_changed += u32::from(block.is_vacant_changed());
        block.next_changed = NONE;
        match self.last_changed {
            NONE => self.first_changed = at,
            last => self.blocks[last].next_changed = at,
        }
        self.last_changed = at;
    }

    pub(super) fn has_changed(&self) -> bool {
        self.first_changed != NONE
    }

    /// Whether at least one block in `share` holds nothing and only waits to be reported.
    pub(super) fn is_vacant_share(&self, share: u32) -> bool {
        let vacant = u64::from(self.vacant_changed);
        vacant > 0 && vacant * u64::from(share) >= self.blocks.len() as u64
    }

    pub(super) fn take_changed(&mut self) -> u32 {
        let at = self.first_changed;
        if at != NONE {
            let block = &mut self.blocks[at];
            self.vacant_changed -= u32::from(block.is_vacant_changed());
            block.is_changed = false;
            self.first_changed = block.next_changed;
            if self.first_changed == NONE {
                self.last_changed = NONE;
            }
        }
        at
    }

    /// Forgets all changes, and frees the blocks that hold nothing.
    pub(super) fn clear_changed(&mut self) {
        loop {
            match self.take_changed() {
                NONE => return,
                at if self.blocks[at].bits == 0 => self.free(at),
                _ => {}
            }
        }
    }

    /// Schedules a block for [`Blocks::free_deferred`].
    pub(super) fn free_later(&mut self, at: u32) {
        self.to_free.push(at);
    }

    pub(super) fn free_deferred(&mut self) {
        while let Some(at) = self.to_free.pop() {
            self.free(at);
        }
    }

    /// The name of an object, if it is known.
    pub(super) fn name_of(&self, object: u32) -> Option<Name> {
        let name = &self.objects[object].name;
        let view = NameView::from_value(name).ok().filter(|_| !name.is_empty())?;
        Some(view.to_name())
    }

    /// Name and segments of the object in a slot, if its name is known and starts with `prefix`.
    pub(super) fn object_below(&self, at: u32, prefix: &[u8]) -> Option<(Name, Vec<SegmentRange>)> {
        let object = self.objects.get(at).filter(|object| object.name.starts_with(prefix))?;
        Some((self.name_of(at)?, self.ranges(object.first)))
    }

    /// The segments of the object whose name has this hash.
    pub(super) fn ranges_of(&self, hash: u64) -> Vec<SegmentRange> {
        let found = self.by_hash.find(hash, |at| self.objects[at].hash == hash);
        found.map_or_else(Vec::new, |at| self.ranges(self.objects[at].first))
    }

    fn ranges(&self, first: u32) -> Vec<SegmentRange> {
        let mut found = Vec::new();
        let mut at = first;
        while at != NONE {
            let block = &self.blocks[at];
            found.push((block.number, block.bits));
            at = block.next;
        }
        found.sort_unstable();
        let mut ranges = Vec::new();
        for (number, bits) in found {
            push_bits(&mut ranges, number, bits);
        }
        ranges
    }

    #[cfg(test)]
    pub(super) fn check(&self, may_wait: bool) {
        assert_eq!(self.by_number.len(), self.blocks.len());
        assert_eq!(self.by_hash.len(), self.objects.len());
        let mut reached = 0;
        for (_, object) in self.objects.iter() {
            let mut at = object.first;
            assert_ne!(at, NONE, "an object has blocks");
            while at != NONE {
                reached += 1;
                assert!(may_wait || self.blocks[at].bits != 0);
                at = self.blocks[at].next;
            }
        }
        assert_eq!(reached, self.blocks.len());
        let vacant = self.blocks.iter().filter(|(_, block)| block.is_vacant_changed());
        assert_eq!(self.vacant_changed as usize, vacant.count());
        let nameless = self.objects.iter().filter(|(_, object)| object.name.is_empty());
        assert_eq!(self.unnamed as usize, nameless.count());
        let names = self.objects.iter().map(|(_, object)| object.name.len() as u64);
        assert_eq!(self.name_bytes, names.sum::<u64>());
    }
}
