//! Access to the contents of the store for other threads of the process.

use std::fmt;
use std::time::{Duration, Instant};

use weir_forward::MissReports;
use weir_store::{HoldingChanges, HoldingsConfig, ObjectList, ObjectQuery, Rules};
use weir_wire::Name;

use crate::contents_request::{
    ContentsCursor, ContentsError, ContentsPage, ContentsReply, ContentsRequest, Miss,
};
use crate::mailbox::{ControlSender, MissReceiver};
use crate::message::ToControl;

/// Queries what the store holds and sets rules for what it keeps. Cheap to clone. Each call returns
/// within the given time, and never blocks a worker thread.
#[derive(Clone)]
pub struct Contents {
    control: ControlSender,
    misses: MissReceiver,
    threads: usize,
}

impl Contents {
    pub(crate) fn new(control: ControlSender, missed: MissReceiver, threads: usize) -> Self {
        Self { control, misses: missed, threads }
    }

    /// Number of worker threads. Each has an equal share of the store, and holds those segments of
    /// an object that belong to its shard.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Starts an index of holdings, with `bytes_max` of memory for the memory tier and as much for
    /// disks in the whole router, or stops it. The index is built in the background.
    pub fn track(
        &self,
        config: Option<HoldingsConfig>,
        within: Duration,
    ) -> Result<(), ContentsError> {
        self.request(ContentsRequest::Track(config), within).map(drop)
    }

    /// Lists holdings of objects below a prefix, from a cursor on. Each worker thread visits at
    /// most `visits_max` objects.
    ///
    /// # Errors
    /// [`ContentsError`]. A thread that does not answer in time makes the page partial instead.
    pub fn list(
        &self,
        prefix: &Name,
        from: Option<ContentsCursor>,
        visits_max: u32,
        within: Duration,
    ) -> Result<ContentsPage, ContentsError> {
        let prefix = prefix.clone();
        self.page(ContentsRequest::List { prefix, from, visits_max }, within)
    }

    /// Lists holdings of one object, whose name has no segment number.
    pub fn list_one(&self, object: &Name, within: Duration) -> Result<ContentsPage, ContentsError> {
        self.page(ContentsRequest::ListOne { object: object.clone() }, within)
    }

    /// Lists the objects in the store with their shares and uses. Needs no index for memory; the
    /// first call starts one for disks.
    pub fn objects(
        &self,
        query: ObjectQuery,
        within: Duration,
    ) -> Result<ObjectList, ContentsError> {
        self.control.objects(query, within)
    }

    /// Returns changes since the previous call, for at most `blocks_max` ranges of 64 segments in
    /// each tier of each worker thread. Several callers would split the changes among themselves,
    /// so there must be only one.
    pub fn take_changes(
        &self,
        blocks_max: usize,
        within: Duration,
    ) -> Result<HoldingChanges, ContentsError> {
        match self.request(ContentsRequest::TakeChanges { blocks_max }, within)? {
            ContentsReply::Changes(changes) => Ok(changes),
            _ => Err(ContentsError::Stopped),
        }
    }

    /// Starts a new generation of changes, which reports all holdings from the beginning.
    pub fn restart_changes(&self, within: Duration) -> Result<(), ContentsError> {
        self.request(ContentsRequest::RestartChanges, within).map(drop)
    }

    /// Stops recording changes.
    pub fn stop_changes(&self, within: Duration) -> Result<(), ContentsError> {
        self.request(ContentsRequest::StopChanges, within).map(drop)
    }

    /// Replaces the rules with those of a newer plan, in all worker threads or in none. Each thread
    /// keeps those of a rule's segments that belong to its shard, up to the capacity of its share
    /// of the store.
    ///
    /// # Errors
    /// [`ContentsError::Refused`]: the previous rules stay. [`ContentsError::TimedOut`]: the
    /// threads apply the new rules later.
    pub fn set_rules(&self, rules: Rules, within: Duration) -> Result<(), ContentsError> {
        self.request(ContentsRequest::SetRules(rules), within).map(drop)
    }

    /// Selects the misses that [`Contents::next_miss`] reports. None at the start.
    pub fn watch_misses(
        &self,
        watches: MissReports,
        within: Duration,
    ) -> Result<(), ContentsError> {
        self.request(ContentsRequest::WatchMisses(watches), within).map(drop)
    }

    /// Waits for the next miss of a large object; `None` on timeout. Misses of local applications
    /// come first. The router reports one of 64 misses of an object, to only one of all clones. It
    /// drops and counts misses that exceed the queue (`miss-untold`). Remote misses cannot displace
    /// local ones.
    pub fn next_miss(&self, within: Duration) -> Option<Miss> {
        self.misses.next(within)
    }

    fn page(
        &self,
        question: ContentsRequest,
        within: Duration,
    ) -> Result<ContentsPage, ContentsError> {
        match self.request(question, within)? {
            ContentsReply::Page(page) => Ok(page),
            _ => Err(ContentsError::Stopped),
        }
    }

    fn request(
        &self,
        question: ContentsRequest,
        within: Duration,
    ) -> Result<ContentsReply, ContentsError> {
        self.control.contents(question, within)
    }
}

impl ControlSender {
    /// Sends a request about the store, and waits for its reply.
    fn contents(
        &self,
        question: ContentsRequest,
        within: Duration,
    ) -> Result<ContentsReply, ContentsError> {
        /// Time that the control thread itself may take after the worker threads' deadline.
        const GRACE: Duration = Duration::from_millis(100);
        let (answer, answered) = crossbeam_channel::bounded(1);
        let until = Instant::now() + within;
        self.send(ToControl::Contents { question, within, answer });
        match answered.recv_deadline(until + GRACE) {
            Ok(answer) => answer,
            Err(crossbeam_channel::RecvTimeoutError::Timeout) => Err(ContentsError::TimedOut),
            Err(crossbeam_channel::RecvTimeoutError::Disconnected) => Err(ContentsError::Stopped),
        }
    }

    /// See [`Contents::objects`].
    pub(crate) fn objects(
        &self,
        query: ObjectQuery,
        within: Duration,
    ) -> Result<ObjectList, ContentsError> {
        match self.contents(ContentsRequest::Objects(query), within)? {
            ContentsReply::Objects(list) => Ok(list),
            _ => Err(ContentsError::Stopped),
        }
    }
}

impl fmt::Debug for Contents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Contents").field("missed", &self.misses.len()).finish_non_exhaustive()
    }
}
