//! Packets on their way through the stages of a path, with the results of earlier stages.

use weir_base::{FaceId, NS_PER_MS, Packet};
use weir_store::{NameHashes, Query};
use weir_wire::{DataView, InterestView, LpHeader, PacketView};

use crate::endpoints::{Downstream, Origin};
use crate::table::faces::Face;

/// A received packet and the face that it came from.
pub(crate) struct ReceivedPacket<'a> {
    pub(crate) face: FaceId,
    pub(crate) header: &'a LpHeader,
    pub(crate) packet: &'a Packet,
    /// For Interests: whether it has waited in a queue in front of a blocking store.
    pub(crate) queue_state: QueueState,
    /// The number of a run of consecutive packets whose names differ only in the last component; 0
    /// if unknown. The FIB reuses its lookup within a run.
    pub(crate) prefix_run: u64,
}

impl<'a> ReceivedPacket<'a> {
    pub(crate) fn new(face: FaceId, header: &'a LpHeader, packet: &'a Packet) -> Self {
        Self { face, header, packet, queue_state: QueueState::NotQueued, prefix_run: 0 }
    }

    pub(crate) fn origin(&self) -> Origin<'a> {
        Origin { face: self.face, header: self.header, prefix_run: self.prefix_run }
    }

    pub(crate) fn downstream(&self) -> Downstream {
        Downstream { face: self.face, pit_token: self.header.pit_token }
    }
}

/// Number of packets that are prefetched together. It is large enough to hide memory latency. It is
/// small enough that their lines are still in the cache when they are used.
pub(crate) const BATCH: usize = 32;

/// A parsed and hashed packet of a batch.
pub(crate) struct Arrival<'a> {
    pub(crate) received: ReceivedPacket<'a>,
    pub(crate) parsed: PacketView<'a>,
    pub(crate) hashes: NameHashes,
}

/// Whether an Interest has waited in a queue in front of a blocking store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QueueState {
    NotQueued,
    Queued,
    /// The queue was over the threshold when the Interest arrived, so its Data will be marked.
    QueuedAndMarked,
}

/// An Interest that has passed the first stage of its path, with the results that later stages
/// need.
pub(crate) struct IncomingInterest<'a> {
    pub(crate) received: &'a ReceivedPacket<'a>,
    pub(crate) interest: &'a InterestView<'a>,
    /// The key of the Interest in the store and in the PIT.
    pub(crate) query: Query<'a>,
    pub(crate) face: Face,
    /// The Interest's own nonce, or a random one if it had none.
    pub(crate) nonce: u32,
    /// The index of the PIT entry that an earlier Interest for the same Data has created.
    pub(crate) pit_index: Option<u32>,
}

/// A Data packet from a known face, within its scope.
pub(crate) struct IncomingData<'a> {
    pub(crate) received: &'a ReceivedPacket<'a>,
    pub(crate) data: &'a DataView<'a>,
    pub(crate) hashes: &'a NameHashes,
    pub(crate) face: Face,
}

/// The key of an Interest in the store and in the PIT: name and selectors, as in NFD, but not the
/// forwarding hint.
#[inline(always)]
pub(crate) fn query_of<'a>(interest: &InterestView<'a>, hashes: &NameHashes) -> Query<'a> {
    Query {
        name: interest.name,
        hashes: *hashes,
        can_be_prefix: interest.can_be_prefix,
        must_be_fresh: interest.must_be_fresh,
    }
}

/// The lifetime of an Interest in ns, capped at ten minutes. NFD allows ten days. For that time, a
/// client that has long stopped would use memory of the PIT.
pub(crate) fn lifetime_ns(interest: &InterestView<'_>) -> u64 {
    const LIFETIME_MS_MAX: u64 = 10 * 60 * 1000;
    interest.lifetime_ms_or_default().min(LIFETIME_MS_MAX) * NS_PER_MS
}
