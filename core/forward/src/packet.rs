//! A received packet, and what is known of it on its path.

use weir_base::{FaceId, NS_PER_MS, Packet};
use weir_store::{NameHashes, Query};
use weir_wire::{InterestView, LpHeader};

use crate::table::faces::Face;

/// Where a packet came from, and the packet as it came.
pub(crate) struct ReceivedPacket<'a> {
    pub(crate) face: FaceId,
    pub(crate) header: &'a LpHeader,
    pub(crate) packet: &'a Packet,
    /// Whether it is an Interest that has waited before a store that blocks.
    pub(crate) queue_state: QueueState,
    /// A number that the packets have in common whose names share all but the last component; 0
    /// where that is not known.
    pub(crate) head: u64,
}

impl<'a> ReceivedPacket<'a> {
    pub(crate) fn new(face: FaceId, header: &'a LpHeader, packet: &'a Packet) -> Self {
        Self { face, header, packet, queue_state: QueueState::NotQueued, head: 0 }
    }
}

/// When an Interest is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QueueState {
    /// As it arrives.
    NotQueued,
    /// After it has waited before the store.
    Queued,
    /// The same, and its Data is to be marked for the queue that it found.
    QueuedToBeMarked,
}

/// What is known of an Interest once it may pass.
pub(crate) struct Asked<'a> {
    pub(crate) query: Query<'a>,
    pub(crate) face: Face,
    pub(crate) nonce: u32,
    /// The PIT entry for it, if there is one.
    pub(crate) pending: Option<u32>,
}

/// What an Interest asks of the store, and the PIT knows it by (NFD: name and selectors, not the
/// forwarding hint).
#[inline(always)]
pub(crate) fn query_of<'a>(interest: &InterestView<'a>, hashes: &NameHashes) -> Query<'a> {
    Query {
        name: interest.name,
        hashes: *hashes,
        can_be_prefix: interest.can_be_prefix,
        must_be_fresh: interest.must_be_fresh,
    }
}

/// What forwarding needs of the packet that brought an Interest.
#[derive(Clone, Copy)]
pub(crate) struct Origin {
    pub(crate) face: FaceId,
    pub(crate) next_hop_face: Option<u64>,
    /// As [`ReceivedPacket::head`].
    pub(crate) head: u64,
}

impl Origin {
    pub(crate) fn of(from: &ReceivedPacket<'_>) -> Self {
        Self { face: from.face, next_hop_face: from.header.next_hop_face, head: from.head }
    }
}

/// The lifetime that an Interest asks for, ns, capped at ten minutes: NFD's ten days would let a
/// stranger who is long gone hold on to a part of the PIT.
pub(crate) fn lifetime_ns(interest: &InterestView<'_>) -> u64 {
    const LIFETIME_MS_MAX: u64 = 10 * 60 * 1000;
    interest.lifetime_ms_or_default().min(LIFETIME_MS_MAX) * NS_PER_MS
}
