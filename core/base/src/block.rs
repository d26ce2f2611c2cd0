//! Blocks of memory that hold packets, and what they share with the pool that they go back to.

use crate::class::{self, HEADER_BYTES};
use alloc::alloc::{alloc_zeroed, dealloc, handle_alloc_error};
use alloc::boxed::Box;
use core::alloc::Layout;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering, fence};

/// The start of a block. The payload follows it directly.
#[repr(C, align(16))]
pub(crate) struct Header {
    /// The packets and writable parts that hold the block.
    pub(crate) holders: AtomicU32,
    /// Octets of payload.
    pub(crate) capacity: u32,
    /// The pool the block goes back to, if any.
    pub(crate) pool: Option<NonNull<Shared>>,
}

const _: () = assert!(size_of::<Header>() == HEADER_BYTES);

/// Half of the range, so that the check after the increment cannot come too late.
const HOLDERS_MAX: u32 = u32::MAX / 2;

impl Header {
    pub(crate) fn layout(capacity: u32) -> Layout {
        let bytes = HEADER_BYTES + capacity as usize;
        match Layout::from_size_align(bytes, align_of::<Self>()) {
            Ok(layout) => layout,
            Err(_) => panic!("a packet of {capacity} octets does not fit in memory"),
        }
    }

    /// A block with 1 holder and cleared payload.
    pub(crate) fn allocate(capacity: u32, pool: Option<NonNull<Shared>>) -> NonNull<Self> {
        let layout = Self::layout(capacity);
        // SAFETY: the layout has at least the octets of the header.
        let memory = unsafe { alloc_zeroed(layout) };
        // SAFETY: `memory` is null or was allocated with this layout.
        unsafe { Self::initialise(memory, layout, capacity, pool) }
    }

    /// # Safety
    /// `memory` must be null or have been allocated with `layout`, which is that of `capacity`.
    pub(crate) unsafe fn initialise(
        memory: *mut u8,
        layout: Layout,
        capacity: u32,
        pool: Option<NonNull<Shared>>,
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

    /// The link that a block at rest holds in its payload.
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
        // SAFETY: as in `next`; nobody else reads or writes the payload.
        unsafe { Self::payload(block).cast::<*mut Self>().write(next) };
    }

    /// Gives the memory back to the global allocator.
    ///
    /// # Safety
    /// The caller must be the only holder, which it is no more afterwards.
    pub(crate) unsafe fn free(block: NonNull<Self>) {
        // SAFETY: allocated with this layout, and nobody else knows the block.
        unsafe {
            let layout = Self::layout(block.as_ref().capacity);
            dealloc(block.as_ptr().cast(), layout);
        }
    }

    /// # Safety
    /// The caller must be a holder.
    #[inline]
    pub(crate) unsafe fn hold(block: NonNull<Self>) {
        // Relaxed: a new holder is made from an existing one, which keeps the block alive.
        // SAFETY: alive, since the caller is a holder.
        let before = unsafe { block.as_ref() }.holders.fetch_add(1, Ordering::Relaxed);
        if before > HOLDERS_MAX {
            // SAFETY: as above.
            unsafe { Self::too_many(block) };
        }
    }

    /// Whether the caller is the only holder. If so, what the others did with the block is over.
    ///
    /// # Safety
    /// The caller must be a holder.
    #[inline]
    pub(crate) unsafe fn is_sole_holder(block: NonNull<Self>) -> bool {
        // Acquire: the reads of those who were holders must be over.
        // SAFETY: alive, since the caller is a holder.
        unsafe { block.as_ref() }.holders.load(Ordering::Acquire) == 1
    }

    /// # Safety
    /// The caller must be a holder.
    #[cold]
    unsafe fn too_many(block: NonNull<Self>) {
        // SAFETY: alive, since the caller is a holder.
        unsafe { block.as_ref() }.holders.fetch_sub(1, Ordering::Relaxed);
        panic!("a packet was cloned and leaked {HOLDERS_MAX} times");
    }

    /// # Safety
    /// The caller must be a holder, which it is no more afterwards.
    #[inline]
    pub(crate) unsafe fn release(block: NonNull<Self>) {
        // The only holder may skip the locked instruction: nobody is left to make another one.
        // SAFETY: the caller is a holder.
        if unsafe { !Self::is_sole_holder(block) } {
            // SAFETY: alive, since the caller is a holder.
            if unsafe { block.as_ref() }.holders.fetch_sub(1, Ordering::Release) != 1 {
                return;
            }
            // What others did with the packet must be over before the block is used again.
            fence(Ordering::Acquire);
        }
        // SAFETY: there is no other holder, and the caller gives up being one.
        unsafe { Self::retire(block) };
    }

    /// # Safety
    /// The caller must be the only holder, which it is no more afterwards.
    #[inline]
    unsafe fn retire(block: NonNull<Self>) {
        // SAFETY: alive until handed over below, and handed over by the only holder.
        unsafe {
            match block.as_ref().pool {
                Some(pool) => Shared::give_back(pool, block),
                None => Self::free(block),
            }
        }
    }
}

/// What a pool and its blocks share. Freed with the last of them.
#[repr(align(64))]
pub(crate) struct Shared {
    /// The blocks that were dropped, most recent first, or [`closed`] once the pool is gone.
    pub(crate) returned: AtomicPtr<Header>,
    /// Octets on `returned`, counted before a block goes on.
    pub(crate) returned_bytes: AtomicUsize,
    /// The most octets `returned` may hold.
    pub(crate) returned_bytes_max: usize,
    /// Blocks that exist, plus 1 for the pool.
    pub(crate) holders: AtomicUsize,
}

/// The end mark of the return stack of a pool that is gone. Never dereferenced.
pub(crate) fn closed() -> *mut Header {
    ptr::without_provenance_mut(align_of::<Header>())
}

impl Shared {
    /// Takes back a block that no packet holds any more. May be called on any thread.
    ///
    /// # Safety
    /// `block` must come from the pool of `shared`, and the caller must be its only holder, which
    /// it is no more afterwards.
    #[inline]
    pub(crate) unsafe fn give_back(shared: NonNull<Self>, block: NonNull<Header>) {
        // SAFETY: the block is one of the holders, so `Shared` lives until the block is gone or on
        // the stack.
        let this = unsafe { shared.as_ref() };
        // SAFETY: the caller is the only holder of the block.
        let bytes = unsafe { Header::block_bytes(block) };
        if this.returned_bytes.load(Ordering::Relaxed) + bytes <= this.returned_bytes_max {
            this.returned_bytes.fetch_add(bytes, Ordering::Relaxed);
            let mut head = this.returned.load(Ordering::Relaxed);
            while !ptr::eq(head, closed()) {
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
        // SAFETY: the caller hands over the block, and this was the only holder.
        unsafe { Self::free(shared, block) };
    }

    /// Gives a block to the global allocator.
    ///
    /// # Safety
    /// As [`Self::give_back`].
    #[cold]
    pub(crate) unsafe fn free(shared: NonNull<Self>, block: NonNull<Header>) {
        // SAFETY: the caller is the only holder.
        unsafe { Header::free(block) };
        // SAFETY: the block counted as a holder, and counts no more.
        unsafe { Self::release(shared) };
    }

    /// # Safety
    /// The caller must be a counted holder, which it is no more afterwards.
    pub(crate) unsafe fn release(shared: NonNull<Self>) {
        // SAFETY: the caller is a holder, so `Shared` is alive. The borrow ends with the statement.
        let before = unsafe { shared.as_ref() }.holders.fetch_sub(1, Ordering::AcqRel);
        if before == 1 {
            // SAFETY: made by `Box::into_raw` in `Pool::new`, and there is no holder left.
            drop(unsafe { Box::from_raw(shared.as_ptr()) });
        }
    }
}
