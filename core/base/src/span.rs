//! The spans of a pool. `pool.rs` describes their use.

use crate::block::{Header, PoolShared, SPAN_HEADER_BYTES, Span, release_span, span_of};
use crate::class::{self, CLASSES};
use crate::source::SpanSource;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicU32, Ordering};

pub(crate) struct Spans {
    source: Arc<dyn SpanSource>,
    span_bytes: usize,
    spans: Vec<NonNull<Span>>,
    classes: [ClassSpans; CLASSES],
    /// Spans that are being filled, at most one for each class.
    filling_count: usize,
    /// Bytes of the blocks that are in use.
    used_bytes: usize,
}

/// Spans that are not full may waste one part in `WASTE_DIVISOR` of the bytes in use, plus
/// `WASTED_SPANS_MAX` spans. Spans that are being filled do not count.
const WASTE_DIVISOR: usize = 32;
const WASTED_SPANS_MAX: usize = 8;

/// The spans of one class that have space.
#[derive(Default)]
struct ClassSpans {
    /// Blocks are taken from this span until it is full.
    current: Option<NonNull<Span>>,
    /// When `current` is full, the span that has had space for longest becomes the next one. The
    /// others rest: if their last blocks are returned as well, the whole span is free. A span that
    /// is gone leaves `None` here.
    with_room: VecDeque<Option<NonNull<Span>>>,
    /// The position of the first element of `with_room`.
    first_position: u64,
}

impl ClassSpans {
    /// Adds a span. Returns its position.
    fn push(&mut self, span: NonNull<Span>) -> u64 {
        self.with_room.push_back(Some(span));
        self.first_position + self.with_room.len() as u64 - 1
    }

    fn pop(&mut self) -> Option<NonNull<Span>> {
        while let Some(span) = self.with_room.pop_front() {
            self.first_position += 1;
            if span.is_some() {
                return span;
            }
        }
        None
    }

    fn remove(&mut self, turn: u64) {
        self.with_room[(turn - self.first_position) as usize] = None;
        while let Some(None) = self.with_room.front() {
            self.with_room.pop_front();
            self.first_position += 1;
        }
    }
}

impl Spans {
    pub(crate) fn of(source: Arc<dyn SpanSource>) -> Self {
        let span_bytes = source.span_bytes();
        assert!(span_bytes.is_power_of_two() && (4_096..=1 << 31).contains(&span_bytes));
        Self {
            source,
            span_bytes,
            spans: Vec::new(),
            classes: core::array::from_fn(|_| ClassSpans::default()),
            filling_count: 0,
            used_bytes: 0,
        }
    }

    /// A block of `class` from the current span, with arbitrary contents.
    #[inline]
    pub(crate) fn take_from_current(
        &mut self,
        class: usize,
        shared: NonNull<PoolShared>,
    ) -> Option<NonNull<Header>> {
        let mut span = self.classes[class].current?;
        // SAFETY: the pool owns the fields of its spans.
        let fields = unsafe { span.as_mut() };
        let block = match NonNull::new(fields.free) {
            Some(block) => {
                // SAFETY: blocks on the list belong to the span alone, and hold a link.
                fields.free = unsafe { Header::next(block) };
                block
            }
            None => {
                let at = SPAN_HEADER_BYTES + fields.carved as usize * class::class_bytes(class);
                fields.carved += 1;
                // SAFETY: a span with space has a returned block, or one not cut yet.
                let block = unsafe { span.cast::<u8>().add(at) }.cast::<Header>();
                // SAFETY: aligned to 16, as sizes of classes and of the header are; nothing else
                // knows this part of the span.
                unsafe { block.write(Header::of_pool(class::capacity(class), shared)) };
                block
            }
        };
        *fields.outstanding.get_mut() += 1;
        self.used_bytes += class::class_bytes(class);
        if fields.free.is_null() && fields.carved == fields.block_capacity {
            fields.has_room = false;
            self.classes[class].current = None;
            self.filling_count -= 1;
        }
        Some(block)
    }

    /// Like [`Self::take_from_current`]. If the current span is full, continues with another span
    /// that has space, or with a new one.
    pub(crate) fn take(
        &mut self,
        class: usize,
        shared: NonNull<PoolShared>,
    ) -> Option<NonNull<Header>> {
        if self.classes[class].current.is_none() {
            let waiting = self.classes[class].pop();
            self.classes[class].current = Some(match waiting {
                Some(span) => span,
                None => self.grow(class, shared)?,
            });
            self.filling_count += 1;
        }
        self.take_from_current(class, shared)
    }

    #[cold]
    fn grow(&mut self, class: usize, shared: NonNull<PoolShared>) -> Option<NonNull<Span>> {
        let block_count = (self.span_bytes - SPAN_HEADER_BYTES) / class::class_bytes(class);
        let block_count = block_count as u32;
        let span = self.source.take(block_count)?.cast::<Span>();
        let fields = Span {
            outstanding: AtomicU32::new(0),
            class: class as u32,
            carved: 0,
            block_capacity: block_count,
            index: self.spans.len() as u32,
            has_room: true,
            queue_position: 0,
            free: ptr::null_mut(),
        };
        // SAFETY: large enough, aligned and ours, by the source's word.
        unsafe { span.write(fields) };
        // SAFETY: the pool is a holder of `shared`.
        unsafe { shared.as_ref() }.holders.fetch_add(1, Ordering::Relaxed);
        self.spans.push(span);
        Some(span)
    }

    /// Takes back a block. The current span stays, even if it is empty.
    ///
    /// # Safety
    /// The block must have been cut from one of these spans, and the caller must be its only
    /// holder. It no longer is one afterwards.
    pub(crate) unsafe fn put(&mut self, block: NonNull<Header>, shared: NonNull<PoolShared>) {
        // SAFETY: by the caller.
        let mut span = unsafe { span_of(block, self.span_bytes) };
        // SAFETY: the pool owns the fields of its spans.
        let fields = unsafe { span.as_mut() };
        // SAFETY: the caller is the only holder.
        unsafe { Header::set_next(block, fields.free) };
        fields.free = block.as_ptr();
        *fields.outstanding.get_mut() -= 1;
        let is_empty = *fields.outstanding.get_mut() == 0;
        self.used_bytes -= class::class_bytes(fields.class as usize);
        let index = fields.index as usize;
        let class = &mut self.classes[fields.class as usize];
        if !fields.has_room {
            fields.has_room = true;
            fields.queue_position = class.push(span);
        }
        // An empty span goes back to the source, except for the current one: it would be requested
        // again at once.
        if !is_empty || class.current == Some(span) {
            return;
        }
        let block_count = fields.block_capacity;
        class.remove(fields.queue_position);
        self.spans.swap_remove(index);
        if let Some(moved) = self.spans.get_mut(index) {
            // SAFETY: as above.
            unsafe { moved.as_mut() }.index = index as u32;
        }
        // SAFETY: no block of the span is out, and the pool forgot it. The span was a holder of
        // `shared`, and the pool is another holder.
        unsafe {
            self.source.give_back(span.cast(), block_count);
            PoolShared::release(shared);
        }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.spans.len() as u64 * self.span_bytes as u64
    }

    pub(crate) fn is_exhausted(&self) -> bool {
        self.source.is_exhausted()
    }

    /// Whether spans that are not full waste too much memory. Those being filled do not count:
    /// nothing is moved out of them.
    pub(crate) fn is_fragmented(&self) -> bool {
        let spans_wasted = WASTED_SPANS_MAX + self.filling_count;
        let most =
            self.used_bytes + self.used_bytes / WASTE_DIVISOR + spans_wasted * self.span_bytes;
        self.spans.len() * self.span_bytes > most
    }

    /// Whether a block is in a span that is at most half full, and not the current one.
    ///
    /// # Safety
    /// The block must have been cut from one of these spans, and be alive.
    pub(crate) unsafe fn is_sparse(&self, block: NonNull<Header>) -> bool {
        // SAFETY: by the caller.
        let span = unsafe { span_of(block, self.span_bytes) };
        // SAFETY: the pool owns the fields of its spans.
        let fields = unsafe { span.as_ref() };
        2 * fields.outstanding.load(Ordering::Relaxed) <= fields.block_capacity
            && self.classes[fields.class as usize].current != Some(span)
    }

    /// Keeps the spans alive while the pool closes, until [`Self::release_all`].
    pub(crate) fn retain_all(&mut self) {
        for span in &mut self.spans {
            // SAFETY: the pool owns the fields of its spans.
            *unsafe { span.as_mut() }.outstanding.get_mut() += 1;
        }
    }

    /// Leaves the spans to the remaining packets, after [`Self::retain_all`].
    pub(crate) fn release_all(&mut self, shared: NonNull<PoolShared>) {
        for span in self.spans.drain(..) {
            // SAFETY: counted by `retain_all`.
            unsafe { release_span(shared, span) };
        }
    }
}
