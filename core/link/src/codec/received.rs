use alloc::boxed::Box;

use weir_base::Packet;
use weir_wire::RunOffer;
use weir_wire::lp::{HopSignal, LpHeader};

use crate::counters::LinkDrop;

/// Data that came with a PrefixAnnouncement.
#[derive(Clone, Debug)]
pub struct AnnouncedData {
    /// As for [`Received::Packet`].
    pub header: LpHeader,
    /// The Data TLV.
    pub packet: Packet,
    /// A copy of the announcement, a Data TLV. Only its type and length were checked.
    pub announcement: Packet,
}

/// The result of one received frame.
#[derive(Clone, Debug)]
pub enum Received {
    /// A whole Interest, Data or Nack. The header has no fields that belong to the link alone
    /// (Sequence, FragIndex, FragCount, TxSequence). It has an IncomingFaceId only with
    /// [`keep_incoming_face`](super::CodecConfig::keep_incoming_face). The packet starts with TLV
    /// type 5 or 6, and is not decoded further.
    Packet {
        /// Header fields for the forwarder. Those of a reassembled packet come from fragment 0.
        header: LpHeader,
        /// The Interest or Data TLV. It is a slice of the frame if the packet was not fragmented.
        packet: Packet,
    },
    /// Data with a prefix announcement. Only with
    /// [`announcements`](super::CodecConfig::announcements); otherwise the link ignores the field.
    Announced(Box<AnnouncedData>),
    /// A whole Interest that shaping has delayed, or has refused with a Nack. Check
    /// [`Link::take_released`](crate::Link::take_released), and whether the egress has frames now.
    Delayed,
    /// Several Interests in one frame; see [`Link::next_in_run`](crate::Link::next_in_run).
    Run,
    /// An offer about runs from the peer. The link may have replied, so check whether the egress
    /// has frames now.
    Offer(RunOffer),
    /// A fragment of a packet that is not complete yet.
    Partial,
    /// An LpPacket without a fragment that has nothing for the forwarder.
    Idle,
    /// A control message of hicn-light: a whole datagram, whose content is unchecked. Only with
    /// [`has_control`](crate::HicnConfig::has_control).
    Control(Packet),
    /// A signal from the peer's router to this router.
    Signal(HopSignal),
    /// The frame was dropped, and the drop was counted.
    Drop(LinkDrop),
}
