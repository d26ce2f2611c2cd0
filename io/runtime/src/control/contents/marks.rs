//! Marks Data to be evicted first: batches of all shards, one after the other, until all are done.

use std::time::Duration;

use weir_base::Instant;
use weir_forward::StoreEvent;
use weir_store::MarkCursor;
use weir_wire::Name;

/// Entries that a shard visits for one batch. A batch must not delay packets noticeably, and takes
/// about a tenth of a millisecond.
pub(super) const BATCH_VISITS: u32 = 512;
/// Time for all batches of one command. The manager forgets a command after 30 s.
const MARK_TIMEOUT: Duration = Duration::from_secs(20);

/// A command in progress.
pub(super) struct MarkJob {
    pub(super) prefix: Name,
    /// Packets marked so far.
    pub(super) packets: u64,
    /// When the command must have ended. Each batch has a deadline of its own.
    pub(super) until: Instant,
    shards: Vec<Progress>,
}

#[derive(Copy, Clone, PartialEq, Eq)]
enum Progress {
    /// The next batch starts here; at the start of the walk for `None`.
    From(Option<MarkCursor>),
    Done,
}

impl MarkJob {
    pub(super) fn new(now: Instant, prefix: Name, shards: u16) -> Self {
        let until = now.plus_ns(MARK_TIMEOUT.as_nanos() as u64);
        Self { prefix, packets: 0, until, shards: vec![Progress::From(None); shards.into()] }
    }

    /// Where the shard's next batch starts; the outer `None` for a shard that is finished.
    pub(super) fn from(&self, shard: usize) -> Option<Option<MarkCursor>> {
        match self.shards.get(shard)? {
            Progress::From(from) => Some(*from),
            Progress::Done => None,
        }
    }

    /// Adds the batches of some shards. Returns whether more follow.
    pub(super) fn add(&mut self, replies: Vec<(u16, StoreEvent)>) -> bool {
        for (shard, event) in replies {
            if let StoreEvent::Marked { batch, .. } = event {
                self.packets += batch.packets;
                let next = batch.next.map(|next| Progress::From(Some(next)));
                self.shards[usize::from(shard)] = next.unwrap_or(Progress::Done);
            }
        }
        self.shards.iter().any(|shard| *shard != Progress::Done)
    }
}
