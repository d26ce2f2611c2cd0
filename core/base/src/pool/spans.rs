//! Tests of pools with spans.

use super::*;
use crate::rng::Rng;
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::VecDeque;
use std::sync::mpsc;
use std::thread;
use std::vec::Vec;

const SPAN_BYTES: usize = 64 << 10;

/// Spans from the global allocator, counted.
#[derive(Debug)]
struct CountingSource {
    span_bytes: usize,
    spans_max: AtomicUsize,
    taken: AtomicUsize,
    given_back: AtomicUsize,
}

impl Default for CountingSource {
    fn default() -> Self {
        Self::of(SPAN_BYTES)
    }
}

// SAFETY: of the global allocator, by the layout.
unsafe impl SpanSource for CountingSource {
    fn span_bytes(&self) -> usize {
        self.span_bytes
    }

    fn take(&self, _: u32) -> Option<NonNull<u8>> {
        if self.is_exhausted() {
            return None;
        }
        self.taken.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the layout has bytes.
        NonNull::new(unsafe { alloc_zeroed(self.layout()) })
    }

    fn is_exhausted(&self) -> bool {
        self.in_use() >= self.spans_max.load(Ordering::Relaxed)
    }

    unsafe fn give_back(&self, span: NonNull<u8>, _: u32) {
        self.given_back.fetch_add(1, Ordering::Relaxed);
        // SAFETY: of `take`, by the caller.
        unsafe { dealloc(span.as_ptr(), self.layout()) };
    }
}

impl CountingSource {
    fn of(span_bytes: usize) -> Self {
        Self {
            span_bytes,
            spans_max: AtomicUsize::new(usize::MAX),
            taken: AtomicUsize::new(0),
            given_back: AtomicUsize::new(0),
        }
    }

    fn layout(&self) -> Layout {
        Layout::from_size_align(self.span_bytes, self.span_bytes).unwrap()
    }

    fn in_use(&self) -> usize {
        self.taken.load(Ordering::Relaxed) - self.given_back.load(Ordering::Relaxed)
    }
}

fn filled(pool: &mut Pool, size: usize, octet: u8) -> Packet {
    let mut packet = pool.alloc(size);
    packet.fill(octet);
    packet.freeze(size)
}

#[test]
fn blocks_fill_spans_side_by_side() {
    let source = Arc::new(CountingSource::default());
    let mut pool = Pool::with_spans(0, source.clone());
    let block = Pool::footprint(1_000);
    let fit = (SPAN_BYTES - 64) / block;
    let mut packets: Vec<_> = (0..fit).map(|at| filled(&mut pool, 1_000, at as u8)).collect();
    assert_eq!(source.in_use(), 1);
    for pair in packets.windows(2) {
        assert_eq!(pair[1].as_ptr() as usize - pair[0].as_ptr() as usize, block);
    }
    packets.push(filled(&mut pool, 1_000, 0));
    assert_eq!(source.in_use(), 2);
    for (at, packet) in packets[..fit].iter().enumerate() {
        assert!(packet.iter().all(|&octet| octet == at as u8));
    }
}

#[test]
fn falls_back_to_allocator_without_spans() {
    let source = Arc::new(CountingSource::default());
    source.spans_max.store(1, Ordering::Relaxed);
    let mut pool = Pool::with_spans(0, source.clone());
    let fit = (SPAN_BYTES - 64) / Pool::footprint(1_000);
    let mut packets: Vec<_> = (0..fit).map(|at| filled(&mut pool, 1_000, at as u8)).collect();
    assert!(pool.span_bytes_when_exhausted().is_none(), "one full span is no shortage");
    packets.push(filled(&mut pool, 1_000, fit as u8));
    assert_eq!(pool.span_bytes_when_exhausted(), Some(SPAN_BYTES as u64));
    for (at, packet) in packets.iter().enumerate() {
        assert!(packet.iter().all(|&octet| octet == at as u8));
    }
    // A returned block is reused, whether or not there is another span.
    pool.recycle(packets.remove(0));
    packets.push(filled(&mut pool, 1_000, 0));
    assert_eq!(pool.span_bytes_when_exhausted(), Some(SPAN_BYTES as u64));
    assert_eq!(source.in_use(), 1);
    source.spans_max.store(2, Ordering::Relaxed);
    assert_eq!(pool.span_bytes_when_exhausted(), None);
    packets.push(filled(&mut pool, 1_000, 0));
    assert_eq!(source.in_use(), 2);
    drop(packets);
    drop(pool);
    assert_eq!(source.in_use(), 0);
}

#[test]
fn large_blocks_need_no_span() {
    let source = Arc::new(CountingSource::default());
    let mut pool = Pool::with_spans(1 << 20, source.clone());
    let packet = filled(&mut pool, 8_000, 7);
    assert_eq!(source.in_use(), 0);
    pool.recycle(packet);
    let address = pool.alloc(8_000).as_ptr();
    assert_eq!(pool.alloc(8_000).as_ptr(), address);
}

#[test]
fn class_in_use_keeps_its_span() {
    let source = Arc::new(CountingSource::default());
    let mut pool = Pool::with_spans(0, source.clone());
    for _ in 0..100 {
        let packet = filled(&mut pool, 1_000, 1);
        pool.recycle(packet);
    }
    assert_eq!((source.taken.load(Ordering::Relaxed), source.in_use()), (1, 1));
}

#[test]
fn packets_outlive_their_pool_with_its_spans() {
    let source = Arc::new(CountingSource::default());
    let mut pool = Pool::with_spans(1 << 16, source.clone());
    let kept: Vec<_> = (0..200).map(|at| filled(&mut pool, 1_000, at)).collect();
    drop(filled(&mut pool, 100, 0));
    let listed = filled(&mut pool, 100, 0);
    pool.recycle(listed);
    drop(pool);
    for (at, packet) in kept.iter().enumerate() {
        assert!(packet.iter().all(|&octet| octet == at as u8));
    }
    assert!(source.in_use() > 0);
    drop(kept);
    assert_eq!((source.in_use(), Arc::strong_count(&source)), (0, 1));
}

#[test]
fn last_drop_returns_spans() {
    for round in 0..if cfg!(miri) { 4 } else { 300 } {
        let source = Arc::new(CountingSource::default());
        let mut pool = Pool::with_spans(1 << 14, source.clone());
        let (senders, threads): (Vec<_>, Vec<_>) = (0..3)
            .map(|_| {
                let (sender, receiver) = mpsc::sync_channel::<(u8, Packet)>(8);
                let thread = thread::spawn(move || {
                    for (octet, packet) in receiver {
                        assert!(packet.iter().all(|&other| other == octet));
                    }
                });
                (sender, thread)
            })
            .unzip();
        let mut rng = Rng::from_seed(round);
        for packet in 0..if cfg!(miri) { 40 } else { 400 } {
            let octet = packet as u8;
            let packet = filled(&mut pool, 1 + rng.below(4_000) as usize, octet);
            for sender in &senders {
                sender.send((octet, packet.clone())).unwrap();
            }
            pool.recycle(packet);
        }
        drop(senders);
        drop(pool);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!((source.in_use(), Arc::strong_count(&source)), (0, 1));
    }
}

/// Regression: the pool first reused blocks in spans whose other blocks were about to be freed as
/// well, and took twice the memory.
#[test]
fn mixed_sizes_reuse_freed_spans() {
    let (spans, rounds) = if cfg!(miri) { (40, 2_000) } else { (256, 40_000) };
    let source = Arc::new(CountingSource::default());
    let mut pool = Pool::with_spans(4 << 20, source.clone());
    let (mut held, mut bytes, mut most_in_use) = (VecDeque::new(), 0, 0);
    let mut rng = Rng::from_seed(3);
    for round in 0..rounds {
        let size = if round < rounds / 3 { 3_000 } else { 100 + rng.below(3_800) as usize };
        bytes += Pool::footprint(size);
        held.push_back(filled(&mut pool, size, round as u8));
        while bytes > spans * SPAN_BYTES {
            let packet: Packet = held.pop_front().unwrap();
            bytes -= packet.block_bytes();
            pool.recycle(packet);
        }
        most_in_use = most_in_use.max(source.in_use());
    }
    // Half a span for each of the twenty classes.
    assert!(most_in_use <= spans + spans / 20 + 20, "{most_in_use} of {spans}");
}

/// Regression: with more than twelve sizes, each with a span being filled, packets in good places
/// counted as fragmented and were visited again and again.
#[test]
fn filling_spans_are_not_fragmented() {
    const LARGE_SPAN_BYTES: usize = 1 << 20;
    let source = Arc::new(CountingSource::of(LARGE_SPAN_BYTES));
    let mut pool = Pool::with_spans(0, source.clone());
    let sizes: Vec<_> = (0..30).map(|class| class::capacity(class) as usize).collect();
    let mut held: Vec<_> = sizes.iter().map(|&size| filled(&mut pool, size, 1)).collect();
    assert_eq!(source.in_use(), sizes.len());
    assert!(!pool.is_fragmented());
    // Packets that are nearly alone in spans that were full count, until they are moved.
    let many: Vec<_> = (0..24 * 16).map(|_| filled(&mut pool, sizes[29], 2)).collect();
    for (at, packet) in many.into_iter().enumerate() {
        match at % 16 {
            0 => held.push(packet),
            _ => pool.recycle(packet),
        }
    }
    assert!(pool.is_fragmented());
    held.iter_mut().for_each(|packet| pool.compact(packet));
    assert!(!pool.is_fragmented());
    assert!(source.in_use() < sizes.len() + 4, "{}", source.in_use());
    assert_eq!(held.iter().filter(|packet| packet.iter().all(|&octet| octet == 2)).count(), 24);
}
