//! What a router's store holds, for other threads of its process.

use std::fmt;
use std::time::{Duration, Instant};

use weir_forward::MissReports;
use weir_store::{HoldingChanges, HoldingsConfig, Rules};
use weir_wire::Name;

use crate::mailbox::{ControlSender, MissReceiver};
use crate::message::ToControl;
use crate::questions::{
    ContentsCursor, ContentsError, ContentsPage, ContentsReply, ContentsRequest, Miss,
};

/// Asks what a router's store holds, and says what it is to hold. Cheap to clone. No call takes
/// longer than the time it is given; packet threads never wait for one.
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

    /// Packet threads: each has an equal part of the store, and of each object what falls to it.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Begins to keep an index of what is held, of so many octets for memory and as many for disks
    /// in the whole router, or gives it up. It is built while the router goes on.
    pub fn track(
        &self,
        config: Option<HoldingsConfig>,
        within: Duration,
    ) -> Result<(), ContentsError> {
        self.ask(ContentsRequest::Track(config), within).map(drop)
    }

    /// What is held of the objects below a prefix, from a place on; each packet thread looks at
    /// `visits_max` objects at most.
    ///
    /// # Errors
    /// [`ContentsError`]. A thread that is late makes the page partial instead.
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

    /// What is held of one object, whose name has no segment number.
    pub fn list_one(&self, object: &Name, within: Duration) -> Result<ContentsPage, ContentsError> {
        self.page(ContentsRequest::ListOne { object: object.clone() }, within)
    }

    /// What has changed since this was called before, of at most `blocks_max` times 64 segments in
    /// each tier of each packet thread. Of several callers each would get a part: there is to be
    /// one.
    pub fn take_changes(
        &self,
        blocks_max: usize,
        within: Duration,
    ) -> Result<HoldingChanges, ContentsError> {
        match self.ask(ContentsRequest::TakeChanges { blocks_max }, within)? {
            ContentsReply::Changes(changes) => Ok(changes),
            ContentsReply::Done | ContentsReply::Page(_) => Err(ContentsError::Stopped),
        }
    }

    /// The next changes are a new generation and tell all that is held.
    pub fn restart_changes(&self, within: Duration) -> Result<(), ContentsError> {
        self.ask(ContentsRequest::RestartChanges, within).map(drop)
    }

    /// Changes are asked for no more, and none are kept.
    pub fn stop_changes(&self, within: Duration) -> Result<(), ContentsError> {
        self.ask(ContentsRequest::StopChanges, within).map(drop)
    }

    /// Puts rules into force in place of those of an older plan, in all packet threads or in none.
    /// Each thread keeps its share of what a rule keeps: the segments that it has, and no more than
    /// its part of the store has room for.
    ///
    /// # Errors
    /// [`ContentsError::ControlError`]: those before stay. [`ContentsError::TimedOut`]: they come into
    /// force when the threads get to it.
    pub fn set_rules(&self, rules: Rules, within: Duration) -> Result<(), ContentsError> {
        self.ask(ContentsRequest::SetRules(rules), within).map(drop)
    }

    /// Of whose misses [`Contents::next_miss`] is to be told. Of nobody's at the start.
    pub fn watch_misses(
        &self,
        watches: MissReports,
        within: Duration,
    ) -> Result<(), ContentsError> {
        self.ask(ContentsRequest::WatchMisses(watches), within).map(drop)
    }

    /// The next miss of a large object, those of applications of this machine first; `None` when
    /// none comes in time. One of 64 misses of an object is told, to one of all clones. Beyond what
    /// waits they are dropped and counted (`miss-untold`), and those of others leave room for those
    /// of applications.
    pub fn next_miss(&self, within: Duration) -> Option<Miss> {
        self.misses.next(within)
    }

    fn page(
        &self,
        question: ContentsRequest,
        within: Duration,
    ) -> Result<ContentsPage, ContentsError> {
        match self.ask(question, within)? {
            ContentsReply::Page(page) => Ok(page),
            ContentsReply::Done | ContentsReply::Changes(_) => Err(ContentsError::Stopped),
        }
    }

    fn ask(
        &self,
        question: ContentsRequest,
        within: Duration,
    ) -> Result<ContentsReply, ContentsError> {
        /// Beyond the time that packet threads have, for the control thread's own.
        const GRACE: Duration = Duration::from_millis(100);
        let (answer, answered) = crossbeam_channel::bounded(1);
        let until = Instant::now() + within;
        self.control.send(ToControl::Contents { question, within, answer });
        match answered.recv_deadline(until + GRACE) {
            Ok(answer) => answer,
            Err(crossbeam_channel::RecvTimeoutError::Timeout) => Err(ContentsError::TimedOut),
            Err(crossbeam_channel::RecvTimeoutError::Disconnected) => Err(ContentsError::Stopped),
        }
    }
}

impl fmt::Debug for Contents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Contents").field("missed", &self.misses.len()).finish_non_exhaustive()
    }
}
