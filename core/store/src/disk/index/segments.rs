use super::super::address::{RecordAddress, SPARE_BITS};
use super::cells::{CAPACITIES, Cells, HEADER_WORDS, class_for};

/// The word of an object without segments.
pub(super) const EMPTY: u64 = 0;
/// Marks the address of segment 0, when it is the only segment.
const SOLE: u64 = 1 << 61;
/// Marks the number of a cell.
const ROOT: u64 = 1 << 62;
/// Digits of 6 bits in a segment number.
const LEVELS: usize = 11;
/// The bits of a cell's first word that hold its level.
const LEVEL_BITS: u64 = 63;

/// The addresses of the segments of all objects. Each object has one word, which its node stores.
///
/// A radix tree with 64-way branching, stored in cells. Write a segment number as digits of 6 bits.
/// The segments below a cell of level `n` agree in all digits above digit `n`. A cell holds:
///
/// 1. one word with the common digits and the level,
/// 2. one word with a bit for each value of digit `n` that occurs,
/// 3. one entry for each of these bits, in order and without gaps: an address (at level 0) or the
///    number of a cell below.
///
/// Levels at which all segments agree have no cell: a cell above level 0 has at least two entries.
/// 64 consecutive segments take 66 words and one word in the cell above, so 8.4 bytes a segment.
///
/// Example: an object with the segments 3, 5 and 200 (digits (0, 3), (0, 5), (3, 8)). The root is a
/// cell of level 1 with bits 0 and 3. Its first entry is a cell of level 0 with bits 3 and 5, its
/// second one a cell of level 0 with bit 8. To find segment 5: bit 0 is the lowest bit set in the
/// root, so take entry 0. In the cell below, one bit below bit 5 is set, so take entry 1.
pub(super) struct Segments {
    cells: Cells,
}

/// A step on the path from the root to an address.
#[derive(Copy, Clone)]
struct PathStep {
    cell: u32,
    /// The index of the entry in the cell.
    at: usize,
}

/// The common digits of the numbers below a cell of this level that holds `segment`.
#[inline(always)]
fn base(segment: u64, level: u32) -> u64 {
    // Two shifts: at level 10 they add up to more than 63 bits.
    segment >> (6 * level) >> 6 << 6 << (6 * level)
}

#[inline(always)]
fn digit(segment: u64, level: u32) -> u32 {
    (segment >> (6 * level) & 63) as u32
}

/// The header of a cell: common digits, level, and the digits that occur.
#[derive(Copy, Clone)]
struct Header {
    base: u64,
    level: u32,
    digits: u64,
}

impl Header {
    #[inline(always)]
    fn of(words: &[u64]) -> Self {
        let [first, digits] = [words[0], words[1]];
        Self { base: first & !LEVEL_BITS, level: (first & LEVEL_BITS) as u32, digits }
    }

    /// Whether `segment` has the common digits.
    #[inline(always)]
    fn covers(self, segment: u64) -> bool {
        (segment ^ self.base) >> (6 * self.level) >> 6 == 0
    }

    /// The index of a digit's entry, whether or not it exists.
    #[inline(always)]
    fn position(self, digit: u32) -> usize {
        HEADER_WORDS + (self.digits & ((1 << digit) - 1)).count_ones() as usize
    }

    #[inline(always)]
    fn has(self, digit: u32) -> bool {
        self.digits >> digit & 1 != 0
    }

    /// The first digit that occurs, from `digit` on, which may be 64.
    fn digit_from(self, digit: u32) -> Option<u32> {
        let digits = self.digits & u64::MAX.checked_shl(digit).unwrap_or(0);
        (digits != 0).then(|| digits.trailing_zeros())
    }
}

impl Segments {
    pub(super) fn new() -> Self {
        Self { cells: Cells::new() }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.cells.memory_bytes()
    }

    /// Whether a word is that of an object with segments.
    #[inline(always)]
    pub(super) fn has_segments(word: u64) -> bool {
        word & (SOLE | ROOT) != 0
    }

    /// The cells, which the owner may use as well.
    pub(super) fn cells(&self) -> &Cells {
        &self.cells
    }

    pub(super) fn cells_mut(&mut self) -> &mut Cells {
        &mut self.cells
    }

    #[inline]
    pub(super) fn find(&self, object: u64, segment: u64) -> Option<RecordAddress> {
        if object & ROOT == 0 {
            return RecordAddress::from_word(object).filter(|_| segment == 0);
        }
        let mut cell = object as u32;
        loop {
            let words = self.cells.words(cell);
            let header = Header::of(words);
            let digit = digit(segment, header.level);
            if !header.covers(segment) || !header.has(digit) {
                return None;
            }
            let entry = words[header.position(digit)];
            if header.level == 0 {
                return RecordAddress::from_word(entry);
            }
            cell = entry as u32;
        }
    }

    /// The first segment from number `from` on.
    pub(super) fn first_from(&self, object: u64, from: u64) -> Option<(u64, RecordAddress)> {
        if object & ROOT == 0 {
            return RecordAddress::from_word(object)
                .filter(|_| from == 0)
                .map(|address| (0, address));
        }
        self.first_in(object as u32, from)
    }

    /// Recursive: as deep as there are levels.
    fn first_in(&self, cell: u32, from: u64) -> Option<(u64, RecordAddress)> {
        let words = self.cells.words(cell);
        let header = Header::of(words);
        let mut from = from.max(header.base);
        if !header.covers(from) {
            return None;
        }
        let mut next = header.digit_from(digit(from, header.level));
        while let Some(digit) = next {
            let entry = words[header.position(digit)];
            let least = header.base | u64::from(digit) << (6 * header.level);
            from = from.max(least);
            let found = match header.level {
                0 => RecordAddress::from_word(entry).map(|address| (least, address)),
                _ => self.first_in(entry as u32, from),
            };
            if found.is_some() {
                return found;
            }
            next = header.digit_from(digit + 1);
        }
        None
    }

    /// Sets the address of a segment. Returns the object's new word and the segment's former
    /// address.
    pub(super) fn insert(
        &mut self,
        object: u64,
        segment: u64,
        address: RecordAddress,
    ) -> (u64, Option<RecordAddress>) {
        let word = address.to_word();
        if object & ROOT == 0 {
            // Segment 0 alone needs no cell: the word is its address.
            let Some(sole) = RecordAddress::from_word(object) else {
                let is_sole = segment == 0;
                return (if is_sole { SOLE | word } else { self.leaf(segment, word) }, None);
            };
            if segment == 0 {
                return (SOLE | word, Some(sole));
            }
            // A second segment: give segment 0 a cell, then insert as usual.
            let root = self.leaf(0, sole.to_word());
            return self.insert(root, segment, address);
        }
        let mut root = object;
        let mut above: Option<PathStep> = None;
        let mut cell = object as u32;
        loop {
            let words = self.cells.words_mut(cell);
            let header = Header::of(words);
            let digit = digit(segment, header.level);
            if !header.covers(segment) {
                // The segment differs in a digit above this cell: a new cell joins the two.
                let fork = self.fork(cell, header.base, segment, word);
                self.link(&mut root, above, fork);
                return (root, None);
            }
            let at = header.position(digit);
            if !header.has(digit) {
                let entry = if header.level == 0 { word } else { self.leaf(segment, word) };
                let grown = self.add(cell, header, digit, entry);
                self.link(&mut root, above, grown);
                return (root, None);
            }
            if header.level == 0 {
                return (root, RecordAddress::from_word(core::mem::replace(&mut words[at], word)));
            }
            above = Some(PathStep { cell, at });
            cell = words[at] as u32;
        }
    }

    /// Most pages of cells that [`Segments::insert`] adds.
    pub(super) fn new_pages(&self, object: u64, segment: u64) -> usize {
        let lacks = |class: u8| usize::from(!self.cells.has_open(class));
        let [leaf, fork] = [1, 2].map(|entries| lacks(class_for(entries)));
        if object & ROOT == 0 {
            return match object {
                _ if segment == 0 => 0,
                EMPTY => leaf,
                // Two leaves at once may need one more page than there is space for.
                _ => 1 + leaf + fork,
            };
        }
        let mut cell = object as u32;
        loop {
            let words = self.cells.words(cell);
            let header = Header::of(words);
            let digit = digit(segment, header.level);
            if !header.covers(segment) {
                return leaf + fork;
            }
            if !header.has(digit) {
                let class = self.cells.class(cell);
                let is_full = header.digits.count_ones() == CAPACITIES[usize::from(class)].into();
                let grown = if is_full { lacks(class + 1) } else { 0 };
                return grown + if header.level == 0 { 0 } else { leaf };
            }
            if header.level == 0 {
                return 0;
            }
            cell = words[header.position(digit)] as u32;
        }
    }

    /// Removes a segment, if there is one. Returns the object's new word and the segment's former
    /// address. A cell moves to a smaller class if a page has space for it, or a page may be added.
    pub(super) fn remove(
        &mut self,
        object: u64,
        segment: u64,
        may_add_page: bool,
    ) -> (u64, Option<RecordAddress>) {
        if object & ROOT == 0 {
            let address = RecordAddress::from_word(object).filter(|_| segment == 0);
            return (if address.is_some() { EMPTY } else { object }, address);
        }
        let mut path = [PathStep { cell: 0, at: 0 }; LEVELS];
        let mut depth = 0;
        let mut cell = object as u32;
        let address = loop {
            let words = self.cells.words(cell);
            let header = Header::of(words);
            let digit = digit(segment, header.level);
            if !header.covers(segment) || !header.has(digit) {
                return (object, None);
            }
            let at = header.position(digit);
            path[depth] = PathStep { cell, at };
            depth += 1;
            if header.level == 0 {
                break RecordAddress::from_word(words[at]);
            }
            cell = words[at] as u32;
        };
        let mut root = object;
        // A cell that becomes empty is removed from the cell above, and so on up to the root.
        for step in (0..depth).rev() {
            let above = step.checked_sub(1).map(|above| path[above]);
            if let Some(left) = self.remove_entry(path[step], may_add_page) {
                self.link(&mut root, above, left);
                return (root, address);
            }
        }
        (EMPTY, address)
    }

    /// Moves the cells on the path to a segment out of pages that are nearly empty. Returns the
    /// object's new word.
    pub(super) fn compact(&mut self, object: u64, segment: u64) -> u64 {
        let mut root = object;
        let mut above = None;
        let mut word = object;
        while word & ROOT != 0 {
            let mut cell = word as u32;
            let header = Header::of(self.cells.words(cell));
            let len = HEADER_WORDS + header.digits.count_ones() as usize;
            if let Some(moved) = self.cells.move_from_draining(cell, len) {
                self.link(&mut root, above, ROOT | u64::from(moved));
                cell = moved;
            }
            let digit = digit(segment, header.level);
            if header.level == 0 || !header.covers(segment) || !header.has(digit) {
                break;
            }
            let at = header.position(digit);
            above = Some(PathStep { cell, at });
            word = self.cells.words(cell)[at];
        }
        root
    }

    /// Makes the object's word, or the entry above, refer to this cell.
    fn link(&mut self, root: &mut u64, above: Option<PathStep>, cell: u64) {
        match above {
            None => *root = cell,
            Some(PathStep { cell: above, at }) => self.cells.words_mut(above)[at] = cell,
        }
    }

    /// A cell of level 0 with one address.
    fn leaf(&mut self, segment: u64, word: u64) -> u64 {
        self.cell(segment, 0, 1 << digit(segment, 0), &[word])
    }

    fn cell(&mut self, segment: u64, level: u32, digits: u64, entries: &[u64]) -> u64 {
        let cell = self.cells.allocate(class_for(entries.len()));
        let words = self.cells.words_mut(cell);
        words[0] = base(segment, level) | u64::from(level);
        words[1] = digits;
        words[HEADER_WORDS..HEADER_WORDS + entries.len()].copy_from_slice(entries);
        ROOT | u64::from(cell)
    }

    /// A new cell above `cell`, whose numbers have the common digits `base`, and above a new leaf
    /// for `segment`.
    fn fork(&mut self, cell: u32, base: u64, segment: u64, word: u64) -> u64 {
        let level = (segment ^ base).ilog2() / 6;
        let (old, new) = (digit(base, level), digit(segment, level));
        let mut entries = [ROOT | u64::from(cell), self.leaf(segment, word)];
        if new < old {
            entries.reverse();
        }
        self.cell(segment, level, 1 << old | 1 << new, &entries)
    }

    /// Adds an entry to a cell, which may move to a larger class.
    fn add(&mut self, cell: u32, header: Header, digit: u32, entry: u64) -> u64 {
        let at = header.position(digit);
        let end = HEADER_WORDS + header.digits.count_ones() as usize;
        let class = self.cells.class(cell);
        let mut target = cell;
        if end == HEADER_WORDS + usize::from(CAPACITIES[usize::from(class)]) {
            target = self.cells.relocate(cell, class + 1, end);
        }
        let words = self.cells.words_mut(target);
        words.copy_within(at..end, at + 1);
        words[at] = entry;
        words[1] |= 1 << digit;
        ROOT | u64::from(target)
    }

    /// Removes an entry from a cell. Returns what replaces the cell in the tree: the cell, which
    /// may have moved; the only cell left below it; or nothing.
    fn remove_entry(&mut self, PathStep { cell, at }: PathStep, may_add_page: bool) -> Option<u64> {
        let class = self.cells.class(cell);
        let words = self.cells.words_mut(cell);
        let header = Header::of(words);
        let count = header.digits.count_ones() as usize - 1;
        let end = HEADER_WORDS + count;
        let mut digits = header.digits;
        for _ in HEADER_WORDS..at {
            digits &= digits - 1;
        }
        words[1] = header.digits & !(digits & digits.wrapping_neg());
        words.copy_within(at + 1..=end, at);
        if count == 0 || (count == 1 && header.level > 0) {
            let below = (count == 1).then_some(words[HEADER_WORDS]);
            self.cells.free(cell);
            return below;
        }
        // Shrink by one class only when two would do, so that a cell does not move back and forth.
        let is_loose = class >= 3 && count <= usize::from(CAPACITIES[usize::from(class) - 2]);
        let moves = is_loose && (may_add_page || self.cells.has_open(class - 1));
        let target = if moves { self.cells.relocate(cell, class - 1, end) } else { cell };
        Some(ROOT | u64::from(target))
    }
}

const _: () = assert!((SOLE | ROOT) & SPARE_BITS == SOLE | ROOT);
