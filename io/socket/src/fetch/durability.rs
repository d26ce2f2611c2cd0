//! The thread that makes files durable, so that neither the network nor verification waits for
//! disks.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::thread::JoinHandle;

use crossbeam_channel::{Receiver, Sender, unbounded};
use nix::unistd::syncfs;
use weir_transport::SegmentSet;

use super::host::DownloadError;
use super::output::{Output, OutputError};
use super::sink::StreamWriter;
use super::verify_pool::{PoolReport, Reporter};

/// A task for the download with that serial number.
pub(crate) enum DurabilityTask {
    /// Saves which segments are stored; the output is returned.
    Save { serial: u64, output: Box<dyn Output>, have: SegmentSet },
    /// The object is complete.
    Finish { serial: u64, output: Box<dyn Output>, writer: Option<StreamWriter> },
    /// The download failed: saves which segments are stored.
    Cancel { serial: u64, output: Box<dyn Output>, writer: Option<StreamWriter>, have: SegmentSet },
}

/// See the module's text. Dropping it ends the thread.
pub(crate) struct DurabilityThread {
    work: Option<Sender<DurabilityTask>>,
    thread: Option<JoinHandle<()>>,
}

impl DurabilityThread {
    pub(crate) fn new(reporter: Reporter) -> io::Result<Self> {
        let (work, tasks) = unbounded();
        let thread = std::thread::Builder::new()
            .name("keep".into())
            .spawn(move || run(&tasks, &reporter))?;
        Ok(Self { work: Some(work), thread: Some(thread) })
    }

    pub(crate) fn submit(&self, task: DurabilityTask) {
        let tasks = self.work.as_ref().expect("open until dropped");
        tasks.send(task).expect("the thread runs until the channel closes");
    }
}

impl Drop for DurabilityThread {
    fn drop(&mut self) {
        self.work = None;
        if let Some(thread) = self.thread.take() {
            // A panic in a thread has been printed already.
            let _ = thread.join();
        }
    }
}

struct TaskResult {
    report: PoolReport,
    /// A file that has just got its name, still locked.
    renamed: Option<Box<dyn Output>>,
}

/// Syncs together all files that became complete during the last sync. This costs little more than
/// syncing one. A file is reported when its name is durable.
fn run(tasks: &Receiver<DurabilityTask>, reporter: &Reporter) {
    while let Ok(first) = tasks.recv() {
        let group: Vec<DurabilityTask> = std::iter::once(first).chain(tasks.try_iter()).collect();
        let synced = sync_together(&group);
        let mut done: Vec<TaskResult> =
            group.into_iter().map(|task| run_task(task, synced)).collect();
        sync_names(&mut done);
        for TaskResult { report, renamed } in done {
            drop(renamed);
            reporter.report(report);
        }
    }
}

fn run_task(task: DurabilityTask, is_synced: bool) -> TaskResult {
    let report = match task {
        DurabilityTask::Save { serial, mut output, have } => {
            // Without the saved state, an interrupted download only fetches the segments again.
            let _ = output.save(&have);
            PoolReport::Saved { serial, output }
        }
        DurabilityTask::Finish { serial, mut output, writer } => {
            let written = writer.map_or(Ok(()), StreamWriter::finish);
            let result = written.map_err(DownloadError::Store);
            let result = result.and_then(|()| Ok(output.finish(is_synced)?));
            let renamed = result.is_ok().then_some(output);
            return TaskResult { report: PoolReport::Finished { serial, result }, renamed };
        }
        DurabilityTask::Cancel { serial, mut output, writer, have } => {
            // The error that ended the download is reported, and explains more than this one.
            let _ = writer.map_or(Ok(()), StreamWriter::finish);
            if have.is_empty() {
                output.abandon();
            } else {
                // What is not saved is fetched again.
                let _ = output.save_last(&have);
            }
            PoolReport::Finished { serial, result: Ok(()) }
        }
    };
    TaskResult { report, renamed: None }
}

/// Syncs the directories of files that have just got their names. For several files, syncs their
/// file systems instead.
fn sync_names(done: &mut [TaskResult]) {
    // One sync of a file system costs about as much as one of a directory, and covers all files.
    let is_several = done.iter().filter(|done| done.renamed.is_some()).count() > 1;
    let mut synced: Vec<u64> = Vec::new();
    for TaskResult { report, renamed } in done {
        let Some((directory, sink)) =
            renamed.as_ref().and_then(|output| Some((output.directory()?, output.file()?)))
        else {
            continue;
        };
        let device = sink.file().metadata().map(|metadata| metadata.dev()).ok();
        let result = match device.filter(|_| is_several) {
            Some(device) if synced.contains(&device) => Ok(()),
            Some(_) => syncfs(sink.file()).map_err(io::Error::from),
            None => directory.sync(),
        };
        match (result, report) {
            (Ok(()), _) => synced.extend(device),
            (Err(source), PoolReport::Finished { result, .. }) => {
                let path = directory.path().to_owned();
                *result = Err(OutputError::Io { path, source }.into());
            }
            _ => unreachable!("only a finished file is renamed"),
        }
    }
}

/// Syncs the file systems of all complete files, if there are several. Returns whether they are
/// synced.
fn sync_together(group: &[DurabilityTask]) -> bool {
    let files: Vec<_> = group
        .iter()
        .filter_map(|task| match task {
            DurabilityTask::Finish { output, .. } => output.file(),
            _ => None,
        })
        .collect();
    if files.len() < 2 {
        return false;
    }
    let mut done: Vec<u64> = Vec::new();
    files.iter().all(|sink| {
        let Ok(metadata) = sink.file().metadata() else { return false };
        if done.contains(&metadata.dev()) {
            return true;
        }
        done.push(metadata.dev());
        syncfs(sink.file()).is_ok()
    })
}
