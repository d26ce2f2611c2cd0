//! Messages between the shards of a router. Only Interests with CanBePrefix cause them.

use alloc::boxed::Box;
use alloc::vec::Vec;

use weir_base::{FaceId, Instant, Packet};
use weir_wire::{LpHeader, Name, PitToken};

use crate::endpoints::{DataOrigin, Downstream, TokenCarrier};

/// A message from one shard of a router to another: an element of
/// [`Outbox::shard_messages`](crate::Outbox) that a driver hands over as
/// [`Input::Shard`](crate::Input). Messages between two shards keep their order. One that is lost
/// delays an Interest and is made up for by a time-out or by the consumer's next Interest.
#[derive(Debug)]
pub struct ShardMessage(pub(crate) Message);

/// A question of a home: its place there, and a number that tells it from others in that place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueryId {
    pub(crate) slot: u32,
    pub(crate) serial: u32,
}

#[derive(Debug)]
pub(crate) enum Message {
    /// Offer Data under this prefix to the home until then. A repeated message moves the time.
    Watch { entry: u32, hash: u64, components: u16, until: Instant },
    /// Stop watching.
    Unwatch { entry: u32, hash: u64 },
    /// What does your store have for this Interest?
    Query { id: QueryId, interest: Packet },
    /// The answer to [`Message::Ask`], or the end of a read that has not helped.
    QueryReply { id: QueryId, found: Candidate },
    /// Read the Data that you have found on your disk. It will be offered, or answered.
    Read { id: QueryId, interest: Packet, is_marked: bool },
    /// The queue of the disk is full.
    ReadRefused { id: QueryId },
    /// Data that you watch for has arrived.
    Offer(Box<OfferedData>),
    /// The peer of a face returns PIT tokens.
    ReturnsTokens { face: FaceId, echo: TokenCarrier },
    /// Data of that name was found to be false.
    Distrust { name: Name, source: u32 },
    /// Whether an Interest was sent to the face that the Data you offered came from.
    Verdict { face: FaceId, packet: Packet, verdict: UnsolicitedVerdict },
    /// Data that a wrong PIT token has led to the wrong shard.
    Misrouted { face: FaceId, header: Box<LpHeader>, packet: Packet },
}

/// What a shard's store has for an Interest with CanBePrefix.
#[derive(Debug)]
pub(crate) enum Candidate {
    Nothing,
    Memory {
        packet: Packet,
        came: Instant,
    },
    /// Data that waits to be written to a disk.
    Unwritten {
        packet: Packet,
    },
    /// On a disk, with the queue before it.
    OnDisk {
        disk: u8,
        reads_waiting: u32,
        is_stalled: bool,
    },
}

/// Data on its way from one home to the next.
#[derive(Debug)]
pub(crate) struct OfferedData {
    pub(crate) origin: DataOrigin,
    /// Its PIT token, if its source is not proven.
    pub(crate) token: Option<PitToken>,
    /// For Data that no entry of its own shard waits for.
    pub(crate) verdict: Option<UnsolicitedVerdict>,
    /// It does not answer Interests with MustBeFresh.
    pub(crate) is_stale: bool,
    pub(crate) packet: Packet,
    /// The downstreams that have received it: each face receives it once for each PIT token.
    pub(crate) served: Vec<Downstream>,
    /// The shards that it must still be offered to, a bit each.
    pub(crate) homes: u64,
}

/// What the homes say of Data that only they wait for. Its shard keeps it if it was asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UnsolicitedVerdict {
    pub(crate) shard: u16,
    pub(crate) no_cache: bool,
    /// An Interest for it was sent to the face that it came from.
    pub(crate) is_requested: bool,
}
