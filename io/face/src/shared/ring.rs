//! One direction of a shared-memory connection: a ring of bytes with one writer and one reader in
//! two processes. No system calls here, so loom can run it (`tests/ring_loom.rs`).
//!
//! Trust: each side keeps its own position in private memory. It treats the other's mark as an
//! arbitrary number, checks it, and copies bytes out of the ring before it interprets them.
//!
//! Wake-ups: neither side polls. Before it sleeps, a reader sets `reader` to asleep, issues a full
//! fence, and reads `written` once more. A writer advances `written`, issues a full fence, and then
//! reads `reader`. So either the reader sees the new bytes, or the writer sees that the reader
//! sleeps and wakes it. A writer without space uses `writer` and `read` in the same way.
//! `shared.rs` explains the whole connection.

use super::atomic::{AtomicU32, Ordering, fence};

/// The other side's mark is impossible: it is faulty or hostile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Broken;

/// Positions and flags that both sides share, each on a cache line of its own. All start as 0, the
/// content of new memory.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct Marks {
    pub(crate) written: CacheLine,
    pub(crate) read: CacheLine,
    pub(crate) reader: CacheLine,
    pub(crate) writer: CacheLine,
}

#[derive(Debug, Default)]
#[repr(C, align(128))]
pub(crate) struct CacheLine(pub(crate) AtomicU32);

/// Values of `Marks::reader`. 0, the initial value: the reader sleeps and must be woken.
const READER_ASLEEP: u32 = 0;
const READER_AWAKE: u32 = 1;
/// Values of `Marks::writer`. 0: the writer does not wait for space.
const WRITER_RUNNING: u32 = 0;
const WRITER_WAITING: u32 = 1;

/// The memory of one ring.
pub(crate) trait Memory {
    /// Size of the ring in bytes, a power of two.
    const LEN: u32;

    fn marks(&self) -> &Marks;

    /// Copies `octets` to position `at`. Both ends are within the ring.
    fn put(&self, at: u32, octets: &[u8]);

    /// Copies bytes from position `at`. Both ends are within the ring.
    fn take(&self, at: u32, octets: &mut [u8]);
}

#[derive(Debug)]
pub(crate) struct Writer<M> {
    memory: M,
    /// Bytes written so far, modulo 2^32, and how many of them are published to the reader.
    written: u32,
    published: u32,
    /// The reader's mark when it was last read.
    read: u32,
}

impl<M: Memory> Writer<M> {
    pub(crate) fn new(memory: M) -> Self {
        Self { memory, written: 0, published: 0, read: 0 }
    }

    /// Appends `parts`, one after the other, if both fit. [`Self::publish`] makes them visible to
    /// the reader.
    #[inline]
    pub(crate) fn push(&mut self, parts: [&[u8]; 2]) -> Result<bool, Broken> {
        let len = parts[0].len() + parts[1].len();
        if !self.has_room(len) {
            self.load_read_mark()?;
            if !self.has_room(len) {
                return Ok(false);
            }
        }
        for part in parts {
            self.put(part);
        }
        Ok(true)
    }

    /// Bytes that were written and are not published.
    pub(crate) fn unpublished(&self) -> u32 {
        self.written.wrapping_sub(self.published)
    }

    /// Publishes what was written. Returns whether the reader must be woken.
    #[must_use]
    pub(crate) fn publish(&mut self) -> bool {
        if self.published == self.written {
            return false;
        }
        self.published = self.written;
        let marks = self.memory.marks();
        marks.written.0.store(self.written, Ordering::Release);
        fence(Ordering::SeqCst);
        // The first writer to find the reader asleep sets this, so it is woken once.
        marks.reader.0.load(Ordering::Relaxed) == READER_ASLEEP
            && marks.reader.0.swap(READER_AWAKE, Ordering::Relaxed) == READER_ASLEEP
    }

    /// Announces that the writer waits for space for `len` bytes. Returns whether there is space by
    /// now; otherwise the reader will wake this side.
    pub(crate) fn wait_for_space(&mut self, len: usize) -> Result<bool, Broken> {
        let marks = self.memory.marks();
        marks.writer.0.swap(WRITER_WAITING, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        self.load_read_mark()?;
        let has_room = self.has_room(len);
        if has_room {
            self.memory.marks().writer.0.swap(WRITER_RUNNING, Ordering::Relaxed);
        }
        Ok(has_room)
    }

    /// Whether the reader has announced free space since this side began to wait.
    pub(crate) fn is_woken(&self) -> bool {
        self.memory.marks().writer.0.load(Ordering::Relaxed) != WRITER_WAITING
    }

    /// Bytes that the reader has not reported as read.
    pub(crate) fn waiting(&mut self) -> Result<u32, Broken> {
        self.load_read_mark()?;
        Ok(self.written.wrapping_sub(self.read))
    }

    fn has_room(&self, len: usize) -> bool {
        (M::LEN - self.written.wrapping_sub(self.read)) as usize >= len
    }

    fn load_read_mark(&mut self) -> Result<(), Broken> {
        let read = self.memory.marks().read.0.load(Ordering::Acquire);
        // The mark may only have moved forward, up to what is published.
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
    /// Bytes read so far, modulo 2^32.
    read: u32,
    /// Whether this side has announced that it sleeps, and has not checked the ring since.
    sleeps: bool,
}

impl<M: Memory> Reader<M> {
    pub(crate) fn new(memory: M) -> Self {
        Self { memory, read: 0, sleeps: true }
    }

    /// Number of bytes that can be read.
    #[inline]
    pub(crate) fn available(&mut self) -> Result<u32, Broken> {
        let marks = self.memory.marks();
        if std::mem::take(&mut self.sleeps) {
            marks.reader.0.swap(READER_AWAKE, Ordering::Relaxed);
        }
        let available = marks.written.0.load(Ordering::Acquire).wrapping_sub(self.read);
        if available > M::LEN { Err(Broken) } else { Ok(available) }
    }

    /// Copies the oldest bytes, at most as many as are available.
    pub(crate) fn copy(&self, octets: &mut [u8]) {
        let at = self.read % M::LEN;
        let (first, rest) = octets.split_at_mut(octets.len().min((M::LEN - at) as usize));
        self.memory.take(at, first);
        if !rest.is_empty() {
            self.memory.take(0, rest);
        }
    }

    /// Releases the space of the oldest `len` bytes, at most as many as are available. Returns
    /// whether the writer must be woken: once half of the ring is free, not for each packet.
    #[must_use]
    pub(crate) fn release(&mut self, len: u32) -> bool {
        self.read = self.read.wrapping_add(len);
        let marks = self.memory.marks();
        marks.read.0.store(self.read, Ordering::Release);
        fence(Ordering::SeqCst);
        let left = marks.written.0.load(Ordering::Relaxed).wrapping_sub(self.read);
        left <= M::LEN / 2
            && marks.writer.0.load(Ordering::Relaxed) == WRITER_WAITING
            && marks.writer.0.swap(WRITER_RUNNING, Ordering::Relaxed) == WRITER_WAITING
    }

    /// Call this when nothing is available. Discards old doorbells, announces that this side
    /// sleeps, and checks the ring again. Returns whether the ring is still empty. If so, the
    /// writer will wake this side.
    ///
    /// The order matters. A doorbell that rings after the announcement is for bytes that this side
    /// has not seen, so it must not be discarded.
    pub(crate) fn sleep(&mut self, take_bells: impl FnOnce()) -> Result<bool, Broken> {
        take_bells();
        self.memory.marks().reader.0.swap(READER_ASLEEP, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        self.sleeps = true;
        let written = self.memory.marks().written.0.load(Ordering::Acquire);
        if written == self.read {
            return Ok(true);
        }
        self.available().map(|_| false)
    }
}
