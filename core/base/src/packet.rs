use crate::block::{Header, PoolShared};
use crate::class::HEADER_BYTES;
use crate::prefetch::prefetch_pointer;
use alloc::alloc::alloc;
use alloc::vec::Vec;
use core::fmt;
use core::mem::ManuallyDrop;
use core::ops::{Deref, DerefMut, Range};
use core::ptr::NonNull;
use core::sync::atomic::Ordering;

const _: () = assert!(size_of::<Option<Packet>>() == 16);

/// A range of bytes of a block, or static bytes: the common part of [`Packet`] and [`PacketMut`].
struct BlockSlice {
    data: NonNull<u8>,
    len: u32,
    /// Bytes from the start of the block to `data`; 0 for static bytes.
    offset: u32,
}

impl BlockSlice {
    #[inline]
    fn block(&self) -> Option<NonNull<Header>> {
        if self.offset == 0 {
            return None;
        }
        // SAFETY: `data` points `offset` bytes into a block, into which the result stays.
        Some(unsafe { self.data.sub(self.offset as usize).cast() })
    }

    /// The range of `len` bytes from `start`. Does not change the count of holders.
    ///
    /// # Safety
    /// `start + len` must not exceed the length.
    #[inline]
    unsafe fn subslice(&self, start: usize, len: usize) -> Self {
        debug_assert!(start + len <= self.len as usize);
        let offset = if self.offset == 0 { 0 } else { self.offset + start as u32 };
        // SAFETY: `start` is within the part or at its end.
        Self { data: unsafe { self.data.add(start) }, len: len as u32, offset }
    }

    #[inline]
    fn retain(&self) {
        if let Some(block) = self.block() {
            // SAFETY: every part with a block is a holder of it.
            unsafe { Header::retain(block) };
        }
    }
}

impl Drop for BlockSlice {
    #[inline]
    fn drop(&mut self) {
        if let Some(block) = self.block() {
            // SAFETY: every part with a block is a holder of it, and this one is gone now.
            unsafe { Header::release(block) };
        }
    }
}

/// Shared, immutable bytes: a packet, or a part of one. The handle itself takes 16 bytes.
///
/// A clone or a slice increments a count and allocates nothing. The last holder returns the memory
/// to its [`Pool`](crate::Pool), on any thread.
pub struct Packet(BlockSlice);

// SAFETY: the bytes do not change while they are shared, the count is atomic, and a block may be
// given back on any thread.
unsafe impl Send for Packet {}
// SAFETY: as for `Send`; `&Packet` allows only reads and clones.
unsafe impl Sync for Packet {}

impl Packet {
    /// No bytes. Takes no memory.
    #[inline]
    pub const fn empty() -> Self {
        Self::from_static(&[])
    }

    /// Bytes that are part of the program. Takes no memory.
    ///
    /// # Panics
    /// If there are 4 GiB or more.
    #[inline]
    pub const fn from_static(bytes: &'static [u8]) -> Self {
        assert!(bytes.len() <= u32::MAX as usize, "a packet must be smaller than 4 GiB");
        // SAFETY: a reference is not null.
        let data = unsafe { NonNull::new_unchecked(bytes.as_ptr().cast_mut()) };
        Self(BlockSlice { data, len: bytes.len() as u32, offset: 0 })
    }

    /// The bytes in `range`, sharing the memory. An empty range holds no memory.
    ///
    /// # Panics
    /// If the range ends before it starts, or beyond the packet.
    #[inline]
    pub fn slice(&self, range: Range<usize>) -> Self {
        assert!(range.start <= range.end && range.end <= self.len(), "slice beyond the packet");
        if range.is_empty() {
            return Self::empty();
        }
        self.0.retain();
        // SAFETY: asserted above; the new holder was counted.
        Self(unsafe { self.0.subslice(range.start, range.end - range.start) })
    }

    /// Bytes of memory of the packet's block, which other packets may share.
    pub fn block_bytes(&self) -> usize {
        // SAFETY: the packet is a holder of its block.
        self.0.block().map_or(0, |block| unsafe { Header::block_bytes(block) })
    }

    /// A clone. Needs no locked instruction if this is the only holder.
    ///
    /// A locked instruction waits for all earlier writes, such as those of the packet's own bytes
    /// if it was just copied.
    #[inline]
    pub fn share(&mut self) -> Self {
        match self.0.block() {
            // SAFETY: the packet is a holder.
            Some(block) if unsafe { Header::is_sole_holder(block) } => {
                // The only holder is borrowed mutably, so no other thread can change the count.
                // SAFETY: the packet is a holder.
                unsafe { block.as_ref() }.holders.store(2, Ordering::Relaxed);
            }
            _ => self.0.retain(),
        }
        // SAFETY: the whole of the part; the new holder was counted.
        Self(unsafe { self.0.subslice(0, self.0.len as usize) })
    }

    /// The block, if this is its only holder and it comes from the pool of `shared`.
    #[inline]
    pub(crate) fn block_of(&self, shared: NonNull<PoolShared>) -> Option<NonNull<Header>> {
        let block = self.0.block()?;
        // SAFETY: the packet is a holder.
        let is_alone =
            unsafe { block.as_ref().pool == Some(shared) && Header::is_sole_holder(block) };
        is_alone.then_some(block)
    }

    /// The same. The caller becomes the holder.
    #[inline]
    pub(crate) fn into_block_of(self, shared: NonNull<PoolShared>) -> Option<NonNull<Header>> {
        let block = self.block_of(shared)?;
        core::mem::forget(self);
        Some(block)
    }

    /// Prefetches what a clone and a read of the first 96 bytes will touch. Touches none of it.
    #[inline(always)]
    pub fn prefetch(&self) {
        let data = self.0.data.as_ptr().cast_const();
        prefetch_pointer(data.wrapping_sub(self.0.offset as usize));
        prefetch_pointer(data.wrapping_add(48));
        prefetch_pointer(data.wrapping_add(95));
        if self.0.offset as usize > HEADER_BYTES {
            prefetch_pointer(data);
        }
    }
}

impl Packet {
    /// Prefetches the block of a packet that will be dropped and overwritten: all of a small block,
    /// or the start of a large one. The processor prefetches the rest of that on its own.
    #[inline(always)]
    pub fn prefetch_block(&self) {
        let data = self.0.data.as_ptr().cast_const();
        prefetch_pointer(data.wrapping_sub(self.0.offset as usize));
        let mut at = 0;
        while at < (self.0.len as usize).min(512) {
            prefetch_pointer(data.wrapping_add(at));
            at += 64;
        }
    }
}

impl Clone for Packet {
    #[inline]
    fn clone(&self) -> Self {
        self.0.retain();
        // SAFETY: the whole of the part; the new holder was counted.
        Self(unsafe { self.0.subslice(0, self.0.len as usize) })
    }
}

impl Deref for Packet {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: the bytes are initialised, and stay alive and unchanged as long as the packet is
        // borrowed.
        unsafe { core::slice::from_raw_parts(self.0.data.as_ptr(), self.0.len as usize) }
    }
}

impl AsRef<[u8]> for Packet {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Default for Packet {
    fn default() -> Self {
        Self::empty()
    }
}

impl PartialEq for Packet {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Packet {}

impl From<&[u8]> for Packet {
    fn from(bytes: &[u8]) -> Self {
        if bytes.is_empty() {
            return Self::empty();
        }
        let capacity = checked_len(bytes.len());
        let layout = Header::layout(capacity);
        // SAFETY: the layout has at least the bytes of the header.
        let memory = unsafe { alloc(layout) };
        // SAFETY: null or allocated with this layout; then the payload is filled whole, before
        // anyone can read it.
        unsafe {
            let block = Header::initialise(memory, layout, capacity, None);
            let data = Header::payload(block);
            data.copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len());
            Self(BlockSlice { data, len: capacity, offset: HEADER_BYTES as u32 })
        }
    }
}

impl From<Vec<u8>> for Packet {
    fn from(bytes: Vec<u8>) -> Self {
        Self::from(bytes.as_slice())
    }
}

impl fmt::Debug for Packet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Packet({} bytes: ", self.len())?;
        for octet in self.iter().take(32) {
            write!(f, "{octet:02x}")?;
        }
        f.write_str(if self.len() > 32 { "..)" } else { ")" })
    }
}

fn checked_len(len: usize) -> u32 {
    match u32::try_from(len + HEADER_BYTES) {
        Ok(_) => len as u32,
        Err(_) => panic!("a packet of {len} bytes exceeds the limit of 4 GiB"),
    }
}

/// A writable block, or the rest of one, with a single owner. Dereferences to its whole capacity,
/// which is initialised.
pub struct PacketMut(BlockSlice);

// SAFETY: the bytes belong to the owner alone, the count is atomic, and a block may be given back
// on any thread.
unsafe impl Send for PacketMut {}
// SAFETY: `&PacketMut` allows only reads.
unsafe impl Sync for PacketMut {}

impl PacketMut {
    /// A block of `size` zeroed bytes from the global allocator.
    ///
    /// # Panics
    /// If `size` is 4 GiB or more.
    pub(crate) fn unpooled(size: usize) -> Self {
        let block = Header::allocate(checked_len(size), None);
        // SAFETY: just made.
        unsafe { Self::from_block(block) }
    }

    /// # Safety
    /// The block must have no other holder, and its payload must be initialised.
    #[inline]
    pub(crate) unsafe fn from_block(block: NonNull<Header>) -> Self {
        // SAFETY: alive, by the caller.
        let header = unsafe { block.as_ref() };
        header.holders.store(1, Ordering::Relaxed);
        // SAFETY: alive, by the caller.
        let data = unsafe { Header::payload(block) };
        Self(BlockSlice { data, len: header.capacity, offset: HEADER_BYTES as u32 })
    }

    /// Bytes that can be written.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.0.len as usize
    }

    /// The first `len` bytes as a packet. The rest of the block stays unused while the packet
    /// lives.
    ///
    /// # Panics
    /// If `len` exceeds the capacity.
    #[inline]
    pub fn freeze(self, len: usize) -> Packet {
        assert!(len <= self.capacity(), "freeze beyond the capacity");
        if len == 0 {
            return Packet::empty();
        }
        let packet = ManuallyDrop::new(self);
        // SAFETY: asserted above; the holder passes from one to the other.
        Packet(unsafe { packet.0.subslice(0, len) })
    }
}

impl Deref for PacketMut {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: initialised, and no other handle refers to these bytes.
        unsafe { core::slice::from_raw_parts(self.0.data.as_ptr(), self.0.len as usize) }
    }
}

impl DerefMut for PacketMut {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: initialised, and no other handle refers to these bytes.
        unsafe { core::slice::from_raw_parts_mut(self.0.data.as_ptr(), self.0.len as usize) }
    }
}

impl fmt::Debug for PacketMut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PacketMut({} bytes)", self.capacity())
    }
}

#[cfg(test)]
mod tests;
