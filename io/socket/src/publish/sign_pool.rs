//! Threads that sign for all producers of a session, so that a publication need not start its own.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, unbounded};
use weir_client::EndpointWaker;

/// Upper bound of publications that wait to be signed.
const QUEUED_TASKS_MAX: usize = 4096;
/// How long finished work waits for more before an endpoint is woken.
const WAKE_DELAY: Duration = Duration::from_micros(200);

/// The endpoints that a thread must wake for its finished tasks, each once for several tasks.
#[derive(Default)]
pub(crate) struct PendingWakes {
    endpoints: Vec<EndpointWaker>,
    since: Option<Instant>,
}

impl PendingWakes {
    pub(crate) fn add(&mut self, endpoint: &EndpointWaker) {
        self.since.get_or_insert_with(Instant::now);
        if !self.endpoints.contains(endpoint) {
            self.endpoints.push(endpoint.clone());
        }
    }

    fn is_due(&self) -> bool {
        self.since.is_some_and(|since| since.elapsed() >= WAKE_DELAY)
    }

    pub(crate) fn wake(&mut self) {
        self.since = None;
        for endpoint in self.endpoints.drain(..) {
            // This fails only if the system is out of memory.
            let _ = endpoint.wake();
        }
    }
}

type Work = Box<dyn FnOnce(&mut PendingWakes) + Send>;

pub(crate) struct SignTask {
    work: Work,
    /// Other tasks must not wait for it.
    is_long: bool,
    /// Its slot in the queue, held while it waits.
    slot: Option<QueueSlot>,
}

impl SignTask {
    /// A task that may take a while.
    pub(crate) fn long(work: impl FnOnce(&mut PendingWakes) + Send + 'static) -> Self {
        Self { work: Box::new(work), is_long: true, slot: None }
    }

    /// A task of a few signatures, with a slot.
    pub(crate) fn short(
        slot: QueueSlot,
        work: impl FnOnce(&mut PendingWakes) + Send + 'static,
    ) -> Self {
        Self { work: Box::new(work), is_long: false, slot: Some(slot) }
    }

    /// As [`SignTask::short`], but other tasks must not wait for it.
    pub(crate) fn long_with_slot(
        slot: QueueSlot,
        work: impl FnOnce(&mut PendingWakes) + Send + 'static,
    ) -> Self {
        Self { is_long: true, ..Self::short(slot, work) }
    }

    fn run(self, wakes: &mut PendingWakes) {
        drop(self.slot);
        // A panic in an application's signer has been printed; the thread continues.
        let _ = catch_unwind(AssertUnwindSafe(|| (self.work)(wakes)));
    }
}

pub(crate) struct QueueSlot(Arc<AtomicUsize>);

impl Drop for QueueSlot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Gives tasks to the threads.
#[derive(Clone)]
pub(crate) struct SignPoolHandle {
    tasks: Sender<SignTask>,
    waiting: Arc<AtomicUsize>,
}

impl SignPoolHandle {
    /// Gives a task to the threads. If they have ended, the task is dropped.
    pub(crate) fn submit(&self, task: SignTask) {
        // If the threads have ended, so has the session of the waiting caller.
        let _ = self.tasks.send(task);
    }

    /// Reserves a slot in the queue, if one is free.
    pub(crate) fn reserve_slot(&self) -> Option<QueueSlot> {
        let slot = QueueSlot(self.waiting.clone());
        (self.waiting.fetch_add(1, Ordering::Relaxed) < QUEUED_TASKS_MAX).then_some(slot)
    }
}

/// See the module's text. Dropping the pool ends the threads and drops waiting tasks.
pub(crate) struct SignPool {
    signers: Option<SignPoolHandle>,
    tasks: Receiver<SignTask>,
    is_stopped: Arc<AtomicBool>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Default for SignPool {
    fn default() -> Self {
        let (sender, tasks) = unbounded();
        let signers = Some(SignPoolHandle { tasks: sender, waiting: Arc::default() });
        Self { signers, tasks, is_stopped: Arc::default(), threads: Mutex::default() }
    }
}

impl SignPool {
    /// A handle to the threads, at least `count` of them.
    pub(crate) fn signers(&self, count: usize) -> io::Result<SignPoolHandle> {
        let mut threads = self.threads();
        while threads.len() < count {
            let (tasks, is_stopped) = (self.tasks.clone(), self.is_stopped.clone());
            let thread = std::thread::Builder::new().name(format!("sign-{}", threads.len()));
            threads.push(thread.spawn(move || work(&tasks, &is_stopped))?);
        }
        Ok(self.signers.clone().expect("taken only by drop"))
    }

    fn threads(&self) -> MutexGuard<'_, Vec<JoinHandle<()>>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for SignPool {
    fn drop(&mut self) {
        self.is_stopped.store(true, Ordering::Relaxed);
        self.signers = None;
        let own = std::thread::current().id();
        for thread in self.threads().drain(..) {
            // An application's signer may hold the last reference to the session. This then runs on
            // one of the pool's own threads, which cannot join itself.
            if thread.thread().id() != own {
                let _ = thread.join();
            }
        }
    }
}

fn work(tasks: &Receiver<SignTask>, is_stopped: &AtomicBool) {
    let mut wakes = PendingWakes::default();
    while let Ok(first) = tasks.recv() {
        for task in std::iter::once(first).chain(tasks.try_iter()) {
            if is_stopped.load(Ordering::Relaxed) {
                continue;
            }
            let is_long = task.is_long;
            if is_long {
                wakes.wake();
            }
            task.run(&mut wakes);
            if is_long || wakes.is_due() {
                wakes.wake();
            }
        }
        wakes.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn survives_panics_and_drops_rest_at_end() {
        let pool = SignPool::default();
        let (done, results) = unbounded();
        let signers = pool.signers(2).unwrap();
        for number in 0..100 {
            let done = done.clone();
            let slot = signers.reserve_slot().unwrap();
            signers.submit(SignTask::short(slot, move |_| {
                assert!(number % 10 != 3, "one that panics");
                done.send(number).unwrap();
            }));
        }
        let mut numbers: Vec<i32> = results.iter().take(90).collect();
        numbers.sort_unstable();
        assert!(numbers.into_iter().eq((0..100).filter(|number| number % 10 != 3)));
        assert_eq!(pool.signers(1).unwrap().waiting.load(Ordering::Relaxed), 0);
        // Both threads are busy until the pool ends.
        let (begin, begun) = unbounded::<()>();
        let (go_on, waits) = unbounded::<()>();
        for _ in 0..2 {
            let (begin, waits) = (begin.clone(), waits.clone());
            signers.submit(SignTask::long(move |_| {
                begin.send(()).unwrap();
                let _ = waits.recv();
            }));
        }
        begun.iter().take(2).for_each(drop);
        let late = done.clone();
        signers.submit(SignTask::long(move |_| late.send(-1).unwrap()));
        drop((done, signers));
        let stopped = pool.is_stopped.clone();
        let ends = std::thread::spawn(move || drop(pool));
        while !stopped.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
        drop(go_on);
        ends.join().unwrap();
        assert!(results.recv().is_err(), "a waiting task was run at the end");
    }

    #[test]
    fn queue_is_bounded() {
        let pool = SignPool::default();
        let signers = pool.signers(0).unwrap();
        let places: Vec<QueueSlot> =
            (0..QUEUED_TASKS_MAX).filter_map(|_| signers.reserve_slot()).collect();
        assert_eq!(places.len(), QUEUED_TASKS_MAX);
        assert!(signers.reserve_slot().is_none());
        drop(places);
        assert!(signers.reserve_slot().is_some());
        assert_eq!(signers.waiting.load(Ordering::Relaxed), 0);
    }
}
