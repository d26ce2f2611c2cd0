use alloc::vec::Vec;

use weir_base::{Instant, Packet};
use weir_store::disk::{DiskOp, DiskOpId, DiskOutcome};
use weir_wire::{LpHeader, Name, PitToken};

use super::ObjectId;
use crate::PathId;

#[derive(Debug)]
pub enum ProducerInput {
    Packet {
        /// The connection that it arrived on.
        path: PathId,
        header: LpHeader,
        /// Exactly one Interest or Data TLV.
        packet: Packet,
    },
    /// This Data exists now. It answers waiting Interests. It is stored in memory as far as
    /// [`buffer_bytes`](super::ProducerConfig::buffer_bytes) permits, and then on disk, if there is
    /// one.
    Put(Packet),
    /// Answers the waiting Interests that this Data satisfies, without storing it. Later Interests
    /// are requested from the application again. For Data that is true only at this moment.
    Answer(Packet),
    /// What this Interest requests will not exist: refuses waiting Interests with the same name and
    /// selectors.
    Refuse(Packet),
    /// The producer will end: refuses all waiting Interests, so that consumers do not wait for a
    /// timeout.
    RefuseAll,
    /// The source has new data below this name: waiting Interests are looked up again.
    Published(Name),
    ReadDone {
        op: ReadOp,
        /// The complete Data TLV of the segment.
        data: Packet,
    },
    ReadFailed {
        op: ReadOp,
    },
    /// An operation on the output buffer's disk has ended.
    DiskDone {
        id: DiskOpId,
        outcome: DiskOutcome,
    },
}

/// A segment to read, build or make, in any order. Each must return as [`ProducerInput::ReadDone`]
/// or [`ProducerInput::ReadFailed`].
#[derive(Debug)]
pub struct ReadOp {
    pub object: ObjectId,
    pub segment: u64,
    pub(super) pending: PendingInterest,
}

/// An Interest that waits for its answer.
#[derive(Debug)]
pub(super) struct PendingInterest {
    pub(super) path: PathId,
    pub(super) token: PitToken,
    /// When its lifetime ends.
    pub(super) deadline: Instant,
    pub(super) interest: Packet,
    /// Its name ends in an implicit digest.
    pub(super) is_full_name: bool,
    /// It waits for a segment that will be made. If that takes too long, its sender asks again.
    pub(super) awaits_segment: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub enum ProducerEvent {
    /// This Interest waits for data that does not exist yet.
    Wanted { interest: Packet },
}

/// What the driver must do. It drains the lists; their memory is reused.
#[derive(Debug, Default)]
pub struct ProducerOutbox {
    /// Packets to send, in order.
    pub packets: Vec<(PathId, LpHeader, Packet)>,
    /// Segments to read, in order.
    pub reads: Vec<ReadOp>,
    /// Operations on the output buffer's disk, in any order. Each must return as
    /// [`ProducerInput::DiskDone`].
    pub disk_ops: Vec<DiskOp>,
    /// Events for the application, in order.
    pub events: Vec<ProducerEvent>,
}
