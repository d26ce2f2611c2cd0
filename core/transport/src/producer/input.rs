use alloc::vec::Vec;

use weir_base::{Instant, Packet};
use weir_store::disk::{DiskOp, DiskOpId, DiskOutcome};
use weir_wire::{LpHeader, Name, PitToken};

use super::ObjectId;
use crate::PathId;

/// One thing that a producer is told.
#[derive(Debug)]
pub enum ProducerInput {
    Packet {
        /// The connection that it came over.
        path: PathId,
        header: LpHeader,
        /// Exactly one Interest or Data TLV.
        packet: Packet,
    },
    /// This Data exists now. It answers the Interests that wait for it and is kept in memory, as
    /// far as [`buffer_bytes`](super::ProducerConfig::buffer_bytes) has room, and then on disk, if
    /// there is one.
    Put(Packet),
    /// There is no such thing and will not be: what waits with the name and selectors of this
    /// Interest is refused.
    Refuse(Packet),
    /// The producer is about to go: all that waits is refused, and who asks learns it now and not
    /// when its time is over.
    RefuseAll,
    /// The source has more below this name: Interests that wait are looked up once more.
    Published(Name),
    ReadDone {
        op: ReadOp,
        /// The whole Data TLV of the segment.
        data: Packet,
    },
    ReadFailed {
        op: ReadOp,
    },
    /// An operation on the disk of the output buffer has ended.
    DiskDone {
        id: DiskOpId,
        outcome: DiskOutcome,
    },
}

/// A segment to be read, put together or made by the driver, at once or later, in any order. Each
/// must come back as [`ProducerInput::ReadDone`] or [`ProducerInput::ReadFailed`].
#[derive(Debug)]
pub struct ReadOp {
    pub object: ObjectId,
    /// Its number, one that the object has.
    pub segment: u64,
    pub(super) pending: PendingInterest,
}

/// An Interest that is to be answered.
#[derive(Debug)]
pub(super) struct PendingInterest {
    pub(super) path: PathId,
    pub(super) token: PitToken,
    /// When its lifetime is over.
    pub(super) deadline: Instant,
    pub(super) interest: Packet,
    /// Its name ends in an implicit digest.
    pub(super) is_full_name: bool,
    /// What it waits for is to be made: should that take too long, its sender asks again.
    pub(super) awaits_segment: bool,
}

/// What the application is told.
#[derive(Debug, PartialEq, Eq)]
pub enum ProducerEvent {
    /// There is no such thing yet: this Interest waits for it.
    Wanted { interest: Packet },
}

/// What a producer wants done. The driver drains the lists; their memory stays.
#[derive(Debug, Default)]
pub struct ProducerOutbox {
    /// Packets to send, in order.
    pub packets: Vec<(PathId, LpHeader, Packet)>,
    /// Segments to read, in order.
    pub reads: Vec<ReadOp>,
    /// What is to be done on the disk of the output buffer, in any order. Each must come back as
    /// [`ProducerInput::DiskDone`].
    pub disk_ops: Vec<DiskOp>,
    /// What the application is told, in order.
    pub events: Vec<ProducerEvent>,
}
