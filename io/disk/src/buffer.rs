//! Memory that devices may read and write directly: aligned, of fixed size, handed from owner to
//! owner so that it is not seen while the kernel works on it.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// What direct I/O wants of addresses at most: a page.
const ALIGNMENT: usize = 4096;

/// A record of 8,192 octets with its name, signature and header fits.
const SMALL_BYTES: usize = 16 << 10;
/// What is written at once by default.
const LARGE_BYTES: usize = 256 << 10;
/// More large ones under way at once take memory of their own for as long as they last.
const LARGE_MAX: usize = 16;

/// Aligned octets, all initialised.
pub(crate) struct Buffer {
    memory: NonNull<u8>,
    capacity: usize,
    /// Its number among those that are kept and registered with the kernel.
    index: Option<u16>,
}

// SAFETY: the memory belongs to the buffer alone.
unsafe impl Send for Buffer {}

impl Buffer {
    /// Cleared octets.
    pub(crate) fn new(capacity: usize, index: Option<u16>) -> Self {
        let capacity = capacity.max(1).next_multiple_of(ALIGNMENT);
        let layout = Self::layout(capacity);
        // SAFETY: the layout has at least one octet.
        let Some(memory) = NonNull::new(unsafe { alloc_zeroed(layout) }) else {
            handle_alloc_error(layout)
        };
        Self { memory, capacity, index }
    }

    fn layout(capacity: usize) -> Layout {
        Layout::from_size_align(capacity, ALIGNMENT).expect("an operation fits in memory")
    }

    pub(crate) fn index(&self) -> Option<u16> {
        self.index
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout by `new`, and nobody else knows it.
        unsafe { dealloc(self.memory.as_ptr(), Self::layout(self.capacity)) };
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the memory has that many octets, all initialised, and lives as long as `self`.
        unsafe { std::slice::from_raw_parts(self.memory.as_ptr(), self.capacity) }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `self` is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.memory.as_ptr(), self.capacity) }
    }
}

/// The buffers of one disk that are at rest.
pub(crate) struct Buffers {
    small: Vec<Buffer>,
    large: Vec<Buffer>,
}

impl Buffers {
    /// Buffers for `operations_max` operations at once.
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

    /// All that are kept, by their numbers.
    pub(crate) fn pooled(&self) -> impl Iterator<Item = &Buffer> {
        self.small.iter().rev().chain(self.large.iter().rev())
    }

    /// A buffer of at least `len` octets.
    pub(crate) fn take(&mut self, len: usize) -> Buffer {
        let kept = match len {
            0..=SMALL_BYTES => self.small.pop(),
            _ if len <= LARGE_BYTES => self.large.pop(),
            _ => None,
        };
        kept.unwrap_or_else(|| Buffer::new(len, None))
    }

    /// Takes one back.
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
