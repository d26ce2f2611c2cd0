//! Erases Data by prefix. An erasure visits one shard after the other until its limit is reached.

use std::collections::HashMap;

use weir_forward::Command;
use weir_manage::ManagerInput;
use weir_wire::Name;

use super::workers::Workers;

/// Erasures that some shards have not carried out.
pub(super) struct Erasures {
    workers: Workers,
    jobs: HashMap<u64, Job>,
    next_transaction: u64,
}

struct Job {
    txn: u64,
    prefix: Name,
    left: u64,
    erased: u64,
    /// Shards that have not been visited.
    shards: Vec<u16>,
}

impl Erasures {
    pub(super) fn new(workers: Workers) -> Self {
        Self { workers, jobs: HashMap::new(), next_transaction: 1 }
    }

    /// Starts an erasure for the manager.
    pub(super) fn start(&mut self, txn: u64, prefix: Name, limit: u64) {
        let shards = (0..self.workers.count()).collect();
        let transaction = self.next_transaction;
        self.next_transaction += 1;
        self.send_to_next_shard(transaction, Job { txn, prefix, left: limit, erased: 0, shards });
    }

    /// Sends the erasure to the next shard. Returns the answer to the manager when no shard is
    /// left.
    fn send_to_next_shard(&mut self, transaction: u64, mut job: Job) -> Option<ManagerInput> {
        let Some(shard) = job.shards.pop() else {
            return Some(job.answer(false));
        };
        let (prefix, limit) = (job.prefix.clone(), usize::try_from(job.left).unwrap_or(usize::MAX));
        self.workers.send_shard(shard, Command::EraseStore { transaction, prefix, limit });
        self.jobs.insert(transaction, job);
        None
    }

    /// A shard has erased. Returns the answer to the manager when the erasure is complete.
    pub(super) fn on_erased(
        &mut self,
        transaction: u64,
        erased: usize,
        limit_reached: bool,
    ) -> Option<ManagerInput> {
        let mut job = self.jobs.remove(&transaction)?;
        job.erased += erased as u64;
        job.left = job.left.saturating_sub(erased as u64);
        if limit_reached {
            return Some(job.answer(true));
        }
        self.send_to_next_shard(transaction, job)
    }
}

impl Job {
    fn answer(&self, more: bool) -> ManagerInput {
        ManagerInput::StoreErased { txn: self.txn, erased: self.erased, more }
    }
}
