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
use std::time::{Duration, Instant};

use nix::libc;
use weir_base::SpanSource;
use weir_store::ENTRY_BYTES;

/// Octets that are asked of the system at once, at most: an eighth of the store. Address space
/// only, until it is touched.
const MAPPING_BYTES_MAX: usize = 64 << 20;
const MAPPING_SHARE: u64 = 8;
/// So much is left to the rest of the program where the system has no more to give: it takes only
/// what leaves room for this.
const HEADROOM_BYTES: usize = 32 << 20;
/// The smallest page that Linux has.
const PAGE_BYTES: usize = 4_096;
/// Spans of a packet thread's share: so many that those of its size classes that are half full are
/// few among them.
const SPANS_PER_THREAD: u64 = 256;
const SPAN_BYTES_MIN: u64 = 256 << 10;
const SPAN_BYTES_MAX: u64 = 2 << 20;
/// When the system is asked again that gave no address space.
const RETRY: Duration = Duration::from_secs(2);
/// Spans beyond the store's bound that stay when it was lowered: those that are being filled.
const SPANS_OVER_CAPACITY: u64 = 16;

/// The memory of all packet threads' stores.
#[derive(Debug)]
pub(crate) struct Arena {
    span_bytes: usize,
    mapping_bytes: usize,
    /// What packet threads share.
    free_spans: Mutex<FreeSpans>,
    /// Spans that were touched, and are free or on their way.
    ready: AtomicU64,
    /// Spans that pools have.
    in_use: AtomicU64,
    /// What the stores take for entries beside the spans that are in use, as many as these have
    /// blocks.
    entry_bytes: AtomicU64,
    /// Nothing is made ready beyond so many octets in use: the store will not need them.
    capacity_bytes: AtomicU64,
    /// What comes back beyond so many octets goes to the system: no bound, until that of the store
    /// is lowered.
    release_above_bytes: AtomicU64,
    started: Instant,
    /// When the system had no address space left, in ms since `started` and one more; 0 when it has
    /// some again, or something has come back.
    exhausted_ms: AtomicU64,
    /// Whether the log has it.
    has_warned: AtomicBool,
    is_stopping: AtomicBool,
    /// The mappings of the thread that makes spans ready. Nobody else locks them before the end.
    prepared: Mutex<Vec<Mapping>>,
}

#[derive(Debug)]
struct FreeSpans {
    /// Spans that were made ready.
    prepared: rtrb::Consumer<Span>,
    /// Spans that came back.
    returned: Vec<Span>,
    /// Untouched ones, for when there is none else.
    untouched: UntouchedSpans,
    mappings: Vec<Mapping>,
    preparer: Option<thread::Thread>,
}

/// What was never given out of the last mapping of somebody.
#[derive(Debug, Default)]
struct UntouchedSpans(Vec<Span>);

impl UntouchedSpans {
    /// A span that was never touched, of a new mapping if need be.
    fn take_span(
        &mut self,
        span_bytes: usize,
        mapping_bytes: usize,
    ) -> io::Result<(Span, Option<Mapping>)> {
        let mut new = None;
        if self.0.is_empty() {
            let mapping = map_with_headroom(mapping_bytes)?;
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
        if span_bytes < SPAN_BYTES_MIN / 4 {
            return None;
        }
        let span_bytes = span_bytes.next_power_of_two().clamp(SPAN_BYTES_MIN, SPAN_BYTES_MAX);
        // Room for a span wherever the mapping begins, and for some more.
        let mapping_bytes = usize::try_from(capacity_bytes / MAPPING_SHARE)
            .map_or(MAPPING_BYTES_MAX, |bytes| bytes.min(MAPPING_BYTES_MAX))
            .max(4 * span_bytes as usize)
            .next_multiple_of(span_bytes as usize);
        // A ring is as large as the configuration asks for, so far as a store can use it.
        let ahead = ahead_bytes.min(capacity_bytes).div_ceil(span_bytes);
        let (producer, prepared) = rtrb::RingBuffer::new(ahead as usize);
        let state = FreeSpans {
            prepared,
            returned: Vec::new(),
            untouched: UntouchedSpans::default(),
            mappings: Vec::new(),
            preparer: None,
        };
        let arena = Self {
            span_bytes: span_bytes as usize,
            mapping_bytes,
            free_spans: Mutex::new(state),
            ready: AtomicU64::new(0),
            in_use: AtomicU64::new(0),
            entry_bytes: AtomicU64::new(0),
            capacity_bytes: AtomicU64::new(capacity_bytes),
            release_above_bytes: AtomicU64::new(u64::MAX),
            started: Instant::now(),
            exhausted_ms: AtomicU64::new(0),
            has_warned: AtomicBool::new(false),
            is_stopping: AtomicBool::new(false),
            prepared: Mutex::new(Vec::new()),
        };
        Some((Arc::new(arena), producer))
    }

    /// Makes spans ready until told to stop.
    fn prepare(&self, mut ready: rtrb::Producer<Span>) {
        let mut fresh = UntouchedSpans::default();
        while !self.is_stopping.load(Ordering::Acquire) {
            if ready.is_full() || self.exceeds_capacity(0) {
                thread::park();
                continue;
            }
            let span = match fresh.take_span(self.span_bytes, self.mapping_bytes) {
                Ok((span, mapping)) => {
                    lock(&self.prepared).extend(mapping);
                    self.exhausted_ms.store(0, Ordering::Relaxed);
                    span
                }
                Err(error) => {
                    self.warn_exhausted(&error);
                    thread::park_timeout(RETRY);
                    continue;
                }
            };
            touch(&span, self.span_bytes);
            self.ready.fetch_add(1, Ordering::Relaxed);
            ready.push(span).expect("only this thread pushes, and it was not full");
        }
    }

    /// Whether what is in use, entries included, and ready is as much as the stores may have, and
    /// `bytes` more.
    fn exceeds_capacity(&self, bytes: usize) -> bool {
        let taken_bytes = self.touched_bytes() + self.entry_bytes.load(Ordering::Relaxed);
        let capacity_bytes = self.capacity_bytes.load(Ordering::Relaxed);
        taken_bytes >= capacity_bytes.saturating_add(bytes as u64)
    }

    /// Octets of the spans that were touched.
    pub(crate) fn touched_bytes(&self) -> u64 {
        let spans = self.in_use.load(Ordering::Relaxed) + self.ready.load(Ordering::Relaxed);
        spans * self.span_bytes as u64
    }

    /// Says so the first time.
    #[cold]
    fn warn_exhausted(&self, error: &io::Error) {
        if !self.has_warned.swap(true, Ordering::Relaxed) {
            let mib = (self.in_use.load(Ordering::Relaxed) * self.span_bytes as u64) >> 20;
            tracing::warn!(
                %error,
                "the system gives the content store no more memory: it holds what fits into \
                 {mib} MiB; raise the limits (ulimit -v and -d, vm.overcommit_memory) or lower \
                 [store] size"
            );
        }
    }

    /// Gives the memory of spans that are free to the system, as far as the store needs them no
    /// more.
    fn shrink(&self) {
        let kept_bytes = self.release_above_bytes.load(Ordering::Relaxed);
        while self.touched_bytes() > kept_bytes {
            let free = {
                let state = &mut *lock(&self.free_spans);
                state.returned.pop().or_else(|| state.prepared.pop().ok())
            };
            let Some(span) = free else { break };
            self.ready.fetch_sub(1, Ordering::Relaxed);
            self.discard(span);
        }
    }

    /// Has the system take the memory of a span that counts as neither in use nor ready.
    fn discard(&self, span: Span) {
        // SAFETY: within a mapping of ours, and nobody else has the span. It reads as zeros from
        // now on, as one that was never touched. Should the system refuse, it stays as it is.
        unsafe { libc::madvise(span.0.as_ptr().cast(), self.span_bytes, libc::MADV_DONTNEED) };
        lock(&self.free_spans).untouched.0.push(span);
        self.exhausted_ms.store(0, Ordering::Relaxed);
    }

    fn note_exhausted(&self) {
        let since_ms = self.started.elapsed().as_millis() as u64;
        self.exhausted_ms.store(1 + since_ms, Ordering::Relaxed);
    }
}

// SAFETY: spans are cut off mappings, aligned, and in one place at a time: in the ring, in
// `returned`, in somebody's `untouched` or with a pool. The system clears what it maps. The mappings go
// with the arena.
unsafe impl SpanSource for Arena {
    fn span_bytes(&self) -> usize {
        self.span_bytes
    }

    fn take(&self, blocks: u32) -> Option<NonNull<u8>> {
        let mut state = lock(&self.free_spans);
        let ready = state.prepared.pop().ok().or_else(|| state.returned.pop());
        let span = match ready {
            Some(span) => {
                self.ready.fetch_sub(1, Ordering::Relaxed);
                span
            }
            None if self.is_exhausted() && state.untouched.0.is_empty() => return None,
            None => match state.untouched.take_span(self.span_bytes, self.mapping_bytes) {
                Ok((span, mapping)) => {
                    state.mappings.extend(mapping);
                    span
                }
                Err(error) => {
                    self.note_exhausted();
                    self.warn_exhausted(&error);
                    return None;
                }
            },
        };
        self.in_use.fetch_add(1, Ordering::Relaxed);
        self.entry_bytes.fetch_add(entry_bytes(blocks), Ordering::Relaxed);
        // The smaller the Data, the more of the store is entries. Spans that were made ready before
        // that was known are not needed then.
        let unneeded =
            if self.exceeds_capacity(self.span_bytes) { state.prepared.pop().ok() } else { None };
        if let Some(preparer) = &state.preparer {
            preparer.unpark();
        }
        drop(state);
        if let Some(unneeded) = unneeded {
            self.ready.fetch_sub(1, Ordering::Relaxed);
            self.discard(unneeded);
        }
        Some(span.0)
    }

    fn is_exhausted(&self) -> bool {
        match self.exhausted_ms.load(Ordering::Relaxed) {
            0 => false,
            // It is asked again then.
            at_ms => self.started.elapsed() < Duration::from_millis(at_ms - 1) + RETRY,
        }
    }

    unsafe fn give_back(&self, span: NonNull<u8>, blocks: u32) {
        self.entry_bytes.fetch_sub(entry_bytes(blocks), Ordering::Relaxed);
        let is_beyond = self.touched_bytes() > self.release_above_bytes.load(Ordering::Relaxed);
        self.in_use.fetch_sub(1, Ordering::Relaxed);
        if is_beyond {
            return self.discard(Span(span));
        }
        self.ready.fetch_add(1, Ordering::Relaxed);
        lock(&self.free_spans).returned.push(Span(span));
        self.exhausted_ms.store(0, Ordering::Relaxed);
    }
}

/// What a store takes beside a span that is full of Data.
fn entry_bytes(blocks: u32) -> u64 {
    u64::from(blocks) * ENTRY_BYTES
}

/// `bytes` of address space, if there is something left beside them.
fn map_with_headroom(bytes: usize) -> io::Result<Mapping> {
    let whole = map_anonymous(bytes + HEADROOM_BYTES)?;
    let start = whole.start.0;
    std::mem::forget(whole);
    // SAFETY: the end of a mapping that nobody knows yet.
    let spared = unsafe { libc::munmap(start.add(bytes).as_ptr().cast(), HEADROOM_BYTES) };
    debug_assert_eq!(spared, 0, "mappings are of whole pages");
    Ok(Mapping { start: Span(start), bytes })
}

fn map_anonymous(bytes: usize) -> io::Result<Mapping> {
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

/// The arena and its thread, which is stopped when this is dropped.
#[derive(Debug)]
pub(crate) struct Preparer {
    arena: Arc<Arena>,
    ready: Option<rtrb::Producer<Span>>,
    thread: Option<JoinHandle<()>>,
}

impl Preparer {
    /// See [`Arena::new`]. The thread has yet to be started.
    pub(crate) fn new(capacity_bytes: u64, ahead_bytes: u64, threads: usize) -> Option<Self> {
        let (arena, ready) = Arena::new(capacity_bytes, ahead_bytes, threads)?;
        Some(Self { arena, ready: Some(ready), thread: None })
    }

    /// Starts the thread. It is the one that a router can do without: where threads are limited,
    /// others come first.
    pub(crate) fn start(&mut self) {
        // Without room to make anything ready there is nothing to do.
        let Some(ready) = self.ready.take().filter(|ready| ready.buffer().capacity() > 0) else {
            return;
        };
        let shared = Arc::clone(&self.arena);
        let thread = thread::Builder::new().name("weir-memory".to_owned()).spawn(move || {
            set_idle_priority();
            shared.prepare(ready);
        });
        match thread {
            Ok(thread) => {
                lock(&self.arena.free_spans).preparer = Some(thread.thread().clone());
                self.thread = Some(thread);
            }
            Err(error) => tracing::warn!(
                %error,
                "no thread to make memory ready: Data waits for the system while the content \
                 store grows; raise the limits (ulimit -u and -v, pids.max)"
            ),
        }
    }

    pub(crate) fn arena(&self) -> &Arc<Arena> {
        &self.arena
    }

    /// The stores' bound is another one.
    /// If it is lower, memory that is free, or will be when packet threads have made room, goes to
    /// the system.
    pub(crate) fn set_capacity(&self, capacity_bytes: u64) {
        let arena = &self.arena;
        let before_bytes = arena.capacity_bytes.swap(capacity_bytes, Ordering::Relaxed);
        if capacity_bytes < before_bytes {
            let spans_bytes = SPANS_OVER_CAPACITY * arena.span_bytes as u64;
            let kept_bytes = capacity_bytes.saturating_add(spans_bytes);
            arena.release_above_bytes.store(kept_bytes, Ordering::Relaxed);
            arena.shrink();
        } else if capacity_bytes > before_bytes {
            arena.release_above_bytes.store(u64::MAX, Ordering::Relaxed);
        }
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
fn set_idle_priority() {
    let parameter = libc::sched_param { sched_priority: 0 };
    // SAFETY: sets the policy of this thread, with a valid parameter.
    if unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const parameter) } != 0 {
        let error = io::Error::last_os_error();
        tracing::info!(
            %error,
            "the thread that makes memory ready takes processor time from packets, for the system \
             gives it no SCHED_IDLE; memory_ahead = \"0B\" leaves it out"
        );
    }
}

#[cfg(test)]
mod tests;
