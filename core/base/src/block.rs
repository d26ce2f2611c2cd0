//! Blocks of memory that hold packets, the spans that they are cut from, and the state that blocks
//! share with their pool.

use crate::class::{self, HEADER_BYTES};
use crate::source::SpanSource;
use alloc::alloc::{alloc_zeroed, dealloc, handle_alloc_error};
use alloc::boxed::Box;
use alloc::sync::Arc;
use core::alloc::Layout;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering, fence};

/// The start of a block. The payload follows directly.
#[repr(C, align(16))]
pub(crate) struct Header {
    /// The packets and writable parts that refer to the block.
    pub(crate) holders: AtomicU32,
    /// Bytes of payload.
    pub(crate) capacity: u32,
    /// The pool that the block returns to, if any.
    pub(crate) pool: Option<NonNull<PoolShared>>,
}

const _: () = assert!(size_of::<Header>() == HEADER_BYTES);

/// Half of the range. The check comes after an increment, so other threads may exceed the limit for
/// a moment without an overflow.
const HOLDERS_MAX: u32 = u32::MAX / 2;

impl Header {
    pub(crate) fn layout(capacity: u32) -> Layout {
        let bytes = HEADER_BYTES + capacity as usize;
        match Layout::from_size_align(bytes, align_of::<Self>()) {
            Ok(layout) => layout,
            Err(_) => panic!("a packet of {capacity} bytes does not fit into memory"),
        }
    }

    /// A block with 1 holder and zeroed payload.
    pub(crate) fn allocate(capacity: u32, pool: Option<NonNull<PoolShared>>) -> NonNull<Self> {
        let layout = Self::layout(capacity);
        // SAFETY: the layout has at least the bytes of the header.
        let memory = unsafe { alloc_zeroed(layout) };
        // SAFETY: `memory` is null or was allocated with this layout.
        unsafe { Self::initialise(memory, layout, capacity, pool) }
    }

    /// The header of a block of a pool, with 1 holder.
    pub(crate) fn of_pool(capacity: u32, pool: NonNull<PoolShared>) -> Self {
        Self { holders: AtomicU32::new(1), capacity, pool: Some(pool) }
    }

    /// # Safety
    /// `memory` must be null or have been allocated with `layout`, which is that of `capacity`.
    pub(crate) unsafe fn initialise(
        memory: *mut u8,
        layout: Layout,
        capacity: u32,
        pool: Option<NonNull<PoolShared>>,
    ) -> NonNull<Self> {
        let Some(block) = NonNull::new(memory.cast::<Self>()) else { handle_alloc_error(layout) };
        // SAFETY: the memory is large enough and aligned for the header, by the layout.
        unsafe { block.write(Self { holders: AtomicU32::new(1), capacity, pool }) };
        block
    }

    /// # Safety
    /// `block` must be alive.
    #[inline]
    pub(crate) unsafe fn payload(block: NonNull<Self>) -> NonNull<u8> {
        // SAFETY: every block has its payload behind the header, within the allocation.
        unsafe { block.cast::<u8>().add(HEADER_BYTES) }
    }

    /// # Safety
    /// `block` must be alive.
    #[inline]
    pub(crate) unsafe fn block_bytes(block: NonNull<Self>) -> usize {
        // SAFETY: alive, by the caller.
        class::block_bytes(unsafe { block.as_ref() }.capacity as usize)
    }

    /// The size class of a block of a pool.
    ///
    /// # Safety
    /// `block` must be alive.
    pub(crate) unsafe fn class(block: NonNull<Self>) -> usize {
        // SAFETY: alive, by the caller.
        let capacity = unsafe { block.as_ref() }.capacity as usize;
        class::class_of(capacity).unwrap_or_else(|| unreachable!("blocks of a pool have a class"))
    }

    /// The link that a free block holds in its payload.
    ///
    /// # Safety
    /// The caller must be the only holder, and [`Self::set_next`] must have been called since the
    /// payload was last written.
    #[inline]
    pub(crate) unsafe fn next(block: NonNull<Self>) -> *mut Self {
        // SAFETY: the payload of every class has room for a pointer, is aligned to 16, and holds
        // one by the caller's word.
        unsafe { Self::payload(block).cast::<*mut Self>().read() }
    }

    /// # Safety
    /// The caller must be the only holder of a block of a pool.
    #[inline]
    pub(crate) unsafe fn set_next(block: NonNull<Self>, next: *mut Self) {
        // SAFETY: as in `next`; no other thread reads or writes the payload.
        unsafe { Self::payload(block).cast::<*mut Self>().write(next) };
    }

    /// Returns the memory to the global allocator.
    ///
    /// # Safety
    /// The caller must be the only holder. It no longer is one afterwards.
    pub(crate) unsafe fn free(block: NonNull<Self>) {
        // SAFETY: allocated with this layout, and no other reference to the block exists.
        unsafe {
            let layout = Self::layout(block.as_ref().capacity);
            dealloc(block.as_ptr().cast(), layout);
        }
    }

    /// # Safety
    /// The caller must be a holder.
    #[inline]
    pub(crate) unsafe fn retain(block: NonNull<Self>) {
        // Relaxed: a new holder is made from an existing one, which keeps the block alive. SAFETY:
        // alive, since the caller is a holder.
        let before = unsafe { block.as_ref() }.holders.fetch_add(1, Ordering::Relaxed);
        if before > HOLDERS_MAX {
            // SAFETY: as above.
            unsafe { Self::too_many_holders(block) };
        }
    }

    /// Whether the caller is the only holder. If so, all accesses by former holders are complete.
    ///
    /// # Safety
    /// The caller must be a holder.
    #[inline]
    pub(crate) unsafe fn is_sole_holder(block: NonNull<Self>) -> bool {
        // Acquire: all reads by former holders must be complete. SAFETY: alive, since the caller is
        // a holder.
        unsafe { block.as_ref() }.holders.load(Ordering::Acquire) == 1
    }

    /// # Safety
    /// The caller must be a holder.
    #[cold]
    unsafe fn too_many_holders(block: NonNull<Self>) {
        // SAFETY: alive, since the caller is a holder.
        unsafe { block.as_ref() }.holders.fetch_sub(1, Ordering::Relaxed);
        panic!("a packet was cloned and leaked {HOLDERS_MAX} times");
    }

    /// # Safety
    /// The caller must be a holder. It no longer is one afterwards.
    #[inline]
    pub(crate) unsafe fn release(block: NonNull<Self>) {
        // A sole holder needs no locked instruction: no other thread can create another holder.
        // SAFETY: the caller is a holder.
        if unsafe { !Self::is_sole_holder(block) } {
            // SAFETY: alive, since the caller is a holder.
            if unsafe { block.as_ref() }.holders.fetch_sub(1, Ordering::Release) != 1 {
                return;
            }
            // All accesses by other holders must be complete before the block is reused.
            fence(Ordering::Acquire);
        }
        // SAFETY: there is no other holder, and the caller gives up being one.
        unsafe { Self::retire(block) };
    }

    /// # Safety
    /// The caller must be the only holder. It no longer is one afterwards.
    #[inline]
    unsafe fn retire(block: NonNull<Self>) {
        // SAFETY: alive until handed over below, and handed over by the only holder.
        unsafe {
            match block.as_ref().pool {
                Some(pool) => PoolShared::give_back(pool, block),
                None => Self::free(block),
            }
        }
    }
}

/// State shared by a pool and its blocks. Freed with the last of them.
#[repr(align(64))]
pub(crate) struct PoolShared {
    /// Blocks that were dropped, most recent first, or [`closed_marker`] once the pool is gone.
    pub(crate) returned: AtomicPtr<Header>,
    /// Bytes on `returned`, added before a block is pushed.
    pub(crate) returned_bytes: AtomicUsize,
    /// Most bytes on `returned`.
    pub(crate) returned_bytes_max: usize,
    /// Blocks from the global allocator and spans that exist, plus 1 for the pool.
    pub(crate) holders: AtomicUsize,
    pub(crate) source: Option<Arc<dyn SpanSource>>,
    /// Bytes of a span; 0 without a source.
    pub(crate) span_bytes: usize,
}

/// The end mark of the return stack of a pool that is gone. Never dereferenced.
pub(crate) fn closed_marker() -> *mut Header {
    ptr::without_provenance_mut(align_of::<Header>())
}

impl PoolShared {
    /// Takes back a block that no packet holds any more, on any thread. Pushes it on the return
    /// stack, or frees it if the stack is full or the pool is closed.
    ///
    /// # Safety
    /// `block` must come from the pool of `shared`, and the caller must be its only holder. It no
    /// longer is one afterwards.
    #[inline]
    pub(crate) unsafe fn give_back(shared: NonNull<Self>, block: NonNull<Header>) {
        // SAFETY: the block is one of the holders. So `PoolShared` lives until the block is gone or
        // on the stack.
        let this = unsafe { shared.as_ref() };
        // SAFETY: the caller is the only holder of the block.
        let bytes = unsafe { Header::block_bytes(block) };
        // Only the pool may return a block to its span, so these are always pushed.
        let is_of_span = fits_in_span(this.span_bytes, bytes);
        let returned = this.returned_bytes.load(Ordering::Relaxed);
        if is_of_span || returned + bytes <= this.returned_bytes_max {
            this.returned_bytes.fetch_add(bytes, Ordering::Relaxed);
            let mut head = this.returned.load(Ordering::Relaxed);
            while !ptr::eq(head, closed_marker()) {
                // SAFETY: the caller is the only holder, so the payload is free to hold the link.
                unsafe { Header::set_next(block, head) };
                // Release: the owner must see the link, and all reads of the packet must be done
                // before it is reused.
                match this.returned.compare_exchange_weak(
                    head,
                    block.as_ptr(),
                    Ordering::Release,
                    Ordering::Relaxed,
                ) {
                    Ok(_) => return,
                    Err(now) => head = now,
                }
            }
        }
        // SAFETY: the caller hands over the block, and this was the only holder. A block of a span
        // comes here only when the pool is closed.
        unsafe {
            if is_of_span {
                // The pool's last changes to its spans must be visible.
                fence(Ordering::Acquire);
                release_block(shared, block);
            } else {
                Self::free(shared, block);
            }
        }
    }

    /// Whether a block was cut from a span.
    ///
    /// # Safety
    /// The block must be alive and belong to this pool.
    #[inline]
    pub(crate) unsafe fn is_of_span(&self, block: NonNull<Header>) -> bool {
        // SAFETY: by the caller.
        fits_in_span(self.span_bytes, unsafe { Header::block_bytes(block) })
    }

    /// Returns a block that is not from a span to the global allocator.
    ///
    /// # Safety
    /// As for [`Self::give_back`].
    #[cold]
    pub(crate) unsafe fn free(shared: NonNull<Self>, block: NonNull<Header>) {
        // SAFETY: the caller is the only holder.
        unsafe { Header::free(block) };
        // SAFETY: the block counted as a holder, and counts no more.
        unsafe { Self::release(shared) };
    }

    /// # Safety
    /// The caller must be a counted holder. It no longer is one afterwards.
    pub(crate) unsafe fn release(shared: NonNull<Self>) {
        // SAFETY: the caller is a holder, so the target is alive. The borrow ends with the
        // statement.
        let before = unsafe { shared.as_ref() }.holders.fetch_sub(1, Ordering::AcqRel);
        if before == 1 {
            // SAFETY: created by `Box::leak` in `Pool::with_source`, and no holder is left.
            drop(unsafe { Box::from_raw(shared.as_ptr()) });
        }
    }
}

/// A span holds at least this many blocks. Larger blocks come from the global allocator.
const BLOCKS_MIN: usize = 16;

/// The start of a span. Only the pool accesses it until the pool is closed. From then on, only
/// `outstanding` is accessed, by any thread that drops a packet.
#[repr(C, align(64))]
pub(crate) struct Span {
    /// Blocks that are not in the span: held by packets, or on a list or the return stack of the
    /// pool. One more while the pool is closing.
    pub(crate) outstanding: AtomicU32,
    pub(crate) class: u32,
    /// Blocks that were ever cut. The memory behind them has never been touched.
    pub(crate) carved: u32,
    /// Blocks that the span has space for.
    pub(crate) block_capacity: u32,
    /// The index of the span in its pool's list.
    pub(crate) index: u32,
    pub(crate) has_room: bool,
    /// Its position in the queue of spans with space.
    pub(crate) queue_position: u64,
    /// Blocks that were returned.
    pub(crate) free: *mut Header,
}

pub(crate) const SPAN_HEADER_BYTES: usize = size_of::<Span>();

/// Whether blocks of `block_bytes` bytes come from spans of `span_bytes` bytes; never if that is 0.
#[inline]
pub(crate) fn fits_in_span(span_bytes: usize, block_bytes: usize) -> bool {
    block_bytes * BLOCKS_MIN <= span_bytes
}

/// The span of a block.
///
/// # Safety
/// The block must have been cut from a span of `span_bytes` bytes.
#[inline]
pub(crate) unsafe fn span_of(block: NonNull<Header>, span_bytes: usize) -> NonNull<Span> {
    let span = block.as_ptr().map_addr(|address| address & !(span_bytes - 1)).cast();
    // SAFETY: a block lies in its span, which is aligned to its size and never at address 0.
    unsafe { NonNull::new_unchecked(span) }
}

/// Releases a block of a closed pool, and its span together with the last block.
///
/// # Safety
/// The block must have been cut from a span of the pool of `shared`. The caller must be its only
/// holder and no longer is one afterwards. The pool must be closed or closing.
pub(crate) unsafe fn release_block(shared: NonNull<PoolShared>, block: NonNull<Header>) {
    // SAFETY: the span of the block counts as a holder of `shared`.
    let span = unsafe { span_of(block, shared.as_ref().span_bytes) };
    // SAFETY: the block counted, and counts no more.
    unsafe { release_span(shared, span) };
}

/// # Safety
/// As for [`release_block`], for one of the holders that `outstanding` counts.
pub(crate) unsafe fn release_span(shared: NonNull<PoolShared>, span: NonNull<Span>) {
    // AcqRel: all accesses to the other blocks must be complete before the span is used again.
    // SAFETY: alive, since the caller is counted.
    if unsafe { span.as_ref() }.outstanding.fetch_sub(1, Ordering::AcqRel) != 1 {
        return;
    }
    // SAFETY: the span is a holder of `shared`; no other reference to the span exists.
    unsafe {
        if let Some(source) = &shared.as_ref().source {
            source.give_back(span.cast(), span.as_ref().block_capacity);
        }
        PoolShared::release(shared);
    }
}

const _: () = assert!(SPAN_HEADER_BYTES.is_multiple_of(HEADER_BYTES));
