//! Reads and writes by a pool of threads, each with one operation at a time.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, unbounded};

use crate::disk_port::{Backend, Completion, Transfer};
use crate::doorbell::Doorbell;

/// Reads and writes at offsets of a file.
pub(crate) trait PositionedIo: Send + Sync {
    fn read_at(&self, octets: &mut [u8], offset: u64) -> io::Result<usize>;
    fn write_at(&self, octets: &[u8], offset: u64) -> io::Result<usize>;
}

impl PositionedIo for File {
    fn read_at(&self, octets: &mut [u8], offset: u64) -> io::Result<usize> {
        FileExt::read_at(self, octets, offset)
    }

    fn write_at(&self, octets: &[u8], offset: u64) -> io::Result<usize> {
        FileExt::write_at(self, octets, offset)
    }
}

/// The threads of one disk, for all shards. They exit with the last [`ThreadBackend`]. A thread
/// that the device blocks exits when the operation returns.
pub(crate) struct DiskThreads {
    jobs: Sender<Job>,
}

struct Job {
    transfer: Transfer,
    /// Receives `None` if the thread panicked.
    reply: Sender<Option<Completion>>,
    bell: Arc<Doorbell>,
}

impl DiskThreads {
    pub(crate) fn start(disk: usize, io: &Arc<dyn PositionedIo>, threads: u16) -> io::Result<Self> {
        // The depth of the ports limits the length of this channel.
        let (jobs, to_do) = unbounded();
        for number in 0..threads {
            let (to_do, io) = (to_do.clone(), Arc::clone(io));
            let thread = std::thread::Builder::new()
                .name(format!("disk{disk}-{number}"))
                .spawn(move || run_worker(&to_do, &*io));
            match thread {
                Ok(_) => {}
                Err(error) if number == 0 => return Err(error),
                Err(error) => {
                    tracing::warn!(
                        %error,
                        disk,
                        "started only {number} of {threads} threads for a disk, which limits its \
                         operations at a time; raise the limit of threads (ulimit -u, pids.max)"
                    );
                    break;
                }
            }
        }
        Ok(Self { jobs })
    }

    pub(crate) fn backend(&self, bell: Arc<Doorbell>) -> ThreadBackend {
        let (reply, results) = unbounded();
        ThreadBackend { jobs: self.jobs.clone(), reply, results, bell, reaped: Vec::new() }
    }
}

fn run_worker(to_do: &Receiver<Job>, io: &dyn PositionedIo) {
    while let Ok(Job { transfer, reply, bell }) = to_do.recv() {
        let done = catch_unwind(AssertUnwindSafe(|| execute(transfer, io))).ok();
        let is_dead = done.is_none();
        // Fails if the shard no longer exists.
        let _ = reply.send(done);
        bell.ring();
        if is_dead {
            return;
        }
    }
}

fn execute(mut transfer: Transfer, io: &dyn PositionedIo) -> Completion {
    let range = transfer.range.clone();
    let result = if transfer.is_write {
        io.write_at(&transfer.buffer[range], transfer.offset)
    } else {
        io.read_at(&mut transfer.buffer[range], transfer.offset)
    };
    let result = result.map_err(|error| {
        error.raw_os_error().unwrap_or(match error.kind() {
            io::ErrorKind::Interrupted => libc::EINTR,
            _ => libc::EIO,
        })
    });
    Completion { token: transfer.token, buffer: transfer.buffer, result }
}

/// One shard's side of the thread pool.
pub(crate) struct ThreadBackend {
    jobs: Sender<Job>,
    reply: Sender<Option<Completion>>,
    results: Receiver<Option<Completion>>,
    bell: Arc<Doorbell>,
    /// Completions received while waiting.
    reaped: Vec<Option<Completion>>,
}

impl Backend for ThreadBackend {
    fn start(&mut self, transfer: Transfer) -> io::Result<()> {
        let job = Job { transfer, reply: self.reply.clone(), bell: Arc::clone(&self.bell) };
        self.jobs.send(job).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn reap(&mut self, done: &mut Vec<Completion>) -> io::Result<()> {
        for result in self.reaped.drain(..).chain(self.results.try_iter()) {
            done.push(result.ok_or_else(|| io::Error::other("one of its threads panicked"))?);
        }
        Ok(())
    }

    fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        self.reaped.extend(self.results.recv_timeout(timeout));
        Ok(())
    }
}
