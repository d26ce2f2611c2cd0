//! Sources of memory for pools.

use core::ptr::NonNull;

/// Where pools get memory for their blocks: spans of one size, aligned to that size.
///
/// A span holds blocks of one size class. It goes back when all of them are free, so memory moves
/// between classes and between pools.
///
/// # Safety
/// `span_bytes` must always return the same power of two. Memory from `take` must be aligned to it
/// and have `span_bytes` initialised and writable bytes. It must belong to the caller alone until
/// it is given back, and exist as long as the source.
pub unsafe trait SpanSource: Send + Sync + core::fmt::Debug {
    /// Bytes of a span, a power of two from 4096 to 2^31.
    fn span_bytes(&self) -> usize;

    /// A span that will be cut into `blocks` blocks, or `None` if there is no memory.
    fn take(&self, blocks: u32) -> Option<NonNull<u8>>;

    /// Whether `take` will return `None` until spans are given back or the system has memory again.
    fn is_exhausted(&self) -> bool;

    /// Takes back a span of `blocks` blocks. May be called on any thread.
    ///
    /// # Safety
    /// `span` must come from `take` of this source, and must not be used any more.
    unsafe fn give_back(&self, span: NonNull<u8>, blocks: u32);
}
