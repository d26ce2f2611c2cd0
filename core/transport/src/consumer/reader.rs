//! Segments that wait for the reader. Delivers them in order or as they arrive, never more than the
//! reader requested.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::config::ReaderMode;
use super::outbox::Delivery;

#[derive(Debug)]
enum ReaderEntry {
    /// The packet has not arrived.
    Missing,
    /// The packet is no segment, or will not arrive.
    Skipped,
    Ready(Delivery),
}

#[derive(Debug)]
pub(crate) struct Reader {
    mode: ReaderMode,
    /// In order: the packets from index `base_index` on. Otherwise: the segments that are ready.
    entries: VecDeque<ReaderEntry>,
    base_index: u64,
    ready: u32,
    /// Packets received and not delivered: held, being verified, or ready.
    unread: u32,
    /// How many more segments the reader takes.
    credit: u64,
}

impl Reader {
    pub(crate) fn new(mode: ReaderMode) -> Self {
        Self { mode, entries: VecDeque::new(), base_index: 0, ready: 0, unread: 0, credit: 0 }
    }

    /// Sets how segments are delivered, before the first one.
    pub(crate) fn set_mode(&mut self, mode: ReaderMode) {
        debug_assert!(self.entries.is_empty());
        self.mode = mode;
    }

    pub(crate) fn is_enabled(&self) -> bool {
        self.mode != ReaderMode::None
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ready == 0
    }

    /// Whether every requested segment has been delivered or skipped.
    pub(crate) fn is_drained(&self) -> bool {
        self.entries.is_empty()
    }

    /// Packets received and not delivered.
    pub(crate) fn unread(&self) -> u32 {
        self.unread
    }

    /// Sets the next index to deliver: at the start, or when everything has been delivered.
    pub(crate) fn start_at(&mut self, index: u64) {
        debug_assert!(self.entries.is_empty());
        self.base_index = index;
    }

    /// The reader takes this many more.
    pub(crate) fn read(&mut self, segments: u32) {
        self.credit += u64::from(segments);
    }

    /// A packet arrived. It uses the buffer until it is delivered or [dropped](Self::drop_unread).
    pub(crate) fn add_unread(&mut self) {
        self.unread += 1;
    }

    /// These packets are not for the reader.
    pub(crate) fn drop_unread(&mut self, count: u32) {
        self.unread -= count;
    }

    /// The segment of this index is ready.
    pub(crate) fn add_ready(&mut self, index: u64, delivery: Delivery) {
        self.ready += 1;
        match self.mode {
            ReaderMode::InOrder => self.set(index, ReaderEntry::Ready(delivery)),
            _ => self.entries.push_back(ReaderEntry::Ready(delivery)),
        }
    }

    /// The packet of this index is no segment, or will not arrive.
    pub(crate) fn skip(&mut self, index: u64) {
        if self.mode == ReaderMode::InOrder {
            self.set(index, ReaderEntry::Skipped);
        }
    }

    /// As [`Reader::skip`], unless the segment is ready.
    pub(crate) fn skip_missing(&mut self, index: u64) {
        let at = index.checked_sub(self.base_index).map(|at| at as usize);
        let is_ready =
            at.is_some_and(|at| matches!(self.entries.get(at), Some(ReaderEntry::Ready(_))));
        if !is_ready {
            self.skip(index);
        }
    }

    fn set(&mut self, index: u64, entry: ReaderEntry) {
        let Some(at) = index.checked_sub(self.base_index) else { return };
        let at = at as usize;
        while self.entries.len() <= at {
            self.entries.push_back(ReaderEntry::Missing);
        }
        self.entries[at] = entry;
    }

    /// Delivers as many segments as the reader takes.
    pub(crate) fn hand_out(&mut self, out: &mut Vec<Delivery>) {
        loop {
            match self.entries.front() {
                Some(ReaderEntry::Skipped) => {}
                Some(ReaderEntry::Ready(_)) if self.credit > 0 => {}
                _ => break,
            }
            if let Some(ReaderEntry::Ready(delivery)) = self.entries.pop_front() {
                out.push(delivery);
                self.credit -= 1;
                self.ready -= 1;
                self.unread -= 1;
            }
            self.base_index += 1;
        }
    }
}
