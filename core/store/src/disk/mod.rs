//! The disk tier: what RAM has no room for, in logs on one or more disks.
//!
//! The store decides what is read and written where; a driver does it and says how it went. What
//! lies on a disk, the queues before it and how its index is found again after a crash are all
//! decided here.

pub mod address;
mod append;
mod catalog;
mod checkpoint;
mod comparisons;
mod config;
mod device;
mod fingerprints;
pub mod index;
mod io;
mod lookup;
mod lost;
mod op;
mod operations;
mod pending;
mod queue;
mod reads;
pub mod record;
mod recover;
mod recovery_state;
mod scan;
mod stats;
pub mod superblock;
mod tier;

pub use config::{
    Admission, Checksum, Contention, DiskGeometry, DiskTierConfig, FilterKind, OfferAt,
};
pub use lookup::{FinishedRead, OnDisk, ReadId, ReadOutcome, ReadRefused};
pub use lost::LostSegment;
pub use op::{DiskFailure, DiskOp, DiskOpId, DiskOpKind, DiskOutcome, RecordFault, WriteChunk};
pub use stats::DiskTierStats;

pub(crate) use address::{key_of, segment_at_end};
pub(crate) use append::{Comparison, Offer, OfferReason, OfferResult};
pub(crate) use tier::DiskTier;

#[cfg(test)]
mod tests;
