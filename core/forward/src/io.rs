//! What goes into a router shard and what comes out of it.

use alloc::vec::Vec;

use weir_base::{FaceId, Packet};
use weir_store::StoreConfig;
use weir_store::disk::{DiskOp, DiskOpId, DiskOutcome};
use weir_wire::{LpHeader, Name};

use crate::strategy::Strategy;

/// One thing that a shard is given. Inputs come in batches; a batch of any size gives the same
/// result as its inputs one by one.
#[derive(Debug)]
pub enum Input {
    /// A whole network packet from a face: `weir-link` has reassembled it and decoded its NDNLPv2
    /// header. A Nack is an Interest whose header holds a reason.
    Packet {
        /// The face it arrived on.
        face: FaceId,
        /// Its link header; only fields that matter beyond the link are read.
        header: LpHeader,
        /// Exactly one Interest or Data TLV.
        packet: Packet,
    },
    /// A change of configuration or tables.
    Command(Command),
    /// An operation of [`Outbox::disk_ops`] has ended.
    DiskDone {
        /// Which.
        id: DiskOpId,
        /// How.
        outcome: DiskOutcome,
    },
    /// A neighbour says whether its store has room for Interests that could go elsewhere (paper
    /// nb-cache, III-E). On a router of several shards each gets this.
    Availability {
        /// The face it is at.
        face: FaceId,
        /// For how long it has none, milliseconds; 0 when it has again.
        unavailable_ms: u64,
    },
    /// Nothing but the time has come: see [`Router::next_wakeup`](crate::Router::next_wakeup).
    Wakeup,
}

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
    /// Drop it.
    #[default]
    DropAll,
    /// Store it when it comes from a local face.
    AdmitLocal,
    /// Store it when it comes from a non-local face.
    AdmitNetwork,
    /// Store it.
    AdmitAll,
}

/// A change of a shard's tables. Every shard of a router gets every command.
#[derive(Debug)]
pub enum Command {
    /// A face came into being.
    AddFace {
        /// Its identifier.
        face: FaceId,
        /// Local or not.
        scope: FaceScope,
        /// Point to point or not.
        link_type: LinkType,
    },
    /// A face is gone. FIB entries that name it pass it over; who keeps the FIB sends
    /// [`Command::SetNextHops`] for them in its own time.
    RemoveFace {
        /// Its identifier.
        face: FaceId,
    },
    /// Replaces the next hops of a FIB prefix; none removes the prefix.
    SetNextHops {
        /// The prefix, of at most [`PREFIX_COMPONENTS_MAX`](crate::PREFIX_COMPONENTS_MAX)
        /// components.
        prefix: Name,
        /// In any order.
        next_hops: Vec<NextHop>,
    },
    /// Chooses the strategy of a prefix; `None` unsets it (`/` falls back to best-route).
    SetStrategy {
        /// The prefix.
        prefix: Name,
        /// What to use there and below.
        strategy: Option<Strategy>,
    },
    /// Changes capacity, policy or flags of the content store.
    ConfigureStore(StoreConfig),
    /// Erases stored Data under a prefix; answered by [`Event::StoreErased`].
    EraseStore {
        /// Identifies the answer.
        transaction: u64,
        /// Everything under this name goes.
        prefix: Name,
        /// At most this many Data.
        limit: usize,
    },
    /// Writes all that is in RAM to the store's disks, as before a stop; answered by
    /// [`Event::StoreFlushed`] when it is done, at once where there is no disk.
    FlushStore {
        /// Identifies the answer.
        transaction: u64,
    },
    /// Sets the names whose forwarding hints mean "here" (NFD, producer region).
    SetProducerRegions(Vec<Name>),
}

/// What kind of network packet leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketKind {
    /// An Interest.
    Interest,
    /// A Data.
    Data,
    /// A Nack: an Interest with a reason in its link header.
    Nack,
}

/// A packet to send.
#[derive(Debug)]
pub struct OutPacket {
    /// Where to.
    pub face: FaceId,
    /// PIT token, Nack, congestion mark and incoming face. The link adds what is its own and leaves
    /// out the incoming face where local fields are off.
    pub header: LpHeader,
    /// The Interest or Data TLV.
    pub packet: Packet,
    /// What it is, for counters.
    pub kind: PacketKind,
}

/// What the neighbour at a face is to be told of this router's store, see
/// [`Input::Availability`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Availability {
    /// The face it is at.
    pub face: FaceId,
    /// For how long there is no room, milliseconds; 0 when there is again.
    pub unavailable_ms: u64,
}

/// Something a driver should know that is not a packet.
#[derive(Debug, PartialEq, Eq)]
pub enum Event {
    /// Answers [`Command::EraseStore`].
    StoreErased {
        /// The command's.
        transaction: u64,
        /// Data erased.
        erased: usize,
        /// The limit was reached: there may be more.
        limit_reached: bool,
    },
    /// Answers [`Command::FlushStore`].
    StoreFlushed {
        /// The command's.
        transaction: u64,
    },
}

/// What a shard wants done, appended by the shard and drained by the driver.
#[derive(Debug, Default)]
pub struct Outbox {
    /// Packets to send, in order.
    pub packets: Vec<OutPacket>,
    /// What to tell neighbours with `Link::enqueue_availability`.
    pub announcements: Vec<Availability>,
    /// Other news, in order.
    pub events: Vec<Event>,
    /// What to do on the disks of the store. Each must be answered by [`Input::DiskDone`].
    pub disk_ops: Vec<DiskOp>,
}
