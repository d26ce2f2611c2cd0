use super::ghost::Ghost;
use crate::entry::{Entry, List, NONE, Queue};
use weir_base::Slab;

/// In an entry's mark: it is in the main queue.
const MAIN: u32 = 1 << 8;
/// In an entry's mark: the uses, of which no more are counted.
const USES_MAX: u32 = 3;
/// Uses after which an entry of the small queue moves to the main one.
const USES_TO_STAY: u32 = 2;
/// Entries that may be spared for one victim, so that no single packet pays for a whole queue.
const SPARED_MAX: usize = 64;

/// S3-FIFO (Yang et al., "FIFO queues are all you need for cache eviction", SOSP 2023), by octets.
///
/// New entries go into a small queue, a tenth of the store; those used twice before they leave it
/// move to the main queue, where every use spares them one round. Names that fell out of the small
/// queue are remembered, and go to the main queue directly when they come back. A hit only counts
/// in the entry itself.
pub(crate) struct S3Fifo {
    small: List<Queue>,
    main: List<Queue>,
    ghost: Ghost,
    small_bytes: u64,
    main_bytes: u64,
    entries: usize,
}

impl S3Fifo {
    pub(super) fn new() -> Self {
        Self {
            small: List::EMPTY,
            main: List::EMPTY,
            ghost: Ghost::new(),
            small_bytes: 0,
            main_bytes: 0,
            entries: 0,
        }
    }

    #[inline]
    pub(super) fn prefetch(&self, hash: u64) {
        self.ghost.prefetch(hash);
    }

    #[inline]
    pub(super) fn on_insert(&mut self, entries: &mut Slab<Entry>, index: u32) {
        self.entries += 1;
        let entry = &mut entries[index];
        if self.ghost.take(entry.hash, self.window()) {
            entry.mark = MAIN;
            self.main_bytes += entry.bytes();
            self.main.push_back(entries, index);
        } else {
            entry.mark = 0;
            self.small_bytes += entry.bytes();
            self.small.push_back(entries, index);
        }
    }

    #[inline]
    pub(super) fn on_hit(&mut self, entries: &mut Slab<Entry>, index: u32) {
        let mark = &mut entries[index].mark;
        if *mark & USES_MAX != USES_MAX {
            *mark += 1;
        }
    }

    #[inline]
    pub(super) fn on_remove(&mut self, entries: &mut Slab<Entry>, index: u32) {
        self.entries -= 1;
        let entry = &entries[index];
        if entry.mark & MAIN == 0 {
            self.small_bytes -= entry.bytes();
            self.small.unlink(entries, index);
        } else {
            self.main_bytes -= entry.bytes();
            self.main.unlink(entries, index);
        }
    }

    #[inline]
    pub(super) fn take_victim(&mut self, entries: &mut Slab<Entry>) -> Option<u32> {
        let mut spared = 0;
        loop {
            let small_is_due = self.small_bytes >= self.main_bytes / 9;
            let is_small = !self.small.is_empty() && (self.main.is_empty() || small_is_due);
            let index = if is_small { self.small.head() } else { self.main.head() };
            if index == NONE {
                return None;
            }
            let entry = &mut entries[index];
            let uses = entry.mark & USES_MAX;
            let stays = spared < SPARED_MAX && uses >= if is_small { USES_TO_STAY } else { 1 };
            if !stays {
                if is_small {
                    self.ghost.insert(entry.hash, self.window());
                }
                self.on_remove(entries, index);
                return Some(index);
            }
            spared += 1;
            if is_small {
                entry.mark = MAIN;
                let bytes = entry.bytes();
                self.small_bytes -= bytes;
                self.main_bytes += bytes;
                self.small.unlink(entries, index);
            } else {
                entry.mark -= 1;
                self.main.unlink(entries, index);
            }
            self.main.push_back(entries, index);
        }
    }

    #[inline]
    pub(super) fn candidates(&self) -> [u32; 2] {
        [self.small.head(), self.main.head()]
    }

    /// How many names that fell out are remembered: as many as the main queue has room for.
    #[inline]
    fn window(&self) -> u32 {
        (self.entries - self.entries / 10) as u32
    }
}
