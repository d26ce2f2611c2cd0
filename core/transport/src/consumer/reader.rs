//! Units that wait for the reader: in order or not, never more than it asked for.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::config::ReaderMode;
use super::outbox::Delivery;

/// A place in the order of units.
#[derive(Debug)]
enum Place {
    /// Its unit is not there yet.
    Open,
    /// It holds nothing for the reader.
    Passed,
    Ready(Delivery),
}

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Reader {
    mode: ReaderMode,
    /// The units from `base` on if the reader wants them in order, else those that are ready.
    places: VecDeque<Place>,
    base: u64,
    ready: u32,
    /// Units that the reader still takes.
    credit: u64,
}

impl Reader {
    pub(crate) fn new(mode: ReaderMode) -> Self {
        Self { mode, places: VecDeque::new(), base: 0, ready: 0, credit: 0 }
    }

    /// Before the first unit: how they are handed out.
    pub(crate) fn set_mode(&mut self, mode: ReaderMode) {
        debug_assert!(self.places.is_empty());
        self.mode = mode;
    }

    /// Whether there is a reader.
    pub(crate) fn is_there(&self) -> bool {
        self.mode != ReaderMode::None
    }

    /// Whether nothing waits for the reader.
    pub(crate) fn is_empty(&self) -> bool {
        self.ready == 0
    }

    /// Whether every unit that was asked for has been handed out or passed over.
    pub(crate) fn is_drained(&self) -> bool {
        self.places.is_empty()
    }

    /// The first unit, or the next one when all others have been handed out, is this one.
    pub(crate) fn start_at(&mut self, index: u64) {
        debug_assert!(self.places.is_empty());
        self.base = index;
    }

    /// The reader takes this many more.
    pub(crate) fn read(&mut self, units: u32) {
        self.credit += u64::from(units);
    }

    /// The unit `index` is there.
    pub(crate) fn put(&mut self, index: u64, delivery: Delivery) {
        self.ready += 1;
        match self.mode {
            ReaderMode::InOrder => self.set(index, Place::Ready(delivery)),
            _ => self.places.push_back(Place::Ready(delivery)),
        }
    }

    /// The unit `index` is nothing for the reader, or does not come.
    pub(crate) fn pass(&mut self, index: u64) {
        if self.mode == ReaderMode::InOrder {
            self.set(index, Place::Passed);
        }
    }

    /// As [`Reader::pass`], unless the unit is there.
    pub(crate) fn pass_open(&mut self, index: u64) {
        let at = index.checked_sub(self.base).map(|at| at as usize);
        let is_ready = at.is_some_and(|at| matches!(self.places.get(at), Some(Place::Ready(_))));
        if !is_ready {
            self.pass(index);
        }
    }

    fn set(&mut self, index: u64, place: Place) {
        let Some(at) = index.checked_sub(self.base) else { return };
        let at = at as usize;
        while self.places.len() <= at {
            self.places.push_back(Place::Open);
        }
        self.places[at] = place;
    }

    /// Hands out what the reader takes; how many units.
    pub(crate) fn hand_out(&mut self, out: &mut Vec<Delivery>) -> u32 {
        let mut count = 0;
        loop {
            match self.places.front() {
                Some(Place::Passed) => {}
                Some(Place::Ready(_)) if self.credit > 0 => {}
                _ => break,
            }
            if let Some(Place::Ready(delivery)) = self.places.pop_front() {
                out.push(delivery);
                self.credit -= 1;
                self.ready -= 1;
                count += 1;
            }
            self.base += 1;
        }
        count
    }
}
