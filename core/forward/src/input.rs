//! The inputs of a router shard.

use alloc::boxed::Box;
use alloc::vec::Vec;

use weir_base::{FaceId, Packet};
use weir_store::StoreConfig;
use weir_store::disk::{DiskOpId, DiskOutcome};
use weir_wire::{HopSignal, LpHeader, Name};

use crate::announced::AnnouncedPacket;
use crate::io::{FaceAttributes, NextHop};
use crate::shard::ShardMessage;
use crate::store_commands::StoreCommand;
use crate::strategy::Strategy;

/// One input of a shard. Inputs arrive in batches. The result does not depend on the boundaries of
/// the batches.
#[derive(Debug)]
pub enum Input {
    /// A whole network packet from a face. `weir-link` has reassembled it and decoded its NDNLPv2
    /// header. A Nack is an Interest whose header holds a reason.
    Packet {
        face: FaceId,
        /// The link header. The router reads only the fields that are not for the link alone.
        header: LpHeader,
        /// Exactly one Interest or Data TLV.
        packet: Packet,
    },
    /// Data with a prefix announcement. The link has checked that the packet is Data.
    Announced(Box<AnnouncedPacket>),
    Command(Command),
    /// An operation of [`Outbox::disk_ops`](crate::Outbox::disk_ops) has finished.
    DiskDone {
        id: DiskOpId,
        outcome: DiskOutcome,
    },
    /// A signal from the peer's router. Each shard of this router receives it.
    Signal {
        face: FaceId,
        signal: HopSignal,
    },
    /// A message from another shard; see [`Outbox::shard_messages`](crate::Outbox).
    Shard {
        from: u16,
        message: ShardMessage,
    },
    /// No input: a timer is due, see [`Router::next_wakeup`](crate::Router::next_wakeup).
    Wakeup,
}

/// A change of a shard's tables. Every shard of a router receives every command.
#[derive(Debug)]
pub enum Command {
    AddFace {
        face: FaceId,
        attributes: FaceAttributes,
    },
    /// A face has closed. FIB entries that name the face ignore it. The owner of the FIB removes it
    /// from these entries with [`Command::SetNextHops`].
    RemoveFace {
        face: FaceId,
    },
    /// Replaces the next hops of a FIB prefix; an empty list removes the prefix.
    SetNextHops {
        /// The prefix, with at most [`PREFIX_COMPONENTS_MAX`](crate::PREFIX_COMPONENTS_MAX)
        /// components.
        prefix: Name,
        /// The next hops, in any order.
        next_hops: Vec<NextHop>,
    },
    /// Sets the strategy of a prefix. `None` removes it; `/` then uses best-route.
    SetStrategy {
        prefix: Name,
        strategy: Option<Strategy>,
    },
    /// Answers [`Event::AnnouncementNeeded`](crate::Event::AnnouncementNeeded): the announcement of
    /// a prefix, or `None` if it has no route.
    SetAnnouncement {
        prefix: Name,
        announcement: Option<Packet>,
    },
    /// Changes the capacity, the policy or the flags of the content store.
    ConfigureStore(StoreConfig),
    /// Erases stored Data under a prefix. Answered by
    /// [`Event::StoreErased`](crate::Event::StoreErased).
    EraseStore {
        /// Repeated in the answer.
        transaction: u64,
        /// Everything under this name is erased.
        prefix: Name,
        /// Maximum number of Data packets to erase.
        limit: usize,
    },
    /// Writes all Data in memory to the disks, before a shutdown for example. When the writes are
    /// done, or at once without disks, the shard answers with
    /// [`Event::StoreFlushed`](crate::Event::StoreFlushed).
    FlushStore {
        /// Repeated in the answer.
        transaction: u64,
    },
    /// Sets the names whose forwarding hints mean this network (NFD, producer region).
    SetProducerRegions(Vec<Name>),
    /// Queries the contents of the store, or sets its rules.
    Store(StoreCommand),
    /// Sets which Interests cause reports of misses, see [`Event::Missed`](crate::Event::Missed).
    ReportMisses(MissReports),
}

/// The Interests whose misses in the store are reported, for large objects only.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum MissReports {
    /// None.
    #[default]
    Off,
    /// Interests from faces of local scope, that is, from applications of this machine. Other hosts
    /// then cannot cause reports.
    Local,
    All,
}
