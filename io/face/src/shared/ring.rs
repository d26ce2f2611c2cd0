//! One direction of a pair of rings in memory that two processes share: octets, written by one side
//! and read by the other. No system here, so that loom can run it.
//!
//! Each side believes nothing that the other can write. It keeps its own place to itself, takes
//! the other's mark as a number that may be anything, and copies octets out before it looks at
//! them.
//!
//! Nobody polls. A reader that finds nothing says that it sleeps and looks once more; a writer
//! makes its octets known and then looks whether the reader sleeps. Between the two steps of either
//! lies a fence, so that one of them sees what the other did. The same holds for a writer without
//! room.

use super::atomic::{AtomicU32, Ordering, fence};

/// The other side's mark makes no sense: it is broken, or means harm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Broken;

/// What both sides tell each other, each part on cache lines of its own.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct Marks {
    pub(crate) written: Line,
    pub(crate) read: Line,
    pub(crate) reader: Line,
    pub(crate) writer: Line,
}

#[derive(Debug, Default)]
#[repr(C, align(128))]
pub(crate) struct Line(pub(crate) AtomicU32);

/// In `Marks::reader`, which zeroed memory has: the reader must be told of octets.
const READER_SLEEPS: u32 = 0;
const READER_LOOKS: u32 = 1;
/// In `Marks::writer`: the writer need not be told of room.
const WRITER_GOES_ON: u32 = 0;
const WRITER_WAITS: u32 = 1;

pub(crate) trait Memory {
    /// Octets of the ring, a power of two.
    const LEN: u32;

    fn marks(&self) -> &Marks;

    /// Copies `octets` to place `at`. Both ends are within the ring.
    fn put(&self, at: u32, octets: &[u8]);

    /// Copies the octets at place `at` out. Both ends are within the ring.
    fn take(&self, at: u32, octets: &mut [u8]);
}

#[derive(Debug)]
pub(crate) struct Writer<M> {
    memory: M,
    /// Octets put in so far, modulo 2^32, and how many of them the reader may know of.
    written: u32,
    published: u32,
    /// The reader's mark when it was looked at last.
    read: u32,
}

impl<M: Memory> Writer<M> {
    pub(crate) fn new(memory: M) -> Self {
        Self { memory, written: 0, published: 0, read: 0 }
    }

    /// Puts `parts` in, one after the other, if there is room for all of them. The reader learns
    /// of it with [`Self::publish`].
    #[inline]
    pub(crate) fn push(&mut self, parts: [&[u8]; 2]) -> Result<bool, Broken> {
        let len = parts[0].len() + parts[1].len();
        if !self.has_room(len) {
            self.look()?;
            if !self.has_room(len) {
                return Ok(false);
            }
        }
        for part in parts {
            self.put(part);
        }
        Ok(true)
    }

    /// Octets that were put in and may not be known to the reader.
    pub(crate) fn unpublished(&self) -> u32 {
        self.written.wrapping_sub(self.published)
    }

    /// Makes what was put in known to the reader. Whether it must be woken.
    #[must_use]
    pub(crate) fn publish(&mut self) -> bool {
        if self.published == self.written {
            return false;
        }
        self.published = self.written;
        let marks = self.memory.marks();
        marks.written.0.store(self.written, Ordering::Release);
        fence(Ordering::SeqCst);
        // Whoever wakes the reader sets this, so that it is woken once.
        marks.reader.0.load(Ordering::Relaxed) == READER_SLEEPS
            && marks.reader.0.swap(READER_LOOKS, Ordering::Relaxed) == READER_SLEEPS
    }

    /// There was no room for `len` octets. Whether there is by now; else the reader will tell.
    pub(crate) fn wait_for_room(&mut self, len: usize) -> Result<bool, Broken> {
        let marks = self.memory.marks();
        marks.writer.0.swap(WRITER_WAITS, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        self.look()?;
        let has_room = self.has_room(len);
        if has_room {
            self.memory.marks().writer.0.swap(WRITER_GOES_ON, Ordering::Relaxed);
        }
        Ok(has_room)
    }

    /// Whether the reader has said that there is room since this side began to wait.
    pub(crate) fn is_told(&self) -> bool {
        self.memory.marks().writer.0.load(Ordering::Relaxed) != WRITER_WAITS
    }

    /// Octets that the reader has yet to read, as far as can be said.
    pub(crate) fn waiting(&mut self) -> Result<u32, Broken> {
        self.look()?;
        Ok(self.written.wrapping_sub(self.read))
    }

    fn has_room(&self, len: usize) -> bool {
        (M::LEN - self.written.wrapping_sub(self.read)) as usize >= len
    }

    fn look(&mut self) -> Result<(), Broken> {
        let read = self.memory.marks().read.0.load(Ordering::Acquire);
        // It may have come nearer, to what is published at most.
        if read.wrapping_sub(self.read) > self.published.wrapping_sub(self.read) {
            return Err(Broken);
        }
        self.read = read;
        Ok(())
    }

    #[inline]
    fn put(&mut self, octets: &[u8]) {
        let at = self.written % M::LEN;
        let (first, rest) = octets.split_at(octets.len().min((M::LEN - at) as usize));
        self.memory.put(at, first);
        if !rest.is_empty() {
            self.memory.put(0, rest);
        }
        self.written = self.written.wrapping_add(octets.len() as u32);
    }
}

#[derive(Debug)]
pub(crate) struct Reader<M> {
    memory: M,
    /// Octets taken out so far, modulo 2^32.
    read: u32,
    /// It has said that it sleeps, and has not looked since.
    sleeps: bool,
}

impl<M: Memory> Reader<M> {
    pub(crate) fn new(memory: M) -> Self {
        Self { memory, read: 0, sleeps: true }
    }

    /// Octets that can be taken out.
    #[inline]
    pub(crate) fn available(&mut self) -> Result<u32, Broken> {
        let marks = self.memory.marks();
        if std::mem::take(&mut self.sleeps) {
            marks.reader.0.swap(READER_LOOKS, Ordering::Relaxed);
        }
        let available = marks.written.0.load(Ordering::Acquire).wrapping_sub(self.read);
        if available > M::LEN { Err(Broken) } else { Ok(available) }
    }

    /// Copies the oldest octets, at most as many as are available.
    pub(crate) fn copy(&self, octets: &mut [u8]) {
        let at = self.read % M::LEN;
        let (first, rest) = octets.split_at_mut(octets.len().min((M::LEN - at) as usize));
        self.memory.take(at, first);
        if !rest.is_empty() {
            self.memory.take(0, rest);
        }
    }

    /// Gives the room of the oldest `len` octets back, at most as many as are available. Whether
    /// the writer must be woken: when half of the ring is free, and not for each packet.
    #[must_use]
    pub(crate) fn release(&mut self, len: u32) -> bool {
        self.read = self.read.wrapping_add(len);
        let marks = self.memory.marks();
        marks.read.0.store(self.read, Ordering::Release);
        fence(Ordering::SeqCst);
        let left = marks.written.0.load(Ordering::Relaxed).wrapping_sub(self.read);
        left <= M::LEN / 2
            && marks.writer.0.load(Ordering::Relaxed) == WRITER_WAITS
            && marks.writer.0.swap(WRITER_GOES_ON, Ordering::Relaxed) == WRITER_WAITS
    }

    /// Nothing was available. Has the bells taken that have rung, says that this side sleeps, and
    /// looks once more. Whether there is nothing still; then the writer will wake this side.
    ///
    /// In this order: a bell that rings after this side has said so is for what nobody has seen
    /// yet, and must be left to wake it.
    pub(crate) fn sleep(&mut self, take_bells: impl FnOnce()) -> Result<bool, Broken> {
        take_bells();
        self.memory.marks().reader.0.swap(READER_SLEEPS, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        self.sleeps = true;
        let written = self.memory.marks().written.0.load(Ordering::Acquire);
        if written == self.read {
            return Ok(true);
        }
        self.available().map(|_| false)
    }
}
