//! Reads and writes by io_uring. The file and the buffers are registered with the kernel once, and
//! one system call submits the operations of a turn. The kernel signals the doorbell when
//! operations have ended.

use std::cell::Cell;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::FileTypeExt;
use std::sync::{Arc, Once};
use std::thread::{self, ThreadId};
use std::time::Duration;

use io_uring::types::{Fixed, SubmitArgs, Timespec};
use io_uring::{IoUring, Submitter, opcode, squeue};
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use rangemap::RangeSet;

use crate::buffer::{Buffer, Buffers};
use crate::disk_port::{Backend, Completion, Transfer};
use crate::doorbell::Doorbell;

/// The index of the file among the registered ones.
const FILE: Fixed = Fixed(0);

/// `IORING_ENTER_GETEVENTS`: the kernel runs deferred completions now.
const GET_EVENTS: u32 = 1;

/// A buffer that the kernel uses, and the range of the disk that is written from it.
struct InFlight {
    buffer: Buffer,
    write: Option<Range<u64>>,
}

thread_local! {
    /// Operations that this thread may have in progress on all of its rings.
    static OPERATIONS_MAX: Cell<usize> = const { Cell::new(0) };
}

/// The kernel's worker threads that one ring may block.
///
/// Workers belong to the thread that uses a ring. Their limit applies to all rings of the thread,
/// and the last limit set is in force. So each ring sets the sum over all rings. Otherwise
/// operations that block on one disk would delay those of the others.
struct WorkerShare {
    workers: usize,
    /// The thread whose limit includes it.
    thread: ThreadId,
}

impl WorkerShare {
    fn take(ring: &Submitter<'_>, workers: usize) -> Self {
        let all = OPERATIONS_MAX.get() + workers;
        let bounded = u32::try_from(all).unwrap_or(u32::MAX);
        // 0 leaves the limit of workers for other things than files unchanged.
        if let Err(error) = ring.register_iowq_max_workers(&mut [bounded, 0]) {
            static LOGGED: Once = Once::new();
            LOGGED.call_once(|| {
                tracing::info!(
                    %error,
                    "io_uring has its own bound of operations that wait for disks at a time, four \
                     for each processor; raising it requires Linux 5.15"
                );
            });
        }
        OPERATIONS_MAX.set(all);
        Self { workers, thread: thread::current().id() }
    }
}

impl Drop for WorkerShare {
    fn drop(&mut self) {
        if thread::current().id() == self.thread {
            OPERATIONS_MAX.set(OPERATIONS_MAX.get() - self.workers);
        }
    }
}

/// A ring, and the operations that the kernel has. Created by any thread, then used by one.
pub(crate) struct RingBackend {
    ring: IoUring,
    /// Operations in progress, by token.
    transfers: Vec<Option<InFlight>>,
    under_way: usize,
    has_registered_buffers: bool,
    is_direct: bool,
    /// The ranges written so far; `None` for a device, which has no file system.
    written: Option<RangeSet<u64>>,
    /// Its share of the kernel's workers, once a thread uses it.
    worker_share: Option<WorkerShare>,
    bell: Arc<Doorbell>,
}

impl RingBackend {
    /// # Errors
    /// The system has no io_uring, or an old version, or does not permit it.
    pub(crate) fn start(
        file: &File,
        buffers: &Buffers,
        depth: usize,
        bell: &Arc<Doorbell>,
    ) -> io::Result<Self> {
        let entries = u32::try_from(depth).unwrap_or(u32::MAX).next_power_of_two();
        let ring = build_ring(entries)?;
        if !ring.params().is_feature_ext_arg() || !ring.params().is_feature_nodrop() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let submitter = ring.submitter();
        check_entry_allowed(&submitter)?;
        submitter.register_files(&[file.as_raw_fd()])?;
        submitter.register_eventfd(bell.as_fd().as_raw_fd())?;
        let are_buffers_registered = register(&ring, buffers);
        let flags = OFlag::from_bits_retain(fcntl(file, FcntlArg::F_GETFL)?);
        Ok(Self {
            ring,
            transfers: (0..depth).map(|_| None).collect(),
            under_way: 0,
            has_registered_buffers: are_buffers_registered,
            is_direct: flags.contains(OFlag::O_DIRECT),
            written: (!file.metadata()?.file_type().is_block_device()).then(RangeSet::new),
            worker_share: None,
            bell: Arc::clone(bell),
        })
    }

    /// Whether a range has not been written since the file was opened. For such a write, a file
    /// system may block the submitter on its journal. Direct reads and overwrites start without
    /// blocking.
    fn is_first_write(&self, write: &Range<u64>) -> bool {
        let Some(written) = &self.written else { return false };
        written.get(&write.start).is_none_or(|known| known.end < write.end)
    }

    /// Submits the queued operations, and lets the kernel run deferred completions.
    fn enter(&mut self, wait: Option<Duration>) -> io::Result<()> {
        let submitter = self.ring.submitter();
        if self.worker_share.is_none() {
            submitter.register_enable_rings()?;
            self.worker_share = Some(WorkerShare::take(&submitter, self.transfers.len()));
        }
        let pushed = self.ring.submission().len();
        let submitter = self.ring.submitter();
        let entered = match wait {
            // SAFETY: there is no signal mask to point to.
            None => unsafe { submitter.enter::<()>(pushed as u32, 0, GET_EVENTS, None) },
            Some(wait) => {
                let until = Timespec::from(wait);
                submitter.submit_with_args(1, &SubmitArgs::new().timespec(&until))
            }
        };
        match entered {
            Ok(_) => Ok(()),
            // A signal, the end of the time, or completions to be taken first.
            Err(error)
                if matches!(
                    error.raw_os_error(),
                    Some(libc::EINTR | libc::ETIME | libc::EBUSY | libc::EAGAIN)
                ) =>
            {
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}

/// A ring with the cheapest notification of completions that the kernel supports.
fn build_ring(entries: u32) -> io::Result<IoUring> {
    let newest = IoUring::builder()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_taskrun_flag()
        .setup_r_disabled()
        .dontfork()
        .build(entries);
    let newer = newest.or_else(|_| {
        let mut builder = IoUring::builder();
        builder.setup_coop_taskrun().setup_taskrun_flag().setup_r_disabled();
        builder.dontfork().build(entries)
    });
    newer.or_else(|_| IoUring::builder().setup_r_disabled().dontfork().build(entries))
}

/// Checks that operations can be submitted at all: a filter of system calls may permit creating
/// rings but not using them. The ring is not enabled yet, so success is the error `EBADFD`.
fn check_entry_allowed(ring: &Submitter<'_>) -> io::Result<()> {
    // SAFETY: nothing is submitted, and there is no signal mask to point to.
    match unsafe { ring.enter::<()>(0, 0, 0, None) } {
        Err(error) if error.raw_os_error() == Some(libc::EBADFD) => Ok(()),
        entered => entered.map(drop),
    }
}

/// Registers the buffers that are kept. That may fail, for instance because the user may not lock
/// enough memory. Then the kernel maps the buffers for each operation.
fn register(ring: &IoUring, buffers: &Buffers) -> bool {
    let kept: Vec<_> = buffers
        .pooled()
        .map(|buffer| libc::iovec {
            iov_base: buffer.as_ptr().cast_mut().cast(),
            iov_len: buffer.len(),
        })
        .collect();
    // SAFETY: kept buffers live as long as their lane; the kernel holds their pages.
    let registered = unsafe { ring.submitter().register_buffers(&kept) };
    if let Err(error) = &registered {
        tracing::info!(%error, "disk buffers are not registered with io_uring (see ulimit -l)");
    }
    registered.is_ok()
}

impl Backend for RingBackend {
    fn start(&mut self, transfer: Transfer) -> io::Result<()> {
        let Transfer { token, is_write, offset, mut buffer, range } = transfer;
        let len = range.len() as u32;
        let octets = buffer[range].as_mut_ptr();
        let entry = match (is_write, buffer.index().filter(|_| self.has_registered_buffers)) {
            (false, Some(index)) => {
                opcode::ReadFixed::new(FILE, octets, len, index).offset(offset).build()
            }
            (false, None) => opcode::Read::new(FILE, octets, len).offset(offset).build(),
            (true, Some(index)) => {
                opcode::WriteFixed::new(FILE, octets, len, index).offset(offset).build()
            }
            (true, None) => opcode::Write::new(FILE, octets, len).offset(offset).build(),
        };
        let write = is_write.then(|| offset..offset + u64::from(len));
        // Operations on which the kernel may block go to its own worker threads.
        let may_wait =
            !self.is_direct || write.as_ref().is_some_and(|write| self.is_first_write(write));
        let entry = if may_wait { entry.flags(squeue::Flags::ASYNC) } else { entry };
        let slot = &mut self.transfers[token as usize];
        assert!(slot.is_none(), "a token belongs to one operation at a time");
        *slot = Some(InFlight { buffer, write });
        self.under_way += 1;
        // SAFETY: what the entry points to is a buffer, which stays with `self` until the
        // completion is there. `drop` leaks those that are still under way.
        let pushed = unsafe { self.ring.submission().push(&entry.user_data(u64::from(token))) };
        pushed.map_err(|_| io::Error::other("the submission queue of io_uring is full"))
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.ring.submission().is_empty() {
            return Ok(());
        }
        self.enter(None)?;
        if !self.ring.submission().is_empty() {
            // The kernel did not take all, for instance for lack of memory. Retry in the next turn.
            self.bell.ring();
        }
        Ok(())
    }

    fn reap(&mut self, done: &mut Vec<Completion>) -> io::Result<()> {
        let submission = self.ring.submission();
        let has_deferred = submission.taskrun() || submission.cq_overflow();
        drop(submission);
        if has_deferred {
            // The kernel has signalled the doorbell for these completions, and signals it again
            // when `enter` fetches them. That costs the thread one extra turn before it sleeps.
            // Suppress the second signal if nothing else can complete.
            let is_last = self.under_way == 1;
            if is_last {
                self.ring.completion().disable_eventfd();
            }
            let entered = self.enter(None);
            self.ring.completion().enable_eventfd();
            entered?;
        }
        for completion in self.ring.completion() {
            let token = completion.user_data() as u32;
            let transfer = self.transfers[token as usize].take();
            let InFlight { buffer, write } = transfer.expect("a completion for each submission");
            self.under_way -= 1;
            let result = completion.result();
            let result = usize::try_from(result).map_err(|_| -result);
            if let (Some(written), Some(write), Ok(octets @ 1..)) =
                (&mut self.written, write, result)
            {
                written.insert(write.start..write.start + octets as u64);
            }
            done.push(Completion { token, buffer, result });
        }
        Ok(())
    }

    fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        self.enter(Some(timeout))
    }
}

impl Drop for RingBackend {
    fn drop(&mut self) {
        if self.under_way > 0 {
            // The kernel may still write to these buffers at any time.
            std::mem::forget(std::mem::take(&mut self.transfers));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bound(ring: &RingBackend) -> u32 {
        // Zeros change nothing; the call returns the current limits.
        let mut workers = [0, 0];
        ring.ring.submitter().register_iowq_max_workers(&mut workers).unwrap();
        workers[0]
    }

    /// One thread uses the disks of several producers.
    #[test]
    fn worker_limit_sums_rings_of_a_thread() {
        const DEPTH: usize = 8;
        let (file, bell) = (tempfile::tempfile().unwrap(), Arc::new(Doorbell::new().unwrap()));
        let use_one = || {
            let mut ring = RingBackend::start(&file, &Buffers::new(DEPTH), DEPTH, &bell)?;
            // The limit applies from the first operation on. SAFETY: the operation does nothing and
            // uses no memory.
            unsafe { ring.ring.submission().push(&opcode::Nop::new().build()) }.unwrap();
            ring.enter(None)?;
            io::Result::Ok(ring)
        };
        let Ok(first) = use_one() else {
            return eprintln!("no io_uring here");
        };
        assert_eq!(bound(&first), 8);
        let (second, third) = (use_one().unwrap(), use_one().unwrap());
        assert_eq!(bound(&third), 24);
        drop((second, third));
        let fourth = use_one().unwrap();
        assert_eq!(bound(&fourth), 16);
    }
}
