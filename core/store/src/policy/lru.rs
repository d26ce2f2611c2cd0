use crate::entry::{Entry, List, NONE, Queue};
use weir_base::Slab;

/// Least recently used.
pub(crate) struct Lru {
    /// Least recent first.
    queue: List<Queue>,
}

impl Lru {
    pub(super) fn new() -> Self {
        Self { queue: List::EMPTY }
    }

    #[inline]
    pub(super) fn on_insert(&mut self, entries: &mut Slab<Entry>, index: u32) {
        self.queue.push_back(entries, index);
    }

    #[inline]
    pub(super) fn on_hit(&mut self, entries: &mut Slab<Entry>, index: u32) {
        if self.queue.tail() != index {
            self.queue.unlink(entries, index);
            self.queue.push_back(entries, index);
        }
    }

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
