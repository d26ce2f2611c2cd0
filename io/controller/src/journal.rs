//! What happens in memory is written to the database afterwards, in order, so that no decision
//! waits for a disk.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use weir_wire::Name;

use crate::database::{Database, DatabaseError, OutageCause, Record};

/// Plans that wait at most. Beyond it those are lost that others have followed, else the oldest.
const PLANS_MAX: usize = 100_000;
/// Other records that wait at most: no plan is lost for them. Beyond it the oldest are.
const OTHER_RECORDS_MAX: usize = 100_000;
/// Records of one transaction.
const BATCH: usize = 256;
/// Batches after which old rows are removed.
const PRUNE_EVERY: u64 = 64;
/// Between two attempts at a database that does not answer.
const RETRY_WAIT: Duration = Duration::from_secs(1);

/// How many rows of what nobody needs any more are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowsKept {
    pub audit: u64,
    /// Plans that others have followed, counted by number.
    pub plans: u64,
}

/// Records on their way to the database.
#[derive(Default)]
pub(crate) struct Journal {
    queue: Mutex<WriteQueue>,
    wake: Notify,
    outage: Mutex<Option<OutageCause>>,
    /// Objects whose plans were not taken, since another controller had planned before.
    conflicts: Mutex<Vec<Name>>,
    /// Records that the database refused, and how many are still to be written one by one, as one
    /// of them was refused.
    refused: AtomicU64,
    single_left: AtomicUsize,
}

/// Both queues in the order in which they came. What is lost is counted and told.
#[derive(Default)]
struct WriteQueue {
    plans: VecDeque<(u64, Record)>,
    other_records: VecDeque<(u64, Record)>,
    next: u64,
    /// Up to this number the database was given them: it may have them, or be writing them, and
    /// what comes after them follows them. None of these is lost; they are no more than a batch.
    in_flight_to: u64,
    lost: u64,
}

/// How many records at the front of a queue the database was given.
fn in_flight_count(queue: &VecDeque<(u64, Record)>, given: u64) -> usize {
    queue.partition_point(|(number, _)| *number <= given)
}

impl WriteQueue {
    fn push(&mut self, record: Record) {
        self.next += 1;
        let is_plan = matches!(record, Record::Plan { .. });
        let queue = if is_plan { &mut self.plans } else { &mut self.other_records };
        queue.push_back((self.next, record));
        if self.other_records.len() > OTHER_RECORDS_MAX {
            self.other_records.remove(in_flight_count(&self.other_records, self.in_flight_to));
            self.lost += 1;
        }
        if self.plans.len() > PLANS_MAX {
            self.drop_plans();
        }
    }

    /// Makes room for an eighth more plans. The newest of an object then follows what the oldest
    /// followed, of those that the database was not given.
    fn drop_plans(&mut self) {
        let untried = self.plans.split_off(in_flight_count(&self.plans, self.in_flight_to));
        let before = untried.len();
        let mut first: HashMap<Name, u64> = HashMap::new();
        for (_, record) in &untried {
            if let Record::Plan { plan, follows, .. } = record {
                first.entry(plan.object.clone()).or_insert(*follows);
            }
        }
        // The newest takes it out.
        let mut kept: VecDeque<(u64, Record)> = untried
            .into_iter()
            .rev()
            .filter_map(|(at, record)| match record {
                Record::Plan { plan, made_ms, .. } => {
                    let follows = first.remove(&plan.object)?;
                    Some((at, Record::Plan { plan, follows, made_ms }))
                }
                other => Some((at, other)),
            })
            .collect();
        kept.truncate(PLANS_MAX - PLANS_MAX / 8);
        kept.make_contiguous().reverse();
        self.lost += (before - kept.len()) as u64;
        self.plans.append(&mut kept);
    }

    fn len(&self) -> usize {
        self.plans.len() + self.other_records.len()
    }

    /// Gives the database the first of both, with the number of the last of them.
    fn next_batch(&mut self, count: usize) -> (Vec<Record>, u64) {
        let (mut plans, mut others) =
            (self.plans.iter().peekable(), self.other_records.iter().peekable());
        let mut batch = Vec::new();
        let mut last = 0;
        while batch.len() < count {
            let from_plans = match (plans.peek(), others.peek()) {
                (Some((plan, _)), Some((other, _))) => plan < other,
                (Some(_), None) => true,
                (None, Some(_)) => false,
                (None, None) => break,
            };
            let next = if from_plans { plans.next() } else { others.next() };
            batch.extend(next.map(|(number, record)| {
                last = *number;
                record.clone()
            }));
        }
        self.in_flight_to = self.in_flight_to.max(last);
        (batch, last)
    }

    /// Those up to this number are written.
    fn remove_written(&mut self, last: u64) {
        for queue in [&mut self.plans, &mut self.other_records] {
            while queue.front().is_some_and(|(number, _)| *number <= last) {
                queue.pop_front();
            }
        }
    }
}

impl Journal {
    pub(crate) fn push(&self, records: impl IntoIterator<Item = Record>) {
        let mut waiting = self.queue();
        records.into_iter().for_each(|record| waiting.push(record));
        drop(waiting);
        self.wake.notify_one();
    }

    pub(crate) fn waiting_count(&self) -> usize {
        self.queue().len()
    }

    /// Records that were lost because the database was away for too long.
    pub(crate) fn lost_count(&self) -> u64 {
        self.queue().lost
    }

    /// Records that are left out, as the database refused each of them by itself.
    pub(crate) fn refused_count(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Why the last attempt to write failed, if it did.
    pub(crate) fn outage(&self) -> Option<OutageCause> {
        *self.outage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Objects whose plans were not taken since this was called before.
    pub(crate) fn take_conflicts(&self) -> Vec<Name> {
        std::mem::take(&mut *self.conflicts.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Those of which it is not known what counts.
    pub(crate) fn add_conflicts(&self, objects: impl IntoIterator<Item = Name>) {
        self.conflicts.lock().unwrap_or_else(PoisonError::into_inner).extend(objects);
    }

    /// Writes until `stopping`, and then what is left, if the database answers.
    pub(crate) async fn run(
        &self,
        database: &Database,
        run: &AtomicU64,
        kept: RowsKept,
        mut stopping: watch::Receiver<bool>,
    ) {
        let mut batches = 0_u64;
        loop {
            let is_last = *stopping.borrow();
            match self.write_batch(database, run).await {
                Ok(0) if is_last => return,
                Ok(0) => {
                    tokio::select! {
                        () = self.wake.notified() => {}
                        _ = stopping.changed() => {}
                    }
                }
                Ok(_) => {
                    batches += 1;
                    if batches.is_multiple_of(PRUNE_EVERY)
                        && let Err(error) = database.prune(kept.audit, kept.plans).await
                    {
                        tracing::warn!(%error, "old rows are not removed");
                    }
                }
                Err(()) if is_last => return,
                Err(()) => {
                    tokio::select! {
                        () = tokio::time::sleep(RETRY_WAIT) => {}
                        _ = stopping.changed() => {}
                    }
                }
            }
        }
    }

    /// Writes some records and says how many. They leave the queue once they are written, or once
    /// the database has refused one by itself for what it says.
    async fn write_batch(&self, database: &Database, run: &AtomicU64) -> Result<usize, ()> {
        let singly = self.single_left.load(Ordering::Relaxed);
        let (batch, last) = self.queue().next_batch(if singly > 0 { 1 } else { BATCH });
        if batch.is_empty() {
            return Ok(0);
        }
        let written = database.write(run.load(Ordering::Relaxed), &batch).await;
        let refused = written.as_ref().err().filter(|error| error.is_data_error());
        if let Some(error) = refused {
            match &batch[..] {
                [record] => self.drop_refused(record, error),
                // One of them is to blame.
                all => {
                    self.single_left.store(all.len(), Ordering::Relaxed);
                    return Box::pin(self.write_batch(database, run)).await;
                }
            }
        }
        let state =
            written.as_ref().err().filter(|_| refused.is_none()).map(DatabaseError::outage_cause);
        let was = std::mem::replace(
            &mut *self.outage.lock().unwrap_or_else(PoisonError::into_inner),
            state,
        );
        match written {
            Err(error) if state.is_some() => {
                if was != state {
                    tracing::error!(%error, "plans and audit wait in memory");
                }
                return Err(());
            }
            Err(_) => {}
            Ok(overtaken) => {
                if was.is_some() {
                    tracing::info!("the database answers again");
                }
                self.add_conflicts(overtaken);
            }
        }
        self.single_left.store(singly.saturating_sub(1), Ordering::Relaxed);
        self.queue().remove_written(last);
        Ok(batch.len())
    }

    /// A record that would hold up all after it for ever. Of a plan counts what is in the database.
    fn drop_refused(&self, record: &Record, error: &DatabaseError) {
        let what = match record {
            Record::Plan { plan, .. } => {
                self.add_conflicts([plan.object.clone()]);
                format!("plan {} for {}", plan.number, plan.object)
            }
            Record::Router { name, .. } | Record::RouterLost { name, .. } => {
                format!("router {name}")
            }
            Record::Audit { action, detail, .. } => format!("{action}: {detail}"),
        };
        self.refused.fetch_add(1, Ordering::Relaxed);
        tracing::error!(what, %error, "the database refuses a record, which is left out");
    }

    fn queue(&self) -> MutexGuard<'_, WriteQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sqlx::Connection as _;
    use weir_control::{Part, Plan};

    fn plan(number: u64, object: &str) -> Record {
        let (parent, object) = (0, object.parse().unwrap());
        // One without parts is an end, which anything may follow.
        let parts = vec![Part { router: "r".to_owned(), first: 0, last: 9 }];
        let (consumers, spread) = (Vec::new(), Vec::new());
        let plan = Plan { number, parent, object, consumers, parts, spread };
        Record::Plan { plan, follows: number.saturating_sub(1), made_ms: 0 }
    }

    fn line(number: usize) -> Record {
        let (who, detail) = ("router r".to_owned(), number.to_string());
        Record::Audit { at_ms: 0, who, action: "does not count", detail }
    }

    /// Numbers of plans, and details of lines, in the order in which they are written.
    fn all(waiting: &mut WriteQueue) -> Vec<String> {
        let mut all = Vec::new();
        loop {
            let (batch, last) = waiting.next_batch(BATCH);
            if batch.is_empty() {
                return all;
            }
            waiting.remove_written(last);
            all.extend(batch.into_iter().map(|record| match record {
                Record::Plan { plan, .. } => format!("plan {}", plan.number),
                Record::Audit { detail, .. } => detail,
                Record::Router { name, .. } | Record::RouterLost { name, .. } => name,
            }));
        }
    }

    #[test]
    fn writes_records_in_order() {
        let mut waiting = WriteQueue::default();
        for record in [line(1), plan(2, "/a"), plan(3, "/b"), line(4), line(5), plan(6, "/a")] {
            waiting.push(record);
        }
        assert_eq!(all(&mut waiting), ["1", "plan 2", "plan 3", "4", "5", "plan 6"]);
        assert_eq!((waiting.len(), waiting.lost), (0, 0));
    }

    #[test]
    fn audit_lines_never_drop_plans() {
        let mut waiting = WriteQueue::default();
        waiting.push(plan(1, "/a"));
        (0..OTHER_RECORDS_MAX + 10).for_each(|number| waiting.push(line(number)));
        assert_eq!(waiting.lost, 10);
        let all = all(&mut waiting);
        assert_eq!(all[..2], ["plan 1".to_owned(), "10".to_owned()]);
    }

    #[test]
    fn drops_superseded_plans_first() {
        let mut waiting = WriteQueue::default();
        waiting.push(plan(1, "/first"));
        (2..=PLANS_MAX as u64 + 1).for_each(|number| waiting.push(plan(number, "/again")));
        // What is written follows what those that are lost followed.
        let follows = waiting.plans.iter().map(|(_, record)| match record {
            Record::Plan { follows, .. } => *follows,
            _ => panic!("{record:?}"),
        });
        assert!(follows.eq([0, 1]));
        assert_eq!(all(&mut waiting), ["plan 1".to_owned(), format!("plan {}", PLANS_MAX + 1)]);
        assert_eq!(waiting.lost, PLANS_MAX as u64 - 1);
        let objects = (0..=PLANS_MAX as u64).map(|number| plan(number, &format!("/{number}")));
        objects.for_each(|record| waiting.push(record));
        let all = all(&mut waiting);
        assert_eq!(all.len(), PLANS_MAX - PLANS_MAX / 8);
        assert_eq!(all.last().unwrap(), &format!("plan {PLANS_MAX}"));
    }

    /// What the database was given it may have, also if its answer got lost.
    #[test]
    fn never_drops_records_in_flight() {
        let mut waiting = WriteQueue::default();
        waiting.push(plan(1, "/a"));
        waiting.push(line(1));
        let (_, last) = waiting.next_batch(BATCH);
        (2..=PLANS_MAX as u64 + 1).for_each(|number| waiting.push(plan(number, "/a")));
        (0..OTHER_RECORDS_MAX).for_each(|number| waiting.push(line(number)));
        // All plans but the newest, and a line.
        assert_eq!(waiting.lost, PLANS_MAX as u64);
        // Again, as nothing was heard of it.
        let (again, last_again) = waiting.next_batch(2);
        assert!(matches!(&again[..], [Record::Plan { .. }, Record::Audit { .. }]), "{again:?}");
        assert_eq!(last_again, last);
        waiting.remove_written(last);
        match &waiting.plans[0].1 {
            Record::Plan { plan, follows: 1, .. } => assert_eq!(plan.number, PLANS_MAX as u64 + 1),
            other => panic!("{other:?}"),
        }
    }

    /// Plans were dropped while the database was writing the first of them: the newest then
    /// followed what was no longer the newest there, and another one counted.
    #[tokio::test]
    async fn newest_plan_wins_after_drops() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("controller.db");
        let database = Database::open(&path.clone().into(), None).await.unwrap();
        let url = format!("sqlite://{}", path.display());
        let mut other = sqlx::AnyConnection::connect(&url).await.unwrap();
        sqlx::raw_sql("BEGIN IMMEDIATE").execute(&mut other).await.unwrap();
        let (journal, run) = (Journal::default(), AtomicU64::new(1));
        journal.push([plan(1, "/a")]);
        let mut more: Vec<Record> =
            (2..=PLANS_MAX as u64 + 1).map(|number| plan(number, "/a")).collect();
        let writing = journal.write_batch(&database, &run);
        let meanwhile = async {
            // It is under way once the database was given it.
            while journal.queue().in_flight_to == 0 {
                tokio::task::yield_now().await;
            }
            journal.push(more.drain(..));
            sqlx::raw_sql("ROLLBACK").execute(&mut other).await.unwrap();
        };
        let _ = tokio::join!(writing, meanwhile);
        while journal.write_batch(&database, &run).await.unwrap() > 0 {}
        assert_eq!(journal.take_conflicts(), []);
        let newest = database.newest_plan(&"/a".parse().unwrap(), |_| true).await.unwrap();
        assert_eq!(newest.unwrap().number, PLANS_MAX as u64 + 1);
        assert_eq!(journal.lost_count(), PLANS_MAX as u64 - 1);
    }
}
