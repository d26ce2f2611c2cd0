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
/// A block goes back to its pool when its last [`Packet`] is dropped, on whatever thread: through a
/// lock-free stack that the owner empties when it runs short. Blocks at rest are bounded in octets;
/// beyond that they go back to where they came from: the global allocator, or their span. The
/// packets may outlive the pool.
pub struct Pool {
    shared: NonNull<PoolShared>,
    /// One list of blocks for each size class.
    free: [*mut Header; CLASSES],
    /// Octets on `free`.
    cached_bytes: usize,
    cached_bytes_max: usize,
    /// Where to look first for a block to give up.
    victim_class: usize,
    spans: Option<Spans>,
    /// No span was to be had, and the source was not asked since whether it has one.
    is_out_of_spans: bool,
}

// SAFETY: the lists belong to the pool alone, and `Shared` is made of atomics, so another thread
// may become the owner.
unsafe impl Send for Pool {}

impl Pool {
    /// A pool that keeps at most `cached_bytes_max` octets of blocks at rest. (Threads that drop
    /// packets at one instant may each go beyond it by one block.)
    pub fn new(cached_bytes_max: usize) -> Self {
        Self::with_source(cached_bytes_max, None)
    }

    /// The same with memory from `source`, but for blocks of more than a sixteenth of a span.
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

    /// A writable block of at least `size` octets, all of them initialised but not cleared.
    ///
    /// Sizes beyond the largest class (256 KiB) take a plain allocation.
    ///
    /// # Panics
    /// When `size` is 4 GiB or more.
    #[inline]
    pub fn alloc(&mut self, size: usize) -> PacketMut {
        let Some(class) = class::class_of(size) else { return PacketMut::unpooled(size) };
        let block = match self.take(class) {
            Some(block) => block,
            None => self.take_from_span_or_slow(class),
        };
        // SAFETY: the block came off our list or is new, so nobody else holds it.
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

    /// Drops a packet. When it is the last holder of a block of this pool, the block is at hand
    /// again without the locked instructions of the way over the return stack.
    #[inline(always)]
    pub fn recycle(&mut self, packet: Packet) {
        if let Some(block) = packet.into_block_of(self.shared) {
            // SAFETY: this is the only holder of the block.
            let bytes = unsafe { Header::block_bytes(block) };
            self.put_back(block, bytes);
        }
    }

    /// Whether what is kept takes much more memory than it has octets, because it lies in spans
    /// that are nearly empty: see [`Self::compact`]. Never so without spans.
    #[inline]
    pub fn is_fragmented(&self) -> bool {
        self.spans.as_ref().is_some_and(Spans::is_fragmented)
    }

    /// While the source has no more spans: octets of those that the pool has. What does not fit
    /// into them comes from the global allocator: whoever keeps packets should keep no more.
    #[inline]
    pub fn span_bytes_when_exhausted(&mut self) -> Option<u64> {
        if !self.is_out_of_spans {
            return None;
        }
        let spans = self.spans.as_ref().filter(|spans| spans.is_exhausted());
        self.is_out_of_spans = spans.is_some();
        spans.map(Spans::bytes)
    }

    /// Moves a packet out of a span of this pool that is half empty, so that the span can be used
    /// for something else. Leaves alone what others hold, too, and what lies well.
    pub fn compact(&mut self, packet: &mut Packet) {
        // SAFETY: the pool is a holder of `Shared`; a block of it alone is looked at.
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

    /// Octets of memory that a block for `size` octets takes, with its header and the allocator's.
    #[inline]
    pub fn footprint(size: usize) -> usize {
        class::footprint(size)
    }

    /// Octets of blocks at rest, on the lists of the owner and on the return stack.
    pub(crate) fn cached_bytes(&self) -> usize {
        // SAFETY: the pool is a holder of `Shared`.
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
        // SAFETY: the pool is a holder of `Shared`.
        let span_bytes = unsafe { self.shared.as_ref() }.span_bytes;
        match &mut self.spans {
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
        // Of no pool, since sizes tell a pool which of its blocks are of spans.
        block.unwrap_or_else(|| Header::allocate(class::capacity(class), None))
    }

    #[cold]
    fn take_slow(&mut self, class: usize) -> NonNull<Header> {
        self.collect();
        if let Some(block) = self.take(class) {
            return block;
        }
        // SAFETY: the pool is a holder of `Shared`.
        unsafe { self.shared.as_ref() }.holders.fetch_add(1, Ordering::Relaxed);
        Header::allocate(class::capacity(class), Some(self.shared))
    }

    /// Moves what came back onto the lists.
    fn collect(&mut self) {
        // SAFETY: the pool is a holder of `Shared`.
        let shared = unsafe { self.shared.as_ref() };
        if shared.returned.load(Ordering::Relaxed).is_null() {
            return;
        }
        // Acquire: see the links, and everything that happened to the packets before they came
        // back.
        let mut head = shared.returned.swap(ptr::null_mut(), Ordering::Acquire);
        let mut bytes_taken = 0;
        while let Some(block) = NonNull::new(head) {
            // SAFETY: the swap made the pool the only holder of every block of the chain.
            let (next, bytes) = unsafe { (Header::next(block), Header::block_bytes(block)) };
            head = next;
            bytes_taken += bytes;
            self.put_back(block, bytes);
        }
        // SAFETY: as above; borrowed anew since `put_back` takes the whole of `self`.
        unsafe { self.shared.as_ref() }.returned_bytes.fetch_sub(bytes_taken, Ordering::Relaxed);
    }

    /// Puts a block that the pool alone holds into its span, or on its list. Makes room among other
    /// classes, whose time may be over.
    #[inline]
    fn put_back(&mut self, block: NonNull<Header>, bytes: usize) {
        if let Some(spans) = &mut self.spans {
            // SAFETY: the pool is a holder of `Shared`, and alone holds the block, which comes from
            // it.
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

    /// Gives blocks back to where they came from when the pool is closed.
    fn release_chain(&mut self, mut head: *mut Header) {
        while let Some(block) = NonNull::new(head) {
            // SAFETY: the caller took the chain off a list, so the pool alone holds its blocks; the
            // pool is a holder of `Shared`.
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
        // AcqRel: see what others did with the blocks that they gave back, and have them see that
        // the spans are held when they find the stack closed.
        // SAFETY: the pool is a holder of `Shared`. From the swap on, no block goes on the stack.
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
        // SAFETY: the pool is a holder and does not use `Shared` any more.
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
