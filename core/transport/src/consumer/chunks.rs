//! The chunks from the first that is open to the last that was asked for, with a bit for each of
//! their units.
//!
//! A chunk is what the window counts: some units one after another, one by default (paper chopcop,
//! 3: a chunk is cut into packets). Chunks end at multiples of their length, so that consumers of
//! the same object cut it alike; one is shorter where the last unit is known when it is asked for.

use alloc::collections::VecDeque;

use super::slot::{Slot, State};

/// Units of a chunk at most.
pub const CHUNK_UNITS_MAX: u32 = 1024;

/// See the module's text.
pub(crate) struct Chunks {
    units_max: u64,
    slots: VecDeque<Slot>,
    /// Which units of each slot are wanted and have not come, in as many words for each.
    open: VecDeque<u64>,
    /// Which of these were refused since the chunk was sent last, likewise.
    refused: VecDeque<u64>,
    words: usize,
    /// The first unit that is in no chunk yet.
    next_index: u64,
}

impl Chunks {
    pub(crate) fn new(units_max: u32) -> Self {
        let units_max = units_max.clamp(1, CHUNK_UNITS_MAX);
        Self {
            units_max: u64::from(units_max),
            slots: VecDeque::new(),
            open: VecDeque::new(),
            refused: VecDeque::new(),
            words: units_max.div_ceil(u64::BITS) as usize,
            next_index: 0,
        }
    }

    /// Nothing before `index` is wanted.
    pub(crate) fn start_at(&mut self, index: u64) {
        debug_assert!(self.slots.is_empty());
        self.next_index = index;
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Units between the first and the last, about.
    pub(crate) fn units(&self) -> u64 {
        self.slots.len() as u64 * self.units_max
    }

    /// The first unit that is in no chunk yet.
    pub(crate) fn next_index(&self) -> u64 {
        self.next_index
    }

    /// The first unit of the first chunk.
    pub(crate) fn first_index(&self) -> u64 {
        self.slots.front().map_or(self.next_index, |slot| slot.first)
    }

    #[cfg(test)]
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Slot> {
        self.slots.iter()
    }

    pub(crate) fn slot(&self, at: usize) -> &Slot {
        &self.slots[at]
    }

    pub(crate) fn slot_mut(&mut self, at: usize) -> &mut Slot {
        &mut self.slots[at]
    }

    /// The place of the chunk that has the unit `index`.
    pub(crate) fn find(&self, index: u64) -> Option<usize> {
        let first = self.slots.front()?.first;
        if index < first || index >= self.next_index {
            return None;
        }
        // A few chunks are shorter: the place is this one, or soon after.
        let at = (index / self.units_max - first / self.units_max) as usize;
        (at..self.slots.len()).find(|&at| self.slots[at].units().contains(&index))
    }

    /// Adds a chunk of the next units, those that `is_open`, up to `limit`. Its place; the caller
    /// has checked that there is a unit.
    pub(crate) fn push(
        &mut self,
        slot: Slot,
        limit: u64,
        mut is_open: impl FnMut(u64) -> bool,
    ) -> usize {
        let first = self.next_index;
        let end = (first / self.units_max + 1).saturating_mul(self.units_max).min(limit);
        debug_assert!(first < end);
        let mut slot = Slot { first, len: (end - first) as u32, open: 0, ..slot };
        for word in 0..self.words as u64 {
            let start = (first + word * u64::from(u64::BITS)).min(end);
            let units = start..(start + u64::from(u64::BITS)).min(end);
            let mut bits = 0;
            for (bit, index) in units.enumerate() {
                bits |= u64::from(is_open(index)) << bit;
            }
            slot.open += bits.count_ones();
            self.open.push_back(bits);
            self.refused.push_back(0);
        }
        self.slots.push_back(slot);
        self.next_index = end;
        self.slots.len() - 1
    }

    /// Which word of [`Chunks::open`], and which bit of it.
    fn bit(&self, at: usize, index: u64) -> (usize, u64) {
        let place = index - self.slots[at].first;
        let word = at * self.words + (place / u64::from(u64::BITS)) as usize;
        (word, 1 << (place % u64::from(u64::BITS)))
    }

    /// Whether a unit is wanted and has not come.
    pub(crate) fn is_open(&self, at: usize, index: u64) -> bool {
        let (word, bit) = self.bit(at, index);
        self.open[word] & bit != 0
    }

    /// A unit is wanted no more: it has come, or is given up. Whether it was wanted.
    pub(crate) fn close(&mut self, at: usize, index: u64) -> bool {
        let (word, bit) = self.bit(at, index);
        let was_open = self.open[word] & bit != 0;
        self.open[word] &= !bit;
        self.slots[at].open -= u32::from(was_open);
        let was_refused = self.refused[word] & bit != 0;
        self.refused[word] &= !bit;
        self.slots[at].nacked -= u32::from(was_refused);
        was_open
    }

    /// A unit that is open was refused. Whether it was not before: a Nack may come twice.
    pub(crate) fn refuse(&mut self, at: usize, index: u64) -> bool {
        let (word, bit) = self.bit(at, index);
        let is_new = self.refused[word] & bit == 0;
        self.refused[word] |= bit;
        self.slots[at].nacked += u32::from(is_new);
        is_new
    }

    /// A chunk is sent again: nothing of it is refused.
    pub(crate) fn forget_refused(&mut self, at: usize) {
        if self.slots[at].nacked > 0 {
            self.slots[at].nacked = 0;
            self.refused
                .range_mut(at * self.words..(at + 1) * self.words)
                .for_each(|bits| *bits = 0);
        }
    }

    /// The units of a chunk that are wanted and have not come.
    pub(crate) fn open_units(&self, at: usize) -> impl Iterator<Item = u64> {
        let first = self.slots[at].first;
        let words = self.open.range(at * self.words..(at + 1) * self.words);
        words.enumerate().flat_map(move |(word, &bits)| {
            let first = first + (word as u64) * u64::from(u64::BITS);
            (0..u64::from(u64::BITS))
                .filter(move |bit| bits >> bit & 1 != 0)
                .map(move |b| first + b)
        })
    }

    /// Takes the units from `limit` on, which are closed, out of the last chunk, and the chunk
    /// itself if none is left.
    pub(crate) fn cut(&mut self, limit: u64) {
        let Some(slot) = self.slots.back_mut() else { return };
        self.next_index = limit.clamp(slot.first, self.next_index);
        slot.len = (self.next_index - slot.first) as u32;
        if slot.len == 0 {
            self.slots.pop_back();
            self.open.truncate(self.slots.len() * self.words);
            self.refused.truncate(self.slots.len() * self.words);
        }
    }

    /// Forgets the leading chunks that are done.
    pub(crate) fn shift(&mut self) {
        while self.slots.front().is_some_and(|slot| slot.state == State::Done) {
            self.slots.pop_front();
            self.open.drain(..self.words);
            self.refused.drain(..self.words);
        }
    }
}
