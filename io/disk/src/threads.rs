//! Reads and writes by a pool of threads, each with one at a time.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, unbounded};

use crate::disk_loop::{Backend, Done, Transfer};
use crate::engine::DiskShared;
use crate::fault::PositionedIo;

/// The disk's thread's side of the pool. The threads end with it, but for those that the device
/// holds, which end when it lets them go.
pub(crate) struct ThreadBackend {
    jobs: Sender<Transfer>,
    results: Receiver<Option<Done>>,
    shared: Arc<DiskShared>,
}

impl ThreadBackend {
    pub(crate) fn start(
        io: &Arc<dyn PositionedIo>,
        threads: u16,
        shared: &Arc<DiskShared>,
    ) -> io::Result<Self> {
        // Bounded by the operations under way.
        let (jobs, to_do) = unbounded();
        let (done, results) = unbounded();
        for number in 0..threads {
            let worker = Worker {
                to_do: to_do.clone(),
                done: done.clone(),
                io: Arc::clone(io),
                shared: Arc::clone(shared),
            };
            std::thread::Builder::new()
                .name(format!("disk{}-{number}", shared.disk))
                .spawn(move || worker.run())?;
        }
        Ok(Self { jobs, results, shared: Arc::clone(shared) })
    }
}

impl Backend for ThreadBackend {
    fn start(&mut self, transfer: Transfer) -> io::Result<()> {
        self.jobs.send(transfer).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }

    fn wait(
        &mut self,
        may_sleep: bool,
        timeout: Option<Duration>,
        done: &mut Vec<Done>,
    ) -> io::Result<()> {
        if may_sleep && self.results.is_empty() {
            self.shared.doorbell.wait(timeout);
        }
        for result in self.results.try_iter() {
            done.push(result.ok_or_else(|| io::Error::other("a thread of its pool died"))?);
        }
        Ok(())
    }
}

struct Worker {
    to_do: Receiver<Transfer>,
    done: Sender<Option<Done>>,
    io: Arc<dyn PositionedIo>,
    shared: Arc<DiskShared>,
}

impl Worker {
    fn run(self) {
        while let Ok(transfer) = self.to_do.recv() {
            let done = catch_unwind(AssertUnwindSafe(|| self.carry_out(transfer))).ok();
            let is_dead = done.is_none();
            let is_gone = self.done.send(done).is_err();
            self.shared.doorbell.ring_if_asleep();
            if is_dead || is_gone {
                return;
            }
        }
    }

    fn carry_out(&self, mut transfer: Transfer) -> Done {
        let range = transfer.range.clone();
        let result = if transfer.is_write {
            self.io.write_at(&transfer.buffer[range], transfer.offset)
        } else {
            self.io.read_at(&mut transfer.buffer[range], transfer.offset)
        };
        let result = result.map_err(|error| {
            error.raw_os_error().unwrap_or(match error.kind() {
                io::ErrorKind::Interrupted => libc::EINTR,
                _ => libc::EIO,
            })
        });
        Done { token: transfer.token, buffer: transfer.buffer, result }
    }
}
