//! Management Interests that wait for the driver.

use alloc::collections::BTreeMap;

use weir_base::{FaceId, Instant, NS_PER_S};
use weir_wire::Name;

use crate::contents::ContentsTask;
use crate::io::{Action, FaceChanges, FaceRequest, SnapshotKind};
use crate::parameters::{ControlParameters, ControlResponse};
use crate::request::ReplyTarget;
use crate::status::FaceQueryFilter;

/// How long the manager waits for the driver. Clients time out after 10 s.
const LIFETIME_NS: u64 = 30 * NS_PER_S;

/// A task that the driver must finish before the manager can answer an Interest.
#[derive(Clone, Debug)]
pub(crate) enum Task {
    CreateFace(FaceRequest),
    UpdateFace { face: FaceId, changes: FaceChanges },
    EraseStore { prefix: Name, limit: u64, is_limited: bool },
    Faces(FaceQueryFilter),
    Store,
    General,
    Holdings { object: Name },
    Contents(ContentsTask),
    Controller,
    Reload,
}

impl Task {
    fn action(&self, txn: u64) -> Action {
        let snapshot = |kind| Action::Snapshot { txn, kind };
        match self.clone() {
            Self::CreateFace(request) => Action::CreateFace { txn, request },
            Self::UpdateFace { face, changes } => Action::UpdateFace { txn, face, changes },
            Self::EraseStore { prefix, limit, .. } => Action::EraseStore { txn, prefix, limit },
            Self::Faces(_) => snapshot(SnapshotKind::Faces),
            Self::Store => snapshot(SnapshotKind::Store),
            Self::General => snapshot(SnapshotKind::General),
            Self::Holdings { object } => Action::ListHoldings { txn, object },
            Self::Contents(task) => Action::Contents { txn, task },
            Self::Controller => Action::ReportController { txn },
            Self::Reload => Action::Reload { txn },
        }
    }
}

/// The result of a command.
#[derive(Debug)]
pub(crate) enum Outcome {
    Reply(ControlResponse),
    /// The answer follows when the driver has finished this.
    Task(Task),
}

impl Outcome {
    pub(crate) fn ok(body: ControlParameters) -> Self {
        Self::Reply(ControlResponse::ok(body))
    }

    pub(crate) fn refuse(code: u64, text: &str) -> Self {
        Self::Reply(ControlResponse::new(code, text))
    }
}

/// An Interest that waits for a task.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) target: ReplyTarget,
    pub(crate) task: Task,
    deadline: Instant,
}

/// The waiting Interests, by transaction number.
#[derive(Debug)]
pub(crate) struct Transactions {
    pending: BTreeMap<u64, Pending>,
    next_txn: u64,
    pending_max: usize,
}

impl Transactions {
    pub(crate) fn new(pending_max: usize) -> Self {
        Self { pending: BTreeMap::new(), next_txn: 1, pending_max }
    }

    pub(crate) fn len(&self) -> usize {
        self.pending.len()
    }

    /// Begins a transaction. Returns the action for the driver, or `None` if too many wait.
    pub(crate) fn begin(
        &mut self,
        now: Instant,
        target: ReplyTarget,
        task: Task,
    ) -> Option<Action> {
        if self.pending.len() >= self.pending_max {
            return None;
        }
        let txn = self.next_txn;
        self.next_txn += 1;
        let action = task.action(txn);
        let deadline = now.plus_ns(LIFETIME_NS);
        self.pending.insert(txn, Pending { target, task, deadline });
        Some(action)
    }

    pub(crate) fn end(&mut self, txn: u64) -> Option<Pending> {
        self.pending.remove(&txn)
    }

    /// Removes transactions that the driver has not answered. Their clients have timed out.
    pub(crate) fn expire(&mut self, now: Instant) {
        self.pending.retain(|_, pending| pending.deadline > now);
    }

    /// When the next transaction expires.
    pub(crate) fn next_wakeup(&self) -> Option<Instant> {
        self.pending.values().map(|pending| pending.deadline).min()
    }
}
