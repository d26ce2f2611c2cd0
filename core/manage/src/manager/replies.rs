//! Transactions and their replies: what the driver answers becomes Data.

use alloc::vec::Vec;

use weir_base::NS_PER_MS;
use weir_store::Holding;

use super::Manager;
use crate::answers::encode_items;
use crate::contents::{self, ContentsAnswer, ContentsTask};
use crate::element::Element;
use crate::io::{ManagerOutbox, OutData, Snapshot};
use crate::parameters::ControlResponse;
use crate::request::{Clocks, ManagementRequest, ReplyTarget};
use crate::status::GeneralStatus;
use crate::store;
use crate::transactions::{Pending, Task};

impl Manager {
    /// Handles the driver's answer about the contents of the store.
    pub(super) fn on_contents(
        &mut self,
        at: Clocks,
        txn: u64,
        answer: ContentsAnswer,
        out: &mut ManagerOutbox,
    ) {
        let Some(Pending { target, task, .. }) = self.end_transaction(txn) else { return };
        match (task, answer) {
            (Task::Contents(ContentsTask::List(_)), ContentsAnswer::List(list)) => {
                self.publish(&target, &list.encode(), at, out);
            }
            (Task::Contents(task), answer) => {
                self.respond(&target, &contents::response(task, answer), out);
            }
            _ => self.stats.late_answers += 1,
        }
    }

    /// Publishes the stored segments of an object.
    pub(super) fn on_holdings(
        &mut self,
        at: Clocks,
        pending: Pending,
        holdings: Vec<Holding>,
        is_partial: bool,
        out: &mut ManagerOutbox,
    ) {
        if let Task::Holdings { object } = pending.task {
            let status = store::holdings_status(object, holdings, is_partial);
            self.publish(&pending.target, &status.encode(), at, out);
        } else {
            self.stats.late_answers += 1;
        }
    }

    /// Handles the driver's counters for a dataset.
    pub(super) fn on_snapshot(
        &mut self,
        at: Clocks,
        pending: Pending,
        snapshot: Snapshot,
        out: &mut ManagerOutbox,
    ) {
        let content = match (pending.task, snapshot) {
            (Task::Faces(filter), Snapshot::Faces(faces)) => {
                encode_items(faces.into_iter().filter(|face| filter.matches(&face.info)))
            }
            (Task::Store, Snapshot::Store(mut info)) => {
                self.store.fill_in(&mut info);
                info.encode()
            }
            (Task::General, Snapshot::General(mut status)) => {
                self.fill_in_general(at, &mut status);
                status.encode_content()
            }
            // This snapshot is of another kind than requested, so it is not an answer.
            _ => {
                self.stats.late_answers += 1;
                return;
            }
        };
        self.publish(&pending.target, &content, at, out);
    }

    /// Fills in the fields of status/general that the driver does not know.
    pub(super) fn fill_in_general(&self, at: Clocks, status: &mut GeneralStatus) {
        status.version.clone_from(&self.version);
        // The wall clock may have been set since the start, so the monotonic clock is used.
        let uptime_ms = at.now.as_ns() / NS_PER_MS;
        status.start_unix_ms = at.now_unix_ms.saturating_sub(uptime_ms);
        status.current_unix_ms = at.now_unix_ms;
        status.fib_entries = self.routing.fib.len() as u64;
    }

    /// Checks that the sender may do this, and sends the refusal if not.
    pub(super) fn authorize(
        &mut self,
        request: &ManagementRequest<'_>,
        affects_sender_only: bool,
        out: &mut ManagerOutbox,
    ) -> bool {
        let Err(refusal) = self.authorizer.authorize(request, affects_sender_only) else {
            return true;
        };
        self.stats.unauthorized += 1;
        self.respond(&request.reply_target(), &refusal, out);
        false
    }

    /// Requests a task from the driver; the answer to the Interest waits for it. Returns `false` if
    /// too many tasks are pending.
    pub(super) fn begin_transaction(
        &mut self,
        request: &ManagementRequest<'_>,
        task: Task,
        out: &mut ManagerOutbox,
    ) -> bool {
        let action = self.transactions.begin(request.at.now, request.reply_target(), task);
        self.stats.overflows += u64::from(action.is_none());
        let has_begun = action.is_some();
        out.actions.extend(action);
        has_begun
    }

    pub(super) fn end_transaction(&mut self, txn: u64) -> Option<Pending> {
        let pending = self.transactions.end(txn);
        self.stats.late_answers += u64::from(pending.is_none());
        pending
    }

    /// Answers a command.
    pub(super) fn respond(
        &mut self,
        target: &ReplyTarget,
        response: &ControlResponse,
        out: &mut ManagerOutbox,
    ) {
        let answer = self.publisher.respond(target, response);
        self.send(answer, out);
    }

    /// Publishes a dataset and sends its first segment.
    pub(super) fn publish(
        &mut self,
        target: &ReplyTarget,
        content: &[u8],
        at: Clocks,
        out: &mut ManagerOutbox,
    ) {
        let first = self.publisher.publish(target, content, at.now_unix_ms);
        self.send(first, out);
    }

    /// Sends Data, unless the signer failed.
    pub(super) fn send(&mut self, data: Option<OutData>, out: &mut ManagerOutbox) {
        self.stats.signer_failures += u64::from(data.is_none());
        out.data.extend(data);
    }
}
