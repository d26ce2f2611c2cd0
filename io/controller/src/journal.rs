//! Writes records to the database after the decision, in order, so that no decision waits for a
//! disk.
//!
//! Events become records in a queue in memory. One task writes them in batches of up to 256, each
//! in one transaction. While the database is unavailable, the queue grows up to a limit, and then
//! records are dropped and counted. A record in flight (given to the database, with the answer
//! outstanding) is never dropped: it may have been written, and later plans refer to it.
//!
//! If the database refuses a batch because of its content, its records are written one by one, and
//! only the refused one is left out. Otherwise one bad record would block all later ones.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use weir_wire::Name;

use crate::database::{Database, DatabaseError, OutageCause, Record};

/// Maximum number of waiting plans. Beyond it superseded plans are dropped first, then the oldest.
const PLANS_MAX: usize = 100_000;
/// Maximum number of other waiting records. Beyond it the oldest are dropped. They never displace
/// plans.
const OTHER_RECORDS_MAX: usize = 100_000;
/// Maximum number of records in one transaction.
const BATCH: usize = 256;
/// Old rows are removed after this many batches.
const PRUNE_EVERY: u64 = 64;
/// Time between two attempts while the database is unavailable.
const RETRY_WAIT: Duration = Duration::from_secs(1);

/// How many old rows the database keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowsKept {
    pub audit: u64,
    /// Superseded plans, counted by number.
    pub plans: u64,
}

/// The queue of records, and the state of writing.
#[derive(Default)]
pub(crate) struct Journal {
    queue: Mutex<WriteQueue>,
    wake: Notify,
    outage: Mutex<Option<OutageCause>>,
    /// Objects whose plans were refused, because another controller had written one before.
    conflicts: Mutex<Vec<Name>>,
    /// The number of records that the database refused.
    refused: AtomicU64,
    /// Records still to be written one by one, because their batch was refused.
    single_left: AtomicUsize,
}

/// Two queues with common numbering. Dropped records are counted and logged.
#[derive(Default)]
struct WriteQueue {
    plans: VecDeque<(u64, Record)>,
    other_records: VecDeque<(u64, Record)>,
    next: u64,
    /// Records up to this number were given to the database. They may be written already, and later
    /// records may follow them, so they are never dropped. They are at most one batch.
    in_flight_to: u64,
    lost: u64,
}

/// How many records at the front of a queue were given to the database.
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

    /// Drops plans until an eighth of the limit is free. Of each object only the newest plan stays.
    /// It then follows what the oldest dropped plan of the object would have followed. Plans in
    /// flight stay.
    fn drop_plans(&mut self) {
        // Plans in flight stay where they are.
        let waiting = self.plans.split_off(in_flight_count(&self.plans, self.in_flight_to));
        let before = waiting.len();
        let mut first: HashMap<Name, u64> = HashMap::new();
        for (_, record) in &waiting {
            if let Record::Plan { plan, follows, .. } = record {
                first.entry(plan.object.clone()).or_insert(*follows);
            }
        }
        // Going backwards, the newest plan of each object is met first.
        let mut kept: VecDeque<(u64, Record)> = waiting
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

    /// The first records of both queues in order, and the number of the last one. They are in
    /// flight from now on.
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

    /// Removes records up to this number.
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

    /// Records dropped because the database was unavailable for too long.
    pub(crate) fn lost_count(&self) -> u64 {
        self.queue().lost
    }

    /// Records that the database refused because of their content.
    pub(crate) fn refused_count(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Why the last write failed, if it did.
    pub(crate) fn outage(&self) -> Option<OutageCause> {
        *self.outage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Objects whose plans were refused since the last call.
    pub(crate) fn take_conflicts(&self) -> Vec<Name> {
        std::mem::take(&mut *self.conflicts.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Objects whose newest plan must be read from the database.
    pub(crate) fn add_conflicts(&self, objects: impl IntoIterator<Item = Name>) {
        self.conflicts.lock().unwrap_or_else(PoisonError::into_inner).extend(objects);
    }

    /// Writes until `stopping`, and then what is left if the database works.
    pub(crate) async fn run(
        &self,
        database: &Database,
        run: &AtomicU64,
        kept: RowsKept,
        mut stopping: watch::Receiver<bool>,
    ) {
        let mut batches = 0_u64;
        loop {
            // Read this before the batch: all records that were queued before the stop are written.
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
                        tracing::warn!(%error, "old rows cannot be removed from the database");
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

    /// Writes a batch and returns its size. Records leave the queue when they are written, or when
    /// the database has refused one of them by itself.
    async fn write_batch(&self, database: &Database, run: &AtomicU64) -> Result<usize, ()> {
        // After a refused batch, records are written one by one until the batch is done.
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
                // One of them is refused: write them one by one.
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
                    tracing::error!(
                        %error,
                        "the database does not write; plans and audit lines wait in memory"
                    );
                }
                return Err(());
            }
            Err(_) => {}
            Ok(conflicts) => {
                if was.is_some() {
                    tracing::info!("the database works again");
                }
                self.add_conflicts(conflicts);
            }
        }
        self.single_left.store(singly.saturating_sub(1), Ordering::Relaxed);
        self.queue().remove_written(last);
        Ok(batch.len())
    }

    /// Leaves out a record that would block all later ones. If it is a plan, the newest plan in the
    /// database counts.
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
        tracing::error!(what, %error, "the database refuses a record; it is left out");
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
        // A plan without parts is an end, and any plan may follow an end.
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
        // The remaining plan follows what the dropped ones followed.
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

    /// A record in flight may have been written, even if the answer was lost.
    #[test]
    fn never_drops_records_in_flight() {
        let mut waiting = WriteQueue::default();
        waiting.push(plan(1, "/a"));
        waiting.push(line(1));
        let (_, last) = waiting.next_batch(BATCH);
        (2..=PLANS_MAX as u64 + 1).for_each(|number| waiting.push(plan(number, "/a")));
        (0..OTHER_RECORDS_MAX).for_each(|number| waiting.push(line(number)));
        // Dropped: all plans but the newest, and one line.
        assert_eq!(waiting.lost, PLANS_MAX as u64);
        // The same batch again, because its answer was lost.
        let (again, last_again) = waiting.next_batch(2);
        assert!(matches!(&again[..], [Record::Plan { .. }, Record::Audit { .. }]), "{again:?}");
        assert_eq!(last_again, last);
        waiting.remove_written(last);
        match &waiting.plans[0].1 {
            Record::Plan { plan, follows: 1, .. } => assert_eq!(plan.number, PLANS_MAX as u64 + 1),
            other => panic!("{other:?}"),
        }
    }

    /// Regression: plans were dropped while the database was writing the first of them. The newest
    /// then followed a plan that was no longer the newest there, so it was refused.
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
            // The write is in progress once the records are in flight.
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
