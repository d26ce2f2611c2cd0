//! Data in memory that has not been offered to a disk yet.

use crate::entry::{Links, NONE};
use alloc::vec::Vec;

/// Marks the links of an entry that is not in the queue.
const ABSENT: u32 = NONE - 1;

/// Entries in order of arrival.
///
/// `links` is indexed by entry. The links are outside the entries because an entry already fills a
/// cache line, and because stores without disks need no queue.
pub(super) struct WriteQueue {
    links: Vec<Links>,
    head: u32,
    tail: u32,
    /// Bytes of memory of all entries in the queue.
    bytes: u64,
}

impl WriteQueue {
    pub(super) const fn new() -> Self {
        Self { links: Vec::new(), head: NONE, tail: NONE, bytes: 0 }
    }

    /// The entry that arrived first.
    #[inline]
    pub(super) fn first(&self) -> Option<u32> {
        (self.head != NONE).then_some(self.head)
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Appends an entry of `bytes` bytes that is not in the queue.
    #[inline]
    pub(super) fn push_back(&mut self, index: u32, bytes: u64) {
        self.bytes += bytes;
        let at = index as usize;
        if self.links.len() <= at {
            self.links.resize(at + 1, Links { next: ABSENT, previous: ABSENT });
        }
        debug_assert_eq!(self.links[at].next, ABSENT);
        self.links[at] = Links { next: NONE, previous: self.tail };
        match self.tail {
            NONE => self.head = index,
            tail => self.links[tail as usize].next = index,
        }
        self.tail = index;
    }

    /// Removes an entry of `bytes` bytes, if it is in the queue. An entry that was offered early is
    /// not in it any more.
    #[inline]
    pub(super) fn remove(&mut self, index: u32, bytes: u64) {
        let Some(links) = self.links.get_mut(index as usize) else { return };
        if links.next == ABSENT {
            return;
        }
        self.bytes -= bytes;
        let absent = Links { next: ABSENT, previous: ABSENT };
        let Links { next, previous } = core::mem::replace(links, absent);
        match previous {
            NONE => self.head = next,
            previous => self.links[previous as usize].next = next,
        }
        match next {
            NONE => self.tail = previous,
            next => self.links[next as usize].previous = previous,
        }
    }
}
