//! Whether a packet thread sleeps, so that others wake it only then: to wake one takes a system
//! call, and one that is busy looks at its rings by itself.
//!
//! A thread that has nothing to do says that it sleeps and looks once more at what may have come;
//! one that hands something over makes it known and then looks whether the other sleeps. Between
//! the two steps of either lies a fence, so that one of them sees what the other did. Sleeping is
//! said by an exchange: loom finds an order in which a plain store is overlooked.

use super::atomic::{AtomicBool, Ordering, fence};

/// Whether one thread sleeps, or is about to. In a cache line of its own, as others read it all the
/// time.
#[repr(align(128))]
pub(crate) struct Doorbell {
    is_asleep: AtomicBool,
}

impl Doorbell {
    pub(crate) fn new() -> Self {
        Self { is_asleep: AtomicBool::new(false) }
    }

    /// Says that this thread sleeps. It must look once more at what others may have handed over
    /// before it does, and call [`Self::wake_up`] afterwards.
    pub(crate) fn fall_asleep(&self) {
        self.is_asleep.swap(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Says that this thread will look at what there is. Nothing is written by a thread that has
    /// not said that it sleeps: the others keep the line in their caches.
    pub(crate) fn wake_up(&self) {
        if self.is_asleep.load(Ordering::Relaxed) {
            self.is_asleep.swap(false, Ordering::Relaxed);
        }
    }

    /// Whether whoever has handed something over, and has called [`published`] then, must wake this
    /// thread. Said to one of those who ask: what the others have handed over waits for that one.
    pub(crate) fn must_ring(&self) -> bool {
        self.is_asleep.load(Ordering::Relaxed) && self.is_asleep.swap(false, Ordering::Relaxed)
    }
}

/// Between handing over, to any number of threads, and asking whether they must be woken.
pub(crate) fn published() {
    fence(Ordering::SeqCst);
}
