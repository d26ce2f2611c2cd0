//! Threads that verify segments and store them, so that the network thread never waits.

use std::io;
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

use crossbeam_channel::{Receiver, Sender, TryRecvError, bounded, unbounded};
use mio::Waker;
use weir_base::Packet;
use weir_security::{Verifier, sha256, verify_data};
use weir_wire::DataView;

use crate::sink::SegmentSink;

/// How a segment is to be checked.
#[derive(Clone)]
pub(crate) enum Check {
    /// Its implicit digest is this one.
    Digest([u8; 32]),
    /// Its signature is this key's.
    Signature(Arc<dyn Verifier>),
}

/// One segment to be checked and stored.
pub(crate) struct Task {
    pub(crate) segment: u64,
    pub(crate) packet: Packet,
    pub(crate) check: Check,
}

/// What the threads need to know about the object.
pub(crate) struct Goal {
    pub(crate) sink: Arc<dyn SegmentSink>,
    /// Octets of Content in each segment but the last; `None` when it does not matter.
    pub(crate) segment_size: Option<u64>,
    /// Whose signature will do when the digest is another. A producer that signs the same version
    /// again makes other packets, of which caches hold a mixture; a signature of the manifest's
    /// signer says as much as the manifest.
    pub(crate) manifest_signer: OnceLock<Arc<dyn Verifier>>,
}

/// A segment that is not what the producer signed.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) segment: u64,
    pub(crate) reason: String,
}

/// Why segments cannot be stored.
#[derive(Debug)]
pub(crate) enum Fault {
    /// One is not of the size that all have.
    Size { segment: u64, len: usize },
    /// The system says so.
    Store(io::Error),
}

/// What became of one batch.
pub(crate) struct Report {
    /// Segments stored.
    pub(crate) segments: Vec<u64>,
    pub(crate) refused: Vec<Refused>,
    /// Octets of Content stored.
    pub(crate) octets: u64,
    /// Number of the last segment as a verified segment states it.
    pub(crate) last_segment: Option<u64>,
    pub(crate) fault: Option<Fault>,
}

struct Batch {
    tasks: Vec<Task>,
    goal: Arc<Goal>,
}

/// See the module's text. Dropping the pool ends the threads.
pub(crate) struct VerifyPool {
    batches: Option<Sender<Batch>>,
    reports: Receiver<Report>,
    threads: Vec<JoinHandle<()>>,
}

impl VerifyPool {
    pub(crate) fn new(threads: usize, waker: &Arc<Waker>) -> io::Result<Self> {
        // The fetcher bounds what is under way; the channels need no bound of their own.
        let (batches, tasks) = unbounded::<Batch>();
        let (report_to, reports) = unbounded();
        let threads = (0..threads.max(1))
            .map(|index| {
                let (tasks, report_to, waker) = (tasks.clone(), report_to.clone(), waker.clone());
                std::thread::Builder::new()
                    .name(format!("verify-{index}"))
                    .spawn(move || work(&tasks, &report_to, &waker))
            })
            .collect::<io::Result<_>>()?;
        Ok(Self { batches: Some(batches), reports, threads })
    }

    pub(crate) fn submit(&self, tasks: Vec<Task>, goal: Arc<Goal>) {
        let batches = self.batches.as_ref().expect("open until dropped");
        batches.send(Batch { tasks, goal }).expect("the threads run until the channel closes");
    }

    pub(crate) fn try_report(&self) -> Option<Report> {
        match self.reports.try_recv() {
            Ok(report) => Some(report),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => panic!("a verifying thread has panicked"),
        }
    }
}

impl Drop for VerifyPool {
    fn drop(&mut self) {
        self.batches = None;
        for thread in self.threads.drain(..) {
            // A panic in a thread has been printed; there is nothing to add.
            let _ = thread.join();
        }
    }
}

fn work(batches: &Receiver<Batch>, reports: &Sender<Report>, waker: &Waker) {
    for batch in batches {
        let report = run(batch);
        if reports.send(report).is_err() {
            return;
        }
        // If the poll is gone, so is who would be woken.
        let _ = waker.wake();
    }
}

fn run(Batch { tasks, goal }: Batch) -> Report {
    let mut report = Report {
        segments: Vec::with_capacity(tasks.len()),
        refused: Vec::new(),
        octets: 0,
        last_segment: None,
        fault: None,
    };
    let mut contents = Vec::with_capacity(tasks.len());
    for task in &tasks {
        let segment = task.segment;
        let data = match check(task, &goal) {
            Ok(data) => data,
            Err(reason) => {
                report.refused.push(Refused { segment, reason });
                continue;
            }
        };
        if !has_size(&data, segment, &goal) {
            report.fault = Some(Fault::Size { segment, len: data.content.len() });
            return report;
        }
        let last = data.final_block_id.and_then(|component| component.as_segment());
        report.last_segment = report.last_segment.or(last);
        report.octets += data.content.len() as u64;
        report.segments.push(segment);
        contents.push((segment, data.content));
    }
    contents.sort_unstable_by_key(|&(segment, _)| segment);
    if let Err(error) = goal.sink.store(&contents) {
        report.fault = Some(Fault::Store(error));
    }
    report
}

/// The segment's Data, if it is what the producer signed; else what is wrong.
fn check<'a>(task: &'a Task, goal: &Goal) -> Result<DataView<'a>, String> {
    let data = DataView::decode(&task.packet).map_err(|error| error.to_string())?;
    match &task.check {
        Check::Digest(expected) => {
            let is_listed = sha256(&[&task.packet]) == *expected;
            let signer = goal.manifest_signer.get();
            if !is_listed && signer.is_none_or(|signer| verify_data(&data, &**signer).is_err()) {
                return Err("it is not the one that the manifest lists".into());
            }
        }
        Check::Signature(verifier) => {
            verify_data(&data, &**verifier).map_err(|error| error.to_string())?;
        }
    }
    Ok(data)
}

/// Whether a segment is as long as all are.
fn has_size(data: &DataView<'_>, segment: u64, goal: &Goal) -> bool {
    // A producer that does not know the end before it is there says so in the last segment alone.
    let may_be_last = data.final_block_id.is_none_or(|last| last.as_segment() == Some(segment));
    let len = data.content.len() as u64;
    goal.segment_size.is_none_or(|size| len == size || (may_be_last && len < size))
}

/// A channel of one thread's results, for work that is done once.
pub(crate) fn run_aside<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<Receiver<T>> {
    let (send, receive) = bounded(1);
    std::thread::Builder::new().name(name.into()).spawn(move || {
        // Nobody may be waiting any more.
        let _ = send.send(work());
    })?;
    Ok(receive)
}
