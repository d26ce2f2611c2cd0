//! The outputs of a router shard, and the attributes of faces.

use alloc::vec::Vec;

use weir_base::{FaceId, Packet};
use weir_store::disk::DiskOp;
use weir_wire::{HopSignal, LpHeader, Name};

use crate::shard::ShardMessage;
use crate::store_commands::StoreEvent;

/// Whether a face leads to a program of this host (NFD management, FaceScope).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaceScope {
    /// Another host. Names under `/localhost` never cross such a face.
    NonLocal,
    /// A program of this host.
    Local,
}

/// How many peers a face reaches (NFD management, LinkType).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkType {
    /// One peer. Only these faces carry Nacks.
    PointToPoint,
    /// Several peers that receive each other's packets.
    MultiAccess,
    /// Several peers that may not receive each other's packets. A packet may leave by the face that
    /// it came from.
    AdHoc,
}

/// The PIT tokens of Interests that leave by a face. All except the long ones have six bytes,
/// because ndnd panics when Data carries a token of another length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PitTokens {
    /// None. Data finds its shard by its name, and forged Data from the peer's address is accepted.
    Off,
    /// The number of the shard, if there are several. For a peer whose packets cannot be forged.
    #[default]
    Shard,
    /// A keyed hash that only the peer learns, with the shard inside. For a peer whose packets can
    /// be forged, for example over UDP with a forged source address. Of its 48 bits, the shard
    /// takes up to seven.
    Secret,
    /// Like [`PitTokens::Secret`], with twelve bytes and 64 unpredictable bits.
    LongSecret,
}

impl PitTokens {
    /// Whether only the peer can return the token of an Interest.
    pub(crate) fn are_secret(self) -> bool {
        matches!(self, Self::Secret | Self::LongSecret)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaceAttributes {
    pub scope: FaceScope,
    pub link_type: LinkType,
    /// The PIT tokens of Interests to the face.
    pub tokens: PitTokens,
    /// A number for the peer's host, below 2^63. Faces of one host have one share of a full PIT.
    pub host: Option<u64>,
}

impl FaceAttributes {
    /// A face to one peer whose packets cannot be forged.
    pub const fn point_to_point(scope: FaceScope) -> Self {
        let tokens = PitTokens::Shard;
        Self { scope, link_type: LinkType::PointToPoint, tokens, host: None }
    }
}

/// A next hop of a FIB entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NextHop {
    /// The face that Interests leave by.
    pub face: FaceId,
    /// Lower is better.
    pub cost: u64,
}

/// What to do with Data that no Interest requested (NFD, `cs_unsolicited_policy`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnsolicitedPolicy {
    #[default]
    DropAll,
    /// Store it if it comes from a local face.
    AdmitLocal,
    /// Store it if it comes from a non-local face.
    AdmitNetwork,
    /// Store it.
    AdmitAll,
}

weir_base::words!(UnsolicitedPolicy {
    DropAll = "drop-all",
    AdmitLocal = "admit-local",
    AdmitNetwork = "admit-network",
    AdmitAll = "admit-all",
});

/// Which faces may answer a pending Interest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DataSource {
    /// Only the faces to which the Interest was sent.
    #[default]
    NextHops,
    /// Every face, as in NFD. Anyone who can send packets to this router can then answer the
    /// Interests of others.
    Any,
}

weir_base::words!(DataSource { NextHops = "next-hops", Any = "any" });

#[derive(Debug)]
pub struct OutPacket {
    pub face: FaceId,
    /// PIT token, Nack, congestion mark and incoming face. The link adds its own fields, and
    /// removes the incoming face if local fields are off.
    pub header: LpHeader,
    /// The Interest or Data TLV.
    pub packet: Packet,
}

/// An event for the driver that is not a packet.
#[derive(Debug, PartialEq, Eq)]
pub enum Event {
    /// Answers [`Command::EraseStore`](crate::Command::EraseStore).
    StoreErased {
        /// The command's.
        transaction: u64,
        erased: usize,
        /// The limit was reached; more Data may remain.
        limit_reached: bool,
    },
    /// Answers [`Command::FlushStore`](crate::Command::FlushStore).
    StoreFlushed {
        /// The command's.
        transaction: u64,
    },
    /// Answers [`Command::Store`](crate::Command::Store).
    Store(StoreEvent),
    /// Data that answers a discovery Interest (strategy self-learning) came from this face with
    /// this prefix announcement, a Data TLV. Its name fits to the Data; its content and its
    /// signature are unchecked. If they are right, the prefix gets a route to the face.
    Announced { face: FaceId, announcement: Packet },
    /// The face has refused an Interest of this name with NoRoute, so that a learned route to it
    /// must end.
    RouteRefused { face: FaceId, name: Name },
    /// Data waits for the announcement of this FIB prefix. The driver must answer with
    /// [`Command::SetAnnouncement`](crate::Command::SetAnnouncement).
    AnnouncementNeeded { prefix: Name },
    /// The store did not have a segment whose number is a multiple of 64, and not 0. A large object
    /// thus causes one event in 64 misses, and a small object causes none. Sent only if
    /// [`Command::ReportMisses`](crate::Command::ReportMisses) requested it.
    Missed {
        /// The face of the sender. The sender is an application, or another router whose own store
        /// did not have the segment either.
        ingress: FaceId,
        /// Whether the sender is an application of this machine.
        is_local: bool,
        /// The name without the segment number.
        object: Name,
    },
}

/// The output of a shard. The shard appends to it and the driver drains it.
#[derive(Debug, Default)]
pub struct Outbox {
    /// Packets to send, in order.
    pub packets: Vec<OutPacket>,
    /// Prefix announcements to send with Data: the position in `packets`, and the announcement.
    /// Empty without strategy self-learning.
    pub announcements: Vec<(usize, Packet)>,
    /// Signals for the routers of peers. Send them with `Link::enqueue_signal`.
    pub signals: Vec<(FaceId, HopSignal)>,
    /// Events, in order.
    pub events: Vec<Event>,
    /// Messages for other shards, with the number of the shard. The driver must deliver them as
    /// [`Input::Shard`](crate::Input), in this order. Empty on routers with one shard.
    pub shard_messages: Vec<(u16, ShardMessage)>,
    /// Operations for the disks of the store. The driver must answer each with
    /// [`Input::DiskDone`](crate::Input::DiskDone).
    pub disk_ops: Vec<DiskOp>,
}
