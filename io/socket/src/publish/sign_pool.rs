//! Threads that sign for all producers of a session, so that no publication has to make its own.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, unbounded};
use weir_client::EndpointWaker;

/// Publications that wait to be signed at most.
const QUEUED_TASKS_MAX: usize = 4096;
/// How long what is done waits for more before somebody is woken for it.
const WAKE_DELAY: Duration = Duration::from_micros(200);

/// The endpoints that a thread must wake for the tasks it has done, each once for several tasks.
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
            // It fails only if the system has run out of memory.
            let _ = endpoint.wake();
        }
    }
}

type Work = Box<dyn FnOnce(&mut PendingWakes) + Send>;

/// Something for the threads to do.
pub(crate) struct SignTask {
    work: Work,
    /// Others are not to wait for it.
    is_long: bool,
    /// Counted as long as it waits.
    slot: Option<QueueSlot>,
}

impl SignTask {
    /// What may take a while.
    pub(crate) fn long(work: impl FnOnce(&mut PendingWakes) + Send + 'static) -> Self {
        Self { work: Box::new(work), is_long: true, slot: None }
    }

    /// What takes a few signatures, and has a place.
    pub(crate) fn short(
        place: QueueSlot,
        work: impl FnOnce(&mut PendingWakes) + Send + 'static,
    ) -> Self {
        Self { work: Box::new(work), is_long: false, slot: Some(place) }
    }

    /// As [`Task::short`], which others are not to wait for.
    pub(crate) fn long_with_slot(
        place: QueueSlot,
        work: impl FnOnce(&mut PendingWakes) + Send + 'static,
    ) -> Self {
        Self { is_long: true, ..Self::short(place, work) }
    }

    fn run(self, wakes: &mut PendingWakes) {
        drop(self.slot);
        // What a signer of the application panics at has been printed; others go on.
        let _ = catch_unwind(AssertUnwindSafe(|| (self.work)(wakes)));
    }
}

/// A place among those that wait.
pub(crate) struct QueueSlot(Arc<AtomicUsize>);

impl Drop for QueueSlot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The way to the threads.
#[derive(Clone)]
pub(crate) struct SignPoolHandle {
    tasks: Sender<SignTask>,
    waiting: Arc<AtomicUsize>,
}

impl SignPoolHandle {
    /// Has a thread do it, if there are any; else nobody does.
    pub(crate) fn submit(&self, task: SignTask) {
        // With the threads goes whoever waits.
        let _ = self.tasks.send(task);
    }

    /// A place among what waits, if there is one.
    pub(crate) fn reserve_slot(&self) -> Option<QueueSlot> {
        let place = QueueSlot(self.waiting.clone());
        (self.waiting.fetch_add(1, Ordering::Relaxed) < QUEUED_TASKS_MAX).then_some(place)
    }
}

/// See the module's text. Dropping the pool ends the threads; what waits then is not done.
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
    /// The way to the threads, of which there are `count` at least from then on.
    pub(crate) fn signers(&self, count: usize) -> io::Result<SignPoolHandle> {
        let mut threads = self.threads();
        while threads.len() < count {
            let (tasks, is_stopped) = (self.tasks.clone(), self.is_stopped.clone());
            let thread = std::thread::Builder::new().name(format!("sign-{}", threads.len()));
            threads.push(thread.spawn(move || work(&tasks, &is_stopped))?);
        }
        Ok(self.signers.clone().expect("there until dropped"))
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
            // A signer of the application may hold the session that this ends with.
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
            let place = signers.reserve_slot().unwrap();
            signers.submit(SignTask::short(place, move |_| {
                assert!(number % 10 != 3, "one that panics");
                done.send(number).unwrap();
            }));
        }
        let mut numbers: Vec<i32> = results.iter().take(90).collect();
        numbers.sort_unstable();
        assert!(numbers.into_iter().eq((0..100).filter(|number| number % 10 != 3)));
        assert_eq!(pool.signers(1).unwrap().waiting.load(Ordering::Relaxed), 0);
        // Both threads are busy until the pool is about to end.
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
        assert!(results.recv().is_err(), "what waited at the end was done");
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
