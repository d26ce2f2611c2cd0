use std::fmt;
use std::fs::File;
use std::io;
#[cfg(feature = "lab")]
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
#[cfg(feature = "lab")]
use std::time::Duration;

use weir_store::disk::{DiskOutcome, RecordFault};

use crate::answer_delay::AnswerDelay;
use crate::doorbell::Doorbell;
use crate::file::ReadyDisk;

/// State shared by all ports of one disk and its monitor.
pub(crate) struct DiskShared {
    #[cfg(feature = "lab")]
    path: PathBuf,
    pub(crate) store_id: u64,
    pub(crate) block_bytes: u32,
    pub(crate) is_writable: bool,
    pub(crate) counters: Counters,
    pub(crate) answer_delay: AnswerDelay,
    bells: Vec<Arc<Doorbell>>,
    death: OnceLock<String>,
    failure: Mutex<Option<DiskError>>,
    lock: File,
    is_lock_abandoned: AtomicBool,
}

impl DiskShared {
    pub(crate) fn new(
        disk: &ReadyDisk,
        store_id: u64,
        bells: &[Arc<Doorbell>],
    ) -> io::Result<Self> {
        Ok(Self {
            #[cfg(feature = "lab")]
            path: disk.config.path.clone(),
            store_id,
            block_bytes: disk.block_bytes,
            is_writable: disk.is_writable,
            counters: Counters::default(),
            answer_delay: AnswerDelay::new(&disk.config),
            bells: bells.to_vec(),
            death: OnceLock::new(),
            failure: Mutex::new(None),
            lock: disk.file.try_clone()?,
            is_lock_abandoned: AtomicBool::new(false),
        })
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.death.get().is_some()
    }

    /// Marks the disk as unusable for good, and wakes every shard.
    pub(crate) fn mark_dead(&self, error: &io::Error) {
        let _ = self.death.set(error.to_string());
        self.bells.iter().for_each(|bell| bell.ring());
    }

    /// Keeps the first error until [`DiskMonitor::take_error`] takes it.
    pub(crate) fn record_failure(&self, is_write: bool, offset: u64, errno: i32) {
        // If the monitor is taking an error at this moment, this one is dropped. There will be
        // others.
        if let Ok(mut failure) = self.failure.try_lock() {
            failure.get_or_insert_with(|| DiskError {
                is_write,
                offset,
                source: io::Error::from_raw_os_error(errno),
            });
        }
    }

    /// Leaves the lock to the kernel, since the device may still use the file. The lock ends when
    /// the kernel closes the file.
    pub(crate) fn abandon_lock(&self) {
        self.is_lock_abandoned.store(true, Ordering::Release);
    }
}

impl Drop for DiskShared {
    fn drop(&mut self) {
        if !self.is_lock_abandoned.load(Ordering::Acquire) {
            // Unlock explicitly: a closed ring would keep the file, and its lock, for some time.
            let _ = self.lock.unlock();
        }
    }
}

/// Names the limit that was reached. The system's own text does not.
fn limit_hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::FileTooLarge => {
            "; the file size limit of this process is too small for the disk, raise it (ulimit -f)"
        }
        _ => "",
    }
}

/// A read or write that the system reported an error for.
#[derive(Debug, thiserror::Error)]
#[error(
    "a {} at {offset} failed: {source}{}",
    if *is_write { "write" } else { "read" },
    limit_hint(source)
)]
pub struct DiskError {
    pub is_write: bool,
    /// Bytes from the start of the disk.
    pub offset: u64,
    pub source: io::Error,
}

/// Counters of one disk, incremented by all of its ports.
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

/// Counters of the operations of one disk.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct DiskCounters {
    pub reads: u64,
    pub read_bytes: u64,
    pub writes: u64,
    /// Bytes written, including padding.
    pub written_bytes: u64,
    /// Reads that did not find the expected record.
    pub damaged: u64,
    /// Reads and writes that the system reported an error for.
    pub failures: u64,
}

/// Stalls one disk, for tests and the laboratory.
#[cfg(feature = "lab")]
#[derive(Clone)]
pub struct StallHandle(Arc<DiskShared>);

#[cfg(feature = "lab")]
impl StallHandle {
    /// For this time from now on, operations are accepted but not answered. A later call replaces
    /// the time; zero ends the stall.
    pub fn stall_for(&self, time: Duration) {
        self.0.answer_delay.stall_for(time);
        self.0.bells.iter().for_each(|bell| bell.ring());
    }
}

#[cfg(feature = "lab")]
impl fmt::Debug for StallHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("StallHandle").field(&self.0.path).finish()
    }
}

/// The state of a store's disks, for other threads than the shards'. Methods panic if there is no
/// such disk.
pub struct DiskMonitor {
    disks: Vec<(Arc<DiskShared>, &'static str)>,
}

impl DiskMonitor {
    pub(crate) fn new(disks: Vec<(Arc<DiskShared>, &'static str)>) -> Self {
        Self { disks }
    }

    /// What the shards have done with a disk.
    pub fn counters(&self, disk: usize) -> DiskCounters {
        let counters = &self.disks[disk].0.counters;
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
    pub fn kind(&self, disk: usize) -> &'static str {
        self.disks[disk].1
    }

    /// The error that made a disk unusable for good. All of its operations end with
    /// [`DiskFailure::Io`](weir_store::disk::DiskFailure::Io).
    pub fn death(&self, disk: usize) -> Option<&str> {
        self.disks[disk].0.death.get().map(String::as_str)
    }

    /// Whether operations were in progress when a shard closed the disk. Then the shard's thread
    /// may not be able to exit before the device responds.
    pub fn has_unfinished_io(&self, disk: usize) -> bool {
        self.disks[disk].0.is_lock_abandoned.load(Ordering::Acquire)
    }

    /// The first error of a disk since the last call.
    pub fn take_error(&self, disk: usize) -> Option<DiskError> {
        self.disks[disk].0.failure.lock().ok()?.take()
    }

    #[cfg(feature = "lab")]
    pub fn stall_handle(&self, disk: usize) -> StallHandle {
        StallHandle(Arc::clone(&self.disks[disk].0))
    }
}

impl fmt::Debug for DiskMonitor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kinds: Vec<_> = self.disks.iter().map(|(_, kind)| kind).collect();
        f.debug_struct("DiskMonitor").field("kinds", &kinds).finish_non_exhaustive()
    }
}

/// Whether the outcome means that the bytes are not what was written.
fn is_damage(outcome: &DiskOutcome) -> bool {
    matches!(
        outcome,
        DiskOutcome::Damaged(RecordFault::Checksum | RecordFault::Foreign | RecordFault::Truncated)
    )
}
