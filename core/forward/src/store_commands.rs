//! What others want to know of the store's contents, and to have a say in.

use weir_store::{HoldingChanges, HoldingsConfig, HoldingsCursor, HoldingsPage, Rules, RulesError};
use weir_wire::Name;

/// Questions about what a shard's store holds, and rules for it. A shard has some ranges of 64
/// segments of each object: what a router holds is what its shards do together.
#[derive(Debug)]
pub enum StoreCommand {
    /// Keeps an index of the segments that are held, or gives it up.
    Track(Option<HoldingsConfig>),
    /// What is held of the objects below a prefix, see
    /// [`Store::holdings`](weir_store::Store::holdings). Answered by [`StoreEvent::Listed`].
    List {
        /// Identifies the answer.
        transaction: u64,
        prefix: Name,
        /// Where to go on.
        from: HoldingsCursor,
        /// Objects that are looked at, at most.
        objects_max: u32,
    },
    /// What is held of one object. Answered by [`StoreEvent::Listed`].
    ListObject {
        /// Identifies the answer.
        transaction: u64,
        /// Its name, without the segment number.
        object: Name,
    },
    /// What has changed since this was asked before, see
    /// [`Store::take_changes`](weir_store::Store::take_changes). Answered by
    /// [`StoreEvent::FileChanged`].
    TakeChanges {
        /// Identifies the answer.
        transaction: u64,
        /// Blocks of 64 segments at most, in each tier.
        blocks_max: usize,
    },
    /// The next changes say all that is held anew.
    RestartChanges,
    /// Nobody asks for changes any more.
    StopChanges,
    /// Puts rules into force: this shard's share of them. Answered by [`StoreEvent::RulesSet`].
    SetRules {
        /// Identifies the answer.
        transaction: u64,
        rules: Rules,
    },
}

/// The answer to a [`StoreCommand`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreEvent {
    /// What is held.
    Listed {
        /// The command's.
        transaction: u64,
        /// Nothing where no index is kept.
        page: Option<HoldingsPage>,
    },
    Changed {
        /// The command's.
        transaction: u64,
        /// Nothing where no index is kept.
        changes: Option<HoldingChanges>,
    },
    /// Whether rules are in force.
    RulesSet {
        /// The command's.
        transaction: u64,
        /// Why they are not, if so.
        refused: Option<RulesError>,
    },
}
