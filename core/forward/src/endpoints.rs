//! Where packets come from and where they go to.

use weir_base::FaceId;
use weir_wire::PitToken;

/// Where an Interest came from, as FIB and strategy need it.
#[derive(Clone, Copy)]
pub(crate) struct Origin {
    pub(crate) face: FaceId,
    pub(crate) next_hop_face: Option<u64>,
    /// As [`ReceivedPacket::prefix_run`].
    pub(crate) prefix_run: u64,
}

impl Origin {
    /// The origin of an Interest of which the PIT kept no more than its ingress.
    pub(crate) fn of_face(face: FaceId) -> Self {
        Self { face, next_hop_face: None, prefix_run: 0 }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct DataOrigin {
    pub(crate) face: FaceId,
    /// The congestion mark that it carries.
    pub(crate) mark: u64,
    /// The face leads to several peers, so the Data may be sent back to it.
    pub(crate) is_ad_hoc: bool,
}

impl DataOrigin {
    pub(crate) fn store(is_marked: bool) -> Self {
        Self { face: FaceId::CONTENT_STORE, mark: u64::from(is_marked), is_ad_hoc: false }
    }
}

/// Who receives a Data packet: a face, and the PIT token to return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Downstream {
    pub(crate) face: FaceId,
    pub(crate) pit_token: PitToken,
}

impl Downstream {
    /// A total order that does not depend on tables.
    pub(crate) fn sort_key(&self) -> (FaceId, &[u8]) {
        (self.face, self.pit_token.as_slice())
    }
}

/// What a peer returns PIT tokens with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenCarrier {
    Data,
    /// Nacks: not all that return them with Data do so.
    Nacks,
}
