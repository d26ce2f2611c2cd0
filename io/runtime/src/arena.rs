//! Memory for the content store, in spans that are made ready before they are needed.
//!
//! The first touch of a page is a fault, in which the system finds memory and clears it: for a Data
//! of 8000 octets more work than all else that a router does with it. So a thread of its own
//! touches spans while the packet threads have a few in hand. It runs only when a processor has
//! nothing else to do: a packet thread that finds no span ready takes the faults itself. Spans come
//! from it over a ring, for a lock that it held might be held for as long as there is other work.

use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nix::libc;
use weir_base::SpanSource;

/// Octets that are asked of the system at once. Address space only, until it is touched.
const MAPPING_BYTES: usize = 64 << 20;
/// The smallest page that Linux has.
const PAGE_BYTES: usize = 4_096;
/// Spans of a packet thread's share: so many that those of its size classes that are half full are
/// few among them.
const SPANS_PER_THREAD: u64 = 256;
const SPAN_BYTES_LEAST: u64 = 256 << 10;
const SPAN_BYTES_MOST: u64 = 2 << 20;
/// When a thread that found no address space tries again.
const RETRY: Duration = Duration::from_secs(10);

/// The memory of all packet threads' stores.
#[derive(Debug)]
pub(crate) struct Arena {
    span_bytes: usize,
    /// What packet threads share.
    state: Mutex<State>,
    /// Spans that were touched, and are free or on their way.
    ready: AtomicU64,
    /// Spans that pools have.
    in_use: AtomicU64,
    /// Nothing is made ready beyond so many octets in use: the store will not need them.
    capacity_bytes: AtomicU64,
    is_stopping: AtomicBool,
    /// The mappings of the thread that makes spans ready. Nobody else locks them before the end.
    prepared: Mutex<Vec<Mapping>>,
}

#[derive(Debug)]
struct State {
    /// Spans that were made ready.
    prepared: rtrb::Consumer<Span>,
    /// Spans that came back.
    returned: Vec<Span>,
    /// Untouched ones, for when there is none else.
    fresh: Fresh,
    mappings: Vec<Mapping>,
    preparer: Option<thread::Thread>,
}

/// What was never given out of the last mapping of somebody.
#[derive(Debug, Default)]
struct Fresh(Vec<Span>);

impl Fresh {
    /// A span that was never touched, of a new mapping if need be.
    fn cut(&mut self, span_bytes: usize) -> io::Result<(Span, Option<Mapping>)> {
        let mut new = None;
        if self.0.is_empty() {
            let mapping = map(MAPPING_BYTES)?;
            let start = mapping.start.0;
            let skip = start.align_offset(span_bytes);
            let spans = (mapping.bytes - skip) / span_bytes;
            // SAFETY: within the mapping.
            let at = |index| unsafe { start.add(skip + index * span_bytes) };
            self.0.extend((0..spans).rev().map(|index| Span(at(index))));
            new = Some(mapping);
        }
        Ok((self.0.pop().expect("a mapping has room for spans"), new))
    }
}

#[derive(Debug)]
struct Span(NonNull<u8>);

// SAFETY: memory that belongs to whoever has the value.
unsafe impl Send for Span {}

#[derive(Debug)]
struct Mapping {
    start: Span,
    bytes: usize,
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped with this length; the arena goes with the last pool and packet.
        unsafe { libc::munmap(self.start.0.as_ptr().cast(), self.bytes) };
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No state is left half changed: what panics here is allocation, before the change.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Arena {
    /// For `threads` stores of `capacity_bytes` together, of which at most `ahead_bytes` are made
    /// ready ahead, by a thread that gets the other value. Nothing for stores so small that spans
    /// would be a large part of them.
    fn new(
        capacity_bytes: u64,
        ahead_bytes: u64,
        threads: usize,
    ) -> Option<(Arc<Self>, rtrb::Producer<Span>)> {
        let span_bytes = capacity_bytes / threads as u64 / SPANS_PER_THREAD;
        if span_bytes < SPAN_BYTES_LEAST / 4 {
            return None;
        }
        let span_bytes = span_bytes.next_power_of_two().clamp(SPAN_BYTES_LEAST, SPAN_BYTES_MOST);
        // A ring is as large as the configuration asks for, so far as a store can use it.
        let ahead = ahead_bytes.min(capacity_bytes).div_ceil(span_bytes);
        let (producer, prepared) = rtrb::RingBuffer::new(ahead as usize);
        let state = State {
            prepared,
            returned: Vec::new(),
            fresh: Fresh::default(),
            mappings: Vec::new(),
            preparer: None,
        };
        let arena = Self {
            span_bytes: span_bytes as usize,
            state: Mutex::new(state),
            ready: AtomicU64::new(0),
            in_use: AtomicU64::new(0),
            capacity_bytes: AtomicU64::new(capacity_bytes),
            is_stopping: AtomicBool::new(false),
            prepared: Mutex::new(Vec::new()),
        };
        Some((Arc::new(arena), producer))
    }

    /// Makes spans ready until told to stop.
    fn prepare(&self, mut ready: rtrb::Producer<Span>) {
        let mut fresh = Fresh::default();
        while !self.is_stopping.load(Ordering::Acquire) {
            let taken = self.in_use.load(Ordering::Relaxed) + self.ready.load(Ordering::Relaxed);
            let capacity_bytes = self.capacity_bytes.load(Ordering::Relaxed);
            if ready.is_full() || taken * self.span_bytes as u64 >= capacity_bytes {
                thread::park();
                continue;
            }
            let span = match fresh.cut(self.span_bytes) {
                Ok((span, mapping)) => {
                    lock(&self.prepared).extend(mapping);
                    span
                }
                Err(error) => {
                    tracing::warn!(
                        %error,
                        "no memory for the content store can be made ready; Data waits for it as \
                         it comes"
                    );
                    thread::park_timeout(RETRY);
                    continue;
                }
            };
            touch(&span, self.span_bytes);
            self.ready.fetch_add(1, Ordering::Relaxed);
            ready.push(span).expect("only this thread pushes, and it was not full");
        }
    }
}

// SAFETY: spans are cut off mappings, aligned, and in one place at a time: in the ring, in
// `returned`, in somebody's `fresh` or with a pool. The system clears what it maps. The mappings go
// with the arena.
unsafe impl SpanSource for Arena {
    fn span_bytes(&self) -> usize {
        self.span_bytes
    }

    fn take(&self) -> Option<NonNull<u8>> {
        let mut state = lock(&self.state);
        let ready = state.prepared.pop().ok().or_else(|| state.returned.pop());
        let span = match ready {
            Some(span) => {
                self.ready.fetch_sub(1, Ordering::Relaxed);
                span
            }
            None => {
                let (span, mapping) = state.fresh.cut(self.span_bytes).ok()?;
                state.mappings.extend(mapping);
                span
            }
        };
        self.in_use.fetch_add(1, Ordering::Relaxed);
        if let Some(preparer) = &state.preparer {
            preparer.unpark();
        }
        Some(span.0)
    }

    unsafe fn give_back(&self, span: NonNull<u8>) {
        self.in_use.fetch_sub(1, Ordering::Relaxed);
        self.ready.fetch_add(1, Ordering::Relaxed);
        lock(&self.state).returned.push(Span(span));
    }
}

fn map(bytes: usize) -> io::Result<Mapping> {
    let (protection, flags) = (
        libc::PROT_READ | libc::PROT_WRITE,
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
    );
    // SAFETY: a new mapping, wherever the system likes.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0) };
    if start == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    let start: NonNull<u8> =
        NonNull::new(start.cast()).expect("the system maps nothing at address 0");
    Ok(Mapping { start: Span(start), bytes })
}

/// Has the system find memory for a span, a page at a time: a call that did so for many
/// (`MADV_POPULATE_WRITE`) would hold a lock of the whole process, and keep packet threads waiting
/// while this thread, the least urgent of all, gets no processor.
fn touch(span: &Span, bytes: usize) {
    for page in (0..bytes).step_by(PAGE_BYTES) {
        // SAFETY: within a span that nobody else has.
        unsafe { span.0.add(page).write_volatile(0) };
    }
}

/// The arena's thread, stopped when this is dropped.
#[derive(Debug)]
pub(crate) struct Preparer {
    arena: Arc<Arena>,
    thread: Option<JoinHandle<()>>,
}

impl Preparer {
    /// See [`Arena::new`].
    pub(crate) fn start(
        capacity_bytes: u64,
        ahead_bytes: u64,
        threads: usize,
    ) -> io::Result<Option<Self>> {
        let Some((arena, ready)) = Arena::new(capacity_bytes, ahead_bytes, threads) else {
            return Ok(None);
        };
        let shared = Arc::clone(&arena);
        let thread = thread::Builder::new().name("weir-memory".to_owned()).spawn(move || {
            only_when_idle();
            shared.prepare(ready);
        })?;
        lock(&arena.state).preparer = Some(thread.thread().clone());
        Ok(Some(Self { arena, thread: Some(thread) }))
    }

    pub(crate) fn arena(&self) -> &Arc<Arena> {
        &self.arena
    }

    /// The stores' bound is another one.
    pub(crate) fn set_capacity(&self, capacity_bytes: u64) {
        self.arena.capacity_bytes.store(capacity_bytes, Ordering::Relaxed);
        self.wake();
    }

    fn wake(&self) {
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
    }
}

impl Drop for Preparer {
    fn drop(&mut self) {
        self.arena.is_stopping.store(true, Ordering::Release);
        self.wake();
        if let Some(thread) = self.thread.take() {
            // It has told of what went wrong.
            let _ = thread.join();
        }
    }
}

/// Gives this thread what processors have left over. Where the system refuses, it stays as it was.
fn only_when_idle() {
    let parameter = libc::sched_param { sched_priority: 0 };
    // SAFETY: sets the policy of this thread, with a valid parameter.
    if unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const parameter) } != 0 {
        let error = io::Error::last_os_error();
        tracing::debug!(%error, "the thread that prepares memory runs like any other");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::time::{Duration, Instant};
    use weir_base::Pool;

    const MIB: u64 = 1 << 20;

    fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
        let until = Instant::now() + Duration::from_secs(60);
        while !is_so() {
            assert!(Instant::now() < until, "{what}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Pages of a span that are in memory, and all of them.
    fn pages_in_memory(span: NonNull<u8>, bytes: usize) -> (usize, usize) {
        let mut pages = vec![0_u8; bytes / PAGE_BYTES];
        // SAFETY: the span is mapped, and there is an octet for each page.
        let error = unsafe { libc::mincore(span.as_ptr().cast(), bytes, pages.as_mut_ptr()) };
        assert_eq!(error, 0);
        (pages.iter().filter(|&&page| page & 1 == 1).count(), pages.len())
    }

    #[test]
    fn spans_are_apart_aligned_and_clear() {
        let (arena, _) = Arena::new(16 * MIB, 0, 1).unwrap();
        let bytes = arena.span_bytes();
        assert_eq!(bytes, 256 << 10);
        // More than one mapping has.
        let spans: Vec<_> = (0..MAPPING_BYTES / bytes + 8).map(|_| arena.take().unwrap()).collect();
        let places: HashSet<_> = spans.iter().map(|span| span.as_ptr() as usize / bytes).collect();
        assert_eq!(places.len(), spans.len());
        for span in spans {
            assert_eq!(span.as_ptr() as usize % bytes, 0);
            // SAFETY: the span is ours.
            let octets = unsafe { std::slice::from_raw_parts_mut(span.as_ptr(), bytes) };
            assert!(octets.iter().all(|&octet| octet == 0));
            octets.fill(1);
            // SAFETY: taken above and not used again.
            unsafe { arena.give_back(span) };
        }
        assert_eq!(lock(&arena.state).mappings.len(), 2);
        assert!(places.contains(&(arena.take().unwrap().as_ptr() as usize / bytes)));
    }

    #[test]
    fn small_stores_have_no_spans() {
        assert!(Arena::new(8 * MIB, MIB, 1).is_none());
        assert!(Arena::new(64 * MIB, MIB, 8).is_none());
        assert_eq!(Arena::new(1024 * MIB, MIB, 1).unwrap().0.span_bytes(), 2 << 20);
    }

    #[test]
    fn memory_is_made_ready_ahead_and_no_more_than_the_store_takes() {
        let preparer = Preparer::start(16 * MIB, 4 * MIB, 1).unwrap().unwrap();
        let (arena, bytes) = (preparer.arena(), preparer.arena().span_bytes());
        let ready = || arena.ready.load(Ordering::Relaxed) as usize * bytes;
        wait_for("4 MiB ready", || ready() == 4 << 20);
        let mut taken = Vec::new();
        for _ in 0..4 {
            let span = arena.take().unwrap();
            let (present, all) = pages_in_memory(span, bytes);
            assert_eq!(present, all);
            taken.push(span);
            wait_for("4 MiB ready again", || ready() == 4 << 20);
        }
        while (taken.len() + 4) * bytes < 16 << 20 {
            taken.push(arena.take().unwrap());
        }
        // 1 MiB less than the store has is in use now, so that so much is made ready.
        wait_for("the rest ready", || ready() >= 1 << 20);
        std::thread::sleep(Duration::from_millis(20));
        let in_use = taken.len() * bytes;
        assert!(in_use + ready() <= (16 << 20) + bytes, "{in_use} and {}", ready());
        preparer.set_capacity(64 * MIB);
        wait_for("4 MiB ready with more room", || ready() >= 4 << 20);
    }

    #[test]
    fn packets_outlive_the_arena_s_thread() {
        let preparer = Preparer::start(16 * MIB, MIB, 1).unwrap().unwrap();
        let mut pool = Pool::of_spans(0, Arc::clone(preparer.arena()) as _);
        let packets: Vec<_> = (0..2_000).map(|at| pool.copy(&[at as u8; 8_000])).collect();
        drop(preparer);
        drop(pool);
        for (at, packet) in packets.iter().enumerate() {
            assert!(packet.iter().all(|&octet| octet == at as u8));
        }
    }
}
