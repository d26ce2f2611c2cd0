use super::ghost::GhostList;
use crate::entry::{Entry, List, NONE, PolicyLinks};
use weir_base::Slab;

/// In an entry's mark: it is in the main queue.
const MAIN: u32 = 1 << 8;
/// In an entry's mark: the uses, of which no more are counted.
pub(super) const USES_MAX: u32 = 3;
/// Uses after which an entry of the small queue moves to the main one.
pub(super) const USES_TO_PROMOTE: u32 = 2;
/// Entries that may be spared for one victim, so that no single packet pays for a whole queue.
pub(super) const SPARED_MAX: usize = 64;

/// S3-FIFO (Yang et al., "FIFO queues are all you need for cache eviction", SOSP 2023), by octets.
///
/// New entries go into a small queue, a tenth of the store; those used twice before they leave it
/// move to the main queue, where every use spares them one round. Names that fell out of the small
/// queue are remembered, and go to the main queue directly when they come back. A hit only counts
/// in the entry itself.
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

    /// An entry comes last into the small queue, remembered or not.
    #[inline]
    pub(super) fn push_small(&mut self, entries: &mut Slab<Entry>, index: u32) {
        self.entries += 1;
        self.put_in_small(entries, index);
    }

    /// An entry comes last into the main queue, remembered or not.
    #[inline]
    pub(super) fn push_main(&mut self, entries: &mut Slab<Entry>, index: u32) {
        self.entries += 1;
        self.put_in_main(entries, index);
    }

    #[inline]
    pub(super) fn on_hit(&mut self, entries: &mut Slab<Entry>, index: u32) {
        let mark = &mut entries[index].policy_state;
        if *mark & USES_MAX != USES_MAX {
            *mark += 1;
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
            let stays = spared < SPARED_MAX && uses >= if is_small { USES_TO_PROMOTE } else { 1 };
            if !stays {
                if is_small {
                    self.ghost.insert(entry.hash, self.ghost_capacity());
                }
                self.on_remove(entries, index);
                return Some(index);
            }
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

    /// Whether the next victim is looked for in the small queue.
    #[inline]
    fn is_small_next(&self) -> bool {
        let small_is_due = self.small_bytes >= self.main_bytes / 9;
        !self.small.is_empty() && (self.main.is_empty() || small_is_due)
    }

    /// The first entry that the next call for a victim looks at, or [`NONE`].
    #[inline]
    pub(super) fn next_candidate(&self) -> u32 {
        if self.is_small_next() { self.small.head() } else { self.main.head() }
    }

    /// The entry that has been in the main queue longest, or [`NONE`].
    #[inline]
    pub(super) fn main_head(&self) -> u32 {
        self.main.head()
    }

    /// The entry that came into the small queue last, or [`NONE`].
    #[inline]
    pub(super) fn small_tail(&self) -> u32 {
        self.small.tail()
    }

    #[inline]
    pub(super) fn bytes(&self) -> u64 {
        self.small_bytes + self.main_bytes
    }

    /// The victim that the main queue has, used ones spared; none where it is empty.
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

    /// Remembers a name that left without having been in the main queue.
    #[inline]
    pub(super) fn remember(&mut self, hash: u64) {
        self.ghost.insert(hash, self.ghost_capacity());
    }

    /// Whether a name fell out lately. It is not remembered any more.
    #[inline]
    pub(super) fn take_remembered(&mut self, hash: u64) -> bool {
        self.ghost.take(hash, self.ghost_capacity())
    }

    #[inline]
    pub(super) fn candidates(&self) -> [u32; 2] {
        [self.small.head(), self.main.head()]
    }

    /// How many names that fell out are remembered: as many as the main queue has room for.
    #[inline]
    fn ghost_capacity(&self) -> u32 {
        (self.entries - self.entries / 10) as u32
    }
}
