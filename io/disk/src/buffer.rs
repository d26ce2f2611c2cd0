//! Aligned buffers of fixed size that devices may read and write directly. Each has one owner at a
//! time, so no code touches it while the kernel uses it.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// The largest alignment that direct I/O requires: a page.
const ALIGNMENT: usize = 4096;

/// Large enough for a record with 8192 bytes of content, its name, signature and header.
const SMALL_BYTES: usize = 16 << 10;
/// The default size of a write.
const LARGE_BYTES: usize = 256 << 10;
/// Large buffers that are kept. Further ones are allocated when needed and freed afterwards.
const LARGE_MAX: usize = 16;

pub(crate) struct Buffer {
    memory: NonNull<u8>,
    capacity: usize,
    /// Its number among the buffers that are kept and registered with the kernel.
    index: Option<u16>,
}

// SAFETY: the memory belongs to the buffer alone.
unsafe impl Send for Buffer {}

impl Buffer {
    pub(crate) fn new(capacity: usize, index: Option<u16>) -> Self {
        let capacity = capacity.max(1).next_multiple_of(ALIGNMENT);
        let layout = Self::layout(capacity);
        // SAFETY: the layout has at least one byte.
        let Some(memory) = NonNull::new(unsafe { alloc_zeroed(layout) }) else {
            handle_alloc_error(layout)
        };
        Self { memory, capacity, index }
    }

    fn layout(capacity: usize) -> Layout {
        Layout::from_size_align(capacity, ALIGNMENT).expect("an operation fits into memory")
    }

    pub(crate) fn index(&self) -> Option<u16> {
        self.index
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout by `new`, and no other reference exists.
        unsafe { dealloc(self.memory.as_ptr(), Self::layout(self.capacity)) };
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the memory has `capacity` bytes, all initialised, and lives as long as `self`.
        unsafe { std::slice::from_raw_parts(self.memory.as_ptr(), self.capacity) }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `self` is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.memory.as_ptr(), self.capacity) }
    }
}

/// The idle buffers of one disk.
pub(crate) struct Buffers {
    small: Vec<Buffer>,
    large: Vec<Buffer>,
}

/// Memory of the buffers of one disk, which io_uring locks. `depth` is the most operations in
/// progress, which the shards divide among themselves.
pub fn locked_bytes(depth: u32, shards: usize) -> u64 {
    let depth = (depth as usize / shards.max(1)).max(1);
    let shard_bytes = depth * SMALL_BYTES + depth.min(LARGE_MAX) * LARGE_BYTES;
    (shard_bytes * shards) as u64
}

impl Buffers {
    /// Buffers for `operations_max` operations at a time.
    pub(crate) fn new(operations_max: usize) -> Self {
        let make = |first: usize, count: usize, capacity: usize| {
            (first..first + count)
                .map(|index| Buffer::new(capacity, u16::try_from(index).ok()))
                .rev()
                .collect()
        };
        Self {
            small: make(0, operations_max, SMALL_BYTES),
            large: make(operations_max, operations_max.min(LARGE_MAX), LARGE_BYTES),
        }
    }

    /// All buffers that are kept, by number.
    pub(crate) fn pooled(&self) -> impl Iterator<Item = &Buffer> {
        self.small.iter().rev().chain(self.large.iter().rev())
    }

    /// A buffer of at least `len` bytes.
    pub(crate) fn take(&mut self, len: usize) -> Buffer {
        let kept = match len {
            0..=SMALL_BYTES => self.small.pop(),
            _ if len <= LARGE_BYTES => self.large.pop(),
            _ => None,
        };
        kept.unwrap_or_else(|| Buffer::new(len, None))
    }

    pub(crate) fn put(&mut self, buffer: Buffer) {
        if buffer.index.is_some() {
            let list =
                if buffer.capacity == SMALL_BYTES { &mut self.small } else { &mut self.large };
            list.push(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locked_bytes_are_those_of_all_buffers() {
        for (depth, shards) in [(64, 1), (64, 4), (8, 2), (1, 3)] {
            let buffers = Buffers::new((depth as usize / shards).max(1));
            let pooled: usize = buffers.pooled().map(|buffer| buffer.len()).sum();
            assert_eq!(locked_bytes(depth, shards), (pooled * shards) as u64);
        }
        assert_eq!(locked_bytes(64, 1), 5 << 20);
    }

    #[test]
    fn buffers_are_aligned_numbered_and_come_back() {
        let mut buffers = Buffers::new(20);
        let numbers: Vec<_> = buffers.pooled().map(|buffer| buffer.index().unwrap()).collect();
        assert_eq!(numbers, (0..36).collect::<Vec<_>>());
        let taken: Vec<_> = (0..22).map(|_| buffers.take(8704)).collect();
        assert!(taken.iter().all(|buffer| buffer.as_ptr().addr() % ALIGNMENT == 0));
        assert_eq!(taken.iter().filter(|buffer| buffer.index().is_none()).count(), 2);
        taken.into_iter().for_each(|buffer| buffers.put(buffer));
        assert_eq!(buffers.pooled().count(), 36);
        assert_eq!(buffers.take(LARGE_BYTES).index(), Some(20));
        let own = buffers.take(LARGE_BYTES + 1);
        assert!(own.index().is_none() && own.len() > LARGE_BYTES && own.iter().all(|&o| o == 0));
    }
}
