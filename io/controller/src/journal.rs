//! What happens in memory is written to the database afterwards, in order, so that no decision
//! waits for a disk.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, watch};

use crate::database::{Database, Record};

/// Records that wait at most. Beyond it the oldest are lost, which is counted and told.
const WAITING_MAX: usize = 100_000;
/// Records of one transaction.
const BATCH: usize = 256;
/// Batches after which old rows are removed.
const PRUNE_EVERY: u64 = 64;
/// Between two attempts at a database that does not answer.
const RETRY_WAIT: Duration = Duration::from_secs(1);

/// How many rows of what nobody needs any more are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowsKept {
    /// Lines of the audit.
    pub audit: u64,
    /// Plans that others have followed, counted by number.
    pub plans: u64,
}

/// Records on their way to the database.
#[derive(Default)]
pub(crate) struct Journal {
    waiting: Mutex<Waiting>,
    wake: Notify,
    is_away: AtomicBool,
}

#[derive(Default)]
struct Waiting {
    records: VecDeque<Record>,
    lost: u64,
}

impl Journal {
    pub(crate) fn push(&self, records: impl IntoIterator<Item = Record>) {
        let mut waiting = self.waiting();
        waiting.records.extend(records);
        let surplus = waiting.records.len().saturating_sub(WAITING_MAX);
        waiting.records.drain(..surplus);
        waiting.lost += surplus as u64;
        drop(waiting);
        self.wake.notify_one();
    }

    /// Records that wait.
    pub(crate) fn waiting_count(&self) -> usize {
        self.waiting().records.len()
    }

    /// Records that were lost because the database was away for too long.
    pub(crate) fn lost_count(&self) -> u64 {
        self.waiting().lost
    }

    /// Whether the last attempt to write failed.
    pub(crate) fn is_away(&self) -> bool {
        self.is_away.load(Ordering::Relaxed)
    }

    /// Writes until `stopping`, and then what is left, if the database answers.
    pub(crate) async fn run(
        &self,
        database: &Database,
        kept: RowsKept,
        mut stopping: watch::Receiver<bool>,
    ) {
        let mut batches = 0_u64;
        loop {
            let is_last = *stopping.borrow();
            match self.write_batch(database).await {
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

    /// Writes some records and says how many. They leave the queue once they are written.
    async fn write_batch(&self, database: &Database) -> Result<usize, ()> {
        let (batch, lost): (Vec<Record>, u64) = {
            let waiting = self.waiting();
            (waiting.records.iter().take(BATCH).cloned().collect(), waiting.lost)
        };
        if batch.is_empty() {
            return Ok(0);
        }
        let written = database.write(&batch).await;
        let was_away = self.is_away.swap(written.is_err(), Ordering::Relaxed);
        match written {
            Ok(()) => {
                if was_away {
                    tracing::info!("the database answers again");
                }
                let mut waiting = self.waiting();
                // Those at the front may have been lost meanwhile.
                let gone = usize::try_from(waiting.lost - lost).unwrap_or(usize::MAX);
                waiting.records.drain(..batch.len().saturating_sub(gone));
                Ok(batch.len())
            }
            Err(error) => {
                if !was_away {
                    tracing::error!(%error, "plans and audit wait in memory");
                }
                Err(())
            }
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
