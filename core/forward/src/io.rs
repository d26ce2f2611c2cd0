//! What a router shard is told of and what comes out of it.

use alloc::vec::Vec;

use weir_base::{FaceId, Packet};
use weir_store::disk::DiskOp;
use weir_wire::{HopSignal, LpHeader, Name};

use crate::shard::ShardMessage;
use crate::store_commands::StoreEvent;

/// Whether a face leads to this host's own programs (NFD management, FaceScope).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaceScope {
    /// Another host: `/localhost` never crosses.
    NonLocal,
    /// A program on this host.
    Local,
}

/// How many peers a face can reach (NFD management, LinkType).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkType {
    /// One peer. Only such faces carry Nacks.
    PointToPoint,
    /// Several peers that hear one another.
    MultiAccess,
    /// Several peers that may not hear one another: packets may leave where they came in.
    AdHoc,
}

/// The PIT tokens of Interests that leave by a face. All but the long ones have six octets, since
/// ndnd ends when Data bears a token of any other length but none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PitTokens {
    /// None. Data finds its shard by its name, and strangers who forge the peer's address are
    /// believed.
    Off,
    /// The shard, where there are several: for a peer whose packets are its own.
    #[default]
    Shard,
    /// A keyed hash that only the peer learns, with the shard inside: for a peer that strangers can
    /// send in the name of, as over UDP with a forged source address. Of 48 bits, one to seven of
    /// which are the shard's where there are several.
    Secret,
    /// The same in twelve octets, with 64 bits that nobody can guess.
    LongSecret,
}

impl PitTokens {
    /// Whether only the peer can return the token of an Interest.
    pub(crate) fn are_secret(self) -> bool {
        matches!(self, Self::Secret | Self::LongSecret)
    }
}

/// What a router is told of a face.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaceAttributes {
    /// Local or not.
    pub scope: FaceScope,
    /// Point to point or not.
    pub link_type: LinkType,
    /// The PIT tokens of Interests to it.
    pub tokens: PitTokens,
    /// A number for the peer's host, below 2^63: faces that have the same one have one share of the
    /// PIT when it is full.
    pub host: Option<u64>,
}

impl FaceAttributes {
    /// A face to one peer whose packets are its own.
    pub const fn point_to_point(scope: FaceScope) -> Self {
        let tokens = PitTokens::Shard;
        Self { scope, link_type: LinkType::PointToPoint, tokens, host: None }
    }
}

/// A next hop of a FIB entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NextHop {
    /// Where the Interest goes.
    pub face: FaceId,
    /// Lower is better.
    pub cost: u64,
}

/// What to do with Data that no Interest asked for (NFD, `cs_unsolicited_policy`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnsolicitedPolicy {
    #[default]
    DropAll,
    /// Store it when it comes from a local face.
    AdmitLocal,
    /// Store it when it comes from a non-local face.
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

/// Whose Data satisfies a pending Interest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DataSource {
    /// That of a face to which the Interest was sent.
    #[default]
    NextHops,
    /// That of any face (as NFD): whoever can send here can answer what others ask for.
    Any,
}

weir_base::words!(DataSource { NextHops = "next-hops", Any = "any" });

#[derive(Debug)]
pub struct OutPacket {
    pub face: FaceId,
    /// PIT token, Nack, congestion mark and incoming face. The link adds what is its own and leaves
    /// out the incoming face where local fields are off.
    pub header: LpHeader,
    /// The Interest or Data TLV.
    pub packet: Packet,
}

/// Something a driver should know that is not a packet.
#[derive(Debug, PartialEq, Eq)]
pub enum Event {
    /// Answers [`Command::EraseStore`](crate::Command::EraseStore).
    StoreErased {
        /// The command's.
        transaction: u64,
        erased: usize,
        /// The limit was reached: there may be more.
        limit_reached: bool,
    },
    /// Answers [`Command::FlushStore`](crate::Command::FlushStore).
    StoreFlushed {
        /// The command's.
        transaction: u64,
    },
    /// Answers [`Command::Store`](crate::Command::Store).
    Store(StoreEvent),
    /// The store was asked in vain for a segment whose number is a multiple of 64, not 0: one of 64
    /// misses of a large object, and none of a small one. Only while
    /// [`Command::ReportMisses`](crate::Command::WatchMisses) has it so.
    Missed {
        /// Who asked: an application, or, where all are watched, another router, which has asked
        /// its own store before.
        ingress: FaceId,
        /// Whether that is an application of this machine.
        is_local: bool,
        /// The name without the segment number.
        object: Name,
    },
}

/// What a shard wants done, appended by the shard and drained by the driver.
#[derive(Debug, Default)]
pub struct Outbox {
    /// Packets to send, in order.
    pub packets: Vec<OutPacket>,
    /// What to tell the routers at the other ends of links, with `Link::enqueue_signal`.
    pub signals: Vec<(FaceId, HopSignal)>,
    /// Other news, in order.
    pub events: Vec<Event>,
    /// What other shards of the router are to be told, by number of the shard: the driver gives it
    /// to them as [`Input::Shard`](crate::Input), in this order. Empty on routers of one shard.
    pub shard_messages: Vec<(u16, ShardMessage)>,
    /// What to do on the disks of the store. Each must be answered by
    /// [`Input::DiskDone`](crate::Input::DiskDone).
    pub disk_ops: Vec<DiskOp>,
}
