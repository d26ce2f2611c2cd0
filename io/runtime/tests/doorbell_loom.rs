//! Wake-ups of a worker thread under loom, which runs every order in which threads may see each
//! other's writes. The tested file is the router's.

mod atomic {
    pub(crate) use loom::sync::atomic::{AtomicBool, Ordering, fence};
}
#[path = "../src/cross/doorbell.rs"]
mod doorbell;

use doorbell::{Doorbell, published};
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

/// What a poll waits for: a wake-up stays pending until it is taken.
#[derive(Default)]
struct Waker {
    has_rung: Mutex<bool>,
    rang: Condvar,
}

impl Waker {
    fn wake(&self) {
        *self.has_rung.lock().unwrap() = true;
        self.rang.notify_one();
    }

    fn wait(&self) {
        let mut has_rung = self.has_rung.lock().unwrap();
        while !std::mem::take(&mut *has_rung) {
            has_rung = self.rang.wait(has_rung).unwrap();
        }
    }
}

struct Shared {
    doorbell: Doorbell,
    waker: Waker,
    /// Number of messages that each other thread has sent.
    rings: [AtomicUsize; 2],
}

/// Sends `count` messages to a thread, which must receive all of them, whenever it sleeps. loom
/// detects a thread that is never woken.
fn hand_over(threads: usize, count: usize) {
    let mut model = loom::model::Builder::new();
    // More preemptions would take minutes.
    model.preemption_bound = Some(3);
    model.check(move || {
        let shared = Arc::new(Shared {
            doorbell: Doorbell::new(),
            waker: Waker::default(),
            rings: [AtomicUsize::new(0), AtomicUsize::new(0)],
        });
        let others: Vec<_> = (0..threads)
            .map(|index| {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    for handed in 1..=count {
                        shared.rings[index].store(handed, Ordering::Release);
                        published();
                        if shared.doorbell.must_ring() {
                            shared.waker.wake();
                        }
                    }
                })
            })
            .collect();
        let handed =
            || -> usize { shared.rings.iter().map(|ring| ring.load(Ordering::Acquire)).sum() };
        let mut taken = handed();
        while taken < threads * count {
            shared.doorbell.fall_asleep();
            if handed() == taken {
                shared.waker.wait();
            }
            shared.doorbell.wake_up();
            taken = handed();
        }
        for other in others {
            other.join().unwrap();
        }
    });
}

#[test]
fn sleeping_thread_misses_no_message() {
    hand_over(1, 3);
}

#[test]
fn one_of_two_senders_wakes_thread() {
    hand_over(2, 1);
}
