//! Commands about the contents of the store, and their answers.

use alloc::vec::Vec;

use weir_store::{
    HoldingChanges, HoldingsConfig, HoldingsCursor, HoldingsPage, MarkCursor, MarkedBatch,
    ObjectsPage, Rules, RulesError,
};
use weir_wire::Name;

/// Queries about the contents of a shard's store, and rules for them. Each shard stores some ranges
/// of 64 segments of an object, so the driver combines the answers of all shards.
#[derive(Debug)]
pub enum StoreCommand {
    /// Starts or stops the index of stored segments.
    Track(Option<HoldingsConfig>),
    /// Lists the stored segments of objects below a prefix, see
    /// [`Store::holdings`](weir_store::Store::holdings). Answered by [`StoreEvent::Listed`].
    List {
        /// Repeated in the answer.
        transaction: u64,
        prefix: Name,
        /// Where the list continues.
        from: HoldingsCursor,
        /// Maximum number of objects to visit.
        objects_max: u32,
    },
    /// Lists the stored segments of one object. Answered by [`StoreEvent::Listed`].
    ListObject {
        /// Repeated in the answer.
        transaction: u64,
        /// The object's name, without the segment number.
        object: Name,
    },
    /// Lists objects below a prefix with their shares and uses, see
    /// [`Store::objects`](weir_store::Store::objects). Answered by [`StoreEvent::Objects`].
    ListObjects {
        /// Repeated in the answer.
        transaction: u64,
        prefix: Name,
        /// Where the list continues.
        from: HoldingsCursor,
        /// Maximum number of nodes or objects to visit.
        visits_max: u32,
    },
    /// Takes the changes since the last query, see
    /// [`Store::take_changes`](weir_store::Store::take_changes). Answered by
    /// [`StoreEvent::Changed`].
    TakeChanges {
        /// Repeated in the answer.
        transaction: u64,
        /// Maximum number of blocks of 64 segments in the answer, for each tier.
        blocks_max: usize,
    },
    /// The next changes report everything that is stored.
    RestartChanges,
    /// Stops the tracking of changes.
    StopChanges,
    /// Marks a batch of Data in memory to be evicted first, see
    /// [`Store::evict_first`](weir_store::Store::evict_first). Answered by [`StoreEvent::Marked`].
    EvictFirst {
        /// Repeated in the answer.
        transaction: u64,
        prefix: Name,
        /// The end of the previous batch; `None` for the first one.
        from: Option<MarkCursor>,
        /// Maximum number of entries to visit.
        visits_max: u32,
    },
    /// Counts hits, misses and served bytes of these prefixes, see
    /// [`Store::count_prefixes`](weir_store::Store::count_prefixes).
    CountPrefixes(Vec<Name>),
    /// Applies rules to this shard. Answered by [`StoreEvent::RulesSet`].
    SetRules {
        /// Repeated in the answer.
        transaction: u64,
        rules: Rules,
    },
}

/// The answer to a [`StoreCommand`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreEvent {
    Listed {
        /// The command's.
        transaction: u64,
        /// `None` without an index.
        page: Option<HoldingsPage>,
    },
    Objects {
        /// The command's.
        transaction: u64,
        page: ObjectsPage,
    },
    Marked {
        /// The command's.
        transaction: u64,
        batch: MarkedBatch,
    },
    Changed {
        /// The command's.
        transaction: u64,
        /// `None` without an index.
        changes: Option<HoldingChanges>,
    },
    RulesSet {
        /// The command's.
        transaction: u64,
        /// Why the rules were refused; `None` if they are in force.
        refused: Option<RulesError>,
    },
}
