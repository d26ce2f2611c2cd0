#![doc = include_str!("../README.md")]
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod config;
pub mod disk;
mod entry;
#[cfg(test)]
mod fixture;
mod holdings;
mod name_index;
mod objects;
mod policy;
mod rules;
mod scope;
mod store;
mod tree;
mod uses;

pub use config::{EvictionPolicy, StoreConfig, StoreStats};
pub use entry::ENTRY_BYTES;
pub use holdings::{
    Holding, HoldingChange, HoldingChanges, HoldingsConfig, HoldingsCursor, HoldingsError,
    HoldingsPage, HoldingsStatus, SegmentRange, Tier,
};
pub use name_index::{NameIndex, StoredNames};
pub use objects::{
    ObjectList, ObjectListError, ObjectOrder, ObjectQuery, ObjectTable, ObjectsPage, StoredObject,
};
pub use rules::{Retention, Rule, Rules, RulesError, keep_bytes_max};
pub use store::{
    COUNTED_PREFIXES_MAX, Hit, Lookup, MarkCursor, MarkedBatch, NameHashes, NewData, PrefixCounts,
    PrefixStats, Query, ReadData, ShardAnswer, Store, UNKNOWN_SOURCE, WriteBacklog,
};
pub use uses::{ObjectUses, TierShare};
