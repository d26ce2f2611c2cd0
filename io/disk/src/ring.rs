//! Reads and writes by io_uring: the file and the buffers are registered with the kernel once, what
//! came up in a turn is submitted by one system call. The kernel rings the bell when something has
//! ended.

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

/// The file's place among the registered ones.
const FILE: Fixed = Fixed(0);

/// `IORING_ENTER_GETEVENTS`: completions that the kernel has put off until it is asked come now.
const GET_EVENTS: u32 = 1;

/// A buffer that the kernel works on, and what is written from it.
struct InFlight {
    buffer: Buffer,
    write: Option<Range<u64>>,
}

thread_local! {
    /// Operations that this thread may have under way at all the rings that it uses.
    static OPERATIONS_MAX: Cell<usize> = const { Cell::new(0) };
}

/// Workers of the kernel that one ring may keep waiting.
///
/// They belong to the thread that uses a ring, not to the ring, and their bound is one for all its
/// rings: that of the ring used last holds. So it counts all of them, or those that wait for one
/// disk would keep the others waiting.
struct WorkerShare {
    workers: usize,
    /// Whose bound counts it.
    thread: ThreadId,
}

impl WorkerShare {
    fn take(ring: &Submitter<'_>, workers: usize) -> Self {
        let all = OPERATIONS_MAX.get() + workers;
        let bounded = u32::try_from(all).unwrap_or(u32::MAX);
        // 0 leaves those alone that wait for things other than files.
        if let Err(error) = ring.register_iowq_max_workers(&mut [bounded, 0]) {
            static LOGGED: Once = Once::new();
            LOGGED.call_once(|| {
                tracing::info!(
                    %error,
                    "io_uring has its own bound of operations that wait for disks at a time, four \
                     for each processor: that it can be set takes Linux 5.15"
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

/// A ring and what the kernel works on. Made by any thread, then used by one.
pub(crate) struct RingBackend {
    ring: IoUring,
    /// What is under way, by token.
    transfers: Vec<Option<InFlight>>,
    under_way: usize,
    has_registered_buffers: bool,
    is_direct: bool,
    /// What was written before; nothing for a device, which has no file system.
    written: Option<RangeSet<u64>>,
    /// Its part of the kernel's workers, once a thread uses it.
    worker_share: Option<WorkerShare>,
    bell: Arc<Doorbell>,
}

impl RingBackend {
    /// # Errors
    /// When the system has no io_uring, or not enough of it, or does not let us use it.
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

    /// Whether a write goes where nothing was written yet since the file was opened. For that,
    /// file systems may have whoever writes wait for their journal. Direct reads, and writes over
    /// what is there, begin without waiting for anything.
    fn is_first_write(&self, write: &Range<u64>) -> bool {
        let Some(written) = &self.written else { return false };
        written.get(&write.start).is_none_or(|known| known.end < write.end)
    }

    /// Submits what was pushed, and has the kernel end what it has put off.
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

/// A ring with the cheapest way to learn of completions that the kernel knows.
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

/// Whether operations may be submitted at all: filters of system calls may let rings be made and
/// not used. The ring has yet to be enabled, and the system says so.
fn check_entry_allowed(ring: &Submitter<'_>) -> io::Result<()> {
    // SAFETY: nothing is submitted, and there is no signal mask to point to.
    match unsafe { ring.enter::<()>(0, 0, 0, None) } {
        Err(error) if error.raw_os_error() == Some(libc::EBADFD) => Ok(()),
        entered => entered.map(drop),
    }
}

/// Registers the buffers that are kept. Where that fails, as when the user may not lock that much
/// memory, the kernel looks them up each time.
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
        let may_wait =
            !self.is_direct || write.as_ref().is_some_and(|write| self.is_first_write(write));
        let entry = if may_wait { entry.flags(squeue::Flags::ASYNC) } else { entry };
        let place = &mut self.transfers[token as usize];
        assert!(place.is_none(), "a token stands for one operation");
        *place = Some(InFlight { buffer, write });
        self.under_way += 1;
        // SAFETY: what the entry points to is a buffer, which stays with `self` until the
        // completion is there; `drop` leaks those that are still under way.
        let pushed = unsafe { self.ring.submission().push(&entry.user_data(u64::from(token))) };
        pushed.map_err(|_| io::Error::other("the ring has no place for an operation"))
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.ring.submission().is_empty() {
            return Ok(());
        }
        self.enter(None)?;
        if !self.ring.submission().is_empty() {
            // The kernel was short of memory, say: once more in the next turn.
            self.bell.ring();
        }
        Ok(())
    }

    fn reap(&mut self, done: &mut Vec<Completion>) -> io::Result<()> {
        let submission = self.ring.submission();
        let has_deferred = submission.taskrun() || submission.cq_overflow();
        drop(submission);
        if has_deferred {
            // The bell has rung for them, and would once more when they are fetched: for a look
            // before the thread sleeps, which is worth it unless nothing more can come.
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
            // The kernel may still write to them, when it pleases.
            std::mem::forget(std::mem::take(&mut self.transfers));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bound(ring: &RingBackend) -> u32 {
        // Nothing is changed, and what held is told.
        let mut workers = [0, 0];
        ring.ring.submitter().register_iowq_max_workers(&mut workers).unwrap();
        workers[0]
    }

    /// Disks of several producers are used by one thread.
    #[test]
    fn worker_limit_sums_rings_of_a_thread() {
        const DEPTH: usize = 8;
        let (file, bell) = (tempfile::tempfile().unwrap(), Arc::new(Doorbell::new().unwrap()));
        let use_one = || {
            let mut ring = RingBackend::start(&file, &Buffers::new(DEPTH), DEPTH, &bell)?;
            // Its bound holds from the first operation on.
            // SAFETY: it does nothing, with no memory.
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
