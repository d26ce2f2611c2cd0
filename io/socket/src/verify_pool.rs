//! Threads that verify segments and store them, so that the network thread never waits.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

use crossbeam_channel::{Receiver, Sender, TryRecvError, bounded, unbounded};
use weir_transport::{Part, Verdict, VerifyId, VerifyOp};
use weir_wire::DataView;

use crate::client::Waker;
use crate::sink::FileSink;

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
    pub(crate) verdicts: Vec<(VerifyId, Verdict)>,
    pub(crate) fault: Option<Fault>,
}

struct Batch {
    ops: Vec<VerifyOp>,
    /// Takes those that are good.
    file: Option<Arc<FileSink>>,
}

/// See the module's text. Dropping the pool ends the threads.
pub(crate) struct VerifyPool {
    batches: Option<Sender<Batch>>,
    reports: Receiver<Report>,
    threads: Vec<JoinHandle<()>>,
}

impl VerifyPool {
    pub(crate) fn new(threads: usize, waker: &Arc<Waker>) -> io::Result<Self> {
        // The consumer bounds what is under way; the channels need no bound of their own.
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

    pub(crate) fn submit(&self, ops: Vec<VerifyOp>, file: Option<Arc<FileSink>>) {
        let batches = self.batches.as_ref().expect("open until dropped");
        batches.send(Batch { ops, file }).expect("the threads run until the channel closes");
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

fn run(Batch { ops, file }: Batch) -> Report {
    let mut report = Report { verdicts: Vec::with_capacity(ops.len()), fault: None };
    let mut contents = Vec::with_capacity(ops.len());
    for VerifyOp { op, part, packet, check, .. } in &ops {
        let data = DataView::decode(packet).expect("the consumer has decoded it");
        let verdict = check.run(&data);
        let is_good = verdict == Verdict::Good;
        report.verdicts.push((*op, verdict));
        if let (true, Some(file), Part::Unit(unit)) = (is_good, &file, part) {
            let segment = unit.chunk;
            if !has_size(&data, segment, file.segment_size()) {
                report.fault = Some(Fault::Size { segment, len: data.content.len() });
                return report;
            }
            contents.push((segment, data.content));
        }
    }
    contents.sort_unstable_by_key(|&(segment, _)| segment);
    if let Some(Err(error)) = file.map(|file| file.store(&contents)) {
        report.fault = Some(Fault::Store(error));
    }
    report
}

/// Whether a segment is as long as all are.
fn has_size(data: &DataView<'_>, segment: u64, size: u64) -> bool {
    // A producer that does not know the end before it is there says so in the last segment alone.
    let may_be_last = data.final_block_id().is_none_or(|last| last.as_segment() == Some(segment));
    let len = data.content.len() as u64;
    len == size || (may_be_last && len < size)
}

/// A channel of one thread's results, for work that is done once.
pub(crate) fn run_aside<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<Receiver<T>> {
    let (send, receive) = bounded(1);
    std::thread::Builder::new().name(name.into()).spawn(move || {
        // The asker may have given up waiting.
        let _ = send.send(work());
    })?;
    Ok(receive)
}
