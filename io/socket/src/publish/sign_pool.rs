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
const WAITING_MAX: usize = 4096;
/// How long what is done waits for more before somebody is woken for it.
const WAKE_LATE: Duration = Duration::from_micros(200);

/// The endpoints that a thread must wake for the tasks it has done, each once for several tasks.
#[derive(Default)]
pub(crate) struct Wakes {
    endpoints: Vec<EndpointWaker>,
    since: Option<Instant>,
}

impl Wakes {
    pub(crate) fn add(&mut self, endpoint: &EndpointWaker) {
        self.since.get_or_insert_with(Instant::now);
        if !self.endpoints.contains(endpoint) {
            self.endpoints.push(endpoint.clone());
        }
    }

    fn is_late(&self) -> bool {
        self.since.is_some_and(|since| since.elapsed() >= WAKE_LATE)
    }

    pub(crate) fn wake(&mut self) {
        self.since = None;
        for endpoint in self.endpoints.drain(..) {
            // It fails only if the system has run out of memory.
            let _ = endpoint.wake();
        }
    }
}

type Work = Box<dyn FnOnce(&mut Wakes) + Send>;

/// Something for the threads to do.
pub(crate) struct Task {
    work: Work,
    /// Others are not to wait for it.
    is_long: bool,
    /// Counted as long as it waits.
    place: Option<Place>,
}

impl Task {
    /// What may take a while.
    pub(crate) fn long(work: impl FnOnce(&mut Wakes) + Send + 'static) -> Self {
        Self { work: Box::new(work), is_long: true, place: None }
    }

    /// What takes a few signatures, and has a place.
    pub(crate) fn short(place: Place, work: impl FnOnce(&mut Wakes) + Send + 'static) -> Self {
        Self { work: Box::new(work), is_long: false, place: Some(place) }
    }

    /// As [`Task::short`], which others are not to wait for.
    pub(crate) fn placed(place: Place, work: impl FnOnce(&mut Wakes) + Send + 'static) -> Self {
        Self { is_long: true, ..Self::short(place, work) }
    }

    fn run(self, wakes: &mut Wakes) {
        drop(self.place);
        // What a signer of the application panics at has been printed; others go on.
        let _ = catch_unwind(AssertUnwindSafe(|| (self.work)(wakes)));
    }
}

/// A place among those that wait.
pub(crate) struct Place(Arc<AtomicUsize>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The way to the threads.
#[derive(Clone)]
pub(crate) struct Signers {
    tasks: Sender<Task>,
    waiting: Arc<AtomicUsize>,
}

impl Signers {
    /// Has a thread do it, if there are any; else nobody does.
    pub(crate) fn submit(&self, task: Task) {
        // With the threads goes whoever waits.
        let _ = self.tasks.send(task);
    }

    /// A place among what waits, if there is one.
    pub(crate) fn place(&self) -> Option<Place> {
        let place = Place(self.waiting.clone());
        (self.waiting.fetch_add(1, Ordering::Relaxed) < WAITING_MAX).then_some(place)
    }
}

/// See the module's text. Dropping the pool ends the threads; what waits then is not done.
pub(crate) struct SignPool {
    signers: Option<Signers>,
    tasks: Receiver<Task>,
    is_stopped: Arc<AtomicBool>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Default for SignPool {
    fn default() -> Self {
        let (sender, tasks) = unbounded();
        let signers = Some(Signers { tasks: sender, waiting: Arc::default() });
        Self { signers, tasks, is_stopped: Arc::default(), threads: Mutex::default() }
    }
}

impl SignPool {
    /// The way to the threads, of which there are `count` at least from then on.
    pub(crate) fn signers(&self, count: usize) -> io::Result<Signers> {
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

fn work(tasks: &Receiver<Task>, is_stopped: &AtomicBool) {
    let mut wakes = Wakes::default();
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
            if is_long || wakes.is_late() {
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
    fn all_is_done_whatever_panics_and_nothing_after_the_end() {
        let pool = SignPool::default();
        let (done, results) = unbounded();
        let signers = pool.signers(2).unwrap();
        for number in 0..100 {
            let done = done.clone();
            let place = signers.place().unwrap();
            signers.submit(Task::short(place, move |_| {
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
            signers.submit(Task::long(move |_| {
                begin.send(()).unwrap();
                let _ = waits.recv();
            }));
        }
        begun.iter().take(2).for_each(drop);
        let late = done.clone();
        signers.submit(Task::long(move |_| late.send(-1).unwrap()));
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
    fn what_waits_is_bounded() {
        let pool = SignPool::default();
        let signers = pool.signers(0).unwrap();
        let places: Vec<Place> = (0..WAITING_MAX).filter_map(|_| signers.place()).collect();
        assert_eq!(places.len(), WAITING_MAX);
        assert!(signers.place().is_none());
        drop(places);
        assert!(signers.place().is_some());
        assert_eq!(signers.waiting.load(Ordering::Relaxed), 0);
    }
}
