//! Memory for pools.

use core::ptr::NonNull;

/// Where pools get memory for their blocks: spans of one size, aligned to that size.
///
/// A span holds blocks of one size class and goes back when all of them are free, so that memory
/// moves from one class to another, and from one pool to another.
///
/// # Safety
/// `span_bytes` is always the same power of two. What `take` returns is aligned to it, has that
/// many initialised octets that may be written, belongs to the caller alone until it is given back,
/// and is there as long as the source is.
pub unsafe trait SpanSource: Send + Sync + core::fmt::Debug {
    /// Octets of a span, a power of two from 4,096 to 2^31.
    fn span_bytes(&self) -> usize;

    /// A span that will be cut into so many blocks, or nothing when the system has no memory.
    fn take(&self, blocks: u32) -> Option<NonNull<u8>>;

    /// Whether it will give none until others come back, or the system has memory again.
    fn is_exhausted(&self) -> bool;

    /// Takes back a span of so many blocks. May be called on any thread.
    ///
    /// # Safety
    /// `span` comes from `take` of this source, and nobody uses it any more.
    unsafe fn give_back(&self, span: NonNull<u8>, blocks: u32);
}
