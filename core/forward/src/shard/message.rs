//! Messages between the shards of a router. Nearly all of them belong to Interests with
//! CanBePrefix.

use alloc::boxed::Box;
use alloc::vec::Vec;

use weir_base::{FaceId, Instant, Packet};
use weir_wire::{LpHeader, Name, PitToken};

use crate::announced::AnnouncedPacket;
use crate::endpoints::{DataOrigin, Downstream, TokenCarrier};

/// A message from one shard of a router to another. The driver takes it from
/// [`Outbox::shard_messages`](crate::Outbox) and passes it on as [`Input::Shard`](crate::Input).
/// Messages between two shards must keep their order. A lost message delays an Interest until a
/// timeout or the consumer's next Interest.
#[derive(Debug)]
pub struct ShardMessage(pub(crate) Message);

/// Identifies a query of a home shard: its slot there, and a number that distinguishes it from
/// earlier queries in this slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueryId {
    pub(crate) slot: u32,
    pub(crate) serial: u32,
}

#[derive(Debug)]
pub(crate) enum Message {
    /// Offer Data under this prefix to the home until this time. A repeated message changes the
    /// time.
    Watch { entry: u32, hash: u64, components: u16, until: Instant },
    /// Stop watching.
    Unwatch { entry: u32, hash: u64 },
    /// Requests a lookup of the store for this Interest.
    Query { id: QueryId, interest: Packet },
    /// The reply to [`Message::Query`], or to a [`Message::Read`] that did not return the Data.
    QueryReply { id: QueryId, found: Candidate },
    /// Requests a read of the record that the shard has found. Answered by an offer or a reply.
    Read { id: QueryId, interest: Packet, is_marked: bool },
    /// The queue of the disk is full.
    ReadRefused { id: QueryId },
    /// Data that the receiver watches for has arrived.
    Offer(Box<OfferedData>),
    /// The peer of a face returns PIT tokens.
    ReturnsTokens { face: FaceId, carrier: TokenCarrier },
    /// Data of this name was found to be false.
    Distrust { name: Name, source: u32 },
    /// The reply for offered Data: whether a home shard had sent an Interest to its source.
    Verdict { face: FaceId, packet: Packet, verdict: UnsolicitedVerdict },
    /// Data that a wrong PIT token has led to the wrong shard.
    Misrouted { face: FaceId, header: Box<LpHeader>, packet: Packet },
    /// The same with a prefix announcement.
    MisroutedAnnounced(Box<AnnouncedPacket>),
}

/// The best Data for an Interest with CanBePrefix in the store of one shard.
#[derive(Debug)]
pub(crate) enum Candidate {
    Nothing,
    Memory {
        packet: Packet,
        arrived_at: Instant,
    },
    /// Data that waits to be written to a disk.
    Unwritten {
        packet: Packet,
    },
    /// On a disk, with the length of its read queue.
    OnDisk {
        disk: u8,
        reads_waiting: u32,
        is_stalled: bool,
    },
}

/// Data on its way from one home shard to the next.
#[derive(Debug)]
pub(crate) struct OfferedData {
    pub(crate) origin: DataOrigin,
    /// The PIT token of the Data, if its source has not been checked.
    pub(crate) token: Option<PitToken>,
    /// For Data that no entry of its own shard requested.
    pub(crate) verdict: Option<UnsolicitedVerdict>,
    /// The Data is stale, so it does not answer Interests with MustBeFresh.
    pub(crate) is_stale: bool,
    pub(crate) packet: Packet,
    /// The prefix announcement that came with the Data.
    pub(crate) announcement: Option<Packet>,
    /// The downstreams that have received the Data. Each face receives it once for each PIT token.
    pub(crate) served: Vec<Downstream>,
    /// The home shards that have not seen the Data yet, as a bit set.
    pub(crate) homes: u64,
}

impl OfferedData {
    /// Fresh Data whose source has been checked, without announcement.
    pub(crate) fn new(
        origin: DataOrigin,
        packet: Packet,
        served: Vec<Downstream>,
        homes: u64,
    ) -> Self {
        let (token, verdict, is_stale, announcement) = (None, None, false, None);
        Self { origin, token, verdict, is_stale, packet, announcement, served, homes }
    }
}

/// The report of the home shards about Data that only they may have requested. The shard that
/// received the Data stores it if one of them had requested it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UnsolicitedVerdict {
    pub(crate) shard: u16,
    pub(crate) no_cache: bool,
    /// A home shard had sent an Interest for the Data to the face that it came from.
    pub(crate) is_requested: bool,
}
