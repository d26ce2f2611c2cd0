//! Threads that verify and store segments. The network thread verifies only what precedes segments:
//! manifests, and the first segment when the metadata do not state the segment size.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

use crossbeam_channel::{Receiver, Sender, unbounded};
use weir_client::Waker;
use weir_transport::{Check, Metadata, PacketId, Verdict, VerifyId, VerifyOp};
use weir_wire::{DataView, Name, signature_type};

use super::host::DownloadError;
use super::output::{Opened, Output, OutputError};
use super::sink::FileSink;
use super::spans::ThreadWork;

/// The verdicts on a batch.
#[derive(Default)]
pub(crate) struct VerifiedBatch {
    pub(crate) verdicts: Vec<(VerifyId, Verdict)>,
    /// Full names of packets that failed verification.
    pub(crate) bad_names: Vec<Name>,
    /// The first segment that is shorter than the others, and its size, if no signature says that
    /// it is the last.
    pub(crate) short_segment: Option<(u64, usize)>,
    /// What a thread of the pool did.
    pub(crate) work: ThreadWork,
}

impl VerifiedBatch {
    /// Verifies one packet. Returns whether it is good.
    pub(crate) fn check(&mut self, op: &VerifyOp) -> bool {
        let data = decoded(op);
        self.add_verdict(op, &data, op.check.run(&data))
    }

    /// Adds the verdict on one packet. Returns whether it is good.
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
    DataView::decode(&op.packet).expect("decoded by the consumer")
}

/// Reports of threads to the network thread, for the download with that serial number.
pub(crate) enum PoolReport {
    /// A batch has been verified, and stored unless there is a fault.
    Verified { serial: u64, verified: VerifiedBatch, fault: Option<StoreFault> },
    /// An output has been opened, or failed to open.
    Opened { serial: u64, output: Box<dyn Output>, result: Result<Opened, OutputError> },
    /// The state has been saved.
    Saved { serial: u64, output: Box<dyn Output> },
    /// A file has its final name, or its state was saved for the last time.
    Finished { serial: u64, result: Result<(), DownloadError> },
}

/// Sends reports to the network thread and wakes it.
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
        // If the receiver is gone, there is no one to wake.
        let _ = self.reports.send(report);
        let _ = self.waker.wake();
    }
}

/// Why segments cannot be stored.
#[derive(Debug)]
pub(crate) enum StoreFault {
    /// A segment has another size than the others.
    Size { segment: u64, len: usize },
    /// The system reports an error.
    Store(io::Error),
}

/// A task for the threads, for the download with that serial number.
pub(crate) enum PoolTask {
    /// Verify packets.
    Verify {
        serial: u64,
        ops: Vec<VerifyOp>,
        /// Stores the good segments.
        file: Option<Arc<FileSink>>,
    },
    /// Open an output. This may read stored segments.
    Open { serial: u64, output: Box<dyn Output>, metadata: Metadata },
}

/// See the module's text. Dropping the pool ends the threads.
pub(crate) struct VerifyPool {
    work: Option<Sender<PoolTask>>,
    threads: Vec<JoinHandle<()>>,
}

impl VerifyPool {
    pub(crate) fn new(threads: usize, reporter: &Reporter) -> io::Result<Self> {
        // Tasks in flight are limited by the downloads, so the channel needs no limit.
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
            // A panic in a thread has been printed already.
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
    let begin = Instant::now();
    let mut verified = VerifiedBatch::default();
    let mut contents = Vec::with_capacity(ops.len());
    let packets: Vec<_> = ops.iter().map(|op| (&op.check, decoded(op))).collect();
    for ((op, (_, data)), verdict) in ops.iter().zip(&packets).zip(Check::run_all(&packets)) {
        let is_good = verified.add_verdict(op, data, verdict);
        if let (true, Some(file), PacketId::Segment(segment)) = (is_good, &file, op.id) {
            let len = data.content.len();
            if !has_expected_size(data, segment, file.segment_size()) {
                return (verified, Some(StoreFault::Size { segment, len }));
            }
            if is_native(data) && (len as u64) < file.segment_size() {
                let short = verified.short_segment.into_iter().chain([(segment, len)]);
                verified.short_segment = short.min();
            }
            contents.push((segment, data.content));
        }
    }
    let verify_time = begin.elapsed();
    contents.sort_unstable_by_key(|&(segment, _)| segment);
    let stored = file.map_or(Ok(()), |file| file.store(&contents));
    verified.work = ThreadWork {
        packets: ops.len() as u64,
        rejected: verified.bad_names.len() as u64,
        verify_ns: verify_time.as_nanos() as u64,
        write_ns: (begin.elapsed() - verify_time).as_nanos() as u64,
    };
    (verified, stored.err().map(StoreFault::Store))
}

/// Whether a segment has the size that all segments have.
fn has_expected_size(data: &DataView<'_>, segment: u64, size: u64) -> bool {
    // A producer that did not know the end in advance states it only in the last segment. No
    // signature covers what an hICN producer states, so its short segments are checked at the end.
    let may_be_last = is_native(data)
        || data.final_block_id().is_none_or(|last| last.as_segment() == Some(segment));
    let len = data.content.len() as u64;
    len == size || (may_be_last && len < size)
}

/// Whether an hICN producer made it: no signature covers its FinalBlockId.
pub(crate) fn is_native(data: &DataView<'_>) -> bool {
    data.signature_info().signature_type == signature_type::HICN
}
