use super::ghost::GhostList;
use crate::entry::{Entry, List, NONE, PolicyLinks};
use weir_base::Slab;

/// Flag in `policy_state`: the entry is in the main queue.
const MAIN: u32 = 1 << 8;
/// The largest use count, which occupies the low bits of `policy_state`.
pub(super) const USES_MAX: u32 = 3;
/// Uses after which an entry moves from the small to the main queue.
pub(super) const USES_TO_PROMOTE: u32 = 2;
/// Most entries that one eviction spares, so that no insertion pays for a whole queue.
pub(super) const SPARED_MAX: usize = 64;

/// S3-FIFO (Yang et al., "FIFO queues are all you need for cache eviction", SOSP 2023), counted in
/// bytes.
///
/// Most data is requested once and never again. S3-FIFO evicts such data after a short time, and a
/// hit costs one increment: no list changes, unlike LRU.
///
/// | list | share | holds |
/// |---|---|---|
/// | small | a tenth of the bytes | new entries, oldest first |
/// | main | the rest | entries that proved useful |
/// | ghost | names of as many entries as main has | names evicted from small, without data |
///
/// 1. *Insert*: a name that is in the ghost list goes to the end of main, since it was evicted too
///    early. Any other goes to the end of small.
/// 2. *Hit*: the entry's use count grows by one, up to [`USES_MAX`].
/// 3. *Evict*: look at the head of small if it holds its tenth of the bytes, else at the head of
///    main.
///    - small, two uses or more: the entry moves to the end of main, with a count of 0.
///    - small, fewer uses: evict it, and remember its name in the ghost list.
///    - main, one use or more: the entry moves to the end of main, with its count less one.
///    - main, no use: evict it. Its name is not remembered.
/// 4. Repeat step 3 until an entry was evicted. After [`SPARED_MAX`] spared entries the next one is
///    evicted with any count, so that one insertion never walks a whole queue.
///
/// Example: a store of 10 equal entries, 1 in small and 9 in main. `A` is inserted into small and
/// never requested: the next insertion evicts it and remembers its name. `B` is inserted and hit
/// twice: the next insertion moves `B` to main, where an unused entry is evicted. If `A` is fetched
/// again now, it goes to main at once.
pub(crate) struct S3Fifo {
    small: List<PolicyLinks>,
    main: List<PolicyLinks>,
    ghost: GhostList,
    small_bytes: u64,
    main_bytes: u64,
    entries: usize,
}

impl S3Fifo {
    pub(super) fn new() -> Self {
        Self {
            small: List::EMPTY,
            main: List::EMPTY,
            ghost: GhostList::new(),
            small_bytes: 0,
            main_bytes: 0,
            entries: 0,
        }
    }

    #[inline]
    pub(super) fn prefetch(&self, hash: u64) {
        self.ghost.prefetch(hash);
    }

    #[inline(always)]
    pub(super) fn on_insert(&mut self, entries: &mut Slab<Entry>, index: u32) {
        self.entries += 1;
        match self.ghost.take(entries[index].hash, self.ghost_capacity()) {
            true => self.put_in_main(entries, index),
            false => self.put_in_small(entries, index),
        }
    }

    #[inline(always)]
    fn put_in_small(&mut self, entries: &mut Slab<Entry>, index: u32) {
        let entry = &mut entries[index];
        entry.policy_state = 0;
        self.small_bytes += entry.memory_bytes();
        self.small.push_back(entries, index);
    }

    #[inline]
    fn put_in_main(&mut self, entries: &mut Slab<Entry>, index: u32) {
        let entry = &mut entries[index];
        entry.policy_state = MAIN;
        self.main_bytes += entry.memory_bytes();
        self.main.push_back(entries, index);
    }

    /// Appends an entry to the small queue, whether or not its name is remembered.
    #[inline]
    pub(super) fn push_small(&mut self, entries: &mut Slab<Entry>, index: u32) {
        self.entries += 1;
        self.put_in_small(entries, index);
    }

    /// Appends an entry to the main queue, whether or not its name is remembered.
    #[inline]
    pub(super) fn push_main(&mut self, entries: &mut Slab<Entry>, index: u32) {
        self.entries += 1;
        self.put_in_main(entries, index);
    }

    #[inline]
    pub(super) fn on_hit(&mut self, entries: &mut Slab<Entry>, index: u32) {
        let state = &mut entries[index].policy_state;
        if *state & USES_MAX != USES_MAX {
            *state += 1;
        }
    }

    #[inline(always)]
    pub(super) fn on_remove(&mut self, entries: &mut Slab<Entry>, index: u32) {
        self.entries -= 1;
        let entry = &entries[index];
        if entry.policy_state & MAIN == 0 {
            self.small_bytes -= entry.memory_bytes();
            self.small.unlink(entries, index);
        } else {
            self.main_bytes -= entry.memory_bytes();
            self.main.unlink(entries, index);
        }
    }

    #[inline]
    pub(super) fn take_victim(&mut self, entries: &mut Slab<Entry>) -> Option<u32> {
        let mut spared = 0;
        loop {
            let is_small = self.is_small_next();
            let index = if is_small { self.small.head() } else { self.main.head() };
            if index == NONE {
                return None;
            }
            let entry = &mut entries[index];
            let uses = entry.policy_state & USES_MAX;
            // As in the paper, a single use is not enough to move from small to main.
            let stays = spared < SPARED_MAX && uses >= if is_small { USES_TO_PROMOTE } else { 1 };
            if !stays {
                if is_small {
                    self.ghost.insert(entry.hash, self.ghost_capacity());
                }
                self.on_remove(entries, index);
                return Some(index);
            }
            // Spare the entry: the end of main is its next place, from either queue.
            spared += 1;
            if is_small {
                entry.policy_state = MAIN;
                let bytes = entry.memory_bytes();
                self.small_bytes -= bytes;
                self.main_bytes += bytes;
                self.small.unlink(entries, index);
            } else {
                entry.policy_state -= 1;
                self.main.unlink(entries, index);
            }
            self.main.push_back(entries, index);
        }
    }

    /// Whether the next eviction looks at the small queue first.
    #[inline]
    fn is_small_next(&self) -> bool {
        let small_is_due = self.small_bytes >= self.main_bytes / 9;
        !self.small.is_empty() && (self.main.is_empty() || small_is_due)
    }

    /// The first entry that the next eviction will look at, or [`NONE`].
    #[inline]
    pub(super) fn next_candidate(&self) -> u32 {
        if self.is_small_next() { self.small.head() } else { self.main.head() }
    }

    /// The oldest entry of the main queue, or [`NONE`].
    #[inline]
    pub(super) fn main_head(&self) -> u32 {
        self.main.head()
    }

    /// The newest entry of the small queue, or [`NONE`].
    #[inline]
    pub(super) fn small_tail(&self) -> u32 {
        self.small.tail()
    }

    #[inline]
    pub(super) fn bytes(&self) -> u64 {
        self.small_bytes + self.main_bytes
    }

    /// Removes and returns the next entry to evict from the main queue, or `None` if the queue is
    /// empty. Spares used entries, as in step 3.
    pub(super) fn take_from_main(&mut self, entries: &mut Slab<Entry>) -> Option<u32> {
        let mut spared = 0;
        loop {
            let index = self.main.head();
            let entry = entries.get_mut(index)?;
            if entry.policy_state & USES_MAX == 0 || spared == SPARED_MAX {
                self.on_remove(entries, index);
                return Some(index);
            }
            entry.policy_state -= 1;
            spared += 1;
            self.main.unlink(entries, index);
            self.main.push_back(entries, index);
        }
    }

    /// Adds a name to the ghost list.
    #[inline]
    pub(super) fn remember(&mut self, hash: u64) {
        self.ghost.insert(hash, self.ghost_capacity());
    }

    /// Whether a name was evicted lately. Removes it from the ghost list.
    #[inline]
    pub(super) fn take_remembered(&mut self, hash: u64) -> bool {
        self.ghost.take(hash, self.ghost_capacity())
    }

    #[inline]
    pub(super) fn candidates(&self) -> [u32; 2] {
        [self.small.head(), self.main.head()]
    }

    /// How many names the ghost list remembers: as many as the main queue has entries.
    #[inline]
    fn ghost_capacity(&self) -> u32 {
        (self.entries - self.entries / 10) as u32
    }
}
