//! Data with a prefix announcement.

use weir_base::{FaceId, Packet};
use weir_wire::LpHeader;

/// Data that came with a prefix announcement (NDNLPv2, PrefixAnnouncement).
#[derive(Debug)]
pub struct AnnouncedPacket {
    pub face: FaceId,
    /// As for [`Input::Packet`](crate::Input).
    pub header: LpHeader,
    /// Exactly one Data TLV.
    pub packet: Packet,
    /// The announcement: a Data TLV, whose content is unchecked.
    pub announcement: Packet,
}
