//! The sources and destinations of packets.

use weir_base::FaceId;
use weir_wire::{LpHeader, PitToken};

/// The source of an Interest, as FIB and strategy need it.
#[derive(Clone, Copy)]
pub(crate) struct Origin<'a> {
    pub(crate) face: FaceId,
    /// For the fields that concern the choice of next hops: NextHopFaceId and NonDiscovery.
    pub(crate) header: &'a LpHeader,
    /// See [`ReceivedPacket::prefix_run`](crate::incoming::ReceivedPacket::prefix_run).
    pub(crate) prefix_run: u64,
}

impl Origin<'_> {
    /// The origin of a pending Interest. The PIT has only its ingress.
    pub(crate) fn of_face(face: FaceId) -> Self {
        Self { face, header: &LpHeader::PLAIN, prefix_run: 0 }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct DataOrigin {
    pub(crate) face: FaceId,
    /// The congestion mark of the Data.
    pub(crate) mark: u64,
    /// The face leads to several peers, so Data may be sent back to it.
    pub(crate) is_ad_hoc: bool,
}

impl DataOrigin {
    pub(crate) fn store(is_marked: bool) -> Self {
        Self { face: FaceId::CONTENT_STORE, mark: u64::from(is_marked), is_ad_hoc: false }
    }
}

/// A receiver of a Data packet: a face, and the PIT token to return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Downstream {
    pub(crate) face: FaceId,
    pub(crate) pit_token: PitToken,
}

impl Downstream {
    /// A total order that does not depend on the tables, so results are the same for any shard
    /// count.
    pub(crate) fn sort_key(&self) -> (FaceId, &[u8]) {
        (self.face, self.pit_token.as_slice())
    }
}

/// The packets with which a peer returns PIT tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenCarrier {
    Data,
    /// Some peers return tokens with Data but not with Nacks.
    Nacks,
}
