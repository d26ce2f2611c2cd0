//! Threads that verify segments and store them. The network thread verifies only what leads to
//! segments: manifests, and the first segment when the metadata does not tell their size.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

use crossbeam_channel::{Receiver, Sender, unbounded};
use weir_client::Waker;
use weir_transport::{Check, Metadata, PacketId, Verdict, VerifyId, VerifyOp};
use weir_wire::{DataView, Name};

use super::host::DownloadError;
use super::output::{Opened, Output, OutputError};
use super::sink::FileSink;

/// What came of a batch.
#[derive(Default)]
pub(crate) struct VerifiedBatch {
    pub(crate) verdicts: Vec<(VerifyId, Verdict)>,
    /// Full names of packets that are not what their producers signed.
    pub(crate) bad_names: Vec<Name>,
}

impl VerifiedBatch {
    /// Verifies one packet. Returns whether it is good.
    pub(crate) fn check(&mut self, op: &VerifyOp) -> bool {
        let data = decoded(op);
        self.add_verdict(op, &data, op.check.run(&data))
    }

    /// Notes the verdict on one packet. Returns whether it is good.
    fn add_verdict(
        &mut self,
        VerifyOp { op, .. }: &VerifyOp,
        data: &DataView<'_>,
        verdict: Verdict,
    ) -> bool {
        let is_good = verdict == Verdict::Good;
        if !is_good {
            let mut name = data.name.to_name();
            name.append_implicit_digest(data.implicit_digest());
            self.bad_names.push(name);
        }
        self.verdicts.push((*op, verdict));
        is_good
    }
}

fn decoded(op: &VerifyOp) -> DataView<'_> {
    DataView::decode(&op.packet).expect("the consumer has decoded it")
}

/// What threads tell the network thread of the download with that serial number.
pub(crate) enum PoolReport {
    /// A batch has been verified, and stored if there is no fault.
    Verified { serial: u64, verified: VerifiedBatch, fault: Option<StoreFault> },
    /// An output has been opened, or not.
    Opened { serial: u64, output: Box<dyn Output>, result: Result<Opened, OutputError> },
    /// What is there has been noted.
    Saved { serial: u64, output: Box<dyn Output> },
    /// A file has been given its name, or what is there of it has been noted for the last time.
    Finished { serial: u64, result: Result<(), DownloadError> },
}

/// Carries reports to the network thread and wakes it.
#[derive(Clone)]
pub(crate) struct Reporter {
    reports: Sender<PoolReport>,
    waker: Arc<Waker>,
}

impl Reporter {
    pub(crate) fn new(waker: Arc<Waker>) -> (Self, Receiver<PoolReport>) {
        let (reports, receiver) = unbounded();
        (Self { reports, waker }, receiver)
    }

    pub(crate) fn report(&self, report: PoolReport) {
        // If the receiver is gone, so is whoever would be woken.
        let _ = self.reports.send(report);
        let _ = self.waker.wake();
    }
}

/// Why segments cannot be stored.
#[derive(Debug)]
pub(crate) enum StoreFault {
    /// One is not of the size that all have.
    Size { segment: u64, len: usize },
    /// The system says so.
    Store(io::Error),
}

/// Something for the threads to do, for the download of that serial number.
pub(crate) enum PoolTask {
    /// Packets to be verified.
    Verify {
        serial: u64,
        ops: Vec<VerifyOp>,
        /// Takes those segments that are good.
        file: Option<Arc<FileSink>>,
    },
    /// An output to be opened, which may mean to read what is there.
    Open { serial: u64, output: Box<dyn Output>, metadata: Metadata },
}

/// See the module's text. Dropping the pool ends the threads.
pub(crate) struct VerifyPool {
    work: Option<Sender<PoolTask>>,
    threads: Vec<JoinHandle<()>>,
}

impl VerifyPool {
    pub(crate) fn new(threads: usize, reporter: &Reporter) -> io::Result<Self> {
        // What is under way is bounded; the channel needs no bound of its own.
        let (work, tasks) = unbounded::<PoolTask>();
        let threads = (0..threads.max(1))
            .map(|index| {
                let (tasks, reporter) = (tasks.clone(), reporter.clone());
                std::thread::Builder::new().name(format!("verify-{index}")).spawn(move || {
                    for work in tasks {
                        reporter.report(run(work));
                    }
                })
            })
            .collect::<io::Result<_>>()?;
        Ok(Self { work: Some(work), threads })
    }

    pub(crate) fn submit(&self, work: PoolTask) {
        let tasks = self.work.as_ref().expect("open until dropped");
        tasks.send(work).expect("the threads run until the channel closes");
    }
}

impl Drop for VerifyPool {
    fn drop(&mut self) {
        self.work = None;
        for thread in self.threads.drain(..) {
            // A panic in a thread has been printed; there is nothing to add.
            let _ = thread.join();
        }
    }
}

fn run(work: PoolTask) -> PoolReport {
    match work {
        PoolTask::Verify { serial, ops, file } => {
            let (verified, fault) = verify(&ops, file.as_deref());
            PoolReport::Verified { serial, verified, fault }
        }
        PoolTask::Open { serial, mut output, metadata } => {
            let result = output.open(&metadata);
            PoolReport::Opened { serial, output, result }
        }
    }
}

fn verify(ops: &[VerifyOp], file: Option<&FileSink>) -> (VerifiedBatch, Option<StoreFault>) {
    let mut verified = VerifiedBatch::default();
    let mut contents = Vec::with_capacity(ops.len());
    let packets: Vec<_> = ops.iter().map(|op| (&op.check, decoded(op))).collect();
    for ((op, (_, data)), verdict) in ops.iter().zip(&packets).zip(Check::run_all(&packets)) {
        let is_good = verified.add_verdict(op, data, verdict);
        if let (true, Some(file), PacketId::Segment(segment)) = (is_good, &file, op.id) {
            if !has_expected_size(data, segment, file.segment_size()) {
                return (verified, Some(StoreFault::Size { segment, len: data.content.len() }));
            }
            contents.push((segment, data.content));
        }
    }
    contents.sort_unstable_by_key(|&(segment, _)| segment);
    let stored = file.map_or(Ok(()), |file| file.store(&contents));
    (verified, stored.err().map(StoreFault::Store))
}

/// Whether a segment is as long as all are.
fn has_expected_size(data: &DataView<'_>, segment: u64, size: u64) -> bool {
    // A producer that does not know the end before it is there says so in the last segment alone.
    let may_be_last = data.final_block_id().is_none_or(|last| last.as_segment() == Some(segment));
    let len = data.content.len() as u64;
    len == size || (may_be_last && len < size)
}
