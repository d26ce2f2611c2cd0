//! Memory for the content store, in spans that a background thread touches before they are needed.
//!
//! The first write to a page faults: the kernel finds a page and clears it. For a Data of 8000
//! bytes this costs more than all other work of the router. A preparer thread therefore touches
//! spans ahead of the worker threads. It runs with SCHED_IDLE, so it never takes a processor from
//! packets.
//!
//! 1. A worker thread that needs a span takes a prepared one, else a returned one. If there is
//!    neither, it takes an untouched span, and takes the page faults itself.
//! 2. The preparer hands spans over through a lock-free ring. A lock would be wrong here: the idle
//!    thread could hold it for as long as other threads are busy.
//! 3. A pool that has freed all blocks of a span returns the span to the arena, which reuses it.
//!    Memory returns to the kernel only after the capacity was lowered.
//! 4. If the kernel gives no more address space, the arena reports that it is exhausted. The store
//!    then evicts entries instead of growing, and the arena asks the kernel again after [`RETRY`].
//!
//! Example: a store of 1 GiB on two threads uses spans of 2 MiB. With `memory_ahead` = 16 MiB, the
//! preparer keeps 8 spans ready. It stops when spans in use, ready spans and the entries' own
//! memory together reach 1 GiB.
//!
//! It must never hand out a span twice, or unmap memory while a packet still points into it.

use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::libc;
use weir_base::SpanSource;
use weir_store::ENTRY_BYTES;

/// Upper limit for one `mmap`. A mapping is an eighth of the store, up to this size. It is only
/// address space until it is touched.
const MAPPING_BYTES_MAX: usize = 64 << 20;
const MAPPING_SHARE: u64 = 8;
/// Address space that must remain free after a mapping, for the rest of the program.
const HEADROOM_BYTES: usize = 32 << 20;
/// The smallest page size on Linux.
const PAGE_BYTES: usize = 4_096;
/// Spans in one thread's share of the store. Each size class of the pool may have one half-empty
/// span, so there must be many more spans than size classes.
const SPANS_PER_THREAD: u64 = 256;
const SPAN_BYTES_MIN: u64 = 256 << 10;
const SPAN_BYTES_MAX: u64 = 2 << 20;
/// Pause before the arena asks the kernel again after a failure.
const RETRY: Duration = Duration::from_secs(2);
/// Spans that the arena keeps above a lowered capacity, because pools are still filling some.
const SPANS_OVER_CAPACITY: u64 = 16;

/// The memory of all worker threads' stores.
#[derive(Debug)]
pub(crate) struct Arena {
    span_bytes: usize,
    mapping_bytes: usize,
    /// Spans that are not in a pool. All worker threads share them.
    free_spans: Mutex<FreeSpans>,
    /// Touched spans that are free, or on their way through the ring.
    ready: AtomicU64,
    /// Spans that pools own.
    in_use: AtomicU64,
    /// Memory of the store's entries for the blocks in the spans in use. It is not in the arena.
    entry_bytes: AtomicU64,
    /// The store's capacity. The preparer stops when memory use reaches it.
    capacity_bytes: AtomicU64,
    /// Above this many touched bytes, returned spans go back to the kernel. `u64::MAX` until the
    /// capacity is lowered.
    release_above_bytes: AtomicU64,
    started: Instant,
    /// When the kernel refused address space, in ms since `started`, plus 1. 0 means not exhausted:
    /// nothing was refused, or a span has come back since.
    exhausted_ms: AtomicU64,
    /// Whether the warning about exhausted memory was logged.
    has_warned: AtomicBool,
    is_stopping: AtomicBool,
    /// Mappings of the preparer thread. No other thread locks them until the arena is dropped.
    prepared: Mutex<Vec<Mapping>>,
}

#[derive(Debug)]
struct FreeSpans {
    /// Spans that the preparer has touched.
    prepared: rtrb::Consumer<Span>,
    /// Spans that pools have given back.
    returned: Vec<Span>,
    /// Untouched spans, used when there are no others.
    untouched: UntouchedSpans,
    mappings: Vec<Mapping>,
    preparer: Option<thread::Thread>,
}

/// Spans of the latest mapping that were never handed out.
#[derive(Debug, Default)]
struct UntouchedSpans(Vec<Span>);

impl UntouchedSpans {
    /// Returns an untouched span. Makes a new mapping if there is none, and returns it as well.
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
            // SAFETY: `index` is below `spans`, so the span lies within the mapping.
            let at = |index| unsafe { start.add(skip + index * span_bytes) };
            self.0.extend((0..spans).rev().map(|index| Span(at(index))));
            new = Some(mapping);
        }
        Ok((self.0.pop().expect("a mapping has room for spans"), new))
    }
}

#[derive(Debug)]
struct Span(NonNull<u8>);

// SAFETY: a span is memory with one owner, the holder of this value.
unsafe impl Send for Span {}

#[derive(Debug)]
struct Mapping {
    start: Span,
    bytes: usize,
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped with this length. The arena is dropped after the last pool and packet.
        unsafe { libc::munmap(self.start.0.as_ptr().cast(), self.bytes) };
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic leaves no half-changed state: only allocation can panic, and it precedes each change.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Arena {
    /// Makes an arena for `threads` stores with `capacity_bytes` in total. Also returns the
    /// producing end of the ring for the preparer thread, which prepares at most `ahead_bytes`.
    /// Returns `None` for a store so small that a span would be a large fraction of it.
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
        // A mapping may start anywhere: it needs space for one aligned span and a few more.
        let mapping_bytes = usize::try_from(capacity_bytes / MAPPING_SHARE)
            .map_or(MAPPING_BYTES_MAX, |bytes| bytes.min(MAPPING_BYTES_MAX))
            .max(4 * span_bytes as usize)
            .next_multiple_of(span_bytes as usize);
        // The ring has the configured size, but no more than the store can use.
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

    /// Touches spans until [`Preparer`] is dropped. Parks when the ring is full or memory use has
    /// reached the capacity.
    fn prepare(&self, mut ready: rtrb::Producer<Span>) {
        let mut fresh = UntouchedSpans::default();
        while !self.is_stopping.load(Ordering::Acquire) {
            // `take`, `set_capacity` and the drop of [`Preparer`] unpark this thread.
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

    /// Whether memory in use (spans, ready spans, entries) is at least the capacity plus `bytes`.
    fn exceeds_capacity(&self, bytes: usize) -> bool {
        let taken_bytes = self.touched_bytes() + self.entry_bytes.load(Ordering::Relaxed);
        let capacity_bytes = self.capacity_bytes.load(Ordering::Relaxed);
        taken_bytes >= capacity_bytes.saturating_add(bytes as u64)
    }

    /// Bytes of all touched spans.
    pub(crate) fn touched_bytes(&self) -> u64 {
        let spans = self.in_use.load(Ordering::Relaxed) + self.ready.load(Ordering::Relaxed);
        spans * self.span_bytes as u64
    }

    /// Logs the first failure only.
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

    /// Returns the memory of free spans to the kernel until use is below `release_above_bytes`.
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

    /// Returns the memory of one span to the kernel. The caller has already subtracted the span
    /// from `in_use` or `ready`.
    fn discard(&self, span: Span) {
        // SAFETY: the span is within one of our mappings, and this function owns it. It reads as
        // zeros afterwards, like a span that was never touched. If the call fails, the span keeps
        // its pages.
        unsafe { libc::madvise(span.0.as_ptr().cast(), self.span_bytes, libc::MADV_DONTNEED) };
        lock(&self.free_spans).untouched.0.push(span);
        self.exhausted_ms.store(0, Ordering::Relaxed);
    }

    fn note_exhausted(&self) {
        let since_ms = self.started.elapsed().as_millis() as u64;
        self.exhausted_ms.store(1 + since_ms, Ordering::Relaxed);
    }
}

// SAFETY: spans are aligned, disjoint parts of mappings. Each has one owner: the ring, `returned`,
// an `untouched` list or a pool. The kernel clears what it maps. Mappings live as long as the
// arena.
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
            // The kernel has just refused: ask it again only after `RETRY`.
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
        // The smaller the Data, the more memory its entries use. If memory now exceeds the
        // capacity, the arena needs one prepared span less.
        let unneeded =
            if self.exceeds_capacity(self.span_bytes) { state.prepared.pop().ok() } else { None };
        if let Some(preparer) = &state.preparer {
            preparer.unpark();
        }
        // `discard` takes the same lock.
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
            // After this time the kernel is asked again.
            at_ms => self.started.elapsed() < Duration::from_millis(at_ms - 1) + RETRY,
        }
    }

    unsafe fn give_back(&self, span: NonNull<u8>, blocks: u32) {
        self.entry_bytes.fetch_sub(entry_bytes(blocks), Ordering::Relaxed);
        // Decide while the span still counts as in use.
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

/// Memory of the store's entries for a span with this many blocks.
fn entry_bytes(blocks: u32) -> u64 {
    u64::from(blocks) * ENTRY_BYTES
}

/// Maps `bytes` of address space, but only if [`HEADROOM_BYTES`] would remain available.
fn map_with_headroom(bytes: usize) -> io::Result<Mapping> {
    let whole = map_anonymous(bytes + HEADROOM_BYTES)?;
    let start = whole.start.0;
    // Dropping it would unmap all of it.
    std::mem::forget(whole);
    // SAFETY: the end of a new mapping that is not used yet.
    let spared = unsafe { libc::munmap(start.add(bytes).as_ptr().cast(), HEADROOM_BYTES) };
    debug_assert_eq!(spared, 0, "mappings are of whole pages");
    Ok(Mapping { start: Span(start), bytes })
}

fn map_anonymous(bytes: usize) -> io::Result<Mapping> {
    let (protection, flags) = (
        libc::PROT_READ | libc::PROT_WRITE,
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
    );
    // SAFETY: a new mapping at an address of the kernel's choice.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0) };
    if start == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    let start: NonNull<u8> =
        NonNull::new(start.cast()).expect("the system maps nothing at address 0");
    Ok(Mapping { start: Span(start), bytes })
}

/// Makes the kernel allocate the pages of a span, one page at a time. `MADV_POPULATE_WRITE` would
/// do it in one call, but holds the process's memory-map lock throughout. This thread runs only on
/// idle processors, so worker threads could wait for that lock for a long time.
fn touch(span: &Span, bytes: usize) {
    for page in (0..bytes).step_by(PAGE_BYTES) {
        // SAFETY: within a span that this thread owns.
        unsafe { span.0.add(page).write_volatile(0) };
    }
}

/// The arena with its preparer thread. Dropping it stops the thread.
#[derive(Debug)]
pub(crate) struct Preparer {
    arena: Arc<Arena>,
    ready: Option<rtrb::Producer<Span>>,
    thread: Option<JoinHandle<()>>,
}

impl Preparer {
    /// See [`Arena::new`]. [`Self::start`] starts the thread.
    pub(crate) fn new(capacity_bytes: u64, ahead_bytes: u64, threads: usize) -> Option<Self> {
        let (arena, ready) = Arena::new(capacity_bytes, ahead_bytes, threads)?;
        Some(Self { arena, ready: Some(ready), thread: None })
    }

    /// Starts the thread. The router also works without it, so it starts last where threads are
    /// limited.
    pub(crate) fn start(&mut self) {
        // The ring has no slots: nothing may be prepared.
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
                "cannot start the thread that prepares memory: Data waits for page faults while \
                 the content store grows; raise the limits (ulimit -u and -v, pids.max)"
            ),
        }
    }

    pub(crate) fn arena(&self) -> &Arc<Arena> {
        &self.arena
    }

    /// Changes the capacity of the store. If it shrinks, free memory returns to the kernel now, and
    /// spans in use when their pools give them back.
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
            // The panic message is already on standard error.
            let _ = thread.join();
        }
    }
}

/// Sets SCHED_IDLE for this thread. If the kernel refuses, the thread keeps its policy.
fn set_idle_priority() {
    let priority: libc::c_int = 0;
    let (call, policy) = (libc::SYS_sched_setscheduler, libc::SCHED_IDLE);
    // SAFETY: sets the policy of this thread; the parameter is a structure of one integer. musl has
    // the function, but it always fails.
    if unsafe { libc::syscall(call, 0, policy, &raw const priority) } != 0 {
        let error = io::Error::last_os_error();
        tracing::info!(
            %error,
            "the thread that prepares memory competes with worker threads, because the system \
             does not allow SCHED_IDLE; memory_ahead = \"0B\" disables the thread"
        );
    }
}

#[cfg(test)]
mod tests;
