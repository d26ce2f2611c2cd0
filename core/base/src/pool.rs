use crate::block::{Header, PoolShared, closed_marker, fits_in_span, release_block};
use crate::class::{self, CLASSES};
use crate::packet::{Packet, PacketMut};
use crate::source::SpanSource;
use crate::span::Spans;
use alloc::boxed::Box;
use alloc::sync::Arc;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// The source of packet buffers of one thread.
///
/// A packet lives in a *block* of one of 37 size classes (`class.rs`): a header with the count of
/// its holders, then the payload. Packets travel between threads, and their blocks come home.
///
/// 1. **Allocate.** [`Pool::alloc`] takes a block from the free list of the class. If the list is
///    empty, it collects the blocks that other threads have returned, and then gets a new one.
/// 2. **Return.** The thread that drops the last [`Packet`] of a block pushes the block on the
///    pool's return stack: one compare-and-swap, no lock. The owner takes the whole stack with one
///    swap.
/// 3. **Recycle.** [`Pool::recycle`] and [`Packet::share`] need no locked instructions if the
///    packet has no other holder. In a router, that is so for nearly all packets.
/// 4. **Limits.** Free lists and return stack hold half of `cached_bytes_max` each. The pool frees
///    blocks of other classes first, as those may be out of use.
///
/// Without a [`SpanSource`], blocks come from the global allocator. With one, the pool cuts them
/// off *spans* (`span.rs`): aligned areas of memory that hold blocks of one class. A span goes back
/// to the source once all of its blocks are free, so memory moves between classes and between
/// pools. Blocks of more than a sixteenth of a span come from the global allocator all the same.
///
/// Example: a router's store fills with Data of 8 KiB, then with Data of 1 KiB. The store evicts
/// the old packets one by one. When the last block of a span is free, the pool returns the span to
/// the source and can cut it into blocks of 1 KiB. If a few old packets keep many nearly empty
/// spans in use ([`Pool::is_fragmented`]), the owner moves them with [`Pool::compact`].
///
/// Packets may outlive their pool: dropping it marks the return stack as closed, and the last
/// holder of each block or span frees it.
pub struct Pool {
    shared: NonNull<PoolShared>,
    /// A list of free blocks for each size class.
    free: [*mut Header; CLASSES],
    /// Bytes on `free`.
    cached_bytes: usize,
    cached_bytes_max: usize,
    /// Where the search for a block to free starts.
    victim_class: usize,
    spans: Option<Spans>,
    /// Whether the source had no span the last time the pool requested one.
    is_out_of_spans: bool,
}

// SAFETY: the lists belong to the pool alone; `PoolShared` is made of atomics, so another thread
// may become the owner.
unsafe impl Send for Pool {}

impl Pool {
    /// A pool that keeps at most `cached_bytes_max` bytes of free blocks. (Each thread that drops a
    /// packet at the same moment may exceed it by one block.)
    pub fn new(cached_bytes_max: usize) -> Self {
        Self::with_source(cached_bytes_max, None)
    }

    /// The same, with memory from `source`, except for blocks of more than a sixteenth of a span.
    pub fn with_spans(cached_bytes_max: usize, source: Arc<dyn SpanSource>) -> Self {
        Self::with_source(cached_bytes_max, Some(source))
    }

    fn with_source(cached_bytes_max: usize, source: Option<Arc<dyn SpanSource>>) -> Self {
        let spans = source.clone().map(Spans::of);
        let half = cached_bytes_max / 2;
        let shared = Box::new(PoolShared {
            returned: AtomicPtr::new(ptr::null_mut()),
            returned_bytes: AtomicUsize::new(0),
            returned_bytes_max: half,
            holders: AtomicUsize::new(1),
            span_bytes: source.as_ref().map_or(0, |source| source.span_bytes()),
            source,
        });
        Self {
            shared: NonNull::from(Box::leak(shared)),
            free: [ptr::null_mut(); CLASSES],
            cached_bytes: 0,
            cached_bytes_max: half,
            victim_class: 0,
            spans,
            is_out_of_spans: false,
        }
    }

    /// A writable block of at least `size` bytes, which are initialised but not zeroed.
    ///
    /// Sizes beyond the largest class (256 KiB) get a block of their own.
    ///
    /// # Panics
    /// If `size` is 4 GiB or more.
    #[inline]
    pub fn alloc(&mut self, size: usize) -> PacketMut {
        let Some(class) = class::class_of(size) else { return PacketMut::unpooled(size) };
        let block = match self.take(class) {
            Some(block) => block,
            None => self.take_from_span_or_slow(class),
        };
        // SAFETY: the block came off our list or is new, so it has no other holder.
        unsafe { PacketMut::from_block(block) }
    }

    /// A packet with a copy of `bytes`.
    #[inline(always)]
    pub fn copy(&mut self, bytes: &[u8]) -> Packet {
        if bytes.is_empty() {
            return Packet::empty();
        }
        let mut packet = self.alloc(bytes.len());
        packet[..bytes.len()].copy_from_slice(bytes);
        packet.freeze(bytes.len())
    }

    /// A packet with a copy of these slices, one after another.
    #[inline]
    pub fn concat(&mut self, parts: &[&[u8]]) -> Packet {
        let size = parts.iter().map(|part| part.len()).sum();
        if size == 0 {
            return Packet::empty();
        }
        let mut packet = self.alloc(size);
        let mut at = 0;
        for part in parts {
            packet[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
        packet.freeze(size)
    }

    /// Drops a packet. If it is the last holder of a block of this pool, the block goes to the free
    /// list at once. Unlike the return stack, that needs no locked instruction.
    #[inline(always)]
    pub fn recycle(&mut self, packet: Packet) {
        if let Some(block) = packet.into_block_of(self.shared) {
            // SAFETY: this is the only holder of the block.
            let bytes = unsafe { Header::block_bytes(block) };
            self.put_back(block, bytes);
        }
    }

    /// Whether packets use much more memory than they need, because they lie in nearly empty spans.
    /// Then call [`Self::compact`] for some of them. Never true without spans.
    #[inline]
    pub fn is_fragmented(&self) -> bool {
        self.spans.as_ref().is_some_and(Spans::is_fragmented)
    }

    /// If the source has no more spans, the bytes of the spans that the pool has. Further blocks
    /// come from the global allocator, so the owner should keep no more packets than this.
    #[inline]
    pub fn span_bytes_when_exhausted(&mut self) -> Option<u64> {
        if !self.is_out_of_spans {
            return None;
        }
        let spans = self.spans.as_ref().filter(|spans| spans.is_exhausted());
        self.is_out_of_spans = spans.is_some();
        spans.map(Spans::bytes)
    }

    /// Moves a packet out of a span of this pool that is at most half full, so that the span can be
    /// reused. Does not move packets with other holders, or in fuller spans.
    pub fn compact(&mut self, packet: &mut Packet) {
        // SAFETY: the pool is a holder of `PoolShared`; a block of it alone is looked at.
        let is_sparse = self.spans.as_ref().is_some_and(|spans| unsafe {
            packet.block_of(self.shared).is_some_and(|block| {
                self.shared.as_ref().is_of_span(block) && spans.is_sparse(block)
            })
        });
        if is_sparse {
            let moved = self.copy(packet);
            self.recycle(core::mem::replace(packet, moved));
        }
    }

    /// Bytes of memory of a block for `size` bytes, including its header and the allocator's
    /// overhead.
    #[inline]
    pub fn footprint(size: usize) -> usize {
        class::footprint(size)
    }

    /// Bytes of free blocks, on the lists of the owner and on the return stack.
    pub(crate) fn cached_bytes(&self) -> usize {
        // SAFETY: the pool is a holder of `PoolShared`.
        let returned = unsafe { self.shared.as_ref() }.returned_bytes.load(Ordering::Relaxed);
        self.cached_bytes + returned
    }

    #[inline]
    fn take(&mut self, class: usize) -> Option<NonNull<Header>> {
        let block = NonNull::new(self.free[class])?;
        // SAFETY: blocks on the list belong to the pool alone, and hold a link.
        unsafe {
            self.free[class] = Header::next(block);
            self.cached_bytes -= Header::block_bytes(block);
        }
        Some(block)
    }

    fn take_from_span_or_slow(&mut self, class: usize) -> NonNull<Header> {
        // SAFETY: the pool is a holder of `PoolShared`.
        let span_bytes = unsafe { self.shared.as_ref() }.span_bytes;
        match &mut self.spans {
            // First try the current span: that touches no other memory.
            Some(spans) if fits_in_span(span_bytes, class::class_bytes(class)) => {
                match spans.take_from_current(class, self.shared) {
                    Some(block) => block,
                    None => self.take_from_new_span(class),
                }
            }
            _ => self.take_slow(class),
        }
    }

    #[cold]
    fn take_from_new_span(&mut self, class: usize) -> NonNull<Header> {
        self.collect();
        let block = self.spans.as_mut().and_then(|spans| spans.take(class, self.shared));
        self.is_out_of_spans |= block.is_none();
        // Without a pool, because a pool recognises its blocks in spans by their size.
        block.unwrap_or_else(|| Header::allocate(class::capacity(class), None))
    }

    #[cold]
    fn take_slow(&mut self, class: usize) -> NonNull<Header> {
        self.collect();
        if let Some(block) = self.take(class) {
            return block;
        }
        // SAFETY: the pool is a holder of `PoolShared`.
        unsafe { self.shared.as_ref() }.holders.fetch_add(1, Ordering::Relaxed);
        Header::allocate(class::capacity(class), Some(self.shared))
    }

    /// Moves the blocks on the return stack to the lists.
    fn collect(&mut self) {
        // SAFETY: the pool is a holder of `PoolShared`.
        let shared = unsafe { self.shared.as_ref() };
        if shared.returned.load(Ordering::Relaxed).is_null() {
            return;
        }
        // Acquire: the links, and all accesses to the packets before they were returned, must be
        // visible.
        let mut head = shared.returned.swap(ptr::null_mut(), Ordering::Acquire);
        let mut bytes_taken = 0;
        while let Some(block) = NonNull::new(head) {
            // SAFETY: the swap made the pool the only holder of every block of the chain.
            let (next, bytes) = unsafe { (Header::next(block), Header::block_bytes(block)) };
            head = next;
            bytes_taken += bytes;
            self.put_back(block, bytes);
        }
        // SAFETY: as above; borrowed again because `put_back` borrows all of `self`.
        unsafe { self.shared.as_ref() }.returned_bytes.fetch_sub(bytes_taken, Ordering::Relaxed);
    }

    /// Returns a block that only the pool holds to its span, or adds it to its list. Frees blocks
    /// of other classes if the lists are full, since those may be out of use.
    #[inline]
    fn put_back(&mut self, block: NonNull<Header>, bytes: usize) {
        if let Some(spans) = &mut self.spans {
            // SAFETY: the pool is a holder of `PoolShared`. It alone holds the block, which comes
            // from it.
            unsafe {
                if self.shared.as_ref().is_of_span(block) {
                    return spans.put(block, self.shared);
                }
            }
        }
        // SAFETY: the pool alone holds the block.
        let class = unsafe { Header::class(block) };
        while self.cached_bytes + bytes > self.cached_bytes_max {
            if !self.free_from_other_class(class) {
                // SAFETY: the pool alone holds the block, which comes from it and of no span.
                unsafe { PoolShared::free(self.shared, block) };
                return;
            }
        }
        // SAFETY: the pool alone holds the block.
        unsafe { Header::set_next(block, self.free[class]) };
        self.free[class] = block.as_ptr();
        self.cached_bytes += bytes;
    }

    fn free_from_other_class(&mut self, class: usize) -> bool {
        for _ in 0..CLASSES {
            if self.victim_class != class
                && let Some(block) = self.take(self.victim_class)
            {
                // SAFETY: the pool alone holds the block, which comes from it and of no span.
                unsafe { PoolShared::free(self.shared, block) };
                return true;
            }
            self.victim_class = (self.victim_class + 1) % CLASSES;
        }
        false
    }

    /// Returns a chain of blocks to their origin when the pool is closed.
    fn release_chain(&mut self, mut head: *mut Header) {
        while let Some(block) = NonNull::new(head) {
            // SAFETY: the caller took the chain off a list, so the pool alone holds its blocks; the
            // pool is a holder of `PoolShared`.
            unsafe {
                head = Header::next(block);
                if self.shared.as_ref().is_of_span(block) {
                    release_block(self.shared, block);
                } else {
                    PoolShared::free(self.shared, block);
                }
            }
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if let Some(spans) = &mut self.spans {
            spans.retain_all();
        }
        // AcqRel: see what other threads did with the blocks that they returned, and let them see
        // the retained spans when they find the stack closed. SAFETY: the pool is a holder of
        // `PoolShared`. From the swap on, no block is pushed on the stack.
        let returned =
            unsafe { self.shared.as_ref() }.returned.swap(closed_marker(), Ordering::AcqRel);
        self.release_chain(returned);
        for class in 0..CLASSES {
            let head = core::mem::replace(&mut self.free[class], ptr::null_mut());
            self.release_chain(head);
        }
        if let Some(spans) = &mut self.spans {
            spans.release_all(self.shared);
        }
        // SAFETY: the pool is a holder and does not use `PoolShared` any more.
        unsafe { PoolShared::release(self.shared) };
    }
}

impl core::fmt::Debug for Pool {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Pool").field("cached_bytes", &self.cached_bytes()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod spans;
#[cfg(test)]
mod tests;
