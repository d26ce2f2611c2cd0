use crate::entry::{Entry, List, NONE, Queue};
use weir_base::Slab;

/// First in, first out.
pub(crate) struct Fifo {
    queue: List<Queue>,
}

impl Fifo {
    pub(super) fn new() -> Self {
        Self { queue: List::EMPTY }
    }

    #[inline]
    pub(super) fn on_insert(&mut self, entries: &mut Slab<Entry>, index: u32) {
        self.queue.push_back(entries, index);
    }

    #[inline]
    pub(super) fn on_hit(&mut self, _entries: &mut Slab<Entry>, _index: u32) {}

    #[inline]
    pub(super) fn on_remove(&mut self, entries: &mut Slab<Entry>, index: u32) {
        self.queue.unlink(entries, index);
    }

    #[inline]
    pub(super) fn take_victim(&mut self, entries: &mut Slab<Entry>) -> Option<u32> {
        let index = self.queue.head();
        if index == NONE {
            return None;
        }
        self.queue.unlink(entries, index);
        Some(index)
    }

    #[inline]
    pub(super) fn candidates(&self) -> [u32; 2] {
        [self.queue.head(), NONE]
    }
}
