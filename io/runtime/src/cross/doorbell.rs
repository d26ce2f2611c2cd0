//! Wake-ups between worker threads. A wake-up costs a system call, so a thread is woken only if it
//! sleeps. A busy thread looks at its rings anyway.
//!
//! The danger is the lost wake-up: the reader finds its rings empty and goes to sleep, while a
//! writer adds a message and believes that the reader is awake. Each side takes two steps in
//! opposite order:
//!
//! ```text
//! reader                                  writer
//! 1. is_asleep = true                     1. write the message into the ring
//! 2. full fence                           2. full fence (`published`)
//! 3. check the rings once more            3. read is_asleep (`must_ring`)
//! 4. sleep, unless something was found    4. if it was true: set it to false, wake the reader
//! ```
//!
//! With a full (SeqCst) fence between the two steps of each side, at least one side sees the write
//! of the other. Either the reader finds the message in step 3, or the writer finds `is_asleep` in
//! step 3. Both may happen; then the reader wakes once without need.
//!
//! Several writers may see `is_asleep` at once. Only the one that changes it from true to false
//! makes the system call. The reader then reads all rings, so the messages of the other writers are
//! not lost.
//!
//! Example: threads A and B send to sleeping thread C. A swaps `is_asleep` to false and wakes C. B
//! reads false and does nothing. C wakes, calls `wake_up`, and finds the messages of both.
//!
//! The reader stores `is_asleep` with a swap. loom (`tests/doorbell_loom.rs`) finds an execution in
//! which a plain store is overlooked.
//!
//! It must never let a thread sleep while a ring holds a message, or make a system call per packet.

use super::atomic::{AtomicBool, Ordering, fence};

/// Whether one thread sleeps, or is about to. It has a cache line of its own, because other threads
/// read it all the time.
#[repr(align(128))]
pub(crate) struct Doorbell {
    is_asleep: AtomicBool,
}

impl Doorbell {
    pub(crate) fn new() -> Self {
        Self { is_asleep: AtomicBool::new(false) }
    }

    /// Announces that this thread sleeps. Before it does, it must check once more for messages. It
    /// must call [`Self::wake_up`] afterwards.
    pub(crate) fn fall_asleep(&self) {
        self.is_asleep.swap(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Announces that this thread is awake. Writes only if the thread had announced that it sleeps,
    /// so other threads keep the cache line.
    pub(crate) fn wake_up(&self) {
        if self.is_asleep.load(Ordering::Relaxed) {
            self.is_asleep.swap(false, Ordering::Relaxed);
        }
    }

    /// Whether the caller must wake the thread. The caller has sent something and has then called
    /// [`published`]. Of several callers, only one gets true; the thread then finds the messages of
    /// all.
    pub(crate) fn must_ring(&self) -> bool {
        self.is_asleep.load(Ordering::Relaxed) && self.is_asleep.swap(false, Ordering::Relaxed)
    }
}

/// The fence between sending, to any number of threads, and [`Doorbell::must_ring`].
pub(crate) fn published() {
    fence(Ordering::SeqCst);
}
