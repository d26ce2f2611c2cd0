//! The worker threads, as the control thread sees them.

use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::Sender;
use mio::Waker;
use weir_base::HashKey;
use weir_forward::Command;
use weir_wire::NameView;

use crate::message::ToWorker;

/// How long management waits for threads to confirm a change.
const CONFIRM_TIMEOUT: Duration = Duration::from_millis(200);

/// The command queue of one worker thread.
pub(super) struct WorkerQueue {
    pub(super) commands: Sender<ToWorker>,
    pub(super) waker: Arc<Waker>,
}

/// Sends commands to the worker threads. Cheap to clone: each component has one.
#[derive(Clone)]
pub(super) struct Workers {
    queues: Arc<[WorkerQueue]>,
    shard_key: HashKey,
}

impl Workers {
    pub(super) fn new(queues: Vec<WorkerQueue>, shard_key: HashKey) -> Self {
        Self { queues: queues.into(), shard_key }
    }

    pub(super) fn count(&self) -> u16 {
        self.queues.len() as u16
    }

    pub(super) fn send(&self, worker: u16, command: ToWorker) {
        let queue = &self.queues[usize::from(worker)];
        // Fails only after the thread has ended, which it reports with `ToControl::Ended`.
        if queue.commands.send(command).is_ok() {
            let _ = queue.waker.wake();
        }
    }

    /// Sends a command to the shard of one thread.
    pub(super) fn send_shard(&self, worker: u16, command: Command) {
        self.send(worker, ToWorker::Router(command));
    }

    pub(super) fn send_all(&self, mut command: impl FnMut() -> ToWorker) {
        for worker in 0..self.count() {
            self.send(worker, command());
        }
    }

    pub(super) fn send_all_shards(&self, mut command: impl FnMut() -> Command) {
        self.send_all(|| ToWorker::Router(command()));
    }

    /// Sends a command to all threads but one.
    pub(super) fn send_others(&self, but: u16, mut command: impl FnMut() -> ToWorker) {
        for worker in (0..self.count()).filter(|&worker| worker != but) {
            self.send(worker, command());
        }
    }

    /// The thread whose shard holds this name.
    pub(super) fn shard_of(&self, name: NameView<'_>) -> u16 {
        weir_forward::shard::shard_of_name(&self.shard_key, name, self.count())
    }

    pub(super) fn shard_key(&self) -> &HashKey {
        &self.shard_key
    }
}

/// Waits for the worker threads to carry out commands.
pub(super) struct Confirmation {
    workers: Workers,
    /// The last fence, if a thread did not reach it in time.
    late: Option<mpsc::Receiver<()>>,
}

impl Confirmation {
    pub(super) fn new(workers: Workers) -> Self {
        Self { workers, late: None }
    }

    /// Waits until all shards have carried out earlier commands. The client may use the result of
    /// its command as soon as it has the answer, through any shard.
    ///
    /// Returns false if a thread has not done so within [`CONFIRM_TIMEOUT`]. A thread that stalls
    /// delays management only once: until it has reached that fence, later calls do not wait.
    pub(super) fn wait_for_all(&mut self) -> bool {
        if self.workers.count() < 2 {
            return true;
        }
        if self.late.as_ref().is_some_and(|late| late.try_recv() == Err(mpsc::TryRecvError::Empty))
        {
            return false;
        }
        // Each thread drops its clone when it reaches the fence. After the last one, `recv_timeout`
        // reports a disconnected channel, which means success.
        let (fence, passed) = mpsc::channel();
        self.workers.send_all(|| ToWorker::Fence(fence.clone()));
        drop(fence);
        let is_late = passed.recv_timeout(CONFIRM_TIMEOUT) == Err(mpsc::RecvTimeoutError::Timeout);
        self.late = is_late.then_some(passed);
        if is_late {
            tracing::warn!(
                "a worker thread does not respond: until it does, commands are answered before all \
                 shards have applied them"
            );
        }
        !is_late
    }
}

/// Assigns faces and ports to worker threads, round robin.
pub(super) struct RoundRobin {
    count: u16,
    next: u16,
}

impl RoundRobin {
    pub(super) fn new(count: u16) -> Self {
        Self { count, next: 0 }
    }

    pub(super) fn next(&mut self) -> u16 {
        let worker = self.next;
        self.next = (worker + 1) % self.count;
        worker
    }
}

/// The threads. They stop when this is dropped, so the control thread never leaves one behind.
pub(super) struct WorkerThreads {
    workers: Workers,
    threads: Vec<JoinHandle<()>>,
}

impl WorkerThreads {
    pub(super) fn new(workers: Workers) -> Self {
        Self { workers, threads: Vec::new() }
    }

    pub(super) fn push(&mut self, thread: JoinHandle<()>) {
        self.threads.push(thread);
    }

    /// Stops all threads. Returns the index of a thread that failed or did not stop in time. While
    /// `is_disk_busy`, finished threads are not joined: the kernel keeps a thread alive until
    /// devices have answered its requests.
    pub(super) fn stop(
        mut self,
        within: Duration,
        is_disk_busy: impl Fn() -> bool,
    ) -> Option<usize> {
        self.workers.send_all(|| ToWorker::Stop);
        let deadline = Instant::now() + within;
        let mut failed = None;
        for (index, thread) in self.threads.drain(..).enumerate() {
            // `JoinHandle` has no join with a timeout, and all threads share one deadline.
            while !thread.is_finished() && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(1));
            }
            let is_failed = !thread.is_finished() || (!is_disk_busy() && thread.join().is_err());
            if is_failed && failed.is_none() {
                failed = Some(index);
            }
        }
        failed
    }
}

impl Drop for WorkerThreads {
    fn drop(&mut self) {
        self.workers.send_all(|| ToWorker::Stop);
    }
}

#[cfg(test)]
impl Workers {
    /// Queues of two worker threads that do not run. The tests receive the commands.
    pub(super) fn fixture() -> (Self, Vec<crossbeam_channel::Receiver<ToWorker>>) {
        let poll = mio::Poll::new().unwrap();
        let waker = Arc::new(Waker::new(poll.registry(), mio::Token(0)).unwrap());
        let (queues, receivers) = (0..2)
            .map(|_| {
                let (commands, receiver) = crossbeam_channel::unbounded();
                (WorkerQueue { commands, waker: Arc::clone(&waker) }, receiver)
            })
            .unzip();
        (Self::new(queues, HashKey::new([1, 2])), receivers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stalled_worker_delays_management_once() {
        let (workers, receivers) = Workers::fixture();
        let mut confirmation = Confirmation::new(workers);
        let [first, stalled] = &receivers[..] else { panic!("two threads") };
        let carry_out = || drop(first.try_iter().collect::<Vec<_>>());
        assert!(!confirmation.wait_for_all());
        carry_out();
        let began = Instant::now();
        for _ in 0..1000 {
            assert!(!confirmation.wait_for_all());
        }
        assert!(began.elapsed() < 10 * CONFIRM_TIMEOUT, "{:?}", began.elapsed());
        assert_eq!(stalled.len(), 1, "the queue of a stalled thread does not grow");
        // Both threads respond.
        std::thread::scope(|scope| {
            let (done, is_done) = crossbeam_channel::bounded::<()>(0);
            for commands in [first, stalled] {
                let is_done = is_done.clone();
                scope.spawn(move || {
                    while is_done.try_recv() == Err(crossbeam_channel::TryRecvError::Empty) {
                        let _ = commands.recv_timeout(Duration::from_millis(1));
                    }
                });
            }
            let deadline = Instant::now() + Duration::from_secs(10);
            while !confirmation.wait_for_all() {
                assert!(Instant::now() < deadline, "the threads respond");
                std::thread::yield_now();
            }
            drop(done);
        });
    }
}
