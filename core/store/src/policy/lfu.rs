use crate::entry::{Entry, List, NONE, PolicyLinks};
use weir_base::Slab;

/// All entries with the same number of uses.
struct Level {
    uses: u64,
    /// The least recently used entry comes first.
    queue: List<PolicyLinks>,
    /// The level with the next higher count.
    next: u32,
    previous: u32,
}

/// Least frequently used, in constant time (Shah, Mitra and Matani, 2010): a list of levels, each
/// with a list of entries.
///
/// An entry's `policy_state` is its level. There are never more levels than entries, plus one while
/// an entry moves. `on_insert` reserves memory for all of them, because the spread of use counts
/// keeps growing in a full store and a hit must not allocate.
pub(crate) struct Lfu {
    levels: Slab<Level>,
    lowest: u32,
}

impl Lfu {
    pub(super) fn new() -> Self {
        Self { levels: Slab::new(), lowest: NONE }
    }

    #[inline]
    pub(super) fn on_insert(&mut self, entries: &mut Slab<Entry>, index: u32) {
        self.levels.reserve(entries.len() + 1);
        let level = self.level_after(NONE, 1);
        self.put(entries, index, level);
    }

    #[inline]
    pub(super) fn on_hit(&mut self, entries: &mut Slab<Entry>, index: u32) {
        let from = entries[index].policy_state;
        let uses = self.levels[from].uses.saturating_add(1);
        // An entry that is alone takes its level along, unless the next level has that count.
        if self.stands_alone(index, from) && !self.next_has(from, uses) {
            self.levels[from].uses = uses;
            return;
        }
        let to = self.level_after(from, uses);
        self.levels[from].queue.unlink(entries, index);
        self.drop_if_empty(from);
        self.put(entries, index, to);
    }

    #[inline]
    pub(super) fn on_remove(&mut self, entries: &mut Slab<Entry>, index: u32) {
        let level = entries[index].policy_state;
        self.levels[level].queue.unlink(entries, index);
        self.drop_if_empty(level);
    }

    #[inline]
    pub(super) fn take_victim(&mut self, entries: &mut Slab<Entry>) -> Option<u32> {
        if self.lowest == NONE {
            return None;
        }
        let index = self.levels[self.lowest].queue.head();
        self.on_remove(entries, index);
        Some(index)
    }

    #[inline]
    pub(super) fn candidates(&self) -> [u32; 2] {
        [self.levels.get(self.lowest).map_or(NONE, |level| level.queue.head()), NONE]
    }

    fn put(&mut self, entries: &mut Slab<Entry>, index: u32, level: u32) {
        entries[index].policy_state = level;
        self.levels[level].queue.push_back(entries, index);
    }

    fn stands_alone(&self, index: u32, level: u32) -> bool {
        let queue = &self.levels[level].queue;
        queue.head() == index && queue.tail() == index
    }

    fn next_has(&self, level: u32, uses: u64) -> bool {
        self.levels.get(self.levels[level].next).is_some_and(|next| next.uses == uses)
    }

    /// The level for `uses`, which follows `previous` ([`NONE`]: the lowest). Creates it if needed.
    fn level_after(&mut self, previous: u32, uses: u64) -> u32 {
        let next = match previous {
            NONE => self.lowest,
            previous => self.levels[previous].next,
        };
        if self.levels.get(next).is_some_and(|level| level.uses == uses) {
            return next;
        }
        let level = self.levels.insert(Level { uses, queue: List::EMPTY, next, previous });
        match previous {
            NONE => self.lowest = level,
            previous => self.levels[previous].next = level,
        }
        if next != NONE {
            self.levels[next].previous = level;
        }
        level
    }

    fn drop_if_empty(&mut self, level: u32) {
        if !self.levels[level].queue.is_empty() {
            return;
        }
        let Level { next, previous, .. } = self.levels.remove(level);
        match previous {
            NONE => self.lowest = next,
            previous => self.levels[previous].next = next,
        }
        if next != NONE {
            self.levels[next].previous = previous;
        }
    }
}
