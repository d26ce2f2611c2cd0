//! Reads and writes by io_uring: the file and the buffers are registered with the kernel once, what
//! came up in a turn is submitted by one system call, which also waits for what ends.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;

use io_uring::types::{Fixed, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode, squeue};

use crate::buffer::{Buffer, Buffers};
use crate::disk_loop::{Backend, Done, Transfer};
use crate::engine::DiskShared;

/// Marks completions of the poll of the doorbell.
const DOORBELL: u64 = u64::MAX;

/// The file's place among the registered ones.
const FILE: Fixed = Fixed(0);

/// A ring and what the kernel works on. Made and used by one thread.
pub(crate) struct RingBackend {
    ring: IoUring,
    /// Buffers under way, by token.
    buffers: Vec<Option<Buffer>>,
    under_way: usize,
    are_buffers_registered: bool,
    shared: Arc<DiskShared>,
}

impl RingBackend {
    /// # Errors
    /// When the system has no io_uring, or not enough of it, or does not let us use it.
    pub(crate) fn start(
        file: &File,
        buffers: &Buffers,
        operations_max: usize,
        shared: &Arc<DiskShared>,
    ) -> io::Result<Self> {
        let entries = u32::try_from(operations_max + 2).unwrap_or(u32::MAX).next_power_of_two();
        let ring = make_ring(entries)?;
        if !ring.params().is_feature_ext_arg() || !ring.params().is_feature_nodrop() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        ring.submitter().register_files(&[file.as_raw_fd()])?;
        let are_buffers_registered = register(&ring, buffers);
        let mut backend = Self {
            ring,
            buffers: (0..operations_max).map(|_| None).collect(),
            under_way: 0,
            are_buffers_registered,
            shared: Arc::clone(shared),
        };
        backend.watch_doorbell()?;
        // A kernel that does not know what we ask for says so at once.
        backend.wait(false, None, &mut Vec::new())?;
        Ok(backend)
    }

    fn watch_doorbell(&mut self) -> io::Result<()> {
        let bell = io_uring::types::Fd(self.shared.doorbell.as_raw_fd());
        let poll = opcode::PollAdd::new(bell, libc::POLLIN as u32).multi(true).build();
        self.push(&poll.user_data(DOORBELL))
    }

    fn push(&mut self, entry: &squeue::Entry) -> io::Result<()> {
        loop {
            // SAFETY: what the entry points to is a descriptor or a buffer; both stay with `self`
            // until the completion is there, and `drop` leaks buffers that are still under way.
            if unsafe { self.ring.submission().push(entry) }.is_ok() {
                return Ok(());
            }
            self.enter(0, None)?;
        }
    }

    /// Submits, and waits for so many completions or the end of the time.
    fn enter(&self, want: usize, timeout: Option<Duration>) -> io::Result<()> {
        let submitter = self.ring.submitter();
        let entered = match timeout {
            None => submitter.submit_and_wait(want),
            Some(timeout) => {
                let until = Timespec::from(timeout);
                submitter.submit_with_args(want, &SubmitArgs::new().timespec(&until))
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

    fn reap(&mut self, done: &mut Vec<Done>) -> io::Result<()> {
        let mut is_bell_silent = false;
        let mut completions = self.ring.completion();
        completions.sync();
        for completion in &mut completions {
            let result = completion.result();
            if completion.user_data() == DOORBELL {
                if result < 0 {
                    return Err(io::Error::from_raw_os_error(-result));
                }
                is_bell_silent |= !cqueue::more(completion.flags());
                continue;
            }
            let token = completion.user_data() as u32;
            let buffer = self.buffers[token as usize].take();
            let buffer = buffer.expect("a completion for each submission");
            self.under_way -= 1;
            let result = usize::try_from(result).map_err(|_| -result);
            done.push(Done { token, buffer, result });
        }
        drop(completions);
        if is_bell_silent { self.watch_doorbell() } else { Ok(()) }
    }
}

/// A ring with the cheapest way to learn of completions that the kernel knows.
fn make_ring(entries: u32) -> io::Result<IoUring> {
    let newest = IoUring::builder()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_taskrun_flag()
        .dontfork()
        .build(entries);
    let newer = newest.or_else(|_| {
        let mut builder = IoUring::builder();
        builder.setup_coop_taskrun().setup_taskrun_flag().dontfork().build(entries)
    });
    newer.or_else(|_| IoUring::builder().dontfork().build(entries))
}

/// Registers the buffers that are kept. Without, as when the user may not lock so much memory, the
/// kernel looks them up each time.
fn register(ring: &IoUring, buffers: &Buffers) -> bool {
    let kept: Vec<_> = buffers
        .kept()
        .map(|buffer| libc::iovec {
            iov_base: buffer.as_ptr().cast_mut().cast(),
            iov_len: buffer.len(),
        })
        .collect();
    // SAFETY: kept buffers live as long as their disk's loop; the kernel holds their pages.
    let registered = unsafe { ring.submitter().register_buffers(&kept) };
    if let Err(error) = &registered {
        tracing::debug!(%error, "disk buffers are not registered with io_uring");
    }
    registered.is_ok()
}

impl Backend for RingBackend {
    fn start(&mut self, transfer: Transfer) -> io::Result<()> {
        let Transfer { token, is_write, offset, mut buffer, range } = transfer;
        let len = range.len() as u32;
        let octets = buffer[range].as_mut_ptr();
        let entry = match (is_write, buffer.index().filter(|_| self.are_buffers_registered)) {
            (false, Some(index)) => {
                opcode::ReadFixed::new(FILE, octets, len, index).offset(offset).build()
            }
            (false, None) => opcode::Read::new(FILE, octets, len).offset(offset).build(),
            (true, Some(index)) => {
                opcode::WriteFixed::new(FILE, octets, len, index).offset(offset).build()
            }
            (true, None) => opcode::Write::new(FILE, octets, len).offset(offset).build(),
        };
        let place = &mut self.buffers[token as usize];
        assert!(place.is_none(), "a token stands for one operation");
        *place = Some(buffer);
        self.under_way += 1;
        self.push(&entry.user_data(u64::from(token)))
    }

    fn wait(
        &mut self,
        may_sleep: bool,
        timeout: Option<Duration>,
        done: &mut Vec<Done>,
    ) -> io::Result<()> {
        self.enter(usize::from(may_sleep), timeout.filter(|_| may_sleep))?;
        self.reap(done)
    }
}

impl Drop for RingBackend {
    fn drop(&mut self) {
        if self.under_way > 0 {
            // The kernel may still write to them, when it pleases.
            std::mem::forget(std::mem::take(&mut self.buffers));
        }
    }
}
