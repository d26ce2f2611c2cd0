use crate::class::{self, CLASSES};
use crate::packet::{Header, Packet, PacketMut};
use alloc::boxed::Box;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// What a pool and its blocks share. Freed with the last of them.
#[repr(align(64))]
pub(crate) struct Shared {
    /// The blocks that were dropped, most recent first, or [`closed`] once the pool is gone.
    returned: AtomicPtr<Header>,
    /// Octets on `returned`, counted before a block goes on.
    returned_bytes: AtomicUsize,
    /// The most octets `returned` may hold.
    returned_bytes_max: usize,
    /// Blocks that exist, plus 1 for the pool.
    holders: AtomicUsize,
}

/// The end mark of the return stack of a pool that is gone. Never dereferenced.
fn closed() -> *mut Header {
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
    unsafe fn free(shared: NonNull<Self>, block: NonNull<Header>) {
        // SAFETY: the caller is the only holder.
        unsafe { Header::free(block) };
        // SAFETY: the block counted as a holder, and counts no more.
        unsafe { Self::release(shared) };
    }

    /// # Safety
    /// The caller must be a counted holder, which it is no more afterwards.
    unsafe fn release(shared: NonNull<Self>) {
        // SAFETY: the caller is a holder, so `Shared` is alive. The borrow ends with the statement.
        let before = unsafe { shared.as_ref() }.holders.fetch_sub(1, Ordering::AcqRel);
        if before == 1 {
            // SAFETY: made by `Box::into_raw` in `Pool::new`, and there is no holder left.
            drop(unsafe { Box::from_raw(shared.as_ptr()) });
        }
    }
}

/// The source of packet buffers of one thread.
///
/// A block goes back to its pool when its last [`Packet`] is dropped, on whatever thread: through a
/// lock-free stack that the owner empties when it runs short. Blocks at rest are bounded in octets;
/// beyond that they go back to the global allocator. The packets may outlive the pool.
pub struct Pool {
    shared: NonNull<Shared>,
    /// One list of blocks for each size class.
    free: [*mut Header; CLASSES],
    /// Octets on `free`.
    cached_bytes: usize,
    cached_bytes_max: usize,
    /// Where to look first for a block to give up.
    victim_class: usize,
}

// SAFETY: the lists belong to the pool alone, and `Shared` is made of atomics, so another thread
// may become the owner.
unsafe impl Send for Pool {}

impl Pool {
    /// A pool that keeps at most `cached_bytes_max` octets of blocks at rest. (Threads that drop
    /// packets at one instant may each go beyond it by one block.)
    pub fn new(cached_bytes_max: usize) -> Self {
        let half = cached_bytes_max / 2;
        let shared = Box::new(Shared {
            returned: AtomicPtr::new(ptr::null_mut()),
            returned_bytes: AtomicUsize::new(0),
            returned_bytes_max: half,
            holders: AtomicUsize::new(1),
        });
        Self {
            shared: NonNull::from(Box::leak(shared)),
            free: [ptr::null_mut(); CLASSES],
            cached_bytes: 0,
            cached_bytes_max: half,
            victim_class: 0,
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
            None => self.take_slow(class),
        };
        // SAFETY: the block came off our list or is new, so nobody else holds it.
        unsafe { PacketMut::from_block(block) }
    }

    /// A packet with a copy of `bytes`.
    #[inline]
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
    #[inline]
    pub fn recycle(&mut self, packet: Packet) {
        if let Some(block) = packet.into_block_of(self.shared) {
            // SAFETY: this is the only holder of the block.
            let bytes = unsafe { Header::block_bytes(block) };
            self.keep(block, bytes);
        }
    }

    /// Octets of memory that a block for `size` octets takes, with its header and the allocator's.
    #[inline]
    pub fn footprint(size: usize) -> usize {
        match class::class_of(size) {
            Some(class) => class::block_bytes(class::capacity(class) as usize),
            None => class::block_bytes(size),
        }
    }

    /// Octets of blocks at rest, on the lists of the owner and on the return stack.
    pub fn cached_bytes(&self) -> usize {
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
            self.keep(block, bytes);
        }
        // SAFETY: as above; borrowed anew since `keep` takes the whole of `self`.
        unsafe { self.shared.as_ref() }.returned_bytes.fetch_sub(bytes_taken, Ordering::Relaxed);
    }

    /// Puts a block that the pool alone holds on its list. Makes room among other classes, whose
    /// time may be over.
    #[inline]
    fn keep(&mut self, block: NonNull<Header>, bytes: usize) {
        // SAFETY: the pool alone holds the block.
        let class = unsafe { Header::class(block) };
        while self.cached_bytes + bytes > self.cached_bytes_max {
            if !self.free_one_not_of(class) {
                // SAFETY: the pool alone holds the block, which comes from it.
                unsafe { Shared::free(self.shared, block) };
                return;
            }
        }
        // SAFETY: the pool alone holds the block.
        unsafe { Header::set_next(block, self.free[class]) };
        self.free[class] = block.as_ptr();
        self.cached_bytes += bytes;
    }

    fn free_one_not_of(&mut self, class: usize) -> bool {
        for _ in 0..CLASSES {
            if self.victim_class != class
                && let Some(block) = self.take(self.victim_class)
            {
                // SAFETY: the block came off the list, so the pool alone holds it.
                unsafe { Shared::free(self.shared, block) };
                return true;
            }
            self.victim_class = (self.victim_class + 1) % CLASSES;
        }
        false
    }

    fn free_chain(&mut self, mut head: *mut Header) {
        while let Some(block) = NonNull::new(head) {
            // SAFETY: the caller took the chain off a list, so the pool alone holds its blocks.
            unsafe {
                head = Header::next(block);
                Shared::free(self.shared, block);
            }
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // SAFETY: the pool is a holder of `Shared`. From the swap on, no block goes on the stack.
        let returned = unsafe { self.shared.as_ref() }.returned.swap(closed(), Ordering::Acquire);
        self.free_chain(returned);
        for class in 0..CLASSES {
            let head = core::mem::replace(&mut self.free[class], ptr::null_mut());
            self.free_chain(head);
        }
        // SAFETY: the pool is a holder and does not use `Shared` any more.
        unsafe { Shared::release(self.shared) };
    }
}

impl core::fmt::Debug for Pool {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Pool").field("cached_bytes", &self.cached_bytes()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
