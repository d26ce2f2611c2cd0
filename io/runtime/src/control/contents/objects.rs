//! The list of objects: pages of all shards, one after the other, until all have ended.

use weir_forward::StoreEvent;
use weir_store::{HoldingsCursor, ObjectTable};

/// Nodes or objects that a shard visits for one page, so that a page takes about a millisecond.
pub(super) const PAGE_VISITS: u32 = 2048;
/// The table of a list may use one part in this many of the store, but at least
/// [`TABLE_BYTES_MIN`].
const TABLE_SHARE: u64 = 100;
const TABLE_BYTES_MIN: u64 = 32 << 20;
/// Lists in progress at a time. Each has a table.
pub(super) const LISTS_MAX: usize = 2;

/// Bytes of memory for the table of one list.
pub(super) fn table_bytes_max(store_bytes: u64) -> u64 {
    (store_bytes / TABLE_SHARE).max(TABLE_BYTES_MIN)
}

/// A list in progress.
pub(super) struct ObjectsJob {
    pub(super) table: ObjectTable,
    /// Where each shard continues; `None` for a shard that is finished.
    cursors: Vec<Option<HoldingsCursor>>,
}

impl ObjectsJob {
    pub(super) fn new(table: ObjectTable, shards: u16) -> Self {
        Self { table, cursors: vec![Some(HoldingsCursor::default()); shards.into()] }
    }

    pub(super) fn cursor(&self, shard: usize) -> Option<HoldingsCursor> {
        *self.cursors.get(shard)?
    }

    /// Adds the pages of some shards. `waiting` is the set of shards that did not answer. Returns
    /// whether more pages follow.
    pub(super) fn add(&mut self, replies: Vec<(u16, StoreEvent)>, waiting: u64) -> bool {
        for (shard, event) in replies {
            if let StoreEvent::Objects { page, .. } = event {
                self.cursors[usize::from(shard)] = page.next;
                self.table.add(page);
            }
        }
        if waiting != 0 {
            self.table.set_partial();
            return false;
        }
        self.cursors.iter().any(Option::is_some)
    }
}
