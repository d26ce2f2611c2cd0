use crate::entry::{Entry, List, NONE, PolicyLinks};
use weir_base::Slab;

/// First in, first out. With `MOVES_ON_HIT`, least recently used: a hit moves the entry to the end
/// of the queue.
pub(crate) struct Recency<const MOVES_ON_HIT: bool> {
    /// The next entry to evict comes first.
    queue: List<PolicyLinks>,
}

pub(crate) type Lru = Recency<true>;
pub(crate) type Fifo = Recency<false>;

impl<const MOVES_ON_HIT: bool> Recency<MOVES_ON_HIT> {
    pub(super) fn new() -> Self {
        Self { queue: List::EMPTY }
    }

    #[inline]
    pub(super) fn on_insert(&mut self, entries: &mut Slab<Entry>, index: u32) {
        self.queue.push_back(entries, index);
    }

    #[inline]
    pub(super) fn on_hit(&mut self, entries: &mut Slab<Entry>, index: u32) {
        if MOVES_ON_HIT && self.queue.tail() != index {
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
