//! What goes into a router shard.

use alloc::vec::Vec;

use weir_base::{FaceId, Packet};
use weir_store::StoreConfig;
use weir_store::disk::{DiskOpId, DiskOutcome};
use weir_wire::{HopSignal, LpHeader, Name};

use crate::io::{FaceAttributes, NextHop};
use crate::shard::ShardMessage;
use crate::store_commands::StoreCommand;
use crate::strategy::Strategy;

/// One thing that a shard is given. Inputs come in batches; a batch of any size gives the same
/// result as its inputs one by one.
#[derive(Debug)]
pub enum Input {
    /// A whole network packet from a face: `weir-link` has reassembled it and decoded its NDNLPv2
    /// header. A Nack is an Interest whose header holds a reason.
    Packet {
        face: FaceId,
        /// Its link header; only fields that matter beyond the link are read.
        header: LpHeader,
        /// Exactly one Interest or Data TLV.
        packet: Packet,
    },
    /// A change of configuration or tables.
    Command(Command),
    /// An operation of [`Outbox::disk_ops`](crate::Outbox::disk_ops) has ended.
    DiskDone { id: DiskOpId, outcome: DiskOutcome },
    /// What the router at the other end of a link says of itself. On a router of several shards
    /// each gets this.
    Signal {
        face: FaceId,
        /// What it says.
        signal: HopSignal,
    },
    /// Another shard of the router says something, see [`Outbox::shard_messages`](crate::Outbox).
    Shard {
        from: u16,
        /// What it says.
        message: ShardMessage,
    },
    /// Nothing but the time has come: see [`Router::next_wakeup`](crate::Router::next_wakeup).
    Wakeup,
}

/// A change of a shard's tables. Every shard of a router gets every command.
#[derive(Debug)]
pub enum Command {
    /// A face came into being.
    AddFace {
        face: FaceId,
        /// What is to be known of it.
        attributes: FaceAttributes,
    },
    /// A face is gone. FIB entries that name it pass it over; who keeps the FIB sends
    /// [`Command::SetNextHops`] for them in its own time.
    RemoveFace { face: FaceId },
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
        prefix: Name,
        /// What to use there and below.
        strategy: Option<Strategy>,
    },
    /// Changes capacity, policy or flags of the content store.
    ConfigureStore(StoreConfig),
    /// Erases stored Data under a prefix; answered by
    /// [`Event::StoreErased`](crate::Event::StoreErased).
    EraseStore {
        /// Identifies the answer.
        transaction: u64,
        /// Everything under this name goes.
        prefix: Name,
        /// At most this many Data.
        limit: usize,
    },
    /// Writes all that is in RAM to the store's disks, as before a stop; answered by
    /// [`Event::StoreFlushed`](crate::Event::StoreFlushed) when it is done, at once where there is
    /// no disk.
    FlushStore {
        /// Identifies the answer.
        transaction: u64,
    },
    /// Sets the names whose forwarding hints mean "here" (NFD, producer region).
    SetProducerRegions(Vec<Name>),
    /// Asks what the store holds, or says what it is to hold.
    Store(StoreCommand),
    /// Whose misses of large objects to tell of, see [`Event::Miss`](crate::Event::Missed).
    ReportMisses(MissReports),
}

/// Of whose Interests a router tells that its store lacked a segment of a large object.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum MissReports {
    /// Of nobody's.
    #[default]
    Off,
    /// Of those that came by faces of local scope: from applications of this machine. What other
    /// hosts ask for in vain costs nothing, however much it is.
    Local,
    All,
}
