//! Memory for the content store, in spans that are made ready before they are needed.
//!
//! The first touch of a page is a fault, in which the system finds memory and clears it: for a Data
//! of 8000 octets more work than all else that a router does with it. So a thread of its own
//! touches spans while the packet threads have a few in hand. It runs only when a processor has
//! nothing else to do: a packet thread that finds no span ready takes the faults itself.

use std::io;
use std::ptr::NonNull;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

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

/// The memory of all packet threads' stores.
#[derive(Debug)]
pub(crate) struct Arena {
    span_bytes: usize,
    /// Most octets that are ready and not in use.
    ahead_bytes: u64,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    /// Spans that were touched and are free.
    ready: Vec<Span>,
    /// Of the last mapping, what was never given out.
    fresh: Vec<Span>,
    mappings: Vec<Mapping>,
    in_use: u64,
    /// Nothing is made ready beyond so many octets in use: the store will not need them.
    capacity_bytes: u64,
    is_stopping: bool,
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

impl Arena {
    /// For `threads` stores of `capacity_bytes` together, of which at most `ahead_bytes` are made
    /// ready ahead. Nothing for stores so small that spans would be a large part of them.
    pub(crate) fn new(capacity_bytes: u64, ahead_bytes: u64, threads: usize) -> Option<Arc<Self>> {
        let span_bytes = capacity_bytes / threads as u64 / SPANS_PER_THREAD;
        if span_bytes < SPAN_BYTES_LEAST / 4 {
            return None;
        }
        let span_bytes =
            span_bytes.next_power_of_two().clamp(SPAN_BYTES_LEAST, SPAN_BYTES_MOST) as usize;
        let state = State {
            ready: Vec::new(),
            fresh: Vec::new(),
            mappings: Vec::new(),
            in_use: 0,
            capacity_bytes,
            is_stopping: false,
        };
        Some(Arc::new(Self {
            span_bytes,
            ahead_bytes,
            state: Mutex::new(state),
            changed: Condvar::new(),
        }))
    }

    /// The stores' bound is another one.
    pub(crate) fn set_capacity(&self, capacity_bytes: u64) {
        self.state().capacity_bytes = capacity_bytes;
        self.changed.notify_one();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No state is left half changed: what panics here is allocation, before the change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether another span is to be made ready.
    fn is_short(&self, state: &State) -> bool {
        let ready_bytes = (state.ready.len() * self.span_bytes) as u64;
        let in_use_bytes = state.in_use * self.span_bytes as u64;
        ready_bytes < self.ahead_bytes && in_use_bytes + ready_bytes < state.capacity_bytes
    }

    /// A span that was never touched.
    fn cut(&self, state: &mut State) -> io::Result<Span> {
        if state.fresh.is_empty() {
            let mapping = map(MAPPING_BYTES)?;
            let start = mapping.start.0;
            let skip = start.align_offset(self.span_bytes);
            let spans = (mapping.bytes - skip) / self.span_bytes;
            // SAFETY: within the mapping.
            let at = |index| unsafe { start.add(skip + index * self.span_bytes) };
            state.fresh.extend((0..spans).rev().map(|index| Span(at(index))));
            state.mappings.push(mapping);
        }
        Ok(state.fresh.pop().expect("a mapping has room for spans"))
    }

    /// Makes spans ready until told to stop, or until the system has no more memory.
    fn run(&self) -> io::Result<()> {
        let mut state = self.state();
        loop {
            if state.is_stopping {
                return Ok(());
            }
            if !self.is_short(&state) {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let span = self.cut(&mut state)?;
            drop(state);
            touch(&span, self.span_bytes);
            state = self.state();
            state.ready.push(span);
        }
    }
}

// SAFETY: spans are cut off mappings, aligned, and in one place at a time: in `ready`, in `fresh`
// or with a pool. The system clears what it maps. The mappings go with the arena.
unsafe impl SpanSource for Arena {
    fn span_bytes(&self) -> usize {
        self.span_bytes
    }

    fn take(&self) -> Option<NonNull<u8>> {
        let mut state = self.state();
        let span = match state.ready.pop() {
            Some(span) => span,
            None => self.cut(&mut state).ok()?,
        };
        state.in_use += 1;
        let is_short = self.is_short(&state);
        drop(state);
        if is_short {
            self.changed.notify_one();
        }
        Some(span.0)
    }

    unsafe fn give_back(&self, span: NonNull<u8>) {
        let mut state = self.state();
        state.in_use -= 1;
        state.ready.push(Span(span));
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

/// The thread that makes spans ready, stopped when this is dropped.
#[derive(Debug)]
pub(crate) struct Preparer {
    arena: Arc<Arena>,
    thread: Option<JoinHandle<()>>,
}

impl Preparer {
    pub(crate) fn start(arena: Arc<Arena>) -> io::Result<Self> {
        let shared = Arc::clone(&arena);
        let thread =
            std::thread::Builder::new().name("weir-memory".to_owned()).spawn(move || {
                only_when_idle();
                if let Err(error) = shared.run() {
                    tracing::warn!(
                        %error,
                        "no memory for the content store can be made ready; packets wait for it as \
                         they come"
                    );
                }
            })?;
        Ok(Self { arena, thread: Some(thread) })
    }

    pub(crate) fn arena(&self) -> &Arc<Arena> {
        &self.arena
    }
}

impl Drop for Preparer {
    fn drop(&mut self) {
        self.arena.state().is_stopping = true;
        self.arena.changed.notify_one();
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
        let arena = Arena::new(16 * MIB, 0, 1).unwrap();
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
        assert_eq!(arena.state().mappings.len(), 2);
        assert!(places.contains(&(arena.take().unwrap().as_ptr() as usize / bytes)));
    }

    #[test]
    fn small_stores_have_no_spans() {
        assert!(Arena::new(8 * MIB, MIB, 1).is_none());
        assert!(Arena::new(64 * MIB, MIB, 8).is_none());
        assert_eq!(Arena::new(1024 * MIB, MIB, 1).unwrap().span_bytes(), 2 << 20);
    }

    #[test]
    fn memory_is_made_ready_ahead_and_no_more_than_the_store_takes() {
        let preparer = Preparer::start(Arena::new(16 * MIB, 4 * MIB, 1).unwrap()).unwrap();
        let (arena, bytes) = (preparer.arena(), preparer.arena().span_bytes());
        let ready = || arena.state().ready.len() * bytes;
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
        arena.set_capacity(64 * MIB);
        wait_for("4 MiB ready with more room", || ready() >= 4 << 20);
    }

    #[test]
    fn packets_outlive_the_arena_s_thread() {
        let preparer = Preparer::start(Arena::new(16 * MIB, MIB, 1).unwrap()).unwrap();
        let mut pool = Pool::of_spans(0, Arc::clone(preparer.arena()) as _);
        let packets: Vec<_> = (0..2_000).map(|at| pool.copy(&[at as u8; 8_000])).collect();
        drop(preparer);
        drop(pool);
        for (at, packet) in packets.iter().enumerate() {
            assert!(packet.iter().all(|&octet| octet == at as u8));
        }
    }
}
