use crate::prefetch::prefetch_read;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

/// Slots in a cache line.
const SLOTS: usize = 8;
/// The index in a vacant slot.
const NONE: u32 = u32::MAX;

/// A cache line of slots. The slots in use come first.
#[repr(C, align(64))]
#[derive(Copy, Clone)]
struct Line {
    tags: [u32; SLOTS],
    indexes: [u32; SLOTS],
}

impl Line {
    const EMPTY: Self = Self { tags: [0; SLOTS], indexes: [NONE; SLOTS] };

    #[inline(always)]
    fn is_full(&self) -> bool {
        self.indexes[SLOTS - 1] != NONE
    }

    /// The number of slots in use. Branch-free: an early exit would be mispredicted.
    #[inline(always)]
    fn used(&self) -> usize {
        // The bit behind the last slot stands for a full line.
        (equal_words(&self.indexes, NONE) | 1 << SLOTS).trailing_zeros() as usize
    }

    /// Vacates a slot in use. Returns whether the line was full.
    #[inline(always)]
    fn vacate(&mut self, slot: usize) -> bool {
        let was_full = self.is_full();
        let last = (self.used() - 1) % SLOTS;
        self.tags[slot % SLOTS] = self.tags[last];
        self.indexes[slot % SLOTS] = self.indexes[last];
        self.indexes[last] = NONE;
        was_full
    }

    /// A bit for each slot with this tag, including vacant slots.
    #[inline(always)]
    fn matches(&self, tag: u32) -> u32 {
        equal_words(&self.tags, tag)
    }
}

/// A bit for each of the 8 words that equals `wanted`, the first word lowest.
#[inline(always)]
pub fn equal_words(words: &[u32; SLOTS], wanted: u32) -> u32 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: SSE2 is part of x86-64; the two loads read the 8 words, and need no alignment.
    unsafe {
        use core::arch::x86_64::*;
        let words = words.as_ptr().cast::<__m128i>();
        let wanted = _mm_set1_epi32(wanted.cast_signed());
        let low = _mm_cmpeq_epi32(_mm_loadu_si128(words), wanted);
        let high = _mm_cmpeq_epi32(_mm_loadu_si128(words.add(1)), wanted);
        let halves = _mm_packs_epi32(low, high);
        _mm_movemask_epi8(_mm_packs_epi16(halves, _mm_setzero_si128())).cast_unsigned()
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let mut bits = 0;
        for (slot, &word) in words.iter().enumerate() {
            bits |= u32::from(word == wanted) << slot;
        }
        bits
    }
}

/// A hash table from 64-bit hashes to slab indices. Keys and their comparison are left to the
/// caller.
///
/// Open addressing over cache lines of 8 slots, each with 32 bits of the hash (the *tag*) and an
/// index. The upper bits of the tag select an entry's *home line*. If that is full, the entry goes
/// to the next line that is not. So a lookup reads one line most of the time and stops at the first
/// line that is not full. [`Table::prefetch`] can fetch the home line ahead. A removal that opens a
/// full line moves a later entry into it, so no tombstones are needed.
///
/// A hash may have several indices, and the same pair may occur more than once. The table grows
/// when it is four fifths full, using only the tags. Limits are up to the caller.
#[derive(Clone)]
pub struct Table {
    /// A power of two, from 2 to 2^32.
    lines: Vec<Line>,
    /// A tag shifted right by this is the number of its home line.
    shift: u32,
    len: usize,
    /// The table grows before `len` exceeds this.
    len_max: usize,
}

impl Table {
    /// A table that holds `entries` before it grows.
    pub fn with_capacity(entries: usize) -> Self {
        let lines = (entries * 5).div_ceil(SLOTS * 4).next_power_of_two().max(2);
        Self::with_lines(lines)
    }

    fn with_lines(lines: usize) -> Self {
        let is_in_range = (1..=32).contains(&lines.trailing_zeros());
        assert!(lines.is_power_of_two() && is_in_range, "too many entries");
        Self {
            lines: vec![Line::EMPTY; lines],
            shift: 32 - lines.trailing_zeros(),
            len: 0,
            len_max: Self::len_max(lines),
        }
    }

    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn memory_bytes(&self) -> usize {
        self.lines.len() * size_of::<Line>()
    }

    /// The most additional bytes that this number of further entries may need. They include all new
    /// lines, because the old lines exist until all entries are in the new ones.
    pub fn growth_bytes(&self, entries: usize) -> usize {
        let mut lines = self.lines.len();
        while Self::len_max(lines) < self.len + entries {
            lines *= 2;
        }
        if lines == self.lines.len() { 0 } else { lines * size_of::<Line>() }
    }

    /// Entries that `lines` lines hold.
    fn len_max(lines: usize) -> usize {
        lines * SLOTS * 4 / 5
    }

    #[inline(always)]
    fn tag(hash: u64) -> u32 {
        (hash >> 32) as u32
    }

    #[inline(always)]
    fn home_line(&self, tag: u32) -> usize {
        (tag >> self.shift) as usize
    }

    #[inline(always)]
    fn next_line(&self, line: usize) -> usize {
        (line + 1) & (self.lines.len() - 1)
    }

    /// A line that [`Table::home_line`] or [`Table::next_line`] has returned.
    #[inline(always)]
    fn line(&self, at: usize) -> &Line {
        debug_assert!(at < self.lines.len());
        // SAFETY: there are 2^(32 - shift) lines. A tag of 32 bits that is shifted right by `shift`
        // is below, and so is a number masked with the number of lines less one.
        unsafe { self.lines.get_unchecked(at) }
    }

    #[inline(always)]
    fn line_mut(&mut self, at: usize) -> &mut Line {
        debug_assert!(at < self.lines.len());
        // SAFETY: as in [`Table::line`].
        unsafe { self.lines.get_unchecked_mut(at) }
    }

    /// Prefetches the home line of `hash` for a later [`Table::find`].
    #[inline(always)]
    pub fn prefetch(&self, hash: u64) {
        prefetch_read(self.line(self.home_line(Self::tag(hash))));
    }

    /// The first index with `hash` (32 bits are compared) for which `is_match` returns true.
    #[inline(always)]
    pub fn find(&self, hash: u64, mut is_match: impl FnMut(u32) -> bool) -> Option<u32> {
        let tag = Self::tag(hash);
        let mut at = self.home_line(tag);
        loop {
            let line = self.line(at);
            let mut bits = line.matches(tag);
            while bits != 0 {
                let index = line.indexes[bits.trailing_zeros() as usize % SLOTS];
                if index != NONE && is_match(index) {
                    return Some(index);
                }
                bits &= bits - 1;
            }
            if !line.is_full() {
                return None;
            }
            at = self.next_line(at);
        }
    }

    /// Calls `f` with each index that [`Table::find`] would try.
    #[inline(always)]
    pub fn for_each_candidate(&self, hash: u64, mut f: impl FnMut(u32)) {
        self.find(hash, |index| {
            f(index);
            false
        });
    }

    /// Adds an entry, in addition to others with the same hash.
    ///
    /// # Panics
    /// If `index` is `u32::MAX`.
    pub fn insert(&mut self, hash: u64, index: u32) {
        assert!(index != NONE, "u32::MAX is not a valid index");
        if self.len >= self.len_max {
            self.grow();
        }
        self.insert_tag(Self::tag(hash), index);
        self.len += 1;
    }

    #[inline]
    fn insert_tag(&mut self, tag: u32, index: u32) {
        let mut at = self.home_line(tag);
        while self.line(at).is_full() {
            at = self.next_line(at);
        }
        let line = self.line_mut(at);
        let slot = line.used();
        line.tags[slot] = tag;
        line.indexes[slot] = index;
    }

    #[cold]
    fn grow(&mut self) {
        let mut larger = Self::with_lines(self.lines.len() * 2);
        for line in &self.lines {
            for slot in 0..line.used() {
                larger.insert_tag(line.tags[slot], line.indexes[slot]);
            }
        }
        larger.len = self.len;
        *self = larger;
    }

    /// Removes one entry with `hash` and `index`. Returns whether there was one.
    #[inline(always)]
    pub fn remove(&mut self, hash: u64, index: u32) -> bool {
        let tag = Self::tag(hash);
        let mut at = self.home_line(tag);
        loop {
            let line = self.line_mut(at);
            let found = line.matches(tag) & equal_words(&line.indexes, index);
            if found != 0 && index != NONE {
                let was_full = line.vacate(found.trailing_zeros() as usize);
                self.len -= 1;
                // Lookups for entries in later lines stop at a line that is not full, so the gap
                // must be closed.
                if was_full {
                    self.refill(at);
                }
                return true;
            }
            if !line.is_full() {
                return false;
            }
            at = self.next_line(at);
        }
    }

    /// Moves entries back into lines that were full, until all lines between an entry and its home
    /// are full again.
    #[inline(never)]
    fn refill(&mut self, mut hole: usize) {
        while let Some((from, slot)) = self.find_displaced(hole) {
            let Line { tags, indexes } = self.lines[from];
            let line = &mut self.lines[hole];
            line.tags[SLOTS - 1] = tags[slot];
            line.indexes[SLOTS - 1] = indexes[slot];
            if !self.lines[from].vacate(slot) {
                return;
            }
            hole = from;
        }
    }

    /// Finds an entry in a later line whose home is line `hole` or an earlier one. It may move to
    /// `hole`.
    fn find_displaced(&self, hole: usize) -> Option<(usize, usize)> {
        let mask = self.lines.len() - 1;
        let mut at = self.next_line(hole);
        loop {
            let line = &self.lines[at];
            let distance = at.wrapping_sub(hole) & mask;
            // Most lines have no displaced entries.
            let homes = line.tags.map(|tag| tag >> self.shift);
            let mut displaced = !equal_words(&homes, at as u32) & ((1 << line.used()) - 1);
            while displaced != 0 {
                let slot = displaced.trailing_zeros() as usize % SLOTS;
                if at.wrapping_sub(homes[slot] as usize) & mask >= distance {
                    return Some((at, slot));
                }
                displaced &= displaced - 1;
            }
            if !line.is_full() {
                return None;
            }
            at = self.next_line(at);
        }
    }

    /// Removes all entries. Keeps the memory.
    #[cfg(test)]
    pub(crate) fn clear(&mut self) {
        self.lines.fill(Line::EMPTY);
        self.len = 0;
    }
}

impl Default for Table {
    fn default() -> Self {
        Self::with_capacity(0)
    }
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table").field("len", &self.len).field("lines", &self.lines.len()).finish()
    }
}

#[cfg(test)]
mod tests;
