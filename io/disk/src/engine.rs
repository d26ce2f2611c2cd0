use std::fmt;
use std::fs::File;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded};
use weir_store::disk::DiskOutcome;

use crate::config::{DiskFileConfig, Engine};
use crate::disk_loop::{Backend, DiskLoop, LoopParts, is_damage};
use crate::doorbell::{Doorbell, sharpen_timers};
use crate::fault::{FaultyIo, PositionedIo};
use crate::pace::Pacer;
use crate::port::{DiskPorts, EngineLane, Waker, connect};
use crate::ring::RingBackend;
use crate::threads::ThreadBackend;

/// Threads where io_uring is missing.
const THREADS_DEFAULT: u16 = 16;

/// How long the end of the router waits for a disk that nobody stopped.
const STOP_DEFAULT: Duration = Duration::from_secs(2);

/// How much longer a thread may take than it was told to.
const STOP_GRACE: Duration = Duration::from_millis(200);

/// Nanoseconds between two log lines about failures of one disk at least.
const LOG_INTERVAL_NS: u64 = 10_000_000_000;

/// Why the engine of a disk does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// io_uring was asked for and cannot be used.
    #[error(
        "{}: io_uring cannot be used ({source}); allow it (sysctl kernel.io_uring_disabled, \
         seccomp), or set the engine to threads", path.display()
    )]
    IoUring {
        /// The disk.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// No thread or descriptor is left.
    #[error(
        "{}: cannot start its threads: {source}; raise the limits of the process", path.display()
    )]
    Threads {
        /// The disk.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
}

/// What the threads of one disk share with everybody else.
pub(crate) struct DiskShared {
    pub(crate) disk: usize,
    path: PathBuf,
    pub(crate) is_writable: bool,
    pub(crate) doorbell: Doorbell,
    pub(crate) counters: Counters,
    is_dead: AtomicBool,
    epoch: Instant,
    /// Nanoseconds after `epoch`; 0 when it is not stalled.
    stalled_until_ns: AtomicU64,
    stop_by: OnceLock<Instant>,
    logged_ns: AtomicU64,
}

impl DiskShared {
    fn new(disk: usize, path: PathBuf, is_writable: bool) -> io::Result<Self> {
        Ok(Self {
            disk,
            path,
            is_writable,
            doorbell: Doorbell::new()?,
            counters: Counters::default(),
            is_dead: AtomicBool::new(false),
            epoch: Instant::now(),
            stalled_until_ns: AtomicU64::new(0),
            stop_by: OnceLock::new(),
            logged_ns: AtomicU64::new(0),
        })
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.is_dead.load(Ordering::Acquire)
    }

    pub(crate) fn stop_by(&self) -> Option<Instant> {
        self.stop_by.get().copied()
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stop_by.get().is_some()
    }

    pub(crate) fn stalled_until(&self) -> Option<Instant> {
        let until_ns = self.stalled_until_ns.load(Ordering::Acquire);
        (until_ns > 0).then(|| self.epoch + Duration::from_nanos(until_ns))
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.epoch.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Says that an operation failed, unless it was said just now.
    pub(crate) fn log_failure(&self, is_write: bool, offset: u64, errno: i32) {
        let now_ns = self.now_ns().max(1);
        let logged_ns = self.logged_ns.load(Ordering::Relaxed);
        if logged_ns > 0 && now_ns - logged_ns < LOG_INTERVAL_NS {
            return;
        }
        self.logged_ns.store(now_ns, Ordering::Relaxed);
        let what = if is_write { "write" } else { "read" };
        let error = io::Error::from_raw_os_error(errno);
        let failures = self.counters.failures.load(Ordering::Relaxed) + 1;
        tracing::warn!(disk = %self.path.display(), offset, failures, "{what} failed: {error}");
    }
}

/// Counters of one disk, written by its thread.
#[derive(Default)]
pub(crate) struct Counters {
    reads: AtomicU64,
    read_bytes: AtomicU64,
    writes: AtomicU64,
    written_bytes: AtomicU64,
    damaged: AtomicU64,
    failures: AtomicU64,
}

impl Counters {
    pub(crate) fn count(&self, outcome: &DiskOutcome, bytes: u64) {
        let (operations, octets) = match outcome {
            DiskOutcome::Written => (&self.writes, Some(&self.written_bytes)),
            DiskOutcome::Failed(_) => (&self.failures, None),
            _ => (&self.reads, Some(&self.read_bytes)),
        };
        operations.fetch_add(1, Ordering::Relaxed);
        if let Some(octets) = octets {
            octets.fetch_add(bytes, Ordering::Relaxed);
        }
        if is_damage(outcome) {
            self.damaged.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// What the engine of one disk has done.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct DiskCounters {
    /// Reads that came to their end.
    pub reads: u64,
    /// Octets that they read.
    pub read_bytes: u64,
    /// Writes that came to their end.
    pub writes: u64,
    /// Octets that they wrote, padding included.
    pub written_bytes: u64,
    /// Reads that did not find the record that should be there.
    pub damaged: u64,
    /// Reads and writes that the system reported an error for.
    pub failures: u64,
}

/// Stalls one disk, for tests and the laboratory.
#[derive(Clone)]
pub struct StallHandle(Arc<DiskShared>);

impl StallHandle {
    /// For this long from now, operations are taken but not answered. A later call replaces it;
    /// zero ends it.
    pub fn stall_for(&self, time: Duration) {
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let until_ns = if ns == 0 { 0 } else { self.0.now_ns().saturating_add(ns) };
        // A century is for ever, and does not overflow an instant.
        let until_ns = until_ns.min(100 * 365 * 86_400 * 1_000_000_000);
        self.0.stalled_until_ns.store(until_ns, Ordering::Release);
        self.0.doorbell.ring_if_asleep();
    }
}

impl fmt::Debug for StallHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("StallHandle").field(&self.0.path).finish()
    }
}

/// The threads of all disks of a store. Stops them when it is dropped.
pub struct DiskEngine {
    disks: Vec<Arc<DiskShared>>,
    kinds: Vec<&'static str>,
    threads: Vec<DiskThread>,
}

struct DiskThread {
    ended: Receiver<()>,
    thread: Option<JoinHandle<()>>,
}

/// One disk, ready to be read and written.
pub(crate) struct ReadyDisk {
    pub(crate) config: DiskFileConfig,
    pub(crate) file: File,
    pub(crate) block_bytes: u32,
    pub(crate) is_writable: bool,
}

impl DiskEngine {
    pub(crate) fn start(
        disks: Vec<ReadyDisk>,
        store_id: u64,
        depth: u32,
        wakers: Vec<Waker>,
    ) -> Result<(Self, Vec<DiskPorts>), StartError> {
        let depth = depth.max(1) as usize;
        let operations_max = depth * wakers.len();
        let shared = disks.iter().enumerate().map(|(index, disk)| {
            let path = disk.config.path.clone();
            DiskShared::new(index, path.clone(), disk.is_writable)
                .map(Arc::new)
                .map_err(|source| StartError::Threads { path, source })
        });
        let shared = shared.collect::<Result<Vec<_>, _>>()?;
        let (ports, lanes) = connect(&shared, depth, wakers);
        let mut engine = Self { disks: shared, kinds: Vec::new(), threads: Vec::new() };
        for (index, (disk, lanes)) in disks.into_iter().zip(lanes).enumerate() {
            let shared = Arc::clone(&engine.disks[index]);
            let setup = Setup { disk, lanes, shared, store_id, operations_max };
            let (kind, thread) = setup.start()?;
            engine.kinds.push(kind);
            engine.threads.push(thread);
        }
        Ok((engine, ports))
    }

    /// What the engine of a disk has done.
    ///
    /// # Panics
    /// When there is no such disk; so the others.
    #[must_use]
    pub fn counters(&self, disk: usize) -> DiskCounters {
        let counters = &self.disks[disk].counters;
        let value = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        DiskCounters {
            reads: value(&counters.reads),
            read_bytes: value(&counters.read_bytes),
            writes: value(&counters.writes),
            written_bytes: value(&counters.written_bytes),
            damaged: value(&counters.damaged),
            failures: value(&counters.failures),
        }
    }

    /// How a disk is read and written: `io_uring` or `threads`.
    #[must_use]
    pub fn kind(&self, disk: usize) -> &'static str {
        self.kinds[disk]
    }

    /// Whether the engine of a disk has ended, for good.
    #[must_use]
    pub fn is_dead(&self, disk: usize) -> bool {
        self.disks[disk].is_dead()
    }

    /// Stalls a disk.
    #[must_use]
    pub fn stall_handle(&self, disk: usize) -> StallHandle {
        StallHandle(Arc::clone(&self.disks[disk]))
    }

    /// Takes no more operations, waits no longer than `within` for those under way, and ends. Ports
    /// answer the others with [`DiskFailure::Io`](weir_store::disk::DiskFailure::Io). False when a
    /// device did not answer in time: its thread is left to itself then, with its buffers and the
    /// lock on the file.
    pub fn stop(mut self, within: Duration) -> bool {
        self.stop_all(within)
    }

    fn stop_all(&mut self, within: Duration) -> bool {
        let until = Instant::now() + within;
        for shared in &self.disks {
            let _ = shared.stop_by.set(until);
            shared.doorbell.ring_if_asleep();
        }
        let mut have_all_ended = true;
        for (thread, shared) in self.threads.iter_mut().zip(&self.disks) {
            let Some(handle) = thread.thread.take() else { continue };
            let left = (until + STOP_GRACE).saturating_duration_since(Instant::now());
            let waited = thread.ended.recv_timeout(left);
            if matches!(waited, Err(crossbeam_channel::RecvTimeoutError::Timeout)) {
                let disk = shared.path.display();
                tracing::warn!(%disk, "the disk does not answer; its thread is left to itself");
                shared.is_dead.store(true, Ordering::Release);
                have_all_ended = false;
            } else {
                // Its panics are caught within.
                let _ = handle.join();
            }
        }
        have_all_ended
    }
}

impl Drop for DiskEngine {
    fn drop(&mut self) {
        self.stop_all(STOP_DEFAULT);
    }
}

impl fmt::Debug for DiskEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DiskEngine").field("kinds", &self.kinds).finish_non_exhaustive()
    }
}

/// What the thread of a disk begins with.
struct Setup {
    disk: ReadyDisk,
    lanes: Vec<EngineLane>,
    shared: Arc<DiskShared>,
    store_id: u64,
    operations_max: usize,
}

/// Says how a thread began.
type Begun = Sender<Result<&'static str, StartError>>;

impl Setup {
    fn start(self) -> Result<(&'static str, DiskThread), StartError> {
        let (begun, has_begun) = bounded(1);
        let (ending, ended) = bounded::<()>(1);
        let path = self.disk.config.path.clone();
        let thread = std::thread::Builder::new().name(format!("disk{}", self.shared.disk)).spawn(
            move || {
                // Dropped at the very end, which is what `ended` waits for.
                let _ending = ending;
                self.live(begun);
            },
        );
        let no_thread = |source| StartError::Threads { path: path.clone(), source };
        let thread = thread.map_err(no_thread)?;
        let kind = has_begun
            .recv()
            .map_err(|_| no_thread(io::Error::other("its thread ended while it was starting")))??;
        Ok((kind, DiskThread { ended, thread: Some(thread) }))
    }

    /// The life of the thread. Whatever ends it, its shards learn of it.
    fn live(self, begun: Begun) {
        let shared = Arc::clone(&self.shared);
        let signals: Vec<_> = self.lanes.iter().map(|lane| Arc::clone(&lane.signal)).collect();
        let lived = catch_unwind(AssertUnwindSafe(|| self.begin(begun)));
        let words = match &lived {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(_) => Some("a bug".into()),
        };
        if let Some(words) = words {
            let disk = shared.path.display();
            tracing::error!(%disk, "the disk is used no more: its engine died of {words}");
        }
        shared.is_dead.store(true, Ordering::Release);
        signals.iter().for_each(|signal| signal.set());
    }

    fn begin(self, begun: Begun) -> io::Result<()> {
        sharpen_timers();
        let Self { disk, lanes, shared, store_id, operations_max } = self;
        let ReadyDisk { config, file, block_bytes, .. } = disk;
        let pacer = config.pace.as_ref().map(|pace| Pacer::new(pace, Instant::now()));
        let parts = LoopParts::new(
            lanes,
            Arc::clone(&shared),
            store_id,
            block_bytes,
            operations_max,
            pacer,
        );
        let lock = file.try_clone()?;
        let threads = match config.engine {
            Engine::Threads(threads) => threads,
            Engine::Auto if config.faults.is_some() => THREADS_DEFAULT,
            Engine::Auto | Engine::IoUring => {
                match RingBackend::start(&file, parts.buffers(), operations_max, &shared) {
                    Ok(backend) => return work(backend, parts, begun, "io_uring", &lock),
                    Err(source) if config.engine == Engine::IoUring => {
                        let error = StartError::IoUring { path: config.path, source };
                        let _ = begun.send(Err(error));
                        return Ok(());
                    }
                    Err(error) => {
                        let disk = config.path.display();
                        tracing::warn!(%disk, "io_uring cannot be used ({error}); using threads");
                        THREADS_DEFAULT
                    }
                }
            }
        };
        let io: Arc<dyn PositionedIo> = match config.faults {
            None => Arc::new(file),
            Some(faults) => Arc::new(FaultyIo::new(file, faults, block_bytes)),
        };
        match ThreadBackend::start(&io, threads, &shared) {
            Ok(backend) => work(backend, parts, begun, "threads", &lock),
            Err(source) => {
                let _ = begun.send(Err(StartError::Threads { path: config.path, source }));
                Ok(())
            }
        }
    }
}

fn work<B: Backend>(
    backend: B,
    parts: LoopParts,
    begun: Begun,
    kind: &'static str,
    lock: &File,
) -> io::Result<()> {
    // Nobody waits any more if the start was given up.
    let _ = begun.send(Ok(kind));
    let mut disk_loop = DiskLoop { backend, parts };
    disk_loop.run()?;
    if disk_loop.parts.is_idle() {
        // The kernel may hold the file, and with it the lock, for some time yet.
        lock.unlock()?;
    }
    Ok(())
}
