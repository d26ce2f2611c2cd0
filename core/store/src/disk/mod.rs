//! The disk tier: a log-structured store on one or more disks, below the memory tier.
//!
//! This crate decides what is read and written where, and does no input or output itself. A driver
//! (the crate `weir-disk`, or a simulation) takes [`DiskOp`]s, carries them out in any order, and
//! reports each [`DiskOutcome`].
//!
//! # What is on a disk
//!
//! ```text
//! disk    superblock | region 0 | region 1 | ... | region n | copy of the superblock
//! region  header | record | record | erasures | record | ... free ... | checkpoint | footer
//! ```
//!
//! A disk is a ring of *regions* (1 to 64 MiB by default). They are written from front to back and
//! reused as a whole, oldest first. Each use of a region has a *sequence number*, higher than all
//! before.
//!
//! - The *header* is the region's first block and holds the sequence number.
//! - A *record* holds one Data packet.
//! - *Erasures* list names that must not be served any more.
//! - The *checkpoint* lists all records and erasures of the region.
//! - The *footer*, in the last block, says where the checkpoint is.
//!
//! Each of these starts with the header of `record.rs`: store, disk offset, sequence number,
//! checksum.
//!
//! # How an evicted segment gets to disk and back
//!
//! Take `/video/v=1/seg=42`, which has just arrived, and its life in the order of the calls.
//!
//! 1. **Arrival.** `Store::insert` puts the packet into memory and appends the entry to the
//!    `WriteQueue`: data that no disk has been offered yet. An older record of the same name may be
//!    on a disk. Then a fingerprint of the new packet is kept to compare the two later
//!    (`fingerprints.rs`). A record that differs is never served.
//! 2. **Offer.** `DiskTier::offer` is called at one of three moments:
//!    - early, by `Disks::write_early`, once memory is a quarter full and a disk has time
//!      ([`OfferAt`] says when),
//!    - at eviction, by `Disks::offer_evicted`,
//!    - at shutdown, by `Store::flush`.
//!
//!    Most evictions find the segment on disk already and free its memory at once.
//! 3. **Choice of a disk** (`append.rs`). The admission policy and the index must allow the record.
//!    The disk with the fewest waiting records is chosen; one that stalls comes last, and one whose
//!    backlog is full is skipped. If no disk takes the record, it is lost and counted, never waited
//!    for.
//! 4. **Append.** The record gets the next free sectors in the disk's open region. Disk, offset,
//!    length and the low 8 bits of the sequence number make a `RecordAddress` of 8 bytes
//!    (`address.rs`). The record is added to the index (name hash to address) and to the Bloom
//!    filter in front of it. It also enters the region's checkpoint and the list of *pending*
//!    records. The pending record shares the packet in memory; nothing is copied.
//!
//!    If the region is full, it is closed and the next one is opened. That is an empty one, or the
//!    oldest, whose records are evicted by that. Nothing is moved or read: their addresses have an
//!    old sequence number and are invalid from now on. `DiskTier::sweep` removes them from the
//!    index little by little.
//! 5. **Write.** Records gather in a `WriteBatch` of up to 256 KiB, or until the oldest has waited
//!    5 ms. `Store::take_disk_ops` then hands it to the driver. Records of a region wait until its
//!    header is on disk: otherwise a restart would take the region for what it was before.
//! 6. **Until the write has ended**, lookups are answered from the pending record
//!    (`hits_unwritten`). Memory may evict the entry; the pending record then keeps the packet,
//!    which counts as `evicted_unwritten_bytes` and limits what else memory may hold.
//! 7. **Outcome.** `Written` removes the pending record and frees the packet. `Failed` removes the
//!    record from the index. An erasure is logged as well, in case the write reached the disk all
//!    the same. Memory offers the segment again when it evicts it. If it was evicted before, the
//!    segment is lost, and `Store::take_lost` reports it.
//! 8. **Lookup.** An Interest for the segment misses in memory. The filter says that a record may
//!    exist (else it is a miss, for one cache line); the index gives its address. `Store::lookup`
//!    returns [`OnDisk`], without waiting. If the disk is busy and there is a next hop, the router
//!    forwards the Interest (bypass). Otherwise it calls `Store::begin_read`. Interests for the
//!    same record share one read.
//! 9. **Read.** The driver reads the blocks and checks store, offset, sequence number and checksum.
//!    A record that fails is never served, and the index forgets it. The tier also drops data that
//!    was erased, replaced, or found different from its fingerprint meanwhile. Without Data from
//!    the read, the router forwards the Interests upstream, as after a miss.
//! 10. **Return.** `Store::next_finished` delivers the packet. The router (`path/reads.rs` of
//!     `weir-forward`) compares its name with the Interests, because the index knows hashes only.
//!     It calls `Store::promote`, which puts the packet into memory again, and sends it to the
//!     consumers. The packet is not queued for writing, since the disk still has it. If it was used
//!     and its region is about to be reused, its next eviction writes it again.
//!
//! # After a crash or restart
//!
//! `recover.rs` rebuilds index and filter from headers, footers and checkpoints, and scans regions
//! that have none. Lookups work meanwhile, with what has been found so far.
//!
//! # The tier must never
//!
//! - serve a record that is damaged, replaced or erased, also after any crash,
//! - wait for a disk,
//! - take more memory than its limits,
//! - drop a pending record before the driver has reported an outcome.

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
